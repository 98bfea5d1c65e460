//! When which message is handed to which connection: sites, windows, lanes, back-off and walks.
//!
//! This is the stop *dispatch*, without its sockets. The server tells the [`Scheduler`] what happened (a message was
//! committed, a connection was greeted, a transaction is over) and asks it by [`Scheduler::poll`] what to do. All
//! recipients are in the spool, in one list for each destination; in memory there is only what is next
//! (`docs/schedule.md` has the whole).
//!
//! The crate is pure: no clock, disk, socket, async, thread, lock or global. Time is given, as a [`Duration`] since 1970;
//! randomness comes from the seed. The same calls give the same answers.
//!
//! | File | What it holds |
//! |---|---|
//! | `job` | what goes in and out: jobs, places, entries of the spool, actions |
//! | `settings` | limits, and how long to wait |
//! | `scheduler` | the calls about mail and where it goes |
//! | `attempts` | the calls about connections |
//! | `serve` | what is next to do |
//! | `destination` | one list of the spool: its place, and its jobs in memory |
//! | `active_recipients` | which recipients must not be taken again |
//! | `ages` | senders of mail that waits in line for long, at a site that is up |
//! | `times` | by when senders wanted it delivered |
//! | `walk` | reading the spool's list of a destination page by page |
//! | `site` | one next hop: health, window, lane, and when one more connection is opened |
//! | `line` | whose job is next at a site: classes, lists and single messages |
//! | `again` | what was lost without an answer, and goes alone |
//! | `rate` | how many transactions a site takes in a time |
//! | `pace` | the rate at which a site takes mail that says 421 beyond it |
//! | `pool` | connections, and the budgets of the lanes |
//! | `quiet` | connections that have not been greeted yet, and how long that usually takes |
//! | `stands` | who waits for a connection |
//! | `hosts` | single hosts of a site: who is passed over, who is fast, whose TLS is broken |
//! | `view` | what an operator sees |
//! | `chance` | the seed's stream, and hashing of ids |
//!
//! [`Duration`]: std::time::Duration

#![forbid(unsafe_code)]

mod active_recipients;
mod chance;
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
mod scan;
mod scan_state;
mod scheduler;
mod settings;
mod site;
mod suspect_queue;
mod token_bucket;
mod view;

pub use destination::HOSTS_CHANGED;
pub use hosts::{HostSettings, HostView, Hosts, HostsDamage, Standing, TlsRecord};
pub use job::{
    Action, AddResult, Class, ConnectionId, DestinationId, Failure, Feedback, Job, Lag, Lane, Limits, NextJob, Overdue,
    Positions, QueueEntry, ResolveFailure, SiteAssignment, SiteId,
};
pub use scheduler::Scheduler;
pub use settings::{Settings, retry_after};
pub use view::{DestinationView, Health, SiteView};
