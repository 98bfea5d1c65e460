//! One session of a storm: connects, greets, brings message after message, reconnects when it has to.
//!
//! A flight is one write: a command, or with pipelining MAIL to DATA, or with BDAT the whole transaction; then the
//! content with its dot. A message is tried once. One exception: a kept connection that the server has closed since the
//! last message is replaced without counting anything, as every client does.

use super::Tls;
use super::message::{CRLF, StormMessage};
use super::replies::{Buffer, Reply, queue_id};
use super::tally::StormState;
use super::wire::Wire;
use crate::clock;
use std::io;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Content is written whenever this much has come together; smaller content goes in one write.
const FLIGHT: usize = 256 << 10;
/// Commands sent before their replies are read. With more, client and server could both wait for the other to read
/// (RFC 2920 §3.1).
const COMMANDS: usize = 1_000;
/// Rest after a connection that came to nothing, so that a server that is down is not asked in a tight loop.
const REST: Duration = Duration::from_millis(100);

/// A session; lives until the messages or the time are used up.
pub(super) struct Session {
    shared: Arc<StormState>,
    /// Counts up with each connection, to spread over source addresses.
    number: u64,
    wire: Option<Wire>,
    /// The connection has carried a transaction.
    is_used: bool,
    received: Buffer,
    out: Vec<u8>,
}

/// How a transaction ended that did not break.
enum TransactionEnd {
    Accepted {
        id: String,
        at: Instant,
        sent: Instant,
    },
    /// `is_open`: the session can go on after RSET.
    Refused {
        reply: Reply,
        is_open: bool,
    },
}

