//! Checks for doubtful entries of an aliases file.

use super::NAME;
use super::member::{Member, list_members, parse_list, parse_members};
use crate::lint::Lint;
use crate::map::{Hit, Table};
use crate::question::EntryLocation;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// How many `:include:` files may name each other in a row, as in an expansion.
const INCLUDE_DEPTH_MAX: usize = 10;

/// Names that every machine should have: RFC 5321 §4.5.1 asks for the first, cron and daemons write to the others.
const NEEDED: &[(&str, &str)] = &[
    ("postmaster", "everybody may write to postmaster; add \"postmaster: root\""),
    ("mailer-daemon", "people answer to reports; add \"mailer-daemon: postmaster\""),
    ("root", "nobody reads the mailbox of root; add \"root: \" and the name of an administrator"),
];

/// The facts beside the file.
#[derive(Clone, Copy)]
pub struct LintSettings<'a> {
    /// Whether a command line would run, or else the reason and the next step.
    pub command: &'a dyn Fn(&str) -> Result<(), String>,
    /// Whether a domain is ours.
    pub is_local: &'a dyn Fn(&str) -> bool,
    /// From how many members on a list should have an owner; 20.
    pub members_many: usize,
    /// The character between a user and a detail, as in `joe+box`.
    pub delimiter: Option<char>,
    /// Whether a name that this file does not have is an alias of another source.
    pub is_alias: &'a dyn Fn(&str) -> bool,
    /// Whether there is an account of this name; `None`: this is known only when mail comes.
    pub is_account: &'a dyn Fn(&str) -> Option<bool>,
    /// The text of an `:include:` file, or why mail for it waits.
    pub include: &'a dyn Fn(&str) -> Result<Included, Arc<str>>,
}

/// An `:include:` file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Included {
    /// All of it.
    pub text: Arc<str>,
    /// Whether it may name programs and files: only its owner can write it, and he has a shell.
    pub is_trusted: bool,
}

impl fmt::Debug for LintSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LintSettings")
            .field("members_many", &self.members_many)
            .field("delimiter", &self.delimiter)
            .finish_non_exhaustive()
    }
}

