//! The messages of PLAIN, LOGIN and SCRAM-SHA-256, without checking anything: a machine that asks its driver.
//!
//! Pure: the driver brings the answers about passwords and keys, and the random nonce. Success comes only out of a
//! driver's yes or of a proof that fits the keys.

use super::scram::{Expected, First, Keys};
use super::{AuthFailure, FailureKind, prepare};
use zeroize::Zeroizing;

/// The mechanisms, as they are offered: the strongest first.
pub(super) const MECHANISMS: [&str; 3] = ["SCRAM-SHA-256", "PLAIN", "LOGIN"];

/// Characters of an invalid user name, for the log.
const NAME_CHARS_MAX: usize = 255;

/// The next step of the driver. No `Debug`: it may hold a password.
pub(super) enum DialogStep {
    /// Send this and come back with the response.
    Challenge(Vec<u8>),
    /// Check the password; the answer is the end of the exchange.
    Check { user: String, password: Zeroizing<String> },
    /// Find the SCRAM keys of the user, or a stand-in, and call [`Dialog::keys`].
    Keys(First),
    /// The exchange has proved this user.
    Success(String),
    /// The exchange is over.
    Failed(AuthFailure),
}

/// One exchange.
#[derive(Debug, Default)]
pub(super) struct Dialog {
    state: DialogState,
    /// The user name that the client claims, once it has sent one.
    user: Option<String>,
}

#[derive(Debug, Default)]
enum DialogState {
    #[default]
    Start,
    Plain,
    LoginUser,
    LoginPassword(String),
    ScramFirst,
    ScramFinal(String, Box<Expected>),
    /// The server has sent its proof; the client must confirm it.
    ScramEnd(String),
    /// An answer of the driver is awaited, or it is over.
    Over,
}

impl Dialog {
    /// Returns the user name that the client claims, prepared if that is possible; `None`: it has not sent one.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Remembers the user name that the client claims.
    fn named(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        self.user = Some(prepare::user(&name).unwrap_or_else(|| name.chars().take(NAME_CHARS_MAX).collect()));
    }

    /// Starts `mechanism` (in any case) with the initial response, if there is one.
    // RFC 4954 §4
    pub(super) fn start(&mut self, mechanism: &str, initial: Option<&[u8]>) -> DialogStep {
        if !matches!(self.state, DialogState::Start) {
            return self.over();
        }
        let is = |name: &str| mechanism.eq_ignore_ascii_case(name);
        let (state, challenge) = match () {
            () if is("PLAIN") => (DialogState::Plain, ""),
            () if is("LOGIN") => (DialogState::LoginUser, "Username:"),
            () if is("SCRAM-SHA-256") => (DialogState::ScramFirst, ""),
            () => return self.fail(FailureKind::Mechanism, "unknown mechanism"),
        };
        self.state = state;
        match initial {
            Some(initial) => self.respond(initial),
            None => DialogStep::Challenge(challenge.into()),
        }
    }

    /// Takes the client's response to the last challenge.
    pub(super) fn respond(&mut self, response: &[u8]) -> DialogStep {
        match std::mem::replace(&mut self.state, DialogState::Over) {
            DialogState::Plain => {
                // RFC 4616 §2: authorization NUL user NUL password
                if let Some(name) = response.split(|byte| *byte == 0).nth(1) {
                    self.named(name);
                }
                plain(response).unwrap_or_else(|why| self.fail(FailureKind::Malformed, why))
            }
            DialogState::LoginUser => {
                self.named(response);
                match text(response).and_then(|user| prepare::user(user).ok_or(prepare::BAD_USER)) {
                    Ok(user) => {
                        self.state = DialogState::LoginPassword(user);
                        DialogStep::Challenge(b"Password:".to_vec())
                    }
                    Err(why) => self.fail(FailureKind::Credentials, why),
                }
            }
            DialogState::LoginPassword(user) => match text(response).map(prepare::password) {
                Ok(Some(password)) => DialogStep::Check { user, password },
                Ok(None) => self.fail(FailureKind::Credentials, prepare::BAD_PASSWORD),
                Err(why) => self.fail(FailureKind::Credentials, why),
            },
            DialogState::ScramFirst => match First::parse(response) {
                Ok(first) => {
                    self.user = Some(first.user.clone());
                    DialogStep::Keys(first)
                }
                Err(why) => {
                    if let Some(name) = First::name_in(response) {
                        self.named(name.as_bytes());
                    }
                    self.fail(FailureKind::Malformed, why)
                }
            },
            DialogState::ScramFinal(user, expected) => match expected.judge(response) {
                Ok(message) => {
                    self.state = DialogState::ScramEnd(user);
                    DialogStep::Challenge(message)
                }
                Err(why) => self.fail(FailureKind::Credentials, why),
            },
            // RFC 4954 §4: additional data with success goes as a challenge, and the response to it is empty
            DialogState::ScramEnd(user) if response.is_empty() => DialogStep::Success(user),
            DialogState::ScramEnd(_) => {
                self.fail(FailureKind::Malformed, "SCRAM: more than an empty response at the end")
            }
            DialogState::Start | DialogState::Over => self.over(),
        }
    }

    /// Goes on with the keys for [`DialogStep::Keys`] and a fresh nonce.
    pub(super) fn keys(&mut self, first: First, keys: Keys, nonce: &str) -> DialogStep {
        let user = first.user.clone();
        let (expected, message) = first.answer(keys, nonce);
        self.state = DialogState::ScramFinal(user, Box::new(expected));
        DialogStep::Challenge(message)
    }

