//! The servers of the demonstration that are processes of their own: this program started again, as relay or as sink.
//!
//! They end with their parent, by whatever signal the parent ends (`--with-parent`), so no demonstration leaves a
//! server behind. They are in process groups of their own: Ctrl-C reaches the parent alone, which ends them in their
//! order.
//!
//! No thread reads their output, so that this process has one thread only when it becomes a server itself.

use super::DemoArguments;
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// The line that a server prints when it takes connections.
const READY: &str = "mailrace: ready on ";

/// A server in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct DemoServer {
    child: Child,
    /// Held, so that a server that says more does not die of it. It is not read: a full pipe of log lines does not hold
    /// up the server.
    _said: Option<BufReader<ChildStdout>>,
    /// Where it takes connections.
    address: SocketAddr,
}

impl DemoServer {
    /// Starts a server and waits until it takes connections.
    pub(crate) fn start(words: &[String], stderr: Stdio) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("finding this program", &error))?;
        let mut command = Command::new(program);
        // Its configuration is all on the command line.
        command.args(words).arg("--with-parent").env("MAILRACE_CONFIG", "");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        let mut child = command.spawn().map_err(|error| Failure::io("starting a server", &error))?;
        let mut said = child.stdout.take().map(BufReader::new);
        // Lines of a log may come before it.
        let lines = said.as_mut().map(|said| said.lines().map_while(Result::ok));
        let address = lines.into_iter().flatten().find_map(|line| line.strip_prefix(READY)?.parse().ok());
        let Some(address) = address else {
            drop(child.kill());
            drop(child.wait());
            let words = stderr_of(&mut child);
            let said = if words.is_empty() { "; it says why above".to_owned() } else { format!(":\n{words}") };
            return Err(Failure::new(Exit::Unavailable, format!("a server of the demonstration did not start{said}")));
        };
        Ok(Self { child, _said: said, address })
    }

    /// Where it takes connections.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it by SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// It had ended by itself.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        let failed = |error| Failure::io("killing a server of the demonstration", &error);
        if let Some(status) = self.child.try_wait().map_err(failed)? {
            return Err(Failure::new(Exit::Io, format!("a server ended before it was killed: {status}")));
        }
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        Ok(())
    }

    /// Asks it to end in good order and waits until it has.
    fn end(mut self) -> Result<(ExitStatus, String), Failure> {
        let failed = |error| Failure::io("ending a server of the demonstration", &error);
        // One that has ended by itself was not waited for yet, so its number is still its own.
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|error| failed(error.into()))?;
        let status = self.child.wait().map_err(failed)?;
        Ok((status, stderr_of(&mut self.child)))
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the standard error of a server that has ended, if it is a pipe.
fn stderr_of(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // The readable part is shown.
        drop(stderr.read_to_string(&mut text));
    }
    text
}

/// The relay: `mailrace serve`.
#[derive(Debug)]
pub(super) struct Relay {
    server: DemoServer,
    control: PathBuf,
}

impl Relay {
    /// Starts a relay that passes all mail on to `next_hop`, and waits until it takes connections. `name` is its name
    /// there, if not that of the machine.
    ///
    /// # Errors
    /// It ended; its own words are on standard error.
    pub(super) fn start(arguments: &DemoArguments, next_hop: SocketAddr, name: Option<&str>) -> Result<Self, Failure> {
        let mut words = vec!["serve".to_owned()];
        let name = name.map(|name| format!("hostname={name}"));
        for setting in arguments.settings(next_hop).into_iter().chain(name) {
            words.extend(["--set".to_owned(), setting]);
        }
        Ok(Self { server: DemoServer::start(&words, Stdio::inherit())?, control: arguments.control() })
    }

    /// Where it takes connections.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.server.process()
    }

    /// A connection to its control socket.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn control(&self) -> Result<Control, Failure> {
        Control::connect(&self.control)
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// It does not end well.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self.server.end()? {
            (status, _) if status.success() => Ok(()),
            (status, _) => Err(Failure::new(Exit::Io, format!("the relay did not end well: {status}"))),
        }
    }

    /// Kills it with SIGKILL, waits until it is gone and removes its control socket.
    ///
    /// # Errors
    /// It had ended by itself.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        self.server.kill()?;
        // It ran, so the socket is its own; killed, it could not remove it.
        drop(std::fs::remove_file(&self.control));
        Ok(())
    }
}

/// A next hop that keeps nothing: `mailrace sink`.
#[derive(Debug)]
pub(super) struct Sink(DemoServer);

impl Sink {
    /// Starts a sink on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// It ended, with its words.
    pub(super) fn start() -> Result<Self, Failure> {
        let words = ["sink", "--listen", "127.0.0.1:0"].map(str::to_owned);
        DemoServer::start(&words, Stdio::piped()).map(Self)
    }

    /// Where it takes connections.
    pub(super) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.0.process()
    }

    /// Ends it if it runs; returns the number of messages that it reports, if it had the time to.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn end(self) -> Result<Option<u64>, Failure> {
        Ok(taken(&self.0.end()?.1))
    }
}

/// Reads the words of a sink that ends: `mailrace: sink took 12 messages, 49152 octets`.
fn taken(words: &str) -> Option<u64> {
    words.lines().find_map(|line| line.strip_prefix("mailrace: sink took ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_sink_are_read() {
        assert_eq!(taken("a warning\nmailrace: sink took 2030 messages, 9 octets\n"), Some(2030));
        assert_eq!(taken("mailrace: panicked\n"), None);
    }
}
