//! Failures that other machines found: what they put off, and what they must not.

use std::time::Duration;

use crate::rig::direct::{act, add, id, job, opens_one, taken, waiting};
use crate::rig::{Host, LIMITS, Manner, Rig, START};
use schedule::{
    Action, AddResult, Class, ConnectionId, Failure, Feedback, Health, Job, NextJob, Positions, ReportEffect,
    Scheduler, Settings, SiteAssignment, SiteChange, SiteReport, SiteResult,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The destination of most tests, and its site.
const NAME: &[u8] = b"a.test";
const SITE: &[u8] = b"a.test";

fn report(wait: Duration, until: Duration) -> SiteReport<'static> {
    SiteReport { by: 2, why: "node 2 reports it down", wait, until }
}

/// A scheduler with a message whose site is known, and no connection yet.
fn with_message(settings: Settings) -> Scheduler {
    let mut scheduler = Scheduler::new(settings, 1);
    scheduler.collect_site_changes();
    // An attempt makes the site known. It is forgotten by the next poll, if no mail follows.
    add(&mut scheduler, "a.test", 1);
    let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
    deliver(&mut scheduler, connection, Feedback::Good, START);
    assert_eq!(scheduler.closed(connection, START), []);
    assert_eq!((scheduler.take_site_changes(), scheduler.connections()), (Vec::new(), 0));
    scheduler
}

/// Lets a connection carry its message.
fn deliver(scheduler: &mut Scheduler, connection: ConnectionId, feedback: Feedback, now: Duration) {
    scheduler.greeted(connection, now);
    let job = taken(scheduler, connection, now);
    scheduler.job_done(connection, &job, feedback, None, now);
    assert_eq!(scheduler.next_job(connection, now), NextJob::Idle);
}

fn add_at(scheduler: &mut Scheduler, number: u64, now: Duration) -> AddResult {
    scheduler.add(NAME, job(number), Class::Normal, now)
}

