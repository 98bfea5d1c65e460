//! TLS towards next hops: the client's side of STARTTLS.
//!
//! The stop is deliver. TLS is opportunistic (RFC 7435): nothing that can be trusted says which certificate a next hop should
//! have, so any is taken, of any age, name and key, and log lines say `verify=NOT`. That protects against whoever listens
//! and not against whoever answers in the next hop's place; to refuse a certificate would only mean to send in the clear.
//!
//! Not here: the decision to go on without TLS; policies that ask for a verified name (DANE, MTA-STS, a fixed list);
//! client certificates.

use super::report::{self, HandshakeError, Peer};
use super::{TlsProblem, versions};
use crate::config;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, IpAddr, Ipv4Addr, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// An encrypted connection to a next hop.
pub type ClientStream<S> = tokio_rustls::client::TlsStream<S>;

/// Next hops whose sessions are kept for resumption; the one that came first goes first.
const RESUMABLE_MAX: usize = 256;
/// Sessions that rustls keeps of each.
const SESSIONS_EACH: usize = 8;
/// Plain text that rustls may hold for a next hop that does not read: four records, so that a body goes out in few writes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// What was agreed on, for log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3`.
    pub version: Box<str>,
    /// `TLS_AES_256_GCM_SHA384`, by the name of OpenSSL.
    pub cipher: Box<str>,
    /// Of the cipher's key; 0 if not known.
    pub bits: u16,
    /// What was found out about the certificate: `NOT`, nothing.
    pub verify: &'static str,
}

/// Makes TLS connections to next hops. Clones share the sessions that can be resumed.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    /// A connector with the oldest version that `[tls]` allows.
    ///
    /// # Errors
    /// `tls.version_min` is none that we know.
    pub fn new(settings: &config::Tls) -> Result<Self, TlsProblem> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(&settings.version_min)?)
            .map_err(|error| TlsProblem::new("tls.version_min", error.to_string()))?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        // rustls counts sessions, not servers.
        config.resumption = Resumption::in_memory_sessions(RESUMABLE_MAX * SESSIONS_EACH);
        Ok(Self { config: Arc::new(config) })
    }

    /// Does the handshake with the next hop until `deadline`. `server_name` is its host name, or an address in text; a host
    /// name is sent to it (SNI) and finds the session to resume.
    ///
    /// # Errors
    /// There is no TLS connection, and nothing can be said over the old one any more. The error's text is for the log.
    /// # Cancel safety
    /// Dropping the future drops the connection.
    pub async fn connect<S>(
        &self,
        stream: S,
        server_name: &str,
        deadline: Instant,
    ) -> Result<(ClientStream<S>, TlsInfo), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let limit = |connection: &mut ClientConnection| connection.set_buffer_limit(Some(SEND_BUFFER_BYTES));
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let handshake = connector.connect_with(sni(server_name), stream, limit);
        match tokio::time::timeout_at(deadline.into(), handshake).await {
            Ok(Ok(stream)) => {
                let (version, cipher, bits) = report::agreed(stream.get_ref().1);
                Ok((stream, TlsInfo { version, cipher, bits, verify: super::VERIFY }))
            }
            Ok(Err(error)) => Err(HandshakeError::from_io(Peer::NextHop, error)),
            Err(_) => Err(HandshakeError::timed_out(Peer::NextHop)),
        }
    }
}

/// What is sent as the server's name.
// RFC 6066 §3: a host name without the last dot, no address
fn sni(name: &str) -> ServerName<'static> {
    let name = name.strip_suffix('.').unwrap_or(name).to_owned();
    // What is no name for TLS is not sent, as an address is not.
    ServerName::try_from(name).unwrap_or_else(|_| ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4]))))
}

/// Takes any certificate, and does not check that the peer has its key: who could be in its place can have any certificate.
/// A check would keep out those with a key or an encoding that the library does not know, for nothing.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
