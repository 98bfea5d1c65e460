//! The bytes inside frames: envelopes, state entries, LIVEMAPs (`docs/spool.md` sections 3.4, 3.6 and 3.7).
//!
//! Every decoder takes what a disk gave and answers `None` where it does not make sense; none allocates more than its
//! input is long.

use crate::format::Reader;
use crate::hold::Hold;
use crate::store::{NewRecipient, State, Status};

/// Status byte of a run of finished recipients.
const RUN_OF_DONE: u8 = 2;
/// Destination length of a state entry that leaves the destination as it is.
const SAME_DESTINATION: u16 = u16::MAX;
/// The most bytes of a destination or of a recipient's data.
pub(crate) const NAME_BYTES_MAX: usize = 65_534;

/// The state of a recipient with the number of its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequenced {
    pub(crate) state: State,
    /// The higher number of two statements about one recipient holds.
    pub(crate) sequence: u16,
}

pub(crate) fn status_byte(status: Status) -> u8 {
    match status {
        Status::Waiting => 0,
        Status::Held => 1,
        Status::Done => RUN_OF_DONE,
        Status::Owed => 3,
    }
}

pub(crate) fn status_from_byte(byte: u8) -> Option<Status> {
    Some(match byte {
        0 => Status::Waiting,
        1 => Status::Held,
        RUN_OF_DONE => Status::Done,
        3 => Status::Owed,
        _ => return None,
    })
}

/// Status byte of a held recipient with a reason, which follows behind the rest of its entry.
const HELD_WITH_REASON: u8 = 4;

/// The status byte of an entry that has this reason behind it.
fn entry_byte(status: Status, hold: Option<&Hold>) -> u8 {
    if status == Status::Held && hold.is_some() { HELD_WITH_REASON } else { status_byte(status) }
}

/// The status that the byte of an entry says, and whether a reason follows behind the entry.
fn entry_status(byte: u8) -> Option<(Status, bool)> {
    if byte == HELD_WITH_REASON { Some((Status::Held, true)) } else { status_from_byte(byte).map(|of| (of, false)) }
}

/// Reads status, attempts, sequence and due, and whether a reason follows behind the entry.
pub(crate) fn read_sequenced(reader: &mut Reader<'_>) -> Option<(Sequenced, bool)> {
    let (status, has_reason) = entry_status(reader.u8()?)?;
    let attempts = reader.u8()?;
    let sequence = reader.u16()?;
    let due = reader.u32()?;
    Some((Sequenced { state: State { status, attempts, due }, sequence }, has_reason))
}

/// Appends status, attempts, sequence and due: eight bytes. The caller appends the reason behind the rest of the entry.
pub(crate) fn write_sequenced(to: &mut Vec<u8>, of: Sequenced, hold: Option<&Hold>) {
    to.extend_from_slice(&[entry_byte(of.state.status, hold), of.state.attempts]);
    to.extend_from_slice(&of.sequence.to_le_bytes());
    to.extend_from_slice(&of.state.due.to_le_bytes());
}

/// Reads the reason behind an entry, if its status says that there is one; `None` where it does not make sense.
pub(crate) fn read_reason(reader: &mut Reader<'_>, has_reason: bool) -> Option<Option<Hold>> {
    if has_reason { Hold::read(reader).map(Some) } else { Some(None) }
}

/// Appends the reason behind an entry whose status says that there is one.
pub(crate) fn write_reason(to: &mut Vec<u8>, of: Sequenced, hold: Option<&Hold>) {
    if let Some(hold) = hold.filter(|_| of.state.status == Status::Held) {
        hold.write(to);
    }
}

/// Why an envelope cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Writes an envelope section, recipient by recipient.
#[derive(Debug)]
pub(crate) struct EnvelopeWriter {
    bytes: Vec<u8>,
    run: u32,
}

