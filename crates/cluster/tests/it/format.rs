//! The bytes of blocks: golden bytes, what a reader refuses, and that what is written is read.

use bytes::Bytes;
use cluster::{
    Accepted, Adopted, Block, BlockError, BlockHeader, Chain, ClusterId, Completion, Epoch, Fence, Incarnation, Lane,
    NodeId, Outcome, Piece, PieceList, Record, StoredBody, StreamId, Twin,
};
use mail::QueueId;
use proptest::prelude::*;

const CLUSTER: ClusterId = ClusterId(*b"0123456789abcdef");
const STREAM: StreamId = StreamId { owner: NodeId(1), holder: NodeId(2), generation: 3 };

fn header(number: u64, previous_crc: u32, records: &[Record]) -> BlockHeader {
    BlockHeader {
        version: cluster::BLOCK_VERSION,
        cluster: CLUSTER,
        stream: STREAM,
        lane: Lane::Messages,
        writer: NodeId(1),
        incarnation: Incarnation(0x1122_3344_5566_7788),
        epoch: Epoch(5),
        number,
        local: (10, 12),
        previous_crc,
        records: records.len() as u32,
    }
}

fn accepted() -> Accepted {
    Accepted {
        id: QueueId::MIN,
        hops: 1,
        may_be_duplicate: true,
        queued_at_us: 0x0102,
        expires_at_us: 0x0304,
        recipients: 3,
        finished: vec![1],
        twin: None,
        envelope: Bytes::from_static(b"E"),
        body: StoredBody::Whole(Bytes::from_static(b"BODY")),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A compressed block that a program of this version wrote.
const GOLDEN_COMPRESSED: &str = concat!(
    "4d524342020000013031323334353637383961626364656601000200010000000300000088776655",
    "44332211050000000000000009000000000000000a000000000000000c00000000000000ddccbbaa28000000f9b23e0d",
    "08020000f20bd952720308000000070001000f0d00ffe360000000000000",
);

/// A change of these bytes needs a new format version.
#[test]
fn golden_bytes_of_version_1() {
    let done = Completion { id: QueueId::MIN, recipient: Some(2), outcome: Outcome::Failed };
    let records = [Record::Accept(accepted()), Record::Done(vec![done]), Record::Heartbeat { live: 7 }];
    let first = BlockHeader { version: 1, ..header(9, 0xaabb_ccdd, &records) };
    let (octets, crc) = first.write(&records);
    assert_eq!(first.write_compressed(&[]).0, first.write(&[]).0);
    let expected = [
        "4d524342 0100 00 00 30313233343536373839616263646566 0100 0200 0100 0000 03000000",
        "8877665544332211 0500000000000000 0900000000000000 0a00000000000000 0c00000000000000 ddccbbaa 03000000",
        &hex(&crc.to_le_bytes()),
        "01 34000000 000000a074d99a59 0100 01 0201000000000000 0403000000000000 03000000 01000000 01000000",
        "01000000 45 424f4459",
        "02 0d000000 000000a074d99a59 02000000 01",
        "03 08000000 0700000000000000",
    ];
    let expected: String = expected.iter().flat_map(|line| line.split(' ')).collect();
    let id = hex(&QueueId::MIN.to_u64().to_le_bytes());
    let expected = expected.replace("000000a074d99a59", &id);
    let length = hex(&(8 + 2 + 1 + 8 + 8 + 4 + 4 + 4 + 4 + 1 + 4_u32).to_le_bytes());
    let expected = expected.replace("0134000000", &format!("01{length}"));
    assert_eq!(hex(&octets), expected);
    assert_eq!(crc, 0xde33_a787, "the checksum is part of the format");
}

#[track_caller]
fn refuses(octets: &[u8], says: &str) {
    let error = Block::read_of(CLUSTER, STREAM, Lane::Messages, &Bytes::copy_from_slice(octets)).unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
}

/// A block with its checksum made anew, at the place that all versions keep.
fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..84]), &block[88..]);
    block[84..88].copy_from_slice(&crc.to_le_bytes());
    block
}

