//! Entries whose effect is not the one that they seem to have: keys that never match, values without effect, texts that
//! sendmail reads otherwise.
//!
//! Each is found from the entry, its tag and the options alone; a doubtful entry is a warning, an entry without effect
//! or with another one than it says is an error.

mod key;
mod value;

use super::Access;
use super::tag::{self, TagInfo};
use super::value::AccessValue;
use crate::lint::{Lint, Severity};
use crate::map::Hit;
use crate::network;
use crate::question::{EntryLocation, Source};
use std::collections::{HashMap, HashSet};

/// The severity, the fault, and the text to write instead.
type LintMessage = (Severity, String, String);

fn warning(text: impl Into<String>, hint: impl Into<String>) -> LintMessage {
    (Severity::Warning, text.into(), hint.into())
}

fn error(text: impl Into<String>, hint: impl Into<String>) -> LintMessage {
    (Severity::Error, text.into(), hint.into())
}

/// An entry as the checks see it.
struct CheckedEntry<'a> {
    /// Its tag, as it is written.
    tag: Option<&'a str>,
    known: Option<&'static TagInfo>,
    /// Behind the tag.
    body: &'a str,
    text: &'a str,
    value: AccessValue,
}

impl<'a> CheckedEntry<'a> {
    fn of(hit: Hit<'a>) -> Self {
        let (tag, body) = tag::split(hit.key);
        Self { tag, known: tag.and_then(tag::of), body, text: hit.value.trim(), value: AccessValue::parse(hit.value) }
    }

    /// Whether keys of this entry are looked up for this tag.
    fn is_for(&self, tag: &str) -> bool {
        self.known.map_or(matches!(tag, "Connect" | "From" | "To"), |known| known.name == tag)
    }

    /// The tag as it should be written.
    fn name(&self) -> &'static str {
        self.known.map_or("", |known| known.name)
    }
}

impl Access {
    /// Returns the faults and doubtful entries of the sources that are in memory.
    #[must_use]
    pub fn lint(&self) -> Vec<Lint> {
        let mut lints = Vec::new();
        let mut keys: HashSet<String> = HashSet::new();
        let mut networks = HashMap::new();
        for source in &self.map {
            let Source::Loaded(table) = source else { continue };
            for hit in table.iter() {
                let line = CheckedEntry::of(hit);
                let place = EntryLocation { map: super::MAP.into(), file: table.file().into(), line: hit.line };
                let mut doubts = Vec::new();
                key::check(&line, &self.options, &mut doubts);
                value::check(&line, &self.options, &mut doubts);
                if !keys.insert(hit.key.to_lowercase()) {
                    doubts.push(error("another source before this one has the same key", "remove one of the two"));
                }
                if let Some(network) = super::network_of(line.body).or_else(|| network::prefix(line.body)) {
                    let first = networks.entry((line.name(), network.trunc())).or_insert_with(|| hit.key.to_owned());
                    if !first.eq_ignore_ascii_case(hit.key) {
                        doubts.push(error(format!("it is the same network as {first}"), "remove one of the two"));
                    }
                }
                lints.extend(doubts.into_iter().map(|doubt| lint(place.clone(), hit, doubt)));
            }
        }
        self.never_reached(&keys, &mut lints);
        lints
    }

    /// Keys without a tag behind keys with each tag that asks for them.
    fn never_reached(&self, keys: &HashSet<String>, lints: &mut Vec<Lint>) {
        for source in &self.map {
            let Source::Loaded(table) = source else { continue };
            for hit in table.iter().filter(|hit| tag::split(hit.key).0.is_none()) {
                let tags: &[&str] = if hit.key.contains('@') { &["from", "to"] } else { &["connect", "from", "to"] };
                let key = hit.key.to_lowercase();
                if tags.iter().all(|tag| keys.contains(&format!("{tag}:{key}"))) {
                    let place = EntryLocation { map: super::MAP.into(), file: table.file().into(), line: hit.line };
                    let doubt = error(
                        "each tag has an entry of its own for this key, so this one is never reached",
                        "remove it",
                    );
                    lints.push(lint(place, hit, doubt));
                }
            }
        }
    }
}

