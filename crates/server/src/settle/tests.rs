//! Measures that settling costs as much as the recipients that are settled, however many others their message has, on
//! a real spool on a simulated disk.

use super::*;
use crate::dispatch::Dispatch;
use mail::{Client, Node, Protocol, QueueIds, Received, ReversePath};
use schedule::Positions;
use spool::envelope::Encoded;
use spool::{NewBody, Spool};

/// Recipients of a list that is long.
const MANY: u32 = 30_000;

struct Trial {
    dispatch: Arc<Dispatch>,
    spool: Arc<Spool>,
    ids: std::cell::RefCell<QueueIds>,
}

impl Trial {
    fn new() -> Self {
        Self::with(crate::config::Config::default())
    }

    fn with(config: crate::config::Config) -> Self {
        let (dispatch, spool) = Dispatch::trial(config);
        Self { dispatch, spool, ids: QueueIds::new(Node::default()).into() }
    }

    /// Stores a message to so many people, each at a domain of a hundred.
    fn store(&self, recipients: u32) -> Envelope {
        self.store_from(ReversePath::Null, "BY=3600;R", recipients, |_| ())
    }

    /// Does the same with another sender, and his options.
    fn store_from(
        &self,
        sender: ReversePath,
        params: &str,
        recipients: u32,
        asks: impl Fn(&mut Recipient),
    ) -> Envelope {
        let id = self.ids.borrow_mut().next(clock::unix_us());
        let received = Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local };
        let recipients =
            (0..recipients).map(|one| Recipient::new(format!("u{one}@d{}.test", one % 100).parse().unwrap()));
        let params = params.parse().unwrap();
        let mut recipients: Vec<Recipient> = recipients.collect();
        recipients.iter_mut().for_each(asks);
        let envelope = Envelope { id, sender, params, received, recipients };
        let encoded = Encoded::new(&envelope);
        let body = NewBody::whole("Subject: x\r\n\r\n", 0);
        self.spool.append(encoded.message(&encoded.recipients(), body)).unwrap().wait().unwrap();
        envelope
    }

    /// Defers one recipient of a message, and returns its state afterwards.
    async fn defer(&self, envelope: &Envelope, position: u32) -> Status {
        let states = self.defer_all(envelope, &[(position, State::default())]).await;
        states.first().unwrap().status
    }

    /// Defers the recipients of one transaction, and returns their states afterwards.
    async fn defer_all(&self, envelope: &Envelope, positions: &[(u32, State)]) -> Vec<State> {
        let later = Cause::new(EnhancedCode::of(Outcome::Transient, 7, 1), "greylisted", None);
        self.settle(envelope, positions, &AttemptOutcome::Deferred(later), false)
            .await
            .changes
            .iter()
            .map(|one| one.state)
            .collect()
    }

    /// Settles the recipients of one transaction that have one result.
    async fn settle(
        &self,
        envelope: &Envelope,
        positions: &[(u32, State)],
        fate: &AttemptOutcome,
        is_final: bool,
    ) -> Settled {
        let recipients = positions.iter().map(|(one, _)| envelope.recipients.get(*one as usize).unwrap().clone());
        let attempt = Attempt {
            envelope: &Envelope { recipients: recipients.collect(), ..envelope.clone() },
            positions,
            content_bytes: 14,
            recipients_left: envelope.recipients.len(),
            next_hop: NextHop::None,
            mailer: "esmtp",
            xdelay: Duration::ZERO,
            phases: PhaseTimes::default(),
            passes_dsn: false,
            passes_by: false,
            is_try: true,
            is_told: false,
            is_final,
            name: None,
            owner: None,
        };
        settle(&self.dispatch.settler, &attempt, vec![fate.clone(); positions.len()]).await
    }
}

/// Returns the least time that something takes: what else the machine does counts in few of many rounds.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
async fn least(mut what: impl AsyncFnMut()) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..20 {
        let start = std::time::Instant::now();
        what().await;
        least = least.min(start.elapsed());
    }
    least
}

