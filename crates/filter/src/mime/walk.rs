//! The walk over delimiter lines.

use mail::header::{HeaderSection, Item, LineEnd};
use memchr::memmem;

use super::{Content, Damage, DamageSet, Part, Tree};
use crate::Limits;

/// Lists the parts of a message.
///
/// ```
/// use mail::header::LineEnd;
/// let message = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nHello\r\n--b--\r\n";
/// let tree = filter::mime::walk(message, LineEnd::Crlf, &filter::Limits::default());
/// assert_eq!(tree.parts.len(), 2);
/// assert_eq!(&message[tree.parts[1].body.clone()], b"Hello");
/// assert!(tree.damage().is_empty());
/// ```
///
/// Time is linear in the message for a fixed depth. Nothing panics.
#[must_use]
pub fn walk(message: &[u8], line_end: LineEnd, limits: &Limits) -> Tree {
    let mut walk = Walk { message, line_end, limits, parts: Vec::new(), open: Vec::new(), limits_reached: Vec::new() };
    walk.begin_part(0, None);
    if !walk.open.is_empty() {
        walk.follow_delimiters();
    }
    walk.close_down_to(0, message.len(), Some(Damage::Unterminated));
    Tree { parts: walk.parts, limits_reached: walk.limits_reached }
}

/// A multipart that waits for its next delimiter.
struct Open {
    /// Its index among the parts.
    part: usize,
    boundary: Vec<u8>,
    /// Parts that it has so far.
    children: usize,
    /// The closing delimiter was seen: the rest is ignored text.
    is_closed: bool,
}

struct Walk<'a> {
    message: &'a [u8],
    line_end: LineEnd,
    limits: &'a Limits,
    parts: Vec<Part>,
    open: Vec<Open>,
    limits_reached: Vec<&'static str>,
}

