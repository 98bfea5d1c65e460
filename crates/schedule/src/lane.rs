//! Lanes and failures, as connections and the scheduler speak of them.

/// With how much patience a connection is opened and fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// For hosts that answer: short limits.
    Fast,
    /// For hosts that were silent: the limits of RFC 5321 §4.5.3.2, and a budget of its own.
    Slow,
}

/// How a connection failed to come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Refused, or ended by the other side: that took no time.
    Refused,
    /// A limit passed: connect, greeting, command.
    Silent,
}
