//! `mailrace check` and `mailrace config`: the keys, their values, and the faults.
//!
//! The texts are those of `server::config::commands`; here arguments are read and statuses chosen.

mod source;

pub(crate) use source::Source;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::{Args, Subcommand};
use server::config::commands::{self, Form};
use server::config::{Loaded, Problem, RealFiles, Severity, check_files, render};
use server::explain::Explainer;
use server::screen::{filter_faults, rule_file_faults};
use server::sender_check::name_server_fault;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every value, its default and where it was set
    Show(ShowConfigArguments),
    /// Say everything about a key, or list the keys of a table
    Explain(ExplainArguments),
    /// Print an annotated file with all defaults
    Defaults,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    source: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowConfigArguments {
    #[command(flatten)]
    source: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keys or tables, such as spool.path or relay; all without
    keys: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// A key or a table, such as spool.path or relay
    key: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace config`.
pub(crate) fn run(command: &ConfigCommand) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Show(arguments) => show(arguments),
        ConfigCommand::Explain(arguments) => {
            let text = commands::explain(&arguments.key, form(arguments.json));
            print(&text.map_err(|message| Failure::new(Exit::Usage, message))?)
        }
        ConfigCommand::Defaults => print(&commands::defaults()),
    }
}

/// Runs `mailrace check`.
pub(crate) fn check(arguments: &CheckArguments) -> Result<Exit, Failure> {
    let path = arguments.source.path();
    let loaded = arguments.source.open()?;
    let files = loaded.as_ref().map(file_problems).unwrap_or_default();
    let checked = commands::check(path.as_deref(), &loaded, &files, form(arguments.json));
    print(&checked.text)?;
    Ok(if checked.is_ok { Exit::Ok } else { Exit::Config })
}

/// Returns the faults of all files that a configuration names.
pub(crate) fn file_problems(loaded: &Loaded) -> Vec<Problem> {
    let mut files = check_files(loaded, &RealFiles);
    files.extend(maps(loaded));
    files.extend(content_rules(loaded));
    let filters = filter_faults(&loaded.config).into_iter();
    files.extend(filters.map(|text| loaded.problem(Severity::Warning, text)));
    let names = name_server_fault(&loaded.config).into_iter();
    files.extend(names.map(|text| loaded.problem(Severity::Warning, text)));
    files
}

/// Returns the faults of maps and rules, and the doubtful entries.
fn maps(loaded: &Loaded) -> Vec<Problem> {
    let problem = |severity, file: &str, line: Option<u32>, text: String, hint: Option<String>| {
        let line = line.and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
        Problem::of_file(severity, file.to_owned(), line, text, hint)
    };
    let explainer = match Explainer::open(loaded) {
        Ok(explainer) => explainer,
        Err(faults) => {
            return faults.into_iter().map(|text| loaded.problem(Severity::Error, text)).collect();
        }
    };
    let notes = explainer.notes().iter().map(|text| problem(Severity::Error, "", None, text.clone(), None));
    let mut problems: Vec<Problem> = notes.collect();
    problems.extend(explainer.lint().into_iter().map(|lint| {
        if lint.place.line.is_none() && lint.text.starts_with(&*lint.place.file) {
            // It is about a table of the configuration.
            return Problem { suggestion: Some(lint.hint), ..loaded.problem(Severity::Warning, lint.text) };
        }
        let text = format!("{}: {}", lint.place.map, lint.text);
        // A fault in one entry of a map does not keep the server from starting.
        problem(Severity::Warning, &lint.place.file, lint.place.line, text, Some(lint.hint))
    }));
    problems
}

/// Returns the faults of the files of content rules.
fn content_rules(loaded: &Loaded) -> Vec<Problem> {
    let problem = |fault: filter::Problem| match fault.line {
        0 => loaded.problem(Severity::Error, format!("screen.rules: {}", fault.text)),
        line => Problem::of_file(Severity::Error, fault.file.to_string(), line, fault.text, None),
    };
    rule_file_faults(&loaded.config).into_iter().map(problem).collect()
}

fn show(arguments: &ShowConfigArguments) -> Result<Exit, Failure> {
    let loaded = match arguments.source.open()? {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprint!("{}", render(&problems));
            let message = "the configuration has errors; correct them, \"mailrace check\" looks again";
            return Err(Failure::new(Exit::Config, message));
        }
    };
    let text = commands::show(&loaded, &arguments.keys, form(arguments.json));
    print(&text.map_err(|message| Failure::new(Exit::Usage, message))?)
}

const fn form(json: bool) -> Form {
    if json { Form::Json } else { Form::Text }
}

/// Prints a text that ends with its line end.
fn print(text: &str) -> Result<Exit, Failure> {
    let mut output = Output::new();
    output.print_line(text.strip_suffix('\n').unwrap_or(text));
    output.finish()?;
    Ok(Exit::Ok)
}
