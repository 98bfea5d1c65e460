//! The header section of our users' mail, with the addresses by which they are known outside.
//!
//! **Where.** At the end of the header section while the content arrives, before any of it is kept: the durable content
//! is the delivered content, by each delivery and however often. The section alone is held back; the body is never
//! copied or looked at.
//!
//! **Whose mail.** That of clients who may send anywhere: users who have logged in, networks that may relay, programs
//! of this machine ([`Access::client_right`](crate::access::Access::client_right)). Mail of strangers goes on as it
//! came, also where it claims to be from here: signed content stays as it was. sendmail rewrites by mailer, so both.
//!
//! **Which addresses.** Those of [`SENDER_FIELDS`], as sendmail's `H_FROM` fields; with
//! [`Generics::recipients`](super::Generics::recipients) those of [`RECIPIENT_FIELDS`] too. domaintable, genericstable
//! and the masquerade change them; without that setting domaintable alone changes recipients.
//! [`mail::header_address::rewrite`] describes how an address is found in a field, and which addresses are left alone.
//!
//! A map that cannot be asked is a temporary failure of the message. Lines that are no field end the section.

use super::{Router, SenderKind};
use crate::question::{Ask, Stop};
use mail::Address;
use mail::header::{HeaderSection, Item, LineEnd};
use mail::header_address;
use std::collections::HashMap;

/// Fields with addresses of senders. sendmail leaves `Return-Receipt-To` and `Delivery-Receipt-To` as they are.
pub const SENDER_FIELDS: [&str; 8] = [
    "from",
    "sender",
    "reply-to",
    "errors-to",
    "disposition-notification-to",
    "resent-from",
    "resent-sender",
    "resent-reply-to",
];

/// Fields with addresses of recipients.
pub const RECIPIENT_FIELDS: [&str; 7] = ["to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc", "apparently-to"];

/// Where the header section of a message that begins with `content` ends: before the empty line, or before the first
/// line that is no field. `None`: not within `content`.
#[must_use]
pub fn section_end(content: &[u8]) -> Option<usize> {
    let section = HeaderSection::read(content, LineEnd::Crlf);
    // A line without its end is not judged yet.
    let whole = if section.is_closed() { content.len() } else { last_field(content) };
    let mut items = section.items().enumerate();
    let odd = items.find_map(|(number, item)| match item {
        Item::Malformed(lines) if !is_separator(number, lines.raw()) && lines.offset() < whole => Some(lines.offset()),
        _ => None,
    });
    odd.or_else(|| section.is_closed().then_some(section.as_bytes().len()))
}

/// Returns the place where the last field begins in the received part of a header section.
#[must_use]
pub fn last_field(content: &[u8]) -> usize {
    let section = HeaderSection::read(content, LineEnd::Crlf);
    let last = section.items().last();
    last.map_or(0, |item| match item {
        Item::Field(field) => field.offset(),
        Item::Malformed(lines) => lines.offset(),
    })
}

/// The line of an mbox file that programs leave before their fields; our own trace field stands before it.
fn is_separator(number: usize, line: &[u8]) -> bool {
    number <= 1 && (line.starts_with(b"From ") || line.starts_with(b">From "))
}

impl Router {
    /// Whether header sections of our users' mail change at all.
    #[must_use]
    pub fn has_headers(&self) -> bool {
        let has_map = !self.maps.genericstable.is_empty() || !self.maps.domaintable.is_empty();
        self.settings.generics.headers && (has_map || self.settings.masquerade.is_some())
    }

    /// The header section as it is known outside; `None` if it stays as it is. `section` ends where [`section_end`]
    /// says.
    ///
    /// # Errors
    /// [`Stop::Open`] if something has to be asked first, for all addresses at once; [`Stop::Trouble`] if it cannot be
    /// said now.
    pub fn header(&self, ask: &mut Ask<'_>, section: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let mut known = HashMap::new();
        let mut out: Option<Vec<u8>> = None;
        let (mut copied, mut is_open) = (0, false);
        for field in HeaderSection::read(section, LineEnd::Crlf).fields() {
            let Some(kind) = kind_of(field.name()).filter(|kind| self.concerns(*kind)) else { continue };
            let new = header_address::rewrite(field.value(), |written| {
                let Some(address) = written.to_address(&self.settings.hostname) else { return Ok(None) };
                match self.known_outside(ask, &mut known, address, kind) {
                    // The others are asked for meanwhile.
                    Err(Stop::Open) => {
                        is_open = true;
                        Ok(None)
                    }
                    end => end,
                }
            })?;
            if let Some(new) = new {
                let out = out.get_or_insert_with(|| Vec::with_capacity(section.len() + 256));
                out.extend_from_slice(section.get(copied..field.value_offset()).unwrap_or_default());
                out.extend_from_slice(&new);
                copied = field.value_offset() + field.value().len();
            }
        }
        if is_open {
            return Err(Stop::Open);
        }
        if let Some(out) = &mut out {
            out.extend_from_slice(section.get(copied..).unwrap_or_default());
        }
        Ok(out)
    }

    /// Whether addresses of this kind can change.
    fn concerns(&self, kind: SenderKind) -> bool {
        kind != SenderKind::HeaderRecipient || self.settings.generics.recipients || !self.maps.domaintable.is_empty()
    }

    /// The other address of this one, if it has one.
    fn known_outside(
        &self,
        ask: &mut Ask<'_>,
        known: &mut HashMap<(Address, bool), Option<Address>>,
        address: Address,
        kind: SenderKind,
    ) -> Result<Option<Address>, Stop> {
        let key = (address, kind == SenderKind::Header);
        if let Some(found) = known.get(&key) {
            return Ok(found.clone());
        }
        let outside = self.outside(ask, &key.0, kind)?;
        let found = (outside != key.0).then_some(outside);
        known.insert(key, found.clone());
        Ok(found)
    }
}

fn kind_of(name: &str) -> Option<SenderKind> {
    let is_in = |fields: &[&str]| fields.iter().any(|field| name.eq_ignore_ascii_case(field));
    match () {
        () if is_in(&SENDER_FIELDS) => Some(SenderKind::Header),
        () if is_in(&RECIPIENT_FIELDS) => Some(SenderKind::HeaderRecipient),
        () => None,
    }
}
