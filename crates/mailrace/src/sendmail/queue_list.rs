//! `mailq`: the queue of the running server, laid out as sendmail's.
//!
//! The columns are sendmail's to the character, since programs read them; `recorded` has what sendmail prints. The
//! values differ: `--Size--` counts the header section too, and `QUARANTINE:` says `held`, whatever the reason was.

use super::arguments::{FilterKind, SendmailArguments};
use super::exit;
use super::site::Site;
use super::{ctime, print, said};
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use operator::answers::{LineKind, MessageLine, QueueLine, RecipientLine, StatusAnswer, UnreadableLine};
use operator::control::Request;
use operator::queue::{Action, Command, LISTED_RECIPIENTS_MAX, Pattern, RecipientStatus, Selection};
use server::submit::{PREAMBLE_BYTES, Submission};
use std::fmt::Write as _;
use std::fs::{DirEntry, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const HEAD: &str = "-----Q-ID----- --Size-- -----Q-Time----- ------------Sender/Recipient-----------\n";
const HEAD_VERBOSE: &str = "-----Q-ID----- --Size-- -Priority- ---Q-Time--- --------Sender/Recipient--------\n";

/// Prints the list; the exit status.
pub(super) fn run(arguments: &SendmailArguments, site: &Site) -> u8 {
    if arguments.is_client {
        return client_queue(site);
    }
    let selection = match selection(arguments) {
        Ok(selection) => selection,
        Err(text) => {
            eprintln!("mailq: {text}");
            return exit::USAGE;
        }
    };
    match messages(site, selection) {
        Ok(mut messages) => {
            messages.retain(|message| is_wanted(message, arguments));
            let path = site.config.spool.path.display().to_string();
            print(&laid_out(&path, &messages, arguments.is_verbose))
        }
        Err(failure) => refused(&failure),
    }
}

/// Asks for the messages, with all their recipients.
fn messages(site: &Site, selection: Selection) -> Result<Vec<MessageLine>, Failure> {
    let mut control = Control::connect(&site.config.control.path)?;
    let mut command = Command::new(Action::List, selection);
    command.limit = Some(0);
    command.recipients = LISTED_RECIPIENTS_MAX;
    let mut messages = request_list(&mut control, command)?;
    for message in messages.iter_mut().filter(|message| message.more_recipients > 0) {
        let Ok(id) = message.id.parse() else { continue };
        let all = Selection { ids: vec![id], ..Selection::default() };
        let lines = request_list(&mut control, Command::new(Action::Show, all))?;
        message.recipients = lines.into_iter().flat_map(|line| line.recipients).collect();
    }
    Ok(messages)
}

/// Asks for messages, and returns the lines of the answer. A message without a readable envelope has no recipients.
pub(crate) fn request_list(control: &mut Control, command: Command) -> Result<Vec<MessageLine>, Failure> {
    let mut messages = Vec::new();
    control.ask_for_list(&Request::Queue(Box::new(command)), |line| {
        match QueueLine::from_line(line, LineKind::Messages)? {
            QueueLine::Message(message) => messages.push(*message),
            QueueLine::Unreadable(UnreadableLine { unreadable, trouble }) => {
                messages.push(MessageLine { id: unreadable, trouble: Some(trouble), ..MessageLine::default() });
            }
            _ => {}
        }
        Ok(true)
    })?;
    Ok(messages)
}

/// Returns why the envelope of a message cannot be read.
fn unreadable(message: &MessageLine) -> Option<&str> {
    message.trouble.as_deref().filter(|_| message.from.is_none())
}

/// In sendmail's words where the caller may not look.
fn refused(failure: &Failure) -> u8 {
    if failure.exit == Exit::NoPermission {
        eprintln!("You are not permitted to see the queue");
    }
    said("mailq", failure)
}

/// Prints the totals for monitors (`-bP`).
pub(super) fn print_totals(site: &Site) -> u8 {
    let asked = Control::connect(&site.config.control.path).and_then(|mut control| control.ask_for(&Request::Status));
    match asked {
        Ok(StatusAnswer { queue, .. }) => print(&format!(
            "{}: entries={}\n\t\tTotal requests: {}\n",
            site.config.spool.path.display(),
            queue.messages,
            queue.messages
        )),
        Err(failure) => refused(&failure),
    }
}

/// As much of the filters as the server can decide.
pub(super) fn selection(arguments: &SendmailArguments) -> Result<Selection, String> {
    let mut selection = Selection::default();
    for filter in arguments.filters.iter().filter(|filter| !filter.is_not) {
        // sendmail looks for the text anywhere in the address.
        let within =
            || Pattern::parse(&format!("*{}*", filter.text.trim_matches('*'))).map_err(|error| error.to_string());
        match filter.what {
            FilterKind::Id => selection.ids.extend(filter.text.parse::<mail::QueueId>().ok()),
            FilterKind::Recipient => selection.to = Some(within()?),
            FilterKind::Sender => selection.from = Some(within()?),
            FilterKind::Quarantine => {}
        }
    }
    if arguments.wants_held {
        selection.state = Some(RecipientStatus::Held);
    }
    Ok(selection)
}

/// Decides what the server has not decided: filters that say no, and ids of which a part is given. A message that
/// cannot be read is wanted, unless its id says otherwise.
pub(super) fn is_wanted(message: &MessageLine, arguments: &SendmailArguments) -> bool {
    let is_known = unreadable(message).is_none();
    arguments.filters.iter().filter(|filter| is_known || filter.what == FilterKind::Id).all(|filter| {
        let found = match filter.what {
            FilterKind::Id => message.id.contains(&filter.text),
            FilterKind::Sender => sender(message).contains(&filter.text),
            FilterKind::Recipient => message.recipients.iter().any(|one| address(one).contains(&filter.text)),
            FilterKind::Quarantine => message.recipients.iter().any(|one| one.state == "held"),
        };
        found != filter.is_not
    }) && !arguments.wants_lost
}

fn sender(message: &MessageLine) -> &str {
    message.from.as_deref().unwrap_or_default()
}

fn address(recipient: &RecipientLine) -> &str {
    recipient.to.as_deref().unwrap_or_default()
}

fn reason(recipient: &RecipientLine) -> &str {
    recipient.reason.as_deref().unwrap_or_default()
}

/// Only the report on it is to come.
fn is_delivered(recipient: &RecipientLine) -> bool {
    recipient.state == "delivered"
}

/// As many characters of a text as a column has.
fn cut(text: &str, max: usize) -> String {
    text.chars().filter(|c| !mail::is_unprintable(*c)).take(max).collect()
}

/// The whole list.
fn laid_out(path: &str, messages: &[MessageLine], is_verbose: bool) -> String {
    let mut text = String::new();
    if messages.is_empty() {
        return format!("{path} is empty\n\t\tTotal requests: 0\n");
    }
    let plural = if messages.len() == 1 { "" } else { "s" };
    writeln!(text, "\t\t{path} ({} request{plural})", messages.len()).expect("a string takes everything");
    text.push_str(if is_verbose { HEAD_VERBOSE } else { HEAD });
    for message in messages {
        lay_out(message, is_verbose, &mut text).expect("a string takes everything");
    }
    writeln!(text, "\t\tTotal requests: {}", messages.len()).expect("a string takes everything");
    text
}

fn lay_out(message: &MessageLine, is_verbose: bool, text: &mut String) -> std::fmt::Result {
    if let Some(trouble) = unreadable(message) {
        // sendmail shows a queue file that it cannot open so: the id, and the error in parentheses.
        return writeln!(text, "{:>13} (unreadable: {})", message.id, cut(trouble, 100));
    }
    let is = |state: &str| message.recipients.iter().any(|one| one.state == state);
    let (id, size) = (&message.id, message.size.unwrap_or(0));
    let flag = if is("active") { '*' } else { ' ' };
    let time = ctime(message.arrived.saturating_mul(1_000_000));
    let sender = match sender(message) {
        "" => "MAILER-DAEMON",
        sender => sender,
    };
    if is_verbose {
        let tries = message.recipients.iter().filter_map(|one| one.tries).max().unwrap_or(0);
        let priority = size + 30_000 * message.waiting + 90_000 * tries;
        let is_warned = message.recipients.iter().any(|one| one.warned);
        let warned = if is_warned { '+' } else { ' ' };
        let time: String = time.chars().skip(4).take(12).collect();
        write!(text, "{id:>13}{flag}{size:>8} {priority:>10}{warned}{time} {}", cut(sender, 78))?;
    } else {
        write!(text, "{id:>13}{flag}{size:>8} {} {}", cut(&time, 16), cut(sender, 39))?;
    }
    if is("held") {
        write!(text, "\n     QUARANTINE: held")?;
    }
    let (body, width) = (message.body.as_deref().unwrap_or_default(), if is_verbose { 100 } else { 60 });
    let reasons = || message.recipients.iter().map(reason).filter(|reason| !reason.is_empty());
    match reasons().next() {
        _ if !message.recipients.is_empty() && message.recipients.iter().all(is_delivered) => {
            write!(text, "\n    {body:>10}   (delivered, its report is being written)")?;
        }
        Some(reason) => write!(text, "\n    {body:>10}   ({})", cut(&format!("Deferred: {reason}"), width))?,
        None if !body.is_empty() => write!(text, "\n    {body:>10}")?,
        None => {}
    }
    let has_several = reasons().nth(1).is_some();
    // As sendmail, which drops delivered recipients; but a message without others is listed with them.
    let waits = message.recipients.iter().any(|one| !is_delivered(one));
    for one in message.recipients.iter().filter(|one| !waits || !is_delivered(one)) {
        if !is_verbose {
            write!(text, "\n\t\t\t\t\t {}", cut(address(one), 38))?;
            continue;
        }
        write!(text, "\n\t\t\t\t\t\t{}", cut(address(one), 78))?;
        let reason = reason(one);
        if has_several && !reason.is_empty() {
            write!(text, "\n\t\t ({})", cut(&format!("Deferred: {reason}"), width))?;
        }
    }
    text.push('\n');
    Ok(())
}

/// `-Ac`: the messages handed in that the server has not taken.
fn client_queue(site: &Site) -> u8 {
    let directory = match site.directory() {
        Ok(directory) => directory,
        Err((status, text)) => {
            eprintln!("mailq: {text}");
            return status;
        }
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            eprintln!("mailq: {}: {error}; root and the user of mailrace may list it", directory.display());
            return exit::NO_PERMISSION;
        }
    };
    let mut messages: Vec<MessageLine> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("mail."))
        .filter_map(|entry| handed_in(&entry))
        .collect();
    messages.sort_by_key(|message| message.arrived);
    print(&laid_out(&directory.display().to_string(), &messages, false))
}

