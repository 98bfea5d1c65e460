//! Turning 8-bit content into 7-bit content, for a next hop that does not offer 8BITMIME (RFC 6152 §3).
//!
//! The deliver stop asks [`is_seven_bit`] first; almost always the answer spares the rest. [`convert`] walks through
//! the MIME structure and encodes each leaf that has 8-bit octets: text in quoted-printable (or base64 when that is
//! shorter), everything else in base64. A reader that decodes the leaves gets the same octets as before. Content
//! without 8-bit octets is copied as it is.
//!
//! Header fields are left alone even where they hold raw 8-bit octets: they cannot be encoded without knowing their
//! meaning, and a message that relies on them asks for SMTPUTF8, which is the session's question. Signatures over the
//! body (DKIM) do not survive.
//!
//! [`shorten_lines`] walks the same way through content whose lines are too long for SMTP, and changes no signed body.
//!
//! Content that breaks MIME is read as most readers read it, as long as no reader can see a difference: a transfer
//! encoding on a multipart or message whose structure stands there in clear does not count, and of several equal
//! Content-Type fields one counts. A part that has no such reading, or that is signed or encrypted, stays as it is, and
//! the result says why: a next hop that passes 8-bit octets on is better than a message that is given back. Time is
//! linear in content times depth, and the depth is bounded.

mod content_type;
mod encode;
mod multipart;

use std::borrow::Cow;
use std::fmt;

use content_type::ContentType;
pub(crate) use encode::{write_base64, write_quoted_printable};

use crate::header::{HeaderSection, LineEnd};
use crate::long_line;

/// Parts within parts.
const DEPTH_MAX: usize = 32;

/// Content for a next hop without 8BITMIME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Header section and body.
    pub content: Vec<u8>,
    /// Why 8-bit octets are left in the body, if some are.
    pub left: Option<Reason>,
}

/// Why a part keeps its 8-bit octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Parts within parts beyond 32 levels.
    TooDeep,
    /// Content that is signed or encrypted as it is (RFC 1847) has 8-bit octets.
    Protected,
    /// 8-bit octets in a part of a type that must not be encoded: message/partial, message/delivery-status and others.
    NotEncodable,
    /// The structure cannot be made out: no boundary, unlike Content-Type fields, base64 with 8-bit octets, an unknown
    /// encoding.
    Malformed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "8-bit content in too many parts within parts",
            Self::Protected => "8-bit content that is signed or encrypted may not be changed",
            Self::NotEncodable => "8-bit content in a part of a type that may not be encoded",
            Self::Malformed => "8-bit content in malformed MIME parts",
        })
    }
}

impl std::error::Error for Reason {}

/// Whether content may go to a next hop without 8BITMIME as it is: no octet above 127, and no NUL in the body.
#[must_use]
pub fn is_seven_bit(content: &[u8]) -> bool {
    // RFC 6152 §2, RFC 2045 §2.7
    content.is_ascii()
        && memchr::memrchr(0, content).is_none_or(|nul| nul < HeaderSection::read(content, LineEnd::Crlf).body_offset())
}

/// Whether a header field of the message or of one of its parts has 8-bit octets, so that a next hop needs SMTPUTF8 for
/// it. Octets in which no part can be made out are no header.
// RFC 6531 §3.4
#[must_use]
pub fn has_eight_bit_header(content: &[u8]) -> bool {
    if content.is_ascii() {
        return false;
    }
    // With all bodies encoded, also those that must not be, the rest is in headers.
    let mut out = Vec::with_capacity(content.len() + content.len() / 4);
    let _nothing_is_left = entity(content, EntityContext { encodes_all: true, ..EntityContext::MESSAGE }, &mut out);
    !out.is_ascii()
}

/// Encodes 8-bit parts. `content` is header section and body, with CRLF.
///
/// The result is at most about half as long again. It is not [`is_seven_bit`] if header fields have 8-bit octets, or if
/// it says that some are [left](Converted::left).
// RFC 6152 §3: a relay converts, or returns the message
// RFC 6152 §3 (gap: a part that cannot be converted goes out as it is)
#[must_use]
pub fn convert(content: &[u8]) -> Converted {
    converted(content, EntityContext::MESSAGE)
}

/// Folds header fields and encodes parts that have a line of more than `max` octets, the line end not counted. A body
/// under a DKIM signature stays, and so does a part that cannot be converted. 8-bit octets may stay, NUL too.
// RFC 5322 §2.1.1, RFC 5321 §4.5.3.1.6: 998 octets and CRLF
#[must_use]
pub fn shorten_lines(content: &[u8], max: usize) -> Converted {
    converted(content, EntityContext { line_max: Some(max), ..EntityContext::MESSAGE })
}

