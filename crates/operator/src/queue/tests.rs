//! Commands on a real spool on a simulated disk, with a dispatcher that records its commands.

use super::change::ChangeBatcher;
use super::command::Action;
use super::scan::{FoundMessage, FoundRecipient};
use super::test_spool::spool_with;
use super::view::destination_text;
use super::*;
use crate::answers::reply::{Answer, ListPart, Reason};
use crate::requester::Requester;
use bytes::Bytes;
use mail::{Address, Client, Envelope, MailParams, Protocol, QueueId, Received, Recipient, ReversePath};
use os::test_deadline::TestDeadline;
use serde_json::{Map, Value, json};
use spool::{Change, Hold, HoldKind, NewBody, NewMessage, Spool, State, Status, Store as _};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records its commands; knows one reason, one active recipient, and one destination that is down.
#[derive(Debug, Default)]
struct Dispatcher {
    told: Mutex<Vec<String>>,
    active: Mutex<Option<(QueueId, u32)>>,
    /// The spool that records bounces; the calls with their recipients, and the result of a message.
    spool: Option<Arc<Spool>>,
    bounces: Mutex<Vec<Vec<RecipientSelection>>>,
    troubles: Mutex<HashMap<QueueId, BounceError>>,
    resubmit_errors: Mutex<HashMap<QueueId, ResubmitError>>,
}

impl Dispatcher {
    fn hear(&self, what: &str, destinations: Destinations<'_>) {
        let mut names: Vec<_> = match destinations {
            Destinations::All => vec!["all".into()],
            Destinations::These(names) => names.iter().map(|name| String::from_utf8_lossy(name)).collect(),
        };
        names.sort();
        self.told.lock().unwrap().push(format!("{what} {}", names.join(" ")));
    }
}

impl DeliveryControl for Dispatcher {
    fn released(&self, destinations: Destinations<'_>) {
        self.hear("released", destinations);
    }

    fn retry(&self, destinations: Destinations<'_>) {
        self.hear("retry", destinations);
    }

    fn reason(&self, _: QueueId, recipient: u32) -> Option<String> {
        (recipient == 1).then(|| "451 4.7.1 later".to_owned())
    }

    fn filter_failure(&self, filters: &str) -> Option<String> {
        (filters == "clamav").then(|| "filter clamav: connect: refused".to_owned())
    }

    fn is_active(&self, id: QueueId, recipient: u32) -> bool {
        *self.active.lock().unwrap() == Some((id, recipient))
    }

    /// The last of the recipients of a message with more than one went away meanwhile.
    fn bounce(&self, meant: Vec<RecipientSelection>, why: &GiveUpReason) -> Option<Vec<Bounced>> {
        let why = match why {
            GiveUpReason::Postmaster(text) => text.to_string(),
            GiveUpReason::Expired => "expired".to_owned(),
        };
        self.told.lock().unwrap().push(format!("bounce {} {why}", meant.len()));
        self.bounces.lock().unwrap().push(meant.clone());
        let bounced = meant.into_iter().map(|RecipientSelection { id, recipients }| {
            let trouble = self.troubles.lock().unwrap().remove(&id);
            let stays = usize::from(recipients.len() > 1 && recipients.len() < 10);
            let count = if trouble.is_some() { 0 } else { recipients.len() - stays };
            let done = recipients[..count].to_vec();
            let state = State { status: Status::Done, ..State::default() };
            let change = |recipient: &u32| Change { id, recipient: *recipient, state, destination: None };
            let changes: Vec<Change> = done.iter().map(change).collect();
            self.spool.as_ref().unwrap().record(&changes).unwrap().wait().unwrap();
            Bounced { id, done, active: stays as u64, held: 0, trouble }
        });
        Some(bounced.collect())
    }

    fn read_destination(&self, text: &str) -> Result<Bytes, String> {
        if text.contains(' ') { Err(format!("{text:?} is no destination")) } else { Ok(text.to_owned().into()) }
    }

