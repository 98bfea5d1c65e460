//! A line of a map as text: the key, blanks, and the value.

/// The octets that `isspace` calls so, which part key and value.
pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c')
}

pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_blank(*last)
    {
        bytes = rest;
    }
    bytes
}

/// Whether a key ends before this octet.
pub(super) const fn ends_key(byte: u8) -> bool {
    byte == b'\n' || is_blank(byte)
}

/// The key at the beginning of a text, and its value, which ends with the line.
pub(super) fn entry(text: &str) -> (&str, &str) {
    let len = text.bytes().position(ends_key).unwrap_or(text.len());
    let (key, rest) = text.split_at_checked(len).unwrap_or_default();
    (key, value(rest))
}

/// The value behind a key: the rest of the line without blanks around it.
pub(super) fn value(rest: &str) -> &str {
    let bytes = rest.as_bytes();
    let start = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let kept = trim(bytes.get(start..end).unwrap_or_default()).len();
    rest.get(start..start + kept).unwrap_or_default()
}
