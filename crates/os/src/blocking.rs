//! Work that may wait for a disk, on the threads that are kept for it.

use tokio::task::JoinError;

/// Does `work` on a thread that may wait.
///
/// In the simulation it is done here and now after a moment, so that a run repeats to the letter.
///
/// # Errors
/// The work panicked, or the runtime ends.
/// # Cancel safety
/// The work goes on to its end; its result is lost.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(any(test, feature = "sim"))]
    if super::clock::simulated::is_on() {
        // Nothing comes: the moment passes on the simulated clock.
        drop(tokio::time::timeout(std::time::Duration::from_millis(1), std::future::pending::<()>()).await);
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
