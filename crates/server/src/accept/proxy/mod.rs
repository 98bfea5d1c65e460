//! PROXY protocol, versions 1 and 2: a proxy in front of the server sends the client's address before anything else.
//!
//! [`read`] looks at all bytes that have come so far and waits for more, has a [`Header`], or finds that they are
//! none; it never needs more than [`BYTES_MAX`] and never uses a byte behind the header. [`receive`] drives it on a
//! socket. Lengths, signatures and the grammar of version 1 are checked here before the parser of the crate
//! `proxy-header` sees a complete header, since that one accepts more than a border of trust should.
//!
//! Not here: the proxy's own address is trusted only if it is one of `listen.proxy_protocol`, which the caller asks
//! with [`expected`]; from any other address the same bytes are a wrong command.
//!
//! Source: The PROXY protocol, versions 1 & 2, Willy Tarreau, 2020/03/05 (`proxy-protocol.txt` of HAProxy 2.8).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use proxy_header::{ParseConfig, Protocol, ProxyHeader, Tlv};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// The longest header that is read, in octets. Version 2 could announce 64 KiB; real ones have less than 1 KiB, and a
/// connection has no business with more memory before it was greeted.
pub const BYTES_MAX: usize = 4_096;

/// How long a proxy may take for its header.
pub const TIME_MAX: Duration = Duration::from_secs(5);

// proxy-protocol §2.1: 107 octets with the line end are the longest line of version 1
const V1_BYTES_MAX: usize = 107;
const V1_START: &[u8] = b"PROXY ";
// proxy-protocol §2.2
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_BYTES: usize = 16;
/// Longest text that is kept of a version, cipher or name in a TLV.
const TEXT_BYTES_MAX: usize = 255;

/// Content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client. `None`: the proxy speaks for itself (health checks) or does not know; the connection's own address
    /// counts.
    pub client: Option<SocketAddr>,
    /// The address that the client connected to, if `client` is there.
    pub local: Option<SocketAddr>,
    /// Octets of the header. The octets behind it belong to the session.
    pub used: usize,
    /// The proxy ended a TLS connection of the client.
    pub tls: Option<ProxiedTls>,
}

/// TLS between client and proxy, by the proxy's header. Printable ASCII, at most 255 octets each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedTls {
    /// `TLSv1.3`; empty if the header lacks it.
    pub version: Box<str>,
    /// The cipher's name.
    pub cipher: Option<Box<str>>,
    /// The server name that the client asked for.
    pub server_name: Option<Box<str>>,
}

/// Result of reading the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyOutcome {
    /// The beginning of a header.
    NeedMore,
    /// A header, and perhaps bytes after it.
    Header(Header),
    /// No header, whatever bytes follow.
    Invalid(Invalid),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// They begin with neither signature.
    Signature,
    /// Longer than 107 octets (version 1) or [`BYTES_MAX`] (version 2).
    TooLong,
    /// The line of version 1 is malformed.
    Line,
    /// Version, command, family or length of version 2 is wrong.
    Fields,
    /// A TLV of version 2 is malformed.
    Tlv,
    /// The checksum does not fit.
    Checksum,
    /// The address is not that of a client: unspecified, broadcast or multicast.
    Address,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signature => "no PROXY header where one is expected",
            Self::TooLong => "PROXY header too long",
            Self::Line => "malformed PROXY line",
            Self::Fields => "malformed PROXY version 2 header",
            Self::Tlv => "malformed TLV in PROXY header",
            Self::Checksum => "wrong checksum in PROXY header",
            Self::Address => "PROXY header with the address of nobody",
        })
    }
}

/// Returns whether a connection from `peer` begins with a header: it is in one of `networks`,
/// `listen.proxy_protocol`.
#[must_use]
pub fn expected(networks: &[IpNet], peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    networks.iter().any(|network| network.contains(&peer))
}

/// Looks at all bytes since the connection began.
#[must_use]
pub fn read(input: &[u8]) -> ProxyOutcome {
    if is_prefix(input, V2_SIGNATURE) { read_v2(input) } else { read_v1(input) }
}

/// Returns whether one is the beginning of the other.
fn is_prefix(input: &[u8], signature: &[u8]) -> bool {
    input.iter().zip(signature).all(|(a, b)| a == b)
}

