//! Mail that comes back to a mailbox, program or file which had it before, by the `Delivered-To:` fields that local
//! delivery writes.
//!
//! Any client can write such a field, so one of them proves nothing. No field may make this server send a report to a
//! forged sender: a lone recipient is refused at the end of DATA while the client still waits ([`is_loop`] there), and
//! where other recipients of the message forbid that, the message is delivered until the field is there [`REPEATS_MAX`]
//! times. A message from outside that reaches that number is given up without a report.
//!
//! | Mail comes from | Recipients | Fields that name the recipient | What happens |
//! |---|---|---|---|
//! | outside | all were reached before | 1 and more | `554 5.4.6` at the end of DATA |
//! | outside | others too | 1 to 9 | delivered |
//! | outside | others too | 10 and more | not delivered, a line in the log, no report |
//! | a user of this machine, a login | any | 1 to 9 | delivered: users send what they got again |
//! | a user of this machine, a login | all were reached before | 10 and more | `554 5.4.6` |
//! | a user of this machine, a login | others too | 10 and more | fails, with a report |
//!
//! A loop that loses these fields on its way ends by `message.hops_max`.

use mail::{Client, Envelope, Protocol};

/// Fields that name one recipient in a message that is not delivered to it any more, from any sender.
pub const REPEATS_MAX: usize = 10;

/// Whether a message that has so many fields for a recipient goes in a circle.
pub const fn is_loop(fields: usize, is_from_outside: bool) -> bool {
    fields >= if is_from_outside { 1 } else { REPEATS_MAX }
}

/// Whether the sender is unverified: the message came over the network and without a login.
pub const fn is_from_outside(envelope: &Envelope) -> bool {
    let has_login = match envelope.received.protocol {
        Protocol::Esmtp(session) | Protocol::Lmtp(session) => session.auth,
        Protocol::Local | Protocol::Smtp => false,
    };
    matches!(envelope.received.client, Client::Network(_)) && !has_login
}

/// Returns whether the value of a field names this address. Case does not matter: a loop in which a server changes it
/// is a loop all the same.
pub fn names_address(value: &[u8], address: &str) -> bool {
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"<").and_then(|value| value.strip_suffix(b">")).unwrap_or(value);
    value.eq_ignore_ascii_case(address.as_bytes())
}
