//! Every address of the server: its method, the rights that it needs, its fields.
//!
//! Requests are found here, and the OpenAPI file is made from here, so that it has every address.

use super::access::HttpRights;
use crate::queue::Action;
use hyper::Method;

/// The form of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// A text.
    Text,
    /// A whole number from 0.
    Number,
    /// `true` or `false`.
    Flag,
    /// A list of queue ids.
    Ids,
}

/// A field of a query or of the object in a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
    pub(super) meaning: &'static str,
}

/// The work behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The process answers.
    Live,
    /// The server takes mail.
    Ready,
    /// Numbers for Prometheus.
    Metrics,
    /// The description of the API.
    OpenApi,
    /// The answer to `status`.
    Status,
    /// The answer to `hosts`.
    Hosts,
    /// The answer to `mailers`.
    Mailers,
    /// Messages or groups of the queue, as a list.
    Look(Action),
    /// Messages in quarantine.
    Quarantine,
    /// One message.
    Message,
    /// A change of the queue.
    Change(Action),
    /// Forgets the records of next hops.
    ForgetHosts,
    /// The answer to `statistics`.
    Statistics,
    /// The answer to `storms`.
    Storms,
    /// The last attempts that failed.
    Errors,
    /// The configuration in force.
    Config,
    /// Reads the configuration again.
    Reload,
    /// The route of an address.
    Explain,
    /// Messages of the history.
    History,
    /// One message of the history.
    PastMessage,
    /// Numbers of each second.
    Feed,
    /// The limits of destinations that operators have set.
    Limits,
    /// Sets or removes such a limit.
    SetLimit,
    /// Tries a delivery without mail.
    DeliverTest,
    /// Connections to next hops.
    Connections,
    /// Ends one of them.
    Abort,
    /// Dialogs with next hops, line by line.
    Transcript,
}

/// An address.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// A segment in braces stands for any one.
    pub(super) path: &'static str,
    pub(super) rights: HttpRights,
    pub(super) summary: &'static str,
    /// Fields of the query of a GET, of the object in the body of a POST.
    pub(super) fields: &'static [Field],
    pub(super) call: Call,
}

impl Route {
    /// Returns whether a browser must not be made to send it by another site.
    pub(super) fn is_change(&self) -> bool {
        self.method == Method::POST
    }
}

const fn get(path: &'static str, summary: &'static str, fields: &'static [Field], call: Call) -> Route {
    Route { method: Method::GET, path, rights: HttpRights::View, summary, fields, call }
}

const fn open(path: &'static str, summary: &'static str, call: Call) -> Route {
    Route { method: Method::GET, path, rights: HttpRights::None, summary, fields: &[], call }
}

const fn post(path: &'static str, summary: &'static str, fields: &'static [Field], call: Call) -> Route {
    Route { method: Method::POST, path, rights: HttpRights::Operate, summary, fields, call }
}

const fn text(name: &'static str, meaning: &'static str) -> Field {
    Field { name, kind: FieldKind::Text, meaning }
}

const fn number(name: &'static str, meaning: &'static str) -> Field {
    Field { name, kind: FieldKind::Number, meaning }
}

const fn flag(name: &'static str, meaning: &'static str) -> Field {
    Field { name, kind: FieldKind::Flag, meaning }
}

const EXPRESSION: Field = text("expression", "Terms that must all hold, as in to:@example.org age>2h reply~greylist.");
const DESTINATION: Field = text("destination", "Recipients of this destination; * for any text.");
const STATE: Field = text("state", "waiting, held, active or delivered.");
const LIMIT: Field = number("limit", "Lines at most: 1 to 1000, without it 100.");
const AFTER: Field = text("after", "The field next of the page before.");
const RECIPIENTS: Field = number("recipients", "Recipients shown of each message, without it 20.");
const HEADERS: Field = flag("headers", "Show the header section; needs the right operate.");
const BY: Field = text("by", "destination, recipient or host.");
const OLDER: Field = number("older", "Messages at least so many seconds old.");
const IDS: Field = Field { name: "ids", kind: FieldKind::Ids, meaning: "These messages." };
const ALL: Field = flag("all", "The whole queue; stands with no condition.");
const QUARANTINED: Field = flag("quarantined", "Only recipients in quarantine.");
const DRY_RUN: Field = flag("dry_run", "Say what would be changed, and change nothing.");
const REASON: Field = text("reason", "Why, in one line of printable ASCII.");
const FOR: Field = number("for", "Hold for so many seconds.");
const NEW_DESTINATION: Field = text("new_destination", "Where to, as queue list names destinations.");