/// Makes a message of a file in the pickup directory; `None` if the server has taken it by now.
fn handed_in(entry: &DirEntry) -> Option<MessageLine> {
    let found = entry.metadata().ok()?;
    let name = entry.file_name().to_string_lossy().into_owned();
    let message = MessageLine {
        id: name.get(5..19).unwrap_or_default().to_owned(),
        arrived: u64::try_from(found.mtime()).unwrap_or(0),
        size: Some(found.size()),
        ..MessageLine::default()
    };
    let Submission { sender, recipients, .. } = match head_of(&entry.path()) {
        Ok(submission) => submission,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(MessageLine { trouble: Some(error.to_string()), ..message }),
    };
    let recipient = |address: String| RecipientLine { to: Some(address), ..RecipientLine::default() };
    Some(MessageLine {
        waiting: recipients.len() as u64,
        from: Some(sender.address().map(ToString::to_string).unwrap_or_default()),
        recipients: recipients.iter().map(|one| recipient(one.address.to_string())).collect(),
        ..message
    })
}

fn head_of(path: &Path) -> io::Result<Submission> {
    let mut file = File::open(path)?;
    let mut preamble = [0; PREAMBLE_BYTES];
    file.read_exact(&mut preamble)?;
    let mut head = vec![0; Submission::head_bytes(&preamble).map_err(io::Error::other)?];
    file.read_exact(&mut head)?;
    Submission::decode(&preamble, &head).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::arguments::Filter;
    use super::*;
    use operator::answers;
    use serde_json::{Value, json};

    fn laid_out(path: &str, messages: &[Value], is_verbose: bool) -> String {
        let read = |message| answers::from_line(message).unwrap();
        super::laid_out(path, &messages.iter().map(read).collect::<Vec<MessageLine>>(), is_verbose)
    }

    #[test]
    fn columns_are_sendmails() {
        let long = "local mailer (/run/bin/later) exited with EX_TEMPFAIL and more words than fit";
        let messages = [
            json!({ "id": "6AMB9uh9000097", "arrived": 0, "size": 3, "waiting": 2, "from": "other@e.test", "recipients": [
                { "to": "joe@h.test", "state": "waiting", "tries": 1, "reason": long, "warned": true },
                { "to": "ann@h.test", "state": "active", "tries": 0 },
            ]}),
            json!({ "id": "6AMB9uKi000129", "arrived": 0, "size": 1_024, "waiting": 1, "from": "", "recipients": [
                { "to": "joe@h.test", "state": "held", "tries": 0 },
            ]}),
        ];
        // The day depends on the zone of the machine.
        let day = ctime(0);
        let (short, brief) = (day.get(..16).unwrap(), day.get(4..16).unwrap());
        let expected = format!(
            "\t\t/s (2 requests)\n{HEAD}\
             6AMB9uh9000097*       3 {short} other@e.test\n                 (Deferred: local mailer (/run/bin/later) exited with EX_TEMPF)\n\
             \t\t\t\t\t joe@h.test\n\t\t\t\t\t ann@h.test\n\
             6AMB9uKi000129     1024 {short} MAILER-DAEMON\n     QUARANTINE: held\n\t\t\t\t\t joe@h.test\n\
             \t\tTotal requests: 2\n"
        );
        assert_eq!(laid_out("/s", &messages, false), expected);
        let verbose = laid_out("/s", &messages, true);
        assert!(verbose.contains(&format!("\n6AMB9uh9000097*       3     150003+{brief} other@e.test\n")), "{verbose}");
        assert!(verbose.contains("\n\t\t\t\t\t\tann@h.test\n"), "{verbose}");
        assert_eq!(laid_out("/s", &[], false), "/s is empty\n\t\tTotal requests: 0\n");
    }

    #[test]
    fn who_is_delivered_waits_no_more() {
        let list = |states: &[&str]| {
            let to = |(nth, state): (usize, &&str)| json!({ "to": format!("u{nth}@h.test"), "state": state });
            let recipients: Vec<Value> = states.iter().enumerate().map(to).collect();
            let message = json!({ "id": "6AMB9uh9000097", "arrived": 0, "size": 3, "from": "a@e.test", "recipients": recipients });
            laid_out("/s", &[message], false)
        };
        let (some, all) = (list(&["delivered", "waiting"]), list(&["delivered", "delivered"]));
        assert!(some.contains(" u1@h.test\n") && !some.contains("u0@h.test") && !some.contains("report"), "{some}");
        assert!(all.contains("(delivered, its report is being written)\n") && all.contains(" u0@h.test\n"), "{all}");
    }

    #[test]
    fn a_message_that_cannot_be_read_has_a_line() {
        let messages = [
            json!({ "id": "6AMB9uh9000097", "arrived": 0, "waiting": 1, "trouble": "record 7\u{7} is torn",
                    "recipients": [{ "state": "held" }] }),
            json!({ "id": "6AMB9uKi000129", "arrived": 0, "size": 6, "waiting": 1, "from": "", "trouble": "record 8",
                    "recipients": [{ "to": "ann@ok.test", "state": "waiting" }] }),
        ];
        for is_verbose in [false, true] {
            let text = laid_out("/s", &messages, is_verbose);
            assert!(text.contains("--\n6AMB9uh9000097 (unreadable: record 7 is torn)\n6AMB9uKi000129 "), "{text}");
            assert!(text.contains("MAILER-DAEMON") && text.ends_with("ann@ok.test\n\t\tTotal requests: 2\n"), "{text}");
        }
    }

    #[test]
    fn only_the_id_excludes_a_message_that_cannot_be_read() {
        let message: MessageLine =
            answers::from_line(&json!({ "id": "6AMB9uh9000097", "trouble": "record 7" })).unwrap();
        let filter = |what, text: &str, is_not| Filter { what, text: text.to_owned(), is_not };
        for (filter, expected) in [
            (filter(FilterKind::Sender, "ann", false), true),
            (filter(FilterKind::Recipient, "ann", true), true),
            (filter(FilterKind::Quarantine, "", false), true),
            (filter(FilterKind::Id, "uh90", false), true),
            (filter(FilterKind::Id, "uh90", true), false),
            (filter(FilterKind::Id, "uKi", false), false),
        ] {
            let arguments = SendmailArguments { filters: vec![filter], ..SendmailArguments::default() };
            assert_eq!(is_wanted(&message, &arguments), expected, "{:?}", arguments.filters);
        }
    }

    /// With ids and times as other runs have them.
    fn plain(text: &str, time: std::ops::Range<usize>) -> String {
        let line = |line: &str| {
            let mut chars: Vec<char> = line.chars().collect();
            if chars.first().is_some_and(char::is_ascii_digit) {
                chars[..14].fill('Q');
                chars[time.clone()].fill('T');
            }
            chars.into_iter().collect::<String>() + "\n"
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn lists_are_what_sendmail_prints() {
        let path = "/run/oracle/queue";
        let message = |body: &str, reason: &str, to: &[&str]| {
            let recipients: Vec<Value> =
                to.iter().map(|to| json!({ "to": to, "state": "waiting", "tries": 0, "reason": reason })).collect();
            json!({ "id": "6AMB9uh9000097", "arrived": 0, "size": 6, "waiting": to.len(), "from": "me@oracle.example", "body": body,
                    "recipients": recipients })
        };
        let greylisted = "451 4.7.1 Greylisted, please come back in a moment, thank you very much indeed";
        let messages = [
            message("7BIT", "", &["ann@ok.test"]),
            message("", "Connection refused by mx.down.test.", &["c@down.test"]),
            message("", greylisted, &["d@grey.test", "e@grey.test"]),
        ];
        let short = laid_out(path, &messages, false);
        assert_eq!(plain(&short, 24..40), plain(include_str!("recorded/mailq"), 24..40));
        let verbose = laid_out(path, &messages, true);
        let without_priority = |text: &str| plain(text, 24..47);
        assert_eq!(without_priority(&verbose), without_priority(include_str!("recorded/mailq-v")));
        let mut held = messages[1].clone();
        held["recipients"] = json!([{ "to": "ann@ok.test", "state": "held" }]);
        let recorded = include_str!("recorded/mailq-held").replace("QUARANTINE: bad", "QUARANTINE: held");
        assert_eq!(plain(&laid_out(path, &[held], false), 24..40), plain(&recorded, 24..40));
        assert_eq!(laid_out(path, &[], false), include_str!("recorded/mailq-empty"));
    }
}
