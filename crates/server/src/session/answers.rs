//! Answers a session's questions: decisions of *admit* on sender and recipient, and results of *commit*.

use super::Connection;
use super::screening::TransactionScreen;
use crate::admit::Facts;
use crate::admit::dnsbl::Listings;
use crate::admit::logins::Allowance;
use crate::auth::{self, Outcome};
use crate::dns::ClientName;
use crate::intake::TransactionContent;
use crate::tls::ClientCertificate;
use mail::{Client, Received, Reply, ReplyCode};
use observe::Ruleset;
use os::clock;
use smtp::server::{Dialect, Question, Verdict};
use smtp::trace::Trace;
use spool::{Error, Pressure};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

impl Connection {
    /// Answers a question that needs no waiting. `false`: the question is still open.
    pub(super) fn answer_at_once(&mut self, question: Question, now: Duration) -> bool {
        if self.inbound.behaviour.as_ref().is_some_and(|behaviour| behaviour.takes_its_time(question)) {
            return false;
        }
        self.answer_plainly(question, now)
    }

    fn answer_plainly(&mut self, question: Question, now: Duration) -> bool {
        // Reports the notes of the transaction so far before a command begins another one.
        self.report_notes();
        match question {
            Question::Helo if self.has_filters() => return false,
            Question::Helo => {
                let verdict = self.context.live.load().policies.helo(&self.facts()).verdict;
                let verdict = self.refuse(Ruleset::Helo, verdict);
                self.session.answer(verdict, now);
            }
            Question::Mail => {
                let verdict = match self.begin_mail() {
                    Some(refusal) => refusal,
                    None if self.has_filters() => return false,
                    None => match self.routing.clone() {
                        Some(routing) => return self.answer_routed(&routing, question, now),
                        None => self.admit_sender(),
                    },
                };
                self.session.answer(verdict, now);
            }
            Question::Recipient => {
                if let Some(refusal) = self.refuse_login() {
                    self.session.answer(refusal, now);
                    return true;
                }
                if self.has_filters() {
                    return false;
                }
                if let Some(routing) = self.routing.clone() {
                    return self.answer_routed(&routing, question, now);
                }
                let verdict = self.admit_recipient();
                self.answer_recipient(verdict, now);
            }
            Question::Data if self.has_filters() => return false,
            Question::Data => self.begin_message(now),
            Question::Verify | Question::Expand if self.context.routing.load().is_plain() => {
                let reply = nothing_to_verify(question);
                self.report_not_verified(question, &reply);
                self.session.answer_with(reply, now);
            }
            Question::Verify | Question::Expand => return false,
            Question::Unknown => return false,
            Question::Xclient if self.has_filters() => return false,
            Question::Xclient => self.become_client(now),
            Question::Message | Question::Auth | Question::AuthResponse => return false,
        }
        true
    }

    /// Answers a question that has to wait: for the disk, a password check, or the pauses of a sink.
    ///
    /// `false`: the connection is to be dropped without a further reply.
    pub(super) async fn answer_in_time(&mut self, question: Question) -> bool {
        if let Some(behaviour) = &self.inbound.behaviour
            && behaviour.takes_its_time(question)
        {
            let limit = self.session.settings().limits.command_time;
            let played = tokio::select! {
                played = tokio::time::timeout(limit, behaviour.apply_fault(question)) => played,
                () = self.context.stop.begun() => return false,
            };
            match played {
                Ok(None) => {}
                Ok(Some(refusal)) => {
                    self.answer_as_told(question, refusal);
                    return true;
                }
                Err(_) => return false,
            }
        }
        match question {
            Question::Message => self.commit().await,
            Question::Auth | Question::AuthResponse => Box::pin(self.authenticate(question)).await,
            Question::Verify | Question::Expand => Box::pin(self.answer_look(question)).await,
            Question::Xclient if self.has_filters() => Box::pin(self.become_client_with_filters()).await,
            Question::Helo | Question::Mail | Question::Recipient | Question::Data | Question::Unknown
                if self.has_filters() =>
            {
                Box::pin(self.answer_with_filters(question)).await;
            }
            Question::Mail | Question::Recipient if self.routing.is_some() => {
                if let Some(routing) = self.routing.clone() {
                    Box::pin(self.answer_routed_in_time(&routing, question)).await;
                }
            }
            other => {
                let now = self.elapsed();
                let answered = self.answer_plainly(other, now);
                debug_assert!(answered, "{other:?} needs no waiting");
            }
        }
        true
    }

