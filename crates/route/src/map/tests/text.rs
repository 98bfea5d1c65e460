//! Text as `makemap` reads it.

use crate::map::{Format, Loaded, MapFile, MapLimits, Table};

fn read(text: impl AsRef<[u8]>) -> Loaded {
    read_with(text, true)
}

fn read_with(text: impl AsRef<[u8]>, fold: bool) -> Loaded {
    let bytes = text.as_ref().to_vec();
    Table::read(MapFile { name: "test", file: "maps/test", bytes, fold }).expect("readable")
}

/// Entries as `line key=value`.
fn entries(loaded: &Loaded) -> Vec<String> {
    loaded.table.iter().map(|hit| format!("{} {}={}", hit.line.unwrap_or(0), hit.key, hit.value)).collect()
}

fn complaints(loaded: &Loaded) -> Vec<String> {
    loaded.complaints.iter().map(|c| format!("{}: {}", c.line.unwrap_or(0), c.text)).collect()
}

#[test]
fn entries_comments_and_empty_lines() {
    let loaded =
        read("# relay\n\nExample.COM\tsmtp:[10.0.0.1]\n.example.com  \t smtp:x  \n\n#end\nlast value with blanks");
    assert_eq!(
        entries(&loaded),
        ["3 example.com=smtp:[10.0.0.1]", "4 .example.com=smtp:x", "7 last=value with blanks"]
    );
    assert_eq!(loaded.complaints, []);
    let table = loaded.table;
    assert_eq!((table.len(), table.is_empty(), table.format()), (3, false, Format::Text));
    assert_eq!((table.name(), table.file()), ("test", "maps/test"));
    let hit = table.get("eXample.com").expect("there");
    assert_eq!((hit.key, hit.value, hit.line), ("example.com", "smtp:[10.0.0.1]", Some(3)));
    assert_eq!(table.get("example"), None);
    assert_eq!(table.get(""), None);
    assert_eq!(table.get("last value"), None);
    assert_eq!(table.get("#"), None);
}

#[test]
fn what_makemap_refuses_is_complained_about() {
    let loaded = read("a 1\n b 2\nc\nd \t \n  # x\n \t\ne 5\na 6\nA 7\nf\0 8\n");
    assert_eq!(entries(&loaded), ["1 a=1", "7 e=5"]);
    assert_eq!(
        complaints(&loaded),
        [
            "2: \"b 2\" begins with a blank, and a line cannot be continued here; entry ignored: remove the blank, or join it to the line before",
            "3: \"c\" has no value; entry ignored",
            "4: \"d\" has no value; entry ignored",
            "8: \"a\" stands already in line 1, which counts; entry ignored",
            "9: \"a\" stands already in line 1, which counts; entry ignored",
            "10: \"f\u{fffd}\" has a NUL in its line; entry ignored",
        ]
    );
}

#[test]
fn case_counts_when_it_is_said_so() {
    let loaded = read_with("Joe 1\njoe 2\n", false);
    assert_eq!(entries(&loaded), ["1 Joe=1", "2 joe=2"]);
    assert_eq!(loaded.table.get("Joe").map(|hit| hit.value), Some("1"));
    assert_eq!(loaded.table.get("JOE"), None);
}

#[test]
fn letters_beyond_ascii_fold_when_their_length_stays() {
    let loaded = read("BÜCHER.example 1\nİx 2\nΣ 3\n");
    assert_eq!(loaded.table.get("bücher.EXAMPLE").map(|hit| hit.line), Some(Some(1)));
    assert_eq!(loaded.table.get("İX").map(|hit| hit.line), Some(Some(2)));
    assert_eq!(loaded.table.get("σ").map(|hit| hit.key), Some("σ"));
}

#[test]
fn foreign_line_ends_byte_order_marks_and_charsets() {
    let loaded = read(b"\xef\xbb\xbfa 1\r\nb\t2 \r\n\r\n# gr\xfcn\r\nc gr\xfcn\r\nd\xfc 4\r\n \xfc\n" as &[u8]);
    assert_eq!(entries(&loaded), ["1 a=1", "2 b=2", "5 c=gr?n"]);
    assert_eq!(
        complaints(&loaded),
        [
            "5: the value of \"c\" is not UTF-8; what is not, is read as question marks",
            "6: key \"d\u{fffd}\" is not UTF-8; entry ignored",
            "7: \"?\" begins with a blank, and a line cannot be continued here; entry ignored: remove the blank, or join it to the line before",
        ]
    );
}

