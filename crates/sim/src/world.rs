//! Hosts, sites and domains, and their relations: docs/sim.md, section 1.
//!
//! Hosts stand in a row and have numbers. `mx_per_domain` neighbours are a site, a site has `domains_per_host` domains
//! for each of its hosts, and all hosts of a site take mail for all its domains. The state that a host keeps from one
//! connection to the next lives here, and so do the counts.

use crate::chance::shuffle;
use crate::character::{Character, Door, Episode, Hostility, Script};
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

/// The domain in which everything lies.
pub const ZONE: &str = "sim.example";
/// The deferred recipients that a host remembers; beyond this number it takes every recipient.
const PUT_OFF_MAX: usize = 100_000;
const SEED_CHARACTERS: u64 = 1;
const SEED_CHANGES: u64 = 2;

/// A simulated internet.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    hosts: Vec<Host>,
    counts: Counts,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Its character over time.
    pub script: Script,
    /// Connections so far.
    pub connections: u32,
    /// Connections that are open.
    pub open: u32,
    /// The most that were.
    pub open_max: u32,
    /// Messages that it acknowledged.
    pub messages: u32,
    /// Recipients of these.
    pub recipients: u64,
    /// First tries of recipients that were put off; by a hash of the address.
    put_off: BTreeMap<u64, Duration>,
    /// The time up to which the allowed rate is used up.
    used_up: Duration,
}

/// The sums of all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// The most that were.
    pub open_max: u64,
    /// Refusals by code.
    pub refused: BTreeMap<u16, u64>,
}

/// The possible result of mail to a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// No host takes mail.
    Never,
    /// A host takes it, or some of it, later.
    Late,
    /// A host takes it at once.
    Live,
}

impl World {
    /// Makes a world.
    ///
    /// # Errors
    /// The plan cannot be carried out, see [`Plan::check`].
    pub fn new(plan: Plan) -> Result<Self, String> {
        plan.check()?;
        let mut characters = characters(&plan);
        shuffle(plan.seed.wrapping_add(SEED_CHARACTERS), &mut characters);
        let mut hosts: Vec<Host> = characters.into_iter().map(Host::new).collect();
        for (at, change) in plan.changes.iter().enumerate() {
            let is_live = |(_, host): &(usize, &mut Host)| host.script.base == Character::Live;
            let mut live: Vec<&mut Host> = hosts.iter_mut().enumerate().filter(is_live).map(|(_, host)| host).collect();
            let count = u32::try_from(live.len()).unwrap_or(u32::MAX);
            shuffle(plan.seed.wrapping_add(SEED_CHANGES + at as u64), &mut live);
            let episode = Episode { from: change.from, to: change.to, character: change.character };
            for host in live.into_iter().take(change.share.of(count) as usize) {
                host.script.episodes.push(episode);
            }
        }
        Ok(Self { plan, hosts, counts: Counts::default() })
    }

