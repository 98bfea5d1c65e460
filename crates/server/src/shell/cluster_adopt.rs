//! Mail of absent nodes of the cluster in words, and the order to adopt it by hand.

use super::server::Server;
use crate::cluster::ClusterMember;
use cluster::{AbsentState, AbsentStream, HandAdoption, HostageReason, NodeId, StreamId};
use observe::{Event, Severity};
use operator::answers::{AbsentNode, AbsentNodesAnswer, AbsentStreamLine, HandAdoptionLine, to_fields};
use operator::control::{Answer, Reason};
use operator::requester::Requester;
use std::collections::BTreeMap;
use std::time::Duration;

impl Server {
    /// Begins to adopt the mail of a node, or shows the mail of all absent nodes.
    pub(super) async fn answer_adopt(&self, node: Option<u16>, by: &Requester) -> Answer {
        let Some(member) = self.context.message_store.cluster() else {
            let text = "this server is no node of a cluster (cluster.id), so it adopts no mail";
            return Answer::refused(Reason::Failed, text);
        };
        if let Some(refusal) = member.status().refusal {
            let text = format!("this node does not take part: {refusal}");
            return Answer::refused(Reason::Busy, text);
        }
        let Some(number) = node else { return Answer::Done(to_fields(&look(member).await)) };
        if let Err(error) = member.adopt_by_hand(NodeId(number)) {
            return Answer::refused(Reason::Busy, format!("the mail of node {number} cannot be adopted here: {error}"));
        }
        let text = format!("the mail of node {number} is adopted here by hand, as {by} asked");
        self.context.record(&Event::Cluster { severity: Severity::Info, text: &text });
        Answer::done()
    }
}

async fn look(member: &ClusterMember) -> AbsentNodesAnswer {
    let mail = member.absent_mail().await;
    let status = member.status().cluster;
    let live: Vec<NodeId> = member.nodes().iter().map(|entry| entry.node).chain([status.node]).collect();
    let mut nodes: BTreeMap<u16, AbsentNode> = BTreeMap::new();
    let absent = |number| AbsentNode { node: number, ..AbsentNode::default() };
    for stream in &mail.streams {
        let number = stream.stream.owner.0;
        nodes.entry(number).or_insert_with(|| absent(number)).streams.push(line(stream, &live));
    }
    for order in &mail.orders {
        let number = order.owner.0;
        nodes.entry(number).or_insert_with(|| absent(number)).order = Some(order_line(order));
    }
    AbsentNodesAnswer { node: status.node.0, nodes: nodes.into_values().collect() }
}

