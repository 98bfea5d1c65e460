//! The events of the cluster in words.

use cluster::Report;
use observe::Severity;

/// The text of an event; `None` for one that has a line of its own.
pub(super) fn text(report: &Report) -> Option<(Severity, String)> {
    Some(match report {
        Report::HolderStalled { stream, is_full: true } => (
            Severity::Warning,
            format!("{} has no room for copies (max_file_store): new mail goes to other nodes", stream.holder),
        ),
        Report::HolderStalled { stream, is_full: false } => {
            (Severity::Warning, format!("{} does not take copies in time: new mail goes to other nodes", stream.holder))
        }
        Report::Fenced { stream, by, .. } => (
            Severity::Warning,
            format!("{by} adopts the mail of this node that has its copies at {}: it waits here", stream.holder),
        ),
        Report::CopiesLost { stream, why } => {
            (Severity::Error, format!("copies at {} are lost: {why}; they are made anew", stream.holder))
        }
        // A stream without mail is given up, and begun again when its holder is back.
        Report::TakenBack { messages: 0, .. } => return None,
        Report::TakenBack { stream, messages } => (
            Severity::Warning,
            format!("{messages} messages whose copies are at {} are copied elsewhere", stream.holder),
        ),
        Report::Hostage { stream, why } => {
            (Severity::Warning, format!("mail of {} with copies at {} waits: {why}", stream.owner, stream.holder))
        }
        Report::GivenUp { stream, messages } => (
            Severity::Warning,
            format!("{messages} messages were adopted by way of {} and leave this queue", stream.holder),
        ),
        Report::AdoptionBegan { stream, wait } => (
            Severity::Warning,
            format!(
                "{} is gone: its mail with copies at {} is adopted in {} ms",
                stream.owner,
                stream.holder,
                wait.as_millis()
            ),
        ),
        // The message has a line of its own.
        Report::PossibleDuplicate { .. } => return None,
        Report::AdoptionUnknown { id } => (
            Severity::Warning,
            format!("{id}: the list of adopted mail is lost; it is delivered here, duplicate=possible"),
        ),
        Report::ResultUnknown { id } => (
            Severity::Warning,
            format!(
                "{id}: its result may have been among copies that were adopted; it is delivered here, duplicate=possible"
            ),
        ),
        Report::BlockPassedOver { stream, sequence, why } => (
            Severity::Error,
            format!(
                "block {sequence} of the copies of {} at {} cannot be read: {why}; its mail waits for {}",
                stream.owner, stream.holder, stream.owner
            ),
        ),
        Report::AdoptionEnded { stream, messages, is_handed_back } => {
            let rest = if *is_handed_back { "; the rest went back to it" } else { "" };
            (Severity::Warning, format!("{messages} messages of {} are adopted{rest}", stream.owner))
        }
    })
}