    /// Returns the plan that the world was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The hosts; a host's number is its place.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Plan, host and counts, for a connection to it.
    pub(crate) fn parts(&mut self, host: u32) -> Option<(&Plan, &mut Host, &mut Counts)> {
        let Self { plan, hosts, counts } = self;
        Some((plan, hosts.get_mut(host as usize)?, counts))
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, host: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.plan.network).saturating_add(host))
    }

    /// The host of an address.
    #[must_use]
    pub fn host_at(&self, address: Ipv4Addr) -> Option<u32> {
        let host = u32::from(address).checked_sub(u32::from(self.plan.network))?;
        (host < self.plan.hosts).then_some(host)
    }

    /// The name of a host.
    #[must_use]
    pub fn name(host: u32) -> String {
        format!("mx{host}.{ZONE}")
    }

    /// The name of a domain.
    #[must_use]
    pub fn domain(domain: u32) -> String {
        format!("d{domain}.{ZONE}")
    }

    /// Returns the character of a host at this time.
    #[must_use]
    pub fn character(&self, host: u32, now: Duration) -> Option<Character> {
        self.hosts.get(host as usize).map(|host| host.script.at(now))
    }

    /// Times at which a connection attempt to a host begins to meet something else, in their order.
    #[must_use]
    pub fn door_changes(&self) -> Vec<(Duration, u32)> {
        let mut changes = Vec::new();
        for (number, host) in (0..).zip(&self.hosts) {
            let mut times: Vec<Duration> =
                host.script.episodes.iter().flat_map(|episode| [episode.from, episode.to]).collect();
            times.sort_unstable();
            times.dedup();
            let mut door = host.script.base.door();
            for time in times {
                let next = host.script.at(time).door();
                if next != door || time.is_zero() {
                    changes.push((time, number));
                }
                door = next;
            }
        }
        changes.sort_unstable();
        changes
    }

    /// Returns the result of a connection attempt to a host.
    #[must_use]
    pub fn door(&self, host: u32, now: Duration) -> Door {
        self.character(host, now).map_or(Door::Refuses, Character::door)
    }

    /// Number of domains.
    #[must_use]
    pub fn domains(&self) -> u32 {
        self.plan.hosts.saturating_mul(self.plan.domains_per_host)
    }

    /// Number of sites.
    #[must_use]
    pub fn sites(&self) -> u32 {
        self.plan.hosts.div_ceil(self.plan.mx_per_domain)
    }

    /// The site of a host.
    #[must_use]
    pub fn site_of(&self, host: u32) -> u32 {
        host / self.plan.mx_per_domain
    }

    /// The hosts of a site, best one first.
    #[must_use]
    pub fn hosts_of_site(&self, site: u32) -> Range<u32> {
        let first = site.saturating_mul(self.plan.mx_per_domain).min(self.plan.hosts);
        first..first.saturating_add(self.plan.mx_per_domain).min(self.plan.hosts)
    }

    /// The hosts of a domain, best one first; empty if there is no such domain.
    #[must_use]
    pub fn hosts_of_domain(&self, domain: u32) -> Range<u32> {
        if domain < self.domains() {
            self.hosts_of_site(self.site_of(domain / self.plan.domains_per_host))
        } else {
            0..0
        }
    }

    /// Returns the possible result of mail to a site.
    #[must_use]
    pub fn outlook(&self, site: u32) -> Outlook {
        let of = |host: u32| self.hosts.get(host as usize).map_or(Outlook::Never, |host| outlook(&host.script));
        self.hosts_of_site(site).map(of).max().unwrap_or(Outlook::Never)
    }

    /// The same of the recipient of the list with this number.
    #[must_use]
    pub fn outlook_of(&self, recipient: u64) -> Outlook {
        // Smaller than the number of domains, which is a u32.
        let domain = u32::try_from(recipient % u64::from(self.domains().max(1))).unwrap_or(0);
        self.outlook(self.site_of(domain / self.plan.domains_per_host))
    }

    /// How many recipients the list has.
    #[must_use]
    pub fn list_len(&self) -> u64 {
        u64::from(self.domains()) * u64::from(self.plan.recipients)
    }

    /// Appends recipient `number` of the list: every domain once before any twice.
    pub fn recipient(&self, number: u64, out: &mut String) {
        let domains = u64::from(self.domains().max(1));
        // Writing to a String cannot fail.
        let _infallible = write!(out, "u{}@d{}.{ZONE}", number / domains, number % domains);
    }

    /// The number of this recipient in the list.
    #[must_use]
    pub fn number_of(&self, recipient: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(recipient).ok()?;
        let (user, domain) = text.strip_prefix('u')?.split_once("@d")?;
        let domain = domain.strip_suffix(ZONE)?.strip_suffix('.')?;
        let (user, domain) = (user.parse::<u32>().ok()?, domain.parse::<u32>().ok()?);
        let is_in = user < self.plan.recipients && domain < self.domains();
        is_in.then(|| u64::from(user) * u64::from(self.domains()) + u64::from(domain))
    }
}

