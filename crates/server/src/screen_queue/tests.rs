//! Verdicts on a message in a spool on a simulated disk, with a power cut at each write; workers that ask a scanner.

use super::apply::apply;
use super::effect::{MessageEffect, RecipientEffect};
use super::restore::restore;
use super::run::screen;
use super::waiting::{WaitingError, WaitingMessage};
use super::*;
use crate::config::{Config, Filter, FilterFailure, FilterKind, FilterReject, FilterStage};
use crate::intake::{self, NewMessage, Origin, TransactionContent, inline};
use crate::routing;
use crate::routing::expansions::PlannedMessage;
use crate::routing::message_properties::MessageProperties;
use crate::sabotage::{self, Sabotage};
use crate::screen::filters::FilterVerdict;
use crate::simulation::spool_on;
use mail::{Client, Envelope, MailParams, Protocol, Received, Recipient, ReversePath};
use os::test_deadline::TestDeadline;
use schedule::Class;
use spool::disk::sim::SimDisk;
use spool::envelope::{Encoded, decode_head};
use spool::{Change, Spool, State, Status, Store as _};
use std::task::Poll;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CONTENT: &[u8] = b"Received: own\r\nSubject: x\r\n\r\nhello\r\n";
const FILTER: &str = "scanner";
const OLD: &str = "<a@b.test>";
const NEW: &str = "<new@b.test>";
/// Passes of trials whose moments depend on the threads of the spool: each may miss the one that is sought.
const TRIES: usize = 50;

/// The senders of messages by what becomes of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// They are delivered.
    delivered: Vec<String>,
    /// They wait for filters, or for the end of a message whose place they take.
    waiting: Vec<String>,
    /// They are held for another reason.
    held: Vec<String>,
}

struct Trial {
    disk: SimDisk,
    spool: Arc<Spool>,
    queue: Arc<ScreenQueue>,
}

impl Trial {
    fn on(disk: SimDisk, config: Config) -> Self {
        let spool = spool_on(&disk, |config| config.state_delay_ms = 0);
        let context = Context::trial(config.clone(), Some(&spool));
        let screen = crate::screen::load(&config, &routing::load::trust(&config)).unwrap();
        let live = crate::active_config::ActiveConfig::new(config, None).with_screen(screen);
        context.live.store(Arc::new(live));
        let queue = ScreenQueue::new(&Dispatch::trial_on(&context));
        Self { disk, spool, queue }
    }

    /// Stores a message that waits for its filter.
    async fn store(&self) -> QueueId {
        self.store_for(&["c@d.test"]).await
    }

    async fn store_for(&self, recipients: &[&str]) -> QueueId {
        let recipient = |text: &&str| Recipient::new(mail::Address::parse(text.as_bytes()).unwrap());
        let context = &self.queue.context;
        let id = context.message_store.next_id();
        let envelope = Envelope {
            id,
            sender: ReversePath::parse(OLD.as_bytes()).unwrap(),
            params: MailParams::default(),
            received: Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: recipients.iter().map(recipient).collect(),
        };
        let encoded = Arc::new(Encoded::new(&envelope));
        let kind = MessageProperties::default();
        let planned = PlannedMessage { envelope: Arc::new(envelope), encoded, kind };
        let mut message = NewMessage::new(context, planned, Class::Normal);
        let filters = vec![FILTER.to_owned()];
        message.wait_for_filters(&ScreeningRecord::new(filters.clone()).to_text(), screen_hold(&filters));
        let content = TransactionContent::new(id);
        let stored = content.finish(&context.message_store, vec![message], inline(CONTENT.to_vec())).await.unwrap();
        drop(intake::commit(context, Origin::Session, stored).await.unwrap());
        let room = self.queue.reserve(1, 100).unwrap();
        room.add(&[id], &filters, 100);
        id
    }

    /// Carries out a verdict that gives the message another sender.
    async fn change_sender(&self, id: QueueId) -> Result<(), String> {
        let message = match WaitingMessage::read(&self.queue, id).await {
            // An operator has released it.
            Err(WaitingError::Nothing) => return Ok(()),
            message => message.unwrap(),
        };
        let sender = Some(ReversePath::parse(NEW.as_bytes()).unwrap());
        let changes = Some(Box::new(FilterVerdict { sender, ..FilterVerdict::default() }));
        let effect = MessageEffect::Judged {
            refused: Vec::new(),
            undecided: Vec::new(),
            others: RecipientEffect::Deliver,
            changes,
        };
        apply(&self.queue, message, effect).await
    }

