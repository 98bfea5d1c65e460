//! An operator bounces mail while power goes, and while it is being delivered.

use super::book::Facts;
use super::host::Mood;
use super::plan::End;
use super::run::{Life, within};
use super::scene::Scene;
use crate::dispatch::Dispatch;
use crate::sabotage::Sabotage;
use mail::QueueId;
use operator::queue::{GiveUpReason, RecipientSelection};
use spool::{Status, Store as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot::Receiver;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long the disk takes for each write.
const FLUSH: Duration = Duration::from_millis(20);
/// Recipients of the list: too many for one report.
const COUNT: usize = 5_000;

/// Lets time pass on the clock that stands still otherwise.
async fn after(time: Duration) {
    drop(tokio::time::timeout(time, std::future::pending::<()>()).await);
}

/// Begins to bounce all that is in the queue but reports.
fn bounce_all(dispatch: &Dispatch) -> Receiver<Vec<operator::queue::Bounced>> {
    let of_senders = |id: &QueueId| {
        let stored = dispatch.spool.envelope(*id).unwrap();
        spool::envelope::decode_head(*id, &stored.head).unwrap().sender.address().is_some()
    };
    let positions = |id: QueueId| dispatch.spool.states(id).iter().map(|(entry, _)| entry.recipient).collect();
    let ids = dispatch.spool.messages().into_iter().filter(of_senders);
    let meant = ids.map(|id| RecipientSelection { id, recipients: positions(id) }).collect();
    dispatch.bounce_some(meant, GiveUpReason::Postmaster(Arc::from("Given up by the postmaster")))
}

/// Counts how often a report named each recipient.
fn told(facts: &Facts) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for taken in facts.taken.iter().filter(|taken| taken.sender.is_empty()) {
        let text = String::from_utf8_lossy(&taken.content);
        for name in text.split("\r\n").filter_map(|line| line.strip_prefix("Final-Recipient: rfc822; ")) {
            *told.entry(name.to_owned()).or_default() += 1;
        }
    }
    told
}

/// Result of a crash while a list is bounced.
struct Crashed {
    /// How long the command took, if it came to its end.
    took: Option<Duration>,
    /// Recipients that waited after the crash (`waiting`), that reports named (`told`), and both at once (`both`).
    waiting: usize,
    told: usize,
    both: usize,
    /// Recipients that neither wait nor were reported.
    lost: usize,
    /// Recipients that were reported more than once after another command, and at all.
    twice: usize,
    all: usize,
}

/// Cuts power so long after the command, or when it is done.
fn crashed(at: Option<Duration>, sabotage: Option<Sabotage>) -> Crashed {
    within(sabotage, async |place| {
        let mut scene = Scene::new(2, Duration::ZERO);
        scene.hosts.iter_mut().for_each(|host| host.manners.pipelining = true);
        scene.hosts[1].days = vec![(24 * HOUR, vec![Mood::Refuses])];
        scene.config.message.recipients_max = 10_000;
        // The envelope is one frame.
        scene.config.spool.segment_bytes = 4 << 20;
        scene.config.spool.size_max = 128 << 20;
        scene.postmaster_at(0);
        let names: Vec<String> = (0..COUNT).map(|nth| scene.at(&format!("r0.{nth}{}", "x".repeat(50)), 1)).collect();
        scene.send(scene.at("s0", 0), names.clone(), SECOND);
        let (mut plan, book) = scene.plan(MINUTE, 60 * MINUTE);
        plan.flush = Some(FLUSH);
        let life = Life::new(1, plan, book, place);
        let (mut others, mut senders) = life.begin();
        while senders.join_next().await.is_some() {}
        after(10 * SECOND).await;
        let dispatch = life.machine.dispatch().unwrap();
        let began = life.book.now();
        let heard = bounce_all(&dispatch);
        drop(dispatch);
        let heard = tokio::time::timeout(at.unwrap_or(HOUR), heard).await;
        let took = heard.is_ok().then(|| life.book.now() - began);
        if let Some(at) = at {
            after((began + at).saturating_sub(life.book.now())).await;
        }
        life.machine.end(End::Power).await;
        life.machine.start();
        // Reports that are in the spool come to the sender.
        after(MINUTE).await;
        let dispatch = life.machine.dispatch().unwrap();
        let mut waiting = BTreeSet::new();
        for (entry, _) in dispatch.spool.messages().into_iter().flat_map(|id| dispatch.spool.states(id)) {
            assert_eq!(entry.state.status, Status::Waiting, "nobody is held");
            waiting.insert(names[entry.recipient as usize].clone());
        }
        let first = told(&life.book.facts());
        let is_known = |name: &&String| !waiting.contains(*name) && !first.contains_key(*name);
        let lost = names.iter().filter(is_known).count();
        let both = waiting.iter().filter(|name| first.contains_key(*name)).count();
        let again = bounce_all(&dispatch).await.unwrap();
        assert!(again.iter().all(|one| one.trouble.is_none() && one.active == 0), "{again:?}");
        after(MINUTE).await;
        let last = told(&life.book.facts());
        drop(dispatch);
        assert_eq!(life.machine.waiting(), Some(0));
        life.machine.end(End::Stop).await;
        others.shutdown().await;
        let twice = last.values().filter(|count| **count > 1).count();
        Crashed { took, waiting: waiting.len(), told: first.len(), both, lost, twice, all: last.len() }
    })
}

