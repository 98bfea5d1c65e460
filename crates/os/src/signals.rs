//! Signals as a stream of requests.
//!
//! Made once inside the runtime, then awaited by the main loop. From then on the four signals, and SIGXFSZ, no longer
//! end the process.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use tokio::signal::unix::signal;

pub use tokio::signal::unix::SignalKind;

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: begin no transaction, let open ones finish within `server.shutdown_grace`, end.
    Terminate {
        /// Which it was.
        name: &'static str,
    },
    /// A second one of them: the grace time is over.
    TerminateNow,
    /// SIGHUP: read the configuration and certificates again, open the log file again.
    Hangup,
    /// SIGUSR1: open the log file again.
    User1,
}

/// Signals that do nothing while this lives.
#[derive(Debug)]
pub struct Ignored {
    _signals: Vec<tokio::signal::unix::Signal>,
    _runtime: tokio::runtime::Runtime,
}

/// Has signals do nothing, in a process without a runtime.
///
/// # Errors
/// The system refuses a handler.
pub fn ignore(kinds: &[SignalKind]) -> io::Result<Ignored> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let signals = kinds.iter().map(|kind| signal(*kind)).collect::<io::Result<_>>()?;
    drop(guard);
    Ok(Ignored { _signals: signals, _runtime: runtime })
}

/// The signals of this process.
#[derive(Debug)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    user1: tokio::signal::unix::Signal,
    terminating: bool,
}

impl Signals {
    /// Begins to catch them.
    ///
    /// # Errors
    /// The system refuses a handler.
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        // A file that becomes too large is told by the call that writes to it: EFBIG, and not the end of the process.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            terminating: false,
        })
    }

    /// Waits for the next signal. Several of a kind that arrive together count as one.
    ///
    /// # Cancel safety
    /// Nothing is lost when this is dropped while it waits.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        // Every stream is asked although one is ready, so that SIGTERM and SIGINT at the same time are one request.
        let [terminate, interrupt] = [self.terminate.poll_recv(context), self.interrupt.poll_recv(context)];
        if terminate.is_ready() || interrupt.is_ready() {
            let again = std::mem::replace(&mut self.terminating, true);
            let name = if terminate.is_ready() { "SIGTERM" } else { "SIGINT" };
            return Poll::Ready(if again { Signal::TerminateNow } else { Signal::Terminate { name } });
        }
        if self.hangup.poll_recv(context).is_ready() {
            return Poll::Ready(Signal::Hangup);
        }
        self.user1.poll_recv(context).map(|_| Signal::User1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal as Number, getpid, kill_process};

    #[test]
    fn signals_become_requests() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut signals = Signals::new().unwrap();
            for (number, expected) in [
                (Number::HUP, Signal::Hangup),
                (Number::USR1, Signal::User1),
                (Number::INT, Signal::Terminate { name: "SIGINT" }),
                (Number::HUP, Signal::Hangup),
                (Number::TERM, Signal::TerminateNow),
                (Number::TERM, Signal::TerminateNow),
            ] {
                kill_process(getpid(), number).unwrap();
                assert_eq!(signals.next().await, expected);
            }
        });
    }
}
