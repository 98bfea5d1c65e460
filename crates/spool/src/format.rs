//! The bytes of headers, batches and frames, as `docs/spool.md` sections 3.1 to 3.3 and 3.8 define them.
//!
//! Decoders take any bytes and answer `None` or an error, never panic: their input comes from a disk. `sections` has
//! the content of a frame's sections.

use crate::disk::BLOCK;
use std::fmt;
use std::ops::RangeInclusive;

/// The format version that this program writes, and the only one it reads.
pub const VERSION: u32 = 2;

/// Ordinal of frames that are not kept.
pub(crate) const NO_ORDINAL: u32 = u32::MAX;

/// The epoch is the high half of a generation.
pub(crate) const EPOCH_SHIFT: u32 = 32;

/// Alignment of frames, in bytes.
pub(crate) const ALIGN: usize = 8;

const SEGMENT_MAGIC: &[u8; 8] = b"MRSEGMNT";
const TRAILER_MAGIC: &[u8; 8] = b"MRTRAILR";
const BATCH_MAGIC: &[u8; 4] = b"MRB1";

/// The identity of a spool: frames of another one never validate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Chosen when the spool was made.
    pub(crate) uuid: [u8; 16],
    /// Directories, one per committer.
    pub(crate) shards: u16,
    /// Bytes of each segment.
    pub(crate) segment_bytes: u32,
}

/// Where all checksums of a segment start: identity, shard and generation in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    crc: u32,
    generation_low: u32,
}

impl Seed {
    pub(crate) fn new(uuid: &[u8; 16], shard: u16, generation: u64) -> Self {
        let crc = crc32c::crc32c(uuid);
        let crc = crc32c::crc32c_append(crc, &shard.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &generation.to_le_bytes());
        Self { crc, generation_low: low_half(generation) }
    }

    fn over(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.crc, bytes)
    }
}

fn low_half(generation: u64) -> u32 {
    let [a, b, c, d, ..] = generation.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Reads little-endian integers from the front of a slice; `None` when it ends.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (&first, tail) = self.0.split_first()?;
        self.0 = tail;
        Some(first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(u16::from_le_bytes(*head))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(u32::from_le_bytes(*head))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(u64::from_le_bytes(*head))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes a structure of fixed size into the front of `to`, field by field.
struct Writer<'a> {
    to: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        if let Some(to) = self.to.get_mut(self.at..self.at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.at += bytes.len();
        self
    }
}

/// Puts `crc` over the field at `at`, after the rest has been written.
fn seal(bytes: &mut [u8], at: usize, crc: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Checksum of the version at byte 8 and of the bytes from 16 to `end`.
fn covered(block: &[u8], end: usize) -> u32 {
    let crc = crc32c::crc32c(block.get(8..12).unwrap_or_default());
    crc32c::crc32c_append(crc, block.get(16..end).unwrap_or_default())
}

/// First block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: u64,
    /// Generation of the hot segment before this one, 0 if none, and how far it is durable.
    pub(crate) previous: (u64, u32),
    pub(crate) number: u32,
    pub(crate) bytes: u32,
    pub(crate) shard: u16,
    pub(crate) cold: bool,
}

/// The content of the first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Zeroes: never opened.
    Never,
    /// Opened under this header.
    As(SegmentHeader),
    /// Opened by a program with this other format version.
    OtherFormat(u32),
    /// Something else.
    Unreadable,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let mut writer = Writer { to: block, at: 0 };
        writer.put(SEGMENT_MAGIC).put(&VERSION.to_le_bytes()).put(&[0; 4]).put(&self.uuid);
        writer.put(&self.generation.to_le_bytes());
        writer.put(&self.previous.0.to_le_bytes()).put(&self.previous.1.to_le_bytes());
        writer.put(&self.number.to_le_bytes()).put(&self.bytes.to_le_bytes()).put(&self.shard.to_le_bytes());
        writer.put(&[u8::from(self.cold)]);
        seal(block, 12, covered(block, 76));
    }

    pub(crate) fn decode(block: &[u8]) -> Opened {
        if block.iter().all(|&b| b == 0) {
            return Opened::Never;
        }
        Self::decode_opened(block).unwrap_or(Opened::Unreadable)
    }

    fn decode_opened(block: &[u8]) -> Option<Opened> {
        let mut reader = Reader(block);
        if reader.bytes(8)? != SEGMENT_MAGIC {
            return None;
        }
        let version = reader.u32()?;
        let crc = reader.u32()?;
        if covered(block, 76) != crc {
            return None;
        }
        if version != VERSION {
            return Some(Opened::OtherFormat(version));
        }
        let uuid = reader.bytes(16)?.try_into().ok()?;
        Some(Opened::As(Self {
            uuid,
            generation: reader.u64()?,
            previous: (reader.u64()?, reader.u32()?),
            number: reader.u32()?,
            bytes: reader.u32()?,
            shard: reader.u16()?,
            cold: reader.u8()? != 0,
        }))
    }
}

