//! The protocol of rspamd's normal worker: HTTP/1.1 with a JSON reply.
//!
//! `POST /checkv2` has the message as its body and the envelope in fields. The reply has an action, the score, symbols,
//! and in `milter` the changes of the header section. rspamd closes the connection without a word when a message
//! exceeds its `max_message`, so `size_max` of the filter should be less.

use mail::encoded_word::encode;
use serde_json::Value;

use super::{FieldEdit, FieldNumber, Response, ResponseReader, ScanAction, ScanResult, ScannerError, Score, clean};
use crate::field_text::{folded_value, is_field_name};

/// The name of the protocol in errors.
const PROTOCOL: &str = "rspamd";
/// Octets of a reply.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// Symbols that are kept.
const SYMBOLS_MAX: usize = 1_000;
/// Changes of the header section that one reply may ask for.
const EDITS_MAX: usize = 1_000;

/// Facts about a message. Empty ones are left out.
#[derive(Clone, Debug, Default)]
pub struct RspamdRequest<'a> {
    /// The server's name of the message in its log.
    pub queue_id: &'a str,
    /// The client's address.
    pub ip: &'a str,
    /// The name of HELO or EHLO.
    pub helo: &'a str,
    /// The client's name in the DNS.
    pub hostname: &'a str,
    /// The sender without brackets; empty for reports.
    pub from: &'a str,
    /// The recipients without brackets.
    pub recipients: &'a [&'a str],
    /// The user who authenticated.
    pub user: &'a str,
    /// The name of this server.
    pub mta_name: &'a str,
    /// The cipher of the client's connection.
    pub tls_cipher: &'a str,
    /// The TLS version of the client's connection.
    pub tls_version: &'a str,
}

