//! Senders: each message is sent once, when the server can be reached, and its sender remembers the answer.

use super::book::{Answer, Book, Sent};
use super::machine::Machine;
use super::random::Random;
use super::wire::Wire;
use std::sync::Arc;
use std::time::Duration;

/// Sends a message when its time has come.
pub(super) async fn send(book: Arc<Book>, machine: Arc<Machine>, number: usize, mut random: Random) {
    let at = book.facts().sent[number].at;
    tokio::time::sleep(at.saturating_sub(book.now())).await;
    loop {
        if let Some((stream, generation)) = machine.connect() {
            let mut letter = Letter { book: &book, machine: &machine, generation, number, wire: Wire::new(stream) };
            let answer = letter.talk(&mut random).await;
            book.note(|| format!("sender {number}: {answer:?}"));
            if answer != Answer::Unsent {
                book.facts().sent[number].answer = answer;
                return;
            }
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

struct Letter<'a> {
    book: &'a Book,
    machine: &'a Machine,
    generation: u64,
    number: usize,
    wire: Wire,
}

impl Letter<'_> {
    async fn reply(&mut self) -> Option<u16> {
        let reply = self.wire.reply().await;
        // A reply after power is gone was never sent.
        reply.filter(|_| self.machine.generation() == Some(self.generation))
    }

    /// Returns whether the reply to a command was the one that is wanted.
    async fn expect(&mut self, wanted: u16) -> bool {
        let reply = self.reply().await;
        if let Some(reply) = reply.filter(|reply| *reply != wanted && *reply != 421) {
            self.book.wrong(format!("message {}: {reply} instead of {wanted}", self.number));
        }
        reply == Some(wanted)
    }

    async fn talk(&mut self, random: &mut Random) -> Answer {
        let (commands, content) = {
            let facts = self.book.facts();
            let sent = &facts.sent[self.number];
            (commands(sent, random), sent.content.clone())
        };
        if !self.expect(220).await {
            return Answer::Unsent;
        }
        let is_pipelined = random.chance(50);
        for (nth, (command, wanted)) in commands.iter().enumerate() {
            self.wire.output.extend_from_slice(format!("{command}\r\n").as_bytes());
            if (nth == 0 || !is_pipelined) && !(self.wire.flush().await && self.expect(*wanted).await) {
                return Answer::Unsent;
            }
        }
        if is_pipelined {
            if !self.wire.flush().await {
                return Answer::Unsent;
            }
            for (_, wanted) in commands.iter().skip(1) {
                if !self.expect(*wanted).await {
                    return Answer::Unsent;
                }
            }
        }
        self.content(&content, random).await
    }

    async fn content(&mut self, content: &[u8], random: &mut Random) -> Answer {
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(b".") {
                self.wire.output.push(b'.');
            }
            self.wire.output.extend_from_slice(line);
            if random.within(0, 9) == 0 {
                if !self.wire.flush().await {
                    return Answer::Unsent;
                }
                if random.within(0, 9) == 0 {
                    let pause = random.time(Duration::from_millis(1), Duration::from_millis(200));
                    self.wire.pause(pause).await;
                }
            }
        }
        if !self.wire.flush().await {
            return Answer::Unsent;
        }
        self.wire.output.extend_from_slice(b".\r\n");
        self.wire.flush().await;
        match self.reply().await {
            Some(250) => {
                let answer = Answer::Accepted(self.book.now());
                if random.chance(80) {
                    self.wire.output.extend_from_slice(b"QUIT\r\n");
                    self.wire.flush().await;
                    self.reply().await;
                }
                answer
            }
            Some(_) => Answer::Refused,
            None => Answer::Unknown,
        }
    }
}

/// Returns the commands of a message with the replies that are to come.
fn commands(sent: &Sent, random: &mut Random) -> Vec<(String, u16)> {
    let body = if sent.is_eight_bit { " BODY=8BITMIME" } else { "" };
    let priority = sent.priority.map(|priority| format!(" MT-PRIORITY={priority}")).unwrap_or_default();
    let ret = random.pick(&["", " RET=HDRS", " RET=FULL ENVID=id+2B1"]);
    let mut commands =
        vec![("EHLO client.test".to_owned(), 250), (format!("MAIL FROM:<{}>{body}{ret}{priority}", sent.sender), 250)];
    for (name, notify) in &sent.recipients {
        let notify = notify.map(|notify| format!(" NOTIFY={notify}")).unwrap_or_default();
        commands.push((format!("RCPT TO:<{name}>{notify}"), 250));
    }
    commands.push(("DATA".to_owned(), 354));
    commands
}
