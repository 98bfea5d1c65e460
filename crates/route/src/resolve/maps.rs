//! One address, once through the maps.

use super::Precedence;
use super::rule::At;
use super::run::{Flow, Job, RecipientResolver, permanent, trouble};
use crate::destination::To;
use crate::question::Stop;
use crate::refusal::Refusal;
use crate::tables::ldap_routing::Routed;
use crate::tables::mailer::MailerValue;
use crate::tables::virtusertable::VirtualUserTarget;
use crate::tables::{TableEntry, ValueError, domaintable, mailertable, smarttable, virtusertable};
use mail::{Address, AddressLiteral, Domain, DomainName, LocalPart};

impl RecipientResolver<'_, '_, '_> {
    /// Once through the maps.
    pub(super) fn pass(&mut self, job: &mut Job) -> Result<Flow, Stop> {
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

    /// `localhost` is we, and domaintable has other names of domains.
    fn canonical(&mut self, job: &mut Job) -> Result<(), Stop> {
        let Some(name) = job.address.domain().name() else { return Ok(()) };
        if name.ascii() == "localhost" {
            self.at_domain(job, &self.router.settings.hostname.clone())?;
            return Ok(());
        }
        let Some(TableEntry { found, value }) =
            domaintable::find(self.ask, &self.router.maps.domaintable, name.ascii())?
        else {
            return Ok(());
        };
        let new = domaintable::parse(&value).map_err(|fault| trouble(&found, &fault))?;
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
                    Some(host) => self.by_mail_host(job, &host),
                    None => {
                        self.canonical(job)?;
                        Ok(Flow::On)
                    }
                }
            }
        }
    }

    /// `mailHost`: by mailertable, else directly.
    fn by_mail_host(&mut self, job: &Job, host: &str) -> Result<Flow, Stop> {
        let port = self.router.settings.port;
        if let Some(entry) = mailertable::find(self.ask, &self.router.maps.mailertable, &host.to_ascii_lowercase())? {
            let value = MailerValue::parse(&entry.value, port).map_err(|fault| trouble(&entry.found, &fault))?;
            self.step_of(mailertable::NAME, &entry.found, || value.to_string());
            return self.follow(job, &value, Some(entry.found));
        }
        let value = MailerValue::parse(&format!("relay:{host}"), port)
            .map_err(|fault| Stop::Trouble(format!("mailHost \"{host}\": {}", fault.text).into()))?;
        self.follow(job, &value, None)
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
        let Some(TableEntry { found, value }) =
            virtusertable::find(self.ask, sources, &local, name.ascii(), delimiter)?
        else {
            return Ok(Flow::On);
        };
        let target = match virtusertable::parse(&value) {
            Ok(target) => target,
            // The value contains text of the client, so the fault may be the client's.
            Err(fault) if found.value.contains('%') => {
                self.step_of(virtusertable::NAME, &found, || fault.text);
                let text = format!("<{}>... Invalid address", self.original);
                return Ok(self.fail(job, Refusal::new(553, permanent(1, 3), &text).with_found(Some(found))));
            }
            Err(fault) => return Err(trouble(&found, &fault)),
        };
        let new = match target {
            VirtualUserTarget::Error(error) => {
                self.step_of(virtusertable::NAME, &found, || {
                    format!("refused: {} {} {}", error.code, error.status, error.text)
                });
                let refusal = error.refusal(&self.original, Some(found));
                return Ok(self.fail(job, refusal));
            }
            VirtualUserTarget::User { name, is_mailbox: true } => {
                self.step_of(virtusertable::NAME, &found, || format!("mailbox of {name}"));
                return self.local(job, &name, true);
            }
            VirtualUserTarget::User { name, is_mailbox: false } => self.at(&name, &self.router.settings.hostname),
            VirtualUserTarget::Domain(domain) => self.at(job.address.local_part(), &domain),
            VirtualUserTarget::Address(address) => Ok(address),
        };
        let new =
            new.map_err(|why| trouble(&found, &ValueError { text: why, hint: "write a shorter address".into() }))?;
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
        self.deliver(job, job.address.clone(), to, via)
    }

    fn smarttable(&mut self, job: &Job) -> Result<Flow, Stop> {
        let settings = &self.router.settings;
        let entry = smarttable::find(self.ask, &self.router.maps.smarttable, self.sender, settings.delimiter)?;
        let Some(TableEntry { found, value: text }) = entry else { return Ok(Flow::On) };
        // As in sendmail, our own name says: as if there were no entry.
        if self.router.is_ours(&text) {
            self.step_of(smarttable::NAME, &found, || "no other host".to_owned());
            return Ok(Flow::On);
        }
        let value = MailerValue::parse(&text, settings.port).map_err(|fault| trouble(&found, &fault))?;
        self.step_of(smarttable::NAME, &found, || format!("{} by {value}", job.address));
        self.follow(job, &value, Some(found))
    }

    /// Plain hosts are not kept with the mail: they are looked up anew when it is sent.
    fn mailertable(&mut self, job: &Job) -> Result<Flow, Stop> {
        let Some(name) = job.address.domain().name() else { return Ok(Flow::On) };
        let entry = mailertable::find(self.ask, &self.router.maps.mailertable, name.ascii())?;
        let Some(TableEntry { found, value: text }) = entry else { return Ok(Flow::On) };
        let value = MailerValue::parse(&text, self.router.settings.port).map_err(|fault| trouble(&found, &fault))?;
        self.step_of(mailertable::NAME, &found, || format!("{} by {value}", job.address));
        match &value {
            MailerValue::Hosts { hosts, recipient: None } => {
                let to = To::Domain(name.ascii().into());
                self.deliver(job, job.address.clone(), to, Some(hosts.to_string()))
            }
            _ => self.follow(job, &value, Some(found)),
        }
    }
}
