//! Checks the facts of a run at its end.
//!
//! Excuses are exact: a message may come twice only if the crash, or the host that did not answer, is named.

use super::book::{Answer, EPOCH, Facts, Sent, Taken};
use super::host::Host;
use mail::report::{Kind, wants};
use mail::{Notify, QueueId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// Within this a live host gets its mail while others are dead.
const PROMPT: Duration = Duration::from_secs(120);

/// Time of an attempt at a host that never answers the end of a message, for each of its recipients.
const SILENCE: Duration = Duration::from_secs(7 * 660);

/// Guarantees and settings of the run.
pub(super) struct Terms<'a> {
    pub(super) hosts: &'a [std::sync::Arc<Host>],
    /// How long before a crash an outcome may be forgotten.
    pub(super) window: Duration,
    pub(super) warn_after: Duration,
    pub(super) give_up_after: Duration,
    /// The most by which due mail may be late.
    pub(super) slack: Duration,
    pub(super) connections_max: usize,
    pub(super) connections_each: usize,
    /// All mail goes to one destination, whichever host.
    pub(super) is_one_destination: bool,
    /// The first two hosts are one site, which accepts two connections, and a message in two seconds.
    pub(super) has_rules: bool,
    /// How long a sender may wait for his answer.
    pub(super) answer: Duration,
    /// Mail may be delivered before it is durable, and so before its sender has an answer.
    pub(super) is_early: bool,
    /// Live hosts are served at once.
    pub(super) is_prompt: bool,
}

/// A report on one recipient.
#[derive(Clone, Debug)]
struct Told {
    /// When it was made.
    made: Duration,
}

type Reports = BTreeMap<(String, &'static str), Vec<Told>>;

struct Checker<'a> {
    facts: &'a Facts,
    terms: &'a Terms<'a>,
    reports: Reports,
    by_recipient: HashMap<&'a str, Vec<&'a Taken>>,
    /// Senders to whom a report was given up.
    unheard: HashSet<String>,
    wrong: Vec<String>,
}

/// Everything that is wrong with a run.
pub(super) fn check(facts: &Facts, terms: &Terms<'_>) -> Vec<String> {
    let mut by_recipient: HashMap<&str, Vec<&Taken>> = HashMap::new();
    for taken in &facts.taken {
        for (name, _) in &taken.recipients {
            by_recipient.entry(name).or_default().push(taken);
        }
    }
    let mut checker = Checker {
        facts,
        terms,
        reports: Reports::new(),
        by_recipient,
        unheard: HashSet::new(),
        wrong: facts.wrong.clone(),
    };
    checker.read_reports();
    for (number, sent) in facts.sent.iter().enumerate() {
        checker.message(number, sent);
    }
    checker.silences();
    checker.connections();
    checker.pace();
    checker.wrong
}

/// Returns the octets behind our trace field.
pub(super) fn without_trace(content: &[u8]) -> Option<&[u8]> {
    if !content.starts_with(b"Received: ") {
        return None;
    }
    let folded = |two: &[u8]| two[0] == b'\n' && !matches!(two[1], b' ' | b'\t');
    let end = content.windows(2).position(folded)? + 1;
    content.get(end..)
}

