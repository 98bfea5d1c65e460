//! Reads rule files into a [`Screen`], whole or not at all.

use super::Screen;
use super::content_rules::ContentRules;
use super::filters::{FilterSettings, PooledFilter};
use crate::config::Config;
use filter::{Problem, RuleSet};
use os::safe_file::Trust;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Octets of one rule file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Files of all patterns together.
const FILES_MAX: usize = 1_000;

/// Reads everything that judges mail; `None`: nothing does.
///
/// # Errors
/// Every fault with its file and line; nothing of the files counts then.
pub(crate) fn load(config: &Config, trust: &Trust) -> Result<Option<Arc<Screen>>, Vec<String>> {
    let rules = read_rules(config, trust);
    let rules = rules.map_err(|problems| problems.iter().map(sentence).collect::<Vec<_>>())?;
    let filters: Vec<_> =
        config.filters.iter().filter_map(FilterSettings::of).map(PooledFilter::new).map(Arc::new).collect();
    if rules.is_none() && filters.is_empty() {
        return Ok(None);
    }
    let body_bytes_max = usize::try_from(config.screen.body_bytes_max).unwrap_or(usize::MAX);
    Ok(Some(Arc::new(Screen { rules: rules.map(Arc::new), body_bytes_max, filters })))
}

/// Returns the faults of the rule files of a server with this configuration, for a command. Line 0: of the file as a
/// whole. Reads the files.
#[must_use]
pub fn rule_file_faults(config: &Config) -> Vec<Problem> {
    let trust = Trust::maps_of_server(&config.server.user, &config.server.group, config.maps.group_writable);
    read_rules(config, &trust).err().unwrap_or_default()
}

fn sentence(problem: &Problem) -> String {
    match problem.line {
        0 => format!("screen.rules: {}", problem.text),
        _ => format!("screen.rules: {problem}"),
    }
}

fn read_rules(config: &Config, trust: &Trust) -> Result<Option<ContentRules>, Vec<Problem>> {
    let (mut files, mut problems): (Vec<(String, String)>, Vec<Problem>) = (Vec::new(), Vec::new());
    for pattern in &config.screen.rules {
        match matching(pattern) {
            Ok(paths) => {
                for path in paths {
                    if files.iter().any(|(name, _)| Path::new(name) == path) {
                        continue;
                    }
                    match read(&path, trust) {
                        Ok(text) => files.push((path.display().to_string(), text)),
                        Err(text) => problems.push(of_file(&path, text)),
                    }
                }
            }
            Err(error) => {
                problems.push(of_file(pattern, format!("{} cannot be looked through: {error}", pattern.display())))
            }
        }
    }
    if files.len() > FILES_MAX {
        let text = format!("{} rule files are more than {FILES_MAX}; join some", files.len());
        problems.push(Problem { file: String::new(), line: 0, text });
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let named: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let set = RuleSet::parse(&named)?;
    if set.rules().is_empty() {
        return Ok(None);
    }
    ContentRules::new(set).map(Some)
}

fn of_file(path: &Path, text: String) -> Problem {
    Problem { file: path.display().to_string(), line: 0, text }
}

fn read(path: &Path, trust: &Trust) -> Result<String, String> {
    let shown = path.display();
    let mut text = String::new();
    let (file, _) = trust.open(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{shown} is longer than {FILE_BYTES_MAX} octets; divide it"));
    }
    Ok(text)
}

/// Returns the files of a pattern in the order of their names. A name without `*` and `?` is itself.
fn matching(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let Some(name) = pattern.file_name().and_then(|name| name.to_str()).filter(|name| name.contains(['*', '?'])) else {
        return Ok(vec![pattern.to_owned()]);
    };
    let directory = pattern.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?.file_name();
        // As in a shell, a star does not stand for a leading dot: editors keep copies under such names.
        let fits =
            |entry: &str| (name.starts_with('.') || !entry.starts_with('.')) && fits(name.as_bytes(), entry.as_bytes());
        if entry.to_str().is_some_and(fits) {
            found.push(directory.join(entry));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether a name fits a pattern of `*` and `?`.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // Where the last star stands, and the rest of the name that it has not taken.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(octet) if *octet == b'?' || name.get(n) == Some(octet) => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|octet| *octet == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (pattern, name) in [("*", ""), ("*.rules", "a.rules"), ("a?c*", "abc"), ("*a*b", "xaab"), ("**", "x")] {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("?", ""), ("*.rules", "a.rules~"), ("a?c", "ac"), ("*a*b", "xaba"), ("", "x")] {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_one_set_and_every_fault_is_named() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
        let trust = Trust::maps("", "", true);
        let mut config = Config::default();
        config.screen.rules = vec![place.path().join("*.rules")];
        assert!(load(&config, &trust).unwrap().is_none(), "a pattern may match no file");
        write("b.rules", "rule b {\n  hold\n}\n");
        write("a.rules", "rule a {\n  reject\n}\n");
        write(".c.rules", "no rule\n");
        write("d.rules~", "no rule\n");
        let rules = read_rules(&config, &trust).unwrap().unwrap();
        let names: Vec<&str> = rules.set().rules().iter().map(filter::Rule::name).collect();
        assert_eq!(names, ["a", "b"], "in the order of the names of their files");
        assert!(load(&config, &trust).unwrap().is_some());
        write("b.rules", "rule b {\n  holt\n}\n");
        config.screen.rules.push(place.path().join("missing"));
        let said = load(&config, &trust).unwrap_err();
        assert!(said.len() == 1 && said[0].contains("missing cannot be read"), "{said:?}");
        config.screen.rules.pop();
        let said = load(&config, &trust).unwrap_err();
        assert!(said[0].starts_with("screen.rules: ") && said[0].contains("b.rules line 2: "), "{said:?}");
    }
}
