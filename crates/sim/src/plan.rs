//! The numbers that a world is made from, and their limits.

use crate::character::Character;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

/// The most hosts of a world.
pub const HOSTS_MAX: u32 = 200_000;
/// The most domains of a world.
pub const DOMAINS_MAX: u32 = 1_000_000;
/// The most hosts of a domain: their records have to fit into a reply.
pub const MX_MAX: u32 = 16;
/// The most recipients of the list.
pub const LIST_MAX: u64 = 20_000_000;
/// A whole in the unit of [`Share`].
const WHOLE: u32 = 1_000_000;

/// A part of a whole, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// So many hundredths; 100 at most.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self(if percent > 100 { WHOLE } else { percent * (WHOLE / 100) })
    }

    /// This share of a number, rounded to the nearest.
    #[must_use]
    pub fn of(self, number: u32) -> u32 {
        let product = u64::from(self.0) * u64::from(number) + u64::from(WHOLE / 2);
        // Not more than the number itself.
        u32::try_from(product / u64::from(WHOLE)).unwrap_or(number)
    }

    /// Whether a well-mixed number falls into this share.
    pub(crate) fn holds(self, number: u64) -> bool {
        number % u64::from(WHOLE) < u64::from(self.0)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            // Without the sign it might as well be meant as a number of hosts.
            let number = text.strip_suffix('%')?;
            let (whole, tenths) = number.split_once('.').unwrap_or((number, ""));
            let digits = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
            if whole.is_empty() || !digits(whole) || !digits(tenths) || tenths.len() > 4 {
                return None;
            }
            let share = format!("{whole}{tenths:0<4}").parse().ok()?;
            (share <= WHOLE).then_some(Self(share))
        };
        read().ok_or_else(|| format!("{text:?} is no share from 0% to 100%, as in 2% or 0.5%"))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A time in which a share of the live hosts is something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When it begins, since the start.
    pub from: Duration,
    /// When it is over.
    pub to: Duration,
    /// The character of these hosts meanwhile.
    pub character: Character,
    /// How many of the live hosts.
    pub share: Share,
}

/// The numbers that a world is made from. The same plan makes the same world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Hosts, 1 to [`HOSTS_MAX`].
    pub hosts: u32,
    /// Domains for each host, 1 at least; [`DOMAINS_MAX`] in all.
    pub domains_per_host: u32,
    /// Hosts of each domain, 1 to [`MX_MAX`].
    pub mx_per_domain: u32,
    /// All hosts of a domain have one preference.
    pub equal_mx: bool,
    /// Recipients of the list for each domain.
    pub recipients: u32,
    /// The address of host 0.
    pub network: Ipv4Addr,
    /// Shares of the hosts; those that are left are live.
    pub shares: Vec<(Character, Share)>,
    /// Share of the hosts that are hostile, every kind in turn.
    pub hostile: Share,
    /// The changes of live hosts for a time.
    pub changes: Vec<Change>,
    /// From what a client sends to the answer to it.
    pub delay: Duration,
    /// The same at slow hosts.
    pub slow: Duration,
    /// How long a recipient is put off.
    pub greylist: Duration,
    /// Connections at a time that a throttling host bears.
    pub throttle_connections: u32,
    /// Time between messages that a throttling host bears; a second's worth at once, and one at least.
    pub throttle_interval: Duration,
    /// Share of the recipients that a rejecting host does not know.
    pub reject_users: Share,
    /// Decides what chance would.
    pub seed: u64,
}

impl Plan {
    /// So many live hosts with a domain each.
    #[must_use]
    pub fn new(hosts: u32) -> Self {
        Self {
            hosts,
            domains_per_host: 1,
            mx_per_domain: 1,
            equal_mx: false,
            recipients: 2,
            network: Ipv4Addr::new(127, 16, 0, 0),
            shares: Vec::new(),
            hostile: Share::default(),
            changes: Vec::new(),
            delay: Duration::ZERO,
            slow: Duration::from_secs(5),
            greylist: Duration::from_secs(60),
            throttle_connections: 2,
            throttle_interval: Duration::from_secs(1),
            reject_users: Share::percent(50),
            seed: 1,
        }
    }

    /// Looks for values that cannot be.
    ///
    /// # Errors
    /// The text names the option and its limit.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, number: u64, least: u64, most: u64| {
            let fits = least <= number && number <= most;
            fits.then_some(()).ok_or_else(|| format!("{name} {number} is not from {least} to {most}"))
        };
        within("--hosts", self.hosts.into(), 1, HOSTS_MAX.into())?;
        within("--domains-per-host", self.domains_per_host.into(), 1, DOMAINS_MAX.into())?;
        within("--mx-per-domain", self.mx_per_domain.into(), 1, MX_MAX.into())?;
        let domains = u64::from(self.hosts) * u64::from(self.domains_per_host);
        within("--hosts times --domains-per-host", domains, 1, DOMAINS_MAX.into())?;
        within("--recipients for all domains:", domains * u64::from(self.recipients), 0, LIST_MAX)?;
        let last = u32::from(self.network).checked_add(self.hosts).map(Ipv4Addr::from);
        if !self.network.is_loopback() || !last.is_some_and(|last| last.is_loopback()) {
            return Err(format!("--network {} with {} hosts is not within 127.0.0.0/8", self.network, self.hosts));
        }
        let shares = self.shares.iter().map(|(_, share)| *share).chain([self.hostile]);
        let given: u64 = shares.map(|share| u64::from(share.of(self.hosts))).sum();
        if given > self.hosts.into() {
            return Err(format!("the shares are {given} of {} hosts; all together are 100% at most", self.hosts));
        }
        match self.changes.iter().find(|change| change.from >= change.to) {
            Some(change) => Err(format!("--at {:?}..{:?} ends before it begins", change.from, change.to)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_taken() {
        let of = |text: &str, number| text.parse::<Share>().unwrap().of(number);
        assert_eq!([of("2%", 1000), of("0.5%", 1000), of("100%", 7), of("33.3%", 3), of("0%", 9)], [20, 5, 7, 1, 0]);
        for text in ["2%", "0.5%", "33.3333%", "100%", "0%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for text in ["", "%", "5", "0", "101%", "-1%", "1.23456%", "a%", "1.a%", ".5%", "99999999999%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let said = |change: fn(&mut Plan)| {
            let mut plan = Plan::new(100);
            change(&mut plan);
            plan.check().err().unwrap_or_default()
        };
        assert_eq!(said(|_| ()), "");
        assert_eq!(said(|plan| plan.hosts = 0), "--hosts 0 is not from 1 to 200000");
        assert!(said(|plan| plan.domains_per_host = 1_000_000).starts_with("--hosts times --domains-per-host"));
        assert!(said(|plan| plan.recipients = u32::MAX).starts_with("--recipients"));
        assert!(said(|plan| plan.network = Ipv4Addr::new(10, 0, 0, 1)).starts_with("--network 10.0.0.1"));
        assert!(said(|plan| plan.network = Ipv4Addr::new(127, 255, 255, 200)).starts_with("--network"));
        assert!(
            said(
                |plan| plan.shares = vec![(Character::Dead, Share::percent(60)), (Character::Hung, Share::percent(50))]
            )
            .starts_with("the shares are 110 of 100 hosts")
        );
    }
}
