//! Reads /etc/resolv.conf and /etc/hosts: the name servers and the hosts that this machine knows by its files.
//!
//! A file that is missing, empty, unreadable or partly wrong decides about nothing: the good lines count, each of the
//! others is a warning with file and line, and without a server the one of this machine is asked.
//!
//! Not here: when the files are read again (`shell::notes`), the questions to the servers (`servers`).

use crate::config::Dns;
use os::error;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// The file that names the name servers of this machine.
pub(super) const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The file with names and addresses that need no name server.
pub(super) const HOSTS_FILE: &str = "/etc/hosts";
/// The port of name servers.
const PORT: u16 = 53;
/// The most octets that are read of a file. A file of blocked names has some MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Warnings about lines of one file; further ones are counted.
const WARNINGS_MAX: usize = 5;
/// Words of resolv.conf(5), here and on other systems, that name no server.
const OTHER_WORDS: [&str; 7] = ["domain", "search", "sortlist", "options", "lookup", "family", "resolv+"];

/// Servers and hosts of both files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineFiles {
    /// The servers of `dns.servers`, or of /etc/resolv.conf.
    pub(super) servers: Vec<SocketAddr>,
    /// The good lines of /etc/hosts.
    pub(super) hosts: String,
    /// Faults of the files, with file and line.
    pub(super) warnings: Vec<String>,
}

impl MachineFiles {
    /// Reads the files as they are now; /etc/resolv.conf only where no server is configured. Blocks on the disk.
    pub(crate) fn read(settings: &Dns) -> Self {
        let mut files = Self { servers: settings.servers.clone(), ..Self::default() };
        if files.servers.is_empty() {
            files.servers = servers_of(read(Path::new(RESOLV_CONF)), &mut files.warnings);
        }
        match read(Path::new(HOSTS_FILE)) {
            Ok(text) => files.hosts = hosts_of(&text, &mut files.warnings),
            // A machine without the file has no such names.
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => {
                let text = format!("{HOSTS_FILE} cannot be read: {}; its names are not used", error::words(&why));
                files.warnings.push(text);
            }
        }
        files
    }
}

#[cfg(test)]
impl MachineFiles {
    /// Those of a machine with this /etc/hosts.
    pub(super) fn of(settings: &Dns, hosts: &str) -> Self {
        let mut warnings = Vec::new();
        let hosts = hosts_of(hosts, &mut warnings);
        Self { servers: settings.servers.clone(), hosts, warnings }
    }
}

fn read(path: &Path) -> io::Result<String> {
    // Opening a named pipe could block for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Warnings about lines of one file.
struct LineWarnings<'a> {
    file: &'a str,
    wrong: usize,
    into: &'a mut Vec<String>,
}

impl<'a> LineWarnings<'a> {
    const fn new(file: &'a str, into: &'a mut Vec<String>) -> Self {
        Self { file, wrong: 0, into }
    }

    fn warn(&mut self, index: usize, text: &str) {
        self.wrong += 1;
        if self.wrong <= WARNINGS_MAX {
            self.into.push(format!("{} line {}: {text}", self.file, index + 1));
        }
    }
}

impl Drop for LineWarnings<'_> {
    fn drop(&mut self) {
        if let Some(more @ 1..) = self.wrong.checked_sub(WARNINGS_MAX) {
            self.into.push(format!("{}: {more} more lines are wrong and left out", self.file));
        }
    }
}

/// A word as a warning shows it.
fn shown(word: &str) -> String {
    word.chars().take(60).collect::<String>().escape_debug().to_string()
}

/// The servers of /etc/resolv.conf; the one of this machine, where it names none.
// resolv.conf(5): "If no nameserver entries are present, the default is to use the name server on the local machine."
fn servers_of(text: io::Result<String>, warnings: &mut Vec<String>) -> Vec<SocketAddr> {
    let (mut servers, fault) = match text {
        Ok(text) => (nameservers(&text, warnings), "names no server that can be asked".to_owned()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => (Vec::new(), "is not there".to_owned()),
        Err(why) => (Vec::new(), format!("cannot be read: {}", error::words(&why))),
    };
    if servers.is_empty() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        warnings
            .push(format!("{RESOLV_CONF} {fault}; the name server at {local} is asked; repair it, or set dns.servers"));
        servers.push(SocketAddr::new(local, PORT));
    }
    servers
}

fn nameservers(text: &str, warnings: &mut Vec<String>) -> Vec<SocketAddr> {
    let mut lines = LineWarnings::new(RESOLV_CONF, warnings);
    let mut servers = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.split([';', '#']).next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            (Some("nameserver"), None) => lines.warn(index, "nameserver without an address; left out"),
            (Some("nameserver"), Some(word)) => match address(word) {
                Ok(ip) if servers.contains(&SocketAddr::new(ip, PORT)) => {}
                Ok(ip) => servers.push(SocketAddr::new(ip, PORT)),
                Err(why) => lines.warn(index, &format!("nameserver \"{}\" {why}; left out", shown(word))),
            },
            (Some(word), _) if OTHER_WORDS.contains(&word) => {}
            (Some(word), _) => lines.warn(index, &format!("\"{}\" is no word of resolv.conf; left out", shown(word))),
        }
    }
    servers
}

fn address(word: &str) -> Result<IpAddr, &'static str> {
    match word.split_once('%') {
        Some((ip, _)) if ip.parse::<IpAddr>().is_ok() => {
            Err("has an interface, and servers with one (link-local addresses) are not asked")
        }
        _ => match word.parse() {
            Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => Err("is a link-local address without an interface"),
            Ok(ip) => Ok(ip),
            Err(_) => Err("is no address"),
        },
    }
}

