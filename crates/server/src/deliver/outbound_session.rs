//! A connection that is ready for mail: it takes jobs from *dispatch*, sends them by the client's machine of `smtp`,
//! and gives the results to *settle*.
//!
//! A message is sent while the one before still awaits its reply. The state of the connection as a whole is judged at
//! its end: [`OutboundSession::dismissal`], [`OutboundSession::has_failed`].

use super::connect::{next_hop, refused};
use super::connect_error::ConnectError;
use super::link::{Link, Next};
use super::{AttemptWork, answers, extensions, learn, peer};
use crate::dispatch::ConnectionSignal;
use crate::message::{Content, ContentForm};
use crate::message::{OutboundMessage, ReadError};
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::settle::{Attempt, AttemptOutcome, Cause};
use crate::transport::Wait;
use mail::{Body, EnhancedCode, Outcome, QueueId};
use os::{blocking, clock};
use schedule::{Failure, Feedback, Hosts, Job, Lag, NextJob, Standing};
use smtp::client::{Answer, ClientStep, ClientTransaction, Closing, Finished, Loss, Misfit, Stage};
use spool::{Change, Pressure, State, Status, Store as _};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Messages without a delivered recipient after which a connection is closed.
///
/// Servers count refusals in a session and end it, and messages sent behind wait for their next attempt: Exim 4.96
/// after ten RSET that follow no message (`smtp_accept_max_nonmail`), Postfix after twenty errors, two for such a
/// message. Those that are behind the last one count too.
const BARREN_MAX: u32 = 5;

/// Unanswered recipients of a connection from which on the next transaction waits for an answer.
const AHEAD_RECIPIENTS: usize = 16;

/// Attempts after which a lack of one host is final, where others of its site fail; for a site with more hosts, one
/// attempt for each and one to be sure.
const MISFIT_TRIES: usize = 4;
/// The greatest number: the spool counts no more attempts of all classes.
const MISFIT_TRIES_MAX: usize = State::TRIES_MAX_CLASSED as usize;

/// Whether a connection wants work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkState {
    /// It asks for the next job.
    WantsJob,
    /// There was none: the bell tells.
    Idle,
    /// It finishes open transactions and closes.
    Closing,
}

/// Why the whole content of a message is not available.
pub(super) enum Unread {
    /// It was not stored: its sender still has it.
    Nothing,
    /// It cannot be read.
    Why(ReadError),
}

impl Unread {
    pub(super) fn broken() -> Self {
        Self::Why(ReadError::Bad("the conversion broke off".to_owned()))
    }
}

/// A message that is being sent.
struct OpenTransaction {
    token: u64,
    job: Job,
    outgoing: OutboundMessage,
    /// Results of recipients that were left out; empty: none was.
    left_out: Vec<Option<AttemptOutcome>>,
    /// Why its content could not be read to the end.
    unread: Option<ReadError>,
    /// It was broken off, since another node of the cluster may own the message.
    is_lost: bool,
    began: Instant,
}

impl OpenTransaction {
    /// Merges the results of the recipients that were sent with those of the others.
    fn fates(&mut self, sent: Vec<AttemptOutcome>) -> Vec<AttemptOutcome> {
        if self.left_out.is_empty() {
            return sent;
        }
        let mut sent = sent.into_iter();
        std::mem::take(&mut self.left_out).into_iter().filter_map(|one| one.or_else(|| sent.next())).collect()
    }
}

