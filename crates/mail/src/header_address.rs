//! Addresses as they stand in header fields: display names, comments, folding, groups, and the obsolete forms.
//!
//! `From`, `To`, `Cc`, `Reply-To` and their like are read with [`parse_list`]; with `-t` the sendmail command line
//! takes its recipients from them. [`rewrite`] replaces addresses where they stand. An [`AddrSpec`] is wider than an
//! [`Address`]: it may have no business in an envelope (a literal that is no address, a domain with a slash, any
//! length), and only [`AddrSpec::to_address`] decides. Comments and folds are dropped, quotes are taken off as in the
//! envelope. A value outside the present and the obsolete grammar is an error with its place, not a guess. Nothing here
//! recurses, so nesting costs no stack.
//!
//! Raw 8-bit values should be made text first ([`crate::Charset`]).

mod rewrite;

pub use rewrite::{LocatedAddress, rewrite};

use std::fmt;

use crate::address::{
    Address, AddressError, AddressParseError, AddressReason, Domain, DomainName, LocalPart, is_atext, write_local_part,
};
use crate::scan::Scan;

/// An address in a header field, decoded, without comments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddrSpec {
    local: Box<str>,
    domain: Box<str>,
}

impl AddrSpec {
    /// Reads an address alone, with comments and folds around and in it.
    ///
    /// # Errors
    /// With position and reason.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let mut scan = Scan::new(text.as_bytes());
        let parsed = addr_spec(&mut scan, None).and_then(|address| {
            if scan.is_at_end() { Ok(address) } else { Err(unexpected(&scan, AddressReason::Trailing)) }
        });
        parsed.map_err(|fault| AddressError::new(text.as_bytes(), fault))
    }

    /// The local part without quotes. May hold any character, also controls.
    #[must_use]
    pub fn local_part(&self) -> &str {
        &self.local
    }

    /// The domain as it is spelt, or a literal with its brackets.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The address as the envelope could have it.
    ///
    /// # Errors
    /// When it is not an RFC 5321 mailbox.
    pub fn to_address(&self) -> Result<Address, AddressError> {
        Address::new(LocalPart::new(&self.local)?, Domain::parse(self.domain.as_bytes())?)
    }
}

/// A person in a list: perhaps a display name, and an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mailbox {
    name: Option<Box<str>>,
    address: AddrSpec,
}

impl Mailbox {
    /// The display name without quotes, encoded words as they are.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The address.
    #[must_use]
    pub const fn address(&self) -> &AddrSpec {
        &self.address
    }
}

/// An element of an address list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AddressItem {
    /// `Joe <joe@d.example>` or `joe@d.example`
    Mailbox(Mailbox),
    /// `name: joe@d.example, ann@d.example;`, often empty: `undisclosed-recipients:;`
    Group(Group),
}

impl AddressItem {
    /// The mailboxes of the element: itself, or the members of the group.
    #[must_use]
    pub fn mailboxes(&self) -> &[Mailbox] {
        match self {
            Self::Mailbox(mailbox) => std::slice::from_ref(mailbox),
            Self::Group(group) => &group.members,
        }
    }
}

/// Several mailboxes under one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    name: Box<str>,
    members: Vec<Mailbox>,
}

