//! The parameters of Content-Type and Content-Disposition, in every reading that a mail program may show.
//!
//! One parameter may come plain, with encoded words in it (forbidden and common), in the extended form of RFC 2231, and
//! in numbered pieces. Programs disagree on which of them counts, so [`Parameters::readings`] returns all that differ.

use mail::Charset;
use mail::scan::{Scan, hex_value};

use crate::header_text;

/// Parameters of one field that are read; more are left out.
const PARAMETERS_MAX: usize = 128;

/// A parameter as it stands in the field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    /// In lower case, without section number and asterisk.
    name: String,
    /// The number behind the first asterisk.
    section: Option<u32>,
    /// An asterisk ends the name: the value is percent-encoded.
    is_extended: bool,
    value: Vec<u8>,
}

/// The parameters of a field in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Parameters {
    list: Vec<Parameter>,
    /// Something in the field is no parameter.
    pub is_damaged: bool,
}

impl Parameters {
    /// Reads what follows the value of the field: `; name=value`, any number of times.
    // RFC 2045 §5.1, RFC 2231 §3, RFC 2231 §4
    pub(crate) fn read(scan: &mut Scan<'_>) -> Self {
        let mut out = Self::default();
        loop {
            scan.skip_comments();
            if scan.is_at_end() || out.list.len() >= PARAMETERS_MAX {
                out.is_damaged |= !scan.is_at_end();
                return out;
            }
            if !scan.take(b';') {
                // A program that looks further finds the next parameter.
                out.is_damaged = true;
                scan.take_while(|byte| byte != b';');
                continue;
            }
            let name = token(scan);
            scan.skip_comments();
            if !scan.take(b'=') {
                out.is_damaged |= !name.is_empty();
                continue;
            }
            out.list.push(Parameter::new(&name, value(scan)));
        }
    }

    /// Returns the first plain value of a parameter, as it stands.
    #[must_use]
    pub fn plain(&self, name: &str) -> Option<&[u8]> {
        let is_plain = |one: &&Parameter| one.name == name && one.section.is_none() && !one.is_extended;
        self.list.iter().find(is_plain).map(|one| one.value.as_slice())
    }

    /// Returns how many plain values a parameter has.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.list.iter().filter(|one| one.name == name).count()
    }

    /// Returns each distinct reading of a parameter as text: the plain values with encoded words decoded, the extended
    /// ones, and the joined pieces.
    #[must_use]
    pub fn readings(&self, name: &str) -> Vec<String> {
        let mut out = Vec::new();
        let own = || self.list.iter().filter(|one| one.name == name);
        for one in own().filter(|one| one.section.is_none()) {
            if one.is_extended {
                push_distinct(&mut out, extended_text(&[one]));
            } else {
                push_distinct(&mut out, header_text::decode(&one.value).text);
            }
        }
        // RFC 2231 §3: the pieces may come in any order
        let mut pieces: Vec<&Parameter> = own().filter(|one| one.section.is_some()).collect();
        pieces.sort_by_key(|one| one.section);
        pieces.dedup_by_key(|one| one.section);
        if !pieces.is_empty() {
            push_distinct(&mut out, extended_text(&pieces));
        }
        out
    }
}

impl Parameter {
    fn new(spelt: &str, value: Vec<u8>) -> Self {
        let (spelt, is_extended) = spelt.strip_suffix('*').map_or((spelt, false), |name| (name, true));
        let piece = spelt.rsplit_once('*').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        let (name, section) = piece.map_or((spelt, None), |(name, number)| (name, Some(number)));
        Self { name: name.to_owned(), section, is_extended, value }
    }
}

fn push_distinct(out: &mut Vec<String>, text: String) {
    if !out.contains(&text) {
        out.push(text);
    }
}

