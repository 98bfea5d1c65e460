//! From the addresses of a site to a connection whose server has greeted us and speaks our protocol.
//!
//! Addresses are tried in their order, those that failed a short while ago last ([`schedule::Hosts`]). A server that refuses at
//! the greeting counts as one that cannot be reached: another host may take the mail, and a host that is closed today is a
//! deferral. How long each step may take depends on the lane: seconds in the fast one, so that a host that hangs holds up
//! nobody for long; the minutes of RFC 5321 §4.5.3.2 in the slow one. A TLS handshake that fails is repeated in clear where
//! that is allowed, on a new connection; if that works, the host is spoken to in clear from then on, for a day; for an hour if it
//! was only silent.
//!
//! Not here: which addresses a site has (`resolve`), sockets ([`dial`](super::dial)), what becomes of mail.

use super::dial::{Dialler, Miss, Raced};
use super::link::{Link, Next};
use super::peer::{Peer, Unmet};
use super::{Candidate, Where};
use crate::config::{Config, Delivery, EffectiveRule, RouteProtocol, RouteTls};
use crate::dispatch::Post;
use crate::dns::NoHosts;
use crate::env::clock;
use crate::hosts::{TLS_MEMORY, TLS_SILENCE_MEMORY};
use crate::routing::Routing;
use crate::service::Service;
use crate::session::{Transport, Wait};
use crate::settle::Cause;
#[cfg(test)]
use crate::simulation::{Sabotage, is_sabotaged};
use crate::tls::TlsInfo;
use mail::{EnhancedCode, Outcome, Reply};
use observe::{Event, NextHop};
use schedule::{Failure, Hosts, Lane};
use smtp::client::{Closing, Dialect, Limits, Loss, Session, Settings, Stage, Step, TlsUse};
use std::collections::VecDeque;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

/// After this the slow lane begins no further host: its places are few.
const SLOW_ALL: Duration = Duration::from_secs(15 * 60);

/// A host that was silent when its place was needed is tried behind the others of its site for four times this.
const CALLED_OFF_WAIT: Duration = Duration::from_secs(15);

/// How long a host may take for its last word. The next address waits for it, when this one has refused.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Why a site could not be reached.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// For reports and log lines.
    pub(super) status: EnhancedCode,
    /// In sendmail's words.
    pub(super) text: String,
    /// What the server said, if it spoke.
    pub(super) reply: Option<Reply>,
    /// The last host that was tried.
    pub(super) peer: Option<Candidate>,
    /// The server is going down, or the place was needed; nothing is known about the site.
    pub(super) is_ours: bool,
    /// Whether a host was silent, or all said no.
    pub(super) failure: Failure,
    /// There was no time for some hosts, of which nothing bad is known; the next connection begins with them, since those that were
    /// tried come behind.
    pub(super) has_untried: bool,
    /// Nothing but another access map can mend it.
    pub(super) is_permanent: bool,
    /// The access map cannot be asked: what is said of another host would not be known either.
    pub(super) is_of_map: bool,
}

impl Trouble {
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

    /// The access map cannot be asked about a host.
    pub(super) fn map(host: &Candidate, why: &str) -> Self {
        let text = format!("the access map cannot be asked for {}: {why}", host.name);
        Self { peer: Some(host.clone()), is_of_map: true, ..Self::deferral((3, 0), text) }
    }

    /// There are no hosts.
    pub(super) fn no_hosts(no: NoHosts) -> Self {
        Self { status: no.status, ..Self::deferral((4, 4), no.text) }
    }

    /// Another host may do better.
    fn put_off(&mut self) {
        self.is_permanent = false;
        self.status = self.status.with_outcome(Outcome::Transient);
    }

    /// As *settle* takes it.
    pub(super) fn cause(&self) -> Cause {
        Cause::new(self.status, self.text.clone(), self.reply.clone())
    }
}

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

/// Says what holds for a host. The only place that does: DANE (RFC 7672) and MTA-STS (RFC 8461) are asked here once they are
/// there, and then [`TlsPolicy::Required`] says what the certificate must be. What the access map demands is looked at when TLS is
/// there ([`Peer::unmet`]).
const fn policy_of(rule: &EffectiveRule, host: &Candidate, peer: &Peer) -> TlsPolicy {
    match rule.tls {
        // Nobody is between two processes of a machine.
        _ if matches!(host.address, Where::Unix(_)) => TlsPolicy::None,
        _ if peer.in_clear.is_some() => TlsPolicy::Required,
        RouteTls::None => TlsPolicy::None,
        RouteTls::Opportunistic if peer.is_without_tls => TlsPolicy::None,
        RouteTls::Opportunistic => TlsPolicy::Opportunistic,
        RouteTls::Required => TlsPolicy::Required,
    }
}

