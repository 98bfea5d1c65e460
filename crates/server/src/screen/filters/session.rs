//! The filters of one SMTP session, asked in their order at each step.
//!
//! Milters are asked at connect, HELO, MAIL, RCPT, DATA and for the content; policy servers at RCPT; scanners for the
//! content. A filter that fails costs the message that is asked about, and its failure rule decides on that message as
//! it came; the next message gets a new connection. Changes of a filter are staged and count when its last answer keeps
//! the message, so a filter that dies between two changes changes nothing.

use super::connection::FilterError;
use super::content::FilterContent;
use super::facts::FilterFacts;
use super::milter::Milter;
use super::outcome::{FilterDecision, FilterOutcome, reply};
use super::policy::ask_policy;
use super::pool::PooledFilter;
use super::reinjection::Reinjections;
use super::scanners;
use super::smtp::{HandedMessage, hand_over};
use super::verdict::FilterVerdict;
use crate::config::{FilterFailure, FilterKind};
use filter::milter::{Answer, Edit, Edits, Stage};
use filter::policy::PolicyState;
use mail::{Address, Reply};
use observe::ScreenVerdict;
use os::clock;
use std::sync::Arc;
use std::time::Duration;

/// A step of the session before the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterStep {
    Connect,
    Helo,
    Mail,
    Recipient,
    /// A recipient that the server refuses, for milters that ask for these. Their word changes nothing.
    RefusedRecipient,
    Data,
    /// A command that the server does not know.
    Unknown,
}

impl FilterStep {
    const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Helo => "helo",
            Self::Mail => "mail",
            Self::Recipient | Self::RefusedRecipient => "rcpt",
            Self::Data => "data",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it is passed over where no connection is open.
    const fn needs_connection(self) -> bool {
        matches!(self, Self::Helo | Self::RefusedRecipient | Self::Unknown)
    }

    /// Whether it belongs to the connection, so that a failure concerns no message.
    const fn is_of_connection(self) -> bool {
        matches!(self, Self::Connect | Self::Helo | Self::Unknown)
    }
}

/// A filter's decision, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterNote {
    /// The filter's name.
    pub(crate) filter: String,
    /// Its address.
    pub(crate) address: String,
    /// The step.
    pub(crate) stage: &'static str,
    /// The time that it took.
    pub(crate) elapsed: Duration,
    /// The kind of the decision.
    pub(crate) verdict: ScreenVerdict,
    /// The decision in words.
    pub(crate) words: String,
}

/// The answer of all filters to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepVerdict {
    /// Go on.
    Continue,
    /// Refuse with this reply.
    Refuse(Reply),
    /// Refuse with this reply, and close the connection.
    Close(Reply),
}

/// The state of a filter in the open transaction.
#[derive(Debug, Default)]
struct TransactionState {
    /// It is not asked any more: it accepted, or its failure rule let the message pass.
    is_over: bool,
    /// It failed, and each further step of the message is answered with 451.
    refusal: Option<Reply>,
    /// A decision that holds the message or drops it, which counts at the end.
    decision: Option<FilterDecision>,
    /// Changes that are made whatever the filter says of the content.
    edits: Vec<Edit>,
    copies: Vec<Address>,
    redirects: Vec<Address>,
}

#[derive(Debug)]
struct SessionFilter {
    filter: Arc<PooledFilter>,
    /// The connection of a milter; `None`: it is not connected.
    link: Option<Box<Milter>>,
    /// The message is in the spool, so a failure cannot be answered with 451.
    is_replay: bool,
    /// It accepted the connection: no message of it is of interest.
    has_accepted_connection: bool,
    /// A milter was told the name of the client. Programs that submit mail give none.
    has_helo: bool,
    /// A milter was told of a message, and has not answered its end.
    is_in_message: bool,
    transaction: TransactionState,
}

/// The filters of one session.
#[derive(Debug)]
pub(crate) struct FilterSession {
    filters: Vec<SessionFilter>,
    reinjections: Arc<Reinjections>,
    notes: Vec<FilterNote>,
}

