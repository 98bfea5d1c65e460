//! Turns a request into one of the control socket, and its answer into JSON.

use super::access::{Caller, HttpRights, check_origin};
use super::assets::find_asset;
use super::counts::HttpCounts;
use super::handler::{HttpHandler, HttpLimits};
use super::held_page::{STYLE_PATH, answer_link, link_of};
use super::live_feed::LiveFeed;
use super::metrics::exposition;
use super::open_api::open_api;
use super::query::{read_object, read_query};
use super::response::{AnswerLines, Content, EVENTS, JSON_LINES, Refusal, json, response, text};
use super::route_table::{Call, Found, Route, find};
use crate::answers::LineKind;
use crate::control::{Answer, HistoryQuestion, LimitOrder, ListPart, Request, Rights, RouteQuestion, TranscriptOrder};
use crate::queue::{Action, Command, LIST_MAX};
use crate::requester::Requester;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The most messages, destinations or groups of an answer; it is in memory as a whole.
const PAGE_MAX: u64 = 1_000;
/// The most lines of a message with many recipients, which has 500 of them on a line.
const MESSAGE_LINES_MAX: usize = 20;

/// A server with the limits and counts of HTTP.
#[derive(Debug)]
pub(super) struct Api<'a, H> {
    pub(super) handler: &'a Arc<H>,
    pub(super) limits: &'a HttpLimits,
    pub(super) counts: &'a HttpCounts,
    /// The verified name in the client's certificate.
    pub(super) certificate: Option<&'a str>,
}

