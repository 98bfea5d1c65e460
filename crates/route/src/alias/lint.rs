//! What is doubtful in an aliases file.

use super::NAME;
use super::member::{Member, parse_members};
use crate::lint::Lint;
use crate::map::{Hit, Table};
use crate::question::Place;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Names that every machine should have: RFC 5321 §4.5.1 asks for the first, cron and daemons write to the others.
const NEEDED: &[(&str, &str)] = &[
    ("postmaster", "everybody may write to postmaster; add \"postmaster: root\""),
    ("mailer-daemon", "people answer to reports; add \"mailer-daemon: postmaster\""),
    ("root", "nobody reads the mailbox of root; add \"root: \" and the name of an administrator"),
];

/// What is known beside the file.
#[derive(Clone, Copy)]
pub struct LintSettings<'a> {
    /// Which programs may run.
    pub programs: &'a Programs,
    /// Whether a domain is ours.
    pub is_local: &'a dyn Fn(&str) -> bool,
    /// From how many members on a list should have an owner; 20.
    pub members_many: usize,
}

impl fmt::Debug for LintSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LintSettings")
            .field("programs", &self.programs)
            .field("members_many", &self.members_many)
            .finish_non_exhaustive()
    }
}

/// Which programs mail may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Programs {
    /// All.
    All,
    /// None.
    None,
    /// Those in these directories.
    In(Vec<Box<str>>),
}

/// Finds what is doubtful; the time is linear in the size of the file.
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
    for (hit, members) in &entries {
        of_members(table, hit, members, settings, &mut lints);
        of_owner(table, hit, members, settings, &mut lints);
    }
    loops(table, &entries, settings, &mut lints);
    for (name, hint) in NEEDED {
        if table.get(name).is_none() && !table.is_empty() {
            lints.push(Lint::warning(place(table, None), format!("there is no alias {name}"), *hint));
        }
    }
    lints.sort_by_key(|lint| lint.place.line.unwrap_or(u32::MAX));
    lints
}

fn place(table: &Table, line: Option<u32>) -> Place {
    Place { map: NAME.into(), file: table.file().into(), line }
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
            Member::Program(command) => lints.extend(of_program(here(), key, command, settings.programs)),
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

fn of_program(place: Place, key: &str, command: &str, programs: &Programs) -> Option<Lint> {
    let program = command.split_whitespace().next().unwrap_or_default();
    match programs {
        Programs::None => Some(Lint::error(
            place,
            format!("{key}: \"{program}\" will not run: [local] programs is false"),
            "set it to true, or to the list of directories with programs that may run",
        )),
        Programs::In(directories) if !directories.iter().any(|directory| is_in(program, directory)) => {
            Some(Lint::error(
                place,
                format!("{key}: \"{program}\" is in none of the directories of [local] programs, and will not run"),
                "put it there, or add its directory",
            ))
        }
        Programs::All if !program.starts_with('/') => Some(Lint::warning(
            place,
            format!("{key}: \"{program}\" is no full name of a program"),
            "write it from the slash on",
        )),
        Programs::All | Programs::In(_) => None,
    }
}

fn is_in(program: &str, directory: &str) -> bool {
    let rest = program.strip_prefix(directory.trim_end_matches('/'));
    rest.and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| !rest.split('/').any(|part| part == ".."))
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

fn circle(place: Place, names: &[&str], is_only: bool) -> Option<Lint> {
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
