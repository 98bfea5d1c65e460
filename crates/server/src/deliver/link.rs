//! A connection to a next hop: bytes and time between a [`Transport`] and the client's side of `smtp`.
//!
//! Sending and reading go on at the same time, so that a server that answers early, or does not read, is noticed. All
//! output of a turn leaves in one write. Input is read into the buffer that all connections of a thread share.
//!
//! Invariant: whatever the transport does, [`Link::next`] ends: by a step, by the time limit of the session, or by
//! the signal of dispatch.

use super::Candidate;
use super::dialog_tap::DialogTap;
use crate::routing::Routing;
use crate::tls::TlsInfo;
use crate::transport::{FAR, Transport, Wait};
use mail::PhaseTimes;
use os::clock;
use smtp::client::{ClientSession, ClientStep, Loss, Stage};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Slices of one write.
const SLICES: usize = 32;

/// The least silence that counts: a peer that sends or takes octets all the time is not slow but has much to
/// transfer.
const SILENCE: Duration = Duration::from_secs(1);
/// Silences of a transaction together are late after this multiple of the limit of a single one.
const SILENCES: u32 = 2;

/// After a silence of this length in a transaction nothing more is sent behind it.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// After a silence of this length about a whole message other connections are opened in its place.
const STALLS_AFTER: Duration = Duration::from_secs(1);
/// After this time the jobs sent behind it, which the peer cannot have accepted, go elsewhere.
const WITHDRAWS_AFTER: Duration = Duration::from_secs(5);

/// A connection and its session.
#[derive(Debug)]
pub(super) struct Link {
    /// The protocol.
    pub(super) session: ClientSession,
    /// The bytes.
    pub(super) transport: Transport,
    /// It speaks LMTP.
    pub(super) is_lmtp: bool,
    /// The host that it leads to.
    pub(super) peer: Candidate,
    /// State of its TLS; `None`: it is in clear.
    pub(super) tls: Option<Box<TlsInfo>>,
    /// The maps under which it was opened.
    pub(super) routing: Option<Arc<Routing>>,
    /// The peer takes no more octets. Its earlier replies are still to be read: one may be the 250 of a message.
    is_deaf: bool,
    /// Time after which a reply is late; `None`: never before its limit.
    lags_after: Option<Duration>,
    /// Time from which the reply was owed that was reported as late.
    told: Option<Duration>,
    /// Time from which an answer was missing that was reported as a stall of the connection, and whether that was
    /// reported twice.
    stalls: Option<(Duration, bool)>,
    /// The peer was reported as silent in the transaction at hand.
    is_silent: bool,
    /// How long the peer was silent in the transaction at hand, in silences that are worth to be counted.
    silent: Duration,
    began: Instant,
    /// How long the phases took that no attempt has been told of.
    pub(super) phases: PhaseTimes,
    /// Passes its dialog on to operators that watch.
    pub(super) tap: Option<Box<DialogTap>>,
}

/// Makes a timer for a [`Wait`], set to later than the first event that will be waited for.
pub(super) fn timer() -> Sleep {
    tokio::time::sleep(Duration::from_secs(3_600))
}

/// Why waiting was over.
#[derive(Debug)]
pub(super) enum Next {
    /// The session wants something, [`ClientStep::Wait`] excepted.
    Step(ClientStep),
    /// Dispatch has signalled.
    Rung,
    /// The limit of the caller has passed.
    Idle,
    /// The server shuts down; reported once.
    Stopping,
    /// The peer has sent and taken nothing for longer than the fast lane allows, at once or again and again in a
    /// transaction. In the slow lane, or if it may have a message whole, the connection waits on; otherwise the next
    /// step is its end. Reported once for each reply.
    Lagging,
    /// The peer is silent in a transaction: no job is to be sent behind it. Reported once, and not when it is
    /// [`Next::Stalling`].
    Silent,
    /// The peer may have a message whole and is silent: no job is to be sent behind it. Reported twice, the second
    /// time after so long that jobs behind it should go elsewhere.
    Stalling {
        /// It is the second time.
        is_long: bool,
    },
}

