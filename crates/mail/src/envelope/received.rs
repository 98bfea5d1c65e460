//! The origin of a message: time, client, protocol. The values that the trace field and the queue views show.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The circumstances in which a message was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// When the transaction ended, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// The client that handed it over.
    pub client: Client,
    /// The name that the client gave in HELO, EHLO or LHLO.
    pub helo: Option<HeloName>,
    /// How it was handed over.
    pub protocol: Protocol,
}

/// The origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// A peer on the network, after PROXY protocol if that is in use.
    Network(SocketAddr),
    /// A process on this machine, by its user id: the sendmail command line.
    Process {
        /// The real user id.
        uid: u32,
    },
    /// mailrace itself: bounces, digests.
    Internal,
}

/// The name a client gives itself. Often untrue and often no domain, hence only printable text without spaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeloName(Box<str>);

impl HeloName {
    /// Longest name kept, in octets: RFC 5321 §4.5.3.1.2.
    pub const OCTETS_MAX: usize = 255;

    /// Takes the argument of HELO. `None` when it is empty, longer than 255 octets, not UTF-8, or has spaces or control
    /// characters in it.
    #[must_use]
    pub fn new(argument: &[u8]) -> Option<Self> {
        // RFC 5321 §4.1.4: the name is not refused for being no domain
        let text = str::from_utf8(argument).ok()?;
        let fits = !text.is_empty()
            && text.len() <= Self::OCTETS_MAX
            && text.chars().all(|c| !c.is_control() && !c.is_whitespace());
        fits.then(|| Self(text.into()))
    }

    /// Takes the first word of an argument that [`Self::new`] refuses, at most 255 octets of it, with `?` for each
    /// character that is not printable. `None` when there is no word.
    #[must_use]
    pub fn masked(argument: &[u8]) -> Option<Self> {
        let mut text = String::new();
        for chunk in argument.utf8_chunks() {
            let masks = !chunk.invalid().is_empty();
            text.extend(chunk.valid().chars().map(|c| if c.is_control() && c != '\t' { '?' } else { c }));
            text.extend(masks.then_some('?'));
        }
        let word = text.split_whitespace().next()?;
        Some(Self(word.get(..word.floor_char_boundary(Self::OCTETS_MAX))?.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeloName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The protocol a message came by: the word after `with` in the trace field (RFC 3848, RFC 6531 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// No protocol: a process or mailrace itself.
    Local,
    /// HELO
    Smtp,
    /// EHLO
    Esmtp(Session),
    /// LHLO
    Lmtp(Session),
}

/// The properties of an extended session that handed the message over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Session {
    /// The connection was encrypted.
    pub tls: bool,
    /// The client had authenticated.
    pub auth: bool,
    /// The transaction was marked SMTPUTF8.
    pub utf8: bool,
}

impl Protocol {
    /// Every value with its keyword.
    // RFC 3848 §1, RFC 6531 §4.3: the registry of "with" keywords; "local" is sendmail's and Postfix's word, not
    // registered
    const KEYWORDS: [(&'static str, Self); 18] = [
        ("local", Self::Local),
        ("SMTP", Self::Smtp),
        ("ESMTP", Self::Esmtp(Session { tls: false, auth: false, utf8: false })),
        ("ESMTPA", Self::Esmtp(Session { tls: false, auth: true, utf8: false })),
        ("ESMTPS", Self::Esmtp(Session { tls: true, auth: false, utf8: false })),
        ("ESMTPSA", Self::Esmtp(Session { tls: true, auth: true, utf8: false })),
        ("UTF8SMTP", Self::Esmtp(Session { tls: false, auth: false, utf8: true })),
        ("UTF8SMTPA", Self::Esmtp(Session { tls: false, auth: true, utf8: true })),
        ("UTF8SMTPS", Self::Esmtp(Session { tls: true, auth: false, utf8: true })),
        ("UTF8SMTPSA", Self::Esmtp(Session { tls: true, auth: true, utf8: true })),
        ("LMTP", Self::Lmtp(Session { tls: false, auth: false, utf8: false })),
        ("LMTPA", Self::Lmtp(Session { tls: false, auth: true, utf8: false })),
        ("LMTPS", Self::Lmtp(Session { tls: true, auth: false, utf8: false })),
        ("LMTPSA", Self::Lmtp(Session { tls: true, auth: true, utf8: false })),
        ("UTF8LMTP", Self::Lmtp(Session { tls: false, auth: false, utf8: true })),
        ("UTF8LMTPA", Self::Lmtp(Session { tls: false, auth: true, utf8: true })),
        ("UTF8LMTPS", Self::Lmtp(Session { tls: true, auth: false, utf8: true })),
        ("UTF8LMTPSA", Self::Lmtp(Session { tls: true, auth: true, utf8: true })),
    ];

    /// The keyword for the trace field.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the table has every value, as a test shows")]
    pub fn keyword(self) -> &'static str {
        Self::KEYWORDS.iter().find(|(_, protocol)| *protocol == self).expect("every protocol has a keyword").0
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        let found = Self::KEYWORDS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(text));
        found.map(|(_, protocol)| *protocol).ok_or(UnknownProtocol)
    }
}

/// The text is not the keyword of a [`Protocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownProtocol;

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a protocol keyword such as ESMTPS or LMTP")
    }
}

impl std::error::Error for UnknownProtocol {}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3848 §1 (test), RFC 6531 §4.3 (test)
    #[test]
    fn every_protocol_has_its_keyword() {
        let bools = [false, true];
        for (tls, auth, utf8) in bools.iter().flat_map(|t| bools.iter().flat_map(move |a| bools.map(|u| (*t, *a, u)))) {
            let session = Session { tls, auth, utf8 };
            for protocol in [Protocol::Local, Protocol::Smtp, Protocol::Esmtp(session), Protocol::Lmtp(session)] {
                assert_eq!(protocol.keyword().parse(), Ok(protocol));
            }
        }
        assert_eq!("esmtpsa".parse(), Ok(Protocol::Esmtp(Session { tls: true, auth: true, utf8: false })));
        assert_eq!("MMS".parse::<Protocol>(), Err(UnknownProtocol));
    }

    #[test]
    fn helo_names() {
        assert_eq!(HeloName::new(b"[192.0.2.1]").unwrap().as_str(), "[192.0.2.1]");
        assert!(HeloName::new(b"my_pc").is_some());
        for argument in [&b""[..], b"a b", b"a\r\nb", b"\xff", "a\u{a0}b".as_bytes(), &[b'a'; 256]] {
            assert_eq!(HeloName::new(argument), None);
        }
        let masked = |argument: &[u8]| HeloName::masked(argument).map(|name| name.to_string());
        for (argument, wanted) in [
            (&b"Front Office PC"[..], "Front"),
            (b" a", "a"),
            (b"B\xfcro-PC", "B?ro-PC"),
            (b"\xff\xfe x", "??"),
            ("a\u{a0}b".as_bytes(), "a"),
            (b"a\x07b", "a?b"),
            ("b\u{fc}ro pc".as_bytes(), "b\u{fc}ro"),
        ] {
            assert_eq!(masked(argument).as_deref(), Some(wanted));
        }
        assert_eq!(masked(b""), None);
        assert_eq!(masked(b"  "), None);
        assert_eq!(masked("\u{fc}".repeat(200).as_bytes()).map(|name| name.len()), Some(254));
    }
}
