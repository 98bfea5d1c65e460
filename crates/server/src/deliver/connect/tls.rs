//! TLS with a next hop: whether it is tried, what follows a failure, and the memory of failures.
//!
//! TLS is opportunistic where no rule demands it (RFC 7435), so an attacker on the path who can make it fail could
//! have mail in clear text. His gain is bounded:
//!
//! - Clear text comes where only TLS may follow the reply to STARTTLS: an attack, whatever the policy. No mail goes
//!   to this host, and its mail waits (4.7.0).
//! - TLS fails, or STARTTLS is refused or no longer offered, at a host that had TLS in the last [`TLS_SEEN_DAYS`]
//!   days: its mail waits (4.7.x) until that has lasted for `delivery.tls_fallback_after`, then as below.
//! - A handshake fails at another host, or STARTTLS has no answer: again in clear on a new connection; if that works,
//!   in clear for an hour.
//! - Another host refuses STARTTLS or does not offer it: in clear on this connection.
//!
//! [`schedule::Hosts`] has the state of TLS by address, and outlives a restart. A crash loses the last minute of it,
//! which makes nothing weaker than for a host that is met for the first time.
//!
//! Not here: the handshake itself (`crate::tls`), the demands of the access map (`peer`).

use super::login::LoginFailure;
use super::{ConnectionOpening, next_hop, refused};
use crate::config::{EffectiveRule, RouteTls};
use crate::deliver::connect_error::ConnectError;
use crate::deliver::link::Link;
use crate::deliver::peer::{Peer, Unmet};
use crate::hosts::TLS_SEEN_DAYS;
use crate::next_hop::Endpoint;
use crate::resolve::Candidate;
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::tls::TlsInfo;
use crate::transport::{Transport, Wait};
use mail::{EnhancedCode, Outcome};
use observe::Event;
use os::clock;
use schedule::{Failure, Hosts, TlsRecord};
use smtp::client::{Loss, Stage, TlsUse};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

/// Whether a host is spoken to under TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsPolicy {
    /// Never.
    None,
    /// Where it is offered and works.
    Opportunistic,
    /// Always, or not at all.
    Required,
}

/// Returns the policy for a host. This is the only place: DANE (RFC 7672) and MTA-STS (RFC 8461) are asked here once
/// they exist, and then [`TlsPolicy::Required`] has the demand on the certificate. The demand of the access map is
/// judged when TLS is established ([`Peer::unmet`]).
const fn policy_of(rule: &EffectiveRule, host: &Candidate, peer: &Peer) -> TlsPolicy {
    match rule.tls {
        // Two processes of one machine need no protection from the network.
        _ if matches!(host.address, Endpoint::Unix(_)) => TlsPolicy::None,
        _ if peer.in_clear.is_some() => TlsPolicy::Required,
        RouteTls::None => TlsPolicy::None,
        RouteTls::Opportunistic if peer.is_without_tls => TlsPolicy::None,
        RouteTls::Opportunistic => TlsPolicy::Opportunistic,
        RouteTls::Required => TlsPolicy::Required,
    }
}

/// Why a server is not ready for mail.
pub(super) enum Unready {
    /// TLS did not come about; in clear it might work.
    Tls(ConnectError),
    /// The server refused STARTTLS with a reply.
    Declined(ConnectError),
    /// An attacker on the path put text into the connection: no clear text with this host now.
    Injected(ConnectError),
    /// TLS is established and does not meet the demand: no fault of the host, and no reason to go on in clear.
    Unmet(ConnectError),
    /// There is no login.
    NoLogin(LoginFailure),
    Other(ConnectError),
}

impl Unready {
    pub(super) fn into_trouble(self) -> ConnectError {
        match self {
            Self::Tls(trouble) | Self::Declined(trouble) | Self::Injected(trouble) | Self::Unmet(trouble) => {
                let is_refused = trouble.failure == Failure::Refused;
                ConnectError { failure: if is_refused { Failure::Tls } else { trouble.failure }, ..trouble }
            }
            Self::NoLogin(LoginFailure { trouble, .. }) | Self::Other(trouble) => trouble,
        }
    }
}

