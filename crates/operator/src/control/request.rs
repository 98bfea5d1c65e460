//! A line from the control socket as a request.
//!
//! Only a known command with its own fields is one: a misspelt field must not be taken for its absence. A refusal names
//! the column of the fault, because people write these lines by hand too.

use crate::answers::reply::{shortened, shortened_json};
use crate::queue;
use serde_json::{Map, Value};
use std::fmt;

/// The longest line of a request, in octets, without its end.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks whether the server answers.
    Ping,
    /// Read the configuration again, whole or not at all.
    Reload,
    /// How is the server?
    Status,
    /// Open the log file anew, after it was moved.
    LogReopen,
    /// What is known of next hops?
    Hosts,
    /// Forget the records of next hops.
    ForgetHosts,
    /// How much went through which mailer?
    Mailers,
    /// How much mail goes, by second, minute and hour?
    Statistics,
    /// An SMTP session on this connection.
    Smtp,
    /// Look at the queue, or change it.
    Queue(Box<queue::Command>),
}

/// The command that has fields of its own.
const QUEUE: &str = "queue";

impl Request {
    /// The requests without fields.
    pub const BARE: [Self; 9] = [
        Self::Ping,
        Self::Reload,
        Self::Status,
        Self::LogReopen,
        Self::Smtp,
        Self::Hosts,
        Self::ForgetHosts,
        Self::Mailers,
        Self::Statistics,
    ];

    /// The name of the command.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Reload => "reload",
            Self::Status => "status",
            Self::LogReopen => "log-reopen",
            Self::Smtp => "smtp",
            Self::Hosts => "hosts",
            Self::ForgetHosts => "hosts-forget",
            Self::Mailers => "mailers",
            Self::Statistics => "statistics",
            Self::Queue(_) => QUEUE,
        }
    }

    /// Whether a guest may ask for it, who may not control the server: to look at the queue, without the content of
    /// messages.
    #[must_use]
    pub fn is_for_guests(&self) -> bool {
        match self {
            Self::Ping => true,
            Self::Queue(command) => {
                matches!(command.action, queue::Action::List | queue::Action::Show) && !command.headers
            }
            _ => false,
        }
    }

    /// The request as a line, with its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let mut fields = match self {
            Self::Queue(command) => command.to_fields(),
            _ => Map::new(),
        };
        fields.insert("command".to_owned(), self.name().into());
        format!("{}\n", Value::Object(fields))
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// It is no request; the text names the fault.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
            let error = printable(&error.to_string());
            RequestError(format!("not a JSON object: {error}; an example: {}", Self::Ping.to_line().trim_end()))
        })?;
        let command = match fields.remove("command") {
            Some(Value::String(command)) => command,
            Some(other) => {
                return Err(RequestError(format!("\"command\" is {}, not a string", shortened_json(&other))));
            }
            None => return Err(RequestError("there is no field \"command\"".to_owned())),
        };
        if command == QUEUE {
            let command = queue::Command::from_fields(fields).map_err(RequestError)?;
            return Ok(Self::Queue(Box::new(command)));
        }
        let Some(request) = Self::BARE.into_iter().find(|request| request.name() == command) else {
            let names = Self::BARE.map(|request| request.name()).join(", ");
            let command = shortened(&command);
            return Err(RequestError(format!("there is no command {command:?}; there are {names}, {QUEUE}")));
        };
        match fields.keys().next() {
            None => Ok(request),
            Some(field) => Err(RequestError(format!("\"{command}\" has no field {:?}", shortened(field)))),
        }
    }
}

/// The beginning of a text that may quote the line, as it can be shown.
fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError(String);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RequestError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_back() {
        let queue = queue::Command::new(queue::Action::List, queue::Selection::default());
        for request in Request::BARE.into_iter().chain([Request::Queue(Box::new(queue))]) {
            assert_eq!(Request::parse(request.to_line().trim_end().as_bytes()), Ok(request));
        }
        assert_eq!(Request::parse(b" { \"command\" : \"log-reopen\" } \r"), Ok(Request::LogReopen));
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        for (line, part) in [
            (&b""[..], "not a JSON object"),
            (b"ping", "line 1 column 1"),
            (b"[\"ping\"]", "not a JSON object"),
            (b"{\"command\":\"ping\"} {}", "trailing characters"),
            (b"{\"command\":\"ping\xff\"}", "not a JSON object"),
            (b"{}", "no field \"command\""),
            (b"{\"command\":7}", "is 7"),
            (b"{\"command\":\"halt\"}", "\"halt\"; there are ping, reload"),
            (b"{\"command\":\"Ping\"}", "\"Ping\""),
            (b"{\"command\":\"queue\"}", "lacks the field \"action\""),
            (b"{\"command\":\"reload\",\"fil\\u0000e\":1}", "\"reload\" has no field \"fil\\0e\""),
        ] {
            let error = Request::parse(line).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains(char::is_control), "{error}");
        }
        let nested = "[".repeat(LINE_BYTES_MAX);
        assert!(Request::parse(nested.as_bytes()).is_err(), "depth is limited");
    }
}
