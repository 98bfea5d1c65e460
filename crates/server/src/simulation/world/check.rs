//! Checks the facts of a run at its end, as the hosts saw it.
//!
//! | Word | Is said of |
//! |---|---|
//! | `LOST` | a recipient who was accepted and never delivered nor reported |
//! | `TWICE` | one who was delivered again without a crash or a host that kept its answer to itself |
//! | `NO REASON` | one who was given up although the mail was not old, or a host was there that takes it |
//! | `LIMIT` | a site that got more than its rule allows |
//! | `STARVED` | a site that was live all the time and got its mail late |
//! | `BEHIND A LIST` | a small message that waited for more of a list than what was on its way |
//! | `COSTLY` | a host that never takes mail and was given more than its share of attempts, time or memory |

use super::super::book::{Answer, EPOCH, Facts, Sent};
use super::super::check::field;
use super::net::Seen;
use super::script::{Limits, is_site_steady, is_steady};
use mail::QueueId;
use schedule::Class;
use sim::character::{Character, Hostility};
use sim::ledger::{How, Taken};
use sim::world::{Outlook, World};
use std::collections::HashMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// A little less than the time for which a host with broken TLS gets mail in clear text.
const TLS_PERIOD: Duration = Duration::from_secs(50 * 60);

/// Recipients up to which a message goes before lists.
const SMALL: usize = 20;
/// Transactions of a connection at a time.
const FLIGHTS: usize = 4;
/// Recipients of a transaction of a list behind which none is sent before its answer, if the list has few at the site.
const HEAVY: usize = 16;
/// While mail waits for a live site, one message is served after this at most, if no limit delays it.
const PROMPT: Duration = Duration::from_secs(30);
/// And as much more for each site that is not live and may have one of its places: those that hang lose it sooner.
const PLACE: Duration = Duration::from_secs(10);
/// Turns of the wire that a transaction with a connection of its own takes: connect, greeting, EHLO, MAIL, RCPT, DATA,
/// the content, QUIT, each with one more for a host that was tried before it; and one for each recipient without
/// PIPELINING.
const TURNS: u32 = 16;
/// How long after its trouble a host has its mail: the longest pauses of a site and of a message.
const AFTER_TROUBLE: Duration = Duration::from_secs(4 * 3_600);
/// And for each recipient at a site that throttles: it takes some in each minute.
const THROTTLED: Duration = Duration::from_secs(120);
/// Slower hosts need the slow lane, from which others of their site may bring them back: the check makes no demand on
/// the time of their mail.
const SLOW_MAX: Duration = Duration::from_secs(10);
/// The time over which rates are judged.
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// Attempts at a host that takes nothing: those of the first hour after a start, and of each hour after it.
const ATTEMPTS_FIRST: f64 = 16.0;
const ATTEMPTS_HOUR: f64 = 3.0;
/// Connections that a site may have before one of its hosts took something.
const WINDOW_START: usize = 5;
/// The longest that a connection to such a host lasts: the greeting and EHLO in the slow lane.
const HELD_MAX: Duration = Duration::from_secs(11 * 60);
/// Octets that a host may send before it is left: the size of a reply, and of the wires.
const SAID_MAX: usize = 1 << 20;
/// And those of a reply that is as long as one may be.
const REPLY_MAX: usize = 400_000;

/// Guarantees and settings of the run.
pub(super) struct Terms<'a> {
    /// Time before a crash in which an outcome may be forgotten.
    pub(super) window: Duration,
    pub(super) give_up_after: Duration,
    /// Time for which the answer to the content is waited for.
    pub(super) end_time: Duration,
    pub(super) connections_max: usize,
    /// Memory has room for all jobs.
    pub(super) has_room: bool,
    /// Of each site.
    pub(super) limits: &'a [Limits],
    /// When the last host was in trouble for a time only.
    pub(super) trouble: Duration,
}