/// How long a host may take for what.
#[derive(Clone, Copy, Debug)]
struct Patience {
    connect: Duration,
    greeting: Duration,
    command: Duration,
    /// After this the next address is not begun any more.
    all: Duration,
    /// For commands of a transaction, as long as nothing can be taken twice.
    hurry: Duration,
}

impl Patience {
    fn of(delivery: &Delivery, lane: Lane) -> Self {
        let Delivery { connect_time, greeting_time, command_time, .. } = *delivery;
        let Delivery { fast_connect_time, fast_greeting_time, fast_command_time, .. } = *delivery;
        #[cfg(test)]
        let lane = if is_sabotaged(Sabotage::OneLane) { Lane::Slow } else { lane };
        #[cfg(test)]
        if is_sabotaged(Sabotage::Patient) {
            let day = Duration::from_secs(86_400);
            return Self { connect: connect_time, greeting: day, command: day, all: day, hurry: day };
        }
        match lane {
            Lane::Fast => Self {
                connect: fast_connect_time.min(connect_time),
                greeting: fast_greeting_time.min(greeting_time),
                command: fast_command_time.min(command_time),
                // As long as one host can take, so that each has a second beside it.
                all: fast_connect_time + fast_greeting_time + fast_command_time,
                hurry: fast_command_time,
            },
            Lane::Slow => Self {
                connect: connect_time,
                greeting: greeting_time,
                command: command_time,
                all: SLOW_ALL,
                hurry: Duration::MAX,
            },
        }
    }
}

/// Opens a connection to one of these hosts.
///
/// `rule` says from which address, under which name and whether under TLS; `lane` how long each step may take. At `post` it is
/// told that others need the place.
///
/// # Errors
/// Why none of them can be used, or which was the last one that there was time for; [`Failure::Silent`] if one of them did not
/// answer in time.
/// # Cancel safety
/// Yes: a connection that was open is dropped.
pub(super) async fn open<N: Future<Output = ()>>(
    service: &Arc<Service>,
    mut candidates: Vec<Candidate>,
    lane: Lane,
    rule: &EffectiveRule,
    post: &Post,
    wait: &mut Wait<'_, N>,
) -> Result<Box<Link>, Trouble> {
    let live = service.live.load_full();
    let config = &live.config;
    let patience = Patience::of(&config.delivery, lane);
    let routing = service.routing.load_full();
    let opening = Opening { service, config, routing: &routing, rule, lane, patience };
    let began = clock::now();
    let order = |some: &mut [Candidate], is_wary| {
        #[cfg(test)]
        if is_sabotaged(Sabotage::PassOverNobody) {
            return;
        }
        service.hosts.look(|hosts| hosts.order(some, |one| one.address.socket(), is_wary, service.unix_now()));
    };
    order(&mut candidates, false);
    let all: Vec<SocketAddr> = candidates.iter().filter_map(|one| one.address.socket()).collect();
    let mut left = VecDeque::from(candidates);
    let mut last: Option<Trouble> = None;
    while last.is_none() || since(began) < patience.all {
        let Some(candidate) = left.pop_front() else { break };
        let reached = tokio::select! {
            biased;
            reached = opening.reach(candidate.clone(), &mut left, wait) => reached,
            () = post.called_off() => {
                if last.is_some() || !left.is_empty() {
                    opening.learn(&candidate, |hosts, address, now| hosts.spare(address, CALLED_OFF_WAIT, 0, now));
                }
                return Err(opening.called_off(&candidate));
            }
        };
        match reached {
            Ok(link) => return Ok(link),
            Err(trouble) if trouble.is_ours => return Err(trouble),
            Err(mut trouble) => {
                if last.as_ref().is_some_and(|last| last.failure == Failure::Silent) {
                    trouble.failure = Failure::Silent;
                }
                if last.is_some_and(|last| !last.is_permanent) {
                    trouble.put_off();
                }
                if trouble.is_of_map {
                    return Err(trouble);
                }
                last = Some(trouble);
                order(left.make_contiguous(), true);
            }
        }
    }
    if let Some(last) = last.as_mut().filter(|_| !left.is_empty()) {
        last.put_off();
        let untried: Vec<SocketAddr> = left.iter().filter_map(|one| one.address.socket()).collect();
        // Where nothing is held against those that were tried, they would be tried first again.
        last.has_untried = service.hosts.look(|hosts| {
            let mut tried = all.iter().filter(|one| !untried.contains(one));
            tried.any(|one| hosts.is_doubted(*one)) && untried.iter().any(|one| !hosts.is_doubted(*one))
        });
    }
    Err(last.unwrap_or_else(|| Trouble::deferral((4, 4), "no address to connect to".to_owned())))
}

