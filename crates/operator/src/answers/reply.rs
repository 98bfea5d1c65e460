//! The server's answers, as lines of JSON.
//!
//! Every answer ends with a line that has the field `ok`; in a list, other lines come before it. A refusal has
//! `reason`, for programs, and `error`, for people. Here the shape is made; the meaning of the other fields is the
//! handler's.

use super::{ProblemLine, RefusalLine, ReloadAnswer, to_fields};
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Why something was refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The line is no request.
    Request,
    /// The peer may not ask.
    Permission,
    /// Too many connections, or the server is going down: ask again.
    Busy,
    /// The configuration has problems; the old one stays.
    Config,
    /// It was tried and failed.
    Failed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Request, Self::Permission, Self::Busy, Self::Config, Self::Failed];

    /// The word in the answer.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Permission => "permission",
            Self::Busy => "busy",
            Self::Config => "config",
            Self::Failed => "failed",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// A mistake in a file of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Line from 1; 0 where there is none.
    pub line: u32,
    /// Column from 1, in characters; 0 where there is none.
    pub column: u32,
    /// The fault, and the next step.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, text } = self;
        write!(f, "{}:", file.display())?;
        for place in [line, column].into_iter().take_while(|place| **place > 0) {
            write!(f, "{place}:")?;
        }
        write!(f, " {text}")
    }
}

/// A session that the connection is given to after the line `{"ok":true}`.
pub type Takeover = Box<dyn FnOnce(UnixStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// A part of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum ListPart {
    /// A line.
    Line(Map<String, Value>),
    /// All was said; these fields go with the number of lines.
    Last(Map<String, Value>),
    /// It went wrong, perhaps in the middle. A list that just ends has gone wrong too.
    Failed {
        /// For programs.
        reason: Reason,
        /// For people: what and the next step.
        error: String,
    },
}

/// The handler's answer to a request.
pub enum Answer {
    /// One line with these fields.
    Done(Map<String, Value>),
    /// Line by line as they come, until the last. The sender waits while the peer does not read, and learns by a closed
    /// channel that the peer is gone.
    List(mpsc::Receiver<ListPart>),
    /// It was not done.
    Refused {
        /// For programs.
        reason: Reason,
        /// For people: what and the next step.
        error: String,
        /// The single mistakes, if they are known.
        problems: Vec<Problem>,
    },
    /// The connection is no longer one of the control socket. It counts for none of its limits from then on.
    Takeover(Takeover),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(fields) => f.debug_tuple("Done").field(fields).finish(),
            Self::List(_) => f.write_str("List"),
            Self::Refused { reason, error, .. } => f.debug_tuple("Refused").field(reason).field(error).finish(),
            Self::Takeover(_) => f.write_str("Takeover"),
        }
    }
}

impl Answer {
    /// Nothing more to say than that it is done.
    #[must_use]
    pub fn done() -> Self {
        Self::Done(Map::new())
    }

    /// The answer to a successful reload: the changes as `key: old → new`, the changes that wait for the next start,
    /// and the changes for which waiting mail is tried again at once.
    #[must_use]
    pub fn reloaded(changed: &[String], needs_restart: &[String], retried: &[&str]) -> Self {
        Self::Done(to_fields(&ReloadAnswer {
            changed: changed.to_vec(),
            needs_restart: needs_restart.to_vec(),
            retried: retried.iter().map(|part| (*part).to_owned()).collect(),
        }))
    }

    /// A refusal without single mistakes.
    #[must_use]
    pub fn refused(reason: Reason, error: impl Into<String>) -> Self {
        Self::Refused { reason, error: error.into(), problems: Vec::new() }
    }
}

/// The last line of an answer, with its end.
pub(crate) fn last_line(ok: bool, fields: Map<String, Value>) -> String {
    let mut line = Map::from_iter([("ok".to_owned(), Value::Bool(ok))]);
    line.extend(fields.into_iter().filter(|(name, _)| name != "ok"));
    format!("{}\n", Value::Object(line))
}

/// A line of a list. The field `ok` would end it.
pub(crate) fn list_line(mut fields: Map<String, Value>) -> String {
    fields.remove("ok");
    format!("{}\n", Value::Object(fields))
}

/// The line of a refusal.
pub(crate) fn refusal_line(reason: Reason, error: &str, problems: &[Problem]) -> String {
    last_line(false, refusal_fields(reason, error, problems))
}

/// The fields of a refusal.
pub(crate) fn refusal_fields(reason: Reason, error: &str, problems: &[Problem]) -> Map<String, Value> {
    let problems = problems.iter().map(|Problem { file, line, column, text }| ProblemLine {
        file: file.display().to_string(),
        line: *line,
        column: *column,
        text: text.clone(),
    });
    to_fields(&RefusalLine { reason: reason.name().to_owned(), error: error.to_owned(), problems: problems.collect() })
}

/// Returns the beginning of a word of a request, for an error that repeats it.
pub(crate) fn shortened(word: &str) -> String {
    word.chars().take(60).collect()
}

/// Returns the beginning of a value of a request as JSON, for an error that repeats it. JSON leaves some control
/// characters as they are; the error does not repeat these.
pub(crate) fn shortened_json(value: &Value) -> String {
    let visible = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    shortened(&value.to_string()).chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeated_words_have_no_control_characters() {
        let value = json!("a\u{7f}\u{9b}b");
        assert!(value.to_string().chars().any(char::is_control));
        assert_eq!(shortened_json(&value), "\"a\u{fffd}\u{fffd}b\"");
        assert_eq!(shortened(&"x".repeat(90)).len(), 60);
    }

    #[test]
    fn answers_are_lines() {
        assert_eq!(last_line(true, Map::new()), "{\"ok\":true}\n");
        let fields = || Map::from_iter([("ok".to_owned(), json!("liar")), ("a".to_owned(), json!("x\ny"))]);
        assert_eq!(last_line(true, fields()), "{\"a\":\"x\\ny\",\"ok\":true}\n");
        assert_eq!(list_line(fields()), "{\"a\":\"x\\ny\"}\n");
    }

    #[test]
    fn problems_have_places() {
        let problem = |line, column| Problem { file: "/etc/m.toml".into(), line, column, text: "no".into() };
        assert_eq!(problem(3, 7).to_string(), "/etc/m.toml:3:7: no");
        assert_eq!([problem(3, 0), problem(0, 0)].map(|p| p.to_string()), ["/etc/m.toml:3: no", "/etc/m.toml: no"]);
        let line = refusal_line(Reason::Config, "1 problem", &[problem(3, 7)]);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["reason"], "config");
        assert_eq!(value["problems"][0], json!({ "file": "/etc/m.toml", "line": 3, "column": 7, "text": "no" }));
        assert!(Reason::ALL.into_iter().all(|reason| Reason::from_name(reason.name()) == Some(reason)));
    }
}
