//! The list of the chunks of a large message (`docs/spool.md` section 3.5).
//!
//! A MSG-REF or MOVED frame has it behind the header section, the footer of a segment has it alone. It repeats the
//! length of the header section, so that the index knows where each chunk lies in the content without reading the
//! frame.

use crate::format::{Frame, Reader};
use crate::sections::body_offset;
use std::ops::Range;

/// Where a chunk of a large body lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) generation: u64,
    /// Offset of the frame in its segment.
    pub(crate) offset: u32,
    pub(crate) ordinal: u32,
    /// Bytes of body in it.
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// Bytes of a chunk list before its entries, and of each entry.
const HEAD: usize = 16;
const ENTRY: usize = 24;

/// The content of a large message: its header section is in the frame that names it, its body in chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkList {
    /// Bytes of the header section, and so where the first chunk begins in the content.
    pub(crate) header_bytes: u32,
    /// The chunks in order.
    pub(crate) places: Box<[ChunkPlace]>,
}

impl ChunkList {
    /// Bytes that the list of `count` chunks takes.
    pub(crate) fn encoded_len(count: u32) -> usize {
        HEAD + count as usize * ENTRY
    }

    fn body_bytes(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.bytes)).sum()
    }

    /// Bytes of header section and body together.
    pub(crate) fn content_bytes(&self) -> u64 {
        u64::from(self.header_bytes) + self.body_bytes()
    }

    /// The chunks, each with the part of the content that it holds.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (Range<u64>, &ChunkPlace)> {
        let mut end = u64::from(self.header_bytes);
        self.places.iter().map(move |place| {
            let start = end;
            end += u64::from(place.bytes);
            (start..end, place)
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let count = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(Self::encoded_len(count));
        bytes.extend_from_slice(&self.body_bytes().to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&self.header_bytes.to_le_bytes());
        for place in &self.places {
            bytes.extend_from_slice(&place.generation.to_le_bytes());
            for field in [place.offset, place.ordinal, place.bytes, place.crc] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a list; `None` where it does not make sense.
    pub(crate) fn read(section: &[u8]) -> Option<Self> {
        let mut reader = Reader(section);
        let total = reader.u64()?;
        let count = reader.u32()? as usize;
        let header_bytes = reader.u32()?;
        if reader.0.len() != count.checked_mul(ENTRY)? {
            return None;
        }
        let mut places = Vec::with_capacity(count);
        for _ in 0..count {
            places.push(ChunkPlace {
                generation: reader.u64()?,
                offset: reader.u32()?,
                ordinal: reader.u32()?,
                bytes: reader.u32()?,
                crc: reader.u32()?,
            });
        }
        let list = Self { header_bytes, places: places.into() };
        (list.body_bytes() == total).then_some(list)
    }
}

/// The second section of a message frame in its two parts: the part of the content in it, and the chunk list, empty if
/// there is none. `None` where the body offset makes no sense.
pub(crate) fn split<'a>(frame: &Frame<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let header_bytes = body_offset(frame.first)? as usize;
    if frame.header.has_chunk_list() {
        return frame.second.split_at_checked(header_bytes);
    }
    (header_bytes <= frame.second.len()).then_some((frame.second, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FrameHeader, Kind};
    use crate::sections::EnvelopeWriter;

    #[test]
    fn lists_round_trip_and_say_where_chunks_lie_in_the_content() {
        let place = ChunkPlace { generation: 1, offset: 2, ordinal: 3, bytes: 4, crc: 5 };
        let list = ChunkList { header_bytes: 7, places: [place; 3].into() };
        let bytes = list.write();
        assert_eq!(bytes.len(), ChunkList::encoded_len(3));
        assert_eq!(ChunkList::read(&bytes).as_ref(), Some(&list));
        assert_eq!(list.content_bytes(), 19);
        let ranges: Vec<Range<u64>> = list.ranges().map(|(range, _)| range).collect();
        assert_eq!(ranges, [7..11, 11..15, 15..19]);
        for cut in 0..bytes.len() {
            assert_eq!(ChunkList::read(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(ChunkList::read(&[0xff; 40]), None);
    }

    #[test]
    fn the_header_section_comes_before_the_list() {
        let first = EnvelopeWriter::new(6, b"head", 0).unwrap().into_bytes();
        let split_of = |kind, flags, second: &'static [u8]| {
            let header = FrameHeader::over(kind, flags, 1, &first, second).unwrap();
            split(&Frame { header, first: &first, second })
        };
        assert_eq!(split_of(Kind::Reference, 0, b"headerlist"), Some((&b"header"[..], &b"list"[..])));
        assert_eq!(split_of(Kind::Moved, 1, b"headerlist"), Some((&b"header"[..], &b"list"[..])));
        assert_eq!(split_of(Kind::Moved, 0, b"headerbody"), Some((&b"headerbody"[..], &b""[..])));
        assert_eq!(split_of(Kind::Message, 0, b"header"), Some((&b"header"[..], &b""[..])));
        for second in [b"heade".as_slice(), b""] {
            assert_eq!(split_of(Kind::Reference, 0, second), None);
            assert_eq!(split_of(Kind::Message, 0, second), None);
        }
    }
}
