//! The stop *deliver*: messages are handed to the next hop over connections that are fed while there is work.
//!
//! [`run`] is the life of one connection: hosts are found and tried ([`connect`]), then the [`Conversation`] takes jobs from
//! *dispatch*, sends them as the client's machine of `smtp` says, and gives what became of them to *settle*. A connection
//! takes the next job while the last one still awaits its reply, so that a busy one never waits for a round trip more
//! than it must. Idle, it waits for `delivery.idle_time` at its [`Post`].
//!
//! What a crash or a bad peer does here: nothing is written before an outcome is known, so a crash repeats at most what
//! was under way. A peer that is silent costs its connection until the time limits of RFC 5321 §4.5.3.2; one that closes
//! in the middle costs an attempt; one that closes a connection it had used before costs nothing, the message goes
//! first over the next one.

mod answers;
mod connect;
mod dial;
#[cfg(test)]
mod internet;
mod link;
pub(crate) mod local;
mod message;
mod peer;
mod place;

pub(crate) use crate::resolve::Candidate;
#[cfg(test)]
pub(crate) use internet::Internet;
pub(crate) use message::{Outgoing, Unfit};
pub(crate) use place::Where;

use crate::config::RouteProtocol;
use crate::dispatch::{Dispatch, Post, Way};
use crate::dns::NoHosts;
use crate::env::{blocking, clock};
use crate::resolve;
use crate::service::Service;
use crate::session::Wait;
use crate::settle::{self, Attempt, Cause, Fate};
#[cfg(test)]
use crate::simulation::{Sabotage, is_sabotaged};
use connect::{Trouble, next_hop, refused};
use link::{Link, Next};
use mail::{Body, EnhancedCode, MailParams, Outcome};
use message::Content;
use observe::{Event, NextHop, Severity};
use schedule::{ConnectionId, Failure, Feedback, Hosts, Job, Take};
use smtp::client::{Answer, Finished, Loss, Misfit, Stage, Step, Transaction};
use spool::{Change, Pressure, Status, Store as _};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a recipient waits whose message could not be read.
const UNREADABLE_RETRY: Duration = Duration::from_secs(3_600);

/// Messages without a taker after which a connection is closed.
///
/// Servers count refusals in a session and end it, and what was sent behind waits for its next attempt: Exim 4.96 after ten RSET
/// that follow no message (`smtp_accept_max_nonmail`), Postfix after twenty errors, two for such a message. Those that
/// are behind the last one count too.
const BARREN_MAX: u32 = 5;