/// Appends the head of a request for a message of `bytes` octets, which follow. `host` is the name or address that is
/// asked. `stays_open`: another request may follow on the connection.
pub fn write_request(host: &str, request: &RspamdRequest<'_>, bytes: usize, stays_open: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"POST /checkv2 HTTP/1.1\r\n");
    let mut field = |name: &str, value: &str| {
        let value = clean(value, 1_000);
        if !value.is_empty() {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
    };
    field("Host", host);
    field("Queue-Id", request.queue_id);
    field("IP", request.ip);
    field("Helo", request.helo);
    field("Hostname", request.hostname);
    field("From", &format!("<{}>", request.from));
    for recipient in request.recipients {
        field("Rcpt", &format!("<{recipient}>"));
    }
    field("User", request.user);
    field("MTA-Name", request.mta_name);
    field("TLS-Cipher", request.tls_cipher);
    field("TLS-Version", request.tls_version);
    field("Content-Length", &bytes.to_string());
    field("Connection", if stays_open { "keep-alive" } else { "close" });
    out.extend_from_slice(b"\r\n");
}

/// Appends a request that asks whether rspamd is there.
pub fn write_ping(host: &str, out: &mut Vec<u8>) {
    let host = clean(host, 255);
    out.extend_from_slice(format!("GET /ping HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
}

/// Makes a reader of a response.
#[must_use]
pub const fn response_reader() -> ResponseReader {
    ResponseReader::new(PROTOCOL, b"HTTP/1.", REPLY_BYTES_MAX)
}

/// Reads the response to a ping.
///
/// # Errors
/// Another server answers.
pub fn read_pong(response: &Response) -> Result<(), ScannerError> {
    if status(response)? == 200 && response.body.trim_ascii() == b"pong" {
        return Ok(());
    }
    Err(ScannerError::other_protocol(PROTOCOL, response.first_line.as_bytes()))
}

/// Reads the response to a message.
///
/// A status other than 200 is [`ScanAction::Failed`] with the text of rspamd.
///
/// # Errors
/// The reply is no JSON object, or lacks its action; an added field would break the header.
pub fn read_scan(response: &Response) -> Result<ScanResult, ScannerError> {
    let bad = |what| ScannerError::Malformed { protocol: PROTOCOL, what };
    let code = status(response)?;
    let reply: Option<Value> = serde_json::from_slice(&response.body).ok();
    let text = |pointer: &str| reply.as_ref().and_then(|reply| reply.pointer(pointer)).and_then(Value::as_str);
    if code != 200 || text("/error").is_some() {
        let why = text("/error").unwrap_or(&response.first_line);
        return Ok(ScanResult::of(ScanAction::Failed(clean(&format!("{code} {why}"), 200))));
    }
    let Some(reply @ Value::Object(_)) = &reply else { return Err(bad("no JSON object")) };
    let Some(action) = text("/action") else { return Err(bad("no action")) };
    let words = text("/messages/smtp_message").map(|words| clean(words, 400)).filter(|words| !words.is_empty());
    let action = match action {
        "no action" | "accept" => ScanAction::Pass,
        "add header" => ScanAction::Tag,
        "rewrite subject" => text("/subject").map_or(ScanAction::Tag, |subject| {
            ScanAction::TagSubject(encode(&clean(subject, 900), "Subject: ".len()).to_string())
        }),
        "greylist" | "soft reject" => ScanAction::Defer(words),
        "reject" => ScanAction::Reject(words),
        "discard" => ScanAction::Discard,
        "quarantine" => ScanAction::Quarantine,
        _ => return Err(bad("an action that is not known")),
    };
    let number = |pointer: &str| reply.pointer(pointer).and_then(Value::as_f64).filter(|number| number.is_finite());
    let score = number("/score").zip(number("/required_score"));
    let mut result = ScanResult::of(action);
    result.score = score.map(|(points, threshold)| Score { points, threshold });
    if let Some(Value::Object(symbols)) = reply.get("symbols") {
        result.rules = symbols.keys().take(SYMBOLS_MAX).map(|name| clean(name, 100)).collect();
    }
    result.edits = read_edits(reply)?;
    Ok(result)
}

/// Reads the number in `HTTP/1.1 200 OK`.
fn status(response: &Response) -> Result<u16, ScannerError> {
    let code = response.first_line.split(' ').nth(1).filter(|code| code.len() == 3);
    code.and_then(|code| code.parse().ok())
        .ok_or(ScannerError::Malformed { protocol: PROTOCOL, what: "no status in its first line" })
}

/// Reads `milter.remove_headers`, `milter.add_headers` and `dkim-signature`.
fn read_edits(reply: &Value) -> Result<Vec<FieldEdit>, ScannerError> {
    let mut edits = Vec::new();
    if let Some(Value::Object(removed)) = reply.pointer("/milter/remove_headers") {
        for (name, numbers) in removed {
            for number in each(numbers) {
                let number = match number.as_i64() {
                    Some(0) => FieldNumber::All,
                    Some(n) => match u32::try_from(n.unsigned_abs()) {
                        Ok(count) if n > 0 => FieldNumber::FromTop(count),
                        Ok(count) => FieldNumber::FromEnd(count),
                        Err(_) => continue,
                    },
                    None => continue,
                };
                edits.push(FieldEdit::Remove { name: name.clone().into_bytes(), number });
            }
        }
    }
    if let Some(Value::Object(added)) = reply.pointer("/milter/add_headers") {
        for (name, values) in added {
            for value in each(values) {
                edits.push(read_field(name, value)?);
            }
        }
    }
    for signature in reply.get("dkim-signature").map(each).unwrap_or_default() {
        let mut edit = read_field("DKIM-Signature", signature)?;
        if let FieldEdit::Add { position, .. } = &mut edit {
            *position = Some(1);
        }
        edits.push(edit);
    }
    if edits.len() > EDITS_MAX {
        return Err(ScannerError::TooLong { protocol: PROTOCOL, limit: "edits_max", value: EDITS_MAX });
    }
    Ok(edits)
}

/// A value alone, or those of an array.
fn each(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        one => std::slice::from_ref(one),
    }
}

/// Reads `"value"` or `{"value": "value", "order": 1}`.
fn read_field(name: &str, value: &Value) -> Result<FieldEdit, ScannerError> {
    let bad = |what| ScannerError::Malformed { protocol: PROTOCOL, what };
    let (text, order) = match value {
        Value::Object(field) => (field.get("value"), field.get("order").and_then(Value::as_i64)),
        one => (Some(one), None),
    };
    let text = match text {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(bad("a field to add without a value")),
    };
    if !is_field_name(name.as_bytes()) {
        return Err(bad("a field name that is none"));
    }
    Ok(FieldEdit::Add {
        name: name.into(),
        value: folded_value(text.as_bytes(), false).map_err(bad)?,
        position: order.and_then(|order| u32::try_from(order).ok()),
    })
}