#[test]
fn empty_files_are_empty_maps() {
    for text in ["", "\n", "#\n", "\n\n# x", "\u{feff}"] {
        let loaded = read(text);
        assert!(loaded.table.is_empty() && loaded.complaints.is_empty(), "{text:?}");
        assert_eq!((loaded.table.get(""), loaded.table.iter().count()), (None, 0));
    }
    assert!(Table::default().is_empty());
}

#[test]
fn limits_have_texts() {
    let reading = || MapFile { name: "m", file: "maps/m", bytes: b"a 1\nbbbb 22222\nc 3\n".to_vec(), fold: true };
    let error = |limits| Table::read_within(reading(), &limits).expect_err("too much").to_string();
    let limits = MapLimits { file_bytes_max: 10, ..MapLimits::default() };
    assert_eq!(error(limits), "maps/m: it has 19 octets, of 10 allowed; raise the limit, or divide the map");
    let limits = MapLimits { entries_max: 2, ..MapLimits::default() };
    assert_eq!(error(limits), "maps/m: it has more than 2 entries; raise the limit, or divide the map");
    let limits = MapLimits { entry_bytes_max: 8, ..MapLimits::default() };
    let loaded = Table::read_within(reading(), &limits).expect("readable");
    assert_eq!(entries(&loaded), ["1 a=1", "3 c=3"]);
    assert_eq!(complaints(&loaded), ["2: \"bbbb\" and its value have 9 octets, of 8 allowed; entry ignored"]);
    let limits = MapLimits { complaints_max: 2, ..MapLimits::default() };
    let bytes = b"a\nb\nc\nd\n".to_vec();
    let loaded = Table::read_within(MapFile { bytes, ..reading() }, &limits).expect("readable");
    assert_eq!(
        complaints(&loaded),
        [
            "1: \"a\" has no value; entry ignored",
            "2: \"b\" has no value; entry ignored",
            "0: 2 more complaints are not shown"
        ]
    );
}

#[test]
fn other_files_are_told_by_their_content() {
    for (bytes, what) in [
        (b"SQLite format 3\0".to_vec(), "it is an SQLite database"),
        (b"\x1f\x8b\x08\0".to_vec(), "it is compressed (gzip)"),
        (b"\xff\xfea\0 \0".to_vec(), "it is text in UTF-16, not in UTF-8"),
        (vec![1, 2, 0, 3, 4], "it is neither text nor Berkeley DB nor cdb, or its beginning is damaged"),
    ] {
        let error = Table::read(MapFile { name: "m", file: "m.db", bytes, fold: true }).expect_err("no map");
        assert_eq!((error.file(), error.what()), ("m.db", what));
        assert!(error.to_string().ends_with(error.next_step()), "{error}");
    }
}

#[test]
fn lines_are_found_in_long_files() {
    let mut text = String::new();
    for number in 1..=10_000 {
        text.push_str(&match number % 10 {
            0 => String::from("# comment\n"),
            1 => String::from("\n"),
            _ => format!("host{number}.Example smtp:[10.0.{}.{}]\n", number / 256, number % 256),
        });
    }
    let table = read(&text).table;
    assert_eq!(table.len(), 8_000);
    for (number, line) in (1..).zip(text.lines()) {
        let key = line.split(' ').next().expect("a word");
        let hit = table.get(key);
        assert_eq!(hit.and_then(|hit| hit.line), key.starts_with('h').then_some(number), "{line}");
    }
    assert_eq!(table.iter().count(), 8_000);
    assert!(table.memory_bytes() <= text.len() + text.len() / 32 + 8_000 * 6 + 1_024);
}

#[test]
fn tables_of_entries() {
    let pairs = [("A", "1"), ("b", " 2 "), ("a", "3"), ("with blank", "4")];
    let table = Table::from_entries("test", pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let all: Vec<_> = table.iter().map(|hit| (hit.key, hit.value, hit.line)).collect();
    assert_eq!(all, [("a", "1", None), ("b", "2", None), ("with blank", "4", None)]);
    assert_eq!(table.get("With Blank").map(|hit| hit.value), Some("4"));
}

#[test]
fn tables_of_entries_that_have_lines() {
    let entries = [("Root", "joe", 3), ("joe", "/dev/null", 5), ("ROOT", "x", 9)];
    let loaded = Table::from_lines("aliases", "/etc/aliases", entries);
    assert_eq!(entries_of(&loaded.table), [("root", "joe", Some(3)), ("joe", "/dev/null", Some(5))]);
    assert_eq!(complaints(&loaded), ["9: \"root\" stands already in line 3, which counts; entry ignored"]);
    assert_eq!(loaded.table.get("JOE").map(|hit| hit.line), Some(Some(5)));
}

fn entries_of(table: &Table) -> Vec<(&str, &str, Option<u32>)> {
    table.iter().map(|hit| (hit.key, hit.value, hit.line)).collect()
}
