//! `-bv`: where mail for an address would go, in sendmail's words.

use super::arguments::{Errors, SendmailArguments};
use super::exit;
use super::site::Site;
use mail::{Address, ReversePath};
use route::destination::{Hosts, Protocol, To};
use route::resolve::Delivery;
use route::tables::mailer;
use route::{Destination, Refusal};
use server::explain::{Disposition, ExplainedSender, Explainer};

/// Prints where each address goes; the exit status.
pub(super) fn run(arguments: &SendmailArguments, site: &Site) -> u8 {
    if arguments.words.is_empty() {
        eprintln!("Recipient names must be specified");
        return exit::USAGE;
    }
    let opened = if arguments.ignores_aliases { without_aliases(site) } else { open_explainer(site) };
    let explainer = match opened {
        Ok(explainer) => explainer,
        Err((status, text)) => {
            eprintln!("{text}");
            return status;
        }
    };
    let mut status = exit::OK;
    for word in &arguments.words {
        match mail::submission::named(word, &site.host) {
            Ok(addresses) => {
                for address in addresses {
                    match verify(&address, site, &explainer) {
                        Ok(lines) => lines.iter().for_each(|line| super::say(format_args!("{line}\n"))),
                        Err((refusal, line)) => {
                            super::say(format_args!("{}... {line}\n", as_given(&address, site)));
                            status = refusal;
                        }
                    }
                }
            }
            Err(error) => {
                if arguments.errors != Errors::Quiet {
                    super::say(format_args!("{word}... {error}\n"));
                }
                status = exit::USAGE;
            }
        }
    }
    status
}

/// Opens the maps and rules that the server has.
///
/// # Errors
/// They cannot be read.
pub(super) fn open_explainer(site: &Site) -> Result<Explainer, (u8, String)> {
    Explainer::open(&site.loaded).map_err(|faults| (exit::CONFIG, faults.join("\n")))
}

/// The same without aliases and without what users forward (`-n`).
fn without_aliases(site: &Site) -> Result<Explainer, (u8, String)> {
    let mut loaded = site.loaded.clone();
    let config = &mut loaded.config;
    if !config.maps.aliases.is_empty() {
        // Aliases make this host one with users, and it stays that.
        config.maps.aliases.clear();
        config.local.domains.push(site.host.clone());
    }
    config.local.forward = false;
    Explainer::open(&loaded).map_err(|faults| (exit::CONFIG, faults.join("\n")))
}

/// Returns where an address goes, a line for each member of an alias, or the exit status and the text of its refusal.
///
/// # Errors
/// It would be refused, or it cannot be said now.
pub(super) fn verify(address: &Address, site: &Site, explainer: &Explainer) -> Result<Vec<String>, (u8, String)> {
    let sender = site.own_address().map_or(ReversePath::Null, ReversePath::Address);
    match explainer.route(&ExplainedSender { address: sender, client: None, name: None }, address).end {
        Disposition::Deliver(deliveries, failed) => {
            if let ([], [only]) = (deliveries.as_slice(), failed.as_slice()) {
                return Err(refused(&only.refusal));
            }
            let lines =
                deliveries.iter().map(|one| format!("{}... deliverable: {}", member(one, site), place(one, explainer)));
            let failed =
                failed.iter().map(|one| format!("{}... {}", as_given(&one.address, site), refused(&one.refusal).1));
            Ok(lines.chain(failed).collect())
        }
        Disposition::Hold(reason, deliveries) => {
            let held = |one: &Delivery| {
                format!("{}... deliverable: {}, held: {reason}", member(one, site), place(one, explainer))
            };
            Ok(deliveries.iter().map(held).collect())
        }
        Disposition::Discard => {
            Ok(vec![format!("{}... deliverable: mailer discard, host , user ", as_given(address, site))])
        }
        Disposition::Refuse(refusal) => Err(refused(&refusal)),
        Disposition::Defer(why) => Err((exit::LATER, format!("Deferred: {why}"))),
    }
}

fn refused(refusal: &Refusal) -> (u8, String) {
    let reply = format!("{} {} {}", refusal.code, refusal.status, refusal.text);
    (exit::of_reply(&reply), super::deliver::words_of(&reply).to_owned())
}

/// `mailer esmtp, host x.test, user ann@x.test`, as sendmail has it.
fn place(delivery: &Delivery, explainer: &Explainer) -> String {
    let (address, user) = (&delivery.address, delivery.address.local_part().as_str());
    match &delivery.destination.to {
        To::Domain(domain) => {
            let via = delivery.via.as_ref().and_then(|via| Destination::parse(via.as_bytes()).ok());
            match via.map(|via| via.to) {
                Some(To::Hosts(hosts)) => by_hosts(&hosts, address, explainer),
                _ => format!("mailer esmtp, host {domain}, user {address}"),
            }
        }
        To::Literal(host) => format!("mailer esmtp, host {host}, user {address}"),
        To::Hosts(hosts) => by_hosts(hosts, address, explainer),
        To::Local => format!("mailer local, user {user}"),
        To::Program { command, .. } => format!("mailer prog, user {command}"),
        To::File { path, .. } => format!("mailer *file*, user {path}"),
        To::Error { text, .. } => format!("mailer error: {text}"),
    }
}

/// Names the mailer as sendmail does: that of a smart host is `relay`.
fn by_hosts(hosts: &Hosts, address: &Address, explainer: &Explainer) -> String {
    let mailer = match hosts.protocol {
        Protocol::Lmtp => "lmtp",
        Protocol::Smtp if explainer.are_smart_hosts(hosts) => "relay",
        Protocol::Smtp => "esmtp",
    };
    format!("mailer {mailer}, host {}, user {address}", mailer::host_list(hosts))
}

/// Returns the member of an alias as sendmail shows it: an address, a program or a file.
fn member(delivery: &Delivery, site: &Site) -> String {
    match &delivery.destination.to {
        To::Program { command, .. } => format!("\"|{command}\""),
        To::File { path, .. } => path.to_string(),
        _ => as_given(&delivery.address, site),
    }
}

/// `joe` for a user of this host.
pub(super) fn as_given(address: &Address, site: &Site) -> String {
    match address.domain().name() {
        Some(domain) if domain.ascii() == site.host.ascii() => address.local_part().as_str().to_owned(),
        _ => address.to_string(),
    }
}
