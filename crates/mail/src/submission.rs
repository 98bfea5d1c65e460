//! Completes a message of a local program for the sendmail command: line ends, header fields, domains.
//!
//! A program prints a message and expects the rest to be done: `Date`, `Message-Id` and `From`, our name behind names
//! without a domain, recipients out of the header with `-t`, and no `Bcc` that others could read. [`Lines`] makes lines
//! of mail of its output; [`Draft`] parts the header section from the body; [`Draft::complete`] writes the header
//! section that goes out.
//!
//! All as sendmail does it, where no standard says otherwise. Not here: the right to use a sender address ([`warning`]
//! is only the field that tells of it), encodings, and anything of the body.

mod lines;
mod qualify;

pub use lines::Lines;

use crate::address::{Address, AddressError, DomainName, ForwardPath};
use crate::header::{Field, HeaderSection, Item, LineEnd, MalformedReason};
use crate::header_address::{AddressItem, parse_list};
use crate::report::date_field;
use std::collections::HashSet;

/// Octets within which the header section of a submitted message ends; the octets behind belong to the body.
pub const HEADER_BYTES_MAX: usize = 1 << 20;

/// Fields with addresses that get a domain.
const ADDRESS_FIELDS: [&str; 14] = [
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "resent-from",
    "resent-sender",
    "resent-reply-to",
    "resent-to",
    "resent-cc",
    "resent-bcc",
    "apparently-to",
    "errors-to",
];

/// The beginning of a message, with CRLF at the end of each line, taken apart.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    fields: Vec<Field<'a>>,
    body_offset: usize,
    is_resent: bool,
}

/// The values that complete the header section.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// Our name, for names without a domain and for message ids.
    pub host: &'a DomainName,
    /// The address of `From`, if the message has none.
    pub from: &'a str,
    /// The name before it; empty for none. That of a field `Full-Name` counts more.
    pub full_name: &'a str,
    /// Now, in microseconds since 1970.
    pub unix_us: u64,
    /// Of our time zone, east of UTC.
    pub offset_seconds: i32,
    /// A text that makes a message id unique on this host: letters, digits and dots.
    pub unique: &'a str,
    /// Recipients are taken from the header (`-t`): `Bcc` goes, and a message without recipients gets a field that says
    /// so.
    pub takes_recipients: bool,
}

/// Recipients that a header section names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRecipients {
    /// In the order of the fields, each once.
    pub addresses: Vec<Address>,
    /// The words that are no addresses, as written, each with the reason.
    pub bad: Vec<(String, AddressError)>,
    seen: HashSet<String>,
}

impl<'a> Draft<'a> {
    /// Takes the beginning of a message apart: all of it, or at least its header section.
    ///
    /// The header section ends at an empty line or before the first line that is no field. A line `From ` of a mailbox
    /// at the beginning is passed over.
    #[must_use]
    pub fn read(message: &'a [u8]) -> Self {
        let section = HeaderSection::read(message, LineEnd::Crlf);
        let mut fields = Vec::new();
        let mut body_offset = section.body_offset();
        for (number, item) in section.items().enumerate() {
            match item {
                Item::Field(field) => fields.push(field),
                Item::Malformed(lines) if number == 0 && lines.reason() == MalformedReason::MboxFrom => {}
                Item::Malformed(lines) => {
                    body_offset = lines.offset();
                    break;
                }
            }
        }
        // RFC 5322 §3.6.6
        let is_resent = fields.iter().any(|field| is_resent(field.name()));
        Self { fields, body_offset, is_resent }
    }

    /// Where the body begins.
    #[must_use]
    pub const fn body_offset(&self) -> usize {
        self.body_offset
    }

