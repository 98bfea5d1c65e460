//! Waiting for several answers at once, without tasks: whoever waits drives them all.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// The results of all, in their order. All are polled whenever one of them moves, so a few dozen are what this is for.
///
/// # Cancel safety
/// As the futures have it.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut open: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = open.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, result) in open.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                *result = Some(output);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}
