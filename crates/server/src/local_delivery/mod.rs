//! Local deliveries of the server, and the processes of the program that deliver mail, and read files, with the rights
//! of users.

mod executor;

use crate::lookup::files::worker;
use ::local::privileged;

pub use ::local::privileged::{run_helper, run_worker};
pub(crate) use executor::{LocalDelivery, LocalJob, Source, deliver};

/// Reads files of a user until there is no request for a while. The socket of the process is standard input.
///
/// # Errors
/// The process was not started by a helper, or the server is gone.
pub fn run_reader(settings: &str) -> Result<(), String> {
    privileged::run_reader(settings, worker::serve)
}
