//! Nodes with real engines: mail of a node that is gone goes on at another one, once.

mod log;

use super::*;
use crate::cluster::{ClusterMember, MemberStart};
use ::cluster::{
    AcceptAnswer, ClusterId, Content, Incarnation, NewMessage, OnNoReplica, Outcome, Report, Settings, StreamState,
};
use log::MemoryLog;
use mail::QueueId;
use std::sync::Arc;
use testkit::nats::Options;

const CLUSTER: ClusterId = ClusterId(*b"cluster of tests");

/// A node of a test, with its log; the log stays when the node ends.
struct TestNode {
    number: u16,
    starts: u32,
    log: Arc<MemoryLog>,
    member: Option<ClusterMember>,
}

/// The times of the defaults, two fifths of them: a busy machine and its disk have two seconds for an append.
fn short(node: u16, start: u32) -> Settings {
    let mut settings = Settings::new(CLUSTER, NodeId(node), Incarnation(u64::from(node)), start);
    settings.own_time = Duration::from_millis(4_800);
    settings.adoption_margin = Duration::from_millis(600);
    settings.heartbeat = Duration::from_millis(800);
    settings.append_timeout = Duration::from_secs(2);
    settings.tail_interval = Duration::from_millis(400);
    settings.silence = Duration::from_secs(6);
    settings.membership_interval = Duration::from_millis(800);
    settings.membership_ttl = Duration::from_secs(6);
    settings
}

impl TestNode {
    fn new(number: u16) -> Self {
        Self { number, starts: 0, log: Arc::default(), member: None }
    }

    /// Starts it with what its log has; its engine is the server of its number.
    async fn start(&mut self, servers: &[Nats]) {
        self.starts += 1;
        let (name, settings) = (format!("mx{}", self.number), short(self.number, self.starts));
        self.start_as(servers, &name, settings).await;
    }

    async fn start_as(&mut self, servers: &[Nats], name: &str, node: Settings) {
        let own = usize::from(self.number) - 1;
        let mut engine = settings(&servers[own..=own]);
        engine.coordination_replicas = servers.len();
        engine.request_time_max = Duration::from_secs(2);
        let start = MemberStart {
            settings: node,
            name: name.to_owned(),
            mail: self.log.live(),
            streams: self.log.contents().streams.clone(),
            names: Arc::clone(&self.log.names),
        };
        self.member = Some(ClusterMember::start(engine, start, Arc::clone(&self.log)).await);
    }

    fn member(&self) -> &ClusterMember {
        self.member.as_ref().unwrap()
    }

    /// Ends it without a word to anybody.
    fn kill(&mut self) {
        self.member = None;
    }

    /// Takes a message as a session does: copy and log at the same time.
    async fn accept(&self, message: &NewMessage, policy: OnNoReplica) -> AcceptAnswer {
        let answer = self.member().accept(message.clone(), policy);
        self.log.add(message);
        self.member().stored(message.id);
        let answer = answer.await;
        if answer == AcceptAnswer::TempFail {
            self.log.contents().messages.remove(&message.id);
        }
        answer
    }

    /// Waits until all nodes are seen, so that copies have holders.
    async fn sees(&self, others: usize) {
        poll("members", async || {
            let status = self.member().status();
            assert_eq!(status.refusal, None);
            let open = status.cluster.streams.iter().filter(|one| one.state == StreamState::Open).count();
            let is_ready = status.cluster.is_member && self.member().nodes().len() >= others && open >= others;
            is_ready.then_some(())
        })
        .await;
    }

    fn reports(&self, is_meant: impl Fn(&Report) -> bool) -> usize {
        self.log.contents().reports.iter().filter(|report| is_meant(report)).count()
    }

    /// All that a failed test has to know of it.
    fn explain(&self) -> String {
        let contents = self.log.contents();
        format!("{:#?} {:#?} {:#?}", contents.reports, contents.problems, self.member().status())
    }

    fn may_start_all(&self, ids: &[QueueId]) -> bool {
        ids.iter().all(|id| self.member().may_start_delivery(*id))
    }
}

fn message_with(id: QueueId, recipients: u32, body: &Bytes) -> NewMessage {
    NewMessage {
        id,
        queued_at_us: id.unix_us(),
        expires_at_us: 0,
        recipients,
        envelope: Bytes::from(format!("envelope of {id}")),
        content: Content::Whole(body.clone()),
    }
}

/// Messages with two recipients each; every tenth has a body that goes in pieces.
fn messages(node: u16, count: u64) -> Vec<NewMessage> {
    let began = os::clock::unix_us() + u64::from(node) * 1_000_000;
    let id = |number| QueueId::new(began + number, mail::Node::default()).unwrap();
    let body =
        |number: u64| Bytes::from(vec![b'a' + (number % 26) as u8; if number % 10 == 9 { 500_000 } else { 4_000 }]);
    (0..count).map(|number| message_with(id(number), 2, &body(number))).collect()
}