const UNSCREENED: Field = flag("unscreened", "Also mail that its filters have not judged.");
const HELD_BY: Field = text("held_by", "The rule or suspension, as rule-3 or suspension-4.");
const KEEP_HELD: Field = flag("keep_held", "Leave the mail held that it holds.");
const FORWARD_TO: Field = text("forward_to", "The address that gets a copy.");
const TO: Field = text("to", "The recipient.");
const FROM: Field = text("from", "The sender; <> for a report.");
const CLIENT: Field = text("client", "The address of the client; without it mail of this machine.");

const PAST: Field = text("expression", "Terms that must all hold, as in from:@example.org after:2d reply~full.");

const HISTORY: &[Field] = &[PAST, LIMIT, AFTER];
const SELECT: &[Field] = &[EXPRESSION, DESTINATION, STATE, QUARANTINED];
const LIST: &[Field] = &[EXPRESSION, DESTINATION, STATE, LIMIT, AFTER, RECIPIENTS];
const CHANGE: &[Field] = &[IDS, EXPRESSION, DESTINATION, STATE, QUARANTINED, ALL, DRY_RUN];
const RELEASE: &[Field] = &[IDS, EXPRESSION, DESTINATION, STATE, QUARANTINED, ALL, DRY_RUN, UNSCREENED];
const HOLD: &[Field] = &[IDS, EXPRESSION, DESTINATION, STATE, QUARANTINED, ALL, DRY_RUN, REASON, FOR];
const LIMITED: Field = text("destination", "Next hops as destination.match names them: a domain, .domain, mx:*.host.");
const CONNECTIONS: Field = number("connections", "Connections at once.");
const RATE: Field = text("rate", "Transactions in a second, as 2.5.");
const LIMIT_FOR: Field = number("for", "Keep the limit for so many seconds.");
const REMOVE: Field = flag("remove", "Remove the limit that is there.");
const LIMIT_FIELDS: &[Field] = &[LIMITED, CONNECTIONS, RATE, REASON, LIMIT_FOR, REMOVE];
const OF: Field = text("destination", "A destination, its site or a host; * for any text, without it all.");
const CONNECTION: Field = number("connection", "The number of the connection.");
const WATCHED: Field = text("destination", "A destination, its site or a host; * for any text.");
const WATCH_FOR: Field = number("for", "For so many seconds: 1 to 3600, without it 600.");
const WATCH_LIMIT: Field = number("limit", "Lines at most: 1 to 100000, without it 10000.");
const TRANSCRIPT: &[Field] = &[WATCHED, WATCH_FOR, WATCH_LIMIT];
const TEST_TO: Field = text("to", "An address, or a domain.");
const TEST: &[Field] = &[TEST_TO];
const SUSPEND: &[Field] = &[EXPRESSION, DRY_RUN, REASON, FOR];
const RESUME: &[Field] = &[HELD_BY, KEEP_HELD, DRY_RUN];
const BOUNCE: &[Field] = &[IDS, EXPRESSION, DESTINATION, STATE, QUARANTINED, ALL, DRY_RUN, REASON];
const FORWARD: &[Field] = &[IDS, EXPRESSION, DESTINATION, STATE, QUARANTINED, ALL, DRY_RUN, FORWARD_TO];
const REROUTE: &[Field] = &[IDS, EXPRESSION, DESTINATION, STATE, QUARANTINED, ALL, DRY_RUN, NEW_DESTINATION];

