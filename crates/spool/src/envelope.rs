//! Envelopes as bytes: the values that a caller puts into [`NewMessage::head`] and [`NewRecipient::data`], and reads
//! back (`docs/spool.md` section 8).
//!
//! The spool itself takes both as they are; this is the encoding that every writer of mail uses, so that a spool can be
//! read by a later version and by `mailrace spool`. Each part begins with a version of its own, because a recipient may
//! have been stored by another program than the head. Values with a text form are stored as that text, which their
//! types promise to read back.
//!
//! Invariants: an encoded value decodes to the same value; the decoders take any bytes and never panic; nothing follows
//! the last field.
//!
//! Not here: the queue id, which the spool keeps, and the state of delivery.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::format::Reader;
use crate::store::{NewBody, NewMessage, NewRecipient, StoredEnvelope};
use mail::{
    Address, Client, Domain, Envelope, HeloName, MailParams, Protocol, QueueId, Received, Recipient, RecipientParams,
    ReversePath,
};

/// The version of a recipient, and of a head without a record of *screen*.
pub const VERSION: u8 = 1;
/// The version of a head with a record of *screen* behind its other fields.
pub const SCREENED_VERSION: u8 = 2;

const CLIENT_INTERNAL: u8 = 0;
const CLIENT_PROCESS: u8 = 1;
const CLIENT_IPV4: u8 = 2;
const CLIENT_IPV6: u8 = 3;

/// An envelope in bytes: the parts of a [`NewMessage`], which borrow from it.
///
/// ```
/// use spool::NewBody;
/// use spool::envelope::Encoded;
/// # use mail::{Client, Envelope, MailParams, Protocol, QueueId, Received, Recipient, ReversePath};
/// # let received = Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local };
/// # let recipients = vec![Recipient::new("a@Example.ORG".parse()?)];
/// # let (id, sender, params) = (QueueId::MIN, ReversePath::Null, MailParams::default());
/// let envelope = Envelope { id, sender, params, received, recipients };
/// let encoded = Encoded::new(&envelope);
/// let recipients = encoded.recipients();
/// assert_eq!(recipients[0].destination, b"example.org");
/// let message = encoded.message(&recipients, NewBody::whole("Subject: x\r\n\r\n", 14));
/// assert_eq!(message.id, id);
/// # Ok::<(), mail::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    id: QueueId,
    head: Vec<u8>,
    /// Data and destination of each recipient.
    recipients: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Encoded {
    /// Encodes all of an envelope; each recipient gets its [`default_destination`].
    #[must_use]
    pub fn new(envelope: &Envelope) -> Self {
        Self::to(envelope, default_destination)
    }

    /// Encodes all of an envelope; each recipient gets the destination that `destination` says.
    #[must_use]
    pub fn to(envelope: &Envelope, destination: impl Fn(&Address) -> Vec<u8>) -> Self {
        let recipients = envelope.recipients.iter();
        Self {
            id: envelope.id,
            head: encode_head(envelope),
            recipients: recipients.map(|one| (encode_recipient(one), destination(&one.address))).collect(),
        }
    }

    /// Encodes all of an envelope; each recipient gets the destination at his place in `destinations`, or its
    /// [`default_destination`] where there is none.
    #[must_use]
    pub fn with(envelope: &Envelope, destinations: Vec<Vec<u8>>) -> Self {
        let mut destinations = destinations.into_iter();
        let recipients = envelope.recipients.iter();
        let recipients = recipients
            .map(|one| {
                let destination = destinations.next().unwrap_or_else(|| default_destination(&one.address));
                (encode_recipient(one), destination)
            })
            .collect();
        Self { id: envelope.id, head: encode_head(envelope), recipients }
    }

    /// Returns the same with a record for *screen* in its head, which [`decode_screening`] reads back.
    #[must_use]
    pub fn with_screening(mut self, record: &str) -> Self {
        if let Some(version) = self.head.first_mut() {
            *version = SCREENED_VERSION;
        }
        // The longest head that a frame has room for is far below 4 GiB.
        self.head.extend_from_slice(&u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.head.extend_from_slice(record.as_bytes());
        self
    }

    /// The name of the message.
    #[must_use]
    pub const fn id(&self) -> QueueId {
        self.id
    }

    /// How many recipients there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.recipients.len()
    }

    /// Whether there are no recipients.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.recipients.is_empty()
    }

    /// The destination of the recipient at `position`.
    #[must_use]
    pub fn destination(&self, position: usize) -> &[u8] {
        self.recipients.get(position).map(|(_, destination)| destination.as_slice()).unwrap_or_default()
    }

    /// The recipients as the spool takes them.
    #[must_use]
    pub fn recipients(&self) -> Vec<NewRecipient<'_>> {
        self.recipients.iter().map(|(data, destination)| NewRecipient { data, destination }).collect()
    }

    /// The transaction of these parts; `recipients` are those of [`Encoded::recipients`], perhaps sent elsewhere.
    #[must_use]
    pub fn message<'a>(&'a self, recipients: &'a [NewRecipient<'a>], body: NewBody) -> NewMessage<'a> {
        NewMessage::new(self.id, &self.head, recipients, body)
    }
}

