//! The scheduler seen from outside: scenarios, properties and a model, over hosts and time in memory ([`rig`]).

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a missing value fails the test")]

mod ablation;
mod any_order;
mod delay_notices;
mod deliver_by;
mod fairness;
mod hosts;
mod isolated_retry;
mod lanes;
mod model;
mod pace;
mod rig;
mod scenarios;
mod silent;
mod site_reports;
mod time_slices;
