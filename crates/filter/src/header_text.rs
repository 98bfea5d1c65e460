//! The text of a header field as a person sees it: encoded words decoded, raw 8-bit octets by a guessed charset.
//!
//! The guess looks at nothing but the field, so no other part of the message can steer it.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use mail::{Charset, encoded_word};

/// The text of a field, and what its spelling says about it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HeaderText {
    /// The text. May contain control characters, if the sender encoded some.
    pub text: String,
    /// Labels of the charsets of encoded words as they are spelt, each once.
    pub charsets: Vec<String>,
    /// The name of the charset that the guess found for raw 8-bit octets that are no UTF-8.
    pub guessed: Option<&'static str>,
    /// A charset is not known.
    pub has_unknown_charset: bool,
    /// Something was malformed, as [`encoded_word::Decoded::is_damaged`] says.
    pub is_damaged: bool,
}

/// Decodes the value of a field, folded or not.
///
/// ```
/// let subject = filter::header_text::decode(b"=?gb2312?B?xOO6ww==?=");
/// assert_eq!(subject.text, "\u{4f60}\u{597d}");
/// assert_eq!(subject.charsets, ["gb2312"]);
/// ```
#[must_use]
pub fn decode(value: &[u8]) -> HeaderText {
    let guess = if str::from_utf8(value).is_ok() { None } else { guess(value) };
    let decoded = encoded_word::decode(value, guess);
    let mut charsets: Vec<String> = Vec::new();
    for label in encoded_word::labels(value) {
        if !charsets.iter().any(|known| known.eq_ignore_ascii_case(label)) {
            charsets.push(label.to_owned());
        }
    }
    HeaderText {
        text: decoded.text,
        charsets,
        guessed: guess.map(Charset::name),
        has_unknown_charset: !decoded.unknown_charsets.is_empty(),
        is_damaged: decoded.is_damaged,
    }
}

/// Guesses the charset of octets that are no UTF-8.
pub(crate) fn guess(value: &[u8]) -> Option<Charset> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(value, true);
    Charset::for_label(detector.guess(None, Utf8Detection::Deny).name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn guessed(text: &str, label: &str) {
        let encoding = Charset::for_label(label).unwrap();
        let octets = encode(text, label);
        assert!(!encoding.decode(&octets).1);
        let found = decode(&octets);
        assert_eq!(found.text, text, "{label}: {:?}", found.guessed);
    }

    /// Encodes by trying out the code points of a charset of one or two octets.
    fn encode(text: &str, label: &str) -> Vec<u8> {
        let charset = Charset::for_label(label).unwrap();
        let singles = (0..=0xff_u8).map(|one| vec![one]);
        let pairs = (0x81..=0xfe_u8).flat_map(|one| (0x40..=0xfe_u8).map(move |two| vec![one, two]));
        let table: std::collections::HashMap<String, Vec<u8>> = pairs
            .chain(singles)
            .filter_map(|octets| {
                let (text, has_errors) = charset.decode(&octets);
                (!has_errors).then(|| (text.into_owned(), octets.clone()))
            })
            .collect();
        text.chars().flat_map(|c| table.get(&c.to_string()).cloned().unwrap()).collect()
    }

    #[test]
    fn raw_octets_are_guessed_within_the_field() {
        guessed("\u{7cbe}\u{54c1}\u{63a8}\u{9500}\u{ff0c}\u{8bf7}\u{67e5}\u{6536}", "gb2312");
        guessed("\u{5ee3}\u{544a}\u{4fe1}\u{4ef6}\u{8acb}\u{67e5}\u{6536}", "big5");
        guessed(
            "\u{41f}\u{440}\u{438}\u{433}\u{43b}\u{430}\u{448}\u{430}\u{435}\u{43c} \u{432}\u{430}\u{441}",
            "koi8-r",
        );
        guessed("Gr\u{fc}\u{df}e aus K\u{f6}ln", "windows-1252");
        assert_eq!(decode("\u{8bf7}".as_bytes()).guessed, None, "UTF-8 needs no guess");
    }

    // RFC 2047 §6.2 (test)
    #[test]
    fn the_spelling_is_told() {
        let found = decode(b"=?gb2312?B?xOO6ww==?= =?GB2312?Q?=C4=E3?= =?x-none?Q?a?=");
        assert_eq!(found.text, "\u{4f60}\u{597d}\u{4f60} =?x-none?Q?a?=");
        assert_eq!(found.charsets, ["gb2312", "x-none"]);
        assert!(found.has_unknown_charset && !found.is_damaged);
    }
}
