//! A message on its way from a program into the pickup directory: completed, counted, written.

use super::arguments::{Came, Delivery, SendmailArguments};
use super::exit;
use super::options::Limits;
use super::site::{Site, Trouble};
use mail::submission::{Completion, Draft, HEADER_BYTES_MAX, HeaderRecipients};
use mail::{AddressError, Recipient, RecipientParams, ReversePath};
use os::clock;
use server::submit::{Filed, Filing, Submission, Terms};
use std::collections::HashSet;

/// A message that is being read.
#[derive(Debug)]
pub(super) struct Composer<'a> {
    site: &'a Site,
    submission: Submission,
    recipient_params: RecipientParams,
    full_name: String,
    takes_recipients: bool,
    /// `-h`
    hops: usize,
    came: Came,
    is_gateway: bool,
    message_bytes_max: u64,
    header_bytes_max: usize,
    hops_max: usize,
    /// Content that has not been written: the header section while it comes; all of it where the message has no
    /// recipient.
    pending: Vec<u8>,
    is_header_done: bool,
    filing: Option<Filing>,
    bad: Vec<(String, AddressError)>,
    bytes: u64,
}

/// A message that was read.
#[derive(Debug)]
pub(super) enum Composed {
    /// It can be handed in.
    Filing(Box<Filing>),
    /// It has no recipient. The text that was read.
    Nobody(Vec<u8>),
}

/// How a message is to be composed.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) submission: Submission,
    /// For recipients from the header.
    pub(super) recipient_params: RecipientParams,
    pub(super) full_name: Option<String>,
    pub(super) takes_recipients: bool,
    pub(super) hops: usize,
    /// How it came here, for a trace field.
    pub(super) came: Came,
    /// Nothing is added to it.
    pub(super) is_gateway: bool,
    pub(super) limits: Limits,
}

impl Manner {
    /// As the command line says.
    pub(super) fn new(submission: Submission, arguments: &SendmailArguments) -> Self {
        Self {
            submission,
            recipient_params: arguments.recipient_params.clone(),
            full_name: arguments.full_name.clone(),
            takes_recipients: arguments.takes_recipients,
            hops: arguments.hops,
            came: arguments.came.clone(),
            is_gateway: arguments.is_gateway,
            limits: arguments.limits,
        }
    }
}

/// Returns the properties of messages beside their envelopes.
pub(super) fn terms(arguments: &SendmailArguments) -> Terms {
    Terms { queue: arguments.delivery == Delivery::Queue, tag: arguments.tag.clone() }
}

