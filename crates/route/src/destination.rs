//! The name of a queue: where its mail goes, and how. The spool keeps it as octets with each recipient.
//!
//! | Text | Mail goes |
//! |---|---|
//! | `example.com` | to the hosts of the domain: what mailertable says for it when it is sent, else its MX hosts |
//! | `[192.0.2.1]`, `[IPv6:2001:db8::1]` | to that address |
//! | `smtp:[192.0.2.1]:25,(mx:a.example:25\|[b.example]:26)` | to these hosts in order; `(…\|…)`: in any order |
//! | `lmtp:unix:/run/dovecot/lmtp` | to a server on this machine, which is given the recipients by LMTP |
//! | `local:` | into the mailbox of the user whose name is the local part |
//! | `prog:USER:/usr/bin/vacation joe` | to a program, run as the user |
//! | `file:USER:/var/log/mail/archive` | behind the end of a file, written as the user |
//! | `error:5.1.1 User unknown` | back to its sender, with this reason; with `4.…` it waits until that has passed |
//!
//! An address in brackets is that host, a name in brackets or alone is looked up for its addresses, and one behind
//! `mx:` for its MX hosts. Behind the text ` from=192.0.2.7`, ` from=2001:db8::7` and ` hello=mta1.example.net` may
//! follow, where mail has a source address or a name of its own, ` group=slow` where it belongs to a queue group, `
//! copy` where it is a copy of mail that goes elsewhere too, and ` rerouted` where an operator sent it there.
//!
//! Invariants: text that was written reads back as the same value; no text has control characters; two destinations are
//! equal if their texts are.

use crate::access::tag::is_group;
use mail::{Address, AddressLiteral, Domain, DomainName, EnhancedCode};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest text.
pub const TEXT_BYTES_MAX: usize = 4_096;

/// Where mail of a queue goes, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    /// Where.
    pub to: To,
    /// Where its IPv4 connections come from.
    pub source4: Option<Ipv4Addr>,
    /// Where its IPv6 connections come from.
    pub source6: Option<Ipv6Addr>,
    /// The name that this host gives itself there.
    pub hello: Option<Box<str>>,
    /// The queue group that it belongs to.
    pub group: Option<Box<str>>,
    /// It is a copy of mail that goes to its recipient by another way.
    pub is_copy: bool,
    /// An operator or a content rule sent its mail there: neither maps nor smart hosts move it.
    pub is_rerouted: bool,
}

/// Where mail goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum To {
    /// To the hosts of a domain.
    Domain(Box<str>),
    /// To an address; with its brackets, as in a mail address.
    Literal(Box<str>),
    /// To hosts that a map or a rule names.
    Hosts(Hosts),
    /// To the mailbox of a user.
    Local,
    /// To a program.
    Program {
        /// The user that runs it; empty: the user of aliases.
        user: Box<str>,
        /// Its command line, without the bar.
        command: Box<str>,
    },
    /// Back to its sender.
    Error {
        /// The reason as a code.
        status: EnhancedCode,
        /// And in words.
        text: Box<str>,
    },
    /// To the end of a file.
    File {
        /// The user that writes it; empty: the user of aliases.
        user: Box<str>,
        /// Its full name.
        path: Box<str>,
    },
}

/// The protocol with hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// SMTP.
    Smtp,
    /// LMTP.
    Lmtp,
}

/// Hosts in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hosts {
    /// The protocol with them.
    pub protocol: Protocol,
    /// Those of one group are as good as each other. No group is empty.
    pub groups: Vec<Vec<NextHost>>,
}

/// One host to hand mail to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHost {
    /// An address.
    Address(IpAddr, u16),
    /// A name whose addresses count.
    Name(Box<str>, u16),
    /// A name whose MX hosts count.
    Mx(Box<str>, u16),
    /// A socket of this machine.
    Unix(Box<str>),
}

/// A text that is no destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDestination {
    /// The fault.
    pub why: String,
}

impl fmt::Display for NoDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NoDestination {}

fn no(why: impl Into<String>) -> NoDestination {
    NoDestination { why: why.into() }
}

impl Destination {
    /// Mail goes there, as usual.
    #[must_use]
    pub const fn new(to: To) -> Self {
        Self { to, source4: None, source6: None, hello: None, group: None, is_copy: false, is_rerouted: false }
    }