#[tokio::test]
async fn a_deferral_costs_the_same_however_long_its_list_is() {
    let trial = Trial::new();
    let (short, long) = (trial.store(2), trial.store(MANY));
    let held = State { status: Status::Held, ..State::default() };
    trial
        .spool
        .record(&[Change { id: long.id, recipient: 7, state: held, destination: None }])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!((trial.defer(&long, 7).await, trial.defer(&long, 8).await), (Status::Held, Status::Waiting));
    // An attempt gets an envelope with its own recipients alone.
    let defer = async |list: &Envelope| {
        let own = Envelope { recipients: list.recipients.get(..2).unwrap().to_vec(), ..list.clone() };
        least(async || assert_eq!(trial.defer(&own, 1).await, Status::Waiting)).await
    };
    let (of_short, of_long) = (defer(&short).await, defer(&long).await);
    assert!(of_long < 50 * of_short, "{of_short:?} for one of 2 recipients, {of_long:?} for one of {MANY}");
}

#[tokio::test]
async fn a_time_costs_the_same_however_long_its_list_is_and_in_proportion_to_its_job() {
    let trial = Trial::new();
    let (short, long) = (trial.store(2), trial.store(MANY));
    let expect = async |envelope: &Envelope, recipients: u32| {
        let head = Envelope { recipients: Vec::new(), ..envelope.clone() };
        let recipients: Positions = (0..recipients).collect();
        least(async || trial.dispatch.expect(&head, &recipients)).await
    };
    let (of_short, of_long) = (expect(&short, 1).await, expect(&long, 1).await);
    assert!(of_long < 50 * of_short, "{of_short:?} for one of 2 recipients, {of_long:?} for one of {MANY}");
    let (mut some, mut all) = (Duration::MAX, Duration::MAX);
    // By turns: the machine may be slow for a while.
    for _ in 0..4 {
        some = some.min(expect(&long, MANY / 30).await);
        all = all.min(expect(&long, MANY).await);
    }
    assert!(all < 150 * some, "{some:?} for a thirtieth of {MANY} recipients, {all:?} for all");
}

#[tokio::test]
async fn what_was_deferred_together_comes_again_at_other_times_but_for_one_transaction() {
    const PAUSE: Duration = Duration::from_secs(1_000);
    let mut config = crate::config::Config::default();
    (config.delivery.retry_first, config.delivery.retry_max) = (PAUSE, PAUSE);
    let trial = Trial::with(config);
    let list = trial.store(40);
    let due = async |positions: &[u32], tries: u8| {
        let now = trial.dispatch.context.unix_now().as_secs();
        let before = State { attempts: tries, ..State::default() };
        let positions: Vec<_> = positions.iter().map(|one| (*one, before)).collect();
        let states = trial.defer_all(&list, &positions).await;
        let passed = trial.dispatch.context.unix_now().as_secs() - now;
        let dues: Vec<u64> = states.iter().map(|state| u64::from(state.due) - now).collect();
        let (first, last) = (*dues.iter().min().unwrap(), *dues.iter().max().unwrap());
        // A second of the time when they are due may begin between the two.
        assert!(last - first <= passed + 1 && first >= 750 && last <= 1_251 + passed, "in one transaction: {dues:?}");
        first
    };
    // A quarter less to a quarter more: of so many some are early and some are late.
    let spread = |dues: &[u64]| dues.iter().max().unwrap() - dues.iter().min().unwrap();
    let (mut attempts, mut jobs) = (Vec::new(), Vec::new());
    for one in 0..20_u8 {
        attempts.push(due(&[0, 1], one).await);
        jobs.push(due(&[u32::from(one) * 2, u32::from(one) * 2 + 1], 0).await);
    }
    assert!(spread(&attempts) > 250, "attempts of one job: {attempts:?}");
    assert!(spread(&jobs) > 250, "jobs of one message: {jobs:?}");
}