fn since(began: Instant) -> Duration {
    clock::now().saturating_duration_since(began)
}

/// Why a server is not ready for mail.
enum Unready {
    /// The handshake failed; in clear it might work.
    Tls(Trouble),
    /// TLS is there and not what is demanded: nothing against the host, and no reason to go on in clear.
    Unmet(Trouble),
    Other(Trouble),
}

impl Unready {
    fn into_trouble(self) -> Trouble {
        let (Self::Tls(trouble) | Self::Unmet(trouble) | Self::Other(trouble)) = self;
        trouble
    }
}

/// A connection that is to be.
#[derive(Clone, Copy)]
struct Opening<'a> {
    service: &'a Arc<Service>,
    config: &'a Config,
    routing: &'a Arc<Routing>,
    rule: &'a EffectiveRule,
    lane: Lane,
    patience: Patience,
}

impl Opening<'_> {
    /// Brings a host, or an IPv4 address of it that is taken from `left`, to where it takes mail.
    async fn reach<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        left: &mut VecDeque<Candidate>,
        wait: &mut Wait<'_, N>,
    ) -> Result<Box<Link>, Trouble> {
        let mut began = clock::now();
        self.learn(&candidate, Hosts::trying);
        let (candidate, transport) = self.connect(candidate, left).await?;
        let said = Peer::ask(self.routing, self.config, &candidate).await?;
        let policy = policy_of(self.rule, &candidate, &said);
        let peer = candidate.clone();
        let greeted = match policy {
            TlsPolicy::None => self.greet(candidate, transport, TlsUse::Never, &said, wait).await,
            TlsPolicy::Required => self.greet(candidate, transport, TlsUse::Required, &said, wait).await,
            TlsPolicy::Opportunistic if self.tls_is_broken(&peer) => {
                self.greet(candidate, transport, TlsUse::Never, &said, wait).await
            }
            TlsPolicy::Opportunistic => {
                match self.greet(candidate.clone(), transport, TlsUse::IfOffered, &said, wait).await {
                    Err(Unready::Tls(trouble)) => {
                        // How long the handshake took is nothing that the next connection is expected to take.
                        began = clock::now();
                        self.greet_in_clear(candidate, trouble, &said, wait).await
                    }
                    other => other,
                }
            }
        };
        match &greeted {
            Ok(link) => {
                let (took, is_encrypted) = (since(began), matches!(link.transport, Transport::TlsOut(_)));
                self.learn(&peer, |hosts, address, now| {
                    hosts.greeted(address, took, now);
                    if is_encrypted {
                        hosts.tls_worked(address);
                    }
                });
            }
            Err(Unready::Other(trouble)) if !trouble.is_ours => self.learn(&peer, Hosts::failed),
            Err(Unready::Tls(trouble)) if trouble.failure == Failure::Silent => self.learn(&peer, Hosts::failed),
            // That it lacks TLS is nothing to those who do not need it.
            Err(_) => {}
        }
        greeted.map_err(Unready::into_trouble)
    }

    /// Connects to a host; where it is silent at an IPv6 address, in the fast lane also to an IPv4 address of it.
    // RFC 8305 §5
    async fn connect(
        self,
        candidate: Candidate,
        left: &mut VecDeque<Candidate>,
    ) -> Result<(Candidate, Transport), Trouble> {
        let is_ipv4 = |one: &Candidate| one.address.ip().is_some_and(|ip| ip.is_ipv4());
        let is_other = |one: &Candidate| is_ipv4(one) && one.name == candidate.name;
        let may_race = self.lane == Lane::Fast && candidate.address.ip().is_some_and(|ip| ip.is_ipv6());
        let place = left.iter().position(is_other).filter(|_| may_race);
        let beside = place.and_then(|place| left.get(place)).map(|other| &other.address);
        let raced = tokio::select! {
            biased;
            raced = self.dialler().race(&candidate.address, beside) => raced,
            () = self.service.stop.begun() => return Err(self.stopping(&candidate)),
        };
        let mut other = || place.and_then(|place| left.remove(place));
        match raced {
            Raced::First(transport) => Ok((candidate, transport)),
            Raced::Second(transport) => {
                // Whether it is slow or leads nowhere: the other one is better for now.
                self.learn(&candidate, Hosts::failed);
                Ok((other().unwrap_or(candidate), transport))
            }
            Raced::Nobody(miss, None) => Err(self.missed(candidate, &miss)),
            Raced::Nobody(miss, Some(second)) => {
                let first = self.missed(candidate, &miss);
                let Some(other) = other() else { return Err(first) };
                let failure = first.failure;
                let trouble = self.missed(other, &second);
                Err(Trouble { failure: if failure == Failure::Silent { failure } else { trouble.failure }, ..trouble })
            }
        }
    }

    /// No connection to a host came about.
    fn missed(self, candidate: Candidate, miss: &Miss) -> Trouble {
        if miss.is_about_host() {
            self.learn(&candidate, Hosts::failed);
        }
        // RFC 3463 §3.4: system incorrectly configured, or no answer from host
        let status = if miss.is_ours() { (3, 5) } else { (4, 1) };
        let text = miss.text(&candidate, self.rule);
        Trouble { peer: Some(candidate), failure: miss.failure(), ..Trouble::deferral(status, text) }
    }

    /// After a handshake that failed: the same host on a new connection, in clear.
    // RFC 7435 §3: opportunistic security falls back to clear text
    async fn greet_in_clear<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        trouble: Trouble,
        said: &Peer,
        wait: &mut Wait<'_, N>,
    ) -> Result<Box<Link>, Unready> {
        let dialled = tokio::select! {
            biased;
            dialled = self.dialler().one(&candidate.address) => dialled,
            () = self.service.stop.begun() => return Err(Unready::Other(self.stopping(&candidate))),
        };
        let greeted = match dialled {
            Ok(transport) => self.greet(candidate.clone(), transport, TlsUse::Never, said, wait).await,
            Err(miss) => Err(Unready::Other(self.missed(candidate.clone(), &miss))),
        };
        let mut reason = trouble.text;
        if greeted.is_ok() {
            // What was only slow may work soon; until then its silence is not to be waited for by each connection.
            let (memory, words) = match trouble.failure {
                Failure::Silent => (TLS_SILENCE_MEMORY, "an hour"),
                _ => (TLS_MEMORY, "24 hours"),
            };
            // The table knows one length: a silence counts as what broke so much earlier.
            let tls_failed = |hosts: &mut Hosts, address: SocketAddr, now: Duration| {
                hosts.tls_failed(address, (now + memory).saturating_sub(TLS_MEMORY));
            };
            self.learn(&candidate, tls_failed);
            reason.push_str(&format!("; it is spoken to in clear for {words}"));
        }
        self.service.tell(&Event::TlsClientFailed { relay: next_hop(&candidate), reason: &reason });
        greeted
    }

    /// Waits until a server is ready for mail.
    async fn greet<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        transport: Transport,
        tls: TlsUse,
        said: &Peer,
        wait: &mut Wait<'_, N>,
    ) -> Result<Box<Link>, Unready> {
        let settings = self.settings(tls, candidate.protocol, said);
        let is_lmtp = settings.dialect == Dialect::Lmtp;
        // In the slow lane it is waited for, and does not count as one that is fast again.
        let lags_after = Some(self.config.delivery.fast_command_time);
        let session = Session::new(Arc::new(settings));
        let mut link = Box::new(Link::new(session, transport, candidate.clone(), is_lmtp, lags_after));
        link.routing = Some(Arc::clone(self.routing));
        let mut nobody = pin!(pending::<()>());
        loop {
            match link.next(wait, nobody.as_mut(), false, None).await {
                Next::Step(Step::StartTls) => {
                    if let Err((text, failure)) = self.start_tls(&mut link, said).await {
                        let text = format!("TLS handshake with {} failed: {text}", candidate.name);
                        let trouble = Trouble { peer: Some(candidate), failure, ..Trouble::deferral((7, 5), text) };
                        return Err(self.tls_failed(tls, trouble));
                    }
                    // Before EHLO, and above all before a password is said.
                    if let Err(trouble) = self.judge(&link, said).await {
                        self.service
                            .tell(&Event::TlsClientFailed { relay: next_hop(&candidate), reason: &trouble.text });
                        return Err(Unready::Unmet(trouble));
                    }
                }
                Next::Step(Step::Ready) => return Ok(link),
                Next::Step(_) => {
                    let closing = link.session.closing();
                    let mut trouble = refused(closing, &candidate);
                    match closing.map(|closing| (closing.stage, &closing.loss)) {
                        Some((Stage::Auth, _)) => said.explain(&candidate, &mut trouble),
                        Some((Stage::StartTls, Some(Loss::Protocol(_)))) if !link.session.offers().starttls => {
                            trouble = said.in_clear.as_ref().map_or(trouble, |unmet| missing(unmet, &candidate));
                        }
                        _ => {}
                    }
                    // A server that offers STARTTLS and then breaks off, or talks on in clear.
                    let is_broken = |closing: &Closing| closing.stage == Stage::StartTls && closing.loss.is_some();
                    if closing.is_some_and(is_broken) {
                        return Err(self.tls_failed(tls, trouble));
                    }
                    return Err(Unready::Other(trouble));
                }
                Next::Stopping => return Err(Unready::Other(self.stopping(&candidate))),
                Next::Rung | Next::Idle | Next::Lagging | Next::Silent | Next::Stalling { .. } => {}
            }
        }
    }

    /// TLS did not come about. Where clear text is allowed, the log says it when that is known to work.
    fn tls_failed(self, tls: TlsUse, trouble: Trouble) -> Unready {
        if tls == TlsUse::Required
            && let Some(peer) = &trouble.peer
        {
            self.service.tell(&Event::TlsClientFailed { relay: next_hop(peer), reason: &trouble.text });
        }
        Unready::Tls(trouble)
    }

    /// Puts TLS under the session.
    async fn start_tls(self, link: &mut Link, said: &Peer) -> Result<(), (String, Failure)> {
        let transport = std::mem::replace(&mut link.transport, Transport::Closed);
        let name = link.peer.server_name.clone();
        let nowhere = ("not on this kind of connection".to_owned(), Failure::Refused);
        let (stream, info) = match transport {
            Transport::Plain(stream) => self.shake_hands(stream, &name, said).await?,
            // It fails as over a socket; none of those that tests hold works.
            #[cfg(test)]
            Transport::Memory(stream) => {
                return Box::pin(self.shake_hands(stream, &name, said)).await.and(Err(nowhere));
            }
            _ => return Err(nowhere),
        };
        let TlsInfo { version, cipher, bits, verify, .. } = &info;
        let relay = next_hop(&link.peer);
        self.service.tell(&Event::StartTlsClient { relay, version, cipher, bits: *bits, verify });
        link.transport = Transport::TlsOut(Box::new(stream));
        link.tls = Some(Box::new(info));
        let now = link.now();
        link.session.tls_started(now);
        Ok(())
    }

    /// Does the handshake.
    async fn shake_hands<S>(
        self,
        stream: S,
        name: &str,
        said: &Peer,
    ) -> Result<(TlsStream<S>, TlsInfo), (String, Failure)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let deadline = clock::now() + self.config.tls.handshake_time_max.min(self.patience.command);
        let connector = &self.service.connector;
        let shaken = if said.is_judged {
            Box::pin(connector.connect_and_judge(stream, name, deadline, &self.config.tls.ca_files)).await
        } else {
            connector.connect(stream, name, deadline).await
        };
        shaken.map_err(|error| {
            let failure = if error.has_timed_out() { Failure::Silent } else { Failure::Refused };
            (error.to_string(), failure)
        })
    }

    /// Whether a connection under TLS is what is demanded of it.
    async fn judge(self, link: &Link, said: &Peer) -> Result<(), Trouble> {
        let Some(info) = &link.tls else { return Ok(()) };
        match said.unmet(self.routing, &link.peer, info).await {
            Ok(None) => Ok(()),
            Ok(Some(unmet)) => Err(missing(&unmet, &link.peer)),
            Err(why) => Err(Trouble::map(&link.peer, &why)),
        }
    }

    /// What our side of a session does and bears.
    fn settings(self, tls: TlsUse, protocol: RouteProtocol, said: &Peer) -> Settings {
        let (delivery, patience) = (&self.config.delivery, self.patience);
        let seconds = Duration::from_secs;
        let (end, transaction) = (delivery.end_time, delivery.transaction_time);
        #[cfg(test)]
        let (end, transaction) =
            if is_sabotaged(Sabotage::Patient) { (patience.all, patience.all) } else { (end, transaction) };
        Settings {
            dialect: match protocol {
                RouteProtocol::Lmtp => Dialect::Lmtp,
                RouteProtocol::Smtp => Dialect::Smtp,
            },
            hello: self.rule.hello.as_deref().unwrap_or(self.config.hostname.as_str()).into(),
            tls,
            limits: Limits {
                greeting: patience.greeting,
                hello: patience.command,
                mail: delivery.command_time,
                rcpt: delivery.command_time,
                data: delivery.data_time,
                block: delivery.block_time,
                end,
                tls: seconds(120).min(patience.command),
                rset: seconds(120).min(delivery.command_time),
                hurry: patience.hurry,
                transaction,
                farewell: FAREWELL_TIME,
                #[cfg(test)]
                reply_lines: if is_sabotaged(Sabotage::AllEars) { usize::MAX } else { Limits::default().reply_lines },
                ..Limits::default()
            },
            login: said.login.clone(),
            pipelining: delivery.pipelining && !said.is_lockstep,
            chunking: delivery.chunking && !said.is_without_chunking,
        }
    }

    fn dialler(&self) -> Dialler<'_> {
        Dialler { service: self.service, rule: self.rule, limit: self.patience.connect }
    }

    fn stopping(self, candidate: &Candidate) -> Trouble {
        let trouble = Trouble::deferral((3, 2), "the server is going down".to_owned());
        Trouble { is_ours: true, peer: Some(candidate.clone()), ..trouble }
    }

    fn called_off(self, candidate: &Candidate) -> Trouble {
        let text = format!("{} is silent, and its place was needed (delivery.connections_max)", candidate.name);
        Trouble { is_ours: true, peer: Some(candidate.clone()), ..Trouble::deferral((4, 1), text) }
    }

    fn tls_is_broken(self, peer: &Candidate) -> bool {
        #[cfg(test)]
        if is_sabotaged(Sabotage::ForgetTls) {
            return false;
        }
        let now = self.service.unix_now();
        let address = peer.address.socket();
        address.is_some_and(|address| self.service.hosts.look(|hosts| hosts.tls_is_broken(address, now)))
    }

    fn learn(self, peer: &Candidate, happens: impl FnOnce(&mut Hosts, SocketAddr, Duration)) {
        super::learn(self.service, peer, happens);
    }
}

