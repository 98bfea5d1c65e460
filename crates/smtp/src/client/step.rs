//! The messages between a client session and its driver.

use std::fmt;
use std::sync::Arc;

use mail::{AttemptPhase, MailParams, PhaseTimes, Recipient, Reply, ReversePath};

/// A message for some of its recipients, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTransaction {
    /// The driver's name for it, given back in [`Finished`].
    pub token: u64,
    /// For MAIL.
    pub sender: ReversePath,
    /// The parameters that the message came with. The session passes on those that the server offers and drops the
    /// rest; [`super::ClientSession::fits`] finds parameters that may not be dropped.
    pub params: MailParams,
    /// For RCPT, in this order; at least one.
    pub recipients: Arc<[Recipient]>,
    /// Octets of the content as it will be given to [`super::ClientSession::content`].
    pub content_bytes: u64,
}

/// Why a transaction may not be sent to this server as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// BODY=8BITMIME, and no 8BITMIME is offered: convert or give it back.
    EightBit,
    /// BODY=BINARYMIME, and BINARYMIME with CHUNKING is not offered.
    Binary,
    /// SMTPUTF8, and it is not offered.
    Smtputf8,
    /// The content is longer than the server takes.
    Size {
        /// Octets that it takes.
        max: u64,
    },
    /// REQUIRETLS, and it is not offered.
    RequireTls,
    /// It comes back when it is not delivered in time (BY with mode R), and the server promises nothing so soon.
    TooLate {
        /// Seconds that it takes at least.
        least: u32,
    },
    /// The same, and DELIVERBY is not offered: the server would deliver it late too.
    DeliverBy,
    /// An address that cannot be written in ASCII, and SMTPUTF8 is not offered.
    Address,
}

/// The next task of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send the output, read, mind [`super::ClientSession::deadline`].
    Wait,
    /// All output is sent: do the TLS handshake, then [`super::ClientSession::tls_started`]. If it fails, drop the
    /// session.
    StartTls,
    /// It takes a transaction now, perhaps while others await replies: [`super::ClientSession::begin`]. A driver that
    /// has none waits as with [`ClientStep::Wait`], or calls [`super::ClientSession::quit`]. Content of the one before
    /// that was not asked for is not wanted any more: all its recipients were refused.
    Ready,
    /// Give the next piece of the content of the transaction that was begun last to [`super::ClientSession::content`],
    /// or [`super::ClientSession::abort_content`].
    Content,
    /// A transaction is over.
    Done(Finished),
    /// The conversation is over, see [`super::ClientSession::closing`]: close the connection. All open transactions
    /// came out as [`ClientStep::Done`] before.
    Closed,
}

/// A transaction that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which one.
    pub token: u64,
    /// One for each recipient, in their order.
    pub outcomes: Vec<Outcome>,
    /// The content had begun, and the rest of it is not wanted.
    pub stopped_content: bool,
    /// How long each phase took, from the reply before it to its last reply; for the first transaction also those that
    /// opened the conversation.
    pub times: PhaseTimes,
}

/// The result for a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The stage of the reply, or of its loss.
    pub stage: Stage,
    /// The answer.
    pub answer: Answer,
}

impl Outcome {
    /// Whether the server has taken the message for this recipient.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        let is_success = |reply: &Reply| reply.code().class() == mail::ReplyClass::Success;
        self.stage == Stage::End && matches!(&self.answer, Answer::Reply(reply) if is_success(reply))
    }
}

/// The answer to a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 2xx, only with [`Stage::End`]: delivered. 4xx or 5xx: refused with it.
    Reply(Reply),
    /// There was none. With [`Stage::End`] the server had all of the message and may have taken it.
    Lost(Loss),
    /// The connection ended before the server had to do with it. Try it elsewhere at once: this was no attempt.
    NotTried,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// A time limit passed.
    TimedOut,
    /// The transaction as a whole took too long, although something moved now and then.
    TooLong,
    /// The server or the network closed the connection.
    Closed,
    /// The reply is no SMTP; the text describes it for the log.
    Protocol(&'static str),
    /// Text came in clear where the server may say nothing but the reply to STARTTLS: an attacker put it there, to have
    /// it taken for a reply under TLS, or to have TLS given up (RFC 3207 §6).
    Injected,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "timed out",
            Self::TooLong => "the transaction took too long",
            Self::Closed => "connection closed",
            Self::Protocol(what) => what,
            Self::Injected => "text in clear where TLS begins",
        })
    }
}

/// A part of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The greeting.
    Greeting,
    /// EHLO, HELO or LHLO.
    Hello,
    /// STARTTLS and the handshake.
    StartTls,
    /// AUTH.
    Auth,
    /// RSET.
    Rset,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA, up to the 354.
    Data,
    /// The content, before its end was sent.
    Content,
    /// The end of the content: the dot, or the last octet of BDAT LAST.
    End,
    /// QUIT.
    Quit,
    /// Nothing was going on.
    Idle,
}

impl Stage {
    /// The phase of an attempt that a reply at this stage ends.
    pub(super) const fn phase(self) -> Option<AttemptPhase> {
        match self {
            Self::Greeting => Some(AttemptPhase::Greeting),
            Self::Hello => Some(AttemptPhase::Hello),
            Self::StartTls => Some(AttemptPhase::Tls),
            Self::Auth => Some(AttemptPhase::Auth),
            Self::Rset | Self::Mail => Some(AttemptPhase::Mail),
            Self::Rcpt => Some(AttemptPhase::Rcpt),
            Self::Data | Self::Content | Self::End => Some(AttemptPhase::Content),
            Self::Quit | Self::Idle => None,
        }
    }

    /// As sendmail's log names the phase of a client: `client MAIL`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Greeting => "client greeting",
            Self::Hello => "client EHLO",
            Self::StartTls => "client STARTTLS",
            Self::Auth => "client AUTH",
            Self::Rset => "client RSET",
            Self::Mail => "client MAIL",
            Self::Rcpt => "client RCPT",
            Self::Data => "client DATA 354",
            Self::Content => "client message body",
            Self::End => "client DATA status",
            Self::Quit => "client QUIT",
            Self::Idle => "client idle",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why and where a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The stage of the conversation.
    pub stage: Stage,
    /// The last reply of the server, if that ended it.
    pub reply: Option<Reply>,
    /// The cause of a missing reply, if that ended it; at [`Stage::Auth`] perhaps beside a reply. None with no reply:
    /// the driver ended it.
    pub loss: Option<Loss>,
    /// Both sides knew that it ended: QUIT, or 421.
    pub orderly: bool,
}
