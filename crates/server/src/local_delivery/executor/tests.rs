//! Trials of gathering and of workers: with a helper whose workers are threads of the test, which deliver nothing.

use super::*;
use ::local::order::DeliveryEnd;
use ::local::privileged::{HelperRequest, receive_request};
use ::local::stream;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Behaviour of a worker for a batch, when it is told to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerBehaviour {
    Deliver,
    /// Ends before it begins.
    EndAtOnce,
    /// Begins and ends.
    EndAtWork,
    /// Sends a reply that is no verdict.
    Babble,
}

fn order() -> DeliveryRequest {
    DeliveryRequest::trial()
}

struct Trial {
    local_delivery: Arc<LocalDelivery>,
    /// The orders of each batch, as it begins.
    batches: Receiver<Vec<String>>,
    go: Sender<WorkerBehaviour>,
    _directory: tempfile::TempDir,
}

fn work(stream: &UnixStream, batches: &Sender<Vec<String>>, go: &Mutex<Receiver<WorkerBehaviour>>) {
    let mut from = std::io::BufReader::new(stream);
    while let Ok(Some(mut batch)) = stream::Incoming::receive_first(&mut from) {
        let mut orders = Vec::new();
        while let Some(order) = batch.next_order() {
            orders.push(order.unique);
        }
        assert!(batch.is_whole());
        let count = orders.len();
        batches.send(orders).unwrap();
        let way = go.lock().unwrap().recv().unwrap_or(WorkerBehaviour::EndAtOnce);
        if way == WorkerBehaviour::EndAtOnce {
            return;
        }
        let mut out = stream;
        stream::send_begun(&mut out).unwrap();
        match way {
            WorkerBehaviour::EndAtWork => return,
            WorkerBehaviour::Babble => out.write_all(b"\x02\0\0\0{}").unwrap(),
            _ => stream::send_verdicts(&mut out, &vec![Verdict::delivered(); count]).unwrap(),
        }
    }
}

fn trial() -> Trial {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.local.accounts = directory.path().join("passwd");
    let users: String =
        ["joe", "ann"].iter().zip(12_345..).map(|(name, id)| format!("{name}:x:{id}:{id}::/:\n")).collect();
    std::fs::write(&config.local.accounts, users).unwrap();
    let (helper, control) = Helper::socket_pair().unwrap();
    let (batches, told) = channel();
    let (go, gone) = channel();
    std::thread::spawn(move || serve(&control, &batches, &Arc::new(Mutex::new(gone))));
    Trial {
        local_delivery: Arc::new(LocalDelivery::with(&config, Some(helper))),
        batches: told,
        go,
        _directory: directory,
    }
}

fn serve(control: &OwnedFd, batches: &Sender<Vec<String>>, go: &Arc<Mutex<Receiver<WorkerBehaviour>>>) {
    while let Ok(HelperRequest::Worker(stream, _leash)) = receive_request(control.as_fd()) {
        let (batches, go) = (batches.clone(), Arc::clone(go));
        std::thread::spawn(move || work(&UnixStream::from(stream), &batches, &go));
    }
}

fn letters(user: &str, unique: &str) -> LocalJob {
    let order = DeliveryRequest { local: user.into(), unique: unique.into(), ..order() };
    LocalJob { order, source: Source::Here(VecDeque::from([Bytes::from_static(b"A: b\r\n\r\nx\r\n")])) }
}

fn in_thread(trial: &Trial, letters: LocalJob) -> std::thread::JoinHandle<Verdict> {
    let local_delivery = Arc::clone(&trial.local_delivery);
    std::thread::spawn(move || done(local_delivery.hand_in(letters)))
}

fn done(handed: HandedIn) -> Verdict {
    match handed {
        HandedIn::Done(HandoverResult::Verdict(verdict) | HandoverResult::Gone(verdict)) => verdict,
        HandedIn::Wait(_) => panic!("somebody else is at work"),
    }
}

#[test]
fn what_comes_while_a_mailbox_is_written_to_is_written_together() {
    let trial = trial();
    let first = in_thread(&trial, letters("joe", "0"));
    assert_eq!(trial.batches.recv().unwrap(), ["0"]);
    let mut waiting: Vec<_> = (1..=9)
        .map(|number| {
            let mut letters = letters("joe", &number.to_string());
            letters.order.is_again = number == 5;
            match trial.local_delivery.hand_in(letters) {
                HandedIn::Wait(told) => told,
                HandedIn::Done(_) => panic!("it is being written to"),
            }
        })
        .collect();
    // One waiter has gone meanwhile; and another mailbox does not wait.
    drop(waiting.remove(0));
    let other = in_thread(&trial, letters("ann", "a"));
    assert_eq!(trial.batches.recv().unwrap(), ["a"]);
    trial.go.send(WorkerBehaviour::Deliver).unwrap();
    trial.go.send(WorkerBehaviour::Deliver).unwrap();
    assert_eq!((first.join().unwrap(), other.join().unwrap()), (Verdict::delivered(), Verdict::delivered()));
    // The next order leads and takes those behind it along. The order that may be delivered already goes first.
    let Ok(JobReply::Turn(turn)) = waiting.remove(0).blocking_recv() else { panic!("it is his turn") };
    let local_delivery = Arc::clone(&trial.local_delivery);
    let (place, letters) = *turn;
    let led = std::thread::spawn(move || local_delivery.lead(&place, letters));
    assert_eq!(trial.batches.recv().unwrap(), ["5", "2", "3", "4", "6", "7", "8", "9"]);
    trial.go.send(WorkerBehaviour::Deliver).unwrap();
    assert!(matches!(led.join().unwrap(), HandoverResult::Verdict(verdict) if verdict == Verdict::delivered()));
    for told in waiting {
        assert!(
            matches!(told.blocking_recv(), Ok(JobReply::Done(HandoverResult::Verdict(verdict))) if verdict.end == DeliveryEnd::Delivered)
        );
    }
    assert!(trial.local_delivery.busy().is_empty());
}

