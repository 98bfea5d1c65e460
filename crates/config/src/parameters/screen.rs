//! Parameters of *screen*: rule files, filters, quarantine.

use super::super::choice::Choice as _;
use super::super::parameter::{Group, Preset, Section, at};
use super::super::{FilterFailure, FilterKind, FilterReject, FilterStage, blank};
use super::{DAY, HOUR, Kind, PATH, fixed, list, seconds};

pub(super) static SCREEN: Section = Section {
    key: "screen",
    summary: "content rules",
    group: None,
    parameters: &[
        fixed(
            "screen.rules",
            at!(screen.rules),
            list(&PATH),
            "[]",
            "[\"rules/*.rules\"]",
            "rule files, in order; the last part may be a pattern with a star or question marks",
            "All files are one set, which counts whole or not at all. A star stands for any letters, a question mark for \
             one; the files of a pattern come by name, and it may match none.",
        ),
        fixed(
            "screen.body_bytes_max",
            at!(screen.body_bytes_max),
            Kind::Bytes { min: 64 << 10, max: 64 << 20 },
            "1MiB",
            "4MiB",
            "octets of a body that rules look at",
            "Kept in memory for each large message that arrives. A message with more is \"not fully scanned\".",
        ),
        fixed(
            "screen.workers",
            at!(screen.workers),
            Kind::Number { min: 1, max: 1_000, unit: "" },
            "8",
            "16",
            "messages that filters judge after the 250 at a time, for each list of filters",
            "Each is in memory meanwhile, up to the largest filter.size_max.",
        ),
        fixed(
            "screen.backlog_max",
            at!(screen.backlog_max),
            Kind::Number { min: 1, max: 10_000_000, unit: "messages" },
            "10000",
            "50000",
            "messages that wait for filters after the 250",
            "From half of it on the 250 of such mail is delayed, up to 10 seconds; at the limit it is refused with 451.",
        ),
        fixed(
            "screen.backlog_bytes_max",
            at!(screen.backlog_bytes_max),
            Kind::Bytes { min: 1 << 20, max: 1 << 50 },
            "2GiB",
            "20GiB",
            "octets of these messages",
            "As screen.backlog_max.",
        ),
    ],
};

pub(super) static QUARANTINE: Section = Section {
    key: "quarantine",
    summary: "mail that content rules keep for a decision",
    group: None,
    parameters: &[
        fixed(
            "quarantine.keep",
            at!(quarantine.keep),
            seconds(HOUR, 365 * DAY),
            "30d",
            "7d",
            "how long it is kept for a decision",
            "Then it is deleted, with a line in the log; its sender is not told. Counts for mail that comes from now on.",
        ),
        fixed(
            "quarantine.digest",
            at!(quarantine.digest),
            Kind::Text,
            "",
            "08:00",
            "when recipients get a list of their mail in quarantine; empty for never",
            "A time of the day, or a time between two lists, as 1d. It has mail for which the recipient decides, each with a \
             link that releases it. Needs http.public_url.",
        ),
        fixed(
            "quarantine.digest_from",
            at!(quarantine.digest_from),
            Kind::Mailbox { empty: true },
            "",
            "quarantine@example.com",
            "author of that list; empty for delivery.postmaster",
            "Its envelope has no sender, so that nothing answers it.",
        ),
        fixed(
            "quarantine.digest_subject",
            at!(quarantine.digest_subject),
            Kind::Text,
            "Mail in quarantine",
            "Held mail at example.com",
            "its subject",
            "",
        ),
        fixed(
            "quarantine.digest_domains",
            at!(quarantine.digest_domains),
            list(&Kind::Domain),
            "[]",
            "[\"example.com\"]",
            "domains whose recipients get it; empty for all",
            "Name your own domains where rules hold mail that leaves, too.",
        ),
    ],
};