/// Opens a connection for a destination and feeds it until there is no work, or it breaks.
///
/// # Cancel safety
/// No: what was delivered may not be recorded. The server's end waits for it.
pub(crate) async fn run(service: Arc<Service>, way: Way, connection: ConnectionId, post: Arc<Post>) {
    let Some(dispatch) = service.dispatch.clone() else { return };
    let timer = pin!(link::timer());
    let stopping = pin!(service.stop.begun());
    let mut wait = Wait::new(timer, &service.stop, stopping);
    if service.keeper.pressure() == Pressure::Poisoned {
        // What cannot be recorded would be delivered again after the next start.
        let why = "deliveries are suspended, since the spool takes no more writes";
        return drop(dispatch.unreachable(&service, &way, connection, Failure::Refused, why));
    }
    let mut work =
        Work { service: &service, dispatch: &dispatch, connection, changes: Vec::new(), records: Vec::new() };
    let live = service.live.load_full();
    if let Some(to) = local::what(&live.config, &way.destination) {
        return Box::pin(local::run(work, to, &way, &post)).await;
    }
    let turn = connection.get();
    let resolver = service.resolver.load_full();
    let routing = service.routing.load_full();
    let found = resolve::site(&live.config, &routing, &resolver, &way.destination, &live.ourselves, turn).await;
    let site = match found {
        Ok(site) if *site.name == *way.site => site,
        Err(no) if no.permanent && way.site.starts_with(b"!") => {
            dispatch.reached(&service, &way, connection);
            Box::pin(work.refuse_all(&Trouble::no_hosts(no))).await;
            return drop(dispatch.closed(connection));
        }
        // It went somewhere else meanwhile, or the DNS fails: which, is asked for this destination.
        Ok(_) | Err(_) => return dispatch.misplaced(&way, connection),
    };
    let addresses: Vec<SocketAddr> = site.candidates.iter().filter_map(|one| one.address.socket()).collect();
    let opened = Box::pin(connect::open(&service, site.candidates, way.lane, &site.rule, &mut wait)).await;
    match opened {
        Ok(link) => {
            dispatch.reached(&service, &way, connection);
            let mut conversation = Conversation {
                work,
                link,
                post: &post,
                open: VecDeque::new(),
                tokens: 0,
                appetite: Appetite::Hungry,
                idle_since: clock::now(),
                answered: 0,
                has_delivered: false,
                barren: 0,
                is_lagging: false,
            };
            Box::pin(conversation.hold(&mut wait)).await;
            if conversation.link.has_failed(conversation.answered) {
                learn(&service, &conversation.link.peer, Hosts::failed);
            }
            let dismissal = conversation.dismissal().filter(|_| {
                // Otherwise the next connection is one to another host.
                let now = service.unix_now();
                !service.hosts.look(|hosts| addresses.iter().any(|address| hosts.may_try(*address, now)))
            });
            work = conversation.work;
            work.flush();
            // It is over for the host before dispatch may open another.
            drop(conversation.link);
            if let Some(trouble) = dismissal {
                let jobs = dispatch.unreachable(&service, &way, connection, Failure::Refused, &trouble.text);
                return Box::pin(defer_all(&service, jobs, &trouble)).await;
            }
        }
        Err(trouble) if trouble.is_ours => {}
        Err(trouble) if trouble.is_permanent => {
            dispatch.reached(&service, &way, connection);
            Box::pin(work.refuse_all(&trouble)).await;
            return drop(dispatch.closed(connection));
        }
        Err(trouble) => {
            let jobs = dispatch.unreachable(&service, &way, connection, trouble.failure, &trouble.text);
            return Box::pin(defer_all(&service, jobs, &trouble)).await;
        }
    }
    let jobs = dispatch.broken(&service, &way, connection);
    // At the end of the server nothing is known about the site.
    if !jobs.is_empty() && !service.stop.has_begun() {
        // It could be reached, and then there was not one answer: for what waits that is the same.
        let text = "Connection closed before a message was answered".to_owned();
        Box::pin(defer_all(&service, jobs, &Trouble::deferral((4, 2), text))).await;
    }
}

/// Logs jobs as deferred whose destination has no hosts for now.
pub(crate) async fn unplaced(service: &Arc<Service>, jobs: Vec<Job>, no: NoHosts) {
    Box::pin(defer_all(service, jobs, &Trouble::no_hosts(no))).await;
}

/// Logs jobs as deferred whose site was found to be down before.
pub(crate) async fn defer(service: &Arc<Service>, jobs: Vec<Job>, why: &str) {
    Box::pin(defer_all(service, jobs, &Trouble::deferral((4, 1), why.to_owned()))).await;
}

/// A site cannot be reached: these were to go there now. They are logged, and wait as they are: not a message but its site
/// is tried again.
async fn defer_all(service: &Arc<Service>, jobs: Vec<Job>, trouble: &Trouble) {
    let Some(dispatch) = &service.dispatch else { return };
    for job in jobs {
        if let Some(early) = dispatch.early.get(job.message) {
            early.want();
        }
        let Ok(outgoing) = Outgoing::load(dispatch, job.message, &job.recipients).await else { continue };
        settle::log_deferred(service, &unsent(service, &outgoing, trouble), &trouble.cause());
    }
}

/// The attempt that came to no transaction.
fn unsent<'o>(service: &Service, outgoing: &'o Outgoing, trouble: &'o Trouble) -> Attempt<'o> {
    let relay = trouble.peer.as_ref().map_or(NextHop::None, next_hop);
    let mailer = match trouble.peer.as_ref().map(|peer| peer.protocol) {
        Some(RouteProtocol::Lmtp) => "lmtp",
        Some(RouteProtocol::Smtp) => "esmtp",
        None => resolve::mailer(&service.live.load().config.route),
    };
    outgoing.attempt(relay, mailer, Duration::ZERO, false)
}

/// Tells the table of hosts what happened with one that has an address.
fn learn(service: &Service, peer: &Candidate, happens: impl FnOnce(&mut Hosts, SocketAddr, Duration)) {
    let Some(address) = peer.address.socket() else { return };
    let now = service.unix_now();
    service.hosts.learn(|hosts| happens(hosts, address, now));
}

