//! The values of mailertable, smarttable, `via` and `copy` of rules: `mailer:host`.
//!
//! | Value | Mail goes |
//! |---|---|
//! | `esmtp:example.com` | to the MX hosts of example.com |
//! | `esmtp:[mail.example.com]`, `smtp:[192.0.2.1]`, `smtp:[IPv6:2001:db8::1]` | to that host |
//! | `smtp:[192.0.2.1]:[192.0.2.2]:b.example` | to the first; if it cannot be reached to the next |
//! | `smtp:[192.0.2.1],[192.0.2.2]` | to either, they are as good as each other; `,` binds closer than `:` |
//! | `smtp:[192.0.2.1]#2525` | to that port; sendmail has no such thing |
//! | `smtp:joe@[192.0.2.1]` | to that host, for joe at it |
//! | `relay:…`, `smtp8:…`, `dsmtp:…` | as `esmtp:` |
//! | `lmtp:[127.0.0.1]#24`, `lmtp:unix:/run/lmtp`, `lmtp:/run/lmtp` | by LMTP; not sendmail's |
//! | `local:`, `local:joe` | to the user of that name here, or to joe |
//! | `error:5.1.6:550 moved` | back, see [`error_value`](super::error_value) |
//! | `discard:` | nowhere; not sendmail's |
//! | `mail.example.com` | as `relay:`; sendmail ignores such an entry of mailertable |
//!
//! `[192.0.2.1]:2525` is no port: sendmail takes `2525` for a second host. A number alone is a fault here.

use super::ValueError;
use super::error_value::ErrorValue;
use crate::destination::{Hosts, NextHost, Protocol};
use mail::{Address, Domain, DomainName, LocalPart};
use std::fmt;
use std::net::IpAddr;

/// Where a value sends mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailerValue {
    /// To hosts.
    Hosts {
        /// Which.
        hosts: Hosts,
        /// The address, in place of the recipient.
        recipient: Option<Address>,
    },
    /// To a user here; without a name the recipient's own.
    Local(Option<Box<str>>),
    /// Back.
    Error(ErrorValue),
    /// Nowhere.
    Discard,
}

impl MailerValue {
    /// Reads a value. `port` is for hosts without one.
    ///
    /// # Errors
    /// The fault, and the text to write.
    pub fn parse(text: &str, port: u16) -> Result<Self, ValueError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ValueError::new(
                "the value is empty",
                "write a mailer and a host, as esmtp:[mail.example.com]",
            ));
        }
        if text.chars().any(char::is_control) {
            return Err(ValueError::new("the value has control characters", "write it anew"));
        }
        let Some((mailer, rest)) = split_mailer(text) else {
            return Ok(Self::Hosts { hosts: hosts(Protocol::Smtp, text, port)?, recipient: None });
        };
        match mailer.to_ascii_lowercase().as_str() {
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" => to_hosts(Protocol::Smtp, mailer, rest, port),
            "lmtp" => match rest.strip_prefix("unix:").or_else(|| rest.starts_with('/').then_some(rest)) {
                Some(path) => to_socket(path),
                None => to_hosts(Protocol::Lmtp, mailer, rest, port),
            },
            "local" => Ok(Self::Local(local_user(rest)?)),
            "error" => Ok(Self::Error(ErrorValue::parse(rest))),
            "discard" => Ok(Self::Discard),
            _ => Err(ValueError::new(
                format!("there is no mailer \"{mailer}\""),
                "the mailers are esmtp, smtp, relay, lmtp, local, error and discard",
            )),
        }
    }
}

