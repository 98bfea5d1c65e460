//! The connection of a session: TCP, plain or under TLS, with replies read from it.
//!
//! TCP_NODELAY is set: a flight leaves when it is written. All certificates are accepted, because the server under load
//! is one's own and its certificate made for a test; nothing secret goes over these connections.

use super::replies::{Buffer, Reply};
use super::{Plan, Tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Octets asked of the socket at a time.
const READ: usize = 4 << 10;

/// An open connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    patience: Duration,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// In the middle of a handshake that failed.
    Gone,
}

impl Wire {
    /// Connects; not cancel-safe, as nothing here is.
    ///
    /// # Errors
    /// The system's, or `TimedOut`.
    pub(super) async fn connect(plan: &Plan, number: u64) -> io::Result<Self> {
        let socket = if plan.to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if plan.sources > 0 {
            let last = u8::try_from(number % u64::from(plan.sources)).unwrap_or(0) + 1;
            socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
        }
        socket.set_nodelay(true)?;
        let stream = within(plan.patience, socket.connect(plan.to)).await?;
        Ok(Self { stream: Stream::Plain(stream), patience: plan.patience })
    }

    /// Speaks TLS from here on.
    ///
    /// # Errors
    /// The handshake failed; the connection is of no use any more.
    pub(super) async fn start_tls(&mut self, connector: &TlsConnector, to: SocketAddr) -> io::Result<()> {
        let Stream::Plain(tcp) = std::mem::replace(&mut self.stream, Stream::Gone) else {
            return Err(io::Error::other("TLS within TLS"));
        };
        let name = ServerName::IpAddress(to.ip().into());
        let tls = within(self.patience, connector.connect(name, tcp)).await?;
        self.stream = Stream::Tls(Box::new(tls));
        Ok(())
    }

    /// Writes all of it, in one write where the system takes it.
    pub(super) async fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        let writing = async {
            match &mut self.stream {
                Stream::Plain(stream) => stream.write_all(octets).await,
                Stream::Tls(stream) => {
                    stream.write_all(octets).await?;
                    stream.flush().await
                }
                Stream::Gone => Err(io::ErrorKind::NotConnected.into()),
            }
        };
        within(self.patience, writing).await
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server closed, `TimedOut`, `InvalidData` with the octets in place of a reply.
    pub(super) async fn reply(&mut self, buffer: &mut Buffer) -> io::Result<Reply> {
        loop {
            if let Some(reply) = buffer.take().map_err(|text| io::Error::new(io::ErrorKind::InvalidData, text))? {
                return Ok(reply);
            }
            let mut octets = [0; READ];
            let reading = async {
                match &mut self.stream {
                    Stream::Plain(stream) => stream.read(&mut octets).await,
                    Stream::Tls(stream) => stream.read(&mut octets).await,
                    Stream::Gone => Err(io::ErrorKind::NotConnected.into()),
                }
            };
            let count = within(self.patience, reading).await?;
            if count == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server"));
            }
            buffer.add(octets.get(..count).unwrap_or_default());
        }
    }
}

async fn within<T>(patience: Duration, doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(patience, doing).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", patience.as_secs()))),
    }
}

/// Returns the TLS settings that connections of a run share; sessions are resumed as a real client would.
///
/// # Errors
/// The cryptography refuses its own defaults.
pub(super) fn connector(tls: Tls) -> Result<Option<TlsConnector>, rustls::Error> {
    if tls == Tls::None {
        return Ok(None);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

/// Accepts every certificate, but no signature that is not the certificate's.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
