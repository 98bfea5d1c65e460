//! The hosts and settings for a domain when its mail is sent.
//!
//! Mail for a domain is kept under the name of the domain. Which hosts that means is asked anew for each connection, so
//! that a changed mailertable holds for mail that waits.

use super::Router;
use crate::destination::Hosts;
use crate::question::{Ask, Stop};
use crate::refusal::Refusal;
use crate::tables::mailer::MailerValue;
use crate::tables::{TableEntry, mailertable};

/// The treatment of a domain whose mail does not go to its MX hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostsOrElse {
    /// These hosts.
    Hosts(Hosts),
    /// It is for a user here: the recipient is to be resolved anew.
    Local,
    /// No host takes it: the mail is returned.
    Refuse(Refusal),
}

impl Router {
    /// The hosts for a domain, or for an address in brackets, of [`To::Domain`](crate::destination::To::Domain) and
    /// [`To::Literal`](crate::destination::To::Literal): the hosts in mailertable, else the smart hosts. `None`: its MX
    /// hosts, or the address itself.
    ///
    /// Mail that was taken is not dropped because of an entry `discard:` that came later: it is refused.
    ///
    /// # Errors
    /// [`Stop::Open`] if something has to be asked first; [`Stop::Trouble`] if it cannot be said now, also because the
    /// entry cannot be understood: the mail waits.
    pub fn hosts_of(&self, ask: &mut Ask<'_>, domain: &str) -> Result<Option<HostsOrElse>, Stop> {
        let smart_hosts = || Ok(self.settings.smart_hosts.clone().map(HostsOrElse::Hosts));
        if domain.starts_with('[') {
            return smart_hosts();
        }
        let Some(TableEntry { found, value }) = mailertable::find(ask, &self.maps.mailertable, domain)? else {
            return smart_hosts();
        };
        let value =
            MailerValue::parse(&value, self.settings.port).map_err(|fault| super::run::trouble(&found, &fault))?;
        Ok(Some(match value {
            MailerValue::Hosts { hosts, .. } => HostsOrElse::Hosts(hosts),
            MailerValue::Local(_) => HostsOrElse::Local,
            MailerValue::Error(error) => {
                HostsOrElse::Refuse(Refusal::new(error.code, error.status, &error.text).with_found(Some(found)))
            }
            MailerValue::Discard => {
                let status = super::run::permanent(7, 1);
                HostsOrElse::Refuse(
                    Refusal::new(550, status, "mail for this domain is discarded").with_found(Some(found)),
                )
            }
        }))
    }
}
