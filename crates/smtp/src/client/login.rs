//! Logging in at a server: the choice of a mechanism, and the effect of one that does not lead to a login.
//!
//! Each mechanism that both sides have is tried once in a session, in the order of the settings, until the server takes
//! one. A password that the other side can read crosses only a connection of the security that the settings demand. No
//! value here shows its password in `Debug`, and each wipes it from memory when it is dropped.
//!
//! Not here: the words of a mechanism (`exchange`), the replies of the server (`authentication`), the mechanisms that
//! the next connection tries (the driver).

use std::fmt;

use mail::Reply;
use zeroize::Zeroizing;

use super::mechanism::{Mechanism, Mechanisms};

/// Why no password is sent over TLS.
pub const UNVERIFIED: &str = "the certificate is not verified, so no password is sent";

/// Why there is no login where each mechanism that was offered is unknown, not allowed, or used.
pub(super) const NONE_LEFT: &str = "no mechanism of AUTH is offered that is allowed here";

/// How well a connection is protected, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Security {
    /// Clear text.
    #[default]
    Clear,
    /// TLS with a server whose identity was not verified.
    Encrypted,
    /// TLS with a certificate that a trusted authority has signed for this server.
    Verified,
}

/// The login at a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user with this password.
    pub user: Box<str>,
    /// The user to act for, if that is another one; only PLAIN can name it.
    pub on_behalf_of: Option<Box<str>>,
    /// The password.
    pub password: Zeroizing<Box<[u8]>>,
    /// The mechanisms to try, in this order.
    pub mechanisms: Vec<Mechanism>,
    /// The least security of a connection over which the password is said.
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
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The reply of the server.
    pub reply: Reply,
}

impl FailedMechanism {
    /// Returns whether the server does not know the mechanism; then its reply says nothing about the password.
    // RFC 5321 §4.2.4, RFC 4954 §4: 500 to 504 are about the command
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.reply.code().get(), 500..=504)
    }
}

/// Why there is no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoLogin {
    /// The server offers no AUTH, and the login is not required.
    NotNeeded,
    /// The session ends, for this reason.
    Impossible(&'static str),
}

impl Login {
    /// Chooses the next mechanism, without those for which `is_used` is true.
    pub(super) fn choose(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login {
            user: "tim".into(),
            on_behalf_of: None,
            password: Box::<[u8]>::from(*b"tanstaaftanstaaf").into(),
            mechanisms: Mechanism::ALL.to_vec(),
            password_needs: Security::Verified,
            is_required: true,
        }
    }

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
