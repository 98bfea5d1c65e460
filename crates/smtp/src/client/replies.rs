//! Reads replies from pieces of input.
//!
//! A reply that lies whole in the input is used where it is; only one that comes in pieces or breaks the form is
//! copied. Every octet is looked at once.
//!
//! The code decides what becomes of mail, so a reply counts if its code can be read. The reader skips lines without a
//! code, cuts long lines and long replies, and takes a tab or text directly behind the code. The first code of a reply
//! decides, also where its other lines have another. Only a reply of more than `reply_octets` ends the conversation,
//! and after STARTTLS each line that breaks the form.

use mail::{Reply, ReplyCode};
use memchr::memchr;

use super::settings::ClientLimits;
use super::step::Loss;

/// Limits of the part of a reply that becomes a value. The value says how much is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    lines: usize,
    octets: usize,
}

impl Room {
    /// For a reply that people read: in the log, in a report, in the queue.
    const USUAL: Self = Self { lines: 20, octets: 4 << 10 };
    /// Enough to tell one reply from another.
    const LITTLE: Self = Self { lines: 4, octets: 512 };
    /// Octets that the replies to single recipients of a transaction may have; the others have little.
    const ALL_OCTETS: usize = 64 << 10;

    /// For a reply whose every line counts, as far as the reader keeps it.
    pub(super) const fn all(limits: &ClientLimits) -> Self {
        Self { lines: limits.reply_lines, octets: limits.reply_octets }
    }

    /// For one more reply to a recipient, when those before have so many octets.
    pub(super) const fn beside(octets: usize) -> Self {
        if octets < Self::ALL_OCTETS { Self::USUAL } else { Self::LITTLE }
    }
}

/// A whole reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    /// The code of its first line, which counts for all.
    pub(super) code: ReplyCode,
    /// The reader skipped lines without a code before it, or in it.
    pub(super) is_behind_noise: bool,
    octets: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The reply as a value, or its beginning.
    pub(super) fn reply(&self) -> Reply {
        self.reply_in(Room::USUAL)
    }

    /// As much of the reply as there is room for.
    pub(super) fn reply_in(&self, room: Room) -> Reply {
        // The reader takes no line that the parser refuses; if it did, the code alone counts.
        let reply = Reply::parse_beginning(self.octets, room.lines, room.octets);
        reply.unwrap_or_else(|_| Reply::new(self.code, None, ""))
    }

    /// Its lines without codes and line ends.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let octets = self.octets.strip_suffix(b"\n").unwrap_or(self.octets);
        octets.split(|octet| *octet == b'\n').map(|line| line.get(4..).unwrap_or_default().trim_ascii_end())
    }
}

/// How the reader takes input that is not a reply by the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Lines without a code are skipped, and lines that are long or end oddly are read as they are meant.
    Lenient,
    /// The first octets that are no reply are an error: behind STARTTLS an attacker may have put them there.
    Strict,
}

/// The reply that has not yet ended.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// Whole lines of the reply, as the parser takes them.
    held: Vec<u8>,
    /// The line that has not ended, cut where it is too long.
    partial: Vec<u8>,
    /// The code of the first line that has one. It decides for all lines.
    code: Option<ReplyCode>,
    lines: usize,
    /// Octets since the last reply, skipped ones included.
    octets: usize,
    /// Lines without a code since the last reply.
    skipped: usize,
    /// The held reply was given out.
    is_given: bool,
}