    fn reroute(&self, meant: &RecipientSelection, _: &[u8], to: &Bytes, due_s: u32) -> Result<Rerouted, spool::Error> {
        let state = State { due: due_s, ..State::default() };
        let change =
            |recipient: &u32| Change { id: meant.id, recipient: *recipient, state, destination: Some(to.to_vec()) };
        let is_idle = |recipient: &&u32| !self.is_active(meant.id, **recipient);
        let changes: Vec<Change> = meant.recipients.iter().filter(is_idle).map(change).collect();
        let commit = self.spool.as_ref().unwrap().record(&changes)?;
        let active = meant.recipients.len() - changes.len();
        Ok(Rerouted { moved: changes.len(), active, commit: Some(commit) })
    }

    fn resubmit(&self, order: Resubmission) -> Result<Resubmitted, ResubmitError> {
        let Resubmission { meant: RecipientSelection { id: original, recipients }, to } = order;
        if let Some(error) = self.resubmit_errors.lock().unwrap().remove(&original) {
            return Err(error);
        }
        if to.is_none() {
            let state = State { status: Status::Done, ..State::default() };
            let change = |recipient: &u32| Change { id: original, recipient: *recipient, state, destination: None };
            let changes: Vec<Change> = recipients.iter().map(change).collect();
            self.spool.as_ref().unwrap().record(&changes).unwrap().wait().unwrap();
        }
        Ok(Resubmitted { copy: Some(id(0)), recipients })
    }

    fn destination(&self, name: &[u8]) -> Option<DestinationState> {
        let down = DownState { why: "Connection refused".to_owned(), retry_at: Duration::from_secs(u64::MAX / 2) };
        if name == b"probed.test" {
            let down = DownState { why: "Connection refused".to_owned(), retry_at: Duration::from_secs(1) };
            return Some(DestinationState { down: Some(down), ..DestinationState::default() });
        }
        let state =
            DestinationState { down: Some(down), site: Some("mx.test:25".to_owned()), ..DestinationState::default() };
        if name == b"paced.test" {
            let waits = Some(WaitCause::Connection { since: Duration::from_millis(12_900), most: 1_000 });
            return Some(DestinationState {
                pace: Some(912),
                waits,
                ready: 7,
                has_more: true,
                ..DestinationState::default()
            });
        }
        [b"down.test".as_slice(), b"too.test"].contains(&name).then_some(state)
    }
}

struct Trial {
    spool: Arc<Spool>,
    dispatcher: Arc<Dispatcher>,
    commands: QueueCommands,
    deeds: Arc<Mutex<Vec<String>>>,
}

/// The id of a message that came so many hours ago, give or take.
fn id(hours: u64) -> QueueId {
    let now = os::clock::unix_us();
    QueueId::new(now / 3_600_000_000 * 3_600_000_000 - hours * 3_600_000_000, mail::Node::default()).unwrap()
}

