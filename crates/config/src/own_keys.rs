//! Keys that belong to one machine and cannot stand in the file that all nodes of a cluster have alike.

use super::parameter::{Change, Parameter, Section};
use std::path::{Component, Path};

/// Tables that belong to one machine, besides those with keys that need a restart.
pub(crate) const OWN_TABLES: [&str; 9] =
    ["spool", "listen", "control", "http", "http.token", "http.client", "history", "cluster", "submit"];

/// Keys that belong to one machine in tables that may be shared. Root makes the file of `log.path`, and anybody who
/// can log in to the engines could name it.
pub(crate) const OWN_KEYS: [&str; 2] = ["hostname", "log.path"];

/// Whether a key may stand in the shared file.
pub(crate) fn may_be_shared(section: &Section, parameter: &Parameter) -> bool {
    // One key of a list of tables that needs a restart makes each change of the list need one.
    let needs_restart = match section.group {
        Some(_) => section.parameters.iter().any(|one| one.change == Change::Restart),
        None => parameter.change == Change::Restart,
    };
    !needs_restart && !OWN_TABLES.contains(&section.key) && !OWN_KEYS.contains(&parameter.key)
}

/// Why a key does not count in the shared file.
pub(crate) fn own_only(key: &str) -> (String, String) {
    let text = format!("\"{key}\" stands in the shared configuration, and belongs to one node or needs a restart");
    (text, "move it to the own file of each node".to_owned())
}

/// Whether a path of the shared file leads out of its directory, which is all that other nodes get.
pub(crate) fn leads_out(path: &Path) -> bool {
    path.is_relative() && path.components().any(|part| part == Component::ParentDir)
}
