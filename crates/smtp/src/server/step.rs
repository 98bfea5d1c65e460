//! The messages between a server session and its driver.

use mail::{HeloName, MailParams, Recipient, Reply, ReversePath};
use std::net::SocketAddr;

/// The next task of the driver.
///
/// Before it waits for anything (input, a handshake, the disk), the driver sends [`super::Session::output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more input and call [`super::Session::advance`] with it. All input given so far is used up.
    Read,
    /// Find out what to do and answer; see [`Question`] for the call. Until then `advance` may not be called.
    Ask(Question),
    /// Take [`super::Session::take_content`]; the message goes on.
    Content,
    /// The transaction has ended without a message, after the driver had answered [`Question::Data`]: forget content
    /// that was taken, and the queue id. Then call `advance` again.
    Abandon,
    /// Do the TLS handshake, then call [`super::Session::tls_started`]. Input that was given with this call and not
    /// used is gone: text in clear before the handshake is no command (RFC 3207 §5, CVE-2011-0411).
    StartTls,
    /// Send the output and close the connection.
    Close,
}

/// A question of the session. The session itself has the values that the question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// May this client, [`super::Session::helo`], go on? [`super::Session::answer`]
    Helo,
    /// May [`super::Transaction::sender`] send? [`super::Session::answer`]
    Mail,
    /// May [`super::Session::candidate`] receive? [`super::Session::answer`]
    Recipient,
    /// May the content come? Asked once per message, before the 354 or at the first BDAT. On acceptance
    /// [`super::Session::begin_content`] with the trace line, else [`super::Session::answer`].
    Data,
    /// The message is complete. Take the rest of the content, make it durable, then
    /// [`super::Session::finish`] with one verdict, or in LMTP one per recipient.
    Message,
    /// AUTH with [`super::Session::auth_mechanism`] and, if the client gave one, an initial response in
    /// [`super::Session::auth_response`] (decoded). [`super::Session::auth_challenge`],
    /// [`super::Session::auth_succeeded`] or [`super::Session::auth_failed`].
    Auth,
    /// The client's next response of the exchange, in [`super::Session::auth_response`]. The same calls.
    AuthResponse,
    /// VRFY, with [`super::Session::argument`]. [`super::Session::answer_with`]
    Verify,
    /// EXPN, with [`super::Session::argument`]. [`super::Session::answer_with`]
    Expand,
    /// A command that is not known, [`super::Session::unknown_command`]. Asked only after
    /// [`super::Session::ask_unknown`]. [`super::Session::answer`]; `Accept` gives the usual refusal.
    Unknown,
    /// XCLIENT from a client for whom [`super::Session::trust_xclient`] was called; the attributes are in
    /// [`super::Session::xclient`]. [`super::Session::answer`]; on acceptance the session starts again at its greeting.
    Xclient,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, with the usual reply.
    Accept,
    /// Yes, with this reply, which must be a success.
    AcceptWith(Reply),
    /// No, with this reply, 4xx or 5xx.
    Refuse(Reply),
    /// No, with this reply, and close.
    Close(Reply),
}

/// A message while it is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// From MAIL.
    pub sender: ReversePath,
    /// From MAIL.
    pub params: MailParams,
    /// The accepted ones, in order, each once for each RCPT.
    pub recipients: Vec<Recipient>,
}

/// Encryption of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `TLSv1.3`
    pub version: Box<str>,
    /// `TLS_AES_256_GCM_SHA384`
    pub cipher: Box<str>,
    /// Key bits, for the log: 256.
    pub bits: u16,
    /// The server name that the client asked for.
    pub server_name: Option<Box<str>>,
}

/// Attributes of an XCLIENT command. `None`: not mentioned; `Some(None)`: said to be unavailable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xclient {
    /// NAME, the name of the client's address.
    pub name: Option<Option<Box<str>>>,
    /// ADDR and PORT.
    pub address: Option<SocketAddr>,
    /// HELO.
    pub helo: Option<Option<HeloName>>,
    /// PROTO is ESMTP.
    pub esmtp: Option<bool>,
    /// LOGIN, an authenticated user.
    pub login: Option<Option<Box<str>>>,
}

/// Something the log and the counters want to know and that no question shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The session refused a command by itself: bad syntax, wrong order, a limit. The command is shortened and
    /// printable.
    Refused {
        /// The command line.
        command: Box<str>,
        /// The reply.
        reply: Reply,
    },
    /// VRFY or EXPN was asked, and is not offered.
    NotVerified {
        /// [`Question::Verify`] or [`Question::Expand`].
        question: Question,
        /// The argument, shortened and printable.
        argument: Box<str>,
        /// The reply.
        reply: Reply,
    },
    /// A limit was reached: its name in the configuration (`smtp.errors_max`).
    Limit(&'static str),
    /// The client spoke before the greeting.
    EarlyTalker,
    /// The client speaks HTTP or another protocol whose words close the session.
    ForeignProtocol {
        /// The line, shortened and printable.
        line: Box<str>,
    },
    /// A bare CR or LF, or NUL, was found in content or in a command.
    BareNewline,
    /// The message was refused for its content: the reply says why.
    Content {
        /// The reply.
        reply: Reply,
        /// Octets that had come, without trace line.
        bytes: u64,
    },
    /// AUTH was given up by the client, or a line of it could not be read. Failures that the driver found are its own.
    AuthFailed {
        /// The mechanism.
        mechanism: Box<str>,
    },
}

/// How far a session had come when it ended, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The last command, as sendmail's log names the phase: `startup`, `EHLO`, `MAIL`, `RCPT`, `DATA` …
    pub after: &'static str,
    /// The client had said MAIL, VRFY, EXPN or ETRN.
    pub issued_command: bool,
    /// A transaction was open.
    pub in_transaction: bool,
    /// Messages accepted.
    pub messages: u32,
    /// The client said QUIT.
    pub quit: bool,
    /// A time limit was reached.
    pub timed_out: bool,
}
