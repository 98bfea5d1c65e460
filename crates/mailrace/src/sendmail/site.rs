//! The facts that the commands need about this host: the configuration as far as it concerns them, and the calling
//! user.
//!
//! The file of the configuration is that of the server. Where it names no directory, those of the system's server hold,
//! unless the caller runs one of his own.

use super::exit;
use mail::{Address, Domain, DomainName, LocalPart, ReversePath};
use server::config::{self, Config, Loaded, Machine};
use std::io;
use std::path::{Path, PathBuf};

/// This host and the caller.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) config: Config,
    /// The same, as it was read.
    pub(super) loaded: Loaded,
    /// The file, if there is one.
    pub(super) file: Option<PathBuf>,
    pub(super) host: DomainName,
    /// Login name, or the number of the caller.
    pub(super) user: String,
    /// As `/etc/passwd` has it.
    pub(super) full_name: String,
    pub(super) home: Option<PathBuf>,
}

/// Why the site is not known: exit status and text.
pub(super) type Trouble = (u8, String);

impl Site {
    /// Reads the configuration: the file that was named, else that of the environment, else the usual one.
    ///
    /// # Errors
    /// It is not there (72, as sendmail has it) or cannot work (78).
    pub(super) fn open(named: Option<&Path>) -> Result<Self, Trouble> {
        let file = config::choose(named.map(Path::to_owned), std::env::var_os(config::VARIABLE), |path| path.exists());
        let machine = machine(file.as_deref());
        let loaded = config::open(file.as_deref(), &[], &machine).map_err(|error| {
            let name = file.as_deref().unwrap_or_else(|| Path::new("")).display();
            match error.kind() {
                io::ErrorKind::NotFound => (exit::SYSTEM_FILE, format!("{name}: line 0: cannot open: No such file or directory")),
                io::ErrorKind::PermissionDenied => (exit::CONFIG, format!("{name}: no permission to read it; give it mode 0644: what must stay secret stands in files of its own")),
                _ => (exit::SYSTEM_FILE, format!("{name}: {error}")),
            }
        })?;
        let loaded = loaded.map_err(|problems| {
            (
                exit::CONFIG,
                format!("{}the configuration has errors; \"mailrace check\" shows them", config::render(&problems)),
            )
        })?;
        let host = DomainName::new(&loaded.config.hostname);
        let host = host.map_err(|error| (exit::CONFIG, format!("hostname: {error}; set it in the configuration")))?;
        let (user, full_name, home) = caller();
        Ok(Self { config: loaded.config.clone(), loaded, file, host, user, full_name, home })
    }

    /// The address of the caller.
    pub(super) fn own_address(&self) -> Option<Address> {
        Address::new(LocalPart::new(&self.user).ok()?, Domain::Name(self.host.clone())).ok()
    }

    /// The sender that `-f` names, or the caller; and whether it is another user than the caller.
    ///
    /// # Errors
    /// It is no address.
    pub(super) fn sender(&self, chosen: Option<&str>) -> Result<(ReversePath, bool), Trouble> {
        let own = self.own_address();
        let Some(text) = chosen.map(str::trim) else {
            let own = own.ok_or_else(|| (exit::USAGE, format!("user {:?} can have no address; use -f", self.user)))?;
            return Ok((ReversePath::Address(own), false));
        };
        if text.is_empty() || text == "<>" {
            return Ok((ReversePath::Null, true));
        }
        let named =
            mail::submission::named(text, &self.host).map_err(|error| (exit::USAGE, format!("{text}... {error}")))?;
        match <[Address; 1]>::try_from(named) {
            Ok([address]) => {
                let is_chosen = own.is_none_or(|own| own.key() != address.key());
                Ok((ReversePath::Address(address), is_chosen))
            }
            Err(_) => Err((exit::USAGE, format!("{text}... one address is one sender"))),
        }
    }

    /// The pickup directory.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn directory(&self) -> Result<&Path, Trouble> {
        let none =
            || (exit::CONFIG, "submit.directory is empty: mail cannot be handed in here; name a directory".to_owned());
        self.config.submit.directory.as_deref().ok_or_else(none)
    }
}

/// The machine whose defaults hold: the system's, unless the caller has a server of his own or a file that says
/// otherwise.
fn machine(file: Option<&Path>) -> Machine {
    let here = config::this_machine();
    let is_system = match file {
        Some(file) => file == Path::new(config::DEFAULT_PATH),
        None => !here.control.exists(),
    };
    if is_system { Machine::new(&here.hostname, None) } else { here }
}

/// Login name, full name and home of the caller.
fn caller() -> (String, String, Option<PathBuf>) {
    let uid = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_own = |line: &&str| line.split(':').nth(2).and_then(|number| number.parse::<u32>().ok()) == Some(uid);
    let own = passwd.lines().find(is_own).map(str::to_owned);
    // Users of a directory have no line in the file.
    let own = own.or_else(|| os::nss::line_of(uid).ok().flatten());
    let line = own.as_ref().map(|line| line.split(':').collect::<Vec<_>>());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let Some(fields) = line else { return (uid.to_string(), String::new(), home) };
    let field = |at: usize| fields.get(at).copied().unwrap_or_default();
    let home = home.or_else(|| Some(PathBuf::from(field(5)))).filter(|home| home.is_absolute());
    (field(0).to_owned(), mail::submission::full_name(field(4), field(0)), home)
}
