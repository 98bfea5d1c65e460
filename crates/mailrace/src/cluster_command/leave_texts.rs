//! The sentences of `mailrace cluster leave`: its progress, its end, mail that waits, and the steps that are left.

use crate::exit::Exit;
use crate::output::{count, thousands};
use operator::answers::ClusterLeave;
use os::error::without_numbers;
use server::cluster::{EngineRemoval, RemovalEnd, WaitingMail, WaitingReason};

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

/// The steps behind the departure of a running node. `engine` is the address of its engine, `others` the number of
/// nodes that are left, `holds` the owners that have copies in it.
pub(super) fn steps_behind_departure(
    node: u16,
    engine: &str,
    others: usize,
    holds: &[(u16, Option<u64>)],
) -> Vec<String> {
    let mut lines = vec!["left to do:".to_owned()];
    lines.push(match holds {
        [] => format!("  nats-server of node {node}: no other node has copies in it, so it may be stopped"),
        holds => {
            let named = |(owner, messages): &(u16, Option<u64>)| {
                let mail = messages.map_or_else(|| "mail".to_owned(), |messages| count(messages, "message"));
                format!("{mail} of node {owner}")
            };
            let holds = holds.iter().map(named).collect::<Vec<_>>().join(" and ");
            format!("  nats-server of node {node}: keep it running: {holds} have copies in it, {}", until_copied(node))
        }
    });
    if others == 2 {
        lines.push(
            "    two engines have a majority only while both run: rather keep this nats-server as a third one, and do no \
             other step"
                .to_owned(),
        );
    }
    lines.push(format!(
        "  when it has stopped, at another node: mailrace cluster leave --node {node} takes it out of the majority where \
         cluster.system_user is set; elsewhere \"nats server cluster peer-remove\" with its server_name does, by a user of the \
         system account"
    ));
    lines.push(ROUTE_STEP.to_owned());
    lines.extend(last_steps(node, engine));
    lines
}

/// The steps behind the removal of a dead node, whose engine was taken out of the majority or not.
pub(super) fn steps_behind_removal(node: u16, engine: &EngineRemoval) -> Vec<String> {
    let mut lines = vec!["left to do:".to_owned()];
    let by_hand = "\"nats server cluster peer-remove\" with its server_name, by a user of the system account: until then it \
                   counts for the majority";
    let keep = format!("  nats-server of node {node}: if it runs, keep it {}", until_copied(node));
    match engine {
        EngineRemoval::NoAccount => lines.extend([keep, format!("{ROUTE_STEP}; {by_hand}")]),
        EngineRemoval::NotDone(why) => {
            let why = without_numbers(why);
            lines.extend([format!("  not done: {why}"), keep, format!("{ROUTE_STEP}; {by_hand}")]);
        }
        EngineRemoval::Kept => lines.extend([
            format!(
                "  nats-server of node {node}: it counts for the majority, as its disk may have the only copies of the mail \
                 above: keep both; when that mail has gone on, run this command again"
            ),
            ROUTE_STEP.to_owned(),
        ]),
        EngineRemoval::Single => {
            lines.push("  nats-server: the one that answers is in no cluster, so none is to be taken out".to_owned());
        }
        EngineRemoval::Runs { name } => lines.extend([
            format!(
                "  nats-server {name}: it runs and counts for the majority: keep it {}; then stop it, and run this command \
                 again",
                until_copied(node)
            ),
            ROUTE_STEP.to_owned(),
        ]),
        EngineRemoval::NotAmongThem { name } => lines.extend([
            format!(
                "  nats-server {name}: it does not count for the majority; if node {node} has another server_name: {by_hand}"
            ),
            ROUTE_STEP.to_owned(),
        ]),
        EngineRemoval::Removed { name } => lines.extend([
            format!("  nats-server {name}: it does not count for the majority any more; keep it stopped"),
            ROUTE_STEP.to_owned(),
        ]),
    }
    lines.extend(last_steps(node, "its address"));
    lines
}

/// A step at the engines that stay.
const ROUTE_STEP: &str = "  each other nats-server: take its route out of the configuration and reload it";

fn until_copied(node: u16) -> String {
    format!("until mailrace cluster status at each other node has no line \"copies at node {node}\"")
}

fn last_steps(node: u16, address: &str) -> [String; 3] {
    [
        format!("  each other node: take {address} out of cluster.engines and restart mailrace, one after the other"),
        "  then, at each of them: mailrace cluster verify".to_owned(),
        format!("  node {node}: keep mailrace from starting there; a start joins the cluster again"),
    ]
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
        let lines = steps_behind_departure(3, "10.0.0.3:4222", 2, &[]);
        assert!(lines.iter().any(|line| line.contains("as a third one")), "{lines:#?}");
        let lines = steps_behind_departure(3, "10.0.0.3:4222", 3, &[]);
        assert!(lines.iter().all(|line| !line.contains("as a third one")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("mailrace cluster leave --node 3")), "{lines:#?}");
    }

    #[test]
    fn the_engine_of_a_dead_node_has_its_next_step() {
        let name = || "mail-3".to_owned();
        for (engine, wanted, by_hand) in [
            (EngineRemoval::NoAccount, "if it runs, keep it until", true),
            (EngineRemoval::NotDone("no leader answers".to_owned()), "not done: no leader answers", true),
            (EngineRemoval::Kept, "only copies of the mail above: keep both", false),
            (EngineRemoval::Runs { name: name() }, "no line \"copies at node 3\"; then stop it, and run this", false),
            (EngineRemoval::NotAmongThem { name: name() }, "another server_name", true),
            (EngineRemoval::Removed { name: name() }, "mail-3: it does not count for the majority any more", false),
        ] {
            let text = steps_behind_removal(3, &engine).join("\n");
            assert!(text.contains(wanted) && text.contains("take its route out"), "{engine:?}: {text}");
            assert_eq!(text.contains("peer-remove"), by_hand, "{engine:?}: {text}");
            assert!(text.contains("take its address out of cluster.engines"), "{engine:?}: {text}");
        }
        // Without a cluster of engines there is no majority and no route.
        let text = steps_behind_removal(3, &EngineRemoval::Single).join("\n");
        assert!(text.contains("in no cluster") && !text.contains("route") && !text.contains("peer-remove"), "{text}");
        assert!(text.contains("take its address out of cluster.engines"), "{text}");
    }
}
