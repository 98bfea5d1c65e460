//! Aliases: the recipients of the mail of a user of this machine.
//!
//! ```text
//! user ─► aliases ─► members ─┬─► user, :include: ─► from the start
//!            │ no              ├─► address ─────────► the caller, who resolves it and comes back for a user
//!            ▼                 └─► program, file
//!         account ─► .forward ─► members; none: mailbox
//! ```
//!
//! | File | Holds |
//! |---|---|
//! | [`file`](self::parse_aliases) | the text of an aliases file |
//! | [`member`](Member) | one element of a value, and lists of them |
//! | [`origin`](Origin) | by which aliases somebody was reached, whose rights and whose sender that gives |
//! | [`expand`] | who gets the mail |
//! | [`lint`] | what is doubtful in an aliases file |
//!
//! Formats, order and differences from sendmail: `docs/aliases.md`.
//!
//! Invariants: no recipient gets a mail twice, and every expansion ends; a list with more members than allowed gets no
//! mail and has an error; a file that cannot be read now is a temporary failure.

mod expand;
mod file;
pub(crate) mod fuzz;
mod lint;
mod member;
mod origin;

#[cfg(test)]
mod tests;

pub use expand::{AliasSettings, AliasTarget, Expanded, Expansion, expand};
pub use file::{Aliases, Summary, parse_aliases};
pub use lint::{Included, LintSettings, lint, lint_forward};
pub use member::{Member, list_members, parse_list, parse_members};
pub use origin::Origin;

/// The name of the map in messages.
pub const NAME: &str = "aliases";
