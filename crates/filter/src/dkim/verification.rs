//! Verification of DKIM-Signature fields (RFC 6376 §6).
//!
//! [`Signatures::of`] reads the fields of a message; the caller hashes the body in the forms that they ask for, and
//! [`ReceivedSignature::verify`] asks for the key record and has the signature checked by [`Cryptography`]. A
//! signature with `l=` never passes: others can add to a body behind it.

use super::Algorithm;
use super::canonical::{Canonicalization, relax_field};
use super::key_record::record_name;
use super::tags::TagList;
use crate::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, DnsRecord, RecordKind, Unanswered};
use crate::result_code::result_code;
use mail::header::{Field, HeaderSection};

/// Signatures of a message that are verified; the others, further down, are not looked at.
// RFC 6376 §6.1: a verifier may limit the number of signatures it tries
pub const SIGNATURES_MAX: usize = 10;
/// Names in `h=`.
const NAMES_MAX: usize = 1_000;

result_code! {
    /// The result for a signature, as `Authentication-Results` names it.
    DkimCode {
        /// There is no signature.
        None = "none",
        /// The signature is right.
        Pass = "pass",
        /// Header or body are not what was signed.
        Fail = "fail",
        /// The signature is right or not, and is not accepted here.
        Policy = "policy",
        /// The DNS cannot tell now.
        TempError = "temperror",
        /// The signature or its key cannot be used.
        PermError = "permerror",
    }
}

/// The result for one signature, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DkimResult {
    /// The result.
    pub code: DkimCode,
    /// `d=`, in lower case; empty if it has none.
    pub domain: String,
    /// `s=`
    pub selector: String,
    /// `a=`
    pub algorithm: String,
    /// The fault.
    pub reason: String,
}

/// The judgement of a signature by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVerdict {
    /// The signature is right.
    Good,
    /// The signature is wrong.
    Bad,
    /// The key cannot be read, or is shorter than is allowed.
    BadKey,
}

/// The cryptography that the caller brings.
pub trait Cryptography {
    /// Decodes base64 without white space; `None`: it is none.
    fn base64(&self, text: &str) -> Option<Vec<u8>>;

    /// Checks a signature over octets. RSA keys are SubjectPublicKeyInfo or RSAPublicKey in DER, Ed25519 keys have 32
    /// octets and sign the SHA-256 digest.
    fn verify(&self, algorithm: Algorithm, public_key: &[u8], octets: &[u8], signature: &[u8]) -> KeyVerdict;
}

/// The SHA-256 digests of a body in both canonical forms, in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyHashes {
    /// Of the simple form; empty if no signature needs it.
    pub simple: String,
    /// Of the relaxed form; empty if no signature needs it.
    pub relaxed: String,
}

/// The signatures of a message, in the order of the header.
#[derive(Clone, Debug)]
pub struct Signatures<'a> {
    fields: Vec<Field<'a>>,
    /// Each signature.
    pub all: Vec<ReceivedSignature<'a>>,
}

/// A signature field.
#[derive(Clone, Debug)]
pub struct ReceivedSignature<'a> {
    field: Field<'a>,
    parsed: Result<SignatureTags, Box<DkimResult>>,
}

/// The tags of a usable signature.
#[derive(Clone, Debug)]
struct SignatureTags {
    algorithm: Algorithm,
    domain: String,
    selector: String,
    header: Canonicalization,
    body: Canonicalization,
    names: Vec<String>,
    body_hash: String,
    signature: String,
    identity_is_domain: bool,
}

impl<'a> Signatures<'a> {
    /// Reads the signatures of a message. `now`: seconds since 1970.
    #[must_use]
    pub fn of(header: &HeaderSection<'a>, now: u64) -> Self {
        let fields: Vec<Field<'a>> = header.fields().collect();
        let own = fields.iter().filter(|field| field.has_name("DKIM-Signature")).take(SIGNATURES_MAX);
        let all =
            own.map(|field| ReceivedSignature { field: *field, parsed: SignatureTags::read(field, now) }).collect();
        Self { fields, all }
    }

    /// Returns whether a signature needs the body in this form.
    #[must_use]
    pub fn needs(&self, form: Canonicalization) -> bool {
        self.all.iter().any(|one| one.parsed.as_ref().is_ok_and(|tags| tags.body == form))
    }