    /// Releases a message as an operator's command does.
    fn release_unscreened(&self, id: QueueId) {
        let changes: Vec<Change> = self
            .spool
            .states(id)
            .into_iter()
            .map(|(entry, _)| State { status: Status::Waiting, ..entry.state })
            .zip(0..)
            .map(|(state, recipient)| Change { id, recipient, state, destination: None })
            .collect();
        drop(self.spool.record_from(HoldKind::Screen, &changes, None).unwrap());
    }

    fn found(&self) -> Found {
        let mut found = Found::default();
        for id in self.spool.messages() {
            let stored = self.spool.envelope(id).unwrap();
            let sender = decode_head(id, &stored.head).unwrap().sender.to_string();
            for one in stored.recipients {
                let hold = self.spool.hold(id, one.position);
                match (one.state.status, hold) {
                    (Status::Waiting, _) => found.delivered.push(sender.clone()),
                    (Status::Held, Some(hold)) if hold.kind().is_unscreened() => found.waiting.push(sender.clone()),
                    (Status::Held, _) => found.held.push(sender.clone()),
                    (status, _) => panic!("{status:?}"),
                }
            }
        }
        found
    }
}

/// Cuts the power after each of the first operations of a change, and returns what the next start finds before it has
/// done anything, and then.
async fn found_after_power_cuts() -> Vec<(Found, Found)> {
    let (mut all, mut is_over) = (Vec::new(), false);
    for operations in 0..24 {
        if is_over {
            break;
        }
        for choice in 0..2 {
            let trial = Trial::on(SimDisk::new(1), Config::default());
            let id = trial.store().await;
            trial.disk.cut_power_after(operations);
            // The change has ended before the cut.
            is_over = trial.change_sender(id).await.is_ok();
            let trial = Trial::on(trial.disk.crash(choice), Config::default());
            let before = trial.found();
            restore(&trial.queue).await;
            all.push((before, trial.found()));
        }
    }
    all
}

/// Has an operator release a message unscreened after each of the first pauses of a change. Returns what is there at
/// the end, and what the start after a kill leaves.
async fn found_after_releases() -> Vec<(Found, Found)> {
    let mut all = Vec::new();
    for pauses in 0..8 {
        let trial = Trial::on(SimDisk::new(1), Config::default());
        let id = trial.store().await;
        {
            let mut change = std::pin::pin!(trial.change_sender(id));
            let mut polls = 0;
            let has_ended = std::future::poll_fn(|context| {
                if polls == pauses {
                    return Poll::Ready(false);
                }
                polls += 1;
                change.as_mut().poll(context).map(|done| done.is_ok())
            })
            .await;
            trial.release_unscreened(id);
            if !has_ended {
                change.await.unwrap();
            }
        }
        let now = trial.found();
        let killed = Trial::on(trial.disk.kill(), Config::default());
        restore(&killed.queue).await;
        all.push((now, killed.found()));
    }
    all
}

fn is_lost_or_doubled(found: &Found) -> bool {
    found.delivered.len() + found.waiting.len() != 1
}

#[tokio::test]
async fn a_power_cut_leaves_the_message_or_the_changed_one() {
    let mut all = found_after_power_cuts().await;
    let unchanged = Found { waiting: vec![OLD.to_owned()], ..Found::default() };
    let changed = Found { delivered: vec![NEW.to_owned()], ..Found::default() };
    let is_between = |(before, after): &(Found, Found)| before.waiting.len() == 2 && *after == changed;
    // The spool's own writes count too and come at moments of their own: the cuts of one pass may all miss this one.
    for _ in 0..TRIES {
        if all.iter().any(is_between) {
            break;
        }
        all.extend(found_after_power_cuts().await);
    }
    for (before, after) in &all {
        assert!(!before.delivered.contains(&OLD.to_owned()), "delivered unscreened: {before:?}");
        assert!([&unchanged, &changed].contains(&after), "{before:?}, then {after:?}");
    }
    assert!(all.iter().any(|(_, after)| *after == unchanged) && all.iter().any(|(_, after)| *after == changed));
    assert!(all.iter().any(is_between), "no cut between the steps");
}

