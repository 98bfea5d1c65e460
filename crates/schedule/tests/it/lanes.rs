//! Sites and lanes: which destinations share a site, what a silent site costs the others, and when one more connection
//! opens.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::rig::direct::{act, add, id, job, opened, taken, waiting};
use crate::rig::{Host, LAG, LIMITS, Manner, Rig, START};
use mail::QueueId;
use schedule::{
    Action, AddResult, Class, ConnectionId, Failure, Feedback, Health, Job, Lane, Limits, NextJob, Scheduler, Settings,
    SiteAssignment,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_message_to_many_domains_of_one_site_is_one_transaction() {
    // All of them are taken without a reply to the first.
    let mut scheduler = Scheduler::new(Settings { isolate_lists: false, ..Settings::default() }, 1);
    for number in 0..60 {
        let recipients = [2 * number + 1, 2 * number].into_iter().collect();
        let job = Job { message: id(1), recipients, probe: false };
        assert_eq!(scheduler.add(format!("d{number}").as_bytes(), job, Class::Normal, START), AddResult::Ready);
    }
    let mut connection = None;
    while let Some(action) = scheduler.poll(START) {
        match action {
            Action::Resolve { destination } => {
                let place = SiteAssignment { site: b"mx", limits: LIMITS, expected: None, until: START + HOUR };
                assert_eq!(scheduler.resolved(destination, &place, START), []);
            }
            // All are there when the first connection asks.
            Action::Open { connection: opened, .. } => connection = connection.or(Some(opened)),
            other => panic!("{other:?}"),
        }
    }
    let connection = connection.unwrap();
    let (first, second) = (taken(&mut scheduler, connection, START), taken(&mut scheduler, connection, START));
    assert_eq!((first.recipients.len(), second.recipients.len()), (100, 20));
    let all: BTreeSet<u32> = first.recipients.iter().chain(second.recipients.iter()).collect();
    assert_eq!(all, (0..120).collect());
    assert_eq!(scheduler.next_job(connection, START), NextJob::Idle);
    let view = scheduler.site_views(START).next().unwrap();
    assert_eq!((view.destinations, view.in_flight, view.ready), (60, 2, 0));
    scheduler.job_done(connection, &second, Feedback::Good, None, START);
    for recipient in 0..120 {
        let name = format!("d{}", recipient / 2).into_bytes();
        assert_eq!(scheduler.is_active(&name, id(1), recipient), first.recipients.contains(recipient));
    }
    // Untried parts go back, each to its destination, and come again.
    assert_eq!(scheduler.closed(connection, START), []);
    assert_eq!(scheduler.destination_view(b"d0").unwrap().ready, 1);
}

#[test]
fn hung_sites_do_not_delay_live_ones() {
    let (hung, live) = (200, 20);
    let mut hosts = vec![Host::Hung; hung / 2];
    hosts.resize(hung, Host::Stalls);
    hosts.resize(hung + live, Host::Alive);
    let settings = Settings { connections_max: 20, silent_max: 5, ..Settings::default() };
    let mut rig = Rig::new(settings, Manner::default(), hosts, 7);
    for to in 0..hung {
        rig.add(to, 1, false);
    }
    // The first contact costs places; after it they are in the slow lane.
    rig.run(Duration::from_secs(300));
    for _ in 0..60 {
        for to in hung..hung + live {
            rig.add(to, 1, false);
        }
        for to in 0..hung {
            rig.add(to, 1, false);
        }
        rig.run(SECOND);
        let waiting: usize = rig.lists[hung..].iter().map(Vec::len).sum();
        assert_eq!(waiting, 0, "live ones are done within a second, {:?}", rig.now - START);
    }
    assert!(rig.peak <= 25, "{}", rig.peak);
}

#[test]
fn lagging_connections_free_their_places_and_the_longest_is_cancelled_first() {
    let settings = Settings { connections_max: 10, ..Settings::default() };
    let mut scheduler = Scheduler::new(settings, 1);
    let mut lagging = Vec::new();
    for number in 0..10 {
        add(&mut scheduler, &format!("hangs-{number}"), number);
        let now = START + SECOND * u32::try_from(number).unwrap();
        let actions = act(&mut scheduler, LIMITS, now);
        let [(connection, Lane::Fast)] = opened(&actions)[..] else { panic!("{actions:?}") };
        taken(&mut scheduler, connection, now);
        scheduler.lagging(connection, LAG, now);
        assert_eq!(act(&mut scheduler, LIMITS, now), []);
        lagging.push(connection);
    }
    // All places are held by lagging connections. Two more sites need two places.
    add(&mut scheduler, "x", 20);
    assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Close(lagging[0])]);
    add(&mut scheduler, "y", 21);
    assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Close(lagging[1])]);
    let jobs = scheduler.closed(lagging[0], START);
    assert_eq!(jobs, [job(0)], "it hung: its site is down");
    let actions = act(&mut scheduler, LIMITS, START);
    assert_eq!(opened(&actions).len(), 1, "{actions:?}");
    let Some(view) = scheduler.destination_view(b"hangs-0") else { panic!("its mail waits") };
    assert!(matches!(view.health, Health::Down { .. }) && view.lane == Lane::Slow, "{view:?}");
    assert_eq!(scheduler.closed(lagging[1], START), [job(1)]);
    assert_eq!(opened(&act(&mut scheduler, LIMITS, START)).len(), 1);
}

