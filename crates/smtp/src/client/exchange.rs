//! The dialog of a mechanism of AUTH: the words of the client in PLAIN, LOGIN and CRAM-MD5.
//!
//! Not here: which mechanism is used when (`login`, `authentication`).

use mail::base64;
use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

use super::login::Login;
use super::mechanism::Mechanism;

/// The longest command with an answer in it; a longer answer follows the server's 334.
// RFC 4954 §4: the command obeys the limit of command lines
const COMMAND_OCTETS_MAX: usize = 510;

/// A dialog with the server.
#[derive(Debug)]
pub(super) struct LoginExchange {
    mechanism: Mechanism,
    /// Answers that were given.
    answers: u8,
    /// The client has cancelled the dialog and waits for the reply to that.
    pub(super) is_cancelled: bool,
}

impl LoginExchange {
    /// The mechanism that is used.
    pub(super) const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Begins the dialog. Returns the command without its line end.
    pub(super) fn begin(login: &Login, mechanism: Mechanism) -> (Self, Zeroizing<String>) {
        let mut exchange = Self { mechanism, answers: 0, is_cancelled: false };
        // With room for all of it, so that no copy is left behind.
        let mut command = Zeroizing::new(String::with_capacity(COMMAND_OCTETS_MAX));
        command.push_str("AUTH ");
        command.push_str(mechanism.as_str());
        if mechanism == Mechanism::Plain {
            let answer = coded(&plain(login));
            if command.len() + 1 + answer.len() <= COMMAND_OCTETS_MAX {
                command.push(' ');
                command.push_str(&answer);
                exchange.answers = 1;
            }
        }
        (exchange, command)
    }

    /// Returns the answer to a challenge, in base64; `None`: the mechanism has no answer to it.
    pub(super) fn answer(&mut self, login: &Login, challenge: &[u8]) -> Option<Zeroizing<String>> {
        self.answers += 1;
        match (self.mechanism, self.answers) {
            (Mechanism::Plain, 1) => Some(coded(&plain(login))),
            // Servers word the two questions as they like.
            (Mechanism::Login, 1) => Some(coded(login.user.as_bytes())),
            (Mechanism::Login, 2) => Some(coded(&login.password)),
            // RFC 2195 §2: the name, a blank, and the digest in lower-case hexadecimal
            (Mechanism::CramMd5, 1) => {
                let challenge = base64::decode(challenge.trim_ascii())?;
                let mut answer = format!("{} ", login.user);
                for octet in hmac_md5(&login.password, &challenge) {
                    answer.push_str(&format!("{octet:02x}"));
                }
                Some(coded(answer.as_bytes()))
            }
            _ => None,
        }
    }
}

// RFC 4616 §2: user to act for, user, password
fn plain(login: &Login) -> Zeroizing<Vec<u8>> {
    let on_behalf_of = login.on_behalf_of.as_deref().unwrap_or_default();
    [on_behalf_of.as_bytes(), b"\0", login.user.as_bytes(), b"\0", &login.password].concat().into()
}

fn coded(octets: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(octets.len().div_ceil(3) * 4));
    text.extend(base64::encode(octets).map(char::from));
    text
}

// RFC 2104 §2
fn hmac_md5(key: &[u8], text: &[u8]) -> [u8; 16] {
    let mut block = Zeroizing::new([0_u8; 64]);
    let hashed: Zeroizing<[u8; 16]>;
    let key = if key.len() > block.len() {
        hashed = Zeroizing::new(Md5::digest(key).into());
        &hashed[..]
    } else {
        key
    };
    block.iter_mut().zip(key).for_each(|(octet, key)| *octet = *key);
    let inner = Md5::new().chain_update(*Zeroizing::new(block.map(|octet| octet ^ 0x36))).chain_update(text).finalize();
    Md5::new().chain_update(*Zeroizing::new(block.map(|octet| octet ^ 0x5c))).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Security;

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

    // RFC 2195 §2 (test), RFC 2104 §2 (test)
    #[test]
    fn cram_md5_is_as_the_rfc_has_it() {
        let (mut exchange, command) = LoginExchange::begin(&login(), Mechanism::CramMd5);
        assert_eq!(*command, "AUTH CRAM-MD5");
        let challenge = b"PDE4OTYuNjk3MTcwOTUyQHBvc3RvZmZpY2UucmVzdG9uLm1jaS5uZXQ+";
        let answer = exchange.answer(&login(), challenge);
        assert_eq!(answer.as_deref().map(String::as_str), Some("dGltIGI5MTNhNjAyYzdlZGE3YTQ5NWI0ZTZlNzMzNGQzODkw"));
        assert_eq!(exchange.answer(&login(), challenge), None);
        let hex: String = hmac_md5(&[0xaa; 80], b"Test Using Larger Than Block-Size Key - Hash Key First")
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect();
        assert_eq!(hex, "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd");
    }

    // RFC 4616 §4 (test), RFC 4954 §4 (test)
    #[test]
    fn plain_goes_with_the_command_where_it_fits() {
        let mut login =
            Login { on_behalf_of: Some("Ursel".into()), password: Box::<[u8]>::from(*b"xipj3plmq").into(), ..login() };
        login.user = "Kurt".into();
        let (_, command) = LoginExchange::begin(&login, Mechanism::Plain);
        assert_eq!(*command, format!("AUTH PLAIN {}", *coded(b"Ursel\0Kurt\0xipj3plmq")));
        login.password = vec![b'x'; 500].into_boxed_slice().into();
        let (mut exchange, command) = LoginExchange::begin(&login, Mechanism::Plain);
        assert_eq!(*command, "AUTH PLAIN");
        assert_eq!(exchange.answer(&login, b"").map(|answer| answer.len()), Some(684));
    }
}
