//! A copy of an event, as it waits for the writer.
//!
//! Text of clients and of other servers is cut to named lengths, so that the size of an entry is bounded.

use mail::{PhaseTimes, QueueId};
use observe::stats::Counts;
use observe::{CommandBy, Event, NextHop, Relay, ScreenVerdict, Stat};
use std::time::Duration;

/// Octets of the list of recipients of one attempt; the number of recipients is kept in full.
const RECIPIENTS_BYTES_MAX: usize = 16 << 10;
/// Octets of a reply.
const TEXT_BYTES_MAX: usize = 1_024;
/// Octets of an address or a name.
const NAME_BYTES_MAX: usize = 512;
/// The place of the decision that deletes mail whose time in quarantine is over.
const QUARANTINE_KEEP: &str = "quarantine.keep";

/// Counts of a window of the statistics, for charts after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryWindow {
    /// Seconds of the window: 1, 60 or 3,600.
    pub step: i64,
    /// Its first second in civil time.
    pub begin: i64,
    /// Its counts.
    pub counts: Counts,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HistoryEntry {
    /// A message was accepted.
    Message(Box<MessageEntry>),
    /// Something happened to a message.
    Step(Box<StepEntry>),
    /// Counts of a window.
    Window(Box<HistoryWindow>),
}

/// An accepted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageEntry {
    pub(super) id: QueueId,
    /// Without brackets; empty for the null sender.
    pub(super) sender: Box<str>,
    pub(super) size: u64,
    pub(super) recipients: u64,
    /// `name [address]`, or the user of this machine.
    pub(super) client: Box<str>,
    pub(super) message_id: Box<str>,
}

/// A step of a message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepEntry {
    pub(super) id: QueueId,
    /// Microseconds since 1970.
    pub(super) time_us: u64,
    pub(super) kind: StepKind,
    /// The recipients, one in a line, without brackets.
    pub(super) to: Box<str>,
    pub(super) recipients: u64,
    /// `name [address]`, as far as it is known.
    pub(super) host: Box<str>,
    pub(super) mailer: Box<str>,
    pub(super) status: Box<str>,
    /// The reply, or what kept it from coming to one.
    pub(super) text: Box<str>,
    /// How long the attempt took.
    pub(super) took: Option<Duration>,
    /// How long its phases took.
    pub(super) phases: PhaseTimes,
    /// The message that was made of this one, and its recipients as far as they are known.
    pub(super) made: Option<(QueueId, u64)>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    Sent,
    Deferred,
    Failed,
    Held,
    Released,
    Discarded,
    Screened,
    Reported,
    Cloned,
    /// Recipients go on in another message.
    Moved,
    /// A command of an operator, by its name.
    Deleted,
    Bounced,
    Command,
}

impl StepKind {
    /// The word in the file and in answers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Deferred => "deferred",
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Released => "released",
            Self::Discarded => "discarded",
            Self::Screened => "screened",
            Self::Reported => "report",
            Self::Cloned => "split",
            Self::Moved => "moved",
            Self::Deleted => "deleted",
            Self::Bounced => "bounced",
            Self::Command => "command",
        }
    }
}

impl HistoryEntry {
    /// Copies what the history keeps of an event; `None` for one that is not about a message.
    pub(super) fn of_event(event: &Event<'_>, time_us: u64) -> Option<Self> {
        if let Event::Accepted { id, from, size, nrcpts, msgid, relay, .. } = *event {
            return Some(Self::Message(Box::new(MessageEntry {
                id,
                sender: cut(without_brackets(from), NAME_BYTES_MAX),
                size,
                recipients: number(nrcpts),
                client: client(relay),
                message_id: cut(msgid.unwrap_or_default(), NAME_BYTES_MAX),
            })));
        }
        StepEntry::of_event(event, time_us).map(|step| Self::Step(Box::new(step)))
    }

    /// Octets that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => {
                size_of::<MessageEntry>() + message.sender.len() + message.client.len() + message.message_id.len()
            }
            Self::Step(step) => {
                let texts = [&step.to, &step.host, &step.mailer, &step.status, &step.text];
                size_of::<StepEntry>() + texts.iter().map(|text| text.len()).sum::<usize>()
            }
            Self::Window(_) => size_of::<HistoryWindow>(),
        }
    }
}

impl StepEntry {
    fn new(id: QueueId, time_us: u64, kind: StepKind) -> Self {
        let none = || Box::<str>::default();
        let (to, host, mailer, status, text) = (none(), none(), none(), none(), none());
        Self {
            id,
            time_us,
            kind,
            to,
            recipients: 0,
            host,
            mailer,
            status,
            text,
            took: None,
            phases: PhaseTimes::default(),
            made: None,
        }
    }

    /// Another message was stored in place of these recipients of a message, since filters have changed it.
    pub(super) fn replaced(id: QueueId, by: QueueId, recipients: u64, time_us: u64) -> Self {
        let text = cut(&format!("changed by filters, goes on as {by}"), TEXT_BYTES_MAX);
        Self { text, recipients, made: Some((by, recipients)), ..Self::new(id, time_us, StepKind::Moved) }
    }

