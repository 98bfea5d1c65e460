//! A new DKIM-Signature field, or a field of an ARC set, which has the same form.
//!
//! [`SignedFields::of`] chooses the fields that a signature covers, [`Unsigned::new`] writes the field with an empty
//! `b=`, [`Unsigned::signed_octets`] has the octets to sign, and [`Unsigned::complete`] the field with its signature.
//! The canonical forms are relaxed/relaxed. `l=` is never written, since it lets others add to a body. `h=` is folded
//! at colons only, because some verifiers take a fold within a name for its end.

use super::Algorithm;
use super::canonical::relax_field;
use mail::DomainName;
use mail::header::{Field, HeaderSection, LineEnd};
use mail::header_address::parse_list;
use std::borrow::Cow;

/// Fields that are listed once more than they occur, if they occur: a field of that name that is added later breaks
/// the signature.
pub const OVERSIGNED: &[&str] = &["From", "To", "Cc", "Subject", "Date", "Reply-To", "MIME-Version", "Content-Type"];

/// Fields that are listed as often as they occur. Sender and the trace fields are not among them, since lists and
/// relays change them.
// RFC 6376 §5.4.1, RFC 8058 §4: List-Unsubscribe and List-Unsubscribe-Post must be covered
pub const SIGNED: &[&str] = &[
    "Message-ID",
    "In-Reply-To",
    "References",
    "Content-Transfer-Encoding",
    "Content-ID",
    "Content-Description",
    "Resent-Date",
    "Resent-From",
    "Resent-To",
    "Resent-Cc",
    "Resent-Message-ID",
    "List-Id",
    "List-Help",
    "List-Unsubscribe",
    "List-Unsubscribe-Post",
    "List-Subscribe",
    "List-Post",
    "List-Owner",
    "List-Archive",
    "Feedback-ID",
    "Auto-Submitted",
];

/// Fields that the signature of forwarded mail covers as well.
// RFC 8617 §4.1.2
const FORWARDED: &[&str] = &["DKIM-Signature"];

/// The most fields of one name that a signature covers. A message with more of them is signed with these, from the
/// last one up; the fields above them are not covered.
const FIELDS_OF_NAME_MAX: usize = 32;
/// A line of `h=` is folded before this column.
const LINE_COLUMNS: usize = 76;
/// Characters of a signature on one line.
const SIGNATURE_COLUMNS: usize = 72;

/// Returns the domain of the author, as A-labels in lower case: that of the first mailbox in the only From field.
/// `None`: there is no From field, several, or one without a domain.
// RFC 5322 §3.6.2
#[must_use]
pub fn author_domain(header: &HeaderSection<'_>) -> Option<DomainName> {
    let mut from = header.find("From");
    let (only, None) = (from.next()?, from.next()) else { return None };
    let value = only.unfolded();
    let list = parse_list(&String::from_utf8_lossy(&value), None).ok()?;
    let first = list.iter().flat_map(|item| item.mailboxes()).next()?;
    DomainName::new(first.address().domain()).ok()
}

/// The fields that a signature covers, in the order of `h=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedFields {
    /// Names as in `h=`.
    names: Vec<&'static str>,
    /// The relaxed form of each field that occurs, each with a line end.
    canonical: Vec<u8>,
}

impl SignedFields {
    /// Chooses the fields of a message. Returns `None` for a message without From, which must not be signed.
    // RFC 6376 §5.4: From must be signed; §5.4.2: fields of one name are signed from the last one up
    #[must_use]
    pub fn of(header: &HeaderSection<'_>) -> Option<Self> {
        Self::with(header, &[])
    }

    /// Chooses the fields of a message of others that is passed on: its DKIM signatures, too.
    #[must_use]
    pub fn of_forwarded(header: &HeaderSection<'_>) -> Option<Self> {
        Self::with(header, FORWARDED)
    }

