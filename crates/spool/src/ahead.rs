//! Fills segments ahead: a storm on a fresh spool finds room that is written already.
//!
//! The first write to new blocks costs the file system's metadata, so a segment is filled with zeroes before its use.
//! While mail comes, that work takes the device's time from the mail. So the janitor does it when no batch was written
//! for a while: at the start of a fresh spool, and after a storm that left few segments free.
//!
//! Cost: one `statvfs` and one segment a step, never two steps without a pause, so a storm that begins meanwhile waits
//! for one segment at most. A crash leaves at most one `new-` file, which the next start removes. The reserve is part
//! of the pool as any free segment is: nothing of what [`Pressure`](crate::Pressure) says depends on it.

use crate::shard::{Shard, lock};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The pause before each segment.
const PAUSE: Duration = Duration::from_millis(100);
/// The reserve takes at most this part of the room that the limit, or the file system, has.
const PART: u64 = 8;
/// The device is left alone for so long after it refused a segment, in microseconds.
const REFUSED_US: u64 = 60_000_000;

/// Decides when a segment is filled ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Batches of the shard at the last step.
    batches: u64,
    /// No segment is filled before this moment of the disk's clock.
    after_us: u64,
}

impl Ahead {
    /// Returns the pause before the next step, if segments are missing.
    pub(crate) fn pause(&self, shard: &Shard) -> Option<Duration> {
        let is_due = shard.disk.now_us() >= self.after_us;
        let is_short = shard.free.load(Ordering::Relaxed) < shard.config.ready_segments();
        let is_possible = shard.growable.load(Ordering::Relaxed) > 0 && !shard.is_read_only();
        (is_short && is_due && is_possible).then_some(PAUSE)
    }

    /// Returns whether the step fills a segment: none is filled after a batch was written since the last step.
    pub(crate) fn may_fill(&mut self, shard: &Shard) -> bool {
        let batches = shard.counters.batches.load(Ordering::Relaxed);
        let is_quiet = std::mem::replace(&mut self.batches, batches) == batches;
        is_quiet && has_room(shard)
    }

    /// Notes that the device refused a segment. The spool has enough, so this is no event: growth on demand reports
    /// why it is refused.
    pub(crate) fn refused(&mut self, shard: &Shard) {
        self.after_us = shard.disk.now_us() + REFUSED_US;
    }
}

/// Whether one more segment leaves most of the file system to others.
fn has_room(shard: &Shard) -> bool {
    let free = lock(&shard.book).segments.free_count() as u64;
    if free >= shard.config.ready_segments() {
        return false;
    }
    let bytes = u64::from(shard.identity.segment_bytes);
    let room = shard.disk.space(&shard.directory).map_or(0, |space| space.free.saturating_sub(shard.config.free_min));
    (free + 1) * bytes <= (room + free * bytes) / PART / u64::from(shard.config.shards.max(1))
}

impl crate::Config {
    /// Free segments that each shard keeps for a storm.
    pub(crate) fn ready_segments(&self) -> u64 {
        let bytes = self.ready_bytes.min(self.size_max / PART);
        bytes / u64::from(self.shards.max(1)) / u64::from(self.segment_bytes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Op, SimDisk};
    use crate::janitor::Janitor;
    use crate::{Config, Pressure, Spool, Stepper};
    use std::sync::Arc;

    const SEGMENT: u64 = 1 << 20;

    fn fresh(disk: &SimDisk, ready_bytes: u64, shards: u16) -> (Spool, Stepper) {
        let config = Config {
            segment_bytes: 1 << 20,
            size_max: 256 * SEGMENT,
            free_min: 0,
            ready_bytes,
            shards,
            ..Config::new("/spool")
        };
        let (spool, stepper, _) = Spool::open_stepped(config, Arc::new(disk.clone())).expect("a spool");
        (spool, stepper)
    }

    fn free(janitor: &Janitor) -> usize {
        lock(&janitor.shard.book).segments.free_count()
    }

    /// Steps until nothing is missing, or nothing more can be done.
    fn settle(janitor: &mut Janitor) -> usize {
        let mut steps = 0;
        while janitor.ahead.pause(&janitor.shard).is_some() && janitor.fill_ahead() {
            steps += 1;
            assert!(steps < 1_000, "it goes on for ever");
        }
        steps
    }

    #[test]
    fn a_fresh_spool_fills_its_reserve_and_stops() {
        for (shards, each) in [(1, 20), (2, 10)] {
            let disk = SimDisk::new(1);
            disk.set_free(1 << 40);
            let (_spool, mut stepper) = fresh(&disk, 20 * SEGMENT, shards);
            for janitor in &mut stepper.janitors {
                assert!(settle(janitor) > 0);
                assert_eq!((free(janitor), janitor.ahead.pause(&janitor.shard)), (each, None));
                // Nothing is missing: the next step does nothing either.
                assert!(!janitor.fill_ahead());
            }
        }
    }

    #[test]
    fn the_reserve_is_bounded() {
        // By the limit of the spool: an eighth of 256 segments.
        let disk = SimDisk::new(1);
        disk.set_free(1 << 40);
        let (_spool, mut stepper) = fresh(&disk, u64::MAX, 1);
        let janitor = stepper.janitors.first_mut().expect("a shard");
        settle(janitor);
        assert_eq!(free(janitor), 32);
        // By the file system, which keeps seven eighths.
        let disk = SimDisk::new(1);
        disk.set_free(80 * SEGMENT);
        let (spool, mut stepper) = fresh(&disk, 32 * SEGMENT, 1);
        let janitor = stepper.janitors.first_mut().expect("a shard");
        let before = free(janitor);
        disk.set_free(80 * SEGMENT);
        settle(janitor);
        assert!(free(janitor) > before && free(janitor) <= 12, "{}", free(janitor));
        assert_eq!(spool.pressure(), Pressure::None);
        // Nothing is filled where the key says so.
        let disk = SimDisk::new(1);
        disk.set_free(1 << 40);
        let (_spool, mut stepper) = fresh(&disk, 0, 1);
        let janitor = stepper.janitors.first_mut().expect("a shard");
        assert_eq!((janitor.ahead.pause(&janitor.shard), janitor.fill_ahead()), (None, false));
    }

    #[test]
    fn mail_goes_before_it() {
        let disk = SimDisk::new(1);
        disk.set_free(1 << 40);
        let (_spool, mut stepper) = fresh(&disk, 20 * SEGMENT, 1);
        let janitor = stepper.janitors.first_mut().expect("a shard");
        assert!(janitor.fill_ahead());
        crate::shard::count(&janitor.shard.counters.batches, 1);
        assert!(!janitor.fill_ahead(), "a batch was written");
        assert!(janitor.fill_ahead(), "none was written since");
    }

    #[test]
    fn a_device_that_refuses_is_left_alone() {
        let disk = SimDisk::new(1);
        disk.set_free(1 << 40);
        let (spool, mut stepper) = fresh(&disk, 20 * SEGMENT, 1);
        let janitor = stepper.janitors.first_mut().expect("a shard");
        disk.fail(Op::Name, 0);
        assert!(!janitor.fill_ahead());
        assert_eq!((janitor.ahead.pause(&janitor.shard), spool.pressure()), (None, Pressure::None));
        disk.advance(REFUSED_US);
        assert!(janitor.ahead.pause(&janitor.shard).is_some() && janitor.fill_ahead());
    }
}
