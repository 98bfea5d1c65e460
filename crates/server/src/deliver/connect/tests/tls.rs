//! TLS that is attacked, broken or gone: which mail waits, and when clear text is used all the same.

use super::*;
use schedule::TlsRecord;

const HOUR: Duration = Duration::from_secs(3_600);

impl World {
    /// With this time until clear text is used.
    fn fallback_after(self, time: Duration) -> Self {
        let mut config = self.outbound.context.live.load().config.clone();
        config.delivery.tls_fallback_after = time;
        self.outbound.context.live.store(Arc::new(crate::active_config::ActiveConfig::new(config, None)));
        self
    }

    /// A host had TLS so long ago, and has failed since `fails` ago, if that is some.
    fn had_tls(self, address: &str, ago: Duration, fails: Option<Duration>) -> Self {
        let (address, now) = (address.parse().unwrap(), self.outbound.context.unix_now());
        self.outbound.hosts.update(|hosts| {
            hosts.tls_worked(address, now - ago);
            if let Some(fails) = fails {
                // Attempts in between, so that it is one period.
                let steps = 10_u32;
                for step in 0..=steps {
                    hosts.tls_missing(address, HOUR, now - fails + fails * step / steps);
                }
            }
        });
        self
    }

    fn record(&self, address: &str) -> TlsRecord {
        let now = self.outbound.context.unix_now();
        self.outbound.hosts.with_table(|hosts| hosts.tls(address.parse().unwrap(), now))
    }
}

/// Octets that an attacker on the path can put into a connection without knowing a key.
const INJECTED: [Mood; 13] = [
    Mood::Injected(b"2"),
    Mood::Injected(b"\0"),
    Mood::Injected(b"\n"),
    Mood::Injected(b"\x16"),
    Mood::Injected(b"250 mx.test\r\n"),
    Mood::Injected(b"454 4.7.0 no TLS\r\n"),
    Mood::InjectedApart(b"250 mx.test\r\n"),
    Mood::InjectedApart(b"454 4.7.0 no TLS\r\n"),
    Mood::InjectedApart(b"\0\0\0\0\0"),
    Mood::InjectedLate(b"454 4.7.0 no TLS\r\n"),
    Mood::InjectedEarly(b"220 go on\r\n"),
    Mood::InjectedEarly(b"454 4.7.0 no TLS\r\n"),
    Mood::InjectedEarly(b"2"),
];

