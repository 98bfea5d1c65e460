//! Which internet is simulated, and which of its recipients can be reached. Pure: words and texts.
//!
//! The internet is `mailrace sim` (docs/sim.md); here are the words it is started with, and its map is read: a
//! recipient is *live* if a host of its domain takes mail without a trick. The run does not wait for the others.

use super::ListBenchArguments;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Characters of hosts whose recipients are live.
const LIVE: [&str; 2] = ["live", "plain"];

/// Hosts that answer late.
pub(super) const SLOW: &str = "slow";

/// An internet to be simulated.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    pub(super) hosts: u32,
    /// Domains of each host, and recipients of each domain on the list.
    pub(super) domains_per_host: u32,
    pub(super) recipients: u32,
    /// Options of characters that are not live, with how many of the hosts have them.
    pub(super) bad: Vec<(&'static str, u32)>,
    /// Time between a flight of commands and its replies.
    pub(super) delay_ms: u32,
    /// The same at slow hosts, if there are any.
    pub(super) slow_s: u32,
}

/// Hosts that drop packets, and as many that never greet.
pub(super) fn bad(hosts: u32) -> Vec<(&'static str, u32)> {
    vec![("drop", hosts / 2), ("hung", hosts - hosts / 2)]
}

/// The internet of a large list: 2 % of its hosts are bad.
pub(super) fn large(arguments: &ListBenchArguments) -> World {
    World {
        hosts: arguments.large_hosts,
        domains_per_host: 1,
        recipients: 10,
        bad: bad(arguments.large_hosts / 50),
        delay_ms: arguments.delay,
        slow_s: 0,
    }
}

impl World {
    /// Recipients of the list whose host is live.
    pub(super) fn live(&self) -> usize {
        let bad: u32 = self.bad.iter().map(|(_, hosts)| hosts).sum();
        self.hosts.saturating_sub(bad) as usize * self.domains_per_host as usize * self.recipients as usize
    }

    /// The words of the command, with its files in `dir`.
    pub(super) fn words(&self, dir: &Path) -> Vec<String> {
        let mut words = vec!["sim".to_owned(), "--json".to_owned(), "--json-hosts".to_owned()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("hosts", self.hosts.to_string());
        option("domains-per-host", self.domains_per_host.to_string());
        option("recipients", self.recipients.to_string());
        option("delay", format!("{}ms", self.delay_ms));
        option("port", "25".to_owned());
        option("dns", "127.0.0.1:53".to_owned());
        for (name, hosts) in self.bad.iter().filter(|(_, hosts)| *hosts > 0) {
            // The command takes four digits, and enough for its rounding to give this number again.
            option(name, format!("{:.4}%", 100.0 * f64::from(*hosts) / f64::from(self.hosts.max(1))));
            if *name == SLOW {
                option("slow-time", format!("{}s", self.slow_s));
            }
        }
        for file in ["ledger", "list", "map"] {
            option(file, dir.join(file).display().to_string());
        }
        words
    }
}

/// The recipients of the list, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct People {
    pub(super) all: Vec<String>,
    pub(super) is_live: Vec<bool>,
}

impl People {
    /// Reads list and map.
    ///
    /// # Errors
    /// The line that is not as docs/sim.md says.
    pub(super) fn read(list: &str, map: &str, domains_per_host: u32) -> Result<Self, String> {
        let mut site_of = HashMap::new();
        let mut live_sites = HashSet::new();
        for line in map.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split(' ');
            let host = fields.next().and_then(|host| host.parse::<u32>().ok());
            let (Some(host), Some(site), Some(character)) = (host, fields.nth(2), fields.next()) else {
                return Err(format!("map of the simulated internet: {line:?}"));
            };
            site_of.insert(host, site);
            if LIVE.contains(&character) {
                live_sites.insert(site);
            }
        }
        let mut people = Self::default();
        for line in list.lines() {
            let site = domain(line).and_then(|domain| site_of.get(&(domain / domains_per_host.max(1))));
            let Some(site) = site else { return Err(format!("list of the simulated internet: {line:?}")) };
            people.all.push(line.to_owned());
            people.is_live.push(live_sites.contains(site));
        }
        Ok(people)
    }

    pub(super) fn live(&self) -> usize {
        self.is_live.iter().filter(|live| **live).count()
    }

    /// The live recipients, or the others.
    pub(super) fn those(&self, live: bool) -> Vec<String> {
        let both = self.all.iter().zip(&self.is_live);
        both.filter(|(_, is_live)| **is_live == live).map(|(one, _)| one.clone()).collect()
    }
}

/// The number of the domain of `u3@d17.sim.example`.
fn domain(address: &str) -> Option<u32> {
    let (_, domain) = address.split_once("@d")?;
    domain.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_what_is_there() {
        let bad = vec![("drop", 1), ("hung", 0), (SLOW, 2)];
        let world = World { hosts: 12, domains_per_host: 2, recipients: 3, bad, delay_ms: 20, slow_s: 19 };
        assert_eq!(world.live(), 54);
        let words = world.words(Path::new("/w")).join(" ");
        assert!(words.contains("--hosts 12 --domains-per-host 2 --recipients 3 --delay 20ms --port 25"), "{words}");
        assert!(
            words.contains("--drop 8.3333%")
                && words.contains("--slow 16.6667% --slow-time 19s")
                && !words.contains("--hung"),
            "{words}"
        );
        assert!(words.contains("--ledger /w/ledger --list /w/list --map /w/map"), "{words}");
    }

    #[test]
    fn shares_give_the_number_of_hosts_again() {
        for bad in 0..=500 {
            let hosts = 9_800 + bad;
            let world =
                World { hosts, domains_per_host: 1, recipients: 1, bad: vec![("drop", bad)], delay_ms: 0, slow_s: 0 };
            let words = world.words(Path::new("/w"));
            let share = words.iter().skip_while(|word| *word != "--drop").nth(1);
            assert_eq!(share.map_or(0, |share| share.parse::<sim::Share>().unwrap().of(hosts)), bad);
        }
    }

    #[test]
    fn live_is_who_has_a_live_host() {
        let map = "0 127.16.0.0 mx0.sim.example 0 hung\n1 127.16.0.1 mx1.sim.example 0 live\n\
                   2 127.16.0.2 mx2.sim.example 1 drop\n3 127.16.0.3 mx3.sim.example 1 slow 1s..2s:live\n\
                   4 127.16.0.4 mx4.sim.example 2 plain\n";
        let list = "u0@d0.sim.example\nu0@d3.sim.example\nu0@d4.sim.example\nu0@d7.sim.example\nu1@d9.sim.example\n";
        let people = People::read(list, map, 2).unwrap();
        assert_eq!(people.is_live, [true, true, false, false, true]);
        assert_eq!((people.live(), people.those(false).len()), (3, 2));
        assert_eq!(people.those(false), ["u0@d4.sim.example", "u0@d7.sim.example"]);
        assert!(People::read("u0@d10.sim.example", map, 2).is_err());
        assert!(People::read("u0", map, 2).is_err());
        assert!(People::read(list, "0 127.16.0.0 mx0", 2).is_err());
    }
}
