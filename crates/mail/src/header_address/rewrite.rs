//! Addresses in a field are replaced where they stand; every other octet stays as it is.
//!
//! Only an address beyond doubt is touched in a field: local part, `@` and domain without a blank or comment between
//! them, alone or in angle brackets. Names, comments, groups, folds and the octets of other charsets survive. An
//! element that cannot be read, a source route, an obsolete form, or the text behind a quote or comment that never ends
//! is left to the octet; the elements beside it are read all the same, since people write `Joe [home] <joe@d.example>`
//! and `joe@d.example <joe@d.example>` without quotes.
//!
//! A name without a domain counts where it is all there is, or in angle brackets: `Doe, Joe <joe@d.example>` has no
//! mailbox `Doe`.

use super::{domain_literal, phrase, push_utf8, skip_cfws, unexpected, word};
use crate::address::{Address, AddressParseError, AddressReason, Domain, DomainName, LocalPart, is_atext};
use crate::scan::Scan;
use std::borrow::Cow;
use std::ops::Range;

/// The longest line that a replaced address may make, without its end.
// RFC 5322 §2.1.1
const LINE_OCTETS_MAX: usize = 998;

/// An address as a field has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedAddress {
    local: String,
    domain: Option<String>,
    at: Range<usize>,
    /// Where the local part ends, as it is spelt.
    local_end: usize,
    is_in_brackets: bool,
}

impl LocatedAddress {
    /// The address as the envelope could have it, at `host` if it has no domain; `None` if it is no RFC 5321 mailbox.
    #[must_use]
    pub fn to_address(&self, host: &DomainName) -> Option<Address> {
        let domain = match &self.domain {
            Some(domain) => Domain::parse(domain.as_bytes()).ok()?,
            None => Domain::Name(host.clone()),
        };
        Address::new(LocalPart::new(&self.local).ok()?, domain).ok()
    }

    /// The address that stands for this one: a local part that stays keeps its spelling.
    fn spelt(&self, value: &[u8], address: &Address) -> String {
        let local = value.get(self.at.start..self.local_end).and_then(|local| str::from_utf8(local).ok());
        match local {
            Some(local) if address.local_part().as_str() == self.local => format!("{local}@{}", address.domain()),
            _ => address.to_string(),
        }
    }
}

/// The value of an address field with the addresses that `new` gives in place of those that are there; `None` if
/// nothing changes. `new` says `None` of an address that stays.
///
/// A line that would become longer than 998 octets is folded before the address.
///
/// # Errors
/// The first of `new`.
// RFC 5322 §3.4
pub fn rewrite<E>(
    value: &[u8],
    mut new: impl FnMut(&LocatedAddress) -> Result<Option<Address>, E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut out: Option<Vec<u8>> = None;
    let mut copied = 0;
    let found = located(value);
    for (number, written) in found.iter().enumerate() {
        let Some(address) = new(written)? else { continue };
        let address = written.spelt(value, &address);
        if value.get(written.at.clone()) == Some(address.as_bytes()) {
            continue;
        }
        let out = out.get_or_insert_with(|| Vec::with_capacity(value.len() + 64));
        out.extend_from_slice(value.get(copied..written.at.start).unwrap_or_default());
        let until = found.get(number + 1).map_or(value.len(), |next| next.at.start);
        let behind = value.get(written.at.end..until).unwrap_or_default();
        if column(out) + address.len() + column_end(behind) > LINE_OCTETS_MAX {
            out.extend_from_slice(b"\r\n ");
        }
        out.extend_from_slice(address.as_bytes());
        copied = written.at.end;
    }
    if let Some(out) = &mut out {
        out.extend_from_slice(value.get(copied..).unwrap_or_default());
    }
    Ok(out)
}

/// Octets of the last line.
fn column(text: &[u8]) -> usize {
    text.len() - memchr::memrchr(b'\n', text).map_or(0, |at| at + 1)
}

/// Octets up to the end of the first line.
fn column_end(text: &[u8]) -> usize {
    memchr::memchr(b'\r', text).unwrap_or(text.len())
}

/// The addresses of a value, in their order.
fn located(value: &[u8]) -> Vec<LocatedAddress> {
    let text = readable(value);
    let mut scan = Scan::new(text.as_bytes());
    let (mut found, mut elements) = (Vec::new(), 0_usize);
    loop {
        let start = scan;
        let element = element(&mut scan).or_else(|_| {
            scan = start;
            unread_element(&mut scan)
        });
        // Text behind a quote without an end is part of no address.
        let Ok(element) = element else { break };
        elements += usize::from(!scan.since(start.at()).trim_ascii().is_empty());
        found.extend(element);
        if scan.next().is_none() {
            break;
        }
    }
    found.retain(|written| {
        let is_text = value.get(written.at.clone()).is_some_and(|octets| str::from_utf8(octets).is_ok());
        is_text && (written.domain.is_some() || written.is_in_brackets || elements == 1)
    });
    found
}

