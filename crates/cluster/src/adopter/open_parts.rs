//! Parts of adoptions that an earlier start of this node began and perhaps did not end.
//!
//! Only this node can end them, also where nothing else makes it watch the stream: a node that adopted since owner and
//! holder were both gone, and starts again when one of them is back. The claims tell them, once at each start.
//!
//! The store lists about 1,000 keys at a time. If it gives no list of all claims, those of each owner are asked for.

use crate::action::{Action, Purpose, Token};
use crate::claim::Claim;
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{CLAIM_PREFIX, NodeId, StreamId};
use crate::settings::Settings;
use std::collections::BTreeSet;
use std::time::Duration;

/// The question for such parts.
#[derive(Debug)]
pub(crate) struct OpenParts {
    /// When the claims are asked for; `None` once they are known.
    ask_at: Option<Duration>,
    attempt: u64,
    /// The owners that are left, the next one last; `None` while all claims are asked for at once.
    owners: Option<Vec<NodeId>>,
    found: Vec<StreamId>,
}

impl OpenParts {
    pub(crate) fn new(now: Duration, settings: &Settings) -> Self {
        Self { ask_at: (settings.copies > 1).then_some(now), attempt: 0, owners: None, found: Vec::new() }
    }

    /// Returns the question when it is due.
    pub(crate) fn poll(&mut self, now: Duration, settings: &Settings) -> Option<Action> {
        if now < self.ask_at? {
            return None;
        }
        self.attempt += 1;
        self.ask_at = Some(now + settings.append_timeout);
        let token = Token { purpose: Purpose::AdopterParts, attempt: self.attempt };
        let owner = self.owners.as_ref().and_then(|owners| owners.last());
        let prefix = owner.map_or_else(|| CLAIM_PREFIX.to_owned(), |owner| format!("{CLAIM_PREFIX}{}/", owner.0));
        Some(Action::Coordinate { token, request: CoordinationRequest::List { prefix } })
    }

    /// Takes the answer to a question. `streams` are all streams that the engine lists.
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        settings: &Settings,
        streams: &BTreeSet<StreamId>,
        attempt: u64,
        reply: CoordinationReply,
    ) {
        // A late list of all claims is as good as a new one; that of an owner must be of the owner asked for.
        if self.ask_at.is_none() || self.owners.is_some() && attempt != self.attempt {
            return;
        }
        match reply {
            CoordinationReply::Listed(claims) => self.look(settings, &claims),
            _ => {
                self.ask_at = Some(now + settings.tail_interval);
                if self.owners.is_none() && !streams.is_empty() {
                    let owners: BTreeSet<NodeId> = streams.iter().map(|stream| stream.owner).collect();
                    self.owners = Some(owners.into_iter().collect());
                }
                return;
            }
        }
        let owners = self.owners.as_mut();
        let is_last = owners.is_none_or(|owners| {
            owners.pop();
            owners.is_empty()
        });
        self.ask_at = (!is_last).then_some(now);
    }

    fn look(&mut self, settings: &Settings, claims: &[KeyValue]) {
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

    /// True once the claims are known.
    pub(crate) const fn is_known(&self) -> bool {
        self.ask_at.is_none()
    }

    /// Streams with such parts, found since the last call.
    pub(crate) fn take_found(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.found)
    }

    pub(crate) const fn wake_at(&self) -> Option<Duration> {
        self.ask_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{ClusterId, Epoch, Incarnation};

    const NOW: Duration = Duration::from_secs(100);

    fn asked(action: Option<Action>) -> Option<(u64, String)> {
        match action? {
            Action::Coordinate { token, request: CoordinationRequest::List { prefix } } => {
                Some((token.attempt, prefix))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_claims_of_each_owner_are_asked_for_where_those_of_all_are_too_many() {
        let settings = Settings::new(ClusterId([1; 16]), NodeId(2), Incarnation(5), 1);
        let stream = |owner| StreamId { owner: NodeId(owner), holder: NodeId(9), generation: 0 };
        let streams: BTreeSet<StreamId> = [1, 3].map(stream).into();
        let claim = Claim { epoch: Epoch(1), adopter: Some(NodeId(2)), adopted_upto: 7, lives: Vec::new() };
        let open = |owner| KeyValue { key: stream(owner).claim_key(), value: claim.write(), revision: 1 };
        let mut parts = OpenParts::new(NOW, &settings);
        let mut now = NOW;
        let mut prefixes = Vec::new();
        while let Some((attempt, prefix)) = asked(parts.poll(now, &settings)) {
            let owner = prefix.strip_prefix(CLAIM_PREFIX).unwrap().trim_end_matches('/').parse::<u16>().ok();
            let is_repeated = prefixes.last() == Some(&prefix);
            let reply = match owner {
                Some(owner) if is_repeated => CoordinationReply::Listed(vec![open(owner)]),
                _ => CoordinationReply::Unknown,
            };
            prefixes.push(prefix);
            if owner.is_some() {
                // An answer that is late is of another owner.
                parts.answered(now, &settings, &streams, attempt - 1, CoordinationReply::Listed(vec![open(8)]));
            }
            parts.answered(now, &settings, &streams, attempt, reply);
            now += settings.tail_interval;
            assert!(prefixes.len() < 9, "{prefixes:?}");
        }
        assert_eq!(prefixes, ["claim/", "claim/3/", "claim/3/", "claim/1/", "claim/1/"]);
        assert!(parts.is_known());
        assert_eq!(parts.take_found(), [3, 1].map(stream));
    }
}
