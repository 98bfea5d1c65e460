//! Users of the machine, as far as mail has to know them.

use crate::env::accounts::Accounts;
use route::question::Answer;
use std::path::Path;

/// Whether there is an account of this name, and where its home is.
pub(super) fn user(passwd: &Path, name: &str) -> Answer {
    match Accounts::read_with(passwd) {
        Ok(accounts) => accounts.home(name).map_or(Answer::Nothing, |home| Answer::User { home: home.into() }),
        Err(error) => Answer::Trouble(error.to_string().into()),
    }
}
