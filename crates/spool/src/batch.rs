//! A batch in memory: frames laid out as they will lie in the segment, from many sessions, for one write.
//!
//! Frames are copied into one aligned buffer; chunks of large bodies stay in the buffers they arrived in and are
//! written from there. Headers of frames stay open until the segment is known: [`Batch::seal`] fills in ordinals,
//! generation and checksums.

use crate::buffer::{AlignedBuf, round_up};
use crate::chunk_list::ChunkList;
use crate::commit::Cell;
use crate::disk::BLOCK;
use crate::error::Error;
use crate::format::{ALIGN, BatchHeader, FrameHeader, Kind, NO_ORDINAL, Seed};
use crate::sections::StateEntry;
use crate::store::Chunk;
use bytes::Bytes;
use std::sync::Arc;

/// Bytes before a chunk's data in its first block: the frame header and the first section.
const CHUNK_HEAD: usize = FrameHeader::SIZE + 8;

/// A frame in a batch, with the values that the committer needs when it is durable.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) header: FrameHeader,
    /// Offset from the start of the batch.
    pub(crate) offset: usize,
    /// In the buffer at `.0`, or at the given place of a chunk's own buffer.
    place: Where,
    pub(crate) content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Where {
    Buffer(usize),
    Chunk { index: usize, at: usize },
}

/// The part of a frame's content that is needed later.
#[derive(Debug)]
pub(crate) enum Content {
    /// A message with its content. Messages that are stored all or none share a cell; `None` is the cell of the batch.
    Message {
        envelope: Bytes,
        content: Bytes,
        cell: Option<Arc<Cell>>,
        /// No attempt follows at once: nothing of it goes to the cache.
        waits: bool,
    },
    /// A message in chunks; the committer fills in the chunk list.
    Reference {
        envelope: Bytes,
        /// The header section, which goes to the cache.
        header: Bytes,
        chunks: u32,
        bytes: u64,
        list: Option<ChunkList>,
        /// Its own result: it fails if one of its chunks did. Messages that are stored all or none share it.
        cell: Arc<Cell>,
        /// No attempt follows at once: the cache forgets its chunks.
        waits: bool,
    },
    /// A piece of a large body.
    Chunk { number: u32 },
    /// A copy made by relocation.
    Moved { envelope: Bytes, list: Option<ChunkList> },
    /// Recorded states.
    States(Vec<StateEntry>),
    /// Queue ids of finished messages.
    Done(Vec<u64>),
    /// Anything that needs no more care.
    Other,
}

impl Content {
    /// The cell of this message, if that is another than the cell of its batch.
    fn cell(&self) -> Option<&Arc<Cell>> {
        match self {
            Self::Message { cell, .. } => cell.as_ref(),
            Self::Reference { cell, .. } => Some(cell),
            _ => None,
        }
    }
}

/// A message that is laid out for a batch.
#[derive(Debug)]
pub(crate) struct MessageFrame {
    pub(crate) header: FrameHeader,
    pub(crate) first: Bytes,
    /// May be shorter than the header says: the rest is filled in by [`Batch::fill_list`].
    pub(crate) second: Bytes,
    /// Bytes that it adds to the footer.
    pub(crate) footer_bytes: usize,
    pub(crate) content: Content,
}

/// Frames for one write.
#[derive(Debug)]
pub(crate) struct Batch {
    buffer: AlignedBuf,
    /// Bytes used in the buffer.
    used: usize,
    /// Bytes from the start of the batch, chunks included.
    length: usize,
    /// Chunks, each with the place in the buffer before which it goes.
    chunks: Vec<(usize, Chunk)>,
    pub(crate) items: Vec<Item>,
    /// The most octets that the frames add to the footer.
    pub(crate) footer_bytes: usize,
    /// The result for all callers in it.
    pub(crate) cell: Arc<Cell>,
}

