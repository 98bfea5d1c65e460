//! Listening sockets, and taking connections off them.
//!
//! [`bind`] makes the sockets of all `[[listen]]` entries, or takes those that systemd handed over;
//! [`ConnectionAcceptor`] is one socket in the hands of one task. Every listener has several sockets on one address
//! (SO_REUSEPORT), one per worker, so that the kernel spreads new connections and no worker waits for another to
//! accept.
//!
//! Invariants: the port never closes. A connection that may have no session is taken, answered and closed in a few
//! system calls that cannot block ([`refuse`]); where the process has no file descriptor left, one kept in reserve is
//! given up for the time this takes. Options of a connection (TCP_NODELAY, keep-alive) are set on the listening socket,
//! from which the kernel copies them, and cost nothing per connection.
//!
//! Not here: limits ([`super::limits`]), the client behind a proxy ([`super::proxy`]), TLS.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use super::limits::Limit;
use crate::config::Listen;

/// The kernel cuts every backlog to this.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// Idle time after which the kernel probes a peer. Hosts that vanish are found long before the five minutes of a
/// command are over; in a slow body nothing else would find them.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// First and longest pause after an error that accepting again at once would only repeat.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The sockets of one `[[listen]]` entry.
#[derive(Debug)]
pub struct Listener {
    /// Index of the entry in the configuration.
    pub entry: usize,
    /// The address as bound: with the port that the system chose, if 0 was asked for.
    pub address: SocketAddr,
    /// At least one, nonblocking. Dropping one resets the connections that wait in it.
    pub sockets: Vec<std::net::TcpListener>,
    /// Handed over by systemd.
    pub given: bool,
}

/// Sockets that [`bind`] made, and notes for the operator.
#[derive(Debug)]
pub struct Bound {
    /// One for each entry, in order.
    pub listeners: Vec<Listener>,
    /// To be logged once.
    pub notes: Vec<BindNote>,
}

/// A note for the operator about something that does not keep the server from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindNote {
    /// `net.core.somaxconn` cuts the backlog.
    Backlog {
        /// `accept.backlog`.
        wanted: u32,
        /// The limit of the kernel.
        allowed: u32,
    },
    /// systemd handed over a socket that no entry asks for. It is closed.
    NotConfigured(SocketAddr),
    /// The entry is served by systemd's socket for all addresses of both families.
    Covered {
        /// The entry's address.
        address: SocketAddr,
        /// The socket's.
        by: SocketAddr,
    },
}

impl fmt::Display for BindNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backlog { wanted, allowed } => write!(
                f,
                "accept.backlog = {wanted} is cut to {allowed} by the kernel; sysctl net.core.somaxconn={wanted} raises it"
            ),
            Self::NotConfigured(address) => write!(
                f,
                "socket {address} from systemd closed: no [[listen]] entry has this address; add one, or remove ListenStream"
            ),
            Self::Covered { address, by } => {
                write!(f, "listen address {address} is served by socket {by} from systemd")
            }
        }
    }
}

