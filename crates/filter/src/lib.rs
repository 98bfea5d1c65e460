//! Content rules: what a message holds, as people and their programs see it, and the decisions of rules about it.
//!
//! | Stop | Module |
//! |---|---|
//! | rule files: statements with file and line in each error; the whole set or nothing | [`rules`](RuleSet::parse) |
//! | parts of a message, their names and kinds, faults of the structure | [`mime`] |
//! | text of header fields | [`header_text`] |
//! | writing system of a text | [`script`] |
//! | the decision: rules that hold, and for which recipients | [`RuleSet::evaluate`] |
//! | the reasons, condition by condition | [`Evaluation::explain`] |
//! | changes of the header section | [`edit`] |
//! | the MTA's side of the milter protocol | [`milter`] |
//! | Postfix's policy delegation protocol | [`policy`] |
//! | the protocols of clamd, spamd and rspamd | [`scanner`] |
//! | SMTP towards a filter that gives mail back by SMTP | [`smtp_filter`] |
//! | the right of a client to send for a domain (SPF) | [`spf`], which asks the DNS by [`dns_question`] |
//! | the field Authentication-Results | [`auth_results`] |
//! | the name of a client's address (iprev) | [`iprev`] |
//! | the domain in From | [`author`] |
//! | the wish of a domain for mail in its name (DMARC) | [`dmarc`] |
//! | the chain of results of relays before us (ARC) | [`arc`] |
//! | DKIM signatures and key records, without cryptography | [`dkim`] |
//!
//! # Design
//!
//! A condition sees a message as a list of texts: each header field as it came and as it is decoded, the text of each
//! part, names and kinds of attachments, labels of charsets, words of the envelope. Texts are decoded once, and only
//! those kinds that some rule asks for.
//!
//! A thousand rules cost little more than one. When a set is parsed, each pattern yields literals of which a match must
//! hold one. One automaton finds the literals of all rules in one pass; a pattern runs only on the texts in which a
//! literal of it was found, and a rule without a hit is not looked at. A shared set of patterns would do worse: above
//! some fifty its cache of states is thrown away all the time. Patterns run in linear time and have a limit on their
//! size.
//!
//! Rules are evaluated in order. Actions of all rules that hold add up; one of accept, reject, defer, discard,
//! quarantine and hold ends the evaluation for the recipients of the rule. So a rule for one recipient never decides
//! about the mail of another; [`Evaluation::groups`] returns the recipients by what holds for them, and the caller
//! chooses the one answer of SMTP.
//!
//! The crate is pure: no clock, disk, socket, lock or global. All work on a message is bounded by [`Limits`], nothing
//! panics on input, and a message beyond a limit counts as "not fully scanned", for which a rule can ask. Not here: the
//! stage of the server that carries the decisions out.

#![forbid(unsafe_code)]

mod action;
pub mod arc;
pub mod auth_results;
pub mod author;
mod condition;
pub mod dkim;
pub mod dmarc;
pub mod dns_question;
mod domains;
pub mod edit;
mod evaluate;
mod explain;
mod field_text;
#[doc(hidden)]
pub mod fuzz;
pub mod header_text;
pub mod iprev;
mod limits;
mod literal_search;
mod literals;
mod message;
pub mod milter;
pub mod mime;
pub mod policy;
mod recipient_scope;
mod reply_text;
mod result_code;
mod rules;
pub mod scanner;
pub mod script;
pub mod smtp_filter;
pub mod spf;
mod texts;

pub use action::{Action, Final, HeaderEdit, Keeper};
pub use evaluate::{Evaluation, Group, Match};
pub use explain::{ConditionReport, Evidence, RuleReport};
pub use limits::Limits;
pub use message::{Direction, Message, Recipient};
pub use rules::{Problem, RULES_MAX, Rule, RuleSet};
