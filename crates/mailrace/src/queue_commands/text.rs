//! Answers about the queue, printed for people in 80 columns, or as they came.
//!
//! Text that came from other servers is shown without its control characters. What a person should know but a program
//! that reads JSON would stumble over goes to standard error.

use crate::output::{Output, age, count, next_try, plain, short_bytes, thousands};
use serde_json::Value;
use server::queue::{Action, Command};

/// Column of a recipient's state, if the address leaves room for it.
const STATE_COLUMN: usize = 44;

/// Prints the lines of an answer.
pub(super) struct Printer {
    action: Action,
    dry_run: bool,
    json: bool,
    /// Nothing was left out on purpose.
    is_all: bool,
    /// The message that was printed last: its further recipients have no head of their own.
    id: Option<String>,
}

impl Printer {
    pub(super) fn new(command: &Command, json: bool) -> Self {
        let Command { action, dry_run, .. } = *command;
        Self { action, dry_run, json, is_all: command.selection.is_everything(), id: None }
    }

    /// Prints a line of the answer.
    pub(super) fn line(&mut self, output: &mut Output, line: &Value) {
        if line.get("seen").is_some() {
            return;
        }
        if self.json {
            output.json(line);
        } else if let Some(id) = text(line, "missing") {
            eprintln!(
                "mailrace: {id}: not in the queue: delivered, bounced or deleted, as the log says, or never here"
            );
        } else if let Some(id) = text(line, "unreadable") {
            let why = plain(text(line, "trouble").unwrap_or_default());
            eprintln!("mailrace: {id}: its addresses cannot be read: {why}");
        } else {
            match self.action {
                Action::Destinations => self.destination(output, line),
                Action::Stragglers => self.straggler(output, line),
                Action::List => self.listed(output, line),
                Action::Show => self.shown(output, line),
                _ => deeds(output, line),
            }
        }
    }

    /// Prints how it ended.
    pub(super) fn end(&self, output: &mut Output, totals: &Value) {
        if self.json {
            if self.action.changes() {
                output.json(totals);
            } else if let Some(more) = self.more(totals) {
                eprintln!("mailrace: {more}");
            }
            return;
        }
        let (messages, recipients) = (number(totals, "messages"), number(totals, "recipients"));
        match self.action {
            Action::Show => {}
            Action::Destinations if number(totals, "destinations") == 0 => output.line("the queue is empty"),
            Action::Destinations => {}
            Action::Stragglers if recipients == 0 => {
                output.line("nobody has been waiting for so long: an hour, or what --older says")
            }
            Action::Stragglers => {
                output.line(format_args!("{} of {}", count(recipients, "recipient"), count(messages, "message")));
            }
            Action::List if messages == 0 && totals.get("own").is_some() => {
                output.line(
                    "no mail of yours is waiting; what others have handed in is shown to operators (control.mailq)",
                );
            }
            Action::List if messages == 0 && self.is_all => output.line("the queue is empty"),
            Action::List if messages == 0 => output.line("no such message in the queue"),
            Action::List => {
                output.line(format_args!("{}, {}", count(messages, "message"), count(recipients, "recipient")))
            }
            action => self.changed(output, action, totals),
        }
        if let Some(more) = self.more(totals) {
            output.line(more);
        }
    }

    /// What the limit kept back.
    fn more(&self, totals: &Value) -> Option<String> {
        let noun = match self.action {
            Action::Destinations => "destination",
            Action::Stragglers => "line",
            _ => "message",
        };
        match (number(totals, "more"), number(totals, "unseen")) {
            (0, 0) => None,
            // More groups than are kept in memory; no limit shows them.
            (more, unseen) if unseen > 0 && self.action == Action::Stragglers => Some(format!(
                "{}, and {} that found no room in them; --older, --to or --destination to look at fewer",
                count(more, "more line"),
                count(unseen, "recipient")
            )),
            (0, unseen) => Some(format!("{} were not looked at; --limit 0 for all", count(unseen, noun))),
            (more, _) => {
                Some(format!("{} more {noun}{}; --limit 0 for all", thousands(more), if more == 1 { "" } else { "s" }))
            }
        }
    }

