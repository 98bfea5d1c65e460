//! Queue of lines and orders between callers and the writer, in one order.
//!
//! Callers copy their line under a short lock. They wake the writer only when it sleeps; while lines keep coming it
//! looks for them by itself ([`NAP`]), so that a storm costs no system call per line. The number of lines that are
//! not written yet, waiting or taken by the writer, is bounded.

use super::render::Style;
use super::target::Lines;
use super::{Local, Target};
use arc_swap::ArcSwap;
use observe::Event;
use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the writer lets lines gather when there were some just now: the greatest delay of a line in a storm.
const NAP: Duration = Duration::from_millis(2);
/// Memory that is kept for the next lines.
const SPARE_MAX: usize = 1 << 20;

/// Something for the writer to do.
pub(super) enum Work {
    /// Write these.
    Lines(Lines),
    /// Open or connect again.
    Reopen,
    /// Look whether the file is still the one at its path.
    Check,
    /// Later lines go to this target.
    Switch(Target),
    /// Say that everything before is done.
    Flush(SyncSender<()>),
    /// Say so and end.
    Close(SyncSender<()>),
}

/// Result of queueing a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It will be written. Or the log is closed, and no writer takes it.
    Taken,
    /// There was no room.
    Dropped,
    /// It was made for settings that are not in force any more.
    Stale,
}

pub(super) struct Queue {
    state: Mutex<LogQueueState>,
    wake: Condvar,
    /// The style that lines need. Changed under the lock of `state`, read without.
    style: ArcSwap<Style>,
}

struct LogQueueState {
    work: VecDeque<Work>,
    lines_max: usize,
    /// Lines waiting or in the writer's hands.
    lines: usize,
    /// Lines lost since the last line that gave their number.
    dropped: u64,
    /// The writer waits for a call.
    sleeping: bool,
    /// The queue has other work than lines.
    control: bool,
    closed: bool,
    spare: Lines,
}

impl LogQueueState {
    fn push(&mut self, line: &str) {
        self.lines += 1;
        if let Some(Work::Lines(lines)) = self.work.back_mut() {
            lines.push(line);
            return;
        }
        let mut lines = std::mem::take(&mut self.spare);
        lines.push(line);
        self.work.push_back(Work::Lines(lines));
    }

    /// Adds a line with the number of lost lines at the end of the queue.
    fn say_dropped(&mut self, style: &Arc<Style>, now_us: u64) {
        if self.dropped == 0 || self.closed {
            return;
        }
        let mut local = Local::default();
        local.render(style, &Event::LogDropped { lines: self.dropped }, now_us);
        self.dropped = 0;
        self.push(local.line());
    }
}

impl Queue {
    pub(super) fn new(style: Style, lines_max: usize) -> Self {
        let state = LogQueueState {
            work: VecDeque::new(),
            lines_max,
            lines: 0,
            dropped: 0,
            sleeping: false,
            control: false,
            closed: false,
            spare: Lines::default(),
        };
        Self { state: Mutex::new(state), wake: Condvar::new(), style: ArcSwap::from_pointee(style) }
    }

    /// Returns the style that lines need.
    pub(super) fn style(&self) -> arc_swap::Guard<Arc<Style>> {
        self.style.load()
    }

    /// Puts a line of this style at the end.
    pub(super) fn push(&self, style: &Arc<Style>, line: &str) -> Pushed {
        let mut state = self.lock();
        if state.closed {
            return Pushed::Taken;
        }
        if !Arc::ptr_eq(&self.style.load(), style) {
            return Pushed::Stale;
        }
        if state.lines >= state.lines_max {
            state.dropped += 1;
            return Pushed::Dropped;
        }
        state.push(line);
        self.wake_if_asleep(state);
        Pushed::Taken
    }

    /// Asks the writer to look at its file. While it has not done that, another call adds nothing.
    pub(super) fn request_file_check(&self) {
        let mut state = self.lock();
        if !state.closed && !state.work.iter().any(|work| matches!(work, Work::Check)) {
            state.work.push_back(Work::Check);
            state.control = true;
        }
        self.wake(state);
    }

    /// Adds other work at the end; there is always room for it.
    pub(super) fn push_control(&self, work: Work) {
        let mut state = self.lock();
        // A caller that waits for an answer learns from the dropped channel that there is no writer.
        if !state.closed {
            state.work.push_back(work);
            state.control = true;
        }
        self.wake(state);
    }

    /// Sets the style and the target of later lines.
    pub(super) fn set_style_and_target(&self, style: Style, lines_max: usize, target: Target) {
        let mut state = self.lock();
        self.style.store(Arc::new(style));
        state.lines_max = lines_max;
        state.work.push_back(Work::Switch(target));
        state.control = true;
        self.wake(state);
    }

    /// Waits for work and takes all of it. `busy`: there was some a moment ago.
    pub(super) fn wait_for_work(&self, into: &mut VecDeque<Work>, busy: bool) {
        let mut state = self.lock();
        if busy && !state.control {
            let napped = self.wake.wait_timeout_while(state, NAP, |state| !state.control);
            state = napped.unwrap_or_else(PoisonError::into_inner).0;
        }
        while state.work.is_empty() {
            state.sleeping = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.sleeping = false;
        state.control = false;
        into.append(&mut state.work);
    }

    /// Waits for other work than lines, or until the time has passed; takes all there is.
    pub(super) fn take_control(&self, into: &mut VecDeque<Work>, time_max: Duration) {
        let waited = self.wake.wait_timeout_while(self.lock(), time_max, |state| !state.control);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.control = false;
        into.append(&mut state.work);
    }

    /// Notes that lines were written: there is room again.
    pub(super) fn mark_written(&self, mut lines: Lines, now_us: u64) {
        let mut state = self.lock();
        state.lines = state.lines.saturating_sub(lines.count());
        state.dropped += lines.skipped();
        state.say_dropped(&self.style.load(), now_us);
        if lines.capacity() <= SPARE_MAX {
            lines.clear();
            state.spare = lines;
        }
    }

    /// Returns how many lines are not written yet.
    pub(super) fn waiting_lines(&self) -> usize {
        self.lock().lines
    }

    /// Notes that lines were given up. Returns how many were lost.
    pub(super) fn mark_lost(&self, lines: &Lines) -> u64 {
        let lost = lines.unwritten() + lines.skipped();
        let mut state = self.lock();
        state.lines = state.lines.saturating_sub(lines.count());
        state.dropped += lost;
        lost
    }

    /// Marks the target as changed; the new one gets the number of lines that the old one lost.
    pub(super) fn mark_switched(&self, now_us: u64) {
        self.lock().say_dropped(&self.style.load(), now_us);
    }

    /// Closes the queue to further lines. Returns the work that came in the meantime.
    pub(super) fn close(&self) -> VecDeque<Work> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.work)
    }

    fn wake_if_asleep(&self, mut state: MutexGuard<'_, LogQueueState>) {
        if state.sleeping {
            state.sleeping = false;
            self.wake(state);
        }
    }

    fn wake(&self, state: MutexGuard<'_, LogQueueState>) {
        drop(state);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, LogQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
