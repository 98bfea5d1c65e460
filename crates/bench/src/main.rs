//! The command `mailrace-bench`: measurements and proof rigs, one subcommand each.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures mailrace against others, and tries to break it.
#[derive(Debug, Parser)]
#[command(name = "mailrace-bench", version)]
struct BenchArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure accepting mail beside a sink and beside other servers
    Accept(bench::accept_bench::AcceptBenchArguments),
    /// Measure passing mail on to a next hop beside other servers
    Relay(bench::relay_bench::RelayBenchArguments),
    /// Measure lists on a simulated internet with dead and hung hosts, beside other servers
    List(bench::list_bench::ListBenchArguments),
    /// Measure RCPT to a long list, and what other mail feels of it
    Expand(bench::expand_bench::ExpandBenchArguments),
    /// Measure how fast content rules are evaluated
    Filter(bench::filter_bench::FilterBenchArguments),
    /// Measure what scanners cost: SpamAssassin and ClamAV before and after the 250, beside Postfix with milters
    Filtered(bench::filtered_bench::FilteredBenchArguments),
    /// Measure how fast messages are signed
    Sign(bench::sign_bench::SignBenchArguments),
    /// Measure how fast senders of messages are checked (SPF, DKIM, ARC, DMARC)
    Verify(bench::sign_bench::SignBenchArguments),
    /// Measure how fast logs are read, and what statistics cost the server
    Logs(bench::logs_bench::LogsBenchArguments),
    /// Measure queue commands on a million messages, and what other mail feels of them
    Queue(bench::queue_bench::QueueBenchArguments),
    /// Measure how fast maps load and answer
    Maps(bench::maps_bench::MapsBenchArguments),
    #[command(flatten)]
    Crash(bench::crash::CrashCommand),
}

fn main() -> ExitCode {
    match BenchArguments::parse().command {
        Command::Accept(arguments) => bench::accept_bench::run(&arguments),
        Command::Relay(arguments) => bench::relay_bench::run(&arguments),
        Command::List(arguments) => bench::list_bench::run(&arguments),
        Command::Expand(arguments) => bench::expand_bench::run(&arguments),
        Command::Filter(arguments) => bench::filter_bench::run(&arguments),
        Command::Filtered(arguments) => bench::filtered_bench::run(&arguments),
        Command::Sign(arguments) => bench::sign_bench::run(&arguments),
        Command::Verify(arguments) => bench::verify_bench::run(&arguments),
        Command::Logs(arguments) => bench::logs_bench::run(&arguments),
        Command::Maps(arguments) => bench::maps_bench::run(&arguments),
        Command::Queue(arguments) => bench::queue_bench::run(&arguments),
        Command::Crash(part) => bench::crash::run(part),
    }
}
