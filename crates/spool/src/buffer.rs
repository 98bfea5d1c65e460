//! Byte buffers whose start and capacity are multiples of a block, as direct input and output needs them.
//!
//! No `unsafe`: a vector is allocated one block too long and used from its first aligned byte. It never grows, so
//! the alignment found at the start holds for its life.

/// Unit of all spool input and output, in bytes: offsets, lengths and memory addresses are multiples of it.
///
/// 4 KiB is the logical block size at which O_DIRECT works on every device of the last decade.
pub const BLOCK: usize = 4096;

/// A zeroed buffer of fixed capacity, aligned to [`BLOCK`].
#[derive(Debug)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// Allocates `capacity` bytes, rounded up to whole blocks, all zero.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = round_up(capacity.max(1));
        let bytes = vec![0; capacity + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start, capacity }
    }

    /// A buffer of no capacity, without memory.
    #[must_use]
    pub const fn none() -> Self {
        Self { bytes: Vec::new(), start: 0, capacity: 0 }
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The whole buffer.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.capacity).unwrap_or_default()
    }

    /// The whole buffer, for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + self.capacity).unwrap_or_default()
    }
}

/// `n` rounded up to a multiple of [`BLOCK`].
#[must_use]
pub const fn round_up(n: usize) -> usize {
    n.next_multiple_of(BLOCK)
}

/// `n` rounded down to a multiple of [`BLOCK`].
#[must_use]
pub const fn round_down(n: usize) -> usize {
    n - n % BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zeroed() {
        for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 1 << 20] {
            let mut buf = AlignedBuf::new(size);
            assert_eq!(buf.capacity() % BLOCK, 0);
            assert!(buf.capacity() >= size);
            assert_eq!(buf.as_slice().as_ptr().align_offset(BLOCK), 0);
            assert!(buf.as_slice().iter().all(|&b| b == 0));
            buf.as_mut_slice().fill(7);
            assert!(buf.as_slice().iter().all(|&b| b == 7));
        }
    }
}
