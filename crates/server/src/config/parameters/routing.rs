//! Parameters of sendmail's maps and of the rules beside them: `[maps]`, `[access]`, `[generics]`, `[[route.rule]]`.

use super::super::choice::Choice as _;
use super::super::parameter::{Group, Parameter, Preset, Section, at};
use super::super::value::Value;
use super::super::{BadLine, Config, CopyDsn, DelayChecks, RuleAcknowledge, RuleAt, blank};
use super::{HOUR, Kind, NETWORKS, PATH, fixed, list, seconds};
use std::time::Duration;

const SOURCES: Kind = list(&Kind::MapSource);

/// A map whose file lies in `maps.directory` unless one is named.
const fn map(
    key: &'static str,
    access: super::super::parameter::Access,
    example: &'static str,
    summary: &'static str,
    reason: &'static str,
    value: fn(&Config, &super::super::Machine, usize) -> Value,
) -> Parameter {
    fixed(key, access, SOURCES, "", example, summary, reason)
        .preset(Preset::Derived { text: "the file of that name in maps.directory, if there is one", value })
}

/// The file of this name in `maps.directory`.
pub(super) fn in_directory(config: &Config, name: &str) -> Value {
    Value::List(config.maps.directory.iter().map(|directory| Value::Path(directory.join(name))).collect())
}

pub(super) static MAPS: Section = Section {
    key: "maps",
    summary: "sendmail's maps, read as they are",
    group: None,
    parameters: &[
        fixed(
            "maps.directory",
            at!(maps.directory),
            Kind::Path { empty: true },
            "",
            "/etc/mail",
            "where the maps are that no other key names",
            "Of each map the text file is read, as it is written for makemap, or else its .db or .cdb file. A map that is not \
             there is empty. Class files (local-host-names, relay-domains) are read from there too. A server that has it \
             takes mail for its own host name and the names in local-host-names as mail for its users.",
        ),
        map(
            "maps.access",
            at!(maps.access),
            "[\"/etc/mail/access\"]",
            "who may connect, send, relay and receive",
            "Keys and values of sendmail's access map; CIDR networks as well.",
            |config, _, _| in_directory(config, "access"),
        ),
        map(
            "maps.mailertable",
            at!(maps.mailertable),
            "[\"/etc/mail/mailertable\", \"ldap:routes\"]",
            "hosts for recipients' domains",
            "It counts when mail is sent: a change holds for mail that waits too.",
            |config, _, _| in_directory(config, "mailertable"),
        ),
        map(
            "maps.virtusertable",
            at!(maps.virtusertable),
            "[\"/etc/mail/virtusertable\"]",
            "addresses of domains without mailboxes of their own",
            "",
            |config, _, _| in_directory(config, "virtusertable"),
        ),
        map(
            "maps.genericstable",
            at!(maps.genericstable),
            "[\"/etc/mail/genericstable\"]",
            "what senders are called outside",
            "For senders at the domains of generics.domains.",
            |config, _, _| in_directory(config, "genericstable"),
        ),
        map(
            "maps.domaintable",
            at!(maps.domaintable),
            "[\"/etc/mail/domaintable\"]",
            "other names of domains",
            "",
            |config, _, _| in_directory(config, "domaintable"),
        ),
        map(
            "maps.smarttable",
            at!(maps.smarttable),
            "[\"/etc/mail/smarttable\"]",
            "hosts for senders",
            "As with sendmail it is asked for recipients whom mailertable does not send anywhere; route.precedence turns that \
             around.",
            |config, _, _| in_directory(config, "smarttable"),
        ),
        map(
            "maps.aliases",
            at!(maps.aliases),
            "[\"/etc/aliases\"]",
            "other names of users, lists, programs and files",
            "The text is read; newaliases is not needed.",
            |config, _, _| in_directory(config, "aliases"),
        ),
        fixed(
            "maps.bad_line",
            at!(maps.bad_line),
            Kind::Choice(BadLine::WORDS),
            "skip",
            "keep-old",
            "what becomes of a map with a line that cannot be read",
            "Each such line is logged with file and number, and mailrace check names it.",
        ),
        fixed(
            "maps.interval",
            at!(maps.interval),
            Kind::Time { min: Duration::ZERO, max: Duration::from_secs(HOUR) },
            "5s",
            "1m",
            "how often it is looked whether a file has changed; 0 for only at a reload",
            "A changed file is read beside the old one and replaces it whole. One that cannot be read leaves the old one in force.",
        ),
        fixed(
            "maps.size_max",
            at!(maps.size_max),
            Kind::Bytes { min: 1 << 10, max: 1 << 32 },
            "1GiB",
            "64MiB",
            "the largest file of a map",
            "Text and index are kept in memory. A million entries take some 50 to 100 MiB.",
        ),
        fixed(
            "maps.expansions_size_max",
            at!(maps.expansions_size_max),
            Kind::Bytes { min: 0, max: 1 << 36 },
            "128MiB",
            "1GiB",
            "memory for what long lists become, so that they are not expanded for each message",
            "A member takes some 150 octets, and the text of the list is kept with it. What was not used for the longest time \
             goes first. A list that needs more is expanded for each RCPT.",
        ),
        fixed(
            "maps.group_writable",
            at!(maps.group_writable),
            Kind::Flag,
            "false",
            "true",
            "whether maps, alias files and lists of domains may be writable by their group",
            "For sites where a group edits them: its members can then run programs as local.default_user and give the right to \
             relay. A file that others can write, that lies in a directory that others can write, or that belongs to neither root nor \
             the user of mailrace never counts.",
        ),
    ],
};

