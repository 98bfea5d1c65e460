//! A connection to an address, or to one of two.
//!
//! IPv6 may be configured and lead nowhere. So where a host has both kinds of address and one of IPv6 is silent, one
//! of IPv4 is tried after a moment; an address that refuses at once costs nothing anyway. The attempt at the silent
//! one is dropped first: a host with a limit of one connection never sees two.

use super::Candidate;
use crate::config::EffectiveRule;
use crate::next_hop::Endpoint;
use crate::outbound::Outbound;
use crate::transport::Transport;
use os::clock;
use os::error::words;
use schedule::Failure;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

/// Time for which the first of two addresses is tried alone.
// RFC 8305 §8: the recommended Connection Attempt Delay
const HEAD_START: Duration = Duration::from_millis(250);

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum DialError {
    /// The time limit passed.
    Silent,
    /// The kernel does not let us connect from the configured source.
    Source(IpAddr, io::Error),
    /// Everything else.
    Error(io::Error),
}

fn is_link_local(host: &Candidate) -> bool {
    matches!(host.address.ip(), Some(IpAddr::V6(ip)) if ip.is_unicast_link_local())
}

impl DialError {
    /// Words it for the log, in sendmail's words where it has some.
    pub(super) fn text(&self, host: &Candidate, rule: &EffectiveRule) -> String {
        let name = &host.name;
        let error = match self {
            Self::Silent => return format!("Connection timed out with {name}"),
            Self::Source(ip, error) => {
                let rule = rule.index.map_or(0, |index| index + 1);
                return format!(
                    "cannot connect to {name} from {ip}: {}; name addresses of this machine in source of [[destination]] {rule}",
                    words(error)
                );
            }
            Self::Error(error) => error,
        };
        match error.kind() {
            io::ErrorKind::NotFound => format!("{name} is not there; is the server that should listen at it running?"),
            io::ErrorKind::PermissionDenied => format!("permission denied to connect to {name}"),
            io::ErrorKind::ConnectionRefused => format!("Connection refused by {name}"),
            io::ErrorKind::ConnectionReset => format!("Connection reset by {name}"),
            io::ErrorKind::TimedOut => format!("Connection timed out with {name}"),
            io::ErrorKind::HostUnreachable => format!("No route to host {name}"),
            io::ErrorKind::NetworkUnreachable => format!("Network is unreachable for {name}"),
            // The system says "Invalid argument" to an address of a link without the link.
            io::ErrorKind::InvalidInput if is_link_local(host) => {
                format!("{name} has a link-local address without an interface")
            }
            _ => format!("{} for {name}", words(error)),
        }
    }

    /// Returns the kind of the failure: an address refused, or all were silent, or it is ours.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Silent => Failure::Silent,
            Self::Error(error) if error.kind() == io::ErrorKind::TimedOut => Failure::Silent,
            Self::Source(..) | Self::Error(_) if self.is_about_host() => Failure::Refused,
            Self::Source(..) | Self::Error(_) => Failure::Local,
        }
    }

    /// Returns whether it says something about the host. A lack of routes, descriptors or addresses is ours.
    pub(super) fn is_about_host(&self) -> bool {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, TimedOut};
        match self {
            Self::Silent => true,
            Self::Source(..) => false,
            Self::Error(error) => matches!(
                error.kind(),
                ConnectionAborted | ConnectionRefused | ConnectionReset | HostUnreachable | TimedOut
            ),
        }
    }

    /// Returns whether the mistake is in the configuration.
    pub(super) const fn is_ours(&self) -> bool {
        matches!(self, Self::Source(..))
    }
}

/// Result of connecting to two addresses.
#[derive(Debug)]
pub(super) enum Raced {
    First(Transport),
    Second(Transport),
    /// Neither answered. `None`: the second was not begun.
    Nobody(DialError, Option<DialError>),
}

/// Connects by a rule, within a time for each address.
#[derive(Clone, Copy)]
pub(super) struct Dialler<'a> {
    pub(super) outbound: &'a Outbound,
    pub(super) rule: &'a EffectiveRule,
    pub(super) limit: Duration,
}

impl Dialler<'_> {
    /// Connects to an address.
    ///
    /// # Errors
    /// Why not.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn one(self, address: &Endpoint) -> Result<Transport, DialError> {
        tokio::time::timeout(self.limit, self.dial(address)).await.unwrap_or(Err(DialError::Silent))
    }

    /// Connects to `first`, and after a moment of silence to `second` in its place; if that refuses, to `first` again
    /// for the rest of its time.
    ///
    /// # Cancel safety
    /// Yes.
    // RFC 8305 §5 (gap: one attempt at a time, never two beside each other)
    pub(super) async fn race(self, first: &Endpoint, second: Option<&Endpoint>) -> Raced {
        let Some(second) = second else {
            return self.one(first).await.map_or_else(|miss| Raced::Nobody(miss, None), Raced::First);
        };
        if let Ok(dialled) = tokio::time::timeout(HEAD_START, self.one(first)).await {
            return dialled.map_or_else(|miss| Raced::Nobody(miss, None), Raced::First);
        }
        let began = clock::now();
        let other = match self.one(second).await {
            Ok(transport) => return Raced::Second(transport),
            Err(other) => other,
        };
        let took = HEAD_START + clock::now().saturating_duration_since(began);
        match self.limit.saturating_sub(took) {
            Duration::ZERO => Raced::Nobody(DialError::Silent, Some(other)),
            limit => {
                let again = Self { limit, ..self }.one(first).await;
                again.map_or_else(|miss| Raced::Nobody(miss, Some(other)), Raced::First)
            }
        }
    }

    async fn dial(self, address: &Endpoint) -> Result<Transport, DialError> {
        let address = match address {
            Endpoint::Socket(address) => *address,
            Endpoint::Unix(path) => {
                return UnixStream::connect(path).await.map(Transport::Local).map_err(DialError::Error);
            }
        };
        #[cfg(test)]
        if let Some(internet) = &self.outbound.internet {
            return internet.connect(address).await.map_err(DialError::Error);
        }
        let _ = self.outbound;
        let (socket, source) = match address {
            SocketAddr::V4(_) => (TcpSocket::new_v4(), self.rule.source4.map(IpAddr::from)),
            SocketAddr::V6(_) => (TcpSocket::new_v6(), self.rule.source6.map(IpAddr::from)),
        };
        let socket = socket.map_err(DialError::Error)?;
        if let Some(ip) = source {
            socket.bind(SocketAddr::new(ip, 0)).map_err(|error| DialError::Source(ip, error))?;
        }
        let stream: TcpStream = socket.connect(address).await.map_err(DialError::Error)?;
        stream.set_nodelay(true).map_err(DialError::Error)?;
        Ok(Transport::Plain(stream))
    }
}
