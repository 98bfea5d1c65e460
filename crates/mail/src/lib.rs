//! The values that the other crates exchange about mail: addresses, envelopes, replies, queue ids.
//!
//! Foreign bytes become one of these types at the edge of the server, or an error that names the fault; behind the edge
//! no code parses again. The crate is pure: no clock, disk, socket, lock, global or randomness, and nothing in it
//! waits.
//!
//! | Word | Read from | Stop of the message's way |
//! |---|---|---|
//! | [`Address`], [`ReversePath`], [`ForwardPath`] | MAIL and RCPT | session, admit, resolve |
//! | [`Envelope`], [`MailParams`], [`RecipientParams`] | MAIL and RCPT, the spool | session, commit, deliver |
//! | [`QueueId`] | the spool, the operator | commit and all later |
//! | [`Reply`], [`EnhancedCode`] | next hops, filters | session, deliver, settle |
//! | [`header`], [`header_address`], [`encoded_word`] | the content | screen, settle |
//! | [`base64`] | AUTH | session, deliver |
//! | [`submission`] | what a local program prints | before session |
//! | [`seven_bit`] | the content, for a next hop without 8BITMIME | deliver |
//! | [`report`] | outcomes of recipients, the envelope, the content | settle |
//!
//! ```
//! use mail::{MailParams, ReversePath};
//!
//! let (sender, rest) = ReversePath::split(br#"<"a@b"@example.com> SIZE=4096 BODY=8BITMIME"#)?;
//! let address = sender.address().expect("not the null sender");
//! assert_eq!(address.local_part().as_str(), "a@b");
//! assert_eq!(address.to_string(), r#""a@b"@example.com"#);
//! assert_eq!(MailParams::parse(rest)?.size, Some(4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every type with a text form reads back its own text. Nothing here panics on input, and each parser takes time linear
//! in it; limits on sizes are the caller's, except where an RFC gives one. The decisions and their reasons are in
//! `docs/mail.md`.

#![forbid(unsafe_code)]

mod address;
mod attempt_phase;
pub mod base64;
mod charset;
mod civil;
pub mod decimal;
pub mod encoded_word;
mod enhanced_code;
mod envelope;
#[doc(hidden)]
pub mod fuzz;
pub mod header;
pub mod header_address;
pub mod long_line;
mod parameter;
mod past_ids;
mod queue_id;
mod reply;
pub mod report;
pub mod scan;
pub mod seven_bit;
pub mod submission;
mod unprintable;
mod xtext;

pub use address::{
    Address, AddressError, AddressKey, AddressLiteral, AddressReason, Domain, DomainName, ForwardPath, GeneralLiteral,
    LocalPart, ReversePath,
};
pub use attempt_phase::{AttemptPhase, PhaseTimes};
pub use charset::Charset;
pub use civil::CivilTime;
pub use enhanced_code::{EnhancedCode, EnhancedCodeError, Outcome};
pub use envelope::{
    Body, Client, Deadline, DeliverBy, EnvId, Envelope, Extension, Extensions, HeloName, Hold, HoldSeconds, HoldTime,
    MailParams, MtPriority, Notify, OriginalRecipient, Protocol, Received, Recipient, RecipientParams, Ret, Session,
    Submitter, UnknownProtocol,
};
pub use parameter::{ParamError, ParamReason, Parameter, parameters};
pub use past_ids::PastIds;
pub use queue_id::{Node, QueueId, QueueIdError, QueueIds};
pub use reply::{Reply, ReplyClass, ReplyCode, ReplyError};
pub use unprintable::is_unprintable;
pub use xtext::encode as encode_xtext;
