//! Writes the seeds and the dictionary of each fuzz target out of the data of the tests.
//!
//! Seeds are the literals of a crate's `fuzz` module, the files that it includes, and files that fit a target: dialogs,
//! configurations of ours and of sendmail. A dictionary is the words of the seeds. Nothing of it is committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::lex::{Kind, lex};

/// Words of a dictionary.
const WORDS_MAX: usize = 400;
/// Octets of a word.
const WORD_OCTETS: std::ops::RangeInclusive<usize> = 3..=24;

/// Files beside the literals: the target, the folder, the end of the names.
const FILES: [(&str, &str, &str); 6] = [
    ("smtp_session", "crates/smtp/tests/dialogs", ".dialog"),
    ("smtp_client", "crates/smtp/tests/client_dialogs", ".dialog"),
    ("config_config", "examples", ".toml"),
    ("config_sendmail_configuration", "crates/route/src/import/tests", ".mc"),
    ("config_sendmail_configuration", "crates/route/src/import/tests", ".cf"),
    ("route_queue_control", "crates/route/src/import/queue/tests", ".qf"),
];

/// Writes `fuzz/seeds/TARGET/` and `fuzz/seeds/TARGET.dict`, and returns the number of seeds.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn write(root: &Path, target: &str) -> Result<usize, String> {
    let room = target.split('_').next().unwrap_or_default();
    let mut seeds = Vec::new();
    for file in [format!("crates/{room}/src/fuzz.rs"), format!("crates/{room}/src/fuzz/seeds.rs")] {
        let file = root.join(file);
        if let Ok(text) = std::fs::read_to_string(&file) {
            seeds.append(&mut of_source(&file, &text)?);
        }
    }
    for (_, folder, end) in FILES.iter().filter(|(of, _, _)| *of == target) {
        for path in files(&root.join(folder), end)? {
            let bytes = read(&path)?;
            let is_dialog = *end == ".dialog";
            seeds.push(if is_dialog { of_dialog(&bytes, target == "smtp_client") } else { bytes });
        }
    }
    seeds.retain(|seed| !seed.is_empty());
    seeds.sort();
    seeds.dedup();
    let folder = root.join("fuzz/seeds").join(target);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (number, seed) in seeds.iter().enumerate() {
        write_file(&folder.join(format!("{number:03}")), seed)?;
    }
    write_file(&folder.with_extension("dict"), dictionary(&seeds).as_bytes())?;
    Ok(seeds.len())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(end));
    paths.sort();
    Ok(paths)
}

/// The literals of a source file; one behind `include_bytes!` is the content of its file.
fn of_source(file: &Path, text: &str) -> Result<Vec<Vec<u8>>, String> {
    let (tokens, _) = lex(text);
    let mut seeds = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Literal) {
        let before = at.checked_sub(3).and_then(|at| tokens.get(at));
        let is_path = before.is_some_and(|token| token.is("include_bytes") || token.is("include_str"));
        seeds.push(match file.parent().filter(|_| is_path) {
            Some(folder) => read(&folder.join(&token.text))?,
            None => unescape(&token.text),
        });
    }
    Ok(seeds)
}

/// The octets of a literal, as the compiler reads its escapes.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        match escaped {
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Some('n') => out.push(b'\n'),
            Some('r') => out.push(b'\r'),
            Some('t') => out.push(b'\t'),
            Some('0') => out.push(0),
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                out.extend(u8::from_str_radix(&digits, 16).ok());
            }
            Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            Some(other) => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// The input of a dialog: what the client says, or the server, behind an octet that chooses the settings.
fn of_dialog(bytes: &[u8], is_of_client: bool) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let has = |word: &str| text.lines().any(|line| line.starts_with("set ") && line.contains(word));
    let (plain, raw) = if is_of_client { ("S: ", "S\\: ") } else { ("C: ", "C\\: ") };
    let bits = match is_of_client {
        true => u8::from(has("lmtp")) | u8::from(has("login")) << 5,
        false => {
            let front_end = text.contains("machine xclient") || has("starttls");
            u8::from(has("lmtp")) << 2 | u8::from(has("auth")) << 4 | u8::from(front_end) << 6
        }
    };
    let mut seed = vec![bits];
    for line in text.lines() {
        if let Some(line) = line.strip_prefix(plain) {
            seed.extend_from_slice(line.as_bytes());
            seed.extend_from_slice(b"\r\n");
        } else if let Some(line) = line.strip_prefix(raw) {
            seed.extend(unescape(line));
        }
    }
    seed
}

/// The words that stand most often in the seeds, in the form of libFuzzer.
fn dictionary(seeds: &[Vec<u8>]) -> String {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    let is_word = |octet: &u8| octet.is_ascii_alphanumeric() || b"-_:=/$".contains(octet);
    for word in seeds.iter().flat_map(|seed| seed.split(|octet| !is_word(octet))) {
        if WORD_OCTETS.contains(&word.len()) {
            *counts.entry(word).or_default() += 1;
        }
    }
    let mut words: Vec<(&[u8], usize)> = counts.into_iter().collect();
    words.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    words.truncate(WORDS_MAX);
    words.iter().map(|(word, _)| format!("\"{}\"\n", String::from_utf8_lossy(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_seeds() {
        let source = r##"const S: &[&[u8]] = &[b"a\r\n\0\x41\\", "x\
            y", r"z"];"##;
        let seeds = of_source(Path::new("x/seeds.rs"), source).expect("no file is included");
        assert_eq!(seeds, [b"a\r\n\0A\\".to_vec(), b"xy".to_vec(), b"z".to_vec()]);
        assert!(of_source(Path::new("x/seeds.rs"), "include_bytes!(\"not there\")").is_err());
    }

    #[test]
    fn a_dialog_is_what_one_side_says() {
        let dialog = b"set starttls = yes\nC: EHLO a\nS: 250 b\nC\\: x\\n\n";
        assert_eq!(of_dialog(dialog, false), b"\x40EHLO a\r\nx\n");
        assert_eq!(of_dialog(dialog, true), b"\x00250 b\r\n");
    }

    #[test]
    fn frequent_words_come_first() {
        assert_eq!(
            dictionary(&[b"MAIL FROM:<a> SIZE=".to_vec(), b"SIZE= x".to_vec()]),
            "\"SIZE=\"\n\"FROM:\"\n\"MAIL\"\n"
        );
    }
}