impl Group {
    /// The name without quotes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reads the value of an address field.
///
/// `unqualified` is the domain for names without one, such as `To: root` from local programs; if it is `None` they are
/// errors, as the RFC has it. Empty elements are skipped; there are no more elements than characters in the text.
///
/// # Errors
/// With position and reason.
// RFC 5322 §3.4: address-list; RFC 5322 §4.4: obs-addr-list
pub fn parse_list(text: &str, unqualified: Option<&DomainName>) -> Result<Vec<AddressItem>, AddressError> {
    list(&mut Scan::new(text.as_bytes()), unqualified).map_err(|fault| AddressError::new(text.as_bytes(), fault))
}

fn list(scan: &mut Scan<'_>, unqualified: Option<&DomainName>) -> Result<Vec<AddressItem>, AddressParseError> {
    let mut items = Vec::new();
    let mut open_group: Option<Group> = None;
    loop {
        skip_cfws(scan)?;
        match element(scan, unqualified)? {
            Element::Mailbox(mailbox) => match &mut open_group {
                Some(group) => group.members.push(mailbox),
                None => items.push(AddressItem::Mailbox(mailbox)),
            },
            Element::GroupName(name) if open_group.is_none() => {
                open_group = Some(Group { name, members: Vec::new() });
                continue;
            }
            Element::GroupName(_) => return Err(AddressParseError::new(scan.at(), AddressReason::Character)),
            Element::Nothing => {}
        }
        if scan.peek() == Some(b';')
            && let Some(group) = open_group.take()
        {
            scan.next();
            items.push(AddressItem::Group(group));
            skip_cfws(scan)?;
        }
        if scan.is_at_end() {
            break;
        }
        if !scan.take(b',') {
            return Err(unexpected(scan, AddressReason::Character));
        }
    }
    if open_group.is_some() { Err(AddressParseError::new(scan.at(), AddressReason::Open)) } else { Ok(items) }
}

enum Element {
    Mailbox(Mailbox),
    GroupName(Box<str>),
    Nothing,
}

/// Reads up to the comma, semicolon, colon or end that closes the element. Only the character behind the words at the
/// beginning tells whether they are a name or a local part.
fn element(scan: &mut Scan<'_>, unqualified: Option<&DomainName>) -> Result<Element, AddressParseError> {
    let start = *scan;
    let phrase = phrase(scan)?;
    match scan.peek() {
        Some(b'<') => {
            scan.next();
            let address = angle_addr(scan, unqualified)?;
            let name = (!phrase.is_empty()).then(|| phrase.into());
            Ok(Element::Mailbox(Mailbox { name, address }))
        }
        Some(b':') if !phrase.is_empty() => {
            scan.next();
            Ok(Element::GroupName(phrase.into()))
        }
        Some(b',' | b';') | None if scan.at() == start.at() => Ok(Element::Nothing),
        _ => {
            *scan = start;
            let address = addr_spec(scan, unqualified)?;
            Ok(Element::Mailbox(Mailbox { name: None, address }))
        }
    }
}

/// Reads words, and dots between them, with single spaces for separators. The scan stands on the first word.
// RFC 5322 §3.2.5: phrase; RFC 5322 §4.1: obs-phrase
fn phrase(scan: &mut Scan<'_>) -> Result<String, AddressParseError> {
    let mut text = String::new();
    let mut is_apart = false;
    loop {
        let mut next = String::new();
        if scan.peek() == Some(b'.') {
            scan.next();
            next.push('.');
        } else if !word(scan, &mut next)? {
            return Ok(text);
        }
        if is_apart && !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&next);
        let end = scan.at();
        skip_cfws(scan)?;
        is_apart = scan.at() > end;
    }
}

/// Reads what follows `<`, and the `>`.
// RFC 5322 §3.4: angle-addr; RFC 5322 §4.4: obs-angle-addr, whose route is dropped
fn angle_addr(scan: &mut Scan<'_>, unqualified: Option<&DomainName>) -> Result<AddrSpec, AddressParseError> {
    skip_cfws(scan)?;
    if matches!(scan.peek(), Some(b'@' | b',')) {
        while !scan.take(b':') {
            if scan.take(b'@') {
                domain(scan)?;
            } else if !scan.take(b',') {
                return Err(AddressParseError::new(scan.at(), AddressReason::Route));
            }
            skip_cfws(scan)?;
        }
    }
    let address = addr_spec(scan, unqualified)?;
    if !scan.take(b'>') {
        let reason = if scan.is_at_end() { AddressReason::Open } else { AddressReason::Character };
        return Err(unexpected(scan, reason));
    }
    skip_cfws(scan)?;
    Ok(address)
}

