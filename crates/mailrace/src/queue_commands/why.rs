//! `mailrace why`: says in a paragraph why mail is still here.
//!
//! The answer is made of what the server says about messages and their destinations; the place where a limit was set
//! comes from the configuration file, if this user may read it.

use super::text::next_attempt;
use super::without_server;
use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::{Output, age, bytes, count};
use crate::terminal_text::plain;
use clap::Args;
use mail::QueueId;
use operator::answers::{
    DestinationStatus, HoldLine, LimitLine, MessageLine, QueueLine, QueueTotals, RecipientLine, StatusAnswer,
};
use operator::control::Request;
use operator::queue::{Action, Command, Expression, Selection};
use serde_json::{Value, json};
use server::config::{self, Loaded};
use std::path::Path;

/// Messages that are explained; more are counted.
const MESSAGES_MAX: u64 = 5;
/// Recipients of a message that are explained; more are counted.
const RECIPIENTS_MAX: usize = 5;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Examples:
  mailrace why 6AK9BQPE592284
  mailrace why ann@example.org
  mailrace why example.org

Exit status:
   0  the mail is in the queue, and the answer says why
  64  wrong arguments
  66  no such mail is in the queue
  69  the server does not run
  77  no permission";

#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// A queue id, a recipient, or the domain of recipients
    #[arg(value_name = "ID|ADDRESS|DOMAIN")]
    what: String,
    /// Print JSON, one object for each recipient
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ControlTarget,
}

