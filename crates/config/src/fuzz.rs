//! Bodies for fuzzing: any bytes as a configuration, and as one of sendmail.
//!
//! Asserted: no panic, every problem has a place in the text, messages hold no control character but line ends, and a
//! configuration that was accepted reads back from what `config show` prints.

use super::{Machine, Problem, commands, load};
use route::import::{Files, Language, import};
use std::path::Path;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 2] = [("config", config), ("sendmail_configuration", sendmail_configuration)];

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

/// Carries a configuration of sendmail over, as macros and as their output, without the files that it includes. Asserts
/// that the result has the form of a configuration and known keys, and that notes are of the file.
///
/// # Panics
/// If something does not hold that must hold for all bytes.
pub fn sendmail_configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for language in [Language::Mc, Language::Cf] {
        let files = Files { is_there: &|_| true, read: &|_| None };
        let imported = import("sendmail", &text, language, files);
        let lines = text.lines().count().max(1);
        for note in &imported.notes {
            assert!(note.file != "sendmail" || note.line <= lines, "of {lines} lines: {note:?}");
            assert!(note.to_string().len() < 4_096, "{note:?}");
        }
        if let Err(problems) =
            load(&imported.toml, Some(Path::new("/etc/mailrace/mailrace.toml")), &[], &Machine::default())
        {
            let is_of_value = |one: &Problem| !one.key.is_empty() && !one.text.contains("unknown key");
            let said = super::render(&problems);
            assert!(problems.iter().all(is_of_value), "{}\n{said}", imported.toml);
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
