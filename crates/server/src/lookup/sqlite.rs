//! Maps in SQLite files.
//!
//! A file is only read, on threads that may wait. The key is bound to the statement, never part of its text.

use crate::config;
use os::blocking;
use os::safe_file::Trust;
use route::question::Answer;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// The longest wait for an answer.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The longest wait for a writer; less than the above, so that the error names the lock.
const BUSY_TIME_MAX: Duration = Duration::from_secs(3);
/// Questions at once, each with a thread.
const QUESTIONS_MAX: usize = 4;

/// A database file and its query.
#[derive(Debug)]
pub(super) struct Database {
    /// `sqlite:NAME`
    name: Arc<str>,
    path: PathBuf,
    query: String,
    /// Idle connections, each with the identity of the file that it has open.
    idle: Mutex<Vec<(Identity, Connection)>>,
    places: Semaphore,
    /// The owners whose files are accepted.
    trust: Trust,
}

/// Device and inode: a file that replaces another has a different one.
type Identity = (u64, u64);

impl Database {
    pub(super) fn new(table: &config::Sqlite, trust: Trust) -> Self {
        Self {
            name: format!("sqlite:{}", table.name).into(),
            path: table.path.clone(),
            query: table.query.clone(),
            idle: Mutex::default(),
            places: Semaphore::new(QUESTIONS_MAX),
            trust,
        }
    }

