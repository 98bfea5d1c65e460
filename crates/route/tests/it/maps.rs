//! Map files of other programs, the files written here, and damage of both.
//!
//! `maps/make.sh` says how the files were made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use route::map::{Format, Loaded, MapFile, MapFileError, Table, berkeley, cdb};
use testkit::needs;

fn read_bytes(bytes: Vec<u8>, fold: bool) -> Result<Loaded, MapFileError> {
    Table::read(MapFile { name: "test", file: "test.db", bytes, fold })
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/maps").join(file)
}

fn bytes_of(file: &str) -> Vec<u8> {
    std::fs::read(path(file)).expect("the file is in the repository")
}

fn read(file: &str) -> Loaded {
    read_bytes(bytes_of(file), true).expect("readable")
}

fn sorted(table: &Table) -> BTreeMap<String, String> {
    let entries: BTreeMap<_, _> = table.iter().map(|hit| (hit.key.to_owned(), hit.value.to_owned())).collect();
    assert_eq!(entries.len(), table.len());
    for (key, value) in &entries {
        assert_eq!(table.get(key).map(|hit| hit.value), Some(value.as_str()), "{key}");
    }
    entries
}

/// Files of the same entries, and their formats.
const SAME: [(&str, Format); 9] = [
    ("makemap-hash.db", Format::BerkeleyHash),
    ("makemap-btree.db", Format::BerkeleyBtree),
    ("little-hash.db", Format::BerkeleyHash),
    ("big-hash.db", Format::BerkeleyHash),
    ("little-btree.db", Format::BerkeleyBtree),
    ("big-btree.db", Format::BerkeleyBtree),
    ("checksum-hash.db", Format::BerkeleyHash),
    ("checksum-btree.db", Format::BerkeleyBtree),
    ("tinycdb.cdb", Format::Cdb),
];

#[test]
fn databases_agree_with_the_text_they_are_made_of() {
    let text = read("entries");
    assert_eq!((text.table.len(), text.table.format()), (68, Format::Text));
    assert!(text.complaints.is_empty());
    let expected = sorted(&text.table);
    for (file, format) in SAME {
        let loaded = read(file);
        assert_eq!((sorted(&loaded.table), loaded.table.format()), (expected.clone(), format), "{file}");
        assert_eq!(loaded.complaints, [], "{file}");
        assert!(loaded.table.iter().all(|hit| hit.line.is_none()));
    }
}

/// The negative control of the checksum is the same file without its flag: the change goes unnoticed there.
#[test]
fn checksums_are_compared() {
    for (file, flagless) in [("checksum-hash.db", "little-hash.db"), ("checksum-btree.db", "big-btree.db")] {
        let mut found = 0;
        for (file, error) in [(file, true), (flagless, false)] {
            let mut bytes = bytes_of(file);
            let at = memchr::memmem::find(&bytes, b"smtp:[10.0.0.3]").expect("a value");
            bytes[at] = b'S';
            match read_bytes(bytes, true) {
                Ok(loaded) => {
                    assert_eq!(loaded.table.get(".example.com").map(|hit| hit.value), Some("Smtp:[10.0.0.3]"))
                }
                Err(text) => {
                    assert!(error && text.what().ends_with("its checksum is wrong"), "{text}");
                    found += 1;
                }
            }
        }
        assert_eq!(found, 1, "{file}");
    }
}

#[test]
fn aliases_of_newaliases() {
    let loaded = read("newaliases.db");
    assert_eq!(loaded.complaints, []);
    assert!(loaded.table.has_alias_token() && loaded.table.get("@").is_none());
    assert!(!read("makemap-hash.db").table.has_alias_token());
    let value = |key| loaded.table.get(key).map(|hit| hit.value);
    assert_eq!(loaded.table.len(), 4);
    assert_eq!(value("Root"), Some("joe, \"Mary Ann\"@example.net,\tbob@example.org"));
    assert_eq!(value("ops"), Some(":include:/etc/mail/ops, |\"/usr/bin/vacation joe\""));
    assert_eq!(value("\"some one\""), Some("/dev/null"));
    assert_eq!(value("postmaster"), Some("root"));
}

#[test]
fn of_several_values_the_first_counts() {
    let expected = sorted(&read("entries").table);
    for file in ["duplicates-hash.db", "duplicates-btree.db"] {
        let loaded = read(file);
        let mut entries = sorted(&loaded.table);
        assert!(loaded.complaints.len() >= 20, "{file}: {:?}", loaded.complaints);
        let many = entries.remove("many");
        let said = |part: &str| loaded.complaints.iter().any(|complaint| complaint.text.contains(part));
        assert!(many == Some(String::from("value 1 of many")) || said("\"many\" has many values"), "{file}: {many:?}");
        // The key of which all values lie on pages of their own is ignored, and said to be.
        for (key, value) in &expected {
            let found = entries.get(key);
            let shown = if key.len() > 60 { format!("{}…", &key[..60]) } else { key.clone() };
            assert!(found == Some(value) || said(&format!("\"{shown}\" has many")), "{file} {key}: {found:?}");
        }
    }
}

