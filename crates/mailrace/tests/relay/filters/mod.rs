//! Filters of others between a client and its next hop: what they see, what their answers do, and what their failures
//! cost.

mod after_250;
mod content_filter;
mod failures;
mod milter;
mod packaged_milters;
mod pooled;
mod programs;
mod scripted;
mod seals;
mod senders;
mod smtp;
mod smtp_script;

use crate::hop::Hop;
use crate::world::relay;
use std::net::SocketAddr;
use testkit::harness::Setup;

/// A server whose mail passes these filters, as pairs of name and the other settings of a table.
fn filtered(hop: &Hop, filters: &[(&str, String)]) -> Setup {
    let tables: Vec<String> = filters.iter().map(|(name, rest)| format!("{{name = \"{name}\", {rest}}}")).collect();
    let names: Vec<String> = filters.iter().map(|(name, _)| format!("{name:?}")).collect();
    let setup = relay(&[hop]).set("filter", format!("[{}]", tables.join(", ")));
    setup.listen(&format!("filters = [{}]", names.join(", ")))
}

/// Settings of a milter at this address.
fn milter(address: SocketAddr, others: &str) -> String {
    let comma = if others.is_empty() { "" } else { ", " };
    format!("kind = \"milter\", address = \"{address}\"{comma}{others}")
}
