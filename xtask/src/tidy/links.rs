//! Links between pages lead somewhere.
//!
//! Only links to files of the tree are followed; addresses on the network and anchors within a page are not.

use std::collections::BTreeSet;

use super::Finding;

/// Checks every relative link of a Markdown page against the files of the tree.
pub(super) fn check(path: &str, text: &str, files: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for part in line.split("](").skip(1) {
            let Some((target, _)) = part.split_once(')') else { continue };
            let target = target.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let resolved = resolve(path, target);
            let folder = format!("{resolved}/");
            let exists = files.contains(resolved.as_str())
                || files.range(folder.as_str()..).next().is_some_and(|next| next.starts_with(&folder));
            if !exists {
                let message =
                    format!("link to \"{target}\", which is not in the tree; write the page or drop the link");
                findings.push(Finding::error(path, number + 1, message));
            }
        }
    }
}

/// The path from the root that `target` means on the page `page`.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::check;

    #[track_caller]
    fn finds(text: &str, count: usize) {
        let files = BTreeSet::from(["README.md", "docs/spool.md", "docs/decisions/README.md"]);
        let mut findings = Vec::new();
        check("docs/README.md", text, &files, &mut findings);
        assert_eq!(findings.len(), count, "{text}: {findings:?}");
    }

    #[test]
    fn dead_links() {
        finds("[a](gone.md)", 1);
        finds("[a](README.md#x) [b](../gone/)", 2);
        finds("[a](decisions/0001-gone.md)", 1);
    }

    #[test]
    fn living_links() {
        finds("[a](spool.md) [b](../README.md#state) [c](decisions/) [d](https://example.org/x) [e](#here)", 0);
        finds("```\n[a](gone.md)\n```\nf(a)[b](spool.md)", 0);
    }
}
