//! The block: the unit of group commit, of the wire and of the shadow stream.
//!
//! A header of fixed size and records behind it. The checksum covers both, and each block has the checksum of the block
//! before it, so that a reader notices a block that is missing or foreign. All versions keep the places of magic,
//! version and checksum: a later version is believed only of a block that is sound. Blocks hold at most
//! [`BLOCK_BYTES_MAX`] octets, or twice as many while they shrink to half by compression. Larger records go into blocks
//! of their own, up to [`BLOCK_BYTES_LIMIT`]. From version 2 on records may be compressed; all these sizes are those
//! without that.
//!
//! [`Chain`] checks a sequence of blocks, as recovery and adoption read them.

use crate::compression::{Compressor, decompress};
use crate::identity::{ClusterId, Epoch, Incarnation, Lane, NodeId, StreamId};
use crate::record::{Cursor, RECORD_HEAD, Record};
use bytes::{Bytes, BytesMut};
use std::fmt;

/// The highest format version that this program reads and writes.
pub const BLOCK_VERSION: u16 = 2;
/// The first version with compressed records.
const COMPRESSED_VERSION: u16 = 2;

/// A range of format versions that a program reads. It can write each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockVersions {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Default for BlockVersions {
    fn default() -> Self {
        Self { oldest: 1, newest: BLOCK_VERSION }
    }
}

impl BlockVersions {
    /// The newest version that is in both ranges.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for BlockVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "{}", self.newest)
        } else {
            write!(f, "{} to {}", self.oldest, self.newest)
        }
    }
}

/// Octets at which a block is full.
pub const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Octets at which a block is full while the blocks of its lane shrink to half.
pub const BLOCK_BYTES_SHRINKING_MAX: usize = 2 * BLOCK_BYTES_MAX;
/// Octets that a reader takes at most: one record of that size and the header.
pub const BLOCK_BYTES_LIMIT: usize = 1 << 20;
/// Octets of the header.
pub const BLOCK_HEADER: usize = 88;

const MAGIC: &[u8; 4] = b"MRCB";
/// The offset of the octet that says how the records are encoded, 0 in version 1.
const ENCODING_AT: usize = 7;
/// Records as they are.
const PLAIN: u8 = 0;
/// Records compressed by LZ4.
const LZ4: u8 = 1;
/// The offset of the checksum, in all versions.
const CRC_AT: usize = BLOCK_HEADER - 4;

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The format version.
    pub version: u16,
    /// The cluster.
    pub cluster: ClusterId,
    /// The stream it is written to.
    pub stream: StreamId,
    /// The lane of the stream.
    pub lane: Lane,
    /// The node that wrote it: the owner, or an adopter.
    pub writer: NodeId,
    /// The life of the writer's local log.
    pub incarnation: Incarnation,
    /// The reign under which it was written.
    pub epoch: Epoch,
    /// Number in the stream. It grows from block to block; a block that was given up leaves a gap.
    pub number: u64,
    /// The first and last local sequence of its records: (0, 0) when none of them has one.
    pub local: (u64, u64),
    /// The checksum of the block before it in the stream; 0 for the first.
    pub previous_crc: u32,
    /// Records behind the header.
    pub records: u32,
}

/// A block that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its head.
    pub header: BlockHeader,
    /// Its checksum, which the next block repeats.
    pub crc: u32,
    /// Its octets with records that are not compressed.
    pub plain_octets: usize,
    /// Its content.
    pub records: Vec<Record>,
}

/// The reason why octets are not a block of this stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// Not a block, or one that changed after it was written: nothing of it can be used.
    Corrupt {
        /// The part that does not fit.
        part: &'static str,
    },
    /// A later version of the program wrote it; this version must not write behind it.
    NewerVersion {
        /// Its format version.
        version: u16,
        /// The versions that this program reads.
        reads: BlockVersions,
    },
    /// It belongs to another cluster.
    OtherCluster {
        /// The cluster in the block.
        found: ClusterId,
        /// Our cluster.
        ours: ClusterId,
    },
    /// It belongs to another stream.
    OtherStream {
        /// The stream in the block.
        found: StreamId,
        /// The stream it was read from.
        expected: StreamId,
    },
    /// Blocks before it are missing, or it was written behind a block that is not there.
    Gap {
        /// The number of the block.
        number: u64,
        /// The number of the block read before it.
        after: u64,
    },
    /// Its epoch is lower than that of the block before it: the fence did not hold.
    EpochFell {
        /// The epoch of the block.
        found: Epoch,
        /// The epoch of the block before it.
        after: Epoch,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { part } => {
                write!(f, "a block is corrupt ({part}); the owner copies its mail anew, check the holder's disk")
            }
            Self::NewerVersion { version, reads } => {
                write!(f, "a block has format version {version}, this program reads {reads}; upgrade this node")
            }
            Self::OtherCluster { found, ours } => write!(
                f,
                "a block belongs to cluster {found}, this one is {ours}; check which engine the node is connected to"
            ),
            Self::OtherStream { found, expected } => write!(
                f,
                "a block of {found} lies in {expected}; two clusters may share an engine account, give each its own"
            ),
            Self::Gap { number, after } => write!(
                f,
                "block {number} does not follow block {after}: blocks are missing; the owner copies its mail anew"
            ),
            Self::EpochFell { found, after } => write!(
                f,
                "a block of epoch {} follows epoch {}: the fence did not hold; report this with the stream's content",
                found.0, after.0
            ),
        }
    }
}