pub(super) type Greeted = Result<Box<Link>, Unready>;

impl ConnectionOpening<'_> {
    /// Waits until a server is ready for mail, under TLS or in clear by the policy. After a second connection `began`
    /// is the time of that one: the time of a failed handshake does not count for the expected time of the next
    /// connection.
    pub(super) async fn greet_by_policy<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        transport: Transport,
        said: &Peer,
        began: &mut Instant,
        wait: &mut Wait<'_, N>,
    ) -> Greeted {
        let tls = match policy_of(self.rule, &candidate, said) {
            TlsPolicy::None => TlsUse::Never,
            TlsPolicy::Required => TlsUse::Required,
            TlsPolicy::Opportunistic => match self.tls_record(&candidate) {
                TlsRecord::Broken => TlsUse::Never,
                TlsRecord::Worked => return self.greet_expecting_tls(candidate, transport, said, began, wait).await,
                TlsRecord::Unknown => TlsUse::IfOffered,
            },
        };
        let peer = candidate.clone();
        match self.greet(candidate, transport, tls, said, wait).await {
            Err(Unready::Tls(trouble)) if tls == TlsUse::IfOffered => {
                *began = clock::now();
                self.greet_in_clear(peer, &trouble.text, Hosts::tls_failed, said, wait).await
            }
            Err(Unready::Tls(trouble)) => {
                self.report_no_tls(&peer, &trouble.text);
                Err(Unready::Tls(trouble))
            }
            other => other,
        }
    }

    /// Does the same for a host that had TLS lately: without it mail waits, for `delivery.tls_fallback_after`.
    async fn greet_expecting_tls<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        transport: Transport,
        said: &Peer,
        began: &mut Instant,
        wait: &mut Wait<'_, N>,
    ) -> Greeted {
        let peer = candidate.clone();
        let trouble = match self.greet(candidate, transport, TlsUse::Required, said, wait).await {
            Err(Unready::Tls(trouble)) => trouble,
            Err(Unready::Declined(trouble)) => {
                let text = format!("{} refuses STARTTLS: {}", peer.name, trouble.text);
                no_tls(text, trouble)
            }
            other => return other,
        };
        let delivery = &self.config.delivery;
        let after = delivery.tls_fallback_after;
        // Attempts are never further apart than the longest pause; twice that is another time.
        let gap = after.max(delivery.retry_max * 2);
        let mut lasts = Duration::ZERO;
        self.learn(&peer, |hosts, address, now| {
            lasts = now.saturating_sub(hosts.tls_missing(address, gap, now));
        });
        if !after.is_zero() && lasts >= after {
            *began = clock::now();
            let text = format!("{} for longer than delivery.tls_fallback_after", trouble.text);
            return self.greet_in_clear(peer, &text, Hosts::tls_given_up, said, wait).await;
        }
        let key = match after.is_zero() {
            true => "delivery.tls_fallback_after is 0".to_owned(),
            false => format!("delivery.tls_fallback_after, {} s, says for how long", after.as_secs()),
        };
        let text =
            format!("{}, and it had TLS in the last {TLS_SEEN_DAYS} days; mail waits for TLS: {key}", trouble.text);
        self.report_no_tls(&peer, &text);
        Err(Unready::Tls(ConnectError { text, reply: None, ..trouble }))
    }

    /// After a handshake that failed: the same host on a new connection, in clear. If that works it is remembered by
    /// `happens`.
    // RFC 7435 §3: opportunistic security falls back to clear text
    async fn greet_in_clear<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        why: &str,
        happens: impl FnOnce(&mut Hosts, std::net::SocketAddr, Duration),
        said: &Peer,
        wait: &mut Wait<'_, N>,
    ) -> Greeted {
        let greeted = match self.dial_again(&candidate).await {
            Ok(transport) => self.greet(candidate.clone(), transport, TlsUse::Never, said, wait).await,
            Err(trouble) if trouble.is_ours => return Err(Unready::Other(trouble)),
            Err(trouble) => Err(Unready::Other(trouble)),
        };
        if greeted.is_ok() {
            self.learn(&candidate, happens);
            self.report_no_tls(&candidate, &format!("{why}; it is spoken to in clear for an hour"));
        } else {
            self.report_no_tls(&candidate, why);
        }
        greeted
    }

    /// Connects once more to a host.
    pub(super) async fn dial_again(self, candidate: &Candidate) -> Result<Transport, ConnectError> {
        tokio::select! {
            biased;
            dialled = self.dialler().one(&candidate.address) => {
                dialled.map_err(|miss| self.missed(candidate.clone(), &miss))
            }
            () = self.context.stop.begun() => Err(self.stopping(candidate)),
        }
    }

    /// Why the session of a link ended before the server was ready for mail.
    pub(super) fn unready(self, link: &Link, said: &Peer) -> Unready {
        let (closing, candidate) = (link.session.closing(), &link.peer);
        let mut trouble = refused(closing, candidate);
        let Some(closing) = closing else { return Unready::Other(trouble) };
        match (closing.stage, &closing.loss) {
            (Stage::Auth, _) => return Unready::NoLogin(LoginFailure::of(link, closing, trouble)),
            (_, Some(Loss::Injected)) => return self.attacked(candidate),
            (Stage::StartTls, Some(Loss::Protocol(_))) => {
                trouble = match &said.in_clear {
                    Some(unmet) => missing(unmet, candidate),
                    None => no_tls(format!("{} does not offer STARTTLS", candidate.name), trouble),
                };
                return Unready::Tls(trouble);
            }
            // A server that offers STARTTLS and then breaks off, or is silent.
            (Stage::StartTls, Some(_)) => return Unready::Tls(trouble),
            (Stage::StartTls, None) if closing.reply.as_ref().is_some_and(|reply| reply.code().get() != 421) => {
                return Unready::Declined(trouble);
            }
            _ => {}
        }
        Unready::Other(trouble)
    }

    /// Puts TLS under the session, and checks whether it meets the demand: before EHLO, and above all before a
    /// password is sent.
    pub(super) async fn secure(self, link: &mut Link, said: &Peer) -> Result<(), Unready> {
        if let Err(failed) = self.start_tls(link, said).await {
            let candidate = link.peer.clone();
            return Err(match failed {
                Handshake::NoRecord => self.attacked(&candidate),
                Handshake::Failed(text, failure) => {
                    let text = format!("TLS handshake with {} failed: {text}", candidate.name);
                    Unready::Tls(ConnectError {
                        peer: Some(candidate),
                        failure,
                        ..ConnectError::deferral((7, 5), text)
                    })
                }
            });
        }
        self.learn(&link.peer, Hosts::tls_worked);
        self.judge(link, said).await.map_err(|trouble| {
            self.report_no_tls(&link.peer, &trouble.text);
            Unready::Unmet(trouble)
        })
    }

    async fn start_tls(self, link: &mut Link, said: &Peer) -> Result<(), Handshake> {
        let transport = std::mem::replace(&mut link.transport, Transport::Closed);
        let name = link.peer.server_name.clone();
        let nowhere = || Handshake::Failed("not on this kind of connection".to_owned(), Failure::Refused);
        let (stream, info) = match transport {
            Transport::Plain(stream) => self.shake_hands(stream, &name, said).await?,
            // It fails as over a socket; none of those that tests hold works.
            #[cfg(test)]
            Transport::Memory(stream) => {
                return Box::pin(self.shake_hands(stream, &name, said)).await.and_then(|_| Err(nowhere()));
            }
            _ => return Err(nowhere()),
        };
        let TlsInfo { version, cipher, bits, verify, .. } = &info;
        let relay = next_hop(&link.peer);
        self.context.record(&Event::StartTlsClient { relay, version, cipher, bits: *bits, verify });
        if let Some(tap) = &link.tap {
            tap.tell(&format!("{} {}, verify={}", info.version, info.cipher, info.verify));
        }
        link.transport = Transport::TlsOut(Box::new(stream));
        let is_verified = info.is_verified_for(&name);
        link.tls = Some(Box::new(info));
        let now = link.now();
        link.session.tls_started(is_verified, now);
        Ok(())
    }

    /// Does the handshake.
    async fn shake_hands<S>(self, stream: S, name: &str, said: &Peer) -> Result<(TlsStream<S>, TlsInfo), Handshake>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let deadline = clock::now() + self.config.tls.handshake_time_max.min(self.patience.command);
        let connector = &self.outbound.connector;
        let shaken = if said.is_judged {
            Box::pin(connector.connect_and_judge(stream, name, deadline, &self.config.tls.ca_files)).await
        } else {
            connector.connect(stream, name, deadline).await
        };
        shaken.map_err(|error| match () {
            () if error.is_no_record() => Handshake::NoRecord,
            () if error.has_timed_out() => Handshake::Failed(error.to_string(), Failure::Silent),
            () => Handshake::Failed(error.to_string(), Failure::Refused),
        })
    }

    /// Checks whether a connection under TLS meets the demand.
    async fn judge(self, link: &Link, said: &Peer) -> Result<(), ConnectError> {
        let Some(info) = &link.tls else { return Ok(()) };
        match said.unmet(self.routing, &link.peer, info).await {
            Ok(None) => Ok(()),
            Ok(Some(unmet)) => Err(missing(&unmet, &link.peer)),
            Err(why) => Err(ConnectError::map(&link.peer, &why)),
        }
    }

    /// Text was put into the connection where TLS begins.
    fn attacked(self, candidate: &Candidate) -> Unready {
        let text = injected(&candidate.name);
        self.report_no_tls(candidate, &text);
        Unready::Injected(ConnectError { peer: Some(candidate.clone()), ..ConnectError::deferral((7, 0), text) })
    }

    fn report_no_tls(self, candidate: &Candidate, reason: &str) {
        self.context.record(&Event::TlsClientFailed { relay: next_hop(candidate), reason });
    }

    /// Returns what TLS with a host did so far.
    fn tls_record(self, peer: &Candidate) -> TlsRecord {
        if is_sabotaged(Sabotage::ForgetTls) {
            return TlsRecord::Unknown;
        }
        let now = self.context.unix_now();
        let address = peer.address.socket();
        address.map_or(TlsRecord::Unknown, |address| self.outbound.hosts.with_table(|hosts| hosts.tls(address, now)))
    }
}

/// Why a handshake failed.
enum Handshake {
    /// The octets of the server are no TLS.
    NoRecord,
    Failed(String, Failure),
}

/// Returns the text about a host from which clear text came where TLS begins.
pub(super) fn injected(name: &str) -> String {
    format!(
        "{name} or somebody on the way said something in clear behind STARTTLS, where only TLS may follow: not spoken to in clear; \
         if its TLS is broken, set tls = \"none\" for it in a [[destination]] rule"
    )
}

/// STARTTLS is missing.
fn no_tls(text: String, trouble: ConnectError) -> ConnectError {
    // RFC 3463 §3.8: security features not supported
    ConnectError { status: EnhancedCode::of(Outcome::Transient, 7, 4), text, ..trouble }
}

/// Returns the error for a connection that does not meet the demand of the access map.
fn missing(unmet: &Unmet, candidate: &Candidate) -> ConnectError {
    ConnectError {
        status: unmet.status,
        is_permanent: unmet.status.outcome() == Outcome::Permanent,
        peer: Some(candidate.clone()),
        ..ConnectError::deferral((7, 0), unmet.text.clone())
    }
}
