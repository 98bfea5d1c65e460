//! The messages of a storm: each its own, of an exact size, made again from the seed, and checkable where it arrives.
//!
//! A message is a header, a first line that no other message has, and filler, which all share or which is its own.
//! `X-Mailrace-Storm:
//! RUN/SEQ/CRC` carries the CRC-32C of everything after the empty line, so a receiver needs no list of the sent
//! messages. No line begins with a dot and all end in CRLF: a message has the same size on the wire and in the store
//! (RFC 5321 §4.5.2), by DATA as by BDAT.
//!
//! The filler is made once; a message costs a header in the session's buffer and the checksum.

use super::{Plan, Sizes};

/// Octets of a line of filler with its CRLF; RFC 5322 §2.1.1 asks for no more than 78 before it.
const LINE: usize = 64;
/// Octets of filler at hand; longer bodies repeat it. A multiple of `LINE`.
const FILLER: usize = 64 << 10;
/// Octets of filler from which messages take texts of their own. A multiple of `LINE`.
const OWN_FILLER: usize = 16 << 20;
/// Digits of the number of a message, so that all headers have one length.
const SEQ_DIGITS: usize = 12;
/// Stands before filler that would end between CR and LF.
const SHIFT: &str = "x";
/// The line by which a message is known where it arrives.
pub(super) const HEADER: &str = "X-Mailrace-Storm:";
/// The end of every message.
pub(super) const CRLF: &[u8] = b"\r\n";

/// The common parts of all messages of a run.
#[derive(Debug)]
pub(super) struct Letters {
    head: String,
    run: String,
    filler: Vec<u8>,
    own_text: bool,
    sizes: Sizes,
    seed: u64,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StormMessage {
    /// Its number within the run, from 0.
    pub(super) seq: u64,
    /// Its octets.
    pub(super) size: usize,
}

impl Letters {
    pub(super) fn new(plan: &Plan) -> Self {
        let to = plan.recipient(0, 0);
        let head = format!(
            "From: <{}>\r\nTo: <{to}>\r\nDate: Thu, 01 Jan 2026 00:00:00 +0000\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=us-ascii\r\n",
            plan.from
        );
        let filler = filler(plan.seed, if plan.own_text { OWN_FILLER } else { FILLER });
        let own_text = plan.own_text;
        Self { head, run: plan.run.clone(), filler, own_text, sizes: plan.sizes, seed: plan.seed }
    }

    /// The message with this number. Its size depends on seed and number alone.
    pub(super) fn letter(&self, seq: u64) -> StormMessage {
        let Sizes { from, to } = self.sizes;
        let span = (to - from) as u64 + 1;
        let more = if span == 1 { 0 } else { mix(self.seed.wrapping_add(mix(seq))) % span };
        // At most `to - from`, which is a usize.
        StormMessage { seq, size: from + usize::try_from(more).unwrap_or(0) }
    }

    /// Appends the beginning of a message; returns how much filler follows, to be taken by [`Letters::filler`].
    /// After it comes [`CRLF`].
    pub(super) fn begin(&self, letter: StormMessage, out: &mut Vec<u8>) -> usize {
        let mut line = self.first_line(letter.seq);
        let rest = letter.size.saturating_sub(self.head_len() + line.len());
        let mut filler = rest.saturating_sub(CRLF.len());
        if filler % LINE == LINE - 1 {
            line.push_str(SHIFT);
            filler -= SHIFT.len();
        }
        let mut crc = crc32c::crc32c(line.as_bytes());
        let mut left = filler;
        while left > 0 {
            let piece = self.filler(letter.seq, left);
            crc = crc32c::crc32c_append(crc, piece);
            left -= piece.len();
        }
        crc = crc32c::crc32c_append(crc, CRLF);
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(self.own_header(letter.seq, crc).as_bytes());
        out.extend_from_slice(line.as_bytes());
        filler
    }

    /// The next piece of a message when `left` octets of its filler are to come; not empty unless `left` is 0.
    pub(super) fn filler(&self, seq: u64, left: usize) -> &[u8] {
        let octets = left.min(FILLER);
        let places = if self.own_text { (OWN_FILLER - FILLER) / LINE } else { 1 };
        let place = mix(seq ^ (left as u64) << 32) % places as u64;
        let from = usize::try_from(place).unwrap_or(0) * LINE;
        self.filler.get(from..from + octets).unwrap_or_default()
    }

    fn head_len(&self) -> usize {
        self.head.len() + self.own_header(0, 0).len()
    }

