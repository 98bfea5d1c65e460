//! The accept loop, and the way of a connection until its greeting.
//!
//! ```text
//! accept → limits → PROXY header, maps outside → limits of its client
//!        → TLS, if implicit → names, block lists, pause → greeting
//! ```
//!
//! One loop for each socket takes connections and spawns one task for each; it waits for nothing else, so a slow
//! client delays no other. A connection over a limit gets its 421 from the loop itself and has no task.

use crate::accept::client::{self, CANNOT_SAY, ClientLimitsLookup};
use crate::accept::limits::{AdmittedConnection, Limit, Limits, Refusal};
use crate::accept::listener::{Accepted, ConnectionAcceptor, refuse};
use crate::accept::proxy;
use crate::active_config::ActiveConfig;
use crate::context::Context;
use crate::inbound::Inbound;
use crate::listener_profile::{ListenerProfile, ListenerState};
use crate::stop::ConnectionCount;
use crate::tls::ClientCertificate;
use crate::transport::Transport;
use mail::{Client, Reply, ReplyCode};
use observe::{Event, Relay, Ruleset};
use os::clock;
use smtp::server::{Session, Tls};
use socket2::SockRef;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a proxy may take to send its header.
const PROXY_TIME_MAX: Duration = Duration::from_secs(5);
/// Reply to a client that comes while the node is drained, or whose proxy has not yet sent its header when the server
/// stops.
const SHUTTING_DOWN: &str = "421 4.3.2 Shutting down, closing connection\r\n";
/// Time between two log lines about errors of accept.
const TROUBLE_INTERVAL: Duration = Duration::from_secs(10);

/// A connection that was let in, whose greeting is due.
pub(crate) struct NewConnection {
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) lane: Arc<ListenerProfile>,
    pub(crate) session: Session,
    pub(crate) transport: Transport,
    /// The certificate of the client, if the connection began with a handshake.
    pub(crate) certificate: ClientCertificate,
    pub(crate) began: Instant,
}

/// Serves the connections that the accept loop lets in.
pub(crate) trait Serve: Clone + Send + Sync + 'static {
    /// Greets the client and runs the session to its end.
    fn serve(&self, connection: NewConnection) -> impl Future<Output = ()> + Send;
}

/// Takes connections from one socket until the server stops or the listener is closed.
pub(crate) async fn take_connections(
    inbound: Arc<Inbound>,
    limits: Arc<Limits>,
    listener: Arc<ListenerState>,
    mut acceptor: ConnectionAcceptor,
    serve: impl Serve,
) {
    let context = &inbound.context;
    let mut trouble_said: Option<Instant> = None;
    let mut stop = pin!(context.stop.begun());
    let mut closed = pin!(listener.closed.notified());
    // A reload may have closed the listener before this task began.
    closed.as_mut().enable();
    if listener.is_closed() {
        return;
    }
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            () = &mut closed => return,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Accepted::Connection(stream, peer) => take(&inbound, &limits, &listener, stream, peer, &serve),
            Accepted::Refused(peer) => {
                let max = inbound.open_files_max;
                let refusal = Refusal { limit: Limit::Files, value: u32::try_from(max).unwrap_or(u32::MAX) };
                report_refusal(context, &listener.lane.load(), peer, refusal);
            }
            Accepted::Trouble { error, .. } => {
                let now = clock::now();
                if trouble_said.is_none_or(|said| now.saturating_duration_since(said) >= TROUBLE_INTERVAL) {
                    trouble_said = Some(now);
                    let text =
                        format!("{}: accepting failed: {error}; connections wait in the kernel", listener.address);
                    context.record(&Event::InternalError { place: "accept", text: &text });
                }
            }
        }
    }
    // A node that is drained says so until it ends.
    while context.stop.answers_new() {
        if let Accepted::Connection(stream, _) = acceptor.accept().await {
            refuse(&SockRef::from(&stream), SHUTTING_DOWN);
        }
    }
}

