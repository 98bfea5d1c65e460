//! Filters that take mail by SMTP or LMTP and give it back by SMTP: the session in which a filter gets one message.
//!
//! | The filter | Outcome |
//! |---|---|
//! | gives the message back, then answers 250 | the message passes, as it came back: content, sender, recipients |
//! | answers 250 and has given nothing back | it has taken the message, and drops it or sends it on later by itself |
//! | answers 5yz to the message, or to all recipients | refused |
//! | answers 4yz | refused with it; after the 250 asked again |
//! | answers 421, closes, or says nothing in time | failed: `on_failure`; a message that came back is dropped |
//! | answers differently for some recipients | asked again after the 250; there each recipient has its answer |
//!
//! A message that comes back in several forms, each for some recipients, counts in its first form. The other
//! recipients wait and are asked about again. Only a later question can tell that they are many, so this is for
//! messages after the 250; before it such a message is stored first and asked about anew.

use super::connection::{FilterConnection, FilterError};
use super::content::{FilterContent, OwnFields};
use super::facts::FilterFacts;
use super::outcome::{FilterDecision, FilterOutcome};
use super::pool::PooledFilter;
use super::reinjection::{FilterQuestion, Reinjections, ReturnedMessage};
use super::settings::FilterSettings;
use super::trace_token::TRACE_FIELD;
use super::verdict::FilterVerdict;
use crate::config::FilterKind;
use bytes::Bytes;
use filter::milter::Edit;
use filter::smtp_filter::{ForwardedClient, SmtpOffers, mail_command, xforward};
use mail::{Address, QueueId, Reply, ReplyClass, ReversePath};
use smtp::client::{ClientLimits, ReplyStream, data_octets};
use std::collections::HashSet;
use std::sync::Arc;

/// The message that a filter gets.
#[derive(Debug)]
pub(super) struct HandedMessage<'a> {
    pub(super) facts: &'a FilterFacts,
    /// The sender without brackets; empty for the null sender.
    pub(super) sender: String,
    pub(super) recipients: Vec<Address>,
    pub(super) content: &'a FilterContent,
    /// The filters that it has passed, the one that is asked last.
    pub(super) filters: Vec<String>,
    /// It is in the spool, so that each recipient may have an answer of its own.
    pub(super) is_stored: bool,
}

/// Octets of one reply.
const REPLY_BYTES_MAX: usize = 16 << 10;

/// A recipient and its refusal; `None`: its mail was taken.
type RecipientAnswer = (Address, Option<Reply>);

impl<'a> HandedMessage<'a> {
    /// Makes the message with the changes of the filters before.
    pub(super) fn new(
        facts: &'a FilterFacts,
        content: &'a FilterContent,
        so_far: &FilterVerdict,
        filters: Vec<String>,
        is_stored: bool,
    ) -> Self {
        let asked = facts.recipients.iter().filter_map(|text| text.parse::<Address>().ok());
        let stays = |one: &Address| !so_far.removed.iter().any(|gone| gone.key() == one.key());
        let recipients = match so_far.redirects.as_slice() {
            [] => asked.filter(stays).chain(so_far.copies.iter().cloned()).collect(),
            redirects => redirects.to_vec(),
        };
        let sender = match &so_far.sender {
            None => facts.sender.clone(),
            Some(ReversePath::Null) => String::new(),
            Some(ReversePath::Address(address)) => address.to_string(),
        };
        Self { facts, sender, recipients, content, filters, is_stored }
    }
}