/// A connection that is ready for mail.
pub(super) struct OutboundSession<'a> {
    pub(super) work: AttemptWork<'a>,
    pub(super) link: Box<Link>,
    post: &'a ConnectionSignal,
    /// Of all hosts of the site.
    addresses: Vec<SocketAddr>,
    open: VecDeque<OpenTransaction>,
    /// Names of transactions between the session and us.
    tokens: u64,
    appetite: WorkState,
    idle_since: Instant,
    /// Transactions that are over.
    tried: u64,
    /// Transactions with an answer of the peer.
    answered: u64,
    /// It answered one of them, and did more than defer the message.
    has_served: bool,
    /// Transactions by which no recipient was delivered.
    barren: u32,
    /// The host failed last: the first message shows whether it works again.
    is_on_trial: bool,
    /// The peer was reported as silent for longer than the fast lane allows.
    lag: Option<Lag>,
    /// No transaction is sent until the first open one is over.
    waits: bool,
    /// A message that was not sent to the peer went back.
    has_given_back: bool,
    /// The last transaction went back since an extension does not work; the next connection does not use it.
    pub(super) has_avoided: bool,
    /// The first message whose end the peer did not answer.
    unanswered: Option<QueueId>,
    /// We gave it up.
    is_broken_off: bool,
}

impl<'a> OutboundSession<'a> {
    /// Makes a session over a link that is ready for mail, to one of the hosts of a site at these addresses.
    pub(super) fn new(
        work: AttemptWork<'a>,
        link: Box<Link>,
        post: &'a ConnectionSignal,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        let address = link.peer.address.socket();
        let is_doubted = |hosts: &Hosts| address.is_some_and(|address| hosts.is_doubted(address));
        Self {
            is_on_trial: work.outbound.hosts.with_table(is_doubted),
            work,
            link,
            post,
            addresses,
            open: VecDeque::new(),
            tokens: 0,
            appetite: WorkState::WantsJob,
            idle_since: clock::now(),
            tried: 0,
            answered: 0,
            has_served: false,
            barren: 0,
            lag: None,
            waits: false,
            has_given_back: false,
            has_avoided: false,
            unanswered: None,
            is_broken_off: false,
        }
    }
}

