//! Parameters of `[local]`: mail for people and programs of this machine.

use super::super::choice::{Choice as _, LOCKS};
use super::super::parameter::{Preset, Section, at};
use super::super::value::Value;
use super::super::{Config, Unknown};
use super::{HOUR, Kind, PATH, count, count_from_1, fixed, list, seconds};
use std::collections::BTreeSet;

pub(super) static LOCAL: Section = Section {
    key: "local",
    summary: "mail for people and programs of this machine",
    group: None,
    parameters: &[
        fixed(
            "local.own_name",
            at!(local.own_name),
            Kind::Flag,
            "",
            "false",
            "whether mail for hostname is for this machine",
            "false for a machine that passes on all mail for its own name: it then goes where mail of any domain goes. With \
             true, as in sendmail, root and postmaster of hostname are aliases and users of this machine.",
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
            "domains whose mail is for this machine",
            "What sendmail calls class w. Aliases and users are looked up for them. For hostname see local.own_name.",
        ),
        fixed(
            "local.domain_files",
            at!(local.domain_files),
            list(&PATH),
            "",
            "[\"/etc/mail/local-host-names\"]",
            "files with such domains, one a line",
            "A line may have a comment behind a number sign.",
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
            "the character between a user and a detail; empty for none",
            "With the default, mail to joe+lists goes to joe unless there is a user or an alias of the whole name.",
        ),
        fixed(
            "local.unknown",
            at!(local.unknown),
            Kind::Choice(Unknown::WORDS),
            "refuse",
            "defer",
            "what mail gets whose name is neither an alias nor a user",
            "\"defer\" is for days on which users are moved: senders try again, and nothing is given back.",
        ),
        fixed(
            "local.luser_relay",
            at!(local.luser_relay),
            Kind::Text,
            "",
            "hub.example.com",
            "where mail to such names goes instead; empty for nowhere",
            "A host, a mailer with a host as in mailertable, or an address.",
        ),
        fixed(
            "local.accounts",
            at!(local.accounts),
            PATH,
            "/etc/passwd",
            "/etc/mail/passwd",
            "the file of those who have mail here, in the form of /etc/passwd",
            "For users who have no account on this machine otherwise.",
        )
        .restart(),
        fixed(
            "local.nss",
            at!(local.nss),
            Kind::Flag,
            "true",
            "false",
            "users whom /etc/nsswitch.conf finds elsewhere (SSSD, LDAP, systemd) count as well",
            "They are asked for when a name is not in /etc/passwd; while they do not answer, mail waits: 451. Without effect if \
             local.accounts names another file, and in a program that is linked statically.",
        )
        .restart(),
        fixed(
            "local.forward",
            at!(local.forward),
            Kind::Flag,
            "true",
            "false",
            "users have their mail forwarded by .forward in their home",
            "A file that others may write to is not used.",
        ),
        fixed(
            "local.mailbox",
            at!(local.mailbox),
            Kind::MailboxPlace,
            "mbox:/var/mail/%u",
            "maildir:%h/Maildir",
            "where mailboxes are",
            "mbox: is a file for each user, maildir: a directory, lmtp:unix: the socket of a server such as Dovecot, lmtp: and a host \
             with its port a server elsewhere. %u is the user, %d the domain, %h the home directory. \"none\": mail for users waits.",
        )
        .restart(),
        fixed(
            "local.mailbox_user",
            at!(local.mailbox_user),
            Kind::Word { empty: true },
            "",
            "vmail",
            "the user who writes all mailboxes; empty for each user his own",
            "For mailboxes of people without an account on this machine; local.mailbox then begins with a directory of that user.",
        )
        .restart(),
        fixed(
            "local.mailbox_group",
            at!(local.mailbox_group),
            Kind::Word { empty: true },
            "mail",
            "staff",
            "a group that the writer of a mailbox has besides his own; empty for none",
            "So that a user's mail can be locked in a directory such as /var/mail. A group that does not exist is none. Not \
             for programs, nor for mailboxes in a home directory.",
        )
        .restart(),
        fixed(
            "local.mailbox_size_max",
            at!(local.mailbox_size_max),
            Kind::Bytes { min: 0, max: 512 << 40 },
            "0",
            "2GiB",
            "the most a mailbox file may have; 0 for no limit",
            "Mail that would make it larger waits, and is given back after delivery.give_up_after. Files of aliases count too.",
        )
        .restart(),
        fixed(
            "local.locks",
            at!(local.locks),
            list(&Kind::Choice(LOCKS)),
            "[\"dotlock\", \"fcntl\"]",
            "[\"fcntl\"]",
            "how a mailbox file is locked, in this order",
            "All programs that write to mailbox files must agree. Without any, mail may be damaged.",
        )
        .restart(),
        fixed(
            "local.lock_time_max",
            at!(local.lock_time_max),
            seconds(1, HOUR),
            "30s",
            "2m",
            "how long a locked mailbox is waited for",
            "Then the mail waits for its next attempt. A lock file of a process that is gone, or older than five minutes, is removed.",
        )
        .restart(),
        fixed(
            "local.subfolders",
            at!(local.subfolders),
            Kind::Flag,
            "false",
            "true",
            "mail to joe+lists goes to the folder .lists of a Maildir, where there is one",
            "Folders are never made: anybody could.",
        )
        .restart(),
        fixed(
            "local.programs",
            at!(local.programs),
            list(&PATH),
            "[\"/etc/mail/smrsh\", \"/etc/smrsh\", \"/usr/adm/sm.bin\", \"/usr/lib/sm.bin\"]",
            "[\"/usr/lib/mailman/mail\", \"/etc/mail/smrsh\"]",
            "directories whose programs aliases and .forward files may run",
            "As sendmail's restricted shell has it: a program that is not in one of them is looked for there by its last name. A link \
             in /etc/mail/smrsh allows a program. \"/\" allows all of them; an empty list, none.",
        )
        .restart(),
        fixed(
            "local.program_time_max",
            at!(local.program_time_max),
            seconds(1, HOUR),
            "10m",
            "2m",
            "how long a program may run",
            "Then it and its children are killed, and the mail waits.",
        )
        .restart(),
        fixed(
            "local.program_processes_max",
            at!(local.program_processes_max),
            count("processes"),
            "1000",
            "100",
            "processes its user may have while a program runs; 0 for no limit",
            "So that a program that starts itself again and again does not take the machine with it. The limit of the user, if it is \
             lower, stays.",
        )
        .restart(),
        fixed(
            "local.programs_as_server",
            at!(local.programs_as_server),
            Kind::Flag,
            "false",
            "true",
            "run programs of aliases with the server's own rights, without root",
            "Such a program can read the spool, keys and passwords, as the server can. Without it mail for programs waits, and the log says \
             so at the start. A server that was started as root runs programs as local.default_user, or as the user whose .forward names \
             them, whatever stands here.",
        )
        .restart(),
        fixed(
            "local.files",
            at!(local.files),
            list(&Kind::Text),
            "[\"/var/mail\", \"/var/spool/mail\", \"%h\"]",
            "[\"/var/mail\", \"/var/archive\"]",
            "directories in and below which aliases and .forward files may name files",
            "%h is the home directory of the user who writes. What begins with a dot there is not written to, nor what is a link, nor \
             what lies in a directory that others may write to. /dev/null is always allowed. \"/\" allows all files.",
        )
        .restart(),
        fixed(
            "local.default_user",
            at!(local.default_user),
            Kind::Text,
            "",
            "mailman:list",
            "the user, and the group, for programs and files of aliases; empty for mailnull",
            "What sendmail calls DefaultUser. Where there is no user mailnull, the empty text is for nobody. Those of a .forward are the \
             user's own. The user should own nothing, and be in no group that \
             mailboxes have: on Debian mail is such a group, so a program that runs as the user mail reads all mailboxes.",
        )
        .restart(),
        fixed(
            "local.uid_min",
            at!(local.uid_min),
            Kind::Number { min: 1, max: 4_294_967_294, unit: "" },
            "1000",
            "500",
            "users below this number run no programs and write no files of aliases",
            "Accounts of services lie below it. local.default_user may always.",
        )
        .restart(),
        fixed(
            "local.list_size_max",
            at!(local.list_size_max),
            Kind::Bytes { min: 1, max: 512 << 20 },
            "32MiB",
            "4MiB",
            "the largest :include: file of an alias",
            "Mail for a larger one waits. A .forward and what it includes have 64 KiB at most. Texts of all such files take up to \
             64 MiB of memory; a list that alone has more is read for each recipient.",
        )
        .restart(),
        fixed(
            "local.deliveries_max",
            at!(local.deliveries_max),
            count_from_1("deliveries"),
            "20",
            "50",
            "deliveries to mailboxes at once; the same for programs, and for files",
            "Each may wait for a disk or a program. If the server was started as root, users have a process while mail comes for them, \
             and programs have one each.",
        )
        .restart(),
    ],
};

/// Who says anything of mail that stays here has a machine with a name of its own, and so has who names it and sends by
/// himself.
fn is_hostname_local(config: &Config, given: &BTreeSet<&'static str>) -> Value {
    let is_told = given.iter().any(|key| key.starts_with("local."));
    let is_named = given.contains("hostname") && config.route.smart_host.is_empty();
    Value::Flag(is_told || is_named || config.maps.directory.is_some() || !config.maps.aliases.is_empty())
}
