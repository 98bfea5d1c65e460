//! Rules about `[[filter]]`, and about the lists of filters of listeners and local mail.

use super::super::choice::Choice;
use super::super::field::Field;
use super::super::value::Value;
use super::super::{DigestTime, FilterAddress, FilterFailure, FilterKind, FilterStage, MacroValue, MilterMacros};
use super::Rules;
use crate::suggestion::nearest;
use std::collections::BTreeMap;

impl Rules<'_> {
    pub(super) fn filters(&mut self) {
        let mut seen = BTreeMap::new();
        for (index, filter) in self.config().filters.iter().enumerate() {
            if let Some(first) = seen.insert(filter.name.as_str(), index) {
                let line = self.loaded.places.of("filter.name", first).map_or(0, |place| place.line);
                self.error(
                    &[("filter.name", index)],
                    format!("a second filter with name \"{}\"; the first is in line {line}", filter.name),
                    "give it another name",
                );
            }
            if filter.address.parse::<FilterAddress>().is_err() {
                self.error(
                    &[("filter.address", index)],
                    format!("filter.address: \"{}\" is no address of a filter", filter.address),
                    "write \"unix:/run/filter.sock\" or \"127.0.0.1:11332\"",
                );
            }
            if filter.timeout > filter.total_timeout {
                self.warn(
                    &[("filter.timeout", index), ("filter.total_timeout", index)],
                    "filter.timeout is longer than filter.total_timeout, which ends before".to_owned(),
                    "",
                );
            }
            self.milter_macros(index);
            self.policy_stage(index);
        }
        for (index, listen) in self.config().listen.iter().enumerate() {
            self.filter_names("listen.filters", index, &listen.filters);
        }
        self.filter_names("submit.filters", 0, &self.config().submit.filters);
    }

    pub(super) fn quarantine_digest(&mut self) {
        let (quarantine, http) = (&self.config().quarantine, &self.config().http);
        if quarantine.digest.is_empty() {
            return;
        }
        if quarantine.digest.parse::<DigestTime>().is_err() {
            self.error(
                &[("quarantine.digest", 0)],
                format!("quarantine.digest: \"{}\" is no time of the day and no time between lists", quarantine.digest),
                "write \"08:00\" or \"1d\"",
            );
        }
        if http.address.is_empty() {
            self.error(
                &[("quarantine.digest", 0)],
                "quarantine.digest: its links lead to HTTP, which is off".to_owned(),
                "set http.address, as \"127.0.0.1:8025\"",
            );
        }
        if http.public_url.is_empty() {
            self.error(
                &[("quarantine.digest", 0)],
                "quarantine.digest: its links need the address at which recipients reach this server".to_owned(),
                "set http.public_url, as \"https://mail.example.com\"",
            );
        }
    }

    fn milter_macros(&mut self, index: usize) {
        let Some(filter) = self.config().filters.get(index) else { return };
        for text in filter.macros.iter().filter(|text| text.parse::<MilterMacros>().is_err()) {
            self.error(
                &[("filter.macros", index)],
                format!("filter.macros: \"{text}\" is no list of macros of a step"),
                "write \"connect: j {daemon_name}\"; the steps are connect, helo, mail, rcpt, data, eoh and eom",
            );
        }
        for text in filter.macro_values.iter().filter(|text| text.parse::<MacroValue>().is_err()) {
            self.error(
                &[("filter.macro_values", index)],
                format!("filter.macro_values: \"{text}\" is no macro with a value"),
                "write \"{daemon_name}=ORIGINATING\"",
            );
        }
        let has_macros = !filter.macros.is_empty() || !filter.macro_values.is_empty();
        if has_macros && filter.kind != FilterKind::Milter {
            self.warn(
                &[("filter.kind", index)],
                format!("filter \"{}\" has macros, which only a filter of kind \"milter\" gets", filter.name),
                "remove filter.macros and filter.macro_values",
            );
        }
    }

    /// Refuses a policy server where it cannot be asked.
    fn policy_stage(&mut self, index: usize) {
        let Some(filter) = self.config().filters.get(index) else { return };
        let is_policy = filter.kind == FilterKind::Policy;
        let policy = "a policy server answers RCPT, and can be asked before the 250 only";
        if is_policy && filter.when == FilterStage::After250 {
            self.error(
                &[("filter.when", index)],
                format!("filter.when: \"{}\" is not for kind \"policy\": {policy}", word(&filter.when)),
                &format!("write \"{}\"", word(&FilterStage::Before250)),
            );
        }
        if is_policy && filter.on_failure == FilterFailure::Later {
            self.error(
                &[("filter.on_failure", index)],
                format!("filter.on_failure: \"{}\" is not for kind \"policy\": {policy}", word(&filter.on_failure)),
                &format!("write \"{}\"", word(&FilterFailure::Defer)),
            );
        }
    }

    fn filter_names(&mut self, key: &'static str, index: usize, names: &[String]) {
        let filters = &self.config().filters;
        for (at, name) in names.iter().enumerate() {
            if !filters.iter().any(|filter| filter.name == *name) {
                let known: Vec<&str> = filters.iter().map(|filter| filter.name.as_str()).collect();
                let next = match nearest(name, known.iter().copied()) {
                    Some(meant) => format!("did you mean \"{meant}\"?"),
                    None => format!("add a table [[filter]] with name = \"{name}\""),
                };
                self.error(&[(key, index)], format!("{key}: there is no [[filter]] with name \"{name}\""), &next);
            } else if names.iter().take(at).any(|before| before == name) {
                self.error(&[(key, index)], format!("{key}: \"{name}\" stands there twice"), "remove one");
            }
        }
    }
}

/// The word of the file.
fn word<T: Choice + Field>(value: &T) -> String {
    if let Value::Text(text) = value.value() { text } else { String::new() }
}
