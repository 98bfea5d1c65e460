//! Compares the sizes of messages that the server accepts, shows to a filter, and that the filter takes.

use super::connection::{FilterConnection, FilterError};
use super::scanners;
use super::settings::FilterSettings;
use crate::config::{FilterKind, size_text};
use filter::scanner::clamd;
use filter::scanner::rspamd::{self, RspamdRequest};
use std::time::Duration;

/// How long a scanner may take to refuse a size. It says nothing about a size that it takes.
const SILENCE: Duration = Duration::from_millis(500);

/// Returns a sentence for each range of sizes that passes the filter, or fails, without a look at the message.
/// `message_max` is the largest message that the server accepts.
pub(super) async fn size_faults(settings: &FilterSettings, message_max: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let (name, shown_max) = (&settings.name, settings.size_max.min(message_max));
    if settings.kind == FilterKind::Policy {
        return faults;
    }
    if settings.size_max < message_max {
        let (shown, accepted) = (words(settings.size_max), words(message_max));
        faults.push(format!(
            "filter \"{name}\": messages over {shown} (filter.size_max) pass it unscanned, and {accepted} \
             (message.size_max) are accepted; raise filter.size_max, or lower message.size_max"
        ));
    }
    let limit = match settings.kind {
        FilterKind::Clamd => "StreamMaxLength of clamd.conf",
        FilterKind::Rspamd => "max_message of rspamd's options",
        _ => return faults,
    };
    // Without an answer, the size is taken: whether the scanner answers at all is asked before.
    if refuses(settings, shown_max).await.unwrap_or(false) {
        let shown = words(shown_max);
        let effect = match settings.kind {
            FilterKind::Clamd => "such messages pass it unscanned",
            _ => "filter.on_failure decides about such messages",
        };
        faults.push(format!(
            "filter \"{name}\": the scanner refuses a message of {shown}, and {effect}; raise {limit}, or lower \
             filter.size_max"
        ));
    }
    faults
}

fn words(bytes: u64) -> String {
    size_text(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Asks a scanner about a size without the message: both scanners refuse one over their limit at once.
async fn refuses(settings: &FilterSettings, bytes: u64) -> Result<bool, FilterError> {
    let mut connection = FilterConnection::open(settings).await?;
    let mut question = Vec::new();
    if settings.kind == FilterKind::Clamd {
        question = clamd::size_question(u32::try_from(bytes).unwrap_or(u32::MAX));
    } else {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        rspamd::write_request(&scanners::host(settings), &RspamdRequest::default(), length, false, &mut question);
    }
    connection.write("ping", &question).await?;
    let Ok(answer) = tokio::time::timeout(SILENCE, connection.read("ping")).await else { return Ok(false) };
    let answer = answer?;
    Ok(settings.kind == FilterKind::Rspamd || String::from_utf8_lossy(&answer).contains("size limit exceeded"))
}
