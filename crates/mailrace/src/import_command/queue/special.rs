//! Recipients that are no addresses: programs, files and users past their aliases, as an alias or a `.forward` led to
//! them.
//!
//! Only the alias may say what program runs with whose rights, so the control file is not believed. Where the alias of
//! today leads to exactly the recipients that are left, the message goes to the alias. Where it leads elsewhere, or to
//! a recipient that has the message already, it stays with sendmail.

use super::report::Why;
use mail::{Address, Recipient, ReversePath};
use route::destination::To;
use route::import::queue::{QueuedMessage, QueuedRecipient, QueuedTarget};
use route::resolve::Delivery;
use server::config::Loaded;
use server::explain::{Disposition, ExplainedSender, Explainer};
use std::collections::BTreeSet;

/// The aliases of the configuration, read when they are needed first.
pub(super) struct Special<'a> {
    loaded: &'a Loaded,
    explainer: Option<Result<Explainer, String>>,
}

/// A recipient that cannot be taken over: its line, why, and in words.
pub(super) type Refused = (usize, Why, String);

impl<'a> Special<'a> {
    pub(super) const fn new(loaded: &'a Loaded) -> Self {
        Self { loaded, explainer: None }
    }

    /// The recipients of a message as addresses.
    ///
    /// # Errors
    /// One of them is none, and cannot be reached by an alias either.
    pub(super) fn recipients(&mut self, message: &QueuedMessage) -> Result<Vec<Recipient>, Refused> {
        let mut recipients = Vec::new();
        let mut by_alias: Vec<&Address> = Vec::new();
        for one in message.recipients.iter().filter(|one| !matches!(one.target, QueuedTarget::Address(_))) {
            let Some(alias) = &one.named else {
                return Err(refused(one, "the file does not say of which alias it comes"));
            };
            if !by_alias.contains(&alias) {
                self.check(message, one, alias)?;
                by_alias.push(alias);
            }
        }
        let mut seen: Vec<&Address> = Vec::new();
        for one in &message.recipients {
            match (&one.named, &one.target) {
                (Some(alias), _) if by_alias.contains(&alias) => {
                    if !seen.contains(&alias) {
                        seen.push(alias);
                        recipients.push(one.to(alias.clone()));
                    }
                }
                (_, QueuedTarget::Address(address)) => recipients.push(one.to(address.clone())),
                _ => return Err(refused(one, "it is no address")),
            }
        }
        Ok(recipients)
    }

    /// Whether an alias leads to exactly those recipients that came of it and are left.
    fn check(&mut self, message: &QueuedMessage, one: &QueuedRecipient, alias: &Address) -> Result<(), Refused> {
        let left: BTreeSet<String> = message
            .recipients
            .iter()
            .filter(|other| other.named.as_ref() == Some(alias))
            .map(|other| target(&other.target))
            .collect();
        let loaded = self.loaded;
        let explainer = self
            .explainer
            .get_or_insert_with(|| Explainer::open(loaded).map_err(|faults| faults.join("; ")))
            .as_ref()
            .map_err(|why| refused(one, &format!("the aliases cannot be read: {why}")))?;
        let sender = ExplainedSender { address: ReversePath::clone(&message.sender), client: None, name: None };
        let way = explainer.route(&sender, alias);
        match way.end {
            Disposition::Deliver(deliveries, failed) if failed.is_empty() => {
                let today: BTreeSet<String> = deliveries.iter().map(delivery).collect();
                match today == left {
                    true => Ok(()),
                    false => {
                        let today: Vec<String> = today.into_iter().collect();
                        Err(refused(
                            one,
                            &format!(
                                "<{alias}> leads to {} today, and not to just those who are left",
                                today.join(", ")
                            ),
                        ))
                    }
                }
            }
            Disposition::Refuse(refusal) => Err(refused(one, &format!("<{alias}> is refused here: {refusal}"))),
            _ => Err(refused(one, &format!("<{alias}> leads elsewhere here"))),
        }
    }
}

fn refused(one: &QueuedRecipient, why: &str) -> Refused {
    let text = format!("{} is no address, and {why}; let sendmail deliver this message", one.target);
    (one.line, Why::Recipient, text)
}

fn target(target: &QueuedTarget) -> String {
    match target {
        QueuedTarget::Address(address) | QueuedTarget::Unaliased(address) => format!("<{}>", address.key().as_str()),
        QueuedTarget::Program(command) => format!("|{command}"),
        QueuedTarget::File(path) => path.clone(),
        QueuedTarget::Include(path) => format!(":include:{path}"),
    }
}

fn delivery(delivery: &Delivery) -> String {
    match &delivery.destination.to {
        To::Program { command, .. } => format!("|{command}"),
        To::File { path, .. } => path.to_string(),
        _ => format!("<{}>", delivery.address.key().as_str()),
    }
}