    /// Returns the questions that [`Self::verify`] has, so that they can be asked at once.
    pub fn questions(&self) -> impl Iterator<Item = DnsQuestion> + '_ {
        let tags = self.all.iter().filter_map(|one| one.parsed.as_ref().ok());
        tags.filter_map(|tags| DnsQuestion::new(RecordKind::Txt, &record_name(&tags.selector, &tags.domain)))
    }

    /// Verifies all signatures.
    ///
    /// # Errors
    /// The record of a key is missing: the caller asks for it and calls again.
    pub fn verify(
        &self,
        hashes: &BodyHashes,
        answers: &DnsAnswers,
        cryptography: &dyn Cryptography,
    ) -> Result<Vec<DkimResult>, DnsQuestion> {
        self.all.iter().map(|one| one.verify(&self.fields, hashes, answers, cryptography)).collect()
    }
}

impl SignatureTags {
    // RFC 6376 §6.1.1
    fn read(field: &Field<'_>, now: u64) -> Result<Self, Box<DkimResult>> {
        let text = String::from_utf8_lossy(field.value());
        let Ok(list) = TagList::parse(&text) else {
            return Err(fault(DkimCode::PermError, &TagList::default(), "the signature is no list of tags"));
        };
        let broken = |why: &str| fault(DkimCode::PermError, &list, why);
        let required = |name: &str| {
            list.compact(name).filter(|value| !value.is_empty()).ok_or_else(|| broken(&format!("no {name}= in it")))
        };
        if list.get("v") != Some("1") {
            return Err(broken("v= is not 1"));
        }
        let algorithm = match required("a")?.to_ascii_lowercase().as_str() {
            "rsa-sha256" => Algorithm::RsaSha256,
            "ed25519-sha256" => Algorithm::Ed25519Sha256,
            // RFC 8301 §3.1: rsa-sha1 must not be used
            "rsa-sha1" => return Err(fault(DkimCode::PermError, &list, "rsa-sha1 is not secure")),
            _ => return Err(broken("an unknown algorithm in a=")),
        };
        let domain = required("d")?.to_ascii_lowercase();
        let selector = required("s")?;
        let (body_hash, signature) = (required("bh")?, required("b")?);
        let names: Vec<String> = required("h")?.split(':').map(str::to_owned).collect();
        if !names.iter().any(|name| name.eq_ignore_ascii_case("From")) {
            return Err(broken("h= does not cover From"));
        }
        if names.len() > NAMES_MAX {
            return Err(broken("too many names in h="));
        }
        let (header, body) = canonicalizations(list.get("c")).ok_or_else(|| broken("c= is unknown"))?;
        if list.compact("q").is_some_and(|query| !query.split(':').any(|one| one == "dns/txt")) {
            return Err(broken("q= is unknown"));
        }
        let identity = list.compact("i").unwrap_or_else(|| format!("@{domain}")).to_ascii_lowercase();
        let identity = identity.rsplit_once('@').map_or("", |(_, of)| of);
        if !is_in(identity, &domain) {
            return Err(broken("i= is outside of d="));
        }
        if list.get("x").is_some_and(|time| time.parse::<u64>().is_ok_and(|time| time < now)) {
            return Err(fault(DkimCode::PermError, &list, "the signature has expired"));
        }
        if list.get("l").is_some() {
            return Err(fault(DkimCode::Policy, &list, "l= leaves room for others in the body"));
        }
        let identity_is_domain = identity == domain;
        Ok(Self { algorithm, domain, selector, header, body, names, body_hash, signature, identity_is_domain })
    }

