//! Reading a segment batch by batch, and telling a torn tail from rot (`docs/spool.md` section 6).
//!
//! Used by recovery for segments without a footer, by the scrubber and by `verify`. Nothing is taken for good that does
//! not match its checksum; nothing that does is left out.

use crate::batch::next_frame;
use crate::disk::BLOCK;
use crate::format::{ALIGN, BatchHeader, Found, Frame, FrameHeader, Kind, Seed};

/// A frame in a scanned segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned<'a> {
    pub(crate) offset: u32,
    pub(crate) frame: Frame<'a>,
    /// Whether each section matches its checksum.
    pub(crate) sound: (bool, bool),
}

/// Bytes that should be frames and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rot {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// The message, if the frame's header survived.
    pub(crate) id: Option<u64>,
    pub(crate) what: &'static str,
}

/// The frames of a segment.
#[derive(Debug, Default)]
pub(crate) struct Scan<'a> {
    /// Frames in order of offset, PAD left out.
    pub(crate) frames: Vec<Scanned<'a>>,
    /// End of the last batch that is whole or was durable.
    pub(crate) data_end: u32,
    /// Where a batch begins that did not become durable.
    pub(crate) torn: Option<u32>,
    pub(crate) rot: Vec<Rot>,
    pub(crate) batches: u32,
    /// Offset of the last batch with a LIVEMAP, 0 if none.
    pub(crate) livemap: u32,
    /// The durable part that the batches name: generation and end.
    pub(crate) durable: Vec<(u64, u32)>,
}

/// Offsets and headers of all batches that can be found, also behind damage.
fn batches(bytes: &[u8], seed: Seed) -> Vec<(usize, BatchHeader)> {
    let mut found = Vec::new();
    let mut at = BLOCK;
    let mut number = 0;
    while at + BLOCK < bytes.len() {
        let header = BatchHeader::decode(seed, bytes.get(at..).unwrap_or_default());
        match header.filter(|header| header.number > number && at + header.bytes as usize <= bytes.len()) {
            Some(header) => {
                found.push((at, header));
                number = header.number;
                at += header.bytes as usize;
            }
            None => at += BLOCK,
        }
    }
    found
}

/// Returns the durable parts that the batches of a segment name, of this segment and of others.
pub(crate) fn durable(bytes: &[u8], seed: Seed) -> Vec<(u64, u32)> {
    batches(bytes, seed).into_iter().map(|(_, header)| header.durable).collect()
}

/// Reads all of a segment's bytes. `attested` is how far others say that it is durable; 0 if none does.
pub(crate) fn scan<'a>(bytes: &'a [u8], seed: Seed, generation: u64, attested: u32) -> Scan<'a> {
    let batches = batches(bytes, seed);
    let own = batches.iter().filter(|(_, header)| header.durable.0 == generation).map(|(_, header)| header.durable.1);
    let attested = own.chain([attested]).max().unwrap_or(0) as usize;
    let mut scan = Scan { data_end: number(BLOCK), ..Scan::default() };
    let mut end = BLOCK;
    for (at, header) in &batches {
        if *at > end && end >= attested {
            // One write of two batches was cut off in the first: the second was not acknowledged.
            scan.torn = Some(number(end));
            break;
        }
        scan.durable.push(header.durable);
        if *at > end {
            scan.salvage(bytes, seed, end, *at);
        }
        end = at + header.bytes as usize;
        scan.batches += 1;
        if scan.batch(bytes, seed, *at, header) {
            scan.data_end = number(end);
        } else if end <= attested {
            scan.salvage(bytes, seed, at + BatchHeader::SIZE, end);
            scan.data_end = number(end);
        } else {
            scan.torn = Some(number(*at));
            break;
        }
    }
    if end < attested.min(bytes.len()) {
        scan.salvage(bytes, seed, end, attested.min(bytes.len()));
        scan.data_end = number(attested.min(bytes.len()));
    }
    scan
}

impl<'a> Scan<'a> {
    /// Takes the frames of a batch if all of them are whole.
    fn batch(&mut self, bytes: &'a [u8], seed: Seed, base: usize, header: &BatchHeader) -> bool {
        let end = base + header.bytes as usize;
        let before = self.frames.len();
        let mut at = base + BatchHeader::SIZE;
        for _ in 0..header.frames {
            match Frame::find(seed, bytes.get(at..end).unwrap_or_default()) {
                Found::Whole(frame) => {
                    self.take(at, frame, (true, true));
                    at = next_frame(frame.header.kind, at + FrameHeader::SIZE + frame.first.len() + frame.second.len());
                }
                Found::Damaged(..) | Found::Nothing => {
                    self.frames.truncate(before);
                    return false;
                }
            }
        }
        if self.frames.get(before..).unwrap_or_default().iter().any(|found| found.frame.header.kind == Kind::Livemap) {
            self.livemap = number(base);
        }
        true
    }

    fn take(&mut self, at: usize, frame: Frame<'a>, sound: (bool, bool)) {
        if frame.header.kind != Kind::Pad {
            self.frames.push(Scanned { offset: number(at), frame, sound });
        }
    }

    /// Looks for frames in a region where damage broke the chain, and reports other bytes.
    fn salvage(&mut self, bytes: &'a [u8], seed: Seed, start: usize, end: usize) {
        let mut at = start;
        let mut gap_from = start;
        while at < end {
            let (frame, sound) = match Frame::find(seed, bytes.get(at..).unwrap_or_default()) {
                Found::Whole(frame) => (frame, (true, true)),
                Found::Damaged(frame, sound) => (frame, sound),
                Found::Nothing => {
                    at += ALIGN;
                    continue;
                }
            };
            self.gap(bytes, gap_from, at);
            let header = frame.header;
            let size = FrameHeader::SIZE + header.lengths.0 as usize + header.lengths.1 as usize;
            if sound != (true, true) {
                let what =
                    if sound.0 { "body does not match its checksum" } else { "envelope does not match its checksum" };
                self.rot.push(Rot { offset: number(at), bytes: number(size), id: Some(header.id), what });
            }
            if sound == (true, true) || sound.0 && header.is_message() {
                self.take(at, frame, sound);
            }
            at = next_frame(header.kind, at + size);
            gap_from = at;
        }
        self.gap(bytes, gap_from, end);
    }

    /// Reports bytes between frames that are not the zeroes at the end of a batch.
    fn gap(&mut self, bytes: &[u8], start: usize, end: usize) {
        if start >= end {
            return;
        }
        let padding = end.is_multiple_of(BLOCK) && end - start < BLOCK;
        let zeroes = bytes.get(start..end).is_some_and(|gap| gap.iter().all(|&byte| byte == 0));
        if !(padding && zeroes) {
            self.rot.push(Rot {
                offset: number(start),
                bytes: number(end - start),
                id: None,
                what: "no frame can be read here",
            });
        }
    }
}

fn number(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
