//! A dispatcher that hears of hosts and tells of them, without an engine.

use super::*;
use crate::config::{self, Config};
use crate::resolve;
use mail::{Node, QueueId};
use schedule::{Class, ConnectionId, Positions};
use std::collections::BTreeSet;
use tokio::sync::mpsc::UnboundedReceiver;

/// An address literal needs no look-up.
const DESTINATION: &[u8] = b"[192.0.2.1]";
const ENGINES: &str = "10.0.0.1:4222";

struct Trial {
    dispatch: Arc<Dispatch>,
    tasks: UnboundedReceiver<Task>,
    published: mpsc::Receiver<HostStatus>,
    messages: u64,
}

fn read(text: &str) -> Config {
    config::load(text, None, &[], &config::Machine::default()).unwrap().config
}

impl Trial {
    fn new(text: &str, engines: &str) -> Self {
        let (dispatch, _) = Dispatch::trial(read(&format!("[delivery]\nmode = 'background'\n{text}")));
        let tasks = dispatch.take_inbox().unwrap();
        let published = dispatch.begin_host_reports(NodeId(1), &[engines.to_owned()]);
        Self { dispatch, tasks, published, messages: 0 }
    }

    /// The name of the destination's site at all nodes.
    fn next_hop(&self) -> String {
        let state = self.dispatch.lock();
        let site = resolve::site_at_once(&state.config, &state.routing, DESTINATION).unwrap();
        name_in_cluster(&site.name)
    }

    fn hear(&self, node: u16, state: HostState) {
        let status = HostStatus { node: NodeId(node), state, wait_s: 60, next_hop: self.next_hop() };
        self.dispatch.hear_host(status.to_string().as_bytes());
    }

    /// Adds a message.
    fn add(&mut self) {
        self.messages += 1;
        let message = QueueId::new(1_800_000_000_000_000 + self.messages, Node::default()).unwrap();
        let job = Job { message, recipients: Positions::One(0), probe: false };
        self.dispatch.with_scheduler(|scheduler, now| scheduler.add(DESTINATION, job, Class::Normal, now));
    }

    /// The connections that were begun, and the reasons of deferred mail.
    fn began(&mut self) -> (Vec<(crate::dispatch::ConnectTarget, ConnectionId)>, BTreeSet<String>) {
        let (mut connections, mut reasons) = (Vec::new(), BTreeSet::new());
        while let Ok(task) = self.tasks.try_recv() {
            match task {
                Task::Connect { way, connection, .. } => connections.push((way, connection)),
                Task::Defer { why, jobs } => {
                    assert!(!jobs.is_empty());
                    reasons.insert(why.to_string());
                }
                _ => {}
            }
        }
        (connections, reasons)
    }

    /// Has the site fail, and returns what is published.
    fn fail(&mut self, failure: Failure) -> Option<HostStatus> {
        self.add();
        let (connections, _) = self.began();
        let (way, connection) = connections.first().unwrap();
        drop(self.dispatch.unreachable(way, *connection, failure, "no"));
        self.published.try_recv().ok()
    }

    fn reported_by(&self) -> Option<u16> {
        self.dispatch.lock().scheduler.destination_view(DESTINATION)?.reported_by
    }
}

#[tokio::test]
async fn mail_waits_by_a_report_and_goes_on_by_another() {
    let mut trial = Trial::new("", ENGINES);
    trial.hear(2, HostState::Down);
    trial.add();
    let (connections, reasons) = trial.began();
    assert_eq!((connections.len(), reasons), (0, BTreeSet::from(["node 2 reports this host down".to_owned()])));
    let view = trial.dispatch.host_reports().unwrap();
    assert_eq!((view.reported.len(), view.waiting, view.counts.received), (1, 1, 1));
    assert_eq!(trial.reported_by(), Some(2));
    trial.hear(3, HostState::Up);
    assert_eq!((trial.reported_by(), trial.dispatch.lock().scheduler.down_until(DESTINATION)), (None, None));
    assert!(trial.dispatch.lock().reports.as_ref().unwrap().board.reports(os::clock::since_boot()).next().is_none());
    // The same mail without a report goes at once, and so does mail for other hosts.
    for (hears, connections) in [(false, 1), (true, 0)] {
        let mut trial = Trial::new("", ENGINES);
        if hears {
            trial.hear(2, HostState::Throttled);
        }
        trial.add();
        assert_eq!(trial.began().0.len(), connections, "{hears}");
    }
    let mut trial = Trial::new("", ENGINES);
    trial.dispatch.hear_host(b"mr-host-1 2 down 60 other.test:25");
    trial.hear(1, HostState::Down);
    trial.add();
    assert_eq!(trial.began().0.len(), 1, "another host, and a message of this node");
}

#[tokio::test]
async fn an_operator_is_not_held_up_by_reports() {
    use operator::queue::{DeliveryControl as _, Destinations};
    let mut trial = Trial::new("", ENGINES);
    trial.hear(2, HostState::Down);
    trial.add();
    assert_eq!(trial.began().0.len(), 0);
    trial.dispatch.retry(Destinations::These(&[DESTINATION.into()]));
    assert_eq!(trial.reported_by(), None);
    trial.hear(2, HostState::Down);
    assert_eq!(trial.reported_by(), None);
    trial.add();
    assert_eq!(trial.began().0.len(), 1);
}