/// Joins the pieces of a value and decodes them in the charset that the first one names.
// RFC 2231 §4: charset "'" language "'" percent-encoded octets; RFC 2231 §4.1: only the first piece names the charset
fn extended_text(pieces: &[&Parameter]) -> String {
    let mut charset = None;
    let mut octets = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let mut text = piece.value.as_slice();
        if index == 0 && piece.is_extended {
            let mut marks = text.splitn(3, |byte| *byte == b'\'');
            if let (Some(label), Some(_language), Some(rest)) = (marks.next(), marks.next(), marks.next()) {
                charset = str::from_utf8(label).ok().and_then(Charset::for_label);
                text = rest;
            }
        }
        if piece.is_extended { percent_decode(text, &mut octets) } else { octets.extend_from_slice(text) }
    }
    match charset {
        Some(charset) => charset.decode(&octets).0.into_owned(),
        None => header_text::decode(&octets).text,
    }
}

fn percent_decode(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, behind @ ..]) if let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low)) => {
                out.push(high << 4 | low);
                rest = behind;
            }
            (byte, _) => out.push(*byte),
        }
    }
}

/// Takes a token behind white space and comments, in lower case.
pub(crate) fn token(scan: &mut Scan<'_>) -> String {
    scan.skip_comments();
    // RFC 2045 §5.1: tspecials end a token
    let text = scan.take_while(|byte| {
        !byte.is_ascii_whitespace() && !byte.is_ascii_control() && !b"()<>@,;:\\\"/[]?=".contains(&byte)
    });
    String::from_utf8_lossy(text).to_ascii_lowercase()
}

fn value(scan: &mut Scan<'_>) -> Vec<u8> {
    scan.skip_comments();
    if !scan.take(b'"') {
        // Spaces in a value without quotes are forbidden; programs take them.
        return scan.take_while(|byte| byte != b';').trim_ascii_end().to_vec();
    }
    let mut out = Vec::new();
    while let Some(byte) = scan.next() {
        match byte {
            b'"' => break,
            b'\\' => out.extend(scan.next()),
            byte => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn readings(value: &str, name: &str, wanted: &[&str]) {
        let parameters = Parameters::read(&mut Scan::new(value.as_bytes()));
        assert_eq!(parameters.readings(name), wanted, "{value}");
    }

    // RFC 2231 §3 (test), RFC 2231 §4 (test), RFC 2231 §4.1 (test)
    #[test]
    fn every_reading_of_a_name() {
        readings(r#"; filename="a b.txt""#, "filename", &["a b.txt"]);
        readings("; filename=a b.exe ; x=1", "filename", &["a b.exe"]);
        readings("; filename*=utf-8'en'%e4%bd%a0.exe", "filename", &["\u{4f60}.exe"]);
        readings("; filename*=gb2312''%c4%e3.exe", "filename", &["\u{4f60}.exe"]);
        readings("; filename*0=in; filename*1=voice.; filename*2=exe", "filename", &["invoice.exe"]);
        readings("; filename*1=.exe; filename*0*=utf-8''%61", "filename", &["a.exe"]);
        readings(r#"; filename="=?utf-8?B?YS5leGU=?=""#, "filename", &["a.exe"]);
        readings("; filename=a.txt; filename*=''a.exe", "filename", &["a.txt", "a.exe"]);
        readings("; filename=a.txt; filename=a.exe", "filename", &["a.txt", "a.exe"]);
        readings("; FileName=a; filename*=x%zz", "filename", &["a", "x%zz"]);
        readings("; name=\"a\\\"b\" (comment)", "name", &["a\"b"]);
    }

    #[test]
    fn damage_does_not_hide_what_follows() {
        let parameters = Parameters::read(&mut Scan::new(b" junk; charset=x; y; boundary=\"b\""));
        assert!(parameters.is_damaged);
        assert_eq!(parameters.plain("charset"), Some(&b"x"[..]));
        assert_eq!(parameters.plain("boundary"), Some(&b"b"[..]));
    }
}
