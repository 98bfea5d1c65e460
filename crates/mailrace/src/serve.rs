//! `mailrace serve`: the server in the foreground, until a signal ends it.
//!
//! Reads arguments and says how it went; the server itself is `server::start`.

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use clap::Args;
use operator::control::BindError;
use server::StartError;
use server::config::render;
use server::start::Prepared;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Without a configuration it takes mail on 127.0.0.1:2525, or as root on port 25 of every address. It stays in the foreground
and prints \"mailrace: ready on ADDRESS\" when it takes connections.

Signals: TERM and INT end it when open transactions are finished (a second one at once), HUP reads the configuration again,
USR1 opens the log file anew.

Exit status:
   0  ended by a signal
  64  wrong arguments
  69  an address or another resource cannot be had
  73  the control socket cannot be made
  74  the spool cannot be opened
  75  another process has the spool, or answers at the control socket
  77  no permission for the control socket or the spool
  78  the configuration cannot work";

/// Runs the server.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    source: Source,
    /// Die when the process that started this one does, for programs that start a server to kill it
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Runs it to its end.
///
/// # Errors
/// It could not be started.
pub(crate) fn run(arguments: &ServeArguments) -> Result<Exit, Failure> {
    if arguments.with_parent {
        die_with_parent()?;
    }
    let source = arguments.source.for_reloads();
    let loaded = arguments.source.open()?.map_err(|problems| {
        eprint!("{}", render(&problems));
        Failure::new(Exit::Config, "the configuration has errors; correct them, \"mailrace check\" looks again")
    })?;
    let prepared = Prepared::new(&loaded, source).map_err(start_failure)?;
    let is_bound = arguments.with_parent;
    let ready = |addresses: &[SocketAddr]| {
        // The kernel forgets it when a process that was root becomes another user. It was possible before.
        if is_bound {
            drop(die_with_parent());
        }
        say_ready(addresses);
    };
    prepared.run(ready).map_err(start_failure)?;
    Ok(Exit::Ok)
}

/// Has the kernel kill this process with its parent.
///
/// # Errors
/// The kernel does not know how.
pub(crate) fn die_with_parent() -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::io("--with-parent", &error.into()))
}

/// One line for each address, for a parent process that waits.
pub(crate) fn say_ready(addresses: &[SocketAddr]) {
    let mut out = std::io::stdout().lock();
    for address in addresses {
        // The output may be closed.
        drop(writeln!(out, "mailrace: ready on {address}"));
    }
    drop(out.flush());
}

/// Returns the exit status of a server that did not start.
pub(crate) fn start_failure(error: StartError) -> Failure {
    let said = error.to_string();
    match error {
        StartError::Config(text) => Failure::new(Exit::Config, text),
        StartError::Unavailable(text) => Failure::new(Exit::Unavailable, text),
        StartError::Control(error) => {
            let exit = match &error {
                BindError::InUse { .. } => Exit::TryLater,
                BindError::NotASocket(_) => Exit::Config,
                BindError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => Exit::NoPermission,
                BindError::Io { .. } => Exit::CannotCreate,
            };
            Failure::new(exit, error.to_string())
        }
        StartError::Spool(error) => Failure::new(Failure::from(error).exit, said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_spool_that_cannot_be_had_is_named_by_its_key() {
        let error = spool::OpenError::Locked { path: PathBuf::from("/spool/lock"), holder: "process 7".to_owned() };
        let failure = start_failure(StartError::Spool(error));
        let text = "spool.path: /spool/lock: the spool is in use by process 7; stop that process first";
        assert_eq!((failure.exit, failure.to_string().as_str()), (Exit::TryLater, text));
    }

    #[test]
    fn statuses_of_a_control_socket_that_cannot_be_had() {
        let io = |kind: ErrorKind| BindError::Io { path: PathBuf::from("/run/x"), source: kind.into() };
        for (error, exit) in [
            (BindError::InUse { path: PathBuf::from("/run/x"), pid: Some(7) }, Exit::TryLater),
            (BindError::NotASocket(PathBuf::from("/run/x")), Exit::Config),
            (io(ErrorKind::PermissionDenied), Exit::NoPermission),
            (io(ErrorKind::NotFound), Exit::CannotCreate),
        ] {
            assert_eq!(start_failure(StartError::Control(error)).exit, exit);
        }
    }
}
