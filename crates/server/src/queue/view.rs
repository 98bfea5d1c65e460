//! What is shown of messages and destinations, as lines of JSON.
//!
//! Field names are part of the protocol, `docs/operation.md` lists them. Times are seconds since 1970, ages in seconds. What a
//! field would say and nobody knows is not there.

use super::delivery_control::{DeliveryControl, DestinationState, WaitCause};
use super::scan::{EnvelopeSummary, FoundMessage, FoundRecipient};
use super::selection::RecipientStatus;
use mail::{Client, QueueId};
use schedule::Class;
use serde_json::{Map, Value, json};
use spool::{Spool, Store as _};
use std::time::Duration;

/// Recipients of a message that `list` shows; it says how many more there are.
pub(super) const LISTED_MAX: usize = 20;
/// Recipients on one line of other answers; more of a message come on further lines.
pub(super) const LINE_MAX: usize = 500;
/// Octets of a header section that `show` reads.
const HEADERS_BYTES_MAX: u64 = 64 << 10;

/// Shows what was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueView<'a> {
    pub(super) delivery: &'a dyn DeliveryControl,
    pub(super) now_us: u64,
}

impl QueueView<'_> {
    /// One line for a message, with its first recipients.
    pub(super) fn listed(&self, found: &FoundMessage) -> Map<String, Value> {
        let shown = found.recipients.iter().take(LISTED_MAX).map(|one| self.recipient(found, one));
        let mut line = self.message(found);
        line.insert("recipients".to_owned(), shown.collect());
        let more = found.recipients.len().saturating_sub(LISTED_MAX);
        if more > 0 {
            line.insert("more_recipients".to_owned(), json!(more));
        }
        line
    }

    /// As many lines for a message as its recipients need.
    pub(super) fn all(&self, found: &FoundMessage) -> Vec<Map<String, Value>> {
        let lines = found.recipients.chunks(LINE_MAX).map(|some| {
            let mut line = self.message(found);
            line.insert("recipients".to_owned(), some.iter().map(|one| self.recipient(found, one)).collect());
            line
        });
        lines.collect()
    }

    /// The lines of a message with everything that is known of it.
    pub(super) fn shown(&self, found: &FoundMessage, spool: &Spool, headers: bool) -> Vec<Map<String, Value>> {
        let mut lines = self.all(found);
        let Some(first) = lines.first_mut() else { return lines };
        if let Some(summary) = &found.summary {
            first.extend(circumstances(summary));
        }
        if headers {
            first.insert("headers".to_owned(), header_section(spool, found.id));
        }
        let places: Map<String, Value> = found
            .recipients
            .iter()
            .filter_map(|one| Some((text(&one.destination), self.destination(&one.destination)?.into())))
            .collect();
        if !places.is_empty() {
            first.insert("destinations".to_owned(), places.into());
        }
        lines
    }

    fn message(&self, found: &FoundMessage) -> Map<String, Value> {
        let arrived_us = found.id.unix_us();
        let mut line = Map::from_iter([
            ("id".to_owned(), json!(found.id.to_string())),
            ("arrived".to_owned(), json!(arrived_us / 1_000_000)),
            ("age".to_owned(), json!(self.now_us.saturating_sub(arrived_us) / 1_000_000)),
            ("waiting".to_owned(), json!(found.waiting)),
        ]);
        if let Some(EnvelopeSummary { envelope, size }) = &found.summary {
            line.insert("size".to_owned(), json!(size));
            let sender = envelope.sender.address().map(ToString::to_string);
            line.insert("from".to_owned(), json!(sender.unwrap_or_default()));
            if let Some(body) = envelope.params.body {
                line.insert("body".to_owned(), json!(body.to_string()));
            }
        }
        if let Some(trouble) = &found.trouble {
            line.insert("trouble".to_owned(), json!(trouble));
        }
        line
    }

    fn recipient(&self, found: &FoundMessage, one: &FoundRecipient) -> Value {
        let id = found.id;
        let mut fields = Map::from_iter([
            ("position".to_owned(), json!(one.position)),
            ("destination".to_owned(), json!(text(&one.destination))),
            ("state".to_owned(), json!(one.status.name())),
        ]);
        // How often it was tried before it was delivered is not kept.
        if one.state.owed().is_none() {
            fields.insert("tries".to_owned(), json!(one.state.tries()));
        }
        if let Some(recipient) = &one.recipient {
            fields.insert("to".to_owned(), json!(recipient.address.to_string()));
            let params = recipient.params.to_string();
            if !params.is_empty() {
                fields.insert("params".to_owned(), json!(params));
            }
        }
        match Class::from_bits(one.state.class()) {
            Class::Urgent => fields.insert("class".to_owned(), json!("urgent")),
            Class::Bulk => fields.insert("class".to_owned(), json!("bulk")),
            Class::Normal => None,
        };
        if one.state.is_warned() {
            fields.insert("warned".to_owned(), json!(true));
        }
        if one.state.due > 0 && one.state.owed().is_none() {
            fields.insert("due".to_owned(), json!(one.state.due));
        }
        if let Some(until) = found.summary.as_ref().and_then(|summary| summary.until(one.state, self.now_us)) {
            fields.insert("until".to_owned(), json!(until));
        }
        // Behind a host that is down nobody is tried before the host is.
        if one.status == RecipientStatus::Waiting
            && let Some(down) = self.delivery.destination(&one.destination).and_then(|place| place.down)
        {
            fields.insert("retry_at".to_owned(), json!(down.retry_at.as_secs().max(one.state.due.into())));
        }
        if let Some(kind) = self.delivery.reason_kind(id, one.position) {
            fields.insert("reason_kind".to_owned(), json!(kind.name()));
        }
        if let Some(reason) = self.delivery.reason(id, one.position) {
            fields.insert("reason".to_owned(), json!(reason));
        }
        Value::Object(fields)
    }

    /// How a destination is, if the dispatcher knows.
    pub(super) fn destination(&self, name: &[u8]) -> Option<Map<String, Value>> {
        let state = self.delivery.destination(name)?;
        let DestinationState {
            down,
            connections,
            in_flight,
            site,
            is_slow,
            window,
            rate,
            pace,
            waits,
            ready,
            has_more,
        } = state;
        let mut fields = Map::from_iter([
            ("connections".to_owned(), json!(connections)),
            ("in_flight".to_owned(), json!(in_flight)),
            ("window".to_owned(), json!(window)),
        ]);
        if let Some(site) = site {
            fields.insert("site".to_owned(), json!(site));
        }
        if let Some(rate) = rate {
            fields.insert("messages_per_second".to_owned(), json!(f64::from(rate) / 1_000.0));
        }
        if let Some(pace) = pace {
            fields.insert("learned_messages_per_second".to_owned(), json!(f64::from(pace) / 1_000.0));
        }
        if let Some(waits) = waits {
            let name = match waits {
                WaitCause::Connection { since, most } => {
                    fields.insert("waits_since".to_owned(), json!(since.as_secs()));
                    fields.insert("connections_max".to_owned(), json!(most));
                    "connection"
                }
                WaitCause::Rate => "rate",
                WaitCause::Pace => "pace",
            };
            fields.insert("waits_for".to_owned(), json!(name));
        }
        if ready > 0 {
            fields.insert("ready".to_owned(), json!(ready));
        }
        if has_more {
            fields.insert("has_more".to_owned(), json!(true));
        }
        if is_slow {
            fields.insert("lane".to_owned(), json!("slow"));
        }
        if let Some(down) = down {
            let left = down.retry_at.saturating_sub(Duration::from_micros(self.now_us));
            fields.insert("down".to_owned(), json!(down.why));
            // Up to the next second: 0 is now.
            fields.insert("retry_in".to_owned(), json!(left.as_secs() + u64::from(left.subsec_nanos() > 0)));
            if left.is_zero() {
                fields.insert("trying".to_owned(), json!(true));
            }
        }
        Some(fields)
    }
}

