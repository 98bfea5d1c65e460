//! The way of one recipient through the maps, and of every address it becomes.
//!
//! Work is a list of [`Job`]s, an address each. A job goes through the maps until it is delivered, refused, or has
//! become other jobs. Copies are done last, so a recipient that gets the mail anyway gets no copy. When an answer is
//! missing the other jobs go on all the same: then one round asks for all of them.

use super::rule::{Acknowledge, CopyDsn, Rule};
use super::{Delivery, Failed, HoldReason, Outcome, Request, Resolution, Router, STEPS_MAX, VIRTUAL_DEPTH_MAX};
use crate::alias::Origin;
use crate::destination::{Destination, TEXT_BYTES_MAX, To};
use crate::question::{Ask, MapEntry, Stop};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::tables::ValueError;
use crate::tables::mailer::MailerValue;
use mail::{Address, EnhancedCode, LocalPart, Outcome as Class, ReversePath};
use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

/// An address on its way.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) address: Address,
    /// The aliases and forwards by which it was reached.
    pub(super) origin: Origin,
    /// The addresses and users it was before.
    pub(super) before: Option<Rc<Before>>,
    /// The marks that rules have set.
    pub(super) marks: Rc<Marks>,
    /// It is a copy.
    pub(super) copy: Option<CopyDsn>,
    /// A rule that does more than copy has fitted.
    pub(super) is_ruled: bool,
    /// LDAP routing has been asked for this address.
    pub(super) is_routed: bool,
}

/// The former values of an address: a short chain, for aliases and forwards have a greatest depth.
#[derive(Debug)]
pub(super) struct Before {
    name: Box<str>,
    before: Option<Rc<Self>>,
}

/// The settings of rules for a mail, beside its destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    pub(super) hold: Option<HoldReason>,
    pub(super) queue_only: bool,
    pub(super) acknowledge: Option<Acknowledge>,
    pub(super) source4: Option<Ipv4Addr>,
    pub(super) source6: Option<Ipv6Addr>,
    pub(super) hello: Option<Box<str>>,
    /// The rules that have copied it, by their number.
    pub(super) copied: Vec<usize>,
}

/// Whether a job is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It has been delivered or refused, or has become others.
    Done,
    /// It goes on to the next map.
    On,
    /// It has another address and begins anew.
    Again,
}

/// A copy that is to be made.
pub(super) enum Copy {
    Job(Job),
    Value(Job, MailerValue, Option<MapEntry>),
}

pub(super) struct RecipientResolver<'r, 'q, 'a> {
    pub(super) router: &'r Router,
    pub(super) ask: &'q mut Ask<'a>,
    pub(super) sender: &'r ReversePath,
    /// The recipient as the client wrote it.
    pub(super) original: String,
    /// The rules that are for this sender and client, with their numbers.
    pub(super) rules: Vec<(usize, &'r Rule)>,
    pub(super) jobs: VecDeque<Job>,
    pub(super) copies: VecDeque<Copy>,
    /// Addresses and users that have been looked at, as originals and as copies.
    seen: HashSet<(Box<str>, bool)>,
    /// The recipients with their destinations; a recipient on two lists gets the mail from the first.
    taken: HashSet<(Box<str>, Box<str>)>,
    deliveries: Vec<Delivery>,
    failed: Vec<Failed>,
    pub(super) is_discarded: bool,
    steps: Vec<Step>,
}

impl<'r, 'q, 'a> RecipientResolver<'r, 'q, 'a> {
    pub(super) fn new(router: &'r Router, ask: &'q mut Ask<'a>, request: &Request<'r>) -> Self {
        let fits = |rule: &Rule| rule.fits(request.sender, request.client, router.settings.delimiter);
        let rules = router.rules.iter().enumerate().filter(|(_, rule)| fits(rule)).collect();
        let job = Job {
            address: request.recipient.clone(),
            origin: Origin::default(),
            before: None,
            marks: Rc::default(),
            copy: None,
            is_ruled: false,
            is_routed: false,
        };
        Self {
            router,
            ask,
            sender: request.sender,
            original: request.recipient.to_string(),
            rules,
            jobs: VecDeque::from([job]),
            copies: VecDeque::new(),
            seen: HashSet::new(),
            taken: HashSet::new(),
            deliveries: Vec::new(),
            failed: Vec::new(),
            is_discarded: false,
            steps: Vec::new(),
        }
    }

