//! The answers to commands: lists, one message, destinations, stragglers.

use super::super::*;
use super::trial::*;
use crate::answers::reply::{Answer, Reason};
use mail::{Client, QueueId};
use serde_json::{Map, Value, json};
use spool::{State, Status, Store as _};
#[tokio::test]
async fn a_list_shows_the_oldest_first_and_counts_the_rest() {
    let trial = Trial::filled();
    let (lines, last) = trial.run(r#"{"action":"list"}"#).await;
    let [first, second, _, broken] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&first["from"], &first["size"], &first["waiting"]), (&json!("ann@a.test"), &json!(34), &json!(3)));
    assert!(first["age"].as_u64().unwrap() >= 4 * 3_600, "{first:?}");
    let expected = json!([
        { "position": 0, "to": "x@one.test", "destination": "one.test", "state": "waiting", "tries": 0 },
        { "position": 1, "to": "y@two.test", "destination": "two.test", "state": "waiting", "tries": 0, "reason": "451 4.7.1 later" },
        { "position": 2, "to": "z@one.test", "destination": "one.test", "state": "waiting", "tries": 0 },
    ]);
    assert_eq!(first["recipients"], expected);
    assert_eq!(second["from"], "", "the null sender");
    assert!(!broken.contains_key("from") && broken["trouble"].as_str().unwrap().contains("head"), "{broken:?}");
    assert_eq!((&last["messages"], &last["recipients"], &last["more"]), (&json!(4), &json!(6), &json!(0)));
    for (conditions, hours, more, unseen) in [
        (",\"limit\":1", vec![4], 3, 0),
        (",\"limit\":0", vec![4, 3, 2, 1], 0, 0),
        (",\"limit\":1,\"destination\":\"ONE.test\"", vec![4], 1, 0),
        (",\"destination\":\"*.test\",\"limit\":3", vec![4, 3, 2], 1, 0),
        (",\"limit\":1,\"from\":\"*\"", vec![4], 0, 3),
        (",\"from\":\"<>\"", vec![3], 0, 0),
        (",\"from\":\"@b.test\"", vec![2], 0, 0),
        (",\"to\":\"@one.test\"", vec![4], 0, 0),
        (",\"to\":\"*\",\"from\":\"ann@*\"", vec![4], 0, 0),
        (",\"older\":9000", vec![4, 3], 0, 0),
        (",\"younger\":9000,\"older\":7200", vec![2], 0, 0),
        (",\"state\":\"held\"", vec![], 0, 0),
    ] {
        let (found, last) = trial.listed(conditions).await;
        assert_eq!(found, hours, "{conditions}");
        assert_eq!((&last["more"], &last["unseen"]), (&json!(more), &json!(unseen)), "{conditions}");
    }
    let (lines, last) = trial.run(r#"{"action":"list","to":"*"}"#).await;
    assert!(lines.iter().any(|line| line.get("unreadable") == Some(&json!(id(1).to_string()))), "{lines:?}");
    assert_eq!(last["unreadable"], 1);
}

#[tokio::test]
async fn only_the_recipients_that_are_meant_are_listed() {
    let trial = Trial::filled();
    trial.set(4, 0, State { status: Status::Held, attempts: 3, due: 99 });
    *trial.dispatcher.active.lock().unwrap() = Some((id(4), 2));
    for (conditions, positions) in [
        ("\"to\":\"@one.test\"", vec![0, 2]),
        ("\"state\":\"held\"", vec![0]),
        ("\"state\":\"active\"", vec![2]),
        ("\"state\":\"waiting\",\"from\":\"ann@a.test\"", vec![1]),
        ("\"to\":\"z@*\",\"destination\":\"one.*\"", vec![2]),
    ] {
        let (lines, last) = trial.run(&format!("{{\"action\":\"list\",{conditions}}}")).await;
        let line = lines.iter().find(|line| line.contains_key("id")).unwrap();
        let found: Vec<u64> =
            line["recipients"].as_array().unwrap().iter().map(|one| one["position"].as_u64().unwrap()).collect();
        assert_eq!(found, positions, "{conditions}");
        assert_eq!((&line["waiting"], &last["recipients"]), (&json!(3), &json!(positions.len())), "{conditions}");
    }
}