/// What a connection tells spool and dispatch.
struct Work<'a> {
    service: &'a Arc<Service>,
    dispatch: &'a Arc<Dispatch>,
    connection: ConnectionId,
    /// Outcomes that the spool does not know yet; never kept over a wait for the peer.
    changes: Vec<Change>,
    /// What dispatch is told after them.
    records: Vec<(Job, Feedback, Option<Duration>)>,
}

impl Work<'_> {
    /// Gives outcomes to the spool, and then the jobs to dispatch: not before, since a job that is over may be loaded again.
    fn flush(&mut self) {
        #[cfg(test)]
        if is_sabotaged(Sabotage::ForgetOutcome) {
            self.changes.clear();
        }
        if !self.changes.is_empty() {
            let recorded = self.service.spool().map(|spool| spool.record(&self.changes));
            if let Some(Err(error)) = recorded {
                let text = format!("{} outcomes are not recorded and will be repeated: {error}", self.changes.len());
                self.service.tell(&Event::Spool { severity: Severity::Critical, text: &text });
            }
            self.changes.clear();
        }
        for (job, feedback, retry) in self.records.drain(..) {
            self.dispatch.done(self.connection, &job, feedback, retry);
        }
    }

    /// Settles one attempt; its changes wait for [`Self::flush`]. Returns when it is tried again, if it is.
    async fn settle(
        &mut self,
        job: &Job,
        attempt: &Attempt<'_>,
        fates: Vec<Fate>,
        feedback: Feedback,
    ) -> Option<Duration> {
        let early = self.dispatch.early.get(job.message);
        if fates.iter().any(|fate| !matches!(fate, Fate::Delivered(_))) {
            // A report may have to be stored first; what was delivered before does not wait for that.
            self.flush();
            if let Some(early) = &early
                && !early.store().await
            {
                // Its sender still has it.
                self.records.push((job.clone(), feedback, None));
                return None;
            }
        }
        let settled = settle::settle(self.service, attempt, fates).await;
        if early.is_none_or(|early| !early.absorb(&settled.changes)) {
            self.changes.extend(settled.changes);
        }
        self.records.push((job.clone(), feedback, settled.retry));
        settled.retry
    }

    /// What a host put off is tried with others of its site next, if there are some.
    fn spare(&self, host: &Candidate, retry: Option<Duration>) {
        #[cfg(test)]
        let retry = retry.filter(|_| !is_sabotaged(Sabotage::SameHostAgain));
        let now = self.service.unix_now();
        if let (Some(at), Some(address)) = (retry, host.address.socket()) {
            self.service.hosts.learn(|hosts| hosts.spare(address, at.saturating_sub(now), now));
        }
    }

    /// Every message for a destination that does not exist has failed.
    async fn refuse_all(&mut self, trouble: &Trouble) {
        while let Take::Job(job) = self.dispatch.take(self.connection) {
            self.fail(&job, trouble).await;
            self.flush();
            if self.service.stop.has_begun() {
                return;
            }
        }
    }

    /// Settles a job that cannot be sent to anybody.
    async fn fail(&mut self, job: &Job, trouble: &Trouble) {
        let outgoing = match Outgoing::load(self.dispatch, job.message, &job.recipients).await {
            Ok(outgoing) => outgoing,
            Err(Unfit::Nothing) => return self.records.push((job.clone(), Feedback::Neutral, None)),
            Err(Unfit::Unreadable(why)) => return self.put_aside(job, &why),
        };
        let fates = vec![Fate::Failed(trouble.cause()); outgoing.positions.len()];
        let attempt = unsent(self.service, &outgoing, trouble);
        self.settle(job, &attempt, fates, Feedback::Neutral).await;
    }

    /// The spool cannot read a message: its recipients wait, and somebody has to look. One that is gone was deleted meanwhile.
    fn put_aside(&mut self, job: &Job, why: &str) {
        let Some(spool) = self.service.spool() else { return };
        let due = self.service.unix_now() + UNREADABLE_RETRY;
        let mut is_there = false;
        for (entry, _) in spool.states(job.message) {
            if entry.state.status == Status::Waiting && job.recipients.contains(entry.recipient) {
                let state = entry.state.tried().until(due);
                self.changes.push(Change { id: job.message, recipient: entry.recipient, state, destination: None });
                is_there = true;
            }
        }
        if is_there {
            let text = format!("message {} cannot be read: {why}; run mailrace spool verify on a copy", job.message);
            self.service.tell(&Event::Spool { severity: Severity::Error, text: &text });
        }
        self.records.push((job.clone(), Feedback::Neutral, is_there.then_some(due)));
    }
}

