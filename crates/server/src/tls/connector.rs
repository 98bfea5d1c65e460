//! TLS towards next hops: the client's side of STARTTLS.
//!
//! The stop is deliver. Opportunistic TLS is what most of the net's mail travels with: it protects against whoever only
//! listens, and since nobody but DNS says which certificate a next hop should have, any is taken and log lines say
//! `verify=NOT` (RFC 7435). A next hop proves that it has the key of the certificate it shows.
//!
//! Not here: policies that ask for a verified name (DANE, MTA-STS, `TLS_Srv` rules), and client certificates.

use super::HandshakeError;
use crate::config;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};

/// An encrypted connection to a next hop.
pub type ClientStream<S> = tokio_rustls::client::TlsStream<S>;

/// What was agreed on, for log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3`.
    pub version: Box<str>,
    /// By the name of OpenSSL.
    pub cipher: Box<str>,
    /// Of the cipher's key; 0 if not known.
    pub bits: u16,
    /// What was found out about the certificate: `NOT`, nothing.
    pub verify: &'static str,
}

/// Makes TLS connections to next hops. Clones share the sessions that can be resumed.
#[derive(Clone, Debug)]
pub struct Connector {}

impl Connector {
    /// A connector with the oldest version that `[tls]` allows.
    ///
    /// # Errors
    /// `tls.version_min` is none that we know.
    pub fn new(_settings: &config::Tls) -> Result<Self, super::TlsProblem> {
        Ok(Self {})
    }

    /// Does the handshake with the next hop `server_name` (a host name, or an address in text) until `deadline`.
    ///
    /// # Errors
    /// There is no TLS connection, and `stream` is gone: nothing may be said over it any more.
    /// # Cancel safety
    /// Dropping the future drops the connection.
    #[expect(clippy::unused_async, reason = "being written")]
    pub async fn connect<S>(
        &self,
        _stream: S,
        _server_name: &str,
        _deadline: Instant,
    ) -> Result<(ClientStream<S>, TlsInfo), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        Err(HandshakeError::Closed)
    }
}
