//! Kinds of values: their form in TOML, their range, and the message for a value that does not fit.

use super::choice::Words;
use super::number::{self, NoSize, size_text, time_text};
use super::suggestion::nearest;
use super::toml_string::quoted;
use super::value::Value;
use super::{Host, HostPort, Mailbox, NextHop, NoHost, Rate, RelayDomain};
use ipnet::IpNet;
use mail::{Address, DomainName};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeArray, DeValue};

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number; `unit` is the counted unit.
    Number { min: i64, max: i64, unit: &'static str },
    /// Bytes: a number, or text with a unit.
    Bytes { min: i64, max: i64 },
    /// A time with its units.
    Time { min: Duration, max: Duration },
    /// So many a second, decimals allowed; 0 for no limit.
    Rate,
    /// One of some words.
    Choice(Words),
    /// The name of a host or a domain.
    Domain,
    /// A domain, with a dot before it for everything below as well.
    RelayDomain,
    /// A host and a port; 25 where there is none.
    Host,
    /// A host and a port to connect to; this port where there is none. Written as sockets are: `192.0.2.1:4222`.
    Endpoint { port: u16 },
    /// A host of an MX record: a name, or an address in brackets.
    MxHost,
    /// The next hops that a rule applies to.
    NextHop,
    /// A mail address; empty for none where `empty`.
    Mailbox { empty: bool },
    /// Where mailboxes are.
    MailboxPlace,
    /// A word for log lines or a user of the system; may be empty where `empty`.
    Word { empty: bool },
    /// Any text, such as an argument of a program.
    Text,
    /// A file or directory; empty for none where `empty`.
    Path { empty: bool },
    /// Where the log goes.
    LogPath,
    /// Where entries of a map are: a file, or a directory or database that is asked.
    MapSource,
    /// A network or one address.
    Network,
    /// One address.
    Ip,
    /// An address and a port to listen on; `:25` for all addresses.
    Listen,
    /// An address, and a port where it is not this one.
    Address { port: u16 },
    /// Several, or one without brackets; `flag`: also `true` for all networks and `false` for none.
    List { of: &'static Self, flag: bool },
}

/// A value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Where in the text.
    pub(crate) span: Range<usize>,
    /// The fault, the value first.
    pub(crate) text: String,
    /// The form of a right value.
    pub(crate) expected: String,
    /// The value that may have been meant.
    pub(crate) suggestion: Option<String>,
}

/// The fault of a text, and a suggestion.
type Complaint = (String, Option<String>);

fn complaint<T>(text: &str, what: &str) -> Result<T, Complaint> {
    Err((format!("{} {what}", quoted(text)), None))
}

fn complaint_but<T>(text: &str, what: &str, suggestion: impl Into<String>) -> Result<T, Complaint> {
    Err((format!("{} {what}", quoted(text)), Some(suggestion.into())))
}

