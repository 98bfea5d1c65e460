//! Certificates of clients: the server asks for one where `tls.client_ca` or `http.client_ca` names CAs, and never
//! demands one.
//!
//! A handshake goes on with any certificate or none, as long as the client has the key of the one it presents: mail
//! under a certificate that no CA has signed is no worse than mail without one. The certificate is judged after each
//! handshake, also of a resumed session; only a verified name gives a right.

use super::flaw::Flaw;
use super::names::{Names, names};
use super::{TlsProblem, authorities};
use observe::{Event, Relay};
use os::clock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConnection, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Result of asking a client for its certificate.
#[derive(Debug)]
pub(crate) enum ClientCertificate {
    /// The server did not ask: `verify=NOT`.
    NotAsked,
    /// The client presented none: `verify=NO`.
    Nothing,
    /// No CA vouches for it: `verify=FAIL`.
    Unverified {
        /// The names in it.
        names: Option<Box<Names>>,
        /// The reason.
        why: Box<str>,
    },
    /// `verify=OK`
    Verified(Box<Names>),
}

impl ClientCertificate {
    /// sendmail's word in log lines.
    const fn word(&self) -> &'static str {
        match self {
            Self::NotAsked => super::VERIFY,
            Self::Nothing => "NO",
            Self::Unverified { .. } => "FAIL",
            Self::Verified(_) => "OK",
        }
    }

    /// Returns the names that a CA has verified.
    pub(crate) fn verified(&self) -> Option<&Names> {
        if let Self::Verified(names) = self { Some(names) } else { None }
    }

    /// Returns the client certificate after the handshake.
    pub(crate) fn event<'a>(&'a self, relay: Relay<'a>, tls: &'a smtp::server::Tls) -> Event<'a> {
        let (names, why) = match self {
            Self::NotAsked | Self::Nothing => (None, None),
            Self::Unverified { names, why } => (names.as_deref(), Some(&**why)),
            Self::Verified(names) => (Some(&**names), None),
        };
        Event::StartTls {
            relay,
            version: &tls.version,
            cipher: &tls.cipher,
            bits: tls.bits,
            verify: self.word(),
            subject: names.map(|names| &*names.subject),
            issuer: names.map(|names| &*names.issuer),
            why,
        }
    }
}

/// Verifier with the CAs for clients.
#[derive(Clone, Debug)]
pub(super) struct ClientAuthorities {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The key of the configuration that names them.
    key: &'static str,
}

/// Reads the files that `key` of the configuration names; `None`: there are none. Problems are added.
pub(super) fn read(
    files: &[PathBuf],
    key: &'static str,
    provider: &Arc<CryptoProvider>,
    problems: &mut Vec<TlsProblem>,
) -> Option<ClientAuthorities> {
    let mut roots = RootCertStore::empty();
    for file in files {
        if let Err(problem) = add(&mut roots, file) {
            problems.push(problem);
        }
    }
    if roots.is_empty() {
        return None;
    }
    match WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build() {
        Ok(verifier) => Some(ClientAuthorities { verifier, key }),
        Err(error) => {
            problems.push(TlsProblem::new(key, error.to_string()));
            None
        }
    }
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), TlsProblem> {
    for (count, found) in (1..).zip(authorities::of_file(file)?) {
        roots.add(found).map_err(|error| {
            TlsProblem::of(file, format!("certificate {count} can vouch for nobody: {error}; take it out of the file"))
        })?;
    }
    Ok(())
}

impl ClientAuthorities {
    /// Has clients asked for a certificate.
    pub(super) fn asking(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(OptionalClientVerifier(Arc::clone(&self.verifier)))
    }

    /// Judges the certificate that the client presented, after the handshake.
    pub(super) fn judge(&self, connection: &ServerConnection) -> ClientCertificate {
        let Some((own, chain)) = connection.peer_certificates().and_then(<[_]>::split_first) else {
            return ClientCertificate::Nothing;
        };
        let now = UnixTime::since_unix_epoch(Duration::from_micros(clock::unix_us()));
        let verified = self.verifier.verify_client_cert(own, chain, now);
        match (verified, names(own).map(Box::new)) {
            (Ok(_), Some(names)) => ClientCertificate::Verified(names),
            (Ok(_), None) => ClientCertificate::Unverified { names: None, why: "its names cannot be read".into() },
            (Err(error), names) => ClientCertificate::Unverified { names, why: reason(&error, self.key).into() },
        }
    }
}

fn reason(error: &Error, key: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("it {}", Flaw::of(error).text(&format!("in {key}"), "clients")),
        other => other.to_string(),
    }
}

/// Asks for a certificate and takes any, and none. Its signature is checked: the client has its key.
#[derive(Debug)]
struct OptionalClientVerifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for OptionalClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
