//! `mailrace cluster leave` at this node: its conditions, and the last steps behind those of a drain.

use super::server::Server;
use crate::cluster::{ClusterMember, Departure, DepartureStep};
use cluster::NodeEntry;
use mail::QueueId;
use observe::{Event, Severity};
use operator::answers::{ClusterCopies, ClusterLeave};
use operator::control::{Answer, Reason};
use operator::requester::Requester;
use os::signals::{Signal, Signals};
use spool::Store as _;
use std::time::Duration;

/// Time that the service manager is asked for again and again while other nodes take the mail over.
const EXTENSION: Duration = Duration::from_secs(60);
/// Ids that are named of the mail that stays.
const IDS_MAX: usize = 100;

impl Server {
    /// Has this node leave the cluster for good, and answers with the progress.
    pub(super) fn answer_leave(&self, is_forced: bool, by: &Requester) -> Answer {
        let Some(member) = self.context.message_store.cluster() else {
            let text = "this server is no node of a cluster (cluster.id)";
            return Answer::refused(Reason::Failed, text);
        };
        if self.leave.has_begun() {
            return self.leave.watch();
        }
        if member.is_draining() || self.context.stop.has_begun() {
            let text =
                "this node is ending already; say mailrace cluster leave --node N at another node when it has ended";
            return Answer::refused(Reason::Busy, text);
        }
        if let Err(why) = self.may_leave(member, is_forced) {
            return Answer::refused(Reason::Busy, why);
        }
        let live = self.context.live.load();
        let grace = live.config.cluster.drain_grace.as_secs();
        let first = ClusterLeave {
            node: live.config.cluster.node,
            step: "announced".to_owned(),
            remaining: grace,
            engine: live.config.cluster.engines.first().cloned().unwrap_or_default(),
            spool: live.config.spool.path.display().to_string(),
            nodes: staying(member).iter().map(|entry| entry.node.0).collect(),
            ..ClusterLeave::default()
        };
        if self.leave.begin(first) {
            let by = match by {
                Requester::User(uid) => format!("user {uid}"),
                Requester::Token(name) => format!("token \"{name}\""),
            };
            self.record_leave(Severity::Info, &format!("leaves the cluster for good, as {by} says"));
            self.drain_asked.notify_one();
        }
        self.leave.watch()
    }

    /// Whether the other nodes can take the mail of this one, and go on without it.
    fn may_leave(&self, member: &ClusterMember, is_forced: bool) -> Result<(), String> {
        let status = member.status();
        if let Some(refusal) = status.refusal {
            return Err(format!("this node takes no part in the cluster, so it has nothing to leave: {refusal}"));
        }
        if !status.cluster.is_member || !status.cluster.has_majority {
            return Err(
                "no majority of the engines answers this node, so the others would not take its mail over: start more \
                 engines (mailrace cluster verify); mailrace cluster drain ends the node and does not leave"
                    .to_owned(),
            );
        }
        if is_forced {
            return Ok(());
        }
        let copies = self.context.live.load().config.cluster.copies;
        let left: Vec<String> = staying(member).iter().map(|entry| entry.node.0.to_string()).collect();
        let needed = usize::from(copies).max(2);
        if left.len() < needed {
            let left = if left.is_empty() { "none".to_owned() } else { left.join(", ") };
            return Err(format!(
                "too few nodes would be left: {left}, and cluster.copies = {copies} needs {needed}; start the nodes that are \
                 down, or make another one first (mailrace cluster join); --force leaves all the same, and mail gets no \
                 second copy then"
            ));
        }
        if let Some(one) = status.cluster.adoptions.first() {
            return Err(format!(
                "this node adopts the mail of {}: wait until mailrace cluster status shows no adoption, or say --force",
                one.stream.owner
            ));
        }
        let stuck = self.live_mail(|id| copies == 1 || member.is_foreign(id));
        if let Some(first) = stuck.first() {
            let why = if copies == 1 { "cluster.copies = 1" } else { "from before this machine joined" };
            return Err(format!(
                "{} messages have no copy that another node could take over ({why}), the first is {first}: wait until they are \
                 delivered (mailrace queue), or say --force to leave them on this disk",
                stuck.len()
            ));
        }
        Ok(())
    }

    /// Live messages of the spool that are meant.
    fn live_mail(&self, is_meant: impl Fn(QueueId) -> bool) -> Vec<QueueId> {
        let all = self.context.spool().map(|spool| spool.messages()).unwrap_or_default();
        all.into_iter().filter(|id| is_meant(*id)).collect()
    }

