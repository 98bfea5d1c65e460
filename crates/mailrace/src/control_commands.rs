//! `mailrace reload`, `status` and `smtp`: requests to the running server over its control socket.
//!
//! Each command is one request and one answer; `smtp` then connects standard input and output with a session of the
//! server, as sendmail's `-bs` does. `operator::control` and `docs/operation.md` describe requests and answers.

mod status;

use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::{Args, Subcommand};
use operator::answers::ReloadAnswer;
use operator::control::Request;
use std::io::{self, BufRead, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! ending {
    () => {
        "\
Exit status:
   0  done
  64  the server does not know the request; it is of another version
  69  the server does not run
  74  reading or writing failed
  75  the server is busy or went away; try again
  77  no permission"
    };
}

const HELP: &str = concat!(ending!(), "\n  78  the configuration has problems; the old one stays in force");
const STATUS_HELP: &str = ending!();

#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Make the running server read its configuration and certificates again, whole or not at all
    #[command(after_help = HELP)]
    Reload(ControlTarget),
    /// Show the state of the running server: connections, deliveries, queue, spool
    #[command(after_help = STATUS_HELP)]
    Status(StatusArguments),
    /// Hold an SMTP session with the running server over standard input and output
    #[command(after_help = HELP)]
    Smtp(ControlTarget),
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    target: ControlTarget,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs a command.
pub(crate) fn run(command: ControlCommand) -> Result<Exit, Failure> {
    match command {
        ControlCommand::Reload(target) => reload(&target),
        ControlCommand::Status(arguments) => status(&arguments),
        ControlCommand::Smtp(target) => smtp(&target),
    }
}

fn reload(target: &ControlTarget) -> Result<Exit, Failure> {
    let ReloadAnswer { changed, needs_restart, retried } =
        Control::connect(&target.path())?.ask_for(&Request::Reload)?;
    let mut output = Output::new();
    output.print_line(if changed.is_empty() { "reloaded, no setting changed" } else { "reloaded" });
    for line in changed {
        output.print_line(format_args!("  {line}"));
    }
    for line in needs_restart {
        output.print_line(format_args!("  waits for a restart: {line}"));
    }
    if retried.is_empty() {
        output.print_line("  waiting mail keeps its times: nothing that says where it goes changed");
    } else {
        output.print_line(format_args!("  waiting mail is tried again: {} changed", retried.join(", ")));
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn status(arguments: &StatusArguments) -> Result<Exit, Failure> {
    let mut control = Control::connect(&arguments.target.path())?;
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&control.request(&Request::Status)?);
    } else {
        status::print_status(&mut output, &control.ask_for(&Request::Status)?);
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn smtp(target: &ControlTarget) -> Result<Exit, Failure> {
    let mut control = Control::connect(&target.path())?;
    control.request(&Request::Smtp)?;
    let (stream, path) = control.into_parts();
    let failed = |error: io::Error| Failure::io(path.display(), &error);
    stream.get_ref().set_read_timeout(None).map_err(failed)?;
    let mut to_server = stream.get_ref().try_clone().map_err(failed)?;
    let input_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&input_ended);
    // The thread is not joined: only the end of the process ends its read.
    std::thread::spawn(move || {
        // A server that has gone is seen by the other direction.
        drop(io::copy(&mut io::stdin().lock(), &mut to_server));
        ended.store(true, Ordering::Release);
        drop(to_server.shutdown(Shutdown::Write));
    });
    let last_reply = copy_replies(stream, &mut io::stdout().lock())?;
    if last_reply == *b"221" || input_ended.load(Ordering::Acquire) {
        return Ok(Exit::Ok);
    }
    let message = format!("{}: the server ended the session before QUIT; try again", path.display());
    Err(Failure::new(Exit::TryLater, message))
}

/// Copies until the server ends the session, and returns the code of its last reply.
fn copy_replies(mut from: impl BufRead, to: &mut impl Write) -> Result<[u8; 3], Failure> {
    let mut last = [0; 3];
    let mut column = 0;
    loop {
        let arrived = match from.fill_buf() {
            Ok(arrived) => arrived,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A server that was killed: its output so far is passed on, and its last reply was not 221.
            Err(_) => return Ok([0; 3]),
        };
        if arrived.is_empty() {
            return Ok(last);
        }
        for byte in arrived {
            if let Some(place) = last.get_mut(column) {
                *place = *byte;
            }
            column = if *byte == b'\n' { 0 } else { column + 1 };
        }
        to.write_all(arrived).and_then(|()| to.flush()).map_err(|error| Failure::io("standard output", &error))?;
        let used = arrived.len();
        from.consume(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn replies_are_copied_as_they_are_and_the_last_code_is_known() {
        for (replies, code) in [
            (&b"220 a\r\n250-x\r\n250 y\r\n221 2.0.0 bye\r\n"[..], *b"221"),
            (b"220 221\r\n421 4.3.2 221 going down\r\n", *b"421"),
            (b"", [0; 3]),
        ] {
            for capacity in [1, 3, 100] {
                let mut copied = Vec::new();
                let last = copy_replies(BufReader::with_capacity(capacity, replies), &mut copied).unwrap();
                assert_eq!((copied.as_slice(), last), (replies, code));
            }
        }
    }
}
