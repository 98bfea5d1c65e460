//! The report on a queue that was taken over.

use super::ASIDE;
use crate::exit::{Exit, Failure};
use crate::output::{Output, age, count};
use crate::terminal_text::plain;
use os::clock;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why something stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// sendmail works on it.
    Locked,
    /// It is not understood.
    Unreadable,
    /// It has recipients that only sendmail can reach.
    Recipient,
    /// sendmail could not read it either.
    Lost,
    /// It is no message, or not any more.
    Leftover,
    /// It has been handed in before, and the server has not taken it yet.
    Known,
    /// It is larger than the server takes.
    TooLarge,
}

impl Why {
    /// The word for programs.
    const fn name(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Unreadable => "unreadable",
            Self::Recipient => "recipient",
            Self::Lost => "lost",
            Self::Leftover => "leftover",
            Self::Known => "known",
            Self::TooLarge => "too-large",
        }
    }
}

/// A file that stays where it is.
#[derive(Debug)]
pub(super) struct Left {
    path: PathBuf,
    line: Option<usize>,
    why: Why,
    reason: String,
}

impl Left {
    pub(super) fn new(path: impl Into<PathBuf>, why: Why, reason: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, why, reason: reason.into() }
    }

    pub(super) fn at(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }
}

/// A message that changed hands.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) path: PathBuf,
    pub(super) sender: String,
    pub(super) recipients: usize,
    pub(super) arrived: u64,
    pub(super) hold: Option<String>,
    pub(super) notes: Vec<(usize, String)>,
}

/// All that is to be said.
#[derive(Debug)]
pub(super) struct ImportReport {
    is_dry: bool,
    removes: bool,
    taken: Vec<Summary>,
    left: Vec<Left>,
    /// Messages of an earlier run that were given to the server now.
    pub(super) resumed: u64,
    /// The R of messages that the server has not taken yet.
    pub(super) known: HashSet<String>,
}

impl ImportReport {
    pub(super) fn new(is_dry: bool, removes: bool) -> Self {
        Self { is_dry, removes, taken: Vec::new(), left: Vec::new(), resumed: 0, known: HashSet::new() }
    }

    pub(super) fn add_taken(&mut self, summary: Summary) {
        self.taken.push(summary);
    }

    pub(super) fn add_left(&mut self, left: Left) {
        self.left.push(left);
    }

    /// Prints the report, and returns the exit status.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(super) fn print(&self, as_json: bool, root: &Path, took: Duration) -> Result<Exit, Failure> {
        let mut output = Output::new();
        if as_json {
            output.print_json(&self.json());
        } else {
            self.show(&mut output, root, took);
        }
        output.finish()?;
        let is = |wanted: fn(Why) -> bool| self.left.iter().any(|left| wanted(left.why));
        // A leftover was never accepted as a message.
        if is(|why| !matches!(why, Why::Locked | Why::Leftover | Why::Known)) {
            return Ok(Exit::Damaged);
        }
        Ok(if is(|why| matches!(why, Why::Locked | Why::Known)) { Exit::TryLater } else { Exit::Ok })
    }

    fn show(&self, output: &mut Output, root: &Path, took: Duration) {
        for left in &self.left {
            let line = left.line.map(|line| format!(" line {line}:")).unwrap_or_default();
            let path = left.path.display().to_string();
            eprintln!("{}:{line} {}; it stays where it is", plain(&path), plain(&left.reason));
        }
        for one in &self.taken {
            for (line, text) in &one.notes {
                eprintln!("{}: line {line}: {}", plain(&one.path.display().to_string()), plain(text));
            }
        }
        if self.is_dry {
            let now = clock::unix_us() / 1_000_000;
            for one in &self.taken {
                let hold = one.hold.as_ref().map(|why| format!(", held: {}", plain(why))).unwrap_or_default();
                output.print_line(format!(
                    "{}: from {} to {}, waits for {}{hold}",
                    plain(&one.path.display().to_string()),
                    plain(&one.sender),
                    count(one.recipients as u64, "recipient"),
                    age(now.saturating_sub(one.arrived))
                ));
            }
        }
        let recipients: usize = self.taken.iter().map(|one| one.recipients).sum();
        let held = self.taken.iter().filter(|one| one.hold.is_some()).count();
        let done = if self.is_dry { "would be taken over" } else { "taken over" };
        let messages = count(self.taken.len() as u64, "message");
        output.print_line(format!(
            "{messages} for {} {done}, {held} of them held; {} not; {:.1} s",
            count(recipients as u64, "recipient"),
            count(self.left.len() as u64, "file"),
            took.as_secs_f64()
        ));
        if self.resumed > 0 {
            output.print_line(format!("{} of an earlier run given to the server", count(self.resumed, "message")));
        }
        if !self.is_dry && !self.removes && !self.taken.is_empty() {
            let root = root.display();
            output.print_line(format!("their files are in {ASIDE}, below {root}; remove them when all is well"));
        }
    }

    fn json(&self) -> Value {
        let path = |path: &Path| path.display().to_string();
        let taken: Vec<Value> = self
            .taken
            .iter()
            .map(|one| {
                let notes: Vec<Value> =
                    one.notes.iter().map(|(line, text)| json!({ "line": line, "text": text })).collect();
                json!({
                    "file": path(&one.path), "sender": one.sender, "recipients": one.recipients, "arrived": one.arrived,
                    "hold": one.hold, "notes": notes,
                })
            })
            .collect();
        let left: Vec<Value> = self
            .left
            .iter()
            .map(|left| {
                json!({ "file": path(&left.path), "line": left.line, "why": left.why.name(), "reason": left.reason })
            })
            .collect();
        json!({ "dry_run": self.is_dry, "taken": taken, "left": left, "resumed": self.resumed })
    }
}
