//! Parameters of what programs of this machine hand in.

use super::super::parameter::{Preset, Section, at};
use super::super::value::Value;
use super::{DAY, Kind, count, count_from_1, fixed, list, seconds};
use std::path::PathBuf;

pub(super) static SUBMIT: Section = Section {
    key: "submit",
    summary: "what programs of this machine hand in with the sendmail command",
    group: None,
    parameters: &[
        fixed(
            "submit.directory",
            at!(submit.directory),
            Kind::Path { empty: true },
            "",
            "/var/spool/mailrace-pickup",
            "the pickup directory; empty for none",
            "The sendmail command writes one file for each message there, also while the server is down, and the server \
             takes it. It is made with mode 3733: everybody may put files in, nobody may list or read those of others. The \
             directory above it must be there, and everybody must get through it.",
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
            "users who may send as anybody without a remark",
            "sendmail's class t. A sender that another user has chosen with -f is used all the same, and the message gets a field \
             X-Authentication-Warning with the name of that user.",
        ),
        fixed(
            "submit.queue_time",
            at!(submit.queue_time),
            seconds(1, 7 * DAY),
            "15m",
            "1h",
            "how long a message that was handed in with -odq or -odd waits for its first attempt",
            "What the interval between queue runs is for sendmail. A queue run by hand (sendmail -q, mailrace queue retry) tries it \
             before.",
        ),
        fixed(
            "submit.files_max",
            at!(submit.files_max),
            count_from_1("files"),
            "100000",
            "1000000",
            "messages in the pickup directory that are not taken yet",
            "With more the sendmail command refuses (exit status 75), and whoever hands in tries again later. Files are counted by the \
             running server; while it is down nobody counts. What a user has beyond submit.user_files_max does not count here, so that \
             no one user takes the room of the others.",
        ),
        fixed(
            "submit.user_files_max",
            at!(submit.user_files_max),
            count("files"),
            "10000",
            "1000",
            "the same for the messages of one user; 0 for no limit",
            "Not for root. All files that the user has in the directory count, messages or not. Messages beyond the limit, which only a \
             program that is not our sendmail command puts there, wait until others of the user are taken.",
        ),
        fixed(
            "submit.user_commands_max",
            at!(submit.user_commands_max),
            count_from_1("commands"),
            "64",
            "200",
            "sendmail commands of one user that wait for an answer at the same time",
            "A command beyond does not hear what becomes of its message: the message is taken all the same, and whoever is refused is \
             reported to the sender by mail. All users together have 512.",
        ),
    ],
};
