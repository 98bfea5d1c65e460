//! The words of the trade as values: what the other rooms say to each other about mail.
mod civil;
mod queue_id;
pub use queue_id::{Node, QueueId, QueueIdError, QueueIds};
