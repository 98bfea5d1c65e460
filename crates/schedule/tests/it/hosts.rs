//! Sites with several hosts: the failure of one host does not count against the others, and a peer that may have a
//! whole message is waited for.

use std::time::Duration;

use crate::rig::direct::{act, add, job, opens_one, taken};
use crate::rig::{Host, LAG, LIMITS, Manner, Rig, START};
use schedule::{
    Action, AddResult, Class, ConnectionId, Failure, Feedback, Health, Lag, Lane, NextJob, Scheduler, Settings,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// The peer may have a whole message.
const WHOLE: Lag = Lag { is_whole: true, ..LAG };
/// Other hosts of its site can be tried.
const OTHERS: Lag = Lag { has_others: true, ..LAG };

fn is_down(scheduler: &Scheduler, name: &str) -> bool {
    matches!(scheduler.destination_view(name.as_bytes()).unwrap().health, Health::Down { .. })
}

#[test]
fn a_site_with_a_bad_host_stays_up_in_the_fast_lane_and_delays_only_recipients_tried_there() {
    for host in [Host::HalfStalls, Host::HalfBreaks] {
        let mut rig = Rig::new(Settings::default(), Manner::default(), vec![host], 7);
        let (mut late, mut looked) = (0, 0);
        for _ in 0..1_000 {
            rig.add(0, 1, false);
            rig.run(3 * SECOND);
            // Without waiting mail nothing is known.
            let view = rig.scheduler.destination_view(&Rig::name(0));
            if let Some(view) = view {
                looked += 1;
                assert!(!matches!(view.health, Health::Down { .. }) && view.lane == Lane::Fast, "{host:?}: {view:?}");
            }
            late = late.max(rig.waiting());
        }
        // Its window at once, and then one a minute of the few that wait.
        assert!(late <= 16, "{host:?}: {late} wait at a time");
        assert!(looked >= 500, "{host:?}: {looked}");
        rig.hosts[0] = Host::Alive;
        rig.run(2 * HOUR);
        assert_eq!(rig.waiting(), 0);
    }
}

#[test]
fn jobs_of_a_bad_host_go_first_to_the_next_one() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    (0..3).for_each(|number| add(&mut scheduler, "a", number));
    let (first, _) = opens_one(&mut scheduler, LIMITS, START);
    let one = taken(&mut scheduler, first, START);
    let two = taken(&mut scheduler, first, START);
    scheduler.lagging(first, OTHERS, START);
    scheduler.job_done(first, &one, Feedback::NoReply, Some(START + HOUR), START);
    scheduler.abandon(first, START);
    assert!(!is_down(&scheduler, "a"));
    let (second, lane) = opens_one(&mut scheduler, LIMITS, START);
    assert_eq!((taken(&mut scheduler, second, START), lane), (two, Lane::Fast));
}

/// A probe that found one dead host, and had no time for the others, is followed by another one at once.
#[test]
fn a_site_that_is_down_is_probed_at_its_other_hosts_at_once() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    add(&mut scheduler, "a", 0);
    let (first, _) = opens_one(&mut scheduler, LIMITS, START);
    assert_eq!(scheduler.unreachable(first, Failure::Refused, "refused", START), [job(0)]);
    drop(act(&mut scheduler, LIMITS, START));
    let now = START + SECOND;
    scheduler.retry_now(Some(b"a"), now);
    assert_eq!(scheduler.add(b"a", job(1), Class::Normal, now), AddResult::Ready);
    let opens = |scheduler: &mut Scheduler| {
        let actions = act(scheduler, LIMITS, now);
        let open = |action: &Action| match action {
            Action::Open { connection, .. } => Some(*connection),
            _ => None,
        };
        actions.iter().find_map(open).expect("it is tried")
    };
    let probe = opens(&mut scheduler);
    scheduler.abandon(probe, now);
    assert!(is_down(&scheduler, "a"));
    let again = opens(&mut scheduler);
    scheduler.greeted(again, now);
    assert!(!is_down(&scheduler, "a"));
}

