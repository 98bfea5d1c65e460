//! `mailrace route`: where mail for a recipient goes, and each decision that leads there.

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::{Output, count};
use crate::terminal_text::plain;
use clap::Args;
use mail::{Address, DomainName, ReversePath};
use route::destination::{Protocol, To};
use route::resolve::Delivery;
use route::tables::mailer;
use route::{Destination, Step};
use server::config::render;
use server::explain::{Disposition, ExplainedSender, Explainer, NextHop, RouteTrace, read_address, route_json};
use std::net::IpAddr;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
The configuration is read as the server would read it; it need not be running. Maps, rules, aliases and directories are
asked as for a message; the DNS is not.

Examples:
  mailrace route joe@example.com
  mailrace route --from boss@corp.example partner@example.com
  mailrace route --client 192.0.2.7 --from '<>' --json info@example.org

Exit status:
   0  mail for every recipient is taken
  64  wrong arguments
  67  some recipient is refused for good
  75  something cannot be looked up now, or is refused for now
  78  the configuration or a map has an error";

#[derive(Debug, Args)]
pub(crate) struct RouteArguments {
    #[command(flatten)]
    source: Source,
    /// The sender; <> for reports. Without, a user of this machine
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// The client's address; without, a process of this machine
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,
    /// The name that the DNS confirms for the client's address; without, it has none
    #[arg(long, value_name = "NAME", requires = "client")]
    client_name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Recipients; a name alone is one at our host name
    #[arg(required = true, value_name = "RECIPIENT")]
    recipients: Vec<String>,
}

/// Runs `mailrace route`.
pub(crate) fn run(arguments: &RouteArguments) -> Result<Exit, Failure> {
    let loaded = match arguments.source.open()? {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprint!("{}", render(&problems));
            return Err(Failure::new(Exit::Config, "the configuration has errors; correct them first"));
        }
    };
    let hostname = DomainName::new(&loaded.config.hostname)
        .map_err(|error| Failure::new(Exit::Config, format!("hostname: {error}")))?;
    let explainer = Explainer::open(&loaded).map_err(|faults| Failure::new(Exit::Config, faults.join("\n")))?;
    for note in explainer.notes() {
        eprintln!("mailrace: {note}");
    }
    let address = match arguments.from.as_deref() {
        Some("" | "<>") => ReversePath::Null,
        Some(text) => ReversePath::Address(read_address(text, &hostname).map_err(usage)?),
        None => ReversePath::Address(read_address("root", &hostname).map_err(usage)?),
    };
    let name = arguments.client_name.as_deref().map(Into::into);
    let sender = ExplainedSender { address, client: arguments.client, name };
    let mut output = Output::new();
    let mut exit = Exit::Ok;
    for text in &arguments.recipients {
        let recipient = read_address(text, &hostname).map_err(usage)?;
        let way = explainer.route(&sender, &recipient);
        exit = match (&way.end, exit) {
            (Disposition::Refuse(refusal), _) if refusal.code >= 500 => Exit::NoUser,
            (Disposition::Refuse(_) | Disposition::Defer(_), Exit::Ok) => Exit::TryLater,
            (_, exit) => exit,
        };
        let refused = explainer.take_refused_files();
        if arguments.json {
            output.print_json(&route_json(explainer.config(), &recipient, &sender, &way, &refused))
        } else {
            show(&mut output, &explainer, &recipient, &way);
            refused.iter().for_each(|text| output.print_line(format!("  note: {}", plain(text))));
        }
    }
    output.finish()?;
    Ok(exit)
}

fn usage(error: String) -> Failure {
    Failure::new(Exit::Usage, error)
}

fn show(output: &mut Output, explainer: &Explainer, recipient: &Address, way: &RouteTrace) {
    output.print_line(format!("<{recipient}>"));
    for step in &way.steps {
        output.print_line(format!("  {}", plain(&step_line(step))));
    }
    match &way.end {
        Disposition::Deliver(deliveries, failed) => {
            for one in deliveries {
                output.print_line(format!("  => {}", plain(&delivery_line(one))));
                let hop = explainer.next_hop(one);
                hop.iter().flat_map(hop_lines).for_each(|line| output.print_line(format!("     {}", plain(&line))));
            }
            for one in failed {
                output.print_line(format!("  => <{}> is refused: {}", one.address, plain(&one.refusal.to_string())));
            }
        }
        Disposition::Hold(reason, deliveries) => {
            output.print_line(format!("  => held until a person releases it: {}", plain(reason)));
            deliveries.iter().for_each(|one| output.print_line(format!("     then {}", plain(&delivery_line(one)))));
        }
        Disposition::Discard => output.print_line("  => accepted and dropped"),
        Disposition::Refuse(refusal) => output.print_line(format!("  => refused: {}", plain(&refusal.to_string()))),
        Disposition::Defer(why) => output.print_line(format!("  => 451 4.3.0, cannot be said now: {}", plain(why))),
    }
}

fn step_line(step: &Step) -> String {
    let Some(found) = &step.found else { return format!("{}: {}", step.stage, step.text) };
    let line = found.place.line.map_or_else(String::new, |line| format!(" line {line}"));
    format!("{}: {}{line}: {} {} => {}", step.stage, found.place.file, found.key, found.value, step.text)
}

fn delivery_line(one: &Delivery) -> String {
    let stored = one.destination.to.to_string();
    let destination = one.destination.to_string().replacen(&stored, &as_value(&stored), 1);
    let mut text = format!("<{}> by {destination}", one.address);
    if let Some(via) = one.via.as_ref().filter(|via| **via != stored) {
        text.push_str(&format!(", now {}", as_value(via)));
    }
    if let Some(sender) = &one.sender {
        text.push_str(&format!(", sender {sender}"));
    }
    if let Some(controller) = &one.controller {
        text.push_str(&format!(", as {controller}"));
    }
    if let Some(reason) = &one.hold {
        text.push_str(&format!(", held: {reason}"));
    }
    if one.queue_only {
        text.push_str(", waits for queue retry");
    }
    if let Some(acknowledge) = one.acknowledge {
        text.push_str(&format!(", acknowledged as {}", acknowledge.name()));
    }
    text
}

/// Returns a destination in the form that mailertable and rules take: `smtp:[192.0.2.1]#2525`.
fn as_value(destination: &str) -> String {
    match Destination::parse(destination.as_bytes()).map(|found| found.to) {
        Ok(To::Hosts(hosts)) => {
            let mailer = if hosts.protocol == Protocol::Lmtp { "lmtp" } else { "smtp" };
            format!("{mailer}:{}", mailer::host_list(&hosts))
        }
        _ => destination.to_owned(),
    }
}

/// Returns the lines of the configuration about the hosts of a next hop, if there are any.
fn hop_lines(hop: &NextHop) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(number) = hop.dns_override {
        lines.push(format!("dns.override[{number}]: {} => {}", hop.name, hop.given.join(", ")));
    }
    if let Some(number) = hop.destination {
        let rule = &hop.rule;
        let mut text = format!("destination[{number}]: {}", count(rule.connections.into(), "connection"));
        if let Some(rate) = rule.messages_per_second {
            text.push_str(&format!(", {} messages a second", f64::from(rate) / 1_000.0));
        }
        for source in [rule.source4.map(IpAddr::from), rule.source6.map(IpAddr::from)].into_iter().flatten() {
            text.push_str(&format!(", from {source}"));
        }
        if let Some(hello) = &rule.hello {
            text.push_str(&format!(", as {hello}"));
        }
        lines.push(text);
    }
    lines
}
