//! LDAP routing: a directory says at which host a user's mailbox is, and under which address.
//!
//! For an address of one of its domains the directory is asked for the address, then (where details do not count) for
//! the address without its detail, then for `@domain`. The first answer that has an attribute decides:
//!
//! | `mailHost` | `mailRoutingAddress` | Mail goes |
//! |---|---|---|
//! | ours | set | to that address, here |
//! | ours | not set | to the address as it is, here |
//! | another | set | to that host, for that address |
//! | another | not set | to that host, for the address as it is |
//! | not set | set | to that address |
//! | not set | not set | to the address as it is; `bounce`: back, `User unknown` |
//!
//! "To that host" is to the hosts in mailertable for it, else to its MX hosts.

use super::virtusertable::detail;
use crate::class::Class;
use crate::question::{Answer, Ask, Question, Stop};
use mail::DomainName;
use std::sync::Arc;

/// The treatment of the detail in `user+detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Detail {
    /// It is part of the name.
    #[default]
    Keep,
    /// `strip`: without it where nothing is known with it.
    Strip,
    /// `preserve`: as `strip`, and the routing address gets it.
    Preserve,
}

/// LDAP routing as the server has it.
#[derive(Clone, Debug)]
pub struct LdapRouting {
    /// The directories, by the names under which the caller knows them; the first that has an answer counts.
    pub sources: Vec<Arc<str>>,
    /// The domains it is for: class `LDAPRoute`.
    pub domains: Class,
    /// Domains whose addresses are looked up at another: class `LDAPRouteEquiv`, and that domain.
    pub equivalents: Option<(Class, DomainName)>,
    /// An address that is not there is refused; else it is taken as it is.
    pub bounce: bool,
    /// The treatment of details.
    pub detail: Detail,
    /// `@domain` is not asked for.
    pub no_domain: bool,
}

/// The answer of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    /// Nothing, or that the address is right as it is.
    Same,
    /// Another address, and the host it is at, if that is not this one.
    To {
        /// `mailRoutingAddress`, with the detail where it is preserved.
        address: Option<String>,
        /// `mailHost`.
        host: Option<Arc<str>>,
        /// The key of the look-up.
        key: String,
        /// Where.
        source: Arc<str>,
    },
    /// There is no such user.
    Unknown,
}

impl LdapRouting {
    /// Asks for an address. `is_here` says whether a host is this one.
    ///
    /// # Errors
    /// As [`Ask::find`].
    pub fn find(
        &self,
        ask: &mut Ask<'_>,
        local: &str,
        domain: &DomainName,
        delimiter: Option<char>,
        is_here: impl Fn(&str) -> bool,
    ) -> Result<Routed, Stop> {
        let at = match &self.equivalents {
            _ if self.domains.has_name(domain.ascii()) => domain.ascii(),
            Some((class, name)) if class.has_name(domain.ascii()) => name.ascii(),
            _ => return Ok(Routed::Same),
        };
        let mut keys = vec![(format!("{local}@{at}"), "")];
        let mut cut = "";
        if self.detail != Detail::Keep
            && let Some((user, _)) = detail(local, delimiter)
        {
            cut = local.get(user.len()..).unwrap_or_default();
            keys.push((format!("{user}@{at}"), cut));
        }
        if !self.no_domain {
            keys.push((format!("@{at}"), cut));
        }
        for (key, cut) in keys {
            let Some((source, host, address)) = self.ask(ask, &key)? else { continue };
            let address = address.map(|address| match (self.detail, address.split_once('@')) {
                (Detail::Preserve, Some((user, domain))) => format!("{user}{cut}@{domain}"),
                _ => address.to_string(),
            });
            let host = host.filter(|host| !is_here(host));
            if address.is_none() && host.is_none() {
                return Ok(Routed::Same);
            }
            return Ok(Routed::To { address, host, key, source });
        }
        Ok(if self.bounce { Routed::Unknown } else { Routed::Same })
    }

    /// The first directory that knows one of the attributes.
    #[expect(clippy::type_complexity, reason = "directory, host and address, taken apart at once")]
    fn ask(
        &self,
        ask: &mut Ask<'_>,
        key: &str,
    ) -> Result<Option<(Arc<str>, Option<Arc<str>>, Option<Arc<str>>)>, Stop> {
        for source in &self.sources {
            let question = Question::Routing { source: Arc::clone(source), key: key.into() };
            if let Answer::Routing { host, address } = ask.answer(question)?
                && (host.is_some() || address.is_some())
            {
                return Ok(Some((Arc::clone(source), host, address)));
            }
        }
        Ok(None)
    }
}
