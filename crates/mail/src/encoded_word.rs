//! Text beyond ASCII in header fields: encoded words such as `=?gb2312?B?xOO6ww==?=` (RFC 2047), and the raw 8-bit text
//! that comes instead of them.
//!
//! [`decode`] turns the value of an unstructured field, or of a phrase, into the text a person would see, so that rules
//! and displays need not know about it. It never fails: text that cannot be decoded stays visible as it came, and
//! [`Decoded`] says so. [`encode`] writes our own fields. Time and output are linear in the input, whatever the input.
//! Not here: parameters of MIME fields (RFC 2231 §4), which have an encoding of their own.

mod encode;
mod transfer;

pub use encode::encode;

use crate::base64;
use crate::charset::Charset;
use crate::header::unfold;
use crate::scan::Scan;

/// The text of a field, and the faults on the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Decoded {
    /// The text. May contain control characters, if the sender encoded some.
    pub text: String,
    /// Labels of charsets that are not known; their words stand undecoded in the text.
    pub unknown_charsets: Vec<String>,
    /// Something was malformed: bytes that their charset does not have, broken base64, raw 8-bit text of unknown
    /// charset.
    pub is_damaged: bool,
}

/// Decodes the value of a field, folded or not.
///
/// ```
/// use mail::encoded_word::decode;
/// let subject = decode(b"=?gb2312?B?xOO6ww==?= =?x-none?Q?abc?=", None);
/// assert_eq!(subject.text, "\u{4f60}\u{597d} =?x-none?Q?abc?=");
/// assert_eq!(subject.unknown_charsets, ["x-none"]);
/// ```
///
/// Raw 8-bit text is taken as UTF-8 if it is that, else decoded by `fallback`, else replaced by U+FFFD.
// RFC 2047 §6.1, RFC 2047 §6.2 (gap: words are decoded anywhere in the value, also inside quoted strings and next to
// other text, since user agents show them so)
#[must_use]
pub fn decode(value: &[u8], fallback: Option<Charset>) -> Decoded {
    let value = unfold(value);
    let mut decoder = Decoder { out: Decoded::default(), fallback, pending: None };
    // Text before `done` is decoded; `at` is where to look for the next word.
    let (mut done, mut at) = (0, 0);
    let mut after_word = false;
    let slice = |from: usize, to: usize| value.get(from..to).unwrap_or_default();
    while let Some(start) = memchr::memmem::find(slice(at, value.len()), b"=?").map(|found| at + found) {
        let Some((word, len)) = EncodedWord::read(slice(start, value.len())) else {
            at = start + 1;
            continue;
        };
        let gap = slice(done, start);
        // RFC 2047 §6.2: white space between two encoded words is not shown
        if !(after_word && word.charset.is_some() && gap.iter().all(u8::is_ascii_whitespace)) {
            decoder.raw(gap);
        }
        match word.charset {
            Some(charset) => decoder.word(charset, &word),
            None => decoder.unknown(word.label, slice(start, start + len)),
        }
        after_word = word.charset.is_some();
        done = start + len;
        at = done;
    }
    decoder.raw(slice(done, value.len()));
    decoder.out
}

/// Lists the charset labels of the encoded words in a value as they are spelt, one for each word.
pub fn labels(value: &[u8]) -> impl Iterator<Item = &str> {
    memchr::memmem::find_iter(value, b"=?")
        .filter_map(|at| EncodedWord::read(value.get(at..)?))
        .map(|(word, _)| word.label)
}

/// An encoded word, taken apart.
struct EncodedWord<'a> {
    label: &'a str,
    charset: Option<Charset>,
    is_base64: bool,
    text: &'a [u8],
}

impl<'a> EncodedWord<'a> {
    /// Longest charset label and language tag, in octets; the whole word should not exceed 75.
    const LABEL_OCTETS_MAX: usize = 75;

    /// Reads the encoded word at the beginning of `bytes`, and tells its length.
    // RFC 2047 §2 (gap: words over 75 octets and spaces in the encoded text are accepted, both are common)
    // encoded-word = "=?" charset "?" encoding "?" encoded-text "?="
    fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut scan = Scan::new(bytes);
        let is_open = scan.take(b'=') && scan.take(b'?');
        let label = scan.take_while(|byte| byte.is_ascii_graphic() && byte != b'?');
        let fits = is_open && (1..=Self::LABEL_OCTETS_MAX).contains(&label.len()) && scan.take(b'?');
        let is_base64 = match scan.next().filter(|_| fits)? {
            b'B' | b'b' => true,
            b'Q' | b'q' => false,
            _ => return None,
        };
        if !scan.take(b'?') {
            return None;
        }
        let text = scan.take_while(|byte| byte != b'?');
        if !(scan.take(b'?') && scan.take(b'=')) {
            return None;
        }
        // RFC 2231 §5: charset "*" language
        let label = str::from_utf8(label).ok()?;
        let label = label.split_once('*').map_or(label, |(charset, _)| charset);
        Some((Self { label, charset: Charset::for_label(label), is_base64, text }, scan.at()))
    }
}

/// Collects the text. Neighbouring words of one charset are joined before decoding, because senders cut characters in
/// half.
struct Decoder {
    out: Decoded,
    fallback: Option<Charset>,
    pending: Option<(Charset, Vec<u8>)>,
}

impl Decoder {
    /// Takes an encoded word.
    fn word(&mut self, charset: Charset, word: &EncodedWord<'_>) {
        // RFC 2047 §5 forbids to cut characters in half; here it is forgiven
        if self.pending.as_ref().is_some_and(|(current, _)| *current != charset) {
            self.flush();
        }
        let (_, bytes) = self.pending.get_or_insert_with(|| (charset, Vec::new()));
        let is_whole = if word.is_base64 {
            base64::decode_forgiving(word.text, bytes)
        } else {
            transfer::decode_q(word.text, bytes)
        };
        self.out.is_damaged |= !is_whole;
    }

    /// Takes text that is not encoded.
    fn raw(&mut self, bytes: &[u8]) {
        self.flush();
        if let Ok(text) = str::from_utf8(bytes) {
            self.out.text.push_str(text);
            return;
        }
        let (text, has_errors) = self.fallback.unwrap_or(Charset::UTF_8).decode(bytes);
        self.out.text.push_str(&text);
        self.out.is_damaged |= has_errors;
    }

    /// Takes a word whose charset is not known; it is shown as it came.
    fn unknown(&mut self, label: &str, word: &[u8]) {
        self.flush();
        self.out.unknown_charsets.push(label.to_owned());
        self.out.text.push_str(&String::from_utf8_lossy(word));
    }

    fn flush(&mut self) {
        if let Some((charset, bytes)) = self.pending.take() {
            let (text, has_errors) = charset.decode(&bytes);
            self.out.text.push_str(&text);
            self.out.is_damaged |= has_errors;
        }
    }
}

#[cfg(test)]
mod tests;
