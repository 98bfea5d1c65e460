//! Makes a plan from a seed: configuration, hosts, messages, and the times at which the server dies.

use super::book::Book;
use super::host::{Host, Manners};
use super::random::Random;
use super::sent_mail;
use crate::config::{
    Config, DnsOverride, Host as Name, HostPort, LogPath, Machine as Where, RouteProtocol, RouteTls, load,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Power fails: writes that were not synced may be lost.
    Power,
    /// The process is killed: writes stay.
    Kill,
    /// It is asked to stop.
    Stop,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// One end of the server, and the new beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) at: Duration,
    pub(super) how: End,
    /// Not at once, but with one of the next operations of the disk.
    pub(super) operations: Option<u64>,
    pub(super) down: Duration,
}

/// A run before it begins.
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) hosts: Vec<Host>,
    pub(super) deaths: Vec<Death>,
    /// The operator's interventions.
    pub(super) commands: Vec<Duration>,
    /// Messages come until then.
    pub(super) traffic: Duration,
    /// Nothing can last longer.
    pub(super) most: Duration,
    pub(super) is_one_destination: bool,
    /// Jobs in memory, if not as many as usual.
    pub(super) ready_max: Option<usize>,
    /// How long the disk takes for each write, if that is not left to chance.
    pub(super) flush: Option<Duration>,
}

/// Limits of the hosts of the first site, where there are sites. Without the rule some seeds of a usual test exceed
/// them.
const RULES: &str = "[[destination]]\nmatch = [\".site0.test\"]\nconnections = 2\nmessages_per_second = 0.5\n";

/// Returns the configuration that all runs begin with; `rules` is TOML.
pub(super) fn config(rules: &str) -> Config {
    let mut config = load(rules, None, &[], &Where::new("mx.test", None)).unwrap().config;
    config.accept.reverse_dns = false;
    config.dns.servers = vec!["127.0.0.1:9".parse().unwrap()];
    config.relay.from = vec!["192.0.2.0/24".parse().unwrap()];
    let is_loud = std::env::var_os("SIM_LOG").is_some();
    config.log.path = if is_loud { LogPath::Stdout } else { LogPath::File("/dev/null".into()) };
    config.spool.path = "/spool".into();
    config.spool.segment_bytes = 1 << 20;
    config.spool.size_max = 32 << 20;
    config.spool.free_min = 0;
    config.route.tls = RouteTls::None;
    config.route.port = 25;
    config
}