fn read_v1(input: &[u8]) -> ProxyOutcome {
    if !is_prefix(input, V1_START) {
        return ProxyOutcome::Invalid(Invalid::Signature);
    }
    let window = input.get(..V1_BYTES_MAX).unwrap_or(input);
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() < V1_BYTES_MAX {
            ProxyOutcome::NeedMore
        } else {
            ProxyOutcome::Invalid(Invalid::TooLong)
        };
    };
    let line = window.get(..=end).unwrap_or_default();
    let Some(words) = line.strip_suffix(b"\r\n").and_then(|line| line.strip_prefix(V1_START)) else {
        return ProxyOutcome::Invalid(Invalid::Line);
    };
    if words == b"UNKNOWN" || words.starts_with(b"UNKNOWN ") {
        // proxy-protocol §2.1: whatever stands between UNKNOWN and the line end is ignored
        return ProxyOutcome::Header(Header { client: None, local: None, used: line.len(), tls: None });
    }
    // The parser would take a sign before a port, and any octet between the first two words.
    let is_plain = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b' ');
    if !words.get(b"TCP4 ".len()..).is_some_and(|addresses| addresses.iter().all(is_plain)) {
        return ProxyOutcome::Invalid(Invalid::Line);
    }
    match ProxyHeader::parse(line, ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: false }) {
        Ok((header, used)) if used == line.len() => finish(&header, used, Invalid::Line),
        _ => ProxyOutcome::Invalid(Invalid::Line),
    }
}

fn read_v2(input: &[u8]) -> ProxyOutcome {
    let Some([.., command, family, high, low]) = input.first_chunk::<V2_FIXED_BYTES>() else {
        // A beginning that is already wrong is refused without the rest.
        return match input.get(V2_SIGNATURE.len()) {
            Some(0x20 | 0x21) | None => ProxyOutcome::NeedMore,
            Some(_) => ProxyOutcome::Invalid(Invalid::Fields),
        };
    };
    if !matches!(command, 0x20 | 0x21) {
        return ProxyOutcome::Invalid(Invalid::Fields);
    }
    let used = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    if used > BYTES_MAX {
        return ProxyOutcome::Invalid(Invalid::TooLong);
    }
    let Some(bytes) = input.get(..used) else { return ProxyOutcome::NeedMore };
    if *command == 0x20 {
        // proxy-protocol §2.2: LOCAL is valid whatever its family and addresses are
        return ProxyOutcome::Header(Header { client: None, local: None, used, tls: None });
    }
    // Not a stream: UDP and datagrams of Unix sockets carry no mail.
    if !matches!(family, 0x00 | 0x11 | 0x21 | 0x31) {
        return ProxyOutcome::Invalid(Invalid::Fields);
    }
    match ProxyHeader::parse(bytes, ParseConfig { include_tlvs: true, allow_v1: false, allow_v2: true }) {
        Ok((header, parsed)) if parsed == used => match check_tlvs(&header, bytes) {
            Ok(()) => finish(&header, used, Invalid::Fields),
            Err(invalid) => ProxyOutcome::Invalid(invalid),
        },
        _ => ProxyOutcome::Invalid(Invalid::Fields),
    }
}

fn finish(header: &ProxyHeader<'_>, used: usize, invalid: Invalid) -> ProxyOutcome {
    let (mut client, mut local) = (None, None);
    if let Some(addresses) = header.proxied_address() {
        if addresses.protocol != Protocol::Stream {
            return ProxyOutcome::Invalid(invalid);
        }
        let source = canonical(addresses.source);
        if !is_somebody(source.ip()) {
            return ProxyOutcome::Invalid(Invalid::Address);
        }
        client = Some(source);
        local = Some(canonical(addresses.destination));
    }
    ProxyOutcome::Header(Header { client, local, used, tls: proxied_tls(header) })
}

/// IPv4 addresses that come as IPv6 ones are IPv4: limits and networks must know them by one form.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_somebody(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast() && !matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// Checks the form of every TLV, and the checksum if there is one.
fn check_tlvs(header: &ProxyHeader<'_>, bytes: &[u8]) -> Result<(), Invalid> {
    let mut checksum = None;
    let mut tlv_bytes = 0;
    for tlv in header.tlvs() {
        let tlv = tlv.map_err(|_| Invalid::Tlv)?;
        if let Tlv::Crc32c(value) = tlv
            && checksum.replace(value).is_some()
        {
            return Err(Invalid::Tlv);
        }
    }
    let Some(checksum) = checksum else { return Ok(()) };
    // proxy-protocol §2.2.3: the sum is made over the whole header with zeroes in the place of the sum. The parser
    // does not give that place: the list of TLVs is at the end of the header.
    let fixed = match header.proxied_address().map(|addresses| addresses.source) {
        Some(SocketAddr::V4(_)) => 12,
        Some(SocketAddr::V6(_)) => 36,
        None if bytes.get(13) == Some(&0x31) => 216,
        None => 0,
    };
    let mut zeroed = bytes.to_vec();
    let mut rest = zeroed.get_mut(V2_FIXED_BYTES + fixed..).ok_or(Invalid::Tlv)?;
    while let Some((&mut [kind, high, low], after)) = rest.split_first_chunk_mut::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, next) = after.split_at_mut_checked(length).ok_or(Invalid::Tlv)?;
        if kind == 0x03 {
            value.fill(0);
            tlv_bytes = length;
        }
        rest = next;
    }
    if tlv_bytes == 4 && crc32c(&zeroed) == checksum { Ok(()) } else { Err(Invalid::Checksum) }
}

