//! The expansion of a user: aliases, `:include:` files and forwards are followed until there are only mailboxes,
//! programs, files, and addresses for the caller to resolve.
//!
//! Names are taken depth first and members from the last to the first, as sendmail does, each name once. So a name that
//! is met again either has the mail already, or is on the way: then a name on the way keeps the mail. (Breadth first,
//! two names that lead to each other could each leave it to the other.) While an answer for one name is missing, the
//! others go on, so that one round asks for all users of a list.
//!
//! The text of a user's or list's file is never part of a refusal: a client, a sender and a report read only the name
//! of the file and the line, since the writer of the file may not be allowed to read it ([`Origin::first_file`]).
//! Values of aliases are the administrator's own and are quoted.
//!
//! A name that leads to itself (`joe: joe, ann`) is the mailbox of that user; of several names that lead to each other
//! the nearest that is an account keeps the mail.

use super::NAME;
use super::file::shown;
use super::member::{Member, list_members, value_members};
use super::origin::{Controller, Link, Origin, Stage};
use crate::question::{Answer, Ask, MapEntry, Question, Reader, Source, Stop};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::tables::error_value::ErrorValue;
use crate::tables::virtusertable::detail;
use mail::{Address, AddressKey, Domain, DomainName, EnhancedCode, LocalPart, Outcome, ReversePath};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// Steps that are told of one expansion.
const STEPS_MAX: usize = 200;

/// How names are followed.
#[derive(Clone, Copy)]
pub struct AliasSettings<'a> {
    /// Our own name: the domain of owners.
    pub hostname: &'a DomainName,
    /// Whether a domain is ours.
    pub is_local: &'a dyn Fn(&Domain) -> bool,
    /// The character between a user and his detail, `+`.
    pub delimiter: Option<char>,
    /// How many aliases and forwards may follow each other; 10.
    pub depth_max: usize,
    /// How many recipients an expansion may have; 1,000,000.
    pub expansion_max: usize,
    /// Whether users are accounts of this machine. If not, every name without an alias is a mailbox, and has no
    /// `.forward`.
    pub accounts: bool,
    /// Whether a `.forward` counts.
    pub forward: bool,
}

/// A user by the name of his account, and the detail behind it.
type Account = (LocalPart, Option<Box<str>>);

impl fmt::Debug for AliasSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hostname", &self.hostname.as_str())
            .field("delimiter", &self.delimiter)
            .field("depth_max", &self.depth_max)
            .field("expansion_max", &self.expansion_max)
            .field("accounts", &self.accounts)
            .field("forward", &self.forward)
            .finish_non_exhaustive()
    }
}

/// The result of an expansion.
#[derive(Debug, Default)]
pub struct Expansion {
    /// The recipients of the mail, each once. It is empty only for a user that an alias led to, if others have had the
    /// mail.
    pub recipients: Vec<Expanded>,
    /// The decisions on the way; the first 200.
    pub steps: Vec<Step>,
}

/// A recipient of the mail.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// Where.
    pub target: AliasTarget,
    /// How he was reached, with whose rights, and with which sender. An address that turns out to be a user of this
    /// machine is expanded with it.
    pub origin: Origin,
}

/// Where mail goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AliasTarget {
    /// To an address, which has to be resolved.
    Address(Address),
    /// Into the mailbox of a user.
    Mailbox {
        /// His name, without the detail.
        user: LocalPart,
        /// The text behind the delimiter.
        detail: Option<Box<str>>,
    },
    /// To a program.
    Program {
        /// Its command line.
        command: Box<str>,
    },
    /// To the end of a file.
    File {
        /// Its name, which begins with a slash.
        path: Box<str>,
    },
    /// Nowhere: there is neither an alias nor an account. As a rule `550 5.1.1 User unknown`.
    Unknown {
        /// The name, with its detail.
        user: LocalPart,
    },
    /// Nowhere, for this reason.
    Refused(Refusal),
}

enum Work {
    /// A name to look for in aliases.
    Name(LocalPart, Origin),
    /// A user without an alias, or whose alias names him.
    Account {
        user: LocalPart,
        origin: Origin,
        forward: bool,
    },
    Include(Box<str>, Origin),
    /// All that a name leads to has been done.
    End(Box<str>),
}

/// A name, file or recipient that has been reached.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Name(Box<str>),
    /// A user whose `.forward` counts, in lower case and with his detail.
    Forward(Box<str>),
    /// The user in lower case, and his detail.
    Mailbox(Box<str>, Option<Box<str>>),
    Address(AddressKey),
    /// A file that is opened with the rights of one user may be none for another.
    Include(Box<str>, Reader),
    Program(Box<str>, Controller),
    File(Box<str>, Controller),
}

