//! AUTH: the lines of an exchange. The driver and the mechanism know the meaning of the lines.
//!
//! Responses hold passwords: they are wiped when they are replaced or the exchange is over, and so are lines that came
//! in pieces. Base64 is read and written here; the exchange ends by the driver's verdict, by `*`, or by a line that
//! cannot be read.

use std::time::Duration;

use mail::base64;
use zeroize::Zeroizing;

use super::phase::{AuthExchange, PendingQuestion, Phase};
use super::replies::Refusal;
use super::session::{Session, check_class};
use super::{Note, Question, Step, Verdict};

impl Session {
    /// The mechanism of the exchange as it is written in the settings; empty when there is none.
    #[must_use]
    pub fn auth_mechanism(&self) -> &str {
        self.exchange.as_ref().map_or("", |exchange| &exchange.mechanism)
    }

    /// The client's response, decoded. `None` at [`Question::Auth`] when it gave no initial one.
    #[must_use]
    pub fn auth_response(&self) -> Option<&[u8]> {
        self.exchange.as_ref().and_then(|exchange| exchange.response.as_ref()).map(|response| response.as_slice())
    }

    /// Answers Auth and AuthResponse: the exchange goes on. Data that the mechanism sends with success is a last
    /// challenge; the client answers it with an empty response.
    ///
    /// # Panics
    /// When neither is asked.
    // RFC 4954 §4: server challenges are 334 and base64; success data are a challenge with an empty response
    pub fn auth_challenge(&mut self, challenge: &[u8], now: Duration) {
        self.take_auth("auth_challenge", now);
        let mut line = b"334 ".to_vec();
        line.extend(base64::encode(challenge));
        line.extend_from_slice(b"\r\n");
        self.push_octets(&line);
        self.phase = Phase::AuthLine;
    }

    /// Answers Auth and AuthResponse: the client is `identity`.
    ///
    /// # Panics
    /// When neither is asked.
    pub fn auth_succeeded(&mut self, identity: &str, now: Duration) {
        self.take_auth("auth_succeeded", now);
        self.exchange = None;
        self.identity = Some(identity.into());
        self.client_refusal = None;
        self.push_octets(b"235 2.7.0 Authentication successful\r\n");
    }

    /// Answers Auth and AuthResponse: not so.
    ///
    /// # Panics
    /// When neither is asked, and when the verdict is no refusal.
    pub fn auth_failed(&mut self, verdict: Verdict, now: Duration) {
        self.take_auth("auth_failed", now);
        check_class(&verdict);
        // No note: the driver knows why.
        self.exchange = None;
        assert!(
            matches!(verdict, Verdict::Refuse(_) | Verdict::Close(_)),
            "auth_failed() with {verdict:?}, which is no refusal"
        );
        self.push_refusal(verdict);
    }

    fn take_auth(&mut self, call: &str, now: Duration) {
        self.times.wait_from(now);
        let asked = self.take_question();
        assert!(matches!(asked, PendingQuestion::Auth), "{call}() when {asked:?} is asked");
    }

    /// The exchange, if there is one, ends without the driver.
    pub(super) fn fail_exchange(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.note(Note::AuthFailed { mechanism: exchange.mechanism });
        }
    }

    /// AUTH is offered on the connection as it is.
    pub(super) fn offers_auth(&self) -> bool {
        let auth = &self.settings.auth;
        !auth.mechanisms.is_empty() && (auth.without_tls || self.tls.is_some())
    }

    /// How long the line may be that begins with `input`: an initial response may be as long as any response.
    // RFC 4954 §4.1: the line limit applies to the AUTH command too
    pub(super) fn auth_command_max(&self, input: &[u8]) -> usize {
        let is_auth = self.offers_auth() && self.lines.begins_with(b"AUTH ", input);
        if is_auth { self.settings.limits.auth_line_bytes } else { 0 }
    }

    // RFC 4954 §4
    pub(super) fn begin_auth(&mut self, mechanism: &[u8], initial: Option<&[u8]>) -> Option<Step> {
        let offer = &self.settings.auth.mechanisms;
        let known = offer.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(mechanism));
        let refusal = if offer.is_empty() {
            Refusal::NotImplemented
        } else if !self.offers_auth() {
            Refusal::AuthNeedsTls
        } else if !self.is_forgiving() && self.hello.as_ref().is_none_or(|hello| !hello.extended) {
            Refusal::HeloFirst
        } else if self.identity.is_some() {
            Refusal::AuthTwice
        } else if self.open.is_some() {
            Refusal::DuringTransaction("AUTH")
        } else if let Some(mechanism) = known.cloned() {
            let response = match initial {
                None => None,
                // RFC 4954 §4: "=" is an initial response of no octets
                Some(b"=") => Some(Zeroizing::default()),
                Some(text) => match base64::decode(text) {
                    Some(response) => Some(Zeroizing::new(response)),
                    None => {
                        self.refuse(b"AUTH", &Refusal::AuthCoding);
                        return None;
                    }
                },
            };
            self.exchange = Some(AuthExchange { mechanism, response });
            return self.ask(PendingQuestion::Auth, Question::Auth);
        } else {
            Refusal::AuthMechanism
        };
        self.refuse(b"AUTH", &refusal);
        None
    }

    /// A line within the exchange. It is a secret: no note has it.
    pub(super) fn auth_line(&mut self, line: &[u8]) -> Option<Step> {
        self.phase = Phase::Command;
        // RFC 4954 §4: "*" cancels; a line that cannot be decoded is refused with 501
        let decoded =
            if line == b"*" { Err(Refusal::AuthCancelled) } else { base64::decode(line).ok_or(Refusal::AuthCoding) };
        match decoded {
            Ok(response) => {
                if let Some(exchange) = &mut self.exchange {
                    exchange.response = Some(Zeroizing::new(response));
                }
                self.ask(PendingQuestion::Auth, Question::AuthResponse)
            }
            Err(refusal) => {
                self.fail_exchange();
                self.refuse(line, &refusal);
                None
            }
        }
    }
}
