//! The answer to `reload`.

use serde::{Deserialize, Serialize};

/// The answer to `reload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadAnswer {
    /// Settings that changed, as `key: old → new`.
    pub changed: Vec<String>,
    /// Changed settings that take effect with the next start.
    pub needs_restart: Vec<String>,
    /// Parts of the configuration whose change makes mail that waits be tried at once.
    pub retried: Vec<String>,
}
