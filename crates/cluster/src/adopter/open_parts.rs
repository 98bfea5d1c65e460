//! Parts of adoptions that an earlier start of this node began and perhaps did not end.
//!
//! Only this node can end them, also where nothing else makes it watch the stream: a node that adopted since owner and
//! holder were both gone, and starts again when one of them is back. The claims tell them, once at each start.

use crate::action::{Action, Purpose, Token};
use crate::claim::Claim;
use crate::coordination::{CoordinationReply, CoordinationRequest};
use crate::identity::{CLAIM_PREFIX, StreamId};
use crate::settings::Settings;
use std::time::Duration;

/// The question for such parts.
#[derive(Debug)]
pub(crate) struct OpenParts {
    /// When the claims are asked for; `None` once they are known.
    ask_at: Option<Duration>,
    attempt: u64,
    found: Vec<StreamId>,
}

impl OpenParts {
    pub(crate) fn new(now: Duration, settings: &Settings) -> Self {
        Self { ask_at: (settings.copies > 1).then_some(now), attempt: 0, found: Vec::new() }
    }

    /// Returns the question when it is due.
    pub(crate) fn poll(&mut self, now: Duration, settings: &Settings) -> Option<Action> {
        if now < self.ask_at? {
            return None;
        }
        self.attempt += 1;
        self.ask_at = Some(now + settings.append_timeout);
        let token = Token { purpose: Purpose::AdopterParts, attempt: self.attempt };
        Some(Action::Coordinate { token, request: CoordinationRequest::List { prefix: CLAIM_PREFIX.to_owned() } })
    }

    /// Takes the answer.
    pub(crate) fn answered(&mut self, settings: &Settings, reply: CoordinationReply) {
        let (CoordinationReply::Listed(claims), Some(_)) = (reply, self.ask_at) else { return };
        self.ask_at = None;
        for claim in claims {
            let (stream, claim) = (StreamId::parse_claim_key(&claim.key), Claim::read(&claim.value));
            if let (Some(stream), Some(claim)) = (stream, claim)
                && claim.adopter == Some(settings.node)
                && claim.adopted_upto > 0
            {
                self.found.push(stream);
            }
        }
    }

    /// Streams with such parts, found since the last call.
    pub(crate) fn take_found(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.found)
    }

    pub(crate) const fn wake_at(&self) -> Option<Duration> {
        self.ask_at
    }
}
