//! The outcome of asking a filter: a decision, changes of the message, and words for the log.

use super::content::FilterContent;
use super::settings::FilterSettings;
use crate::config::FilterKind;
use filter::milter::{Answer, Edit, Edits};
use filter::policy::PolicyAction;
use filter::scanner::{ScanAction, ScanResult, as_milter_edits};
use mail::{Address, Reply, ReplyClass, ReplyCode};
use observe::ScreenVerdict;

/// A decision of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterDecision {
    /// Go on.
    Pass,
    /// Refuse with this reply, 4yz or 5yz.
    Refuse(Reply),
    /// Refuse with this reply, and close the connection.
    Close(Reply),
    /// Take the message and drop it.
    Discard,
    /// Take the message and hold it in quarantine, for this reason.
    Quarantine(String),
    /// Take the message and hold it until an operator releases it, for this reason.
    Hold(String),
    /// Behave as if the filter could not be reached, for this reason.
    Fail(String),
    /// Take the message and have it judged later, since the filter failed for this reason.
    Later(String),
}

/// A decision and changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterOutcome {
    pub(crate) decision: FilterDecision,
    /// Changes of header fields and envelope.
    pub(crate) edits: Vec<Edit>,
    /// The new body.
    pub(crate) body: Option<Vec<u8>>,
    /// Addresses that get the message in place of its recipients.
    pub(crate) redirects: Vec<Address>,
    /// Addresses that get it as well.
    pub(crate) copies: Vec<Address>,
    /// The message in place of the one that the filter got.
    pub(crate) content: Option<FilterContent>,
    /// Recipients that the filter refuses, while it takes others.
    pub(crate) refused: Vec<(Address, Reply)>,
    /// Recipients that it is asked about again, while others have their answer.
    pub(crate) undecided: Vec<Address>,
    /// The failure rule decided, not the filter.
    pub(crate) is_failure: bool,
    /// The outcome in words, with score, threat or rules if there are some.
    pub(crate) words: String,
}

impl FilterOutcome {
    pub(super) fn of(decision: FilterDecision) -> Self {
        let words = decision.words();
        let (redirects, copies, refused, undecided) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (edits, body, content) = (Vec::new(), None, None);
        Self { decision, edits, body, redirects, copies, content, refused, undecided, is_failure: false, words }
    }

    /// Returns the kind of the outcome, for log and counters.
    pub(super) fn verdict(&self) -> ScreenVerdict {
        match &self.decision {
            _ if self.is_failure => ScreenVerdict::NotJudged,
            FilterDecision::Fail(_) | FilterDecision::Later(_) => ScreenVerdict::NotJudged,
            FilterDecision::Refuse(reply) | FilterDecision::Close(reply) => match reply.code().class() {
                ReplyClass::Permanent => ScreenVerdict::Reject,
                _ => ScreenVerdict::Defer,
            },
            FilterDecision::Discard => ScreenVerdict::Discard,
            FilterDecision::Quarantine(_) => ScreenVerdict::Quarantine,
            FilterDecision::Hold(_) => ScreenVerdict::Hold,
            FilterDecision::Pass if !self.redirects.is_empty() || !self.copies.is_empty() => ScreenVerdict::Reroute,
            FilterDecision::Pass if !self.edits.is_empty() || self.body.is_some() || self.content.is_some() => {
                ScreenVerdict::Edit
            }
            FilterDecision::Pass => ScreenVerdict::Accept,
        }
    }

    /// The outcome of a milter's answer. Its changes count only if it keeps the message.
    pub(super) fn of_milter(answer: Answer, edits: Edits) -> Self {
        let decision = match answer {
            Answer::Continue | Answer::Accept | Answer::Skip => match edits.quarantine {
                Some(reason) => FilterDecision::Quarantine(reason),
                None => FilterDecision::Pass,
            },
            Answer::Discard => FilterDecision::Discard,
            Answer::Reject => FilterDecision::Refuse(reply(550, "5.7.1 Command rejected")),
            Answer::Defer => FilterDecision::Refuse(reply(451, "4.7.1 Service is not available now, try again later")),
            Answer::Reply(text) => FilterDecision::Refuse(text.to_reply()),
            Answer::Shutdown => FilterDecision::Close(reply(421, "4.7.0 Service is not available now, closing")),
            Answer::ConnectionFailed => FilterDecision::Fail("the filter says that it cannot work".to_owned()),
        };
        let mut outcome = Self::of(decision);
        if matches!(outcome.decision, FilterDecision::Pass | FilterDecision::Quarantine(_)) {
            outcome.edits = edits.list;
            outcome.body = edits.body;
            if !outcome.edits.is_empty() || outcome.body.is_some() {
                let body = if outcome.body.is_some() { " and the body" } else { "" };
                outcome.words = format!("{}, {} changes{body}", outcome.words, outcome.edits.len());
            }
        }
        outcome
    }

