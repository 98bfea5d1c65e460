//! A message whose end-of-data a host never answers, and a recipient at which it disconnects: which other mail is
//! delayed.

use std::time::Duration;

use crate::rig::direct::{act, id, job, opening};
use crate::rig::{Host, LIMITS, Manner, Poison, Rig, START};
use mail::QueueId;
use schedule::{
    Action, AddResult, Class, ConnectionId, Failure, Feedback, Health, Job, Lag, Lane, Limits, NextJob, RetryPolicy,
    Scheduler, Settings,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A rig with one host that fails at some recipients.
fn rig(seed: u64) -> Rig {
    let settings = Settings { down_first: 5 * SECOND, down_max: 8 * SECOND, warn_after: None, ..Settings::default() };
    let mut rig = Rig::new(settings, Manner { ahead: 4, ..Manner::default() }, vec![Host::Alive], seed);
    rig.retry = RetryPolicy { first: 5 * SECOND, max: 8 * SECOND };
    rig
}

fn poison(rig: &mut Rig, recipients: u32, poison: Poison) -> QueueId {
    let message = rig.add(0, recipients, true);
    rig.poisons.insert((message, recipients / 2), poison);
    message
}

fn is_delivered(rig: &Rig, message: QueueId) -> bool {
    rig.delivered.contains_key(&(message, 0))
}

#[test]
fn later_mail_is_not_sent_behind_a_message_without_a_final_reply() {
    let mut rig = rig(1);
    let hangs = poison(&mut rig, 1, Poison::Hangs);
    rig.run(SECOND);
    for _ in 0..20 {
        let others: Vec<QueueId> = (0..5).map(|_| rig.add(0, 1, false)).collect();
        rig.run(SECOND);
        assert!(others.iter().all(|message| is_delivered(&rig, *message)));
    }
    assert!(!is_delivered(&rig, hangs) && rig.opened[0] <= 4, "{}", rig.opened[0]);
}

#[test]
fn jobs_lost_together_are_retried_in_isolation_and_the_site_stays_up() {
    for connections in [20, 1] {
        let mut rig = rig(2);
        rig.limits[0] = Limits { connections, ..LIMITS };
        poison(&mut rig, 1, Poison::Hangs);
        let others: Vec<QueueId> = (0..5).map(|_| rig.add(0, 1, true)).collect();
        // They are added in any order, within 30 ms: some are pipelined behind it.
        rig.run(11 * MINUTE);
        assert!(others.iter().all(|message| is_delivered(&rig, *message)), "{connections}: {:?}", rig.delivered);
        // From now on it delays no other mail, and occupies at most one connection while it is tried.
        let mut late = 0;
        for _ in 0..60 {
            let fresh = rig.add(0, 1, false);
            rig.run(MINUTE);
            late += usize::from(!is_delivered(&rig, fresh));
        }
        if connections > 1 {
            let health = rig.scheduler.destination_view(&Rig::name(0)).unwrap().health;
            assert_eq!((late, health), (0, Health::Up));
        }
        rig.run(12 * MINUTE);
        assert!(rig.waiting() <= 2, "{connections}: {}", rig.waiting());
    }
}

#[test]
fn several_that_hang_are_tried_in_turns_with_those_that_do_not() {
    let mut rig = rig(3);
    rig.limits[0] = Limits { connections: 2, ..LIMITS };
    for _ in 0..3 {
        poison(&mut rig, 1, Poison::Hangs);
    }
    let others: Vec<QueueId> = (0..30).map(|_| rig.add(0, 1, true)).collect();
    rig.run(60 * MINUTE);
    let left = others.iter().filter(|message| !is_delivered(&rig, **message)).count();
    assert_eq!(left, 0);
}

#[test]
fn a_recipient_at_which_the_host_disconnects_delays_no_other() {
    let mut rig = rig(4);
    poison(&mut rig, 9, Poison::Drops);
    for _ in 0..120 {
        rig.add(0, 1, false);
        rig.run(SECOND);
    }
    rig.run(MINUTE);
    let left: Vec<u32> = rig.lists[0].iter().map(|entry| entry.recipient).collect();
    assert_eq!(left, [4], "{:?}", rig.lists[0]);
    // It alone does not keep the site down for others.
    let mut late = 0;
    for _ in 0..60 {
        let fresh = rig.add(0, 1, false);
        rig.run(10 * SECOND);
        late += usize::from(!is_delivered(&rig, fresh));
    }
    assert_eq!(late, 0);
}

/// Returns a scheduler with this many messages for one site, and the connections that it opens.
fn begun(messages: u64) -> (Scheduler, Vec<ConnectionId>) {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    for number in 0..messages {
        assert_eq!(scheduler.add(b"a", job(number), Class::Normal, START), AddResult::Ready);
    }
    let connections = opening(&act(&mut scheduler, LIMITS, START));
    (scheduler, connections)
}

/// Gives a connection a message whose end-of-data is not answered.
fn stalls(scheduler: &mut Scheduler, connection: ConnectionId) -> Job {
    scheduler.greeted(connection, START);
    let NextJob::Job(job) = scheduler.next_job(connection, START) else { panic!("there is one") };
    scheduler.stalling(connection, START);
    job
}

#[test]
fn a_site_that_refuses_while_a_message_hangs_there_is_not_asked_again_at_once() {
    let mut rig = rig(5);
    let hangs = poison(&mut rig, 1, Poison::Hangs);
    rig.run(SECOND);
    rig.hosts[0] = Host::Few(1);
    for _ in 0..9 * 60 {
        rig.add(0, 1, false);
        rig.run(SECOND);
    }
    assert!((20..=120).contains(&rig.opened[0]), "{}", rig.opened[0]);
    rig.hosts[0] = Host::Alive;
    rig.run(2 * MINUTE);
    assert!(rig.waiting() == 1 && !is_delivered(&rig, hangs), "{}", rig.waiting());
}

#[test]
fn a_site_where_every_message_hangs_is_down_although_some_still_wait_for_their_answers() {
    let (mut scheduler, connections) = begun(1);
    let first = stalls(&mut scheduler, connections[0]);
    scheduler.add(b"a", job(100), Class::Normal, START);
    let [second] = opening(&act(&mut scheduler, LIMITS, START))[..] else { panic!("another is tried beside it") };
    stalls(&mut scheduler, second);
    let now = START + 10 * MINUTE;
    scheduler.unanswered(connections[0], &first, false);
    scheduler.job_done(connections[0], &first, Feedback::NoReply, Some(now + 5 * MINUTE), now);
    drop(scheduler.unreachable(connections[0], Failure::Silent, "no answer to the end of a message", now));
    let health = scheduler.destination_view(b"a").unwrap().health;
    assert!(matches!(health, Health::Down { until, .. } if until > now), "{health:?}");
    // And up again when one of them is answered.
    scheduler.job_done(second, &job(100), Feedback::Good, None, now);
    assert_eq!(scheduler.destination_view(b"a").unwrap().health, Health::Up);
}

#[test]
fn a_lagging_connection_is_not_counted_on() {
    let (mut scheduler, connections) = begun(1);
    scheduler.greeted(connections[0], START);
    assert!(matches!(scheduler.next_job(connections[0], START), NextJob::Job(_)));
    assert_eq!(scheduler.next_job(connections[0], START), NextJob::Idle);
    scheduler.lagging(connections[0], Lag { has_others: false, is_whole: false }, START);
    scheduler.add(b"a", job(100), Class::Normal, START);
    let actions = act(&mut scheduler, LIMITS, START + SECOND);
    assert_eq!(opening(&actions).len(), 1, "{actions:?}");
}

#[test]
fn a_site_that_is_asked_for_while_it_is_down_and_others_open_is_probed() {
    let (mut scheduler, connections) = begun(20);
    assert!(connections.len() > 1);
    drop(scheduler.unreachable(connections[0], Failure::Refused, "refused", START));
    for action in act(&mut scheduler, LIMITS, START) {
        let Action::Load { destination, .. } = action else { panic!("{action:?}") };
        scheduler.page_loaded(destination, &[], true, START);
    }
    scheduler.retry_now(Some(b"a"), START);
    assert_eq!(scheduler.add(b"a", job(100), Class::Normal, START), AddResult::Ready, "it is the probe");
    assert_eq!(opening(&act(&mut scheduler, LIMITS, START)).len(), 1);
}

#[test]
fn a_superseded_connection_does_not_change_the_lane() {
    let (mut scheduler, connections) = begun(1);
    scheduler.retry_now(Some(b"a"), START);
    assert_eq!(opening(&act(&mut scheduler, LIMITS, START)).len(), 1, "a second one");
    assert_eq!(scheduler.unreachable(connections[0], Failure::Silent, "timed out", START), []);
    assert_eq!(scheduler.destination_view(b"a").unwrap().lane, Lane::Fast);
}

#[test]
fn a_connection_told_to_close_before_its_greeting_is_not_counted_on_for_ever() {
    let settings = Settings { connections_max: 1, ..Settings::default() };
    let mut scheduler = Scheduler::new(settings, 1);
    scheduler.add(b"a", job(1), Class::Normal, START);
    let [first] = opening(&act(&mut scheduler, LIMITS, START))[..] else { panic!("one opens") };
    scheduler.lagging(first, Lag { has_others: false, is_whole: false }, START);
    scheduler.retry_now(Some(b"a"), START);
    // Its place is needed.
    scheduler.add(b"b", job(2), Class::Normal, START);
    assert!(act(&mut scheduler, LIMITS, START).contains(&Action::Close(first)));
    assert_eq!(scheduler.closed(first, START), []);
    let mut now = START;
    for _ in 0..3 {
        let [next] = opening(&act(&mut scheduler, LIMITS, now))[..] else {
            panic!("somebody has the place at {now:?}")
        };
        drop(scheduler.unreachable(next, Failure::Refused, "refused", now));
        now += 5 * MINUTE;
        scheduler.add(b"a", job(3), Class::Normal, now);
    }
}

#[test]
fn retry_now_does_not_wait_for_a_probe_that_hangs() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    assert_eq!(scheduler.add(b"a", job(1), Class::Normal, START), AddResult::Ready);
    let actions = act(&mut scheduler, LIMITS, START);
    let [Action::Open { connection: first, .. }] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(scheduler.unreachable(first, Failure::Silent, "timed out", START).len(), 1);
    let Health::Down { until, .. } = scheduler.destination_view(b"a").unwrap().health else { panic!("it is down") };
    for action in act(&mut scheduler, LIMITS, START) {
        let Action::Load { destination, .. } = action else { panic!("{action:?}") };
        scheduler.page_loaded(destination, &[], true, START);
    }
    scheduler.restore(b"a", START);
    assert_eq!(scheduler.add(b"a", job(2), Class::Normal, until), AddResult::Ready, "it is the probe");
    let [hangs] = opening(&act(&mut scheduler, LIMITS, until))[..] else { panic!("the probe opens") };
    assert_eq!(opening(&act(&mut scheduler, LIMITS, until + MINUTE)), [], "it is waited for");
    let now = until + 2 * MINUTE;
    scheduler.retry_now(Some(b"a"), now);
    let [second] = opening(&act(&mut scheduler, LIMITS, now))[..] else { panic!("a second one opens") };
    assert_eq!(opening(&act(&mut scheduler, LIMITS, now + SECOND)), []);
    scheduler.greeted(second, now);
    assert!(matches!(scheduler.next_job(second, now), NextJob::Job(job) if job.message == id(2)));
    assert_eq!(scheduler.unreachable(hangs, Failure::Silent, "timed out", now + MINUTE), []);
    assert_eq!(scheduler.destination_view(b"a").unwrap().health, Health::Up);
}
