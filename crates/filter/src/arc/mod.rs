//! ARC (RFC 8617): the chain of results that relays before us have signed.
//!
//! [`ArcChain`] verifies the chain. The questions for keys are returned, and [`ArcChain::verify`] is called again with
//! the answers. [`ArcResult::vouches_for`] says whether the chain makes up for a failed DMARC, [`sealing`] adds a set.

pub mod sealing;

use crate::auth_results::{ReportedResult, reported_results};
use crate::dkim::Algorithm;
use crate::dkim::canonical::{Canonicalization, relax_field};
use crate::dkim::key_record::record_name;
use crate::dkim::tags::TagList;
use crate::dkim::verification::{
    BodyHashes, Cryptography, KeyVerdict, canonicalizations, covered_octets, is_in, key_in, without_signature,
};
use crate::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, RecordKind, Unanswered};
use crate::result_code::result_code;
use mail::DomainName;
use mail::header::{Field, HeaderSection};

/// Sets of a chain.
// RFC 8617 §5.2
const SETS_MAX: usize = 50;

const RESULTS: &str = "ARC-Authentication-Results";
const MESSAGE_SIGNATURE: &str = "ARC-Message-Signature";
const SEAL: &str = "ARC-Seal";

result_code! {
    /// The result for a chain, as `Authentication-Results` names it.
    ArcCode {
        /// There is no chain.
        None = "none",
        /// The chain is whole, and the newest signature is right.
        Pass = "pass",
        /// The chain is broken.
        Fail = "fail",
    }
}

/// The result with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArcResult {
    /// The result.
    pub code: ArcCode,
    /// The fault.
    pub reason: String,
    /// Domains of the seals, the oldest first, of a chain that passes.
    pub sealers: Vec<String>,
    /// The results in its oldest set, if the chain passes.
    pub first_results: Vec<ReportedResult>,
}

impl ArcResult {
    fn fail(reason: impl Into<String>) -> Self {
        Self { code: ArcCode::Fail, reason: reason.into(), sealers: Vec::new(), first_results: Vec::new() }
    }

    /// Returns the newest sealer, if the chain shows that DMARC passed for this domain before the mail was passed on:
    /// the chain is whole, each sealer is one of these domains or below one, and the oldest set reports the pass. A
    /// sealer that is not trusted may have changed the message.
    // RFC 8617 §7.2.1
    #[must_use]
    pub fn vouches_for(&self, author: &str, trusted: &[DomainName]) -> Option<&str> {
        let is_trusted = |sealer: &String| trusted.iter().any(|domain| is_in(sealer, domain.ascii()));
        let passed = |one: &ReportedResult| {
            let of = one.property("header.from").is_some_and(|domain| domain.eq_ignore_ascii_case(author));
            one.method == "dmarc" && one.code == "pass" && of
        };
        let vouches =
            self.code == ArcCode::Pass && self.sealers.iter().all(is_trusted) && self.first_results.iter().any(passed);
        self.sealers.last().filter(|_| vouches).map(String::as_str)
    }
}

/// A signature or a seal.
#[derive(Clone, Debug)]
struct SealTags {
    algorithm: Algorithm,
    domain: String,
    selector: String,
    signature: String,
}

/// The tags of an ARC-Message-Signature beside those of a seal.
#[derive(Clone, Debug)]
struct MessageTags {
    header: Canonicalization,
    body: Canonicalization,
    names: Vec<String>,
    body_hash: String,
}

/// One set of the chain.
#[derive(Clone, Debug)]
struct ArcSet<'a> {
    results: Field<'a>,
    signature: Field<'a>,
    seal: Field<'a>,
    seal_tags: SealTags,
}

/// The chain of a message.
#[derive(Clone, Debug)]
pub struct ArcChain<'a> {
    fields: Vec<Field<'a>>,
    /// The sets, the oldest first, with the tags of the newest message signature; or the fault.
    parsed: Result<SortedSets<'a>, String>,
}

