//! Delivery status notifications: reports to a sender about recipients that failed, wait, or were reached (RFC 3464,
//! and RFC 6533 for addresses beyond ASCII).
//!
//! The settle stop asks [`wants`] whether a sender is to be told at all and [`Addressee::of`] for the address, puts the
//! outcomes into a [`Report`], of as many recipients as are [`fitting`], and has [`compose`] write the message and
//! [`Report::envelope_for`] its envelope. The message has three parts: words for a person who is no administrator, the
//! fields for programs, and the original message or its header.
//!
//! Pure: times and the queue id of the report are arguments. Invariants of the composed message, for any input: all
//! lines end in CRLF and have at most 998 octets; no text of a peer (replies, addresses, names, the original) begins a
//! field, a line of our own, or a part; the envelope has the null sender, so no report answers a report (RFC 5321
//! §6.1); a report to the postmaster asks for none, so there is no third bounce. Text that is not ASCII leaves in an
//! encoding unless the addressee himself needs SMTPUTF8 or the original has 8-bit content.
//!
//! Not here: when a recipient has failed, storing or sending the report, and other languages than English.

mod compose;
mod date;
mod fields;
mod harmless;
mod original;
mod text;

pub use compose::compose;
pub(crate) use date::for_field as date_field;
pub use date::for_mbox as date_of_mbox;

use crate::address::{Address, ReversePath};
use crate::enhanced_code::EnhancedCode;
use crate::envelope::{
    Body, Client, Envelope, MailParams, Notify, Protocol, Received, Recipient, RecipientParams, Ret,
};
use crate::queue_id::QueueId;
use crate::reply::Reply;

/// The result for a recipient: the `Action` field (RFC 3464 §2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Given up.
    Failed,
    /// Not reached yet; tried again.
    Delayed,
    /// In the mailbox.
    Delivered,
    /// Handed to a server that does not report (no DSN extension).
    Relayed,
    /// Handed to a server of a message whose sender gave a time by which it is to be delivered (BY), and wants to hear
    /// that, or hears nothing more of that time.
    Traced,
    /// Replaced by the members of a list or an alias of several.
    Expanded,
}

impl Kind {
    /// The value of the `Action` field.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Relayed | Self::Traced => "relayed",
            Self::Expanded => "expanded",
        }
    }
}

/// Whether the sender wants to hear of this outcome. Without `NOTIFY`, of failures and delays.
// RFC 3461 §4.1
#[must_use]
pub const fn wants(notify: Option<Notify>, kind: Kind) -> bool {
    let wanted = match notify {
        // RFC 2852 §4.1.4, §4.1.4.2: unless it is NOTIFY=NEVER
        Some(notify) if matches!(kind, Kind::Traced) => return notify.bits() != Notify::NEVER.bits(),
        None if matches!(kind, Kind::Traced) => return true,
        Some(notify) => notify,
        None => Notify::FAILURE.and(Notify::DELAY),
    };
    wanted.contains(match kind {
        Kind::Failed => Notify::FAILURE,
        Kind::Delayed => Notify::DELAY,
        Kind::Delivered | Kind::Relayed | Kind::Traced | Kind::Expanded => Notify::SUCCESS,
    })
}

/// Whether a report returns the whole message, rather than its header section alone. `bytes_max` binds `RET=FULL` too.
#[must_use]
pub fn returns_content(envelope: &Envelope, has_failures: bool, content_bytes: u64, bytes_max: u64) -> bool {
    // RFC 3461 §4.3: RET counts for failures only, other reports have the header section; without RET the server
    // chooses. Binary content cannot be put into a multipart that goes out by DATA.
    let is_refused = envelope.params.ret == Some(Ret::Headers)
        || envelope.params.body == Some(Body::BinaryMime)
        // RFC 8689 §5: a report about such a message behaves as if RET=HDRS was given
        || envelope.params.requiretls;
    has_failures && !is_refused && content_bytes <= bytes_max
}

