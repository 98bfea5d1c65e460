//! Hosts that answer a message late, while others need places for connections.

use super::book::{Answer, Taken};
use super::host::{Fault, Mood, Point};
use super::run;
use super::scene::Scene;
use crate::sabotage::Sabotage;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Connections that there are.
const PLACES: usize = 4;
/// Hosts that answer late: as many as may have half of them.
const LATE: usize = 2;
/// Hosts that answer at once, and messages for each of them.
const PROMPT: usize = 6;
const EACH: u32 = 80;

/// Returns how often so many late hosts got their messages with so many connections for silent ones, how long others
/// waited at most, and the faults. `flight`: from the end of a message to its answer.
fn copies(late: usize, silent: u32, flight: Duration, sabotage: Option<Sabotage>) -> (usize, Duration, Vec<String>) {
    let plan = || {
        let mut scene = Scene::new(late + PROMPT, flight);
        for host in scene.hosts.iter_mut().take(late) {
            host.days = vec![(60 * MINUTE, vec![Mood::Faulty(Point::Dot, Fault::Late, 1)])];
        }
        scene.config.delivery.connections_max = u32::try_from(PLACES).unwrap();
        scene.config.delivery.connections_silent_max = silent;
        scene.config.delivery.connections_per_destination = 1;
        scene.postmaster_at(late);
        let send = |host: usize, at: Duration| {
            let number = scene.book.facts().sent.len();
            scene.send(String::new(), vec![scene.at(&format!("r{number}.0"), host)], at);
        };
        (0..late).for_each(|host| send(host, SECOND));
        for round in 0..EACH {
            (late..late + PROMPT).for_each(|host| send(host, 2 * SECOND * (round + 1)));
        }
        scene.plan(5 * MINUTE, 120 * MINUTE)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    let facts = book.facts();
    assert!(facts.connections_most <= PLACES + silent as usize, "{}", facts.connections_most);
    let (by_late, by_prompt): (Vec<&Taken>, Vec<&Taken>) = facts.taken.iter().partition(|taken| taken.host < late);
    let waited = |taken: &&Taken| {
        let (name, _) = &taken.recipients[0];
        let number: usize = name.trim_start_matches(['<', 'r']).split('.').next().unwrap().parse().unwrap();
        let Answer::Accepted(accepted) = facts.sent[number].answer else { panic!("{name}") };
        taken.at.saturating_sub(accepted)
    };
    (by_late.len(), by_prompt.iter().map(waited).max().unwrap(), wrong)
}

// RFC 5321 §4.5.3.2.6 (test)
#[test]
fn who_has_a_whole_message_is_not_hung_up_on_for_a_place() {
    let (count, _, wrong) = copies(LATE, 0, SECOND, None);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(count, LATE);
    assert!(copies(LATE, 0, SECOND, Some(Sabotage::HangUp)).0 > LATE, "not noticed");
}

#[test]
fn more_of_them_than_there_are_places_hold_up_nobody() {
    let late = 2 * PLACES;
    let (count, waited, wrong) = copies(late, 20, SECOND / 20, None);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(count, late);
    assert!(waited < 5 * SECOND, "{waited:?}");
    // Where they have no room of their own, others wait until they are late.
    let (_, waited, _) = copies(late, 0, SECOND / 20, None);
    assert!(waited > 15 * SECOND, "{waited:?}");
}
