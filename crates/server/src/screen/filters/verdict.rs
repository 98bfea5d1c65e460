//! The joined decision and changes of all filters on a message.

use super::content::FilterContent;
use super::outcome::{FilterDecision, FilterOutcome};
use super::settings::FilterSettings;
use filter::milter::Edit;
use mail::{Address, Reply, ReversePath};

/// The decision of all filters on a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterVerdict {
    /// The first decision other than to pass, with the filter's name and address.
    pub(crate) decision: Option<(String, String, FilterDecision)>,
    /// Whether header section or body changed.
    pub(crate) is_changed: bool,
    /// Whether the body changed.
    pub(crate) has_new_body: bool,
    /// Recipients to add.
    pub(crate) copies: Vec<Address>,
    /// Recipients to remove.
    pub(crate) removed: Vec<Address>,
    /// Addresses that get it in place of its recipients.
    pub(crate) redirects: Vec<Address>,
    /// The new sender.
    pub(crate) sender: Option<ReversePath>,
    /// Recipients that a filter refuses, with its name, its address and its reply.
    pub(crate) refused: Vec<(Address, String, String, Reply)>,
    /// Recipients without an answer: filters are asked about them again.
    pub(crate) undecided: Vec<Address>,
    /// Filters that could not judge the message and are to be asked later, each with its failure.
    pub(crate) later: Vec<(String, String)>,
}

impl FilterVerdict {
    /// Takes the outcome of one filter, and applies its changes.
    pub(super) fn take(&mut self, settings: &FilterSettings, outcome: FilterOutcome, content: &mut FilterContent) {
        let address = |text: &[u8]| {
            let text = text.strip_prefix(b"<").and_then(|text| text.strip_suffix(b">")).unwrap_or(text);
            Address::parse(text).ok()
        };
        if let FilterDecision::Later(error) = outcome.decision {
            self.later.push((settings.name.clone(), error));
            return;
        }
        let keeps =
            matches!(outcome.decision, FilterDecision::Pass | FilterDecision::Quarantine(_) | FilterDecision::Hold(_));
        if outcome.decision != FilterDecision::Pass {
            self.decision = Some((settings.name.clone(), settings.address.to_string(), outcome.decision));
        }
        if !keeps {
            return;
        }
        let (name, place) = (&settings.name, settings.address.to_string());
        let refused = outcome.refused.into_iter();
        self.refused.extend(refused.map(|(address, reply)| (address, name.clone(), place.clone(), reply)));
        self.undecided.extend(outcome.undecided);
        if let Some(given_back) = outcome.content {
            self.has_new_body |= given_back.body() != content.body();
            self.is_changed = true;
            *content = given_back;
        }
        for edit in &outcome.edits {
            match edit {
                Edit::AddRecipient { address: text, .. } => {
                    let is_new = |added: &Address| self.copies.iter().all(|known| known.key() != added.key());
                    self.copies.extend(address(text).filter(is_new));
                }
                Edit::DeleteRecipient { address: text } => {
                    if let Some(gone) = address(text) {
                        self.copies.retain(|known| known.key() != gone.key());
                        self.removed.push(gone);
                    }
                }
                Edit::ChangeSender { address: text, .. } => {
                    let path = match text.as_slice() {
                        b"" | b"<>" => Some(ReversePath::Null),
                        text => address(text).map(ReversePath::Address),
                    };
                    if path.is_some() {
                        self.sender = path;
                    }
                }
                _ => self.is_changed = true,
            }
        }
        self.has_new_body |= outcome.body.is_some();
        self.is_changed |= outcome.body.is_some();
        content.apply(&outcome.edits, outcome.body);
        self.copies.extend(outcome.copies);
        self.redirects.extend(outcome.redirects);
    }
}