impl Drop for Work<'_> {
    /// A task that is cut off has still told what it knew.
    fn drop(&mut self) {
        self.flush();
    }
}

/// Whether a connection wants work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appetite {
    /// It asks for the next job.
    Hungry,
    /// There was none: the bell tells.
    Sated,
    /// It finishes what is open and closes.
    Leaving,
}

/// Why content is not made 7-bit.
enum Unconverted {
    /// It cannot be read.
    Unreadable(String),
    /// It must not be changed.
    Impossible(String),
}

/// A message on its way.
struct Open {
    token: u64,
    job: Job,
    outgoing: Outgoing,
    /// What became of recipients who were left out; empty: nobody was.
    left_out: Vec<Option<Fate>>,
    /// Why its content could not be read to the end.
    unreadable: Option<String>,
    began: Instant,
}

impl Open {
    /// What became of all recipients, with those who were sent.
    fn fates(&mut self, sent: Vec<Fate>) -> Vec<Fate> {
        if self.left_out.is_empty() {
            return sent;
        }
        let mut sent = sent.into_iter();
        std::mem::take(&mut self.left_out).into_iter().filter_map(|one| one.or_else(|| sent.next())).collect()
    }
}

/// A connection that is ready for mail.
struct Conversation<'a> {
    work: Work<'a>,
    link: Box<Link>,
    post: &'a Post,
    open: VecDeque<Open>,
    /// Names of transactions between the session and us.
    tokens: u64,
    appetite: Appetite,
    idle_since: Instant,
    /// Transactions that came to an answer.
    answered: u64,
    /// Somebody was delivered over it.
    has_delivered: bool,
    /// Those of them that no recipient was delivered by.
    barren: u32,
    /// The peer has been silent for longer than the fast lane bears.
    is_lagging: bool,
}