impl Kind {
    /// The kind in a word or two, for pages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number { unit: "", .. } => "number".to_owned(),
            Self::Number { unit, .. } => format!("number of {unit}"),
            Self::Bytes { .. } => "size".to_owned(),
            Self::Time { .. } => "time".to_owned(),
            Self::Rate => "number a second".to_owned(),
            Self::Choice(_) => "word".to_owned(),
            Self::Domain => "domain".to_owned(),
            Self::RelayDomain => "domain or .domain".to_owned(),
            Self::Host | Self::Endpoint { .. } => "host and port".to_owned(),
            Self::MxHost => "host name or [address]".to_owned(),
            Self::NextHop => "domain, .domain, [address], mx:PATTERN, hop:HOST:PORT or group:NAME".to_owned(),
            Self::Mailbox { .. } => "mail address".to_owned(),
            Self::MailboxPlace => "mailbox".to_owned(),
            Self::Word { .. } => "name".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Path { .. } => "path".to_owned(),
            Self::LogPath => "\"-\", \"syslog\", \"journald\" or path".to_owned(),
            Self::MapSource => "path, ldap:NAME or sqlite:NAME".to_owned(),
            Self::Network => "network".to_owned(),
            Self::Ip => "IP address".to_owned(),
            Self::Listen => "address and port".to_owned(),
            Self::Address { .. } => "address".to_owned(),
            Self::List { of: Self::List { of, .. }, flag: false } => {
                format!("list of: {0}, or list of: {0}", of.name())
            }
            Self::List { of, flag: false } => format!("list of: {}", of.name()),
            Self::List { of, flag: true } => format!("true, false, or list of: {}", of.name()),
        }
    }

    /// Returns a phrase for the values that are allowed.
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number { min, max, unit } => {
                let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
                format!("a whole number{of} from {min} to {max}")
            }
            Self::Bytes { min, max } => {
                format!("a size from {} to {}: bytes, or text such as \"64KiB\"", size_text(*min), size_text(*max))
            }
            Self::Time { min, max } => {
                format!("a time from {} to {}, such as \"30s\" or \"1h30m\"", time_text(*min), time_text(*max))
            }
            Self::Rate => "a number from 0.001 to 1000000 with up to three decimals, or 0 for no limit".to_owned(),
            Self::Choice(words) => {
                let words: Vec<String> = words.iter().map(|(word, _)| quoted(word)).collect();
                match words.split_last() {
                    Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                    _ => words.concat(),
                }
            }
            Self::Domain => "a name such as \"mx.example.com\"".to_owned(),
            Self::RelayDomain => "\"example.com\", or \".example.com\" for what is below it as well".to_owned(),
            Self::Host => {
                "a host and a port: \"mx.example.com:25\", \"[192.0.2.1]:25\" or \"[2001:db8::1]:25\"; the port is 25 \
                 unless given"
                    .to_owned()
            }
            Self::Endpoint { port } => {
                format!(
                    "a host and a port: \"mx3.example.com:{port}\", \"192.0.2.3:{port}\" or \"[2001:db8::3]:{port}\"; \
                     the port is {port} unless given"
                )
            }
            Self::MxHost => "a host such as \"mx.example.com\", or an address in brackets: \"[192.0.2.1]\"".to_owned(),
            Self::NextHop => {
                "\"example.com\", \".example.com\" for what is below it as well, \"[192.0.2.1]\", \"mx:*.example.com\" for \
                 domains by their MX hosts, \"hop:smart.example.com:25\" for a smart host, or \"group:slow\" for a queue group"
                    .to_owned()
            }
            Self::Mailbox { .. } => "a mail address such as \"postmaster@example.com\"".to_owned(),
            Self::MailboxPlace => {
                "\"mbox:/var/mail/%u\", \"maildir:%h/Maildir\", \"lmtp:unix:/run/dovecot/lmtp\", \"lmtp:[127.0.0.1]:24\" or \
                 \"none\""
                    .to_owned()
            }
            Self::Word { .. } => "a name of letters, digits, \"-\", \"_\" and \".\"".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Path { .. } => "a path; a relative one begins at the directory of the file".to_owned(),
            Self::LogPath => "\"-\" for standard output, \"syslog\", \"journald\", or the path of a file".to_owned(),
            Self::MapSource => {
                "the path of a file, \"ldap:NAME\" for what [[ldap]] of that name asks, or \"sqlite:NAME\"".to_owned()
            }
            Self::Network => "a network such as \"10.0.0.0/8\" or an address such as \"192.0.2.1\"".to_owned(),
            Self::Ip => "an address such as \"192.0.2.1\" or \"2001:db8::1\"".to_owned(),
            Self::Listen => {
                "an address and a port: \"192.0.2.1:25\", \"[2001:db8::1]:25\", or \":25\" for all addresses".to_owned()
            }
            Self::Address { port } => {
                format!(
                    "an address such as \"192.0.2.53\" or \"[2001:db8::53]:{port}\"; the port is {port} unless given"
                )
            }
            Self::List { of: Self::List { of, .. }, .. } => {
                format!("a list, each item {}, or a list of such", of.expected())
            }
            Self::List { of, flag } => {
                format!("{}a list, each item {}", if *flag { "true, false, or " } else { "" }, of.expected())
            }
        }
    }

    /// Reads a value; values that do not fit go to `misfits`, all items of a list.
    pub(crate) fn read(&self, value: &Spanned<DeValue<'_>>, misfits: &mut Vec<Misfit>) -> Option<Value> {
        if let Self::List { of, flag } = self {
            return match value.get_ref() {
                DeValue::Boolean(all) if *flag => Some(Value::List(if *all { all_networks() } else { Vec::new() })),
                DeValue::Array(items) => of.read_list(items, misfits),
                // One item needs no brackets.
                DeValue::String(text) => {
                    let before = misfits.len();
                    let item = of.read(value, misfits);
                    for misfit in misfits.iter_mut().skip(before).filter(|_| *flag) {
                        (_, misfit.suggestion) = Self::Flag.text_where_none_is(text);
                        misfit.expected = self.expected();
                    }
                    item.map(|item| Value::List(vec![item]))
                }
                other => {
                    misfits.push(self.misfit(value.span(), wrong_type(other)));
                    None
                }
            };
        }
        let read = match (self, value.get_ref()) {
            (Self::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Self::Number { .. } | Self::Bytes { .. }, DeValue::Integer(number)) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => self.in_range(Value::Number(number), &number.to_string()),
                    Err(_) => Err((format!("{number} is out of range"), None)),
                }
            }
            (Self::Rate, DeValue::Integer(_) | DeValue::Float(_)) => {
                let text = plain_text(value.get_ref());
                rate(&text).map_err(|what| (format!("{text} {what}"), None))
            }
            (Self::Time { .. }, DeValue::Integer(number)) if number.as_str() == "0" => self.read_text("0"),
            (Self::Time { .. }, DeValue::Integer(number)) => {
                Err((format!("{number} has no unit"), Some(format!("write \"{number}s\" for seconds"))))
            }
            (Self::Flag | Self::Number { .. }, DeValue::String(text)) => Err(self.text_where_none_is(text)),
            (_, DeValue::String(text)) => self.read_text(text),
            (Self::Listen, DeValue::Integer(port)) => {
                Err((format!("{port} is a number, not text"), Some(format!("write \":{port}\" for all addresses"))))
            }
            (Self::Flag, DeValue::Integer(number)) if matches!(number.as_str(), "0" | "1") => {
                let flag = number.as_str() == "1";
                Err((format!("{number} is neither true nor false"), Some(format!("write {flag}"))))
            }
            (Self::Choice(words), DeValue::Float(_) | DeValue::Integer(_) | DeValue::Boolean(_)) => {
                let (text, _) = wrong_type(value.get_ref());
                let written = plain_text(value.get_ref());
                let meant = words.iter().find(|(word, _)| *word == written);
                Err((text, meant.map(|(word, _)| format!("write it in quotes: \"{word}\""))))
            }
            (_, other) => Err(wrong_type(other)),
        };
        read.map_err(|complaint| misfits.push(self.misfit(value.span(), complaint))).ok()
    }

    fn read_list(&self, items: &DeArray<'_>, misfits: &mut Vec<Misfit>) -> Option<Value> {
        let before = misfits.len();
        let values: Vec<Value> = items.iter().filter_map(|item| self.read(item, misfits)).collect();
        (misfits.len() == before).then_some(Value::List(values))
    }

    /// Reads the text of a default, of an example, of `--set`: TOML, or text that needs no quotes.
    pub(crate) fn read_bare(&self, text: &str) -> Result<Value, Vec<Misfit>> {
        let is_toml = match self {
            Self::Flag | Self::Number { .. } => true,
            Self::List { flag, .. } if *flag && matches!(text, "true" | "false") => true,
            _ if text.starts_with(['"', '\'']) => true,
            // An address in brackets is no list.
            _ if matches!(self.innermost(), Self::Host) && text.parse::<HostPort>().is_ok() => false,
            _ if matches!(self.innermost(), Self::MxHost) && text.parse::<Host>().is_ok() => false,
            _ if matches!(self.innermost(), Self::NextHop) && text.parse::<NextHop>().is_ok() => false,
            Self::Listen | Self::Address { .. } | Self::Endpoint { .. } => false,
            _ => text.starts_with(['[', '{']),
        };
        if text.is_empty() && matches!(self, Self::List { .. }) {
            return Ok(Value::List(Vec::new()));
        }
        let mut misfits = Vec::new();
        if is_toml {
            let (value, errors) = DeValue::parse_recoverable(text);
            if let Some(error) = errors.first() {
                let span = error.span().unwrap_or_default();
                return Err(vec![
                    self.misfit(span, (format!("{text} is no value of TOML: {}", error.message()), None)),
                ]);
            }
            return self.read(&value, &mut misfits).ok_or(misfits);
        }
        let value = Spanned::new(0..text.len(), DeValue::String(text.into()));
        self.read(&value, &mut misfits).ok_or(misfits)
    }

    /// Returns the kind of the items of lists.
    fn innermost(&self) -> &Self {
        if let Self::List { of, .. } = self { of.innermost() } else { self }
    }

    fn misfit(&self, span: Range<usize>, (text, suggestion): Complaint) -> Misfit {
        Misfit { span, text, expected: self.expected(), suggestion }
    }

    fn text_where_none_is(&self, text: &str) -> Complaint {
        let write = match (self, text) {
            (Self::Flag, "true" | "yes" | "on" | "1") => Some("write true, without quotes".to_owned()),
            (Self::Flag, "false" | "no" | "off" | "0") => Some("write false, without quotes".to_owned()),
            (Self::Number { .. }, digits) if digits.parse::<i64>().is_ok() => {
                Some(format!("write {digits}, without quotes"))
            }
            _ => None,
        };
        (format!("{} is text", quoted(text)), write)
    }

    fn in_range(&self, value: Value, text: &str) -> Result<Value, Complaint> {
        let fits = match (self, &value) {
            (Self::Number { min, max, .. } | Self::Bytes { min, max }, Value::Number(number)) => {
                (min..=max).contains(&number)
            }
            (Self::Time { min, max }, Value::Time(time)) => (min..=max).contains(&time),
            _ => true,
        };
        if fits { Ok(value) } else { Err((format!("{text} is out of range"), None)) }
    }

    fn read_text(&self, text: &str) -> Result<Value, Complaint> {
        match self {
            Self::Bytes { .. } => match number::size(text) {
                Ok(bytes) => self.in_range(Value::Number(bytes), &quoted(text)),
                Err(NoSize::Form) => complaint(text, "is no size"),
                Err(NoSize::Ambiguous { binary, decimal }) => {
                    complaint_but(text, "may mean two sizes", format!("write \"{binary}\" or {decimal}"))
                }
            },
            Self::Time { .. } => match number::time(text) {
                Some(time) => self.in_range(Value::Time(time), &quoted(text)),
                None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    complaint_but(text, "has no unit", format!("write \"{text}s\" for seconds"))
                }
                None => complaint(text, "is no time"),
            },
            Self::Rate => rate(text).or_else(|what| complaint(text, what)),
            Self::Choice(words) => match words.iter().find(|(word, _)| *word == text) {
                Some(_) => Ok(Value::Text(text.to_owned())),
                None => {
                    let near = nearest(text, words.iter().map(|(word, _)| *word));
                    Err((format!("{} is none of the values", quoted(text)), near.map(did_you_mean)))
                }
            },
            Self::Domain => match DomainName::new(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(_) => match text.strip_suffix('.').filter(|name| DomainName::new(name).is_ok()) {
                    Some(name) => complaint_but(text, "ends with a dot", did_you_mean(name)),
                    None => complaint(text, "is no domain name"),
                },
            },
            Self::RelayDomain => match text.parse::<RelayDomain>() {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(_) => match Some(text.trim_start_matches(['*', '@']).trim_end_matches('.'))
                    .filter(|name| name.parse::<RelayDomain>().is_ok())
                {
                    Some(name) => complaint_but(text, "is no domain name", did_you_mean(name)),
                    None => complaint(text, "is no domain name"),
                },
            },
            Self::Host => host(text),
            Self::Endpoint { port } => endpoint(text, *port),
            Self::MxHost => mx_host(text),
            Self::NextHop => next_hop(text),
            Self::Mailbox { empty: true } if text.is_empty() => Ok(Value::Text(String::new())),
            Self::Mailbox { .. } => mailbox(text),
            Self::MailboxPlace => match text.parse::<Mailbox>() {
                Ok(place) => Ok(Value::Text(place.to_string())),
                Err(no) => Err((format!("{} {}", quoted(text), no.why), no.meant.as_deref().map(did_you_mean))),
            },
            Self::Word { empty } => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                if text.is_empty() && !empty {
                    complaint(text, "is empty")
                } else if text.len() > 32 {
                    complaint(text, "is longer than 32 letters")
                } else if text.chars().all(is_word) {
                    Ok(Value::Text(text.to_owned()))
                } else {
                    complaint(text, "has a character that is not allowed in it")
                }
            }
            Self::Text | Self::Path { .. } | Self::LogPath | Self::MapSource if text.contains('\0') => {
                complaint(text, "has a NUL in it")
            }
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::Path { empty } if text.is_empty() && !empty => complaint(text, "is no path"),
            Self::LogPath | Self::MapSource if text.is_empty() => complaint(text, "is no path"),
            Self::MapSource if text.starts_with("ldap:") || text.starts_with("sqlite:") => {
                Ok(Value::Text(text.to_owned()))
            }
            Self::LogPath if matches!(text, "-" | "syslog" | "journald") => Ok(Value::Text(text.to_owned())),
            Self::Path { .. } | Self::LogPath | Self::MapSource => Ok(Value::Path(PathBuf::from(text))),
            Self::Network => network(text),
            Self::Ip => ip(text),
            Self::Listen => listen(text),
            Self::Address { port } => address(text, *port),
            Self::Flag | Self::Number { .. } | Self::List { .. } => Err(self.text_where_none_is(text)),
        }
    }
}

