//! The table against a model that does everything the slow way, and against bytes that are not its own.

use super::*;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};

const SECOND: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_secs(1_800_000_000);

fn at(number: u8) -> SocketAddr {
    match number % 3 {
        0 => SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into())), 25),
        _ => SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)), 25),
    }
}

fn settings(max: usize) -> HostSettings {
    let (tls_memory, tls_seen_memory) = (86_400 * SECOND, 30 * 86_400 * SECOND);
    HostSettings { max, first: 60 * SECOND, longest: 3_600 * SECOND, tls_memory, tls_seen_memory }
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn round_trip(hosts: &Hosts, now: Duration) -> Hosts {
    let bytes = hosts.to_bytes();
    assert!(bytes.len() <= Hosts::bytes_max(&hosts.settings));
    let (again, damage) = Hosts::from_bytes(&bytes, hosts.settings.clone(), 7, now);
    assert_eq!(damage, None);
    assert_eq!(again.to_bytes(), bytes);
    again
}

#[test]
fn a_dead_host_is_passed_over_for_longer_each_time() {
    let mut hosts = Hosts::new(settings(10), 1);
    let (dead, mut now) = (at(1), START);
    for (failures, minutes) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)] {
        assert!(hosts.may_try(dead, now));
        hosts.failed(dead, now);
        // The others that were under way.
        hosts.failed(dead, now + SECOND);
        let view = hosts.views(now).next().unwrap();
        let wait = view.retry_at.unwrap() - now;
        assert_eq!(view.failures, failures);
        assert!(wait >= 45 * minutes * SECOND && wait <= 75 * minutes * SECOND, "{failures}: {wait:?}");
        assert!(!hosts.may_try(dead, now + wait - Duration::from_micros(1)));
        now += wait;
    }
}

#[test]
fn after_a_back_off_one_connection_tries() {
    let mut hosts = Hosts::new(settings(10), 1);
    let (dead, now) = (at(1), START + 200 * SECOND);
    hosts.trying(dead, START);
    assert!(hosts.may_try(dead, START) && hosts.is_empty(), "of an unknown host nothing is remembered");
    hosts.failed(dead, START);
    hosts.trying(dead, now);
    assert!(!hosts.may_try(dead, now + SECOND));
    // The connection reports no result, so the trial ends by time.
    assert!(hosts.may_try(dead, now + 60 * SECOND));
    hosts.trying(dead, now);
    // The first message shows whether it is back.
    hosts.greeted(dead, ms(10), now);
    assert_eq!(hosts.standing(dead, now), Standing::Aside);
    assert!(hosts.is_doubted(dead) && hosts.may_try(dead, now + 60 * SECOND));
    hosts.delivered(dead, ms(10), now);
    assert!(hosts.may_try(dead, now) && !hosts.is_doubted(dead));
    hosts.failed(dead, START);
    hosts.greeted(dead, ms(10), now);
    // It greets and hangs, over and over: it is passed over for longer each time.
    hosts.failed(dead, now);
    assert_eq!(hosts.views(now).next().unwrap().failures, 2);
    hosts.greeted(dead, ms(10), now);
    hosts.delivered(dead, ms(10), now);
    hosts.failed(dead, now);
    assert_eq!(hosts.views(now).next().unwrap().failures, 1);
}

#[test]
fn a_host_that_puts_mail_off_is_spared_while_the_mail_is_tried_elsewhere() {
    let mut hosts = Hosts::new(settings(10), 1);
    let (bad, wait) = (at(1), 300 * SECOND);
    hosts.spare(bad, wait, 2, START);
    hosts.spare(bad, SECOND, 2, START);
    // A greeting says nothing about mail.
    hosts.greeted(bad, ms(10), START + SECOND);
    assert!(!hosts.may_try(bad, START + 4 * wait - ms(1)) && hosts.may_try(bad, START + 4 * wait));
    hosts.delivered(bad, ms(10), START + SECOND);
    assert!(hosts.may_try(bad, START + SECOND));
    // Behind four such hosts there may be one that takes it.
    hosts.spare(bad, wait, 5, START);
    assert!(!hosts.may_try(bad, START + 6 * wait - ms(1)) && hosts.may_try(bad, START + 6 * wait));
}

