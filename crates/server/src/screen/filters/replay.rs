//! Asks filters about a message that is in the spool, as if its client came again: all steps of a session, then the
//! content.
//!
//! The session is made from the stored envelope, so its recipients are those after aliases. A refusal of a recipient
//! concerns that recipient; a refusal at any other step, or of the content, concerns the message. A filter that cannot
//! judge the message, or answers 4yz, is asked again later, and with it those before it: no change of theirs counts.

use super::content::FilterContent;
use super::facts::FilterFacts;
use super::outcome::FilterDecision;
use super::pool::PooledFilter;
use super::reinjection::Reinjections;
use super::session::{FilterNote, FilterSession, FilterStep, StepVerdict};
use super::verdict::FilterVerdict;
use mail::{Address, Reply, ReplyClass};
use std::sync::Arc;

/// A refusal, 5yz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterRefusal {
    /// The filter's name.
    pub(crate) filter: String,
    /// Its address.
    pub(crate) address: String,
    /// Its reply.
    pub(crate) reply: Reply,
}

/// The answer of filters about a message in the spool.
#[derive(Clone, Debug)]
pub(crate) enum ReplayAnswer {
    /// They have judged it.
    Judged {
        /// Decision and changes, for the recipients that are not refused.
        verdict: Box<FilterVerdict>,
        /// Refused recipients by their number in the message.
        refused: Vec<(usize, FilterRefusal)>,
        /// The numbers of recipients that have no answer: the filters are asked about them again.
        undecided: Vec<usize>,
    },
    /// One refuses the message.
    Refused(FilterRefusal),
    /// One is to be asked later.
    Later {
        /// The filter's name.
        filter: String,
        /// The reason.
        error: String,
        /// The filter does not work. Otherwise it answered 4yz about this message.
        is_failure: bool,
    },
}

/// Asks filters about a message in the spool, whose envelope is in `facts`, and applies their changes to `content`.
/// `has_helo`: its client gave a name. Returns their answer and their decisions, for the log.
///
/// # Cancel safety
/// Yes: filters forget the message.
pub(crate) async fn replay(
    filters: &[Arc<PooledFilter>],
    mut facts: FilterFacts,
    has_helo: bool,
    content: &mut FilterContent,
    reinjections: &Arc<Reinjections>,
) -> (ReplayAnswer, Vec<FilterNote>) {
    let mut session = FilterSession::for_replay(filters, reinjections);
    let answer = ask_all(&mut session, &mut facts, has_helo, content).await;
    let notes = session.take_notes();
    session.quit().await;
    (answer, notes)
}

async fn ask_all(
    session: &mut FilterSession,
    facts: &mut FilterFacts,
    has_helo: bool,
    content: &mut FilterContent,
) -> ReplayAnswer {
    let recipients = std::mem::take(&mut facts.recipients);
    let before: &[FilterStep] = match has_helo {
        true => &[FilterStep::Connect, FilterStep::Helo, FilterStep::Mail],
        false => &[FilterStep::Connect, FilterStep::Mail],
    };
    for step in before {
        if let Some(answer) = ask(session, *step, facts).await {
            return answer;
        }
    }
    let mut refused = Vec::new();
    for (number, recipient) in recipients.iter().enumerate() {
        facts.recipient.clone_from(recipient);
        match ask(session, FilterStep::Recipient, facts).await {
            None => facts.recipients.push(recipient.clone()),
            Some(ReplayAnswer::Refused(refusal)) => refused.push((number, refusal)),
            Some(answer) => return answer,
        }
    }
    if facts.recipients.is_empty() {
        return ReplayAnswer::Judged { verdict: Box::default(), refused, undecided: Vec::new() };
    }
    if let Some(answer) = ask(session, FilterStep::Data, facts).await {
        return answer;
    }
    let mut verdict = Box::pin(session.content(content, facts.size, facts)).await;
    if let Some((filter, error)) = verdict.later.first().cloned() {
        return ReplayAnswer::Later { filter, error, is_failure: true };
    }
    match &verdict.decision {
        Some((filter, address, FilterDecision::Refuse(reply) | FilterDecision::Close(reply))) => {
            refusal(filter.clone(), address.clone(), reply.clone())
        }
        _ => {
            let number = |of: &Address| {
                let is_same = |text: &String| text.parse::<Address>().is_ok_and(|one| one.key() == of.key());
                recipients.iter().position(is_same)
            };
            let by_filter = std::mem::take(&mut verdict.refused).into_iter();
            refused.extend(by_filter.filter_map(|(of, filter, address, reply)| {
                Some((number(&of)?, FilterRefusal { filter, address, reply }))
            }));
            let undecided = verdict.undecided.iter().filter_map(number).collect();
            ReplayAnswer::Judged { verdict: Box::new(verdict), refused, undecided }
        }
    }
}

/// Asks at a step; `None`: go on.
async fn ask(session: &mut FilterSession, step: FilterStep, facts: &FilterFacts) -> Option<ReplayAnswer> {
    match session.step(step, facts).await {
        StepVerdict::Continue => {
            let (filter, error) = session.failed_filter()?;
            Some(ReplayAnswer::Later { filter, error, is_failure: true })
        }
        StepVerdict::Refuse(reply) | StepVerdict::Close(reply) => {
            // A filter that refuses has said so last.
            let by = session.last_note().map(|note| (note.filter.clone(), note.address.clone()));
            let (filter, address) = by.unwrap_or_default();
            Some(refusal(filter, address, reply))
        }
    }
}

fn refusal(filter: String, address: String, reply: Reply) -> ReplayAnswer {
    match reply.code().class() {
        ReplyClass::Permanent => ReplayAnswer::Refused(FilterRefusal { filter, address, reply }),
        _ => ReplayAnswer::Later { filter, error: reply.to_string(), is_failure: false },
    }
}