#[tokio::test]
async fn a_release_or_the_verdict_counts_and_not_both() {
    let is_one = |found: &Found| found.delivered.len() == 1 && !is_lost_or_doubled(found);
    let all = found_after_releases().await;
    assert!(all.iter().all(|(now, later)| is_one(now) && !is_lost_or_doubled(later)), "{all:?}");
    for sender in [OLD, NEW] {
        assert!(all.iter().any(|(now, _)| now.delivered == [sender]), "{sender} is never delivered: {all:?}");
    }
}

/// The trial above notices a message that can be released while another takes its place.
#[tokio::test]
async fn a_message_that_is_released_beside_the_changed_one_is_noticed() {
    let _guard = sabotage::begin(Some(Sabotage::ReplaceUnclaimed));
    let mut all = Vec::new();
    // Where the disk is as quick as the change, that has no pause in which the release could come.
    for _ in 0..TRIES {
        all.extend(found_after_releases().await);
        if all.iter().any(|(now, _)| now.delivered.len() == 2) {
            return;
        }
    }
    panic!("{all:?}");
}

/// The trial above notices a message that stays beside the one in its place.
#[tokio::test]
async fn a_replaced_message_that_stays_is_noticed() {
    let _guard = sabotage::begin(Some(Sabotage::KeepReplaced));
    assert!(found_after_power_cuts().await.iter().any(|(_, after)| is_lost_or_doubled(after)));
}

