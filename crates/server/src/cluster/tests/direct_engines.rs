//! The shorter way to a holder: it is taken, left where it does not answer, and taken again.

use super::*;
use crate::cluster::direct_engines::{AVOIDED_FOR, DirectEngines};
use std::sync::Arc;
use testkit::nats::Options;

const LANE: StreamId = StreamId { owner: NodeId(1), holder: NodeId(2), generation: 0 };
const BLOCK: usize = 100_000;

/// Octets that clients and other servers have sent to a server.
fn received(server: &Nats) -> u64 {
    server.ask_monitor("/varz").unwrap().pointer("/in_bytes").and_then(serde_json::Value::as_u64).unwrap()
}

async fn append_block(log: &ReplicaLog, expected_last: u64) -> LogReply {
    let operation = LogOperation::Append { expected_last, block: Bytes::from(vec![b'x'; BLOCK]) };
    log.carry_out(&LogRequest { stream: LANE, lane: Lane::Messages, operation }).await.reply
}

/// Appends blocks and returns the octets that the first server received meanwhile.
async fn octets_on_the_way(servers: &[Nats], log: &ReplicaLog, last: &mut u64) -> u64 {
    let before = received(&servers[0]);
    for _ in 0..10 {
        assert_eq!(append_block(log, *last).await, LogReply::Appended { sequence: *last + 1 });
        *last += 1;
    }
    received(&servers[0]) - before
}

#[tokio::test]
async fn a_block_goes_to_its_holder_in_one_step() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let (settings, engine) = (settings(&servers), engine(&servers).await);
    let mut last = 0;
    // Without the connections each block passes the server of this node.
    let log = ReplicaLog::new(engine.clone(), None);
    let create = LogRequest { stream: LANE, lane: Lane::Messages, operation: LogOperation::Create };
    assert_eq!(log.carry_out(&create).await.reply, LogReply::Created);
    let round = octets_on_the_way(&servers, &log, &mut last).await;
    assert!(round >= 10 * BLOCK as u64, "{round}");

    let direct = Arc::new(DirectEngines::new(&settings));
    let log = log.with_direct(Arc::clone(&direct));
    direct.keep().await;
    poll("the way is found", async || direct.way(&engine, LANE, Lane::Messages)).await;
    let short = octets_on_the_way(&servers, &log, &mut last).await;
    assert!(short < BLOCK as u64, "{short} octets passed the server of this node");
    // Reads take the same way, and see the same blocks.
    let scan = LogOperation::Scan { from: 1, octets_max: 16 << 20 };
    let reply = log.carry_out(&LogRequest { stream: LANE, lane: Lane::Messages, operation: scan }).await.reply;
    assert!(matches!(&reply, LogReply::Scanned { blocks, .. } if blocks.len() == 20), "{reply:?}");
    assert_eq!(append_block(&log, last - 1).await, LogReply::WrongLast);
}

#[tokio::test]
async fn requests_go_round_where_the_shorter_way_does_not_answer() {
    let Some(mut servers) = Nats::cluster(3, &Options::default()) else { return };
    let (settings, engine) = (settings(&servers), engine(&servers).await);
    let direct = Arc::new(DirectEngines::new(&settings));
    let log = ReplicaLog::new(engine.clone(), None).with_direct(Arc::clone(&direct));
    let create = LogRequest { stream: LANE, lane: Lane::Messages, operation: LogOperation::Create };
    assert_eq!(log.carry_out(&create).await.reply, LogReply::Created);
    direct.keep().await;
    let way = poll("the way is found", async || direct.way(&engine, LANE, Lane::Messages)).await;
    assert_eq!(append_block(&log, 0).await, LogReply::Appended { sequence: 1 });

    let failed_at = os::clock::now();
    direct.failed(&way, LANE, Lane::Messages);
    let mut last = 1;
    assert!(octets_on_the_way(&servers, &log, &mut last).await >= 10 * BLOCK as u64);
    poll("the way is taken again", async || direct.way(&engine, LANE, Lane::Messages)).await;
    assert!(failed_at.elapsed() >= AVOIDED_FOR);
    assert!(octets_on_the_way(&servers, &log, &mut last).await < BLOCK as u64);

    // The holder goes away and comes back: no answer in between, and nothing is stored twice.
    servers[1].kill();
    assert_eq!(append_block(&log, last).await, LogReply::Unknown);
    servers[1].restart();
    testkit::nats::wait_for_leader(&servers);
    let tail = LogRequest { stream: LANE, lane: Lane::Messages, operation: LogOperation::Tail };
    let found = poll("the holder answers again", async || match log.carry_out(&tail).await.reply {
        LogReply::Tail { sequence, .. } => Some(sequence),
        _ => None,
    })
    .await;
    assert_eq!(found, last);
    assert_eq!(append_block(&log, found).await, LogReply::Appended { sequence: found + 1 });
}
