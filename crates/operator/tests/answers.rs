//! The JSON of answers: each recorded answer is read into its struct and written again byte for byte, so that a field
//! keeps its name, its type and its absence.
//!
//! The program prints the same answers in its own tests (`crates/mailrace/tests/commands/answers.rs`).

#![allow(clippy::unwrap_used, reason = "an error fails the test")]

use operator::answers::{
    self, HostsAnswer, LineKind, MailersAnswer, QueueLine, QueueTotals, StatisticsAnswer, StatusAnswer, to_fields,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::Path;

/// The recorded answers, by name.
fn recorded() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
    };
    std::fs::read_dir(directory).unwrap().map(read).collect()
}

/// Reads a line into the struct, and returns the fields that the struct writes.
fn again<T: Serialize + DeserializeOwned>(line: &Value) -> Map<String, Value> {
    to_fields(&answers::from_line::<T>(line).unwrap())
}

/// Writes a line of the answer `name` from the fields that its struct keeps.
fn written(name: &str, line: &Value) -> String {
    let fields = match name.split('-').collect::<Vec<_>>()[..] {
        ["status", ..] => again::<StatusAnswer>(line),
        ["hosts", ..] => again::<HostsAnswer>(line),
        ["mailers", ..] => again::<MailersAnswer>(line),
        ["statistics", ..] => again::<StatisticsAnswer>(line),
        _ if line.get("ok").is_some() => again::<QueueTotals>(line),
        ["queue", "destinations", ..] => QueueLine::from_line(line, LineKind::Destinations).unwrap().to_fields(),
        ["queue", "stragglers", ..] => QueueLine::from_line(line, LineKind::Stragglers).unwrap().to_fields(),
        _ => QueueLine::from_line(line, LineKind::Messages).unwrap().to_fields(),
    };
    // The control socket adds the end of the answer.
    let end = ["ok", "lines"].into_iter().filter_map(|name| Some((name.to_owned(), line.get(name)?.clone())));
    format!("{}\n", Value::Object(fields.into_iter().chain(end).collect()))
}

#[test]
fn answers_are_written_as_they_are_recorded() {
    let recorded = recorded();
    assert!(recorded.len() > 20);
    for (name, text) in recorded {
        let lines = text.lines().map(|line| written(&name, &serde_json::from_str(line).unwrap()));
        assert_eq!(lines.collect::<String>(), text, "{name}");
    }
}

#[test]
fn unknown_fields_are_passed_over_and_absent_ones_have_defaults() {
    let line =
        serde_json::json!({ "ok": true, "version": "9.9", "colour": "blue", "queue": { "messages": 2, "depth": 1 } });
    let answer: StatusAnswer = answers::from_line(&line).unwrap();
    assert_eq!((answer.version.as_str(), answer.queue.messages, answer.spool.segments), ("9.9", 2, 0));
    let wrong = serde_json::json!({ "queue": { "messages": "two" } });
    assert!(answers::from_line::<StatusAnswer>(&wrong).is_err());
}
