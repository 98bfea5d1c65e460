//! Licences and sources of everything we build, against the list in `deny.toml`.
//!
//! The same list serves `cargo deny`, which also knows advisories; this check needs nothing installed, so it runs in
//! every `make test`. The expression of a crate passes when the allowed licences satisfy it: `A OR B` with one of them,
//! `A AND B` with both. Crates come from the workspace or from crates.io and from nowhere else.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Report;
use crate::cargo::{self, field};

const DENY: &str = "deny.toml";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every package of the dependency tree.
///
/// # Errors
/// `deny.toml` cannot be read or lists nothing, or cargo cannot be asked.
pub(crate) fn command(root: &Path) -> Result<Report, String> {
    let text = fs::read_to_string(root.join(DENY)).map_err(|e| format!("cannot read {DENY}: {e}"))?;
    let allowed = allowed(&text);
    if allowed.is_empty() {
        return Err(format!("{DENY} has no list `allow = [...]` under [licenses]; write one"));
    }
    let packages = cargo::all_packages(root)?;
    let mut out = String::new();
    let mut refused = 0_usize;
    for package in &packages {
        for complaint in complaints(package, &allowed) {
            refused += 1;
            let _infallible =
                writeln!(out, "{} {}: error: {complaint}", field(package, "name"), field(package, "version"));
        }
    }
    let _infallible = writeln!(out, "licences: {} packages, {refused} refused", packages.len());
    Ok(Report { text: out, failed: refused > 0 })
}

/// The allowed licences, read from the `allow` list under `[licenses]`.
fn allowed(deny: &str) -> Vec<&str> {
    let section = deny.split("\n[").find_map(|section| section.trim_start_matches('[').strip_prefix("licenses]"));
    let list = section.and_then(|section| section.split_once("\nallow = [")).and_then(|(_, rest)| rest.split_once(']'));
    let Some((list, _)) = list else { return Vec::new() };
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or(""));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

/// Returns the faults of one package.
fn complaints(package: &Value, allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let licence = field(package, "license");
    if licence.is_empty() {
        found.push("names no licence; replace the crate, or take its author's word into deny.toml".to_owned());
    } else if !satisfied(licence, allowed) {
        found.push(format!("licence \"{licence}\" is not allowed by {DENY}; replace the crate"));
    }
    let source = field(package, "source");
    if !source.is_empty() && source != CRATES_IO {
        found.push("comes neither from the workspace nor from crates.io; take a released version".to_owned());
    }
    found
}

/// True when the allowed licences satisfy the expression.
fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    let verdict = any(&mut words, allowed);
    verdict && words.is_empty()
}

/// `all OR all …`
fn any(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut verdict = all(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        verdict |= all(words, allowed);
    }
    verdict
}

/// `one AND one …`
fn all(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut verdict = one(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        verdict &= one(words, allowed);
    }
    verdict
}

/// `( any )`, `licence WITH exception` or `licence`
fn one(words: &mut &[&str], allowed: &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let verdict = any(words, allowed);
            if let [")", rest @ ..] = *words {
                *words = rest;
                verdict
            } else {
                false
            }
        }
        [licence, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, rest @ ..] => {
            *words = rest;
            allowed.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CRATES_IO, allowed, complaints, satisfied};

    const ALLOWED: &[&str] = &["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause"];

    #[test]
    fn expressions() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "(MIT OR GPL-2.0) AND BSD-3-Clause",
            "MIT AND (Apache-2.0 OR MPL-2.0)",
        ] {
            assert!(satisfied(good, ALLOWED), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND MPL-2.0", "(MIT OR GPL-2.0", "MIT GPL-2.0", "", "BSD-3-Clause WITH x"] {
            assert!(!satisfied(bad, ALLOWED), "{bad}");
        }
    }

    #[test]
    fn packages() {
        for (licence, source, count) in [
            (json!("MIT"), json!(CRATES_IO), 0),
            (json!("MIT"), json!(null), 0),
            (json!("AGPL-3.0"), json!(CRATES_IO), 1),
            (json!(null), json!("git+https://example.org/x"), 2),
        ] {
            let package = json!({"name": "x", "license": licence, "source": source});
            assert_eq!(complaints(&package, ALLOWED).len(), count, "{package}");
        }
    }

    #[test]
    fn the_list_is_read_from_its_section() {
        let text = "[bans]\nallow = [\"x\"]\n\n[licenses]\nversion = 2\nallow = [\n  \"MIT\", # \"no\"\n  \"ISC\",\n]\n[sources]\nallow = [\"y\"]\n";
        assert_eq!(allowed(text), ["MIT", "ISC"]);
        assert_eq!(allowed("[licenses]\n"), Vec::<&str>::new());
    }
}
