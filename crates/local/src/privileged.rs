//! The one process that stays root, where the server was started as root and gave that up.
//!
//! ```text
//! server, no rights ──socket──► helper, root ──starts──► worker, root until it has read an order, then one user
//!        │                                                 ▲
//!        └───── a socket of their own: orders, messages, verdicts ─────┘
//! ```
//!
//! The helper reads nothing but sockets that are handed to it, and starts a worker for each. The worker is told the
//! [`Settings`] by the helper, which has them since the start of the server: a server that an attacker has taken over
//! can have mail delivered to users as the configuration says, run programs of `local.programs` as users above
//! `local.uid_min`, write to files in `local.files`, and nothing else. There is no delivery as root.
//!
//! A worker that has delivered to a mailbox waits for more orders for the same user ([`workers`](super::workers)),
//! since starting it costs more than a delivery. It has become the user for good then, so it can do no more than he
//! can, whatever orders it gets. A program has a process of its own.
//!
//! A user can do this to a worker that has his rights:
//!
//! - He kills it while it waits: the server sees that nothing was begun, and takes another.
//! - He kills it at work: his messages in it are deferred. It is not known whether he has them, and they come again.
//! - He stops it, so that it answers nothing: his messages are deferred after their time ([`Settings::time_max`]). The
//!   server closes its pipe to the worker; the helper sees that, and kills the worker [`Settings::any_time_max`] later.
//!   He keeps no more than a quarter of the deliveries busy with that.
//! - He takes it over by a debugger: the kernel forbids it, since a process that was root is not dumpable. If he could,
//!   it would know its own orders, which are his mail, and could lie about them. Its verdicts are counted, cut and made
//!   plain ([`Verdict`]). Its one other descriptor is `/dev/null`.
//!
//! Files of users, `.forward` and `:include:`, are read by processes of a third form ([`READER`], `lookup::files` of
//! the server): root until the first request, then that user. They count apart from workers, so that a file that hangs
//! keeps no delivery waiting, and are killed [`READER_PATIENCE`] after the server has closed its end. The helper waits
//! for none of them when it ends: a process that hangs in the kernel would keep it, and the service manager, for ever.
//!
//! If the helper is gone it cannot be started again: deliveries wait, and the log says once what to do.

use super::agent::Agent;
use super::order::{Settings, Verdict};
use super::person::Rights;
use super::stream;
use os::accounts::Kept;
use os::capabilities::{OF_HELPER, keep_only};
use os::signals::{SignalKind, ignore};
use os::{clock, descriptors, privileges};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::io::{self, BufReader, BufWriter, IoSlice, IoSliceMut, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The hidden subcommand of the program, and its two forms.
pub const COMMAND: &str = "local-delivery";
/// The process that stays root.
pub const HELPER: &str = "helper";
/// The process that delivers as one user.
pub const WORKER: &str = "worker";
/// The process that reads files as one user.
pub const READER: &str = "reader";

/// Workers at once, however many the server asks for.
const WORKERS_MAX: usize = 256;
/// Processes that read files, beside those.
pub const READERS_MAX: usize = 64;
/// One of these whom the server has left has so long to end by itself.
const READER_PATIENCE: Duration = Duration::from_secs(1);
/// One that has had no request for so long ends.
const READER_IDLE_TIME: Duration = Duration::from_secs(30);
/// Workers that are wanted and wait for room; while there are more the server is not listened to.
const HELD_MAX: usize = 64;
/// How often workers that have ended are looked for while nothing else happens.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// A worker that has had no order for so long ends.
pub const IDLE_TIME: Duration = Duration::from_secs(60);

/// The server's side of the helper.
#[derive(Debug)]
pub struct Helper {
    control: OwnedFd,
    is_gone: AtomicBool,
}

/// The result of handing an order over.
#[derive(Debug)]
pub enum HandoverResult {
    /// It was carried out, or not.
    Verdict(Verdict),
    /// The helper is gone; said for the first time.
    Gone(Verdict),
}

/// The server's ends of the socket and the pipe to a worker.
#[derive(Debug)]
pub struct Worker {
    pub(crate) stream: UnixStream,
    /// The helper has the other end, and sees when this goes.
    _leash: PipeWriter,
}

impl Worker {
    /// Returns the socket that leads to the worker.
    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Has the helper kill the worker. The returned socket reads its end when the worker is gone.
    pub fn kill(self) -> UnixStream {
        self.stream
    }
}

impl Helper {
    /// Starts it, as root and before anything is given up.
    ///
    /// # Errors
    /// The system refuses a socket or a process.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        let (helper, theirs) = Self::socket_pair()?;
        // A group of its own: a signal of the terminal to the server must not end the deliveries that the server waits
        // for. It ends with the other end of its socket.
        let child = this_program(HELPER, settings).stdin(theirs).stdout(Stdio::null()).process_group(0).spawn()?;
        // The server does not wait for the helper: it ends a moment after the server, and its status says nothing.
        drop(child);
        Ok(helper)
    }

    /// Makes the server's side and the socket of the other side.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn socket_pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { control: ours, is_gone: AtomicBool::new(false) }, theirs))
    }

    /// Starts a worker that has no user yet. For a thread that may wait.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start_worker(&self) -> Result<Worker, HandoverResult> {
        self.start_process(WORKER_BYTE)
    }

    /// Starts a process that reads files. The socket ends at once if there are too many.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start_reader(&self) -> Result<Worker, HandoverResult> {
        self.start_process(READER_BYTE)
    }

    fn start_process(&self, kind: u8) -> Result<Worker, HandoverResult> {
        let no = |error: io::Error| {
            HandoverResult::Verdict(Verdict::deferred((3, 0), format!("no socket for a delivery: {error}")))
        };
        let (ours, theirs) = UnixStream::pair().map_err(no)?;
        let (end, leash) = io::pipe().map_err(no)?;
        hand_over(self.control.as_fd(), kind, &[theirs.as_fd(), end.as_fd()]).map_err(|error| self.gone(&error))?;
        Ok(Worker { stream: ours, _leash: leash })
    }

    fn gone(&self, error: &io::Error) -> HandoverResult {
        let text = format!(
            "the process that delivers with the rights of users is gone ({error}); restart mailrace, mail for users waits until then"
        );
        let verdict = Verdict::deferred((3, 0), text);
        let is_first = !self.is_gone.swap(true, Ordering::Relaxed);
        if is_first { HandoverResult::Gone(verdict) } else { HandoverResult::Verdict(verdict) }
    }
}

