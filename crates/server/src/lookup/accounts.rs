//! Users of the machine, as far as mail has to know them: those of a file, and those whom the C library finds elsewhere.
//!
//! The file is asked first and always answers. What the library says may come from a network: it is asked on few threads, for a
//! time, and kept as the answers of a directory are.

use super::cache::{Cache, Limits};
use crate::config;
use crate::env::accounts::{Accounts, Login};
use crate::env::{blocking, nss};
use route::question::{Answer, Question};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    pub(super) passwd: PathBuf,
    /// The C library, if it is asked for those who are not in the file.
    pub(super) library: Option<Arc<Library>>,
}

impl Users {
    /// As they are configured.
    pub(super) fn new(local: &config::Local, library: &Arc<Library>) -> Self {
        Self { passwd: local.accounts.clone(), library: local.has_nss().then(|| Arc::clone(library)) }
    }

    /// Whether there is a user of this name, and where his home is.
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
        let found = match (accounts.name_and_shell(uid), &self.library) {
            (Some((name, shell)), _) => Some((name.to_owned(), shell.to_owned())),
            (None, Some(library)) => library.owner(uid)?.map(|login| (login.name, login.shell)),
            (None, None) => None,
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

    /// The user of this number, on a thread of its own: who reads a file may wait, and not for ever. Blocks.
    fn owner(&self, uid: u32) -> Result<Option<Login>, String> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| late())?;
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            // Nobody hears it if it comes too late.
            drop(tell.send(nss::login_of(uid).map_err(|error| error.to_string())));
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
