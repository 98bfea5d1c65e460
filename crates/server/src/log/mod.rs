//! The log of the server: turns events into lines; callers do not wait for it.
//!
//! A caller renders its line itself ([`render`]) and puts it into a bounded queue ([`queue`]) behind one short lock;
//! one thread ([`writer`]) takes all waiting lines and writes them at once to the target ([`target`]). When the
//! target is slower than the mail, lines are dropped and counted, and a line gives their number. Lines of one caller
//! keep their order.
//!
//! Every event moves the counters, whether its line is written or not, so the metrics cannot disagree with the log.
//! Not here: the events and the text of their lines (`observe`), and files other than the log's own.

mod priority;
mod queue;
mod render;
mod target;
#[cfg(test)]
mod tests;
mod writer;

use crate::config;
use observe::Event;
use observe::counters::{self, Counter};
use os::clock;
pub(crate) use priority::priority;
use queue::{Pushed, Queue, Work};
pub(crate) use render::utc_text;
use render::{Local, Style};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long [`Log::flush_and_close`] waits for a target that does not take its lines.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As sendmail has them.
    Sendmail,
    /// An object each.
    Json,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Appended to; made if it is missing.
    File(PathBuf),
    /// A syslog daemon behind this datagram socket, usually [`Target::SYSLOG`].
    Syslog(PathBuf),
    /// systemd's journal behind this datagram socket, usually [`Target::JOURNALD`].
    Journald(PathBuf),
}

impl Target {
    /// Where syslog daemons listen.
    pub const SYSLOG: &str = "/dev/log";
    /// Where the journal listens.
    pub const JOURNALD: &str = "/run/systemd/journal/socket";
}

/// Settings that [`Log::reconfigure`] can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The form of lines.
    pub format: Format,
    /// Where they go.
    pub target: Target,
    /// sendmail's LogLevel: events above it are not written.
    pub level: u8,
    /// Lines that may wait for the target; more are dropped.
    pub queue_lines_max: usize,
    /// The name of the program in lines and for syslog.
    pub tag: String,
    /// syslog's number, see [`facility`].
    pub facility: u8,
    /// The name of the machine, up to its first dot as syslog daemons write it.
    pub hostname: String,
}

impl LogSettings {
    /// Takes them from the configuration. A facility that does not exist, which the configuration refuses, counts as
    /// `mail`.
    #[must_use]
    pub fn from_config(log: &config::Log, hostname: &str) -> Self {
        let format = match log.format {
            config::LogFormat::Sendmail => Format::Sendmail,
            config::LogFormat::Json => Format::Json,
        };
        let target = match &log.path {
            config::LogPath::Stdout => Target::Stdout,
            config::LogPath::Syslog => Target::Syslog(Target::SYSLOG.into()),
            config::LogPath::Journald => Target::Journald(Target::JOURNALD.into()),
            config::LogPath::File(path) => Target::File(path.clone()),
        };
        Self {
            format,
            target,
            level: log.level,
            queue_lines_max: log.queue_lines_max,
            tag: log.tag.clone(),
            facility: facility(&log.facility).unwrap_or(2),
            hostname: hostname.split('.').next().unwrap_or(hostname).to_owned(),
        }
    }
}

/// Checks that the file for lines can be opened; syslog and the journal come and go by themselves.
///
/// # Errors
/// Why it cannot be opened.
pub(crate) fn check(settings: &LogSettings) -> io::Result<()> {
    match &settings.target {
        Target::File(path) => target::open(Some(path)).map(drop),
        Target::Stdout | Target::Syslog(_) | Target::Journald(_) => Ok(()),
    }
}

/// Returns the number of a facility of syslog by its name: `mail` is 2. `None` if there is none of that name.
// RFC 5424 §6.2.1
#[must_use]
pub fn facility(name: &str) -> Option<u8> {
    const NAMES: [&str; 24] = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
        "security", "console", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    ];
    NAMES.iter().position(|known| *known == name).and_then(|number| u8::try_from(number).ok())
}

/// A handle to the log; clones are the same log. Its owner ends it with [`Log::flush_and_close`].
#[derive(Clone)]
pub struct Log {
    shared: Arc<LogState>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("level", &self.shared.level).finish_non_exhaustive()
    }
}

struct LogState {
    queue: Queue,
    level: AtomicU8,
    counters: [AtomicU64; Counter::COUNT],
    writer: Mutex<Option<JoinHandle<()>>>,
    trouble: Mutex<Option<LogError>>,
}

/// Why the log is not written now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// Where it goes: a file, a socket.
    pub target: String,
    /// The error of the system.
    pub reason: String,
}

