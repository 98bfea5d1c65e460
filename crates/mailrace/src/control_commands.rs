//! `mailrace reload`, `status` and `smtp`: what the running server is asked over its control socket.
//!
//! Each command is one request and one answer; `smtp` then connects standard input and output with a session of the server, as
//! sendmail's `-bs` does. What requests and answers look like is written in `server::control` and `docs/operation.md`.

use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, count, thousands};
use clap::{Args, Subcommand};
use serde_json::Value;
use server::control::{Reason, Request};
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where the socket of a server that was started as root lies.
const SYSTEM_PATH: &str = "/run/mailrace/control";
/// How long the server may think about a request; a reload reads files and certificates.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// The longest answer, in octets. Only a mistaken path leads to a longer one.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

const HELP: &str = "\
Exit status:
   0  done
  64  the server does not know the request; it is of another version
  69  the server does not run
  74  reading or writing failed
  75  the server is busy or went away; try again
  77  no permission
  78  the configuration has problems; the old one stays in force";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the running server read its configuration and certificates again, whole or not at all
    #[command(after_help = HELP)]
    Reload(Target),
    /// Show how the running server is
    #[command(after_help = HELP)]
    Status(StatusArguments),
    /// Hold an SMTP session with the running server over standard input and output
    #[command(after_help = HELP)]
    Smtp(Target),
}

/// The server to ask.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Path of the control socket, `control.path` of the configuration; else the user's own server, else the system's
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Reload(target) => reload(&target),
        Command::Status(arguments) => status(&arguments),
        Command::Smtp(target) => smtp(&target),
    }
}

