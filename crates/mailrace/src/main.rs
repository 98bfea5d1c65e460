//! The one binary: reads arguments, calls rooms, prints their answers.
//!
//! Its exit statuses are those of `sysexits.h`, all in `exit`; its commands are files in a folder of the command's
//! name. Not here: anything a test of a room would want to reach.

#![forbid(unsafe_code)]

mod auth_commands;
mod cluster_command;
mod cluster_demo;
mod config_commands;
mod control_client;
mod control_commands;
mod deliver_test_command;
mod demo;
mod destination_command;
mod dkim_command;
mod documents_command;
mod exit;
mod filter_command;
mod history_command;
mod import_command;
mod local_delivery;
mod message_files;
mod mime_command;
mod output;
mod place;
mod queue_commands;
mod reason;
mod route_command;
mod sendmail;
mod serve;
mod setup_command;
mod sim_command;
mod sink;
mod spool_commands;
mod stats_command;
mod storm;
mod terminal_text;
mod top_command;
mod transcript_command;

use clap::{Parser, Subcommand};
use exit::Exit;
use os::error::without_numbers;
use sendmail::Personality;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A mail transfer agent for mail storms and large lists
#[derive(Debug, Parser)]
#[command(name = "mailrace", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take mail: the server, in the foreground
    #[command(after_help = serve::HELP)]
    Serve(serve::ServeArguments),
    /// Show a relay under a storm, killed and counted; then stay up to be tried
    #[command(after_help = demo::HELP)]
    Demo(demo::DemoArguments),
    #[command(flatten)]
    Control(control_commands::ControlCommand),
    /// Watch the running server: rates, destinations, who waits for long; with keys to retry and hold
    #[command(after_help = top_command::HELP)]
    Top(top_command::TopArguments),
    /// Look at the queue of the running server, and change what is in it
    #[command(subcommand, after_help = queue_commands::HELP)]
    Queue(queue_commands::QueueCommand),
    /// Say why a message, mail for a recipient, or mail for a domain is still here
    #[command(after_help = queue_commands::why::HELP)]
    Why(queue_commands::why::WhyArguments),
    /// Search past messages, and show the way of one
    #[command(after_help = history_command::HELP)]
    History(history_command::HistoryArguments),
    /// Look at mail that content rules keep for a decision, and decide
    #[command(subcommand)]
    Quarantine(queue_commands::QuarantineCommand),
    /// Look for mistakes in the configuration
    #[command(after_help = exit::CONFIG_HELP)]
    Check(config_commands::CheckArguments),
    /// Make the configuration file from a few answers, look at the DNS and the ports, and say what to publish
    #[command(after_help = setup_command::HELP)]
    Setup(Box<setup_command::SetupArguments>),
    /// Make the files of a node of a cluster, and look at its engines
    #[command(subcommand)]
    Cluster(cluster_command::ClusterCommand),
    /// Show and explain the configuration
    #[command(subcommand, after_help = exit::CONFIG_HELP)]
    Config(config_commands::ConfigCommand),
    /// Look into a spool, check it, or see one at work
    #[command(subcommand, after_help = exit::HELP)]
    Spool(spool_commands::SpoolCommand),
    /// Make hashes for the password file, or try a password
    #[command(subcommand, after_help = auth_commands::HELP)]
    Auth(auth_commands::AuthCommand),
    /// Say what kind of reason another server's words give, and by which rule
    #[command(after_help = reason::HELP)]
    Reason(reason::ReasonArguments),
    /// Write the configuration that does what sendmail.mc or sendmail.cf says; take over its queue
    #[command(after_help = import_command::HELP)]
    Import(import_command::ImportArguments),
    /// Say where mail for a recipient goes, and why
    #[command(after_help = route_command::HELP)]
    Route(route_command::RouteArguments),
    /// Try content rules on messages
    #[command(subcommand, after_help = filter_command::HELP)]
    Filter(filter_command::FilterCommand),
    /// Decode and encode header text, show the parts of a message
    #[command(subcommand, after_help = mime_command::HELP)]
    Mime(mime_command::MimeCommand),
    /// Make keys for DKIM signatures, print their DNS records, and compare these with the DNS
    #[command(subcommand, after_help = dkim_command::HELP)]
    Dkim(dkim_command::DkimCommand),
    /// Show the SMTP dialogs with a destination while they go on
    #[command(after_help = transcript_command::HELP)]
    Transcript(transcript_command::TranscriptArguments),
    /// Try a delivery without mail: names, policy, connect, greeting, EHLO, TLS of every host, with times
    #[command(after_help = deliver_test_command::HELP)]
    DeliverTest(deliver_test_command::DeliverTestArguments),
    /// Set, remove and show limits of destinations of the running server
    #[command(subcommand)]
    Destination(destination_command::DestinationCommand),
    /// Count mail by time, host and recipient: from logs of mailrace, sendmail and Postfix, or of the running server
    #[command(subcommand, after_help = stats_command::HELP)]
    Stats(stats_command::StatsCommand),
    /// Take mail and forget it, to measure and to try senders
    #[command(after_help = sink::HELP)]
    Sink(sink::SinkArguments),
    /// Send a storm of test mail to a server of your own, and report what became of it
    #[command(after_help = storm::HELP)]
    Storm(storm::StormArguments),
    /// Simulate an internet on loopback: thousands of mail hosts, some dead or slow, and their DNS
    #[command(after_help = sim_command::HELP)]
    Sim(Box<sim_command::SimArguments>),
    /// Print the completions of a shell
    #[command(after_help = documents_command::HELP)]
    Completions(documents_command::CompletionsArguments),
    /// Write the manual pages of the commands into a directory
    Manuals(documents_command::ManualsArguments),
    /// Deliver with the rights of users, for the server
    #[command(hide = true)]
    LocalDelivery(local_delivery::LocalDeliveryArguments),
    /// Hand mail in, as programs call sendmail; also mailq, newaliases, makemap, praliases, hoststat, purgestat,
    /// mailstats, smtpd
    #[command(after_help = "Called by one of these names, through a symbolic link, the program does the same.")]
    Sendmail,
}