/// Asks a filter about a message, and waits for its answer.
///
/// # Errors
/// It gave no answer, or no SMTP server answers.
/// # Cancel safety
/// Yes: the connection is dropped, and what came back is forgotten.
pub(super) async fn hand_over(
    filter: &PooledFilter,
    reinjections: &Arc<Reinjections>,
    message: &HandedMessage<'_>,
) -> Result<FilterOutcome, FilterError> {
    let mut dialog = FilterDialog::open(&filter.settings, &message.facts.hostname).await?;
    filter.note_opened();
    let content = Bytes::from(message.content.whole());
    let mut answers = dialog.envelope(message, &content).await?;
    let is_partial = answers.iter().any(|(_, answer)| answer.is_some());
    let is_for_none = answers.iter().all(|(_, answer)| answer.is_some());
    if is_for_none || is_partial && !message.is_stored {
        dialog.quit().await;
        return Ok(outcome_of(message, answers, Vec::new()));
    }
    let accepted: Vec<Address> = taken(&answers).cloned().collect();
    let id = message.facts.queue_id.parse().unwrap_or(QueueId::MIN);
    let question = reinjections.begin(id, &message.filters, &accepted);
    dialog.content(&mut answers, &question, content).await?;
    // A message that comes back from now on is mail of its own.
    let returned = if taken(&answers).next().is_some() { question.end() } else { Vec::new() };
    dialog.quit().await;
    Ok(outcome_of(message, answers, returned))
}

/// Asks whether an SMTP server is there.
///
/// # Errors
/// As [`hand_over`].
pub(super) async fn ping(settings: &FilterSettings, hostname: &str) -> Result<(), FilterError> {
    FilterDialog::open(settings, hostname).await?.quit().await;
    Ok(())
}

fn reply_limits() -> ClientLimits {
    ClientLimits { reply_octets: REPLY_BYTES_MAX, ..ClientLimits::default() }
}

fn taken(answers: &[RecipientAnswer]) -> impl Iterator<Item = &Address> {
    answers.iter().filter(|(_, answer)| answer.is_none()).map(|(address, _)| address)
}

/// The session with a filter.
#[derive(Debug)]
struct FilterDialog {
    connection: FilterConnection,
    replies: ReplyStream,
    offers: SmtpOffers,
    is_lmtp: bool,
}

impl FilterDialog {
    async fn open(settings: &FilterSettings, hostname: &str) -> Result<Self, FilterError> {
        let is_lmtp = settings.kind == FilterKind::Lmtp;
        let connection = FilterConnection::open(settings).await?;
        let (replies, offers) = (ReplyStream::strict(reply_limits()), SmtpOffers::default());
        let mut dialog = Self { connection, replies, offers, is_lmtp };
        let greeting = dialog.reply("greeting").await?;
        expect("greeting", &greeting, 220)?;
        let (stage, word) = if is_lmtp { ("lhlo", "LHLO") } else { ("ehlo", "EHLO") };
        let hello = dialog.command(stage, &format!("{word} {hostname}")).await?;
        expect(stage, &hello, 250)?;
        dialog.offers = SmtpOffers::of(&hello);
        Ok(dialog)
    }

    /// Names client, sender and recipients. Returns the answer for each recipient.
    async fn envelope(
        &mut self,
        message: &HandedMessage<'_>,
        content: &[u8],
    ) -> Result<Vec<RecipientAnswer>, FilterError> {
        let facts = message.facts;
        let client = ForwardedClient {
            client: facts.client,
            name: facts.client_name.as_deref(),
            helo: &facts.helo,
            protocol: &facts.protocol,
            queue_id: &facts.queue_id,
        };
        for command in xforward(&self.offers, &client) {
            // A filter that refuses it knows less about the client.
            self.command("xforward", &command).await?;
        }
        let command = mail_command(&self.offers, &message.sender, &message.recipients, content);
        let reply = self.command("mail", &command).await?;
        if let Some(refusal) = refusal(reply) {
            return Ok(message.recipients.iter().map(|one| (one.clone(), Some(refusal.clone()))).collect());
        }
        let mut answers = Vec::with_capacity(message.recipients.len());
        for recipient in &message.recipients {
            let reply = self.command("rcpt", &format!("RCPT TO:<{recipient}>")).await?;
            answers.push((recipient.clone(), refusal(reply)));
        }
        Ok(answers)
    }

