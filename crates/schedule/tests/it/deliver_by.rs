//! Mail with a deliver-by time, or perhaps with one: when its time is acted on, and how often the scheduler asks for
//! it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use crate::rig::START;
use crate::rig::direct::id;
use mail::QueueId;
use schedule::{
    Action, Class, ConnectionId, DestinationId, Failure, Feedback, Job, Limits, NextJob, Overdue, Positions,
    QueueEntry, Scheduler, Settings, SiteAssignment,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const ONE: Positions = Positions::One(0);

/// One destination, with a driver that the test controls.
struct Trial {
    scheduler: Scheduler,
    now: Duration,
    /// Its list in the spool, one recipient of each message.
    list: BTreeMap<QueueId, QueueEntry>,
    limits: Limits,
    /// Connections that are open.
    open: Vec<ConnectionId>,
    opened: usize,
    /// The `Overdue` actions, with their times.
    told: Vec<(Duration, Overdue, QueueId)>,
    /// Those without an answer.
    unanswered: Vec<(DestinationId, QueueId, Overdue)>,
}

impl Trial {
    fn new(settings: Settings, messages: impl Iterator<Item = QueueEntry>) -> Self {
        let mut scheduler = Scheduler::new(settings, 1);
        scheduler.restore(b"d", START);
        let limits = Limits {
            connections: 1,
            messages_per_second: None,
            recipients_per_transaction: 100,
            messages_per_connection: 1,
        };
        let list = messages.map(|one| (one.message, one)).collect();
        let (open, told, unanswered) = (Vec::new(), Vec::new(), Vec::new());
        Self { scheduler, now: START, list, limits, open, opened: 0, told, unanswered }
    }

    /// Performs the actions of the scheduler.
    fn act(&mut self) {
        while let Some(action) = self.scheduler.poll(self.now) {
            match action {
                Action::Resolve { destination } => {
                    let until = self.now + HOUR;
                    let place = SiteAssignment { site: b"mx:25", limits: self.limits, expected: None, until };
                    assert_eq!(self.scheduler.resolved(destination, &place, self.now), []);
                }
                Action::Load { destination, after, limit } => {
                    let after = after.map(|one| one.message).filter(|one| self.list.contains_key(one));
                    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                    let page: Vec<QueueEntry> = self.list.range((from, Bound::Unbounded)).map(|one| *one.1).collect();
                    let is_end = page.len() <= limit;
                    self.scheduler.page_loaded(destination, &page[..page.len().min(limit)], is_end, self.now);
                }
                Action::Overdue { destination, message, recipients, kind } => {
                    assert_eq!(recipients, ONE);
                    self.told.push((self.now, kind, message));
                    self.unanswered.push((destination, message, kind));
                }
                Action::Open { connection, .. } => {
                    self.opened += 1;
                    self.open.push(connection);
                }
                Action::Wake(_) | Action::Close(_) => {}
            }
        }
    }

    /// Lets time pass. Each connection that opens fails; `answer` returns when an overdue message needs attention
    /// again.
    fn pass(&mut self, until: Duration, mut answer: impl FnMut(&mut Self, QueueId) -> Option<Duration>) {
        while self.now < until {
            self.act();
            for connection in std::mem::take(&mut self.open) {
                drop(self.scheduler.unreachable(connection, Failure::Refused, "refused", self.now));
            }
            for (destination, message, kind) in std::mem::take(&mut self.unanswered) {
                let again = answer(self, message);
                if again.is_none() {
                    self.list.remove(&message);
                }
                match kind {
                    Overdue::ByTime => self.scheduler.deadline_settled(destination, message, &ONE, again, self.now),
                    Overdue::Owed => {
                        self.scheduler.report_settled(destination, message, &ONE, again.unwrap_or(self.now), self.now);
                    }
                    _ => self.scheduler.age_settled(destination, message, &ONE, again.unwrap_or(self.now), self.now),
                }
            }
            self.act();
            if self.open.is_empty() && self.unanswered.is_empty() {
                self.now = self.scheduler.wake_at().map_or(until, |at| at.min(until)).max(self.now);
            }
        }
    }

    fn asked(&self) -> usize {
        self.told.iter().filter(|(_, kind, _)| *kind == Overdue::ByTime).count()
    }
}

fn waiting(number: u64, due: Duration, timed: bool) -> QueueEntry {
    QueueEntry { timed, ..crate::rig::direct::waiting(number, u32::try_from(due.as_secs()).unwrap()) }
}

#[test]
fn a_time_that_ends_in_line_is_told_of_and_not_forgotten_when_its_message_leaves_memory() {
    let mut trial = Trial::new(Settings::default(), (0..20).map(|one| waiting(one, Duration::ZERO, one == 9)));
    let end = START + 100 * SECOND;
    trial.scheduler.set_deadline(b"d", id(9), &ONE, end);
    trial.act();
    let [first] = trial.open[..] else { panic!("one connection is wanted") };
    let left = trial.scheduler.unreachable(first, Failure::Refused, "refused", trial.now);
    assert_eq!(left.len(), 20, "all are told of");
    trial.open.clear();
    while trial.open.is_empty() {
        trial.act();
        trial.now = if trial.open.is_empty() { trial.scheduler.wake_at().unwrap() } else { trial.now };
    }
    // The site is up; the rest of the list is loaded.
    let probe = trial.open.remove(0);
    trial.scheduler.greeted(probe, trial.now);
    let NextJob::Job(job) = trial.scheduler.next_job(probe, trial.now) else { panic!("it has a job") };
    trial.list.remove(&job.message);
    trial.scheduler.job_done(probe, &job, Feedback::Good, None, trial.now);
    trial.now += 2 * SECOND;
    trial.act();
    assert_eq!(trial.scheduler.next_job(probe, trial.now), NextJob::Close);
    assert_eq!(trial.scheduler.closed(probe, trial.now), Vec::<Job>::new());
    trial.act();
    assert!(trial.now < end && trial.scheduler.is_active(b"d", id(9), 0), "it is in line");
    // Its time ends, and its site goes down before the next check.
    trial.now = end + SECOND;
    trial.act();
    let told = |trial: &Trial| trial.told.iter().map(|(_, kind, message)| (*kind, *message)).collect::<Vec<_>>();
    assert_eq!(told(&trial), [(Overdue::ByTime, id(9))]);
    let [second] = trial.open[..] else { panic!("one more connection is wanted") };
    assert_eq!(trial.scheduler.unreachable(second, Failure::Refused, "refused", trial.now), [], "they are not told of");
    trial.open.clear();
    let again = end + 10 * SECOND;
    trial.pass(end + 20 * SECOND, |trial, _| Some(again).filter(|again| *again > trial.now));
    assert_eq!(told(&trial), [(Overdue::ByTime, id(9)); 2]);
}

#[test]
fn a_message_that_is_younger_than_was_thought_is_asked_for_once_and_tried_meanwhile() {
    let now = START + 5 * HOUR;
    let mut trial = Trial::new(Settings::default(), std::iter::once(waiting(0, now - SECOND, false)));
    trial.now = now;
    let until = START + 24 * HOUR;
    // The time is asked for once however a scan starts, and the message is tried when it is due.
    trial.pass(START + 12 * HOUR, |_, _| Some(until));
    assert!(trial.opened > 6, "it was tried {} times", trial.opened);
    for hour in 13..=24 {
        trial.scheduler.retry_now(Some(b"d"), trial.now);
        trial.pass(START + HOUR * hour, |_, _| Some(until));
    }
    let kinds = |trial: &Trial| trial.told.iter().map(|(_, kind, _)| *kind).collect::<Vec<_>>();
    assert_eq!(kinds(&trial).iter().filter(|kind| **kind == Overdue::Warn).count(), 1, "{:?}", kinds(&trial));
    assert!(trial.opened > 10, "it was tried {} times", trial.opened);
    // Its time is over: its sender is told, and it is normal mail now.
    trial.told.clear();
    trial.pass(until + SECOND * 60, |trial, message| {
        trial.list.get_mut(&message).unwrap().warned = true;
        Some(trial.now)
    });
    assert!(kinds(&trial).contains(&Overdue::Warn), "{:?}", kinds(&trial));
}

#[test]
fn times_for_which_there_is_no_room_are_not_asked_for_by_each_walk_and_are_acted_on_in_time() {
    const COUNT: u64 = 10_300;
    let settings = Settings { warn_after: None, ..Settings::default() };
    let mut trial = Trial::new(settings, (0..COUNT).map(|number| waiting(number, Duration::ZERO, true)));
    // The message that came last has the earliest time.
    let by = |message: QueueId| {
        let number = message.unix_us() - id(0).unix_us();
        START + 6 * HOUR + SECOND * u32::try_from(COUNT - number).unwrap()
    };
    let answer = |trial: &mut Trial, message: QueueId| Some(by(message)).filter(|at| *at > trial.now);
    trial.pass(START + HOUR, answer);
    let asked = trial.asked();
    assert!((10_300..10_700).contains(&asked), "after a start all are asked for: {asked}");
    for _ in 0..10 {
        trial.scheduler.retry_now(Some(b"d"), trial.now);
        trial.pass(trial.now + 20 * SECOND, answer);
    }
    assert!(trial.asked() < asked + 700, "{} were asked for again", trial.asked() - asked);
    trial.pass(START + 10 * HOUR, answer);
    assert!(trial.list.is_empty(), "{} wait on", trial.list.len());
    let late =
        trial.told.iter().filter(|(at, kind, message)| *kind == Overdue::ByTime && *at > by(*message) + 10 * SECOND);
    assert_eq!(late.count(), 0);
}

/// A rig whose mail waits in the ready queue, because the site accepts one message in 1,000 seconds.
fn paced(settings: Settings, messages: impl Iterator<Item = QueueEntry>) -> Trial {
    let mut trial = Trial::new(settings, messages);
    trial.limits.messages_per_second = Some(1);
    trial.act();
    trial
}

#[test]
fn a_time_that_others_crowded_out_is_acted_on_while_its_message_waits_for_its_turn() {
    let settings = Settings { warn_after: None, ..Settings::default() };
    let mut trial = paced(settings, std::iter::empty());
    // The connection is open and asks for no work: all mail waits.
    let end = START + HOUR;
    for number in 0..=10_000 {
        let entry = waiting(number, Duration::ZERO, true);
        trial.list.insert(entry.message, entry);
        let job = Job { message: entry.message, recipients: ONE, probe: false };
        trial.scheduler.add(b"d", job, Class::Normal, trial.now);
        let before = SECOND * u32::try_from(number).unwrap() / 10;
        trial.scheduler.set_deadline(b"d", entry.message, &ONE, end - before);
    }
    let held = std::mem::take(&mut trial.open);
    assert!(held.len() <= 1, "{held:?}");
    while trial.now < end + 60 * SECOND {
        trial.act();
        for (destination, message, kind) in std::mem::take(&mut trial.unanswered) {
            assert_eq!(kind, Overdue::ByTime);
            trial.list.remove(&message);
            trial.scheduler.deadline_settled(destination, message, &ONE, None, trial.now);
        }
        trial.open.clear();
        trial.act();
        trial.now = trial.scheduler.wake_at().unwrap_or(end + HOUR).max(trial.now + SECOND / 100);
    }
    assert!(trial.list.is_empty(), "{} were not told of", trial.list.len());
}

#[test]
fn mail_goes_to_a_site_that_has_room_while_senders_are_being_told() {
    // The senders of the first ones, which are in the ready queue, got a warning before.
    let old = |number| QueueEntry { warned: number < 64, ..waiting(number, START, false) };
    let mut trial = Trial::new(Settings { ready_max: 64, ..Settings::default() }, (0..4_000).map(old));
    trial.limits.messages_per_connection = 1_000;
    trial.act();
    trial.now = START + 5 * HOUR;
    trial.act();
    assert!(trial.unanswered.len() >= 1_000, "{}", trial.unanswered.len());
    let [connection] = trial.open[..] else { panic!("{:?}", trial.open) };
    trial.scheduler.greeted(connection, trial.now);
    // The driver answers none of them, and the site accepts what it gets.
    let mut done = 0;
    for _ in 0..400 {
        trial.now += SECOND;
        trial.act();
        if let NextJob::Job(job) = trial.scheduler.next_job(connection, trial.now) {
            trial.list.remove(&job.message);
            trial.scheduler.job_done(connection, &job, Feedback::Good, None, trial.now);
            done += 1;
        }
    }
    assert!(done > 300, "{done} went");
}

/// In whatever order the answers come.
#[test]
fn senders_of_a_long_list_are_told_without_reading_it_over_and_over() {
    let list = || (0..6_000).map(|number| waiting(number, START, false));
    let mut trial = Trial::new(Settings::default(), list());
    trial.pass(START + 60 * SECOND, |_, _| panic!("nobody is late"));
    trial.now = START + 4 * HOUR + SECOND;
    let begun = trial.now;
    while trial.told.len() < 6_000 {
        trial.act();
        for connection in std::mem::take(&mut trial.open) {
            drop(trial.scheduler.unreachable(connection, Failure::Refused, "refused", trial.now));
        }
        if let Some((destination, message, _)) = trial.unanswered.pop() {
            trial.list.get_mut(&message).unwrap().warned = true;
            trial.scheduler.age_settled(destination, message, &ONE, trial.now, trial.now);
        } else {
            trial.now = trial.scheduler.wake_at().unwrap().max(trial.now);
        }
        assert!(trial.now < begun + 3 * SECOND, "{} of 6,000 were told", trial.told.len());
    }
}

#[test]
fn a_report_that_cannot_be_stored_is_tried_again_when_its_driver_says() {
    let mut trial =
        Trial::new(Settings::default(), std::iter::once(QueueEntry { owed: true, ..waiting(0, START, false) }));
    trial.pass(START + HOUR, |trial, _| Some(trial.now + 300 * SECOND));
    assert!((11..=13).contains(&trial.told.len()), "{}", trial.told.len());
}

/// A page that was read before mail moved to another list still shows it.
#[test]
fn moved_recipients_are_not_taken_from_their_old_list() {
    for tells in [true, false] {
        let mut scheduler = Scheduler::new(Settings::default(), 1);
        let mut loads = Vec::new();
        let mut act = |scheduler: &mut Scheduler| {
            while let Some(action) = scheduler.poll(START) {
                if let Action::Load { destination, .. } = action {
                    loads.push(destination);
                }
            }
            std::mem::take(&mut loads)
        };
        scheduler.restore(b"old", START);
        let [old] = act(&mut scheduler)[..] else { panic!("its list is read") };
        scheduler.set_deadline(b"old", id(1), &ONE, START + HOUR);
        assert!(!scheduler.is_active(b"old", id(1), 0));
        if tells {
            scheduler.recipients_moved(b"old", id(1), &ONE);
        }
        scheduler.restore(b"new", START);
        scheduler.page_loaded(old, &[waiting(1, Duration::ZERO, false)], true, START);
        let later = act(&mut scheduler);
        scheduler.page_loaded(later[0], &[waiting(1, Duration::ZERO, false)], true, START);
        assert_eq!(scheduler.is_active(b"old", id(1), 0), !tells, "without being told it would be sent twice");
        assert!(scheduler.is_active(b"new", id(1), 0) || later[0] == old);
    }
}

#[test]
fn a_delivered_recipient_is_not_tried_and_does_not_age_and_its_report_is_sent_when_due() {
    let owed = |number, due| QueueEntry { owed: true, ..waiting(number, due, false) };
    let (soon, later) = (START + 30 * SECOND, START + 30 * HOUR);
    let list = [owed(0, soon), QueueEntry { held: true, ..owed(1, soon) }, owed(2, later), owed(3, START)];
    // As after a start: the list is scanned.
    let mut trial = Trial::new(Settings::default(), list.into_iter());
    // There is no room for the last one until an hour has passed: it is due later.
    trial.pass(START + 9 * 24 * HOUR, |trial, message| {
        let again = trial.now + 300 * SECOND;
        let entry = trial.list.get_mut(&message).filter(|_| message == id(3) && trial.now < START + HOUR)?;
        entry.due_s = u32::try_from(again.as_secs()).unwrap();
        Some(again)
    });
    assert_eq!(trial.opened, 0, "nobody is to be connected to");
    assert!(trial.told.iter().all(|(_, kind, _)| *kind == Overdue::Owed), "{:?}", trial.told);
    let told = |number| trial.told.iter().filter(|told| told.2 == id(number)).map(|told| told.0 - START).collect();
    let (first, held, last, often): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = (told(0), told(1), told(2), told(3));
    assert_eq!((first.len(), held.len(), last.len()), (1, 0, 1), "{first:?} {held:?} {last:?}");
    assert!(first[0] >= 30 * SECOND && first[0] < 40 * SECOND && last[0] >= 30 * HOUR && last[0] < 31 * HOUR);
    assert!((12..=14).contains(&often.len()) && often[0] < 5 * SECOND, "{often:?}");
}
