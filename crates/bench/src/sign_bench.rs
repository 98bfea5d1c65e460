//! The time to sign a message with DKIM.
//!
//! The command `mailrace-bench sign`: makes an RSA and an Ed25519 key and signs a message again and again, with each of
//! them and on one thread. Each figure is the median of some rounds.

use mail::DomainName;
use server::signing::{NewKey, PrivateKey, SigningKeys};
use std::io::Write as _;
use std::process::ExitCode;

use crate::clock;

/// Measures signatures, or their verification.
#[derive(Clone, Debug, clap::Args)]
pub struct SignBenchArguments {
    /// Octets of the body
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(0..100_000_000))]
    pub(crate) bytes: u32,
    /// Messages of each round
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) messages: u32,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
}

/// Runs the measurement and prints its figures.
#[must_use]
pub fn run(arguments: &SignBenchArguments) -> ExitCode {
    run_for_keys("sign", arguments, measure)
}

/// Runs a measurement for each kind of key and prints its figures.
pub(crate) fn run_for_keys(
    command: &str,
    arguments: &SignBenchArguments,
    measure: fn(&SignBenchArguments, NewKey) -> Result<String, String>,
) -> ExitCode {
    for (name, kind) in [("rsa2048", NewKey::Rsa2048), ("ed25519", NewKey::Ed25519)] {
        match measure(arguments, kind) {
            // A closed terminal is no failure of the measurement.
            Ok(figures) => drop(writeln!(std::io::stdout(), "{name}, body of {} octets: {figures}", arguments.bytes)),
            Err(error) => {
                drop(writeln!(std::io::stderr(), "{command}: {error}"));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn measure(arguments: &SignBenchArguments, kind: NewKey) -> Result<String, String> {
    let domain = DomainName::new("example.org").map_err(|error| error.to_string())?;
    let key = PrivateKey::generate(kind).map_err(|error| error.to_string())?;
    let keys = SigningKeys::of_one(domain, "bench", key);
    let content = message(arguments.bytes);
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let started = clock::now();
        for number in 0..arguments.messages {
            keys.sign(&content, number.into()).ok_or("a message was not signed")?;
        }
        rounds.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(arguments.messages));
    }
    Ok(format!("{} µs a signature", median(rounds)))
}

/// Returns the median of some rounds, with the least and the most.
pub(crate) fn median(mut rounds: Vec<f64>) -> String {
    rounds.sort_by(f64::total_cmp);
    let median = rounds.get(rounds.len() / 2).copied().unwrap_or_default();
    let (least, most) = (rounds.first().copied().unwrap_or_default(), rounds.last().copied().unwrap_or_default());
    format!("{median:.1} [{least:.1}-{most:.1}]")
}

/// Makes a message with a body of so many octets.
pub(crate) fn message(bytes: u32) -> Vec<u8> {
    let mut content =
        b"Received: from a.example by b.example with ESMTPS id 1\r\nFrom: A B <a@example.org>\r\nTo: c@example.com\r\n\
        Subject: a subject of some words\r\nDate: Thu, 1 Jan 2026 00:00:00 +0000\r\nMessage-ID: <1@example.org>\r\n\
        MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
            .to_vec();
    let line = b"Words of a text as people write it, in lines of a usual length.\r\n";
    content.extend(line.iter().copied().cycle().take(usize::try_from(bytes).unwrap_or(0)));
    content
}
