//! Reads are counted while they are made to wait.

use super::*;
use crate::message::{LoadError, MessageReader, OutboundMessage};
use crate::simulation::{spool_on, spool_with};
use mail::{Client, Envelope, MailParams, Node, Protocol, QueueIds, Received, Recipient, ReversePath};
use schedule::Positions;
use spool::disk::sim::SimDisk;
use spool::envelope::Encoded;
use spool::{Change, NewBody, State, Status};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time in which an event must not happen.
const A_WHILE: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(60);

fn spool() -> Arc<Spool> {
    spool_with(|config| config.cache_bytes = 0)
}

/// Starts `wanted` reads at once, and lets none end before `full` are in progress. Returns the most at a time, and
/// whether one more than that came within `time`.
async fn crowd(reading: Reading, wanted: usize, full: usize, time: Duration) -> (usize, bool) {
    let reading = Arc::new(reading);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (enter, mut entered) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..wanted {
        let (reading, now, most) = (Arc::clone(&reading), Arc::clone(&now), Arc::clone(&most));
        let (gate, enter) = (Arc::clone(&gate), enter.clone());
        tasks.spawn(async move {
            let read = move |_: &Spool| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                enter.send(()).unwrap();
                drop(gate.1.wait_while(gate.0.lock().unwrap(), |is_open| !*is_open).unwrap());
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            reading.read(read).await.unwrap();
        });
    }
    for _ in 0..full {
        timeout(SOON, entered.recv()).await.unwrap();
    }
    let has_more = timeout(time, entered.recv()).await.is_ok();
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    while let Some(ended) = timeout(SOON, tasks.join_next()).await.unwrap() {
        ended.unwrap();
    }
    (most.load(Ordering::SeqCst), has_more)
}

#[tokio::test]
async fn no_more_than_so_many_read_at_a_time_and_all_have_their_turn() {
    assert_eq!(crowd(Reading::new(spool()), 200, READS_MAX, A_WHILE).await, (READS_MAX, false));
    // The same crowd where there is room for it: the count is able to see more.
    let wide = Reading::with_threads(spool(), 200);
    let (most, has_more) = crowd(wide, 200, READS_MAX, SOON).await;
    assert!(most > READS_MAX && has_more, "{most}");
}

#[tokio::test]
async fn whoever_goes_away_leaves_the_turn_to_the_end_of_the_read_and_not_longer() {
    let reading = Reading::with_threads(spool(), 1);
    let (enter, mut entered) = mpsc::unbounded_channel();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let first = reading.read(move |_| {
        enter.send(()).unwrap();
        held.recv().ok();
        Ok(())
    });
    tokio::select! {
        biased;
        _ = first => panic!("it is held"),
        entered = entered.recv() => entered.unwrap(),
    }
    // It is dropped, and reads on.
    assert!(timeout(A_WHILE, reading.read(|_| Ok(()))).await.is_err());
    release.send(()).unwrap();
    timeout(SOON, reading.read(|_| Ok(()))).await.unwrap().unwrap();
    let broken = timeout(SOON, reading.read::<()>(|_| panic!("a test"))).await.unwrap();
    assert!(matches!(broken, Err(ReadError::Bad(_))), "{broken:?}");
    timeout(SOON, reading.read(|_| Ok(()))).await.unwrap().unwrap();
}

/// Stores a message that is in no memory.
fn stored(spool: &Spool) -> QueueId {
    stored_for(spool, vec![Recipient::new("b@d.test".parse().unwrap())])
}

fn stored_for(spool: &Spool, recipients: Vec<Recipient>) -> QueueId {
    stored_content(spool, recipients, b"a: b\r\n\r\nc\r\n".to_vec())
}

fn stored_content(spool: &Spool, recipients: Vec<Recipient>, content: Vec<u8>) -> QueueId {
    let received = Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local };
    let id = QueueIds::new(Node::default()).next(1);
    let (sender, params) = (ReversePath::Null, MailParams::default());
    let encoded = Encoded::new(&Envelope { id, sender, params, received, recipients });
    let recipients = encoded.recipients();
    let body = NewBody::whole(content, 0);
    spool.append(encoded.message(&recipients, body)).unwrap().wait().unwrap();
    id
}

#[tokio::test]
async fn every_way_to_a_stored_message_waits_for_a_turn() {
    let spool = spool();
    let id = stored(&spool);
    let messages = MessageReader::new(spool);
    let reading = &messages.reading;
    let one = Positions::One(0);

    let turns = Taken::all(reading).await;
    let load = || OutboundMessage::load(&messages, id, &one);
    assert!(timeout(A_WHILE, load()).await.is_err());
    drop(turns);
    let mut outgoing = timeout(SOON, load()).await.unwrap().unwrap();

    let turns = Taken::all(reading).await;
    assert!(timeout(A_WHILE, outgoing.next_piece(reading)).await.is_err());
    assert!(timeout(A_WHILE, OutboundMessage::part(reading, id, 0, 1)).await.is_err());
    assert!(timeout(A_WHILE, OutboundMessage::whole(reading, id)).await.is_err());
    drop(turns);
    // Where the system gives no thread, the message is sound: it is tried again soon, and is not reported as damaged.
    let short = Reading::with_threads(Arc::clone(&reading.spool), 1);
    short.run_short(true);
    let why = short.content(id, 0..1).await.unwrap_err();
    assert_eq!((&why, why.pause()), (&ReadError::NoThread, Duration::from_secs(120)));
    assert!(why.advice().contains("TasksMax=") && !why.advice().contains("verify"));
    short.run_short(false);
    assert_eq!(short.content(id, 0..1).await.unwrap(), "a");

    let piece = timeout(SOON, outgoing.next_piece(reading)).await.unwrap().unwrap();
    assert_eq!(piece.as_deref(), Some(&b"a: b\r\n\r\nc\r\n"[..]));
    assert!(reading.at_work().is_empty());
}

