//! The maps and rules in force: decisions of `route` with them, and the sources that answer its questions.
//!
//! A [`Routing`] is a value that a reload, or a file that has changed, replaces as a whole. Where there is neither map
//! nor rule nor local user it is plain, and a recipient costs nothing here.
//!
//! | File | Holds |
//! |---|---|
//! | `classes` | who we are and who may relay, by the configuration alone |
//! | `load` | from the configuration and its files to a routing |
//! | `expansions` | what long lists become, shared by all sessions |
//! | `members` | one such list |
//! | `message_properties` | properties by which recipients are divided into messages |
//! | `plan` | the messages that a transaction becomes |
//! | `rules` | the rules of the configuration as the router takes them |

pub(crate) mod account_index;
mod aliases;
pub(crate) mod classes;
pub(crate) mod expansions;
pub(crate) mod load;
pub(crate) mod members;
pub(crate) mod message_properties;
pub(crate) mod plan;
mod rules;

use crate::lookup::Lookups;
use mail::{Address, EnhancedCode};
use route::access::Access;
use route::class::Class;
use route::destination::Hosts;
use route::resolve::{HostsOrElse, Router};
use route::{Answers, Ask, Source, Stop, Table};
use std::sync::Arc;

/// Rounds of questions for one recipient: answers may lead to further questions.
const ROUNDS_MAX: usize = 64;
/// The work that a recipient may take on a thread of the runtime, in units of [`Ask::with_work`]: one to three
/// milliseconds.
pub(crate) const WORK_AT_ONCE: u64 = 256;

/// The maps and lists in force.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    lookups: Arc<Lookups>,
    admission: Option<Admission>,
    people: account_index::AccountIndex,
    files: load::LoadedFiles,
}

/// The rules for who may send and where mail goes.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) router: Router,
    pub(crate) access: Arc<Access>,
}

/// The route for mail of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DomainRoute {
    /// To these hosts.
    Hosts(Hosts),
    /// To its MX hosts.
    Mx,
    /// To users of this machine.
    Local,
    /// Nowhere.
    Refused(EnhancedCode, String),
}

impl Routing {
    /// Without maps and rules.
    pub(crate) fn plain() -> Self {
        Self::default()
    }

    /// Returns the sources that answer questions.
    pub(crate) fn lookups(&self) -> Arc<Lookups> {
        Arc::clone(&self.lookups)
    }

    /// Whether a file of a map is another one than when it was read. Blocking.
    pub(crate) fn have_files_changed(&self) -> bool {
        self.files.have_changed()
    }

    /// Returns whether there are no maps.
    pub(crate) const fn is_plain(&self) -> bool {
        self.admission.is_none()
    }

    /// Returns where an alias of a file names a program: the first.
    pub(crate) fn program(&self) -> Option<String> {
        let tables = self.admission.as_ref()?.router.maps.aliases.iter();
        aliases::program(
            tables.filter_map(|source| if let Source::Loaded(table) = source { Some(&**table) } else { None }),
        )
    }

    /// Returns the rules, if there are maps.
    pub(crate) const fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// Returns user and group of a sender who has an account here.
    pub(crate) fn account_of(&self, address: &Address) -> Option<account_index::Owner> {
        let is_local = self.admission.as_ref().is_some_and(|one| one.router.classes.is_local(address.domain()));
        self.people.account_of(address, is_local)
    }

    /// User and group by whose rights a program runs or a file is written; with an empty name those of aliases.
    pub(crate) fn user(&self, name: &str) -> Option<account_index::Owner> {
        self.people.user(name)
    }

