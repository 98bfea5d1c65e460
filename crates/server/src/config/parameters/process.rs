//! Parameters of the process: name, user, spool, log, control.

use super::super::choice::{Choice as _, FACILITIES};
use super::super::field::Field as _;
use super::super::parameter::{Preset, Section, at};
use super::super::{LogFormat, Mailq};
use super::{Kind, PATH, fixed, list, seconds};

pub(super) static TOP: Section = Section {
    key: "",
    summary: "before the first table",
    group: None,
    parameters: &[fixed(
        "hostname",
        at!(hostname),
        Kind::Domain,
        "",
        "mx.example.com",
        "our name in the greeting, in replies and in trace lines",
        "Other servers look it up, so it should be the full name that the address of this host has in the DNS. The name \
         of the host as the system says it is often too short: \"mx\" and not \"mx.example.com\".",
    )
    .preset(Preset::Derived { text: "the machine's name for itself", value: |_, machine, _| machine.hostname.value() })],
};

pub(super) static SERVER: Section = Section {
    key: "server",
    summary: "the process",
    group: None,
    parameters: &[
        fixed(
            "server.threads",
            at!(server.threads),
            Kind::Number { min: 0, max: 1_024, unit: "threads" },
            "0",
            "4",
            "worker threads; 0 for one per core",
            "The threads do the protocol and TLS. Their number does not grow with the number of connections. Fewer than \
             cores leaves room for other programs.",
        )
        .restart(),
        fixed(
            "server.user",
            at!(server.user),
            Kind::Word { empty: true },
            "",
            "mailrace",
            "the user to become after ports are bound; empty to stay",
            "Started as root, the process binds its ports, gives up root for this user and never gets it back. The spool \
             must belong to this user. Without root it has no effect. Ports below 1,024 that a reload adds cannot be bound \
             afterwards; systemd's socket activation can do both.",
        )
        .restart(),
        fixed(
            "server.group",
            at!(server.group),
            Kind::Word { empty: true },
            "",
            "mail",
            "the group to become; empty for the user's own",
            "Only together with server.user.",
        )
        .restart(),
        fixed(
            "server.shutdown_grace",
            at!(server.shutdown_grace),
            seconds(0, super::HOUR),
            "30s",
            "2m",
            "how long open transactions may go on after SIGTERM",
            "New transactions are refused at once with 421. Transactions that take longer end without a reply to DATA; \
             their clients keep the message and try again. Keep it below systemd's TimeoutStopSec (90 seconds).",
        ),
        fixed(
            "server.landlock",
            at!(server.landlock),
            Kind::Flag,
            "true",
            "false",
            "close all files that the configuration does not name, by the kernel's Landlock",
            "After its start the server reads /etc, /usr, /proc, /sys and the directories of files that it is configured with, and \
             writes to the spool, the pickup directory, and the directories of the control socket and the log. auth.program \
             and other programs that it starts itself are bound too. A reload that names files elsewhere is refused and needs a \
             restart. The log says at the start what is in force; a kernel before 5.13 has nothing.",
        )
        .restart(),
        fixed(
            "server.landlock_read",
            at!(server.landlock_read),
            list(&PATH),
            "[]",
            "[\"/opt/checkpw\"]",
            "further directories that may be read, and whose programs may be run",
            "For what programs of auth.program need besides /usr and /etc.",
        )
        .restart(),
        fixed(
            "server.landlock_write",
            at!(server.landlock_write),
            list(&PATH),
            "[]",
            "[\"/var/lib/checkpw\"]",
            "further directories that may be written to",
            "For programs that write. The directory must be there when the server starts.",
        )
        .restart(),
        fixed(
            "server.seccomp",
            at!(server.seccomp),
            Kind::Flag,
            "true",
            "false",
            "refuse system calls that mail never needs, by the kernel's seccomp",
            "Looking into other processes, mounts, namespaces, BPF, keys, io_uring, modules and the clock answer EPERM, also to \
             auth.program, which must not be a program of 32 bits. Workers that write mailboxes have the same list; programs that they \
             run for users have not.",
        )
        .restart(),
    ],
};

