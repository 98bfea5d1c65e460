//! DKIM (RFC 6376, RFC 8463) without keys and clock: canonical forms, the signature field, and key records.
//!
//! | Task | Module |
//! |---|---|
//! | canonical form of a body while it comes, and of header fields | [`canonical`] |
//! | a new DKIM-Signature field: the fields that it covers, the octets that are signed, its text | [`signing`] |
//! | key records in the DNS: text, strings of a zone file, and comparison | [`key_record`] |
//! | verification of the signatures of a message | [`verification`] |
//! | lists of tags | [`tags`] |
//!
//! The caller hashes and signs: this crate has no cryptography.

pub mod canonical;
pub mod key_record;
pub mod signing;
pub mod tags;
pub mod verification;

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSA PKCS#1 1.5 over SHA-256.
    RsaSha256,
    /// Ed25519 over a SHA-256 digest.
    Ed25519Sha256,
}

impl Algorithm {
    /// Returns the value of `a=` in a signature.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RsaSha256 => "rsa-sha256",
            Self::Ed25519Sha256 => "ed25519-sha256",
        }
    }

    /// Returns the value of `k=` in a key record.
    // RFC 8463 §4: ed25519
    #[must_use]
    pub const fn key_type(self) -> &'static str {
        match self {
            Self::RsaSha256 => "rsa",
            Self::Ed25519Sha256 => "ed25519",
        }
    }
}
