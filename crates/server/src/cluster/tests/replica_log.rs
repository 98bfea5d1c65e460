//! The log: appends, fences, faults of one server.

use super::*;
use std::collections::BTreeMap;
use testkit::nats::Options;
use tokio::time::Instant;

/// A block of the largest size.
fn large(fill: u8) -> Bytes {
    Bytes::from(vec![fill; 256 << 10])
}

#[tokio::test]
async fn blocks_are_appended_read_and_trimmed() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let log = log(&servers).await;
    assert_eq!(ask(&log, LogOperation::Tail).await, LogReply::Tail { sequence: 0, block: None });
    assert_eq!(scan(&log, 0).await, scanned(&[], true));
    for (expected, block) in (0..).zip(["one", "two", "three"]) {
        assert_eq!(append(&log, expected, block).await, LogReply::Appended { sequence: expected + 1 });
    }
    assert_eq!(ask(&log, LogOperation::Tail).await, tail(3, "three"));
    assert_eq!(scan(&log, 0).await, scanned(&[(1, "one"), (2, "two"), (3, "three")], true));
    assert_eq!(scan(&log, 3).await, scanned(&[(3, "three")], true));
    assert_eq!(scan(&log, 4).await, scanned(&[], true));
    assert_eq!(ask(&log, LogOperation::Create).await, LogReply::Created, "a lane that exists stays as it is");
    assert_eq!(ask(&log, LogOperation::Trim { upto: 2 }).await, LogReply::Trimmed);
    assert_eq!(scan(&log, 1).await, scanned(&[(3, "three")], true));
    assert_eq!(append(&log, 3, "").await, LogReply::Appended { sequence: 4 });
    assert_eq!(ask(&log, LogOperation::Tail).await, tail(4, ""));
    // The lanes know nothing of each other.
    assert_eq!(ask_lane(&log, Lane::Bodies, LogOperation::Tail).await, LogReply::Tail { sequence: 0, block: None });
    assert_eq!(log.streams().await, Ok(vec![STREAM]));
}

#[tokio::test]
async fn a_scan_keeps_its_limit_of_octets() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let log = log(&servers).await;
    for expected in 0..5 {
        let block = large(u8::try_from(expected).unwrap());
        let reply = ask(&log, LogOperation::Append { expected_last: expected, block }).await;
        assert_eq!(reply, LogReply::Appended { sequence: expected + 1 });
    }
    // Whole blocks, never more octets than asked for if the last one has 512 KiB, one block in any case, and the end is
    // told.
    for (from, octets_max, wanted, wanted_end) in
        [(1, 1 << 20, 1..=2, false), (4, 1 << 20, 4..=5, true), (2, 1, 2..=2, false), (5, 1, 5..=5, true)]
    {
        let reply = ask(&log, LogOperation::Scan { from, octets_max }).await;
        let LogReply::Scanned { blocks, is_end } = reply else { panic!("{reply:?}") };
        let sequences: Vec<u64> = blocks.iter().map(|(sequence, _)| *sequence).collect();
        let octets: usize = blocks.iter().map(|(_, block)| block.len()).sum();
        assert_eq!((sequences, is_end), (wanted.collect(), wanted_end), "from {from}, {octets_max} octets");
        assert!(octets <= octets_max.max(256 << 10), "{octets}");
    }
}

#[tokio::test]
async fn what_was_answered_outlives_the_server_and_sequences_never_fall() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let mut servers = [server];
    let log = log(&servers).await;
    for expected in 0..50 {
        assert_eq!(append(&log, expected, "block").await, LogReply::Appended { sequence: expected + 1 });
    }
    servers[0].kill();
    servers[0].restart();
    assert_eq!(ask_until_known(&log, LogOperation::Tail).await, tail(50, "block"));
    let LogReply::Scanned { blocks, is_end: true } = scan(&log, 1).await else { panic!("no end") };
    assert_eq!(blocks.len(), 50);
    // The last block stays, however much is trimmed, and with it the sequence.
    assert_eq!(ask(&log, LogOperation::Trim { upto: u64::MAX }).await, LogReply::Trimmed);
    assert_eq!(scan(&log, 1).await, scanned(&[(50, "block")], true));
    servers[0].restart();
    assert_eq!(ask_until_known(&log, LogOperation::Tail).await, tail(50, "block"));
    assert_eq!(append(&log, 0, "as new").await, LogReply::WrongLast);
    assert_eq!(append(&log, 50, "next").await, LogReply::Appended { sequence: 51 });
}

