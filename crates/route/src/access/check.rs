//! The decisions about client, sender and recipient.

use super::key::{self, Tag};
use super::value::{self, AccessValue, DENIED, DISABLED};
use super::{Access, AccessEntry, Client, ClientName, DelayChecks, Ruled, Ruling};
use crate::class::Classes;
use crate::question::{Ask, Stop};
use crate::step::Step;
use mail::{Address, Domain, EnhancedCode, Outcome, ReversePath};

const CONNECT: Tag = Tag::or_bare("Connect");
const FROM: Tag = Tag::or_bare("From");
const TO: Tag = Tag::or_bare("To");
const SPAM: Tag = Tag::only("Spam");

/// Returns the decision of an entry with one of these tags.
fn ruling(entry: &AccessEntry, reject: (u16, EnhancedCode, &str), about: Option<&Address>) -> Ruling {
    let found = || Some(entry.found.clone());
    match &entry.value {
        AccessValue::Ok => Ruling::Accept,
        AccessValue::Relay => Ruling::Relay,
        AccessValue::Reject => Ruling::Refuse(value::refusal(reject, about).with_found(found())),
        AccessValue::Discard => Ruling::Discard,
        AccessValue::Quarantine(reason) => Ruling::Quarantine(reason.clone()),
        AccessValue::Error(error) => Ruling::Refuse(error.refusal(about).with_found(found())),
        AccessValue::Skip | AccessValue::Friend | AccessValue::Hater | AccessValue::Subject => Ruling::Continue,
    }
}

fn step(stage: &'static str, entry: AccessEntry, ruling: &Ruling) -> Step {
    let text = match ruling {
        Ruling::Refuse(refusal) => refusal.to_string(),
        Ruling::Quarantine(reason) => format!("held: {reason}"),
        _ => entry.value.word().to_owned(),
    };
    Step::of(stage, entry.found, text)
}

impl Access {
    /// May this client send anything? sendmail's `check_relay`. With `delay_checks` the answer comes with the
    /// recipients.
    ///
    /// sendmail does not close the connection for a refusal but gives it to `MAIL` and `RCPT`, and closes it for one
    /// with 421.
    ///
    /// # Errors
    /// When the map has to be asked, or cannot be.
    pub fn connect(&self, ask: &mut Ask<'_>, client: &Client<'_>) -> Result<Ruled, Stop> {
        if self.options.delay_checks == DelayChecks::No {
            return self.check_client(ask, client, None);
        }
        Ok(Ruled::new(Ruling::Continue, Vec::new()))
    }

    fn check_client(&self, ask: &mut Ask<'_>, client: &Client<'_>, about: Option<&Address>) -> Result<Ruled, Stop> {
        let Some(ip) = client.ip else { return Ok(Ruled::new(Ruling::Continue, Vec::new())) };
        let groups = || [self.name_of(CONNECT, client.name, ip), self.address(CONNECT, ip)];
        Ok(decided("access Connect:", self.search(ask, groups)?, DENIED, about))
    }

    /// The keys of a client's name, or of its address in brackets.
    pub(super) fn name_of(&self, tag: Tag, name: ClientName<'_>, ip: std::net::IpAddr) -> key::Group {
        let domain = match name {
            ClientName::Verified(name) => Domain::parse(name.trim_end_matches('.').as_bytes()).ok(),
            _ => None,
        };
        domain
            .map_or_else(|| key::nameless(tag, ip), |domain| key::domain(tag, &domain, self.options.lookup_dot_domain))
    }

    /// May this client send as this sender? sendmail's `check_mail`. With `delay_checks` the answer comes with the
    /// recipients.
    ///
    /// # Errors
    /// When the map has to be asked, or cannot be.
    pub fn sender(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        sender: &ReversePath,
        classes: &Classes,
    ) -> Result<Ruled, Stop> {
        match sender.address() {
            Some(address) if self.options.delay_checks == DelayChecks::No => {
                match self.check_localhost(client, address, classes) {
                    Some(refused) => Ok(refused),
                    None => self.check_sender(ask, address, address, classes),
                }
            }
            _ => Ok(Ruled::new(Ruling::Continue, Vec::new())),
        }
    }

    /// Without `delay_checks`: a stranger's sender is on no machine that calls itself localhost. With it sendmail has
    /// put its own name there before it looks.
    fn check_localhost(&self, client: &Client<'_>, sender: &Address, classes: &Classes) -> Option<Ruled> {
        if self.options.accept_unqualified_senders
            || !classes.is_localhost(sender.domain())
            || is_local_client(client, classes)
        {
            return None;
        }
        let told = (553, EnhancedCode::of(Outcome::Permanent, 5, 4), "Real domain name required for sender address");
        let refusal = value::refusal(told, Some(sender));
        let steps = vec![Step::new("access From:", refusal.to_string())];
        Some(Ruled::new(Ruling::Refuse(refusal), steps))
    }

    /// `about`: the address that the text names, which is the recipient when checks are delayed.
    fn check_sender(
        &self,
        ask: &mut Ask<'_>,
        sender: &Address,
        about: &Address,
        classes: &Classes,
    ) -> Result<Ruled, Stop> {
        let groups = || {
            let (local, domain) = Self::behind_local_hosts(sender, classes);
            [
                key::full(FROM, &local, &domain),
                key::user(FROM, &local),
                key::domain(FROM, &domain, self.options.lookup_dot_domain),
            ]
        };
        let mut ruled = decided("access From:", self.search(ask, groups)?, DENIED, Some(about));
        if ruled.ruling == Ruling::Relay {
            // A sender's address is a claim: it never gives the right to relay here.
            ruled.ruling = Ruling::Accept;
        }
        Ok(ruled)
    }

