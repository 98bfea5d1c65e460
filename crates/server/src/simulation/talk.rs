//! A host's side of SMTP and LMTP, strict with its client: it notes every command that a client may not send as a
//! fault.

use super::book::{Counted, Taken};
use super::host::{Fault, Host, Mood, Point};
use super::wire::Wire;
use crate::transport::Transport;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::duplex;

/// Connects to a host, which answers in a task of its own.
pub(super) async fn connect(host: Arc<Host>) -> io::Result<Transport> {
    let counted = Counted::new(&host.book, host.number);
    let (mood, number) = (host.mood(), host.number);
    host.book.note(|| format!("host {number}: connection, {mood:?}"));
    if !host.manners.latency.is_zero() {
        tokio::time::sleep(host.manners.latency).await;
    }
    match mood {
        Mood::Refuses => return Err(io::ErrorKind::ConnectionRefused.into()),
        Mood::Unreachable => return Err(io::ErrorKind::HostUnreachable.into()),
        Mood::Silent => std::future::pending().await,
        Mood::Good | Mood::Faulty(..) => {}
    }
    let (ours, theirs) = duplex(64 << 10);
    tokio::spawn(async move {
        Talk::new(&host, Wire::new(ours), mood, counted).run().await;
    });
    Ok(Transport::Memory(theirs))
}

/// Turns of all tasks in which a client reads the replies.
const TURNS: usize = 20;

/// One conversation.
pub(super) struct Talk<'a> {
    host: &'a Host,
    wire: Wire,
    mood: Mood,
    /// MAIL commands so far.
    transactions: u32,
    /// EHLO was answered: its extensions may be used.
    is_extended: bool,
    sender: Option<String>,
    /// Those that were taken, with their parameters.
    recipients: Vec<(String, String)>,
    is_eight_bit: bool,
    /// Content that came by BDAT.
    chunks: Vec<u8>,
    /// Messages that were accepted and whose reply is not sent yet.
    answered: Vec<usize>,
    /// Counts the connection until QUIT: after it the client needs nothing more of the host.
    counted: Option<Counted>,
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// As usual.
    Fine,
    /// A refusal was sent.
    Refused,
    /// It is over.
    Over,
}

impl<'a> Talk<'a> {
    const fn new(host: &'a Host, wire: Wire, mood: Mood, counted: Counted) -> Self {
        Self {
            host,
            wire,
            mood,
            transactions: 0,
            is_extended: false,
            sender: None,
            recipients: Vec::new(),
            is_eight_bit: false,
            chunks: Vec::new(),
            answered: Vec::new(),
            counted: Some(counted),
        }
    }

    pub(super) async fn run(mut self) {
        let is_welcome = match self.fault(Point::Greeting).await {
            On::Fine => true,
            On::Refused => false,
            On::Over => return,
        };
        if is_welcome {
            self.say("220 host ESMTP").await;
        }
        while let Some(line) = self.wire.line().await {
            let Some(text) = line.strip_suffix(b"\r\n").and_then(|line| str::from_utf8(line).ok()) else {
                self.wrong(format!("a line without CRLF or not UTF-8: {}", line.escape_ascii()));
                return;
            };
            if line.len() > 512 + 500 {
                self.wrong(format!("a line of {} octets", line.len()));
            }
            let text = text.to_owned();
            let number = self.host.number;
            self.host.book.note(|| format!("host {number}: < {text}"));
            let verb = text.split(' ').next().unwrap().to_ascii_uppercase();
            let on = match verb.as_str() {
                "QUIT" => {
                    self.counted = None;
                    self.say("221 2.0.0 bye").await;
                    On::Over
                }
                _ if !is_welcome => self.answer("503 5.5.1 go away").await,
                "EHLO" | "HELO" | "LHLO" => self.hello(&verb).await,
                "MAIL" => Box::pin(self.mail(&text)).await,
                "RCPT" => Box::pin(self.rcpt(&text)).await,
                "DATA" => Box::pin(self.data()).await,
                "BDAT" => Box::pin(self.bdat(&text)).await,
                "RSET" => {
                    self.forget();
                    self.answer("250 2.0.0 reset").await
                }
                _ => {
                    self.wrong(format!("unknown command {text:?}"));
                    self.answer("500 5.5.1 what").await
                }
            };
            if on == On::Over {
                self.flush().await;
                return;
            }
        }
    }

    fn wrong(&self, what: String) {
        self.host.book.wrong(format!("host {}: {what}", self.host.number));
    }

