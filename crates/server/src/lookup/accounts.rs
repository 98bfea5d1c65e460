//! Users of the machine, as far as mail has to know them: those of a file, and those whom the C library finds elsewhere.
//!
//! The file is asked first and always answers. What the library says may come from a network: it is asked on few threads, for a
//! time, and kept as the answers of a directory are.

use super::cache::{Cache, Limits};
use crate::config;
use crate::env::accounts::Accounts;
use crate::env::{blocking, nss};
use route::question::{Answer, Question};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest wait for the C library.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Questions to it at once, each with a thread, which may outlast the wait.
const QUESTIONS_MAX: usize = 16;
/// Answers of it that are kept.
const LIMITS: Limits = Limits {
    positive: Duration::from_secs(60),
    negative: Duration::from_secs(10),
    stale_max: Duration::from_secs(3_600),
    entries_max: 10_000,
};

/// Where users are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users {
    pub(super) passwd: PathBuf,
    /// Whether the C library is asked for those who are not in the file.
    pub(super) has_nss: bool,
}

impl Users {
    /// As they are configured.
    pub(crate) fn new(local: &config::Local) -> Self {
        Self { passwd: local.accounts.clone(), has_nss: local.has_nss() }
    }

    /// Whether there is an account of this name in the file, and where its home is. Blocks.
    fn of_file(&self, name: &str) -> Answer {
        match Accounts::read_with(&self.passwd) {
            Ok(accounts) => accounts.home(name).map_or(Answer::Nothing, |home| Answer::User { home: home.into() }),
            Err(error) => Answer::Trouble(error.to_string().into()),
        }
    }

    /// The name of a user who may run programs by himself: one with a shell of `/etc/shells`. Blocks. The error is a text.
    pub(super) fn with_shell(&self, uid: u32) -> Result<Option<Arc<str>>, String> {
        /// With this line in it every shell counts, as for sendmail.
        const ANY: &str = "/SENDMAIL/ANY/SHELL/";
        let accounts = Accounts::read_with(&self.passwd).map_err(|error| error.to_string())?;
        let found = match accounts.name_and_shell(uid) {
            Some((name, shell)) => Some((name.to_owned(), shell.to_owned())),
            None if self.has_nss => {
                let login = nss::login_of(uid).map_err(|error| error.to_string())?;
                login.map(|login| (login.name, login.shell))
            }
            None => None,
        };
        let Some((name, shell)) = found else { return Ok(None) };
        let shells = std::fs::read_to_string("/etc/shells").unwrap_or_default();
        let is_listed = shells.lines().map(str::trim).any(|line| line == shell || line == ANY);
        Ok(is_listed.then(|| name.into()))
    }
}

/// What the C library has said, and the threads that wait for it.
#[derive(Debug)]
pub(super) struct Library {
    cache: Arc<Cache>,
    places: Arc<Semaphore>,
}

impl Default for Library {
    fn default() -> Self {
        Self { cache: Cache::new(LIMITS), places: Arc::new(Semaphore::new(QUESTIONS_MAX)) }
    }
}

impl Library {
    /// Whether there is a user of this name, and where his home is.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn user(self: &Arc<Self>, users: &Users, name: &Arc<str>) -> Answer {
        let (of_file, wanted) = (users.clone(), Arc::clone(name));
        let answer = blocking::run(move || of_file.of_file(&wanted)).await;
        match answer.unwrap_or_else(|_| Answer::Trouble("the reading thread broke off".into())) {
            Answer::Nothing if users.has_nss => {}
            answer => return answer,
        }
        let (library, wanted) = (Arc::clone(self), Arc::clone(name));
        let asking = move || async move {
            let asked = library.bounded(move || nss::login(&wanted)).await;
            match asked.map(|found| found.map_err(|error| error.to_string())) {
                Ok(Ok(Some(login))) if login.home.starts_with('/') => Answer::User { home: login.home.into() },
                Ok(Ok(_)) => Answer::Nothing,
                Ok(Err(why)) | Err(why) => Answer::Trouble(why.into()),
            }
        };
        self.cache.answer(&Question::User { name: Arc::clone(name) }, asking).await
    }

    /// Does what may wait for the C library, where few threads can be lost to it.
    ///
    /// # Errors
    /// It takes too long; the text says so.
    pub(super) async fn bounded<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let asking = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| "the server stops".to_owned())?;
            let done = blocking::run(move || {
                let done = work();
                drop(place);
                done
            });
            done.await.map_err(|_| "the reading thread broke off".to_owned())
        };
        let late = || {
            let time = TIME_MAX.as_secs();
            format!(
                "the C library did not say within {time} s who the user is; see the services of passwd in /etc/nsswitch.conf"
            )
        };
        timeout(TIME_MAX, asking).await.unwrap_or_else(|_| Err(late()))
    }
}