/// A connection that hangs with its last job was told to close. That alone makes no room.
#[test]
fn a_connection_that_hangs_with_its_last_job_is_cancelled_too() {
    let limits = Limits { messages_per_connection: 1, ..LIMITS };
    let mut scheduler = Scheduler::new(Settings { connections_max: 10, ..Settings::default() }, 1);
    let mut hanging = Vec::new();
    for number in 0..10 {
        add(&mut scheduler, &format!("hangs-{number}"), number);
        let actions = act(&mut scheduler, limits, START);
        let [(connection, Lane::Fast)] = opened(&actions)[..] else { panic!("{actions:?}") };
        taken(&mut scheduler, connection, START);
        assert_eq!(scheduler.next_job(connection, START), NextJob::Close);
        scheduler.lagging(connection, LAG, START);
        hanging.push(connection);
    }
    // One place belongs to the slow lane.
    for (number, hanging) in (20..29).zip(hanging) {
        add(&mut scheduler, &format!("live-{number}"), number);
        assert_eq!(act(&mut scheduler, limits, START), [Action::Close(hanging)]);
        assert_eq!(act(&mut scheduler, limits, START), [], "room is coming");
        assert!(!scheduler.closed(hanging, START).is_empty(), "it hung: its site is down");
        assert_eq!(opened(&act(&mut scheduler, limits, START)).len(), 1);
    }
}

#[test]
fn a_site_comes_back_to_the_fast_lane_by_a_job_in_good_time() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    (0..40).for_each(|number| add(&mut scheduler, "a", number));
    let connections = opened(&act(&mut scheduler, LIMITS, START));
    let lane = |scheduler: &Scheduler| scheduler.destination_view(b"a").unwrap().lane;
    let done = |scheduler: &mut Scheduler, connection, job: &Job| {
        scheduler.job_done(connection, job, Feedback::Neutral, None, START);
    };
    let (first, second) = (connections[0].0, connections[1].0);
    let one = taken(&mut scheduler, first, START);
    scheduler.lagging(first, LAG, START);
    assert_eq!(lane(&scheduler), Lane::Slow);
    done(&mut scheduler, first, &one);
    assert_eq!(lane(&scheduler), Lane::Slow, "that job was late");
    let one = taken(&mut scheduler, first, START);
    done(&mut scheduler, first, &one);
    assert_eq!(lane(&scheduler), Lane::Fast);
    // Silence before the greeting counts too, a refusal does not.
    assert_eq!(scheduler.unreachable(second, Failure::Refused, "refused", START), []);
    assert_eq!(lane(&scheduler), Lane::Fast);
    assert_eq!(scheduler.unreachable(connections[2].0, Failure::Silent, "timed out", START), []);
    assert_eq!(lane(&scheduler), Lane::Slow);
}

