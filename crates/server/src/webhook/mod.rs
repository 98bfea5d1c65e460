//! Webhooks: outcomes of mail, sent to other programs by HTTP.
//!
//! An event that a webhook asks for is put, as the JSON of the log, into its bounded queue; a task of its own sends
//! what has gathered and repeats what was not taken. Mail never waits for any of it: beyond the bound events are
//! dropped and counted. [`request`] makes the request, [`signature`] signs it. Events that wait at the end of the
//! process are lost, so a webhook is a notice and no record.

mod request;
mod signature;
mod spans;
mod target;

pub(crate) use target::WebhookTarget;

use crate::config::{Config, Webhook as WebhookSettings, WebhookFormat};
use crate::log::utc_text;
use crate::secret_key::random_number;
use crate::tls::Connector;
use observe::{Event, json};
use operator::answers::WebhookStatus;
use os::clock;
use request::PostSettings;
use signature::SigningSecret;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Events of a request.
const BATCH_EVENTS_MAX: usize = 100;
/// Octets of a request.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// How long events gather.
const GATHER_TIME: Duration = Duration::from_millis(200);
/// The first pause after a request that was not taken; each further one is twice as long.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// A webhook of the running server.
#[derive(Debug)]
pub(crate) struct Webhook {
    name: String,
    /// The beginning of the names of its batches. No other run of the server has it, so that no receiver takes a new
    /// batch for one that it knows: in a container every run may have the same process id.
    run: u64,
    target: WebhookTarget,
    events: Vec<&'static str>,
    secret: Option<SigningSecret>,
    format: WebhookFormat,
    hostname: String,
    queue_max: usize,
    give_up_after: Duration,
    ca_files: Vec<PathBuf>,
    request_time_max: Duration,
    waiting: Mutex<VecDeque<String>>,
    bell: Notify,
    sent: AtomicU64,
    dropped: AtomicU64,
    /// Why the last request was not taken.
    failing: Mutex<Option<String>>,
}

/// Why the webhooks of a configuration cannot be used.
pub(crate) type WebhookFaults = Vec<String>;

/// Makes the webhooks of a configuration and reads their secrets.
///
/// # Errors
/// Every fault, with its key and the next step.
pub(crate) fn load(config: &Config) -> Result<Vec<Arc<Webhook>>, WebhookFaults> {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for settings in &config.webhooks {
        let target = WebhookTarget::parse(&settings.url);
        let target = target.map_err(|why| format!("webhook.url: \"{}\" {why}", settings.url));
        let secret = secret(config, settings);
        match (target, secret) {
            (Ok(target), Ok(secret)) => found.push(Arc::new(Webhook {
                name: settings.name.clone(),
                run: random_number(),
                target,
                events: settings.events.iter().map(|event| event.event()).collect(),
                secret,
                format: settings.format,
                hostname: config.hostname.clone(),
                queue_max: usize::try_from(settings.queue_max).unwrap_or(usize::MAX),
                give_up_after: settings.give_up_after,
                ca_files: config.tls.ca_files.clone(),
                request_time_max: settings.request_time_max,
                waiting: Mutex::default(),
                bell: Notify::new(),
                sent: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                failing: Mutex::default(),
            })),
            (target, secret) => faults.extend(target.err().into_iter().chain(secret.err())),
        }
    }
    if faults.is_empty() { Ok(found) } else { Err(faults) }
}

/// Hands an event to the webhooks that ask for it. It waits for nothing.
pub(crate) fn record(webhooks: &[Arc<Webhook>], event: &Event<'_>) {
    let mut wanted = webhooks.iter().filter(|webhook| webhook.events.contains(&event.name())).peekable();
    if wanted.peek().is_none() {
        return;
    }
    let now_us = clock::unix_us();
    let (mut objects, mut spans) = (None, None);
    for webhook in wanted {
        webhook.push(match webhook.format {
            WebhookFormat::Json => objects.get_or_insert_with(|| objects_of(event, now_us)),
            WebhookFormat::Otlp => spans.get_or_insert_with(|| Vec::from_iter(spans::spans(event, now_us))),
        });
    }
}