/// Finds doubtful entries, also in the files that are included; the time is linear in the size of them all.
#[must_use]
pub fn lint(table: &Table, settings: &LintSettings<'_>) -> Vec<Lint> {
    let mut lints = Vec::new();
    let entries: Vec<(Hit<'_>, Vec<Member>)> = table
        .iter()
        .map(|hit| {
            let (members, complaints) = parse_members(hit.value);
            for complaint in complaints {
                lints.push(Lint::warning(
                    place(table, hit.line),
                    format!("{}: {}", hit.key, complaint.text),
                    "correct the value",
                ));
            }
            (hit, members)
        })
        .collect();
    let mut files = HashSet::new();
    for (hit, members) in &entries {
        of_members(table, hit, members, settings, &mut lints);
        of_targets(&|| place(table, hit.line), hit.key, members, table, settings, &mut lints);
        of_owner(table, hit, members, settings, &mut lints);
        of_included(hit, members, table, settings, &mut files, &mut lints);
    }
    loops(table, &entries, settings, &mut lints);
    for (name, hint) in NEEDED {
        if table.get(name).is_none() && !table.is_empty() && !(settings.is_alias)(name) {
            lints.push(Lint::warning(place(table, None), format!("there is no alias {name}"), *hint));
        }
    }
    // Those of other files behind those of this one.
    lints.sort_by_key(|lint| (*lint.place.file != *table.file(), lint.place.line.unwrap_or(u32::MAX)));
    lints
}

/// Finds the programs that the text of a user's `.forward` names and that would not run, each with its line.
#[must_use]
pub fn lint_forward(file: &str, text: &str, command: &dyn Fn(&str) -> Result<(), String>) -> Vec<Lint> {
    let of_member = |(line, member)| {
        let Member::Program(program) = member else { return None };
        let why = command(&program).err()?;
        let place = EntryLocation { map: ".forward".into(), file: file.into(), line: Some(line) };
        let fault = format!("\"|{program}\" will not run: {why}");
        Some(Lint::error(place, fault, "until then mail for this user waits"))
    };
    list_members(text).filter_map(of_member).collect()
}

fn place(table: &Table, line: Option<u32>) -> EntryLocation {
    EntryLocation { map: NAME.into(), file: table.file().into(), line }
}

fn of_members(table: &Table, hit: &Hit<'_>, members: &[Member], settings: &LintSettings<'_>, lints: &mut Vec<Lint>) {
    let key = hit.key;
    let mut seen = HashSet::new();
    for member in members {
        let text = member.to_string();
        if !seen.insert(text.to_lowercase()) {
            let fault = format!("{key}: {text} is named twice");
            lints.push(Lint::warning(place(table, hit.line), fault, "one of them is enough: nobody gets a mail twice"));
        }
        let here = || place(table, hit.line);
        match member {
            Member::Program(command) => lints.extend(of_program(here(), key, command, settings)),
            Member::Include(path) if !path.starts_with('/') => lints.push(Lint::error(
                here(),
                format!("{key}: \"{path}\" is no full name of a file"),
                "write it from the slash on: :include:/etc/mail/list",
            )),
            Member::Local(name) if name.as_str().contains('/') => lints.push(Lint::warning(
                here(),
                format!("{key}: \"{name}\" is taken for a user"),
                "the name of a file begins with a slash",
            )),
            Member::Error(_) => lints.push(Lint::warning(
                here(),
                format!("{key}: sendmail knows no error: in aliases, and says \"User unknown\""),
                "put it into virtusertable or access, if sendmail reads this file too",
            )),
            _ => {}
        }
    }
}

fn of_program(place: EntryLocation, key: &str, command: &str, settings: &LintSettings<'_>) -> Option<Lint> {
    let why = (settings.command)(command).err()?;
    Some(Lint::error(place, format!("{key}: \"|{command}\" will not run: {why}"), "until then mail for it waits"))
}

fn of_owner(table: &Table, hit: &Hit<'_>, members: &[Member], settings: &LintSettings<'_>, lints: &mut Vec<Lint>) {
    let key = hit.key;
    if let Some(list) = key.strip_prefix("owner-") {
        if list != "owner" && table.get(list).is_none() {
            let fault = format!("{key}: there is no list \"{list}\"");
            lints.push(Lint::warning(place(table, hit.line), fault, "correct the name, or remove the line"));
        }
        return;
    }
    let has_file = members.iter().any(|member| matches!(member, Member::Include(_)));
    if (has_file || members.len() >= settings.members_many) && table.get(&format!("owner-{key}")).is_none() {
        let fault = format!("{key}: a list without owner-{key}: errors of its members go to whoever wrote to it");
        let hint = format!("add \"owner-{key}: \" and who looks after the list");
        lints.push(Lint::warning(place(table, hit.line), fault, hint));
    }
}

/// Names that are neither aliases nor accounts.
fn of_targets(
    here: &dyn Fn() -> EntryLocation,
    key: &str,
    members: &[Member],
    table: &Table,
    settings: &LintSettings<'_>,
    lints: &mut Vec<Lint>,
) {
    for member in members {
        let (name, is_alias_enough) = match member {
            Member::Local(name) => (name, true),
            Member::Mailbox(name) => (name, false),
            Member::Address(address) if (settings.is_local)(&address.domain().to_string()) => {
                (address.local_part(), true)
            }
            _ => continue,
        };
        // A slash is told as the name of a file.
        if name.as_str().contains('/') || is_there(name.as_str(), key, is_alias_enough, table, settings) {
            continue;
        }
        let fault = format!("{key}: {member} is neither an alias nor an account; mail for it is refused");
        lints.push(Lint::warning(here(), fault, "correct the name, or make the account"));
    }
}

fn is_there(name: &str, key: &str, is_alias_enough: bool, table: &Table, settings: &LintSettings<'_>) -> bool {
    let lower = name.to_lowercase();
    let base = settings.delimiter.and_then(|delimiter| lower.split_once(delimiter)).map(|(base, _)| base.to_owned());
    let starred = settings.delimiter.zip(base.as_ref()).map(|(delimiter, base)| format!("{base}{delimiter}*"));
    let candidates = || [Some(&lower), starred.as_ref(), base.as_ref()].into_iter().flatten();
    // An alias of itself means the account.
    let has = |one: &String| one.as_str() != key && (table.get(one).is_some() || (settings.is_alias)(one));
    if is_alias_enough && candidates().any(has) {
        return true;
    }
    let account = |one: &str| (settings.is_account)(one).unwrap_or(true);
    account(name) || account(&lower) || base.as_deref().is_some_and(account)
}

/// Checks the files that a value names, and the files that these name. Each file is looked at once.
fn of_included(
    hit: &Hit<'_>,
    members: &[Member],
    table: &Table,
    settings: &LintSettings<'_>,
    files: &mut HashSet<Box<str>>,
    lints: &mut Vec<Lint>,
) {
    let key = hit.key;
    let named = |members: &[Member], at: &EntryLocation, depth: usize| -> Vec<(Box<str>, EntryLocation, usize)> {
        let paths = members.iter().filter_map(|member| match member {
            Member::Include(path) if path.starts_with('/') => Some(path.clone()),
            _ => None,
        });
        paths.map(|path| (path, at.clone(), depth)).collect()
    };
    let mut open = named(members, &place(table, hit.line), 0);
    while let Some((path, from, depth)) = open.pop() {
        if depth >= INCLUDE_DEPTH_MAX || !files.insert(path.clone()) {
            continue;
        }
        let included = match (settings.include)(&path) {
            Ok(included) => included,
            Err(why) => {
                let fault = format!("{key}: {why}");
                lints.push(Lint::error(from, fault, "until this is corrected all mail for it waits"));
                continue;
            }
        };
        let (members, complaints) = parse_list(&included.text);
        let at = |line: Option<u32>| EntryLocation { map: NAME.into(), file: path.clone().into(), line };
        let fix = "correct the line";
        lints
            .extend(complaints.into_iter().map(|one| Lint::warning(at(one.line), format!("{key}: {}", one.text), fix)));
        of_targets(&|| at(None), key, &members, table, settings, lints);
        let has_rights = |member: &Member| matches!(member, Member::Program(_) | Member::File(_));
        match members.iter().find(|member| has_rights(member)) {
            Some(member) if !included.is_trusted => lints.push(Lint::error(
                at(None),
                format!(
                    "{key}: {member} is refused: others can write this file, or its owner has no shell of /etc/shells"
                ),
                "take the right to write it from group and others, and give it to a user with a shell",
            )),
            _ => {}
        }
        for member in &members {
            if let Member::Program(command) = member {
                lints.extend(of_program(at(None), key, command, settings));
            }
        }
        if members.is_empty() {
            lints.push(Lint::warning(
                at(None),
                format!("{key}: it has no members"),
                "mail for it is refused; add some",
            ));
        }
        open.extend(named(&members, &at(None), depth + 1));
    }
}

/// The number of the entry that each name of a value is.
fn next(entries: &[(Hit<'_>, Vec<Member>)], settings: &LintSettings<'_>) -> Vec<Vec<usize>> {
    let numbers: HashMap<&str, usize> =
        entries.iter().enumerate().map(|(number, (hit, _))| (hit.key, number)).collect();
    let number = |member: &Member| match member {
        Member::Local(name) => numbers.get(name.as_str().to_lowercase().as_str()).copied(),
        Member::Address(address) if (settings.is_local)(&address.domain().to_string()) => {
            numbers.get(address.local_part().as_str().to_lowercase().as_str()).copied()
        }
        _ => None,
    };
    entries.iter().map(|(_, members)| members.iter().filter_map(number).collect()).collect()
}

/// Names that lead to each other: each circle is told once, at the first name by which it is entered.
fn loops(table: &Table, entries: &[(Hit<'_>, Vec<Member>)], settings: &LintSettings<'_>, lints: &mut Vec<Lint>) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        OnTheWay,
        Done,
    }
    let next = next(entries, settings);
    let mut state = vec![State::New; entries.len()];
    let name = |number: usize| entries.get(number).map_or("", |(hit, _)| hit.key);
    for start in 0..entries.len() {
        // A name, and how many of its members have been looked at.
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        if state.get(start) != Some(&State::New) {
            continue;
        }
        while let Some((at, done)) = way.last_mut() {
            let at = *at;
            let Some(&member) = next.get(at).and_then(|members| members.get(*done)) else {
                set(&mut state, at, State::Done);
                way.pop();
                continue;
            };
            *done += 1;
            set(&mut state, at, State::OnTheWay);
            match state.get(member) {
                Some(State::New) => way.push((member, 0)),
                Some(State::OnTheWay) => {
                    let from = way.iter().position(|(number, _)| *number == member).unwrap_or_default();
                    let names: Vec<&str> = way.iter().skip(from).map(|(number, _)| name(*number)).collect();
                    let line = entries.get(member).and_then(|(hit, _)| hit.line);
                    let is_only = entries.get(member).is_some_and(|(_, members)| members.len() == 1);
                    lints.extend(circle(place(table, line), &names, is_only));
                }
                Some(State::Done) | None => {}
            }
        }
    }

    fn set(state: &mut [State], at: usize, to: State) {
        if let Some(state) = state.get_mut(at) {
            *state = to;
        }
    }
}

fn circle(place: EntryLocation, names: &[&str], is_only: bool) -> Option<Lint> {
    let first = names.first()?;
    if names.len() == 1 {
        // `joe: joe, ann` is how to keep a copy.
        let fault = format!("{first}: it leads to itself only");
        return is_only
            .then(|| Lint::warning(place, fault, "remove the line if there is such an account, else name somebody"));
    }
    const SHOWN_MAX: usize = 10;
    let mut way = names.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(" → ");
    if names.len() > SHOWN_MAX {
        way.push_str(" → …");
    }
    let fault = format!("{way} → {first} is a loop");
    Some(Lint::warning(place, fault, "let one of them be an account, or name somebody else"))
}
