//! Checks files of aliases against the accounts, programs and files that they name. For `mailrace check` and for
//! `newaliases`.
//!
//! `route::alias::lint` decides which lines are doubtful; this module reads files and accounts for it.

use crate::config::{self, Config, Mailbox, MapSource};
use crate::lookup::Lookups;
use crate::routing::load;
use ::local::command;
use mail::Domain;
use os::accounts::Accounts;
use os::safe_file::Trust;
use os::{machine, nss};
use route::alias::{self, Included, LintSettings, Summary};
use route::class::Classes;
use route::map::{Complaint, Format, MapFile};
use route::question::Answer;
use route::{EntryLocation, Lint, Source, Table};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Number of members from which on a list should have an owner.
const MEMBERS_MANY: usize = 20;

/// Users whose `.forward` is looked at.
const HOMES_MAX: usize = 10_000;

/// A file of aliases that was read.
#[derive(Debug)]
pub struct AliasFile {
    /// Names and values.
    pub table: Arc<Table>,
    /// Faults of lines.
    pub complaints: Vec<Complaint>,
    /// The summary of `newaliases`, for a text file only.
    pub summary: Summary,
    /// Lines that count for nothing.
    pub ignored: u64,
}

/// The configuration and the look-ups that the check of alias files uses.
#[derive(Debug)]
pub struct AliasLintContext {
    classes: Classes,
    lookups: Lookups,
    /// Names of accounts; `None`: another source has them.
    accounts: Option<HashSet<String>>,
    /// The C library is asked for users that are not among them.
    has_nss: bool,
    delimiter: Option<char>,
    programs: Vec<std::path::PathBuf>,
    /// Other sources than files have aliases.
    has_outside: bool,
    trust: Trust,
    /// A server that the calling user would start runs programs.
    runs_programs: bool,
    /// Users whose `.forward` counts, each with the home.
    homes: Vec<(Arc<str>, Arc<str>)>,
}

