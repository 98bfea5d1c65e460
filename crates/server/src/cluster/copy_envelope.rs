//! The envelope of a copy: the envelope section of the spool, and the header section where the body travels alone.
//!
//! | Octets | |
//! |---|---|
//! | 1 | version, 1 |
//! | 4 | length of the envelope section |
//! | | the envelope section (`docs/spool.md` section 3.4) |
//! | | the header section of a body in pieces, which is known only after the body; else nothing |

use bytes::{BufMut as _, Bytes, BytesMut};

const VERSION: u8 = 1;
const HEAD: usize = 5;

/// The parts of the envelope of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyEnvelope {
    /// As `spool::MessageCopy::envelope` has it.
    pub(crate) section: Bytes,
    /// The header section, where the copy has the body alone.
    pub(crate) header: Bytes,
}

/// The reason why an envelope cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyEnvelopeError {
    /// It is of another version.
    Version(u8),
    /// It ends early.
    Short,
}

impl std::fmt::Display for CopyEnvelopeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => write!(f, "its envelope has version {version}, and this program reads {VERSION}"),
            Self::Short => f.write_str("its envelope ends early"),
        }
    }
}

impl CopyEnvelope {
    /// The octets for the record.
    pub(crate) fn encode(&self) -> Bytes {
        let mut octets = BytesMut::with_capacity(HEAD + self.section.len() + self.header.len());
        octets.put_u8(VERSION);
        octets.put_u32_le(u32::try_from(self.section.len()).unwrap_or(u32::MAX));
        octets.extend_from_slice(&self.section);
        octets.extend_from_slice(&self.header);
        octets.freeze()
    }

    /// Reads the octets of a record.
    pub(crate) fn decode(octets: &Bytes) -> Result<Self, CopyEnvelopeError> {
        let (head, _) = octets.split_first_chunk::<HEAD>().ok_or(CopyEnvelopeError::Short)?;
        let [version, length @ ..] = *head;
        if version != VERSION {
            return Err(CopyEnvelopeError::Version(version));
        }
        let end = HEAD.saturating_add(usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX));
        if end > octets.len() {
            return Err(CopyEnvelopeError::Short);
        }
        Ok(Self { section: octets.slice(HEAD..end), header: octets.slice(end..) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_reads_back_and_a_damaged_one_is_refused() {
        let one = CopyEnvelope { section: Bytes::from_static(b"section"), header: Bytes::from_static(b"A: b\r\n\r\n") };
        let octets = one.encode();
        assert_eq!(CopyEnvelope::decode(&octets), Ok(one));
        assert_eq!(CopyEnvelope::decode(&octets.slice(..4)), Err(CopyEnvelopeError::Short));
        assert_eq!(CopyEnvelope::decode(&octets.slice(..8)), Err(CopyEnvelopeError::Short));
        let other = [&[2], &octets[1..]].concat();
        assert_eq!(CopyEnvelope::decode(&other.into()), Err(CopyEnvelopeError::Version(2)));
    }
}