thread_local! {
    /// The line that the thread makes, and the parts of it that change only every second.
    static LOCAL: RefCell<Local> = RefCell::new(Local::default());
}

impl Log {
    /// Starts the writer. A target that cannot be used is no error: standard error gets a line, and the writer tries
    /// again.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(settings: &LogSettings) -> io::Result<Self> {
        let log = Self {
            shared: Arc::new(LogState {
                queue: Queue::new(Style::new(settings), settings.queue_lines_max),
                level: AtomicU8::new(settings.level),
                counters: [const { AtomicU64::new(0) }; Counter::COUNT],
                writer: Mutex::new(None),
                trouble: Mutex::new(None),
            }),
        };
        let shared = Arc::clone(&log.shared);
        let target = settings.target.clone();
        let writer = std::thread::Builder::new().name("log".to_owned()).spawn(move || writer::run(&shared, &target))?;
        *log.shared.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        Ok(log)
    }

    /// Counts the event and, if its level is wanted, puts its line into the queue. Never waits for the target.
    pub fn event(&self, event: &Event<'_>) {
        self.shared.count(event);
        if event.level() > self.shared.level.load(Ordering::Relaxed) {
            return;
        }
        let sent = LOCAL.try_with(|local| {
            let Ok(mut local) = local.try_borrow_mut() else { return false };
            self.shared.send(event, &mut local);
            true
        });
        if sent != Ok(true) {
            // The thread is ending and has no such variables any more, or the event is about a panic while it made a
            // line.
            self.shared.send(event, &mut Local::default());
        }
    }

    /// True when events of this level are written; for callers whose event takes work to make.
    #[must_use]
    pub fn writes(&self, level: u8) -> bool {
        level <= self.shared.level.load(Ordering::Relaxed)
    }

    /// Returns how often it has been counted since the start.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.shared.counters.get(counter.index()).map_or(0, |value| value.load(Ordering::Relaxed))
    }

    /// Returns why the target takes nothing now; `None` while it does, or while that is unknown.
    #[must_use]
    pub fn trouble(&self) -> Option<LogError> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lines that wait for the target.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queue.waiting_lines()
    }

    /// Opens the file again, or connects again: after a rotation. Lines from before go to the old one.
    pub fn reopen(&self) {
        self.shared.queue.push_control(Work::Reopen);
    }

    /// Opens the file again if it was renamed, deleted or replaced, perhaps a moment later.
    pub fn follow_file(&self) {
        self.shared.queue.request_file_check();
    }

    /// Puts other settings in force. Lines from before keep their format and target, if these work at once.
    pub fn reconfigure(&self, settings: &LogSettings) {
        self.shared.queue.set_style_and_target(Style::new(settings), settings.queue_lines_max, settings.target.clone());
        self.shared.level.store(settings.level, Ordering::Relaxed);
    }

    /// Waits until all lines from before are written or given up, `time_max` at most. False if it took longer.
    #[must_use]
    pub fn flush(&self, time_max: Duration) -> bool {
        let (done, wait) = mpsc::sync_channel(1);
        self.shared.queue.push_control(Work::Flush(done));
        wait.recv_timeout(time_max).is_ok()
    }

    /// Writes the waiting lines and ends the writer. Events after it are counted and not written.
    ///
    /// The call waits for two seconds for a target that takes nothing; then the lines are lost, and it returns false.
    pub fn flush_and_close(&self) -> bool {
        self.flush_and_close_within(CLOSE_TIME_MAX)
    }

    fn flush_and_close_within(&self, time_max: Duration) -> bool {
        let (done, wait) = mpsc::sync_channel(1);
        self.shared.queue.push_control(Work::Close(done));
        let closed = wait.recv_timeout(time_max).is_ok();
        let writer = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match writer {
            // The last act of the writer is to confirm the close.
            Some(writer) if closed => writer.join().is_ok(),
            _ => closed,
        }
    }
}

impl LogState {
    fn set_trouble(&self, why: Option<LogError>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn count(&self, event: &Event<'_>) {
        for (counter, by) in counters::increments(event) {
            if let Some(value) = self.counters.get(counter.index()) {
                value.fetch_add(by, Ordering::Relaxed);
            }
        }
    }

    fn send(&self, event: &Event<'_>, local: &mut Local) {
        let now_us = clock::unix_us();
        let mut next = Some(*event);
        while let Some(event) = next {
            let style = self.queue.style();
            next = local.render(&style, &event, now_us);
            match self.queue.push(&style, local.line()) {
                Pushed::Taken => {}
                Pushed::Dropped => self.count(&Event::LogDropped { lines: 1 }),
                // The settings changed since: once more, in the new form.
                Pushed::Stale => next = Some(event),
            }
        }
    }
}