#[test]
fn a_reader_says_why_it_refuses() {
    let records = [Record::Release];
    let (octets, _) = header(1, 0, &records).write(&records);
    assert!(Block::read_of(CLUSTER, STREAM, Lane::Messages, &octets).is_ok());
    let changed = |at: usize, octet: u8| {
        let mut changed = octets.to_vec();
        changed[at] = octet;
        changed
    };
    refuses(&changed(0, b'X'), "corrupt (magic)");
    refuses(&changed(4, 3), "corrupt (checksum)");
    refuses(&changed(4, 0), "corrupt (checksum)");
    refuses(&sealed(changed(4, 3)), "format version 3, this program reads 1 to 2; upgrade this node");
    refuses(&sealed(changed(4, 0)), "corrupt (header)");
    let mut later = octets.to_vec();
    (later[4], later[60]) = (9, 200);
    later.truncate(88);
    refuses(&sealed(later), "format version 9");
    refuses(&changed(51, 77), "corrupt (checksum)");
    refuses(&octets[..octets.len() - 1], "corrupt (checksum)");
    refuses(&octets[..20], "corrupt (header)");
    refuses(&vec![0; 2 << 20], "corrupt (length)");
    let other = BlockHeader { cluster: ClusterId([1; 16]), ..header(1, 0, &records) };
    refuses(&other.write(&records).0, "belongs to cluster 0101");
    let other = BlockHeader { stream: StreamId { generation: 4, ..STREAM }, ..header(1, 0, &records) };
    refuses(&other.write(&records).0, "MRS_1_2_4_s of node 1 at node 2 lies in MRS_1_2_3_s");
    let other = BlockHeader { lane: Lane::Bodies, ..header(1, 0, &records) };
    refuses(&other.write(&records).0, "lies in");
    refuses(&sealed(changed(80, 2)), "corrupt (number of records)");
    refuses(&sealed(changed(7, 1)), "corrupt (compressed length)");
    refuses(&sealed(changed(7, 2)), "corrupt (header)");
    let mut earlier = changed(7, 1);
    earlier[4] = 1;
    refuses(&sealed(earlier), "corrupt (header)");
}

/// A compressed block of an earlier program is read, whatever the present one writes.
#[test]
fn golden_bytes_of_compressed_records() {
    let records = vec![Record::Heartbeat { live: 7 }; 40];
    let header = header(9, 0xaabb_ccdd, &records);
    let (octets, _) = header.write_compressed(&records);
    assert_eq!(hex(&octets), GOLDEN_COMPRESSED);
    let block = Block::read(CLUSTER, &octets).unwrap();
    assert_eq!((block.header, block.plain_octets), (header, cluster::BLOCK_HEADER + 40 * 13));
    assert_eq!(block.records, records);
}

#[test]
fn a_chain_notices_what_is_missing() {
    let records = [Record::Release];
    let block = |number, previous, epoch| {
        let header = BlockHeader { epoch: Epoch(epoch), ..header(number, previous, &records) };
        Block::read(CLUSTER, &header.write(&records).0).unwrap()
    };
    let first = block(4, 99, 5);
    let second = block(6, first.crc, 5);
    let third = block(7, second.crc, 4);
    let mut chain = Chain::default();
    assert_eq!(chain.follow(&first), Ok(()), "a trimmed stream begins anywhere");
    assert_eq!(chain.follow(&third), Err(BlockError::Gap { number: 7, after: 4 }));
    assert_eq!(chain.follow(&second), Ok(()), "a block that was given up leaves a gap in the numbers");
    assert_eq!(chain.follow(&third), Err(BlockError::EpochFell { found: Epoch(4), after: Epoch(5) }));
    assert_eq!(chain.follow(&second), Err(BlockError::Gap { number: 6, after: 6 }));
}

fn any_id() -> impl Strategy<Value = QueueId> {
    (QueueId::MIN.to_u64()..=QueueId::MAX.to_u64()).prop_map(|number| QueueId::from_u64(number).unwrap())
}

