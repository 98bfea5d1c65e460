//! Decides when which message goes to which connection: sites, windows, lanes, back-off and scans.
//!
//! This is the stage *dispatch*, without its sockets. The server reports events to the [`Scheduler`] (a message was
//! committed, a connection was greeted, a transaction is over) and asks [`Scheduler::poll`] what to do. All recipients
//! are in the spool, in one list for each destination. Memory holds only what is next (`docs/schedule.md` describes all
//! of it).
//!
//! The crate is pure: no clock, disk, socket, async, thread, lock or global. Time is an argument, a [`Duration`] since
//! 1970; randomness comes from the seed. The same calls give the same answers.
//!
//! | File | What it holds |
//! |---|---|
//! | `job` | the values that go in and out: jobs, site assignments, spool entries, actions |
//! | `settings` | limits, waits and back-off |
//! | `scheduler` | the calls about mail and its sites |
//! | `connection_events` | the calls about connections |
//! | `poll` | the next action |
//! | `inspect`, `view` | the state, for operators |
//! | `dirty` | destinations and sites that changed |
//! | `destination` | one list of the spool: its site, and its jobs in memory |
//! | `active_recipients` | recipients that must not be taken a second time |
//! | `scan`, `scan_state` | reads the list of a destination page by page |
//! | `delay_notices`, `pending_notices` | notices for mail that waits at a site that is up |
//! | `deliver_by` | deliver-by times of senders |
//! | `site` | one next hop: health, window, lane, and when one more connection opens |
//! | `site_report`, `reported_sites` | reports of other machines on a site, and results that they should know |
//! | `site_share` | limits of a site that several machines keep together |
//! | `ready_queue`, `message_parts`, `part` | which job of a site is next: classes, lists and single messages |
//! | `suspect_queue` | isolated retries of recipients that got no reply |
//! | `token_bucket` | the configured rate of a site |
//! | `pace` | the learned rate of a site |
//! | `pool` | connections, and their budgets |
//! | `idle_connections` | which idle connection closes first |
//! | `connection_wait` | sites that wait for a connection |
//! | `greeting_timer` | opening connections, and how long hosts usually need |
//! | `overload` | whether this machine is overloaded |
//! | `hosts` | single hosts of a site: back-off, speed, broken TLS |
//! | `name_index` | ids by name |
//! | `chance` | random numbers, and hashing of ids |
//!
//! [`Duration`]: std::time::Duration

#![forbid(unsafe_code)]

mod active_recipients;
mod chance;
mod clock_steps;
mod connection_events;
mod connection_wait;
mod delay_notices;
mod deliver_by;
mod destination;
mod dirty;
mod greeting_timer;
mod hosts;
mod idle_connections;
mod inspect;
mod job;
mod message_parts;
mod name_index;
mod overload;
mod pace;
mod part;
mod pending_notices;
mod poll;
mod pool;
mod ready_queue;
mod reported_sites;
mod retry_policy;
mod scan;
mod scan_state;
mod scheduler;
mod server_time;
mod settings;
mod site;
mod site_report;
mod site_share;
mod suspect_queue;
mod token_bucket;
mod view;

pub use clock_steps::{CLOCK_STEPS_MAX, ClockStep, ClockSteps};
pub use hosts::{AvoidedExtensions, HostSettings, HostView, Hosts, HostsDamage, Standing, TlsRecord};
pub use job::{
    Action, AddResult, Class, ConnectionId, DestinationId, Failure, Feedback, Job, Lag, Lane, Limits, NextJob, Overdue,
    Positions, QueueEntry, ResolveFailure, SiteAssignment, SiteId, SiteShare,
};
pub use retry_policy::RetryPolicy;
pub use scheduler::Scheduler;
pub use server_time::{ClockEvent, SERVER_TIME_BYTES_MAX, ServerTime};
#[doc(hidden)]
pub use settings::Mechanism;
pub use settings::Settings;
pub use site_report::{ReportEffect, SiteChange, SiteReport, SiteResult};
pub use view::{DestinationView, Health, SharedSite, SiteView};
