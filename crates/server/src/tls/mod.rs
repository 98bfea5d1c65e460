//! TLS of the server: certificates, the handshake, and the words of the log for both; and towards next hops,
//! [`Connector`].
//!
//! The stop is accept, for implicit TLS, and session, for STARTTLS; both use the same [`Acceptor`]. The other side is
//! deliver. TLS 1.2 and 1.3 by rustls; clients are asked for a certificate where `tls.client_ca` names CAs for them;
//! no ALPN, no early data. Resumption is by tickets, whose keys change every few hours and live as long as the
//! process; nothing is stored for a session that ended.
//!
//! Invariant: a connection keeps the certificate it began with; a reload changes all settings or none.

mod alternative;
pub(crate) mod authorities;
mod certificate;
mod client;
mod connector;
mod der;
pub(crate) mod flaw;
mod names;
mod report;
#[cfg(test)]
mod tests;
pub(crate) mod validity;

pub(crate) use client::ClientCertificate;
pub use connector::{ClientStream, Connector, Fault, ServerCertificate, TlsInfo};
pub use report::HandshakeError;

use arc_swap::ArcSwap;
use certificate::{Certificates, Identity};
use client::ClientAuthorities;
use os::clock;
use report::TlsPeer;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// Value of `verify=` in log lines where no certificate was asked for, and for next hops, of which any is taken.
pub const VERIFY: &str = "NOT";

/// An encrypted connection.
pub type Stream<S> = tokio_rustls::server::TlsStream<S>;

/// Plain text that rustls may hold for a client that does not read: one record.
const SEND_BUFFER_BYTES: usize = 16 * 1024;

/// A problem with a certificate, a key or a setting that the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsProblem {
    object: String,
    reason: String,
    /// The rights of the process do not suffice for a file.
    is_denied: bool,
}

impl TlsProblem {
    fn new(object: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self { object: object.to_string(), reason: reason.into(), is_denied: false }
    }

    fn of(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(path.display(), reason)
    }
}

impl TlsProblem {
    /// Returns the file or the key of the configuration that is meant.
    pub(crate) fn object(&self) -> &str {
        &self.object
    }

    /// Whether the rights of the process do not suffice for the file, whose contents may be good.
    pub(crate) const fn is_denied(&self) -> bool {
        self.is_denied
    }
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.reason)
    }
}

impl std::error::Error for TlsProblem {}

/// Accepts TLS connections. One for the server, shared by all listeners.
pub struct Acceptor {
    provider: Arc<CryptoProvider>,
    /// Kept over reloads, so that clients can go on with their tickets.
    ticketer: Arc<dyn ProducesTickets>,
    current: ArcSwap<LoadedCertificates>,
    /// The key of the configuration with the CAs for clients, for messages.
    client_ca_key: &'static str,
}

struct LoadedCertificates {
    /// Configuration that asks no client for a certificate.
    config: Arc<ServerConfig>,
    /// Configuration that asks for a client certificate, and the CAs for it.
    asking: Option<(Arc<ServerConfig>, ClientAuthorities)>,
    identities: Arc<[Identity]>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Reads certificates and keys. [`Self::warnings`] has doubtful settings that work. Blocks on the disk.
    ///
    /// # Errors
    /// Everything that is wrong: no certificate, a file that cannot be read, a key that does not fit.
    pub fn load(settings: &config::Tls) -> Result<Self, Vec<TlsProblem>> {
        Self::load_with(settings, "tls.client_ca")
    }

