//! The local log as a cluster node uses it.

use bytes::Bytes;
use cluster::{Accepted, Completion, NewMessage, Report, StreamId};
use mail::QueueId;
use std::fmt;

/// The local log, and whatever else this node does for the cluster's machines.
///
/// A call may be made again after a crash; each must then do no harm.
pub trait LocalMail: fmt::Debug + Send + Sync + 'static {
    /// Keeps the name of a stream before the first block goes into it. Durable on return: at the next start the node
    /// asks this stream what became of its mail, also if the engine cannot list streams then. False if it could not be
    /// kept; the stream is not made then, and asked for again later.
    fn keep_stream(&self, stream: StreamId) -> impl Future<Output = bool> + Send;

    /// Reads a live message, to be copied anew; `None` if it is finished or gone.
    fn read(&self, id: QueueId) -> impl Future<Output = Option<NewMessage>> + Send;

    /// Stores a message of another node with its whole `body`. Durable on return of true.
    ///
    /// False if the log has, or had within a day, this id with as many hops or more, finished or not. One with fewer
    /// hops is replaced. `None` if it could not be stored now; the adoption goes on later.
    fn store(&self, message: Accepted, body: Bytes) -> impl Future<Output = Option<bool>> + Send;

    /// Records completions that a copy has and the log lost in a crash.
    fn complete(&self, completions: Vec<Completion>);

    /// Drops messages that another node has taken over, without delivery or report, unless they have more hops than
    /// given. Ids and hops are kept for a day. Durable on return of true; false has them dropped again later.
    fn forget(&self, messages: Vec<(QueueId, u16)>) -> impl Future<Output = bool> + Send;

    /// Logs an event.
    fn report(&self, report: Report);

    /// Logs a state of the engine that an operator has to know; `None` when it can be used again.
    fn engine_problem(&self, problem: Option<&str>);
}
