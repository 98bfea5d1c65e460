//! Reports files that count for nothing to the operator: each once, until it has changed, and only some in a minute.

use os::clock;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time after which the same notice about a file is repeated.
const AGAIN: Duration = Duration::from_secs(3_600);
/// Lines about one file are so far apart, however often it changes.
const APART: Duration = Duration::from_secs(60);
/// Lines in a minute, of all files.
const MINUTE_MAX: usize = 20;
/// Files that are remembered.
const KNOWN_MAX: usize = 2_000;

type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// Notices that the operator has got.
#[derive(Default)]
pub(super) struct Notices {
    tell: OnceLock<Tell>,
    state: Mutex<NoticeState>,
}

#[derive(Default)]
struct NoticeState {
    told: HashMap<Box<str>, (Box<str>, Instant)>,
    minute: Option<Instant>,
    in_minute: usize,
    unsaid: usize,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notices").finish_non_exhaustive()
    }
}

impl Notices {
    /// Sets the receiver of notices. Called once.
    pub(super) fn go_to(&self, tell: Tell) {
        drop(self.tell.set(tell));
    }

    /// Reports `text` about a file, unless that was reported lately.
    pub(super) fn say(&self, file: &str, text: &str) {
        let now = clock::now();
        let line = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let known = state.told.get(file);
            let is_said = known.is_some_and(|(before, at)| {
                let age = now.saturating_duration_since(*at);
                age < APART || (**before == *text && age < AGAIN)
            });
            if is_said { None } else { state.line(file, text, now) }
        };
        if let (Some(line), Some(tell)) = (line, self.tell.get()) {
            tell(&line);
        }
    }
}

impl NoticeState {
    fn line(&mut self, file: &str, text: &str, now: Instant) -> Option<String> {
        if self.minute.is_none_or(|began| now.saturating_duration_since(began) >= Duration::from_secs(60)) {
            self.minute = Some(now);
            self.in_minute = 0;
        }
        if self.in_minute >= MINUTE_MAX {
            self.unsaid += 1;
            return None;
        }
        self.in_minute += 1;
        if self.told.len() >= KNOWN_MAX {
            self.told.retain(|_, (_, at)| now.saturating_duration_since(*at) < APART);
        }
        if self.told.len() >= KNOWN_MAX {
            self.told.clear();
        }
        self.told.insert(file.into(), (text.into(), now));
        let others = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            others => format!(" ({others} lines about other files were left out)"),
        };
        Some(format!("{text}{others}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_file_is_told_once_and_all_of_them_are_bounded() {
        let notices = Notices::default();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        notices.go_to(Box::new(move |line| to.lock().unwrap().push(line.to_owned())));
        for _ in 0..3 {
            notices.say("/a", "a is bad");
            notices.say("/b", "b is bad");
        }
        notices.say("/a", "a is worse");
        assert_eq!(*lines.lock().unwrap(), ["a is bad", "b is bad"]);
        for number in 0..1_000 {
            notices.say(&format!("/{number}"), "bad");
        }
        assert_eq!(lines.lock().unwrap().len(), MINUTE_MAX);
        // An hour later, and no later than a minute after that another text.
        let back = |state: &mut NoticeState, by: Duration| {
            state.minute = None;
            state.told.values_mut().for_each(|(_, at)| *at = at.checked_sub(by).unwrap_or(*at));
        };
        back(&mut notices.state.lock().unwrap(), APART);
        notices.say("/a", "a is worse");
        notices.say("/b", "b is bad");
        let told = lines.lock().unwrap().split_off(MINUTE_MAX);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("a is worse (982 lines about other files"), "{told:?}");
    }
}
