//! A filter as the configuration has it, with its address read.

use crate::config::{Filter, FilterAddress, FilterFailure, FilterKind};
use std::time::Duration;

/// One `[[filter]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterSettings {
    pub(crate) name: String,
    pub(crate) kind: FilterKind,
    pub(crate) address: FilterAddress,
    pub(crate) on_failure: FilterFailure,
    pub(crate) timeout: Duration,
    pub(crate) total_timeout: Duration,
    pub(crate) size_max: u64,
    pub(crate) idle_max: u32,
    pub(crate) idle_time: Duration,
}

impl FilterSettings {
    /// Reads a table; `None`: its address cannot be read, which the rules of the configuration refuse.
    pub(crate) fn of(filter: &Filter) -> Option<Self> {
        Some(Self {
            name: filter.name.clone(),
            kind: filter.kind,
            address: filter.address.parse().ok()?,
            on_failure: filter.on_failure,
            timeout: filter.timeout,
            total_timeout: filter.total_timeout,
            size_max: filter.size_max,
            idle_max: filter.idle_max,
            idle_time: filter.idle_time,
        })
    }
}
