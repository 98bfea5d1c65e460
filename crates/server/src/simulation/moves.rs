//! Mail that waits for smart hosts of before, while it is under way there.

use super::book::{Answer, Book, Sent};
use super::host::{Fault, Host, Mood, Point};
use super::machine::End;
use super::plan::{Plan, config};
use super::run::{Life, within};
use crate::config::{Host as Name, HostPort};
use crate::dispatch::{Renewal, reconfigure};
use crate::service::Live;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const RELOADS: u64 = 5;

/// Lets time pass on the clock that stands still otherwise.
async fn after(time: Duration) {
    drop(tokio::time::timeout(time, std::future::pending::<()>()).await);
}

/// A host that takes a message and says nothing for ten minutes, and one that is named in its place.
#[test]
fn reloads_begin_one_pass_at_a_time_over_what_is_under_way_and_the_last_ends() {
    let passes = within(None, async |place| {
        let book = Arc::new(Book::new(2));
        let mut hosts: Vec<Host> = (0..2).map(|one| Host::by_chance(one, 1, 60 * MINUTE, &book)).collect();
        hosts.iter_mut().for_each(Host::behave);
        hosts[0].days = vec![(60 * MINUTE, vec![Mood::Faulty(Point::Dot, Fault::Hang, 1)])];
        let smart = |host: &Host| vec![vec![HostPort { host: Name::Address(IpAddr::V4(host.address)), port: 25 }]];
        let (first, second) = (smart(&hosts[0]), smart(&hosts[1]));
        let mut config = config("");
        config.route.smart_host = first;
        book.facts().sent.push(Sent {
            sender: String::new(),
            recipients: vec![("r0.0@d.test".to_owned(), None)],
            content: b"X-Token: 0.\r\nSubject: one\r\n\r\nhello\r\n".to_vec(),
            is_eight_bit: false,
            priority: None,
            at: SECOND,
            answer: Answer::Unsent,
        });
        let plan = Plan {
            config: config.clone(),
            hosts,
            deaths: Vec::new(),
            commands: Vec::new(),
            traffic: MINUTE,
            most: 60 * MINUTE,
            is_one_destination: true,
            ready_max: None,
        };
        let life = Life::new(1, plan, book, place);
        let (mut others, mut senders) = life.begin();
        while senders.join_next().await.is_some() {}
        after(10 * SECOND).await;
        let service = life.machine.service().unwrap();
        config.route.smart_host = second;
        service.live.store(Arc::new(Live::new(config, None)));
        let dispatch = service.dispatch.clone().unwrap();
        let count = || dispatch.passes.load(Ordering::Relaxed);
        let begun = count();
        for _ in 0..RELOADS {
            reconfigure(&service, &Renewal::of_maps());
            after(SECOND).await;
        }
        after(5 * MINUTE).await;
        let under_way = count() - begun;
        // It is given up, moved, and taken by the other one.
        after(30 * MINUTE).await;
        assert_eq!(life.machine.waiting(), Some(0));
        let ended = count();
        after(30 * MINUTE).await;
        assert_eq!(count(), ended, "nothing is left to be moved");
        drop((service, dispatch));
        life.machine.end(End::Stop).await;
        others.shutdown().await;
        under_way
    });
    // One every half minute, whatever the number of reloads.
    assert!((RELOADS + 9..=RELOADS + 11).contains(&passes), "{passes}");
}