fn order_line(order: &HandAdoption) -> HandAdoptionLine {
    HandAdoptionLine {
        adopted: u64::try_from(order.taken).unwrap_or(u64::MAX),
        time_ms: millis(order.time),
        running: order.is_running,
        node_back: order.is_owner_back,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Describes a stream. `live` are the nodes that run.
fn line(one: &AbsentStream, live: &[NodeId]) -> AbsentStreamLine {
    let StreamId { owner, holder, generation } = one.stream;
    let order = format!("mailrace cluster adopt --node {}", owner.0);
    let (state, why, next) = match one.state {
        AbsentState::Unread => {
            ("unknown", format!("the engine of {holder} has not answered yet"), "ask again in some seconds".to_owned())
        }
        AbsentState::Empty => (
            "no mail",
            format!(
                "the engine of {holder} has no block of it: it never had mail, or the engine has lost it, and its mail goes \
                 on when {owner} is back"
            ),
            String::new(),
        ),
        AbsentState::Owned { next: Some(next) } => (
            "not begun",
            format!("{next} adopts it when nothing has come from {owner} for 15 s"),
            format!("wait, or \"{order}\" at any node that runs"),
        ),
        AbsentState::Owned { next: None } => {
            ("not begun", "no other node runs that would adopt it".to_owned(), format!("\"{order}\""))
        }
        AbsentState::UnderWay { by, step: Some(step), .. } => {
            ("under way", format!("{by} adopts it, step {step}"), "wait".to_owned())
        }
        AbsentState::UnderWay { by, .. } => ("under way", format!("{by} adopts it"), "wait".to_owned()),
        AbsentState::Stopped { by } => {
            ("broken off", format!("{by} began to adopt it and is gone"), format!("\"{order}\" at any node that runs"))
        }
        AbsentState::Adopted { by } => ("adopted", format!("{by} has adopted it"), String::new()),
        AbsentState::Waits(reason) => waiting(reason, owner, holder, live),
    };
    let (by, since, taken) = match one.state {
        AbsentState::UnderWay { by, since, step, taken } => (Some(by), Some(since), step.map(|_| taken)),
        AbsentState::Stopped { by } | AbsentState::Adopted { by } => (Some(by), None, None),
        AbsentState::Waits(HostageReason::PartOpen { by }) => (Some(by), None, None),
        _ => (None, None, None),
    };
    AbsentStreamLine {
        holder: holder.0,
        generation,
        state: state.to_owned(),
        messages: one.messages.filter(|_| !one.state.is_settled()),
        by: by.map(|by| by.0),
        for_ms: since.map(millis),
        taken: taken.map(|taken| u64::try_from(taken).unwrap_or(u64::MAX)),
        left: !one.state.is_settled(),
        why,
        next,
    }
}

/// The state, the reason and the next step for a stream that cannot be adopted now.
fn waiting(reason: HostageReason, owner: NodeId, holder: NodeId, live: &[NodeId]) -> (&'static str, String, String) {
    let (why, next) = reason_words(reason, owner, holder);
    let state = match reason {
        HostageReason::HolderOutOfReach => "holder away",
        HostageReason::NoMajority => "no majority",
        HostageReason::PartOpen { by } if live.contains(&by) => {
            let why = format!("{by} has begun a part and does not end it");
            return ("part open", why, format!("look at the log of {by}"));
        }
        HostageReason::PartOpen { .. } => "part open",
        HostageReason::NewerVersion { .. } => "later version",
        HostageReason::Damaged => "damaged",
    };
    (state, why, next)
}

/// The reason why mail of an absent node waits, and the next step.
pub(super) fn reason_words(reason: HostageReason, owner: NodeId, holder: NodeId) -> (String, String) {
    let (why, next) = match reason {
        HostageReason::HolderOutOfReach => {
            (format!("the engine of {holder} does not answer"), format!("start it, or start {owner}"))
        }
        HostageReason::NoMajority => ("no majority of the engines answers".to_owned(), "start more of them".to_owned()),
        HostageReason::PartOpen { by } => (format!("{by} stopped while it adopted a part"), format!("start {by}")),
        HostageReason::NewerVersion { version } => {
            (format!("a later version of mailrace wrote it (blocks of version {version})"), "upgrade a node".to_owned())
        }
        HostageReason::Damaged => ("its copies are damaged or lost".to_owned(), format!("start {owner}")),
    };
    (why, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(state: AbsentState, live: &[u16]) -> String {
        let stream = StreamId { owner: NodeId(1), holder: NodeId(2), generation: 0 };
        let live: Vec<NodeId> = live.iter().copied().map(NodeId).collect();
        let line = line(&AbsentStream { stream, messages: Some(3), state }, &live);
        assert_eq!(line.left, !line.next.is_empty(), "what is left has a next step: {line:?}");
        format!("{}: {}; {}", line.state, line.why, line.next)
    }

    #[test]
    fn what_is_left_names_the_reason_and_the_next_step() {
        let by = NodeId(3);
        let order = "\"mailrace cluster adopt --node 1\"";
        let silent = "not begun: node 2 adopts it when nothing has come from node 1 for 15 s";
        let owned = format!("{silent}; wait, or {order} at any node that runs");
        assert_eq!(said(AbsentState::Owned { next: Some(NodeId(2)) }, &[2]), owned);
        let stopped = format!("broken off: node 3 began to adopt it and is gone; {order} at any node that runs");
        assert_eq!(said(AbsentState::Stopped { by }, &[2]), stopped);
        let waits = |reason, live: &[u16]| said(AbsentState::Waits(reason), live);
        assert_eq!(
            waits(HostageReason::HolderOutOfReach, &[]),
            "holder away: the engine of node 2 does not answer; start it, or start node 1"
        );
        assert_eq!(
            waits(HostageReason::PartOpen { by }, &[]),
            "part open: node 3 stopped while it adopted a part; start node 3"
        );
        assert_eq!(
            waits(HostageReason::PartOpen { by }, &[3]),
            "part open: node 3 has begun a part and does not end it; look at the log of node 3"
        );
        for reason in [HostageReason::NoMajority, HostageReason::NewerVersion { version: 2 }, HostageReason::Damaged] {
            waits(reason, &[]);
        }
        let since = Duration::from_secs(4);
        let under_way = AbsentState::UnderWay { by, since, step: Some("wait"), taken: 0 };
        assert_eq!(said(under_way, &[3]), "under way: node 3 adopts it, step wait; wait");
        assert_eq!(said(AbsentState::Adopted { by }, &[3]), "adopted: node 3 has adopted it; ");
        for state in [AbsentState::Unread, AbsentState::Empty, AbsentState::Owned { next: None }] {
            said(state, &[]);
        }
    }
}
