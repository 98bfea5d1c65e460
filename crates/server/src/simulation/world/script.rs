//! Makes from a seed a world with its scripts, a configuration with rules, lists and single mail, and the times at
//! which the server dies.

use super::super::book::{Answer, Book, Sent};
use super::super::host::Host;
use super::super::plan::{self, Plan};
use super::super::random::Random;
use super::net::outer;
use crate::config::{Config, DnsOverride, Host as Name, RouteTls};
use sim::character::Character;
use sim::plan::{Change, Share};
use sim::world::World;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Where senders are.
const HOME: &str = "home.test";
/// The most hosts of a world that are not live.
const BAD_MAX: u32 = 60;
/// Sites with a rule of their own.
const RULES: usize = 2;

/// Limits of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) connections: u32,
    /// In a thousand seconds.
    pub(super) rate: Option<u32>,
    pub(super) recipients: u32,
    pub(super) messages: u32,
}

/// A run before it begins.
pub(super) struct Script {
    pub(super) plan: Plan,
    pub(super) world: World,
    pub(super) home: Host,
    pub(super) book: Arc<Book>,
    /// Limits of each site.
    pub(super) limits: Vec<Limits>,
    /// When the last host was in trouble for a time only.
    pub(super) trouble: Duration,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 77);
        let give_up = random.pick(&[6 * HOUR, DAY, DAY, 5 * DAY]);
        let traffic = random.pick(&[10 * MINUTE, HOUR, 6 * HOUR]);
        let trouble = random.pick(&[10 * MINUTE, HOUR, 4 * HOUR]);
        let world = World::new(world_of(&mut random, seed, traffic, trouble)).unwrap();
        let ruled = ruled(&mut random, &world);
        let (rules, rule) = rules(&mut random, &world, &ruled);
        let mut config = config(&mut random, &world, &rules, give_up);
        config.delivery.connections_silent_max = if is_new(seed) { 20 } else { 0 };
        let delivery = &config.delivery;
        let usual = Limits {
            connections: delivery.connections_per_destination,
            rate: None,
            recipients: delivery.recipients_per_transaction,
            messages: delivery.messages_per_connection,
        };
        let limits = (0..world.sites()).map(|site| if ruled.contains(&site) { rule } else { usual }).collect();
        let hosts = world.hosts().len();
        let book = Arc::new(Book::new(hosts + 1));
        {
            let mut facts = book.facts();
            facts.group_of = (0..world.hosts().len() as u32).map(|host| world.site_of(host) as usize).collect();
            facts.groups_most = vec![0; world.sites() as usize];
        }
        let mut home = Host::by_chance(hosts, seed, HOUR, &book);
        home.behave();
        let trouble = trouble + traffic;
        for sent in traffic_of(&mut random, &world, &ruled, traffic) {
            book.facts().sent.push(sent);
        }
        let deaths = plan::deaths(&mut random, &book, traffic, give_up);
        let plan = Plan {
            config,
            hosts: Vec::new(),
            deaths,
            commands: Vec::new(),
            traffic,
            most: traffic + trouble + 3 * give_up + 2 * DAY,
            is_one_destination: false,
            ready_max: random.pick(&[Some(16), Some(64), None]),
            flush: None,
        };
        Self { plan, world, home, book, limits, trouble }
    }
}

/// Half of all seeds have features that others lack; those are played as they were when they once showed a fault.
const fn is_new(seed: u64) -> bool {
    seed % 4 < 2
}

