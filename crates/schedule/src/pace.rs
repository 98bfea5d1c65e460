//! The rate at which a site takes mail that says 421 beyond it, learned from what it took between refusals.
//!
//! A *stop* begins when a site that took mail turns a message away: 421 to the first message of a connection, or 4xx that asks
//! for less to a quarter of what it was sent last. During a stop one message at a time is tried, after pauses that double. When
//! one is taken, the stop is over, and what was taken before it, over the time up to its end, is what the site bears. A 421 to a
//! later message of a connection begins nothing: it may mean the connection, and the next one shows. While there is a pace it
//! may mean that too, and most that end cut it. But now and then the next messages go at once, and not by the pace: if they are
//! taken, connections end by themselves, and cut no more.
//!
//! From there on the pace is a function of time, so that nothing ticks: an eighth below what was sustained, back there after half a
//! minute, above it slowly at first, and then ever faster (the curve of CUBIC, RFC 9438). A stop that was short says little of
//! a site that was never paced: it is sought from there by doubling until the next stop. A pace that is not felt for two minutes
//! is forgotten.
//!
//! Not here: a site that never takes anything, or has taken nothing for so many pauses. It is down, as one that cannot be
//! reached (`site`); if it goes on with 4xx over a connection that stays, each message has its own wait, as without a pace.

use std::time::Duration;

use crate::chance::Chance;
use crate::settings::jitter;
use crate::token_bucket::TokenBucket;

/// The first pause of a stop is so much shorter than `down_first`.
const FIRST_PAUSE_DIVISOR: u32 = 128;
/// Pauses of a stop before the site is left to its back-off, or each message to its own.
const PAUSES: u32 = 4;
/// Pauses of a stop that is short: the site bears another message as soon as a moment has passed.
const PAUSES_SHORT: u32 = 2;
/// A stop that was longer says nothing of a pace.
const STOP_MAX: Duration = Duration::from_secs(300);
/// How long a message that is tried during a stop may be without an answer before another one is.
const STOP_REPLY_MAX: Duration = Duration::from_secs(60);
/// What was taken counts half after so long, and not at all after a gap of so long.
const MEMORY: Duration = Duration::from_secs(60);
/// A pace that no message waited for so long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// How long it takes from the cut back to what was sustained: so many messages, within these bounds.
const RECOVERY_MESSAGES: u64 = 8;
const RECOVERY: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(120)];
/// The cut: a pace begins so small a part below what was sustained.
const CUT_DIVISOR: i128 = 8;
/// A cut behind fewer messages did not help. Before so many of these in a row it is asked whether it is the pace.
const EFFECTIVE_CUT: u32 = 8;
const FAILED_CUTS_MAX: u32 = 3;
/// A connection that took so many before it was used up was so by its own limit, and so was one that took as many as the one before.
const QUOTA_LEAST: u32 = 20;
/// So many messages that are taken within half of the time that one has by the pace show that the pace was not meant.
const TRIAL_ACCEPTED: u32 = 2;
/// Connections that cut the pace until the next question: twice as many once it was the pace.
const CUTS_PER_TRIAL: [u32; 2] = [4, 16];
/// How long it takes to double while it is sought.
const DOUBLING: Duration = Duration::from_secs(4);
/// How much of a pace may go at once.
const BURST: Duration = Duration::from_millis(100);
/// Bounds of a pace, in messages per 1,000 seconds: one a minute, and a thousand a second, which is none.
const PACE_MIN: u32 = 17;
const PACE_MAX: u32 = 1_000_000;
/// So many of the last 32 messages have to be put off by 4xx for a stop.
const DEFERRED_STOP: u32 = 8;
/// And so many of the last six for a cut.
const DEFERRED_CUT: u32 = 3;
const LAST_SIX: u32 = 0b11_1111;

/// What is known of the pace of one site.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// What it took lately: since when, until when, and how much.
    since: Duration,
    last: Duration,
    taken: u32,
    /// Its last 32 answers; a bit is one that asked for less.
    history: u32,
    learned: Option<Box<LearnedPace>>,
}

#[derive(Debug, Default)]
struct LearnedPace {
    curve: Option<Curve>,
    rate: TokenBucket,
    /// When a message waited for it last.
    last_limited: Duration,
    /// Messages taken since the last cut or stop.
    accepted_since_cut: u32,
    connection_ends: ConnectionEnds,
    stop: Option<Stop>,
}

/// What is known of connections that are used up after they served.
#[derive(Debug, Default)]
struct ConnectionEnds {
    /// They are for another reason than the pace.
    are_unrelated: bool,
    /// One was: the next messages show why.
    trial: Option<PaceTrial>,
    /// So many cut the pace since the last question, and may until the next.
    cuts_since_trial: u32,
    cuts_before_trial: u32,
    /// How many messages the last one had.
    last_count: u32,
    /// Cuts in a row that did not help.
    failed_cuts: u32,
}

#[derive(Debug)]
struct PaceTrial {
    /// The scheduler's step: what began before says nothing.
    step: u64,
    until: Duration,
    taken: u32,
}

/// The pace as a function of time.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// What was sustained, in messages per 1,000 seconds.
    sustained: u32,
    from: Duration,
    /// The scheduler's step at the cut: what began before says nothing new.
    step: u64,
    /// Nothing but that it bears more: it doubles.
    doubles: bool,
}

/// It turns mail away.
#[derive(Debug)]
struct Stop {
    began: Duration,
    pauses: u32,
    /// The scheduler's step: what began before says nothing new.
    step: u64,
    until: Duration,
    /// It turns away by hanging up, and its site is down.
    is_down: bool,
}