impl EnvelopeWriter {
    /// Begins with the offset of the body in the content, the head, and the number of all recipients, finished ones
    /// included.
    pub(crate) fn new(body_offset: u32, head: &[u8], recipients: u32) -> Result<Self, TooLong> {
        let mut bytes = Vec::with_capacity(12 + head.len() + recipients.min(1 << 20) as usize * 48);
        bytes.extend_from_slice(&body_offset.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(head.len()).map_err(|_| TooLong)?.to_le_bytes());
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(&recipients.to_le_bytes());
        Ok(Self { bytes, run: 0 })
    }

    pub(crate) fn recipient(
        &mut self,
        state: Sequenced,
        recipient: NewRecipient<'_>,
        hold: Option<&Hold>,
    ) -> Result<(), TooLong> {
        if recipient.destination.len() > NAME_BYTES_MAX || recipient.data.len() > NAME_BYTES_MAX {
            return Err(TooLong);
        }
        self.flush_run();
        write_sequenced(&mut self.bytes, state, hold);
        let length = |of: &[u8]| u16::try_from(of.len()).map_err(|_| TooLong);
        self.bytes.extend_from_slice(&length(recipient.destination)?.to_le_bytes());
        self.bytes.extend_from_slice(&length(recipient.data)?.to_le_bytes());
        self.bytes.extend_from_slice(recipient.destination);
        self.bytes.extend_from_slice(recipient.data);
        write_reason(&mut self.bytes, state, hold);
        Ok(())
    }

    pub(crate) fn finished(&mut self, recipients: u32) {
        self.run = self.run.saturating_add(recipients);
    }

    fn flush_run(&mut self) {
        if self.run > 0 {
            let state = State { status: Status::Done, attempts: 0, due: self.run };
            write_sequenced(&mut self.bytes, Sequenced { state, sequence: 0 }, None);
            self.run = 0;
        }
    }

    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.flush_run();
        self.bytes
    }
}

/// An envelope section being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    /// Bytes of the header section, and so where the body begins in the content.
    pub(crate) body_offset: u32,
    pub(crate) head: &'a [u8],
    /// All recipients, finished ones included.
    pub(crate) recipients: u32,
    entries: &'a [u8],
}

/// An envelope's part about the next recipients.
#[derive(Clone, Debug)]
pub(crate) enum Listed<'a> {
    /// One recipient that is not done, with the reason why it is held.
    One(Sequenced, NewRecipient<'a>, Option<Hold>),
    /// That many finished ones.
    Finished(u32),
}

impl<'a> Envelope<'a> {
    /// Checks the whole section and gives access to it.
    pub(crate) fn parse(section: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(section);
        let body_offset = reader.u32()?;
        let head_len = reader.u32()? as usize;
        let head = reader.bytes(head_len)?;
        let recipients = reader.u32()?;
        let envelope = Self { body_offset, head, recipients, entries: reader.0 };
        let mut seen = 0_u32;
        for listed in envelope.iter() {
            seen = seen.checked_add(match listed? {
                Listed::One(..) => 1,
                Listed::Finished(count) => count,
            })?;
        }
        (seen == recipients).then_some(envelope)
    }

    /// The entries in order of position; `None` once where the bytes make no sense.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<Listed<'a>>> + use<'a> {
        let mut reader = Reader(self.entries);
        let mut broken = false;
        std::iter::from_fn(move || {
            if broken || reader.is_empty() {
                return None;
            }
            let listed = read_listed(&mut reader);
            broken = listed.is_none();
            Some(listed)
        })
    }

    /// The recipients that are listed, each with its position.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u32, Sequenced, NewRecipient<'a>)> + use<'a> {
        let mut position = 0_u32;
        self.iter().flatten().filter_map(move |listed| match listed {
            Listed::One(state, recipient, _) => {
                let here = position;
                position = position.saturating_add(1);
                Some((here, state, recipient))
            }
            Listed::Finished(count) => {
                position = position.saturating_add(count);
                None
            }
        })
    }
}

/// Where in a section each recipient begins, by position, so that one of many is found without reading the others;
/// `None` where the section makes no sense or lists finished ones.
pub(crate) fn places(section: &[u8]) -> Option<Box<[u32]>> {
    let envelope = Envelope::parse(section)?;
    let mut reader = Reader(envelope.entries);
    let mut places = Vec::with_capacity(envelope.recipients as usize);
    while !reader.is_empty() {
        places.push(u32::try_from(section.len() - reader.0.len()).ok()?);
        if let Listed::Finished(_) = read_listed(&mut reader)? {
            return None;
        }
    }
    Some(places.into())
}