fn reload(target: &Target) -> Result<Exit, Failure> {
    let answer = Control::connect(&target.path())?.ask(Request::Reload)?;
    let mut output = Output::new();
    let lines = |field: &str| -> Vec<String> {
        let texts = answer.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        texts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (changed, needs_restart) = (lines("changed"), lines("needs_restart"));
    output.line(if changed.is_empty() { "reloaded, no setting changed" } else { "reloaded" });
    for line in changed {
        output.line(format_args!("  {line}"));
    }
    for line in needs_restart {
        output.line(format_args!("  waits for a restart: {line}"));
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn status(arguments: &StatusArguments) -> Result<Exit, Failure> {
    let answer = Control::connect(&arguments.target.path())?.ask(Request::Status)?;
    let mut output = Output::new();
    if arguments.json {
        output.json(&answer);
    } else {
        status_lines(&mut output, &answer);
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn status_lines(output: &mut Output, answer: &Value) {
    let number = |place: &str| answer.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    let text = |place: &str| answer.pointer(place).and_then(Value::as_str).unwrap_or("?");
    let yes = |place: &str| answer.pointer(place).and_then(Value::as_bool).unwrap_or(false);
    let (version, host) = (text("/version"), text("/hostname"));
    let (pid, uptime) = (number("/pid"), duration(number("/uptime_seconds")));
    let stopping = if yes("/stopping") { ", stopping" } else { "" };
    output.line(format_args!("mailrace {version} on {host}, process {pid}, up {uptime}{stopping}"));
    let listen = answer.get("listen").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let listen: Vec<&str> = listen.iter().filter_map(Value::as_str).collect();
    output.line(format_args!("  listens      {}", listen.join(" ")));
    output.line(format_args!(
        "  connections  {} of {} open; {} since the start, {} turned away",
        thousands(number("/connections/open")),
        thousands(number("/connections/max")),
        thousands(number("/connections/total")),
        thousands(number("/connections/refused")),
    ));
    let (accepted, refused) = (number("/messages/accepted"), number("/messages/refused"));
    output.line(format_args!("  messages     {} accepted, {} refused", thousands(accepted), thousands(refused)));
    output.line(format_args!(
        "  queue        {} for {} at {}, {}",
        count(number("/spool/messages"), "message"),
        count(number("/spool/recipients"), "recipient"),
        count(number("/spool/destinations"), "destination"),
        bytes(number("/spool/live_bytes")),
    ));
    output.line(format_args!(
        "  spool        {} on {}; {} of {} segments in use, pressure {}",
        text("/spool/path"),
        text("/spool/file_system"),
        thousands(number("/spool/segments").saturating_sub(number("/spool/segments_free"))),
        thousands(number("/spool/segments_max")),
        text("/spool/pressure"),
    ));
    if !yes("/spool/durable") {
        output.line("  NOT DURABLE  a power cut takes the queue with it; set spool.path to a directory on a disk");
    }
    let (failures, bad) = (number("/spool/failures"), number("/spool/segments_bad"));
    if failures + bad > 0 {
        let (failures, bad) = (count(failures, "write"), count(bad, "segment"));
        output.line(format_args!(
            "  STORAGE      {failures} failed, {bad} put aside; look at the disk and the kernel log"
        ));
    }
    let dropped = number("/log/dropped");
    if dropped > 0 {
        output.line(format_args!(
            "  LOG          {} dropped; the log's disk or log.queue_lines_max is too small",
            count(dropped, "line")
        ));
    }
}

/// A time in its two largest units.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{} {hours} h", count(days, "day")),
    }
}

fn smtp(target: &Target) -> Result<Exit, Failure> {
    let mut control = Control::connect(&target.path())?;
    control.ask(Request::Smtp)?;
    let Control { stream, path } = control;
    let failed = |error: io::Error| Failure::io(path.display(), &error);
    stream.get_ref().set_read_timeout(None).map_err(failed)?;
    let mut to_server = stream.get_ref().try_clone().map_err(failed)?;
    let input_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&input_ended);
    // Nobody waits for this thread: it may stand in a read that nothing ends but the end of the process.
    std::thread::spawn(move || {
        // A server that has gone is seen by the other direction.
        drop(io::copy(&mut io::stdin().lock(), &mut to_server));
        ended.store(true, Ordering::Release);
        drop(to_server.shutdown(Shutdown::Write));
    });
    let last_reply = copy_replies(stream, &mut io::stdout().lock())?;
    if last_reply == *b"221" || input_ended.load(Ordering::Acquire) {
        return Ok(Exit::Ok);
    }
    let message = format!("{}: the server ended the session before QUIT; try again", path.display());
    Err(Failure::new(Exit::TryLater, message))
}

/// Copies until the server ends the session, and returns the code of its last reply.
fn copy_replies(mut from: impl BufRead, to: &mut impl Write) -> Result<[u8; 3], Failure> {
    let mut last = [0; 3];
    let mut column = 0;
    loop {
        let arrived = match from.fill_buf() {
            Ok(arrived) => arrived,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A server that was killed; what it has said is passed on, and it was not 221.
            Err(_) => return Ok([0; 3]),
        };
        if arrived.is_empty() {
            return Ok(last);
        }
        for byte in arrived {
            if let Some(place) = last.get_mut(column) {
                *place = *byte;
            }
            column = if *byte == b'\n' { 0 } else { column + 1 };
        }
        to.write_all(arrived).and_then(|()| to.flush()).map_err(|error| Failure::io("standard output", &error))?;
        let used = arrived.len();
        from.consume(used);
    }
}

impl Target {
    fn path(&self) -> PathBuf {
        let own = || {
            let below_home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
            let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(below_home)?;
            Some(state.join("mailrace/control")).filter(|path| path.exists())
        };
        self.control.clone().or_else(own).unwrap_or_else(|| SYSTEM_PATH.into())
    }
}

/// A connection to the control socket.
pub(crate) struct Control {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// No server answers there, or it may not be asked.
    pub(crate) fn connect(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::new(
                Exit::Unavailable,
                format!(
                    "{}: no server answers there; start mailrace, or name its control.path with --control",
                    path.display()
                ),
            ),
            io::ErrorKind::PermissionDenied => Failure::new(
                Exit::NoPermission,
                format!(
                    "{}: no permission; ask as root, as the user mailrace runs as, or as a member of the socket's group",
                    path.display()
                ),
            ),
            _ => Failure::io(path.display(), &error),
        };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX)).map_err(failed)?;
        Ok(Self { stream: BufReader::new(stream), path: path.to_owned() })
    }

    /// Asks, and returns the answer where it is a good one.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Value, Failure> {
        let path = self.path.display();
        // A server that turns us away has answered and closed before it reads anything: its answer counts, not this.
        drop(self.stream.get_mut().write_all(request.to_line().as_bytes()));
        let mut line = Vec::new();
        let gone =
            |what: String| Failure::new(Exit::TryLater, format!("{path}: {what}; try again, and look at its log"));
        match self.stream.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return Err(gone("the server closed the connection without an answer".to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(gone(format!("no answer within {} s", ANSWER_TIME_MAX.as_secs())));
            }
            Err(error) => return Err(gone(error.to_string())),
        }
        let answer: Value = serde_json::from_slice(&line)
            .map_err(|error| Failure::new(Exit::Io, format!("{path}: what answers there is not mailrace: {error}")))?;
        if answer.get("ok") == Some(&Value::Bool(true)) { Ok(answer) } else { Err(refusal(&answer)) }
    }
}

