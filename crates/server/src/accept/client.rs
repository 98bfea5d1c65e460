//! Asks the access map for the limits of a client's connections before it has a session: `ClientRate:` and
//! `ClientConn:`.
//!
//! The accept loop asks a map in memory itself; that takes a few hash look-ups, and none where no key has these tags.
//! The connection's own task asks any other map, so the loop never waits.
//!
//! Invariant: a map that cannot be asked refuses for now; it never lifts a limit.

use super::limits::{ClientLimits, OwnMax};
use crate::routing::Routing;
use route::access::Access;
use route::access::tag::Tagged;
use route::{Ask, Stop};
use std::net::IpAddr;
use std::sync::Arc;

/// Reply to a client while the map cannot be asked.
pub(super) const CANNOT_SAY: &str = "421 4.3.0 Temporary system failure, try again later\r\n";

/// Answer to a look-up that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientLimitsLookup {
    /// The limits of the map; the default, if it has none.
    ClientLimits(ClientLimits),
    /// A map outside memory has to be asked: [`ask`].
    Later,
}

/// Looks up the limits of a client without waiting.
pub(super) fn at_once(routing: &Routing, ip: IpAddr) -> ClientLimitsLookup {
    let Some(access) = access(routing) else { return ClientLimitsLookup::ClientLimits(ClientLimits::default()) };
    match Routing::decide_at_once(|ask| said(access, ask, ip)) {
        Some(Ok(own)) => ClientLimitsLookup::ClientLimits(own),
        Some(Err(_)) | None => ClientLimitsLookup::Later,
    }
}

/// Looks up the limits of a client and waits for the map.
///
/// # Errors
/// Why the map cannot be asked.
/// # Cancel safety
/// Yes.
pub(super) async fn ask(routing: &Routing, ip: IpAddr) -> Result<ClientLimits, Arc<str>> {
    let Some(access) = access(routing) else { return Ok(ClientLimits::default()) };
    routing.decide(|ask| said(access, ask, ip)).await
}

fn access(routing: &Routing) -> Option<&Access> {
    let access = &routing.admission()?.access;
    (access.may_have("ClientRate") || access.may_have("ClientConn")).then_some(access)
}

fn said(access: &Access, ask: &mut Ask<'_>, ip: IpAddr) -> Result<ClientLimits, Stop> {
    // Both look-ups are made before either result is used, so that one round asks for both.
    let (connections, rate) = (access.connections(ask, ip), access.rate(ask, ip));
    Ok(ClientLimits { connections: connections?.map(max), rate: rate?.map(max) })
}

fn max(found: Tagged<u32>) -> OwnMax {
    OwnMax { value: found.value, is_default: found.is_default() }
}
