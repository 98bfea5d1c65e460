//! Commands that change mail: hold, release, retry, delete, bounce, reroute.

use super::super::command::Action;
use super::super::view::destination_text;
use super::super::*;
use super::trial::*;
use crate::answers::reply::{Answer, ListPart};
use crate::requester::Requester;
use mail::{Client, Envelope, QueueId};
use os::test_deadline::TestDeadline;
use serde_json::{Map, Value, json};
use spool::{NewBody, State, Status, Store as _};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn mail_is_sent_elsewhere() {
    let trial = Trial::filled();
    trial.set(4, 0, State { status: Status::Waiting, attempts: 3, due: 4_000_000_000 });
    *trial.dispatcher.active.lock().unwrap() = Some((id(4), 2));
    let command = r#"{"action":"reroute","expression":"to:@one.test","new_destination":"[192.0.2.1]","dry_run":true}"#;
    let (lines, last) = trial.run(command).await;
    let shown = lines.iter().filter(|line| line.contains_key("id")).count();
    assert_eq!((shown, &last["recipients"], &last["active"]), (1, &json!(1), &json!(1)));
    assert!(trial.told().is_empty(), "nothing is changed");
    let (_, last) = trial.run(&command.replace(",\"dry_run\":true", "")).await;
    assert_eq!((&last["messages"], &last["recipients"], &last["active"]), (&json!(1), &json!(1), &json!(1)));
    let names: Vec<String> = trial.spool.states(id(4)).iter().map(|(_, name)| destination_text(name)).collect();
    assert_eq!(names, ["[192.0.2.1]", "two.test", "one.test"]);
    assert!(trial.states(4)[0].2 < 4_000_000_000, "it is due");
    assert_eq!(trial.told(), ["retry [192.0.2.1]"]);
    let (_, last) = trial
        .run(command.replace(",\"dry_run\":true", "").replace("to:@one", "destination:[192.0.2.1] to:@one").as_str())
        .await;
    assert_eq!((&last["recipients"], &last["unchanged"]), (&json!(0), &json!(1)), "it is there");
}

