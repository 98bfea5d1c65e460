//! `mailrace cluster`: the files of a node of a cluster, and a look at its engines (`docs/cluster.md`).
//!
//! `init` and `join` only make new files, and print what else is to be done; the configuration file is for the operator
//! to change. `verify` changes nothing.

mod join_file;
mod make_node;
mod new_files;
mod node_files;
mod verify;

use crate::exit::{Exit, Failure};
use clap::Subcommand;

/// The commands for operators of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make the files of the first node of a new cluster
    #[command(after_help = make_node::INIT_HELP)]
    Init(Box<make_node::InitArguments>),
    /// Make the files of a further node, with the file that init has made
    #[command(after_help = make_node::JOIN_HELP)]
    Join(Box<make_node::JoinArguments>),
    /// Ask the engines and the running nodes whether they fit together
    #[command(after_help = verify::HELP)]
    Verify(verify::VerifyClusterArguments),
}

/// Runs `mailrace cluster`.
pub(crate) fn run(command: &ClusterCommand) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Init(arguments) => make_node::init(arguments),
        ClusterCommand::Join(arguments) => make_node::join(arguments),
        ClusterCommand::Verify(arguments) => verify::run(arguments),
    }
}
