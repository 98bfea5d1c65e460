//! The stop *deliver*: hands messages to the next hop over connections that take jobs while there are some.
//!
//! [`run`] is the life of one connection: hosts are found and tried ([`connect`]), then the [`OutboundSession`] takes
//! jobs from *dispatch*, sends them by the client's machine of `smtp`, and gives the results to *settle*. A
//! connection takes the next job while the last one still awaits its reply, so that a busy one never waits for a
//! round trip more than it must. Idle, it waits for `delivery.idle_time` at its [`ConnectionSignal`].
//!
//! Nothing is recorded before a result is known, so a crash repeats at most the attempts in progress. A silent peer
//! costs its connection until the time limits of RFC 5321 §4.5.3.2; one that closes in the middle costs an attempt;
//! one that closes a connection after it served costs nothing, the message goes first over the next connection.

mod answers;
mod connect;
mod connect_error;
mod dial;
mod dialog_tap;
mod extensions;
mod line_length;
mod link;
pub(crate) mod local;
mod outbound_session;
mod peer;
mod signature;

pub(crate) use crate::next_hop::smart_hosts;
use crate::resolve::Candidate;

use crate::config::RouteProtocol;
use crate::context::Context;
use crate::deadline;
use crate::dispatch::{ConnectTarget, ConnectionSignal, Dispatch, OWNERSHIP_RETRY_TIME};
use crate::dns::NoHosts;
use crate::message::{LoadError, OutboundMessage, ReadError};
use crate::outbound::Outbound;
use crate::resolve::SiteHosts;
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::settle::{self, Attempt, AttemptOutcome};
use crate::transport::Wait;
use connect::next_hop;
use connect_error::ConnectError;
use link::Link;
use mail::{AttemptPhase, MailParams};
use observe::{Event, NextHop, Severity};
use outbound_session::OutboundSession;
use schedule::{ConnectionId, Failure, Feedback, Hosts, Job, NextJob};
use smtp::client::ClientTransaction;
use spool::{Change, Pressure, Status, Store as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Opens a connection for a destination and takes jobs until there are none, or it breaks.
///
/// # Cancel safety
/// No: a delivery may stay unrecorded. The server's end waits for it.
pub(crate) async fn run(
    outbound: Arc<Outbound>,
    dispatch: Arc<Dispatch>,
    way: ConnectTarget,
    connection: ConnectionId,
    post: Arc<ConnectionSignal>,
) {
    let context = &outbound.context;
    let timer = pin!(link::timer());
    let stopping = pin!(context.stop.begun());
    let mut wait = Wait::new(timer, &context.stop, stopping);
    if context.message_store.pressure() == Pressure::Poisoned {
        // A result that cannot be recorded would mean a second delivery after the next start.
        let why = "deliveries are suspended, since the spool takes no more writes";
        return drop(dispatch.unreachable(&way, connection, Failure::Local, why));
    }
    let work = AttemptWork {
        outbound: &outbound,
        context,
        dispatch: &dispatch,
        connection,
        changes: Vec::new(),
        records: Vec::new(),
    };
    let Some(site) = dispatch.site_for(&way, connection).await else { return };
    match &site.hosts {
        SiteHosts::Local(to) => return Box::pin(local::run(work, to.clone(), &way, &post)).await,
        SiteHosts::Refused(no) => return work.refuse_site(&way, &ConnectError::no_hosts(no.clone())).await,
        SiteHosts::Remote(_) => {}
    }
    let candidates = site.candidates(connection.get());
    let addresses: Vec<SocketAddr> = candidates.iter().filter_map(|one| one.address.socket()).collect();
    let opened = Box::pin(connect::open(&outbound, candidates, way.lane, &site.rule, &post, &mut wait)).await;
    let ended = match opened {
        Ok(mut link) => {
            if let Some(took) = site.lookup_time.take() {
                link.phases.add(AttemptPhase::Dns, took);
            }
            dispatch.note_reached(&link.peer.address);
            dispatch.reached(&way, connection);
            Box::pin(deliver_over(link, work, &post, addresses, &mut wait)).await
        }
        Err(trouble) if trouble.is_ours => ConnectionEnd::Closed,
        Err(trouble) if trouble.has_untried => ConnectionEnd::OtherHosts,
        Err(trouble) if trouble.is_permanent => return work.refuse_site(&way, &trouble).await,
        Err(trouble) => ConnectionEnd::Down(trouble),
    };
    end_connection(&dispatch, &way, connection, ended).await;
}

/// How a connection ended, for its site.
enum ConnectionEnd {
    /// Other hosts of the site are tried next, or this one again: it is no failure of the site.
    OtherHosts,
    /// The site cannot be used now.
    Down(ConnectError),
    /// It is over, perhaps without one answer.
    Closed,
}

/// Takes jobs over a connection that is ready for mail, until it ends.
///
/// # Cancel safety
/// No: a delivery may stay unrecorded.
async fn deliver_over<N: Future<Output = ()>>(
    link: Box<Link>,
    work: AttemptWork<'_>,
    post: &ConnectionSignal,
    addresses: Vec<SocketAddr>,
    wait: &mut Wait<'_, N>,
) -> ConnectionEnd {
    let outbound = work.outbound;
    let mut conversation = OutboundSession::new(work, link, post, addresses);
    Box::pin(conversation.hold(wait)).await;
    let (has_failed, dismissal) = (conversation.has_failed(), conversation.dismissal());
    if has_failed {
        learn(outbound, &conversation.link.peer, Hosts::failed);
    }
    let has_others = conversation.has_others(has_failed);
    let is_of_host = has_failed || dismissal.is_some();
    let has_avoided = conversation.has_avoided;
    // The connection is over for the host before dispatch may open another.
    conversation.work.flush();
    drop(conversation);
    match dismissal {
        _ if has_others && is_of_host => ConnectionEnd::OtherHosts,
        Some(trouble) => ConnectionEnd::Down(trouble),
        // The host answered, though not about the mail: it is tried again at once, and this is no failure.
        None if has_avoided => ConnectionEnd::OtherHosts,
        None => ConnectionEnd::Closed,
    }
}

/// Tells the scheduler how a connection ended, and logs the jobs that are deferred by it.
async fn end_connection(dispatch: &Dispatch, way: &ConnectTarget, connection: ConnectionId, ended: ConnectionEnd) {
    let (jobs, trouble) = match ended {
        ConnectionEnd::OtherHosts => return dispatch.abandon(connection),
        ConnectionEnd::Down(trouble) => {
            (dispatch.unreachable(way, connection, trouble.failure, &trouble.text), trouble)
        }
        ConnectionEnd::Closed => {
            let jobs = dispatch.broken(way, connection);
            // At the end of the server nothing is known about the site.
            if jobs.is_empty() || dispatch.context.stop.has_begun() {
                return;
            }
            // The host accepted the connection and answered no message: for waiting mail that is a failed connection.
            let text = "Connection closed before a message was answered".to_owned();
            (jobs, ConnectError::deferral((4, 2), text))
        }
    };
    Box::pin(defer_all(dispatch, jobs, &trouble)).await;
}

/// Logs jobs as deferred whose destination has no hosts for now.
pub(crate) async fn unplaced(dispatch: &Dispatch, jobs: Vec<Job>, no: NoHosts) {
    Box::pin(defer_all(dispatch, jobs, &ConnectError::no_hosts(no))).await;
}

/// Logs jobs as deferred whose site was found to be down before.
pub(crate) async fn defer(dispatch: &Dispatch, jobs: Vec<Job>, why: &str) {
    Box::pin(defer_all(dispatch, jobs, &ConnectError::deferral((4, 1), why.to_owned()))).await;
}

/// Logs jobs as deferred that were to go to a site which cannot be reached. They wait unchanged: the site is tried
/// again, not each message.
async fn defer_all(dispatch: &Dispatch, jobs: Vec<Job>, trouble: &ConnectError) {
    let context = &dispatch.context;
    for job in &jobs {
        if let Some(early) = dispatch.messages.early.get(job.message) {
            early.want();
        }
    }
    let mut line = dispatch.deferrals.line_up(jobs);
    while let Some((job, turn)) = line.next().await {
        if context.stop.has_begun() {
            // The next start finds out again.
            return;
        }
        let outgoing = OutboundMessage::load(&dispatch.messages, job.message, &job.recipients).await;
        drop(turn);
        let Ok(outgoing) = outgoing else { continue };
        settle::log_deferred(&dispatch.settler, &unsent(context, &outgoing, trouble), &trouble.cause());
        dispatch.expect(&outgoing.envelope, &job.recipients);
    }
}

/// Returns the attempt that came to no transaction.
fn unsent<'o>(context: &Context, outgoing: &'o OutboundMessage, trouble: &'o ConnectError) -> Attempt<'o> {
    let relay = trouble.peer.as_ref().map_or(NextHop::None, next_hop);
    let mailer = match trouble.peer.as_ref().map(|peer| peer.protocol) {
        Some(RouteProtocol::Lmtp) => "lmtp",
        Some(RouteProtocol::Smtp) => "esmtp",
        None => smart_hosts::mailer(&context.live.load().config.route),
    };
    outgoing.attempt(relay, mailer, Duration::ZERO, false)
}

/// Updates the table of hosts for a host that has an address.
fn learn(outbound: &Outbound, peer: &Candidate, happens: impl FnOnce(&mut Hosts, SocketAddr, Duration)) {
    let Some(address) = peer.address.socket() else { return };
    let now = outbound.context.unix_now();
    outbound.hosts.update(|hosts| happens(hosts, address, now));
}

/// Access of a connection to spool and dispatch.
struct AttemptWork<'a> {
    outbound: &'a Arc<Outbound>,
    context: &'a Arc<Context>,
    dispatch: &'a Arc<Dispatch>,
    connection: ConnectionId,
    /// Results that the spool does not know yet; never kept over a wait for the peer.
    changes: Vec<Change>,
    /// Results for dispatch after the spool has theirs.
    records: Vec<(Job, Feedback, Option<Duration>)>,
}