#[test]
fn what_is_not_read_is_named() {
    let error = |file| read_bytes(bytes_of(file), true).expect_err(file);
    assert_eq!(
        error("encrypted.db").to_string(),
        "test.db: it is encrypted; name the text file instead, or make a hash or cdb file of it with makemap"
    );
    assert_eq!(error("several.db").what(), "it holds several databases");
    assert_eq!(error("queue.db").what(), "it is a queue of Berkeley DB, not a hash or btree");
    let mut bytes = bytes_of("little-hash.db");
    bytes[16] = 6;
    let text = read_bytes(bytes, true).expect_err("an old version");
    assert_eq!(text.what(), "its format has version 6; 7 to 10 are read");
    let mut old = vec![0; 4_096];
    old[..4].copy_from_slice(&[0x00, 0x06, 0x15, 0x61]);
    let text = read_bytes(old, true).expect_err("1.85");
    assert_eq!(text.what(), "it is a file of Berkeley DB 1.85; files of version 3 and later are read");
}

/// Every file that is cut off says so, or still has all entries (when only free pages are cut off).
#[test]
fn files_that_are_cut_off() {
    for (file, _) in SAME {
        let bytes = bytes_of(file);
        let expected = read(file).table.len();
        let mut errors = 0;
        for len in (1..bytes.len()).step_by(97).filter(|len| *len > 20) {
            match read_bytes(bytes[..len].to_vec(), true) {
                Ok(loaded) => assert_eq!(loaded.table.len(), expected, "{file} cut at {len}"),
                Err(error) => {
                    errors += 1;
                    let what = error.what();
                    assert!(what.contains("cut off") || what.contains("neither text"), "{file} cut at {len}: {what}");
                }
            }
        }
        assert!(errors > 50, "{file}: {errors}");
    }
}

/// Every octet changed in one of three ways: an error or a table, and both in no time.
#[test]
fn damage_of_any_octet() {
    for (file, _) in SAME {
        let mut bytes = bytes_of(file);
        for at in 0..bytes.len() {
            let before = bytes[at];
            bytes[at] = before ^ [1, 0x80, 0xff][at % 3];
            if let Err(error) = read_bytes(bytes.clone(), true) {
                assert!(!error.to_string().chars().any(char::is_control), "{file} {at}: {error}");
            }
            bytes[at] = before;
        }
    }
}

#[test]
fn a_file_that_leads_in_circles_ends() {
    // A leaf, the page of a bucket, or that of a large item leads to the first of its kind.
    for (file, kind) in [("little-btree.db", 5), ("little-hash.db", 13), ("little-hash.db", 7)] {
        let bytes = bytes_of(file);
        let is_free = |page: usize| bytes[page * 512 + 20..page * 512 + 22] == [0, 0];
        let pages: Vec<_> =
            (1..bytes.len() / 512).filter(|page| bytes[page * 512 + 25] == kind && !is_free(*page)).collect();
        assert!(pages.len() > 2, "{file}: {pages:?}");
        for page in &pages {
            let mut bytes = bytes.clone();
            bytes[page * 512 + 16] = u8::try_from(pages[0]).expect("few pages");
            let error = read_bytes(bytes, true).map(|loaded| loaded.table.len()).expect_err("a circle");
            let what = error.what();
            assert!(what.ends_with("leads there, and so does something else") || what.contains("large item"), "{what}");
        }
    }
}

#[test]
fn cdb_is_written_as_others_write_it() {
    let text = String::from_utf8(bytes_of("entries")).expect("UTF-8");
    let entries: Vec<_> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once([' ', '\t']).expect("two words"))
        .map(|(key, value)| (key.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let written = cdb::write(entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))).expect("small");
    assert!(written == bytes_of("tinycdb.cdb"));
}

/// A cdb file begins with the position of its first hash table, of which the lowest octets may be any mark.
#[test]
fn cdb_of_any_length() {
    for mark in [[0xff, 0xfe], [0xfe, 0xff], [0x1f, 0x8b]] {
        // The one record is as long as is needed for the hash tables to begin there.
        let value = vec![b'v'; usize::from(u16::from_le_bytes(mark)) - 2_048 - 8 - 1];
        let bytes = cdb::write([(b"a".as_slice(), value.as_slice())]).expect("small");
        assert!(bytes.starts_with(&mark));
        let loaded = read_bytes(bytes, true).expect("cdb");
        assert_eq!(loaded.table.get("a").map(|hit| hit.value.len()), Some(value.len()));
    }
}

fn write_both(entries: &[(String, String)]) -> [Vec<u8>; 2] {
    let octets = || entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
    [cdb::write(octets()).expect("small"), berkeley::write_hash(octets()).expect("small")]
}

fn as_text(entries: &[(String, String)]) -> Vec<u8> {
    entries.iter().flat_map(|(key, value)| format!("{key}\t{value}\n").into_bytes()).collect()
}

