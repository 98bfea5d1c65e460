//! Gives up rights after the start, besides root: files that the server does not need (Landlock) and system calls
//! that mail never needs (seccomp).
//!
//! [`needs`] computes the needs from the configuration, [`facts`] adds facts of the machine, [`roots`] finds the
//! directories, [`os::landlock`] and [`os::seccomp`] tell the kernel. Both last until the process
//! ends and bind all that it starts: `auth.program`, and without the helper of local delivery also programs of
//! aliases. The helper is started before and is not bound.
//!
//! A kernel that lacks one of the two is no error: the log and `mailrace status --json` list the restrictions in
//! force. Rules cannot be widened, so a reload that needs more files is refused ([`Hardening::refuses`]).

pub mod facts;
pub mod needs;
pub mod roots;

use crate::config::{Config, Mailbox};
use facts::HardeningFacts;
use observe::Severity;
use os::landlock::{self, Applied};
use os::seccomp;
use roots::Roots;
use std::path::Path;

/// Restrictions in force in this process.
#[derive(Clone, Debug)]
pub struct Hardening {
    /// Rules of Landlock, if there are any.
    roots: Option<Roots>,
    has_helper: bool,
    text: String,
    is_missing: bool,
}

impl Hardening {
    /// Puts the restrictions of the configuration in force that the kernel has, for this thread and all that it
    /// starts.
    ///
    /// To be called once, after root was given up and before the second thread.
    #[must_use]
    pub fn apply(config: &Config, config_file: Option<&Path>, has_helper: bool) -> Self {
        let mut made = Self { roots: None, has_helper, text: String::new(), is_missing: false };
        let files = made.restrict_files(config, config_file);
        let calls = made.refuse_calls(config);
        made.text = format!("{calls}; {files}");
        made
    }

    fn restrict_files(&mut self, config: &Config, config_file: Option<&Path>) -> String {
        if !config.server.landlock {
            return "landlock off by server.landlock".to_owned();
        }
        if !self.has_helper && config.local.programs_as_server && config.server.landlock_write.is_empty() {
            // Rules bind programs of aliases too, and a list manager that cannot write its files fails for good.
            return "landlock not in force: local.programs_as_server runs programs whose files are not known; name them in \
                    server.landlock_write"
                .to_owned();
        }
        let facts = HardeningFacts::find(config, config_file, self.has_helper);
        let roots = Roots::of(&needs::needs(config, &facts));
        let moves = !self.has_helper && matches!(config.local.mailbox, Mailbox::Maildir(_));
        match landlock::apply(roots.iter(), moves) {
            Ok(Applied::InForce { abi }) => {
                let text = format!("landlock in force, version {abi}: {roots}");
                self.roots = Some(roots);
                text
            }
            Ok(Applied::Missing) => self.missing("landlock not in force: this kernel does not have it"),
            Err(error) => self.missing(&format!("landlock not in force: {error}")),
        }
    }

    fn refuse_calls(&mut self, config: &Config) -> String {
        if !config.server.seccomp {
            return "seccomp off by server.seccomp".to_owned();
        }
        match seccomp::apply() {
            Ok(()) => format!("seccomp in force: {} system calls refused", seccomp::REFUSED.len()),
            Err(error) => self.missing(&format!("seccomp not in force: {error}")),
        }
    }

    fn missing(&mut self, text: &str) -> String {
        self.is_missing = true;
        text.to_owned()
    }

    /// Describes the restrictions in force, for the log and for operators.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns how much an operator should care.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        if self.is_missing { Severity::Notice } else { Severity::Info }
    }

    /// Returns why a running server cannot take a configuration: it names files that the rules in force keep closed.
    /// `None` if it can.
    #[must_use]
    pub fn refuses(&self, config: &Config, config_file: Option<&Path>) -> Option<String> {
        let roots = self.roots.as_ref()?;
        let needs = needs::needs(config, &HardeningFacts::find(config, config_file, self.has_helper));
        let refused = needs.iter().filter(|need| !roots.allow(need));
        let texts: Vec<String> =
            refused.map(|need| format!("{} = \"{}\" ({})", need.origin, need.path.display(), need.access)).collect();
        (!texts.is_empty()).then(|| {
            format!(
                "server.landlock keeps the running server from files that its configuration did not name at the start: {}: takes \
                 effect after a restart; nothing was changed: restart the server, or take this back",
                texts.join(", ")
            )
        })
    }
}