pub(crate) fn did_you_mean(word: &str) -> String {
    format!("did you mean {}?", quoted(word))
}

/// Every address of both families.
fn all_networks() -> Vec<Value> {
    let all = [IpNet::from(IpAddr::from(Ipv4Addr::UNSPECIFIED)), IpNet::from(IpAddr::from(Ipv6Addr::UNSPECIFIED))];
    all.into_iter().filter_map(|one| IpNet::new(one.addr(), 0).ok()).map(Value::Network).collect()
}

fn network(text: &str) -> Result<Value, Complaint> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Value::Network(address.into()));
    }
    match text.parse::<IpNet>() {
        Ok(network) if network == network.trunc() => Ok(Value::Network(network)),
        Ok(network) => complaint_but(
            text,
            "has bits set behind its prefix",
            format!("write \"{}\" for the network or \"{}\" for the address", network.trunc(), network.addr()),
        ),
        Err(_) => match text.split_once('/').map(|(address, prefix)| (address.parse::<IpAddr>(), prefix)) {
            Some((Ok(address), prefix)) if prefix.parse::<u32>().is_ok() => {
                let most = if address.is_ipv4() { 32 } else { 128 };
                complaint(text, &format!("has a prefix longer than {most}"))
            }
            _ => complaint(text, "is no network"),
        },
    }
}

