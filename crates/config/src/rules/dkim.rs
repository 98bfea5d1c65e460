//! Rules about `[[dkim.key]]`: selectors, and keys that stand there twice; about `[arc]`: its key and its check.

use super::super::SenderCheck;
use super::Rules;

impl Rules<'_> {
    pub(super) fn dkim(&mut self) {
        let keys = &self.config().dkim.keys;
        for (index, key) in keys.iter().enumerate() {
            let at = [("dkim.key.selector", index)];
            // RFC 6376 §3.1: labels of a domain name
            let is_label = |label: &str| {
                (1..=63).contains(&label.len())
                    && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            };
            if !key.selector.split('.').all(is_label) {
                let text = format!("dkim.key.selector: \"{}\" is no part of a domain name", key.selector);
                self.error(&at, text, "take letters, digits and hyphens, such as \"s2026\"");
            }
            let is_same = |other: &&super::super::DkimKey| {
                other.domain == key.domain && other.selector.eq_ignore_ascii_case(&key.selector)
            };
            if keys.iter().take(index).find(is_same).is_some() {
                let text = format!("dkim.key.selector: a second key \"{}\" of {}", key.selector, key.domain);
                self.error(&at, text, "each key of a domain has a selector of its own");
            }
        }
    }
    pub(super) fn arc(&mut self) {
        let config = self.config();
        if !config.arc.seal {
            return;
        }
        if config.arc.key(&config.dkim.keys).is_none() {
            let named =
                |value: &Option<String>| value.as_deref().map_or_else(|| "any".to_owned(), |text| format!("{text:?}"));
            let (domain, selector) = (named(&config.arc.domain), named(&config.arc.selector));
            self.error(
                &[("arc.selector", 0), ("arc.domain", 0), ("arc.seal", 0)],
                format!("arc.seal: there is no [[dkim.key]] with domain {domain} and selector {selector}"),
                "add the key; sign = false keeps it from signing own mail",
            );
        }
        if !config.auth_results.checks.contains(&SenderCheck::Arc) {
            self.error(
                &[("arc.seal", 0), ("auth_results.checks", 0)],
                "arc.seal: a seal says what the check \"arc\" has found, which is not made".to_owned(),
                "write [auth_results] checks = [\"iprev\", \"spf\", \"dkim\", \"dmarc\", \"arc\"]",
            );
        }
    }
}
