//! `mailrace filter test`: tries content rules on messages and explains what they find.
//!
//! The rules are those of the crate `filter`; here files are read and the reports are shown.

use crate::control_client::ControlTarget;
use crate::exit::{Exit, Failure};
use crate::message_files::{self, MessageFile};
use crate::output::{Output, count};
use crate::queue_commands::content::{self, QueuedMessage};
use crate::terminal_text::plain;
use clap::{Args, Subcommand};
use filter::{Direction, Evaluation, Limits, Message, Recipient, RuleReport, RuleSet};
use mail::QueueId;
use mail::header::LineEnd;
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Examples:
  mailrace filter test --rules charsets.rules message.eml
  mailrace filter test --rules my.rules --recipient a@example.com --client-address 192.0.2.1 < message.eml
  mailrace filter test --rules my.rules --all --json Maildir/cur/*
  mailrace filter test --rules my.rules --queue-id 6AK9BQPE592284

A message of the queue or the quarantine has its sender, its recipients that are
not done, its client and its greeting from there, unless options give others.

Exit status:
   0  done, whether a rule matches or not
  64  wrong arguments
  65  a message of the queue cannot be read
  66  a message is not in the queue
  69  the server does not run
  74  reading or writing failed
  77  no permission
  78  the rules have an error";

#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Say which rules match a message, and where: the first line is "match" or "no match"
    #[command(after_help = HELP)]
    Test(FilterTestArguments),
}

#[derive(Debug, Args)]
pub(crate) struct FilterTestArguments {
    /// File of rules; several are one set
    #[arg(long, value_name = "FILE", required = true)]
    rules: Vec<PathBuf>,
    /// Envelope sender
    #[arg(long, value_name = "ADDRESS")]
    sender: Option<String>,
    /// Envelope recipient, any number of times
    #[arg(long, value_name = "ADDRESS")]
    recipient: Vec<String>,
    /// Mailing list that the recipients are
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Address of the client
    #[arg(long, value_name = "ADDRESS")]
    client_address: Option<IpAddr>,
    /// Verified name of the client
    #[arg(long, value_name = "NAME")]
    client_name: Option<String>,
    /// Name in the client's greeting
    #[arg(long, value_name = "NAME")]
    helo: Option<String>,
    /// Listener that takes the message
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Way of the message: inbound or outbound
    #[arg(long, value_name = "WAY", default_value = "inbound", value_parser = direction)]
    direction: Direction,
    /// Result of an authentication method, such as spf=fail
    #[arg(long, value_name = "METHOD=RESULT", value_parser = method_and_result)]
    auth: Vec<(String, String)>,
    /// Show the rules that do not match, too
    #[arg(long)]
    all: bool,
    /// Print JSON, one line for each message
    #[arg(long)]
    json: bool,
    /// Message in queue or quarantine, by its queue id, any number of times
    #[arg(long, value_name = "ID")]
    queue_id: Vec<QueueId>,
    #[command(flatten)]
    target: ControlTarget,
    /// Files of messages; - or none is standard input
    #[arg(value_name = "MESSAGE")]
    messages: Vec<PathBuf>,
}

fn direction(word: &str) -> Result<Direction, String> {
    Direction::from_name(word).ok_or_else(|| "ways are inbound and outbound".to_owned())
}

fn method_and_result(text: &str) -> Result<(String, String), String> {
    let (method, result) = text.split_once('=').ok_or("write METHOD=RESULT, such as spf=fail")?;
    Ok((method.to_owned(), result.to_owned()))
}

/// Runs `mailrace filter`.
pub(crate) fn run(command: &FilterCommand) -> Result<Exit, Failure> {
    let FilterCommand::Test(arguments) = command;
    let rules = read_rules(&arguments.rules)?;
    let mut output = Output::new();
    let is_stdin = arguments.messages.is_empty() && arguments.queue_id.is_empty();
    let paths = if is_stdin { message_files::or_stdin(&[]) } else { arguments.messages.clone() };
    let is_one = paths.len() + arguments.queue_id.len() == 1;
    let files = paths.iter().map(|path| message_files::read(path).map(TestedMessage::of_file));
    let target = arguments.target.path();
    let queued = arguments.queue_id.iter().map(|id| content::fetch(&target, *id).map(TestedMessage::of_queue));
    for message in files.chain(queued) {
        let message = message?;
        let evaluation = rules.evaluate(arguments.message(&message), &Limits::default());
        let file = &message.file;
        if arguments.json {
            output.print_json(&as_json(&rules, &evaluation, file, arguments.all));
        } else {
            show(&mut output, &rules, &evaluation, (!is_one).then_some(&file.name), arguments.all);
        }
        if !output.is_read() {
            break;
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn read_rules(paths: &[PathBuf]) -> Result<RuleSet, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let octets = fs::read(path).map_err(|error| Failure::io(&name, &error))?;
        let text = String::from_utf8(octets)
            .map_err(|_| Failure::new(Exit::Config, format!("{name} is no UTF-8 text; save it as UTF-8")))?;
        files.push((name, text));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    RuleSet::parse(&files).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::new(Exit::Config, lines.join("\n"))
    })
}

/// A message with what the queue knows of its envelope.
struct TestedMessage {
    file: MessageFile,
    sender: String,
    recipients: Vec<String>,
    client_address: Option<IpAddr>,
    helo: Option<String>,
}

impl TestedMessage {
    const fn of_file(file: MessageFile) -> Self {
        Self { file, sender: String::new(), recipients: Vec::new(), client_address: None, helo: None }
    }

    fn of_queue(message: QueuedMessage) -> Self {
        let QueuedMessage { file, lines } = message;
        let recipients = lines.iter().flat_map(|line| &line.recipients).filter_map(|one| one.to.clone()).collect();
        let first = lines.into_iter().next().unwrap_or_default();
        Self {
            file,
            sender: first.from.unwrap_or_default(),
            recipients,
            client_address: first.client.and_then(|client| client_address(&client)),
            helo: first.helo,
        }
    }
}

/// Returns the address of a client that the queue names with its port; `None`: it is a process.
fn client_address(client: &str) -> Option<IpAddr> {
    client.parse().or_else(|_| client.parse::<SocketAddr>().map(|address| address.ip())).ok()
}

impl FilterTestArguments {
    fn message<'a>(&'a self, message: &'a TestedMessage) -> Message<'a> {
        let list = self.list.as_deref();
        let TestedMessage { file, sender, recipients, client_address, helo } = message;
        let recipients = if self.recipient.is_empty() { recipients } else { &self.recipient };
        Message {
            is_complete: file.is_complete,
            sender: self.sender.as_deref().unwrap_or(sender),
            recipients: recipients.iter().map(|address| Recipient { address, list }).collect(),
            client_address: self.client_address.or(*client_address),
            client_name: self.client_name.as_deref(),
            helo: self.helo.as_deref().or(helo.as_deref()),
            listener: self.listener.as_deref(),
            direction: Some(self.direction),
            authentication: self.auth.iter().map(|(method, result)| (method.as_str(), result.as_str())).collect(),
            ..Message::new(&file.content, LineEnd::CrlfOrLf)
        }
    }
}

/// The rules to show: their indices, whether they act on the message, and their reports.
fn reports(rules: &RuleSet, evaluation: &Evaluation<'_, '_>, all: bool) -> Vec<(usize, bool, RuleReport)> {
    let acts = |index: usize| evaluation.matches().iter().any(|one| one.rule == index);
    let wanted = (0..rules.rules().len()).filter(|index| all || acts(*index));
    wanted.filter_map(|index| Some((index, acts(index), evaluation.explain(index)?))).collect()
}

fn show(output: &mut Output, rules: &RuleSet, evaluation: &Evaluation<'_, '_>, name: Option<&String>, all: bool) {
    let word = if evaluation.matches().is_empty() { "no match" } else { "match" };
    output.print_line(name.map_or_else(|| word.to_owned(), |name| format!("{word} {}", plain(name))));
    for (index, acts, report) in reports(rules, evaluation, all) {
        let Some(rule) = rules.rules().get(index) else { continue };
        let actions: Vec<String> = rule.actions().iter().map(ToString::to_string).collect();
        let state = match (acts, &report) {
            (true, _) => "matches",
            (false, RuleReport { is_in_scope: false, .. }) => "is not for this message",
            (false, RuleReport { holds: true, .. }) => "comes after the decision",
            (false, _) => "does not match",
        };
        let place = format!("{} line {}", rules.file_of(rule), rule.line());
        output.print_line(plain(&format!("  rule {} {state} ({place}): {}", rule.name(), actions.join("; "))));
        for condition in &report.conditions {
            let answer = if condition.holds { "yes" } else { "no " };
            output.print_line(plain(&format!("    {answer} line {}: {}", condition.line, condition.source)));
            if let Some(evidence) = &condition.evidence {
                output.print_line(plain(&format!("        {}: \"{}\"", evidence.place, evidence.found)));
                if evidence.context != evidence.found {
                    output.print_line(plain(&format!("        in \"{}\"", evidence.context)));
                }
            }
        }
    }
    let limits = evaluation.limits_reached();
    if !limits.is_empty() {
        output.print_line(format!("  not fully scanned: {} reached", count_limits(limits)));
    }
}

fn count_limits(limits: &[&str]) -> String {
    format!("{} ({})", count(limits.len() as u64, "limit"), limits.join(", "))
}

fn as_json(rules: &RuleSet, evaluation: &Evaluation<'_, '_>, file: &MessageFile, all: bool) -> Value {
    let rule = |(index, acts, report): (usize, bool, RuleReport)| {
        let rule = rules.rules().get(index)?;
        let conditions: Vec<Value> = report
            .conditions
            .iter()
            .map(|one| {
                let evidence = one.evidence.as_ref();
                json!({
                    "line": one.line, "condition": one.source, "holds": one.holds,
                    "place": evidence.map(|evidence| &evidence.place), "found": evidence.map(|evidence| &evidence.found),
                })
            })
            .collect();
        let actions: Vec<String> = rule.actions().iter().map(ToString::to_string).collect();
        Some(json!({
            "rule": rule.name(), "file": rules.file_of(rule), "line": rule.line(), "matches": acts,
            "holds": report.holds, "in_scope": report.is_in_scope, "actions": actions, "conditions": conditions,
        }))
    };
    let shown: Vec<Value> = reports(rules, evaluation, all).into_iter().filter_map(rule).collect();
    json!({
        "message": file.name, "match": !evaluation.matches().is_empty(), "rules": shown,
        "limits_reached": evaluation.limits_reached(),
    })
}
