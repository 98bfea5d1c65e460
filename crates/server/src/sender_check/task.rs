//! The checks of one message of a session: they begin when the content begins, and end when it has come.

use super::content::ArrivingContent;
use super::results::SenderResults;
use super::{CheckedSender, SenderChecks, check_content, check_spf};
use crate::dns::Resolver;
use filter::spf::{SpfCode, SpfResult};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Checks that are under way. Dropped, they end.
pub(crate) struct SenderCheckTask {
    resolver: Arc<Resolver>,
    sender: Arc<CheckedSender>,
    checks: SenderChecks,
    time_max: Duration,
    content: ArrivingContent,
    /// Asks about SPF while the content arrives.
    spf: Option<SpfTask>,
}

impl fmt::Debug for SenderCheckTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderCheckTask").field("sender", &self.sender).finish_non_exhaustive()
    }
}

/// A task that ends when nobody waits for it any more.
struct SpfTask(JoinHandle<Option<SpfResult>>);

impl Drop for SpfTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SenderCheckTask {
    /// Begins the checks of a message whose first `skip` octets are those of this server. The DNS has `time_max` for
    /// SPF from now on, and for the rest from the end of the content on.
    pub(crate) fn begin(
        resolver: Arc<Resolver>,
        sender: CheckedSender,
        checks: SenderChecks,
        time_max: Duration,
        skip: usize,
    ) -> Self {
        let sender = Arc::new(sender);
        let spf = checks.spf.then(|| {
            let (resolver, sender) = (Arc::clone(&resolver), Arc::clone(&sender));
            let until = Instant::now() + time_max;
            SpfTask(tokio::spawn(async move { check_spf(&resolver, &sender, until).await }))
        });
        Self { resolver, sender, checks, time_max, content: ArrivingContent::new(skip), spf }
    }

    /// Takes the next piece of the content.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.content.push(piece, self.sender.now);
    }

    /// Ends the checks: all content has come. Waits `time_max` at most.
    ///
    /// # Cancel safety
    /// Cancel safe: the checks end.
    pub(crate) async fn finish(self) -> SenderResults {
        let until = Instant::now() + self.time_max;
        let content = self.content.finish(self.sender.now);
        let spf = match self.spf {
            Some(mut task) => (&mut task.0).await.unwrap_or_else(|_| Some(broken_off(&self.sender))),
            None => None,
        };
        check_content(&self.resolver, &self.sender, self.checks, (spf, &content), until).await
    }
}

/// Returns the result of a check that has broken off.
fn broken_off(sender: &CheckedSender) -> SpfResult {
    let domain = sender.sender.rsplit_once('@').map_or(&*sender.helo, |(_, domain)| domain).to_owned();
    SpfResult { code: SpfCode::TempError, domain, reason: "the check has broken off".to_owned(), explanation: None }
}
