//! The server's time, by which mail ages, retries and expires, and by which queue ids are made.
//!
//! `schedule::ServerTime` decides on the wall clock; here is the clock that runs on, and the file `clock` of the spool
//! directory, from which the next server knows the last time. Trace fields, reports and the log have the wall clock.

use crate::config::Config;
use crate::state_file::StateFile;
use mail::Envelope;
use os::clock;
use schedule::{ClockEvent, ClockStep, ClockSteps, SERVER_TIME_BYTES_MAX, ServerTime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A time before the build of this program, 2026-06-01 in UTC: each release raises it, as `xtask tidy` demands. It is
/// no later than the sources, so that a build that is repeated is the same.
const BUILD: Duration = Duration::from_secs(1_780_272_000);
/// The file, in the spool directory.
const FILE: &str = "clock";
/// Content of the file, for messages to the operator.
const WHAT: &str = "the last known time";
/// Time between two writes of the file, which no event demands.
const SAVE_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Ids of this time after `BUILD` are of a server that had no plausible clock.
const BUILD_IDS: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A queue id that lies further ahead was made under a clock that ran ahead.
const AHEAD: Duration = Duration::from_secs(24 * 3_600);

/// The clock of one server.
#[derive(Debug)]
pub struct ServerClock {
    /// The time at `began`, in microseconds since 1970.
    epoch_us: AtomicU64,
    began: Instant,
    time: Mutex<ServerTime>,
    file: StateFile,
    /// When the file was last due, in microseconds of this clock.
    saved_us: AtomicU64,
}

impl ServerClock {
    /// Makes a clock that believes the wall clock at its start, and keeps nothing.
    pub(crate) fn forgetful() -> Self {
        Self::starting(ServerTime::of_wall(Duration::from_micros(clock::unix_us())), StateFile::default())
    }

    /// Continues the clock of the last server. `newest`: the time of the newest queue id. Returns messages for the
    /// operator.
    pub(crate) fn open(config: &Config, newest: Option<Duration>) -> (Self, Vec<String>) {
        let file = StateFile::new(&config.spool.path, FILE, WHAT);
        let mut texts = Vec::new();
        let last = match file.read(SERVER_TIME_BYTES_MAX) {
            Ok(Some(bytes)) => {
                let last = str::from_utf8(&bytes).ok().and_then(ServerTime::from_text);
                if last.is_none() {
                    texts.push(file.unreadable_text(false, "it is damaged"));
                }
                last
            }
            Ok(None) => None,
            Err(problem) => {
                texts.push(problem);
                None
            }
        };
        let wall = Duration::from_micros(clock::unix_us());
        // The file is not synced: after a power cut only the ids say that there was no plausible clock.
        let of_build = newest.filter(|newest| (BUILD..BUILD + BUILD_IDS).contains(newest));
        let last = last.or_else(|| of_build.map(ServerTime::of_build));
        let known = last.as_ref().map(ServerTime::at);
        let (mut time, event) = ServerTime::begin(last, wall, BUILD);
        texts.extend(event.map(|event| text_of(event, known.unwrap_or(BUILD), wall)));
        let is_ahead = newest.is_some_and(|newest| newest > time.at() + AHEAD);
        if is_ahead && time.steps().ahead_since().is_none() {
            texts.push(format!(
                "clock: the spool has mail of {}, which is to come: it counts as accepted now",
                date(newest.unwrap_or_default())
            ));
        }
        time.set_ahead(is_ahead);
        file.mark_changed();
        let clock = Self::starting(time, file);
        texts.extend(clock.save().err());
        (clock, texts)
    }

    fn starting(time: ServerTime, file: StateFile) -> Self {
        let epoch_us = AtomicU64::new(micros(time.at()));
        let saved_us = AtomicU64::new(micros(time.at()));
        Self { epoch_us, began: clock::now(), time: Mutex::new(time), file, saved_us }
    }

    /// Returns the time since 1970. It goes on evenly, but for a step forward when an implausible wall clock is right
    /// again.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_micros(self.epoch_us.load(Ordering::Acquire))
            + clock::now().saturating_duration_since(self.began)
    }

    /// Looks at the wall clock. Returns a message for the operator, and whether the steps have changed.
    pub(crate) fn look(&self) -> (Option<String>, bool) {
        self.look_at(Duration::from_micros(clock::unix_us()))
    }

    fn look_at(&self, wall: Duration) -> (Option<String>, bool) {
        let mut time = self.lock();
        let now = self.now();
        let event = time.observe(now, wall, BUILD);
        if time.at() > now {
            self.epoch_us.fetch_add(micros(time.at() - now), Ordering::AcqRel);
        }
        drop(time);
        let is_due = micros(now).saturating_sub(self.saved_us.load(Ordering::Relaxed)) >= micros(SAVE_INTERVAL);
        if event.is_some() || is_due {
            self.saved_us.store(micros(now), Ordering::Relaxed);
            self.file.mark_changed();
        }
        (event.map(|event| text_of(event, now, wall)), matches!(event, Some(ClockEvent::Accepted(_))))
    }

    /// Has the next save write the file.
    pub(crate) fn save_soon(&self) {
        self.file.mark_changed();
    }

    /// Returns the steps of the wall clock, which are no age of mail.
    pub(crate) fn steps(&self) -> ClockSteps {
        self.lock().steps().clone()
    }

    /// Returns the time from which the age of a message counts that has a time of `at`.
    pub(crate) fn counts_from(&self, at: Duration) -> Duration {
        self.lock().steps().counts_from(at, self.now())
    }

    /// Returns the present time as the message counts it: less the steps of the clock since it waits.
    pub(crate) fn now_of(&self, envelope: &Envelope) -> Duration {
        let (since, now) = (envelope.waits_since(), self.now());
        let counts_from = self.lock().steps().counts_from(since, now);
        (now + since).saturating_sub(counts_from)
    }

    /// Returns a time of the message, as its deadline, by this clock.
    pub(crate) fn time_of(&self, envelope: &Envelope, at: Duration) -> Duration {
        let since = envelope.waits_since();
        (at + self.counts_from(since)).saturating_sub(since)
    }

    /// Returns the wall clock if it is implausible, or has jumped.
    pub(crate) fn doubted(&self) -> Option<Duration> {
        self.lock().doubted()
    }

    /// Returns the age of a file that another process wrote at `written` by the wall clock. Zero where that says
    /// nothing: the wall clock is doubted, or had not been set when the file was written.
    pub(crate) fn age_of_file(&self, written: Duration) -> Duration {
        if written < BUILD || self.doubted().is_some() {
            return Duration::ZERO;
        }
        self.now().saturating_sub(self.counts_from(written))
    }

    /// Writes the file if it is due.
    ///
    /// # Errors
    /// As [`StateFile::save`].
    pub(crate) fn save(&self) -> Result<(), String> {
        self.file.save(|| self.lock().to_text().into_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, ServerTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn date(time: Duration) -> String {
    mail::submission::date(micros(time), 0)
}

/// Returns the message for the operator. `now`: the server's time.
fn text_of(event: ClockEvent, now: Duration, wall: Duration) -> String {
    let (now, wall) = (date(now), date(wall));
    match event {
        ClockEvent::Implausible => format!(
            "clock: the machine's clock says {wall}, which is not plausible after {now}: mail ages by the time that the server runs, from then on; set the clock"
        ),
        ClockEvent::Jumped => format!(
            "clock: the machine's clock has jumped to {wall}, or the machine slept; by the time that passed it is {now}, and the age of mail goes by that"
        ),
        ClockEvent::Accepted(ClockStep { from, to }) => format!(
            "clock: the machine's clock says {wall} and counts from now on; the step from {} to {} is no age of mail",
            date(from),
            date(to)
        ),
        ClockEvent::NextStart => format!(
            "clock: the machine's clock has said a time before {now} for a day, now {wall}: the next start of the server takes it"
        ),
    }
}

#[cfg(test)]
mod tests;
