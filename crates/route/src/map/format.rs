//! The format of a file, known from its content.

use super::complaint::MapFileError;
use super::{berkeley, cdb};

/// The format that a map was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Lines, as `makemap` reads them.
    Text,
    /// Berkeley DB with the access method "hash", which `makemap hash` and `newaliases` make.
    BerkeleyHash,
    /// Berkeley DB with the access method "btree", which `makemap btree` makes.
    BerkeleyBtree,
    /// D. J. Bernstein's constant database, which `makemap cdb` makes.
    Cdb,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::BerkeleyHash => "hash",
            Self::BerkeleyBtree => "btree",
            Self::Cdb => "cdb",
        })
    }
}

/// How much of the beginning says that a file is not text.
const LOOK: usize = 4_096;

/// Beginnings of files that an operator may name by mistake.
const OTHERS: [(&[u8], &str); 9] = [
    (b"SQLite format 3\0", "it is an SQLite database"),
    (b"\xce\x9a\x57\x13", "it is a GNU dbm file"),
    (b"\xcd\x9a\x57\x13", "it is a GNU dbm file"),
    (b"\xcf\x9a\x57\x13", "it is a GNU dbm file"),
    (b"\x13\x57\x9a", "it is a GNU dbm file"),
    (b"\x1f\x8b", "it is compressed (gzip)"),
    (b"\xff\xfe", "it is text in UTF-16, not in UTF-8"),
    (b"\xfe\xff", "it is text in UTF-16, not in UTF-8"),
    (b"\x7fELF", "it is a program"),
];

/// The magic number of LMDB, 16 octets into the file.
const LMDB_MAGIC: u32 = 0xbeef_c0de;

impl Format {
    /// Tells what a file is. An empty file is text without lines.
    ///
    /// # Errors
    /// It is a database of a kind that is not read.
    pub fn of(bytes: &[u8]) -> Result<Self, MapFileError> {
        // A cdb file begins with a length, which may be anything; its whole header is compared, and like no other's.
        if cdb::looks_like_one(bytes) {
            return Ok(Self::Cdb);
        }
        if let Some(format) = berkeley::format_of(bytes)? {
            return Ok(format);
        }
        if let Some((_, what)) = OTHERS.iter().find(|(start, _)| bytes.starts_with(start)) {
            return Err(MapFileError::unsupported(*what));
        }
        if bytes.get(16..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_ne_bytes) == Some(LMDB_MAGIC) {
            return Err(MapFileError::unsupported("it is an LMDB database"));
        }
        let start = bytes.get(..LOOK).unwrap_or(bytes);
        if memchr::memchr(0, start).is_none() {
            return Ok(Self::Text);
        }
        // One line with a NUL is a line to complain about; a file full of other control characters is no text at all.
        let odd = start.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
        if odd * 16 > start.len() {
            return Err(MapFileError::unsupported(
                "it is neither text nor Berkeley DB nor cdb, or its beginning is damaged",
            ));
        }
        Ok(Self::Text)
    }
}
