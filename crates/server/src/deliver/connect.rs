//! Opens a connection: from the addresses of a site to a server that has greeted and speaks the protocol.
//!
//! Addresses are tried in their order, those that failed a short while ago last ([`schedule::Hosts`]). A server that
//! refuses at the greeting counts as one that cannot be reached: another host may take the mail, and a host that is
//! closed today is a deferral. The lane decides how long each step may take: seconds in the fast one, so that a host
//! that hangs delays other mail little; the minutes of RFC 5321 §4.5.3.2 in the slow one. [`tls`] decides what
//! follows where TLS fails.
//!
//! Not here: the addresses of a site (`resolve`), sockets ([`dial`](super::dial)), the results of mail.

mod login;
mod logins;
mod tls;

use super::Candidate;
use super::connect_error::ConnectError;
use super::dial::{DialError, Dialler, Raced};
use super::dialog_tap::DialogTap;
use super::link::{Link, Next};
use super::peer::Peer;
use crate::config::{Config, Delivery, EffectiveRule, RouteProtocol};
use crate::context::Context;
use crate::dispatch::ConnectionSignal;
use crate::outbound::Outbound;
use crate::routing::Routing;
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::transcript::DialogPlace;
use crate::transport::{Transport, Wait};
use mail::{AttemptPhase, Outcome};
use observe::NextHop;
use os::clock;
use schedule::{AvoidedExtensions, Failure, Hosts, Lane};
use smtp::client::{
    ClientDialect, ClientLimits, ClientSession, ClientSettings, ClientStep, Closing, Loss, Stage, TlsUse,
};
use std::collections::VecDeque;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::Unready;

/// After this the slow lane begins no further host: its places are few.
const SLOW_ALL: Duration = Duration::from_secs(15 * 60);

/// A host that was silent when its place was needed is tried behind the others of its site for four times this.
const CALLED_OFF_WAIT: Duration = Duration::from_secs(15);

/// Time of a host for its reply to QUIT. The next address waits for it, when this one has refused.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Time limits of the steps with a host.
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
        let lane = if is_sabotaged(Sabotage::OneLane) { Lane::Slow } else { lane };
        if is_sabotaged(Sabotage::Patient) {
            let day = Duration::from_secs(86_400);
            return Self { connect: connect_time, greeting: day, command: day, all: day, hurry: day };
        }
        match lane {
            Lane::Fast => Self {
                connect: fast_connect_time.min(connect_time),
                greeting: fast_greeting_time.min(greeting_time),
                command: fast_command_time.min(command_time),
                // As long as one host can take, so that a second one gets its time too.
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
/// `rule` has the source address, the HELO name and the use of TLS; `lane` decides how long each step may take.
/// `post` signals that others need the place.
///
/// # Errors
/// Why none of them can be used, or which was the last one that there was time for; [`Failure::Silent`] if one of them
/// did not answer in time.
/// # Cancel safety
/// Yes: a connection that was open is dropped.
pub(super) async fn open<N: Future<Output = ()>>(
    outbound: &Outbound,
    mut candidates: Vec<Candidate>,
    lane: Lane,
    rule: &EffectiveRule,
    post: &ConnectionSignal,
    wait: &mut Wait<'_, N>,
) -> Result<Box<Link>, ConnectError> {
    let context = &*outbound.context;
    let live = context.live.load_full();
    let config = &live.config;
    let patience = Patience::of(&config.delivery, lane);
    let routing = context.routing.load_full();
    let opening = ConnectionOpening { outbound, context, config, routing: &routing, rule, lane, patience, post };
    let began = clock::now();
    opening.order(&mut candidates, false);
    let all: Vec<SocketAddr> = candidates.iter().filter_map(|one| one.address.socket()).collect();
    let mut left = VecDeque::from(candidates);
    let mut last: Option<ConnectError> = None;
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
                if let Some(last) = &last {
                    trouble.add_failure(last.failure);
                }
                if last.is_some_and(|last| !last.is_permanent) {
                    trouble.put_off();
                }
                if trouble.is_of_map {
                    return Err(trouble);
                }
                last = Some(trouble);
                opening.order(left.make_contiguous(), true);
            }
        }
    }
    if let Some(last) = last.as_mut().filter(|_| !left.is_empty()) {
        last.put_off();
        last.has_untried = opening.has_better(&all, &left);
    }
    Err(last.unwrap_or_else(|| ConnectError::deferral((4, 4), "no address to connect to".to_owned())))
}

fn since(began: Instant) -> Duration {
    clock::now().saturating_duration_since(began)
}

/// A connection that is to be.
#[derive(Clone, Copy)]
struct ConnectionOpening<'a> {
    outbound: &'a Outbound,
    context: &'a Context,
    config: &'a Config,
    routing: &'a Arc<Routing>,
    rule: &'a EffectiveRule,
    lane: Lane,
    patience: Patience,
    post: &'a ConnectionSignal,
}

