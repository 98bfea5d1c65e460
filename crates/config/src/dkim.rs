//! The settings of DKIM signatures: `[[dkim.key]]`.

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
