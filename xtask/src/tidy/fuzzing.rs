//! Every fuzz body is a target of cargo-fuzz.
//!
//! A body is a public function of one byte slice in the `fuzz` module of a room; its target is a file of one line and
//! an entry in `fuzz/Cargo.toml`, a manifest that no build of the workspace reads.

use std::collections::BTreeSet;

use super::Finding;
use crate::source::Source;

/// The manifest of the targets.
pub(super) const MANIFEST: &str = "fuzz/Cargo.toml";

/// The tokens that follow the name of a body, its argument's name aside.
const SIGNATURE: &[&str] = &[":", "&", "[", "u8", "]", ")"];

/// Checks the bodies of one file against the targets.
pub(super) fn check(source: &Source, files: &BTreeSet<&str>, manifest: &str, findings: &mut Vec<Finding>) {
    let Some((room, rest)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
        return;
    };
    if rest != "fuzz.rs" && !rest.starts_with("fuzz/") {
        return;
    }
    for window in source.tokens.windows(5 + SIGNATURE.len()) {
        let [public, function, name, open, _argument, signature @ ..] = window else { continue };
        let body = public.is("pub") && function.is("fn") && open.is("(");
        if !body || !signature.iter().zip(SIGNATURE).all(|(token, text)| token.is(text)) {
            continue;
        }
        let target = format!("fuzz/fuzz_targets/{room}_{}.rs", name.text);
        let listed = manifest.contains(&format!("\"fuzz_targets/{room}_{}.rs\"", name.text));
        if !files.contains(target.as_str()) || !listed {
            let message = format!("fuzz body {} has no target; add {target} and its [[bin]] to {MANIFEST}", name.text);
            findings.push(Finding::error(&source.path, name.line, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::check;
    use crate::source::Source;

    #[track_caller]
    fn finds(path: &str, text: &str, count: usize) {
        let files = BTreeSet::from(["fuzz/fuzz_targets/mail_path.rs", "fuzz/fuzz_targets/mail_unlisted.rs"]);
        let manifest = "[[bin]]\npath = \"fuzz_targets/mail_path.rs\"\n";
        let mut findings = Vec::new();
        check(&Source::new(path, text), &files, manifest, &mut findings);
        assert_eq!(findings.len(), count, "{text}: {findings:?}");
    }

    #[test]
    fn a_body_without_a_target() {
        finds("crates/mail/src/fuzz.rs", "pub fn reply(data: &[u8]) {}", 1);
        finds("crates/mail/src/fuzz.rs", "pub fn unlisted(data: &[u8]) {}", 1);
        finds("crates/spool/src/fuzz/mod.rs", "pub fn path(bytes: &[u8]) {}", 1);
    }

    #[test]
    fn bodies_with_targets_and_other_functions() {
        finds("crates/mail/src/fuzz.rs", "pub fn path(data: &[u8]) {}", 0);
        finds("crates/mail/src/fuzz.rs", "fn private(data: &[u8]) {} pub fn two(a: &[u8], b: u8) {}", 0);
        finds("crates/mail/src/reply.rs", "pub fn reply(data: &[u8]) {}", 0);
    }
}
