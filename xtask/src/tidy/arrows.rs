//! Arrows between crates, names of packages, and the crate-wide refusal of `unsafe`.
//!
//! Source of truth: `cargo metadata` for the present dependencies, `rooms.rs` for the allowed ones.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Finding;
use crate::cargo::{field, list};
use crate::lex::Token;
use crate::rooms::{NOT_FOR_PURE_ROOMS, ROOMS, Room};
use crate::source::Source;

/// Checks every package of the workspace.
pub(super) fn check(root: &Path, packages: &[Value], findings: &mut Vec<Finding>) {
    check_sabotage(packages, findings);
    for package in packages {
        let manifest = relative(root, field(package, "manifest_path"));
        check_package(&manifest, package, findings);
        for target in list(package, "targets") {
            let kinds: Vec<&str> = list(target, "kind").iter().filter_map(Value::as_str).collect();
            if !kinds.iter().any(|kind| matches!(*kind, "lib" | "bin" | "proc-macro" | "custom-build")) {
                continue;
            }
            let path = relative(root, field(target, "src_path"));
            match fs::read_to_string(root.join(&path)) {
                Ok(text) => check_crate_root(&path, &text, findings),
                Err(e) => findings.push(Finding::error(&path, 0, format!("cannot be read: {e}"))),
            }
        }
    }
}

