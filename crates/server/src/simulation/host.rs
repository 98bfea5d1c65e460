//! Next hops and their behaviour over time.
//!
//! A [`Host`] answers connections. Each connection finds it in a [`Mood`], by chance and by the time of the run: most
//! moods are a fault at one point of one transaction. `talk` has its dialog.

use super::book::Book;
use super::random::Random;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// More than any run has messages for.
const TAKEN_MAX: usize = 4_000;

/// Where in a conversation something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Greeting,
    Hello,
    /// EHLO was answered, and the client has sent nothing behind it yet.
    Ready,
    Mail,
    Rcpt,
    Data,
    Content,
    Dot,
}

/// A fault at some point of a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No answer any more.
    Hang,
    /// The connection ends.
    Close,
    /// 4xx
    Soft,
    /// 5xx
    Hard,
    /// 421, and the connection ends.
    Dismiss,
    /// After the dot: the message is kept, and there is no answer.
    KeepAndClose,
    /// After the dot: the message is kept, and the answer never comes.
    KeepAndHang,
    /// After the dot: the answer comes two minutes later.
    Late,
    /// A reply that has no end.
    Endless,
    /// Octets that are no reply.
    Garbage,
}

/// How a connection finds a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Good,
    /// It refuses connections.
    Refuses,
    /// No route.
    Unreachable,
    /// No answer to the connection.
    Silent,
    /// A fault at a point of the transaction of this number, from 1.
    Faulty(Point, Fault, u32),
}

/// Extensions and limits of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    pub(super) is_lmtp: bool,
    pub(super) esmtp: bool,
    pub(super) pipelining: bool,
    pub(super) chunking: bool,
    pub(super) eight_bit: bool,
    pub(super) dsn: bool,
    pub(super) size: Option<u64>,
    /// It closes, or answers 421, after so many messages.
    pub(super) messages_max: u32,
    /// Thousandths of recipients that are refused for good.
    pub(super) hard_rcpt: u64,
    /// Thousandths of RCPT commands that are refused for now.
    pub(super) soft_rcpt: u64,
    /// It answers 354 although it accepted no recipient.
    pub(super) is_generous: bool,
    /// It takes one message in so long, and answers 421 to others.
    pub(super) interval: Option<Duration>,
    /// Greylisting: it accepts a client that comes again after this time.
    pub(super) greylist: Option<Duration>,
    /// It never refuses for good a message without a sender, nor mail for the postmaster.
    pub(super) latency: Duration,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) number: usize,
    pub(super) address: Ipv4Addr,
    pub(super) manners: Manners,
    /// Moods, each with the time until which they hold; afterwards the host is good.
    pub(super) days: Vec<(Duration, Vec<Mood>)>,
    /// Never good.
    pub(super) is_dead: bool,
    pub(super) book: Arc<Book>,
    pub(super) random: Mutex<Random>,
    /// Time at which it first saw each pair, for greylisting.
    pub(super) seen: Mutex<std::collections::HashMap<String, Duration>>,
    /// When it takes the next message.
    free_from: Mutex<Duration>,
}

impl Host {
    /// Makes a host by chance. `most` is the longest that it may be in trouble.
    pub(super) fn by_chance(number: usize, seed: u64, most: Duration, book: &Arc<Book>) -> Self {
        let mut random = Random::new(seed, 100 + number as u64);
        let manners = Manners {
            is_lmtp: false,
            esmtp: !random.chance(10),
            pipelining: random.chance(75),
            chunking: random.chance(50),
            eight_bit: random.chance(80),
            dsn: random.chance(50),
            size: random.pick(&[None, Some(0), Some(100_000_000), Some(60_000)]),
            messages_max: random.pick(&[1, 2, 3, u32::MAX, u32::MAX, u32::MAX]),
            hard_rcpt: random.pick(&[0, 0, 50, 300]),
            soft_rcpt: random.pick(&[0, 0, 50, 500]),
            is_generous: random.chance(50),
            interval: None,
            greylist: random.chance(10).then_some(Duration::from_secs(300)),
            latency: Duration::from_millis(random.pick(&[0, 5, 50, 400])),
        };
        let mut days = Vec::new();
        let mut until = Duration::ZERO;
        for _ in 0..random.within(0, 4) {
            until += random.time(Duration::from_secs(60), most / 4);
            let moods = (0..random.within(1, 4)).map(|_| mood(&mut random)).collect();
            days.push((until, moods));
        }
        Self {
            number,
            address: Self::address_of(number),
            manners,
            days,
            is_dead: false,
            book: Arc::clone(book),
            random: Mutex::new(random),
            seen: Mutex::default(),
            free_from: Mutex::default(),
        }
    }

