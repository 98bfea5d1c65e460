//! Checks of the tree that a compiler does not make.
//!
//! `tidy` holds the architecture (arrows between crates, banned calls, sizes, names), `rfc-check` lists which section
//! of which RFC is done, missing or tested, `licences` holds the licences and sources of all dependencies. Every check
//! reads files and prints findings; nothing here is part of the product, and nothing here changes a file of the tree
//! except `rfc-check --write`, which renews `docs/rfc-status.md`, and `prose --lower`, which shortens
//! `xtask/prose.txt`. `fuzz` runs the fuzz targets.
#![forbid(unsafe_code)]

mod cargo;
mod fuzz;
mod lex;
mod licences;
mod rfc;
mod rooms;
mod source;
mod test_run;
mod tidy;
mod tree;

use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                     arrows between crates, banned calls, names, sizes, headers, reasons of dependencies, prose
  prose [FOLDER]           lists vague sentences and long lines of comments
  prose --lower            lowers the numbers in xtask/prose.txt to what is left of old prose
  rfc-check                RFC marks: done, gap, test per section; fails on malformed marks and a stale docs/rfc-status.md
  rfc-check --write        the same, and renews docs/rfc-status.md
  rfc-check --json         the same as JSON
  licences                 licences and sources of all dependencies against deny.toml
  fuzz SECONDS [TARGET…]   runs fuzz targets for some seconds each; a table of executions, edges and failures
  fuzz-seeds [TARGET…]     writes the seeds and dictionaries of fuzz targets into fuzz/seeds
  test-run                 builds all tests and runs two binaries at a time, with what each took and skipped
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = tree::root();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::command(&root),
        ["prose"] => tidy::list_prose(&root, ""),
        ["prose", "--lower"] => tidy::lower_prose(&root),
        ["prose", folder] => tidy::list_prose(&root, folder),
        ["rfc-check", flags @ ..] => match rfc::Flags::parse(flags) {
            Ok(flags) => rfc::command(&root, flags),
            Err(message) => Err(format!("{message}\n{USAGE}")),
        },
        ["fuzz", seconds, targets @ ..] => fuzz::command(&root, seconds, targets),
        ["fuzz-seeds", targets @ ..] => fuzz::write_seeds(&root, targets),
        ["test-run"] => test_run::command(&root),
        ["licences"] => licences::command(&root),
        ["help" | "--help" | "-h"] => Ok(Report { text: USAGE.to_owned(), failed: false }),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(report) => {
            // A closed pipe (`| head`) is the reader's choice, not a failed check.
            let _closed_pipe = std::io::stdout().write_all(report.text.as_bytes());
            if report.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// The output of a command, and whether the tree passed.
struct Report {
    text: String,
    failed: bool,
}