    /// Answers with a refusal that a sink plays.
    fn answer_as_told(&mut self, question: Question, refusal: Reply) {
        let now = self.elapsed();
        let verdict = Verdict::Refuse(refusal.clone());
        match question {
            Question::Message => {
                self.abandon_content();
                let recipients = self.verdicts_due();
                self.forget_transaction();
                self.session.finish(&vec![verdict; recipients], now);
            }
            Question::Auth | Question::AuthResponse => self.session.auth_failed(verdict, now),
            Question::Verify | Question::Expand => self.session.answer_with(refusal, now),
            _ => self.session.answer(verdict, now),
        }
    }

    /// Answers with one verdict, or in LMTP one for each recipient (RFC 2033 §4.2).
    pub(super) fn verdicts_due(&self) -> usize {
        match self.session.settings().dialect {
            Dialect::Lmtp => self.session.transaction().map_or(1, |transaction| transaction.recipients.len()),
            _ => 1,
        }
    }

    /// Begins a transaction, unless this server accepts none now.
    fn begin_mail(&mut self) -> Option<Verdict> {
        self.end_transaction();
        if self.context.stop.has_begun() {
            return Some(Verdict::Close(reply(421, "4.3.2 System shutting down")));
        }
        self.begin_transaction();
        match self.context.message_store.pressure() {
            Pressure::None | Pressure::Slow => {}
            Pressure::Full => return Some(self.refuse(Ruleset::Mail, Verdict::Refuse(full()))),
            Pressure::Poisoned => return Some(self.refuse(Ruleset::Mail, Verdict::Close(poisoned()))),
        }
        self.begin_routing();
        let screen = self.context.live.load().screen.clone();
        // A reload may have taken all filters away, of which this session still has some.
        let screen = screen.or_else(|| self.filters.as_ref().map(|_| Arc::default()));
        self.screening = TransactionScreen::begin(screen.as_ref(), self.has_filters());
        None
    }

    /// Asks the policies about the sender, where there are no maps.
    pub(super) fn admit_sender(&mut self) -> Verdict {
        let verdict = self.context.live.load().policies.sender(&self.facts()).verdict;
        self.refuse(Ruleset::Mail, verdict)
    }

    pub(super) fn admit_recipient(&mut self) -> Verdict {
        let Some(candidate) = self.session.candidate() else { return Verdict::Accept };
        let verdict = self.context.live.load().policies.recipient(&self.facts(), candidate).verdict;
        if self.screening.is_some() && verdict == Verdict::Accept {
            self.enter_scope(&candidate.clone(), None);
        }
        self.refuse(Ruleset::Rcpt, verdict)
    }

