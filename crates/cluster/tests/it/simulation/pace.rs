//! The pace of holders: mail goes past one for which much waits, and clients wait for no more than it stores in time.
//!
//! One node and engines in memory whose answers to appends come after a time of their own, or not at all.

use super::engine::{EngineServer, KeyValueStore};
use super::world::{CLUSTER, EPOCH_US};
use bytes::Bytes;
use cluster::{
    AcceptAnswer, Action, Block, BlockVersions, Content, CoordinationReply, CoordinationRequest, Incarnation, Lane,
    LogOperation, LogRequest, NewMessage, Node, NodeEntry, NodeId, OnNoReplica, Record, Settings, Token, holders_of,
};
use mail::QueueId;
use std::collections::BTreeMap;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Content of most messages; it goes into a block as a whole.
const SMALL: usize = 100 * KIB;
/// The block that is in flight does not wait.
const BLOCK: usize = 256 * KIB;

/// A node and the engines of the others.
struct Rig {
    node: Node,
    now: Duration,
    keys: KeyValueStore,
    nodes: u16,
    engines: BTreeMap<NodeId, EngineServer>,
    /// Time of an append at an engine; `None`: it has no end.
    times: BTreeMap<NodeId, Option<Duration>>,
    /// Appends that have no answer yet, with the time of their arrival.
    appends: Vec<(Duration, Token, LogRequest)>,
    answers: BTreeMap<QueueId, AcceptAnswer>,
    sent: BTreeMap<QueueId, Bytes>,
}

impl Rig {
    /// Node 1 of so many, with its streams open. All engines answer at once.
    fn new(nodes: u16) -> Self {
        let settings = Settings::new(CLUSTER, NodeId(1), Incarnation(1), 1);
        let now = Duration::from_secs(100);
        let mut rig = Self {
            node: Node::new(now, settings, "mx1".to_owned(), &[], Vec::new()),
            now,
            keys: KeyValueStore::default(),
            nodes,
            engines: (1..=nodes)
                .map(|node| (NodeId(node), EngineServer { is_up: true, ..Default::default() }))
                .collect(),
            times: BTreeMap::new(),
            appends: Vec::new(),
            answers: BTreeMap::new(),
            sent: BTreeMap::new(),
        };
        rig.pass(Duration::from_secs(12));
        assert_eq!(rig.node.status(rig.now).streams.len(), usize::from(nodes) - 1, "{:?}", rig.node.status(rig.now));
        rig
    }

    /// The holders in the order in which node 1 takes them.
    fn holders(&self) -> Vec<NodeId> {
        holders_of(NodeId(1), (1..=self.nodes).map(NodeId))
    }

    fn set_time(&mut self, holder: NodeId, time: Option<Duration>) {
        self.times.insert(holder, time);
    }

    fn wall_us(&self) -> u64 {
        EPOCH_US + u64::try_from(self.now.as_micros()).unwrap()
    }

