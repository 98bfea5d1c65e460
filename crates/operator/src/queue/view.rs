//! Fills in the lines that show messages and destinations.
//!
//! [`crate::answers`] has the fields. Times are seconds since 1970, ages are seconds. A field without a known value
//! is absent.

use super::delivery_control::{DeliveryControl, DestinationState, WaitCause};
use super::recipient_status::RecipientStatus;
use super::scan::{EnvelopeSummary, FoundMessage, FoundRecipient};
use crate::answers::{DestinationStatus, HoldLine, MessageLine, RecipientLine};
use mail::header::{HeaderSection, LineEnd};
use mail::{Client, QueueId};
use schedule::Class;
use spool::{Hold, HoldKind, Spool, Store as _};
use std::time::Duration;

/// Recipients on one line of other answers; more of a message come on further lines.
pub(super) const LINE_MAX: usize = 500;
/// Octets of a header section that `show` prints.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Shows messages and destinations at one point in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueView<'a> {
    pub(super) delivery: &'a dyn DeliveryControl,
    pub(super) now_us: u64,
}

impl QueueView<'_> {
    /// Shows a message on one line, with its first recipients, `most` of them at most.
    pub(super) fn list_line(&self, found: &FoundMessage, most: u64) -> MessageLine {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut line = self.message(found);
        line.recipients = found.recipients.iter().take(most).map(|one| self.recipient(found, one)).collect();
        line.more_recipients = count(found.recipients.len().saturating_sub(most));
        line
    }

    /// Shows a message on as many lines as its recipients need.
    pub(super) fn recipient_lines(&self, found: &FoundMessage) -> Vec<MessageLine> {
        let lines = found.recipients.chunks(LINE_MAX).map(|some| {
            let mut line = self.message(found);
            line.recipients = some.iter().map(|one| self.recipient(found, one)).collect();
            line
        });
        lines.collect()
    }

    /// Shows a message with everything that is known of it.
    pub(super) fn detail_lines(&self, found: &FoundMessage, spool: &Spool, headers: bool) -> Vec<MessageLine> {
        let mut lines = self.recipient_lines(found);
        let Some(first) = lines.first_mut() else { return lines };
        if let Some(summary) = &found.summary {
            add_origin(first, summary);
        }
        if headers {
            first.headers = Some(header_section(spool, found.id));
        }
        let known = found.recipients.iter();
        let known = known
            .filter_map(|one| Some((destination_text(&one.destination), self.destination_status(&one.destination)?)));
        first.destinations = known.collect();
        lines
    }

    fn message(&self, found: &FoundMessage) -> MessageLine {
        let arrived_us = found.id.unix_us();
        let mut line = MessageLine {
            id: found.id.to_string(),
            arrived: arrived_us / 1_000_000,
            age: self.now_us.saturating_sub(self.delivery.counts_from_us(found.id)) / 1_000_000,
            waiting: count(found.waiting),
            trouble: found.trouble.clone(),
            ..MessageLine::default()
        };
        if let Some(EnvelopeSummary { envelope, size }) = &found.summary {
            line.size = Some(*size);
            line.from = Some(envelope.sender.address().map(ToString::to_string).unwrap_or_default());
            line.body = envelope.params.body.map(|body| body.to_string());
        }
        line
    }

    fn recipient(&self, found: &FoundMessage, one: &FoundRecipient) -> RecipientLine {
        let id = found.id;
        let is_undelivered = one.state.owed().is_none();
        let class = match Class::from_bits(one.state.class()) {
            Class::Urgent => Some("urgent"),
            Class::Bulk => Some("bulk"),
            Class::Normal => None,
        };
        // While its destination is down, a recipient waits for the next attempt to reach the destination.
        let down = (one.status == RecipientStatus::Waiting).then(|| self.delivery.destination(&one.destination));
        let down = down.flatten().and_then(|state| state.down);
        let params = one.recipient.as_ref().map(|recipient| recipient.params.to_string());
        RecipientLine {
            position: one.position,
            destination: destination_text(&one.destination),
            state: one.status.name().to_owned(),
            // The spool does not keep the number of attempts of a delivered recipient.
            tries: is_undelivered
                .then(|| u64::from(one.state.tries()) + u64::from(self.delivery.unsent(id, one.position))),
            to: one.recipient.as_ref().map(|recipient| recipient.address.to_string()),
            params: params.filter(|params| !params.is_empty()),
            class: class.map(str::to_owned),
            warned: one.state.is_warned(),
            due: (one.state.due > 0 && is_undelivered).then_some(one.state.due),
            until: found.summary.as_ref().and_then(|summary| summary.requested_release(one.state, self.now_us)),
            retry_at: down.map(|down| down.retry_at.as_secs().max(one.state.due.into())),
            reason_kind: self.delivery.reason_kind(id, one.position).map(|kind| kind.name().to_owned()),
            reason: self.delivery.reason(id, one.position).or_else(|| self.filter_failure(one)),
            hold: one.hold.as_ref().map(hold_line),
        }
    }

    fn filter_failure(&self, one: &FoundRecipient) -> Option<String> {
        let hold = one.hold.as_ref().filter(|hold| hold.kind() == HoldKind::Screen)?;
        self.delivery.filter_failure(hold.by())
    }

    /// Shows the state of a destination, if the queue manager knows it.
    pub(super) fn destination_status(&self, name: &[u8]) -> Option<DestinationStatus> {
        let DestinationState {
            down,
            connections,
            in_flight,
            site,
            is_slow,
            window,
            rate,
            pace,
            reported_by,
            set_limit,
            waits,
            ready,
            has_more,
        } = self.delivery.destination(name)?;
        let per_second = |rate: u32| f64::from(rate) / 1_000.0;
        let mut status = DestinationStatus {
            connections: Some(connections),
            in_flight: Some(in_flight),
            window: Some(window),
            site,
            messages_per_second: rate.map(per_second),
            set_limit,
            learned_messages_per_second: pace.map(per_second),
            ready,
            has_more,
            lane: is_slow.then(|| "slow".to_owned()),
            ..DestinationStatus::default()
        };
        let waits_for = waits.map(|waits| match waits {
            WaitCause::Connection { since, most } => {
                status.waits_since = Some(since.as_secs());
                status.connections_max = Some(most.into());
                "connection"
            }
            WaitCause::Share => "share",
            WaitCause::Rate => "rate",
            WaitCause::Pace => "pace",
        });
        status.waits_for = waits_for.map(str::to_owned);
        if let Some(down) = down {
            let left = down.retry_at.saturating_sub(Duration::from_micros(self.now_us));
            status.down = Some(down.why);
            // Rounded up, so that 0 means now.
            status.retry_in = Some(left.as_secs() + u64::from(left.subsec_nanos() > 0));
            status.trying = left.is_zero();
            status.reported_by = reported_by.filter(|_| !status.trying);
        }
        Some(status)
    }
}

