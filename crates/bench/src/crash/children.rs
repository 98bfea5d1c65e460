//! The rig's children: the writer that is killed and the checker that looks afterwards.
//!
//! Both are processes of their own, so that a writer can be killed in the middle of its work, and so that neither a
//! panic of the spool nor a file system that stopped answering takes the rig along. Each ends when its input ends.

use crate::clock;
use crate::crash::findings::Findings;
use crate::crash::host::{self, Stop};
use crate::crash::ledger::RECORD;
use crate::crash::spools::SpoolArguments;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// How long a writer may take until it accepts mail, and to answer a question.
const READY_WAIT: Duration = Duration::from_secs(120);
/// How long a check may take.
const CHECK_WAIT: Duration = Duration::from_secs(120);

/// A spool under test and the promises made for it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The spool.
    pub(crate) spool: SpoolArguments,
    /// Its ledger.
    pub(crate) ledger: PathBuf,
    /// The run of the writer; grows with each.
    pub(crate) cycle: u64,
    /// Further words for the writer.
    pub(crate) habits: Vec<&'static str>,
}

impl Subject {
    /// A new spool with an empty ledger.
    pub(crate) fn new(spool: SpoolArguments, ledger: PathBuf) -> Self {
        Self { spool, ledger, cycle: 0, habits: Vec::new() }
    }

    /// Returns the bytes of the promises so far in the ledger.
    pub(crate) fn promised(&self) -> u64 {
        fs::metadata(&self.ledger).map_or(0, |data| data.len() / RECORD as u64 * RECORD as u64)
    }

    /// Starts the writer.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(&self) -> Result<WriterProcess, Stop> {
        let mut command = host::own_program("crash-writer")?;
        command
            .args(self.spool.words())
            .arg("--ledger")
            .arg(&self.ledger)
            .arg(format!("--cycle={}", self.cycle))
            .args(&self.habits);
        WriterProcess::spawn(command)
    }

    /// Holds `spool`, or a copy of it elsewhere, against the part of the ledger a crash left standing.
    ///
    /// # Errors
    /// The checker cannot be run. A spool that does not open is no error but a finding.
    pub(crate) fn check(&self, at: &Path, before: u64, after: u64, adopt: Option<&Path>) -> Result<Checked, Stop> {
        let mut spool = self.spool.clone();
        at.clone_into(&mut spool.path);
        let mut command = host::own_program("crash-checker")?;
        command
            .args(spool.words())
            .arg("--ledger")
            .arg(&self.ledger)
            .arg(format!("--before={before}"))
            .arg(format!("--after={after}"))
            .arg(format!("--cycle={}", self.cycle));
        if let Some(path) = adopt {
            command.arg("--adopt").arg(path);
        }
        checked(command)
    }

    /// Checks after a crash that left everything written standing, takes the present messages as the new promises and
    /// counts the cycle on.
    ///
    /// # Errors
    /// As [`Subject::check`].
    pub(crate) fn check_and_adopt(&mut self) -> Result<Checked, Stop> {
        let promised = self.promised();
        let next = self.ledger.with_extension("next");
        drop(fs::remove_file(&next));
        let path = self.spool.path.clone();
        let checked = self.check(&path, promised, promised, Some(&next))?;
        self.adopt(&next)?;
        Ok(checked)
    }

    /// Takes `ledger`, written by a check, as the promises from now on.
    ///
    /// # Errors
    /// The file cannot be put in its place.
    pub(crate) fn adopt(&mut self, ledger: &Path) -> Result<(), Stop> {
        if !ledger.exists() {
            fs::write(ledger, []).map_err(|error| Stop::broken("making a ledger", error))?;
        }
        fs::copy(ledger, &self.ledger).map_err(|error| Stop::broken("adopting a ledger", error))?;
        drop(fs::remove_file(ledger));
        self.cycle += 1;
        Ok(())
    }
}

/// The result of a checker.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// Its counts.
    pub(crate) findings: Findings,
    /// Violations in words.
    pub(crate) details: Vec<String>,
}

