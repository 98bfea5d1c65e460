//! `makemap`: a map as text becomes a database, and back.

use super::{exit, print};
use route::map::{MapFile, Table, berkeley, cdb};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

const USAGE: &str = "Usage: makemap [-C cffile] [-N] [-c cachesize] [-D commentchar] [-d] [-e] [-f] [-l] [-o] [-r] [-s] [-t delimiter] [-u] [-v] type mapname";

/// The options that mean something here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    adds_nul: bool,
    allows_duplicates: bool,
    allows_empty: bool,
    keeps_case: bool,
    appends: bool,
    replaces: bool,
    dumps: bool,
    is_verbose: bool,
    comment: Option<char>,
    delimiter: Option<char>,
    words: Vec<String>,
}

/// Makes a map; the exit status.
pub(super) fn run(words: &[String]) -> u8 {
    let options = match Options::read(words) {
        Ok(Some(options)) => options,
        Ok(None) => return print("hash\ncdb\n"),
        Err(text) => {
            eprintln!("makemap: {text}\n{USAGE}");
            return exit::USAGE;
        }
    };
    let [kind, name] = options.words.as_slice() else {
        eprintln!("{USAGE}");
        return exit::USAGE;
    };
    let is_hash = match kind.as_str() {
        "hash" => true,
        "cdb" => false,
        "btree" | "dbm" if !options.dumps => {
            eprintln!(
                "makemap: type {kind} is not written here: use hash, which is found as fast, or cdb; mailrace reads btree files"
            );
            return exit::UNAVAILABLE;
        }
        "btree" => true,
        _ => {
            eprintln!("makemap: Unknown type {kind}; there are hash and cdb");
            return exit::UNAVAILABLE;
        }
    };
    let end = if is_hash { "db" } else { "cdb" };
    let path = PathBuf::from(name);
    let path = if path.extension().is_some_and(|found| found == end) { path } else { format!("{name}.{end}").into() };
    if options.dumps { dump(&path, &options) } else { make(&path, name, is_hash, &options) }
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

impl Options {
    /// `None`: the types are to be listed.
    fn read(words: &[String]) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                options.words.push(word.clone());
                continue;
            };
            let mut rest = letters.chars();
            while let Some(letter) = rest.next() {
                let mut value = || {
                    let attached: String = rest.by_ref().collect();
                    if attached.is_empty() { words.next().cloned() } else { Some(attached) }
                        .ok_or_else(|| format!("option requires an argument -- {letter}"))
                };
                match letter {
                    'N' => options.adds_nul = true,
                    'd' => options.allows_duplicates = true,
                    'e' => options.allows_empty = true,
                    'f' => options.keeps_case = true,
                    'o' => options.appends = true,
                    'r' => options.replaces = true,
                    'u' => options.dumps = true,
                    'v' => options.is_verbose = true,
                    's' | 'i' => {}
                    'l' => return Ok(None),
                    'C' | 'c' => drop(value()?),
                    'D' => options.comment = value()?.chars().next(),
                    't' => options.delimiter = value()?.chars().next(),
                    other => return Err(format!("illegal option -- {other}")),
                }
            }
        }
        Ok(Some(options))
    }

    /// The entries of a text, and the faults of its other lines.
    fn entries(&self, name: &str, text: &[u8]) -> (Vec<Pair>, Vec<String>) {
        let (mut entries, mut wrong, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        let comment = self.comment.unwrap_or('#') as u32;
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let first = line.first().copied();
            if first.is_none_or(|byte| u32::from(byte) == comment) || line.trim_ascii().is_empty() {
                continue;
            }
            let is_gap = |byte: &u8| match self.delimiter {
                Some(delimiter) => u32::from(*byte) == delimiter as u32,
                None => byte.is_ascii_whitespace(),
            };
            if first.as_ref().is_some_and(|byte| self.delimiter.is_none() && is_gap(byte)) {
                wrong.push(format!("makemap: {name}: line {number}: syntax error (leading space)"));
                continue;
            }
            let end = line.iter().position(is_gap).unwrap_or(line.len());
            let (key, value) = line.split_at(end);
            let from = value.iter().position(|byte| !is_gap(byte)).unwrap_or(value.len());
            let value = value.get(from..).unwrap_or_default();
            let shown = String::from_utf8_lossy(key);
            if value.is_empty() && !self.allows_empty {
                wrong.push(format!("makemap: {name}: line {number}: no RHS for LHS {shown}"));
                continue;
            }
            let key = if self.keeps_case { key.to_vec() } else { key.to_ascii_lowercase() };
            if !self.allows_duplicates && !self.replaces && !seen.insert(key.clone()) {
                wrong.push(format!("makemap: {name}: line {number}: key {shown}: duplicate key"));
                continue;
            }
            entries.push((key, value.to_vec()));
        }
        if self.replaces {
            // The last one counts: of equal keys the first is written.
            entries.reverse();
        }
        (entries, wrong)
    }
}