impl<'a> ArcChain<'a> {
    /// Reads the chain of a message.
    #[must_use]
    pub fn of(header: &HeaderSection<'a>) -> Self {
        let fields: Vec<Field<'a>> = header.fields().collect();
        let parsed = sets(&fields);
        Self { fields, parsed }
    }

    /// Returns whether the newest signature needs the body in this form.
    #[must_use]
    pub fn needs(&self, form: Canonicalization) -> bool {
        matches!(&self.parsed, Ok((_, Some((_, tags)))) if tags.body == form)
    }

    /// Returns the questions that [`Self::verify`] may have, so that they can be asked at once.
    pub fn questions(&self) -> impl Iterator<Item = DnsQuestion> + '_ {
        let (sets, newest) = match &self.parsed {
            Ok((sets, newest)) => (sets.as_slice(), newest.as_ref()),
            Err(_) => (&[][..], None),
        };
        let tags = sets.iter().map(|set| &set.seal_tags).chain(newest.map(|(tags, _)| tags));
        tags.filter_map(|tags| DnsQuestion::new(RecordKind::Txt, &record_name(&tags.selector, &tags.domain)))
    }

    /// Verifies the chain.
    ///
    /// # Errors
    /// The record of a key is missing: the caller asks for it and calls again.
    // RFC 8617 §5.2
    pub fn verify(
        &self,
        hashes: &BodyHashes,
        answers: &DnsAnswers,
        cryptography: &dyn Cryptography,
    ) -> Result<ArcResult, DnsQuestion> {
        let (sets, newest) = match &self.parsed {
            Ok((sets, Some(newest))) => (sets, newest),
            Ok((_, None)) => {
                return Ok(ArcResult { code: ArcCode::None, ..ArcResult::fail("") });
            }
            Err(why) => return Ok(ArcResult::fail(why.as_str())),
        };
        let Some(last) = sets.last() else { return Ok(ArcResult::fail("there is no set")) };
        let (seal_tags, tags) = newest;
        let hash = match tags.body {
            Canonicalization::Simple => &hashes.simple,
            Canonicalization::Relaxed => &hashes.relaxed,
        };
        if *hash != tags.body_hash {
            return Ok(ArcResult::fail("the body is not what was signed"));
        }
        let octets = covered_octets(&self.fields, &tags.names, tags.header, &last.signature);
        if let Some(why) = check(seal_tags, &octets, answers, cryptography)? {
            return Ok(ArcResult::fail(format!("newest message signature: {why}")));
        }
        for (number, set) in sets.iter().enumerate().rev() {
            let octets = sealed_octets(sets.get(..=number).unwrap_or_default());
            if let Some(why) = check(&set.seal_tags, &octets, answers, cryptography)? {
                return Ok(ArcResult::fail(format!("seal {}: {why}", number + 1)));
            }
        }
        let sealers = sets.iter().map(|set| set.seal_tags.domain.clone()).collect();
        let first_results = sets.first().map(|set| reported_results(set.results.value())).unwrap_or_default();
        Ok(ArcResult { code: ArcCode::Pass, reason: String::new(), sealers, first_results })
    }
}

/// Checks a signature; returns what is wrong with it.
fn check(
    tags: &SealTags,
    octets: &[u8],
    answers: &DnsAnswers,
    cryptography: &dyn Cryptography,
) -> Result<Option<&'static str>, DnsQuestion> {
    let name = record_name(&tags.selector, &tags.domain);
    let key = match answers.get(RecordKind::Txt, &name).map_err(|Unanswered(question)| question)? {
        DnsAnswer::Failed => return Ok(Some("the DNS gives no answer about the key")),
        DnsAnswer::Records(records) => match key_in(records, tags.algorithm, true) {
            Ok(key) => key,
            Err(why) => return Ok(Some(why)),
        },
    };
    let (Some(key), Some(signature)) = (cryptography.base64(&key), cryptography.base64(&tags.signature)) else {
        return Ok(Some("key or signature is no base64"));
    };
    Ok(match cryptography.verify(tags.algorithm, &key, octets, &signature) {
        KeyVerdict::Good => None,
        KeyVerdict::Bad => Some("the header is not what was signed"),
        KeyVerdict::BadKey => Some("the key is broken or too short"),
    })
}