impl ReplyReader {
    /// Uses input up to the end of a reply, or all of it. An error names the fault: the input is larger than a reply
    /// may be, or breaks the form and `form` is strict.
    pub(super) fn read<'a>(
        &'a mut self,
        input: &'a [u8],
        form: Form,
        limits: &ClientLimits,
    ) -> Result<(usize, Option<Raw<'a>>), &'static str> {
        if self.is_given {
            self.clear();
        }
        // While the reply lies in the input by the book, it begins at `from` and is copied nowhere.
        let mut is_in_place = self.held.is_empty() && self.partial.is_empty();
        let (mut from, mut used) = (0, 0);
        while let Some(rest) = input.get(used..)
            && let Some(end) = memchr(b'\n', rest)
        {
            let piece = rest.get(..=end).unwrap_or(rest);
            let line_at = used;
            used += piece.len();
            self.count(piece.len(), limits)?;
            let whole = self.completed(piece, limits);
            let line = ReplyLine::read(whole.as_deref().unwrap_or(piece));
            let Some(line) = line.filter(|line| form == Form::Lenient || line.is_plain_for(self.code)) else {
                if form == Form::Strict {
                    return Err("a line is no reply");
                }
                self.skipped += 1;
                // In front of the reply it is passed over; within the reply the lines before it move together.
                if self.code.is_some() && is_in_place {
                    self.held.extend_from_slice(input.get(from..line_at).unwrap_or_default());
                    is_in_place = false;
                }
                from = if is_in_place { used } else { from };
                continue;
            };
            let is_plain = line.is_plain_for(self.code) && piece.len() <= limits.reply_line_octets;
            let code = *self.code.get_or_insert(line.code);
            self.lines += 1;
            // The last line ends the reply also where lines before it are left out.
            let is_kept = line.is_last || self.lines < limits.reply_lines;
            if is_in_place && !(is_plain && is_kept) {
                self.held.extend_from_slice(input.get(from..line_at).unwrap_or_default());
                is_in_place = false;
            }
            if !is_in_place && is_kept {
                push_line(&mut self.held, code, &line, limits.reply_line_octets);
            }
            if line.is_last {
                self.is_given = true;
                let octets = if is_in_place { input.get(from..used).unwrap_or(input) } else { &self.held };
                return Ok((used, Some(Raw { code, is_behind_noise: self.skipped > 0, octets })));
            }
        }
        if is_in_place {
            self.held.extend_from_slice(input.get(from..used).unwrap_or_default());
        }
        let rest = input.get(used..).unwrap_or_default();
        self.count(rest.len(), limits)?;
        self.partial.extend_from_slice(cut(rest, kept_octets(limits).saturating_sub(self.partial.len())));
        Ok((input.len(), None))
    }

    /// The line that `piece` ends, if its beginning came before.
    fn completed(&mut self, piece: &[u8], limits: &ClientLimits) -> Option<Vec<u8>> {
        if self.partial.is_empty() {
            return None;
        }
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(cut(piece, kept_octets(limits).saturating_sub(line.len())));
        Some(line)
    }

    /// Whether lines without a code came where a reply is awaited.
    pub(super) fn has_only_noise(&self) -> bool {
        !self.is_given && self.code.is_none() && self.skipped > 0
    }

    /// The loss of a reply that is missing: lines without a code in its place say more than that it is missing.
    pub(super) fn loss(&self, loss: Loss) -> Loss {
        if self.has_only_noise() { Loss::Protocol("it sends lines without a reply code") } else { loss }
    }

    /// The reply whose last line has a code and no line end, when the input has ended.
    pub(super) fn read_unfinished(&mut self, limits: &ClientLimits) -> Option<Raw<'_>> {
        if self.is_given {
            return None;
        }
        let partial = std::mem::take(&mut self.partial);
        // Four octets: of fewer, more could have followed that decide.
        let line = ReplyLine::read(&partial).filter(|line| line.is_last && partial.len() > 3)?;
        let code = *self.code.get_or_insert(line.code);
        push_line(&mut self.held, code, &line, limits.reply_line_octets);
        self.is_given = true;
        Some(Raw { code, is_behind_noise: self.skipped > 0, octets: &self.held })
    }

    fn count(&mut self, octets: usize, limits: &ClientLimits) -> Result<(), &'static str> {
        self.octets = self.octets.saturating_add(octets);
        if self.octets > limits.reply_octets { Err("a reply is too long") } else { Ok(()) }
    }

    /// Forgets a reply that was given out, when nothing follows it.
    pub(super) fn release(&mut self) {
        if self.is_given {
            self.clear();
        }
    }

    fn clear(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.clear();
        // A server that once said much need not cost its memory for hours.
        held.shrink_to(1_024);
        *self = Self { held, ..Self::default() };
    }
}

/// A line that has a code.
#[derive(Clone, Copy, Debug)]
struct ReplyLine<'a> {
    code: ReplyCode,
    is_last: bool,
    /// The code is followed by nothing, a space or a hyphen.
    is_plain: bool,
    text: &'a [u8],
}

impl<'a> ReplyLine<'a> {
    /// Reads a line with or without its line end; `None` if it has no code.
    // RFC 5321 §4.2: a client takes a code alone, with a space, or with a hyphen where lines follow
    // RFC 5321 §2.3.8 (gap: a line of a reply may end with LF alone; servers that do so are old and harmless)
    // RFC 5321 §4.2 (gap: a tab or text directly behind the code is taken for a last line; such servers exist)
    fn read(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (digits, text) = line.split_first_chunk::<3>()?;
        let number = digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit.wrapping_sub(b'0')));
        let code = ReplyCode::new(number).filter(|_| digits.iter().all(u8::is_ascii_digit))?;
        let (is_last, is_plain, text) = match text.split_first() {
            None => (true, true, text),
            Some((b' ', text)) => (true, true, text),
            Some((b'-', text)) => (false, true, text),
            Some((b'\t', text)) => (true, false, text),
            // A number of more digits is no code.
            Some((b'0'..=b'9', _)) => return None,
            Some(_) => (true, false, text),
        };
        Some(Self { code, is_last, is_plain, text })
    }

    /// Whether the line goes behind lines of a code as it is.
    // RFC 5321 §4.2.1: the code of all lines is the same
    fn is_plain_for(&self, before: Option<ReplyCode>) -> bool {
        self.is_plain && before.is_none_or(|before| before == self.code)
    }
}