impl AttemptWork<'_> {
    /// Gives results to the spool, and then the jobs to dispatch: not before, since a finished job may be loaded
    /// again.
    fn flush(&mut self) {
        if is_sabotaged(Sabotage::ForgetOutcome) {
            self.changes.clear();
        }
        if !self.changes.is_empty() {
            let recorded = self.context.spool().map(|spool| spool.record(&self.changes));
            if let Some(Err(error)) = recorded {
                let text = format!("{} outcomes are not recorded and will be repeated: {error}", self.changes.len());
                self.context.record(&Event::Spool { severity: Severity::Critical, text: &text });
            }
            self.changes.clear();
        }
        for (job, feedback, retry) in self.records.drain(..) {
            self.dispatch.done(self.connection, &job, feedback, retry);
        }
    }

    /// Settles one attempt; its changes wait for [`Self::flush`]. Returns when the message is tried again, if it is.
    async fn settle(
        &mut self,
        job: &Job,
        attempt: &Attempt<'_>,
        fates: Vec<AttemptOutcome>,
        feedback: Feedback,
    ) -> Option<Duration> {
        let early = self.dispatch.messages.early.get(job.message);
        if fates.iter().any(|fate| !matches!(fate, AttemptOutcome::Delivered(_))) {
            // A report may have to be stored first; deliveries before it are recorded without that wait.
            self.flush();
            if let Some(early) = &early
                && !early.store().await
            {
                // Its sender still has it.
                self.records.push((job.clone(), feedback, None));
                return None;
            }
        }
        let settled = settle::settle(&self.dispatch.settler, attempt, fates).await;
        if early.is_none_or(|early| !early.absorb(&settled.changes)) {
            self.changes.extend(settled.changes);
        }
        self.records.push((job.clone(), feedback, settled.retry));
        settled.retry
    }

    /// Notes that a host deferred mail, so that other hosts of its site are tried next, if there are some; it has
    /// `count` hosts. Where the message is not tried again (`retry`), other mail still goes to the others.
    fn spare(&self, host: &Candidate, count: usize, retry: Option<Duration>) {
        if is_sabotaged(Sabotage::SameHostAgain) {
            return;
        }
        let first = self.context.live.load().config.delivery.retry_first;
        learn(self.outbound, host, |hosts, address, now| {
            let wait = retry.map_or(first, |at| at.saturating_sub(now));
            hosts.spare(address, wait, count, now);
        });
    }

    /// Refuses every message for a site that does not exist, or that takes none for good, and ends the connection.
    async fn refuse_site(mut self, way: &ConnectTarget, trouble: &ConnectError) {
        self.dispatch.reached(way, self.connection);
        Box::pin(self.refuse_all(trouble)).await;
        drop(self.dispatch.closed(self.connection));
    }

    /// Refuses every message for a destination that does not exist.
    async fn refuse_all(&mut self, trouble: &ConnectError) {
        while let NextJob::Job(job) = self.dispatch.take(self.connection) {
            self.fail(&job, trouble).await;
            self.flush();
            if self.context.stop.has_begun() {
                return;
            }
        }
    }

    /// Loads the message of a job, if this node may deliver it now. `None`: the job is over without an attempt.
    async fn load(&mut self, job: &Job) -> Option<OutboundMessage> {
        if !self.dispatch.may_start(job.message).await {
            self.put_off(job);
            return None;
        }
        match OutboundMessage::load(&self.dispatch.messages, job.message, &job.recipients).await {
            Ok(outgoing) => return Some(outgoing),
            Err(LoadError::Nothing) => self.records.push((job.clone(), Feedback::Unsent, None)),
            Err(LoadError::Unread(why)) => self.put_aside(job, &why),
        }
        None
    }

    /// Has a message wait that another node of the cluster may own. Its recipients stay as they are.
    fn put_off(&mut self, job: &Job) {
        let again = self.context.unix_now() + OWNERSHIP_RETRY_TIME;
        self.records.push((job.clone(), Feedback::Unsent, Some(again)));
    }

    /// Settles a job that cannot be sent to any host.
    async fn fail(&mut self, job: &Job, trouble: &ConnectError) {
        let Some(outgoing) = self.load(job).await else { return };
        let fates = vec![AttemptOutcome::Failed(trouble.cause()); outgoing.positions.len()];
        let attempt = unsent(self.context, &outgoing, trouble);
        self.settle(job, &attempt, fates, Feedback::Unsent).await;
    }

    /// Holds the recipients of a message that cannot be read, for an operator. A message that is gone was deleted
    /// meanwhile.
    fn put_aside(&mut self, job: &Job, why: &ReadError) {
        let Some(spool) = self.context.spool() else { return };
        let due = self.context.unix_now() + why.pause();
        let mut is_there = false;
        for (entry, _) in spool.states_of(job.message, job.recipients.iter()) {
            if entry.state.status == Status::Waiting {
                let state = entry.state.tried().until(due);
                self.changes.push(Change { id: job.message, recipient: entry.recipient, state, destination: None });
                is_there = true;
            }
        }
        if is_there {
            let minutes = why.pause().as_secs() / 60;
            let text = format!(
                "message {} cannot be read: {why}; it is tried again in {minutes} minutes; {}",
                job.message,
                why.advice()
            );
            self.context.record(&Event::Spool { severity: Severity::Error, text: &text });
        }
        self.records.push((job.clone(), Feedback::Unsent, is_there.then_some(due)));
    }
}

impl Drop for AttemptWork<'_> {
    /// A task that is cut off still records its results.
    fn drop(&mut self) {
        self.flush();
    }
}

impl OutboundMessage {
    /// Makes the transaction for the session, without recipients that are left out, and with the rest of the time by
    /// which it is to be delivered.
    fn transaction(&self, token: u64, now: Duration, left_out: &[Option<AttemptOutcome>]) -> ClientTransaction {
        let recipients = &self.envelope.recipients;
        let is_sent = |at: usize| left_out.get(at).is_none_or(Option::is_none);
        let sent = || recipients.iter().enumerate().filter(|(at, _)| is_sent(*at)).map(|(_, one)| one.clone());
        ClientTransaction {
            token,
            sender: self.envelope.sender.clone(),
            params: MailParams { by: deadline::remaining(&self.envelope, now), ..self.envelope.params.clone() },
            recipients: if left_out.is_empty() { recipients.as_slice().into() } else { sent().collect() },
            content_bytes: self.sent_bytes(),
        }
    }
}
