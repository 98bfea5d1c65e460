//! Fields of a line: `key=value, key=value, …`.

use crate::stats::Addresses;

/// A list of addresses at the beginning of fields, and the fields behind it.
#[derive(Debug)]
pub(super) struct Recipients<'a> {
    pub(super) to: Addresses<'a>,
    pub(super) count: u64,
    pub(super) rest: &'a str,
}

/// Takes the recipients off the beginning of `<a@b>,<c@d>, delay=…`: up to `, ` outside of quotes and brackets.
/// `None`: no field follows.
pub(super) fn recipients(text: &str) -> Option<Recipients<'_>> {
    let end = end_of_list(text)?;
    let list = text.get(..end)?;
    // One address is the usual case.
    let to = Addresses::Text(list);
    let count = if list.contains(',') { to.count() } else { 1 };
    Some(Recipients { to, count, rest: text.get(end + 2..)? })
}

fn end_of_list(text: &str) -> Option<usize> {
    let octets = text.as_bytes();
    let end = memchr::memchr_iter(b',', octets).find(|at| octets.get(at + 1) == Some(&b' '))?;
    // Quotes count behind a bracket alone: other lists are names, and text of peers without a form.
    if memchr::memmem::find(octets.get(..end)?, b"<\"").is_none() {
        return Some(end);
    }
    let (mut is_quoted, mut is_escaped, mut before) = (false, false, b' ');
    for (at, octet) in octets.iter().enumerate() {
        match octet {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            // RFC 5321 §4.1.2: a local part is quoted as a whole. Anything else is a mark without a pair, and the next
            // one belongs to another field.
            b'"' if is_quoted && octets.get(at + 1) != Some(&b'@') => break,
            b'<' | b'>' if is_quoted => break,
            b'"' if is_quoted || before == b'<' => is_quoted = !is_quoted,
            b',' if !is_quoted && octets.get(at + 1) == Some(&b' ') => return Some(at),
            _ => {}
        }
        before = *octet;
    }
    Some(end)
}

/// The fields of a line, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns all text behind the fields so far.
    pub(super) const fn rest(&self) -> &'a str {
        self.0
    }
}

impl<'a> Iterator for Fields<'a> {
    /// The key, and the value; a piece without `=` has an empty key.
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let octets = self.0.as_bytes();
        let end = memchr::memchr_iter(b',', octets).find(|at| octets.get(at + 1) == Some(&b' '));
        let (piece, rest) = match end {
            Some(end) => (self.0.get(..end)?, self.0.get(end + 2..)?),
            None => (self.0, ""),
        };
        self.0 = rest;
        let equals = memchr::memchr(b'=', piece.as_bytes());
        Some(match equals {
            Some(at) => (piece.get(..at)?, piece.get(at + 1..)?),
            None => ("", piece),
        })
    }
}

/// Returns the name of `relay=name [address]`, `name[address]:25`, or the address where there is no name.
pub(super) fn host_of(relay: &str) -> &str {
    let end = memchr::memchr2(b' ', b'[', relay.as_bytes()).unwrap_or(relay.len());
    match relay.get(..end) {
        Some("") => relay.get(..relay.find(']').map_or(relay.len(), |at| at + 1)).unwrap_or(relay),
        Some(name) => name.trim_end_matches(['.', ',']),
        None => relay,
    }
}

/// Returns a number at the beginning of a value.
pub(super) fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// Returns whether this can be a queue id: letters and digits, as many as servers take.
pub(super) fn is_id(text: &str) -> bool {
    (5..=20).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_end_at_a_comma_and_a_space() {
        let split = |text| recipients(text).map(|found| (found.count, found.rest));
        assert_eq!(split("<a@b>, delay=1"), Some((1, "delay=1")));
        assert_eq!(split("<a@b>,<c@d>, [more], delay=1"), Some((2, "[more], delay=1")));
        assert_eq!(split("<\"a, dsn=2.0.0, stat=Sent\"@b>, delay=1"), Some((1, "delay=1")));
        assert_eq!(split("<a@b>,<\"x, y\"@c>, delay=1"), Some((2, "delay=1")));
        assert_eq!(split("<a\"b@c>, delay=1"), Some((1, "delay=1")), "an unpaired quotation mark");
        assert_eq!(split("<\"@c>, msgid=<\"@x>, d=1"), Some((1, "msgid=<\"@x>, d=1")), "the same behind a bracket");
        assert_eq!(split("<a\"b@c>, msgid=<\">, d=1"), Some((1, "msgid=<\">, d=1")), "a mark of another field");
        assert_eq!(split("<a@b>"), None);
    }

    #[test]
    fn fields_and_hosts() {
        let fields: Vec<_> = Fields::new("delay=1, [more], relay=a.b. [10.0.0.1], stat=x").collect();
        assert_eq!(fields, [("delay", "1"), ("", "[more]"), ("relay", "a.b. [10.0.0.1]"), ("stat", "x")]);
        let hosts = ["a.b. [10.0.0.1]", "a.b[10.0.0.1]:25", "[10.0.0.1] [10.0.0.1]", "none", "local"].map(host_of);
        assert_eq!(hosts, ["a.b", "a.b", "[10.0.0.1]", "none", "local"]);
    }
}