impl Curve {
    /// How long it takes from the cut back to what was sustained, in milliseconds.
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
            // Beyond twenty times it is a thousand times what was sustained.
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
    /// So many pauses came to nothing.
    const fn pauses_exhausted(&self) -> bool {
        self.pauses > PAUSES
    }

    /// Whether messages are tried one by one. One that puts off and does not hang up is let alone after some pauses.
    fn is_probing(&self, now: Duration) -> bool {
        !self.pauses_exhausted() || self.is_down || now < self.until
    }

    /// One more pause.
    fn pause(&mut self, (step, now): (u64, Duration), down_first: Duration, chance: &mut Chance) {
        self.step = step;
        let wait = (down_first / FIRST_PAUSE_DIVISOR).saturating_mul(1 << self.pauses.min(PAUSES));
        self.pauses = self.pauses.saturating_add(1);
        self.until = now.saturating_add(jitter(wait, chance.next()));
    }
}

impl Pace {
    /// What it is, in messages per 1,000 seconds, if it was learned.
    pub(crate) fn known(&self) -> Option<u32> {
        self.learned.as_ref().and_then(|learned| learned.rate.limit())
    }

    /// How many may go now.
    pub(crate) fn available(&self, now: Duration) -> usize {
        match self.learned.as_deref() {
            None => usize::MAX,
            Some(LearnedPace { stop: Some(stop), .. }) if stop.is_probing(now) => usize::from(stop.until <= now),
            Some(LearnedPace { stop: Some(_), .. }) => usize::MAX,
            Some(learned) => learned.rate.available(now),
        }
    }

    /// When the next one may go, if none may now.
    pub(crate) fn next_at(&self) -> Duration {
        match self.learned.as_deref() {
            None => Duration::ZERO,
            Some(LearnedPace { stop: Some(stop), .. }) => stop.until,
            Some(learned) => learned.rate.next_at(),
        }
    }

    /// Until when it must not be forgotten that mail was turned away.
    pub(crate) fn full_at(&self) -> Duration {
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        stop.map_or(Duration::ZERO, |stop| stop.until)
    }

    /// One goes.
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

    /// The site refuses something: whatever its pace is worth, it is not to be forgotten now.
    fn note_limited(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned {
            learned.last_limited = now;
        }
    }

    /// Work waits, and no connection may take it.
    pub(crate) fn note_shortage(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned
            && learned.stop.is_none()
            && learned.rate.available(now) == 0
        {
            learned.last_limited = now;
        }
    }

    /// One that went at step `went` was not tried, over a connection that had served `used` before; the next may go at once.
    ///
    /// If there is a pace, a connection that served may have been used up by it, or for a reason of its own.
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

    /// A connection that served was used up while there was a pace.
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

    /// One that went at step `went` was taken: that may answer the question why a connection ended.
    fn trial_accepted(&mut self, went: u64, now: Duration) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        let Some(question) = learned.connection_ends.trial.as_mut().filter(|question| went >= question.step) else {
            return;
        };
        question.taken += 1;
        if now > question.until {
            // It took too long to tell: what did not help before is of no use now.
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

    /// The first message of a connection was turned away. Whether that answers the question why another one ended: then the pace is cut.
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

    /// The pace was too much.
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

    /// What it took lately, in messages per 1,000 seconds.
    fn mean(&self, now: Duration) -> u32 {
        let whole = millis(now.saturating_sub(self.since)).max(1);
        bounded(u64::from(self.taken).saturating_mul(1_000_000) / whole)
    }

    /// One that went at step `went` was taken.
    pub(crate) fn accepted(&mut self, went: u64, now: Duration) {
        self.history <<= 1;
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        match stop {
            Some(stop) if went >= stop.step => return self.end_stop(went, now),
            // What was sustained is what was taken before the stop.
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

    /// One that went at step `went` was put off by words that ask for less.
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

    /// Whether it took mail until not long ago, and is down for turning it away.
    pub(crate) fn is_stop_recent(&self, now: Duration) -> bool {
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        stop.is_some_and(|stop| now.saturating_sub(stop.began) < STOP_MAX)
    }

    /// The first message of a connection was turned away, and the connection with it. Says whether it is enough to wait for the
    /// pace; otherwise the site is down.
    pub(crate) fn refused(&mut self, at: (u64, Duration), down_first: Duration, chance: &mut Chance) -> bool {
        self.note_limited(at.1);
        if self.trial_refused(at) {
            return true;
        }
        match self.learned.as_deref_mut().and_then(|learned| learned.stop.as_mut()) {
            Some(stop) if stop.pauses_exhausted() => {
                // From here on the site has its own pauses.
                (stop.is_down, stop.until) = (true, at.1);
                false
            }
            Some(_) => true,
            None => self.begin_stop(at, down_first, chance),
        }
    }

    /// It does not take what it took. Nothing is learned of one that took nothing.
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

    /// It takes mail again: that is the end of a stop, and the pace is known anew.
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
            // It bears the pace at which it stopped, but for the pause.
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
            prop_assert!(paces.is_sorted() && paces.iter().all(|pace| (PACE_MIN..=PACE_MAX).contains(pace)), "{paces:?}");
            prop_assert!(curve.at(Duration::MAX) >= sustained && curve.at(Duration::ZERO) <= sustained);
        }

        /// Whatever happens, at all times one message may go within 75 seconds: nothing is stuck.
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
    fn who_puts_off_one_in_ten_is_not_paced() {
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