impl FilterSession {
    /// Begins a session; nothing is connected yet.
    pub(crate) fn new(filters: &[Arc<PooledFilter>], reinjections: &Arc<Reinjections>) -> Self {
        let of = |filter: &Arc<PooledFilter>| SessionFilter {
            filter: Arc::clone(filter),
            link: None,
            is_replay: false,
            has_accepted_connection: false,
            has_helo: false,
            is_in_message: false,
            transaction: TransactionState::default(),
        };
        let reinjections = Arc::clone(reinjections);
        Self { filters: filters.iter().map(of).collect(), reinjections, notes: Vec::new() }
    }

    /// Begins a session about a message that is in the spool: a filter that fails is asked later in place of `defer`.
    pub(super) fn for_replay(filters: &[Arc<PooledFilter>], reinjections: &Arc<Reinjections>) -> Self {
        let mut session = Self::new(filters, reinjections);
        session.filters.iter_mut().for_each(|one| one.is_replay = true);
        session
    }

    /// Returns the first filter that could not judge the open transaction and is to be asked later, and its failure.
    pub(super) fn failed_filter(&self) -> Option<(String, String)> {
        self.filters.iter().find_map(|one| match &one.transaction.decision {
            Some(FilterDecision::Later(error)) => Some((one.filter.settings.name.clone(), error.clone())),
            _ => None,
        })
    }

    /// Returns the last decision.
    pub(super) fn last_note(&self) -> Option<&FilterNote> {
        self.notes.last()
    }

    /// Returns the largest message that a filter gets.
    pub(crate) fn size_max(&self) -> u64 {
        self.filters.iter().map(|one| one.filter.settings.size_max).max().unwrap_or(0)
    }

    /// Takes the decisions so far, for the log.
    pub(crate) fn take_notes(&mut self) -> Vec<FilterNote> {
        std::mem::take(&mut self.notes)
    }

    /// Asks all filters at a step. The first that refuses decides.
    ///
    /// # Cancel safety
    /// No: drop the session.
    pub(crate) async fn step(&mut self, step: FilterStep, facts: &FilterFacts) -> StepVerdict {
        for filter in &mut self.filters {
            if matches!(step, FilterStep::Mail | FilterStep::Helo) {
                filter.end_transaction();
            }
            if let (Some(reply), false) = (&filter.transaction.refusal, step == FilterStep::Unknown) {
                return StepVerdict::Refuse(reply.clone());
            }
            if !filter.wants(step) {
                continue;
            }
            let began = clock::now();
            let outcome = filter.ask_step(step, facts).await;
            let elapsed = clock::now().saturating_duration_since(began);
            let verdict = filter.judge_step(outcome, step, elapsed, &mut self.notes);
            if verdict != StepVerdict::Continue {
                return verdict;
            }
        }
        StepVerdict::Continue
    }

    /// Asks all filters about the content, and applies their changes to it. The first decision counts, and later
    /// filters are not asked.
    ///
    /// # Cancel safety
    /// No: drop the session.
    pub(crate) async fn content(
        &mut self,
        content: &mut FilterContent,
        size: u64,
        facts: &FilterFacts,
    ) -> FilterVerdict {
        let mut verdict = FilterVerdict::default();
        let mut passed = facts.passed_filters.clone();
        for one in &mut self.filters {
            let began = clock::now();
            passed.push(one.filter.settings.name.clone());
            let outcome = match one.filter.settings.kind.gives_back() {
                true => one.hand_over(&self.reinjections, (content, &verdict), (facts, &passed)).await,
                false => one.ask_content(content, size, facts).await,
            };
            let elapsed = clock::now().saturating_duration_since(began);
            let Some(outcome) = one.judge_content(outcome, elapsed, &mut self.notes) else { continue };
            verdict.take(&one.filter.settings, outcome, content);
            // After the 250 all filters are asked anew later.
            if verdict.decision.is_some() || one.is_replay && !verdict.later.is_empty() {
                break;
            }
        }
        verdict
    }

    /// Has these filters not asked about the content of the open transaction, which has passed them before.
    pub(crate) fn skip(&mut self, names: &[String]) {
        for one in self.filters.iter_mut().filter(|one| names.contains(&one.filter.settings.name)) {
            one.transaction = TransactionState { is_over: true, ..TransactionState::default() };
        }
    }