    /// Looks up the route of a domain to which mail is sent.
    ///
    /// # Errors
    /// A source has to be asked first, or cannot answer.
    pub(crate) fn way_of(&self, ask: &mut Ask<'_>, domain: &str) -> Result<DomainRoute, Stop> {
        let Some(admission) = &self.admission else { return Ok(DomainRoute::Mx) };
        Ok(match admission.router.hosts_of(ask, domain)? {
            None => DomainRoute::Mx,
            Some(HostsOrElse::Hosts(hosts)) => DomainRoute::Hosts(hosts),
            Some(HostsOrElse::Local) => DomainRoute::Local,
            Some(HostsOrElse::Refuse(refusal)) => DomainRoute::Refused(refusal.status, refusal.text),
        })
    }

    /// Returns whether mail that waits goes to the same hosts as by `other`, as far as files say.
    pub(crate) fn has_hosts_of(&self, other: &Self) -> bool {
        let tables = |routing: &Self| -> Vec<*const Table> {
            let maps = routing.admission.iter().map(|admission| &admission.router.maps);
            let sources = maps.flat_map(|maps| maps.mailertable.iter().chain(&maps.smarttable));
            let table =
                |source: &Source| if let Source::Loaded(table) = source { Some(Arc::as_ptr(table)) } else { None };
            sources.filter_map(table).collect()
        };
        tables(self) == tables(other) && self.local() == other.local()
    }

    /// Returns the domains whose mail stays here.
    fn local(&self) -> Option<&Class> {
        self.admission.as_ref().map(|admission| &admission.router.classes.local)
    }

    /// Returns whether the access map is that of `other`, as far as files say.
    pub(crate) fn has_access_of(&self, other: &Self) -> bool {
        let sources = |routing: &Self| routing.admission.as_ref().map(|admission| admission.access.map().to_vec());
        let is_same = |pair: (&Source, &Source)| match pair {
            (Source::Loaded(one), Source::Loaded(other)) => Arc::ptr_eq(one, other),
            (Source::Outside(one), Source::Outside(other)) => one == other,
            _ => false,
        };
        match (sources(self), sources(other)) {
            (Some(one), Some(other)) => one.len() == other.len() && one.iter().zip(&other).all(is_same),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Decides a question for which sources may have to be asked.
    ///
    /// # Errors
    /// Why it cannot be decided now.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn decide<T>(&self, decide: impl FnMut(&mut Ask<'_>) -> Result<T, Stop>) -> Result<T, Arc<str>> {
        let decided = self.decide_within(u64::MAX, decide).await?;
        decided.ok_or_else(|| "it takes too much work".into())
    }

    /// Does the same, if a look at the answers takes no more than this work ([`Ask::with_work`]); `None`: it takes
    /// more.
    ///
    /// # Errors
    /// Why it cannot be decided now.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn decide_within<T>(
        &self,
        work: u64,
        mut decide: impl FnMut(&mut Ask<'_>) -> Result<T, Stop>,
    ) -> Result<Option<T>, Arc<str>> {
        let mut answers = Answers::new();
        for _ in 0..ROUNDS_MAX {
            let mut ask = Ask::with_work(&answers, work);
            match decide(&mut ask) {
                Ok(decided) => return Ok(Some(decided)),
                Err(Stop::Trouble(why)) => return Err(why),
                Err(Stop::TooMuchWork) => return Ok(None),
                Err(Stop::Open) => {}
            }
            for question in ask.into_open() {
                let answer = self.lookups.answer(&question).await;
                answers.insert(question, answer);
            }
        }
        Err("one look-up leads to another without end".into())
    }

    /// Decides if that is possible at once with little work; `None`: a source has to be asked, or it takes more work.
    ///
    /// # Errors
    /// Why it cannot be decided now.
    pub(crate) fn decide_at_once<T>(
        decide: impl FnOnce(&mut Ask<'_>) -> Result<T, Stop>,
    ) -> Option<Result<T, Arc<str>>> {
        let answers = Answers::new();
        match decide(&mut Ask::with_work(&answers, WORK_AT_ONCE)) {
            Ok(decided) => Some(Ok(decided)),
            Err(Stop::Trouble(why)) => Some(Err(why)),
            Err(Stop::Open | Stop::TooMuchWork) => None,
        }
    }
}
