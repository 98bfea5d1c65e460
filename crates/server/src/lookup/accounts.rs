//! Users of the machine, as far as mail has to know them.

use crate::env::accounts::Accounts;
use route::question::Answer;
use std::path::Path;
use std::sync::Arc;

/// Whether there is an account of this name, and where its home is.
pub(super) fn user(passwd: &Path, name: &str) -> Answer {
    match Accounts::read_with(passwd) {
        Ok(accounts) => accounts.home(name).map_or(Answer::Nothing, |home| Answer::User { home: home.into() }),
        Err(error) => Answer::Trouble(error.to_string().into()),
    }
}

/// The name of a user who may run programs by himself: one with a shell of `/etc/shells`.
pub(super) fn with_shell(passwd: &Path, uid: u32) -> Option<Arc<str>> {
    /// With this line in it every shell counts, as for sendmail.
    const ANY: &str = "/SENDMAIL/ANY/SHELL/";
    let accounts = Accounts::read_with(passwd).ok()?;
    let (name, shell) = accounts.name_and_shell(uid)?;
    let shells = std::fs::read_to_string("/etc/shells").unwrap_or_default();
    let is_listed = shells.lines().map(str::trim).any(|line| line == shell || line == ANY);
    is_listed.then(|| name.into())
}
