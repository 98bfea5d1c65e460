//! The content of one message, from the wire to its stored form.
//!
//! Only CRLF.CRLF ends DATA, whatever a client means by other octets, and a chunk has the length its command says. A
//! dot is taken off only after a true CRLF. The first breach of a rule or limit is remembered; from then on no content
//! is kept, but the end is still looked for where it truly is.
//!
//! Speed: one search for CR, LF and NUL; lines are copied in runs that end only where a dot is taken out. Any way to
//! cut the input gives the same result: everything is counted by the octet, in the order of octets.

use memchr::{memchr, memchr3};

use super::header::HeaderWatch;
use super::settings::Limits;

/// Why content is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentError {
    /// CR without LF, or LF without CR.
    BareNewline,
    /// NUL where the body is not binary.
    Nul,
    /// Over `message_bytes`.
    Size,
    /// A line over `content_line_bytes`.
    Line,
    /// Over `header_bytes`.
    HeaderSize,
    /// Over `header_fields`.
    HeaderFields,
    /// `hops` reached.
    Hops,
}

/// Where the reader stands. CR and dot are held back until the next octet shows their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// At the beginning, or behind a true CRLF.
    LineStart,
    /// Behind CRLF and a dot.
    Dot,
    /// Behind CRLF, a dot and CR.
    DotCr,
    /// Within a line.
    Text,
    /// Behind a CR within a line.
    Cr,
}

/// Content on its way in.
#[derive(Debug)]
pub(super) struct Content {
    at: LinePosition,
    /// BODY=BINARYMIME: any octet goes.
    binary: bool,
    /// A bare CR or LF becomes CRLF; else it is refused.
    normalizes: bool,
    message_max: u64,
    line_max: u64,
    header_max: u64,
    fields_max: u32,
    hops_max: u32,
    /// The octets that the driver has not taken yet.
    waiting: Vec<u8>,
    stored: u64,
    /// Octets of the line so far.
    line: u64,
    header: HeaderWatch,
    problem: Option<ContentError>,
}

impl Content {
    /// Nothing has come yet. `expected` octets are made room for, as far as `content_piece_bytes` goes.
    pub(super) fn new(limits: &Limits, normalizes: bool, binary: bool, trace: &[u8], expected: Option<u64>) -> Self {
        let piece = limits.content_piece_bytes;
        // Without SIZE: most messages fit into this, and growing from it is cheap.
        let expected = expected.map_or(4_096, |octets| usize::try_from(octets).unwrap_or(usize::MAX));
        let mut waiting = Vec::with_capacity(expected.min(piece).saturating_add(trace.len()));
        waiting.extend_from_slice(trace);
        Self {
            at: LinePosition::LineStart,
            binary,
            normalizes,
            message_max: limits.message_bytes,
            line_max: if limits.content_line_bytes == 0 { u64::MAX } else { limits.content_line_bytes as u64 },
            header_max: limits.header_bytes,
            fields_max: limits.header_fields,
            hops_max: limits.hops,
            waiting,
            stored: 0,
            line: 0,
            header: HeaderWatch::new(),
            problem: None,
        }
    }

    /// Returns the breach of a rule or limit, if there is one.
    pub(super) const fn problem(&self) -> Option<ContentError> {
        self.problem
    }

    /// Octets in stored form, without trace line.
    pub(super) const fn stored(&self) -> u64 {
        self.stored
    }

