//! The rate at which a site takes mail that says 421 beyond it, learned from what it took between refusals.
//!
//! A *stop* begins when a site that took mail turns a message away: 421 to the first message of a connection, or 4xx that asks
//! for less to a quarter of what it was sent last. During a stop one message at a time is tried, after pauses that double. When
//! one is taken, the stop is over, and what was taken before it, over the time up to its end, is what the site bears. A 421 to a
//! later message of a connection begins nothing: it may mean the connection, and the next one shows. While there is a pace it
//! may mean that too, and most that end cut it. But now and then the next messages go at once, and not by the pace: if they are
//! taken, connections end by themselves, and cut no more.
//!
//! From there on the pace is a function of time, so that nothing ticks: an eighth below what was borne, back there after half a
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
const FIRST_PAUSE_PART: u32 = 128;
/// Pauses of a stop before the site is left to its back-off, or each message to its own.
const PAUSES: u32 = 4;
/// Pauses of a stop that is short: the site bears another message as soon as a moment has passed.
const PAUSES_SHORT: u32 = 2;
/// A stop that was longer says nothing of a pace.
const STOP_MAX: Duration = Duration::from_secs(300);
/// How long a message that is tried during a stop may be without an answer before another one is.
const TRIAL: Duration = Duration::from_secs(60);
/// What was taken counts half after so long, and not at all after a gap of so long.
const MEMORY: Duration = Duration::from_secs(60);
/// A pace that no message waited for so long is forgotten.
const UNFELT: Duration = Duration::from_secs(120);
/// How long it takes from the cut back to what was borne: so many messages, within these bounds.
const RETURN_MESSAGES: u64 = 8;
const RETURN: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(120)];
/// The cut: a pace begins so small a part below what was borne.
const CUT_PART: i128 = 8;
/// A cut behind fewer messages did not help. Before so many of these in a row it is asked whether it is the pace.
const HELPED: u32 = 8;
const VAIN_MAX: u32 = 3;
/// A connection that took so many before it was used up was so by its own limit, and so was one that took as many as the one before.
const QUOTA_LEAST: u32 = 20;
/// So many messages that are taken within half of the time that one has by the pace show that the pace was not meant.
const SHOWN_BY: u32 = 2;
/// Connections that cut the pace until the next question: twice as many once it was the pace.
const UNASKED: [u32; 2] = [4, 16];
/// How long it takes to double while it is sought.
const DOUBLING: Duration = Duration::from_secs(4);
/// How much of a pace may go at once.
const BURST: Duration = Duration::from_millis(100);
/// Bounds of a pace, in messages per 1,000 seconds: one a minute, and a thousand a second, which is none.
const LEAST: u32 = 17;
const MOST: u32 = 1_000_000;
/// So many of the last 32 messages have to be put off by 4xx for a stop.
const PUT_OFF_STOP: u32 = 8;
/// And so many of the last six for a cut.
const PUT_OFF_CUT: u32 = 3;
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
    felt: Duration,
    /// Messages taken since the last cut or stop.
    helped: u32,
    ends: ConnectionEnds,
    stop: Option<Stop>,
}

/// What is known of connections that are used up after they served.
#[derive(Debug, Default)]
struct ConnectionEnds {
    /// They are for another reason than the pace.
    by_themselves: bool,
    /// One was: the next messages show why.
    question: Option<PaceTrial>,
    /// So many cut the pace since the last question, and may until the next.
    unasked: u32,
    unasked_most: u32,
    /// How many messages the last one had.
    used: u32,
    /// Cuts in a row that did not help.
    vain: u32,
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
    /// What was borne, in messages per 1,000 seconds.
    borne: u32,
    from: Duration,
    /// The scheduler's step at the cut: what began before says nothing new.
    step: u64,
    /// Nothing but that it bears more: it doubles.
    seeks: bool,
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
    /// How long it takes from the cut back to what was borne, in milliseconds.
    fn back(self) -> u64 {
        (RETURN_MESSAGES * 1_000_000 / u64::from(self.borne.max(1))).clamp(millis(RETURN[0]), millis(RETURN[1]))
    }

