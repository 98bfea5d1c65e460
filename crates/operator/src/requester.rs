//! The party that asks: a user of this machine, or the owner of a token of HTTP.

use os::accounts::Accounts;
use std::fmt;
use std::sync::Arc;

/// The party that asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A process of this user, on the control socket.
    User(u32),
    /// A client of HTTP with the token of this name; empty for a client without a token.
    Token(Arc<str>),
}

impl Requester {
    /// Returns the name that is kept with mail that the party holds: that of the user by the file of this machine, or
    /// its number; `http:NAME` for a token. Blocks.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::User(uid) => {
                let found = Accounts::read().and_then(|accounts| accounts.find_uid(*uid));
                found.ok().flatten().map_or_else(|| uid.to_string(), |login| login.name)
            }
            Self::Token(name) if name.is_empty() => "http".to_owned(),
            Self::Token(name) => format!("http:{name}"),
        }
    }
}

/// `user 1000`, `http:ann`, `http`.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Token(name) if name.is_empty() => f.write_str("http"),
            Self::Token(name) => write!(f, "http:{name}"),
        }
    }
}
