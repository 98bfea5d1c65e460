//! The state of a scan between two pages, and what one page calls for.

use std::time::Duration;

use mail::QueueId;

use crate::job::{Class, Overdue, QueueEntry};
use crate::part::NoticeState;
use crate::settings::{NOTICE_RETRY, PART_MAX};
use crate::suspect_queue::{Rank, SuspectQueue};

/// What a scan may take, as destination and site are now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanRoom {
    /// Nothing can be tried before: the hosts are not known, or do not answer.
    pub(crate) down: Option<Duration>,
    /// Jobs from walks that may be in memory, and that are.
    pub(crate) limit: usize,
    pub(crate) used: usize,
    /// From when on it may look for work; `None`: something else is to happen before.
    pub(crate) work_from: Option<Duration>,
    /// That is that jobs leave memory.
    pub(crate) is_full: bool,
    /// `Overdue` actions there may be more.
    pub(crate) notices: usize,
}

/// A scan in progress.
#[derive(Debug, Default)]
pub(crate) struct QueueScan {
    /// The last entry that was seen.
    pub(crate) last: Option<QueueEntry>,
    /// The last entry that was seen and left as it is. It stays in the list when all after it have gone.
    pub(crate) anchor: Option<QueueEntry>,
    pub(crate) entries_read: u32,
    /// It looks for one job to try, and not at the age of what it passes, which is known.
    pub(crate) is_probe: bool,
    /// It looks at the age of what it passes, and takes nothing.
    pub(crate) is_notice_only: bool,
    /// It is for work: `look_at` stands for all that it has not read.
    pub(crate) keeps_scan_at: bool,
    /// That is so for this time as well: the scan has taken it, and needs it no more at its end.
    pub(crate) kept_scan_at: Option<Duration>,
    /// When the first of the entries that were left is to be looked at.
    pub(crate) next: Option<Duration>,
    /// What is tried if nothing better is found.
    pub(crate) suspect: Option<Box<SuspectProbe>>,
}

/// Recipients that were lost before without an answer.
#[derive(Debug)]
pub(crate) struct SuspectProbe {
    pub(crate) rank: Rank,
    pub(crate) message: QueueId,
    pub(crate) recipients: Vec<u32>,
    pub(crate) class: Class,
    pub(crate) notice: NoticeState,
}

/// What is to be done with the entries of one message.
#[derive(Default)]
pub(crate) struct MessageActions {
    /// Those together that have waited alike.
    pub(crate) due: Vec<(NoticeState, Vec<u32>)>,
    pub(crate) class: Class,
    pub(crate) give_up: Vec<u32>,
    pub(crate) warn: Vec<u32>,
    pub(crate) ask_deadline: Vec<u32>,
    pub(crate) owed: Vec<u32>,
    /// Those in line, or in flight, whose time is not known.
    pub(crate) without_deadline: Vec<u32>,
}

impl MessageActions {
    /// Jobs that are full, or closed by those of others, if one more recipient comes that has waited so.
    pub(crate) fn parts_with(&self, notice: &NoticeState) -> usize {
        let full: usize = self.due.iter().map(|(_, recipients)| recipients.len() / PART_MAX).sum();
        let is_there = self.due.iter().any(|(other, _)| other == notice);
        full + self.due.len() - usize::from(is_there)
    }

    pub(crate) fn add_due(&mut self, notice: NoticeState, recipient: u32) {
        match self.due.iter_mut().find(|(other, _)| *other == notice) {
            Some((_, recipients)) => recipients.push(recipient),
            None => self.due.push((notice, vec![recipient])),
        }
    }

    /// Has the sender of a recipient told, if there is room for that; else it is looked at again.
    pub(crate) fn add_notice(
        &mut self,
        kind: Overdue,
        recipient: u32,
        scan: &mut QueueScan,
        room: &ScanRoom,
        now: Duration,
    ) {
        match kind {
            _ if room.notices == 0 => scan.check_by(now + NOTICE_RETRY),
            Overdue::GiveUp => self.give_up.push(recipient),
            Overdue::Warn => self.warn.push(recipient),
            Overdue::ByTime => self.ask_deadline.push(recipient),
            Overdue::Owed => self.owed.push(recipient),
        }
    }
}

impl QueueScan {
    /// Leaves those that were lost before to a time at which there is nothing else, but for the first of them. Says whether there
    /// were some.
    pub(crate) fn set_suspects_aside(
        &mut self,
        message: QueueId,
        actions_for: &mut MessageActions,
        suspects: &SuspectQueue,
    ) -> bool {
        let (class, mut has_some) = (actions_for.class, false);
        for (notice, recipients) in &mut actions_for.due {
            recipients.retain(|recipient| {
                let Some(rank) = suspects.rank(message, *recipient) else { return true };
                has_some = true;
                let notice = *notice;
                match &mut self.suspect {
                    Some(suspect) if suspect.rank == rank => {
                        suspect.recipients.push(*recipient);
                        suspect.notice.warned |= notice.warned;
                    }
                    Some(suspect) if suspect.rank < rank => {}
                    suspect => {
                        *suspect =
                            Some(Box::new(SuspectProbe { rank, message, recipients: vec![*recipient], class, notice }))
                    }
                }
                false
            });
        }
        has_some
    }

    /// Has an entry that was left looked at by then.
    pub(crate) fn check_by(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}
