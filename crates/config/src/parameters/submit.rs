//! Parameters of messages that programs of this machine hand in.

use super::super::parameter::{Preset, Section, at};
use super::super::value::Value;
use super::{DAY, Kind, count, count_from_1, fixed, list, seconds};
use std::path::PathBuf;

pub(super) static SUBMIT: Section = Section {
    key: "submit",
    summary: "mail of the sendmail command",
    group: None,
    parameters: &[
        fixed(
            "submit.directory",
            at!(submit.directory),
            Kind::Path { empty: true },
            "",
            "/var/spool/mailrace-pickup",
            "pickup directory; empty for none",
            "One file per message, also while the server is down. Mode 3733; the parent directory must exist and be \
             passable for all.",
        )
        .preset(Preset::Derived {
            text: "spool.path with \"-pickup\" behind it",
            value: |config, _, _| {
                let mut path = config.spool.path.clone().into_os_string();
                path.push("-pickup");
                Value::Path(PathBuf::from(path))
            },
        })
        .restart(),
        fixed(
            "submit.trusted",
            at!(submit.trusted),
            list(&Kind::Word { empty: false }),
            "[\"root\", \"daemon\", \"uucp\"]",
            "[\"root\", \"www-data\"]",
            "users that may choose any sender without X-Authentication-Warning",
            "sendmail's class t. Senders by -f of others are used, with that field.",
        ),
        fixed(
            "submit.queue_time",
            at!(submit.queue_time),
            seconds(1, 7 * DAY),
            "15m",
            "1h",
            "wait of messages of -odq and -odd before the first attempt",
            "As sendmail's queue interval; sendmail -q and mailrace queue retry do not wait.",
        ),
        fixed(
            "submit.files_max",
            at!(submit.files_max),
            count_from_1("files"),
            "100000",
            "1000000",
            "waiting messages in the pickup directory",
            "Beyond it the sendmail command exits with 75. Files over submit.user_files_max do not count.",
        ),
        fixed(
            "submit.user_files_max",
            at!(submit.user_files_max),
            count("files"),
            "10000",
            "1000",
            "the same for one user; 0 for no limit",
            "Not for root. All its files count; further messages wait.",
        ),
        fixed(
            "submit.user_commands_max",
            at!(submit.user_commands_max),
            count_from_1("commands"),
            "64",
            "200",
            "waiting sendmail commands of one user",
            "Further ones get no answer; refusals are reported by mail. 512 for all users.",
        ),
        fixed(
            "submit.filters",
            at!(submit.filters),
            list(&Kind::Word { empty: false }),
            "[]",
            "[\"dkim\"]",
            "filters that mail of programs passes, in order",
            "Names of [[filter]] tables.",
        ),
    ],
};