/// The engine counts on from blocks that it has lost, or not. Either way an append goes behind the tail that it tells,
/// or the tail says that the last block is lost.
#[tokio::test]
async fn a_tail_behind_which_nothing_goes_is_lost() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let mut servers = [server];
    let log = log(&servers).await;
    for (expected, block) in (0..).zip(["first block", "second block", "third block", "fourth block"]) {
        assert_eq!(append(&log, expected, block).await, LogReply::Appended { sequence: expected + 1 });
    }
    servers[0].kill();
    assert_eq!(servers[0].damage_behind(b"second"), 1);
    servers[0].restart();
    let tail = ask_until_known(&log, LogOperation::Tail).await;
    let LogReply::Tail { sequence, block } = tail else { panic!("{tail:?}") };
    match block {
        Some(block) => {
            assert_eq!((sequence, &*block), (1, &b"first block"[..]));
            assert_eq!(append(&log, 1, "next").await, LogReply::Appended { sequence: 2 });
        }
        None => assert_eq!(sequence, 4),
    }
}

#[tokio::test]
async fn an_append_without_an_answer_is_found_by_the_tail_and_is_stored_once() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let log = log(&servers).await;
    assert_eq!(append(&log, 0, "first").await, LogReply::Appended { sequence: 1 });
    servers[0].stand_still();
    let asked = Instant::now();
    assert_eq!(append(&log, 1, "late").await, LogReply::Unknown);
    assert_eq!(ask(&log, LogOperation::Tail).await, LogReply::Unknown);
    let time_max = 2 * settings(&servers).request_time_max + SOON / 3;
    assert!(asked.elapsed() < time_max, "{:?} for two requests", asked.elapsed());
    servers[0].go_on();
    let late = tail(2, "late");
    poll("the late append comes", async || (ask(&log, LogOperation::Tail).await == late).then_some(())).await;
    // The writer that sends it again, not knowing, stores nothing twice.
    assert_eq!(append(&log, 1, "late").await, LogReply::WrongLast);
    assert_eq!(scan(&log, 1).await, scanned(&[(1, "first"), (2, "late")], true));
}

#[tokio::test]
async fn an_append_whose_answer_is_given_up_is_stored_once() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let log = log(&servers).await;
    // The answer is lost at different moments; the writer reads the tail and goes on, as the machine does.
    for last in 0..60 {
        let block = last.to_string();
        let patience = Duration::from_micros(last * 40);
        match tokio::time::timeout(patience, append(&log, last, &block)).await {
            Ok(reply) => assert_eq!(reply, LogReply::Appended { sequence: last + 1 }),
            Err(_) => {
                let LogReply::Tail { sequence, block: found } = ask(&log, LogOperation::Tail).await else { panic!() };
                if sequence == last + 1 {
                    assert_eq!(found.as_deref(), Some(block.as_bytes()));
                } else {
                    // It may still be on its way, so it is sent with the same expectation again.
                    assert_eq!(sequence, last, "only this writer writes");
                    let reply = append(&log, last, &block).await;
                    assert!(matches!(reply, LogReply::Appended { .. } | LogReply::WrongLast), "{reply:?}");
                }
            }
        }
    }
    let LogReply::Scanned { blocks, is_end: true } = scan(&log, 1).await else { panic!() };
    let found: Vec<String> = blocks.iter().map(|(_, block)| String::from_utf8_lossy(block).into_owned()).collect();
    let wanted: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    assert_eq!(found, wanted, "each block once and in order");
}

#[tokio::test]
async fn a_fence_of_another_writer_refuses_the_next_append() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let (owner, adopter) = (log(&servers).await, log(&servers).await);
    assert_eq!(append(&owner, 0, "mail").await, LogReply::Appended { sequence: 1 });
    assert_eq!(append(&adopter, 1, "fence").await, LogReply::Appended { sequence: 2 });
    for _ in 0..3 {
        assert_eq!(append(&owner, 1, "more mail").await, LogReply::WrongLast);
    }
    assert_eq!(scan(&owner, 1).await, scanned(&[(1, "mail"), (2, "fence")], true));
}

