//! The attempt that a message makes: what *settle* needs of it.

use super::Attempt;
use crate::message::OutboundMessage;
use mail::PhaseTimes;
use observe::NextHop;
use std::time::Duration;

impl OutboundMessage {
    /// Returns the attempt on all recipients that were loaded.
    pub(crate) fn attempt<'a>(
        &'a self,
        next_hop: NextHop<'a>,
        mailer: &'a str,
        xdelay: Duration,
        passes_dsn: bool,
    ) -> Attempt<'a> {
        Attempt {
            envelope: &self.envelope,
            positions: &self.positions,
            content_bytes: self.content_bytes,
            recipients_left: self.recipients_left,
            next_hop,
            mailer,
            xdelay,
            phases: PhaseTimes::default(),
            passes_dsn,
            passes_by: false,
            is_try: true,
            is_told: false,
            is_final: false,
            name: None,
            owner: None,
        }
    }
}