/// Position and place of each recipient that a section lists, by position; `None` where the section makes no sense.
pub(crate) fn listed(section: &[u8]) -> Option<Box<[(u32, u32)]>> {
    let envelope = Envelope::parse(section)?;
    let mut reader = Reader(envelope.entries);
    let (mut listed, mut position) = (Vec::new(), 0_u32);
    while !reader.is_empty() {
        let place = u32::try_from(section.len() - reader.0.len()).ok()?;
        let count = match read_listed(&mut reader)? {
            Listed::One(..) => {
                listed.push((position, place));
                1
            }
            Listed::Finished(count) => count,
        };
        position = position.checked_add(count)?;
    }
    Some(listed.into())
}

/// The recipient that begins at a place of its section.
pub(crate) fn recipient_at(section: &[u8], place: u32) -> Option<NewRecipient<'_>> {
    match read_listed(&mut Reader(section.get(place as usize..)?))? {
        Listed::One(_, recipient, _) => Some(recipient),
        Listed::Finished(_) => None,
    }
}

/// Reads the offset of the body in the content.
pub(crate) fn body_offset(section: &[u8]) -> Option<u32> {
    Reader(section).u32()
}

/// The head of a section.
pub(crate) fn head(section: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader(section);
    reader.u32()?;
    let length = reader.u32()? as usize;
    reader.bytes(length)
}

fn read_listed<'a>(reader: &mut Reader<'a>) -> Option<Listed<'a>> {
    let (sequenced, has_reason) = read_sequenced(reader)?;
    if sequenced.state.status == Status::Done {
        return (sequenced.state.due > 0).then_some(Listed::Finished(sequenced.state.due));
    }
    let (destination_len, data_len) = (reader.u16()?, reader.u16()?);
    let destination = reader.bytes(destination_len.into())?;
    let data = reader.bytes(data_len.into())?;
    let hold = read_reason(reader, has_reason)?;
    Some(Listed::One(sequenced, NewRecipient { data, destination }, hold))
}

/// A recorded change of one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateEntry {
    pub(crate) id: u64,
    pub(crate) position: u32,
    pub(crate) sequenced: Sequenced,
    /// The new destination, if it changed.
    pub(crate) destination: Option<Box<[u8]>>,
    /// Why it is held.
    pub(crate) hold: Option<Hold>,
}

impl StateEntry {
    pub(crate) fn encoded_len(&self) -> usize {
        let hold = self.hold.as_ref().filter(|_| self.sequenced.state.status == Status::Held);
        22 + self.destination.as_ref().map_or(0, |name| name.len()) + hold.map_or(0, Hold::encoded_len)
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.id.to_le_bytes());
        to.extend_from_slice(&self.position.to_le_bytes());
        to.extend_from_slice(&self.sequenced.sequence.to_le_bytes());
        let status = entry_byte(self.sequenced.state.status, self.hold.as_ref());
        to.extend_from_slice(&[status, self.sequenced.state.attempts]);
        to.extend_from_slice(&self.sequenced.state.due.to_le_bytes());
        let name = self.destination.as_deref();
        let length = name.map_or(SAME_DESTINATION, |name| u16::try_from(name.len()).unwrap_or(SAME_DESTINATION));
        to.extend_from_slice(&length.to_le_bytes());
        to.extend_from_slice(name.unwrap_or_default());
        write_reason(to, self.sequenced, self.hold.as_ref());
    }
}

/// A state entry as it lies in bytes.
#[derive(Clone, Debug)]
pub(crate) struct ReadState<'a> {
    pub(crate) id: u64,
    pub(crate) position: u32,
    pub(crate) sequenced: Sequenced,
    pub(crate) destination: Option<&'a [u8]>,
    pub(crate) hold: Option<Hold>,
}

