//! `newaliases` and `praliases`: what stands in the files of aliases.
//!
//! A text file is what counts, and the server reads it again by itself: `newaliases` looks through it, says what sendmail's says,
//! and has the server look at once. It writes nothing, unless the configuration names a `.db` or `.cdb` file beside the text.

use super::exit;
use super::site::Site;
use super::{print, said};
use crate::control_client::Control;
use route::map::{Format, Reading, Table};
use server::config::MapSource;
use server::control::Request;
use std::path::{Path, PathBuf};

/// The file where no other is named.
const USUAL: &str = "/etc/aliases";

/// An alias: its name, its value on one line, and the line of the file.
pub(super) type Alias = (String, String, u32);

/// Names and values of a file of aliases as text.
///
/// A line that begins with a blank, or follows one that ends with a backslash, belongs to the one before; `#` begins a line
/// that counts for nothing. Lines that are no alias are returned with what is wrong with them.
pub(super) fn read_text(text: &str) -> (Vec<Alias>, Vec<(u32, String)>) {
    let (mut aliases, mut wrong): (Vec<Alias>, Vec<(u32, String)>) = (Vec::new(), Vec::new());
    let mut continues = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        let (body, goes_on) = line.strip_suffix('\\').map_or((line, false), |body| (body, true));
        let is_continued = std::mem::replace(&mut continues, goes_on) || line.starts_with([' ', '\t']);
        if body.trim().is_empty() || (!is_continued && body.starts_with('#')) {
            continue;
        }
        if is_continued {
            match aliases.last_mut() {
                Some((_, value, _)) => {
                    value.push(' ');
                    value.push_str(body.trim());
                }
                None => wrong.push((number, "begins with a blank, and there is no alias before it".to_owned())),
            }
            continue;
        }
        match divided(body) {
            Some((name, value)) => aliases.push((name.to_lowercase(), value.trim().to_owned(), number)),
            None => wrong.push((number, format!("{:?} lacks a colon behind the name", body.trim()))),
        }
    }
    for (name, value, number) in &aliases {
        if value.is_empty() {
            wrong.push((*number, format!("{name:?} has no value")));
        }
    }
    (aliases, wrong)
}

/// At the colon behind the name, which may be in quotes.
fn divided(line: &str) -> Option<(&str, &str)> {
    if let Some(rest) = line.strip_prefix('"') {
        let (name, rest) = rest.split_once('"')?;
        return Some((name, rest.trim_start().strip_prefix(':')?));
    }
    let (name, value) = line.split_once(':')?;
    Some((name.trim(), value)).filter(|(name, _)| !name.is_empty())
}

/// The files of aliases that the configuration names.
fn files(site: &Site) -> Vec<PathBuf> {
    let named = site.config.maps.aliases.iter().filter_map(|source| match source {
        MapSource::File(path) => Some(path.clone()),
        MapSource::Ldap(_) | MapSource::Sqlite(_) => None,
    });
    let named: Vec<PathBuf> = named.collect();
    let usual = || ["/etc/mail/aliases", USUAL].into_iter().map(PathBuf::from).find(|path| path.exists());
    if named.is_empty() { usual().into_iter().collect() } else { named }
}

/// `newaliases`: the exit status.
pub(super) fn renew(site: &Site) -> u8 {
    let files = files(site);
    if files.is_empty() {
        eprintln!("newaliases: no file of aliases: maps.aliases is empty, and there is no {USUAL}");
        return exit::CONFIG;
    }
    let mut status = exit::OK;
    for path in files {
        match renew_one(&path) {
            Ok((text, is_whole)) => {
                let printed = print(&text);
                if !is_whole {
                    status = exit::DATA;
                } else if printed != exit::OK {
                    status = printed;
                }
            }
            Err(text) => {
                eprintln!("newaliases: {text}");
                status = exit::SYSTEM_FILE;
            }
        }
    }
    // The server sees a changed file by itself; this only saves the moment until then.
    if let Ok(mut control) = Control::connect(&site.config.control.path)
        && let Err(failure) = control.ask(&Request::Reload)
    {
        return said("newaliases", &failure);
    }
    status
}

/// What sendmail says of a file, and whether all of it is right. A database is made anew from the text beside it.
fn renew_one(path: &Path) -> Result<(String, bool), String> {
    let is_database = path.extension().is_some_and(|end| end == "db" || end == "cdb");
    let text_path = if is_database { path.with_extension("") } else { path.to_owned() };
    let text = std::fs::read(&text_path).map_err(|error| format!("{}: {error}", text_path.display()))?;
    let (aliases, wrong) = read_text(&String::from_utf8_lossy(&text));
    let name = text_path.display();
    for (line, what) in &wrong {
        eprintln!("{name}: line {line}: {what}");
    }
    let mut seen = std::collections::HashSet::new();
    let mut is_whole = wrong.is_empty();
    for (key, _, line) in &aliases {
        if !seen.insert(key.as_str()) {
            eprintln!("{name}: line {line}: duplicate alias name {key}");
            is_whole = false;
        }
    }
    if is_database {
        let entries: Vec<(Vec<u8>, Vec<u8>)> = aliases
            .iter()
            .map(|(key, value, _)| (key.as_str(), value.as_str()))
            .chain([("@", "@")])
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        super::makemap::write_database(path, &entries, path.extension().is_some_and(|end| end == "db"))?;
    }
    let longest = aliases.iter().map(|(_, value, _)| value.len()).max().unwrap_or(0);
    let total: usize = aliases.iter().map(|(key, value, _)| key.len() + value.len()).sum();
    Ok((format!("{name}: {} aliases, longest {longest} bytes, {total} bytes total\n", aliases.len()), is_whole))
}