/// A writer at work. Dropping it kills it with SIGKILL.
#[derive(Debug)]
pub(crate) struct WriterProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl WriterProcess {
    fn spawn(mut command: Command) -> Result<Self, Stop> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Stop::broken("starting the writer", error))?;
        let input = child.stdin.take();
        let (sender, lines) = channel();
        let output = child.stdout.take();
        let complaints = child.stderr.take();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok) {
                drop(sender.send(line));
            }
            // The last words before the checker dies of itself belong into the report.
            let mut last = String::new();
            if let Some(mut complaints) = complaints {
                drop(complaints.read_to_string(&mut last));
            }
            drop(sender.send(format!("died {}", last.trim_end())));
        });
        Ok(Self { child, input, lines })
    }

    /// Waits until it accepts mail.
    ///
    /// # Errors
    /// It ends instead, or takes too long.
    pub(crate) fn ready(&self) -> Result<(), Stop> {
        match self.lines.recv_timeout(READY_WAIT) {
            Ok(line) if line == "ready" => Ok(()),
            Ok(line) => Err(Stop::Broken(format!("the writer did not start: {line}"))),
            Err(_) => Err(Stop::Broken("the writer was not ready in time".to_owned())),
        }
    }

    /// Asks for its counts.
    ///
    /// # Errors
    /// It is gone or does not answer.
    pub(crate) fn tally(&mut self) -> Result<WriterAnswers, Stop> {
        let asked = self.input.as_mut().is_some_and(|input| writeln!(input, "tally").is_ok());
        match self.lines.recv_timeout(READY_WAIT) {
            Ok(line) if asked && !line.starts_with("died") => Ok(WriterAnswers::parse(&line)),
            Ok(line) => Err(Stop::Broken(format!("the writer is gone: {line}"))),
            Err(error) => Err(Stop::broken("the writer does not answer", error)),
        }
    }

    /// Kills it with SIGKILL and waits until nothing of it runs.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for WriterProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// The answers a writer got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriterAnswers {
    /// Messages acknowledged.
    pub(crate) acknowledged: u64,
    /// Appends that failed.
    pub(crate) failed: u64,
    /// Appends refused because the spool was full.
    pub(crate) full: u64,
    /// Calls refused because the spool takes no more writes.
    pub(crate) poisoned: u64,
    /// Answers that no rig expects.
    pub(crate) other: u64,
    /// Segment files of the spool, how many of them are free, how many retired.
    #[expect(dead_code, reason = "read in the Debug form, which is what reports show of a tally")]
    pub(crate) segments: [u64; 3],
}

impl WriterAnswers {
    fn parse(line: &str) -> Self {
        let value = |name: &str| {
            let mut words = line.split(' ').filter_map(|word| word.split_once('='));
            words.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        Self {
            acknowledged: value("acknowledged"),
            failed: value("failed"),
            full: value("full"),
            poisoned: value("poisoned"),
            other: value("other"),
            segments: [value("segments"), value("free"), value("bad")],
        }
    }
}

/// Runs a checker. One that fails, or takes too long, is no error but a finding.
///
/// # Errors
/// It cannot be started.
pub(crate) fn checked(command: Command) -> Result<Checked, Stop> {
    let (status, said, complaints) = finish(command)?;
    let mut lines = said.lines();
    let Some(findings) = lines.next().and_then(Findings::parse).filter(|_| status) else {
        let findings = Findings { unusable: 1, ..Findings::default() };
        return Ok(Checked { findings, details: vec![format!("! the checker failed: {}", complaints.trim_end())] });
    };
    let details = lines.filter(|line| line.starts_with('!')).map(str::to_owned).collect();
    Ok(Checked { findings, details })
}

/// Runs a child to its end within [`CHECK_WAIT`]: returns its success, output and standard error.
fn finish(mut command: Command) -> Result<(bool, String, String), Stop> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Stop::broken("starting the checker", error))?;
    let collect = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                drop(pipe.read_to_string(&mut text));
            }
            text
        })
    };
    let said = collect(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let complaints = collect(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let end = clock::now() + CHECK_WAIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if clock::now() < end => clock::pause(Duration::from_millis(2)),
            _ => {
                // A spool that does not open, or does not close, is a finding like any other.
                drop(child.kill());
                drop(child.wait());
                let what = format!("the spool was not opened, read and closed within {} s", CHECK_WAIT.as_secs());
                return Ok((false, String::new(), what));
            }
        }
    };
    let text = |thread: thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok((status.success(), text(said), text(complaints)))
}
