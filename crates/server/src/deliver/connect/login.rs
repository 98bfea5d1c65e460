//! A login at a next hop that failed over one connection: the mechanisms that were tried, and whether another
//! connection may try the others.
//!
//! Not here: the dialog of a mechanism (`smtp::client`), the next connection (`logins`).

use crate::deliver::connect_error::ConnectError;
use crate::deliver::link::Link;
use schedule::AvoidedExtensions;
use smtp::client::{ClientSession, Closing, Login, Loss, Mechanism, UNVERIFIED};
use std::sync::Arc;

/// A mechanism that led to no login.
#[derive(Clone, Debug)]
pub(super) struct TriedMechanism {
    pub(super) mechanism: Mechanism,
    /// The reply, or that there was none.
    pub(super) why: String,
    /// The host does not know the mechanism, whatever the password is.
    pub(super) is_unknown: bool,
    /// The host ended the connection instead of an answer: it may have failed for another reason.
    pub(super) is_cut: bool,
}

impl TriedMechanism {
    /// Those that a session tried in vain.
    pub(super) fn all(session: &ClientSession) -> Vec<Self> {
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
    pub(super) note: String,
    pub(super) tried: Vec<TriedMechanism>,
    /// The host ended the connection while mechanisms were left.
    pub(super) may_go_on: bool,
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

/// The fault of a certificate, and the next step.
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

pub(super) const fn extension(mechanism: Mechanism) -> AvoidedExtensions {
    match mechanism {
        Mechanism::Plain => AvoidedExtensions::AUTH_PLAIN,
        Mechanism::Login => AvoidedExtensions::AUTH_LOGIN,
        Mechanism::CramMd5 => AvoidedExtensions::AUTH_CRAM_MD5,
    }
}
