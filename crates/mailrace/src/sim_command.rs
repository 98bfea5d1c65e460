//! `mailrace sim`: a simulated internet, to send mail into.
//!
//! Reads arguments and prints; the hosts are those of `sim`, their sockets those of `bench::internet`.

use crate::exit::{Exit, Failure};
use crate::output::{Output, thousands};
use crate::serve::die_with_parent;
use bench::internet::{InternetError, InternetProgress, Options, SimulatedInternet};
use clap::Args;
use serde_json::json;
use server::config;
use sim::{Change, Character, Plan, Share, World};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Host N is mxN.sim.example at --network + N; the domains are d0.sim.example, d1.sim.example and so on. A SHARE is of all \
hosts, as in 2% or 0.5%; the hosts that are left are live and take all mail. A TIME is as in 20ms, 5s or 1m30s. Any \
recipient will do, and some local parts ask for an answer: 4xx, 5xx, 550-5.1.1, dot-451, 421, greylist, slow, hang, drop. \
docs/sim.md explains the characters of hosts, the files and the summary.

Exit status:
   0  ended by a signal or by --for
  64  wrong arguments
  69  an address cannot be had
  74  a file could not be written";

/// Is an internet.
#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// Number of hosts
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    hosts: u32,
    /// Domains that each host takes mail for
    #[arg(long, default_value_t = 1, value_name = "N")]
    domains_per_host: u32,
    /// MX hosts of each domain, with neighbouring numbers; the first is preferred
    #[arg(long, default_value_t = 1, value_name = "N")]
    mx_per_domain: u32,
    /// Give all MX hosts of a domain the same preference
    #[arg(long)]
    equal_mx: bool,
    /// Recipients of each domain in the file of --list
    #[arg(long, default_value_t = 2, value_name = "N")]
    recipients: u32,
    /// Address of host 0; the others follow
    #[arg(long, default_value = "127.16.0.0", value_name = "ADDRESS")]
    network: Ipv4Addr,
    /// Port that all hosts listen on; 0 for a free one
    #[arg(long, default_value_t = 2525, value_name = "PORT")]
    port: u16,
    /// Where their DNS server listens, by UDP and TCP; port 0 for a free one
    #[arg(long, default_value = "127.0.0.1:5300", value_name = "ADDRESS:PORT")]
    dns: SocketAddr,
    /// Connections at a time over all hosts; more are closed
    #[arg(long, default_value_t = 4_000, value_name = "N")]
    connections_max: usize,
    /// Number that decides which host is dead, slow and so on
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Time before each answer, as on a long line
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    delay: Duration,
    /// End after this time; without it, when interrupted
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Write each message that was taken to this file, one a line
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Write recipients to send to into this file, one a line
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Write the hosts and their characters to this file, one a line
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Print the ready line and the summary as JSON
    #[arg(long)]
    json: bool,
    /// Have each host in the JSON as well
    #[arg(long, requires = "json")]
    json_hosts: bool,
    /// Die when the process that started this one does
    #[arg(long, hide = true)]
    with_parent: bool,
    // Behind the others, since what follows gets its heading too.
    #[command(flatten, next_help_heading = "Hosts that are not live")]
    shares: Shares,
}

#[derive(Debug, Args)]
struct Shares {
    /// Refuse connections
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    dead: Share,
    /// Leave connection attempts without any answer
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    drop: Share,
    /// Accept connections and never greet
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung: Share,
    /// Greet and never answer EHLO
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung_hello: Share,
    /// Answer EHLO and nothing behind it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung_mail: Share,
    /// Take the content and never answer it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung_data: Share,
    /// Answer everything after --slow-time only
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    slow: Share,
    /// How long slow hosts wait before they answer
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    slow_time: Duration,
    /// Put off each recipient with 450 for --greylist-time
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    greylist: Share,
    /// How long a recipient is put off
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    greylist_time: Duration,
    /// Answer 421 to connections and messages above the two bounds below
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    throttle: Share,
    /// Connections at a time that such a host takes
    #[arg(long, value_name = "N", default_value_t = 2)]
    throttle_connections: u32,
    /// Messages per second that such a host takes
    #[arg(long, value_name = "N", default_value = "1", value_parser = interval)]
    throttle_rate: Duration,
    /// Answer 550 to some recipients, always the same ones
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    reject: Share,
    /// Share of the recipients that are refused
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    reject_users: Share,
    /// Answer 451 to MAIL
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    busy: Share,
    /// Close after the content, and do not take the message
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    cut: Share,
    /// Close after the content, and take the message
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    cut_taken: Share,
    /// Offer no extension: no PIPELINING, no CHUNKING and so on
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    plain: Share,
    /// Offer STARTTLS and fail at it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    broken_tls: Share,
    /// Misbehave: endless or huge answers, answers before commands, and worse
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hostile: Share,
    /// Change a share of the live hosts for a time, as in 10s..60s:dead=20%; may be given several times
    #[arg(long, value_name = "FROM..TO:CHARACTER=SHARE", value_parser = change)]
    at: Vec<Change>,
}

fn time(text: &str) -> Result<Duration, String> {
    config::time(text).ok_or_else(|| format!("{text:?} is no time such as 20ms, 5s or 2m"))
}

/// The time between messages of so many per second.
fn interval(text: &str) -> Result<Duration, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.000_1..=1e6).contains(rate));
    rate.map(|rate| Duration::from_secs_f64(1.0 / rate))
        .ok_or_else(|| "a rate from 0.0001 to 1000000, as 0.5".to_owned())
}

