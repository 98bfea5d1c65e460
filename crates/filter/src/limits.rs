//! The limits of one scan. Reaching one ends that part of the work, and the message counts as not fully scanned.

/// How much of a message is read, each with a name that explanations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Parts of a message, embedded messages and multiparts included.
    pub parts_max: usize,
    /// Multiparts and embedded messages inside each other.
    pub depth_max: usize,
    /// Octets of one header section.
    pub header_bytes_max: usize,
    /// Fields of one header section.
    pub fields_max: usize,
    /// Octets of all parts together after transfer decoding.
    pub decoded_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            parts_max: 1_000,
            depth_max: 32,
            header_bytes_max: 256 << 10,
            fields_max: 1_000,
            decoded_bytes_max: 4 << 20,
        }
    }
}