struct AliasExpansion<'r, 'a> {
    ask: &'r mut Ask<'a>,
    aliases: &'r [Source],
    settings: &'r AliasSettings<'r>,
    root: &'r LocalPart,
    /// The last one is the next.
    work: Vec<Work>,
    /// The recipients found so far.
    seen: HashSet<Key>,
    /// Names and files that have been opened, and how deep they were found.
    opened: HashMap<Key, usize>,
    /// Recipients that were found too deep.
    deep: HashMap<Key, Expanded>,
    /// Names of which not all has been done.
    on_the_way: HashSet<Box<str>>,
    recipients: Vec<Expanded>,
    steps: Vec<Step>,
    /// Members that led back to a name on the way.
    loops: usize,
    is_full: bool,
}

/// Finds out who gets the mail of a user. `origin`: the default for a recipient of a mail, and for an address of an
/// expansion the origin it had there.
///
/// The time is linear in the number of members.
/// # Errors
/// [`Stop::Open`]: answers are missing. [`Stop::Trouble`]: something cannot be looked up now.
pub fn expand(
    ask: &mut Ask<'_>,
    aliases: &[Source],
    settings: &AliasSettings<'_>,
    user: &LocalPart,
    origin: &Origin,
) -> Result<Expansion, Stop> {
    let mut run = AliasExpansion {
        ask,
        aliases,
        settings,
        root: user,
        work: Vec::new(),
        seen: HashSet::new(),
        opened: HashMap::new(),
        deep: HashMap::new(),
        on_the_way: HashSet::new(),
        recipients: Vec::new(),
        steps: Vec::new(),
        loops: 0,
        is_full: false,
    };
    let mut is_open = false;
    let mut first = Some((user, origin));
    loop {
        let done = match first.take() {
            Some((user, origin)) => run.user(user.clone(), origin.clone()),
            None => match run.work.pop() {
                Some(work) => run.one(work),
                None => break,
            },
        };
        match done {
            Ok(()) => {}
            Err(Stop::Open) => is_open = true,
            Err(trouble) => return Err(trouble),
        }
        if run.is_full {
            return Ok(run.too_many());
        }
    }
    if is_open { Err(Stop::Open) } else { Ok(run.end(origin)) }
}

const fn permanent(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(Outcome::Permanent, subject, detail)
}

fn loop_broken(user: &str, how: &str) -> AliasTarget {
    AliasTarget::Refused(Refusal::new(
        554,
        permanent(4, 6),
        &format!("<{user}>... aliasing/forwarding loop broken{how}"),
    ))
}

impl AliasExpansion<'_, '_> {
    fn end(mut self, origin: &Origin) -> Expansion {
        let mut deep: Vec<Expanded> = Vec::new();
        for (key, refused) in std::mem::take(&mut self.deep) {
            if !self.seen.contains(&key) && !self.opened.contains_key(&key) {
                deep.push(refused);
            }
        }
        // One is told, the others are in the same loop.
        self.recipients.extend(deep.into_iter().min_by_key(|refused| refused.origin.to_string()));
        if self.recipients.is_empty() && origin.link.is_none() {
            let target = if self.loops > 0 {
                loop_broken(self.root.as_str(), "")
            } else {
                AliasTarget::Refused(Refusal::new(550, permanent(2, 4), &format!("<{}>... has no members", self.root)))
            };
            self.recipients.push(Expanded { target, origin: Origin::default() });
        }
        Expansion { recipients: self.recipients, steps: self.steps }
    }

    fn too_many(self) -> Expansion {
        let text = format!("<{}>... has more than {} recipients", self.root, self.settings.expansion_max);
        let target = AliasTarget::Refused(Refusal::new(550, permanent(2, 4), &text));
        Expansion { recipients: vec![Expanded { target, origin: Origin::default() }], steps: self.steps }
    }

    fn one(&mut self, work: Work) -> Result<(), Stop> {
        self.ask.work(1)?;
        match work {
            Work::Name(user, origin) => self.name(user, origin),
            Work::Account { user, origin, forward } => self.account(user, origin, forward),
            Work::Include(path, origin) => self.include(&path, &origin),
            Work::End(name) => {
                self.on_the_way.remove(&name);
                Ok(())
            }
        }
    }

