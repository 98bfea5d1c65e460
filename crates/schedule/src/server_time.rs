//! The time by which mail ages, retries and expires, decided from a wall clock that may be wrong.
//!
//! While the server runs, its time goes on with the monotonic clock. The wall clock sets it at the start, and later
//! only if the server began without a plausible one. A wall clock is plausible that is not before the build of the
//! program, not before the last known time, and not more than a year after it. Otherwise the last known time goes on.
//! An implausible clock that stays for a day is accepted, but the difference is no age of mail (`clock_steps`).

use crate::clock_steps::{ClockStep, ClockSteps};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How long a server may have been off.
const OFF_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// How old a program may be that knows no later time than that of its build.
const BUILD_AGE_MAX: Duration = Duration::from_secs(20 * 366 * 24 * 3_600);
/// A difference between wall clock and server time that is no jump.
const SLACK: Duration = Duration::from_secs(3_600);
/// The first line of the file.
const MAGIC: &str = "mailrace clock 1";
/// Octets of the file at most.
pub const SERVER_TIME_BYTES_MAX: usize = 8_192;

/// The source of the server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A plausible wall clock.
    Wall,
    /// The last known time, since the wall clock is implausible.
    Known,
    /// The time of the build, since no clock was ever plausible.
    Build,
}

/// The result of an observation of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockEvent {
    /// The wall clock is implausible; the server's time is another.
    Implausible,
    /// The wall clock jumped while the server ran, whose time does not follow.
    Jumped,
    /// The server's time is that of the wall clock again. The difference is a step.
    Accepted(ClockStep),
    /// The wall clock is behind the server's time for a day: the next start takes it.
    NextStart,
}

/// The server's time at the last observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// Since 1970.
    at: Duration,
    /// The wall clock then.
    wall: Duration,
    source: Source,
    /// The wall clock is away from the server's time since then, by the server's time.
    away_since: Option<Duration>,
    /// The next start takes the wall clock as it is.
    takes_wall: bool,
    steps: ClockSteps,
}

impl ServerTime {
    /// Returns the time of a server that believes its wall clock.
    #[must_use]
    pub fn of_wall(wall: Duration) -> Self {
        let steps = ClockSteps::default();
        Self { at: wall, wall, source: Source::Wall, away_since: None, takes_wall: false, steps }
    }

    /// Returns the time of a server that never had a plausible clock, and came to this time since its build.
    #[must_use]
    pub fn of_build(at: Duration) -> Self {
        Self { source: Source::Build, ..Self::of_wall(at) }
    }

    /// Returns the time at a start: from the last server, if it left one, the wall clock, and the time of the build.
    #[must_use]
    pub fn begin(last: Option<Self>, wall: Duration, build: Duration) -> (Self, Option<ClockEvent>) {
        let is_first = last.is_none();
        let mut time = last.unwrap_or_else(|| Self { wall, ..Self::of_build(build) });
        let takes_wall = std::mem::take(&mut time.takes_wall) && wall >= build;
        let jumped = time.wall.saturating_sub(time.at);
        if !takes_wall && !time.is_plausible(wall, build) {
            if time.source == Source::Wall {
                time.source = Source::Known;
            }
            (time.wall, time.away_since) = (wall, Some(time.at));
            return (time, Some(ClockEvent::Implausible));
        }
        // The time for which the server was off is age, a jump before it is none.
        let to = match time.source {
            Source::Wall if jumped > SLACK && wall >= time.wall => time.at + jumped,
            Source::Wall => time.at,
            Source::Build if is_first => time.at,
            Source::Known | Source::Build => wall,
        };
        let step = ClockStep { from: time.at, to };
        time.steps.add(step);
        (time.at, time.wall, time.source, time.away_since) = (wall, wall, Source::Wall, None);
        (time, (to > step.from).then_some(ClockEvent::Accepted(step)))
    }

    /// Takes note of the wall clock at `now`, the server's time. Returns what an operator has to know.
    pub fn observe(&mut self, now: Duration, wall: Duration, build: Duration) -> Option<ClockEvent> {
        (self.at, self.wall) = (now, wall);
        if self.source == Source::Wall {
            if wall.abs_diff(now) <= DAY {
                (self.away_since, self.takes_wall) = (None, false);
                return None;
            }
            return self.away_since.replace(self.away_since.unwrap_or(now)).is_none().then_some(ClockEvent::Jumped);
        }
        let is_kept_for_long = now.saturating_sub(self.away_since.unwrap_or(now)) >= DAY && wall >= build;
        if !(self.is_plausible(wall, build) || is_kept_for_long && wall > now) {
            let news = is_kept_for_long && !self.takes_wall;
            self.takes_wall = is_kept_for_long;
            return news.then_some(ClockEvent::NextStart);
        }
        let step = ClockStep { from: now, to: wall };
        self.steps.add(step);
        (self.at, self.source, self.away_since) = (now.max(wall), Source::Wall, None);
        Some(ClockEvent::Accepted(step))
    }

    fn is_plausible(&self, wall: Duration, build: Duration) -> bool {
        let off_max = if self.source == Source::Build { BUILD_AGE_MAX } else { OFF_MAX };
        wall >= build && wall + DAY >= self.at && wall <= self.at.max(build) + off_max
    }

    /// The server's time at the last observation, since 1970.
    #[must_use]
    pub const fn at(&self) -> Duration {
        self.at
    }

    /// The wall clock at the last observation, if it was not the server's time.
    #[must_use]
    pub fn doubted(&self) -> Option<Duration> {
        self.away_since.map(|_| self.wall)
    }

    /// Steps that are no age of mail.
    #[must_use]
    pub const fn steps(&self) -> &ClockSteps {
        &self.steps
    }

    /// Records that there is mail from the future, or none any more.
    pub fn set_ahead(&mut self, is_ahead: bool) {
        let since = self.steps.ahead_since().unwrap_or(self.at);
        self.steps.set_ahead_since(is_ahead.then_some(since));
    }

    /// Returns the text of the file that the next server reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let source = match self.source {
            Source::Wall => "wall",
            Source::Known => "known",
            Source::Build => "build",
        };
        let us = |time: Duration| time.as_micros();
        let mut text = format!("{MAGIC}\ntime {} wall {} source {source}\n", us(self.at), us(self.wall));
        for ClockStep { from, to } in self.steps.steps() {
            text.extend([format!("step {} {}\n", us(*from), us(*to))]);
        }
        if let Some(since) = self.steps.ahead_since() {
            text.extend([format!("ahead {}\n", us(since))]);
        }
        if self.takes_wall {
            text.push_str("take wall\n");
        }
        text.push_str("end\n");
        text
    }

    /// Reads the text of the file; `None` if it is damaged.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix("end\n")?.lines();
        let us = |word: &str| word.parse().ok().map(Duration::from_micros);
        if lines.next()? != MAGIC {
            return None;
        }
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        let ["time", at, "wall", wall, "source", source] = *words.as_slice() else { return None };
        let source = match source {
            "wall" => Source::Wall,
            "known" => Source::Known,
            "build" => Source::Build,
            _ => return None,
        };
        let mut time = Self { at: us(at)?, source, ..Self::of_wall(us(wall)?) };
        for line in lines {
            match *line.split(' ').collect::<Vec<_>>().as_slice() {
                ["step", from, to] => time.steps.add(ClockStep { from: us(from)?, to: us(to)? }),
                ["ahead", since] => time.steps.set_ahead_since(Some(us(since)?)),
                ["take", "wall"] => time.takes_wall = true,
                _ => return None,
            }
        }
        Some(time)
    }
}

#[cfg(test)]
mod tests;
