//! The words of the trade as values: what the other rooms say to each other about mail.
mod address;
mod civil;
mod queue_id;
mod scan;
pub use address::{
    Address, AddressError, AddressKey, AddressLiteral, AddressReason, Domain, DomainName, ForwardPath, GeneralLiteral,
    LocalPart, ReversePath,
};
pub use queue_id::{Node, QueueId, QueueIdError, QueueIds};
