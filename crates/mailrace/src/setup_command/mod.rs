//! `mailrace setup`: from a few answers to a configuration file that passes `mailrace check`, with a look at the DNS
//! and the ports.
//!
//! In order: the present file is read, questions are asked where no flag answers them, the new text is made and
//! checked in memory, names and ports are looked at, the difference is shown, and the file is replaced after a yes.
//! Keys that no question is about, and comments, stay as they are. Nothing is written before the yes.

mod answers;
mod edit;
mod new_file;
mod questions;
mod replace_file;

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use answers::SetupAnswers;
use clap::Args;
use serde_json::json;
use server::config::commands::{self, Form};
use server::config::{self, DEFAULT_PATH, Loaded, RealFiles, check_files, render};
use server::setup_checks::{self, FindingState, SetupFinding};
use similar::TextDiff;
use std::io;
use std::path::{Path, PathBuf};

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Asks what flags do not say, shows the new file or the difference to the present one with what the DNS lacks, and writes
after a yes. A list is words with blanks between them; a single - empties it.

Examples:
  mailrace setup
  mailrace setup --yes --hostname mx.example.com --domain example.com --relay-from 192.0.2.0/24
  mailrace setup --yes --smart-host smtp.example.net:587
  mailrace setup --dry-run --yes                  # only looks: the configuration, the DNS, the ports

Exit status:
   0  done; also when you said no, and when the DNS lacks records
  64  wrong arguments, or no answer to a question
  74  reading or writing failed
  75  another setup is at work, or the file changed meanwhile
  77  no permission
  78  the file would have an error; nothing was written";

