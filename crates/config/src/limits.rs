//! Limits of the program that rules between keys and ranges of keys name.

/// Octets of the smallest segment that takes the chunks and the inline content of the server: a frame may fill a
/// quarter of it, and a chunk half of that.
pub const SEGMENT_BYTES_MIN: u32 = 1 << 20;

/// Hosts of a domain that are tried.
pub const DNS_HOSTS_MAX: usize = 16;

/// Addresses of all hosts of a domain together that are tried.
pub const DNS_ADDRESSES_MAX: usize = 32;
