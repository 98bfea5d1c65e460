//! Facts of the machine that the configuration does not have: homes of users, lists that alias files name, databases
//! that need a journal.
//!
//! Read once before the rules are made, and again at a reload with the rights that are left then. A file that cannot be
//! read adds nothing: its reader reports it.

use crate::config::{self, Config, MapSource};
use os::accounts::Accounts;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Variables that name certificates of authorities.
const ENVIRONMENT: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// Lists that are looked into for further lists.
const LISTS_MAX: usize = 1_000;
/// Octets of one file that are looked through.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// How an alias names a list.
const INCLUDE: &str = ":include:";
/// Homes of services that count as no homes.
const NO_HOMES: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/run"];

/// Paths that no key names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HardeningFacts {
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// Workers deliver to users and read their files.
    pub has_helper: bool,
    /// The server reads files of users itself.
    pub reads_homes: bool,
    /// Directories in which users may have a `.forward`; none where the server does not read them.
    pub homes: Vec<PathBuf>,
    /// The home of the server's user.
    pub own_home: Option<PathBuf>,
    /// Lists that aliases include.
    pub included: Vec<PathBuf>,
    /// SQLite files whose readers write beside them (write-ahead log).
    pub journals: Vec<PathBuf>,
    /// Certificates of authorities that variables of the environment name.
    pub environment: Vec<PathBuf>,
}

impl HardeningFacts {
    /// Looks at the machine.
    #[must_use]
    pub fn find(config: &Config, config_file: Option<&Path>, has_helper: bool) -> Self {
        let environment = ENVIRONMENT.into_iter().filter_map(std::env::var_os);
        let mut facts = Self {
            config_file: config_file.map(Path::to_owned),
            has_helper,
            reads_homes: !has_helper,
            included: lists(config),
            journals: config.sqlite.iter().map(|one| one.path.clone()).filter(|path| has_journal(path)).collect(),
            environment: environment.flat_map(|value| std::env::split_paths(&value).collect::<Vec<_>>()).collect(),
            ..Self::default()
        };
        if has_helper {
            // The server itself opens only lists that root or it alone can have put where they are.
            let accounts = Accounts::read_with(&config.local.accounts).unwrap_or_default();
            let homes: Vec<&Path> = accounts
                .homes()
                .filter(|(uid, home)| *uid >= config.local.uid_min && is_home(Path::new(home)))
                .map(|(_, home)| Path::new(home))
                .collect();
            facts.included.retain(|list| !homes.iter().any(|home| list.starts_with(home)));
        }
        if facts.reads_homes && is_local(config) {
            let accounts = Accounts::read_with(&config.local.accounts).unwrap_or_default();
            facts.homes = homes(&accounts, config);
            let uid = rustix::process::geteuid().as_raw();
            facts.own_home = accounts.login_of(uid).map(|login| PathBuf::from(login.home)).filter(|home| is_home(home));
        }
        facts
    }
}

/// Returns the directories that homes are in; of services, which have them anywhere, the homes themselves.
fn homes(accounts: &Accounts, config: &Config) -> Vec<PathBuf> {
    let mut found: BTreeSet<PathBuf> = BTreeSet::new();
    for (uid, home) in accounts.homes() {
        let home = Path::new(home);
        if !is_home(home) {
            continue;
        }
        let above = home.parent().filter(|above| *above != Path::new("/") && uid >= config.local.uid_min);
        found.insert(above.unwrap_or(home).to_owned());
    }
    if config::has_nss(&config.local) {
        found.insert("/home".into());
    }
    found.into_iter().collect()
}

fn is_home(home: &Path) -> bool {
    home.is_absolute() && home != Path::new("/") && !NO_HOMES.iter().any(|none| home.starts_with(none))
}

/// Lists that alias files name, and lists that those name.
fn lists(config: &Config) -> Vec<PathBuf> {
    let files = config.maps.aliases.iter().filter_map(|source| match source {
        MapSource::File(path) => Some(path.clone()),
        MapSource::Ldap(_) | MapSource::Sqlite(_) => None,
    });
    let mut waiting: Vec<PathBuf> = files.collect();
    let mut found = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        for list in text_of(&path).iter().flat_map(|text| included(text)) {
            if found.len() < LISTS_MAX && found.insert(list.clone()) {
                waiting.push(list);
            }
        }
    }
    found.into_iter().collect()
}

/// Returns whether there may be mail for this machine: by its domains, or by a map that names the mailer `local`.
pub(super) fn is_local(config: &Config) -> bool {
    let (local, maps) = (&config.local, &config.maps);
    let of_maps =
        [&maps.aliases, &maps.mailertable, &maps.virtusertable].into_iter().any(|sources| !sources.is_empty());
    local.own_name || !local.domains.is_empty() || !local.domain_files.is_empty() || of_maps
}

/// Returns the lists that a text names by their full names.
fn included(text: &str) -> Vec<PathBuf> {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, ',' | '"' | '\'' | '<' | '>');
    let names = text.split(INCLUDE).skip(1).filter_map(|rest| rest.split(ends).next());
    names.filter(|name| name.starts_with('/')).map(PathBuf::from).collect()
}

fn text_of(path: &Path) -> Option<String> {
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LIST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether an SQLite file is in the mode "write-ahead log", octets 18 and 19 of its header
/// (<https://sqlite.org/fileformat.html>).
fn has_journal(path: &Path) -> bool {
    let mut header = [0; 20];
    let is_read = std::fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut header).is_ok());
    is_read && header.starts_with(b"SQLite format 3\0") && header.ends_with(&[2, 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_lists_are_found_once() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (aliases, one, two) = (at("aliases"), at("one"), at("two"));
        std::fs::write(
            &aliases,
            format!("a: :include:{0}, \":include:{0}\"\nb: x, :include:relative\n", one.display()),
        )
        .unwrap();
        std::fs::write(&one, format!("joe\n:include:{}\n:include:{}\n", two.display(), one.display())).unwrap();
        let mut config = Config::default();
        config.maps.aliases = vec![MapSource::File(aliases), MapSource::File("/nonexistent".into())];
        assert_eq!(lists(&config), [one, two], "the second need not be there");
    }

    #[test]
    fn homes_of_users_count_by_the_directory_they_are_in() {
        let accounts = Accounts::from_text(
            "root:x:0:0::/root:\ndaemon:x:1:1::/usr/sbin:\nlist:x:38:38::/var/list:\njoe:x:1000:1000::/users/joe:\n\
             ann:x:1001:1001::/users/ann:\nnone:x:1002:1002::/:\nbad:x:1003:1003::rel:\ntop:x:1004:1004::/top:\n",
            "",
        );
        let mut config = Config::default();
        config.local.nss = false;
        let expected = ["/root", "/top", "/users", "/var/list"].map(PathBuf::from);
        assert_eq!(homes(&accounts, &config), expected);
    }

    #[test]
    fn a_database_with_a_write_ahead_log_is_known() {
        let place = tempfile::tempdir().unwrap();
        for (mode, expected) in [("wal", true), ("delete", false)] {
            let path = place.path().join(mode);
            let database = rusqlite::Connection::open(&path).unwrap();
            let set: String = database.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0)).unwrap();
            database.execute("CREATE TABLE t (a)", []).unwrap();
            assert_eq!((set.as_str(), has_journal(&path)), (mode, expected));
        }
        assert!(!has_journal(place.path()) && !has_journal(Path::new("/nonexistent")));
    }
}
