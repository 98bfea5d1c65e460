//! The trace line that this server puts in front of an accepted message.
//!
//! The layout is sendmail's, which log readers and filters know. The name that the client gave cannot leave its place:
//! a name that is no plain token is written as `unknown` is by others, with every dangerous character replaced.

use mail::decimal::push_ip;
use mail::{Address, Client, MtPriority, QueueId, Received};
use std::borrow::Cow;

/// The content of a `Received:` field.
// RFC 5321 §4.4
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// Our name.
    pub hostname: &'a str,
    /// The client that handed the message over, when and how.
    pub received: &'a Received,
    /// The verified name of the client's address, if it has one.
    pub client_name: Option<&'a str>,
    /// Protocol version and cipher, if the connection is encrypted: `TLSv1.3`, `TLS13_AES_256_GCM_SHA384`.
    pub tls: Option<(&'a str, &'a str)>,
    /// The name here of the message.
    pub id: QueueId,
    /// The recipient, if there is exactly one; others must not learn of each other.
    pub only_recipient: Option<&'a Address>,
    /// The priority that the client gave, as it was granted.
    pub priority: Option<MtPriority>,
}

/// Octets of a line without CRLF that folding aims at; a longer name stands on a line of its own.
const LINE_OCTETS: usize = 78;

impl Trace<'_> {
    /// Appends the field with its CRLF. The time is written for a zone `zone` seconds east of UTC, of which whole
    /// minutes count.
    // RFC 5321 §4.4: Time-stamp-line; RFC 5321 §7.6: recipients are not told of each other
    pub fn write_to(&self, out: &mut Vec<u8>, zone: i32) {
        let mut line = Folded { out, column: 0 };
        line.start("Received:");
        match self.received.client {
            Client::Network(peer) => {
                let ip = peer.ip().to_canonical();
                let helo = self.received.helo.as_ref().map(|helo| harmless(helo.as_str()));
                let mut peer = String::with_capacity(64);
                peer.push('(');
                if let Some(name) = self.client_name {
                    peer.push_str(&harmless(name));
                    peer.push(' ');
                }
                peer.push_str(if ip.is_ipv6() { "[IPv6:" } else { "[" });
                push_ip(&mut peer, ip);
                peer.push_str("])");
                line.word("from");
                line.word(helo.as_deref().unwrap_or("unknown"));
                line.word(&peer);
            }
            Client::Process { uid } => {
                line.word(&format!("(from uid {uid})"));
            }
            Client::Internal => line.word("(from mailrace)"),
        }
        line.fold();
        line.word("by");
        line.word(&harmless(self.hostname));
        line.word("(mailrace)");
        line.word("with");
        line.word(self.received.protocol.keyword());
        line.word("id");
        line.word(str::from_utf8(&self.id.text()).unwrap_or_default());
        if let Some((version, cipher)) = self.tls {
            line.fold();
            line.word(&format!("(version={}", harmless(version)));
            line.word(&format!("cipher={})", harmless(cipher)));
        }
        let end = if self.priority.is_some() { "" } else { ";" };
        if let Some(recipient) = self.only_recipient {
            line.fold();
            line.word("for");
            // An address has no control character, and brackets and quotes hold the rest.
            line.word(&format!("<{recipient}>{end}"));
        } else {
            line.out.extend_from_slice(end.as_bytes());
        }
        // RFC 6710 §4.1, §7
        if let Some(priority) = self.priority {
            line.word("PRIORITY");
            line.word(&format!("{priority};"));
        }
        let date = mail::submission::date(self.received.at_us, zone);
        if line.column + 1 + date.len() > LINE_OCTETS {
            line.fold();
        }
        line.word(&date);
        line.out.extend_from_slice(b"\r\n");
    }
}

/// A field that is being written.
struct Folded<'a> {
    out: &'a mut Vec<u8>,
    column: usize,
}

impl Folded<'_> {
    fn start(&mut self, name: &str) {
        self.out.extend_from_slice(name.as_bytes());
        self.column = name.len();
    }

    /// A word behind a space, or on the next line if it does not fit.
    fn word(&mut self, word: &str) {
        if self.column > 1 && self.column + 1 + word.len() > LINE_OCTETS {
            self.fold();
        }
        if self.column > 1 {
            self.out.push(b' ');
            self.column += 1;
        }
        self.out.extend_from_slice(word.as_bytes());
        self.column += word.len();
    }

    // RFC 5322 §2.2.3
    fn fold(&mut self) {
        self.out.extend_from_slice(b"\r\n\t");
        self.column = 1;
    }
}