/// Every address.
pub(super) static ROUTES: &[Route] = &[
    open("/healthz/live", "The process answers.", Call::Live),
    open("/healthz/ready", "The server takes mail; 503 with the reason if it does not.", Call::Ready),
    get("/metrics", "Numbers for Prometheus.", &[], Call::Metrics),
    get("/api/openapi.json", "This description.", &[], Call::OpenApi),
    get("/api/v1/status", "The state of the server.", &[], Call::Status),
    get("/api/v1/hosts", "The next hops that the server remembers.", &[], Call::Hosts),
    post("/api/v1/hosts/forget", "Forgets the records of next hops.", &[], Call::ForgetHosts),
    get("/api/v1/mailers", "Messages and octets by mailer.", &[], Call::Mailers),
    get("/api/v1/statistics", "Mail by second, minute and hour.", &[], Call::Statistics),
    get("/api/v1/storms", "Stretches of minutes with much mail.", &[], Call::Storms),
    get("/api/v1/errors", "The last attempts that failed.", &[], Call::Errors),
    get("/api/v1/live", "Numbers of each second, as server-sent events.", &[], Call::Feed),
    get("/api/v1/config", "The configuration in force, with defaults and where values were set.", &[], Call::Config),
    post("/api/v1/reload", "Reads the configuration again, whole or not at all.", &[], Call::Reload),
    get("/api/v1/explain", "Where mail for an address goes, and why.", &[TO, FROM, CLIENT], Call::Explain),
    get("/api/v1/connections", "Connections to next hops.", &[OF], Call::Connections),
    post("/api/v1/connections/abort", "Ends a connection to a next hop at once.", &[CONNECTION], Call::Abort),
    post("/api/v1/transcript", "SMTP dialogs with a destination while they go on.", TRANSCRIPT, Call::Transcript),
    post("/api/v1/deliver-test", "Tries a delivery without mail, with times.", TEST, Call::DeliverTest),
    get("/api/v1/queue", "Messages, the oldest first, by pages.", LIST, Call::Look(Action::List)),
    get("/api/v1/queue/count", "Counts messages and recipients.", SELECT, Call::Look(Action::Count)),
    get("/api/v1/messages/{id}", "Everything that is known of a message in the queue.", &[HEADERS], Call::Message),
    get("/api/v1/history", "Past messages, the youngest first, by pages.", HISTORY, Call::History),
    get("/api/v1/history/messages/{id}", "The way of a message, step by step.", &[], Call::PastMessage),
    get("/api/v1/destinations", "Destinations, the fullest first.", &[LIMIT], Call::Look(Action::Destinations)),
    get("/api/v1/limits", "Limits of destinations that operators have set.", &[], Call::Limits),
    post("/api/v1/limits/set", "Sets or removes a limit of a destination.", LIMIT_FIELDS, Call::SetLimit),
    get(
        "/api/v1/stragglers",
        "Recipients that have waited for long, added up.",
        &[BY, OLDER, EXPRESSION, LIMIT],
        Call::Look(Action::Stragglers),
    ),
    get("/api/v1/quarantine", "Messages in quarantine, the oldest first, by pages.", LIST, Call::Quarantine),
    get("/api/v1/queue/rules", "Hold rules and suspensions.", &[], Call::Look(Action::Rules)),
    post("/api/v1/queue/retry", "Tries waiting mail now.", CHANGE, Call::Change(Action::Retry)),
    post("/api/v1/queue/hold", "Keeps mail until it is released.", HOLD, Call::Change(Action::Hold)),
    post("/api/v1/queue/release", "Lets held mail wait for delivery again.", RELEASE, Call::Change(Action::Release)),
    post("/api/v1/queue/delete", "Removes mail without a report to its sender.", CHANGE, Call::Change(Action::Delete)),
    post("/api/v1/queue/bounce", "Fails mail with a report to its sender.", BOUNCE, Call::Change(Action::Bounce)),
    post("/api/v1/queue/expire", "Fails mail as too old, with a report.", CHANGE, Call::Change(Action::Expire)),
    post("/api/v1/queue/hold-rule", "Holds mail that comes from now on.", SUSPEND, Call::Change(Action::HoldRule)),
    post("/api/v1/queue/suspend", "Holds mail that waits and mail that comes.", SUSPEND, Call::Change(Action::Suspend)),
    post("/api/v1/queue/resume", "Ends a rule or a suspension.", RESUME, Call::Change(Action::Resume)),
    post(
        "/api/v1/queue/forward",
        "Sends a copy of mail in quarantine to an address.",
        FORWARD,
        Call::Change(Action::Forward),
    ),
    post("/api/v1/queue/reroute", "Sends mail elsewhere.", REROUTE, Call::Change(Action::Reroute)),
];

