//! How many files and sockets the process may have open.
//!
//! Each connection takes one, and the spool, the log and look-ups take some. Called once at start, before listening: a
//! soft limit of 1,024, which most systems begin with, would turn clients away long before `accept.connections_max`
//! does.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors set aside for everything that is no connection: segments, log, control socket, look-ups, programs.
pub const RESERVED: u64 = 100;

/// Raises the soft limit to the hard one and returns what holds now; `u64::MAX` where there is no limit.
///
/// A system that refuses leaves the limit as it was; [`open_files_warning`] then says what to do.
#[must_use]
pub fn raise_open_files() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // The limit that is read back counts, whether this call succeeded or not.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap_or(());
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns a warning when `limit` does not suffice for the connections of clients and to next hops, and beside these to
/// silent ones.
#[must_use]
pub fn open_files_warning(limit: u64, accept_max: u32, [delivery_max, silent_max]: [u32; 2]) -> Option<String> {
    let delivery = u64::from(delivery_max) + u64::from(silent_max);
    let wanted = u64::from(accept_max) + delivery + RESERVED;
    (limit < wanted).then(|| {
        let room = limit.saturating_sub(RESERVED).saturating_sub(delivery);
        format!(
            "{limit} open files are allowed, accept.connections_max = {accept_max}, delivery.connections_max = {delivery_max} \
             and delivery.connections_silent_max = {silent_max} need {wanted}; set LimitNOFILE={wanted} in the service unit \
             (or \"ulimit -Hn {wanted}\" before the start), or accept.connections_max = {room}, or less for the other two"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_open_files(), hard);
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), hard, "the hard limit stays");
    }

    #[test]
    fn the_warning_names_numbers_and_the_next_step() {
        assert_eq!(open_files_warning(1300, 1000, [150, 50]), None);
        assert_eq!(open_files_warning(u64::MAX, u32::MAX, [u32::MAX; 2]), None);
        let warning = open_files_warning(1299, 1000, [150, 50]).unwrap();
        assert!(warning.contains("LimitNOFILE=1300") && warning.contains("connections_max = 999"), "{warning}");
        assert!(open_files_warning(10, 1000, [150, 50]).unwrap().contains("connections_max = 0, or less"));
    }
}
