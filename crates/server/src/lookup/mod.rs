//! Answers the questions of `route` from files of lists and users, accounts of the machine, and sources outside.
//!
//! Every answer is bounded in time and size. A source that cannot answer now gives [`Answer::Trouble`]: the mail
//! waits, and the text names the source.

mod accounts;
mod cache;
pub(crate) mod directory;
pub(crate) mod files;
mod sqlite;

use crate::config::{self, Config};
use accounts::{Library, LocalUsers};
use cache::{CacheLimits, LookupCache};
use directory::Directory;
use files::{FileQuery, Files, Readers};
use os::safe_file::Trust;
use route::question::{Answer, Question, Reader};
use sqlite::Database;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Answers of a database that are kept.
const DATABASE_ENTRIES_MAX: usize = 10_000;

/// All sources of answers.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    files: Arc<Files>,
    users: LocalUsers,
    /// Octets of an `:include:` file of an alias.
    list_bytes_max: u64,
    library: Arc<Library>,
    /// By the names that questions have for them: `ldap:people`.
    outside: Arc<HashMap<Box<str>, Arc<Outside>>>,
}

/// A source outside, with its kept answers.
#[derive(Debug)]
struct Outside {
    cache: Arc<LookupCache>,
    kind: TableKind,
}

#[derive(Debug)]
enum TableKind {
    Directory(Arc<Directory>),
    Database(Arc<Database>, config::Sqlite),
}

impl Lookups {
    /// Makes all sources of the configuration. No source is asked before the first question.
    pub(crate) fn new(config: &Config) -> Self {
        Self::after(config, &Self::default())
    }

    /// Makes the sources after a change: sources whose settings did not change keep their answers.
    pub(crate) fn after(config: &Config, old: &Self) -> Self {
        let directories = config.ldap.iter().map(|table| {
            let name: Box<str> = format!("ldap:{}", table.name).into();
            let outside = old.outside.get(&name).filter(|outside| outside.is_of_ldap(table)).cloned();
            let outside = outside.unwrap_or_else(|| Arc::new(Outside::of_ldap(table)));
            (name, outside)
        });
        let trust = Trust::maps(&config.server.user, &config.server.group, config.maps.group_writable);
        let databases = config.sqlite.iter().map(|table| {
            let name: Box<str> = format!("sqlite:{}", table.name).into();
            let outside = old.outside.get(&name).filter(|outside| outside.is_of_sqlite(table, &trust)).cloned();
            let outside = outside.unwrap_or_else(|| Arc::new(Outside::of_sqlite(table, trust.clone())));
            (name, outside)
        });
        let outside = Arc::new(directories.chain(databases).collect());
        Self {
            files: Arc::clone(&old.files),
            users: LocalUsers::new(&config.local, &old.library),
            list_bytes_max: config.local.list_size_max,
            library: Arc::clone(&old.library),
            outside,
        }
    }

    /// Returns the same sources and kept answers, with the users of this configuration.
    pub(crate) fn with_users(&self, local: &config::Local) -> Self {
        let (files, library, outside) = (Arc::clone(&self.files), Arc::clone(&self.library), Arc::clone(&self.outside));
        Self { files, users: LocalUsers::new(local, &library), list_bytes_max: local.list_size_max, library, outside }
    }

    /// Has users' files read by these processes from now on, and reports files that count for nothing by `tell`.
    /// Holds after a change of the configuration too.
    pub(crate) fn begin(&self, readers: Option<Arc<Readers>>, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.files.begin(readers, Box::new(tell));
    }

    /// Reads a file of members. Blocks.
    pub(crate) fn include(&self, path: &str) -> Answer {
        self.files.find(&self.users, &FileQuery::include(path, &Reader::Aliases, self.list_bytes_max))
    }

    /// Reads the `.forward` of a user with this home. Blocks.
    pub(crate) fn forward(&self, user: &Arc<str>, home: Arc<str>) -> Answer {
        self.files.find(&self.users, &FileQuery::forward(user, home, None))
    }

    /// Finds the answer to a question.
    ///
    /// # Cancel safety
    /// Yes: a later call asks a dropped question again.
    pub(crate) async fn answer(self: &Arc<Self>, question: &Question) -> Answer {
        match question {
            Question::Map { source, .. } | Question::Routing { source, .. } => match self.outside.get(&**source) {
                Some(outside) => outside.answer(question).await,
                None => Answer::Trouble(format!("no source of the name \"{source}\" is configured").into()),
            },
            Question::User { name } => self.users.user(name).await,
            Question::Include { path, reader } => {
                let wanted = FileQuery::include(path, reader, self.list_bytes_max);
                self.files.answer(&self.users, wanted).await
            }
            Question::Forward { user, detail } => {
                let home = match self.users.user(user).await {
                    Answer::User { home } => home,
                    other => return other,
                };
                self.files.answer(&self.users, FileQuery::forward(user, home, detail.as_deref())).await
            }
        }
    }
}

impl Outside {
    fn of_ldap(table: &config::Ldap) -> Self {
        let limits = CacheLimits {
            positive: table.cache_time,
            negative: table.negative_time,
            stale_max: table.stale_max,
            entries_max: usize::try_from(table.cache_entries_max).unwrap_or(usize::MAX),
        };
        Self { cache: LookupCache::new(limits), kind: TableKind::Directory(Arc::new(Directory::new(table))) }
    }

    fn of_sqlite(table: &config::Sqlite, trust: Trust) -> Self {
        let limits = CacheLimits {
            positive: table.cache_time,
            negative: table.cache_time,
            stale_max: Duration::ZERO,
            entries_max: DATABASE_ENTRIES_MAX,
        };
        Self {
            cache: LookupCache::new(limits),
            kind: TableKind::Database(Arc::new(Database::new(table, trust)), table.clone()),
        }
    }

    fn is_of_ldap(&self, table: &config::Ldap) -> bool {
        matches!(&self.kind, TableKind::Directory(directory) if directory.table() == table)
    }

    fn is_of_sqlite(&self, table: &config::Sqlite, trust: &Trust) -> bool {
        matches!(&self.kind, TableKind::Database(database, of) if of == table && database.trust() == trust)
    }

    async fn answer(&self, question: &Question) -> Answer {
        match (&self.kind, question) {
            (TableKind::Directory(directory), _) => {
                let asking = || Arc::clone(directory).answer(question.clone());
                self.cache.answer(question, asking).await
            }
            (TableKind::Database(database, _), Question::Map { key, .. }) => {
                let asking = || Arc::clone(database).answer(Arc::clone(key));
                self.cache.answer(question, asking).await
            }
            (TableKind::Database(..), _) => Answer::Trouble("a database has maps, and no routing of its own".into()),
        }
    }
}
