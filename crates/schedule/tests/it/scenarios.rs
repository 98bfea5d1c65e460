//! Single situations with a known outcome: the cost of a host that is dead, crowded or slow, and of a long list.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::rig::direct::{id, job, next_at, waiting};
use crate::rig::{Host, LIMITS, Manner, Rig, START};
use mail::QueueId;
use schedule::{
    Action, AddResult, Class, ConnectionId, DestinationId, Failure, Feedback, Health, Job, Limits, NextJob, Overdue,
    Positions, QueueEntry, ResolveFailure, RetryPolicy, Scheduler, Settings,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn rig(settings: Settings, hosts: Vec<Host>) -> Rig {
    Rig::new(settings, Manner::default(), hosts, 7)
}

/// Returns the next action when all mail goes to one site.
fn next(scheduler: &mut Scheduler, limits: Limits, now: Duration) -> Option<Action> {
    next_at(scheduler, Some(b"mx:25"), limits, now)
}

/// Opens and greets the first connection.
fn greeted(scheduler: &mut Scheduler, limits: Limits) -> ConnectionId {
    let Some(Action::Open { connection, .. }) = next(scheduler, limits, START) else { panic!("one is wanted") };
    scheduler.greeted(connection, START);
    connection
}

#[test]
fn a_site_whose_work_waits_shows_since_when_and_why() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 2, ..Settings::default() }, 1);
    let at = |step: u64| START + Duration::from_millis(step);
    for (number, name) in [(1, b"a.test"), (2, b"b.test")] {
        let now = at(number);
        assert_eq!(scheduler.add(name, job(number), Class::Normal, now), AddResult::Ready);
        assert_eq!(scheduler.site_view(name, now), None, "its hosts are not known");
        while let Some(action) = next_at(&mut scheduler, None, LIMITS, now) {
            assert!(matches!(action, Action::Open { .. }), "{action:?}");
        }
    }
    let since = |scheduler: &Scheduler, name: &[u8]| scheduler.site_view(name, at(9)).unwrap().waits_since;
    // One place is reserved for the slow lane.
    assert_eq!(since(&scheduler, b"a.test"), None);
    assert_eq!(since(&scheduler, b"b.test"), Some(at(2)));
    scheduler.reconfigure(Settings { connections_max: 20, ..Settings::default() }, at(3));
    while next_at(&mut scheduler, None, LIMITS, at(3)).is_some() {}
    assert_eq!(since(&scheduler, b"b.test"), None, "it has one");
    // The tokens of the rule are spent.
    let limits = Limits { messages_per_second: Some(1_000), ..LIMITS };
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    for number in 1..=2 {
        assert_eq!(scheduler.add(b"c.test", job(number), Class::Normal, START), AddResult::Ready);
    }
    let connection = greeted(&mut scheduler, limits);
    let waits = |scheduler: &Scheduler, now| scheduler.site_view(b"c.test", now).unwrap().waits_for_rate;
    assert!(!waits(&scheduler, START));
    assert!(matches!(scheduler.next_job(connection, START), NextJob::Job(_)));
    assert!(waits(&scheduler, START) && !waits(&scheduler, START + 2 * SECOND));
}

#[test]
fn mail_for_a_dead_host_is_warned_of_once_and_given_up_once_in_time() {
    let mut rig = rig(Settings::default(), vec![Host::Dead]);
    for _ in 0..500 {
        rig.add(0, 3, false);
        rig.run(SECOND);
    }
    rig.run(4 * HOUR + 10 * SECOND);
    assert_eq!((rig.warned.len(), rig.given_up.len()), (1_500, 0));
    let late = |told: &BTreeMap<(QueueId, u32), Duration>, after: Duration| {
        told.iter().map(|((id, _), at)| *at - Duration::from_micros(id.unix_us()) - after).max().unwrap()
    };
    assert!(late(&rig.warned, 4 * HOUR) < 10 * SECOND, "{:?}", late(&rig.warned, 4 * HOUR));
    rig.run(5 * DAY);
    assert_eq!((rig.given_up.len(), rig.waiting(), rig.taken), (1_500, 0, 0));
    assert!(late(&rig.given_up, 5 * DAY) < 10 * SECOND, "{:?}", late(&rig.given_up, 5 * DAY));
    // The first contact opens a window of connections; then one probe per back-off, about hourly.
    assert!((5..170).contains(&rig.opened[0]), "{}", rig.opened[0]);
    assert_eq!(rig.scheduler.destination_views().count(), 0);
}

