//! Limits against a naive model that keeps everything for ever, and the cases with names.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How long a quiet client is remembered at most.
const MEMORY: Duration = Duration::from_secs(2 * BURST_SECONDS);

fn settings() -> Settings {
    Settings { connections_max: 1_000, ..Settings::default() }
}

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

#[track_caller]
fn refused(found: Result<AdmittedConnection, Refusal>, limit: Limit, value: u32) {
    assert_eq!(found.err(), Some(Refusal { limit, value }));
}

#[expect(clippy::disallowed_methods, reason = "some instant; only differences count")]
fn start() -> Instant {
    Instant::now()
}

#[test]
fn each_limit_has_its_name_and_reply() {
    let now = start();
    let all = Limits::new(Settings { connections_max: 1, ..settings() }, now);
    let held = all.admit(0, Some(v4(1)), now).unwrap();
    refused(all.admit(0, Some(v4(2)), now), Limit::Connections, 1);
    drop(held);
    let _again = all.admit(0, Some(v4(2)), now).unwrap();

    let listener = Limits::new(Settings { listeners: vec![0, 1], ..settings() }, now);
    let _one = listener.admit(1, None, now).unwrap();
    refused(listener.admit(1, None, now), Limit::ListenerConnections, 1);
    let _other = listener.admit(0, None, now).unwrap();
    let _unknown = listener.admit(7, None, now).unwrap();

    let client = Limits::new(Settings { connections_per_client: 1, ..settings() }, now);
    let _one = client.admit(0, Some(v4(1)), now).unwrap();
    refused(client.admit(0, Some(v4(1)), now), Limit::ClientConnections, 1);
    let _other = client.admit(0, Some(v4(2)), now).unwrap();

    for limit in [
        Limit::Connections,
        Limit::Rate,
        Limit::ClientConnections,
        Limit::ClientRate,
        Limit::AccessConnections,
        Limit::AccessRate,
        Limit::Files,
    ] {
        assert!(limit.reply().starts_with("421 4.") && limit.reply().ends_with("\r\n"), "{limit:?}");
    }
    assert_eq!(Refusal { limit: Limit::Connections, value: 1 }.to_string(), "accept.connections_max = 1 reached");
}

#[test]
fn who_is_one_client() {
    let now = start();
    let limits = Limits::new(Settings { connections_per_client: 1, ..settings() }, now);
    let _v4 = limits.admit(0, Some(v4(1)), now).unwrap();
    refused(
        limits.admit(0, Some(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into()), now),
        Limit::ClientConnections,
        1,
    );
    let in_64 = |low: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, low));
    let _v6 = limits.admit(0, Some(in_64(1)), now).unwrap();
    refused(limits.admit(0, Some(in_64(2)), now), Limit::ClientConnections, 1);
    let _next = limits.admit(0, Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 8, 0, 0, 0, 1).into()), now).unwrap();
}

#[test]
fn a_burst_and_then_the_rate() {
    let now = start();
    let limits = Limits::new(Settings { rate_per_client: 2, ..settings() }, now);
    // Ten at once, closed at once: places come back, tokens do not.
    for _ in 0..10 {
        drop(limits.admit(0, Some(v4(1)), now).unwrap());
    }
    refused(limits.admit(0, Some(v4(1)), now), Limit::ClientRate, 2);
    drop(limits.admit(0, Some(v4(2)), now).unwrap());
    let later = now + Duration::from_millis(500);
    refused(limits.admit(0, Some(v4(1)), later - Duration::from_nanos(1)), Limit::ClientRate, 2);
    drop(limits.admit(0, Some(v4(1)), later).unwrap());
    refused(limits.admit(0, Some(v4(1)), later), Limit::ClientRate, 2);
}

