//! Answers in a form in which sendmail's and ours can be compared: codes, destinations, addresses; texts apart.

use super::corpus::{Asked, Question};

/// The answer of a server to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Facts that must be the same.
    pub lines: Vec<String>,
    /// Texts of replies, which may differ.
    pub texts: Vec<String>,
}

impl Answer {
    /// Adds a reply: its code and enhanced code count, its text does not.
    pub fn reply(&mut self, what: &str, reply: &str) {
        let (code, text) = reply.split_at_checked(3).unwrap_or((reply, ""));
        let text = text.trim_start_matches([' ', '-']);
        let (status, text) = text.split_once(' ').unwrap_or((text, ""));
        let is_status = status.split('.').count() == 3 && status.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        let status = if is_status { status } else { "" };
        self.lines.push([what, code, status].join(" ").trim_end().to_owned());
        self.texts.push(text.to_owned());
    }

    /// Adds a way that mail goes. `hosts` is empty for mailers of this machine.
    pub fn delivery(&mut self, class: &str, hosts: &str, user: &str) {
        let line = match class {
            "local" => format!("local {}", local_user(user)),
            "prog" => format!("prog {}", user.trim_matches('"').trim_start_matches('|')),
            "file" => format!("file {}", user.trim_matches('"')),
            _ => format!("smtp {} {}", hosts.to_ascii_lowercase().replace("[ipv6:", "["), address(user)),
        };
        self.lines.push(line);
    }

    /// Forgets the replies behind a refused MAIL, unless they repeat its reply: RCPT is misplaced there.
    pub fn end_at_refusal(&mut self) {
        let refused = self.lines.iter().position(|line| line.starts_with("mail ") && !line.starts_with("mail 2"));
        let Some(at) = refused else { return };
        let reply = |at: usize| self.lines.get(at).and_then(|line| line.split_once(' ')).map(|(_, reply)| reply);
        if reply(at + 1) != reply(at) {
            self.lines.truncate(at + 1);
        }
    }

    /// Compares as a set: order and repetitions do not count.
    fn sort(&mut self) {
        self.lines.sort();
        self.lines.dedup();
    }
}

/// An address whose domain is written in one way.
pub fn address(text: &str) -> String {
    let text = text.trim_matches(['<', '>']);
    text.rsplit_once('@').map_or_else(
        || text.to_owned(),
        |(local, domain)| format!("{local}@{}", domain.trim_end_matches('.').to_ascii_lowercase()),
    )
}

/// The user without his detail.
fn local_user(text: &str) -> &str {
    let text = text.trim_start_matches('\\');
    text.split_once('+').map_or(text, |(user, _)| user)
}

/// sendmail's recorded answer.
pub fn theirs(question: &Question) -> Answer {
    let mut answer = Answer::default();
    match &question.asked {
        Asked::Route { .. } => {
            for line in &question.answer {
                their_route(line, &mut answer);
            }
            answer.sort();
        }
        Asked::Header { .. } => answer.lines.extend(question.answer.iter().map(|line| field(line))),
        Asked::Rewrite { .. } => answer.lines.extend(question.answer.iter().map(|line| address(line))),
        Asked::Transaction { .. } => {
            for line in &question.answer {
                match line.split_once(' ') {
                    Some((what @ ("greeting" | "hello" | "mail" | "rcpt" | "data" | "message"), reply)) => {
                        answer.reply(what, reply)
                    }
                    Some(("quarantined", why)) => {
                        answer.lines.push("quarantined".to_owned());
                        answer.texts.push(why.to_owned());
                    }
                    Some(("envelope", envelope)) => answer.lines.push(format!("envelope {}", their_envelope(envelope))),
                    _ => answer.lines.push(line.clone()),
                }
            }
            answer.end_at_refusal();
        }
        Asked::Dialog { .. } => {
            let (mut command, mut last) = ("(greeting)", question.answer.first().map_or("", String::as_str));
            for line in question.answer.iter().skip(1) {
                if let Some(reply) = line.strip_prefix("    ") {
                    last = reply;
                } else {
                    answer.reply(command, last);
                    command = line;
                }
            }
            answer.reply(command, last);
        }
    }
    answer
}