pub(super) static FILTER: Section = Section {
    key: "filter",
    summary: "a program that judges mail; listen.filters and submit.filters name it",
    group: Some(Group {
        len: |config| config.filters.len(),
        push: |config| config.filters.push(blank::filter()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "filter.name",
            at!(filters[].name),
            Kind::Word { empty: false },
            "",
            "clamav",
            "name in filters and the log",
            "",
        )
        .preset(Preset::Required),
        fixed("filter.kind", at!(filters[].kind), Kind::Choice(FilterKind::WORDS), "", "milter", "its protocol", "")
            .preset(Preset::Required),
        fixed(
            "filter.address",
            at!(filters[].address),
            Kind::Text,
            "",
            "unix:/run/opendkim/opendkim.sock",
            "where it listens: unix:/path or host:port",
            "",
        )
        .preset(Preset::Required),
        fixed(
            "filter.when",
            at!(filters[].when),
            Kind::Choice(FilterStage::WORDS),
            "before-250",
            "after-250",
            "when it is asked",
            "Mail for a filter \"after-250\" waits in the spool until the filter has judged it.",
        ),
        fixed(
            "filter.on_failure",
            at!(filters[].on_failure),
            Kind::Choice(FilterFailure::WORDS),
            "defer",
            "tag",
            "effect on a message that it cannot judge",
            "\"defer\" loses no mail and lets none pass; senders wait while the filter is down. After the 250 it is as \
             \"later\".",
        ),
        fixed(
            "filter.on_reject",
            at!(filters[].on_reject),
            Kind::Choice(FilterReject::WORDS),
            "quarantine",
            "bounce",
            "effect on a message that it refuses after the 250",
            "Most senders of refused mail are forged, and a report to them is a nuisance for others.",
        ),
        fixed(
            "filter.timeout",
            at!(filters[].timeout),
            seconds(1, HOUR),
            "30s",
            "10s",
            "longest wait for one answer",
            "Then the message counts as not judged.",
        ),
        fixed(
            "filter.total_timeout",
            at!(filters[].total_timeout),
            seconds(1, HOUR),
            "2m",
            "1m",
            "longest time with one message",
            "A client waits 10 minutes for the answer to a message at least; all filters together need to be faster.",
        ),
        fixed(
            "filter.size_max",
            at!(filters[].size_max),
            Kind::Bytes { min: 1 << 10, max: 1 << 32 },
            "25MiB",
            "5MiB",
            "largest message that it gets",
            "A larger one is \"not fully scanned\" for rules, and passes this filter.",
        ),
        fixed(
            "filter.macros",
            at!(filters[].macros),
            list(&Kind::Text),
            "[]",
            "[\"connect: j {daemon_name}\", \"mail: i {auth_authen}\"]",
            "macros that a milter gets at a step, in place of the usual ones",
            "The steps are connect, helo, mail, rcpt, data, eoh and eom. A milter that names the macros it wants gets \
             these.",
        ),
        fixed(
            "filter.macro_values",
            at!(filters[].macro_values),
            list(&Kind::Text),
            "[]",
            "[\"{daemon_name}=ORIGINATING\"]",
            "values of macros for this milter, in place of the session's",
            "Some milters decide by {daemon_name} whether mail is one's own. An empty value takes the macro away.",
        ),
        fixed(
            "filter.idle_max",
            at!(filters[].idle_max),
            Kind::Number { min: 0, max: 1_000, unit: "connections" },
            "8",
            "2",
            "connections that stay open for the next message",
            "For filters of kind \"policy\", \"clamd\" and \"rspamd\". Some servers give each connection a process, which a \
             connection that stays open keeps busy: fewer, or 0, serve them better.",
        ),
        fixed(
            "filter.idle_time",
            at!(filters[].idle_time),
            seconds(1, HOUR),
            "20s",
            "5s",
            "how long a connection without a question stays open",
            "Shorter than the filter's own limit. One that the filter closes at that moment costs a second connection, \
             and no message.",
        ),
    ],
};
