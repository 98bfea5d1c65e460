//! The facts that defaults depend on: the machine's name and the user that started the program. They are arguments, so
//! that tests do not depend on the machine.

use std::path::{Path, PathBuf};

/// The machine and the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The name of the host, as the system says it.
    pub hostname: String,
    /// Started by root: ports below 1,024 can be had, and directories of the system.
    pub is_root: bool,
    /// There is a user `mailrace`, which a server that root starts becomes.
    pub has_own_user: bool,
    /// The place of the spool if the configuration names none.
    pub spool: PathBuf,
    /// The place of the control socket if the configuration names none.
    pub control: PathBuf,
}

impl Machine {
    /// A machine with this name; `home` is where an ordinary user keeps state, `None` for root.
    #[must_use]
    pub fn new(hostname: &str, home: Option<&Path>) -> Self {
        // A name that mail cannot use would make every default configuration wrong.
        let hostname = if mail::DomainName::new(hostname).is_ok() { hostname } else { "localhost" }.to_owned();
        match home {
            None => Self {
                hostname,
                is_root: true,
                has_own_user: false,
                spool: PathBuf::from("/var/spool/mailrace"),
                control: PathBuf::from("/run/mailrace/control"),
            },
            Some(home) => Self {
                hostname,
                is_root: false,
                has_own_user: false,
                spool: home.join("mailrace/spool"),
                control: home.join("mailrace/control"),
            },
        }
    }
}

impl Default for Machine {
    /// A machine called `localhost` with an ordinary user whose state lies in `/var/lib`.
    fn default() -> Self {
        Self::new("localhost", Some(Path::new("/var/lib")))
    }
}
