//! Whether the listeners' ports are free, and whether a mail host can be reached.

use super::{FindingState, SetupFinding};
use crate::config::{Config, Host, HostPort};
use crate::dns::{Family, LocalIdentity, Resolver};
use mail::DomainName;
use os::error::words;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The longest wait for a connection, and for a greeting: servers may pause before it.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const GREETING_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest wait for the greeting of whoever has our port: it is on this machine.
const OWN_GREETING_TIME_MAX: Duration = Duration::from_secs(3);
/// Octets of a greeting that are shown.
const GREETING_BYTES_MAX: usize = 200;
/// Addresses that are tried.
const ADDRESSES_MAX: usize = 4;

/// Checks each listener: its port is free, or a server has it, which is named by its greeting.
pub(super) async fn listen(config: &Config) -> Vec<SetupFinding> {
    let mut found = Vec::new();
    for listener in &config.listen {
        found.push(listen_on(&config.hostname, listener.address).await);
    }
    found
}

async fn listen_on(hostname: &str, address: SocketAddr) -> SetupFinding {
    let object = address.to_string();
    let Err(error) = TcpListener::bind(address).await else {
        return SetupFinding::new("listen", &object, FindingState::Ok, "is free");
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let target = if address.ip().is_unspecified() { loopback(address) } else { address };
            let greeting = greeting(target, OWN_GREETING_TIME_MAX).await;
            let is_ours = greeting.as_ref().is_ok_and(|text| text.starts_with(&format!("220 {hostname} ")));
            let (state, text) = match greeting {
                Ok(text) if is_ours => (FindingState::Ok, format!("is in use, by a server of this name: \"{text}\"")),
                Ok(text) => (FindingState::Differs, format!("is in use: \"{text}\"; stop that server first")),
                Err(_) => {
                    (FindingState::Differs, "is in use; \"ss -ltnp\" shows the program; stop it first".to_owned())
                }
            };
            SetupFinding::new("listen", &object, state, text)
        }
        io::ErrorKind::PermissionDenied => {
            let text = "needs root or systemd to be opened; run setup as root to see whether it is free";
            SetupFinding::new("listen", &object, FindingState::Unknown, text)
        }
        _ => {
            let text = format!("cannot be opened: {}; name an address of this machine", words(&error));
            SetupFinding::new("listen", &object, FindingState::Differs, text)
        }
    }
}

fn loopback(address: SocketAddr) -> SocketAddr {
    let ip = if address.is_ipv4() { "127.0.0.1" } else { "::1" };
    ip.parse().map_or(address, |ip| SocketAddr::new(ip, address.port()))
}

/// Checks that mail can leave: connects to the first smart host, or to a mail host of `probe`.
pub(super) async fn connect(config: &Config, resolver: &Resolver, probe: Option<&str>) -> Option<SetupFinding> {
    let smart_host = config.route.smart_host.iter().flatten().next();
    let (object, found) = match (smart_host, probe) {
        (Some(host), _) => (host.to_string(), smart_host_addresses(resolver, host).await),
        (None, Some(domain)) => (domain.to_owned(), mail_host_addresses(config, resolver, domain).await),
        (None, None) => return None,
    };
    let addresses = match found {
        Ok(addresses) => addresses,
        Err(why) => return Some(SetupFinding::new("connect", &object, FindingState::Unknown, why)),
    };
    let advice = match smart_host {
        Some(_) => "see route.smart_host and the firewall",
        None => "many providers close port 25 to the world: ask yours, or set a smart host",
    };
    let mut last = "has no address".to_owned();
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        match greeting(address, GREETING_TIME_MAX).await {
            Ok(text) if text.starts_with("220") => {
                return Some(SetupFinding::new(
                    "connect",
                    &object,
                    FindingState::Ok,
                    format!("{address} answers \"{text}\""),
                ));
            }
            Ok(text) => last = format!("{address} answers \"{text}\""),
            Err(why) => last = format!("{address}: {why}; {advice}"),
        }
    }
    Some(SetupFinding::new("connect", &object, FindingState::Differs, last))
}

async fn smart_host_addresses(resolver: &Resolver, host: &HostPort) -> Result<Vec<SocketAddr>, String> {
    match &host.host {
        Host::Address(ip) => Ok(vec![SocketAddr::new(*ip, host.port)]),
        Host::Name(name) => {
            let found = resolver.host_addresses(name.ascii(), Family::Any, 0).await.map_err(|none| none.text)?;
            Ok(found.addresses.into_iter().map(|ip| SocketAddr::new(ip, host.port)).collect())
        }
    }
}

async fn mail_host_addresses(config: &Config, resolver: &Resolver, domain: &str) -> Result<Vec<SocketAddr>, String> {
    let domain = DomainName::new(domain).map_err(|error| error.to_string())?;
    let port = config.route.port;
    let found = resolver.mail_hosts(&domain, port, &LocalIdentity::default(), Family::Any, 0).await;
    let found = found.map_err(|none| none.text)?;
    Ok(found.addresses().map(|(_, ip)| SocketAddr::new(ip, port)).collect())
}

/// Returns the first line that a server says, without its end and with `?` for characters that a terminal acts on.
async fn greeting(address: SocketAddr, time_max: Duration) -> Result<String, String> {
    let opening = timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await;
    let mut stream = match opening {
        Err(_) => return Err("no answer".to_owned()),
        Ok(Err(error)) => return Err(words(&error)),
        Ok(Ok(stream)) => stream,
    };
    let mut line = Vec::new();
    let reading = async {
        let mut octets = [0; 512];
        while !line.contains(&b'\n') && line.len() < octets.len() {
            match stream.read(&mut octets).await {
                Ok(0) | Err(_) => break,
                Ok(count) => line.extend_from_slice(octets.get(..count).unwrap_or_default()),
            }
        }
    };
    let is_late = timeout(time_max, reading).await.is_err();
    // The server learns that nothing follows; its answer does not matter.
    drop(timeout(Duration::from_secs(1), stream.write_all(b"QUIT\r\n")).await);
    if line.is_empty() {
        return Err(if is_late { "no greeting" } else { "closed the connection without a greeting" }.to_owned());
    }
    let text = String::from_utf8_lossy(&line);
    let first = text.lines().next().unwrap_or_default();
    Ok(first.chars().take(GREETING_BYTES_MAX).map(|c| if mail::is_unprintable(c) { '?' } else { c }).collect())
}
