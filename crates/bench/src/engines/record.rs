//! How the engines write an envelope down, and the body that belongs to it.
//!
//! ```text
//! body bytes u64 | recipients u32 | head length u32 | status of each recipient, one byte | head
//! then per recipient: attempts u8, due u32, length of data u16, length of destination u16, data, destination
//! ```
//!
//! The statuses stand together near the beginning, so that one of them can be overwritten in place, as Postfix does.

use bytes::Bytes;
use spool::{Chunk, NewMessage, State, Status};

/// Bytes of all chunks of a body but the last.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Bytes before the statuses.
pub(super) const STATUS_AT: usize = 16;

/// The body of a new message.
#[derive(Debug)]
pub enum Body {
    /// In one piece.
    Whole(Bytes),
    /// As it came.
    Chunks(Vec<Chunk>),
}

impl Body {
    /// Bytes of all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// Whether there is not one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many pieces.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Whole(_) => 1,
            Self::Chunks(chunks) => u32::try_from(chunks.len()).unwrap_or(u32::MAX),
        }
    }

    /// The pieces in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (whole, chunks) = match self {
            Self::Whole(bytes) => (Some(bytes.as_ref()), [].as_slice()),
            Self::Chunks(chunks) => (None, chunks.as_slice()),
        };
        whole.into_iter().chain(chunks.iter().map(Chunk::data))
    }
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) body_bytes: u64,
    pub(super) head: Bytes,
    pub(super) recipients: Vec<Recipient>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recipient {
    pub(super) state: State,
    pub(super) data: Bytes,
    pub(super) destination: Bytes,
}

pub(super) fn status_byte(status: Status) -> u8 {
    match status {
        Status::Waiting => b'R',
        Status::Held => b'H',
        Status::Done => b'D',
        Status::Owed => b'O',
    }
}

/// Encodes a new message, every recipient waiting.
pub(super) fn encode_new(message: &NewMessage<'_>, body_bytes: u64) -> Vec<u8> {
    let recipients = message.recipients.iter().map(|r| (State::default(), r.data, r.destination));
    encode(body_bytes, message.head, recipients)
}

impl Record {
    /// Pieces its body came in.
    pub(super) fn pieces(&self) -> u32 {
        u32::try_from(self.body_bytes.div_ceil(CHUNK_BYTES as u64)).unwrap_or(u32::MAX).max(1)
    }

    /// Encodes it again.
    pub(super) fn encode(&self) -> Vec<u8> {
        let recipients = self.recipients.iter().map(|r| (r.state, r.data.as_ref(), r.destination.as_ref()));
        encode(self.body_bytes, &self.head, recipients)
    }

    /// Takes a record apart; `None` when it is damaged.
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let body_bytes = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let count = number(8)? as usize;
        let head_length = number(12)? as usize;
        let statuses = bytes.get(STATUS_AT..STATUS_AT.checked_add(count)?)?;
        let mut at = STATUS_AT + count + head_length;
        let head = slice(bytes, STATUS_AT + count, head_length)?;
        let mut recipients = Vec::with_capacity(count);
        for status in statuses {
            let status = match status {
                b'R' => Status::Waiting,
                b'H' => Status::Held,
                b'D' => Status::Done,
                b'O' => Status::Owed,
                _ => return None,
            };
            let attempts = *bytes.get(at)?;
            let due = number(at + 1)?;
            let lengths = number(at + 5)?;
            let (data_length, destination_length) = ((lengths & 0xffff) as usize, (lengths >> 16) as usize);
            recipients.push(Recipient {
                state: State { status, attempts, due },
                data: slice(bytes, at + 9, data_length)?,
                destination: slice(bytes, at + 9 + data_length, destination_length)?,
            });
            at += 9 + data_length + destination_length;
        }
        Some(Self { body_bytes, head, recipients })
    }
}

fn slice(bytes: &Bytes, at: usize, length: usize) -> Option<Bytes> {
    (at.checked_add(length)? <= bytes.len()).then(|| bytes.slice(at..at + length))
}

fn encode<'a>(
    body_bytes: u64,
    head: &[u8],
    recipients: impl ExactSizeIterator<Item = (State, &'a [u8], &'a [u8])> + Clone,
) -> Vec<u8> {
    let length: usize = recipients.clone().map(|(_, data, destination)| 10 + data.len() + destination.len()).sum();
    let mut out = Vec::with_capacity(STATUS_AT + head.len() + length);
    out.extend_from_slice(&body_bytes.to_le_bytes());
    out.extend_from_slice(&u32::try_from(recipients.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(recipients.clone().map(|(state, ..)| status_byte(state.status)));
    out.extend_from_slice(head);
    for (state, data, destination) in recipients {
        out.push(state.attempts);
        out.extend_from_slice(&state.due.to_le_bytes());
        out.extend_from_slice(&u16::try_from(data.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&u16::try_from(destination.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(destination);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let record = Record {
            body_bytes: 4096,
            head: Bytes::from_static(b"from=<a@example>"),
            recipients: vec![
                Recipient {
                    state: State { status: Status::Held, attempts: 3, due: 77 },
                    data: Bytes::from_static(b"b@example"),
                    destination: Bytes::from_static(b"example"),
                },
                Recipient {
                    state: State::default(),
                    data: Bytes::new(),
                    destination: Bytes::from_static(b"example.net"),
                },
            ],
        };
        let bytes = Bytes::from(record.encode());
        assert_eq!(Record::decode(&bytes), Some(record));
        for cut in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes.slice(..cut)), None, "{cut}");
        }
    }
}
