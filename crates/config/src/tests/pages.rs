//! The manual page and `docs/configuration.md`, made from the table.

use super::super::generate::{
    capital, change_words, default_words, example_text, header, line, value_words, words, wrapped,
};
use super::super::kind::Kind;
use super::super::parameter::{Change, Parameter, Preset};
use super::super::parameters::SECTIONS;
use std::fmt::Write as _;

/// The page `docs/configuration.md`.
pub(super) fn page() -> String {
    let mut text = PAGE_BEGIN.to_owned();
    for section in SECTIONS {
        let header = header(section);
        let title = if header.is_empty() { capital(section.summary).replace('.', "") } else { format!("`{header}`") };
        line!(text, "\n## {title}\n");
        if !header.is_empty() {
            line!(text, "{}", capital(section.summary));
        }
        if let Some(group) = section.group {
            line!(text, "As often as wanted. Default: {}.", group.preset_text);
        }
        for parameter in section.parameters {
            line!(text, "\n### `{}`\n", parameter.key);
            line!(text, "{}\n", sentences(&capital(parameter.summary), parameter.reason));
            text.push_str(&wrapped(&facts(parameter), COLUMNS, ""));
            for (word, meaning) in words(parameter) {
                line!(text, "- `\"{word}\"`: {meaning}");
            }
        }
    }
    text
}

const PAGE_BEGIN: &str = "\
# Configuration

Each key with its meaning and its default. Made from `crates/config/src/parameters`; do not edit.
`mailrace config explain KEY` prints the same; [examples/mailrace.toml](../examples/mailrace.toml) has every key.

One TOML file, every key optional: `--config FILE`, else `$MAILRACE_CONFIG`, else `/etc/mailrace/mailrace.toml` if it
exists. `--set KEY=VALUE` changes a value; text needs no quotes there.

| Command | Effect |
|---|---|
| `mailrace check` | prints all problems with line and column; exit status 78 if there is an error |
| `mailrace config show [KEY…]` | every value, its default and where it was set |
| `mailrace config explain KEY` | a key, or all keys of a table |
| `mailrace config defaults` | the annotated example |

- **Sizes** are bytes, or text with a unit of 1,024: `\"64KiB\"`, `\"50MiB\"`, `\"8GiB\"`, `\"64k\"`. `MB` is refused.
- **Times** are text with units: `\"500ms\"`, `\"5s\"`, `\"2m\"`, `\"1h30m\"`, `\"1d\"`; `0` needs none.
- **Networks** are `\"10.0.0.0/8\"` or a single address.
- **Relative paths** begin at the directory of the file; after `--set` at the working directory.
- **A list of one** needs no brackets.

A **reload** (`mailrace reload`, SIGHUP) counts whole or not at all. A file with an error, or with a changed value of a
key marked *Restart*, changes nothing; the refusal names it. All keys exist since 0.1.0 unless they say otherwise.
";

/// The version that has every key for which the page names no other one.
const FIRST_VERSION: &str = "0.1.0";

/// The width of the page.
const COLUMNS: usize = 120;

/// Kind, range, default, example, and whether a change needs a restart.
fn facts(parameter: &Parameter) -> String {
    let quote = if matches!(parameter.preset, Preset::Fixed(_)) { "`" } else { "" };
    let default = format!("default {quote}{}{quote}.", default_words(parameter));
    let mut facts = match parameter.kind {
        Kind::Flag => capital(default.trim_end_matches('.')),
        _ => format!("{}; {default}", capital(&value_words(parameter)).trim_end_matches('.')),
    };
    if !speaks_for_itself(parameter.kind) {
        facts.push_str(&format!(" Example: `{} = {}`.", parameter.name(), example_text(parameter)));
    }
    if parameter.change == Change::Restart {
        facts.push_str(" *Restart*.");
    }
    if parameter.since != FIRST_VERSION {
        facts.push_str(&format!(" Since {}.", parameter.since));
    }
    facts
}

/// Summary and reason as one paragraph.
fn sentences(summary: &str, reason: &str) -> String {
    wrapped(&format!("{summary} {reason}"), COLUMNS, "").trim_end().to_owned()
}

/// True where kind and range show how a value is written.
fn speaks_for_itself(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Flag | Kind::Number { .. } | Kind::Bytes { .. } | Kind::Time { .. } | Kind::Rate | Kind::Choice(_)
    )
}

/// The manual page `mailrace.toml(5)`.
pub(super) fn manual() -> String {
    let mut text = ".\\\" Made from the table of parameters; do not edit.\n".to_owned();
    line!(text, ".TH MAILRACE.TOML 5 \"\" \"mailrace {}\" \"File Formats\"", env!("CARGO_PKG_VERSION"));
    text.push_str(
        ".SH NAME\nmailrace.toml \\- configuration of mailrace\n.SH SYNOPSIS\n.B /etc/mailrace/mailrace.toml\n",
    );
    text.push_str(".SH DESCRIPTION\n");
    text.push_str(&roff(MANUAL_DESCRIPTION));
    for section in SECTIONS {
        let header = header(section);
        let title = if header.is_empty() { "keys before the first table" } else { header.as_str() };
        line!(text, ".SH \"{}\"", roff(title).trim_end());
        if !header.is_empty() {
            text.push_str(&roff(&capital(section.summary)));
        }
        if let Some(group) = section.group {
            text.push_str(&roff(&format!("As often as wanted. Default: {}.", group.preset_text)));
        }
        for parameter in section.parameters {
            line!(text, ".TP\n.B {}", roff(parameter.key).trim_end());
            text.push_str(&roff(&capital(parameter.summary)));
            for (word, meaning) in words(parameter) {
                line!(text, ".br\n\\fB{}\\fR: {}.", roff(word).trim_end(), roff(meaning).trim_end());
            }
            line!(
                text,
                ".br\nValue: {}. Default: {}.",
                roff(&value_words(parameter)).trim_end(),
                roff(&default_words(parameter)).trim_end()
            );
            if !parameter.reason.is_empty() {
                text.push_str(".br\n");
                text.push_str(&roff(parameter.reason));
            }
            if parameter.change == Change::Restart {
                line!(text, ".br\nA changed value {}.", change_words(parameter));
            }
        }
    }
    text.push_str(".SH \"SEE ALSO\"\n.BR mailrace (1)\n");
    text
}

const MANUAL_DESCRIPTION: &str = "\
One TOML file, every key optional. The file is that of --config, else of $MAILRACE_CONFIG, else /etc/mailrace/mailrace.toml if it exists.
Sizes are a number of bytes or text such as \"64KiB\", \"50MiB\", \"8GiB\"; times are text such as \"500ms\", \"5s\", \"1h30m\"; networks are \"10.0.0.0/8\" or
a single address; relative paths begin at the directory of the file; a list of one needs no brackets.
A reload is whole or not at all: a file with an error, or with a changed value that counts after a restart, changes nothing.";

/// Text for roff: what it would take for a command or a sign of its own is escaped; ends with a line end.
fn roff(text: &str) -> String {
    let mut escaped = String::new();
    for line in text.lines() {
        if line.starts_with(['.', '\'']) {
            escaped.push_str("\\&");
        }
        for character in line.chars() {
            match character {
                '\\' => escaped.push_str("\\e"),
                '-' => escaped.push_str("\\-"),
                '"' => escaped.push_str("\\(dq"),
                '~' => escaped.push_str("\\(ti"),
                '^' => escaped.push_str("\\(ha"),
                c => escaped.push(c),
            }
        }
        escaped.push('\n');
    }
    escaped
}
