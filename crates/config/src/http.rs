//! The settings of HTTP: `[http]` and `[[http.token]]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Metrics, health, API and page by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it listens; empty: nowhere. See [`Http::socket`].
    pub address: String,
    /// Where agent checks of balancers are answered; empty: nowhere. See [`Http::agent_socket`].
    pub agent_address: String,
    /// Names of this server in requests, beside its addresses, `localhost` and `hostname`.
    pub names: Vec<String>,
    /// The address at which recipients of mail reach this server, for links in mail; empty: none.
    pub public_url: String,
    /// The rights of clients while there is no token.
    pub without_token: HttpRole,
    /// Connections at once.
    pub connections_max: u32,
    /// Octets of the header section of a request.
    pub header_bytes_max: u32,
    /// Octets of the body of a request.
    pub body_bytes_max: u32,
    /// How long a request may take to arrive, and a part of an answer to be taken.
    pub request_time_max: Duration,
    /// Certificates, each with its chain; none: without TLS.
    pub certificate: Vec<PathBuf>,
    /// Their keys.
    pub key: Vec<PathBuf>,
    /// CAs that vouch for clients.
    pub client_ca: Vec<PathBuf>,
    /// `[[http.token]]`
    pub tokens: Vec<HttpToken>,
    /// `[[http.client]]`
    pub clients: Vec<HttpClient>,
}

impl Http {
    /// Returns the address; `None` where HTTP is off. A text that is no address, which the rules refuse, counts as off.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        self.address.parse().ok()
    }

    /// Returns the address for agent checks, as [`Http::socket`] does.
    #[must_use]
    pub fn agent_socket(&self) -> Option<SocketAddr> {
        self.agent_address.parse().ok()
    }

    /// Returns the name in `http.public_url`; `None`: there is none.
    #[must_use]
    pub fn public_name(&self) -> Option<&str> {
        let rest = self.public_url.strip_prefix("https://").or_else(|| self.public_url.strip_prefix("http://"))?;
        let host = rest.split('/').next().unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !name.ends_with(':') && port.bytes().all(|digit| digit.is_ascii_digit()) => name,
            _ => host,
        };
        let is_part = |octet: u8| octet.is_ascii_alphanumeric() || b"-.[]:".contains(&octet);
        (!name.is_empty() && name.bytes().all(is_part)).then_some(name)
    }
}

/// `[[http.token]]`: a secret that gives rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpToken {
    /// Its name in the log, and at mail that its owner holds.
    pub name: String,
    /// The file whose first line is the secret.
    pub file: PathBuf,
    /// The rights that it gives.
    pub role: HttpRole,
}

/// `[[http.client]]`: a client whose certificate gives rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpClient {
    /// The common name in its certificate.
    pub name: String,
    /// The rights that it gives.
    pub role: HttpRole,
}

/// The rights of a client of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpRole {
    /// Nothing but health.
    None,
    /// Everything but the content of mail, and no changes.
    View,
    /// Everything.
    Operate,
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn the_name_of_the_public_address() {
        let mut http = Config::default().http;
        for (url, name) in [
            ("https://mail.example.com", Some("mail.example.com")),
            ("http://127.0.0.1:8025/mail", Some("127.0.0.1")),
            ("https://[2001:db8::1]:8025", Some("[2001:db8::1]")),
            ("https://[2001:db8::1]", Some("[2001:db8::1]")),
            ("mail.example.com", None),
            ("https://", None),
            ("https://a b", None),
            ("", None),
        ] {
            http.public_url = url.to_owned();
            assert_eq!(http.public_name(), name, "{url}");
        }
    }
}
