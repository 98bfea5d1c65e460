//! A message and its envelope as rules see them.

use std::net::IpAddr;

use mail::header::LineEnd;

/// The way of a message, for scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From elsewhere for recipients here.
    Inbound,
    /// From users or programs here.
    Outbound,
}

impl Direction {
    /// Finds a direction by its word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "inbound" => Some(Self::Inbound),
            "outbound" => Some(Self::Outbound),
            _ => None,
        }
    }
}

/// A recipient of a message.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    /// The address.
    pub address: &'a str,
    /// The mailing list that the address is, if it is one.
    pub list: Option<&'a str>,
}

/// A message and its envelope as rules see them.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// Header section, empty line and body; of a large message the beginning.
    pub content: &'a [u8],
    /// The content is the whole message.
    pub is_complete: bool,
    /// Octets of the whole message.
    pub size: u64,
    /// How its lines end.
    pub line_end: LineEnd,
    /// The reverse path; empty for the null sender.
    pub sender: &'a str,
    /// The recipients.
    pub recipients: Vec<Recipient<'a>>,
    /// The address of the client.
    pub client_address: Option<IpAddr>,
    /// The verified name of the client.
    pub client_name: Option<&'a str>,
    /// The name in its greeting.
    pub helo: Option<&'a str>,
    /// The listener that took the message.
    pub listener: Option<&'a str>,
    /// The way of the message, if it is known.
    pub direction: Option<Direction>,
    /// Authentication methods and their results, such as `("spf", "fail")`.
    pub authentication: Vec<(&'a str, &'a str)>,
}

impl<'a> Message<'a> {
    /// Makes a message of content alone.
    #[must_use]
    pub const fn new(content: &'a [u8], line_end: LineEnd) -> Self {
        Self {
            content,
            is_complete: true,
            size: content.len() as u64,
            line_end,
            sender: "",
            recipients: Vec::new(),
            client_address: None,
            client_name: None,
            helo: None,
            listener: None,
            direction: None,
            authentication: Vec::new(),
        }
    }
}