#[test]
fn a_fault_of_our_own_resolver_costs_no_destination_anything() {
    let settings = Settings { warn_after: None, ..Settings::default() };
    for blame in [ResolveFailure::Resolver, ResolveFailure::Domain] {
        let mut rig = rig(settings.clone(), vec![Host::Alive; 200]);
        rig.dns.fill(false);
        rig.blame = blame;
        for to in 0..200 {
            rig.add(to, 1, false);
        }
        rig.run(5 * HOUR);
        let before = rig.resolved;
        rig.dns.fill(true);
        rig.scheduler.resolver_recovered(rig.now);
        rig.run(3 * SECOND);
        let (soon, is_ours) = (rig.resolved - before, blame == ResolveFailure::Resolver);
        assert!(soon < 40, "not all at once: {soon}");
        rig.run(40 * SECOND);
        assert_eq!(rig.waiting() == 0, is_ours, "{blame:?}: {}", rig.waiting());
    }
}

/// Checks that each deliver-by time was acted on as soon as the driver answered; within `most` for the few that were
/// being tried.
fn assert_in_time(rig: &Rig, most: Duration) {
    let late = || rig.too_late.iter().map(|((message, _), at)| *at - rig.by_times[message]);
    assert!(late().all(|late| late < most), "{:?}", late().max());
    let tried = late().filter(|late| *late > 3 * SECOND).count();
    assert!(tried < 12, "{tried} were late");
}

#[test]
fn the_end_of_a_time_given_by_a_sender_is_acted_on_when_it_comes_although_nothing_is_tried() {
    let settings = Settings { warn_after: None, ..Settings::default() };
    let mut rig = rig(settings, vec![Host::Dead]);
    for number in 0..2_000_u64 {
        rig.by = (number % 2 == 0).then(|| 3 * HOUR + SECOND * u32::try_from(number * 7 % 1_000).unwrap());
        rig.add(0, 2, false);
        rig.run(Duration::from_millis(100));
    }
    rig.run(2 * HOUR);
    assert_eq!(rig.too_late.len(), 0);
    rig.run(HOUR + 1_300 * SECOND);
    assert_eq!((rig.too_late.len(), rig.waiting()), (2_000, 2_000));
    // A message that is the probe at that time ends first.
    assert_in_time(&rig, 5 * SECOND);
    // One scan for each probe, not for each time.
    assert!(rig.loads < 200, "{}", rig.loads);
    rig.run(DAY);
    assert_eq!((rig.too_late.len(), rig.waiting()), (2_000, 2_000));
}

#[test]
fn times_given_by_senders_are_known_again_after_a_start() {
    let mut rig = rig(Settings::default(), vec![Host::Hung]);
    for number in 0..1_000 {
        rig.by = Some(HOUR + SECOND * number);
        rig.add(0, 1, false);
    }
    rig.run(SECOND);
    rig.restart();
    rig.run(3 * HOUR);
    assert_eq!(rig.too_late.len(), 1_000);
    assert_in_time(&rig, 125 * SECOND);
}

#[test]
fn a_time_that_ends_while_its_message_is_in_flight_is_left_to_the_attempt() {
    for is_tried in [true, false] {
        let mut scheduler = Scheduler::new(Settings::default(), 1);
        assert_eq!(scheduler.add(b"d", job(1), Class::Normal, START), AddResult::Ready);
        scheduler.set_deadline(b"d", id(1), &Positions::One(0), START + SECOND);
        let connection = greeted(&mut scheduler, LIMITS);
        assert!(matches!(scheduler.next_job(connection, START), NextJob::Job(_)));
        let after = START + 2 * SECOND;
        assert_eq!(next(&mut scheduler, LIMITS, after), None);
        if is_tried {
            scheduler.job_done(connection, &job(1), Feedback::Good, None, after);
            assert_eq!(next(&mut scheduler, LIMITS, after + DAY), None);
            continue;
        }
        // It was given back: another connection follows soon.
        scheduler.give_back(connection, &job(1), after);
        let told = std::iter::from_fn(|| next(&mut scheduler, LIMITS, after + 10 * SECOND))
            .find(|action| matches!(action, Action::Overdue { .. }));
        assert!(matches!(told, Some(Action::Overdue { kind: Overdue::ByTime, .. })), "{told:?}");
    }
}

