//! Answers for who opens a link of a digest, and releases the message where he asks for that.

use super::held_mail::{facts, held_of, is_in_time};
use super::link::ReleaseLink;
use crate::dispatch::Dispatch;
use observe::{CommandBy, Event, Severity};
use operator::http::{HeldFacts, LinkAnswer};
use operator::queue::{RecipientSelection, Resubmission, ResubmitError};
use os::{blocking, clock};
use std::sync::Arc;

/// The party in the log that releases a message by a link.
const BY: &str = "digest";

/// Answers for a link. `is_release`: the message is to be released, too; it is durable with its recipient when this
/// returns.
///
/// # Cancel safety
/// Yes: a release that has begun goes on.
pub(crate) async fn answer_link(dispatch: &Arc<Dispatch>, text: &str, is_release: bool) -> LinkAnswer {
    let Some(link) = ReleaseLink::parse(text, &dispatch.context.secret) else { return LinkAnswer::Forged };
    let now_s = clock::unix_us() / 1_000_000;
    if link.ends != 0 && u64::from(link.ends) <= now_s {
        return LinkAnswer::Expired;
    }
    let spool = Arc::clone(&dispatch.spool);
    let found = blocking::run(move || {
        let held = held_of(&spool, link.id);
        let meant = held.iter().find(|one| one.position == link.position && is_in_time(**one, now_s))?;
        facts(&spool, meant)
    });
    match found.await {
        Ok(Some(held)) if is_release => release(dispatch, link, held.facts).await,
        Ok(Some(held)) => LinkAnswer::Held(Box::new(held.facts)),
        Ok(None) => LinkAnswer::Gone,
        Err(_) => LinkAnswer::Failed("The message cannot be read now".to_owned()),
    }
}

async fn release(dispatch: &Arc<Dispatch>, link: ReleaseLink, facts: HeldFacts) -> LinkAnswer {
    let meant = RecipientSelection { id: link.id, recipients: vec![link.position] };
    let released = match dispatch.resubmit_soon(Resubmission { meant, to: None }).await {
        Ok(Ok(released)) => released,
        Ok(Err(
            ResubmitError::Unreadable(why)
            | ResubmitError::Refused(why)
            | ResubmitError::NotStored(why)
            | ResubmitError::NotOwned(why),
        )) => return failed(dispatch, link, &why),
        Err(_) => return LinkAnswer::Failed("The server stops".to_owned()),
    };
    // Another request, or an operator, was faster.
    let Some(copy) = released.copy else { return LinkAnswer::Gone };
    let to = format!("<{}>", facts.recipient);
    dispatch.context.record(&Event::QueueCommand {
        id: Some(link.id),
        what: "release",
        messages: 1,
        recipients: 1,
        by: CommandBy::Token(BY),
        copy: Some(copy),
        to: Some(&to),
    });
    LinkAnswer::Released(Box::new(facts))
}

/// The reason is for the operator: a recipient cannot do anything about it.
fn failed(dispatch: &Dispatch, link: ReleaseLink, why: &str) -> LinkAnswer {
    let text = format!("message {} is not released by the link of its digest: {why}", link.id);
    dispatch.context.record(&Event::Spool { severity: Severity::Error, text: &text });
    LinkAnswer::Failed("The server cannot do it now".to_owned())
}