    fn forget(&mut self) {
        self.sender = None;
        self.recipients.clear();
        self.chunks.clear();
        self.is_eight_bit = false;
    }

    /// Sends a reply when no more input is to be read first. False if the client is gone.
    async fn say(&mut self, text: &str) -> bool {
        let number = self.host.number;
        self.host.book.note(|| format!("host {number}: > {text}"));
        self.wire.output.extend_from_slice(text.as_bytes());
        self.wire.output.extend_from_slice(b"\r\n");
        let may_run_ahead = self.is_extended && self.host.manners.pipelining;
        if !may_run_ahead && !self.wire.input.is_empty() {
            self.wrong(format!("input before the reply {text:?}: {}", self.wire.input.escape_ascii()));
        }
        // RFC 2920 §3.2: replies wait while commands are there
        if may_run_ahead && self.wire.has_line() && text.starts_with(['2', '4', '5']) {
            return true;
        }
        if !self.host.manners.latency.is_zero() {
            let latency = self.host.manners.latency;
            self.wire.pause(latency).await;
        }
        self.flush().await
    }

    async fn answer(&mut self, text: &str) -> On {
        if self.say(text).await { On::Fine } else { On::Over }
    }

    /// Plays the fault of this point, if it is the one.
    async fn fault(&mut self, point: Point) -> On {
        let is_early = matches!(point, Point::Greeting | Point::Hello | Point::Ready);
        let fault = match self.mood {
            Mood::Faulty(at, fault, nth) if at == point && (is_early || nth == self.transactions) => fault,
            _ => return On::Fine,
        };
        // Reports must not be refused for good, or they would reach no one.
        let is_report = self.sender.as_deref() == Some("");
        match fault {
            Fault::Hard if !is_report => {
                if !is_early {
                    let mut facts = self.host.book.facts();
                    match point {
                        Point::Mail => facts.refused_senders.extend(self.sender.clone()),
                        Point::Rcpt => facts.refused.extend(self.recipients.last().map(|(name, _)| name.clone())),
                        _ => facts.refused.extend(self.recipients.iter().map(|(name, _)| name.clone())),
                    }
                }
                self.refuse(point, "554 5.3.0 never").await
            }
            Fault::Soft | Fault::Hard => self.refuse(point, "451 4.3.0 not now").await,
            Fault::Dismiss => {
                if point == Point::Ready {
                    // The client reads the reply, and then its message: it has no time to send something.
                    for _ in 0..TURNS {
                        tokio::task::yield_now().await;
                    }
                } else {
                    // In the middle of content, too.
                    let latency = self.host.manners.latency;
                    self.wire.pause(latency).await;
                }
                self.wire.output.extend_from_slice(b"421 4.3.2 closing\r\n");
                self.flush().await;
                On::Over
            }
            Fault::Close => {
                self.flush().await;
                On::Over
            }
            Fault::Hang => {
                self.flush().await;
                self.wire.hang().await;
                On::Over
            }
            Fault::Endless => {
                self.wire.output.extend_from_slice(&b"250-more\r\n".repeat(20));
                while self.flush().await {
                    self.wire.pause(Duration::from_millis(10)).await;
                    self.wire.output.extend_from_slice(&b"250-more\r\n".repeat(20));
                }
                On::Over
            }
            Fault::Garbage => {
                self.wire.output.extend_from_slice(b"\0\xff2xx quite wrong\r\n\r\n");
                self.flush().await;
                self.wire.hang().await;
                On::Over
            }
            Fault::Late => {
                self.wire.pause(Duration::from_secs(120)).await;
                On::Fine
            }
            Fault::KeepAndClose => {
                self.keep(true);
                On::Over
            }
            Fault::KeepAndHang => {
                self.keep(true);
                self.flush().await;
                self.wire.hang().await;
                On::Over
            }
        }
    }

    /// RFC 2033 §4.2: behind the dot, an answer for each
    async fn refuse(&mut self, point: Point, text: &str) -> On {
        let is_for_each = self.host.manners.is_lmtp && point == Point::Dot;
        let count = if is_for_each { self.recipients.len().max(1) } else { 1 };
        self.say(&vec![text; count].join("\r\n")).await;
        On::Refused
    }

    /// Sends waiting replies; accepted messages are answered then.
    async fn flush(&mut self) -> bool {
        let is_sent = self.wire.flush().await;
        let answered = std::mem::take(&mut self.answered);
        if is_sent {
            let now = self.host.book.now();
            for taken in answered {
                if let Some(taken) = self.host.book.facts().taken.get_mut(taken) {
                    taken.acked = Some(now);
                }
            }
        }
        is_sent
    }

