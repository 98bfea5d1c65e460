//! Explains where mail for a recipient goes and why: `mailrace route`, and doubts about maps for `mailrace check`.
//!
//! The same maps, rules and look-ups as in the running server, from a configuration that need not be in force.

pub mod aliases;
mod answer;
mod deliver_test;

pub use answer::route_json;
pub(crate) use deliver_test::deliver_test;

use crate::config::{Config, EffectiveRule, Loaded};
use crate::delivery_test::TestSetup;
use crate::dns::{LocalIdentity, Resolver, overrides};
use crate::next_hop::smart_hosts;
use crate::routing::{Admission, Routing, load};
use crate::tls::Connector;
use mail::{Address, DomainName, ForwardPath, ReversePath};
use route::access::{Client, ClientName, Ruling};
use route::destination::{Hosts, To};
use route::resolve::{Delivery, Failed, Outcome, Request};
use route::{Lint, Refusal, Step};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The client and the sender of a message.
#[derive(Clone, Debug)]
pub struct ExplainedSender {
    /// The sender in the envelope.
    pub address: ReversePath,
    /// Where the client is; `None`: a process of this machine.
    pub client: Option<IpAddr>,
    /// The name of that address, as the DNS would confirm it. `None`: it has none, or names are not looked up.
    pub name: Option<Box<str>>,
}

/// The route of one recipient.
#[derive(Clone, Debug)]
pub struct RouteTrace {
    /// Each decision, in order.
    pub steps: Vec<Step>,
    /// The result for the recipient.
    pub end: Disposition,
}

/// The result for a recipient.
#[derive(Clone, Debug)]
pub enum Disposition {
    /// Mail goes to these; some members of a list may be refused.
    Deliver(Vec<Delivery>, Vec<Failed>),
    /// Mail is accepted and goes nowhere.
    Discard,
    /// Mail is accepted and held, for this reason, with where it would go.
    Hold(String, Vec<Delivery>),
    /// The client is refused.
    Refuse(Refusal),
    /// It cannot be decided now, for this reason: the client gets 451.
    Defer(Arc<str>),
}

/// The configuration of the hosts to which mail goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The name that is looked up: a domain, or the hosts themselves.
    pub name: String,
    /// The `[[dns.override]]` that stands for the DNS, counted from 1.
    pub dns_override: Option<usize>,
    /// The hosts or addresses that it gives.
    pub given: Vec<String>,
    /// The `[[destination]]` that holds, counted from 1. One for MX hosts (`mx:`) is known only with the override.
    pub destination: Option<usize>,
    /// The rule in force.
    pub rule: EffectiveRule,
}

/// Maps and rules of a configuration.
#[derive(Debug)]
pub struct Explainer {
    config: Config,
    routing: Routing,
    notes: Vec<String>,
    /// Files of users and lists that were read and do not count, with the reason.
    refused_files: Arc<Mutex<Vec<String>>>,
    runtime: tokio::runtime::Runtime,
}