    /// The outcome of a scan.
    pub(super) fn of_scan(settings: &FilterSettings, result: &ScanResult, content: &FilterContent) -> Self {
        let threat = result.threat.as_deref().unwrap_or_default();
        let decision = match &result.action {
            ScanAction::Pass | ScanAction::Tag | ScanAction::TagSubject(_) | ScanAction::TooLarge(_) => {
                FilterDecision::Pass
            }
            ScanAction::Reject(words) => FilterDecision::Refuse(match (words, threat) {
                (Some(words), _) => reply(550, &format!("5.7.1 {words}")),
                (None, "") => reply(550, "5.7.1 Spam message rejected"),
                (None, threat) => reply(550, &format!("5.7.1 Message contains {threat}")),
            }),
            ScanAction::Defer(words) => {
                let words = words.as_deref().unwrap_or("Try again later");
                FilterDecision::Refuse(reply(451, &format!("4.7.1 {words}")))
            }
            ScanAction::Discard => FilterDecision::Discard,
            ScanAction::Quarantine => FilterDecision::Quarantine("the scanner asks for it".to_owned()),
            ScanAction::Failed(text) => FilterDecision::Fail(text.clone()),
        };
        let mut outcome = Self::of(decision);
        if outcome.decision == FilterDecision::Pass {
            outcome.edits = as_milter_edits(&result.edits, content.shown());
            outcome.edits.extend(marks(settings.kind, &result.action));
        }
        outcome.words = match &result.action {
            ScanAction::Tag | ScanAction::TagSubject(_) => "tag".to_owned(),
            ScanAction::TooLarge(limit) => format!("not scanned: too large ({limit})"),
            _ => outcome.words,
        };
        for (name, text) in [("score", result.score.map(|score| score.to_string())), ("threat", result.threat.clone())]
        {
            if let Some(text) = text {
                outcome.words = format!("{}, {name} {text}", outcome.words);
            }
        }
        outcome
    }

    /// The outcome of a policy server's action.
    pub(super) fn of_policy(action: PolicyAction) -> Self {
        let mut outcome = Self::of(FilterDecision::Pass);
        outcome.decision = match action {
            PolicyAction::Dunno | PolicyAction::Ok | PolicyAction::DeferIfReject(_) => FilterDecision::Pass,
            PolicyAction::Reject(reply) | PolicyAction::Defer(reply) | PolicyAction::DeferIfPermit(reply) => {
                FilterDecision::Refuse(reply)
            }
            PolicyAction::Disconnect(reply) => FilterDecision::Close(reply),
            PolicyAction::Prepend { name, value } => {
                outcome.edits.push(Edit::InsertHeader { index: 1, name, value });
                FilterDecision::Pass
            }
            PolicyAction::Hold(reason) => FilterDecision::Hold(reason),
            PolicyAction::Discard(_) => FilterDecision::Discard,
            PolicyAction::Redirect(address) => {
                outcome.redirects.push(address);
                FilterDecision::Pass
            }
            PolicyAction::Copy(address) => {
                outcome.copies.push(address);
                FilterDecision::Pass
            }
            PolicyAction::Log(text) | PolicyAction::NotSupported(text) => {
                outcome.words = text;
                return outcome;
            }
        };
        outcome.words = outcome.decision.words();
        outcome
    }
}

impl FilterDecision {
    fn words(&self) -> String {
        match self {
            Self::Pass => "pass".to_owned(),
            Self::Refuse(reply) => format!("refuse {reply}"),
            Self::Close(reply) => format!("close {reply}"),
            Self::Discard => "discard".to_owned(),
            Self::Quarantine(reason) => format!("quarantine: {reason}"),
            Self::Hold(reason) => format!("hold: {reason}"),
            Self::Fail(text) => format!("not judged: {text}"),
            Self::Later(_) => "later".to_owned(),
        }
    }
}

/// Returns the fields that mark spam, as programs that sort mail look for them.
fn marks(kind: FilterKind, action: &ScanAction) -> Vec<Edit> {
    let mut edits = Vec::new();
    let is_spam = matches!(action, ScanAction::Tag | ScanAction::TagSubject(_));
    if kind == FilterKind::Rspamd && is_spam {
        edits.push(Edit::AddHeader { name: b"X-Spam".to_vec(), value: b" Yes".to_vec() });
    }
    if let ScanAction::TagSubject(subject) = action {
        let value = [b" ", subject.as_bytes()].concat();
        edits.push(Edit::ChangeHeader { index: 1, name: b"Subject".to_vec(), value: Some(value) });
    }
    edits
}

/// Makes a reply whose text begins with its enhanced code.
pub(super) fn reply(code: u16, text: &str) -> Reply {
    let text: String = text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
    Reply::new(ReplyCode::of(code), None, &text)
}
