//! The server's side of the processes that read users' files: those that wait for requests, and those that hang.
//!
//! A process reads for one user. One that has answered waits for the next request for that user; one that has not
//! answered in [`TIME_MAX`] is left, and the helper kills it. A process that hangs in the kernel, on a file system
//! that does not answer, outlives even that: as long as its socket is open it counts, and a user with [`HUNG_MAX`] of
//! those gets no more.

use super::request::{Reply, Request};
use ::local::privileged::{HandoverResult, Helper, READERS_MAX, Worker};
use os::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for an answer.
pub(super) const TIME_MAX: Duration = Duration::from_secs(10);
/// Processes that wait for requests.
const WAITING_MAX: usize = 16;
/// One that has waited so long is not asked any more: it may end at any moment.
const WAITING_TIME: Duration = Duration::from_secs(20);
/// Processes that hang with files of one user, or lists of one directory.
const HUNG_MAX: usize = 2;
/// Processes of all users that hang, so that others are read still.
const HUNG_MAX_ALL: usize = READERS_MAX / 2;

/// Reads as users.
#[derive(Debug)]
pub(crate) struct Readers {
    helper: Arc<Helper>,
    time_max: Duration,
    waiting: Mutex<VecDeque<IdleReader>>,
    hung: Mutex<HashMap<Box<str>, Vec<UnixStream>>>,
}

#[derive(Debug)]
struct IdleReader {
    user: Box<str>,
    worker: Worker,
    since: Instant,
}

/// A stream that must be read by a time.
struct Timed<'s> {
    stream: &'s UnixStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

impl Readers {
    pub(crate) fn new(helper: Arc<Helper>) -> Self {
        Self { helper, time_max: TIME_MAX, waiting: Mutex::default(), hung: Mutex::default() }
    }

    /// Has a request answered by a process of its user. Blocks, for [`TIME_MAX`] at most.
    /// `group`: the files with which this one hangs, if it does.
    pub(super) fn ask(&self, request: &Request, group: &str, bytes_max: u64) -> Reply {
        let until = clock::now() + self.time_max;
        while let Some(worker) = self.take(&request.user) {
            match talk(&worker, request, bytes_max, until) {
                // It had ended, or the account has changed since.
                Ok(Reply::OtherUser) => {}
                Err(error) if !is_late(&error) => {}
                said => return self.settle(said, worker, request, group),
            }
        }
        if let Some(why) = self.hangs(group) {
            return Reply::Trouble(why);
        }
        match self.helper.start_reader() {
            Ok(worker) => self.settle(talk(&worker, request, bytes_max, until), worker, request, group),
            Err(HandoverResult::Verdict(verdict) | HandoverResult::Gone(verdict)) => Reply::Trouble(verdict.text),
        }
    }

    fn settle(&self, said: io::Result<Reply>, worker: Worker, request: &Request, group: &str) -> Reply {
        match said {
            Ok(Reply::OtherUser) => Reply::Trouble(format!("the account of {} changes just now", name(&request.user))),
            Ok(reply) => {
                self.keep(&request.user, worker);
                reply
            }
            Err(error) if is_late(&error) => {
                let mut hung = self.hung.lock().unwrap_or_else(PoisonError::into_inner);
                hung.entry(group.into()).or_default().push(worker.kill());
                let seconds = TIME_MAX.as_secs();
                Reply::Trouble(format!("files of {} are not read within {seconds} s", name(&request.user)))
            }
            Err(error) => Reply::Trouble(format!(
                "the process that reads files of {} ended without an answer: {error}",
                name(&request.user)
            )),
        }
    }

    /// Returns why no more processes are started for some files, if so.
    fn hangs(&self, group: &str) -> Option<String> {
        let mut hung = self.hung.lock().unwrap_or_else(PoisonError::into_inner);
        hung.retain(|_, streams| {
            streams.retain(is_open);
            !streams.is_empty()
        });
        let of_group = hung.get(group).map_or(0, Vec::len);
        let all: usize = hung.values().map(Vec::len).sum();
        (of_group >= HUNG_MAX || all >= HUNG_MAX_ALL).then(|| {
            format!("{of_group} processes that read files ({group}) hang, and {all} in all; is the file system there?")
        })
    }

    /// Returns how many processes hang.
    #[cfg(test)]
    pub(super) fn hung(&self) -> usize {
        self.hung.lock().unwrap().values().map(Vec::len).sum()
    }