/// Last block of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: u64,
    /// End of the last batch.
    pub(crate) data_end: u32,
    /// Where the SEAL frame starts, and its size.
    pub(crate) footer: (u32, u32),
    pub(crate) number: u32,
    /// Where the batch with the LIVEMAP starts; 0 if there is none.
    pub(crate) livemap: u32,
    pub(crate) shard: u16,
    pub(crate) cold: bool,
    /// It has frames about messages of other shards.
    pub(crate) foreign: bool,
}

impl Trailer {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let mut writer = Writer { to: block, at: 0 };
        writer.put(TRAILER_MAGIC).put(&VERSION.to_le_bytes()).put(&[0; 4]).put(&self.uuid);
        writer.put(&self.generation.to_le_bytes()).put(&self.data_end.to_le_bytes());
        writer.put(&self.footer.0.to_le_bytes()).put(&self.footer.1.to_le_bytes()).put(&self.number.to_le_bytes());
        writer.put(&self.livemap.to_le_bytes()).put(&self.shard.to_le_bytes());
        writer.put(&[u8::from(self.cold), u8::from(self.foreign)]);
        seal(block, 12, covered(block, 64));
    }

    /// Reads the format version of a trailer that matches its checksum.
    pub(crate) fn version(block: &[u8]) -> Option<u32> {
        let mut reader = Reader(block);
        if reader.bytes(8)? != TRAILER_MAGIC {
            return None;
        }
        let version = reader.u32()?;
        (reader.u32()? == covered(block, 64)).then_some(version)
    }

    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        if Self::version(block)? != VERSION {
            return None;
        }
        let mut reader = Reader(block.get(16..)?);
        Some(Self {
            uuid: reader.bytes(16)?.try_into().ok()?,
            generation: reader.u64()?,
            data_end: reader.u32()?,
            footer: (reader.u32()?, reader.u32()?),
            number: reader.u32()?,
            livemap: reader.u32()?,
            shard: reader.u16()?,
            cold: reader.u8()? != 0,
            foreign: reader.u8()? != 0,
        })
    }
}

/// Head of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Bytes with padding, a multiple of a block.
    pub(crate) bytes: u32,
    pub(crate) frames: u32,
    /// From 1 in each segment.
    pub(crate) number: u64,
    /// A segment's generation, and how far it was durable when this batch was written.
    pub(crate) durable: (u64, u32),
}

impl BatchHeader {
    /// Bytes before the first frame.
    pub(crate) const SIZE: usize = 64;

    pub(crate) fn encode(&self, seed: Seed, to: &mut [u8]) {
        let Some(to) = to.get_mut(..Self::SIZE) else { return };
        to.fill(0);
        let mut writer = Writer { to, at: 0 };
        writer.put(BATCH_MAGIC).put(&[0; 4]).put(&self.bytes.to_le_bytes()).put(&self.frames.to_le_bytes());
        writer.put(&self.number.to_le_bytes()).put(&self.durable.0.to_le_bytes()).put(&self.durable.1.to_le_bytes());
        writer.put(&seed.generation_low.to_le_bytes());
        let crc = seed.over(to.get(8..Self::SIZE).unwrap_or_default());
        seal(to, 4, crc);
    }

    pub(crate) fn decode(seed: Seed, from: &[u8]) -> Option<Self> {
        let mut reader = Reader(from);
        if reader.bytes(4)? != BATCH_MAGIC || reader.u32()? != seed.over(from.get(8..Self::SIZE)?) {
            return None;
        }
        let header = Self {
            bytes: reader.u32()?,
            frames: reader.u32()?,
            number: reader.u64()?,
            durable: (reader.u64()?, reader.u32()?),
        };
        (header.bytes as usize >= BLOCK && (header.bytes as usize).is_multiple_of(BLOCK)).then_some(header)
    }

