//! The sentences of `mailrace cluster leave`: its progress, its end, mail that waits, and the steps that are left.

use crate::exit::Exit;
use crate::output::{count, thousands};
use operator::answers::ClusterLeave;
use os::error::without_numbers;
use server::cluster::{RemovalEnd, WaitingMail, WaitingReason};

/// The step of a running node that leaves.
pub(super) fn progress(leave: &ClusterLeave) -> String {
    let left = leave.remaining;
    match leave.step.as_str() {
        "announced" => format!("node {} leaves: mail is taken for {left} s more (cluster.drain_grace)", leave.node),
        "sessions" => format!("ends what is under way: {} open", count(left, "connection")),
        "adoptions" => format!("ends adoptions of mail of other nodes: {} left", thousands(left)),
        "mail" => format!("gives its mail to the other nodes: {} left", count(left, "message")),
        "copies" => format!("waits for the other nodes to copy their mail elsewhere: {} left", count(left, "message")),
        "limits" => "gives its part of shared limits back".to_owned(),
        "entry" => "tells the other nodes that it has left".to_owned(),
        other => other.to_owned(),
    }
}

/// The exit status and the sentence of the end of a removal.
pub(super) fn verdict(end: &RemovalEnd, waiting: &[WaitingMail], node: u16) -> (Exit, String) {
    match end {
        RemovalEnd::Runs(entry) if entry.is_draining => {
            let name = &entry.name;
            (
                Exit::TryLater,
                format!(
                    "node {node} ({name}) is ending by itself: wait until it has ended, and run this command again then"
                ),
            )
        }
        RemovalEnd::Runs(entry) => {
            let text = format!(
                "node {node} ({}) runs: run mailrace cluster leave there; if it has just been stopped, run this command again \
                 in 15 s, when its entry has ended",
                entry.name
            );
            (Exit::TryLater, text)
        }
        RemovalEnd::Renewed { key } => {
            let text = format!(
                "node {node} runs: it renews its part of {key}: run mailrace cluster leave there, or stop it and run \
                 this command again"
            );
            (Exit::TryLater, text)
        }
        RemovalEnd::MailWaits => {
            let text = format!(
                "mail waits for node {node}, and nothing was changed; --force removes it all the same, and this mail is \
                 delivered when the disk named here comes back:"
            );
            (Exit::TryLater, text)
        }
        RemovalEnd::NotKnown => {
            let text = format!("there is no node {node}, and there was none: mailrace cluster status shows the others");
            (Exit::NoInput, text)
        }
        RemovalEnd::Removed { rows, had_left } => {
            let limits = count(u64::try_from(*rows).unwrap_or(u64::MAX), "shared limit");
            let before = if *had_left { ", which had left before" } else { "" };
            let mut text = format!("node {node}{before} is removed: its part of {limits} given back");
            if waiting.is_empty() {
                return (Exit::Ok, text);
            }
            text.push_str("; mail stays behind, and is delivered when its disk comes back:");
            (Exit::Lost, text)
        }
        RemovalEnd::NoAnswer => {
            let text = "no majority of the engines answers: start more of them (mailrace cluster verify), and run this command again";
            (Exit::Unavailable, text.to_owned())
        }
        RemovalEnd::NotListed(why) => (Exit::Unavailable, format!("{}; run this command again", without_numbers(why))),
        RemovalEnd::Unreadable { key } => (
            Exit::Config,
            format!("a later version of mailrace wrote the key {key}: run this command at a node that is upgraded"),
        ),
    }
}

/// Mail that waits for a dead node, with the next step.
pub(super) fn waiting_line(one: &WaitingMail, node: u16) -> String {
    let (owner, holder) = (one.stream.owner, one.stream.holder);
    let mail = one.messages.map_or_else(|| "mail".to_owned(), |messages| count(messages, "message"));
    let why = match one.why {
        WaitingReason::NotAdopted => {
            format!(
                "no node has begun to take it over: wait half a minute, and see that {holder} runs, with its engine"
            )
        }
        WaitingReason::UnderWay { by } => {
            format!("{by} takes it over: wait, mailrace cluster status there shows how far")
        }
        WaitingReason::PartOpen => {
            format!("node {node} stopped while it took a part over, and no other one can end that: start node {node}")
        }
        WaitingReason::HolderOutOfReach => {
            format!("the engine of {holder} does not answer: start it, or start {owner}")
        }
        WaitingReason::Damaged => format!("its copies are damaged or lost: start {owner}"),
        WaitingReason::NewerVersion { version } => {
            format!(
                "a later version of mailrace wrote it (blocks of version {version}): run this command at an upgraded node"
            )
        }
    };
    format!("{mail} of {owner} with copies at {holder}: {why}")
}

