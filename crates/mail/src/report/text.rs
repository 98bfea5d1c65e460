//! The first part of a report: words for a person who is no administrator.
//!
//! The first sentence names the addresses, their result, and whether the sender must act. Then, for each address, the
//! likely reason with the remedy, the other server's own words with its name, and the end of retries. Last the data
//! that an administrator will ask for. Foreign words are indented, so that they cannot pass for ours.

use super::fields::status;
use super::harmless::{NAME_OCTETS_MAX, line};
use super::{Kind, RecipientReport, Report, date};

mod reason;

/// Addresses described one by one; the others are in the part for programs. A further report describes those of a few
/// alone.
const PEOPLE_MAX: usize = 50;
const PEOPLE_MAX_FURTHER: usize = 10;
/// With so many octets no further address is described.
const DESCRIBED_OCTETS_MAX: usize = 24 << 10;
/// Addresses named in a sentence.
const NAMED_MAX: usize = 3;
/// Lines of a reply that are quoted, and octets of one.
const REPLY_LINES_MAX: usize = 20;
const REPLY_LINE_OCTETS_MAX: usize = 200;
const WIDTH: usize = 72;
const TEXT_OCTETS_MAX: usize = 800;
/// Failures come first.
const ORDER: [Kind; 6] = [Kind::Failed, Kind::Delayed, Kind::Delivered, Kind::Relayed, Kind::Traced, Kind::Expanded];

/// The subject of the report.
pub(super) fn subject(report: &Report<'_>) -> String {
    let kind = ORDER.into_iter().find(|kind| of_kind(report, *kind).next().is_some()).unwrap_or(Kind::Failed);
    let what = match kind {
        Kind::Failed if report.postmaster => "Message without sender not delivered",
        Kind::Failed => "Not delivered: your message",
        Kind::Delayed => "Delayed, no action needed: your message",
        Kind::Delivered => "Delivered: your message",
        Kind::Relayed | Kind::Traced => "Passed on: your message",
        Kind::Expanded => "Passed on to a list: your message",
    };
    let mut concerned = of_kind(report, kind);
    match (concerned.next(), concerned.count()) {
        (Some(one), 0) => format!("{what} to {}", one.recipient.address),
        (_, others) => format!("{what} to {} recipients", others + 1),
    }
}

/// Writes the part, with CRLF. `returns_whole` says what the third part is, if there is one.
pub(super) fn write(report: &Report<'_>, subject: Option<&str>, returns_whole: Option<bool>) -> String {
    let mut page = Page::default();
    let mut room = match (report.is_further, report.recipients.len()) {
        (false, _) => PEOPLE_MAX,
        (true, ..=PEOPLE_MAX_FURTHER) => PEOPLE_MAX_FURTHER,
        (true, _) => 0,
    };
    for kind in ORDER {
        let concerned: Vec<_> = of_kind(report, kind).collect();
        if concerned.is_empty() {
            continue;
        }
        page.paragraph(&opening(report, kind, &concerned));
        let mut untold = concerned.len();
        for recipient in concerned.iter().take(room) {
            if page.text.len() > DESCRIBED_OCTETS_MAX {
                break;
            }
            describe(&mut page, report, recipient);
            untold -= 1;
        }
        if untold > 0 {
            let more = if untold == concerned.len() { "" } else { " more" };
            let stand = if untold == 1 { "address stands" } else { "addresses stand" };
            page.paragraph(&format!("{untold}{more} {stand} in the second part of this report, for programs."));
        }
        room = room.saturating_sub(concerned.len());
    }
    if report.is_further {
        page.paragraph("An earlier report about this message tells of other addresses.");
    }
    if report.envelope.recipients.len() > report.recipients.len() {
        page.paragraph("The message has more recipients; nothing is said here about the others.");
    }
    about_the_message(&mut page, report, subject, returns_whole);
    page.text
}