    /// Sends the content, and waits for the answer to it.
    async fn content(
        &mut self,
        answers: &mut [RecipientAnswer],
        question: &FilterQuestion,
        content: Bytes,
    ) -> Result<(), FilterError> {
        let reply = self.command("data", "DATA").await?;
        let accepted = answers.iter_mut().filter(|(_, answer)| answer.is_none());
        if reply.code().get() != 354 {
            let refused = refusal(reply).ok_or_else(|| FilterError::new("data", "the answer is no 354"))?;
            accepted.for_each(|(_, answer)| *answer = Some(refused.clone()));
            return Ok(());
        }
        let field = format!("{TRACE_FIELD}: {}\r\n", question.token);
        self.connection.write("data", &data_octets([Bytes::from(field), content])).await?;
        if self.is_lmtp {
            // RFC 2033 §4.2: one reply for each recipient that was accepted
            for (_, answer) in accepted {
                *answer = refusal(self.reply("eom").await?);
            }
            return Ok(());
        }
        let refused = refusal(self.reply("eom").await?);
        accepted.for_each(|(_, answer)| answer.clone_from(&refused));
        Ok(())
    }

    async fn command(&mut self, stage: &'static str, command: &str) -> Result<Reply, FilterError> {
        self.connection.write(stage, format!("{command}\r\n").as_bytes()).await?;
        self.reply(stage).await
    }

    async fn reply(&mut self, stage: &'static str) -> Result<Reply, FilterError> {
        loop {
            if let Some(reply) = self.replies.next_reply().map_err(|error| FilterError::new(stage, error))? {
                // RFC 5321 §3.8: the server ends the session, whatever was asked
                return if reply.code().get() == 421 { Err(FilterError::new(stage, reply)) } else { Ok(reply) };
            }
            let octets = self.connection.read(stage).await?;
            if octets.is_empty() {
                return Err(FilterError::new(stage, "the filter closed the connection"));
            }
            self.replies.push(&octets);
        }
    }

    /// Ends the session. Failures mean nothing any more.
    async fn quit(mut self) {
        drop(self.connection.write("quit", b"QUIT\r\n").await);
    }
}

/// Returns the reply if it refuses: 4yz or 5yz. A 3yz, which answers no command but DATA, becomes a 451. `None`: 2yz.
fn refusal(reply: Reply) -> Option<Reply> {
    match reply.code().class() {
        ReplyClass::Success => None,
        ReplyClass::Transient | ReplyClass::Permanent => Some(reply),
        ReplyClass::Intermediate => {
            Some(super::outcome::reply(451, &format!("4.5.0 The filter answers {}", reply.code())))
        }
    }
}

fn expect(stage: &'static str, reply: &Reply, code: u16) -> Result<(), FilterError> {
    if reply.code().get() == code { Ok(()) } else { Err(FilterError::new(stage, reply)) }
}

/// Returns the outcome of the answers, and of the messages that came back.
fn outcome_of(
    message: &HandedMessage<'_>,
    answers: Vec<RecipientAnswer>,
    returned: Vec<ReturnedMessage>,
) -> FilterOutcome {
    let refusals: Vec<&Reply> = answers.iter().filter_map(|(_, answer)| answer.as_ref()).collect();
    let transient = refusals.iter().find(|reply| reply.code().class() == ReplyClass::Transient);
    if refusals.len() == answers.len() {
        // Without a recipient there is nothing to ask about.
        let Some(first) = transient.or_else(|| refusals.first()) else {
            return FilterOutcome::of(FilterDecision::Pass);
        };
        return FilterOutcome::of(FilterDecision::Refuse((*first).clone()));
    }
    if let (false, Some(transient)) = (message.is_stored, transient) {
        return FilterOutcome::of(FilterDecision::Refuse((*transient).clone()));
    }
    let mut outcome = match returned.split_first() {
        Some((first, others)) => outcome_of_returned(message, &answers, first, others),
        None => taken_over(message, &answers),
    };
    for (address, answer) in answers {
        match answer {
            Some(refusal) if refusal.code().class() == ReplyClass::Permanent => {
                outcome.refused.push((address, refusal))
            }
            Some(_) => outcome.undecided.push(address),
            None => {}
        }
    }
    let is_partial = !outcome.refused.is_empty()
        || !outcome.undecided.is_empty()
        || outcome.edits.iter().any(|edit| matches!(edit, Edit::DeleteRecipient { .. }));
    if is_partial && !message.is_stored {
        return FilterOutcome::of(FilterDecision::Later("its answers for the recipients differ".to_owned()));
    }
    outcome
}