#[test]
fn those_passed_over_come_last_and_nothing_else_moves() {
    let mut hosts = Hosts::new(settings(10), 1);
    hosts.failed(at(1), START);
    hosts.failed(at(4), START);
    let mut order: Vec<u8> = (1..=6).collect();
    let address = |number: &u8| (*number != 6).then(|| at(*number));
    hosts.order(&mut order, address, false, START);
    assert_eq!(order, [2, 3, 5, 6, 1, 4]);
    // A host that put a message off comes before a host that failed.
    hosts.spare(at(3), 10 * SECOND, 6, START);
    hosts.order(&mut order, address, true, START);
    assert_eq!(order, [2, 5, 6, 3, 1, 4]);
    order.sort_unstable();
    let later = START + 3_600 * SECOND;
    hosts.order(&mut order, address, false, later);
    assert_eq!(order, [1, 2, 3, 4, 5, 6], "all may be tried");
    hosts.order(&mut order, address, true, later);
    assert_eq!(order, [2, 3, 5, 6, 1, 4], "behind those that work");
    hosts.delivered(at(4), SECOND, later);
    hosts.order(&mut order, address, true, later);
    assert_eq!(order, [2, 3, 5, 6, 4, 1]);
}

#[test]
fn what_a_host_took_is_smoothed() {
    let mut hosts = Hosts::new(settings(10), 1);
    assert_eq!(hosts.expected(at(1)), None);
    hosts.greeted(at(1), ms(40), START);
    assert_eq!(hosts.expected(at(1)), Some(ms(40)));
    hosts.delivered(at(1), ms(80), START);
    hosts.delivered(at(1), ms(40), START);
    assert_eq!(hosts.expected(at(1)), Some(ms(110)));
    hosts.greeted(at(1), Duration::MAX, START);
    hosts.delivered(at(1), Duration::ZERO, START);
    assert!(hosts.expected(at(1)).is_some());
    hosts.failed(at(2), START);
    assert_eq!(hosts.expected(at(2)), Some(FAILED_TAKES));
}

#[test]
fn an_address_is_the_same_host_in_any_dress() {
    let mut hosts = Hosts::new(settings(10), 1);
    let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 25);
    let mapped = SocketAddr::new(IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped()), 25);
    hosts.failed(mapped, START);
    assert!(!hosts.may_try(four, START));
    let scoped = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 25, 7, 9));
    hosts.tls_failed(scoped, START);
    assert!(hosts.tls_is_broken(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 25), START));
    assert!(!hosts.tls_is_broken(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 587), START));
    assert_eq!(round_trip(&hosts, START).len(), 2);
}

#[test]
fn a_clock_that_was_wrong_does_not_ban_a_host_for_years() {
    let mut hosts = Hosts::new(settings(10), 1);
    hosts.failed(at(1), START + 1_000_000_000 * SECOND);
    hosts.tls_failed(at(1), START + 1_000_000_000 * SECOND);
    let (again, _) = Hosts::from_bytes(&hosts.to_bytes(), settings(10), 1, START);
    assert!(!again.may_try(at(1), START) && again.may_try(at(1), START + 4_500 * SECOND));
    assert!(again.tls_is_broken(at(1), START) && !again.tls_is_broken(at(1), START + 86_400 * SECOND));
}

#[test]
fn that_tls_worked_is_remembered_for_its_time_and_over_a_restart() {
    const DAY: Duration = Duration::from_secs(86_400);
    let mut hosts = Hosts::new(settings(10), 1);
    assert_eq!(hosts.tls(at(1), START), TlsRecord::Unknown);
    hosts.tls_worked(at(1), START);
    // A handshake that failed beside it proves nothing.
    hosts.tls_failed(at(1), START);
    for hosts in [round_trip(&hosts, START), hosts] {
        assert_eq!(hosts.tls(at(1), START + 29 * DAY), TlsRecord::Worked);
        assert_eq!(hosts.tls(at(1), START + 30 * DAY), TlsRecord::Unknown);
    }
}

#[test]
fn failures_of_tls_that_lie_far_apart_are_two_periods() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let mut hosts = Hosts::new(settings(10), 1);
    hosts.tls_worked(at(1), START);
    for (hours, since) in [(0, 0), (1, 0), (3, 0), (6, 6), (7, 6)] {
        assert_eq!(hosts.tls_missing(at(1), 2 * HOUR, START + hours * HOUR), START + since * HOUR, "{hours}");
        hosts = round_trip(&hosts, START + hours * HOUR);
    }
    hosts.tls_worked(at(1), START + 8 * HOUR);
    assert_eq!(hosts.tls_missing(at(1), 2 * HOUR, START + 9 * HOUR), START + 9 * HOUR, "it worked in between");
    hosts.tls_given_up(at(1), START + 9 * HOUR);
    assert_eq!(hosts.tls(at(1), START + 10 * HOUR), TlsRecord::Broken);
    assert_eq!(hosts.tls(at(1), START + 33 * HOUR), TlsRecord::Unknown);
}