impl std::error::Error for BlockError {}

/// A block as it goes out.
pub(crate) struct WrittenBlock {
    pub(crate) octets: Bytes,
    pub(crate) crc: u32,
    /// Its octets with records that are not compressed.
    pub(crate) plain_octets: usize,
}

impl BlockHeader {
    /// Writes a block with these records. `records` of the header is set from them.
    ///
    /// Returns the octets and their checksum.
    #[must_use]
    pub fn write(&self, records: &[Record]) -> (Bytes, u32) {
        let written = self.write_into(BytesMut::new(), records.iter(), &mut Compressor::new(usize::MAX));
        (written.octets, written.crc)
    }

    /// As [`BlockHeader::write`], with records that are compressed if they shrink to half, in versions that know that.
    #[must_use]
    pub fn write_compressed(&self, records: &[Record]) -> (Bytes, u32) {
        let written = self.write_into(BytesMut::new(), records.iter(), &mut Compressor::new(0));
        (written.octets, written.crc)
    }

    /// Writes the block into a buffer whose content is not used any more; see [`BlockHeader::write_compressed`].
    pub(crate) fn write_into<'a>(
        &self,
        mut out: BytesMut,
        records: impl ExactSizeIterator<Item = &'a Record> + Clone,
        compressor: &mut Compressor,
    ) -> WrittenBlock {
        out.clear();
        let octets = BLOCK_HEADER + records.clone().map(Record::octets).sum::<usize>();
        if out.capacity() < octets {
            // Room for larger blocks to come: a large buffer costs more than its octets, since its pages are cleared.
            out = BytesMut::with_capacity(octets.next_power_of_two());
        }
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.lane == Lane::Bodies), PLAIN]);
        out.extend_from_slice(&self.cluster.0);
        for node in [self.stream.owner, self.stream.holder, self.writer] {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.stream.generation.to_le_bytes());
        for number in [self.incarnation.0, self.epoch.0, self.number, self.local.0, self.local.1] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.previous_crc.to_le_bytes());
        out.extend_from_slice(&u32::try_from(records.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        debug_assert_eq!(out.len(), BLOCK_HEADER);
        records.for_each(|record| record.write(&mut out));
        let plain_octets = out.len();
        let plain = out.get(BLOCK_HEADER..).filter(|_| self.version >= COMPRESSED_VERSION);
        if let Some(compressed) = plain.and_then(|plain| compressor.compress(plain)) {
            out.truncate(BLOCK_HEADER);
            out.extend_from_slice(compressed);
            if let Some(encoding) = out.get_mut(ENCODING_AT) {
                *encoding = LZ4;
            }
        }
        let crc = checksum(&out);
        if let Some(field) = out.get_mut(CRC_AT..BLOCK_HEADER) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
        WrittenBlock { octets: out.freeze(), crc, plain_octets }
    }

    /// Reads the header; the second value says whether the records are compressed.
    fn read(version: u16, from: &mut Cursor) -> Option<(Self, bool)> {
        let [lane, encoding] = from.octets()?;
        let lane = match lane {
            0 => Lane::Messages,
            1 => Lane::Bodies,
            _ => return None,
        };
        let is_compressed = match encoding {
            PLAIN => false,
            LZ4 if version >= COMPRESSED_VERSION => true,
            _ => return None,
        };
        let cluster = ClusterId(from.octets()?);
        let (owner, holder, writer) = (NodeId(from.u16()?), NodeId(from.u16()?), NodeId(from.u16()?));
        if from.u16()? != 0 {
            return None;
        }
        let stream = StreamId { owner, holder, generation: from.u32()? };
        let (incarnation, epoch, number) = (Incarnation(from.u64()?), Epoch(from.u64()?), from.u64()?);
        let local = (from.u64()?, from.u64()?);
        let (previous_crc, records) = (from.u32()?, from.u32()?);
        let header =
            Self { version, cluster, stream, lane, writer, incarnation, epoch, number, local, previous_crc, records };
        Some((header, is_compressed))
    }
}

