//! The settings of signatures of mail that leaves: `[[dkim.key]]`, `[arc]`.

use mail::DomainName;
use std::path::PathBuf;

/// Signatures of mail that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dkim {
    /// `[[dkim.key]]`
    pub keys: Vec<DkimKey>,
}

/// `[[dkim.key]]`: a private key and the place of its public key in the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DkimKey {
    /// `d=`: mail whose author is in this domain or below it is signed.
    pub domain: DomainName,
    /// `s=`: the public key is at `SELECTOR._domainkey.DOMAIN`.
    pub selector: String,
    /// The private key in PEM.
    pub file: PathBuf,
    /// False: it signs nothing, and `mailrace dkim check` still looks at its record.
    pub sign: bool,
}

/// `[arc]`: seals on forwarded mail of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArcSealing {
    /// Forwarded mail is sealed.
    pub seal: bool,
    /// `dkim.key.domain` of the key that seals; `None`: the first key with the selector.
    pub domain: Option<String>,
    /// `dkim.key.selector` of the key that seals; `None`: the first key of the domain.
    pub selector: Option<String>,
}

impl ArcSealing {
    /// Returns the key that seals; `None`: nothing is sealed, or there is no such key.
    #[must_use]
    pub fn key<'a>(&self, keys: &'a [DkimKey]) -> Option<&'a DkimKey> {
        let is_it = |key: &&DkimKey| {
            self.domain.as_deref().is_none_or(|domain| key.domain.ascii().eq_ignore_ascii_case(domain))
                && self.selector.as_deref().is_none_or(|selector| key.selector.eq_ignore_ascii_case(selector))
        };
        keys.iter().find(is_it).filter(|_| self.seal)
    }
}