/// Lines around a difference.
const CONTEXT_LINES: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct SetupArguments {
    #[command(flatten)]
    source: Source,
    /// Full name of this host, as the DNS has it
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Domain whose mail is delivered on this host; may be given several times
    #[arg(long = "domain", value_name = "DOMAIN")]
    domains: Option<Vec<String>>,
    /// Network that may send anywhere through this host; may be given several times
    #[arg(long, value_name = "NETWORK")]
    relay_from: Option<Vec<String>>,
    /// Host that all mail to other places is handed to, as in smtp.example.net:587; may be given several times
    #[arg(long, value_name = "HOST")]
    smart_host: Option<Vec<String>>,
    /// Certificate with its chain, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Address and port where mail is taken; may be given several times [default: :25 with domains or networks, else
    /// port 25 for this machine alone]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Vec<String>>,
    /// Ask nothing, and write
    #[arg(long, short)]
    yes: bool,
    /// Show everything, and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Domain whose mail host is connected to, to see whether mail can leave; "" for none
    #[arg(long, value_name = "DOMAIN", default_value = "gmail.com")]
    probe: String,
    /// Do not look at the DNS and the ports
    #[arg(long)]
    no_checks: bool,
    /// Print JSON; with --yes or --dry-run
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace setup`.
pub(crate) fn run(arguments: &SetupArguments) -> Result<Exit, Failure> {
    if arguments.json && !arguments.yes && !arguments.dry_run {
        return Err(Failure::new(Exit::Usage, "--json needs --yes or --dry-run: questions are for people"));
    }
    let path = arguments.source.path().unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    let old = read(&path)?;
    let present = loaded(&path, old.as_deref().unwrap_or_default(), arguments.source.overrides())?;
    let answers = questions::ask(arguments, SetupAnswers::of_config(&present.config, old.as_deref()))?;
    let new = match &old {
        None => new_file::text(&answers),
        Some(old) => edit::edited(old, &present.config, &answers).map_err(|why| Failure::new(Exit::Config, why))?,
    };
    let loaded = loaded(&path, &new, arguments.source.overrides())?;
    let files = check_files(&loaded, &RealFiles);
    let checked = commands::check(Some(&path), &Ok(loaded.clone()), &files, Form::Text);
    if !checked.is_ok {
        eprint!("{}", checked.text);
        return Err(Failure::new(Exit::Config, format!("{}: not written; give other answers", path.display())));
    }
    let findings = look_around(arguments, &loaded)?;
    let is_changed = old.as_deref() != Some(&*new);
    let mut output = Output::new();
    if !arguments.json {
        show_file(&mut output, &path, old.as_deref(), &new);
        output.print_line(checked.text.trim_end());
        show_findings(&mut output, &findings);
        output.flush();
    }
    let is_written = is_changed && !arguments.dry_run && (arguments.yes || questions::confirm(&path)?);
    if is_written {
        replace_file::replace(&path, old.as_deref(), &new)?;
    }
    if arguments.json {
        output.print_json(&report(&path, is_changed, is_written, &new, &findings));
    } else {
        let restart = config::differences(&present.config, &loaded.config).iter().any(|one| one.needs_restart);
        output.print_line(next_step(&path, is_changed, is_written, restart));
        if is_written && !answers.domains.is_empty() && present.config.local.domains.is_empty() {
            output.print_line("mail for users of this machine needs a drop-in of the systemd unit: see docs/local.md");
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Returns the text of the present file; `None`: there is none.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(path.display(), &error)),
    }
}

/// Reads a text as the configuration of this machine.
///
/// # Errors
/// Its problems are printed.
fn loaded(path: &Path, text: &str, overrides: &[String]) -> Result<Loaded, Failure> {
    config::load_bytes(text.as_bytes().to_vec(), Some(path), overrides, &config::this_machine()).map_err(|problems| {
        eprint!("{}", render(&problems));
        Failure::new(Exit::Config, format!("{}: nothing was written; correct the file or the answers", path.display()))
    })
}

fn look_around(arguments: &SetupArguments, loaded: &Loaded) -> Result<Vec<SetupFinding>, Failure> {
    if arguments.no_checks {
        return Ok(Vec::new());
    }
    let domains: Vec<String> = loaded.config.local.domains.iter().map(|domain| domain.ascii().to_owned()).collect();
    let probe = Some(arguments.probe.as_str()).filter(|domain| !domain.is_empty());
    setup_checks::check(&loaded.config, &domains, probe).map_err(|why| Failure::new(Exit::Config, why))
}

/// Shows a new file whole, and of a present one the difference.
fn show_file(output: &mut Output, path: &Path, old: Option<&str>, new: &str) {
    let name = path.display();
    match old {
        None => output.print_line(format!("{name}, a new file:\n\n{new}")),
        Some(old) if old == new => output.print_line(format!("{name}: nothing to change")),
        Some(old) => {
            let difference = TextDiff::from_lines(old, new);
            let mut unified = difference.unified_diff();
            unified.context_radius(CONTEXT_LINES).header(&format!("{name} (now)"), &format!("{name} (new)"));
            output.print_line(unified);
        }
    }
}

fn show_findings(output: &mut Output, findings: &[SetupFinding]) {
    if findings.is_empty() {
        return;
    }
    output.print_line("");
    for SetupFinding { check, object, state, text, .. } in findings {
        output.print_line(format!("{:<8} {check:<8} {object} {text}", state.word()));
    }
    let records: Vec<&str> = findings.iter().filter_map(|finding| finding.publish.as_deref()).collect();
    if !records.is_empty() {
        output.print_line("\nto publish in the DNS:");
        records.iter().for_each(|record| output.print_line(format!("  {record}")));
    }
    output.print_line("");
}

fn next_step(path: &Path, is_changed: bool, is_written: bool, needs_restart: bool) -> String {
    let name = path.display();
    match (is_changed, is_written) {
        (false, _) => format!("{name} stays as it is"),
        (true, false) => format!("{name}: nothing was written"),
        (true, true) => {
            let verb = if needs_restart { "restart" } else { "reload" };
            format!(
                "{name} is written; now: systemctl {verb} mailrace, or mailrace serve; the page is at http://{}/",
                new_file::HTTP_ADDRESS
            )
        }
    }
}

fn report(path: &Path, is_changed: bool, is_written: bool, new: &str, findings: &[SetupFinding]) -> serde_json::Value {
    let is_fine = findings.iter().all(|finding| finding.state == FindingState::Ok);
    let findings: Vec<_> = findings
        .iter()
        .map(|SetupFinding { check, object, state, text, publish }| {
            json!({ "check": check, "object": object, "state": state.word(), "text": text, "publish": publish })
        })
        .collect();
    json!({
        "file": path.display().to_string(), "changed": is_changed, "written": is_written, "toml": new,
        "ready": is_fine, "findings": findings,
    })
}
