//! The part of a message that signatures cover: its header section and the hash of its body, taken while it arrives.

use crate::signing::BodyHash;
use filter::arc::ArcChain;
use filter::dkim::canonical::Canonicalization;
use filter::dkim::verification::{BodyHashes, Signatures};
use mail::header::{HeaderSection, LineEnd};

/// The most octets of a header section that are looked at. Of a larger one, which `message.header_bytes_max` must
/// allow, the rest counts to the body, and signatures fail.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// A message while it arrives. Holds its header section, and of the body only the state of its hashes.
#[derive(Debug)]
pub(crate) struct ArrivingContent {
    /// Octets at the beginning that are not the client's: the trace field of this server.
    skip: usize,
    header: Vec<u8>,
    /// `None`: the header section is not complete.
    hashes: Option<ArrivingHashes>,
}

/// The hashes of a body in the forms that signatures need.
#[derive(Debug)]
struct ArrivingHashes {
    simple: Option<BodyHash>,
    relaxed: Option<BodyHash>,
}

impl ArrivingHashes {
    /// Begins the hashes for the signatures of a header section.
    fn of(header: &HeaderSection<'_>, now: u64) -> Self {
        let (signatures, chain) = (Signatures::of(header, now), ArcChain::of(header));
        let hash = |form| (signatures.needs(form) || chain.needs(form)).then(|| BodyHash::in_form(form));
        Self { simple: hash(Canonicalization::Simple), relaxed: hash(Canonicalization::Relaxed) }
    }

    fn push(&mut self, piece: &[u8]) {
        for hash in [&mut self.simple, &mut self.relaxed].into_iter().flatten() {
            hash.push(piece);
        }
    }

    fn finish(self) -> BodyHashes {
        let text = |hash: Option<BodyHash>| hash.map(BodyHash::finish).unwrap_or_default();
        BodyHashes { simple: text(self.simple), relaxed: text(self.relaxed) }
    }
}

/// A message whose content has come.
#[derive(Debug)]
pub(crate) struct CheckedContent {
    /// The header section with the empty line.
    pub(super) header: Vec<u8>,
    pub(super) hashes: BodyHashes,
}

impl ArrivingContent {
    /// Begins a message whose first `skip` octets are ours.
    pub(crate) const fn new(skip: usize) -> Self {
        Self { skip, header: Vec::new(), hashes: None }
    }

    /// Takes the next piece. `now`: seconds since 1970.
    pub(crate) fn push(&mut self, piece: &[u8], now: u64) {
        let (ours, piece) = piece.split_at(self.skip.min(piece.len()));
        self.skip -= ours.len();
        if let Some(hashes) = &mut self.hashes {
            return hashes.push(piece);
        }
        let before = self.header.len();
        self.header.extend_from_slice(piece);
        let section = HeaderSection::read(&self.header, LineEnd::Crlf);
        if !section.is_closed() && self.header.len() < HEADER_BYTES_MAX {
            return;
        }
        let end = section.body_offset().min(HEADER_BYTES_MAX);
        self.header.truncate(end);
        let body = piece.get(end.saturating_sub(before)..).unwrap_or_default();
        let mut hashes = ArrivingHashes::of(&HeaderSection::read(&self.header, LineEnd::Crlf), now);
        hashes.push(body);
        self.hashes = Some(hashes);
    }

    /// Ends the message.
    pub(crate) fn finish(self, now: u64) -> CheckedContent {
        let header = || HeaderSection::read(&self.header, LineEnd::Crlf);
        let hashes = self.hashes.unwrap_or_else(|| ArrivingHashes::of(&header(), now)).finish();
        CheckedContent { header: self.header, hashes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &[u8] = b"Received: ours\r\n";
    const SIGNATURE: &str = "DKIM-Signature: v=1; a=ed25519-sha256; d=a.test; s=s; h=from; bh=x; b=eA==; c=simple/";

    fn hashes_of(pieces: &[&[u8]]) -> CheckedContent {
        let mut arriving = ArrivingContent::new(TRACE.len());
        pieces.iter().for_each(|piece| arriving.push(piece, 1_000));
        arriving.finish(1_000)
    }

    #[test]
    fn hashes_are_the_same_wherever_pieces_end() {
        let header = format!("{SIGNATURE}relaxed\r\n{SIGNATURE}simple\r\nFrom: a@a.test\r\n\r\n");
        let body = b"a  b\r\n\r\n c \r\n\r\n";
        let content = [TRACE, header.as_bytes(), body].concat();
        let relaxed = BodyHash::of(Canonicalization::Relaxed, body);
        let simple = BodyHash::of(Canonicalization::Simple, body);
        assert_ne!(relaxed, simple);
        for first in (0..=content.len()).step_by(7).chain(content.len() - 20..=content.len()) {
            for second in [first, (first + 1).min(content.len()), content.len()] {
                let found = hashes_of(&[&content[..first], &content[first..second], &content[second..]]);
                assert_eq!(found.header, header.as_bytes(), "{first} {second}");
                let expected = BodyHashes { simple: simple.clone(), relaxed: relaxed.clone() };
                assert_eq!(found.hashes, expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_body_is_hashed_only_for_signatures() {
        let found = hashes_of(&[TRACE, b"From: a@a.test\r\n\r\nbody\r\n"]);
        assert_eq!((found.header.as_slice(), found.hashes), (&b"From: a@a.test\r\n\r\n"[..], BodyHashes::default()));
        assert_eq!(hashes_of(&[TRACE, b"From: a@a.test\r\n"]).header, b"From: a@a.test\r\n");
        assert_eq!(hashes_of(&[]).header, b"");
        let long = [TRACE, &b"x".repeat(HEADER_BYTES_MAX + 5)].concat();
        assert_eq!(hashes_of(&[&long]).header.len(), HEADER_BYTES_MAX);
    }
}
