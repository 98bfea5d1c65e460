//! Mail for former smart hosts that moves while some of it is being delivered there.

use super::host::{Fault, Host, Mood, Point};
use super::plan::{End, Plan};
use super::run::{Life, within};
use super::scene::Scene;
use crate::active_config::ActiveConfig;
use crate::config::{Host as Name, HostPort};
use crate::dispatch::{Renewal, reconfigure};
use crate::sabotage::Sabotage;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const RELOADS: u64 = 5;

/// Lets time pass on the clock that stands still otherwise.
async fn after(time: Duration) {
    drop(tokio::time::timeout(time, std::future::pending::<()>()).await);
}

/// Returns how often the spool is looked through while a host that takes a message says nothing for ten minutes, and
/// another one is named in its place again and again; and in half an hour after its end.
fn passes(sabotage: Option<Sabotage>) -> (u64, u64) {
    within(sabotage, async |place| {
        let mut scene = Scene::new(2, 20 * MILLISECOND);
        scene.hosts[0].days = vec![(60 * MINUTE, vec![Mood::Faulty(Point::Dot, Fault::Hang, 1)])];
        let smart = |host: &Host| vec![vec![HostPort { host: Name::Address(IpAddr::V4(host.address)), port: 25 }]];
        let (first, second) = (smart(&scene.hosts[0]), smart(&scene.hosts[1]));
        scene.config.route.smart_host = first;
        let mut config = scene.config.clone();
        scene.send(String::new(), vec!["r0.0@d.test".to_owned()], SECOND);
        let (plan, book) = scene.plan(MINUTE, 60 * MINUTE);
        let life = Life::new(1, Plan { is_one_destination: true, ..plan }, book, place);
        let (mut others, mut senders) = life.begin();
        while senders.join_next().await.is_some() {}
        after(10 * SECOND).await;
        let context = life.machine.context().unwrap();
        config.route.smart_host = second;
        context.live.store(Arc::new(ActiveConfig::new(config, None)));
        let dispatch = life.machine.dispatch().unwrap();
        let count = || dispatch.passes.load(Ordering::Relaxed);
        let begun = count();
        for _ in 0..RELOADS {
            reconfigure(&dispatch, &Renewal::of_maps());
            after(SECOND).await;
        }
        after(5 * MINUTE).await;
        let under_way = count() - begun;
        // It is given up, moved, and taken by the other one.
        after(30 * MINUTE).await;
        assert_eq!(life.machine.waiting(), Some(0));
        let ended = count();
        after(30 * MINUTE).await;
        let later = count() - ended;
        drop((context, dispatch));
        life.machine.end(End::Stop).await;
        others.shutdown().await;
        (under_way, later)
    })
}

#[test]
fn reloads_begin_one_pass_at_a_time_over_what_is_under_way_and_the_last_ends() {
    // One pass every half minute, whatever the number of reloads.
    let is_one_at_a_time = |passes: u64| (RELOADS + 9..=RELOADS + 11).contains(&passes);
    let (under_way, later) = passes(None);
    assert!(is_one_at_a_time(under_way), "{under_way}");
    assert_eq!(later, 0, "nothing is left to be moved");
    let (under_way, _) = passes(Some(Sabotage::PassEach));
    assert!(!is_one_at_a_time(under_way), "{under_way}: not noticed");
    let (_, later) = passes(Some(Sabotage::PassOn));
    assert!(later > 0, "not noticed");
}