/// Admits a connection and starts its task, or refuses it.
fn take(
    inbound: &Arc<Inbound>,
    limits: &Arc<Limits>,
    listener: &ListenerState,
    stream: TcpStream,
    peer: SocketAddr,
    serve: &impl Serve,
) {
    let context = &inbound.context;
    let began = clock::now();
    let lane = listener.lane.load_full();
    // Replies are complete when they are written; waiting to fill packets only delays them. A failure costs only
    // time.
    drop(stream.set_nodelay(true));
    let comes_by_proxy = proxy::expected(&lane.listen.proxy_protocol, peer.ip());
    let client =
        if comes_by_proxy { ClientLimitsLookup::Later } else { client::at_once(&context.routing.load(), peer.ip()) };
    let known = if let ClientLimitsLookup::ClientLimits(own) = client { Some((peer.ip(), own)) } else { None };
    match limits.admit_own(listener.entry, known, began) {
        Ok(guard) => {
            let open = ConnectionCount::new(&context.stop);
            let serve = serve.clone();
            let arrival = Arrival { inbound: Arc::clone(inbound), lane, peer, began, guard, serve };
            tokio::spawn(async move {
                if comes_by_proxy {
                    Box::pin(arrival.proxied(stream)).await;
                } else if client == ClientLimitsLookup::Later {
                    Box::pin(arrival.asked_about(stream)).await;
                } else if arrival.lane.is_implicit_tls() {
                    Box::pin(arrival.encrypted(stream)).await;
                } else {
                    arrival.open(Transport::Plain(stream), None, ClientCertificate::NotAsked).await;
                }
                drop(open);
            });
        }
        Err(refusal) => turn_away(context, &lane, &stream, peer, refusal),
    }
}

fn turn_away(context: &Context, lane: &ListenerProfile, stream: &TcpStream, peer: SocketAddr, refusal: Refusal) {
    refuse(&SockRef::from(stream), refusal.limit.reply());
    report_refusal(context, lane, peer, refusal);
}

fn report_refusal(context: &Context, lane: &ListenerProfile, peer: SocketAddr, refusal: Refusal) {
    let reply = refusal.limit.reply().trim_end();
    let (code, text) = reply.split_once(' ').unwrap_or((reply, ""));
    context.record(&Event::ConnectionRefused {
        relay: Relay::address(peer.ip()),
        daemon: &lane.listen.name,
        limit: observe::Limit::from_name(refusal.limit.name()),
        value: refusal.value.into(),
        max: refusal.value.into(),
        reply: &Reply::new(ReplyCode::of(code.parse().unwrap_or(421)), None, text),
    });
}

/// A connection before its greeting.
struct Arrival<S> {
    inbound: Arc<Inbound>,
    lane: Arc<ListenerProfile>,
    peer: SocketAddr,
    began: Instant,
    guard: AdmittedConnection,
    serve: S,
}

impl<S: Serve> Arrival<S> {
    /// Reads the header of a proxy, which speaks first.
    async fn proxied(mut self, mut stream: TcpStream) {
        let received = tokio::select! {
            received = proxy::receive(&mut stream, PROXY_TIME_MAX) => received,
            () = self.inbound.context.stop.begun() => return refuse(&SockRef::from(&stream), SHUTTING_DOWN),
        };
        let header = match received {
            Ok(header) => header,
            Err(proxy::NoHeader::Closed) => return,
            Err(error) => {
                let text = format!("{} on {}: {error}", self.peer, self.lane.listen.address);
                return self.inbound.context.record(&Event::ConfigWarning { text: &text });
            }
        };
        if let Some(client) = header.client {
            self.peer = client;
        }
        self.asked_about(stream).await;
    }