    fn of_event(event: &Event<'_>, time_us: u64) -> Option<Self> {
        let step = |id, kind| Self::new(id, time_us, kind);
        let with = |id, kind, text: &str| Self { text: cut(text, TEXT_BYTES_MAX), ..step(id, kind) };
        Some(match *event {
            Event::Delivery { id, to, xdelay, phases, mailer, relay, dsn, reply, stat, .. } => {
                let (kind, text) = match stat {
                    Stat::Sent(text) => (StepKind::Sent, text),
                    Stat::Deferred(text) => (StepKind::Deferred, text),
                    Stat::Failed(text) => (StepKind::Failed, text),
                };
                let text = reply.map_or_else(|| text.to_owned(), ToString::to_string);
                Self {
                    to: addresses(to),
                    recipients: number(to.len()),
                    host: cut(&host(relay), NAME_BYTES_MAX),
                    mailer: cut(mailer, NAME_BYTES_MAX),
                    status: dsn.to_string().into(),
                    took: Some(xdelay),
                    phases,
                    ..with(id, kind, &text)
                }
            }
            Event::Queued { id, to, quarantine: Some(reason), .. } => {
                Self { to: addresses(to), recipients: number(to.len()), ..with(id, StepKind::Held, reason) }
            }
            Event::Discarded { id } => step(id, StepKind::Discarded),
            Event::RecipientsDiscarded { id, to } => {
                Self { to: addresses(to), recipients: number(to.len()), ..step(id, StepKind::Discarded) }
            }
            Event::Screened { id, verdict: ScreenVerdict::Discard, by, place: QUARANTINE_KEEP, to, action } => {
                let to: Vec<&str> = to.split(',').collect();
                let text = format!("{by}: {action}");
                Self { to: addresses(&to), recipients: number(to.len()), ..with(id, StepKind::Deleted, &text) }
            }
            Event::Screened { id, by, action, .. } => with(id, StepKind::Screened, &format!("{by}: {action}")),
            Event::Cloned { first, id, .. } => {
                Self { made: Some((id, 0)), ..with(first, StepKind::Cloned, &id.to_string()) }
            }
            Event::Reported { id, report, text, .. } => with(id, StepKind::Reported, &format!("{report}: {text}")),
            Event::HoldEnded { id, recipients, by, why } => {
                Self { recipients, ..with(id, StepKind::Released, &format!("hold by {by} ended: {why}")) }
            }
            Event::QueueCommand { id: Some(id), what, recipients, by, copy, .. } => {
                let kind = match (what, copy) {
                    ("delete", _) => StepKind::Deleted,
                    ("bounce" | "expire", _) => StepKind::Bounced,
                    ("release", Some(_)) => StepKind::Moved,
                    _ => StepKind::Command,
                };
                // A copy for another address has recipients of its own.
                let made = copy.map(|copy| (copy, if kind == StepKind::Moved { recipients } else { 0 }));
                let by = match by {
                    CommandBy::User(uid) => format!("user {uid}"),
                    CommandBy::Token("") => "HTTP".to_owned(),
                    CommandBy::Token(name) => format!("HTTP, {name}"),
                };
                let copy = copy.map(|copy| format!(", copy {copy}")).unwrap_or_default();
                Self { recipients, made, ..with(id, kind, &format!("{what} by {by}{copy}")) }
            }
            _ => return None,
        })
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The beginning of a text.
fn cut(text: &str, max: usize) -> Box<str> {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text).into()
}

fn without_brackets(address: &str) -> &str {
    address.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(address)
}

/// Addresses one in a line, as many as there is room for.
fn addresses(list: &[&str]) -> Box<str> {
    let mut text = String::new();
    for address in list.iter().map(|address| without_brackets(address)) {
        if text.len() + address.len() >= RECIPIENTS_BYTES_MAX {
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(address);
    }
    text.into()
}

fn client(relay: Relay<'_>) -> Box<str> {
    match relay {
        Relay::Host { name: Some(name), address, .. } => format!("{} [{address}]", cut(name, NAME_BYTES_MAX)).into(),
        Relay::Host { name: None, address, .. } => format!("[{address}]").into(),
        Relay::Local { user } => cut(user, NAME_BYTES_MAX),
    }
}

/// `name [address]`, as far as it is known.
pub(crate) fn host(relay: NextHop<'_>) -> String {
    match relay {
        NextHop::Host { name: Some(name), address } => format!("{name} [{address}]"),
        NextHop::Host { name: None, address } => format!("[{address}]"),
        NextHop::Name(name) => name.to_owned(),
        NextHop::None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_keep_their_number() {
        let names: Vec<String> = (0..10_000).map(|number| format!("<user{number}@list.test>")).collect();
        let to: Vec<&str> = names.iter().map(String::as_str).collect();
        let event = Event::RecipientsDiscarded { id: QueueId::MIN, to: &to };
        let Some(HistoryEntry::Step(step)) = HistoryEntry::of_event(&event, 7) else { panic!("no step") };
        assert_eq!((step.recipients, step.time_us, step.kind), (10_000, 7, StepKind::Discarded));
        assert!(step.to.starts_with("user0@list.test\nuser1@list.test\n") && step.to.len() <= RECIPIENTS_BYTES_MAX);
        assert!(HistoryEntry::Step(step).bytes() < RECIPIENTS_BYTES_MAX + 1_000);
    }

    #[test]
    fn events_without_a_message_are_not_kept() {
        assert_eq!(HistoryEntry::of_event(&Event::LogDropped { lines: 1 }, 7), None);
        let event = Event::Queued { id: QueueId::MIN, to: &[], mailer: "esmtp", priority: 0, quarantine: None };
        assert_eq!(HistoryEntry::of_event(&event, 7), None, "the usual wait is no step");
    }
}