/// Writes hosts as a value has them: `[192.0.2.1]:[192.0.2.2]` in the order in which they are tried, with commas
/// between equals. A port that is not 25 stands behind `#`.
#[must_use]
pub fn host_list(hosts: &Hosts) -> String {
    let with_port = |host: String, port: u16| if port == 25 { host } else { format!("{host}#{port}") };
    let one = |host: &NextHost| match host {
        NextHost::Address(IpAddr::V4(ip), port) => with_port(format!("[{ip}]"), *port),
        NextHost::Address(IpAddr::V6(ip), port) => with_port(format!("[IPv6:{ip}]"), *port),
        NextHost::Name(name, port) => with_port(format!("[{name}]"), *port),
        NextHost::Mx(name, port) => with_port(name.to_string(), *port),
        NextHost::Unix(path) => format!("unix:{path}"),
    };
    let groups = hosts.groups.iter().map(|group| group.iter().map(one).collect::<Vec<_>>().join(","));
    groups.collect::<Vec<_>>().join(":")
}

/// Splits a value into mailer and hosts; `None` for hosts without one, whose dots tell.
pub(crate) fn split_mailer(text: &str) -> Option<(&str, &str)> {
    let (mailer, rest) = text.split_once(':')?;
    let is_one_word = mailer.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    is_one_word.then(|| (mailer, rest.trim()))
}

fn to_socket(path: &str) -> Result<MailerValue, ValueError> {
    if !path.starts_with('/') || path.contains([',', '|', ')', ' ']) {
        return Err(ValueError::new(
            format!("\"{path}\" is no full name of a socket"),
            "write it as lmtp:unix:/run/dovecot/lmtp, without blanks and commas",
        ));
    }
    let groups = vec![vec![NextHost::Unix(path.into())]];
    Ok(MailerValue::Hosts { hosts: Hosts { protocol: Protocol::Lmtp, groups }, recipient: None })
}

fn to_hosts(protocol: Protocol, mailer: &str, rest: &str, port: u16) -> Result<MailerValue, ValueError> {
    if rest.is_empty() {
        return Err(ValueError::new(
            format!("\"{mailer}:\" has no host"),
            format!("write {mailer}:[mail.example.com]"),
        ));
    }
    let (user, list) = match split_user(rest) {
        Some((user, list)) => (Some(user), list),
        None => (None, rest),
    };
    let hosts = hosts(protocol, list, port)?;
    let recipient = match user {
        Some(user) => Some(recipient_at(user, &hosts)?),
        None => None,
    };
    Ok(MailerValue::Hosts { hosts, recipient })
}

/// The user before the first `@` that is not in quotes.
fn split_user(text: &str) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '@' if !is_quoted => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

fn recipient_at(user: &str, hosts: &Hosts) -> Result<Address, ValueError> {
    let bad = |why: String| ValueError::new(format!("\"{user}\" is no user: {why}"), "write mailer:user@[host]");
    let local = LocalPart::new(user.trim_matches('"')).map_err(|error| bad(error.to_string()))?;
    let domain = match hosts.groups.first().and_then(|group| group.first()) {
        Some(NextHost::Address(ip, _)) => Domain::Literal((*ip).into()),
        Some(NextHost::Name(name, _) | NextHost::Mx(name, _)) => {
            Domain::Name(DomainName::new(name).map_err(|error| bad(error.to_string()))?)
        }
        Some(NextHost::Unix(_)) | None => return Err(bad("there is no host it could be at".to_owned())),
    };
    Address::new(local, domain).map_err(|error| bad(error.to_string()))
}

// sendmail ignores the host behind `local:user@`.
fn local_user(rest: &str) -> Result<Option<Box<str>>, ValueError> {
    let user = rest.split_once('@').map_or(rest, |(user, _)| user).trim();
    if user.is_empty() {
        return Ok(None);
    }
    if user.contains([':', ' ', ',', '|', '/']) || LocalPart::new(user).is_err() {
        return Err(ValueError::new(format!("\"{user}\" is no user"), "write local: or local:joe"));
    }
    Ok(Some(user.into()))
}