    /// Does all jobs and says what became of the recipient.
    pub(super) fn all(mut self) -> Result<Resolution, Stop> {
        let mut count = 0_usize;
        let mut is_open = match self.blind_copy() {
            Ok(()) => false,
            Err(Stop::Open) => true,
            Err(trouble) => return Err(trouble),
        };
        loop {
            // Depth first, as sendmail goes: of two who lead to each other one is found to be in a loop, and not both
            // to be done.
            self.ask.work(1)?;
            let job = self.jobs.pop_back();
            let before = self.jobs.len();
            let done = match job {
                Some(mut job) => self.one(&mut job),
                None => match self.copies.pop_front() {
                    Some(Copy::Job(mut job)) => self.one(&mut job),
                    Some(Copy::Value(job, value, found)) => self.follow(&job, &value, found),
                    None => break,
                },
            };
            // The new jobs are taken in their own order.
            if let Some(new) = self.jobs.make_contiguous().get_mut(before..) {
                new.reverse();
            }
            match done {
                Ok(_) => {}
                Err(Stop::Open) => is_open = true,
                Err(trouble) => return Err(trouble),
            }
            count += 1;
            if count > self.router.settings.expansion_max {
                return Ok(self.too_many());
            }
        }
        if is_open { Err(Stop::Open) } else { Ok(self.end()) }
    }

    fn too_many(self) -> Resolution {
        let max = self.router.settings.expansion_max;
        let text = format!("<{}>... has more than {max} recipients", self.original);
        let outcome = Outcome::Refuse(Refusal::new(550, permanent(2, 4), &text));
        Resolution { outcome, steps: self.steps, failed: Vec::new() }
    }

    fn end(mut self) -> Resolution {
        let is_delivered = self.deliveries.iter().any(|delivery| !delivery.is_copy);
        let refused = self.failed.iter().position(|failed| failed.copy.is_none());
        let outcome = match refused {
            Some(at) if !is_delivered => Outcome::Refuse(self.failed.remove(at).refusal),
            _ if !self.deliveries.is_empty() && (is_delivered || self.is_discarded) => {
                Outcome::Deliver(self.deliveries)
            }
            _ if self.is_discarded => Outcome::Discard,
            _ => {
                let text = format!("<{}>... aliasing/forwarding loop broken", self.original);
                Outcome::Refuse(Refusal::new(554, permanent(4, 6), &text))
            }
        };
        if matches!(outcome, Outcome::Refuse(_)) {
            self.failed.clear();
        }
        Resolution { outcome, steps: self.steps, failed: self.failed }
    }

    /// One address, until it is delivered, refused, or has become others.
    fn one(&mut self, job: &mut Job) -> Result<Flow, Stop> {
        let key = job.address.key();
        if !self.is_first(job, key.as_str()) {
            return Ok(Flow::Done);
        }
        let mut met = Vec::new();
        let why = loop {
            if self.pass(job)? == Flow::Done {
                return Ok(Flow::Done);
            }
            let key = job.address.key().as_str().to_owned();
            if met.contains(&key) {
                break "it has been here before";
            }
            met.push(key);
            if met.len() >= VIRTUAL_DEPTH_MAX {
                break "too many entries after each other";
            }
        };
        let text = format!("<{}>... loop in virtusertable", self.original);
        self.step("virtusertable", || format!("{}: {why}", job.address));
        Ok(self.fail(job, Refusal::new(554, permanent(4, 6), &text)))
    }

    /// Whether an address or a user is met for the first time, or by way of himself, which aliases treat on their own.
    /// He is kept as the former value of the job.
    pub(super) fn is_first(&mut self, job: &mut Job, name: &str) -> bool {
        let is_new = self.seen.insert((name.into(), job.copy.is_some()));
        let mut before = std::iter::successors(job.before.as_ref(), |before| before.before.as_ref());
        if !is_new && !before.any(|before| *before.name == *name) {
            self.step("duplicate", || format!("{name} is done already"));
            return false;
        }
        job.before = Some(Rc::new(Before { name: name.into(), before: job.before.take() }));
        true
    }

