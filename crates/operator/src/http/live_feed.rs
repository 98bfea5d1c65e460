//! Numbers of each second for the live page, as server-sent events.

use super::handler::HttpHandler;
use super::response::Pieces;
use crate::answers::{LiveSample, to_fields};
use bytes::Bytes;
use observe::DelayClass;
use observe::counters::Counter;
use os::clock;
use serde_json::Value;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

type Sampling = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// Takes a sample each second while its client takes them.
pub(super) struct LiveFeed {
    ticks: Interval,
    begin: Box<dyn Fn() -> Sampling + Send + Sync>,
    sampling: Option<Sampling>,
}

impl fmt::Debug for LiveFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveFeed").field("ticks", &self.ticks).finish_non_exhaustive()
    }
}

impl LiveFeed {
    pub(super) fn new<H: HttpHandler>(handler: &Arc<H>) -> Self {
        let mut ticks = interval(INTERVAL);
        // A client that was slow gets the numbers of now.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let handler = Arc::clone(handler);
        let begin = move || -> Sampling {
            let handler = Arc::clone(&handler);
            Box::pin(async move { event(&sample(&*handler).await) })
        };
        Self { ticks, begin: Box::new(begin), sampling: None }
    }
}

impl Pieces for LiveFeed {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.sampling.is_none() {
            ready!(self.ticks.poll_tick(cx));
        }
        let sampling = self.sampling.get_or_insert_with(|| (self.begin)());
        let sample = ready!(sampling.as_mut().poll(cx));
        self.sampling = None;
        Poll::Ready(Some(sample))
    }
}

/// Takes the numbers of now.
async fn sample<H: HttpHandler>(handler: &H) -> LiveSample {
    let status = handler.status().await;
    let mut sample = LiveSample::of(&status, clock::unix_us() / 1_000);
    sample.bounds = DelayClass::all().filter_map(DelayClass::bound_seconds).collect();
    sample.delays = DelayClass::all().map(|class| handler.counter(Counter::DeliveryDelays(class))).collect();
    sample
}

fn event(sample: &LiveSample) -> Bytes {
    format!("data: {}\n\n", Value::Object(to_fields(sample))).into()
}
