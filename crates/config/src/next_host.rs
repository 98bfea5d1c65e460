//! Entries of `route.smart_host` and `cluster.engines`: a host and a port, as people write them.

use mail::DomainName;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The port where none is written (RFC 5321 §4.5.4.2).
const PORT: u16 = 25;

/// A host to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name; its addresses are looked up, its MX records are not.
    Name(DomainName),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    /// As sendmail's log has it: `mx.example.com`, `[192.0.2.1]`, `[2001:db8::1]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => write!(f, "[{address}]"),
        }
    }
}

impl FromStr for Host {
    type Err = NoHost;

    /// A name, or an address with brackets or without.
    fn from_str(text: &str) -> Result<Self, NoHost> {
        let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let plain = inside.map_or(text, |inside| inside.strip_prefix("IPv6:").unwrap_or(inside));
        if let Ok(address) = plain.parse() {
            return Ok(Self::Address(address));
        }
        match inside {
            Some(inside) => Err(name(inside).map_or(NoHost::Form, NoHost::NameInBrackets)),
            None => name(text).map(Self::Name).ok_or(NoHost::Form),
        }
    }
}

/// A host and a port of it; written `mx.example.com:25`, `[192.0.2.1]:25`, `[2001:db8::1]:25`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

impl HostPort {
    /// Whether both are the same host and port; the case of names does not matter.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_host = match (&self.host, &other.host) {
            (Host::Name(name), Host::Name(other)) => name.ascii() == other.ascii(),
            (Host::Address(ip), Host::Address(other)) => ip == other,
            _ => false,
        };
        is_host && self.port == other.port
    }

    /// As sockets are written: `mx3.example.com:4222`, `192.0.2.1:4222`, `[2001:db8::1]:4222`.
    #[must_use]
    pub fn socket_text(&self) -> String {
        match &self.host {
            Host::Name(name) => format!("{}:{}", name.ascii(), self.port),
            Host::Address(address) => SocketAddr::new(*address, self.port).to_string(),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why a text is no host with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoHost {
    /// Neither a name nor an address.
    Form,
    /// The text behind the colon is no port from 1 to 65535.
    Port,
    /// An IPv6 address without brackets: its end could be a port.
    Ipv6WithoutBrackets(Ipv6Addr),
    /// A name in brackets, by which sendmail and Postfix ask not to look up MX records.
    NameInBrackets(DomainName),
}

impl fmt::Display for NoHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "is no host with a port",
            Self::Port => "has no port from 1 to 65535 behind its colon",
            Self::Ipv6WithoutBrackets(_) => "is an IPv6 address without brackets",
            Self::NameInBrackets(_) => "has a name in brackets; MX records of a smart host are never asked for",
        })
    }
}

impl std::error::Error for NoHost {}

impl FromStr for HostPort {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        Self::read(text, PORT)
    }
}

impl HostPort {
    /// Reads a host, and a port where it is not `usual_port`.
    ///
    /// # Errors
    /// The text is neither.
    pub fn read(text: &str, usual_port: u16) -> Result<Self, NoHost> {
        if let Some(inside) = text.strip_prefix('[') {
            let (inside, rest) = inside.split_once(']').ok_or(NoHost::Form)?;
            // Mail addresses tag IPv6 (RFC 5321 §4.1.3), so people do it here.
            let plain = inside.strip_prefix("IPv6:").unwrap_or(inside);
            let port = match rest.strip_prefix(':') {
                Some(port) => read_port(port)?,
                None if rest.is_empty() => usual_port,
                None => return Err(NoHost::Form),
            };
            return match plain.parse() {
                Ok(address) => Ok(Self { host: Host::Address(address), port }),
                Err(_) => Err(name(inside).map_or(NoHost::Form, NoHost::NameInBrackets)),
            };
        }
        if let Ok(address) = text.parse() {
            return Err(NoHost::Ipv6WithoutBrackets(address));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let host = match host.parse::<Ipv4Addr>() {
            Ok(address) => Host::Address(address.into()),
            Err(_) => Host::Name(name(host).ok_or(NoHost::Form)?),
        };
        Ok(Self { host, port: port.map_or(Ok(usual_port), read_port)? })
    }
}

fn read_port(text: &str) -> Result<u16, NoHost> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0).ok_or(NoHost::Port)
}