/// The addressee of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee<'a> {
    /// The sender of the message.
    Sender(&'a Address),
    /// The postmaster, because a message without a sender failed: most often a report.
    Postmaster(&'a Address),
    /// No addressee: the report is not wanted, or a report to the postmaster failed itself. The caller logs a failure
    /// that has no addressee.
    Nobody,
}

impl<'a> Addressee<'a> {
    /// Returns the addressee of a report that `recipient` of a message from `sender` came to `kind`.
    #[must_use]
    pub fn of(sender: &'a ReversePath, recipient: &Recipient, kind: Kind, postmaster: &'a Address) -> Self {
        match sender.address() {
            // NOTIFY=NEVER also stands on each report to the postmaster and ends the chain there.
            _ if !wants(recipient.params.notify, kind) => Self::Nobody,
            Some(address) => Self::Sender(address),
            // RFC 5321 §6.1: never to the null sender
            None if kind == Kind::Failed && recipient.address.key() != postmaster.key() => Self::Postmaster(postmaster),
            None => Self::Nobody,
        }
    }
}

/// The part of a report about one recipient.
#[derive(Clone, Copy, Debug)]
pub struct RecipientReport<'a> {
    /// The recipient as it came, with its `ORCPT`.
    pub recipient: &'a Recipient,
    /// The result for it.
    pub kind: Kind,
    /// The reason as a code. A class that contradicts `kind` is corrected.
    pub status: EnhancedCode,
    /// The reply of the next hop, if there was one.
    pub reply: Option<&'a Reply>,
    /// The next hop: the server that answered, or did not. A name, `[address]` or `name [address]`.
    pub remote_mta: Option<&'a str>,
    /// The reason in words: a sentence for a person, or the resolver's or the system's own words. May be empty.
    pub text: &'a str,
    /// The kind of reason in a word, for programs; a field of ours.
    pub reason: Option<&'a str>,
    /// When it was tried last, in microseconds since the Unix epoch.
    pub last_attempt_us: Option<u64>,
    /// Until when it will be tried; for [`Kind::Delayed`].
    pub will_retry_until_us: Option<u64>,
    /// For [`Kind::Delayed`]: the time is over by which the sender wanted it delivered, and wanted to hear that.
    /// `Status` says so, whatever `status` is.
    pub is_past_time: bool,
}

/// Recipients that should share a report; for more the caller makes another. Where there are many, each takes 100 to
/// 250 octets in the part for programs: [`fitting`] says how many fit.
pub const RECIPIENTS_MAX: usize = 10_000;

/// Returns how many recipients, from the first on, fit a report of at most `octets_max` octets beside the returned
/// message. At least one, at most [`RECIPIENTS_MAX`], and sometimes fewer than would fit.
#[must_use]
pub fn fitting(report: &Report<'_>, octets_max: usize) -> usize {
    let most = report.recipients.get(..RECIPIENTS_MAX).unwrap_or(report.recipients);
    let mut count = compose::estimate(&Report { recipients: most, ..*report }, octets_max);
    while count > 1 {
        let some = report.recipients.get(..count).unwrap_or_default();
        let octets = compose(&Report { recipients: some, ..*report }, Original::None).content.len();
        if octets <= octets_max {
            break;
        }
        count = (count.saturating_mul(octets_max) / octets).clamp(1, count - 1);
    }
    count
}

/// A report to be written.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The name of this server.
    pub reporting_mta: &'a str,
    /// The envelope of the message it is about.
    pub envelope: &'a Envelope,
    /// The results of recipients. At least one, at most [`RECIPIENTS_MAX`]; kinds may be mixed.
    pub recipients: &'a [RecipientReport<'a>],
    /// Now, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// Local time minus UTC, in seconds, for the dates in it.
    pub offset_seconds: i32,
    /// The queue id of the report itself: Message-ID and boundary come from it.
    pub id: QueueId,
    /// It goes to the postmaster since the message has no sender, see [`Addressee::Postmaster`].
    pub postmaster: bool,
    /// There was one on the message before, of the same kind: this one has few words.
    pub is_further: bool,
    /// The addressee.
    pub to: &'a Address,
}

impl Report<'_> {
    /// The envelope to store and send the report with: null sender, one recipient, the parameters it needs.
    #[must_use]
    pub fn envelope_for(&self, composed: &Composed) -> Envelope {
        // RFC 3461 §6.1: from the null sender, so that nothing answers it; RFC 5321 §4.5.5
        let params = MailParams {
            size: u64::try_from(composed.content.len()).ok(),
            body: composed.body,
            smtputf8: composed.smtputf8,
            // RFC 8689 §5: the report is protected as the message was
            requiretls: self.envelope.params.requiretls,
            // RFC 6710 §4.6: as urgent as the message
            mt_priority: self.envelope.params.mt_priority,
            ..MailParams::default()
        };
        let address = if composed.smtputf8 { None } else { self.to.to_ascii() };
        let notify = self.postmaster.then_some(Notify::NEVER);
        Envelope {
            id: self.id,
            sender: ReversePath::Null,
            params,
            received: Received { at_us: self.at_us, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: vec![Recipient {
                address: address.unwrap_or_else(|| self.to.clone()),
                params: RecipientParams { notify, orcpt: None },
            }],
        }
    }
}

/// The part of the original message that can be returned.
#[derive(Clone, Copy, Debug)]
pub enum Original<'a> {
    /// All of it, and all is returned.
    Whole(&'a [u8]),
    /// Its header section, or more: the octets behind the section are cut off.
    Headers(&'a [u8]),
    /// Nothing.
    None,
}

/// A report as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// Header section and body, with CRLF.
    pub content: Vec<u8>,
    /// The `BODY` it needs: 8BITMIME when it returns 8-bit content, else none.
    pub body: Option<Body>,
    /// The addressee cannot be written in ASCII, so every hop must offer SMTPUTF8.
    pub smtputf8: bool,
}