impl Walk<'_> {
    fn reach(&mut self, limit: &'static str) {
        if !self.limits_reached.contains(&limit) {
            self.limits_reached.push(limit);
        }
    }

    /// Reads the header section at `at`, and those of the messages embedded there, and opens a multipart.
    fn begin_part(&mut self, at: usize, parent: Option<usize>) {
        let (mut at, mut parent) = (at, parent);
        loop {
            if self.parts.len() >= self.limits.parts_max {
                return self.reach("parts");
            }
            let depth = parent.and_then(|index| self.parts.get(index)).map_or(0, |parent| parent.depth + 1);
            if depth > self.limits.depth_max {
                return self.reach("depth");
            }
            let index = self.read_part(at, parent, depth);
            let Some(part) = self.parts.get_mut(index) else { return };
            if (part.content.is_multipart() || part.content.is_message()) && !part.content.encoding_is_transparent() {
                // RFC 2045 §6.4: such an encoding is forbidden
                part.damage.add(Damage::EncodedStructure);
                return;
            }
            if part.content.is_message() {
                (at, parent) = (part.body.start, Some(index));
                continue;
            }
            if let Some(boundary) = part.content.boundary.clone() {
                self.open.push(Open { part: index, boundary, children: 0, is_closed: false });
            }
            return;
        }
    }

    /// Adds the part whose header section begins at `at`; its body has no end yet.
    fn read_part(&mut self, at: usize, parent: Option<usize>, depth: usize) -> usize {
        let mut damage = DamageSet::default();
        let rest = self.message.get(at..).unwrap_or_default();
        let readable = rest.get(..self.limits.header_bytes_max).unwrap_or(rest);
        // A multipart that ends inside a header section ends the section too.
        let readable = self.up_to_delimiter(readable);
        let mut header = HeaderSection::read(readable, self.line_end);
        if self.line_end == LineEnd::Crlf && !header.is_closed() {
            // A delimiter after a bare line feed may stand before such a section.
            let forgiving = HeaderSection::read(readable, LineEnd::CrlfOrLf);
            if forgiving.is_closed() {
                header = forgiving;
            }
        }
        if !header.is_closed() && readable.len() == self.limits.header_bytes_max {
            self.reach("header bytes");
        }
        let mut fields = 0;
        for item in header.items() {
            fields += 1;
            if let Item::Malformed(lines) = item {
                damage.add_if(lines.raw().iter().any(u8::is_ascii_graphic), Damage::MalformedHeader);
            }
        }
        if fields > self.limits.fields_max {
            self.reach("fields");
        }
        let of_parent = parent.and_then(|index| self.parts.get(index));
        let is_in_digest =
            of_parent.is_some_and(|part| part.content.is_multipart() && part.content.subtype == "digest");
        let content = Content::read(&header, is_in_digest, &mut damage);
        let siblings = self.open.last().filter(|open| Some(open.part) == parent).map_or(1, |open| open.children);
        let number = match of_parent {
            None => String::new(),
            Some(parent) if parent.number.is_empty() => siblings.to_string(),
            Some(parent) => format!("{}.{siblings}", parent.number),
        };
        let body = at + header.body_offset();
        let end = self.message.len();
        self.parts.push(Part {
            parent,
            depth,
            number,
            header: at..at + header.as_bytes().len(),
            body: body..end,
            content,
            damage,
        });
        self.parts.len() - 1
    }

    /// Cuts a header section at the first delimiter line of an open multipart.
    fn up_to_delimiter<'b>(&self, section: &'b [u8]) -> &'b [u8] {
        if self.open.is_empty() {
            return section;
        }
        let ends_before = memmem::find_iter(section, b"--").find(|at| {
            let starts_line = *at == 0 || section.get(at - 1) == Some(&b'\n');
            let line = section.get(at + 2..).unwrap_or_default();
            starts_line && self.open.iter().any(|open| Delimiter::read(line, &open.boundary).is_some())
        });
        section.get(..ends_before.unwrap_or(section.len())).unwrap_or_default()
    }

    fn follow_delimiters(&mut self) {
        let message = self.message;
        // Behind the header section of the multipart, which may be in embedded messages.
        let mut at = self.parts.last().map_or(0, |part| part.body.start);
        while let Some(found) = memmem::find(message.get(at..).unwrap_or_default(), b"--").map(|found| at + found) {
            at = found + 2;
            let starts_line = found == 0 || message.get(found - 1) == Some(&b'\n');
            if !starts_line {
                continue;
            }
            let line = message.get(found + 2..).unwrap_or_default();
            let innermost = self.open.iter().enumerate().rev();
            let read = innermost.filter_map(|(level, open)| Some((level, Delimiter::read(line, &open.boundary)?)));
            // An exact line of an outer multipart counts before a longer line of an inner one.
            let mut read: Vec<(usize, Delimiter)> = read.collect();
            read.sort_by_key(|(_, delimiter)| delimiter.is_ambiguous);
            let Some((level, delimiter)) = read.into_iter().next() else { continue };
            if let Some(body_at) = self.take(level, found, &delimiter) {
                at = body_at;
            }
        }
    }

    /// Takes a delimiter line that begins at `start` for the open multipart of `level`; returns where the body behind
    /// it begins.
    fn take(&mut self, level: usize, start: usize, delimiter: &Delimiter) -> Option<usize> {
        let before = self.message.get(..start).unwrap_or_default();
        let has_crlf = before.ends_with(b"\r\n") || before.is_empty();
        let (part, is_closed) = self.open.get(level).map(|open| (open.part, open.is_closed))?;
        // RFC 2046 §5.1.1: text behind the closing delimiter is to be ignored
        if is_closed {
            return None;
        }
        let is_bare =
            self.line_end == LineEnd::Crlf && !delimiter.is_ambiguous && !(has_crlf && delimiter.ends_with_crlf);
        if let Some(part) = self.parts.get_mut(part) {
            part.damage.add_if(delimiter.is_ambiguous, Damage::AmbiguousDelimiter);
            part.damage.add_if(is_bare, Damage::BareLineFeed);
        }
        if delimiter.is_ambiguous {
            return None;
        }
        // RFC 2046 §5.1.1: the line end before a delimiter belongs to it
        let end = start - if before.ends_with(b"\r\n") { 2 } else { usize::from(before.ends_with(b"\n")) };
        self.close_down_to(level + 1, end, Some(Damage::Unterminated));
        self.end_children(part, end);
        let open = self.open.get_mut(level)?;
        let behind = start + 2 + delimiter.octets;
        if delimiter.closes {
            open.is_closed = true;
            // An empty multipart has no part, and the delimiter was there.
            open.children += 1;
            return Some(behind);
        }
        open.children += 1;
        let parts = self.parts.len();
        self.begin_part(behind, Some(part));
        // The part behind a limit is passed over.
        Some(self.parts.get(parts..).and_then(<[Part]>::last).map_or(behind, |part| part.body.start))
    }

    /// Ends the multiparts above `level` at `end`.
    fn close_down_to(&mut self, level: usize, end: usize, damage: Option<Damage>) {
        while self.open.len() > level {
            let Some(open) = self.open.pop() else { return };
            self.end_children(open.part, end);
            let Some(part) = self.parts.get_mut(open.part) else { continue };
            if open.children == 0 {
                part.damage.add(Damage::NoDelimiter);
            } else if let Some(damage) = damage.filter(|_| !open.is_closed) {
                part.damage.add(damage);
            }
        }
    }

    /// Ends the last part inside `parent`, and what it holds, at `end`.
    fn end_children(&mut self, parent: usize, end: usize) {
        // Each delimiter ends the parts since the last one; earlier parts are complete.
        for part in self.parts.iter_mut().skip(parent + 1).rev() {
            if part.body.end <= end {
                break;
            }
            part.body.end = end.max(part.body.start);
        }
    }
}

/// A line that begins with `--` and a boundary.
struct Delimiter {
    /// Octets behind the `--`, line end included.
    octets: usize,
    closes: bool,
    ends_with_crlf: bool,
    /// Text follows on the line.
    is_ambiguous: bool,
}

impl Delimiter {
    /// Reads a line behind its `--`.
    // RFC 2046 §5.1.1 (gap: a line that goes on after the boundary is none, although the text allows to take it for
    // one: boundaries of nested multiparts that begin alike are common)
    fn read(line: &[u8], boundary: &[u8]) -> Option<Self> {
        let behind = line.strip_prefix(boundary)?;
        let closes = behind.starts_with(b"--");
        let padding = behind.get(if closes { 2 } else { 0 }..).unwrap_or_default();
        let spaces = padding.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let end = padding.get(spaces..).unwrap_or_default();
        let line_end_octets = if end.starts_with(b"\r\n") { 2 } else { usize::from(end.starts_with(b"\n")) };
        let is_ambiguous = !end.is_empty() && line_end_octets == 0;
        Some(Self {
            octets: line.len() - end.len() + line_end_octets,
            closes,
            ends_with_crlf: end.is_empty() || line_end_octets == 2,
            is_ambiguous,
        })
    }
}

#[cfg(test)]
mod tests;