fn listen(text: &str) -> Result<Value, Complaint> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Value::Address(address));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        return Ok(Value::Each(all.into_iter().map(|ip| Value::Address(SocketAddr::new(ip, port))).collect()));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return complaint_but(text, "has no port", did_you_mean(&SocketAddr::new(ip, 25).to_string()));
    }
    match text.rsplit_once(':') {
        Some(("*", port)) if port.parse::<u16>().is_ok() => {
            complaint_but(text, "is no address", did_you_mean(&format!(":{port}")))
        }
        Some(("localhost", port)) if port.parse::<u16>().is_ok() => {
            complaint_but(text, "has a name where an address must be", did_you_mean(&format!("127.0.0.1:{port}")))
        }
        None if text.parse::<u16>().is_ok() => {
            complaint_but(text, "is a port without a colon", did_you_mean(&format!(":{text}")))
        }
        _ => complaint(text, "is no address with a port"),
    }
}

fn address(text: &str, port: u16) -> Result<Value, Complaint> {
    let with_port = text.parse::<SocketAddr>().ok();
    match with_port.or_else(|| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port))) {
        Some(address) if address.port() == 0 => {
            let usual = SocketAddr::new(address.ip(), port).to_string();
            complaint_but(text, "has port 0, where nothing can be reached", did_you_mean(&usual))
        }
        Some(address) => Ok(Value::Address(address)),
        None => complaint(text, "is no address"),
    }
}

