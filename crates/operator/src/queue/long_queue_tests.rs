//! Commands on a queue of 100,000 messages: each message is dealt with, others are stored meanwhile, and a client that
//! goes away ends a command between two messages.

use super::test_spool::spool_with;
use super::*;
use crate::answers::reply::{Answer, ListPart};
use crate::requester::Requester;
use mail::{Address, Client, Envelope, MailParams, Node, Protocol, QueueId, Received, Recipient, ReversePath};
use serde_json::{Map, Value};
use spool::{NewBody, NewMessage, Spool, Status};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const MESSAGES: u64 = 100_000;

fn id(number: u64) -> QueueId {
    QueueId::new(1_700_000_000_000_000 + number, Node::default()).unwrap()
}

fn add(spool: &Spool, number: u64) -> spool::Commit {
    let address = format!("user@d{}.test", number % 50);
    let envelope = Envelope {
        id: id(number),
        sender: ReversePath::Null,
        params: MailParams::default(),
        received: Received { at_us: 7, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![Recipient::new(Address::parse(address.as_bytes()).unwrap())],
    };
    let encoded = spool::envelope::Encoded::new(&envelope);
    let recipients = encoded.recipients();
    let message = encoded.message(&recipients, NewBody::whole("\r\n", 2));
    loop {
        match spool.append_all(id(number), &[NewMessage { waits: true, ..message.clone() }]) {
            Ok(commit) => return commit,
            Err(spool::Error::Busy) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn filled() -> Arc<Spool> {
    let spool = spool_with(|config| {
        (config.segment_bytes, config.size_max) = (8 << 20, 512 << 20);
        config.state_delay_ms = 0;
    });
    let commits: Vec<spool::Commit> = (0..MESSAGES).map(|number| add(&spool, number)).collect();
    commits.into_iter().for_each(|commit| commit.wait().unwrap());
    spool
}

/// Begins a command; returns its answer, and the changes that it told of.
fn begin(spool: &Arc<Spool>, command: &str) -> (tokio::sync::mpsc::Receiver<ListPart>, Arc<Mutex<Vec<String>>>) {
    let commands = QueueCommands::new(Arc::clone(spool), Arc::new(NoDelivery));
    let command = Command::from_fields(serde_json::from_str::<Map<String, Value>>(command).unwrap()).unwrap();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&changes);
    let tell: ChangeListener = Arc::new(move |change| told.lock().unwrap().push(format!("{change:?}")));
    let Answer::List(parts) = commands.answer(command, Requester::User(7), tell) else { panic!("no list") };
    (parts, changes)
}

fn held(spool: &Spool) -> u64 {
    let is_held = |number: &u64| spool.states(id(*number)).iter().any(|(entry, _)| entry.state.status == Status::Held);
    (0..MESSAGES).filter(is_held).count() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_deals_with_each_message_while_others_come_and_can_be_broken_off() {
    let spool = filled();
    // Mail that comes meanwhile is stored.
    let (stop, stored) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let intake = {
        let (spool, stop, stored) = (Arc::clone(&spool), Arc::clone(&stop), Arc::clone(&stored));
        std::thread::spawn(move || {
            for number in MESSAGES.. {
                add(&spool, number).wait().unwrap();
                stored.fetch_add(1, Ordering::Release);
                if stop.load(Ordering::Acquire) > 0 {
                    return;
                }
            }
        })
    };
    let before = stored.load(Ordering::Acquire);
    let (mut parts, changes) = begin(&spool, r#"{"action":"hold","older":1}"#);
    let last = loop {
        match parts.recv().await.unwrap() {
            ListPart::Line(line) => assert!(line.contains_key("seen"), "{line:?}"),
            ListPart::Last(fields) => break fields,
            ListPart::Failed { error, .. } => panic!("{error}"),
        }
    };
    assert!(last["recipients"].as_u64().unwrap() >= MESSAGES, "{last:?}");
    assert!(stored.load(Ordering::Acquire) > before, "mail came in while the command ran");
    stop.store(1, Ordering::Release);
    intake.join().unwrap();
    assert_eq!(held(&spool), MESSAGES);
    assert_eq!(changes.lock().unwrap().len(), 1);
    // A client that goes away: what was done stays done, the rest as it is, and the log is told of it.
    let (parts, changes) = begin(&spool, r#"{"action":"release","state":"held"}"#);
    drop(parts);
    let ended = || changes.lock().unwrap().first().cloned();
    while ended().is_none() {
        tokio::task::yield_now().await;
    }
    let left = held(&spool);
    assert!(left > 0, "it was not broken off: {:?}", ended());
    assert!(ended().unwrap().starts_with("Ended"), "{:?}", ended());
}
