//! A spool for tests of queue commands.

use spool::Spool;
use spool::disk::sim::SimDisk;
use std::sync::Arc;

/// Opens a small spool on a simulated disk; `change` sets what a test needs.
pub(super) fn spool_with(change: impl FnOnce(&mut spool::Config)) -> Arc<Spool> {
    let mut config = spool::Config::new("/spool");
    (config.segment_bytes, config.size_max, config.free_min) = (1 << 20, 32 << 20, 0);
    change(&mut config);
    Arc::new(Spool::open(config, Arc::new(SimDisk::new(1))).unwrap().0)
}