    /// How many trace fields there are: how often the message was handed on.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.fields.iter().filter(|field| field.has_name("received")).count()
    }

    /// The recipients that `To`, `Cc` and `Bcc` name; of a message that was sent again, those of its `Resent-` fields
    /// alone.
    ///
    /// A field that cannot be read as a whole is read element by element, so that one mistake costs one recipient.
    #[must_use]
    pub fn recipients(&self, host: &DomainName) -> HeaderRecipients {
        let wanted: &[&str] = match self.is_resent {
            true => &["resent-to", "resent-cc", "resent-bcc"],
            false => &["to", "cc", "bcc", "apparently-to"],
        };
        let mut named = HeaderRecipients::default();
        for field in self.fields.iter().filter(|field| wanted.iter().any(|name| field.has_name(name))) {
            let text = text_of(field);
            match parse_list(&text, Some(host)) {
                Ok(items) => items.iter().for_each(|item| named.take(item)),
                Err(_) => split(&text).for_each(|element| match parse_list(element, Some(host)) {
                    Ok(items) => items.iter().for_each(|item| named.take(item)),
                    Err(_) if is_nobody(element) => {}
                    Err(error) => named.bad.push((element.trim().to_owned(), error)),
                }),
            }
        }
        named
    }

    /// The header section as it goes out, with the empty line behind it.
    #[must_use]
    pub fn complete(&self, with: &Completion<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(1_024);
        let has = |name: &str| self.fields.iter().any(|field| field.has_name(name));
        let prefixes: &[&str] = if self.is_resent { &["Resent-", ""] } else { &[""] };
        for prefix in prefixes {
            if !has(&format!("{prefix}Date")) {
                line(&mut out, prefix, "Date", &date_field(with.unix_us, with.offset_seconds));
            }
            if !has(&format!("{prefix}From")) {
                line(&mut out, prefix, "From", &self.from(with));
            }
            if !has(&format!("{prefix}Message-Id")) {
                let (unique, host) = (with.unique, with.host.ascii());
                line(&mut out, prefix, "Message-Id", &format!("<{unique}@{host}>"));
            }
        }
        for field in &self.fields {
            self.write(field, with, &mut out);
        }
        // RFC 5322 §3.6.3 wants no field with recipients, RFC 822 did; sendmail's add-to-undisclosed
        if with.takes_recipients && !["to", "cc"].into_iter().any(has) {
            line(&mut out, "", "To", "undisclosed-recipients:;");
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    /// The header section as it came, of a message that was complete before, with the empty line behind it.
    #[must_use]
    pub fn relayed(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1_024);
        // RFC 5321 §4.4: Return-Path is written at delivery, and a field of another server is removed
        for field in self.fields.iter().filter(|field| !field.has_name("return-path")) {
            out.extend_from_slice(with_line_end(field.raw()).as_ref());
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    fn write(&self, field: &Field<'_>, with: &Completion<'_>, out: &mut Vec<u8>) {
        let is_blind = field.has_name("bcc") || field.has_name("resent-bcc");
        // Written at delivery, or present in From.
        let is_ours = field.has_name("return-path") || field.has_name("full-name");
        if is_ours || (is_blind && with.takes_recipients) {
            return;
        }
        let value = field.value();
        if !ADDRESS_FIELDS.iter().any(|name| field.has_name(name)) {
            return out.extend_from_slice(with_line_end(field.raw()).as_ref());
        }
        let raw = field.raw();
        let head = raw.len() - trimmed_end(raw, value);
        out.extend_from_slice(raw.get(..head).unwrap_or_default());
        out.extend_from_slice(&qualify::qualified(value, with.host.ascii()));
        out.extend_from_slice(b"\r\n");
    }

    fn from(&self, with: &Completion<'_>) -> String {
        let field = self.fields.iter().find(|field| field.has_name("full-name"));
        let own = field.map(|field| text_of(field));
        let name = own.filter(|name| !name.is_empty()).unwrap_or_else(|| with.full_name.to_owned());
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        match name.trim() {
            "" => with.from.to_owned(),
            name => format!("{} <{}>", phrase(name), with.from),
        }
    }
}

impl HeaderRecipients {
    fn take(&mut self, item: &AddressItem) {
        for mailbox in item.mailboxes() {
            let address = mailbox.address().to_address();
            // Octets that are no text are no address.
            let address = address.and_then(|found| match found.to_string().contains(char::REPLACEMENT_CHARACTER) {
                true => Address::parse(b"\xff"),
                false => Ok(found),
            });
            match address {
                Ok(address) if !self.seen.insert(address.to_string()) => {}
                Ok(address) => self.addresses.push(address),
                Err(error) => {
                    let address = mailbox.address();
                    self.bad.push((format!("{}@{}", address.local_part(), address.domain()), error));
                }
            }
        }
    }
}

/// Reads addresses as a user names a recipient or a sender on a command line: `joe`, `joe@d.example`, `Joe
/// <joe@d.example>`, and several with commas between them. Names without a domain get `host`.
///
/// # Errors
/// The fault, with its place.
pub fn named(text: &str, host: &DomainName) -> Result<Vec<Address>, AddressError> {
    // RFC 5321 §4.1.1.3: the route before an address is ignored, as in RCPT
    if text.starts_with('@')
        && let Ok(ForwardPath::Address(address)) = ForwardPath::parse(format!("<{text}>").as_bytes())
    {
        return Ok(vec![address]);
    }
    let items = parse_list(text, Some(host))?;
    let mailboxes = items.iter().flat_map(AddressItem::mailboxes);
    mailboxes.map(|mailbox| mailbox.address().to_address()).collect()
}

/// A moment as a date field has it: `Sun, 22 Nov 2026 12:09:56 +0100`.
///
/// `unix_us` is in microseconds since 1970, `offset_seconds` what local time is ahead of UTC.
#[must_use]
pub fn date(unix_us: u64, offset_seconds: i32) -> String {
    date_field(unix_us, offset_seconds)
}

/// The field that tells of a sender that a user has chosen and may not have been allowed to.
///
/// `host` is ours, `user` the login name or number of the user, `sender` the path that was chosen.
#[must_use]
pub fn warning(host: &str, user: &str, sender: &str) -> Vec<u8> {
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    format!("X-Authentication-Warning: {host}: {} set sender to {} using -f\r\n", plain(user), plain(sender))
        .into_bytes()
}

/// The full name in the fifth field of a line of `/etc/passwd`: up to the first comma, with the login name for `&`.
#[must_use]
pub fn full_name(gecos: &str, login: &str) -> String {
    let name = gecos.split(',').next().unwrap_or_default();
    let mut capital = login.to_owned();
    if let Some(first) = capital.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name.replace('&', &capital).trim().to_owned()
}

fn text_of(field: &Field<'_>) -> String {
    String::from_utf8_lossy(&field.unfolded()).into_owned()
}

/// Elements at the commas, where the text is not one that can be read.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|element| !element.trim().is_empty())
}

/// Whether an element is an empty group whose colon was forgotten: `undisclosed recipients;` names nobody.
fn is_nobody(element: &str) -> bool {
    const WORDS: [&str; 4] = ["undisclosed", "unlisted", "recipient", "hidden"];
    let Some(phrase) = element.trim().strip_suffix(';') else { return false };
    let phrase = phrase.trim().trim_matches('"').to_ascii_lowercase();
    !phrase.contains(['@', '<', '!', '|', '/'])
        && (phrase.contains(' ') || WORDS.iter().any(|word| phrase.starts_with(word)))
}

fn is_resent(name: &str) -> bool {
    ["resent-from", "resent-to", "resent-cc", "resent-bcc", "resent-date", "resent-message-id", "resent-sender"]
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one))
}

fn line(out: &mut Vec<u8>, prefix: &str, name: &str, value: &str) {
    out.extend_from_slice(format!("{prefix}{name}: {value}\r\n").as_bytes());
}

/// A display name, in quotes where it needs them.
// RFC 5322 §3.2.5
fn phrase(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " !#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let is_quoted = name.len() > 1 && name.starts_with('"') && name.ends_with('"');
    if is_quoted || name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// How many octets the value and the line end take at the end of a field.
fn trimmed_end(raw: &[u8], value: &[u8]) -> usize {
    let end = if raw.ends_with(b"\r\n") { 2 } else { 0 };
    value.len() + end
}

/// The last line of a message without a body may lack its end.
fn with_line_end(raw: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    match raw.ends_with(b"\r\n") {
        true => raw.into(),
        false => [raw, b"\r\n"].concat().into(),
    }
}

#[cfg(test)]
mod tests;