#[tokio::test]
async fn a_delivery_that_is_to_be_told_of_with_others_is_owed_until_its_report_is_durable() {
    let trial = Trial::new();
    let sender: ReversePath = "<a@d0.test>".parse().unwrap();
    let asks = |one: &mut Recipient| one.params.notify = Some(mail::Notify::SUCCESS);
    let fresh = State::default();
    let owed_of = |change: &Change| (change.state.status, change.state.owed());
    let list = trial.store_from(sender.clone(), "", 4, asks);
    let delivered = AttemptOutcome::Delivered(Reply::parse(b"250 2.0.0 it is there\r\n", 512).unwrap());
    // One in a mailbox, one at a next hop.
    let local = trial.settle(&list, &[(0, fresh)], &delivered, true).await;
    let remote = trial.settle(&list, &[(1, fresh)], &delivered, false).await;
    assert!(local.retry.is_some() && remote.retry.is_some(), "a walk finds them if no report comes about");
    let changes = [local.changes, remote.changes].concat();
    assert_eq!(changes.iter().map(owed_of).collect::<Vec<_>>(), [(Status::Owed, Some(1)), (Status::Owed, Some(2))]);
    // A delivery that is not recorded is not reported: a crash may undo it.
    gathered_report::report(&trial.dispatch.settler, list.id).await;
    assert_eq!(trial.spool.messages().len(), 1, "no report");
    drop(trial.spool.record(&changes).unwrap().await);
    for position in [0, 1] {
        assert_eq!(trial.dispatch.settler.dsn_batcher.pending_report(list.id, position), None);
    }
    assert_eq!(report_owed(&trial.dispatch.settler, list.id, &[0, 1].as_slice().into()), Duration::ZERO);
    assert_eq!(trial.dispatch.settler.dsn_batcher.pending_report(list.id, 1), Some(PendingReport::Delivered));
    gathered_report::report(&trial.dispatch.settler, list.id).await;
    assert_eq!(trial.dispatch.settler.dsn_batcher.pending_report(list.id, 1), None);
    let left: Vec<u32> = trial.spool.states(list.id).iter().map(|(entry, _)| entry.recipient).collect();
    assert_eq!((left, trial.spool.messages().len()), (vec![2, 3], 2), "one report on both");
    let report = trial.spool.messages().into_iter().find(|id| *id != list.id).unwrap();
    let text = trial.spool.body(report).unwrap().concat();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Action: delivered") && text.contains("Action: relayed"), "{text}");
    assert!(text.contains(receipt::FORGOTTEN.split(' ').next().unwrap()), "{text}");
    // Alone in his message: at once.
    let one = trial.store_from(sender, "", 1, asks);
    let settled = trial.settle(&one, &[(0, fresh)], &delivered, true).await;
    assert_eq!(settled.changes.iter().map(owed_of).collect::<Vec<_>>(), [(Status::Done, None)]);
    assert_eq!(trial.spool.messages().len(), 4, "he and his report");
}

#[tokio::test]
async fn a_sender_hears_of_a_delay_once_although_an_attempt_began_before() {
    let mut config = crate::config::Config::default();
    config.delivery.warn_after = Duration::from_nanos(1);
    let trial = Trial::with(config);
    let list = trial.store_from("<a@d0.test>".parse().unwrap(), "", 4, |_| ());
    let fresh = State::default();
    let later = AttemptOutcome::Deferred(Cause::new(EnhancedCode::of(Outcome::Transient, 7, 1), "greylisted", None));
    let mut states = Vec::new();
    for _ in 0..2 {
        let settled = trial.settle(&list, &[(0, fresh)], &later, false).await;
        states.extend(settled.changes.iter().map(|one| one.state.is_warned()));
        drop(trial.spool.record(&settled.changes).unwrap().await);
        assert_eq!(trial.dispatch.settler.dsn_batcher.pending_report(list.id, 0), Some(PendingReport::Delayed));
        gathered_report::report(&trial.dispatch.settler, list.id).await;
        assert_eq!(trial.dispatch.settler.dsn_batcher.pending_report(list.id, 0), None);
    }
    assert_eq!(states, [false, true]);
    assert!(trial.spool.states_of(list.id, [0]).first().unwrap().0.state.is_warned());
    assert_eq!(trial.spool.messages().len(), 2, "the list and one warning");
}