    /// Returns the owners whose files are accepted for it.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns the value of a key.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn answer(self: Arc<Self>, key: Arc<str>) -> Answer {
        let trouble = |why: &str| Answer::Trouble(format!("{}: {}: {why}", self.name, self.path.display()).into());
        let (hand, handle) = oneshot::channel();
        let asking = async {
            let Ok(_place) = self.places.acquire().await else { return Err("the server stops".to_owned()) };
            let database = Arc::clone(&self);
            let asked = blocking::run(move || database.ask(&key, hand)).await;
            asked.unwrap_or_else(|_| Err("the reading thread broke off".to_owned()))
        };
        match timeout(TIME_MAX, asking).await {
            Ok(Ok(Some(value))) => Answer::Value { value: value.into(), place: Arc::clone(&self.name) },
            Ok(Ok(None)) => Answer::Nothing,
            Ok(Err(why)) => trouble(&why),
            Err(_) => {
                let mut handle = handle;
                if let Ok(handle) = handle.try_recv() {
                    handle.interrupt();
                }
                trouble("no answer within 5s; see whether the query has an index to use")
            }
        }
    }

    fn ask(&self, key: &str, hand: oneshot::Sender<InterruptHandle>) -> Result<Option<String>, String> {
        let found = std::fs::metadata(&self.path).map_err(|error| error.to_string())?;
        if let Some(why) = self.trust.complaint(&self.path) {
            return Err(why);
        }
        let identity = (found.dev(), found.ino());
        let kept = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(of, _)| *of == identity);
            idle.pop()
        };
        let connection = match kept {
            Some((_, connection)) => connection,
            None => self.open().map_err(|error| error.to_string())?,
        };
        // The asking task may have gone.
        drop(hand.send(connection.get_interrupt_handle()));
        let value = self.value(&connection, key)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((identity, connection));
        Ok(value)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_TIME_MAX)?;
        Ok(connection)
    }

    fn value(&self, connection: &Connection, key: &str) -> Result<Option<String>, String> {
        let told = |error: rusqlite::Error| error.to_string();
        let mut statement = connection.prepare_cached(&self.query).map_err(told)?;
        if statement.parameter_count() != 1 {
            return Err(format!("sqlite.query has {} parameters; it needs ?1 alone", statement.parameter_count()));
        }
        let mut rows = statement.query([key]).map_err(told)?;
        let Some(row) = rows.next().map_err(told)? else { return Ok(None) };
        match row.get_ref(0).map_err(told)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number.to_string())),
            ValueRef::Text(text) | ValueRef::Blob(text) => match std::str::from_utf8(text) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(format!("the value of \"{key}\" is no UTF-8")),
            },
            ValueRef::Real(number) => Err(format!("the value of \"{key}\" is {number}, no text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(path: &std::path::Path, query: &str) -> Arc<Database> {
        let table = config::Sqlite {
            name: "t".to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            cache_time: Duration::ZERO,
        };
        Arc::new(Database::new(&table, Trust::secrets("", "")))
    }

    fn fill(path: &std::path::Path, pairs: &[(&str, &str)]) {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("CREATE TABLE routes (key TEXT PRIMARY KEY, value)").unwrap();
        for pair in pairs {
            connection.execute("INSERT INTO routes VALUES (?1, ?2)", [pair.0, pair.1]).unwrap();
        }
        connection.execute_batch("INSERT INTO routes VALUES ('null', NULL), ('number', 25)").unwrap();
    }

    fn is(answer: &Answer, expected: &str) -> bool {
        matches!(answer, Answer::Value { value, place } if &**value == expected && &**place == "sqlite:t")
    }

    const QUERY: &str = "SELECT value FROM routes WHERE key = ?1";

    #[tokio::test]
    async fn keys_are_bound_whatever_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes.db");
        let hostile = "'; DROP TABLE routes; --";
        fill(&path, &[("joe@x.test", "joe@new.test"), (hostile, "found")]);
        let database = table(&path, QUERY);
        let ask = |key: &str| Arc::clone(&database).answer(key.into());
        assert!(is(&ask(hostile).await, "found"));
        for key in ["' OR '1'='1", "%", "joe@x.test' --", "\" OR 1=1", "", "a\0b", "?1", "number) OR (1"] {
            assert_eq!(ask(key).await, Answer::Nothing, "{key}");
        }
        assert_eq!(ask("null").await, Answer::Nothing);
        assert!(is(&ask("number").await, "25"));
        assert!(is(&ask("joe@x.test").await, "joe@new.test"), "the table is still there");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_trouble_and_not_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes.db");
        let said =
            |answer: Answer| if let Answer::Trouble(why) = answer { why.to_string() } else { format!("{answer:?}") };
        let missing = said(table(&path, QUERY).answer("k".into()).await);
        assert!(missing.starts_with("sqlite:t: /") && missing.contains("No such file"), "{missing}");
        assert!(!path.exists(), "nothing is created");
        fill(&path, &[("k", "v")]);
        let no_table = said(table(&path, "SELECT nothing FROM here WHERE a = ?1").answer("k".into()).await);
        assert!(no_table.starts_with("sqlite:t: "), "{no_table}");
        assert!(said(table(&path, "SELECT ?1, ?2").answer("k".into()).await).contains("2 parameters"));
        let write = "DELETE FROM routes WHERE key = ?1 RETURNING value";
        assert!(said(table(&path, write).answer("k".into()).await).contains("readonly"));
        // A file that replaces another counts at once.
        let database = table(&path, QUERY);
        assert!(is(&Arc::clone(&database).answer("k".into()).await, "v"));
        std::fs::remove_file(&path).unwrap();
        fill(&path, &[("k", "other")]);
        assert!(is(&database.answer("k".into()).await, "other"));
    }

    #[tokio::test]
    async fn a_file_that_others_can_write_is_trouble() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("routes.db");
        fill(&path, &[("k", "v")]);
        let database = table(&path, QUERY);
        let mode = |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(is(&Arc::clone(&database).answer("k".into()).await, "v"));
        mode(0o646);
        let Answer::Trouble(why) = Arc::clone(&database).answer("k".into()).await else { panic!("it counts") };
        assert!(why.contains("can be written by everybody") && why.contains("chmod go-w "), "{why}");
        mode(0o644);
        assert!(is(&database.answer("k".into()).await, "v"));
    }
}
