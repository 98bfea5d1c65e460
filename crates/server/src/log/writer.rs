//! The thread that writes the log.
//!
//! The writer takes all waiting lines and writes them at once. When the target fails, the writer reports that once on
//! standard error, keeps the lines and tries again each second, or at once when it gets the order to open the file
//! again; meanwhile the queue fills up and then drops lines. A change of settings, and the end, do not wait for a
//! target that fails: lines that it does not take at one more attempt are lost and counted.

use super::queue::Work;
use super::target::{Lines, Sink};
use super::{LogError, LogState, Target};
use observe::Event;
use os::clock;
use os::error::words;
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::time::Duration;

/// Between two attempts to use a target that fails.
const RETRY: Duration = Duration::from_secs(1);

/// Writes until it gets the order to close.
pub(super) fn run(shared: &LogState, target: &Target) {
    let mut writer = Writer { shared, sink: Sink::new(target), work: VecDeque::new(), failing: false, moved: None };
    // Opened before the first line, so that a wrong path is known at the start.
    writer.reopen();
    let mut busy = false;
    loop {
        shared.queue.wait_for_work(&mut writer.work, busy);
        busy = true;
        while let Some(work) = writer.work.pop_front() {
            match work {
                Work::Lines(lines) => writer.write(lines),
                Work::Reopen => writer.reopen(),
                Work::Check => writer.follow_file(),
                Work::Switch(target) => writer.switch(&target),
                // The caller may have stopped waiting; that is no fault.
                Work::Flush(done) => {
                    done.try_send(()).ok();
                }
                Work::Close(done) => {
                    writer.finish();
                    done.try_send(()).ok();
                    return;
                }
            }
        }
    }
}

struct Writer<'a> {
    shared: &'a LogState,
    sink: Sink,
    /// Taken from the queue and not done.
    work: VecDeque<Work>,
    /// The last attempt to use the target failed, and standard error has a line about it.
    failing: bool,
    /// Lines go to a file that is at its path no more, and why there is no other.
    moved: Option<LogError>,
}

impl Writer<'_> {
    fn write(&mut self, mut lines: Lines) {
        let Err(error) = self.sink.write(&mut lines) else {
            self.recovers();
            self.count_lost(lines.skipped());
            self.shared.queue.mark_written(lines, clock::unix_us());
            return;
        };
        self.complain(&error);
        if self.work.iter().any(|work| matches!(work, Work::Switch(_) | Work::Flush(_) | Work::Close(_))) {
            let lost = self.shared.queue.mark_lost(&lines);
            self.count_lost(lost);
            return;
        }
        self.shared.queue.take_control(&mut self.work, RETRY);
        if let Some(at) = self.work.iter().position(|work| matches!(work, Work::Reopen)) {
            self.work.remove(at);
            self.reopen();
            lines.restart_partial_line();
        }
        self.work.push_front(Work::Lines(lines));
    }

    /// Writes the lines that came since the order to close, if the target takes them.
    fn finish(&mut self) {
        let late = self.shared.queue.close();
        for work in std::mem::take(&mut self.work).into_iter().chain(late) {
            if let Work::Lines(mut lines) = work
                && self.sink.write(&mut lines).is_err()
            {
                self.count_lost(lines.unwritten());
            }
        }
    }

    fn count_lost(&self, lines: u64) {
        if lines > 0 {
            self.shared.count(&Event::LogDropped { lines });
        }
    }

    fn reopen(&mut self) {
        match self.sink.reopen() {
            Ok(()) => self.found(),
            Err(error) => self.complain(&error),
        }
    }

    /// Opens the file again if it is not the one at its path. Where that fails, lines go on into the old one, and the
    /// status says so.
    fn follow_file(&mut self) {
        if !self.sink.has_moved() {
            return self.found();
        }
        match self.sink.reopen() {
            Ok(()) => self.found(),
            Err(error) if self.moved.is_none() => {
                let reason = format!(
                    "the file was renamed or deleted and cannot be made anew: {}; lines go into the old one: make the file, \
                     writable for the user of mailrace, and run mailrace reload",
                    words(&error)
                );
                let trouble = LogError { target: self.sink.name(), reason };
                io::stderr()
                    .write_all(format!("mailrace: log: {}: {}\n", trouble.target, trouble.reason).as_bytes())
                    .ok();
                self.moved = Some(trouble.clone());
                self.shared.set_trouble(Some(trouble));
            }
            Err(_) => {}
        }
    }

    /// The file is the one at its path.
    fn found(&mut self) {
        if self.moved.take().is_some() && !self.failing {
            self.shared.set_trouble(None);
        }
    }

    fn switch(&mut self, target: &Target) {
        self.sink = Sink::new(target);
        self.moved = None;
        self.recovers();
        self.reopen();
        self.shared.queue.mark_switched(clock::unix_us());
    }

    fn recovers(&mut self) {
        if std::mem::take(&mut self.failing) {
            self.shared.set_trouble(self.moved.clone());
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if self.failing {
            return;
        }
        self.failing = true;
        let target = self.sink.name();
        let why = words(error);
        let text = format!("mailrace: log: {target}: {why}; tried again each second, mail goes on without a log\n");
        self.shared.set_trouble(Some(LogError { target, reason: why }));
        // If even that cannot be written, there is no other place for the message.
        io::stderr().write_all(text.as_bytes()).ok();
    }
}
