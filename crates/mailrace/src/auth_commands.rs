//! `mailrace auth`: hashes for the password file, and trying a password.
//!
//! A password comes from the terminal, unseen, or as the first line of standard input; never as an argument, which
//! every user of the machine could read.

use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use server::auth::{Authenticator, Problem, Scheme, hash_password, test_password};
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// The exit statuses in `--help`.
pub(crate) const HELP: &str = "\
Exit status:
   0  done; the password is right
  64  wrong arguments
  65  the password cannot be used, or broken lines were found
  74  the file could not be read, or the password not be checked
  77  the password is wrong or the user unknown";

/// Longer than any password that is accepted.
const INPUT_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Hash a password for the password file
    Hash(HashArguments),
    /// Try a user's password
    Test(TestArguments),
}

#[derive(Debug, Args)]
pub(crate) struct HashArguments {
    /// How to hash; with scram-sha-256 all mechanisms work, argon2id is harder to crack
    #[arg(long, value_enum, default_value_t)]
    scheme: HashScheme,
    /// Print the whole line for this user
    #[arg(long)]
    user: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum HashScheme {
    #[default]
    Argon2id,
    #[value(name = "scram-sha-256")]
    ScramSha256,
}

#[derive(Debug, Args)]
pub(crate) struct TestArguments {
    user: String,
    /// Password file, as in auth.file
    #[arg(long, required_unless_present = "program")]
    file: Option<PathBuf>,
    /// Program with its arguments, as in auth.program
    #[arg(long, num_args = 1.., allow_hyphen_values = true)]
    program: Vec<String>,
}

/// Runs a command.
pub(crate) fn run(command: AuthCommand) -> Result<Exit, Failure> {
    match command {
        AuthCommand::Hash(arguments) => hash(&arguments),
        AuthCommand::Test(arguments) => test(arguments),
    }
}

fn hash(arguments: &HashArguments) -> Result<Exit, Failure> {
    if let Some(user) = arguments.user.as_deref().filter(|user| user.is_empty() || user.contains(':')) {
        return Err(Failure::new(Exit::Usage, format!("--user {user:?}: a user has a name, without a colon")));
    }
    let password = password("Password: ")?;
    if io::stdin().is_terminal() && self::password("Once more: ")? != password {
        return Err(Failure::new(Exit::Damaged, "the two passwords differ; try again"));
    }
    let scheme = match arguments.scheme {
        HashScheme::Argon2id => Scheme::Argon2id,
        HashScheme::ScramSha256 => Scheme::ScramSha256,
    };
    let hash = hash_password(&password, scheme).map_err(|error| Failure::new(Exit::Damaged, error.to_string()))?;
    let mut output = Output::new();
    match &arguments.user {
        Some(user) => output.print_line(format_args!("{user}:{hash}")),
        None => output.print_line(hash),
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn test(arguments: TestArguments) -> Result<Exit, Failure> {
    let settings = server::config::Auth {
        mechanisms: Vec::new(),
        file: arguments.file,
        program: arguments.program,
        program_time_max: Duration::from_secs(60),
        without_tls: true,
        failures_per_client: 0,
        failures_per_user: 0,
        failures_window: Duration::from_secs(60),
        recipients_hour_max: 0,
    };
    let authenticator = Authenticator::open(&settings).map_err(|problems| Failure::new(Exit::Io, lines(&problems)))?;
    let problems = authenticator.take_problems();
    if !problems.is_empty() {
        eprintln!("{}", lines(&problems));
    }
    let password = password("Password: ")?;
    let user = &arguments.user;
    match test_password(&authenticator, user, &password) {
        Ok(()) => {
            let mut output = Output::new();
            output.print_line(format_args!("{user}: the password is right"));
            output.finish()?;
            Ok(if problems.is_empty() { Exit::Ok } else { Exit::Damaged })
        }
        Err(None) => {
            Err(Failure::new(Exit::NoPermission, format!("{user}: the password is wrong or the user is unknown")))
        }
        Err(Some(reason)) => Err(Failure::new(Exit::Io, format!("{user}: {reason}"))),
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads a line, on a terminal without showing it.
fn password(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let input = io::stdin();
    let hidden = Hidden::new();
    if hidden.is_some() {
        eprint!("{prompt}");
    }
    // With room for all of it, so that no copy is left behind.
    let mut line = Zeroizing::new(Vec::with_capacity(usize::try_from(INPUT_BYTES_MAX).unwrap_or(usize::MAX)));
    let read = input.lock().take(INPUT_BYTES_MAX).read_until(b'\n', &mut line);
    if hidden.is_some() {
        eprintln!();
    }
    drop(hidden);
    read.map_err(|error| Failure::io("standard input", &error))?;
    let password = str::from_utf8(&line)
        .map_err(|_| Failure::new(Exit::Damaged, "the password is not UTF-8; set the terminal to UTF-8"))?;
    Ok(Zeroizing::new(password.trim_end_matches(['\r', '\n']).to_owned()))
}

/// A terminal that does not echo its input, until dropped.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn new() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.0).ok();
    }
}
