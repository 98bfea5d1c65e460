//! Base64 in the one alphabet of RFC 4648 §4: for writing AUTH, encoded words and bodies, and for reading AUTH.
//!
//! [`decode`] is strict. Two spellings of one secret would be a second password, so what the RFC lets a reader forgive
//! is refused: bits behind the end, missing padding, foreign characters. [`decode_forgiving`] reads encoded words and
//! bodies, which forgive all of it. No other variant, no streaming.

use base64ct::{Base64, Encoding as _};

/// Encodes `bytes`, padded.
pub fn encode(bytes: &[u8]) -> impl Iterator<Item = u8> + use<> {
    Base64::encode_string(bytes).into_bytes().into_iter()
}

/// Decodes `text`; `None` when it is not exactly what [`encode`] writes.
// RFC 4648 §3.2, §3.3, §3.5, §4: padding is required, other characters and stray bits are refused
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    Base64::decode_vec(std::str::from_utf8(text).ok()?).ok()
}

/// Appends the bytes of a text as readers of mail decode it; false when it is damaged: foreign characters (skipped)
/// or a stray end.
// RFC 2047 §4.1, RFC 2045 §6.8
pub fn decode_forgiving(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut is_whole = true;
    let (mut group, mut bits) = (0_u32, 0_u32);
    for byte in text {
        // Padding ends a group; in the middle of a word it comes from joining words by hand.
        if *byte == b'=' {
            bits = 0;
            continue;
        }
        let Some(six) = value(*byte) else {
            is_whole &= byte.is_ascii_whitespace();
            continue;
        };
        group = (group << 6 | six) & 0xfff;
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

/// Returns the six bits of a letter, for readers that forgive what [`decode`] refuses.
const fn value(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // RFC 4648 §10 (test)
    #[test]
    fn vectors() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()).collect::<Vec<u8>>(), coded.as_bytes());
            assert_eq!(decode(coded.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
    }

    // RFC 4648 §3.2 (test), RFC 4648 §3.3 (test), RFC 4648 §3.5 (test)
    #[test]
    fn what_is_refused() {
        for text in
            ["Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "=", "Zg==Zg==", "Zm 9v", "Zm9v\n", "Zm9_", "Z=g=", "*"]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn one_spelling_for_each_value(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "[A-Za-z0-9+/=]{0,12}") {
            let coded: Vec<u8> = encode(&bytes).collect();
            prop_assert_eq!(decode(&coded), Some(bytes));
            if let Some(decoded) = decode(text.as_bytes()) {
                prop_assert_eq!(encode(&decoded).collect::<Vec<u8>>(), text.as_bytes());
            }
        }
    }
}
