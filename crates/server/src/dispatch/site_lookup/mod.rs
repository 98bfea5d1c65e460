//! The look-up of the site of a destination: one question, however many wait for the answer, and one answer for the
//! scheduler and for connections.
//!
//! The scheduler asks when mail is due and its answer has expired, a connection when the answer that it was opened for
//! has expired meanwhile. Both get the same look-up ([`Dispatch::look_up`]). It keeps the site and tells the scheduler
//! in one step, so that no connection opens by another answer than the scheduler has.

use super::task::Task;
use super::{ConnectTarget, Dispatch, DispatchState};
use crate::completion_guard::CompletionGuard;
use crate::dns::NoHosts;
use crate::resolve::{self, Site};
use crate::sabotage::{Sabotage, is_sabotaged};
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use mail::{EnhancedCode, Outcome};
use os::clock;
use schedule::{ConnectionId, Health, Job, ResolveFailure, SiteAssignment};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The reason of mail that waits because the look-up of its hosts ended without an answer.
pub(super) const BROKE_OFF: &str = "the look-up of its hosts broke off";

/// A site that is being found, or why there is none.
pub(super) type Finding = Pin<Box<dyn Future<Output = Result<Arc<Site>, NoHosts>> + Send>>;

/// Look-ups under way, by destination. Each lives as long as somebody waits for it.
pub(super) type Lookups = HashMap<Arc<[u8]>, WeakShared<Finding>>;

impl Dispatch {
    /// Finds the site of a destination and tells the scheduler: a new look-up, or the one that is under way.
    ///
    /// # Errors
    /// Why no host is known for now. The scheduler has been told, and the jobs are logged as deferred.
    pub(crate) fn look_up(self: &Arc<Self>, destination: &Arc<[u8]>) -> Shared<Finding> {
        let mut state = self.lock();
        if let Some(other) = state.lookups.get(destination).and_then(WeakShared::upgrade) {
            return other;
        }
        let (dispatch, name) = (Arc::clone(self), Arc::clone(destination));
        let finding: Finding = Box::pin(async move { dispatch.find_site(&name).await });
        let shared = finding.shared();
        if let Some(weak) = shared.downgrade() {
            state.lookups.insert(Arc::clone(destination), weak);
        }
        shared
    }

    /// Finds the site that a connection was opened for. `None`: the mail of its destination goes elsewhere now, as the
    /// scheduler knows, or the server ends; the connection has ended.
    ///
    /// # Cancel safety
    /// Yes, but the connection has not ended then.
    pub(crate) async fn site_for(self: &Arc<Self>, way: &ConnectTarget, connection: ConnectionId) -> Option<Arc<Site>> {
        let site = match way.answer.as_ref().filter(|site| site.is_valid()) {
            Some(site) => Some(Arc::clone(site)),
            None => tokio::select! {
                biased;
                found = self.look_up(&way.destination) => found.ok(),
                () = self.context.stop.begun() => None,
            },
        };
        let site = site.filter(|site| *site.name == *way.site);
        if site.is_none() {
            self.abandon(connection);
        }
        site
    }

    async fn find_site(&self, name: &Arc<[u8]>) -> Result<Arc<Site>, NoHosts> {
        let context = &self.context;
        loop {
            let (generation, seed) = {
                let mut state = self.lock();
                state.lookups_begun += 1;
                (state.sites.generation(), state.lookups_begun)
            };
            let (live, resolver) = (context.live.load_full(), context.resolver.load_full());
            let routing = context.routing.load_full();
            let began = clock::now();
            let found = resolve::site(&live.config, &routing, &resolver, name, &live.local_identity, seed).await;
            let found = match found {
                Err(no) if no.permanent => Ok(resolve::nowhere(&live.config, name, no)),
                found => found,
            };
            if let Ok(site) = &found {
                site.lookup_time.set(clock::now().saturating_duration_since(began));
            }
            if let Some(answer) = self.learn_site(name, found.map(Arc::new), generation) {
                return answer;
            }
        }
    }

    /// Ends a look-up: keeps the site and tells the scheduler. `None`: the configuration has changed meanwhile, and the
    /// answer is not used.
    fn learn_site(
        &self,
        name: &Arc<[u8]>,
        found: Result<Arc<Site>, NoHosts>,
        generation: u64,
    ) -> Option<Result<Arc<Site>, NoHosts>> {
        let expected = found.as_ref().ok().and_then(|site| self.hosts.expected_time(&site.addresses(), self.now()));
        let is_current = self.with_state(|state, now| {
            if state.sites.generation() != generation {
                return false;
            }
            state.lookups.remove(name);
            match &found {
                Ok(site) => self.place(state, name, site, expected, now),
                Err(no) => {
                    let jobs = unplace(state, name, no, now);
                    if !jobs.is_empty() {
                        self.send(Task::DeferUnplaced { jobs, no: no.clone() });
                    }
                }
            }
            true
        });
        if !is_current {
            return None;
        }
        match &found {
            Ok(_) => self.note_up(name),
            Err(no) => self.note_down(name, name, &no.text),
        }
        Some(found)
    }

