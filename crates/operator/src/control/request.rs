//! A line from the control socket as a request.
//!
//! Only a known command with its own fields is one: a misspelt field must not be taken for its absence. A refusal names
//! the column of the fault, because people write these lines by hand too.

use super::adopt_order::{CLUSTER_ADOPT, node_field, read_node};
use super::connection_order::{TranscriptOrder, read_connection, read_destination};
use super::limit_order::LimitOrder;
use super::request_error::RequestError;
use crate::answers::reply::{shortened, shortened_json};
use crate::queue;
use mail::QueueId;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

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
    /// Which stretches of minutes had much mail?
    Storms,
    /// Which attempts failed last?
    Errors,
    /// The configuration in force.
    Config,
    /// How far does a delivery to this address or domain come, without mail?
    DeliverTest(String),
    /// Which connections to such destinations or hosts are there?
    Connections(String),
    /// End a connection to a next hop at once.
    Abort(u64),
    /// Watch the SMTP dialogs with a destination.
    Transcript(Box<TranscriptOrder>),
    /// Which limits of destinations have operators set?
    Limits,
    /// Give the mail of this node of a cluster to the others, and end.
    ClusterDrain,
    /// The same, for good: the node gives its part of shared limits back, and the others forget it.
    ClusterLeave {
        /// Also if other nodes cannot take all of its mail, or too few are left.
        is_forced: bool,
    },
    /// Adopt the mail of this absent node of a cluster here; without one, how is the mail of absent nodes?
    ClusterAdopt(Option<u16>),
    /// Set or remove a limit of a destination.
    Limit(Box<LimitOrder>),
    /// Where does mail for an address go, and why?
    Explain(Box<RouteQuestion>),
    /// An SMTP session on this connection.
    Smtp,
    /// Which past messages fit, and how did they go?
    History(Box<HistoryQuestion>),
    /// Look at the queue, or change it.
    Queue(Box<queue::Command>),
}

/// A message whose route is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteQuestion {
    /// The recipient; a name alone is one at our host name.
    pub to: String,
    /// The sender, `<>` for a report; empty for a user of this machine.
    pub from: String,
    /// The address of the client; `None` for a process of this machine.
    pub client: Option<IpAddr>,
}

/// A question to the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuestion {
    /// Terms that must all hold; empty for all messages.
    pub expression: String,
    /// Only this message, with all steps of its way.
    pub id: Option<QueueId>,
    /// Only messages that came before this one.
    pub after: Option<QueueId>,
    /// The most messages: 1 to 1,000.
    pub limit: u64,
}

/// Messages of an answer, where none are asked for.
const HISTORY_LIMIT: u64 = 100;
/// The most.
const HISTORY_LIMIT_MAX: u64 = 1_000;
/// The commands that have fields of their own.
const QUEUE: &str = "queue";
const EXPLAIN: &str = "explain";
const HISTORY: &str = "history";
const LIMIT: &str = "limit";
const DELIVER_TEST: &str = "deliver-test";
const CONNECTIONS: &str = "connections";
const ABORT: &str = "abort";
const TRANSCRIPT: &str = "transcript";
const CLUSTER_LEAVE: &str = "cluster-leave";
/// All commands that have fields.
const WITH_FIELDS: [&str; 10] =
    [EXPLAIN, HISTORY, LIMIT, DELIVER_TEST, CONNECTIONS, ABORT, TRANSCRIPT, CLUSTER_LEAVE, CLUSTER_ADOPT, QUEUE];

