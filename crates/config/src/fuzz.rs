//! A body for fuzzing: any bytes as a configuration.
//!
//! Asserted: no panic, every problem has a place in the text, messages hold no control character but line ends, and a
//! configuration that was accepted reads back from what `config show` prints.

use super::{Machine, Problem, commands, load};
use std::path::Path;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 1] = [("config", config)];

/// Reads a file, checks the messages about it, and reads its shown form again.
///
/// # Panics
/// If something does not hold that must hold for all bytes.
pub fn config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let machine = Machine::default();
    let path = Path::new("/etc/mailrace/mailrace.toml");
    let lines = text.lines().count().max(1);
    match load(text, Some(path), &[], &machine) {
        Err(problems) => problems.iter().for_each(|problem| check(problem, lines)),
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|problem| check(problem, lines));
            let shown = commands::show(&loaded, &[], commands::Form::Text).expect("all keys");
            let again = load(&shown, Some(path), &[], &machine).unwrap_or_else(|problems| {
                panic!("{shown}\n{}", super::render(&problems));
            });
            assert_eq!(again.config, loaded.config, "{shown}");
        }
    }
}

/// Asserts what holds for every problem.
fn check(problem: &Problem, lines: usize) {
    assert!((1..=lines).contains(&problem.line) && problem.column > 0, "of {lines} lines: {problem:?}");
    assert!(problem.column <= problem.source.chars().count() + 1, "{problem:?}");
    let text = problem.to_string();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    // One line for each part, and a line of the file is shown in part if it is long.
    assert!(text.len() < 8_192, "{} bytes: {problem:?}", text.len());
}
