//! The protocol of clamd: commands that begin with `z` and replies that end with NUL.
//!
//! `zINSTREAM` is followed by chunks, each behind its length in four octets (big endian), and by a length of zero.
//! clamd answers once. When the stream exceeds its `StreamMaxLength`, it answers at once and closes the connection: a
//! driver whose write fails reads the pending reply before it calls that a failure.
//!
//! Behind `zIDSESSION` a connection takes any number of commands; each reply begins with the number of its command and
//! a colon. An error closes the connection all the same.

use super::{ScanAction, ScanResult, ScannerError, clean};

/// Asks whether clamd is there; the reply is for [`read_pong`].
pub const PING: &[u8] = b"zPING\0";
/// Asks for the version of clamd and its signatures; the reply is for [`read_version`].
pub const VERSION: &[u8] = b"zVERSION\0";
/// Begins a stream; chunks follow.
pub const INSTREAM: &[u8] = b"zINSTREAM\0";
/// Begins a session of several commands.
pub const IDSESSION: &[u8] = b"zIDSESSION\0";
/// Ends a stream; the reply is for [`read_scan`].
pub const STREAM_END: &[u8] = &[0; 4];
/// Octets of a chunk that [`chunk_head`] takes.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The name of the protocol in errors.
const PROTOCOL: &str = "clamd";
/// Octets of a reply.
const REPLY_BYTES_MAX: usize = 4_096;

/// Returns the octets that go ahead of a chunk of `bytes` octets.
///
/// # Panics
/// If `bytes` is zero, which would end the stream, or over [`CHUNK_BYTES_MAX`].
#[must_use]
pub fn chunk_head(bytes: usize) -> [u8; 4] {
    assert!((1..=CHUNK_BYTES_MAX).contains(&bytes), "a chunk has 1 to {CHUNK_BYTES_MAX} octets, not {bytes}");
    u32::try_from(bytes).expect("the limit is less").to_be_bytes()
}

/// Returns the octets that begin a stream with a chunk of so many octets. clamd refuses a chunk over its
/// `StreamMaxLength` at once and says nothing about another, so the octets themselves need not follow.
#[must_use]
pub fn size_question(bytes: u32) -> Vec<u8> {
    [INSTREAM, &bytes.to_be_bytes()].concat()
}

/// Collects the octets of a reply.
#[derive(Debug, Default)]
pub struct ClamdReplyReader {
    buffer: Vec<u8>,
}

impl ClamdReplyReader {
    /// Takes octets, and returns the reply without its end when it is whole. `is_end` says that the connection ended.
    ///
    /// # Errors
    /// The reply is over 4,096 octets, or the connection ended within it.
    pub fn push(&mut self, octets: &[u8], is_end: bool) -> Result<Option<String>, ScannerError> {
        self.buffer.extend_from_slice(octets);
        // A server of another protocol ends its lines with LF, and does not wait for more.
        let end = self.buffer.iter().position(|&octet| octet == 0 || octet == b'\n');
        match end {
            Some(end) if end <= REPLY_BYTES_MAX => {
                let reply = self.buffer.get(..end).unwrap_or_default();
                Ok(Some(String::from_utf8_lossy(reply).trim_end_matches('\r').to_owned()))
            }
            None if self.buffer.len() <= REPLY_BYTES_MAX => {
                if is_end {
                    return Err(ScannerError::Incomplete { protocol: PROTOCOL });
                }
                Ok(None)
            }
            _ => Err(ScannerError::TooLong { protocol: PROTOCOL, limit: "reply_bytes_max", value: REPLY_BYTES_MAX }),
        }
    }
}

/// Reads the reply to [`PING`].
///
/// # Errors
/// Another protocol answers.
pub fn read_pong(reply: &str) -> Result<(), ScannerError> {
    if reply == "PONG" { Ok(()) } else { Err(ScannerError::other_protocol(PROTOCOL, reply.as_bytes())) }
}

/// Reads the reply to [`VERSION`]: `ClamAV 1.4.3/27400/Fri Oct …`.
///
/// # Errors
/// Another protocol answers.
pub fn read_version(reply: &str) -> Result<String, ScannerError> {
    if reply.starts_with("ClamAV ") {
        Ok(clean(reply, 200))
    } else {
        Err(ScannerError::other_protocol(PROTOCOL, reply.as_bytes()))
    }
}

/// Returns a reply of a session without the number of its command; a reply without one as it is.
#[must_use]
pub fn without_number(reply: &str) -> &str {
    match reply.split_once(": ") {
        Some((number, rest)) if !number.is_empty() && number.bytes().all(|octet| octet.is_ascii_digit()) => rest,
        _ => reply,
    }
}

/// Reads the reply to a stream: `stream: OK`, `stream: NAME FOUND`, `TEXT ERROR`.
///
/// A stream over the limit, and the name that `AlertExceedsMax` gives to content over a limit of the engine, are
/// [`ScanAction::TooLarge`]; any other error is [`ScanAction::Failed`].
///
/// # Errors
/// Another protocol answers.
pub fn read_scan(reply: &str) -> Result<ScanResult, ScannerError> {
    if let Some(text) = reply.strip_suffix("ERROR").map(|text| text.trim_end_matches(['.', ' '])) {
        let text = clean(text.strip_prefix("stream: ").unwrap_or(text), 200);
        return Ok(ScanResult::of(if text.contains("size limit exceeded") {
            ScanAction::TooLarge(text)
        } else {
            ScanAction::Failed(text)
        }));
    }
    let Some(word) = reply.strip_prefix("stream: ") else {
        // clamd has messages without a form for what it cannot do now.
        return match reply {
            "COMMAND READ TIMED OUT" => Ok(ScanResult::of(ScanAction::Failed(reply.to_owned()))),
            _ => Err(ScannerError::other_protocol(PROTOCOL, reply.as_bytes())),
        };
    };
    if word == "OK" {
        return Ok(ScanResult::of(ScanAction::Pass));
    }
    match word.strip_suffix(" FOUND").map(|name| clean(name, 200)) {
        Some(name) if name.starts_with("Heuristics.Limits.Exceeded") => Ok(ScanResult::of(ScanAction::TooLarge(name))),
        Some(name) if !name.is_empty() => {
            Ok(ScanResult { threat: Some(name), ..ScanResult::of(ScanAction::Reject(None)) })
        }
        _ => Err(ScannerError::Malformed { protocol: PROTOCOL, what: "neither OK, FOUND nor ERROR" }),
    }
}
