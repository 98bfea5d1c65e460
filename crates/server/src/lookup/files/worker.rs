//! The process that reads a user's files: root until its first request, and that user from then on.
//!
//! It finds the user, the home and the name of the `.forward` by itself, from the accounts of the machine and the
//! settings that the helper gave it. So an attacker in control of the server can read only text files that the user
//! could read anyway, and that belong to the user, root or, for `:include:`, another owner in a safe place; he reads
//! no file as root.

use super::path::{Acting, FileError, Rules};
use super::request::{Reply, Request, What};
use super::text::{self, Read};
use crate::config::Local;
use ::local::order::Settings;
use ::local::person;
use os::accounts::Kept;
use os::login::Login;
use os::privileges::{self, Account};
use os::seccomp;
use rustix::process::geteuid;
use std::io::{self, BufReader, BufWriter};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Octets of a `.forward`, and of files that it includes.
pub(crate) const USER_BYTES_MAX: u64 = 64 << 10;

/// Answers requests until there are none for `idle_time`, or the server is gone.
///
/// # Errors
/// It got something else than a request, or the server has closed the stream.
pub(crate) fn serve(stream: &UnixStream, settings: &Settings, idle_time: Duration) -> io::Result<()> {
    let accounts = Kept::new(settings.accounts.clone()).with_nss(settings.has_nss);
    let mut reader = Reader { settings, accounts, login: None };
    stream.set_read_timeout(Some(idle_time))?;
    let mut from = BufReader::new(stream);
    while let Some(request) = Request::receive(&mut from)? {
        let reply = reader.answer(&request);
        reply.send(&mut BufWriter::with_capacity(64 << 10, stream))?;
    }
    Ok(())
}

struct Reader<'s> {
    settings: &'s Settings,
    accounts: Kept,
    /// The user that the process has become.
    login: Option<Login>,
}

impl Reader<'_> {
    fn answer(&mut self, request: &Request) -> Reply {
        match self.become_user(request) {
            Ok(login) => answer(&login, request, self.settings.list_size_max),
            Err(reply) => reply,
        }
    }

    /// Becomes the user of a request, or checks that it is this user.
    fn become_user(&mut self, request: &Request) -> Result<Login, Reply> {
        let login = self.find(request)?;
        let name = &login.name;
        if login.uid == 0 {
            let why = format!("no file is read as root (user {name}); make {name} an alias of a person");
            return Err(Reply::Refused { path: name.clone(), why, stamp: None });
        }
        if !request.user.is_empty() && login.uid < self.settings.uid_min && matches!(request.what, What::Include { .. })
        {
            let why = format!(
                "user {name} has the number {}, below local.uid_min = {}; a .forward of it includes no files",
                login.uid, self.settings.uid_min
            );
            return Err(Reply::Refused { path: name.clone(), why, stamp: None });
        }
        match &self.login {
            Some(known) if *known == login => Ok(login),
            Some(_) => Err(Reply::OtherUser),
            None => {
                // A process that was never root reads for its own user.
                if geteuid().is_root() {
                    let (name, groups) = (login.name.clone(), login.groups.clone());
                    let account = Account { name, uid: login.uid, gid: login.gid, groups };
                    privileges::drop_to(&account).map_err(|error| Reply::Trouble(error.to_string()))?;
                    // The process only reads files from here on. A kernel may have no filters.
                    if self.settings.has_seccomp {
                        drop(seccomp::apply());
                    }
                } else if geteuid().as_raw() != login.uid {
                    return Err(Reply::OtherUser);
                }
                self.login = Some(login.clone());
                Ok(login)
            }
        }
    }

    fn find(&self, request: &Request) -> Result<Login, Reply> {
        let trouble = |error: io::Error| Reply::Trouble(error.to_string());
        let accounts = self.accounts.now().map_err(trouble)?;
        if request.user.is_empty() {
            let is_there = |name: &str| accounts.find(name).is_ok_and(|found| found.is_some());
            let user = Local::default_user_of(&self.settings.default_user, is_there);
            let named = person::configured_login("local.default_user", user, &accounts);
            return named.map_err(|verdict| Reply::Trouble(verdict.text));
        }
        accounts.find(&request.user).map_err(trouble)?.ok_or(Reply::Absent)
    }
}

/// Returns the answer to a request for this user, whose rights the process has.
fn answer(login: &Login, request: &Request, list_bytes_max: u64) -> Reply {
    let is_default = request.user.is_empty();
    let acting = match &request.what {
        What::Include { is_public: true, .. } => Acting::ForAnyone,
        _ => Acting::Itself,
    };
    let any_owner = matches!(request.what, What::Include { .. });
    let rules = Rules { acting, trusted: vec![login.uid], any_owner };
    let bytes_max = if is_default { list_bytes_max } else { USER_BYTES_MAX };
    for path in paths(&login.home, &request.what) {
        let known = request.known.as_ref().filter(|(name, _)| *name == path).map(|(_, stamp)| *stamp);
        match reply_of(path, &rules, bytes_max, known) {
            Reply::Absent => {}
            reply => return reply,
        }
    }
    Reply::Absent
}

/// Returns the files that may be meant, in their order.
pub(super) fn paths(home: &str, what: &What) -> Vec<String> {
    match what {
        What::Include { path, .. } => vec![path.clone()],
        What::Forward { detail } => {
            let detail = detail.as_deref().filter(|detail| !detail.contains('/'));
            let detailed = detail.map(|detail| format!("{home}/.forward+{detail}"));
            detailed.into_iter().chain([format!("{home}/.forward")]).collect()
        }
    }
}

/// Reads one file.
pub(super) fn reply_of(path: String, rules: &Rules, bytes_max: u64, known: Option<super::path::Stamp>) -> Reply {
    match text::read(Path::new(&path), rules, bytes_max, known) {
        Ok(Read::Unchanged) => Reply::Unchanged,
        Ok(Read::Text { text, stamp, is_exclusive }) => Reply::Text { path, text, stamp, is_exclusive },
        Err((FileError::Absent, _)) => Reply::Absent,
        Err((FileError::Denied, _)) => Reply::Denied { path },
        Err((FileError::Refused(why), stamp)) => Reply::Refused { path, why, stamp },
        Err((FileError::Trouble(why), _)) => Reply::Trouble(why),
    }
}
