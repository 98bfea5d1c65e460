//! Logging in: AUTH is said with one mechanism after the other, until the server takes one or none is left.
//!
//! Not here: the choice (`login`), the words of a mechanism (`exchange`).

use mail::{Reply, ReplyClass};

use super::exchange::LoginExchange;
use super::login::{FailedMechanism, NONE_LEFT, NoLogin};
use super::mechanism::Mechanism;
use super::replies::Raw;
use super::session::{ClientPhase, ClientSession, DISMISSAL};
use super::step::{Closing, Loss, Stage};

impl ClientSession {
    /// The mechanisms that led to no login in this session, in the order in which they were tried.
    #[must_use]
    pub fn failed_mechanisms(&self) -> &[FailedMechanism] {
        &self.failed_mechanisms
    }

    /// The mechanism of AUTH that the server has not answered for good.
    #[must_use]
    pub fn mechanism_in_use(&self) -> Option<Mechanism> {
        self.exchange.as_ref().map(LoginExchange::mechanism)
    }

    /// Whether a mechanism is left that was neither refused nor is in use.
    #[must_use]
    pub fn has_mechanism_left(&self) -> bool {
        let is_used = |one| self.has_refused(one) || self.mechanism_in_use() == Some(one);
        let login = self.settings.login.as_ref();
        login.is_some_and(|login| login.choose(self.offers.mechanisms, self.security, is_used).is_ok())
    }

    fn has_refused(&self, mechanism: Mechanism) -> bool {
        self.failed_mechanisms.iter().any(|failed| failed.mechanism == mechanism)
    }

    /// Sends AUTH, if the settings have a login.
    pub(super) fn log_in(&mut self) {
        let Some(login) = self.settings.login.clone() else { return self.go_up() };
        match login.choose(self.offers.mechanisms, self.security, |one| self.has_refused(one)) {
            Ok(mechanism) => {
                let (exchange, command) = LoginExchange::begin(&login, mechanism);
                self.out.secret(command.as_bytes());
                self.exchange = Some(exchange);
                self.phase = ClientPhase::Login;
            }
            Err(NoLogin::NotNeeded) => self.go_up(),
            Err(NoLogin::Impossible(why)) => {
                let reply = self.telling_refusal().cloned();
                let loss = (reply.is_none() || why != NONE_LEFT).then_some(Loss::Protocol(why));
                self.leave(Closing { stage: Stage::Auth, reply, loss, orderly: false });
            }
        }
    }

    /// The refusal that says most of why there is no login: one that is about the password, or else the last.
    fn telling_refusal(&self) -> Option<&Reply> {
        let failed = &self.failed_mechanisms;
        failed.iter().find(|one| !one.is_unknown()).or_else(|| failed.last()).map(|one| &one.reply)
    }

    // RFC 4954 §4: 334 asks for more, 235 is the end of it
    pub(super) fn take_login(&mut self, raw: &Raw<'_>) {
        match raw.code.class() {
            ReplyClass::Success => {
                self.exchange = None;
                self.go_up();
            }
            ReplyClass::Intermediate => self.answer_challenge(raw),
            _ if raw.code.get() == DISMISSAL => self.refused(Stage::Auth, raw),
            // RFC 4954 §4: after a refusal the client may try another mechanism
            _ => {
                let Some(exchange) = self.exchange.take() else { return self.refused(Stage::Auth, raw) };
                self.failed_mechanisms.push(FailedMechanism { mechanism: exchange.mechanism(), reply: raw.reply() });
                self.log_in();
            }
        }
    }

    fn answer_challenge(&mut self, raw: &Raw<'_>) {
        let challenge = raw.lines().next().unwrap_or_default();
        let login = self.settings.login.as_ref();
        match login.zip(self.exchange.as_mut()) {
            Some((login, exchange)) if !exchange.is_cancelled => match exchange.answer(login, challenge) {
                Some(answer) => self.out.secret(answer.as_bytes()),
                // RFC 4954 §4: the client cancels by a line with a single "*", which the server rejects by 501
                None => {
                    exchange.is_cancelled = true;
                    self.out.text(b"*\r\n");
                }
            },
            _ => self.lose(Loss::Protocol("the server asks for more than the mechanism of AUTH has")),
        }
    }
}
