//! The wait of a connection: for input, a time limit, or the end of the server.

use crate::stop::Stop;
use os::clock;
use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// A limit so late that the clock cannot say it.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The time limit and the end of the server, kept over all waits of a connection.
///
/// The timer is set anew only when the limit comes earlier than it is set to, or when it has fired: most sessions never
/// touch it after the first time.
pub(crate) struct Wait<'a, N> {
    timer: Pin<&'a mut Sleep>,
    stop: &'a Stop,
    stopping: Pin<&'a mut N>,
    stopping_is_polled: bool,
    stop_seen: bool,
}

impl<'a, N: Future<Output = ()>> Wait<'a, N> {
    /// Waits with `timer`, and for the `stopping` of `stop`.
    pub(crate) fn new(timer: Pin<&'a mut Sleep>, stop: &'a Stop, stopping: Pin<&'a mut N>) -> Self {
        Self { timer, stop, stopping, stopping_is_polled: false, stop_seen: false }
    }

    /// Ready when `deadline` has passed, or once when the server begins to stop.
    pub(crate) fn poll(&mut self, context: &mut task::Context<'_>, deadline: Instant) -> Poll<()> {
        // One poll registers the task, which stays the same; polling again would only take the lock all tasks share.
        if !self.stop_seen && (!self.stopping_is_polled || self.stop.has_begun()) {
            self.stopping_is_polled = true;
            if self.stopping.as_mut().poll(context).is_ready() {
                self.stop_seen = true;
                return Poll::Ready(());
            }
        }
        loop {
            if tokio::time::Instant::from_std(deadline) < self.timer.deadline() {
                self.timer.as_mut().reset(deadline.into());
            }
            ready!(self.timer.as_mut().poll(context));
            if clock::now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline.into());
        }
    }
}
