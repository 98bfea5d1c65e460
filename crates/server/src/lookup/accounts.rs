//! Users of the machine that mail has to know: those of a file, and those that the C library finds elsewhere.
//!
//! The file is asked first and always answers. The library may ask a network: few threads ask it, for a limited time,
//! and its answers are kept like those of a directory.

use super::cache::{CacheLimits, LookupCache};
use crate::config;
use os::accounts::Kept;
use os::clock;
use os::login::Login;
use os::{blocking, nss};
use route::question::{Answer, Question};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest wait for the C library.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Questions to it at once, each with a thread, which may outlast the wait.
const QUESTIONS_MAX: usize = 16;
/// Answers of it that are kept.
const LIMITS: CacheLimits = CacheLimits {
    positive: Duration::from_secs(60),
    negative: Duration::from_secs(10),
    stale_max: Duration::from_secs(3_600),
    entries_max: 10_000,
};

/// Where users are.
#[derive(Clone, Debug)]
pub(crate) struct LocalUsers {
    accounts: Arc<Kept>,
    /// The C library, if it is asked for users that are not in the file.
    pub(super) library: Option<Arc<Library>>,
}

impl Default for LocalUsers {
    fn default() -> Self {
        Self::of_file_alone(PathBuf::new())
    }
}

impl LocalUsers {
    /// Makes the users of this file, and no others.
    pub(super) fn of_file_alone(passwd: PathBuf) -> Self {
        Self { accounts: Arc::new(Kept::new(passwd)), library: None }
    }

    /// Makes the users that are configured.
    pub(super) fn new(local: &config::Local, library: &Arc<Library>) -> Self {
        let library = config::has_nss(local).then(|| Arc::clone(library));
        Self { library, ..Self::of_file_alone(local.accounts.clone()) }
    }

    /// Answers whether there is a user of this name, and where his home is.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn user(&self, name: &Arc<str>) -> Answer {
        let (of_file, wanted) = (self.clone(), Arc::clone(name));
        let answer = blocking::run(move || of_file.of_file(&wanted)).await;
        match (answer.unwrap_or_else(|_| Answer::Trouble("the reading thread broke off".into())), &self.library) {
            (Answer::Nothing, Some(library)) => library.user(name).await,
            (answer, _) => answer,
        }
    }

    /// Answers whether there is an account of this name in the file, and where its home is. Blocks.
    fn of_file(&self, name: &str) -> Answer {
        match self.accounts.now() {
            Ok(accounts) => accounts.home(name).map_or(Answer::Nothing, |home| Answer::User { home: home.into() }),
            Err(error) => Answer::Trouble(error.to_string().into()),
        }
    }

    /// Returns the name of a user that may run programs: one with a shell of `/etc/shells`. Blocks. The error is a
    /// text.
    pub(super) fn with_shell(&self, uid: u32) -> Result<Option<Arc<str>>, String> {
        let accounts = self.accounts.now().map_err(|error| error.to_string())?;
        let found = match (accounts.name_and_shell(uid), &self.library) {
            (Some((name, shell)), _) => Some((name.to_owned(), shell.to_owned())),
            (None, Some(library)) => {
                let asking = move || nss::login_of(uid);
                library.known(&uid.to_string(), asking)?.map(|login| (login.name, login.shell))
            }
            (None, None) => None,
        };
        let Some((name, shell)) = found else { return Ok(None) };
        Ok(Self::has_shell(&shell).then(|| name.into()))
    }

    /// Returns whether a shell is one of `/etc/shells`. Blocks.
    pub(super) fn has_shell(shell: &str) -> bool {
        /// With this line in it every shell counts, as for sendmail.
        const ANY: &str = "/SENDMAIL/ANY/SHELL/";
        let shells = std::fs::read_to_string("/etc/shells").unwrap_or_default();
        shells.lines().map(str::trim).any(|line| line == shell || line == ANY)
    }

    /// Returns the account of a name. Blocks. The error is a text.
    pub(super) fn login(&self, name: &str) -> Result<Option<Login>, String> {
        let accounts = self.accounts.now().map_err(|error| error.to_string())?;
        match (accounts.login(name), &self.library) {
            (None, Some(library)) => {
                let wanted = name.to_owned();
                library.known(&format!("name {name}"), move || nss::login(&wanted))
            }
            (found, _) => Ok(found),
        }
    }
}

/// Answers of the C library, and the threads that wait for it.
#[derive(Debug)]
pub(super) struct Library {
    cache: Arc<LookupCache>,
    /// Accounts of owners of files, each with the time of the answer.
    owners: Mutex<HashMap<Box<str>, KnownLogin>>,
    places: Arc<Semaphore>,
}

/// An account, if there is one, and the time of the answer.
type KnownLogin = (Option<Login>, Instant);

impl Default for Library {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(QUESTIONS_MAX));
        Self { cache: LookupCache::new(LIMITS), owners: Mutex::default(), places }
    }
}

impl Library {
    async fn user(self: &Arc<Self>, name: &Arc<str>) -> Answer {
        let (library, wanted) = (Arc::clone(self), Arc::clone(name));
        let asking = move || async move {
            match library.login(wanted).await {
                Ok(Some(login)) if login.home.starts_with('/') => Answer::User { home: login.home.into() },
                Ok(_) => Answer::Nothing,
                Err(why) => Answer::Trouble(why.into()),
            }
        };
        self.cache.answer(&Question::User { name: Arc::clone(name) }, asking).await
    }

    async fn login(&self, name: Arc<str>) -> Result<Option<Login>, String> {
        let asking = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| "the server stops".to_owned())?;
            let asked = blocking::run(move || {
                let asked = nss::login(&name).map_err(|error| error.to_string());
                drop(place);
                asked
            });
            asked.await.unwrap_or_else(|_| Err("the reading thread broke off".to_owned()))
        };
        timeout(TIME_MAX, asking).await.unwrap_or_else(|_| Err(late()))
    }

    /// Returns the account of the owner of a file, from an answer of a moment ago or by asking. Blocks.
    fn known(
        &self,
        key: &str,
        asking: impl FnOnce() -> std::io::Result<Option<Login>> + Send + 'static,
    ) -> Result<Option<Login>, String> {
        let now = clock::now();
        let owners = || self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((login, said_at)) = owners().get(key) {
            let time = if login.is_some() { LIMITS.positive } else { LIMITS.negative };
            if now.saturating_duration_since(*said_at) < time {
                return Ok(login.clone());
            }
        }
        let login = self.owner(asking)?;
        let mut owners = owners();
        if owners.len() >= LIMITS.entries_max {
            owners.clear();
        }
        owners.insert(key.into(), (login.clone(), now));
        Ok(login)
    }

    /// Returns an account, asked for on a thread of its own: a file that is read may wait, and not for ever. Blocks.
    fn owner(
        &self,
        asking: impl FnOnce() -> std::io::Result<Option<Login>> + Send + 'static,
    ) -> Result<Option<Login>, String> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| late())?;
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            // The receiver has gone if the answer comes too late.
            drop(tell.send(asking().map_err(|error| error.to_string())));
            drop(place);
        });
        asked.recv_timeout(TIME_MAX).unwrap_or_else(|_| Err(late()))
    }
}

fn late() -> String {
    let time = TIME_MAX.as_secs();
    format!(
        "the C library did not say within {time} s who the user is; see the services of passwd in /etc/nsswitch.conf"
    )
}
