//! The way of one recipient through the maps, and of every address it becomes.
//!
//! Work is a list of [`Job`]s, an address each. A job goes through the maps until it is delivered, refused, or has become other
//! jobs. Copies are done last, so what somebody gets anyway is not copied to him. When an answer is missing the other jobs go on
//! all the same: then one round asks for all of them.

use super::rule::{At, CopyDsn, CopyTo, Rule};
use super::{Delivery, Failed, Outcome, Precedence, Request, Resolution, Router, STEPS_MAX, VIRTUAL_DEPTH_MAX};
use crate::destination::{Destination, TEXT_BYTES_MAX, To};
use crate::question::{Ask, Found, Stop};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::tables::ldap_routing::Routed;
use crate::tables::mailer::MailerValue;
use crate::tables::virtusertable::Target;
use crate::tables::{Entry, Fault, domaintable, mailertable, smarttable, virtusertable};
use mail::{Address, AddressLiteral, Domain, DomainName, EnhancedCode, LocalPart, Outcome as Class, ReversePath};
use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

/// An address on its way.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) address: Address,
    /// The owner of the list it comes from.
    pub(super) sender: Option<ReversePath>,
    pub(super) controller: Option<Box<str>>,
    /// What rules have said of it.
    pub(super) marks: Rc<Marks>,
    /// How many aliases and forwards led here.
    pub(super) depth: usize,
    /// It is a copy.
    pub(super) copy: Option<CopyDsn>,
    /// A rule that does more than copy has fitted.
    pub(super) is_ruled: bool,
    /// LDAP routing has been asked for this address.
    is_routed: bool,
}

/// What rules say of a mail, beside where it goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    hold: Option<Box<str>>,
    queue_only: bool,
    source4: Option<Ipv4Addr>,
    source6: Option<Ipv6Addr>,
    hello: Option<Box<str>>,
    /// The rules that have copied it, by their number.
    copied: Vec<usize>,
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
enum Copy {
    Job(Job),
    Value(Job, MailerValue, Option<Found>),
}

pub(super) struct Run<'r, 'q, 'a> {
    pub(super) router: &'r Router,
    pub(super) ask: &'q mut Ask<'a>,
    sender: &'r ReversePath,
    /// The recipient as the client wrote it.
    original: String,
    /// The rules that are for this sender and client, with their numbers.
    rules: Vec<(usize, &'r Rule)>,
    jobs: VecDeque<Job>,
    copies: VecDeque<Copy>,
    /// Addresses that have been looked at, as originals and as copies.
    seen: HashSet<(Box<str>, Option<ReversePath>, bool)>,
    /// Addresses, destinations and senders that get the mail.
    taken: HashSet<(Box<str>, Box<str>, Option<ReversePath>)>,
    deliveries: Vec<Delivery>,
    failed: Vec<Failed>,
    is_discarded: bool,
    steps: Vec<Step>,
}

