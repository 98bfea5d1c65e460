//! The server that dies: this program started again as `mailrace serve`.
//!
//! It ends with its parent, by whatever signal that ends (`--with-parent`), so no demonstration leaves a server behind.

use super::Arguments;
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use serde_json::Value;
use server::control::Request;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What it prints when it takes connections.
const READY: &str = "mailrace: ready on ";

/// A server in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Victim {
    child: Child,
    control: PathBuf,
    /// Where it takes connections.
    pub(super) address: SocketAddr,
    /// The number of its process.
    pub(super) process: u32,
}

impl Victim {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Errors
    /// It ended; its own words are on standard error.
    pub(super) fn start(arguments: &Arguments) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("finding this program", &error))?;
        let mut command = Command::new(program);
        command.args(["serve", "--with-parent"]);
        for setting in arguments.settings() {
            command.arg("--set").arg(setting);
        }
        // Its configuration is all on the command line.
        command.env("MAILRACE_CONFIG", "").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::io("starting the server", &error))?;
        let stdout = child.stdout.take();
        let process = child.id();
        let mut victim = Self { child, control: arguments.control(), address: arguments.listen, process };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            let mut stdout = BufReader::new(stdout);
            stdout.read_line(&mut line).map_err(|error| Failure::io("reading what the server says", &error))?;
            // One address, one line; what else it might say must not make it wait.
            std::thread::spawn(move || drop(stdout.read_to_end(&mut Vec::new())));
        }
        match line.strip_prefix(READY).and_then(|address| address.trim_end().parse().ok()) {
            Some(address) => victim.address = address,
            None => return Err(Failure::new(Exit::Unavailable, "the server did not start; it says why above")),
        }
        Ok(victim)
    }

    /// How it is.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn status(&self) -> Result<Value, Failure> {
        Control::connect(&self.control)?.ask(&Request::Status)
    }

    /// Kills it with SIGKILL, waits until it is gone and removes its control socket.
    ///
    /// # Errors
    /// It had ended by itself.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        let failed = |error| Failure::io("killing the server", &error);
        if let Some(status) = self.child.try_wait().map_err(failed)? {
            return Err(Failure::new(Exit::Io, format!("the server ended before it was killed: {status}")));
        }
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        // It ran, so the socket is its own; killed, it could not remove it.
        drop(std::fs::remove_file(&self.control));
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
