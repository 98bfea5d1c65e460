//! The cryptography of DKIM verification, by aws-lc.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ED25519, ParsedPublicKey, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, VerificationAlgorithm,
};
use base64ct::{Base64, Encoding as _};
use filter::dkim::Algorithm;
use filter::dkim::verification::{Cryptography, KeyVerdict};

/// Verifies signatures by aws-lc.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwsLc;

impl Cryptography for AwsLc {
    fn base64(&self, text: &str) -> Option<Vec<u8>> {
        Base64::decode_vec(text).ok()
    }

    // RFC 8301 §3.2: verifiers must accept RSA keys of 1,024 bits
    fn verify(&self, algorithm: Algorithm, public_key: &[u8], octets: &[u8], signature: &[u8]) -> KeyVerdict {
        let verdict = |algorithm: &'static dyn VerificationAlgorithm, octets: &[u8]| {
            let Ok(key) = ParsedPublicKey::new(algorithm, public_key) else { return KeyVerdict::BadKey };
            if key.verify_sig(octets, signature).is_ok() { KeyVerdict::Good } else { KeyVerdict::Bad }
        };
        match algorithm {
            Algorithm::RsaSha256 => verdict(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, octets),
            Algorithm::Ed25519Sha256 => verdict(&ED25519, digest(&SHA256, octets).as_ref()),
        }
    }
}