/// Answers the pages of the destination with these messages, and returns the connections that open.
fn opened_with(scheduler: &mut Scheduler, messages: &[(u64, u32)], now: Duration) -> Vec<ConnectionId> {
    let mut opened = Vec::new();
    loop {
        let actions = act(scheduler, LIMITS, now);
        if actions.is_empty() {
            return opened;
        }
        for action in actions {
            match action {
                Action::Open { connection, .. } => opened.push(connection),
                Action::Load { destination, .. } => {
                    let page: Vec<_> = messages.iter().map(|(number, due_s)| waiting(*number, *due_s)).collect();
                    scheduler.page_loaded(destination, &page, true, now);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn until(scheduler: &Scheduler) -> Option<Duration> {
    scheduler.down_until(NAME)
}

#[test]
fn a_reported_site_is_left_alone_and_then_probed_once() {
    let mut scheduler = with_message(Settings::default());
    // Without a report the mail goes at once.
    let mut other = with_message(Settings::default());
    assert_eq!(add_at(&mut other, 2, START), AddResult::Ready);
    opens_one(&mut other, LIMITS, START);

    let end = START + 2 * MINUTE;
    let effect = scheduler.site_reported(SITE, &report(MINUTE, end), START);
    assert_eq!(effect, ReportEffect::PutOff { jobs: Vec::new(), is_new: true });
    assert_eq!(scheduler.site_reported(SITE, &report(MINUTE, end), START), ReportEffect::Nothing, "it is the same");
    let longer = scheduler.site_reported(SITE, &report(MINUTE, end + MINUTE), START);
    assert_eq!(longer, ReportEffect::PutOff { jobs: Vec::new(), is_new: false });
    let end = end + MINUTE;
    for number in 2..5 {
        let down = AddResult::Down { why: "node 2 reports it down".into(), retry_at: end };
        assert_eq!(add_at(&mut scheduler, number, START), down);
    }
    let view = scheduler.destination_view(NAME).unwrap();
    assert_eq!((view.reported_by, until(&scheduler)), (Some(2), Some(end)));
    let messages = [(2, 0), (3, 0), (4, 0)];
    assert_eq!(opened_with(&mut scheduler, &messages, end - SECOND), []);
    assert_eq!(scheduler.wake_at(), Some(end));
    let opened = opened_with(&mut scheduler, &messages, end);
    assert_eq!(opened.len(), 1, "one probe");
    scheduler.greeted(opened[0], end);
    assert_eq!(until(&scheduler), None);
    let job = taken(&mut scheduler, opened[0], end);
    assert!(job.probe && scheduler.take_site_changes().is_empty());
    scheduler.job_done(opened[0], &job, Feedback::Good, None, end);
    let up = SiteChange { site: SITE.into(), result: SiteResult::Up };
    assert_eq!(scheduler.take_site_changes(), [up], "others hear of it");
}

#[test]
fn jobs_in_memory_leave_it_and_are_named() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    add(&mut scheduler, "a.test", 1);
    let Some(Action::Resolve { destination }) = scheduler.poll(START) else { panic!("it is not known") };
    let place = SiteAssignment { site: SITE, limits: LIMITS, expected: None, until: START + HOUR };
    assert_eq!(scheduler.resolved(destination, &place, START), []);
    let effect = scheduler.site_reported(SITE, &report(MINUTE, START + MINUTE), START);
    assert_eq!(effect, ReportEffect::PutOff { jobs: vec![job(1)], is_new: true });
    assert_eq!(act(&mut scheduler, LIMITS, START), [], "no connection");
}

#[test]
fn a_working_connection_counts_more_than_a_report() {
    let mut scheduler = with_message(Settings::default());
    assert_eq!(add_at(&mut scheduler, 2, START), AddResult::Ready);
    let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
    let down = report(MINUTE, START + MINUTE);
    assert_eq!(scheduler.site_reported(SITE, &down, START), ReportEffect::Nothing, "it is being tried");
    deliver(&mut scheduler, connection, Feedback::Good, START);
    let up = SiteChange { site: SITE.into(), result: SiteResult::Up };
    assert_eq!(scheduler.take_site_changes(), [up], "the report was wrong");
    assert_eq!(scheduler.site_reported(SITE, &down, START), ReportEffect::Contradicted);
    assert_eq!(until(&scheduler), None);
    assert_eq!(scheduler.site_reported(b"other", &down, START), ReportEffect::Nothing);
    assert!(!scheduler.has_site(b"other") && scheduler.has_site(SITE));
}

#[test]
fn up_ends_the_wait_and_mail_goes_at_once_over_one_connection() {
    let mut scheduler = with_message(Settings { jobs_per_connection: 1, ..Settings::default() });
    drop(scheduler.site_reported(SITE, &report(MINUTE, START + HOUR), START));
    for number in 2..8 {
        assert!(matches!(add_at(&mut scheduler, number, START), AddResult::Down { .. }));
    }
    assert!(scheduler.site_reported_up(SITE, START + SECOND));
    assert!(!scheduler.site_reported_up(SITE, START + SECOND), "nothing is left to end");
    let messages: Vec<_> = (2..8).map(|number| (number, 0)).collect();
    let opened = opened_with(&mut scheduler, &messages, START + SECOND);
    assert_eq!(opened.len(), 1, "it may be weak");
}

#[test]
fn an_own_failure_goes_on_where_the_other_machine_has_come() {
    for (wait, least) in [(MINUTE, MINUTE), (30 * MINUTE, 20 * MINUTE)] {
        let mut scheduler = with_message(Settings::default());
        drop(scheduler.site_reported(SITE, &report(wait, START + wait), START));
        assert!(matches!(add_at(&mut scheduler, 2, START), AddResult::Down { .. }));
        let now = START + wait;
        let opened = opened_with(&mut scheduler, &[(2, 0)], now);
        assert_eq!(scheduler.unreachable(opened[0], Failure::Refused, "refused", now).len(), 1);
        let own = until(&scheduler).unwrap() - now;
        assert!(own >= least * 3 / 4 && own <= HOUR * 5 / 4, "{own:?} after {wait:?}");
        let changes = scheduler.take_site_changes();
        let told = SiteResult::Down { failure: Failure::Refused, wait: own };
        assert_eq!(changes, [SiteChange { site: SITE.into(), result: told }]);
        assert_eq!(scheduler.destination_view(NAME).unwrap().reported_by, None);
        // It is longer by the next report, and as long as before without it.
        let effect = scheduler.site_reported(SITE, &report(wait, now + own + SECOND), now);
        assert_eq!(effect, ReportEffect::PutOff { jobs: Vec::new(), is_new: false });
        let Health::Down { why, .. } = scheduler.destination_view(NAME).unwrap().health else { panic!("it is down") };
        assert_eq!((&*why, until(&scheduler)), ("refused", Some(now + own + SECOND)));
    }
}

#[test]
fn reports_without_end_keep_no_site_from_the_attempt_of_the_longest_back_off() {
    let mut scheduler = with_message(Settings::default());
    let mut now = START;
    drop(scheduler.site_reported(SITE, &report(Duration::MAX, START + 99 * DAY), START));
    assert!(matches!(add_at(&mut scheduler, 2, START), AddResult::Down { .. }));
    let opened = loop {
        now += 10 * SECOND;
        drop(scheduler.site_reported(SITE, &report(Duration::MAX, now + 99 * DAY), now));
        if let Some(opened) = opened_with(&mut scheduler, &[(2, 0)], now).first() {
            break *opened;
        }
        assert!(now < START + 2 * HOUR, "it is held for ever");
    };
    assert!(now >= START + HOUR * 3 / 4 && now <= START + HOUR * 5 / 4 + 10 * SECOND, "{:?}", now - START);
    // An own failure gives reports as long again.
    assert_eq!(scheduler.unreachable(opened, Failure::Silent, "timed out", now).len(), 1);
    drop(scheduler.site_reported(SITE, &report(Duration::MAX, now + 99 * DAY), now));
    assert!(until(&scheduler).unwrap() <= now + HOUR * 5 / 4);
}

#[test]
fn an_attempt_of_an_operator_is_made_whatever_others_report() {
    let down = report(HOUR, START + HOUR);
    // Before the report and behind it.
    for is_before in [true, false] {
        let mut scheduler = with_message(Settings::default());
        if is_before {
            scheduler.retry_now(Some(NAME), START);
            assert_eq!(scheduler.site_reported(SITE, &down, START), ReportEffect::Nothing);
            assert_eq!(add_at(&mut scheduler, 2, START), AddResult::Ready);
        } else {
            drop(scheduler.site_reported(SITE, &down, START));
            assert!(matches!(add_at(&mut scheduler, 2, START), AddResult::Down { .. }));
            scheduler.retry_now(Some(NAME), START);
            assert_eq!(scheduler.site_reported(SITE, &down, START), ReportEffect::Nothing);
        }
        let opened = opened_with(&mut scheduler, &[(2, 0)], START);
        assert_eq!(opened.len(), 1, "{is_before}");
        // Its result counts, and reports count again.
        drop(scheduler.unreachable(opened[0], Failure::Refused, "refused", START));
        assert!(matches!(scheduler.site_reported(SITE, &down, START), ReportEffect::PutOff { .. }));
    }
    // Also where the site is known only later.
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    scheduler.restore(NAME, START);
    scheduler.retry_now(Some(NAME), START);
    let mut opened = 0;
    while let Some(action) = scheduler.poll(START) {
        match action {
            Action::Load { destination, .. } => scheduler.page_loaded(destination, &[waiting(2, 1)], true, START),
            Action::Resolve { destination } => {
                let place = SiteAssignment { site: SITE, limits: LIMITS, expected: None, until: START + HOUR };
                assert_eq!(scheduler.resolved(destination, &place, START), []);
                assert_eq!(scheduler.site_reported(SITE, &down, START), ReportEffect::Nothing);
            }
            Action::Open { .. } => opened += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(opened, 1);
}

#[test]
fn nothing_expires_by_a_report_alone() {
    let mut scheduler = Scheduler::new(Settings { warn_after: None, ..Settings::default() }, 1);
    let now = START + 6 * DAY;
    scheduler.restore(NAME, now);
    let (mut opened, mut loads) = (Vec::new(), 0);
    let mut overdue = 0;
    for step in 0..20_u32 {
        let now = now + step * SECOND;
        while let Some(action) = scheduler.poll(now) {
            match action {
                Action::Load { destination, .. } => {
                    loads += 1;
                    scheduler.page_loaded(destination, &[waiting(2, 1), waiting(3, 1)], true, now);
                }
                Action::Resolve { destination } => {
                    let place = SiteAssignment { site: SITE, limits: LIMITS, expected: None, until: now + HOUR };
                    assert_eq!(scheduler.resolved(destination, &place, now), []);
                    let effect = scheduler.site_reported(SITE, &report(HOUR, now + HOUR), now);
                    assert!(matches!(effect, ReportEffect::PutOff { .. }), "{effect:?}");
                }
                Action::Open { connection, .. } => opened.push(connection),
                Action::Overdue { .. } => overdue += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((opened.len(), overdue), (1, 0), "one attempt, and no expiry before it");
    assert!(loads < 20, "{loads}");
    // The attempt of this machine fails: now they expire.
    drop(scheduler.unreachable(opened[0], Failure::Refused, "refused", now + 20 * SECOND));
    for step in 20..40_u32 {
        let now = now + step * SECOND;
        while let Some(action) = scheduler.poll(now) {
            match action {
                Action::Load { destination, .. } => {
                    scheduler.page_loaded(destination, &[waiting(2, 1), waiting(3, 1)], true, now);
                }
                Action::Overdue { recipients, .. } => overdue += recipients.len(),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(overdue, 2);
}

#[test]
fn mail_with_a_deliver_by_time_is_tried_before_it() {
    let one = Positions::One(0);
    for (by, is_held) in [(10 * MINUTE, false), (2 * HOUR, true)] {
        // The time is known before the report.
        let mut scheduler = Scheduler::new(Settings::default(), 1);
        add(&mut scheduler, "a.test", 1);
        scheduler.set_deadline(NAME, id(1), &one, START + by);
        let Some(Action::Resolve { destination }) = scheduler.poll(START) else { panic!("it is not known") };
        let place = SiteAssignment { site: SITE, limits: LIMITS, expected: None, until: START + HOUR };
        assert_eq!(scheduler.resolved(destination, &place, START), []);
        let effect = scheduler.site_reported(SITE, &report(HOUR, START + HOUR), START);
        assert_eq!(matches!(effect, ReportEffect::PutOff { .. }), is_held, "{effect:?}");
        // It comes behind the report.
        let mut scheduler = with_message(Settings::default());
        drop(scheduler.site_reported(SITE, &report(HOUR, START + HOUR), START));
        assert!(matches!(add_at(&mut scheduler, 2, START), AddResult::Down { .. }));
        scheduler.set_deadline(NAME, id(2), &one, START + by);
        let opened = opened_with(&mut scheduler, &[(2, 0)], START);
        assert_eq!(opened.is_empty(), is_held, "{by:?}");
    }
}

#[test]
fn up_of_another_machine_ends_an_own_back_off_once_in_the_longest() {
    let mut scheduler = with_message(Settings::default());
    assert_eq!(add_at(&mut scheduler, 2, START), AddResult::Ready);
    let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
    drop(scheduler.unreachable(connection, Failure::Refused, "refused", START));
    let mut attempts = 0;
    for minute in 0..60 {
        let now = START + minute * MINUTE + SECOND;
        scheduler.site_reported_up(SITE, now);
        for connection in opened_with(&mut scheduler, &[(2, 0)], now) {
            attempts += 1;
            drop(scheduler.unreachable(connection, Failure::Refused, "refused", now));
        }
    }
    // The back-off alone makes about five in an hour.
    assert!((4..=8).contains(&attempts), "{attempts}");
}

#[test]
fn others_hear_of_what_concerns_the_site_alone() {
    let told = |failure: Failure, is_greeted: bool| {
        let mut scheduler = with_message(Settings { learn_pace: false, ..Settings::default() });
        assert_eq!(add_at(&mut scheduler, 2, START), AddResult::Ready);
        let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
        if is_greeted {
            scheduler.greeted(connection, START);
            let job: Job = taken(&mut scheduler, connection, START);
            scheduler.give_back(connection, &job, START);
        }
        drop(scheduler.unreachable(connection, failure, "no", START));
        let changes = scheduler.take_site_changes();
        assert!(until(&scheduler).is_some() && changes.len() < 2, "{changes:?}");
        matches!(changes.first().map(|change| change.result), Some(SiteResult::Down { failure: of, .. }) if of == failure)
    };
    for (failure, before, behind) in [
        (Failure::Refused, true, false),
        (Failure::Silent, true, false),
        (Failure::Tls, true, false),
        (Failure::Throttled, true, true),
        (Failure::Broken, false, false),
        (Failure::Local, false, false),
    ] {
        assert_eq!((told(failure, false), told(failure, true)), (before, behind), "{failure:?}");
    }
    // Without a taker none is kept.
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    add(&mut scheduler, "a.test", 1);
    let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
    drop(scheduler.unreachable(connection, Failure::Refused, "no", START));
    assert_eq!(scheduler.take_site_changes(), []);
}

/// Three nodes with mail for the same dead hosts, which come back in the end. Returns the connections at the dead
/// hosts, and whether all mail was delivered soon after one node had reached them.
fn three_nodes(tells: bool) -> (usize, bool) {
    const HOSTS: usize = 6;
    let settings = Settings { warn_after: None, ..Settings::default() };
    let mut nodes: Vec<Rig> =
        (0..3).map(|seed| Rig::new(settings.clone(), Manner::default(), vec![Host::Dead; HOSTS], seed)).collect();
    for node in &mut nodes {
        node.scheduler.collect_site_changes();
    }
    let step = Duration::from_millis(500);
    let run = |nodes: &mut [Rig], time: Duration| {
        for _ in 0..time.as_millis() / step.as_millis() {
            for at in 0..nodes.len() {
                nodes[at].run(step);
                for (site, wait) in nodes[at].results() {
                    for (_, other) in nodes.iter_mut().enumerate().filter(|(other, _)| tells && *other != at) {
                        other.hear(u16::try_from(at + 1).unwrap(), site, wait);
                    }
                }
            }
        }
    };
    for at in 0..3 {
        for to in 0..HOSTS {
            nodes[at].add(to, 1, false);
        }
        run(&mut nodes, 10 * SECOND);
    }
    // Reports put no attempt off for longer than three quarters of an hour for sure.
    run(&mut nodes, 40 * MINUTE);
    let connections = nodes.iter().flat_map(|node| node.opened.iter()).sum();
    for node in &mut nodes {
        node.hosts.fill(Host::Alive);
    }
    // One node finds out by itself; the others hear of it.
    nodes[0].retry_now(None);
    run(&mut nodes, MINUTE);
    (connections, nodes.iter().all(|node| node.waiting() == 0))
}

#[test]
fn nodes_that_tell_each_other_pay_for_a_dead_host_once() {
    let (alone, together) = (three_nodes(false), three_nodes(true));
    assert!(!alone.1, "without reports each node waits for its own back-off");
    assert!(together.1, "up is told");
    assert!(together.0 * 2 <= alone.0, "{} connections at dead hosts, {} without reports", together.0, alone.0);
}
