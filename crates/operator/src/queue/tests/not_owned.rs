//! Commands that end mail which another node of the cluster may own: they leave it alone and say so.

use super::super::*;
use super::trial::*;
use serde_json::{Map, Value, json};
use spool::{Change, Hold, HoldKind, State, Status};

const WHY: &str = "node 2 has stored nothing of this node for so long";

/// The ids with their reasons of the messages that were left alone.
fn left_alone(lines: &[Map<String, Value>]) -> Vec<(Value, Value)> {
    let left = lines.iter().filter(|line| line.contains_key("not_owned"));
    left.map(|line| (line["not_owned"].clone(), line["trouble"].clone())).collect()
}

/// Two messages; another node may own the older one.
fn trial() -> Trial {
    let trial = Trial::new();
    trial.add(4, "<ann@a.test>", &["x@one.test", "y@two.test", "z@one.test"]);
    trial.add(2, "<bob@b.test>", &["q@one.test"]);
    trial.doubt(4, EndDoubt { text: WHY.to_owned(), may_pass: false }, usize::MAX);
    trial
}

#[tokio::test]
async fn a_message_that_another_node_may_own_is_neither_deleted_nor_bounced() {
    for action in ["delete", "bounce", "expire"] {
        let trial = trial();
        let command = format!(r#"{{"action":"{action}","all":true,"dry_run":true}}"#);
        let is_as_said = |lines: &[Map<String, Value>], last: &Map<String, Value>| {
            assert_eq!(left_alone(lines), [(json!(id(4).to_string()), json!(WHY))], "{action}: {lines:?}");
            let counts = (&last["messages"], &last["recipients"], &last["not_owned"], &last["active"]);
            assert_eq!(counts, (&json!(1), &json!(1), &json!(1), &json!(0)), "{action}: {last:?}");
            let shown: Vec<&Value> = lines.iter().filter_map(|line| line.get("id")).collect();
            assert_eq!(shown, [&json!(id(2).to_string())], "{action}");
        };
        let (lines, last) = trial.run(&command).await;
        is_as_said(&lines, &last);
        assert_eq!((trial.states(4).len(), trial.states(2).len()), (3, 1), "{action}");
        let (lines, last) = trial.run(&command.replace(r#","dry_run":true"#, "")).await;
        is_as_said(&lines, &last);
        assert_eq!((trial.states(4).len(), trial.states(2).len()), (3, 0), "{action}: the other one is ended");
        let deeds = trial.deeds.lock().unwrap().clone();
        let removed: Vec<_> = deeds.iter().filter(|deed| deed.starts_with("Removed")).collect();
        assert!(removed.len() == 1 && removed[0].contains(&format!("{:?}", id(2))), "{action}: {deeds:?}");
        assert!(deeds.last().unwrap().contains("messages: 1, recipients: 1,"), "{action}: {deeds:?}");
        // It is the owner again.
        trial.dispatcher.doubts.lock().unwrap().clear();
        let (lines, last) = trial.run(&command.replace(r#","dry_run":true"#, "")).await;
        assert_eq!((left_alone(&lines), last.get("not_owned")), (vec![], None), "{action}");
        assert_ne!(trial.states(4).len(), 3, "{action}");
    }
}

#[tokio::test]
async fn commands_that_end_nothing_ask_for_no_owner() {
    let trial = trial();
    for command in [
        r#"{"action":"hold","all":true}"#,
        r#"{"action":"release","all":true}"#,
        r#"{"action":"retry","all":true}"#,
        r#"{"action":"reroute","all":true,"new_destination":"[192.0.2.1]"}"#,
    ] {
        let (lines, last) = trial.run(command).await;
        assert_eq!((left_alone(&lines), &last["messages"]), (vec![], &json!(2)), "{command}");
    }
}

#[tokio::test]
async fn a_release_from_quarantine_sends_no_copy_of_it_and_a_forward_does() {
    let trial = trial();
    trial.hold(4, 0, HoldKind::Quarantine);
    trial.hold(2, 0, HoldKind::Quarantine);
    let (lines, last) = trial.run(r#"{"action":"release","quarantined":true}"#).await;
    assert_eq!(left_alone(&lines), [(json!(id(4).to_string()), json!(WHY))]);
    assert_eq!((&last["messages"], &last["not_owned"]), (&json!(1), &json!(1)));
    assert_eq!((trial.states(4)[0].0, trial.states(2).len()), (Status::Held, 0));
    let (lines, last) = trial.run(r#"{"action":"forward","quarantined":true,"forward_to":"ann@a.test"}"#).await;
    assert_eq!((left_alone(&lines), &last["messages"]), (vec![], &json!(1)), "the message stays");
}

#[tokio::test]
async fn a_doubt_that_passes_is_waited_for() {
    let trial = trial();
    trial.doubt(4, EndDoubt { text: WHY.to_owned(), may_pass: true }, 3);
    let (lines, last) = trial.run(r#"{"action":"delete","all":true}"#).await;
    assert_eq!((left_alone(&lines), &last["messages"]), (vec![], &json!(2)), "{lines:?}");
    assert!(trial.states(4).is_empty());
}

/// A quarantine that is over is not ended here, and is looked at again.
#[test]
fn mail_that_another_node_may_own_stays_in_quarantine() {
    let trial = trial();
    let hold = Hold::new(HoldKind::Quarantine, "a_rule", "for the recipient").until(1);
    for hours in [4, 2] {
        let state = State { status: Status::Held, ..State::default() };
        let change = Change { id: id(hours), recipient: 0, state, destination: None };
        trial.spool.record_hold(&[change], &hold).unwrap().wait().unwrap();
    }
    let ended = || release_ended_holds(&trial.spool, trial.dispatcher.as_ref()).unwrap();
    assert_eq!(ended().iter().map(|one| one.id).collect::<Vec<_>>(), [id(2)]);
    assert_eq!((trial.states(4).len(), trial.states(2).len()), (3, 0));
    assert_eq!(ended(), [], "nothing new");
    trial.dispatcher.doubts.lock().unwrap().clear();
    assert_eq!(ended().iter().map(|one| one.id).collect::<Vec<_>>(), [id(4)]);
    assert_eq!(trial.states(4).len(), 2);
}