fn change(text: &str) -> Result<Change, String> {
    let wrong = || format!("{text:?} is not FROM..TO:CHARACTER=SHARE, as in 10s..60s:dead=20%");
    let (times, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (from, to) = times.split_once("..").ok_or_else(wrong)?;
    let (name, share) = rest.split_once('=').ok_or_else(wrong)?;
    let character = Character::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Character::all().map(Character::name).collect();
        format!("{name:?} is no character; there are {}", names.join(", "))
    })?;
    Ok(Change { from: time(from)?, to: time(to)?, character, share: share.parse()? })
}

impl SimArguments {
    fn plan(&self) -> Plan {
        let shares = &self.shares;
        Plan {
            domains_per_host: self.domains_per_host,
            mx_per_domain: self.mx_per_domain,
            equal_mx: self.equal_mx,
            recipients: self.recipients,
            network: self.network,
            shares: vec![
                (Character::Dead, shares.dead),
                (Character::Drop, shares.drop),
                (Character::Hung, shares.hung),
                (Character::HungHello, shares.hung_hello),
                (Character::HungMail, shares.hung_mail),
                (Character::HungData, shares.hung_data),
                (Character::Slow, shares.slow),
                (Character::Greylist, shares.greylist),
                (Character::Throttle, shares.throttle),
                (Character::Reject, shares.reject),
                (Character::Busy, shares.busy),
                (Character::Cut, shares.cut),
                (Character::CutTaken, shares.cut_taken),
                (Character::Plain, shares.plain),
                (Character::BrokenTls, shares.broken_tls),
            ],
            hostile: shares.hostile,
            changes: shares.at.clone(),
            delay: self.delay,
            slow: shares.slow_time,
            greylist: shares.greylist_time,
            throttle_connections: shares.throttle_connections,
            throttle_interval: shares.throttle_rate,
            reject_users: shares.reject_users,
            seed: self.seed,
            ..Plan::new(self.hosts)
        }
    }
}

/// Runs it to its end.
///
/// # Errors
/// It could not be started, or could not write its files.
pub(crate) fn run(arguments: &SimArguments) -> Result<Exit, Failure> {
    if arguments.with_parent {
        die_with_parent()?;
    }
    let options = Options {
        plan: arguments.plan(),
        port: arguments.port,
        dns: arguments.dns,
        connections_max: arguments.connections_max,
        ledger: arguments.ledger.clone(),
        list: arguments.list.clone(),
        map: arguments.map.clone(),
    };
    let internet = SimulatedInternet::start(&options)?;
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&json!({
            "event": "ready",
            "port": internet.port(),
            "dns": internet.dns().to_string(),
            "start_unix_us": internet.start_unix_us(),
        }));
    } else {
        output.print_line(invitation(arguments, &options.plan, &internet));
    }
    output.flush();
    let mut before = InternetProgress::default();
    let waited = internet.wait(arguments.time, &mut |at| {
        if !arguments.json && at != before {
            output.print_line(format_args!(
                "{} recipients reached, {} in this second; {} connections, {} open; {} DNS queries",
                thousands(at.recipients),
                thousands(at.recipients - before.recipients),
                thousands(at.connections),
                thousands(at.open),
                thousands(at.queries)
            ));
            output.flush();
        }
        before = at;
    });
    let summary = internet.stop()?;
    waited.map_err(|error| Failure::io("waiting for a signal", &error))?;
    if arguments.json {
        output.print_json(&summary.json(arguments.json_hosts));
    } else {
        output.print_line(summary.text().trim_end());
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Returns a description of the simulated internet, and the next commands.
fn invitation(arguments: &SimArguments, plan: &Plan, internet: &SimulatedInternet) -> String {
    let (port, dns) = (internet.port(), internet.dns());
    let domains = u64::from(plan.hosts) * u64::from(plan.domains_per_host);
    let last = u32::try_from(domains).unwrap_or(1) - 1;
    let mut text = format!(
        "{} hosts from {} on, {} domains from {} to {}\n",
        thousands(plan.hosts.into()),
        plan.network,
        thousands(domains),
        World::domain(0),
        World::domain(last)
    );
    let mut live = plan.hosts;
    let shares = plan.shares.iter().map(|(character, share)| (character.name(), *share));
    for (name, share) in shares.chain([("hostile", plan.hostile)]).filter(|(_, share)| *share != Share::default()) {
        let hosts = share.of(plan.hosts);
        live = live.saturating_sub(hosts);
        text.push_str(&format!("{:>8} {name}\n", thousands(hosts.into())));
    }
    text.push_str(&format!("{:>8} live\n", thousands(live.into())));
    text.push_str(&format!(
        "To send mail into it, give a mailrace configuration these lines:\n\
         \n\
         [dns]\n\
         servers = [\"{dns}\"]\n\
         ignored_addresses = []\n\
         [route]\n\
         port = {port}\n\
         \n\
         or try one host:\n\
         \n\
         swaks --server {}:{port} --to ok@{}\n\
         \n",
        plan.network,
        World::domain(0)
    ));
    if let Some(list) = &arguments.list {
        text.push_str(&format!("Recipients to send to are in {}\n", list.display()));
    }
    text.push_str(&format!("mailrace: sim is ready on port {port}, DNS on {dns}"));
    text
}

impl From<InternetError> for Failure {
    fn from(error: InternetError) -> Self {
        let exit = match &error {
            InternetError::Options(_) => Exit::Usage,
            InternetError::Io { what, .. } if what.starts_with("--port") || what.starts_with("--dns") => {
                Exit::Unavailable
            }
            InternetError::Io { .. } => Exit::Io,
        };
        Self::new(exit, error.to_string())
    }
}
