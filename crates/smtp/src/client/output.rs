//! The output of a session: commands in a buffer, content in the pieces it came in.
//!
//! Every octet has a position, counted from the first one of the session. By positions the session knows the octets
//! that the server can have seen: a reply to a command that was not sent is no reply, and content whose end was not
//! sent cannot have been taken.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use bytes::{Buf as _, Bytes, BytesMut};
use zeroize::Zeroize as _;

/// Pieces shorter than this are copied: a slice of their own would cost more.
const COPY_OCTETS: usize = 512;
/// More than this is not kept by a connection that waits.
const IDLE_OCTETS: usize = 8 << 10;

/// Octets that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: VecDeque<Bytes>,
    /// Behind the pieces.
    tail: BytesMut,
    /// Octets that went through `tail` since all was sent.
    tail_octets: usize,
    written: u64,
    sent: u64,
    /// The tail holds a secret: its sent part is wiped.
    is_secret: bool,
}

impl Output {
    /// The position behind all that was written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// The position behind all that was sent.
    pub(super) const fn sent_to(&self) -> u64 {
        self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Octets that wait.
    pub(super) fn waiting(&self) -> u64 {
        if self.is_empty() { 0 } else { self.written - self.sent }
    }

    /// Appends octets of our own.
    pub(super) fn text(&mut self, octets: &[u8]) {
        self.tail.extend_from_slice(octets);
        self.tail_octets = self.tail_octets.saturating_add(octets.len());
        self.written += octets.len() as u64;
    }

    /// Appends text; CRLF is the caller's.
    pub(super) fn write(&mut self, text: fmt::Arguments<'_>) {
        fmt::Write::write_fmt(&mut Text(self), text).expect("writing to memory succeeds");
    }

    /// Appends a line with a password, without its end. It is wiped from memory as it is sent.
    pub(super) fn secret(&mut self, line: &[u8]) {
        // With room for all of it, so that no copy is left behind.
        self.tail.reserve(line.len() + 2);
        self.is_secret = true;
        self.text(line);
        self.text(b"\r\n");
    }

    /// Appends a piece of content.
    pub(super) fn piece(&mut self, piece: Bytes) {
        if piece.len() < COPY_OCTETS {
            return self.text(&piece);
        }
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
        self.written += piece.len() as u64;
        self.pieces.push_back(piece);
    }

    /// Puts slices of the waiting output into `into`, in order, and returns their number.
    pub(super) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let tail = Some(&self.tail[..]).filter(|tail| !tail.is_empty());
        let waiting = self.pieces.iter().map(AsRef::as_ref).chain(tail);
        into.iter_mut().zip(waiting).map(|(slot, octets)| *slot = IoSlice::new(octets)).count()
    }

    /// Returns all that waits, in one piece.
    pub(super) fn into_octets(mut self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(usize::try_from(self.waiting()).unwrap_or_default());
        std::mem::take(&mut self.pieces).iter().for_each(|piece| octets.extend_from_slice(piece));
        octets.extend_from_slice(&self.tail);
        octets
    }

    /// So many octets have left.
    pub(super) fn sent(&mut self, octets: usize) {
        let mut left = octets;
        while let Some(first) = self.pieces.front_mut() {
            let step = left.min(first.len());
            first.advance(step);
            left -= step;
            if !first.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
        assert!(left <= self.tail.len(), "{octets} octets sent, which is more than there were");
        if self.is_secret {
            self.tail.get_mut(..left).unwrap_or_default().zeroize();
        }
        self.tail.advance(left);
        self.sent += octets as u64;
        if self.is_empty() && self.tail_octets > IDLE_OCTETS {
            self.tail = BytesMut::new();
            self.pieces.shrink_to(8);
        }
        if self.is_empty() {
            (self.tail_octets, self.is_secret) = (0, false);
        }
    }

    /// Nothing more is sent. The rest of the output keeps its positions, and counts as not sent for ever.
    pub(super) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        self.wipe();
        self.tail = BytesMut::new();
    }

    fn wipe(&mut self) {
        if self.is_secret {
            self.tail.zeroize();
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.wipe();
    }
}

struct Text<'a>(&'a mut Output);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.text(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_positions() {
        let large = Bytes::from(vec![b'x'; 2_000]);
        let mut out = Output::default();
        out.write(format_args!("BDAT {}\r\n", 2_010));
        out.piece(Bytes::from_static(b"0123456789"));
        out.piece(large.clone());
        out.text(b"QUIT\r\n");
        assert_eq!(out.written(), 2_027);
        let wanted = [&b"BDAT 2010\r\n0123456789"[..], &large, b"QUIT\r\n"].concat();
        let mut seen = Vec::new();
        let mut step = 1;
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = out.slices(&mut slices);
            let octets: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = step.min(octets.len());
            seen.extend_from_slice(&octets[..taken]);
            out.sent(taken);
            step = step * 2 + 1;
        }
        assert_eq!(seen, wanted);
        assert_eq!((out.sent_to(), out.waiting()), (2_027, 0));
    }

    #[test]
    fn content_is_not_copied_and_nothing_stays() {
        let large = Bytes::from(vec![b'x'; 100_000]);
        let mut out = Output::default();
        out.piece(large.clone());
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(out.slices(&mut slices), 1);
        assert_eq!(slices[0].as_ptr(), large.as_ptr());
        out.text(&large);
        out.sent(200_000);
        assert_eq!(out.tail.capacity(), 0);
    }
}
