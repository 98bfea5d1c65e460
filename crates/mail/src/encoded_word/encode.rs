//! Writing encoded words for the fields that mailrace makes itself: bounces, digests, list headers.

use std::borrow::Cow;

use super::transfer::{encode_q, is_q_safe};
use crate::base64;

/// RFC 2047 §2: the longest line that contains an encoded word.
const LINE_OCTETS_MAX: usize = 76;
const FRAME: usize = "=?utf-8?B??=".len();
/// A long field name gives the first word less room, but not less than this.
const FIRST_PAYLOAD_MIN: usize = 12;

/// Writes text so that it may stand in a field whose line already holds `line_octets` (name, colon, space), in an
/// unstructured value or as a display name without quotes.
///
/// Printable ASCII is returned unchanged, even if long; it is the caller's to quote and fold. Anything else becomes
/// encoded words in UTF-8, B or Q whichever is shorter, folded with CRLF and a space. [`super::decode`] gives the same
/// text back.
#[must_use]
pub fn encode(text: &str, line_octets: usize) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.contains("=?") {
        return Cow::Borrowed(text);
    }
    let q_octets = |byte: u8| if is_q_safe(byte) || byte == b' ' { 1 } else { 3 };
    let is_base64 = text.len().div_ceil(3) * 4 < text.bytes().map(q_octets).sum();

    let mut out = String::new();
    let mut rest = text;
    let mut payload_max = LINE_OCTETS_MAX.saturating_sub(line_octets + FRAME).max(FIRST_PAYLOAD_MIN);
    while !rest.is_empty() {
        let bytes_max = if is_base64 {
            payload_max / 4 * 3
        } else {
            let sums = rest.bytes().scan(0, |octets, byte| {
                *octets += q_octets(byte);
                Some(*octets)
            });
            sums.take_while(|octets| *octets <= payload_max).count()
        };
        // RFC 2047 §5: no character is cut in half. Every word has room for one of four bytes, so each takes some.
        let (piece, after) = rest.split_at(rest.floor_char_boundary(bytes_max));
        out.push_str(if is_base64 { "=?utf-8?B?" } else { "=?utf-8?Q?" });
        if is_base64 {
            out.extend(base64::encode(piece.as_bytes()).map(char::from));
        } else {
            encode_q(piece.as_bytes(), &mut out);
        }
        out.push_str("?=");
        rest = after;
        if !rest.is_empty() {
            out.push_str("\r\n ");
        }
        payload_max = LINE_OCTETS_MAX - " ".len() - FRAME;
    }
    Cow::Owned(out)
}
