//! The faults of a configuration, for a person and for programs.
//!
//! A problem carries its place and the line itself, so that it can be shown without the file at hand.

use serde_json::{Value, json};
use std::fmt;

/// The name of the command line in problems and origins.
pub(crate) const OVERRIDES_FILE: &str = "--set";

/// Columns of a source line that are shown.
const COLUMNS_MAX: usize = 120;

/// Whether the server can start in spite of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot.
    Error,
    /// The configuration can be used, but the operator should look at it.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One thing that is wrong. Its text form is a message of several lines, without a line end after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// The file, or `--set`; empty where the problem has no place.
    pub file: String,
    /// Counted from 1; 0 where the problem has no place.
    pub line: usize,
    /// In characters, counted from 1; 0 where the problem has no place.
    pub column: usize,
    /// How many characters are meant.
    pub width: usize,
    /// The line of the file, without its end.
    pub source: String,
    /// The key, if one is meant: `listen[1].address`.
    pub key: String,
    /// The fault, with the value.
    pub text: String,
    /// The form of a right value; may be empty.
    pub expected: String,
    /// The next step of the operator.
    pub suggestion: Option<String>,
}

impl Problem {
    /// Makes a problem of a file; `line` is counted from 1, 0 for the file as a whole.
    #[must_use]
    pub fn of_file(severity: Severity, file: String, line: usize, text: String, suggestion: Option<String>) -> Self {
        Self {
            severity,
            file,
            line,
            column: 0,
            width: 0,
            source: String::new(),
            key: String::new(),
            text,
            expected: String::new(),
            suggestion,
        }
    }

    /// For other programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "severity": self.severity.to_string(), "file": self.file, "line": self.line, "column": self.column,
            "source": self.source, "key": self.key, "text": self.text, "expected": self.expected,
            "suggestion": self.suggestion,
        })
    }

    /// Returns the fault and the next step on one line, without the place: for the log and for answers to commands.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = visible(&self.text);
        for (before, part) in [("; expected: ", Some(&self.expected)), ("; ", self.suggestion.as_ref())] {
            if let Some(part) = part.filter(|part| !part.is_empty()) {
                text.push_str(before);
                text.push_str(&visible(part));
            }
        }
        text
    }

    /// [`Self::sentence`] with its place in front.
    #[must_use]
    pub fn line(&self) -> String {
        match self.line {
            0 => self.sentence(),
            line => format!("{}:{line}:{}: {}", self.file, self.column, self.sentence()),
        }
    }

    /// Where the problem stands among others.
    pub(crate) fn order(&self) -> (bool, &str, usize, usize) {
        (self.file == OVERRIDES_FILE, &self.file, self.line, self.column)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, visible(&self.text))?;
        let margin = self.line.to_string().len();
        if self.line > 0 && self.column == 0 {
            write!(f, "\n{:margin$}--> {}:{}", "", self.file, self.line)?;
        } else if self.line > 0 {
            let (source, before, width) = excerpt(&self.source, self.column, self.width);
            write!(f, "\n{:margin$}--> {}:{}:{}", "", self.file, self.line, self.column)?;
            write!(f, "\n{:margin$} |\n{} | {source}", "", self.line)?;
            write!(f, "\n{:margin$} | {:before$}{}", "", "", "^".repeat(width))?;
        }
        if !self.expected.is_empty() {
            write!(f, "\n{:margin$} = expected: {}", "", self.expected)?;
        }
        match &self.suggestion {
            Some(suggestion) => write!(f, "\n{:margin$} = help: {}", "", visible(suggestion)),
            None => Ok(()),
        }
    }
}

/// Nothing in a message may move the cursor or hide a part of it.
fn visible(text: &str) -> String {
    let mut visible: String =
        text.chars().take(400).map(|c| if mail::is_unprintable(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(400).is_some() {
        visible.push('…');
    }
    visible
}

/// The part of a line around a column, what stands before the place in it, and the width that is left for the mark.
fn excerpt(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let at = column.saturating_sub(1);
    let skip = if at < COLUMNS_MAX * 2 / 3 { 0 } else { at - COLUMNS_MAX / 3 };
    let one = |c: char| {
        if c == '\t' {
            ' '
        } else if mail::is_unprintable(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    let mut shown: String = line.chars().skip(skip).take(COLUMNS_MAX).map(one).collect();
    if skip > 0 {
        shown = shown.chars().enumerate().map(|(at, c)| if at == 0 { '…' } else { c }).collect();
    }
    if line.chars().nth(skip + COLUMNS_MAX).is_some() {
        shown.push('…');
    }
    let left = shown.chars().count().saturating_sub(at - skip);
    (shown, at - skip, width.min(left).max(1))
}

/// All problems as one text, an empty line between two.
#[must_use]
pub fn render(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if texts.is_empty() { String::new() } else { texts.join("\n\n") + "\n" }
}

/// A text with the places of its lines.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1).filter(|at| *at < text.len());
        Self { file, text, lines: std::iter::once(0).chain(ends).collect() }
    }

    /// Place of some bytes; what lies behind the text counts as its end.
    pub(crate) fn place(&self, span: &std::ops::Range<usize>) -> SourceLocation {
        let line = self.lines.partition_point(|start| *start <= span.start).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let rest = self.text.get(start..).unwrap_or_default();
        let source = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        // Columns count characters. A span never begins inside of one; if it did, the character would count.
        let chars = |bytes: usize| source.char_indices().take_while(|(at, _)| *at < bytes).count();
        let column = chars(span.start.saturating_sub(start));
        let width = chars(span.end.max(span.start).saturating_sub(start)).saturating_sub(column).max(1);
        SourceLocation { file: self.file.to_owned(), line, column: column + 1, width, source: source.to_owned() }
    }
}

/// Where something stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceLocation {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) width: usize,
    pub(crate) source: String,
}

impl SourceLocation {
    /// A problem here.
    pub(crate) fn problem(
        place: Option<&Self>,
        severity: Severity,
        key: impl Into<String>,
        text: impl Into<String>,
    ) -> Problem {
        let place =
            place.cloned().unwrap_or(Self { file: String::new(), line: 0, column: 0, width: 0, source: String::new() });
        Problem {
            severity,
            file: place.file,
            line: place.line,
            column: place.column,
            width: place.width,
            source: place.source,
            key: key.into(),
            text: text.into(),
            expected: String::new(),
            suggestion: None,
        }
    }
}
