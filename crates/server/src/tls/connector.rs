//! TLS towards next hops: the client's side of STARTTLS.
//!
//! The stop is deliver. TLS is opportunistic (RFC 7435): no trusted source says which certificate a next hop should
//! have, so the client takes any, of any age, name and key, and log lines say `verify=NOT`. That protects against an
//! attacker who listens and not against one who answers in the next hop's place; a refusal of the certificate would
//! only lead to mail in clear text.
//!
//! Where the access map may demand something of certificates, the client judges them and still takes any: the result
//! is `verify=OK` or `FAIL` and the content of the certificate. The caller with the demand decides on it. Such a
//! connection resumes no session, so that the result is that of this connection.
//!
//! Not here: the decision to go on without TLS; policies that ask for a verified name (DANE, MTA-STS); client
//! certificates.

use super::authorities::Authorities;
use super::report::{self, HandshakeError, TlsPeer};
use super::{TlsProblem, alternative, names, versions};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, IpAddr, Ipv4Addr, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// An encrypted connection to a next hop.
pub type ClientStream<S> = tokio_rustls::client::TlsStream<S>;

type Checked = Result<HandshakeSignatureValid, Error>;

/// Next hops whose sessions are kept for resumption; the one that came first goes first.
const RESUMABLE_MAX: usize = 256;
/// Sessions that rustls keeps of each.
const SESSIONS_EACH: usize = 8;
/// Plain text that rustls may hold for a next hop that does not read: four records, so that a body goes out in few
/// writes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Parameters that a handshake agreed on, for log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3`.
    pub version: Box<str>,
    /// `TLS_AES_256_GCM_SHA384`, by the name of OpenSSL.
    pub cipher: Box<str>,
    /// Of the cipher's key; 0 if not known.
    pub bits: u16,
    /// Result of judging the certificate: `OK`, `FAIL`; `NOT`, not judged.
    pub verify: &'static str,
    /// The fault, if it is not good.
    pub fault: Option<Fault>,
    /// Its content, if it was judged and can be read.
    pub certificate: Option<Box<ServerCertificate>>,
}

impl TlsInfo {
    /// Returns whether the certificate was judged, is good, and is for this host.
    #[must_use]
    pub fn is_verified_for(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.fault.is_none() && self.certificate.as_ref().is_some_and(|certificate| certificate.is_for(host))
    }
}

/// Content of a next hop's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCertificate {
    der: CertificateDer<'static>,
    names: names::Names,
    first_host: Option<String>,
}

impl ServerCertificate {
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Option<Box<Self>> {
        let names = names::names(certificate)?;
        let first_host = alternative::first_host(certificate);
        Some(Box::new(Self { der: certificate.clone().into_owned(), names, first_host }))
    }

    /// Returns the name of its subject as sendmail writes it: `/C=US/O=Example/CN=mx.example.com`.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.names.subject
    }

    /// Returns the name of its issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.names.issuer
    }

    /// Returns the common name of its subject; of one without it, the first host.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.names.common_name.as_deref().or(self.first_host.as_deref())
    }

    /// Returns whether one of its alternative names is for this host: a name, for whose first label a `*` may stand,
    /// or an address. The common name is not looked at: stars mean nothing in it.
    // RFC 6125 §6.4.3: a star is the whole leftmost label
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let Ok(host) = ServerName::try_from(host) else { return false };
        ParsedCertificate::try_from(&self.der).is_ok_and(|own| verify_server_name(&own, &host).is_ok())
    }
}

/// Why a certificate is not good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// For the log.
    pub text: Box<str>,
    /// The CAs cannot be read, so the certificate cannot be judged.
    pub is_ours: bool,
}

/// Makes TLS connections to next hops. Clones share the sessions that can be resumed.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    authorities: Arc<Authorities>,
}

