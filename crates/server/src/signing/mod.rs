//! DKIM signatures of mail that leaves (RFC 6376, RFC 8463).
//!
//! An attempt signs the message that it sends, in the form in which it is sent: after the content was made 7-bit or its
//! lines were shortened for this next hop. The spool has no signatures. The page of decision 0021 in `docs/decisions`
//! has the reasons. Forwarded mail of others gets an ARC set in the same way ([`sealing`]).
//!
//! [`SigningKeys`] has the keys; `deliver` decides which mail is signed, and reads the content. [`filter::dkim`]
//! chooses the fields that a signature covers, and writes its text.

mod key_file;
mod sealing;

pub use key_file::{GenerateError, KeyFileError, NewKey, PrivateKey};
pub(crate) use sealing::SealingPlan;

use ::config::{ArcSealing, Dkim, DkimKey};
use aws_lc_rs::digest;
use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use filter::dkim::canonical::{CanonicalBody, Canonicalization};
use filter::dkim::signing::{SignatureValues, SignedFields, Unsigned, author_domain};
use mail::DomainName;
use mail::header::{HeaderSection, LineEnd};
use std::sync::Arc;

/// A key and its place in the DNS.
#[derive(Debug)]
struct SigningKey {
    domain: DomainName,
    selector: String,
    key: PrivateKey,
}

/// The keys that sign.
#[derive(Debug, Default)]
pub struct SigningKeys {
    /// Of DKIM signatures.
    keys: Vec<SigningKey>,
    /// Of ARC sets, if forwarded mail is sealed.
    sealer: Option<SigningKey>,
}

impl SigningKeys {
    /// Makes a set of one key, for measurements.
    #[must_use]
    pub fn of_one(domain: DomainName, selector: &str, key: PrivateKey) -> Arc<Self> {
        let keys = vec![SigningKey { domain, selector: selector.to_owned(), key }];
        Arc::new(Self { keys, sealer: None })
    }

    /// Reads the keys of a configuration. Blocks on the disk.
    ///
    /// # Errors
    /// Keys that cannot be read, or cannot sign. All of them are named.
    pub fn load(settings: &Dkim, sealing: &ArcSealing) -> Result<Self, Vec<KeyFileError>> {
        let (mut keys, mut faults) = (Vec::new(), Vec::new());
        let mut read = |DkimKey { domain, selector, file, .. }: &DkimKey| match PrivateKey::read(file) {
            Ok(key) => Some(SigningKey { domain: domain.clone(), selector: selector.clone(), key }),
            Err(fault) => {
                faults.push(fault);
                None
            }
        };
        for settings in &settings.keys {
            keys.extend(read(settings).filter(|_| settings.sign));
        }
        let sealer = sealing.key(&settings.keys).and_then(&mut read);
        if faults.is_empty() { Ok(Self { keys, sealer }) } else { Err(faults) }
    }

    /// Returns whether own mail is signed.
    pub(crate) const fn signs(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns the signature fields of a whole message, as an attempt would send them; `None` if it has no key.
    /// `time`: seconds since 1970.
    #[must_use]
    pub fn sign(self: &Arc<Self>, content: &[u8], time: u64) -> Option<Bytes> {
        let header = HeaderSection::read(content, LineEnd::Crlf);
        let plan = self.for_message(&header)?;
        let mut body = BodyHash::new();
        body.push(content.get(header.body_offset()..).unwrap_or_default());
        Some(plan.sign(body, time, &mut |_, _, _| {})).filter(|fields| !fields.is_empty())
    }

    /// Returns the keys for a message, if there are some: those of the longest domain that the author is in.
    pub(crate) fn for_message(self: &Arc<Self>, header: &HeaderSection<'_>) -> Option<SigningPlan> {
        let author = author_domain(header)?;
        let fitting = || (0..).zip(&self.keys).filter(|(_, key)| is_in(author.ascii(), key.domain.ascii()));
        let longest = fitting().map(|(_, key)| key.domain.ascii().len()).max()?;
        let keys = fitting().filter(|(_, key)| key.domain.ascii().len() == longest).map(|(at, _)| at).collect();
        let fields = SignedFields::of(header)?;
        Some(SigningPlan { keys: Arc::clone(self), chosen: keys, fields })
    }
}

/// Returns whether a domain is another one or below it. Both are in lower case.
fn is_in(domain: &str, of: &str) -> bool {
    domain.strip_suffix(of).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The keys that sign a message, and the fields that they cover.
#[derive(Debug)]
pub(crate) struct SigningPlan {
    keys: Arc<SigningKeys>,
    /// Positions of the keys.
    chosen: Vec<usize>,
    fields: SignedFields,
}

impl SigningPlan {
    /// Returns a signature field for each key, to be put before the header section. `time`: seconds since 1970.
    /// `signed` hears domain and selector of each, and whether the field was made.
    pub(crate) fn sign(&self, body: BodyHash, time: u64, signed: &mut dyn FnMut(&str, &str, bool)) -> Bytes {
        let body_hash = body.finish();
        let mut fields = String::new();
        for SigningKey { domain, selector, key } in self.chosen.iter().filter_map(|at| self.keys.keys.get(*at)) {
            let (algorithm, domain) = (key.algorithm(), domain.ascii());
            let values = SignatureValues { algorithm, domain, selector, time, body_hash: &body_hash };
            let unsigned = Unsigned::new(&self.fields, &values);
            let signature = key.sign(&unsigned.signed_octets());
            signed(domain, selector, signature.is_some());
            if let Some(signature) = signature {
                fields.push_str(&unsigned.complete(&signature));
            }
        }
        Bytes::from(fields)
    }
}

/// The hash of a body while it is read.
#[derive(Debug)]
pub(crate) struct BodyHash {
    body: CanonicalBody,
    digest: Digest,
}

/// The state of a SHA-256 digest.
struct Digest(digest::Context);

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SHA-256")
    }
}

impl BodyHash {
    /// Begins a body in the relaxed form.
    pub(crate) fn new() -> Self {
        Self::in_form(Canonicalization::Relaxed)
    }

    /// Begins a body.
    pub(crate) fn in_form(form: Canonicalization) -> Self {
        Self { body: CanonicalBody::new(form), digest: Digest(digest::Context::new(&digest::SHA256)) }
    }

    /// Takes the next piece of the body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let Self { body, digest } = self;
        body.push(piece, &mut |octets| digest.0.update(octets));
    }

    /// Returns the hash of a whole body in base64.
    #[cfg(test)]
    pub(crate) fn of(form: Canonicalization, body: &[u8]) -> String {
        let mut hash = Self::in_form(form);
        hash.push(body);
        hash.finish()
    }

    /// Returns the hash in base64.
    pub(crate) fn finish(self) -> String {
        let Self { body, mut digest } = self;
        body.finish(&mut |octets| digest.0.update(octets));
        Base64::encode_string(digest.0.finish().as_ref())
    }
}

#[cfg(test)]
mod tests;
