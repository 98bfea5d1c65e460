//! Quoted-printable and base64 for bodies (RFC 2045 §6.7, §6.8). Lines have at most 76 octets; none ends the last one,
//! since in a multipart that line end belongs to the boundary. No soft line break puts a dash at the beginning of a
//! line, where it could make a boundary of an outer multipart.

use crate::base64;

/// RFC 2045 §6.7 (5), without the `=` of a soft line break.
const LINE_OCTETS: usize = 75;
/// 57 octets are 76 letters (RFC 2045 §6.8).
const BASE64_OCTETS: usize = 57;

/// Appends octets in quoted-printable. CRLF stays a line end, any other CR or LF is encoded.
pub(crate) fn write_quoted_printable(octets: &[u8], out: &mut Vec<u8>) {
    let mut column = 0;
    let mut rest = octets;
    while let Some((byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\r\n") {
            out.extend_from_slice(b"\r\n");
            (column, rest) = (0, after);
            continue;
        }
        // RFC 2045 §6.7 (3): white space at the end of a line is lost
        let is_at_end = after.is_empty() || after.starts_with(b"\r\n");
        // Some programs change a line that begins with "From " for the mbox format, or stop at a single dot.
        let is_marked = column == 0 && (rest.starts_with(b"From ") || (*byte == b'.' && is_at_end));
        let mut is_literal = match byte {
            b' ' | b'\t' => !is_at_end,
            b'=' => false,
            b'!'..=b'~' => !is_marked,
            _ => false,
        };
        if column + if is_literal { 1 } else { 3 } > LINE_OCTETS {
            out.extend_from_slice(b"=\r\n");
            column = 0;
            is_literal &= *byte != b'-';
        }
        let needed = if is_literal { 1 } else { 3 };
        if is_literal {
            out.push(*byte);
        } else {
            push_escape(*byte, out);
        }
        column += needed;
        rest = after;
    }
}

/// Appends quoted-printable text whose 8-bit octets and NULs are escaped, as its decoders understood them before.
pub(super) fn mend_quoted_printable(text: &[u8], out: &mut Vec<u8>) {
    let mut column = 0;
    for byte in text {
        match byte {
            0 | 0x80.. => {
                if column + 3 > LINE_OCTETS {
                    out.extend_from_slice(b"=\r\n");
                    column = 0;
                }
                push_escape(*byte, out);
                column += 3;
            }
            b'\n' => {
                out.push(b'\n');
                column = 0;
            }
            byte => {
                out.push(*byte);
                column += 1;
            }
        }
    }
}

/// Appends quoted-printable text with soft line breaks in lines that are too long (RFC 2045 §6.7 (5)). No escape is
/// parted.
pub(super) fn wrap_quoted_printable(text: &[u8], out: &mut Vec<u8>) {
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = line.strip_suffix(b"\r\n").map_or(line.len(), <[u8]>::len);
        let (mut rest, newline) = line.split_at_checked(end).unwrap_or((line, &[]));
        let mut column = 0;
        while column + rest.len() > LINE_OCTETS + 1 {
            let room = LINE_OCTETS - column;
            let escape = rest.get(room - 2..room).unwrap_or_default();
            let parted = escape.iter().rev().position(|byte| *byte == b'=').map_or(0, |back| back + 1);
            let (piece, after) = rest.split_at_checked(room - parted).unwrap_or((rest, &[]));
            out.extend_from_slice(piece);
            out.extend_from_slice(b"=\r\n");
            (column, rest) = (0, after);
            if let Some(after) = rest.strip_prefix(b"-") {
                push_escape(b'-', out);
                (column, rest) = (3, after);
            }
        }
        out.extend_from_slice(rest);
        out.extend_from_slice(newline);
    }
}

/// Whether text is base64 and nothing else.
pub(super) fn is_base64(text: &[u8]) -> bool {
    text.iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\r' | b'\n' | b' ' | b'\t'))
}

/// Appends base64 in lines of 76 letters.
// RFC 2045 §6.8: decoders pass over line ends
pub(super) fn wrap_base64(text: &[u8], out: &mut Vec<u8>) {
    let letters: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let mut lines = letters.chunks(LINE_OCTETS + 1).peekable();
    while let Some(line) = lines.next() {
        out.extend_from_slice(line);
        if lines.peek().is_some() {
            out.extend_from_slice(b"\r\n");
        }
    }
    if text.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether text is at least as short in quoted-printable as in base64, and better for those who read it raw.
pub(super) fn prefers_quoted_printable(text: &[u8]) -> bool {
    let escapes = text.iter().filter(|byte| !byte.is_ascii() || **byte == 0 || **byte == b'=').count();
    escapes <= text.len() / 6
}

/// Appends octets in base64.
pub(crate) fn write_base64(octets: &[u8], out: &mut Vec<u8>) {
    let mut lines = octets.chunks(BASE64_OCTETS).peekable();
    while let Some(chunk) = lines.next() {
        out.extend(base64::encode(chunk));
        if lines.peek().is_some() {
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn push_escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push(b'=');
    out.extend([byte >> 4, byte & 15].iter().filter_map(|nibble| DIGITS.get(usize::from(*nibble))));
}