/// Returns the words of the command line, with `stats KIND` in place of a name as `mailstat`.
fn command_words() -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    for at in [0, 1] {
        let name = words.get(at).map(Path::new);
        let Some(stats) =
            name.filter(|name| at == 0 || name.components().count() == 1).and_then(stats_command::of_name)
        else {
            continue;
        };
        let rest = words.iter().skip(at + 1).cloned();
        return ["mailrace", "stats"].iter().chain(stats).map(OsString::from).chain(rest).collect();
    }
    words
}

/// The command of mail software that is meant, and its arguments: by the name of the program, or by the first word.
fn called_as() -> Option<(Personality, Vec<OsString>)> {
    let mut words = std::env::args_os();
    if let Some(personality) = words.next().and_then(|name| Personality::of(Path::new(&name))) {
        return Some((personality, words.collect()));
    }
    let first = words.next()?;
    // `mailrace sendmail --help` is about the command, not one of its options.
    let personality =
        Some(Path::new(&first)).filter(|name| name.components().count() == 1).and_then(Personality::of)?;
    Some((personality, words.collect()))
}

fn main() -> ExitCode {
    if let Some((personality, words)) = called_as() {
        return personality.run(words).into();
    }
    let arguments = match Arguments::try_parse_from(command_words()) {
        Ok(arguments) => arguments,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // A closed terminal is no reason for another exit status.
            drop(error.print());
            return exit.into();
        }
    };
    let result = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Sink(arguments) => sink::run(arguments),
        Command::Check(arguments) => config_commands::check(&arguments),
        Command::Setup(arguments) => setup_command::run(&arguments),
        Command::Cluster(command) => cluster_command::run(&command),
        Command::Config(command) => config_commands::run(&command),
        Command::Control(command) => control_commands::run(command),
        Command::Transcript(arguments) => transcript_command::run(&arguments),
        Command::DeliverTest(arguments) => deliver_test_command::run(&arguments),
        Command::Destination(command) => destination_command::run(command),
        Command::Queue(command) => queue_commands::run(command),
        Command::Top(arguments) => top_command::run(&arguments),
        Command::Why(arguments) => queue_commands::why::run(&arguments),
        Command::History(arguments) => history_command::run(&arguments),
        Command::Quarantine(command) => queue_commands::run_quarantine(command),
        Command::Spool(command) => spool_commands::run(command),
        Command::Stats(command) => stats_command::run(command),
        Command::Auth(command) => auth_commands::run(command),
        Command::Reason(arguments) => reason::run(&arguments),
        Command::Route(arguments) => route_command::run(&arguments),
        Command::Filter(command) => filter_command::run(&command),
        Command::Mime(command) => mime_command::run(&command),
        Command::Dkim(command) => dkim_command::run(command),
        Command::Import(arguments) => import_command::run(&arguments),
        Command::Storm(arguments) => storm::run(&arguments),
        Command::Sim(arguments) => sim_command::run(&arguments),
        Command::Completions(arguments) => documents_command::completions(&arguments),
        Command::Manuals(arguments) => documents_command::manuals(&arguments),
        Command::LocalDelivery(arguments) => local_delivery::run(&arguments),
        // Taken before.
        Command::Sendmail => Ok(Exit::Ok),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("mailrace: {}", without_numbers(&failure.to_string()));
            failure.exit.into()
        }
    }
}
