//! The encodings that carry arbitrary text in an ESMTP parameter: xtext (RFC 3461 §4) and its UTF-8 relative (RFC 6533
//! §3).
//!
//! Both decode to text and encode back to 7-bit; what the text may be is checked by the type that holds it.

use crate::scan::hex_value;

/// Writes `text` so that it may stand in a parameter: everything but visible ASCII without `+` and `=` as `+HH`, byte
/// by byte.
// RFC 3461 §4: xtext = *( xchar / hexchar )
#[must_use]
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'+' | b'=' => push_hex(&mut out, byte),
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => push_hex(&mut out, byte),
        }
    }
    out
}

/// Reads xtext. Text that arrives unencoded where it should not (UTF-8) is passed; a `+` without two hexadecimal
/// digits, or bytes that are not UTF-8, are not.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'+' {
            // RFC 3461 §4: hexchar has upper-case digits; lower case is read too
            out.push(hex_value(bytes.next()?)? << 4 | hex_value(bytes.next()?)?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// Writes `text` in ASCII with `\x{HEX}` for characters that cannot stand for themselves.
// RFC 6533 §3: utf-8-addr-xtext
pub(crate) fn encode_utf8(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '+' | '=' | '\\' => push_code_point(&mut out, c),
            '!'..='~' => out.push(c),
            _ => push_code_point(&mut out, c),
        }
    }
    out
}

/// Reads utf-8-addr-xtext, utf-8-addr-unitext or the plain address; they differ in which characters stand for
/// themselves.
// RFC 6533 §3: utf-8-enc-addr
pub(crate) fn decode_utf8(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once("\\x{") {
        let (digits, after) = escape.split_once('}')?;
        let is_hex = (2..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        out.push_str(plain);
        out.push(char::from_u32(code)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

fn push_hex(out: &mut String, byte: u8) {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.push('+');
    out.extend([byte >> 4, byte & 15].iter().filter_map(|nibble| DIGITS.get(usize::from(*nibble))));
}

fn push_code_point(out: &mut String, c: char) {
    out.push_str(&format!("\\x{{{:02X}}}", u32::from(c)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // RFC 3461 §4 (test), RFC 6533 §3 (test)
    #[test]
    fn known_texts() {
        assert_eq!(encode("a+b = c"), "a+2Bb+20+3D+20c");
        assert_eq!(decode("a+2Bb+20+3d+20c").as_deref(), Some("a+b = c"));
        assert_eq!(encode_utf8("ü+@d"), "\\x{FC}\\x{2B}@d");
        assert_eq!(decode_utf8("\\x{FC}ü\\x{2B}@d").as_deref(), Some("üü+@d"));
        for text in ["+", "+4", "+4G", "+FF", "a+"] {
            assert_eq!(decode(text), None, "{text}");
        }
        for text in ["\\x{}", "\\x{4", "\\x{D800}", "\\x{110000}", "\\x{0000041}", "\\x{+41}"] {
            assert_eq!(decode_utf8(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in any::<String>()) {
            prop_assert!(encode(&text).bytes().all(|byte| byte.is_ascii_graphic() && byte != b'='));
            prop_assert_eq!(decode(&encode(&text)), Some(text.clone()));
            prop_assert!(encode_utf8(&text).bytes().all(|byte| byte.is_ascii_graphic() && byte != b'='));
            prop_assert_eq!(decode_utf8(&encode_utf8(&text)), Some(text));
        }
    }
}