    fn over(&mut self) -> DialogStep {
        self.fail(FailureKind::Malformed, "a response without a challenge")
    }

    fn fail(&mut self, kind: FailureKind, why: &str) -> DialogStep {
        self.state = DialogState::Over;
        DialogStep::Failed(AuthFailure { kind, why: why.into() })
    }
}

/// Reads `[authorization] NUL user NUL password`.
// RFC 4616 §2
fn plain(response: &[u8]) -> Result<DialogStep, &'static str> {
    let mut parts = response.split(|byte| *byte == 0);
    let (Some(authorization), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("PLAIN: not authorization NUL user NUL password");
    };
    let refused = |why: &str| Ok(DialogStep::Failed(AuthFailure { kind: FailureKind::Credentials, why: why.into() }));
    let Some(user) = prepare::user(text(user)?) else { return refused(prepare::BAD_USER) };
    // RFC 4616 §2 (gap: a user may not act as another user)
    if !authorization.is_empty() && prepare::user(text(authorization)?).as_ref() != Some(&user) {
        return refused("authorization identity differs from the user");
    }
    let Some(password) = prepare::password(text(password)?) else { return refused(prepare::BAD_PASSWORD) };
    Ok(DialogStep::Check { user, password })
}

fn text(response: &[u8]) -> Result<&str, &'static str> {
    str::from_utf8(response).map_err(|_| "the response is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(mechanism: &str, initial: Option<&[u8]>) -> (Dialog, DialogStep) {
        let mut dialog = Dialog::default();
        let next = dialog.start(mechanism, initial);
        (dialog, next)
    }

    fn asks(next: &DialogStep) -> String {
        match next {
            DialogStep::Challenge(challenge) => format!("challenge {}", challenge.escape_ascii()),
            DialogStep::Check { user, password } => format!("check {user} {}", password.as_str()),
            DialogStep::Keys(first) => format!("keys {}", first.user),
            DialogStep::Success(user) => format!("success {user}"),
            DialogStep::Failed(failure) => format!("{:?}: {}", failure.kind, failure.why),
        }
    }

    // RFC 4616 §2 (test)
    #[test]
    fn plain() {
        for (response, expected) in [
            (&b"\0tim\0tanstaaftanstaaf"[..], "check tim tanstaaftanstaaf"),
            (b"tim\0tim\0x", "check tim x"),
            (b"Ursel\0Kurt\0xipj3plmq", "Credentials: authorization identity differs from the user"),
            (b"\0\0x", "Credentials: the user name"),
            (b"\0tim\0", "Credentials: the password"),
            (b"\0tim\0a\nb", "Credentials: the password"),
            (b"\0tim", "Malformed: PLAIN"),
            (b"\0tim\0x\0", "Malformed: PLAIN"),
            (b"", "Malformed: PLAIN"),
            (b"\0tim\0\xff", "Malformed: the response is not UTF-8"),
        ] {
            assert!(asks(&start("plain", Some(response)).1).starts_with(expected), "{}", response.escape_ascii());
        }
        let (mut dialog, next) = start("PLAIN", None);
        assert_eq!(asks(&next), "challenge ");
        assert_eq!(asks(&dialog.respond(b"\0tim\0x")), "check tim x");
    }

    #[test]
    fn login_with_and_without_a_first_response() {
        let (mut dialog, next) = start("LOGIN", None);
        assert_eq!(asks(&next), "challenge Username:");
        assert_eq!(asks(&dialog.respond(b"tim")), "challenge Password:");
        assert_eq!(asks(&dialog.respond(b"secret")), "check tim secret");
        let (mut dialog, next) = start("Login", Some(b"tim"));
        assert_eq!(asks(&next), "challenge Password:");
        assert!(asks(&dialog.respond(b"\xff")).starts_with("Credentials: the response is not UTF-8"));
    }

    #[test]
    fn nothing_goes_on_after_the_end() {
        let (mut dialog, _) = start("PLAIN", Some(b""));
        assert!(asks(&dialog.respond(b"\0tim\0x")).starts_with("Malformed: a response without"));
        let (mut dialog, _) = start("PLAIN", Some(b"\0tim\0x"));
        assert!(asks(&dialog.respond(b"\0tim\0x")).starts_with("Malformed: a response without"));
        assert!(asks(&dialog.start("PLAIN", None)).starts_with("Malformed: a response without"));
        assert!(asks(&Dialog::default().respond(b"")).starts_with("Malformed: a response without"));
        assert_eq!(asks(&start("SCRAM-SHA-256-PLUS", None).1), "Mechanism: unknown mechanism");
    }

    // RFC 7677 §3 (test)
    #[test]
    fn scram_ends_with_an_empty_response() {
        for (end, expected) in [(&b""[..], "success user"), (b"x", "Malformed: SCRAM")] {
            let salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81".to_vec();
            let keys = Keys::derive("pencil", salt, std::num::NonZeroU32::new(4096).unwrap());
            let (mut dialog, next) = start("SCRAM-SHA-256", Some(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"));
            let DialogStep::Keys(first) = next else { panic!("{}", asks(&next)) };
            let next = dialog.keys(first, keys, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
            assert!(asks(&next).starts_with("challenge r=rOprNGfwEbeRWgbNEkqO%hv"));
            let next = dialog.respond(
                b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            );
            assert_eq!(asks(&next), "challenge v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
            assert!(asks(&dialog.respond(end)).starts_with(expected));
        }
    }
}