/// The bytes as version 1 writes them.
#[test]
fn a_table_of_version_1_is_read() {
    let mut hosts = Hosts::new(settings(10), 1);
    hosts.failed(at(1), START);
    hosts.greeted(at(2), ms(5), START);
    let bytes = hosts.to_bytes();
    let mut old = b"mrhosts\0\x01\0\0\0\x02\0\0\0".to_vec();
    bytes[16..16 + 160].chunks(80).for_each(|record| old.extend_from_slice(&record[..56]));
    let sum = bytes::checksum(&old);
    old.extend_from_slice(&sum.to_le_bytes());
    let (again, damage) = Hosts::from_bytes(&old, settings(10), 7, START);
    assert_eq!((damage, again.to_bytes()), (None, bytes));
}

#[test]
fn what_was_used_last_outlives_a_smaller_table() {
    let mut hosts = Hosts::new(settings(100), 1);
    for number in 1..=50 {
        hosts.failed(at(number), START);
    }
    hosts.greeted(at(1), ms(1), START);
    let (again, damage) = Hosts::from_bytes(&hosts.to_bytes(), settings(3), 1, START);
    assert_eq!(damage, None);
    hosts.set(settings(3));
    for small in [&again, &hosts] {
        let mut known: Vec<SocketAddr> = small.views(START).map(|view| view.address).collect();
        known.sort_unstable();
        let mut wanted = [at(49), at(50), at(1)];
        wanted.sort_unstable();
        assert_eq!(known, wanted);
    }
    hosts.set(settings(0));
    hosts.failed(at(9), START);
    assert_eq!(hosts.len(), 1);
}

#[test]
fn damage_is_named() {
    let mut hosts = Hosts::new(settings(10), 1);
    hosts.failed(at(1), START);
    hosts.failed(at(2), START);
    let whole = hosts.to_bytes();
    let read = |bytes: &[u8]| {
        let (hosts, damage) = Hosts::from_bytes(bytes, settings(10), 1, START);
        assert!(hosts.is_empty());
        damage.unwrap()
    };
    assert_eq!(read(b""), HostsDamage::Foreign);
    assert_eq!(read(b"something else that is long enough"), HostsDamage::Foreign);
    let short = HostsDamage::Length { is: whole.len() - 1, should: whole.len() };
    assert_eq!(read(&whole[..whole.len() - 1]), short);
    let mut newer = whole.clone();
    newer[8] = 3;
    assert_eq!(read(&newer), HostsDamage::Version(3));
    for place in 16..whole.len() {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        assert_eq!(read(&flipped), HostsDamage::Checksum, "{place}");
    }
    // The same host twice, with a checksum that fits.
    let mut twice = whole;
    twice.copy_within(16..96, 96);
    let end = twice.len() - 8;
    let sum = bytes::checksum(&twice[..end]);
    twice[end..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read(&twice), HostsDamage::Record(2));
}

/// The behaviour of the table, modelled with a list in the order of use.
#[derive(Default)]
struct Model {
    hosts: Vec<(SocketAddr, Known)>,
}

#[derive(Clone, Default)]
struct Known {
    failures: u32,
    retry_at: Option<Duration>,
    trial_until: Option<Duration>,
    greeting: Option<u64>,
    transaction: Option<u64>,
    tls: Option<Duration>,
    tls_worked: Option<Duration>,
    /// Since when TLS fails, and when it failed last.
    tls_fails: Option<(Duration, Duration)>,
}

/// Failures that lie further apart are two periods.
const GAP: Duration = Duration::from_secs(4_000);

impl Model {
    fn touch(&mut self, address: SocketAddr, max: usize) -> &mut Known {
        let known = match self.hosts.iter().position(|(one, _)| *one == address) {
            Some(place) => self.hosts.remove(place).1,
            None => Known::default(),
        };
        self.hosts.push((address, known));
        if self.hosts.len() > max {
            self.hosts.remove(0);
        }
        &mut self.hosts.last_mut().unwrap().1
    }

    fn of(&self, address: SocketAddr) -> Known {
        self.hosts.iter().find(|(one, _)| *one == address).map_or_else(Known::default, |(_, known)| known.clone())
    }
}