    /// Octets that wait to be taken, with trace line.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Hands over what waits.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn message_id(&self) -> Option<&str> {
        self.header.message_id()
    }

    pub(super) fn precedence(&self) -> i32 {
        self.header.precedence()
    }

    pub(super) const fn has_list_id(&self) -> bool {
        self.header.has_list_id()
    }

    pub(super) fn delivered_to(&self) -> &[Box<[u8]>] {
        self.header.delivered_to()
    }

    /// Uses octets that follow DATA. True when the end was found, behind the octets used.
    // RFC 5321 §4.1.1.4: CRLF.CRLF and nothing else ends the data
    // RFC 5321 §4.5.2: a dot at the beginning of a line is deleted
    pub(super) fn data(&mut self, input: &[u8]) -> (usize, bool) {
        let mut at = 0;
        // From here to `at`, octets are counted and not yet copied.
        let mut run = 0;
        while let Some(byte) = input.get(at).copied() {
            match (self.at, byte) {
                (LinePosition::LineStart, b'.') => {
                    self.copy(input.get(run..at));
                    at += 1;
                    run = at;
                    self.at = LinePosition::Dot;
                }
                (LinePosition::Dot, b'\r') => {
                    at += 1;
                    run = at;
                    self.at = LinePosition::DotCr;
                }
                (LinePosition::DotCr, b'\n') => return (at + 1, true),
                (LinePosition::Cr, b'\n') => {
                    at += 1;
                    run = at;
                    self.true_newline();
                }
                (LinePosition::DotCr | LinePosition::Cr, _) => self.bare(),
                (LinePosition::LineStart | LinePosition::Dot | LinePosition::Text, _) => {
                    (at, run) = self.text(input, at, run)
                }
            }
        }
        self.copy(input.get(run..at));
        (at, false)
    }

    /// Takes octets of a chunk.
    // RFC 3030 §2: the octets are taken as they are, dots too
    pub(super) fn chunk(&mut self, input: &[u8]) {
        if self.binary {
            self.count_binary(input);
            self.copy(Some(input));
            return;
        }
        let mut at = 0;
        let mut run = 0;
        while let Some(byte) = input.get(at).copied() {
            match (self.at, byte) {
                (LinePosition::Cr, b'\n') => {
                    at += 1;
                    run = at;
                    self.true_newline();
                }
                (LinePosition::Cr, _) => self.bare(),
                _ => (at, run) = self.text(input, at, run),
            }
        }
        self.copy(input.get(run..at));
    }

    /// The last chunk has ended: a CR that was held back has no LF any more.
    pub(super) fn end_chunks(&mut self) {
        if self.at == LinePosition::Cr {
            self.bare();
        }
    }

    /// Reads on from `at` within a line, through whole lines, to something that needs a look. Returns where it came to
    /// and where the run of octets to be copied begins.
    fn text(&mut self, input: &[u8], mut at: usize, mut run: usize) -> (usize, usize) {
        loop {
            self.at = LinePosition::Text;
            let rest = input.get(at..).unwrap_or_default();
            let Some(hit) = memchr3(b'\r', b'\n', 0, rest) else {
                self.count_text(rest);
                return (input.len(), run);
            };
            let (before, special) = rest.split_at_checked(hit).unwrap_or((rest, &[]));
            self.count_text(before);
            at += hit;
            match special {
                [b'\r', b'\n', after @ ..] => {
                    at += 2;
                    self.count_newline();
                    self.at = LinePosition::LineStart;
                    if matches!(after.first(), None | Some(b'.')) {
                        return (at, run);
                    }
                }
                [first, ..] => {
                    self.copy(input.get(run..at));
                    at += 1;
                    run = at;
                    match first {
                        b'\r' => self.at = LinePosition::Cr,
                        b'\n' => self.bare(),
                        _ => self.refuse(ContentError::Nul),
                    }
                    return (at, run);
                }
                [] => return (at, run),
            }
        }
    }

    fn count_binary(&mut self, mut input: &[u8]) {
        while self.problem.is_none() && !input.is_empty() {
            let line = if self.header.is_open() { memchr(b'\n', input).map(|end| end + 1) } else { None };
            let (octets, rest) = input.split_at_checked(line.unwrap_or(input.len())).unwrap_or((input, &[]));
            self.count_octets(octets.len() as u64, u64::MAX);
            if self.header.is_open() && self.problem.is_none() {
                self.header.binary(octets);
                self.judge_header();
            }
            input = rest;
        }
    }

    /// A CRLF whose CR was held back.
    fn true_newline(&mut self) {
        self.count_newline();
        self.copy(Some(b"\r\n"));
        self.at = LinePosition::LineStart;
    }

    /// A CR or LF alone. It never begins a line in the sense of the protocol: neither end nor dot is looked for.
    // RFC 5321 §2.3.8: CR and LF are only sent together; the client should have converted to CRLF
    fn bare(&mut self) {
        self.at = LinePosition::Text;
        if self.normalizes {
            self.count_newline();
            self.copy(Some(b"\r\n"));
        } else {
            self.refuse(ContentError::BareNewline);
        }
    }

    fn count_text(&mut self, text: &[u8]) {
        if self.problem.is_none() && !text.is_empty() {
            self.count_octets(text.len() as u64, self.line_max);
            if self.header.is_open() {
                self.header.text(text);
            }
        }
    }

    fn count_newline(&mut self) {
        if self.problem.is_some() {
            return;
        }
        self.count_octets(2, self.line_max);
        self.line = 0;
        if self.header.is_open() {
            self.header.line_end();
            self.judge_header();
        }
    }

    fn judge_header(&mut self) {
        // RFC 5321 §6.3: a message with too many Received fields loops
        if self.header.hops() >= self.hops_max {
            self.refuse(ContentError::Hops);
        } else if self.header.fields() > self.fields_max {
            self.refuse(ContentError::HeaderFields);
        }
    }

    /// Counts octets against all limits at once. The limit that is passed at the earliest octet is the one that is
    /// named, so that pieces do not matter.
    fn count_octets(&mut self, octets: u64, line_max: u64) {
        let mut room = self.message_max.saturating_sub(self.stored);
        let mut problem = ContentError::Size;
        let line_room = line_max.saturating_sub(self.line);
        if line_room < room {
            (room, problem) = (line_room, ContentError::Line);
        }
        if self.header.is_open() {
            let header_room = self.header_max.saturating_sub(self.header.bytes());
            if header_room < room {
                (room, problem) = (header_room, ContentError::HeaderSize);
            }
            self.header.count(octets);
        }
        // Up to the octet that is one too many, however long the piece is.
        self.stored = self.stored.saturating_add(octets.min(room.saturating_add(1)));
        self.line = self.line.saturating_add(octets);
        if octets > room {
            self.refuse(problem);
        }
    }

    fn refuse(&mut self, problem: ContentError) {
        if self.problem.is_none() {
            self.problem = Some(problem);
            self.waiting = Vec::new();
        }
    }

    fn copy(&mut self, octets: Option<&[u8]>) {
        if self.problem.is_none() {
            self.waiting.extend_from_slice(octets.unwrap_or_default());
        }
    }
}
