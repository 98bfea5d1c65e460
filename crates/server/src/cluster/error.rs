//! Reasons why an engine cannot be used, as texts for the operator.

use cluster::EngineError;
use std::fmt;

/// The reason why an engine cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineAccessError {
    /// A setting or a file of this node is wrong; trying again does not help.
    Settings {
        /// The setting and what is wrong with it.
        why: String,
    },
    /// No connection; try again.
    Unreachable {
        /// The addresses.
        address: String,
        /// The reason.
        why: String,
    },
    /// The engine does not take the login of this node.
    Login {
        /// The addresses.
        address: String,
    },
    /// The engine must not hold copies.
    Unfit(EngineError),
    /// It is not known whether the engine may hold copies. A node must not start cluster mode.
    Uncertain {
        /// The address.
        address: String,
        /// The monitor that was asked.
        monitor: String,
        /// The reason.
        why: String,
    },
    /// The engine was asked and refused, or gave no answer; try again.
    Request {
        /// The stream or bucket.
        object: String,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for EngineAccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings { why } => f.write_str(why),
            Self::Unreachable { address, why } => {
                write!(f, "engine {address} is not reached: {why}; start nats-server there, or correct the address")
            }
            Self::Login { address } => write!(
                f,
                "engine {address} refuses the login of this node; make user and secret the same in its configuration \
                 and here"
            ),
            Self::Unfit(error) => error.fmt(f),
            Self::Uncertain { address, monitor, why } => write!(
                f,
                "engine {address} may answer before data is on the disk: its monitor {monitor} does not say: {why}; \
                 set \"http: {monitor}\" in its configuration and restart it"
            ),
            Self::Request { object, why } => write!(f, "engine: {object}: {why}"),
        }
    }
}

impl std::error::Error for EngineAccessError {}

impl From<EngineError> for EngineAccessError {
    fn from(error: EngineError) -> Self {
        Self::Unfit(error)
    }
}
