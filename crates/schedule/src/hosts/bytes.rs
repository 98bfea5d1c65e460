//! The table of hosts as a file: `docs/hosts.md`, section "The files", has the format.
//!
//! All numbers are little endian. Records stand in the order of their last use, the oldest first. Anything but the
//! exact bytes that were written gives an empty table: the table is an aid, and half of it is not worth a guess.

use super::{Host, HostSettings, Hosts, micros, plain};
use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"mrhosts\0";
const VERSION: u16 = 2;
/// The version before, without the fields about TLS that worked. It is still read.
const VERSION_1: u16 = 1;
const HEAD_BYTES: usize = 16;
const RECORD_BYTES: usize = 80;
const RECORD_BYTES_1: usize = 56;
const CHECKSUM_BYTES: usize = 8;

/// Why bytes are no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostsDamage {
    /// It does not begin as one.
    Foreign,
    /// It is of a version that this program does not know.
    Version(u16),
    /// It has not the length that it says.
    Length {
        /// Octets that there are.
        is: usize,
        /// Octets that there should be.
        should: usize,
    },
    /// Its checksum does not fit.
    Checksum,
    /// A record, counted from 1, says what cannot be.
    Record(usize),
}

impl fmt::Display for HostsDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no table of hosts"),
            Self::Version(version) => write!(f, "its version is {version}, and this program knows {VERSION}"),
            Self::Length { is, should } => write!(f, "it has {is} octets where {should} should be"),
            Self::Checksum => f.write_str("its checksum does not fit"),
            Self::Record(number) => write!(f, "record {number} says what cannot be"),
        }
    }
}

impl Hosts {
    /// The most octets that [`Self::to_bytes`] gives under these settings.
    #[must_use]
    pub const fn bytes_max(settings: &HostSettings) -> usize {
        let max = if settings.max == 0 { 1 } else { settings.max };
        max.saturating_mul(RECORD_BYTES).saturating_add(HEAD_BYTES + CHECKSUM_BYTES)
    }

    /// The table in bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all: Vec<(&SocketAddr, &Host)> = self.known.iter().collect();
        all.sort_unstable_by_key(|(_, host)| host.used);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + all.len() * RECORD_BYTES + CHECKSUM_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&u32::try_from(all.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (address, host) in all {
            write(&mut bytes, *address, host);
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The table that these bytes are, and the damage if they are none: then it is empty. Times that lie further ahead
    /// than the settings allow, as after a clock that was wrong, are cut.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], settings: HostSettings, seed: u64, now: Duration) -> (Self, Option<HostsDamage>) {
        let mut hosts = Self::new(settings, seed);
        match hosts.read(bytes, now) {
            Ok(()) => (hosts, None),
            Err(damage) => (Self::new(hosts.settings, seed), Some(damage)),
        }
    }

    fn read(&mut self, bytes: &[u8], now: Duration) -> Result<(), HostsDamage> {
        let mut reader = Reader(bytes);
        if reader.take().ok_or(HostsDamage::Foreign)? != MAGIC {
            return Err(HostsDamage::Foreign);
        }
        let version = reader.u16();
        let record_bytes = match version {
            Some(VERSION) => RECORD_BYTES,
            Some(VERSION_1) => RECORD_BYTES_1,
            _ => return Err(version.map_or(HostsDamage::Foreign, HostsDamage::Version)),
        };
        let is_version_1 = version == Some(VERSION_1);
        let count = reader.u16().and_then(|_| reader.u32()).and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or(HostsDamage::Foreign)?;
        let should = count.saturating_mul(record_bytes).saturating_add(HEAD_BYTES + CHECKSUM_BYTES);
        let length = HostsDamage::Length { is: bytes.len(), should };
        if bytes.len() != should {
            return Err(length);
        }
        let (summed, sum) = bytes.split_last_chunk().ok_or(length)?;
        if checksum(summed) != u64::from_le_bytes(*sum) {
            return Err(HostsDamage::Checksum);
        }
        // The records beyond the limit are those used longest ago.
        let left_out = count.saturating_sub(self.settings.max.max(1));
        for number in 1..=count {
            let (address, mut host) = record(&mut reader, is_version_1).ok_or(HostsDamage::Record(number))?;
            if number <= left_out {
                continue;
            }
            self.cut(&mut host, now);
            self.uses += 1;
            host.used = self.uses;
            if self.known.insert(address, host).is_some() {
                return Err(HostsDamage::Record(number));
            }
            self.by_use.push(Reverse((host.used, address)));
        }
        Ok(())
    }

    /// Takes back what lies further ahead than it can.
    fn cut(&self, host: &mut Host, now: Duration) {
        let HostSettings { longest, tls_memory, .. } = self.settings;
        // Back-off scatters by a quarter.
        host.retry_at = host.retry_at.min(micros(now.saturating_add(longest).saturating_add(longest / 4)));
        host.tls_broken_until = host.tls_broken_until.min(micros(now.saturating_add(tls_memory)));
        host.seen = host.seen.min(micros(now));
        // A time in the future has not happened, as far as this clock knows.
        host.tls_worked_at = host.tls_worked_at.min(micros(now));
        host.tls_fails_since = host.tls_fails_since.min(micros(now));
        host.tls_failed_at = host.tls_failed_at.min(micros(now));
    }
}

fn write(bytes: &mut Vec<u8>, address: SocketAddr, host: &Host) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes.extend_from_slice(&ip.octets());
    bytes.extend_from_slice(&address.port().to_le_bytes());
    bytes.extend_from_slice(&host.failures.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&host.greeting.to_le_bytes());
    bytes.extend_from_slice(&host.transaction.to_le_bytes());
    bytes.extend_from_slice(&host.retry_at.to_le_bytes());
    bytes.extend_from_slice(&host.tls_broken_until.to_le_bytes());
    bytes.extend_from_slice(&host.seen.to_le_bytes());
    for at in [host.tls_worked_at, host.tls_fails_since, host.tls_failed_at] {
        bytes.extend_from_slice(&at.to_le_bytes());
    }
}

fn record(reader: &mut Reader<'_>, is_version_1: bool) -> Option<(SocketAddr, Host)> {
    let ip = Ipv6Addr::from_octets(*reader.take()?);
    let address = plain(SocketAddr::new(ip.into(), reader.u16()?));
    let mut host = Host { failures: reader.u16()?, ..Host::default() };
    let _reserved = reader.u32()?;
    host.greeting = reader.u32()?;
    host.transaction = reader.u32()?;
    host.retry_at = reader.u64()?;
    host.tls_broken_until = reader.u64()?;
    host.seen = reader.u64()?;
    if !is_version_1 {
        host.tls_worked_at = reader.u64()?;
        host.tls_fails_since = reader.u64()?;
        host.tls_failed_at = reader.u64()?;
    }
    Some((address, host))
}

/// The bytes that have not been read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Finds damage, not malice: words of eight octets, the last one filled with zeroes, each mixed into the sum
/// (splitmix64).
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mixed(sum, *word));
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    mixed(sum, last)
}

const fn mixed(sum: u64, word: [u8; 8]) -> u64 {
    crate::chance::splitmix(sum ^ u64::from_le_bytes(word))
}
