//! The stop *session*: drives one [`smtp::server::Session`] over a connection, from the greeting to the end.
//!
//! The machine in `smtp` knows the protocol; this drives it: gives it bytes and time, sends its output, and carries
//! its questions to the stops *admit* and *commit*. Questions that need no waiting are answered while the input is
//! still in the buffer it was read into, so that a pipelined transaction costs one read and one write.
//!
//! A connection waits in one place only, for input, the time limit of the machine, or the end of the server
//! ([`Wait`]). Each connection is one task; the server counts it and at its end waits for it.

mod after_250;
mod answers;
mod commit;
mod filtering;
mod header_rewrite;
mod loops;
mod opening;
mod process;
mod reinjected;
mod report;
mod routed;
mod screening;
mod sender_check;
mod serve;
#[cfg(test)]
mod trials;
mod verify;

pub(crate) use opening::Opening;
pub(crate) use process::process_listen;
pub(crate) use serve::ServeSessions;

use crate::auth::{Exchange, Failures};
use crate::context::Context;
use crate::inbound::Inbound;
use crate::intake::TransactionContent;
use crate::listener_profile::ListenerProfile;
use crate::routing::Routing;
use crate::routing::plan::Plan;
use crate::screen::filters::FilterSession;
use crate::sender_check::SenderCheckTask;
use crate::transport::{FAR, Transport, Wait};
use header_rewrite::HeaderRewrite;
use mail::QueueId;
use os::clock;
use screening::TransactionScreen;
use smtp::server::{Question, Session, Step};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

/// Time that a closing connection has to read the last reply, and octets that it may still send: a close with unread
/// input would make the kernel discard the reply.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 << 10;

/// One connection with its session.
pub(crate) struct Connection {
    inbound: Arc<Inbound>,
    /// The context of `inbound`.
    context: Arc<Context>,
    lane: Arc<ListenerProfile>,
    session: Session,
    /// Facts about the client besides its address.
    opening: Opening,
    began: Instant,
    /// Input that arrived behind a question that had to wait.
    pending: Vec<u8>,
    /// The content that is arriving, once for each message that the transaction becomes; empty: none is.
    content: TransactionContent,
    /// The header section that is held back to be rewritten.
    header_rewrite: HeaderRewrite,
    /// The maps of the open transaction; `None`: there are none.
    routing: Option<Arc<Routing>>,
    /// The messages that the transaction makes of its recipients.
    plan: Plan,
    /// The judges of the open transaction; `None`: it has none.
    screening: Option<Box<TransactionScreen>>,
    /// The checks of the sender of the message that arrives; `None`: it is not checked.
    sender_check: Option<Box<SenderCheckTask>>,
    /// The filters of the session; `None`: there are none.
    filters: Option<Box<FilterSession>>,
    /// Filters that the message that arrives has passed, from which it comes back.
    passed_filters: Vec<String>,
    /// The AUTH exchange that is going on.
    exchange: Option<Exchange>,
    /// Failed authentications of this session.
    failures: Option<Failures>,
    /// The mechanism by which the client authenticated.
    auth_mechanism: Box<str>,
    /// The queue id of the open transaction.
    id: Option<QueueId>,
    /// The queue id that the next transaction gets.
    first_id: Option<QueueId>,
    /// Time for which its messages wait for their first attempt, besides the parameters of the message.
    queue_time: Option<Duration>,
    /// The messages were tried before, and their warnings logged: unchanged ones are not logged again.
    is_again: bool,
    /// Its sender, as the log writes it.
    from: String,
    /// The client spoke before the greeting.
    is_early_talker: bool,
    /// Refusals in it.
    refused: u32,
    /// Octets of its content, when that was refused.
    refused_bytes: u64,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// The session closed the connection.
    Closed,
    /// The client is gone.
    Lost,
}

/// The end of a wait.
enum Event {
    /// The machine has read input and takes this step next.
    Step(Step),
    /// The client has closed its side.
    EndOfInput,
    /// The time limit has passed, or the server shuts down; the session decides.
    Woken,
}

impl Connection {
    /// Makes a connection whose client may speak from now on.
    pub(crate) fn new(
        inbound: Arc<Inbound>,
        lane: Arc<ListenerProfile>,
        mut session: Session,
        opening: Opening,
        began: Instant,
    ) -> Self {
        let screen = inbound.context.live.load().screen.clone();
        let filters =
            screen.and_then(|screen| screen.filter_session(&lane.listen.filters, &inbound.context.reinjections));
        if filters.as_ref().is_some_and(|filters| filters.has_milter()) {
            session.ask_unknown();
        }
        Self {
            filters,
            context: Arc::clone(&inbound.context),
            inbound,
            lane,
            session,
            opening,
            began,
            pending: Vec::new(),
            content: TransactionContent::default(),
            header_rewrite: HeaderRewrite::Done,
            routing: None,
            plan: Plan::default(),
            screening: None,
            sender_check: None,
            passed_filters: Vec::new(),
            exchange: None,
            failures: None,
            auth_mechanism: Box::default(),
            id: None,
            first_id: None,
            queue_time: None,
            is_again: false,
            from: String::new(),
            is_early_talker: false,
            refused: 0,
            refused_bytes: 0,
        }
    }