/// Returns an event as objects of the log.
fn objects_of(event: &Event<'_>, now_us: u64) -> Vec<String> {
    let time = utc_text(now_us);
    let mut lines = Vec::new();
    let mut rest = Some(*event);
    while let Some(event) = rest {
        let mut line = String::new();
        // A long list of recipients needs several objects.
        rest = json::write(&event, &time, &mut line);
        lines.push(line);
    }
    lines
}

/// Reads the secret of a webhook; only traces go without one.
fn secret(config: &Config, settings: &WebhookSettings) -> Result<Option<SigningSecret>, String> {
    if !settings.secret_file.as_os_str().is_empty() {
        return SigningSecret::read(config, &settings.secret_file).map(Some);
    }
    match settings.format {
        WebhookFormat::Otlp => Ok(None),
        WebhookFormat::Json => Err(format!(
            "webhook.secret_file: webhook {} has none; name a file with a secret, as openssl rand -hex 32 makes one",
            settings.name
        )),
    }
}

impl Webhook {
    fn push(&self, lines: &[String]) {
        let mut waiting = self.lock();
        let room = self.queue_max.saturating_sub(waiting.len());
        waiting.extend(lines.iter().take(room).cloned());
        drop(waiting);
        self.count_dropped(lines.len().saturating_sub(room));
        self.bell.notify_one();
    }

    /// Sends what gathers until the server has ended; `notify` gets messages for the operator.
    pub(crate) async fn run(self: Arc<Self>, connector: Connector, notify: impl Fn(&str) + Send) {
        let mut number = 0_u64;
        loop {
            if self.lock().is_empty() {
                self.bell.notified().await;
                tokio::time::sleep(GATHER_TIME).await;
            }
            let batch = self.batch();
            if batch.is_empty() {
                continue;
            }
            number += 1;
            self.deliver(&connector, &batch, number, &notify).await;
        }
    }

