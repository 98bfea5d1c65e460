//! What it costs to settle, on a real spool on a simulated disk: as much as the recipients that are settled, however many others
//! their message has.

use super::*;
use crate::dispatch::Dispatch;
use crate::service::Service;
use mail::{Client, Node, Protocol, QueueIds, Received, ReversePath};
use schedule::Positions;
use spool::envelope::Encoded;
use spool::{NewBody, Spool};

/// Recipients of a list that is long.
const MANY: u32 = 30_000;

struct Trial {
    service: Arc<Service>,
    dispatch: Arc<Dispatch>,
    spool: Arc<Spool>,
    ids: std::cell::RefCell<QueueIds>,
}

impl Trial {
    fn new() -> Self {
        Self::with(crate::config::Config::default())
    }

    fn with(config: crate::config::Config) -> Self {
        let (service, dispatch, spool) = Service::trial_with_spool(config);
        Self { service, dispatch, spool, ids: QueueIds::new(Node::default()).into() }
    }

    /// Stores a message to so many people, each at a domain of a hundred.
    fn store(&self, recipients: u32) -> Envelope {
        let id = self.ids.borrow_mut().next(clock::unix_us());
        let received = Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local };
        let recipients =
            (0..recipients).map(|one| Recipient::new(format!("u{one}@d{}.test", one % 100).parse().unwrap()));
        let params = "BY=3600;R".parse().unwrap();
        let recipients = recipients.collect();
        let envelope = Envelope { id, sender: ReversePath::Null, params, received, recipients };
        let encoded = Encoded::new(&envelope);
        let body = NewBody::Whole("Subject: x\r\n\r\n".into());
        self.spool.append(encoded.message(&encoded.recipients(), body)).unwrap().wait().unwrap();
        envelope
    }

    /// Defers one recipient of a message, and says how he is then.
    async fn defer(&self, envelope: &Envelope, position: u32) -> Status {
        let states = self.defer_all(envelope, &[(position, State::default())]).await;
        states.first().unwrap().status
    }

    /// Defers what was in one transaction, and says how they are then.
    async fn defer_all(&self, envelope: &Envelope, positions: &[(u32, State)]) -> Vec<State> {
        let recipients = positions.iter().map(|(one, _)| envelope.recipients.get(*one as usize).unwrap().clone());
        let attempt = Attempt {
            envelope: &Envelope { recipients: recipients.collect(), ..envelope.clone() },
            positions,
            content_bytes: 14,
            recipients_left: envelope.recipients.len(),
            next_hop: NextHop::None,
            mailer: "esmtp",
            xdelay: Duration::ZERO,
            passes_dsn: false,
            passes_by: false,
            is_try: true,
            is_told: false,
            is_final: false,
            name: None,
            owner: None,
        };
        let later = Cause::new(EnhancedCode::of(Outcome::Transient, 7, 1), "greylisted", None);
        let settled = settle(&self.service, &attempt, vec![Fate::Deferred(later); positions.len()]).await;
        settled.changes.iter().map(|change| change.state).collect()
    }
}

/// The least time that something takes: what else the machine does counts in few of many rounds.
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
    // What is handed to an attempt has its own recipients alone.
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
    let (some, all) = (expect(&long, MANY / 30).await, expect(&long, MANY).await);
    assert!(all < 150 * some, "{some:?} for a thirtieth of {MANY} recipients, {all:?} for all");
}

#[tokio::test]
async fn what_was_deferred_together_comes_again_at_other_times_but_for_one_transaction() {
    const PAUSE: Duration = Duration::from_secs(1_000);
    let mut config = crate::config::Config::default();
    (config.delivery.retry_first, config.delivery.retry_max) = (PAUSE, PAUSE);
    let trial = Trial::with(config);
    let list = trial.store(40);
    let now = trial.service.unix_now();
    let due = async |positions: &[u32], tries: u8| {
        let before = State { attempts: tries, ..State::default() };
        let positions: Vec<_> = positions.iter().map(|one| (*one, before)).collect();
        let states = trial.defer_all(&list, &positions).await;
        let mut dues: Vec<u64> = states.iter().map(|state| u64::from(state.due) - now.as_secs()).collect();
        dues.dedup();
        assert!(dues.len() == 1 && (750..=1_252).contains(dues.first().unwrap()), "in one transaction: {dues:?}");
        *dues.first().unwrap()
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
