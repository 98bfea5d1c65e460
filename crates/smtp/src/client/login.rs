//! Logging in at a server: which mechanism is used, and what follows when one does not lead to a login.
//!
//! Each mechanism that both sides have is tried once in a session, in the order of the settings, until the server takes
//! one. A password that the other side can read crosses only a connection of the security that the settings demand. No
//! value here shows its password in `Debug`, and each wipes it from memory when it is dropped.
//!
//! Not here: what the mechanisms say (`mechanism`), what is tried over the next connection (the driver).

use std::fmt;

use mail::{Reply, ReplyClass};
use zeroize::Zeroizing;

use super::mechanism::{Exchange, Mechanism};
use super::offers::Mechanisms;
use super::replies::Raw;
use super::session::{DISMISSAL, Phase, Session};
use super::step::{Closing, Loss, Stage};

/// Why no password is sent over TLS.
pub const UNVERIFIED: &str = "the certificate is not verified, so no password is sent";

/// Why there is no login where each mechanism that was offered is unknown, not allowed, or used.
const NONE_LEFT: &str = "no mechanism of AUTH is offered that is allowed here";

/// How well a connection is protected, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Security {
    /// Clear text.
    #[default]
    Clear,
    /// TLS with a server that may be anybody.
    Encrypted,
    /// TLS with a certificate that a trusted authority has signed for this server.
    Verified,
}

/// As whom to log in.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Whose password it is.
    pub user: Box<str>,
    /// For whom, if that is somebody else; only PLAIN can say it.
    pub on_behalf_of: Option<Box<str>>,
    /// The password.
    pub password: Zeroizing<Box<[u8]>>,
    /// Which are tried, in their order.
    pub mechanisms: Vec<Mechanism>,
    /// What a connection must be at least before the password is said over it.
    pub password_needs: Security,
    /// A server that does not offer AUTH at all gets no mail.
    pub is_required: bool,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).field("mechanisms", &self.mechanisms).finish_non_exhaustive()
    }
}

/// A mechanism that led to no login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedMechanism {
    /// Which one.
    pub mechanism: Mechanism,
    /// What the server said.
    pub reply: Reply,
}

impl FailedMechanism {
    /// Whether the server has the mechanism not at all, so that the reply says nothing of the password.
    // RFC 5321 §4.2.4, RFC 4954 §4: 500 to 504 are about the command
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.reply.code().get(), 500..=504)
    }
}

/// Why there is no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoLogin {
    /// None is needed where none is offered.
    NotNeeded,
    /// The session ends; why, for the log.
    Impossible(&'static str),
}

impl Login {
    /// The mechanism to use next, without those that `is_used` names.
    fn choose(
        &self,
        offered: Mechanisms,
        security: Security,
        is_used: impl Fn(Mechanism) -> bool,
    ) -> Result<Mechanism, NoLogin> {
        if offered.is_none() {
            return Err(match self.is_required {
                true => NoLogin::Impossible("AUTH is not offered"),
                false => NoLogin::NotNeeded,
            });
        }
        let mut shared = self.mechanisms.iter().copied().filter(|one| offered.has(*one) && !is_used(*one)).peekable();
        if shared.peek().is_none() {
            return Err(NoLogin::Impossible(NONE_LEFT));
        }
        let is_safe = |one: &Mechanism| security >= self.password_needs || !one.shows_password();
        shared.find(is_safe).ok_or(NoLogin::Impossible(match security {
            Security::Clear => "without TLS no password is sent",
            _ => UNVERIFIED,
        }))
    }
}

impl Session {
    /// The mechanisms that led to no login in this session, in the order in which they were tried.
    #[must_use]
    pub fn failed_mechanisms(&self) -> &[FailedMechanism] {
        &self.failed_mechanisms
    }

    /// The mechanism of AUTH that the server has not answered for good.
    #[must_use]
    pub fn mechanism_in_use(&self) -> Option<Mechanism> {
        self.exchange.as_ref().map(Exchange::mechanism)
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

    /// Says AUTH, if somebody is to log in.
    pub(super) fn log_in(&mut self) {
        let Some(login) = self.settings.login.clone() else { return self.go_up() };
        match login.choose(self.offers.mechanisms, self.security, |one| self.has_refused(one)) {
            Ok(mechanism) => {
                let (exchange, command) = Exchange::begin(&login, mechanism);
                self.out.secret(command.as_bytes());
                self.exchange = Some(exchange);
                self.phase = Phase::Login;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::mechanism::tests::login;

    #[test]
    fn a_password_goes_over_connections_that_are_good_enough() {
        let offered = |plain, cram_md5| Mechanisms { plain, login: false, cram_md5 };
        let choose = |login: &Login, offered, security| login.choose(offered, security, |_| false);
        let login = login();
        assert_eq!(choose(&login, offered(true, true), Security::Verified), Ok(Mechanism::Plain));
        for weak in [Security::Clear, Security::Encrypted] {
            assert_eq!(choose(&login, offered(true, true), weak), Ok(Mechanism::CramMd5));
            assert!(matches!(choose(&login, offered(true, false), weak), Err(NoLogin::Impossible(_))));
        }
        let unverified = Login { password_needs: Security::Encrypted, ..login.clone() };
        assert_eq!(choose(&unverified, offered(true, false), Security::Encrypted), Ok(Mechanism::Plain));
        assert!(matches!(choose(&unverified, offered(true, false), Security::Clear), Err(NoLogin::Impossible(_))));
        let open = Login { password_needs: Security::Clear, ..login.clone() };
        assert_eq!(choose(&open, offered(true, false), Security::Clear), Ok(Mechanism::Plain));
        let none = Mechanisms::default();
        assert!(matches!(choose(&login, none, Security::Verified), Err(NoLogin::Impossible(_))));
        let easy = Login { is_required: false, ..login };
        assert_eq!(choose(&easy, none, Security::Verified), Err(NoLogin::NotNeeded));
        assert!(!format!("{easy:?}").contains("tanstaaf"));
    }

    #[test]
    fn each_mechanism_is_chosen_once() {
        let (login, offered) = (login(), Mechanisms { plain: true, login: true, cram_md5: true });
        let mut so_far = Vec::new();
        while let Ok(mechanism) = login.choose(offered, Security::Verified, |one| so_far.contains(&one)) {
            so_far.push(mechanism);
            assert!(so_far.len() <= Mechanism::ALL.len());
        }
        assert_eq!(so_far, Mechanism::ALL);
        // After CRAM-MD5 no password goes in clear.
        let left = login.choose(offered, Security::Clear, |one| one == Mechanism::CramMd5);
        assert!(matches!(left, Err(NoLogin::Impossible(_))));
    }
}