#[derive(Clone, Debug)]
enum Call {
    Wait(u32),
    Trying(u8),
    Failed(u8),
    Greeted(u8, u32),
    Delivered(u8, u32),
    TlsFailed(u8),
    TlsWorked(u8),
    TlsMissing(u8),
    TlsGivenUp(u8),
    TryTls(u8),
    Restart,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let one = prop_oneof![
        (0..5_000_u32).prop_map(Call::Wait),
        (0..12_u8).prop_map(Call::Trying),
        (0..12_u8).prop_map(Call::Failed),
        (0..12_u8, 1..9_000_000_u32).prop_map(|(host, took)| Call::Greeted(host, took)),
        (0..12_u8, 1..9_000_000_u32).prop_map(|(host, took)| Call::Delivered(host, took)),
        (0..12_u8).prop_map(Call::TlsFailed),
        (0..12_u8).prop_map(Call::TlsWorked),
        (0..12_u8).prop_map(Call::TlsMissing),
        (0..12_u8).prop_map(Call::TlsGivenUp),
        (0..12_u8).prop_map(Call::TryTls),
        Just(Call::Restart),
    ];
    prop::collection::vec(one, 0..200)
}

fn mixed(before: Option<u64>, took: u32) -> Option<u64> {
    let took = u64::from(took);
    Some(before.map_or(took, |before| (before * 3 + took) / 4))
}

fn check(calls: Vec<Call>, max: usize, seed: u64) {
    let (mut hosts, mut model, mut now) = (Hosts::new(settings(max), seed), Model::default(), START);
    for call in calls {
        match call {
            Call::Wait(seconds) => now += seconds * SECOND,
            Call::Trying(host) => {
                hosts.trying(at(host), now);
                if let Some((_, known)) = model.hosts.iter_mut().find(|(one, _)| *one == at(host))
                    && known.failures > 0
                {
                    known.trial_until = Some(now + 60 * SECOND);
                }
            }
            Call::Failed(host) => {
                hosts.failed(at(host), now);
                let known = model.touch(at(host), max);
                known.trial_until = None;
                if known.retry_at.is_none_or(|until| until <= now) {
                    known.failures += 1;
                    // Chance is the table's; that it is near enough is checked here.
                    let view = hosts.views(now).find(|view| view.address == at(host)).unwrap();
                    let wait = view.retry_at.unwrap() - now;
                    let middle = (60 * SECOND * (1 << (known.failures - 1).min(10))).min(3_600 * SECOND);
                    assert!(wait >= middle * 3 / 4 && wait <= middle * 5 / 4, "{wait:?} for {middle:?}");
                    known.retry_at = Some(now + wait);
                }
            }
            Call::Greeted(host, took) => {
                hosts.greeted(at(host), Duration::from_micros(took.into()), now);
                let known = model.touch(at(host), max);
                known.retry_at = None;
                known.trial_until = (known.failures > 0).then(|| now + 60 * SECOND);
                known.greeting = mixed(known.greeting, took);
            }
            Call::Delivered(host, took) => {
                hosts.delivered(at(host), Duration::from_micros(took.into()), now);
                let known = model.touch(at(host), max);
                (known.retry_at, known.trial_until, known.failures) = (None, None, 0);
                known.transaction = mixed(known.transaction, took);
            }
            Call::TlsFailed(host) => {
                hosts.tls_failed(at(host), now);
                model.touch(at(host), max).tls = Some(now + 86_400 * SECOND);
            }
            Call::TlsWorked(host) => {
                hosts.tls_worked(at(host), now);
                let known = model.touch(at(host), max);
                (known.tls, known.tls_worked, known.tls_fails) = (None, Some(now), None);
            }
            Call::TlsMissing(host) => {
                let since = hosts.tls_missing(at(host), GAP, now);
                let known = model.touch(at(host), max);
                let begun = known.tls_fails.filter(|(_, last)| *last + GAP >= now).map_or(now, |(since, _)| since);
                known.tls_fails = Some((begun, now));
                assert_eq!(since, begun);
            }
            Call::TlsGivenUp(host) => {
                hosts.tls_given_up(at(host), now);
                let known = model.touch(at(host), max);
                (known.tls, known.tls_worked, known.tls_fails) = (Some(now + 86_400 * SECOND), None, None);
            }
            Call::TryTls(host) => {
                hosts.try_tls(at(host));
                if let Some((_, known)) = model.hosts.iter_mut().find(|(one, _)| *one == at(host)) {
                    known.tls = None;
                }
            }
            Call::Restart => {
                hosts = round_trip(&hosts, now);
                model.hosts.iter_mut().for_each(|(_, known)| known.trial_until = None);
            }
        }
        compare(&hosts, &model, now);
    }
}