    fn changed(&self, output: &mut Output, action: Action, totals: &Value) {
        let (messages, recipients) = (number(totals, "messages"), number(totals, "recipients"));
        let what = format!("{} of {}", count(recipients, "recipient"), count(messages, "message"));
        let done = match action {
            Action::Retry => "to be tried now",
            Action::Hold => "held",
            Action::Release => "released",
            Action::Bounce => "bounced",
            _ => "deleted",
        };
        output.line(match (self.dry_run, recipients) {
            (_, 0) => "nothing to do".to_owned(),
            (true, _) => format!("dry run, nothing was changed: {what} would be {done}"),
            (false, _) => format!("{what} {done}"),
        });
        let unchanged = number(totals, "unchanged");
        if unchanged > 0 {
            let what = count(unchanged, "recipient");
            output.line(match action {
                Action::Retry => format!("{what} held: mailrace queue release lets go of them"),
                Action::Hold => format!("{what} held before"),
                Action::Bounce => {
                    format!("{what} held: reports to the postmaster; mailrace queue delete takes them out")
                }
                _ => format!("{what} not held"),
            });
        }
        let kept = number(totals, "kept");
        if kept > 0 {
            let (what, whose, them) = match kept {
                1 => ("1 recipient".to_owned(), "its sender's", "the message"),
                _ => (count(kept, "recipient"), "their senders'", "the messages"),
            };
            output.line(format_args!("{what} kept until {whose} time; name {them} by id to send now"));
        }
        let active = number(totals, "active");
        let what = count(active, "recipient");
        if active > 0 && action == Action::Bounce {
            output.line(format_args!("{what} being delivered right now, and left alone"));
        }
        if active > 0 && matches!(action, Action::Hold | Action::Delete) {
            output.line(format_args!("{what} being delivered right now: what is under way may still arrive"));
        }
    }

    fn destination(&mut self, output: &mut Output, line: &Value) {
        if self.id.is_none() {
            self.id = Some(String::new());
            output.line("RECIPIENTS  DESTINATION");
        }
        let name = plain(text(line, "destination").unwrap_or("?"));
        output.line(format_args!("{:>10}  {name}", thousands(number(line, "recipients"))));
        state_of_destination(output, line);
    }

    fn straggler(&mut self, output: &mut Output, line: &Value) {
        if self.id.is_none() {
            self.id = Some(String::new());
            output.line("RECIPIENTS  MESSAGES  OLDEST  WHO");
        }
        let of_host = text(line, "host");
        let name = of_host.or_else(|| text(line, "to")).or_else(|| text(line, "destination")).unwrap_or("?");
        let (recipients, messages) = (thousands(number(line, "recipients")), thousands(number(line, "messages")));
        let oldest = age(number(line, "oldest"));
        output.line(format_args!("{recipients:>10}  {messages:>8}  {oldest:>6}  {}", plain(name)));
        if of_host.is_some() {
            output.line(format_args!("            {}", destinations_of_host(line)));
        }
        let down = text(line, "down");
        if down.is_some() {
            state_of_destination(output, line);
        }
        match (down, text(line, "reason")) {
            (None, Some(reason)) => output.line(format_args!("            {}", plain(reason))),
            (Some(down), Some(reason)) if of_host.is_some() && down != reason => {
                output.line(format_args!("            last said: {}", plain(reason)));
            }
            _ => {}
        }
    }

    fn listed(&mut self, output: &mut Output, line: &Value) {
        if self.id.is_none() {
            output.line("ID                 AGE   SIZE  SENDER, RECIPIENTS");
        }
        let id = text(line, "id").unwrap_or("?").to_owned();
        let size = line.get("size").and_then(Value::as_u64).map_or_else(|| "?".to_owned(), short_bytes);
        output.line(format_args!("{id}  {:>6}  {size:>5}  {}", age(number(line, "age")), sender(line)));
        if let Some(trouble) = text(line, "trouble") {
            output.line(format_args!("    its envelope cannot be read: {}", plain(trouble)));
        }
        self.id = Some(id);
        recipients(output, line, false);
        let more = number(line, "more_recipients");
        if more > 0 {
            output.line(format_args!("    and {}; mailrace queue show has them", count(more, "more recipient")));
        }
    }

