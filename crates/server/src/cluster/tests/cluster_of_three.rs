//! Three servers: placement, and the loss of holder or majority.

use super::*;
use testkit::nats::{self, Options};

const fn at_holder(holder: u16) -> StreamId {
    StreamId { owner: NodeId(1), holder: NodeId(holder), generation: 0 }
}

async fn ask_at(log: &ReplicaLog, holder: u16, operation: LogOperation) -> LogReply {
    log.carry_out(&LogRequest { stream: at_holder(holder), lane: Lane::Messages, operation }).await.reply
}

async fn append_at(log: &ReplicaLog, holder: u16, expected_last: u64) -> LogReply {
    let block = Bytes::from(format!("block {expected_last}"));
    ask_at(log, holder, LogOperation::Append { expected_last, block }).await
}

/// Appends behind `last`, and reads the tail.
async fn append_and_read(log: &ReplicaLog, holder: u16, last: u64) -> u64 {
    assert_eq!(append_at(log, holder, last).await, LogReply::Appended { sequence: last + 1 });
    let reply = ask_at(log, holder, LogOperation::Tail).await;
    assert!(matches!(reply, LogReply::Tail { sequence, .. } if sequence == last + 1), "{reply:?}");
    last + 1
}

/// Asks until the answer is another one than `Unknown`.
async fn tail_until_known(log: &ReplicaLog, holder: u16) -> LogReply {
    let is_known = |reply: &LogReply| *reply != LogReply::Unknown;
    let look = async || Some(ask_at(log, holder, LogOperation::Tail).await).filter(is_known);
    poll("the holder answers again", look).await
}

/// The name of the server that leads the others, as this one knows it.
fn leader(server: &Nats) -> Option<String> {
    let leader = server.ask_monitor("/jsz")?.pointer("/meta_cluster/leader")?.as_str()?.to_owned();
    Some(leader)
}

#[tokio::test]
async fn a_lane_lies_at_its_holder() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let log = ReplicaLog::new(engine(&servers).await, None);
    for (holder, server) in (1..).zip(&servers) {
        assert_eq!(ask_at(&log, holder, LogOperation::Create).await, LogReply::Created);
        assert_eq!(append_at(&log, holder, 0).await, LogReply::Appended { sequence: 1 });
        let name = at_holder(holder).name(Lane::Messages);
        let streams = server.ask_monitor("/jsz?streams=true").unwrap().to_string();
        assert!(streams.contains(&name), "{streams}");
    }
    assert_eq!(log.streams().await, Ok((1..=3).map(at_holder).collect()));
    let request = LogRequest { stream: at_holder(9), lane: Lane::Messages, operation: LogOperation::Create };
    let answer = log.carry_out(&request).await;
    assert_eq!(answer.reply, LogReply::Unknown);
    assert!(answer.problem.as_ref().is_some_and(|why| why.contains("MRS_1_9_0_s")), "{answer:?}");
    assert_eq!(ask_at(&log, 9, LogOperation::Tail).await, LogReply::NoStream);
}

