//! Numbers that look random and follow from a seed.

/// A well-mixed number from a number (the finaliser of splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number of these octets; the same octets and seed give the same number.
pub(crate) fn hash(seed: u64, octets: &[u8]) -> u64 {
    let mut state = mix(seed ^ octets.len() as u64);
    for eight in octets.chunks(8) {
        let number = eight.iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
        state = mix(state ^ number);
    }
    state
}

/// Brings a list into an order that the seed decides.
pub(crate) fn shuffle<T>(seed: u64, list: &mut [T]) {
    let mut state = mix(seed);
    for end in (1..list.len()).rev() {
        state = mix(state);
        // Smaller than a length, so a usize.
        let other = usize::try_from(state % (end as u64 + 1)).unwrap_or(0);
        list.swap(end, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_order_that_holds_everything() {
        let order = |seed| {
            let mut list: Vec<u32> = (0..100).collect();
            shuffle(seed, &mut list);
            list
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut list = order(3);
        list.sort_unstable();
        assert!(list.into_iter().eq(0..100));
    }

    #[test]
    fn a_hash_depends_on_seed_and_octets() {
        let all =
            [hash(1, b""), hash(2, b""), hash(1, b"a"), hash(1, b"\0a"), hash(1, b"abcdefgh"), hash(1, b"abcdefgha")];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
        }
    }
}