#[cfg(test)]
impl Worker {
    /// A worker who has ended.
    pub(crate) fn fake() -> io::Result<Self> {
        Ok(Self { stream: UnixStream::pair()?.0, _leash: io::pipe()?.1 })
    }
}

/// This program, as it was when it was started, even if its file has been replaced since.
fn this_program(form: &str, settings: &Settings) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([COMMAND, form, "--settings", &settings.to_json()]).env_clear();
    command.envs(std::env::var_os("TZ").map(|zone| ("TZ", zone)));
    command
}

/// The byte with which the server asks for a worker.
const WORKER_BYTE: u8 = b'd';
/// The byte with which it asks for a process that reads.
const READER_BYTE: u8 = b'r';

fn hand_over(control: BorrowedFd<'_>, kind: u8, fds: &[BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(fds));
    loop {
        match sendmsg(control, &[IoSlice::new(&[kind])], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// A worker as the helper knows it.
struct Child {
    process: process::Child,
    /// Its other end goes with the server's interest in the worker.
    leash: PipeReader,
    /// The time at which the server closed its end.
    left: Option<Instant>,
    /// It reads, and has no delivery to finish.
    is_reader: bool,
}

impl Child {
    /// Whether it is still running. A process whose other end has been closed for so long is killed: it does not end by
    /// itself.
    fn is_there(&mut self, patience: Duration) -> bool {
        let now = clock::now();
        let patience = if self.is_reader { patience.min(READER_PATIENCE) } else { patience };
        if self.left.is_some_and(|left| now.saturating_duration_since(left) >= patience) {
            // It may have ended.
            drop(self.process.kill());
        }
        matches!(self.process.try_wait(), Ok(None))
    }
}

/// Closes all descriptors but standard input, and makes the memory unreadable for other processes.
fn begin() -> Result<(), String> {
    rustix::process::umask(Mode::from_raw_mode(0o077));
    descriptors::close_foreign().map_err(|error| error.to_string())?;
    privileges::seal_memory().map_err(|error| error.to_string())
}

/// The life of the helper: until the server is gone. Its socket is standard input.
///
/// # Errors
/// It was not started by a server, or the system refuses.
pub fn run_helper(settings: &str) -> Result<(), String> {
    let settings = read_settings(settings)?;
    begin()?;
    keep_only(OF_HELPER).map_err(|error| format!("capabilities: {error}"))?;
    // A service manager says to all processes of a service that it ends. The server then still waits for deliveries.
    let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
    let _ignored = ignore(&kinds).map_err(|error| format!("signals: {error}"))?;
    let control = io::stdin();
    let patience = settings.any_time_max();
    let mut children: Vec<Child> = Vec::new();
    let mut held: VecDeque<(OwnedFd, PipeReader)> = VecDeque::new();
    loop {
        children.retain_mut(|child| child.is_there(patience));
        while children.iter().filter(|child| !child.is_reader).count() < WORKERS_MAX
            && let Some((stream, leash)) = held.pop_front()
        {
            // Without a worker the other end is closed, and the server hears that.
            let started = process_for(WORKER, stream, &settings).ok();
            children.extend(started.map(|process| Child { process, leash, left: None, is_reader: false }));
        }
        if !wait_for_work(control.as_fd(), &mut children, held.len() >= HELD_MAX)? {
            continue;
        }
        match receive_request(control.as_fd()) {
            Ok(HelperRequest::ServerGone) => break,
            Ok(HelperRequest::Nothing) => {}
            Ok(HelperRequest::Worker(stream, leash)) => held.push_back((stream, leash)),
            Ok(HelperRequest::Reader(stream, leash)) => {
                if children.iter().filter(|child| child.is_reader).count() < READERS_MAX {
                    let started = process_for(READER, stream, &settings).ok();
                    children.extend(started.map(|process| Child { process, leash, left: None, is_reader: true }));
                }
            }
            Err(error) => return Err(format!("the socket of the server: {error}")),
        }
    }
    drop(held);
    end(children, patience);
    Ok(())
}

/// Lets deliveries be finished, which they are by themselves. A process that was killed and does not end hangs in the
/// kernel, and is left.
fn end(mut children: Vec<Child>, patience: Duration) {
    const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let until = clock::now() + patience;
    for child in children.iter_mut().filter(|child| child.is_reader) {
        // It may have ended.
        drop(child.process.kill());
    }
    loop {
        children.retain_mut(|child| !child.is_reader && matches!(child.process.try_wait(), Ok(None)));
        if children.is_empty() {
            return;
        }
        if clock::now() >= until {
            children.iter_mut().for_each(|child| drop(child.process.kill()));
            return;
        }
        // Nothing comes: it waits for the time alone.
        poll(&mut [], Some(&LOOK_AGAIN)).ok();
    }
}

/// Waits for a request of the server, unless `is_full`. Notes children whose other end was closed.
fn wait_for_work(control: BorrowedFd<'_>, children: &mut [Child], is_full: bool) -> Result<bool, String> {
    let time = (!children.is_empty()).then_some(&LOOK_INTERVAL);
    let mut waits: Vec<PollFd<'_>> = Vec::with_capacity(children.len() + 1);
    // Without a wish, only its end is told.
    let wish = if is_full { PollFlags::empty() } else { PollFlags::IN };
    waits.push(PollFd::from_borrowed_fd(control, wish));
    let held = children.iter().filter(|child| child.left.is_none());
    waits.extend(held.map(|child| PollFd::new(&child.leash, PollFlags::empty())));
    match poll(&mut waits, time) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(false),
        Err(error) => return Err(format!("poll: {error}")),
    }
    let mut told = waits.iter().map(|wait| !wait.revents().is_empty()).collect::<Vec<_>>().into_iter();
    let has_work = told.next().unwrap_or(false);
    for child in children.iter_mut().filter(|child| child.left.is_none()) {
        if told.next().unwrap_or(false) {
            child.left = Some(clock::now());
        }
    }
    Ok(has_work)
}

/// A request of the server to the helper.
pub enum HelperRequest {
    /// A worker is wanted: his socket, and the pipe that ends when the server does not want it any more.
    Worker(OwnedFd, PipeReader),
    /// The same of a process that reads.
    Reader(OwnedFd, PipeReader),
    /// Nothing to do.
    Nothing,
    /// It is gone.
    ServerGone,
}

/// Reads what the server asks of the helper, with the descriptors that come with it.
///
/// # Errors
/// The socket cannot be read.
pub fn receive_request(control: BorrowedFd<'_>) -> io::Result<HelperRequest> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let received = match recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(Errno::INTR | Errno::AGAIN) => return Ok(HelperRequest::Nothing),
        other => other?,
    };
    if received.bytes == 0 {
        return Ok(HelperRequest::ServerGone);
    }
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.flatten();
    Ok(match (fds.next(), fds.next()) {
        (Some(stream), Some(leash)) if byte == [READER_BYTE] => HelperRequest::Reader(stream, leash.into()),
        (Some(stream), Some(leash)) => HelperRequest::Worker(stream, leash.into()),
        _ => HelperRequest::Nothing,
    })
}

/// Starts a process whose standard input is its socket. Programs that a worker runs may use set-group-id bits, as list
/// managers do.
fn process_for(form: &str, stream: OwnedFd, settings: &Settings) -> io::Result<process::Child> {
    this_program(form, settings).stdin(stream).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}

/// The life of a worker: batches of orders, until there are none. Its socket is standard input.
///
/// # Errors
/// It was not started by a helper, or the server is gone.
pub fn run_worker(settings: &str) -> Result<(), String> {
    let settings = read_settings(settings)?;
    begin()?;
    // A file that becomes too large is told by the call that writes to it.
    let kinds = [SignalKind::from_raw(Signal::XFSZ.as_raw())];
    let _ignored = ignore(&kinds).map_err(|error| format!("signals: {error}"))?;
    let stream = io::stdin().as_fd().try_clone_to_owned().map_err(|error| format!("standard input: {error}"))?;
    // Programs that the worker starts have another standard input.
    close_stdin()?;
    let stream = UnixStream::from(stream);
    let no_socket = |error: io::Error| format!("no socket of a server: {error}");
    let limit = settings.any_time_max();
    let rights = match rustix::process::geteuid() {
        uid if uid.is_root() => Rights::Anybody,
        uid => Rights::Own(uid.as_raw()),
    };
    let agent = Agent::new(settings.clone(), Kept::new(settings.accounts).with_nss(settings.has_nss), rights);
    let mut from = BufReader::with_capacity(BUFFER_BYTES, &stream);
    loop {
        stream.set_read_timeout(Some(IDLE_TIME)).map_err(no_socket)?;
        let batch = stream::Incoming::receive_first(&mut from).map_err(|error| format!("no order: {error}"))?;
        let Some(mut batch) = batch else { return Ok(()) };
        stream.set_read_timeout(Some(limit)).map_err(no_socket)?;
        let no_answer = |error: io::Error| format!("no answer: {error}");
        stream::send_begun(&mut &stream).map_err(no_answer)?;
        let verdicts = agent.deliver_batch(&mut batch);
        if !batch.is_whole() {
            return Err("the server broke off".to_owned());
        }
        stream::send_verdicts(&mut BufWriter::new(&stream), &verdicts).map_err(no_answer)?;
    }
}

fn close_stdin() -> Result<(), String> {
    let no = |error: io::Error| format!("/dev/null: {error}");
    let nothing = std::fs::File::open("/dev/null").map_err(no)?;
    rustix::stdio::dup2_stdin(nothing).map_err(|error| no(error.into()))
}

/// The life of a process that reads files of a user: `serve` answers requests on its socket, which is standard input,
/// until there is none for the given time.
///
/// # Errors
/// It was not started by a helper, or the server is gone.
pub fn run_reader(
    settings: &str,
    serve: impl FnOnce(&UnixStream, &Settings, Duration) -> io::Result<()>,
) -> Result<(), String> {
    let settings = read_settings(settings)?;
    let stream = io::stdin().as_fd().try_clone_to_owned().map_err(|error| format!("standard input: {error}"))?;
    close_stdin()?;
    let served = serve(&UnixStream::from(stream), &settings, READER_IDLE_TIME);
    served.map_err(|error| format!("no request: {error}"))
}

/// The octets that one read from the socket takes.
const BUFFER_BYTES: usize = 64 << 10;

fn read_settings(text: &str) -> Result<Settings, String> {
    Settings::from_json(text).ok_or_else(|| "this command is for mailrace itself; see docs/local.md".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child() -> (Child, PipeWriter) {
        let (leash, held) = io::pipe().unwrap();
        let process = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
        (Child { process, leash, left: None, is_reader: false }, held)
    }

    #[test]
    fn a_worker_whom_nobody_wants_and_who_does_not_end_is_killed() {
        let (control, server) = UnixStream::pair().unwrap();
        let (left, held) = child();
        let (wanted, _held) = child();
        let mut children = vec![wanted, left];
        drop(held);
        assert!(!wait_for_work(control.as_fd(), &mut children, false).unwrap());
        assert_eq!(children.iter().map(|child| child.left.is_some()).collect::<Vec<_>>(), [false, true]);
        let hour = Duration::from_secs(3_600);
        assert!(children.iter_mut().all(|child| child.is_there(hour)), "it has time to end by itself");
        assert!(children[0].is_there(Duration::ZERO), "the control: who is wanted is never killed");
        children[1].is_there(Duration::ZERO);
        children[1].process.wait().unwrap();
        assert!(!children[1].is_there(Duration::ZERO));
        // Work is still seen.
        drop(server);
        assert!(wait_for_work(control.as_fd(), &mut children, false).unwrap());
        children[0].process.kill().unwrap();
        children[0].process.wait().unwrap();
    }
}
