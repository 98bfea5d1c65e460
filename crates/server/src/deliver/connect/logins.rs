//! A login at a next hop: the mechanisms that are left for the next connection, and the memory of those that do not
//! work.
//!
//! A session tries each mechanism once. Where the host ends the connection over one, another connection tries those
//! that are left. A mechanism is remembered as broken (`AvoidedExtensions`) only where that is no evidence about the
//! password: another one led to a login, or the host answered that it does not know this one. It is then tried behind
//! the others and never left out, so nothing here can make a login impossible.
//!
//! Not here: how one connection fails (`login`), the dialog of a mechanism (`smtp::client`), the password (`peer`).

use super::ConnectionOpening;
use super::login::{LoginFailure, TriedMechanism, extension};
use super::tls::{Greeted, Unready};
use crate::deliver::Candidate;
use crate::deliver::extensions::{self, BrokenExtensions};
use crate::deliver::peer::Peer;
use crate::transport::{Transport, Wait};
use std::future::Future;
use std::time::Instant;

impl ConnectionOpening<'_> {
    /// Waits until a server is ready for mail and has taken the login, if there is one. A server that ends the
    /// connection over a mechanism is connected to again for those that are left: each connection leaves fewer.
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
            extensions::avoid(self.outbound, peer, &found);
        }
    }
}
