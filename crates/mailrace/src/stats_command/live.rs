//! The sums of the running server.

use crate::control_client::Control;
use crate::exit::Failure;
use observe::stats::Statistics;
use operator::answers::StatisticsAnswer;
use operator::control::Request;

/// Asks the server for its sums.
///
/// # Errors
/// The server does not answer, or is of another version.
pub(super) fn ask(control: &mut Control) -> Result<Statistics, Failure> {
    let answer: StatisticsAnswer = control.ask_for(&Request::Statistics)?;
    Ok(answer.sums())
}