    /// Whether a filter is told of commands that the server does not know.
    pub(crate) fn has_milter(&self) -> bool {
        self.filters.iter().any(|one| one.filter.settings.kind == FilterKind::Milter)
    }

    /// Forgets the client: the session speaks for another one from now on.
    ///
    /// # Cancel safety
    /// No: drop the session.
    pub(crate) async fn forget_client(&mut self) {
        for one in &mut self.filters {
            one.transaction = TransactionState::default();
            one.has_accepted_connection = false;
            if let Some(milter) = one.link.take() {
                milter.quit().await;
            }
            one.lose_link();
        }
    }

    /// Ends the session.
    pub(crate) async fn quit(mut self) {
        self.forget_client().await;
    }
}

impl SessionFilter {
    /// Forgets the transaction. A milter that knows of its message is told with the next step.
    fn end_transaction(&mut self) {
        self.transaction = TransactionState::default();
        if let (true, Some(milter)) = (std::mem::take(&mut self.is_in_message), &mut self.link) {
            milter.abort();
        }
    }

    /// Whether it is asked at this step.
    fn wants(&self, step: FilterStep) -> bool {
        match self.filter.settings.kind {
            // After a failure at connect, MAIL tries a new connection.
            FilterKind::Milter if self.link.is_none() && step.needs_connection() => false,
            FilterKind::Milter => !self.has_accepted_connection && !self.transaction.is_over,
            FilterKind::Policy => step == FilterStep::Recipient && !self.transaction.is_over,
            _ => false,
        }
    }

    async fn ask_step(&mut self, step: FilterStep, facts: &FilterFacts) -> Result<FilterOutcome, FilterError> {
        if self.filter.settings.kind == FilterKind::Policy {
            return ask_policy(&self.filter, PolicyState::Rcpt, facts).await.map(FilterOutcome::of_policy);
        }
        let mut answer = self.ask_milter(step, facts).await?;
        let is_ignored = !matches!(answer, Answer::Accept | Answer::Shutdown | Answer::ConnectionFailed);
        if step == FilterStep::RefusedRecipient && is_ignored {
            answer = Answer::Continue;
        }
        if answer == Answer::Accept {
            match step {
                FilterStep::Connect | FilterStep::Helo => self.has_accepted_connection = true,
                _ => self.transaction.is_over = true,
            }
        }
        Ok(FilterOutcome::of_milter(answer, Edits::default()))
    }

    /// Asks a milter. At connect, and at MAIL after a failure, a connection is made, and told what went before.
    async fn ask_milter(&mut self, step: FilterStep, facts: &FilterFacts) -> Result<Answer, FilterError> {
        let Some(milter) = &mut self.link else {
            return self.open_milter(step, facts).await;
        };
        self.is_in_message |= step == FilterStep::Mail;
        let lacks_helo = step == FilterStep::Mail && !self.has_helo;
        self.has_helo |= matches!(step, FilterStep::Helo | FilterStep::Mail);
        let answer = match lacks_helo {
            true => take_step(milter, FilterStep::Helo, facts).await,
            false => Ok(Answer::Continue),
        };
        let answer = match answer {
            Ok(Answer::Continue) => take_step(milter, step, facts).await,
            other => other,
        };
        match answer {
            // An idle connection may be gone; a message begins with a new one then.
            Err(_) if step == FilterStep::Mail => self.open_milter(step, facts).await,
            Err(error) => {
                self.lose_link();
                Err(error)
            }
            answer => answer,
        }
    }

    /// The connection is of no more use.
    fn lose_link(&mut self) {
        self.link = None;
        (self.has_helo, self.is_in_message) = (false, false);
    }

    async fn open_milter(&mut self, step: FilterStep, facts: &FilterFacts) -> Result<Answer, FilterError> {
        self.lose_link();
        // In the middle of a message another connection would know nothing of its beginning.
        if matches!(step, FilterStep::Recipient | FilterStep::Data) {
            return Err(FilterError::new(step.name(), "the filter is not connected"));
        }
        let mut milter = Box::new(Milter::open(&self.filter.settings).await?);
        self.filter.note_opened();
        let before: &[FilterStep] = match step {
            FilterStep::Connect => &[],
            FilterStep::Helo => &[FilterStep::Connect],
            _ => &[FilterStep::Connect, FilterStep::Helo],
        };
        for before in before {
            let answer = take_step(&mut milter, *before, facts).await?;
            if answer != Answer::Continue {
                self.link = Some(milter);
                return Ok(answer);
            }
        }
        let answer = take_step(&mut milter, step, facts).await?;
        self.link = Some(milter);
        self.has_helo = step != FilterStep::Connect;
        self.is_in_message = step == FilterStep::Mail;
        Ok(answer)
    }