    fn at(self, now: Duration) -> u32 {
        let borne = u64::from(self.borne);
        let passed = millis(now.saturating_sub(self.from));
        let pace = if self.seeks {
            let (doublings, part) = (passed / millis(DOUBLING), passed % millis(DOUBLING));
            let whole = borne << doublings.min(31);
            whole.saturating_add(whole.saturating_mul(part) / millis(DOUBLING))
        } else {
            // Beyond twenty times it is a thousand times what was borne.
            let back = self.back();
            let beyond = i128::from(passed.min(20 * back)) - i128::from(back);
            let back = i128::from(back);
            let borne = i128::from(borne);
            let pace = borne + borne * beyond.pow(3) / (CUT_PART * back.pow(3));
            u64::try_from(pace).unwrap_or(0)
        };
        bounded(pace)
    }
}

impl Stop {
    /// So many pauses came to nothing.
    const fn is_over(&self) -> bool {
        self.pauses > PAUSES
    }

    /// Whether messages are tried one by one. One that puts off and does not hang up is let alone after some pauses.
    fn holds(&self, now: Duration) -> bool {
        !self.is_over() || self.is_down || now < self.until
    }

    /// One more pause.
    fn pause(&mut self, (step, now): (u64, Duration), down_first: Duration, chance: &mut Chance) {
        self.step = step;
        let wait = (down_first / FIRST_PAUSE_PART).saturating_mul(1 << self.pauses.min(PAUSES));
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
            Some(LearnedPace { stop: Some(stop), .. }) if stop.holds(now) => usize::from(stop.until <= now),
            Some(LearnedPace { stop: Some(_), .. }) => usize::MAX,
            Some(learned) => learned.rate.available(now),
        }
    }

    /// When the next one may go, if none may now.
    pub(crate) fn next(&self) -> Duration {
        match self.learned.as_deref() {
            None => Duration::ZERO,
            Some(LearnedPace { stop: Some(stop), .. }) => stop.until,
            Some(learned) => learned.rate.next(),
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
            if stop.holds(now) {
                stop.until = now.saturating_add(TRIAL);
            }
        } else if let Some(curve) = learned.curve {
            let pace = curve.at(now);
            learned.rate.hold(Some(pace), BURST, now);
            learned.rate.spend(now);
            if pace >= MOST || now.saturating_sub(learned.felt) > UNFELT {
                self.learned = None;
            }
        }
    }

    /// The site refuses something: whatever its pace is worth, it is not to be forgotten now.
    fn is_felt(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned {
            learned.felt = now;
        }
    }

    /// Work waits, and no connection may take it.
    pub(crate) fn runs_dry(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned
            && learned.stop.is_none()
            && learned.rate.available(now) == 0
        {
            learned.felt = now;
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
            (None, Some(curve)) if went >= curve.step && used > 0 => self.used_up((went, used), curve, at),
            (None, _) => learned.rate.refund(),
        }
    }

    /// A connection that served was used up while there was a pace.
    fn used_up(&mut self, (went, used): (u64, u32), curve: Curve, at: (u64, Duration)) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        learned.felt = at.1;
        let ends = &mut learned.ends;
        let is_same = std::mem::replace(&mut ends.used, used) == used && used > 1;
        let is_soon = learned.helped < HELPED;
        match &ends.question {
            // The next connection may tell.
            Some(question) if went < question.step || at.1 <= question.until => learned.rate.refund(),
            _ if ends.by_themselves || is_same || used >= QUOTA_LEAST => learned.rate.refund(),
            _ if ends.unasked < ends.unasked_most.max(UNASKED[0]) && !(is_soon && ends.vain + 1 >= VAIN_MAX) => {
                ends.unasked += 1;
                ends.vain = if is_soon { ends.vain + 1 } else { 0 };
                let is_vain = ends.vain > 0;
                self.cuts(is_vain, at);
            }
            _ => {
                let half = Duration::from_millis(500_000 / u64::from(curve.at(at.1)));
                ends.question = Some(PaceTrial { step: at.0, until: at.1 + half, taken: 0 });
                ends.unasked = 0;
                learned.rate.refund();
            }
        }
    }

    /// One that went at step `went` was taken: that may answer the question why a connection ended.
    fn answers(&mut self, went: u64, now: Duration) {
        let Some(learned) = self.learned.as_deref_mut() else { return };
        let Some(question) = learned.ends.question.as_mut().filter(|question| went >= question.step) else { return };
        question.taken += 1;
        if now > question.until {
            // It took too long to tell: what did not help before is of no use now.
            let is_vain = learned.ends.vain + 1 >= VAIN_MAX;
            learned.ends = ConnectionEnds { by_themselves: is_vain, ..ConnectionEnds::default() };
            if !is_vain {
                self.cuts(false, (went, now));
            }
        } else if question.taken >= SHOWN_BY {
            learned.ends = ConnectionEnds { by_themselves: true, ..ConnectionEnds::default() };
        } else {
            learned.rate.refund();
        }
    }

    /// The first message of a connection was turned away. Whether that answers the question why another one ended: then the pace is cut.
    fn answers_no(&mut self, at: (u64, Duration)) -> bool {
        let Some(ends) = self.learned.as_deref_mut().map(|learned| &mut learned.ends) else { return false };
        if ends.question.take_if(|question| at.1 <= question.until).is_none() {
            return false;
        }
        ends.unasked_most = (ends.unasked_most * 2).clamp(2 * UNASKED[0], UNASKED[1]);
        ends.vain = 0;
        self.cuts(false, at);
        true
    }

    /// The pace was too much.
    fn cuts(&mut self, is_vain: bool, (step, now): (u64, Duration)) {
        let mean = self.mean(now);
        let Some(learned) = self.learned.as_deref_mut() else { return };
        let Some(curve) = &mut learned.curve else { return };
        (learned.helped, learned.felt) = (0, now);
        let pace = u64::from(curve.at(now));
        let borne = if is_vain { pace * 3 / 4 } else { pace.min(u64::from(mean) * 4).max(pace / 2) };
        *curve = Curve { borne: bounded(borne), from: now, step, seeks: false };
        learned.rate.hold(Some(curve.at(now)), BURST, now);
        self.history = 0;
    }

    /// What it took lately, in messages per 1,000 seconds.
    fn mean(&self, now: Duration) -> u32 {
        let whole = millis(now.saturating_sub(self.since)).max(1);
        bounded(u64::from(self.taken).saturating_mul(1_000_000) / whole)
    }

    /// One that went at step `went` was taken.
    pub(crate) fn taken(&mut self, went: u64, now: Duration) {
        self.history <<= 1;
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        match stop {
            Some(stop) if went >= stop.step => return self.goes_on(went, now),
            // What was borne is what was taken before the stop.
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
            learned.helped = learned.helped.saturating_add(1);
        }
        self.answers(went, now);
    }

    /// One that went at step `went` was put off by words that ask for less.
    pub(crate) fn put_off(&mut self, went: u64, at: (u64, Duration), down_first: Duration, chance: &mut Chance) {
        self.history = self.history << 1 | 1;
        self.is_felt(at.1);
        let stop = self.learned.as_deref_mut().and_then(|learned| learned.stop.as_mut());
        match stop {
            Some(stop) if went >= stop.step && stop.holds(at.1) => stop.pause(at, down_first, chance),
            Some(_) => {}
            None => {
                let helped = self.learned.as_ref().map(|learned| learned.helped >= HELPED);
                let is_much = (self.history & LAST_SIX).count_ones() >= PUT_OFF_CUT;
                if self.history.count_ones() >= PUT_OFF_STOP || is_much && helped == Some(false) {
                    self.stops(at, down_first, chance);
                } else if is_much && helped == Some(true) {
                    self.cuts(false, at);
                }
            }
        }
    }

    /// Whether it took mail until not long ago, and is down for turning it away.
    pub(crate) fn is_stopped(&self, now: Duration) -> bool {
        let stop = self.learned.as_ref().and_then(|learned| learned.stop.as_ref());
        stop.is_some_and(|stop| now.saturating_sub(stop.began) < STOP_MAX)
    }

    /// The first message of a connection was turned away, and the connection with it. Says whether it is enough to wait for the
    /// pace; otherwise the site is down.
    pub(crate) fn turned_away(&mut self, at: (u64, Duration), down_first: Duration, chance: &mut Chance) -> bool {
        self.is_felt(at.1);
        if self.answers_no(at) {
            return true;
        }
        match self.learned.as_deref_mut().and_then(|learned| learned.stop.as_mut()) {
            Some(stop) if stop.is_over() => {
                // From here on the site has its own pauses.
                (stop.is_down, stop.until) = (true, at.1);
                false
            }
            Some(_) => true,
            None => self.stops(at, down_first, chance),
        }
    }

    /// It does not take what it took. Nothing is learned of one that took nothing.
    fn stops(&mut self, at: (u64, Duration), down_first: Duration, chance: &mut Chance) -> bool {
        let is_recent = self.taken > 0 && at.1.saturating_sub(self.last) <= MEMORY;
        if self.learned.is_none() && !is_recent {
            return false;
        }
        let mut stop = Stop { began: at.1, pauses: 0, step: 0, until: at.1, is_down: false };
        stop.pause(at, down_first, chance);
        let learned = self.learned.get_or_insert_default();
        (learned.stop, learned.ends.question, learned.ends.by_themselves) = (Some(stop), None, false);
        self.history = 0;
        true
    }

    /// It takes mail again: that is the end of a stop, and the pace is known anew.
    fn goes_on(&mut self, step: u64, now: Duration) {
        let mean = self.mean(now);
        (self.last, self.taken, self.history) = (now, self.taken.saturating_add(1), 0);
        let Some(mut learned) = self.learned.take() else { return };
        let Some(stop) = learned.stop.take() else { return };
        if now.saturating_sub(stop.began) > STOP_MAX || stop.is_over() && !stop.is_down {
            return;
        }
        let before = learned.curve.map(|curve| curve.at(stop.began));
        let from = learned.curve.map_or(stop.began, |curve| curve.from);
        let (run, whole) = (stop.began.saturating_sub(from), now.saturating_sub(from));
        let is_short = stop.pauses <= PAUSES_SHORT;
        let borne = match before {
            None => mean,
            // It bears the pace at which it stopped, but for the pause.
            Some(before) if is_short => {
                let most = u64::from(before).min(u64::from(mean) * 4);
                bounded(most.saturating_mul(millis(run)) / millis(whole).max(1)).max(before / 2)
            }
            Some(before) => mean.clamp(before / 8, before),
        };
        let curve = Curve { borne: borne.max(LEAST), from: now, step, seeks: is_short && before.is_none() };
        (learned.curve, learned.felt, learned.helped, learned.rate) = (Some(curve), now, 0, TokenBucket::default());
        learned.rate.hold(Some(curve.at(now)), BURST, now);
        learned.rate.spend(now);
        self.learned = Some(learned);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn bounded(pace: u64) -> u32 {
    u32::try_from(pace).unwrap_or(MOST).clamp(LEAST, MOST)
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
            borne in LEAST..=MOST,
            seeks in any::<bool>(),
            mut ms in prop::collection::vec(0_u64..4_000_000, 1..50),
        ) {
            let curve = Curve { borne, from: START, step: 0, seeks };
            ms.sort_unstable();
            let paces: Vec<u32> = ms.iter().map(|ms| curve.at(START + Duration::from_millis(*ms))).collect();
            prop_assert!(paces.is_sorted() && paces.iter().all(|pace| (LEAST..=MOST).contains(pace)), "{paces:?}");
            prop_assert!(curve.at(Duration::MAX) >= borne && curve.at(Duration::ZERO) <= borne);
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
                    0 | 1 => pace.runs_dry(now),
                    2 => pace.taken(went, now),
                    3 => pace.put_off(went, (step, now), DOWN_FIRST, &mut chance),
                    4 => drop(pace.turned_away((step, now), DOWN_FIRST, &mut chance)),
                    _ => pace.give_back((went, u32::from(is_old)), (step, now)),
                }
                if pace.available(now) == 0 {
                    let next = pace.next();
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
                pace.put_off(step.into(), (step.into(), now), DOWN_FIRST, &mut chance);
            } else {
                pace.taken(step.into(), now);
            }
            assert_eq!(pace.available(now), usize::MAX, "{pace:?}");
        }
    }

    #[test]
    fn a_cut_is_an_eighth_back_in_half_a_minute_and_ten_times_as_much_in_three() {
        let curve = Curve { borne: 1_000, from: START, step: 0, seeks: false };
        let at = |seconds| curve.at(START + Duration::from_secs(seconds));
        assert_eq!([at(0), at(15), at(30), at(60), at(90)], [875, 985, 1_000, 1_125, 2_000]);
        assert!(at(165) > 10_000 && at(330) > 100_000);
        let slow = Curve { borne: 100, ..curve };
        assert_eq!((slow.at(START), slow.at(START + Duration::from_secs(80))), (88, 100));
    }
}
