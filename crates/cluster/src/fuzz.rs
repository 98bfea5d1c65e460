//! One body per reader of foreign octets: it takes any octets, and asserts what must hold for all.
//!
//! The tests of this module drive the bodies with mutated seeds in every run; targets of a fuzzer call the same
//! functions. Since a checksum turns away nearly all that is mutated, records are also read without one, and blocks are
//! written from the input and then damaged.

#![expect(clippy::missing_panics_doc, reason = "a body panics when a property does not hold")]

use crate::block::{BLOCK_BYTES_LIMIT, Block, BlockHeader};
use crate::claim::Claim;
use crate::compression::{Compressor, decompress};
use crate::host_status::HostStatus;
use crate::identity::{ClusterId, Epoch, Incarnation, Lane, NodeId, StreamId};
use crate::membership::{DepartureMark, NodeEntry};
use crate::record::{Cursor, Record};
use bytes::{Bytes, BytesMut};

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 6] = [
    ("block", block),
    ("compressed_records", compressed_records),
    ("records", records),
    ("claim", claim),
    ("node_entry", node_entry),
    ("host_status", host_status),
];

const CLUSTER: ClusterId = ClusterId(*b"fuzzing a stream");

/// A block as it is, and one of the records in the input, with one bit inverted.
pub fn block(data: &[u8]) {
    let whole = Bytes::copy_from_slice(data);
    if let Ok(read) = Block::read(CLUSTER, &whole) {
        let is_compressed = data.get(7) != Some(&0);
        assert!(is_compressed || read.header.write(&read.records).0 == whole, "a plain block has one spelling");
    }
    let (list, rest) = read_all(&whole);
    let number = |at: usize| data.get(at).copied().map_or(0, u64::from);
    let header = BlockHeader {
        version: crate::block::BLOCK_VERSION,
        cluster: CLUSTER,
        stream: StreamId { owner: NodeId(1), holder: NodeId(2), generation: 0 },
        lane: if number(0) % 2 == 0 { Lane::Messages } else { Lane::Bodies },
        writer: NodeId(1),
        incarnation: Incarnation(number(1)),
        epoch: Epoch(number(2)),
        number: number(3),
        local: (0, 0),
        previous_crc: 7,
        records: u32::try_from(list.len()).unwrap_or(0),
    };
    let (octets, crc) = if number(6) % 2 == 0 { header.write(&list) } else { header.write_compressed(&list) };
    let read = Block::read(CLUSTER, &octets).expect("a block as written is read");
    assert!(read.header == header && read.crc == crc && read.records == list);
    let mut damaged = octets.to_vec();
    let bit = usize::try_from(number(4) << 8 | number(5)).unwrap_or(0) + rest % 8;
    let at = bit / 8 % damaged.len();
    if let Some(octet) = damaged.get_mut(at) {
        *octet ^= 1 << (bit % 8);
    }
    let damaged = Block::read(CLUSTER, &Bytes::from(damaged));
    assert!(damaged.is_err(), "a damaged block is noticed");
}

/// Compressed records as they are, and those that the input compresses to, with one bit inverted.
pub fn compressed_records(data: &[u8]) {
    if let Ok(records) = decompress(&Bytes::copy_from_slice(data), BLOCK_BYTES_LIMIT) {
        assert!(records.len() <= BLOCK_BYTES_LIMIT && records.len() <= data.len().saturating_mul(255));
    }
    let alike = data.repeat(3);
    let mut compressor = Compressor::new(0);
    let Some(compressed) = compressor.compress(&alike).map(Bytes::copy_from_slice) else { return };
    assert_eq!(decompress(&compressed, BLOCK_BYTES_LIMIT).as_deref(), Ok(alike.as_slice()));
    let mut damaged = compressed.to_vec();
    let bit = data.iter().fold(0_usize, |sum, octet| sum.wrapping_mul(31).wrapping_add((*octet).into()));
    let at = bit / 8 % damaged.len();
    if let Some(octet) = damaged.get_mut(at) {
        *octet ^= 1 << (bit % 8);
    }
    // Some bits of LZ4 change nothing, as those of an offset within a run of one octet.
    if let Ok(records) = decompress(&Bytes::from(damaged), BLOCK_BYTES_LIMIT) {
        assert_eq!(records, alike, "damaged records are noticed");
    }
}

/// Records one behind the other.
pub fn records(data: &[u8]) {
    let whole = Bytes::copy_from_slice(data);
    let (list, rest) = read_all(&whole);
    let mut out = BytesMut::new();
    list.iter().for_each(|record| record.write(&mut out));
    assert_eq!(Some(out.as_ref()), data.get(..data.len() - rest), "a record has one spelling");
    assert!(list.iter().map(Record::octets).sum::<usize>() + 64 * list.len() >= data.len() - rest);
}

/// The records at the front, and the number of octets behind them.
fn read_all(whole: &Bytes) -> (Vec<Record>, usize) {
    let (mut from, mut list, mut rest) = (Cursor(whole.clone()), Vec::new(), whole.len());
    while let Some(record) = Record::read(&mut from) {
        list.push(record);
        rest = from.len();
    }
    (list, rest)
}

/// The value of a claim.
pub fn claim(data: &[u8]) {
    let whole = Bytes::copy_from_slice(data);
    if let Some(claim) = Claim::read(&whole) {
        assert_eq!(claim.write(), whole);
    }
}