#[test]
fn a_lagging_connection_of_the_slow_lane_stays_there() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    (0..3).for_each(|number| add(&mut scheduler, "a", number));
    let [(connection, Lane::Fast)] = opened(&act(&mut scheduler, LIMITS, START))[..] else { panic!("one opens") };
    for (lags, lane) in [(true, Lane::Slow), (true, Lane::Slow), (false, Lane::Fast)] {
        let one = taken(&mut scheduler, connection, START);
        if lags {
            scheduler.lagging(connection, LAG, START);
        }
        scheduler.job_done(connection, &one, Feedback::Good, None, START);
        assert_eq!(scheduler.destination_view(b"a").unwrap().lane, lane);
    }
}

#[test]
fn a_site_that_never_answers_is_down_and_stays_in_the_slow_lane() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    (0..2).for_each(|number| add(&mut scheduler, "a", number));
    let retry = START + HOUR * 24;
    let (mut now, mut lanes) = (START, Vec::new());
    for number in 0..2 {
        let mut actions = act(&mut scheduler, LIMITS, now);
        if let [Action::Load { destination, .. }] = actions[..] {
            scheduler.page_loaded(destination, &[waiting(number, 0)], true, now);
            actions = act(&mut scheduler, LIMITS, now);
        }
        let [(connection, lane)] = opened(&actions)[..] else { panic!("{actions:?}") };
        lanes.push(lane);
        let one = taken(&mut scheduler, connection, now);
        scheduler.lagging(connection, LAG, now);
        now += 600 * SECOND;
        scheduler.job_done(connection, &one, Feedback::NoReply, Some(retry), now);
        assert_eq!(scheduler.closed(connection, now).len(), usize::from(number == 0), "the other one leaves memory");
        let view = scheduler.destination_view(b"a").unwrap();
        let Health::Down { until, .. } = view.health else { panic!("{view:?}") };
        assert_eq!(view.lane, Lane::Slow);
        // The list is checked for overdue mail before that.
        for action in act(&mut scheduler, LIMITS, now) {
            let Action::Load { destination, .. } = action else { panic!("{action:?}") };
            scheduler.page_loaded(destination, &[], true, now);
        }
        scheduler.restore(b"a", now);
        assert_eq!(act(&mut scheduler, LIMITS, now), []);
        now = until;
    }
    assert_eq!(lanes, [Lane::Fast, Lane::Slow]);
}

#[test]
fn a_cancelled_lagging_connection_is_a_failure_of_its_site() {
    let settings = Settings { connections_max: 1, ..Settings::default() };
    let mut scheduler = Scheduler::new(settings, 1);
    let mut first = None;
    for number in 0..3 {
        add(&mut scheduler, &format!("hangs-{number}"), number);
        let actions = act(&mut scheduler, LIMITS, START);
        let Some(&(connection, _)) = opened(&actions).first() else {
            let (cancelled, one) = first.unwrap();
            assert_eq!(actions, [Action::Close(cancelled)]);
            scheduler.job_done(cancelled, &one, Feedback::NoReply, Some(START + HOUR), START);
            assert_eq!(scheduler.closed(cancelled, START), []);
            let view = scheduler.destination_view(b"hangs-0").unwrap();
            return assert!(matches!(view.health, Health::Down { .. }) && view.lane == Lane::Slow, "{view:?}");
        };
        let one = taken(&mut scheduler, connection, START);
        scheduler.lagging(connection, LAG, START);
        first = first.or(Some((connection, one)));
    }
    panic!("nobody was called off");
}

