//! The settings of webhooks: `[[webhook]]`.

use std::path::PathBuf;
use std::time::Duration;

/// `[[webhook]]`: a program elsewhere that gets outcomes of mail by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its name in the log and in metrics.
    pub name: String,
    /// Where requests go.
    pub url: String,
    /// The form of its requests.
    pub format: WebhookFormat,
    /// The events that it gets.
    pub events: Vec<WebhookEvent>,
    /// The file whose first line is the secret of signatures; empty: none, for traces.
    pub secret_file: PathBuf,
    /// Events that may wait.
    pub queue_max: u32,
    /// How long a request that is not taken is repeated.
    pub give_up_after: Duration,
    /// How long a request may take.
    pub request_time_max: Duration,
}

/// The form of the requests of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookFormat {
    /// A list of events, as the log has them in the form `json`.
    Json,
    /// Spans for a collector of OpenTelemetry.
    Otlp,
}

/// An event that a webhook may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookEvent {
    /// A message is durable.
    Accepted,
    /// A next hop has taken recipients.
    Sent,
    /// Recipients wait for another attempt.
    Deferred,
    /// Recipients are given up.
    Failed,
    /// A report about mail was made.
    Reported,
    /// A message waits for a queue run or a person.
    Queued,
    /// A message was dropped by a rule.
    Discarded,
    /// A rule or filter has decided.
    Screened,
    /// An operator has changed the queue.
    QueueCommand,
    /// A destination cannot be reached.
    DestinationDown,
    /// A destination is reached again.
    DestinationUp,
}

impl WebhookEvent {
    /// The name of the event in the log, which is its word in the file.
    #[must_use]
    pub const fn event(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Sent => "sent",
            Self::Deferred => "deferred",
            Self::Failed => "failed",
            Self::Reported => "reported",
            Self::Queued => "queued",
            Self::Discarded => "discarded",
            Self::Screened => "screened",
            Self::QueueCommand => "queue_command",
            Self::DestinationDown => "destination_down",
            Self::DestinationUp => "destination_up",
        }
    }
}
