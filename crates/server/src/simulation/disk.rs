//! A spool on a simulated disk, for tests of other modules.

use spool::Spool;
use spool::disk::sim::SimDisk;
use std::sync::Arc;

/// Makes a small spool on a disk of its own; `change` adapts its settings.
pub(crate) fn spool_with(change: impl FnOnce(&mut spool::Config)) -> Arc<Spool> {
    spool_on(&SimDisk::new(1), change)
}

/// Does the same on this disk.
pub(crate) fn spool_on(disk: &SimDisk, change: impl FnOnce(&mut spool::Config)) -> Arc<Spool> {
    let mut config = spool::Config::new("/spool");
    (config.segment_bytes, config.size_max, config.free_min) = (1 << 20, 32 << 20, 0);
    change(&mut config);
    Arc::new(Spool::open(config, Arc::new(disk.clone())).unwrap().0)
}
