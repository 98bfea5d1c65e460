//! Frames of the milter protocol: a length of four octets (big endian), a command octet, data.
//!
//! [`PacketReader`] takes octets as they arrive and gives whole packets. It refuses a length over its limit before it
//! keeps an octet of the data, so that a server of another protocol at the filter's address costs nothing.

use super::MilterError;

/// A packet of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The reply octet (`SMFIR_*`), or `O` in the negotiation.
    pub command: u8,
    /// Octets behind it.
    pub data: Vec<u8>,
}

/// Appends one packet to `out`.
///
/// # Panics
/// If `parts` together have 4 GiB or more; callers bound them by the negotiated size.
pub fn write_packet(out: &mut Vec<u8>, command: u8, parts: &[&[u8]]) {
    let bytes = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    let bytes = u32::try_from(bytes).expect("a packet is bounded by the negotiated size");
    out.extend_from_slice(&bytes.to_be_bytes());
    out.push(command);
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Cuts what a filter sends into packets.
#[derive(Debug)]
pub struct PacketReader {
    buffer: Vec<u8>,
    consumed: usize,
    bytes_max: usize,
}

impl PacketReader {
    /// Makes a reader that refuses packets with more than `bytes_max` octets of command and data.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), consumed: 0, bytes_max }
    }

    /// Raises the limit to what the negotiation allowed; it never falls below what was set before.
    pub fn allow(&mut self, bytes_max: usize) {
        self.bytes_max = self.bytes_max.max(bytes_max);
    }

    /// Takes octets that the filter sent.
    pub fn push(&mut self, octets: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(octets);
    }

    /// Gives the next whole packet, or `None` until more octets arrive.
    ///
    /// # Errors
    /// A length of zero or over the limit: [`MilterError::NoMilter`]. The connection is of no use afterwards.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, MilterError> {
        let rest = self.buffer.get(self.consumed..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let bytes = u32::from_be_bytes(*length) as usize;
        if bytes == 0 || bytes > self.bytes_max {
            return Err(MilterError::NoMilter { length: *length, bytes_max: self.bytes_max });
        }
        let Some([command, data @ ..]) = rest.get(..bytes) else { return Ok(None) };
        let packet = Packet { command: *command, data: data.to_vec() };
        self.consumed += 4 + bytes;
        Ok(Some(packet))
    }

    /// Whether octets are left that belong to no packet that was given: between two messages, a stale reply.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.consumed < self.buffer.len()
    }
}

/// Splits data into strings that each end with NUL.
///
/// # Errors
/// The last string has no NUL: [`MilterError::Malformed`] for the packet `command`.
pub(super) fn strings(command: u8, data: &[u8]) -> Result<Vec<&[u8]>, MilterError> {
    let Some((0, data)) = data.split_last() else {
        return Err(MilterError::Malformed { command, what: "a string without its NUL" });
    };
    Ok(data.split(|&octet| octet == 0).collect())
}

/// Takes a number of four octets, and gives it with the octets behind it.
///
/// # Errors
/// Fewer than four octets: [`MilterError::Malformed`] for the packet `command`.
pub(super) fn number(command: u8, data: &[u8]) -> Result<(u32, &[u8]), MilterError> {
    data.split_first_chunk::<4>()
        .map(|(number, rest)| (u32::from_be_bytes(*number), rest))
        .ok_or(MilterError::Malformed { command, what: "a number of fewer than four octets" })
}
