//! The words of the trade as values: what the other rooms say to each other about mail.
mod address;
mod charset;
mod civil;
pub mod encoded_word;
mod enhanced_code;
mod envelope;
pub mod header;
pub mod header_address;
mod parameter;
mod queue_id;
mod reply;
mod scan;
mod xtext;
pub use address::{
    Address, AddressError, AddressKey, AddressLiteral, AddressReason, Domain, DomainName, ForwardPath, GeneralLiteral,
    LocalPart, ReversePath,
};
pub use charset::Charset;
pub use enhanced_code::{EnhancedCode, EnhancedCodeError, Outcome};
pub use envelope::{
    Body, Client, Deadline, DeliverBy, EnvId, Envelope, Extension, Extensions, HeloName, Hold, HoldSeconds, HoldTime,
    MailParams, MtPriority, Notify, OriginalRecipient, Protocol, Received, Recipient, RecipientParams, Ret, Session,
    Submitter, UnknownProtocol,
};
pub use parameter::{ParamError, ParamReason, Parameter, parameters};
pub use queue_id::{Node, QueueId, QueueIdError, QueueIds};
pub use reply::{Reply, ReplyClass, ReplyCode, ReplyError};