fn of_kind<'r>(report: &Report<'r>, kind: Kind) -> impl Iterator<Item = &'r RecipientReport<'r>> {
    report.recipients.iter().filter(move |recipient| recipient.kind == kind)
}

/// Returns the first sentences: the recipients, their result, and whether the sender must act.
fn opening(report: &Report<'_>, kind: Kind, concerned: &[&RecipientReport<'_>]) -> String {
    let whom = names(concerned);
    let (it, they) = if concerned.len() == 1 { ("that server", "it") } else { ("those servers", "they") };
    match kind {
        Kind::Failed if report.postmaster => format!(
            "A message without a sender, most often a report like this one, was not delivered to {whom} and is given \
             up; for this single message you need not do anything. You are told because there is no sender to tell. \
             If many of these arrive, look whether this server takes mail with forged senders, which nobody can \
             return."
        ),
        Kind::Failed => format!(
            "Your message was not delivered to {whom}, and it will not be tried again: you have to act if it is \
             still to arrive."
        ),
        Kind::Delayed => {
            let until = concerned.iter().filter_map(|recipient| recipient.will_retry_until_us).min();
            let until = until
                .map(|until_us| format!(" until {}", date::for_person(until_us, report.offset_seconds)))
                .unwrap_or_default();
            format!(
                "Your message has not yet reached {whom}, but you need not do anything: it is tried again and again\
                 {until}. You will be told if it has to be given up."
            )
        }
        Kind::Delivered => format!(
            "Your message has reached the mailbox of {whom}; you need not do anything. This confirmation was asked \
             for when the message was sent."
        ),
        Kind::Relayed => format!(
            "Your message was handed to the next mail server on its way to {whom}; you need not do anything. You \
             asked to be told of the arrival, but {it} cannot confirm it, so {they} will only write if something \
             goes wrong."
        ),
        Kind::Traced => format!(
            "Your message was handed to the next mail server on its way to {whom} within the time that you gave; you need \
             not do anything. Perhaps {it} knows nothing of that time, so this server can say no more about it."
        ),
        Kind::Expanded => format!(
            "Your message has reached {whom}, from where it goes on to several people; you need not do anything. \
             Arrival at each of them is not confirmed."
        ),
    }
}

