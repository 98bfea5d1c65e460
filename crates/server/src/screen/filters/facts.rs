//! Facts about an SMTP session and its transaction, as filters ask for them.

use std::net::SocketAddr;

/// An owned copy of the facts, since a filter is asked while the session waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterFacts {
    /// The name of this server.
    pub(crate) hostname: String,
    /// The name of the listener.
    pub(crate) listener: String,
    /// The address at which the client was accepted.
    pub(crate) server: Option<SocketAddr>,
    /// The client; none for a process of this machine.
    pub(crate) client: Option<SocketAddr>,
    /// The verified name of the client.
    pub(crate) client_name: Option<String>,
    /// The name that HELO or EHLO gave.
    pub(crate) helo: String,
    /// The word after `with` in the trace field.
    pub(crate) protocol: String,
    /// TLS: version, cipher, bits.
    pub(crate) tls: Option<(String, String, u16)>,
    /// The subject of a verified certificate.
    pub(crate) certificate_subject: String,
    /// The issuer of a verified certificate.
    pub(crate) certificate_issuer: String,
    /// The authenticated user.
    pub(crate) user: Option<String>,
    /// The mechanism of his authentication; empty, if a front end has authenticated him.
    pub(crate) auth_mechanism: String,
    /// The queue id of the open transaction.
    pub(crate) queue_id: String,
    /// The sender without brackets.
    pub(crate) sender: String,
    /// The ESMTP parameters of MAIL.
    pub(crate) sender_parameters: Vec<String>,
    /// The recipient that is asked about, without brackets.
    pub(crate) recipient: String,
    /// The enhanced code and the text with which the server refuses that recipient.
    pub(crate) refusal: Option<(String, String)>,
    /// The line of a command that the server does not know.
    pub(crate) command: Vec<u8>,
    /// The recipients that were accepted, without brackets.
    pub(crate) recipients: Vec<String>,
    /// The octets that the client declared.
    pub(crate) size: u64,
    /// Filters that have let the message pass before all of the session's.
    pub(crate) passed_filters: Vec<String>,
    /// The version of this program.
    pub(crate) version: &'static str,
}

impl FilterFacts {
    /// Returns the client's name, or its address in brackets.
    pub(super) fn shown_client(&self) -> String {
        match (&self.client_name, self.client) {
            (Some(name), _) => name.clone(),
            (None, Some(client)) => match client.ip().to_canonical() {
                std::net::IpAddr::V4(ip) => format!("[{ip}]"),
                std::net::IpAddr::V6(ip) => format!("[IPv6:{ip}]"),
            },
            (None, None) => "localhost".to_owned(),
        }
    }

    /// Returns the client's address as text; that of the loopback for a process of this machine.
    pub(super) fn client_ip(&self) -> String {
        self.client.map_or_else(|| "127.0.0.1".to_owned(), |client| client.ip().to_canonical().to_string())
    }

    /// Returns the mechanism of the client's authentication; `None`: it has not authenticated. It is never empty, since
    /// filters take an empty one for no authentication.
    pub(super) fn auth_type(&self) -> Option<&str> {
        self.user.as_ref()?;
        Some(if self.auth_mechanism.is_empty() { "SASL" } else { &self.auth_mechanism })
    }