#[tokio::test]
async fn failures_are_published_by_a_node_whose_network_works() {
    for (failure, state) in [
        (Failure::Refused, Some(HostState::Down)),
        (Failure::Silent, Some(HostState::Down)),
        (Failure::Throttled, Some(HostState::Throttled)),
        (Failure::Tls, Some(HostState::TlsBroken)),
        (Failure::Local, None),
        (Failure::Broken, None),
    ] {
        for is_proven in [false, true] {
            let mut trial = Trial::new("", ENGINES);
            // A host of this machine proves nothing.
            let address = if is_proven { "192.0.2.9:25" } else { "127.0.0.1:25" };
            trial.dispatch.note_reached(&Endpoint::Socket(address.parse().unwrap()));
            let published = trial.fail(failure);
            let (wanted, next_hop) = (state.filter(|_| is_proven), trial.next_hop());
            assert_eq!(published.as_ref().map(|status| status.state), wanted, "{failure:?}");
            assert!(published.is_none_or(|status| status.wait_s > 0 && status.next_hop == next_hop));
        }
    }
}

#[tokio::test]
async fn a_node_that_reaches_no_host_any_more_is_silent() {
    let mut trial = Trial::new("", ENGINES);
    let told = |trial: &mut Trial, from: u32, count: u32| {
        let mut state = trial.dispatch.lock();
        let reports = state.reports.as_deref_mut().unwrap();
        for number in from..from + count {
            let site: Arc<[u8]> = format!("mx{number}.test:25").into_bytes().into();
            reports.sites.insert(name_in_cluster(&site), vec![Arc::clone(&site)]);
            let result = SiteResult::Down { failure: Failure::Silent, wait: Duration::from_secs(60) };
            reports.found(&SiteChange { site, result }, Duration::from_secs(u64::from(from)));
        }
        drop(state);
        std::iter::from_fn(|| trial.published.try_recv().ok()).count()
    };
    let reached = Endpoint::Socket("192.0.2.9:25".parse().unwrap());
    assert_eq!(told(&mut trial, 0, 5), 0, "it never reached one");
    trial.dispatch.note_reached(&reached);
    assert_eq!(told(&mut trial, 100, FAILURES_IN_A_ROW_MAX + 5), FAILURES_IN_A_ROW_MAX as usize);
    trial.dispatch.note_reached(&reached);
    assert_eq!(told(&mut trial, 200, 3), 3);
}

#[tokio::test]
async fn sites_of_this_machine_and_those_that_are_set_apart_have_no_reports() {
    let apart = "[[destination]]\nmatch = '[192.0.2.1]'\nshared = false";
    let loopback = "[route]\nsmart_host = ['[127.0.0.1]:2530']";
    for (text, engines, is_shared) in [
        ("", ENGINES, true),
        ("[[destination]]\nmatch = '[192.0.2.1]'\nconnections = 3", ENGINES, true),
        (apart, ENGINES, false),
        (loopback, ENGINES, false),
        // All nodes are on this machine.
        (loopback, "127.0.0.1:4222", true),
    ] {
        let mut trial = Trial::new(text, engines);
        trial.hear(2, HostState::Down);
        trial.add();
        assert_eq!(trial.began().0.is_empty(), is_shared, "{text}");
        let mut trial = Trial::new(text, engines);
        trial.dispatch.note_reached(&Endpoint::Socket("192.0.2.9:25".parse().unwrap()));
        assert_eq!(trial.fail(Failure::Refused).is_some(), is_shared, "{text}");
    }
    let mut limited = read("");
    limited.set_limits = vec![config::SetLimit {
        next_hop: "[192.0.2.1]".parse().unwrap(),
        connections: Some(1),
        messages_per_second: None,
    }];
    let (dispatch, _) = Dispatch::trial(limited);
    drop(dispatch.begin_host_reports(NodeId(1), &[ENGINES.to_owned()]));
    let state = dispatch.lock();
    let site = resolve::site_at_once(&state.config, &state.routing, DESTINATION).unwrap();
    assert!(site.rule.set_limit.is_some() && !state.reports.as_ref().unwrap().is_shared(&site));
}

#[tokio::test]
async fn what_is_heard_is_logged_when_it_changes_something() {
    let mut trial = Trial::new("", ENGINES);
    trial.hear(2, HostState::Down);
    trial.add();
    let lines = |trial: &Trial, what: &dyn Fn(&mut HostReports, &mut Scheduler, Duration)| {
        let now = trial.dispatch.now();
        let mut state = trial.dispatch.lock();
        let DispatchState { reports, scheduler, .. } = &mut *state;
        let reports = reports.as_deref_mut().unwrap();
        what(reports, scheduler, now);
        std::mem::take(&mut reports.lines)
    };
    let site: Arc<[u8]> = trial.dispatch.lock().scheduler.destination_view(DESTINATION).unwrap().site.unwrap();
    let longer = |reports: &mut HostReports, scheduler: &mut Scheduler, now: Duration| {
        let wait = Duration::from_secs(120);
        let report = HostReport { node: NodeId(2), state: HostState::Down, wait, until: now + wait * 2 };
        assert!(reports.apply(scheduler, &site, report, now).is_none());
    };
    assert!(lines(&trial, &longer).is_empty(), "a longer wait is no change");
    let again = |reports: &mut HostReports, scheduler: &mut Scheduler, now: Duration| {
        assert!(scheduler.site_reported_up(&site, now));
        longer(reports, scheduler, now);
    };
    let said = lines(&trial, &again);
    assert!(said.len() == 1 && said[0].starts_with("node 2 reports this host down: no attempt at "), "{said:?}");
}