pub(super) static ACCESS: Section = Section {
    key: "access",
    summary: "features of sendmail's access map",
    group: None,
    parameters: &[
        fixed(
            "access.delay_checks",
            at!(access.delay_checks),
            Kind::Choice(DelayChecks::WORDS),
            "no",
            "friend",
            "FEATURE(delay_checks): clients and senders are judged at RCPT",
            "So postmaster can be reached by those who are refused, and logs have sender and recipient of what was refused.",
        ),
        fixed(
            "access.blocklist_recipients",
            at!(access.blocklist_recipients),
            Kind::Flag,
            "true",
            "false",
            "FEATURE(blocklist_recipients): entries refuse recipients too",
            "",
        ),
        fixed(
            "access.lookup_dot_domain",
            at!(access.lookup_dot_domain),
            Kind::Flag,
            "false",
            "true",
            "FEATURE(lookupdotdomain): a key .example.com is for what is below it alone",
            "",
        ),
        fixed(
            "access.relay_to_full_address",
            at!(access.relay_to_full_address),
            Kind::Flag,
            "false",
            "true",
            "FEATURE(relaytofulladdress): To:user@example.com RELAY lets mail to one address pass",
            "",
        ),
        fixed(
            "access.relay_mail_from",
            at!(access.relay_mail_from),
            Kind::Flag,
            "false",
            "true",
            "FEATURE(relay_mail_from): From:example.com RELAY lets those relay who say so",
            "Anybody can call himself so: it makes an open relay of the server.",
        ),
        fixed(
            "access.relay_hosts_only",
            at!(access.relay_hosts_only),
            Kind::Flag,
            "false",
            "true",
            "FEATURE(relay_hosts_only): names do not stand for what is below them",
            "",
        ),
        fixed(
            "access.client_rate_window",
            at!(access.client_rate_window),
            seconds(6, 3_600),
            "60s",
            "10m",
            "ConnectionRateWindowSize: the time in which ClientRate: of the map counts connections",
            "The access map is asked about connections for ClientRate:, ClientConn:, GreetPause: and Srv_Features:, about the \
             mail that comes over them for TLS_Clt:, CertIssuer: and CertSubject: too. A tag that no file of the map has \
             costs nothing; LDAP and SQLite are asked for each connection.",
        ),
    ],
};

pub(super) static GENERICS: Section = Section {
    key: "generics",
    summary: "what people of our domains are called outside",
    group: None,
    parameters: &[
        fixed(
            "generics.domains",
            at!(generics.domains),
            list(&Kind::RelayDomain),
            "[]",
            "[\"example.com\", \".example.org\"]",
            "domains whose senders are looked up in genericstable",
            "GENERICS_DOMAIN; those with a leading dot are GENERICS_ENTIRE_DOMAIN.",
        ),
        fixed(
            "generics.domain_files",
            at!(generics.domain_files),
            list(&PATH),
            "",
            "[\"/etc/mail/generics-domains\"]",
            "files of such domains, one on a line",
            "",
        )
        .preset(Preset::Derived {
            text: "generics-domains in maps.directory, if there is one",
            value: |config, _, _| in_directory(config, "generics-domains"),
        }),
        fixed(
            "generics.headers",
            at!(generics.headers),
            Kind::Flag,
            "true",
            "false",
            "senders in the header are rewritten, in mail of our own users and clients",
            "From, Sender, Reply-To and others get the name that genericstable, generics.masquerade and domaintable say. That is \
             mail of those who may send anywhere: by login, relay.from, the access map, or from this machine. Mail of others \
             goes on as it came.",
        ),
        fixed(
            "generics.recipients",
            at!(generics.recipients),
            Kind::Flag,
            "false",
            "true",
            "recipients in the header are rewritten as well",
            "FEATURE(allmasquerade): To, Cc and others. Recipients of the envelope stay what they are.",
        ),
        fixed(
            "generics.envelope",
            at!(generics.envelope),
            Kind::Flag,
            "true",
            "false",
            "the sender of the envelope is rewritten",
            "FEATURE(masquerade_envelope).",
        ),
        fixed(
            "generics.masquerade",
            at!(generics.masquerade),
            Kind::Text,
            "",
            "example.com",
            "the domain that stands for ours in addresses of senders; empty for none",
            "MASQUERADE_AS: for our host name and local domains. What genericstable says of a sender counts more.",
        ),
        fixed(
            "generics.masquerade_domains",
            at!(generics.masquerade_domains),
            list(&Kind::RelayDomain),
            "[]",
            "[\"example.net\", \".example.org\"]",
            "other domains for which generics.masquerade stands",
            "MASQUERADE_DOMAIN; those with a leading dot as with FEATURE(masquerade_entire_domain).",
        ),
        fixed(
            "generics.masquerade_exceptions",
            at!(generics.masquerade_exceptions),
            list(&Kind::RelayDomain),
            "[]",
            "[\".lists.example.com\"]",
            "domains for which generics.masquerade never stands",
            "MASQUERADE_EXCEPTION, which is for what is below the domain too: write it with a leading dot.",
        ),
        fixed(
            "generics.masquerade_limited",
            at!(generics.masquerade_limited),
            Kind::Flag,
            "false",
            "true",
            "no local domain but our host name is masked",
            "FEATURE(limited_masquerade): generics.masquerade stands for that name and generics.masquerade_domains.",
        ),
        fixed(
            "generics.exposed_users",
            at!(generics.exposed_users),
            list(&Kind::Text),
            "[\"root\"]",
            "[\"root\", \"daemon\"]",
            "users whose domain is not masked by generics.masquerade",
            "EXPOSED_USER: so it is seen which machine's root writes.",
        ),
    ],
};