/// The time that a 250 waits for the copy, and messages/s, for docs/cluster.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn cost_of_copies() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let nodes = three(&servers).await;
    for (at_a_time, rounds) in [(1_u64, 500_u64), (20, 150), (200, 40)] {
        let (began, mut times) = (tokio::time::Instant::now(), Vec::new());
        for round in 0..rounds {
            let first = os::clock::unix_us() + round;
            let body = Bytes::from(vec![b'x'; 4_000]);
            let id = |number| QueueId::new(first + number, mail::Node::default()).unwrap();
            let waits = (0..at_a_time).map(|number| {
                let (message, sent) = (message_with(id(number), 1, &body), tokio::time::Instant::now());
                let answer = nodes[0].member().accept(message.clone(), OnNoReplica::TempFail);
                nodes[0].member().stored(message.id);
                async move {
                    assert_eq!(answer.await, AcceptAnswer::Replicated);
                    (message.id, sent.elapsed())
                }
            });
            for (id, time) in futures_util::future::join_all(waits).await {
                nodes[0].member().completed(id, None, Outcome::Delivered);
                times.push(time);
            }
        }
        let rate = times.len() as f64 / began.elapsed().as_secs_f64();
        times.sort_unstable();
        let [half, most] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at]);
        println!("{at_a_time} at a time: {rate:.0} messages/s, p50 {half:?}, p99 {most:?}");
    }
}

async fn three(servers: &[Nats]) -> [TestNode; 3] {
    let mut nodes = [TestNode::new(1), TestNode::new(2), TestNode::new(3)];
    for node in &mut nodes {
        node.start(servers).await;
    }
    for node in &nodes {
        node.sees(2).await;
    }
    nodes
}

async fn accept_all(node: &TestNode, mail: &[NewMessage]) {
    for (number, message) in mail.iter().enumerate() {
        let answer = node.accept(message, OnNoReplica::TempFail).await;
        assert_eq!(answer, AcceptAnswer::Replicated, "message {number}: {}", node.explain());
    }
}