// RFC 5322 §3.4.1: addr-spec = local-part "@" domain
fn addr_spec(scan: &mut Scan<'_>, unqualified: Option<&DomainName>) -> Result<AddrSpec, AddressParseError> {
    let local = local_part(scan)?;
    if scan.take(b'@') {
        return Ok(AddrSpec { local: local.into(), domain: domain(scan)?.into() });
    }
    if !matches!(scan.peek(), Some(b',' | b';' | b'>') | None) {
        return Err(unexpected(scan, AddressReason::Character));
    }
    match unqualified {
        Some(name) => Ok(AddrSpec { local: local.into(), domain: name.as_str().into() }),
        None => Err(AddressParseError::new(scan.at(), AddressReason::NoDomain)),
    }
}

/// Reads words with dots between, before and behind them: such mailboxes exist.
// RFC 5322 §3.4.1: local-part; RFC 5322 §4.4: obs-local-part = word *("." word)
fn local_part(scan: &mut Scan<'_>) -> Result<String, AddressParseError> {
    let mut local = String::new();
    skip_cfws(scan)?;
    let start = scan.at();
    let mut has_word = false;
    loop {
        has_word |= word(scan, &mut local)?;
        skip_cfws(scan)?;
        if scan.take(b'.') {
            local.push('.');
            skip_cfws(scan)?;
            continue;
        }
        if has_word {
            return Ok(local);
        }
        let reason = match scan.peek() {
            Some(b'>') | None if scan.at() == start => AddressReason::Empty,
            Some(b'@') if scan.at() == start => AddressReason::NoLocalPart,
            Some(b'@' | b'>') | None => AddressReason::Dot,
            Some(_) => AddressReason::Character,
        };
        return Err(unexpected(scan, reason));
    }
}

// RFC 5322 §3.4.1: domain; RFC 5322 §4.4: obs-domain = atom *("." atom)
fn domain(scan: &mut Scan<'_>) -> Result<String, AddressParseError> {
    skip_cfws(scan)?;
    let mut text = String::new();
    if scan.peek() == Some(b'[') {
        domain_literal(scan, &mut text)?;
        skip_cfws(scan)?;
        return Ok(text);
    }
    let start = scan.at();
    loop {
        let at = scan.at();
        let atom = scan.take_while(is_atext);
        if atom.is_empty() {
            let reason = match scan.peek() {
                None if at == start => AddressReason::NoDomain,
                Some(b'.' | b'@' | b'>' | b',') | None => AddressReason::Dot,
                Some(_) => AddressReason::Character,
            };
            return Err(unexpected(scan, reason));
        }
        push_utf8(&mut text, atom, at)?;
        skip_cfws(scan)?;
        if !scan.take(b'.') {
            return Ok(text);
        }
        text.push('.');
        skip_cfws(scan)?;
    }
}

/// Reads a literal as it is spelt, without line ends.
// RFC 5322 §3.4.1: domain-literal = "[" *([FWS] dtext) [FWS] "]"; RFC 5322 §4.4: obs-dtext
fn domain_literal(scan: &mut Scan<'_>, text: &mut String) -> Result<(), AddressParseError> {
    let start = scan.at();
    let mut bytes = Vec::new();
    bytes.extend(scan.next());
    loop {
        skip_fws(scan, Some(&mut bytes))?;
        let at = scan.at();
        match scan.next() {
            Some(b']') => break,
            Some(b'\\') => {
                bytes.push(b'\\');
                bytes.push(scan.next().ok_or_else(|| AddressParseError::new(at, AddressReason::OpenLiteral))?);
            }
            Some(b'[') => return Err(AddressParseError::new(at, AddressReason::Character)),
            Some(byte) if is_text(byte) => bytes.push(byte),
            Some(_) => return Err(AddressParseError::new(at, AddressReason::Control)),
            None => return Err(AddressParseError::new(at, AddressReason::OpenLiteral)),
        }
    }
    bytes.push(b']');
    push_utf8(text, &bytes, start)
}

