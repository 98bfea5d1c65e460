//! Hosts that the nodes of a cluster report to each other (`docs/cluster.md`, *Hosts that are down*).
//!
//! The scheduler says what this node found of a site; `cluster::HostStatusBoard` decides what is published and
//! remembers what others found; a report goes to the scheduler when it comes, and again when a site is found. Reports
//! name a site as all nodes do, so sites of this machine alone, and those that an operator steers here, have none.
//!
//! A node whose own network is broken finds all hosts down. It would delay the mail of the others for them, so a node
//! publishes a few failures in a row, and then none before it has reached some host.

use super::site_names::name_in_cluster;
use super::task::Task;
use super::{Dispatch, DispatchState};
use crate::cluster::HostMessages;
use crate::next_hop::Endpoint;
use crate::resolve::{Site, SiteHosts};
use cluster::{HostReport, HostState, HostStatus, HostStatusBoard, HostStatusCounts, NodeId};
use schedule::{Failure, Job, ReportEffect, Scheduler, SiteChange, SiteReport, SiteResult};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages that wait for the engine; more are lost.
const WAITING_MAX: usize = 256;
/// Time between two looks for messages that were not published at once.
const DUE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks for what is too old.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(60);
/// Failures in a row that are published. Behind them, the network of this node may be the cause.
const FAILURES_IN_A_ROW_MAX: u32 = 10;

/// Jobs that a report defers, and the reason.
type Deferred = (Vec<Job>, Arc<str>);

/// Reports of other nodes, and results for them.
#[derive(Debug)]
pub(super) struct HostReports {
    board: HostStatusBoard,
    /// Sites that other nodes have too, by their names in the cluster.
    sites: HashMap<String, Vec<Arc<[u8]>>>,
    outbox: mpsc::Sender<HostStatus>,
    /// All nodes are on this machine, so its own hosts are the same for all.
    is_one_machine: bool,
    /// Failures since another host was reached; `None`: none was.
    failures_in_a_row: Option<u32>,
    expired_at: Duration,
    /// Lines for the log.
    lines: Vec<String>,
}

/// The reports for operators.
#[derive(Clone, Debug)]
pub(crate) struct HostReportsView {
    pub(crate) counts: HostStatusCounts,
    /// Next hops that other nodes report, by name, and for how long they are left alone.
    pub(crate) reported: Vec<(String, HostReport, Duration)>,
    /// Next hops of this node whose mail waits by a report.
    pub(crate) waiting: u64,
}

/// Exchanges messages with the other nodes until the dispatcher is gone. `outbox` is that of
/// [`Dispatch::begin_host_reports`].
pub(crate) async fn exchange_host_reports(
    dispatch: Weak<Dispatch>,
    mut messages: HostMessages,
    mut outbox: mpsc::Receiver<HostStatus>,
) {
    let mut ticks = tokio::time::interval(DUE_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = messages.next() => match dispatch.upgrade() {
                Some(dispatch) => dispatch.hear_host(&message),
                None => return,
            },
            Some(status) = outbox.recv() => messages.send(&status).await,
            _ = ticks.tick() => match dispatch.upgrade() {
                Some(dispatch) => dispatch.look_at_host_reports(),
                None => return,
            },
        }
    }
}

impl Dispatch {
    /// Begins to collect what other nodes should know of hosts. Returns the messages to publish.
    ///
    /// `engines`: the addresses of the nodes' engines. If all are of this machine, so are the nodes.
    pub(crate) fn begin_host_reports(&self, node: NodeId, engines: &[String]) -> mpsc::Receiver<HostStatus> {
        let (outbox, messages) = mpsc::channel(WAITING_MAX);
        let now = self.now();
        let seed = u64::try_from(now.as_nanos() & u128::from(u64::MAX)).unwrap_or(0) ^ u64::from(node.0);
        let reports = HostReports {
            board: HostStatusBoard::new(node, seed),
            sites: HashMap::new(),
            outbox,
            is_one_machine: engines.iter().all(|engine| is_loopback(engine)),
            failures_in_a_row: None,
            expired_at: now,
            lines: Vec::new(),
        };
        let mut state = self.lock();
        state.scheduler.collect_site_changes();
        state.reports = Some(Box::new(reports));
        messages
    }