impl ReadState<'_> {
    /// The entry apart from the bytes that it was read from.
    pub(crate) fn to_entry(&self) -> StateEntry {
        let Self { id, position, sequenced, destination, hold } = self;
        let destination = destination.map(Into::into);
        StateEntry { id: *id, position: *position, sequenced: *sequenced, destination, hold: hold.clone() }
    }
}

/// The state entries of a section, up to the first that makes no sense.
pub(crate) fn read_states(section: &[u8]) -> impl Iterator<Item = ReadState<'_>> {
    let mut reader = Reader(section);
    std::iter::from_fn(move || read_state(&mut reader))
}

fn read_state<'a>(reader: &mut Reader<'a>) -> Option<ReadState<'a>> {
    let id = reader.u64()?;
    let position = reader.u32()?;
    let sequence = reader.u16()?;
    let (status, has_reason) = entry_status(reader.u8()?)?;
    let attempts = reader.u8()?;
    let due = reader.u32()?;
    let destination = match reader.u16()? {
        SAME_DESTINATION => None,
        length => Some(reader.bytes(length.into())?),
    };
    Some(ReadState {
        id,
        position,
        sequenced: Sequenced { state: State { status, attempts, due }, sequence },
        destination,
        hold: read_reason(reader, has_reason)?,
    })
}