fn relative(root: &Path, path: &str) -> String {
    let path = Path::new(path);
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Checks the arrows of one package.
fn check_package(manifest: &str, package: &Value, findings: &mut Vec<Finding>) {
    let name = field(package, "name");
    let Some(room) = ROOMS.iter().find(|room| room.package() == name) else {
        let message = format!(
            "package {name} is in no room; add it to the table in xtask/src/rooms.rs with the arrows it needs, or put \
             its code into the room it serves"
        );
        findings.push(Finding::error(manifest, 0, message));
        return;
    };
    for dependency in list(package, "dependencies") {
        let target = field(dependency, "name");
        let kind = dependency.get("kind").and_then(Value::as_str).unwrap_or("normal");
        if let Some(other) = ROOMS.iter().find(|room| room.package() == target) {
            // Support of tests is for tests of every room, and for nothing else.
            let is_support = other.name == "testkit" && kind == "dev";
            if !room.may_use.contains(&other.name) && room.name != other.name && !is_support {
                findings.push(Finding::error(manifest, 0, forbidden_arrow(room, other)));
            }
        } else if room.pure && kind == "normal" && NOT_FOR_PURE_ROOMS.contains(&target) {
            let message = format!(
                "pure room {} depends on {target}, which brings I/O, time, randomness or a lock; take the value as an \
                 argument and let the server ask for it",
                room.name
            );
            findings.push(Finding::error(manifest, 0, message));
        }
    }
}

fn forbidden_arrow(room: &Room, other: &Room) -> String {
    let allowed = if room.may_use.is_empty() { "none of our crates".to_owned() } else { room.may_use.join(", ") };
    format!(
        "{} depends on {}, but may use {allowed}; pass the value through server, or change the table in \
         xtask/src/rooms.rs together with ARCHITECTURE.md",
        room.name, other.name
    )
}

/// The feature of the spool that breaks it on purpose, for negative controls.
const SABOTAGE: &str = "sabotage";

/// Checks that the program which keeps mail cannot reach a dependency with `SABOTAGE` turned on.
fn check_sabotage(packages: &[Value], findings: &mut Vec<Finding>) {
    let mut reached = vec!["mailrace"];
    let mut at = 0;
    while let Some(name) = reached.get(at).copied() {
        at += 1;
        let Some(package) = packages.iter().find(|package| field(package, "name") == name) else { continue };
        // A feature of its own may forward to it; bench does that in `rigs`, which must stay off.
        let forwarding = forwarding(package);
        if forwarding.contains(&"default") {
            let message = format!(
                "the program mailrace reaches {name}, whose default features turn on {SABOTAGE}; take it out of them"
            );
            findings.push(Finding::error("crates/mailrace/Cargo.toml", 0, message));
        }
        for dependency in list(package, "dependencies") {
            let target = field(dependency, "name");
            if dependency.get("kind").and_then(Value::as_str) == Some("dev") {
                continue;
            }
            let asked =
                packages.iter().find(|other| field(other, "name") == target).map(self::forwarding).unwrap_or_default();
            for feature in
                list(dependency, "features").iter().filter_map(Value::as_str).filter(|feature| asked.contains(feature))
            {
                let message = format!(
                    "the program mailrace reaches {name}, which turns on {target}/{feature} and so {SABOTAGE}; leave it off"
                );
                findings.push(Finding::error("crates/mailrace/Cargo.toml", 0, message));
            }
            if list(dependency, "features").iter().any(|feature| feature.as_str() == Some(SABOTAGE)) {
                let message = format!(
                    "the program mailrace reaches {name}, which turns on {target}/{SABOTAGE}; ask for that feature in a \
                     binary of its own, or behind a feature that mailrace leaves off"
                );
                findings.push(Finding::error("crates/mailrace/Cargo.toml", 0, message));
            }
            if !reached.contains(&target) {
                reached.push(target);
            }
        }
    }
}

/// Features of a package that turn on `SABOTAGE` of a dependency, directly or through one another.
fn forwarding(package: &Value) -> Vec<&str> {
    let Some(features) = package.get("features").and_then(Value::as_object) else { return Vec::new() };
    let mut found: Vec<&str> = Vec::new();
    loop {
        let more = features.iter().find(|(name, turned_on)| {
            let leads = |value: &str| {
                found.contains(&value) || value.rsplit('/').next() == Some(SABOTAGE) && value.contains('/')
            };
            !found.contains(&name.as_str())
                && turned_on.as_array().is_some_and(|all| all.iter().filter_map(Value::as_str).any(leads))
        });
        match more {
            Some((name, _)) => found.push(name),
            None => return found,
        }
    }
}

/// Checks that a crate root refuses `unsafe`.
fn check_crate_root(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let source = Source::new(path, text);
    let refuses = source.attributes().into_iter().any(|(_, inside)| refuses_unsafe(inside));
    if !refuses {
        let message = "crate root without #![forbid(unsafe_code)]; add it (the crates that hold an allowed folder write \
                       #![deny(unsafe_code)])";
        findings.push(Finding::error(path, 1, message));
    }
}

fn refuses_unsafe(inside: &[Token]) -> bool {
    let level = inside.first().is_some_and(|word| word.is("forbid") || word.is("deny"));
    level && inside.iter().any(|word| word.is("unsafe_code"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{check_crate_root, check_package, check_sabotage};

    #[track_caller]
    fn package(name: &str, dependency: &str, kind: Option<&str>, says: Option<&str>) {
        let package = json!({"name": name, "dependencies": [{"name": dependency, "kind": kind}]});
        let mut findings = Vec::new();
        check_package("Cargo.toml", &package, &mut findings);
        let message = findings.first().map(|f| f.message.as_str());
        match says {
            Some(part) => assert!(message.is_some_and(|m| m.contains(part)), "{message:?}"),
            None => assert_eq!(message, None),
        }
    }

    #[test]
    fn arrows() {
        package("mailrace-mail", "mailrace-spool", None, Some("mail depends on spool, but may use none of our crates"));
        package("mailrace-spool", "mailrace-bench", Some("dev"), Some("may use mail"));
        package("mailrace-spool", "mailrace-mail", None, None);
        package("mailrace-util", "serde", None, Some("is in no room"));
        package("xtask", "mailrace-mail", None, Some("none of our crates"));
    }

    #[test]
    fn what_pure_rooms_may_not_have() {
        package("mailrace-mail", "tokio", None, Some("pure room mail depends on tokio"));
        package("mailrace-mail", "tokio", Some("dev"), None);
        package("mailrace-spool", "rustix", None, None);
    }

    #[test]
    fn the_program_reaches_no_sabotage() {
        let bench = |features: &[&str]| json!({"name": "mailrace-bench", "dependencies": [{"name": "mailrace-spool", "features": features}]});
        let program = |kind: Option<&str>| json!({"name": "mailrace", "dependencies": [{"name": "mailrace-bench", "kind": kind}]});
        for (packages, count) in [
            ([program(None), bench(&["sabotage"])], 1),
            ([program(None), bench(&[])], 0),
            ([program(Some("dev")), bench(&["sabotage"])], 0),
            ([json!({"name": "mailrace"}), bench(&["sabotage"])], 0),
        ] {
            let mut findings = Vec::new();
            check_sabotage(&packages, &mut findings);
            assert_eq!(findings.len(), count, "{packages:?}");
        }
    }

    #[test]
    fn sabotage_is_not_forwarded() {
        for (default, asked, count) in [
            (json!([]), json!([]), 0),
            (json!(["engines"]), json!([]), 1),
            (json!([]), json!(["rigs"]), 1),
            (json!([]), json!(["engines"]), 1),
        ] {
            let features = json!({"default": default, "rigs": ["mailrace-spool/sabotage"], "engines": ["rigs"]});
            let bench = json!({"name": "mailrace-bench", "dependencies": [], "features": features});
            let program = json!({"name": "mailrace", "dependencies": [{"name": "mailrace-bench", "features": asked}]});
            let mut findings = Vec::new();
            check_sabotage(&[program, bench], &mut findings);
            assert_eq!(findings.len(), count, "{findings:?}");
        }
    }

    #[test]
    fn crate_roots() {
        for (text, count) in [
            ("//! A.\n#![forbid(unsafe_code)]", 0),
            ("#![deny(missing_docs, unsafe_code)]", 0),
            ("//! #![forbid(unsafe_code)]", 1),
            ("#![allow(unsafe_code)]", 1),
        ] {
            let mut findings = Vec::new();
            check_crate_root("src/lib.rs", text, &mut findings);
            assert_eq!(findings.len(), count, "{text}");
        }
    }
}
