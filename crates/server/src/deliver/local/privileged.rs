//! The one process that stays root, where the server was started as root and gave that up.
//!
//! ```text
//! server, no rights ──socket──► helper, root ──starts──► agent, root until it has read the order, then one user
//!        │                                                 ▲
//!        └────────── a socket of their own: order, message, verdict ──────────┘
//! ```
//!
//! The helper reads nothing but sockets that are handed to it, and starts an agent for each. The agent is told the [`Settings`] by the
//! helper, which has them since the start of the server: a server that somebody else has taken over can have mail delivered
//! to users as the configuration says, run programs of `local.programs` as users above `local.uid_min`, write to files in
//! `local.files`, and nothing else. There is no delivery as root.
//!
//! If the helper is gone nobody can bring it back: deliveries wait, and the log says once what to do.

use super::agent::carry_out;
use super::letter::{Content, unreadable};
use super::order::{Order, Settings, Verdict};
use super::person::Rights;
use super::stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The hidden subcommand of the program, and its two forms.
pub const COMMAND: &str = "local-delivery";
/// The process that stays root.
pub const HELPER: &str = "helper";
/// The process of one delivery.
pub const AGENT: &str = "agent";

/// Agents at once, whatever the server asks for.
const AGENTS_MAX: usize = 256;
/// How often agents that have ended are looked for while nothing else happens.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// For the verdict of an agent that is over its own limits.
const SPARE: Duration = Duration::from_secs(60);

/// The server's side of the helper.
#[derive(Debug)]
pub(crate) struct Helper {
    control: OwnedFd,
    is_gone: AtomicBool,
}

/// What came of handing an order over.
pub(crate) enum Handed {
    /// It was carried out, or not.
    Verdict(Verdict),
    /// The helper is gone; said for the first time.
    Gone(Verdict),
}

impl Helper {
    /// Starts it, as root and before anything is given up.
    ///
    /// # Errors
    /// The system refuses a socket or a process.
    pub(crate) fn start(settings: &Settings) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // A group of its own: what a terminal tells the server is not meant for deliveries that it waits for. It ends with the
        // other end of its socket.
        let child = this_program(HELPER, settings).stdin(theirs).stdout(Stdio::null()).process_group(0).spawn()?;
        // Nobody waits for it: it outlives whoever started it by a moment, and has no status.
        drop(child);
        Ok(Self { control: ours, is_gone: AtomicBool::new(false) })
    }

    /// Has an order carried out. For a thread that may wait.
    pub(crate) fn deliver(&self, order: &Order, content: &mut dyn Content, limit: Duration) -> Handed {
        let (mut ours, theirs) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => {
                return Handed::Verdict(Verdict::deferred((3, 0), format!("no socket for a delivery: {error}")));
            }
        };
        if let Err(error) = hand_over(self.control.as_fd(), theirs.as_fd()) {
            let text = format!(
                "the process that delivers with the rights of users is gone ({error}); restart mailrace, mail for users waits until then"
            );
            let verdict = Verdict::deferred((3, 0), text);
            let is_first = !self.is_gone.swap(true, Ordering::Relaxed);
            return if is_first { Handed::Gone(verdict) } else { Handed::Verdict(verdict) };
        }
        drop(theirs);
        Handed::Verdict(talk(&mut ours, order, content, limit).unwrap_or_else(|verdict| verdict))
    }
}

/// Gives an agent its order and waits for its verdict.
fn talk(
    stream: &mut UnixStream,
    order: &Order,
    content: &mut dyn Content,
    limit: Duration,
) -> Result<Verdict, Verdict> {
    let failed = |error: io::Error| {
        let text = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the process of the delivery ended without an answer".to_owned(),
            io::ErrorKind::WouldBlock => "the process of the delivery does not answer".to_owned(),
            _ => format!("the process of the delivery does not answer: {error}"),
        };
        Verdict::deferred((3, 0), text)
    };
    let limit = Some(limit + SPARE);
    stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)).map_err(failed)?;
    let sent = stream::send_order(stream, order).and_then(|()| stream::send_content(stream, content));
    match sent {
        Ok(Ok(())) => {}
        // Without its end the message is none to the agent.
        Ok(Err(why)) => return Err(unreadable(why)),
        // It may have said why it takes no more.
        Err(error) => return stream::verdict(stream).map_err(|_| failed(error)),
    }
    stream::verdict(stream).map_err(failed)
}