impl Plan {
    /// Returns the plan of a seed. The messages go into the book. `by_sites`: mail goes to domains, of which three
    /// each have the same two mail hosts, one better than the other.
    pub(super) fn new(seed: u64, by_sites: bool, book: &dyn Fn(usize) -> Arc<Book>) -> (Self, Arc<Book>) {
        let mut random = Random::new(seed, 1);
        let mut config = config(if by_sites { RULES } else { "" });
        let delivery = &mut config.delivery;
        delivery.recipients_per_transaction = random.pick(&[1, 2, 100, 100]);
        delivery.messages_per_connection = random.pick(&[1, 2, 5, 1_000]);
        delivery.connections_per_destination = random.pick(&[1, 3, 20]);
        delivery.connections_max = random.pick(&[2, 8, 1_000, 1_000]);
        // No kept seed has it: they are played as they were.
        delivery.connections_silent_max = match seed % 7 {
            4 => 3,
            6 => 2_000,
            _ => 0,
        };
        delivery.pipelining = random.chance(80);
        delivery.chunking = random.chance(70);
        delivery.idle_time = random.pick(&[Duration::ZERO, Duration::from_secs(5), MINUTE]);
        delivery.warn_after = random.pick(&[4 * HOUR, 4 * HOUR, Duration::ZERO]);
        delivery.give_up_after = random.pick(&[5 * DAY, DAY]);
        config.spool.cache_bytes = random.pick(&[config.spool.cache_bytes, 1]);
        let give_up = delivery.give_up_after;
        let traffic = random.pick(&[10 * MINUTE, 6 * HOUR, DAY]);
        let trouble = random.pick(&[10 * MINUTE, HOUR, 12 * HOUR, give_up + 12 * HOUR]);
        let kind = if by_sites { 9 } else { random.within(0, 9) };
        let is_one_destination = kind < 4;
        let count = if is_one_destination { random.within(1, 3) } else { random.within(2, 6) };
        let count = usize::try_from(count).unwrap();
        let count = if by_sites { count / 2 * 2 } else { count };
        let book = book(count);
        let mut hosts: Vec<Host> = (0..count).map(|one| Host::by_chance(one, seed, trouble, &book)).collect();
        let domains: Vec<String>;
        if is_one_destination {
            for host in &mut hosts {
                host.manners = Manners { is_lmtp: kind == 0, esmtp: kind == 0 || host.manners.esmtp, ..host.manners };
            }
            let entry = |host: &Host| HostPort { host: Name::Address(IpAddr::V4(host.address)), port: 25 };
            let entries: Vec<HostPort> = hosts.iter().map(entry).collect();
            let is_group = random.chance(50);
            config.route.smart_host = match is_group {
                true => vec![entries],
                false => entries.into_iter().map(|entry| vec![entry]).collect(),
            };
            config.route.protocol = if kind == 0 { RouteProtocol::Lmtp } else { RouteProtocol::Smtp };
            domains = vec!["a.test".to_owned(), "b.test".to_owned()];
        } else {
            for host in hosts.iter_mut().skip(1) {
                if random.chance(20) {
                    host.die();
                } else if random.chance(30) {
                    host.behave();
                }
            }
            // Where the senders are is trouble too, but not for as long as mail waits.
            let home = Host::by_chance(0, seed, give_up / 3, &book);
            hosts[0] = home;
            if random.chance(50) {
                hosts[0].behave();
            }
            domains = if by_sites {
                sites(&mut config, &hosts)
            } else {
                hosts.iter().map(|host| format!("[{}]", host.address)).collect()
            };
        }
        let home = domains[0].clone();
        config.delivery.postmaster = Some(format!("postmaster@{home}").parse().unwrap());
        let messages = random.pick(&[1, 10, 40, 80]);
        for number in 0..messages {
            let sent = sent_mail::message(&mut random, number, &domains, &home, traffic);
            book.facts().sent.push(sent);
        }
        let deaths = deaths(&mut random, &book, traffic, give_up);
        let commands = match random.chance(25) {
            true => (0..random.within(1, 20)).map(|_| random.time(Duration::ZERO, 2 * traffic)).collect(),
            false => Vec::new(),
        };
        let most = traffic + trouble + 3 * give_up + 2 * DAY;
        (
            Self { config, hosts, deaths, commands, traffic, most, is_one_destination, ready_max: None, flush: None },
            book,
        )
    }
}

/// Gives each two hosts three domains; all of these.
fn sites(config: &mut Config, hosts: &[Host]) -> Vec<String> {
    let mut domains = Vec::new();
    for (site, pair) in hosts.chunks(2).enumerate() {
        for domain in 0..3 {
            let name = format!("d{domain}.site{site}.test");
            let mx = pair.iter().map(|host| vec![Name::Address(IpAddr::V4(host.address))]).collect();
            let domain = name.parse().unwrap();
            config.dns.overrides.push(DnsOverride { domain, mx, address: Vec::new() });
            domains.push(name);
        }
    }
    domains
}

pub(super) fn deaths(random: &mut Random, book: &Book, traffic: Duration, give_up: Duration) -> Vec<Death> {
    let mut deaths = Vec::new();
    for _ in 0..random.pick(&[0, 0, 1, 2, 5]) {
        let near = {
            let facts = book.facts();
            let one = usize::try_from(random.next()).unwrap() % facts.sent.len();
            facts.sent[one].at
        };
        let at = match random.within(0, 9) {
            0..5 => near + random.time(Duration::ZERO, Duration::from_secs(2)),
            5..8 => random.time(Duration::ZERO, 2 * traffic),
            _ => random.time(Duration::ZERO, give_up + HOUR),
        };
        let how = random.pick(&[End::Power, End::Power, End::Kill, End::Stop]);
        let operations = (how == End::Power && random.chance(60)).then(|| random.within(0, 12));
        let most = random.pick(&[Duration::ZERO, MINUTE, 10 * MINUTE]);
        let down = Duration::from_millis(1) + random.time(Duration::ZERO, most);
        deaths.push(Death { at, how, operations, down });
    }
    deaths.sort_by_key(|death| death.at);
    deaths
}