impl<H: HttpHandler> Api<'_, H> {
    /// Answers a request.
    pub(super) async fn answer(&self, request: hyper::Request<Incoming>) -> Response<Content> {
        let response = self.try_answer(request).await.unwrap_or_else(Refusal::into_response);
        self.counts.answer(response.status().as_u16());
        response
    }

    async fn try_answer(&self, request: hyper::Request<Incoming>) -> Result<Response<Content>, Refusal> {
        let (head, body) = request.into_parts();
        let access = self.handler.access();
        let (route, segment) = match find(&head.method, head.uri.path()) {
            Found::Route(route, segment) => (route, segment),
            other => {
                if let Some(link) = link_of(head.uri.path()) {
                    access.check_public_host(&head.headers)?;
                    return answer_link(self.handler, &head.method, &head.headers, link).await;
                }
                match head.uri.path() {
                    STYLE_PATH => access.check_public_host(&head.headers)?,
                    _ => access.check_host(&head.headers)?,
                }
                if let Some(asset) = find_asset(&head.method, head.uri.path(), &head.headers) {
                    return Ok(asset);
                }
                return Ok(not_found(&other));
            }
        };
        // Health is for probes, some of which send no Host, and says nothing that is worth protection.
        if route.rights == HttpRights::None {
            return Ok(self.health(route.call));
        }
        access.check_host(&head.headers)?;
        let caller = access.authorize(&head.headers, self.certificate, route.rights)?;
        let query = head.uri.query().unwrap_or_default();
        if !route.is_change() {
            return self.look(route, segment, read_query(query, route.fields)?, &caller).await;
        }
        check_origin(&head.headers)?;
        if head.headers.get(header::CONTENT_TYPE).is_some_and(|of| !of.as_bytes().starts_with(b"application/json")) {
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a body is application/json"));
        }
        let fields = read_object(body, self.limits, self.counts, route.fields).await?;
        self.change(route.call, fields, caller).await
    }

    fn health(&self, call: Call) -> Response<Content> {
        if call == Call::Live {
            return text(StatusCode::OK, "alive\n".to_owned());
        }
        match self.handler.readiness() {
            Ok(()) => text(StatusCode::OK, "ready\n".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        }
    }

    /// Answers a request that changes nothing.
    async fn look(
        &self,
        route: &'static Route,
        segment: &str,
        mut fields: Map<String, Value>,
        caller: &Caller,
    ) -> Result<Response<Content>, Refusal> {
        let command = match route.call {
            Call::Metrics => return Ok(self.metrics().await),
            Call::OpenApi => return Ok(json(StatusCode::OK, open_api())),
            Call::Status => return self.ask(Request::Status, caller).await,
            Call::Hosts => return self.ask(Request::Hosts, caller).await,
            Call::Mailers => return self.ask(Request::Mailers, caller).await,
            Call::Statistics => return self.ask(Request::Statistics, caller).await,
            Call::Storms => return self.ask(Request::Storms, caller).await,
            Call::Errors => return self.ask(Request::Errors, caller).await,
            Call::Config => return self.ask(Request::Config, caller).await,
            Call::Limits => return self.ask(Request::Limits, caller).await,
            Call::Connections => {
                let request = Request::connections(fields);
                let request = request.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
                return self.ask(request, caller).await;
            }
            Call::Explain => {
                let question = RouteQuestion::from_fields(fields);
                let question = question.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
                return self.ask(Request::Explain(Box::new(question)), caller).await;
            }
            Call::History => {
                let question = HistoryQuestion::from_fields(fields);
                let question = question.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
                return self.ask(Request::History(Box::new(question)), caller).await;
            }
            Call::PastMessage => return self.past_message(segment, caller).await,
            Call::Feed => {
                let feed = Content::Pieces(Box::new(LiveFeed::new(self.handler)));
                return Ok(response(StatusCode::OK, EVENTS, feed));
            }
            Call::Quarantine => {
                fields.insert("quarantined".to_owned(), json!(true));
                page(Action::List, fields)?
            }
            Call::Look(action) => page(action, fields)?,
            Call::Message => message(segment, fields, caller)?,
            Call::Live | Call::Ready => return Ok(self.health(route.call)),
            Call::Change(_)
            | Call::ForgetHosts
            | Call::Reload
            | Call::SetLimit
            | Call::DeliverTest
            | Call::Abort
            | Call::Transcript => {
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a change is a POST"));
            }
        };
        let (kind, action) = (command.action.line_kind(), command.action);
        let answer = self.handle(Request::Queue(Box::new(command)), caller).await;
        let Answer::List(parts) = answer else { return whole(answer) };
        let collected = collect(parts, kind, action).await?;
        let is_missing = action == Action::Show && collected.get("messages") == Some(&json!([]));
        let status = if is_missing { StatusCode::NOT_FOUND } else { StatusCode::OK };
        Ok(json(status, collected))
    }

    /// Answers with the way of a message of the history.
    async fn past_message(&self, id: &str, caller: &Caller) -> Result<Response<Content>, Refusal> {
        let fields = Map::from_iter([("id".to_owned(), json!(id))]);
        let question = HistoryQuestion::from_fields(fields);
        let question = question.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        match self.handle(Request::History(Box::new(question)), caller).await {
            Answer::Done(fields) => {
                let is_missing = fields.get("messages") == Some(&json!([]));
                Ok(json(if is_missing { StatusCode::NOT_FOUND } else { StatusCode::OK }, fields))
            }
            other => whole(other),
        }
    }

    /// Carries out a change, with the lines of the control socket as the answer.
    async fn change(
        &self,
        call: Call,
        fields: Map<String, Value>,
        caller: Caller,
    ) -> Result<Response<Content>, Refusal> {
        let read = match call {
            Call::Change(action) => Ok(Request::Queue(Box::new(command(action, fields)?))),
            Call::Reload => Ok(Request::Reload),
            Call::DeliverTest => Request::deliver_test(fields),
            Call::SetLimit => LimitOrder::from_fields(fields).map(|order| Request::Limit(Box::new(order))),
            Call::Abort => Request::abort(fields),
            Call::Transcript => TranscriptOrder::from_fields(fields).map(|order| Request::Transcript(Box::new(order))),
            _ => Ok(Request::ForgetHosts),
        };
        let request = read.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let answer = self.handle(request, &caller).await;
        let Answer::List(mut parts) = answer else { return whole(answer) };
        match parts.recv().await {
            Some(ListPart::Failed { reason, error }) => Err(Refusal::of_handler(reason, error, Vec::new())),
            Some(first) => {
                let lines = Content::Pieces(Box::new(AnswerLines::new(first, parts)));
                Ok(response(StatusCode::OK, JSON_LINES, lines))
            }
            None => Err(broken_off()),
        }
    }

    async fn metrics(&self) -> Response<Content> {
        let status = self.handler.status().await;
        let written = exposition(&status, |counter| self.handler.counter(counter), self.counts);
        let mut response = text(StatusCode::OK, written);
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    async fn ask(&self, request: Request, caller: &Caller) -> Result<Response<Content>, Refusal> {
        whole(self.handle(request, caller).await)
    }

    async fn handle(&self, request: Request, caller: &Caller) -> Answer {
        // Commands that change mail have been refused where the client may not operate.
        let by = Requester::Token(caller.token.clone());
        self.handler.handle(request, by, Rights::Operator).await
    }
}

/// The command of a change, whose fields were checked for their names.
fn command(action: Action, mut fields: Map<String, Value>) -> Result<Command, Refusal> {
    fields.insert("action".to_owned(), json!(action.name()));
    Command::from_fields(fields).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))
}