#[tokio::test]
async fn a_holder_needs_no_majority_and_the_store_does() {
    let Some(mut servers) = Nats::cluster(3, &Options::default()) else { return };
    // One that leads notices only after 20 s that the others are gone; so another one is left.
    let (left, gone) = if leader(&servers[0]).as_deref() == Some("engine1") { (2, 1) } else { (1, 2) };
    servers.swap(0, usize::from(left) - 1);
    let log = ReplicaLog::new(engine(&servers).await, None);
    let store = store(&servers).await;
    for holder in [left, gone] {
        assert_eq!(ask_at(&log, holder, LogOperation::Create).await, LogReply::Created);
        assert_eq!(append_at(&log, holder, 0).await, LogReply::Appended { sequence: 1 });
    }
    let written = revision(&put(&store, "node/1", "a", 0, None).await);

    servers[1].kill();
    servers[2].kill();
    // The holder that is left goes on, at once and also when it has noticed that the others are gone.
    let mut last = 1;
    poll("it never notices", async || {
        let has_noticed = leader(&servers[0]).is_none();
        last = append_and_read(&log, left, last).await;
        (has_noticed && last > 100).then_some(())
    })
    .await;
    last = append_and_read(&log, left, last).await;
    assert_eq!(append_at(&log, left, last - 1).await, LogReply::WrongLast);
    let reply = ask_at(&log, left, LogOperation::Scan { from: 1, octets_max: 1 << 20 }).await;
    assert!(matches!(&reply, LogReply::Scanned { blocks, .. } if blocks.len() > 100), "{reply:?}");
    assert_eq!(ask_at(&log, left, LogOperation::Trim { upto: last - 1 }).await, LogReply::Trimmed);
    assert_eq!(put(&store, "node/1", "b", written, None).await, CoordinationReply::Unknown);
    assert_eq!(get(&store, "node/1").await, CoordinationReply::Unknown, "a read needs the majority");
    // A holder that is gone is no lane that is gone, and a lane that was never made is not known to be missing.
    assert_eq!(append_at(&log, gone, 1).await, LogReply::Unknown);
    assert_eq!(ask_at(&log, gone, LogOperation::Tail).await, LogReply::Unknown);
    assert_eq!(ask_at(&log, 9, LogOperation::Tail).await, LogReply::Unknown);
    assert!(log.streams().await.is_err());

    servers[1].restart();
    servers[2].restart();
    nats::wait_for_leader(&servers);
    assert!(matches!(get_until_known(&store, "node/1").await, CoordinationReply::Found(Some(_))));
    assert_eq!(append_at(&log, left, last).await, LogReply::Appended { sequence: last + 1 });
    assert_eq!(tail_until_known(&log, gone).await, tail(1, "block 0"));
    assert_eq!(ask_at(&log, 9, LogOperation::Tail).await, LogReply::NoStream);
}

#[tokio::test]
async fn a_holder_that_is_gone_or_empty_is_told_apart() {
    let Some(mut servers) = Nats::cluster(3, &Options::default()) else { return };
    let log = ReplicaLog::new(engine(&servers).await, None);
    assert_eq!(ask_at(&log, 3, LogOperation::Create).await, LogReply::Created);
    for expected in 0..5 {
        assert_eq!(append_at(&log, 3, expected).await, LogReply::Appended { sequence: expected + 1 });
    }
    servers[2].kill();
    for _ in 0..3 {
        assert_eq!(append_at(&log, 3, 5).await, LogReply::Unknown);
        assert_eq!(ask_at(&log, 3, LogOperation::Tail).await, LogReply::Unknown);
    }
    servers[2].lose_data();
    servers[2].restart();
    nats::wait_for_leader(&servers);
    // The engine makes the stream anew; its sequences fall, which the owner sees by them.
    assert_eq!(tail_until_known(&log, 3).await, LogReply::Tail { sequence: 0, block: None });
    assert_eq!(append_at(&log, 3, 5).await, LogReply::WrongLast);
}

#[tokio::test]
async fn a_store_survives_the_loss_of_a_server() {
    let Some(mut servers) = Nats::cluster(3, &Options::default()) else { return };
    let store = store(&servers).await;
    let mut last = revision(&put(&store, "claim/1/2/0", "0", 0, None).await);
    // The server of the connection, and another one; the leader of the store is one of the three.
    for at in 0..2 {
        servers[at].kill();
        let changed = async {
            loop {
                let CoordinationReply::Found(Some(found)) = get_until_known(&store, "claim/1/2/0").await else {
                    panic!()
                };
                assert!(found.revision >= last, "a write that was answered is lost");
                let value = format!("{at}");
                match put(&store, "claim/1/2/0", &value, found.revision, None).await {
                    CoordinationReply::Written { revision } => return revision,
                    CoordinationReply::Conflict | CoordinationReply::Unknown => {}
                    reply => panic!("{reply:?}"),
                }
            }
        };
        last = tokio::time::timeout(SOON, changed).await.unwrap();
        servers[at].restart();
        nats::wait_for_leader(&servers);
    }
}
