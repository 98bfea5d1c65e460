//! The encoding Q of an encoded word, which resembles quoted-printable (RFC 2047 §4); B is base64.

use crate::scan::hex_value;

/// Appends the bytes of a Q text; false when an `=` without two hexadecimal digits stands in it (and stays).
// RFC 2047 §4.2
pub(super) fn decode_q(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut is_whole = true;
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'_', _) => out.push(b' '),
            (b'=', [high, low, behind @ ..]) if let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low)) => {
                out.push(high << 4 | low);
                rest = behind;
            }
            (b'=', _) => {
                out.push(b'=');
                is_whole = false;
            }
            (byte, _) => out.push(*byte),
        }
    }
    is_whole
}

/// Whether a byte may stand for itself in a Q text, also inside a phrase.
// RFC 2047 §5 (3)
pub(super) const fn is_q_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'!' | b'*' | b'+' | b'-' | b'/')
}

/// Appends bytes in Q.
pub(super) fn encode_q(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b' ' => out.push('_'),
            byte if is_q_safe(*byte) => out.push(char::from(*byte)),
            byte => out.push_str(&format!("={byte:02X}")),
        }
    }
}