    /// Hands the mail of this node over and leaves; no session and no delivery goes on. A signal breaks it off.
    pub(super) async fn leave_cluster(&self, member: &ClusterMember, signals: &mut Signals) {
        let given_up = member.moves().given_up_count();
        let number = |left: usize| u64::try_from(left).unwrap_or(u64::MAX);
        let departed = member.depart(|step, left| self.leave.note(word(step), number(left)));
        let is_broken_off = async {
            loop {
                if matches!(signals.next().await, Signal::Terminate { .. } | Signal::TerminateNow) {
                    return;
                }
            }
        };
        let departure = tokio::select! {
            departure = departed => Some(departure),
            () = is_broken_off => None,
            () = self.extend_stop() => None,
        };
        let staying = self.live_mail(|_| true);
        let node = self.leave.progress().map_or(0, |leave| leave.node);
        let problems = problems(departure.as_ref(), node);
        let taken = member.moves().given_up_count().saturating_sub(given_up);
        let severity = if problems.is_empty() && staying.is_empty() { Severity::Info } else { Severity::Warning };
        let mut text = format!(
            "has left the cluster: {taken} messages are with the other nodes, {} stay in the spool",
            staying.len()
        );
        for problem in &problems {
            text.push_str("; ");
            text.push_str(problem);
        }
        self.record_leave(severity, &text);
        let end = |leave: &mut ClusterLeave| {
            leave.messages = taken;
            leave.staying = number(staying.len());
            leave.staying_ids = staying.iter().take(IDS_MAX).map(ToString::to_string).collect();
            leave.problems = problems;
            if let Some(Departure { rows, copies, .. }) = departure {
                leave.limits = number(rows.unwrap_or(0));
                let copies = copies.into_iter();
                leave.copies = copies.map(|(owner, messages)| ClusterCopies { owner: owner.0, messages }).collect();
            }
        };
        self.leave.end(end).await;
    }

    fn record_leave(&self, severity: Severity, text: &str) {
        self.context.record(&Event::Cluster { severity, text });
    }

    /// Keeps the service manager from ending a stop that takes long, until it is dropped.
    async fn extend_stop(&self) {
        loop {
            self.manager.extend(EXTENSION);
            tokio::time::sleep(EXTENSION / 4).await;
        }
    }
}

/// The other nodes that run and stay.
fn staying(member: &ClusterMember) -> Vec<NodeEntry> {
    member.nodes().into_iter().filter(|entry| !entry.is_draining && !entry.is_departing).collect()
}

const fn word(step: DepartureStep) -> &'static str {
    match step {
        DepartureStep::Adoptions => "adoptions",
        DepartureStep::Mail => "mail",
        DepartureStep::Copies => "copies",
        DepartureStep::Limits => "limits",
        DepartureStep::Entry => "entry",
    }
}

/// The steps that did not come to their end, each with what to do; `None`: a signal broke the departure off.
fn problems(departure: Option<&Departure>, node: u16) -> Vec<String> {
    let again = format!("say mailrace cluster leave --node {node} at another node when this one has ended");
    let Some(departure) = departure else {
        return vec![format!("a signal broke the departure off; {again}")];
    };
    let mut problems = Vec::new();
    if !departure.is_handed_over {
        problems.push(
            "not all mail was taken over in time: the others go on with it as after a crash (mailrace cluster status there)"
                .to_owned(),
        );
    }
    if let Err(why) = &departure.rows {
        problems.push(format!("its part of shared limits is not back: {why}; {again}"));
    }
    if !departure.has_left {
        problems.push(format!("the engines did not take the mark of its departure in time; {again}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure() -> Departure {
        Departure { is_handed_over: true, rows: Ok(3), copies: Vec::new(), has_left: true }
    }

    #[test]
    fn each_step_that_failed_is_named_with_the_next_one() {
        assert_eq!(problems(Some(&departure()), 3), [""; 0]);
        let failed = Departure {
            is_handed_over: false,
            rows: Err("no majority of the engines answers".to_owned()),
            has_left: false,
            ..departure()
        };
        let found = problems(Some(&failed), 3);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("mailrace cluster status"), "{found:?}");
        assert!(found[1].contains("no majority") && found[1].contains("leave --node 3"), "{found:?}");
        assert!(found[2].contains("leave --node 3"), "{found:?}");
        assert!(problems(None, 3)[0].contains("a signal"), "{:?}", problems(None, 3));
    }
}
