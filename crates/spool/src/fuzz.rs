//! One body per decoder of bytes from a disk: it takes any bytes, and asserts the properties that hold for all bytes.
//!
//! The tests of this module drive the bodies with mutated seeds in every run; a fuzzer's targets call the same
//! functions. Since checksums turn away nearly all that is mutated, decoders behind a checksum are called directly,
//! headers are written from the input and then damaged, and whole segments are real ones with the input as a list of
//! damages.
//!
//! Asserted everywhere: no panic, nothing out of proportion to the input, a value that was read and written is read
//! again as the same value, and damaged bytes are never taken for other good ones.

mod ground;
mod operations;
pub mod sample;

use crate::chunk_list::{self, ChunkList};
use crate::disk::BLOCK;
use crate::envelope::{decode_head, decode_recipient, encode_head, encode_recipient};
use crate::footer::Footer;
use crate::format::{
    ALIGN, BatchHeader, Found, Frame, FrameHeader, Identity, Kind, Opened, Reader, Seed, SegmentHeader, Trailer,
};
use crate::sections::{Envelope, EnvelopeWriter, Listed, Livemap, read_ids, read_states};
use mail::QueueId;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 14] = [
    ("segment_header", segment_header),
    ("segment_trailer", segment_trailer),
    ("batch_header", batch_header),
    ("frame", frame),
    ("envelope_section", envelope_section),
    ("chunk_list", chunk_list),
    ("state_entries", state_entries),
    ("done_ids", done_ids),
    ("livemap", livemap),
    ("footer", footer),
    ("identity", identity),
    ("envelope", envelope),
    ("segment_scan", segment_scan),
    ("recovery", recovery),
];

const UUID: [u8; 16] = *b"fuzzing the disk";

/// Reads values from the input; zeroes behind its end.
struct Input<'a>(Reader<'a>);

impl<'a> Input<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self(Reader(data))
    }

    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        for byte in &mut bytes {
            *byte = self.0.u8().unwrap_or(0);
        }
        u64::from_le_bytes(bytes)
    }

    fn half(&mut self) -> u32 {
        self.0.u32().unwrap_or(0)
    }

    /// At most `max` bytes.
    fn bytes(&mut self, max: usize) -> &'a [u8] {
        let length = self.0.0.len().min(max);
        self.0.bytes(length).unwrap_or_default()
    }
}

/// Inverts the bit of `bytes` that the input chooses.
fn flip(bytes: &mut [u8], choice: u32) {
    let at = choice as usize / 8 % bytes.len().max(1);
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (choice % 8);
    }
}

/// The first block of a segment.
pub fn segment_header(data: &[u8]) {
    drop_opened(SegmentHeader::decode(data));
    let mut input = Input::new(data);
    let header = SegmentHeader {
        uuid: UUID,
        generation: input.number(),
        previous: (input.number(), input.half()),
        number: input.half(),
        bytes: input.half(),
        shard: input.0.u16().unwrap_or(0),
        cold: input.half() % 2 == 1,
    };
    let mut block = vec![0xff; BLOCK];
    header.encode(&mut block);
    assert_eq!(SegmentHeader::decode(&block), Opened::As(header));
    flip(&mut block, input.half());
    match SegmentHeader::decode(&block) {
        Opened::As(read) => assert_eq!(read, header, "a damaged header is not taken for another one"),
        other => drop_opened(other),
    }
}

fn drop_opened(opened: Opened) {
    assert!(!matches!(opened, Opened::OtherFormat(version) if version == crate::VERSION));
}

/// The last block of a sealed segment.
pub fn segment_trailer(data: &[u8]) {
    check_trailer(Trailer::decode(data));
    let mut input = Input::new(data);
    let trailer = Trailer {
        uuid: UUID,
        generation: input.number(),
        data_end: input.half(),
        footer: (input.half(), input.half()),
        number: input.half(),
        livemap: input.half(),
        shard: input.0.u16().unwrap_or(0),
        cold: input.half() % 2 == 1,
        foreign: input.half() % 2 == 1,
    };
    let mut block = vec![0xff; BLOCK];
    trailer.encode(&mut block);
    assert_eq!(Trailer::decode(&block), Some(trailer));
    flip(&mut block, input.half());
    if let Some(read) = Trailer::decode(&block) {
        assert_eq!(read, trailer, "a damaged trailer is not taken for another one");
    }
}

