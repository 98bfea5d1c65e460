//! Parameters of signatures of mail that leaves: `[[dkim.key]]`, `[arc]`.

use super::super::blank;
use super::super::parameter::{Group, Preset, Section, at};
use super::{Kind, PATH, fixed};

pub(super) static DKIM_KEY: Section = Section {
    key: "dkim.key",
    summary: "a key for DKIM signatures of mail that leaves",
    group: Some(Group {
        len: |config| config.dkim.keys.len(),
        push: |config| config.dkim.keys.push(blank::dkim_key()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "dkim.key.domain",
            at!(dkim.keys[].domain),
            Kind::Domain,
            "",
            "example.com",
            "domain of authors whose mail is signed, with all below it",
            "The keys of the longest domain that fits sign, each of them. Mail of logged-in clients, relay.from, local \
             programs and own reports is signed.",
        )
        .preset(Preset::Required),
        fixed(
            "dkim.key.selector",
            at!(dkim.keys[].selector),
            Kind::Word { empty: false },
            "",
            "s2026",
            "name of the key in the DNS: SELECTOR._domainkey.DOMAIN",
            "",
        )
        .preset(Preset::Required),
        fixed(
            "dkim.key.file",
            at!(dkim.keys[].file),
            PATH,
            "",
            "/etc/mailrace/dkim/example.com.pem",
            "the private key: RSA of 2048 bits or more, or Ed25519, in PEM",
            "mailrace dkim generate makes one.",
        )
        .preset(Preset::Required),
        fixed(
            "dkim.key.sign",
            at!(dkim.keys[].sign),
            Kind::Flag,
            "true",
            "false",
            "sign with it",
            "false: for a key that is published and not used yet, or not any more; mailrace dkim check looks at it.",
        ),
    ],
};

pub(super) static ARC: Section = Section {
    key: "arc",
    summary: "ARC seals on forwarded mail of others",
    group: None,
    parameters: &[
        fixed(
            "arc.seal",
            at!(arc.seal),
            Kind::Flag,
            "false",
            "true",
            "seal mail of strangers that goes on to other hosts, with the results of this server",
            "For servers that forward and lists: receivers that trust the seal see the results from before the change. \
             Mail that was not checked, or whose chain is broken, is not sealed.",
        ),
        fixed(
            "arc.domain",
            at!(arc.domain),
            Kind::Word { empty: true },
            "",
            "example.com",
            "dkim.key.domain of the key that seals",
            "Empty: the first key with arc.selector.",
        ),
        fixed(
            "arc.selector",
            at!(arc.selector),
            Kind::Word { empty: true },
            "",
            "s2026",
            "dkim.key.selector of the key that seals",
            "Empty: the first key of arc.domain. The key may have sign = false.",
        ),
    ],
};
