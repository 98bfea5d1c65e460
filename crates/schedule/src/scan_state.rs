//! The state of a scan between two pages, and the work that one page calls for.

use std::time::Duration;

use mail::QueueId;

use crate::job::{Class, Overdue, QueueEntry};
use crate::part::NoticeState;
use crate::settings::{NOTICE_RETRY, PART_MAX};
use crate::suspect_queue::{Rank, SuspectQueue};

/// The room of a scan now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanRoom {
    /// Nothing can be tried before this time: the hosts are unknown or do not answer.
    pub(crate) down: Option<Duration>,
    /// The site is down only by a report of another machine: nothing expires before an attempt.
    pub(crate) is_only_reported: bool,
    /// Limit of jobs from scans in memory, and their present number.
    pub(crate) limit: usize,
    pub(crate) used: usize,
    /// When it may look for work; `None`: only after an event.
    pub(crate) work_from: Option<Duration>,
    /// That event is that jobs leave memory.
    pub(crate) is_full: bool,
    /// How many more `Overdue` actions are allowed.
    pub(crate) notices: usize,
}

/// A scan in progress.
#[derive(Debug, Default)]
pub(crate) struct QueueScan {
    /// The last entry that was read.
    pub(crate) last: Option<QueueEntry>,
    /// The last entry that was read and left in the list. It remains when the active ones before it are gone.
    pub(crate) anchor: Option<QueueEntry>,
    pub(crate) entries_read: u32,
    /// It looks for the probe. It skips the ages of entries, which are known.
    pub(crate) is_probe: bool,
    /// It only checks ages, and takes nothing.
    pub(crate) is_notice_only: bool,
    /// It is for work: `scan_at` covers all entries that it has not read.
    pub(crate) keeps_scan_at: bool,
    /// The value of `scan_at` at its start, which covers the entries until it ends.
    pub(crate) kept_scan_at: Option<Duration>,
    /// When the first of the entries that it left needs attention.
    pub(crate) next: Option<Duration>,
    /// The probe if nothing better is found.
    pub(crate) suspect: Option<Box<SuspectProbe>>,
}

/// Marked recipients that may become the probe.
#[derive(Debug)]
pub(crate) struct SuspectProbe {
    pub(crate) rank: Rank,
    pub(crate) message: QueueId,
    pub(crate) recipients: Vec<u32>,
    pub(crate) class: Class,
    pub(crate) notice: NoticeState,
}

/// The actions for the entries of one message.
#[derive(Default)]
pub(crate) struct MessageActions {
    /// Due recipients, grouped by equal notice state.
    pub(crate) due: Vec<(NoticeState, Vec<u32>)>,
    pub(crate) class: Class,
    pub(crate) give_up: Vec<u32>,
    pub(crate) warn: Vec<u32>,
    pub(crate) ask_deadline: Vec<u32>,
    pub(crate) owed: Vec<u32>,
    /// Active recipients with an unknown deliver-by time.
    pub(crate) without_deadline: Vec<u32>,
}

impl MessageActions {
    /// Returns how many jobs are complete if one more recipient with this notice state is added.
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

    /// Adds a notice for a recipient, or has it checked again if there is no room.
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
    /// Removes marked recipients from the due ones, and keeps the first of them as a possible probe. Returns whether
    /// there were any.
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

    /// Has an entry that was left checked at `at` or earlier.
    pub(crate) fn check_by(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}
