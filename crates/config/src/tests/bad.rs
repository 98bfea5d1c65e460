//! Wrong files and the messages about them, to the letter: `bad/*.toml`.
//!
//! The file is the text before the first line with `#>`, the wanted text is the rest. Names that begin with `root_` are
//! read on a machine where root starts the server. `write_bad`, an ignored test, writes the messages of now; look at
//! the difference before it is kept.

use super::super::{Machine, load, render};
use std::path::{Path, PathBuf};

const MARK: &str = "#>";

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/bad");
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Returns the file of a case, the wanted messages and the messages.
fn run(path: &Path) -> (String, String, String) {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    let content = std::fs::read_to_string(path).expect("a case");
    let (text, wanted): (Vec<&str>, Vec<&str>) = {
        let at = content.lines().position(|line| line.starts_with(MARK)).unwrap_or_else(|| content.lines().count());
        (content.lines().take(at).collect(), content.lines().skip(at).collect())
    };
    let text = text.join("\n") + "\n";
    let wanted: Vec<&str> = wanted.iter().map(|line| line.strip_prefix("#> ").unwrap_or("")).collect();
    let machine = if name.starts_with("root_") { Machine::new("mx.example.com", None) } else { Machine::default() };
    let said = match load(&text, Some(Path::new(name)), &[], &machine) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    assert!(!said.is_empty(), "{name}: nothing is said");
    (text, wanted.join("\n"), render(&said))
}

/// Without blanks at the ends of lines, which a file need not keep.
fn flat(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn wrong_files() {
    let cases = cases();
    assert!(cases.len() >= 60, "{}", cases.len());
    let mut failed = Vec::new();
    for path in cases {
        let (_, wanted, said) = run(&path);
        if flat(&said) != wanted {
            failed.push(format!("{}\nwanted:\n{wanted}\nsaid:\n{said}", path.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
#[ignore = "writes files of the tree"]
fn write_bad() {
    for path in cases() {
        let (text, _, said) = run(&path);
        let lines: Vec<String> = said.lines().map(|line| format!("{MARK} {line}").trim_end().to_owned()).collect();
        std::fs::write(&path, format!("{text}{}\n", lines.join("\n"))).expect("written");
    }
}
