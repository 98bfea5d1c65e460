//! `mailrace sim`: a simulated internet, to send mail into.
//!
//! Reads arguments and prints; the hosts are those of `sim`, their sockets those of `bench::internet`.

use crate::exit::{Exit, Failure};
use crate::output::{Output, thousands};
use crate::serve::die_with_parent;
use bench::internet::{Error, Internet, Options, Progress};
use clap::Args;
use serde_json::json;
use server::config;
use sim::{Change, Character, Plan, Share, World};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` says at its end.
pub(crate) const HELP: &str = "\
Host N is mxN.sim.example at 127.16.0.0 + N; domains are d0.sim.example, d1.sim.example, … Shares are of hosts, as in 2% or \
0.5%; hosts that are left are live. Times are as in 20ms, 5s or 1m30s. Any recipient is taken, and some ask for an answer: \
4xx@, 5xx@, 550-5.1.1@, dot-451@, 421@, greylist@, slow@, hang@, drop@. Files and characters are explained in docs/sim.md.

Exit status:
   0  ended by a signal or by --for
  64  wrong arguments
  69  an address cannot be had
  74  a file could not be written";

/// Is an internet.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Hosts
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    hosts: u32,
    /// Domains for each host
    #[arg(long, default_value_t = 1, value_name = "N")]
    domains_per_host: u32,
    /// Hosts of each domain: neighbours in number, the first one preferred
    #[arg(long, default_value_t = 1, value_name = "N")]
    mx_per_domain: u32,
    /// All hosts of a domain have one preference
    #[arg(long)]
    equal_mx: bool,
    /// Recipients of the list for each domain
    #[arg(long, default_value_t = 2, value_name = "N")]
    recipients: u32,
    /// Address of host 0
    #[arg(long, default_value = "127.16.0.0", value_name = "ADDRESS")]
    network: Ipv4Addr,
    /// Port of all hosts; 0 takes a free one
    #[arg(long, default_value_t = 2525)]
    port: u16,
    /// Where the DNS server listens, by UDP and TCP; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:5300", value_name = "ADDRESS:PORT")]
    dns: SocketAddr,
    /// Connections at a time, of all hosts
    #[arg(long, default_value_t = 4_000, value_name = "N")]
    connections_max: usize,
    /// Decides which host is what
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// From what a client sends to the answer to it
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    delay: Duration,
    #[command(flatten, next_help_heading = "Hosts that are not live")]
    shares: Shares,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Write what was taken to this file
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Write the recipients to this file, one a line
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Write the hosts to this file, one a line
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Tell of each host in the JSON, too
    #[arg(long, requires = "json")]
    json_hosts: bool,
    /// Die when the process that started this one does
    #[arg(long, hide = true)]
    with_parent: bool,
}

#[derive(Debug, Args)]
struct Shares {
    /// Refuse connections
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    dead: Share,
    /// Drop packets
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    drop: Share,
    /// Accept and never greet
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung: Share,
    /// Greet and never answer EHLO
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung_hello: Share,
    /// Take the content and never answer it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hung_data: Share,
    /// Answer after --slow-time
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    slow: Share,
    /// Time before each flight of replies of slow hosts
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    slow_time: Duration,
    /// Put off a recipient with 450 at first
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    greylist: Share,
    /// For how long
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    greylist_time: Duration,
    /// Say 421 above --throttle-connections and --throttle-rate
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    throttle: Share,
    /// Connections at a time that a throttling host bears
    #[arg(long, value_name = "N", default_value_t = 2)]
    throttle_connections: u32,
    /// Messages per second that a throttling host bears
    #[arg(long, value_name = "N", default_value = "1", value_parser = interval)]
    throttle_rate: Duration,
    /// Say 550 to some recipients
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    reject: Share,
    /// To how many
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    reject_users: Share,
    /// Say 451 to MAIL
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    busy: Share,
    /// Close after the content without having taken it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    cut: Share,
    /// Close after the content and have taken it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    cut_taken: Share,
    /// Speak without any extension
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    plain: Share,
    /// Offer STARTTLS and fail at it
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    broken_tls: Share,
    /// Endless and huge answers, answers before commands, and worse; every kind in turn
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    hostile: Share,
    /// Change a share of the live hosts for a time: 10s..60s:dead=20%
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

impl Arguments {
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
/// It could not be started, or not write what it should.
pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
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
    let internet = Internet::start(&options)?;
    let mut output = Output::new();
    if arguments.json {
        output.json(&json!({
            "event": "ready",
            "port": internet.port(),
            "dns": internet.dns().to_string(),
            "start_unix_us": internet.start_unix_us(),
        }));
    } else {
        output.line(invitation(arguments, &options.plan, &internet));
    }
    output.flush();
    let mut before = Progress::default();
    let waited = internet.wait(arguments.time, &mut |at| {
        if !arguments.json && at != before {
            output.line(format_args!(
                "{} recipients taken, {}/s; {} connections, {} open; {} DNS queries",
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
        output.json(&summary.json(arguments.json_hosts));
    } else {
        output.line(summary.text().trim_end());
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// What it is, and what to do next.
fn invitation(arguments: &Arguments, plan: &Plan, internet: &Internet) -> String {
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
    for (character, share) in &plan.shares {
        if *share != Share::default() {
            text.push_str(&format!("{:>8} {character}\n", thousands(share.of(plan.hosts).into())));
        }
    }
    if plan.hostile != Share::default() {
        text.push_str(&format!("{:>8} hostile\n", thousands(plan.hostile.of(plan.hosts).into())));
    }
    text.push_str(&format!(
        "Send into it with a configuration that has\n\
         \n\
         [dns]\n\
         servers = [\"{dns}\"]\n\
         [route]\n\
         port = {port}\n\
         \n\
         or try a host: swaks --server {}:{port} --to ok@{}\n",
        plan.network,
        World::domain(0)
    ));
    if let Some(list) = &arguments.list {
        text.push_str(&format!("Recipients are in {}\n", list.display()));
    }
    text.push_str(&format!("mailrace: sim is ready on port {port}, DNS on {dns}"));
    text
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Options(_) => Exit::Usage,
            Error::Io { what, .. } if what.starts_with("--port") || what.starts_with("--dns") => Exit::Unavailable,
            Error::Io { .. } => Exit::Io,
        };
        Self::new(exit, error.to_string())
    }
}
