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
        "name of this server in the greeting, replies and trace lines",
        "The full name that the DNS has for this host's address, \"mx.example.com\" and not \"mx\".",
    )
    .preset(Preset::Derived {
        text: "the machine's name for itself",
        value: |_, machine, _| machine.hostname.value(),
    })],
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
            "For protocol and TLS. Less than cores leaves room for other programs.",
        )
        .restart(),
        fixed(
            "server.user",
            at!(server.user),
            Kind::Word { empty: true },
            "",
            "mailrace",
            "user to become after binding ports; empty to stay",
            "For a start as root, which is given up for good. Ports below 1,024 that a reload adds cannot be bound \
             then, except by systemd.",
        )
        .restart(),
        fixed(
            "server.group",
            at!(server.group),
            Kind::Word { empty: true },
            "",
            "mail",
            "group to become; empty for the user's own",
            "Only with server.user.",
        )
        .restart(),
        fixed(
            "server.shutdown_grace",
            at!(server.shutdown_grace),
            seconds(0, super::HOUR),
            "30s",
            "2m",
            "time for open transactions after SIGTERM",
            "New ones get 421. Longer ones end unanswered; clients try again. Keep it below TimeoutStopSec (90 \
             seconds).",
        ),
        fixed(
            "server.landlock",
            at!(server.landlock),
            Kind::Flag,
            "true",
            "false",
            "close files that the configuration does not name (Landlock)",
            "Reads: /etc, /usr, /proc, /sys, directories of configured files. Writes: spool, pickup, control \
             socket, log. auth.program is bound too. A reload with files elsewhere needs a restart. Linux 5.13.",
        )
        .restart(),
        fixed(
            "server.landlock_read",
            at!(server.landlock_read),
            list(&PATH),
            "[]",
            "[\"/opt/checkpw\"]",
            "more directories to read and run programs from",
            "For auth.program.",
        )
        .restart(),
        fixed(
            "server.landlock_write",
            at!(server.landlock_write),
            list(&PATH),
            "[]",
            "[\"/var/lib/checkpw\"]",
            "more directories to write",
            "They must exist at the start.",
        )
        .restart(),
        fixed(
            "server.seccomp",
            at!(server.seccomp),
            Kind::Flag,
            "true",
            "false",
            "refuse system calls that mail does not need (seccomp)",
            "ptrace, mounts, namespaces, BPF, keys, io_uring, modules and clock give EPERM, also to auth.program \
             (no 32-bit programs). Not to programs of users.",
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
            "directory of the spool",
            "Made if missing. It needs a local disk. To move it: stop, move, change, start.",
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
            "most space of the spool",
            "When full, MAIL gets 452 4.3.1. At least eight segments per shard. Segments are not given back.",
        )
        .restart(),
        fixed(
            "spool.free_min",
            at!(spool.free_min),
            Kind::Bytes { min: 0, max: 512 << 40 },
            "1GiB",
            "10GiB",
            "free space left to others",
            "Below it the spool does not grow.",
        )
        .restart(),
        fixed(
            "spool.ready_bytes",
            at!(spool.ready_bytes),
            Kind::Bytes { min: 0, max: 512 << 40 },
            "1GiB",
            "4GiB",
            "free segments kept for a storm; 0 for none",
            "Made while no mail comes. At most an eighth of spool.size_max, and of the free space beyond spool.free_min.",
        )
        .restart(),
        fixed(
            "spool.shards",
            at!(spool.shards),
            Kind::Number { min: 1, max: 64, unit: "shards" },
            "1",
            "4",
            "committer threads and directories; fixed when the spool is made",
            "One per device; more if storage flushes in parallel. An existing spool keeps its number.",
        )
        .restart(),
        fixed(
            "spool.segment_bytes",
            at!(spool.segment_bytes),
            Kind::Bytes { min: crate::SEGMENT_BYTES_MIN as i64, max: 1 << 30 },
            "64MiB",
            "128MiB",
            "size of a segment; fixed when the spool is made",
            "A multiple of 4KiB, at least 1MiB. Large ones need fewer flushes, small ones free space sooner. An \
             existing spool keeps its size.",
        )
        .restart(),
        fixed(
            "spool.cache_bytes",
            at!(spool.cache_bytes),
            Kind::Bytes { min: 0, max: 1 << 40 },
            "256MiB",
            "1GiB",
            "memory for bodies before their first delivery",
            "They are on the disk too.",
        )
        .restart(),
        fixed(
            "spool.shared_bytes",
            at!(spool.shared_bytes),
            Kind::Bytes { min: 0, max: 1 << 40 },
            "32MiB",
            "128MiB",
            "memory for messages read for several destinations",
            "After a restart a list is read once. 100,000 recipients take some 10MiB. Each shard has an equal part \
             and keeps one message of any size. 0: each destination reads. In mailrace status --json: shared_bytes, \
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
            "\"sendmail\" for tools that read its log; JSON has every field.",
        ),
        fixed(
            "log.path",
            at!(log.path),
            Kind::LogPath,
            "-",
            "/var/log/mailrace.log",
            "\"-\" for standard output, \"syslog\", \"journald\", or a file",
            "Reopened after SIGHUP.",
        ),
        fixed(
            "log.level",
            at!(log.level),
            Kind::Number { min: 0, max: 20, unit: "" },
            "9",
            "14",
            "sendmail's LogLevel",
            "9: a line per message and result; 10 and more: connections and look-ups; 0 to 4: what a person must \
             see.",
        ),
        fixed(
            "log.queue_lines_max",
            at!(log.queue_lines_max),
            Kind::Number { min: 16, max: 10_000_000, unit: "lines" },
            "65536",
            "200000",
            "lines that wait for a slow log",
            "More are dropped and counted; sessions never wait.",
        )
        .restart(),
        fixed(
            "log.tag",
            at!(log.tag),
            Kind::Word { empty: false },
            "mailrace",
            "sm-mta",
            "program name in log lines",
            "For tools that look for \"sendmail\" or \"sm-mta\".",
        ),
        fixed(
            "log.facility",
            at!(log.facility),
            Kind::Choice(FACILITIES),
            "mail",
            "local3",
            "syslog facility",
            "For \"syslog\" and \"journald\".",
        ),
    ],
};

pub(super) static CONTROL: Section = Section {
    key: "control",
    summary: "the socket of the running server for commands",
    group: None,
    parameters: &[
      fixed(
        "control.path",
        at!(control.path),
        PATH,
        "",
        "/run/mailrace/control",
        "path of the control socket",
        "For root, the server's user and the socket's group; for others see control.mailq.",
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
        "the queue as other users see it",
        "For mailq, queue list and show. \"operators\": none. sendmail shows all, unless restrictmailq. Subjects \
         and content are never shown.",
    )
    .restart(),
    ],
};
