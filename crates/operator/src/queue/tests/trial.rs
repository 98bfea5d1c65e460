//! A real spool on a simulated disk, and a dispatcher that records its commands.

use super::super::test_spool::spool_with;
use super::super::*;
use crate::answers::reply::{Answer, ListPart};
use crate::requester::Requester;
use bytes::Bytes;
use mail::{Address, Client, Envelope, MailParams, Protocol, QueueId, Received, Recipient, ReversePath};
use serde_json::{Map, Value};
use spool::{Change, Hold, HoldKind, NewBody, NewMessage, Spool, State, Status, Store as _};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// Records its commands; knows one reason, one active recipient, and one destination that is down.
#[derive(Debug, Default)]
pub(in crate::queue) struct Dispatcher {
    pub(super) told: Mutex<Vec<String>>,
    pub(super) active: Mutex<Option<(QueueId, u32)>>,
    /// The spool that records bounces; the calls with their recipients, and the result of a message.
    pub(super) spool: Option<Arc<Spool>>,
    pub(super) bounces: Mutex<Vec<Vec<RecipientSelection>>>,
    pub(super) troubles: Mutex<HashMap<QueueId, BounceError>>,
    /// Why messages must not be ended here, for so many questions.
    pub(super) doubts: Mutex<HashMap<QueueId, (EndDoubt, usize)>>,
    pub(super) resubmit_errors: Mutex<HashMap<QueueId, ResubmitError>>,
    steering: Mutex<Arc<Steering>>,
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

    fn doubt_about_end(&self, id: QueueId) -> Option<EndDoubt> {
        let mut doubts = self.doubts.lock().unwrap();
        let (doubt, left) = doubts.get_mut(&id)?;
        *left = left.checked_sub(1)?;
        Some(doubt.clone())
    }

    fn steering(&self) -> Arc<Steering> {
        Arc::clone(&self.steering.lock().unwrap())
    }

    fn change_steering(&self, change: &mut dyn FnMut(&Steering) -> Result<Steering, String>) -> Result<(), String> {
        let mut steering = self.steering.lock().unwrap();
        *steering = Arc::new(change(&steering)?);
        Ok(())
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

pub(super) struct Trial {
    pub(super) spool: Arc<Spool>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) commands: QueueCommands,
    pub(super) deeds: Arc<Mutex<Vec<String>>>,
}

/// The id of a message that came so many hours and ten minutes ago: always the same for a number of hours.
pub(super) fn id(hours: u64) -> QueueId {
    static NOW: LazyLock<u64> = LazyLock::new(os::clock::unix_us);
    QueueId::new(*NOW - 600_000_000 - hours * 3_600_000_000, mail::Node::default()).unwrap()
}

/// A message with one recipient that came so many hours ago.
pub(super) fn envelope_of(hours: u64) -> Envelope {
    Envelope {
        id: id(hours),
        sender: ReversePath::parse(b"<ann@a.test>").unwrap(),
        params: MailParams::default(),
        received: Received { at_us: 7_000_000, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![Recipient::new(Address::parse(b"x@one.test").unwrap())],
    }
}

impl Trial {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl FnOnce(&mut spool::Config)) -> Self {
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
    pub(super) fn filled() -> Self {
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

    pub(super) fn add(&self, hours: u64, sender: &str, recipients: &[&str]) {
        self.add_from(Client::Internal, hours, sender, recipients);
    }

    pub(super) fn add_from(&self, client: Client, hours: u64, sender: &str, recipients: &[&str]) {
        self.add_with("BODY=8BITMIME", client, hours, sender, recipients);
    }

    pub(super) fn add_with(&self, params: &str, client: Client, hours: u64, sender: &str, recipients: &[&str]) {
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

    pub(super) fn set(&self, hours: u64, recipient: u32, state: State) {
        let change = Change { id: id(hours), recipient, state, destination: None };
        self.spool.record(&[change]).unwrap().wait().unwrap();
    }

    /// Another node may own the message, for so many questions.
    pub(super) fn doubt(&self, hours: u64, doubt: EndDoubt, questions: usize) {
        self.dispatcher.doubts.lock().unwrap().insert(id(hours), (doubt, questions));
    }

    pub(super) fn hold(&self, hours: u64, recipient: u32, kind: HoldKind) {
        self.hold_by(hours, recipient, kind, "clamav");
    }

    pub(super) fn hold_by(&self, hours: u64, recipient: u32, kind: HoldKind, by: &str) {
        let state = State { status: Status::Held, ..State::default() };
        let change = Change { id: id(hours), recipient, state, destination: None };
        self.spool.record_hold(&[change], &Hold::new(kind, by, "")).unwrap().wait().unwrap();
    }

    /// Status, tries and due of every recipient.
    pub(super) fn states(&self, hours: u64) -> Vec<(Status, u8, u32)> {
        let states = self.spool.states(id(hours));
        states.iter().map(|(entry, _)| (entry.state.status, entry.state.attempts, entry.state.due)).collect()
    }

    pub(super) async fn run(&self, command: &str) -> (Vec<Map<String, Value>>, Map<String, Value>) {
        let command = Command::from_fields(serde_json::from_str(command).unwrap()).unwrap();
        let deeds = Arc::clone(&self.deeds);
        let tell: ChangeListener = Arc::new(move |deed| deeds.lock().unwrap().push(format!("{deed:?}")));
        self.collect(self.commands.answer(command, Requester::User(7), tell)).await
    }

    pub(super) async fn collect(&self, answer: Answer) -> (Vec<Map<String, Value>>, Map<String, Value>) {
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
    pub(super) async fn listed(&self, conditions: &str) -> (Vec<u64>, Map<String, Value>) {
        let (lines, last) = self.run(&format!("{{\"action\":\"list\"{conditions}}}")).await;
        let hour = |line: &Map<String, Value>| {
            let text = line["id"].as_str().unwrap().to_owned();
            (1..9).find(|hours| id(*hours).to_string() == text).unwrap()
        };
        (lines.iter().filter(|line| line.contains_key("id")).map(hour).collect(), last)
    }

    pub(super) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.dispatcher.told.lock().unwrap())
    }
}
