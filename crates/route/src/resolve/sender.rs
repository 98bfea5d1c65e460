//! The outside addresses of senders: domaintable, genericstable, masquerade.
//!
//! The envelope keeps its own name unless [`Generics::envelope`](super::Generics::envelope) says so, which is
//! sendmail's `masquerade_envelope`; the header of our users' mail has the other name ([`super::header`]).

use super::Router;
use super::run::trouble;
use crate::class::Class;
use crate::question::{Ask, Stop};
use crate::tables::{TableEntry, ValueError, domaintable, genericstable};
use mail::{Address, Domain, DomainName, LocalPart, ReversePath};

/// Where an address stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderKind {
    /// The sender in the envelope.
    Envelope,
    /// A sender in a header field.
    Header,
    /// A recipient in a header field.
    HeaderRecipient,
}

/// The domain that stands for ours: `MASQUERADE_AS`.
#[derive(Clone, Debug)]
pub struct Masquerade {
    /// That domain.
    pub domain: DomainName,
    /// Domains for which it stands, beside those that are ours: class M.
    pub domains: Class,
    /// It stands for these and our own host name alone: `limited_masquerade`.
    pub is_limited: bool,
    /// Domains for which it never stands: class N.
    pub exceptions: Class,
    /// Users who keep their domain, in lower case: class E.
    pub exposed: Vec<Box<str>>,
}

impl Router {
    /// The address by which a sender is known outside.
    ///
    /// # Errors
    /// [`Stop::Open`] if something has to be asked first, [`Stop::Trouble`] if it cannot be said now.
    pub fn sender(&self, ask: &mut Ask<'_>, sender: &ReversePath, kind: SenderKind) -> Result<ReversePath, Stop> {
        match sender {
            ReversePath::Null => Ok(ReversePath::Null),
            ReversePath::Address(address) => self.outside(ask, address, kind).map(ReversePath::Address),
        }
    }

    /// An address as it is known outside.
    ///
    /// # Errors
    /// As [`Self::sender`].
    pub(super) fn outside(&self, ask: &mut Ask<'_>, address: &Address, kind: SenderKind) -> Result<Address, Stop> {
        let generics = &self.settings.generics;
        let mut address = self.canonical(ask, address)?;
        if address.domain().name().is_some_and(|name| name.ascii() == "localhost") {
            address = at(address.local_part(), &self.settings.hostname)?;
        }
        let is_meant = match kind {
            SenderKind::Envelope => generics.envelope,
            SenderKind::Header => true,
            SenderKind::HeaderRecipient => generics.recipients,
        };
        if is_meant { self.generic(ask, address) } else { Ok(address) }
    }

    /// An address as the access map is asked for it: at its domain's own name, where domaintable has another one.
    ///
    /// # Errors
    /// [`Stop::Open`] if something has to be asked first, [`Stop::Trouble`] if it cannot be said now.
    pub fn canonical(&self, ask: &mut Ask<'_>, address: &Address) -> Result<Address, Stop> {
        let Some(name) = address.domain().name() else { return Ok(address.clone()) };
        let Some(TableEntry { found, value }) = domaintable::find(ask, &self.maps.domaintable, name.ascii())? else {
            return Ok(address.clone());
        };
        let new = domaintable::parse(&value).map_err(|fault| trouble(&found, &fault))?;
        at(address.local_part(), &new)
    }

    /// The same for a sender, which may be the null sender.
    ///
    /// # Errors
    /// As [`Self::canonical`].
    pub fn canonical_path(&self, ask: &mut Ask<'_>, path: &ReversePath) -> Result<ReversePath, Stop> {
        match path {
            ReversePath::Null => Ok(ReversePath::Null),
            ReversePath::Address(address) => self.canonical(ask, address).map(ReversePath::Address),
        }
    }

    fn generic(&self, ask: &mut Ask<'_>, address: Address) -> Result<Address, Stop> {
        let settings = &self.settings;
        let Some(name) = address.domain().name().cloned() else { return Ok(address) };
        // A user without a domain has become one at our own name.
        if !settings.generics.domains.has(address.domain()) && name.ascii() != settings.hostname.ascii() {
            return self.masqueraded(address);
        }
        let local = address.local_part().to_string();
        let sources = &self.maps.genericstable;
        let entry = genericstable::find(ask, sources, &local, name.ascii(), settings.delimiter)?;
        let Some(TableEntry { found, value }) = entry else { return self.masqueraded(address) };
        let bad = |why: String| {
            trouble(
                &found,
                &ValueError { text: format!("\"{value}\" is no address: {why}"), hint: "write user@domain".into() },
            )
        };
        if value.contains('@') {
            return Address::parse(value.as_bytes()).map_err(|error| bad(error.to_string()));
        }
        let user = LocalPart::new(value.trim_matches('"')).map_err(|error| bad(error.to_string()))?;
        self.masqueraded(at(&user, &settings.hostname)?)
    }

    fn masqueraded(&self, address: Address) -> Result<Address, Stop> {
        let Some(masquerade) = &self.settings.masquerade else { return Ok(address) };
        let user = address.local_part().as_str().to_lowercase();
        let domain = address.domain();
        let is_ours = self.is_hostname(domain)
            || masquerade.domains.has(domain)
            || (!masquerade.is_limited && self.classes.is_local(domain));
        if !is_ours || masquerade.exceptions.has(domain) || masquerade.exposed.iter().any(|name| **name == *user) {
            return Ok(address);
        }
        at(address.local_part(), &masquerade.domain)
    }

    fn is_hostname(&self, domain: &Domain) -> bool {
        domain.name().is_some_and(|name| name.ascii() == self.settings.hostname.ascii())
    }
}

fn at(local: &LocalPart, domain: &DomainName) -> Result<Address, Stop> {
    Address::new(local.clone(), Domain::Name(domain.clone())).map_err(|error| Stop::Trouble(error.to_string().into()))
}