    fn with(header: &HeaderSection<'_>, more: &'static [&'static str]) -> Option<Self> {
        let mut these = Self { names: Vec::new(), canonical: Vec::new() };
        let fields: Vec<Field<'_>> = header.fields().collect();
        for (name, is_oversigned) in
            OVERSIGNED.iter().map(|name| (*name, true)).chain(SIGNED.iter().chain(more).map(|name| (*name, false)))
        {
            let mut count = 0;
            for field in fields.iter().rev().filter(|field| field.has_name(name)).take(FIELDS_OF_NAME_MAX) {
                relax_field(field.name(), field.value(), &mut these.canonical);
                these.canonical.extend_from_slice(b"\r\n");
                these.names.push(name);
                count += 1;
            }
            if count == 0 && name == "From" {
                return None;
            }
            if count > 0 && is_oversigned {
                these.names.push(name);
            }
        }
        Some(these)
    }
}

/// The values of a signature besides the message.
#[derive(Clone, Copy, Debug)]
pub struct SignatureValues<'a> {
    /// `a=`
    pub algorithm: Algorithm,
    /// `d=`
    pub domain: &'a str,
    /// `s=`
    pub selector: &'a str,
    /// `t=`, in seconds since 1970.
    pub time: u64,
    /// `bh=`, in base64.
    pub body_hash: &'a str,
}

/// A signature field with an empty `b=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned<'a> {
    name: &'static str,
    /// Name, colon and value up to `b=`.
    text: String,
    /// The relaxed form of what is covered besides.
    covered: Cow<'a, [u8]>,
}

const NAME: &str = "DKIM-Signature";

impl<'a> Unsigned<'a> {
    /// Writes the field.
    // RFC 6376 §3.5
    #[must_use]
    pub fn new(fields: &'a SignedFields, values: &SignatureValues<'_>) -> Self {
        Self::with_first_tag(NAME, "v=1", fields, values)
    }

    /// Writes the message signature of an ARC set.
    // RFC 8617 §4.1.2: i= in place of v=
    pub(crate) fn of_set(
        name: &'static str,
        instance: usize,
        fields: &'a SignedFields,
        values: &SignatureValues<'_>,
    ) -> Self {
        Self::with_first_tag(name, &format!("i={instance}"), fields, values)
    }

    /// Takes a field up to `b=` that covers these octets and itself.
    pub(crate) const fn of_octets(name: &'static str, text: String, covered: Vec<u8>) -> Self {
        Self { name, text, covered: Cow::Owned(covered) }
    }

    fn with_first_tag(name: &'static str, first: &str, fields: &'a SignedFields, values: &SignatureValues<'_>) -> Self {
        let SignatureValues { algorithm, domain, selector, time, body_hash } = values;
        let mut text = format!(
            "{name}: {first}; a={}; c=relaxed/relaxed; d={domain};\r\n\ts={selector}; t={time};\r\n\th=",
            algorithm.name()
        );
        let mut column = 10;
        for (number, listed) in fields.names.iter().enumerate() {
            if number > 0 {
                text.push(':');
                column += 1;
                if column + listed.len() > LINE_COLUMNS {
                    text.push_str("\r\n\t ");
                    column = 9;
                }
            }
            text.push_str(listed);
            column += listed.len();
        }
        text.push_str(";\r\n\tbh=");
        text.push_str(body_hash);
        text.push_str(";\r\n\tb=");
        Self { name, text, covered: Cow::Borrowed(&fields.canonical) }
    }

    /// Returns the octets that are signed: the covered fields, and this one without its signature.
    // RFC 6376 §3.7
    #[must_use]
    pub fn signed_octets(&self) -> Vec<u8> {
        let mut octets = self.covered.to_vec();
        let value = self.text.get(self.name.len() + 1..).unwrap_or_default();
        relax_field(self.name, value.as_bytes(), &mut octets);
        octets
    }

    /// Returns the whole field with its signature in base64, and a line end.
    #[must_use]
    pub fn complete(self, signature: &str) -> String {
        let mut text = self.text;
        let mut rest = signature;
        loop {
            let (line, behind) = rest.split_at_checked(SIGNATURE_COLUMNS).unwrap_or((rest, ""));
            text.push_str(line);
            text.push_str("\r\n");
            if behind.is_empty() {
                return text;
            }
            text.push_str("\t ");
            rest = behind;
        }
    }
}