#[test]
fn behind_a_proxy_the_client_comes_later() {
    let now = start();
    let limits = Limits::new(Settings { connections_per_client: 1, ..settings() }, now);
    let mut first = limits.admit(0, None, now).unwrap();
    let mut second = limits.admit(0, None, now).unwrap();
    first.admit_client(v4(1), ClientLimits::default(), now).unwrap();
    let refusal = second.admit_client(v4(1), ClientLimits::default(), now).unwrap_err();
    assert_eq!(refusal.limit, Limit::ClientConnections);
    assert_eq!(limits.counts(), ConnectionCounts { connections: 2, clients: 1, ..ConnectionCounts::default() });
    drop(first);
    second.admit_client(v4(1), ClientLimits::default(), now).unwrap();
    second.admit_client(v4(1), ClientLimits::default(), now).unwrap();
    drop(second);
    assert_eq!(limits.counts(), ConnectionCounts::default());
}

#[test]
fn exempt_clients_count_in_all_only() {
    let now = start();
    let exempt = vec!["192.0.2.0/24".parse().unwrap()];
    let limits = Limits::new(
        Settings { connections_max: 3, connections_per_client: 1, rate_per_client: 1, exempt, ..settings() },
        now,
    );
    let held: Vec<AdmittedConnection> = (0..3).map(|_| limits.admit(0, Some(v4(1)), now).unwrap()).collect();
    refused(limits.admit(0, Some(v4(1)), now), Limit::Connections, 3);
    assert_eq!(limits.counts().clients, 0);
    drop(held);
}

#[test]
fn a_flood_of_addresses_stays_within_bounds() {
    let now = start();
    let limits = Limits::new(Settings { rate_per_client: 1, ..settings() }, now);
    for number in 0..300_000_u32 {
        drop(limits.admit(0, Some(Ipv4Addr::from_bits(number).into()), now).unwrap());
        if number % 10_000 == 0 {
            assert!(limits.counts().idle_clients <= IDLE_CLIENTS_MAX);
        }
    }
    assert!(limits.counts().idle_clients <= IDLE_CLIENTS_MAX);
    // Time alone empties it too, with the next two clients that come.
    for step in 1..=2 {
        drop(limits.admit(0, Some(v4(1)), now + MEMORY * step).unwrap());
    }
    assert!(limits.counts().idle_clients <= 1, "{:?}", limits.counts());
}

#[test]
fn other_numbers_take_effect_at_once() {
    let now = start();
    let limits = Limits::new(settings(), now);
    let _held: Vec<AdmittedConnection> = (0..3).map(|_| limits.admit(0, Some(v4(1)), now).unwrap()).collect();
    limits.replace(Settings { connections_per_client: 2, ..settings() });
    refused(limits.admit(0, Some(v4(1)), now), Limit::ClientConnections, 2);
    assert_eq!(limits.counts().connections, 3);
}

/// Returns limits as the access map gives them for a client.
fn own(connections: Option<u32>, rate: Option<u32>) -> ClientLimits {
    let max = |value: Option<u32>| value.map(|value| OwnMax { value, is_default: false });
    ClientLimits { connections: max(connections), rate: max(rate) }
}

const MINUTE: Duration = Duration::from_secs(60);

fn windowed() -> Settings {
    Settings { connections_per_client: 2, rate_per_client: 1, rate_window: MINUTE, ..settings() }
}

#[test]
fn what_the_map_says_counts_in_place_of_the_limits_for_all() {
    let now = start();
    let limits = Limits::new(windowed(), now);
    let admit = |ip, own| limits.admit_own(0, Some((ip, own)), now);
    // Without an entry two connections; with one three, or none is too many.
    let _held: Vec<AdmittedConnection> = (0..2).map(|_| admit(v4(1), ClientLimits::default()).unwrap()).collect();
    refused(admit(v4(1), ClientLimits::default()), Limit::ClientConnections, 2);
    let _more = admit(v4(1), own(Some(3), None)).unwrap();
    refused(admit(v4(1), own(Some(3), None)), Limit::AccessConnections, 3);
    let many: Vec<AdmittedConnection> = (0..100).map(|_| admit(v4(2), own(Some(0), Some(0))).unwrap()).collect();
    drop(many);
    // One limit of its own leaves the other as it is for all.
    for _ in 0..5 {
        drop(admit(v4(3), own(Some(0), None)).unwrap());
    }
    refused(admit(v4(3), own(Some(0), None)), Limit::ClientRate, 1);
    for _ in 0..7 {
        drop(admit(v4(4), own(None, Some(7))).unwrap());
    }
    refused(admit(v4(4), own(None, Some(7))), Limit::AccessRate, 7);
    drop(admit(v4(4), own(None, Some(8))).unwrap());
}

