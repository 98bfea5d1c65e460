//! Who answers the questions of `route`: files of lists and users, accounts of the machine, and sources outside.
//!
//! Every answer is bounded in time and size. What cannot be had now is [`Answer::Trouble`]: the mail waits, and the text says
//! for what.

mod accounts;
mod files;

use crate::env::blocking;
use files::Files;
use route::question::{Answer, Question};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everybody who can be asked.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    files: Arc<Files>,
    /// The file of users.
    accounts: PathBuf,
}

impl Lookups {
    /// The same, with what it has read, for the users of this file.
    pub(crate) fn with_accounts(&self, accounts: &Path) -> Self {
        Self { files: Arc::clone(&self.files), accounts: accounts.to_owned() }
    }

    /// Finds the answer to a question.
    ///
    /// # Cancel safety
    /// Yes: a question that nobody waits for is asked again.
    pub(crate) async fn answer(self: &Arc<Self>, question: &Question) -> Answer {
        match question {
            Question::Map { source, .. } | Question::Routing { source, .. } => {
                Answer::Trouble(format!("no source of the name \"{source}\" is configured").into())
            }
            Question::Include { .. } | Question::User { .. } | Question::Forward { .. } => {
                let (lookups, question) = (Arc::clone(self), question.clone());
                let answered = blocking::run(move || lookups.on_this_machine(&question)).await;
                answered.unwrap_or_else(|_| Answer::Trouble("the reading thread broke off".into()))
            }
        }
    }

    /// What files and accounts say. It may wait for a disk.
    pub(crate) fn on_this_machine(&self, question: &Question) -> Answer {
        match question {
            Question::Include { path, .. } => self.files.include(&self.accounts, path),
            Question::User { name } => accounts::user(&self.accounts, name),
            Question::Forward { user, detail } => self.files.forward(&self.accounts, user, detail.as_deref()),
            Question::Map { .. } | Question::Routing { .. } => Answer::Nothing,
        }
    }
}