impl Request {
    /// The requests without fields.
    pub const BARE: [Self; 14] = [
        Self::Ping,
        Self::Reload,
        Self::Status,
        Self::LogReopen,
        Self::Smtp,
        Self::Hosts,
        Self::ForgetHosts,
        Self::Mailers,
        Self::Statistics,
        Self::Storms,
        Self::Errors,
        Self::Config,
        Self::Limits,
        Self::ClusterDrain,
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
            Self::Storms => "storms",
            Self::Errors => "errors",
            Self::Config => "config",
            Self::Limits => "limits",
            Self::ClusterDrain => "cluster-drain",
            Self::ClusterLeave { .. } => CLUSTER_LEAVE,
            Self::ClusterAdopt(_) => CLUSTER_ADOPT,
            Self::Limit(_) => LIMIT,
            Self::DeliverTest(_) => DELIVER_TEST,
            Self::Connections(_) => CONNECTIONS,
            Self::Abort(_) => ABORT,
            Self::Transcript(_) => TRANSCRIPT,
            Self::Explain(_) => EXPLAIN,
            Self::History(_) => HISTORY,
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
            Self::Explain(question) => question.to_fields(),
            Self::History(question) => question.to_fields(),
            Self::Limit(order) => order.to_fields(),
            Self::DeliverTest(to) => Map::from_iter([("to".to_owned(), json!(to))]),
            Self::Connections(name) => Map::from_iter([("destination".to_owned(), json!(name))]),
            Self::Abort(number) => Map::from_iter([("connection".to_owned(), json!(number))]),
            Self::Transcript(order) => order.to_fields(),
            Self::ClusterLeave { is_forced: true } => Map::from_iter([("force".to_owned(), json!(true))]),
            Self::ClusterAdopt(node) => node_field(*node),
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
            RequestError::new(format!("not a JSON object: {error}; an example: {}", Self::Ping.to_line().trim_end()))
        })?;
        let command = match fields.remove("command") {
            Some(Value::String(command)) => command,
            Some(other) => {
                return Err(RequestError::new(format!("\"command\" is {}, not a string", shortened_json(&other))));
            }
            None => return Err(RequestError::new("there is no field \"command\"".to_owned())),
        };
        match command.as_str() {
            QUEUE => {
                let command = queue::Command::from_fields(fields).map_err(RequestError::new)?;
                return Ok(Self::Queue(Box::new(command)));
            }
            EXPLAIN => return RouteQuestion::from_fields(fields).map(|question| Self::Explain(Box::new(question))),
            HISTORY => return HistoryQuestion::from_fields(fields).map(|question| Self::History(Box::new(question))),
            DELIVER_TEST => return Self::deliver_test(fields),
            LIMIT => return LimitOrder::from_fields(fields).map(|order| Self::Limit(Box::new(order))),
            CONNECTIONS => return read_destination(fields).map(Self::Connections),
            CLUSTER_ADOPT => return read_node(fields).map(Self::ClusterAdopt),
            ABORT => return read_connection(fields).map(Self::Abort),
            CLUSTER_LEAVE => return Self::cluster_leave(fields),
            TRANSCRIPT => return TranscriptOrder::from_fields(fields).map(|order| Self::Transcript(Box::new(order))),
            _ => {}
        }
        let Some(request) = Self::BARE.into_iter().find(|request| request.name() == command) else {
            let names = Self::BARE.map(|request| request.name()).join(", ");
            let command = shortened(&command);
            let others = WITH_FIELDS.join(", ");
            return Err(RequestError::new(format!("there is no command {command:?}; there are {names}, {others}")));
        };
        match fields.keys().next() {
            None => Ok(request),
            Some(field) => Err(RequestError::new(format!("\"{command}\" has no field {:?}", shortened(field)))),
        }
    }
}

impl Request {
    /// Reads the fields of a request for connections.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn connections(fields: Map<String, Value>) -> Result<Self, RequestError> {
        read_destination(fields).map(Self::Connections)
    }

    /// Reads the fields of a request that ends a connection.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn abort(fields: Map<String, Value>) -> Result<Self, RequestError> {
        read_connection(fields).map(Self::Abort)
    }

    fn cluster_leave(mut fields: Map<String, Value>) -> Result<Self, RequestError> {
        let is_forced = match fields.remove("force") {
            None => false,
            Some(Value::Bool(is_forced)) => is_forced,
            Some(other) => {
                let other = shortened_json(&other);
                return Err(RequestError::new(format!("\"force\" is {other}, not true or false")));
            }
        };
        match fields.keys().next() {
            None => Ok(Self::ClusterLeave { is_forced }),
            Some(field) => Err(RequestError::new(format!("\"{CLUSTER_LEAVE}\" has no field {:?}", shortened(field)))),
        }
    }

    /// Reads the fields of a trial of a delivery.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn deliver_test(mut fields: Map<String, Value>) -> Result<Self, RequestError> {
        let to = match fields.remove("to") {
            Some(Value::String(to)) if !to.is_empty() => to,
            _ => return Err(RequestError::new(format!("\"{DELIVER_TEST}\" needs \"to\", an address or a domain"))),
        };
        match fields.keys().next() {
            None => Ok(Self::DeliverTest(to)),
            Some(field) => Err(RequestError::new(format!("\"{DELIVER_TEST}\" has no field {:?}", shortened(field)))),
        }
    }
}

