//! The footer of a sealed segment, which saves recovery from reading all its batches (`docs/spool.md` section 3.8).
//!
//! The writer of a segment keeps a [`FooterBuilder`] beside it and adds each frame as it is published, so sealing costs
//! one write and no reading. The same builder rebuilds the footer of a segment that was read batch by batch.

use crate::format::{FrameHeader, Kind, Reader};
use crate::hold::Hold;
use crate::sections::{
    Envelope, Listed, ReadState, Sequenced, StateEntry, read_reason, read_sequenced, read_states, write_reason,
    write_sequenced,
};
use crate::store::{State, Status};
use std::collections::HashMap;

/// Destination index of a run of finished recipients.
const NO_DESTINATION: u32 = u32::MAX;
/// Bytes of the four counts at the start.
const COUNTS: usize = 16;
/// Bytes of a row without its recipients and chunk list.
pub(crate) const ROW: usize = 20;
/// Bytes of a recipient in a row without the reason why it is held.
const RECIPIENT: usize = 12;

/// Collects the footer of a segment while it is written.
#[derive(Debug, Default)]
pub(crate) struct FooterBuilder {
    frames: u32,
    table: Vec<u8>,
    destinations: HashMap<Box<[u8]>, u32>,
    destination_bytes: Vec<u8>,
    states: Vec<u8>,
    state_count: u32,
    done: Vec<u8>,
}

impl FooterBuilder {
    /// Bytes the SEAL frame will take, rounded up generously; so many must stay free at the end of the segment.
    pub(crate) fn frame_bytes(&self) -> usize {
        FrameHeader::SIZE
            + COUNTS
            + self.table.len()
            + self.destination_bytes.len()
            + self.states.len()
            + self.done.len()
            + 8
    }

    /// Bytes a message adds at the most: its row, and for each entry of its envelope a state and perhaps a new name.
    ///
    /// `name_bytes` are those of destinations and of reasons why recipients are held.
    pub(crate) fn message_bytes(recipients: usize, name_bytes: usize, list_bytes: usize) -> usize {
        ROW + 4 + recipients * (RECIPIENT + 2) + name_bytes + 4 + list_bytes
    }

    /// Whether state entries are in it that may have to be carried over when the segment is used again.
    pub(crate) fn state_count(&self) -> u32 {
        self.state_count
    }

    /// Adds a kept frame; `list` is its chunk list, if it has one.
    ///
    /// Frames come in order of ordinal; a gap is filled with empty rows.
    pub(crate) fn add(
        &mut self,
        header: &FrameHeader,
        offset: u32,
        envelope: Option<&Envelope<'_>>,
        list: Option<&[u8]>,
    ) {
        while self.frames < header.ordinal {
            self.row(0, 0, 0, 0, 0);
        }
        let size = u32::try_from(header.frame_bytes()).unwrap_or(u32::MAX);
        self.row(header.kind as u8, header.flags, offset, size, header.id);
        if header.is_message() {
            self.recipients(envelope);
        }
        if header.has_chunk_list() {
            let list = list.unwrap_or_default();
            self.table.extend_from_slice(&u32::try_from(list.len()).unwrap_or(0).to_le_bytes());
            self.table.extend_from_slice(list);
        }
    }

    fn row(&mut self, kind: u8, flags: u8, offset: u32, size: u32, id: u64) {
        self.frames += 1;
        self.table.extend_from_slice(&[kind, flags, 0, 0]);
        self.table.extend_from_slice(&offset.to_le_bytes());
        self.table.extend_from_slice(&size.to_le_bytes());
        self.table.extend_from_slice(&id.to_le_bytes());
    }

    fn recipients(&mut self, envelope: Option<&Envelope<'_>>) {
        let count_at = self.table.len();
        self.table.extend_from_slice(&[0; 4]);
        let mut count = 0_u32;
        for listed in envelope.iter().flat_map(|envelope| envelope.iter().flatten()) {
            count += 1;
            let (sequenced, destination, hold) = match listed {
                Listed::One(sequenced, recipient, hold) => (sequenced, self.destination(recipient.destination), hold),
                Listed::Finished(run) => {
                    let state = State { status: Status::Done, attempts: 0, due: run };
                    (Sequenced { state, sequence: 0 }, NO_DESTINATION, None)
                }
            };
            write_sequenced(&mut self.table, sequenced, hold.as_ref());
            self.table.extend_from_slice(&destination.to_le_bytes());
            write_reason(&mut self.table, sequenced, hold.as_ref());
        }
        if let Some(field) = self.table.get_mut(count_at..count_at + 4) {
            field.copy_from_slice(&count.to_le_bytes());
        }
    }

