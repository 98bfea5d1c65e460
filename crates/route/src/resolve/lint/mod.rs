//! Checks for doubtful entries in the maps of a router, found before mail meets them.
//!
//! Only maps in memory are looked at. Keys that stand twice are told when a file is read, see [`map`](crate::map). Each
//! doubt names its entry and the text to write instead; there are at most [`LINTS_MAX`] of each map.

mod hosts;
mod names;
mod users;

use super::{Precedence, Router};
use crate::lint::Lint;
use crate::map::{Hit, Table};
use crate::question::{EntryLocation, Source};
use crate::tables::ValueError;
use crate::tables::error_value::reply_code;
use mail::EnhancedCode;

/// How many doubts about one map are told.
pub(super) const LINTS_MAX: usize = 1_000;

impl Router {
    /// All doubts about the maps and the rules, in the order in which they are asked.
    #[must_use]
    pub fn lint(&self) -> Vec<Lint> {
        let mut lints = Vec::new();
        for (name, sources, check) in [
            ("domaintable", &self.maps.domaintable, names::domaintable as Check),
            ("virtusertable", &self.maps.virtusertable, users::virtusertable),
            ("mailertable", &self.maps.mailertable, hosts::mailertable),
            ("smarttable", &self.maps.smarttable, hosts::smarttable),
            ("genericstable", &self.maps.genericstable, names::genericstable),
        ] {
            for table in loaded(sources) {
                let mut doubts = LintMessages { router: self, name, table, lints: Vec::new() };
                check(&mut doubts);
                lints.append(&mut doubts.lints);
            }
        }
        self.lint_smarttable(&mut lints);
        self.lint_rules(&mut lints);
        lints
    }

    /// With sendmail's order an entry for all recipients leaves smarttable nothing.
    fn lint_smarttable(&self, lints: &mut Vec<Lint>) {
        let count: usize = loaded(&self.maps.smarttable).map(Table::len).sum();
        if count == 0 || self.settings.precedence == Precedence::Sender {
            return;
        }
        let all = loaded(&self.maps.mailertable).find_map(|table| Some((table, table.get(".")?)));
        if let Some((table, hit)) = all {
            lints.push(Lint::warning(
                place("mailertable", table, &hit),
                format!("the entry \".\" takes all recipients, so smarttable with its {count} entries is never asked"),
                "set route.precedence = \"sender\" if mail of those senders is to take its own way",
            ));
        }
    }

    fn lint_rules(&self, lints: &mut Vec<Lint>) {
        for (number, rule) in self.rules.iter().enumerate() {
            let action = &rule.action;
            if action.copies.is_empty() && action.is_nothing() {
                lints.push(Lint::warning(
                    rule.place.clone(),
                    format!("{} does nothing, and no later rule is asked for what fits it", rule.name),
                    "say what it is to do: via, copy, hold, queue, source, hello or reject",
                ));
            }
            let earlier = self
                .rules
                .iter()
                .take(number)
                .find(|earlier| earlier.at == rule.at && earlier.fits_all() && !earlier.action.is_copy_alone());
            if let Some(earlier) = earlier
                && action.copies.is_empty()
            {
                lints.push(Lint::warning(
                    rule.place.clone(),
                    format!("{} is never asked: {} before it is for all mail", rule.name, earlier.name),
                    "put the rule for all behind the others",
                ));
            }
        }
    }
}

type Check = fn(&mut LintMessages<'_>);

/// Doubts about one map, as they are found.
struct LintMessages<'a> {
    router: &'a Router,
    name: &'static str,
    table: &'a Table,
    lints: Vec<Lint>,
}

impl<'a> LintMessages<'a> {
    fn error(&mut self, hit: &Hit<'_>, text: impl Into<String>, hint: impl Into<String>) {
        if self.lints.len() < LINTS_MAX {
            self.lints.push(Lint::error(place(self.name, self.table, hit), text, hint));
        }
    }

    fn warning(&mut self, hit: &Hit<'_>, text: impl Into<String>, hint: impl Into<String>) {
        if self.lints.len() < LINTS_MAX {
            self.lints.push(Lint::warning(place(self.name, self.table, hit), text, hint));
        }
    }

    fn fault(&mut self, hit: &Hit<'_>, fault: ValueError) {
        let text = format!("\"{}\": {}", hit.key, fault.text);
        self.error(hit, text, fault.hint);
    }

    fn entries(&self) -> impl Iterator<Item = Hit<'a>> + use<'a> {
        self.table.iter()
    }

    /// Whether a map of the same name has a key.
    fn has(&self, sources: &[Source], key: &str) -> bool {
        loaded(sources).any(|table| table.get(key).is_some())
    }

    /// A value with a percent sign and a number that stands for nothing.
    fn percent(&mut self, hit: &Hit<'_>, most: u32, why: &str) {
        if let Some(number) = crate::tables::substitute::highest(hit.value)
            && number > most
        {
            let text = format!("\"{}\": %{number} in \"{}\" stands for nothing: {why}", hit.key, hit.value);
            self.warning(hit, text, "see docs/routing.md for what the numbers stand for");
        }
    }

    /// The text of an `error:` value; `rest` is the text behind `error:`.
    fn error_text(&mut self, hit: &Hit<'_>, rest: &str, is_virtual: bool) {
        let rest = rest.trim();
        let (first, text) = match rest.split_once(':') {
            Some((code, text)) if code.parse::<EnhancedCode>().is_ok() => (code, text),
            Some((word, text)) if !is_virtual && is_word(word) => (word, text),
            _ if is_virtual => rest.split_once(' ').unwrap_or((rest, "")),
            _ => ("", rest),
        };
        let plain = text.trim().trim_start_matches('"');
        let is_code = reply_code(plain).is_some_and(|(code, _)| (400..600).contains(&code));
        if !is_code {
            let example = match is_virtual {
                true => "error:nouser 550 No such user",
                false => "error:5.1.2:550 No such host",
            };
            let text = format!("\"{}\": \"{}\" has no reply code, so the answer is 553 5.3.0", hit.key, hit.value);
            self.warning(hit, text, format!("write {example}"));
        }
        if !is_virtual && first.is_empty() && plain.split(' ').next().is_some_and(is_keyword) {
            let text = format!("\"{}\": the word in \"{}\" is taken for text", hit.key, hit.value);
            self.warning(hit, text, "in mailertable a colon stands behind it: error:nohost:550 text");
        }
        if is_virtual && rest.split(':').next().is_some_and(is_keyword) && rest.contains(':') && !rest.contains(' ') {
            let text = format!("\"{}\": the colon in \"{}\" becomes part of the text", hit.key, hit.value);
            self.warning(hit, text, "in virtusertable a blank stands behind the word: error:nouser 550 text");
        }
        if !text.contains('"') && text.contains(['!', ',', ';', '@', '<', '(', '[', '/', ':']) {
            let text = format!("\"{}\": the text of \"{}\" has punctuation and no quotes", hit.key, hit.value);
            self.warning(hit, text, "sendmail takes out blanks beside it; write the text with its code in quotes");
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_keyword(text: &str) -> bool {
    ["nouser", "nohost", "unavailable", "tempfail", "usage", "software", "protocol", "config"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(text))
}

fn loaded(sources: &[Source]) -> impl Iterator<Item = &Table> {
    sources.iter().filter_map(|source| match source {
        Source::Loaded(table) => Some(&**table),
        Source::Outside(_) => None,
    })
}

fn place(name: &str, table: &Table, hit: &Hit<'_>) -> EntryLocation {
    EntryLocation { map: name.into(), file: table.file().into(), line: hit.line }
}
