//! A milter: one connection for an SMTP session, and each step of the session as a question to it.
//!
//! Steps that the filter does not answer, or does not want, cost no round trip: their packets travel with the next step
//! that is answered.

use super::connection::{FilterConnection, FilterError};
use super::content::FilterContent;
use super::facts::FilterFacts;
use super::settings::FilterSettings;
use crate::config::MacroValue;
use filter::milter::{
    Agreement, Answer, ClientAddress, EditLimits, Edits, MilterError, MilterSession, Offer, PacketReader, Received,
    Sent, Stage,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Octets that wait for a step with an answer before they are sent.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Octets of a packet before the negotiation says more, with the command.
const PACKET_BYTES_MAX: usize = 65_536;

/// A connection to a milter, after the negotiation.
#[derive(Debug)]
pub(super) struct Milter {
    connection: FilterConnection,
    session: MilterSession,
    packets: PacketReader,
    /// Packets that were not sent yet.
    out: Vec<u8>,
    /// Values of macros that count in place of the session's.
    values: Arc<[MacroValue]>,
}

impl Milter {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// Nothing listens there, or no milter answers.
    pub(super) async fn open(settings: &FilterSettings) -> Result<Self, FilterError> {
        let mut connection = FilterConnection::open(settings).await?;
        let mut packets = PacketReader::new(PACKET_BYTES_MAX);
        let offer = Offer::default();
        let mut out = Vec::new();
        offer.write(&mut out);
        connection.write("negotiation", &out).await?;
        let fault = |error: MilterError| FilterError::new("negotiation", error);
        let packet = loop {
            if let Some(packet) = packets.next_packet().map_err(fault)? {
                break packet;
            }
            let octets = connection.read("negotiation").await?;
            if octets.is_empty() {
                return Err(FilterError::new("negotiation", "the filter closed the connection; is it a milter?"));
            }
            packets.push(&octets);
        };
        let agreement = Agreement::read(&offer, &packet).map_err(fault)?;
        packets.allow(agreement.data_bytes_max() + 1);
        let session = MilterSession::new(agreement, EditLimits::default(), settings.macros.clone());
        out.clear();
        Ok(Self { connection, session, packets, out, values: settings.macro_values.clone().into() })
    }

    /// The client connected.
    pub(super) async fn connect(&mut self, facts: &FilterFacts) -> Result<Answer, FilterError> {
        let values = Arc::clone(&self.values);
        let address = match facts.client {
            Some(client) => ClientAddress::Ip(client.ip().to_canonical(), client.port()),
            // Filters know a process of this machine by this address.
            None => ClientAddress::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        };
        let name = facts.shown_client();
        self.step(Stage::Connect, |session, out| {
            session.connect(name.as_bytes(), address, &|name| macro_value(&values, facts, name), out)
        })
        .await
    }

    /// HELO or EHLO.
    pub(super) async fn helo(&mut self, facts: &FilterFacts) -> Result<Answer, FilterError> {
        let values = Arc::clone(&self.values);
        self.step(Stage::Helo, |session, out| {
            session.helo(facts.helo.as_bytes(), &|name| macro_value(&values, facts, name), out)
        })
        .await
    }

    /// MAIL.
    pub(super) async fn mail(&mut self, facts: &FilterFacts) -> Result<Answer, FilterError> {
        let values = Arc::clone(&self.values);
        let parameters: Vec<&[u8]> = facts.sender_parameters.iter().map(String::as_bytes).collect();
        let sender = format!("<{}>", facts.sender);
        self.step(Stage::Mail, |session, out| {
            session.mail(sender.as_bytes(), &parameters, &|name| macro_value(&values, facts, name), out)
        })
        .await
    }

    /// RCPT. `is_refused`: the server refuses the recipient, which only a filter hears that asked for these.
    pub(super) async fn recipient(&mut self, facts: &FilterFacts, is_refused: bool) -> Result<Answer, FilterError> {
        let values = Arc::clone(&self.values);
        let recipient = format!("<{}>", facts.recipient);
        self.step(Stage::Recipient, |session, out| {
            session.recipient(recipient.as_bytes(), &[], is_refused, &|name| macro_value(&values, facts, name), out)
        })
        .await
    }

    /// A command that the server does not know.
    pub(super) async fn unknown(&mut self, facts: &FilterFacts) -> Result<Answer, FilterError> {
        self.step(Stage::Unknown, |session, out| session.unknown(&facts.command, out)).await
    }

    /// DATA.
    pub(super) async fn data(&mut self, facts: &FilterFacts) -> Result<Answer, FilterError> {
        let values = Arc::clone(&self.values);
        self.step(Stage::Data, |session, out| session.data(&|name| macro_value(&values, facts, name), out)).await
    }

    /// The content, up to the answer to its end.
    pub(super) async fn content(
        &mut self,
        settings: &FilterSettings,
        content: &FilterContent,
        facts: &FilterFacts,
    ) -> Result<(Stage, Answer, Edits), FilterError> {
        self.connection.begin_message(settings.total_timeout);
        let values = Arc::clone(&self.values);
        for field in content.shown().iter().filter(|field| !field.name.is_empty()) {
            let answer =
                self.step(Stage::Header, |session, out| session.header(&field.name, &field.value, out)).await?;
            if answer != Answer::Continue {
                return Ok((Stage::Header, answer, Edits::default()));
            }
        }
        let answer = self
            .step(Stage::EndOfHeader, |session, out| {
                session.end_of_header(&|name| macro_value(&values, facts, name), out)
            })
            .await?;
        if answer != Answer::Continue {
            return Ok((Stage::EndOfHeader, answer, Edits::default()));
        }
        let mut body = content.body();
        while !body.is_empty() {
            let answer = self.step(Stage::Body, |session, out| session.body_chunk(&mut body, out)).await?;
            if !matches!(answer, Answer::Continue | Answer::Skip) {
                return Ok((Stage::Body, answer, Edits::default()));
            }
        }
        let message_id = content.shown().iter().find(|field| field.name.eq_ignore_ascii_case(b"Message-ID"));
        let message_id = message_id.map(|field| field.value.trim_ascii().to_vec());
        let answer = self
            .step(Stage::EndOfBody, |session, out| {
                let value = |name: &[u8]| match name {
                    b"{msg_id}" => message_id.clone(),
                    name => macro_value(&values, facts, name),
                };
                session.end_of_body(&value, out)
            })
            .await?;
        Ok((Stage::EndOfBody, answer, self.session.take_edits()))
    }

    /// Ends the message without a result. The filter is told with the next step.
    pub(super) fn abort(&mut self) {
        self.session.abort(&mut self.out);
    }

    /// Ends the session. Failures mean nothing any more.
    pub(super) async fn quit(mut self) {
        self.session.quit(&mut self.out);
        drop(self.flush("quit").await);
    }

    /// Takes a step, and waits for the answer if there is one.
    async fn step(
        &mut self,
        stage: Stage,
        write: impl FnOnce(&mut MilterSession, &mut Vec<u8>) -> Sent,
    ) -> Result<Answer, FilterError> {
        let name = stage.name();
        match write(&mut self.session, &mut self.out) {
            Sent::NotWanted => Ok(Answer::Continue),
            Sent::WithoutReply => {
                if self.out.len() >= WAITING_BYTES_MAX {
                    self.flush(name).await?;
                }
                Ok(Answer::Continue)
            }
            Sent::AwaitsReply => {
                if self.packets.has_rest() || self.connection.has_unread() {
                    return Err(FilterError::new(
                        name,
                        "the filter answered before it was asked, or closed the connection",
                    ));
                }
                self.flush(name).await?;
                self.answer(name).await
            }
        }
    }

    async fn flush(&mut self, stage: &'static str) -> Result<(), FilterError> {
        let out = std::mem::take(&mut self.out);
        self.connection.write(stage, &out).await
    }

    async fn answer(&mut self, stage: &'static str) -> Result<Answer, FilterError> {
        let fault = |error: MilterError| FilterError::new(stage, error);
        loop {
            while let Some(packet) = self.packets.next_packet().map_err(fault)? {
                match self.session.receive(&packet).map_err(fault)? {
                    Received::Progress | Received::Edit => {}
                    Received::Answer(answer) => return Ok(answer),
                }
            }
            let octets = self.connection.read(stage).await?;
            if octets.is_empty() {
                return Err(FilterError::new(stage, "the filter closed the connection"));
            }
            self.packets.push(&octets);
        }
    }
}

/// Returns the value of a macro: that of the configuration, or else the session's.
fn macro_value(values: &[MacroValue], facts: &FilterFacts, name: &[u8]) -> Option<Vec<u8>> {
    match values.iter().find(|one| one.name.as_bytes() == name) {
        Some(one) => Some(one.value.clone().into_bytes()),
        None => facts.macro_value(name),
    }
}