    async fn hello(&mut self, verb: &str) -> On {
        let manners = self.host.manners;
        if (verb == "LHLO") != manners.is_lmtp {
            return self.answer("500 5.5.1 wrong protocol").await;
        }
        if verb == "EHLO" && !manners.esmtp {
            return self.answer("500 5.5.1 what").await;
        }
        match self.fault(Point::Hello).await {
            On::Fine => {}
            other => return other,
        }
        if verb == "HELO" {
            return match self.answer("250 host").await {
                On::Fine => self.fault(Point::Ready).await,
                other => other,
            };
        }
        let mut lines = vec!["host".to_owned()];
        for (name, is_offered) in [
            ("PIPELINING", manners.pipelining),
            ("CHUNKING", manners.chunking),
            ("8BITMIME", manners.eight_bit),
            ("DSN", manners.dsn),
            ("ENHANCEDSTATUSCODES", true),
        ] {
            lines.extend(is_offered.then(|| name.to_owned()));
        }
        lines.extend(manners.size.map(|size| format!("SIZE {size}")));
        let last = lines.pop().unwrap();
        let mut text: String = lines.iter().map(|line| format!("250-{line}\r\n")).collect();
        text.push_str(&format!("250 {last}"));
        let on = self.answer(&text).await;
        self.is_extended = true;
        if on == On::Fine { self.fault(Point::Ready).await } else { on }
    }

    async fn mail(&mut self, text: &str) -> On {
        if self.sender.is_some() {
            self.wrong("MAIL in a transaction".to_owned());
        }
        self.forget();
        let Some((path, params)) = path(text, "MAIL FROM:<") else {
            self.wrong(format!("not MAIL: {text:?}"));
            return self.answer("501 5.5.2 what").await;
        };
        self.check_params(params, &[("SIZE", self.host.manners.size.is_some()), ("BODY", self.host.manners.eight_bit)]);
        self.is_eight_bit = params.contains("BODY=8BITMIME");
        if self.transactions >= self.host.manners.messages_max {
            if !path.len().is_multiple_of(2) {
                self.say("421 4.3.2 that was enough").await;
            }
            return On::Over;
        }
        if !self.host.bears() {
            self.say("421 4.7.0 too many messages").await;
            return On::Over;
        }
        self.transactions += 1;
        self.sender = Some(path.to_owned());
        let on = self.fault(Point::Mail).await;
        if on != On::Fine {
            self.sender = None;
            return on;
        }
        self.answer("250 2.1.0 ok").await
    }

    async fn rcpt(&mut self, text: &str) -> On {
        let Some((name, params)) = path(text, "RCPT TO:<") else {
            self.wrong(format!("not RCPT: {text:?}"));
            return self.answer("501 5.5.2 what").await;
        };
        self.check_params(params, &[("NOTIFY", self.host.manners.dsn), ("ORCPT", self.host.manners.dsn)]);
        if self.sender.is_none() {
            return self.answer("503 5.5.1 no MAIL").await;
        }
        self.recipients.push((name.to_owned(), params.to_owned()));
        let on = self.fault(Point::Rcpt).await;
        if on != On::Fine {
            self.recipients.pop();
            return on;
        }
        let is_report = self.sender.as_deref() == Some("");
        let manners = self.host.manners;
        if let Some(wait) = manners.greylist {
            let now = self.host.book.now();
            let first = *self.host.seen.lock().unwrap().entry(name.to_owned()).or_insert(now);
            if now < first + wait {
                self.recipients.pop();
                return self.answer("450 4.7.1 greylisted").await;
            }
        }
        let (hard, soft) = {
            let mut random = self.host.random.lock().unwrap();
            (random.within(0, 999) < manners.hard_rcpt, random.within(0, 999) < manners.soft_rcpt)
        };
        if hard && !is_report {
            self.host.book.facts().refused.insert(name.to_owned());
            self.recipients.pop();
            return self.answer("550 5.1.1 unknown").await;
        }
        if soft {
            self.recipients.pop();
            return self.answer("452 4.2.2 full").await;
        }
        self.answer("250 2.1.5 ok").await
    }

    /// Checks that content may come now; else sends a refusal.
    async fn may_send(&mut self) -> On {
        if self.sender.is_none() {
            self.say("503 5.5.1 no MAIL").await;
            return On::Refused;
        }
        if self.recipients.is_empty() && (self.host.manners.is_lmtp || !self.host.manners.is_generous) {
            self.say("554 5.5.1 no valid recipients").await;
            return On::Refused;
        }
        self.fault(Point::Data).await
    }

