//! Asks the filters of a message that waits, and logs what they say.

use super::ScreenQueue;
use super::waiting::WaitingMessage;
use crate::screen::filters::{FilterFacts, FilterNote, ReplayAnswer, replay};
use mail::{Client, QueueId, ReversePath};
use observe::Event;

/// Asks all filters of a message, and applies their changes to its content.
///
/// # Cancel safety
/// Yes: nothing is stored.
pub(super) async fn ask_filters(queue: &ScreenQueue, message: &mut WaitingMessage) -> ReplayAnswer {
    if let Some(name) = &message.missing {
        let error = format!(
            "there is no [[filter]] with name \"{name}\" any more; add it again, or release the message with mailrace \
             queue release --unscreened"
        );
        return ReplayAnswer::Later { filter: name.clone(), error, is_failure: true };
    }
    let facts = facts(queue, message);
    let has_helo = message.envelope.received.helo.is_some();
    let (answer, notes) =
        replay(&message.filters, facts, has_helo, &mut message.content, &queue.context.reinjections).await;
    report(queue, message.envelope.id, &notes);
    answer
}

fn report(queue: &ScreenQueue, id: QueueId, notes: &[FilterNote]) {
    for FilterNote { filter, address, stage, elapsed, verdict, words } in notes {
        let action = format!("{words} (after-250 {stage}, {:.3} s)", elapsed.as_secs_f64());
        queue.context.record(&Event::Screened {
            id,
            verdict: *verdict,
            by: filter,
            place: address,
            to: "",
            action: &action,
        });
    }
}

/// Returns the filters that have let the message pass before its 250.
fn passed_before(queue: &ScreenQueue, message: &WaitingMessage) -> Vec<String> {
    let live = queue.context.live.load();
    let listener = live.config.listen.iter().find(|listen| listen.name == message.record.listener);
    let names = listener.map(|listen| listen.filters.as_slice()).unwrap_or_default();
    let after: Vec<&String> = live.screen.iter().flat_map(|screen| screen.filters_after(names)).collect();
    let is_before = |name: &&String| !after.contains(name) && !message.record.filters.contains(name);
    names.iter().filter(is_before).cloned().collect()
}

/// Returns the facts of the session that brought the message.
fn facts(queue: &ScreenQueue, message: &WaitingMessage) -> FilterFacts {
    let (envelope, record) = (&message.envelope, &message.record);
    let live = queue.context.live.load();
    let hostname = live.config.hostname.clone();
    FilterFacts {
        listener: record.listener.clone(),
        server: record.server,
        client: match envelope.received.client {
            Client::Network(address) => Some(address),
            Client::Process { .. } | Client::Internal => None,
        },
        client_name: record.client_name.clone(),
        helo: envelope.received.helo.as_ref().map_or_else(|| hostname.clone(), ToString::to_string),
        hostname,
        protocol: envelope.received.protocol.to_string(),
        tls: record.tls.clone(),
        certificate_subject: record.certificate_subject.clone(),
        certificate_issuer: record.certificate_issuer.clone(),
        user: record.user.clone(),
        auth_mechanism: record.auth_mechanism.clone(),
        queue_id: envelope.id.to_string(),
        sender: match &envelope.sender {
            ReversePath::Null => String::new(),
            ReversePath::Address(address) => address.to_string(),
        },
        sender_parameters: envelope.params.to_string().split_whitespace().map(str::to_owned).collect(),
        recipient: String::new(),
        recipients: envelope.recipients.iter().map(|one| one.address.to_string()).collect(),
        size: message.size,
        passed_filters: passed_before(queue, message),
        version: env!("CARGO_PKG_VERSION"),
        ..FilterFacts::default()
    }
}