/// The value as text of the same length: an octet that belongs to no character is some letter.
fn readable(value: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(value) {
        return text.into();
    }
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| 'x'));
    }
    text.into()
}

const fn ends_element(next: Option<u8>) -> bool {
    matches!(next, Some(b',' | b';' | b':') | None)
}

/// Reads up to the comma, semicolon, colon or end behind an element. The name of a group is one without an address.
fn element(scan: &mut Scan<'_>) -> Result<Option<LocatedAddress>, AddressParseError> {
    skip_cfws(scan)?;
    let start = *scan;
    phrase(scan)?;
    let found = match scan.peek() {
        Some(b'<') => in_brackets(scan)?,
        next if ends_element(next) && scan.at() == start.at() => None,
        Some(b':') => None,
        _ => {
            *scan = start;
            let found = addr_spec(scan)?;
            skip_cfws(scan)?;
            Some(found)
        }
    };
    if ends_element(scan.peek()) { Ok(found) } else { Err(unexpected(scan, AddressReason::Character)) }
}

/// Reads the same of an element that no grammar allows: its address is the one in angle brackets, if there is one such
/// pair.
fn unread_element(scan: &mut Scan<'_>) -> Result<Option<LocatedAddress>, AddressParseError> {
    let (mut found, mut brackets) = (None, 0_usize);
    loop {
        match scan.peek() {
            Some(b'"') => _ = word(scan, &mut String::new())?,
            Some(b'(') => skip_cfws(scan)?,
            Some(b'<') => {
                let start = *scan;
                brackets += 1;
                found = in_brackets(scan).unwrap_or_else(|_| {
                    *scan = start;
                    scan.next();
                    None
                });
            }
            Some(b',' | b';') | None => return Ok(found.filter(|_| brackets == 1)),
            Some(_) => _ = scan.next(),
        }
    }
}

/// Reads angle brackets with an address and the text between it and the next element. A source route is none.
fn in_brackets(scan: &mut Scan<'_>) -> Result<Option<LocatedAddress>, AddressParseError> {
    scan.next();
    skip_cfws(scan)?;
    if scan.peek() == Some(b'>') {
        scan.next();
        skip_cfws(scan)?;
        return Ok(None);
    }
    let found = addr_spec(scan)?;
    skip_cfws(scan)?;
    if !scan.take(b'>') {
        return Err(unexpected(scan, AddressReason::Character));
    }
    skip_cfws(scan)?;
    Ok(Some(LocatedAddress { is_in_brackets: true, ..found }))
}

/// Reads an address in one piece, or a local part alone.
// RFC 5322 §3.4.1
fn addr_spec(scan: &mut Scan<'_>) -> Result<LocatedAddress, AddressParseError> {
    let start = scan.at();
    let mut local = String::new();
    let mut has_word = false;
    loop {
        has_word |= word(scan, &mut local)?;
        if !scan.take(b'.') {
            break;
        }
        local.push('.');
    }
    if !has_word {
        return Err(unexpected(scan, AddressReason::Dot));
    }
    let local_end = scan.at();
    let domain = if scan.take(b'@') { Some(domain(scan)?) } else { None };
    Ok(LocatedAddress { local, domain, at: start..scan.at(), local_end, is_in_brackets: false })
}

fn domain(scan: &mut Scan<'_>) -> Result<String, AddressParseError> {
    let mut text = String::new();
    if scan.peek() == Some(b'[') {
        let start = *scan;
        domain_literal(scan, &mut text)?;
        // RFC 5321 §4.1.3 needs no more. A literal with commas or quotes in it would reach over what others see as
        // elements.
        let is_plain = scan.since(start.at()).iter().all(|octet| is_atext(*octet) || b"[]:.".contains(octet));
        return if is_plain { Ok(text) } else { Err(unexpected(&start, AddressReason::Character)) };
    }
    loop {
        let at = scan.at();
        let atom = scan.take_while(is_atext);
        if atom.is_empty() {
            return Err(unexpected(scan, AddressReason::Dot));
        }
        push_utf8(&mut text, atom, at)?;
        if !scan.take(b'.') {
            return Ok(text);
        }
        if !scan.peek().is_some_and(is_atext) {
            // A dot for the root, as in the DNS.
            return Ok(text);
        }
        text.push('.');
    }
}

#[cfg(test)]
mod tests;
