//! Many unknown hosts at once that are silent: their cost for other hosts.

use std::time::Duration;

use crate::rig::{Host, Manner, Rig};
use schedule::{Health, Lane, Settings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LIVE: usize = 200;

/// A list for live hosts with others between them; two places in the slow lane and eighteen in the fast one.
fn list(others: &[Host], seed: u64) -> Rig {
    list_beside(Settings::default().silent_max, others, seed)
}

/// The same with this many places for connections that are silent in a transaction.
fn list_beside(silent_max: usize, others: &[Host], seed: u64) -> Rig {
    let settings = Settings { connections_max: 20, silent_max, ..Settings::default() };
    let mut hosts = vec![Host::Alive; LIVE];
    hosts.extend(others);
    let mut rig = Rig::new(settings, Manner::default(), hosts, seed);
    let all = LIVE + others.len();
    for number in 0..all {
        // 211 is prime: this visits all of them in scattered order.
        rig.add(number * 211 % all, 1, false);
    }
    rig
}

/// Returns how long it takes until these hosts have all their mail.
fn time_of(rig: &mut Rig, hosts: std::ops::Range<usize>) -> Duration {
    let began = rig.now;
    while rig.lists[hosts.clone()].iter().any(|list| !list.is_empty()) {
        rig.run(10 * MS);
        assert!(rig.now - began < 600 * SECOND, "they are forgotten");
    }
    rig.now - began
}

#[test]
fn a_list_with_many_silent_hosts_takes_little_longer_to_the_live_ones() {
    for seed in 1..4 {
        let alone = time_of(&mut list(&[], seed), 0..LIVE);
        let among = time_of(&mut list(&[Host::Hung; 90], seed), 0..LIVE);
        // Each of the 90 costs the usual time of a live host, not a time-out.
        assert!(among < alone + 2 * SECOND, "{among:?}, {alone:?}");
    }
}

#[test]
fn hosts_that_are_silent_in_a_transaction_cost_the_live_ones_a_second_of_a_place() {
    for seed in 1..4 {
        let alone = time_of(&mut list(&[], seed), 0..LIVE);
        let others = [[Host::Stalls; 45], [Host::Crawls; 45]].concat();
        let mut rig = list(&others, seed);
        let among = time_of(&mut rig, 0..LIVE);
        // Ninety seconds of eighteen places.
        assert!(among < alone + 6 * SECOND, "{among:?}, {alone:?}");
        assert!(rig.peak <= 20 + 90, "{}", rig.peak);
        assert!(rig.cancelled.iter().all(|times| *times == 0), "nobody is hung up on: {:?}", rig.cancelled);
        // Those that are only slow have their mail, by the connection that waited for them.
        time_of(&mut rig, LIVE + 45..LIVE + 90);
        assert!(rig.opened[LIVE + 45..].iter().all(|times| *times == 1), "{:?}", rig.opened);
        // With no room beside the lanes, the live ones wait for the time-outs.
        let among = time_of(&mut list_beside(0, &others, seed), 0..LIVE);
        assert!(among > alone + 20 * SECOND, "{among:?}, {alone:?}");
    }
}

#[test]
fn hosts_that_look_at_each_message_for_long_have_several_over_a_connection() {
    // Twice as many sites as the fast lane has places; two seconds for each message.
    const EACH: usize = 20;
    let settings = Settings { connections_max: 20, ..Settings::default() };
    let manner = Manner { service: 2 * SECOND, ..Manner::default() };
    let mut rig = Rig::new(settings, manner, vec![Host::Alive; 40], 1);
    rig.limits.iter_mut().for_each(|limits| limits.connections = 1);
    for number in 0..40 * EACH {
        rig.add(number % 40, 1, false);
    }
    let took = time_of(&mut rig, 0..40);
    let opened: usize = rig.opened.iter().sum();
    assert!(opened <= 40 * EACH / 2, "{opened} connections");
    assert!(took < 2 * SECOND * 2 * u32::try_from(EACH).unwrap(), "{took:?}");
}

#[test]
fn mail_that_comes_behind_such_a_list_waits_no_longer() {
    let mut rig = list(&[Host::Hung; 90], 1);
    for second in 0..60 {
        let from = rig.now;
        for to in 0..LIVE / 10 {
            rig.add(to, 1, false);
        }
        time_of(&mut rig, 0..LIVE);
        assert!(rig.now - from < 2 * SECOND, "after {second} s: {:?}", rig.now - from);
        rig.run((from + SECOND).saturating_sub(rig.now));
    }
}

#[test]
fn a_host_that_is_only_late_gets_its_mail_in_the_fast_lane_before_long() {
    let mut others = vec![Host::Hung; 90];
    let late = [350 * MS, 800 * MS, 2 * SECOND, 4 * SECOND];
    others.extend(late.map(Host::Late));
    let mut rig = list(&others, 2);
    let all = rig.hosts.len();
    // New mail for live hosts all the time.
    for _ in 0..120 {
        for to in 0..LIVE / 4 {
            rig.add(to, 1, false);
        }
        rig.run(SECOND);
    }
    assert!(rig.lists[all - 4..].iter().all(Vec::is_empty), "{:?}", &rig.lists[all - 4..]);
    assert!(rig.cancelled[all - 4..].iter().any(|times| *times > 0), "{:?}", rig.cancelled);
    // A host that is silent for all time-outs of the lane is down, and its probes use the slow lane.
    for silent in LIVE..LIVE + 90 {
        let view = rig.scheduler.destination_view(&Rig::name(silent)).unwrap();
        assert!(matches!(view.health, Health::Down { .. }) && view.lane == Lane::Slow, "{view:?}");
        assert!(rig.cancelled[silent] <= 3, "{}", rig.cancelled[silent]);
    }
    assert_eq!(rig.left, 90, "deferred once each, when it was down");
}

#[test]
fn late_hosts_have_their_time_while_no_site_waits_for_a_place() {
    let mut rig = Rig::new(Settings::default(), Manner::default(), vec![Host::Late(4 * SECOND); 40], 1);
    (0..40).for_each(|to| {
        rig.add(to, 1, false);
    });
    rig.run(5 * SECOND);
    assert_eq!((rig.waiting(), rig.opened.iter().sum::<usize>()), (0, 40));
    assert!(rig.cancelled.iter().all(|times| *times == 0));
}

#[test]
fn a_cancelled_attempt_of_retry_now_waits_as_other_cancelled_ones_do() {
    const LIVE: usize = 20;
    for seed in 1..200 {
        let settings = Settings { connections_max: 3 + seed % 6, ..Settings::default() };
        let mut hosts = vec![Host::Alive; LIVE];
        hosts.extend([Host::Hung; 12]);
        let mut rig = Rig::new(settings, Manner::default(), hosts, seed as u64);
        for number in 0..100 {
            rig.add(number * 19 % 32, 1, false);
            rig.run(MS * u32::try_from(number * number * seed % 311).unwrap());
            if number % 3 == 0 {
                rig.retry_now(Some(LIVE + number * 7 % 12));
            }
        }
        time_of(&mut rig, 0..LIVE);
        assert!(rig.cancelled[LIVE..].iter().any(|times| *times > 0), "{seed}: {:?}", rig.cancelled);
        assert!(rig.cancelled[..LIVE].iter().all(|times| *times == 0), "{seed}: {:?}", rig.cancelled);
    }
}