fn world_of(random: &mut Random, seed: u64, traffic: Duration, trouble: Duration) -> sim::plan::Plan {
    let mut left = BAD_MAX;
    let mut share = |percent: u32| {
        let percent = percent.min(left);
        left -= percent;
        Share::percent(percent)
    };
    let is_dealt = |one: &Character| !matches!(one, Character::Live | Character::HungMail | Character::Hostile(_));
    let kinds: Vec<Character> = Character::all().filter(is_dealt).collect();
    let silent = |one: Character| if one == Character::HungHello && is_new(seed) { Character::HungMail } else { one };
    let mut shares = Vec::new();
    for _ in 0..8 {
        let character = silent(random.pick(&kinds));
        if !shares.iter().any(|(one, _)| *one == character) {
            shares.push((character, share(random.pick(&[0, 2, 6, 12]))));
        }
    }
    let hostile = share(random.pick(&[0, 7, 14]));
    let changes = (0..random.within(0, 4)).map(|_| {
        let from = random.time(Duration::ZERO, traffic);
        let to = from + random.time(Duration::from_secs(5), trouble);
        let character = silent(random.pick(&kinds));
        Change { from, to, character, share: Share::percent(random.pick(&[5, 20, 50])) }
    });
    let changes = changes.collect();
    sim::plan::Plan {
        domains_per_host: random.pick(&[1, 2, 5]),
        mx_per_domain: random.pick(&[1, 1, 2, 3]),
        equal_mx: random.chance(50),
        shares,
        hostile,
        changes,
        delay: Duration::from_millis(random.pick(&[0, 50, 50, 400])),
        slow: Duration::from_secs(random.pick(&[2, 5, 30, 90])),
        greylist: Duration::from_secs(random.pick(&[60, 300, 900])),
        throttle_connections: random.pick(&[1, 2]),
        throttle_interval: Duration::from_millis(random.pick(&[200, 1_000, 5_000])),
        seed,
        ..sim::plan::Plan::new(random.pick(&[6, 15, 40, 90]))
    }
}

/// Returns whether a host accepts mail promptly all the time.
pub(super) fn is_steady(world: &World, host: u32) -> bool {
    let script = &world.hosts()[host as usize].script;
    matches!(script.base, Character::Live | Character::Plain) && script.episodes.is_empty()
}

/// Returns the same of all hosts of a site.
pub(super) fn is_site_steady(world: &World, site: u32) -> bool {
    world.hosts_of_site(site).all(|host| is_steady(world, host))
}

/// Sites with a rule: live ones, if there are some.
fn ruled(random: &mut Random, world: &World) -> Vec<u32> {
    let mut sites: Vec<u32> = (0..world.sites()).filter(|site| is_site_steady(world, *site)).collect();
    let start = usize::try_from(random.next()).unwrap() % sites.len().max(1);
    sites.rotate_left(start);
    sites.truncate(RULES.min(sites.len() / 2));
    sites
}

/// Returns the rule of these sites, as text and as it is.
fn rules(random: &mut Random, world: &World, ruled: &[u32]) -> (String, Limits) {
    let rule = Limits {
        connections: random.pick(&[1, 2, 3]),
        rate: Some(random.pick(&[200, 500, 1_000])),
        recipients: random.pick(&[1, 4, 20]),
        messages: random.pick(&[1, 3, 50]),
    };
    let hosts = ruled.iter().flat_map(|site| world.hosts_of_site(*site));
    let hosts: Vec<String> = hosts.map(|host| format!("\"mx:{}\"", World::name(host))).collect();
    if hosts.is_empty() {
        return (String::new(), rule);
    }
    let Limits { connections, rate, recipients, messages } = rule;
    let text = format!(
        "[[destination]]\nmatch = [{}]\nconnections = {connections}\nmessages_per_second = {}\n\
         recipients_per_transaction = {recipients}\nmessages_per_connection = {messages}\n",
        hosts.join(", "),
        f64::from(rate.unwrap_or(0)) / 1_000.0
    );
    (text, rule)
}

fn config(random: &mut Random, world: &World, rules: &str, give_up: Duration) -> Config {
    let mut config = plan::config(rules);
    config.route.tls = random.pick(&[RouteTls::None, RouteTls::Opportunistic]);
    for rule in &mut config.destinations {
        rule.tls = config.route.tls;
    }
    let delivery = &mut config.delivery;
    delivery.connections_max = random.pick(&[6, 20, 1_000]);
    delivery.connections_per_destination = random.pick(&[1, 3, 20]);
    delivery.recipients_per_transaction = random.pick(&[1, 10, 100]);
    delivery.messages_per_connection = random.pick(&[1, 5, 1_000]);
    delivery.pipelining = random.chance(80);
    delivery.chunking = random.chance(70);
    delivery.idle_time = random.pick(&[Duration::ZERO, Duration::from_secs(5), MINUTE]);
    delivery.warn_after = random.pick(&[Duration::ZERO, 4 * HOUR]);
    delivery.give_up_after = give_up;
    delivery.postmaster = Some(format!("postmaster@{HOME}").parse().unwrap());
    config.spool.cache_bytes = random.pick(&[config.spool.cache_bytes, 1]);
    // The answers that a name server of this world would give.
    let overrides = &mut config.dns.overrides;
    for host in 0..world.plan().hosts {
        let domain = World::name(host).parse().unwrap();
        overrides.push(DnsOverride { domain, mx: Vec::new(), address: vec![IpAddr::V4(outer(host))] });
    }
    for domain in 0..world.domains() {
        let names = world.hosts_of_domain(domain).map(|host| Name::Name(World::name(host).parse().unwrap()));
        let mx = match world.plan().equal_mx {
            true => vec![names.collect()],
            false => names.map(|name| vec![name]).collect(),
        };
        overrides.push(DnsOverride { domain: World::domain(domain).parse().unwrap(), mx, address: Vec::new() });
    }
    let home = IpAddr::V4(Host::address_of(world.hosts().len()));
    overrides.push(DnsOverride { domain: HOME.parse().unwrap(), mx: Vec::new(), address: vec![home] });
    config
}