#[test]
fn one_or_two_connections_serve_both_lanes_and_are_never_more() {
    for most in [1, 2] {
        let settings = Settings { connections_max: most, silent_max: 0, ..Settings::default() };
        let hosts = vec![Host::Alive, Host::Crawls, Host::Hung, Host::Alive, Host::Crawls];
        let mut rig = Rig::new(settings, Manner::default(), hosts, 7);
        rig.limits.iter_mut().for_each(|limits| limits.messages_per_connection = 50);
        let mut crawling = Vec::new();
        for second in 0..3_600_u32 {
            // Endless work in the fast lane.
            rig.add(0, 1, false);
            rig.add(3, 1, false);
            if second % 600 == 0 {
                crawling.extend([1, 4].map(|to| rig.add(to, 1, false)));
                rig.add(2, 1, false);
            }
            rig.run(SECOND);
        }
        assert_eq!(rig.peak, most);
        rig.run(HOUR);
        let is_over = |id: &QueueId| rig.delivered.contains_key(&(*id, 0));
        assert!(crawling.iter().all(is_over), "{most}: {:?}", rig.lists.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!((rig.lists[0].len(), rig.lists[3].len()), (0, 0), "{most}");
        assert!(rig.opened[2] > 1, "{most}: {}", rig.opened[2]);
    }
}

#[test]
fn the_slow_lane_has_a_tenth_and_waits_longer() {
    let settings = Settings { connections_max: 60, ..Settings::default() };
    let mut rig = Rig::new(settings, Manner::default(), vec![Host::Hung; 40], 7);
    (0..40).for_each(|to| {
        rig.add(to, 1, false);
    });
    rig.run(60 * SECOND);
    let first: usize = rig.opened.iter().sum();
    assert_eq!(first, 40, "each was asked once, five seconds each");
    let until = |to: usize| match rig.scheduler.destination_view(&Rig::name(to)).unwrap().health {
        Health::Down { until, .. } => until - START,
        other => panic!("{other:?}"),
    };
    assert!((0..40).all(|to| until(to) >= 90 * SECOND), "twice as long as one that refuses");
    rig.run(600 * SECOND);
    assert!(rig.opened.iter().sum::<usize>() > first);
    assert_eq!(rig.slow_peak, 6, "of sixty");
    let view = rig.scheduler.site_views(rig.now).next().unwrap();
    assert_eq!((view.lane, view.connections <= 1), (Lane::Slow, true));
}

#[test]
fn ten_small_messages_need_two_connections_and_a_storm_gets_twenty() {
    let mut rig = Rig::new(Settings::default(), Manner::default(), vec![Host::Alive], 7);
    rig.manner.service = 60 * MS;
    (0..10).for_each(|_| {
        rig.add(0, 1, false);
    });
    rig.run(SECOND);
    assert_eq!((rig.waiting(), rig.opened[0]), (0, 2));
    // Twenty sessions with a message in 20 ms each: a thousand per second.
    rig.run(HOUR);
    let mut rig = Rig::new(Settings::default(), Manner::default(), vec![Host::Alive], 7);
    rig.manner.service = 20 * MS;
    for _ in 0..700 {
        rig.add(0, 1, false);
        rig.run(MS);
    }
    let view = rig.scheduler.destination_view(&Rig::name(0)).unwrap();
    assert!(view.connections >= 18, "{view:?}");
}

#[test]
fn a_message_that_needs_many_transactions_gets_connections_for_them() {
    let settings = Settings { jobs_per_connection: 8, ..Settings::default() };
    let mut rig = Rig::new(settings, Manner::default(), vec![Host::Alive], 7);
    rig.limits[0].recipients_per_transaction = 2;
    rig.manner.service = SECOND;
    rig.add(0, 100, false);
    rig.run(2 * SECOND);
    assert!(rig.opened[0] >= 5, "{}", rig.opened[0]);
    rig.run(10 * SECOND);
    assert_eq!(rig.waiting(), 0, "fifty transactions");
    assert!(rig.opened[0] <= 8, "not one for each: {}", rig.opened[0]);
}

#[test]
fn a_job_that_waits_too_long_gets_a_connection_of_its_own() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    add(&mut scheduler, "a", 0);
    let [(first, _)] = opened(&act(&mut scheduler, LIMITS, START))[..] else { panic!("the first opens") };
    taken(&mut scheduler, first, START);
    add(&mut scheduler, "a", 1);
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
    assert_eq!(scheduler.wake_at(), Some(START + 500 * MS));
    let later = START + 500 * MS;
    assert_eq!(opened(&act(&mut scheduler, LIMITS, later)).len(), 1);
    assert_eq!(act(&mut scheduler, LIMITS, later + SECOND), [], "one is on its way");
}

