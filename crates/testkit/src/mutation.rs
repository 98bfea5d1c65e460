//! Runs fuzz bodies as ordinary tests: on seeds, on their beginnings, and on mutations of them.
//!
//! A failure names the body and shows the input, so that it can become a test beside the code that it broke.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// The form of mutated inputs.
#[derive(Clone, Copy, Debug)]
pub struct Mutations {
    /// Cases for each body are the number that proptest is set to, this many times.
    pub times: u32,
    /// Octets that mean something to the readers; they come more often than others.
    pub octets: &'static [u8],
    /// Octets of an input, at most.
    pub octets_max: usize,
    /// The inputs have pages of 512 octets, and numbers in the first 64 octets of each.
    pub has_pages: bool,
}

#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    Repeat(Index, Index, usize),
    /// Another seed in the midst of this one.
    Splice(Index, Index),
    /// A number in the head of a page.
    Head(Index, u8, u8),
    /// A page in the place of another.
    Page(Index, Index),
}

impl Edit {
    fn apply(&self, data: &mut Vec<u8>, seeds: &[&[u8]]) {
        let at = |index: &Index, len: usize| if len == 0 { 0 } else { index.index(len) };
        let len = data.len();
        match self {
            Self::Set(index, byte) if len > 0 => data[at(index, len)] = *byte,
            Self::Remove(index) if len > 0 => drop(data.remove(at(index, len))),
            Self::Insert(index, byte) => data.insert(at(index, len + 1), *byte),
            Self::Cut(index) => data.truncate(at(index, len + 1)),
            Self::Repeat(from, to, times) => {
                let (a, b) = (at(from, len + 1), at(to, len + 1));
                let piece = data[a.min(b)..a.max(b)].repeat(*times);
                data.splice(a.max(b)..a.max(b), piece);
            }
            Self::Splice(index, seed) => {
                let at = at(index, len + 1);
                data.splice(at..at, seeds[seed.index(seeds.len())].iter().copied());
            }
            Self::Head(index, offset, byte) if len >= 512 => {
                data[at(index, len / 512) * 512 + usize::from(*offset)] = *byte;
            }
            Self::Page(from, to) if len >= 512 => {
                let (from, to) = (at(from, len / 512) * 512, at(to, len / 512) * 512);
                data.copy_within(from..from + 512, to);
            }
            Self::Set(..) | Self::Remove(_) | Self::Head(..) | Self::Page(..) => {}
        }
    }
}

fn any_edit(octets: &'static [u8], pages: u32) -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![any::<u8>(), 0..20_u8, proptest::sample::select(octets)];
    prop_oneof![
        2 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        2 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        2 => any::<Index>().prop_map(Edit::Remove),
        2 => any::<Index>().prop_map(Edit::Cut),
        2 => (any::<Index>(), any::<Index>(), 1..9_usize).prop_map(|(from, to, times)| Edit::Repeat(from, to, times)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(at, seed)| Edit::Splice(at, seed)),
        pages * 8 => (any::<Index>(), 0..64_u8, byte).prop_map(|(at, offset, byte)| Edit::Head(at, offset, byte)),
        pages * 2 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Page(from, to)),
    ]
}

/// Runs every body on `data`.
pub fn run_all(bodies: &[Body], data: &[u8]) {
    for (name, body) in bodies {
        let result = std::panic::catch_unwind(|| body(data));
        assert!(result.is_ok(), "{name} on \"{}\"", data.escape_ascii());
    }
}

/// Runs every body on every seed and on its beginnings, of a long seed on about 64 of them.
pub fn run_beginnings(bodies: &[Body], seeds: &[&[u8]]) {
    for seed in seeds {
        let step = if seed.len() <= 1_024 { 1 } else { 1 + seed.len() / 64 };
        for len in (0..=seed.len()).step_by(step).chain([seed.len()]) {
            run_all(bodies, &seed[..len]);
        }
    }
}

/// Runs every body on mutated seeds; `PROPTEST_CASES=50000` takes some minutes.
pub fn run_mutated(bodies: &[Body], seeds: &[&[u8]], mutations: Mutations) {
    let default = ProptestConfig::default();
    let cases = default.cases.saturating_mul(mutations.times);
    let config = ProptestConfig { cases, failure_persistence: None, ..default };
    let edits = any_edit(mutations.octets, u32::from(mutations.has_pages));
    let strategy = (any::<Index>(), proptest::collection::vec(edits, 1..12));
    for (name, body) in bodies {
        let result = TestRunner::new(config.clone()).run(&strategy, |(seed, edits)| {
            let mut data = seeds[seed.index(seeds.len())].to_vec();
            for edit in &edits {
                edit.apply(&mut data, seeds);
                data.truncate(mutations.octets_max);
            }
            let outcome = std::panic::catch_unwind(|| body(&data));
            prop_assert!(outcome.is_ok(), "on \"{}\"", data.escape_ascii());
            Ok(())
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(run: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(run).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn a_failure_names_the_body_and_the_input() {
        const BODIES: [Body; 1] = [("no_nul", |data| assert!(!data.contains(&0)))];
        assert!(fails(|| run_all(&BODIES, b"a\0")).contains("no_nul on \"a\\x00\""));
        assert!(fails(|| run_beginnings(&BODIES, &[b"ab\0c"])).contains("\"ab\\x00\""));
        let mutations = Mutations { times: 1, octets: b"\0", octets_max: 100, has_pages: true };
        assert!(fails(|| run_mutated(&BODIES, &[b"abc", b"d"], mutations)).contains("no_nul"));
    }
}