    fn shown(&mut self, output: &mut Output, line: &Value) {
        let id = text(line, "id").unwrap_or("?").to_owned();
        if self.id.as_ref() != Some(&id) {
            if self.id.is_some() {
                output.line("");
            }
            head(output, &id, line);
            self.id = Some(id);
        }
        recipients(output, line, true);
        let places = line.get("destinations").and_then(Value::as_object);
        for (name, place) in places.into_iter().flatten() {
            if let Some(why) = text(place, "down") {
                output.line(format_args!("  {} is down, {}: {}", plain(name), next_try(place), plain(why)));
            }
            if let Some(pace) = learned_pace(place) {
                output.line(format_args!("  {} is {pace}", plain(name)));
            }
        }
        if let Some(headers) = text(line, "headers") {
            output.line("");
            headers.lines().for_each(|line| output.line(format_args!("  | {}", plain(&line.replace('\t', "    ")))));
        }
    }
}

/// For which destinations mail waits at a host.
fn destinations_of_host(line: &Value) -> String {
    let names: Vec<String> = line
        .get("named")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(plain)
        .collect();
    let all = number(line, "destinations");
    let others = all.saturating_sub(names.len() as u64);
    let more = if others > 0 { format!(" and {} more", thousands(others)) } else { String::new() };
    let known = if text(line, "site").is_some() { "for" } else { "hosts not known yet, for" };
    format!("{known} {}: {}{more}", count(all, "destination"), names.join(" "))
}

/// How a destination is, below its line.
fn state_of_destination(output: &mut Output, line: &Value) {
    let (connections, in_flight) = (number(line, "connections"), number(line, "in_flight"));
    if let Some(why) = text(line, "down") {
        output.line(format_args!("            down, {}: {}", next_try(line), plain(why)));
    } else if connections > 0 {
        let messages = count(in_flight, "message");
        output.line(format_args!("            {} with {messages} under way", count(connections, "connection")));
    }
    if let Some(waits) = waits_for(line) {
        let (ready, more) = (number(line, "ready"), line.get("has_more").is_some());
        let more = if more { ", and more in the spool" } else { "" };
        output.line(format_args!("            {waits}"));
        output.line(format_args!("            {} in memory{more}", count(ready, "message")));
    }
    let is_named = |site: &&str| Some(*site) == text(line, "destination") || Some(*site) == text(line, "host");
    let site = text(line, "site").filter(|site| !is_named(site));
    let slow = text(line, "lane").map(|_| ", which were silent: long time limits, few connections").unwrap_or_default();
    if let Some(site) = site {
        output.line(format_args!("            goes to {}{slow}", plain(site)));
    }
    if let Some(rate) = line.get("messages_per_second").and_then(Value::as_f64) {
        output.line(format_args!("            paced: {rate} messages a second at most, by its [[destination]] rule"));
    }
    if let Some(pace) = learned_pace(line) {
        output.line(format_args!("            {pace}"));
    }
}

/// What mail that is due and not tried waits for.
fn waits_for(place: &Value) -> Option<String> {
    let what = crate::output::waits_for(place)?;
    let most = thousands(number(place, "connections_max"));
    let part = if text(place, "lane").is_some() { "the tenth" } else { "all that it may have" };
    Some(match text(place, "waits_for") {
        Some("connection") => format!("{what}: {part} of delivery.connections_max = {most} is in use"),
        _ => what,
    })
}

/// The pace of a destination that refuses what comes faster.
fn learned_pace(place: &Value) -> Option<String> {
    let rate = place.get("learned_messages_per_second").and_then(Value::as_f64)?;
    Some(format!("paced: {rate} messages a second, learned from its 421 and 4xx replies"))
}