#[test]
fn a_site_known_to_be_fast_gets_a_connection_before_an_unknown_one() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 1, ..Settings::default() }, 1);
    add(&mut scheduler, "busy", 0);
    let [(busy, _)] = opened(&act(&mut scheduler, LIMITS, START))[..] else { panic!("the first opens") };
    taken(&mut scheduler, busy, START);
    add(&mut scheduler, "unknown", 1);
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
    add(&mut scheduler, "known-fast-late", 2);
    let late = START + 300 * MS;
    assert_eq!(act(&mut scheduler, LIMITS, late), []);
    add(&mut scheduler, "known-fast", 3);
    assert_eq!(act(&mut scheduler, LIMITS, START + 200 * MS), []);
    let mut order = Vec::new();
    let mut last = busy;
    for _ in 0..3 {
        assert_eq!(scheduler.closed(last, late).len(), usize::from(last == busy));
        let actions = act(&mut scheduler, LIMITS, late);
        let [Action::Open { site, connection, .. }, ..] = actions[..] else { panic!("{actions:?}") };
        order.push(String::from_utf8(scheduler.site_name(site).unwrap().to_vec()).unwrap());
        let one = taken(&mut scheduler, connection, late);
        scheduler.job_done(connection, &one, Feedback::Good, None, late);
        last = connection;
    }
    assert_eq!(order, ["known-fast", "unknown", "known-fast-late"]);
}

/// Returns the sites whose connections open each time the last one ends, until none waits.
fn order_of_opening(scheduler: &mut Scheduler, mut last: ConnectionId, now: Duration) -> Vec<String> {
    let mut order = Vec::new();
    loop {
        drop(scheduler.closed(last, now));
        let actions = act(scheduler, LIMITS, now);
        let Some(Action::Open { site, connection, .. }) =
            actions.iter().find(|action| matches!(action, Action::Open { .. }))
        else {
            return order;
        };
        order.push(String::from_utf8(scheduler.site_name(*site).unwrap().to_vec()).unwrap());
        last = *connection;
        let one = taken(scheduler, last, now);
        scheduler.lagging(last, LAG, now);
        scheduler.job_done(last, &one, Feedback::Good, None, now);
    }
}

/// Returns the actions besides `Resolve` and `Load`. The list of each dead host has one message, of its number.
fn lists(scheduler: &mut Scheduler, now: Duration) -> Vec<Action> {
    let (mut actions, mut others) = (act(scheduler, LIMITS, now), Vec::new());
    while let Some(action) = actions.pop() {
        let Action::Load { destination, .. } = action else {
            others.push(action);
            continue;
        };
        let name = String::from_utf8(scheduler.destination_name(destination).unwrap().to_vec()).unwrap();
        let number = name.strip_prefix("dead-").unwrap().parse().unwrap();
        scheduler.page_loaded(destination, &[waiting(number, 0)], true, now);
        actions.extend(act(scheduler, LIMITS, now));
    }
    others
}

