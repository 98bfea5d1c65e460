//! Has the messages of a transaction wait for filters that are asked after the 250: those with `when = "after-250"`,
//! and those with `on_failure = "later"` that failed before.
//!
//! Room in the backlog is reserved before the messages are stored, so that a full backlog refuses a message and never
//! grows beyond its limits by sessions at the same time.

use super::Connection;
use super::screening::JudgedMessage;
use crate::intake::{NewMessage, Origin};
use crate::screen::filters::{FilterFacts, OwnFields};
use crate::screen_queue::{BacklogRoom, ScreeningRecord, screen_hold};
use mail::QueueId;
use observe::Limit;
use os::clock;
use std::time::Duration;

/// How often a delayed 250 looks at the backlog.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The messages of a transaction that wait for filters.
#[derive(Debug)]
pub(super) struct WaitingMessages {
    room: BacklogRoom,
    ids: Vec<QueueId>,
    filters: Vec<String>,
    bytes_each: u64,
}

impl WaitingMessages {
    /// Has the messages screened, which are durable.
    pub(super) fn begin(self) {
        self.room.add(&self.ids, &self.filters, self.bytes_each);
    }
}

impl Connection {
    /// Has the messages begin held, if filters are to be asked about them, whose content has these fields of ours on
    /// top. `None`: no filter is.
    ///
    /// # Errors
    /// The limit of the backlog that has no room.
    pub(super) fn wait_for_filters(
        &self,
        messages: &mut [NewMessage],
        (judged, own_fields): (Option<&JudgedMessage>, OwnFields),
    ) -> Result<Option<WaitingMessages>, Limit> {
        let Some(queue) = &self.inbound.screen_queue else { return Ok(None) };
        let filters = self.filters_after(judged);
        if filters.is_empty() {
            return Ok(None);
        }
        let bytes_each = self.session.content_bytes();
        let is_kept = |message: &&mut NewMessage| judged.is_none_or(|judged| !judged.drops(message));
        let kept: Vec<&mut NewMessage> = messages.iter_mut().filter(is_kept).collect();
        let room = queue.reserve(kept.len(), bytes_each)?;
        let FilterFacts {
            listener,
            server,
            client_name,
            tls,
            certificate_subject,
            certificate_issuer,
            user,
            auth_mechanism,
            ..
        } = self.filter_facts();
        let mut record = ScreeningRecord {
            listener,
            server,
            client_name,
            tls,
            certificate_subject,
            certificate_issuer,
            user,
            auth_mechanism,
            own_fields,
            ..ScreeningRecord::new(filters.clone())
        };
        let reason = screen_hold(&filters);
        let mut ids = Vec::with_capacity(kept.len());
        for message in kept {
            record.then = message.hold_reason(Origin::Session);
            message.wait_for_filters(&record.to_text(), reason.clone());
            ids.push(message.envelope.id);
        }
        Ok(Some(WaitingMessages { room, ids, filters, bytes_each }))
    }

    /// Delays the 250 of a message that waits for filters while the backlog is near its limit.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn slow_down_for_filters(&self) {
        let Some(queue) = &self.inbound.screen_queue else { return };
        let began = clock::now();
        loop {
            // The delay ends earlier where the backlog shrinks meanwhile.
            let left = queue.delay().saturating_sub(clock::now().saturating_duration_since(began));
            if left.is_zero() || self.context.stop.has_begun() {
                return;
            }
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    /// Returns the names of filters that are asked after the 250, those that failed before it first.
    fn filters_after(&self, judged: Option<&JudgedMessage>) -> Vec<String> {
        let mut filters: Vec<String> = judged.map(|judged| judged.later().to_vec()).unwrap_or_default();
        let live = self.context.live.load();
        if let Some(screen) = &live.screen {
            let after = screen.filters_after(&self.lane.listen.filters);
            filters.extend(after.filter(|name| !self.passed_filters.contains(name)).cloned());
        }
        filters
    }
}
