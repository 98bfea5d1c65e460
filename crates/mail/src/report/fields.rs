//! The second part of a report: fields for programs (RFC 3464 §2), one group for the message and one for each
//! recipient.

use super::harmless::{NAME_OCTETS_MAX, ascii_line, host, line};
use super::{Kind, RecipientReport, Report, date};
use crate::address::Address;
use crate::enhanced_code::{EnhancedCode, Outcome};
use crate::envelope::Hold;
use crate::reply::Reply;
use crate::xtext;

/// Octets of a reply that are repeated: for a few recipients, and for each of many.
const DIAGNOSTIC_OCTETS_MAX: usize = 1_000;
const SHORT_DIAGNOSTIC_OCTETS_MAX: usize = 200;
/// With more recipients each has only what tells him from the others.
const FULL_GROUPS_MAX: usize = 50;

/// Writes all groups. `is_utf8` is the form message/global-delivery-status, in which addresses stand as they are.
pub(super) fn write(report: &Report<'_>, is_utf8: bool) -> String {
    let mut out = String::new();
    let envelope = report.envelope;
    let mut field = |name: &str, value: &str| out.push_str(&format!("{name}: {value}\r\n"));
    // RFC 3464 §2.2.1, RFC 3461 §6.3: the text the sender gave, decoded. It is printable ASCII.
    if let Some(envid) = &envelope.params.envid {
        field("Original-Envelope-Id", &ascii_line(envid.as_str(), 500));
    }
    // RFC 3464 §2.2.2
    field("Reporting-MTA", &format!("dns; {}", host(report.reporting_mta)));
    // RFC 3464 §2.2.4
    if let Some(helo) = &envelope.received.helo {
        field("Received-From-MTA", &format!("dns; {}", ascii_line(helo.as_str(), NAME_OCTETS_MAX)));
    }
    // RFC 3464 §2.2.5
    field("Arrival-Date", &date::for_field(envelope.received.at_us, report.offset_seconds));
    // RFC 2852 §5
    if let Some((at, _)) = envelope.deliver_by() {
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        field("Deliver-By-Date", &date::for_field(at_us, report.offset_seconds));
    }
    // RFC 4865 §5.1.2
    match envelope.params.hold {
        Some(Hold::For(seconds)) => field("Future-Release-Request", &format!("for;{seconds}")),
        Some(Hold::Until(time)) => field("Future-Release-Request", &format!("until;{time}")),
        None => {}
    }
    for recipient in report.recipients {
        // RFC 3464 §2.1: an empty line before each group
        out.push_str("\r\n");
        write_recipient(&mut out, report, recipient, is_utf8);
    }
    out
}

/// How many recipients have groups of at most `octets_max` octets together, at least one.
pub(super) fn fitting(report: &Report<'_>, is_utf8: bool, octets_max: usize) -> usize {
    let mut octets = 0;
    let mut group = String::new();
    let fits = |recipient: &&RecipientReport<'_>| {
        group.clear();
        write_recipient(&mut group, report, recipient, is_utf8);
        octets += group.len() + "\r\n".len();
        octets <= octets_max
    };
    report.recipients.iter().take_while(fits).count()
}