/// The entry of a node, and the mark of one that left.
pub fn node_entry(data: &[u8]) {
    if let Some(entry) = NodeEntry::parse(data) {
        assert_eq!(NodeEntry::parse(entry.to_string().as_bytes()), Some(entry));
    }
    if let Some(mark) = DepartureMark::parse(data) {
        assert_eq!(DepartureMark::parse(mark.to_string().as_bytes()), Some(mark));
        assert_eq!(NodeEntry::parse(data), None, "a mark is no entry");
    }
}

/// A message about a host.
pub fn host_status(data: &[u8]) {
    if let Some(status) = HostStatus::parse(data) {
        assert_eq!(status.to_string().as_bytes(), data, "a message has one spelling");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::AdoptedCopy;
    use crate::record::{Accepted, Adopted, Completion, Fence, Outcome, Piece, PieceList, StoredBody, Twin};
    use mail::QueueId;

    fn samples() -> Vec<Vec<u8>> {
        let stream = StreamId { owner: NodeId(1), holder: NodeId(2), generation: 0 };
        let accepted = Accepted {
            id: QueueId::MIN,
            hops: 1,
            may_be_duplicate: true,
            queued_at_us: 1,
            expires_at_us: 2,
            recipients: 9,
            finished: vec![1, 3, 8],
            twin: Some(Twin { stream, epoch: Epoch(4), is_first: false }),
            envelope: Bytes::from_static(b"envelope"),
            body: StoredBody::Whole(Bytes::from_static(b"Subject: x\r\n\r\n")),
        };
        let list = PieceList { body: 1, pieces: 2, octets: 3, crc: 4, sequences: (5, 6) };
        let large = Accepted { body: StoredBody::Pieces(list), twin: None, ..accepted.clone() };
        let done = Completion { id: QueueId::MAX, recipient: Some(7), outcome: Outcome::Failed };
        let taken = vec![(QueueId::MIN, 0)];
        let adopted = Adopted { epoch: Epoch(3), by: NodeId(2), upto: 9, is_last: true, taken };
        let records = vec![
            Record::Accept(accepted),
            Record::Accept(large),
            Record::Done(vec![done, Completion { recipient: None, ..done }]),
            Record::Heartbeat { live: 3 },
            Record::Fence(Fence { epoch: Epoch(9), by: NodeId(2), is_adoption: true }),
            Record::Release,
            Record::Adopted(adopted),
            Record::Piece(Piece { body: 1, number: 2, octets: Bytes::from_static(b"piece") }),
        ];
        let mut all = BytesMut::new();
        records.iter().for_each(|record| record.write(&mut all));
        let header = BlockHeader {
            version: crate::block::BLOCK_VERSION,
            cluster: CLUSTER,
            stream,
            lane: Lane::Messages,
            writer: NodeId(1),
            incarnation: Incarnation(1),
            epoch: Epoch(2),
            number: 3,
            local: (4, 5),
            previous_crc: 6,
            records: 8,
        };
        let entry = NodeEntry {
            cluster: CLUSTER,
            node: NodeId(3),
            name: "mx1".into(),
            incarnation: Incarnation(1),
            start: 2,
            reads: crate::block::BlockVersions::default(),
            writes: 1,
            is_draining: false,
            is_departing: true,
            clock_us: 5,
        };
        let mark = DepartureMark { cluster: CLUSTER, node: NodeId(3), by: NodeId(1), is_empty: false };
        let claim = Claim { adopter: Some(NodeId(2)), ..Claim::default() };
        let claim = claim.decided(Incarnation(1), Epoch(4), AdoptedCopy::First).moved(Incarnation(2), Epoch(3));
        let mut samples = vec![
            all.to_vec(),
            header.write(&records).0.to_vec(),
            BlockHeader { records: 40, ..header }.write_compressed(&vec![Record::Release; 40]).0.to_vec(),
            entry.to_string().into_bytes(),
            mark.to_string().into_bytes(),
            claim.write().to_vec(),
            b"mr-host-1 3 tls-broken 60 mx.example:25 tls=required".to_vec(),
        ];
        for record in records {
            let mut out = BytesMut::new();
            record.write(&mut out);
            samples.push(out.to_vec());
        }
        samples
    }

    fn run(data: &[u8]) {
        for (name, body) in BODIES {
            let result = std::panic::catch_unwind(|| body(data));
            assert!(result.is_ok(), "{name} on \"{}\"", data.escape_ascii());
        }
    }

    #[test]
    fn bodies_take_samples_and_their_beginnings() {
        for sample in samples() {
            (0..=sample.len()).for_each(|end| run(&sample[..end]));
        }
    }

    #[test]
    fn bodies_take_mutations() {
        let samples = samples();
        let mut state = 1_u64;
        let mut next = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % end.max(1)
        };
        for _ in 0..20_000 {
            let mut data = samples[next(samples.len())].clone();
            for _ in 0..1 + next(4) {
                let at = next(data.len());
                match next(5) {
                    0 => data.truncate(at),
                    1 => data.insert(at, u8::try_from(next(256)).unwrap()),
                    2 if !data.is_empty() => drop(data.remove(at)),
                    3 => {
                        let value = [0, 1, 0x7f, 0x80, 0xff][next(5)];
                        let count = 1 + next(8);
                        data.iter_mut().skip(at).take(count).for_each(|octet| *octet = value);
                    }
                    _ if !data.is_empty() => data[at] ^= 1 << next(8),
                    _ => data.push(0),
                }
            }
            run(&data);
        }
    }
}
