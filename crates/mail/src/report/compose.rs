//! Putting the parts of a report together into a message (RFC 6522).

use super::original::{self, ReturnedContent};
use super::{Composed, Kind, Original, Report, date, fields, harmless, text};
use crate::address::Address;
use crate::encoded_word;
use crate::envelope::Body;
use crate::seven_bit::{write_base64, write_quoted_printable};

/// A part with its header, whose last line ends in CRLF.
struct MimePart {
    header: String,
    body: Vec<u8>,
}

/// Writes a report.
///
/// The content takes little more than the original and the report's own text; each is gone through a few times.
#[must_use]
pub fn compose(report: &Report<'_>, original: Original<'_>) -> Composed {
    let to = report.to.to_ascii();
    // RFC 6533 §4: the international forms in full only for addressees that can receive them anyway
    let smtputf8 = to.is_none();
    let returned = ReturnedContent::of(original);
    let mut parts =
        vec![text_part(report, original, returned.as_ref().map(|r| r.is_whole)), status_part(report, smtputf8)];
    parts.extend(returned.map(|returned| original_part(report, &returned, smtputf8)));

    let is_eight_bit = smtputf8 || parts.iter().any(|part| !part.body.is_ascii());
    let boundary = boundary(report, &parts);
    let mut content = header(report, original, to.as_ref().unwrap_or(report.to), &boundary, is_eight_bit).into_bytes();
    for part in &parts {
        content.extend_from_slice(format!("\r\n--{boundary}\r\n{}\r\n", part.header).as_bytes());
        content.extend_from_slice(&part.body);
    }
    content.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    Composed { content, body: is_eight_bit.then_some(Body::EightBitMime), smtputf8 }
}

/// Estimates how many recipients make a report of `octets_max` octets, from its other parts and the octets of each
/// recipient in the part for programs.
pub(super) fn estimate(report: &Report<'_>, octets_max: usize) -> usize {
    /// The header, and the frames of the parts.
    const FRAME_OCTETS: usize = 2 << 10;
    let words = text_part(report, Original::None, None).body.len();
    let smtputf8 = report.to.to_ascii().is_none();
    fields::fitting(report, smtputf8, octets_max.saturating_sub(words + FRAME_OCTETS)).max(1)
}

/// The header of the report, up to and with the empty line.
fn header(report: &Report<'_>, original: Original<'_>, to: &Address, boundary: &str, is_eight_bit: bool) -> String {
    let host = harmless::host(report.reporting_mta);
    let mut out = String::new();
    let mut field = |name: &str, value: &str| out.push_str(&format!("{name}: {value}\r\n"));
    // RFC 3464 §2: From is a human who can be asked, and the postmaster reads this address everywhere
    field("From", &format!("Mail Delivery System <MAILER-DAEMON@{host}>"));
    field("To", &format!("<{to}>"));
    field("Subject", &subject(report));
    field("Date", &date::for_field(report.at_us, report.offset_seconds));
    field("Message-ID", &format!("<{}@{host}>", report.id));
    // RFC 3834 §3.1.5: the reader's program shows it with the message it is about
    if let Some(id) = original::message_id(original) {
        field("In-Reply-To", &id);
        field("References", &id);
    }
    // RFC 3834 §5: no program may answer this
    let is_answer = report.recipients.iter().any(|recipient| recipient.kind != Kind::Delayed);
    field("Auto-Submitted", if is_answer { "auto-replied" } else { "auto-generated" });
    field("MIME-Version", "1.0");
    // RFC 6522 §3
    field("Content-Type", &format!("multipart/report; report-type=delivery-status;\r\n boundary=\"{boundary}\""));
    // RFC 6522 §3: 7bit, or 8bit where it can be carried
    field("Content-Transfer-Encoding", if is_eight_bit { "8bit" } else { "7bit" });
    out.push_str("\r\nThis is a delivery report in the form of RFC 3464, for programs that know MIME.\r\n");
    out
}

