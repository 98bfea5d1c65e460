//! The mail of the demonstration: real envelopes and bodies, each of which follows from its queue id.
//!
//! So whoever finds a message knows what it must say, without a list of what was sent. All domains are of those that
//! RFC 2606 keeps from use.

use bytes::Bytes;
use mail::{Client, Envelope, HeloName, MailParams, Protocol, QueueId, Received, Recipient, ReversePath};
use spool::{Spool, Store as _, envelope};
use std::fmt::Write as _;

/// Destinations, so that queues are worth looking at.
const DOMAINS: u64 = 40;

/// Numbers that follow from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The envelope of the message with this id: a list's bounce address, one to four readers.
pub(super) fn envelope_of(id: QueueId) -> Envelope {
    let mut numbers = Numbers(id.to_u64());
    let sender = format!("list-bounces+{}@lists.example", id.unix_us() % 1_000_000);
    let readers = 1 + numbers.below(4) * numbers.below(2);
    let recipients = (0..readers).map(|_| {
        // The product makes some domains far more frequent than others, as lists do.
        let domain = numbers.below(DOMAINS) * numbers.below(DOMAINS) / DOMAINS;
        Recipient::new(parsed(&format!("reader{}@site{domain}.example", numbers.below(100_000))))
    });
    Envelope {
        id,
        sender: ReversePath::Address(parsed(&sender)),
        params: MailParams { body: Some(mail::Body::SevenBit), ..MailParams::default() },
        received: Received {
            at_us: id.unix_us(),
            client: Client::Internal,
            helo: HeloName::new(b"lists.example"),
            protocol: Protocol::Local,
        },
        recipients: recipients.collect(),
    }
}

fn parsed(address: &str) -> mail::Address {
    address.parse().expect("letters and digits at a domain")
}

/// The text of the message with this id, exactly `size` bytes.
pub(super) fn body_of(id: QueueId, size: u32) -> Bytes {
    let mut numbers = Numbers(!id.to_u64());
    let size = size as usize;
    let mut text = format!(
        "From: A list <list@lists.example>\r\nTo: list@lists.example\r\nSubject: demonstration\r\n\
         Message-ID: <{id}@lists.example>\r\n\r\n"
    );
    while text.len() < size {
        for _ in 0..4 {
            write!(text, "{:016x} ", numbers.next()).expect("memory takes all");
        }
        text.push_str("\r\n");
    }
    text.truncate(size);
    text.into()
}

/// Reads a message and compares both parts with what its id says.
pub(super) fn check(spool: &Spool, id: QueueId, size: u32) -> Result<(), String> {
    let stored = spool.envelope(id).map_err(|error| error.to_string())?;
    let found = envelope::decode(id, &stored).map_err(|error| error.to_string())?;
    if found != envelope_of(id) {
        return Err("another envelope than was committed".to_owned());
    }
    let body = spool.body(id).map_err(|error| error.to_string())?.concat();
    if body != body_of(id, size) {
        return Err("another body than was committed".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_follow_from_their_ids() {
        let id = QueueId::MIN;
        assert_eq!(envelope_of(id), envelope_of(id));
        for size in [512, 513, 4096] {
            let body = body_of(id, size);
            assert_eq!(body.len(), size as usize);
            assert!(body.starts_with(b"From: ") && body == body_of(id, size));
        }
        let next = QueueId::from_u64(id.to_u64() + 1).unwrap();
        assert_ne!(body_of(id, 512), body_of(next, 512));
    }
}