impl Batch {
    /// An empty batch whose buffer holds `capacity` bytes of frames.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::reuse(AlignedBuf::new(BatchHeader::SIZE + capacity))
    }

    /// A batch that takes nothing and has no memory, in the place of one that is taken away.
    pub(crate) fn none() -> Self {
        Self::reuse(AlignedBuf::none())
    }

    /// An empty batch in the buffer of a written one.
    pub(crate) fn reuse(buffer: AlignedBuf) -> Self {
        Self {
            buffer,
            used: BatchHeader::SIZE,
            length: BatchHeader::SIZE,
            chunks: Vec::new(),
            items: Vec::new(),
            footer_bytes: 0,
            cell: Arc::default(),
        }
    }

    pub(crate) fn into_buffer(self) -> AlignedBuf {
        self.buffer
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes it takes in the segment, a multiple of a block.
    pub(crate) fn bytes(&self) -> usize {
        round_up(self.length)
    }

    /// Bytes of frames that the buffer still holds.
    pub(crate) fn room(&self) -> usize {
        self.buffer.capacity() - self.used
    }

    /// Bytes a frame with sections of these lengths takes.
    pub(crate) fn frame_bytes(first: usize, second: usize) -> usize {
        (FrameHeader::SIZE + first + second).next_multiple_of(ALIGN)
    }

    /// Adds a frame; the caller has made sure that there is room. `footer_bytes`: its share of the footer.
    ///
    /// `second` may be shorter than the header says: the rest is filled in by [`Batch::fill_list`].
    pub(crate) fn push(
        &mut self,
        header: FrameHeader,
        first: &[u8],
        second: &[u8],
        footer_bytes: usize,
        content: Content,
    ) {
        let at = self.used;
        let bytes = header.frame_bytes();
        assert!(bytes <= self.room(), "the caller has checked the room");
        if let Some(frame) = self.buffer.as_mut_slice().get_mut(at..at + bytes) {
            let (sections, rest) = frame.split_at_mut(FrameHeader::SIZE).1.split_at_mut(first.len());
            sections.copy_from_slice(first);
            let (copied, padding) = rest.split_at_mut(second.len());
            copied.copy_from_slice(second);
            padding.fill(0);
        }
        self.items.push(Item { header, offset: self.length, place: Where::Buffer(at), content });
        self.used += bytes;
        self.length += bytes;
        self.footer_bytes += footer_bytes;
    }

    /// Bytes that [`Batch::push_chunk`] needs in the buffer, at the most.
    pub(crate) const CHUNK_ROOM: usize = 2 * BLOCK;

    /// Adds a chunk in its own buffer, so that its data starts at a block of the file.
    pub(crate) fn push_chunk(&mut self, id: u64, number: u32, mut chunk: Chunk) {
        let boundary = self.pad_to_block();
        let header_at = BLOCK - CHUNK_HEAD;
        let index = self.chunks.len();
        if boundary == self.length {
            // The filler before the chunk's header lies in the chunk's own first block.
            self.items.push(Item {
                header: pad(header_at),
                offset: self.length,
                place: Where::Chunk { index, at: 0 },
                content: Content::Other,
            });
        } else if let Some(last) = self.items.last_mut() {
            // The filler begun in the buffer goes on to the chunk's header.
            last.header = pad(boundary - last.offset + header_at);
            self.length = boundary;
        }
        let first = [number.to_le_bytes(), [0; 4]].concat();
        let mut header = FrameHeader {
            kind: Kind::Chunk,
            flags: 0,
            ordinal: NO_ORDINAL,
            lengths: (8, 0),
            crcs: (crc32c::crc32c(&first), chunk.crc),
            id,
        };
        header.lengths.1 = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let data_end = BLOCK + chunk.len();
        let block_end = round_up(data_end);
        let bytes = chunk.buffer.as_mut_slice();
        if let Some(head) = bytes.get_mut(BLOCK - 8..BLOCK) {
            head.copy_from_slice(&first);
        }
        if let Some(tail) = bytes.get_mut(data_end..block_end) {
            tail.fill(0);
        }
        self.items.push(Item {
            header,
            offset: self.length + header_at,
            place: Where::Chunk { index, at: header_at },
            content: Content::Chunk { number },
        });
        // Frames behind a chunk start at the next block, so nothing follows in its last one.
        self.length += block_end;
        self.footer_bytes += crate::footer::ROW;
        self.chunks.push((self.used, chunk));
    }

    /// Fills the buffer up to a block boundary of the file; returns the boundary as an offset in the batch.
    fn pad_to_block(&mut self) -> usize {
        if self.length.is_multiple_of(BLOCK) {
            return self.length;
        }
        let mut boundary = round_up(self.length);
        if boundary - self.length < FrameHeader::SIZE {
            boundary += BLOCK;
        }
        let gap = boundary - self.length;
        if let Some(bytes) = self.buffer.as_mut_slice().get_mut(self.used..self.used + gap) {
            bytes.fill(0);
        }
        self.items.push(Item {
            header: pad(gap),
            offset: self.length,
            place: Where::Buffer(self.used),
            content: Content::Other,
        });
        self.used += gap;
        boundary
    }

    /// Writes the chunk list of the item at `index` behind the header section, where its room was kept.
    pub(crate) fn fill_list(&mut self, index: usize, list: ChunkList) {
        let Some(item) = self.items.get_mut(index) else { return };
        let (Content::Reference { list: kept, .. }, Where::Buffer(at)) = (&mut item.content, item.place) else {
            return;
        };
        assert!(kept.is_none(), "the checksum goes on from that of the header section");
        let bytes = list.write();
        let header_bytes = list.header_bytes as usize;
        let expected = header_bytes + bytes.len();
        assert_eq!(item.header.lengths.1 as usize, expected, "the list has the length that was kept for it");
        item.header.crcs.1 = crc32c::crc32c_append(item.header.crcs.1, &bytes);
        let start = at + FrameHeader::SIZE + item.header.lengths.0 as usize + header_bytes;
        if let Some(to) = self.buffer.as_mut_slice().get_mut(start..start + bytes.len()) {
            to.copy_from_slice(&bytes);
        }
        *kept = Some(list);
    }

    /// Fails all messages that share this cell and takes them out of the batch; returns the queue ids of those in
    /// chunks.
    pub(crate) fn fail(&mut self, cell: &Arc<Cell>) -> Vec<u64> {
        let mut chunked = Vec::new();
        for at in 0..self.items.len() {
            let Some(item) = self.items.get(at) else { break };
            if item.content.cell().is_none_or(|of| !Arc::ptr_eq(of, cell)) {
                continue;
            }
            if matches!(item.content, Content::Reference { .. }) {
                chunked.push(item.header.id);
            }
            self.void(at);
        }
        cell.settle(&Err(Error::Failed));
        chunked
    }

    /// Excludes an item from publication: its frame becomes filler.
    pub(crate) fn void(&mut self, index: usize) {
        let Some(item) = self.items.get_mut(index) else { return };
        if item.header.kind == Kind::Chunk {
            // The frame behind a chunk starts at the next block, the frame behind a filler right behind it.
            let end = round_up(item.offset + item.header.frame_bytes());
            item.header = pad(end - item.offset);
        }
        item.header.kind = Kind::Pad;
        item.content = Content::Other;
    }

    /// Numbers the kept frames from `ordinal` on, seals all headers, and returns the next ordinal.
    pub(crate) fn seal(&mut self, seed: Seed, mut ordinal: u32, number: u64, durable: (u64, u32)) -> u32 {
        let bytes = u32::try_from(self.bytes()).unwrap_or(u32::MAX);
        let frames = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        for item in &mut self.items {
            if item.header.kind.kept() {
                item.header.ordinal = ordinal;
                ordinal += 1;
            }
            let target = match item.place {
                Where::Buffer(at) => self.buffer.as_mut_slice().get_mut(at..),
                Where::Chunk { index, at } => {
                    self.chunks.get_mut(index).and_then(|(_, chunk)| chunk.buffer.as_mut_slice().get_mut(at..))
                }
            };
            if let Some(to) = target {
                item.header.encode(seed, to);
            }
        }
        BatchHeader { bytes, frames, number, durable }.encode(seed, self.buffer.as_mut_slice());
        let end = round_up(self.used).min(self.buffer.capacity());
        if let Some(padding) = self.buffer.as_mut_slice().get_mut(self.used..end) {
            padding.fill(0);
        }
        ordinal
    }

    /// The bytes in order, in pieces that start and end at blocks.
    pub(crate) fn pieces<'a>(&'a self, to: &mut Vec<&'a [u8]>) {
        let buffer = self.buffer.as_slice();
        let mut at = 0;
        for (cut, chunk) in &self.chunks {
            if *cut > at {
                to.extend(buffer.get(at..*cut));
            }
            at = *cut;
            to.extend(chunk.buffer.as_slice().get(..round_up(BLOCK + chunk.len())));
        }
        if self.used > at || self.chunks.is_empty() {
            to.extend(buffer.get(at..round_up(self.used)));
        }
    }

    /// Returns the cells of all callers that wait for the batch.
    pub(crate) fn cells(&self) -> Vec<Arc<Cell>> {
        let own = self.items.iter().filter_map(|item| item.content.cell().cloned());
        own.chain([Arc::clone(&self.cell)]).collect()
    }

    /// The chunks, in the order in which they were pushed, for the cache.
    pub(crate) fn take_chunks(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks).into_iter().map(|(_, chunk)| chunk).collect()
    }
}

