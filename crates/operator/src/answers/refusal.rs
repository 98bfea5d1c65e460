//! The line of a refusal, the same for every command.

use serde::{Deserialize, Serialize};

/// Returns the reason why the server refused the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusalLine {
    /// `request`, `permission`, `busy`, `config` or `failed`.
    pub reason: String,
    /// The error and the next step, in words.
    pub error: String,
    /// The mistakes in the configuration, if they are the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemLine>,
}

/// A mistake in a file of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProblemLine {
    /// The file.
    pub file: String,
    /// Line from 1; 0 for the whole file.
    pub line: u32,
    /// Column from 1, in characters; 0 for the whole line.
    pub column: u32,
    /// The fault, and the next step.
    pub text: String,
}
