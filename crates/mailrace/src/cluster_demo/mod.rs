//! `mailrace cluster demo`: nodes with their engines, a balancer and a next hop on this machine; a storm, a `kill -9`
//! of one node and its engine in the middle of it, and a count at the end.
//!
//! The nodes are this program started again as `mailrace serve`, with the times of the defaults. The acknowledged
//! messages are counted by the storm's clients behind the balancer, and the arrived ones by a next hop in this process.

mod balancer;
mod engines;
mod nodes;
mod story;

use crate::demo::clock;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::place::find_room;
use balancer::Balancer;
use bench::receiver::{Manners, Receiver};
use clap::Args;
use engines::DemoEngine;
use nodes::DemoNode;
use spool::disk::Space;
use spool::disk::real::RealDisk;
use std::path::PathBuf;
use std::time::Duration;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Everything lies in one directory, ./run-cluster: spools, logs and the stores of the engines. The next demonstration
removes it.

Exit status:
   0  no acknowledged message was lost
   1  acknowledged mail was lost
  65  something else than was sent has arrived
  69  nats-server cannot be had, or a node does not start
  73  the directory may not be used
  74  reading or writing failed, or a server went away";

/// Room that a demonstration may need: the spools, and the copies of the storm.
const ROOM: u64 = 1 << 30;
/// Time that a node has to come into the cluster.
const JOIN_TIME: Duration = Duration::from_secs(60);
/// The file that says whose directory this is.
const MARKER: &str = "cluster-demo";
const MARKER_TEXT: &str = "Made by a demonstration of mailrace. The next one removes what is in this directory.\n";

#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterDemoArguments {
    /// Nodes, each with an engine
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=7))]
    nodes: u16,
    /// Where spools, logs and stores are made
    #[arg(long, default_value = "./run-cluster")]
    dir: PathBuf,
    /// Messages of the storm
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u64).range(100..=100_000))]
    messages: u64,
    /// Connections at a time
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=200))]
    sessions: u32,
    /// The nats-server; without it one of the path, or of ~/go/bin, or a new one by the Go tool
    #[arg(long, value_name = "FILE")]
    nats_server: Option<PathBuf>,
    /// End after the count instead of staying up
    #[arg(long)]
    exit: bool,
}

/// The parts that run.
struct Parts {
    nodes: Vec<DemoNode>,
    engines: Vec<DemoEngine>,
    balancer: Balancer,
    receiver: Receiver,
}

/// Runs the demonstration.
pub(crate) fn run(arguments: &ClusterDemoArguments) -> Result<Exit, Failure> {
    let mut output = Output::new();
    let mut tell = |text: String| {
        output.print_line(text);
        output.flush();
    };
    let program = engines::find_program(arguments.nats_server.as_deref(), &mut tell)?;
    let space = place(arguments)?;
    tell(format!(
        "mailrace cluster demo: {} nodes, a storm, a kill -9 of one node and its engine, and a count\n",
        arguments.nodes
    ));
    let parts = start(arguments, &program)?;
    tell(story::opening_text(&parts, &arguments.dir, space));
    let (exit, parts) = story::tell(arguments, parts, &mut tell)?;
    if arguments.exit || exit != Exit::Ok {
        return Ok(exit);
    }
    tell(story::commands_text(&parts));
    output.finish()?;
    loop {
        // Until a signal ends this process, and all that it started with it.
        std::thread::park();
    }
}

/// Makes the directory, without what an earlier demonstration left in it. Returns the room there.
///
/// # Errors
/// No demonstration has made it, or it has too little room; nothing is removed then.
fn place(arguments: &ClusterDemoArguments) -> Result<Space, Failure> {
    let directory = &arguments.dir;
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    let marker = directory.join(MARKER);
    let is_empty = std::fs::read_dir(directory).map_err(failed)?.next().is_none();
    if !is_empty && !marker.is_file() {
        let text =
            format!("{}: not empty, and not made by this demonstration; choose another --dir", directory.display());
        return Err(Failure::new(Exit::CannotCreate, text));
    }
    std::fs::write(&marker, MARKER_TEXT).map_err(failed)?;
    clean(arguments)?;
    find_room(directory, ROOM, &RealDisk::new(), "choose another --dir")
}

fn clean(arguments: &ClusterDemoArguments) -> Result<(), Failure> {
    for number in 1..=7 {
        for name in [format!("node{number}"), format!("engine{number}")] {
            let place = arguments.dir.join(name);
            match std::fs::remove_dir_all(&place) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::io(place.display(), &error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn start(arguments: &ClusterDemoArguments, program: &std::path::Path) -> Result<Parts, Failure> {
    let receiver = Receiver::start(true, Manners::default());
    let receiver = receiver.map_err(|error| Failure::io("starting the next hop", &error))?;
    let directory =
        std::path::absolute(&arguments.dir).map_err(|error| Failure::io(arguments.dir.display(), &error))?;
    let engines = engines::start_engines(program, &directory, arguments.nodes)?;
    // Another name each time: an engine that another demonstration left would be refused.
    let cluster = format!("{:032x}", u128::from(std::process::id()) << 64 | u128::from(os::clock::unix_us()));
    let node = |number| DemoNode::start(&directory, number, &cluster, &engines, receiver.at());
    let nodes: Vec<DemoNode> = (1..=arguments.nodes).map(node).collect::<Result<_, _>>()?;
    for node in &nodes {
        node.wait_for_holder(nodes.len() - 1)?;
    }
    let balancer = Balancer::start(nodes.iter().map(DemoNode::address).collect())?;
    Ok(Parts { nodes, engines, balancer, receiver })
}
