//! Maps: files of keys and values as sendmail and its `makemap` and `newaliases` use them, read into memory.
//!
//! A file is read whole, as bytes that the caller gives; its format follows from its content, never from its name. A
//! fault in a single entry is a complaint, and the other entries count. A fault in the file as a whole makes it
//! unreadable, so that a reload keeps the former map.
//!
//! | File | Holds |
//! |---|---|
//! | `text` | the lines that `makemap` reads |
//! | `line` | one of these lines: key and value |
//! | [`berkeley`] | Berkeley DB: hash and btree are read, hash is written |
//! | [`cdb`] | constant databases: read and written |
//! | `storage` | entries in memory, and how one is found |
//! | `complaint` | what is wrong, in words for the operator |
//!
//! Formats, limits and the habits of `makemap` are in `docs/maps.md`. Aliases as text are not read here: their syntax
//! is another one. `aliases.db` is.

pub mod berkeley;
pub mod cdb;
mod complaint;
mod format;
mod line;
mod storage;
mod text;

#[cfg(test)]
mod tests;

pub use complaint::{Complaint, MapFileError, TooLarge};
pub use format::Format;

use complaint::Complaints;
use storage::Storage;

/// A file to read.
#[derive(Debug)]
pub struct MapFile<'a> {
    /// The name of the map, as in `mailertable`.
    pub name: &'a str,
    /// Where the bytes come from, for messages only.
    pub file: &'a str,
    /// The whole content.
    pub bytes: Vec<u8>,
    /// Whether upper and lower case of a key are the same. `makemap -f` and `K… -f` say no.
    pub fold: bool,
}

/// How much a map may hold. Entries beyond a limit are reported, not dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLimits {
    /// Octets of a file, at most 4,294,967,294; 1 GiB by default.
    pub file_bytes_max: u64,
    /// Octets of the key and the value of one entry together; 1 MiB by default, for `aliases.db` has whole lists in a
    /// value.
    pub entry_bytes_max: usize,
    /// Entries of a map; 50,000,000 by default.
    pub entries_max: usize,
    /// Complaints that are kept; the others are counted. 100 by default.
    pub complaints_max: usize,
}

impl Default for MapLimits {
    fn default() -> Self {
        Self { file_bytes_max: 1 << 30, entry_bytes_max: 1 << 20, entries_max: 50_000_000, complaints_max: 100 }
    }
}

/// The result of reading a file.
#[derive(Debug)]
pub struct Loaded {
    /// All entries that are right.
    pub table: Table,
    /// The faults of the others, in the order of the file; at most [`MapLimits::complaints_max`] and one that counts
    /// the rest.
    pub complaints: Vec<Complaint>,
}

/// A map whose entries are in memory.
///
/// Memory is that of the file and 3 % for text, of keys and values and two octets more for the others, and 5⅓ octets
/// for each entry. Put it in an `Arc` to share it; nothing in it changes.
#[derive(Debug)]
pub struct Table {
    name: String,
    file: String,
    format: Format,
    fold: bool,
    has_alias_token: bool,
    storage: Storage,
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// As it is stored: in lower case when the table folds.
    pub key: &'a str,
    /// Without blanks around it.
    pub value: &'a str,
    /// The line of a text file, from 1.
    pub line: Option<u32>,
}

impl Default for Table {
    fn default() -> Self {
        Self::from_entries("", [])
    }
}

impl Table {
    /// Reads a file, with the default [`MapLimits`].
    ///
    /// # Errors
    /// The file as a whole is damaged, of another kind, or too large; the text names the file, the fault, and the next
    /// step.
    pub fn read(reading: MapFile<'_>) -> Result<Loaded, MapFileError> {
        Self::read_within(reading, &MapLimits::default())
    }