/// `a@b`, `a@b and c@d`, or how many.
fn names(concerned: &[&RecipientReport<'_>]) -> String {
    let addresses = || concerned.iter().map(|recipient| recipient.recipient.address.to_string());
    match concerned.len() {
        0 | 1 => addresses().collect(),
        count @ 2..=NAMED_MAX => {
            let last = addresses().next_back().unwrap_or_default();
            let front: Vec<_> = addresses().take(count - 1).collect();
            format!("{} and {last}", front.join(", "))
        }
        count => format!("the {count} addresses below"),
    }
}

/// One address: reason, words of the other server, times.
fn describe(page: &mut Page, report: &Report<'_>, of: &RecipientReport<'_>) {
    let address = &of.recipient.address;
    page.heading(&address.to_string());
    if let Some(orcpt) = &of.recipient.params.orcpt
        && !orcpt.address().eq_ignore_ascii_case(&address.to_string())
    {
        page.indented(&format!("to which your mail for {} goes", line(orcpt.address(), 500)));
    }
    // The postmaster knows, and cannot ask a sender that there is not.
    if let Some(reason) = reason::of(of.kind, status(of), address.domain()).filter(|_| !report.postmaster) {
        page.indented(&reason);
    }
    let own = line(of.text, TEXT_OCTETS_MAX);
    let name = of.remote_mta.map(|name| line(name, NAME_OCTETS_MAX)).filter(|name| !name.is_empty());
    match (of.reply, &name) {
        // The caller's text is often just the reply again.
        (Some(reply), _) => {
            if !own.is_empty() && !reply.lines().any(|text| text.contains(&*own)) {
                page.indented(&own);
            }
            page.indented(&format!("{} answered:", name.as_deref().unwrap_or("The other server")));
            page.quote(reply);
        }
        (None, Some(name)) if own.is_empty() && of.kind == Kind::Failed => {
            page.indented(&format!("The last server that was tried is {name}."));
        }
        (None, Some(_)) if own.is_empty() && of.kind == Kind::Delayed => {}
        (None, Some(name)) if own.is_empty() => page.indented(&format!("It went to the server {name}.")),
        (None, Some(name)) if names_server(&own, name) => page.indented(&own),
        (None, Some(name)) => page.indented(&format!("{} (server: {name})", own.trim_end_matches('.'))),
        (None, None) if own.is_empty() => {}
        (None, None) => page.indented(&own),
    }
    if of.kind == Kind::Failed
        && let Some(at_us) = of.last_attempt_us
    {
        page.indented(&format!("Last tried: {}", date::for_person(at_us, report.offset_seconds)));
    }
    if of.kind == Kind::Delayed
        && let Some(until_us) = of.will_retry_until_us
    {
        page.indented(&format!("Tried until: {}", date::for_person(until_us, report.offset_seconds)));
    }
    page.end_of_block();
}

/// Whether the words of the caller have the server's name already.
fn names_server(own: &str, name: &str) -> bool {
    name.split_whitespace().next().is_some_and(|name| own.contains(name))
}

fn about_the_message(page: &mut Page, report: &Report<'_>, subject: Option<&str>, returns_whole: Option<bool>) {
    page.heading(if report.postmaster { "The message" } else { "Your message" });
    if let Some(subject) = subject {
        page.indented(&format!("Subject: {subject}"));
    }
    page.indented(&format!(
        "Received by this server: {}",
        date::for_person(report.envelope.received.at_us, report.offset_seconds)
    ));
    match returns_whole {
        Some(true) => page.indented("It is attached whole."),
        Some(false) => page.indented("Its header is attached; the rest is not sent back."),
        None => {}
    }
    page.end_of_block();
    page.paragraph(&format!(
        "An administrator who is asked about this will want to know: queue id {} at {}.",
        report.envelope.id,
        super::harmless::host(report.reporting_mta)
    ));
}

/// Text that is being written, in paragraphs of bounded width.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn paragraph(&mut self, text: &str) {
        self.wrapped(text, "");
        self.end_of_block();
    }

    fn heading(&mut self, text: &str) {
        self.wrapped(text, "");
    }

    fn indented(&mut self, text: &str) {
        self.wrapped(text, "  ");
    }

    /// The words of another server, as they came.
    fn quote(&mut self, reply: &crate::reply::Reply) {
        let codes =
            reply.enhanced().map_or_else(|| reply.code().to_string(), |code| format!("{} {code}", reply.code()));
        let count = reply.lines().len();
        let mut front = codes;
        for text in reply.lines().take(REPLY_LINES_MAX) {
            let text = format!("{front} {}", line(text, REPLY_LINE_OCTETS_MAX));
            self.wrapped(text.trim(), "    > ");
            front.clear();
        }
        if count > REPLY_LINES_MAX {
            self.wrapped(&format!("({} lines more)", count - REPLY_LINES_MAX), "    ");
        }
    }

    fn end_of_block(&mut self) {
        self.text.push_str("\r\n");
    }

    /// Appends words in lines of at most [`WIDTH`] octets; only a longer word makes a longer line, up to its own
    /// length.
    fn wrapped(&mut self, text: &str, indent: &str) {
        let mut column = 0;
        for word in text.split_ascii_whitespace() {
            if column > 0 && column + 1 + word.len() > WIDTH {
                self.text.push_str("\r\n");
                column = 0;
            }
            let before = if column == 0 { indent } else { " " };
            self.text.push_str(before);
            self.text.push_str(word);
            column += before.len() + word.len();
        }
        self.text.push_str("\r\n");
    }
}