    fn result(&self, code: DkimCode, reason: &str) -> DkimResult {
        DkimResult {
            code,
            domain: self.domain.clone(),
            selector: self.selector.clone(),
            algorithm: self.algorithm.name().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

fn fault(code: DkimCode, list: &TagList<'_>, reason: &str) -> Box<DkimResult> {
    let text = |name: &str| list.compact(name).unwrap_or_default();
    Box::new(DkimResult {
        code,
        domain: text("d").to_ascii_lowercase(),
        selector: text("s"),
        algorithm: text("a"),
        reason: reason.to_owned(),
    })
}

// RFC 6376 §3.5: simple/simple by default, and simple for a body that is not named
pub(crate) fn canonicalizations(value: Option<&str>) -> Option<(Canonicalization, Canonicalization)> {
    let of = |word: &str| match word {
        "simple" => Some(Canonicalization::Simple),
        "relaxed" => Some(Canonicalization::Relaxed),
        _ => None,
    };
    let (header, body) = value.map_or(("simple", "simple"), |value| value.split_once('/').unwrap_or((value, "simple")));
    Some((of(header)?, of(body)?))
}

pub(crate) fn is_in(domain: &str, of: &str) -> bool {
    domain.strip_suffix(of).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

impl ReceivedSignature<'_> {
    fn verify(
        &self,
        fields: &[Field<'_>],
        hashes: &BodyHashes,
        answers: &DnsAnswers,
        cryptography: &dyn Cryptography,
    ) -> Result<DkimResult, DnsQuestion> {
        let tags = match &self.parsed {
            Ok(tags) => tags,
            Err(fault) => return Ok(fault.as_ref().clone()),
        };
        let name = record_name(&tags.selector, &tags.domain);
        let key = match answers.get(RecordKind::Txt, &name).map_err(|Unanswered(question)| question)? {
            DnsAnswer::Failed => return Ok(tags.result(DkimCode::TempError, "the DNS gives no answer about the key")),
            DnsAnswer::Records(records) => match key_in(records, tags.algorithm, tags.identity_is_domain) {
                Ok(key) => key,
                Err(why) => return Ok(tags.result(DkimCode::PermError, why)),
            },
        };
        let body_hash = match tags.body {
            Canonicalization::Simple => &hashes.simple,
            Canonicalization::Relaxed => &hashes.relaxed,
        };
        if *body_hash != tags.body_hash {
            return Ok(tags.result(DkimCode::Fail, "the body is not what was signed"));
        }
        let (Some(key), Some(signature)) = (cryptography.base64(&key), cryptography.base64(&tags.signature)) else {
            return Ok(tags.result(DkimCode::PermError, "key or signature is no base64"));
        };
        let octets = covered_octets(fields, &tags.names, tags.header, &self.field);
        Ok(match cryptography.verify(tags.algorithm, &key, &octets, &signature) {
            KeyVerdict::Good => tags.result(DkimCode::Pass, ""),
            KeyVerdict::Bad => tags.result(DkimCode::Fail, "the header is not what was signed"),
            KeyVerdict::BadKey => tags.result(DkimCode::PermError, "the key is broken or too short"),
        })
    }
}

/// Returns the octets that a signature over these fields covers: fields by name, and its own field without `b=`.
// RFC 6376 §5.4.2: of fields of one name the last comes first; a name beyond them stands for nothing
pub(crate) fn covered_octets(
    fields: &[Field<'_>],
    names: &[String],
    form: Canonicalization,
    own: &Field<'_>,
) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut left: Vec<&Field<'_>> = fields.iter().rev().collect();
    for name in names {
        let Some(at) = left.iter().position(|field| field.has_name(name)) else { continue };
        let field = left.remove(at);
        match form {
            Canonicalization::Simple => octets.extend_from_slice(field.raw()),
            Canonicalization::Relaxed => {
                relax_field(field.name(), field.value(), &mut octets);
                octets.extend_from_slice(b"\r\n");
            }
        }
    }
    let value = without_signature(own.value());
    match form {
        Canonicalization::Simple => {
            let name_bytes = own.value_offset() - own.offset();
            octets.extend_from_slice(own.raw().get(..name_bytes).unwrap_or_default());
            octets.extend_from_slice(value.strip_suffix(b"\r\n").unwrap_or(&value));
        }
        Canonicalization::Relaxed => relax_field(own.name(), &value, &mut octets),
    }
    octets
}

/// Returns the public key of a record that allows a signature, in base64.
// RFC 6376 §6.1.2
pub(crate) fn key_in(
    records: &[DnsRecord],
    algorithm: Algorithm,
    identity_is_domain: bool,
) -> Result<String, &'static str> {
    let text = |record: &'_ DnsRecord| if let DnsRecord::Text(text) = record { Some(text.clone()) } else { None };
    let texts: Vec<String> = records.iter().filter_map(text).collect();
    let mut found = Err("there is no key record");
    for text in &texts {
        let Ok(list) = TagList::parse(text) else { continue };
        if list.get("p").is_none() {
            continue;
        }
        // RFC 6376 §3.6.2.2: with several records the result is undefined
        if found.is_ok() {
            return Err("there are several key records");
        }
        found = Ok(list);
    }
    let list = found?;
    let allows = |name: &str, wanted: &[&str]| {
        list.compact(name).is_none_or(|value| value.split(':').any(|one| wanted.contains(&one)))
    };
    if list.get("v").is_some_and(|version| version != "DKIM1" || list.first() != Some("v")) {
        return Err("the key record has another version");
    }
    if list.get("k").unwrap_or("rsa") != algorithm.key_type() {
        return Err("the key is of another kind");
    }
    if !allows("h", &["sha256"]) {
        return Err("the key record does not allow sha256");
    }
    if !allows("s", &["email", "*"]) {
        return Err("the key is not for mail");
    }
    // RFC 6376 §3.6.1: t=s
    let flags = list.compact("t").unwrap_or_default();
    if flags.split(':').any(|flag| flag == "s") && !identity_is_domain {
        return Err("the key does not allow i= below the domain");
    }
    list.compact("p").filter(|key| !key.is_empty()).ok_or("the key was revoked")
}

/// Returns a field's value without the value of its `b=` tag.
pub(crate) fn without_signature(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for (number, spec) in value.split(|octet| *octet == b';').enumerate() {
        if number > 0 {
            out.push(b';');
        }
        let equals = spec.iter().position(|octet| *octet == b'=');
        match equals.and_then(|at| spec.split_at_checked(at + 1)) {
            Some((name, _)) if is_b(name) => out.extend_from_slice(name),
            _ => out.extend_from_slice(spec),
        }
    }
    out
}

/// Returns whether a tag's name with its equals sign is that of `b=`, with white space around the name.
fn is_b(name: &[u8]) -> bool {
    name.strip_suffix(b"=").is_some_and(|name| name.trim_ascii() == b"b")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::header::LineEnd;

    struct NoCryptography;

    impl Cryptography for NoCryptography {
        fn base64(&self, text: &str) -> Option<Vec<u8>> {
            Some(text.as_bytes().to_vec())
        }

        fn verify(&self, _: Algorithm, key: &[u8], _: &[u8], signature: &[u8]) -> KeyVerdict {
            if key == signature { KeyVerdict::Good } else { KeyVerdict::Bad }
        }
    }

    const RIGHT: &str = "v=1; a=rsa-sha256; c=relaxed/relaxed; d=Example.org; s=s; h=from:to; bh=hash; b=k e\r\n y";

    fn verified(signature: &str, record: &str) -> DkimResult {
        let text = format!("DKIM-Signature: {signature}\r\nFrom: a@b\r\n\r\n");
        let header = HeaderSection::read(text.as_bytes(), LineEnd::Crlf);
        let signatures = Signatures::of(&header, 1_000);
        let mut answers = DnsAnswers::default();
        let hashes = BodyHashes { simple: "none".to_owned(), relaxed: "hash".to_owned() };
        loop {
            match signatures.verify(&hashes, &answers, &NoCryptography) {
                Ok(results) => return results[0].clone(),
                Err(question) => {
                    assert_eq!(question.name, "s._domainkey.example.org");
                    let texts = record.split('|').filter(|text| !text.is_empty());
                    let records = texts.map(|text| DnsRecord::Text(text.to_owned())).collect();
                    let answer = if record == "fails" { DnsAnswer::Failed } else { DnsAnswer::Records(records) };
                    answers.insert(question, answer);
                }
            }
        }
    }

    #[test]
    fn signatures_and_keys_are_judged() {
        use DkimCode::{Fail, Pass, PermError, Policy, TempError};
        let key = "v=DKIM1; p=k ey";
        let with = |from: &str, to: &str| RIGHT.replace(from, to);
        for (signature, record, code) in [
            (RIGHT.to_owned(), key, Pass),
            (with("b=k", "b=x"), key, Fail),
            (with("bh=hash", "bh=other"), key, Fail),
            (with("c=relaxed/relaxed; ", ""), key, Fail),
            (with("v=1", "v=2"), key, PermError),
            (with("rsa-sha256", "rsa-sha1"), key, PermError),
            (with("h=from:to", "h=to"), key, PermError),
            (with("; s=s", "; s=s; i=a@other.org"), key, PermError),
            (with("; s=s", "; s=s; i=a@x.example.org"), key, Pass),
            (with("; s=s", "; s=s; i=a@x.example.org"), "p=key; t=s", PermError),
            (with("; s=s", "; s=s; x=999"), key, PermError),
            (with("; s=s", "; s=s; x=1001"), key, Pass),
            (with("; s=s", "; s=s; l=10"), key, Policy),
            (with("; s=s", "; s=s; s=t"), key, PermError),
            (RIGHT.to_owned(), "", PermError),
            (RIGHT.to_owned(), "fails", TempError),
            (RIGHT.to_owned(), "p=key|v=DKIM1; p=key", PermError),
            (RIGHT.to_owned(), "other text|v=DKIM1; p=key", Pass),
            (RIGHT.to_owned(), "p=", PermError),
            (RIGHT.to_owned(), "k=ed25519; p=key", PermError),
            (RIGHT.to_owned(), "h=sha1; p=key", PermError),
        ] {
            let found = verified(&signature, record);
            assert_eq!(found.code, code, "{signature} {record}: {}", found.reason);
            assert_eq!(found.reason.is_empty(), code == Pass, "{}", found.reason);
        }
    }

    #[test]
    fn the_value_of_b_alone_is_left_out() {
        let shown = |text: &str| String::from_utf8(without_signature(text.as_bytes())).unwrap();
        assert_eq!(shown(" v=1; bh=b=; b = x\r\n y ; d=b"), " v=1; bh=b=; b =; d=b");
        assert_eq!(shown("b=x"), "b=");
    }
}