impl Host {
    fn new(base: Character) -> Self {
        Self {
            script: Script { base, episodes: Vec::new() },
            connections: 0,
            open: 0,
            open_max: 0,
            messages: 0,
            recipients: 0,
            put_off: BTreeMap::new(),
            used_up: Duration::ZERO,
        }
    }

    /// Whether a recipient of this hash is still put off.
    pub(crate) fn puts_off(&mut self, recipient: u64, time: Duration, now: Duration) -> bool {
        if self.put_off.len() >= PUT_OFF_MAX && !self.put_off.contains_key(&recipient) {
            return false;
        }
        let first = *self.put_off.entry(recipient).or_insert(now);
        now < first.saturating_add(time)
    }

    /// Whether one more message keeps the rate of one in `interval`, a second's worth at once. If so it is counted.
    pub(crate) fn bears(&mut self, interval: Duration, now: Duration) -> bool {
        let ahead = Duration::from_secs(1).max(interval);
        let next = self.used_up.max(now).saturating_add(interval);
        let is_borne = next <= now.saturating_add(ahead);
        if is_borne {
            self.used_up = next;
        }
        is_borne
    }
}

impl Counts {
    pub(crate) fn refuse(&mut self, code: u16) {
        *self.refused.entry(code).or_insert(0) += 1;
    }
}

/// One character for each host, in the order of the plan.
fn characters(plan: &Plan) -> Vec<Character> {
    let mut characters = Vec::with_capacity(plan.hosts as usize);
    for (character, share) in &plan.shares {
        characters.extend((0..share.of(plan.hosts)).map(|_| *character));
    }
    let kinds = Hostility::ALL.into_iter().cycle().map(Character::Hostile);
    characters.extend(kinds.take(plan.hostile.of(plan.hosts) as usize));
    characters.resize(plan.hosts as usize, Character::Live);
    characters
}