#[tokio::test]
async fn a_delivery_that_there_is_no_room_to_remember_is_owed_and_is_told_of_later() {
    let trial = Trial::new();
    let asks = |one: &mut Recipient| one.params.notify = Some(mail::Notify::SUCCESS);
    let list = trial.store_from("<a@d0.test>".parse().unwrap(), "", 4, asks);
    let other = trial.store(1).id;
    let said = "x".repeat(100_000);
    let gone = || AttemptOutcome::Failed(Cause::new(EnhancedCode::of(Outcome::Permanent, 1, 1), said.as_str(), None));
    // Nearly all of the room, and then the rest.
    for position in 1..2_000 {
        let fate = if position < 1_000 { gone() } else { AttemptOutcome::Receipt(Receipt::default()) };
        trial.dispatch.settler.dsn_batcher.add(other, position, fate);
    }
    let delivered = AttemptOutcome::Delivered(Reply::parse(b"250 2.0.0 it is there\r\n", 512).unwrap());
    let settled = trial.settle(&list, &[(0, State::default())], &delivered, false).await;
    assert_eq!(settled.changes.first().unwrap().state.owed(), Some(2));
    assert_eq!(trial.dispatch.settler.dsn_batcher.pending_report(list.id, 0), None, "there is no room");
    assert_eq!(trial.spool.messages().len(), 2, "no report on one alone");
    drop(trial.spool.record(&settled.changes).unwrap().await);
    let due = || trial.spool.states_of(list.id, [0]).first().unwrap().0.state.due;
    let before = due();
    assert_eq!(report_owed(&trial.dispatch.settler, list.id, &Positions::One(0)), REPORT_AGAIN);
    assert!(due() > before + 100, "not each walk asks again");
    gathered_report::report(&trial.dispatch.settler, other).await;
    assert_eq!(
        report_owed(&trial.dispatch.settler, list.id, &Positions::One(0)),
        Duration::ZERO,
        "there is room again"
    );
    gathered_report::report(&trial.dispatch.settler, list.id).await;
    assert_eq!((trial.spool.states(list.id).len(), trial.spool.messages().len()), (3, 3));
}

/// Too many recipients, in any words, where the host accepted others of the transaction.
// RFC 5321 §4.5.3.1.10 (test)
#[test]
fn one_too_many_goes_with_the_next_transaction() {
    let rules = Rules::usual();
    let is_crowded = |line: &str| {
        let reply = Reply::parse(format!("{line}\r\n").as_bytes(), 512).unwrap();
        let status = reply.status().unwrap_or_else(|| EnhancedCode::of(Outcome::Transient, 0, 0));
        let cause = Cause::new(status, line.to_owned(), Some(reply));
        let mut fate = AttemptOutcome::Deferred(cause).with_reason(&rules);
        fate.retry_soon();
        matches!(fate, AttemptOutcome::Deferred(cause) if cause.is_crowded)
    };
    for line in [
        "452 4.5.3 Too many recipients",
        "552 5.5.3 no more",
        "452 too many recipients",
        "452 Too many recipients received this hour",
        "452 no more, please",
        "552 Too many recipients for this message",
        "452 4.3.0 Maximum number of RCPT commands exceeded",
        "452 4.7.1 recipient limit per session reached",
    ] {
        assert!(is_crowded(line), "{line}");
    }
    for line in [
        "452 4.2.2 mailbox full",
        "452 4.2.1 try later",
        "452 4.3.1 Insufficient system storage",
        "452 mailbox is full",
        "452 greylisted, come again",
        "450 4.5.3 Too many recipients",
        "451 too many recipients",
    ] {
        assert!(!is_crowded(line), "{line}");
    }
}

// RFC 3463 §3.5 (test)
#[test]
fn mail_whose_time_is_over_fails_with_5_4_7() {
    let envelope = Trial::new().store(1);
    let at = |seconds| envelope.waits_since() + Duration::from_secs(seconds);
    assert!(Cause::too_late(&envelope, at(3_599)).is_none());
    let cause = Cause::too_late(&envelope, at(3_601)).expect("the hour is over");
    assert_eq!(cause.status.to_string(), "5.4.7");
}
