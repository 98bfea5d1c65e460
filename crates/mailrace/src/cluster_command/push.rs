//! `mailrace cluster push`: gives configuration and maps to all nodes, when they fit at each of them.

use super::push_folder::read_folder;
use crate::config_commands::{Source, file_problems};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count};
use clap::Args;
use os::error::without_numbers;
use serde_json::{Value, json};
use server::cluster::{
    Bundle, ConfigPusher, NodeId, PushAnswer, PushEnd, PushNode, PushOptions, PushResult, bundle_name,
};
use server::config::{self, Problem, SHARED_FILE, Severity, render};
use std::path::{Path, PathBuf};

/// The end of `--help`.
pub(super) const HELP: &str = "\
DIRECTORY has mailrace.toml, with the keys that all nodes share, and the files that it names by relative paths: maps, lists,
content rules. Keys of one machine (hostname, listen, spool, cluster, control, http, log.path) and keys that need a restart
stay in the own file of each node. An own key counts more, and an own list of tables replaces the shared one. Each node that
takes part has cluster.shared = true in its own file.

The files are checked here as by mailrace check, then at each node beside its own file. When they fit at all nodes that run,
one write makes them count, and each node puts them in force as by a reload. A node that is away takes them at its start.

Exit status:
   0  they count, and all nodes that run have them in force
   1  they count, and some node does not have them in force
  64  wrong arguments
  66  there is no such directory, or nothing to go back to
  69  no engine answers, or nodes do not answer; nothing was changed
  74  reading or writing failed
  75  another push is under way or came first; nothing was changed
  77  no permission
  78  the files have errors, or do not fit at a node; nothing was changed";