#[test]
fn senders_of_many_lists_are_told_a_bounded_number_at_a_time() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    (0..40).for_each(|number: u32| scheduler.restore(format!("d{number}").as_bytes(), START));
    let now = START + 10 * DAY;
    let mut lists: BTreeMap<DestinationId, Vec<QueueEntry>> = BTreeMap::new();
    let (mut open, mut most, mut told, mut at) = (VecDeque::new(), 0, 0, now);
    while told < 40 * 200 {
        while let Some(action) = scheduler.poll(at) {
            match action {
                Action::Load { destination, after, limit } => {
                    let due = u32::try_from(now.as_secs()).unwrap() + 86_400;
                    let list = lists
                        .entry(destination)
                        .or_insert_with(|| (0..200).map(|number| waiting(number, due)).collect());
                    let start =
                        after.and_then(|after| list.iter().position(|one| *one == after)).map_or(0, |at| at + 1);
                    let page: Vec<QueueEntry> = list.iter().skip(start).take(limit).copied().collect();
                    scheduler.page_loaded(destination, &page, start + page.len() == list.len(), at);
                }
                Action::Overdue { destination, message, recipients, kind: Overdue::GiveUp } => {
                    open.push_back((destination, message, recipients));
                }
                other => panic!("{other:?}"),
            }
        }
        most = most.max(open.len());
        for (destination, message, recipients) in open.drain(..open.len().min(500)) {
            lists.get_mut(&destination).unwrap().retain(|one| one.message != message);
            scheduler.age_settled(destination, message, &recipients, at, at);
            told += 1;
        }
        at += SECOND;
        assert!(at < now + 300 * SECOND, "{told}");
    }
    assert_eq!(most, 4_096);
}

#[test]
fn mail_that_is_deferred_each_time_is_warned_of_and_given_up_too() {
    let mut rig = rig(Settings::default(), vec![Host::Defers]);
    rig.add(0, 2, false);
    rig.run(6 * HOUR);
    assert_eq!((rig.warned.len(), rig.given_up.len()), (2, 0));
    rig.run(5 * DAY);
    assert_eq!((rig.waiting(), rig.given_up.len()), (0, 2));
}

#[test]
fn a_server_that_was_off_for_a_week_tries_once_more_before_it_gives_up() {
    for (host, delivered) in [(Host::Alive, 40), (Host::Dead, 0), (Host::Defers, 0)] {
        let mut rig = rig(Settings { hold_fresh: true, ..Settings::default() }, vec![host]);
        for _ in 0..40 {
            rig.add(0, 1, false);
        }
        rig.run(7 * DAY);
        assert_eq!((rig.taken, rig.opened[0], rig.given_up.len()), (0, 0, 0), "fresh mail waits");
        rig.settings.hold_fresh = false;
        rig.restart();
        rig.run(HOUR);
        assert!(rig.opened[0] > 0);
        assert_eq!(
            (rig.delivered.len(), rig.given_up.len(), rig.warned.len()),
            (delivered, 40 - delivered, 0),
            "{host:?}"
        );
    }
}

#[test]
fn fresh_mail_waits_for_a_person_and_what_was_released_does_not() {
    let mut rig = rig(Settings { hold_fresh: true, ..Settings::default() }, vec![Host::Alive]);
    let messages: Vec<QueueId> = (0..10).map(|_| rig.add(0, 1, false)).collect();
    rig.entry(0, messages[3], 0).unwrap().due_s = 1;
    rig.retry_now(Some(0));
    rig.run(HOUR);
    assert_eq!(rig.delivered.keys().copied().collect::<Vec<_>>(), [(messages[3], 0)]);
    assert_eq!(rig.scheduler.destination_views().count(), 0, "what waits for a person costs no memory");
}

