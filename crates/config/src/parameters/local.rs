//! Parameters of `[local]`: mail for people and programs of this machine.

use super::super::choice::{Choice as _, LOCKS};
use super::super::parameter::{Preset, Section, at};
use super::super::value::Value;
use super::super::{Config, Unknown};
use super::{HOUR, Kind, PATH, count, count_from_1, fixed, list, seconds};
use std::collections::BTreeSet;

pub(super) static LOCAL: Section = Section {
    key: "local",
    summary: "mail for users and programs of this machine",
    group: None,
    parameters: &[
        fixed(
            "local.own_name",
            at!(local.own_name),
            Kind::Flag,
            "",
            "false",
            "whether hostname is a local domain",
            "false for a machine that passes on mail for its own name.",
        )
        .preset(Preset::ConfiguredValue {
            text: "true if anything of [local] is set, or maps.directory or maps.aliases, or hostname without route.smart_host",
            value: is_hostname_local,
        }),
        fixed(
            "local.domains",
            at!(local.domains),
            list(&Kind::Domain),
            "[]",
            "[\"example.com\"]",
            "local domains",
            "sendmail's class w. For hostname see local.own_name.",
        ),
        fixed(
            "local.domain_files",
            at!(local.domain_files),
            list(&PATH),
            "",
            "[\"/etc/mail/local-host-names\"]",
            "files of local domains, one a line",
            "# begins a comment.",
        )
        .preset(Preset::Derived {
            text: "local-host-names in maps.directory, if there is one",
            value: |config, _, _| super::routing::in_directory(config, "local-host-names"),
        }),
        fixed(
            "local.delimiter",
            at!(local.delimiter),
            Kind::Text,
            "+",
            "-",
            "character between user and detail; empty for none",
            "Mail to joe+lists goes to joe, unless a user or alias has the whole name.",
        ),
        fixed(
            "local.unknown",
            at!(local.unknown),
            Kind::Choice(Unknown::WORDS),
            "refuse",
            "defer",
            "reply for names that are neither alias nor user",
            "\"defer\" while users are moved.",
        ),
        fixed(
            "local.luser_relay",
            at!(local.luser_relay),
            Kind::Text,
            "",
            "hub.example.com",
            "next hop of mail to names that are neither alias nor user; empty: it is refused",
            "A host, mailer:host as in mailertable, or an address.",
        ),
        fixed(
            "local.accounts",
            at!(local.accounts),
            PATH,
            "/etc/passwd",
            "/etc/mail/passwd",
            "file of users, as /etc/passwd",
            "For users without an account.",
        )
        .restart(),
        fixed(
            "local.nss",
            at!(local.nss),
            Kind::Flag,
            "true",
            "false",
            "users of the C library (SSSD, LDAP, systemd) count too",
            "While they do not answer: 451. Not with another local.accounts, nor in a static program.",
        )
        .restart(),
        fixed(
            "local.forward",
            at!(local.forward),
            Kind::Flag,
            "true",
            "false",
            "users forward mail by .forward in their home",
            "A file that others may write does not count.",
        ),
        fixed(
            "local.mailbox",
            at!(local.mailbox),
            Kind::MailboxPlace,
            "mbox:/var/mail/%u",
            "maildir:%h/Maildir",
            "where mailboxes are",
            "mbox: a file per user, maildir: a directory, lmtp:unix: a socket (Dovecot), lmtp: host and port. %u \
             user, %d domain, %h home. \"none\": mail waits.",
        )
        .restart(),
        fixed(
            "local.mailbox_user",
            at!(local.mailbox_user),
            Kind::Word { empty: true },
            "",
            "vmail",
            "user that writes all mailboxes; empty for each user",
            "For users without accounts; local.mailbox must begin with its directory.",
        )
        .restart(),
        fixed(
            "local.mailbox_group",
            at!(local.mailbox_group),
            Kind::Word { empty: true },
            "mail",
            "staff",
            "additional group of the writer of a mailbox; empty for none",
            "For locks in /var/mail. Not for programs, nor in homes.",
        )
        .restart(),
        fixed(
            "local.mailbox_size_max",
            at!(local.mailbox_size_max),
            Kind::Bytes { min: 0, max: 512 << 40 },
            "0",
            "2GiB",
            "largest mailbox file; 0 for no limit",
            "Mail beyond it waits. Files of aliases count too.",
        )
        .restart(),
        fixed(
            "local.locks",
            at!(local.locks),
            list(&Kind::Choice(LOCKS)),
            "[\"dotlock\", \"fcntl\"]",
            "[\"fcntl\"]",
            "locks of a mailbox file, in order",
            "All writing programs must use the same.",
        )
        .restart(),
        fixed(
            "local.lock_time_max",
            at!(local.lock_time_max),
            seconds(1, HOUR),
            "30s",
            "2m",
            "time for a lock",
            "Then the mail waits. A lock file of a dead process, or older than five minutes, is removed.",
        )
        .restart(),
        fixed(
            "local.subfolders",
            at!(local.subfolders),
            Kind::Flag,
            "false",
            "true",
            "mail to joe+lists goes to the folder .lists of a Maildir, if it exists",
            "Folders are never made.",
        )
        .restart(),
        fixed(
            "local.programs",
            at!(local.programs),
            list(&PATH),
            "[\"/etc/mail/smrsh\", \"/etc/smrsh\", \"/usr/adm/sm.bin\", \"/usr/lib/sm.bin\"]",
            "[\"/usr/lib/mailman/mail\", \"/etc/mail/smrsh\"]",
            "directories of programs for aliases and .forward",
            "A program elsewhere is looked up here by its last name, as sendmail's restricted shell does: link it. \
             \"/\" allows all, an empty list none.",
        )
        .restart(),
        fixed(
            "local.program_time_max",
            at!(local.program_time_max),
            seconds(1, HOUR),
            "10m",
            "2m",
            "time for a program",
            "Then it and its children are killed, and the mail waits.",
        )
        .restart(),
        fixed(
            "local.program_processes_max",
            at!(local.program_processes_max),
            count("processes"),
            "1000",
            "100",
            "processes of its user while a program runs; 0 for no limit",
            "Against fork loops. A lower limit of the user stays.",
        )
        .restart(),
        fixed(
            "local.programs_as_server",
            at!(local.programs_as_server),
            Kind::Flag,
            "false",
            "true",
            "run programs of aliases with the server's rights, without root",
            "Such a program can read spool, keys and passwords. Else their mail waits. No effect on a server \
             started as root.",
        )
        .restart(),
        fixed(
            "local.files",
            at!(local.files),
            list(&Kind::Text),
            "[\"/var/mail\", \"/var/spool/mail\", \"%h\"]",
            "[\"/var/mail\", \"/var/archive\"]",
            "directories of files for aliases and .forward",
            "%h is the user's home. Not files with a leading dot, links, or in directories that others may write. \
             /dev/null always; \"/\" allows all.",
        )
        .restart(),
        fixed(
            "local.default_user",
            at!(local.default_user),
            Kind::Text,
            "",
            "mailman:list",
            "user and group for programs and files of aliases; empty for mailnull, else nobody",
            "sendmail's DefaultUser. It should own nothing and be in no group of mailboxes: on Debian not mail.",
        )
        .restart(),
        fixed(
            "local.uid_min",
            at!(local.uid_min),
            Kind::Number { min: 1, max: 4_294_967_294, unit: "" },
            "1000",
            "500",
            "users below run no programs and write no files of aliases",
            "Service accounts. local.default_user may.",
        )
        .restart(),
        fixed(
            "local.list_size_max",
            at!(local.list_size_max),
            Kind::Bytes { min: 1, max: 512 << 20 },
            "32MiB",
            "4MiB",
            "the largest :include: file of an alias",
            "Mail for a larger one waits. A .forward with its includes has 64 KiB. Texts take 64 MiB of memory at \
             most.",
        )
        .restart(),
        fixed(
            "local.deliveries_max",
            at!(local.deliveries_max),
            count_from_1("deliveries"),
            "20",
            "50",
            "deliveries to mailboxes at once; the same for programs and files",
            "Each may wait for a disk or program, and has a process if started as root.",
        )
        .restart(),
    ],
};

/// True if a key of `local.` or a map of local names is set, or if the machine has a name of its own and sends mail
/// itself.
fn is_hostname_local(config: &Config, given: &BTreeSet<&'static str>) -> Value {
    let is_told = given.iter().any(|key| key.starts_with("local."));
    let is_named = given.contains("hostname") && config.route.smart_host.is_empty();
    Value::Flag(is_told || is_named || config.maps.directory.is_some() || !config.maps.aliases.is_empty())
}
