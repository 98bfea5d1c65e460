//! The statistics of the running server, fed with its events.

use crate::answers::{StatisticsAnswer, StormLine, StormsAnswer};
use crate::history::HistoryWindow;
use observe::Event;
use observe::stats::{Counts, Fact, Statistics, WindowSizes, find_storms};
use os::clock;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Messages, recipients or deliveries from which on a minute belongs to a storm.
const STORM_MINUTE: u64 = 1_000;
/// Storms of an answer.
const STORMS_MAX: usize = 20;

/// Sums of the mail since the start.
///
/// Times are civil, as in the log, so that an hour is an hour of the operator. One lock is held for the time of some
/// additions; events without a fact of mail do not take it.
#[derive(Debug)]
pub struct LiveStatistics(Mutex<LiveSums>);

#[derive(Debug)]
struct LiveSums {
    sums: Statistics,
    since: i64,
    /// The minute of wall time for which the offset is known.
    minute: u64,
    offset: i64,
    latest: i64,
}

impl LiveSums {
    /// Returns the civil time. Where it steps back, at the end of summer time or by a correction of the clock, windows
    /// that begin later are dropped.
    fn civil(&mut self, now_us: u64) -> i64 {
        let minute = now_us / 60_000_000;
        if minute != self.minute {
            (self.minute, self.offset) = (minute, clock::local_offset_seconds(now_us).into());
        }
        let time = i64::try_from(now_us / 1_000_000).unwrap_or(0) + self.offset;
        // Another thread may have read the clock in the second after this one.
        if time < self.latest.saturating_sub(1) {
            let Statistics { seconds, minutes, hours, .. } = &mut self.sums;
            [seconds, minutes, hours].into_iter().for_each(|series| series.restart_before(time));
            self.latest = time;
        }
        self.latest = self.latest.max(time);
        time
    }
}

impl LiveStatistics {
    /// Begins with nothing, at this time of the wall clock in microseconds since 1970.
    #[must_use]
    pub fn new(now_us: u64) -> Self {
        let sums = Statistics::new(WindowSizes::LIVE);
        let mut live = LiveSums { sums, since: 0, minute: u64::MAX, offset: 0, latest: i64::MIN };
        live.since = live.civil(now_us);
        Self(Mutex::new(live))
    }

    /// Counts an event of now.
    pub fn record(&self, event: &Event<'_>) {
        Fact::of_event(event, |fact| {
            let now_us = clock::unix_us();
            let mut live = self.lock();
            let time = live.civil(now_us);
            live.sums.record(time, fact);
        });
    }

    /// Counts the octets of a message that a next hop has taken now.
    pub fn count_sent(&self, bytes: u64) {
        let now_us = clock::unix_us();
        let mut live = self.lock();
        let time = live.civil(now_us);
        live.sums.add_sent_bytes(time, bytes);
    }

    /// Returns the storms of now.
    #[must_use]
    pub fn storms(&self) -> StormsAnswer {
        let now_us = clock::unix_us();
        let mut live = self.lock();
        let now = live.civil(now_us);
        let minutes = &live.sums.minutes;
        let found = find_storms(minutes, now, STORM_MINUTE);
        let storms = found.iter().take(STORMS_MAX).map(|storm| StormLine::of(storm, minutes)).collect();
        StormsAnswer { now, least: STORM_MINUTE, storms }
    }

    /// Adds windows of earlier runs, so that charts go on where they ended. The sums since the start stay.
    pub fn add_earlier(&self, windows: &[HistoryWindow]) {
        let mut live = self.lock();
        let Statistics { seconds, minutes, hours, .. } = &mut live.sums;
        let mut all = [seconds, minutes, hours];
        for window in windows {
            let series = all.iter_mut().find(|series| series.step() == window.step);
            if let Some(counts) = series.and_then(|series| series.window_at(window.begin)) {
                counts.add(&window.counts);
            }
        }
    }

    /// Returns the windows with mail that begin in these seconds or later, given for each length of a window, and the
    /// beginnings of the last ones, from which to ask the next time.
    #[must_use]
    pub fn windows_from(&self, from: [i64; 3]) -> (Vec<HistoryWindow>, [i64; 3]) {
        let live = self.lock();
        let Statistics { seconds, minutes, hours, .. } = &live.sums;
        let (mut windows, mut last) = (Vec::new(), from);
        for ((series, from), last) in [seconds, minutes, hours].into_iter().zip(from).zip(&mut last) {
            for slot in series.slots().rev().take_while(|slot| slot.begin >= from) {
                *last = slot.begin.max(*last);
                if slot.counts != Counts::default() {
                    windows.push(HistoryWindow { step: series.step(), begin: slot.begin, counts: slot.counts });
                }
            }
        }
        (windows, last)
    }

