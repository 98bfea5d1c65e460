//! `mailrace dkim verify`: the results of SPF, DKIM and DMARC for a message, as the server would find them.

use super::{resolver, settings_of};
use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::message_files;
use crate::output::Output;
use crate::terminal_text::plain;
use clap::Args;
use filter::auth_results::MethodResult;
use serde_json::{Map, Value, json};
use server::sender_check::{CheckedSender, SenderChecks, check_sender, iprev};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    source: Source,
    /// Address of the client that sent it; without, SPF is not checked
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,
    /// Name that the client gave in its greeting
    #[arg(long, value_name = "NAME", default_value = "")]
    helo: String,
    /// Sender of the envelope; without, a report
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    sender: String,
    /// Print JSON, one line for each message
    #[arg(long)]
    json: bool,
    /// Files of messages with CRLF or LF; - or none is standard input
    #[arg(value_name = "MESSAGE")]
    messages: Vec<PathBuf>,
}

pub(super) fn run(arguments: &VerifyArguments) -> Result<Exit, Failure> {
    let (hostname, settings) = settings_of(&arguments.source)?;
    let (runtime, resolver) = resolver(&settings)?;
    #[expect(clippy::disallowed_methods, reason = "the time of day by which signatures expire")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let sender = arguments.sender.trim_start_matches('<').trim_end_matches('>');
    let checked = CheckedSender {
        ip: arguments.client,
        iprev: arguments.client.map(|ip| iprev(&runtime.block_on(resolver.reverse(ip)))),
        helo: arguments.helo.clone(),
        sender: sender.to_owned(),
        receiver: hostname,
        now,
    };
    let mut output = Output::new();
    for path in message_files::or_stdin(&arguments.messages) {
        let message = message_files::read(&path)?;
        if !message.is_complete {
            let text = format!("{}: the message is larger than this command reads", message.name);
            return Err(Failure::new(Exit::Damaged, text));
        }
        let content = with_crlf(message.content);
        let results = runtime.block_on(check_sender(&resolver, &checked, SenderChecks::ALL, &content));
        show(&mut output, arguments.json, &message.name, &results.methods());
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Returns content whose lines end with CRLF, as it was on the wire.
fn with_crlf(content: Vec<u8>) -> Vec<u8> {
    let first_line = content.iter().position(|octet| *octet == b'\n').and_then(|at| content.get(..at));
    if first_line.is_none_or(|line| line.ends_with(b"\r")) {
        return content;
    }
    let mut out = Vec::with_capacity(content.len() + content.len() / 30);
    for octet in content {
        if octet == b'\n' {
            out.push(b'\r');
        }
        out.push(octet);
    }
    out
}

fn show(output: &mut Output, is_json: bool, name: &str, methods: &[MethodResult]) {
    if is_json {
        let results: Vec<Value> = methods
            .iter()
            .map(|MethodResult { method, code, reason, properties }| {
                let properties: Map<String, Value> =
                    properties.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
                json!({"method": method, "result": code, "reason": reason, "properties": properties})
            })
            .collect();
        return output.print_json(&json!({"message": name, "results": results}));
    }
    output.print_line(plain(name));
    for MethodResult { method, code, reason, properties } in methods {
        let mut line = format!("  {method}={code}");
        for (name, value) in properties {
            line.push_str(&format!(" {name}={value}"));
        }
        if !reason.is_empty() {
            line.push_str(&format!(" ({reason})"));
        }
        output.print_line(plain(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_on_the_wire() {
        assert_eq!(with_crlf(b"a\nb\n".to_vec()), b"a\r\nb\r\n");
        assert_eq!(with_crlf(b"a\r\nb\nc".to_vec()), b"a\r\nb\nc", "one bare LF is content");
        assert_eq!(with_crlf(b"a".to_vec()), b"a");
    }
}
