//! The additions of the access map's tags to the way of a recipient: a copy by `bcc:`, and the queue group by `QGRP:`.

use super::rule::CopyDsn;
use super::run::{Copy, RecipientResolver};
use crate::alias::Origin;
use crate::question::Stop;
use mail::Address;

impl RecipientResolver<'_, '_, '_> {
    /// Notes the copy that `bcc:` asks for: by the domain of the recipient as the client named it, so it is asked for
    /// once, and a copy leads to no other.
    pub(super) fn blind_copy(&mut self) -> Result<(), Stop> {
        let access = &self.router.maps.access;
        let Some(job) = self.jobs.front().filter(|_| access.may_have("bcc")) else { return Ok(()) };
        let recipient = self.router.canonical(self.ask, &job.address)?;
        let Some(bcc) = access.bcc(self.ask, &recipient)? else { return Ok(()) };
        let mut copy = super::run::Job { copy: Some(CopyDsn::Never), origin: Origin::default(), ..job.clone() };
        copy.address = bcc.value;
        self.step_of("bcc", &bcc.found, || format!("copy to {}", copy.address));
        self.copies.push_back(Copy::Job(copy));
        Ok(())
    }

    /// The queue group of mail that goes to this address.
    pub(super) fn queue_group(&mut self, address: &Address) -> Result<Option<Box<str>>, Stop> {
        let Some(group) = self.router.maps.access.queue_group(self.ask, address)? else { return Ok(None) };
        self.step_of("queue group", &group.found, || format!("{address} in group {}", group.value));
        Ok(Some(group.value.into()))
    }
}
