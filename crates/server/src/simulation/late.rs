//! Hosts that take their time with the answer to a message, while others need places for connections.

use super::host::{Fault, Mood, Point};
use super::run;
use super::sabotage::Sabotage;
use super::scene::Scene;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Hosts that answer late: as many as may have half of all connections.
const LATE: usize = 2;
/// Hosts that answer at once, and messages for each of them.
const PROMPT: usize = 6;
const EACH: u32 = 80;

/// How often the late hosts got their messages, and what is wrong.
fn copies(sabotage: Option<Sabotage>) -> (usize, Vec<String>) {
    let plan = || {
        let mut scene = Scene::new(LATE + PROMPT, SECOND);
        for host in scene.hosts.iter_mut().take(LATE) {
            host.days = vec![(60 * MINUTE, vec![Mood::Faulty(Point::Dot, Fault::Late, 1)])];
        }
        scene.config.delivery.connections_max = 4;
        scene.config.delivery.connections_per_destination = 1;
        scene.postmaster_at(LATE);
        let send = |host: usize, at: Duration| {
            let number = scene.book.facts().sent.len();
            scene.send(String::new(), vec![scene.at(&format!("r{number}.0"), host)], at);
        };
        (0..LATE).for_each(|host| send(host, SECOND));
        for round in 0..EACH {
            (LATE..LATE + PROMPT).for_each(|host| send(host, 2 * SECOND * (round + 1)));
        }
        scene.plan(5 * MINUTE, 120 * MINUTE)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    let facts = book.facts();
    assert!(facts.connections_most <= 4, "{}", facts.connections_most);
    (facts.taken.iter().filter(|taken| taken.host < LATE).count(), wrong)
}

// RFC 5321 §4.5.3.2.6 (test)
#[test]
fn who_has_a_whole_message_is_not_hung_up_on_for_a_place() {
    let (count, wrong) = copies(None);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(count, LATE);
    assert!(copies(Some(Sabotage::HangUp)).0 > LATE, "not noticed");
}
