//! `mailrace local-delivery`: the processes that the server starts to deliver with the rights of users. Not for people.

use crate::exit::{Exit, Failure};
use clap::{Args, ValueEnum};
use server::local_delivery::{run_helper, run_reader, run_worker};

/// Deliver with the rights of users, for the server
#[derive(Debug, Args)]
pub(crate) struct LocalDeliveryArguments {
    /// Role of the process
    form: ProcessRole,
    /// Settings of local delivery, as the configuration has them
    #[arg(long)]
    settings: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProcessRole {
    /// The one that stays root.
    Helper,
    /// One that delivers as a user.
    Worker,
    /// One that reads files as a user.
    Reader,
}

/// Runs it to its end.
///
/// # Errors
/// It was not started by the server.
pub(crate) fn run(arguments: &LocalDeliveryArguments) -> Result<Exit, Failure> {
    let done = match arguments.form {
        ProcessRole::Helper => run_helper(&arguments.settings),
        ProcessRole::Worker => run_worker(&arguments.settings),
        ProcessRole::Reader => run_reader(&arguments.settings),
    };
    done.map(|()| Exit::Ok).map_err(|text| Failure::new(Exit::Usage, text))
}