impl AliasLintContext {
    /// Makes it by the configuration. Files of domains and accounts are read; one that cannot be read counts as
    /// empty.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let local = &config.local;
        let has_mailboxes = matches!(local.mailbox, Mailbox::Mbox(_) | Mailbox::Maildir(_));
        let knows_users = has_mailboxes && local.luser_relay.is_empty();
        let accounts = || Accounts::read_with(&local.accounts).ok();
        Self {
            classes: load::classes(config),
            lookups: Lookups::new(config),
            accounts: knows_users.then(accounts).flatten().map(|found| found.names().map(str::to_owned).collect()),
            has_nss: config::has_nss(local),
            delimiter: local.delimiter.chars().next(),
            programs: local.programs.clone(),
            has_outside: config.maps.aliases.iter().any(|source| !matches!(source, MapSource::File(_))),
            trust: load::trust_of_server(config),
            runs_programs: local.programs_as_server || machine::is_root(),
            homes: if local.forward && has_mailboxes { homes(local) } else { Vec::new() },
        }
    }

    /// Reads a file of aliases: text, or a database that was made of one.
    ///
    /// # Errors
    /// It cannot be read, or is a damaged database.
    pub fn read(&self, path: &Path) -> io::Result<AliasFile> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path)?;
        if Format::of(&bytes).is_ok_and(|format| format != Format::Text) {
            let reading = MapFile { name: alias::NAME, file: &file, bytes, fold: true };
            let loaded = Table::read(reading).map_err(|error| io::Error::other(error.to_string()))?;
            let (table, complaints) = (Arc::new(loaded.table), loaded.complaints);
            return Ok(AliasFile { table, complaints, summary: Summary::default(), ignored: 0 });
        }
        let text = String::from_utf8_lossy(&bytes);
        let read = alias::parse_aliases(&file, &text, &|domain| self.is_local(domain));
        let (table, complaints) = (Arc::new(read.table), read.complaints);
        Ok(AliasFile { table, complaints, summary: read.summary, ignored: read.ignored })
    }

    fn is_local(&self, domain: &str) -> bool {
        Domain::parse(domain.as_bytes()).is_ok_and(|domain| self.classes.is_local(&domain))
    }

    /// Lists the doubtful lines of these sources, which are asked one after the other.
    #[must_use]
    pub fn lint(&self, sources: &[Source]) -> Vec<Lint> {
        let loaded = |source: &Source| if let Source::Loaded(table) = source { Some(Arc::clone(table)) } else { None };
        let tables: Vec<Arc<Table>> = sources.iter().filter_map(loaded).collect();
        let mut lints = Vec::new();
        for table in &tables {
            lints.extend(self.rights(table.file()));
            let others: Vec<&Arc<Table>> = tables.iter().filter(|other| !Arc::ptr_eq(other, table)).collect();
            let is_alias = |name: &str| self.has_outside || others.iter().any(|other| other.get(name).is_some());
            lints.extend(alias::lint(
                table,
                &LintSettings {
                    command: &|text| self.would_run(text),
                    is_local: &|domain| self.is_local(domain),
                    members_many: MEMBERS_MANY,
                    delimiter: self.delimiter,
                    is_alias: &is_alias,
                    is_account: &|name| self.is_account(name),
                    include: &|path| self.include(path),
                },
            ));
        }
        lints
    }

    /// Lists the programs that `.forward` files name and that would not run. Looks at the first [`HOMES_MAX`] users of
    /// the file of accounts. A file that the caller cannot read, or that does not count, is passed over.
    #[must_use]
    pub fn lint_forwards(&self) -> Vec<Lint> {
        let mut lints = Vec::new();
        for (user, home) in &self.homes {
            if let Answer::Text { text, file, .. } = self.lookups.forward(user, Arc::clone(home)) {
                lints.extend(alias::lint_forward(&file, &text, &|program| self.would_run(program)));
            }
        }
        lints
    }

    /// A user who can write aliases can have programs run, so the server does not read a file that others can write.
    fn rights(&self, file: &str) -> Option<Lint> {
        let why = self.trust.complaint(Path::new(file))?;
        let place = EntryLocation { map: alias::NAME.into(), file: file.into(), line: None };
        Some(Lint::error(place, format!("{why}, for mail runs programs as it says"), "then run mailrace reload"))
    }

    /// Returns whether a name is an account; `None` if no source can tell.
    fn is_account(&self, name: &str) -> Option<bool> {
        match self.accounts.as_ref()?.contains(name) {
            false if self.has_nss => nss::login(name).ok().map(|found| found.is_some()),
            known => Some(known),
        }
    }

    fn would_run(&self, text: &str) -> Result<(), String> {
        match command::parse(text)? {
            command::Command::Exit(_) => Ok(()),
            command::Command::Run { .. } if !self.runs_programs => Err(::local::person::NO_PROGRAMS.to_owned()),
            command::Command::Run { words, .. } => {
                let program = words.first().map(String::as_str).unwrap_or_default();
                command::find_program(program, &self.programs).map(|_| ())
            }
        }
    }

    fn include(&self, path: &str) -> Result<Included, Arc<str>> {
        match self.lookups.include(path) {
            Answer::Text { text, owner, .. } => Ok(Included { text, is_trusted: owner.is_some() }),
            Answer::Trouble(why) => Err(why),
            _ => Err(format!(":include: {path}: it cannot be read").into()),
        }
    }
}