#[tokio::test]
async fn holding_releasing_and_trying_again() {
    let trial = Trial::filled();
    let later = State { status: Status::Waiting, attempts: 5, due: 4_000_000_000 };
    trial.set(4, 1, later);
    let (lines, last) = trial.run(r#"{"action":"hold","from":"@a.test"}"#).await;
    assert!(lines.iter().all(|line| line.contains_key("unreadable")), "{lines:?}");
    assert_eq!((&last["unreadable"], &last["messages"], &last["recipients"]), (&json!(1), &json!(1), &json!(3)));
    assert_eq!(trial.states(4), [(Status::Held, 0, 0), (Status::Held, 5, 4_000_000_000), (Status::Held, 0, 0)]);
    assert_eq!((trial.spool.statistics().held, trial.told()), (3, vec![]));
    let (_, last) = trial.run(r#"{"action":"hold","from":"@a.test"}"#).await;
    assert_eq!((&last["recipients"], &last["unchanged"]), (&json!(0), &json!(3)), "held already");
    let (_, last) = trial.run(r#"{"action":"retry","all":true}"#).await;
    assert_eq!((&last["recipients"], &last["unchanged"]), (&json!(3), &json!(3)), "what is held stays");
    assert_eq!(trial.told(), ["retry a.test down.test one.test"]);
    assert!(trial.states(3)[0].2 > 0, "due now, not never");
    let (_, last) = trial.run(r#"{"action":"release","to":"y@two.test","destination":"two.test"}"#).await;
    assert_eq!((&last["messages"], &last["recipients"]), (&json!(1), &json!(1)));
    assert_eq!(trial.told(), ["released two.test"]);
    let [first, (Status::Waiting, 5, due), third] = trial.states(4)[..] else { panic!("{:?}", trial.states(4)) };
    assert!((1..4_000_000_000).contains(&due), "{due}");
    assert_eq!((first, third), ((Status::Held, 0, 0), (Status::Held, 0, 0)));
    let (_, last) = trial.run(r#"{"action":"release","to":"nobody@two.test"}"#).await;
    assert_eq!((&last["messages"], trial.told()), (&json!(0), vec![]), "nothing was meant, nobody is told");
    let deeds = trial.deeds.lock().unwrap();
    assert_eq!(deeds[0], "Ended { action: Hold, messages: 1, recipients: 3, is_unscreened: false, by: User(7) }");
    assert_eq!(deeds.len(), 5, "{deeds:?}");
}

#[tokio::test]
async fn who_is_delivered_and_not_told_of_is_left_alone_by_commands_but_for_deletion() {
    let trial = Trial::filled();
    let owed = State { attempts: 5, ..State::default() }.owing(2, Duration::from_secs(4_000_000_000));
    trial.set(4, 1, owed);
    let id = id(4);
    let (lines, _) = trial.run(&format!(r#"{{"action":"list","ids":["{id}"]}}"#)).await;
    let shown = &lines[0]["recipients"][1];
    assert_eq!((&shown["state"], shown.get("tries"), shown.get("due")), (&json!("delivered"), None, None));
    assert_eq!(trial.listed(r#","state":"delivered""#).await.0, [4]);
    let (lines, _) = trial.run(r#"{"action":"stragglers"}"#).await;
    assert!(lines.iter().all(|line| line["destination"] != "two.test"), "{lines:?}");
    for action in ["hold", "retry", "release"] {
        let (_, last) = trial.run(&format!(r#"{{"action":"{action}","ids":["{id}"],"to":"y@two.test"}}"#)).await;
        assert_eq!((&last["recipients"], &last["unchanged"]), (&json!(0), &json!(1)), "{action}");
        assert_eq!(trial.states(4)[1], (Status::Owed, 2, 4_000_000_000), "{action}");
    }
    assert_eq!(trial.told(), Vec::<String>::new());
    let (_, last) = trial.run(&format!(r#"{{"action":"delete","ids":["{id}"],"to":"y@two.test"}}"#)).await;
    assert_eq!((&last["recipients"], trial.states(4).len()), (&json!(1), 2));
}

#[tokio::test]
async fn what_senders_put_off_is_retried_only_by_its_id() {
    let trial = Trial::new();
    let client = Client::Internal;
    let due = 4_000_000_000;
    // One is kept until its sender's time, one was tried after an operator named it; of the last the time is over.
    trial.add_with("HOLDUNTIL=2096-10-02T07:06:40Z", client, 3, "<ann@a.test>", &["x@one.test", "y@two.test"]);
    trial.add_with("HOLDFOR=60", client, 2, "<ann@a.test>", &["x@one.test"]);
    let later = State { status: Status::Waiting, attempts: 0, due };
    trial.set(3, 0, later);
    trial.set(3, 1, later.tried());
    trial.set(2, 0, later);
    let (lines, _) = trial.run(r#"{"action":"list"}"#).await;
    let until: Vec<Option<u64>> = lines
        .iter()
        .flat_map(|line| line["recipients"].as_array().unwrap())
        .map(|one| one.get("until").and_then(Value::as_u64))
        .collect();
    assert_eq!(until, [Some(due.into()), None, None]);
    let dues = |hours| trial.states(hours).iter().map(|state| state.2).collect::<Vec<_>>();
    for which in ["\"all\":true", "\"destination\":\"*.test\"", "\"to\":\"@*\""] {
        trial.set(3, 1, later.tried());
        trial.set(2, 0, later);
        for dry_run in [true, false] {
            let (_, last) = trial.run(&format!("{{\"action\":\"retry\",{which},\"dry_run\":{dry_run}}}")).await;
            assert_eq!((&last["recipients"], &last["kept"]), (&json!(2), &json!(1)), "{which} {last:?}");
        }
        assert_eq!(dues(3)[0], due, "{which}");
        assert!(dues(3)[1] < due && dues(2)[0] < due, "{which}");
    }
    let (_, last) = trial.run(&format!("{{\"action\":\"retry\",\"ids\":[\"{}\"]}}", id(3))).await;
    assert_eq!((&last["recipients"], &last["kept"]), (&json!(2), &json!(0)), "who names it means it");
    assert!(dues(3)[0] < due);
}

#[tokio::test]
async fn what_is_deleted_is_shown_and_gone() {
    let trial = Trial::filled();
    let (preview, last) = trial.run(r#"{"action":"delete","to":"@one.test","dry_run":true}"#).await;
    assert_eq!((&last["messages"], &last["recipients"], &last["dry_run"]), (&json!(1), &json!(2), &json!(true)));
    assert_eq!(trial.states(4).len(), 3, "nothing was done");
    assert!(trial.deeds.lock().unwrap().is_empty());
    *trial.dispatcher.active.lock().unwrap() = Some((id(4), 2));
    let (lines, last) = trial.run(r#"{"action":"delete","to":"@one.test"}"#).await;
    assert_eq!((&last["messages"], &last["recipients"], &last["active"]), (&json!(1), &json!(2), &json!(1)));
    let gone = |lines: &[Map<String, Value>]| {
        let line = lines.iter().find(|line| line.contains_key("id")).unwrap();
        let recipients = line["recipients"].as_array().unwrap();
        (line["id"].clone(), line["from"].clone(), recipients.iter().map(|one| one["to"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(
        gone(&lines),
        (json!(id(4).to_string()), json!("ann@a.test"), vec![json!("x@one.test"), json!("z@one.test")])
    );
    assert_eq!(gone(&preview), gone(&lines), "the preview said so");
    assert_eq!(trial.states(4).len(), 1, "the third recipient stays");
    // A message whose envelope cannot be read goes too, if it is not asked for by its addresses.
    let (lines, last) = trial.run(r#"{"action":"delete","all":true}"#).await;
    assert_eq!((lines.len(), &last["messages"]), (4, &json!(4)));
    assert_eq!(trial.spool.statistics().messages, 0);
    let deeds = trial.deeds.lock().unwrap();
    assert!(deeds[0].contains("from: \"ann@a.test\", recipients: 2, by: User(7)"), "{deeds:?}");
    assert_eq!(deeds.len(), 1 + 1 + 4 + 1);
    assert_eq!(trial.told(), Vec::<String>::new(), "there is nothing to try");
}

#[tokio::test]
async fn what_is_bounced_is_what_the_dispatcher_says() {
    let trial = Trial::filled();
    *trial.dispatcher.active.lock().unwrap() = Some((id(4), 2));
    let (preview, last) = trial.run(r#"{"action":"bounce","from":"@a.test","dry_run":true}"#).await;
    assert_eq!((&last["recipients"], &last["active"], &last["dry_run"]), (&json!(2), &json!(1), &json!(true)));
    assert_eq!((trial.states(4).len(), trial.told()), (3, vec![]), "nothing was done");
    let positions = |lines: &[Map<String, Value>]| -> Vec<Value> {
        let recipients = lines.iter().filter_map(|line| line.get("recipients")?.as_array());
        recipients.flatten().map(|one| one["position"].clone()).collect()
    };
    assert_eq!(positions(&preview), [0, 1]);
    // One is being delivered, and another is taken by a connection before the dispatcher comes to it.
    trial.set(4, 0, State { status: Status::Held, ..State::default() });
    let (lines, last) = trial
        .run(r#"{"action":"bounce","ids":["ID"],"reason":"closed"}"#.replace("ID", &id(4).to_string()).as_str())
        .await;
    assert_eq!(positions(&lines), [0], "held or not");
    assert_eq!((&last["messages"], &last["recipients"], &last["active"]), (&json!(1), &json!(1), &json!(2)));
    assert_eq!(trial.told(), ["bounce 1 Given up by the postmaster: closed"]);
    assert_eq!(trial.states(4).len(), 2);
    // One that cannot be read is said to be so; the others go.
    trial.dispatcher.troubles.lock().unwrap().insert(id(1), BounceError::Unreadable("torn".to_owned()));
    let (lines, last) = trial.run(r#"{"action":"bounce","all":true}"#).await;
    assert!(lines.contains(&Map::from_iter([
        ("unreadable".to_owned(), json!(id(1).to_string())),
        ("trouble".to_owned(), json!("torn"))
    ])));
    assert_eq!((&last["messages"], &last["recipients"], &last["unreadable"]), (&json!(3), &json!(3), &json!(1)));
    assert_eq!(trial.told(), ["bounce 4 Given up by the postmaster"], "side by side");
    let deeds = trial.deeds.lock().unwrap();
    assert!(
        deeds[0].starts_with("Removed { action: Bounce, ") && deeds[0].contains("recipients: 1, by: User(7)"),
        "{deeds:?}"
    );
    assert_eq!(deeds[1], "Ended { action: Bounce, messages: 1, recipients: 1, is_unscreened: false, by: User(7) }");
    assert_eq!(deeds.len(), 2 + 4);
}

#[tokio::test]
async fn bounces_go_some_at_a_time_and_stop_where_reports_find_no_room() {
    // The envelope is one frame.
    let trial = Trial::with(|config| config.segment_bytes = 4 << 20);
    let addresses: Vec<String> = (0..10_001).map(|number| format!("r{number}@one.test")).collect();
    trial.add(5, "<ann@a.test>", &addresses.iter().map(String::as_str).collect::<Vec<_>>());
    let start = id(4).to_u64();
    for number in 0..33 {
        let envelope = Envelope { id: QueueId::from_u64(start + (number << 12)).unwrap(), ..envelope_of(4) };
        let encoded = spool::envelope::Encoded::new(&envelope);
        trial.spool.append(encoded.message(&encoded.recipients(), NewBody::whole("x", 0))).unwrap().wait().unwrap();
    }
    let (_, last) = trial.run(r#"{"action":"bounce","from":"@a.test","limit":33}"#).await;
    assert_eq!((&last["messages"], &last["recipients"], &last["more"]), (&json!(33), &json!(10_033), &json!(0)));
    let sizes = |trial: &Trial| -> Vec<Vec<usize>> {
        let bounces = std::mem::take(&mut *trial.dispatcher.bounces.lock().unwrap());
        bounces.iter().map(|batch| batch.iter().map(|meant| meant.recipients.len()).collect()).collect()
    };
    assert_eq!(sizes(&trial), [vec![10_000], vec![1], vec![1; 32]]);
    assert_eq!(trial.spool.statistics().messages, 1);
    trial.add(3, "<ann@a.test>", &["x@one.test"]);
    let last = QueueId::from_u64(start + (32 << 12)).unwrap();
    trial.dispatcher.troubles.lock().unwrap().insert(last, BounceError::NotStored("full".to_owned()));
    let command = Command::from_fields(serde_json::from_str(r#"{"action":"bounce","all":true}"#).unwrap()).unwrap();
    let Answer::List(mut pieces) =
        trial.commands.answer(command, Requester::User(0), Arc::new(|_: &QueueChange<'_>| {}))
    else {
        panic!()
    };
    let mut failed = None;
    while let Some(piece) = pieces.recv().await {
        if let ListPart::Failed { error, .. } = piece {
            failed = Some(error);
        }
    }
    let failed = failed.unwrap();
    assert!(failed.starts_with("bounce: stopped after 1 recipients of 1 messages"), "{failed}");
    assert!(failed.ends_with(": full") && failed.contains(&last.to_string()), "{failed}");
    assert_eq!(trial.spool.messages(), [last]);
}

#[tokio::test]
async fn commands_are_bounded_and_end_when_nobody_listens() {
    let trial = Trial::filled();
    let list = || Command::new(Action::List, Selection::default());
    let tell: ChangeListener = Arc::new(|_| {});
    // More lines than wait for an asker: they are not taken, so that every command stands still in the middle.
    for hours in 10..90 {
        trial.add(hours, "<ann@a.test>", &["x@two.test"]);
    }
    let mut held = Vec::new();
    while let Answer::List(pieces) = trial.commands.answer(list(), Requester::User(7), Arc::clone(&tell)) {
        held.push(pieces);
    }
    assert_eq!(held.len(), COMMANDS_MAX);
    drop(held);
    // That ends them; then there is room again.
    let mut answer = trial.commands.answer(list(), Requester::User(7), Arc::clone(&tell));
    let patience = TestDeadline::new("there is no room again");
    while let Answer::Refused { .. } = answer {
        patience.check();
        tokio::task::yield_now().await;
        answer = trial.commands.answer(list(), Requester::User(7), Arc::clone(&tell));
    }
}
