//! Finds the destinations of an address or a domain, and tries a delivery to each without mail.

use super::{Disposition, ExplainedSender, trace_route};
use crate::delivery_test::{TestSetup, test_delivery};
use crate::next_hop::smart_hosts;
use mail::{Address, DomainName, ReversePath};
use route::destination::Destination;
use serde_json::{Map, Value, json};

/// Destinations that are tried; a list may lead to thousands.
const DESTINATIONS_MAX: usize = 5;

/// Tries a delivery to an address, a domain, or a destination as the queue names it. Returns the fields of the answer.
///
/// # Errors
/// It is none of these, or no mail goes there; the text says why.
/// # Cancel safety
/// Yes.
pub(crate) async fn deliver_test(setup: TestSetup<'_>, to: &str) -> Result<Map<String, Value>, String> {
    let (route, destinations) = destinations(setup, to).await?;
    let mut tests = Vec::new();
    for destination in destinations.iter().take(DESTINATIONS_MAX) {
        tests.push(Box::pin(test_delivery(setup, destination)).await);
    }
    let more = destinations.len().saturating_sub(DESTINATIONS_MAX);
    Ok(Map::from_iter([
        ("to".to_owned(), json!(to)),
        ("route".to_owned(), json!(route)),
        ("destinations".to_owned(), json!(tests)),
        ("more".to_owned(), json!(more)),
    ]))
}

/// Returns where mail goes by the maps, in words, and the destinations.
async fn destinations(setup: TestSetup<'_>, to: &str) -> Result<(String, Vec<Vec<u8>>), String> {
    let hostname = DomainName::new(&setup.config.hostname).map_err(|error| format!("hostname: {error}"))?;
    let is_domain = !to.contains('@') && DomainName::new(to).is_ok();
    let address = match (to.contains('@'), is_domain) {
        (true, _) => super::read_address(to, &hostname)?,
        // Mail of a domain goes where that of its postmaster goes, by mailertable and smart hosts.
        (false, true) => super::read_address(&format!("postmaster@{to}"), &hostname)?,
        (false, false) => return named(to),
    };
    if setup.routing.is_plain() {
        // Without maps the smart hosts or the domain decide.
        let destination = smart_hosts::destination(&setup.config.route, &address);
        let words = format!("<{address}> by {}", String::from_utf8_lossy(&destination));
        return Ok((words, vec![destination]));
    }
    let sender = ExplainedSender { address: ReversePath::Address(sender(&hostname)?), client: None, name: None };
    let trace = trace_route(setup.config, setup.routing, &sender, &address).await;
    let deliveries = match trace.end {
        Disposition::Deliver(deliveries, _) | Disposition::Hold(_, deliveries) if !deliveries.is_empty() => deliveries,
        Disposition::Refuse(refusal) => return Err(format!("{to}: mail for it is refused here: {refusal}")),
        Disposition::Defer(why) => return Err(format!("{to}: its route cannot be known now: {why}")),
        _ => return Err(format!("{to}: mail for it goes nowhere; mailrace route says why")),
    };
    let mut found: Vec<Vec<u8>> = Vec::new();
    for delivery in &deliveries {
        let destination = delivery.destination.to_bytes();
        if !found.contains(&destination) {
            found.push(destination);
        }
    }
    let words = deliveries.first().map(|one| format!("<{}> by {}", one.address, one.destination)).unwrap_or_default();
    Ok((words, found))
}

fn sender(hostname: &DomainName) -> Result<Address, String> {
    super::read_address("postmaster", hostname)
}

/// Reads the name of a destination.
fn named(to: &str) -> Result<(String, Vec<Vec<u8>>), String> {
    match Destination::parse(to.as_bytes()) {
        Ok(destination) if destination.is_remote() => Ok((destination.to_string(), vec![destination.to_bytes()])),
        _ => Err(format!("{to:?} is no address, no domain, and no destination as in smtp:[192.0.2.1]:25")),
    }
}