fn write_recipient(out: &mut String, report: &Report<'_>, of: &RecipientReport<'_>, is_utf8: bool) {
    let mut field = |name: &str, value: &str| out.push_str(&format!("{name}: {value}\r\n"));
    let recipient = of.recipient;
    // Those of very many are the same, or of use to people only; RFC 3464 §2.3 leaves them to us.
    let is_short = report.recipients.len() > FULL_GROUPS_MAX;
    // RFC 3464 §2.3.1, RFC 3461 §6.3: as the sender gave it, decoded
    if let Some(orcpt) = &recipient.params.orcpt {
        let kind = orcpt.kind();
        // RFC 6533 §3: a UTF-8 address in ASCII surroundings is utf-8-addr-xtext
        let address = if orcpt.address().is_ascii() || is_utf8 {
            orcpt.address().to_owned()
        } else {
            xtext::encode_utf8(orcpt.address())
        };
        field("Original-Recipient", &format!("{kind};{address}"));
    }
    field("Final-Recipient", &typed(&recipient.address, is_utf8));
    field("Action", of.kind.keyword());
    // RFC 2852 §4.1.3: 4.4.7, delivery time expired
    let is_past_time = of.is_past_time && of.kind == Kind::Delayed;
    let status = if is_past_time { EnhancedCode::of(Outcome::Transient, 4, 7) } else { status(of) };
    field("Status", &status.to_string());
    // RFC 3464 §2.3.5: a name; the address behind it is for people
    let name = of.remote_mta.and_then(|name| name.split_whitespace().next());
    if let Some(name) = name.map(|name| ascii_line(name, NAME_OCTETS_MAX)) {
        field("Remote-MTA", &format!("dns; {name}"));
    }
    // RFC 3464 §2.3.6, RFC 3461 §9.2
    if let Some(reply) = of.reply {
        field("Diagnostic-Code", &format!("smtp; {}", diagnostic(reply, is_utf8, is_short)));
    }
    // RFC 3464 §2.4: a field of our own
    if let Some(reason) = of.reason {
        field("X-Mailrace-Reason", &ascii_line(reason, NAME_OCTETS_MAX));
    }
    // RFC 3464 §2.3.7
    if let Some(at_us) = of.last_attempt_us.filter(|_| !is_short) {
        field("Last-Attempt-Date", &date::for_field(at_us, report.offset_seconds));
    }
    // RFC 3464 §2.3.8
    if !is_short {
        field("Final-Log-ID", &report.envelope.id.to_string());
    }
    // RFC 3464 §2.3.9: only for delayed recipients
    if let (Kind::Delayed, Some(until_us)) = (of.kind, of.will_retry_until_us) {
        field("Will-Retry-Until", &date::for_field(until_us, report.offset_seconds));
    }
}

/// The address with its type.
// RFC 3464 §2.3.2, RFC 6533 §3
fn typed(address: &Address, is_utf8: bool) -> String {
    match address.to_ascii() {
        Some(ascii) => format!("rfc822; {ascii}"),
        None if is_utf8 => format!("utf-8; {address}"),
        None => format!("utf-8; {}", xtext::encode_utf8(&address.to_string())),
    }
}

/// The code of a recipient, of a class that agrees with its result.
// RFC 3464 §2.3.4, RFC 3463 §2: a failure may have class 4, when trying was given up
pub(super) fn status(of: &RecipientReport<'_>) -> EnhancedCode {
    match (of.kind, of.status.outcome()) {
        (Kind::Failed, Outcome::Success) => of.status.with_outcome(Outcome::Permanent),
        (Kind::Failed, _) => of.status,
        (Kind::Delayed, _) => of.status.with_outcome(Outcome::Transient),
        (Kind::Delivered | Kind::Relayed | Kind::Traced | Kind::Expanded, Outcome::Success) => of.status,
        // The reason of some trouble says nothing about a success.
        (Kind::Delivered | Kind::Relayed | Kind::Traced | Kind::Expanded, _) => {
            EnhancedCode::of(Outcome::Success, 0, 0)
        }
    }
}

/// The codes once, then each line of the reply on a line of its own, which continues the field.
fn diagnostic(reply: &Reply, is_utf8: bool, is_short: bool) -> String {
    let octets_max = if is_short { SHORT_DIAGNOSTIC_OCTETS_MAX } else { DIAGNOSTIC_OCTETS_MAX };
    let mut out = reply.code().to_string();
    if let Some(enhanced) = reply.enhanced() {
        out.push_str(&format!(" {enhanced}"));
    }
    let mut separator = " ";
    for text in reply.lines() {
        if out.len() > octets_max - octets_max / 10 {
            out.push_str(" ...");
            break;
        }
        let room = octets_max - out.len();
        let text = if is_utf8 { line(text, room).into_owned() } else { ascii_line(text, room) };
        // A continuation line of nothing but space would end the group for some readers.
        if !text.is_empty() {
            out.push_str(separator);
            out.push_str(&text);
            separator = "\r\n ";
        }
    }
    out
}