    async fn data(&mut self) -> On {
        match self.may_send().await {
            On::Fine => {}
            On::Refused => return On::Fine,
            On::Over => return On::Over,
        }
        if !self.say("354 go").await {
            return On::Over;
        }
        let mut content = Vec::new();
        let mut is_first = true;
        loop {
            let Some(line) = self.wire.line().await else { return On::Over };
            if std::mem::take(&mut is_first) && self.fault(Point::Content).await != On::Fine {
                return On::Over;
            }
            if line == b".\r\n" {
                break;
            }
            if !line.ends_with(b"\r\n") {
                self.wrong("a bare LF in DATA".to_owned());
            }
            content.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
        }
        self.chunks = content;
        self.end().await
    }

    async fn bdat(&mut self, text: &str) -> On {
        let words: Vec<&str> = text.split(' ').collect();
        let (count, is_last) = match words.as_slice() {
            [_, count] => (count.parse::<usize>(), false),
            [_, count, last] if last.eq_ignore_ascii_case("LAST") => (count.parse(), true),
            _ => return self.answer("501 5.5.2 what").await,
        };
        if !self.is_extended || !self.host.manners.chunking {
            self.wrong("BDAT was not offered".to_owned());
        }
        let Ok(count) = count else { return self.answer("501 5.5.2 what").await };
        if self.fault(Point::Content).await == On::Over {
            return On::Over;
        }
        let Some(octets) = self.wire.octets(count).await else { return On::Over };
        match self.may_send().await {
            On::Fine => {}
            On::Refused => return On::Fine,
            On::Over => return On::Over,
        }
        if self.recipients.is_empty() {
            return self.answer("554 5.5.1 no valid recipients").await;
        }
        self.chunks.extend_from_slice(&octets);
        if is_last { self.end().await } else { self.answer("250 2.0.0 more").await }
    }

    /// Accepts or refuses a message whose content is there.
    async fn end(&mut self) -> On {
        if !self.is_eight_bit && !self.chunks.is_ascii() {
            self.wrong("8-bit content without BODY=8BITMIME".to_owned());
        }
        let on = self.fault(Point::Dot).await;
        if on != On::Fine {
            self.forget();
            return if on == On::Refused { On::Fine } else { on };
        }
        if self.host.manners.is_lmtp {
            return self.end_each().await;
        }
        if self.recipients.is_empty() {
            self.forget();
            return self.answer("554 5.5.1 no valid recipients").await;
        }
        let taken = self.keep(false);
        self.answered.push(taken);
        self.forget();
        self.answer("250 2.0.0 taken").await
    }

    /// RFC 2033 §4.2: an answer for each
    async fn end_each(&mut self) -> On {
        let mut answers = Vec::new();
        let all = std::mem::take(&mut self.recipients);
        for (name, params) in all {
            let is_fine = self.host.random.lock().unwrap().within(0, 999) >= self.host.manners.soft_rcpt;
            answers.push(if is_fine { "250 2.0.0 taken" } else { "452 4.2.2 full" });
            if is_fine {
                self.recipients.push((name, params));
            }
        }
        if !self.recipients.is_empty() {
            let taken = self.keep(false);
            self.answered.push(taken);
        }
        self.forget();
        if answers.is_empty() {
            // RFC 2033 §4.2: no recipients, so no answer
            return On::Fine;
        }
        self.answer(&answers.join("\r\n")).await
    }

    /// Takes the message; its number.
    fn keep(&mut self, is_silent: bool) -> usize {
        let taken = Taken {
            host: self.host.number,
            at: self.host.book.now(),
            sender: self.sender.clone().unwrap_or_default(),
            recipients: self.recipients.clone(),
            content: self.chunks.clone(),
            acked: None,
            is_silent,
        };
        let mut facts = self.host.book.facts();
        if !taken.recipients.is_empty() {
            facts.taken.push(taken);
        }
        facts.taken.len().saturating_sub(1)
    }

    /// Parameters that were not offered are wrong.
    fn check_params(&self, params: &str, known: &[(&str, bool)]) {
        let dsn = self.host.manners.dsn;
        for param in params.split_whitespace() {
            let name = param.split('=').next().unwrap();
            let is_offered = known.iter().chain(&[("RET", dsn), ("ENVID", dsn)]).any(|(one, is)| *one == name && *is);
            if !is_offered || !self.is_extended {
                self.wrong(format!("{param} was not offered"));
            }
        }
    }
}

/// Splits the path of a command from the rest.
fn path<'a>(text: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(begin)?.split_once('>')
}