#[test]
fn live_hosts_do_not_wait_for_dead_ones() {
    let mut hosts = vec![Host::Dead; 100];
    hosts.push(Host::Alive);
    let settings = Settings { connections_max: 120, window_start: 1, ..Settings::default() };
    let mut rig = rig(settings, hosts);
    for to in 0..100 {
        for _ in 0..20 {
            rig.add(to, 1, false);
        }
    }
    for _ in 0..1_000 {
        rig.add(100, 1, false);
        rig.run(SECOND / 10);
        let slow = rig.lists[100].len();
        assert!(slow <= 1, "{slow} wait for a live host at {:?}", rig.now - START);
    }
    assert!(rig.peak <= 150);
}

#[test]
fn a_small_budget_goes_round() {
    let settings = Settings { connections_max: 3, ..Settings::default() };
    let mut rig = rig(settings, vec![Host::Alive; 30]);
    for to in 0..30 {
        for _ in 0..5 {
            rig.add(to, 1, false);
        }
    }
    // The first of them has endless work; it must not keep the others out.
    for _ in 0..3_000 {
        rig.add(0, 1, false);
    }
    rig.run(5 * SECOND);
    assert_eq!(rig.lists[1..].iter().map(Vec::len).sum::<usize>(), 0);
    assert!(rig.peak <= 4 && rig.opened.iter().all(|opened| *opened > 0));
    rig.run(60 * SECOND);
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn a_host_that_takes_two_connections_is_not_hammered_for_a_third() {
    let mut rig = rig(Settings::default(), vec![Host::Few(2)]);
    for _ in 0..6_000 {
        rig.add(0, 1, false);
        rig.run(Duration::from_millis(4));
    }
    assert_eq!(rig.scheduler.destination_view(b"domain-0").unwrap().health, Health::Up);
    rig.run(60 * SECOND);
    assert_eq!(rig.waiting(), 0);
    // Two live ones that end after 1,000 messages each, and a further attempt now and then.
    assert!(rig.opened[0] < 25, "{}", rig.opened[0]);
}

#[test]
fn a_host_that_throttles_is_not_hammered_and_gets_its_mail() {
    let mut rig = rig(Settings::default(), vec![Host::Paces(SECOND)]);
    rig.retry = RetryPolicy { first: 30 * SECOND, max: 30 * SECOND };
    for _ in 0..2_000 {
        rig.add(0, 1, false);
    }
    rig.run(60 * SECOND);
    let (opened, left) = (rig.opened[0], rig.left);
    rig.run(600 * SECOND);
    let (opened, left, came) = (rig.opened[0] - opened, rig.left - left, rig.delivered.len());
    // Without refusals it would take 660.
    assert!(came >= 500, "{came}");
    assert!(opened <= 80, "{opened} connections for {came} messages");
    assert!(left <= 1_024, "{left} lines say that something is deferred");
}

#[test]
fn a_host_that_drops_everything_is_tried_with_back_off() {
    let mut rig = rig(Settings::default(), vec![Host::Drops]);
    for _ in 0..100 {
        rig.add(0, 1, false);
    }
    rig.run(DAY);
    assert!(rig.opened[0] < 100, "{}", rig.opened[0]);
    rig.hosts[0] = Host::Alive;
    rig.run(2 * HOUR);
    assert_eq!(rig.delivered.len(), 100);
}

#[test]
fn a_probe_does_not_read_the_list_of_a_dead_host() {
    let mut rig = rig(Settings::default(), vec![Host::Dead]);
    for _ in 0..20_000 {
        rig.add(0, 1, false);
    }
    rig.run(HOUR / 2);
    let (opened, read) = (rig.opened[0], rig.entries_read);
    rig.run(3 * HOUR);
    let probes = rig.opened[0] - opened;
    assert!(probes >= 2, "{probes}");
    assert!(rig.entries_read - read <= 32 * probes, "{} for {probes} probes", rig.entries_read - read);
    // And yet all senders get their warning in time.
    rig.run(HOUR / 2 + 60 * SECOND);
    assert_eq!(rig.warned.len(), 20_000);
}

#[test]
fn after_a_start_the_list_of_a_dead_host_is_read_once_for_ages() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    scheduler.restore(b"a", START);
    let list: Vec<QueueEntry> = (0..300).map(|number| waiting(number, 0)).collect();
    let (mut now, mut limits) = (START, Vec::new());
    while now < START + 2 * HOUR {
        match next(&mut scheduler, LIMITS, now) {
            Some(Action::Load { destination, after, limit }) => {
                limits.push(limit);
                let from = after.map_or(0, |after| 1 + list.iter().position(|one| *one == after).unwrap());
                let page = &list[from..list.len().min(from + limit)];
                scheduler.page_loaded(destination, page, from + page.len() == list.len(), now);
            }
            Some(Action::Open { connection, .. }) => {
                drop(scheduler.unreachable(connection, Failure::Refused, "Connection refused", now));
            }
            Some(action) => panic!("{action:?}"),
            None => now = scheduler.wake_at().unwrap().max(now + Duration::from_millis(1)),
        }
    }
    let whole = limits.iter().filter(|limit| **limit > 8).count();
    assert!(whole <= 3 && limits.len() - whole >= 4, "{limits:?}");
}