/// CRC-32C bit by bit: a header has a few hundred octets and comes once per connection.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    })
}

fn proxied_tls(header: &ProxyHeader<'_>) -> Option<ProxiedTls> {
    let mut server_name = None;
    let mut found = None;
    for tlv in header.tlvs().filter_map(Result::ok) {
        match tlv {
            Tlv::Authority(name) => server_name = printable(&name),
            Tlv::Ssl(ssl) if ssl.client_ssl() => {
                let (mut version, mut cipher) = (None, None);
                for tlv in ssl.tlvs().filter_map(Result::ok) {
                    match tlv {
                        Tlv::SslVersion(text) => version = printable(&text),
                        Tlv::SslCipher(text) => cipher = printable(&text),
                        _ => {}
                    }
                }
                found = Some(ProxiedTls { version: version.unwrap_or_default(), cipher, server_name: None });
            }
            _ => {}
        }
    }
    found.map(|tls| ProxiedTls { server_name, ..tls })
}

fn printable(text: &str) -> Option<Box<str>> {
    let fits = !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.into())
}

/// Why a listed client sent no header. The connection is closed without an answer, since a proxy that does not speak
/// first would pass the answer to a client that asked nothing.
#[derive(Debug)]
pub enum NoHeader {
    /// Nothing, or not all of it, within the time limit.
    TimedOut,
    /// The peer closed the connection. Health checks of proxies do that; not worth a line in the log.
    Closed,
    /// The bytes are no header.
    Invalid(Invalid),
    /// The connection broke.
    Io(io::Error),
}

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no PROXY header in time; does the proxy send it (send-proxy)?"),
            Self::Closed => f.write_str("closed before a PROXY header"),
            Self::Invalid(invalid) => write!(f, "{invalid}; does the proxy send it (send-proxy)?"),
            Self::Io(error) => write!(f, "connection broke before a PROXY header: {error}"),
        }
    }
}

/// Reads a header from a connection, for `time_max` at most, and not an octet more: the octets behind it stay in the
/// socket, the beginning of a TLS handshake for example.
///
/// # Errors
/// When there is none. The connection is of no use then.
/// # Cancel safety
/// Not cancel safe: a part of the header may be lost.
pub async fn receive(stream: &mut TcpStream, time_max: Duration) -> Result<Header, NoHeader> {
    let reading = async {
        let mut header = Vec::new();
        let mut seen = [0; BYTES_MAX];
        loop {
            // `read` decides with BYTES_MAX at the latest, so there is always room.
            let room = seen.get_mut(..BYTES_MAX.saturating_sub(header.len())).unwrap_or_default();
            let come = match stream.peek(room).await {
                Ok(0) => return Err(NoHeader::Closed),
                Ok(come) => come,
                Err(error) => return Err(NoHeader::Io(error)),
            };
            let before = header.len();
            header.extend_from_slice(seen.get(..come).unwrap_or_default());
            let outcome = read(&header);
            // All octets of a partial header belong to it; they are read now, or the next look would see them again.
            let taken = match &outcome {
                ProxyOutcome::Header(header) => header.used.saturating_sub(before),
                ProxyOutcome::NeedMore => come,
                ProxyOutcome::Invalid(invalid) => return Err(NoHeader::Invalid(*invalid)),
            };
            stream.read_exact(seen.get_mut(..taken).unwrap_or_default()).await.map_err(NoHeader::Io)?;
            if let ProxyOutcome::Header(header) = outcome {
                return Ok(header);
            }
        }
    };
    tokio::time::timeout(time_max, reading).await.unwrap_or(Err(NoHeader::TimedOut))
}

#[cfg(test)]
mod tests;