// RFC 3207 §6 (test)
#[tokio::test(start_paused = true)]
async fn injected_text_never_leads_to_clear_text() {
    for mood in INJECTED {
        let world = World::new(&[("one", ONE, mood)]).fallback_after(Duration::from_secs(1));
        for _ in 0..2 {
            let trouble = world.open(Lane::Fast).await.0.unwrap_err();
            assert_eq!(trouble.status.to_string(), "4.7.0", "{mood:?}: {trouble:?}");
            assert!(
                trouble.text.starts_with("one or somebody on the way said something in clear behind STARTTLS"),
                "{mood:?}: {}",
                trouble.text
            );
            assert!(!trouble.is_permanent, "{mood:?}");
            assert_eq!(world.dialled().len(), 1, "{mood:?}: no second connection, in clear");
            assert_eq!(
                world.record(ONE),
                TlsRecord::Unknown,
                "{mood:?}: nothing is remembered that would allow clear text"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_with_injected_text_is_left_for_the_next_one() {
    for mood in INJECTED {
        let world = World::new(&[("one", ONE, mood), ("two", TWO, Mood::Good)]);
        assert_eq!(&*world.open(Lane::Fast).await.0.unwrap().peer.name, "two", "{mood:?}");
        assert_eq!(world.dialled(), ["192.0.2.1", "192.0.2.2"], "{mood:?}");
        assert!(!world.may_try(ONE), "{mood:?}: others come first");
    }
}

/// The control: a host that only has no TLS, or whose handshake fails, gets its mail where nothing speaks against it.
#[tokio::test(start_paused = true)]
async fn a_host_that_never_had_tls_is_spoken_to_in_clear() {
    for (mood, connections) in [(Mood::Good, 1), (Mood::DeclinesTls, 1), (Mood::BrokenTls, 2), (Mood::MuteTls, 2)] {
        let world = World::new(&[("one", ONE, mood)]);
        let link = world.open(Lane::Fast).await.0.unwrap();
        assert!(link.tls.is_none() && link.session.is_greeted(), "{mood:?}");
        assert_eq!(world.dialled().len(), connections, "{mood:?}");
    }
}

/// Refused, gone, broken off, silent: a host that had TLS yesterday does none of this without an attack or a fault.
const WITHOUT: [(Mood, &str, &str); 4] = [
    (Mood::Good, "4.7.4", "one does not offer STARTTLS, and it had TLS"),
    (Mood::DeclinesTls, "4.7.4", "one refuses STARTTLS: 454 4.7.0 not today, and it had TLS"),
    (Mood::BrokenTls, "4.7.5", "TLS handshake with one failed: "),
    (Mood::MuteTls, "4.4.2", "timeout waiting for one during client STARTTLS, and it had TLS"),
];

#[tokio::test(start_paused = true)]
async fn mail_waits_at_a_host_that_had_tls_lately() {
    for (mood, status, text) in WITHOUT {
        for (fails, ago) in [(None, HOUR), (None, 29 * 24 * HOUR), (Some(3 * HOUR), 24 * HOUR)] {
            let world = World::new(&[("one", ONE, mood)]).had_tls(ONE, ago, fails);
            let trouble = world.open(Lane::Fast).await.0.unwrap_err();
            assert_eq!(trouble.status.to_string(), status, "{mood:?}: {trouble:?}");
            assert!(trouble.text.starts_with(text), "{mood:?}: {}", trouble.text);
            let key = "mail waits for TLS: delivery.tls_fallback_after, 14400 s, says for how long";
            assert!(trouble.text.ends_with(key), "{mood:?}: {}", trouble.text);
            assert_eq!((trouble.reply, trouble.is_permanent), (None, false), "{mood:?}");
            assert_eq!(world.dialled().len(), 1, "{mood:?}");
            assert_eq!(world.record(ONE), TlsRecord::Worked, "{mood:?}");
        }
        // The next host is tried.
        let world = World::new(&[("one", ONE, mood), ("two", TWO, Mood::Good)]).had_tls(ONE, HOUR, None);
        assert_eq!(&*world.open(Lane::Fast).await.0.unwrap().peer.name, "two", "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_lasts_for_long_enough_is_taken_for_the_loss_of_tls() {
    for (mood, ..) in WITHOUT {
        let world = World::new(&[("one", ONE, mood)]).had_tls(ONE, 24 * HOUR, Some(4 * HOUR));
        assert!(world.open(Lane::Fast).await.0.unwrap().tls.is_none(), "{mood:?}");
        assert_eq!(world.record(ONE), TlsRecord::Broken, "{mood:?}");
        // In clear for an hour, and then as any host.
        world.dialled();
        assert!(world.open(Lane::Fast).await.0.is_ok());
        assert_eq!(world.dialled().len(), 1, "{mood:?}");
        // 0: never.
        let world = World::new(&[("one", ONE, mood)]).had_tls(ONE, 24 * HOUR, Some(20 * HOUR));
        let trouble = world.fallback_after(Duration::ZERO).open(Lane::Fast).await.0.unwrap_err();
        assert!(trouble.text.ends_with("mail waits for TLS: delivery.tls_fallback_after is 0"), "{}", trouble.text);
        // TLS longer ago than the memory reaches says nothing.
        let world = World::new(&[("one", ONE, mood)]).had_tls(ONE, 30 * 24 * HOUR, None);
        assert!(world.open(Lane::Fast).await.0.is_ok(), "{mood:?}");
    }
}

/// One failure today and one next week are no evidence: an attacker could wait for that.
#[tokio::test(start_paused = true)]
async fn two_failures_far_apart_are_not_one_long_one() {
    let world = World::new(&[("one", ONE, Mood::BrokenTls)]).had_tls(ONE, 9 * 24 * HOUR, None);
    let (address, now) = (ONE.parse().unwrap(), world.outbound.context.unix_now());
    world.outbound.hosts.update(|hosts| {
        hosts.tls_missing(address, HOUR, now - 7 * 24 * HOUR);
    });
    assert!(world.open(Lane::Fast).await.0.is_err());
}

#[tokio::test(start_paused = true)]
async fn policies_are_as_they_were() {
    for fails in [None, Some(20 * HOUR)] {
        let world = |mood| World::new(&[("one", ONE, mood)]).had_tls(ONE, 24 * HOUR, fails);
        let mut required = world(Mood::BrokenTls);
        required.rule.tls = RouteTls::Required;
        let trouble = required.open(Lane::Fast).await.0.unwrap_err();
        assert!(trouble.text.starts_with("TLS handshake with one failed: ") && !trouble.text.contains("had TLS"));
        let mut none = world(Mood::BrokenTls);
        none.rule.tls = RouteTls::None;
        assert!(none.open(Lane::Fast).await.0.is_ok());
        let quiet = world(Mood::BrokenTls).access("Try_TLS:one NO\n");
        assert!(quiet.open(Lane::Fast).await.0.is_ok());
    }
}