#[test]
fn many_destinations_share_the_memory_and_one_has_it_again_when_they_are_gone() {
    let settings = Settings { jobs_max: 8_000, ready_max: 400, ..Settings::default() };
    let mut scheduler = Scheduler::new(settings, 1);
    let add = |scheduler: &mut Scheduler, name: &str, number: u64| {
        usize::from(scheduler.add(name.as_bytes(), job(number), Class::Urgent, START) == AddResult::Ready)
    };
    let alone: usize = (0..1_000).map(|number| add(&mut scheduler, "alone", number)).sum();
    assert_eq!(alone, 400);
    let names: Vec<String> = (0..200).map(|number| format!("d{number}")).collect();
    let all: usize = (0..1_000)
        .flat_map(|n| names.iter().map(move |name| (n, name)))
        .map(|(number, name)| add(&mut scheduler, name, number))
        .sum();
    assert!((7_000..=9_000).contains(&all), "{all}");
    for number in 0..2_000 {
        let name = format!("more{number}");
        let few: usize = (0..40).map(|number| add(&mut scheduler, &name, number)).sum();
        assert!((16..40).contains(&few), "each has a little: {few}");
    }
    // Those without work are forgotten at their next check.
    let mut scheduler = Scheduler::new(Settings { jobs_max: 8_000, ready_max: 400, ..Settings::default() }, 1);
    for name in &names {
        scheduler.retry_now(Some(name.as_bytes()), START);
    }
    let mut now = START;
    while let Some(action) = scheduler.poll(now) {
        if let Action::Load { destination, .. } = action {
            scheduler.page_loaded(destination, &[], true, now);
        }
        now += SECOND;
    }
    let alone: usize = (0..1_000).map(|number| add(&mut scheduler, "alone", number)).sum();
    assert_eq!(alone, 400);
}

#[test]
fn a_long_list_is_read_about_once() {
    let count = 30_000;
    let mut rig = rig(Settings::default(), vec![Host::Alive]);
    rig.manner.service = Duration::from_millis(2);
    for _ in 0..count {
        rig.add(0, 1, false);
    }
    rig.run(60 * SECOND);
    assert_eq!(rig.delivered.len(), count);
    assert!(rig.entries_read < 3 * count, "{}", rig.entries_read);
}

