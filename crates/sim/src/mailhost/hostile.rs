//! The replies of hostile hosts: answers that never end, are too long or as long as may be, come too early, or are
//! none.
//!
//! Each of them costs the host little: a stream makes its next piece when the socket is ready for it.

use crate::character::{Character, Hostility};
use std::time::Duration;

/// Octets of a piece.
const PIECE: usize = 16 << 10;
/// Octets of the long line.
const LONG_LINE: usize = 1 << 20;
/// Lines of the flood.
const FLOOD_LINES: usize = 100_000;
/// From one piece of an endless answer to the next.
const ENDLESS_EVERY: Duration = Duration::from_millis(10);
/// From one octet of a trickle to the next.
const TRICKLE_EVERY: Duration = Duration::from_secs(1);
/// Lines of a wordy reply, and octets of one with its line end: just inside what clients take.
const WORDY_LINES: usize = 199;
const WORDY_LINE: usize = 2_000;
const TRICKLE: &[u8] = b"220-wait for it\r\n";
const EARLY: &[u8] =
    b"220 hello\r\n250 mx\r\n250 2.1.0 fine\r\n250 2.1.5 fine\r\n354 go on\r\n250 2.0.0 taken\r\n221 2.0.0 bye\r\n";
const GARBAGE: &[u8] = b"\0\x01\xff\xfe2x0 what\r\n\r\n-1 \x80\r\n250";
/// A record of handshake that promises 4,096 octets (RFC 8446 §5.1).
const CUT_RECORD: &[u8] = b"\x16\x03\x03\x10\x00\x02\x00\x0f\xfc\x03\x03";

/// An answer that is made as it leaves.
#[derive(Debug)]
pub(super) struct Stream {
    kind: Hostility,
    /// Octets made so far; lines for the flood.
    made: usize,
    due: Option<Duration>,
}

impl Stream {
    pub(super) fn new(kind: Hostility, due: Duration) -> Self {
        Self { kind, made: 0, due: Some(due) }
    }

    /// When it has something; `None` when it is over.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// The next piece.
    pub(super) fn next(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.due.filter(|due| *due <= now)?;
        let (octets, due) = match self.kind {
            Hostility::Endless => (b"250-more\r\n".repeat(PIECE / 10 / 8), Some(now.saturating_add(ENDLESS_EVERY))),
            Hostility::LongLine => {
                self.made += PIECE;
                let mut octets = vec![b'x'; PIECE];
                let is_first = self.made == PIECE;
                if is_first {
                    octets.splice(..4, *b"250-");
                }
                let is_last = self.made >= LONG_LINE;
                if is_last {
                    octets.extend_from_slice(b"\r\n250 done\r\n");
                }
                (octets, (!is_last).then_some(now))
            }
            Hostility::Flood => {
                let lines = (PIECE / 10).min(FLOOD_LINES - self.made);
                self.made += lines;
                let mut octets = b"250-more\r\n".repeat(lines);
                let is_last = self.made == FLOOD_LINES;
                if is_last {
                    octets.extend_from_slice(b"250 done\r\n");
                }
                (octets, (!is_last).then_some(now))
            }
            Hostility::Early => (EARLY.to_vec(), None),
            Hostility::Garbage => (GARBAGE.to_vec(), None),
            Hostility::Trickle => {
                let octet = TRICKLE.get(self.made % TRICKLE.len()).copied().unwrap_or(b' ');
                self.made += 1;
                (vec![octet], Some(now.saturating_add(TRICKLE_EVERY)))
            }
            Hostility::TlsCut | Hostility::Wordy => (Vec::new(), None),
        };
        self.due = due;
        Some(octets)
    }
}

/// Says a refusal at great length. `text` begins every line.
pub(super) fn write_wordy(code: u16, text: &str, out: &mut Vec<u8>) {
    for number in 1..=WORDY_LINES {
        let separator = if number == WORDY_LINES { ' ' } else { '-' };
        let begin = format!("{code}{separator}{text} ");
        out.extend_from_slice(begin.as_bytes());
        out.resize(out.len() + WORDY_LINE.saturating_sub(begin.len() + 2), b'x');
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the reply of a host that cannot do TLS to a handshake.
pub(super) fn not_tls(character: Character) -> &'static [u8] {
    match character {
        Character::Hostile(_) => CUT_RECORD,
        // RFC 8446 §6: a record with the alert handshake_failure
        _ => b"\x15\x03\x03\x00\x02\x02\x28",
    }
}