/// The connection ended in the middle.
struct Broken {
    error: io::Error,
    /// The content had been sent whole, so the server may have taken the message.
    after_content: bool,
    /// Not one reply of this transaction had come.
    at_once: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<StormState>, number: u32) -> Self {
        Self {
            shared,
            number: u64::from(number),
            wire: None,
            is_used: false,
            received: Buffer::default(),
            out: Vec::new(),
        }
    }

    /// Works until there is no message left.
    pub(super) async fn run(mut self) {
        while let Some((letter, due)) = self.shared.next(clock::now()) {
            if let Some(due) = due {
                tokio::time::sleep_until(due.into()).await;
            }
            self.bring(letter, due).await;
            if self.shared.plan.new_connection {
                self.quit().await;
            }
        }
        self.quit().await;
    }

    /// Brings one message and counts what became of it.
    async fn bring(&mut self, letter: StormMessage, due: Option<Instant>) {
        loop {
            let Some(mut wire) = self.connection().await else { return };
            let was_used = std::mem::replace(&mut self.is_used, true);
            match self.transaction(&mut wire, letter).await {
                Ok(verdict) => return self.settle(wire, letter, due, verdict).await,
                Err(broken) if was_used && broken.at_once && !broken.after_content => {}
                Err(broken) => {
                    let mut tally = self.shared.tally();
                    let text = error_text("connection lost", &broken.error);
                    if broken.after_content {
                        tally.unanswered += 1;
                        tally.error(&format!("{text}, after the content"));
                    } else {
                        tally.lost(&text);
                    }
                    return;
                }
            }
        }
    }

    /// Counts a verdict and keeps the connection if it is good for another message.
    async fn settle(&mut self, mut wire: Wire, letter: StormMessage, due: Option<Instant>, verdict: TransactionEnd) {
        match verdict {
            TransactionEnd::Accepted { id, at, sent } => {
                let (latency, delay) = (at.duration_since(sent), due.map(|due| at.duration_since(due)));
                self.shared.tally().accept(self.shared.plan.recipients_of(letter.seq), letter.size, latency, delay);
                if let Some(ledger) = &self.shared.ledger {
                    ledger.add(letter.seq, &id);
                }
                if let Some(told) = &self.shared.plan.told {
                    // The receiver may have ended.
                    told.send(letter.seq).unwrap_or(());
                }
                self.wire = Some(wire);
            }
            TransactionEnd::Refused { reply, is_open } => {
                {
                    let mut tally = self.shared.tally();
                    tally.refused += 1;
                    tally.error(&reply.line());
                }
                if reply.is_goodbye() {
                    tokio::time::sleep(REST).await;
                } else if is_open
                    && let Ok(reset) = ask(&mut wire, &mut self.received, b"RSET\r\n").await
                    && reset.is_positive()
                {
                    self.wire = Some(wire);
                }
            }
        }
    }

    /// The open connection or a new one; without one the message is counted as failed.
    async fn connection(&mut self) -> Option<Wire> {
        if let Some(wire) = self.wire.take() {
            return Some(wire);
        }
        self.received.clear();
        self.is_used = false;
        match self.greet().await {
            Ok(wire) => Some(wire),
            Err(text) => {
                self.shared.tally().lost(&text);
                tokio::time::sleep(REST).await;
                None
            }
        }
    }

    /// Connects and says hello, over TLS if so planned.
    async fn greet(&mut self) -> Result<Wire, String> {
        let shared = Arc::clone(&self.shared);
        let plan = &shared.plan;
        self.number += u64::from(plan.sessions);
        let start = clock::now();
        let failed = |doing: &str, error: &io::Error| {
            shared.tally().not_connected(error);
            error_text(doing, error)
        };
        let not = |doing: &str, reply: &Reply| {
            shared.tally().connects_failed += 1;
            format!("{doing}: {}", reply.line())
        };
        let mut wire = Wire::connect(plan, self.number).await.map_err(|e| failed("connect", &e))?;
        if let (Tls::Implicit, Some(connector)) = (plan.tls, &shared.connector) {
            wire.start_tls(connector, plan.to).await.map_err(|e| failed("TLS", &e))?;
        }
        let greeting = wire.reply(&mut self.received).await.map_err(|e| failed("greeting", &e))?;
        if greeting.code != 220 {
            return Err(not("greeting", &greeting));
        }
        shared.tally().connected(clock::now().duration_since(start));
        let hello: &[u8] = if plan.lmtp { b"LHLO storm.example\r\n" } else { b"EHLO storm.example\r\n" };
        let reply = ask(&mut wire, &mut self.received, hello).await.map_err(|e| failed("hello", &e))?;
        if !reply.is_positive() {
            return Err(not("hello", &reply));
        }
        if let (Tls::Starttls, Some(connector)) = (plan.tls, &shared.connector) {
            let reply =
                ask(&mut wire, &mut self.received, b"STARTTLS\r\n").await.map_err(|e| failed("STARTTLS", &e))?;
            if reply.code != 220 {
                return Err(not("STARTTLS", &reply));
            }
            // Octets before the handshake are not from inside it (RFC 3207 §4.2).
            self.received.clear();
            wire.start_tls(connector, plan.to).await.map_err(|e| failed("TLS", &e))?;
            let reply = ask(&mut wire, &mut self.received, hello).await.map_err(|e| failed("hello", &e))?;
            if !reply.is_positive() {
                return Err(not("hello", &reply));
            }
        }
        Ok(wire)
    }

    /// One transaction, from MAIL to the reply after the content.
    async fn transaction(&mut self, wire: &mut Wire, letter: StormMessage) -> Result<TransactionEnd, Broken> {
        let early = |error| Broken { error, after_content: false, at_once: true };
        self.out.clear();
        self.put_envelope(letter);
        let plan = &self.shared.plan;
        // MAIL, RCPTs, and DATA unless there is BDAT.
        let commands = 1 + plan.recipients_of(letter.seq) as usize + usize::from(!plan.chunking);
        let (pipelining, chunking) = (plan.pipelining, plan.chunking);
        if pipelining && chunking && commands <= COMMANDS {
            let sent = self.send_content(wire, letter).await.map_err(early)?;
            // The content is behind the commands already: after any failure now, the server may have the message.
            let refusal = self.replies(wire, commands).await.map_err(|b| Broken { after_content: true, ..b })?;
            return self.final_reply(wire, letter, sent, refusal).await;
        }
        let refusal = if pipelining { self.in_flights(wire).await? } else { self.one_by_one(wire).await? };
        self.out.clear();
        if let Some((reply, data_is_open)) = refusal {
            // DATA may be open although a recipient was refused. An empty message would end it and be mail to the
            // others, so the connection is given up.
            return Ok(TransactionEnd::Refused { reply, is_open: !data_is_open });
        }
        let middle = |error| Broken { error, after_content: false, at_once: false };
        let sent = self.send_content(wire, letter).await.map_err(middle)?;
        self.final_reply(wire, letter, sent, None).await
    }

    /// Appends the commands before the content.
    fn put_envelope(&mut self, letter: StormMessage) {
        let plan = &self.shared.plan;
        let out = &mut self.out;
        // Writing to a Vec does not fail.
        drop(write!(out, "MAIL FROM:<{}>\r\n", plan.from));
        for n in 0..plan.recipients_of(letter.seq) {
            drop(write!(out, "RCPT TO:<{}>\r\n", plan.recipient(n, letter.seq)));
        }
        if !plan.chunking {
            out.extend_from_slice(b"DATA\r\n");
        }
    }

    /// Sends what `out` holds, command by command, until one is refused.
    async fn one_by_one(&mut self, wire: &mut Wire) -> Result<Option<(Reply, bool)>, Broken> {
        let mut is_first = true;
        for line in self.out.split_inclusive(|byte| *byte == b'\n') {
            let reply = ask(wire, &mut self.received, line).await;
            let reply = reply.map_err(|error| Broken { error, after_content: false, at_once: is_first })?;
            is_first = false;
            if !reply.is_positive() && reply.code != 354 {
                return Ok(Some((reply, false)));
            }
        }
        Ok(None)
    }

    /// Sends what `out` holds, as many commands at a time as may be on their way, until a flight has a refusal.
    async fn in_flights(&mut self, wire: &mut Wire) -> Result<Option<(Reply, bool)>, Broken> {
        let out = std::mem::take(&mut self.out);
        let mut rest = out.as_slice();
        let mut refusal = None;
        while !rest.is_empty() && refusal.is_none() {
            let lines = rest.split_inclusive(|byte| *byte == b'\n').take(COMMANDS);
            let (commands, octets) = lines.fold((0, 0), |(count, octets), line| (count + 1, octets + line.len()));
            let (flight, later) = rest.split_at(octets);
            let at_once = rest.len() == out.len();
            let sent = wire.write(flight).await;
            sent.map_err(|error| Broken { error, after_content: false, at_once })?;
            let replies = self.replies(wire, commands).await;
            refusal = replies.map_err(|broken| Broken { at_once: broken.at_once && at_once, ..broken })?;
            rest = later;
        }
        self.out = out;
        Ok(refusal)
    }

    /// Reads the replies of a flight: the first refusal, if any, and whether DATA was opened nevertheless.
    async fn replies(&mut self, wire: &mut Wire, count: usize) -> Result<Option<(Reply, bool)>, Broken> {
        let mut refusal = None;
        let mut data_is_open = false;
        for at in 0..count {
            let reply = wire.reply(&mut self.received).await;
            let reply = reply.map_err(|error| Broken { error, after_content: false, at_once: at == 0 })?;
            data_is_open = reply.code == 354;
            if reply.is_goodbye() {
                return Ok(Some((reply, false)));
            }
            if !reply.is_positive() && !data_is_open && refusal.is_none() {
                refusal = Some(reply);
            }
        }
        Ok(refusal.map(|reply| (reply, data_is_open)))
    }

    /// Sends the content after what `out` holds. Returns when the last octet was handed to the system.
    async fn send_content(&mut self, wire: &mut Wire, letter: StormMessage) -> io::Result<Instant> {
        let shared = Arc::clone(&self.shared);
        let (plan, out) = (&shared.plan, &mut self.out);
        if plan.chunking {
            drop(write!(out, "BDAT {} LAST\r\n", letter.size));
        }
        let mut left = shared.letters.begin(letter, out);
        while left > 0 {
            let piece = shared.letters.filler(letter.seq, left);
            left -= piece.len();
            out.extend_from_slice(piece);
            if out.len() >= FLIGHT {
                wire.write(out).await?;
                out.clear();
            }
        }
        out.extend_from_slice(CRLF);
        if plan.split_dot {
            wire.write(out).await?;
            out.clear();
        }
        if !plan.chunking {
            out.extend_from_slice(b".\r\n");
        }
        wire.write(out).await?;
        out.clear();
        Ok(clock::now())
    }

    /// Reads the reply to the content; with LMTP one for each recipient.
    async fn final_reply(
        &mut self,
        wire: &mut Wire,
        letter: StormMessage,
        sent: Instant,
        earlier: Option<(Reply, bool)>,
    ) -> Result<TransactionEnd, Broken> {
        let mut refusal = earlier.map(|(reply, _)| reply);
        let mut last = None;
        let count = if self.shared.plan.lmtp { self.shared.plan.recipients_of(letter.seq) } else { 1 };
        for _ in 0..count {
            let reply = match wire.reply(&mut self.received).await {
                Ok(reply) => reply,
                // After a refusal this reply is not waited for.
                Err(_) if refusal.is_some() => break,
                Err(error) => return Err(Broken { error, after_content: true, at_once: false }),
            };
            if !reply.is_positive() && refusal.is_none() {
                refusal = Some(reply.clone());
            }
            last = Some(reply);
        }
        match (refusal, last) {
            (Some(reply), _) => Ok(TransactionEnd::Refused { reply, is_open: true }),
            (None, last) => {
                let id = last.map_or_else(String::new, |reply| queue_id(&reply.text).to_owned());
                Ok(TransactionEnd::Accepted { id, at: clock::now(), sent })
            }
        }
    }

    /// Ends the connection as RFC 5321 §4.1.1.10 asks, if there is one. No message depends on it.
    async fn quit(&mut self) {
        if let Some(mut wire) = self.wire.take() {
            drop(ask(&mut wire, &mut self.received, b"QUIT\r\n").await);
        }
    }
}

/// Sends a command and waits for its reply.
async fn ask(wire: &mut Wire, received: &mut Buffer, command: &[u8]) -> io::Result<Reply> {
    wire.write(command).await?;
    wire.reply(received).await
}

/// An error as it is grouped: without numbers of the system, so that equal ones look equal.
fn error_text(doing: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => format!("{doing}: {}", error.kind()),
        None => format!("{doing}: {error}"),
    }
}
