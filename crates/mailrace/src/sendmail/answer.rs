//! The answer of the running server to a submitted message: refused recipients, and with `-odi` the results.
//!
//! No answer is no failure. The file is durable, and the server takes it when it runs. Only the server is asked: while
//! it is down, any user may have made a socket of that name, who would learn the name of the file and could say what he
//! likes.

use serde_json::{Value, json};
use server::submit::SOCKET;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long it may take until the server has taken a message.
const TAKEN_TIME_MAX: Duration = Duration::from_secs(10);
/// How long `-odi` waits for next hops.
const DONE_TIME_MAX: Duration = Duration::from_secs(60);

/// A recipient that does not get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UndeliverableRecipient {
    pub(super) to: String,
    /// `550 5.1.1 …`
    pub(super) text: String,
    /// A next hop said it, and the sender is told by mail as well.
    pub(super) is_remote: bool,
}

/// The known results of the message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) failures: Vec<UndeliverableRecipient>,
    /// The queue id.
    pub(super) id: Option<String>,
    /// The server has answered. Otherwise it does not run, or is busy.
    pub(super) was_heard: bool,
    /// For each outcome: `<a@b>... Sent (…)`
    pub(super) outcomes: Vec<String>,
}

/// Which way of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Only wakes the server.
    No,
    /// Until the message is taken.
    Taken,
    /// Until each of so many recipients was tried.
    Done(usize),
}

/// Asks the server about a file; the answer is empty if it does not run. With `is_heard` refusals are said to have been
/// told to the caller, and the server sends no report.
pub(super) fn ask_server(directory: &Path, file: &str, wait: Wait, is_heard: bool) -> Told {
    let answer = send_request(directory, file, wait).and_then(|stream| match wait {
        Wait::No => Ok(Told::default()),
        Wait::Taken => read_answer(stream, 0, is_heard),
        Wait::Done(recipients) => read_answer(stream, recipients, is_heard),
    });
    answer.unwrap_or_default()
}

/// Connects to the server, checks that it is the one, and sends the request.
fn send_request(directory: &Path, file: &str, wait: Wait) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(directory.join(SOCKET))?;
    let peer = operator::control::Peer::of_socket(&stream)?;
    if ![0, directory.metadata()?.uid()].contains(&peer.uid) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(TAKEN_TIME_MAX))?;
    stream.set_write_timeout(Some(TAKEN_TIME_MAX))?;
    let word = if matches!(wait, Wait::Done(_)) { "done" } else { "taken" };
    stream.write_all(format!("{}\n", json!({ "file": file, "wait": word })).as_bytes())?;
    Ok(stream)
}

/// Reads the lines of the answer until the message is taken, and so many recipients have a result.
fn read_answer(stream: UnixStream, recipients: usize, is_heard: bool) -> std::io::Result<Told> {
    let mut stream = BufReader::new(stream);
    let mut told = Told::default();
    let mut left = recipients;
    loop {
        let mut line = String::new();
        // The server has gone, or takes its time: the message is in the queue.
        if !stream.read_line(&mut line).is_ok_and(|read| read > 0) {
            return Ok(told);
        }
        let Ok(line) = serde_json::from_str::<Value>(&line) else { return Ok(told) };
        told.was_heard = true;
        if let Some(refused) = line.get("refused").and_then(Value::as_array) {
            told.add_refused(refused);
            left = left.saturating_sub(refused.len());
            // Anything but "ok" means that the sender is to be told by mail.
            stream.get_mut().write_all(if is_heard { b"ok\n".as_slice() } else { b"mail\n" })?;
        } else if let Some(id) = line.get("taken").and_then(Value::as_str) {
            told.id = Some(id.to_owned());
            stream.get_mut().set_read_timeout(Some(DONE_TIME_MAX))?;
            if left == 0 {
                return Ok(told);
            }
        } else if let Some(to) = line.get("to").and_then(Value::as_array) {
            told.add_results(to, &text(&line, "stat"), &text(&line, "text"));
            left = left.saturating_sub(to.len());
            if left == 0 {
                return Ok(told);
            }
        } else {
            // `later`: it stays where it is.
            return Ok(told);
        }
    }
}

impl Told {
    /// Adds recipients that the server refused.
    fn add_refused(&mut self, refused: &[Value]) {
        let failure =
            |one: &Value| UndeliverableRecipient { to: text(one, "to"), text: text(one, "text"), is_remote: false };
        self.failures.extend(refused.iter().map(failure));
    }

    /// Adds the result of a delivery to some recipients.
    fn add_results(&mut self, to: &[Value], stat: &str, words: &str) {
        for to in to.iter().filter_map(Value::as_str).map(bare) {
            self.outcomes.push(format!("{to}... {}{words}", spoken(stat)));
            if stat == "failed" {
                let failure = UndeliverableRecipient { to: to.to_owned(), text: words.to_owned(), is_remote: true };
                self.failures.push(failure);
            }
        }
    }
}

fn spoken(stat: &str) -> &'static str {
    match stat {
        "sent" => "Sent: ",
        "deferred" => "Deferred: ",
        _ => "",
    }
}

fn bare(path: &str) -> &str {
    path.trim_start_matches('<').trim_end_matches('>')
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}