    /// Gives this queue id to the first transaction.
    pub(crate) fn with_id(mut self, id: QueueId) -> Self {
        self.first_id = Some(id);
        self
    }

    /// Has its messages tried after this time and not at once.
    pub(crate) fn queued_for(mut self, time: Option<Duration>) -> Self {
        self.queue_time = time;
        self
    }

    /// Notes that the messages of this session were submitted before and not accepted then.
    pub(crate) fn again(mut self, is_again: bool) -> Self {
        self.is_again = is_again;
        self
    }

    /// Drives the session to its end and closes the connection.
    pub(crate) async fn run(mut self, mut transport: Transport) {
        let context = Arc::clone(&self.context);
        let timer = pin!(tokio::time::sleep_until(self.deadline().into()));
        let stop = &context.stop;
        let stopping = pin!(stop.begun());
        let mut wait = Wait::new(timer, stop, stopping);
        let end = match self.greet(&mut transport, &mut wait).await {
            Ok(Step::Close) => self.close(&mut transport, &mut wait).await,
            Ok(_) => self.drive(&mut transport, &mut wait).await,
            Err(_) => SessionEnd::Lost,
        };
        let in_content = self.content.id().is_some();
        self.report_end(end, in_content);
        self.abandon_content();
        if let Some(filters) = self.filters.take() {
            Box::pin(filters.quit()).await;
        }
        // A client that has sent QUIT sends nothing more, so no unread input makes the kernel discard the reply.
        let says_farewell = !self.session.ending().quit || transport.has_farewell();
        if end == SessionEnd::Closed && says_farewell {
            linger(&mut transport).await;
        }
    }

    async fn drive<N: Future<Output = ()>>(&mut self, transport: &mut Transport, wait: &mut Wait<'_, N>) -> SessionEnd {
        let mut is_answered = false;
        loop {
            let step = if self.pending.is_empty() && !std::mem::take(&mut is_answered) {
                if self.flush(transport, wait).await.is_err() {
                    return SessionEnd::Lost;
                }
                // The stop signal came while the session could not close, or while its output waited, and does not
                // come again. And a client that sends without a pause is never waited for, and still has limits.
                let is_due = self.context.stop.has_begun() || self.elapsed() >= self.session.deadline();
                if is_due && self.woken() {
                    return self.close(transport, wait).await;
                }
                match self.next(transport, wait).await {
                    Ok(Event::Step(step)) => step,
                    Ok(Event::EndOfInput) | Err(_) => return SessionEnd::Lost,
                    Ok(Event::Woken) => {
                        if self.woken() {
                            return self.close(transport, wait).await;
                        }
                        continue;
                    }
                }
            } else {
                let input = std::mem::take(&mut self.pending);
                self.advance(&input)
            };
            self.report_notes();
            match step {
                // `advance` has already forgotten an abandoned transaction.
                Step::Read | Step::Abandon => {}
                Step::Close => return self.close(transport, wait).await,
                Step::StartTls => {
                    self.pending = Vec::new();
                    if self.flush(transport, wait).await.is_err() || !Box::pin(self.start_tls(transport)).await {
                        return SessionEnd::Lost;
                    }
                }
                Step::Content => Box::pin(self.store_content()).await,
                Step::Ask(question) => {
                    // The client gets the replies so far before the session waits for the answer.
                    if self.flush(transport, wait).await.is_err() {
                        return SessionEnd::Lost;
                    }
                    if !self.answer_in_time(question).await {
                        return SessionEnd::Lost;
                    }
                    // The answer may have ended the session, and no input follows to show it.
                    is_answered = true;
                }
            }
        }
    }

    /// Works through `input` as far as no waiting is needed; keeps the input behind that point.
    fn advance(&mut self, input: &[u8]) -> Step {
        let now = self.elapsed();
        let mut rest = input;
        loop {
            let (used, step) = self.session.advance(rest, now);
            rest = rest.get(used..).unwrap_or_default();
            let step = match step {
                Step::Ask(question) => match self.answer_at_once(question, now) {
                    true => continue,
                    false => step,
                },
                Step::Abandon => {
                    self.abandon_content();
                    continue;
                }
                other => other,
            };
            if !rest.is_empty() {
                self.pending = rest.to_vec();
            }
            return step;
        }
    }