/// How a message came, and what was said of it.
fn circumstances(summary: &EnvelopeSummary) -> Map<String, Value> {
    let (received, params) = (&summary.envelope.received, &summary.envelope.params);
    let client = match received.client {
        Client::Network(address) => address.to_string(),
        Client::Process { uid } => format!("user {uid} of this machine"),
        Client::Internal => "mailrace".to_owned(),
    };
    let mut fields = Map::from_iter([
        ("client".to_owned(), json!(client)),
        ("protocol".to_owned(), json!(received.protocol.keyword())),
        ("received".to_owned(), json!(received.at_us / 1_000_000)),
    ]);
    if let Some(helo) = &received.helo {
        fields.insert("helo".to_owned(), json!(helo.as_str()));
    }
    let params = params.to_string();
    if !params.is_empty() {
        fields.insert("params".to_owned(), json!(params));
    }
    fields
}

/// The header section as far as it can be read, or why it cannot.
fn header_section(spool: &Spool, id: QueueId) -> Value {
    match spool.body_range(id, 0..HEADERS_BYTES_MAX) {
        Ok(bytes) => {
            let end = if bytes.starts_with(b"\r\n") {
                Some(0)
            } else {
                bytes.windows(4).position(|four| four == b"\r\n\r\n")
            };
            let section = bytes.get(..end.map_or(bytes.len(), |at| at + 2)).unwrap_or_default();
            json!(String::from_utf8_lossy(section))
        }
        Err(error) => json!(format!("not readable: {error}")),
    }
}

/// A destination as text: names are ASCII unless somebody else wrote the spool.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