    /// Notes that a host was reached: the network of this node works.
    pub(crate) fn note_reached(&self, host: &Endpoint) {
        if let Some(reports) = self.lock().reports.as_deref_mut()
            && (reports.is_one_machine || !host.is_of_this_machine())
        {
            reports.failures_in_a_row = Some(0);
        }
    }

    /// Returns the reports for operators; `None` on a machine alone, or without `cluster.host_status`.
    pub(crate) fn host_reports(&self) -> Option<HostReportsView> {
        let now = self.now();
        let state = self.lock();
        let reports = state.reports.as_deref()?;
        let reported = reports.board.reports(now).map(|(name, report)| {
            let left = report.until.saturating_sub(now);
            (name.to_owned(), report, left)
        });
        let (reported, counts) = (reported.collect(), reports.board.counts());
        let waits = state.scheduler.site_views(now).filter(|site| site.reported_by.is_some()).count();
        drop(state);
        Some(HostReportsView { counts, reported, waiting: u64::try_from(waits).unwrap_or(u64::MAX) })
    }

    /// Takes a message of any node.
    pub(super) fn hear_host(&self, message: &[u8]) {
        self.with_state(|state, now| {
            let DispatchState { reports, scheduler, config, .. } = state;
            let Some(reports) = reports.as_deref_mut() else { return };
            let Some(news) = reports.board.hear(now, message, config.delivery.retry_max) else { return };
            for site in reports.sites.get(&news.next_hop).cloned().unwrap_or_default() {
                if let Some(report) = news.report {
                    let deferred = reports.apply(scheduler, &site, report, now);
                    self.defer(deferred);
                } else if scheduler.site_reported_up(&site, now) {
                    reports.lines.push(format!("node {} reports {} up: its mail goes on", news.node.0, news.next_hop));
                }
            }
        });
    }

    /// Publishes what could not be published before, and forgets what is too old.
    fn look_at_host_reports(&self) {
        self.with_state(|state, now| {
            let DispatchState { reports, scheduler, .. } = state;
            let Some(reports) = reports.as_deref_mut() else { return };
            while let Some(status) = reports.board.next_due(now) {
                reports.send(status);
            }
            if now >= reports.expired_at.saturating_add(EXPIRE_INTERVAL) {
                reports.expired_at = now;
                reports.board.expire(now);
                reports.sites.retain(|_, sites| {
                    sites.retain(|site| scheduler.has_site(site));
                    !sites.is_empty()
                });
            }
        });
    }

    /// Notes the site of a destination, and has it wait if another node reports it.
    pub(super) fn place_by_reports(&self, state: &mut DispatchState, site: &Site, now: Duration) {
        let DispatchState { reports, scheduler, .. } = state;
        if let Some(reports) = reports.as_deref_mut() {
            let deferred = reports.place(scheduler, site, now);
            self.defer(deferred);
        }
    }

    fn defer(&self, deferred: Option<Deferred>) {
        if let Some((jobs, why)) = deferred {
            self.send(Task::Defer { jobs, why });
        }
    }
}

/// Publishes what the scheduler found. Returns lines for the log.
pub(super) fn publish_changes(state: &mut DispatchState, now: Duration) -> Vec<String> {
    let Some(reports) = state.reports.as_deref_mut() else { return Vec::new() };
    for change in state.scheduler.take_site_changes() {
        reports.found(&change, now);
    }
    std::mem::take(&mut reports.lines)
}