impl<'a> Composer<'a> {
    pub(super) fn new(site: &'a Site, manner: Manner) -> Self {
        let Manner { submission, recipient_params, full_name, takes_recipients, hops, came, is_gateway, limits } =
            manner;
        // The caller may set lower limits than the server's.
        let (message, most) = (&site.config.message, |max: u64| usize::try_from(max).unwrap_or(usize::MAX));
        let message_bytes_max = limits.message_bytes.unwrap_or(u64::MAX).min(message.size_max);
        let hops_max = limits.hops.unwrap_or(usize::MAX).min(most(message.hops_max.into()));
        let header_bytes_max = limits.header_bytes.unwrap_or(usize::MAX).min(HEADER_BYTES_MAX);
        // The name of the account belongs to its own address alone.
        let account_name = if submission.is_chosen { String::new() } else { site.full_name.clone() };
        Self {
            site,
            submission,
            recipient_params,
            full_name: full_name.unwrap_or(account_name),
            takes_recipients,
            hops,
            came,
            is_gateway,
            message_bytes_max,
            header_bytes_max,
            hops_max,
            pending: Vec::new(),
            is_header_done: false,
            filing: None,
            bad: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes content with CRLF at the end of each line.
    ///
    /// # Errors
    /// It is too large, has come around too often, or cannot be written.
    pub(super) fn push(&mut self, content: &[u8]) -> Result<(), Trouble> {
        self.bytes += content.len() as u64;
        let max = self.message_bytes_max;
        if self.bytes > max {
            return Err((exit::UNAVAILABLE, format!("Message exceeds maximum fixed size ({max})")));
        }
        match &mut self.filing {
            Some(filing) => filing.write(content).map_err(|error| not_written(self.site, &error)),
            None => {
                let searched = self.pending.len().saturating_sub(3);
                self.pending.extend_from_slice(content);
                let new = self.pending.get(searched..).unwrap_or_default();
                let has_end = new.windows(4).any(|four| four == b"\r\n\r\n") || self.pending.starts_with(b"\r\n");
                if !self.is_header_done && has_end {
                    return self.end_header();
                }
                self.check_header(if self.is_header_done { 0 } else { self.pending.len() })
            }
        }
    }

    fn check_header(&self, bytes: usize) -> Result<(), Trouble> {
        let max = self.header_bytes_max;
        if bytes <= max { Ok(()) } else { Err((exit::UNAVAILABLE, format!("Headers too large ({max} max)"))) }
    }

    fn end_header(&mut self) -> Result<(), Trouble> {
        self.is_header_done = true;
        let pending = std::mem::take(&mut self.pending);
        let draft = Draft::read(&pending);
        self.check_header(draft.body_offset())?;
        let (hops, max) = (draft.hops() + self.hops, self.hops_max);
        if hops > max {
            return Err((
                exit::UNAVAILABLE,
                format!("Too many hops {hops} ({max} max): from {}", self.submission.sender),
            ));
        }
        if self.takes_recipients {
            let HeaderRecipients { addresses, bad, .. } = draft.recipients(&self.site.host);
            let mut known: HashSet<String> =
                self.submission.recipients.iter().map(|one| one.address.to_string()).collect();
            let new = addresses.into_iter().filter(|address| known.insert(address.to_string()));
            let params = &self.recipient_params;
            self.submission.recipients.extend(new.map(|address| Recipient { address, params: params.clone() }));
            self.bad = bad;
        }
        let unix_us = clock::unix_us();
        let from = match &self.submission.sender {
            ReversePath::Address(address) => address.to_string(),
            ReversePath::Null => format!("MAILER-DAEMON@{}", self.site.host),
        };
        let completion = Completion {
            host: &self.site.host,
            from: &from,
            full_name: &self.full_name,
            unix_us,
            offset_seconds: clock::local_offset_seconds(unix_us),
            unique: &format!("{unix_us}.{}", std::process::id()),
            takes_recipients: self.takes_recipients,
        };
        let mut header = self.trace(unix_us);
        header.extend(if self.is_gateway { draft.relayed() } else { draft.complete(&completion) });
        let body = pending.get(draft.body_offset()..).unwrap_or_default();
        if self.submission.recipients.is_empty() {
            self.pending = [header.as_slice(), body].concat();
            return Ok(());
        }
        let site = self.site;
        let directory = site.directory()?;
        let uid = rustix::process::getuid().as_raw();
        server::submit::room_for(directory, uid).map_err(|why| (exit::LATER, why))?;
        let begin = || {
            let mut filing = Filing::begin(directory, &self.submission)?;
            filing.write(&header)?;
            filing.write(body)?;
            Ok(filing)
        };
        self.filing = Some(begin().map_err(|error| not_written(site, &error))?);
        Ok(())
    }

    /// The field that says how the message came to the program that hands it in.
    // RFC 5321 §4.4
    fn trace(&self, unix_us: u64) -> Vec<u8> {
        let Came { protocol, host } = &self.came;
        if protocol.is_empty() && host.is_empty() {
            return Vec::new();
        }
        let user = &self.site.user;
        let from = match host.as_str() {
            "" => format!("(from {user}@localhost)"),
            host => format!("from {host} ({user}@localhost)"),
        };
        let with = if protocol.is_empty() { String::new() } else { format!(" with {protocol}") };
        let date = mail::submission::date(unix_us, clock::local_offset_seconds(unix_us));
        format!("Received: {from}\r\n\tby {} (mailrace){with}; {date}\r\n", self.site.host).into_bytes()
    }

    /// Ends the message. Returns it with the words that are no recipients.
    ///
    /// # Errors
    /// As [`Composer::push`].
    pub(super) fn finish(mut self) -> Result<(Composed, Vec<(String, AddressError)>), Trouble> {
        if !self.is_header_done {
            self.end_header()?;
        }
        let composed = match self.filing {
            Some(filing) => Composed::Filing(Box::new(filing)),
            None => Composed::Nobody(self.pending),
        };
        Ok((composed, self.bad))
    }
}

/// Makes a file durable.
///
/// # Errors
/// It cannot be: the mail is not accepted.
pub(super) fn commit(site: &Site, filing: Filing) -> Result<Filed, Trouble> {
    filing.commit().map_err(|error| not_written(site, &error))
}

fn not_written(site: &Site, error: &std::io::Error) -> Trouble {
    use std::io::ErrorKind;
    let directory = site.config.submit.directory.as_deref().unwrap_or_else(|| std::path::Path::new("")).display();
    match error.kind() {
        ErrorKind::NotFound => (
            exit::CANNOT_CREATE,
            format!(
                "{directory}: there is no such directory; mailrace makes it when it starts, submit.directory names another"
            ),
        ),
        ErrorKind::PermissionDenied => {
            (exit::NO_PERMISSION, format!("{directory}: {error}; it must have mode 3733, and everybody must get to it"))
        }
        _ => (exit::IO, format!("{directory}: {error}; the message was not accepted")),
    }
}