/// The good lines of /etc/hosts, with the good names of each.
// hosts(5)
fn hosts_of(text: &str, warnings: &mut Vec<String>) -> String {
    let mut lines = LineWarnings::new(HOSTS_FILE, warnings);
    let mut good = String::with_capacity(text.len());
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        let Ok(ip) = first.parse::<IpAddr>() else {
            // BSD and macOS write `fe80::1%lo0`; an address with an interface is of no use for a look-up.
            let why = if first.contains('%') { "is an address with an interface" } else { "is no address" };
            lines.warn(index, &format!("\"{}\" {why}; the line is left out", shown(first)));
            continue;
        };
        let start = good.len();
        good.push_str(&ip.to_string());
        let before = good.len();
        for name in words {
            match is_host_name(name) {
                true => good.extend([" ", name]),
                false => lines.warn(index, &format!("\"{}\" is no host name; left out", shown(name))),
            }
        }
        if good.len() == before {
            good.truncate(start);
        } else {
            good.push('\n');
        }
    }
    good
}

/// Whether a name has labels that the DNS can have.
// RFC 1035 §3.1: 63 octets in a label, 255 in a name
fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> (Vec<String>, Vec<String>) {
        let mut warnings = Vec::new();
        let servers = servers_of(Ok(text.to_owned()), &mut warnings);
        (servers.iter().map(ToString::to_string).collect(), warnings)
    }

    #[test]
    fn the_good_servers_count() {
        for (text, expected, warned) in [
            ("nameserver 192.0.2.1\nnameserver 2001:db8::1\n", &["192.0.2.1:53", "[2001:db8::1]:53"][..], &[][..]),
            ("nameserver 127.0.0.1\r\n\r\n", &["127.0.0.1:53"], &[]),
            ("; x\n#y\n\tnameserver\t192.0.2.1 # z\nnameserver 192.0.2.1\n", &["192.0.2.1:53"], &[]),
            ("nameserver 192.0.2.1\nsearch a..b\noptions retrans:1 no-aaaa trust-ad\n", &["192.0.2.1:53"], &[]),
            ("nameserver 192.0.2.1", &["192.0.2.1:53"], &[]),
            (
                "foo bar\nnameserver\nnameserver 999.1.1.1\nnameserver 192.0.2.1\n",
                &["192.0.2.1:53"],
                &["line 1: \"foo\"", "line 2: nameserver without", "line 3: nameserver \"999.1.1.1\" is no address"],
            ),
            (
                "nameserver fe80::1%lo\nnameserver 192.0.2.1\n",
                &["192.0.2.1:53"],
                &["line 1: nameserver \"fe80::1%lo\""],
            ),
            ("nameserver fe80::1\nnameserver 192.0.2.1\n", &["192.0.2.1:53"], &["link-local address without"]),
            ("\u{feff}nameserver 192.0.2.1\n", &["192.0.2.1:53"], &[]),
            ("", &["127.0.0.1:53"], &["/etc/resolv.conf names no server"]),
            ("search example.org\n", &["127.0.0.1:53"], &["names no server"]),
            ("nameserver x\n", &["127.0.0.1:53"], &["line 1: ", "names no server"]),
        ] {
            let (found, warnings) = servers(text);
            assert_eq!(found, expected, "{text:?}");
            assert_eq!(warnings.len(), warned.len(), "{text:?}: {warnings:?}");
            for (warning, part) in warnings.iter().zip(warned) {
                assert!(warning.contains("/etc/resolv.conf") && warning.contains(part), "{warning}");
            }
        }
        let mut warnings = Vec::new();
        let missing = servers_of(Err(io::ErrorKind::NotFound.into()), &mut warnings);
        let unreadable = servers_of(Err(io::Error::from_raw_os_error(13)), &mut warnings);
        assert_eq!((missing.len(), unreadable.len()), (1, 1));
        assert!(warnings[0].contains("is not there"), "{warnings:?}");
        assert!(warnings[1].contains("ermission denied") && !warnings[1].contains("os error"), "{warnings:?}");
    }

    #[test]
    fn the_good_hosts_count() {
        for (text, expected, warned) in [
            (
                "127.0.0.1 localhost\n::1 localhost ip6-localhost\n",
                "127.0.0.1 localhost\n::1 localhost ip6-localhost\n",
                0,
            ),
            ("# x\n\n192.0.2.1\tmx.example mx # gr\u{fffd}\u{fffd}e\r\n", "192.0.2.1 mx.example mx\n", 0),
            ("fe80::1%lo0 localhost\n192.0.2.1 mx\n", "192.0.2.1 mx\n", 1),
            ("mx 192.0.2.1\n192.0.2.1 mx\n", "192.0.2.1 mx\n", 1),
            ("192.0.2.1 a..b mx gr\u{fffd}e\n", "192.0.2.1 mx\n", 2),
            ("192.0.2.1\n", "", 0),
            ("192.0.2.1 -..\n", "", 1),
            ("\u{feff}192.0.2.1 mx_1.example.\n", "192.0.2.1 mx_1.example.\n", 0),
        ] {
            let mut warnings = Vec::new();
            assert_eq!(hosts_of(text, &mut warnings), expected, "{text:?}");
            assert_eq!(warnings.len(), warned, "{text:?}: {warnings:?}");
        }
        let mut warnings = Vec::new();
        hosts_of(&"x y\n".repeat(100), &mut warnings);
        assert_eq!(warnings.len(), WARNINGS_MAX + 1);
        assert_eq!(warnings[0], "/etc/hosts line 1: \"x\" is no address; the line is left out");
        assert_eq!(warnings[WARNINGS_MAX], "/etc/hosts: 95 more lines are wrong and left out");
    }
}
