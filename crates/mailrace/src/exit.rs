//! Exit statuses, from `sysexits.h`, and the errors that end a command early.
//!
//! The one place that decides which failure gets which number; scripts depend on it.

use spool::OpenError;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// The exit statuses in `--help`.
pub(crate) const HELP: &str = "\
Exit status:
   0  done; the spool is sound
   1  the demonstration lost mail
  64  wrong arguments
  65  damage was found
  66  there is no spool
  73  the demonstration may not use that directory
  74  reading or writing failed
  75  the spool is in use; stop mailrace or look at a copy
  77  no permission
  78  the spool has another format than this program, or a setting cannot work";

/// The exit statuses in `--help` of commands on the configuration.
pub(crate) const CONFIG_HELP: &str = "\
Exit status:
   0  done; the configuration can be used
  64  wrong arguments, or an unknown key
  74  reading or writing failed
  77  no permission
  78  the configuration has an error, or the file is not there";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything is as it should be.
    Ok = 0,
    /// Acknowledged mail was lost.
    Lost = 1,
    /// `EX_USAGE`
    Usage = 64,
    /// `EX_DATAERR`: damage.
    Damaged = 65,
    /// `EX_NOINPUT`: the named file is not there, or is no spool.
    NoInput = 66,
    /// `EX_NOUSER`: a recipient is refused for good.
    NoUser = 67,
    /// `EX_UNAVAILABLE`: the server does not run.
    Unavailable = 69,
    /// `EX_CANTCREAT`
    CannotCreate = 73,
    /// `EX_IOERR`
    Io = 74,
    /// `EX_TEMPFAIL`: in use, or not all mail was accepted.
    TryLater = 75,
    /// `EX_NOPERM`
    NoPermission = 77,
    /// `EX_CONFIG`: newer format, or a value that cannot work.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command stopped: the status, and the object, the value and the next step for a person.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The system refused something.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(of_kind(error), format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most of it may come from the server, which quotes others.
        f.write_str(&crate::terminal_text::plain_lines(&self.message))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::Locked { .. } => Exit::TryLater,
            OpenError::OtherFormat { .. } | OpenError::Config(_) => Exit::Config,
            // The file SPOOL is there and does not read; without it the directory is named.
            OpenError::NotASpool { path, .. } if path.is_file() => Exit::Damaged,
            OpenError::NotASpool { .. } => Exit::NoInput,
            OpenError::Io { source, .. } => of_kind(source),
        };
        Self::new(exit, error.to_string())
    }
}

fn of_kind(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Exit::NoPermission,
        io::ErrorKind::WouldBlock => Exit::TryLater,
        _ => Exit::Io,
    }
}
