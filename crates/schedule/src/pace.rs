//! The pace: the rate at which a site accepts mail, learned from its refusals.
//!
//! A *stop* begins when a site that accepted mail refuses a message: 421 to the first message of a connection, or a 4xx
//! that asks for less to a quarter of the latest messages. During a stop one message at a time is tried, after pauses
//! that double. The first accepted one ends the stop. The site sustains what it accepted before the stop, over the time
//! up to its end. A 421 to a later message of a connection starts no stop: the connection may have reached its own
//! limit, and the next one shows. While there is a pace such an end mostly cuts it. Now and then the next messages go
//! at once as a trial: if they are accepted, such ends are unrelated and cut no more.
//!
//! From then on the pace is a function of time, so no timer is needed: an eighth below the sustained rate, back there
//! after half a minute, then slowly and ever faster above it (the curve of CUBIC, RFC 9438). A short stop says little
//! about a site without a pace: the pace doubles from there until the next stop. A pace that limits nothing for two
//! minutes is forgotten.
//!
//! Not here: a site that never accepts mail, or accepted none in all pauses. It is down like an unreachable one
//! (`site`). If it keeps answering 4xx on a connection, each message has its own retry time, as without a pace.

use std::time::Duration;

use crate::chance::Chance;
use crate::settings::jitter;
use crate::token_bucket::TokenBucket;

/// The first pause of a stop is `down_first` divided by this.
const FIRST_PAUSE_DIVISOR: u32 = 128;
/// Pauses of a stop until the back-off of the site, or the retry time of each message, takes over.
const PAUSES: u32 = 4;
/// Pauses of a short stop: the site accepts another message after a moment.
const PAUSES_SHORT: u32 = 2;
/// A longer stop teaches no pace.
const STOP_MAX: Duration = Duration::from_secs(300);
/// How long the message that is tried during a stop may be without a reply before another one is tried.
const STOP_REPLY_MAX: Duration = Duration::from_secs(60);
/// Accepted messages count half after this time, and not at all after a gap of this length.
const MEMORY: Duration = Duration::from_secs(60);
/// A pace that no message waited for in this time is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// Time from the cut back to the sustained rate: this many messages, within the bounds.
const RECOVERY_MESSAGES: u64 = 8;
const RECOVERY: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(120)];
/// After a cut the pace is lower than the sustained rate by one part in this.
const CUT_DIVISOR: i128 = 8;
/// A cut followed by fewer accepted messages was ineffective. Before this many ineffective cuts in a row a trial is
/// made.
const EFFECTIVE_CUT: u32 = 8;
const FAILED_CUTS_MAX: u32 = 3;
/// A connection that carried this many messages reached its own limit. So did one that carried as many as the one
/// before.
const QUOTA_LEAST: u32 = 20;
/// This many messages accepted in half the time of one token show that the end of a connection was unrelated.
const TRIAL_ACCEPTED: u32 = 2;
/// Cuts between two trials: the first after the lower number, doubled up to the higher one while trials confirm the
/// pace.
const CUTS_PER_TRIAL: [u32; 2] = [4, 16];
/// Time in which the pace doubles after a short stop.
const DOUBLING: Duration = Duration::from_secs(4);
/// Size of the bucket, as time.
const BURST: Duration = Duration::from_millis(100);
/// Bounds of the pace, in messages per 1,000 seconds: one a minute, and a thousand a second, which counts as no pace.
const PACE_MIN: u32 = 17;
const PACE_MAX: u32 = 1_000_000;
/// Deferred messages among the last 32 that start a stop.
const DEFERRED_STOP: u32 = 8;
/// Deferred messages among the last six that cut the pace.
const DEFERRED_CUT: u32 = 3;
const LAST_SIX: u32 = 0b11_1111;

/// The pace of one site.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The latest accepted messages: since when, until when, how many.
    since: Duration,
    last: Duration,
    taken: u32,
    /// The last 32 replies; a set bit is a reply that asked for less.
    history: u32,
    learned: Option<Box<LearnedPace>>,
}

#[derive(Debug, Default)]
struct LearnedPace {
    curve: Option<Curve>,
    rate: TokenBucket,
    /// When a message last waited for it.
    last_limited: Duration,
    /// Messages accepted since the last cut or stop.
    accepted_since_cut: u32,
    connection_ends: ConnectionEnds,
    stop: Option<Stop>,
}

