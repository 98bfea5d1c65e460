//! The answers of mailrace: `mailrace route --json` for destinations and addresses, a server for dialogs.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use testkit::client::Plain;
use testkit::harness::{Server, Setup, program, text};
use testkit::oracle::answer::{Answer, address, hosts, qualified};
use testkit::oracle::corpus::{Asked, Case, Extent};

/// A server with the files of a case, and the output of `route`.
pub(crate) struct Ours {
    server: Server,
    /// By address, for `route` questions.
    routes: BTreeMap<String, Value>,
}

impl Ours {
    pub(crate) fn start(case: &Case, setup: Setup) -> Self {
        let config = setup.write();
        let asked = case.questions.iter().filter_map(|question| match &question.asked {
            Asked::Route { address } => Some(address.clone()),
            Asked::Rewrite { flags, address } if flags == "ER" => Some(qualified(address)),
            _ => None,
        });
        let asked: Vec<String> = asked.collect();
        let said = route(&config, &asked);
        Self { server: setup.start(), routes: asked.into_iter().zip(said).collect() }
    }

    /// The answer to a question.
    pub(crate) fn answer(&self, asked: &Asked) -> Answer {
        match asked {
            Asked::Route { address } => routed(&self.routes[address]),
            Asked::Rewrite { flags, address } => self.rewritten(flags, address),
            Asked::Header { field, value } => Answer { lines: self.in_header(field, value), texts: Vec::new() },
            Asked::Transaction { client, sender, recipients, extent } => {
                let mut answer = self.transaction(*client, sender, recipients, *extent);
                answer.end_at_refusal();
                answer
            }
            Asked::Dialog { client, commands } => self.dialog(*client, commands),
        }
    }

    /// How an address is written when mail leaves: in envelopes and headers as they are kept.
    fn rewritten(&self, flags: &str, written: &str) -> Answer {
        let mut line = qualified(written);
        match flags {
            "ES" => {
                let recipient = "x@else.example".to_owned();
                let sent = self.transaction(Ipv4Addr::LOCALHOST.into(), &line, &[recipient], Extent::Envelopes);
                let envelope = sent.lines.iter().find_map(|line| line.strip_prefix("envelope ")?.split_once(": "));
                line = envelope.map_or_else(|| sent.lines.join(" / "), |(sender, _)| sender.to_owned());
            }
            "ER" => {
                let said = &self.routes[&line];
                line = said["deliveries"][0]["address"].as_str().map_or_else(|| said.to_string(), address);
            }
            "HS" => line = qualified(&self.in_header("From", &format!("<{written}>")).concat()),
            "HR" => line = qualified(&self.in_header("To", &format!("<{written}>")).concat()),
            other => panic!("rewrite {other}"),
        }
        Answer { lines: vec![line], texts: Vec::new() }
    }

    /// The fields of this name, as mail from this machine has them when one was handed in.
    fn in_header(&self, field: &str, value: &str) -> Vec<String> {
        let before = self.queue();
        let mut client = self.client(Ipv4Addr::LOCALHOST.into());
        let from = if field == "From" { "" } else { "From: out@far.example\r\n" };
        let content = format!("{field}: {value}\r\n{from}Subject: test\r\n\r\ntext\r\n.");
        let said = [client.reply()].into_iter().chain(
            ["EHLO client.example", "MAIL FROM:<out@far.example>", "RCPT TO:<x@sink.example>", "DATA", &content]
                .map(|line| command(&mut client, line)),
        );
        let said: Vec<String> = said.collect();
        let known: BTreeSet<Option<&str>> = before.iter().map(|message| message["id"].as_str()).collect();
        let now = self.queue();
        let id = now.iter().filter_map(|message| message["id"].as_str()).find(|id| !known.contains(&Some(*id)));
        let Some(id) = id else { return said };
        let shown = text(&self.server.control(&["queue", "show", "--headers", id], b""));
        let lines = shown.lines().filter_map(|line| line.trim_start().strip_prefix("| "));
        let mut fields: Vec<String> = Vec::new();
        for line in lines {
            match fields.last_mut() {
                Some(last) if line.starts_with(' ') => last.push_str(line),
                _ => fields.push(line.to_owned()),
            }
        }
        let start = format!("{field}:");
        fields.iter().filter_map(|line| line.strip_prefix(&start)).map(testkit::oracle::answer::field).collect()
    }

    /// A client from this address, which the server believes: a proxy says so.
    fn client(&self, ip: IpAddr) -> Plain {
        let mut client = testkit::client::connect(self.server.address());
        let (family, here) = if ip.is_ipv4() { ("TCP4", "127.0.0.1") } else { ("TCP6", "::1") };
        client.send(format!("PROXY {family} {ip} {here} 40000 25\r\n").as_bytes());
        client
    }