impl Conversation<'_> {
    async fn hold<N: Future<Output = ()>>(&mut self, wait: &mut Wait<'_, N>) {
        let post = self.post;
        let mut bell = Box::pin(post.bell.notified());
        let mut step = self.link.session.step();
        loop {
            match step {
                Step::Ready if self.appetite == Appetite::Hungry => self.take().await,
                Step::Ready if self.appetite == Appetite::Leaving && self.link.session.in_flight() == 0 => {
                    let now = self.link.now();
                    self.link.session.quit(now);
                }
                Step::Content => self.feed().await,
                Step::Done(finished) => Box::pin(self.finish(finished)).await,
                Step::Closed => return,
                Step::Wait | Step::Ready | Step::StartTls => {
                    self.work.flush();
                    match self.link.next(wait, bell.as_mut(), true, self.idle_until()).await {
                        Next::Step(next) => {
                            step = next;
                            continue;
                        }
                        Next::Rung => {
                            bell = Box::pin(post.bell.notified());
                            if post.is_called_off.load(Ordering::Acquire) {
                                if self.is_lagging {
                                    return Box::pin(self.break_off()).await;
                                }
                                self.appetite = Appetite::Leaving;
                            } else if self.appetite == Appetite::Sated {
                                self.appetite = Appetite::Hungry;
                            }
                        }
                        Next::Idle | Next::Stopping => self.appetite = Appetite::Leaving,
                        // It is waited for; dispatch has no lanes yet that could make room for others meanwhile.
                        Next::Lagging => {
                            self.is_lagging = true;
                            self.work.dispatch.lagging(self.work.connection);
                        }
                    }
                }
            }
            step = self.link.session.step();
        }
    }

    /// The place of a connection whose peer is silent goes to somebody else. Whether it has taken what it was sent nobody
    /// knows: the next attempt may make a duplicate.
    async fn break_off(&mut self) {
        for open in std::mem::take(&mut self.open) {
            // RFC 3463 §3.5: bad connection
            let status = EnhancedCode::of(Outcome::Transient, 4, 2);
            let text =
                format!("{} is silent, and its place was needed (delivery.connections_max)", self.link.peer.name);
            let fates = vec![Fate::Deferred(Cause::new(status, text, None)); open.outgoing.positions.len()];
            let xdelay = clock::now().saturating_duration_since(open.began);
            let attempt = open.outgoing.attempt(next_hop(&self.link.peer), self.mailer(), xdelay, false);
            let retry = self.work.settle(&open.job, &attempt, fates, Feedback::Lost).await;
            self.work.spare(&self.link.peer, retry);
        }
        self.work.flush();
        learn(self.work.service, &self.link.peer, Hosts::failed);
    }

    /// Until when a connection without work is kept.
    fn idle_until(&self) -> Option<Instant> {
        let is_idle = self.link.session.in_flight() == 0 && self.appetite == Appetite::Sated;
        is_idle.then(|| self.idle_since + self.work.service.live.load().config.delivery.idle_time)
    }

    /// Takes the next job, if there is one.
    async fn take(&mut self) {
        let work = &mut self.work;
        let is_poisoned = work.service.keeper.pressure() == Pressure::Poisoned;
        if work.service.stop.has_begun() || is_poisoned {
            self.appetite = Appetite::Leaving;
            return;
        }
        // What is done must be known before more is asked for.
        work.flush();
        if self.link.routing.as_ref().is_some_and(|old| peer::is_out_of_date(old, &work.service.routing.load())) {
            self.appetite = Appetite::Leaving;
            return;
        }
        let job = match work.dispatch.take(work.connection) {
            Take::Job(job) => job,
            Take::Idle => {
                self.appetite = Appetite::Sated;
                self.idle_since = clock::now();
                return;
            }
            Take::Close => {
                self.appetite = Appetite::Leaving;
                return;
            }
        };
        match Outgoing::load(work.dispatch, job.message, &job.recipients).await {
            Ok(outgoing) => self.begin(job, outgoing).await,
            Err(Unfit::Nothing) => work.records.push((job, Feedback::Neutral, None)),
            Err(Unfit::Unreadable(why)) => work.put_aside(&job, &why),
        }
    }

    /// Begins the transaction of a job, or settles it when this peer cannot take it.
    async fn begin(&mut self, job: Job, mut outgoing: Outgoing) {
        self.tokens += 1;
        let now = self.work.service.unix_now();
        if let Some(cause) = settle::deadline::too_late(&outgoing.envelope, now) {
            return self.refuse(&job, &outgoing, cause).await;
        }
        let left_out = peer::unserved(&self.link, &outgoing.envelope).await;
        if !left_out.is_empty() {
            self.try_tls_again();
            if left_out.iter().all(Option::is_some) {
                let attempt = outgoing.attempt(next_hop(&self.link.peer), self.mailer(), Duration::ZERO, false);
                let fates = left_out.into_iter().flatten().collect();
                Box::pin(self.work.settle(&job, &attempt, fates, Feedback::Neutral)).await;
                return;
            }
        }
        let mut transaction = outgoing.transaction(self.tokens, now, &left_out);
        let mut fits = self.link.session.fits(&transaction);
        let needs_seven_bit = fits == Err(Misfit::EightBit)
            || fits.is_ok() && !self.link.session.offers().eight_bit_mime && !outgoing.is_plain();
        if needs_seven_bit {
            if let Some(early) = self.work.dispatch.early.get(job.message)
                && !early.store().await
            {
                return self.work.records.push((job, Feedback::Neutral, None));
            }
            match self.convert(&mut outgoing).await {
                Ok(()) => {
                    transaction = outgoing.transaction(self.tokens, now, &left_out);
                    fits = self.link.session.fits(&transaction);
                }
                Err(Unconverted::Unreadable(why)) => return self.work.put_aside(&job, &why),
                Err(Unconverted::Impossible(text)) => {
                    let status = EnhancedCode::of(Outcome::Permanent, 6, 3);
                    return self.refuse(&job, &outgoing, Cause::new(status, text, None)).await;
                }
            }
        }
        if let Err(misfit) = fits {
            let cause = answers::misfit_cause(misfit, &self.link.peer);
            return self.refuse(&job, &outgoing, cause).await;
        }
        let now = self.link.now();
        self.link.session.begin(transaction, now);
        #[cfg(test)]
        if is_sabotaged(Sabotage::RecordEarly)
            && let Some(spool) = self.work.service.spool()
        {
            let state = spool::State { status: Status::Done, ..spool::State::default() };
            let change = |recipient| Change { id: job.message, recipient, state, destination: None };
            drop(spool.record(&job.recipients.iter().map(change).collect::<Vec<_>>()));
        }
        let (token, unreadable, began) = (self.tokens, None, clock::now());
        self.open.push_back(Open { token, job, outgoing, left_out, unreadable, began });
    }

    /// Somebody needs TLS: where it broke, or was not tried, the next connection shows whether it works now.
    fn try_tls_again(&mut self) {
        if self.link.tls.is_none() && self.link.session.offers().starttls {
            learn(self.work.service, &self.link.peer, |hosts, address, _| hosts.tls_worked(address));
            self.appetite = Appetite::Leaving;
        }
    }

    /// Makes the content 7-bit for a peer that takes nothing else.
    // RFC 6152 §3: convert, or give it back
    async fn convert(&self, outgoing: &mut Outgoing) -> Result<(), Unconverted> {
        let Some(spool) = self.work.service.spool() else { return Ok(()) };
        // Whole messages in memory: a few at a time. Closed never.
        let _permit = self.work.dispatch.conversions.acquire().await;
        let content = Outgoing::whole(spool, outgoing.envelope.id).await.map_err(Unconverted::Unreadable)?;
        if mail::seven_bit::is_seven_bit(&content) {
            outgoing.envelope.params.body = None;
            return Ok(());
        }
        let converted = blocking::run(move || mail::seven_bit::convert(&content)).await;
        let converted = converted.map_err(|_| Unconverted::Unreadable("the conversion broke off".to_owned()))?;
        let converted = converted.map_err(|reason| {
            Unconverted::Impossible(format!("{} does not offer 8BITMIME: {reason}", self.link.peer.name))
        })?;
        outgoing.content_bytes = converted.len() as u64;
        outgoing.envelope.params.body = Some(Body::SevenBit);
        outgoing.content = Content::Here(VecDeque::from([converted.into()]));
        Ok(())
    }

    /// This peer will never take the message.
    async fn refuse(&mut self, job: &Job, outgoing: &Outgoing, cause: Cause) {
        let fates = vec![Fate::Failed(cause); outgoing.positions.len()];
        let attempt = outgoing.attempt(next_hop(&self.link.peer), self.mailer(), Duration::ZERO, false);
        Box::pin(self.work.settle(job, &attempt, fates, Feedback::Neutral)).await;
    }

    /// Gives the session the next piece of the content that it sends.
    async fn feed(&mut self) {
        let (Some(open), Some(spool)) = (self.open.back_mut(), self.work.service.spool()) else {
            return self.link.session.abort_content(self.link.now());
        };
        let piece = open.outgoing.next_piece(spool).await;
        let now = self.link.now();
        match piece {
            Ok(Some(piece)) => return self.link.session.content(piece, now),
            Ok(None) => open.unreadable = Some("its content is shorter than it should be".to_owned()),
            Err(why) => open.unreadable = Some(why),
        }
        self.link.session.abort_content(now);
    }

    /// A transaction is over.
    async fn finish(&mut self, finished: Finished) {
        let token = finished.token;
        let Some(at) = self.open.iter().position(|open| open.token == token) else { return };
        let Some(mut open) = self.open.remove(at) else { return };
        self.is_lagging = false;
        if self.appetite == Appetite::Sated && self.open.is_empty() {
            self.idle_since = clock::now();
        }
        if let Some(why) = &open.unreadable {
            return self.work.put_aside(&open.job, why);
        }
        if self.is_untried(&finished) {
            if finished.outcomes.iter().any(is_used_up) {
                self.appetite = Appetite::Leaving;
            }
            return self.work.dispatch.give_back(self.work.connection, &open.job);
        }
        let is_answered = finished.outcomes.iter().any(|outcome| matches!(outcome.answer, Answer::Reply(_)));
        let is_put_off = finished.outcomes.iter().all(|outcome| answers::is_put_off(outcome.stage, &outcome.answer));
        let mut feedback = Feedback::Neutral;
        let mut fates = Vec::with_capacity(finished.outcomes.len());
        let rules = Arc::clone(&self.work.service.live.load().reasons);
        for outcome in finished.outcomes {
            let (fate, says) = answers::judge(&rules, &self.link.peer, outcome.stage, outcome.answer);
            if says != Feedback::Neutral && !matches!(feedback, Feedback::Good | Feedback::Lost) {
                feedback = says;
            }
            fates.push(fate);
        }
        self.answered += 1;
        if fates.iter().any(|fate| matches!(fate, Fate::Delivered(_))) {
            self.has_delivered = true;
            fates.iter_mut().for_each(Fate::hurry);
        } else {
            self.barren += 1;
            if self.barren >= BARREN_MAX {
                self.appetite = Appetite::Leaving;
            }
        }
        let fates = open.fates(fates);
        let xdelay = clock::now().saturating_duration_since(open.began);
        if is_answered && !is_put_off {
            let delivered = |hosts: &mut Hosts, address, now| hosts.delivered(address, xdelay, now);
            learn(self.work.service, &self.link.peer, delivered);
        }
        let passes_dsn = self.link.session.offers().dsn;
        let attempt = open.outgoing.attempt(next_hop(&self.link.peer), self.mailer(), xdelay, passes_dsn);
        let retry = self.work.settle(&open.job, &attempt, fates, feedback).await;
        if is_put_off {
            self.work.spare(&self.link.peer, retry);
        }
    }

    /// How the peer ended the connection, if it did so before it took anything. Whoever wants nothing now is as good as away: the
    /// message has had its attempt, and what waits behind it shall not have one each.
    fn dismissal(&self) -> Option<Trouble> {
        let closing = self.link.session.closing().filter(|_| !self.has_delivered)?;
        #[cfg(test)]
        if is_sabotaged(Sabotage::KnockAgain) {
            return None;
        }
        let is_dismissed = closing.reply.as_ref().is_some_and(|reply| reply.code().get() == 421);
        (is_dismissed && !self.work.service.stop.has_begun()).then(|| refused(Some(closing), &self.link.peer))
    }

    /// Whether the peer had nothing to do with the transaction: it was behind one that ended the connection, or the
    /// peer closed a connection that had served before.
    fn is_untried(&self, finished: &Finished) -> bool {
        finished.outcomes.iter().all(|outcome| match (&outcome.answer, outcome.stage) {
            (Answer::NotTried, _) => true,
            // Whoever ends a connection that had served ends it for what was sent ahead too. The message is first on the
            // next one, where the same counts.
            // Behind the whole content nobody knows whether it was taken: that was an attempt.
            (Answer::Lost(Loss::Closed), Stage::End) => false,
            (Answer::Lost(Loss::Closed), _) => self.answered > 0,
            (Answer::Reply(_), _) => self.answered > 0 && is_used_up(outcome),
            _ => false,
        })
    }

    fn mailer(&self) -> &'static str {
        match self.link.session.offers() {
            _ if self.link.is_lmtp => "lmtp",
            offers if *offers == smtp::client::Offers::default() => "smtp",
            _ => "esmtp",
        }
    }
}