/// The command for a page of a list.
fn page(action: Action, mut fields: Map<String, Value>) -> Result<Command, Refusal> {
    let limit = fields.remove("limit").map_or(Some(LIST_MAX), |limit| limit.as_u64());
    if !limit.is_some_and(|limit| (1..=PAGE_MAX).contains(&limit)) {
        let error = format!("\"limit\" is no number from 1 to {PAGE_MAX}");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
    }
    let mut command = command(action, fields)?;
    if action != Action::Count {
        command.limit = limit;
    }
    Ok(command)
}

/// The command that shows one message. Its header section is content.
fn message(id: &str, mut fields: Map<String, Value>, caller: &Caller) -> Result<Command, Refusal> {
    if fields.get("headers") == Some(&json!(true)) && caller.rights < HttpRights::Operate {
        let error = "the header section is content of mail: \"headers\" needs the right \"operate\"";
        return Err(Refusal::new(StatusCode::FORBIDDEN, error));
    }
    fields.insert("ids".to_owned(), json!([id]));
    command(Action::Show, fields)
}

/// Collects the lines of a list as one object: the lines by their kind, the totals, and where the next page begins.
async fn collect(
    mut parts: mpsc::Receiver<ListPart>,
    kind: LineKind,
    action: Action,
) -> Result<Map<String, Value>, Refusal> {
    let (mut lines, mut missing, mut unreadable, mut not_owned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let totals = loop {
        match parts.recv().await {
            Some(ListPart::Line(mut line)) => {
                if let Some(id) = line.remove("missing") {
                    missing.push(id);
                } else if line.contains_key("unreadable") {
                    unreadable.push(Value::Object(line));
                } else if line.contains_key("not_owned") {
                    not_owned.push(Value::Object(line));
                } else if !line.contains_key("seen") {
                    lines.push(Value::Object(line));
                }
                if action == Action::Show && lines.len() >= MESSAGE_LINES_MAX {
                    break Map::from_iter([("cut".to_owned(), json!(true))]);
                }
            }
            Some(ListPart::Last(totals)) => break totals,
            Some(ListPart::Failed { reason, error }) => return Err(Refusal::of_handler(reason, error, Vec::new())),
            None => return Err(broken_off()),
        }
    };
    let has_more = ["more", "unseen"].iter().any(|name| totals.get(*name).and_then(Value::as_u64) > Some(0));
    let next = lines.last().and_then(|line| line.get("id")).filter(|_| has_more).cloned();
    let mut fields = Map::new();
    if action != Action::Count {
        fields.insert(lines_name(kind).to_owned(), Value::Array(lines));
    }
    let lists = [("missing", missing), ("unreadable", unreadable), ("not_owned", not_owned)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    fields.extend(lists.map(|(name, list)| (name.to_owned(), Value::Array(list))));
    fields.extend(next.map(|id| ("next".to_owned(), id)));
    fields.insert("totals".to_owned(), Value::Object(totals));
    Ok(fields)
}

const fn lines_name(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Messages => "messages",
        LineKind::Destinations => "destinations",
        LineKind::Stragglers => "stragglers",
        LineKind::Rules => "rules",
    }
}

/// The response to a request that has no list as its answer.
fn whole(answer: Answer) -> Result<Response<Content>, Refusal> {
    match answer {
        Answer::Done(fields) => Ok(json(StatusCode::OK, fields)),
        Answer::Refused { reason, error, problems } => Err(Refusal::of_handler(reason, error, problems)),
        Answer::List(_) | Answer::Takeover(_) => Err(broken_off()),
    }
}

fn broken_off() -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer broke off; the log says why")
}

fn not_found(found: &Found<'_>) -> Response<Content> {
    if let Found::OtherMethod(methods) = found {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("this address takes {methods}"));
        let mut response = refusal.into_response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
        return response;
    }
    let error = "there is nothing at this address; /api/openapi.json has all addresses";
    Refusal::new(StatusCode::NOT_FOUND, error).into_response()
}
