//! A message as judges see it: an owned copy that outlives the session's wait.

use filter::{Direction, Message, Recipient};
use mail::header::{HeaderSection, LineEnd};
use std::net::IpAddr;

/// A recipient of a message, before aliases and rules of routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScreenedRecipient {
    /// The address, as the client gave it.
    pub(crate) address: String,
    /// The name of the list that it is, if it is one.
    pub(crate) list: Option<String>,
    /// The number of its scope.
    pub(crate) scope: u16,
}

/// A message and its envelope as judges see them.
#[derive(Clone, Debug)]
pub(crate) struct ScreenedMessage {
    /// Header section with the trace field of this server, empty line and body; of a large message the beginning.
    pub(crate) content: Vec<u8>,
    /// Octets of the body that content rules look at.
    pub(crate) rules_body_max: usize,
    /// The content is the whole message.
    pub(crate) is_complete: bool,
    /// Octets of the whole message.
    pub(crate) size: u64,
    /// The reverse path; empty for the null sender.
    pub(crate) sender: String,
    /// The recipients.
    pub(crate) recipients: Vec<ScreenedRecipient>,
    /// The address of the client; none for a process of this machine.
    pub(crate) client_address: Option<IpAddr>,
    /// The verified name of the client.
    pub(crate) client_name: Option<String>,
    /// The name in its greeting.
    pub(crate) helo: Option<String>,
    /// The name of the listener that took it.
    pub(crate) listener: String,
    /// The way of the message.
    pub(crate) direction: Direction,
    /// Authentication methods and their results, such as `("spf", "fail")`.
    pub(crate) authentication: Vec<(String, String)>,
    /// Fields with results above the trace field of this server.
    pub(crate) result_fields: usize,
}

impl ScreenedMessage {
    /// Returns the message as content rules take it.
    pub(super) fn for_rules(&self) -> Message<'_> {
        let recipients = self.recipients.iter();
        let end = HeaderSection::read(&self.content, LineEnd::Crlf).body_offset().saturating_add(self.rules_body_max);
        let content = self.content.get(..end).unwrap_or(&self.content);
        Message {
            is_complete: self.is_complete && content.len() == self.content.len(),
            size: self.size,
            sender: &self.sender,
            recipients: recipients.map(|one| Recipient { address: &one.address, list: one.list.as_deref() }).collect(),
            client_address: self.client_address,
            client_name: self.client_name.as_deref(),
            helo: self.helo.as_deref(),
            listener: Some(&self.listener),
            direction: Some(self.direction),
            authentication: self.authentication.iter().map(|(method, result)| (&**method, &**result)).collect(),
            ..Message::new(content, LineEnd::Crlf)
        }
    }
}
