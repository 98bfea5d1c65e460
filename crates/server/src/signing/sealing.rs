//! Seals forwarded mail of others (ARC, RFC 8617), with a key of DKIM.
//!
//! [`filter::arc::sealing`] chooses what a set covers and writes its text; here it is signed.

use super::{BodyHash, SigningKey, SigningKeys};
use bytes::Bytes;
use filter::arc::sealing::NewSet;
use filter::dkim::signing::SignatureValues;
use mail::header::HeaderSection;
use std::sync::Arc;

/// A set that is to be signed, and the key.
#[derive(Debug)]
pub(crate) struct SealingPlan {
    keys: Arc<SigningKeys>,
    set: NewSet,
}

impl SigningKeys {
    /// Returns whether forwarded mail is sealed.
    pub(crate) const fn seals(&self) -> bool {
        self.sealer.is_some()
    }

    /// Returns the set for a message of others that this server has checked; `None`: it is not sealed. `authserv_id`:
    /// the name of this server in Authentication-Results.
    pub(crate) fn for_forwarded(
        self: &Arc<Self>,
        header: &HeaderSection<'_>,
        authserv_id: &str,
    ) -> Option<SealingPlan> {
        self.sealer.as_ref()?;
        Some(SealingPlan { keys: Arc::clone(self), set: NewSet::of(header, authserv_id)? })
    }
}

impl SealingPlan {
    /// Returns the fields of the set, to be put before the header section; none if the library fails. `time`: seconds
    /// since 1970. `signed` hears domain and selector, and whether the set was made.
    pub(crate) fn seal(self, body: BodyHash, time: u64, signed: &mut dyn FnMut(&str, &str, bool)) -> Bytes {
        let Self { keys, set } = self;
        let Some(SigningKey { domain, selector, key }) = &keys.sealer else { return Bytes::new() };
        let (algorithm, domain, body_hash) = (key.algorithm(), domain.ascii(), body.finish());
        let values = SignatureValues { algorithm, domain, selector, time, body_hash: &body_hash };
        let unsigned = set.message_signature(&values);
        let signature = key.sign(&unsigned.signed_octets()).map(|value| unsigned.complete(&value));
        let seal = signature.and_then(|signature| {
            let unsigned = set.seal(&signature, &values);
            let value = key.sign(&unsigned.signed_octets())?;
            Some((signature, unsigned.complete(&value)))
        });
        signed(domain, selector, seal.is_some());
        seal.map(|(signature, seal)| set.complete(&signature, &seal).into()).unwrap_or_default()
    }
}