#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    #[command(flatten)]
    source: Source,
    /// The directory with the shared configuration
    #[arg(required_unless_present = "revert")]
    directory: Option<PathBuf>,
    /// Push the files of the revision before the present one again
    #[arg(long, conflicts_with = "directory")]
    revert: bool,
    /// Stop when all nodes have answered; nothing changes
    #[arg(long)]
    dry_run: bool,
    /// Let the files count although nodes refuse them or do not answer; these go on with what they have
    #[arg(long)]
    force: bool,
    /// Also files with private keys: everybody can read them who can log in to the engines
    #[arg(long)]
    with_secrets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace cluster push`.
pub(super) fn run(arguments: &PushArguments) -> Result<Exit, Failure> {
    let own =
        config::own_config(arguments.source.path().as_deref(), arguments.source.overrides(), &config::this_machine());
    let own = own.map_err(|error| Failure::io(arguments.source.path().unwrap_or_default().display(), &error))?;
    if !own.cluster.is_used() || !own.cluster.shared {
        let name = arguments.source.path().map_or_else(|| "defaults".to_owned(), |path| path.display().to_string());
        let missing = if own.cluster.is_used() { "cluster.shared = true" } else { "cluster.id" };
        let text = format!("{name}: there is no {missing}; set it at each node that takes the shared configuration");
        return Err(Failure::new(Exit::Config, text));
    }
    // The faults of the files are said before an engine is asked.
    let checked = match &arguments.directory {
        Some(directory) => Some(checked(arguments, directory)?),
        None => None,
    };
    let pusher = ConfigPusher::connect(&own.cluster).map_err(|error| {
        let exit = if matches!(error, server::cluster::EngineAccessError::Login { .. }) {
            Exit::NoPermission
        } else {
            Exit::Unavailable
        };
        Failure::new(exit, without_numbers(&error.to_string()))
    })?;
    let bundle = match checked {
        Some(bundle) => bundle,
        None => previous(&pusher)?,
    };
    let options = PushOptions { force: arguments.force, dry_run: arguments.dry_run };
    let mut output = Output::new();
    if !arguments.json {
        let octets = bundle.files().map(|file| file.content.len()).sum::<usize>();
        let files = count(u64::try_from(bundle.files().count()).unwrap_or(u64::MAX), "file");
        output.print_line(format!("{}: {files}, {octets} octets", bundle_name(&bundle).digest.short()));
    }
    let result = pusher.push(&bundle, options, |node, answer| {
        if let Some(line) = line_of(node, answer).filter(|_| !arguments.json) {
            output.print_line(line);
        }
    });
    let result = result.map_err(|why| Failure::new(Exit::Unavailable, why))?;
    let (exit, text) = verdict(&result, arguments);
    if arguments.json {
        output.print_json(&report(&result, &bundle, exit, &text));
    } else if exit == Exit::Ok || exit == Exit::Lost {
        output.print_line(&text);
    }
    output.finish()?;
    match exit {
        Exit::Ok | Exit::Lost => Ok(exit),
        _ if arguments.json => Ok(exit),
        _ => Err(Failure::new(exit, text)),
    }
}

/// Reads the directory, and checks it as `mailrace check` does, beside the own file.
fn checked(arguments: &PushArguments, directory: &Path) -> Result<Bundle, Failure> {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let bundle = read_folder(&directory, arguments.with_secrets)?;
    let path = arguments.source.path();
    let machine = config::this_machine();
    let loaded = config::open_over(&directory, path.as_deref(), arguments.source.overrides(), &machine);
    let loaded = loaded.map_err(|error| Failure::io(path.unwrap_or_default().display(), &error))?;
    let problems = match &loaded {
        Ok(loaded) => loaded.warnings.iter().cloned().chain(file_problems(loaded)).collect(),
        Err(problems) => problems.clone(),
    };
    let errors: Vec<Problem> = problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect();
    match loaded {
        Ok(_) if errors.is_empty() => Ok(bundle),
        _ => {
            eprint!("{}", render(&errors));
            let found = count(u64::try_from(errors.len()).unwrap_or(u64::MAX), "error");
            let name = directory.join(SHARED_FILE);
            Err(Failure::new(
                Exit::Config,
                format!("{}: {found}; nothing was pushed: correct them first", name.display()),
            ))
        }
    }
}

/// Gets the files of the revision before.
fn previous(pusher: &ConfigPusher) -> Result<Bundle, Failure> {
    let view = pusher.view().map_err(|why| Failure::new(Exit::Unavailable, why))?;
    let Some(previous) = view.active.and_then(|(active, _)| active.previous) else {
        let text = "no revision was there before the present one; push a directory";
        return Err(Failure::new(Exit::NoInput, text));
    };
    // They were checked when they were pushed, and each node checks them again.
    pusher.fetch(previous).map_err(|why| Failure::new(Exit::Unavailable, why))
}

/// The line for an answer of a node; `None` while there is none.
fn line_of(node: NodeId, PushNode { name, answer }: &PushNode) -> Option<String> {
    let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
    let text = match answer {
        PushAnswer::Waiting => return None,
        PushAnswer::Silent => {
            "does not answer: it has no cluster.shared = true, or an older mailrace, or cannot reach an engine"
                .to_owned()
        }
        PushAnswer::Away => "does not run: it takes what counts at its start".to_owned(),
        PushAnswer::Ready => "ready".to_owned(),
        PushAnswer::Refused(why) => format!("refuses: {}", without_numbers(why)),
        PushAnswer::Taken => "in force".to_owned(),
        PushAnswer::NotTaken(why) => format!("not in force: {}", without_numbers(why)),
    };
    Some(format!("node {}{name}: {text}", node.0))
}

fn verdict(result: &PushResult, arguments: &PushArguments) -> (Exit, String) {
    let nothing = "nothing was changed";
    match &result.end {
        PushEnd::AlreadyActive(active) => (Exit::Ok, format!("revision {} has these files already", active.number)),
        PushEnd::WouldActivate => (Exit::Ok, format!("all nodes that run are ready; {nothing}, by --dry-run")),
        PushEnd::Activated(active) => {
            let lacks = |node: &&PushNode| !matches!(node.answer, PushAnswer::Taken | PushAnswer::Away);
            let lacking = result.nodes.values().filter(lacks).count();
            let number = active.number;
            match lacking {
                0 => (Exit::Ok, format!("revision {number} counts, and is in force at all nodes that run")),
                _ => (
                    Exit::Lost,
                    format!("revision {number} counts; {lacking} of the nodes that run go on without it, see above"),
                ),
            }
        }
        PushEnd::NotReady if result.nodes.values().any(|node| matches!(node.answer, PushAnswer::Refused(_))) => {
            let step = if arguments.dry_run {
                "correct the files, or the own file of the node"
            } else {
                "correct the files, or the own file of the node, or say --force"
            };
            (Exit::Config, format!("the files do not fit at a node; {nothing}: {step}"))
        }
        PushEnd::NotReady => {
            let text = format!("not all nodes answer; {nothing}: see mailrace cluster status there, or say --force");
            (Exit::Unavailable, text)
        }
        PushEnd::Busy(claim) => (
            Exit::TryLater,
            format!(
                "node {} is pushing other files ({}); {nothing}: wait until that push is over, or a minute if it broke off",
                claim.by.0,
                claim.bundle.digest.short()
            ),
        ),
        PushEnd::Overtaken(active) => (
            Exit::TryLater,
            format!(
                "node {} came first with revision {}; {nothing}: put both changes together, and push again",
                active.by.0, active.number
            ),
        ),
        PushEnd::ClaimLost => {
            (Exit::TryLater, format!("the engines were too slow for this push; {nothing}: push again"))
        }
        PushEnd::NoAnswer { may_be_active: false } => {
            (Exit::Unavailable, format!("no majority of the engines answers; {nothing}: start them, and push again"))
        }
        PushEnd::NoAnswer { may_be_active: true } => (
            Exit::Unavailable,
            "the engines gave no answer to the last step, so the files may count or not: push again when they answer"
                .to_owned(),
        ),
        PushEnd::NotStored(why) => (Exit::Unavailable, format!("{}; {nothing}", without_numbers(why))),
        PushEnd::Unreadable(key) => (
            Exit::Config,
            format!("a later version of mailrace wrote the key {key}; {nothing}: push from an upgraded node"),
        ),
    }
}

fn report(result: &PushResult, bundle: &Bundle, exit: Exit, text: &str) -> Value {
    let nodes: Vec<Value> = result
        .nodes
        .iter()
        .map(|(number, PushNode { name, answer })| {
            let (state, why) = match answer {
                PushAnswer::Waiting | PushAnswer::Silent => ("silent", None),
                PushAnswer::Away => ("away", None),
                PushAnswer::Ready => ("ready", None),
                PushAnswer::Refused(why) => ("refused", Some(why)),
                PushAnswer::Taken => ("in force", None),
                PushAnswer::NotTaken(why) => ("not in force", Some(why)),
            };
            json!({ "node": number.0, "name": name, "state": state, "problem": why })
        })
        .collect();
    let revision = match &result.end {
        PushEnd::Activated(active) | PushEnd::AlreadyActive(active) => Some(active.number),
        _ => None,
    };
    let files = bundle_name(bundle).digest.to_string();
    json!({ "files": files, "revision": revision, "ok": exit == Exit::Ok, "text": text, "nodes": nodes })
}
