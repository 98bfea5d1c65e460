//! Key records: the public key of a selector in the DNS (RFC 6376 §3.6.1, RFC 8463 §4).

use super::Algorithm;
use super::tags::TagList;

/// The octets that one string of a TXT record can have.
// RFC 1035 §3.3: a length octet
const STRING_BYTES_MAX: usize = 255;

/// Returns the name at which a key record stands.
// RFC 6376 §3.6.2.1
#[must_use]
pub fn record_name(selector: &str, domain: &str) -> String {
    format!("{selector}._domainkey.{domain}")
}

/// Returns the text of a key record. `public_key` is in base64: SubjectPublicKeyInfo for RSA, 32 octets for Ed25519.
#[must_use]
pub fn record_text(algorithm: Algorithm, public_key: &str) -> String {
    format!("v=DKIM1; h=sha256; k={}; p={public_key}", algorithm.key_type())
}

/// Returns a line for a zone file, with the text in strings of at most 255 octets.
#[must_use]
pub fn zone_line(name: &str, text: &str) -> String {
    let mut line = format!("{name}. IN TXT (");
    for part in strings(text) {
        line.push_str(&format!(" \"{part}\""));
    }
    line.push_str(" )");
    line
}

/// Splits an ASCII text into strings of at most 255 octets.
pub fn strings(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (part, behind) = rest.split_at_checked(STRING_BYTES_MAX).unwrap_or((rest, ""));
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}

/// The record of a key in the DNS, compared with the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// The record has this key.
    Matches,
    /// There is no record.
    Missing,
    /// There are several key records, so verifiers may take any.
    Several,
    /// The record has an empty `p=`: the key was revoked.
    Revoked,
    /// The record has another key, or does not allow signatures of ours; with the reason.
    Differs(&'static str),
    /// The record is a key record and cannot be read.
    Broken,
}

/// Compares the TXT records at the name of a key with the key.
#[must_use]
pub fn compare(records: &[String], algorithm: Algorithm, public_key: &str) -> RecordState {
    let is_key =
        |text: &&String| TagList::parse(text).map_or_else(|_| text.contains("p="), |list| list.get("p").is_some());
    let mut keys = records.iter().filter(is_key);
    let Some(record) = keys.next() else { return RecordState::Missing };
    if keys.next().is_some() {
        return RecordState::Several;
    }
    let Ok(list) = TagList::parse(record) else { return RecordState::Broken };
    // RFC 6376 §3.6.1: v= must be the first tag if it is there
    if list.get("v").is_some_and(|version| version != "DKIM1" || list.first() != Some("v")) {
        return RecordState::Broken;
    }
    if list.get("k").unwrap_or("rsa") != algorithm.key_type() {
        return RecordState::Differs("its k= names another kind of key");
    }
    let names = |tag: &str, wanted: &[&str]| {
        list.compact(tag).is_none_or(|value| value.split(':').any(|name| wanted.contains(&name)))
    };
    if !names("h", &["sha256"]) {
        return RecordState::Differs("its h= does not allow sha256");
    }
    if !names("s", &["email", "*"]) {
        return RecordState::Differs("its s= does not allow email");
    }
    match list.compact("p").as_deref() {
        Some("") | None => RecordState::Revoked,
        Some(found) if found == public_key => RecordState::Matches,
        Some(_) => RecordState::Differs("its p= is another key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_records_are_split_and_read_back() {
        let text = record_text(Algorithm::RsaSha256, &"A".repeat(392));
        let parts: Vec<&str> = strings(&text).collect();
        assert_eq!((parts.len(), parts[0].len(), parts.concat()), (2, 255, text.clone()));
        let line = zone_line(&record_name("s", "example.org"), &text);
        assert!(line.starts_with("s._domainkey.example.org. IN TXT ( \"v=DKIM1; h=sha256; k=rsa; p=AAA"), "{line}");
        assert_eq!(line.matches('"').count(), 4);
        assert_eq!(compare(&[text], Algorithm::RsaSha256, &"A".repeat(392)), RecordState::Matches);
    }

    #[test]
    fn records_are_compared_with_the_key() {
        for (records, expected) in [
            (&[][..], RecordState::Missing),
            (&["v=spf1 -all"], RecordState::Missing),
            (&["v=DKIM1; p=QUJD", "something else"], RecordState::Matches),
            (&["p=QU JD"], RecordState::Matches),
            (&["v=DKIM1; k=rsa; s=*; h=sha1:sha256; p=QUJD"], RecordState::Matches),
            (&["v=DKIM1; p=QUJD", "v=DKIM1; p=QUJD"], RecordState::Several),
            (&["v=DKIM1; p="], RecordState::Revoked),
            (&["v=DKIM1; p=QUJE"], RecordState::Differs("its p= is another key")),
            (&["v=DKIM1; h=sha1; p=QUJD"], RecordState::Differs("its h= does not allow sha256")),
            (&["v=DKIM1; s=tlsrpt; p=QUJD"], RecordState::Differs("its s= does not allow email")),
            (&["v=DKIM1; k=ed25519; p=QUJD"], RecordState::Differs("its k= names another kind of key")),
            (&["p=QUJD; v=DKIM1"], RecordState::Broken),
            (&["v=DKIM2; p=QUJD"], RecordState::Broken),
            (&["v=DKIM1;; p=QUJD"], RecordState::Broken),
        ] {
            let records: Vec<String> = records.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(compare(&records, Algorithm::RsaSha256, "QUJD"), expected, "{records:?}");
        }
    }
}