/// What a connection lacks that the access map demands.
fn missing(unmet: &Unmet, candidate: &Candidate) -> Trouble {
    Trouble {
        status: unmet.status,
        is_permanent: unmet.status.outcome() == Outcome::Permanent,
        peer: Some(candidate.clone()),
        ..Trouble::deferral((7, 0), unmet.text.clone())
    }
}

/// What a session that ended before it took anything had to say.
pub(super) fn refused(closing: Option<&Closing>, candidate: &Candidate) -> Trouble {
    let mut trouble = Trouble {
        peer: Some(candidate.clone()),
        ..Trouble::deferral((4, 2), format!("Connection to {} was closed", candidate.name))
    };
    let Some(closing) = closing else { return trouble };
    let during = match closing.stage {
        // It had answered that, and there was nothing else yet.
        Stage::Idle => format!("after {}", Stage::Hello),
        stage => format!("during {stage}"),
    };
    if let Some(reply) = &closing.reply {
        // RFC 5321 §3.8: whatever is said before the first transaction is about the host, not about a message
        trouble.status = reply.status().unwrap_or(trouble.status).with_outcome(Outcome::Transient);
        trouble.text = reply.to_string();
        trouble.reply = Some(reply.clone());
    } else {
        trouble.text = match &closing.loss {
            Some(Loss::TimedOut) => {
                trouble.failure = Failure::Silent;
                format!("timeout waiting for {} {during}", candidate.name)
            }
            Some(Loss::TooLong) => {
                trouble.failure = Failure::Silent;
                format!(
                    "{} was too slow {during}: the transaction took longer than delivery.transaction_time",
                    candidate.name
                )
            }
            Some(Loss::Protocol(what)) if closing.stage == Stage::Auth => (*what).to_owned(),
            Some(Loss::Protocol(what)) => format!("{} speaks no SMTP {during}: {what}", candidate.name),
            _ => format!("{} closed the connection {during}", candidate.name),
        };
    }
    trouble
}

/// How the log names a host.
pub(super) fn next_hop(candidate: &Candidate) -> NextHop<'_> {
    let Some(address) = candidate.address.ip() else { return NextHop::Name(&candidate.name) };
    let name = Some(&*candidate.name).filter(|name| !name.starts_with('['));
    NextHop::Host { name, address }
}

#[cfg(test)]
mod tests;