fn host(text: &str) -> Result<Value, Complaint> {
    let no_host = match text.parse::<HostPort>() {
        Ok(host) => return Ok(Value::Text(host.to_string())),
        Err(no_host) => no_host,
    };
    let what = no_host.to_string();
    let suggestion = match no_host {
        NoHost::Ipv6WithoutBrackets(address) => Some(format!("[{address}]:25")),
        NoHost::NameInBrackets(name) => Some(text.replacen(&format!("[{name}]"), name.as_str(), 1)),
        // sendmail and Postfix name the mailer or the service first, others write a URL.
        NoHost::Form | NoHost::Port => ["esmtp:", "smtp://", "smtp:", "lmtp://", "lmtp:inet:", "lmtp:", "relay:"]
            .into_iter()
            .find_map(|before| text.strip_prefix(before))
            .and_then(|rest| match rest.parse::<HostPort>() {
                Ok(_) => Some(rest.to_owned()),
                Err(NoHost::NameInBrackets(name)) => Some(rest.replacen(&format!("[{name}]"), name.as_str(), 1)),
                Err(_) => None,
            }),
    };
    // Only what can be read in its turn is proposed.
    let suggestion = suggestion.filter(|text| text.parse::<HostPort>().is_ok()).map(|text| did_you_mean(&text));
    Err((format!("{} {what}", quoted(text)), suggestion))
}