#[tokio::test]
async fn an_expression_selects_recipients() {
    let trial = Trial::filled();
    trial.set(4, 0, State { status: Status::Held, attempts: 3, due: 99 });
    for (expression, messages, recipients) in [
        ("to:@one.test", 1, 2),
        ("state:held", 1, 1),
        ("!state:held from:ann@a.test", 1, 2),
        ("tries>2", 1, 1),
        ("reply~LATER", 1, 1),
        ("host:mx.test:25", 1, 1),
        ("destination:*.test age<9h", 4, 6),
        ("size>33 size<35 from:*", 3, 5),
        ("size>34", 0, 0),
    ] {
        let command = json!({ "action": "count", "expression": expression }).to_string();
        let (lines, last) = trial.run(&command).await;
        assert!(lines.iter().all(|line| line.contains_key("unreadable")), "{expression}: {lines:?}");
        assert_eq!((&last["messages"], &last["recipients"]), (&json!(messages), &json!(recipients)), "{expression}");
    }
}

#[tokio::test]
async fn a_message_is_shown_with_all_that_is_known() {
    let trial = Trial::filled();
    trial.set(2, 0, State { status: Status::Waiting, attempts: 2, due: 4_000_000_000 }.warned().of_class(1, true));
    let command = |id: QueueId| format!("{{\"action\":\"show\",\"ids\":[\"{id}\"],\"headers\":true}}");
    let (lines, _) = trial.run(&command(id(2))).await;
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(
        (&line["client"], &line["protocol"], &line["params"]),
        (&json!("mailrace"), &json!("local"), &json!("BODY=8BITMIME"))
    );
    assert_eq!((&line["received"], &line["headers"]), (&json!(7), &json!("Subject: x\r\nTo: y\r\n")));
    assert_eq!(line["destinations"]["down.test"]["down"], "Connection refused");
    let one = &line["recipients"][0];
    assert_eq!((&one["tries"], &one["warned"], &one["due"]), (&json!(2), &json!(true), &json!(4_000_000_000_u32)));
    assert_eq!(one["class"], "bulk");
    // Its host is tried later than it is due.
    assert_eq!(one["retry_at"], u64::MAX / 2);
    let (lines, _) = trial.run(r#"{"action":"list","all":true}"#).await;
    let recipients = lines.iter().flat_map(|line| line["recipients"].as_array().cloned().unwrap_or_default());
    for one in recipients {
        let is_down = one["destination"] == "down.test" && one["state"] == "waiting";
        assert_eq!(one.get("retry_at").is_some(), is_down, "{one}");
    }
    trial.add(5, "<bob@b.test>", &["q@paced.test"]);
    let (lines, _) = trial.run(&command(id(5))).await;
    assert_eq!(lines[0]["destinations"]["paced.test"]["learned_messages_per_second"], 0.912);
    let (lines, _) = trial.run(r#"{"action":"destinations"}"#).await;
    let of = |name: &str| lines.iter().find(|line| line["destination"] == name).unwrap().clone();
    let figures =
        ["waits_for", "waits_since", "connections_max", "ready", "has_more"].map(|name| of("paced.test")[name].clone());
    assert_eq!(figures, [json!("connection"), json!(12), json!(1_000), json!(7), json!(true)]);
    assert!(["waits_for", "ready", "has_more"].iter().all(|name| !of("down.test").contains_key(*name)));
    let (lines, last) = trial.run(&command(QueueId::MIN)).await;
    assert_eq!(lines, [Map::from_iter([("missing".to_owned(), json!(QueueId::MIN.to_string()))])]);
    assert_eq!((&last["missing"], &last["messages"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn long_answers_come_in_parts() {
    let trial = Trial::new();
    let addresses: Vec<String> = (0..1_001).map(|number| format!("r{number}@one.test")).collect();
    trial.add(2, "<ann@a.test>", &addresses.iter().map(String::as_str).collect::<Vec<_>>());
    for hours in 3..9 {
        trial.add(hours, "<ann@a.test>", &["x@two.test"]);
    }
    let (lines, _) = trial.run(r#"{"action":"list","destination":"one.test"}"#).await;
    let shown = lines[0]["recipients"].as_array().unwrap().len();
    assert_eq!((shown, &lines[0]["more_recipients"]), (20, &json!(981)));
    let (lines, last) = trial.run(&format!("{{\"action\":\"show\",\"ids\":[\"{}\"]}}", id(2))).await;
    let counts: Vec<usize> = lines.iter().map(|line| line["recipients"].as_array().unwrap().len()).collect();
    assert_eq!((counts, &last["messages"]), (vec![500, 500, 1], &json!(1)));
    let (lines, last) = trial.run(r#"{"action":"destinations","limit":1}"#).await;
    assert_eq!(Value::Object(lines[0].clone()), json!({ "destination": "one.test", "recipients": 1_001 }));
    assert_eq!((lines.len(), &last["more"]), (1, &json!(1)));
    let (_, last) = trial.run(r#"{"action":"delete","all":true}"#).await;
    assert_eq!((&last["messages"], &last["recipients"]), (&json!(7), &json!(1_007)));
    assert_eq!(trial.spool.statistics().recipients, 0);
}

#[tokio::test]
async fn stragglers_are_added_up() {
    let trial = Trial::filled();
    trial.add(5, "<ann@a.test>", &["x@one.test"]);
    let (lines, totals) = trial.run(r#"{"action":"stragglers","older":7200,"limit":2}"#).await;
    let shown = |line: &Map<String, Value>| {
        let number = |name: &str| line[name].as_u64().unwrap();
        (line["destination"].as_str().unwrap().to_owned(), number("recipients"), number("messages"))
    };
    // The damaged message is too young.
    assert_eq!(
        lines.iter().map(shown).collect::<Vec<_>>(),
        [("one.test".to_owned(), 3, 2), ("a.test".to_owned(), 1, 1)]
    );
    assert!(lines[0]["oldest"].as_u64().unwrap() >= 5 * 3_600, "{lines:?}");
    assert_eq!((&totals["more"], &totals["recipients"]), (&json!(2), &json!(6)));
    let (lines, _) = trial.run(r#"{"action":"stragglers","by":"recipient","to":"@one.test"}"#).await;
    // The one that cannot be read is named too.
    let told = lines.iter().filter(|line| line.contains_key("to"));
    let who: Vec<_> = told.map(|line| (line["to"].as_str().unwrap(), line["recipients"].as_u64())).collect();
    assert_eq!(who, [("x@one.test", Some(2)), ("z@one.test", Some(1))]);
    let (lines, _) = trial.run(r#"{"action":"stragglers","destination":"down.test"}"#).await;
    assert_eq!((&lines[0]["down"], &lines[0]["site"]), (&json!("Connection refused"), &json!("mx.test:25")));
}

#[tokio::test]
async fn stragglers_are_added_up_by_host() {
    let trial = Trial::filled();
    // Two destinations of one host, and one of a message with both.
    trial.add(5, "<ann@a.test>", &["x@too.test", "y@down.test", "z@too.test"]);
    let (lines, totals) = trial.run(r#"{"action":"stragglers","by":"host","older":7200,"limit":1}"#).await;
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let shown = ["host", "recipients", "messages", "destinations", "named", "site", "down"].map(|name| &line[name]);
    let (site, down) = (json!("mx.test:25"), json!("Connection refused"));
    assert_eq!(shown, [&site, &json!(4), &json!(2), &json!(2), &json!(["too.test", "down.test"]), &site, &down]);
    assert!(line["retry_in"].as_u64() > Some(0) && line["oldest"].as_u64() >= Some(5 * 3_600), "{line:?}");
    // The second recipient of the message was told why, and it was the last that was.
    assert_eq!(line["reason"], json!("451 4.7.1 later"));
    // Groups that are left out are counted; a destination without known hosts is a group of its own.
    assert_eq!((&totals["more"], &totals["recipients"]), (&json!(3), &json!(8)));
    let (lines, _) = trial.run(r#"{"action":"stragglers","by":"host","older":7200}"#).await;
    let hosts: Vec<_> = lines.iter().map(|line| line["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["mx.test:25", "one.test", "a.test", "two.test"]);
    assert_eq!((lines[1].get("site"), &lines[1]["named"]), (None, &json!(["one.test"])));
    // Negative control: by destination they are apart.
    let (lines, _) = trial.run(r#"{"action":"stragglers","older":7200}"#).await;
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| !line.contains_key("host")));
}

#[tokio::test]
async fn a_destination_says_that_it_is_tried() {
    let trial = Trial::filled();
    trial.add(5, "<ann@a.test>", &["x@probed.test"]);
    let (lines, _) = trial.run(r#"{"action":"destinations"}"#).await;
    let of = |name: &str| lines.iter().find(|line| line["destination"] == name).unwrap();
    assert_eq!((&of("probed.test")["retry_in"], &of("probed.test")["trying"]), (&json!(0), &json!(true)));
    assert!(of("down.test")["retry_in"].as_u64() > Some(0) && !of("down.test").contains_key("trying"));
}

#[tokio::test]
async fn guests_see_what_they_handed_in() {
    let trial = Trial::filled();
    trial.add_from(Client::Process { uid: 1_000 }, 5, "<ann@a.test>", &["o@one.test"]);
    trial.add_from(Client::Process { uid: 1_001 }, 6, "<ann@a.test>", &["o@one.test"]);
    let command = |text: &str| Command::from_fields(serde_json::from_str(text).unwrap()).unwrap();
    let seen = async |text: &str, owner| {
        let mut command = command(text);
        command.selection.handed_in_by = owner;
        trial.collect(trial.commands.answer_guest(command, 1_000)).await.0
    };
    let ids = |lines: &[Map<String, Value>]| -> Vec<String> {
        lines
            .iter()
            .map(|line| line.get("id").map_or_else(|| format!("{line:?}"), |id| id.as_str().unwrap().to_owned()))
            .collect()
    };
    let list = "{\"action\":\"list\"}";
    assert_eq!(ids(&seen(list, Some(1_000)).await), [id(5).to_string()], "nothing of others, nor what nobody can read");
    assert_eq!(seen(list, Some(0)).await, []);
    let mut own = command(list);
    own.selection.handed_in_by = Some(0);
    let last = trial.collect(trial.commands.answer_guest(own, 0)).await.1;
    assert_eq!((&last["messages"], &last["own"]), (&json!(0), &json!(true)), "an empty answer is no empty queue");
    assert!(!trial.listed("").await.1.contains_key("own"));
    // Negative control: without the condition there are all.
    assert_eq!(seen(list, None).await.len(), 6);
    let show = |hours| format!("{{\"action\":\"show\",\"ids\":[\"{}\"]}}", id(hours));
    assert_eq!(ids(&seen(&show(5), Some(1_000)).await), [id(5).to_string()]);
    assert_eq!(seen(&show(6), Some(1_000)).await, []);
    let change = command("{\"action\":\"delete\",\"all\":true}");
    assert!(matches!(trial.commands.answer_guest(change, 0), Answer::Refused { reason: Reason::Permission, .. }));
    // They wait for each other, and hold up no operator.
    let answers: Vec<Answer> =
        (0..COMMANDS_MAX + 1).map(|_| trial.commands.answer_guest(command(list), 1_000)).collect();
    assert_eq!(trial.listed("").await.0.len(), 6);
    for answer in answers {
        assert_eq!(trial.collect(answer).await.0.len(), 6);
    }
}
