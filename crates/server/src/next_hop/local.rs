//! Destinations that are delivered on this machine: mailboxes, programs and files.

use super::smart_hosts::next_host;
use crate::config::{Config, Mailbox};
use route::destination::{Destination, Hosts, NextHost, Protocol, To};

/// Returns what is done here with the mail of a destination; `None` if it goes elsewhere.
pub(crate) fn target(config: &Config, destination: &[u8]) -> Option<To> {
    // Asked for each look-up: most destinations are domains.
    if ![b"local:".as_slice(), b"prog:", b"file:"].iter().any(|begin| destination.starts_with(begin)) {
        return None;
    }
    match Destination::parse(destination).ok()?.to {
        To::Local if mailbox_server(config).is_some() => None,
        to @ (To::Local | To::Program { .. } | To::File { .. }) => Some(to),
        To::Domain(_) | To::Literal(_) | To::Hosts(_) | To::Error { .. } => None,
    }
}

/// Returns the LMTP server that has the mailboxes, if one has.
pub(crate) fn mailbox_server(config: &Config) -> Option<Hosts> {
    let host = match &config.local.mailbox {
        Mailbox::LmtpSocket(path) => NextHost::Unix(path.to_string_lossy().into()),
        Mailbox::LmtpHost(host) => next_host(host),
        _ => return None,
    };
    Some(Hosts { protocol: Protocol::Lmtp, groups: vec![vec![host]] })
}

/// Returns how many deliveries a destination may have at once: files of aliases wait for each other anyway.
pub(crate) const fn connections(config: &Config, to: &To) -> u32 {
    match to {
        To::File { .. } => 1,
        _ => config.local.deliveries_max,
    }
}