/// CRC-32C of all octets but the field of the checksum itself.
fn checksum(block: &[u8]) -> u32 {
    let crc = crc32c::crc32c(block.get(..CRC_AT).unwrap_or_default());
    crc32c::crc32c_append(crc, block.get(BLOCK_HEADER..).unwrap_or_default())
}

impl Block {
    /// Reads a block of any stream of the cluster.
    ///
    /// # Errors
    /// `Corrupt`, `NewerVersion` and `OtherCluster`.
    pub fn read(ours: ClusterId, octets: &Bytes) -> Result<Self, BlockError> {
        Self::read_versions(ours, BlockVersions::default(), octets)
    }

    fn read_versions(ours: ClusterId, reads: BlockVersions, octets: &Bytes) -> Result<Self, BlockError> {
        let corrupt = |part| BlockError::Corrupt { part };
        if octets.len() > BLOCK_BYTES_LIMIT {
            return Err(corrupt("length"));
        }
        let mut from = Cursor(octets.clone());
        if from.octets().as_ref() != Some(MAGIC) {
            return Err(corrupt("magic"));
        }
        let version = from.u16().ok_or_else(|| corrupt("header"))?;
        let crc = octets.slice(CRC_AT.min(octets.len())..);
        let crc = Cursor(crc).u32().ok_or_else(|| corrupt("header"))?;
        // A flipped bit of the version must not read as a later one, which an adopter leaves to other nodes.
        if crc != checksum(octets) {
            return Err(corrupt("checksum"));
        }
        if version > reads.newest {
            return Err(BlockError::NewerVersion { version, reads });
        }
        let header = BlockHeader::read(version, &mut from).filter(|_| version >= reads.oldest);
        let (header, is_compressed) = header.ok_or_else(|| corrupt("header"))?;
        from.u32().ok_or_else(|| corrupt("header"))?;
        if header.cluster != ours {
            return Err(BlockError::OtherCluster { found: header.cluster, ours });
        }
        if is_compressed {
            from = Cursor(decompress(&from.0, BLOCK_BYTES_LIMIT).map_err(corrupt)?);
        }
        let plain_octets = BLOCK_HEADER + from.len();
        let mut records = Vec::with_capacity((header.records as usize).min(from.len() / RECORD_HEAD));
        while from.len() > 0 {
            records.push(Record::read(&mut from).ok_or_else(|| corrupt("record"))?);
        }
        if records.len() != header.records as usize {
            return Err(corrupt("number of records"));
        }
        Ok(Self { header, crc, plain_octets, records })
    }

    /// True for a block by which a node adopts the stream, also if that node is its owner.
    #[must_use]
    pub fn is_of_adoption(&self) -> bool {
        self.records.iter().any(|record| match record {
            Record::Fence(fence) => fence.is_adoption,
            Record::Adopted(_) => true,
            _ => false,
        })
    }

    /// True for a block that says that an adoption of the stream has ended.
    #[must_use]
    pub fn ends_adoption(&self) -> bool {
        self.records.iter().any(|record| matches!(record, Record::Adopted(adopted) if adopted.is_last))
    }

    /// Reads a block of one lane of a stream.
    ///
    /// # Errors
    /// As [`Block::read`], and `OtherStream`.
    pub fn read_of(ours: ClusterId, stream: StreamId, lane: Lane, octets: &Bytes) -> Result<Self, BlockError> {
        Self::read_of_versions(ours, BlockVersions::default(), stream, lane, octets)
    }

    /// Reads a block of one lane of a stream by a program that reads these versions.
    ///
    /// # Errors
    /// As [`Block::read_of`].
    #[doc(hidden)]
    pub fn read_of_versions(
        ours: ClusterId,
        reads: BlockVersions,
        stream: StreamId,
        lane: Lane,
        octets: &Bytes,
    ) -> Result<Self, BlockError> {
        let block = Self::read_versions(ours, reads, octets)?;
        let is_same = block.header.stream == stream && block.header.lane == lane;
        if is_same { Ok(block) } else { Err(BlockError::OtherStream { found: block.header.stream, expected: stream }) }
    }
}

/// Checks that blocks follow each other, from any first block on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain {
    last: Option<(u64, u32, Epoch)>,
}

impl Chain {
    /// Takes the next block of the stream.
    ///
    /// # Errors
    /// `Gap` and `EpochFell`; the chain stays as it was.
    pub const fn follow(&mut self, block: &Block) -> Result<(), BlockError> {
        let header = &block.header;
        if let Some((number, crc, epoch)) = self.last {
            if header.previous_crc != crc || header.number <= number {
                return Err(BlockError::Gap { number: header.number, after: number });
            }
            if header.epoch.0 < epoch.0 {
                return Err(BlockError::EpochFell { found: header.epoch, after: epoch });
            }
        }
        self.last = Some((header.number, block.crc, header.epoch));
        Ok(())
    }
}