/// All turns, until it goes.
struct Taken {
    _gate: std::sync::mpsc::Sender<()>,
}

impl Taken {
    async fn all(reading: &Reading) -> Self {
        let (gate, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (enter, mut entered) = mpsc::unbounded_channel();
        for _ in 0..READS_MAX {
            let (held, enter) = (Arc::clone(&held), enter.clone());
            let wait = move |_: &Spool| {
                enter.send(()).unwrap();
                // One waits for the gate, the others for him.
                held.lock().unwrap().recv().ok();
                Ok(())
            };
            // It reads on when this is dropped, once it has begun.
            let mut read = Box::pin(reading.read(wait));
            tokio::select! {
                biased;
                _ = &mut read => panic!("it is held"),
                entered = timeout(SOON, entered.recv()) => entered.unwrap().unwrap(),
            }
        }
        Self { _gate: gate }
    }
}

#[tokio::test]
async fn a_list_is_read_once_and_never_served_as_it_was() {
    const MANY: u32 = 300;
    let disk = SimDisk::new(1);
    let spool = spool_on(&disk, |config| config.cache_bytes = 0);
    let recipients = (0..MANY).map(|at| Recipient::new(format!("u@d{at}.test").parse().unwrap())).collect();
    let id = stored_for(&spool, recipients);
    let messages = Arc::new(MessageReader::new(Arc::clone(&spool)));
    let before = disk.counters().reads;
    // All at once, as connections ask after a start.
    let mut loads = JoinSet::new();
    for at in 0..MANY {
        let messages = Arc::clone(&messages);
        loads.spawn(async move {
            let mut outgoing = OutboundMessage::load(&messages, id, &Positions::One(at)).await.unwrap();
            let piece = outgoing.next_piece(&messages.reading).await.unwrap().unwrap();
            let address = outgoing.envelope.recipients[0].address.to_string();
            assert_eq!((address, outgoing.recipients_left), (format!("u@d{at}.test"), MANY as usize));
            assert_eq!(piece, "a: b\r\n\r\nc\r\n");
        });
    }
    while let Some(loaded) = timeout(SOON, loads.join_next()).await.unwrap() {
        loaded.unwrap();
    }
    // The beginning, which is too short, and then all of it.
    assert_eq!(disk.counters().reads - before, 2);
    assert!(messages.reading.at_work().is_empty());

    // A changed state counts at once: recipients are held, deferred, moved to another queue, done.
    let set = |recipient, status, due| {
        let state = State { status, due, ..State::default() };
        // In force at once, whenever it is durable.
        drop(spool.record(&[Change { id, recipient, state, destination: None }]).unwrap());
    };
    let load = async |at: u32| OutboundMessage::load(&messages, id, &Positions::One(at)).await;
    set(0, Status::Held, 0);
    assert!(matches!(load(0).await, Err(LoadError::Nothing)));
    set(0, Status::Waiting, 77);
    let released = load(0).await.unwrap();
    assert_eq!((released.positions[0].1.due, released.recipients_left), (77, MANY as usize));
    set(1, Status::Done, 0);
    assert!(matches!(load(1).await, Err(LoadError::Nothing)));
    assert_eq!(load(2).await.unwrap().recipients_left, MANY as usize - 1);
    (0..MANY).for_each(|at| set(at, Status::Done, 0));
    assert!(matches!(load(2).await, Err(LoadError::Nothing)));
    assert_eq!(disk.counters().reads - before, 2, "and nothing is read for it");
    assert_eq!(spool.statistics().shared_bytes, 0);
}

#[tokio::test]
async fn small_content_is_read_once_to_be_looked_through_and_sent() {
    // The reads of the content: of the connection that looks for long lines, and of the next one.
    for (bytes, reads) in [(64 << 10, [1, 1]), ((64 << 10) + 1, [2, 1])] {
        let disk = SimDisk::new(1);
        let spool = spool_on(&disk, |config| config.cache_bytes = 0);
        let messages = MessageReader::new(Arc::clone(&spool));
        let content: Vec<u8> = b"abcdefgh\r\n".iter().copied().cycle().take(bytes).collect();
        let id = stored_content(&spool, vec![Recipient::new("u@d.test".parse().unwrap())], content.clone());
        for expected in reads {
            let mut outgoing = OutboundMessage::load(&messages, id, &Positions::One(0)).await.unwrap();
            let before = disk.counters().reads;
            assert!(!outgoing.has_long_line(&messages, 998).await.unwrap());
            let mut sent = Vec::new();
            while let Some(piece) = outgoing.next_piece(&messages.reading).await.unwrap() {
                sent.extend_from_slice(&piece);
            }
            assert!(sent == content, "{bytes}");
            assert_eq!(disk.counters().reads - before, expected, "{bytes}");
        }
    }
}
