//! Parameters of the history: `[history]`.

use super::super::parameter::{Section, at};
use super::{Kind, fixed};

pub(super) static HISTORY: Section = Section {
    key: "history",
    summary: "the way of past messages and statistics over restarts",
    group: None,
    parameters: &[
        fixed(
            "history.path",
            at!(history.path),
            Kind::Path { empty: true },
            "",
            "/var/lib/mailrace/history.sqlite",
            "the file; empty for none",
            "An SQLite file, for \"mailrace history\" and the page. A thread of its own writes it, never in the way of \
             mail. Its directory has to be there and to be the server's: the spool's will do.",
        )
        .restart(),
        fixed(
            "history.days",
            at!(history.days),
            Kind::Number { min: 1, max: 3_650, unit: "days" },
            "30",
            "7",
            "how long finished messages are kept",
            "Addresses and replies of all mail are in the file for so long.",
        )
        .restart(),
        fixed(
            "history.messages_max",
            at!(history.messages_max),
            Kind::Number { min: 1_000, max: 1_000_000_000, unit: "messages" },
            "2000000",
            "20000000",
            "most messages in the file",
            "Beyond it the oldest messages go.",
        )
        .restart(),
        fixed(
            "history.size_max",
            at!(history.size_max),
            Kind::Bytes { min: 16 << 20, max: 1 << 40 },
            "1GiB",
            "10GiB",
            "most space of the file",
            "Beyond nine tenths of it the oldest messages go. A message takes 310 octets with one recipient, 460 with five.",
        )
        .restart(),
    ],
};