#[test]
fn entries_that_are_not_due_are_not_read_over_and_over_for_those_behind_them() {
    let mut rig = rig(Settings::default(), vec![Host::Defers]);
    for _ in 0..3_000 {
        rig.add(0, 1, false);
    }
    rig.run(60 * SECOND);
    assert_eq!(rig.taken, 3_000);
    rig.hosts[0] = Host::Alive;
    let before = rig.entries_read;
    for _ in 0..2_000 {
        rig.add(0, 1, false);
        rig.run(Duration::from_millis(10));
    }
    rig.run(SECOND);
    assert_eq!(rig.delivered.len(), 2_000);
    assert!(rig.entries_read - before < 40 * 3_000, "{}", rig.entries_read - before);
    rig.run(2 * HOUR);
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn a_message_with_many_recipients_becomes_jobs_of_at_most_a_hundred() {
    // All of them are taken without a reply to the first.
    let mut scheduler = Scheduler::new(Settings { isolate_lists: false, ..Settings::default() }, 1);
    let shuffled: Positions = (0..250).map(|position| (position * 7) % 250).collect();
    assert_eq!(
        scheduler.add(b"a", Job { message: id(1), recipients: shuffled, probe: false }, Class::Normal, START),
        AddResult::Ready
    );
    let connection = greeted(&mut scheduler, LIMITS);
    let mut seen = Vec::new();
    let mut sizes = Vec::new();
    while let NextJob::Job(job) = scheduler.next_job(connection, START) {
        sizes.push(job.recipients.len());
        seen.extend(job.recipients.iter());
    }
    assert_eq!((sizes, seen), (vec![100, 100, 50], (0..250).collect()));
}

#[test]
fn the_first_job_after_a_failure_is_a_probe_and_then_the_rest_comes() {
    let mut scheduler = Scheduler::new(Settings { jobs_per_connection: 1, ..Settings::default() }, 1);
    assert_eq!(scheduler.add(b"a", job(1), Class::Normal, START), AddResult::Ready);
    assert_eq!(scheduler.add(b"a", job(2), Class::Normal, START), AddResult::Ready);
    let opened: Vec<_> = std::iter::from_fn(|| next(&mut scheduler, LIMITS, START)).collect();
    let [Action::Open { connection: first, .. }, Action::Open { connection: second, .. }] = opened[..] else {
        panic!("{opened:?}")
    };
    let refused = Failure::Refused;
    assert_eq!(scheduler.unreachable(first, refused, "Connection refused", START), [job(1), job(2)]);
    assert_eq!(scheduler.unreachable(second, refused, "Connection refused", START), [], "the same failure");
    let AddResult::Down { why, retry_at } = scheduler.add(b"a", job(3), Class::Normal, START) else {
        panic!("it is down")
    };
    assert!(&*why == "Connection refused" && retry_at >= START + 45 * SECOND && retry_at <= START + 75 * SECOND);
    let list: Vec<QueueEntry> = [1, 2, 3].map(|number| waiting(number, 0)).into();
    // All ages are known; only the probe is read.
    assert_eq!((scheduler.poll(START), scheduler.wake_at()), (None, Some(retry_at)));
    let Some(load) = scheduler.poll(retry_at) else { panic!("a walk") };
    let Action::Load { destination, after: None, limit: 8 } = load else { panic!("{load:?}") };
    scheduler.page_loaded(destination, &list, true, retry_at);
    let Some(Action::Open { connection, .. }) = scheduler.poll(retry_at) else { panic!("the probe opens") };
    assert_eq!(scheduler.poll(retry_at), None);
    let probe = Job { probe: true, ..job(1) };
    assert_eq!(
        scheduler.unreachable(connection, refused, "Connection timed out", retry_at),
        std::slice::from_ref(&probe)
    );
    let Some(Health::Down { why, until }) = scheduler.destination_view(b"a").map(|view| view.health) else {
        panic!("still down")
    };
    assert!(&*why == "Connection timed out" && until >= retry_at + 90 * SECOND, "twice as long");
    assert_eq!(scheduler.poll(until), Some(load));
    scheduler.page_loaded(destination, &list, true, until);
    let Some(Action::Open { connection, .. }) = scheduler.poll(until) else { panic!("the probe opens") };
    scheduler.greeted(connection, until);
    assert_eq!(scheduler.next_job(connection, until), NextJob::Job(probe));
    assert_eq!(
        scheduler.destination_view(b"a").map(|view| (view.health, view.window)),
        Some((Health::Up, 1)),
        "doubted"
    );
    scheduler.job_done(
        connection,
        &Job { message: id(1), recipients: Positions::One(0), probe: true },
        Feedback::Good,
        None,
        until,
    );
    assert_eq!(scheduler.destination_view(b"a").map(|view| view.window), Some(2), "one more for the first good answer");
}

/// Returns the open connections after each round in which a host that is up again accepts one message per connection.
fn connections_to_a_host_that_is_back(messages: u64, settings: Settings) -> Vec<usize> {
    let mut scheduler = Scheduler::new(settings, 1);
    scheduler.add(b"a", job(1), Class::Normal, START);
    let Some(Action::Open { connection, .. }) = next(&mut scheduler, LIMITS, START) else { panic!("it opens") };
    let deferred = scheduler.unreachable(connection, Failure::Refused, "Connection refused", START);
    assert_eq!(deferred, [job(1)]);
    let list: Vec<QueueEntry> = (1..=messages).map(|number| waiting(number, 0)).collect();
    let mut now = START + 80 * SECOND;
    let (mut open, mut done, mut rounds) = (Vec::new(), 0, Vec::new());
    while done < list.len() {
        assert!(rounds.len() <= list.len(), "{rounds:?}");
        while let Some(action) = next(&mut scheduler, LIMITS, now) {
            match action {
                Action::Load { destination, after, limit } => {
                    let from = list.iter().position(|one| after.is_none_or(|after| one.message > after.message));
                    let page = &list[from.unwrap_or(list.len())..];
                    scheduler.page_loaded(destination, &page[..limit.min(page.len())], page.len() <= limit, now);
                }
                Action::Open { connection, .. } => {
                    scheduler.greeted(connection, now);
                    open.push(connection);
                }
                _ => {}
            }
        }
        now += SECOND / 100;
        for connection in &open {
            if let NextJob::Job(job) = scheduler.next_job(*connection, now) {
                scheduler.job_done(*connection, &job, Feedback::Good, None, now);
                done += 1;
            }
        }
        rounds.push(open.len());
    }
    rounds
}

#[test]
fn a_host_that_is_back_drains_over_one_connection_until_that_is_not_enough() {
    let few = connections_to_a_host_that_is_back(16, Settings::default());
    assert_eq!(few, [1; 16]);
    let many = connections_to_a_host_that_is_back(400, Settings::default());
    assert_eq!(many[..2], [1, 2], "{many:?}");
    assert!(many.windows(2).all(|round| round[1] <= round[0] + 1), "never several at once: {many:?}");
    assert!(many.iter().max() >= Some(&6), "{many:?}");
}

#[test]
fn a_border_of_a_page_splits_no_message() {
    let mut rig = rig(Settings::default(), vec![Host::Dead]);
    for _ in 0..300 {
        rig.add(0, 7, false);
    }
    rig.hosts[0] = Host::Alive;
    rig.restart();
    rig.run(60 * SECOND);
    assert_eq!((rig.waiting(), rig.taken), (0, 300));
}

#[test]
fn the_earliest_due_time_of_a_list_begins_the_next_walk() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    scheduler.restore(b"a", START);
    let Some(Action::Load { destination, after: None, .. }) = scheduler.poll(START) else { panic!("a walk begins") };
    let list: Vec<QueueEntry> =
        [900, 100, 500].map(|wait| waiting(wait, u32::try_from(START.as_secs() + wait).unwrap())).into();
    scheduler.page_loaded(destination, &list, true, START);
    assert_eq!(scheduler.poll(START), None);
    assert_eq!(scheduler.wake_at(), Some(START + 100 * SECOND));
}