/// The outcome of a search.
#[derive(Debug)]
pub(super) enum Found<'p> {
    /// The address, and the segment that stands in its braces.
    Route(&'static Route, &'p str),
    /// The path exists with these methods only.
    OtherMethod(&'static str),
    /// There is no such path.
    Nothing,
}

/// Finds the address of a request. HEAD is GET.
pub(super) fn find<'p>(method: &Method, path: &'p str) -> Found<'p> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut other = Found::Nothing;
    for route in ROUTES {
        let Some(segment) = segment_of(route.path, path) else { continue };
        if route.method == method {
            return Found::Route(route, segment);
        }
        other = Found::OtherMethod(if route.is_change() { "POST" } else { "GET, HEAD" });
    }
    other
}

/// Returns the part of a path that stands in the braces of a pattern, empty if it has none; `None` if they differ.
fn segment_of<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    match pattern.split_once('{') {
        None => (pattern == path).then_some(""),
        Some((before, rest)) => {
            let after = rest.split_once('}').map_or("", |(_, after)| after);
            let segment = path.strip_prefix(before)?.strip_suffix(after)?;
            (!segment.is_empty() && !segment.contains('/')).then_some(segment)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_address_stands_once_and_changes_need_the_right() {
        let mut seen = HashSet::new();
        for route in ROUTES {
            assert!(seen.insert((route.method.as_str(), route.path)), "{}", route.path);
            assert!(!route.is_change() || route.rights == HttpRights::Operate, "{}", route.path);
            let is_health = route.path.starts_with("/healthz/");
            assert_eq!(route.rights == HttpRights::None, is_health, "{}", route.path);
        }
        let changes = Action::ALL.into_iter().filter(|action| action.changes_mail());
        for action in changes {
            assert!(ROUTES.iter().any(|route| route.call == Call::Change(action)), "{action:?} has no address");
        }
    }

    #[test]
    fn an_address_is_found_by_method_and_path() {
        let call = |method: Method, path: &str| match find(&method, path) {
            Found::Route(route, segment) => Ok((route.call, segment.to_owned())),
            Found::OtherMethod(methods) => Err(methods),
            Found::Nothing => Err(""),
        };
        assert_eq!(call(Method::GET, "/api/v1/status"), Ok((Call::Status, String::new())));
        assert_eq!(call(Method::HEAD, "/metrics"), Ok((Call::Metrics, String::new())));
        assert_eq!(call(Method::GET, "/api/v1/messages/abc"), Ok((Call::Message, "abc".to_owned())));
        assert_eq!(call(Method::GET, "/api/v1/queue/count"), Ok((Call::Look(Action::Count), String::new())));
        assert_eq!(call(Method::POST, "/api/v1/status"), Err("GET, HEAD"));
        assert_eq!(call(Method::GET, "/api/v1/queue/retry"), Err("POST"));
        for path in ["/api/v1/messages/", "/api/v1/messages/a/b", "/api/v1/status/", "/api/v2/status", "//metrics", ""]
        {
            assert_eq!(call(Method::GET, path), Err(""), "{path}");
        }
    }
}