    fn transaction(&self, ip: IpAddr, sender: &str, recipients: &[String], extent: Extent) -> Answer {
        let mut answer = Answer::default();
        let mut client = self.client(ip);
        let say =
            |answer: &mut Answer, client: &mut Plain, what: &str, line: Option<String>, shown: fn(&str) -> bool| {
                let reply = match line {
                    Some(line) => command(client, &line),
                    None => client.reply(),
                };
                if shown(&reply) {
                    answer.reply(what, last(&reply));
                }
                reply
            };
        say(&mut answer, &mut client, "greeting", None, |reply| !reply.starts_with("220"));
        say(&mut answer, &mut client, "hello", Some("EHLO client.example".to_owned()), |reply| {
            !reply.starts_with("250")
        });
        say(&mut answer, &mut client, "mail", Some(format!("MAIL FROM:<{sender}>")), |_| true);
        for recipient in recipients {
            say(&mut answer, &mut client, "rcpt", Some(format!("RCPT TO:<{recipient}>")), |_| true);
        }
        if extent == Extent::Recipients {
            return answer;
        }
        let before = self.queue();
        let reply = say(&mut answer, &mut client, "data", Some("DATA".to_owned()), |reply| !reply.starts_with("354"));
        if !reply.starts_with("354") {
            return answer;
        }
        say(&mut answer, &mut client, "message", Some("Subject: test\r\n\r\ntext\r\n.".to_owned()), |_| true);
        let known: BTreeSet<Option<&str>> = before.iter().map(|message| message["id"].as_str()).collect();
        let now = self.queue();
        let new: Vec<&Value> = now.iter().filter(|message| !known.contains(&message["id"].as_str())).collect();
        answer.lines.push(kept(&new));
        if extent == Extent::Envelopes {
            let mut envelopes: Vec<String> = new.iter().map(|message| envelope(message)).collect();
            envelopes.sort();
            answer.lines.extend(envelopes);
        }
        answer
    }

    fn dialog(&self, ip: IpAddr, commands: &[String]) -> Answer {
        let mut answer = Answer::default();
        let mut client = self.client(ip);
        answer.reply("(greeting)", last(&client.reply()));
        for line in commands {
            answer.reply(line, last(&command(&mut client, line)));
        }
        answer
    }

    /// Returns the messages in the queue.
    fn queue(&self) -> Vec<Value> {
        let output = self.server.control(&["queue", "list", "--limit", "0", "--json"], b"");
        assert!(output.status.success(), "{}", text(&output));
        lines_of_json(&String::from_utf8_lossy(&output.stdout))
    }
}

/// Returns the server's reply, also when it has closed.
fn command(client: &mut Plain, line: &str) -> String {
    use std::io::Write as _;
    match client.stream.write_all(format!("{line}\r\n").as_bytes()) {
        Ok(()) => client.reply(),
        Err(_) => "closed".to_owned(),
    }
}

/// The last line of a reply.
fn last(reply: &str) -> &str {
    match reply.lines().last().unwrap_or("") {
        "closed" => "(closed)",
        line => line,
    }
}

/// Whether messages wait, are held, or went nowhere.
fn kept(messages: &[&Value]) -> String {
    let recipients = || messages.iter().flat_map(|message| message["recipients"].as_array().into_iter().flatten());
    match recipients().find(|recipient| recipient["state"] == "held") {
        Some(_held) => "quarantined".to_owned(),
        None if messages.is_empty() => "discarded".to_owned(),
        None => "queued".to_owned(),
    }
}

fn envelope(message: &Value) -> String {
    let recipients = message["recipients"].as_array().into_iter().flatten();
    let recipients = recipients.map(|one| one["to"].as_str().unwrap_or("").to_owned()).collect();
    format!("envelope {}", testkit::oracle::answer::envelope(message["from"].as_str().unwrap_or(""), recipients))
}

fn lines_of_json(output: &str) -> Vec<Value> {
    let lines = output.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Returns the output of `mailrace route` for each recipient, in their order; null for one that it cannot read.
fn route(config: &Path, recipients: &[String]) -> Vec<Value> {
    let ask = |recipients: &[String]| {
        let mut command = program();
        let output = command
            .args(["route", "--json", "--from", "<>", "--config"])
            .arg(config)
            .arg("--")
            .args(recipients)
            .output();
        let output = output.expect("the program runs");
        (lines_of_json(&String::from_utf8_lossy(&output.stdout)), output)
    };
    if recipients.is_empty() {
        return Vec::new();
    }
    let (said, _) = ask(recipients);
    if said.len() == recipients.len() {
        return said;
    }
    // One that cannot be read stops it.
    let each = recipients.iter().map(|recipient| {
        let (mut said, output) = ask(std::slice::from_ref(recipient));
        assert!(said.len() == 1 || output.status.code() == Some(64), "{recipient}: {}", text(&output));
        said.pop().unwrap_or(Value::Null)
    });
    each.collect()
}

/// Returns the output of `route` for one recipient as an answer.
fn routed(said: &Value) -> Answer {
    let mut answer = Answer::default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match said["outcome"].as_str() {
        Some("refuse") => {
            let refusal = &said["refusal"];
            answer.reply(
                "refused",
                &format!("{} {} {}", text(&refusal["code"]), text(&refusal["status"]), text(&refusal["text"])),
            );
        }
        Some("defer") => answer.reply("refused", &format!("451 4.3.0 {}", text(&said["reason"]))),
        Some("discard") => answer.lines.push("discarded".to_owned()),
        Some(_) => {}
        None => answer.lines.push("not an address".to_owned()),
    }
    if said["failed"].as_array().is_some_and(|failed| !failed.is_empty()) {
        answer.lines.push("undeliverable".to_owned());
    }
    for delivery in said["deliveries"].as_array().into_iter().flatten() {
        let field = |name: &str| delivery[name].as_str().unwrap_or("");
        let to = field("address");
        let (kind, rest) = field("destination").split_once(':').unwrap_or(("", ""));
        match kind {
            "local" => answer.delivery("local", "", to.rsplit_once('@').map_or(to, |(local, _)| local)),
            "prog" | "file" => answer.delivery(kind, "", rest.split_once(':').map_or(rest, |(_, what)| what)),
            "error" => answer.lines.push("undeliverable".to_owned()),
            _ => {
                let now = if field("via").is_empty() { field("destination") } else { field("via") };
                answer.delivery("smtp", &hosts(now), &address(to));
            }
        }
    }
    answer.lines.sort();
    answer.lines.dedup();
    answer
}