pub(super) static ROUTE_RULE: Section = Section {
    key: "route.rule",
    summary: "where some mail goes, before or behind the maps; the first table that fits counts",
    group: Some(Group {
        len: |config| config.rules.len(),
        push: |config| config.rules.push(blank::route_rule()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "route.rule.at",
            at!(rules[].at),
            Kind::Choice(RuleAt::WORDS),
            "before-mailertable",
            "first",
            "when the rule is asked",
            "",
        ),
        fixed(
            "route.rule.sender",
            at!(rules[].sender),
            list(&Kind::Text),
            "[]",
            "[\"boss@example.com\", \"@legal.example.com\", \".sub.example.com\", \"<>\"]",
            "senders it is for; none for all",
            "An address, @ and a domain, a leading dot for everything below a domain; an empty pair of angle brackets for reports.",
        ),
        fixed(
            "route.rule.recipient",
            at!(rules[].recipient),
            list(&Kind::Text),
            "[]",
            "[\"@partner.example\"]",
            "recipients it is for, as route.rule.sender; none for all",
            "",
        ),
        fixed(
            "route.rule.client",
            at!(rules[].client),
            NETWORKS,
            "[]",
            "[\"10.1.0.0/16\"]",
            "clients it is for; none for all",
            "",
        ),
        fixed(
            "route.rule.via",
            at!(rules[].via),
            Kind::Text,
            "",
            "esmtp:[crypt1.example.com]:[crypt2.example.com]",
            "where the mail goes, as a value of mailertable; empty: where it goes without the rule",
            "",
        ),
        fixed(
            "route.rule.copy",
            at!(rules[].copy),
            list(&Kind::Text),
            "[]",
            "[\"smtp:[archive.example.com]\", \"journal@example.com\"]",
            "where copies go: values of mailertable, or addresses",
            "A value of mailertable keeps the recipient's address. Each copy is tried for itself; what becomes of it does not touch \
             the others. A rule of copies alone does not end the search.",
        ),
        fixed(
            "route.rule.copy_dsn",
            at!(rules[].copy_dsn),
            Kind::Choice(CopyDsn::WORDS),
            "never",
            "as-original",
            "whether the sender hears of a copy that cannot be delivered",
            "",
        ),
        fixed(
            "route.rule.hold",
            at!(rules[].hold),
            Kind::Text,
            "",
            "waits for a look",
            "hold mail for this reason until mailrace queue release; empty: it is not held",
            "",
        ),
        fixed(
            "route.rule.queue",
            at!(rules[].queue),
            Kind::Flag,
            "false",
            "true",
            "mail waits for mailrace queue retry",
            "delivery.mode = \"queue\" for some of it.",
        ),
        fixed(
            "route.rule.acknowledge",
            at!(rules[].acknowledge),
            Kind::Choice(RuleAcknowledge::WORDS),
            "listener",
            "race",
            "when a message is said to be accepted, as listen.acknowledge",
            "A message whose recipients are under different rules, or some under none, takes the safest of what is said: \
             durable before race before interactive. What recipients without such a rule say is listen.acknowledge.",
        ),
        fixed(
            "route.rule.source",
            at!(rules[].source),
            list(&Kind::Ip),
            "[]",
            "[\"192.0.2.7\"]",
            "where connections come from, one address of each family",
            "",
        ),
        fixed(
            "route.rule.hello",
            at!(rules[].hello),
            Kind::Text,
            "",
            "mta1.example.net",
            "the name we give in EHLO; empty for the usual",
            "",
        ),
        fixed(
            "route.rule.reject",
            at!(rules[].reject),
            Kind::Text,
            "",
            "550 5.7.1 not from here",
            "the recipient is refused with this reply; empty: he is not",
            "",
        ),
    ],
};