#[tokio::test]
async fn of_two_writers_one_has_each_place() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let mut writers = Vec::new();
    for name in ["a", "b", "c"] {
        let log = log(&servers).await;
        writers.push(tokio::spawn(async move {
            let (mut last, mut won) = (0, BTreeMap::new());
            for number in 0..150 {
                let block = format!("{name}{number}");
                match append(&log, last, &block).await {
                    LogReply::Appended { sequence } => {
                        assert_eq!(sequence, last + 1);
                        won.insert(sequence, block);
                        last = sequence;
                    }
                    LogReply::WrongLast => {
                        let LogReply::Tail { sequence, .. } = ask(&log, LogOperation::Tail).await else { panic!() };
                        assert!(sequence > last, "refused behind {last}, and the tail is {sequence}");
                        last = sequence;
                    }
                    reply => panic!("{reply:?}"),
                }
            }
            won
        }));
    }
    let mut won = BTreeMap::new();
    for writer in writers {
        for (sequence, block) in writer.await.unwrap() {
            assert_eq!(won.insert(sequence, block), None, "{sequence} was given twice");
        }
    }
    let log = log(&servers).await;
    let LogReply::Scanned { blocks, is_end: true } = scan(&log, 1).await else { panic!("no end") };
    let stored: BTreeMap<u64, String> =
        blocks.into_iter().map(|(at, block)| (at, String::from_utf8_lossy(&block).into_owned())).collect();
    assert_eq!(stored, won, "stored is just what was answered");
}

#[tokio::test]
async fn a_full_lane_stores_nothing_until_it_is_trimmed() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let log = ReplicaLog::new(engine(&servers).await, Some(1 << 20));
    assert_eq!(ask(&log, LogOperation::Create).await, LogReply::Created);
    fill(&log).await;
}

#[tokio::test]
async fn a_full_store_stores_nothing_until_it_is_trimmed() {
    let Some(server) = Nats::start(&Options { store_max: Some(1 << 20), ..Options::default() }) else { return };
    let servers = [server];
    let log = log(&servers).await;
    fill(&log).await;
}

/// Appends until there is no room, then trims and goes on.
async fn fill(log: &ReplicaLog) {
    let block = large(7);
    let mut last = 0;
    loop {
        match ask(log, LogOperation::Append { expected_last: last, block: block.clone() }).await {
            LogReply::Appended { sequence } => last = sequence,
            LogReply::Full => break,
            reply => panic!("{reply:?}"),
        }
        assert!(last < 20, "never full");
    }
    assert!(last > 1, "full at once");
    let LogReply::Tail { sequence, .. } = ask(log, LogOperation::Tail).await else { panic!() };
    assert_eq!(sequence, last);
    assert_eq!(ask(log, LogOperation::Append { expected_last: 0, block: block.clone() }).await, LogReply::WrongLast);
    assert_eq!(ask(log, LogOperation::Trim { upto: last }).await, LogReply::Trimmed);
    let reply = ask(log, LogOperation::Append { expected_last: last, block }).await;
    assert_eq!(reply, LogReply::Appended { sequence: last + 1 });
}

#[tokio::test]
async fn a_lane_that_was_never_made_is_told_from_a_server_that_is_gone() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let mut servers = [server];
    let log = ReplicaLog::new(engine(&servers).await, None);
    let operations = [
        LogOperation::Tail,
        LogOperation::Scan { from: 1, octets_max: 1 << 20 },
        LogOperation::Trim { upto: 1 },
        LogOperation::Append { expected_last: 0, block: Bytes::from_static(b"x") },
    ];
    for operation in &operations {
        assert_eq!(ask(&log, operation.clone()).await, LogReply::NoStream, "{operation:?}");
    }
    servers[0].kill();
    for operation in &operations {
        assert_eq!(ask(&log, operation.clone()).await, LogReply::Unknown, "{operation:?}");
    }
    servers[0].restart();
    assert_eq!(ask_until_known(&log, LogOperation::Tail).await, LogReply::NoStream);
}

#[tokio::test]
async fn a_stream_that_another_program_changed_is_not_used() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let engine = engine(&servers).await;
    let config = serde_json::json!({
        "name": STREAM.name(Lane::Messages), "subjects": ["MRS.3.1.0.s"], "storage": "memory", "num_replicas": 1,
    });
    let made = crate::cluster::api::call(&engine, "STREAM.CREATE.MRS_3_1_0_s", &config).await;
    assert!(made.is_ok(), "{made:?}");
    let log = ReplicaLog::new(engine, None);
    let request = LogRequest { stream: STREAM, lane: Lane::Messages, operation: LogOperation::Create };
    let answer = log.carry_out(&request).await;
    assert_eq!(answer.reply, LogReply::Unknown);
    let problem = answer.problem.unwrap();
    assert!(problem.contains("MRS_3_1_0_s") && problem.contains("set it back to"), "{problem}");
}
