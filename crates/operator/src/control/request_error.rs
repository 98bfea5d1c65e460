//! The refusal of a line or of its fields.

use std::fmt;

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError(String);

impl RequestError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RequestError {}
