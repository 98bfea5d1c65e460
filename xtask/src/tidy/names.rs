//! No drawers: a module or crate is named after its purpose.

use super::Finding;
use crate::lex::Kind;
use crate::source::Source;

/// Names that say nothing about the content.
const DRAWERS: &[&str] = &["util", "utils", "common", "types", "core", "helpers", "helper", "misc", "shared"];

const NEXT: &str = "name it after the stop or noun it serves, or move its items to their users";

/// Checks the parts of a source path and the folder of a crate.
pub(super) fn check_path(path: &str, findings: &mut Vec<Finding>) {
    let of_code = path.ends_with(".rs") || path.ends_with("Cargo.toml");
    if !of_code {
        return;
    }
    for part in path.split('/') {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if DRAWERS.contains(&stem) {
            findings.push(Finding::error(path, 0, format!("\"{stem}\" is a drawer, not a room; {NEXT}")));
        }
    }
}

/// Checks `mod` items, and that the file begins by saying its purpose.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    for pair in source.tokens.windows(2) {
        if let [keyword, name] = pair
            && keyword.is("mod")
            && name.kind == Kind::Word
            && DRAWERS.contains(&name.text.as_str())
        {
            let message = format!("module \"{}\" is a drawer, not a room; {NEXT}", name.text);
            findings.push(Finding::error(&source.path, name.line, message));
        }
    }
    let first_token = source.tokens.first().map_or(usize::MAX, |token| token.line);
    let header = source.comments.first().filter(|comment| comment.inner && comment.line <= first_token);
    if header.is_none_or(|comment| comment.text.is_empty()) {
        let message =
            "file without a //! header; begin with what it is for, its place in the flow, what it does not do";
        findings.push(Finding::error(&source.path, 1, message));
    }
}

#[cfg(test)]
mod tests {
    use super::{check, check_path};
    use crate::source::Source;

    #[test]
    fn drawers_are_found() {
        for (path, count) in [
            ("crates/util/Cargo.toml", 1),
            ("crates/mail/src/helpers.rs", 1),
            ("crates/mail/src/common/mod.rs", 1),
            ("crates/mail/src/address.rs", 0),
            ("docs/common/page.md", 0),
        ] {
            let mut findings = Vec::new();
            check_path(path, &mut findings);
            assert_eq!(findings.len(), count, "{path}");
        }
    }

    #[track_caller]
    fn finds(text: &str, says: &[&str]) {
        let mut findings = Vec::new();
        check(&Source::new("crates/mail/src/a.rs", text), &mut findings);
        assert_eq!(findings.len(), says.len(), "{text}: {findings:?}");
        for part in says {
            assert!(findings.iter().any(|f| f.message.contains(part)), "{findings:?}");
        }
    }

    #[test]
    fn modules_are_named() {
        finds("//! A.\nmod util;", &["module \"util\""]);
        finds("//! A.\npub mod types { }", &["module \"types\""]);
        finds("//! mod util;\nmod address; use core::fmt; let types = \"mod misc\";", &[]);
    }

    #[test]
    fn files_have_headers() {
        finds("fn a() {}", &["without a //! header"]);
        finds("fn a() {}\n//! Late.", &["without a //! header"]);
        finds("// Plain.\nfn a() {}", &["without a //! header"]);
        finds("//! Addresses.\nfn a() {}", &[]);
    }
}
