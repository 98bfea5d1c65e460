//! The reasons why the server does not start.

use operator::control;
use os::privileges;
use std::fmt;

/// Why the server does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration cannot work here; exit status 78.
    Config(String),
    /// An address or another resource is not available; exit status 69.
    Unavailable(String),
    /// The control socket is not available; the error has the exit status.
    Control(control::BindError),
    /// The spool cannot be opened; nothing in it was changed.
    Spool(spool::OpenError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) | Self::Unavailable(text) => f.write_str(text),
            Self::Control(error) => error.fmt(f),
            Self::Spool(error) => write!(f, "spool.path: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<privileges::Error> for StartError {
    fn from(error: privileges::Error) -> Self {
        match error {
            privileges::Error::Config(text) => Self::Config(text),
            privileges::Error::System(text) => Self::Unavailable(text),
        }
    }
}