    fn own_header(&self, seq: u64, crc: u32) -> String {
        let run = &self.run;
        format!(
            "Message-ID: <{run}.{seq:0SEQ_DIGITS$}@storm.example>\r\nSubject: storm {run} {seq:0SEQ_DIGITS$}\r\n\
             {HEADER} {run}/{seq:0SEQ_DIGITS$}/{crc:08x}\r\n\r\n"
        )
    }

    fn first_line(&self, seq: u64) -> String {
        format!("This is message {seq:0SEQ_DIGITS$} of storm {}.\r\n", self.run)
    }
}

/// The least size of a message of this plan.
pub(super) fn size_min(plan: &Plan) -> usize {
    let letters = Letters::new(plan);
    letters.head_len() + letters.first_line(0).len() + CRLF.len()
}

/// Makes an address from its pattern.
pub(super) fn recipient(pattern: &str, n: u32, seq: u64) -> String {
    pattern.replace("{n}", &n.to_string()).replace("{seq}", &seq.to_string())
}

/// Lines of letters, which compress about as badly as text does.
fn filler(seed: u64, octets: usize) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789";
    let mut filler = Vec::with_capacity(octets);
    let mut state = mix(seed);
    while filler.len() < octets {
        for at in 0..LINE - CRLF.len() {
            state = mix(state);
            let letter = LETTERS.get((state % 64) as usize & 63).copied().unwrap_or(b'a');
            // Blanks at either end of a line get lost on some ways.
            let inside = at > 0 && at < LINE - CRLF.len() - 1;
            filler.push(if letter == b' ' && !inside { b'a' } else { letter });
        }
        filler.extend_from_slice(CRLF);
    }
    filler
}

/// A well-mixed number from a number (the finaliser of splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn plan(from: usize, to: usize) -> Plan {
        Plan { sizes: Sizes { from, to }, ..Plan::new(SocketAddr::from(([127, 0, 0, 1], 25))) }
    }

    fn whole(letters: &Letters, letter: StormMessage) -> Vec<u8> {
        let mut all = Vec::new();
        let mut left = letters.begin(letter, &mut all);
        while left > 0 {
            let piece = letters.filler(letter.seq, left);
            all.extend_from_slice(piece);
            left -= piece.len();
        }
        all.extend_from_slice(CRLF);
        all
    }

    #[test]
    fn sizes_are_exact_and_lines_whole() {
        let least = size_min(&plan(4096, 4096));
        let some = [4096, FILLER, FILLER + 1, 3 * FILLER + 17, 1 << 20];
        for size in (least..least + 3 * LINE).chain(some) {
            let letters = Letters::new(&plan(size, size));
            let text = String::from_utf8(whole(&letters, letters.letter(7))).unwrap();
            assert_eq!(text.len(), size);
            assert!(text.ends_with("\r\n"), "{size}");
            let bare = text.replace("\r\n", "");
            assert!(!bare.contains(['\r', '\n']), "{size}");
            assert!(text.split("\r\n").all(|line| line.len() <= 78 && !line.starts_with('.')), "{size}");
        }
    }

    #[test]
    fn every_message_carries_its_checksum() {
        let letters = Letters::new(&plan(1000, 90_000));
        for seq in 0..50 {
            let text = String::from_utf8(whole(&letters, letters.letter(seq))).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let mark = head.lines().find_map(|line| line.strip_prefix("X-Mailrace-Storm: ")).unwrap();
            assert_eq!(mark, format!("1/{seq:012}/{:08x}", crc32c::crc32c(body.as_bytes())));
        }
    }

    #[test]
    fn the_seed_decides_everything() {
        let make = |seed| {
            let letters = Letters::new(&Plan { seed, ..plan(1000, 50_000) });
            (0..20).map(|seq| whole(&letters, letters.letter(seq))).collect::<Vec<_>>()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        let sizes: Vec<usize> = make(1).iter().map(Vec::len).collect();
        assert!(sizes.iter().any(|size| *size > 25_000) && sizes.iter().any(|size| *size < 25_000), "{sizes:?}");
    }

    #[test]
    fn messages_share_their_text_or_have_their_own() {
        let lines = |own_text, seq| {
            let letters = Letters::new(&Plan { own_text, ..plan(90_000, 90_000) });
            let text = String::from_utf8(whole(&letters, letters.letter(seq))).unwrap();
            text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        };
        let common = |own_text| lines(own_text, 1).intersection(&lines(own_text, 2)).count();
        assert!(common(false) > 500 && common(true) < 10, "{} and {}", common(false), common(true));
    }

    #[test]
    fn recipients_by_pattern() {
        assert_eq!(recipient("u{n}.{seq}@x.example", 3, 9), "u3.9@x.example");
    }
}
