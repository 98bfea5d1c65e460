//! The control socket, HTTP and the queue commands: requests of an operator to the running server, and their answers.
//!
//! [`control`] serves the socket and reads requests; the server's [`control::Handler`] carries them out. [`http`]
//! answers the same requests to browsers and programs. [`queue`] carries out commands on the queue: it reads and
//! changes the spool, and asks for deliveries through [`queue::DeliveryControl`]. [`answers`] has the answers as
//! structs: the server fills them in, the commands `status`, `queue`, `mailq`, `hoststat` and `mailstats` read them.
//! [`user_share`] limits what one user of this machine takes, [`mailer_statistics`] counts messages by mailer,
//! [`live_statistics`] has windows and sums of the mail, [`delivery_watch`] passes delivery results to sessions that
//! wait for them. [`history`] keeps all of it in a file beside the spool. [`recent_errors`] remembers the last attempts
//! that failed. [`requester`] names the party that asks.

#![forbid(unsafe_code)]

pub mod answers;
pub mod control;
pub mod delivery_watch;
pub mod fuzz;
pub mod history;
pub mod http;
pub mod live_statistics;
pub mod mailer_statistics;
pub mod queue;
pub mod recent_errors;
pub mod requester;
pub mod user_share;