#[test]
fn a_probe_takes_no_place_of_what_is_alive_while_the_slow_lane_has_one() {
    // Eighteen of the fast lane and two of the slow one.
    for (dead, closed) in [(2, 0), (3, 1)] {
        let mut scheduler = Scheduler::new(Settings { connections_max: 20, ..Settings::default() }, 1);
        for number in 0..dead {
            add(&mut scheduler, &format!("dead-{number}"), number);
            let [(connection, Lane::Fast)] = opened(&lists(&mut scheduler, START))[..] else { panic!("it is unknown") };
            assert_eq!(scheduler.unreachable(connection, Failure::Refused, "refused", START).len(), 1);
        }
        for number in 10..28 {
            add(&mut scheduler, &format!("live-{number}"), number);
            let [(connection, Lane::Fast)] = opened(&lists(&mut scheduler, START))[..] else { panic!("it is unknown") };
            let one = taken(&mut scheduler, connection, START);
            scheduler.job_done(connection, &one, Feedback::Good, None, START);
            assert_eq!(scheduler.next_job(connection, START), NextJob::Idle);
        }
        assert_eq!(lists(&mut scheduler, START), []);
        let now = START + 600 * SECOND;
        let actions = lists(&mut scheduler, now);
        let probes = opened(&actions);
        assert_eq!(probes.iter().map(|(_, lane)| *lane).collect::<Vec<_>>(), [Lane::Fast; 2], "{actions:?}");
        let closing = actions.iter().filter(|action| matches!(action, Action::Close(_))).count();
        assert_eq!(closing, closed, "only who finds both lanes full needs the place of an idle one: {actions:?}");
        // One host is up again and gets its mail; the next waiter gets its place afterwards.
        let one = taken(&mut scheduler, probes[0].0, now);
        scheduler.job_done(probes[0].0, &one, Feedback::Good, None, now);
        assert_eq!(scheduler.closed(probes[0].0, now), []);
        assert_eq!(opened(&lists(&mut scheduler, now)).len(), closed);
    }
}

#[test]
fn a_live_site_in_the_slow_lane_does_not_wait_behind_dead_ones() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 10, ..Settings::default() }, 1);
    for number in 0..4 {
        add(&mut scheduler, &format!("dead-{number}"), number);
        let [(connection, Lane::Fast)] = opened(&lists(&mut scheduler, START))[..] else { panic!("it is unknown") };
        assert_eq!(scheduler.unreachable(connection, Failure::Silent, "timed out", START).len(), 1);
    }
    assert_eq!(lists(&mut scheduler, START), []);
    // A dead site has the only place of the lane, and three sites wait for it.
    let now = START + 600 * SECOND;
    let [(probe, Lane::Slow)] = opened(&lists(&mut scheduler, now))[..] else { panic!("one may probe") };
    for number in 10..16 {
        let name = format!("live-{number}");
        add(&mut scheduler, &name, number);
        let [(connection, Lane::Fast)] = opened(&lists(&mut scheduler, now))[..] else { panic!("it is unknown") };
        let one = taken(&mut scheduler, connection, now);
        scheduler.lagging(connection, LAG, now);
        scheduler.job_done(connection, &one, Feedback::Good, None, now);
        assert_eq!(scheduler.closed(connection, now), []);
        add(&mut scheduler, &name, 10 + number);
        assert_eq!(lists(&mut scheduler, now + SECOND), [], "the lane is full");
    }
    let order = order_of_opening(&mut scheduler, probe, now + SECOND);
    let live: Vec<usize> = (0..order.len()).filter(|at| order[*at].starts_with("live")).collect();
    assert_eq!((live, order.len()), (vec![0, 1, 2, 3, 5, 6], 9), "{order:?}");
}