impl Outgoing {
    /// As the session takes it, without those who are left out, with what is left of the time by which it is to be delivered.
    fn transaction(&self, token: u64, now: Duration, left_out: &[Option<Fate>]) -> Transaction {
        let recipients = &self.envelope.recipients;
        let is_sent = |at: usize| left_out.get(at).is_none_or(Option::is_none);
        let sent = || recipients.iter().enumerate().filter(|(at, _)| is_sent(*at)).map(|(_, one)| one.clone());
        Transaction {
            token,
            sender: self.envelope.sender.clone(),
            params: MailParams { by: settle::deadline::left(&self.envelope, now), ..self.envelope.params.clone() },
            recipients: if left_out.is_empty() { recipients.as_slice().into() } else { sent().collect() },
            content_bytes: self.content_bytes,
        }
    }

    /// As *settle* takes it.
    pub(crate) fn attempt<'a>(
        &'a self,
        next_hop: NextHop<'a>,
        mailer: &'a str,
        xdelay: Duration,
        passes_dsn: bool,
    ) -> Attempt<'a> {
        Attempt {
            envelope: &self.envelope,
            positions: &self.positions,
            content_bytes: self.content_bytes,
            recipients_left: self.recipients_left,
            next_hop,
            mailer,
            xdelay,
            passes_dsn,
            is_try: true,
            is_told: false,
            is_final: false,
            name: None,
            owner: None,
        }
    }
}

/// Whether the peer has had enough of the connection.
fn is_used_up(outcome: &smtp::client::Outcome) -> bool {
    matches!(&outcome.answer, Answer::Reply(reply) if answers::is_used_up(outcome.stage, reply))
}
