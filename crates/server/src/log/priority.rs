//! The priority of a message in log lines.

/// Returns the priority by sendmail's formula: class 0, 30,000 for a recipient, 90,000 for an attempt.
pub(crate) fn priority(content_bytes: u64, recipients: usize, attempts: u8) -> i64 {
    let size = i64::try_from(content_bytes).unwrap_or(i64::MAX);
    let recipients = i64::try_from(recipients).unwrap_or(i64::MAX);
    size.saturating_add(recipients.saturating_mul(30_000)).saturating_add(i64::from(attempts) * 90_000)
}
