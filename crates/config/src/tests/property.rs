//! Any configuration reads back from its shown form; any text gives problems with a place, or a configuration.

use super::super::build::read;
use super::super::kind::Kind;
use super::super::parameters::{SECTIONS, all};
use super::super::toml_text::value_text;
use super::super::value::Value;
use super::super::{Machine, fuzz, render, show};
use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "/etc/mailrace/mailrace.toml";

/// Any value of a kind.
fn any_value(kind: &Kind) -> BoxedStrategy<Value> {
    match *kind {
        Kind::Flag => any::<bool>().prop_map(Value::Flag).boxed(),
        Kind::Number { min, max, .. } => (min..=max).prop_map(Value::Number).boxed(),
        Kind::Bytes { min, max } => {
            prop_oneof![min..=max, (min >> 20..=max >> 20).prop_map(move |n| (n << 20).max(min))]
                .prop_map(Value::Number)
                .boxed()
        }
        Kind::Time { min, max } => {
            let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            (milliseconds(min)..=milliseconds(max)).prop_map(|n| Value::Time(Duration::from_millis(n))).boxed()
        }
        Kind::Choice(words) => select(words).prop_map(|(word, _)| Value::Text(word.to_owned())).boxed(),
        Kind::Domain => "[a-zA-Z0-9]{1,8}(\\.[a-z]{2,5}){0,2}".prop_map(Value::Text).boxed(),
        Kind::RelayDomain => "\\.?[a-zA-Z0-9]{1,8}(\\.[a-z]{2,5}){0,2}".prop_map(Value::Text).boxed(),
        Kind::Host => prop_oneof![
            "[a-z]{1,8}(\\.[a-z]{2,5}){0,2}:[1-9][0-9]{0,3}",
            (any::<std::net::IpAddr>(), 1..=u16::MAX).prop_map(|(ip, port)| format!("[{ip}]:{port}")),
        ]
        .prop_map(Value::Text)
        .boxed(),
        Kind::Endpoint { .. } => prop_oneof![
            "[a-z]{1,8}(\\.[a-z]{2,5}){0,2}:[1-9][0-9]{0,3}",
            (any::<std::net::IpAddr>(), 1..=u16::MAX)
                .prop_map(|(ip, port)| std::net::SocketAddr::new(ip, port).to_string()),
        ]
        .prop_map(Value::Text)
        .boxed(),
        Kind::Rate => (0..=super::super::Rate::MAX.milli())
            .prop_map(|milli| Value::Rate(super::super::Rate::of_milli(milli)))
            .boxed(),
        Kind::MxHost => {
            prop_oneof!["[a-z]{1,8}(\\.[a-z]{2,5}){0,2}", any::<std::net::IpAddr>().prop_map(|ip| format!("[{ip}]")),]
                .prop_map(Value::Text)
                .boxed()
        }
        Kind::NextHop => prop_oneof![
            "\\.?[a-z]{1,8}(\\.[a-z]{2,5}){0,2}",
            "mx:[a-z*]{1,8}(\\.[a-z*]{2,5}){0,2}",
            "hop:[a-z]{1,8}(\\.[a-z]{2,5}){0,2}:[1-9][0-9]{0,3}",
            any::<std::net::IpAddr>().prop_map(|ip| format!("[{ip}]")),
        ]
        .prop_map(Value::Text)
        .boxed(),
        Kind::Ip => any::<std::net::IpAddr>().prop_map(Value::Ip).boxed(),
        Kind::Mailbox { .. } => "([a-zA-Z0-9+.]{0,2}[a-z]@[a-z]{1,8}\\.example)?"
            .prop_filter("dots at ends", |text| text.parse::<mail::Address>().is_ok() || text.is_empty())
            .prop_map(Value::Text)
            .boxed(),
        Kind::MailboxPlace => select(&["mbox:/var/mail/%u", "maildir:%h/Maildir", "lmtp:unix:/run/l", "none"][..])
            .prop_map(|text: &str| Value::Text(text.to_owned()))
            .boxed(),
        Kind::Word { .. } => "[a-zA-Z0-9_.-]{1,32}".prop_map(Value::Text).boxed(),
        Kind::Text => "[^\\x00]{0,12}".prop_map(Value::Text).boxed(),
        Kind::Path { .. } | Kind::LogPath | Kind::MapSource => {
            "/[^\\x00/]{1,12}".prop_map(|text| Value::Path(PathBuf::from(text))).boxed()
        }
        Kind::Network => (any::<std::net::IpAddr>(), 0..=32_u8)
            .prop_map(|(ip, prefix)| Value::Network(IpNet::new(ip, prefix).expect("a prefix").trunc()))
            .boxed(),
        Kind::Listen => any::<std::net::SocketAddr>()
            .prop_map(|address| Value::Address(std::net::SocketAddr::new(address.ip(), address.port())))
            .boxed(),
        Kind::Address { .. } => any::<std::net::SocketAddr>()
            .prop_map(|address| Value::Address(std::net::SocketAddr::new(address.ip(), address.port().max(1))))
            .boxed(),
        Kind::List { of, .. } => vec(any_value(of), 0..4).prop_map(Value::List).boxed(),
    }
}

