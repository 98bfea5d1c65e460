//! The aliases and forwards by which a recipient was reached: for loops, for the rights of programs, and for people.
//!
//! Members of one list share one link, so a million members cost one.

use crate::question::Reader;
use crate::refusal::Refusal;
use mail::{EnhancedCode, LocalPart, ReversePath};
use std::fmt;
use std::sync::Arc;

/// The way from a recipient to a member. A recipient of a mail has the default one.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub(super) link: Option<Arc<Link>>,
    pub(super) controller: Controller,
    pub(super) sender: Option<Arc<ReversePath>>,
    /// The line of the member in the file that names it; `None` if an alias does.
    pub(super) line: Option<u32>,
}

/// With whose rights programs run and files are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Controller {
    /// Those of the user for aliases.
    #[default]
    Default,
    /// Those of this user.
    User(Arc<str>),
    /// No user: any user could have written the text that names them.
    Nobody,
}

/// The kind of entry that has led to members.
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
    /// With whose rights files are opened that its text names.
    pub(super) reader: Reader,
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

    /// With whose rights files are opened that the text names in which this member stands.
    pub(super) fn reader(&self) -> Reader {
        self.link.as_ref().map(|link| link.reader.clone()).unwrap_or_default()
    }

    /// The first file on the way, a `.forward` or an `:include:` file of an alias, and the line in it that led here.
    ///
    /// The text of that file belongs to a user and is not shown to any client or sender or in a report; names on the
    /// way to the file are the administrator's own.
    pub(super) fn first_file(&self) -> Option<(&Arc<Link>, Option<u32>)> {
        let mut first = None;
        let mut here = self;
        while let Some(link) = &here.link {
            if link.stage != Stage::Alias {
                first = Some((link, here.line));
            }
            here = &link.from;
        }
        first
    }

    /// The same for people: `.forward`, `.forward of joe`, `:include:/etc/mail/list`. `root`: the recipient whom the
    /// text is about.
    pub(super) fn first_file_name(&self, root: &LocalPart) -> Option<(String, Option<u32>)> {
        let (link, line) = self.first_file()?;
        let name = match link.stage {
            Stage::Forward if link.name.eq_ignore_ascii_case(root.as_str()) => ".forward".to_owned(),
            Stage::Forward => format!(".forward of {}", link.name),
            Stage::Alias | Stage::Include => format!(":include:{}", link.name),
        };
        Some((name, line))
    }

    /// The refusal for a member of a file that cannot be used: it names the file and the line. `None`: an alias names
    /// the member.
    pub(crate) fn wrong(&self, root: &LocalPart, status: EnhancedCode) -> Option<Refusal> {
        let (file, line) = self.first_file_name(root)?;
        let line = line.map(|line| format!(" in line {line}")).unwrap_or_default();
        Some(Refusal::new(550, status, &format!("<{root}>... {file} is wrong{line}")))
    }

    /// Whether a user's `.forward` is on the way.
    pub(crate) fn has_forward(&self) -> bool {
        self.links().any(|link| link.stage == Stage::Forward)
    }

    /// Returns the way as far as the first file: a client may be told this part.
    pub(super) fn public(&self) -> String {
        match self.first_file() {
            Some((link, _)) => {
                let way = Self { link: Some(Arc::clone(link)), ..Self::default() };
                way.to_string()
            }
            None => self.to_string(),
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        std::iter::successors(self.link.as_ref(), |link| link.from.link.as_ref())
    }

    /// Returns the origin of the members that this user's alias or forward, or this file, names.
    pub(super) fn through(
        &self,
        stage: Stage,
        name: &str,
        user: Option<&LocalPart>,
        (controller, reader): (Controller, Reader),
    ) -> Self {
        let depth = self.depth();
        let link = Link { stage, name: name.into(), user: user.cloned(), from: self.clone(), depth, reader };
        Self { link: Some(Arc::new(link)), controller, sender: self.sender.clone(), line: None }
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