#[test]
fn the_window_grows_by_one_in_a_round_and_is_halved_once_in_a_round() {
    let mut scheduler = Scheduler::new(Settings { learn_pace: false, ..Settings::default() }, 1);
    for number in 0..200 {
        scheduler.add(b"a", job(number), Class::Normal, START);
    }
    let connection = greeted(&mut scheduler, Limits { connections: 10, ..LIMITS });
    let window = |scheduler: &Scheduler| scheduler.destination_view(b"a").unwrap().window;
    let round = |scheduler: &mut Scheduler, count: usize, feedback: Feedback| {
        let took: Vec<NextJob> = (0..count).map(|_| scheduler.next_job(connection, START)).collect();
        for take in took {
            let NextJob::Job(job) = take else { panic!("{take:?}") };
            scheduler.job_done(connection, &job, feedback, None, START);
        }
    };
    round(&mut scheduler, 6, Feedback::Good);
    assert_eq!(window(&scheduler), 6);
    round(&mut scheduler, 7, Feedback::Good);
    assert_eq!(window(&scheduler), 7);
    round(&mut scheduler, 90, Feedback::Good);
    assert_eq!(window(&scheduler), 10);
    round(&mut scheduler, 9, Feedback::Slowdown);
    assert_eq!(window(&scheduler), 5, "nine of one round are one cut");
    round(&mut scheduler, 1, Feedback::Slowdown);
    assert_eq!(window(&scheduler), 2);
    round(&mut scheduler, 1, Feedback::Neutral);
    assert_eq!(window(&scheduler), 2);
}