impl ConnectionOpening<'_> {
    /// Orders hosts by the state that is known of them, as [`Hosts::order`].
    fn order(self, some: &mut [Candidate], is_wary: bool) {
        if is_sabotaged(Sabotage::PassOverNobody) {
            return;
        }
        let now = self.context.unix_now();
        self.outbound.hosts.with_table(|hosts| hosts.order(some, |one| one.address.socket(), is_wary, now));
    }

    /// Returns whether the next connection tries hosts of `untried` before the others of `all`, since they may be
    /// better.
    fn has_better(self, all: &[SocketAddr], untried: &VecDeque<Candidate>) -> bool {
        let untried: Vec<SocketAddr> = untried.iter().filter_map(|one| one.address.socket()).collect();
        // Where no failure is known of the hosts that were tried, they would be tried first again.
        self.outbound.hosts.with_table(|hosts| {
            let mut tried = all.iter().filter(|one| !untried.contains(one));
            tried.any(|one| hosts.is_doubted(*one)) && untried.iter().any(|one| !hosts.is_doubted(*one))
        })
    }

    /// Opens a connection to a host, or to an IPv4 address of it that is taken from `left`, up to its readiness for
    /// mail.
    async fn reach<N: Future<Output = ()>>(
        self,
        candidate: Candidate,
        left: &mut VecDeque<Candidate>,
        wait: &mut Wait<'_, N>,
    ) -> Result<Box<Link>, ConnectError> {
        let mut began = clock::now();
        self.learn(&candidate, Hosts::trying);
        let (candidate, transport) = self.connect(candidate, left).await?;
        let connected = since(began);
        let said = Peer::ask(self.routing, self.config, &candidate).await?;
        let peer = candidate.clone();
        let mut greeted = self.greet_and_log_in(candidate, transport, said, &mut began, wait).await;
        match &mut greeted {
            Ok(link) => {
                link.phases.add(AttemptPhase::Connect, connected);
                let took = since(began);
                self.learn(&peer, |hosts, address, now| hosts.greeted(address, took, now));
            }
            Err(Unready::Other(trouble) | Unready::Declined(trouble) | Unready::Injected(trouble))
                if !trouble.is_ours =>
            {
                self.learn(&peer, Hosts::failed);
            }
            Err(Unready::Tls(trouble)) if trouble.failure == Failure::Silent => self.learn(&peer, Hosts::failed),
            // A missing TLS does not matter to recipients that do not need it.
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
    ) -> Result<(Candidate, Transport), ConnectError> {
        let is_ipv4 = |one: &Candidate| one.address.ip().is_some_and(|ip| ip.is_ipv4());
        let is_other = |one: &Candidate| is_ipv4(one) && one.name == candidate.name;
        let may_race = self.lane == Lane::Fast && candidate.address.ip().is_some_and(|ip| ip.is_ipv6());
        let place = left.iter().position(is_other).filter(|_| may_race);
        let beside = place.and_then(|place| left.get(place)).map(|other| &other.address);
        let raced = tokio::select! {
            biased;
            raced = self.dialler().race(&candidate.address, beside) => raced,
            () = self.context.stop.begun() => return Err(self.stopping(&candidate)),
        };
        let mut other = || place.and_then(|place| left.remove(place));
        match raced {
            Raced::First(transport) => Ok((candidate, transport)),
            Raced::Second(transport) => {
                // Whether it is slow or leads nowhere: the other address is better for now.
                self.learn(&candidate, Hosts::failed);
                Ok((other().unwrap_or(candidate), transport))
            }
            Raced::Nobody(miss, None) => Err(self.missed(candidate, &miss)),
            Raced::Nobody(miss, Some(second)) => {
                let first = self.missed(candidate, &miss);
                let Some(other) = other() else { return Err(first) };
                let mut trouble = self.missed(other, &second);
                trouble.add_failure(first.failure);
                Err(trouble)
            }
        }
    }

    /// Makes the error for a host to which no connection came about.
    fn missed(self, candidate: Candidate, miss: &DialError) -> ConnectError {
        if miss.is_about_host() {
            self.learn(&candidate, Hosts::failed);
        }
        // RFC 3463 §3.4: system incorrectly configured, or no answer from host
        let status = if miss.is_ours() { (3, 5) } else { (4, 1) };
        let text = miss.text(&candidate, self.rule);
        ConnectError { peer: Some(candidate), failure: miss.failure(), ..ConnectError::deferral(status, text) }
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
        let settings = self.settings(tls, &candidate, said);
        let is_lmtp = settings.dialect == ClientDialect::Lmtp;
        // In the slow lane the connection waits, and the host does not count as fast again.
        let lags_after = Some(self.config.delivery.fast_command_time);
        let session = ClientSession::new(Arc::new(settings));
        let mut link = Box::new(Link::new(session, transport, candidate.clone(), is_lmtp, lags_after));
        link.routing = Some(Arc::clone(self.routing));
        self.post.set_host(&candidate.name);
        let (connection, names) = (self.post.number, Arc::clone(&self.post.names));
        let place = DialogPlace { connection, names, host: candidate.name.clone() };
        link.tap = Some(DialogTap::new(&self.context.transcripts, place));
        let mut nobody = pin!(pending::<()>());
        loop {
            match link.next(wait, nobody.as_mut(), false, None).await {
                Next::Step(ClientStep::StartTls) => self.secure(&mut link, said).await?,
                Next::Step(ClientStep::Ready) => return Ok(link),
                Next::Step(_) => {
                    return Err(self.unready(&link, said));
                }
                Next::Stopping => return Err(Unready::Other(self.stopping(&candidate))),
                Next::Rung | Next::Idle | Next::Lagging | Next::Silent | Next::Stalling { .. } => {}
            }
        }
    }

    /// Returns the settings of our side of a session.
    fn settings(self, tls: TlsUse, candidate: &Candidate, said: &Peer) -> ClientSettings {
        let (delivery, patience) = (&self.config.delivery, self.patience);
        let (used, now) = (self.rule.extensions, self.context.unix_now());
        let avoided = candidate
            .address
            .socket()
            .map(|address| self.outbound.hosts.with_table(|hosts| hosts.avoided(address, now)));
        let avoids = |extension| avoided.is_some_and(|avoided| avoided.contains(extension));
        let seconds = Duration::from_secs;
        let (end, transaction) = (delivery.end_time, delivery.transaction_time);
        let (end, transaction) =
            if is_sabotaged(Sabotage::Patient) { (patience.all, patience.all) } else { (end, transaction) };
        ClientSettings {
            dialect: match candidate.protocol {
                RouteProtocol::Lmtp => ClientDialect::Lmtp,
                RouteProtocol::Smtp => ClientDialect::Smtp,
            },
            hello: self.rule.hello.as_deref().unwrap_or(self.config.hostname.as_str()).into(),
            tls,
            limits: ClientLimits {
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
                reply_octets: if is_sabotaged(Sabotage::AllEars) {
                    usize::MAX
                } else {
                    ClientLimits::default().reply_octets
                },
                ..ClientLimits::default()
            },
            login: said.login.as_ref().map(|login| login::ordered(login, avoided.unwrap_or_default())),
            pipelining: used.pipelining && !said.is_lockstep && !avoids(AvoidedExtensions::PIPELINING),
            chunking: used.chunking && !said.is_without_chunking && !avoids(AvoidedExtensions::CHUNKING),
            size: used.size && !avoids(AvoidedExtensions::SIZE),
            eight_bit_mime: used.eight_bit_mime && !avoids(AvoidedExtensions::EIGHT_BIT_MIME),
            dsn: used.dsn && !avoids(AvoidedExtensions::DSN),
        }
    }

    fn dialler(&self) -> Dialler<'_> {
        Dialler { outbound: self.outbound, rule: self.rule, limit: self.patience.connect }
    }

    fn stopping(self, candidate: &Candidate) -> ConnectError {
        let trouble = ConnectError::deferral((3, 2), "the server is going down".to_owned());
        ConnectError { is_ours: true, peer: Some(candidate.clone()), ..trouble }
    }

    fn called_off(self, candidate: &Candidate) -> ConnectError {
        let text = format!("{} is silent, and its place was needed (delivery.connections_max)", candidate.name);
        ConnectError { is_ours: true, peer: Some(candidate.clone()), ..ConnectError::deferral((4, 1), text) }
    }

    fn learn(self, peer: &Candidate, happens: impl FnOnce(&mut Hosts, SocketAddr, Duration)) {
        super::learn(self.outbound, peer, happens);
    }
}

/// Makes the error of a session that ended before it accepted mail.
pub(super) fn refused(closing: Option<&Closing>, candidate: &Candidate) -> ConnectError {
    let mut trouble = ConnectError {
        peer: Some(candidate.clone()),
        ..ConnectError::deferral((4, 2), format!("Connection to {} was closed", candidate.name))
    };
    let Some(closing) = closing else { return trouble };
    let during = match closing.stage {
        // It had answered that, and there was nothing else yet.
        Stage::Idle => format!("after {}", Stage::Hello),
        stage => format!("during {stage}"),
    };
    if let Some(reply) = &closing.reply {
        // RFC 5321 §3.8: a reply before the first transaction is about the host, not about a message
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
            Some(Loss::Injected) => tls::injected(&candidate.name),
            _ => format!("{} closed the connection {during}", candidate.name),
        };
    }
    trouble
}

/// Returns how the log names a host.
pub(super) fn next_hop(candidate: &Candidate) -> NextHop<'_> {
    let Some(address) = candidate.address.ip() else { return NextHop::Name(&candidate.name) };
    let name = Some(&*candidate.name).filter(|name| !name.starts_with('['));
    NextHop::Host { name, address }
}

#[cfg(test)]
mod tests;