    fn destination(&mut self, name: &[u8]) -> u32 {
        if let Some(&index) = self.destinations.get(name) {
            return index;
        }
        let index = u32::try_from(self.destinations.len()).unwrap_or(NO_DESTINATION);
        self.destinations.insert(name.into(), index);
        self.destination_bytes.extend_from_slice(&u16::try_from(name.len()).unwrap_or(0).to_le_bytes());
        self.destination_bytes.extend_from_slice(name);
        index
    }

    /// Adds the state entries of a STATE frame.
    pub(crate) fn add_states(&mut self, section: &[u8]) {
        for state in read_states(section) {
            self.add_state(&state.to_entry());
        }
    }

    /// Adds one state entry.
    pub(crate) fn add_state(&mut self, entry: &StateEntry) {
        entry.write(&mut self.states);
        self.state_count += 1;
    }

    /// Adds the queue ids of a DONE frame.
    pub(crate) fn add_done(&mut self, section: &[u8]) {
        self.done.extend_from_slice(section.as_chunks::<8>().0.as_flattened());
    }

    /// The second section of the SEAL frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.frame_bytes());
        let destinations = u32::try_from(self.destinations.len()).unwrap_or(u32::MAX);
        let done = u32::try_from(self.done.len() / 8).unwrap_or(u32::MAX);
        for count in [self.frames, destinations, self.state_count, done] {
            to.extend_from_slice(&count.to_le_bytes());
        }
        for part in [&self.destination_bytes, &self.table, &self.states, &self.done] {
            to.extend_from_slice(part);
        }
        to
    }
}

/// A footer being read.
#[derive(Debug)]
pub(crate) struct Footer<'a> {
    /// Names of destinations, by index.
    pub(crate) destinations: Vec<&'a [u8]>,
    /// Rows in order of ordinal.
    pub(crate) rows: Vec<Row<'a>>,
    /// State entries.
    pub(crate) states: Vec<ReadState<'a>>,
    /// Queue ids of messages that finished while this segment was written.
    pub(crate) done: &'a [u8],
}

/// A kept frame as the footer tells of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// `None` for a gap.
    pub(crate) kind: Option<Kind>,
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) id: u64,
    recipients: &'a [u8],
    /// The chunk list, empty if it has none.
    pub(crate) list: &'a [u8],
}

impl Row<'_> {
    /// Whether the frame holds an envelope.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.kind, Some(Kind::Message | Kind::Reference | Kind::Moved))
    }

    /// The recipients: state, index of destination, `None` for runs of finished ones whose number is in `due`, and the
    /// reason why it is held.
    pub(crate) fn recipients(&self) -> impl Iterator<Item = (Sequenced, Option<u32>, Option<Hold>)> {
        let mut reader = Reader(self.recipients);
        std::iter::from_fn(move || read_recipient(&mut reader))
    }
}

fn read_recipient(reader: &mut Reader<'_>) -> Option<(Sequenced, Option<u32>, Option<Hold>)> {
    let (sequenced, has_reason) = read_sequenced(reader)?;
    let destination = reader.u32()?;
    let hold = read_reason(reader, has_reason)?;
    Some((sequenced, (destination != NO_DESTINATION).then_some(destination), hold))
}

impl<'a> Footer<'a> {
    /// Reads the second section of a SEAL frame; `None` if it does not make sense.
    pub(crate) fn read(section: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(section);
        let (frames, destination_count, state_count, done) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let mut destinations = Vec::new();
        for _ in 0..destination_count {
            let length = reader.u16()?;
            destinations.push(reader.bytes(length.into())?);
        }
        let mut rows = Vec::new();
        for _ in 0..frames {
            rows.push(read_row(&mut reader, destinations.len())?);
        }
        let states: Vec<_> = read_states(reader.0).take(state_count as usize).collect();
        let state_bytes: usize = states.iter().map(|state| state.to_entry().encoded_len()).sum();
        reader.bytes(state_bytes)?;
        let whole = states.len() == state_count as usize && reader.0.len() == done as usize * 8;
        whole.then_some(Self { destinations, rows, states, done: reader.0 })
    }
}