    /// Turns an outcome of a step into an answer to the client.
    fn judge_step(
        &mut self,
        outcome: Result<FilterOutcome, FilterError>,
        step: FilterStep,
        elapsed: Duration,
        notes: &mut Vec<FilterNote>,
    ) -> StepVerdict {
        let outcome = match outcome {
            Ok(FilterOutcome { decision: FilterDecision::Fail(text), .. }) => Err(FilterError::new(step.name(), text)),
            outcome => outcome,
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            // No message is concerned yet: the next one has another connection.
            Err(error) if step.is_of_connection() => {
                self.filter.note_failure();
                FilterOutcome::of(FilterDecision::Fail(error.text))
            }
            Err(error) => self.failed(&error),
        };
        // A step that passes is worth no line.
        if outcome.decision != FilterDecision::Pass || outcome.words != "pass" {
            notes.push(self.note(step.name(), elapsed, &outcome));
        }
        self.transaction.edits.extend(outcome.edits);
        self.transaction.copies.extend(outcome.copies);
        self.transaction.redirects.extend(outcome.redirects);
        match outcome.decision {
            FilterDecision::Pass | FilterDecision::Fail(_) => StepVerdict::Continue,
            FilterDecision::Refuse(reply) => StepVerdict::Refuse(reply),
            FilterDecision::Close(reply) => StepVerdict::Close(reply),
            held => {
                self.transaction.decision.get_or_insert(held);
                StepVerdict::Continue
            }
        }
    }

    async fn ask_content(
        &mut self,
        content: &FilterContent,
        size: u64,
        facts: &FilterFacts,
    ) -> Option<Result<FilterOutcome, FilterError>> {
        if self.is_over() || self.filter.settings.kind == FilterKind::Policy {
            return None;
        }
        if let Some(outcome) = self.too_large(content, size) {
            return Some(Ok(outcome));
        }
        if self.filter.settings.kind != FilterKind::Milter {
            let result = scanners::scan(&self.filter, content, facts).await;
            return Some(result.map(|result| FilterOutcome::of_scan(&self.filter.settings, &result, content)));
        }
        let Some(milter) = &mut self.link else {
            return Some(Err(FilterError::new("data", "the filter is not connected")));
        };
        match milter.content(&self.filter.settings, content, facts).await {
            Ok((stage, answer, edits)) => {
                self.is_in_message = stage != Stage::EndOfBody;
                Some(Ok(FilterOutcome::of_milter(answer, edits)))
            }
            Err(error) => {
                self.lose_link();
                Some(Err(error))
            }
        }
    }

    /// Hands the message, as the filters before have left it, to a filter that gives it back.
    async fn hand_over(
        &self,
        reinjections: &Arc<Reinjections>,
        (content, so_far): (&FilterContent, &FilterVerdict),
        (facts, passed): (&FilterFacts, &[String]),
    ) -> Option<Result<FilterOutcome, FilterError>> {
        if self.is_over() {
            return None;
        }
        if let Some(outcome) = self.too_large(content, facts.size) {
            return Some(Ok(outcome));
        }
        let message = HandedMessage::new(facts, content, so_far, passed.to_vec(), self.is_replay);
        Some(hand_over(&self.filter, reinjections, &message).await)
    }

    /// Whether nothing is left to ask about.
    const fn is_over(&self) -> bool {
        let is_decided = matches!(self.transaction.decision, Some(FilterDecision::Discard));
        self.transaction.is_over || self.has_accepted_connection || is_decided
    }

    /// Returns the outcome of a message that the filter does not get.
    fn too_large(&self, content: &FilterContent, size: u64) -> Option<FilterOutcome> {
        if size <= self.filter.settings.size_max && content.is_complete() {
            return None;
        }
        let mut outcome = FilterOutcome::of(FilterDecision::Pass);
        outcome.words = format!("not scanned: too large ({size} octets, filter.size_max)");
        Some(outcome)
    }

