//! Random order from a seed, so that each use of a cached answer has an order of its own and a test has always the
//! same.

/// A source of orders.
#[derive(Debug)]
pub struct Shuffle(u64);

impl Shuffle {
    /// Begins with a seed; equal seeds give equal orders.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Puts the items into random order, each order as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Puts the addresses of one host into the order to try them: IPv6 and IPv4 by turns, so that neither a dead IPv6
    /// nor a dead IPv4 costs more than one try, each kind in random order.
    pub fn by_family<T>(&mut self, mut items: Vec<T>, is_ipv6: impl Fn(&T) -> bool) -> Vec<T> {
        self.shuffle(&mut items);
        let count = items.len();
        let (six, four): (Vec<T>, Vec<T>) = items.into_iter().partition(is_ipv6);
        let (mut six, mut four) = (six.into_iter(), four.into_iter());
        let mut ordered = Vec::with_capacity(count);
        while ordered.len() < count {
            ordered.extend(six.next().into_iter().chain(four.next()));
        }
        ordered
    }

    /// Returns a number from 0 to `end` - 1. The lack of balance is that of `end` in 2⁶⁴.
    fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.next()) * end as u128;
        usize::try_from(wide >> 64).expect("it is less than `end`")
    }

    /// SplitMix64: neighbours among seeds give unlike numbers.
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Shuffle;

    #[test]
    fn each_order_is_as_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..24_000 {
            let mut items = *b"abcd";
            Shuffle::new(seed).shuffle(&mut items);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (850..1_150).contains(count)), "{counts:?}");
        let mut none: [u8; 0] = [];
        Shuffle::new(0).shuffle(&mut none);
    }
}