fn read_row<'a>(reader: &mut Reader<'a>, destinations: usize) -> Option<Row<'a>> {
    let (kind, flags, _) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let (offset, size, id) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let kind = if kind == 0 { None } else { Some(Kind::from_byte(kind)?) };
    let mut row = Row { kind, offset, size, id, recipients: &[], list: &[] };
    if matches!(kind, Some(Kind::Message | Kind::Reference | Kind::Moved)) {
        let count = reader.u32()?;
        let known = |index: Option<u32>| index.is_none_or(|index| (index as usize) < destinations);
        let all = reader.0;
        for _ in 0..count {
            let (_, destination, _) = read_recipient(reader)?;
            if !known(destination) {
                return None;
            }
        }
        row.recipients = all.get(..all.len() - reader.0.len())?;
    }
    if kind == Some(Kind::Reference) || kind == Some(Kind::Moved) && flags & crate::format::FLAG_CHUNKS != 0 {
        let length = reader.u32()? as usize;
        row.list = reader.bytes(length)?;
    }
    Some(row)
}

/// A segment whose footer is to be written.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) slot: u16,
    pub(crate) generation: u64,
    pub(crate) cold: bool,
    pub(crate) footer: FooterBuilder,
    pub(crate) data_end: u32,
    pub(crate) livemap: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_list::{ChunkList, ChunkPlace};
    use crate::sections::EnvelopeWriter;
    use crate::store::NewRecipient;

    #[test]
    fn footers_tell_what_was_added() {
        let mut builder = FooterBuilder::default();
        let mut writer = EnvelopeWriter::new(6, b"h", 4).unwrap();
        let held = Sequenced { state: State { status: Status::Held, ..State::default() }, sequence: 1 };
        let hold = Hold::new(crate::HoldKind::Rule, "spam", "looks like it");
        for name in [b"a.example".as_slice(), b"b.example", b"a.example"] {
            writer.recipient(held, NewRecipient { data: b"d", destination: name }, Some(&hold)).unwrap();
        }
        writer.finished(1);
        let envelope = writer.into_bytes();
        let place = ChunkPlace { generation: 1, offset: 2, ordinal: 3, bytes: 4, crc: 5 };
        let list = ChunkList { header_bytes: 6, places: [place].into() }.write();
        let second = [b"header", list.as_slice()].concat();
        let mut header = FrameHeader::over(Kind::Reference, 0, 77, &envelope, &second).unwrap();
        header.ordinal = 1;
        builder.add(&header, 4096, Envelope::parse(&envelope).as_ref(), Some(&list));
        let entry = StateEntry { id: 5, position: 0, sequenced: held, destination: None, hold: Some(hold.clone()) };
        builder.add_state(&entry);
        builder.add_done(&9_u64.to_le_bytes());
        let bytes = builder.encode();
        assert!(bytes.len() + FrameHeader::SIZE <= builder.frame_bytes());
        let footer = Footer::read(&bytes).unwrap();
        assert_eq!(footer.destinations, [b"a.example", b"b.example"]);
        assert_eq!(footer.rows.len(), 2);
        assert_eq!(footer.rows[0].kind, None);
        let row = &footer.rows[1];
        assert_eq!((row.kind, row.id, row.offset, row.list), (Some(Kind::Reference), 77, 4096, &list[..]));
        let destinations: Vec<_> = row.recipients().map(|(_, destination, _)| destination).collect();
        assert_eq!(destinations, [Some(0), Some(1), Some(0), None]);
        assert_eq!(row.recipients().filter(|(_, _, held)| held.as_ref() == Some(&hold)).count(), 3);
        assert_eq!(footer.states.iter().map(ReadState::to_entry).collect::<Vec<_>>(), [entry]);
        assert_eq!(footer.done, 9_u64.to_le_bytes());
        for cut in 0..bytes.len() {
            assert!(Footer::read(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }
}
