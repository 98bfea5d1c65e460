//! A run that is arranged for one question, without a seed: the hosts have no trouble besides its subject, and the
//! mail is plain.

use super::book::{Answer, Book, Sent};
use super::host::Host;
use super::plan::{Plan, config};
use crate::config::Config;
use std::sync::Arc;
use std::time::Duration;

/// How long trouble may last that [`Host::behave`] takes away again.
const HOUR: Duration = Duration::from_secs(3_600);

/// State of the world before a run begins.
pub(super) struct Scene {
    pub(super) book: Arc<Book>,
    pub(super) hosts: Vec<Host>,
    pub(super) config: Config,
}

impl Scene {
    /// Makes so many hosts that accept all mail, any number of messages over a connection, and answer after this
    /// time.
    pub(super) fn new(hosts: usize, latency: Duration) -> Self {
        let book = Arc::new(Book::new(hosts));
        let mut hosts: Vec<Host> = (0..hosts).map(|one| Host::by_chance(one, 1, HOUR, &book)).collect();
        for host in &mut hosts {
            host.behave();
            (host.manners.messages_max, host.manners.latency) = (u32::MAX, latency);
        }
        Self { book, hosts, config: config("") }
    }

    /// Returns an address at the host of this number.
    pub(super) fn at(&self, name: &str, host: usize) -> String {
        format!("{name}@[{}]", self.hosts[host].address)
    }

    /// The postmaster is at the host of this number.
    pub(super) fn postmaster_at(&mut self, host: usize) {
        self.config.delivery.postmaster = Some(self.at("postmaster", host).parse().unwrap());
    }

    /// A small message comes at this time. Each recipient is used once in a run.
    pub(super) fn send(&self, sender: String, recipients: Vec<String>, at: Duration) {
        let mut facts = self.book.facts();
        let number = facts.sent.len();
        facts.sent.push(Sent {
            sender,
            recipients: recipients.into_iter().map(|recipient| (recipient, None)).collect(),
            content: format!("X-Token: {number}.\r\nSubject: one\r\n\r\nhello\r\n").into_bytes(),
            is_eight_bit: false,
            priority: None,
            at,
            answer: Answer::Unsent,
        });
    }

    /// Mail comes until `traffic`; the run lasts no longer than `most`, and neither a crash nor an operator
    /// interferes.
    pub(super) fn plan(self, traffic: Duration, most: Duration) -> (Plan, Arc<Book>) {
        let Self { book, hosts, config } = self;
        let (deaths, commands) = (Vec::new(), Vec::new());
        let plan = Plan {
            config,
            hosts,
            deaths,
            commands,
            traffic,
            most,
            is_one_destination: false,
            ready_max: None,
            flush: None,
        };
        (plan, book)
    }
}