    /// Returns the facts that policies decide by.
    pub(super) fn facts(&self) -> Facts<'_> {
        let transaction = self.session.transaction();
        Facts {
            client: *self.session.client(),
            client_name: &self.opening.name,
            helo: self.session.helo(),
            identity: self.session.identity(),
            sender: transaction.map(|transaction| &transaction.sender),
            recipients: transaction.map_or(0, |transaction| transaction.recipients.len()),
            listings: &self.opening.listings,
        }
    }

    /// XCLIENT: the session speaks for another client from now on.
    pub(super) fn become_client(&mut self, now: Duration) {
        if let Some(xclient) = self.session.xclient() {
            match &xclient.name {
                Some(name) => {
                    let verified = |name: &str| ClientName::Verified(name.into());
                    self.opening.name = name.as_deref().map_or(ClientName::None, verified);
                }
                // The name that is known is the front end's.
                None if xclient.address.is_some() => self.opening.name = ClientName::Unknown,
                None => {}
            }
        }
        self.opening.listings = Listings::default();
        // The certificate is the front end's, and so are the rights that come of it.
        self.opening.shown = Arc::new(ClientCertificate::NotAsked);
        self.session.answer(Verdict::Accept, now);
        // The front end may be one of our own and speak for an outside client.
        if let Client::Network(address) = *self.session.client() {
            let is_own = self.context.live.load().rights.is_from(address.ip());
            self.session.trust_client(is_own);
        }
    }

    /// Lets the content come, with our trace line in front of it.
    pub(super) fn begin_message(&mut self, now: Duration) {
        if self.context.message_store.pressure() >= Pressure::Full {
            let verdict = self.refuse(Ruleset::Data, Verdict::Refuse(full()));
            return self.session.answer(verdict, now);
        }
        let id = self.transaction_id();
        let received = self.received();
        let mut trace = Vec::with_capacity(256);
        Trace {
            hostname: &self.session.settings().hostname,
            received: &received,
            client_name: self.opening.name(),
            tls: self.session.tls().map(|tls| (&*tls.version, &*tls.cipher)),
            id,
            only_recipient: match self.session.transaction().map(|transaction| transaction.recipients.as_slice()) {
                Some([only]) => Some(&only.address),
                _ => None,
            },
            priority: self.session.transaction().and_then(|transaction| transaction.params.mt_priority),
        }
        .write_to(&mut trace, clock::local_offset_seconds(received.at_us));
        self.content = TransactionContent::new(id);
        // Each message that the transaction becomes has the content for itself.
        let planned = self.plan.len();
        let contents = self.screening.as_ref().map_or(planned, |screening| screening.contents(planned));
        if let Some(screening) = &self.screening {
            screening.keep_beginning(self.filters.as_deref(), &mut self.content);
        }
        self.keep_reinjected();
        for _ in 1..contents {
            self.content.add(self.context.message_store.next_id());
        }
        self.begin_header_rewrite();
        self.begin_sender_check(trace.len());
        self.session.begin_content(&trace, now);
    }

    /// Gives a piece of a large message to the spool.
    pub(super) async fn store_content(&mut self) {
        let piece = self.session.take_content();
        let piece = self.rewrite_header(piece, false).await;
        if let Some(check) = &mut self.sender_check {
            check.push(&piece);
        }
        self.content.push(&self.context.message_store, &piece).await;
        self.keep_if_reinjected();
    }

    async fn authenticate(&mut self, question: Question) {
        let response = self.session.auth_response().map(|response| Zeroizing::new(response.to_vec()));
        let outcome = match (question, self.exchange.as_mut()) {
            (Question::AuthResponse, Some(exchange)) => {
                exchange.respond(response.as_ref().map(|response| response.as_slice()).unwrap_or_default()).await
            }
            _ => {
                let Some(authenticator) = self.context.live.load().authenticator.clone() else {
                    let refusal = Verdict::Refuse(reply(454, "4.7.0 Temporary authentication failure"));
                    return self.session.auth_failed(refusal, self.elapsed());
                };
                self.failures.get_or_insert_with(|| authenticator.failures());
                let context =
                    auth::ExchangeContext { is_encrypted: self.session.tls().is_some(), client: self.client_ip() };
                let exchange = self.exchange.insert(authenticator.exchange(context));
                exchange
                    .start(self.session.auth_mechanism(), response.as_ref().map(|response| response.as_slice()))
                    .await
            }
        };
        match outcome {
            Outcome::Challenge(challenge) => return self.session.auth_challenge(&challenge, self.elapsed()),
            Outcome::Success { identity } => {
                self.report_auth(&identity);
                self.auth_mechanism = self.session.auth_mechanism().into();
                self.session.auth_succeeded(&identity, self.elapsed());
            }
            Outcome::Failed(failure) => {
                self.report_auth_failure(&failure);
                let (verdict, pause) = match &mut self.failures {
                    Some(failures) => failures.verdict(&failure),
                    None => (Verdict::Refuse(reply(454, "4.7.0 Temporary authentication failure")), Duration::ZERO),
                };
                tokio::time::sleep(pause).await;
                self.session.auth_failed(verdict, self.elapsed());
            }
        }
        self.exchange = None;
    }

    /// Returns the address of the client; `None`: a process of this machine.
    pub(super) fn client_ip(&self) -> Option<IpAddr> {
        if let Client::Network(address) = self.session.client() { Some(address.ip().to_canonical()) } else { None }
    }

    /// Refuses a recipient when its login has had too many in the last hour.
    fn refuse_login(&mut self) -> Option<Verdict> {
        let user = self.session.identity()?;
        let max = self.context.live.load().config.auth.recipients_hour_max;
        let now = clock::now().saturating_duration_since(self.context.began);
        let Allowance::Over { count, is_first } = self.inbound.logins.ask(user, self.client_ip(), max, now) else {
            return None;
        };
        self.report_login_over(is_first.then_some(count), max);
        let refusal = reply(452, "4.7.1 Too many recipients of your login in an hour, try again later");
        Some(self.refuse(Ruleset::Rcpt, Verdict::Refuse(refusal)))
    }

    /// Answers RCPT; a recipient that is accepted counts for its login.
    pub(super) fn answer_recipient(&mut self, verdict: Verdict, now: Duration) {
        if let (Verdict::Accept | Verdict::AcceptWith(_), Some(user)) = (&verdict, self.session.identity()) {
            self.inbound.logins.count(user, clock::now().saturating_duration_since(self.context.began));
        }
        self.session.answer(verdict, now);
    }

    pub(super) fn received(&self) -> Received {
        Received {
            at_us: clock::unix_us(),
            client: *self.session.client(),
            helo: self.session.helo().cloned(),
            protocol: self.session.protocol(),
        }
    }
}

