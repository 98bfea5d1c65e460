//! Random numbers from the seed, and the hashing of ids.
//!
//! The hash maps of this crate are only looked up in, iteration is sorted, and the hasher has no seed: no result
//! depends on the order in a map. This server assigns the keys, so outsiders cannot make them collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by queue id, destination, site or connection.
pub(crate) type ById<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Hashes one 64-bit number by a folded multiplication. The low bits of a queue id are those of its node, so they alone
/// must not choose the bucket.
#[derive(Debug, Default, Clone)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted, one at a time")]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(GAMMA);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// A stream of random numbers from a seed (splitmix64).
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        let number = splitmix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }
}

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Computes one step of splitmix64, which reveals nothing of `seed`.
pub(crate) const fn splitmix(seed: u64) -> u64 {
    let z = seed.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn splitmix64_is_the_published_one() {
        // The first outputs for seed 1234567, as in the reference of Vigna's splitmix64.c.
        let mut chance = Chance::new(1_234_567);
        let first = [chance.next(), chance.next(), chance.next()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn ids_that_differ_in_time_only_spread_over_low_bits() {
        let buckets: HashSet<u64> = (0..4_096_u64)
            .map(|us| {
                let mut hasher = IdHasher::default();
                hasher.write_u64((1_700_000_000_000_000 + us) << 12);
                hasher.finish() & 0xfff
            })
            .collect();
        // 4,096 even throws leave about 63 % of the buckets hit.
        assert!(buckets.len() > 2_300, "{}", buckets.len());
    }
}
