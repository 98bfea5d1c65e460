//! One connection to a filter, from the negotiation's agreement to the end.
//!
//! Each step writes its packets into a buffer of the driver and says whether the filter replies to it ([`Sent`]). While
//! a reply is awaited no other step but [`MilterSession::abort`] may be written.

use super::MilterError;
use super::edits::{EditLimits, Edits};
use super::macros::{MacroStage, write_macros};
use super::negotiation::{Agreement, Steps};
use super::packet::{Packet, write_packet};
use super::reply::ReplyText;
use std::net::IpAddr;

/// A step of the SMTP session that a filter may reply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A client connected.
    Connect,
    /// HELO or EHLO.
    Helo,
    /// MAIL.
    Mail,
    /// RCPT.
    Recipient,
    /// DATA, or the first BDAT.
    Data,
    /// A header field.
    Header,
    /// The end of the header section.
    EndOfHeader,
    /// A chunk of the body.
    Body,
    /// The end of the body.
    EndOfBody,
    /// A command that the server does not know.
    Unknown,
}

impl Stage {
    /// The name of the step in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Helo => "helo",
            Self::Mail => "mail",
            Self::Recipient => "rcpt",
            Self::Data => "data",
            Self::Header => "header",
            Self::EndOfHeader => "eoh",
            Self::Body => "body",
            Self::EndOfBody => "eom",
            Self::Unknown => "unknown",
        }
    }

    /// The command octet, the flag of a filter that does not want the step, and that of one that does not reply.
    const fn wire(self) -> (u8, Steps, Steps) {
        match self {
            Self::Connect => (b'C', Steps::NO_CONNECT, Steps::SILENT_CONNECT),
            Self::Helo => (b'H', Steps::NO_HELO, Steps::SILENT_HELO),
            Self::Mail => (b'M', Steps::NO_MAIL, Steps::SILENT_MAIL),
            Self::Recipient => (b'R', Steps::NO_RECIPIENT, Steps::SILENT_RECIPIENT),
            Self::Data => (b'T', Steps::NO_DATA, Steps::SILENT_DATA),
            Self::Header => (b'L', Steps::NO_HEADERS, Steps::SILENT_HEADERS),
            Self::EndOfHeader => (b'N', Steps::NO_END_OF_HEADER, Steps::SILENT_END_OF_HEADER),
            Self::Body => (b'B', Steps::NO_BODY, Steps::SILENT_BODY),
            Self::EndOfBody => (b'E', Steps(0), Steps(0)),
            Self::Unknown => (b'U', Steps::NO_UNKNOWN, Steps::SILENT_UNKNOWN),
        }
    }

    /// The list of macros that goes ahead of the step.
    const fn macros(self) -> Option<MacroStage> {
        match self {
            Self::Connect => Some(MacroStage::Connect),
            Self::Helo => Some(MacroStage::Helo),
            Self::Mail => Some(MacroStage::Mail),
            Self::Recipient => Some(MacroStage::Recipient),
            Self::Data => Some(MacroStage::Data),
            Self::EndOfHeader => Some(MacroStage::EndOfHeader),
            Self::EndOfBody => Some(MacroStage::EndOfBody),
            Self::Header | Self::Body | Self::Unknown => None,
        }
    }

    /// Whether the step belongs to the connection and not to a message.
    const fn is_of_connection(self) -> bool {
        matches!(self, Self::Connect | Self::Helo | Self::Unknown)
    }
}

/// The result of writing a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The filter does not want it; at most its macros were written.
    NotWanted,
    /// It was written, and the filter does not reply.
    WithoutReply,
    /// It was written, and the driver reads packets until an [`Answer`].
    AwaitsReply,
}

/// The address of an SMTP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress<'a> {
    /// Address and port.
    Ip(IpAddr, u16),
    /// The path of a local socket.
    Unix(&'a [u8]),
    /// A message that came by no connection.
    Unknown,
}