    /// Reads, and uses the input.
    async fn next<N: Future<Output = ()>>(
        &mut self,
        transport: &mut Transport,
        wait: &mut Wait<'_, N>,
    ) -> io::Result<Event> {
        let deadline = self.deadline();
        let event = poll_fn(|context| {
            let read = transport.poll_input(context, |input| match input {
                [] => Event::EndOfInput,
                _ => Event::Step(self.advance(input)),
            });
            match read {
                Poll::Ready(event) => {
                    // Here and not later: another thread may go on with the answer.
                    if let Ok(Event::Step(Step::Ask(Question::Auth | Question::AuthResponse))) = &event {
                        Transport::wipe_input();
                    }
                    Poll::Ready(event)
                }
                Poll::Pending => wait.poll(context, deadline).map(|()| Ok(Event::Woken)),
            }
        })
        .await;
        // A reply carries the acknowledgement, the 250 of a whole message too: its client has nothing more to send.
        let awaits_more = matches!(event, Ok(Event::Step(Step::Read | Step::Content)));
        if awaits_more && self.session.output().is_empty() {
            transport.acknowledge();
        }
        event
    }

    /// Sends all output. A client that does not read its replies has the same time as one that does not speak.
    async fn flush<N: Future<Output = ()>>(
        &mut self,
        transport: &mut Transport,
        wait: &mut Wait<'_, N>,
    ) -> io::Result<()> {
        if self.session.output().is_empty() {
            return Ok(());
        }
        // Set once: a client that takes an octet now and then gains no time.
        let deadline = self.deadline();
        while !self.session.output().is_empty() {
            let sent = {
                let mut write = pin!(transport.write(self.session.output()));
                poll_fn(|context| match write.as_mut().poll(context) {
                    Poll::Ready(sent) => Poll::Ready(sent),
                    Poll::Pending => match ready!(wait.poll(context, deadline)) {
                        () if clock::now() >= deadline => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                        () => {
                            context.waker().wake_by_ref();
                            Poll::Pending
                        }
                    },
                })
                .await?
            };
            self.session.sent(sent);
        }
        Ok(())
    }

    /// Tells the session that its time limit has passed or that the server stops. Returns whether the session is
    /// over.
    fn woken(&mut self) -> bool {
        let now = self.elapsed();
        if self.session.expire(now) {
            return true;
        }
        self.context.stop.has_begun() && self.session.shut_down(now)
    }

    async fn close<N: Future<Output = ()>>(&mut self, transport: &mut Transport, wait: &mut Wait<'_, N>) -> SessionEnd {
        match self.flush(transport, wait).await {
            Ok(()) => SessionEnd::Closed,
            Err(_) => SessionEnd::Lost,
        }
    }

    /// Does the handshake. `false`: the connection is of no more use.
    async fn start_tls(&mut self, transport: &mut Transport) -> bool {
        let Transport::Plain(stream) = std::mem::replace(transport, Transport::Closed) else { return false };
        let Some(acceptor) = &self.lane.tls else { return false };
        let asks = self.opening.asks_certificate;
        let handshake = acceptor.accept(stream, clock::now() + self.lane.handshake_time, asks);
        let shaken = tokio::select! {
            shaken = handshake => shaken,
            // Nothing is open that could be lost.
            () = self.context.stop.begun() => return false,
        };
        match shaken {
            Ok((stream, tls, shown)) => {
                *transport = Transport::Tls(Box::new(stream));
                self.end_transaction();
                self.context.record(&shown.event(self.relay(), &tls));
                self.opening.shown = Arc::new(shown);
                let now = self.elapsed();
                self.session.tls_started(tls, now);
                true
            }
            Err(error) => {
                self.report_tls_failure(&error);
                false
            }
        }
    }

    /// Forgets the content that has come.
    fn abandon_content(&mut self) {
        self.header_rewrite = HeaderRewrite::Done;
        self.sender_check = None;
        std::mem::take(&mut self.content).abandon(&self.context.message_store);
    }

    fn elapsed(&self) -> Duration {
        clock::now().saturating_duration_since(self.began)
    }

    /// Returns the time by which the client must act. Where the session has no limit of its own, because the server
    /// has to answer or because it is closing, the client still has to take the output.
    fn deadline(&self) -> Instant {
        let limit = match self.session.deadline() {
            Duration::MAX => self.elapsed().saturating_add(self.session.settings().limits.command_time),
            limit => limit,
        };
        self.began.checked_add(limit).unwrap_or_else(|| clock::now() + FAR)
    }
}

/// Lets the client read the last reply before the connection goes.
async fn linger(transport: &mut Transport) {
    let mut drained = 0;
    let drain = async {
        // Under TLS this writes, and the client may not read.
        if transport.shut_down().await.is_err() {
            return;
        }
        while drained < LINGER_BYTES {
            match poll_fn(|context| transport.poll_input(context, <[u8]>::len)).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => drained += bytes,
            }
        }
    };
    drop(tokio::time::timeout(LINGER_TIME, drain).await);
}

#[cfg(test)]
mod tests;