/// Octets kept of a line that comes in pieces. Two more than of its text: a CR that the cut brings to the end is text,
/// and a reader that took it for half a line end would leave less of the line than one that has it whole.
fn kept_octets(limits: &ClientLimits) -> usize {
    limits.reply_line_octets.saturating_add(2)
}

/// Appends a line in the form of the book, cut at `octets_max` without its line end.
fn push_line(held: &mut Vec<u8>, code: ReplyCode, line: &ReplyLine<'_>, octets_max: usize) {
    held.extend_from_slice(code.to_string().as_bytes());
    held.push(if line.is_last { b' ' } else { b'-' });
    held.extend_from_slice(cut(line.text, octets_max.saturating_sub(4)));
    held.extend_from_slice(b"\r\n");
}

/// The beginning of octets, at most so many.
fn cut(octets: &[u8], max: usize) -> &[u8] {
    octets.get(..max).unwrap_or(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(
        form: Form,
        input: &[u8],
        piece: usize,
        limits: &ClientLimits,
    ) -> Result<Vec<(u16, String)>, &'static str> {
        let mut reader = ReplyReader::default();
        let mut out = Vec::new();
        for piece in input.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let (used, found) = reader.read(rest, form, limits)?;
                if let Some(raw) = found {
                    let lines: Vec<String> = raw.lines().map(|line| line.escape_ascii().to_string()).collect();
                    assert_eq!(raw.reply().code(), raw.code);
                    assert!(Reply::parse(raw.octets, usize::MAX).is_ok(), "{}", raw.octets.escape_ascii());
                    out.push((raw.code.get(), lines.join("|")));
                }
                rest = &rest[used..];
            }
        }
        Ok(out)
    }

    fn read(input: &[u8], piece: usize, limits: &ClientLimits) -> Result<Vec<(u16, String)>, &'static str> {
        read_as(Form::Lenient, input, piece, limits)
    }

    // RFC 5321 §4.2 (test)
    #[test]
    fn replies_in_any_pieces() {
        let input = b"220 mx.test ESMTP\r\n250-a\r\n250-\r\n250 b \xff\n550\r\n250-c\n250\n354 \r\n421 x";
        let wanted = [(220, "mx.test ESMTP"), (250, "a||b \\xff"), (550, ""), (250, "c|"), (354, "")]
            .map(|(a, b)| (a, b.to_owned()));
        for form in [Form::Lenient, Form::Strict] {
            for piece in 1..input.len() + 1 {
                let read = read_as(form, input, piece, &ClientLimits::default()).unwrap();
                assert_eq!(read, wanted, "in pieces of {piece}");
            }
        }
    }

    /// Input that breaks the form, and the replies read from it in pieces of any size.
    #[test]
    fn the_first_code_decides_in_every_form() {
        let limits =
            ClientLimits { reply_line_octets: 24, reply_lines: 3, reply_octets: 200, ..ClientLimits::default() };
        type Case<'a> = (&'a [u8], &'a [(u16, &'a str)]);
        let cases: [Case<'_>; 16] = [
            (b"hello\r\n220 mx\r\n", &[(220, "mx")]),
            (b"\r\n\n \r\n220 mx\r\n", &[(220, "mx")]),
            (b"25\r\n2500 x\r\n199 x\r\n600 x\r\n2a0 x\r\n:50 x\r\n\xb2\xb5\xb0 x\r\n250 ok\r\n", &[(250, "ok")]),
            (b"250\tok\r\n", &[(250, "ok")]),
            (b"250ok\r\n550_no\r\n", &[(250, "ok"), (550, "_no")]),
            (b"250-hop\r\nSIZE\r\n250 OK\r\n", &[(250, "hop|OK")]),
            (b"250-hop\r\n\r\n250-a\r\n\r\n250 OK\r\n220 x\r\n", &[(250, "hop|a|OK"), (220, "x")]),
            (b"250-ok\r\n251 forwards\r\n", &[(250, "ok|forwards")]),
            (b"550-no\r\n250-a\r\n250 b\r\n250 c\r\n", &[(550, "no|a|b"), (250, "c")]),
            (b"250 0123456789012345678901234567890\r\n354 x\r\n", &[(250, "01234567890123456789"), (354, "x")]),
            (b"250-0123456789012345678901234567890\r\n250 x\r\n", &[(250, "01234567890123456789|x")]),
            (b"250-a\r\n250-b\r\n250-c\r\n250-d\r\n250 e\r\n550 f\r\n", &[(250, "a|b|e"), (550, "f")]),
            (b"250-a\r\n250-b\r\n250 c\r\n", &[(250, "a|b|c")]),
            (b"noise that is longer than a line may be\r\n250 ok\r\n", &[(250, "ok")]),
            (b"noise\r\n250-a\r\nnoise\r\n250\tb\r\n550\r\n", &[(250, "a|b"), (550, "")]),
            (b"250\r\n250-\r\n250-\r\n250\r\n", &[(250, ""), (250, "||")]),
        ];
        for (input, wanted) in cases {
            for piece in 1..=input.len() {
                let read = read(input, piece, &limits).unwrap();
                let read: Vec<(u16, &str)> = read.iter().map(|(code, text)| (*code, text.as_str())).collect();
                assert_eq!(read, wanted, "{} in pieces of {piece}", input.escape_ascii());
            }
        }
    }

    /// A CR at the place of the cut is text, however the line comes.
    #[test]
    fn a_line_is_cut_alike_in_any_pieces() {
        let limits = ClientLimits { reply_line_octets: 24, ..ClientLimits::default() };
        for crs in 0..10 {
            let line = format!("250 0123456789012345{}x{}x\r\n", "\r".repeat(crs), "\r".repeat(6));
            let cut = format!("{}\r\n", &line[..24]);
            for piece in 1..=line.len() {
                let mut reader = ReplyReader::default();
                let mut read = None;
                for piece in line.as_bytes().chunks(piece) {
                    let (_, raw) = reader.read(piece, Form::Lenient, &limits).unwrap();
                    read = raw.map(|raw| raw.octets.escape_ascii().to_string());
                }
                assert_eq!(read, Some(cut.as_bytes().escape_ascii().to_string()), "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn replies_are_bounded_in_octets() {
        let limits = ClientLimits { reply_octets: 200, ..ClientLimits::default() };
        for line in ["250-a\r\n", "noise\r\n", "\n", "250-aaaaaaaaaaaaaaaaaaaaaaa", "x"] {
            for piece in [1, 7, 1_000] {
                let input = line.repeat(250);
                assert_eq!(read(input.as_bytes(), piece, &limits), Err("a reply is too long"), "{line:?}");
            }
        }
        // Each reply counts for itself.
        let input = b"noise\r\n250-a\r\n250 b\r\n".repeat(100);
        assert_eq!(read(&input, 9, &limits).unwrap().len(), 100);
    }

    #[test]
    fn a_strict_reader_takes_nothing_but_the_form() {
        for input in [&b"x\r\n"[..], b"\r\n", b"250\tx\r\n", b"250x\r\n", b"250-a\r\n251 b\r\n", b"250-a\r\nb\r\n"] {
            for piece in [1, 3, 100] {
                let read = read_as(Form::Strict, input, piece, &ClientLimits::default());
                assert_eq!(read, Err("a line is no reply"), "{:?}", input.escape_ascii().to_string());
            }
        }
    }

    /// The last line has no line end.
    #[test]
    fn the_end_of_input_ends_a_reply() {
        let limits = ClientLimits::default();
        let end = |input: &[u8]| {
            let mut reader = ReplyReader::default();
            assert!(matches!(reader.read(input, Form::Lenient, &limits), Ok((_, None))));
            let raw = reader.read_unfinished(&limits)?;
            Some((
                raw.code.get(),
                raw.lines().map(|line| line.escape_ascii().to_string()).collect::<Vec<_>>().join("|"),
            ))
        };
        assert_eq!(end(b"550 5.1.1 no"), Some((550, "5.1.1 no".to_owned())));
        assert_eq!(end(b"250-a\r\n250 b"), Some((250, "a|b".to_owned())));
        assert_eq!(end(b"noise\r\n250 ok\r"), Some((250, "ok".to_owned())));
        for input in [&b"550"[..], b"55", b"550-no", b"550-a\r\n550", b"550-a\r\n", b"noise"] {
            assert_eq!(end(input), None, "{}", input.escape_ascii());
        }
    }
}
