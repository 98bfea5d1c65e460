//! One connection to one host: octets of a client in, flights of replies out, each with the time at which it leaves.
//!
//! ```text
//! connect ──► input* ──► disconnect
//!     │         │
//!     └── wake ─┴──► leave ──► octets to send, messages taken, what becomes of the connection
//! ```
//!
//! Invariants: the same input cut in any way gets the same octets; flights leave in the order of the commands; a
//! message is reported as taken once, when its answer leaves or the connection ends, and never for a transaction that
//! was refused. A flight answers one call of `input`, and leaves when the host's delay has passed.
//!
//! It is liberal: a client may send commands early, and parameters are passed over. The protocol is written here once
//! more, and not taken from the server's room, so that a witness is not the accused.

mod content;
mod hostile;

use crate::chance::hash;
use crate::character::{Character, Door, Hostility};
use crate::ledger::{How, Taken};
use crate::magic::{self, AtDot, Refusal, Wish};
use crate::plan::Plan;
use crate::world::{Counts, Host, World};
use content::{Content, Ended};
use hostile::Stream;
use std::collections::VecDeque;
use std::time::Duration;

/// The longest command.
const LINE_MAX: usize = 4 << 10;
/// Recipients of a transaction; 452 beyond it.
const RECIPIENTS_MAX: usize = 1_000;
/// Octets of a content; 552 beyond it.
const CONTENT_MAX: u64 = 64 << 20;

/// Octets and records that leave together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// For the client.
    pub octets: Vec<u8>,
    /// For the ledger. A caller that cannot send the octets makes them [`How::Silent`].
    pub taken: Vec<Taken>,
    /// The state of the connection once the octets are sent.
    pub then: Then,
}

/// The state of a connection behind a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It stays.
    Stay,
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
}

/// A connection to a host.
#[derive(Debug)]
pub struct Mailhost {
    host: u32,
    connection: u64,
    state: State,
    /// The beginning of a command whose end has not come.
    line: Vec<u8>,
    is_line_too_long: bool,
    /// It offered nothing; a later change of the host's character does not change that.
    is_plain: bool,
    has_sender: bool,
    transactions: u32,
    recipients: Vec<Box<[u8]>>,
    at_dot: Option<AtDot>,
    content: Content,
    /// The answer that is being made.
    flight: Flight,
    /// Nothing leaves before.
    not_before: Duration,
    waiting: VecDeque<(Duration, Flight)>,
    /// A hostile answer, which comes after so many of `waiting` and before the others.
    stream: Option<(usize, Stream)>,
    /// It comes once.
    had_stream: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Command,
    /// RFC 5321 §4.1.1.4
    Text,
    /// RFC 3030 §2: octets of a chunk that are left.
    Chunk {
        left: u64,
        is_last: bool,
        is_refused: bool,
    },
    /// The next octets are a client's TLS.
    Handshake,
    /// Reads and never answers.
    Deaf,
}

/// The parts of the world that a connection uses.
struct Side<'w> {
    plan: &'w Plan,
    host: &'w mut Host,
    counts: &'w mut Counts,
    character: Character,
    now: Duration,
}

impl World {
    /// Opens a connection to a host. `None`: there is no such host.
    pub fn connect(&mut self, host: u32, now: Duration) -> Option<Mailhost> {
        let (plan, host_of, counts) = self.parts(host)?;
        let character = host_of.script.at(now);
        host_of.connections = host_of.connections.saturating_add(1);
        host_of.open += 1;
        host_of.open_max = host_of.open_max.max(host_of.open);
        counts.connections += 1;
        counts.open += 1;
        counts.open_max = counts.open_max.max(counts.open);
        let connection = counts.connections;
        let mut mailhost = Mailhost::new(host, connection);
        let mut side = Side { plan, host: host_of, counts, character, now };
        mailhost.greet(&mut side);
        mailhost.launch(&side);
        Some(mailhost)
    }

    /// Gives a connection what its client sent.
    pub fn input(&mut self, mailhost: &mut Mailhost, input: &[u8], now: Duration) {
        let Some((plan, host, counts)) = self.parts(mailhost.host) else { return };
        let character = host.script.at(now);
        let mut side = Side { plan, host, counts, character, now };
        match character.door() {
            Door::Open => mailhost.read(&mut side, input),
            Door::Refuses => mailhost.end(Then::Reset),
            Door::Drops => mailhost.state = State::Deaf,
        }
        mailhost.launch(&side);
    }