#[test]
fn the_line_keeps_its_order_while_other_things_are_asked() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 3, resolves_max: 1, ..Settings::default() }, 1);
    let mut busy = Vec::new();
    for (number, name) in (0..).zip(["busy", "busy-too", "a", "b"]) {
        add(&mut scheduler, name, number);
        let now = START + SECOND / 10 * u32::try_from(number).unwrap();
        busy.extend(opened(&act(&mut scheduler, LIMITS, now)));
    }
    assert_eq!(busy.len(), 2);
    ["y", "z"].iter().for_each(|name| add(&mut scheduler, name, 9));
    let now = START + SECOND / 2;
    let Some(Action::Resolve { destination }) = scheduler.poll(now) else { panic!("one is asked") };
    assert_eq!(scheduler.poll(now), None);
    let place = SiteAssignment { site: b"y", limits: LIMITS, expected: None, until: now };
    assert_eq!(scheduler.resolved(destination, &place, now), []);
    for (connection, _) in busy {
        assert_eq!(scheduler.unreachable(connection, Failure::Refused, "refused", now).len(), 1);
    }
    let mut order = Vec::new();
    for action in act(&mut scheduler, LIMITS, now) {
        if let Action::Open { site, .. } = action {
            order.push(String::from_utf8(scheduler.site_name(site).unwrap().to_vec()).unwrap());
        }
    }
    assert_eq!(order[..2], ["a", "b"], "{order:?}");
}

#[test]
fn a_site_with_a_rate_gets_no_more_and_needs_no_second_connection() {
    let mut rig = Rig::new(Settings::default(), Manner::default(), vec![Host::Alive], 7);
    rig.limits[0] = Limits { messages_per_second: Some(2_500), ..LIMITS };
    (0..100).for_each(|_| {
        rig.add(0, 1, false);
    });
    rig.run(20 * SECOND);
    // The rig checks each window of time. Two at once, and then one in 0.4 s.
    assert!((50..=52).contains(&rig.delivered.len()), "{}", rig.delivered.len());
    assert!(rig.opened[0] <= 2, "{}", rig.opened[0]);
    rig.run(25 * SECOND);
    assert_eq!(rig.waiting(), 0);
    // A bucket outlives its site.
    let before = rig.taken;
    rig.limits[0].messages_per_second = Some(1);
    for _ in 0..20 {
        rig.add(0, 1, false);
        rig.run(300 * SECOND);
    }
    assert!(rig.taken - before <= 8, "{}", rig.taken - before);
}

#[test]
fn mail_moves_with_its_destination() {
    let mut rig =
        Rig::with_sites(Settings::default(), Manner::default(), vec![Host::Stalls, Host::Alive], vec![0, 0, 1], 7);
    (0..50).for_each(|_| {
        rig.add(0, 1, false);
        rig.add(1, 1, false);
    });
    rig.run(SECOND);
    assert_eq!(rig.delivered.len(), 0);
    rig.sites[0] = 1;
    rig.scheduler.reconfigure(rig.settings.clone(), rig.now);
    rig.retry_now(Some(0));
    rig.run(5 * SECOND);
    // Jobs in flight at the old site stay there.
    assert!(
        rig.lists[0].len() <= 5 && rig.lists[1].len() == 50,
        "{:?}",
        rig.lists.iter().map(Vec::len).collect::<Vec<_>>()
    );
}

#[test]
fn a_domain_that_left_a_dead_site_is_found_at_its_new_one() {
    let mut rig =
        Rig::with_sites(Settings::default(), Manner::default(), vec![Host::Dead, Host::Alive], vec![0; 40], 7);
    (0..40).for_each(|to| {
        rig.add(to, 2, false);
    });
    rig.run(HOUR);
    assert_eq!(rig.delivered.len(), 0);
    rig.sites[33] = 1;
    let asked = rig.resolved;
    rig.run(HOUR / 2);
    assert_eq!(rig.delivered.len(), 2, "it need not be the one that probes");
    assert!(rig.resolved - asked < 40 * 6, "{}", rig.resolved - asked);
}