    /// Keeps the site of a destination and tells the scheduler.
    pub(super) fn place(
        &self,
        state: &mut DispatchState,
        name: &Arc<[u8]>,
        site: &Arc<Site>,
        expected: Option<Duration>,
        now: Duration,
    ) {
        state.sites.insert(Arc::clone(name), Arc::clone(site));
        let Some(destination) = state.scheduler.destination_id(name) else { return };
        let jobs = state.scheduler.resolved(destination, &assignment(site, expected, now), now);
        if site.rule.is_shared && state.config.cluster.is_used() {
            state.scheduler.share_site(&site.name, now);
        } else {
            state.scheduler.unshare_site(&site.name, now);
        }
        self.place_by_reports(state, site, now);
        if jobs.is_empty() {
            return;
        }
        let why = match state.scheduler.destination_view(name).map(|view| view.health) {
            Some(Health::Down { why, .. }) => why,
            _ => Arc::from("its hosts cannot be reached"),
        };
        self.send(Task::Defer { jobs, why });
    }

    /// Records that the look-up of a destination broke off. Returns the jobs that are deferred by it.
    pub(super) fn look_up_broke_off(&self, name: &Arc<[u8]>, no: &NoHosts) -> Vec<Job> {
        let jobs = self.with_state(|state, now| unplace(state, name, no, now));
        self.note_down(name, name, &no.text);
        jobs
    }
}

/// Looks a destination up for the scheduler, which gets an answer whatever becomes of this.
pub(crate) fn answer_resolve(dispatch: Arc<Dispatch>, name: Arc<[u8]>) -> impl Future<Output = ()> + Send {
    let owed = CompletionGuard::new({
        let (dispatch, name) = (Arc::clone(&dispatch), Arc::clone(&name));
        move || hosts_not_found(&dispatch, &name)
    });
    async move {
        tokio::select! {
            biased;
            // The look-up tells the scheduler by itself.
            _ = dispatch.look_up(&name) => {}
            // The mail that waits is in the spool.
            () = dispatch.context.stop.begun() => {}
        }
        owed.complete();
    }
}

/// Tells the scheduler that the look-up of a destination broke off: it is looked up again.
fn hosts_not_found(dispatch: &Dispatch, name: &Arc<[u8]>) {
    // RFC 3463 §3.4: other mail system status
    let status = EnhancedCode::of(Outcome::Transient, 3, 0);
    let no = NoHosts { permanent: false, status, text: BROKE_OFF.to_owned(), is_ours: true };
    let jobs = dispatch.look_up_broke_off(name, &no);
    if !jobs.is_empty() {
        dispatch.send(Task::Defer { jobs, why: Arc::from(BROKE_OFF) });
    }
}

/// Tells the scheduler that the hosts of a destination cannot be known now. Returns the jobs that are deferred by it.
fn unplace(state: &mut DispatchState, name: &Arc<[u8]>, no: &NoHosts, now: Duration) -> Vec<Job> {
    state.sites.remove(name);
    let blame = if no.is_ours { ResolveFailure::Resolver } else { ResolveFailure::Domain };
    let destination = state.scheduler.destination_id(name);
    destination.map_or_else(Vec::new, |id| state.scheduler.resolve_failed(id, &no.text, blame, now))
}

/// Returns a site as the scheduler takes it.
fn assignment<'a>(site: &'a Site, expected: Option<Duration>, now: Duration) -> SiteAssignment<'a> {
    let rule = &site.rule;
    let without;
    let rule = if is_sabotaged(Sabotage::ForgetLimits) {
        without = crate::config::EffectiveRule {
            connections: 1_000,
            messages_per_second: None,
            recipients_per_transaction: 1_000,
            messages_per_connection: u32::MAX,
            ..rule.clone()
        };
        &without
    } else {
        rule
    };
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    SiteAssignment {
        site: &site.name,
        limits: schedule::Limits {
            connections: rule.connections,
            messages_per_second: rule.messages_per_second,
            recipients_per_transaction: count(rule.recipients_per_transaction),
            messages_per_connection: rule.messages_per_connection,
        },
        expected,
        until: now + site.until.saturating_duration_since(clock::now()),
    }
}

#[cfg(test)]
mod tests;