impl Link {
    /// Makes an open connection whose peer has said nothing yet. A reply that is missing for longer than `lags_after`
    /// is reported by [`Next::Lagging`].
    pub(super) fn new(
        session: ClientSession,
        transport: Transport,
        peer: Candidate,
        is_lmtp: bool,
        lags_after: Option<Duration>,
    ) -> Self {
        let began = clock::now();
        let (tls, routing) = (None, None);
        let (is_deaf, told, stalls, is_silent, silent) = (false, None, None, false, Duration::ZERO);
        Self {
            session,
            transport,
            is_lmtp,
            peer,
            tls,
            routing,
            is_deaf,
            lags_after,
            told,
            stalls,
            is_silent,
            silent,
            began,
            phases: PhaseTimes::default(),
            tap: None,
        }
    }

    /// Returns the time of the session.
    pub(super) fn now(&self) -> Duration {
        clock::now().saturating_duration_since(self.began)
    }

    /// Moves bytes until the session needs something, or another event happens. With `is_sated`, room for another
    /// transaction is no reason to return.
    ///
    /// # Cancel safety
    /// Yes: the session has all octets that were read or written.
    pub(super) async fn next<N, B>(
        &mut self,
        wait: &mut Wait<'_, N>,
        mut bell: Pin<&mut B>,
        is_sated: bool,
        idle_until: Option<Instant>,
    ) -> Next
    where
        N: Future<Output = ()>,
        B: Future<Output = ()>,
    {
        poll_fn(|context| {
            loop {
                match self.session.step() {
                    ClientStep::Wait => {}
                    ClientStep::Ready if is_sated => {}
                    step => return Poll::Ready(Next::Step(step)),
                }
                if self.poll_bytes(context) {
                    continue;
                }
                if bell.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Next::Rung);
                }
                let (limit, late) = (self.limit(), self.late());
                let (stalls, silent) = (self.stalls_at(), self.silent_at());
                let until = [idle_until, late, stalls, silent].into_iter().flatten().fold(limit, Instant::min);
                if wait.poll(context, until).is_pending() {
                    return Poll::Pending;
                }
                let now = clock::now();
                // First, since a peer that is given up in the fast lane was too late for it.
                if late.is_some_and(|late| now >= late) {
                    self.told = self.session.owed_since();
                    return Poll::Ready(Next::Lagging);
                } else if now >= limit {
                    self.session.expire(now.saturating_duration_since(self.began));
                } else if stalls.is_some_and(|stalls| now >= stalls) {
                    let is_long = self.stalls.is_some_and(|(since, _)| self.session.unanswered_since() == Some(since));
                    self.stalls = self.session.unanswered_since().map(|since| (since, is_long));
                    return Poll::Ready(Next::Stalling { is_long });
                } else if silent.is_some_and(|silent| now >= silent) {
                    self.is_silent = true;
                    return Poll::Ready(Next::Silent);
                } else if idle_until.is_some_and(|idle| now >= idle) {
                    return Poll::Ready(Next::Idle);
                } else {
                    return Poll::Ready(Next::Stopping);
                }
            }
        })
        .await
    }

    /// Returns the time limit of the session.
    fn limit(&self) -> Instant {
        match self.session.deadline() {
            Duration::MAX => clock::now() + FAR,
            deadline => self.began.checked_add(deadline).unwrap_or_else(|| clock::now() + FAR),
        }
    }

    /// Returns when the reply that is owed now is late, if that has not been reported.
    fn late(&self) -> Option<Instant> {
        let (after, since) = (self.lags_after?, self.session.owed_since()?);
        // However much silence was counted, a reply has a quarter of the time: a peer that answers the content in
        // good time is not cut off.
        let after = after.min((after * SILENCES).saturating_sub(self.silent).max(after / 4));
        if self.told == Some(since) { None } else { self.began.checked_add(since.saturating_add(after)) }
    }

    /// Returns the time at which the peer counts as silent in a transaction, if that is to come.
    fn silent_at(&self) -> Option<Instant> {
        let is_known = self.is_silent || self.session.in_flight() == 0 || self.session.unanswered_since().is_some();
        let since = self.session.owed_since().filter(|_| !is_known)?;
        self.began.checked_add(since.saturating_add(SILENT_AFTER))
    }

    /// Returns the time at which the missing answer to a whole message counts as a stall, if that is to come.
    fn stalls_at(&self) -> Option<Instant> {
        let since = self.session.unanswered_since()?;
        let after = match self.stalls.filter(|(told, _)| *told == since) {
            None => STALLS_AFTER,
            Some((_, false)) => WITHDRAWS_AFTER,
            Some((_, true)) => return None,
        };
        self.began.checked_add(since.saturating_add(after))
    }

    /// Forgets the silences of a transaction that is over: they do not count for the next one.
    pub(super) fn forget_silences(&mut self) {
        (self.silent, self.is_silent) = (Duration::ZERO, false);
    }

    /// Returns whether the connection ended in a way for which its host is passed over for a while: it was silent, or
    /// none of its `answered` transactions got an answer.
    pub(super) fn has_failed(&self, answered: u64) -> bool {
        let Some(closing) = self.session.closing() else { return false };
        match closing.loss {
            Some(Loss::TimedOut | Loss::TooLong) => !matches!(closing.stage, Stage::Idle | Stage::Quit),
            Some(Loss::Closed | Loss::Protocol(_) | Loss::Injected) => answered == 0,
            // The peer closed properly, or we gave up.
            None => false,
        }
    }

    /// Sends and reads without waiting. Returns whether the session got input.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> bool {
        // A peer takes what is sent to it as the kernel's buffers have it, in large pieces and seldom.
        let owed = self.session.owed_since().filter(|_| !self.session.has_output());
        let is_told = self.move_bytes(context);
        if is_told && let Some(since) = owed.filter(|since| self.session.owed_since() != Some(*since)) {
            let silence = self.now().saturating_sub(since);
            self.silent += if silence < SILENCE { Duration::ZERO } else { silence };
        }
        is_told
    }

    fn move_bytes(&mut self, context: &mut Context<'_>) -> bool {
        let now = self.now();
        if let Some(tap) = &mut self.tap {
            tap.look(is_between(&self.session));
        }
        let mut is_told = false;
        while self.session.has_output() && !self.is_deaf {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.session.output_slices(&mut slices);
            let output = slices.get(..filled).unwrap_or_default();
            match self.transport.poll_write(context, output) {
                Poll::Ready(Ok(octets)) => {
                    if let Some(tap) = &mut self.tap {
                        tap.sent(output, octets);
                    }
                    self.session.sent(octets, now);
                    is_told = true;
                }
                Poll::Ready(Err(_)) => self.is_deaf = true,
                Poll::Pending => break,
            }
        }
        if !self.is_deaf && matches!(self.transport.poll_flush(context), Poll::Ready(Err(_))) {
            self.is_deaf = true;
        }
        let (session, tap) = (&mut self.session, &mut self.tap);
        let read = self.transport.poll_input(context, |input| {
            if let Some(tap) = tap {
                tap.received(input);
            }
            match input {
                [] => session.end_of_input(now),
                _ => session.receive(input, now),
            }
        });
        match read {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => {
                self.session.end_of_input(now);
                true
            }
            Poll::Pending => is_told,
        }
    }
}

/// Returns whether a transcript may begin: no content is on its way, and no dialog of AUTH goes on.
fn is_between(session: &ClientSession) -> bool {
    session.in_flight() == 0 && !session.has_output() && session.mechanism_in_use().is_none()
}

#[cfg(test)]
mod tests;