fn hosts(protocol: Protocol, list: &str, port: u16) -> Result<Hosts, ValueError> {
    let mut groups = Vec::new();
    for group in split(list, ':')? {
        groups.push(split(group, ',')?.into_iter().map(|host| next_host(host, port)).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(Hosts { protocol, groups })
}

/// Cuts a list at a character that is not in brackets.
fn split(list: &str, at: char) -> Result<Vec<&str>, ValueError> {
    let mut parts = Vec::new();
    let (mut start, mut is_inside) = (0, false);
    for (place, c) in list.char_indices() {
        match c {
            '[' if is_inside => return Err(brackets(list, "has \"[\" within \"[\"")),
            '[' => is_inside = true,
            ']' if !is_inside => return Err(brackets(list, "lacks \"[\"")),
            ']' => is_inside = false,
            _ if c == at && !is_inside => {
                parts.push(list.get(start..place).unwrap_or_default());
                start = place + c.len_utf8();
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(brackets(list, "lacks \"]\""));
    }
    parts.push(list.get(start..).unwrap_or_default());
    Ok(parts)
}

fn brackets(list: &str, what: &str) -> ValueError {
    ValueError::new(
        format!("\"{list}\" {what}"),
        "write a host that is not looked up for MX as [192.0.2.1] or [mail.example.com]",
    )
}

fn next_host(text: &str, port: u16) -> Result<NextHost, ValueError> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once('#') {
        Some((host, number)) => match number.parse() {
            Ok(port) if port > 0 => (host, port),
            _ => return Err(ValueError::new(format!("\"{number}\" is no port"), "write [192.0.2.1]#2525")),
        },
        None => (text, port),
    };
    if host.is_empty() {
        return Err(ValueError::new(
            "a host is missing in the list",
            "write hosts with one \":\" or \",\" between them",
        ));
    }
    if host.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::new(
            format!("\"{host}\" is a number, no host; \":\" stands between hosts, not before a port"),
            format!("write [192.0.2.1]#{host} for a port"),
        ));
    }
    if let Some(inside) = host.strip_prefix('[') {
        let Some(inside) = inside.strip_suffix(']') else {
            return Err(brackets(host, "has something behind \"]\""));
        };
        return match ip(inside) {
            Some(ip) => Ok(NextHost::Address(ip, port)),
            None => Ok(NextHost::Name(name(inside)?, port)),
        };
    }
    match host.parse() {
        Ok(ip) => Ok(NextHost::Address(ip, port)),
        Err(_) => Ok(NextHost::Mx(name(host)?, port)),
    }
}

fn ip(text: &str) -> Option<IpAddr> {
    match text.split_at_checked("IPv6:".len()) {
        Some((tag, rest)) if tag.eq_ignore_ascii_case("IPv6:") => rest.parse().ok().map(IpAddr::V6),
        _ => text.parse().ok(),
    }
}

fn name(text: &str) -> Result<Box<str>, ValueError> {
    // A dot at the end says that the name is complete; all are.
    let text = text.strip_suffix('.').unwrap_or(text);
    match DomainName::new(text) {
        Ok(name) => Ok(name.ascii().into()),
        Err(error) => Err(ValueError::new(format!("\"{text}\" is no host: {error}"), "write a name or [192.0.2.1]")),
    }
}

/// As an explanation names it.
impl fmt::Display for MailerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts { hosts, recipient: None } => write!(f, "{hosts}"),
            Self::Hosts { hosts, recipient: Some(address) } => write!(f, "{hosts} for {address}"),
            Self::Local(None) => f.write_str("local:"),
            Self::Local(Some(user)) => write!(f, "local:{user}"),
            Self::Error(error) => write!(f, "refused: {} {} {}", error.code, error.status, error.text),
            Self::Discard => f.write_str("discarded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::{Destination, To};

    fn read(text: &str) -> String {
        MailerValue::parse(text, 25).map_or_else(|fault| format!("! {}", fault.text), |value| value.to_string())
    }

    #[test]
    fn a_list_of_hosts_reads_back() {
        for text in [
            "[192.0.2.1]",
            "[192.0.2.1]#2525:[a.example]",
            "a.example:[IPv6:2001:db8::1]",
            "[192.0.2.1],b.example#26:[c.example]",
            "unix:/run/lmtp",
        ] {
            let value = if text.starts_with("unix") { format!("lmtp:{text}") } else { format!("smtp:{text}") };
            let Ok(MailerValue::Hosts { hosts, .. }) = MailerValue::parse(&value, 25) else { panic!("{value}") };
            assert_eq!(host_list(&hosts), text);
        }
    }

    #[test]
    fn values_of_mailertable() {
        for (text, meaning) in [
            ("smtp:[10.0.0.1]:[10.0.0.2]", "smtp:[10.0.0.1]:25,[10.0.0.2]:25"),
            ("esmtp:host.example", "smtp:mx:host.example:25"),
            ("esmtp:[host.example]", "smtp:host.example:25"),
            ("SMTP:[IPv6:2001:db8::1]:b.example", "smtp:[2001:db8::1]:25,mx:b.example:25"),
            ("smtp:[10.0.0.1],b.example:c.example", "smtp:([10.0.0.1]:25|mx:b.example:25),mx:c.example:25"),
            ("esmtp:[1.2.3.4]#2525", "smtp:[1.2.3.4]:2525"),
            ("smtp:user@[10.9.9.9]", "smtp:[10.9.9.9]:25 for user@[10.9.9.9]"),
            ("smtp:\"a b\"@h.example", "smtp:mx:h.example:25 for \"a b\"@h.example"),
            ("local:", "local:"),
            ("local:joe", "local:joe"),
            ("local:joe@other.example", "local:joe"),
            ("relay:hub.example.", "smtp:mx:hub.example:25"),
            ("bare.host.name", "smtp:mx:bare.host.name:25"),
            ("[10.1.1.1]:[10.1.1.2]", "smtp:[10.1.1.1]:25,[10.1.1.2]:25"),
            ("a.example:b.example", "smtp:mx:a.example:25,mx:b.example:25"),
            ("lmtp:unix:/run/dovecot/lmtp", "lmtp:unix:/run/dovecot/lmtp"),
            ("lmtp:/run/lmtp", "lmtp:unix:/run/lmtp"),
            ("lmtp:[127.0.0.1]#24", "lmtp:[127.0.0.1]:24"),
            ("error:5.1.6:550 moved", "refused: 550 5.1.6 moved"),
            ("discard:", "discarded"),
            ("smtp:10.0.0.1", "smtp:[10.0.0.1]:25"),
            ("smtp:[10.0.0.5", "! \"[10.0.0.5\" lacks \"]\""),
            ("smtp:10.0.0.5]", "! \"10.0.0.5]\" lacks \"[\""),
            ("smtp:", "! \"smtp:\" has no host"),
            ("smtp:[10.0.0.1]:2525", "! \"2525\" is a number, no host; \":\" stands between hosts, not before a port"),
            (
                "smtp:a@b@c",
                "! \"b@c\" is no host: address \"b@c\" refused at byte 1: it has a character that cannot stand there",
            ),
            ("nosuch:x", "! there is no mailer \"nosuch\""),
            ("prog:x", "! there is no mailer \"prog\""),
            ("smtp:[a]b", "! \"[a]b\" has something behind \"]\""),
            ("smtp:[a]::[b]", "! a host is missing in the list"),
            ("smtp:a#0", "! \"0\" is no port"),
        ] {
            assert_eq!(read(text), meaning, "{text}");
        }
    }

    #[test]
    fn hosts_are_destinations_that_read_back() {
        for text in ["smtp:[10.0.0.1],b.example:c.example", "lmtp:/run/lmtp", "relay:[IPv6:::1]#26"] {
            let Ok(MailerValue::Hosts { hosts, .. }) = MailerValue::parse(text, 25) else { panic!("{text}") };
            let destination = Destination::new(To::Hosts(hosts));
            assert_eq!(Destination::parse(&destination.to_bytes()), Ok(destination));
        }
    }
}