/// An address that could not be bound.
#[derive(Debug)]
pub struct BindError {
    /// Index of the entry in the configuration.
    pub entry: usize,
    /// The address.
    pub address: SocketAddr,
    /// The error of the system.
    pub error: io::Error,
    /// The process that has the address, if it is taken and the system shows its owner.
    pub holder: Option<String>,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, error, .. } = self;
        let port = address.port();
        match (error.kind(), &self.holder) {
            (ErrorKind::PermissionDenied, _) => write!(
                f,
                "cannot listen on {address}: ports below 1024 are for root; start as root with server.user set, use a \
                 systemd socket (ListenStream={port}), or: setcap cap_net_bind_service=+ep on the program"
            ),
            (ErrorKind::AddrInUse, Some(holder)) => {
                write!(f, "cannot listen on {address}: {holder} listens there; stop it, or take another listen address")
            }
            (ErrorKind::AddrInUse, None) => write!(
                f,
                "cannot listen on {address}: another program listens there; find it as root: ss -ltnp 'sport = :{port}'"
            ),
            (ErrorKind::AddrNotAvailable, _) => write!(
                f,
                "cannot listen on {address}: this machine has no such address; ip addr lists those it has, 0.0.0.0 and \
                 [::] stand for all"
            ),
            _ if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => write!(
                f,
                "cannot listen on {address}: this machine has no IPv{}; remove the [[listen]] entry",
                if address.is_ipv4() { 4 } else { 6 }
            ),
            _ => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Binds the address of each entry, with `sockets_each` sockets. A socket in `given`, systemd's, that has an entry's
/// address is used in place of own ones. Blocking, for the start.
///
/// # Errors
/// All addresses that could not be bound. Nothing stays bound then.
pub fn bind(
    entries: &[Listen],
    given: Vec<std::net::TcpListener>,
    backlog: u32,
    sockets_each: usize,
) -> Result<Bound, Vec<BindError>> {
    let mut bound = Bound { listeners: Vec::new(), notes: Vec::new() };
    let mut errors = Vec::new();
    let mut given = InheritedSockets::new(given);
    for (entry, Listen { address, .. }) in entries.iter().enumerate() {
        let listener = match given.take(*address) {
            Some(Ok(socket)) => adopt(entry, *address, socket, backlog),
            Some(Err(by)) => {
                bound.notes.push(BindNote::Covered { address: *address, by });
                Ok(Listener { entry, address: *address, sockets: Vec::new(), given: true })
            }
            None => open_all(entry, *address, backlog, sockets_each),
        };
        match listener {
            Ok(listener) => bound.listeners.push(listener),
            Err(error) => {
                let holder = (error.kind() == ErrorKind::AddrInUse).then(|| holder(*address)).flatten();
                errors.push(BindError { entry, address: *address, error, holder });
            }
        }
    }
    bound.notes.extend(given.left().map(BindNote::NotConfigured));
    let allowed = fs::read_to_string(SOMAXCONN).ok().and_then(|text| text.trim().parse().ok());
    bound.notes.extend(
        allowed.filter(|allowed| *allowed < backlog).map(|allowed| BindNote::Backlog { wanted: backlog, allowed }),
    );
    if errors.is_empty() { Ok(bound) } else { Err(errors) }
}

/// Sockets from systemd, each until an entry takes it.
struct InheritedSockets(Vec<(SocketAddr, bool, Option<std::net::TcpListener>)>);

impl InheritedSockets {
    fn new(sockets: Vec<std::net::TcpListener>) -> Self {
        let known = sockets.into_iter().filter_map(|socket| {
            let address = socket.local_addr().ok()?;
            let both =
                address.ip() == Ipv6Addr::UNSPECIFIED && SockRef::from(&socket).only_v6().is_ok_and(|only| !only);
            Some((address, both, Some(socket)))
        });
        Self(known.collect())
    }

    /// Returns the socket with this address, or the address of one for both families that has its port: an own socket
    /// for 0.0.0.0 could not be bound beside it.
    fn take(&mut self, address: SocketAddr) -> Option<Result<std::net::TcpListener, SocketAddr>> {
        if let Some((.., socket)) = self.0.iter_mut().find(|(own, _, socket)| *own == address && socket.is_some()) {
            return socket.take().map(Ok);
        }
        let covers = |own: &SocketAddr, both: bool| both && own.port() == address.port() && address.is_ipv4();
        self.0.iter().find(|(own, both, _)| covers(own, *both)).map(|(own, ..)| Err(*own))
    }

    fn left(self) -> impl Iterator<Item = SocketAddr> {
        self.0.into_iter().filter(|(.., socket)| socket.is_some()).map(|(address, ..)| address)
    }
}

/// Makes systemd's socket like our own. It already listens; listening again sets the backlog.
fn adopt(entry: usize, address: SocketAddr, socket: std::net::TcpListener, backlog: u32) -> io::Result<Listener> {
    let own = SockRef::from(&socket);
    set_options(&own)?;
    own.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(Listener { entry, address, sockets: vec![socket], given: true })
}

fn open_all(entry: usize, address: SocketAddr, backlog: u32, sockets: usize) -> io::Result<Listener> {
    // SO_REUSEPORT would let a second server of the same user share the port without an error. A socket without it
    // can be bound only where no other process listens.
    if address.port() != 0 {
        socket(address)?.bind(&address.into())?;
    }
    let mut listener = Listener { entry, address, sockets: Vec::new(), given: false };
    for _ in 0..sockets.max(1) {
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&listener.address.into())?;
        set_options(&socket)?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        let socket = std::net::TcpListener::from(socket);
        listener.address = socket.local_addr()?;
        listener.sockets.push(socket);
    }
    Ok(listener)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // 0.0.0.0 has an entry of its own.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Options that the kernel copies to every accepted connection, and nonblocking mode, which it does not.
fn set_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_nonblocking(true)
}

/// Names the program whose socket prevents binding an address: `postfix/master, pid 711`. Only root sees other users'
/// programs.
fn holder(address: SocketAddr) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|table| fs::read_to_string(table).ok());
    let tables: Vec<String> = tables.collect();
    let listening = tables.iter().flat_map(|table| table.lines()).filter_map(listening);
    let in_the_way = listening.filter(|(own, _)| is_in_the_way(*own, address));
    let inodes: Vec<String> = in_the_way.map(|(_, inode)| format!("socket:[{inode}]")).collect();
    if inodes.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    processes.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)).find_map(|entry| {
        let has_it = |file: fs::DirEntry| {
            fs::read_link(file.path()).is_ok_and(|target| inodes.iter().any(|inode| Path::new(inode) == target))
        };
        let found = fs::read_dir(entry.path().join("fd")).ok()?.filter_map(Result::ok).any(has_it);
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        found.then(|| format!("{}, pid {},", name.trim(), entry.file_name().to_string_lossy()))
    })
}

/// Returns whether a socket that listens at `own` keeps another from `wanted`: the same address, or one of them
/// stands for all.
fn is_in_the_way(own: SocketAddr, wanted: SocketAddr) -> bool {
    let (here, there) = (own.ip().to_canonical(), wanted.ip().to_canonical());
    // One for all of IPv6 may be one for all of IPv4 as well.
    let covers = here.is_unspecified() && (here.is_ipv6() || there.is_ipv4());
    let is_covered = there.is_unspecified() && here.is_ipv4() == there.is_ipv4();
    own.port() == wanted.port() && (here == there || covers || is_covered)
}