impl HostReports {
    /// Notes the site of a destination. Returns the jobs that are deferred by a report on it.
    fn place(&mut self, scheduler: &mut Scheduler, site: &Site, now: Duration) -> Option<Deferred> {
        let name = name_in_cluster(&site.name);
        if !self.is_shared(site) {
            // It may have been before a reload.
            if let Some(known) = self.sites.get_mut(&name) {
                known.retain(|one| **one != *site.name);
            }
            return None;
        }
        let report = self.board.reported(now, &name);
        let known = self.sites.entry(name).or_default();
        if !known.iter().any(|one| **one == *site.name) {
            known.push(Arc::from(&*site.name));
        }
        self.apply(scheduler, &site.name, report?, now)
    }

    /// Returns whether the site is the same at all nodes, and no operator steers it here.
    fn is_shared(&self, site: &Site) -> bool {
        let is_apart = site.rule.set_limit.is_some() || site.rule.index.is_some() && !site.rule.is_shared;
        let is_elsewhere = matches!(site.hosts, SiteHosts::Remote(_));
        !is_apart && is_elsewhere && (self.is_one_machine || !site.is_of_this_machine())
    }

    /// Tells the scheduler of a report. Returns the jobs that are deferred by it.
    fn apply(&mut self, scheduler: &mut Scheduler, site: &[u8], report: HostReport, now: Duration) -> Option<Deferred> {
        let why = words(report);
        let told = SiteReport { by: report.node.0, why: &why, wait: report.wait, until: report.until };
        match scheduler.site_reported(site, &told, now) {
            ReportEffect::Nothing => None,
            ReportEffect::Contradicted => {
                self.publish(&name_in_cluster(site), HostState::Up, Duration::ZERO, now);
                None
            }
            ReportEffect::PutOff { jobs, is_new } => {
                if is_new {
                    let (name, left) = (name_in_cluster(site), report.until.saturating_sub(now).as_secs());
                    self.lines
                        .push(format!("{why}: no attempt at {name} from here for {left} s (cluster.host_status)"));
                }
                (!jobs.is_empty()).then(|| (jobs, Arc::from(why)))
            }
        }
    }

    /// Takes a result of this node.
    fn found(&mut self, change: &SiteChange, now: Duration) {
        let name = name_in_cluster(&change.site);
        match change.result {
            SiteResult::Up => self.publish(&name, HostState::Up, Duration::ZERO, now),
            SiteResult::Down { failure, wait } => {
                let is_shared = self.sites.get(&name).is_some_and(|sites| sites.contains(&change.site));
                let state = match failure {
                    Failure::Throttled => HostState::Throttled,
                    Failure::Tls => HostState::TlsBroken,
                    Failure::Refused | Failure::Silent => HostState::Down,
                    Failure::Broken | Failure::Local => return,
                };
                if is_shared && self.is_network_proven(state) {
                    self.publish(&name, state, wait, now);
                }
            }
        }
    }

    /// Counts a failure. Returns whether the network of this node is surely not its cause.
    const fn is_network_proven(&mut self, state: HostState) -> bool {
        match &mut self.failures_in_a_row {
            None => false,
            // Such a host has answered.
            Some(_) if matches!(state, HostState::Throttled) => true,
            Some(failures) => {
                *failures = failures.saturating_add(1);
                *failures <= FAILURES_IN_A_ROW_MAX
            }
        }
    }

    fn publish(&mut self, name: &str, state: HostState, wait: Duration, now: Duration) {
        if let Some(status) = self.board.found(now, name, state, wait) {
            self.send(status);
        }
    }

    fn send(&self, status: HostStatus) {
        // One that is lost costs an attempt of another node.
        drop(self.outbox.try_send(status));
    }
}

/// The report in words.
fn words(report: HostReport) -> String {
    let what = match report.state {
        HostState::Up => "up",
        HostState::Down => "down",
        HostState::Throttled => "throttling",
        HostState::TlsBroken => "without TLS",
    };
    format!("node {} reports this host {what}", report.node.0)
}

/// Returns whether an address, `host:port`, is of this machine alone.
fn is_loopback(address: &str) -> bool {
    let is_ip = address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    is_ip || address.rsplit_once(':').is_some_and(|(host, _)| host == "localhost")
}

#[cfg(test)]
mod tests;