/// A server that hangs keeps connections with their last job; no others replace them.
#[test]
fn connections_that_are_to_close_count_in_the_window() {
    let settings = Settings { window_start: 2, jobs_per_connection: 1, ..Settings::default() };
    let limits = Limits { messages_per_connection: 1, ..LIMITS };
    let mut scheduler = Scheduler::new(settings, 1);
    for number in 0..10 {
        scheduler.add(b"a", job(number), Class::Normal, START);
    }
    let mut hanging = Vec::new();
    while let Some(action) = next(&mut scheduler, limits, START) {
        let Action::Open { connection, .. } = action else { continue };
        scheduler.greeted(connection, START);
        assert!(matches!(scheduler.next_job(connection, START), NextJob::Job(_)));
        assert_eq!(scheduler.next_job(connection, START), NextJob::Close);
        hanging.push(connection);
    }
    assert_eq!((hanging.len(), scheduler.connections()), (2, 2));
}

#[test]
fn the_same_seed_and_events_give_the_same_run() {
    let run = |seed: u64| {
        let mut rig =
            Rig::new(Settings::default(), Manner::default(), vec![Host::Moody, Host::Dead, Host::Alive], seed);
        for number in 0..300 {
            rig.add(number % 3, 2, false);
            rig.run(SECOND / 3);
        }
        rig.run(3 * HOUR);
        (rig.delivered.clone(), rig.opened.clone(), rig.entries_read)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).1, run(6).1);
}

/// The cost of the fast path: `time` it from outside, because nothing here has a clock.
#[test]
#[ignore = "ten million messages, to be timed from outside"]
fn ten_million_messages_over_a_busy_connection() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    scheduler.add(b"next-hop.example:25", job(0), Class::Normal, START);
    let connection = greeted(&mut scheduler, Limits { messages_per_connection: u32::MAX, ..LIMITS });
    for number in 1..10_000_000 {
        scheduler.add(b"next-hop.example:25", job(number), Class::Normal, START);
        while scheduler.poll(START).is_some() {}
        let NextJob::Job(job) = scheduler.next_job(connection, START) else { panic!("there is a job") };
        scheduler.job_done(connection, &job, Feedback::Good, None, START);
        while scheduler.poll(START).is_some() {}
    }
}

#[test]
fn a_job_that_is_over_frees_its_own_recipients_only() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    scheduler.add(b"a", Job { message: id(1), recipients: (0..4).collect(), probe: false }, Class::Normal, START);
    let connection = greeted(&mut scheduler, Limits { recipients_per_transaction: 2, ..LIMITS });
    let took: Vec<NextJob> = (0..2).map(|_| scheduler.next_job(connection, START)).collect();
    let [NextJob::Job(first), NextJob::Job(second)] = took.as_slice() else { panic!("{took:?}") };
    // The later one ends first: held, deleted or unreadable.
    scheduler.job_done(connection, second, Feedback::Neutral, None, START);
    let active = |scheduler: &Scheduler| (0..4).map(|one| scheduler.is_active(b"a", id(1), one)).collect::<Vec<_>>();
    assert_eq!(active(&scheduler), [true, true, false, false]);
    assert!(scheduler.is_in_flight(id(1), 0) && !scheduler.is_in_flight(id(1), 2));
    scheduler.job_done(connection, first, Feedback::Neutral, None, START);
    assert_eq!(active(&scheduler), [false; 4]);
}