impl Connector {
    /// Makes a connector with the oldest version that `[tls]` allows.
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
            .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider, judge: None }))
            .with_no_client_auth();
        // rustls counts sessions, not servers.
        config.resumption = Resumption::in_memory_sessions(RESUMABLE_MAX * SESSIONS_EACH);
        Ok(Self { config: Arc::new(config), authorities: Arc::default() })
    }

    /// Does the handshake with the next hop until `deadline`. `server_name` is its host name, or an address in text; a
    /// host name is sent to it (SNI) and finds the session to resume.
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
        shake(Arc::clone(&self.config), stream, server_name, deadline).await
    }

    /// Makes the same; the next hop's certificate is judged by the CAs in these files, or those of the system, and
    /// any is taken.
    ///
    /// # Errors
    /// As [`Self::connect`].
    /// # Cancel safety
    /// As [`Self::connect`].
    pub async fn connect_and_judge<S>(
        &self,
        stream: S,
        server_name: &str,
        deadline: Instant,
        ca_files: &[PathBuf],
    ) -> Result<(ClientStream<S>, TlsInfo), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let provider = Arc::clone(self.config.crypto_provider());
        let judge = Arc::new(Judge { roots: self.authorities.get(ca_files).await, fault: OnceLock::new() });
        let verifier = AnyCertificate { provider, judge: Some(Arc::clone(&judge)) };
        let mut config = (*self.config).clone();
        config.resumption = Resumption::disabled();
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        let (stream, mut info) = shake(Arc::new(config), stream, server_name, deadline).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        info.certificate = shown.and_then(|shown| ServerCertificate::read(shown));
        info.fault = judge.fault.get().cloned();
        info.verify = if info.fault.is_none() { "OK" } else { "FAIL" };
        Ok((stream, info))
    }
}

async fn shake<S>(
    config: Arc<ClientConfig>,
    stream: S,
    server_name: &str,
    deadline: Instant,
) -> Result<(ClientStream<S>, TlsInfo), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limit = |connection: &mut ClientConnection| connection.set_buffer_limit(Some(SEND_BUFFER_BYTES));
    let handshake = TlsConnector::from(config).connect_with(sni(server_name), stream, limit);
    match tokio::time::timeout_at(deadline.into(), handshake).await {
        Ok(Ok(stream)) => {
            let (version, cipher, bits) = report::agreed(stream.get_ref().1);
            Ok((stream, TlsInfo { version, cipher, bits, verify: super::VERIFY, fault: None, certificate: None }))
        }
        Ok(Err(error)) => Err(HandshakeError::from_io(TlsPeer::NextHop, error)),
        Err(_) => Err(HandshakeError::timed_out(TlsPeer::NextHop)),
    }
}

/// Returns the server name to send.
// RFC 6066 §3: a host name without the last dot, no address
fn sni(name: &str) -> ServerName<'static> {
    let name = name.strip_suffix('.').unwrap_or(name).to_owned();
    // A name that TLS cannot carry is not sent, like an address.
    ServerName::try_from(name).unwrap_or_else(|_| ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4]))))
}

/// Takes any certificate. A refusal would only lead to mail in clear text: an attacker in the peer's place can have
/// any certificate, and a key or an encoding that the library does not know is no reason either.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    /// The certificate is still judged for the log.
    judge: Option<Arc<Judge>>,
}

/// Judges the certificate of one connection, and whether the server has its key.
///
/// As in sendmail, a good certificate is one that a CA has signed and that is valid now; its names are judged
/// elsewhere.
#[derive(Debug)]
struct Judge {
    roots: Result<Arc<RootCertStore>, Arc<str>>,
    fault: OnceLock<Fault>,
}

impl Judge {
    fn found(&self, text: String, is_ours: bool) {
        // Only the first fault is kept.
        self.fault.get_or_init(|| Fault { text: text.into(), is_ours });
    }
}

impl AnyCertificate {
    fn signature(&self, check: impl FnOnce(&WebPkiSupportedAlgorithms) -> Checked) -> Checked {
        if let Some(judge) = &self.judge
            && let Err(error) = check(&self.provider.signature_verification_algorithms)
        {
            judge.found(format!("the server does not prove that it has the key of its certificate: {error}"), false);
        }
        Ok(HandshakeSignatureValid::assertion())
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.judge.as_deref().map(|judge| (judge, &judge.roots)) {
            None => {}
            Some((judge, Err(why))) => judge.found(why.to_string(), true),
            Some((judge, Ok(roots))) => {
                let algorithms = self.provider.signature_verification_algorithms.all;
                let checked = ParsedCertificate::try_from(end_entity).and_then(|certificate| {
                    verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)
                });
                if let Err(error) = checked {
                    judge.found(error.to_string(), false);
                }
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Checked {
        self.signature(|algorithms| verify_tls12_signature(message, cert, signature, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Checked {
        self.signature(|algorithms| verify_tls13_signature(message, cert, signature, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