fn endpoint(text: &str, port: u16) -> Result<Value, Complaint> {
    let no_host = match HostPort::read(text, port) {
        Ok(host) => return Ok(Value::Text(host.socket_text())),
        Err(no_host) => no_host,
    };
    match no_host {
        NoHost::Ipv6WithoutBrackets(address) => {
            complaint_but(text, &no_host.to_string(), did_you_mean(&SocketAddr::new(address.into(), port).to_string()))
        }
        NoHost::NameInBrackets(_) => {
            complaint_but(text, "has a name in brackets", did_you_mean(&text.replace(['[', ']'], "")))
        }
        NoHost::Form | NoHost::Port => {
            let rest = ["nats://", "tls://", "http://"].into_iter().find_map(|scheme| text.strip_prefix(scheme));
            let meant = rest.map(|rest| rest.trim_end_matches('/')).filter(|rest| HostPort::read(rest, port).is_ok());
            Err((format!("{} {no_host}", quoted(text)), meant.map(did_you_mean)))
        }
    }
}

fn rate(text: &str) -> Result<Value, &'static str> {
    match text.parse::<Rate>() {
        Ok(rate) if rate <= Rate::MAX => Ok(Value::Rate(rate)),
        Ok(_) => Err("is out of range"),
        Err(()) => Err("is no such number"),
    }
}

fn mx_host(text: &str) -> Result<Value, Complaint> {
    // An MX record names no address: an address needs brackets.
    if let Ok(bare) = text.parse::<IpAddr>() {
        return complaint_but(text, "is an address without brackets", did_you_mean(&format!("[{bare}]")));
    }
    let no_host = match text.parse::<Host>() {
        Ok(host) => return Ok(Value::Text(host.to_string())),
        Err(no_host) => no_host,
    };
    if let Ok(host) = text.parse::<HostPort>() {
        return complaint_but(
            text,
            "has a port; mail to hosts of the DNS goes to route.port",
            did_you_mean(&host.host.to_string()),
        );
    }
    match (no_host, text.strip_suffix('.').filter(|name| name.parse::<Host>().is_ok())) {
        (NoHost::NameInBrackets(name), _) => complaint_but(text, "is a name in brackets", did_you_mean(name.as_str())),
        (_, Some(name)) => complaint_but(text, "ends with a dot", did_you_mean(name)),
        _ => complaint(text, "is no host"),
    }
}

fn next_hop(text: &str) -> Result<Value, Complaint> {
    if let Ok(next_hop) = text.parse::<NextHop>() {
        return Ok(Value::Text(next_hop.to_string()));
    }
    let meant = NextHop::meant(text).filter(|meant| meant.parse::<NextHop>().is_ok());
    Err((format!("{} names no next hop", quoted(text)), meant.map(|meant| did_you_mean(&meant))))
}

fn ip(text: &str) -> Result<Value, Complaint> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Value::Ip(ip));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let bare = bare.map(|text| text.strip_prefix("IPv6:").unwrap_or(text)).and_then(|text| text.parse::<IpAddr>().ok());
    if let Some(ip) = bare {
        return complaint_but(text, "is in brackets", did_you_mean(&ip.to_string()));
    }
    match text.parse::<SocketAddr>() {
        Ok(with_port) => complaint_but(text, "has a port", did_you_mean(&with_port.ip().to_string())),
        Err(_) => complaint(text, "is no address"),
    }
}

fn mailbox(text: &str) -> Result<Value, Complaint> {
    if let Ok(address) = text.parse::<Address>() {
        return Ok(Value::Text(address.to_string()));
    }
    match text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).filter(|text| text.parse::<Address>().is_ok())
    {
        Some(address) => complaint_but(text, "is in brackets", did_you_mean(address)),
        None if !text.contains('@') && !text.is_empty() => complaint(text, "has no domain"),
        None => complaint(text, "is no mail address"),
    }
}

/// A value of a type that the kind does not take.
fn wrong_type(value: &DeValue<'_>) -> Complaint {
    let text = plain_text(value);
    (
        match value {
            DeValue::String(text) => format!("{} is text", quoted(text)),
            DeValue::Integer(_) | DeValue::Float(_) => format!("{text} is a number"),
            DeValue::Boolean(_) => format!("{text} is a boolean"),
            DeValue::Datetime(_) => format!("{text} is a date"),
            DeValue::Array(_) => "a list stands here".to_owned(),
            DeValue::Table(_) => "a table stands here".to_owned(),
        },
        None,
    )
}

fn plain_text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => String::new(),
    }
}
