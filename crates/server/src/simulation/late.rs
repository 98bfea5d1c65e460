//! Hosts that take their time with the answer to a message, while others need places for connections.

use super::book::{Answer, Book, Sent};
use super::host::{Fault, Host, Mood, Point};
use super::plan::{Plan, config};
use super::run;
use super::sabotage::Sabotage;
use std::sync::Arc;
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
        let book = Arc::new(Book::new(LATE + PROMPT));
        let mut hosts: Vec<Host> = (0..LATE + PROMPT).map(|one| Host::by_chance(one, 1, 60 * MINUTE, &book)).collect();
        for host in &mut hosts {
            host.behave();
            (host.manners.messages_max, host.manners.latency) = (u32::MAX, SECOND);
        }
        for host in hosts.iter_mut().take(LATE) {
            host.days = vec![(60 * MINUTE, vec![Mood::Faulty(Point::Dot, Fault::Late, 1)])];
        }
        let mut config = config("");
        config.delivery.connections_max = 4;
        config.delivery.connections_per_destination = 1;
        config.delivery.postmaster = Some(format!("postmaster@[{}]", hosts[LATE].address).parse().unwrap());
        let send = |host: &Host, at: Duration| {
            let number = book.facts().sent.len();
            book.facts().sent.push(Sent {
                sender: String::new(),
                recipients: vec![(format!("r{number}.0@[{}]", host.address), None)],
                content: format!("X-Token: {number}.\r\nSubject: one\r\n\r\nhello\r\n").into_bytes(),
                is_eight_bit: false,
                priority: None,
                at,
                answer: Answer::Unsent,
            });
        };
        hosts.iter().take(LATE).for_each(|host| send(host, SECOND));
        for round in 0..EACH {
            hosts.iter().skip(LATE).for_each(|host| send(host, 2 * SECOND * (round + 1)));
        }
        let plan = Plan {
            config,
            hosts,
            deaths: Vec::new(),
            commands: Vec::new(),
            traffic: 5 * MINUTE,
            most: 120 * MINUTE,
            is_one_destination: false,
            ready_max: None,
        };
        (plan, book)
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