    /// The hosts of the domain of an address.
    #[must_use]
    pub fn of_domain(domain: &Domain) -> Self {
        Self::new(match domain {
            Domain::Name(name) => To::Domain(name.ascii().into()),
            Domain::Literal(literal) => To::Literal(literal.to_string().into()),
        })
    }

    /// Returns a text that tells the recipients of this destination apart: of two addresses with the same text, one
    /// delivery is enough.
    #[must_use]
    pub fn who(&self, address: &Address) -> Box<str> {
        match self.to {
            // The mailbox is the same under every domain of this host.
            To::Local => address.local_part().as_str().to_lowercase().into(),
            // The file is all.
            To::File { .. } => Box::default(),
            // A program gets the address that it is called for.
            _ => address.key().as_str().into(),
        }
    }

    /// Reads the name of a queue.
    ///
    /// # Errors
    /// The fault of the name.
    pub fn parse(text: &[u8]) -> Result<Self, NoDestination> {
        let text = str::from_utf8(text).map_err(|_| no("it is not UTF-8"))?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(no(format!("it is longer than {TEXT_BYTES_MAX} octets")));
        }
        if text.chars().any(char::is_control) {
            return Err(no("it has control characters"));
        }
        if text == "local:" {
            return Ok(Self::new(To::Local));
        }
        if let Some(rest) = text.strip_prefix("prog:") {
            let (user, command) = rest.split_once(':').ok_or_else(|| no("prog: without user and command"))?;
            if command.trim().is_empty() {
                return Err(no("prog: without a command"));
            }
            return Ok(Self::new(To::Program { user: user.into(), command: command.into() }));
        }
        if let Some(rest) = text.strip_prefix("error:") {
            let (status, text) = rest.split_once(' ').ok_or_else(|| no("error: without code and text"))?;
            let status = status.parse().map_err(|_| no(format!("\"{status}\" is no code of a failure")))?;
            return Ok(Self::new(To::Error { status, text: text.into() }));
        }
        if let Some(rest) = text.strip_prefix("file:") {
            let (user, path) = rest.split_once(':').ok_or_else(|| no("file: without user and path"))?;
            if !path.starts_with('/') {
                return Err(no(format!("\"{path}\" is no full name of a file")));
            }
            return Ok(Self::new(To::File { user: user.into(), path: path.into() }));
        }
        let mut words = text.split(' ');
        let mut destination = Self::new(to(words.next().unwrap_or_default())?);
        for word in words {
            destination.option(word)?;
        }
        Ok(destination)
    }

    fn option(&mut self, word: &str) -> Result<(), NoDestination> {
        if let Some(source) = word.strip_prefix("from=") {
            match source.parse() {
                Ok(IpAddr::V4(ip)) => self.source4 = Some(ip),
                Ok(IpAddr::V6(ip)) => self.source6 = Some(ip),
                Err(_) => return Err(no(format!("\"{source}\" is no address"))),
            }
        } else if let Some(hello) = word.strip_prefix("hello=") {
            DomainName::new(hello).map_err(|error| no(error.to_string()))?;
            self.hello = Some(hello.into());
        } else if let Some(group) = word.strip_prefix("group=").filter(|group| is_group(group)) {
            self.group = Some(group.into());
        } else if word == "copy" {
            self.is_copy = true;
        } else if word == "rerouted" {
            self.is_rerouted = true;
        } else {
            return Err(no(format!(
                "\"{word}\" is neither from=ADDRESS nor hello=NAME nor group=NAME nor copy nor rerouted"
            )));
        }
        Ok(())
    }

    /// The name of its queue.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    /// Whether its mail is handed to another host or server.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self.to, To::Domain(_) | To::Literal(_) | To::Hosts(_))
    }
}

fn to(text: &str) -> Result<To, NoDestination> {
    for (word, protocol) in [("smtp:", Protocol::Smtp), ("lmtp:", Protocol::Lmtp)] {
        if let Some(list) = text.strip_prefix(word) {
            return Ok(To::Hosts(Hosts { protocol, groups: groups(list)? }));
        }
    }
    match Domain::parse(text.as_bytes()) {
        Ok(Domain::Name(name)) => Ok(To::Domain(name.ascii().into())),
        Ok(Domain::Literal(AddressLiteral::General(_))) => Err(no(format!("\"{text}\" is an address of unknown kind"))),
        Ok(Domain::Literal(literal)) => Ok(To::Literal(literal.to_string().into())),
        Err(error) => Err(no(error.to_string())),
    }
}