impl<'r, 'q, 'a> Run<'r, 'q, 'a> {
    pub(super) fn new(router: &'r Router, ask: &'q mut Ask<'a>, request: &Request<'r>) -> Self {
        let fits = |rule: &Rule| rule.fits(request.sender, request.client, router.settings.delimiter);
        let rules = router.rules.iter().enumerate().filter(|(_, rule)| fits(rule)).collect();
        let job = Job {
            address: request.recipient.clone(),
            sender: None,
            controller: None,
            marks: Rc::default(),
            depth: 0,
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
        let mut is_open = false;
        let mut count = 0_usize;
        loop {
            let (done, job) = if let Some(job) = self.jobs.pop_front() {
                (self.one(job.clone()), job)
            } else {
                match self.copies.pop_front() {
                    Some(Copy::Job(job)) => (self.one(job.clone()), job),
                    Some(Copy::Value(job, value, found)) => (self.to_value(&job, &value, found), job),
                    None => break,
                }
            };
            match done {
                Ok(_) => {}
                Err(Stop::Open) => is_open = true,
                Err(trouble) => return Err(trouble),
            }
            count += 1;
            if count > self.router.settings.expansion_max {
                let max = self.router.settings.expansion_max;
                let text = format!("<{}>... it is more than {max} recipients", self.original);
                self.fail(&job, Refusal::new(550, permanent(5, 3), &text));
                self.deliveries.clear();
                break;
            }
        }
        if is_open { Err(Stop::Open) } else { Ok(self.end()) }
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
    fn one(&mut self, mut job: Job) -> Result<Flow, Stop> {
        let key: Box<str> = job.address.key().as_str().into();
        if !self.seen.insert((key, job.sender.clone(), job.copy.is_some())) {
            self.step("duplicate", || format!("{} is done already", job.address));
            return Ok(Flow::Done);
        }
        for _ in 0..VIRTUAL_DEPTH_MAX {
            if self.pass(&mut job)? == Flow::Done {
                return Ok(Flow::Done);
            }
        }
        let text = format!("<{}>... loop in virtusertable", self.original);
        self.step("virtusertable", || format!("{} leads to itself", job.address));
        Ok(self.fail(&job, Refusal::new(554, permanent(4, 6), &text)))
    }

    /// Once through the maps.
    fn pass(&mut self, job: &mut Job) -> Result<Flow, Stop> {
        if self.rules(job, At::First)? == Flow::Done {
            return Ok(Flow::Done);
        }
        self.canonical(job)?;
        if self.ldap_routing(job)? == Flow::Done {
            return Ok(Flow::Done);
        }
        if job.address.domain().name().is_some() {
            if self.rules(job, At::BeforeVirtual)? == Flow::Done {
                return Ok(Flow::Done);
            }
            match self.virtual_user(job)? {
                Flow::On => {}
                end => return Ok(end),
            }
        }
        if self.rules(job, At::BeforeLocal)? == Flow::Done {
            return Ok(Flow::Done);
        }
        if self.router.classes.is_local(job.address.domain()) {
            let user = job.address.local_part().clone();
            return self.local(job, &user, false);
        }
        self.remote(job)
    }

    /// The rules of one place.
    fn rules(&mut self, job: &mut Job, at: At) -> Result<Flow, Stop> {
        let delimiter = self.router.settings.delimiter;
        let mut via = None;
        for index in 0..self.rules.len() {
            let Some(&(number, rule)) = self.rules.get(index) else { break };
            let is_copying =
                !rule.action.copies.is_empty() && job.copy.is_none() && !job.marks.copied.contains(&number);
            if rule.at != at || (job.is_ruled && !is_copying) || !rule.recipient.has(&job.address, delimiter) {
                continue;
            }
            if is_copying {
                self.copy(job, number, rule);
            }
            if job.is_ruled || rule.action.is_copy_alone() {
                continue;
            }
            job.is_ruled = true;
            if let Some(refusal) = &rule.action.reject {
                let found = found_of(rule, &job.address, refusal.to_string());
                self.step_of("rule", &found, || format!("refused: {refusal}"));
                return Ok(self.fail(job, refusal.clone().with_found(Some(found))));
            }
            self.mark(job, rule);
            via = rule.action.via.as_ref().map(|value| (value, rule));
        }
        let Some((value, rule)) = via else { return Ok(Flow::On) };
        let found = found_of(rule, &job.address, value.to_string());
        self.step_of("rule", &found, || format!("{} by {value}", job.address));
        self.to_value(job, value, Some(found))
    }

    fn mark(&mut self, job: &mut Job, rule: &Rule) {
        let action = &rule.action;
        let marks = Rc::make_mut(&mut job.marks);
        let mut said = Vec::new();
        if let Some(hold) = &action.hold {
            marks.hold = Some(hold.clone());
            said.push(format!("held: {hold}"));
        }
        if action.queue_only {
            marks.queue_only = true;
            said.push("waits in the queue".to_owned());
        }
        if let Some(ip) = action.source4 {
            marks.source4 = Some(ip);
            said.push(format!("from {ip}"));
        }
        if let Some(ip) = action.source6 {
            marks.source6 = Some(ip);
            said.push(format!("from {ip}"));
        }
        if let Some(hello) = &action.hello {
            marks.hello = Some(hello.clone());
            said.push(format!("as {hello}"));
        }
        if !said.is_empty() {
            let said = said.join(", ");
            let found = found_of(rule, &job.address, said.clone());
            self.step_of("rule", &found, || said);
        }
    }

    /// Notes the copies that a rule asks for.
    fn copy(&mut self, job: &mut Job, number: usize, rule: &Rule) {
        Rc::make_mut(&mut job.marks).copied.push(number);
        for to in &rule.action.copies {
            let mut copy = Job {
                copy: Some(rule.action.copy_dsn),
                marks: Rc::default(),
                is_ruled: false,
                is_routed: false,
                ..job.clone()
            };
            match to {
                CopyTo::Address(address) => {
                    let found = found_of(rule, &job.address, address.to_string());
                    self.step_of("rule", &found, || format!("copy to {address}"));
                    copy.address = address.clone();
                    (copy.sender, copy.controller, copy.depth) = (None, None, 0);
                    self.copies.push_back(Copy::Job(copy));
                }
                CopyTo::Mailer(value) => {
                    let found = found_of(rule, &job.address, value.to_string());
                    self.step_of("rule", &found, || format!("copy for {} by {value}", job.address));
                    self.copies.push_back(Copy::Value(copy, value.clone(), Some(found)));
                }
            }
        }
    }

    /// `localhost` is we, and domaintable has other names of domains.
    fn canonical(&mut self, job: &mut Job) -> Result<(), Stop> {
        let Some(name) = job.address.domain().name() else { return Ok(()) };
        if name.ascii() == "localhost" {
            self.at_domain(job, &self.router.settings.hostname.clone())?;
            return Ok(());
        }
        let Some((found, new)) = domaintable::find(self.ask, &self.router.maps.domaintable, name.ascii())? else {
            return Ok(());
        };
        let new = new.map_err(|fault| trouble(&found, &fault))?;
        self.step_of(domaintable::NAME, &found, || new.to_string());
        self.at_domain(job, &new)
    }

    fn at_domain(&self, job: &mut Job, domain: &DomainName) -> Result<(), Stop> {
        let new = Address::new(job.address.local_part().clone(), Domain::Name(domain.clone()));
        job.address = new.map_err(|error| Stop::Trouble(error.to_string().into()))?;
        Ok(())
    }

    fn ldap_routing(&mut self, job: &mut Job) -> Result<Flow, Stop> {
        let Some(routing) = &self.router.maps.ldap_routing else { return Ok(Flow::On) };
        let Some(name) = job.address.domain().name().filter(|_| !job.is_routed) else { return Ok(Flow::On) };
        let local = job.address.local_part().to_string();
        let is_here = |host: &str| self.router.is_ours(host);
        let routed = routing.find(self.ask, &local, name, self.router.settings.delimiter, is_here)?;
        job.is_routed = true;
        match routed {
            Routed::Same => Ok(Flow::On),
            Routed::Unknown => {
                self.step("LDAP routing", || format!("{} is not there", job.address));
                Ok(self.fail(job, self.unknown()))
            }
            Routed::To { address, host, key, source } => {
                if let Some(text) = &address {
                    let text = if text.contains('@') {
                        text.clone()
                    } else {
                        format!("{text}@{}", self.router.settings.hostname)
                    };
                    job.address = Address::parse(text.as_bytes()).map_err(|error| {
                        Stop::Trouble(format!("{source}: mailRoutingAddress of {key} is no address: {error}").into())
                    })?;
                }
                self.step("LDAP routing", || {
                    let host = host.as_deref().map(|host| format!(" at {host}")).unwrap_or_default();
                    format!("{source} says of {key}: {}{host}", job.address)
                });
                match host {
                    Some(host) => self.to_mail_host(job, &host),
                    None => {
                        self.canonical(job)?;
                        Ok(Flow::On)
                    }
                }
            }
        }
    }

    /// `mailHost`: by mailertable, else directly.
    fn to_mail_host(&mut self, job: &Job, host: &str) -> Result<Flow, Stop> {
        let port = self.router.settings.port;
        if let Some(entry) = mailertable::find(self.ask, &self.router.maps.mailertable, &host.to_ascii_lowercase())? {
            let value = MailerValue::parse(&entry.value, port).map_err(|fault| trouble(&entry.found, &fault))?;
            self.step_of(mailertable::NAME, &entry.found, || value.to_string());
            return self.to_value(job, &value, Some(entry.found));
        }
        let value = MailerValue::parse(&format!("relay:{host}"), port)
            .map_err(|fault| Stop::Trouble(format!("mailHost \"{host}\": {}", fault.text).into()))?;
        self.to_value(job, &value, None)
    }

    fn virtual_user(&mut self, job: &mut Job) -> Result<Flow, Stop> {
        let classes = &self.router.classes;
        let domain = job.address.domain();
        let Some(name) = domain.name().filter(|_| classes.is_local(domain) || classes.virt.has(domain)) else {
            return Ok(Flow::On);
        };
        let local = job.address.local_part().to_string();
        let sources = &self.router.maps.virtusertable;
        let delimiter = self.router.settings.delimiter;
        let Some(Entry { found, value }) = virtusertable::find(self.ask, sources, &local, name.ascii(), delimiter)?
        else {
            return Ok(Flow::On);
        };
        let target = match virtusertable::parse(&value) {
            Ok(target) => target,
            // What the client wrote became part of it, so it may be his fault.
            Err(fault) if found.value.contains('%') => {
                self.step_of(virtusertable::NAME, &found, || fault.text);
                let text = format!("<{}>... Invalid address", self.original);
                return Ok(self.fail(job, Refusal::new(553, permanent(1, 3), &text).with_found(Some(found))));
            }
            Err(fault) => return Err(trouble(&found, &fault)),
        };
        let new = match target {
            Target::Error(error) => {
                self.step_of(virtusertable::NAME, &found, || {
                    format!("refused: {} {} {}", error.code, error.status, error.text)
                });
                let refusal = error.refusal(&self.original, Some(found));
                return Ok(self.fail(job, refusal));
            }
            Target::User { name, is_mailbox: true } => {
                self.step_of(virtusertable::NAME, &found, || format!("mailbox of {name}"));
                return self.local(job, &name, true);
            }
            Target::User { name, is_mailbox: false } => self.at(&name, &self.router.settings.hostname),
            Target::Domain(domain) => self.at(job.address.local_part(), &domain),
            Target::Address(address) => Ok(address),
        };
        let new = new.map_err(|why| trouble(&found, &Fault { text: why, hint: "write a shorter address".into() }))?;
        if new.key() == job.address.key() {
            self.step_of(virtusertable::NAME, &found, || "the address itself".to_owned());
            return Ok(Flow::On);
        }
        self.step_of(virtusertable::NAME, &found, || new.to_string());
        job.address = new;
        job.is_routed = false;
        Ok(Flow::Again)
    }

    fn at(&self, local: &LocalPart, domain: &DomainName) -> Result<Address, String> {
        Address::new(local.clone(), Domain::Name(domain.clone())).map_err(|error| error.to_string())
    }

    /// A recipient elsewhere.
    fn remote(&mut self, job: &mut Job) -> Result<Flow, Stop> {
        if let Domain::Literal(AddressLiteral::General(_)) = job.address.domain() {
            let text = format!("<{}>... Invalid address", self.original);
            return Ok(self.fail(job, Refusal::new(553, permanent(1, 2), &text)));
        }
        if self.rules(job, At::BeforeMailertable)? == Flow::Done {
            return Ok(Flow::Done);
        }
        let is_sender_first = self.router.settings.precedence == Precedence::Sender;
        if is_sender_first && self.smarttable(job)? == Flow::Done {
            return Ok(Flow::Done);
        }
        if self.mailertable(job)? == Flow::Done {
            return Ok(Flow::Done);
        }
        // sendmail gives literals to the smart host without a look at the sender.
        let is_name = job.address.domain().name().is_some();
        if !is_sender_first && is_name && self.smarttable(job)? == Flow::Done {
            return Ok(Flow::Done);
        }
        if self.rules(job, At::Last)? == Flow::Done {
            return Ok(Flow::Done);
        }
        let (to, text) = match job.address.domain() {
            Domain::Name(name) => (To::Domain(name.ascii().into()), name.ascii().to_owned()),
            Domain::Literal(literal) => (To::Literal(literal.to_string().into()), literal.to_string()),
        };
        let via = self.router.settings.smart_hosts.as_ref().map(ToString::to_string);
        match &via {
            Some(hosts) => self.step("smart host", || format!("{} by {hosts}", job.address)),
            None => self.step("mx", || format!("{} by the hosts of {text}", job.address)),
        }
        Ok(self.deliver(job, job.address.clone(), to, via))
    }

    fn smarttable(&mut self, job: &Job) -> Result<Flow, Stop> {
        let settings = &self.router.settings;
        let entry = smarttable::find(self.ask, &self.router.maps.smarttable, self.sender, settings.delimiter)?;
        let Some(Entry { found, value: text }) = entry else { return Ok(Flow::On) };
        // As in sendmail, our own name says: as if there were no entry.
        if self.router.is_ours(&text) {
            self.step_of(smarttable::NAME, &found, || "no other host".to_owned());
            return Ok(Flow::On);
        }
        let value = MailerValue::parse(&text, settings.port).map_err(|fault| trouble(&found, &fault))?;
        self.step_of(smarttable::NAME, &found, || format!("{} by {value}", job.address));
        self.to_value(job, &value, Some(found))
    }

    /// Plain hosts are not kept with the mail: they are looked up anew when it is sent.
    fn mailertable(&mut self, job: &Job) -> Result<Flow, Stop> {
        let Some(name) = job.address.domain().name() else { return Ok(Flow::On) };
        let entry = mailertable::find(self.ask, &self.router.maps.mailertable, name.ascii())?;
        let Some(Entry { found, value: text }) = entry else { return Ok(Flow::On) };
        let value = MailerValue::parse(&text, self.router.settings.port).map_err(|fault| trouble(&found, &fault))?;
        self.step_of(mailertable::NAME, &found, || format!("{} by {value}", job.address));
        match &value {
            MailerValue::Hosts { hosts, recipient: None } => {
                let to = To::Domain(name.ascii().into());
                Ok(self.deliver(job, job.address.clone(), to, Some(hosts.to_string())))
            }
            _ => self.to_value(job, &value, Some(found)),
        }
    }

    /// Does what a value says.
    pub(super) fn to_value(&mut self, job: &Job, value: &MailerValue, found: Option<Found>) -> Result<Flow, Stop> {
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
                Ok(self.deliver(job, address, To::Hosts(hosts.clone()), Some(via)))
            }
            MailerValue::Local(user) => {
                let user = match user {
                    Some(user) => LocalPart::new(user).map_err(|error| Stop::Trouble(error.to_string().into()))?,
                    None => job.address.local_part().clone(),
                };
                self.local(job, &user, false)
            }
            MailerValue::Error(error) => Ok(self.fail(job, error.refusal(&self.original, found))),
            MailerValue::Discard => {
                self.is_discarded = true;
                Ok(Flow::Done)
            }
        }
    }