    fn step(&mut self, step: impl FnOnce() -> Step) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step());
        }
    }

    fn push(&mut self, target: AliasTarget, origin: Origin) {
        if self.recipients.len() >= self.settings.expansion_max {
            self.is_full = true;
            return;
        }
        self.recipients.push(Expanded { target, origin });
    }

    fn detail<'t>(&self, name: &'t str) -> (&'t str, Option<&'t str>) {
        // With a dash as delimiter these are names, not users with a detail.
        if name.starts_with("owner-") || name.ends_with("-request") || name.eq_ignore_ascii_case("mailer-daemon") {
            return (name, None);
        }
        detail(name, self.settings.delimiter).map_or((name, None), |(user, detail)| (user, Some(detail)))
    }

    /// One element of a list.
    fn member(&mut self, member: Member, origin: &Origin) -> Result<(), Stop> {
        match member {
            Member::Local(user) => return self.user(user, origin.clone()),
            Member::Mailbox(user) => {
                if !self.is_too_deep(&Key::Mailbox(folded(user.as_str()), None), origin) {
                    self.work.push(Work::Account { user, origin: origin.clone(), forward: false });
                }
            }
            Member::Address(address) => return self.address(address, origin),
            Member::Include(path) => {
                if !self.is_too_deep(&Key::Include(path.clone(), origin.reader()), origin) {
                    self.work.push(Work::Include(path, origin.clone()));
                }
            }
            Member::Program(command) => {
                if self.is_new(Key::Program(command.clone(), origin.controller.clone()), origin) {
                    self.controlled(AliasTarget::Program { command }, "programs", origin);
                }
            }
            Member::File(path) => {
                if self.is_new(Key::File(path.clone(), origin.controller.clone()), origin) {
                    self.controlled(AliasTarget::File { path }, "files", origin);
                }
            }
            Member::Error(error) => {
                let refusal = self.refused_by(&error, origin);
                self.push(AliasTarget::Refused(refusal), origin.clone());
            }
            Member::Bad { text, why } => {
                let refusal = origin.wrong(self.root, permanent(2, 4)).unwrap_or_else(|| {
                    let text = format!("<{}>... {}: {why}", self.root, shown(&text));
                    Refusal::new(553, permanent(1, 3), &text)
                });
                self.push(AliasTarget::Refused(refusal), origin.clone());
            }
        }
        Ok(())
    }

    /// Returns the refusal of an `error:` member: with its text if an alias has it, else only temporary or permanent.
    fn refused_by(&self, error: &ErrorValue, origin: &Origin) -> Refusal {
        let Some((file, line)) = origin.first_file_name(self.root) else {
            return error.refusal(self.root.as_str(), None);
        };
        let line = line.map(|line| format!(" in line {line}")).unwrap_or_default();
        let code = if error.code < 500 { 450 } else { 550 };
        Refusal::new(code, permanent(7, 1), &format!("<{}>... {file} refuses mail{line}", self.root))
    }

    /// A program or a file, if its text may name any.
    fn controlled(&mut self, target: AliasTarget, what: &str, origin: &Origin) {
        let target = match origin.controller {
            Controller::Default | Controller::User(_) => target,
            Controller::Nobody => {
                let way = origin.public();
                let text = format!("<{}>... Address {way} is unsafe for mailing to {what}", self.root);
                AliasTarget::Refused(Refusal::new(550, permanent(7, 1), &text))
            }
        };
        self.push(target, origin.clone());
    }

    /// Whether too many aliases lead here. It is refused, if no shorter way is found.
    fn is_too_deep(&mut self, key: &Key, origin: &Origin) -> bool {
        let (depth, max) = (origin.depth(), self.settings.depth_max);
        if depth <= max {
            return false;
        }
        if !self.deep.contains_key(key) {
            self.step(|| Step::new(NAME, format!("{origin}: {depth} aliases deep, {max} at most")));
            let target = loop_broken(self.root.as_str(), &format!(" ({depth} aliases deep; {max} max)"));
            self.deep.insert(key.clone(), Expanded { target, origin: origin.clone() });
        }
        true
    }

    /// Whether a name or a file is to be opened: it has not been, or so deep that not all of it could be followed.
    fn opens(&mut self, key: Key, origin: &Origin) -> bool {
        let depth = origin.depth();
        match self.opened.get_mut(&key) {
            None => {
                self.opened.insert(key, depth);
                true
            }
            Some(before) if depth < *before && !self.deep.is_empty() => {
                *before = depth;
                true
            }
            Some(_) => false,
        }
    }

    /// Whether a recipient has not got the mail yet.
    fn is_new(&mut self, key: Key, origin: &Origin) -> bool {
        !self.is_too_deep(&key, origin) && self.seen.insert(key)
    }

    fn address(&mut self, address: Address, origin: &Origin) -> Result<(), Stop> {
        if let Some(new) = redirected(&address) {
            let where_to = if origin.first_file().is_none() { format!("; please try <{new}>") } else { String::new() };
            let text = format!("<{}>... User has moved{where_to}", self.root);
            self.push(AliasTarget::Refused(Refusal::new(551, permanent(1, 1), &text)), origin.clone());
            return Ok(());
        }
        if (self.settings.is_local)(address.domain()) && self.is_self(address.local_part(), origin)? {
            return Ok(());
        }
        if self.is_new(Key::Address(address.key()), origin) {
            self.push(AliasTarget::Address(address), origin.clone());
        }
        Ok(())
    }

    /// Handles a user that a list names, or the user of the question.
    fn user(&mut self, user: LocalPart, origin: Origin) -> Result<(), Stop> {
        if !self.is_self(&user, &origin)? {
            self.work.push(Work::Name(user, origin));
        }
        Ok(())
    }

    /// Whether a name leads back to a name on the way; then one of these gets the mail in its mailbox.
    fn is_self(&mut self, user: &LocalPart, origin: &Origin) -> Result<bool, Stop> {
        let is_user = |link: &&Arc<Link>| link.stage != Stage::Include && link.name.eq_ignore_ascii_case(user.as_str());
        let same = origin.links().find(is_user).map(Arc::clone);
        if same.is_none() && (self.on_the_way.is_empty() || !self.on_the_way.contains(&folded(user.as_str()))) {
            return Ok(false);
        }
        self.loops += 1;
        let keeper = self.keeper(user, same.as_ref(), origin)?;
        // An alias of its own name alone is an unknown user.
        let is_direct = |same: &Arc<Link>| origin.link.as_ref().is_some_and(|link| Arc::ptr_eq(link, same));
        let keeper = keeper.or_else(|| same.filter(is_direct));
        let Some((link, user)) = keeper.and_then(|link| link.user.clone().map(|user| (link, user))) else {
            self.step(|| Step::new(NAME, format!("{origin} → {user}: a loop without a mailbox")));
            return Ok(true);
        };
        self.step(|| Step::new(NAME, format!("{origin} → {user}: the mailbox of {user}")));
        let forward = link.stage == Stage::Alias;
        self.work.push(Work::Account { user, origin: link.from.clone(), forward });
        Ok(true)
    }

    /// Returns the account that keeps the mail of a loop: the user himself, or the nearest account on the way.
    fn keeper(
        &mut self,
        user: &LocalPart,
        same: Option<&Arc<Link>>,
        origin: &Origin,
    ) -> Result<Option<Arc<Link>>, Stop> {
        if let Some(same) = same
            && self.is_account(user)?
        {
            return Ok(Some(Arc::clone(same)));
        }
        for link in origin.links() {
            if let Some(user) = &link.user
                && self.is_account(user)?
            {
                return Ok(Some(Arc::clone(link)));
            }
        }
        Ok(None)
    }

    fn is_account(&mut self, user: &LocalPart) -> Result<bool, Stop> {
        Ok(!self.settings.accounts || self.account_name(user)?.is_some())
    }

    /// The account of a user, and the detail.
    fn account_name(&mut self, user: &LocalPart) -> Result<Option<Account>, Stop> {
        let whole = user.as_str();
        let (name, detail) = self.detail(whole);
        // Names of accounts have dashes, but no plus signs.
        let mut tries = vec![(name, detail)];
        if detail.is_some() && self.settings.delimiter != Some('+') {
            tries.insert(0, (whole, None));
        }
        for (name, detail) in tries {
            let lower = name.to_lowercase();
            let spellings = if lower == name { [Some(name), None] } else { [Some(name), Some(lower.as_str())] };
            for name in spellings.into_iter().flatten() {
                let Answer::User { .. } = self.ask.answer(Question::User { name: name.into() })? else { continue };
                return Ok(LocalPart::new(name).ok().map(|name| (name, detail.map(Into::into))));
            }
        }
        Ok(None)
    }

    fn name(&mut self, user: LocalPart, origin: Origin) -> Result<(), Stop> {
        let name = folded(user.as_str());
        let key = Key::Name(name.clone());
        if self.is_too_deep(&key, &origin) || !self.opens(key, &origin) {
            return Ok(());
        }
        self.on_the_way.insert(name.clone());
        self.work.push(Work::End(name.clone()));
        let Some((found, key)) = self.find(user.as_str())? else {
            self.work.push(Work::Account { user, origin, forward: true });
            return Ok(());
        };
        self.step(|| Step::of(NAME, found.clone(), shorter(&found.value)));
        let rights = (Controller::Default, Reader::Aliases);
        let mut inner = origin.through(Stage::Alias, &name, Some(&user), rights);
        let mut is_open = false;
        match self.owner(&key) {
            Ok(Some(owner)) => inner.sender = Some(owner),
            Ok(None) => {}
            Err(Stop::Open) => is_open = true,
            Err(trouble) => return Err(trouble),
        }
        self.ask.work(work_of(&found.value))?;
        self.members(value_members(&found.value).map(|member| (None, member)), &inner, is_open)
    }

    /// The members of a list; that some of them are open does not stop the others.
    fn members(
        &mut self,
        members: impl Iterator<Item = (Option<u32>, Member)>,
        origin: &Origin,
        mut is_open: bool,
    ) -> Result<(), Stop> {
        let mut origin = origin.clone();
        for (line, member) in members {
            self.ask.work(1)?;
            origin.line = line;
            match self.member(member, &origin) {
                Ok(()) => {}
                Err(Stop::Open) => is_open = true,
                Err(trouble) => return Err(trouble),
            }
            if self.is_full {
                break;
            }
        }
        if is_open { Err(Stop::Open) } else { Ok(()) }
    }

    /// The alias of a name, and the key that has it: `joe+box`, `joe+*`, `joe`.
    fn find(&mut self, name: &str) -> Result<Option<(MapEntry, Box<str>)>, Stop> {
        let whole = folded(name);
        let (user, detail) = self.detail(&whole);
        let mut keys: Vec<Box<str>> = vec![whole.clone()];
        if detail.is_some() {
            let delimiter = self.settings.delimiter.unwrap_or('+');
            keys.push(format!("{user}{delimiter}*").into());
            keys.push(user.into());
        }
        for key in keys {
            if let Some(found) = self.ask.find(NAME, self.aliases, &key)? {
                return Ok(Some((found, key)));
            }
        }
        Ok(None)
    }

    /// The sender of mail to a list: its owner, if that is one address, and else `owner-list` here.
    fn owner(&mut self, list: &str) -> Result<Option<Arc<ReversePath>>, Stop> {
        // `list+*` is the list `list`.
        let plain = self.detail(list).0;
        let mut owned = None;
        for list in [Some(list), (plain != list).then_some(plain)].into_iter().flatten() {
            let name = if list.starts_with("owner-") { "owner-owner".to_owned() } else { format!("owner-{list}") };
            if let Some(found) = self.ask.find(NAME, self.aliases, &name)? {
                owned = Some((found, name));
                break;
            }
        }
        let Some((found, name)) = owned else { return Ok(None) };
        let mut members = value_members(&found.value);
        let first_two = (members.next(), members.next());
        drop(members);
        let one = match first_two {
            _ if found.value.contains([',', ':', '/', '|', '"']) => None,
            (Some(Member::Address(address)), None) => Some(address),
            (Some(Member::Local(user)), None) => self.here(user),
            _ => None,
        };
        let owner = one.or_else(|| LocalPart::new(&name).ok().and_then(|name| self.here(name)));
        let Some(owner) = owner else { return Ok(None) };
        self.step(|| Step::of(NAME, found, format!("the sender of mail to {list} is {owner}")));
        Ok(Some(Arc::new(ReversePath::Address(owner))))
    }

    fn here(&self, user: LocalPart) -> Option<Address> {
        Address::new(user, Domain::Name(self.settings.hostname.clone())).ok()
    }

    fn account(&mut self, user: LocalPart, origin: Origin, forward: bool) -> Result<(), Stop> {
        let (name, detail) = if self.settings.accounts {
            match self.account_name(&user)? {
                Some(account) => account,
                None => {
                    if self.seen.insert(Key::Mailbox(folded(user.as_str()), None)) {
                        self.push(AliasTarget::Unknown { user }, origin);
                    }
                    return Ok(());
                }
            }
        } else {
            let (name, detail) = self.detail(user.as_str());
            let Ok(name) = LocalPart::new(name) else { return Ok(()) };
            (name, detail.map(Into::into))
        };
        if forward && self.settings.forward && self.settings.accounts {
            let whole = folded(user.as_str());
            let question = Question::Forward { user: name.as_str().into(), detail: detail.as_deref().map(Into::into) };
            if let Answer::Text { text, file, owner } = self.ask.answer(question)? {
                let controller = match owner {
                    Some(_) => Controller::User(name.as_str().into()),
                    None => Controller::Nobody,
                };
                let rights = (controller, Reader::User(name.as_str().into()));
                let inner = origin.through(Stage::Forward, &whole, Some(&user), rights);
                if !self.forward(&text, &file, &whole, &inner)? {
                    return Ok(());
                }
            }
        }
        if self.seen.insert(Key::Mailbox(folded(name.as_str()), detail.clone())) {
            self.push(AliasTarget::Mailbox { user: name, detail }, origin);
        }
        Ok(())
    }

    /// The members of a `.forward`. Whether the user has the mail in his mailbox all the same: if there are none, or
    /// all of them lead back.
    fn forward(&mut self, text: &str, file: &str, whole: &str, inner: &Origin) -> Result<bool, Stop> {
        self.ask.work(work_of(text))?;
        let mut members = list_members(text).peekable();
        if members.peek().is_none() {
            return Ok(true);
        }
        if !self.opens(Key::Forward(whole.into()), inner) {
            return Ok(false);
        }
        self.step(|| Step::new("forward", format!("{whole} by {file}: {}", shorter(text))));
        let (mut count, before) = (0, self.loops);
        self.members(members.inspect(|_| count += 1).map(|(line, member)| (Some(line), member)), inner, false)?;
        Ok(self.loops - before == count)
    }

    fn include(&mut self, path: &str, origin: &Origin) -> Result<(), Stop> {
        let reader = origin.reader();
        if !self.opens(Key::Include(path.into(), reader.clone()), origin) {
            return Ok(());
        }
        let question = Question::Include { path: path.into(), reader: reader.clone() };
        let Answer::Text { text, owner, .. } = self.ask.answer(question)? else {
            // A user's mistake costs him his mail, and not the lists he is on.
            if reader != Reader::Aliases
                && let Some(refusal) = origin.wrong(self.root, permanent(2, 4))
            {
                self.push(AliasTarget::Refused(refusal), origin.clone());
                return Ok(());
            }
            let why = format!("{origin}: cannot open {path}: there is no such file");
            return Err(Stop::Trouble(why.into()));
        };
        let reader = match (reader, &owner) {
            (Reader::Aliases, None) => Reader::Anyone,
            // The administrator's list names what the administrator wants.
            (Reader::Aliases, Some(owner)) if **owner == *"root" => Reader::Aliases,
            (Reader::Aliases, Some(owner)) => Reader::User(Arc::clone(owner)),
            (reader, _) => reader,
        };
        let controller = match (&origin.controller, owner) {
            (_, None) | (Controller::Nobody, _) => Controller::Nobody,
            (Controller::User(user), Some(_)) => Controller::User(Arc::clone(user)),
            // Mail never runs anything as root.
            (Controller::Default, Some(owner)) if &*owner == "root" => Controller::Default,
            (Controller::Default, Some(owner)) => Controller::User(owner),
        };
        let inner = origin.through(Stage::Include, path, None, (controller, reader));
        self.ask.work(work_of(&text))?;
        let before = self.recipients.len() + self.work.len();
        let done = self.members(list_members(&text).map(|(line, member)| (Some(line), member)), &inner, false);
        let new = (self.recipients.len() + self.work.len()).saturating_sub(before);
        self.step(|| Step::new("include", format!("{inner}: {new} members not met before")));
        done
    }
}

/// The new address in `joe@new.example.REDIRECT`.
fn redirected(address: &Address) -> Option<String> {
    const WORD: &str = ".redirect";
    let name = address.domain().name()?.as_str();
    let (new, word) = name.split_at_checked(name.len().checked_sub(WORD.len())?)?;
    word.eq_ignore_ascii_case(WORD).then(|| format!("{}@{new}", address.local_part()))
}

/// Returns the work of reading a list with any text.
const fn work_of(text: &str) -> u64 {
    text.len() as u64 / 64
}

fn folded(name: &str) -> Box<str> {
    name.to_lowercase().into()
}

/// A value for a step.
fn shorter(value: &str) -> String {
    const CHARS_MAX: usize = 200;
    let mut out: String =
        value.trim_end().chars().take(CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if value.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}