fn groups(list: &str) -> Result<Vec<Vec<NextHost>>, NoDestination> {
    let mut groups = Vec::new();
    let mut rest = list;
    loop {
        if let Some(inside) = rest.strip_prefix('(') {
            let (inside, after) = inside.split_once(')').ok_or_else(|| no("a group without its end"))?;
            groups.push(inside.split('|').map(next_host).collect::<Result<_, _>>()?);
            rest = after;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (one, after) = rest.split_at(end);
            groups.push(vec![next_host(one)?]);
            rest = after;
        }
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(groups),
            None => return Err(no(format!("\"{rest}\" behind a group"))),
        }
    }
}

fn next_host(text: &str) -> Result<NextHost, NoDestination> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path.starts_with('/') {
            true => Ok(NextHost::Unix(path.into())),
            false => Err(no(format!("\"{path}\" is no full name of a socket"))),
        };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| no(format!("\"{text}\" has no port")))?;
    let port = port.parse().map_err(|_| no(format!("\"{port}\" is no port")))?;
    let name =
        |text: &str| DomainName::new(text).map(|name| name.ascii().into()).map_err(|error| no(error.to_string()));
    if let Some(domain) = host.strip_prefix("mx:") {
        return Ok(NextHost::Mx(name(domain)?, port));
    }
    let Some(inside) = host.strip_prefix('[') else { return Ok(NextHost::Name(name(host)?, port)) };
    let inside = inside.strip_suffix(']').ok_or_else(|| no(format!("\"{host}\" lacks \"]\"")))?;
    match inside.parse() {
        Ok(ip) => Ok(NextHost::Address(ip, port)),
        Err(_) => Ok(NextHost::Name(name(inside)?, port)),
    }
}

impl fmt::Display for NextHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip, port) => write!(f, "[{ip}]:{port}"),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
            Self::Mx(name, port) => write!(f, "mx:{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::Smtp => "smtp:",
            Protocol::Lmtp => "lmtp:",
        })?;
        for (number, group) in self.groups.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match group.as_slice() {
                [only] => write!(f, "{only}")?,
                several => {
                    let texts: Vec<String> = several.iter().map(ToString::to_string).collect();
                    write!(f, "({})", texts.join("|"))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(text) | Self::Literal(text) => f.write_str(text),
            Self::Hosts(hosts) => write!(f, "{hosts}"),
            Self::Local => f.write_str("local:"),
            Self::Program { user, command } => write!(f, "prog:{user}:{command}"),
            Self::File { user, path } => write!(f, "file:{user}:{path}"),
            Self::Error { status, text } => write!(f, "error:{status} {text}"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        if let Some(ip) = self.source4 {
            write!(f, " from={ip}")?;
        }
        if let Some(ip) = self.source6 {
            write!(f, " from={ip}")?;
        }
        if let Some(hello) = &self.hello {
            write!(f, " hello={hello}")?;
        }
        if let Some(group) = &self.group {
            write!(f, " group={group}")?;
        }
        if self.is_copy && self.is_remote() {
            f.write_str(" copy")?;
        }
        if self.is_rerouted && self.is_remote() { f.write_str(" rerouted") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "example.com",
            "[192.0.2.1]",
            "[IPv6:2001:db8::1]",
            "smtp:[192.0.2.1]:25",
            "smtp:a.example:25",
            "smtp:mx:a.example:25,[2001:db8::1]:2525",
            "smtp:([192.0.2.1]:25|mx:b.example:26),c.example:25",
            "lmtp:unix:/run/dovecot/lmtp",
            "local:",
            "prog:joe:/usr/bin/vacation joe: x",
            "prog::/bin/cat",
            "file:joe:/var/mail/archive, 2",
            "error:5.1.1 User unknown: joe",
            "example.com from=192.0.2.7 from=2001:db8::7 hello=mta1.example.net",
            "smtp:a.example:25 from=192.0.2.7",
            "smtp:a.example:25 copy",
            "a.example hello=b.example group=slow copy",
        ] {
            let read = Destination::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read.to_string(), text);
        }
        assert_eq!(Destination::parse(b"smtp:[a.example]:25").unwrap().to_string(), "smtp:a.example:25");
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "no domain",
            "smtp:",
            "smtp:(a:1",
            "smtp:a.example",
            "lmtp:unix:x",
            "prog:x",
            "prog:x: ",
            "file:j:x",
            "a\nb",
        ] {
            assert!(Destination::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