fn any_octets() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn any_accepted() -> impl Strategy<Value = Accepted> {
    let twin = (any::<(u16, u16, u32, u64, bool)>()).prop_map(|(owner, holder, generation, epoch, is_first)| Twin {
        stream: StreamId { owner: NodeId(owner), holder: NodeId(holder), generation },
        epoch: Epoch(epoch),
        is_first,
    });
    let pieces = any::<(u64, u32, u64, u32, (u64, u64))>().prop_map(|(body, pieces, octets, crc, sequences)| {
        StoredBody::Pieces(PieceList { body, pieces, octets, crc, sequences })
    });
    let body = prop_oneof![any_octets().prop_map(StoredBody::Whole), pieces];
    let finished = prop::collection::btree_set(0..50_u32, 0..9);
    let numbers = (any::<u16>(), any::<bool>(), any::<u64>(), any::<u64>(), 50..1_000_u32);
    (any_id(), numbers, finished, prop::option::of(twin), any_octets(), body).prop_map(
        |(id, (hops, may_be_duplicate, queued_at_us, expires_at_us, recipients), finished, twin, envelope, body)| {
            let finished = finished.into_iter().collect();
            Accepted {
                id,
                hops,
                may_be_duplicate,
                queued_at_us,
                expires_at_us,
                recipients,
                finished,
                twin,
                envelope,
                body,
            }
        },
    )
}

fn any_record() -> impl Strategy<Value = Record> {
    let outcome =
        prop_oneof![Just(Outcome::Delivered), Just(Outcome::Failed), Just(Outcome::Moved), Just(Outcome::Withdrawn)];
    let recipient = prop::option::of(0..u32::MAX);
    let done =
        (any_id(), recipient, outcome).prop_map(|(id, recipient, outcome)| Completion { id, recipient, outcome });
    let taken = prop::collection::vec((any_id(), any::<u16>()), 0..9);
    let adopted = (any::<(u64, u16, u64, bool)>(), taken).prop_map(|((epoch, by, upto, is_last), taken)| Adopted {
        epoch: Epoch(epoch),
        by: NodeId(by),
        upto,
        is_last,
        taken,
    });
    prop_oneof![
        any_accepted().prop_map(Record::Accept),
        prop::collection::vec(done, 1..9).prop_map(Record::Done),
        any::<u64>().prop_map(|live| Record::Heartbeat { live }),
        any::<(u64, u16, bool)>().prop_map(|(epoch, by, is_adoption)| {
            Record::Fence(Fence { epoch: Epoch(epoch), by: NodeId(by), is_adoption })
        }),
        Just(Record::Release),
        adopted.prop_map(Record::Adopted),
        (any::<(u64, u32)>(), any_octets())
            .prop_map(|((body, number), octets)| { Record::Piece(Piece { body, number, octets }) }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(any_record(), 0..9), number in any::<u64>()) {
        let header = header(number, 1, &records);
        let plain = header.write(&records);
        let estimate: usize = records.iter().map(Record::octets).sum();
        prop_assert!(plain.0.len() <= cluster::BLOCK_HEADER + estimate + 8 * records.len());
        let compressed = header.write_compressed(&records);
        prop_assert!(compressed.0.len() <= plain.0.len());
        for (octets, crc) in [&plain, &compressed] {
            let block = Block::read_of(CLUSTER, STREAM, Lane::Messages, octets).unwrap();
            let expected = Block { header, crc: *crc, plain_octets: plain.0.len(), records: records.clone() };
            prop_assert_eq!(block, expected);
        }
    }

    #[test]
    fn no_damage_goes_unnoticed(records in prop::collection::vec(any_record(), 1..4), at in any::<prop::sample::Index>(), bit in 0..8) {
        let records = [records.clone(), records].concat();
        let (octets, _) = header(1, 1, &records).write_compressed(&records);
        let mut damaged = octets.to_vec();
        let at = at.index(damaged.len());
        damaged[at] ^= 1_u8 << bit;
        prop_assert!(Block::read_of(CLUSTER, STREAM, Lane::Messages, &Bytes::from(damaged)).is_err());
    }
}
