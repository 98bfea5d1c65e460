//! The mail of the load: bodies and envelopes that cost next to nothing to make.
//!
//! A body is a slice of one large pool of text, at a place that follows from its queue id: no two alike, nothing
//! copied, and a reader can say what every message must contain.

use bytes::Bytes;
use mail::QueueId;
use std::sync::Arc;

/// Bytes of text all bodies are cut from; more than the processor caches hold.
const POOL_BYTES: usize = 96 << 20;
/// Destinations the load is spread over.
pub(super) const DESTINATIONS: usize = 5_000;

/// Where bodies and envelopes come from.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    pool: Bytes,
    destinations: Arc<[Box<[u8]>]>,
}

impl Bodies {
    pub(super) fn new() -> Self {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+ ";
        let mut text = Vec::with_capacity(POOL_BYTES);
        let mut numbers = Numbers(0x6d61_696c);
        while text.len() < POOL_BYTES {
            let mut bits = numbers.next();
            for _ in 0..10 {
                text.push(LETTERS.get((bits & 63) as usize).copied().unwrap_or(b' '));
                bits >>= 6;
            }
            if text.len() % 80 == 70 {
                text.extend_from_slice(b"\r\n        ");
            }
        }
        let destinations = (0..DESTINATIONS).map(|n| format!("mx{n}.example{}.net", n % 977).into_bytes().into());
        Self { pool: Bytes::from(text), destinations: destinations.collect() }
    }

    /// The body of this message.
    pub(super) fn body(&self, id: QueueId, bytes: usize) -> Bytes {
        let places = (self.pool.len().saturating_sub(bytes) / 16).max(1) as u64;
        let at = usize::try_from(mix(id.to_u64()) % places).unwrap_or(0) * 16;
        self.pool.slice(at..(at + bytes).min(self.pool.len()))
    }

    /// Where the recipient of this message is.
    pub(super) fn destination(&self, id: QueueId) -> &[u8] {
        let at = usize::try_from(mix(id.to_u64()) >> 40).unwrap_or(0) % DESTINATIONS;
        self.destinations.get(at).map_or(b"", |name| name)
    }
}

/// What the envelope says of the message as a whole; with the recipient about 150 bytes.
pub(super) const HEAD: &[u8] =
    b"from=<bounces-4711@lists.example.org> size= body=8BITMIME ret=HDRS envid=QQ314159 via=esmtp tls=1.3";
/// What the envelope says of the recipient.
pub(super) const RECIPIENT: &[u8] = b"to=<firstname.lastname@example.net> notify=FAILURE";

/// A cheap generator: good enough for text, not for secrets (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// Spreads a number over 64 bits.
pub(super) const fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
