//! Reports of other machines on a site, and results of this machine that others should know.
//!
//! Several machines share the cost of a site that is down. One finds the failure and is told to the others by the
//! driver; at these a report puts the next attempt off, as a failure does, and nothing else: the site is down without a
//! failure of its own. A result of this machine counts more than any report, an attempt of an operator is made whatever
//! others say, nothing expires by a report alone, and this machine makes an attempt of its own at the latest after the
//! longest back-off, however many reports come.

use std::sync::Arc;
use std::time::Duration;

use crate::job::{Failure, Job};

/// A failure of a site that another machine found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteReport<'a> {
    /// The machine.
    pub by: u16,
    /// The failure in words, for logs and views.
    pub why: &'a str,
    /// The back-off of that machine, from its failure on.
    pub wait: Duration,
    /// The time from which this machine may try the site, since 1970.
    pub until: Duration,
}

/// Tells what a report did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportEffect {
    /// Nothing: the site is not known here, is being tried, or waits for as long anyway.
    Nothing,
    /// Connections of this machine to the site work.
    Contradicted,
    /// The next attempt is put off.
    PutOff {
        /// Jobs that left memory, to be logged as deferred.
        jobs: Vec<Job>,
        /// The site was not down before.
        is_new: bool,
    },
}

/// A result of this machine about a site, for other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteChange {
    /// The key of the site.
    pub site: Arc<[u8]>,
    /// The result.
    pub result: SiteResult,
}

/// The result that this machine found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteResult {
    /// A transaction came to its end, for the first time after a failure or a report.
    Up,
    /// The site is down, and is tried again after this time.
    Down {
        /// The failure.
        failure: Failure,
        /// The back-off.
        wait: Duration,
    },
}

/// A report that keeps a site down.
#[derive(Debug)]
pub(crate) struct AppliedReport {
    pub(crate) by: u16,
    /// When it was applied.
    pub(crate) since: Duration,
    /// The step of the back-off of that machine, from 1.
    pub(crate) step: u32,
}
