//! A trial of a delivery without mail: from the name to every host of a destination, each up to EHLO under TLS, with
//! the time of each phase. `mailrace deliver-test` prints it.
//!
//! The same hosts, rules and settings as a delivery: configuration, maps and `[[destination]]` say where and how. No
//! login is made, no transaction begun, and nothing is learned from the result: health and pace of the hosts stay. Each
//! host gets one connection, all at once, and each step has a time limit.

mod dialog;

use crate::config::{Config, RouteTls};
use crate::dns::{LocalIdentity, Resolver};
use crate::resolve::{self, Site, SiteHosts};
use crate::routing::Routing;
use crate::tls::Connector;
use futures_util::future::join_all;
use os::clock;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest time for one step with a host; a delivery waits longer (`delivery.command_time`).
const STEP_TIME_MAX: Duration = Duration::from_secs(30);

/// Everything that decides where mail goes and how.
#[derive(Clone, Copy)]
pub(crate) struct TestSetup<'a> {
    pub(crate) config: &'a Config,
    pub(crate) routing: &'a Routing,
    pub(crate) resolver: &'a Resolver,
    pub(crate) us: &'a LocalIdentity,
    pub(crate) connector: &'a Connector,
}

/// Tries a destination, as the queue names it. Returns an object with the fields of `docs/operation.md`.
///
/// # Cancel safety
/// Yes.
pub(crate) async fn test_delivery(setup: TestSetup<'_>, destination: &[u8]) -> Value {
    let TestSetup { config, routing, resolver, us, .. } = setup;
    let began = clock::now();
    let found = resolve::site(config, routing, resolver, destination, us, 0).await;
    let dns_ms = millis(clock::now().saturating_duration_since(began));
    let name = String::from_utf8_lossy(destination);
    let site = match found {
        Ok(site) => site,
        Err(no) => {
            return json!({
                "destination": name, "dns_ms": dns_ms, "error": no.text, "status": no.status.to_string(), "hosts": [],
            });
        }
    };
    let policy = policy_text(&site);
    let (mut local, mut error, mut hosts) = (Value::Null, Value::Null, Vec::new());
    match &site.hosts {
        SiteHosts::Local(to) => local = to.to_string().into(),
        SiteHosts::Refused(no) => error = no.text.clone().into(),
        SiteHosts::Remote(_) => {
            let candidates = site.candidates(0);
            let tests = candidates.iter().map(|one| dialog::test_host(setup, &site.rule, one));
            hosts = join_all(tests).await;
        }
    }
    json!({
        "destination": name, "site": String::from_utf8_lossy(&site.name), "dns_ms": dns_ms, "policy": policy,
        "rule": site.rule.index.map(|index| index + 1), "connections": site.rule.connections, "hosts": hosts,
        "local": local, "error": error,
    })
}

/// Names the policies that decide about TLS.
fn policy_text(site: &Site) -> Value {
    let tls = match site.rule.tls {
        RouteTls::None => "none",
        RouteTls::Opportunistic => "opportunistic",
        RouteTls::Required => "required",
    };
    let of = match site.rule.index {
        Some(index) => format!("tls of [[destination]] {}", index + 1),
        None => "route.tls".to_owned(),
    };
    json!({ "tls": tls, "set_by": of, "dane": "not supported", "mta_sts": "not supported" })
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}
