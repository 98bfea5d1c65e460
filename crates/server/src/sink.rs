//! The faults a sink plays on purpose: slow replies, refusals, silence.
//!
//! `mailrace sink` is the server with a [`crate::message_store::MessageStore`] that keeps nothing. A comparison with it
//! measures the price of storage; tests with it show how a client handles a bad host. Refusals come evenly spread by
//! count, not by chance, so that a run can be repeated.

use mail::{Reply, ReplyClass, ReplyCode};
use smtp::server::Question;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in a transaction at which a sink plays a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// After HELO, EHLO or LHLO.
    Helo,
    /// After MAIL.
    Mail,
    /// After RCPT.
    Rcpt,
    /// After DATA, or at the first BDAT.
    Data,
    /// After the final dot or the last BDAT.
    Dot,
}

impl Point {
    const NAMES: [(&'static str, Self); 5] =
        [("helo", Self::Helo), ("mail", Self::Mail), ("rcpt", Self::Rcpt), ("data", Self::Data), ("dot", Self::Dot)];

    const fn of(question: Question) -> Option<Self> {
        match question {
            Question::Helo => Some(Self::Helo),
            Question::Mail => Some(Self::Mail),
            Question::Recipient => Some(Self::Rcpt),
            Question::Data => Some(Self::Data),
            Question::Message => Some(Self::Dot),
            _ => None,
        }
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, point)| *point).ok_or_else(|| format!("{text:?} is not helo, mail, rcpt, data or dot"))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES.iter().find(|(_, point)| point == self).map_or("", |(name, _)| name))
    }
}

/// A refusal that comes at a point, for a share of the cases: `rcpt:450:10` is 450 after every tenth RCPT.
#[derive(Debug)]
pub struct SinkRefusal {
    point: Point,
    code: ReplyCode,
    percent: u64,
    asked: AtomicU64,
}

impl SinkRefusal {
    /// Returns whether this case is one of the share.
    fn strikes(&self) -> bool {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        (before + 1) * self.percent / 100 > before * self.percent / 100
    }

    fn reply(&self) -> Reply {
        let text = if self.code.class() == ReplyClass::Transient { "4.0.0" } else { "5.0.0" };
        Reply::new(self.code, None, &format!("{text} Refused by this sink, as it was told"))
    }
}

impl Clone for SinkRefusal {
    fn clone(&self) -> Self {
        Self { asked: AtomicU64::new(0), ..*self }
    }
}

impl FromStr for SinkRefusal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not POINT:CODE or POINT:CODE:PERCENT, such as rcpt:450:10");
        let mut parts = text.split(':');
        let point = parts.next().ok_or_else(wrong)?.parse()?;
        let code: u16 = parts.next().and_then(|code| code.parse().ok()).ok_or_else(wrong)?;
        let code = ReplyCode::new(code)
            .filter(|code| matches!(code.class(), ReplyClass::Transient | ReplyClass::Permanent))
            .ok_or_else(|| format!("{text:?}: a refusal has a code from 400 to 599"))?;
        let percent = match parts.next() {
            None => 100,
            Some(percent) => percent.trim_end_matches('%').parse().map_err(|_| wrong())?,
        };
        if parts.next().is_some() || percent > 100 {
            return Err(wrong());
        }
        Ok(Self { point, code, percent, asked: AtomicU64::new(0) })
    }
}

/// Faults that a sink plays.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Wait this long before the greeting.
    pub greeting_delay: Duration,
    /// Wait this long before each reply at `delay_at`; at every point if that is empty.
    pub delay: Duration,
    /// The points that `delay` is for.
    pub delay_at: Vec<Point>,
    /// Refusals; the first that strikes counts.
    pub refusals: Vec<SinkRefusal>,
    /// Never answer at this point.
    pub hang_at: Option<Point>,
}

impl Behaviour {
    /// Returns whether it has nothing to play: then it is no behaviour.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.greeting_delay.is_zero() && self.delay.is_zero() && self.refusals.is_empty() && self.hang_at.is_none()
    }

    /// Returns whether something is played at this question.
    #[must_use]
    pub(crate) fn takes_its_time(&self, question: Question) -> bool {
        Point::of(question).is_some_and(|point| {
            self.delays(point) || self.hang_at == Some(point) || self.refusals.iter().any(|one| one.point == point)
        })
    }

    /// Applies the fault of a point. A reply is the refusal to give; without one the sink goes on as a server does.
    ///
    /// # Cancel safety
    /// A dropped call leaves nothing behind but a count.
    pub(crate) async fn apply_fault(&self, question: Question) -> Option<Reply> {
        let point = Point::of(question)?;
        if self.hang_at == Some(point) {
            // The session's own time limit or the client ends it.
            std::future::pending::<()>().await;
        }
        if self.delays(point) {
            tokio::time::sleep(self.delay).await;
        }
        self.refusals.iter().find(|refusal| refusal.point == point && refusal.strikes()).map(SinkRefusal::reply)
    }

    fn delays(&self, point: Point) -> bool {
        !self.delay.is_zero() && (self.delay_at.is_empty() || self.delay_at.contains(&point))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_spread_evenly() {
        let refusal: SinkRefusal = "rcpt:450:10".parse().unwrap();
        let struck: Vec<usize> = (1..=40).filter(|_| refusal.strikes()).collect();
        assert_eq!(struck, [10, 20, 30, 40]);
        let always: SinkRefusal = "dot:554".parse().unwrap();
        assert!((0..5).all(|_| always.strikes()));
        assert_eq!(always.reply().to_string(), "554 5.0.0 Refused by this sink, as it was told");
        let never: SinkRefusal = "mail:550:0%".parse().unwrap();
        assert!((0..5).all(|_| !never.strikes()));
    }

    #[test]
    fn what_is_no_refusal() {
        for text in ["", "rcpt", "rcpt:abc", "rcpt:250", "rcpt:999", "rcpt:450:101", "rcpt:450:10:1", "quit:550"] {
            assert!(text.parse::<SinkRefusal>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_plain_sink_is_asked_nothing() {
        let plain = Behaviour::default();
        assert!(plain.is_plain());
        assert!(!plain.takes_its_time(Question::Message));
        let slow = Behaviour { delay: Duration::from_millis(20), delay_at: vec![Point::Dot], ..Behaviour::default() };
        assert!(slow.takes_its_time(Question::Message) && !slow.takes_its_time(Question::Mail));
    }
}