/// Returns a reply of ours; `text` begins with its enhanced code.
pub(super) fn reply(code: u16, text: &str) -> Reply {
    Reply::new(ReplyCode::of(code), None, text)
}

/// Returns the reply to VRFY or EXPN where there is nothing to ask.
pub(super) fn nothing_to_verify(question: Question) -> Reply {
    match question {
        Question::Expand => reply(502, "5.7.0 Sorry, we do not allow this operation"),
        _ => reply(252, "2.5.2 Cannot VRFY user; try RCPT to attempt delivery"),
    }
}

/// Returns the one reply that means the message is safe.
pub(super) fn accepted(id: &str) -> Reply {
    let mut text = String::with_capacity(64);
    text.push_str("2.0.0 ");
    text.push_str(id);
    text.push_str(" Message accepted for delivery");
    reply(250, &text)
}

/// `spool.size_max` is reached.
fn full() -> Reply {
    reply(452, "4.3.1 Insufficient system storage, try again later")
}

fn poisoned() -> Reply {
    reply(421, "4.3.0 Storage failure, closing connection")
}

/// Returns the reply to the client for a message that the spool did not store.
pub(super) fn not_stored(error: &Error) -> Verdict {
    match error {
        Error::Full | Error::Busy => Verdict::Refuse(full()),
        Error::Poisoned => Verdict::Close(poisoned()),
        Error::TooLarge { .. } => Verdict::Refuse(reply(552, "5.3.4 Message too large for this system")),
        Error::NoCopy => {
            Verdict::Refuse(reply(451, "4.3.0 No second copy of the message can be stored now, try again later"))
        }
        _ => Verdict::Refuse(reply(451, "4.3.0 Message could not be stored, try again later")),
    }
}