    /// Decides whether this client may send to this recipient, as sendmail's `check_rcpt`: by the entries for the
    /// recipient, then by the right to relay, then with `delay_checks` by the entries for client and sender.
    ///
    /// [`Ruling::Relay`]: it may. Other rulings than that and refusals are for the whole message.
    ///
    /// # Errors
    /// When the map has to be asked, or cannot be.
    pub fn recipient(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        sender: &ReversePath,
        recipient: &Address,
        classes: &Classes,
    ) -> Result<Ruled, Stop> {
        let target = self.follow(ask, recipient, classes);
        let mut steps = Vec::new();
        let mut hold = None;
        if self.options.blocklist_recipients {
            let target = target.as_ref().map_err(Clone::clone)?;
            let blocked = decided("access To:", self.blocked(ask, target, classes)?, DISABLED, Some(recipient));
            match blocked.ruling {
                Ruling::Refuse(_) | Ruling::Discard => return Ok(blocked),
                Ruling::Quarantine(reason) => hold = Some(reason),
                Ruling::Continue | Ruling::Accept | Ruling::Relay => {}
            }
            steps.extend(blocked.steps);
        }
        let right = self.may_relay(ask, client, sender, recipient, target, classes)?;
        steps.push(right.step);
        if let Some(refusal) = right.refusal {
            return Ok(Ruled::new(Ruling::Refuse(refusal), steps));
        }
        if let Some(reason) = hold {
            return Ok(Ruled::new(Ruling::Quarantine(reason), steps));
        }
        if right.is_by_login || self.options.delay_checks == DelayChecks::No {
            return Ok(Ruled::new(Ruling::Relay, steps));
        }
        self.delayed(ask, client, sender, recipient, classes, steps)
    }

    fn blocked(
        &self,
        ask: &mut Ask<'_>,
        target: &super::relay::RelayTarget,
        classes: &Classes,
    ) -> Result<Option<AccessEntry>, Stop> {
        self.search(ask, || {
            let mut groups = vec![key::full(TO, &target.local, &target.domain)];
            if classes.is_local(&target.domain) {
                groups.push(key::user(TO, &target.local));
            }
            groups.push(key::domain(TO, &target.domain, self.options.lookup_dot_domain));
            groups
        })
    }

    /// The checks of client and sender, for a recipient that is accepted otherwise.
    fn delayed(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        sender: &ReversePath,
        recipient: &Address,
        classes: &Classes,
        mut steps: Vec<Step>,
    ) -> Result<Ruled, Stop> {
        if self.wants_all(ask, recipient, classes, &mut steps)? {
            return Ok(Ruled { ruling: Ruling::Relay, steps, spares_checks: true });
        }
        let mut checks = Vec::new();
        if let Some(address) = sender.address() {
            checks.push(self.check_sender(ask, address, recipient, classes)?);
        }
        if checks.iter().all(|ruled| ruled.ruling == Ruling::Continue) {
            checks.push(self.check_client(ask, client, Some(recipient))?);
        }
        let mut ruling = Ruling::Relay;
        for check in checks {
            steps.extend(check.steps);
            if !matches!(check.ruling, Ruling::Continue | Ruling::Accept | Ruling::Relay) {
                ruling = check.ruling;
            }
        }
        Ok(Ruled::new(ruling, steps))
    }

    /// Whether the recipient is a friend of spam, or no hater of it.
    fn wants_all(
        &self,
        ask: &mut Ask<'_>,
        recipient: &Address,
        classes: &Classes,
        steps: &mut Vec<Step>,
    ) -> Result<bool, Stop> {
        if !matches!(self.options.delay_checks, DelayChecks::Friend | DelayChecks::Hater) {
            return Ok(false);
        }
        let entry = self.search(ask, || {
            let (local, domain) = Self::behind_local_hosts(recipient, classes);
            let mut groups =
                vec![key::full(SPAM, &local, &domain), key::domain(SPAM, &domain, self.options.lookup_dot_domain)];
            if classes.is_local(&domain) {
                groups.push(key::user(SPAM, &local));
            }
            groups
        })?;
        let is = |value: &AccessValue| entry.as_ref().is_some_and(|entry| entry.value == *value);
        let wants = if self.options.delay_checks == DelayChecks::Friend {
            is(&AccessValue::Friend)
        } else {
            !is(&AccessValue::Hater)
        };
        let text = if wants { "client and sender are not checked" } else { "client and sender are checked" };
        steps.push(match entry {
            Some(entry) => Step::of("access Spam:", entry.found, text),
            None => Step::new("access Spam:", text),
        });
        Ok(wants)
    }
}

fn decided(
    stage: &'static str,
    entry: Option<AccessEntry>,
    reject: (u16, EnhancedCode, &str),
    about: Option<&Address>,
) -> Ruled {
    let Some(entry) = entry else { return Ruled::new(Ruling::Continue, Vec::new()) };
    let ruling = ruling(&entry, reject, about);
    let steps = vec![step(stage, entry, &ruling)];
    Ruled::new(ruling, steps)
}

/// Whether the client is a machine of class w, or this one.
fn is_local_client(client: &Client<'_>, classes: &Classes) -> bool {
    let Some(ip) = client.ip.map(|ip| ip.to_canonical()) else { return true };
    let is_named = matches!(client.name, ClientName::Verified(name) if super::relay::is_local_name(name, classes));
    ip.is_loopback() || is_named || classes.local.has_literal(ip)
}
