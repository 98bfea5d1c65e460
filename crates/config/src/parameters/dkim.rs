//! Parameters of DKIM signatures: `[[dkim.key]]`.

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
