//! Look-ups: maps in memory are read at once, others are questions to the caller.
//!
//! A function that needs a look-up gets an [`Ask`] and returns `Err(Stop::Open)` when an answer is missing. Its caller
//! takes the open questions, finds the [`Answers`], and calls the function anew with them: it does the same up to there
//! and goes on. As a rule one or two rounds do. Look-ups in memory are cheap enough to be made again.

use crate::map::Table;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Where a map is.
#[derive(Clone, Debug)]
pub enum Source {
    /// In memory.
    Loaded(Arc<Table>),
    /// Somewhere else: a name by which the caller knows it, `ldap:people`.
    Outside(Arc<str>),
}

/// With whose rights a file is opened that a text names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reader {
    /// The administrator names it: in an alias, or in a list that belongs to root.
    #[default]
    Aliases,
    /// This user names it, and may see no more than this user's own programs may.
    User(Arc<str>),
    /// Several users could have written the text that names it: only a file that every user can read counts.
    Anyone,
}

/// A question that only the caller can answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// The value of a key in a map outside: `Answer::Value`.
    Map {
        /// Its name.
        source: Arc<str>,
        /// As it is looked up.
        key: Arc<str>,
    },
    /// The attributes of an address in a directory, for LDAP routing: `Answer::Routing`.
    Routing {
        /// The name of the directory.
        source: Arc<str>,
        /// `user@domain` or `@domain`.
        key: Arc<str>,
    },
    /// The text of an `:include:` file: `Answer::Text`, or `Answer::Nothing` if there is none that counts.
    Include {
        /// As the alias names it.
        path: Arc<str>,
        /// With whose rights it is opened.
        reader: Reader,
    },
    /// Whether there is an account of this name on this machine: `Answer::User`.
    User {
        /// As in an address, in its own case.
        name: Arc<str>,
    },
    /// The text of the user's `.forward`, looked for as sendmail does (`.forward+detail`, then `.forward`):
    /// `Answer::Text`, or `Answer::Nothing`.
    Forward {
        /// The account.
        user: Arc<str>,
        /// The text behind the delimiter.
        detail: Option<Arc<str>>,
    },
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is nothing of that name.
    Nothing,
    /// The value of a key, and the name of its place: `ldap:people uid=joe,dc=example`.
    Value {
        /// As it is stored.
        value: Arc<str>,
        /// Where, in words.
        place: Arc<str>,
    },
    /// The values of a directory for an address.
    Routing {
        /// `mailHost`.
        host: Option<Arc<str>>,
        /// `mailRoutingAddress`.
        address: Option<Arc<str>>,
    },
    /// The text of a file, and its full name.
    Text {
        /// All of it.
        text: Arc<str>,
        /// Its name, for people.
        file: Arc<str>,
        /// The user whose programs and files it may name: its owner. `None`: it may name none, for others can write to
        /// it, or its owner is no user with a shell.
        owner: Option<Arc<str>>,
    },
    /// There is such an account.
    User {
        /// Its home directory.
        home: Arc<str>,
    },
    /// It cannot be said now, for this reason. The mail waits.
    Trouble(Arc<str>),
}

/// Answers that were found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(HashMap<Question, Answer>);

impl Answers {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all questions with their answers: a decision made with them depends on these and the maps in memory.
    pub fn into_all(self) -> impl Iterator<Item = (Question, Answer)> {
        self.0.into_iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps an answer.
    pub fn insert(&mut self, question: Question, answer: Answer) {
        self.0.insert(question, answer);
    }

    /// The answer to a question.
    #[must_use]
    pub fn get(&self, question: &Question) -> Option<&Answer> {
        self.0.get(question)
    }
}

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Questions are open.
    Open,
    /// A question has no answer now: for a temporary failure.
    Trouble(Arc<str>),
    /// The decision takes more work than [`Ask::with_work`] allows. The caller makes it where more is allowed.
    TooMuchWork,
}

/// Where an entry stands, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLocation {
    /// The map: `mailertable`.
    pub map: Arc<str>,
    /// Its file, or what a map outside calls the place.
    pub file: Arc<str>,
    /// The line of a text file.
    pub line: Option<u32>,
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// The key as it was asked for.
    pub key: Arc<str>,
    /// As it is stored.
    pub value: Arc<str>,
    /// Where it stands.
    pub place: EntryLocation,
}

