//! `mailrace completions SHELL` and `mailrace manuals DIR`: what a package ships beside the program, made from the
//! definition of the command line, so that neither differs from it.

use crate::Arguments;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Bash reads the file from /usr/share/bash-completion/completions/mailrace, zsh from _mailrace in a directory of $fpath, fish from
~/.config/fish/completions/mailrace.fish.";

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell that reads them
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManualsArguments {
    /// An existing directory; a page for each command is written into it
    directory: PathBuf,
}

/// Prints the completions of a shell.
///
/// # Errors
/// Standard output takes no text.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "mailrace", &mut text);
    let mut output = Output::new();
    output.print_line(String::from_utf8_lossy(&text).trim_end());
    output.finish()?;
    Ok(Exit::Ok)
}

/// Writes `mailrace.1` and `mailrace-COMMAND.1`.
///
/// # Errors
/// The directory takes no files.
pub(crate) fn manuals(arguments: &ManualsArguments) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    clap_mangen::generate_to(Arguments::command(), directory).map_err(|error| {
        let text = format!("{}: {error}; name a directory that exists and takes files", directory.display());
        Failure::new(Exit::CannotCreate, text)
    })?;
    Ok(Exit::Ok)
}