/// The filter has answered 250 for some recipients, and has given nothing back.
fn taken_over(message: &HandedMessage<'_>, answers: &[RecipientAnswer]) -> FilterOutcome {
    let mut outcome = FilterOutcome::of(FilterDecision::Discard);
    if taken(answers).count() < message.recipients.len() {
        // The others have answers of their own.
        outcome = FilterOutcome::of(FilterDecision::Pass);
        outcome.edits.extend(taken(answers).map(deletion));
    }
    outcome.words = "the filter has taken it and gave nothing back".to_owned();
    outcome
}

/// The message in its first form, for those recipients for whom it came back so.
fn outcome_of_returned(
    message: &HandedMessage<'_>,
    answers: &[RecipientAnswer],
    first: &ReturnedMessage,
    others: &[ReturnedMessage],
) -> FilterOutcome {
    let mut outcome = FilterOutcome::of(FilterDecision::Pass);
    let (same, different): (Vec<_>, Vec<_>) =
        others.iter().partition(|other| other.content == first.content && other.sender == first.sender);
    let keys = |messages: &[&ReturnedMessage]| -> HashSet<_> {
        messages.iter().flat_map(|one| &one.recipients).map(Address::key).collect()
    };
    let of_first: Vec<&Address> = first.recipients.iter().chain(same.iter().flat_map(|one| &one.recipients)).collect();
    let (in_first, in_others) = (of_first.iter().map(|one| one.key()).collect::<HashSet<_>>(), keys(&different));
    for address in taken(answers).filter(|address| !in_first.contains(&address.key())) {
        match in_others.contains(&address.key()) {
            true => outcome.undecided.push(address.clone()),
            false => outcome.edits.push(deletion(address)),
        }
    }
    let asked: HashSet<_> = message.recipients.iter().map(Address::key).collect();
    let added = of_first.iter().filter(|one| !asked.contains(&one.key()));
    outcome
        .edits
        .extend(added.map(|one| Edit::AddRecipient { address: one.to_string().into_bytes(), parameters: None }));
    let sender = match &first.sender {
        ReversePath::Null => String::new(),
        ReversePath::Address(address) => address.to_string(),
    };
    if sender != message.sender {
        outcome.edits.push(Edit::ChangeSender { address: sender.into_bytes(), parameters: None });
    }
    let mut sent = message.content.whole();
    if !sent.ends_with(b"\r\n") {
        sent.extend_from_slice(b"\r\n");
    }
    if sent != first.content {
        let own_fields = OwnFields { results: 0, hidden: 0 };
        outcome.content = Some(FilterContent::read(&first.content, own_fields, true));
    }
    let changes = [
        (outcome.content.is_some(), "changed"),
        (!outcome.edits.is_empty(), "with another envelope"),
        (!different.is_empty(), "for some recipients, in another form for others"),
    ];
    let changes: Vec<&str> = changes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word).collect();
    outcome.words = ["given back", &changes.join(", ")].join(" ").trim_end().to_owned();
    outcome
}

fn deletion(address: &Address) -> Edit {
    Edit::DeleteRecipient { address: address.to_string().into_bytes() }
}
