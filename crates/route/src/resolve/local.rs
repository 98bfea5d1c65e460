//! Users of this machine: aliases, their forwards, their mailboxes; and who is to have the mail of those whom nobody knows.

use super::LocalMailer;
use super::run::{Flow, Job, Run};
use crate::destination::To;
use crate::question::{Answer, Question, Stop};
use crate::tables::mailer::MailerValue;
use crate::tables::virtusertable::detail;
use mail::{Address, Domain, DomainName, LocalPart};

impl Run<'_, '_, '_> {
    /// Mail for a user of this machine; `is_mailbox`: whatever aliases say.
    pub(super) fn local(&mut self, job: &Job, user: &LocalPart, _is_mailbox: bool) -> Result<Flow, Stop> {
        self.mailbox(job, user)
    }

    /// Mail for the mailbox of a user, if he is one.
    fn mailbox(&mut self, job: &Job, user: &LocalPart) -> Result<Flow, Stop> {
        let address = self.address_here(job, user)?;
        let router = self.router;
        if let Some(hub) = &router.settings.mail_hub {
            self.step("mail hub", || format!("{user} by {hub}"));
            return self.to_host(job, user, hub);
        }
        let needs_account = match &router.settings.local {
            LocalMailer::Mailbox | LocalMailer::None => true,
            LocalMailer::Hosts { accounts, .. } => *accounts,
        };
        if needs_account && !self.is_account(user)? {
            return self.nobody(job, user);
        }
        match &router.settings.local {
            LocalMailer::Mailbox => {
                self.step("local", || format!("mailbox of {user}"));
                Ok(self.deliver(job, address, To::Local, None))
            }
            LocalMailer::Hosts { hosts, .. } => {
                let via = hosts.to_string();
                self.step("local", || format!("{address} by {via}"));
                Ok(self.deliver(job, address, To::Hosts(hosts.clone()), Some(via)))
            }
            LocalMailer::None => self.nobody(job, user),
        }
    }

    fn is_account(&mut self, user: &LocalPart) -> Result<bool, Stop> {
        if self.router.settings.local == LocalMailer::None {
            return Ok(false);
        }
        let name = user.as_str();
        let name = detail(name, self.router.settings.delimiter).map_or(name, |(user, _)| user);
        Ok(matches!(self.ask.answer(Question::User { name: name.into() })?, Answer::User { .. }))
    }

    /// Mail for a user whom nobody knows.
    fn nobody(&mut self, job: &Job, user: &LocalPart) -> Result<Flow, Stop> {
        let router = self.router;
        match &router.settings.luser_relay {
            Some(relay) => {
                self.step("luser relay", || format!("{user} by {relay}"));
                self.to_host(job, user, relay)
            }
            None => {
                self.step("local", || format!("{user} is no alias and no user"));
                let refusal = self.unknown();
                Ok(self.fail(job, refusal))
            }
        }
    }

    /// A host that has our users: the address becomes one at that host.
    fn to_host(&mut self, job: &Job, user: &LocalPart, value: &MailerValue) -> Result<Flow, Stop> {
        match value {
            MailerValue::Hosts { hosts, recipient } => {
                let host = hosts.groups.first().and_then(|group| group.first());
                let address = match (recipient, host) {
                    (Some(address), _) => address.clone(),
                    (None, Some(host)) => at_host(user, host).unwrap_or_else(|| job.address.clone()),
                    (None, None) => job.address.clone(),
                };
                let via = hosts.to_string();
                Ok(self.deliver(job, address, To::Hosts(hosts.clone()), Some(via)))
            }
            MailerValue::Local(Some(name)) => {
                let name = LocalPart::new(name).map_err(|error| Stop::Trouble(error.to_string().into()))?;
                let address = self.address_here(job, &name)?;
                self.step("local", || format!("mailbox of {name}"));
                Ok(self.deliver(job, address, To::Local, None))
            }
            MailerValue::Local(None) => {
                let refusal = self.unknown();
                Ok(self.fail(job, refusal))
            }
            MailerValue::Error(error) => {
                let refusal = error.refusal(self.original(), None);
                Ok(self.fail(job, refusal))
            }
            MailerValue::Discard => self.to_value(job, value, None),
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

fn at_host(user: &LocalPart, host: &crate::destination::NextHost) -> Option<Address> {
    use crate::destination::NextHost;
    let domain = match host {
        NextHost::Address(ip, _) => Domain::Literal((*ip).into()),
        NextHost::Name(name, _) | NextHost::Mx(name, _) => Domain::Name(DomainName::new(name).ok()?),
        NextHost::Unix(_) => return None,
    };
    Address::new(user.clone(), domain).ok()
}