#[test]
fn a_number_in_a_window_and_no_more() {
    let began = start();
    let limits = Limits::new(windowed(), began);
    let admit = |seconds: u64| {
        let at = began + Duration::from_secs(seconds);
        limits.admit_own(0, Some((v4(1), own(None, Some(4)))), at).map(drop).map_err(|refusal| refusal.limit)
    };
    for second in [0, 0, 15, 59] {
        assert_eq!(admit(second), Ok(()), "{second}");
    }
    // A refused connection is not counted, so a refused client need not stay away.
    for second in [59, 59, 59] {
        assert_eq!(admit(second), Err(Limit::AccessRate), "{second}");
    }
    assert_eq!([admit(60), admit(60), admit(60)], [Ok(()), Ok(()), Err(Limit::AccessRate)], "the first two are over");
    assert_eq!([admit(75), admit(75)], [Ok(()), Err(Limit::AccessRate)]);
    assert_eq!(admit(10_000), Ok(()));
    // Another window counts anew.
    limits.replace(Settings { rate_window: Duration::from_secs(6), ..windowed() });
    for second in [10_000, 10_000, 10_000, 10_000] {
        assert_eq!(admit(second), Ok(()));
    }
    assert_eq!([admit(10_005), admit(10_007)], [Err(Limit::AccessRate), Ok(())]);
}

#[test]
fn who_is_exempt_is_so_from_the_default_of_the_map_alone() {
    let now = start();
    let limits = Limits::new(Settings { exempt: vec!["192.0.2.0/24".parse().unwrap()], ..windowed() }, now);
    let default = ClientLimits { rate: Some(OwnMax { value: 1, is_default: true }), ..ClientLimits::default() };
    let held: Vec<AdmittedConnection> =
        (0..9).map(|_| limits.admit_own(0, Some((v4(1), default)), now).unwrap()).collect();
    assert_eq!((limits.counts().clients, limits.counts().rated_clients), (0, 0));
    drop(held);
    // An entry for it counts, and the rest of the limits for all does not.
    let held: Vec<AdmittedConnection> =
        (0..3).map(|_| limits.admit_own(0, Some((v4(1), own(None, Some(3)))), now).unwrap()).collect();
    refused(limits.admit_own(0, Some((v4(1), own(None, Some(3)))), now), Limit::AccessRate, 3);
    drop(held);
    let other = IpAddr::from(Ipv4Addr::new(198, 51, 100, 1));
    drop(limits.admit_own(0, Some((other, default)), now).unwrap());
    refused(limits.admit_own(0, Some((other, default)), now), Limit::AccessRate, 1);
}

#[test]
fn windows_of_a_flood_stay_within_bounds() {
    let now = start();
    let limits = Limits::new(windowed(), now);
    let admit =
        |number: u32, now| limits.admit_own(0, Some((Ipv4Addr::from_bits(number).into(), own(None, Some(1)))), now);
    for number in 0..300_000_u32 {
        drop(admit(number, now).unwrap());
        if number % 10_000 == 0 {
            assert!(limits.counts().rated_clients <= RATED_CLIENTS_MAX);
        }
    }
    // The last ones are remembered, the first ones are not.
    refused(admit(299_999, now), Limit::AccessRate, 1);
    drop(admit(0, now).unwrap());
    // Time alone empties it too.
    for step in 1..=2 {
        drop(admit(7, now + MINUTE * step).unwrap());
    }
    assert_eq!(limits.counts().rated_clients, 1);
}

proptest! {
    /// No window of any place in time sees more than the number, and after a whole window without a connection the
    /// number is free again.
    #[test]
    fn no_window_has_more_than_its_number(waits in prop::collection::vec(0..30_000_u64, 1..120), max in 1..6_u32) {
        let began = start();
        let limits = Limits::new(windowed(), began);
        let mut now = 0;
        let mut admitted: Vec<u64> = Vec::new();
        for wait in waits {
            now += wait;
            let at = began + Duration::from_millis(now);
            let is_admitted = limits.admit_own(0, Some((v4(1), own(None, Some(max)))), at).is_ok();
            let recent = |time: u64| admitted.iter().filter(|before| now - **before < time).count();
            // A slot more or less: five sixths are always seen, and nothing older than the window.
            if is_admitted {
                prop_assert!(recent(50_000) < max as usize, "{} of {max}", recent(50_000));
                admitted.push(now);
            } else {
                prop_assert!(recent(60_000) >= max as usize, "{} of {max}", recent(60_000));
            }
        }
    }
}

