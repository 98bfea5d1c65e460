//! The two encodings inside an encoded word: B, which is base64, and Q, which resembles quoted-printable (RFC 2047 §4).

use crate::scan::hex_value;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the bytes of a B text; false when it is damaged: foreign characters (skipped) or a stray end.
// RFC 2047 §4.1
pub(super) fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut is_whole = true;
    let (mut group, mut bits) = (0_u32, 0_u32);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            // Padding ends a group; in the middle of a word it comes from joining words by hand.
            b'=' => {
                bits = 0;
                continue;
            }
            byte => {
                is_whole &= byte.is_ascii_whitespace();
                continue;
            }
        };
        group = (group << 6 | u32::from(value)) & 0xfff;
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

/// Appends bytes in base64, padded.
pub(crate) fn encode_base64(bytes: &[u8], out: &mut String) {
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        for (slot, byte) in group.iter_mut().skip(1).zip(chunk) {
            *slot = *byte;
        }
        let group = u32::from_be_bytes(group);
        for digit in 0..4 {
            let value = group >> (18 - 6 * digit) & 63;
            let letter = usize::try_from(value).ok().and_then(|value| BASE64.get(value)).copied().unwrap_or(b'=');
            out.push(char::from(if digit <= chunk.len() { letter } else { b'=' }));
        }
    }
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
