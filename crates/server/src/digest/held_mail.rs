//! Mail in quarantine for which its recipient decides, and the facts about it that he is shown. All of it blocks on the
//! disk.

use filter::header_text;
use mail::header::{HeaderSection, LineEnd};
use mail::{Address, AddressKey, QueueId};
use operator::http::HeldFacts;
use spool::envelope::{decode_head, decode_recipient};
use spool::{HoldKind, Spool, Status, Store as _};
use std::collections::BTreeMap;

/// The beginning of the reason of a hold about which the recipient decides.
const FOR_RECIPIENT: &str = "for the recipient";
/// Characters of a header field that are shown.
const SHOWN_CHARACTERS: usize = 200;

/// A recipient of a message that is held for him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldMessage {
    pub(super) id: QueueId,
    pub(super) position: u32,
    /// The end of its time in quarantine, in seconds since 1970; 0: it has none.
    pub(super) ends: u32,
}

/// A recipient and all mail that is held for him, the newest first.
#[derive(Clone, Debug)]
pub(super) struct HeldRecipient {
    pub(super) address: Address,
    pub(super) held: Vec<HeldMessage>,
}

/// A message that is held, as its recipient is shown it.
#[derive(Clone, Debug)]
pub(super) struct HeldMail {
    pub(super) message: HeldMessage,
    pub(super) facts: HeldFacts,
}

/// Finds all held mail by recipient, of these domains only if there are some.
pub(super) fn held_by_recipient(spool: &Spool, domains: &[String], now_s: u64) -> Vec<HeldRecipient> {
    let mut found: BTreeMap<AddressKey, HeldRecipient> = BTreeMap::new();
    let mut ids = spool.messages();
    ids.sort_unstable();
    for id in ids.into_iter().rev() {
        let held: Vec<HeldMessage> = held_of(spool, id).into_iter().filter(|one| is_in_time(*one, now_s)).collect();
        if held.is_empty() {
            continue;
        }
        let Ok(stored) = spool.envelope(id) else { continue };
        for message in held {
            let recipient = stored.recipients.iter().find(|one| one.position == message.position);
            let Some(recipient) = recipient.and_then(|one| decode_recipient(&one.data).ok()) else { continue };
            if !is_of(domains, &recipient.address) {
                continue;
            }
            let address = recipient.address;
            let of_address = found.entry(address.key()).or_insert_with(|| HeldRecipient { address, held: Vec::new() });
            of_address.held.push(message);
        }
    }
    found.into_values().collect()
}

fn is_of(domains: &[String], address: &Address) -> bool {
    let name = address.domain().name();
    domains.is_empty()
        || domains.iter().any(|domain| name.is_some_and(|name| name.ascii().eq_ignore_ascii_case(domain)))
}

/// Whether its time in quarantine is not over.
pub(super) fn is_in_time(message: HeldMessage, now_s: u64) -> bool {
    message.ends == 0 || u64::from(message.ends) > now_s
}

/// Returns the recipients of a message that are held for their own decision.
pub(super) fn held_of(spool: &Spool, id: QueueId) -> Vec<HeldMessage> {
    let states = spool.states(id);
    let held = states.iter().filter(|(entry, _)| entry.state.status == Status::Held);
    let message = |position: u32| {
        let hold = spool.hold(id, position)?;
        let is_meant = hold.kind() == HoldKind::Quarantine && hold.text().starts_with(FOR_RECIPIENT);
        is_meant.then(|| HeldMessage { id, position, ends: hold.ends_at().unwrap_or(0) })
    };
    held.filter_map(|(entry, _)| message(entry.recipient)).collect()
}

/// Returns what the recipient is shown of a message; `None`: it is not held for him any more, or cannot be read.
pub(super) fn facts(spool: &Spool, message: &HeldMessage) -> Option<HeldMail> {
    let HeldMessage { id, position, .. } = *message;
    let hold = spool.hold(id, position)?;
    let stored = spool.envelope(id).ok()?;
    let envelope = decode_head(id, &stored.head).ok()?;
    let recipient = stored.recipients.iter().find(|one| one.position == position)?;
    let header = spool.header(id).ok()?;
    let field = |name: &str| {
        let section = HeaderSection::read(&header, LineEnd::Crlf);
        let found = section.find(name).next().map(|field| header_text::decode(field.value()).text);
        shown(&found.unwrap_or_default())
    };
    let facts = HeldFacts {
        id,
        recipient: decode_recipient(&recipient.data).ok()?.address.to_string(),
        from: field("From"),
        subject: field("Subject"),
        came_us: envelope.received.at_us,
        size: stored.body_bytes,
        by: shown(hold.by()),
        ends: hold.ends_at(),
    };
    Some(HeldMail { message: *message, facts })
}

/// Returns a text on one line, without characters that have an effect on the text around them, and not too long.
fn shown(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let joined = words.join(" ");
    let visible = joined.chars().map(|c| if mail::is_unprintable(c) { '\u{fffd}' } else { c });
    let mut out: String = visible.take(SHOWN_CHARACTERS).collect();
    if joined.chars().nth(SHOWN_CHARACTERS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_strangers_stay_on_their_line() {
        assert_eq!(shown("a\r\n  b\tc"), "a b c");
        assert_eq!(shown("a\u{202e}b\u{7}"), "a\u{fffd}b\u{fffd}");
        let long = shown(&"x".repeat(SHOWN_CHARACTERS + 1));
        assert_eq!(long.chars().count(), SHOWN_CHARACTERS + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn domains_bound_who_gets_a_digest() {
        let address = |text: &str| text.parse::<Address>().expect("an address");
        let own = ["Example.com".to_owned()];
        assert!(is_of(&[], &address("a@else.test")) && is_of(&own, &address("a@example.COM")));
        assert!(!is_of(&own, &address("a@else.test")) && !is_of(&own, &address("a@sub.example.com")));
        assert!(!is_of(&own, &address("a@[192.0.2.1]")));
    }
}