    /// Whether a batch of some generation may start here.
    pub(crate) fn begins(from: &[u8]) -> bool {
        from.starts_with(BATCH_MAGIC)
    }

    /// The generation under which this header validates, if its epoch is one of `epochs`; the counter stands in it.
    pub(crate) fn generation(uuid: &[u8; 16], shard: u16, epochs: RangeInclusive<u64>, from: &[u8]) -> Option<u64> {
        if !Self::begins(from) {
            return None;
        }
        let counter = Reader(from.get(36..40)?).u32()?;
        let generation = |epoch: u64| epoch << EPOCH_SHIFT | u64::from(counter);
        epochs
            .rev()
            .map(generation)
            .find(|generation| Self::decode(Seed::new(uuid, shard, *generation), from).is_some())
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Message = 1,
    Chunk = 2,
    Reference = 3,
    State = 4,
    Done = 5,
    Moved = 6,
    Livemap = 7,
    Pad = 8,
    Seal = 9,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Message,
            2 => Self::Chunk,
            3 => Self::Reference,
            4 => Self::State,
            5 => Self::Done,
            6 => Self::Moved,
            7 => Self::Livemap,
            8 => Self::Pad,
            9 => Self::Seal,
            _ => return None,
        })
    }

    /// Whether frames of this kind have an ordinal and can be live.
    pub(crate) fn kept(self) -> bool {
        matches!(self, Self::Message | Self::Chunk | Self::Reference | Self::Moved)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Message => "MSG",
            Self::Chunk => "CHUNK",
            Self::Reference => "MSG-REF",
            Self::State => "STATE",
            Self::Done => "DONE",
            Self::Moved => "MOVED",
            Self::Livemap => "LIVEMAP",
            Self::Pad => "PAD",
            Self::Seal => "SEAL",
        })
    }
}

/// Flag of a MOVED frame whose second section is a chunk list.
pub(crate) const FLAG_CHUNKS: u8 = 1;
/// Flag of STATE and DONE frames about messages of another shard.
pub(crate) const FLAG_FOREIGN: u8 = 1;

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) ordinal: u32,
    /// Lengths of the two sections.
    pub(crate) lengths: (u32, u32),
    /// Checksums of the two sections.
    pub(crate) crcs: (u32, u32),
    pub(crate) id: u64,
}

impl FrameHeader {
    /// Bytes before the first section.
    pub(crate) const SIZE: usize = 40;

    /// A header whose lengths and checksums are those of the sections.
    pub(crate) fn over(kind: Kind, flags: u8, id: u64, first: &[u8], second: &[u8]) -> Option<Self> {
        Some(Self {
            kind,
            flags,
            ordinal: NO_ORDINAL,
            lengths: (u32::try_from(first.len()).ok()?, u32::try_from(second.len()).ok()?),
            crcs: (crc32c::crc32c(first), crc32c::crc32c(second)),
            id,
        })
    }

    /// Bytes of the whole frame with its padding.
    pub(crate) fn frame_bytes(&self) -> usize {
        (Self::SIZE + self.lengths.0 as usize + self.lengths.1 as usize).next_multiple_of(ALIGN)
    }

    /// Whether the second section is a chunk list.
    pub(crate) fn has_chunk_list(&self) -> bool {
        self.kind == Kind::Reference || self.kind == Kind::Moved && self.flags & FLAG_CHUNKS != 0
    }

