//! Doubts about mailertable and smarttable.

use super::LintMessages;
use crate::destination::{Hosts, NextHost};
use crate::map::Hit;
use crate::tables::mailer::{MailerValue, split_mailer};
use crate::tables::substitute::substitute;
use mail::Domain;

pub(super) fn mailertable(doubts: &mut LintMessages<'_>) {
    for hit in doubts.entries() {
        key_of_mailertable(doubts, &hit);
        value(doubts, &hit);
        if split_mailer(hit.value).is_none() && !hit.value.is_empty() {
            let text = format!(
                "\"{}\": \"{}\" has no mailer; it is taken for relay:, sendmail ignores it",
                hit.key, hit.value
            );
            doubts.warning(&hit, text, format!("write relay:{}", hit.value));
        }
        let (most, why) = match hit.key {
            "." => (1, "with \".\" there is %1 alone, the domain"),
            key if key.starts_with('.') => (2, "there are %1 and %2"),
            _ => (0, "only keys that begin with a dot have parts"),
        };
        doubts.percent(&hit, most, why);
    }
}

fn key_of_mailertable(doubts: &mut LintMessages<'_>, hit: &Hit<'_>) {
    let key = hit.key;
    if key == "." {
        return;
    }
    if key.contains('@') {
        let text = format!("the key \"{key}\" is an address and never fits");
        doubts.error(hit, text, "keys are domains; addresses stand in virtusertable or in rules");
        return;
    }
    if never_fits(doubts, hit, key) {
        return;
    }
    if let Some(parent) = key.strip_prefix('.') {
        let is_ours = Domain::parse(parent.as_bytes()).is_ok_and(|domain| doubts.router.classes.is_local(&domain));
        if !is_ours && doubts.table.get(parent).is_none() {
            let text = format!("\"{key}\" is for what is below {parent}, and {parent} itself has no entry");
            doubts.warning(hit, text, format!("add an entry {parent} if it is meant for both"));
        }
        return;
    }
    if Domain::parse(key.as_bytes()).is_ok_and(|domain| doubts.router.classes.is_local(&domain)) {
        let text = format!("\"{key}\" is one of our own domains, so the entry is never asked");
        doubts.warning(hit, text, "take the domain out of local-host-names, or the entry out of here");
    }
    if doubts.has(&doubts.router.maps.domaintable, key) {
        let text = format!("\"{key}\" has another name in domaintable, so the entry is never asked");
        doubts.warning(hit, text, "make the entry for the other name");
    }
}

/// Keys that no domain is equal to.
fn never_fits(doubts: &mut LintMessages<'_>, hit: &Hit<'_>, key: &str) -> bool {
    let why = if key.starts_with('*') {
        format!("the key \"{key}\" never fits; a leading dot stands for everything below a domain")
    } else if key.ends_with('.') {
        format!("the key \"{key}\" ends with a dot and never fits")
    } else if key.contains("..") {
        format!("the key \"{key}\" has two dots in a row and never fits")
    } else {
        return false;
    };
    let better = key.trim_start_matches('*').trim_end_matches('.').replace("..", ".");
    doubts.error(hit, why, format!("write {better}"));
    true
}

pub(super) fn smarttable(doubts: &mut LintMessages<'_>) {
    for hit in doubts.entries() {
        if hit.key == "<>" {
            doubts.error(&hit, "the key \"<>\" never fits", "the null sender has the key @");
        } else if hit.key != "@" {
            let domain = hit.key.rsplit('@').next().unwrap_or_default();
            never_fits(doubts, &hit, domain);
        }
        if !doubts.router.is_ours(hit.value) {
            value(doubts, &hit);
        }
        doubts.percent(&hit, 0, "keys of smarttable have no parts");
    }
}

fn value(doubts: &mut LintMessages<'_>, hit: &Hit<'_>) {
    let filled = substitute(hit.value, hit.key, &["x.x", "x", ""]);
    match MailerValue::parse(&filled, doubts.router.settings.port) {
        Err(fault) => doubts.fault(hit, fault),
        Ok(MailerValue::Hosts { hosts, .. }) => of_hosts(doubts, hit, &hosts),
        Ok(MailerValue::Error(_)) => {
            if let Some((_, rest)) = hit.value.split_once(':') {
                doubts.error_text(hit, rest, false);
            }
        }
        Ok(MailerValue::Local(_) | MailerValue::Discard) => {}
    }
}

fn of_hosts(doubts: &mut LintMessages<'_>, hit: &Hit<'_>, hosts: &Hosts) {
    for host in hosts.groups.iter().flatten() {
        let (name, is_default_port) = match host {
            NextHost::Address(ip, port) => {
                (format!("[{}]", mail::AddressLiteral::from(*ip)), *port == doubts.router.settings.port)
            }
            NextHost::Name(name, port) | NextHost::Mx(name, port) => {
                (name.to_string(), *port == doubts.router.settings.port)
            }
            NextHost::Unix(_) => continue,
        };
        let name = name.replace("[[", "[").replace("]]", "]");
        if is_default_port && doubts.router.is_ours(&name) {
            let text = format!("\"{}\": {name} is this server, the mail would come back", hit.key);
            doubts.error(hit, text, "name another host, or local: for users of this machine");
        }
        if let NextHost::Address(ip, _) = host
            && !hit.value.contains(&format!("[{ip}]"))
            && hit.value.contains(&ip.to_string())
            && !hit.value.contains('[')
        {
            let text = format!("\"{}\": {ip} stands without brackets", hit.key);
            doubts.warning(hit, text, format!("write [{ip}]; sendmail looks for a host of that name"));
        }
    }
}