/// Appends the atom or quoted string at the scan; false if there is neither.
// RFC 5322 §3.2.5: word = atom / quoted-string
fn word(scan: &mut Scan<'_>, text: &mut String) -> Result<bool, AddressParseError> {
    let start = scan.at();
    if !scan.take(b'"') {
        let atom = scan.take_while(is_atext);
        push_utf8(text, atom, start)?;
        return Ok(!atom.is_empty());
    }
    // RFC 5322 §3.2.4: quoted-string; RFC 5322 §4.1: obs-qtext, obs-qp
    let mut bytes = Vec::new();
    loop {
        skip_fws(scan, Some(&mut bytes))?;
        let at = scan.at();
        match scan.next() {
            Some(b'"') => break,
            Some(b'\\') => bytes.push(scan.next().ok_or_else(|| AddressParseError::new(at, AddressReason::OpenQuote))?),
            Some(byte) if is_text(byte) => bytes.push(byte),
            Some(_) => return Err(AddressParseError::new(at, AddressReason::Control)),
            None => return Err(AddressParseError::new(at, AddressReason::OpenQuote)),
        }
    }
    push_utf8(text, &bytes, start)?;
    Ok(true)
}

// RFC 5322 §3.2.2: CFWS, comments nest
fn skip_cfws(scan: &mut Scan<'_>) -> Result<(), AddressParseError> {
    loop {
        skip_fws(scan, None)?;
        if scan.peek() != Some(b'(') {
            return Ok(());
        }
        let start = scan.at();
        let mut depth = 0_usize;
        loop {
            skip_fws(scan, None)?;
            let at = scan.at();
            match scan.next() {
                Some(b'(') => depth += 1,
                Some(b')') if depth == 1 => break,
                Some(b')') => depth -= 1,
                Some(b'\\') if scan.next().is_some() => {}
                Some(b'\\') | None => return Err(AddressParseError::new(start, AddressReason::Open)),
                // RFC 5322 §4.1: obs-ctext
                Some(byte) if is_text(byte) => {}
                Some(_) => return Err(AddressParseError::new(at, AddressReason::Control)),
            }
        }
    }
}

/// Takes white space and folds; the white space goes to `kept` where it is part of the meaning.
// RFC 5322 §3.2.2: FWS; RFC 5322 §4.2: obs-FWS, with several folds in a row
fn skip_fws(scan: &mut Scan<'_>, mut kept: Option<&mut Vec<u8>>) -> Result<(), AddressParseError> {
    loop {
        let space = scan.take_while(|byte| matches!(byte, b' ' | b'\t'));
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(space);
        }
        if scan.peek() != Some(b'\r') {
            return Ok(());
        }
        let is_fold = matches!(scan.rest(), [b'\r', b'\n', b' ' | b'\t', ..]);
        if !is_fold {
            return Err(AddressParseError::new(scan.at(), AddressReason::Control));
        }
        scan.next();
        scan.next();
    }
}

/// True for a byte in quotes, comments and literals besides white space: every one but NUL, CR and LF, which no grammar
/// allows there. The marks of the construct are looked for before.
const fn is_text(byte: u8) -> bool {
    !matches!(byte, 0 | b'\r' | b'\n')
}

/// Text cut from UTF-8 at ASCII characters is UTF-8 again, except that a backslash may have stood before half a
/// character.
fn push_utf8(text: &mut String, bytes: &[u8], at: usize) -> Result<(), AddressParseError> {
    text.push_str(str::from_utf8(bytes).map_err(|_| AddressParseError::new(at, AddressReason::NotUtf8))?);
    Ok(())
}

/// The fault of finding something else than expected.
fn unexpected(scan: &Scan<'_>, reason: AddressReason) -> AddressParseError {
    let is_control = scan.peek().is_some_and(|byte| byte.is_ascii_control());
    AddressParseError::new(scan.at(), if is_control { AddressReason::Control } else { reason })
}

/// Writes the address with quotes where they are needed. Control characters in the local part, which only obsolete
/// forms can bring in, are written as quoted pairs.
impl fmt::Display for AddrSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_local_part(f, &self.local)?;
        write!(f, "@{}", self.domain)
    }
}

#[cfg(test)]
mod tests;
