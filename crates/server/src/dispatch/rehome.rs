//! Mail that waits for smart hosts which the configuration has no more is given other destinations.

use super::READY_MAX;
use crate::config::Config;
use crate::resolve;
use spool::{Entry, Spool, Store as _};

/// Mail of queues whose name is no longer what the configuration gives is moved to the queue it belongs to now.
///
/// Mail for a domain goes to the smart hosts by itself when there are some. What waited for other smart hosts follows to the
/// new ones, or is read to know its domains.
///
/// Recipients that are in memory or under way stay where they are; says how many those were.
///
/// # Errors
/// The spool cannot record it; the mail stays where it is.
pub(super) fn rehome(
    spool: &Spool,
    config: &Config,
    is_active: &dyn Fn(&[u8], &Entry) -> bool,
) -> Result<usize, spool::Error> {
    let mut left = 0;
    let current = (!config.route.smart_host.is_empty()).then(|| resolve::smart_hosts(&config.route));
    let is_old = |name: &[u8]| resolve::is_smart_hosts(name) && current.as_deref() != Some(name);
    for (name, count) in spool.destinations().iter().filter(|(name, _)| is_old(name)) {
        for entry in all_of(spool, name, *count) {
            if is_active(name, &entry) {
                left += 1;
                continue;
            }
            let known = current.clone().or_else(|| home(spool, config, &entry));
            let Some(destination) = known else { continue };
            // The state as it is now: somebody may have held it since the list was read.
            let states = spool.states(entry.id);
            let now = states.iter().find(|(one, at)| one.recipient == entry.recipient && **at == **name);
            let Some((now, _)) = now else { continue };
            let destination = Some(destination);
            drop(spool.record(&[spool::Change {
                id: entry.id,
                recipient: entry.recipient,
                state: now.state,
                destination,
            }])?);
        }
    }
    Ok(left)
}

/// Every recipient of a queue that has about `count`. One that moves while it is read may give some of them twice.
fn all_of(spool: &Spool, name: &[u8], count: u64) -> Vec<Entry> {
    let most = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(2).saturating_add(READY_MAX);
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let page = spool.by_destination(name, all.last().copied(), READY_MAX);
        let is_end = page.len() < READY_MAX;
        all.extend(page);
        if is_end || all.len() > most {
            return all;
        }
    }
}

/// Where a recipient belongs by the configuration; `None` if its message cannot be read.
fn home(spool: &Spool, config: &Config, entry: &Entry) -> Option<Vec<u8>> {
    let stored = spool.envelope(entry.id).ok()?;
    let one = stored.recipients.iter().find(|one| one.position == entry.recipient)?;
    let recipient = spool::envelope::decode_recipient(&one.data).ok()?;
    Some(resolve::destination(&config.route, &recipient.address))
}