/// The steps that are left for the operator. `engine` is the address of the node's engine, `others` the number of nodes
/// that are left, `holds` the owners that have copies in it, as far as they are known.
pub(super) fn steps_left(
    node: u16,
    engine: Option<&str>,
    others: usize,
    holds: Option<&[(u16, Option<u64>)]>,
) -> Vec<String> {
    let mut lines = vec!["left to do:".to_owned()];
    let when = format!("until mailrace cluster status at each other node has no line \"copies at node {node}\"");
    lines.push(match holds {
        Some([]) => format!("  nats-server of node {node}: no other node has copies in it, so it may be stopped"),
        Some(holds) => {
            let named = |(owner, messages): &(u16, Option<u64>)| {
                let mail = messages.map_or_else(|| "mail".to_owned(), |messages| count(messages, "message"));
                format!("{mail} of node {owner}")
            };
            let holds = holds.iter().map(named).collect::<Vec<_>>().join(" and ");
            format!("  nats-server of node {node}: keep it running: {holds} have copies in it, {when}")
        }
        None => format!("  nats-server of node {node}: if it runs, keep it {when}"),
    });
    if others == 2 {
        lines.push(
            "    two engines have a majority only while both run: rather keep this nats-server as a third one, and do no \
             other step"
                .to_owned(),
        );
    }
    lines.push(
        "  each other nats-server: take its route out of the configuration and reload it; \"nats server cluster peer-remove\" \
         with its server_name, by a user of the system account: until then it counts for the majority"
            .to_owned(),
    );
    let address = engine.map_or_else(|| "its address".to_owned(), ToOwned::to_owned);
    lines.push(format!(
        "  each other node: take {address} out of cluster.engines and restart mailrace, one after the other"
    ));
    lines.push("  then, at each of them: mailrace cluster verify".to_owned());
    lines.push(format!("  node {node}: keep mailrace from starting there; a start joins the cluster again"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::cluster::{NodeId, StreamId};

    fn waiting(why: WaitingReason) -> WaitingMail {
        let stream = StreamId { owner: NodeId(3), holder: NodeId(1), generation: 0 };
        WaitingMail { stream, messages: Some(14), why }
    }

    #[test]
    fn waiting_mail_has_its_next_step() {
        for (why, text) in [
            (WaitingReason::NotAdopted, "wait half a minute, and see that node 1 runs"),
            (WaitingReason::UnderWay { by: NodeId(2) }, "node 2 takes it over: wait"),
            (WaitingReason::PartOpen, "start node 3"),
            (WaitingReason::HolderOutOfReach, "the engine of node 1 does not answer: start it, or start node 3"),
            (WaitingReason::Damaged, "start node 3"),
            (WaitingReason::NewerVersion { version: 2 }, "upgraded"),
        ] {
            let line = waiting_line(&waiting(why), 3);
            assert!(line.starts_with("14 messages of node 3 with copies at node 1: ") && line.contains(text), "{line}");
        }
    }

    #[test]
    fn each_end_has_a_status() {
        let waiting = [waiting(WaitingReason::HolderOutOfReach)];
        for (end, waiting, exit, part) in [
            (RemovalEnd::Removed { rows: 2, had_left: false }, &[][..], Exit::Ok, "its part of 2 shared limits"),
            (RemovalEnd::Removed { rows: 0, had_left: true }, &[], Exit::Ok, "had left before"),
            (
                RemovalEnd::Removed { rows: 1, had_left: false },
                &waiting,
                Exit::Lost,
                "delivered when its disk comes back",
            ),
            (RemovalEnd::MailWaits, &waiting, Exit::TryLater, "nothing was changed"),
            (RemovalEnd::Renewed { key: "limit/x".to_owned() }, &[], Exit::TryLater, "it renews its part of limit/x"),
            (RemovalEnd::NotKnown, &[], Exit::NoInput, "there is no node 3"),
            (RemovalEnd::NoAnswer, &[], Exit::Unavailable, "no majority"),
            (RemovalEnd::NotListed("engine: list".to_owned()), &[], Exit::Unavailable, "engine: list"),
            (RemovalEnd::Unreadable { key: "limit/x".to_owned() }, &[], Exit::Config, "limit/x"),
        ] {
            let (found, text) = verdict(&end, waiting, 3);
            assert!(found == exit && text.contains(part), "{end:?}: {found:?} {text}");
        }
    }

    #[test]
    fn two_engines_are_warned_of() {
        let lines = steps_left(3, Some("10.0.0.3:4222"), 2, Some(&[]));
        assert!(lines.iter().any(|line| line.contains("as a third one")), "{lines:#?}");
        let lines = steps_left(3, None, usize::MAX, None);
        assert!(lines.iter().all(|line| !line.contains("as a third one")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("\"copies at node 3\"")), "{lines:#?}");
    }
}
