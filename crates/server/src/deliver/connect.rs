//! From a destination to a connection whose server has greeted us and speaks our protocol.
//!
//! Addresses are tried in their order, each for `delivery.connect_time`. A server that refuses at the greeting counts as one
//! that cannot be reached: another host of the destination may take the mail, and a host that is closed today is a
//! deferral. A TLS handshake that fails is repeated in clear where `route.tls` allows it, on a new connection.

use super::Candidate;
use super::link::{Link, Next};
use crate::config::{Config, RouteProtocol, RouteTls};
use crate::dns::NoHosts;
use crate::env::clock;
use crate::resolve::Site;
use crate::service::Service;
use crate::session::{Transport, Wait};
use crate::settle::Cause;
use crate::tls::TlsInfo;
use mail::{EnhancedCode, Outcome, Reply};
use observe::{Event, NextHop};
use schedule::{Failure, Lane};
use smtp::client::{Closing, Dialect, Limits, Loss, Session, Settings, Stage, Step, TlsUse};
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// How long a host may take for its last word. The next address waits for it, when this one has refused.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Why a destination could not be reached.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// Nothing that time can mend: every message for it has failed.
    pub(super) is_permanent: bool,
    /// For reports and log lines.
    pub(super) status: EnhancedCode,
    /// In sendmail's words.
    pub(super) text: String,
    /// What the server said, if it spoke.
    pub(super) reply: Option<Reply>,
    /// The last host that was tried.
    pub(super) peer: Option<Candidate>,
    /// The server is going down; nothing is known about the destination.
    pub(super) is_ours: bool,
    /// Whether somebody said no.
    pub(super) failure: Failure,
}

impl Trouble {
    /// Nobody was there to say it; `status` is subject and detail.
    pub(super) const fn new(status: (u16, u16), text: String) -> Self {
        Self {
            is_permanent: false,
            status: EnhancedCode::of(Outcome::Transient, status.0, status.1),
            text,
            reply: None,
            peer: None,
            is_ours: false,
            failure: Failure::Refused,
        }
    }

    /// The DNS names no host.
    pub(super) fn no_hosts(no: NoHosts) -> Self {
        Self { is_permanent: no.permanent, status: no.status, ..Self::new((0, 0), no.text) }
    }

    /// As *settle* takes it.
    pub(super) fn cause(&self) -> Cause {
        Cause::new(self.status, self.text.clone(), self.reply.clone())
    }
}

/// What came of one address.
enum Reached {
    Ready(Box<Link>),
    /// The handshake failed; in clear it might work.
    TlsFailed(Trouble),
    Failed(Trouble),
}

/// Opens a connection to a site.
///
/// # Errors
/// Why no host of it can be used.
/// # Cancel safety
/// Yes: a connection that was open is dropped.
pub(super) async fn open<N: Future<Output = ()>>(
    service: &Arc<Service>,
    config: &Config,
    site: Site,
    _lane: Lane,
    wait: &mut Wait<'_, N>,
) -> Result<Box<Link>, Trouble> {
    let mut last = None;
    for candidate in site.candidates {
        let tls = match site.rule.tls {
            RouteTls::None => TlsUse::Never,
            RouteTls::Opportunistic => TlsUse::IfOffered,
            RouteTls::Required => TlsUse::Required,
        };
        let mut reached = reach(service, config, candidate.clone(), tls, wait).await;
        if matches!(reached, Reached::TlsFailed(_)) && tls == TlsUse::IfOffered {
            reached = reach(service, config, candidate, TlsUse::Never, wait).await;
        }
        match reached {
            Reached::Ready(link) => return Ok(link),
            Reached::Failed(trouble) | Reached::TlsFailed(trouble) if trouble.is_ours => return Err(trouble),
            Reached::Failed(trouble) | Reached::TlsFailed(trouble) => last = Some(trouble),
        }
    }
    Err(last.unwrap_or_else(|| Trouble::new((4, 4), "no address to connect to".to_owned())))
}

/// Connects to one address and waits until its server is ready for mail.
async fn reach<N: Future<Output = ()>>(
    service: &Arc<Service>,
    config: &Config,
    candidate: Candidate,
    tls: TlsUse,
    wait: &mut Wait<'_, N>,
) -> Reached {
    let trouble =
        |status: (u16, u16), text: String| Trouble { peer: Some(candidate.clone()), ..Trouble::new(status, text) };
    let silent = |text: String| Trouble { failure: Failure::Silent, ..trouble((4, 1), text) };
    let limit = config.delivery.connect_time;
    let dialled = tokio::select! {
        biased;
        dialled = tokio::time::timeout(limit, dial(service, candidate.address)) => dialled,
        () = service.stop.begun() => {
            return Reached::Failed(Trouble { is_ours: true, ..trouble((3, 2), "the server is going down".to_owned()) });
        }
    };
    let transport = match dialled {
        Ok(Ok(transport)) => transport,
        Ok(Err(error)) => return Reached::Failed(trouble((4, 1), connect_error(&error, &candidate))),
        Err(_) => return Reached::Failed(silent(format!("Connection timed out with {}", candidate.name))),
    };
    let settings = settings(config, tls);
    let is_lmtp = settings.dialect == Dialect::Lmtp;
    let session = Session::new(Arc::new(settings));
    let mut link = Box::new(Link::new(session, transport, candidate.clone(), is_lmtp));
    let mut nobody = pin!(pending::<()>());
    loop {
        match link.next(wait, nobody.as_mut(), false, None).await {
            Next::Step(Step::StartTls) => match start_tls(service, &mut link, config).await {
                Ok(()) => {}
                Err(text) => {
                    let relay = next_hop(&candidate);
                    service.tell(&Event::TlsClientFailed { relay, reason: &text });
                    return Reached::TlsFailed(trouble(
                        (7, 5),
                        format!("TLS handshake with {} failed: {text}", candidate.name),
                    ));
                }
            },
            Next::Step(Step::Ready) => return Reached::Ready(link),
            Next::Step(_) => {
                let closing = link.session.closing();
                let trouble = refused(closing, &candidate);
                // A server that offers STARTTLS and then breaks off, or talks on in clear.
                let is_broken = |closing: &Closing| closing.stage == Stage::StartTls && closing.loss.is_some();
                if closing.is_some_and(is_broken) {
                    service.tell(&Event::TlsClientFailed { relay: next_hop(&candidate), reason: &trouble.text });
                    return Reached::TlsFailed(trouble);
                }
                return Reached::Failed(trouble);
            }
            Next::Stopping => {
                return Reached::Failed(Trouble {
                    is_ours: true,
                    ..trouble((3, 2), "the server is going down".to_owned())
                });
            }
            Next::Rung | Next::Idle => {}
        }
    }
}

