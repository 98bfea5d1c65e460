//! Mail that is held, in quarantine, or waits for filters.

use super::super::change::ChangeBatcher;
use super::super::command::Action;
use super::super::scan::{FoundMessage, FoundRecipient};
use super::super::*;
use super::trial::*;
use crate::answers::reply::{Answer, ListPart};
use crate::requester::Requester;
use bytes::Bytes;
use mail::Client;
use serde_json::{Value, json};
use spool::{Change, Hold, HoldKind, State, Status};
use std::sync::Arc;

#[tokio::test]
async fn what_is_held_says_by_whom_and_why_until_it_is_released() {
    let trial = Trial::filled();
    let held = async |trial: &Trial| {
        let (lines, _) = trial.run(r#"{"action":"list","state":"held"}"#).await;
        let lines: Vec<_> = lines.into_iter().filter_map(|line| line.get("recipients").cloned()).collect();
        lines.iter().flat_map(|line| line.as_array().unwrap()).map(|one| one["hold"].clone()).collect::<Vec<_>>()
    };
    trial.run(r#"{"action":"hold","to":"y@two.test","destination":"two.test","reason":"asked by ann"}"#).await;
    // User 7 may have a name on this machine.
    let before = held(&trial).await;
    let by = before[0]["by"].as_str().unwrap().to_owned();
    assert!(!by.is_empty(), "{before:?}");
    assert_eq!(before, [json!({ "kind": "operator", "by": by, "text": "asked by ann" })]);
    trial.run(r#"{"action":"release","all":true}"#).await;
    trial.run(r#"{"action":"hold","to":"y@two.test","destination":"two.test"}"#).await;
    assert_eq!(held(&trial).await, [json!({ "kind": "operator", "by": by })], "the reason went with the release");
}

#[tokio::test]
async fn what_senders_put_off_waits_on_when_it_is_released() {
    let trial = Trial::new();
    let due = 4_000_000_000;
    // One waits for its sender's time, one was tried after an operator named it; of the last the time is over.
    trial.add_with(
        "HOLDUNTIL=2096-10-02T07:06:40Z",
        Client::Internal,
        3,
        "<ann@a.test>",
        &["x@one.test", "y@two.test"],
    );
    trial.add_with("HOLDFOR=60", Client::Internal, 2, "<ann@a.test>", &["x@one.test"]);
    let later = State { status: Status::Waiting, attempts: 0, due };
    let held = || {
        trial.set(3, 0, later);
        trial.set(3, 1, later.tried());
        trial.set(2, 0, later);
    };
    let dues = |hours| trial.states(hours).iter().map(|state| state.2).collect::<Vec<_>>();
    for which in ["\"all\":true", "\"state\":\"held\"", "\"to\":\"@*\""] {
        held();
        trial.run(r#"{"action":"hold","all":true}"#).await;
        let release = |dry_run| format!("{{\"action\":\"release\",{which},\"dry_run\":{dry_run}}}");
        for dry_run in [true, false] {
            let (_, last) = trial.run(&release(dry_run)).await;
            // It is released too: it is not held, and it waits.
            let figures = (&last["recipients"], &last["kept"], &last["unchanged"]);
            assert_eq!(figures, (&json!(3), &json!(1), &json!(0)), "{which} {last:?}");
        }
        assert_eq!(trial.states(3)[0], (Status::Waiting, 0, due), "{which}");
        assert!(dues(3)[1] < due && dues(2)[0] < due, "{which}");
        let (_, last) = trial.run(&release(false)).await;
        assert_eq!((&last["recipients"], &last["kept"]), (&json!(0), &json!(0)), "what is not held is left alone");
    }
    held();
    trial.run(r#"{"action":"hold","all":true}"#).await;
    let (_, last) = trial.run(&format!("{{\"action\":\"release\",\"ids\":[\"{}\"]}}", id(3))).await;
    assert_eq!((&last["recipients"], &last["kept"]), (&json!(2), &json!(0)), "who names it means it");
    assert!(dues(3)[0] < due);
}

/// A release of mail in quarantine sends copies; what cannot be read is passed over, other troubles end the command.
#[tokio::test(flavor = "multi_thread")]
async fn mail_in_quarantine_is_sent_as_copies() {
    let trial = Trial::filled();
    let hold = |hours: u64, kind: HoldKind, recipients: &[u32]| {
        let state = State { status: Status::Held, ..State::default() };
        let change = |recipient: &u32| Change { id: id(hours), recipient: *recipient, state, destination: None };
        let changes: Vec<Change> = recipients.iter().map(change).collect();
        trial.spool.record_hold(&changes, &Hold::new(kind, "spam", "")).unwrap().wait().unwrap();
    };
    hold(4, HoldKind::Quarantine, &[0, 1]);
    hold(4, HoldKind::Rule, &[2]);
    hold(3, HoldKind::Quarantine, &[0]);
    hold(2, HoldKind::Quarantine, &[0]);
    let trouble = |hours: u64, error: ResubmitError| {
        trial.dispatcher.resubmit_errors.lock().unwrap().insert(id(hours), error);
    };
    let to = r#"{"action":"forward","quarantined":true,"limit":1,"forward_to":"abuse@c.test"}"#;
    let (lines, end) = trial.run(to).await;
    assert_eq!(lines[0]["copy"], json!(id(0).to_string()));
    assert_eq!(lines[0]["recipients"].as_array().unwrap().len(), 2);
    assert_eq!((&end["messages"], &end["recipients"]), (&json!(1), &json!(2)));
    assert_eq!(trial.states(4).len(), 3, "a forwarded message stays");
    trouble(4, ResubmitError::Unreadable("damaged".to_owned()));
    let (lines, end) = trial.run(r#"{"action":"release","quarantined":true}"#).await;
    assert_eq!(lines[0]["unreadable"], json!(id(4).to_string()));
    assert_eq!(lines[0]["trouble"], "damaged");
    assert_eq!((&end["messages"], &end["unreadable"]), (&json!(2), &json!(1)), "{end:?}");
    assert!(trial.states(3).is_empty() && trial.states(2).is_empty(), "their recipients have the copies");
    trouble(4, ResubmitError::NotStored("full".to_owned()));
    let command = Command::from_fields(serde_json::from_str(r#"{"action":"release","quarantined":true}"#).unwrap());
    let deeds = Arc::clone(&trial.deeds);
    let tell: ChangeListener = Arc::new(move |deed| deeds.lock().unwrap().push(format!("{deed:?}")));
    let Answer::List(mut pieces) = trial.commands.answer(command.unwrap(), Requester::User(7), tell) else {
        panic!("no list")
    };
    let Some(ListPart::Failed { error, .. }) = pieces.recv().await else { panic!("it does not fail") };
    let begins = "release: stopped after 0 messages; the others stay in quarantine: ";
    assert!(error.starts_with(begins) && error.ends_with("full"), "{error}");
    let held: Vec<Status> = trial.states(4).iter().map(|state| state.0).collect();
    assert_eq!(held, [Status::Held; 3]);
    let deeds = trial.deeds.lock().unwrap();
    assert!(deeds[0].contains("Resubmitted") && deeds[0].contains("abuse@c.test"), "{deeds:?}");
    assert_eq!(deeds.iter().filter(|deed| deed.contains("Ended")).count(), 3);
}

#[tokio::test]
async fn mail_that_waits_for_filters_is_released_only_by_a_command_that_says_so() {
    let trial = Trial::filled();
    for (recipient, kind) in [(0, HoldKind::Screen), (1, HoldKind::Replacement), (2, HoldKind::Rule)] {
        trial.hold(4, recipient, kind);
    }
    let statuses = || trial.states(4).iter().map(|(status, ..)| *status).collect::<Vec<_>>();
    let (lines, _) = trial.run(r#"{"action":"list","from":"ann@a.test"}"#).await;
    let line = lines.iter().find(|line| line.contains_key("id")).unwrap();
    let first = &line["recipients"][0];
    assert_eq!((&first["hold"]["kind"], &first["hold"]["by"]), (&json!("screen"), &json!("clamav")));
    assert_eq!(first["reason"], "filter clamav: connect: refused");
    let held = [Status::Held; 3];
    for (command, recipients, unscreened, after) in [
        (r#"{"action":"retry","from":"ann@a.test"}"#, 0, json!(2), held),
        (r#"{"action":"hold","from":"ann@a.test"}"#, 0, Value::Null, held),
        (r#"{"action":"release","from":"ann@a.test","dry_run":true}"#, 1, json!(2), held),
        (r#"{"action":"release","from":"ann@a.test"}"#, 1, json!(2), [Status::Held, Status::Held, Status::Waiting]),
        (
            r#"{"action":"release","from":"ann@a.test","unscreened":true}"#,
            1,
            json!(1),
            [Status::Waiting, Status::Held, Status::Waiting],
        ),
        (
            r#"{"action":"release","from":"ann@a.test","unscreened":true}"#,
            0,
            json!(1),
            [Status::Waiting, Status::Held, Status::Waiting],
        ),
    ] {
        let (_, last) = trial.run(command).await;
        let told = last.get("unscreened").cloned().unwrap_or_default();
        assert_eq!((&last["recipients"], told), (&json!(recipients), unscreened), "{command}: {last:?}");
        assert_eq!(statuses(), after, "{command}");
    }
    let deeds = trial.deeds.lock().unwrap();
    let unscreened: Vec<bool> = deeds.iter().map(|deed| deed.contains("is_unscreened: true")).collect();
    assert_eq!(unscreened, [false, false, false, true, false], "the log says which command let mail go unscreened");
}

/// A verdict ends the wait of one recipient after the command has read the message: the command leaves it alone.
#[tokio::test]
async fn a_release_leaves_a_recipient_alone_whose_verdict_came_first() {
    let trial = Trial::filled();
    let screen = Hold::new(HoldKind::Screen, "clamav", "");
    let recipients = [0, 1].map(|position| {
        trial.hold(4, position, HoldKind::Screen);
        FoundRecipient {
            position,
            state: State { status: Status::Held, ..State::default() },
            status: RecipientStatus::Held,
            destination: Bytes::from_static(b"one.test"),
            recipient: None,
            keeps_time: false,
            hold: Some(screen.clone()),
        }
    });
    let (waiting, summary, trouble) = (3, None, None);
    let mut found = FoundMessage { id: id(4), recipients: recipients.into(), waiting, summary, trouble };
    trial.hold(4, 1, HoldKind::Replacement);
    let mut changes = ChangeBatcher::new(&trial.spool, trial.dispatcher.as_ref(), None);
    changes.apply(Action::Release, &mut found, 7);
    changes.finish_and_notify(Action::Release).unwrap();
    let statuses: Vec<Status> = trial.states(4).iter().map(|state| state.0).collect();
    assert_eq!(statuses, [Status::Waiting, Status::Held, Status::Waiting]);
    assert_eq!((changes.totals.recipients, changes.totals.unchanged), (1, 1));
}

/// A content rule may have the name of a rule of operators.
#[tokio::test]
async fn the_end_of_a_rule_releases_what_that_rule_holds_and_nothing_else() {
    let trial = Trial::filled();
    let (_, set) = trial.run(r#"{"action":"hold-rule","expression":"to:@one.test"}"#).await;
    assert_eq!(set["rule"], "rule-1");
    trial.hold_by(4, 0, HoldKind::Operator, "rule-1");
    trial.hold_by(4, 1, HoldKind::Rule, "rule-1");
    trial.hold_by(2, 0, HoldKind::Quarantine, "rule-1");
    for command in
        [r#"{"action":"resume","held_by":"rule-1","dry_run":true}"#, r#"{"action":"resume","held_by":"rule-1"}"#]
    {
        let (_, last) = trial.run(command).await;
        assert_eq!((&last["messages"], &last["recipients"]), (&json!(1), &json!(1)), "{command}");
    }
    let statuses = |hours| trial.states(hours).iter().map(|state| state.0).collect::<Vec<_>>();
    assert_eq!(statuses(4), [Status::Waiting, Status::Held, Status::Waiting]);
    assert_eq!(statuses(2), [Status::Held]);
}