/// This program, as it was when it was started, even if its file has been replaced since.
fn this_program(form: &str, settings: &Settings) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([COMMAND, form, "--settings", &settings.to_json()]).env_clear();
    command.envs(std::env::var_os("TZ").map(|zone| ("TZ", zone)));
    command
}

fn hand_over(control: BorrowedFd<'_>, stream: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [stream];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    loop {
        match sendmsg(control, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// The life of the helper: until the server is gone. Its socket is standard input.
///
/// # Errors
/// It was not started by a server, or the system refuses.
pub fn run_helper(settings: &str) -> Result<(), String> {
    let settings = read_settings(settings)?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // A service manager says to all processes of a service that it ends. The server then still waits for deliveries.
    let _ignored = ignore_end()?;
    let control = io::stdin();
    let mut agents: Vec<Child> = Vec::new();
    loop {
        agents.retain_mut(|agent| matches!(agent.try_wait(), Ok(None)));
        let is_full = agents.len() >= AGENTS_MAX;
        let mut waits = [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)];
        let none: &mut [PollFd<'_>] = &mut [];
        let time = (!agents.is_empty()).then_some(&LOOK_INTERVAL);
        match poll(if is_full { none } else { &mut waits }, time) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        match take_over(control.as_fd()) {
            Ok(Taken::End) => break,
            Ok(Taken::Nothing) => {}
            // Without an agent the other end is closed, and the server hears that.
            Ok(Taken::Stream(stream)) => agents.extend(agent_for(stream, &settings).ok()),
            Err(error) => return Err(format!("the socket of the server: {error}")),
        }
    }
    for mut agent in agents {
        drop(agent.wait());
    }
    Ok(())
}

/// What the server had to say.
enum Taken {
    Stream(OwnedFd),
    Nothing,
    End,
}

fn take_over(control: BorrowedFd<'_>) -> io::Result<Taken> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let received = match recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(Errno::INTR | Errno::AGAIN) => return Ok(Taken::Nothing),
        other => other?,
    };
    if received.bytes == 0 {
        return Ok(Taken::End);
    }
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.flatten().next().map_or(Taken::Nothing, Taken::Stream))
}

/// Starts an agent whose standard input is its socket. Programs that it runs may use set-group-id bits, as list managers do.
fn agent_for(stream: OwnedFd, settings: &Settings) -> io::Result<Child> {
    this_program(AGENT, settings).stdin(stream).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}

/// Signals to end are not for the helper: it ends with the server.
fn ignore_end() -> Result<(tokio::runtime::Runtime, [tokio::signal::unix::Signal; 2]), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: io::Error| format!("signals: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let guard = runtime.enter();
    let signals = [signal(SignalKind::terminate()).map_err(failed)?, signal(SignalKind::interrupt()).map_err(failed)?];
    drop(guard);
    Ok((runtime, signals))
}

/// The life of an agent: one delivery. Its socket is standard input.
///
/// # Errors
/// It was not started by a helper, or the server is gone.
pub fn run_agent(settings: &str) -> Result<(), String> {
    let settings = read_settings(settings)?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let stream = io::stdin().as_fd().try_clone_to_owned().map_err(|error| format!("standard input: {error}"))?;
    // What it starts has another one.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?)
        .map_err(|error| format!("/dev/null: {error}"))?;
    let mut stream = UnixStream::from(stream);
    let limit = Some(settings.time_max());
    stream.set_read_timeout(limit).map_err(|error| format!("no socket of a server: {error}"))?;
    let order = stream::order(&mut stream).map_err(|error| format!("no order: {error}"))?;
    let rights = match rustix::process::geteuid() {
        uid if uid.is_root() => Rights::Anybody,
        uid => Rights::Own(uid.as_raw()),
    };
    let mut content = stream::Incoming::new(&mut stream);
    let verdict = carry_out(&order, &settings, rights, &mut content);
    content.drain();
    stream::send_verdict(&mut stream, &verdict).map_err(|error| format!("no answer: {error}"))?;
    Ok(())
}

fn read_settings(text: &str) -> Result<Settings, String> {
    Settings::from_json(text).ok_or_else(|| "this command is for mailrace itself; see docs/local.md".to_owned())
}