    /// Returns the answer of now.
    #[must_use]
    pub fn answer(&self) -> StatisticsAnswer {
        let now_us = clock::unix_us();
        let mut live = self.lock();
        let now = live.civil(now_us);
        // Windows up to now, also if no mail has come since.
        let Statistics { seconds, minutes, hours, .. } = &mut live.sums;
        for series in [seconds, minutes, hours] {
            series.window_at(now);
        }
        StatisticsAnswer::of(&live.sums, now, live.since)
    }

    fn lock(&self) -> MutexGuard<'_, LiveSums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{from_line, to_fields};
    use serde_json::Value;

    #[test]
    fn mail_counts_after_the_clock_was_set_back() {
        let day = 86_400_000_000;
        let live = LiveStatistics::new(1_000 * day);
        let count = |now_us: u64| {
            let mut sums = live.lock();
            let time = sums.civil(now_us);
            sums.sums.add_sent_bytes(time, 1);
        };
        count(1_000 * day);
        // Ten years ahead, and back.
        count(4_650 * day);
        for _ in 0..3 {
            count(1_001 * day);
        }
        let sums = &live.lock().sums;
        let bytes = |counts: Counts| counts.sent_bytes;
        let series = [&sums.seconds, &sums.minutes, &sums.hours];
        assert_eq!(series.map(|series| bytes(series.total())), [3, 3, 3]);
        assert_eq!(bytes(sums.total), 5);
    }

    #[test]
    fn windows_of_earlier_runs_are_added_and_given_again() {
        let (first, now_us) = (LiveStatistics::new(clock::unix_us()), clock::unix_us());
        let count = |live: &LiveStatistics, ahead: u64, bytes| {
            let mut live = live.lock();
            let time = live.civil(now_us + ahead * 1_000_000);
            live.sums.add_sent_bytes(time, bytes);
        };
        count(&first, 0, 7);
        let (windows, last) = first.windows_from([i64::MIN; 3]);
        assert_eq!(
            windows.iter().map(|one| (one.step, one.counts.sent_bytes)).collect::<Vec<_>>(),
            [(1, 7), (60, 7), (3_600, 7)]
        );
        // The last window of each length is not over: it is given again, with what has come since.
        count(&first, 1, 2);
        let (again, _) = first.windows_from(last);
        assert_eq!(
            again.iter().filter(|one| one.step == 1).map(|one| one.counts.sent_bytes).collect::<Vec<_>>(),
            [2, 7]
        );
        let second = LiveStatistics::new(now_us);
        second.add_earlier(&windows);
        count(&second, 0, 1);
        assert_eq!(second.windows_from([i64::MIN; 3]).0.first().map(|one| one.counts.sent_bytes), Some(8));
        assert_eq!(second.answer().sums().total.sent_bytes, 1, "sums since the start");
    }

    #[test]
    fn an_answer_has_what_was_counted() {
        let live = LiveStatistics::new(clock::unix_us());
        live.record(&Event::Accepted {
            id: mail::QueueId::MIN,
            from: "<a@b.test>",
            size: 70,
            class: 0,
            nrcpts: 3,
            msgid: None,
            bodytype: None,
            mt_priority: None,
            protocol: mail::Protocol::Local,
            daemon: "MTA",
            identity: None,
            relay: observe::Relay::Local { user: "ann" },
        });
        live.count_sent(70);
        let answer = live.answer();
        let again: StatisticsAnswer = from_line(&Value::Object(to_fields(&answer))).unwrap();
        assert_eq!(again, answer);
        let sums = again.sums();
        assert_eq!((sums.total.arrivals, sums.total.arrived_recipients, sums.total.sent_bytes), (1, 3, 70));
        assert_eq!(sums.seconds.total(), sums.total);
        assert_eq!(sums.hours.total(), sums.total);
        assert_eq!(sums.senders.most(1).first().map(|one| one.name.clone()), Some("a@b.test".to_owned()));
    }
}