    /// Lets time pass, in steps of 5 ms.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(5);
            self.renew_entries();
            self.answer_appends();
            self.drive();
        }
    }

    fn renew_entries(&mut self) {
        let now = u64::try_from(self.now.as_micros()).unwrap();
        for node in 2..=self.nodes {
            let entry = NodeEntry {
                cluster: CLUSTER,
                node: NodeId(node),
                name: format!("mx{node}"),
                incarnation: Incarnation(1),
                start: 1,
                reads: BlockVersions::default(),
                writes: BlockVersions::default().oldest,
                is_draining: false,
                is_departing: false,
                clock_us: self.wall_us(),
            };
            let key = format!("node/{node}");
            let found = self.keys.perform(now, CoordinationRequest::Get { key: key.clone() });
            let CoordinationReply::Found(found) = found else { panic!("{found:?}") };
            let expected = found.map_or(0, |found| found.revision);
            let value = Bytes::from(entry.to_string());
            self.keys.perform(now, CoordinationRequest::Put { key, value, expected, ttl: None });
        }
    }

    fn answer_appends(&mut self) {
        let now = self.now;
        let times = &self.times;
        let time = |request: &LogRequest| times.get(&request.stream.holder).copied().unwrap_or(Some(Duration::ZERO));
        let is_due =
            |(at, _, request): &mut (Duration, Token, LogRequest)| time(request).is_some_and(|time| now >= *at + time);
        let due: Vec<_> = self.appends.extract_if(.., is_due).collect();
        for (_, token, request) in due {
            let engine = self.engines.get_mut(&request.stream.holder).unwrap();
            let reply = engine.perform(request.stream, request.lane, request.operation);
            self.node.log_answered(now, token, reply);
        }
    }

    fn drive(&mut self) {
        while let Some(action) = self.node.poll(self.now, self.wall_us()) {
            match action {
                Action::Log { token, request } if matches!(request.operation, LogOperation::Append { .. }) => {
                    let at_once =
                        self.times.get(&request.stream.holder).is_none_or(|time| *time == Some(Duration::ZERO));
                    self.appends.push((self.now, token, request));
                    if at_once {
                        self.answer_appends();
                    }
                }
                Action::Log { token, request } => {
                    let engine = self.engines.get_mut(&request.stream.holder).unwrap();
                    let reply = engine.perform(request.stream, request.lane, request.operation);
                    self.node.log_answered(self.now, token, reply);
                }
                Action::Coordinate { token, request } => {
                    let reply = self.keys.perform(u64::try_from(self.now.as_micros()).unwrap(), request);
                    self.node.coordination_answered(self.now, self.wall_us(), token, reply);
                }
                Action::Answer { id, answer } => {
                    self.answers.insert(id, answer);
                }
                Action::Read { id } => {
                    let message = self.sent.get(&id).map(|body| new_message(id, Content::Whole(body.clone())));
                    self.node.read(self.now, id, message);
                }
                Action::Report(report) => println!("{report:?}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A client's message, on the own disk at once.
    fn send(&mut self, octets: usize) -> QueueId {
        let id = self.next_id();
        let body = Bytes::from(vec![b'x'; octets]);
        self.sent.insert(id, body.clone());
        self.node.accept(self.now, new_message(id, Content::Whole(body)), OnNoReplica::TempFail);
        self.node.stored(self.now, id);
        self.drive();
        id
    }

    /// The same, of a large message that goes to the holder while it arrives.
    fn send_in_pieces(&mut self, octets: usize) -> QueueId {
        let id = self.next_id();
        let body = Bytes::from(vec![b'x'; octets]);
        self.sent.insert(id, body.clone());
        for piece in body.chunks(64 * KIB) {
            self.node.stream_body(self.now, id, &body.slice_ref(piece));
            self.drive();
        }
        self.node.accept(self.now, new_message(id, Content::Streamed), OnNoReplica::TempFail);
        self.node.stored(self.now, id);
        self.drive();
        id
    }

    fn next_id(&self) -> QueueId {
        let number = u64::try_from(self.sent.len()).unwrap();
        QueueId::new(EPOCH_US + number, mail::Node::new(1).unwrap()).unwrap()
    }

    fn answer(&self, id: QueueId) -> Option<AcceptAnswer> {
        self.answers.get(&id).copied()
    }

    /// Octets that wait for a holder.
    fn waiting(&self, holder: NodeId) -> usize {
        let streams = self.node.status(self.now).streams;
        streams.iter().find(|one| one.stream.holder == holder).expect("a stream").waiting_octets
    }

    /// Messages that an engine has.
    fn stored(&self, holder: NodeId) -> usize {
        let lanes = &self.engines[&holder].lanes;
        let blocks =
            lanes.iter().filter(|((_, lane), _)| *lane == Lane::Messages).flat_map(|(_, lane)| lane.blocks.values());
        let accepted = |octets: &Bytes| {
            let block = Block::read(CLUSTER, octets).expect("a block");
            block.records.iter().filter(|record| matches!(record, Record::Accept(_))).count()
        };
        blocks.map(accepted).sum()
    }
}

fn new_message(id: QueueId, content: Content) -> NewMessage {
    let envelope = Bytes::from_static(b"envelope");
    NewMessage { id, queued_at_us: EPOCH_US, expires_at_us: 0, recipients: 1, envelope, content }
}

/// A cluster of three whose first holder has stopped answering.
fn with_still_holder() -> (Rig, NodeId, NodeId) {
    let mut rig = Rig::new(3);
    let [first, second] = rig.holders()[..] else { panic!("two holders") };
    rig.set_time(first, None);
    (rig, first, second)
}

#[test]
fn mail_stays_with_the_first_holder_while_it_keeps_up() {
    let mut rig = Rig::new(3);
    let [first, second] = rig.holders()[..] else { panic!("two holders") };
    for _ in 0..100 {
        let id = rig.send(SMALL);
        assert_eq!(rig.answer(id), Some(AcceptAnswer::Replicated));
    }
    assert_eq!((rig.stored(first), rig.stored(second)), (100, 0));
}

#[test]
fn new_mail_goes_past_a_holder_while_two_mebibytes_wait_for_it() {
    let (mut rig, first, second) = with_still_holder();
    let mut waits = Vec::new();
    let past = loop {
        let id = rig.send(SMALL);
        if rig.answer(id).is_some() {
            break id;
        }
        waits.push(id);
        assert!(waits.len() < 100, "the other holder gets nothing");
    };
    assert_eq!((rig.answer(past), rig.stored(second)), (Some(AcceptAnswer::Replicated), 1));
    let waiting = rig.waiting(first);
    assert!((2 * MIB..2 * MIB + 2 * SMALL).contains(&waiting), "{waiting}");
    let offered = waits.len() * SMALL;
    assert!((waiting..waiting + BLOCK + SMALL).contains(&offered), "what waits, and a block in flight: {offered}");
    // When it has caught up, it gets new mail again.
    rig.set_time(first, Some(Duration::ZERO));
    rig.pass(Duration::from_millis(500));
    assert!(waits.iter().all(|id| rig.answer(*id) == Some(AcceptAnswer::Replicated)));
    let before = (rig.stored(first), rig.stored(second));
    assert_eq!(before, (waits.len(), 1), "each message has one copy");
    rig.send(SMALL);
    assert_eq!((rig.stored(first), rig.stored(second)), (before.0 + 1, before.1));
}

#[test]
fn a_busy_holder_is_better_than_none() {
    let (mut rig, first, second) = with_still_holder();
    rig.set_time(second, None);
    while rig.waiting(first) < 2 * MIB || rig.waiting(second) < 2 * MIB {
        let id = rig.send(SMALL);
        assert_eq!(rig.answer(id), None, "a client waits");
    }
    let before = rig.waiting(first) + rig.waiting(second);
    let id = rig.send(SMALL);
    assert_eq!(rig.answer(id), None);
    assert!(rig.waiting(first) + rig.waiting(second) > before);
}

/// Octets that wait for the only holder when the first client gets a 451.
fn waiting_at_refusal(rig: &mut Rig, holder: NodeId) -> usize {
    rig.set_time(holder, None);
    loop {
        let id = rig.send(SMALL);
        match rig.answer(id) {
            None => assert!(rig.waiting(holder) < 100 * MIB, "nobody is refused"),
            Some(answer) => {
                assert_eq!(answer, AcceptAnswer::TempFail);
                return rig.waiting(holder);
            }
        }
    }
}

#[test]
fn clients_wait_for_what_the_only_holder_stores_within_three_seconds() {
    // The time of a block, which holds two of the messages.
    for (millis, is_between) in [(10, true), (60, true), (250, true), (1_000, false)] {
        let in_time = 2 * SMALL * 3_000 / usize::try_from(millis).unwrap();
        let octets = in_time.clamp(2 * MIB, 64 * MIB);
        assert_eq!(octets == in_time, is_between);
        let mut rig = Rig::new(2);
        let holder = NodeId(2);
        rig.set_time(holder, Some(Duration::from_millis(millis)));
        // Twenty blocks: the pace is a mean.
        for _ in 0..20 {
            for _ in 0..3 {
                rig.send(SMALL);
            }
            rig.pass(Duration::from_millis(millis * 3 / 2 + 10));
        }
        rig.pass(Duration::from_secs(8));
        let waiting = waiting_at_refusal(&mut rig, holder);
        println!("{millis} ms: {waiting} octets wait");
        assert!((octets * 9 / 10..octets * 11 / 10).contains(&waiting), "{millis} ms: {waiting}, not about {octets}");
    }
    let mut rig = Rig::new(2);
    let waiting = waiting_at_refusal(&mut rig, NodeId(2));
    assert!((64 * MIB..64 * MIB + 2 * SMALL).contains(&waiting), "no pace is known: {waiting}");
}

#[test]
fn a_large_message_goes_past_a_busy_holder_while_it_arrives() {
    let (mut rig, first, second) = with_still_holder();
    while rig.waiting(first) < 2 * MIB {
        rig.send(SMALL);
    }
    let id = rig.send_in_pieces(MIB);
    assert_eq!((rig.answer(id), rig.stored(second)), (Some(AcceptAnswer::Replicated), 1));
}

#[test]
fn pieces_of_large_messages_count_as_waiting() {
    let (mut rig, first, second) = with_still_holder();
    let mut waits = 0;
    loop {
        let id = rig.send_in_pieces(MIB);
        if rig.answer(id).is_some() {
            break;
        }
        waits += 1;
        assert!(waits < 20, "the other holder gets nothing, and {} octets wait for the first", rig.waiting(first));
    }
    assert!((2..=3).contains(&waits), "{waits}");
    let id = rig.send(SMALL);
    assert_eq!(rig.answer(id), Some(AcceptAnswer::Replicated), "small mail goes past it too");
    assert_eq!(rig.stored(second), 2);
    // Without another holder large messages are refused when they would wait for too long; small ones go before them.
    rig.set_time(second, None);
    let mut refused = None;
    for _ in 0..200 {
        let id = rig.send_in_pieces(MIB);
        if rig.answer(id).is_some() {
            refused = rig.answer(id);
            break;
        }
    }
    assert_eq!(refused, Some(AcceptAnswer::TempFail));
    let waiting = rig.waiting(first) + rig.waiting(second);
    assert!(waiting < 2 * 64 * MIB + 4 * MIB, "{waiting}");
    let id = rig.send(SMALL);
    assert_eq!(rig.answer(id), None, "it waits for a block of its own");
}