    fn take(&self, user: &str) -> Option<Worker> {
        let now = clock::now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| now.saturating_duration_since(one.since) < WAITING_TIME);
        let at = waiting.iter().rposition(|one| *one.user == *user)?;
        waiting.remove(at).map(|one| one.worker)
    }

    fn keep(&self, user: &str, worker: Worker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.len() >= WAITING_MAX {
            drop(waiting.pop_front());
        }
        waiting.push_back(IdleReader { user: user.into(), worker, since: clock::now() });
    }
}

const fn name(user: &str) -> &str {
    if user.is_empty() { "local.default_user" } else { user }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns whether the process at the other end lives.
fn is_open(stream: &UnixStream) -> bool {
    let mut wait = [PollFd::new(stream, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut wait, Some(&at_once)), Ok(1..))
}

fn talk(worker: &Worker, request: &Request, bytes_max: u64, until: Instant) -> io::Result<Reply> {
    let stream = worker.stream();
    stream.set_write_timeout(Some(TIME_MAX))?;
    request.send(&mut &*stream)?;
    Reply::receive(&mut BufReader::new(Timed { stream, until }), bytes_max)
}

#[cfg(test)]
mod tests {
    use super::super::request::What;
    use super::*;
    use ::local::privileged::{HelperRequest, receive_request};
    use os::test_deadline::TestDeadline;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::sync::mpsc::{Receiver, channel};

    /// The wait for what hangs.
    const SHORT: Duration = Duration::from_millis(50);
    /// The wait for answers, on a machine that is busy with something else too.
    const SOON: Duration = Duration::from_secs(60);

    fn request(user: &str) -> Request {
        Request { user: user.to_owned(), what: What::Forward { detail: None }, known: None }
    }

    /// Starts a thread for each process: one of joe's hangs, one of bob's ends, others answer. The receiver gets the
    /// descriptors of those that were started.
    fn helper() -> (Readers, Receiver<OwnedFd>) {
        let (helper, control) = Helper::socket_pair().unwrap();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            while let Ok(HelperRequest::Reader(stream, _leash)) = receive_request(control.as_fd()) {
                tell.send(stream.try_clone().unwrap()).unwrap();
                std::thread::spawn(move || {
                    let stream = UnixStream::from(stream);
                    while let Ok(Some(request)) = Request::receive(&mut &stream) {
                        match request.user.as_str() {
                            "joe" => return,
                            "bob" => return stream.shutdown(std::net::Shutdown::Both).unwrap(),
                            _ => Reply::Absent.send(&mut &stream).unwrap(),
                        }
                    }
                });
            }
        });
        (Readers { time_max: SOON, ..Readers::new(Arc::new(helper)) }, told)
    }

    #[test]
    fn what_hangs_is_counted_until_it_is_gone() {
        let (mut readers, started) = helper();
        let asked = |readers: &Readers, user: &str| match readers.ask(&request(user), &format!("user {user}"), 10) {
            Reply::Trouble(why) => why,
            other => format!("{other:?}"),
        };
        let mut hung = Vec::new();
        readers.time_max = SHORT;
        for _ in 0..HUNG_MAX {
            assert!(asked(&readers, "joe").contains("not read within"));
            hung.push(started.recv().unwrap());
        }
        for _ in 0..3 {
            assert!(asked(&readers, "joe").contains("hang"), "no more are started");
        }
        readers.time_max = SOON;
        assert_eq!((asked(&readers, "ann").as_str(), readers.hung()), ("Absent", HUNG_MAX));
        started.recv().unwrap();
        assert!(started.try_recv().is_err());
        // The kernel has let one go, as soon as its own end is closed too.
        drop(hung.pop());
        let patience = TestDeadline::new("one that is gone still counts");
        while readers.hangs("user joe").is_some() {
            patience.check();
        }
        readers.time_max = SHORT;
        assert!(asked(&readers, "joe").contains("not read within"));
        started.recv().unwrap();
    }

    #[test]
    fn a_process_answers_again_and_one_that_ended_says_so() {
        let (readers, started) = helper();
        for _ in 0..3 {
            assert_eq!(readers.ask(&request("ann"), "user ann", 10), Reply::Absent);
        }
        started.recv().unwrap();
        assert!(started.try_recv().is_err(), "one served all three");
        let Reply::Trouble(why) = readers.ask(&request("bob"), "user bob", 10) else { panic!() };
        assert!(why.contains("ended without an answer"), "{why}");
    }
}