/// `MAILER HOST USER`, `rcpt REPLY` or `trouble TEXT`.
fn their_route(line: &str, answer: &mut Answer) {
    let mut words = line.splitn(3, ' ');
    let (mailer, host, user) = (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next().unwrap_or(""));
    match mailer {
        "rcpt" => answer.reply("refused", line.trim_start_matches("rcpt ")),
        "trouble" => {
            answer.lines.push("undeliverable".to_owned());
            answer.texts.push(line.trim_start_matches("trouble ").to_owned());
        }
        // With a detail sendmail has the user in the place of "user" and the detail in that of the host.
        "local" => answer.delivery("local", "", user),
        "prog" => answer.delivery("prog", "", user),
        "*file*" => answer.delivery("file", "", user),
        _ => answer.delivery("smtp", host.trim_end_matches('.'), user),
    }
}

/// `SENDER: RECIPIENT…`
fn their_envelope(text: &str) -> String {
    let (sender, recipients) = text.split_once(':').unwrap_or((text, ""));
    let recipients = recipients.split_ascii_whitespace().map(str::to_owned).collect();
    envelope(if sender == "<>" { "" } else { sender }, recipients)
}

/// A sender and his recipients, in any order. Users of this machine may have each of its domains or none.
pub fn envelope(sender: &str, recipients: Vec<String>) -> String {
    let sender = if sender.is_empty() { String::new() } else { qualified(sender) };
    let mut recipients: Vec<String> =
        recipients.iter().map(|recipient| qualified(recipient).replace("@mine.example", "@oracle.example")).collect();
    recipients.sort();
    format!("{sender}: {}", recipients.join(" "))
}

/// An address with the name of the machine where it has no domain.
pub fn qualified(text: &str) -> String {
    let text = address(text);
    if text.contains('@') { text } else { format!("{text}@oracle.example") }
}

/// The value of a field on one line, with one blank for several.
pub fn field(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn replies_are_taken_apart() {
    let mut answer = Answer::default();
    for reply in ["250 2.1.0 <a@b>... Sender ok", "250-first", "(closed)", "354 Enter mail", "550 5.7.1.2 x"] {
        answer.reply("mail", reply);
    }
    assert_eq!(answer.lines, ["mail 250 2.1.0", "mail 250", "mail (cl", "mail 354", "mail 550"]);
    assert_eq!(answer.texts[0], "<a@b>... Sender ok");
}

/// Hosts as mailertable has them, without mailer and ports; `text` is a value of ours, or the text of a destination.
///
/// There a name alone is looked up for its addresses and `mx:` stands before one whose MX hosts count; `,` is between
/// hosts that are tried one after the other, `|` between those that are as good as each other.
pub fn hosts(text: &str) -> String {
    let Some(rest) = text.strip_prefix("smtp:") else { return text.to_owned() };
    let mut out = String::new();
    for host in rest.split_inclusive([',', '|']) {
        let separator = match host.chars().last() {
            Some('|') => ",",
            Some(',') => ":",
            _ => "",
        };
        let host = host.trim_matches(['(', ')', ',', '|']);
        let (name, is_mx) = host.strip_prefix("mx:").map_or((host, false), |name| (name, true));
        let end = name.rfind(']').map_or_else(|| name.find(':').unwrap_or(name.len()), |end| end + 1);
        let name = &name[..end];
        let name = if is_mx || name.starts_with('[') { name.to_owned() } else { format!("[{name}]") };
        out.push_str(&name);
        out.push_str(separator);
    }
    out
}

#[test]
fn hosts_are_written_as_mailertable_has_them() {
    assert_eq!(hosts("smtp:[192.0.2.1]:25,(mx:a.example:25|b.example:26)"), "[192.0.2.1]:a.example,[b.example]");
    assert_eq!(hosts("smtp:[2001:db8::1]:25"), "[2001:db8::1]");
    assert_eq!(hosts("example.com"), "example.com");
}