impl OutboundSession<'_> {
    /// Takes jobs and sends them until there is no work, or the connection breaks.
    pub(super) async fn hold<N: Future<Output = ()>>(&mut self, wait: &mut Wait<'_, N>) {
        let post = self.post;
        let mut bell = Box::pin(post.bell.notified());
        let mut step = self.link.session.step();
        loop {
            match step {
                ClientStep::Ready if self.appetite == WorkState::WantsJob && !self.waits && self.is_light() => {
                    self.take().await
                }
                ClientStep::Ready if self.appetite == WorkState::Closing && self.link.session.in_flight() == 0 => {
                    let now = self.link.now();
                    self.link.session.quit(now);
                }
                ClientStep::Content => self.feed().await,
                ClientStep::Done(finished) => Box::pin(self.finish(finished)).await,
                ClientStep::Closed => return,
                ClientStep::Wait | ClientStep::Ready | ClientStep::StartTls => {
                    self.work.flush();
                    match self.link.next(wait, bell.as_mut(), true, self.idle_until()).await {
                        Next::Step(next) => {
                            step = next;
                            continue;
                        }
                        Next::Rung => {
                            bell = Box::pin(post.bell.notified());
                            if post.is_aborted.load(Ordering::Acquire) {
                                return Box::pin(self.abort()).await;
                            }
                            if post.is_shed.load(Ordering::Acquire) {
                                self.appetite = WorkState::Closing;
                                if !self.may_be_taken() {
                                    return self.give_place_up();
                                }
                            }
                            if post.is_called_off.swap(false, Ordering::AcqRel) {
                                self.appetite = WorkState::Closing;
                                match self.lag {
                                    // The content has gone out meanwhile.
                                    Some(lag) if !lag.is_whole && self.may_be_taken() => self.lags(),
                                    Some(_) => return Box::pin(self.break_off()).await,
                                    None => {}
                                }
                            } else {
                                self.asks_again();
                            }
                        }
                        Next::Idle | Next::Stopping => self.appetite = WorkState::Closing,
                        // The connection waits on: dispatch signals when others need the place.
                        Next::Lagging => self.lags(),
                        Next::Silent => self.falls_silent(),
                        Next::Stalling { is_long } => self.stall(is_long),
                    }
                }
            }
            step = self.link.session.step();
        }
    }

    /// Notes that the peer is late. Until it answers, other hosts of the site go before it, and if there are some the
    /// site keeps its lane.
    fn lags(&mut self) {
        learn(self.work.outbound, &self.link.peer, Hosts::failed);
        let lag = Lag { has_others: self.has_others(true), is_whole: self.may_be_taken() };
        self.lag = Some(lag);
        self.asks_again();
        self.work.dispatch.lagging(self.work.connection, lag);
    }

    /// Returns whether the peer may have a message whole whose answer is missing.
    fn may_be_taken(&self) -> bool {
        if is_sabotaged(Sabotage::HangUp) {
            return false;
        }
        self.link.session.may_have_message()
    }

    /// Returns whether the next connection leads to another host of the site first. `is_bad`: this one failed; then
    /// one that put mail off is good enough. Otherwise it is one that wants nothing now, and so may others.
    pub(super) fn has_others(&self, is_bad: bool) -> bool {
        let Some(own) = self.link.peer.address.socket() else { return false };
        let now = self.work.context.unix_now();
        let worst = if is_bad { Standing::Aside } else { Standing::Good };
        self.work.outbound.hosts.with_table(|hosts| {
            let own = hosts.standing(own, now);
            // Among equal hosts this one may be the first again.
            self.addresses.iter().map(|one| hosts.standing(*one, now)).any(|one| one <= worst && one < own)
        })
    }

    /// Returns whether the host is to be passed over for how the connection ended.
    pub(super) fn has_failed(&self) -> bool {
        self.is_broken_off || self.link.has_failed(self.answered) || self.is_over_early()
    }

    /// Gives the place of the connection to others while the peer is silent.
    fn falls_silent(&mut self) {
        self.waits = true;
        self.asks_again();
        self.work.dispatch.silent(self.work.connection);
    }

    /// Reports that the peer does not answer the end of a message, so that other mail does not wait for that.
    fn stall(&mut self, is_long: bool) {
        if is_long {
            return self.link.session.withdraw();
        }
        self.waits = true;
        self.asks_again();
        self.work.dispatch.stalling(self.work.connection);
    }

    /// Asks for work as soon as there may be some: dispatch does not signal while the peer owes an answer.
    fn asks_again(&mut self) {
        if self.appetite == WorkState::Idle {
            self.appetite = WorkState::WantsJob;
        }
    }

    /// Gives the place of a connection with a silent peer to another. If the peer may have a whole message, the
    /// connection would wait on, but too many others hang so; whether the message was accepted is unknown, and the
    /// next attempt may make a duplicate.
    async fn break_off(&mut self) {
        self.is_broken_off = true;
        let text = format!("{} is silent, and its place was needed (delivery.connections_max)", self.link.peer.name);
        for retry in self.put_off_open(&text, Feedback::NoReply).await {
            self.work.spare(&self.link.peer, self.addresses.len(), retry);
        }
        self.work.flush();
    }

    /// Ends the connection at once for an operator. It says nothing about the host. A message that the host may have
    /// whole is sent again, perhaps as a duplicate.
    async fn abort(&mut self) {
        if let Some(tap) = &self.link.tap {
            tap.tell("ended by an operator");
        }
        let text = format!("an operator ended the connection to {}", self.link.peer.name);
        self.put_off_open(&text, Feedback::Neutral).await;
        self.work.flush();
    }

    /// Ends the connection, since another node of the cluster may use its place soon. Its messages wait as they are.
    fn give_place_up(&mut self) {
        if let Some(tap) = &self.link.tap {
            tap.tell("ended: the share of the limit of all nodes (destination.connections) could not be renewed");
        }
        for open in std::mem::take(&mut self.open) {
            self.work.put_off(&open.job);
        }
        self.work.flush();
    }

    /// Defers the messages that are on their way, for this reason. Returns when each is tried again.
    async fn put_off_open(&mut self, text: &str, feedback: Feedback) -> Vec<Option<Duration>> {
        let mut retries = Vec::new();
        for open in std::mem::take(&mut self.open) {
            // RFC 3463 §3.5: bad connection
            let status = EnhancedCode::of(Outcome::Transient, 4, 2);
            let text = text.to_owned();
            let fates = vec![AttemptOutcome::Deferred(Cause::new(status, text, None)); open.outgoing.positions.len()];
            let xdelay = clock::now().saturating_duration_since(open.began);
            let attempt = open.outgoing.attempt(next_hop(&self.link.peer), self.mailer(), xdelay, false);
            retries.push(self.work.settle(&open.job, &attempt, fates, feedback).await);
        }
        retries
    }

    /// Returns whether more may be sent ahead: the next message, perhaps a single one, waits for no more than a
    /// transaction of a list. No message is sent behind one that a host is late with, nor ahead to a host that failed
    /// last.
    fn is_light(&self) -> bool {
        if is_sabotaged(Sabotage::SendAhead) {
            return true;
        }
        let recipients: usize = self.open.iter().map(|open| open.job.recipients.len()).sum();
        let most = if self.is_on_trial && self.answered == 0 { 1 } else { AHEAD_RECIPIENTS };
        self.lag.is_none() && recipients < most
    }

    /// Returns the time until which a connection without work is kept.
    fn idle_until(&self) -> Option<Instant> {
        let is_idle = self.link.session.in_flight() == 0 && self.appetite == WorkState::Idle;
        is_idle.then(|| self.idle_since + self.work.context.live.load().config.delivery.idle_time)
    }

    /// Takes the next job, if there is one.
    async fn take(&mut self) {
        let work = &mut self.work;
        let is_poisoned = work.context.message_store.pressure() == Pressure::Poisoned;
        if work.context.stop.has_begun() || is_poisoned {
            self.appetite = WorkState::Closing;
            return;
        }
        // Finished jobs are recorded before the next one is taken.
        work.flush();
        if self.link.routing.as_ref().is_some_and(|old| peer::is_out_of_date(old, &work.context.routing.load())) {
            self.appetite = WorkState::Closing;
            return;
        }
        let job = match work.dispatch.take(work.connection) {
            NextJob::Job(job) => job,
            NextJob::Idle => {
                self.appetite = WorkState::Idle;
                self.idle_since = clock::now();
                return;
            }
            NextJob::Later => {
                self.waits = true;
                return;
            }
            NextJob::Close => {
                self.appetite = WorkState::Closing;
                return;
            }
        };
        if let Some(outgoing) = work.load(&job).await {
            self.begin(job, outgoing).await;
        }
    }

    /// Begins the transaction of a job, or settles it when this peer cannot take it.
    async fn begin(&mut self, job: Job, mut outgoing: OutboundMessage) {
        self.tokens += 1;
        let now = self.work.context.now_of(&outgoing.envelope);
        if let Some(cause) = Cause::too_late(&outgoing.envelope, now) {
            return self.refuse(&job, &outgoing, cause).await;
        }
        let left_out = peer::unserved(&self.link, &outgoing.envelope).await;
        if !left_out.is_empty() {
            self.try_tls_again();
            if left_out.iter().all(Option::is_some) {
                let attempt = outgoing.attempt(next_hop(&self.link.peer), self.mailer(), Duration::ZERO, false);
                let fates = left_out.into_iter().flatten().collect();
                Box::pin(self.work.settle(&job, &attempt, fates, Feedback::Unsent)).await;
                return;
            }
        }
        let transaction = match self.fitting_transaction(&job, &mut outgoing, &left_out, now).await {
            Ok(Ok(transaction)) => transaction,
            Ok(Err(misfit)) => return self.misfits(&job, &outgoing, misfit).await,
            Err(why) => return self.unread(&job, why),
        };
        let now = self.link.now();
        self.link.session.begin(transaction, now);
        if is_sabotaged(Sabotage::RecordEarly)
            && let Some(spool) = self.work.context.spool()
        {
            let state = State { status: Status::Done, ..State::default() };
            let change = |recipient| Change { id: job.message, recipient, state, destination: None };
            drop(spool.record(&job.recipients.iter().map(change).collect::<Vec<_>>()));
        }
        let (token, unread, began) = (self.tokens, None, clock::now());
        self.open.push_back(OpenTransaction { token, job, outgoing, left_out, unread, is_lost: false, began });
    }

    /// Fits a message to the offers of the peer: without SMTPUTF8, in 7 bits or with shorter lines, where it can be;
    /// and signs it. Returns its transaction, or why the peer cannot take it.
    ///
    /// # Errors
    /// The message cannot be read.
    async fn fitting_transaction(
        &mut self,
        job: &Job,
        outgoing: &mut OutboundMessage,
        left_out: &[Option<AttemptOutcome>],
        now: Duration,
    ) -> Result<Result<ClientTransaction, Misfit>, Unread> {
        let token = self.tokens;
        let mut transaction = outgoing.transaction(token, now, left_out);
        let mut fits = self.link.session.fits(&transaction);
        if fits == Err(Misfit::Smtputf8) && !self.needs_smtputf8(job, outgoing).await? {
            outgoing.envelope.params.smtputf8 = false;
            transaction = outgoing.transaction(token, now, left_out);
            fits = self.link.session.fits(&transaction);
        }
        let needs_seven_bit = fits == Err(Misfit::EightBit)
            || fits.is_ok() && !self.link.session.offers().eight_bit_mime && !outgoing.is_plain();
        let mut form = ContentForm::Stored;
        if needs_seven_bit {
            self.convert(job, outgoing).await?;
            form = ContentForm::Converted;
            transaction = outgoing.transaction(token, now, left_out);
            fits = self.link.session.fits(&transaction);
        }
        if fits.is_ok() && self.shorten(job, outgoing).await? {
            form = ContentForm::Converted;
            transaction = outgoing.transaction(token, now, left_out);
            fits = self.link.session.fits(&transaction);
        }
        if fits.is_ok() && self.sign(outgoing, form).await? {
            transaction = outgoing.transaction(token, now, left_out);
            fits = self.link.session.fits(&transaction);
        }
        Ok(fits.map(|()| transaction))
    }

    /// A recipient needs TLS: where it failed, or was not tried, the next connection tries it again.
    fn try_tls_again(&mut self) {
        if self.link.tls.is_none() && self.link.session.offers().starttls {
            learn(self.work.outbound, &self.link.peer, |hosts, address, _| hosts.try_tls(address));
            self.appetite = WorkState::Closing;
        }
    }

    /// Makes the content 7-bit for a peer that does not offer 8BITMIME. Parts that cannot be converted go out as they
    /// are: most such peers pass them on.
    // RFC 6152 §3: convert, or give it back
    async fn convert(&self, job: &Job, outgoing: &mut OutboundMessage) -> Result<(), Unread> {
        // Whole messages are in memory: a few at a time. The semaphore is never closed.
        let _permit = self.work.dispatch.conversions.acquire().await;
        let content = self.whole(job, outgoing).await?;
        if mail::seven_bit::is_seven_bit(&content) {
            outgoing.envelope.params.body = None;
            return Ok(());
        }
        let converted = blocking::run(move || mail::seven_bit::convert(&content)).await;
        let converted = converted.map_err(|_| Unread::broken())?;
        outgoing.content_bytes = converted.content.len() as u64;
        outgoing.envelope.params.body = converted.left.is_none().then_some(Body::SevenBit);
        outgoing.content = Content::Here(VecDeque::from([converted.content.into()]));
        Ok(())
    }

    /// Returns whether the header of a message has 8-bit octets, so that only a peer with SMTPUTF8 may have it.
    async fn needs_smtputf8(&self, job: &Job, outgoing: &OutboundMessage) -> Result<bool, Unread> {
        let _permit = self.work.dispatch.conversions.acquire().await;
        let content = self.whole(job, outgoing).await?;
        let has_it = blocking::run(move || mail::seven_bit::has_eight_bit_header(&content)).await;
        has_it.map_err(|_| Unread::broken())
    }

    /// Returns the content in one piece, from the spool.
    pub(super) async fn whole(&self, job: &Job, outgoing: &OutboundMessage) -> Result<Vec<u8>, Unread> {
        if let Some(early) = self.work.dispatch.messages.early.get(job.message)
            && !early.store().await
        {
            return Err(Unread::Nothing);
        }
        OutboundMessage::whole(&self.work.dispatch.messages.reading, outgoing.envelope.id).await.map_err(Unread::Why)
    }

    fn unread(&mut self, job: &Job, why: Unread) {
        match why {
            // Its sender still has it.
            Unread::Nothing => self.work.records.push((job.clone(), Feedback::Unsent, None)),
            Unread::Why(why) => self.work.put_aside(job, &why),
        }
    }

    /// Settles a message for which the peer lacks an extension or takes too few octets. The lack is this host's:
    /// while another host of the site is as good as any, or fails, the message waits for it, though not for more than
    /// some attempts. The last host is asked twice, since a greylisting daemon in front of it offers less. A message
    /// that may not be late is refused at once.
    async fn misfits(&mut self, job: &Job, outgoing: &OutboundMessage, misfit: Misfit) {
        let cause = answers::misfit_cause(misfit, &self.link.peer);
        let tries = outgoing.positions.iter().map(|(_, state)| state.tries()).max().unwrap_or(0);
        let is_final = match misfit {
            Misfit::TooLate { .. } | Misfit::DeliverBy => true,
            _ if usize::from(tries) >= MISFIT_TRIES.max(self.addresses.len() + 1).min(MISFIT_TRIES_MAX) => true,
            Misfit::Size { .. } => self.is_last(),
            _ => tries > 0 && self.is_last(),
        };
        if is_final {
            return self.refuse(job, outgoing, cause).await;
        }
        let cause = Cause::new(cause.status.with_outcome(Outcome::Transient), cause.text, None);
        let fates = vec![AttemptOutcome::Deferred(cause); outgoing.positions.len()];
        let attempt = outgoing.attempt(next_hop(&self.link.peer), self.mailer(), Duration::ZERO, false);
        let retry = Box::pin(self.work.settle(job, &attempt, fates, Feedback::Unsent)).await;
        self.work.spare(&self.link.peer, self.addresses.len(), retry);
        // The next connection may find one of the others, or the host itself behind its greylisting daemon.
        self.appetite = WorkState::Closing;
    }

    /// Returns whether each other host of the site was asked lately and deferred mail, as a host does that lacks an
    /// extension the message needs.
    fn is_last(&self) -> bool {
        let own = self.link.peer.address.socket();
        let now = self.work.context.unix_now();
        let mut others = self.addresses.iter().filter(|address| Some(**address) != own);
        self.work
            .outbound
            .hosts
            .with_table(|hosts| others.all(|address| hosts.standing(*address, now) == Standing::Aside))
    }

    /// Gives a job back whose refusal is about an extension of SMTP, and not about the mail: the extension is not used
    /// with this host for a while, and the next connection tries again.
    fn avoids(&mut self, open: &OpenTransaction, finished: &Finished) -> bool {
        let Some(found) = extensions::broken(&self.link, &open.outgoing.envelope, finished) else { return false };
        // Without a memory of it the next connection would get the same reply: the reply is the verdict.
        if !extensions::avoid(self.work.outbound, &self.link.peer, &found) || !found.is_certain {
            return false;
        }
        // The host answers, so it does not count as failed.
        self.tried += 1;
        self.answered += 1;
        (self.has_served, self.has_given_back, self.has_avoided) = (true, true, true);
        self.appetite = WorkState::Closing;
        self.work.dispatch.give_back(self.work.connection, &open.job);
        true
    }

    /// Fails a message that this peer will never accept.
    async fn refuse(&mut self, job: &Job, outgoing: &OutboundMessage, cause: Cause) {
        let fates = vec![AttemptOutcome::Failed(cause); outgoing.positions.len()];
        let attempt = outgoing.attempt(next_hop(&self.link.peer), self.mailer(), Duration::ZERO, false);
        Box::pin(self.work.settle(job, &attempt, fates, Feedback::Unsent)).await;
    }

    /// Gives the session the next piece of the content that it sends.
    async fn feed(&mut self) {
        let Some(open) = self.open.back_mut() else {
            return self.link.session.abort_content(self.link.now());
        };
        let piece = open.outgoing.next_piece(&self.work.dispatch.messages.reading).await;
        let now = self.link.now();
        // Behind the last piece the end of the content follows by itself.
        if !self.work.dispatch.may_end(open.job.message) {
            open.is_lost = true;
            return self.link.session.abort_content(now);
        }
        match piece {
            Ok(Some(piece)) => return self.link.session.content(piece, now),
            Ok(None) => open.unread = Some(ReadError::Bad("its content is shorter than it should be".to_owned())),
            Err(why) => open.unread = Some(why),
        }
        self.link.session.abort_content(now);
    }

    /// A transaction is over.
    async fn finish(&mut self, finished: Finished) {
        let token = finished.token;
        self.link.phases.add_all(&finished.times);
        let Some(at) = self.open.iter().position(|open| open.token == token) else { return };
        let Some(mut open) = self.open.remove(at) else { return };
        // One behind it may be withdrawn.
        if at == 0 {
            (self.lag, self.waits) = (None, false);
            self.link.forget_silences();
        }
        if self.appetite == WorkState::Idle && self.open.is_empty() {
            self.idle_since = clock::now();
        }
        if let Some(why) = &open.unread {
            return self.work.put_aside(&open.job, why);
        }
        if open.is_lost {
            return self.work.put_off(&open.job);
        }
        if self.is_untried(&finished) {
            if finished.outcomes.iter().any(is_used_up) {
                self.appetite = WorkState::Closing;
            }
            self.has_given_back = true;
            return self.work.dispatch.give_back(self.work.connection, &open.job);
        }
        if self.avoids(&open, &finished) {
            return;
        }
        let is_answered = finished.outcomes.iter().any(|outcome| matches!(outcome.answer, Answer::Reply(_)));
        let is_put_off = finished.outcomes.iter().all(|outcome| answers::is_put_off(outcome.stage, &outcome.answer));
        let lost_at = finished.outcomes.iter().find(|one| matches!(one.answer, Answer::Lost(_))).map(|one| one.stage);
        let behind = lost_at.and_then(|stage| self.loses(&open.job, stage));
        let phases = std::mem::take(&mut self.link.phases);
        let (mut fates, feedback) = self.judge(finished, behind);
        self.tried += 1;
        self.answered += u64::from(is_answered);
        if fates.iter().any(|fate| matches!(fate, AttemptOutcome::Delivered(_))) {
            fates.iter_mut().for_each(AttemptOutcome::retry_soon);
        } else {
            self.barren += 1;
            if self.barren >= BARREN_MAX {
                self.appetite = WorkState::Closing;
            }
        }
        let fates = open.fates(fates);
        let xdelay = clock::now().saturating_duration_since(open.began);
        if is_answered && !is_put_off {
            self.has_served = true;
            let delivered = |hosts: &mut Hosts, address, now| hosts.delivered(address, xdelay, now);
            learn(self.work.outbound, &self.link.peer, delivered);
        }
        let passes_dsn = self.link.session.offers().dsn;
        // A host that delivers at once is in time.
        let passes_by = self.link.is_lmtp || self.link.session.offers().deliverby.is_some();
        let attempt = open.outgoing.attempt(next_hop(&self.link.peer), self.mailer(), xdelay, passes_dsn);
        let attempt = Attempt { passes_by, phases, ..attempt };
        let retry = self.work.settle(&open.job, &attempt, fates, feedback).await;
        if is_put_off {
            self.work.spare(&self.link.peer, self.addresses.len(), retry);
        }
    }

    /// Judges the answers of a transaction, which may have been lost behind the message `behind`. Returns the outcomes
    /// of its recipients, and the feedback on the site.
    fn judge(&self, finished: Finished, behind: Option<QueueId>) -> (Vec<AttemptOutcome>, Feedback) {
        let mut feedback = Feedback::Neutral;
        let mut fates = Vec::with_capacity(finished.outcomes.len());
        let rules = Arc::clone(&self.work.context.live.load().reasons);
        for (fate, says) in answers::judge_all(&rules, &self.link.peer, finished.outcomes) {
            if says != Feedback::Neutral && !matches!(feedback, Feedback::Good | Feedback::NoReply) {
                feedback = says;
            }
            fates.push(answers::behind(fate, behind));
        }
        (fates, feedback)
    }

    /// Notes that a job has no answer, or not for all of it. Returns the message behind which it was lost.
    fn loses(&mut self, job: &Job, stage: Stage) -> Option<QueueId> {
        let is_end = matches!(stage, Stage::Content | Stage::End);
        self.work.dispatch.unanswered(self.work.connection, job, !is_end);
        let behind = self.unanswered.filter(|message| *message != job.message);
        if is_end && self.unanswered.is_none() {
            self.unanswered = Some(job.message);
        }
        behind
    }

    /// Returns whether the peer ended the connection behind its answer to EHLO, before it got a message, although
    /// there was one or its job was not taken yet. Either side may end an idle connection.
    fn is_over_early(&self) -> bool {
        let is_its =
            |closing: &Closing| closing.stage != Stage::Quit && (closing.reply.is_some() || closing.loss.is_some());
        let has_work = self.has_given_back || self.tokens == 0 && self.appetite == WorkState::WantsJob;
        self.tried == 0 && has_work && self.link.session.closing().is_some_and(is_its)
    }

    /// Returns how the peer ended the connection, if it deferred all that it was given: it said 421, or broke off, or
    /// was silent, without one answer. A peer that takes no mail now is as good as away: the message has had its
    /// attempt, and the messages behind it shall not have one each. A peer that accepted or refused a message, or
    /// answered for one recipient, has served: it works. One that ended the connection before there was a message is
    /// no better.
    pub(super) fn dismissal(&self) -> Option<ConnectError> {
        let closing = self.link.session.closing().filter(|_| !self.has_served)?;
        if self.tried == 0 && !self.is_over_early() {
            return None;
        }
        if is_sabotaged(Sabotage::KnockAgain) {
            return None;
        }
        let is_told = closing.reply.as_ref().is_some_and(|reply| reply.code().get() == 421);
        let is_broken = self.answered == 0 && self.link.has_failed(self.answered);
        if !is_told && !is_broken || self.work.context.stop.has_begun() {
            return None;
        }
        let trouble = refused(Some(closing), &self.link.peer);
        let failure = match trouble.failure {
            _ if is_told => Failure::Throttled,
            Failure::Refused if is_broken => Failure::Broken,
            other => other,
        };
        Some(ConnectError { failure, ..trouble })
    }

    /// Returns whether the peer had nothing to do with the transaction: it was behind one that ended the connection,
    /// or the peer closed a connection that had served before.
    fn is_untried(&self, finished: &Finished) -> bool {
        finished.outcomes.iter().all(|outcome| match (&outcome.answer, outcome.stage) {
            (Answer::NotTried, _) => true,
            // A peer that ends a connection after it served also ends it for messages sent ahead. The message is
            // first on the next one, where the same counts. If the connection ends behind the whole content, the peer
            // may have accepted the message: that was an attempt.
            (Answer::Lost(Loss::Closed), Stage::End) => false,
            (Answer::Lost(Loss::Closed), _) => self.tried > 0,
            (Answer::Reply(_), _) => self.tried > 0 && is_used_up(outcome),
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

/// Returns whether the peer has had enough of the connection.
fn is_used_up(outcome: &smtp::client::Outcome) -> bool {
    matches!(&outcome.answer, Answer::Reply(reply) if answers::is_used_up(outcome.stage, reply))
}
