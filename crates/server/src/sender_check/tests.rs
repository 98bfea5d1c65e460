//! The checks of whole messages with a name server on loopback.

use super::*;
use crate::dns::testing::{Manner, Server, txt};
use crate::signing::{BodyHash, NewKey, PrivateKey, SigningKeys};
use ::config::{ArcSealing, Dkim, DkimKey};
use filter::auth_results::field;
use filter::dkim::canonical::Canonicalization;
use filter::dkim::key_record::{record_name, record_text};
use filter::dkim::verification::BodyHashes;
use filter::dns_question::{DnsAnswer, DnsAnswers, DnsRecord};
use mail::DomainName;
use std::sync::Arc;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Keys of a domain, and their records.
fn keys(domain: &str, wanted: &[(&str, NewKey)]) -> (Arc<SigningKeys>, Vec<(String, String)>) {
    let place = tempfile::tempdir().unwrap();
    let (mut settings, mut records) = (Dkim { keys: Vec::new() }, Vec::new());
    for (selector, kind) in wanted {
        let (key, file) = (PrivateKey::generate(*kind).unwrap(), place.path().join(selector));
        std::fs::write(&file, key.to_pem().unwrap()).unwrap();
        records.push((record_name(selector, domain), record_text(key.algorithm(), &key.public_text().unwrap())));
        let domain = DomainName::new(domain).unwrap();
        settings.keys.push(DkimKey { domain, selector: (*selector).to_owned(), file, sign: true });
    }
    (Arc::new(SigningKeys::load(&settings, &ArcSealing::default()).unwrap()), records)
}

async fn results(resolver: &Resolver, ip: &str, sender: &str, content: &[u8]) -> SenderResults {
    let (helo, receiver) = ("client.test".to_owned(), "mx.test".to_owned());
    let (ip, iprev) = (Some(ip.parse().unwrap()), Some(IprevCode::Pass));
    let sender = CheckedSender { ip, iprev, helo, sender: sender.to_owned(), receiver, now: 1_000 };
    check_sender(resolver, &sender, SenderChecks::ALL, content).await
}

fn codes(found: &SenderResults) -> String {
    let spf = found.spf.as_ref().map_or("", |spf| spf.code.name());
    let dkim: Vec<&str> = found.dkim.iter().flatten().map(|one| one.code.name()).collect();
    format!("{spf} [{}] {}", dkim.join(" "), dmarc(found).code)
}

fn dmarc(found: &SenderResults) -> &DmarcResult {
    found.dmarc.as_ref().unwrap()
}

#[tokio::test]
async fn results_of_a_message_signed_by_ourselves() {
    let (keys, records) = keys("example.org", &[("rsa", NewKey::Rsa2048), ("ed", NewKey::Ed25519)]);
    let mut zone: Vec<_> = records.iter().map(|(name, text)| txt(name, text)).collect();
    zone.push(txt("_dmarc.example.org", "v=DMARC1; p=reject"));
    zone.push(txt("example.org", "v=spf1 ip4:192.0.2.1 -all"));
    let server = Server::start(zone).await;
    let resolver = server.resolver(TIMEOUT);
    let content = b"From: a@news.example.org\r\nTo: b@d.test\r\nSubject: x\r\n\r\nbody \r\n\r\n".to_vec();
    let fields = keys.sign(&content, 900).unwrap();
    let signed = [&fields[..], &content].concat();
    let found = results(&resolver, "192.0.2.1", "a@example.org", &signed).await;
    assert_eq!(codes(&found), "pass [pass pass] pass", "{found:?}");
    let text = field("mx.test", &found.methods());
    for part in [
        "iprev=pass\r\n\t policy.iprev=192.0.2.1",
        "spf=pass",
        "smtp.mailfrom=example.org",
        "header.d=example.org",
        "header.s=ed",
        "dmarc=pass",
        "header.from=news.example.org",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Changes are seen; then SPF of the same domain decides, or nothing does.
    let changed = [&signed[..], b"more\r\n"].concat();
    assert_eq!(codes(&results(&resolver, "192.0.2.1", "a@example.org", &changed).await), "pass [fail fail] pass");
    let found = results(&resolver, "192.0.2.9", "a@example.org", &changed).await;
    assert_eq!((codes(&found).as_str(), dmarc(&found).policy), ("fail [fail fail] fail", DmarcPolicy::Reject));
    let second = String::from_utf8(signed.clone()).unwrap().replacen("Subject: x", "Subject: y\r\nSubject: x", 1);
    assert_eq!(
        codes(&results(&resolver, "192.0.2.9", "a@example.org", second.as_bytes()).await),
        "fail [fail fail] fail"
    );
    let unsigned = results(&resolver, "192.0.2.9", "a@other.test", &content).await;
    assert_eq!(codes(&unsigned), "none [] fail");
    // Two From fields are no way around the policy.
    let two = [b"From: x@other.test\r\n".as_slice(), &content].concat();
    let found = results(&resolver, "192.0.2.1", "a@example.org", &two).await;
    assert_eq!((dmarc(&found).code, found.author), (DmarcCode::PermError, MessageAuthor::SeveralFields));
}

#[tokio::test]
async fn trouble_of_the_dns_is_no_verdict() {
    let zone = vec![txt("_dmarc.example.org", "v=DMARC1; p=reject"), txt("example.org", "v=spf1 -all")];
    let server = Server::start(zone).await;
    server.answer("_domainkey.example.org.", Manner::Broken);
    let resolver = server.resolver(TIMEOUT);
    let content = b"DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=s; h=from; bh=x; b=eA==\r\nFrom: a@example.org\r\n\r\nx\r\n";
    let found = results(&resolver, "192.0.2.1", "a@example.org", content).await;
    assert_eq!((codes(&found).as_str(), dmarc(&found).policy), ("fail [temperror] temperror", DmarcPolicy::None));
}

/// The public suite for the validation of chains.
// RFC 8617 §5.2 (test)
#[test]
fn the_suite_of_arc() {
    let suite: serde_json::Value = serde_json::from_str(include_str!("suites/arc.json")).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for group in suite["groups"].as_array().unwrap() {
        for (name, test) in group["tests"].as_object().unwrap() {
            let content = test[1].as_str().unwrap().replace('\n', "\r\n");
            let header = HeaderSection::read(content.as_bytes(), LineEnd::Crlf);
            let body = content.as_bytes().get(header.body_offset()..).unwrap_or_default();
            let hashes = BodyHashes {
                simple: BodyHash::of(Canonicalization::Simple, body),
                relaxed: BodyHash::of(Canonicalization::Relaxed, body),
            };
            let (chain, mut answers) = (ArcChain::of(&header), DnsAnswers::default());
            let found = loop {
                match chain.verify(&hashes, &answers, &AwsLc) {
                    Ok(found) => break found,
                    Err(question) => {
                        let record = group["records"][&question.name].as_str();
                        let record = record.map(|text| DnsRecord::Text(text.to_owned()));
                        answers.insert(question, DnsAnswer::Records(record.into_iter().collect()));
                    }
                }
            };
            count += 1;
            if test[0] != found.code.name() {
                wrong.push(format!("{name}: {} ({}), not {}", found.code, found.reason, test[0]));
            }
        }
    }
    assert!(count == 171 && wrong.is_empty(), "{} of {count} tests fail:\n{}", wrong.len(), wrong.join("\n"));
}