/// Returns the destination of mail for this address until another is recorded: its domain in DNS form, lower case with
/// A-labels, or its address literal with the brackets.
#[must_use]
pub fn default_destination(address: &Address) -> Vec<u8> {
    match address.domain() {
        Domain::Name(name) => name.ascii().as_bytes().to_vec(),
        Domain::Literal(literal) => literal.to_string().into_bytes(),
    }
}

/// Encodes what an envelope says of the message as a whole.
#[must_use]
pub fn encode_head(envelope: &Envelope) -> Vec<u8> {
    let Received { at_us, client, helo, protocol } = &envelope.received;
    let mut to = vec![VERSION];
    field(&mut to, &envelope.sender.address().map(ToString::to_string).unwrap_or_default());
    field(&mut to, &envelope.params.to_string());
    to.extend_from_slice(&at_us.to_le_bytes());
    match client {
        Client::Internal => to.push(CLIENT_INTERNAL),
        Client::Process { uid } => {
            to.push(CLIENT_PROCESS);
            to.extend_from_slice(&uid.to_le_bytes());
        }
        Client::Network(SocketAddr::V4(peer)) => {
            to.push(CLIENT_IPV4);
            to.extend_from_slice(&peer.ip().octets());
            to.extend_from_slice(&peer.port().to_le_bytes());
        }
        Client::Network(SocketAddr::V6(peer)) => {
            to.push(CLIENT_IPV6);
            to.extend_from_slice(&peer.ip().octets());
            to.extend_from_slice(&peer.port().to_le_bytes());
            to.extend_from_slice(&peer.flowinfo().to_le_bytes());
            to.extend_from_slice(&peer.scope_id().to_le_bytes());
        }
    }
    field(&mut to, helo.as_ref().map(HeloName::as_str).unwrap_or_default());
    field(&mut to, protocol.keyword());
    to
}

/// Encodes a recipient.
#[must_use]
pub fn encode_recipient(recipient: &Recipient) -> Vec<u8> {
    let mut to = vec![VERSION];
    field(&mut to, &recipient.address.to_string());
    field(&mut to, &recipient.params.to_string());
    to
}

fn field(to: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("mail's types bound their texts far below 64 KiB");
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

/// Decodes a head into an envelope that has no recipients yet.
///
/// # Errors
/// Names the field that makes no sense, or both versions.
pub fn decode_head(id: QueueId, head: &[u8]) -> Result<Envelope, EnvelopeError> {
    decode_whole_head(id, head).map(|(envelope, _)| envelope)
}

/// Decodes the record for *screen* in a head; `None`: it has none.
///
/// # Errors
/// Names the field that makes no sense, or both versions.
pub fn decode_screening(head: &[u8]) -> Result<Option<String>, EnvelopeError> {
    decode_whole_head(QueueId::MIN, head).map(|(_, record)| record.map(str::to_owned))
}

fn decode_whole_head(id: QueueId, head: &[u8]) -> Result<(Envelope, Option<&str>), EnvelopeError> {
    let mut from = Decoder { part: "head", reader: Reader(head) };
    let version = from.version(SCREENED_VERSION)?;
    let sender = match from.text("sender")? {
        "" => ReversePath::Null,
        text => ReversePath::Address(from.parsed("sender", text)?),
    };
    let text = from.text("parameters")?;
    let params: MailParams = from.parsed("parameters", text)?;
    let at_us = from.number("time", Reader::u64)?;
    let client = from.client()?;
    let helo = match from.text("helo")? {
        "" => None,
        text => Some(HeloName::new(text.as_bytes()).ok_or_else(|| from.malformed("helo", "no printable name"))?),
    };
    let text = from.text("protocol")?;
    let protocol: Protocol = from.parsed("protocol", text)?;
    let record = if version == SCREENED_VERSION { Some(from.long_text("record of screen")?) } else { None };
    from.end()?;
    let received = Received { at_us, client, helo, protocol };
    Ok((Envelope { id, sender, params, received, recipients: Vec::new() }, record))
}

/// Decodes a recipient.
///
/// # Errors
/// Names the field that makes no sense, or both versions.
pub fn decode_recipient(data: &[u8]) -> Result<Recipient, EnvelopeError> {
    let mut from = Decoder { part: "recipient", reader: Reader(data) };
    from.version(VERSION)?;
    let text = from.text("address")?;
    let address: Address = from.parsed("address", text)?;
    let text = from.text("parameters")?;
    let params: RecipientParams = from.parsed("parameters", text)?;
    from.end()?;
    Ok(Recipient { address, params })
}

/// Decodes what the spool has of an envelope: its recipients are those that are not done, in order of position.
///
/// # Errors
/// Names the field that makes no sense, or both versions.
pub fn decode(id: QueueId, stored: &StoredEnvelope) -> Result<Envelope, EnvelopeError> {
    let recipients = stored.recipients.iter().map(|recipient| decode_recipient(&recipient.data));
    Ok(Envelope { recipients: recipients.collect::<Result<_, _>>()?, ..decode_head(id, &stored.head)? })
}

/// Why bytes are no envelope of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvelopeError {
    /// Written by a newer mailrace: use that one.
    NewerVersion {
        /// Head or recipient.
        part: &'static str,
        /// The version of its encoding.
        found: u8,
        /// The newest version of this part that this program reads.
        newest: u8,
    },
    /// Not written by mailrace, or damaged before the spool got it: the spool's own checksums matched.
    Malformed {
        /// Head or recipient.
        part: &'static str,
        /// The field.
        field: &'static str,
        /// The fault.
        why: String,
    },
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerVersion { part, found, newest } => write!(
                f,
                "{part} of the envelope has version {found}, {newest} is the newest this program reads; use the newer mailrace"
            ),
            Self::Malformed { part, field, why } => {
                write!(f, "{part} of the envelope: {field}: {why}; another program wrote it, ask that one")
            }
        }
    }
}

