//! `-bd` and `-bD`: the server itself, in the background or in the foreground.

use super::arguments::SendmailArguments;
use super::exit;
use super::site::Site;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The line that the server prints when it takes connections.
const READY: &str = "mailrace: ready on ";

fn command(site: &Site) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let mut command = Command::new(program);
    command.arg0("mailrace").arg("serve");
    if let Some(file) = &site.file {
        command.arg("--config").arg(file);
    }
    Ok(command)
}

/// Becomes the server, or starts it and returns when it takes connections; the exit status.
pub(super) fn run(arguments: &SendmailArguments, site: &Site, is_foreground: bool) -> u8 {
    if arguments.has_interval && arguments.is_verbose {
        eprintln!("sendmail: the queue is not run at intervals: each message has its time, see delivery.retry_first");
    }
    let started = command(site).and_then(|command| if is_foreground { become_it(command) } else { start(command) });
    started.unwrap_or_else(|text| {
        eprintln!("sendmail: {text}");
        exit::UNAVAILABLE
    })
}

fn become_it(mut command: Command) -> Result<u8, String> {
    Err(format!("starting the server: {}", command.exec()))
}

fn start(mut command: Command) -> Result<u8, String> {
    // In a group of its own, so that the terminal's signals do not reach it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("starting the server: {error}"))?;
    let lines = child.stdout.take().map(|said| BufReader::new(said).lines().map_while(Result::ok));
    if lines.into_iter().flatten().any(|line| line.starts_with(READY)) {
        return Ok(exit::OK);
    }
    let mut why = String::new();
    if let Some(said) = child.stderr.take() {
        drop(said.take(1 << 16).read_to_string(&mut why));
    }
    let status = child.wait().map_err(|error| format!("waiting for the server: {error}"))?;
    eprint!("{why}");
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(exit::UNAVAILABLE))
}
