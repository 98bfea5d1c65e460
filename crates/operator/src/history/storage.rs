//! Opens the file of the history, and puts aside one that cannot be used.

use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `MRhi`, by which the file is known as ours (<https://sqlite.org/pragma.html#pragma_application_id>).
const APPLICATION_ID: i64 = 0x4d52_6869;
/// The version of the tables.
const VERSION: i64 = 2;
/// The longest wait for another reader or writer.
const BUSY_TIME_MAX: Duration = Duration::from_secs(3);
/// The tables, and settings that hold for the life of the file.
const CREATE: &str = "
    CREATE TABLE message (
        id INTEGER PRIMARY KEY, sender TEXT, size INTEGER NOT NULL, recipients INTEGER NOT NULL, client TEXT NOT NULL,
        message_id TEXT NOT NULL, sent INTEGER NOT NULL, failed INTEGER NOT NULL, dropped INTEGER NOT NULL,
        last TEXT NOT NULL, last_us INTEGER NOT NULL
    );
    CREATE TABLE step (
        message INTEGER NOT NULL, time_us INTEGER NOT NULL, n INTEGER NOT NULL, kind TEXT NOT NULL,
        addresses TEXT NOT NULL, recipients INTEGER NOT NULL, host TEXT NOT NULL, mailer TEXT NOT NULL,
        status TEXT NOT NULL, reply TEXT NOT NULL, took_us INTEGER, phases TEXT NOT NULL,
        PRIMARY KEY (message, time_us, n)
    ) WITHOUT ROWID;
    CREATE TABLE window_counts (
        seconds INTEGER NOT NULL, begin INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (seconds, begin)
    ) WITHOUT ROWID;
    CREATE TABLE best_window (seconds INTEGER PRIMARY KEY, begin INTEGER NOT NULL, sent INTEGER NOT NULL);
    CREATE TABLE total (messages INTEGER NOT NULL);
    INSERT INTO total VALUES (0);
    CREATE TRIGGER message_added AFTER INSERT ON message BEGIN UPDATE total SET messages = messages + 1; END;
    CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN UPDATE total SET messages = messages - 1; END;";
/// Number of the tables and triggers above.
const TABLES: i64 = 7;
/// Settings of a connection that writes. A power cut may lose the last entries and damages nothing; temporary data
/// stays in memory, because the server may write to no other directory.
const WRITE_SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = 4000;
    PRAGMA journal_size_limit = 33554432;
    PRAGMA temp_store = MEMORY;";

/// Why the file cannot be used.
#[derive(Debug)]
pub(super) enum StorageError {
    /// It is damaged, or another program's: it has to be put aside.
    Foreign(String),
    /// The disk is full, the directory cannot be written, or the like: it may work later.
    Unavailable(String),
}

impl From<rusqlite::Error> for StorageError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Foreign(format!("it is damaged: {error}"))
            }
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<io::Error> for StorageError {
    fn from(error: io::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Opens the file to write, and makes it if it is not there, readable by the server's user alone.
///
/// # Errors
/// It is not ours, or cannot be had.
pub(super) fn open(path: &Path) -> Result<Connection, StorageError> {
    drop(OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIME_MAX)?;
    let [application, version] =
        [number(&connection, "PRAGMA application_id")?, number(&connection, "PRAGMA user_version")?];
    let tables = number(&connection, "SELECT count(*) FROM sqlite_master")?;
    match (application, version, tables) {
        (0, 0, 0) => create(&mut connection)?,
        (APPLICATION_ID, VERSION, tables) if tables >= TABLES => {}
        (APPLICATION_ID, VERSION, _) => return Err(StorageError::Foreign("tables are missing".to_owned())),
        (APPLICATION_ID, other, _) => {
            let text = format!("its version is {other}, this program has {VERSION}");
            return Err(StorageError::Foreign(text));
        }
        _ => return Err(StorageError::Foreign("it is the database of another program".to_owned())),
    }
    connection.execute_batch(WRITE_SETTINGS)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(CREATE)?;
    transaction
        .execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"))?;
    transaction.commit()
}

/// Opens the file to read, beside its writer.
///
/// # Errors
/// It cannot be read.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, StorageError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIME_MAX)?;
    connection.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA query_only = TRUE;")?;
    Ok(connection)
}

/// Returns a number that a statement without parameters gives.
pub(super) fn number(connection: &Connection, statement: &str) -> rusqlite::Result<i64> {
    connection.query_row(statement, [], |row| row.get(0))
}

/// Gives the file another name, so that a new one can be made; returns the name. Its journal goes with it.
///
/// # Errors
/// It cannot be renamed.
pub(super) fn put_aside(path: &Path, mut unix_seconds: u64) -> io::Result<PathBuf> {
    let name = |seconds: u64| beside(path, &format!(".bad-{seconds}"));
    // One that was put aside in the same second stays.
    while name(unix_seconds).exists() {
        unix_seconds = unix_seconds.saturating_add(1);
    }
    let aside = name(unix_seconds);
    rustix::fs::rename(path, &aside)?;
    for end in ["-wal", "-shm"] {
        // They exist only after a crash.
        rustix::fs::rename(beside(path, end), beside(&aside, end)).ok();
    }
    Ok(aside)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn why(path: &Path) -> String {
        match open(path) {
            Err(StorageError::Foreign(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_made_and_opened_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("history.sqlite");
        drop(open(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let connection = open(&path).unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM message").unwrap(), 0);
        assert_eq!(number(&open_to_read(&path).unwrap(), "SELECT count(*) FROM step").unwrap(), 0);
    }

    #[test]
    fn other_files_are_foreign_and_put_aside() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("history.sqlite");
        std::fs::write(&path, "no database, but text that is long enough to be read as one".repeat(99)).unwrap();
        assert!(why(&path).contains("damaged"), "{}", why(&path));
        let aside = put_aside(&path, 7).unwrap();
        assert!(aside.to_str().unwrap().ends_with("history.sqlite.bad-7") && aside.exists() && !path.exists());
        std::fs::write(&path, "another one").unwrap();
        assert!(put_aside(&path, 7).unwrap().to_str().unwrap().ends_with("history.sqlite.bad-8") && aside.exists());

        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE t (a)").unwrap();
        drop(other);
        assert!(why(&path).contains("another program"));
        std::fs::remove_file(&path).unwrap();

        open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
        assert!(why(&path).contains("its version is 99"));
        open_to_write(&path).execute_batch("PRAGMA user_version = 2; DROP TABLE step").unwrap();
        assert!(why(&path).contains("tables are missing"));
    }

    fn open_to_write(path: &Path) -> Connection {
        Connection::open(path).unwrap()
    }

    #[test]
    fn a_directory_that_is_not_there_may_come() {
        let place = tempfile::tempdir().unwrap();
        assert!(matches!(open(&place.path().join("none/history")), Err(StorageError::Unavailable(_))));
    }
}
