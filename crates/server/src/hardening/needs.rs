//! Which files and directories the server needs after its start, computed from the configuration.
//!
//! The result is a plain value: paths, each with the key that names it and the rights below it. [`super::roots`] looks
//! on the disk for the directories that rules are made for, and [`os::landlock`] hands those to the kernel.
//!
//! - Every key whose value is a path counts, also one that is added later: it may be read until [`rights`] says
//!   otherwise.
//! - With the helper of local delivery the server writes no mailbox, and reads no home if workers do that. Without it
//!   the server reads `.forward` files of all users and writes the mailboxes of its own user.

use super::facts::{HardeningFacts, is_local};
use crate::config::{self, Config, Mailbox};
pub use os::landlock::{Access, EXECUTE, READ, WRITE};
use std::path::{Path, PathBuf};

/// How far a rule reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The directory that a file is in, since programs replace files by renaming new ones over them.
    Beside,
    /// A directory with all below it. One that is missing counts as the nearest directory above it.
    Below,
    /// The same, and no rule where it is missing.
    BelowIfThere,
    /// One file that is never replaced, such as a device.
    Only,
}

/// A path, and the access that the server needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The key that names the path, or another reason.
    pub origin: &'static str,
    /// The path as it is named.
    pub path: PathBuf,
    /// How far the rule reaches.
    pub scope: Scope,
    /// Operations that are needed there.
    pub access: Access,
}

impl Need {
    fn new(origin: &'static str, path: impl Into<PathBuf>, scope: Scope, access: Access) -> Self {
        Self { origin, path: path.into(), scope, access }
    }
}

/// Programs, libraries and their data, which every user of the system may read.
const SYSTEM_PROGRAMS: [&str; 9] =
    ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/gnu/store", "/run/current-system"];
/// Settings of the system: names, zones, certificates, name servers. `/proc` as a whole, since the kernel makes its
/// files anew at any time and a rule for one of them would be lost; it keeps memory and environment of other processes
/// closed by itself.
const SYSTEM_SETTINGS: [&str; 9] = [
    "/etc",
    "/proc",
    "/sys",
    "/run/systemd",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/netconfig",
    "/run/connman",
    "/var/lib/ca-certificates",
];
/// Caches and databases of services that `/etc/nsswitch.conf` may name. Their sockets need no rule.
const SYSTEM_ACCOUNTS: [&str; 9] = [
    "/var/lib/sss",
    "/var/lib/extrausers",
    "/var/db",
    "/var/lib/misc",
    "/var/yp",
    "/run/nscd",
    "/var/lib/nscd",
    "/var/cache/nscd",
    "/run/samba",
];
/// Devices that are read.
const DEVICES: [&str; 3] = ["/dev/urandom", "/dev/random", "/dev/zero"];

/// Returns all needs of a server with this configuration.
#[must_use]
pub fn needs(config: &Config, facts: &HardeningFacts) -> Vec<Need> {
    let mut needs = system(config);
    if let Some(path) = &facts.config_file {
        needs.push(Need::new("the configuration file", path, Scope::Beside, READ));
    }
    for (key, path) in config::paths(config) {
        let (scope, access) = rights(key);
        // Programs of aliases are run by workers of the helper, which these rules do not bind.
        if key != "local.programs" || !facts.has_helper {
            needs.push(Need::new(key, path, scope, access));
        }
    }
    // One that is named without its directory is looked for in PATH.
    if let Some(program) = config.auth.program.first().filter(|program| program.starts_with('/')) {
        needs.push(Need::new("auth.program", program, Scope::Beside, EXECUTE));
    }
    let beside = |origin, access| move |path: &PathBuf| Need::new(origin, path, Scope::Beside, access);
    needs.extend(facts.journals.iter().map(beside("sqlite.path", WRITE)));
    needs.extend(facts.included.iter().map(beside("maps.aliases", READ)));
    needs.extend(facts.environment.iter().map(beside("the environment", READ)));
    if is_local(config) && facts.reads_homes && config.local.forward {
        let of_users = facts.homes.iter().map(|home| Need::new("local.forward", home, Scope::BelowIfThere, READ));
        needs.extend(of_users);
    }
    if is_local(config) && !facts.has_helper {
        without_helper(config, facts, &mut needs);
    }
    needs
}

/// Returns how far the rule for the path of a key reaches and which operations it allows.
fn rights(key: &str) -> (Scope, Access) {
    match key {
        "spool.path" | "submit.directory" | "server.landlock_write" => (Scope::BelowIfThere, WRITE),
        "control.path" | "log.path" | "history.path" => (Scope::Beside, WRITE),
        "server.landlock_read" => (Scope::Below, EXECUTE),
        "local.programs" => (Scope::BelowIfThere, EXECUTE),
        "maps.directory" => (Scope::Below, READ),
        _ => (Scope::Beside, READ),
    }
}

fn system(config: &Config) -> Vec<Need> {
    let there = |access| move |path| Need::new("the system", path, Scope::BelowIfThere, access);
    let mut needs: Vec<Need> = SYSTEM_PROGRAMS.into_iter().map(there(EXECUTE)).collect();
    needs.extend(SYSTEM_SETTINGS.into_iter().map(there(READ)));
    if config::has_nss(&config.local) {
        needs.extend(SYSTEM_ACCOUNTS.into_iter().map(there(READ)));
    }
    // A link to another directory on most systems.
    needs.push(Need::new("the system", "/etc/resolv.conf", Scope::Beside, READ));
    needs.extend(DEVICES.into_iter().map(|path| Need::new("the system", path, Scope::Only, READ)));
    needs.push(Need::new("the system", "/dev/null", Scope::Only, WRITE));
    needs
}

/// Adds the needs of a server that cannot start workers: it delivers as its own user.
fn without_helper(config: &Config, facts: &HardeningFacts, needs: &mut Vec<Need>) {
    let template = match &config.local.mailbox {
        Mailbox::Mbox(template) | Mailbox::Maildir(template) => Some(template.to_string()),
        Mailbox::LmtpSocket(_) | Mailbox::LmtpHost(_) | Mailbox::None => None,
    };
    let places = template.iter().map(|text| ("local.mailbox", text));
    for (key, text) in places.chain(config.local.files.iter().map(|text| ("local.files", text))) {
        needs.extend(place(text, facts).map(|path| Need::new(key, path, Scope::BelowIfThere, WRITE)));
    }
}

/// Returns the directory of a template: the home of the server's user, or the part before the first variable.
fn place(template: &str, facts: &HardeningFacts) -> Option<PathBuf> {
    if template == "%h" || template.starts_with("%h/") {
        return facts.own_home.clone();
    }
    let fixed: Vec<&str> = template.split('/').take_while(|part| !part.contains('%')).collect();
    let path = fixed.join("/");
    Some(if path.is_empty() { Path::new("/").to_owned() } else { path.into() })
}

#[cfg(test)]
mod tests;