/// A filter's answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Continue,
    /// Go on without asking it again: for the connection if said to connect or HELO, else for the message.
    Accept,
    /// Take the message and drop it.
    Discard,
    /// Refuse for good: the recipient if said to RCPT, else the message or connection.
    Reject,
    /// Refuse it temporarily, with a 4yz reply.
    Defer,
    /// Refuse with the filter's own words.
    Reply(ReplyText),
    /// Send no more of the body. Later steps follow.
    Skip,
    /// Close the connection with 421.
    Shutdown,
    /// Behave as if the filter could not be reached.
    ConnectionFailed,
}

/// The meaning of a packet of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It works on the step: the time limit begins anew.
    Progress,
    /// It asked for a change, which is kept in [`MilterSession::take_edits`].
    Edit,
    /// It answered; the step has ended.
    Answer(Answer),
}

/// The state of one connection to a filter.
#[derive(Debug)]
pub struct MilterSession {
    agreement: Agreement,
    limits: EditLimits,
    macros: Vec<(MacroStage, Vec<Vec<u8>>)>,
    awaited: Option<Stage>,
    /// The awaited answer is about a recipient that the server refuses anyway.
    is_about_refused: bool,
    /// It accepted the connection.
    has_accepted_connection: bool,
    /// It accepted the message, or ended it.
    has_decided_message: bool,
    skips_body: bool,
    edits: Edits,
}

/// Values of macros: the function gets a name as the protocol writes it, such as `j` or `{auth_type}`.
pub type MacroValues<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

impl MilterSession {
    /// Begins behind the negotiation. `macros` are lists of the configuration that replace the usual ones; those that
    /// the filter names come first.
    #[must_use]
    pub fn new(agreement: Agreement, limits: EditLimits, macros: Vec<(MacroStage, Vec<Vec<u8>>)>) -> Self {
        Self {
            agreement,
            limits,
            macros,
            awaited: None,
            is_about_refused: false,
            has_accepted_connection: false,
            has_decided_message: false,
            skips_body: false,
            edits: Edits::default(),
        }
    }

    /// Returns the result of the negotiation.
    #[must_use]
    pub const fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Sends that a client connected. `name` is its host name, or its address in brackets.
    pub fn connect(
        &mut self,
        name: &[u8],
        client: ClientAddress<'_>,
        macros: MacroValues<'_>,
        out: &mut Vec<u8>,
    ) -> Sent {
        let mut data = name.to_vec();
        data.push(0);
        match client {
            ClientAddress::Ip(IpAddr::V4(address), port) => {
                data.push(b'4');
                data.extend_from_slice(&port.to_be_bytes());
                data.extend_from_slice(address.to_string().as_bytes());
                data.push(0);
            }
            ClientAddress::Ip(IpAddr::V6(address), port) => {
                data.push(b'6');
                data.extend_from_slice(&port.to_be_bytes());
                data.extend_from_slice(format!("IPv6:{address}").as_bytes());
                data.push(0);
            }
            ClientAddress::Unix(path) => {
                data.extend_from_slice(b"L\0\0");
                data.extend_from_slice(path);
                data.push(0);
            }
            ClientAddress::Unknown => data.push(b'U'),
        }
        self.step(Stage::Connect, &[&data], macros, out)
    }

    /// Sends the name of HELO or EHLO.
    pub fn helo(&mut self, name: &[u8], macros: MacroValues<'_>, out: &mut Vec<u8>) -> Sent {
        self.step(Stage::Helo, &[name, b"\0"], macros, out)
    }

    /// Begins a message: the sender within `<>`, and its ESMTP parameters.
    pub fn mail(&mut self, sender: &[u8], parameters: &[&[u8]], macros: MacroValues<'_>, out: &mut Vec<u8>) -> Sent {
        self.reset_message();
        let data = envelope(sender, parameters);
        self.step(Stage::Mail, &[&data], macros, out)
    }

    /// Sends a recipient within `<>`, and its ESMTP parameters. One that the server refuses is sent only to a filter
    /// that asked for these; `{rcpt_mailer}` is `error` then.
    pub fn recipient(
        &mut self,
        recipient: &[u8],
        parameters: &[&[u8]],
        is_refused: bool,
        macros: MacroValues<'_>,
        out: &mut Vec<u8>,
    ) -> Sent {
        if is_refused && !self.agreement.steps.has(Steps::REJECTED_RECIPIENTS) {
            return Sent::NotWanted;
        }
        let data = envelope(recipient, parameters);
        let sent = self.step(Stage::Recipient, &[&data], macros, out);
        self.is_about_refused = is_refused && sent == Sent::AwaitsReply;
        sent
    }

