//! Private keys for signatures: PEM files with an RSA or Ed25519 key.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256};
use base64ct::{Base64, Encoding as _};
use filter::dkim::Algorithm;
use os::error::words;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject as _};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// More than any file with a key has.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Characters of base64 on a line of PEM.
const PEM_COLUMNS: usize = 64;

/// Why a key cannot be used. The text names the file, the line where there is one, and the next step.
#[derive(Debug)]
pub struct KeyFileError {
    path: PathBuf,
    /// The line of the fault; 0: the file as a whole.
    line: usize,
    text: String,
    is_denied: bool,
}

impl KeyFileError {
    fn new(path: &Path, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into(), is_denied: false }
    }

    fn io(path: &Path, error: &io::Error) -> Self {
        let text = format!("cannot be read: {}; name a file that mailrace may read", words(error));
        Self { is_denied: error.kind() == io::ErrorKind::PermissionDenied, ..Self::new(path, 0, text) }
    }

    /// Returns whether only the rights of this process keep it from reading the file.
    pub(crate) const fn is_denied(&self) -> bool {
        self.is_denied
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.text),
        }
    }
}

impl std::error::Error for KeyFileError {}

/// The kind of a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKey {
    /// RSA with 2,048 bits, which all verifiers know.
    Rsa2048,
    /// Ed25519, which few verifiers know: beside an RSA key.
    Ed25519,
}

/// A private key.
#[derive(Debug)]
pub struct PrivateKey(Pair);

#[derive(Debug)]
enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
}

impl PrivateKey {
    /// Makes a key. Blocks for up to a second.
    ///
    /// # Errors
    /// The library fails.
    pub fn generate(kind: NewKey) -> Result<Self, GenerateError> {
        let pair = match kind {
            NewKey::Rsa2048 => RsaKeyPair::generate(KeySize::Rsa2048).map(|pair| Pair::Rsa(Box::new(pair))),
            NewKey::Ed25519 => Ed25519KeyPair::generate().map(|pair| Pair::Ed25519(Box::new(pair))),
        };
        pair.map(Self).map_err(|_| GenerateError)
    }