    /// A delivery, unless there is the same already.
    pub(super) fn deliver(&mut self, job: &Job, address: Address, to: To, via: Option<String>) -> Flow {
        let is_remote = matches!(to, To::Domain(_) | To::Literal(_) | To::Hosts(_));
        let marks = &job.marks;
        let mut destination = Destination::new(to);
        if is_remote {
            (destination.source4, destination.source6) = (marks.source4, marks.source6);
            destination.hello.clone_from(&marks.hello);
        }
        let who: Box<str> = match destination.to {
            // Whatever domain he was called by, it is one mailbox.
            To::Local => address.local_part().as_str().to_lowercase().into(),
            // The command or the file is all.
            To::Program { .. } | To::File { .. } => "".into(),
            _ => address.key().as_str().into(),
        };
        if !self.taken.insert((who, destination.to_string().into(), job.sender.clone())) {
            self.step("duplicate", || format!("{address} gets it already"));
            return Flow::Done;
        }
        destination.is_copy = job.copy.is_some() && is_remote;
        self.deliveries.push(Delivery {
            address,
            destination,
            sender: job.sender.clone(),
            controller: job.controller.clone(),
            hold: marks.hold.clone(),
            queue_only: marks.queue_only,
            is_copy: job.copy.is_some(),
            copy_dsn: job.copy.unwrap_or_default(),
            via,
        });
        Flow::Done
    }

