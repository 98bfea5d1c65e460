//! A command that waits for the results of the message it has submitted.
//!
//! It connects to the socket in the pickup directory and sends one line of JSON, `{"file":"mail.…","wait":"taken"}`.
//! The server sends lines: `refused` with the refused recipients, to which the command answers `ok` when its caller
//! has seen them, or something else when the sender is to get a report by mail; `taken` with the queue id; with
//! `"wait":"done"` then a line with `to`, `stat`, `status` and `text` for each result; `later` with the reason, when
//! the message stays in the directory, or when this user has as many commands waiting as one may have. Any user may
//! connect, and gets results of his own files only.

use super::file::Refused;
use crate::submit::Submission;
use mail::QueueId;
use operator::control::Peer;
use operator::delivery_watch::DeliveryResult;
use operator::user_share::UserPlace;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Time for the request, for the command's confirmation, and for a line to be read.
const LINE_TIME_MAX: Duration = Duration::from_secs(5);
/// Octets of the request.
const LINE_BYTES_MAX: u64 = 512;
/// Time in which the command must confirm the refused recipients.
const REFUSED_TIME_MAX: Duration = Duration::from_secs(20);
/// Refused recipients on one line.
const LISTED_MAX: usize = 1_000;

/// One that waits.
#[derive(Debug)]
pub(super) struct SubmitWaiter {
    stream: BufReader<UnixStream>,
    peer: Peer,
    waits_for_delivery: bool,
    /// It counts for its user until it is gone.
    _place: UserPlace,
}

impl SubmitWaiter {
    /// Reads the request: the user of the command, and its file.
    pub(super) async fn read(stream: UnixStream, peer: Peer, place: UserPlace) -> Option<(Self, String)> {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LINE_BYTES_MAX);
        timeout(LINE_TIME_MAX, limited.read_until(b'\n', &mut line)).await.ok()?.ok()?;
        let request: Value = serde_json::from_slice(&line).ok()?;
        let file = request.get("file")?.as_str()?.to_owned();
        let waits_for_delivery = request.get("wait").and_then(Value::as_str) == Some("done");
        Some((Self { stream, peer, waits_for_delivery, _place: place }, file))
    }

    /// Returns the user of the command.
    pub(super) fn uid(&self) -> u32 {
        self.peer.uid
    }

    /// Returns whether it may get results of a file of this user.
    pub(super) fn may_hear_of(&self, uid: u32) -> bool {
        self.peer.uid == uid || self.peer.uid == 0
    }

    pub(super) fn waits_for_delivery(&self) -> bool {
        self.waits_for_delivery
    }

    /// Sends the refused recipients. True: the command has confirmed all of them. Otherwise it gets no more lines.
    pub(super) async fn refused(&mut self, submission: &Submission, refused: &[Refused]) -> bool {
        // Many lines, each answered at the last moment, would hold the message up for hours.
        timeout(REFUSED_TIME_MAX, self.all_refused(submission, refused)).await.unwrap_or(false)
    }

    async fn all_refused(&mut self, submission: &Submission, refused: &[Refused]) -> bool {
        for some in refused.chunks(LISTED_MAX) {
            let list: Vec<Value> = some
                .iter()
                .map(|(position, reply)| {
                    let to = submission.recipients.get(*position).map(|one| one.address.to_string());
                    json!({ "to": to, "code": reply.code().to_string(), "text": reply.to_string() })
                })
                .collect();
            if !self.send(&json!({ "refused": list })).await || !self.has_heard().await {
                return false;
            }
        }
        true
    }

    async fn has_heard(&mut self) -> bool {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
        let read = timeout(LINE_TIME_MAX, limited.read_until(b'\n', &mut line)).await;
        read.is_ok_and(|read| read.is_ok()) && line == b"ok\n"
    }

    /// Sends the queue id of the message.
    pub(super) async fn taken(&mut self, id: QueueId) -> bool {
        self.send(&json!({ "taken": id.to_string() })).await
    }

    /// Sends that the message stays in the directory.
    pub(super) async fn later(&mut self, why: &str) -> bool {
        self.send(&json!({ "later": why })).await
    }

    /// Sends the result of recipients.
    pub(super) async fn outcome(&mut self, outcome: &DeliveryResult) -> bool {
        let DeliveryResult { to, stat, status, text } = outcome;
        self.send(&json!({ "to": to, "stat": stat, "status": status, "text": text })).await
    }

    /// Resolves when the command has gone.
    ///
    /// # Cancel safety
    /// Yes: octets of the command have no meaning here.
    pub(super) async fn is_gone(&mut self) {
        let mut octets = [0; 64];
        while !matches!(self.stream.read(&mut octets).await, Ok(0) | Err(_)) {}
    }

    async fn send(&mut self, line: &Value) -> bool {
        let text = format!("{line}\n");
        timeout(LINE_TIME_MAX, self.stream.get_mut().write_all(text.as_bytes()))
            .await
            .is_ok_and(|written| written.is_ok())
    }
}
