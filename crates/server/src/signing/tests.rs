//! Choice of keys, and signatures of whole messages.

use super::*;
use std::path::Path;

/// Keys in files of a directory: domain, selector, kind, signs.
fn keys(place: &Path, wanted: &[(&str, &str, NewKey, bool)]) -> Arc<SigningKeys> {
    let mut settings = Dkim { keys: Vec::new() };
    for (domain, selector, kind, sign) in wanted {
        let file = place.join(format!("{selector}.{domain}.pem"));
        std::fs::write(&file, PrivateKey::generate(*kind).unwrap().to_pem().unwrap()).unwrap();
        let domain = DomainName::new(domain).unwrap();
        settings.keys.push(DkimKey { domain, selector: (*selector).to_owned(), file, sign: *sign });
    }
    Arc::new(SigningKeys::load(&settings, &ArcSealing::default()).unwrap())
}

fn signers(keys: &Arc<SigningKeys>, from: &str) -> Vec<String> {
    let content = format!("From: {from}\r\nSubject: x\r\n\r\nbody\r\n");
    let fields = keys.sign(content.as_bytes(), 1).unwrap_or_default();
    let fields = str::from_utf8(&fields).unwrap().to_owned();
    let tag = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("{name}=")).unwrap();
        rest.split(';').next().unwrap().to_owned()
    };
    fields.split("DKIM-Signature:").skip(1).map(|one| format!("{} {}", tag(one, "\ts"), tag(one, " d"))).collect()
}

#[test]
fn the_keys_of_the_longest_domain_sign() {
    let place = tempfile::tempdir().unwrap();
    let keys = keys(
        place.path(),
        &[
            ("example.org", "rsa", NewKey::Rsa2048, true),
            ("example.org", "ed", NewKey::Ed25519, true),
            ("example.org", "next", NewKey::Ed25519, false),
            ("news.example.org", "n", NewKey::Ed25519, true),
        ],
    );
    let both = ["rsa example.org", "ed example.org"];
    assert_eq!(signers(&keys, "a@example.org"), both);
    assert_eq!(signers(&keys, "a@Mail.Example.ORG"), both);
    assert_eq!(signers(&keys, "a@news.example.org"), ["n news.example.org"]);
    for stranger in ["a@badexample.org", "a@org", "a@example.org.test", "a"] {
        assert_eq!(signers(&keys, stranger), [""; 0], "{stranger}");
    }
}

#[test]
fn every_key_that_cannot_be_read_is_named() {
    let place = tempfile::tempdir().unwrap();
    let key = |name: &str| DkimKey {
        domain: DomainName::new("example.org").unwrap(),
        selector: name.to_owned(),
        file: place.path().join(name),
        sign: true,
    };
    std::fs::write(place.path().join("two"), "no key").unwrap();
    let faults = SigningKeys::load(&Dkim { keys: vec![key("one"), key("two")] }, &ArcSealing::default()).unwrap_err();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2);
    assert!(faults[0].contains("/one: cannot be read") && faults[1].contains("/two:1: no private key"), "{faults:?}");
}
