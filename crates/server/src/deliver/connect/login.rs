//! A login at a next hop: the mechanisms that one connection tries, those that are left for the next, and what is
//! remembered of those that do not work.
//!
//! A session tries each mechanism once. Where the host ends the connection over one, another connection tries those that
//! are left. A mechanism is remembered as broken (`AvoidedExtensions`) only where that says nothing of the password:
//! another one led to a login, or the host answered that it does not know this one. It is then tried behind the others
//! and never left out, so nothing here can make a login impossible.
//!
//! Not here: the dialog of a mechanism (`smtp::client`), whose password it is (`peer`).

use super::tls::{Greeted, Unready};
use super::{ConnectError, Opening};
use crate::deliver::Candidate;
use crate::deliver::extensions::{self, BrokenExtensions};
use crate::deliver::link::Link;
use crate::deliver::peer::Peer;
use crate::session::{Transport, Wait};
use schedule::AvoidedExtensions;
use smtp::client::{Closing, Login, Loss, Mechanism, Session, UNVERIFIED};
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

/// A mechanism that led to no login.
#[derive(Clone, Debug)]
struct TriedMechanism {
    mechanism: Mechanism,
    /// The reply, or that there was none.
    why: String,
    /// The host does not know the mechanism, whatever the password is.
    is_unknown: bool,
    /// The host ended the connection instead of an answer: it may have failed for another reason.
    is_cut: bool,
}

impl TriedMechanism {
    /// Those that a session tried in vain.
    fn all(session: &Session) -> Vec<Self> {
        let failed = session.failed_mechanisms().iter();
        let tried = failed.map(|failed| Self {
            mechanism: failed.mechanism,
            why: failed.reply.to_string(),
            is_unknown: failed.is_unknown(),
            is_cut: false,
        });
        tried.collect()
    }
}

/// Why there is no login over one connection.
pub(super) struct LoginFailure {
    pub(super) trouble: ConnectError,
    /// Why a mechanism that is left was not tried.
    note: String,
    tried: Vec<TriedMechanism>,
    /// The host ended the connection while mechanisms were left.
    may_go_on: bool,
}

impl LoginFailure {
    /// Reads a session that ended at AUTH.
    pub(super) fn of(link: &Link, closing: &Closing, trouble: ConnectError) -> Self {
        let session = &link.session;
        let mut tried = TriedMechanism::all(session);
        let is_closed = closing.reply.is_none() && closing.loss == Some(Loss::Closed);
        let is_over = is_closed || closing.reply.as_ref().is_some_and(|reply| reply.code().get() == 421);
        // Behind a refusal the host has closed for that: it has not judged the mechanism in use.
        let is_in_use_left = !tried.is_empty();
        if let Some(mechanism) = session.mechanism_in_use().filter(|_| is_closed && !is_in_use_left) {
            let why = "the connection was closed".to_owned();
            tried.push(TriedMechanism { mechanism, why, is_unknown: false, is_cut: true });
        }
        let mut note = String::new();
        if let Some(Loss::Protocol(why)) = &closing.loss {
            if closing.reply.is_some() {
                note = format!("; {why}");
            }
            if *why == UNVERIFIED {
                note.push_str(&unverified(link));
            }
        }
        let may_go_on = is_over && !tried.is_empty() && (is_in_use_left || session.has_mechanism_left());
        Self { trouble, note, tried, may_go_on }
    }
}

/// What is wrong with a certificate, and what can be done.
fn unverified(link: &Link) -> String {
    let fault = link.tls.as_ref().and_then(|info| info.fault.as_ref());
    let why = fault.map_or_else(|| format!("it is not for {}", link.peer.server_name), |fault| fault.text.to_string());
    format!(" ({why}; name its CA in tls.ca_files, or set route.login_unverified = true)")
}

/// The login with mechanisms that did not work lately behind the others.
pub(super) fn ordered(login: &Arc<Login>, avoided: AvoidedExtensions) -> Arc<Login> {
    let mut mechanisms = login.mechanisms.clone();
    mechanisms.sort_by_key(|one| avoided.contains(extension(*one)));
    match mechanisms == login.mechanisms {
        true => Arc::clone(login),
        false => Arc::new(Login { mechanisms, ..(**login).clone() }),
    }
}

const fn extension(mechanism: Mechanism) -> AvoidedExtensions {
    match mechanism {
        Mechanism::Plain => AvoidedExtensions::AUTH_PLAIN,
        Mechanism::Login => AvoidedExtensions::AUTH_LOGIN,
        Mechanism::CramMd5 => AvoidedExtensions::AUTH_CRAM_MD5,
    }
}

impl Opening<'_> {
    /// Waits until a server is ready for mail and has taken the login, if there is one. A server that ends the connection
    /// over a mechanism is connected to again for those that are left: each connection leaves fewer.
    pub(super) async fn greet_and_log_in<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        mut transport: Transport,
        mut said: Peer,
        began: &mut Instant,
        wait: &mut Wait<'_, N>,
    ) -> Greeted {
        let mut tried: Vec<TriedMechanism> = Vec::new();
        loop {
            let failure = match self.greet_by_policy(candidate.clone(), transport, &said, began, wait).await {
                Ok(link) => {
                    tried.extend(TriedMechanism::all(&link.session));
                    self.avoid_mechanisms(&candidate, &tried, true);
                    return Ok(link);
                }
                Err(Unready::NoLogin(failure)) => failure,
                Err(other) => return Err(other),
            };
            let LoginFailure { mut trouble, note, tried: more, may_go_on } = failure;
            tried.extend(more);
            if may_go_on && said.leave_out(|one| tried.iter().any(|tried| tried.mechanism == one)) {
                match self.dial_again(&candidate).await {
                    Ok(again) => {
                        transport = again;
                        continue;
                    }
                    Err(stopping) if stopping.is_ours => return Err(Unready::Other(stopping)),
                    Err(_) => {}
                }
            }
            self.avoid_mechanisms(&candidate, &tried, false);
            if tried.len() > 1 {
                let all: Vec<String> =
                    tried.iter().map(|one| format!("{}: {}", one.mechanism.as_str(), one.why)).collect();
                trouble.text = all.join("; ");
            }
            trouble.text.push_str(&note);
            said.explain(&candidate, &mut trouble);
            return Err(Unready::Other(trouble));
        }
    }

    /// Remembers mechanisms that do not work with a host, where others do, or may.
    fn avoid_mechanisms(self, peer: &Candidate, tried: &[TriedMechanism], is_logged_in: bool) {
        let is_broken = |one: &&TriedMechanism| is_logged_in || one.is_unknown || one.is_cut;
        if !is_logged_in && tried.iter().all(|one| is_broken(&one)) {
            return;
        }
        for TriedMechanism { mechanism, why, is_cut, .. } in tried.iter().filter(is_broken) {
            let found = BrokenExtensions { extensions: extension(*mechanism), is_certain: !is_cut, why: why.clone() };
            extensions::avoid(self.context, peer, &found);
        }
    }
}
