//! Responses, all with the headers that keep a browser from doing more than the page needs.

use crate::answers::reply::{ListPart, Problem, Reason, last_line, list_line, refusal_fields, refusal_line};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// JSON.
pub(super) const JSON: &str = "application/json";
/// A line of JSON after the other.
pub(super) const JSON_LINES: &str = "application/x-ndjson";
/// Server-sent events.
pub(super) const EVENTS: &str = "text/event-stream";
/// A page.
pub(super) const HTML: &str = "text/html; charset=utf-8";
/// Plain text.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The page loads its own files and talks to this server; nothing else, and no other page shows it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The content of a response.
#[derive(Debug)]
pub(super) enum Content {
    /// All of it; empty once it was taken.
    Whole(Bytes),
    /// Pieces as they come.
    Pieces(Box<dyn Pieces>),
}

/// Content that comes piece by piece. It is dropped when the client is gone.
pub(super) trait Pieces: fmt::Debug + Send {
    /// Returns the next piece; `None` after the last.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// The lines of an answer of the control socket. The handler learns by the closed channel that the client is gone.
#[derive(Debug)]
pub(super) struct AnswerLines {
    /// The part that was looked at.
    first: Option<ListPart>,
    parts: mpsc::Receiver<ListPart>,
    lines: u64,
    is_over: bool,
}

impl AnswerLines {
    pub(super) const fn new(first: ListPart, parts: mpsc::Receiver<ListPart>) -> Self {
        Self { first: Some(first), parts, lines: 0, is_over: false }
    }
}

impl Pieces for AnswerLines {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let part = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.parts.poll_recv(cx)),
        };
        self.is_over = !matches!(part, Some(ListPart::Line(_)));
        let line = match part {
            Some(ListPart::Line(fields)) => {
                self.lines += 1;
                list_line(fields)
            }
            Some(ListPart::Last(mut fields)) => {
                fields.insert("lines".to_owned(), self.lines.into());
                last_line(true, fields)
            }
            Some(ListPart::Failed { reason, error }) => refusal_line(reason, &error, &[]),
            None => refusal_line(Reason::Failed, "the answer broke off; the log says why", &[]),
        };
        Poll::Ready(Some(line.into()))
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::Pieces(pieces) => ready!(pieces.poll_next(cx)),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// A response with the headers of every response.
pub(super) fn response(status: StatusCode, media_type: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    add_usual(headers);
    response
}

/// Adds the headers of every response.
pub(super) fn add_usual(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A response of text.
pub(super) fn text(status: StatusCode, text: String) -> Response<Content> {
    response(status, TEXT, Content::Whole(text.into()))
}

/// A response of one JSON object.
pub(super) fn json(status: StatusCode, fields: Map<String, Value>) -> Response<Content> {
    response(status, JSON, Content::Whole(format!("{}\n", Value::Object(fields)).into()))
}

/// Why a request is refused, with the fields of a refusal on the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    reason: Reason,
    error: String,
    problems: Vec<Problem>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let reason = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Reason::Permission,
            StatusCode::SERVICE_UNAVAILABLE => Reason::Busy,
            status if status.is_server_error() => Reason::Failed,
            _ => Reason::Request,
        };
        Self { status, reason, error: error.into(), problems: Vec::new() }
    }

    pub(super) fn unauthorized(error: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, error)
    }

    /// A refusal of the handler.
    pub(super) fn of_handler(reason: Reason, error: String, problems: Vec<Problem>) -> Self {
        let status = match reason {
            Reason::Request => StatusCode::BAD_REQUEST,
            Reason::Permission => StatusCode::FORBIDDEN,
            Reason::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Config => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, reason, error, problems }
    }

    pub(super) fn into_response(self) -> Response<Content> {
        let mut response = json(self.status, refusal_fields(self.reason, &self.error, &self.problems));
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            // The rest of the request was not read.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