    /// Asks the access map for the limits of the client.
    async fn asked_about(mut self, stream: TcpStream) {
        let routing = self.inbound.context.routing.load_full();
        let own = tokio::select! {
            own = client::ask(&routing, self.peer.ip()) => own,
            () = self.inbound.context.stop.begun() => return refuse(&SockRef::from(&stream), SHUTTING_DOWN),
        };
        let own = match own {
            Ok(own) => own,
            Err(why) => return self.put_off(&stream, &why),
        };
        if let Err(refusal) = self.guard.admit_client(self.peer.ip(), own, clock::now()) {
            return turn_away(&self.inbound.context, &self.lane, &stream, self.peer, refusal);
        }
        if self.lane.is_implicit_tls() {
            return self.encrypted(stream).await;
        }
        self.open(Transport::Plain(stream), None, ClientCertificate::NotAsked).await;
    }

    /// Refuses a client for now, as the map with its limits cannot be asked.
    fn put_off(&self, stream: &TcpStream, why: &str) {
        refuse(&SockRef::from(stream), CANNOT_SAY);
        self.inbound.context.record(&Event::ConfigWarning { text: &format!("a map cannot be asked: {why}") });
        let (ip, text) = (self.peer.ip(), CANNOT_SAY.trim_end());
        self.inbound.context.record(&Event::Rejected {
            id: None,
            ruleset: Ruleset::Relay,
            arg1: None,
            arg2: Some(&ip.to_string()),
            relay: Relay::address(ip),
            reply: &Reply::new(ReplyCode::of(421), None, text.split_once(' ').map_or(text, |(_, text)| text)),
        });
    }

    async fn encrypted(self, stream: TcpStream) {
        let Some(acceptor) = &self.lane.tls else { return };
        let relay = Relay::address(self.peer.ip());
        let shaken = tokio::select! {
            shaken = acceptor.accept(stream, self.began + self.lane.handshake_time, true) => shaken,
            // Before the handshake the server cannot send a reason.
            () = self.inbound.context.stop.begun() => return,
        };
        match shaken {
            Ok((stream, tls, shown)) => {
                self.inbound.context.record(&shown.event(relay, &tls));
                self.open(Transport::Tls(Box::new(stream)), Some(tls), shown).await;
            }
            Err(error) => self.inbound.context.record(&Event::TlsFailed { relay, reason: &error.to_string() }),
        }
    }

    /// Lets the session run.
    async fn open(self, transport: Transport, tls: Option<Tls>, shown: ClientCertificate) {
        let Self { inbound, lane, peer, began, guard, serve } = self;
        let context = &inbound.context;
        context.record(&Event::Connected { relay: Relay::address(peer.ip()), daemon: &lane.listen.name });
        let live = context.live.load_full();
        let mut session = Session::new(offered(context, &lane, &live, peer), Client::Network(peer), tls);
        if live.trusts_xclient(peer.ip()) {
            session.trust_xclient();
        }
        session.trust_client(live.rights.is_from(peer.ip()));
        let since = clock::now().saturating_duration_since(began);
        session.begins_at(Duration::from_micros(clock::unix_us()).saturating_sub(since));
        serve.serve(NewConnection { inbound, lane, session, transport, certificate: shown, began }).await;
        drop(guard);
    }
}

/// Returns the offers to a client before the access map is asked: VRFY where there are maps or users to ask, EXPN
/// where the client may relay too.
fn offered(
    context: &Context,
    lane: &ListenerProfile,
    live: &ActiveConfig,
    peer: SocketAddr,
) -> Arc<smtp::server::Settings> {
    let settings = &lane.settings;
    let verify = settings.verify && !context.routing.load().is_plain();
    let expand = verify && settings.expand && live.rights.is_trusted(Client::Network(peer), None);
    if !settings.verify || (verify, expand) == (settings.verify, settings.expand) {
        return Arc::clone(settings);
    }
    Arc::new(smtp::server::Settings { verify, expand, ..smtp::server::Settings::clone(settings) })
}