/// Some of the keys with any value, as a file.
fn any_file() -> impl Strategy<Value = String> {
    let some: Vec<_> = all().map(|parameter| proptest::option::weighted(0.4, any_value(&parameter.kind))).collect();
    let lists = vec(0..3_usize, SECTIONS.len());
    (some, lists).prop_map(|(values, lists)| {
        let mut values = values.into_iter();
        let mut text = String::new();
        for (section, count) in SECTIONS.iter().zip(lists) {
            let keys: Vec<_> = section.parameters.iter().zip(values.by_ref()).collect();
            let is_whole = keys.iter().all(|(parameter, value)| {
                value.is_some() || !matches!(parameter.preset, super::super::parameter::Preset::Required)
            });
            for _ in 0..if section.group.is_none() {
                1
            } else if is_whole {
                count
            } else {
                0
            } {
                match (section.key, section.group) {
                    ("", _) => {}
                    (key, None) => writeln!(text, "[{key}]").expect("a string"),
                    (key, Some(_)) => writeln!(text, "[[{key}]]").expect("a string"),
                }
                for (parameter, value) in &keys {
                    if let Some(value) = value {
                        let value = value_text(&parameter.kind, value);
                        writeln!(text, "{} = {value}", parameter.name()).expect("a string");
                    }
                }
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_reads_back(text in any_file()) {
        let machine = Machine::default();
        let (loaded, problems) = read(None, &text, Some(Path::new(FILE)), &[], &machine);
        prop_assert!(problems.is_empty(), "{}", render(&problems));
        let shown = show::text(&loaded, &[]);
        // Another machine: the shown form does not depend on the machine.
        let other = Machine::new("other.example", None);
        let (again, problems) = read(None, &shown, Some(Path::new("/elsewhere/x.toml")), &[], &other);
        prop_assert!(problems.is_empty(), "{}", render(&problems));
        prop_assert_eq!(again.config, loaded.config);
    }

    #[test]
    fn whole_files_pass_the_rules_or_not(text in any_file()) {
        fuzz::config(text.as_bytes());
    }

    #[test]
    fn any_text(text in "\\PC{0,80}") {
        fuzz::config(text.as_bytes());
    }

    #[test]
    fn text_that_looks_like_a_file(pieces in vec(select(PIECES), 0..24)) {
        fuzz::config(pieces.concat().as_bytes());
    }

    #[test]
    fn any_override(text in "[a-z.\\[\\]={}\"0-9ü \n]{0,40}") {
        let (_, problems) = read(None, "", None, &[text], &Machine::default());
        for problem in problems {
            prop_assert_eq!((problem.file.as_str(), problem.line > 0), ("--set", true));
        }
    }
}

const PIECES: &[&str] = &[
    "hostname",
    "spool",
    "[spool]\n",
    "[[listen]]\n",
    "listen",
    ".",
    "=",
    " = ",
    "\"",
    "\"\"\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "#",
    "path",
    "address = \":25\"\n",
    "address",
    "\"x\"",
    "1",
    "-1",
    "0x10",
    "1e3",
    "true",
    "1979-05-27",
    "ü",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "relay.from = [\"10.0.0.0/8\"]\n",
    "[relay]\n",
    "[[dnsbl.list]]\n",
    "[dnsbl]\n",
    "zone",
    "tls",
    "certificate",
    "99999999999999999999",
    "inf",
    "\\",
    "\\u0000",
    "[accept.greet_pause_for]\n",
];

#[test]
fn hostile_files_take_linear_time() {
    for piece in PIECES.iter().chain(&["a.", "a=1\n", "[[listen]]\n", "[a]\n", "[[a]]\n", "{a=", "a={", "[["]) {
        fuzz::config(piece.repeat(20_000 / piece.len()).as_bytes());
    }
}