/// Returns the header section of a message whose beginning is `content`, if all of it is there.
#[must_use]
pub fn whole_header(content: &[u8]) -> Option<HeaderSection<'_>> {
    let section = HeaderSection::read(content, LineEnd::Crlf);
    section.is_closed().then_some(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> HeaderSection<'_> {
        HeaderSection::read(text.as_bytes(), LineEnd::Crlf)
    }

    #[test]
    fn the_author_is_the_first_mailbox_of_the_only_from_field() {
        for (text, expected) in [
            ("From: a@B.Example\r\n\r\n", Some("b.example")),
            ("From: \"x@y.example\" <a@b.example>, c@d.example\r\n\r\n", Some("b.example")),
            ("from:\r\n A <a@\r\n b.example>\r\n\r\n", Some("b.example")),
            ("From: a@b\u{fc}cher.example\r\n\r\n", Some("xn--bcher-kva.example")),
            ("From: a@b.example\r\nFROM: c@d.example\r\n\r\n", None),
            ("To: a@b.example\r\n\r\n", None),
            ("From: root\r\n\r\n", None),
            ("From: a@[192.0.2.1]\r\n\r\n", None),
        ] {
            let found = author_domain(&header(text)).map(|domain| domain.ascii().to_owned());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn covered_fields_are_listed_once_more_than_they_occur() {
        let text =
            "Received: x\r\nTo: one\r\nFrom: a@b\r\nSubject: s\r\nTo: two\r\nReferences: <1@b>\r\nSender: c\r\n\r\n";
        let fields = SignedFields::of(&header(text)).unwrap();
        assert_eq!(fields.names, ["From", "From", "To", "To", "To", "Subject", "Subject", "References"]);
        assert_eq!(fields.canonical, b"from:a@b\r\nto:two\r\nto:one\r\nsubject:s\r\nreferences:<1@b>\r\n");
        assert_eq!(SignedFields::of(&header("To: x\r\n\r\n")), None);
    }

    fn values(domain: &str) -> SignatureValues<'_> {
        SignatureValues { algorithm: Algorithm::RsaSha256, domain, selector: "s", time: 7, body_hash: "aGk=" }
    }

    #[test]
    fn the_field_is_folded_at_colons_and_its_signature_is_no_part_of_what_is_signed() {
        let text: String = OVERSIGNED.iter().chain(SIGNED).map(|name| format!("{name}: x\r\n")).collect();
        let fields = SignedFields::of(&header(&text)).unwrap();
        let unsigned = Unsigned::new(&fields, &values("example.org"));
        let signed = unsigned.signed_octets();
        let complete = unsigned.complete(&"A".repeat(344));
        assert!(complete.ends_with("\r\n") && complete.lines().all(|line| line.len() <= 78), "{complete}");
        let (_, listed) = complete.split_once("h=").unwrap();
        let (listed, _) = listed.split_once(';').unwrap();
        let lines: Vec<&str> = listed.split("\r\n\t ").collect();
        let (_, folded) = lines.split_last().unwrap();
        assert!(folded.len() > 1 && folded.iter().all(|line| line.ends_with(':')), "{listed}");
        assert_eq!(listed.replace("\r\n\t ", "").split(':').count(), 2 * OVERSIGNED.len() + SIGNED.len());
        assert!(!complete.contains("l="), "{complete}");
        let last = signed.split(|octet| *octet == b'\n').next_back().unwrap();
        let last = str::from_utf8(last).unwrap();
        assert!(
            last.starts_with("dkim-signature:v=1; a=rsa-sha256; c=relaxed/relaxed; d=example.org; s=s; t=7; h=From:")
        );
        assert!(last.ends_with("; bh=aGk=; b="), "{last}");
    }

    #[test]
    fn a_header_is_whole_behind_its_empty_line() {
        assert!(whole_header(b"a: b\r\n").is_none() && whole_header(b"a: b\r\n\r").is_none());
        assert_eq!(whole_header(b"a: b\r\n\r\nx").unwrap().body_offset(), 8);
    }
}
