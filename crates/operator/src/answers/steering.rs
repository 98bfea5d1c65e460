//! Orders of operators that stay in force: hold rules, suspensions, and limits of destinations. The file that keeps
//! them over restarts has the same lines.

use serde::{Deserialize, Serialize};

/// A hold rule, or a suspension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleLine {
    /// Its name, as `rule-3` or `suspension-4`: what `held:` of an expression names.
    pub rule: String,
    /// The mail that it holds.
    pub expression: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The party that set it.
    pub set_by: String,
    /// When, in seconds since 1970.
    pub set_at: u64,
    /// When it ends, in seconds since 1970; absent: never by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// A limit of a destination that an operator has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitLine {
    /// The next hops, as `destination.match` names them.
    pub destination: String,
    /// Connections at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Transactions in a second, as `2.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The party that set it.
    pub set_by: String,
    /// When, in seconds since 1970.
    pub set_at: u64,
    /// When it ends, in seconds since 1970; absent: never by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// The answer to `limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsAnswer {
    /// The limits in force, the one that counts first in front.
    pub limits: Vec<LimitLine>,
}