/// What is known of a message as a whole.
fn head(output: &mut Output, id: &str, line: &Value) {
    output.line(id);
    let mut row = |name: &str, value: String| output.line(format_args!("  {name:<12} {value}"));
    row("from", sender(line));
    row("age", age(number(line, "age")));
    if let Some(size) = line.get("size").and_then(Value::as_u64) {
        row("size", count(size, "byte"));
    }
    if let (Some(client), Some(protocol)) = (text(line, "client"), text(line, "protocol")) {
        let helo = text(line, "helo").map(|name| format!(", which calls itself {}", plain(name))).unwrap_or_default();
        row("came from", format!("{}{helo}, by {protocol}", plain(client)));
    }
    for (name, field) in [("parameters", "params"), ("TROUBLE", "trouble")] {
        if let Some(value) = text(line, field) {
            row(name, plain(value));
        }
    }
    row("recipients", thousands(number(line, "waiting")));
}

/// The recipients of a line, each with its state, and below it what there is to say.
fn recipients(output: &mut Output, line: &Value, params: bool) {
    let now = number(line, "arrived") + number(line, "age");
    for one in line.get("recipients").and_then(Value::as_array).into_iter().flatten() {
        let address = address(one);
        let state = state(one, now);
        if address.chars().count() + 5 < STATE_COLUMN {
            output.line(format_args!("    {address:<width$}{state}", width = STATE_COLUMN - 4));
        } else {
            output.line(format_args!("    {address}\n{:STATE_COLUMN$}{state}", ""));
        }
        let via = text(one, "destination").filter(|name| !address.ends_with(&format!("@{name}")));
        let via = via.map(|name| format!("by way of {}", plain(name)));
        let reason = text(one, "reason").map(plain);
        let params = text(one, "params").filter(|_| params).map(plain);
        for below in [via, reason, params].into_iter().flatten() {
            output.line(format_args!("      {below}"));
        }
    }
}

/// A recipient's state in a few words.
fn state(one: &Value, now: u64) -> String {
    let tries = number(one, "tries");
    let word = text(one, "state").unwrap_or("?");
    let due = one.get("due").and_then(Value::as_u64);
    let retry_at = one.get("retry_at").and_then(Value::as_u64);
    let mut words = vec![match word {
        "active" => "being delivered".to_owned(),
        "delivered" => "delivered, its report is being written".to_owned(),
        word => word.to_owned(),
    }];
    if tries > 0 {
        let plural = if tries == 1 { "y" } else { "ies" };
        words.push(format!("{tries} tr{plural}"));
    }
    let until = one.get("until").and_then(Value::as_u64);
    match (until, due, retry_at) {
        _ if word != "waiting" => {}
        (Some(until), ..) => {
            let time = mail::submission::date(until.saturating_mul(1_000_000), 0);
            words.push(format!("until {time}, as its sender asked"));
        }
        (_, _, Some(at)) if at > now => words.push(format!("host down, next in {}", age(at - now))),
        (_, _, Some(_)) => words.push("host down, being tried now".to_owned()),
        (_, Some(due), None) if due > now => words.push(format!("next in {}", age(due - now))),
        (_, Some(_), None) => words.push("due now".to_owned()),
        (_, None, None) => words.push("new".to_owned()),
    }
    if let Some(class) = one.get("class").and_then(Value::as_str) {
        words.push(class.to_owned());
    }
    if one.get("warned").is_some() {
        words.push("sender warned".to_owned());
    }
    words.join(", ")
}

/// What a command touches, one recipient a line, as the log would say it.
fn deeds(output: &mut Output, line: &Value) {
    let id = text(line, "id").unwrap_or("?");
    let from = sender(line);
    for one in line.get("recipients").and_then(Value::as_array).into_iter().flatten() {
        output.line(format_args!("{id} from={from} to=<{}>", address(one)));
    }
}

fn sender(line: &Value) -> String {
    text(line, "from").map_or_else(|| "?".to_owned(), |from| format!("<{}>", plain(from)))
}

fn address(one: &Value) -> String {
    match text(one, "to") {
        Some(address) => plain(address),
        None => {
            format!("? (recipient {} at {})", number(one, "position"), plain(text(one, "destination").unwrap_or("?")))
        }
    }
}

fn text<'a>(of: &'a Value, name: &str) -> Option<&'a str> {
    of.get(name).and_then(Value::as_str)
}

fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use server::queue::Selection;

    #[test]
    fn states_in_a_few_words() {
        for (one, expected) in [
            (json!({ "state": "waiting", "tries": 0 }), "waiting, new"),
            (json!({ "state": "waiting", "tries": 1, "due": 1_720 }), "waiting, 1 try, next in 12m"),
            (
                json!({ "state": "waiting", "tries": 3, "due": 1_000, "warned": true, "class": "bulk" }),
                "waiting, 3 tries, due now, bulk, sender warned",
            ),
            (json!({ "state": "waiting", "tries": 0, "retry_at": 1_720 }), "waiting, host down, next in 12m"),
            (
                json!({ "state": "waiting", "tries": 1, "due": 900, "retry_at": 990 }),
                "waiting, 1 try, host down, being tried now",
            ),
            (
                json!({ "state": "waiting", "tries": 0, "due": 1_720, "until": 1_720, "retry_at": 1_720 }),
                "waiting, until Thu, 1 Jan 1970 00:28:40 +0000, as its sender asked",
            ),
            (json!({ "state": "held", "tries": 2, "due": 9_000 }), "held, 2 tries"),
            (json!({ "state": "active", "tries": 0 }), "being delivered"),
            (json!({ "state": "delivered", "warned": true }), "delivered, its report is being written, sender warned"),
        ] {
            assert_eq!(state(&one, 1_000), expected);
        }
    }

    #[test]
    fn a_pace_that_was_learned() {
        assert_eq!(learned_pace(&json!({ "messages_per_second": 2.0 })), None);
        assert_eq!(
            learned_pace(&json!({ "learned_messages_per_second": 0.912 })).unwrap(),
            "paced: 0.912 messages a second, learned from its 421 and 4xx replies"
        );
    }

    #[test]
    fn what_is_due_says_what_it_waits_for() {
        let place =
            |lane| json!({ "waits_for": "connection", "waits_since": 12, "connections_max": 1_000, "lane": lane });
        assert_eq!(waits_for(&json!({ "ready": 3 })), None);
        assert_eq!(
            waits_for(&place(Value::Null)).unwrap(),
            "waits for a connection since 12s: all that it may have of delivery.connections_max = 1,000 is in use"
        );
        assert_eq!(
            waits_for(&place(json!("slow"))).unwrap(),
            "waits for a connection since 12s: the tenth of delivery.connections_max = 1,000 is in use"
        );
        for (what, words) in
            [("rate", "waits for the rate of its [[destination]] rule"), ("pace", "waits for its pace")]
        {
            assert_eq!(waits_for(&json!({ "waits_for": what })).unwrap(), words);
        }
    }

    #[test]
    fn what_the_limit_kept_back() {
        let more = |action, totals| Printer::new(&Command::new(action, Selection::default()), false).more(&totals);
        assert_eq!(more(Action::List, json!({})), None);
        assert_eq!(more(Action::List, json!({ "more": 1 })).unwrap(), "1 more message; --limit 0 for all");
        assert_eq!(
            more(Action::List, json!({ "unseen": 1_200 })).unwrap(),
            "1,200 messages were not looked at; --limit 0 for all"
        );
        assert_eq!(more(Action::Destinations, json!({ "more": 2 })).unwrap(), "2 more destinations; --limit 0 for all");
        assert_eq!(more(Action::Stragglers, json!({ "more": 2 })).unwrap(), "2 more lines; --limit 0 for all");
        let full = more(Action::Stragglers, json!({ "more": 2, "unseen": 1 })).unwrap();
        assert!(full.starts_with("2 more lines, and 1 recipient that found no room in them; "), "{full}");
    }

    #[test]
    fn hosts_name_a_few_of_their_destinations() {
        let line = json!({ "site": "mx:25", "destinations": 1_007, "named": ["a.test", "b\u{7}.test"] });
        assert_eq!(destinations_of_host(&line), "for 1,007 destinations: a.test b?.test and 1,005 more");
        let line = json!({ "destinations": 1, "named": ["a.test"] });
        assert_eq!(destinations_of_host(&line), "hosts not known yet, for 1 destination: a.test");
    }
}
