//! The events: what can happen on a message's way from the connection to the report, and to the process.
//!
//! Values are borrowed, so that an event costs nothing to make. Text may come straight from a peer with any content:
//! the writers escape and shorten. [`Event::class`] has the name and severity of an event.

use crate::class::Severity;
use crate::{
    CheckMethod, CheckResult, Fate, Limit, NextHop, Reason, Relay, ReportKind, Ruleset, SaslError, ScreenVerdict,
    SignatureKind, Stat,
};
use mail::{Body, EnhancedCode, MtPriority, PhaseTimes, Protocol, QueueId, Reply};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The user or address that led to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// `<a@b>`
    pub address: &'a str,
    /// User and group on this machine, if he has an account.
    pub owner: Option<(u32, u32)>,
}

/// The party that asked for a change of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandBy<'a> {
    /// The user of the system with this number.
    User(u32),
    /// A client of HTTP, by the name of its token; empty without one.
    Token(&'a str),
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The process is up; [`Event::Listening`] follows for each listener.
    Started {
        /// Of mailrace.
        version: &'a str,
        /// Directory of the spool.
        spool: &'a str,
        /// The spool lies in memory: a power cut loses mail.
        volatile: bool,
        /// How many there are.
        listeners: usize,
        /// The name of the user that it really is; empty if that has none.
        user: &'a str,
        /// The number of that user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// The files and system calls that the process has given up after its start.
    Hardening {
        /// `Notice` if the kernel lacks something.
        severity: Severity,
        /// The restrictions in force.
        text: &'a str,
    },
    /// A listener takes connections.
    Listening {
        /// Its name: `MTA`, `MSA`, `LMTP`.
        daemon: &'a str,
        /// Where.
        address: SocketAddr,
        /// `smtp`, `submission`, `lmtp`
        protocol: &'a str,
        /// `none`, `starttls`, `implicit`
        tls: &'a str,
    },
    /// No new transactions from now on; open ones may finish.
    Stopping {
        /// The cause: `SIGTERM`, `control`.
        why: &'a str,
        /// Connections still open.
        connections: usize,
    },
    /// The last line of the process.
    Stopped {
        /// Connections that were cut off when the grace time was over.
        cut_off: usize,
        /// Deliveries that were cut off then; they are tried again after the next start.
        deliveries_cut_off: u64,
    },
    /// A new configuration is in force.
    Reloaded {
        /// Its file.
        path: &'a str,
        /// The changed settings for which waiting mail is tried again at once; `None` if that mail keeps its times.
        retried: Option<&'a str>,
    },
    /// The new configuration has errors; the old one stays.
    ReloadRefused {
        /// Its file.
        path: &'a str,
        /// Each with file, line, text and suggestion.
        errors: &'a [String],
    },
    /// A value in the configuration that works and is probably not meant.
    ConfigWarning {
        /// With file, line and suggestion.
        text: &'a str,
    },
    /// A map, a list or a password file can be written by a user who must not: the entries read before stay in force.
    FileRefused {
        /// With the file, its owner and mode, and the command to run.
        text: &'a str,
    },
    /// A next hop offers an extension that does not work: mail goes to it without.
    ExtensionAvoided {
        /// The host, the extension, what it did, for how long, and the key to set.
        text: &'a str,
    },
    /// Certificate and key are in use from now on.
    CertificateLoaded {
        /// Its file.
        path: &'a str,
        /// The client names in the request.
        names: &'a str,
        /// Its last second, as RFC 3339 has it.
        not_after: &'a str,
    },
    /// Certificate or key cannot be read or do not fit; the old ones stay.
    CertificateRefused {
        /// Its file.
        path: &'a str,
        /// The reason, and the next step.
        error: &'a str,
    },

    /// A connection was taken.
    Connected {
        /// The client.
        relay: Relay<'a>,
        /// Name of the listener.
        daemon: &'a str,
    },
    /// A connection was turned away by a limit, with a reply. For other reasons see [`Event::Rejected`].
    ConnectionRefused {
        /// The client.
        relay: Relay<'a>,
        /// Name of the listener.
        daemon: &'a str,
        /// Which limit.
        limit: Limit,
        /// The measured number: connections, or connections per second.
        value: u64,
        /// The limit.
        max: u64,
        /// The reply to the client.
        reply: &'a Reply,
    },
    /// The client spoke before the greeting, and nothing it says is done.
    EarlyTalker {
        /// The queue id of the session: its first message gets it.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// Since the connection began.
        after_seconds: u64,
    },
    /// A block list names the client. Whether it is refused is told by [`Event::Rejected`].
    DnsblListed {
        /// The client.
        relay: Relay<'a>,
        /// The list.
        zone: &'a str,
        /// The address in the answer.
        answer: IpAddr,
        /// The score that the answer adds.
        weight: i32,
    },

    /// The connection is encrypted.
    StartTls {
        /// The client.
        relay: Relay<'a>,
        /// `TLSv1.3`
        version: &'a str,
        /// `TLS_AES_256_GCM_SHA384`
        cipher: &'a str,
        /// Key bits.
        bits: u16,
        /// The result of the certificate check: `NOT` asked for, `NO` for none, `FAIL`, `OK`.
        verify: &'a str,
        /// The subject of the certificate: `/C=US/O=Example/CN=mx.example`.
        subject: Option<&'a str>,
        /// The issuer of the certificate.
        issuer: Option<&'a str>,
        /// Why it is not verified.
        why: Option<&'a str>,
    },
    /// The handshake failed; the connection is closed.
    TlsFailed {
        /// The client.
        relay: Relay<'a>,
        /// The words of the TLS library.
        reason: &'a str,
    },
    /// A client of HTTP presented a certificate that gives no rights.
    HttpCertificateRefused {
        /// The client.
        relay: Relay<'a>,
        /// The subject of the certificate, if it can be read.
        subject: Option<&'a str>,
        /// Why it gives none, with the key of the configuration.
        why: &'a str,
    },
    /// A user has logged in.
    Auth {
        /// The client.
        relay: Relay<'a>,
        /// The user.
        identity: &'a str,
        /// `PLAIN`, `SCRAM-SHA-256`
        mechanism: &'a str,
    },
    /// Credentials were wrong, the exchange was broken off, or they could not be checked.
    AuthFailed {
        /// The queue id of the session: its first message gets it.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// The user it claimed to be, if it got so far.
        identity: Option<&'a str>,
        /// `PLAIN`, `SCRAM-SHA-256`
        mechanism: &'a str,
        /// The result that a library of SASL would give.
        error: SaslError,
        /// Why, without the secret.
        reason: &'a str,
    },
    /// A login has had more recipients in an hour than it may have: its password may be stolen. Once an hour for each
    /// login.
    LoginOverLimit {
        /// The client.
        relay: Relay<'a>,
        /// The user.
        identity: &'a str,
        /// Recipients of the last hour.
        count: u64,
        /// The limit.
        max: u64,
    },
    /// The client speaks HTTP or another protocol; the session is closed.
    ForeignProtocol {
        /// The queue id of the session: its first message gets it.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// Its line.
        command: &'a str,
    },
    /// A CR or LF that stands alone, or NUL, in a command or in content.
    BareNewline {
        /// The message, if it had come so far.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// It was refused, not made CRLF.
        refused: bool,
    },
    /// A limit was reached by a session. The reply says what followed.
    LimitReached {
        /// The message, if there is one.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// Which limit.
        limit: Limit,
        /// The limit in its unit; times in seconds.
        max: u64,
    },
    /// The session ended without a message or a question.
    NoMail {
        /// The queue id of the session: its first message would have got it.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// Name of the listener.
        daemon: &'a str,
    },
    /// The connection broke in the middle of a transaction.
    LostInput {
        /// The message, if it had an id.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// Name of the listener.
        daemon: &'a str,
        /// The last command: `rcpt`, `data`; written in lower case.
        after: &'a str,
    },
    /// The client was silent too long; the session is closed.
    TimedOut {
        /// The message, if it had an id.
        id: Option<QueueId>,
        /// The client.
        relay: Relay<'a>,
        /// The expected input: `server cmd read`, `message content read`.
        during: &'a str,
    },

    /// A rule refused a connection, command or message. In sendmail's words a ruleset, its arguments and the reply.
    Rejected {
        /// The message, if it has an id.
        id: Option<QueueId>,
        /// Where it was refused.
        ruleset: Ruleset,
        /// The name of the client, the sender `<a@b>` or the recipient.
        arg1: Option<&'a str>,
        /// The address of the client.
        arg2: Option<&'a str>,
        /// The client.
        relay: Relay<'a>,
        /// The reply to it.
        reply: &'a Reply,
    },
    /// An entry of the access map decides that a message is taken and not delivered as usual.
    Ruled {
        /// The message, if it has an id.
        id: Option<QueueId>,
        /// The ruleset of the sender or of recipients.
        ruleset: Ruleset,
        /// The sender `<a@b>` or the recipient.
        arg1: &'a str,
        /// The client.
        relay: Relay<'a>,
        /// The decision.
        fate: Fate<'a>,
    },
    /// A transaction ended and no recipient was left, or its content was refused: `nrcpts=0`.
    TransactionRefused {
        /// The message, if it had an id.
        id: Option<QueueId>,
        /// The sender, `<a@b>` or `<>`.
        from: &'a str,
        /// Octets that had come.
        size: u64,
        /// How it came.
        protocol: Protocol,
        /// Name of the listener.
        daemon: &'a str,
        /// The client.
        relay: Relay<'a>,
    },
    /// A message is durable; the 250 may go.
    Accepted {
        /// Its name from now on.
        id: QueueId,
        /// The sender, `<a@b>` or `<>`.
        from: &'a str,
        /// Octets as stored, without our trace field.
        size: u64,
        /// From `Precedence:`; 0 for ordinary mail.
        class: i32,
        /// Recipients.
        nrcpts: usize,
        /// `Message-ID:` with its brackets, if the message has one.
        msgid: Option<&'a str>,
        /// BODY, if the client said so.
        bodytype: Option<Body>,
        /// MT-PRIORITY as it was granted, if the client said so.
        // RFC 6710 §4.1
        mt_priority: Option<MtPriority>,
        /// How it came.
        protocol: Protocol,
        /// Name of the listener.
        daemon: &'a str,
        /// The authenticated user.
        identity: Option<&'a str>,
        /// The client.
        relay: Relay<'a>,
    },
    /// A message waits for a queue run (`delivery.mode = "queue"`), or for a person.
    Queued {
        /// The message.
        id: QueueId,
        /// Its recipients, `<a@b>`.
        to: &'a [&'a str],
        /// `esmtp`
        mailer: &'a str,
        /// size − class·1800 + nrcpts·30000
        priority: i64,
        /// It is held until a person releases it, for this reason.
        quarantine: Option<&'a str>,
    },
    /// A message was accepted and dropped, because an entry of a map says so.
    Discarded {
        /// The message.
        id: QueueId,
    },
    /// Recipients of a message were accepted and dropped, because an entry of a map says so; the others go on. With
    /// [`Event::Discarded`] after it these are all.
    RecipientsDiscarded {
        /// The message.
        id: QueueId,
        /// The recipients, `<a@b>`.
        to: &'a [&'a str],
    },
    /// A content rule or a filter has decided about a message.
    Screened {
        /// The message.
        id: QueueId,
        /// The kind of the decision.
        verdict: ScreenVerdict,
        /// The name of the rule or filter.
        by: &'a str,
        /// Where it stands: the rule's file and line, or the filter's address.
        place: &'a str,
        /// The recipients that it is about: `<a@b>,<c@d>`.
        to: &'a str,
        /// The action in words.
        action: &'a str,
    },
    /// The sender of a message was checked.
    SenderChecked {
        /// The message.
        id: QueueId,
        /// The result of all methods together.
        summary: CheckResult,
        /// The domain in From; empty if there is none.
        author: &'a str,
        /// The result of each method that was asked, each method once.
        results: &'a [(CheckMethod, CheckResult)],
        /// The reasons of results other than `pass` and `none`; may be empty.
        why: &'a str,
    },
    /// A signature of a message was made, or could not be made.
    Signed {
        /// The message.
        id: QueueId,
        /// The kind of the signature.
        kind: SignatureKind,
        /// The domain that signs.
        domain: &'a str,
        /// The selector of its key.
        selector: &'a str,
        /// Why there is none; the message leaves without it.
        failure: Option<&'a str>,
    },
    /// A message is one more of the same transaction, because its recipients are to be kept apart: members of a list
    /// with an owner, above all.
    Cloned {
        /// The first message of the transaction.
        first: QueueId,
        /// The message.
        id: QueueId,
        /// Its sender.
        owner: &'a str,
    },

    /// A transaction with a next hop is over for these recipients, or an attempt that did not come to one: sendmail's
    /// `to=` line. One event for all recipients with the same outcome and reply.
    Delivery {
        /// The message.
        id: QueueId,
        /// The recipients, `<a@b>`.
        to: &'a [&'a str],
        /// The address or user that led to a program or a file, or the user that sent the message: sendmail's
        /// `ctladdr=`.
        controller: Option<Controller<'a>>,
        /// Since the message was accepted.
        delay: Duration,
        /// Of this attempt.
        xdelay: Duration,
        /// How long each of its phases took, as far as it came.
        phases: PhaseTimes,
        /// `esmtp`, `smtp`, `lmtp`
        mailer: &'a str,
        /// size − class·1800 + nrcpts·30000, + 90000 for each attempt before.
        priority: i64,
        /// Where it went.
        relay: NextHop<'a>,
        /// The status: of the reply, or of the failure before a reply.
        dsn: EnhancedCode,
        /// The reply of the next hop, if there was one.
        reply: Option<&'a Reply>,
        /// The result.
        stat: Stat<'a>,
        /// Why they were not reached, in a word; `None` where they were.
        reason: Option<Reason>,
    },
    /// A report was made and is a message of its own: `ID: ID2: DSN: User unknown`.
    Reported {
        /// The message that it is about.
        id: QueueId,
        /// The report.
        report: QueueId,
        /// The addressee and the reason.
        kind: ReportKind,
        /// The reason in a few words, as in `stat=`; for delays for example
        /// `Warning: could not send message for past 4 hours`.
        text: &'a str,
    },
    /// A report had no deliverable address; a person has to look.
    Unreportable {
        /// The report, or the message that none could be made of.
        id: QueueId,
        /// Why.
        text: &'a str,
    },
    /// The connection to a next hop is encrypted.
    StartTlsClient {
        /// The next hop.
        relay: NextHop<'a>,
        /// `TLSv1.3`
        version: &'a str,
        /// `TLS_AES_256_GCM_SHA384`
        cipher: &'a str,
        /// Key bits.
        bits: u16,
        /// sendmail's word for the result of the certificate check: `NOT` not asked, `OK`, `FAIL`.
        verify: &'a str,
    },
    /// The handshake with a next hop failed. The next events show whether it goes on without TLS.
    TlsClientFailed {
        /// The next hop.
        relay: NextHop<'a>,
        /// The words of the TLS library.
        reason: &'a str,
    },
    /// A destination cannot be reached; its messages wait and are not tried one by one.
    DestinationDown {
        /// Its name in the queue.
        destination: &'a str,
        /// What happened.
        why: &'a str,
        /// Until the next attempt.
        retry: Duration,
    },
    /// A destination is reached again.
    DestinationUp {
        /// Its name in the queue.
        destination: &'a str,
        /// How long it was not.
        down: Duration,
    },
    /// An operator has changed the queue.
    QueueCommand {
        /// The message, where the event is about one.
        id: Option<QueueId>,
        /// `retry`, `hold`, `release`, `delete`
        what: &'a str,
        /// How many.
        messages: u64,
        /// Of these messages.
        recipients: u64,
        /// The party that asked for it.
        by: CommandBy<'a>,
        /// The copy that was sent out of quarantine.
        copy: Option<QueueId>,
        /// The address that gets the copy, if it is not for the recipients; the connection that `abort` has ended, the
        /// destination that `transcript` shows.
        to: Option<&'a str>,
    },

    /// A recipient gets the list of his mail in quarantine.
    QuarantineDigest {
        /// The mail with the list.
        id: QueueId,
        /// Messages in quarantine.
        messages: u64,
        /// The recipient.
        to: &'a str,
    },

    /// An order of an operator that stays in force was set or has ended: a hold rule, a suspension, a limit.
    StandingOrder {
        /// `set` or `ended`.
        what: &'a str,
        /// Its name: `rule-3`, `suspension-4`, or `limit` and the destination.
        name: &'a str,
        /// The values of the order, and its reason.
        text: &'a str,
        /// The party that asked for it; `None`: its time is over.
        by: Option<CommandBy<'a>>,
    },

    /// The time for which recipients of a message were held is over: they wait for delivery.
    HoldEnded {
        /// The message.
        id: QueueId,
        /// Of these recipients.
        recipients: u64,
        /// The rule or the person that held them.
        by: &'a str,
        /// The reason of the hold.
        why: &'a str,
    },

    /// Something in the spool that a person may have to know.
    Spool {
        /// How grave.
        severity: Severity,
        /// The problem, its place, and the next step.
        text: &'a str,
    },
    /// Something in the cluster that a person may have to know.
    Cluster {
        /// How grave.
        severity: Severity,
        /// The object, what happened to it, and the next step.
        text: &'a str,
    },
    /// A message of another node is in the queue of this one.
    Adopted {
        /// Its queue id here.
        id: QueueId,
        /// Its queue id at the node that accepted it.
        was: QueueId,
        /// That recipients may have had it already, so that its delivery may be a second one.
        may_be_duplicate: bool,
    },
    /// Lines of the log were lost: the queue to its writer was full.
    LogDropped {
        /// How many since the last such line.
        lines: u64,
    },
    /// A fault of ours. The session it happened in is closed, the process goes on.
    InternalError {
        /// Which part.
        place: &'a str,
        /// The assumption that did not hold.
        text: &'a str,
    },
}