#[test]
fn all_domains_of_a_site_come_when_it_is_up_again() {
    let mut rig = Rig::with_sites(Settings::default(), Manner::default(), vec![Host::Dead], vec![0; 300], 7);
    for to in 0..300 {
        (0..5).for_each(|_| {
            rig.add(to, 1, false);
        });
    }
    rig.run(6 * HOUR);
    let probes = rig.opened[0];
    assert!(probes < 30, "one probe at a time for all of them: {probes}");
    rig.hosts[0] = Host::Alive;
    rig.run(2 * HOUR);
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn a_site_that_is_another_at_each_connection_costs_one_connection_for_each_answer_and_its_mail_goes() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    add(&mut scheduler, "a", 0);
    let (mut opens, mut sites) = (0, BTreeSet::new());
    let taken = 'taken: loop {
        for action in act(&mut scheduler, LIMITS, START) {
            let Action::Open { site, connection, .. } = action else { panic!("{action:?}") };
            sites.insert(scheduler.site_name(site).unwrap().to_vec());
            opens += 1;
            if opens > 20 {
                scheduler.greeted(connection, START);
                break 'taken scheduler.next_job(connection, START);
            }
            let id = scheduler.destination_id(b"a").unwrap();
            let name = format!("mx-{opens}").into_bytes();
            let place = SiteAssignment { site: &name, limits: LIMITS, expected: None, until: START };
            assert_eq!(scheduler.resolved(id, &place, START), []);
            scheduler.abandon(connection, START);
        }
    };
    assert_eq!((opens, sites.len()), (21, 21), "one connection for each answer");
    assert!(matches!(taken, NextJob::Job(_)), "{taken:?}");
    assert_eq!(scheduler.site_views(START).count(), 1, "the sites without a destination are forgotten");
}

#[test]
fn one_domain_that_moved_does_not_move_the_others_of_its_site() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    let place = |scheduler: &mut Scheduler, destination, site: &[u8]| {
        let place = SiteAssignment { site, limits: LIMITS, expected: None, until: START + HOUR };
        assert_eq!(scheduler.resolved(destination, &place, START), []);
    };
    (0..40).for_each(|number| add(&mut scheduler, &format!("d{number}"), number));
    let mut opens = Vec::new();
    while let Some(action) = scheduler.poll(START) {
        match action {
            Action::Resolve { destination } => place(&mut scheduler, destination, b"mx"),
            Action::Open { site, connection, .. } => {
                opens.push((connection, scheduler.example_destination(site).unwrap().to_vec()));
            }
            other => panic!("{other:?}"),
        }
    }
    let (connection, moved) = opens[0].clone();
    let id = scheduler.destination_id(&moved).unwrap();
    place(&mut scheduler, id, b"new");
    scheduler.abandon(connection, START);
    let before = opens.len();
    while let Some(action) = scheduler.poll(START) {
        match action {
            Action::Open { site, connection, .. } => {
                let site = scheduler.site_name(site).unwrap().to_vec();
                opens.push((connection, site));
            }
            other => panic!("{other:?}"),
        }
    }
    let mut sites: Vec<&[u8]> = opens[before..].iter().map(|(_, site)| &**site).collect();
    sites.sort_unstable();
    assert_eq!(sites, [&b"mx"[..], b"new"], "the others get another connection");
    let counts: Vec<usize> = scheduler.site_views(START).map(|site| site.ready).collect();
    assert_eq!(counts, [39, 1]);
}

#[test]
fn a_destination_that_cannot_be_resolved_backs_off_and_keeps_no_memory() {
    let mut rig =
        Rig::new(Settings { resolves_max: 4, ..Settings::default() }, Manner::default(), vec![Host::Alive; 100], 7);
    rig.dns.fill(false);
    for to in 0..100 {
        rig.add(to, 3, false);
    }
    rig.run(10 * SECOND);
    assert_eq!(rig.resolved, 100);
    assert!(
        rig.scheduler.destination_views().all(|view| view.ready == 0 && matches!(view.health, Health::Down { .. }))
    );
    rig.run(4 * HOUR);
    assert!(rig.resolved < 100 * 12, "{}", rig.resolved);
    rig.dns.fill(true);
    rig.run(HOUR + HOUR / 2);
    assert_eq!(rig.waiting(), 0);
}