    /// Reads a key from a file. Blocks on the disk.
    ///
    /// # Errors
    /// It cannot be read, is no PEM, or has a key that cannot sign: RSA below 2,048 bits, another algorithm, a
    /// passphrase.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let mut text = Zeroizing::new(Vec::new());
        let file = File::open(path).map_err(|error| KeyFileError::io(path, &error))?;
        let is_file = file.metadata().map_err(|error| KeyFileError::io(path, &error))?.is_file();
        if !is_file {
            return Err(KeyFileError::new(path, 0, "is no regular file; name the file with the key"));
        }
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(|error| KeyFileError::io(path, &error))?;
        Self::from_pem(path, &text)
    }

    fn from_pem(path: &Path, text: &[u8]) -> Result<Self, KeyFileError> {
        let begins = text.split(|octet| *octet == b'\n').position(|line| line.starts_with(b"-----BEGIN "));
        let line = begins.map_or(1, |at| at + 1);
        let refuse = |text: &str| KeyFileError::new(path, line, text);
        if text.windows(9).any(|found| found == b"ENCRYPTED") {
            return Err(refuse("the key has a passphrase; write one without: openssl pkey -in OLD -out NEW"));
        }
        let secret = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
            pem::Error::NoItemsFound => refuse(
                "no private key in PEM (BEGIN PRIVATE KEY or BEGIN RSA PRIVATE KEY); mailrace dkim generate makes one",
            ),
            error => refuse(&format!("no PEM that can be read: {error}; copy the file again")),
        })?;
        let rsa = |pair: RsaKeyPair| Self(Pair::Rsa(Box::new(pair)));
        let found = match &secret {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).map(rsa).ok(),
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
                let ed25519 = || ed25519().map(|pair| Self(Pair::Ed25519(Box::new(pair))));
                RsaKeyPair::from_pkcs8(der).map(rsa).or_else(|_| ed25519()).ok()
            }
            _ => None,
        };
        // RFC 8301 §3.2 (gap: keys of 1,024 to 2,047 bits do not sign; the library takes none below 2,048)
        found.ok_or_else(|| {
            refuse("the key cannot sign: take RSA with 2048 to 8192 bits, or Ed25519; mailrace dkim generate makes one")
        })
    }

    /// Returns the key as PKCS#8 in PEM.
    ///
    /// # Errors
    /// The library fails.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, GenerateError> {
        let der = Zeroizing::new(match &self.0 {
            Pair::Rsa(pair) => {
                let der: Pkcs8V1Der<'static> = pair.as_der().map_err(|_| GenerateError)?;
                der.as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.to_pkcs8v1().map_err(|_| GenerateError)?.as_ref().to_vec(),
        });
        let encoded = Zeroizing::new(Base64::encode_string(&der));
        let mut text = Zeroizing::new(String::with_capacity(encoded.len() + 128));
        text.push_str("-----BEGIN PRIVATE KEY-----\n");
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, behind) = rest.split_at_checked(PEM_COLUMNS).unwrap_or((rest, ""));
            text.push_str(line);
            text.push('\n');
            rest = behind;
        }
        text.push_str("-----END PRIVATE KEY-----\n");
        Ok(text)
    }

    /// Returns the algorithm of its signatures.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match &self.0 {
            Pair::Rsa(_) => Algorithm::RsaSha256,
            Pair::Ed25519(_) => Algorithm::Ed25519Sha256,
        }
    }

    /// Returns the size of the key in bits.
    #[must_use]
    pub fn bits(&self) -> usize {
        match &self.0 {
            Pair::Rsa(pair) => pair.public_modulus_len() * 8,
            Pair::Ed25519(_) => 256,
        }
    }

    /// Returns the public key as `p=` of a key record has it.
    ///
    /// # Errors
    /// The library fails.
    // RFC 6376 §3.6.1: SubjectPublicKeyInfo; RFC 8463 §4.2: the 32 octets
    pub fn public_text(&self) -> Result<String, GenerateError> {
        match &self.0 {
            Pair::Rsa(pair) => {
                let der: PublicKeyX509Der<'static> = pair.public_key().as_der().map_err(|_| GenerateError)?;
                Ok(Base64::encode_string(der.as_ref()))
            }
            Pair::Ed25519(pair) => Ok(Base64::encode_string(pair.public_key().as_ref())),
        }
    }

    /// Signs octets, and returns the signature in base64. `None`: the library fails.
    // RFC 8463 §3: Ed25519 signs the SHA-256 digest
    pub(super) fn sign(&self, octets: &[u8]) -> Option<String> {
        match &self.0 {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), octets, &mut signature).ok()?;
                Some(Base64::encode_string(&signature))
            }
            Pair::Ed25519(pair) => {
                let signature = pair.try_sign(digest(&SHA256, octets).as_ref()).ok()?;
                Some(Base64::encode_string(signature.as_ref()))
            }
        }
    }
}

/// The library could not make or encode a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerateError;

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cryptographic library failed to make or encode a key; try again")
    }
}

impl std::error::Error for GenerateError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        PrivateKey::from_pem(Path::new("a.pem"), text.as_bytes()).err().map_or_else(String::new, |one| one.to_string())
    }

    #[test]
    fn keys_read_back() {
        for kind in [NewKey::Rsa2048, NewKey::Ed25519] {
            let key = PrivateKey::generate(kind).unwrap();
            let pem = key.to_pem().unwrap();
            let again = PrivateKey::from_pem(Path::new("a.pem"), pem.as_bytes()).unwrap();
            assert_eq!(again.public_text(), key.public_text());
            assert_eq!((again.algorithm(), again.bits()), (key.algorithm(), key.bits()));
            assert_eq!(again.sign(b"x"), key.sign(b"x"), "both algorithms are deterministic");
        }
    }

    #[test]
    fn files_without_a_key_are_refused_with_their_line() {
        let key = PrivateKey::generate(NewKey::Ed25519).unwrap().to_pem().unwrap();
        assert!(refused("").starts_with("a.pem:1: no private key in PEM"));
        assert!(
            refused("\n# key\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
                .starts_with("a.pem:3: the key has a passphrase")
        );
        assert!(refused(&key.replace("-----END", "----END")).starts_with("a.pem:1: no PEM that can be read"));
        let elliptic = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(refused(&elliptic).starts_with("a.pem:1: the key cannot sign: take RSA"));
        let missing = PrivateKey::read(Path::new("/nowhere/a.pem")).unwrap_err();
        assert!(!missing.is_denied() && missing.to_string().contains("/nowhere/a.pem: cannot be read"));
    }

    /// A key of 1,024 bits, made once with openssl.
    #[test]
    fn a_short_rsa_key_is_refused() {
        let short = include_str!("rsa1024.pem");
        assert!(refused(short).contains("RSA with 2048 to 8192 bits"), "{}", refused(short));
    }
}