fn check_trailer(trailer: Option<Trailer>) {
    let mut block = vec![0; BLOCK];
    if let Some(trailer) = trailer {
        trailer.encode(&mut block);
        assert_eq!(Trailer::decode(&block), Some(trailer));
    }
}

/// The head of a batch.
pub fn batch_header(data: &[u8]) {
    let seed = Seed::new(&UUID, 0, 1);
    if let Some(header) = BatchHeader::decode(seed, data) {
        assert!((header.bytes as usize).is_multiple_of(BLOCK));
    }
    let mut input = Input::new(data);
    let header = BatchHeader {
        bytes: (input.half() >> 12).max(1) << 12,
        frames: input.half(),
        number: input.number(),
        durable: (input.number(), input.half()),
    };
    let mut bytes = [0xff; BatchHeader::SIZE];
    header.encode(seed, &mut bytes);
    assert_eq!(BatchHeader::decode(seed, &bytes), Some(header));
    assert_eq!(BatchHeader::decode(Seed::new(&UUID, 0, 2), &bytes), None, "of another generation");
    flip(&mut bytes, input.half());
    assert_eq!(BatchHeader::decode(seed, &bytes), None);
}

/// A frame with its sections.
pub fn frame(data: &[u8]) {
    let seed = Seed::new(&UUID, 3, u64::MAX - 1);
    check_frame(seed, data);
    let mut input = Input::new(data);
    let kind = Kind::from_byte(1 + u8::try_from(input.half() % 9).unwrap_or(0)).unwrap_or(Kind::Pad);
    let (flags, id, choice) = (input.0.u8().unwrap_or(0), input.number(), input.half());
    let first_bytes = input.half() as usize % 300;
    let (first, second) = (input.bytes(first_bytes), input.bytes(4096));
    let Some(mut header) = FrameHeader::over(kind, flags, id, first, second) else { return };
    header.ordinal = choice;
    let mut bytes = vec![0; header.frame_bytes()];
    header.encode(seed, &mut bytes);
    for (to, from) in bytes.iter_mut().skip(FrameHeader::SIZE).zip(first.iter().chain(second)) {
        *to = *from;
    }
    let Found::Whole(found) = Frame::find(seed, &bytes) else { panic!("a frame as written is whole") };
    assert!(found.header == header && found.first == first && found.second == second);
    flip(&mut bytes, choice);
    check_frame(seed, &bytes);
    if let Found::Whole(found) = Frame::find(seed, &bytes) {
        // The inverted byte is in padding, or in filler that is not read.
        let same = found.first == first && found.second == second || kind == Kind::Pad;
        assert!(found.header == header && same, "a damaged frame is not taken for a whole one");
    }
}

fn check_frame(seed: Seed, data: &[u8]) {
    if let Found::Whole(frame) | Found::Damaged(frame, _) = Frame::find(seed, data) {
        assert!(FrameHeader::SIZE + frame.first.len() + frame.second.len() <= data.len());
        if let Some((content, list)) = chunk_list::split(&frame) {
            assert!(frame.second.starts_with(content) && frame.second.ends_with(list));
            assert_eq!(content.len() + list.len(), frame.second.len());
        }
        assert!(frame.header.frame_bytes().is_multiple_of(ALIGN));
    }
}

