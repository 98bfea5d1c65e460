//! `mailrace import`: reads sendmail's configuration and writes ours; `mailrace import queue` takes over what waits in
//! its queue.
//!
//! `route::import` knows the meaning of statements; here files are found, read and written.

mod queue;

use crate::exit::{Exit, Failure};
use crate::output::{Output, count};
use crate::terminal_text::plain;
use clap::{Args, Subcommand};
use route::import::{Files, Imported, Language, Note, Weight, import};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Examples:
  mailrace import /etc/mail -o mailrace.toml      # sendmail.mc if it is there, else sendmail.cf
  mailrace import sendmail.mc > mailrace.toml 2> notes
  mailrace check --config mailrace.toml
  mailrace import queue /var/spool/mqueue         # and then the mail; see mailrace import queue --help

What could not be carried over is said on standard error, a line each:
  missing   somebody must see to it
  differs   carried over, with a difference
  needless  nothing to do (with --all)

Exit status:
   0  done, also with notes
  64  wrong arguments
  65  the file is too large, or no text
  66  there is no such file, or no configuration in the directory
  73  the file of -o exists already, or cannot be made
  74  reading or writing failed
  77  no permission";

/// Octets of a configuration; sendmail's have some ten thousand.
const OCTETS_MAX: u64 = 16 << 20;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ImportArguments {
    #[command(subcommand)]
    what: Option<What>,
    /// sendmail.mc, sendmail.cf, or the directory in which they are
    #[arg(required = true)]
    path: Option<PathBuf>,
    /// Write to a new file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print configuration and notes as JSON; with -o the notes alone
    #[arg(long)]
    json: bool,
    /// Tell also of statements for which nothing is to be done
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Take over the messages that wait in a queue of sendmail
    #[command(after_help = queue::HELP)]
    Queue(queue::ImportQueueArguments),
}

/// Runs `mailrace import`.
pub(crate) fn run(arguments: &ImportArguments) -> Result<Exit, Failure> {
    if let Some(What::Queue(arguments)) = &arguments.what {
        return queue::run(arguments);
    }
    let path = chosen(arguments.path.as_deref().unwrap_or_else(|| Path::new("")))?;
    let text = read(&path)?;
    let name = path.display().to_string();
    let is_there = |path: &str| Path::new(path).is_file();
    let files = Files { is_there: &is_there, read: &|path| is_there(path).then(|| read(Path::new(path)).ok())? };
    let imported = import(&name, &text, Language::of(&name, &text), files);
    if let Some(output) = &arguments.output {
        write_new(output, &imported.toml)?;
    }
    let notes: Vec<&Note> =
        imported.notes.iter().filter(|note| arguments.all || note.weight != Weight::Needless).collect();
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&report(&name, &imported, &notes, arguments.output.is_none()));
    } else {
        if arguments.output.is_none() {
            output.print_line(imported.toml.trim_end());
        }
        tell(&imported, &notes);
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// The file itself, or that in the directory.
fn chosen(path: &Path) -> Result<PathBuf, Failure> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    ["sendmail.mc", "sendmail.cf"].map(|name| path.join(name)).into_iter().find(|path| path.is_file()).ok_or_else(
        || {
            let message =
                format!("{}: neither sendmail.mc nor sendmail.cf is there; name the file itself", path.display());
            Failure::new(Exit::NoInput, message)
        },
    )
}

fn read(path: &Path) -> Result<String, Failure> {
    let of = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Exit::NoInput, format!("{}: {error}; name a file that is there", path.display()))
        }
        _ => Failure::io(path.display(), &error),
    };
    let mut octets = Vec::new();
    File::open(path).and_then(|file| file.take(OCTETS_MAX + 1).read_to_end(&mut octets)).map_err(of)?;
    if octets.len() as u64 > OCTETS_MAX || octets.contains(&0) {
        let message = format!("{}: no configuration of sendmail; name sendmail.mc or sendmail.cf", path.display());
        return Err(Failure::new(Exit::Damaged, message));
    }
    // Comments of old files are Latin 1.
    Ok(String::from_utf8_lossy(&octets).into_owned())
}

/// Writes a file that is not there yet; one that could not be written whole is removed.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let cannot =
        |error: &io::Error, hint: &str| Failure::new(Exit::CannotCreate, format!("{}: {error}{hint}", path.display()));
    let mut file = File::create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => cannot(&error, "; nothing was written over it, name another file"),
        _ => cannot(&error, ""),
    })?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // The first error is the one to tell.
        drop(fs::remove_file(path));
        Failure::io(path.display(), &error)
    })
}

fn tell(imported: &Imported, notes: &[&Note]) {
    for note in notes {
        eprintln!("{}", plain(&note.to_string()));
    }
    let number = |weight| imported.notes.iter().filter(|note| note.weight == weight).count() as u64;
    eprintln!(
        "mailrace: {} not carried over, {} with a difference, {} with nothing to do; now: mailrace check --config FILE",
        count(number(Weight::Missing), "statement"),
        number(Weight::Differs),
        number(Weight::Needless),
    );
}

fn report(name: &str, imported: &Imported, notes: &[&Note], has_toml: bool) -> serde_json::Value {
    let notes: Vec<_> = notes
        .iter()
        .map(|note| {
            json!({
                "weight": note.weight.name(), "file": note.file, "line": note.line, "statement": note.statement,
                "reason": note.reason, "hint": note.hint,
            })
        })
        .collect();
    json!({ "file": name, "toml": has_toml.then_some(&imported.toml), "notes": notes })
}
