//! Shows and ends connections to next hops, and passes transcripts of their dialogs on.

use super::orders::command_by;
use super::server::Server;
use crate::transcript::{TranscriptLines, WATCHERS_MAX};
use observe::Event;
use operator::answers::{ConnectionLine, ConnectionsAnswer, TranscriptLine, to_fields};
use operator::control::{Answer, ListPart, Reason, TranscriptOrder};
use operator::requester::Requester;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A transcript without lines says so often that the server is there; so a client that has gone is noticed.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Lines that wait for the client.
const LINES_WAITING_MAX: usize = 64;

impl Server {
    /// Returns the connections to such destinations or hosts.
    pub(super) fn answer_connections(&self, pattern: &str) -> Answer {
        let now = self.context.unix_now();
        let views = self.outbound.dispatch.as_ref().map(|dispatch| dispatch.connection_views(pattern));
        let line = |view: crate::dispatch::ConnectionView| ConnectionLine {
            connection: view.number,
            destination: view.names.first().cloned().unwrap_or_default(),
            site: view.names.get(1).cloned().unwrap_or_default(),
            host: view.host.to_string(),
            age: now.saturating_sub(view.opened_at).as_secs(),
            messages: view.messages.iter().map(ToString::to_string).collect(),
        };
        let connections = views.into_iter().flatten().map(line).collect();
        Answer::Done(to_fields(&ConnectionsAnswer { connections }))
    }

    /// Ends a connection.
    pub(super) fn answer_abort(&self, number: u64, by: &Requester) -> Answer {
        let aborted = self.outbound.dispatch.as_ref().and_then(|dispatch| dispatch.abort_connection(number));
        let Some(destination) = aborted else {
            let error =
                format!("there is no connection {number} any more; \"mailrace destination connections\" shows them");
            return Answer::refused(Reason::Request, error);
        };
        self.record_command("abort", &format!("connection {number} of {destination}"), by);
        Answer::done()
    }

    /// Passes the dialogs with a destination on, line by line.
    pub(super) fn answer_transcript(&self, order: &TranscriptOrder, by: &Requester) -> Answer {
        let Some(lines) = self.context.transcripts.watch(&order.destination) else {
            let error = format!("{WATCHERS_MAX} transcripts are open; wait for one to end, and ask again");
            return Answer::refused(Reason::Busy, error);
        };
        self.record_command("transcript", &order.destination, by);
        let (to, answer) = mpsc::channel(LINES_WAITING_MAX);
        let (context, until) = (std::sync::Arc::clone(&self.context), Instant::now() + order.time);
        let limit = order.lines;
        // Ends by itself: with its time, its lines, its client or the server.
        drop(tokio::spawn(async move {
            tokio::select! {
                () = context.stop.begun() => {}
                () = pass_on(lines, &to, until, limit) => {}
            }
        }));
        Answer::List(answer)
    }

    fn record_command(&self, what: &str, to: &str, by: &Requester) {
        let (messages, recipients, by) = (0, 0, command_by(by));
        let event = Event::QueueCommand { id: None, what, messages, recipients, by, copy: None, to: Some(to) };
        self.context.record(&event);
    }
}

/// Sends lines until the time is over, there were enough, or the client is gone.
async fn pass_on(mut lines: TranscriptLines, to: &mpsc::Sender<ListPart>, until: Instant, limit: u64) {
    let mut left = limit;
    while left > 0 {
        let beat = until.min(Instant::now() + HEARTBEAT);
        let line = match tokio::time::timeout_at(beat, lines.lines.recv()).await {
            Ok(Some(line)) => {
                left -= 1;
                line
            }
            Ok(None) => break,
            Err(_) if Instant::now() >= until => break,
            Err(_) => to_fields(&TranscriptLine::default()),
        };
        if to.send(ListPart::Line(line)).await.is_err() {
            return;
        }
    }
    let missed = lines.missed.load(Ordering::Relaxed);
    let fields: Map<String, Value> = Map::from_iter([("missed".to_owned(), json!(missed))]);
    // A client that has gone gets no last line.
    drop(to.send(ListPart::Last(fields)).await);
}
