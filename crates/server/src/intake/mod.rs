//! The one door into the spool: a transaction becomes messages, and all of them are durable before `250` is sent.
//!
//! Every origin takes the same steps. A session (SMTP, LMTP, and mail that programs submit through the pickup
//! directory), an import from another server and a report of this server ([`submit_report`]) differ only in [`Origin`].
//!
//! | Step | Function | Header and body | What may change |
//! |---|---|---|---|
//! | header | `session/header_rewrite.rs` | the header section is whole in memory | header fields |
//! | body | [`TransactionContent::push`] | the header section stays in memory, a large body goes on | header fields |
//! | plan | `routing::expansions` | | recipients, senders, the number of messages, hold |
//! | message | [`NewMessage::new`] | large bodies are in chunks | envelope, first state |
//! | finish | [`TransactionContent::finish`] | the last chunk is durable | header fields |
//! | store | [`commit`] | | the first state, by rules of operators; on failure no message of the transaction remains |
//! | enqueue | [`StoredTransaction::enqueue`] | | nothing: the message is accepted |
//!
//! A rule that reads or changes header fields belongs to the first step. A rule that needs the whole body (a signature
//! over it) belongs between *finish* and *store*: the spool stores header and body apart, so header fields may still
//! change there, also of content whose body is in chunks. A copy for another recipient, or a list, is one
//! more [`NewMessage`] of the same transaction, and so shares its all or none.
//!
//! The module knows the queue only as [`Enqueue`]. Mail that may leave before it is durable goes through
//! [`uncommitted`].

mod class;
mod commit;
mod content;
mod copies;
mod enqueue;
mod framed_message;
mod header_end;
mod new_message;
mod redirect;
mod report;
mod rule_holds;
mod store_faults;
mod transaction_content;
pub(crate) mod uncommitted;

pub(crate) use class::{HeaderHints, class_of};
pub(crate) use commit::{StoredTransaction, commit, enqueue_stored};
pub(crate) use content::inline;
pub use content::{FinishedContent, PIECE_BYTES, RAM_BYTES_MAX};
pub(crate) use enqueue::{DownRecipients, Enqueue};
pub(crate) use new_message::{NewMessage, Origin, first_state, report_waiting};
pub(crate) use redirect::resolve_redirects;
pub(crate) use report::{Reported, submit_own, submit_report};
pub(crate) use rule_holds::sort_after_start;
pub(crate) use store_faults::StoreFaults;
pub use transaction_content::TransactionContent;

#[cfg(test)]
mod tests;