    /// Nobody gets mail for this address.
    pub(super) fn fail(&mut self, job: &Job, refusal: Refusal) -> Flow {
        let (address, sender, copy) = (job.address.clone(), job.sender.clone(), job.copy);
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
    pub(super) fn child(&self, job: &Job, address: Address) -> Job {
        Job { address, depth: job.depth + 1, is_ruled: false, is_routed: false, ..job.clone() }
    }

    pub(super) fn unknown(&self) -> Refusal {
        Refusal::new(550, permanent(1, 1), &format!("<{}>... User unknown", self.original))
    }

    pub(super) fn original(&self) -> &str {
        &self.original
    }

    pub(super) fn step(&mut self, stage: &'static str, text: impl FnOnce() -> String) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step::new(stage, text()));
        }
    }

    pub(super) fn step_of(&mut self, stage: &'static str, found: &Found, text: impl FnOnce() -> String) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step::of(stage, found.clone(), text()));
        }
    }

    pub(super) fn push_steps(&mut self, steps: Vec<Step>) {
        let room = STEPS_MAX.saturating_sub(self.steps.len());
        self.steps.extend(steps.into_iter().take(room));
    }
}

fn found_of(rule: &Rule, address: &Address, value: String) -> Found {
    let key = format!("{} for {address}", rule.name);
    Found { key: key.into(), value: value.into(), place: rule.place.clone() }
}

/// An entry that cannot be understood: mail waits, for nobody can say where it was meant to go.
pub(super) fn trouble(found: &Found, fault: &Fault) -> Stop {
    let place = &found.place;
    let line = place.line.map(|line| format!(" line {line}")).unwrap_or_default();
    Stop::Trouble(format!("{} {}{line}: {}; {}", place.map, place.file, fault.text, fault.hint).into())
}

pub(super) const fn permanent(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(Class::Permanent, subject, detail)
}