/// Connections that ended after they served.
#[derive(Debug, Default)]
struct ConnectionEnds {
    /// They end for another reason than the pace.
    are_unrelated: bool,
    /// One ended: the next messages show why.
    trial: Option<PaceTrial>,
    /// Cuts since the last trial, and their maximum until the next.
    cuts_since_trial: u32,
    cuts_before_trial: u32,
    /// Messages that the last such connection carried.
    last_count: u32,
    /// Consecutive ineffective cuts.
    failed_cuts: u32,
}

#[derive(Debug)]
struct PaceTrial {
    /// The scheduler's step: transactions that began earlier do not count.
    step: u64,
    until: Duration,
    taken: u32,
}

/// The pace as a function of time.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// The sustained rate, in messages per 1,000 seconds.
    sustained: u32,
    from: Duration,
    /// The scheduler's step at the cut: transactions that began earlier do not count.
    step: u64,
    /// Only a lower bound is known: the pace doubles.
    doubles: bool,
}

/// The site refuses mail.
#[derive(Debug)]
struct Stop {
    began: Duration,
    pauses: u32,
    /// The scheduler's step: transactions that began earlier do not count.
    step: u64,
    until: Duration,
    /// The site refuses by disconnecting, and is down.
    is_down: bool,
}

impl Curve {
    /// Returns the time from the cut back to the sustained rate, in milliseconds.
    fn back(self) -> u64 {
        (RECOVERY_MESSAGES * 1_000_000 / u64::from(self.sustained.max(1)))
            .clamp(millis(RECOVERY[0]), millis(RECOVERY[1]))
    }

    fn at(self, now: Duration) -> u32 {
        let sustained = u64::from(self.sustained);
        let passed = millis(now.saturating_sub(self.from));
        let pace = if self.doubles {
            let (doublings, part) = (passed / millis(DOUBLING), passed % millis(DOUBLING));
            let whole = sustained << doublings.min(31);
            whole.saturating_add(whole.saturating_mul(part) / millis(DOUBLING))
        } else {
            // At twenty times this the pace is a thousand times the sustained rate.
            let back = self.back();
            let beyond = i128::from(passed.min(20 * back)) - i128::from(back);
            let back = i128::from(back);
            let sustained = i128::from(sustained);
            let pace = sustained + sustained * beyond.pow(3) / (CUT_DIVISOR * back.pow(3));
            u64::try_from(pace).unwrap_or(0)
        };
        bounded(pace)
    }
}

impl Stop {
    /// Returns whether all pauses passed in vain.
    const fn pauses_exhausted(&self) -> bool {
        self.pauses > PAUSES
    }

    /// Returns whether messages are tried one by one. A site that defers without disconnecting is left alone after the
    /// pauses.
    fn is_probing(&self, now: Duration) -> bool {
        !self.pauses_exhausted() || self.is_down || now < self.until
    }

    /// Starts the next pause.
    fn pause(&mut self, (step, now): (u64, Duration), down_first: Duration, chance: &mut Chance) {
        self.step = step;
        let wait = (down_first / FIRST_PAUSE_DIVISOR).saturating_mul(1 << self.pauses.min(PAUSES));
        self.pauses = self.pauses.saturating_add(1);
        self.until = now.saturating_add(jitter(wait, chance.next()));
    }
}

impl Pace {
    /// Returns the pace in messages per 1,000 seconds, if it is known.
    pub(crate) fn known(&self) -> Option<u32> {
        self.learned.as_ref().and_then(|learned| learned.rate.limit())
    }

    /// Returns how many messages may go now.
    pub(crate) fn available(&self, now: Duration) -> usize {
        match self.learned.as_deref() {
            None => usize::MAX,
            Some(LearnedPace { stop: Some(stop), .. }) if stop.is_probing(now) => usize::from(stop.until <= now),
            Some(LearnedPace { stop: Some(_), .. }) => usize::MAX,
            Some(learned) => learned.rate.available(now),
        }
    }

    /// Returns when the next message may go, if none may now.
    pub(crate) fn next_at(&self) -> Duration {
        match self.learned.as_deref() {
            None => Duration::ZERO,
            Some(LearnedPace { stop: Some(stop), .. }) => stop.until,
            Some(learned) => learned.rate.next_at(),
        }
    }

    /// Returns until when a refusal must be remembered.
    pub(crate) fn full_at(&self) -> Duration {
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        stop.map_or(Duration::ZERO, |stop| stop.until)
    }