fn lint(place: EntryLocation, hit: Hit<'_>, (severity, text, hint): LintMessage) -> Lint {
    // A reader of the list must not see passwords.
    let is_secret = tag::split(hit.key).0.is_some_and(|tag| tag.eq_ignore_ascii_case("AuthInfo"));
    let value = if is_secret { "…" } else { hit.value };
    Lint { place, severity, text: format!("\"{}\" = \"{value}\": {text}", hit.key), hint }
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::super::{DelayChecks, Options};
    use super::*;

    /// The doubts about one entry, as `severity text; hint`.
    fn doubts(key: &str, value: &str, options: Options) -> Vec<String> {
        let lints = Access::new(vec![table(&[(key, value)])], options).lint();
        lints.iter().map(|lint| format!("{:?} {}; {}", lint.severity, lint.text, lint.hint)).collect()
    }

    #[test]
    fn what_is_written_well_has_no_lint() {
        let options = Options { blocklist_recipients: true, delay_checks: DelayChecks::Friend, ..Options::default() };
        for (key, value) in [
            ("Connect:192.0.2", "RELAY"),
            ("Connect:192.0.2.66", "REJECT"),
            ("Connect:192.0.2.0/24", "OK"),
            ("Connect:IPv6:2001:db8", "REJECT"),
            ("Connect:IPv6:2001:db8::/32", "REJECT"),
            ("Connect:[192.0.2.1]", "OK"),
            ("Connect:suspicious.example", "QUARANTINE:host on watch list"),
            ("From:spammer@", "ERROR:5.7.1:\"550 We don't accept mail, sorry; see http://x/\""),
            ("From:u+*@dom.example", "DISCARD"),
            ("From:dom.example", "SKIP"),
            ("To:fuse@dom.example", "ERROR:5.1.1:\"550 You sent to fuse@; you probably meant fuze@\""),
            ("To:dom.example", "RELAY"),
            ("Spam:abuse@", "FRIEND"),
            ("ClientRate:10.1.2.3", "4"),
            ("ClientConn:", "10"),
            ("GreetPause:127.0.0.1", "0"),
            ("TLS_Rcpt:u@bank.example", "VERIFY:128+CN:mx.bank.example"),
            ("TLS_Clt:", "ENCR:112"),
            ("Try_TLS:broken.example", "NO"),
            ("Srv_Features:10.1", "S l"),
            ("Srv_Features:10.1", "u2 g2 S s A a L c D d P p X x V v G U"),
            ("GreetPause:10.1", "300000"),
            ("AuthInfo:smart.example", "\"U:me\" \"P:secret\" \"M:PLAIN\""),
            ("QGRP:bulk.example", "slow"),
            ("STS:oldsts.example", "NO"),
            ("bcc:dom.example", "archive@dom.example"),
            ("bcc:no.dom.example", "\"\""),
            ("CertIssuer:/C=US/CN=Ca", "SUBJECT"),
            ("CertSubject:/C=US/CN=Host", "RELAY"),
            ("Compat:a@b.example<@>c@d.example", "ERROR:no"),
        ] {
            assert_eq!(doubts(key, value, options), Vec::<String>::new(), "{key} {value}");
        }
    }

    #[test]
    fn each_doubt_says_what_to_write_instead() {
        let plain = Options::default();
        let full = Options { blocklist_recipients: true, delay_checks: DelayChecks::Friend, ..plain };
        for (key, value, options, severity, hint) in [
            ("example.com", "REJECT", full, "Warning", "write Connect:example.com, From:example.com or To:example.com"),
            ("10.1", "OK", full, "Warning", "write Connect:10.1"),
            ("u@example.com", "OK", full, "Warning", "write From:u@example.com or To:u@example.com"),
            ("Form:example.com", "REJECT", full, "Error", "write From:example.com"),
            ("Connect:10.1.", "OK", full, "Error", "write Connect:10.1"),
            ("Connect:2001:db8", "OK", full, "Error", "write Connect:IPv6:2001:db8"),
            ("Connect:10.1.2.3/24", "OK", full, "Warning", "write Connect:10.1.2.0/24"),
            (
                "Connect:10.1.2.0/33",
                "OK",
                full,
                "Error",
                "write an address and the length of its prefix, as in 192.0.2.0/24",
            ),
            ("Connect:IPv6:2001:db8::", "OK", full, "Warning", "write Connect:IPv6:2001:db8 for the network"),
            ("From:10.1.2.3", "REJECT", full, "Error", "write Connect:10.1.2.3"),
            ("From:*.example.com", "REJECT", full, "Error", "write From:example.com"),
            ("From:@example.com", "REJECT", full, "Error", "write From:example.com"),
            ("From:.example.com", "REJECT", full, "Error", "write From:example.com, or set lookup_dot_domain"),
            ("From:example.com.", "REJECT", full, "Error", "write From:example.com"),
            ("From:<>", "REJECT", full, "Error", "remove it"),
            ("From:\"u\"@example.com", "REJECT", full, "Error", "write From:u@example.com"),
            ("Connect:u@example.com", "REJECT", full, "Error", "write From:u@example.com"),
            ("ClientRate:example.com", "5", full, "Error", "write the address of the host"),
            ("Connect:", "REJECT", full, "Error", "write what it is for behind the tag"),
            ("ClientRate:10.1", "many", full, "Error", "write a number; 0 is no limit"),
            ("From:example.com", "RELAY", full, "Warning", "write OK"),
            ("To:u@example.com", "RELAY", full, "Error", "write To:example.com, or set relay_to_full_address"),
            ("To:example.com", "REJECT", plain, "Error", "set blocklist_recipients in [access]"),
            ("From:example.com", "FRIEND", full, "Error", "write Spam:example.com"),
            ("Spam:example.com", "OK", full, "Error", "write FRIEND or HATER"),
            ("Spam:example.com", "FRIEND", plain, "Error", "set delay_checks in [access] to \"friend\""),
            ("Spam:example.com", "HATER", full, "Error", "set delay_checks in [access] to \"hater\""),
            ("From:example.com", "DUNNO", full, "Error", "write SKIP"),
            (
                "From:example.com",
                "REJECTED",
                full,
                "Error",
                "write OK, RELAY, REJECT, DISCARD, SKIP, QUARANTINE:reason or ERROR:5.7.1:\"550 text\"",
            ),
            ("From:example.com", "550 no", full, "Warning", "write ERROR:5.7.1:\"550 no\""),
            ("From:example.com", "ERROR:\"550 no\"", full, "Warning", "write ERROR:5.7.1:\"550 no\""),
            ("From:example.com", "ERROR:5.7.1:550 no, never", full, "Warning", "write ERROR:5.7.1:\"550 no, never\""),
            ("From:example.com", "ERROR:5.7.1:\"never\"", full, "Error", "write ERROR:5.7.1:\"550 never\""),
            ("From:example.com", "ERROR:4.7.1:\"later\"", full, "Error", "write ERROR:4.7.1:\"451 later\""),
            ("From:example.com", "ERROR:5.7.1:\"250 no\"", full, "Error", "write ERROR:5.7.1:\"550 no\""),
            ("From:example.com", "ERROR:4.7.1:\"550 no\"", full, "Warning", "write ERROR:5.7.1:\"550 no\""),
            ("From:example.com", "ERROR:nouser:\"550 no\"", full, "Error", "write ERROR:5.1.1:\"550 no\""),
            (
                "From:example.com",
                "ERROR:5.7.1:\"550 x%20y\"",
                full,
                "Warning",
                "write it without %, for sendmail puts other text there",
            ),
            ("From:example.com", "QUARANTINE", full, "Warning", "write QUARANTINE:reason"),
            ("TLS_Clt:example.com", "VERIFIED", full, "Error", "write VERIFY, VERIFY:bits or ENCR:bits"),
            ("Try_TLS:example.com", "YES", full, "Warning", "remove it, or write NO"),
            ("AuthInfo:example.com", "me secret", full, "Error", "write \"U:user\" \"P:password\""),
            ("bcc:example.com", "nobody", full, "Error", "write an address, or \"\" for nobody"),
            ("CertIssuer:/CN=x", "OK", full, "Error", "write RELAY or SUBJECT"),
            ("Srv_Features:10.1", "S, l", full, "Error", "write letters, as in S l"),
            ("Srv_Features:10.1", "S B l E", full, "Warning", "write S l"),
            ("Srv_Features:", "b", full, "Warning", "remove it"),
            ("Srv_Features:", "z", full, "Warning", "remove it"),
            ("Srv_Features:10.1", "l C", full, "Warning", "write l"),
            ("GreetPause:10.1", "300001", full, "Warning", "write 300000"),
            (
                "TLS_Srv_features:10.1",
                "CipherList=HIGH",
                full,
                "Warning",
                "remove it; tls.version_min and tls.certificate are for all clients",
            ),
        ] {
            let found = doubts(key, value, options);
            let [only] = &found[..] else { panic!("{key} {value}: {found:?}") };
            assert!(only.starts_with(severity) && only.ends_with(&format!("; {hint}")), "{key} {value}: {only}");
        }
    }

    #[test]
    fn what_is_never_reached_is_said() {
        let first = table(&[
            ("From:a.example", "OK"),
            ("To:a.example", "RELAY"),
            ("Connect:a.example", "OK"),
            ("a.example", "REJECT"),
        ]);
        let second =
            table(&[("from:A.example", "REJECT"), ("Connect:10.1.2.0/24", "OK"), ("Connect:10.1.2", "REJECT")]);
        let options = Options { blocklist_recipients: true, ..Options::default() };
        let lints = Access::new(vec![first, second], options).lint();
        let texts: Vec<String> = lints.iter().map(ToString::to_string).collect();
        let has = |part: &str| texts.iter().any(|text| text.contains(part));
        assert!(has("never reached") && has("another source before") && has("the same network as"), "{texts:?}");
        assert!(
            texts.iter().any(|text| text.starts_with("access /etc/mail/access line 4: \"a.example\" = \"REJECT\": ")),
            "{texts:?}"
        );
    }

    #[test]
    fn no_lint_has_a_password() {
        let texts = doubts("AuthInfo:x.example", "me geheim", Options::default()).join("\n");
        assert!(!texts.is_empty() && !texts.contains("geheim"), "{texts}");
    }
}
