//! By which aliases and forwards somebody was reached: for loops, for the rights of programs, and for people.
//!
//! Members of one list share one link, so a million members cost one.

use mail::{LocalPart, ReversePath};
use std::fmt;
use std::sync::Arc;

/// The way from a recipient to a member. A recipient of a mail has the default one.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub(super) link: Option<Arc<Link>>,
    pub(super) controller: Controller,
    pub(super) sender: Option<Arc<ReversePath>>,
}

/// With whose rights programs run and files are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Controller {
    /// Those of the user for aliases.
    #[default]
    Default,
    /// Those of this user.
    User(Arc<str>),
    /// Nobody's: anybody could have written the text that names them.
    Nobody,
}

/// What has led to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Alias,
    Forward,
    Include,
}

/// One alias, forward or file on the way.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stage: Stage,
    /// The user in lower case, or the file.
    pub(super) name: Box<str>,
    /// The user.
    pub(super) user: Option<LocalPart>,
    /// How the user himself was reached.
    pub(super) from: Origin,
    /// How many come before it.
    pub(super) depth: usize,
}

impl Origin {
    /// How many aliases, forwards and files lead here; 0 for a recipient.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.depth + 1)
    }

    /// The user with whose rights a program runs and a file is written; `None`: the one of aliases.
    #[must_use]
    pub fn controller(&self) -> Option<&str> {
        match &self.controller {
            Controller::User(user) => Some(user),
            Controller::Default | Controller::Nobody => None,
        }
    }

    /// The sender that mail has from here on: the owner of the innermost list that has one.
    #[must_use]
    pub fn sender(&self) -> Option<&ReversePath> {
        self.sender.as_deref()
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        std::iter::successors(self.link.as_ref(), |link| link.from.link.as_ref())
    }

    /// The origin of what this user's alias or forward, or this file, names.
    pub(super) fn through(&self, stage: Stage, name: &str, user: Option<&LocalPart>, controller: Controller) -> Self {
        let depth = self.depth();
        let link = Link { stage, name: name.into(), user: user.cloned(), from: self.clone(), depth };
        Self { link: Some(Arc::new(link)), controller, sender: self.sender.clone() }
    }
}

/// The names from the recipient on: `list → :include:/etc/mail/list → joe`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut links: Vec<&Arc<Link>> = self.links().collect();
        links.reverse();
        for (number, link) in links.iter().enumerate() {
            if number > 0 {
                f.write_str(" → ")?;
            }
            match link.stage {
                Stage::Alias => f.write_str(&link.name)?,
                Stage::Forward => write!(f, "{}/.forward", link.name)?,
                Stage::Include => write!(f, ":include:{}", link.name)?,
            }
        }
        Ok(())
    }
}