fn compare(hosts: &Hosts, model: &Model, now: Duration) {
    assert_eq!(hosts.len(), model.hosts.len());
    assert_eq!(hosts.by_use.len(), hosts.len());
    for number in 0..12 {
        let (address, known) = (at(number), model.of(at(number)));
        let is_over = |until: Option<Duration>| until.is_none_or(|until| until <= now);
        assert_eq!(hosts.may_try(address, now), is_over(known.retry_at) && is_over(known.trial_until), "{address}");
        let tls = match known.tls_worked {
            Some(_) => TlsRecord::Worked,
            None if !is_over(known.tls) => TlsRecord::Broken,
            None => TlsRecord::Unknown,
        };
        assert_eq!(hosts.tls(address, now), tls, "{address}");
        let took = known.greeting.unwrap_or(0) + known.transaction.unwrap_or(0);
        let took = (took > 0).then(|| Duration::from_micros(took));
        let expected = if known.failures > 0 { took.max(Some(FAILED_TAKES)) } else { took };
        assert_eq!(hosts.expected(address), expected, "{address}");
    }
}

proptest! {
    #[test]
    fn it_is_its_model(calls in calls(), max in 1..15_usize, seed in any::<u64>()) {
        check(calls, max, seed);
    }

    #[test]
    fn foreign_bytes_give_an_empty_table(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (hosts, damage) = Hosts::from_bytes(&bytes, settings(5), 1, START);
        prop_assert!(hosts.is_empty() && damage.is_some());
    }

    /// Any bytes in the records, with a head and a checksum that fit: no panic, and no more hosts than the limit.
    #[test]
    fn hostile_records(count in 0..12_usize, filling in prop::collection::vec(any::<u8>(), 12 * 80), now in any::<u64>()) {
        let mut bytes = b"mrhosts\0\x02\0\0\0".to_vec();
        bytes.extend_from_slice(&u32::try_from(count).unwrap().to_le_bytes());
        bytes.extend_from_slice(&filling[..count * 80]);
        let sum = bytes::checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let now = Duration::from_micros(now);
        let (mut hosts, damage) = Hosts::from_bytes(&bytes, settings(5), 1, now);
        prop_assert!(damage.is_none() && hosts.len() == count.min(5));
        let all: Vec<SocketAddr> = hosts.views(now).map(|view| view.address).collect();
        for address in all {
            hosts.trying(address, now);
            hosts.failed(address, now);
            hosts.greeted(address, Duration::MAX, Duration::MAX);
            hosts.delivered(address, Duration::ZERO, Duration::ZERO);
            hosts.tls_failed(address, Duration::MAX);
            let _ = (hosts.expected(address), hosts.may_try(address, now), hosts.tls_is_broken(address, now));
        }
        round_trip(&hosts, Duration::MAX);
    }
}

/// Extensions are left out for their time; a shorter time ends none that is longer, and each host has its own.
#[test]
fn extensions_that_do_not_work_are_avoided_for_a_while() {
    let mut hosts = Hosts::new(settings(10), 1);
    let (one, other): (SocketAddr, SocketAddr) = ("192.0.2.1:25".parse().unwrap(), "192.0.2.2:25".parse().unwrap());
    let now = 1_000_000 * SECOND;
    let none = AvoidedExtensions::default();
    assert_eq!(hosts.avoided(one, now), none);
    hosts.avoid(one, AvoidedExtensions::CHUNKING, 100 * SECOND, now);
    hosts.avoid(one, AvoidedExtensions::PIPELINING, 10 * SECOND, now);
    let both = AvoidedExtensions::CHUNKING.with(AvoidedExtensions::PIPELINING);
    assert_eq!((hosts.avoided(one, now), hosts.avoided(other, now)), (both, none));
    assert_eq!(hosts.avoided(one, now + 99 * SECOND), both);
    assert_eq!(hosts.avoided(one, now + 100 * SECOND), none);
    // An extension whose time is over does not come back with another one.
    hosts.avoid(one, AvoidedExtensions::DSN, 10 * SECOND, now + 200 * SECOND);
    assert_eq!(hosts.avoided(one, now + 200 * SECOND), AvoidedExtensions::DSN);
    assert_eq!(both.to_string(), "PIPELINING, CHUNKING");
    let mixed = AvoidedExtensions::AUTH_CRAM_MD5.with(AvoidedExtensions::DSN);
    assert_eq!((mixed.to_string().as_str(), mixed.keys().collect::<Vec<_>>()), ("DSN, AUTH CRAM-MD5", vec!["dsn"]));
    assert!(both.contains(AvoidedExtensions::CHUNKING) && !both.contains(AvoidedExtensions::SIZE) && !both.is_empty());
}