/// The documented limits without regard to cost: buckets fill token by token, and no client is forgotten.
#[derive(Default)]
struct Model {
    open: Vec<(usize, Option<u8>)>,
    /// Missing nanoseconds of each bucket, and when that was so; the common one under `None`.
    missing: HashMap<Option<u8>, (u64, u64)>,
}

impl Model {
    fn missing(&self, who: Option<u8>, now: u64) -> u64 {
        self.missing.get(&who).map_or(0, |(missing, at)| missing.saturating_sub(now - at))
    }

    fn admit(&mut self, settings: &Settings, listener: usize, client: Option<u8>, now: u64) -> Result<(), Limit> {
        let count = |of: &dyn Fn(usize, Option<u8>) -> bool| {
            u32::try_from(self.open.iter().filter(|(listener, client)| of(*listener, *client)).count()).unwrap()
        };
        let has =
            |who, rate: u32| rate == 0 || self.missing(who, now) + SECOND / u64::from(rate) <= BURST_SECONDS * SECOND;
        let listener_max = settings.listeners.get(listener).copied().unwrap_or(0);
        if count(&|_, _| true) >= settings.connections_max {
            return Err(Limit::Connections);
        }
        if listener_max != 0 && count(&|at, _| at == listener) >= listener_max {
            return Err(Limit::ListenerConnections);
        }
        if !has(None, settings.rate) {
            return Err(Limit::Rate);
        }
        if client.is_some() {
            let max = settings.connections_per_client;
            if max != 0 && count(&|_, who| who == client) >= max {
                return Err(Limit::ClientConnections);
            }
            if !has(client, settings.rate_per_client) {
                return Err(Limit::ClientRate);
            }
        }
        for (who, rate) in [(None, settings.rate), (client, settings.rate_per_client)] {
            if rate != 0 {
                let missing = self.missing(who, now) + SECOND / u64::from(rate);
                self.missing.insert(who, (missing, now));
            }
        }
        self.open.push((listener, client));
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Admit { listener: usize, client: u8 },
    Drop(prop::sample::Index),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3_usize, 0..4_u8).prop_map(|(listener, client)| Step::Admit { listener, client }),
        3 => any::<prop::sample::Index>().prop_map(Step::Drop),
        2 => (0..4 * SECOND).prop_map(Step::Wait),
        1 => (0..20 * SECOND).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn decides_as_the_model(
        steps in prop::collection::vec(step(), 1..200),
        connections_max in 1..12_u32,
        connections_per_client in 0..4_u32,
        rate in prop_oneof![Just(0), 1..4_u32],
        rate_per_client in prop_oneof![Just(0), 1..3_u32],
        listener_max in 0..5_u32,
    ) {
        let settings = Settings {
            connections_max, connections_per_client, rate, rate_per_client,
            exempt: Vec::new(), listeners: vec![0, listener_max], ..Settings::default()
        };
        let began = start();
        let limits = Limits::new(settings.clone(), began);
        let mut model = Model::default();
        let mut guards = Vec::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Wait(time) => now += time,
                Step::Drop(_) if guards.is_empty() => {}
                Step::Drop(index) => {
                    let index = index.index(guards.len());
                    drop(guards.remove(index));
                    model.open.remove(index);
                }
                Step::Admit { listener, client } => {
                    let at = began + Duration::from_nanos(now);
                    let found = limits.admit(listener, Some(v4(client)), at);
                    let expected = model.admit(&settings, listener, Some(client), now);
                    prop_assert_eq!(found.as_ref().map(|_| ()).map_err(|refusal| refusal.limit), expected);
                    guards.extend(found);
                }
            }
            prop_assert_eq!(limits.counts().connections as usize, model.open.len());
        }
    }
}