/// A message with one recipient that came so many hours ago.
fn envelope_of(hours: u64) -> Envelope {
    Envelope {
        id: id(hours),
        sender: ReversePath::parse(b"<ann@a.test>").unwrap(),
        params: MailParams::default(),
        received: Received { at_us: 7_000_000, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![Recipient::new(Address::parse(b"x@one.test").unwrap())],
    }
}

impl Trial {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut spool::Config)) -> Self {
        let spool = spool_with(|config| {
            config.state_delay_ms = 0;
            change(config);
        });
        let dispatcher = Arc::new(Dispatcher { spool: Some(Arc::clone(&spool)), ..Dispatcher::default() });
        let commands = QueueCommands::new(Arc::clone(&spool), Arc::clone(&dispatcher) as Arc<dyn DeliveryControl>);
        Self { spool, dispatcher, commands, deeds: Arc::default() }
    }

    /// Four messages: one with three recipients, one of the null sender, one to a destination that is down, one
    /// damaged.
    fn filled() -> Self {
        let trial = Self::new();
        trial.add(4, "<ann@a.test>", &["x@one.test", "y@two.test", "z@one.test"]);
        trial.add(3, "<>", &["ann@a.test"]);
        trial.add(2, "<bob@b.test>", &["q@down.test"]);
        let broken = [spool::NewRecipient { data: b"?", destination: b"one.test" }];
        let body = NewBody::whole("x", 0);
        let message = NewMessage::new(id(1), b"?", &broken, body);
        trial.spool.append(message).unwrap().wait().unwrap();
        trial
    }

    fn add(&self, hours: u64, sender: &str, recipients: &[&str]) {
        self.add_from(Client::Internal, hours, sender, recipients);
    }

    fn add_from(&self, client: Client, hours: u64, sender: &str, recipients: &[&str]) {
        self.add_with("BODY=8BITMIME", client, hours, sender, recipients);
    }

    fn add_with(&self, params: &str, client: Client, hours: u64, sender: &str, recipients: &[&str]) {
        let recipient = |text: &&str| Recipient::new(Address::parse(text.as_bytes()).unwrap());
        let envelope = Envelope {
            id: id(hours),
            sender: ReversePath::parse(sender.as_bytes()).unwrap(),
            params: params.parse::<MailParams>().unwrap(),
            received: Received { at_us: 7_000_000, client, helo: None, protocol: Protocol::Local },
            recipients: recipients.iter().map(recipient).collect(),
        };
        let encoded = spool::envelope::Encoded::new(&envelope);
        let body = NewBody::whole("Subject: x\r\nTo: y\r\n\r\nSubject: no\r\n", 21);
        self.spool.append(encoded.message(&encoded.recipients(), body)).unwrap().wait().unwrap();
    }

    fn set(&self, hours: u64, recipient: u32, state: State) {
        let change = Change { id: id(hours), recipient, state, destination: None };
        self.spool.record(&[change]).unwrap().wait().unwrap();
    }

    fn hold(&self, hours: u64, recipient: u32, kind: HoldKind) {
        let state = State { status: Status::Held, ..State::default() };
        let change = Change { id: id(hours), recipient, state, destination: None };
        self.spool.record_hold(&[change], &Hold::new(kind, "clamav", "")).unwrap().wait().unwrap();
    }

    /// Status, tries and due of every recipient.
    fn states(&self, hours: u64) -> Vec<(Status, u8, u32)> {
        let states = self.spool.states(id(hours));
        states.iter().map(|(entry, _)| (entry.state.status, entry.state.attempts, entry.state.due)).collect()
    }

    async fn run(&self, command: &str) -> (Vec<Map<String, Value>>, Map<String, Value>) {
        let command = Command::from_fields(serde_json::from_str(command).unwrap()).unwrap();
        let deeds = Arc::clone(&self.deeds);
        let tell: ChangeListener = Arc::new(move |deed| deeds.lock().unwrap().push(format!("{deed:?}")));
        self.collect(self.commands.answer(command, Requester::User(7), tell)).await
    }

    async fn collect(&self, answer: Answer) -> (Vec<Map<String, Value>>, Map<String, Value>) {
        let Answer::List(mut pieces) = answer else { panic!("{answer:?}") };
        let mut lines = Vec::new();
        while let Some(piece) = pieces.recv().await {
            match piece {
                ListPart::Line(line) => lines.push(line),
                ListPart::Last(fields) => {
                    assert!(pieces.recv().await.is_none(), "the last is the last");
                    return (lines, fields);
                }
                ListPart::Failed { error, .. } => panic!("{error}"),
            }
        }
        panic!("no end");
    }

    /// The ages in hours of the messages listed.
    async fn listed(&self, conditions: &str) -> (Vec<u64>, Map<String, Value>) {
        let (lines, last) = self.run(&format!("{{\"action\":\"list\"{conditions}}}")).await;
        let hour = |line: &Map<String, Value>| {
            let text = line["id"].as_str().unwrap().to_owned();
            (1..9).find(|hours| id(*hours).to_string() == text).unwrap()
        };
        (lines.iter().filter(|line| line.contains_key("id")).map(hour).collect(), last)
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.dispatcher.told.lock().unwrap())
    }
}

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
        // Ids lie on full hours: up to an hour older than their name.
        if !conditions.contains("er\"") {
            assert_eq!(found, hours, "{conditions}");
        }
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
    let mut changes = ChangeBatcher::new(&trial.spool, None);
    changes.apply(Action::Release, &mut found, 7);
    changes.finish_and_notify(Action::Release, trial.dispatcher.as_ref()).unwrap();
    let statuses: Vec<Status> = trial.states(4).iter().map(|state| state.0).collect();
    assert_eq!(statuses, [Status::Waiting, Status::Held, Status::Waiting]);
    assert_eq!((changes.totals.recipients, changes.totals.unchanged), (1, 1));
}
