//! A message for a program: its standard input, with a time limit, an exit status and no shell.
//!
//! The message begins with a `From ` line, as sendmail's prog mailer has it, and has `Return-Path:` and
//! `Delivered-To:`; nothing in it is quoted. Standard output and error are read, and the first of them kept for people.
//! The program is the leader of a process group of its own. When its time is over, or the message breaks off, the group
//! is killed before the input ends, so that no program takes half a message for a whole one.
//!
//! A program that ends without having read all of it has done what it wanted: only its exit status counts.

use super::command::{self, Command};
use super::letter::{Broken, Form, MailboxMessage, unreadable_verdict};
use super::order::{DeliveryEnd, DeliveryRequest, Settings, Verdict};
use super::person::{Rights, TargetUser};
use super::status::{exit_verdict, with_output};
use os::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use std::io::{self, PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

/// Output that is kept.
const OUTPUT_BYTES: usize = 4 << 10;
/// After this a wait begins anew.
const MOMENT_MAX: Duration = Duration::from_secs(3_600);
/// The `PATH` of programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Runs the program of an alias and writes the message to it.
pub(crate) fn deliver_to_program(
    letter: &mut MailboxMessage<'_>,
    order: &DeliveryRequest,
    command: &str,
    person: &TargetUser,
    settings: &Settings,
    rights: Rights,
) -> Verdict {
    // The text of a user's file is not shown.
    let owner = order.what.user().filter(|user| !user.is_empty());
    let name = owner.map_or_else(|| format!("\"|{command}\""), |user| format!("a program of {user}"));
    let refuse = |why: String| Verdict::deferred((3, 5), format!("{name} is not run: {why}"));
    let (words, failure) = match command::parse(command) {
        Ok(Command::Run { words, failure }) => (words, failure),
        Ok(Command::Exit(status)) => return exit_verdict(status, b""),
        Err(why) => return refuse(why),
    };
    let program = words.first().map_or("", String::as_str);
    let file = match command::find_program(program, &settings.programs) {
        Ok(file) => file,
        Err(why) if owner.is_some() && !program.is_empty() => return refuse(why.replace(program, "it")),
        Err(why) => return refuse(why),
    };
    match start(&file, &words, order, person, settings, rights) {
        Ok(running) => {
            let verdict = running.feed(letter, settings);
            // `|| exit N`: the words of the program stay.
            match failure.filter(|_| verdict.end != DeliveryEnd::Delivered) {
                Some(status) => Verdict { text: verdict.text, ..exit_verdict(status, b"") },
                None => verdict,
            }
        }
        Err(error) => refuse(format!("{} cannot be started: {error}", file.display())),
    }
}

/// Returns the environment of a program; it has nothing else.
fn environment(order: &DeliveryRequest, person: &TargetUser) -> Vec<(&'static str, String)> {
    let login = &person.login;
    let shell = if login.shell.is_empty() { "/bin/sh" } else { &login.shell };
    let mut all = vec![
        ("PATH", PATH.to_owned()),
        ("HOME", login.home.clone()),
        ("USER", login.name.clone()),
        ("LOGNAME", login.name.clone()),
        ("SHELL", shell.to_owned()),
        ("AGENT", "mailrace".to_owned()),
        ("SENDER", order.sender.clone()),
        ("RECIPIENT", order.recipient.clone()),
        ("LOCAL", order.local.clone()),
        ("DOMAIN", order.domain.clone()),
        ("EXTENSION", person.detail.clone().unwrap_or_default()),
    ];
    if !order.original.is_empty() {
        all.push(("ORIGINAL_RECIPIENT", order.original.clone()));
    }
    all.extend(std::env::var("TZ").ok().map(|zone| ("TZ", zone)));
    // No address has one; a file of an alias might.
    all.retain(|(_, value)| !value.contains('\0'));
    all
}

fn start(
    file: &Path,
    words: &[String],
    order: &DeliveryRequest,
    person: &TargetUser,
    settings: &Settings,
    rights: Rights,
) -> io::Result<Running> {
    let (output, said) = io::pipe()?;
    rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
    let limit = Some(u64::from(settings.processes_max)).filter(|max| *max > 0);
    // A process that is there for this delivery alone can bound itself, and its child processes inherit that.
    if let (Some(max), Rights::Anybody) = (limit, rights) {
        bound_processes(None, max)?;
    }
    let home = Path::new(&person.login.home);
    let is_home = home.is_absolute() && std::fs::read_dir(home).is_ok();
    let child = std::process::Command::new(file)
        .arg0(words.first().map_or("", String::as_str))
        .args(words.iter().skip(1))
        .env_clear()
        .envs(environment(order, person))
        .current_dir(if is_home { home } else { Path::new("/") })
        .stdin(Stdio::piped())
        .stdout(said.try_clone()?)
        .stderr(said)
        .process_group(0)
        .spawn()?;
    let mut child = Started(Some(child));
    let (pid, input) = child.parts().ok_or(Errno::SRCH)?;
    if let (Some(max), Rights::Own(_)) = (limit, rights) {
        bound_processes(Some(pid), max)?;
    }
    let done = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    rustix::fs::fcntl_setfl(&input, OFlags::NONBLOCK)?;
    let until = clock::now() + settings.program_time;
    let child = child.0.take().ok_or(Errno::SRCH)?;
    Ok(Running { input: Some(input), output: Some(output), kept: Vec::new(), until, is_late: false, done, child })
}

/// Bounds how many processes the user of a process may have while it starts others; never more than he may anyway.
fn bound_processes(pid: Option<Pid>, max: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(Resource::Nproc);
    let least = |limit: Option<u64>| Some(limit.map_or(max, |limit| limit.min(max)));
    let bound = Rlimit { current: least(now.current), maximum: least(now.maximum) };
    match rustix::process::prlimit(pid, Resource::Nproc, bound) {
        // It has ended already.
        Err(Errno::SRCH) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// A program of which it is not certain yet that it can be watched: it is killed if not.
struct Started(Option<Child>);

impl Started {
    fn parts(&mut self) -> Option<(Pid, ChildStdin)> {
        let child = self.0.as_mut()?;
        Some((i32::try_from(child.id()).ok().and_then(Pid::from_raw)?, child.stdin.take()?))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A program that runs.
struct Running {
    /// `None`: it wants no more, or has all.
    input: Option<ChildStdin>,
    /// `None`: the output has ended.
    output: Option<PipeReader>,
    /// The beginning of its output.
    kept: Vec<u8>,
    until: Instant,
    is_late: bool,
    /// Readable when it has ended.
    done: OwnedFd,
    child: Child,
}

impl Running {
    /// Gives it the message and waits for its end.
    fn feed(mut self, letter: &mut MailboxMessage<'_>, settings: &Settings) -> Verdict {
        let form = Form { from_line: true, quotes: false };
        let mut out = io::BufWriter::with_capacity(32 << 10, &mut self);
        let written = letter.write_to(&mut out, form).and_then(|()| Ok(out.flush()?));
        drop(out.into_parts());
        match written {
            Ok(()) => {}
            Err(Broken::Read(why)) => {
                self.kill();
                return unreadable_verdict(why);
            }
            Err(Broken::Write(_)) if self.is_late => return self.late(settings),
            Err(Broken::Write(error)) => {
                self.kill();
                return Verdict::deferred((3, 0), format!("the program cannot be given the message: {error}"));
            }
        }
        self.input = None;
        loop {
            match self.wait() {
                Ok(Woken::Ended) => break,
                Ok(Woken::Late) => return self.late(settings),
                Ok(Woken::Room) | Err(Errno::INTR) => {}
                Err(error) => {
                    self.kill();
                    return Verdict::deferred((3, 0), format!("the program cannot be waited for: {error}"));
                }
            }
        }
        self.listen();
        match self.child.wait().map(|status| (status.code(), status.signal())) {
            Ok((Some(status), _)) => exit_verdict(status, &self.kept),
            Ok((None, signal)) => {
                let text = format!("mailer prog died with signal {}", signal.unwrap_or(0));
                with_output(Verdict::deferred((3, 0), text), &self.kept)
            }
            Err(error) => Verdict::deferred((3, 0), format!("the program cannot be waited for: {error}")),
        }
    }

    /// Its time is over.
    fn late(mut self, settings: &Settings) -> Verdict {
        self.kill();
        let seconds = settings.program_time.as_secs_f32();
        let text = format!("the program was killed after {seconds} seconds (local.program_time_max)");
        with_output(Verdict::deferred((3, 0), text), &self.kept)
    }

    /// Ends it and its group. Its input is still open.
    fn kill(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended; then there is nothing to do.
            rustix::process::kill_process_group(pid, Signal::KILL).unwrap_or(());
        }
        drop(self.child.wait());
        self.listen();
    }

    /// Waits until it takes input, writes output, or ends; reads the output.
    fn wait(&mut self) -> Result<Woken, Errno> {
        let left = self.until.saturating_duration_since(clock::now());
        if left.is_zero() {
            self.is_late = true;
            return Ok(Woken::Late);
        }
        let time = Timespec::try_from(left.min(MOMENT_MAX)).map_err(|_| Errno::INVAL)?;
        let mut waits = vec![PollFd::new(&self.done, PollFlags::IN)];
        // A child of it may hold the output open and say nothing: the delivery does not wait for it.
        waits.extend(self.output.as_ref().map(|output| PollFd::new(output, PollFlags::IN)));
        waits.extend(self.input.as_ref().map(|input| PollFd::new(input, PollFlags::OUT)));
        poll(&mut waits, Some(&time))?;
        let has_ended = waits.first().is_some_and(|done| !done.revents().is_empty());
        self.listen();
        Ok(if has_ended { Woken::Ended } else { Woken::Room })
    }

    /// Reads its output.
    fn listen(&mut self) {
        let mut some = [0; 4_096];
        // As much as a pipe holds; then the next delivery has its turn, however much output there is.
        for _ in 0..16 {
            let Some(output) = &self.output else { return };
            match rustix::io::read(output, &mut some) {
                Ok(0) => self.output = None,
                Ok(read) => {
                    let room = OUTPUT_BYTES.saturating_sub(self.kept.len());
                    self.kept.extend(some.iter().take(read.min(room)));
                }
                Err(_) => return,
            }
        }
    }
}

impl Write for Running {
    /// Waits until the program takes some. Input that the program does not read any more counts as taken.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let Some(input) = &self.input else { return Ok(bytes.len()) };
            match rustix::io::write(input, bytes) {
                Ok(written) => return Ok(written),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::PIPE) => {
                    self.input = None;
                    return Ok(bytes.len());
                }
                Err(error) => return Err(error.into()),
            }
            match self.wait() {
                Ok(Woken::Room) | Err(Errno::INTR) => {}
                Ok(Woken::Ended) => self.input = None,
                Ok(Woken::Late) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why waiting is over.
enum Woken {
    /// It may take input, or has said something.
    Room,
    /// It has ended.
    Ended,
    /// Its time is over.
    Late,
}

#[cfg(test)]
mod tests;