#[test]
fn a_mailbox_that_takes_nothing_keeps_few_waiting() {
    let trial = trial();
    let first = in_thread(&trial, letters("joe", "0"));
    trial.batches.recv().unwrap();
    let mut waiting = Vec::new();
    for number in 1..=10 {
        // For a while, all orders may wait.
        if let HandedIn::Wait(told) = trial.local_delivery.hand_in(letters("joe", &number.to_string())) {
            waiting.push(told);
        }
    }
    assert_eq!(waiting.len(), 10);
    for line in trial.local_delivery.busy().values_mut() {
        line.since = line.since.checked_sub(STUCK_AFTER + Duration::from_secs(1)).unwrap();
    }
    let verdict = done(trial.local_delivery.hand_in(letters("joe", "late")));
    assert!(
        verdict.end == DeliveryEnd::Deferred
            && verdict.text.contains("/var/mail/joe takes nothing now, and 11 messages"),
        "{verdict:?}"
    );
    // Others are not held up.
    let other = in_thread(&trial, letters("ann", "a"));
    trial.batches.recv().unwrap();
    trial.go.send(WorkerBehaviour::Deliver).unwrap();
    trial.go.send(WorkerBehaviour::Deliver).unwrap();
    assert_eq!((first.join().unwrap(), other.join().unwrap()), (Verdict::delivered(), Verdict::delivered()));
}

#[test]
fn a_worker_is_used_again_and_replaced_when_it_is_gone() {
    let trial = trial();
    let deliver = |way: &[WorkerBehaviour], unique: &str| {
        let handed = in_thread(&trial, letters("joe", unique));
        for way in way {
            assert_eq!(trial.batches.recv().unwrap(), [unique]);
            trial.go.send(*way).unwrap();
        }
        handed.join().unwrap()
    };
    let waiting = || trial.local_delivery.workers.as_ref().unwrap().waiting_count();
    assert_eq!((deliver(&[WorkerBehaviour::Deliver], "1"), waiting()), (Verdict::delivered(), 1));
    assert_eq!((deliver(&[WorkerBehaviour::Deliver], "2"), waiting()), (Verdict::delivered(), 1));
    // The worker ends before it begins: another one gets the batch.
    assert_eq!(
        (deliver(&[WorkerBehaviour::EndAtOnce, WorkerBehaviour::Deliver], "3"), waiting()),
        (Verdict::delivered(), 1)
    );
    // The worker ends at work, or sends no verdict: the result is unknown, and the worker is not used again.
    for way in [WorkerBehaviour::EndAtWork, WorkerBehaviour::Babble] {
        let verdict = deliver(&[way], "4");
        assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("it is not known"), "{verdict:?}");
        assert_eq!(waiting(), 0);
        assert_eq!((deliver(&[WorkerBehaviour::Deliver], "5"), waiting()), (Verdict::delivered(), 1));
    }
    // A new one that ends at once has no successor.
    drop(deliver(&[WorkerBehaviour::EndAtWork], "6"));
    let verdict = deliver(&[WorkerBehaviour::EndAtOnce], "7");
    assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.ends_with("ended without an answer"), "{verdict:?}");
}

#[test]
fn when_nobody_starts_workers_the_first_is_told_aloud() {
    let mut trial = trial();
    let (helper, other) = Helper::socket_pair().unwrap();
    drop(other);
    let mut config = Config::default();
    config.local.accounts = trial._directory.path().join("passwd");
    trial.local_delivery = Arc::new(LocalDelivery::with(&config, Some(helper)));
    let handed = |trial: &Trial| trial.local_delivery.hand_in(letters("joe", "1"));
    assert!(
        matches!(handed(&trial), HandedIn::Done(HandoverResult::Gone(verdict)) if verdict.text.contains("restart mailrace"))
    );
    assert!(
        matches!(handed(&trial), HandedIn::Done(HandoverResult::Verdict(verdict)) if verdict.text.contains("restart mailrace"))
    );
    assert!(trial.local_delivery.busy().is_empty());
}