/// Runs `mailrace why`.
///
/// # Errors
/// No server, no permission, a word that names no mail.
pub(crate) fn run(arguments: &WhyArguments) -> Result<Exit, Failure> {
    let path = arguments.target.path();
    let selection = selection(&arguments.what)?;
    let mut control = Control::connect(&path).map_err(|failure| without_server(failure, &path))?;
    let ids = if selection.ids.is_empty() { find(&mut control, &selection)? } else { (selection.ids.clone(), 0) };
    let (ids, more) = ids;
    let places = Places::read(&mut control);
    let mut output = Output::new();
    let mut explained = 0;
    for id in ids {
        for line in show(&mut control, id)? {
            let meant: Vec<&RecipientLine> = line.recipients.iter().filter(|one| is_meant(one, &selection)).collect();
            for one in meant.iter().take(RECIPIENTS_MAX) {
                let cause = Cause { message: &line, recipient: one, places: &places };
                if arguments.json {
                    output.print_json(&cause.to_json());
                } else {
                    output.print_line(plain(&cause.text()));
                }
                explained += 1;
            }
            let others = meant.len().saturating_sub(RECIPIENTS_MAX) as u64;
            if others > 0 && !arguments.json {
                let what = count(others, "more recipient");
                output.print_line(format_args!("{}: {what}; mailrace queue show has them", plain(&line.id)));
            }
        }
    }
    if explained == 0 {
        let text = format!(
            "{}: no such mail is in the queue; \"mailrace history\" or the log says what was delivered or failed",
            arguments.what
        );
        return Err(Failure::new(Exit::NoInput, text));
    }
    if more > 0 && !arguments.json {
        output.print_line(format_args!("{}; mailrace queue list has them", count(more, "more message")));
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Returns the mail that a word names.
fn selection(what: &str) -> Result<Selection, Failure> {
    if let Ok(id) = what.parse::<QueueId>() {
        return Ok(Selection { ids: vec![id], ..Selection::default() });
    }
    let pattern = what.trim_start_matches('<').trim_end_matches('>');
    let pattern = if pattern.contains('@') { pattern.to_owned() } else { format!("@{pattern}") };
    let expression = Expression::parse(&format!("to:{pattern}")).map_err(|error| {
        Failure::new(Exit::Usage, format!("{error}; name a queue id, a recipient or the domain of recipients"))
    })?;
    Ok(Selection { expression: Some(expression), ..Selection::default() })
}

/// Returns the ids of the oldest messages that are meant, and how many more there are.
fn find(control: &mut Control, selection: &Selection) -> Result<(Vec<QueueId>, u64), Failure> {
    let mut command = Command::new(Action::List, selection.clone());
    command.limit = Some(MESSAGES_MAX);
    let mut ids = Vec::new();
    let last = ask(control, command, |line| ids.extend(line.id.parse::<QueueId>()))?;
    let more = last.more + last.unseen.unwrap_or(0);
    Ok((ids, more))
}

fn show(control: &mut Control, id: QueueId) -> Result<Vec<MessageLine>, Failure> {
    let mut lines = Vec::new();
    let selection = Selection { ids: vec![id], ..Selection::default() };
    ask(control, Command::new(Action::Show, selection), |line| lines.push(line))?;
    // The first line has the destinations of all.
    let destinations = lines.first().map(|first| first.destinations.clone()).unwrap_or_default();
    lines.iter_mut().for_each(|line| line.destinations.clone_from(&destinations));
    Ok(lines)
}

fn ask(control: &mut Control, command: Command, mut take: impl FnMut(MessageLine)) -> Result<QueueTotals, Failure> {
    let kind = command.action.line_kind();
    let last = control.ask_for_list(&Request::Queue(Box::new(command)), |line| {
        if let Ok(QueueLine::Message(message)) = QueueLine::from_line(line, kind) {
            take(*message);
        }
        Ok(true)
    })?;
    control.decode_line(&last.unwrap_or(Value::Null))
}

/// Returns whether a recipient is one of those that were asked for. A message that was named stands for all.
fn is_meant(one: &RecipientLine, selection: &Selection) -> bool {
    let Some(expression) = &selection.expression else { return true };
    let address = one.to.as_deref().and_then(|to| to.parse().ok());
    address.is_some_and(|address| expression.matches_recipient(&address))
}

/// Where limits were set.
struct Places(Option<Loaded>);

impl Places {
    /// Reads the configuration of the server, if this user may.
    fn read(control: &mut Control) -> Self {
        let status = control.ask_for::<StatusAnswer>(&Request::Status).ok();
        let path = status.and_then(|status| status.config);
        Self(path.and_then(|path| config::open(Some(Path::new(&path)), &[], &config::this_machine()).ok()?.ok()))
    }

    /// Names a key with the place where it was set.
    fn key(&self, key: &str) -> String {
        match self.0.as_ref().map(|loaded| loaded.set_at(key)) {
            None => key.to_owned(),
            Some(None) => format!("{key}, its default"),
            Some(Some(place)) => format!("{key}, {place}"),
        }
    }
}

/// A recipient, with everything that may hold it.
struct Cause<'a> {
    message: &'a MessageLine,
    recipient: &'a RecipientLine,
    places: &'a Places,
}

impl Cause<'_> {
    /// Says it in a paragraph.
    fn text(&self) -> String {
        let Self { message, recipient, .. } = self;
        let from = match message.from.as_deref() {
            Some("") => "a report of a mail server".to_owned(),
            Some(from) => format!("from <{from}>"),
            None => "from an unknown sender".to_owned(),
        };
        let to = recipient.to.as_deref().unwrap_or("?");
        let size = message.size.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
        let mut sentences = vec![format!(
            "{} for <{to}> ({from}{size}) {}, {} after it came.",
            message.id,
            self.state(),
            age(message.age)
        )];
        sentences.extend(self.tries());
        sentences.extend(self.status().into_iter().flat_map(|status| self.destination(status)));
        sentences.push(self.next_step());
        sentences.join(" ")
    }

    fn status(&self) -> Option<&DestinationStatus> {
        self.message.destinations.get(&self.recipient.destination)
    }

    fn state(&self) -> String {
        match (self.recipient.state.as_str(), &self.recipient.hold) {
            ("held", Some(HoldLine { by: Some(by), .. })) if self.waits_for_filters() => {
                format!("waits for filter{} {by}", if by.contains(',') { "s" } else { "" })
            }
            ("held", Some(hold)) => {
                let by = hold.by.as_deref().map(|by| format!(" {by}")).unwrap_or_default();
                let text = hold.text.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
                let now = self.message.arrived + self.message.age;
                let until = hold.until.map(|until| u64::from(until).saturating_sub(now));
                let until = until.map_or_else(String::new, |left| format!(", for {} more", age(left)));
                format!("is held by {}{by}{text}{until}", hold.kind)
            }
            ("held", None) => "is held".to_owned(),
            ("active", _) => "is being delivered now".to_owned(),
            ("delivered", _) => "is delivered, and the report on it is being written".to_owned(),
            _ => "waits".to_owned(),
        }
    }

    /// Whether its filters have not judged it yet.
    fn waits_for_filters(&self) -> bool {
        self.recipient.hold.as_ref().is_some_and(|hold| hold.kind == "screen")
    }

    /// Says how often it was tried, and the last failure.
    fn tries(&self) -> Option<String> {
        if self.waits_for_filters() {
            return self.recipient.reason.as_deref().map(|reason| format!("It was not judged: {reason}."));
        }
        let failure = self.recipient.reason.as_deref().map(|reason| {
            let kind = self.recipient.reason_kind.as_deref().map(|kind| format!(" ({kind})")).unwrap_or_default();
            format!("last: {reason}{kind}")
        });
        match (self.recipient.tries, failure) {
            (None, None) => None,
            (Some(0), None) => Some("It was not tried yet.".to_owned()),
            (Some(0) | None, Some(failure)) => Some(format!("No attempt got through; {failure}.")),
            (Some(tries), failure) => {
                let failure = failure.map(|failure| format!("; {failure}")).unwrap_or_default();
                Some(format!(
                    "It was tried {}{failure}.",
                    if tries == 1 { "once".to_owned() } else { format!("{tries} times") }
                ))
            }
        }
    }

    /// Says what holds up the destination.
    fn destination(&self, status: &DestinationStatus) -> Vec<String> {
        let name = &self.recipient.destination;
        let mut sentences = Vec::new();
        let site = status.site.as_deref().filter(|site| site != name);
        let hosts = site.map(|site| format!(" ({site})")).unwrap_or_default();
        if let Some(down) = &status.down {
            let next = match (status.trying, status.retry_in) {
                (true, _) => "it is being tried now".to_owned(),
                (false, Some(left)) => format!("it is tried again in {}", age(left)),
                (false, None) => "it is tried again later".to_owned(),
            };
            sentences.push(format!("The destination {name}{hosts} is down: {down}; {next}."));
            sentences.extend(status.reported_by.map(|node| {
                let key = self.places.key("cluster.host_status");
                format!(
                    "This node makes no attempt before that since node {node} of the cluster reports the host ({key}); \
                     mailrace queue retry makes one now."
                )
            }));
        } else if let Some(site) = site {
            sentences.push(format!("Mail for {name} goes to {site}."));
        }
        sentences.extend(status.set_limit.as_ref().map(limit_sentence));
        match status.waits_for.as_deref() {
            Some("connection") => {
                let most = status.connections_max.map(|most| most.to_string()).unwrap_or_default();
                let since = status.waits_since.map(|since| format!(" for {}", age(since))).unwrap_or_default();
                let key = self.places.key("delivery.connections_max");
                sentences.push(format!(
                    "Its mail has been due{since} and waits for a connection: the share of the {most} connections \
                     ({key}) is in use, as mailrace queue stragglers --by host shows."
                ));
            }
            Some("rate") if status.set_limit.as_ref().is_some_and(|limit| limit.rate.is_some()) => {
                sentences.push("Its mail waits for that rate.".to_owned());
            }
            Some("rate") => {
                let rate = status.messages_per_second.map(|rate| format!(" of {rate} messages a second"));
                let key = self.places.key("destination.messages_per_second");
                sentences.push(format!(
                    "Its mail waits for the rate{} of its [[destination]] rule ({key}).",
                    rate.unwrap_or_default()
                ));
            }
            Some("share") => {
                let key = self.places.key("destination.shared");
                sentences.push(format!(
                    "Its mail waits: all nodes of the cluster keep the limits of its [[destination]] rule together \
                     ({key}), and this node has no share of them. Shares change within seconds while a majority of the \
                     engines answers; mailrace cluster status shows them."
                ));
            }
            Some("pace") => {
                let pace = status.learned_messages_per_second.map(|pace| format!(" of {pace} messages a second"));
                sentences.push(format!(
                    "Its mail waits for the pace{} that replies of its hosts (421, 4xx) taught; they raise it by \
                     accepting mail.",
                    pace.unwrap_or_default()
                ));
            }
            _ => {}
        }
        if status.lane.is_some() {
            sentences.push("Its hosts were silent: they get longer time limits and few connections.".to_owned());
        }
        if let (Some(connections @ 1..), Some(window)) = (status.connections, status.window) {
            let in_flight = count(status.in_flight.unwrap_or(0), "message");
            sentences.push(format!("Now {in_flight} go there over {connections} of at most {window} connections."));
        }
        sentences
    }

    /// Says when something happens, and what may be done.
    fn next_step(&self) -> String {
        let id = &self.message.id;
        match self.recipient.state.as_str() {
            "held" if self.waits_for_filters() => format!(
                "Its filters are asked again by themselves; \"mailrace status\" shows when. \"mailrace queue release \
                 --unscreened {id}\" delivers it unjudged."
            ),
            "held" => match self.recipient.hold.as_ref().and_then(|hold| hold.by.as_deref()) {
                Some(rule) if rule.starts_with("rule-") || rule.starts_with("suspension-") => format!(
                    "\"mailrace queue release {id}\" sends this message, \"mailrace queue resume {rule}\" all that \
                     {rule} holds."
                ),
                _ => format!("Nothing happens until \"mailrace queue release {id}\"."),
            },
            "active" | "delivered" => "Its result will be in the log.".to_owned(),
            _ => {
                let now = self.message.arrived + self.message.age;
                let next = next_attempt(self.recipient, now);
                let is_down = self.status().is_some_and(|status| status.down.is_some());
                let next = match (next.strip_prefix("next in "), next.as_str()) {
                    // Said with the destination.
                    _ if is_down => String::new(),
                    (Some(time), _) => format!("Its next attempt is in {time}. "),
                    (None, "new") => "It is new and was not released yet. ".to_owned(),
                    (None, other) => format!("It is tried again: {other}. "),
                };
                let end = self.places.key("delivery.give_up_after");
                format!(
                    "{next}At the age of {end}, it fails and its sender gets a report. \"mailrace queue retry {id}\" \
                     tries it now."
                )
            }
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "id": self.message.id, "from": self.message.from, "age": self.message.age,
            "recipient": self.recipient, "destination": self.status(), "text": self.text(),
        })
    }
}

