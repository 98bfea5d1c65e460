//! Runs of many seeds: first those that once showed a fault, and then as many as are asked for.
//!
//! | Variable | Says |
//! |---|---|
//! | `SIM_SEED` | this one alone, and all that is wrong with it |
//! | `SIM_FROM`, `SIM_COUNT` | the first seed, and how many; those that are kept run before them in any case |

use std::any::type_name_of_val;

pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Which seeds are asked for.
struct Asked {
    only: Option<u64>,
    from: u64,
    count: u64,
}

impl Asked {
    /// Returns the seeds to run, each once.
    fn seeds(&self, kept: &[u64]) -> Vec<u64> {
        let others = (self.from..self.from + self.count).filter(|seed| !kept.contains(seed));
        self.only.map_or_else(|| kept.iter().copied().chain(others).collect(), |only| vec![only])
    }

    /// Returns the first fault of each seed that fails, with the command that repeats it.
    fn failures(&self, test: &str, kept: &[u64], mut run: impl FnMut(u64) -> Vec<String>) -> Vec<String> {
        let failure = |seed: u64| {
            let wrong = run(seed);
            let first = wrong.first()?;
            if self.only.is_some() {
                println!("{wrong:#?}");
            }
            let command = command(test, seed);
            Some(format!("seed {seed}: {} things are wrong, first: {first}\n    {command}", wrong.len()))
        };
        self.seeds(kept).into_iter().filter_map(failure).collect()
    }
}

/// Plays the seeds of a test, first the kept ones, and fails if one of them has a fault. The failure names the seed
/// and the command that plays it again. `count`: of a usual test.
pub(super) fn play<T: Fn()>(test: T, kept: &[u64], count: u64, run: impl FnMut(u64) -> Vec<String>) {
    let from = number("SIM_FROM").unwrap_or(1);
    let asked = Asked { only: number("SIM_SEED"), from, count: number("SIM_COUNT").unwrap_or(count) };
    let failures = asked.failures(type_name_of_val(&test), kept, run);
    assert!(failures.is_empty(), "{} seeds fail, and are to be kept:\n{}", failures.len(), failures.join("\n"));
}

/// A test has the name of its function behind the crate.
fn command(test: &str, seed: u64) -> String {
    let test = test.split_once("::").map_or(test, |(_, test)| test);
    format!("SIM_SEED={seed} SIM_LOG=1 cargo test -p mailrace-server --lib {test} -- --exact --nocapture")
}

#[test]
fn what_is_kept_comes_first_and_one_alone_is_alone() {
    let asked = Asked { only: None, from: 1, count: 3 };
    assert_eq!(asked.seeds(&[7, 2]), [7, 2, 1, 3]);
    assert_eq!(Asked { from: 10, ..asked }.seeds(&[7, 2]), [7, 2, 10, 11, 12]);
    assert_eq!(Asked { only: Some(5), from: 1, count: 3 }.seeds(&[7, 2]), [5]);
}

#[test]
fn a_seed_that_fails_is_named_with_its_command() {
    let test = type_name_of_val(&a_seed_that_fails_is_named_with_its_command);
    let odd = |seed: u64| if seed % 2 == 1 { vec!["odd".to_owned(), "more".to_owned()] } else { Vec::new() };
    let failures = Asked { only: None, from: 1, count: 3 }.failures(test, &[9], odd);
    let named = |seed: u64| {
        format!(
            "seed {seed}: 2 things are wrong, first: odd\n    SIM_SEED={seed} SIM_LOG=1 cargo test -p mailrace-server --lib \
             simulation::campaign::a_seed_that_fails_is_named_with_its_command -- --exact --nocapture"
        )
    };
    assert_eq!(failures, [9, 1, 3].map(named));
}
