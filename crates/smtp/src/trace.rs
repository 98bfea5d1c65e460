//! The trace line that this server puts in front of an accepted message.

use mail::{Address, QueueId, Received};

/// What a `Received:` field says.
// RFC 5321 §4.4
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// Our name.
    pub hostname: &'a str,
    /// Who handed the message over, when and how.
    pub received: &'a Received,
    /// The verified name of the client's address, if it has one.
    pub client_name: Option<&'a str>,
    /// Protocol version and cipher, if the connection is encrypted: `TLSv1.3`, `TLS13_AES_256_GCM_SHA384`.
    pub tls: Option<(&'a str, &'a str)>,
    /// The name here of the message.
    pub id: QueueId,
    /// The recipient, if there is exactly one; others must not learn of each other.
    pub only_recipient: Option<&'a Address>,
}