impl Explainer {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// Maps that cannot be read, each with file and line.
    pub fn open(loaded: &Loaded) -> Result<Self, Vec<String>> {
        let load::Loaded { routing, notes, .. } = load::load_always(&loaded.config)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| vec![format!("cannot start a thread: {error}")])?;
        let refused_files = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&refused_files);
        routing.lookups().begin(None, move |text| {
            list.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
        });
        Ok(Self { config: loaded.config.clone(), routing, notes, refused_files, runtime })
    }

    /// Returns wrong lines of files.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the files of users and lists that do not count, each with the reason, which were read since the last
    /// call.
    #[must_use]
    pub fn take_refused_files(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused_files.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lists the doubtful entries of the maps. Files that aliases name are read.
    #[must_use]
    pub fn lint(&self) -> Vec<Lint> {
        let Some(Admission { router, access }) = self.routing.admission() else { return Vec::new() };
        let mut lints = access.lint();
        lints.extend(router.lint());
        for (place, key, group) in access.groups().filter(|(_, _, group)| !self.config.has_group(group)) {
            lints.push(Lint::warning(
                place,
                format!("\"{key}\" = \"{group}\": nothing is said of this queue group, so its mail goes as any other"),
                format!("add a [[destination]] with match = [\"group:{group}\"]"),
            ));
        }
        let context = aliases::AliasLintContext::new(&self.config);
        lints.extend(context.lint(&router.maps.aliases));
        lints.extend(context.lint_forwards());
        lints
    }

    /// Returns the route of a recipient. Waits for sources that have to be asked.
    #[must_use]
    pub fn route(&self, sender: &ExplainedSender, recipient: &Address) -> RouteTrace {
        self.runtime.block_on(trace_route(&self.config, &self.routing, sender, recipient))
    }

    /// Tries a delivery to an address or a domain without mail, and returns the fields of the answer. Waits for hosts,
    /// half a minute at most for each step.
    ///
    /// # Errors
    /// It is none, no mail goes there, or the name servers or the CAs of the configuration cannot be used.
    pub fn deliver_test(&self, to: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
        self.runtime.block_on(async {
            let resolver = Resolver::new(&self.config.dns).map_err(|error| error.to_string())?;
            let connector = Connector::new(&self.config.tls).map_err(|error| error.to_string())?;
            let us = LocalIdentity {
                names: vec![self.config.hostname.as_str().into()],
                listeners: self.config.listen.iter().map(|listen| listen.address).collect(),
                addresses: os::addresses::of_this_machine(),
            };
            let (config, routing) = (&self.config, &self.routing);
            let setup = TestSetup { config, routing, resolver: &resolver, us: &us, connector: &connector };
            deliver_test(setup, to).await
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether these are the smart hosts of the configuration.
    #[must_use]
    pub fn are_smart_hosts(&self, hosts: &Hosts) -> bool {
        !self.config.route.smart_host.is_empty() && *hosts == smart_hosts::hosts(&self.config.route)
    }

    /// Finds the configuration of the hosts of a delivery; `None` if it stays on this machine.
    #[must_use]
    pub fn next_hop(&self, delivery: &Delivery) -> Option<NextHop> {
        next_hop(&self.config, delivery)
    }
}

/// Returns the route of a recipient by these maps. Waits for sources that have to be asked.
///
/// # Cancel safety
/// Yes.
pub(crate) async fn trace_route(
    config: &Config,
    routing: &Routing,
    sender: &ExplainedSender,
    recipient: &Address,
) -> RouteTrace {
    let mut sender = sender.clone();
    // The one name that the server knows without the DNS: see `dns::reverse`.
    if sender.client.is_some_and(|ip| ip.to_canonical().is_loopback()) && config.accept.reverse_dns {
        sender.name.get_or_insert_with(|| "localhost".into());
    }
    let Some(admission) = routing.admission() else {
        let refusal = Refusal::new(451, mail::EnhancedCode::of(mail::Outcome::Transient, 3, 5), "there are no maps");
        return RouteTrace { steps: Vec::new(), end: Disposition::Refuse(refusal) };
    };
    let decided = routing.decide(|ask| way(admission, ask, &sender, recipient)).await;
    decided.unwrap_or_else(|why| RouteTrace { steps: Vec::new(), end: Disposition::Defer(why) })
}

/// Reads an address of an operator. A name alone is one at our host name.
///
/// # Errors
/// It is no address.
pub fn read_address(text: &str, hostname: &DomainName) -> Result<Address, String> {
    let text = text.trim_start_matches('<').trim_end_matches('>');
    let whole = if text.contains('@') { text.to_owned() } else { format!("{text}@{hostname}") };
    let read = ForwardPath::parse(format!("<{whole}>").as_bytes()).and_then(|path| path.into_address(hostname));
    read.map_err(|error| error.to_string())
}

/// Finds the configuration of the hosts of a delivery; `None` if it stays on this machine.
#[must_use]
pub fn next_hop(config: &Config, delivery: &Delivery) -> Option<NextHop> {
    let to = &delivery.destination.to;
    if !matches!(to, To::Domain(_) | To::Literal(_) | To::Hosts(_)) {
        return None;
    }
    let name = delivery.via.clone().unwrap_or_else(|| to.to_string());
    let overrides = &config.dns.overrides;
    let domain = DomainName::new(&name).ok();
    let index = domain.as_ref().and_then(|domain| overrides::index_of(overrides, domain.ascii()));
    let (mut mx, mut given) = (Vec::new(), Vec::new());
    if let Some(one) = index.and_then(|index| overrides.get(index)) {
        mx.extend(one.mx.iter().flatten().map(ToString::to_string));
        given = mx.clone();
        given.extend(one.address.iter().map(|ip| format!("[{ip}]")));
    }
    let mut asked = name.clone();
    if let Some(group) = &delivery.destination.group {
        asked.push_str(&format!(" group={group}"));
    }
    let mx: Vec<&str> = mx.iter().map(String::as_str).filter(|host| !host.starts_with('[')).collect();
    let rule = config.rule_for(asked.as_bytes(), &mx);
    let from_1 = |index: usize| index + 1;
    Some(NextHop { name, dns_override: index.map(from_1), given, destination: rule.index.map(from_1), rule })
}

fn way(
    Admission { router, access }: &Admission,
    ask: &mut route::Ask<'_>,
    sender: &ExplainedSender,
    recipient: &Address,
) -> Result<RouteTrace, route::Stop> {
    let client = Client {
        ip: sender.client.map(|ip| ip.to_canonical()),
        name: sender.name.as_deref().map_or(ClientName::NotAsked, ClientName::Verified),
        identity: None,
        certificate: None,
    };
    let classes = &router.classes;
    let (path, address) = (router.canonical_path(ask, &sender.address)?, router.canonical(ask, recipient)?);
    let judged = [
        access.connect(ask, &client)?,
        access.sender(ask, &client, &path, classes)?,
        access.recipient(ask, &client, &path, &address, classes)?,
    ];
    let mut steps = Vec::new();
    let mut hold = None;
    let mut is_discarded = false;
    for ruled in judged {
        steps.extend(ruled.steps);
        match ruled.ruling {
            Ruling::Refuse(refusal) => return Ok(RouteTrace { steps, end: Disposition::Refuse(refusal) }),
            Ruling::Discard => is_discarded = true,
            Ruling::Quarantine(reason) => hold = Some(reason),
            Ruling::Continue | Ruling::Accept | Ruling::Relay => {}
        }
    }
    let request = Request {
        sender: &sender.address,
        recipient,
        client: sender.client,
        is_local_submission: sender.client.is_none(),
    };
    let resolution = router.resolve(ask, &request)?;
    steps.extend(resolution.steps);
    let end = match resolution.outcome {
        Outcome::Refuse(refusal) => Disposition::Refuse(refusal),
        _ if is_discarded => Disposition::Discard,
        Outcome::Discard => Disposition::Discard,
        Outcome::Deliver(deliveries) => match hold {
            Some(reason) => Disposition::Hold(reason, deliveries),
            None => Disposition::Deliver(deliveries, resolution.failed),
        },
    };
    Ok(RouteTrace { steps, end })
}
