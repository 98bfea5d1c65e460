//! Aliases in tables, at random, and in great numbers.
//!
//! [`World`] is a machine in a table: it answers what the expansion asks, and follows addresses of its own domain as
//! the router does.

mod file;
mod member;
mod oracle;
mod quoting;
mod random;
mod speed;

use super::{AliasSettings, AliasTarget, Origin, expand, parse_aliases};
use crate::question::{Answer, Answers, Ask, Question, Reader, Source, Stop};
use crate::step::Step;
use mail::{Address, Domain, DomainName, LocalPart};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// A machine in a table.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) aliases: Vec<Source>,
    /// Those with a `.forward` of this text; an account without one has an empty text.
    pub(super) accounts: BTreeMap<String, String>,
    /// Text and owner. Users cannot read those below `/admin`.
    pub(super) includes: BTreeMap<String, (Arc<str>, Option<String>)>,
    pub(super) depth_max: usize,
    pub(super) expansion_max: usize,
    pub(super) delimiter: char,
}

pub(super) const ACCOUNTS: &[&str] =
    &["root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "backup", "irc"];

/// The result for a recipient.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// `lp`, `news+x`, `joe@a.example`, `games|command`, `/path`, `?unknown`, `554 5.4.6 …`; sorted. A sender stands
    /// before it: `[owner@our.test]lp`.
    pub(super) who: Vec<String>,
    pub(super) steps: Vec<Step>,
    pub(super) rounds: usize,
    /// The cause of a failed look-up.
    pub(super) trouble: Option<String>,
}

impl World {
    pub(super) fn new(aliases: &str) -> Self {
        let read = parse_aliases("/etc/aliases", aliases, &|domain| domain == "our.test");
        Self {
            aliases: vec![Source::Loaded(Arc::new(read.table))],
            accounts: ACCOUNTS.iter().map(|name| ((*name).to_owned(), String::new())).collect(),
            includes: BTreeMap::new(),
            depth_max: 10,
            expansion_max: 1_000_000,
            delimiter: '+',
        }
    }

    pub(super) fn forward(mut self, user: &str, text: &str) -> Self {
        self.accounts.insert(user.to_owned(), text.to_owned());
        self
    }

    pub(super) fn include(mut self, path: &str, owner: Option<&str>, text: &str) -> Self {
        self.includes.insert(path.to_owned(), (text.into(), owner.map(ToOwned::to_owned)));
        self
    }

    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::User { name } if self.accounts.contains_key(&**name) => Answer::User { home: "/home".into() },
            Question::Forward { user, .. } => match self.accounts.get(&**user) {
                Some(text) if !text.is_empty() => Answer::Text {
                    text: text.as_str().into(),
                    file: format!("/home/{user}/.forward").into(),
                    owner: (!text.starts_with("# unsafe")).then(|| Arc::clone(user)),
                },
                _ => Answer::Nothing,
            },
            Question::Include { path, reader: Reader::User(_) } if path.starts_with("/admin/") => Answer::Nothing,
            Question::Include { path, .. } => match self.includes.get(&**path) {
                Some((text, owner)) => Answer::Text {
                    text: Arc::clone(text),
                    file: Arc::clone(path),
                    owner: owner.as_deref().map(Into::into),
                },
                None if path.starts_with("/later") => Answer::Trouble("disk is away".into()),
                None => Answer::Nothing,
            },
            _ => Answer::Nothing,
        }
    }

    pub(super) fn who(&self, name: &str) -> Vec<String> {
        let came = self.came(name);
        assert_eq!(came.trouble, None, "{name}");
        came.who
    }

    pub(super) fn came(&self, name: &str) -> Came {
        let mut answers = Answers::new();
        let mut came = Came::default();
        loop {
            came.rounds += 1;
            assert!(came.rounds < 60, "it does not end");
            let mut ask = Ask::new(&answers);
            match self.all(&mut ask, name, &mut came) {
                Ok(()) => return came,
                Err(Stop::Open) => {
                    let open = ask.into_open();
                    assert!(!open.is_empty(), "open, but nothing to ask");
                    for question in open {
                        let answer = self.answer(&question);
                        answers.insert(question, answer);
                    }
                }
                Err(Stop::Trouble(why)) => {
                    came.trouble = Some(why.to_string());
                    return came;
                }
                Err(Stop::TooMuchWork) => unreachable!("any work is allowed"),
            }
        }
    }

    /// As the router does: addresses of our domain come back as users, each once.
    fn all(&self, ask: &mut Ask<'_>, name: &str, came: &mut Came) -> Result<(), Stop> {
        let hostname = DomainName::new("our.test").unwrap();
        let is_local = |domain: &Domain| matches!(domain, Domain::Name(name) if name.ascii() == "our.test");
        let settings = AliasSettings {
            hostname: &hostname,
            is_local: &is_local,
            delimiter: Some(self.delimiter),
            depth_max: self.depth_max,
            expansion_max: self.expansion_max,
            accounts: true,
            forward: true,
        };
        let mut who = Vec::new();
        let mut seen: HashSet<Address> = HashSet::new();
        let mut reached = HashSet::new();
        let mut users = VecDeque::from([(LocalPart::new(name).unwrap(), Origin::default())]);
        let mut is_open = false;
        came.steps.clear();
        while let Some((user, origin)) = users.pop_front() {
            let expansion = match expand(ask, &self.aliases, &settings, &user, &origin) {
                Ok(expansion) => expansion,
                Err(Stop::Open) => {
                    is_open = true;
                    continue;
                }
                Err(trouble) => return Err(trouble),
            };
            came.steps.extend(expansion.steps);
            for one in expansion.recipients {
                let controller = one.origin.controller().unwrap_or_default().to_owned();
                let text = match one.target {
                    AliasTarget::Address(address) if is_local(address.domain()) => {
                        if seen.insert(address.clone()) {
                            users.push_back((address.local_part().clone(), one.origin));
                        }
                        continue;
                    }
                    AliasTarget::Address(address) => address.to_string(),
                    AliasTarget::Mailbox { user, detail } => {
                        format!("{user}{}", detail.map(|detail| format!("+{detail}")).unwrap_or_default())
                    }
                    AliasTarget::Program { command } => format!("{controller}|{command}"),
                    AliasTarget::File { path } => format!("{controller}{path}"),
                    AliasTarget::Unknown { user } => format!("?{user}"),
                    AliasTarget::Refused(refusal) => refusal.to_string(),
                };
                // A recipient that is reached twice, by an address and by a name, gets one copy.
                if reached.insert(text.clone()) {
                    let sender = one.origin.sender().map(|sender| format!("[{sender}]")).unwrap_or_default();
                    who.push(format!("{sender}{text}"));
                }
            }
        }
        if is_open {
            return Err(Stop::Open);
        }
        if who.is_empty() {
            who.push("554 5.4.6 aliasing/forwarding loop broken".to_owned());
        }
        who.sort();
        came.who = who;
        Ok(())
    }
}