    /// Sends that the content begins.
    pub fn data(&mut self, macros: MacroValues<'_>, out: &mut Vec<u8>) -> Sent {
        self.step(Stage::Data, &[], macros, out)
    }

    /// Sends a header field. `value` are the octets behind the colon with CR LF in folds; folds go as LF, the last line
    /// end does not go, and one leading blank goes only to a filter that wants it.
    pub fn header(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Sent {
        let mut value = value.strip_suffix(b"\n").unwrap_or(value);
        value = value.strip_suffix(b"\r").unwrap_or(value);
        if !self.agreement.steps.has(Steps::LEADING_BLANK) {
            value = value.strip_prefix(b" ").unwrap_or(value);
        }
        let mut data = Vec::with_capacity(name.len() + value.len() + 2);
        data.extend_from_slice(name);
        data.push(0);
        for (at, &octet) in value.iter().enumerate() {
            // NUL would end the string: the filter sees a blank in its place.
            match octet {
                b'\r' if value.get(at + 1) == Some(&b'\n') => {}
                0 => data.push(b' '),
                octet => data.push(octet),
            }
        }
        data.truncate(self.agreement.data_bytes_max() - 1);
        data.push(0);
        self.step(Stage::Header, &[&data], &|_| None, out)
    }

    /// Sends that the header section has ended.
    pub fn end_of_header(&mut self, macros: MacroValues<'_>, out: &mut Vec<u8>) -> Sent {
        self.step(Stage::EndOfHeader, &[], macros, out)
    }

    /// Sends the next chunk of `body`, as much as a packet may have, and takes it off `body`. The body is that of the
    /// message, without dots doubled for SMTP. An empty body is not sent.
    pub fn body_chunk(&mut self, body: &mut &[u8], out: &mut Vec<u8>) -> Sent {
        let (chunk, rest) = body.split_at(body.len().min(self.agreement.data_bytes_max()));
        *body = rest;
        if chunk.is_empty() || self.skips_body {
            *body = &[];
            return Sent::NotWanted;
        }
        self.step(Stage::Body, &[chunk], &|_| None, out)
    }

    /// Sends that the body has ended. The filter's changes come before its answer.
    pub fn end_of_body(&mut self, macros: MacroValues<'_>, out: &mut Vec<u8>) -> Sent {
        self.step(Stage::EndOfBody, &[], macros, out)
    }

    /// Sends a command that the server does not know.
    pub fn unknown(&mut self, line: &[u8], out: &mut Vec<u8>) -> Sent {
        self.step(Stage::Unknown, &[line, b"\0"], &|_| None, out)
    }

    /// Ends the message without a result: RSET, a refusal, a lost client. The filter does not reply.
    pub fn abort(&mut self, out: &mut Vec<u8>) {
        (self.awaited, self.is_about_refused) = (None, false);
        self.reset_message();
        write_packet(out, b'A', &[]);
    }

    /// Ends the SMTP session and the connection. The protocol has a command that keeps the connection for another SMTP
    /// session (`K`); libmilter 8.17 answers nothing after it, so it is not used.
    pub fn quit(&mut self, out: &mut Vec<u8>) {
        write_packet(out, b'Q', &[]);
    }

    /// The step whose reply is awaited.
    #[must_use]
    pub const fn awaited(&self) -> Option<Stage> {
        self.awaited
    }

    /// Takes a packet of the filter.
    ///
    /// # Errors
    /// Every fault of [`MilterError`]: the driver drops the session and its edits, and applies the failure rule.
    pub fn receive(&mut self, packet: &Packet) -> Result<Received, MilterError> {
        let Some(stage) = self.awaited else {
            return Err(MilterError::Unexpected { command: packet.command, stage: "nothing" });
        };
        if packet.command == b'p' {
            return Ok(Received::Progress);
        }
        if stage == Stage::EndOfBody && self.edits.take(&self.agreement, &self.limits, packet)? {
            return Ok(Received::Edit);
        }
        let answer = self.answer(stage, packet)?;
        self.awaited = None;
        let is_about_refused = std::mem::take(&mut self.is_about_refused);
        match &answer {
            Answer::Discard if is_about_refused => return Ok(Received::Answer(Answer::Continue)),
            Answer::Accept if matches!(stage, Stage::Connect | Stage::Helo) => self.has_accepted_connection = true,
            Answer::Skip => self.skips_body = true,
            Answer::Accept | Answer::Discard => self.has_decided_message = true,
            Answer::Reject | Answer::Defer | Answer::Reply(_) => {
                self.has_decided_message |= !stage.is_of_connection() && stage != Stage::Recipient;
            }
            Answer::Continue | Answer::Shutdown | Answer::ConnectionFailed => {}
        }
        if stage == Stage::EndOfBody {
            self.has_decided_message = true;
        }
        Ok(Received::Answer(answer))
    }

    /// Takes the changes, after an answer to the end of the body that keeps the message.
    pub fn take_edits(&mut self) -> Edits {
        std::mem::take(&mut self.edits)
    }

    /// Reads an answer to `stage`.
    fn answer(&self, stage: Stage, packet: &Packet) -> Result<Answer, MilterError> {
        Ok(match packet.command {
            b'c' => Answer::Continue,
            b'a' => Answer::Accept,
            b'd' if !stage.is_of_connection() => Answer::Discard,
            b'r' => Answer::Reject,
            b't' => Answer::Defer,
            b'y' => Answer::Reply(ReplyText::read(&packet.data)?),
            b's' if stage == Stage::Body && self.agreement.steps.has(Steps::SKIP) => Answer::Skip,
            b'f' => Answer::ConnectionFailed,
            b'4' => Answer::Shutdown,
            command => return Err(MilterError::Unexpected { command, stage: stage.name() }),
        })
    }

    /// Writes a step with its macros, if the filter wants it.
    fn step(&mut self, stage: Stage, data: &[&[u8]], macros: MacroValues<'_>, out: &mut Vec<u8>) -> Sent {
        debug_assert!(self.awaited.is_none(), "a step is written while {:?} is awaited", self.awaited);
        let (command, unwanted, silent) = stage.wire();
        let is_decided = self.has_accepted_connection || (self.has_decided_message && !stage.is_of_connection());
        if is_decided {
            return Sent::NotWanted;
        }
        // Macros go also with a step that the filter does not want: it may ask for them at a later one.
        if let Some(macro_stage) = stage.macros() {
            let of = |lists: &[(MacroStage, Vec<Vec<u8>>)]| -> Option<Vec<Vec<u8>>> {
                lists.iter().find(|(of_stage, _)| *of_stage == macro_stage).map(|(_, names)| names.clone())
            };
            match of(&self.agreement.macros).or_else(|| of(&self.macros)) {
                Some(names) => write_macros(out, macro_stage, names.iter().map(Vec::as_slice), macros),
                None => write_macros(out, macro_stage, macro_stage.usual().iter().map(|name| name.as_bytes()), macros),
            }
        }
        if unwanted.0 != 0 && self.agreement.steps.has(unwanted) {
            return Sent::NotWanted;
        }
        write_packet(out, command, data);
        if silent.0 != 0 && self.agreement.steps.has(silent) {
            return Sent::WithoutReply;
        }
        self.awaited = Some(stage);
        Sent::AwaitsReply
    }

    /// Forgets what belongs to one message.
    fn reset_message(&mut self) {
        self.has_decided_message = false;
        self.skips_body = false;
        self.edits = Edits::default();
    }
}

/// Joins an address and its parameters, each with NUL. Arguments of SMTP commands have none.
fn envelope(address: &[u8], parameters: &[&[u8]]) -> Vec<u8> {
    let mut data = address.to_vec();
    data.push(0);
    for parameter in parameters {
        data.extend_from_slice(parameter);
        data.push(0);
    }
    data
}