fn converted(content: &[u8], context: EntityContext) -> Converted {
    let mut out = Vec::with_capacity(content.len() + content.len() / 4);
    let left = entity(content, context, &mut out);
    // Base64 at the top level has no line end yet.
    if content.ends_with(b"\r\n") && !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    Converted { content: out, left }
}

/// Where an entity stands.
#[derive(Clone, Copy)]
struct EntityContext {
    depth: usize,
    /// It is a message with a header of its own, rather than a part of a multipart.
    is_message: bool,
    /// RFC 2046 §5.1.5: a part without a type is a message here.
    is_in_digest: bool,
    /// The result is looked at and not sent: nothing keeps its 8-bit octets.
    encodes_all: bool,
    /// Lines are to be no longer than this, and 8-bit octets may stay; `None`: lines may have any length, and no 8-bit
    /// octet stays.
    line_max: Option<usize>,
}

impl EntityContext {
    /// The message itself.
    const MESSAGE: Self = Self { depth: 0, is_message: true, is_in_digest: false, encodes_all: false, line_max: None };

    /// Whether a body needs no change.
    fn accepts(self, body: &[u8]) -> bool {
        match self.line_max {
            Some(max) => !long_line::has_long_line(body, max),
            None => is_plain(body),
        }
    }

    /// A part of the entity, or the message in it.
    const fn inside(self, is_message: bool, is_in_digest: bool) -> Self {
        Self { depth: self.depth + 1, is_message, is_in_digest, ..self }
    }
}

/// Appends a message or a part, encoded where needed. If 8-bit octets are left, it says why.
fn entity(bytes: &[u8], place: EntityContext, out: &mut Vec<u8>) -> Option<Reason> {
    let start = out.len();
    let folded = place.line_max.map_or(Cow::Borrowed(bytes), |max| long_line::fold_header(bytes, max));
    let bytes = &*folded;
    match encoded(bytes, place, out) {
        Ok(left) => left,
        Err(_) if place.encodes_all => {
            out.truncate(start);
            let header = HeaderSection::read(bytes, LineEnd::Crlf);
            write_header(&header, "base64", place, None, out);
            write_base64(bytes.get(header.body_offset()..).unwrap_or_default(), out);
            None
        }
        Err(reason) => {
            out.truncate(start);
            out.extend_from_slice(bytes);
            Some(reason)
        }
    }
}

/// Appends a message or a part, encoded where needed, with the reason if 8-bit octets are left in parts of it.
///
/// # Errors
/// It has no reading that all readers share, and stays as it is.
fn encoded(bytes: &[u8], place: EntityContext, out: &mut Vec<u8>) -> Result<Option<Reason>, Reason> {
    let header = HeaderSection::read(bytes, LineEnd::Crlf);
    let body = bytes.get(header.body_offset()..).unwrap_or_default();
    if place.accepts(body) {
        out.extend_from_slice(bytes);
        return Ok(None);
    }
    if place.line_max.is_some() && place.is_message && long_line::is_signed(&header) {
        return Err(Reason::Protected);
    }
    if place.depth > DEPTH_MAX {
        return Err(Reason::TooDeep);
    }
    let encoding = Encoding::of(&header);
    let typed = ContentType::of(&header)?;
    let is_untyped = typed.is_none();
    let typed = typed.unwrap_or_else(|| ContentType::default_of(place.is_in_digest));
    match (typed.kind.as_str(), typed.subtype.as_str()) {
        ("multipart", "signed" | "encrypted") if !place.encodes_all => Err(Reason::Protected),
        // RFC 2045 §6.4: composite types have no encoding but the identity. Where the delimiters stand in clear,
        // another one is a mistake.
        ("multipart", subtype) => {
            let boundary = typed.boundary.as_deref().ok_or(Reason::Malformed)?;
            let inner = place.inside(false, subtype == "digest");
            composite(&header, place, out, |out| multipart::write(body, boundary, inner, out))
        }
        ("message", "rfc822" | "news") => {
            if encoding != Ok(Encoding::Identity) && !begins_with_field(body) {
                return Err(Reason::Malformed);
            }
            let inner = place.inside(true, false);
            composite(&header, place, out, |out| Ok(entity(body, inner, out)))
        }
        // RFC 2046 §5.2.2, RFC 3464 §2.1.1: these must be 7bit and are not
        ("message", _) if !typed.is_global() => Err(Reason::NotEncodable),
        (kind, _) => {
            let charset = (is_untyped && place.is_message && !is_plain(body)).then(|| guessed_charset(body));
            leaf(&header, body, LeafEntity { is_text: kind == "text", encoding: encoding?, charset }, place, out)?;
            Ok(None)
        }
    }
}