fn subject(report: &Report<'_>) -> String {
    let text = text::subject(report);
    let name_octets = "Subject: ".len();
    let encoded = encoded_word::encode(&text, name_octets);
    // The address is the last word; a long one gets a line of its own.
    match encoded.rsplit_once(' ') {
        Some((front, address)) if !encoded.contains('\n') && name_octets + encoded.len() > 76 => {
            format!("{front}\r\n {address}")
        }
        _ => encoded.into_owned(),
    }
}

/// RFC 6522 §3: the first part is for people.
fn text_part(report: &Report<'_>, original: Original<'_>, returns_whole: Option<bool>) -> MimePart {
    let text = text::write(report, original::subject(original).as_deref(), returns_whole);
    let mut header = "Content-Description: What happened\r\nContent-Language: en\r\n".to_owned();
    let body = if text.is_ascii() {
        header.push_str("Content-Type: text/plain; charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\n");
        text.into_bytes()
    } else {
        header.push_str("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n");
        let mut body = Vec::with_capacity(text.len() + text.len() / 4);
        write_quoted_printable(text.as_bytes(), &mut body);
        body
    };
    MimePart { header, body }
}

/// RFC 6522 §3: the second part is for programs. RFC 3464 §2.1, RFC 6533 §4
fn status_part(report: &Report<'_>, smtputf8: bool) -> MimePart {
    let (kind, encoding) =
        if smtputf8 { ("message/global-delivery-status", "8bit") } else { ("message/delivery-status", "7bit") };
    let header = format!(
        "Content-Description: Delivery status\r\nContent-Type: {kind}\r\nContent-Transfer-Encoding: {encoding}\r\n"
    );
    MimePart { header, body: fields::write(report, smtputf8).into_bytes() }
}

/// RFC 6522 §3: the third part is the message, or RFC 6522 §4 its header section
fn original_part(report: &Report<'_>, returned: &ReturnedContent<'_>, smtputf8: bool) -> MimePart {
    let octets = &returned.octets;
    let is_ascii = octets.is_ascii();
    // RFC 6533 §4: UTF-8 in header fields makes message/global, which may be encoded; message/rfc822 never is
    let is_global = !is_ascii && (smtputf8 || report.envelope.params.smtputf8) && str::from_utf8(octets).is_ok();
    let kind = match (returned.is_whole, is_global) {
        (true, false) => "message/rfc822",
        (true, true) => "message/global",
        (false, false) => "text/rfc822-headers",
        (false, true) => "message/global-headers",
    };
    let encodes = is_global && !smtputf8;
    let encoding = match (is_ascii, encodes) {
        (true, _) => "7bit",
        (false, false) => "8bit",
        (false, true) => "base64",
    };
    let description = if returned.is_whole { "The message" } else { "Header of the message" };
    let header = format!(
        "Content-Description: {description}\r\nContent-Type: {kind}\r\nContent-Transfer-Encoding: {encoding}\r\n"
    );
    let mut body = Vec::new();
    if encodes {
        write_base64(octets, &mut body);
    } else {
        body.extend_from_slice(octets);
    }
    MimePart { header, body }
}

/// A boundary that stands in no part. The queue id makes it unlike all earlier ones; if the content contains it all the
/// same, the number is counted up. Each step needs a text of this length in the content, so there are few.
// RFC 2046 §5.1.1; RFC 2045 §6.7: "=_" stands in no quoted-printable text
fn boundary(report: &Report<'_>, parts: &[MimePart]) -> String {
    let stem = format!("=_{}.", report.id);
    let finder = memchr::memmem::Finder::new(&stem);
    let mut taken = std::collections::BTreeSet::<&[u8]>::new();
    for part in parts {
        for at in finder.find_iter(&part.body) {
            let digits = part.body.get(at + stem.len()..).unwrap_or_default();
            let len = digits.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
            // A number that another begins with is taken too: a reader may compare beginnings only.
            taken.extend((1..=len).filter_map(|len| digits.get(..len)));
        }
    }
    let mut number = 1_u64;
    while taken.contains(number.to_string().as_bytes()) {
        number += 1;
    }
    format!("{stem}{number}")
}