/// Returns which class a message is in.
fn class_of(sent: &Sent) -> Class {
    let is_bulk = sent.content.windows(16).any(|part| part == b"Precedence: bulk");
    match sent.priority {
        Some(1..) => Class::Urgent,
        Some(..=-4) => Class::Bulk,
        _ if is_bulk => Class::Bulk,
        _ => Class::Normal,
    }
}

struct Checker<'a> {
    facts: &'a Facts,
    seen: &'a Seen,
    world: &'a World,
    terms: &'a Terms<'a>,
    /// In the order of their times.
    takes: HashMap<&'a str, Vec<&'a Taken>>,
    /// When failures were reported.
    failed: HashMap<String, Vec<Duration>>,
    wrong: Vec<String>,
}

/// Returns all faults of a run.
pub(super) fn check(facts: &Facts, seen: &Seen, world: &World, terms: &Terms<'_>) -> Vec<String> {
    let mut takes: HashMap<&str, Vec<&Taken>> = HashMap::new();
    for taken in &seen.taken {
        for name in &taken.recipients {
            takes.entry(str::from_utf8(name).unwrap()).or_default().push(taken);
        }
    }
    let failed = HashMap::new();
    let mut checker = Checker { facts, seen, world, terms, takes, failed, wrong: facts.wrong.clone() };
    checker.read_reports();
    for (number, sent) in facts.sent.iter().enumerate() {
        for (name, _) in &sent.recipients {
            checker.fate(number, sent, name);
        }
    }
    checker.strangers();
    for site in 0..world.sites() {
        checker.limits(site);
        if is_site_steady(world, site) {
            checker.promptness(site);
        }
    }
    checker.cost();
    checker.tls();
    checker.wrong
}