/// For each of these messages the node that has it and may deliver it. They may have copies at both other nodes: until
/// the lanes of a stream are open, mail goes to the other one.
async fn adopters(nodes: &[TestNode], ids: &[QueueId]) -> Vec<usize> {
    poll("somebody adopts", async || {
        let is_at = |node: &TestNode, id| node.member.is_some() && node.log.live_ids().contains(&id);
        let may_start = |node: &TestNode, id| is_at(node, id) && node.may_start_all(&[id]);
        ids.iter().map(|id| nodes.iter().position(|node| may_start(node, *id))).collect()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_of_a_dead_node_goes_on_and_the_node_drops_it_when_it_is_back() {
    let Some(mut servers) = Nats::cluster(3, &Options::default()) else { return };
    let mut nodes = three(&servers).await;
    let mail = messages(1, 40);
    accept_all(&nodes[0], &mail).await;
    let ids: Vec<QueueId> = mail.iter().map(|message| message.id).collect();
    assert!(nodes[0].may_start_all(&ids), "it delivers its own mail");
    // Of two messages the first is finished, of the third one recipient.
    let (done, half) = (&ids[..2], ids[2]);
    for id in done {
        (0..2).for_each(|at| nodes[0].log.finish(*id, at));
        nodes[0].member().completed(*id, None, Outcome::Delivered);
    }
    nodes[0].log.finish(half, 1);
    nodes[0].member().completed(half, Some(1), Outcome::Delivered);
    poll("completions are stored", async || {
        let streams = nodes[0].member().status().cluster.streams;
        streams.iter().all(|one| one.unstored_completions == 0 && one.lag.is_none()).then_some(())
    })
    .await;

    nodes[0].kill();
    servers[0].kill();
    let by = adopters(&nodes, &ids[2..]).await;
    for node in &nodes[1..] {
        let live = node.log.live_ids();
        assert!(done.iter().all(|id| !live.contains(id)), "finished mail is not adopted");
    }
    for (message, at) in mail[2..].iter().zip(by) {
        let contents = nodes[at].log.contents();
        let kept = &contents.messages[&message.id];
        let Content::Whole(body) = &message.content else { panic!("whole") };
        assert!(kept.body == *body, "the content is whole");
        if message.id == half {
            assert_eq!((kept.finished.iter().copied().collect::<Vec<_>>(), kept.hops), (vec![1], 1));
            assert!(kept.may_be_duplicate);
        }
    }
    let told = |node: &TestNode| node.reports(|report| matches!(report, Report::PossibleDuplicate { .. }));
    assert_eq!(nodes[1..].iter().map(told).sum::<usize>(), 38, "each possible duplicate is reported");

    // The node comes back with its disk and its engine: it delivers nothing of what was taken, and drops it.
    servers[0].restart();
    nodes[0].start(&servers).await;
    assert!(!ids[2..].iter().any(|id| nodes[0].member().may_start_delivery(*id)), "not before it knows");
    poll("the node drops what was taken", async || nodes[0].log.live_ids().is_empty().then_some(())).await;
    let next = messages(1, 1);
    poll("it takes mail again", async || {
        let answer = nodes[0].accept(&next[0], OnNoReplica::TempFail).await;
        (answer == AcceptAnswer::Replicated).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_exit_hands_mail_over_without_a_possible_duplicate() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let mut nodes = three(&servers).await;
    let mail = messages(2, 20);
    accept_all(&nodes[1], &mail).await;
    let ids: Vec<QueueId> = mail.iter().map(|message| message.id).collect();
    nodes[1].member().drain();
    assert_eq!(nodes[1].accept(&messages(2, 1)[0], OnNoReplica::AcceptLocal).await, AcceptAnswer::TempFail);
    assert!(!ids.iter().any(|id| nodes[1].member().may_start_delivery(*id)), "nothing begins");
    assert!(nodes[1].member().hand_over(Duration::from_secs(30)).await, "{}", nodes[1].explain());
    nodes[1].kill();
    for at in adopters(&nodes, &ids).await {
        assert_eq!(nodes[at].reports(|report| matches!(report, Report::PossibleDuplicate { .. })), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_its_engine() {
    let Some(mut servers) = Nats::cluster(3, &Options::default()) else { return };
    servers[0].kill();
    let mut node = TestNode::new(1);
    node.start(&servers).await;
    let mail = messages(1, 3);
    assert_eq!(node.accept(&mail[0], OnNoReplica::TempFail).await, AcceptAnswer::TempFail);
    assert_eq!(node.accept(&mail[1], OnNoReplica::AcceptLocal).await, AcceptAnswer::LocalOnly);
    let why = node.member().status().engine_problem.unwrap();
    assert!(why.contains("is not reached") && why.contains("start nats-server"), "{why}");
    servers[0].restart();
    let mut other = TestNode::new(2);
    other.start(&servers).await;
    node.sees(1).await;
    assert_eq!(node.member().status().engine_problem, None);
    assert_eq!(node.accept(&mail[2], OnNoReplica::TempFail).await, AcceptAnswer::Replicated);
    poll("the mail that came without a copy gets one", async || {
        (node.member().status().cluster.counts.unreplicated == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_answers_before_it_syncs_is_not_used() {
    let options = Options { sync_interval: None, ..Options::default() };
    let Some(server) = Nats::start(&options) else { return };
    let mut node = TestNode::new(1);
    node.start(std::slice::from_ref(&server)).await;
    let answer = node.accept(&messages(1, 1)[0], OnNoReplica::TempFail).await;
    assert_eq!(answer, AcceptAnswer::TempFail);
    let why = node.member().status().engine_problem.unwrap();
    assert!(why.contains("sync_interval: always"), "{why}");
    assert!(node.log.contents().streams.is_empty(), "nothing was copied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stands_still_costs_the_mail_under_way_and_no_other() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let nodes = three(&servers).await;
    let mail = messages(1, 30);
    accept_all(&nodes[0], &mail[..10]).await;
    let holder = nodes[0].member().status().cluster.streams.iter().find(|one| one.messages > 0).unwrap().stream.holder;
    assert_ne!(holder, NodeId(1));
    servers[usize::from(holder.0) - 1].stand_still();
    let mut answers = Vec::new();
    for message in &mail[10..] {
        answers.push(nodes[0].accept(message, OnNoReplica::TempFail).await);
    }
    servers[usize::from(holder.0) - 1].go_on();
    let refused = answers.iter().filter(|answer| **answer != AcceptAnswer::Replicated).count();
    assert!(refused <= 1, "{answers:?}");
}

/// Starts a node that must be refused; returns the reason. Its clients get an answer.
async fn refusal(mut node: TestNode, servers: &[Nats], change: impl FnOnce(&mut Settings)) -> String {
    let mut settings = short(node.number, 1);
    change(&mut settings);
    node.start_as(servers, "another", settings).await;
    let why = poll("it is refused", async || node.member().status().refusal).await;
    let mail = messages(9, 1);
    assert_eq!(node.accept(&mail[0], OnNoReplica::AcceptLocal).await, AcceptAnswer::TempFail);
    assert!(!node.member().may_start_delivery(mail[0].id));
    why
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_node_of_a_number_and_one_of_another_cluster_are_refused() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let mut first = TestNode::new(1);
    first.start(&servers).await;
    poll("the first is there", async || first.member().status().cluster.is_member.then_some(())).await;
    let why = refusal(TestNode::new(1), &servers, |settings| settings.incarnation = Incarnation(77)).await;
    assert!(why.contains("mx1") && why.contains("another"), "{why}");
    let why = refusal(TestNode::new(1), &servers, |settings| settings.cluster = ClusterId([9; 16])).await;
    assert!(why.contains(&"09".repeat(16)), "{why}");
    let status = first.member().status();
    assert!(status.refusal.is_none() && status.cluster.is_member, "the first goes on: {status:?}");
}