impl std::error::Error for EnvelopeError {}

/// Reads fields and says which one failed.
struct Decoder<'a> {
    part: &'static str,
    reader: Reader<'a>,
}

impl<'a> Decoder<'a> {
    fn malformed(&self, field: &'static str, why: impl fmt::Display) -> EnvelopeError {
        EnvelopeError::Malformed { part: self.part, field, why: why.to_string() }
    }

    fn number<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<T, EnvelopeError> {
        read(&mut self.reader).ok_or_else(|| self.malformed(field, "the bytes end before it"))
    }

    fn version(&mut self, newest: u8) -> Result<u8, EnvelopeError> {
        match self.number("version", Reader::u8)? {
            0 => Err(self.malformed("version", "0 is none")),
            found if found > newest => Err(EnvelopeError::NewerVersion { part: self.part, found, newest }),
            found => Ok(found),
        }
    }

    fn long_text(&mut self, field: &'static str) -> Result<&'a str, EnvelopeError> {
        let length = self.number(field, Reader::u32)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = self.number(field, |reader| reader.bytes(length))?;
        str::from_utf8(bytes).map_err(|error| self.malformed(field, error))
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, EnvelopeError> {
        let length = self.number(field, Reader::u16)?;
        let bytes = self.number(field, |reader| reader.bytes(length.into()))?;
        str::from_utf8(bytes).map_err(|error| self.malformed(field, error))
    }

    fn parsed<T: std::str::FromStr<Err: fmt::Display>>(
        &self,
        field: &'static str,
        text: &str,
    ) -> Result<T, EnvelopeError> {
        text.parse().map_err(|error| self.malformed(field, error))
    }

    fn client(&mut self) -> Result<Client, EnvelopeError> {
        const FIELD: &str = "client";
        Ok(match self.number(FIELD, Reader::u8)? {
            CLIENT_INTERNAL => Client::Internal,
            CLIENT_PROCESS => Client::Process { uid: self.number(FIELD, Reader::u32)? },
            CLIENT_IPV4 => {
                let ip = Ipv4Addr::from_bits(u32::from_be_bytes(self.array()?));
                Client::Network(SocketAddrV4::new(ip, self.number(FIELD, Reader::u16)?).into())
            }
            CLIENT_IPV6 => {
                let ip = Ipv6Addr::from_bits(u128::from_be_bytes(self.array()?));
                let port = self.number(FIELD, Reader::u16)?;
                let (flow, scope) = (self.number(FIELD, Reader::u32)?, self.number(FIELD, Reader::u32)?);
                Client::Network(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            kind => return Err(self.malformed(FIELD, format_args!("kind {kind} is unknown"))),
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        self.number("client", |reader| reader.bytes(N)?.try_into().ok())
    }

    fn end(&self) -> Result<(), EnvelopeError> {
        if self.reader.is_empty() {
            return Ok(());
        }
        Err(self.malformed("end", format_args!("{} bytes follow the last field", self.reader.0.len())))
    }
}

#[cfg(test)]
mod tests;