    /// Spends a token for a message.
    pub(crate) fn spend(&mut self, now: Duration) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        if let Some(stop) = &mut learned.stop {
            if stop.is_probing(now) {
                stop.until = now.saturating_add(STOP_REPLY_MAX);
            }
        } else if let Some(curve) = learned.curve {
            let pace = curve.at(now);
            learned.rate.set_with_burst(Some(pace), BURST, now);
            learned.rate.spend(now);
            if pace >= PACE_MAX || now.saturating_sub(learned.last_limited) > FORGET_AFTER {
                self.learned = None;
            }
        }
    }

    /// Keeps the pace from being forgotten: the site refused something.
    fn note_limited(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned {
            learned.last_limited = now;
        }
    }

    /// Records that jobs wait and no token is left.
    pub(crate) fn note_shortage(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned
            && learned.stop.is_none()
            && learned.rate.available(now) == 0
        {
            learned.last_limited = now;
        }
    }

    /// Returns the token of a message that went at step `went` and was not tried, on a connection that had carried
    /// `used` messages.
    ///
    /// While there is a pace, a connection that served may have ended because of it, or for a reason of its own.
    pub(crate) fn give_back(&mut self, (went, used): (u64, u32), at: (u64, Duration)) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        match (&mut learned.stop, learned.curve) {
            (Some(stop), _) => {
                if went >= stop.step {
                    stop.until = at.1;
                }
            }
            (None, Some(curve)) if went >= curve.step && used > 0 => self.connection_used_up((went, used), curve, at),
            (None, _) => learned.rate.refund(),
        }
    }

    /// Handles a connection that ended after it served while there is a pace.
    fn connection_used_up(&mut self, (went, used): (u64, u32), curve: Curve, at: (u64, Duration)) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        learned.last_limited = at.1;
        let ends = &mut learned.connection_ends;
        let is_same = std::mem::replace(&mut ends.last_count, used) == used && used > 1;
        let is_early = learned.accepted_since_cut < EFFECTIVE_CUT;
        match &ends.trial {
            // The next connection may tell.
            Some(question) if went < question.step || at.1 <= question.until => learned.rate.refund(),
            _ if ends.are_unrelated || is_same || used >= QUOTA_LEAST => learned.rate.refund(),
            _ if ends.cuts_since_trial < ends.cuts_before_trial.max(CUTS_PER_TRIAL[0])
                && !(is_early && ends.failed_cuts + 1 >= FAILED_CUTS_MAX) =>
            {
                ends.cuts_since_trial += 1;
                ends.failed_cuts = if is_early { ends.failed_cuts + 1 } else { 0 };
                let is_failed = ends.failed_cuts > 0;
                self.cut(is_failed, at);
            }
            _ => {
                let half = Duration::from_millis(500_000 / u64::from(curve.at(at.1)));
                ends.trial = Some(PaceTrial { step: at.0, until: at.1 + half, taken: 0 });
                ends.cuts_since_trial = 0;
                learned.rate.refund();
            }
        }
    }

    /// Counts an accepted message that went at step `went` for the trial.
    fn trial_accepted(&mut self, went: u64, now: Duration) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        let Some(question) = learned.connection_ends.trial.as_mut().filter(|question| went >= question.step) else {
            return;
        };
        question.taken += 1;
        if now > question.until {
            // It took too long to tell: ineffective cuts are stopped.
            let is_failed = learned.connection_ends.failed_cuts + 1 >= FAILED_CUTS_MAX;
            learned.connection_ends = ConnectionEnds { are_unrelated: is_failed, ..ConnectionEnds::default() };
            if !is_failed {
                self.cut(false, (went, now));
            }
        } else if question.taken >= TRIAL_ACCEPTED {
            learned.connection_ends = ConnectionEnds { are_unrelated: true, ..ConnectionEnds::default() };
        } else {
            learned.rate.refund();
        }
    }

    /// Ends a trial by a refusal of the first message of a connection, and cuts the pace. Returns whether there was a
    /// trial.
    fn trial_refused(&mut self, at: (u64, Duration)) -> bool {
        let Some(ends) = self.learned.as_deref_mut().map(|learned| &mut learned.connection_ends) else { return false };
        if ends.trial.take_if(|question| at.1 <= question.until).is_none() {
            return false;
        }
        ends.cuts_before_trial = (ends.cuts_before_trial * 2).clamp(2 * CUTS_PER_TRIAL[0], CUTS_PER_TRIAL[1]);
        ends.failed_cuts = 0;
        self.cut(false, at);
        true
    }

    /// Lowers the pace.
    fn cut(&mut self, is_failed: bool, (step, now): (u64, Duration)) {
        let mean = self.mean(now);
        let Some(learned) = self.learned.as_deref_mut() else { return };
        let Some(curve) = &mut learned.curve else { return };
        (learned.accepted_since_cut, learned.last_limited) = (0, now);
        let pace = u64::from(curve.at(now));
        let sustained = if is_failed { pace * 3 / 4 } else { pace.min(u64::from(mean) * 4).max(pace / 2) };
        *curve = Curve { sustained: bounded(sustained), from: now, step, doubles: false };
        learned.rate.set_with_burst(Some(curve.at(now)), BURST, now);
        self.history = 0;
    }

    /// Returns the latest rate of accepted messages per 1,000 seconds.
    fn mean(&self, now: Duration) -> u32 {
        let whole = millis(now.saturating_sub(self.since)).max(1);
        bounded(u64::from(self.taken).saturating_mul(1_000_000) / whole)
    }

    /// Records that a message that went at step `went` was accepted.
    pub(crate) fn accepted(&mut self, went: u64, now: Duration) {
        self.history <<= 1;
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        match stop {
            Some(stop) if went >= stop.step => return self.end_stop(went, now),
            // The sustained rate comes from the messages accepted before the stop.
            Some(_) => {}
            None if self.taken == 0 || now.saturating_sub(self.last) > MEMORY => {
                (self.since, self.taken) = (now, 0);
            }
            None => {
                let long = now.saturating_sub(self.since);
                if long > MEMORY {
                    (self.since, self.taken) = (self.since + long / 2, self.taken / 2);
                }
            }
        }
        self.last = now;
        self.taken = self.taken.saturating_add(1);
        if let Some(learned) = &mut self.learned {
            learned.accepted_since_cut = learned.accepted_since_cut.saturating_add(1);
        }
        self.trial_accepted(went, now);
    }

    /// Records that a message that went at step `went` was deferred with words that ask for less.
    pub(crate) fn deferred(&mut self, went: u64, at: (u64, Duration), down_first: Duration, chance: &mut Chance) {
        self.history = self.history << 1 | 1;
        self.note_limited(at.1);
        let stop = self.learned.as_deref_mut().and_then(|learned| learned.stop.as_mut());
        match stop {
            Some(stop) if went >= stop.step && stop.is_probing(at.1) => stop.pause(at, down_first, chance),
            Some(_) => {}
            None => {
                let effective = self.learned.as_ref().map(|learned| learned.accepted_since_cut >= EFFECTIVE_CUT);
                let is_much = (self.history & LAST_SIX).count_ones() >= DEFERRED_CUT;
                if self.history.count_ones() >= DEFERRED_STOP || is_much && effective == Some(false) {
                    self.begin_stop(at, down_first, chance);
                } else if is_much && effective == Some(true) {
                    self.cut(false, at);
                }
            }
        }
    }

    /// Returns whether a stop began less than `STOP_MAX` ago.
    pub(crate) fn is_stop_recent(&self, now: Duration) -> bool {
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        stop.is_some_and(|stop| now.saturating_sub(stop.began) < STOP_MAX)
    }

    /// Records that the first message of a connection was refused and the connection ended. Returns whether waiting for
    /// the pace is enough; otherwise the site is down.
    pub(crate) fn refused(&mut self, at: (u64, Duration), down_first: Duration, chance: &mut Chance) -> bool {
        self.note_limited(at.1);
        if self.trial_refused(at) {
            return true;
        }
        match self.learned.as_deref_mut().and_then(|learned| learned.stop.as_mut()) {
            Some(stop) if stop.pauses_exhausted() => {
                // From now on the site has its own back-off.
                (stop.is_down, stop.until) = (true, at.1);
                false
            }
            Some(_) => true,
            None => self.begin_stop(at, down_first, chance),
        }
    }

    /// Starts a stop. A site that accepted nothing teaches nothing.
    fn begin_stop(&mut self, at: (u64, Duration), down_first: Duration, chance: &mut Chance) -> bool {
        let is_recent = self.taken > 0 && at.1.saturating_sub(self.last) <= MEMORY;
        if self.learned.is_none() && !is_recent {
            return false;
        }
        let mut stop = Stop { began: at.1, pauses: 0, step: 0, until: at.1, is_down: false };
        stop.pause(at, down_first, chance);
        let learned = self.learned.get_or_insert_default();
        (learned.stop, learned.connection_ends.trial, learned.connection_ends.are_unrelated) =
            (Some(stop), None, false);
        self.history = 0;
        true
    }

    /// Ends a stop, and computes the pace anew.
    fn end_stop(&mut self, step: u64, now: Duration) {
        let mean = self.mean(now);
        (self.last, self.taken, self.history) = (now, self.taken.saturating_add(1), 0);
        let Some(mut learned) = self.learned.take() else { return };
        let Some(stop) = learned.stop.take() else { return };
        if now.saturating_sub(stop.began) > STOP_MAX || stop.pauses_exhausted() && !stop.is_down {
            return;
        }
        let before = learned.curve.map(|curve| curve.at(stop.began));
        let from = learned.curve.map_or(stop.began, |curve| curve.from);
        let (run, whole) = (stop.began.saturating_sub(from), now.saturating_sub(from));
        let is_short = stop.pauses <= PAUSES_SHORT;
        let sustained = match before {
            None => mean,
            // It sustains the pace at which it stopped, less the pause.
            Some(before) if is_short => {
                let most = u64::from(before).min(u64::from(mean) * 4);
                bounded(most.saturating_mul(millis(run)) / millis(whole).max(1)).max(before / 2)
            }
            Some(before) => mean.clamp(before / 8, before),
        };
        let curve =
            Curve { sustained: sustained.max(PACE_MIN), from: now, step, doubles: is_short && before.is_none() };
        (learned.curve, learned.last_limited, learned.accepted_since_cut, learned.rate) =
            (Some(curve), now, 0, TokenBucket::default());
        learned.rate.set_with_burst(Some(curve.at(now)), BURST, now);
        learned.rate.spend(now);
        self.learned = Some(learned);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn bounded(pace: u64) -> u32 {
    u32::try_from(pace).unwrap_or(PACE_MAX).clamp(PACE_MIN, PACE_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Duration = Duration::from_secs(1_800_000_000);
    const DOWN_FIRST: Duration = Duration::from_secs(60);

    proptest! {
        #[test]
        fn a_curve_only_grows_and_stays_within_its_bounds(
            sustained in PACE_MIN..=PACE_MAX,
            doubles in any::<bool>(),
            mut ms in prop::collection::vec(0_u64..4_000_000, 1..50),
        ) {
            let curve = Curve { sustained, from: START, step: 0, doubles };
            ms.sort_unstable();
            let paces: Vec<u32> = ms.iter().map(|ms| curve.at(START + Duration::from_millis(*ms))).collect();
            let are_bounded = paces.iter().all(|pace| (PACE_MIN..=PACE_MAX).contains(pace));
            prop_assert!(paces.is_sorted() && are_bounded, "{paces:?}");
            prop_assert!(curve.at(Duration::MAX) >= sustained && curve.at(Duration::ZERO) <= sustained);
        }

        /// One message may always go within 75 seconds: no order of calls stops a site for good.
        #[test]
        fn it_never_stops_for_good(ops in prop::collection::vec((0_u8..6, 0_u64..90_000, any::<bool>()), 1..300)) {
            let (mut pace, mut chance, mut now, mut step) = (Pace::default(), Chance::new(1), START, 0);
            for (op, ms, is_old) in ops {
                now += Duration::from_millis(ms);
                step += 1;
                let went = if is_old { step / 2 } else { step };
                match op {
                    0 | 1 if pace.available(now) > 0 => pace.spend(now),
                    0 | 1 => pace.note_shortage(now),
                    2 => pace.accepted(went, now),
                    3 => pace.deferred(went, (step, now), DOWN_FIRST, &mut chance),
                    4 => drop(pace.refused((step, now), DOWN_FIRST, &mut chance)),
                    _ => pace.give_back((went, u32::from(is_old)), (step, now)),
                }
                if pace.available(now) == 0 {
                    let next = pace.next_at();
                    prop_assert!(next > now && next <= now + Duration::from_secs(75), "{:?}: {pace:?}", next - now);
                    prop_assert!(pace.available(next) > 0, "{pace:?}");
                }
            }
        }
    }

    #[test]
    fn a_site_that_defers_one_in_ten_is_not_paced() {
        let (mut pace, mut chance) = (Pace::default(), Chance::new(1));
        for step in 0..10_000_u32 {
            let now = START + Duration::from_millis(5) * step;
            if step % 10 == 7 {
                pace.deferred(step.into(), (step.into(), now), DOWN_FIRST, &mut chance);
            } else {
                pace.accepted(step.into(), now);
            }
            assert_eq!(pace.available(now), usize::MAX, "{pace:?}");
        }
    }

    #[test]
    fn a_cut_is_an_eighth_back_in_half_a_minute_and_ten_times_as_much_in_three() {
        let curve = Curve { sustained: 1_000, from: START, step: 0, doubles: false };
        let at = |seconds| curve.at(START + Duration::from_secs(seconds));
        assert_eq!([at(0), at(15), at(30), at(60), at(90)], [875, 985, 1_000, 1_125, 2_000]);
        assert!(at(165) > 10_000 && at(330) > 100_000);
        let slow = Curve { sustained: 100, ..curve };
        assert_eq!((slow.at(START), slow.at(START + Duration::from_secs(80))), (88, 100));
    }
}