/// Starts a scanner that gives every message this reply of clamd.
async fn clamd(reply: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(&[0; 4]) {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    address
}

fn config(address: String, on_failure: FilterFailure, on_reject: FilterReject) -> Config {
    let filter = Filter {
        name: FILTER.to_owned(),
        kind: FilterKind::Clamd,
        address,
        when: FilterStage::After250,
        on_failure,
        on_reject,
        timeout: Duration::from_secs(60),
        total_timeout: Duration::from_secs(60),
        size_max: 1 << 20,
        macros: Vec::new(),
        macro_values: Vec::new(),
        idle_max: 0,
        idle_time: Duration::from_secs(1),
    };
    Config { filters: vec![filter], ..Config::default() }
}

/// Has a message screened once, and returns what became of it and the number that still waits.
async fn screened(config: Config) -> (Found, u64) {
    let trial = Trial::on(SimDisk::new(1), config);
    let id = trial.store().await;
    let now = trial.queue.context.unix_now();
    assert_eq!(trial.queue.backlog().next(now, 1), Some(id));
    screen(Arc::clone(&trial.queue), id).await;
    (trial.found(), trial.queue.view().messages)
}

#[tokio::test]
async fn the_verdict_of_a_scanner_decides() {
    let waits = (Found { waiting: vec![OLD.to_owned()], ..Found::default() }, 1);
    let passes = (Found { delivered: vec![OLD.to_owned()], ..Found::default() }, 0);
    let is_kept = (Found { held: vec![OLD.to_owned()], ..Found::default() }, 0);
    let (clean, virus, wrong) = ("stream: OK\0", "stream: Eicar FOUND\0", "nonsense\0");
    for (reply, on_failure, on_reject, expected) in [
        (clean, FilterFailure::Defer, FilterReject::Quarantine, &passes),
        (virus, FilterFailure::Defer, FilterReject::Quarantine, &is_kept),
        // The report goes to the sender by the destination of the message.
        (virus, FilterFailure::Pass, FilterReject::Bounce, &passes),
        (virus, FilterFailure::Pass, FilterReject::Discard, &(Found::default(), 0)),
        (wrong, FilterFailure::Defer, FilterReject::Quarantine, &waits),
        (wrong, FilterFailure::Later, FilterReject::Quarantine, &waits),
        (wrong, FilterFailure::Pass, FilterReject::Quarantine, &passes),
        (wrong, FilterFailure::Quarantine, FilterReject::Quarantine, &is_kept),
    ] {
        let found = screened(config(clamd(reply).await, on_failure, on_reject)).await;
        assert_eq!(&found, expected, "{reply} {on_failure:?} {on_reject:?}");
    }
}

/// The trial above notices a worker that asks no filter.
#[tokio::test]
async fn a_message_that_is_released_unscreened_is_noticed() {
    let _guard = sabotage::begin(Some(Sabotage::ReleaseUnscreened));
    let (found, _) =
        screened(config(clamd("stream: Eicar FOUND\0").await, FilterFailure::Defer, FilterReject::Quarantine)).await;
    assert_eq!(found.delivered, [OLD]);
}

#[tokio::test]
async fn mail_for_a_filter_that_is_gone_waits() {
    let (found, waiting) = screened(Config::default()).await;
    assert_eq!((found.waiting.as_slice(), waiting), (&[OLD.to_owned()][..], 1));
}

/// Whether the orders of operators are in use at each pause of a verdict.
async fn uses_of_orders(trial: &Trial, verdict: impl Future<Output = Result<(), String>>) -> Vec<bool> {
    let orders = trial.queue.context.steering.orders();
    let unused = Arc::strong_count(&orders);
    let mut verdict = std::pin::pin!(verdict);
    let mut uses = Vec::new();
    std::future::poll_fn(|context| {
        let polled = verdict.as_mut().poll(context);
        if polled.is_pending() {
            uses.push(Arc::strong_count(&orders) > unused);
        }
        polled
    })
    .await
    .unwrap();
    assert_eq!(Arc::strong_count(&orders), unused, "given back at the end");
    uses
}

/// A suspension is in force when no message is stored by the orders before; the walk over the queue that follows finds
/// the mail that a verdict has let go.
#[tokio::test]
async fn a_suspension_waits_for_mail_that_a_verdict_lets_go() {
    let trial = Trial::on(SimDisk::new(1), Config::default());
    let (mut passed, mut changed) = (Vec::new(), Vec::new());
    // The disk may be as quick as the verdict, which has no pause then.
    let patience = TestDeadline::new("no verdict pauses while the orders are in use");
    while passed.is_empty() || !changed.contains(&true) {
        patience.check();
        let id = trial.store().await;
        let message = WaitingMessage::read(&trial.queue, id).await.unwrap();
        let (refused, undecided) = (Vec::new(), Vec::new());
        let effect = MessageEffect::Judged { refused, undecided, others: RecipientEffect::Deliver, changes: None };
        passed = uses_of_orders(&trial, apply(&trial.queue, message, effect)).await;
        let id = trial.store().await;
        changed = uses_of_orders(&trial, trial.change_sender(id)).await;
    }
    assert!(passed.iter().all(|is_used| *is_used), "{passed:?}");
    assert!(changed.last() == Some(&true) && changed.is_sorted(), "from the record on: {changed:?}");
}

#[tokio::test]
async fn recipients_that_one_rule_holds_share_a_record_and_others_pass() {
    let trial = Trial::on(SimDisk::new(1), Config::default());
    let expression = operator::queue::Expression::parse("to:@d.test").unwrap();
    let new = operator::queue::NewRule {
        kind: operator::queue::RuleKind::Suspension,
        expression,
        reason: None,
        set_by: "ann".to_owned(),
        until: None,
    };
    trial.queue.context.steering.change(&mut |orders| orders.with_rule(new.clone(), 7)).unwrap();
    let id = trial.store_for(&["a@d.test", "b@e.test", "c@d.test", "d@d.test"]).await;
    let message = WaitingMessage::read(&trial.queue, id).await.unwrap();
    let (refused, undecided) = (Vec::new(), Vec::new());
    let effect = MessageEffect::Judged { refused, undecided, others: RecipientEffect::Deliver, changes: None };
    let pauses = uses_of_orders(&trial, apply(&trial.queue, message, effect)).await;
    assert!(pauses.len() <= 2, "a record for each effect: {pauses:?}");
    let statuses: Vec<Status> = trial.spool.states(id).iter().map(|(entry, _)| entry.state.status).collect();
    assert_eq!(statuses, [Status::Held, Status::Waiting, Status::Held, Status::Held]);
    assert_eq!(trial.spool.hold(id, 3).unwrap().by(), "suspension-1");
}