/// Returns the octets that the seal of the last of these sets covers.
// RFC 8617 §5.1.1: all fields of all sets in the relaxed form, the last seal without its signature
fn sealed_octets(sets: &[ArcSet<'_>]) -> Vec<u8> {
    let Some((last, before)) = sets.split_last() else { return Vec::new() };
    let mut octets = set_octets(before);
    append_fields(&[last.results, last.signature], &mut octets);
    relax_field(last.seal.name(), &without_signature(last.seal.value()), &mut octets);
    octets
}

/// Returns the octets of whole sets as the seals behind them cover them.
fn set_octets(sets: &[ArcSet<'_>]) -> Vec<u8> {
    let mut octets = Vec::new();
    sets.iter().for_each(|set| append_fields(&[set.results, set.signature, set.seal], &mut octets));
    octets
}

fn append_fields(fields: &[Field<'_>], octets: &mut Vec<u8>) {
    for field in fields {
        relax_field(field.name(), field.value(), octets);
        octets.extend_from_slice(b"\r\n");
    }
}

/// The sets, the oldest first, and the tags of the newest message signature, if there are sets.
type SortedSets<'a> = (Vec<ArcSet<'a>>, Option<(SealTags, MessageTags)>);

/// Sorts the fields of the chain into sets, and reads the tags that count.
fn sets<'a>(fields: &[Field<'a>]) -> Result<SortedSets<'a>, String> {
    let of = |name: &str| -> Vec<Field<'a>> { fields.iter().filter(|field| field.has_name(name)).copied().collect() };
    let (results, signatures, seals) = (of(RESULTS), of(MESSAGE_SIGNATURE), of(SEAL));
    let count = seals.len();
    if results.is_empty() && signatures.is_empty() && seals.is_empty() {
        return Ok((Vec::new(), None));
    }
    if count > SETS_MAX || results.len() != count || signatures.len() != count {
        return Err("sets are not whole, or too many".to_owned());
    }
    let mut found = Vec::new();
    let mut newest = None;
    for number in 1..=count {
        let one = |from: &[Field<'a>], instance: fn(&Field<'_>) -> Option<usize>| {
            let mut with = from.iter().filter(|field| instance(field) == Some(number));
            with.next().copied().filter(|_| with.next().is_none())
        };
        let set = (one(&results, instance_of_results), one(&signatures, instance), one(&seals, instance));
        let (Some(results), Some(signature), Some(seal)) = set else {
            return Err(format!("set {number} is not whole"));
        };
        let seal_tags = read_seal(&seal, number).map_err(|why| format!("seal {number}: {why}"))?;
        if number == count {
            let tags = read_signature(&signature).map_err(|why| format!("newest message signature: {why}"))?;
            newest = Some(tags);
        }
        found.push(ArcSet { results, signature, seal, seal_tags });
    }
    Ok((found, newest))
}

fn text(field: &Field<'_>) -> String {
    String::from_utf8_lossy(field.value()).into_owned()
}

/// Returns the number of a signature or a seal.
fn instance(field: &Field<'_>) -> Option<usize> {
    let text = text(field);
    TagList::parse(&text).ok()?.get("i")?.parse().ok().filter(|number| *number > 0)
}

/// Returns the number of results, which begin with `i=N;`.
fn instance_of_results(field: &Field<'_>) -> Option<usize> {
    let text = text(field);
    let (first, _) = text.split_once(';')?;
    let (name, number) = first.split_once('=')?;
    (name.trim() == "i").then(|| number.trim().parse().ok())?.filter(|number| *number > 0)
}