/// The envelope section of a message.
pub fn envelope_section(data: &[u8]) {
    let Some(envelope) = Envelope::parse(data) else { return };
    let writer = EnvelopeWriter::new(envelope.body_offset, envelope.head, envelope.recipients);
    let mut writer = writer.expect("it was read from as many bytes");
    for listed in envelope.iter() {
        match listed.expect("all of it was checked") {
            Listed::One(state, recipient, hold) => writer.recipient(state, recipient, hold.as_ref()).unwrap_or(()),
            Listed::Finished(count) => writer.finished(count),
        }
    }
    let bytes = writer.into_bytes();
    assert!(bytes.len() <= data.len(), "runs may be joined, nothing may grow");
    let again = Envelope::parse(&bytes).expect("what was written is read");
    let whole = |of: &Envelope<'_>| (of.body_offset, of.head.to_vec(), of.recipients);
    assert_eq!(whole(&again), whole(&envelope));
    let list = |envelope: Envelope<'_>| {
        let all = envelope.positions();
        all.map(|(at, state, one)| (at, state, one.data.to_vec(), one.destination.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(list(again), list(envelope));
}

/// The chunk list of a large message.
pub fn chunk_list(data: &[u8]) {
    if let Some(list) = ChunkList::read(data) {
        assert!(list.ranges().map(|(range, _)| range.end).max().is_none_or(|end| end == list.content_bytes()));
        assert_eq!(ChunkList::read(&list.write()), Some(list));
    }
}

/// The entries of a STATE frame.
pub fn state_entries(data: &[u8]) {
    let mut bytes = Vec::new();
    for read in read_states(data) {
        read.to_entry().write(&mut bytes);
    }
    assert_eq!(data.get(..bytes.len()), Some(bytes.as_slice()), "entries have one spelling");
}

/// The queue ids of a DONE frame.
pub fn done_ids(data: &[u8]) {
    assert_eq!(read_ids(data).count(), data.len() / 8);
}

/// A LIVEMAP.
pub fn livemap(data: &[u8]) {
    let Some(map) = Livemap::read(data) else { return };
    assert_eq!(Livemap::read(&map.write()).as_ref(), Some(&map));
    for segment in &map.segments {
        let live = (0..segment.frames.min(1 << 16)).filter(|ordinal| segment.is_live(*ordinal)).count();
        assert!(!segment.is_dead() || live == 0);
        assert!(segment.is_live(u32::MAX) || segment.frames == u32::MAX, "what is younger than the map lives");
    }
}

/// The footer of a sealed segment.
pub fn footer(data: &[u8]) {
    let Some(footer) = Footer::read(data) else { return };
    assert!(footer.rows.len() <= data.len() && footer.destinations.len() <= data.len());
    for row in &footer.rows {
        for (_, destination, _) in row.recipients() {
            assert!(destination.is_none_or(|index| (index as usize) < footer.destinations.len()));
        }
        assert!(row.is_message() || row.recipients().next().is_none());
    }
    assert_eq!(read_ids(footer.done).count() * 8, footer.done.len());
}

/// The identity file, with the checksum it has and with the right one.
pub fn identity(data: &[u8]) {
    let check = |text: &[u8]| match Identity::from_text(text) {
        Ok(identity) => assert_eq!(Identity::from_text(identity.to_text().as_bytes()), Ok(identity)),
        Err(Ok(version)) => assert_ne!(version, crate::VERSION),
        Err(Err(why)) => assert!(!why.is_empty()),
    };
    check(data);
    let text = data.rsplit(|byte| *byte == b'c').next().map_or(data, |last| {
        let before = data.len().saturating_sub(last.len() + "crc32c".len());
        data.get(..before).unwrap_or_default()
    });
    check(&[text, format!("crc32c {:08x}\n", crc32c::crc32c(text)).as_bytes()].concat());
}

/// The encoding of envelopes.
pub fn envelope(data: &[u8]) {
    if let Ok(envelope) = decode_head(QueueId::MIN, data) {
        assert_eq!(decode_head(QueueId::MIN, &encode_head(&envelope)), Ok(envelope));
    }
    if let Ok(recipient) = decode_recipient(data) {
        assert!(!crate::envelope::default_destination(&recipient.address).is_empty());
        assert_eq!(decode_recipient(&encode_recipient(&recipient)), Ok(recipient));
    }
}

/// Reading a segment batch by batch: the input as it is, and a real segment with the input as a list of damages.
pub fn segment_scan(data: &[u8]) {
    ground::scan_anything(data);
    ground::scan_damaged(data);
}

/// Opening a real spool after the damages that the input lists, reading all of it, and then operations on it: messages
/// in chunks, transactions that are given up, results of recipients, writes that fail.
pub fn recovery(data: &[u8]) {
    ground::recover_damaged(data);
}

#[cfg(test)]
mod tests;