fn any_entries() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop_oneof![8 => "[a-eA-E@.:äΣ0-9]{1,6}", 1 => "[a-c]{900,1300}"];
    let value = prop_oneof![8 => "[!-~ü]{1,9}( [!-~]{1,9}){0,3}", 1 => "[!-~]{1000,1100}", 1 => "[x-z]{3500,9000}"];
    // `@` with the value `@` is written by newaliases at the end of a database, and is no entry.
    let entry = (key, value).prop_filter("the mark of newaliases", |entry| entry != &("@".to_owned(), "@".to_owned()));
    proptest::collection::vec(entry, 0..120)
}

proptest! {
    #[test]
    fn all_formats_agree(entries in any_entries(), fold: bool) {
        let text = read_bytes(as_text(&entries), fold).expect("text");
        let expected = sorted(&text.table);
        for (number, bytes) in write_both(&entries).into_iter().enumerate() {
            let loaded = read_bytes(bytes, fold).expect("what was written");
            // A hash file has no order: of keys that fold to the same, another may come first.
            if !(fold && number == 1) {
                prop_assert_eq!(&sorted(&loaded.table), &expected);
            }
            prop_assert_eq!(sorted(&loaded.table).into_keys().collect::<Vec<_>>(), expected.keys().cloned().collect::<Vec<_>>());
            prop_assert_eq!(loaded.table.has_alias_token(), false);
        }
    }

    #[test]
    fn a_table_is_a_map(entries in proptest::collection::vec(("[a-cA-C]{0,2}", "[a-z]{0,3}"), 0..40), keys in proptest::collection::vec("[a-cA-C]{0,3}", 20)) {
        let mut model = BTreeMap::new();
        for (key, value) in &entries {
            model.entry(key.to_lowercase()).or_insert_with(|| value.clone());
        }
        let table = Table::from_entries("model", entries);
        prop_assert_eq!(sorted(&table), model.clone());
        for key in keys {
            let expected = model.get(&key.to_lowercase()).map(String::as_str);
            prop_assert_eq!(table.get(&key).map(|hit| hit.value), expected);
        }
    }
}

/// Returns the records of a file as db5.3_dump prints them.
fn dumped(dump: &Path, file: &Path) -> BTreeMap<String, String> {
    let out = Command::new(dump).arg("-p").arg(file).output().expect("started");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("ASCII");
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(' ')).collect();
    let (pairs, rest) = lines.as_chunks::<2>();
    assert!(rest.is_empty());
    pairs.iter().map(|[key, value]| (key.replace("\\\\", "\\"), value.replace("\\\\", "\\"))).collect()
}

#[test]
fn written_hash_files_are_right_for_libdb() {
    let (Some(verify), Some(dump)) = (needs::program("db5.3_verify"), needs::program("db5.3_dump")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let long = |len: usize| "v".repeat(len);
    for count in [0, 1, 2, 3, 50, 1_000, 20_000] {
        let mut entries: Vec<_> =
            (0..count).map(|n| (format!("host{n}.example"), format!("smtp:[10.{}.{}.1]", n % 7, n % 200))).collect();
        if count > 2 {
            for len in [1_023, 1_024, 1_025, 4_069, 4_070, 4_071, 8_140, 8_141, 100_000] {
                entries.push((format!("long{len}"), long(len)));
                entries.push((format!("{}{len}", long(len)), long(len)));
            }
        }
        let [_, bytes] = write_both(&entries);
        let file = folder.path().join(format!("{count}.db"));
        std::fs::write(&file, &bytes).expect("written");
        let out = Command::new(&verify).arg(&file).output().expect("started");
        assert!(out.status.success(), "{count}: {}", String::from_utf8_lossy(&out.stderr));
        let expected: BTreeMap<_, _> = entries.into_iter().collect();
        assert_eq!(dumped(&dump, &file), expected, "{count}");
        assert_eq!(sorted(&read_bytes(bytes, true).expect("readable").table), expected, "{count}");
    }
}

#[test]
fn files_of_libdb_are_read() {
    let (Some(load), Some(dump)) = (needs::program("db5.3_load"), needs::program("db5.3_dump")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let entries: Vec<_> = (0..5_000_usize)
        .map(|n| (format!("user{n}@{}.example", n % 97), "x".repeat(n * n % 61 * if n % 500 == 0 { 100 } else { 1 })))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let text: String = entries.iter().map(|(key, value)| format!("{key}\n{value}\n")).collect();
    let source = folder.path().join("pairs");
    std::fs::write(&source, text).expect("written");
    for kind in ["hash", "btree"] {
        for page in [512, 4_096, 65_536] {
            for order in [1_234, 4_321] {
                for checksum in ["chksum=0", "chksum=1"] {
                    let file = folder.path().join(format!("{kind}-{page}-{order}-{checksum}.db"));
                    let mut command = Command::new(&load);
                    command.args(["-T", "-t", kind, "-c", checksum, "-c", &format!("db_pagesize={page}")]);
                    command.args(["-c", &format!("db_lorder={order}"), "-f"]).arg(&source).arg(&file);
                    assert!(command.status().expect("started").success());
                    let loaded = read_bytes(std::fs::read(&file).expect("made"), true).expect("readable");
                    assert_eq!(loaded.complaints, [], "{}", file.display());
                    assert_eq!(sorted(&loaded.table), dumped(&dump, &file), "{}", file.display());
                }
            }
        }
    }
}
