//! A message on its way from a program into the pickup directory: completed, counted, written.

use super::exit;
use super::site::{Site, Trouble};
use mail::submission::{Completion, Draft, HEADER_BYTES_MAX, Named};
use mail::{AddressError, Recipient, RecipientParams, ReversePath};
use server::env::clock;
use server::submit::{Filed, Filing, Submission};
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
    /// Content that has not been written: the header section while it comes; all of it where nobody gets it.
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
    /// It is for nobody. What there is of it.
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
}

impl<'a> Composer<'a> {
    pub(super) fn new(site: &'a Site, manner: Manner) -> Self {
        let Manner { submission, recipient_params, full_name, takes_recipients, hops } = manner;
        // The name of the account belongs to its own address alone.
        let account_name = if submission.is_chosen { String::new() } else { site.full_name.clone() };
        Self {
            site,
            submission,
            recipient_params,
            full_name: full_name.unwrap_or(account_name),
            takes_recipients,
            hops,
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
        let max = self.site.config.message.size_max;
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
                if !self.is_header_done && self.pending.len() > HEADER_BYTES_MAX {
                    let text = format!("Headers too large ({HEADER_BYTES_MAX} max)");
                    return Err((exit::UNAVAILABLE, text));
                }
                Ok(())
            }
        }
    }

    fn end_header(&mut self) -> Result<(), Trouble> {
        self.is_header_done = true;
        let pending = std::mem::take(&mut self.pending);
        let draft = Draft::read(&pending);
        let (hops, max) = (draft.hops() + self.hops, self.site.config.message.hops_max);
        if hops > usize::try_from(max).unwrap_or(usize::MAX) {
            return Err((
                exit::UNAVAILABLE,
                format!("Too many hops {hops} ({max} max): from {}", self.submission.sender),
            ));
        }
        if self.takes_recipients {
            let Named { addresses, bad, .. } = draft.recipients(&self.site.host);
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
        let header = draft.complete(&completion);
        let body = pending.get(draft.body_offset()..).unwrap_or_default();
        if self.submission.recipients.is_empty() {
            self.pending = [header.as_slice(), body].concat();
            return Ok(());
        }
        let site = self.site;
        let directory = site.directory()?;
        let begin = || {
            let mut filing = Filing::begin(directory, &self.submission)?;
            filing.write(&header)?;
            filing.write(body)?;
            Ok(filing)
        };
        self.filing = Some(begin().map_err(|error| not_written(site, &error))?);
        Ok(())
    }

    /// The message has ended. What is no recipient comes with it.
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
