//! Destinations and sites that changed and that `poll` has to look at.

use std::collections::VecDeque;

use crate::destination::Destination;
use crate::job::{DestinationId, SiteId};
use crate::site::Site;

/// A destination or site that can be dirty and can have a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    Destination(DestinationId),
    Site(SiteId),
}

/// The destinations and sites that `poll` has to look at, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct DirtyQueue(VecDeque<TimerKey>);

impl DirtyQueue {
    pub(crate) fn add_destination(&mut self, destination: &mut Destination) {
        if !std::mem::replace(&mut destination.is_dirty, true) {
            self.0.push_back(TimerKey::Destination(destination.id));
        }
    }

    pub(crate) fn add_site(&mut self, id: SiteId, site: &mut Site) {
        if !std::mem::replace(&mut site.is_dirty, true) {
            self.0.push_back(TimerKey::Site(id));
        }
    }

    /// Removes the next one.
    pub(crate) fn pop(&mut self) -> Option<TimerKey> {
        self.0.pop_front()
    }
}