/// Looks up a known answer, and notes a question without one.
#[derive(Debug)]
pub struct Ask<'a> {
    answers: &'a Answers,
    open: Vec<Question>,
    noted: HashSet<Question>,
    /// Units of work that are left.
    work: u64,
}

impl<'a> Ask<'a> {
    /// With these answers, and as much work as it takes.
    #[must_use]
    pub fn new(answers: &'a Answers) -> Self {
        Self::with_work(answers, u64::MAX)
    }

    /// With these answers and at most so much work: a unit is an address or a member that is looked at, or 64 octets of
    /// a list.
    #[must_use]
    pub fn with_work(answers: &'a Answers, work: u64) -> Self {
        Self { answers, open: Vec::new(), noted: HashSet::new(), work }
    }

    /// Counts work before it is done.
    ///
    /// # Errors
    /// [`Stop::TooMuchWork`] if more is done than was allowed.
    pub const fn work(&mut self, units: u64) -> Result<(), Stop> {
        match self.work.checked_sub(units) {
            Some(left) => {
                self.work = left;
                Ok(())
            }
            None => Err(Stop::TooMuchWork),
        }
    }

    /// The entry of a key in the first of these sources that has one. `map`: the name of the map in messages.
    ///
    /// # Errors
    /// [`Stop::Open`] if a source outside has to be asked first, [`Stop::Trouble`] if it cannot answer.
    pub fn find(&mut self, map: &str, sources: &[Source], key: &str) -> Result<Option<MapEntry>, Stop> {
        for source in sources {
            match source {
                Source::Loaded(table) => {
                    if let Some(hit) = table.get(key) {
                        let place = EntryLocation { map: map.into(), file: table.file().into(), line: hit.line };
                        return Ok(Some(MapEntry { key: key.into(), value: hit.value.into(), place }));
                    }
                }
                Source::Outside(name) => {
                    let question = Question::Map { source: Arc::clone(name), key: key.into() };
                    if let Answer::Value { value, place } = self.answer(question)? {
                        let place = EntryLocation { map: map.into(), file: place, line: None };
                        return Ok(Some(MapEntry { key: key.into(), value, place }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The answer to a question; never [`Answer::Trouble`].
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn answer(&mut self, question: Question) -> Result<Answer, Stop> {
        match self.answers.get(&question) {
            Some(Answer::Trouble(why)) => Err(Stop::Trouble(Arc::clone(why))),
            Some(answer) => Ok(answer.clone()),
            None => {
                // A list may have a hundred thousand users to ask for.
                if self.noted.insert(question.clone()) {
                    self.open.push(question);
                }
                Err(Stop::Open)
            }
        }
    }

    /// Returns the questions that must be answered first.
    #[must_use]
    pub fn into_open(self) -> Vec<Question> {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_beyond_what_is_allowed_stops() {
        let answers = Answers::new();
        let mut ask = Ask::with_work(&answers, 3);
        assert_eq!((ask.work(2), ask.work(1), ask.work(1)), (Ok(()), Ok(()), Err(Stop::TooMuchWork)));
        assert_eq!(Ask::new(&answers).work(1 << 60), Ok(()));
    }

    #[test]
    fn a_question_is_asked_once_and_trouble_is_not_nothing() {
        let sources = [Source::Outside("ldap:a".into()), Source::Outside("ldap:b".into())];
        let mut answers = Answers::new();
        let mut ask = Ask::new(&answers);
        assert_eq!(ask.find("virtusertable", &sources, "k"), Err(Stop::Open));
        assert_eq!(ask.find("virtusertable", &sources, "k"), Err(Stop::Open));
        let open = ask.into_open();
        assert_eq!(open.len(), 1);
        answers.insert(open[0].clone(), Answer::Nothing);
        let mut ask = Ask::new(&answers);
        assert_eq!(ask.find("virtusertable", &sources, "k"), Err(Stop::Open));
        let open = ask.into_open();
        let mut known = answers.clone();
        known.insert(open[0].clone(), Answer::Value { value: "v".into(), place: "ldap:b".into() });
        let found = Ask::new(&known).find("virtusertable", &sources, "k").unwrap().unwrap();
        assert_eq!((&*found.value, &*found.place.file), ("v", "ldap:b"));
        answers.insert(open[0].clone(), Answer::Trouble("down".into()));
        assert_eq!(Ask::new(&answers).find("virtusertable", &sources, "k"), Err(Stop::Trouble("down".into())));
    }
}