/// What a session that ended before it was ready had to say.
fn refused(closing: Option<&Closing>, candidate: &Candidate) -> Trouble {
    let text = format!("Connection to {} was closed", candidate.name);
    let mut trouble = Trouble { peer: Some(candidate.clone()), ..Trouble::new((4, 2), text) };
    let Some(closing) = closing else { return trouble };
    let stage = closing.stage.as_str();
    if let Some(reply) = &closing.reply {
        // RFC 5321 §3.8: whatever is said before the first transaction is about the host, not about a message
        trouble.status = reply.status().unwrap_or(trouble.status).with_outcome(Outcome::Transient);
        trouble.text = reply.to_string();
        trouble.reply = Some(reply.clone());
    } else {
        if closing.loss == Some(Loss::TimedOut) {
            trouble.failure = Failure::Silent;
        }
        trouble.text = match &closing.loss {
            Some(Loss::TimedOut) => format!("timeout waiting for {} during {stage}", candidate.name),
            Some(Loss::Protocol(what)) => format!("{} speaks no SMTP during {stage}: {what}", candidate.name),
            _ => format!("{} closed the connection during {stage}", candidate.name),
        };
    }
    trouble
}

/// Puts TLS under the session.
async fn start_tls(service: &Arc<Service>, link: &mut Link, config: &Config) -> Result<(), String> {
    let transport = std::mem::replace(&mut link.transport, Transport::Closed);
    let Transport::Plain(stream) = transport else { return Err("not on this kind of connection".to_owned()) };
    let deadline = clock::now() + config.tls.handshake_time_max;
    let name = link.peer.server_name.clone();
    let (stream, info) = service.connector.connect(stream, &name, deadline).await.map_err(|error| error.to_string())?;
    let TlsInfo { version, cipher, bits, verify } = &info;
    let relay = next_hop(&link.peer);
    service.tell(&Event::StartTlsClient { relay, version, cipher, bits: *bits, verify });
    link.transport = Transport::TlsOut(Box::new(stream));
    let now = link.now();
    link.session.tls_started(now);
    Ok(())
}

/// How the log names a host.
pub(super) fn next_hop(candidate: &Candidate) -> NextHop<'_> {
    let name = Some(&*candidate.name).filter(|name| !name.starts_with('['));
    NextHop::Host { name, address: candidate.address.ip() }
}

async fn dial(service: &Service, address: SocketAddr) -> io::Result<Transport> {
    #[cfg(test)]
    if let Some(internet) = &service.internet {
        return internet.connect(address).await;
    }
    let _ = service;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    let stream: TcpStream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Transport::Plain(stream))
}

/// In sendmail's words.
fn connect_error(error: &io::Error, candidate: &Candidate) -> String {
    let name = &candidate.name;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("Connection refused by {name}"),
        io::ErrorKind::ConnectionReset => format!("Connection reset by {name}"),
        io::ErrorKind::TimedOut => format!("Connection timed out with {name}"),
        io::ErrorKind::HostUnreachable => format!("No route to host {name}"),
        io::ErrorKind::NetworkUnreachable => format!("Network is unreachable for {name}"),
        _ => format!("{error} for {name}"),
    }
}

/// What our side of a session does and bears.
fn settings(config: &Config, tls: TlsUse) -> Settings {
    let delivery = &config.delivery;
    let seconds = Duration::from_secs;
    Settings {
        dialect: match config.route.protocol {
            RouteProtocol::Lmtp if !config.route.smart_host.is_empty() => Dialect::Lmtp,
            _ => Dialect::Smtp,
        },
        hello: config.hostname.as_str().into(),
        tls,
        limits: Limits {
            greeting: delivery.greeting_time,
            hello: delivery.command_time,
            mail: delivery.command_time,
            rcpt: delivery.command_time,
            data: delivery.data_time,
            block: delivery.block_time,
            end: delivery.end_time,
            tls: seconds(120).min(delivery.command_time),
            rset: seconds(120).min(delivery.command_time),
            farewell: FAREWELL_TIME,
            ..Limits::default()
        },
        pipelining: delivery.pipelining,
        chunking: delivery.chunking,
    }
}
