//! Parameters of what programs of this machine hand in.

use super::super::parameter::{Preset, Section, at};
use super::super::value::Value;
use super::{Kind, fixed, list};
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
    ],
};
