//! A new ARC set on a message of others that is passed on (RFC 8617 §5.1).
//!
//! [`NewSet::of`] finds the results of this server and the chain before them, [`NewSet::message_signature`] and
//! [`NewSet::seal`] write the fields that the caller signs, [`NewSet::complete`] joins them. A chain that is broken, or
//! that has no room for another set, is not continued.

use super::{MESSAGE_SIGNATURE, RESULTS, SEAL, SETS_MAX, set_octets, sets};
use crate::auth_results::{NAME, is_of, reported_results};
use crate::dkim::canonical::relax_field;
use crate::dkim::signing::{SignatureValues, SignedFields, Unsigned};
use mail::header::{Field, HeaderSection};

/// A set that is to be signed.
#[derive(Clone, Debug)]
pub struct NewSet {
    /// Its number.
    instance: usize,
    /// `cv=` of the seal.
    validation: &'static str,
    /// The results of this server: the whole field.
    results: String,
    /// The sets before it, as the seal covers them.
    before: Vec<u8>,
    fields: SignedFields,
}

impl NewSet {
    /// Returns the set for a message of others; `None`: it has no results of this server, its chain is broken or full,
    /// or it has no author.
    ///
    /// `authserv_id` is the name of this server in Authentication-Results. Only a field above the first Received field
    /// counts: what stands there comes from this server.
    #[must_use]
    pub fn of(header: &HeaderSection<'_>, authserv_id: &str) -> Option<Self> {
        let fields: Vec<Field<'_>> = header.fields().collect();
        let above = fields.iter().take_while(|field| !field.has_name("Received"));
        let results = above.into_iter().find(|field| field.has_name(NAME) && is_of(field, authserv_id))?;
        let (chain, _) = sets(&fields).ok()?;
        let instance = chain.len() + 1;
        let reported = reported_results(results.value());
        let chain_result = reported.iter().find(|one| one.method == "arc").map(|one| one.code.as_str());
        // RFC 8617 §5.1: the seal says what this server has found
        let validation = match (chain_result, chain.len()) {
            (None | Some("none"), 0) => "none",
            (Some("pass"), 1..SETS_MAX) => "pass",
            _ => return None,
        };
        let value = std::str::from_utf8(results.value()).ok()?.trim_end();
        let results = format!("{RESULTS}: i={instance};{value}\r\n");
        let fields = SignedFields::of_forwarded(header)?;
        Some(Self { instance, validation, results, before: set_octets(&chain), fields })
    }

