//! Generated pages are those of the table. `cargo test -p mailrace-config write_generated -- --ignored` writes them.

use super::super::generate::example;
use super::super::{Config, Machine, load};
use super::pages::{manual, page};
use std::path::{Path, PathBuf};

fn files() -> [(PathBuf, String); 3] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    [
        (root.join("examples/mailrace.toml"), example()),
        (root.join("packaging/man/mailrace.toml.5"), manual()),
        (root.join("docs/configuration.md"), page()),
    ]
}

#[test]
fn generated_files_are_fresh() {
    for (path, text) in files() {
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "{} is stale; run: cargo test -p mailrace-config write_generated -- --ignored",
            path.display()
        );
    }
}

#[test]
#[ignore = "writes files of the tree"]
fn write_generated() {
    for (path, text) in files() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, text).expect("written");
    }
}

#[test]
fn the_example_is_the_defaults() {
    let config = load(&example(), None, &[], &Machine::default()).expect("the example").config;
    assert_eq!(config, Config::default());
}

#[test]
fn the_example_reads_when_uncommented() {
    let uncommented = example()
        .lines()
        .map(|line| if line.starts_with("# ") { line } else { line.trim_start_matches('#') })
        .collect::<Vec<_>>()
        .join("\n");
    let machine = Machine::default();
    let (loaded, problems) = super::super::build::read(None, &uncommented, None, &[], &machine);
    assert!(problems.is_empty(), "{}", super::super::render(&problems));
    assert_eq!(loaded.keys_set(), super::super::parameters::all().count());
}

#[test]
fn the_manual_holds_no_stray_commands() {
    for line in manual().lines() {
        let is_command = [".\\\"", ".TH ", ".SH ", ".B ", ".BR ", ".TP", ".br"].iter().any(|c| line.starts_with(c));
        assert!(is_command || !line.starts_with(['.', '\'']), "{line}");
        assert!(!line.is_empty(), "an empty line breaks the paragraph");
    }
}
