//! The last attempts that failed, for the page.

use crate::answers::{ErrorLine, ErrorsAnswer};
use crate::history::host;
use observe::{Event, Stat};
use os::clock;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Attempts that are remembered.
const ERRORS_MAX: usize = 10;
/// Characters of a reply that are remembered.
const TEXT_MAX: usize = 300;

/// The last attempts that failed or are repeated.
///
/// An event that another thread records at the same moment is not remembered: no delivery waits for this.
#[derive(Debug, Default)]
pub struct RecentErrors(Mutex<VecDeque<ErrorLine>>);

impl RecentErrors {
    /// Remembers an attempt that failed.
    pub fn record(&self, event: &Event<'_>) {
        let Event::Delivery { id, to, relay, stat, .. } = *event else { return };
        let (result, text) = match stat {
            Stat::Sent(_) => return,
            Stat::Deferred(text) => ("deferred", text),
            Stat::Failed(text) => ("failed", text),
        };
        let Ok(mut errors) = self.0.try_lock() else { return };
        errors.truncate(ERRORS_MAX - 1);
        errors.push_front(ErrorLine {
            time: clock::unix_us() / 1_000_000,
            id: id.to_string(),
            to: to.first().map(|to| (*to).to_owned()).unwrap_or_default(),
            recipients: u64::try_from(to.len()).unwrap_or(u64::MAX),
            host: host(relay),
            result: result.to_owned(),
            text: text.chars().take(TEXT_MAX).collect(),
        });
    }

    /// Remembers those of an earlier run, the newest first, behind those of this one.
    pub fn remember_earlier(&self, earlier: Vec<ErrorLine>) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = ERRORS_MAX.saturating_sub(errors.len());
        errors.extend(earlier.into_iter().take(room));
    }

    /// Returns them, the newest first.
    #[must_use]
    pub fn answer(&self) -> ErrorsAnswer {
        let errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ErrorsAnswer { errors: errors.iter().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use observe::NextHop;
    use std::time::Duration;

    fn delivery<'a>(to: &'a [&'a str], stat: Stat<'a>) -> Event<'a> {
        Event::Delivery {
            id: mail::QueueId::MIN,
            to,
            controller: None,
            delay: Duration::ZERO,
            xdelay: Duration::ZERO,
            phases: mail::PhaseTimes::default(),
            mailer: "esmtp",
            priority: 0,
            relay: NextHop::Host { name: Some("mx.test"), address: [192, 0, 2, 1].into() },
            dsn: mail::EnhancedCode::of(mail::Outcome::Transient, 0, 0),
            reply: None,
            stat,
            reason: None,
        }
    }

    #[test]
    fn the_last_failures_are_remembered() {
        let errors = RecentErrors::default();
        errors.record(&delivery(&["<a@b.test>"], Stat::Sent("ok")));
        assert_eq!(errors.answer(), ErrorsAnswer::default());
        for number in 0..15 {
            let long = format!("451 {number} {}", "x".repeat(1_000));
            errors.record(&delivery(&["<a@b.test>", "<c@b.test>"], Stat::Deferred(&long)));
        }
        errors.record(&delivery(&["<a@b.test>"], Stat::Failed("550 no")));
        let found = errors.answer().errors;
        assert_eq!(found.len(), ERRORS_MAX);
        let first = &found[0];
        assert_eq!(
            (first.result.as_str(), first.text.as_str(), first.host.as_str()),
            ("failed", "550 no", "mx.test [192.0.2.1]")
        );
        assert!(found[1].text.starts_with("451 14 ") && found[1].text.len() == TEXT_MAX && found[1].recipients == 2);
    }
}