/// A foreign name as a token that ends nothing: no comment, quoted string, bracket or field part can begin or end in
/// it. It is ASCII, since the next hop may not take more.
fn harmless(name: &str) -> Cow<'_, str> {
    let is_safe = |c: char| {
        let is_space = c.is_control() || c.is_whitespace();
        c.is_ascii() && !is_space && !matches!(c, '(' | ')' | '<' | '>' | '"' | '\\' | ';' | ',' | '@')
    };
    if name.chars().all(is_safe) {
        return Cow::Borrowed(name);
    }
    name.chars().map(|c| if is_safe(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{HeloName, Protocol, Session};
    use proptest::prelude::*;

    fn received(helo: &str) -> Received {
        Received {
            at_us: 1_795_179_600_000_000,
            client: Client::Network("192.0.2.1:25".parse().unwrap()),
            helo: HeloName::new(helo.as_bytes()),
            protocol: Protocol::Esmtp(Session { tls: true, auth: false, utf8: false }),
        }
    }

    fn write(trace: &Trace<'_>, zone: i32) -> String {
        let mut out = Vec::new();
        trace.write_to(&mut out, zone);
        String::from_utf8(out).unwrap()
    }

    // RFC 5321 §4.4 (test), RFC 5322 §3.3 (test), RFC 6710 §7 (test)
    #[test]
    fn layout() {
        let received = received("client.example");
        let recipient: Address = "a@b.example".parse().unwrap();
        let mut trace = Trace {
            hostname: "mx.example",
            received: &received,
            client_name: Some("host.example"),
            tls: None,
            id: "6AK9BPYn675804".parse().unwrap(),
            only_recipient: Some(&recipient),
            priority: None,
        };
        assert_eq!(
            write(&trace, 0),
            "Received: from client.example (host.example [192.0.2.1])\r\n\
             \tby mx.example (mailrace) with ESMTPS id 6AK9BPYn675804\r\n\
             \tfor <a@b.example>; Fri, 20 Nov 2026 13:00:00 +0000\r\n"
        );
        trace.priority = MtPriority::new(-4);
        assert!(write(&trace, 0).ends_with("\r\n\tfor <a@b.example> PRIORITY -4; Fri, 20 Nov 2026 13:00:00 +0000\r\n"));
        trace.tls = Some(("TLSv1.3", "TLS13_AES_256_GCM_SHA384"));
        trace.client_name = None;
        trace.only_recipient = None;
        assert_eq!(
            write(&trace, -12_600),
            "Received: from client.example ([192.0.2.1])\r\n\
             \tby mx.example (mailrace) with ESMTPS id 6AK9BPYn675804\r\n\
             \t(version=TLSv1.3 cipher=TLS13_AES_256_GCM_SHA384) PRIORITY -4;\r\n\
             \tFri, 20 Nov 2026 09:30:00 -0330\r\n"
        );
        let process =
            Received { client: Client::Process { uid: 7 }, helo: None, protocol: Protocol::Local, ..received };
        let text = write(&Trace { received: &process, tls: None, ..trace }, 0);
        assert!(text.starts_with("Received: (from uid 7)\r\n\tby mx.example (mailrace) with local id"), "{text}");
    }

    proptest! {
        #[test]
        fn a_name_cannot_leave_its_place(helo in r#"[!-~\u{a1}-\u{ff}]{1,255}"#, name in r#"[ -~]{0,80}"#) {
            let received = received(&helo);
            let trace = Trace {
                hostname: "mx.example",
                received: &received,
                client_name: Some(&name),
                tls: None,
                id: "6AK9BPYn675804".parse().unwrap(),
                only_recipient: None,
                priority: None,
            };
            let text = write(&trace, 0);
            prop_assert_eq!(text.matches('(').count(), 2);
            prop_assert_eq!(text.matches(')').count(), 2);
            prop_assert_eq!(text.matches(';').count(), 1);
            prop_assert!(!text.contains(['"', '\\', '<', '>']) && text.is_ascii());
            prop_assert_eq!(text.matches("\r\n").count(), 1 + text.matches("\r\n\t").count());
            prop_assert!(text.lines().all(|line| line.len() <= LINE_OCTETS || line.split_whitespace().count() <= 2), "{}", text);
        }
    }
}