    /// Takes the next flight that is due.
    pub fn leave(&mut self, mailhost: &mut Mailhost, now: Duration) -> Option<Flight> {
        let (_, host, _) = self.parts(mailhost.host)?;
        match host.script.at(now).door() {
            Door::Open => {}
            Door::Refuses => {
                let taken = mailhost.give_up(now);
                mailhost.state = State::Deaf;
                return Some(Flight { octets: Vec::new(), taken, then: Then::Reset });
            }
            // Octets that have not left are lost.
            Door::Drops => {
                let taken = mailhost.give_up(now);
                mailhost.state = State::Deaf;
                return (!taken.is_empty()).then_some(Flight { octets: Vec::new(), taken, then: Then::Stay });
            }
        }
        if let Some((0, stream)) = &mut mailhost.stream {
            let octets = stream.next(now)?;
            if stream.due().is_none() {
                mailhost.stream = None;
            }
            return Some(Flight { octets, taken: Vec::new(), then: Then::Stay });
        }
        if mailhost.waiting.front().is_some_and(|(due, _)| *due <= now) {
            let (_, mut flight) = mailhost.waiting.pop_front()?;
            if let Some((before, _)) = &mut mailhost.stream {
                *before -= 1;
            }
            for taken in &mut flight.taken {
                taken.at = now;
                if taken.how == How::Acknowledged {
                    host.messages = host.messages.saturating_add(1);
                    host.recipients += taken.recipients.len() as u64;
                }
            }
            return Some(flight);
        }
        None
    }

    /// Ends a connection, for either side. Messages that were taken and not answered yet are returned as
    /// [`How::Silent`].
    pub fn disconnect(&mut self, mut mailhost: Mailhost, now: Duration) -> Vec<Taken> {
        if let Some((_, host, counts)) = self.parts(mailhost.host) {
            host.open = host.open.saturating_sub(1);
            counts.open = counts.open.saturating_sub(1);
        }
        mailhost.give_up(now)
    }
}

impl Mailhost {
    fn new(host: u32, connection: u64) -> Self {
        Self {
            host,
            connection,
            state: State::Command,
            line: Vec::new(),
            is_line_too_long: false,
            is_plain: false,
            has_sender: false,
            transactions: 0,
            recipients: Vec::new(),
            at_dot: None,
            content: Content::default(),
            flight: Flight::new(),
            not_before: Duration::ZERO,
            waiting: VecDeque::new(),
            stream: None,
            had_stream: false,
        }
    }

    /// The number of the host.
    #[must_use]
    pub fn host(&self) -> u32 {
        self.host
    }

    /// MAIL commands so far, refused ones included.
    #[must_use]
    pub fn transactions(&self) -> u32 {
        self.transactions
    }

