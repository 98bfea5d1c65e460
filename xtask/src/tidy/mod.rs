//! The rules of the tree, as one command and one test.
//!
//! Each rule lives in a file of its own beside its negative control: a fixture on which it must fire and one on which
//! it must stay silent. A finding names file, line, the fault and the next step. Errors fail the run; notes are a
//! reason to look again.

mod arrows;
mod banned;
mod fuzzing;
mod links;
mod manifests;
mod modules;
mod names;
mod prose;
mod release;
mod sizes;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::source::Source;
use crate::{Report, cargo, tree};

/// Something a rule saw.
#[derive(Debug)]
pub(crate) struct Finding {
    /// An error fails the run, a note does not.
    pub(crate) error: bool,
    pub(crate) path: String,
    /// Counted from 1; 0 when the finding is about the whole file.
    pub(crate) line: usize,
    /// The finding, and the next step.
    pub(crate) message: String,
}

impl Finding {
    fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { error: true, path: path.to_owned(), line, message: message.into() }
    }

    fn note(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { error: false, path: path.to_owned(), line, message: message.into() }
    }
}

/// Runs all rules and writes their findings.
///
/// # Errors
/// The tree cannot be read, or cargo cannot be asked.
pub(crate) fn command(root: &Path) -> Result<Report, String> {
    let (findings, files) = run(root)?;
    let errors = findings.iter().filter(|f| f.error).count();
    let mut text = String::new();
    for finding in &findings {
        let word = if finding.error { "error" } else { "note" };
        let _infallible = match finding.line {
            0 => writeln!(text, "{}: {word}: {}", finding.path, finding.message),
            line => writeln!(text, "{}:{line}: {word}: {}", finding.path, finding.message),
        };
    }
    let notes = findings.len() - errors;
    let _infallible = writeln!(text, "tidy: {files} files, {errors} errors, {notes} notes");
    Ok(Report { text, failed: errors > 0 })
}

/// Lists the places of vague or long comments below a folder.
///
/// # Errors
/// The tree cannot be read.
pub(crate) fn list_prose(root: &Path, folder: &str) -> Result<Report, String> {
    let mut text = String::new();
    for (path, places) in prose_places(&tree::files(root)?) {
        if folder.is_empty() || prose::is_below(&path, folder) {
            for (line, message) in places {
                let _infallible = writeln!(text, "{path}:{line}: {message}");
            }
        }
    }
    Ok(Report { text, failed: false })
}

/// Writes the lower of both numbers for each group into the list of old places of prose. It never writes a higher one.
///
/// # Errors
/// The tree cannot be read, or the list cannot be written.
pub(crate) fn lower_prose(root: &Path) -> Result<Report, String> {
    let files = tree::files(root)?;
    let groups = prose::read_list(text_of(&files, prose::LIST));
    let (text, before, after) = prose::lowered(&groups, &prose::counts(&prose_places(&files)));
    std::fs::write(root.join(prose::LIST), &text).map_err(|error| format!("{}: {error}", prose::LIST))?;
    Ok(Report { text: format!("{}: {before} old places before, {after} now\n", prose::LIST), failed: false })
}

/// The places of each file that has some.
fn prose_places(files: &[tree::File]) -> BTreeMap<String, Vec<(usize, String)>> {
    let places = |file: &tree::File| {
        let source = file.has_extension("rs").then(|| Source::new(&file.path, &file.text));
        (file.path.clone(), prose::places(file, source.as_ref()))
    };
    files.iter().map(places).filter(|(_, found)| !found.is_empty()).collect()
}

fn text_of<'f>(files: &'f [tree::File], path: &str) -> &'f str {
    files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str())
}

/// All findings, by path and line, and the number of files read.
fn run(root: &Path) -> Result<(Vec<Finding>, usize), String> {
    let files = tree::files(root)?;
    let packages = cargo::our_packages(root)?;
    let mut findings = Vec::new();
    arrows::check(root, &packages, &mut findings);
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let targets = text_of(&files, fuzzing::MANIFEST);
    prose::check(&prose_places(&files), &prose::read_list(text_of(&files, prose::LIST)), &mut findings);
    let mut sources = Vec::new();
    for file in &files {
        text::check(&file.path, &file.text, &mut findings);
        names::check_path(&file.path, &mut findings);
        if file.path.ends_with("Cargo.toml") {
            manifests::check(&file.path, &file.text, &mut findings);
        }
        if file.has_extension("md") {
            links::check(&file.path, &file.text, &paths, &mut findings);
        }
        if file.has_extension("rs") {
            let source = Source::new(&file.path, &file.text);
            text::check_comments(&source, &mut findings);
            names::check(&source, &mut findings);
            sizes::check(&source, &mut findings);
            banned::check(&source, &mut findings);
            fuzzing::check(&source, &paths, targets, &mut findings);
            sources.push(source);
        }
    }
    release::check(text_of(&files, release::CHANGELOG), text_of(&files, release::CLOCK), &mut findings);
    modules::check(&sources, text_of(&files, modules::LIST), &mut findings);
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok((findings, files.len()))
}

#[cfg(test)]
mod tests {
    use super::command;
    use crate::tree;

    #[test]
    fn the_tree_is_tidy() {
        let report = command(&tree::root()).expect("the tree can be read");
        assert!(!report.failed, "\n{}", report.text);
    }
}
