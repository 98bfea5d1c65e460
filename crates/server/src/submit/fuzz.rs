//! A body for fuzzing: any bytes as the beginning of a submitted file.

use super::{HEAD_BYTES_MAX, PREAMBLE_BYTES, RECIPIENTS_MAX, Submission};

/// Reads preamble and head as `pickup` does. Asserts no panic, that limits hold, and that what was read is the same
/// when it is written and read again.
///
/// # Panics
/// When one of these does not hold.
pub fn submitted_head(data: &[u8]) {
    let Some((preamble, rest)) = data.split_first_chunk::<PREAMBLE_BYTES>() else { return };
    let Ok(bytes) = Submission::head_bytes(preamble) else { return };
    assert!(bytes <= HEAD_BYTES_MAX, "{bytes}");
    let Some(head) = rest.get(..bytes) else { return };
    match Submission::decode(preamble, head) {
        Ok(submission) => {
            assert!(submission.recipients.len() <= RECIPIENTS_MAX as usize);
            let Ok(again) = submission.encode() else { return };
            let (preamble, head) = again.split_first_chunk().expect("a preamble");
            assert_eq!(Submission::decode(preamble, head).as_ref(), Ok(&submission));
        }
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
    }
}
