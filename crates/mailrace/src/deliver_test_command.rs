//! `mailrace deliver-test`: how far a delivery comes without mail, with the time of each phase.
//!
//! The running server is asked, whose maps, rules and network count; without one the command does the same by the
//! configuration.

use crate::config_commands::Source;
use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::terminal_text::plain;
use clap::Args;
use operator::control::Request;
use serde_json::{Map, Value, json};
use server::config::render;
use server::explain::Explainer;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Examples:
  mailrace deliver-test example.org
  mailrace deliver-test ann@example.org --json
  mailrace deliver-test 'smtp:[192.0.2.1]:25'

Every host of the destination gets one connection: connect, greeting, EHLO, STARTTLS with the certificate judged, EHLO,
QUIT. No login, no mail, and nothing is learned for deliveries.

Exit status:
   0  a host of each destination is ready for mail
  64  wrong arguments, or no mail goes there
  69  no host is ready for mail
  75  the server is busy
  77  no permission
  78  there is no server, and the configuration has errors";

#[derive(Debug, Args)]
pub(crate) struct DeliverTestArguments {
    /// An address, a domain, or a destination as the queue names it
    #[arg(value_name = "DOMAIN|ADDRESS")]
    to: String,
    /// Do not ask the running server
    #[arg(long)]
    without_server: bool,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    target: ControlTarget,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace deliver-test`.
pub(crate) fn run(arguments: &DeliverTestArguments) -> Result<Exit, Failure> {
    let (mut fields, by) = match ask_server(arguments)? {
        Some(fields) => (fields, "server"),
        None => (by_configuration(arguments)?, "configuration"),
    };
    fields.insert("by".to_owned(), json!(by));
    let answer = Value::Object(fields);
    let mut output = Output::new();
    match arguments.json {
        true => output.print_json(&answer),
        false => show(&mut output, &answer),
    }
    output.finish()?;
    let is_ready = |test: &Value| {
        at(test, "local").is_string() || list(at(test, "hosts")).iter().any(|host| *at(host, "ok") == true)
    };
    Ok(if list(at(&answer, "destinations")).iter().all(is_ready) { Exit::Ok } else { Exit::Unavailable })
}

/// Asks the running server; `None`: there is none.
fn ask_server(arguments: &DeliverTestArguments) -> Result<Option<Map<String, Value>>, Failure> {
    if arguments.without_server {
        return Ok(None);
    }
    let mut control = match Control::connect(&arguments.target.path()) {
        Ok(control) => control,
        Err(failure) if failure.exit == Exit::Unavailable => return Ok(None),
        Err(failure) => return Err(failure),
    };
    match control.request(&Request::DeliverTest(arguments.to.clone()))? {
        Value::Object(fields) => Ok(Some(fields)),
        other => Err(Failure::new(Exit::Usage, format!("the server answers {other}: it is of another version"))),
    }
}

fn by_configuration(arguments: &DeliverTestArguments) -> Result<Map<String, Value>, Failure> {
    let loaded = arguments.source.open()?.map_err(|problems| {
        eprint!("{}", render(&problems));
        Failure::new(Exit::Config, "the configuration has errors; correct them first")
    })?;
    let explainer = Explainer::open(&loaded).map_err(|faults| Failure::new(Exit::Config, faults.join("\n")))?;
    explainer.deliver_test(&arguments.to).map_err(|error| Failure::new(Exit::Usage, error))
}

fn show(output: &mut Output, answer: &Value) {
    let by = if *at(answer, "by") == "server" { "the running server" } else { "the configuration; no server answers" };
    output.print_line(format!("{}: {} (by {by})", text(at(answer, "to")), text(at(answer, "route"))));
    for test in list(at(answer, "destinations")) {
        let dns = format!("dns {}", ms(at(test, "dns_ms")));
        output.print_line(format!("{}: {dns}{}", text(at(test, "destination")), policy(test)));
        if let Some(error) = at(test, "error").as_str() {
            output.print_line(format!("  no host: {}", plain(error)));
        }
        if at(test, "local").is_string() {
            output.print_line("  is delivered on this machine");
        }
        list(at(test, "hosts")).iter().for_each(|host| show_host(output, host));
    }
    if let Some(more @ 1..) = at(answer, "more").as_u64() {
        output.print_line(format!("{more} more destinations were not tried"));
    }
}

fn policy(test: &Value) -> String {
    let policy = at(test, "policy");
    if policy.is_null() {
        return String::new();
    }
    format!(", tls {} ({}), DANE and MTA-STS are not supported", text(at(policy, "tls")), text(at(policy, "set_by")))
}

fn show_host(output: &mut Output, host: &Value) {
    let state = if *at(host, "ok") == true { "ready" } else { "FAILED" };
    output.print_line(format!("  {state:<6} {} {}", text(at(host, "host")), text(at(host, "address"))));
    let phases = ["connect", "greeting", "ehlo", "starttls", "tls", "ehlo_tls"];
    let times: Vec<String> = phases
        .iter()
        .filter_map(|phase| Some(format!("{} {}", phase.replace('_', " "), ms(host.get(format!("{phase}_ms"))?))))
        .collect();
    output.print_line(format!("         {}", times.join(", ")));
    if let Some(greeting) = at(host, "greeting").as_str() {
        output.print_line(format!("         {}", plain(greeting)));
    }
    let extensions =
        if at(host, "extensions_tls").is_array() { at(host, "extensions_tls") } else { at(host, "extensions") };
    let words: Vec<String> = list(extensions).iter().map(text).collect();
    if !words.is_empty() {
        output.print_line(format!("         offers {}", words.join(", ")));
    }
    let tls = at(host, "tls");
    if tls.is_object() {
        let judged = match (at(tls, "verified").as_bool(), at(tls, "fault").as_str()) {
            (Some(true), _) => "certificate verified".to_owned(),
            (_, Some(fault)) => format!("certificate NOT verified: {}", plain(fault)),
            _ => "certificate NOT verified: it is for another name".to_owned(),
        };
        output.print_line(format!("         {} {}, {judged}", text(at(tls, "version")), text(at(tls, "cipher"))));
    }
    let failed = at(host, "failed");
    if failed.is_object() {
        output.print_line(format!("         {}: {}", text(at(failed, "phase")), text(at(failed, "text"))));
    }
}

/// The value of a key; null without it.
fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or("?"))
}

fn ms(value: &Value) -> String {
    value.as_f64().map_or_else(|| "?".to_owned(), |ms| format!("{ms:.1} ms"))
}
