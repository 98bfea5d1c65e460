//! `newaliases` and `praliases`: the content of the files of aliases.
//!
//! The text file counts, and the server reads it again by itself: `newaliases` checks it and the files it names, prints
//! sendmail's line, and has the server look at once. It writes nothing, unless the configuration names a `.db` or
//! `.cdb` file beside the text. Files are read as the server reads them.

use super::exit;
use super::site::Site;
use super::{print, said};
use crate::control_client::Control;
use operator::control::Request;
use route::Source;
use route::map::Format;
use server::config::MapSource;
use server::explain::aliases::{AliasFile, AliasLintContext};
use std::path::{Path, PathBuf};

/// The file where no other is named.
const USUAL: &str = "/etc/aliases";

/// The files of aliases that the configuration names.
fn named(site: &Site) -> Vec<PathBuf> {
    let files = site.config.maps.aliases.iter().filter_map(|source| match source {
        MapSource::File(path) => Some(path.clone()),
        MapSource::Ldap(_) | MapSource::Sqlite(_) => None,
    });
    files.collect()
}

/// The same, or the default where it names none.
fn files(site: &Site) -> Vec<PathBuf> {
    let named = named(site);
    let usual = || ["/etc/mail/aliases", USUAL].into_iter().map(PathBuf::from).find(|path| path.exists());
    if named.is_empty() { usual().into_iter().collect() } else { named }
}

/// Runs `newaliases`, and returns the exit status. Doubtful lines are printed and do not change it.
pub(super) fn run_newaliases(site: &Site) -> u8 {
    let files = files(site);
    if files.is_empty() {
        eprintln!("newaliases: no file of aliases: maps.aliases is empty, and there is no {USUAL}");
        return exit::CONFIG;
    }
    if site.config.maps.aliases.is_empty() {
        let text = "maps.aliases is empty: no mail goes by this file; name it there";
        files.iter().for_each(|file| eprintln!("newaliases: {}: {text}", file.display()));
    }
    let surroundings = AliasLintContext::new(&site.config);
    let mut status = exit::OK;
    let mut sources = Vec::new();
    for path in files {
        match renew_one(&path, &surroundings) {
            Ok((text, file)) => {
                let printed = print(&text);
                if file.ignored > 0 {
                    // As sendmail has it: the other lines hold.
                    status = exit::SOFTWARE;
                } else if status == exit::OK {
                    status = printed;
                }
                sources.push(Source::Loaded(file.table));
            }
            Err(text) => {
                eprintln!("newaliases: {text}");
                status = exit::SYSTEM_FILE;
            }
        }
    }
    for lint in surroundings.lint(&sources).into_iter().chain(surroundings.lint_forwards()) {
        let line = lint.place.line.map_or_else(String::new, |line| format!(" line {line}:"));
        eprintln!("{}:{line} {}; {}", lint.place.file, lint.text, lint.hint);
    }
    // The server sees a changed file by itself; this only saves the moment until then.
    if let Ok(mut control) = Control::connect(&site.config.control.path)
        && let Err(failure) = control.request(&Request::Reload)
    {
        return said("newaliases", &failure);
    }
    status
}

/// Returns sendmail's line about a file, and the file. A database is made anew from the text beside it.
fn renew_one(path: &Path, surroundings: &AliasLintContext) -> Result<(String, AliasFile), String> {
    let is_database = path.extension().is_some_and(|end| end == "db" || end == "cdb");
    let text_path = if is_database { path.with_extension("") } else { path.to_owned() };
    let name = text_path.display();
    let file = surroundings.read(&text_path).map_err(|error| format!("cannot open {name}: {error}"))?;
    if file.table.format() != Format::Text {
        return Err(format!(
            "{name}: it is a database already; maps.aliases names the text, or the database beside it"
        ));
    }
    for complaint in &file.complaints {
        let line = complaint.line.map_or_else(String::new, |line| format!(" line {line}:"));
        eprintln!("{name}:{line} {}", complaint.text);
    }
    if is_database {
        let entries = file.table.iter().map(|hit| (hit.key, hit.value)).chain([("@", "@")]);
        let entries: Vec<(Vec<u8>, Vec<u8>)> =
            entries.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        super::makemap::write_database(path, &entries, path.extension().is_some_and(|end| end == "db"))?;
    }
    Ok((format!("{name}: {}\n", file.summary), file))
}

/// Runs `praliases [-f FILE] [KEY…]`, and returns the exit status.
pub(super) fn run_praliases(words: &[String], site: &Site) -> u8 {
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
    let surroundings = AliasLintContext::new(&site.config);
    let mut text = String::new();
    let mut known = std::collections::BTreeMap::new();
    for path in files {
        match surroundings.read(&path) {
            Ok(file) => file.table.iter().for_each(|hit| {
                known.entry(hit.key.to_owned()).or_insert_with(|| hit.value.to_owned());
            }),
            Err(error) => {
                eprintln!("praliases: {}: open: {error}", path.display());
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

#[cfg(test)]
mod tests {
    use super::*;
    use server::config::Config;

    #[test]
    fn what_newaliases_says_is_what_sendmail_says() {
        let surroundings = AliasLintContext::new(&Config::default());
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("aliases");
        std::fs::write(&path, "root: joe\nlist: joe, ann, ext@x.test\n").unwrap();
        let (said, file) = renew_one(&path, &surroundings).unwrap();
        assert_eq!(said, format!("{}: 2 aliases, longest 20 bytes, 31 bytes total\n", path.display()));
        assert_eq!((file.ignored, std::fs::read_dir(place.path()).unwrap().count()), (0, 1), "nothing is written");
        for end in ["db", "cdb"] {
            let database = path.with_extension(end);
            renew_one(&database, &surroundings).unwrap();
            let made = surroundings.read(&database).unwrap();
            let mut aliases: Vec<_> = made.table.iter().map(|hit| (hit.key, hit.value)).collect();
            aliases.retain(|(key, _)| *key != "@");
            aliases.sort_unstable();
            assert_eq!(aliases, [("list", "joe, ann, ext@x.test"), ("root", "joe")], "{end}");
        }
        std::fs::write(&path, "a: b\nno colon\n").unwrap();
        assert_eq!(renew_one(&path, &surroundings).unwrap().1.ignored, 1);
        assert!(renew_one(&place.path().join("none"), &surroundings).is_err());
        assert!(
            renew_one(&place.path().join("aliases.db.db"), &surroundings).unwrap_err().contains("a database already")
        );
    }
}