    /// Does what a value says.
    pub(super) fn follow(&mut self, job: &Job, value: &MailerValue, found: Option<MapEntry>) -> Result<Flow, Stop> {
        match value {
            MailerValue::Hosts { hosts, recipient } => {
                let address = recipient.clone().unwrap_or_else(|| job.address.clone());
                let via = hosts.to_string();
                if via.len() + 256 > TEXT_BYTES_MAX {
                    let text = format!(
                        "the hosts of \"{}\" are too many",
                        found.map(|found| found.key.to_string()).unwrap_or_default()
                    );
                    return Err(Stop::Trouble(text.into()));
                }
                self.deliver(job, address, To::Hosts(hosts.clone()), Some(via))
            }
            MailerValue::Local(user) => {
                let user = match user {
                    Some(user) => LocalPart::new(user).map_err(|error| Stop::Trouble(error.to_string().into()))?,
                    None => job.address.local_part().clone(),
                };
                self.local(&mut job.clone(), &user, false)
            }
            MailerValue::Error(error) => Ok(self.fail(job, error.refusal(&self.original, found))),
            MailerValue::Discard => {
                self.is_discarded = true;
                Ok(Flow::Done)
            }
        }
    }

    /// A delivery, unless there is the same already.
    pub(super) fn deliver(&mut self, job: &Job, address: Address, to: To, via: Option<String>) -> Result<Flow, Stop> {
        let is_remote = matches!(to, To::Domain(_) | To::Literal(_) | To::Hosts(_));
        let marks = &job.marks;
        let mut destination = Destination::new(to);
        if is_remote {
            (destination.source4, destination.source6) = (marks.source4, marks.source6);
            destination.hello.clone_from(&marks.hello);
            destination.group = self.queue_group(&address)?;
        }
        let who = match destination.to {
            // For one recipient the command is all.
            To::Program { .. } => Box::default(),
            _ => destination.who(&address),
        };
        let text = destination.to_string();
        if text.len() > TEXT_BYTES_MAX {
            let text = format!("<{}>... what its mail goes to has more than {TEXT_BYTES_MAX} octets", self.original);
            return Ok(self.fail(job, Refusal::new(550, permanent(1, 3), &text)));
        }
        if !self.taken.insert((who, text.into())) {
            self.step("duplicate", || format!("{address} gets it already"));
            return Ok(Flow::Done);
        }
        destination.is_copy = job.copy.is_some() && is_remote;
        self.deliveries.push(Delivery {
            address,
            destination,
            sender: job.origin.sender().cloned(),
            controller: job.origin.controller().map(Into::into),
            hold: marks.hold.clone(),
            queue_only: marks.queue_only,
            acknowledge: marks.acknowledge,
            is_copy: job.copy.is_some(),
            copy_dsn: job.copy.unwrap_or_default(),
            via,
        });
        Ok(Flow::Done)
    }

    /// Adds a failed address, with the refusal.
    pub(super) fn fail(&mut self, job: &Job, refusal: Refusal) -> Flow {
        let (address, sender, copy) = (job.address.clone(), job.origin.sender().cloned(), job.copy);
        self.failed.push(Failed { address, refusal, sender, copy });
        Flow::Done
    }

    /// Another address that this one became.
    pub(super) fn push(&mut self, job: Job) {
        match job.copy {
            None => self.jobs.push_back(job),
            Some(_) => self.copies.push_back(Copy::Job(job)),
        }
    }

    /// A job for an address that came of an alias or a forward.
    pub(super) fn child(job: &Job, address: Address, origin: Origin) -> Job {
        Job { address, origin, is_ruled: false, is_routed: false, ..job.clone() }
    }

    pub(super) fn unknown(&self) -> Refusal {
        Refusal::new(550, permanent(1, 1), &format!("<{}>... User unknown", self.original))
    }

    pub(super) fn step(&mut self, stage: &'static str, text: impl FnOnce() -> String) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step::new(stage, text()));
        }
    }

    pub(super) fn step_of(&mut self, stage: &'static str, found: &MapEntry, text: impl FnOnce() -> String) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step::of(stage, found.clone(), text()));
        }
    }

    pub(super) fn push_steps(&mut self, steps: Vec<Step>) {
        let room = STEPS_MAX.saturating_sub(self.steps.len());
        self.steps.extend(steps.into_iter().take(room));
    }
}

/// An entry that cannot be understood: mail waits, for its destination is unknown.
pub(super) fn trouble(found: &MapEntry, fault: &ValueError) -> Stop {
    let place = &found.place;
    let line = place.line.map(|line| format!(" line {line}")).unwrap_or_default();
    Stop::Trouble(format!("{} {}{line}: {}; {}", place.map, place.file, fault.text, fault.hint).into())
}

pub(super) const fn permanent(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(Class::Permanent, subject, detail)
}