    /// Reads a file within these limits.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_within(reading: MapFile<'_>, limits: &MapLimits) -> Result<Loaded, MapFileError> {
        let MapFile { name, file, bytes, fold } = reading;
        let mut complaints = Complaints::new(limits.complaints_max);
        let read = || {
            // One less than the offsets of entries can say.
            let max = limits.file_bytes_max.min(u64::from(u32::MAX) - 1);
            if bytes.len() as u64 > max {
                return Err(MapFileError::too_large(format!("it has {} octets, of {max} allowed", bytes.len())));
            }
            let format = Format::of(&bytes)?;
            let (storage, has_alias_token) = match format {
                Format::Text => (text::read(bytes, fold, limits, &mut complaints)?, false),
                Format::BerkeleyHash | Format::BerkeleyBtree => {
                    berkeley::read(&bytes, fold, limits, &mut complaints)?.finish(&mut complaints)
                }
                Format::Cdb => cdb::read(&bytes, fold, limits, &mut complaints)?.finish(&mut complaints),
            };
            Ok((format, storage, has_alias_token))
        };
        let (format, storage, has_alias_token) = read().map_err(|error: MapFileError| error.of_file(file))?;
        let table = Self { name: name.to_owned(), file: file.to_owned(), format, fold, has_alias_token, storage };
        Ok(Loaded { table, complaints: complaints.into_list() })
    }

    /// A map of these entries, with keys in lower case; of equal keys the first counts.
    ///
    /// Entries that no file could hold (a NUL in the key or the value) and those beyond the default [`MapLimits`] are
    /// left out.
    #[must_use]
    pub fn from_entries(name: &str, entries: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut complaints = Complaints::new(0);
        let limits = MapLimits::default();
        let mut packing = storage::Packing::new(true, &limits);
        for (key, value) in entries {
            if packing.push(key.as_bytes(), value.as_bytes(), &mut complaints).is_err() {
                break;
            }
        }
        let (storage, has_alias_token) = packing.finish(&mut complaints);
        let (name, file) = (name.to_owned(), name.to_owned());
        Self { name, file, format: Format::Text, fold: true, has_alias_token, storage }
    }

    /// Makes a map of entries that the caller read from a text file, as aliases, each with its line; keys in lower
    /// case.
    ///
    /// Of equal keys the first counts. Complaints are about duplicates, and entries beyond the default [`MapLimits`].
    #[must_use]
    pub fn from_lines<K: AsRef<str>, V: AsRef<str>>(
        name: &str,
        file: &str,
        entries: impl IntoIterator<Item = (K, V, u32)>,
    ) -> Loaded {
        let limits = MapLimits::default();
        let mut complaints = Complaints::new(limits.complaints_max);
        let mut packing = storage::Packing::new(true, &limits);
        for (key, value, line) in entries {
            let before = packing.len();
            if let Err(error) = packing.push(key.as_ref().as_bytes(), value.as_ref().as_bytes(), &mut complaints) {
                complaints.add(Some(line), || format!("{}; this entry and all behind it are ignored", error.what()));
                break;
            }
            packing.number(before, line);
        }
        let (storage, has_alias_token) = packing.finish(&mut complaints);
        let (name, file) = (name.to_owned(), file.to_owned());
        let table = Self { name, file, format: Format::Text, fold: true, has_alias_token, storage };
        Loaded { table, complaints: complaints.into_list() }
    }

    /// Finds the entry of a key, in less than a microsecond; allocates only for keys with letters beyond ASCII, and
    /// long ones.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Hit<'_>> {
        if self.fold { self.storage.find_folded(key) } else { self.storage.find(key) }
    }

    /// All entries in the order of the file, at about the price of a look-up each.
    pub fn iter(&self) -> impl Iterator<Item = Hit<'_>> {
        self.storage.iter()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.storage.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets of memory this takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.name.capacity() + self.file.capacity() + self.storage.memory_bytes()
    }

    /// Returns the format of the file.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The file it was read from; the name of the map when there was none.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the name of the map.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the file had the entry `@:@`, which `newaliases` writes last: without it, an `aliases.db` is not
    /// finished.
    ///
    /// The entry itself is not in the table.
    #[must_use]
    pub fn has_alias_token(&self) -> bool {
        self.has_alias_token
    }
}
