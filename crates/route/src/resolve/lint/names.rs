//! Doubts about domaintable and genericstable.

use super::LintMessages;
use crate::tables::{domaintable as table, substitute};
use mail::{Address, Domain, LocalPart};

pub(super) fn domaintable(doubts: &mut LintMessages<'_>) {
    for hit in doubts.entries() {
        if hit.key.contains('@') || hit.key.starts_with(['.', '*']) || hit.key.ends_with('.') {
            let text = format!("the key \"{}\" never fits", hit.key);
            doubts.error(&hit, text, "keys are whole domains, as old.example");
        }
        match table::parse(hit.value) {
            Err(fault) => doubts.fault(&hit, fault),
            Ok(name) if name.ascii() == hit.key => {
                doubts.warning(&hit, format!("\"{}\" is its own other name", hit.key), "take the entry out");
            }
            Ok(name) => {
                if let Some(second) = doubts.table.get(name.ascii()) {
                    let text = format!("\"{}\" becomes {name}, and the entry of that is not asked any more", hit.key);
                    doubts.warning(&hit, text, format!("write {} {}", hit.key, second.value));
                }
            }
        }
    }
}

pub(super) fn genericstable(doubts: &mut LintMessages<'_>) {
    let domains = &doubts.router.settings.generics.domains;
    for hit in doubts.entries() {
        if let Some((_, domain)) = hit.key.rsplit_once('@') {
            let is_for_it = match Domain::parse(domain.as_bytes()) {
                Ok(domain) => domains.has(&domain) || doubts.router.is_ours(&domain.to_string()),
                Err(_) => false,
            };
            if !is_for_it {
                let text =
                    format!("{domain} is not one of the domains of genericstable, so \"{}\" is never asked", hit.key);
                doubts.warning(&hit, text, format!("add {domain} to generics.domains"));
            }
        }
        let filled = substitute::substitute(hit.value, hit.key, &["x", "", ""]);
        let is_right = match filled.contains('@') {
            true => Address::parse(filled.as_bytes()).is_ok(),
            false => !filled.is_empty() && !filled.contains(' ') && LocalPart::new(&filled).is_ok(),
        };
        if !is_right {
            let text = format!("\"{}\": \"{}\" is no address and no user", hit.key, hit.value);
            doubts.error(&hit, text, "write user@domain");
        }
        let user = hit.key.split('@').next().unwrap_or_default();
        match user.is_empty() || user.ends_with("+*") {
            true => doubts.percent(&hit, 1, "there is %1 alone"),
            false => doubts.percent(&hit, 0, "only keys +* and @domain have a part"),
        }
    }
}