impl Checker<'_> {
    fn say(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Returns whether a crash may have forgotten what happened then.
    fn is_excused(&self, at: Duration) -> bool {
        self.has_crash(at, at + self.terms.window)
    }

    fn has_crash(&self, from: Duration, to: Duration) -> bool {
        self.facts.crashes.iter().any(|crash| (from..=to).contains(crash))
    }

    /// Returns whether the server ended or began between these.
    fn has_break(&self, from: Duration, to: Duration) -> bool {
        self.facts.downs.iter().any(|(down, up)| *down <= to && *up >= from)
    }

    fn site_of(&self, name: &str) -> u32 {
        let domain = name.split_once("@d").and_then(|(_, rest)| rest.split('.').next()).unwrap();
        let first = self.world.hosts_of_domain(domain.parse().unwrap()).start;
        self.world.site_of(first)
    }

    /// Returns how long after the last trouble a site has its mail; `None`: nothing is promised.
    fn patience(&self, site: u32) -> Option<Duration> {
        let is_slow = self.is_ever(site, |character| character == Character::Slow);
        if self.world.outlook(site) < Outlook::Late || is_slow && self.world.plan().slow > SLOW_MAX {
            return None;
        }
        if !self.is_ever(site, |character| character == Character::Throttle) {
            return Some(AFTER_TROUBLE);
        }
        let all = self.facts.sent.iter().flat_map(|sent| &sent.recipients);
        let here = all.filter(|(name, _)| self.site_of(name) == site).count();
        Some(AFTER_TROUBLE + THROTTLED * here as u32)
    }

    /// Returns whether the scripts of the hosts of a site have this of one of them at some time.
    fn is_ever(&self, site: u32, what: impl Fn(Character) -> bool) -> bool {
        self.world.hosts_of_site(site).any(|host| {
            let script = &self.world.hosts()[host as usize].script;
            what(script.base) || script.episodes.iter().any(|episode| what(episode.character))
        })
    }

    fn read_reports(&mut self) {
        let facts = self.facts;
        let mut ids = HashMap::new();
        for taken in facts.taken.iter().filter(|taken| taken.sender.is_empty()) {
            let text = String::from_utf8_lossy(&taken.content);
            let id = field(&text, "Message-ID").and_then(|id| id[1..].split('@').next()).unwrap_or_default();
            if let Some((before, acked)) = ids.insert(id.to_owned(), (taken.at, taken.acked))
                && !self.has_crash(before, acked.unwrap_or(before) + self.terms.window + SECOND)
            {
                self.say(format!("TWICE: report {id} at {before:?} and {:?}", taken.at));
                continue;
            }
            let made = Duration::from_micros(id.parse::<QueueId>().map_or(0, QueueId::unix_us)).saturating_sub(EPOCH);
            for group in text.split("\r\n\r\n").filter(|group| group.contains("Final-Recipient: ")) {
                let name = field(group, "Final-Recipient").unwrap().trim_start_matches("rfc822; ");
                let made_of = self.failed.entry(name.to_owned()).or_default();
                if field(group, "Action") == Some("failed") && !made_of.contains(&made) {
                    made_of.push(made);
                }
            }
        }
    }

    /// Judges the deliveries and reports of a recipient.
    fn fate(&mut self, number: usize, sent: &Sent, name: &str) {
        let takes = self.takes.get(name).cloned().unwrap_or_default();
        let mut failed = self.failed.get(name).cloned().unwrap_or_default();
        failed.sort_unstable();
        let what = format!("message {number} for <{name}>");
        self.once(&what, &takes);
        for taken in &takes {
            let is_it = taken.token.as_ref() == number.to_string().as_bytes();
            // With our trace field before it.
            let more = taken.octets.checked_sub(sent.content.len() as u64);
            if !is_it || !more.is_some_and(|more| (50..1_000).contains(&more)) {
                self.say(format!("CONTENT: {what} became {taken:?}, and had {} octets", sent.content.len()));
            }
        }
        let Answer::Accepted(accepted) = sent.answer else {
            if sent.answer != Answer::Unknown && !(takes.is_empty() && failed.is_empty()) {
                self.say(format!("{what} was {:?} and something became of it", sent.answer));
            }
            return;
        };
        let site = self.site_of(name);
        for two in failed.windows(2) {
            if !self.is_excused(two[0]) {
                self.say(format!("TWICE: {what} was reported as failed at {:?} and {:?}", two[0], two[1]));
            }
        }
        let acked = takes.iter().find(|taken| taken.how == How::Acknowledged);
        let Some(failed) = failed.first() else {
            if takes.is_empty() {
                return self.say(format!("LOST: {what}, accepted at {accepted:?}"));
            }
            // A host that takes mail and does not answer is tried again, until it answers or the failure is reported.
            if acked.is_none() {
                self.say(format!("LOST: {what}, accepted at {accepted:?}, whose hosts never said that they have it"));
            }
            return self.late(&what, site, accepted, takes[0].at);
        };
        let age = failed.saturating_sub(accepted);
        if let Some(acked) = acked.filter(|acked| !self.is_excused(acked.at) && !self.is_excused(*failed)) {
            self.say(format!("{what} was delivered at {:?} and reported as failed at {failed:?}", acked.at));
        }
        let refuses = |character| matches!(character, Character::Reject | Character::Hostile(Hostility::Wordy));
        let may_reject = self.is_ever(site, refuses);
        if !may_reject && age + 20 * SECOND < self.terms.give_up_after {
            self.say(format!("NO REASON: {what} was reported as failed after {age:?}"));
        }
        let patience = self.patience(site);
        let is_late = patience.is_some_and(|patience| self.terms.trouble.max(accepted) + patience < *failed);
        if !may_reject && is_late && takes.is_empty() {
            self.say(format!("NO REASON: {what} was given up after {age:?} although a host takes it"));
        }
    }

    /// Nothing comes twice without an excuse.
    fn once(&mut self, what: &str, takes: &[&Taken]) {
        for two in takes.windows(2) {
            let (one, next) = (two[0], two[1]);
            let is_excused = match one.how {
                How::Acknowledged => self.is_excused(one.at),
                How::Silent => {
                    !self.is_steady_at(one) || self.has_crash(one.at.saturating_sub(SECOND), one.at + SECOND)
                }
            };
            if !is_excused {
                self.say(format!("TWICE: {what} at {:?} and {:?}: {one:?}", one.at, next.at));
            }
        }
    }

    /// Returns whether the host had no trouble while it had the message.
    fn is_steady_at(&self, taken: &Taken) -> bool {
        let script = &self.world.hosts()[taken.host as usize].script;
        let from = taken.at.saturating_sub(2 * self.world.plan().slow + 2 * SECOND);
        let overlaps = |from_, to| from_ <= taken.at && from <= to;
        let is_live = |character| matches!(character, Character::Live | Character::Plain);
        is_live(script.base) && !script.episodes.iter().any(|episode| overlaps(episode.from, episode.to))
    }

    /// Checks that a host that was in trouble for a time gets its mail some time after it.
    fn late(&mut self, what: &str, site: u32, accepted: Duration, at: Duration) {
        let up = self.facts.downs.iter().map(|(_, up)| *up).filter(|up| *up <= at).max().unwrap_or_default();
        let since = accepted.max(self.terms.trouble).max(up);
        if self.patience(site).is_some_and(|patience| at > since + patience) {
            let hosts = self.world.hosts_of_site(site).map(|host| &self.world.hosts()[host as usize].script);
            let hosts: Vec<String> = hosts.map(|script| script.base.to_string()).collect();
            self.say(format!(
                "STARVED: {what} came at {at:?}, accepted at {accepted:?}, and a host of site {site} takes mail, of {}",
                hosts.join(", ")
            ));
        }
    }

    /// Checks that no recipient gets a message that was not sent to it.
    fn strangers(&mut self) {
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (number, sent) in self.facts.sent.iter().enumerate() {
            known.extend(sent.recipients.iter().map(|(name, _)| (name.as_str(), number)));
        }
        let strange: Vec<String> = self
            .takes
            .iter()
            .filter(|(name, takes)| {
                !known.contains_key(*name)
                    || takes.iter().any(|taken| self.world.site_of(taken.host) != self.site_of(name))
            })
            .map(|(name, _)| format!("<{name}> got mail that is not his, or at another site"))
            .collect();
        self.wrong.extend(strange);
    }

    /// Checks the limits of a site.
    fn limits(&mut self, site: u32) {
        let limits = self.terms.limits[site as usize];
        let most = self.facts.groups_most[site as usize];
        if most > limits.connections as usize {
            self.say(format!("LIMIT connections: {most} at site {site}: {limits:?}"));
        }
        let hosts = self.world.hosts_of_site(site);
        let held = self.seen.held.iter().filter(|held| hosts.contains(&held.host)).map(|held| held.transactions);
        if let Some(most) = held.max().filter(|most| *most > limits.messages) {
            self.say(format!("LIMIT messages: {most} over a connection to site {site}: {limits:?}"));
        }
        let taken = self.seen.taken.iter().filter(|taken| hosts.contains(&taken.host));
        if let Some(most) =
            taken.map(|taken| taken.recipients.len()).max().filter(|most| *most > limits.recipients as usize)
        {
            self.say(format!("LIMIT recipients: {most} in a transaction at site {site}: {limits:?}"));
        }
        let Some(rate) = limits.rate else { return };
        let began = self.seen.began.iter().filter(|(_, host)| hosts.contains(host));
        let mut began: Vec<Duration> = began.map(|(at, _)| *at).collect();
        began.sort_unstable();
        // One bucket, the tokens of its time, and messages in transit at its beginning.
        let bucket = f64::from(rate) / 1_000.0;
        let on_its_way = FLIGHTS * limits.connections as usize;
        let most = bucket.max(1.0) + bucket * RATE_WINDOW.as_secs_f64() + on_its_way as f64;
        for (nth, first) in began.iter().enumerate() {
            let within = began.iter().skip(nth).take_while(|at| **at - *first <= RATE_WINDOW).count();
            if within as f64 > most && !self.has_break(*first, *first + RATE_WINDOW) {
                return self
                    .say(format!("LIMIT rate: {within} within a minute from {first:?} at site {site}: {limits:?}"));
            }
        }
    }

    /// Checks that a live site gets its mail soon, whatever others do, and that no small message waits behind a list.
    fn promptness(&mut self, site: u32) {
        let facts = self.facts;
        let limits = self.terms.limits[site as usize];
        let hosts = self.world.hosts_of_site(site);
        let here: Vec<&Taken> = self.seen.taken.iter().filter(|taken| hosts.contains(&taken.host)).collect();
        let of = |taken: &Taken| str::from_utf8(&taken.token).unwrap().parse::<usize>().unwrap();
        let is_list = |number: usize| facts.sent[number].recipients.len() > SMALL;
        // With so many here that it does not go before lists.
        let is_list_here = |number: usize| {
            let here = facts.sent[number].recipients.iter().filter(|(name, _)| self.site_of(name) == site);
            here.count() > SMALL
        };
        let lists_here: Vec<bool> = (0..facts.sent.len()).map(is_list_here).collect();
        // A message of this class: a list of a better one goes before, and one of a worse one has its share.
        let of_class = |of_what: &Sent, is_it: &dyn Fn(&Taken) -> bool| -> Vec<Duration> {
            let fits = |taken: &Taken| is_it(taken) && class_of(&facts.sent[of(taken)]) == class_of(of_what);
            here.iter().filter(|taken| fits(taken)).map(|taken| taken.at).collect()
        };
        let within = |times: &[Duration], from: Duration, to: Duration| {
            times.iter().filter(|at| **at > from && **at < to).count()
        };
        let turn = self.world.plan().delay * (TURNS + limits.recipients) + Duration::from_millis(200);
        let rate = limits.rate.map_or(Duration::ZERO, |rate| SECOND * 1_000 / rate);
        let places = (self.terms.connections_max * 9 / 10).max(1) as u32;
        let bad = (0..self.world.sites()).filter(|site| !is_site_steady(self.world, *site)).count() as u32;
        let mut wrong = Vec::new();
        for taken in &here {
            let number = of(taken);
            let sent = &facts.sent[number];
            let Answer::Accepted(accepted) = sent.answer else { continue };
            // After a start the server reads its mail in the order of arrival.
            let up = facts.downs.iter().map(|(_, up)| *up).filter(|up| *up <= taken.at).max().unwrap_or_default();
            let since = accepted.max(up);
            // Waiting mail is served in turn, so the wait counts from the last delivery to this site.
            let before = here.iter().map(|one| one.at).filter(|at| *at < taken.at).max().unwrap_or_default();
            let waited = taken.at.saturating_sub(since.max(before));
            let bound = PROMPT + PLACE * bad.div_ceil(places) + turn + rate;
            if waited > bound {
                wrong.push(format!(
                    "STARVED: message {number} waited {waited:?} at site {site}, which was there, and {bound:?} is the most"
                ));
            }
            if is_list(number) || accepted <= up || !self.terms.has_room {
                continue;
            }
            let is_heavy = |one: &Taken| is_list(of(one)) && (one.recipients.len() >= HEAVY || lists_here[of(one)]);
            let lists = within(&of_class(sent, &|one| is_list(of(one))), since, taken.at);
            let heavy = within(&of_class(sent, &is_heavy), since, taken.at);
            let small = within(&of_class(sent, &|one| !is_list(of(one))), since, taken.at);
            let connections = limits.connections as usize;
            let what = format!(
                "message {number} was accepted at {accepted:?} and came to site {site} at {:?} after {lists} transactions \
                 of lists, {heavy} of which others were to wait for, and {small} small ones: {limits:?}",
                taken.at
            );
            if lists > FLIGHTS * connections + small / 4 + 2 {
                wrong.push(format!("BEHIND A LIST: {what}"));
            }
            if heavy > connections + small / 4 + 2 {
                wrong.push(format!("BEHIND A LIST: more than one for each connection: {what}"));
            }
        }
        self.wrong.extend(wrong);
    }

    /// Checks that a host whose TLS is broken, and that takes mail without it, is asked for TLS once an hour: over
    /// the connections that there are at that time, and once more for each start of the server, which may have
    /// forgotten it.
    fn tls(&mut self) {
        for (number, host) in (0_u32..).zip(self.world.hosts()) {
            let is_broken = matches!(host.script.base, Character::BrokenTls | Character::Hostile(Hostility::TlsCut));
            if !is_broken || !host.script.episodes.is_empty() {
                continue;
            }
            let connections = self.terms.limits[self.world.site_of(number) as usize].connections as usize;
            let all = self.seen.handshakes.iter().filter(|(_, host)| *host == number);
            let times: Vec<Duration> = all.map(|(at, _)| *at).collect();
            for (first, from) in times.iter().enumerate() {
                // The hour begins when clear text has worked, which is after the handshakes of all that began together.
                let to = *from + TLS_PERIOD;
                let tried = times[first..].iter().take_while(|at| **at < to).count();
                let starts = 1 + self.facts.downs.iter().filter(|(_, up)| *up >= *from && *up < to).count();
                let most = starts * connections.min(WINDOW_START);
                if tried > most {
                    self.say(format!(
                        "COSTLY: {tried} handshakes with host {number}, whose TLS is broken, from {from:?} on; {most} are the most"
                    ));
                    break;
                }
            }
        }
    }

    /// Checks that hosts that never take mail cost little.
    fn cost(&mut self) {
        use Hostility::{Early, Endless, Garbage, Trickle};
        let never_takes = |character: Character| {
            matches!(
                character,
                Character::Dead
                    | Character::Drop
                    | Character::Hung
                    | Character::HungHello
                    | Character::HungMail
                    | Character::HungData
                    | Character::Cut
                    | Character::CutTaken
                    | Character::Hostile(Endless | Garbage | Trickle | Early)
            )
        };
        let starts = 1.0 + self.facts.downs.len() as f64;
        let hours = self.facts.ended.as_secs_f64() / HOUR.as_secs_f64();
        for (number, host) in (0_u32..).zip(self.world.hosts()) {
            let held = self.seen.held.iter().filter(|held| held.host == number);
            let character = host.script.base;
            let is_wordy = character == Character::Hostile(Hostility::Wordy);
            let (mut longest, mut said) = (Duration::ZERO, None);
            for one in held {
                longest = longest.max(one.to - one.from);
                // The reply to each command is within the limit of a reply.
                let most = if is_wordy { REPLY_MAX * (1 + one.lines) } else { SAID_MAX };
                said = said.max((one.octets > most).then_some(one.octets));
            }
            if let Some(said) = said {
                self.say(format!("COSTLY: {said} octets were taken from host {number}, which is {character}"));
            }
            if !never_takes(character) {
                continue;
            }
            // Where others greet and take nothing, each try of a message tries all of them.
            let others = || self.world.hosts_of_site(self.world.site_of(number));
            let is_alone = others().all(|host| never_takes(self.world.hosts()[host as usize].script.base));
            let is_spared = others().any(|host| is_steady(self.world, host));
            let dials = if is_alone || is_spared { self.seen.dials[number as usize] } else { 0 };
            let most = starts * ATTEMPTS_FIRST + hours * ATTEMPTS_HOUR;
            if f64::from(dials) > most {
                self.say(format!(
                    "COSTLY: {dials} attempts at host {number}, which is {character}; {most:.0} are the most"
                ));
            }
            let end = if character == Character::HungData { self.terms.end_time } else { Duration::ZERO };
            let most = HELD_MAX + end;
            if longest > most {
                self.say(format!(
                    "COSTLY: {longest:?} for a connection to host {number}, which is {character}; {most:?} are the most"
                ));
            }
        }
    }
}