    /// Whether the frame holds an envelope.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.kind, Kind::Message | Kind::Reference | Kind::Moved)
    }

    pub(crate) fn encode(&self, seed: Seed, to: &mut [u8]) {
        let Some(to) = to.get_mut(..Self::SIZE) else { return };
        let mut writer = Writer { to, at: 0 };
        writer.put(&[0; 4]).put(&[self.kind as u8, self.flags, 0, 0]).put(&self.ordinal.to_le_bytes());
        writer.put(&self.lengths.0.to_le_bytes()).put(&self.lengths.1.to_le_bytes());
        writer.put(&self.crcs.0.to_le_bytes()).put(&self.crcs.1.to_le_bytes());
        writer.put(&seed.generation_low.to_le_bytes()).put(&self.id.to_le_bytes());
        let crc = seed.over(to.get(4..).unwrap_or_default());
        seal(to, 0, crc);
    }

    /// Reads a header that belongs to the generation of `seed`; says nothing of the sections.
    pub(crate) fn decode(seed: Seed, from: &[u8]) -> Option<Self> {
        let from = from.get(..Self::SIZE)?;
        let mut reader = Reader(from);
        let crc = reader.u32()?;
        let (kind, flags, _) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let header = Self {
            kind: Kind::from_byte(kind)?,
            flags,
            ordinal: reader.u32()?,
            lengths: (reader.u32()?, reader.u32()?),
            crcs: (reader.u32()?, reader.u32()?),
            id: {
                if reader.u32()? != seed.generation_low {
                    return None;
                }
                reader.u64()?
            },
        };
        (seed.over(from.get(4..)?) == crc).then_some(header)
    }
}

/// A frame found in bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) header: FrameHeader,
    pub(crate) first: &'a [u8],
    pub(crate) second: &'a [u8],
}

