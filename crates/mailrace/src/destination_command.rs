//! `mailrace destination`: limits of destinations that hold at once and over restarts, without a change of the
//! configuration; the connections to them.

use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::{Output, age};
use crate::terminal_text::plain;
use clap::{Args, Subcommand};
use operator::answers::{ConnectionLine, ConnectionsAnswer, LimitLine, LimitsAnswer, to_fields};
use operator::control::{LimitOrder, Request};
use operator::queue;
use serde_json::Value;
use std::time::Duration;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
NAME is a next hop as destination.match of the configuration names it: a domain, .domain for all below it, [192.0.2.1],
mx:*.outlook.com for domains with such MX hosts, hop:HOST:PORT for a smart host. The limit set last counts first, and
before a [[destination]] of the configuration. It stays in force over restarts and reloads.

Examples:
  mailrace destination limit slow.example connections=2 rate=0.5 --reason 'they asked' --for 1d
  mailrace destination limit 'mx:*.mail.example' connections=5
  mailrace destination limit slow.example --remove
  mailrace destination limits
  mailrace destination connections slow.example
  mailrace destination abort 4711

A connection that is ended takes its messages with it: they are tried again, and one whose content the host has already
may arrive twice.

Exit status:
   0  done
  64  wrong arguments, no such limit, or no such connection
  69  the server does not run
  74  the limit cannot be stored
  75  the server is busy; try again
  77  no permission";

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationCommand {
    /// Set or remove the connections and the rate of a destination
    #[command(after_help = HELP)]
    Limit(LimitArguments),
    /// Show the limits that are set
    #[command(after_help = HELP)]
    Limits(LimitsArguments),
    /// Show connections to next hops
    #[command(after_help = HELP)]
    Connections(ConnectionsArguments),
    /// End a connection to a next hop at once
    #[command(after_help = HELP)]
    Abort(AbortArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LimitArguments {
    /// The next hop
    #[arg(value_name = "NAME")]
    destination: String,
    /// connections=N (at once), rate=R (messages in a second, as 0.5)
    #[arg(value_name = "VALUE", required_unless_present = "remove", conflicts_with = "remove")]
    values: Vec<String>,
    /// Remove the limit
    #[arg(long)]
    remove: bool,
    /// Why, in a line for whoever looks at the destination
    #[arg(long, value_name = "TEXT", value_parser = queue::parse_reason, conflicts_with = "remove")]
    reason: Option<Box<str>>,
    /// Remove it after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = time, conflicts_with = "remove")]
    time: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsArguments {
    /// Print JSON, one limit a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectionsArguments {
    /// A destination, its hosts or one host; * for any text
    #[arg(value_name = "NAME", default_value = "*")]
    name: String,
    /// Print JSON, one connection a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

#[derive(Debug, Args)]
pub(crate) struct AbortArguments {
    /// The number that "destination connections" shows
    #[arg(value_name = "NUMBER")]
    connection: u64,
    #[command(flatten)]
    target: ControlTarget,
}

/// Runs `mailrace destination`.
pub(crate) fn run(command: DestinationCommand) -> Result<Exit, Failure> {
    match command {
        DestinationCommand::Limit(arguments) => limit(arguments),
        DestinationCommand::Limits(arguments) => limits(&arguments),
        DestinationCommand::Connections(arguments) => connections(&arguments),
        DestinationCommand::Abort(arguments) => abort(&arguments),
    }
}

fn limit(arguments: LimitArguments) -> Result<Exit, Failure> {
    let LimitArguments { destination, values, remove, reason, time, json, target } = arguments;
    let mut order = LimitOrder { destination, reason, time, removes: remove, ..LimitOrder::default() };
    for value in &values {
        set_value(&mut order, value)?;
    }
    let mut control = Control::connect(&target.path())?;
    let line: LimitLine = control.ask_for(&Request::Limit(Box::new(order)))?;
    let mut output = Output::new();
    match (json, remove) {
        (true, _) => output.print_json(&Value::Object(to_fields(&line))),
        (false, true) => output.print_line(format_args!("{}: no limit is set any more", plain(&line.destination))),
        (false, false) => print_limit(&mut output, &line),
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn set_value(order: &mut LimitOrder, value: &str) -> Result<(), Failure> {
    let wrong = || {
        let text = format!("{value:?} is no limit; write connections=N or rate=R, as in connections=2 rate=0.5");
        Failure::new(Exit::Usage, text)
    };
    match value.split_once('=') {
        Some(("connections", number)) => {
            order.connections = Some(number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?);
        }
        Some(("rate", rate)) if !rate.is_empty() => order.rate = Some(rate.to_owned()),
        _ => return Err(wrong()),
    }
    Ok(())
}

fn limits(arguments: &LimitsArguments) -> Result<Exit, Failure> {
    let mut control = Control::connect(&arguments.target.path())?;
    let answer: LimitsAnswer = control.ask_for(&Request::Limits)?;
    let mut output = Output::new();
    if answer.limits.is_empty() && !arguments.json {
        output.print_line("no limit is set; [[destination]] of the configuration has others");
    }
    for line in &answer.limits {
        match arguments.json {
            true => output.print_json(&Value::Object(to_fields(line))),
            false => print_limit(&mut output, line),
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn connections(arguments: &ConnectionsArguments) -> Result<Exit, Failure> {
    let mut control = Control::connect(&arguments.target.path())?;
    let answer: ConnectionsAnswer = control.ask_for(&Request::Connections(arguments.name.clone()))?;
    let mut output = Output::new();
    if answer.connections.is_empty() && !arguments.json {
        output.print_line("no connection");
    }
    for line in &answer.connections {
        if arguments.json {
            output.print_json(&Value::Object(to_fields(line)));
            continue;
        }
        let ConnectionLine { connection, destination, host, age: since, messages, .. } = line;
        let host = if host.is_empty() { "(opening)".to_owned() } else { plain(host) };
        let messages = if messages.is_empty() { "idle".to_owned() } else { plain(&messages.join(" ")) };
        output.print_line(format_args!(
            "{connection:>9} {:>6}  {host} for {}: {messages}",
            age(*since),
            plain(destination)
        ));
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn abort(arguments: &AbortArguments) -> Result<Exit, Failure> {
    let mut control = Control::connect(&arguments.target.path())?;
    control.request(&Request::Abort(arguments.connection))?;
    let mut output = Output::new();
    output.print_line(format_args!("connection {} is ended; its messages are tried again", arguments.connection));
    output.finish()?;
    Ok(Exit::Ok)
}

fn print_limit(output: &mut Output, line: &LimitLine) {
    let LimitLine { destination, connections, rate, reason, set_by, set_at, until } = line;
    let connections = connections.map(|number| format!("  connections={number}")).unwrap_or_default();
    let rate = rate.as_deref().map(|rate| format!("  rate={}", plain(rate))).unwrap_or_default();
    output.print_line(format_args!("{}{connections}{rate}", plain(destination)));
    let reason = reason.as_deref().map(|reason| format!("{}; ", plain(reason))).unwrap_or_default();
    let date = |seconds: u64| mail::submission::date(seconds.saturating_mul(1_000_000), 0);
    let until = until.map_or_else(|| "until it is removed".to_owned(), |until| format!("until {}", date(until)));
    output.print_line(format_args!("    {reason}set by {} at {}, {until}", plain(set_by), date(*set_at)));
}

fn time(text: &str) -> Result<Duration, String> {
    let time = queue::age(text).filter(|time| !time.is_zero() && *time <= queue::HOLD_TIME_MAX);
    time.ok_or_else(|| "from 1s to 3650d, as in 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_connections_and_rate() {
        let mut order = LimitOrder::default();
        set_value(&mut order, "connections=3").unwrap();
        set_value(&mut order, "rate=0.5").unwrap();
        assert_eq!((order.connections, order.rate.as_deref()), (Some(3), Some("0.5")));
        for value in ["connections=0", "connections=x", "rate=", "speed=3", "3"] {
            assert!(set_value(&mut order, value).is_err(), "{value}");
        }
    }
}
