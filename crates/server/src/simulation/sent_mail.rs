//! The messages that senders have: sender, recipients, content and time by chance.

use super::book::{Answer, Sent};
use super::random::Random;
use mail::Notify;
use std::time::Duration;

/// Makes a message by chance. `domains`: where its recipients may be, each with the number of a host.
pub(super) fn message(random: &mut Random, number: usize, domains: &[String], home: &str, within: Duration) -> Sent {
    let sender = if random.chance(8) { String::new() } else { format!("s{number}@{home}") };
    let count = random.pick(&[1, 1, 1, 2, 3, 7]);
    let recipients = (0..count).map(|nth| {
        let notify = match random.within(0, 9) {
            0 => Some(Notify::NEVER),
            1 => Some(Notify::FAILURE),
            2 => Some(Notify::SUCCESS),
            3 => Some(Notify::SUCCESS.and(Notify::FAILURE).and(Notify::DELAY)),
            4 => Some(Notify::DELAY),
            _ => None,
        };
        let place = usize::try_from(random.next()).unwrap() % domains.len();
        (format!("r{number}.{nth}@{}", domains[place]), notify)
    });
    let recipients = recipients.collect();
    let is_eight_bit = random.chance(15);
    let content = content(random, number, is_eight_bit);
    let at = random.time(Duration::from_secs(1), within);
    Sent { sender, recipients, content, is_eight_bit, priority: None, at, answer: Answer::Unsent }
}

fn content(random: &mut Random, number: usize, is_eight_bit: bool) -> Vec<u8> {
    let mut content = format!(
        "X-Token: {number}.\r\nFrom: somebody\r\nSubject: simulated\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: {}\r\n\r\n",
        if is_eight_bit { "8bit" } else { "7bit" }
    );
    if is_eight_bit {
        content.push_str("gr\u{fc}n\r\n");
    }
    let size = match random.within(0, 19) {
        0 => random.within(50_000, 300_000),
        1..4 => random.within(3_000, 20_000),
        _ => random.within(0, 2_000),
    };
    while (content.len() as u64) < size {
        match random.within(0, 7) {
            0 => content.push_str(".\r\n"),
            1 => content.push_str("\r\n"),
            2 => content.push_str("..two\r\n"),
            3 => content.push_str(&format!("{}\r\n", "y".repeat(990))),
            _ => content.push_str(&format!(".{:x}\r\n", random.next())[usize::from(random.chance(90))..]),
        }
    }
    content.into_bytes()
}
