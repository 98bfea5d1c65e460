//! Rules about `[[webhook]]`: addresses, and names that stand there twice.

use super::Rules;
use std::collections::BTreeMap;
use std::net::IpAddr;

impl Rules<'_> {
    pub(super) fn webhooks(&mut self) {
        let mut seen = BTreeMap::new();
        for (index, webhook) in self.config().webhooks.iter().enumerate() {
            if let Some(first) = seen.insert(webhook.name.as_str(), index) {
                let line = self.loaded.places.of("webhook.name", first).map_or(0, |place| place.line);
                self.error(
                    &[("webhook.name", index)],
                    format!("a second webhook with name \"{}\"; the first is in line {line}", webhook.name),
                    "give it another name",
                );
            }
            let host = match webhook.url.split_once("://") {
                Some(("https", _)) => continue,
                Some(("http", rest)) => host_of(rest),
                _ => {
                    self.error(
                        &[("webhook.url", index)],
                        format!("webhook.url: \"{}\" begins with neither https:// nor http://", webhook.url),
                        "write it as in \"https://ops.example.com/mail\"",
                    );
                    continue;
                }
            };
            if host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
                self.error(
                    &[("webhook.url", index)],
                    format!("webhook.url: addresses of mail would go to {host} in clear"),
                    "write https://, or name a receiver on this machine",
                );
            }
        }
    }
}

/// The host of the rest of an address behind its scheme.
fn host_of(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(literal) => literal.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}
