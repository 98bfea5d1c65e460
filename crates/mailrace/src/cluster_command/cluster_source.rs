//! The configuration of a node, for commands that ask the engines themselves.

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use server::config::{Loaded, render};

/// Reads the configuration of a node. `step`: the next step where it has no cluster.
///
/// # Errors
/// It cannot be read, has errors, which are printed, or names no cluster.
pub(super) fn load_node(source: &Source, step: &str) -> Result<Loaded, Failure> {
    let loaded = source.open()?.map_err(|problems| {
        eprint!("{}", render(&problems));
        Failure::new(Exit::Config, "the configuration has errors; correct them first")
    })?;
    if !loaded.config.cluster.is_used() {
        let name = source.path().map_or_else(|| "defaults".to_owned(), |path| path.display().to_string());
        return Err(Failure::new(Exit::Config, format!("{name}: there is no cluster.id; {step}")));
    }
    Ok(loaded)
}
