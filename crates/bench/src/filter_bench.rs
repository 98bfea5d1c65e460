//! The time to evaluate content rules on a message.
//!
//! The command `mailrace-bench filter`: makes as many rules as asked for, as people write them, and a message of
//! 10 KB as mailing lists send it, and evaluates the set on it again and again. One rule matches. Each figure is the
//! median of some rounds.

use filter::{Limits, Message, Recipient, RuleSet};
use mail::header::LineEnd;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use crate::clock;

/// Measures content rules.
#[derive(Clone, Debug, clap::Args)]
pub struct FilterBenchArguments {
    /// Rules of the set
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..10_000))]
    rules: u32,
    /// Messages of each round
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Runs the measurement and prints its figures.
#[must_use]
pub fn run(arguments: &FilterBenchArguments) -> ExitCode {
    match measure(arguments) {
        Ok(line) => {
            // A closed terminal is no failure of the measurement.
            let _written = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _written = writeln!(std::io::stderr(), "filter: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &FilterBenchArguments) -> Result<String, String> {
    let text = rules(arguments.rules);
    let started = clock::now();
    let set = RuleSet::parse(&[("bench.rules", &text)]).map_err(|problems| format!("{problems:?}"))?;
    let parsed = started.elapsed();
    let content = message();
    let limits = Limits::default();
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let started = clock::now();
        for _ in 0..arguments.messages {
            let mut message = Message::new(&content, LineEnd::Crlf);
            message.sender = "bounce+word17@lists.example.com";
            message.recipients = vec![Recipient { address: "someone@example.org", list: None }];
            let matches = set.evaluate(message, &limits).matches().len();
            if matches != 1 {
                return Err(format!("{matches} rules match, and one should"));
            }
        }
        rounds.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(arguments.messages));
    }
    rounds.sort_by(f64::total_cmp);
    let median = rounds.get(rounds.len() / 2).copied().unwrap_or_default();
    let (least, most) = (rounds.first().copied().unwrap_or_default(), rounds.last().copied().unwrap_or_default());
    Ok(format!(
        "{} rules, message of {} octets: {median:.1} [{least:.1}-{most:.1}] µs a message; set parsed in {:.0} ms",
        arguments.rules,
        content.len(),
        parsed.as_secs_f64() * 1e3,
    ))
}

/// Makes rules as people write them: words of subjects and texts, alternatives, names of attachments, senders.
fn rules(count: u32) -> String {
    let mut out = String::new();
    for number in 0..count {
        let condition = match number % 10 {
            0..=3 => format!("subject ~ /\\b(buy|sell)\\s+product{number}\\b/"),
            4 | 5 => format!("text ~ /offer{number}[0-9]+ (now|today)/"),
            6 => format!("header ~ /x-mailer: bulk{number}\\.[0-9]/"),
            7 => format!("attachment name ~ /invoice{number}\\.(exe|scr)$/"),
            8 => format!("sender = \"@spam{number}.example\""),
            _ => format!("text contains \"secret phrase {number}\""),
        };
        // Writing to a string succeeds.
        let _written = writeln!(out, "rule r{number} {{\n match any {{ {condition} }}\n class bulk\n}}");
    }
    out.push_str("rule last {\n match any { text ~ /the (last|final) line/ }\n class seen\n}\n");
    out
}

/// Makes a message as mailing lists send it: folded trace fields, encoded words, text with a long tail of words.
fn message() -> Vec<u8> {
    let mut out = String::new();
    for hop in 0..5 {
        let _written = write!(
            out,
            "Received: from mx{hop}.example.com (mx{hop}.example.com [192.0.2.{hop}])\r\n\tby relay{hop}.example.net \
             (Postfix) with ESMTPS id 4ABCDEF{hop}\r\n\tfor <someone@example.org>; Thu, 26 Nov 2026 10:00:0{hop} +0000\r\n"
        );
    }
    out.push_str(
        "From: =?utf-8?Q?J=C3=BCrgen_M=C3=BCller?= <juergen@example.com>\r\nTo: someone@example.org\r\n\
         Subject: =?utf-8?B?R3LDvMOfZSBhdXMgS8O2bG4gdW5kIHByb2R1Y3Qx?=\r\nDate: Thu, 26 Nov 2026 10:00:00 +0000\r\n\
         Message-ID: <12345.67890@example.com>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: 8bit\r\nList-Id: <list.example.com>\r\n\r\n",
    );
    let words =
        ["the", "offer", "of", "today", "is", "product", "about", "secret", "mail", "invoice", "phrase", "transfer"];
    let mut at = 7_usize;
    while out.len() < 10_200 {
        at = at * 31 % 1_009;
        out.push_str(words.get(at % words.len()).copied().unwrap_or_default());
        out.push_str(if at.is_multiple_of(11) { "\r\n" } else { " " });
    }
    out.push_str("\r\nthe final line\r\n");
    out.into_bytes()
}
