//! A multipart taken apart at its boundary and put together again with its parts converted (RFC 2046 §5.1).

use super::{EntityContext, Reason, entity};

/// Appends a multipart body. Delimiter lines are copied as they are. If 8-bit octets are left in a part, it says why.
///
/// # Errors
/// The body has no delimiter line.
pub(super) fn write(
    body: &[u8],
    boundary: &[u8],
    parts: EntityContext,
    out: &mut Vec<u8>,
) -> Result<Option<Reason>, Reason> {
    let delimiter = [b"--", boundary].concat();
    let finder = memchr::memmem::Finder::new(&delimiter);
    let mut lines = finder.find_iter(body).filter_map(|at| Delimiter::at(body, at, delimiter.len()));

    let Some(mut line) = lines.next() else { return Err(Reason::Malformed) };
    // Where 8-bit octets may stay, they stay here too.
    let ignored = if parts.line_max.is_some() { write_as_is } else { write_ignored };
    ignored(body.get(..line.start).unwrap_or_default(), out);
    let mut left = None;
    loop {
        out.extend_from_slice(body.get(line.start..line.end).unwrap_or_default());
        if line.closes {
            ignored(body.get(line.end..).unwrap_or_default(), out);
            return Ok(left);
        }
        // RFC 2046 §5.1.2: a multipart that is cut off ends with its last part
        let next = lines.next();
        let behind = next.map_or(body.len(), |next| next.start);
        // RFC 2046 §5.1.1: the line end before a delimiter belongs to it. Between two delimiter lines there is but one.
        let end = next.map_or(behind, |next| next.start - next.line_end_before).max(line.end);
        left = entity(body.get(line.end..end).unwrap_or_default(), parts, out).or(left);
        out.extend_from_slice(body.get(end..behind).unwrap_or_default());
        match next {
            Some(next) => line = next,
            None => return Ok(left),
        }
    }
}

/// A delimiter line.
#[derive(Clone, Copy)]
struct Delimiter {
    /// Where its `--` stands.
    start: usize,
    /// Behind its CRLF.
    end: usize,
    closes: bool,
    /// Octets of the line end before it; none at the beginning of the body.
    line_end_before: usize,
}

impl Delimiter {
    /// Returns the delimiter line at `start`, if there is one.
    // RFC 2046 §5.1.1 (gap: a line that goes on after the boundary is none, although the text allows to take it for
    // one: boundaries of nested multiparts that begin alike are common)
    fn at(body: &[u8], start: usize, len: usize) -> Option<Self> {
        let before = body.get(..start)?;
        if !(before.is_empty() || before.ends_with(b"\r\n")) {
            return None;
        }
        let behind = body.get(start + len..)?;
        let closes = behind.starts_with(b"--");
        let padding = behind.get(if closes { 2 } else { 0 }..)?;
        let spaces = padding.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let line_end = padding.get(spaces..)?;
        let line_end_octets = if line_end.is_empty() {
            0
        } else if line_end.starts_with(b"\r\n") {
            2
        } else {
            return None;
        };
        let end = body.len() - line_end.len() + line_end_octets;
        Some(Self { start, end, closes, line_end_before: before.len().min(2) })
    }
}

fn write_as_is(octets: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(octets);
}

/// Appends what stands before the first part or behind the last: readers pass over it, and nothing can encode it.
fn write_ignored(octets: &[u8], out: &mut Vec<u8>) {
    out.extend(octets.iter().map(|byte| if byte.is_ascii() && *byte != 0 { *byte } else { b'?' }));
}