/// Appends a header and the output of `parts`. The encoding is that of the parts: 8bit if one of them is left as it is.
// RFC 2045 §6.4
fn composite(
    header: &HeaderSection<'_>,
    place: EntityContext,
    out: &mut Vec<u8>,
    parts: impl FnOnce(&mut Vec<u8>) -> Result<Option<Reason>, Reason>,
) -> Result<Option<Reason>, Reason> {
    const END: usize = b"7bit\r\n\r\n".len();
    write_header(header, "7bit", place, None, out);
    let at = out.len().saturating_sub(END);
    let left = parts(out)?;
    let has_eight_bit = place.line_max.is_some() && out.get(at..).is_some_and(|parts| !parts.is_ascii());
    if (left.is_some() || has_eight_bit)
        && let Some(digit) = out.get_mut(at)
    {
        *digit = b'8';
    }
    Ok(left)
}

/// Whether octets begin like a message: with a name and a colon.
fn begins_with_field(body: &[u8]) -> bool {
    HeaderSection::read(body, LineEnd::Crlf).fields().next().is_some()
}

/// The properties of a part without parts.
struct LeafEntity {
    is_text: bool,
    encoding: Encoding,
    /// The type of a message without Content-Type.
    charset: Option<&'static str>,
}

fn leaf(
    header: &HeaderSection<'_>,
    body: &[u8],
    leaf: LeafEntity,
    place: EntityContext,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    match leaf.encoding {
        Encoding::Base64 if place.line_max.is_some() && encode::is_base64(body) => {
            write_header(header, "base64", place, leaf.charset, out);
            encode::wrap_base64(body, out);
        }
        // RFC 2045 §6.8: decoders may take such an octet for damage
        Encoding::Base64 => return Err(Reason::Malformed),
        Encoding::QuotedPrintable => {
            write_header(header, "quoted-printable", place, leaf.charset, out);
            match place.line_max {
                Some(_) => encode::wrap_quoted_printable(body, out),
                None => encode::mend_quoted_printable(body, out),
            }
        }
        Encoding::Identity if leaf.is_text && encode::prefers_quoted_printable(body) => {
            write_header(header, "quoted-printable", place, leaf.charset, out);
            write_quoted_printable(body, out);
        }
        Encoding::Identity => {
            write_header(header, "base64", place, leaf.charset, out);
            write_base64(body, out);
        }
    }
    Ok(())
}

/// Appends the header with another Content-Transfer-Encoding and the fields for it, and the empty line.
fn write_header(
    header: &HeaderSection<'_>,
    encoding: &str,
    place: EntityContext,
    charset: Option<&'static str>,
    out: &mut Vec<u8>,
) {
    let name = "Content-Transfer-Encoding";
    let mut at = 0;
    let section = header.as_bytes();
    for field in header.find(name) {
        out.extend_from_slice(section.get(at..field.offset()).unwrap_or_default());
        at = field.offset() + field.raw().len();
    }
    out.extend_from_slice(section.get(at..).unwrap_or_default());
    // RFC 2045 §4: without this field the others mean nothing
    if place.is_message && header.find("MIME-Version").next().is_none() {
        out.extend_from_slice(b"MIME-Version: 1.0\r\n");
    }
    if let Some(charset) = charset {
        out.extend_from_slice(format!("Content-Type: text/plain; charset={charset}\r\n").as_bytes());
    }
    out.extend_from_slice(format!("{name}: {encoding}\r\n\r\n").as_bytes());
}

/// The charset of a text whose sender did not say it.
// RFC 1428 §3: unknown-8bit. Text that is UTF-8 by chance is so rare that readers are better served by the name.
fn guessed_charset(body: &[u8]) -> &'static str {
    if str::from_utf8(body).is_ok() { "utf-8" } else { "unknown-8bit" }
}

/// The encoding a part has already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// 7bit, 8bit, binary, or not said.
    Identity,
    QuotedPrintable,
    Base64,
}

impl Encoding {
    // RFC 2045 §6.1
    fn of(header: &HeaderSection<'_>) -> Result<Self, Reason> {
        let mut found = None;
        for field in header.find("Content-Transfer-Encoding") {
            let word = content_type::first_word(&field.unfolded());
            let this = match word.as_str() {
                "" | "7bit" | "8bit" | "binary" => Self::Identity,
                "quoted-printable" => Self::QuotedPrintable,
                "base64" => Self::Base64,
                _ => return Err(Reason::Malformed),
            };
            // Readers differ in which of two they believe.
            if *found.get_or_insert(this) != this {
                return Err(Reason::Malformed);
            }
        }
        Ok(found.unwrap_or(Self::Identity))
    }
}

/// Whether octets may stand in a 7-bit body.
fn is_plain(octets: &[u8]) -> bool {
    octets.is_ascii() && memchr::memchr(0, octets).is_none()
}