/// A name that could be in the DNS: "10.0.0.300" is a mistyped address.
fn name(text: &str) -> Option<DomainName> {
    let last = text.rsplit('.').next().unwrap_or(text);
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    DomainName::new(text).ok().filter(|_| !is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (text, written) in [
            ("mx.example.com", "mx.example.com:25"),
            ("mx.example.com:2525", "mx.example.com:2525"),
            ("localhost:24", "localhost:24"),
            ("bücher.example", "bücher.example:25"),
            ("192.0.2.1", "[192.0.2.1]:25"),
            ("192.0.2.1:587", "[192.0.2.1]:587"),
            ("[192.0.2.1]", "[192.0.2.1]:25"),
            ("[2001:DB8:0::1]", "[2001:db8::1]:25"),
            ("[IPv6:2001:db8::1]:24", "[2001:db8::1]:24"),
        ] {
            let host: HostPort = text.parse().unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(host.to_string(), written);
            assert_eq!(written.parse(), Ok(host));
        }
    }

    #[test]
    fn hosts_of_sockets() {
        for (text, written) in [
            ("mx.example.com", "mx.example.com:4222"),
            ("bücher.example:1", "xn--bcher-kva.example:1"),
            ("192.0.2.1", "192.0.2.1:4222"),
            ("[192.0.2.1]:25", "192.0.2.1:25"),
            ("[2001:DB8:0::1]", "[2001:db8::1]:4222"),
        ] {
            let host = HostPort::read(text, 4_222).unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(host.socket_text(), written);
            assert_eq!(HostPort::read(written, 4_222).map(|host| host.socket_text()).as_deref(), Ok(written));
        }
    }

    #[test]
    fn hosts_without_a_port() {
        for (text, written) in [
            ("mx.example.com", "mx.example.com"),
            ("192.0.2.1", "[192.0.2.1]"),
            ("[192.0.2.1]", "[192.0.2.1]"),
            ("[IPv6:2001:db8::1]", "[2001:db8::1]"),
            ("2001:DB8::1", "[2001:db8::1]"),
        ] {
            let host: Host = text.parse().unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(host.to_string(), written);
            assert_eq!(written.parse(), Ok(host));
        }
        for text in ["", "[]", "mx.example.com:25", "[192.0.2.1]:25", "10.0.0.300", "a b", "[192.0.2.1"] {
            assert_eq!(text.parse::<Host>(), Err(NoHost::Form), "{text}");
        }
        assert!(matches!("[mx.example.com]".parse::<Host>(), Err(NoHost::NameInBrackets(_))));
    }

    #[test]
    fn what_is_none() {
        for text in ["", ":25", "[]", "[]:25", "[::1", "[::1]25", "[::1]x:25", "10.0.0.300", "10", "a b", "a."] {
            assert_eq!(text.parse::<HostPort>(), Err(NoHost::Form), "{text}");
        }
        for text in
            ["a:0", "a:65536", "a:", "a:+25", "a:smtp", "192.0.2.1:x", "[::1]:0", "a:25:25", "smtp:[a]", "smtp://a"]
        {
            assert_eq!(text.parse::<HostPort>(), Err(NoHost::Port), "{text}");
        }
        let address = "2001:db8::1:25".parse().expect("an address");
        assert_eq!("2001:db8::1:25".parse::<HostPort>(), Err(NoHost::Ipv6WithoutBrackets(address)));
        let name = DomainName::new("mx.example.com").expect("a name");
        assert_eq!("[mx.example.com]:25".parse::<HostPort>(), Err(NoHost::NameInBrackets(name)));
    }
}