impl RouteQuestion {
    fn to_fields(&self) -> Map<String, Value> {
        let client = self.client.map(|client| client.to_string()).unwrap_or_default();
        let texts = [("to", self.to.clone()), ("from", self.from.clone()), ("client", client)];
        let given = texts.into_iter().filter(|(_, text)| !text.is_empty());
        given.map(|(name, text)| (name.to_owned(), json!(text))).collect()
    }

    /// Reads the fields of a request, all of which must be known.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn from_fields(mut fields: Map<String, Value>) -> Result<Self, RequestError> {
        let mut text = |name: &str| match fields.remove(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(RequestError::new(format!("{name:?} is {}, not a string", shortened_json(&other)))),
        };
        let (to, from, client) = (text("to")?, text("from")?, text("client")?);
        if let Some(field) = fields.keys().next() {
            return Err(RequestError::new(format!("\"{EXPLAIN}\" has no field {:?}", shortened(field))));
        }
        if to.is_empty() {
            return Err(RequestError::new(format!("\"{EXPLAIN}\" needs \"to\", an address")));
        }
        let client = match client.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                RequestError::new(format!("\"client\" is {:?}, not the address of a host", shortened(text)))
            })?),
        };
        Ok(Self { to, from, client })
    }
}

impl HistoryQuestion {
    fn to_fields(&self) -> Map<String, Value> {
        let id = |id: Option<QueueId>| id.map(|id| id.to_string()).unwrap_or_default();
        let texts = [("expression", self.expression.clone()), ("id", id(self.id)), ("after", id(self.after))];
        let given = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let limit = ("limit".to_owned(), json!(self.limit));
        given.map(|(name, text)| (name.to_owned(), json!(text))).chain([limit]).collect()
    }

    /// Reads the fields of a request, all of which must be known.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn from_fields(mut fields: Map<String, Value>) -> Result<Self, RequestError> {
        let mut text = |name: &str| match fields.remove(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(RequestError::new(format!("{name:?} is {}, not a string", shortened_json(&other)))),
        };
        let (expression, id, after) = (text("expression")?, text("id")?, text("after")?);
        let id_of = |name: &str, text: String| match text.as_str() {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| RequestError::new(format!("{name:?} is {:?}, no queue id", shortened(text)))),
        };
        let (id, after) = (id_of("id", id)?, id_of("after", after)?);
        let limit = match fields.remove("limit") {
            None => HISTORY_LIMIT,
            Some(limit) => limit.as_u64().filter(|limit| (1..=HISTORY_LIMIT_MAX).contains(limit)).ok_or_else(|| {
                RequestError::new(format!(
                    "\"limit\" is {}, no number from 1 to {HISTORY_LIMIT_MAX}",
                    shortened_json(&limit)
                ))
            })?,
        };
        match fields.keys().next() {
            None => Ok(Self { expression, id, after, limit }),
            Some(field) => Err(RequestError::new(format!("\"{HISTORY}\" has no field {:?}", shortened(field)))),
        }
    }
}

/// The beginning of a text that may quote the line, as it can be shown.
fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_back() {
        let queue = queue::Command::new(queue::Action::List, queue::Selection::default());
        let history = HistoryQuestion {
            expression: "to:@b.test \"no such\"".to_owned(),
            id: Some(QueueId::MIN),
            after: Some(QueueId::MAX),
            limit: 7,
        };
        let leave = [true, false].map(|is_forced| Request::ClusterLeave { is_forced });
        let adopt = [None, Some(3)].map(Request::ClusterAdopt);
        let others = [Request::Queue(Box::new(queue)), Request::History(Box::new(history))];
        let others = others.into_iter().chain(leave).chain(adopt);
        for request in Request::BARE.into_iter().chain(others) {
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
            (b"{\"command\":\"history\",\"limit\":0}", "\"limit\" is 0, no number from 1 to 1000"),
            (b"{\"command\":\"history\",\"after\":\"x\"}", "\"after\" is \"x\", no queue id"),
            (b"{\"command\":\"history\",\"form\":\"x\"}", "\"history\" has no field \"form\""),
            (b"{\"command\":\"cluster-leave\",\"force\":1}", "\"force\" is 1, not true"),
            (b"{\"command\":\"cluster-leave\",\"node\":1}", "has no field \"node\""),
            (b"{\"command\":\"reload\",\"fil\\u0000e\":1}", "\"reload\" has no field \"fil\\0e\""),
        ] {
            let error = Request::parse(line).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains(char::is_control), "{error}");
        }
        let nested = "[".repeat(LINE_BYTES_MAX);
        assert!(Request::parse(nested.as_bytes()).is_err(), "depth is limited");
    }
}