/// The queue ids of a DONE section.
pub(crate) fn read_ids(section: &[u8]) -> impl Iterator<Item = u64> {
    section.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Which frames of a segment were live when a LIVEMAP was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedSegment {
    pub(crate) generation: u64,
    pub(crate) number: u32,
    /// End of its durable batches.
    pub(crate) data_end: u32,
    /// Frames with smaller ordinals are covered.
    pub(crate) frames: u32,
    /// One bit per covered ordinal, in words of 64.
    pub(crate) bits: Vec<u64>,
}

impl MappedSegment {
    /// Whether no covered frame is live.
    pub(crate) fn is_dead(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// Whether the frame is live: said so, or younger than the map.
    pub(crate) fn is_live(&self, ordinal: u32) -> bool {
        ordinal >= self.frames
            || self.bits.get(ordinal as usize / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }
}

/// Which frames of a shard were live at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Livemap {
    /// Segments of this and later generations are younger than the map.
    pub(crate) next_generation: u64,
    pub(crate) segments: Vec<MappedSegment>,
}

impl Livemap {
    pub(crate) fn write(&self) -> Vec<u8> {
        let words: usize = self.segments.iter().map(|segment| 3 + segment.bits.len()).sum();
        let mut to = Vec::with_capacity(16 + words * 8);
        to.extend_from_slice(&self.next_generation.to_le_bytes());
        to.extend_from_slice(&u32::try_from(self.segments.len()).unwrap_or(u32::MAX).to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        for segment in &self.segments {
            to.extend_from_slice(&segment.generation.to_le_bytes());
            for field in [segment.number, segment.data_end, segment.frames, 0] {
                to.extend_from_slice(&field.to_le_bytes());
            }
            for index in 0..segment.frames.div_ceil(64) as usize {
                to.extend_from_slice(&segment.bits.get(index).copied().unwrap_or(0).to_le_bytes());
            }
        }
        to
    }

    pub(crate) fn read(section: &[u8]) -> Option<Self> {
        let mut reader = Reader(section);
        let next_generation = reader.u64()?;
        let count = reader.u32()?;
        reader.u32()?;
        let mut segments = Vec::new();
        for _ in 0..count {
            let generation = reader.u64()?;
            let (number, data_end, frames, _) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
            let bytes = reader.bytes(frames.div_ceil(64) as usize * 8)?;
            let bits = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            segments.push(MappedSegment { generation, number, data_end, frames, bits });
        }
        reader.is_empty().then_some(Self { next_generation, segments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_keep_positions_across_finished_runs() {
        let state = |due| Sequenced { state: State { status: Status::Held, attempts: 3, due }, sequence: 9 };
        let recipient = |data| NewRecipient { data, destination: b"example.org" };
        let mut writer = EnvelopeWriter::new(9, b"head", 7).unwrap();
        writer.finished(1);
        writer.finished(1);
        let hold = Hold::new(crate::HoldKind::Rule, "spam", "looks like it");
        writer.recipient(state(1), recipient(b"c"), Some(&hold)).unwrap();
        writer.recipient(state(2), recipient(b"d"), None).unwrap();
        writer.finished(3);
        let bytes = writer.into_bytes();
        let envelope = Envelope::parse(&bytes).unwrap();
        assert_eq!((envelope.body_offset, envelope.head, envelope.recipients), (9, &b"head"[..], 7));
        assert_eq!(body_offset(&bytes), Some(9));
        let found: Vec<_> = envelope.positions().map(|(at, state, r)| (at, state.state.due, r.data)).collect();
        assert_eq!(found, [(2, 1, &b"c"[..]), (3, 2, &b"d"[..])]);
        let holds = envelope.iter().flatten().filter_map(|listed| match listed {
            Listed::One(_, _, hold) => Some(hold),
            Listed::Finished(_) => None,
        });
        assert_eq!(holds.collect::<Vec<_>>(), [Some(hold), None]);
        for cut in 0..bytes.len() {
            assert!(Envelope::parse(&bytes[..cut]).is_none(), "cut at {cut}");
        }
        assert_eq!(places(&bytes), None, "with finished ones positions are no places");
    }

    #[test]
    fn one_recipient_of_many_is_found_by_its_place() {
        let names: Vec<String> = (0..50).map(|n| "x".repeat(n * 7 % 23)).collect();
        let mut writer = EnvelopeWriter::new(0, b"the head", 50).unwrap();
        for name in &names {
            let recipient = NewRecipient { data: name.as_bytes(), destination: b"example.org" };
            writer.recipient(Sequenced::default(), recipient, None).unwrap();
        }
        let bytes = writer.into_bytes();
        let places = places(&bytes).unwrap();
        let found: Vec<&[u8]> = places.iter().map(|place| recipient_at(&bytes, *place).unwrap().data).collect();
        assert_eq!(found, names.iter().map(String::as_bytes).collect::<Vec<_>>());
        assert_eq!(head(&bytes), Some(&b"the head"[..]));
        assert!(recipient_at(&bytes, u32::try_from(bytes.len()).unwrap()).is_none());
        for cut in 0..bytes.len() {
            assert!(super::places(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn livemaps_round_trip() {
        let map = Livemap {
            next_generation: 12,
            segments: vec![
                MappedSegment { generation: 3, number: 0, data_end: 8192, frames: 65, bits: vec![5, 1] },
                MappedSegment { generation: 11, number: 4, data_end: 4096, frames: 0, bits: vec![] },
            ],
        };
        let bytes = map.write();
        assert_eq!(Livemap::read(&bytes), Some(map.clone()));
        assert!(map.segments[0].is_live(0) && !map.segments[0].is_live(1) && map.segments[0].is_live(64));
        assert!(map.segments[0].is_live(65), "younger than the map");
        for cut in 0..bytes.len() {
            assert_eq!(Livemap::read(&bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn states_round_trip() {
        let entry = StateEntry { id: 1, position: 2, sequenced: Sequenced::default(), destination: None, hold: None };
        let held = Sequenced { state: State { status: Status::Held, ..State::default() }, sequence: 3 };
        let hold = Some(Hold::new(crate::HoldKind::Operator, "ann", "why"));
        let destination = Some(b"x".as_slice().into());
        let entries = [
            entry.clone(),
            StateEntry { destination: destination.clone(), ..entry.clone() },
            StateEntry { sequenced: held, hold: hold.clone(), destination, ..entry.clone() },
            StateEntry { sequenced: held, hold, ..entry.clone() },
            StateEntry { sequenced: held, ..entry },
        ];
        let mut bytes = Vec::new();
        for entry in &entries {
            let before = bytes.len();
            entry.write(&mut bytes);
            assert_eq!(bytes.len() - before, entry.encoded_len());
        }
        let read: Vec<_> = read_states(&bytes).map(|read| read.to_entry()).collect();
        assert_eq!(read, entries);
    }
}