pub(super) static SPOOL: Section = Section {
    key: "spool",
    summary: "where accepted mail is kept",
    group: None,
    parameters: &[
        fixed(
            "spool.path",
            at!(spool.path),
            PATH,
            "",
            "/var/spool/mailrace",
            "the directory of the spool",
            "Made if it is not there. It wants a local disk that keeps what it has synced; a network file system does \
             not do. To move a spool, stop the server, move the directory, change the path, start.",
        )
        .preset(Preset::Derived {
            text: "/var/spool/mailrace for root, else mailrace/spool in the user's state directory (~/.local/state)",
            value: |_, machine, _| machine.spool.value(),
        })
        .restart(),
        fixed(
            "spool.size_max",
            at!(spool.size_max),
            Kind::Bytes { min: 1 << 20, max: 512 << 40 },
            "8GiB",
            "32GiB",
            "the most the spool may take on the disk",
            "When it is full, MAIL is answered 452 4.3.1 until there is room. It must hold eight segments per shard. Segments \
             are made as they are needed and not given back.",
        )
        .restart(),
        fixed(
            "spool.free_min",
            at!(spool.free_min),
            Kind::Bytes { min: 0, max: 512 << 40 },
            "1GiB",
            "10GiB",
            "room on the file system that is left to others",
            "The spool does not grow while less than this is free. It goes on in the segments it has.",
        )
        .restart(),
        fixed(
            "spool.shards",
            at!(spool.shards),
            Kind::Number { min: 1, max: 64, unit: "shards" },
            "1",
            "4",
            "committer threads, one directory each; fixed when the spool is made",
            "One is right for one device: everything that arrives during a flush shares the next one. More pay on storage \
             that can flush several at a time. An existing spool keeps its number.",
        )
        .restart(),
        fixed(
            "spool.segment_bytes",
            at!(spool.segment_bytes),
            Kind::Bytes { min: crate::intake::SEGMENT_BYTES_MIN as i64, max: 1 << 30 },
            "64MiB",
            "128MiB",
            "the size of a segment file; fixed when the spool is made",
            "A multiple of 4KiB; at least 1MiB, so that content and chunks of it fit in. Large segments cost fewer flushes, small ones give their room back sooner. An existing \
             spool keeps its size.",
        )
        .restart(),
        fixed(
            "spool.cache_bytes",
            at!(spool.cache_bytes),
            Kind::Bytes { min: 0, max: 1 << 40 },
            "256MiB",
            "1GiB",
            "memory for bodies of messages that wait for their first delivery",
            "A body in memory need not be read from the disk again. It is on the disk all the same before 250 is said.",
        )
        .restart(),
        fixed(
            "spool.shared_bytes",
            at!(spool.shared_bytes),
            Kind::Bytes { min: 0, max: 1 << 40 },
            "32MiB",
            "128MiB",
            "memory for messages that were read from the disk and are wanted by other recipients",
            "After a restart a list is read once for all its destinations, and kept here for those that follow. A list of \
             100,000 recipients takes some 10MiB. Each of spool.shards has an equal part of it, and keeps one message of \
             any size. With 0 each destination reads for itself. mailrace status --json shows it: shared_bytes, \
             shared_hits, shared_misses.",
        )
        .restart(),
    ],
};

pub(super) static LOG: Section = Section {
    key: "log",
    summary: "the log",
    group: None,
    parameters: &[
        fixed(
            "log.format",
            at!(log.format),
            Kind::Choice(LogFormat::WORDS),
            "sendmail",
            "json",
            "how lines look",
            "Programs that read sendmail's log find the same fields in the same order. JSON has every field of an event, \
             also those for which sendmail has no place.",
        ),
        fixed(
            "log.path",
            at!(log.path),
            Kind::LogPath,
            "-",
            "/var/log/mailrace.log",
            "where the log goes: \"-\" for standard output, \"syslog\", \"journald\", or a file",
            "A file is opened again after SIGHUP, so that it can be rotated.",
        ),
        fixed(
            "log.level",
            at!(log.level),
            Kind::Number { min: 0, max: 20, unit: "" },
            "9",
            "14",
            "how much is logged, on the scale of sendmail's LogLevel",
            "9 has a line for each message received and for each recipient's outcome; 10 and more tell of connections and \
             look-ups; 0 to 4 only of what a person must see to.",
        ),
        fixed(
            "log.queue_lines_max",
            at!(log.queue_lines_max),
            Kind::Number { min: 16, max: 10_000_000, unit: "lines" },
            "65536",
            "200000",
            "lines that may wait for a slow log",
            "Sessions never wait for the log. Lines above this number are dropped, and the log says how many.",
        )
        .restart(),
        fixed(
            "log.tag",
            at!(log.tag),
            Kind::Word { empty: false },
            "mailrace",
            "sm-mta",
            "the name of the program in log lines",
            "Tools that look for \"sendmail\" or \"sm-mta\" find it under that name.",
        ),
        fixed(
            "log.facility",
            at!(log.facility),
            Kind::Choice(FACILITIES),
            "mail",
            "local3",
            "the facility for syslog",
            "Only for log.path = \"syslog\" and \"journald\".",
        ),
    ],
};

pub(super) static CONTROL: Section = Section {
    key: "control",
    summary: "the socket through which commands reach a running server",
    group: None,
    parameters: &[
      fixed(
        "control.path",
        at!(control.path),
        PATH,
        "",
        "/run/mailrace/control",
        "the socket for mailrace reload and other commands",
        "Root, the user of the server and members of the socket's group may use it. Others may look at the queue as far as \
         control.mailq lets them.",
    )
    .preset(Preset::Derived {
        text: "/run/mailrace/control for root, else mailrace/control in the user's state directory (~/.local/state)",
        value: |_, machine, _| machine.control.value(),
    })
    .restart(),
    fixed(
        "control.mailq",
        at!(control.mailq),
        Kind::Choice(Mailq::WORDS),
        "own",
        "everyone",
        "what users see of the queue who may not control the server",
        "For mailq, and mailrace queue list and show. The kernel says who asks. With \"operators\" nobody else can connect; \
         sendmail shows all to everyone, unless PrivacyOptions has restrictmailq. Subjects and content are never shown.",
    )
    .restart(),
    ],
};
