//! The command `mailrace-bench`: measurements and proof rigs, one subcommand each.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures mailrace against others, and tries to break it.
#[derive(Debug, Parser)]
#[command(name = "mailrace-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

fn main() -> ExitCode {
    match Arguments::parse().command {}
}
