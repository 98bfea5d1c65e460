//! One body per reader of foreign bytes: feed it anything, and it asserts what must hold for all bytes.
//!
//! The test `fuzz_bodies` drives them with mutated seeds in every run; a fuzzer's targets call the same functions. They
//! are part of the crate, not of its tests, so that both can reach them. Asserted everywhere: no panic, no memory out
//! of proportion to the input, that read entries are found, and that written entries read back as the same.

pub mod seeds;

use std::collections::HashSet;

pub use crate::access::fuzz::{access_map, class_file};
pub use crate::alias::fuzz::{alias_file, alias_forward, alias_include, alias_members};
pub use crate::import::queue::fuzz::queue_control;
use crate::map::{Format, Loaded, MapFile, MapFileError, MapLimits, Table, berkeley, cdb};

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 11] = [
    ("map_text", map_text),
    ("map_berkeley", map_berkeley),
    ("map_cdb", map_cdb),
    ("map_write", map_write),
    ("access_map", access_map),
    ("class_file", class_file),
    ("alias_file", alias_file),
    ("alias_members", alias_members),
    ("alias_include", alias_include),
    ("alias_forward", alias_forward),
    ("queue_control", queue_control),
];

fn read(data: &[u8], fold: bool) -> Result<Loaded, MapFileError> {
    let limits = MapLimits { entry_bytes_max: 5_000, entries_max: 20_000, complaints_max: 20, ..MapLimits::default() };
    let loaded = Table::read_within(MapFile { name: "fuzz", file: "fuzz.db", bytes: data.to_vec(), fold }, &limits);
    match &loaded {
        Ok(Loaded { table, complaints }) => {
            assert!(table.memory_bytes() <= 6 * data.len() + 1_024, "{} for {}", table.memory_bytes(), data.len());
            assert!(complaints.len() <= 21 && table.len() <= 20_000);
            for complaint in complaints {
                assert!(!complaint.text.chars().any(char::is_control) && complaint.text.len() < 1_000, "{complaint:?}");
            }
            holds(table, fold);
        }
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error:?}"),
    }
    loaded
}

/// Every entry is found by its key, and by none else.
fn holds(table: &Table, fold: bool) {
    let mut count = 0;
    for hit in table.iter() {
        assert_eq!(table.get(hit.key), Some(hit), "{hit:?}");
        assert!(!hit.key.contains('\0') && !hit.value.contains('\0'), "{hit:?}");
        assert_eq!(hit.line.is_some(), table.format() == Format::Text);
        if fold {
            assert!(!hit.key.contains(|c: char| c.is_ascii_uppercase()), "{hit:?}");
            assert_eq!(table.get(&hit.key.to_ascii_uppercase()), Some(hit), "{hit:?}");
        }
        count += 1;
    }
    assert_eq!(count, table.len());
    assert_eq!(table.is_empty(), count == 0);
}

/// Text: entries written line by line are the same entries.
pub fn map_text(data: &[u8]) {
    for fold in [false, true] {
        let Ok(loaded) = read(data, fold) else { continue };
        if loaded.table.format() != Format::Text {
            continue;
        }
        // A byte order mark is one at the beginning only.
        let mut text = String::from("#\n");
        for hit in loaded.table.iter() {
            text.push_str(&format!("{}\t{}\n", hit.key, hit.value));
        }
        let again = read(text.as_bytes(), fold).expect("what was read can be written");
        assert!(again.complaints.is_empty(), "{:?}", again.complaints);
        assert!(
            again.table.iter().map(|hit| (hit.key, hit.value)).eq(loaded.table.iter().map(|hit| (hit.key, hit.value)))
        );
    }
}

/// Files of Berkeley DB. The beginning is made one of them, else hardly any input would come beyond it.
pub fn map_berkeley(data: &[u8]) {
    for fold in [false, true] {
        // The result of the read has no further property to assert.
        drop(read(data, fold));
    }
    for (magic, kind, version) in [([0x61, 0x15, 0x06, 0], 8, 9), ([0x62, 0x31, 0x05, 0], 9, 9)] {
        let mut data = data.to_vec();
        let Some(head) = data.first_chunk_mut::<28>() else { return };
        let [.., m0, m1, m2, m3, v0, v1, v2, v3, s0, s1, s2, s3, algorithm, page, flags, _] = head;
        [*m0, *m1, *m2, *m3] = magic;
        [*v0, *v1, *v2, *v3] = [version, 0, 0, 0];
        [*s0, *s1, *s2, *s3] = [0, 2, 0, 0];
        (*algorithm, *page, *flags) = (0, kind, 0);
        drop(read(&data, true));
    }
}

/// Constant databases.
pub fn map_cdb(data: &[u8]) {
    for fold in [false, true] {
        drop(read(data, fold));
    }
}

/// Lines as entries: written in both formats and read back.
pub fn map_write(data: &[u8]) {
    // Of equal keys, one that is dropped when it is read lets the next count in a cdb file only.
    let mut seen = HashSet::new();
    let entries: Vec<(&[u8], &[u8])> = data
        .split(|byte| *byte == b'\n')
        .take(10_000)
        .map(|line| line.split_at_checked(line.iter().position(|byte| *byte == b' ').unwrap_or(0)).unwrap_or_default())
        .filter(|(key, _)| seen.insert(key.strip_suffix(b"\0").unwrap_or(key)))
        .collect();
    let [constant, hash] = [cdb::write(entries.iter().copied()), berkeley::write_hash(entries.iter().copied())];
    let [constant, hash] = [constant, hash].map(|bytes| bytes.expect("fuzzers feed less than 4 GiB"));
    // A hash file has a page for each two keys at worst, which are then large.
    assert!(
        constant.len() <= 2_048 + 24 * (data.len() + 1) && hash.len() <= 4_096 * (6 + data.len() / 100),
        "{}",
        hash.len()
    );
    let [constant, hash] = [constant, hash].map(|bytes| read(&bytes, false).expect("what was written").table);
    assert_eq!((constant.format(), hash.format()), (Format::Cdb, Format::BerkeleyHash));
    assert_eq!((constant.len(), constant.has_alias_token()), (hash.len(), hash.has_alias_token()));
    for hit in constant.iter() {
        assert_eq!(hash.get(hit.key), Some(hit));
    }
}
