//! The reason why no host of a site could be used, or none yet.

use super::Candidate;
use crate::dns::NoHosts;
use crate::settle::Cause;
use mail::{EnhancedCode, Outcome, Reply};
use schedule::Failure;

/// Why a site could not be reached.
#[derive(Clone, Debug)]
pub(super) struct ConnectError {
    /// For reports and log lines.
    pub(super) status: EnhancedCode,
    /// In sendmail's words.
    pub(super) text: String,
    /// The reply of the server, if there was one.
    pub(super) reply: Option<Reply>,
    /// The last host that was tried.
    pub(super) peer: Option<Candidate>,
    /// The server shuts down, or the place was needed; nothing is known about the site.
    pub(super) is_ours: bool,
    /// Whether a host was silent, or all refused, or none of that is about them.
    pub(super) failure: Failure,
    /// There was no time for some hosts, of which nothing bad is known; the next connection begins with them, since
    /// those that were tried come behind.
    pub(super) has_untried: bool,
    /// Only a change of the access map can mend it.
    pub(super) is_permanent: bool,
    /// The access map cannot be asked, so other hosts of the site cannot be tried either.
    pub(super) is_of_map: bool,
}

impl ConnectError {
    /// Something that time may mend; subject and detail of its enhanced code.
    pub(super) const fn deferral(status: (u16, u16), text: String) -> Self {
        Self {
            status: EnhancedCode::of(Outcome::Transient, status.0, status.1),
            text,
            reply: None,
            peer: None,
            is_ours: false,
            failure: Failure::Refused,
            has_untried: false,
            is_permanent: false,
            is_of_map: false,
        }
    }

    /// Makes the error for a map that cannot be asked about a host.
    pub(super) fn map(host: &Candidate, why: &str) -> Self {
        let text = format!("the access map cannot be asked for {}: {why}", host.name);
        let failure = Failure::Local;
        Self { peer: Some(host.clone()), is_of_map: true, failure, ..Self::deferral((3, 0), text) }
    }

    /// Makes the error for a destination without hosts.
    pub(super) fn no_hosts(no: NoHosts) -> Self {
        Self { status: no.status, ..Self::deferral((4, 4), no.text) }
    }

    /// Adds the failure of the hosts that were tried before: one that was silent makes the site silent, and a fault of
    /// this machine says nothing about the others.
    pub(super) const fn add_failure(&mut self, before: Failure) {
        self.failure = match (before, self.failure) {
            (Failure::Silent, _) => Failure::Silent,
            (before, Failure::Local) => before,
            (_, now) => now,
        };
    }

    /// Another host may do better.
    pub(super) fn put_off(&mut self) {
        self.is_permanent = false;
        self.status = self.status.with_outcome(Outcome::Transient);
    }

    /// Converts it for *settle*.
    pub(super) fn cause(&self) -> Cause {
        Cause::new(self.status, self.text.clone(), self.reply.clone())
    }
}
