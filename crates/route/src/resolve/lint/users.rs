//! Doubts about virtusertable.

use super::LintMessages;
use crate::map::Hit;
use crate::tables::mailer::split_mailer;
use crate::tables::substitute::substitute;
use crate::tables::virtusertable::{VirtualUserTarget, parse};
use mail::{Domain, DomainName};
use std::collections::HashSet;

pub(super) fn virtusertable(doubts: &mut LintMessages<'_>) {
    let mut domains = HashSet::new();
    for hit in doubts.entries() {
        let Some((user, domain)) = hit.key.rsplit_once('@') else {
            let text = format!("the key \"{}\" has no domain and never fits", hit.key);
            doubts.error(&hit, text, "write user@domain or @domain; users without a domain stand in aliases");
            continue;
        };
        if domains.insert(domain) {
            of_domain(doubts, &hit, domain);
        }
        value(doubts, &hit);
        let is_fixed = user.contains('+') && !user.contains("+*") && !user.contains("++");
        match is_fixed {
            true => doubts.percent(&hit, 1, "the detail is part of the key, so there is %1 alone"),
            false => doubts.percent(&hit, 3, "there are %1 user, %2 detail, %3 detail with its sign"),
        }
    }
    loops(doubts);
}

/// Checks the domain of keys, once for each domain.
fn of_domain(doubts: &mut LintMessages<'_>, hit: &Hit<'_>, domain: &str) {
    let classes = &doubts.router.classes;
    let Ok(parsed) = Domain::parse(domain.as_bytes()) else {
        let text = format!("the key \"{}\" never fits: \"{domain}\" is no domain", hit.key);
        doubts.error(hit, text, "write user@domain or @domain, without a dot at the end");
        return;
    };
    let (is_local, is_virtual) = (classes.is_local(&parsed), classes.virt.has(&parsed));
    if !is_local && !is_virtual {
        let text = format!("{domain} is not one of our domains, so its entries are never asked");
        doubts.error(hit, text, format!("add {domain} to local-host-names or to the domains of virtusertable"));
    } else if !is_local && !doubts.has(&doubts.router.maps.virtusertable, &format!("@{domain}")) {
        let text = format!(
            "{domain} has no entry @{domain}: mail for other users goes to its MX hosts, perhaps to this server"
        );
        doubts.warning(hit, text, format!("add @{domain} error:nouser 550 No such user"));
    }
}

fn value(doubts: &mut LintMessages<'_>, hit: &Hit<'_>) {
    let filled = substitute(hit.value, hit.key, &["x", "x", "+x"]);
    let target = match parse(&filled) {
        Ok(target) => target,
        Err(fault) => return doubts.fault(hit, fault),
    };
    match target {
        VirtualUserTarget::Error(_) => {
            if let Some((_, rest)) = hit.value.split_once(':') {
                doubts.error_text(hit, rest, true);
            }
        }
        VirtualUserTarget::Domain(domain) => {
            let text = format!(
                "\"{}\": \"{}\" keeps the user and changes the domain; sendmail refuses such mail",
                hit.key, hit.value
            );
            doubts.warning(hit, text, format!("write %1%3@{domain}"));
        }
        VirtualUserTarget::Address(_) | VirtualUserTarget::User { .. } => {
            if let Some((mailer, rest)) = split_mailer(hit.value) {
                let text = format!("\"{}\": \"{mailer}:\" is dropped", hit.key);
                doubts.warning(hit, text, format!("write {rest}; mailers stand in mailertable"));
            }
        }
    }
}

/// Entries that lead back to themselves.
fn loops(doubts: &mut LintMessages<'_>) {
    let mut done: HashSet<String> = HashSet::new();
    for hit in doubts.entries() {
        let mut way: Vec<String> = Vec::new();
        let mut at = Some(hit);
        while let Some(entry) = at {
            let key = entry.key.to_lowercase();
            if way.contains(&key) {
                let text = format!("\"{key}\" leads back to itself: {}", way.join(" → "));
                doubts.error(&entry, text, "let one of them be a user or an address elsewhere");
                break;
            }
            if way.len() > super::super::VIRTUAL_DEPTH_MAX || !done.insert(key.clone()) {
                break;
            }
            way.push(key);
            at = next(doubts, &entry);
        }
    }
}

/// The entry that a plain address in a value leads to.
fn next<'a>(doubts: &LintMessages<'a>, hit: &Hit<'_>) -> Option<Hit<'a>> {
    if hit.value.contains('%') {
        return None;
    }
    let Ok(VirtualUserTarget::Address(address)) = parse(hit.value) else { return None };
    let domain = address.domain().name().map(DomainName::ascii)?.to_owned();
    let whole = format!("{}@{domain}", address.local_part()).to_lowercase();
    // To be its own address says: it is no virtual one.
    if whole == hit.key.to_lowercase() {
        return None;
    }
    doubts.table.get(&whole).or_else(|| doubts.table.get(&format!("@{domain}")))
}
