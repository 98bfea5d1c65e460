//! The pause before the greeting: programs that send spam often do not wait for it, and are recognized by that.

use std::net::IpAddr;
use std::time::Duration;

use super::relay::Rights;
use crate::config::Accept;

/// Returns the pause before the greeting for a client: that of the first `accept.greet_pause_for` whose networks
/// contain it, else `accept.greet_pause`. Loopback and `relay.from` never wait, unless a `greet_pause_for` names
/// them.
#[must_use]
pub fn greet_pause(client: IpAddr, accept: &Accept, rights: &Rights) -> Duration {
    let client = client.to_canonical();
    let named = accept.greet_pause_for.iter().find(|(networks, _)| networks.iter().any(|one| one.contains(&client)));
    match named {
        Some((_, pause)) => *pause,
        None if client.is_loopback() || rights.is_from(client) => Duration::ZERO,
        None => accept.greet_pause,
    }
}
