//! The stop *adopt*: the spool's part in a cluster. Mail of a node that is gone comes into the spool here, and mail
//! that another node has taken over leaves it.
//!
//! | File | Task |
//! |---|---|
//! | [`spool_mail`] | the spool as `cluster::LocalMail` |
//! | [`adopted_log`] | `cluster.adopted`: which messages of other nodes the spool has or had |
//! | [`stream_names`] | `cluster.streams`: the streams of this node |
//! | [`reports`] | the events of the cluster in words |
//!
//! An adopted message gets a queue id of this spool, since a spool uses an id once for ever: an id that comes back
//! could be ended by an old record. `cluster.adopted` has both.
//!
//! Order of an adoption, each step durable before the next:
//!
//! | Step | A crash behind it leaves |
//! |---|---|
//! | `taking` line: id in the cluster, id here, hops | a line without a message; the start drops it |
//! | the message in the spool | the message; the start finds its line and writes `taken` |
//! | `taken` line | the message, and after its end the line for a day: it is not taken again |
//! | the cluster's record (ADOPTED) | mail that may be delivered |

mod adopted_log;
mod reports;
mod spool_mail;
mod stream_names;

pub(crate) use spool_mail::begin;
