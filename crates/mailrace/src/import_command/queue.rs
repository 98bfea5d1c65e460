//! `mailrace import queue`: takes over the messages that wait in a queue of sendmail.
//!
//! Each message is written into the pickup directory, made durable, moved aside in the queue, and then given to the
//! server, which takes it at once or when it starts; `server::submit::import` has the steps, and the states that a
//! crash between them leaves.
//!
//! | File | Holds |
//! |---|---|
//! | `place` | the directories of a queue and the files in them |
//! | `job` | one message: locked, read, understood, written |
//! | `special` | recipients that are programs, files and lists |
//! | `batch` | messages that change hands together |
//! | `resume` | what an earlier run has left |
//! | `report` | what is said about it |

mod batch;
mod directories;
mod job;
mod report;
mod resume;
mod special;

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::{Progress, count, thousands};
use batch::Batch;
use clap::Args;
use directories::QueueDirectories;
use job::Reader;
use mail::DomainName;
use os::{clock, machine};
use report::ImportReport;
use server::config::render;
use special::Special;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where files go that were taken over.
const ASIDE: &str = "mailrace-imported";

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Stop sendmail first. mailrace may run or not: it takes the messages when it runs.

A message keeps its age, its sender, what the sender asked for, and its header; who has got it already does not get it
again; what is in quarantine is held. Its files are moved to the directory mailrace-imported beside them once mailrace has
the message on disk. The command may be stopped and called again at any time.

Examples:
  mailrace import queue --dry-run /var/spool/mqueue
  mailrace import queue /var/spool/mqueue
  mailrace import queue /var/spool/mqueue-client

Exit status:
   0  every message was taken over
  64  wrong arguments
  65  some message was not, as each line says; it is where it was
  66  there is no such directory
  73  there is no pickup directory
  74  reading or writing failed
  75  sendmail works on the queue, or on some message
  77  no permission
  78  the configuration has an error";

/// Messages that change hands together: they share the flushes of directories.
const BATCH_MAX: usize = 256;
/// How often progress is shown.
const PROGRESS_EVERY: u64 = 500;

#[derive(Debug, Args)]
pub(crate) struct ImportQueueArguments {
    #[command(flatten)]
    source: Source,
    /// The queue directory of sendmail, such as /var/spool/mqueue; those below it are found
    directory: PathBuf,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the files of a message once it was taken over, in place of moving them to mailrace-imported
    #[arg(long)]
    remove: bool,
    /// Print all of it as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace import queue`.
pub(crate) fn run(arguments: &ImportQueueArguments) -> Result<Exit, Failure> {
    let loaded = arguments.source.open()?.map_err(|problems| {
        let text = render(&problems);
        Failure::new(Exit::Config, format!("{text}the configuration has errors; \"mailrace check\" shows them"))
    })?;
    let host = DomainName::new(&loaded.config.hostname);
    let host = host.map_err(|error| Failure::new(Exit::Config, format!("hostname: {error}; set it")))?;
    let place = QueueDirectories::open(&arguments.directory)?;
    let _alone = place.lock_exclusively()?;
    refuse_while_sendmail_runs(&place)?;
    let pickup = match arguments.dry_run {
        true => None,
        false => Some(pickup(loaded.config.submit.directory.as_deref())?),
    };
    let mut report = ImportReport::new(arguments.dry_run, arguments.remove);
    if let Some(pickup) = pickup {
        resume::finish_earlier_run(&place, pickup, arguments.remove, &mut report)?;
    }
    let found = place.control_files(&mut report)?;
    let (began, total) = (clock::now(), found.len() as u64);
    let progress = Progress::new();
    let mut special = Special::new(&loaded);
    let mut batch = pickup.map(|pickup| Batch::new(pickup, arguments.remove));
    let reader = Reader { place: &place, host: &host, pickup, size_max: loaded.config.message.size_max };
    if let Some(pickup) = pickup {
        report.known = resume::handed_in(pickup)?;
    }
    for (number, file) in (1_u64..).zip(&found) {
        match reader.read_message(file, &mut special, &report.known)? {
            Ok(job) => match &mut batch {
                Some(batch) => {
                    batch.push(job);
                    if batch.len() >= BATCH_MAX {
                        batch.release_to_server(&mut report)?;
                    }
                }
                None => report.add_taken(job.summary()),
            },
            Err(left) => report.add_left(left),
        }
        if number.is_multiple_of(PROGRESS_EVERY) || number == total {
            let rate = number as f64 / began.elapsed().as_secs_f64().max(0.001);
            progress.show(format_args!("{} of {}, {rate:.0}/s", count(number, "message"), thousands(total)));
        }
    }
    if let Some(batch) = &mut batch {
        batch.release_to_server(&mut report)?;
    }
    progress.clear();
    report.print(arguments.json, place.root(), began.elapsed())
}

/// Two programs on one queue would deliver twice.
fn refuse_while_sendmail_runs(place: &QueueDirectories) -> Result<(), Failure> {
    let running = place.running_sendmails();
    let Some((pid, name)) = running.first() else { return Ok(()) };
    let others = if running.len() > 1 { format!(" and {} more", running.len() - 1) } else { String::new() };
    let message = format!(
        "{}: {name} (process {pid}){others} works on this queue; stop sendmail, then call this again",
        place.root().display()
    );
    Err(Failure::new(Exit::TryLater, message))
}

/// The pickup directory, if the server trusts files put there.
fn pickup(configured: Option<&Path>) -> Result<&Path, Failure> {
    let Some(directory) = configured else {
        let text = "submit.directory is empty: mail cannot be handed in here; name a directory";
        return Err(Failure::new(Exit::Config, text));
    };
    let found = directory.metadata().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let text = format!("{}: there is no such directory; mailrace makes it when it starts", directory.display());
            Failure::new(Exit::CannotCreate, text)
        }
        _ => Failure::io(directory.display(), &error),
    })?;
    if ![0, found.uid()].contains(&machine::uid()) {
        let text = format!(
            "{}: it belongs to user {}, and only he and root can take over messages; call this as root",
            directory.display(),
            found.uid()
        );
        return Err(Failure::new(Exit::NoPermission, text));
    }
    Ok(directory)
}
