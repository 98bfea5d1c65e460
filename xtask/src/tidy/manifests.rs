//! Every external dependency says why it is there.
//!
//! Reads the manifest line by line, because a TOML parser would drop the comments this rule is about. The reason stands
//! on the line itself or directly above it. A line that takes the version from the workspace has its reason there.

use super::Finding;

/// The shortest comment that can be a reason, in characters.
const REASON_CHARS_MIN: usize = 12;

/// Checks the dependency lines of one manifest.
pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let mut in_dependencies = false;
    let mut above = "";
    let mut open_brackets = 0_i64;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let (code, comment) = split_comment(line);
        if open_brackets > 0 {
            open_brackets += balance(code);
        } else if let Some(header) = code.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            in_dependencies = header.ends_with("dependencies");
            // `[dependencies.name]`: the header itself is the dependency line.
            if let Some((table, name)) = header.rsplit_once('.')
                && table.ends_with("dependencies")
                && !has_reason(above)
                && !has_reason(comment)
            {
                findings.push(missing(path, number + 1, name));
            }
        } else if in_dependencies && let Some((key, value)) = code.split_once('=') {
            open_brackets += balance(value);
            let (name, ours) = read(key.trim(), value);
            if !ours && !has_reason(above) && !has_reason(comment) {
                findings.push(missing(path, number + 1, name));
            }
        }
        above = if code.is_empty() { comment } else { "" };
    }
}

/// The name of a dependency, and whether it is ours or takes everything from the workspace.
fn read<'a>(key: &'a str, value: &str) -> (&'a str, bool) {
    let (name, attribute) = key.split_once('.').unwrap_or((key, ""));
    let value: String = value.chars().filter(|c| !c.is_whitespace()).collect();
    let from_workspace = attribute == "workspace" || value.contains("workspace=true");
    (name, from_workspace || value.contains("path=\""))
}

fn missing(path: &str, line: usize, name: &str) -> Finding {
    let message = format!("dependency {name} without a reason; say in a comment above it what it does for us");
    Finding::error(path, line, message)
}

fn has_reason(comment: &str) -> bool {
    comment.trim_start_matches('#').trim().chars().count() >= REASON_CHARS_MIN
}

/// Brackets opened minus brackets closed.
fn balance(code: &str) -> i64 {
    code.chars().fold(0, |sum, c| match c {
        '[' | '{' => sum + 1,
        ']' | '}' => sum - 1,
        _ => sum,
    })
}

/// Splits a line at the `#` that starts its comment, if it has one outside of quotes.
fn split_comment(line: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => {
                let (code, comment) = line.split_at(at);
                return (code.trim(), comment);
            }
            _ => {}
        }
    }
    (line, "")
}

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn finds(text: &str, lines: &[usize]) {
        let mut findings = Vec::new();
        check("Cargo.toml", text, &mut findings);
        let seen: Vec<usize> = findings.iter().map(|f| f.line).collect();
        assert_eq!(seen, lines, "{text}");
    }

    #[test]
    fn a_dependency_needs_a_reason() {
        finds("[dependencies]\nserde = \"1\"\n", &[2]);
        finds("[dev-dependencies]\n# ok\nserde = \"1\"\n", &[3]);
        finds(
            "[target.'cfg(unix)'.dependencies]\nrustix = { version = \"1\", features = [\n \"fs\",\n] }\nlibc = \"1\"",
            &[2, 5],
        );
        finds("[workspace.dependencies]\n# Checksums of frames, in hardware.\ncrc32c = \"0.6\"\nserde = \"1\"\n", &[4]);
        finds("[dependencies.serde]\nversion = \"1\"\n", &[1]);
    }

    #[test]
    fn a_reason_stands_beside_or_above() {
        finds("[dependencies]\nserde = \"1\" # reads the configuration file\n", &[]);
        finds("[dependencies]\n# Reads the configuration file.\nserde = { version = \"1\" }\n", &[]);
        finds("[dependencies]\nmail.workspace = true\nspool = { workspace = true }\nx = { path = \"../x\" }\n", &[]);
        finds("[features]\nengines = [\"dep:redb\"]\n[package]\nname = \"a#b\"\n", &[]);
    }
}
