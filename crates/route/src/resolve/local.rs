//! Users of this machine: aliases, their forwards, their mailboxes; and the treatment of mail for unknown users.

use super::LocalMailer;
use super::run::{Flow, Job, RecipientResolver, permanent};
use crate::alias::{self, AliasTarget, Expanded};
use crate::destination::{NextHost, To};
use crate::question::{Answer, Question, Stop};
use crate::refusal::Refusal;
use crate::tables::mailer::MailerValue;
use crate::tables::virtusertable::detail;
use mail::{Address, Domain, DomainName, LocalPart};

impl RecipientResolver<'_, '_, '_> {
    /// Mail for a user of this machine; `is_mailbox`: aliases do not count.
    pub(super) fn local(&mut self, job: &mut Job, user: &LocalPart, is_mailbox: bool) -> Result<Flow, Stop> {
        if is_mailbox {
            return match self.has_users() && !self.is_account(user)? {
                true => self.nobody(job, user),
                false => self.mailbox(job, user),
            };
        }
        if !self.is_first(job, &user.as_str().to_lowercase()) {
            return Ok(Flow::Done);
        }
        let router = self.router;
        let settings = alias::AliasSettings {
            hostname: &router.settings.hostname,
            is_local: &|domain| router.classes.is_local(domain),
            delimiter: router.settings.delimiter,
            depth_max: router.settings.alias_depth_max,
            expansion_max: router.settings.expansion_max,
            accounts: self.has_users(),
            forward: router.settings.forward,
        };
        let expansion = alias::expand(self.ask, &router.maps.aliases, &settings, user, &job.origin)?;
        self.push_steps(expansion.steps);
        let mut is_open = false;
        for Expanded { target, origin } in expansion.recipients {
            match self.send_to(job, user, target, origin) {
                Ok(_) => {}
                Err(Stop::Open) => is_open = true,
                Err(trouble) => return Err(trouble),
            }
        }
        if is_open { Err(Stop::Open) } else { Ok(Flow::Done) }
    }

    /// Adds a recipient that an alias or a forward leads to.
    fn send_to(
        &mut self,
        job: &Job,
        root: &LocalPart,
        target: AliasTarget,
        origin: alias::Origin,
    ) -> Result<Flow, Stop> {
        let member = |job: &Job, user: &LocalPart, origin| -> Result<Job, Stop> {
            Ok(Self::child(job, self.address_here(job, user)?, origin))
        };
        match target {
            AliasTarget::Address(address) => {
                let child = Self::child(job, address, origin);
                self.push(child);
                Ok(Flow::Done)
            }
            AliasTarget::Mailbox { user, detail } => {
                let delimiter = self.router.settings.delimiter.unwrap_or('+');
                let name = match &detail {
                    Some(detail) => joined(&user, delimiter, detail)?,
                    None => user,
                };
                let mut child = member(job, &name, origin)?;
                child.is_ruled = job.is_ruled;
                let settings = &self.router.settings;
                match settings.mail_hub.is_none() && matches!(settings.local, LocalMailer::None) {
                    true => self.unknown_user(child, root, &name),
                    false => self.mailbox(&child, &name),
                }
            }
            AliasTarget::Program { command } => {
                let child = member(job, root, origin)?;
                let user = child.origin.controller().unwrap_or_default().into();
                self.step("local", || format!("program {command}"));
                self.deliver(&child, child.address.clone(), To::Program { user, command }, None)
            }
            AliasTarget::File { path } => {
                let child = member(job, root, origin)?;
                let user = child.origin.controller().unwrap_or_default().into();
                self.step("local", || format!("file {path}"));
                self.deliver(&child, child.address.clone(), To::File { user, path }, None)
            }
            // A report names the address that the client gave, and not what stands in the file of a user.
            AliasTarget::Unknown { .. } if origin.has_forward() && self.router.settings.luser_relay.is_none() => {
                match origin.wrong(root, permanent(1, 1)) {
                    Some(refusal) => self.send_to(job, root, AliasTarget::Refused(refusal), origin),
                    None => Ok(Flow::Done),
                }
            }
            AliasTarget::Unknown { user } => self.unknown_user(member(job, &user, origin)?, root, &user),
            AliasTarget::Refused(refusal) => {
                // The user is told by the address that the client knows.
                let text = match refusal.text.strip_prefix(&format!("<{root}>... ")) {
                    Some(rest) => format!("<{}>... {rest}", self.original),
                    None => refusal.text.clone(),
                };
                let child = member(job, root, origin)?;
                self.step("local", || format!("refused: {refusal}"));
                let refusal = Refusal::new(refusal.code, refusal.status, &text).with_found(refusal.found);
                Ok(self.fail(&child, refusal))
            }
        }
    }

    /// Handles a name that is neither an alias nor a user with a mailbox, found on the way from the name `root`.
    fn unknown_user(&mut self, mut job: Job, root: &LocalPart, user: &LocalPart) -> Result<Flow, Stop> {
        // RFC 5321 §4.5.1: there is always a postmaster
        if user.as_str().eq_ignore_ascii_case("postmaster") && !root.as_str().eq_ignore_ascii_case("root") {
            self.step("local", || "postmaster is no alias and no user: root".to_owned());
            let root = LocalPart::new("root").map_err(|error| Stop::Trouble(error.to_string().into()))?;
            return self.local(&mut job, &root, false);
        }
        self.nobody(&job, user)
    }

    /// Whether users are accounts of this machine.
    fn has_users(&self) -> bool {
        let settings = &self.router.settings;
        settings.mail_hub.is_none()
            && match settings.local {
                LocalMailer::Mailbox => true,
                LocalMailer::Hosts { accounts, .. } => accounts,
                LocalMailer::None => false,
            }
    }

    /// Handles mail for the mailbox of an existing user.
    fn mailbox(&mut self, job: &Job, user: &LocalPart) -> Result<Flow, Stop> {
        let address = self.address_here(job, user)?;
        let router = self.router;
        if let Some(hub) = &router.settings.mail_hub {
            self.step("mail hub", || format!("{user} by {hub}"));
            return self.hand_to(job, user, hub);
        }
        match &router.settings.local {
            LocalMailer::Mailbox => {
                self.step("local", || format!("mailbox of {user}"));
                self.deliver(job, address, To::Local, None)
            }
            LocalMailer::Hosts { hosts, .. } => {
                let via = hosts.to_string();
                self.step("local", || format!("{address} by {via}"));
                self.deliver(job, address, To::Hosts(hosts.clone()), Some(via))
            }
            LocalMailer::None => self.nobody(job, user),
        }
    }

    fn is_account(&mut self, user: &LocalPart) -> Result<bool, Stop> {
        let name = user.as_str();
        let name = detail(name, self.router.settings.delimiter).map_or(name, |(user, _)| user);
        Ok(matches!(self.ask.answer(Question::User { name: name.into() })?, Answer::User { .. }))
    }

    /// Handles mail for an unknown user.
    fn nobody(&mut self, job: &Job, user: &LocalPart) -> Result<Flow, Stop> {
        let router = self.router;
        match &router.settings.luser_relay {
            Some(relay) => {
                self.step("luser relay", || format!("{user} by {relay}"));
                self.hand_to(job, user, relay)
            }
            None => {
                self.step("local", || format!("{user} is no alias and no user"));
                let refusal = self.unknown();
                Ok(self.fail(job, refusal))
            }
        }
    }

    /// A host that has our users: the address becomes one at that host.
    fn hand_to(&mut self, job: &Job, user: &LocalPart, value: &MailerValue) -> Result<Flow, Stop> {
        match value {
            MailerValue::Hosts { hosts, recipient } => {
                let host = hosts.groups.first().and_then(|group| group.first());
                let address = match (recipient, host) {
                    (Some(address), _) => address.clone(),
                    (None, Some(host)) => at_host(user, host).unwrap_or_else(|| job.address.clone()),
                    (None, None) => job.address.clone(),
                };
                let via = hosts.to_string();
                self.deliver(job, address, To::Hosts(hosts.clone()), Some(via))
            }
            MailerValue::Local(Some(name)) => {
                let name = LocalPart::new(name).map_err(|error| Stop::Trouble(error.to_string().into()))?;
                let address = self.address_here(job, &name)?;
                self.step("local", || format!("mailbox of {name}"));
                self.deliver(job, address, To::Local, None)
            }
            MailerValue::Local(None) => {
                let refusal = self.unknown();
                Ok(self.fail(job, refusal))
            }
            MailerValue::Error(error) => {
                let refusal = error.refusal(&self.original, None);
                Ok(self.fail(job, refusal))
            }
            MailerValue::Discard => self.follow(job, value, None),
        }
    }

    /// The address of a user: at the domain by which he was called, if that is ours.
    fn address_here(&self, job: &Job, user: &LocalPart) -> Result<Address, Stop> {
        let domain = job.address.domain();
        let domain = match self.router.classes.is_local(domain) && domain.name().is_some() {
            true => domain.clone(),
            false => Domain::Name(self.router.settings.hostname.clone()),
        };
        Address::new(user.clone(), domain).map_err(|error| Stop::Trouble(error.to_string().into()))
    }
}

fn joined(user: &LocalPart, delimiter: char, detail: &str) -> Result<LocalPart, Stop> {
    LocalPart::new(&format!("{}{delimiter}{detail}", user.as_str()))
        .map_err(|error| Stop::Trouble(error.to_string().into()))
}

fn at_host(user: &LocalPart, host: &NextHost) -> Option<Address> {
    let domain = match host {
        NextHost::Address(ip, _) => Domain::Literal((*ip).into()),
        NextHost::Name(name, _) | NextHost::Mx(name, _) => Domain::Name(DomainName::new(name).ok()?),
        NextHost::Unix(_) => return None,
    };
    Address::new(user.clone(), domain).ok()
}