#[test]
fn a_crash_leaves_each_recipient_waiting_or_bounced_and_reported() {
    let (mut between, mut untouched, mut ended) = (0, 0, 0);
    let took = crashed(None, None).took.unwrap();
    println!("it takes {took:?}");
    for step in 0..=12 {
        let at = took * step / 12 + MILLISECOND;
        let Crashed { waiting, told, both, lost, twice, all, .. } = crashed(Some(at), None);
        println!("{step}: {waiting} wait, {told} were told of, {both} of both, {twice} of {all} twice");
        assert_eq!((lost, all), (0, COUNT), "step {step}");
        assert_eq!(waiting + told - both, COUNT, "step {step}");
        // Those of one report: the record of it may be lost with power.
        assert!(twice == both && both < COUNT, "step {step}");
        between += usize::from(waiting > 0 && told > 0);
        untouched += usize::from(told == 0);
        ended += usize::from(waiting == 0);
    }
    assert!(between > 0 && untouched > 0 && ended > 0, "{between} {untouched} {ended}");
    let lost = crashed(None, Some(Sabotage::DropReport)).lost;
    assert!(lost > 0, "a report that is not stored is not noticed");
}

/// Messages that are bounced while their host takes one after the other: recipients that got theirs, that were
/// reported, and both; and those that were left alone.
fn delivered(sabotage: Option<Sabotage>) -> [usize; 4] {
    const MESSAGES: usize = 200;
    within(sabotage, async |place| {
        let mut scene = Scene::new(2, Duration::ZERO);
        scene.hosts[1].manners.latency = 30 * MILLISECOND;
        scene.config.delivery.connections_per_destination = 1;
        scene.postmaster_at(0);
        for number in 0..MESSAGES {
            scene.send(scene.at("s0", 0), vec![scene.at(&format!("r{number}.0"), 1)], SECOND);
        }
        let (mut plan, book) = scene.plan(MINUTE, 60 * MINUTE);
        plan.flush = Some(FLUSH);
        let life = Life::new(1, plan, book, place);
        let (mut others, mut senders) = life.begin();
        while senders.join_next().await.is_some() {}
        let to_host = |facts: &Facts| facts.taken.iter().filter(|taken| taken.host == 1).count();
        while to_host(&life.book.facts()) < MESSAGES / 4 {
            after(MILLISECOND).await;
        }
        let dispatch = life.machine.dispatch().unwrap();
        let bounced = bounce_all(&dispatch).await.unwrap();
        drop(dispatch);
        after(5 * MINUTE).await;
        assert_eq!(life.machine.waiting(), Some(0));
        life.machine.end(End::Stop).await;
        others.shutdown().await;
        let facts = life.book.facts();
        let told = told(&facts);
        let got: Vec<&String> =
            facts.taken.iter().filter(|taken| taken.host == 1).map(|taken| &taken.recipients[0].0).collect();
        let both = got.iter().filter(|name| told.contains_key(**name)).count();
        let active: u64 = bounced.iter().map(|one| one.active).sum();
        [got.len(), told.len(), both, active as usize]
    })
}

#[test]
fn what_is_bounced_is_not_delivered_and_what_is_delivered_is_not_bounced() {
    let [got, told, both, active] = delivered(None);
    println!("{got} were delivered, {told} were bounced, {active} were left alone");
    assert_eq!((got + told, both), (200, 0));
    assert!(got > 50 && told > 50 && active > 0, "{got} {told} {active}");
    let [.., both, _] = delivered(Some(Sabotage::Unclaimed));
    assert!(both > 0, "not noticed");
}