    /// Returns the address of the host of this number.
    pub(super) fn address_of(number: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, u8::try_from(number + 1).unwrap())
    }

    /// Has no trouble at any time and refuses no recipient.
    pub(super) fn is_always_good(&self) -> bool {
        let Manners { hard_rcpt, soft_rcpt, greylist, interval, size, .. } = self.manners;
        // A message sent behind the last one that a server accepts on a connection may be lost, and is tried later.
        let bears_all = self.manners.messages_max == u32::MAX
            && hard_rcpt == 0
            && soft_rcpt == 0
            && greylist.is_none()
            && interval.is_none()
            && size != Some(60_000);
        !self.is_dead && self.days.is_empty() && bears_all && self.manners.eight_bit && self.manners.esmtp
    }

    /// Returns whether it takes a message now.
    pub(super) fn bears(&self) -> bool {
        let Some(interval) = self.manners.interval else { return true };
        let (now, mut free_from) = (self.book.now(), self.free_from.lock().unwrap());
        let is_free = *free_from <= now;
        *free_from = if is_free { now + interval } else { *free_from };
        is_free
    }

    /// Returns whether it may leave connections without an answer.
    pub(super) fn is_silent(&self) -> bool {
        use Fault::{Endless, Garbage, Hang, KeepAndHang};
        let is_one =
            |mood: &Mood| matches!(mood, Mood::Silent | Mood::Faulty(_, Hang | KeepAndHang | Endless | Garbage, _));
        self.days.iter().any(|(_, moods)| moods.iter().any(is_one))
    }

    /// Becomes a host that has no trouble.
    pub(super) fn behave(&mut self) {
        self.days.clear();
        self.manners = Manners {
            hard_rcpt: 0,
            soft_rcpt: 0,
            greylist: None,
            size: None,
            eight_bit: true,
            esmtp: true,
            ..self.manners
        };
    }

    /// Makes the host unreachable, silent or refusing for the whole run.
    pub(super) fn die(&mut self) {
        self.is_dead = true;
        let mut random = self.random.lock().unwrap();
        let moods = vec![random.pick(&[
            Mood::Refuses,
            Mood::Silent,
            Mood::Unreachable,
            Mood::Faulty(Point::Greeting, Fault::Hang, 1),
            Mood::Faulty(Point::Greeting, Fault::Hard, 1),
            Mood::Faulty(Point::Hello, Fault::Hang, 1),
            Mood::Faulty(Point::Mail, Fault::Close, 1),
            Mood::Faulty(Point::Rcpt, Fault::Hang, 1),
            Mood::Faulty(Point::Dot, Fault::Hang, 1),
            Mood::Faulty(Point::Mail, Fault::Soft, 1),
            Mood::Faulty(Point::Greeting, Fault::Garbage, 1),
            Mood::Faulty(Point::Mail, Fault::Endless, 1),
        ])];
        // More than any run lasts.
        self.days = vec![(400 * 24 * HOUR, moods)];
        self.manners.messages_max = 1;
    }

    /// Returns how it finds itself.
    pub(super) fn mood(&self) -> Mood {
        // A server that cannot stop is known by then, and the run shall come to its end.
        if self.book.facts().taken.len() > TAKEN_MAX {
            return Mood::Silent;
        }
        let now = self.book.now();
        let moods = self.days.iter().find(|(until, _)| now < *until).map(|(_, moods)| moods.as_slice());
        moods.map_or(Mood::Good, |moods| self.random.lock().unwrap().pick(moods))
    }
}

fn mood(random: &mut Random) -> Mood {
    use Fault::{Close, Dismiss, Endless, Garbage, Hang, Hard, KeepAndClose, KeepAndHang, Soft};
    use Point::{Content, Data, Dot, Greeting, Hello, Mail, Rcpt};
    let point = random.pick(&[Greeting, Hello, Mail, Rcpt, Data, Content, Dot, Dot]);
    let fault = match point {
        Content => random.pick(&[Hang, Close, Dismiss, Garbage]),
        Dot => random.pick(&[Hang, Close, Soft, Hard, Dismiss, KeepAndClose, KeepAndHang, Endless, Garbage]),
        _ => random.pick(&[Hang, Close, Soft, Soft, Hard, Dismiss, Endless, Garbage]),
    };
    let faulty = Mood::Faulty(point, fault, u32::try_from(random.within(1, 3)).unwrap());
    random.pick(&[Mood::Good, Mood::Refuses, Mood::Unreachable, Mood::Silent, faulty, faulty, faulty, faulty])
}