    /// Writes the signature of the message.
    // RFC 8617 §4.1.2
    #[must_use]
    pub fn message_signature(&self, values: &SignatureValues<'_>) -> Unsigned<'_> {
        Unsigned::of_set(MESSAGE_SIGNATURE, self.instance, &self.fields, values)
    }

    /// Writes the seal of the set and of those before it; `signature` is the complete message signature.
    // RFC 8617 §4.1.3; RFC 8617 §5.1.1: sets in their order, each with results, signature and seal
    #[must_use]
    pub fn seal(&self, signature: &str, values: &SignatureValues<'_>) -> Unsigned<'static> {
        let mut covered = self.before.clone();
        for field in [self.results.as_str(), signature] {
            let (name, value) = field.split_once(':').unwrap_or((field, ""));
            relax_field(name, value.as_bytes(), &mut covered);
            covered.extend_from_slice(b"\r\n");
        }
        let SignatureValues { algorithm, domain, selector, time, .. } = values;
        let (instance, validation, algorithm) = (self.instance, self.validation, algorithm.name());
        let text = format!(
            "{SEAL}: i={instance}; a={algorithm}; t={time}; cv={validation};\r\n\td={domain}; s={selector};\r\n\tb="
        );
        Unsigned::of_octets(SEAL, text, covered)
    }

    /// Returns the fields of the set as they stand on top of the message.
    #[must_use]
    pub fn complete(self, signature: &str, seal: &str) -> String {
        [seal, signature, &self.results].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arc::{ArcChain, ArcCode};
    use crate::dkim::Algorithm;
    use crate::dkim::verification::{BodyHashes, Cryptography, KeyVerdict};
    use crate::dns_question::{DnsAnswer, DnsAnswers, DnsRecord};
    use mail::header::LineEnd;

    /// Signs with a sum of the octets.
    struct Sums;

    fn sum(octets: &[u8]) -> String {
        let sum = octets.iter().fold(7_u64, |sum, octet| sum.wrapping_mul(31).wrapping_add(u64::from(*octet)));
        format!("{sum:016x}")
    }

    impl Cryptography for Sums {
        fn base64(&self, text: &str) -> Option<Vec<u8>> {
            Some(text.as_bytes().to_vec())
        }

        fn verify(&self, _: Algorithm, _: &[u8], octets: &[u8], signature: &[u8]) -> KeyVerdict {
            if sum(octets).as_bytes() == signature { KeyVerdict::Good } else { KeyVerdict::Bad }
        }
    }

    fn section(text: &str) -> HeaderSection<'_> {
        HeaderSection::read(text.as_bytes(), LineEnd::Crlf)
    }

    fn sealed(text: &str) -> Option<String> {
        let set = NewSet::of(&section(text), "mx.test")?;
        let values = SignatureValues {
            algorithm: Algorithm::Ed25519Sha256,
            domain: "mx.test",
            selector: "s",
            time: 9,
            body_hash: "hash",
        };
        let unsigned = set.message_signature(&values);
        let value = sum(&unsigned.signed_octets());
        let signature = unsigned.complete(&value);
        let unsigned = set.seal(&signature, &values);
        let value = sum(&unsigned.signed_octets());
        let seal = unsigned.complete(&value);
        Some(format!("{}{text}", set.complete(&signature, &seal)))
    }

    fn verified(text: &str) -> (ArcCode, String) {
        let mut answers = DnsAnswers::default();
        let hashes = BodyHashes { relaxed: "hash".to_owned(), ..BodyHashes::default() };
        let header = section(text);
        let chain = ArcChain::of(&header);
        loop {
            match chain.verify(&hashes, &answers, &Sums) {
                Ok(result) => return (result.code, result.reason),
                Err(question) => {
                    let key = DnsRecord::Text("k=ed25519; p=x".to_owned());
                    answers.insert(question, DnsAnswer::Records(vec![key]));
                }
            }
        }
    }

    const REST: &str = "Received: by mx.test\r\nDKIM-Signature: v=1\r\nFrom: a@b.test\r\nSubject: s\r\n";

    fn received(results: &str, rest: &str) -> String {
        format!("Authentication-Results: mx.test;\r\n\t{results}\r\n{rest}")
    }

    // RFC 8617 §5.1 (test)
    #[test]
    fn sets_are_added_to_whole_chains() {
        let first = sealed(&received("spf=pass", REST)).unwrap();
        assert!(
            first.starts_with("ARC-Seal: i=1; a=ed25519-sha256; t=9; cv=none;\r\n\td=mx.test; s=s;\r\n\tb="),
            "{first}"
        );
        assert!(first.contains("\r\nARC-Authentication-Results: i=1; mx.test;\r\n\tspf=pass\r\n"), "{first}");
        assert!(first.contains("h=From:From:Subject:Subject:DKIM-Signature;"), "{first}");
        assert_eq!(verified(&first), (ArcCode::Pass, String::new()));
        let second = sealed(&received("arc=pass header.d=mx.test", &format!("Received: x\r\n{first}")));
        let second = second.unwrap();
        assert!(second.contains("ARC-Seal: i=2;") && second.contains("cv=pass"), "{second}");
        assert_eq!(verified(&second), (ArcCode::Pass, String::new()));
        // Negative controls: a changed subject, a changed result, a set that was taken out.
        for (old, new) in [("Subject: s", "Subject: t"), ("i=2; mx.test", "i=2; mx.other"), ("spf=pass", "spf=fail")] {
            assert_eq!(verified(&second.replace(old, new)).0, ArcCode::Fail, "{old}");
        }
    }

    #[test]
    fn nothing_is_sealed_that_this_server_has_not_checked() {
        let set = sealed(&received("spf=pass", REST)).unwrap();
        for (text, why) in [
            (REST.to_owned(), "no results"),
            (format!("Received: x\r\n{}", received("spf=pass", REST)), "results below Received may be forged"),
            (received("spf=pass", REST).replace("mx.test;", "mx.other;"), "results of another server"),
            (received("arc=fail reason=\"x; arc=pass\"", &set), "a broken chain"),
            (received("spf=pass", &set), "a chain without a result"),
            (received("arc=pass", REST), "a result without a chain"),
            (received("arc=pass", &set.replace("ARC-Seal: i=1", "ARC-Seal: i=2")), "a chain with a hole"),
            (received("spf=pass", "Received: x\r\n"), "no author"),
        ] {
            assert_eq!(sealed(&text), None, "{why}");
        }
    }
}