/// Lists, a list for one site with single mail behind it, more than a rule lets through at once, and single mail.
fn traffic_of(random: &mut Random, world: &World, ruled: &[u32], traffic: Duration) -> Vec<Sent> {
    let mut all: Vec<Sent> = Vec::new();
    let domains = u64::from(world.domains());
    let mut send = |random: &mut Random, at: Duration, domains: &[u32]| {
        let sent = message(random, all.len(), at, domains);
        all.push(sent);
    };
    let early = traffic / 3;
    for _ in 0..random.within(1, 2) {
        let (first, count) = (random.next(), random.pick(&[30, 100, 300]));
        let to: Vec<u32> = (0..count).map(|nth| ((first % domains + nth) % domains) as u32).collect();
        let at = random.time(Duration::from_secs(1), early);
        send(random, at, &to);
    }
    let live: Vec<u32> = (0..world.sites()).filter(|site| is_site_steady(world, *site)).collect();
    if !live.is_empty() {
        let of_site = domains_of(world, random.pick(&live));
        let count = random.pick(&[100, 300]);
        let to: Vec<u32> = of_site.iter().copied().cycle().take(count).collect();
        let at = random.time(Duration::from_secs(1), early);
        send(random, at, &to);
        for _ in 0..8 {
            let at = at + random.time(Duration::from_millis(100), Duration::from_secs(10));
            let to = random.pick(&of_site);
            send(random, at, &[to]);
        }
    }
    if !ruled.is_empty() {
        let at = random.time(Duration::from_secs(1), early);
        let of_site = domains_of(world, random.pick(ruled));
        for _ in 0..120 {
            let at = at + random.time(Duration::ZERO, Duration::from_secs(5));
            let to: Vec<u32> = (0..random.pick(&[1, 1, 8])).map(|_| random.pick(&of_site)).collect();
            send(random, at, &to);
        }
    }
    for _ in 0..random.pick(&[20, 60]) {
        let at = random.time(Duration::from_secs(1), traffic);
        let to: Vec<u32> = (0..random.pick(&[1, 1, 1, 3])).map(|_| random.within(0, domains - 1) as u32).collect();
        send(random, at, &to);
    }
    all
}

fn domains_of(world: &World, site: u32) -> Vec<u32> {
    (0..world.domains()).filter(|domain| world.hosts_of_domain(*domain) == world.hosts_of_site(site)).collect()
}

/// Returns a message with a recipient at each of these domains.
fn message(random: &mut Random, number: usize, at: Duration, domains: &[u32]) -> Sent {
    let is_list = domains.len() > 20;
    let recipients =
        domains.iter().enumerate().map(|(nth, domain)| (format!("r{number}.{nth}@{}", World::domain(*domain)), None));
    let priority = if random.chance(85) { None } else { Some(random.pick(&[-4, 4])) };
    let precedence = if random.chance(if is_list { 40 } else { 5 }) { "Precedence: bulk\r\n" } else { "" };
    let mut content = format!(
        "X-Token: {number}.\r\nX-Mailrace-Storm: {number}\r\n{precedence}From: somebody\r\nSubject: simulated\r\n\r\n"
    );
    for line in 0..random.pick(&[0, 5, 60, 600]) {
        write!(content, "line {line}\r\n").unwrap();
    }
    Sent {
        sender: format!("s{number}@{HOME}"),
        recipients: recipients.collect(),
        content: content.into_bytes(),
        is_eight_bit: false,
        priority,
        at,
        answer: Answer::Unsent,
    }
}
