//! `rfc-check`: which section of which RFC is done, missing or tested, read from the marks in the comments.
//!
//! `docs/rfc-status.md` is generated from the same marks. It names no files, so that it grows stale when a rule appears
//! or goes and not when code moves; files and lines are in the printed table and in `--json`.

mod mark;
mod table;

use std::fs;
use std::path::Path;

use crate::source::Source;
use crate::{Report, tree};
use mark::{Malformed, Mark};

/// The generated page.
const STATUS_PATH: &str = "docs/rfc-status.md";

/// The options of the caller beside the check.
#[derive(Clone, Copy, Default)]
pub(crate) struct Flags {
    write: bool,
    json: bool,
}

impl Flags {
    /// Reads the words after `rfc-check`.
    ///
    /// # Errors
    /// A word that is no flag.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut flags = Self::default();
        for word in words {
            match *word {
                "--write" => flags.write = true,
                "--json" => flags.json = true,
                other => return Err(format!("rfc-check does not know \"{other}\"")),
            }
        }
        Ok(flags)
    }
}

/// Collects the marks below `crates/` and `fuzz/`, prints them, and compares or renews the generated page.
///
/// # Errors
/// The tree cannot be read, or the page cannot be written.
pub(crate) fn command(root: &Path, flags: Flags) -> Result<Report, String> {
    let (marks, malformed) = collect(root)?;
    let sections = table::sections(&marks);
    let page = table::page(&sections);
    let path = root.join(STATUS_PATH);
    if flags.write {
        fs::write(&path, &page).map_err(|e| format!("cannot write {STATUS_PATH}: {e}"))?;
    }
    let stale = fs::read_to_string(&path).ok().is_none_or(|found| found != page);
    let mut text = if flags.json { table::json(&sections, &malformed, stale) } else { table::text(&sections) };
    if !flags.json {
        for Malformed { path, line, message } in &malformed {
            text.push_str(&format!("{path}:{line}: error: {message}\n"));
        }
        if stale {
            text.push_str(&format!(
                "{STATUS_PATH}: error: stale; renew it with `cargo run -p xtask -- rfc-check --write` and commit it\n"
            ));
        }
    }
    Ok(Report { text, failed: stale || !malformed.is_empty() })
}

fn collect(root: &Path) -> Result<(Vec<Mark>, Vec<Malformed>), String> {
    let mut marks = Vec::new();
    let mut malformed = Vec::new();
    for file in tree::files(root)? {
        let ours = file.path.starts_with("crates/") || file.path.starts_with("fuzz/");
        if ours && file.has_extension("rs") {
            mark::collect(&Source::new(&file.path, &file.text), &mut marks, &mut malformed);
        }
    }
    Ok((marks, malformed))
}