/// The content of a place where a frame should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// A frame whose sections match their checksums.
    Whole(Frame<'a>),
    /// A frame whose header is good; `(first, second)` say which section is.
    Damaged(Frame<'a>, (bool, bool)),
    /// No frame of this generation.
    Nothing,
}

impl<'a> Frame<'a> {
    /// Reads the frame at the front of `from` and checks both sections.
    pub(crate) fn find(seed: Seed, from: &'a [u8]) -> Found<'a> {
        let Some(header) = FrameHeader::decode(seed, from) else { return Found::Nothing };
        let (first_len, second_len) = (header.lengths.0 as usize, header.lengths.1 as usize);
        let first = from.get(FrameHeader::SIZE..FrameHeader::SIZE + first_len);
        let second = from.get(FrameHeader::SIZE + first_len..FrameHeader::SIZE + first_len + second_len);
        let good = |section: Option<&[u8]>, crc| section.is_some_and(|bytes| crc32c::crc32c(bytes) == crc);
        let sound = match header.kind {
            Kind::Pad => (first.is_some(), second.is_some()),
            _ => (good(first, header.crcs.0), good(second, header.crcs.1)),
        };
        let frame = Frame { header, first: first.unwrap_or_default(), second: second.unwrap_or_default() };
        if sound == (true, true) { Found::Whole(frame) } else { Found::Damaged(frame, sound) }
    }
}

impl Identity {
    /// The text of the identity file.
    pub(crate) fn to_text(self) -> String {
        let uuid: String = self.uuid.iter().map(|b| format!("{b:02x}")).collect();
        let text = format!(
            "mailrace spool\nformat {VERSION}\nuuid {uuid}\nshards {}\nsegment {}\n",
            self.shards, self.segment_bytes
        );
        let crc = crc32c::crc32c(text.as_bytes());
        format!("{text}crc32c {crc:08x}\n")
    }

    /// Reads the identity file.
    ///
    /// # Errors
    /// `Err(Ok(version))` for another format, `Err(Err(reason))` for anything else.
    pub(crate) fn from_text(text: &[u8]) -> Result<Self, Result<u32, String>> {
        let wrong = |what: &str| Err(what.to_owned());
        let text = std::str::from_utf8(text).map_err(|_| wrong("it is not text"))?;
        let mut lines = text.lines();
        if lines.next() != Some("mailrace spool") {
            return Err(wrong("its first line is not \"mailrace spool\""));
        }
        let mut value = |key: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix(' '))
                .map(str::to_owned)
                .ok_or_else(|| wrong(&format!("line {line:?} should begin with {key:?}")))
        };
        let version: u32 = value("format")?.parse().map_err(|_| wrong("its format is not a number"))?;
        if version != VERSION {
            return Err(Ok(version));
        }
        let uuid = value("uuid")?;
        let shards = value("shards")?.parse().map_err(|_| wrong("its number of shards is not a number"))?;
        let segment_bytes = value("segment")?.parse().map_err(|_| wrong("its segment size is not a number"))?;
        let crc = u32::from_str_radix(&value("crc32c")?, 16).map_err(|_| wrong("its checksum is not a number"))?;
        let covered = text.find("crc32c ").unwrap_or(0);
        if crc32c::crc32c(text.get(..covered).unwrap_or_default().as_bytes()) != crc {
            return Err(wrong("its checksum does not match; restore the file from a copy of this spool"));
        }
        let number = u128::from_str_radix(&uuid, 16).map_err(|_| wrong("its uuid is not hexadecimal"))?;
        Ok(Self { uuid: number.to_be_bytes(), shards, segment_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_another_generation_is_nothing() {
        let (old, new) = (Seed::new(&[1; 16], 0, 7), Seed::new(&[1; 16], 0, 8));
        let header = FrameHeader::over(Kind::Message, 0, 99, b"envelope", b"body").unwrap();
        let mut bytes = vec![0; header.frame_bytes()];
        header.encode(old, &mut bytes);
        bytes[40..48].copy_from_slice(b"envelope");
        bytes[48..52].copy_from_slice(b"body");
        assert!(matches!(Frame::find(old, &bytes), Found::Whole(f) if f.second == b"body" && f.header == header));
        assert!(matches!(Frame::find(new, &bytes), Found::Nothing));
        assert!(matches!(Frame::find(Seed::new(&[2; 16], 0, 7), &bytes), Found::Nothing));
        assert!(matches!(Frame::find(Seed::new(&[1; 16], 1, 7), &bytes), Found::Nothing));
        bytes[50] ^= 1;
        assert!(matches!(Frame::find(old, &bytes), Found::Damaged(_, (true, false))));
    }

    /// Gives a header or trailer another version and the checksum that goes with it.
    fn set_version(block: &mut [u8], version: u32, end: usize) {
        block[8..12].copy_from_slice(&version.to_le_bytes());
        seal(block, 12, covered(block, end));
    }

    #[test]
    fn headers_round_trip() {
        let mut block = vec![0xff; BLOCK];
        let header = SegmentHeader {
            uuid: [3; 16],
            generation: u64::MAX - 1,
            previous: (5, 8192),
            number: 9,
            bytes: 1 << 26,
            shard: 2,
            cold: true,
        };
        header.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Opened::As(header));
        block[40] ^= 1;
        assert_eq!(SegmentHeader::decode(&block), Opened::Unreadable);
        assert_eq!(SegmentHeader::decode(&[0; BLOCK]), Opened::Never);
        for version in [VERSION - 1, VERSION + 1] {
            header.encode(&mut block);
            set_version(&mut block, version, 76);
            assert_eq!(SegmentHeader::decode(&block), Opened::OtherFormat(version));
        }
        let trailer = Trailer {
            uuid: [3; 16],
            generation: 4,
            data_end: 5,
            footer: (6, 7),
            number: 8,
            livemap: 9,
            shard: 1,
            cold: false,
            foreign: true,
        };
        trailer.encode(&mut block);
        assert_eq!((Trailer::decode(&block), Trailer::version(&block)), (Some(trailer), Some(VERSION)));
        for version in [VERSION - 1, VERSION + 1] {
            set_version(&mut block, version, 64);
            assert_eq!((Trailer::decode(&block), Trailer::version(&block)), (None, Some(version)));
        }
        block[8] ^= 1;
        assert_eq!(Trailer::version(&block), None);
        let seed = Seed::new(&[3; 16], 0, 1);
        let batch = BatchHeader { bytes: 8192, frames: 3, number: 4, durable: (5, 6) };
        batch.encode(seed, &mut block);
        assert_eq!(BatchHeader::decode(seed, &block), Some(batch));
        assert_eq!(BatchHeader::decode(Seed::new(&[3; 16], 0, 2), &block), None);
    }

    #[test]
    fn identity_round_trips_and_refuses() {
        let identity = Identity { uuid: [0xab; 16], shards: 3, segment_bytes: 1 << 20 };
        let text = identity.to_text();
        assert_eq!(Identity::from_text(text.as_bytes()), Ok(identity));
        assert_eq!(Identity::from_text(text.replace("format 2", "format 3").as_bytes()), Err(Ok(3)));
        assert_eq!(Identity::from_text(text.replace("format 2", "format 1").as_bytes()), Err(Ok(1)));
        assert!(matches!(Identity::from_text(text.replace("shards 3", "shards 4").as_bytes()), Err(Err(_))));
        assert!(matches!(Identity::from_text(b""), Err(Err(_))));
    }
}
