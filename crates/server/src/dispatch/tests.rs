//! Tasks that break off before they have given their answer.

use super::site_lookup::BROKE_OFF;
use super::*;
use crate::dns::NoHosts;
use crate::outbound::Outbound;
use crate::tasks::begin;
use mail::{
    Address, Client, EnhancedCode, Envelope, Node, Outcome, Protocol, QueueIds, Received, Recipient, ReversePath,
};
use schedule::{Class, Health, Job};
use spool::envelope::Encoded;
use spool::{Change, NewBody, Spool, State};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The queue of its recipient.
const NAME: &[u8] = b"d.test";

struct Trial {
    dispatch: Arc<Dispatch>,
    spool: Arc<Spool>,
    inbox: UnboundedReceiver<Task>,
}

impl Trial {
    fn new() -> Self {
        let text = "[delivery]\nmode = 'background'";
        let config = crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let (dispatch, spool) = Dispatch::trial(config);
        let inbox = dispatch.inbox.lock().unwrap().take().unwrap();
        Self { dispatch, spool, inbox }
    }

    /// Stores a message that came at this time, in microseconds since 1970.
    fn store(&self, at_us: u64, params: &str) -> QueueId {
        let received = Received { at_us, client: Client::Internal, helo: None, protocol: Protocol::Local };
        let recipients = vec![Recipient::new("b@d.test".parse::<Address>().unwrap())];
        let id = QueueIds::new(Node::default()).next(at_us);
        let params = params.parse().unwrap();
        let envelope = Envelope { id, sender: ReversePath::Null, params, received, recipients };
        let encoded = Encoded::new(&envelope);
        let mut recipients = encoded.recipients();
        recipients[0].destination = NAME;
        let body = NewBody::whole("Subject: x\r\n\r\n", 0);
        self.spool.append(encoded.message(&recipients, body)).unwrap().wait().unwrap();
        // Mail that may be tried now, or that was never tried and is due later, is not overdue.
        let state = State::default().tried().until(self.dispatch.now() + DAY);
        let change = Change { id, recipient: 0, state, destination: None };
        self.spool.record(&[change]).unwrap().wait().unwrap();
        id
    }

    /// Returns the next task of a kind; pages of lists are read meanwhile, and hosts are not found.
    fn next(&mut self, is_it: impl Fn(&Task) -> bool) -> Task {
        for _ in 0..20 {
            let Ok(errand) = self.inbox.try_recv() else {
                self.dispatch.with_scheduler(|_, _| ());
                continue;
            };
            match errand {
                errand if is_it(&errand) => return errand,
                Task::Load { destination, name, after, limit } => {
                    self.dispatch.load(destination, &name, after, limit);
                }
                Task::Resolve { name } => {
                    let no = NoHosts {
                        permanent: false,
                        status: EnhancedCode::of(Outcome::Transient, 4, 4),
                        text: "no name servers".to_owned(),
                        is_ours: true,
                    };
                    drop(self.dispatch.look_up_broke_off(&name, &no));
                }
                _ => {}
            }
        }
        panic!("no such errand")
    }

    /// Begins a task and cuts it off.
    async fn break_off(&self, errand: Task) {
        let mut tasks = JoinSet::new();
        let outbound = Arc::new(Outbound::trial(&self.dispatch.context, Some(Arc::clone(&self.dispatch))));
        begin(&outbound, &self.dispatch, &mut tasks, errand);
        assert_eq!(tasks.len(), 1);
        tasks.abort_all();
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
    }

    fn down(&self) -> Option<String> {
        match self.dispatch.lock().scheduler.destination_view(NAME)?.health {
            Health::Down { why, .. } => Some(why.to_string()),
            Health::Up | Health::Idle => None,
        }
    }

    fn is_active(&self, id: QueueId) -> bool {
        self.dispatch.lock().scheduler.is_active(NAME, id, 0)
    }
}

#[tokio::test]
async fn a_destination_whose_look_up_breaks_off_is_looked_up_again() {
    let mut trial = Trial::new();
    let id = trial.store(micros(trial.dispatch.now()), "");
    let job = Job { message: id, recipients: Positions::One(0), probe: false };
    trial.dispatch.with_scheduler(|scheduler, now| scheduler.add(NAME, job, Class::Normal, now));
    let errand = trial.next(|errand| matches!(errand, Task::Resolve { .. }));
    assert_eq!(trial.down(), None);
    trial.break_off(errand).await;
    assert_eq!(trial.down().as_deref(), Some(BROKE_OFF));
    let Task::Defer { jobs, .. } = trial.next(|errand| matches!(errand, Task::Defer { .. })) else { panic!() };
    assert_eq!(jobs.first().map(|job| job.message), Some(id));
}

#[tokio::test]
async fn mail_whose_telling_breaks_off_is_told_of_later() {
    for (params, is_by_time) in [("", false), ("BY=60;R", true)] {
        let mut trial = Trial::new();
        let age = if is_by_time { Duration::from_secs(60) } else { 7 * DAY };
        let id = trial.store(micros(trial.dispatch.now() - age), params);
        trial.dispatch.look_at(id);
        if is_by_time {
            let at = trial.dispatch.now();
            trial.dispatch.with_scheduler(|scheduler, _| scheduler.set_deadline(NAME, id, &Positions::One(0), at));
        }
        let errand = trial
            .next(|errand| matches!(errand, Task::Overdue { kind, .. } if (*kind == Overdue::ByTime) == is_by_time));
        assert!(trial.is_active(id), "{params}");
        trial.break_off(errand).await;
        assert!(!trial.is_active(id), "{params}");
    }
}

#[tokio::test]
async fn the_start_leaves_alone_what_is_on_its_way() {
    for (pass, opened) in [(Pass::First, 1), (Pass::Anew, 2)] {
        let mut trial = Trial::new();
        let id = trial.store(micros(trial.dispatch.now()), "");
        let job = Job { message: id, recipients: Positions::One(0), probe: false };
        // An address literal needs no look-up.
        trial.dispatch.with_scheduler(|scheduler, now| scheduler.add(b"[127.0.0.1]", job, Class::Normal, now));
        restore(&trial.dispatch, pass).await;
        let tasks = std::iter::from_fn(|| trial.inbox.try_recv().ok());
        assert_eq!(tasks.filter(|errand| matches!(errand, Task::Connect { .. })).count(), opened);
    }
}
