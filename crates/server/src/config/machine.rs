//! The machine and the user that defaults depend on.

use super::Machine;
use os::accounts::Accounts;
use os::machine;
use os::privileges::{self, Plan};
use std::path::PathBuf;

/// Asks for the name of this machine and for the user of this process.
#[must_use]
pub fn this_machine() -> Machine {
    let hostname = machine::host_name();
    if machine::is_root() {
        let plan = Accounts::read().ok().and_then(|accounts| privileges::plan(true, "", "", &accounts).ok());
        let has_own_user = matches!(plan, Some(Plan::Become(_)));
        return Machine { has_own_user, ..Machine::new(&hostname, None) };
    }
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")));
    Machine::new(&hostname, Some(&home.unwrap_or_else(std::env::temp_dir)))
}
