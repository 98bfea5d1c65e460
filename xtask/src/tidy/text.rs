//! Words that belong to a desk and not to the tree: reminders, and paths of one person's machine.
//!
//! Paths are looked for in every text file, strings and comments included. Reminders are looked for in comments of Rust
//! and in the plain text of everything else; inside backquotes a page may speak about them.

use super::Finding;
use crate::source::Source;

/// Words that put work off.
const REMINDERS: &[&str] = &["TODO", "FIXME", "XXX"];

/// First folders of a path that exists on one machine only. The leading slash is added when looking.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "work", "Users"];

/// Names of no particular user in examples below `home`.
const ANYBODY: &[&str] = &["alice", "bob", "user"];

/// Checks every line of a text file for paths, and of a file that is not Rust for reminders.
pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let rust = path.ends_with(".rs");
    for (number, line) in text.lines().enumerate() {
        if let Some(place) = machine_path(line) {
            let message =
                format!("\"{place}\" is a path of one machine; write it from the root of the tree, or as a setting");
            findings.push(Finding::error(path, number + 1, message));
        }
        if !rust && path != "Cargo.lock" {
            reminders(path, number + 1, &without_quotes(line), findings);
        }
    }
}

/// Checks the comments of a Rust file for reminders.
pub(super) fn check_comments(source: &Source, findings: &mut Vec<Finding>) {
    for comment in &source.comments {
        for (number, line) in comment.text.lines().enumerate() {
            reminders(&source.path, comment.line + number, &without_quotes(line), findings);
        }
    }
}

fn reminders(path: &str, line: usize, text: &str, findings: &mut Vec<Finding>) {
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        if REMINDERS.contains(&word) {
            let message = format!("{word} puts work off; do it, or say what is missing and what follows from it");
            findings.push(Finding::error(path, line, message));
        }
    }
}

/// The line without what stands between backquotes.
fn without_quotes(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The first path of a machine in a line: `/FOLDER/name` with nothing path-like before its slash.
fn machine_path(line: &str) -> Option<&str> {
    for (at, _) in line.match_indices('/') {
        let (before, rest) = line.split_at(at);
        let starts = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !"./_-~*}>)]%$".contains(c));
        if !starts {
            continue;
        }
        let mut parts = rest.split('/').skip(1);
        let (Some(folder), Some(name)) = (parts.next(), parts.next()) else { continue };
        let name = name.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-' && c != '.').next().unwrap_or("");
        let anybody = folder == "home" && ANYBODY.contains(&name);
        if MACHINE_FOLDERS.contains(&folder) && !name.is_empty() && !anybody {
            let length = folder.len() + name.len() + 2;
            return rest.get(..length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{check, check_comments};
    use crate::source::Source;

    #[track_caller]
    fn finds(path: &str, text: &str, says: &[&str]) {
        let mut findings = Vec::new();
        check(path, text, &mut findings);
        if path.ends_with(".rs") {
            check_comments(&Source::new(path, text), &mut findings);
        }
        assert_eq!(findings.len(), says.len(), "{text}: {findings:?}");
        for part in says {
            assert!(findings.iter().any(|f| f.message.contains(part)), "{findings:?}");
        }
    }

    /// A path below a folder, put together here so that this file holds none.
    fn place(folder: &str, rest: &str) -> String {
        format!("/{folder}/{rest}")
    }

    #[test]
    fn paths_of_a_machine() {
        for (folder, rest) in [("home", "carla/mail"), ("root", ".cargo"), ("work", "main"), ("Users", "x")] {
            let path = place(folder, rest);
            finds("docs/a.md", &format!("see {path}."), &["path of one machine"]);
            finds("a.rs", &format!("const A: &str = \"{path}\";"), &["path of one machine"]);
            finds("Makefile", &format!("A={path}"), &["path of one machine"]);
        }
    }

    #[test]
    fn paths_of_anybody() {
        finds("a.md", &place("home", "alice/Maildir"), &[]);
        finds("a.md", &format!("https://example.org{}", place("home", "page")), &[]);
        finds("a.md", &format!("../..{} and var{}", place("work", "a"), place("root", "b")), &[]);
        finds("a.md", "below / or /var/spool, /home/ alone, /work", &[]);
    }

    #[test]
    fn reminders_are_found_in_comments_and_prose() {
        let word = ["TO", "DO"].concat();
        finds("a.rs", &format!("// {word}: later\nfn a() {{}}"), &["puts work off"]);
        finds("a.md", &format!("{word} write this"), &["puts work off"]);
        finds("a.rs", &format!("const A: &str = \"{word}\"; // `{word}`"), &[]);
        finds("a.md", &format!("no `{word}` and no mktemp.XXXXXX"), &[]);
    }
}
