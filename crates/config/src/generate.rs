//! Words about parameters as pages use them, and the annotated example, which `config defaults` prints.
//!
//! The example is a file of the tree too, beside the manual page and `docs/configuration.md`, so that they can be read
//! without the program. A test makes all three and fails when one is stale.

use super::kind::Kind;
use super::number::size_text;
use super::parameter::{Change, Parameter, Preset, Section};
use super::parameters::SECTIONS;
use super::toml_text::value_text;
use std::fmt::Write as _;

/// Adds a line; writing to a String cannot fail.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {{ let _infallible = writeln!($text, $($format)*); }};
}
#[cfg(test)]
pub(crate) use line;

/// Returns the default as text: its value, or words where it is not a value.
pub(crate) fn default_words(parameter: &Parameter) -> String {
    match parameter.preset {
        Preset::Fixed(_) => parameter.fixed().map_or_else(String::new, |value| value_text(&parameter.kind, &value)),
        Preset::Derived { text, .. } | Preset::ConfiguredValue { text, .. } => text.to_owned(),
        Preset::Required => "none, it must be set".to_owned(),
    }
}

/// The example as the file would write it.
pub(crate) fn example_text(parameter: &Parameter) -> String {
    let value = parameter.kind.read_bare(parameter.example).expect("a test of the table reads all examples");
    match (&value, parameter.kind) {
        // The short form is the point of the example.
        (super::value::Value::Each(_), _) => super::toml_string::quoted(parameter.example),
        (super::value::Value::List(items), Kind::List { of, .. })
            if items.len() == 1 && !parameter.example.starts_with('[') =>
        {
            items.first().map_or_else(String::new, |item| value_text(of, item))
        }
        _ => value_text(&parameter.kind, &value),
    }
}

/// The range in words; nothing where the kind says it all.
pub(crate) fn range_words(parameter: &Parameter) -> Option<String> {
    match parameter.kind {
        Kind::Number { min, max, .. } => Some(format!("{min} to {max}")),
        Kind::Bytes { min, max } => Some(format!("{} to {}", size_text(min), size_text(max))),
        Kind::Time { min, max } => {
            Some(format!("{} to {}", super::number::time_text(min), super::number::time_text(max)))
        }
        Kind::Rate => Some("0.001 to 1000000, or 0".to_owned()),
        Kind::Flag
        | Kind::Choice(_)
        | Kind::Domain
        | Kind::RelayDomain
        | Kind::Host
        | Kind::Endpoint { .. }
        | Kind::MxHost
        | Kind::NextHop
        | Kind::Ip
        | Kind::Mailbox { .. }
        | Kind::MailboxPlace
        | Kind::Word { .. }
        | Kind::Text => None,
        Kind::Path { .. } | Kind::LogPath | Kind::MapSource | Kind::Network | Kind::Listen | Kind::Address { .. } => {
            None
        }
        Kind::List { .. } => None,
    }
}

/// The words a value may be, with their meanings.
pub(crate) fn words(parameter: &Parameter) -> super::choice::Words {
    match parameter.kind {
        Kind::Choice(words) => words,
        Kind::List { of: Kind::Choice(words), .. } => words,
        _ => &[],
    }
}

pub(crate) const fn change_words(parameter: &Parameter) -> &'static str {
    match parameter.change {
        Change::Reload => "counts after a reload",
        Change::Restart => "counts after a restart; a reload that changes it is refused",
    }
}

/// Breaks a text into lines of at most `width` characters, each behind `prefix`.
pub(crate) fn wrapped(text: &str, width: usize, prefix: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            lines.push('\n');
            column = 0;
        }
        if column == 0 {
            lines.push_str(prefix);
        } else {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    if !lines.is_empty() {
        lines.push('\n');
    }
    lines
}

/// `[spool]`, `[[listen]]`; empty for the keys before the first table.
pub(crate) fn header(section: &Section) -> String {
    match (section.key, section.group) {
        ("", _) => String::new(),
        (key, Some(_)) => format!("[[{key}]]"),
        (key, None) => format!("[{key}]"),
    }
}

/// The annotated example: every key with its default, commented out.
pub(crate) fn example() -> String {
    let mut text = "\
# mailrace.toml: every key there is, with its default.
#
# All keys are optional; uncomment a line to change it. \"mailrace check\" reads the
# file and says what is wrong with it; \"mailrace config explain KEY\" says more about
# a key. Sizes: 65536, \"64KiB\", \"50MiB\", \"8GiB\". Times: \"500ms\", \"5s\", \"2m\",
# \"1h30m\". Relative paths begin at the directory of this file.
"
    .to_owned();
    for section in SECTIONS {
        let header = header(section);
        if !header.is_empty() {
            line!(text, "\n# {}", "-".repeat(78));
            text.push_str(&wrapped(&capital(section.summary), 78, "# "));
            if let Some(group) = section.group {
                text.push_str(&wrapped(&format!("As often as wanted. Default: {}.", group.preset_text), 78, "# "));
                line!(text, "#{header}");
            } else {
                line!(text, "{header}");
            }
        }
        for parameter in section.parameters {
            text.push('\n');
            text.push_str(&wrapped(&capital(parameter.summary), 78, "# "));
            for (word, meaning) in words(parameter) {
                text.push_str(&wrapped(&format!("{word}: {meaning}."), 76, "#   "));
            }
            text.push_str(&wrapped(parameter.reason, 78, "# "));
            match parameter.preset {
                Preset::Fixed(_) => line!(text, "#{} = {}", parameter.name(), default_words(parameter)),
                Preset::Derived { .. } | Preset::ConfiguredValue { .. } | Preset::Required => {
                    text.push_str(&wrapped(&format!("Default: {}.", default_words(parameter)), 78, "# "));
                    line!(text, "#{} = {}", parameter.name(), example_text(parameter));
                }
            }
        }
    }
    text
}

/// The first letter large and a full stop at the end.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Kind and range.
pub(crate) fn value_words(parameter: &Parameter) -> String {
    match range_words(parameter) {
        Some(range) => format!("{}, {range}", parameter.kind.name()),
        None => parameter.kind.name(),
    }
}
