//! Counts of HTTP, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpLimit {
    /// `http.connections_max`
    Connections,
    /// `http.header_bytes_max`
    HeaderBytes,
    /// `http.body_bytes_max`
    BodyBytes,
    /// `http.request_time_max`
    RequestTime,
}

impl HttpLimit {
    /// Every limit.
    pub const ALL: [Self; 4] = [Self::Connections, Self::HeaderBytes, Self::BodyBytes, Self::RequestTime];

    /// The key that sets it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "http.connections_max",
            Self::HeaderBytes => "http.header_bytes_max",
            Self::BodyBytes => "http.body_bytes_max",
            Self::RequestTime => "http.request_time_max",
        }
    }
}

/// Numbers since the start, and connections that are open now.
#[derive(Debug, Default)]
pub struct HttpCounts {
    open: AtomicU64,
    refused: [AtomicU64; HttpLimit::ALL.len()],
    /// By the first digit of the status.
    answered: [AtomicU64; 5],
    unauthorized: AtomicU64,
}

impl HttpCounts {
    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self, limit: HttpLimit) {
        if let Some(count) = self.refused.get(limit as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn answer(&self, status: u16) {
        if let Some(count) = self.answered.get(usize::from(status / 100).saturating_sub(1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if status == 401 {
            self.unauthorized.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connections that are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns how often the limit was reached.
    #[must_use]
    pub fn refused(&self, limit: HttpLimit) -> u64 {
        self.refused.get(limit as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the answers with `2xx` (2), `4xx` (4) and so on.
    #[must_use]
    pub fn answered(&self, class: usize) -> u64 {
        self.answered.get(class.saturating_sub(1)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns how many requests had no token, or a wrong one.
    #[must_use]
    pub fn unauthorized(&self) -> u64 {
        self.unauthorized.load(Ordering::Relaxed)
    }
}
