//! A filter as the configuration has it, with its address read.

use crate::config::{
    Filter, FilterAddress, FilterFailure, FilterKind, FilterReject, FilterStage, MacroValue, MilterMacros, MilterStage,
};
use filter::milter::MacroStage;
use std::time::Duration;

/// One `[[filter]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterSettings {
    pub(crate) name: String,
    pub(crate) kind: FilterKind,
    pub(crate) address: FilterAddress,
    pub(crate) when: FilterStage,
    pub(crate) on_failure: FilterFailure,
    pub(crate) on_reject: FilterReject,
    pub(crate) timeout: Duration,
    pub(crate) total_timeout: Duration,
    pub(crate) size_max: u64,
    /// Macros of steps in place of the usual ones.
    pub(crate) macros: Vec<(MacroStage, Vec<Vec<u8>>)>,
    /// Values of macros in place of the session's.
    pub(crate) macro_values: Vec<MacroValue>,
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
            when: filter.when,
            on_failure: filter.on_failure,
            on_reject: filter.on_reject,
            timeout: filter.timeout,
            total_timeout: filter.total_timeout,
            size_max: filter.size_max,
            macros: filter.macros.iter().filter_map(|text| text.parse().ok()).map(macros_of).collect(),
            macro_values: filter.macro_values.iter().filter_map(|text| text.parse().ok()).collect(),
            idle_max: filter.idle_max,
            idle_time: filter.idle_time,
        })
    }
}

fn macros_of(macros: MilterMacros) -> (MacroStage, Vec<Vec<u8>>) {
    let stage = match macros.stage {
        MilterStage::Connect => MacroStage::Connect,
        MilterStage::Helo => MacroStage::Helo,
        MilterStage::Mail => MacroStage::Mail,
        MilterStage::Rcpt => MacroStage::Recipient,
        MilterStage::Data => MacroStage::Data,
        MilterStage::EndOfHeader => MacroStage::EndOfHeader,
        MilterStage::EndOfMessage => MacroStage::EndOfBody,
    };
    (stage, macros.names.into_iter().map(String::into_bytes).collect())
}