    /// Returns the value of a milter macro.
    pub(super) fn macro_value(&self, name: &[u8]) -> Option<Vec<u8>> {
        match (name, &self.refusal) {
            (b"{rcpt_mailer}", Some(_)) => return Some(b"error".to_vec()),
            (b"{rcpt_host}", Some((status, _))) => return Some(status.clone().into_bytes()),
            (b"{rcpt_addr}", Some((_, text))) => return Some(text.clone().into_bytes()),
            _ => {}
        }
        let tls = self.tls.as_ref();
        let domain = |address: &str| address.rsplit_once('@').map(|(_, domain)| domain.to_owned());
        let value = match name {
            b"j" | b"{if_name}" => self.hostname.clone(),
            b"_" => match self.client {
                Some(_) if self.client_name.is_some() => format!("{} [{}]", self.shown_client(), self.client_ip()),
                _ => self.shown_client(),
            },
            b"v" => format!("mailrace {}", self.version),
            b"Z" => self.version.to_owned(),
            b"{daemon_name}" => self.listener.clone(),
            b"{daemon_addr}" | b"{if_addr}" => self.server?.ip().to_canonical().to_string(),
            b"{daemon_port}" => self.server?.port().to_string(),
            b"{client_addr}" => self.client_ip(),
            b"{client_port}" => self.client?.port().to_string(),
            b"{client_name}" | b"{client_ptr}" => match (&self.client_name, self.client) {
                (Some(name), _) => name.clone(),
                (None, Some(_)) => "unknown".to_owned(),
                (None, None) => "localhost".to_owned(),
            },
            b"{tls_version}" => tls?.0.clone(),
            b"{cipher}" => tls?.1.clone(),
            b"{cipher_bits}" => tls?.2.to_string(),
            b"{cert_subject}" => self.certificate_subject.clone(),
            b"{cert_issuer}" => self.certificate_issuer.clone(),
            b"i" => self.queue_id.clone(),
            b"r" => self.protocol.clone(),
            b"{auth_type}" => self.auth_type()?.to_owned(),
            b"{auth_authen}" => self.user.clone()?,
            b"{auth_ssf}" => self.user.as_ref().and(tls)?.2.to_string(),
            b"{mail_mailer}" | b"{rcpt_mailer}" => "esmtp".to_owned(),
            b"{mail_addr}" => self.sender.clone(),
            b"{mail_host}" => domain(&self.sender)?,
            b"{rcpt_addr}" => self.recipient.clone(),
            b"{rcpt_host}" => domain(&self.recipient)?,
            _ => return None,
        };
        Some(value.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_have_the_values_of_the_session() {
        let mut facts = FilterFacts {
            hostname: "mx.test".to_owned(),
            client: Some("[::ffff:192.0.2.1]:4242".parse().expect("an address")),
            sender: "a@client.test".to_owned(),
            ..FilterFacts::default()
        };
        let value = |facts: &FilterFacts, name: &str| {
            facts.macro_value(name.as_bytes()).map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        for (name, wanted) in [
            ("j", Some("mx.test")),
            ("_", Some("[192.0.2.1]")),
            ("{client_addr}", Some("192.0.2.1")),
            ("{client_name}", Some("unknown")),
            ("{client_port}", Some("4242")),
            ("{mail_addr}", Some("a@client.test")),
            ("{mail_host}", Some("client.test")),
            ("{rcpt_host}", None),
            ("{auth_type}", None),
            ("{auth_authen}", None),
            ("{cipher}", None),
            ("{unknown}", None),
        ] {
            assert_eq!(value(&facts, name).as_deref(), wanted, "{name}");
        }
        facts.recipient = "b@example.com".to_owned();
        assert_eq!(value(&facts, "{rcpt_host}").as_deref(), Some("example.com"));
        facts.refusal = Some(("5.1.1".to_owned(), "User unknown".to_owned()));
        for (name, wanted) in [("{rcpt_mailer}", "error"), ("{rcpt_host}", "5.1.1"), ("{rcpt_addr}", "User unknown")] {
            assert_eq!(value(&facts, name).as_deref(), Some(wanted), "{name}");
        }
        facts.user = Some("ann".to_owned());
        assert_eq!(value(&facts, "{auth_type}").as_deref(), Some("SASL"), "never empty");
        facts.auth_mechanism = "PLAIN".to_owned();
        assert_eq!(value(&facts, "{auth_type}").as_deref(), Some("PLAIN"));
        facts.client_name = Some("client.test".to_owned());
        assert_eq!(value(&facts, "_").as_deref(), Some("client.test [192.0.2.1]"));
        assert_eq!(FilterFacts::default().shown_client(), "localhost");
    }
}