fn outlook(script: &Script) -> Outlook {
    match script.base {
        Character::Live | Character::Plain if script.episodes.is_empty() => Outlook::Live,
        Character::Live
        | Character::Plain
        | Character::Slow
        | Character::Greylist
        | Character::Throttle
        | Character::Reject
        | Character::BrokenTls
        | Character::Hostile(Hostility::TlsCut) => Outlook::Late,
        _ => Outlook::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Change, Share};

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn shares_are_exact_and_the_seed_decides_who() {
        let plan = |seed| Plan {
            shares: vec![(Character::Dead, Share::percent(2)), (Character::Hung, Share::percent(3))],
            hostile: Share::percent(1),
            seed,
            ..Plan::new(1000)
        };
        let world = World::new(plan(1)).unwrap();
        let count = |of: Character| world.hosts().iter().filter(|host| host.script.base == of).count();
        assert_eq!([Character::Dead, Character::Hung, Character::Live].map(count), [20, 30, 940]);
        assert_eq!(Hostility::ALL.map(|kind| count(Character::Hostile(kind))), [2, 2, 1, 1, 1, 1, 1, 1]);
        let scripts = |world: &World| world.hosts().iter().map(|host| host.script.clone()).collect::<Vec<_>>();
        assert_eq!(scripts(&world), scripts(&World::new(plan(1)).unwrap()));
        assert_ne!(scripts(&world), scripts(&World::new(plan(2)).unwrap()));
    }

    #[test]
    fn addresses_and_recipients_read_back() {
        let world = World::new(Plan { domains_per_host: 3, mx_per_domain: 4, ..Plan::new(70_000) }).unwrap();
        for host in [0, 1, 255, 256, 69_999] {
            assert_eq!(world.host_at(world.address(host)), Some(host));
        }
        assert_eq!(world.address(69_999), Ipv4Addr::new(127, 17, 17, 111));
        assert_eq!(world.host_at(Ipv4Addr::new(127, 17, 17, 112)), None);
        assert_eq!(world.host_at(Ipv4Addr::LOCALHOST), None);
        for number in [0, 1, 209_999, 210_000, 419_999] {
            let mut text = String::new();
            world.recipient(number, &mut text);
            assert_eq!(world.number_of(text.as_bytes()), Some(number), "{text}");
        }
        for foreign in
            ["u2@d0.sim.example", "u0@d210000.sim.example", "ok@d0.sim.example", "u0@d0sim.example", "u0@d0.example"]
        {
            assert_eq!(world.number_of(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn every_host_is_in_one_site_and_takes_mail_for_its_domains() {
        for (hosts, each, mx) in [(1, 1, 1), (10, 1, 1), (10, 3, 4), (7, 2, 16)] {
            let world = World::new(Plan { domains_per_host: each, mx_per_domain: mx, ..Plan::new(hosts) }).unwrap();
            let all: Vec<u32> = (0..world.sites()).flat_map(|site| world.hosts_of_site(site)).collect();
            assert!(all.into_iter().eq(0..hosts));
            for host in 0..hosts {
                assert!(world.hosts_of_site(world.site_of(host)).contains(&host));
                let domains = (0..world.domains()).filter(|domain| world.hosts_of_domain(*domain).contains(&host));
                assert_eq!(domains.count(), world.hosts_of_site(world.site_of(host)).len() * each as usize);
            }
            assert!(world.hosts_of_domain(world.domains()).is_empty());
        }
    }

    #[test]
    fn a_site_is_as_good_as_its_best_host() {
        let plan = Plan { shares: vec![(Character::Dead, Share::percent(50))], mx_per_domain: 2, ..Plan::new(100) };
        let world = World::new(plan).unwrap();
        for site in 0..world.sites() {
            let is_live = world.hosts_of_site(site).any(|host| world.door(host, second(0)) == Door::Open);
            assert_eq!(world.outlook(site), if is_live { Outlook::Live } else { Outlook::Never });
        }
    }

    #[test]
    fn doors_change_when_the_script_says() {
        let change =
            |from, to, character| Change { from: second(from), to: second(to), character, share: Share::percent(100) };
        let changes =
            vec![change(10, 20, Character::Dead), change(20, 30, Character::Drop), change(40, 50, Character::Busy)];
        let world = World::new(Plan { changes, ..Plan::new(1) }).unwrap();
        assert_eq!(world.door_changes(), [(second(10), 0), (second(20), 0), (second(30), 0)]);
        let doors = [0, 10, 20, 30, 45].map(|now| world.door(0, second(now)));
        assert_eq!(doors, [Door::Open, Door::Refuses, Door::Drops, Door::Open, Door::Open]);
        assert_eq!(world.outlook(0), Outlook::Late);
    }

    #[test]
    fn a_rate_is_kept_over_every_window() {
        let mut host = Host::new(Character::Throttle);
        let mut taken = Vec::new();
        for milli in (0..20_000).step_by(7) {
            let now = Duration::from_millis(milli);
            if host.bears(Duration::from_millis(250), now) {
                taken.push(milli);
            }
        }
        assert!(taken.len() >= 4 + 19 * 4, "{}", taken.len());
        for (at, first) in taken.iter().enumerate() {
            for (more, last) in taken.iter().skip(at).enumerate() {
                assert!(more as u64 <= 4 + (last - first) / 250, "{first} {last}");
            }
        }
    }

    #[test]
    fn a_recipient_is_put_off_from_its_first_try_on() {
        let mut host = Host::new(Character::Greylist);
        let at: Vec<bool> =
            [5, 10, 64, 65, 66].into_iter().map(|now| host.puts_off(7, second(60), second(now))).collect();
        assert_eq!(at, [true, true, true, false, false]);
    }
}
