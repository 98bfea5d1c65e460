//! The settings of HTTP: `[http]` and `[[http.token]]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Metrics, health, API and page by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it listens; empty: nowhere. See [`Http::socket`].
    pub address: String,
    /// Names of this server in requests, beside its addresses, `localhost` and `hostname`.
    pub names: Vec<String>,
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
