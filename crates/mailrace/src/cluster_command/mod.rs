//! `mailrace cluster`: the files of a node of a cluster, a look at its engines and at the running node, and a
//! demonstration (`docs/cluster.md`).
//!
//! `init` and `join` only make new files, and print what else is to be done; the configuration file is for the operator
//! to change. `status` and `verify` change nothing. `push` gives configuration and maps to all nodes. `drain` ends the
//! node of this machine, and `leave` takes it, or a dead one, out of the cluster. `adopt` has the running node take
//! over the mail of an absent one.

mod adopt;
mod cluster_source;
mod join_file;
mod leave;
mod leave_texts;
mod make_node;
mod new_files;
mod node_files;
mod push;
mod push_folder;
mod running_node;
mod verify;

use crate::cluster_demo;
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
    /// Show this node: its copies, the other nodes, adoptions, mail that waits for a node
    #[command(after_help = running_node::STATUS_HELP)]
    Status(running_node::ClusterStatusArguments),
    /// Give the mail of this node to the others, without duplicates, and end the server
    #[command(after_help = running_node::DRAIN_HELP)]
    Drain(running_node::DrainArguments),
    /// Take this node out of the cluster for good, or a dead one with --node
    #[command(after_help = leave::HELP)]
    Leave(leave::LeaveArguments),
    /// Show the mail of absent nodes, or adopt that of one of them by hand
    #[command(after_help = adopt::HELP)]
    Adopt(adopt::AdoptArguments),
    /// Give configuration and maps to all nodes, when they fit at each of them
    #[command(after_help = push::HELP)]
    Push(push::PushArguments),
    /// Show nodes, engines and a balancer under a storm and a kill -9, and count
    #[command(after_help = cluster_demo::HELP)]
    Demo(cluster_demo::ClusterDemoArguments),
    /// Ask the engines and the running nodes whether they fit together
    #[command(after_help = verify::HELP)]
    Verify(verify::VerifyClusterArguments),
}

/// Runs `mailrace cluster`.
pub(crate) fn run(command: &ClusterCommand) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Init(arguments) => make_node::init(arguments),
        ClusterCommand::Join(arguments) => make_node::join(arguments),
        ClusterCommand::Status(arguments) => running_node::status(arguments),
        ClusterCommand::Drain(arguments) => running_node::drain(arguments),
        ClusterCommand::Leave(arguments) => leave::run(arguments),
        ClusterCommand::Adopt(arguments) => adopt::run(arguments),
        ClusterCommand::Push(arguments) => push::run(arguments),
        ClusterCommand::Demo(arguments) => cluster_demo::run(arguments),
        ClusterCommand::Verify(arguments) => verify::run(arguments),
    }
}