fn hold_line(hold: &Hold) -> HoldLine {
    let text = |of: &str| (!of.is_empty()).then(|| of.to_owned());
    let kind = hold.kind().name().to_owned();
    HoldLine { kind, by: text(hold.by()), text: text(hold.text()), until: hold.ends_at() }
}

/// Adds the client and the parameters of the transaction.
fn add_origin(line: &mut MessageLine, summary: &EnvelopeSummary) {
    let (received, params) = (&summary.envelope.received, &summary.envelope.params);
    line.client = Some(match received.client {
        Client::Network(address) => address.to_string(),
        Client::Process { uid } => format!("user {uid} of this machine"),
        Client::Internal => "mailrace".to_owned(),
    });
    line.protocol = Some(received.protocol.keyword().to_owned());
    line.received = Some(received.at_us / 1_000_000);
    line.helo = received.helo.as_ref().map(|helo| helo.as_str().to_owned());
    line.params = Some(params.to_string()).filter(|params| !params.is_empty());
}

/// The header section up to its limit, or why it cannot be read.
fn header_section(spool: &Spool, id: QueueId) -> String {
    match spool.header(id) {
        Ok(section) => {
            let end = HeaderSection::read(&section, LineEnd::Crlf).as_bytes().len();
            let shown = section.get(..end.min(HEADERS_BYTES_MAX)).unwrap_or_default();
            String::from_utf8_lossy(shown).into_owned()
        }
        Err(error) => format!("not readable: {error}"),
    }
}

/// Turns the name of a destination into text; names are ASCII unless another program wrote the spool.
pub(super) fn destination_text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
