//! The control socket from the asker's side: finding it, one request, its answer line by line.

use crate::exit::{Exit, Failure};
use clap::Args;
use operator::answers::{self, ProblemLine, RefusalLine};
use operator::control::{Reason, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::config;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the socket of a server that was started as root lies.
const SYSTEM_PATH: &str = "/run/mailrace/control";
/// How long the server may think about a request; a reload reads files and certificates.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// The longest line of an answer, in octets. Only a mistaken path leads to a longer one.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The server to ask.
#[derive(Debug, Args)]
pub(crate) struct ControlTarget {
    /// Control socket of the server [default: control.path of $MAILRACE_CONFIG, else that of your own server, else the
    /// system's]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl ControlTarget {
    /// Where its socket is.
    pub(crate) fn path(&self) -> PathBuf {
        let configured = || {
            let file = std::env::var_os(config::VARIABLE).filter(|file| !file.is_empty())?;
            let loaded = config::open(Some(Path::new(&file)), &[], &config::this_machine()).ok()?.ok()?;
            Some(loaded.config.control.path).filter(|path| path.exists())
        };
        let own = || {
            let below_home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
            let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(below_home)?;
            Some(state.join("mailrace/control")).filter(|path| path.exists())
        };
        self.control.clone().or_else(configured).or_else(own).unwrap_or_else(|| SYSTEM_PATH.into())
    }
}

/// A line of an answer.
enum Part {
    /// More lines follow.
    Line(Value),
    /// The end of a good answer.
    Last(Value),
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

    /// Sends a request, and returns the last line of a good answer. Lines before it are passed over.
    ///
    /// # Errors
    /// The server refused, or went away.
    pub(crate) fn request(&mut self, request: &Request) -> Result<Value, Failure> {
        self.send(request);
        loop {
            if let Part::Last(line) = self.part()? {
                return Ok(line);
            }
        }
    }

    /// Asks, and reads the last line of the answer by its type.
    ///
    /// # Errors
    /// The server refused, went away, or is of a version whose answer has another type.
    pub(crate) fn ask_for<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Failure> {
        let line = self.request(request)?;
        self.decode_line(&line)
    }

    /// Reads a line of an answer by its type.
    ///
    /// # Errors
    /// A field has another type than this version expects.
    pub(crate) fn decode_line<T: DeserializeOwned>(&self, line: &Value) -> Result<T, Failure> {
        answers::from_line(line).map_err(|error| other_version(&self.path, &error))
    }

    /// Asks, gives each line of the answer to `each` as it comes, and returns the last line of a good answer; `None` if
    /// `each` returned that it wants no more.
    ///
    /// # Errors
    /// The server refused, perhaps after some lines, or went away; or `each` could not read a line.
    pub(crate) fn ask_for_list(
        &mut self,
        request: &Request,
        mut each: impl FnMut(&Value) -> Result<bool, serde_json::Error>,
    ) -> Result<Option<Value>, Failure> {
        self.send(request);
        loop {
            match self.part()? {
                Part::Last(line) => return Ok(Some(line)),
                Part::Line(line) if each(&line).map_err(|error| other_version(&self.path, &error))? => {}
                Part::Line(_) => return Ok(None),
            }
        }
    }

    fn send(&mut self, request: &Request) {
        // A server that refuses the connection has answered and closed before it reads: the answer says why.
        drop(self.stream.get_mut().write_all(request.to_line().as_bytes()));
    }

    fn part(&mut self) -> Result<Part, Failure> {
        let line = self.line()?;
        match line.get("ok") {
            Some(Value::Bool(true)) => Ok(Part::Last(line)),
            Some(_) => Err(refusal(self.decode_line(&line)?)),
            None => Ok(Part::Line(line)),
        }
    }

    fn line(&mut self) -> Result<Value, Failure> {
        let path = self.path.display();
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
        if answer.is_object() {
            return Ok(answer);
        }
        Err(Failure::new(Exit::Io, format!("{path}: what answers there is not mailrace: no object")))
    }

    /// The connection itself, for a session on it.
    pub(crate) fn into_parts(self) -> (BufReader<UnixStream>, PathBuf) {
        (self.stream, self.path)
    }
}

/// Describes an answer with a field of another type than this version expects.
fn other_version(path: &Path, error: &serde_json::Error) -> Failure {
    let text = format!(
        "{}: the answer of the server is not that of this version: {error}; restart the server after an update, or use its own version of this command",
        path.display()
    );
    Failure::new(Exit::Io, text)
}

/// Describes a refusal of the server, with every single mistake on a line of its own.
fn refusal(refusal: RefusalLine) -> Failure {
    let exit = match Reason::from_name(&refusal.reason) {
        Some(Reason::Request) => Exit::Usage,
        Some(Reason::Permission) => Exit::NoPermission,
        Some(Reason::Busy) => Exit::TryLater,
        Some(Reason::Config) => Exit::Config,
        Some(Reason::Failed) | None => Exit::Io,
    };
    let mut message = refusal.error;
    if message.is_empty() {
        message.push_str("the server refused");
    }
    for ProblemLine { file, line, column, text } in refusal.problems {
        message.push_str(&format!("\n  {file}"));
        for place in [line, column].into_iter().take_while(|place| *place > 0) {
            message.push_str(&format!(":{place}"));
        }
        message.push_str(&format!(": {text}"));
    }
    Failure::new(exit, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_have_a_status_and_every_problem_a_line() {
        let answer = json!({
            "ok": false, "reason": "config", "error": "2 problems; the old configuration stays",
            "problems": [
                { "file": "m.toml", "line": 2, "column": 5, "text": "no such key" },
                { "file": "key.pem", "line": 0, "column": 0, "text": "no such file" },
            ],
        });
        let failure = refusal(answers::from_line(&answer).unwrap());
        assert_eq!(failure.exit, Exit::Config);
        let expected = "2 problems; the old configuration stays\n  m.toml:2:5: no such key\n  key.pem: no such file";
        assert_eq!(failure.to_string(), expected);
        assert_eq!(
            refusal(RefusalLine { reason: "permission".to_owned(), ..RefusalLine::default() }).exit,
            Exit::NoPermission
        );
    }
}
