//! Tests of the configuration as a whole.

mod bad;
mod changes;
mod commands;
mod generated;
mod pages;
mod property;
mod sendmail;
mod table;