    /// Reads certificates and keys as [`Self::load`]; `client_ca_key` is the key of the configuration that names the
    /// CAs for clients.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub(crate) fn load_with(settings: &config::Tls, client_ca_key: &'static str) -> Result<Self, Vec<TlsProblem>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let ticketer = aws_lc_rs::Ticketer::new()
            .map_err(|error| vec![TlsProblem::new("tls", format!("cannot make keys for tickets: {error}"))])?;
        let current = ArcSwap::from_pointee(load(settings, &provider, &ticketer, client_ca_key)?);
        Ok(Self { provider, ticketer, current, client_ca_key })
    }

    /// Reads certificates and keys again. New connections get the new ones, open connections keep theirs. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// As for [`Self::load`]; then everything stays as it was.
    pub fn reload(&self, settings: &config::Tls) -> Result<(), Vec<TlsProblem>> {
        self.current.store(Arc::new(load(settings, &self.provider, &self.ticketer, self.client_ca_key)?));
        Ok(())
    }

    /// Returns warnings about the certificates in use: expired, soon to expire, keys that others can read. The server
    /// logs them after loading and once a day, since time passes.
    #[must_use]
    pub fn warnings(&self) -> Vec<TlsProblem> {
        let now = clock::unix_us() / 1_000_000;
        self.current.load().identities.iter().flat_map(|identity| identity.warnings(now)).collect()
    }

    /// Does the handshake, after STARTTLS or at once, until `deadline`. `asks`: for a certificate, if `tls.client_ca`
    /// names CAs.
    ///
    /// # Errors
    /// There is no TLS connection; the client has been sent an alert if it could be. The error's text is for the log.
    /// # Cancel safety
    /// Dropping the future drops the connection.
    pub(crate) async fn accept<S>(
        &self,
        stream: S,
        deadline: Instant,
        asks: bool,
    ) -> Result<(Stream<S>, smtp::server::Tls, ClientCertificate), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (config, authorities) = {
            let loaded = self.current.load();
            match loaded.asking.as_ref().filter(|_| asks) {
                Some((config, authorities)) => (Arc::clone(config), Some(authorities.clone())),
                None => (Arc::clone(&loaded.config), None),
            }
        };
        let limit = |connection: &mut ServerConnection| connection.set_buffer_limit(Some(SEND_BUFFER_BYTES));
        let handshake = TlsAcceptor::from(config).accept_with(stream, limit);
        match tokio::time::timeout_at(deadline.into(), handshake).await {
            Ok(Ok(stream)) => {
                let connection = stream.get_ref().1;
                let shown =
                    authorities.map_or(ClientCertificate::NotAsked, |authorities| authorities.judge(connection));
                let tls = report::describe(connection);
                Ok((stream, tls, shown))
            }
            Ok(Err(error)) => Err(HandshakeError::from_io(TlsPeer::Client, error)),
            Err(_) => Err(HandshakeError::timed_out(TlsPeer::Client)),
        }
    }
}

fn load(
    settings: &config::Tls,
    provider: &Arc<CryptoProvider>,
    ticketer: &Arc<dyn ProducesTickets>,
    client_ca_key: &'static str,
) -> Result<LoadedCertificates, Vec<TlsProblem>> {
    let mut problems = Vec::new();
    let versions = versions(&settings.version_min).unwrap_or_else(|problem| {
        problems.push(problem);
        rustls::ALL_VERSIONS
    });
    let identities = certificate::read_all(settings, provider, &mut problems);
    let authorities = client::read(&settings.client_ca, client_ca_key, provider, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let identities: Arc<[Identity]> = identities.into();
    let certificates = Arc::new(Certificates::new(&identities));
    let config = |verifier: Option<Arc<dyn ClientCertVerifier>>| -> Result<Arc<ServerConfig>, Vec<TlsProblem>> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(versions)
            .map_err(|error| vec![TlsProblem::new("tls.version_min", error.to_string())])?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&certificates) as _);
        config.ticketer = Arc::clone(ticketer);
        // Tickets hold the state on the client's side; a store of ours would only be a lock.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    };
    let asking = match authorities {
        Some(authorities) => Some((config(Some(authorities.asking()))?, authorities)),
        None => None,
    };
    Ok(LoadedCertificates { config: config(None)?, asking, identities })
}

static ONLY_1_3: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

// RFC 8996: nothing below TLS 1.2
fn versions(min: &str) -> Result<&'static [&'static SupportedProtocolVersion], TlsProblem> {
    match min {
        "1.2" => Ok(rustls::ALL_VERSIONS),
        "1.3" => Ok(&ONLY_1_3),
        _ => Err(TlsProblem::new("tls.version_min", format!("{min:?} is not possible; choose \"1.2\" or \"1.3\""))),
    }
}