/// Returns the users of the file of accounts, each with the home.
fn homes(local: &config::Local) -> Vec<(Arc<str>, Arc<str>)> {
    let Ok(accounts) = Accounts::read_with(&local.accounts) else { return Vec::new() };
    let home = |name: &str| accounts.home(name).map(|home| (name.into(), home.into()));
    accounts.names().take(HOMES_MAX).filter_map(home).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn surroundings(place: &Path) -> AliasLintContext {
        std::fs::write(place.join("passwd"), "joe:x:1000:1000::/h/joe:/bin/sh\n").unwrap();
        AliasLintContext {
            classes: Classes::default(),
            lookups: Lookups::new(&Config::default()),
            accounts: Some(HashSet::from(["joe".to_owned()])),
            has_nss: false,
            delimiter: Some('+'),
            programs: Vec::new(),
            has_outside: false,
            trust: load::trust_of_server(&Config::default()),
            runs_programs: true,
            homes: Vec::new(),
        }
    }

    #[test]
    fn programs_of_users_are_named_with_their_lines() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("joe");
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        let forward = home.join(".forward");
        std::fs::write(&forward, "# mine\n\\joe\n\"|/no/such/program -a\", \"|exit 0\"\n|/bin/good\n").unwrap();
        std::fs::set_permissions(&forward, Permissions::from_mode(0o644)).unwrap();
        // No file is read as root.
        let own = rustix::process::getuid();
        let (uid, gid) = (if own.is_root() { 1_000 } else { own.as_raw() }, rustix::process::getgid().as_raw());
        let passwd = format!("joe:x:{uid}:{gid}::{}:/bin/sh\nann:x:{uid}:{gid}::/nowhere:/bin/sh\n", home.display());
        std::fs::write(place.path().join("passwd"), passwd).unwrap();
        let mut config = Config::default();
        config.local.accounts = place.path().join("passwd");
        config.local.forward = true;
        config.local.mailbox = "mbox:/var/mail/%u".parse().unwrap();
        let mut context = AliasLintContext::new(&config);
        context.runs_programs = true;
        let programs = place.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink("/bin/cat", programs.join("good")).unwrap();
        context.programs = vec![programs];
        let said: Vec<String> = context.lint_forwards().iter().map(ToString::to_string).collect();
        let [only] = said.as_slice() else { panic!("{said:?}") };
        assert!(only.contains(&format!("{}", forward.display())) && only.contains(" line 3: "), "{only}");
        assert!(only.contains("\"|/no/such/program -a\" will not run: "), "{only}");
        config.local.forward = false;
        assert!(AliasLintContext::new(&config).lint_forwards().is_empty(), "no .forward counts");
    }

    #[test]
    fn what_aliases_name_is_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let (path, list) = (place.path().join("aliases"), place.path().join("list"));
        let standing = "postmaster: joe\nmailer-daemon: joe\nroot: joe\nowner-l: joe\n";
        let text = format!(
            "{standing}l: :include:{}\nm: nosuch\np: \"|/bin/x\"\nx: \"|exit 0\"\nq: \"|/bin/a;b\"\n",
            list.display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let seen = |what: &AliasLintContext| -> Vec<String> {
            let table = what.read(&path).unwrap().table;
            let lints = what.lint(&[Source::Loaded(table)]);
            lints.iter().map(|lint| lint.to_string().replace(place.path().to_str().unwrap(), "")).collect()
        };
        let what = surroundings(place.path());
        let told = seen(&what);
        assert_eq!(told.len(), 4, "{told:#?}");
        for (lint, part) in told.iter().zip([
            "aliases /aliases line 5: l: :include: /list: No such file",
            "aliases /aliases line 6: m: nosuch is neither an alias nor an account",
            "aliases /aliases line 7: p: \"|/bin/x\" will not run: local.programs is empty",
            "aliases /aliases line 9: q: \"|/bin/a;b\" will not run: ; means something to a shell",
        ]) {
            assert!(lint.starts_with(part), "{lint}");
        }
        std::fs::write(&list, "joe\nann@x.test\n").unwrap();
        std::fs::set_permissions(&list, Permissions::from_mode(0o644)).unwrap();
        assert!(!seen(&what).iter().any(|lint| lint.contains("/list")));
        std::fs::set_permissions(&list, Permissions::from_mode(0o666)).unwrap();
        assert!(seen(&what)[0].contains("every user of this host can write it; chmod o-w"), "{:?}", seen(&what));
        std::fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        assert!(seen(&what)[0].contains("can be written by its group: run \"chmod g-w"), "{:?}", seen(&what));
        // Started without root, the server runs nothing.
        let what = AliasLintContext { runs_programs: false, ..what };
        let told = seen(&what);
        let (run, ran): (Vec<_>, Vec<_>) = told.iter().partition(|lint| lint.contains("local.programs_as_server"));
        assert!(run.len() == 1 && run[0].contains("line 7: p: ") && !ran.is_empty(), "{told:#?}");
        // Others may know aliases, and users.
        let what = AliasLintContext { has_outside: true, accounts: None, ..what };
        assert!(!seen(&what).iter().any(|lint| lint.contains("nosuch")));
    }
}
