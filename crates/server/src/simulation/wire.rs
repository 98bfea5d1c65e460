//! Bytes of a conversation as a host or a sender has them: lines in, text out, and the other's end noticed at once.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: DuplexStream,
    /// Received and not used.
    pub(super) input: Vec<u8>,
    /// To be sent.
    pub(super) output: Vec<u8>,
    /// The other side has closed.
    pub(super) is_over: bool,
}

impl Wire {
    pub(super) const fn new(stream: DuplexStream) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), is_over: false }
    }

    /// Reads something; false at the end.
    pub(super) async fn read(&mut self) -> bool {
        if !self.is_over {
            self.is_over = !matches!(self.stream.read_buf(&mut self.input).await, Ok(1..));
        }
        !self.is_over
    }

    /// Lets time pass and reads meanwhile, to see the end when it comes.
    pub(super) async fn pause(&mut self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while !self.is_over {
            if tokio::time::timeout_at(until, self.read()).await.is_err() {
                return;
            }
        }
    }

    /// Reads and answers nothing until the other side goes.
    pub(super) async fn hang(&mut self) {
        while self.read().await {
            self.input.clear();
        }
    }

    /// Returns whether a whole line is there.
    pub(super) fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    /// Returns the next line with its end.
    pub(super) async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                return Some(self.input.drain(..=end).collect());
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// Reads so many octets, or those that come before the end.
    pub(super) async fn octets(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.input.len() < count {
            if !self.read().await {
                return None;
            }
        }
        Some(self.input.drain(..count).collect())
    }

    /// Sends the waiting output; false if the other side is gone.
    pub(super) async fn flush(&mut self) -> bool {
        let output = std::mem::take(&mut self.output);
        self.stream.write_all(&output).await.is_ok()
    }

    /// Returns a reply: its code, if there is one.
    pub(super) async fn reply(&mut self) -> Option<u16> {
        loop {
            let line = self.line().await?;
            if line.get(3) != Some(&b'-') {
                return str::from_utf8(line.get(..3)?).ok()?.parse().ok();
            }
        }
    }
}