/// What the server refused, with every single mistake on a line of its own.
fn refusal(answer: &Value) -> Failure {
    let exit = match answer.get("reason").and_then(Value::as_str).and_then(Reason::from_name) {
        Some(Reason::Request) => Exit::Usage,
        Some(Reason::Permission) => Exit::NoPermission,
        Some(Reason::Busy) => Exit::TryLater,
        Some(Reason::Config) => Exit::Config,
        Some(Reason::Failed) | None => Exit::Io,
    };
    let mut message = answer.get("error").and_then(Value::as_str).unwrap_or("the server refused").to_owned();
    let problems = answer.get("problems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for problem in problems {
        let text = |field| problem.get(field).and_then(Value::as_str).unwrap_or_default();
        let number = |field| problem.get(field).and_then(Value::as_u64).filter(|number| *number > 0);
        message.push_str("\n  ");
        message.push_str(text("file"));
        for place in [number("line"), number("column")].into_iter().map_while(|place| place) {
            message.push_str(&format!(":{place}"));
        }
        message.push_str(": ");
        message.push_str(text("text"));
    }
    Failure::new(exit, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_for_people() {
        assert_eq!(
            [5, 61, 3_720, 90_000, 200_000].map(duration),
            ["5 s", "1 min 1 s", "1 h 2 min", "1 day 1 h", "2 days 7 h"]
        );
    }

    #[test]
    fn replies_are_copied_as_they_are_and_the_last_code_is_known() {
        for (replies, code) in [
            (&b"220 a\r\n250-x\r\n250 y\r\n221 2.0.0 bye\r\n"[..], *b"221"),
            (b"220 221\r\n421 4.3.2 221 going down\r\n", *b"421"),
            (b"", [0; 3]),
        ] {
            for capacity in [1, 3, 100] {
                let mut copied = Vec::new();
                let last = copy_replies(BufReader::with_capacity(capacity, replies), &mut copied).unwrap();
                assert_eq!((copied.as_slice(), last), (replies, code));
            }
        }
    }

    #[test]
    fn refusals_have_a_status_and_every_problem_a_line() {
        let answer = json!({
            "ok": false, "reason": "config", "error": "2 problems; the old configuration stays",
            "problems": [
                { "file": "m.toml", "line": 2, "column": 5, "text": "no such key" },
                { "file": "key.pem", "line": 0, "column": 0, "text": "no such file" },
            ],
        });
        let failure = refusal(&answer);
        assert_eq!(failure.exit, Exit::Config);
        let expected = "2 problems; the old configuration stays\n  m.toml:2:5: no such key\n  key.pem: no such file";
        assert_eq!(failure.to_string(), expected);
        assert_eq!(refusal(&json!({ "ok": false, "reason": "permission" })).exit, Exit::NoPermission);
    }
}