fn common(list: &TagList<'_>) -> Result<SealTags, &'static str> {
    let required = |name: &str, why| list.compact(name).filter(|value| !value.is_empty()).ok_or(why);
    let algorithm = match required("a", "no a=")?.as_str() {
        "rsa-sha256" => Algorithm::RsaSha256,
        "ed25519-sha256" => Algorithm::Ed25519Sha256,
        _ => return Err("an unknown algorithm in a="),
    };
    let domain = required("d", "no d=")?.to_ascii_lowercase();
    if DomainName::new(&domain).is_err() {
        return Err("d= is no domain");
    }
    // RFC 6376 §3.5: digits
    if list.get("t").is_some_and(|time| time.is_empty() || !time.bytes().all(|octet| octet.is_ascii_digit())) {
        return Err("t= is no time");
    }
    Ok(SealTags { algorithm, domain, selector: required("s", "no s=")?, signature: required("b", "no b=")? })
}

// RFC 8617 §4.1.3
fn read_seal(field: &Field<'_>, number: usize) -> Result<SealTags, &'static str> {
    let text = text(field);
    let list = TagList::parse(&text).map_err(|_| "no list of tags")?;
    if list.get("h").is_some() {
        return Err("h= has no place in a seal");
    }
    // RFC 8617 §5.2: the first seal knows no chain, and all others found it whole
    match (list.get("cv"), number) {
        (Some("none"), 1) | (Some("pass"), 2..) => common(&list),
        (Some("fail"), _) => Err("the chain was broken before"),
        _ => Err("cv= does not fit"),
    }
}

// RFC 8617 §4.1.2: as a DKIM signature, without v=, and without seals in h=
fn read_signature(field: &Field<'_>) -> Result<(SealTags, MessageTags), &'static str> {
    let text = text(field);
    let list = TagList::parse(&text).map_err(|_| "no list of tags")?;
    let seal = common(&list)?;
    let required = |name: &str, why| list.compact(name).filter(|value| !value.is_empty()).ok_or(why);
    // An empty list covers nothing, and its signature may be right all the same.
    let names: Vec<String> = list.compact("h").ok_or("no h=")?.split(':').map(str::to_owned).collect();
    if names.iter().any(|name| name.eq_ignore_ascii_case(SEAL)) {
        return Err("h= covers a seal");
    }
    // Signers that leave c= out mean relaxed/relaxed, as the other forms of ARC are.
    let form = list.get("c").unwrap_or("relaxed/relaxed");
    let (header, body) = canonicalizations(Some(form)).ok_or("c= is unknown")?;
    if list.get("l").is_some() {
        return Err("l= leaves room for others in the body");
    }
    Ok((seal, MessageTags { header, body, names, body_hash: required("bh", "no bh=")? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8617 §7.2.1 (test)
    #[test]
    fn a_chain_vouches_for_the_author_if_each_sealer_is_trusted() {
        let results = |text: &str| reported_results(text.as_bytes());
        let good = ArcResult {
            code: ArcCode::Pass,
            sealers: vec!["a.list.test".to_owned(), "list.test".to_owned()],
            first_results: results("i=1; mx; dmarc=pass (p=reject) header.from=Bank.test"),
            ..ArcResult::fail("")
        };
        let vouches = |one: &ArcResult, author: &str, trusted: &str| {
            let trusted = [DomainName::new("else.test").unwrap(), DomainName::new(trusted).unwrap()];
            one.vouches_for(author, &trusted).map(str::to_owned)
        };
        assert_eq!(vouches(&good, "bank.test", "list.test").as_deref(), Some("list.test"));
        assert_eq!(vouches(&good, "bank.test", "a.list.test"), None, "the newest sealer is a stranger");
        assert_eq!(vouches(&good, "sub.bank.test", "list.test"), None, "another author");
        let failed = ArcResult { code: ArcCode::Fail, ..good.clone() };
        assert_eq!(vouches(&failed, "bank.test", "list.test"), None);
        for text in ["dmarc=fail header.from=bank.test", "dmarc=pass", "spf=pass header.from=bank.test", "dmarc=none"] {
            let other = ArcResult { first_results: results(text), ..good.clone() };
            assert_eq!(vouches(&other, "bank.test", "list.test"), None, "{text}");
        }
    }
}
