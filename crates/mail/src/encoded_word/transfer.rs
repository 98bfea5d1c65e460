//! The two encodings inside an encoded word: B, which is base64, and Q, which resembles quoted-printable (RFC 2047 §4).

use crate::base64;
use crate::scan::hex_value;

/// Appends the bytes of a B text; false when it is damaged: foreign characters (skipped) or a stray end.
// RFC 2047 §4.1
pub(super) fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut is_whole = true;
    let (mut group, mut bits) = (0_u32, 0_u32);
    for byte in text {
        // Padding ends a group; in the middle of a word it comes from joining words by hand.
        if *byte == b'=' {
            bits = 0;
            continue;
        }
        let Some(value) = base64::value(*byte) else {
            is_whole &= byte.is_ascii_whitespace();
            continue;
        };
        group = (group << 6 | value) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            let [.., byte] = (group >> bits).to_be_bytes();
            out.push(byte);
        }
    }
    // Six leftover bits are a character that begins a byte and does not finish it.
    is_whole && bits < 6
}

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