    /// Sends a batch, again and again until it is taken or its time is over. Its events stay in the queue until then.
    async fn deliver(&self, connector: &Connector, batch: &[String], number: u64, notify: &(impl Fn(&str) + Send)) {
        let body = match self.format {
            WebhookFormat::Json => format!("[{}]", batch.join(",\n")),
            WebhookFormat::Otlp => spans::request_body(&self.hostname, batch),
        };
        let batch_name = self.batch_name(number);
        let gives_up_at = clock::now() + self.give_up_after;
        let mut pause = RETRY_FIRST;
        loop {
            let settings = PostSettings {
                target: &self.target,
                secret: self.secret.as_ref(),
                batch: &batch_name,
                ca_files: &self.ca_files,
                time_max: self.request_time_max,
            };
            match request::post(connector, &settings, body.clone()).await {
                Ok(()) => {
                    self.finish(batch.len());
                    self.sent.fetch_add(count(batch.len()), Ordering::Relaxed);
                    if self.failing().take().is_some() {
                        notify(&format!("webhook {}: {} takes events again", self.name, self.target));
                    }
                    return;
                }
                Err(why) => self.note_failure(&why, notify),
            }
            if clock::now() + pause >= gives_up_at {
                self.finish(batch.len());
                self.count_dropped(batch.len());
                notify(&format!(
                    "webhook {}: {} events given up after {} s (webhook.give_up_after); {} were dropped since the start",
                    self.name,
                    batch.len(),
                    self.give_up_after.as_secs(),
                    self.dropped.load(Ordering::Relaxed)
                ));
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Returns the name of a batch, the same when it is sent again.
    fn batch_name(&self, number: u64) -> String {
        format!("{:016x}-{number}", self.run)
    }

    /// Tells the operator of the first failure after a success.
    fn note_failure(&self, why: &str, notify: &(impl Fn(&str) + Send)) {
        if self.failing().replace(why.to_owned()).is_none() {
            let (waiting, most) = (self.lock().len(), self.queue_max);
            notify(&format!(
                "webhook {}: {}: {why}; {waiting} events wait ({most} at most, webhook.queue_max) and are sent again; mail goes on",
                self.name, self.target
            ));
        }
    }

    /// Copies the first events of the queue, as many as one request takes.
    fn batch(&self) -> Vec<String> {
        let waiting = self.lock();
        let mut bytes = 0;
        let fits = |line: &&String| {
            bytes += line.len() + 2;
            bytes <= BATCH_BYTES_MAX
        };
        let mut batch: Vec<String> = waiting.iter().take(BATCH_EVENTS_MAX).take_while(fits).cloned().collect();
        if batch.is_empty() {
            batch.extend(waiting.front().cloned());
        }
        batch
    }

    /// Removes the first events of the queue.
    fn finish(&self, events: usize) {
        let mut waiting = self.lock();
        let events = events.min(waiting.len());
        waiting.drain(..events);
    }

    fn count_dropped(&self, events: usize) {
        self.dropped.fetch_add(count(events), Ordering::Relaxed);
    }

    /// Returns its state.
    pub(crate) fn status(&self) -> WebhookStatus {
        WebhookStatus {
            name: self.name.clone(),
            url: self.target.to_string(),
            waiting: count(self.lock().len()),
            waiting_max: count(self.queue_max),
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            failing: self.failing().clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failing(&self) -> MutexGuard<'_, Option<String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(queue_max: usize) -> Webhook {
        Webhook {
            name: "ops".to_owned(),
            run: random_number(),
            target: WebhookTarget::parse("https://ops.test/hook").unwrap(),
            events: vec!["stopping"],
            secret: Some(SigningSecret::of(b"0123456789abcdef")),
            format: WebhookFormat::Json,
            hostname: "mx.test".to_owned(),
            queue_max,
            give_up_after: Duration::from_secs(60),
            ca_files: Vec::new(),
            request_time_max: Duration::from_secs(1),
            waiting: Mutex::default(),
            bell: Notify::new(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failing: Mutex::default(),
        }
    }

    #[test]
    fn events_that_are_asked_for_wait_and_more_than_there_is_room_for_are_counted() {
        let hook = [Arc::new(webhook(2))];
        record(&hook, &Event::LogDropped { lines: 7 });
        assert_eq!(hook[0].status().waiting, 0, "not asked for");
        for connections in 0..5 {
            record(&hook, &Event::Stopping { why: "SIGTERM", connections });
        }
        let status = hook[0].status();
        assert_eq!((status.waiting, status.dropped), (2, 3));
        let batch = hook[0].batch();
        assert!(batch[0].contains("\"event\":\"stopping\"") && batch[0].contains("\"connections\":0"), "{batch:?}");
        hook[0].finish(2);
        assert_eq!((hook[0].status().waiting, hook[0].batch().len()), (0, 0));
    }

    #[test]
    fn batches_of_two_runs_have_different_names() {
        let (first, second) = (webhook(1), webhook(1));
        assert_eq!(first.batch_name(1), first.batch_name(1));
        assert!(first.batch_name(1) != second.batch_name(1) && first.batch_name(1) != first.batch_name(2));
    }

    #[test]
    fn a_request_has_a_bound() {
        let hook = webhook(10_000);
        hook.push(&vec!["x".repeat(1_000); 1_000]);
        assert_eq!(hook.batch().len(), BATCH_EVENTS_MAX);
        let large = webhook(10_000);
        large.push(&vec!["x".repeat(100_000); 10]);
        assert_eq!(large.batch().len(), 2);
        let huge = webhook(10_000);
        huge.push(&["x".repeat(1_000_000), "y".to_owned()]);
        assert_eq!(huge.batch().len(), 1, "one is sent, however large");
    }
}