/// Says which limit of the destination was set, by whom and when.
fn limit_sentence(limit: &LimitLine) -> String {
    let LimitLine { destination, connections, rate, reason, set_by, set_at, .. } = limit;
    let mut values = Vec::new();
    values.extend(connections.map(|number| format!("{number} connections")));
    values.extend(rate.as_ref().map(|rate| format!("{rate} messages a second")));
    let reason = reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let at = mail::submission::date(set_at.saturating_mul(1_000_000), 0);
    format!(
        "{set_by} limited it to {} at {at}{reason}; \"mailrace destination limit {destination} --remove\" ends that.",
        values.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(recipient: RecipientLine, status: Option<DestinationStatus>) -> String {
        let destinations = status.into_iter().map(|status| ("slow.example".to_owned(), status)).collect();
        let message = MessageLine {
            id: "6AK9BQPE592284".to_owned(),
            arrived: 1_000_000,
            age: 7_200,
            from: Some("ann@example.org".to_owned()),
            size: Some(4_096),
            destinations,
            ..MessageLine::default()
        };
        Cause { message: &message, recipient: &recipient, places: &Places(None) }.text()
    }

    fn recipient(state: &str) -> RecipientLine {
        RecipientLine {
            destination: "slow.example".to_owned(),
            state: state.to_owned(),
            to: Some("joe@slow.example".to_owned()),
            tries: Some(3),
            due: Some(1_007_800),
            reason: Some("451 4.7.1 Greylisted".to_owned()),
            reason_kind: Some("greylisted".to_owned()),
            ..RecipientLine::default()
        }
    }

    #[test]
    fn a_paragraph_has_state_reply_limit_and_next_step() {
        let down = DestinationStatus {
            down: Some("connect: refused".to_owned()),
            retry_in: Some(600),
            site: Some("mx1.slow.example".to_owned()),
            ..DestinationStatus::default()
        };
        let reported = DestinationStatus {
            down: Some("node 2 reports this host down".to_owned()),
            retry_in: Some(90),
            reported_by: Some(2),
            ..DestinationStatus::default()
        };
        let rate = DestinationStatus {
            waits_for: Some("rate".to_owned()),
            messages_per_second: Some(2.5),
            ..DestinationStatus::default()
        };
        let connection = DestinationStatus {
            waits_for: Some("connection".to_owned()),
            waits_since: Some(90),
            connections_max: Some(1_000),
            ..DestinationStatus::default()
        };
        for (status, parts) in [
            (down, ["is down: connect: refused; it is tried again in 10m", "(mx1.slow.example)"]),
            (
                reported,
                ["node 2 reports this host down; it is tried again in 1m", "no attempt before that since node 2"],
            ),
            (rate, ["the rate of 2.5 messages a second", "destination.messages_per_second"]),
            (connection, ["waits for a connection", "delivery.connections_max"]),
        ] {
            let text = text(recipient("waiting"), Some(status));
            let always = [
                "for <joe@slow.example>",
                "waits, 2h0m after",
                "tried 3 times; last: 451 4.7.1 Greylisted (greylisted)",
                "queue retry 6AK9BQPE592284",
            ];
            for part in parts.into_iter().chain(always) {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn held_mail_names_who_holds_it() {
        let hold = HoldLine {
            kind: "quarantine".to_owned(),
            by: Some("chinese_text".to_owned()),
            text: Some("rules/a.rules line 3".to_owned()),
            until: Some(1_010_800),
        };
        let text = text(RecipientLine { hold: Some(hold), ..recipient("held") }, None);
        for part in [
            "is held by quarantine chinese_text (rules/a.rules line 3), for 1h0m more",
            "until \"mailrace queue release",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn mail_that_waits_for_filters_names_them() {
        for (by, reason, parts) in [
            (
                "clamav",
                None,
                [
                    "waits for filter clamav, 2h0m after it came. Its filters are asked again",
                    "release --unscreened 6AK",
                ],
            ),
            (
                "clamav,spam",
                Some("filter clamav: connect: refused"),
                ["waits for filters clamav,spam,", "It was not judged: filter clamav: connect: refused. Its"],
            ),
        ] {
            let hold = HoldLine { kind: "screen".to_owned(), by: Some(by.to_owned()), ..HoldLine::default() };
            let reason = reason.map(str::to_owned);
            let line = RecipientLine { hold: Some(hold), reason, tries: Some(0), ..recipient("held") };
            let text = text(line, None);
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn words_name_ids_recipients_and_domains() {
        let of = |what: &str| selection(what).unwrap_or_else(|_| panic!("{what}"));
        assert_eq!(of("6AK9BQPE592284").ids.len(), 1);
        let text = |what: &str| of(what).expression.map(|one| one.as_str().to_owned());
        assert_eq!(text("<ann@example.org>").as_deref(), Some("to:ann@example.org"));
        assert_eq!(text("example.org").as_deref(), Some("to:@example.org"));
        assert!(selection("a b:c").is_err());
    }
}