/// A filler of `bytes` bytes with its header.
fn pad(bytes: usize) -> FrameHeader {
    FrameHeader {
        kind: Kind::Pad,
        flags: 0,
        ordinal: NO_ORDINAL,
        lengths: (0, u32::try_from(bytes.saturating_sub(FrameHeader::SIZE)).unwrap_or(0)),
        crcs: (0, 0),
        id: 0,
    }
}

/// Where the next frame starts behind one that ends at `end`, both as offsets in the segment.
pub(crate) fn next_frame(kind: Kind, end: usize) -> usize {
    match kind {
        Kind::Chunk => round_up(end),
        _ => end.next_multiple_of(ALIGN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Found, Frame};

    fn chunk(bytes: usize, fill: u8) -> Chunk {
        let mut chunk = Chunk::new(bytes.max(1));
        chunk.push(&vec![fill; bytes]);
        chunk.seal();
        chunk
    }

    fn walk(seed: Seed, bytes: &[u8]) -> Vec<(Kind, u32, Vec<u8>)> {
        let header = BatchHeader::decode(seed, bytes).expect("header");
        assert_eq!(header.bytes as usize, bytes.len());
        let mut at = BatchHeader::SIZE;
        let mut seen = Vec::new();
        for _ in 0..header.frames {
            let Found::Whole(frame) = Frame::find(seed, &bytes[at..]) else { panic!("no frame at {at}: {seen:?}") };
            if frame.header.kind == Kind::Chunk {
                assert_eq!((at + FrameHeader::SIZE + 8) % BLOCK, 0, "data of a chunk starts at a block");
            }
            if frame.header.kind != Kind::Pad {
                seen.push((frame.header.kind, frame.header.ordinal, frame.second.to_vec()));
            }
            at = next_frame(frame.header.kind, at + FrameHeader::SIZE + frame.first.len() + frame.second.len());
        }
        seen
    }

    #[test]
    fn a_voided_chunk_leaves_the_rest_in_place() {
        let seed = Seed::new(&[1; 16], 0, 1);
        let mut batch = Batch::new(64 << 10);
        let header = FrameHeader::over(Kind::Message, 0, 1, b"env", b"body").unwrap();
        batch.push(header, b"env", b"body", 0, Content::Other);
        batch.push_chunk(2, 0, chunk(5000, 1));
        batch.push(header, b"env", b"body", 0, Content::Other);
        let at = batch.items.iter().position(|item| item.header.kind == Kind::Chunk).unwrap();
        batch.void(at);
        assert_eq!(batch.seal(seed, 0, 1, (0, 0)), 2);
        let mut pieces = Vec::new();
        batch.pieces(&mut pieces);
        let kinds: Vec<_> =
            walk(seed, &pieces.concat()).into_iter().map(|(kind, ordinal, _)| (kind, ordinal)).collect();
        assert_eq!(kinds, [(Kind::Message, 0), (Kind::Message, 1)]);
    }

    #[test]
    fn frames_and_chunks_lie_where_a_reader_finds_them() {
        let seed = Seed::new(&[1; 16], 0, 1);
        for small in [1, 3900, 3990, 4000, 4024, 4032, 4096, 9000] {
            for large in [1, BLOCK - 1, BLOCK, 3 * BLOCK, 256 << 10] {
                let mut batch = Batch::new(64 << 10);
                let mut expected = Vec::new();
                let mut ordinal = 0;
                for round in 0..3_u8 {
                    let body = vec![round; small];
                    let header = FrameHeader::over(Kind::Message, 0, 1, b"env", &body).unwrap();
                    batch.push(header, b"env", &body, 0, Content::Other);
                    expected.push((Kind::Message, ordinal, body));
                    for more in 0..=round {
                        batch.push_chunk(2, 0, chunk(large, more));
                        ordinal += 1;
                        expected.push((Kind::Chunk, ordinal, vec![more; large]));
                    }
                    ordinal += 1;
                }
                assert_eq!(batch.seal(seed, 0, 1, (0, 0)), ordinal);
                let mut pieces = Vec::new();
                batch.pieces(&mut pieces);
                assert!(pieces.iter().all(|piece| piece.len() % BLOCK == 0 && piece.as_ptr().align_offset(BLOCK) == 0));
                let bytes = pieces.concat();
                assert_eq!(bytes.len(), batch.bytes());
                assert_eq!(walk(seed, &bytes), expected, "{small} {large}");
            }
        }
    }
}
