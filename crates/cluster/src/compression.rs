//! Compression of the records of a block, so that the copies of alike messages share their octets.
//!
//! The messages of a storm or of a mailing repeat each other, and a block holds many of them: LZ4 finds what they have
//! in common within 64 KiB. Octets that repeat nothing cost little, since it skips through them, but ordinary text
//! costs more time than the octets that it saves. So a block that does not shrink to half goes out as it is, and so do
//! the next ones of its lane.
//!
//! The checksum of a block covers the compressed octets. The records have a checksum of their own, which a reader
//! compares after it has decompressed them: the owner of the mail, which reads its copies again, finds a fault in time.

use crate::record::Cursor;
use bytes::Bytes;

/// Blocks that are not tried behind one that did not shrink to half.
const UNTRIED: u32 = 7;
/// Octets before the compressed ones: length and CRC-32C of the plain records.
const PREFIX: usize = 8;

/// Compresses the blocks of one lane.
#[derive(Debug)]
pub(crate) struct Compressor {
    /// Octets of records below which a block is not tried.
    octets_min: usize,
    /// The next blocks, which are not tried.
    untried: u32,
    /// The last block that was tried shrank to half.
    is_shrinking: bool,
    /// The buffer of [`Compressor::compress`].
    out: Vec<u8>,
}

impl Compressor {
    /// `octets_min` are the octets of records below which a block is not tried.
    pub(crate) const fn new(octets_min: usize) -> Self {
        Self { octets_min, untried: 0, is_shrinking: false, out: Vec::new() }
    }

    /// True while blocks shrink to half.
    pub(crate) const fn is_shrinking(&self) -> bool {
        self.is_shrinking
    }

    /// Returns what takes the place of these records in a block; `None` when they stay as they are.
    pub(crate) fn compress(&mut self, records: &[u8]) -> Option<&[u8]> {
        if records.len() < self.octets_min {
            return None;
        }
        if self.untried > 0 {
            self.untried -= 1;
            return None;
        }
        let octets_max = PREFIX + lz4_flex::block::get_maximum_output_size(records.len());
        if self.out.len() < octets_max {
            self.out.resize(octets_max, 0);
        }
        let (prefix, rest) = self.out.split_first_chunk_mut::<PREFIX>()?;
        let octets = lz4_flex::block::compress_into(records, rest).ok()?;
        self.is_shrinking = (PREFIX + octets) * 2 <= records.len();
        if !self.is_shrinking {
            self.untried = UNTRIED;
            return None;
        }
        let (length, crc) = (u32::try_from(records.len()).ok()?, crc32c::crc32c(records));
        *prefix = (u64::from(crc) << 32 | u64::from(length)).to_le_bytes();
        self.out.get(..PREFIX + octets)
    }
}

/// Returns the records of a block whose content is compressed; at most `octets_max` octets.
///
/// # Errors
/// The part that does not fit.
pub(crate) fn decompress(content: &Bytes, octets_max: usize) -> Result<Bytes, &'static str> {
    let mut from = Cursor(content.clone());
    let (Some(octets), Some(crc)) = (from.u32(), from.u32()) else { return Err("compressed length") };
    // LZ4 shrinks to a 255th at most, so a short content costs no large buffer.
    let octets_max = octets_max.min(from.len().saturating_mul(255));
    let octets = usize::try_from(octets).ok().filter(|octets| *octets <= octets_max).ok_or("compressed length")?;
    let mut records = vec![0; octets];
    match lz4_flex::block::decompress_into(&from.0, &mut records) {
        Ok(found) if found == octets => {}
        _ => return Err("compressed content"),
    }
    if crc32c::crc32c(&records) == crc { Ok(Bytes::from(records)) } else { Err("checksum of the records") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets that repeat nothing.
    fn noise(seed: u64, octets: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(&mut next).take(octets).collect()
    }

    #[test]
    fn alike_records_share_their_octets() {
        let body = noise(1, 4_000);
        let records: Vec<u8> = (2..27).flat_map(|n| [noise(n, 200), body.clone()].concat()).collect();
        let mut compressor = Compressor::new(100);
        let compressed = Bytes::copy_from_slice(compressor.compress(&records).unwrap());
        assert!(compressed.len() < 10_000, "{} of {} octets", compressed.len(), records.len());
        assert_eq!(decompress(&compressed, 1 << 20).unwrap(), records);
    }

    #[test]
    fn records_that_do_not_shrink_stay_and_the_next_blocks_are_not_tried() {
        let alike = [noise(1, 2_000), noise(1, 2_000), noise(1, 2_000)].concat();
        let mut compressor = Compressor::new(100);
        assert!(compressor.compress(&alike).is_some());
        assert!(compressor.compress(&noise(2, 6_000)).is_none());
        let tried: Vec<bool> = (0..=UNTRIED).map(|_| compressor.compress(&alike).is_some()).collect();
        assert_eq!(tried.iter().position(|is_tried| *is_tried), Some(UNTRIED as usize));
        assert!(compressor.compress(&[0; 99]).is_none(), "too short");
    }

    #[test]
    fn a_reader_refuses_what_does_not_fit() {
        let records = vec![b'x'; 5_000];
        let mut compressor = Compressor::new(100);
        let good = compressor.compress(&records).unwrap().to_vec();
        let with = |change: fn(&mut Vec<u8>)| {
            let mut changed = good.clone();
            change(&mut changed);
            decompress(&Bytes::from(changed), 1 << 20).unwrap_err()
        };
        assert_eq!(with(|octets| octets.truncate(7)), "compressed length");
        assert_eq!(with(|octets| octets[2] = 0xff), "compressed length");
        assert_eq!(with(|octets| octets[0] ^= 1), "compressed content");
        assert_eq!(with(|octets| octets.truncate(octets.len() - 1)), "compressed content");
        assert_eq!(with(|octets| octets[4] ^= 1), "checksum of the records");
    }
}
