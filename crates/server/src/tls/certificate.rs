//! Certificates and keys from PEM files, and which of them a client gets.
//!
//! A certificate that cannot work is refused when it is read; one with a defect (expired, its key open to others) is
//! used and reported, because mail under an expired certificate is better than no mail.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{TlsProblem, validity};
use os::error::words;

/// A chain has a few KiB, a file with all CAs of the world some hundred.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Of a section in PEM.
const BEGIN: &[u8] = b"-----BEGIN";
const DAY: u64 = 86_400;
/// Long enough for a person to act, short enough to stay silent while renewal works: it happens 30 days before.
const WARN_DAYS: u64 = 14;

/// A certificate with its chain and key.
#[derive(Debug)]
pub(super) struct Identity {
    key: Arc<CertifiedKey>,
    path: PathBuf,
    /// Seconds since 1970.
    expires: Option<u64>,
    /// About the key file.
    warning: Option<TlsProblem>,
}

impl Identity {
    /// Returns problems that the operator should know at the time `now`, in seconds since 1970.
    pub(super) fn warnings(&self, now: u64) -> Vec<TlsProblem> {
        let left = self.expires.map(|expires| (expires.saturating_sub(now) / DAY, expires <= now));
        let expiry = match left {
            Some((_, true)) => Some("has expired; clients that verify will not send; renew it and reload".to_owned()),
            Some((days, false)) if days < WARN_DAYS => Some(format!("expires in {days} days; renew it and reload")),
            Some(_) => None,
            None => Some("cannot find out when it expires".to_owned()),
        };
        self.warning.iter().cloned().chain(expiry.map(|reason| TlsProblem::of(&self.path, reason))).collect()
    }

    fn is_rsa(&self) -> bool {
        self.key.key.algorithm() == SignatureAlgorithm::RSA
    }
}

/// Reads all pairs of files; problems are added.
pub(super) fn read_all(
    settings: &config::Tls,
    provider: &CryptoProvider,
    problems: &mut Vec<TlsProblem>,
) -> Vec<Identity> {
    let (certificates, keys) = (&settings.certificate, &settings.key);
    if certificates.is_empty() {
        let reason = "no file named, but a listener has tls = \"starttls\" or \"implicit\"; \
                      name a certificate in tls.certificate and its key in tls.key, or set tls = \"none\" there";
        problems.push(TlsProblem::new("tls.certificate", reason));
    } else if certificates.len() != keys.len() {
        let (certificates, keys) = (certificates.len(), keys.len());
        let reason =
            format!("{keys} files, but tls.certificate names {certificates}; name a key for each, in the same order");
        problems.push(TlsProblem::new("tls.key", reason));
    }
    let mut identities = Vec::new();
    for (certificate, key) in certificates.iter().zip(keys) {
        match read(certificate, key, provider) {
            Ok(identity) => identities.push(identity),
            Err(problem) => problems.push(problem),
        }
    }
    identities
}

fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Identity, TlsProblem> {
    let chain = read_certificates(certificate)?;
    let Some(own) = chain.first() else {
        return Err(TlsProblem::of(
            certificate,
            "no certificate in it (BEGIN CERTIFICATE); name the file with the chain in PEM",
        ));
    };
    let expires = validity::not_after(own);
    let (text, mode) = read_file(key)?;
    // PKCS#8, PKCS#1 or SEC1, by the PEM label.
    let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        TlsProblem::of(
            key,
            format!("no private key that can be read ({error}); name a PEM file with a key without passphrase"),
        )
    })?;
    let signer = provider.key_provider.load_private_key(secret).map_err(|error| {
        TlsProblem::of(key, format!("the key cannot be used: {error}; make one with ECDSA P-256 or RSA 2048"))
    })?;
    let identity = CertifiedKey::new(chain, signer);
    match identity.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(_)) => {
            let reason = format!(
                "the key is not that of the first certificate in {}; name its key, and put the server's own certificate first",
                certificate.display(),
            );
            return Err(TlsProblem::of(key, reason));
        }
        Err(error) => return Err(TlsProblem::of(certificate, format!("the first certificate is broken: {error}"))),
    }
    let warning = (mode & 0o004 != 0).then(|| {
        TlsProblem::of(
            key,
            format!("mode {:04o} lets everybody on this machine read the key; chmod 0640 it", mode & 0o7777),
        )
    });
    Ok(Identity { key: Arc::new(identity), path: certificate.to_owned(), expires, warning })
}

/// Returns the certificates in a file in PEM, in their order; none if it has none. Blocks on the disk.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let (text, _) = read_file(path)?;
    let (mut rest, mut lines, mut found) = (&*text, 0, Vec::new());
    loop {
        let before = rest;
        let section = pem::from_buf(&mut rest);
        let (taken, _) = before.split_at(before.len() - rest.len());
        match section {
            Ok(Some((SectionKind::Certificate, der))) => found.push(der.into()),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(found),
            Err(error) => {
                let begin = taken.windows(BEGIN.len()).rposition(|window| window == BEGIN).unwrap_or(0);
                let line = lines + line_feeds(taken.get(..begin).unwrap_or_default()) + 1;
                let reason = format!("broken PEM from line {line} on: {error}; write the file anew");
                return Err(TlsProblem::of(path, reason));
            }
        }
        lines += line_feeds(taken);
    }
}

fn line_feeds(text: &[u8]) -> usize {
    text.iter().filter(|octet| **octet == b'\n').count()
}

/// Reads the contents and the mode of a file.
fn read_file(path: &Path) -> Result<(Vec<u8>, u32), TlsProblem> {
    let read = || {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("not a file of at most {FILE_BYTES_MAX} bytes")));
        }
        // A user who can write the file could put another certificate or key there, or a CA for clients.
        if metadata.mode() & 0o002 != 0 {
            let mode = metadata.mode() & 0o7777;
            return Err(io::Error::other(format!(
                "mode {mode:04o} lets everybody write it: run \"chmod o-w {}\"",
                path.display()
            )));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        Ok((text, metadata.mode()))
    };
    read().map_err(|error| {
        let reason = format!("cannot be read: {}; name a file that mailrace may read", words(&error));
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        TlsProblem { is_denied, ..TlsProblem::of(path, reason) }
    })
}

/// Chooses the certificate for a client: the first that it can verify, ECDSA and Ed25519 before RSA, which costs ten
/// times the CPU to sign with. The name the client asks for does not matter.
// RFC 6066 §3 (gap: one host name)
#[derive(Debug)]
pub(super) struct Certificates(Box<[Arc<CertifiedKey>]>);

impl Certificates {
    pub(super) fn new(identities: &[Identity]) -> Self {
        let (rsa, other): (Vec<&Identity>, Vec<&Identity>) = identities.iter().partition(|identity| identity.is_rsa());
        Self(other.into_iter().chain(rsa).map(|identity| Arc::clone(&identity.key)).collect())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.iter().find(|key| key.key.choose_scheme(client.signature_schemes()).is_some()).cloned()
    }
}