impl Checker<'_> {
    fn say(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Returns whether a crash may have forgotten what happened between these.
    fn is_excused(&self, from: Duration, to: Duration) -> bool {
        self.facts.crashes.iter().any(|crash| (from..=to + self.terms.window).contains(crash))
    }

    /// Reads all reports that came to senders.
    fn read_reports(&mut self) {
        let mut names: HashMap<String, Vec<&Taken>> = HashMap::new();
        let facts = self.facts;
        for taken in facts.taken.iter().filter(|taken| taken.sender.is_empty()) {
            let text = String::from_utf8_lossy(&taken.content);
            if !text.contains("multipart/report") {
                continue;
            }
            let Some(id) = field(&text, "Message-ID").and_then(|id| id[1..].split('@').next()).map(str::to_owned)
            else {
                self.say(format!("a report without Message-ID: {text}"));
                continue;
            };
            let made = Duration::from_micros(id.parse::<QueueId>().map_or(0, QueueId::unix_us)).saturating_sub(EPOCH);
            let is_again = names.contains_key(&id);
            names.entry(id.clone()).or_default().push(taken);
            if is_again {
                continue;
            }
            let token = text.split("X-Token: ").nth(1).and_then(|rest| rest.split('.').next());
            let Some(sent) = token.and_then(|token| facts.sent.get(token.parse::<usize>().ok()?)) else {
                self.say(format!("a report that does not return the header: {text}"));
                continue;
            };
            let to = &taken.recipients[0].0;
            if to.starts_with("postmaster@") && !sent.sender.is_empty() {
                // A report to him was given up; the postmaster has it in his place.
                self.unheard.insert(sent.sender.clone());
                continue;
            }
            if *to != sent.sender && !to.starts_with("postmaster@") {
                self.say(format!("a report on mail of <{}> went to <{to}>", sent.sender));
            }
            for group in text.split("\r\n\r\n").filter(|group| group.contains("Final-Recipient: ")) {
                let recipient = field(group, "Final-Recipient").unwrap().trim_start_matches("rfc822; ").to_owned();
                let action = match field(group, "Action").unwrap_or_default() {
                    "failed" => "failed",
                    "delayed" => "delayed",
                    "relayed" => "relayed",
                    other => {
                        self.say(format!("Action: {other}"));
                        continue;
                    }
                };
                if !sent.recipients.iter().any(|(name, _)| *name == recipient) {
                    self.say(format!("a report on <{recipient}>, who is no recipient of the message"));
                }
                let told = Told { made };
                self.reports.entry((recipient, action)).or_default().push(told);
            }
        }
        for (id, taken) in names {
            self.takes(&format!("report {id}"), &taken);
        }
    }

    /// Nothing comes twice without an excuse.
    fn takes(&mut self, what: &str, takes: &[&Taken]) {
        for (nth, taken) in takes.iter().enumerate().take(takes.len().saturating_sub(1)) {
            let excused = match taken.acked {
                Some(acked) => self.is_excused(taken.at, acked),
                None => taken.is_silent || self.is_excused(taken.at, taken.at + Duration::from_secs(1)),
            };
            if !excused {
                let next = takes[nth + 1].at;
                self.say(format!("{what} was delivered at {:?} and again at {next:?}, {:?}", taken.at, taken.acked));
            }
        }
    }

    /// Checks that a recipient was reported once, but for crashes.
    fn told(&mut self, recipient: &str, action: &'static str) -> Vec<Told> {
        let mut told = self.reports.get(&(recipient.to_owned(), action)).cloned().unwrap_or_default();
        told.sort_by_key(|told| told.made);
        for (nth, one) in told.iter().enumerate().take(told.len().saturating_sub(1)) {
            if !self.is_excused(one.made, one.made) {
                let (next, first) = (&told[nth + 1], one);
                self.say(format!("<{recipient}> was reported as {action} twice: {first:?}, {next:?}"));
            }
        }
        told
    }

    fn message(&mut self, number: usize, sent: &Sent) {
        let fates: Vec<bool> =
            sent.recipients.iter().map(|(name, notify)| self.recipient(number, sent, name, *notify)).collect();
        let has_any = fates.contains(&true);
        let may_be_early = self.terms.is_early && sent.answer == Answer::Refused;
        if matches!(sent.answer, Answer::Unsent | Answer::Refused) && has_any && !may_be_early {
            self.say(format!("message {number} was {:?} and something became of it", sent.answer));
        }
        let is_quiet = |(_, notify): &(String, Option<Notify>)| !wants(*notify, Kind::Failed);
        let may_be_silent = sent.recipients.iter().any(is_quiet);
        let is_deleted = sent.recipients.iter().any(|(name, _)| self.facts.deleted.contains(name));
        let is_whole = sent.answer == Answer::Unknown && !self.terms.is_early;
        if is_whole && has_any && fates.contains(&false) && !may_be_silent && !is_deleted {
            self.say(format!("message {number} was taken for some of its recipients"));
        }
    }

    /// Returns whether something became of the recipient.
    fn recipient(&mut self, number: usize, sent: &Sent, name: &str, notify: Option<Notify>) -> bool {
        let takes = self.by_recipient.get(name).cloned().unwrap_or_default();
        let what = format!("message {number} for <{name}> from <{}>, NOTIFY={notify:?}", sent.sender);
        self.takes(&what, &takes);
        for taken in &takes {
            self.content(&what, sent, taken);
        }
        let failed = self.told(name, "failed");
        let delayed = self.told(name, "delayed");
        let relayed = self.told(name, "relayed");
        let Answer::Accepted(accepted) = sent.answer else { return !takes.is_empty() || !failed.is_empty() };
        if self.facts.deleted.contains(name) {
            return !takes.is_empty();
        }
        let is_refused = self.facts.refused.contains(name)
            || self.facts.refused_senders.contains(&sent.sender)
            // A host that refuses this content makes the message return.
            || sent.is_eight_bit
            || sent.content.len() > 59_000;
        let terms = self.terms;
        let hears_of_failure = wants(notify, Kind::Failed) && !self.unheard.contains(&sent.sender);
        if takes.is_empty() && failed.is_empty() && (hears_of_failure || !is_refused && !self.may_age(accepted)) {
            self.say(format!("LOST: {what}, accepted at {accepted:?}"));
        }
        for one in &failed {
            if !wants(notify, Kind::Failed) {
                self.say(format!("{what}: a failure was reported that nobody wants to hear of"));
            }
            if let Some(taken) = takes.iter().find(|taken| taken.acked.is_some())
                && !self.is_excused(taken.at, taken.acked.unwrap())
                && !self.is_excused(one.made, one.made)
            {
                self.say(format!("{what} was delivered at {:?} and reported as failed at {:?}", taken.at, one.made));
            }
            let age = one.made.saturating_sub(accepted);
            let is_aged = age + Duration::from_secs(20) >= terms.give_up_after;
            if !is_refused && !is_aged {
                self.say(format!("{what} was reported as failed after {age:?} for no reason"));
            }
            if age > terms.give_up_after + self.patience(name) {
                self.say(format!("{what} was given up as late as after {age:?}"));
            }
        }
        self.warning(&what, sent, name, notify, accepted, &takes, &failed, &delayed);
        self.success(&what, sent, notify, &takes, &relayed);
        self.promptness(&what, accepted, &takes);
        true
    }

    /// Returns whether a recipient accepted at this time may have been given up by the end of the run.
    fn may_age(&self, accepted: Duration) -> bool {
        accepted + self.terms.give_up_after < self.facts.ended
    }

    /// Returns how late a report may be: the server was down, or the operator held the mail.
    fn patience(&self, name: &str) -> Duration {
        let down: Duration = self.facts.downs.iter().map(|(down, up)| *up - *down).sum();
        let held = self.facts.held.get(name).copied().unwrap_or_default();
        // Mail stands in line behind mail that waits for a silent host, an attempt each. With smart hosts it may be
        // any.
        let is_silent = match self.host_of(name) {
            Some(host) => host.is_silent(),
            None => self.terms.hosts.iter().any(|host| host.is_silent()),
        };
        let line = if is_silent { self.facts.sent.len() as u32 * SILENCE } else { Duration::ZERO };
        self.terms.slack + down + held + line
    }

    /// Returns the host that a recipient's mail goes to, if it is one only.
    fn host_of(&self, name: &str) -> Option<&Host> {
        let address = name.split_once("@[")?.1.strip_suffix(']')?;
        self.terms.hosts.iter().map(AsRef::as_ref).find(|host| host.address.to_string() == address)
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of one recipient")]
    fn warning(
        &mut self,
        what: &str,
        sent: &Sent,
        name: &str,
        notify: Option<Notify>,
        accepted: Duration,
        takes: &[&Taken],
        failed: &[Told],
        delayed: &[Told],
    ) {
        let after = self.terms.warn_after;
        let may_hear = !sent.sender.is_empty() && wants(notify, Kind::Delayed) && !after.is_zero();
        // A message grows old from the end of its content on; its 250 is later.
        let early = self.terms.answer;
        for one in delayed {
            let age = one.made.saturating_sub(accepted);
            if !may_hear || age + early < after {
                self.say(format!("{what}: a delay was reported after {age:?}"));
            }
            if age > after + self.patience(name) {
                self.say(format!("{what}: the delay was reported as late as after {age:?}"));
            }
        }
        let late = accepted + after + self.patience(name);
        let ends = takes.iter().map(|taken| taken.at).chain(failed.iter().map(|one| one.made)).min();
        let may_hear = may_hear && !self.unheard.contains(&sent.sender);
        if may_hear && delayed.is_empty() && ends.is_some_and(|end| end > late) {
            self.say(format!("{what} waited from {accepted:?} to {ends:?}, and the sender was not warned"));
        }
    }

    fn success(&mut self, what: &str, sent: &Sent, notify: Option<Notify>, takes: &[&Taken], relayed: &[Told]) {
        let has_heard = !self.unheard.contains(&sent.sender);
        let wants_it = !sent.sender.is_empty() && wants(notify, Kind::Relayed);
        if !wants_it && !relayed.is_empty() {
            self.say(format!("{what}: success was reported that nobody wants to hear of"));
        }
        let Some(taken) = takes.iter().rfind(|taken| taken.acked.is_some()).filter(|_| wants_it) else { return };
        if self.terms.hosts[taken.host].manners.dsn && self.terms.hosts[taken.host].manners.esmtp {
            let name = what.split(['<', '>']).nth(1).unwrap();
            let params = taken.recipients.iter().find(|(one, _)| one == name).map(|(_, params)| params.as_str());
            if !params.unwrap_or_default().contains(&format!("NOTIFY={}", notify.unwrap())) {
                self.say(format!("{what}: NOTIFY was not passed on: {params:?}"));
            }
        } else if relayed.is_empty() && has_heard {
            self.say(format!("{what}: success was not reported"));
        }
    }

    /// Checks that a live host gets its mail soon, whatever other hosts do.
    fn promptness(&mut self, what: &str, accepted: Duration, takes: &[&Taken]) {
        let Some(taken) = takes.first() else { return };
        if !self.terms.is_prompt || !self.terms.hosts[taken.host].is_always_good() {
            return;
        }
        let is_held = self.facts.held.keys().any(|name| what.contains(name.as_str()));
        let up = self.facts.downs.iter().map(|(_, up)| *up).filter(|up| *up <= taken.at).max().unwrap_or_default();
        let waited = taken.at.saturating_sub(accepted.max(up));
        if waited > PROMPT && !is_held {
            self.say(format!("{what} waited {waited:?} although its host was there"));
        }
    }

    /// Compares octet for octet, but for converted content.
    fn content(&mut self, what: &str, sent: &Sent, taken: &Taken) {
        let Some(content) = without_trace(&taken.content) else {
            return self.say(format!("{what}: no trace field: {}", taken.content.escape_ascii()));
        };
        if taken.sender != sent.sender {
            self.say(format!("{what}: from <{}> instead of <{}>", taken.sender, sent.sender));
        }
        let is_same = content == sent.content;
        let may_differ = sent.is_eight_bit && content.is_ascii() && decoded(content) == sent.content;
        if !is_same && !may_differ {
            let (had, got) = (sent.content.len(), content.len());
            let at = content.iter().zip(&sent.content).position(|(one, other)| one != other);
            self.say(format!("{what}: the content is another, {got} octets for {had}, differing at {at:?}"));
        }
    }

    /// Checks that a connection ended between the end of data and its reply only for a reason.
    fn silences(&mut self) {
        let facts = self.facts;
        for taken in facts.taken.iter().filter(|taken| taken.acked.is_none() && !taken.is_silent) {
            if !self.is_excused(taken.at, taken.at + Duration::from_secs(1)) {
                let Taken { host, at, .. } = taken;
                self.say(format!("at host {host} the connection ended at {at:?} before the answer was read"));
            }
        }
    }

    /// Checks that the rule of the first site holds in every window, for both of its hosts together.
    fn pace(&mut self) {
        if !self.terms.has_rules {
            return;
        }
        let mut times: Vec<Duration> =
            self.facts.taken.iter().filter(|taken| taken.host < 2).map(|taken| taken.at).collect();
        times.sort_unstable();
        for (nth, first) in times.iter().enumerate() {
            // One at once, and another every two seconds; mail in transit may arrive a little closer together.
            let within = times.iter().skip(nth).take_while(|at| **at - *first <= Duration::from_secs(20)).count();
            if within > 12 && !self.is_excused(*first, *first + Duration::from_secs(20)) {
                return self.say(format!("{within} messages for the first site within 20 seconds from {first:?}"));
            }
        }
        for host in 0..2 {
            let most = self.facts.connections.get(host).map_or(0, |(_, most)| *most);
            if most > 2 {
                self.say(format!("{most} connections to host {host}, whose rule allows 2"));
            }
        }
    }

    fn connections(&mut self) {
        let each = self.terms.connections_each;
        let facts = self.facts;
        if facts.connections_most > self.terms.connections_max {
            self.say(format!("{} connections of {}", facts.connections_most, self.terms.connections_max));
        }
        if self.terms.is_one_destination && facts.connections_most > each {
            self.say(format!("{} connections to one destination of {each}", facts.connections_most));
        }
        for (host, (_, most)) in facts.connections.iter().enumerate() {
            // The hosts of the first site have a rule of their own: `pace` looks at it.
            if *most > each && !(self.terms.has_rules && host < 2) {
                self.say(format!("{most} connections to host {host} of {each}"));
            }
        }
    }
}

/// Returns the value of a field that stands on one line.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Decodes quoted-printable or base64 and leaves the header as it was.
fn decoded(content: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(content);
    let Some((header, body)) = text.split_once("\r\n\r\n") else { return Vec::new() };
    let is_quoted = header.contains("Content-Transfer-Encoding: quoted-printable");
    let name = if is_quoted { "quoted-printable" } else { "base64" };
    let mut out =
        header.replace(&format!("Content-Transfer-Encoding: {name}"), "Content-Transfer-Encoding: 8bit").into_bytes();
    out.extend_from_slice(b"\r\n\r\n");
    if !is_quoted {
        use base64ct::{Base64, Encoding as _};
        let joined: String = body.split_whitespace().collect();
        out.extend(Base64::decode_vec(&joined).unwrap_or_default());
        return out;
    }
    let mut rest = body.replace("=\r\n", "").into_bytes().into_iter();
    while let Some(byte) = rest.next() {
        let code = if byte == b'=' { rest.next().zip(rest.next()) } else { None };
        let decoded = code.and_then(|(high, low)| u8::from_str_radix(str::from_utf8(&[high, low]).ok()?, 16).ok());
        out.push(decoded.unwrap_or(byte));
    }
    out
}
