//! The actions of rules.

use std::fmt;

use mail::{Address, Reply};
use regex::Regex;

/// The person who decides about mail in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Each recipient for his own copy.
    Recipient,
    /// The administrator.
    Administrator,
}

/// A decision that ends the evaluation for the recipients it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Final {
    /// Take the message; later rules do not look at it.
    Accept,
    /// Refuse it with a 5yz reply.
    Reject(Reply),
    /// Refuse it for now with a 4yz reply.
    Defer(Reply),
    /// Take it and drop it.
    Discard,
    /// Take it and keep it for a decision.
    Quarantine(Keeper),
    /// Take it and leave it in the queue until an operator releases it.
    Hold,
}

/// A change of the header section.
#[derive(Clone, Debug)]
pub enum HeaderEdit {
    /// Adds a field at the end.
    Add {
        /// The field's name.
        name: String,
        /// Its value as text.
        value: String,
    },
    /// Replaces the first field of the name, removes the others, or adds the field.
    Change {
        /// The field's name.
        name: String,
        /// Its value as text.
        value: String,
    },
    /// Removes all fields of the name.
    Remove {
        /// The field's name.
        name: String,
        /// Only fields whose decoded value matches.
        matching: Option<Regex>,
    },
    /// Puts a text before the subject, unless it stands there already.
    TagSubject(String),
}

/// One action of a rule.
#[derive(Clone, Debug)]
pub enum Action {
    /// A decision.
    Final(Final),
    /// A change of the header section.
    Edit(HeaderEdit),
    /// Deliver to this address in place of the recipients.
    Redirect(Address),
    /// Deliver to this address as well.
    Copy(Address),
    /// Deliver by this route.
    Route(String),
    /// Give the message this class.
    Class(String),
    /// Put the message into this queue group.
    QueueGroup(String),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reply = |f: &mut fmt::Formatter<'_>, word: &str, reply: &Reply| {
            write!(f, "{word} {}", reply.code().get())?;
            if let Some(code) = reply.enhanced() {
                write!(f, " {code}")?;
            }
            reply.lines().try_for_each(|line| write!(f, " {line}"))
        };
        match self {
            Self::Final(Final::Accept) => f.write_str("accept"),
            Self::Final(Final::Reject(text)) => reply(f, "reject", text),
            Self::Final(Final::Defer(text)) => reply(f, "defer", text),
            Self::Final(Final::Discard) => f.write_str("discard"),
            Self::Final(Final::Quarantine(Keeper::Recipient)) => f.write_str("quarantine recipient"),
            Self::Final(Final::Quarantine(Keeper::Administrator)) => f.write_str("quarantine administrator"),
            Self::Final(Final::Hold) => f.write_str("hold"),
            Self::Edit(HeaderEdit::Add { name, value }) => write!(f, "add header {name} {value:?}"),
            Self::Edit(HeaderEdit::Change { name, value }) => write!(f, "change header {name} {value:?}"),
            Self::Edit(HeaderEdit::Remove { name, matching: None }) => write!(f, "remove header {name}"),
            Self::Edit(HeaderEdit::Remove { name, matching: Some(regex) }) => {
                write!(f, "remove header {name} ~ /{regex}/")
            }
            Self::Edit(HeaderEdit::TagSubject(tag)) => write!(f, "tag subject {tag:?}"),
            Self::Redirect(address) => write!(f, "redirect {address}"),
            Self::Copy(address) => write!(f, "copy {address}"),
            Self::Route(route) => write!(f, "route {route}"),
            Self::Class(class) => write!(f, "class {class}"),
            Self::QueueGroup(group) => write!(f, "queue group {group}"),
        }
    }
}