fn make(path: &Path, name: &str, is_hash: bool, options: &Options) -> u8 {
    let mut text = Vec::new();
    if let Err(error) = io::stdin().lock().read_to_end(&mut text) {
        eprintln!("makemap: standard input: {error}");
        return exit::IO;
    }
    let (mut entries, wrong) = options.entries(name, &text);
    if options.appends {
        match read(path) {
            Ok(table) => {
                let old = table.iter().map(|hit| (hit.key.as_bytes().to_vec(), hit.value.as_bytes().to_vec()));
                entries.extend(old.collect::<Vec<_>>());
            }
            Err((status, text)) => {
                eprintln!("makemap: {text}");
                return status;
            }
        }
    }
    if options.is_verbose {
        for (key, value) in &entries {
            super::say(format_args!(
                "key=`{}', val=`{}'\n",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(value)
            ));
        }
    }
    if options.adds_nul {
        for (key, value) in &mut entries {
            key.push(0);
            value.push(0);
        }
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    match write_database(path, &entries, is_hash) {
        Ok(()) if wrong.is_empty() => exit::OK,
        Ok(()) => exit::DATA,
        Err(text) => {
            eprintln!("makemap: {text}");
            exit::CANNOT_CREATE
        }
    }
}

fn read(path: &Path) -> Result<Table, (u8, String)> {
    let name = path.display().to_string();
    let bytes =
        std::fs::read(path).map_err(|error| (exit::NO_INPUT, format!("error opening type map {name}: {error}")))?;
    let loaded = Table::read(MapFile { name: "map", file: &name, bytes, fold: false });
    loaded.map(|loaded| loaded.table).map_err(|error| (exit::DATA, error.to_string()))
}

fn dump(path: &Path, options: &Options) -> u8 {
    match read(path) {
        Ok(table) => {
            let gap = options.delimiter.unwrap_or('\t');
            let lines = table.iter().map(|hit| format!("{}{gap}{}\n", hit.key, hit.value));
            print(&lines.collect::<String>())
        }
        Err((status, text)) => {
            eprintln!("makemap: {text}");
            status
        }
    }
}

/// Writes a database whole: a reader sees the old one or the new one.
///
/// # Errors
/// It cannot be written; the old one is there.
pub(super) fn write_database(path: &Path, entries: &[(Vec<u8>, Vec<u8>)], is_hash: bool) -> Result<(), String> {
    let pairs = || entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
    let bytes = if is_hash { berkeley::write_hash(pairs()) } else { cdb::write(pairs()) };
    let bytes = bytes.map_err(|_| format!("{}: the map is too large for a file of this kind", path.display()))?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        // The rights of the old one are those of the new one.
        if let Ok(found) = std::fs::metadata(path) {
            file.set_permissions(found.permissions())?;
        }
        file.write_all(&bytes)?;
        file.sync_all()?;
        #[expect(clippy::disallowed_methods, reason = "the file is synced, and a map that is lost is made again")]
        std::fs::rename(&new, path)
    };
    write().map_err(|error| {
        drop(std::fs::remove_file(&new));
        format!("error creating type map {}: {error}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Options::read(&words).unwrap().unwrap()
    }

    #[test]
    fn lines_are_entries_or_complaints() {
        let text = b"# c\nA.Test  esmtp:[x]\nb\nA.test again\n c d\ne\tf g \n\n";
        let (entries, wrong) = options("hash m").entries("m", text);
        let text_of = |entries: &[(Vec<u8>, Vec<u8>)]| {
            entries
                .iter()
                .map(|(key, value)| format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value)))
                .collect::<Vec<_>>()
        };
        assert_eq!(text_of(&entries), ["a.test=esmtp:[x]", "e=f g "]);
        let expected = [
            "makemap: m: line 3: no RHS for LHS b",
            "makemap: m: line 4: key A.test: duplicate key",
            "makemap: m: line 5: syntax error (leading space)",
        ];
        assert_eq!(wrong, expected);
        let (entries, wrong) = options("-d -e -f -t: -D; hash m").entries("m", b"; c\nA:b:c\nA:d\ne:\n");
        assert_eq!(
            (text_of(&entries), wrong),
            (vec!["A=b:c".to_owned(), "A=d".to_owned(), "e=".to_owned()], Vec::new())
        );
    }

    #[test]
    fn what_is_made_is_read_back() {
        let place = tempfile::tempdir().unwrap();
        let entries = [(b"a".to_vec(), b"b c".to_vec()), (b"d".to_vec(), b"e".to_vec())];
        for (name, is_hash) in [("m.db", true), ("m.cdb", false)] {
            let path = place.path().join(name);
            write_database(&path, &entries, is_hash).unwrap();
            let table = read(&path).unwrap();
            assert_eq!((table.len(), table.get("a").map(|hit| hit.value)), (2, Some("b c")), "{name}");
        }
        assert!(write_database(&place.path().join("none/m.db"), &entries, true).is_err());
        assert!(Options::read(&["-Z".to_owned()]).is_err() && Options::read(&["-l".to_owned()]) == Ok(None));
    }
}