    /// When [`World::leave`] has something next.
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        match &self.stream {
            Some((0, stream)) => stream.due(),
            _ => self.waiting.front().map(|(due, _)| *due),
        }
    }

    /// Octets that wait to leave; the reader of the socket should stop above a limit.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.waiting.iter().map(|(_, flight)| flight.octets.len()).sum()
    }

    /// Whether more input has to come before the host answers: a client that waits for a TCP acknowledgement would wait
    /// in vain.
    #[must_use]
    pub fn is_in_the_middle(&self) -> bool {
        !self.line.is_empty() || !matches!(self.state, State::Command | State::Deaf)
    }

    /// Drops the waiting flights, and returns the messages taken with them.
    fn give_up(&mut self, now: Duration) -> Vec<Taken> {
        self.stream = None;
        let mut given_up = Vec::new();
        for (_, flight) in self.waiting.drain(..) {
            given_up.extend(flight.taken.into_iter().map(|taken| Taken { at: now, how: How::Silent, ..taken }));
        }
        given_up
    }

    fn greet(&mut self, side: &mut Side<'_>) {
        self.is_plain = side.character == Character::Plain;
        match side.character {
            Character::Dead => self.end(Then::Reset),
            Character::Drop | Character::Hung => self.state = State::Deaf,
            Character::Throttle if side.host.open > side.plan.throttle_connections => {
                self.refuse(side, 421, "4.7.0 too many connections, try again later");
                self.end(Then::Close);
            }
            Character::Hostile(kind @ (Hostility::Early | Hostility::Garbage | Hostility::Trickle)) => {
                self.begin_stream(side, kind);
                self.state = State::Deaf;
            }
            _ => {
                let greeting = format!("220 {} ESMTP mailrace sim", World::name(self.host));
                self.say(&greeting);
            }
        }
    }

    /// Reads the input, command by command.
    fn read(&mut self, side: &mut Side<'_>, mut input: &[u8]) {
        while !input.is_empty() && self.flight.then == Then::Stay {
            match self.state {
                State::Command => input = self.read_line(side, input),
                State::Text => {
                    let (rest, ended) = self.content.text(input);
                    input = rest;
                    if ended == Ended::Yes {
                        self.state = State::Command;
                        self.arrived(side);
                    }
                }
                State::Chunk { left, is_last, is_refused } => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let (chunk, rest) = input.split_at_checked(here).unwrap_or((input, &[]));
                    input = rest;
                    let left = left - chunk.len() as u64;
                    if !is_refused {
                        self.content.chunk(chunk);
                    }
                    self.state = State::Chunk { left, is_last, is_refused };
                    if left == 0 {
                        self.chunk_arrived(side, is_last, is_refused);
                    }
                }
                State::Handshake => {
                    self.flight.octets.extend_from_slice(hostile::not_tls(side.character));
                    self.end(Then::Close);
                    return;
                }
                State::Deaf => return,
            }
        }
    }

    /// Takes one line, or what there is of it; the rest.
    fn read_line<'i>(&mut self, side: &mut Side<'_>, input: &'i [u8]) -> &'i [u8] {
        let Some(end) = input.iter().position(|octet| *octet == b'\n') else {
            if self.line.len() + input.len() > LINE_MAX {
                self.is_line_too_long = true;
                // Something of it stays, so that its end is known to be the end of something.
                self.line.truncate(1);
                self.line.extend(input.first());
            } else {
                self.line.extend_from_slice(input);
            }
            return &[];
        };
        let (here, rest) = input.split_at_checked(end + 1).unwrap_or((input, &[]));
        if std::mem::take(&mut self.is_line_too_long) || self.line.len() + here.len() > LINE_MAX {
            self.line.clear();
            self.refuse(side, 500, "5.5.6 line too long");
        } else if self.line.is_empty() {
            self.command(side, here.trim_ascii_end());
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(here);
            self.command(side, line.trim_ascii_end());
            line.clear();
            self.line = line;
        }
        rest
    }

    fn command(&mut self, side: &mut Side<'_>, line: &[u8]) {
        let end = line.iter().position(|octet| *octet == b' ').unwrap_or(line.len());
        let (verb, rest) = line.split_at_checked(end).unwrap_or((line, &[]));
        let is = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
        if is("RCPT") {
            self.rcpt(side, rest);
        } else if is("MAIL") {
            self.mail(side, rest);
        } else if is("DATA") {
            if self.may_send(side) {
                self.content.begin();
                self.state = State::Text;
                self.say("354 go on");
            }
        } else if is("BDAT") && !self.is_plain {
            self.bdat(side, rest);
        } else if is("EHLO") || is("HELO") {
            self.hello(side, is("EHLO"));
        } else if is("QUIT") {
            self.say("221 2.0.0 bye");
            self.end(Then::Close);
        } else if is("RSET") {
            self.forget();
            self.say("250 2.0.0 forgotten");
        } else if is("NOOP") {
            self.say("250 2.0.0 nothing done");
        } else if is("STARTTLS") && offers_tls(side.character) {
            self.forget();
            self.say("220 2.0.0 go on");
            self.state = State::Handshake;
        } else {
            self.refuse(side, 502, "5.5.1 not known here");
        }
    }

    fn hello(&mut self, side: &Side<'_>, is_extended: bool) {
        self.forget();
        self.is_plain = side.character == Character::Plain;
        let name = World::name(self.host);
        match side.character {
            Character::HungHello => self.state = State::Deaf,
            Character::Hostile(kind @ (Hostility::Endless | Hostility::LongLine | Hostility::Flood))
                if !self.had_stream =>
            {
                self.begin_stream(side, kind);
            }
            Character::Plain => self.say(&format!("250 {name}")),
            _ if !is_extended => self.say(&format!("250 {name}")),
            character => {
                let tls = if offers_tls(character) { "250-STARTTLS\r\n" } else { "" };
                self.say(&format!(
                    "250-{name}\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-DSN\r\n250-ENHANCEDSTATUSCODES\r\n\
                     250-CHUNKING\r\n{tls}250 SIZE {CONTENT_MAX}"
                ));
            }
        }
    }

    fn mail(&mut self, side: &mut Side<'_>, rest: &[u8]) {
        self.forget();
        if path(rest, b"FROM:").is_none() {
            return self.refuse(side, 501, "5.5.4 MAIL FROM:<address>");
        }
        self.transactions = self.transactions.saturating_add(1);
        match side.character {
            Character::Busy => self.refuse(side, 451, "4.3.0 busy, try again later"),
            Character::HungMail => self.state = State::Deaf,
            Character::Throttle if !side.host.bears(side.plan.throttle_interval, side.now) => {
                self.refuse(side, 421, "4.7.0 too many messages, try again later");
                self.end(Then::Close);
            }
            Character::Hostile(Hostility::Wordy) if !self.transactions.is_multiple_of(2) => {
                self.refuse_at_length(side, 451, "4.3.0 not now");
            }
            _ => {
                self.has_sender = true;
                self.say("250 2.1.0 sender taken");
            }
        }
    }

    fn rcpt(&mut self, side: &mut Side<'_>, rest: &[u8]) {
        if !self.has_sender {
            return self.refuse(side, 503, "5.5.1 MAIL first");
        }
        let Some(address) = path(rest, b"TO:").filter(|address| !address.is_empty()) else {
            return self.refuse(side, 501, "5.5.4 RCPT TO:<address>");
        };
        if side.character == Character::Hostile(Hostility::Wordy) {
            let address = String::from_utf8_lossy(address).into_owned();
            return self.refuse_at_length(side, 550, &format!("5.1.1 <{address}>"));
        }
        if self.recipients.len() >= RECIPIENTS_MAX {
            return self.refuse(side, 452, "4.5.3 too many recipients");
        }
        let wish = magic::wish(address);
        let is_put_off = wish == Some(Wish::Greylist) || wish.is_none() && side.character == Character::Greylist;
        match wish {
            _ if is_put_off => {
                let number = hash(side.plan.seed, address);
                if side.host.puts_off(number, side.plan.greylist, side.now) {
                    return self.refuse(side, 450, "4.7.1 greylisted, try again later");
                }
            }
            None if side.character == Character::Reject => {
                if side.plan.reject_users.holds(hash(side.plan.seed, address)) {
                    return self.refuse(side, 550, "5.1.1 no such user");
                }
            }
            None | Some(Wish::Ok | Wish::Greylist) => {}
            Some(Wish::Refuse(refusal)) => return self.refuse_as_asked(side, refusal),
            Some(Wish::Dismiss) => {
                self.refuse(side, 421, "4.3.2 as asked");
                return self.end(Then::Close);
            }
            Some(Wish::Slow) => {
                self.launch(side);
                self.not_before = self.not_before.max(side.now.saturating_add(side.plan.slow));
            }
            Some(Wish::Hang) => {
                self.state = State::Deaf;
                return;
            }
            Some(Wish::Drop) => return self.end(Then::Close),
            Some(Wish::AtDot(at_dot)) => self.at_dot = self.at_dot.or(Some(at_dot)),
        }
        self.recipients.push(address.into());
        self.say("250 2.1.5 recipient taken");
    }

    /// Whether content may come; else something was said.
    fn may_send(&mut self, side: &mut Side<'_>) -> bool {
        match (self.has_sender, self.recipients.is_empty()) {
            (false, _) => self.refuse(side, 503, "5.5.1 MAIL first"),
            (true, true) => self.refuse(side, 554, "5.5.1 no recipients"),
            (true, false) => return true,
        }
        false
    }

    fn bdat(&mut self, side: &mut Side<'_>, rest: &[u8]) {
        let mut words = rest.split(|octet| *octet == b' ').filter(|word| !word.is_empty());
        let octets = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse::<u64>().ok());
        let last = words.next();
        let is_last = last.is_some_and(|word| word.eq_ignore_ascii_case(b"LAST"));
        let Some(left) = octets.filter(|_| last.is_none() || is_last) else {
            return self.refuse(side, 501, "5.5.4 BDAT octets [LAST]");
        };
        let is_refused = !self.has_sender || self.recipients.is_empty();
        if left == 0 {
            return self.chunk_arrived(side, is_last, is_refused);
        }
        self.state = State::Chunk { left, is_last, is_refused };
    }

    fn chunk_arrived(&mut self, side: &mut Side<'_>, is_last: bool, is_refused: bool) {
        self.state = State::Command;
        match (is_refused, is_last) {
            (true, _) => {
                self.may_send(side);
            }
            (false, true) => self.arrived(side),
            (false, false) => self.say("250 2.0.0 go on"),
        }
    }

    /// The content is there.
    fn arrived(&mut self, side: &mut Side<'_>) {
        let by_character = match side.character {
            Character::HungData => Some(AtDot::Hang),
            Character::Cut => Some(AtDot::Cut),
            Character::CutTaken => Some(AtDot::CutTaken),
            _ => None,
        };
        let how = match self.at_dot.or(by_character) {
            None => How::Acknowledged,
            Some(AtDot::CutTaken) => How::Silent,
            Some(AtDot::Cut) => {
                self.forget();
                return self.end(Then::Close);
            }
            Some(AtDot::Hang) => {
                self.state = State::Deaf;
                return;
            }
            Some(AtDot::Refuse(refusal)) => {
                self.forget();
                return self.refuse_as_asked(side, refusal);
            }
        };
        let (octets, token) = self.content.take();
        if octets > CONTENT_MAX {
            self.forget();
            return self.refuse(side, 552, "5.3.4 too large");
        }
        let recipients = std::mem::take(&mut self.recipients);
        let (host, connection) = (self.host, self.connection);
        self.flight.taken.push(Taken { at: side.now, host, connection, how, octets, token, recipients });
        self.forget();
        match how {
            How::Acknowledged => self.say("250 2.0.0 taken"),
            How::Silent => self.end(Then::Close),
        }
    }

    fn forget(&mut self) {
        self.has_sender = false;
        self.recipients.clear();
        self.at_dot = None;
        self.content.begin();
    }

    fn say(&mut self, text: &str) {
        self.flight.octets.extend_from_slice(text.as_bytes());
        self.flight.octets.extend_from_slice(b"\r\n");
    }

    fn refuse(&mut self, side: &mut Side<'_>, code: u16, text: &str) {
        side.counts.refuse(code);
        self.say(&format!("{code} {text}"));
    }

    fn refuse_at_length(&mut self, side: &mut Side<'_>, code: u16, text: &str) {
        side.counts.refuse(code);
        hostile::write_wordy(code, text, &mut self.flight.octets);
    }

    fn refuse_as_asked(&mut self, side: &mut Side<'_>, refusal: Refusal) {
        side.counts.refuse(refusal.code);
        self.say(&format!("{refusal} as asked"));
    }

    fn begin_stream(&mut self, side: &Side<'_>, kind: Hostility) {
        self.launch(side);
        self.not_before = self.not_before.max(side.now.saturating_add(side.plan.delay));
        self.stream = Some((self.waiting.len(), Stream::new(kind, self.not_before)));
        self.had_stream = true;
    }

    fn end(&mut self, then: Then) {
        self.flight.then = then;
        self.state = State::Deaf;
    }

    /// Queues the flight with the answer.
    fn launch(&mut self, side: &Side<'_>) {
        if self.flight.octets.is_empty() && self.flight.then == Then::Stay {
            return;
        }
        let delay = if side.character == Character::Slow { side.plan.slow } else { side.plan.delay };
        let due = side.now.saturating_add(delay).max(self.not_before);
        self.not_before = due;
        self.waiting.push_back((due, std::mem::replace(&mut self.flight, Flight::new())));
    }
}

impl Flight {
    fn new() -> Self {
        Self { octets: Vec::new(), taken: Vec::new(), then: Then::Stay }
    }
}

fn offers_tls(character: Character) -> bool {
    matches!(character, Character::BrokenTls | Character::Hostile(Hostility::TlsCut))
}

/// The address of MAIL or RCPT. Parameters are passed over.
fn path<'l>(rest: &'l [u8], begin: &[u8]) -> Option<&'l [u8]> {
    let rest = rest.trim_ascii_start();
    let (word, rest) = rest.split_at_checked(begin.len())?;
    if !word.eq_ignore_ascii_case(begin) {
        return None;
    }
    let rest = rest.trim_ascii_start().strip_prefix(b"<")?;
    let end = rest.iter().rposition(|octet| *octet == b'>')?;
    rest.get(..end)
}

#[cfg(test)]
mod tests;