/// `praliases [-f FILE] [KEY…]`: the exit status.
pub(super) fn show(words: &[String], site: &Site) -> u8 {
    let (mut words, mut file) = (words.iter(), None);
    let mut keys = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix('-').map(|option| option.split_at_checked(1)) {
            None => keys.push(word.to_lowercase()),
            Some(Some(("f", ""))) => file = words.next().map(PathBuf::from),
            Some(Some(("f", path))) => file = Some(PathBuf::from(path)),
            // -C FILE was read with the configuration.
            Some(Some(("C", ""))) => drop(words.next()),
            Some(Some(("C", _))) => {}
            Some(_) => {
                eprintln!("usage: praliases [-C FILE] [-f FILE] [KEY…]");
                return exit::USAGE;
            }
        }
    }
    let files = file.map_or_else(|| files(site), |file| vec![file]);
    let mut text = String::new();
    let mut known = std::collections::BTreeMap::new();
    for path in files {
        match read_any(&path) {
            Ok(aliases) => aliases.into_iter().for_each(|(key, value)| {
                known.entry(key).or_insert(value);
            }),
            Err(why) => {
                eprintln!("praliases: {why}");
                return exit::NO_INPUT;
            }
        }
    }
    match keys.is_empty() {
        true => known.iter().for_each(|(key, value)| text.push_str(&format!("{key}:{value}\n"))),
        false => keys.iter().for_each(|key| match known.get(key) {
            Some(value) => text.push_str(&format!("{key}:{value}\n")),
            None => text.push_str(&format!("{key}: No such key\n")),
        }),
    }
    print(&text)
}

/// Text or database, by its content.
fn read_any(path: &Path) -> Result<Vec<(String, String)>, String> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| format!("{name}: open: {error}"))?;
    let is_text = Table::read(Reading { name: "aliases", file: &name, bytes: bytes.clone(), fold: true });
    match is_text {
        Ok(loaded) if loaded.table.format() != Format::Text => {
            Ok(loaded.table.iter().map(|hit| (hit.key.to_owned(), hit.value.to_owned())).collect())
        }
        Err(error) if std::str::from_utf8(&bytes).is_err() => Err(error.to_string()),
        _ => {
            let (aliases, _) = read_text(&String::from_utf8_lossy(&bytes));
            Ok(aliases.into_iter().map(|(key, value, _)| (key, value)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_aliases() {
        let text = "# c\nRoot: joe\nlist: joe,\n\tann,\n  ext@x.test\n\"a b\": c\nback: d, \\\ne\nno colon\nempty:\n";
        let (aliases, wrong) = read_text(text);
        let found: Vec<_> = aliases.iter().map(|(key, value, line)| (key.as_str(), value.as_str(), *line)).collect();
        assert_eq!(
            found,
            [
                ("root", "joe", 2),
                ("list", "joe, ann, ext@x.test", 3),
                ("a b", "c", 6),
                ("back", "d, e", 7),
                ("empty", "", 10)
            ]
        );
        assert_eq!(wrong.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [9, 10]);
        assert_eq!(read_text(" x\n").1.len(), 1);
    }

    #[test]
    fn what_newaliases_says_is_what_sendmail_says() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("aliases");
        std::fs::write(&path, "root: joe\nlist: joe, ann, ext@x.test\n").unwrap();
        let expected = format!("{}: 2 aliases, longest 20 bytes, 31 bytes total\n", path.display());
        assert_eq!(renew_one(&path), Ok((expected, true)));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing is written");
        for end in ["db", "cdb"] {
            let database = path.with_extension(end);
            renew_one(&database).unwrap();
            let mut aliases = read_any(&database).unwrap();
            aliases.retain(|(key, _)| key != "@");
            aliases.sort();
            assert_eq!(
                aliases,
                [("list".to_owned(), "joe, ann, ext@x.test".to_owned()), ("root".to_owned(), "joe".to_owned())],
                "{end}"
            );
        }
        std::fs::write(&path, "a: b\na: c\n").unwrap();
        assert!(!renew_one(&path).unwrap().1);
        assert!(renew_one(&place.path().join("none")).is_err());
    }
}