/// Sites with one lagging connection each.
fn all_lag(scheduler: &mut Scheduler, count: u64, lag: impl Fn(u64) -> Lag) -> Vec<ConnectionId> {
    let mut lagging = Vec::new();
    for number in 0..count {
        add(scheduler, &format!("slow-{number}"), number);
        let (connection, _) = opens_one(scheduler, LIMITS, START);
        taken(scheduler, connection, START);
        scheduler.lagging(connection, lag(number), START);
        assert_eq!(act(scheduler, LIMITS, START), []);
        lagging.push(connection);
    }
    lagging
}

// RFC 5321 §4.5.3.2.6 (test)
#[test]
fn peers_with_a_whole_message_are_cancelled_last_and_keep_at_most_half_of_all_places() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 10, ..Settings::default() }, 1);
    // Eight peers have a whole message, and lagged first.
    let lagging = all_lag(&mut scheduler, 10, |number| if number < 8 { WHOLE } else { LAG });
    for (number, expected) in (20..).zip([8, 9, 0, 1, 2]) {
        add(&mut scheduler, &format!("live-{number}"), number);
        assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Close(lagging[expected])]);
        drop(scheduler.closed(lagging[expected], START));
        assert_eq!(opens_one(&mut scheduler, LIMITS, START).1, Lane::Fast);
    }
    // Five are left: they have their ten minutes.
    add(&mut scheduler, "live-30", 30);
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
}

/// The content went out between the action and its execution.
#[test]
fn a_connection_cancelled_too_late_is_waited_for_and_another_one_is_cancelled() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 10, ..Settings::default() }, 1);
    let lagging = all_lag(&mut scheduler, 10, |_| LAG);
    add(&mut scheduler, "live", 20);
    assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Close(lagging[0])]);
    scheduler.lagging(lagging[0], WHOLE, START);
    assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Close(lagging[1])]);
    // A connection that is cancelled later reported this earlier.
    scheduler.lagging(lagging[2], WHOLE, START);
    drop(scheduler.closed(lagging[1], START));
    assert_eq!(opens_one(&mut scheduler, LIMITS, START).1, Lane::Fast);
    add(&mut scheduler, "more", 21);
    assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Close(lagging[3])]);
    // It gets its reply, and ends as requested.
    scheduler.job_done(lagging[0], &job(0), Feedback::Good, None, START);
    assert_eq!(scheduler.next_job(lagging[0], START), NextJob::Close);
    assert_eq!(scheduler.closed(lagging[0], START), []);
}

/// One connection that breaks without a reply is no sign of a pace; nor is a silent one that refused a message before.
#[test]
fn a_pace_is_learned_of_421_alone() {
    for (failure, seconds, is_paced) in [
        (Failure::Throttled, 0, true),
        (Failure::Broken, 5, false),
        (Failure::Silent, 90, false),
        (Failure::Refused, 45, false),
    ] {
        let mut scheduler = Scheduler::new(Settings::default(), 1);
        (0..4).for_each(|number| add(&mut scheduler, "a", number));
        let (first, _) = opens_one(&mut scheduler, LIMITS, START);
        for _ in 0..2 {
            let one = taken(&mut scheduler, first, START);
            scheduler.job_done(first, &one, Feedback::Good, None, START);
        }
        // All of it was accepted, and then both connections end.
        scheduler.abandon(first, START);
        let (second, _) = opens_one(&mut scheduler, LIMITS, START);
        let one = taken(&mut scheduler, second, START);
        scheduler.job_done(second, &one, Feedback::Neutral, None, START);
        let jobs = scheduler.unreachable(second, failure, "no", START);
        assert_eq!(jobs.len(), usize::from(!is_paced), "{failure:?}");
        let view = scheduler.destination_view(b"a").unwrap();
        match view.health {
            Health::Down { until, .. } if !is_paced => {
                assert!(until >= START + seconds * SECOND && until < START + 2 * seconds * SECOND, "{failure:?}");
            }
            other => assert!(is_paced && other == Health::Idle, "{failure:?}: {other:?}"),
        }
    }
}
