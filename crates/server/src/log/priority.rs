//! The priority of a message in log lines.

/// Returns the priority by sendmail's formula: 30,000 for a recipient, 90,000 for an attempt, -1,800 for a step of the
/// class that `Precedence:` gives, which is 0 where only the stored message is known.
pub(crate) fn priority(content_bytes: u64, recipients: usize, attempts: u8, class: i32) -> i64 {
    let size = i64::try_from(content_bytes).unwrap_or(i64::MAX);
    let recipients = i64::try_from(recipients).unwrap_or(i64::MAX);
    let costs = size.saturating_add(recipients.saturating_mul(30_000)).saturating_add(i64::from(attempts) * 90_000);
    costs.saturating_sub(1_800 * i64::from(class))
}
