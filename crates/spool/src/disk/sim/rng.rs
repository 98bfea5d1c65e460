//! The simulator's own random numbers: splitmix64, so that a seed means the same on every machine and in every version.

/// A stream of numbers that depends on its seed alone.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Starts the stream of `seed`; `salt` gives streams of one seed that have nothing to do with each other.
    pub(super) fn new(seed: u64, salt: u64) -> Self {
        let mut rng = Self(seed ^ salt.wrapping_mul(0xa076_1d64_78bd_642f));
        // Neighbouring seeds shall not begin alike.
        rng.next();
        rng
    }

    /// The next 64 bits (Steele, Lea, Flood 2014).
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next 8 bits.
    pub(super) fn byte(&mut self) -> u8 {
        let [byte, ..] = self.next().to_be_bytes();
        byte
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        // The bias for n far below 2^64 is far below what any test can see.
        u64::try_from((u128::from(self.next()) * u128::from(n)) >> 64).unwrap_or(0)
    }

    /// An index below `n`; 0 if `n` is 0.
    pub(super) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True `ppm` times in a million.
    pub(super) fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }
}