    /// Joins the outcome of the content with what the filter said before. `None`: it has nothing to say.
    fn judge_content(
        &mut self,
        outcome: Option<Result<FilterOutcome, FilterError>>,
        elapsed: Duration,
        notes: &mut Vec<FilterNote>,
    ) -> Option<FilterOutcome> {
        let transaction = std::mem::take(&mut self.transaction);
        let asked = outcome.map(|outcome| match outcome {
            Ok(FilterOutcome { decision: FilterDecision::Fail(text), .. }) => {
                self.failed(&FilterError::new(Stage::EndOfBody.name(), text))
            }
            Ok(outcome) => outcome,
            Err(error) => self.failed(&error),
        });
        if let Some(outcome) = &asked {
            notes.push(self.note(Stage::EndOfBody.name(), elapsed, outcome));
        }
        let is_nothing = transaction.decision.is_none()
            && transaction.edits.is_empty()
            && transaction.copies.is_empty()
            && transaction.redirects.is_empty();
        if asked.is_none() && is_nothing {
            return None;
        }
        let mut outcome = asked.unwrap_or_else(|| FilterOutcome::of(FilterDecision::Pass));
        if let (FilterDecision::Pass, Some(decision)) = (&outcome.decision, transaction.decision) {
            outcome.decision = decision;
        }
        drop(outcome.edits.splice(0..0, transaction.edits));
        outcome.copies.extend(transaction.copies);
        outcome.redirects.extend(transaction.redirects);
        Some(outcome)
    }

    /// Returns the outcome of the failure rule, which looks at the message as it came.
    fn failed(&mut self, error: &FilterError) -> FilterOutcome {
        let name = &self.filter.settings.name;
        let mut outcome = match self.filter.settings.on_failure {
            FilterFailure::Defer if self.is_replay => FilterOutcome::of(FilterDecision::Later(error.to_string())),
            FilterFailure::Later => FilterOutcome::of(FilterDecision::Later(error.to_string())),
            FilterFailure::Defer => FilterOutcome::of(FilterDecision::Refuse(reply(
                451,
                "4.7.1 The message cannot be checked now, try again later",
            ))),
            FilterFailure::Pass => FilterOutcome::of(FilterDecision::Pass),
            FilterFailure::Tag => {
                let mut outcome = FilterOutcome::of(FilterDecision::Pass);
                let value = format!(" {name}").into_bytes();
                outcome.edits.push(Edit::AddHeader { name: b"X-Not-Checked-By".to_vec(), value });
                outcome
            }
            FilterFailure::Quarantine => {
                FilterOutcome::of(FilterDecision::Quarantine(format!("filter {name} could not judge it")))
            }
        };
        // A policy server is asked again at the next recipient.
        if self.filter.settings.kind == FilterKind::Milter {
            match &outcome.decision {
                FilterDecision::Refuse(reply) => self.transaction.refusal = Some(reply.clone()),
                _ => self.transaction.is_over = true,
            }
        }
        self.filter.note_failure();
        outcome.is_failure = true;
        outcome.words = format!("not judged, {}: {error}", outcome.words);
        outcome
    }

    fn note(&self, stage: &'static str, elapsed: Duration, outcome: &FilterOutcome) -> FilterNote {
        FilterNote {
            filter: self.filter.settings.name.clone(),
            address: self.filter.settings.address.to_string(),
            stage,
            elapsed,
            verdict: outcome.verdict(),
            words: outcome.words.clone(),
        }
    }
}

async fn take_step(milter: &mut Milter, step: FilterStep, facts: &FilterFacts) -> Result<Answer, FilterError> {
    match step {
        FilterStep::Connect => milter.connect(facts).await,
        FilterStep::Helo => milter.helo(facts).await,
        FilterStep::Mail => milter.mail(facts).await,
        FilterStep::Recipient => milter.recipient(facts, false).await,
        FilterStep::RefusedRecipient => milter.recipient(facts, true).await,
        FilterStep::Data => milter.data(facts).await,
        FilterStep::Unknown => milter.unknown(facts).await,
    }
}