/// Address and inode of a listening socket in a line of /proc/net/tcp or tcp6.
fn listening(line: &str) -> Option<(SocketAddr, &str)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state) = (words.get(1)?, words.get(3)?);
    let (ip, port) = local.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of 32 bits, each as this machine writes a number whose octets are in the order of the network.
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut octets = [0; 16];
            for (place, at) in octets.chunks_mut(4).zip((0..32).step_by(8)) {
                place.copy_from_slice(&word(at)?);
            }
            IpAddr::from(octets)
        }
        _ => return None,
    };
    // 0A: listening
    (*state == "0A").then_some((SocketAddr::new(ip, port), *words.get(9)?))
}

/// Result of an accept on a socket.
#[derive(Debug)]
pub enum Accepted {
    /// A connection and its peer; IPv4 peers on IPv6 sockets have their IPv4 address.
    Connection(TcpStream, SocketAddr),
    /// A connection that was answered 421 and closed, for lack of a file descriptor.
    Refused(SocketAddr),
    /// Nothing could be accepted. Already paused for it; to be logged, not more than once in a while.
    Trouble {
        /// The error of the system.
        error: io::Error,
        /// How long accepting paused.
        pause: Duration,
    },
}

/// One listening socket of one task.
#[derive(Debug)]
pub struct ConnectionAcceptor {
    socket: TcpListener,
    /// A file descriptor to give up when there is no other.
    spare: Option<File>,
    pause: Duration,
}

impl ConnectionAcceptor {
    /// Takes a socket of a [`Listener`].
    ///
    /// # Errors
    /// When it cannot be registered, or no file descriptor is left for the reserve.
    /// # Panics
    /// HeaderRewrite a tokio runtime.
    pub fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpListener::from_std(socket)?, spare: Some(reserve()?), pause: PAUSE_MIN })
    }

    /// Waits for the next connection, or for the next event to report.
    ///
    /// # Cancel safety
    /// Cancel safe: no connection is lost.
    pub async fn accept(&mut self) -> Accepted {
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    self.pause = PAUSE_MIN;
                    if self.spare.is_none() {
                        self.spare = reserve().ok();
                    }
                    return Accepted::Connection(stream, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if is_out_of_files(&error)
                        && let Some(peer) = self.refuse_with_spare()
                    {
                        return Accepted::Refused(peer);
                    }
                    let pause = self.pause;
                    self.pause = (pause * 2).min(PAUSE_MAX);
                    tokio::time::sleep(pause).await;
                    return Accepted::Trouble { error, pause };
                }
            }
        }
    }

    /// Gives up the spare descriptor for as long as it takes to say 421. `None` when that did not work either.
    fn refuse_with_spare(&mut self) -> Option<SocketAddr> {
        drop(self.spare.take()?);
        // This function must not wait, so it does not use the tokio socket's own call; the socket is nonblocking all
        // the same.
        let accepted = SockRef::from(&self.socket).accept();
        let peer = accepted.ok().and_then(|(stream, address)| {
            refuse(&stream, Limit::Files.reply());
            address.as_socket()
        });
        self.spare = reserve().ok();
        peer.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()))
    }
}

fn reserve() -> io::Result<File> {
    File::open("/dev/null")
}

/// Returns whether the error is of a connection that broke before it was accepted: the next one is not concerned.
fn is_of_one_connection(error: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable,
    };
    // accept(2): Linux passes pending network errors of the new socket
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | HostUnreachable | Interrupted | NetworkDown | NetworkUnreachable
    ) || error.raw_os_error().is_some_and(|code| {
        [Errno::PROTO, Errno::HOSTDOWN, Errno::NOPROTOOPT, Errno::PERM].iter().any(|errno| errno.raw_os_error() == code)
    })
}

fn is_out_of_files(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Answers `reply` (ready for the wire, [`Limit::reply`]) and closes, without ever waiting: no task, no buffer, a few
/// system calls. The reply fits the empty send buffer of a new connection, and the kernel goes on to deliver it after
/// the close; a client that takes it slowly holds nothing of ours.
///
/// Call it with a [`socket2::SockRef`] of the connection, which is then to be dropped.
pub fn refuse(stream: &Socket, reply: &str) {
    // A failure has no remedy: the peer is gone, or gets a bare close.
    try_refuse(stream, reply).ok();
}

fn try_refuse(mut stream: &Socket, reply: &str) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    // Octets that a PROXY header or an early talker left unread would turn the close into a reset, which makes the
    // peer discard the reply. The loop is bounded, so that a fast sender cannot hold the worker.
    let mut unread = [0; 1_024];
    for _ in 0..16 {
        if !matches!(stream.read(&mut unread), Ok(read) if read == unread.len()) {
            break;
        }
    }
    stream.write_all(reply.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)
}

#[cfg(test)]
mod tests;
