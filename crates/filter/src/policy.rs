//! Postfix's policy delegation protocol: attributes of a moment of the SMTP session go out, an action comes back.
//!
//! A request is lines `name=value` and an empty line; the answer is `action=WORD TEXT` and an empty line. One
//! connection serves many requests. Greylisting servers, rate limits and SPF checkers speak it.
//!
//! Actions are those of Postfix's access(5). Names of restrictions, `FILTER` and words that are not known are
//! [`PolicyAction::NotSupported`]: the server goes on as for `DUNNO` and logs them.

use std::fmt;

use mail::{Address, EnhancedCode, Outcome, Reply, ReplyCode};

use crate::field_text::{folded_value, is_field_name};
use crate::reply_text::reply_of;
use crate::scanner::clean;

/// Octets of a reply.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// Octets of the text of an action.
const TEXT_BYTES_MAX: usize = 900;

/// A moment of the session at which a policy server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// A client connected.
    Connect,
    /// HELO or EHLO.
    Ehlo,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA, or the first BDAT.
    Data,
    /// The end of the message.
    EndOfMessage,
    /// VRFY.
    Vrfy,
    /// ETRN.
    Etrn,
}

impl PolicyState {
    /// The word of the attribute `protocol_state`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Ehlo => "EHLO",
            Self::Mail => "MAIL",
            Self::Rcpt => "RCPT",
            Self::Data => "DATA",
            Self::EndOfMessage => "END-OF-MESSAGE",
            Self::Vrfy => "VRFY",
            Self::Etrn => "ETRN",
        }
    }
}

/// The attributes of a request, named as in the protocol. An attribute without a value is sent empty.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names of the protocol say all, and Postfix's SMTPD_POLICY_README explains them")]
pub struct PolicyAttributes<'a> {
    pub protocol_name: &'a str,
    pub helo_name: &'a str,
    pub queue_id: &'a str,
    pub sender: &'a str,
    pub recipient: &'a str,
    /// Recipients that were accepted; meant at DATA and later.
    pub recipient_count: usize,
    pub client_address: &'a str,
    pub client_name: &'a str,
    pub reverse_client_name: &'a str,
    pub client_port: u16,
    pub server_address: &'a str,
    pub server_port: u16,
    /// Ties the requests about one message together.
    pub instance: &'a str,
    pub sasl_method: &'a str,
    pub sasl_username: &'a str,
    pub sasl_sender: &'a str,
    /// Octets: as the client declared them, at the end of the message as they are.
    pub size: u64,
    pub ccert_subject: &'a str,
    pub ccert_issuer: &'a str,
    pub ccert_fingerprint: &'a str,
    pub ccert_pubkey_fingerprint: &'a str,
    pub encryption_protocol: &'a str,
    pub encryption_cipher: &'a str,
    /// Bits.
    pub encryption_keysize: u32,
    pub etrn_domain: &'a str,
    /// Whether the server is short of something; the attribute is `yes` or empty.
    pub stress: bool,
    pub policy_context: &'a str,
    pub mail_version: &'a str,
}

/// Appends a request. A control character of a value becomes `?`, since a line end would begin another attribute.
pub fn write_request(state: PolicyState, attributes: &PolicyAttributes<'_>, out: &mut Vec<u8>) {
    let mut line = |name: &str, value: &str| {
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        out.extend(value.bytes().map(|octet| if octet.is_ascii_control() { b'?' } else { octet }));
        out.push(b'\n');
    };
    let of = attributes;
    line("request", "smtpd_access_policy");
    line("protocol_state", state.word());
    line("protocol_name", of.protocol_name);
    line("client_address", of.client_address);
    line("client_name", of.client_name);
    line("client_port", &of.client_port.to_string());
    line("reverse_client_name", of.reverse_client_name);
    line("server_address", of.server_address);
    line("server_port", &of.server_port.to_string());
    line("helo_name", of.helo_name);
    line("sender", of.sender);
    line("recipient", of.recipient);
    line("recipient_count", &of.recipient_count.to_string());
    line("queue_id", of.queue_id);
    line("instance", of.instance);
    line("size", &of.size.to_string());
    line("etrn_domain", of.etrn_domain);
    line("stress", if of.stress { "yes" } else { "" });
    line("sasl_method", of.sasl_method);
    line("sasl_username", of.sasl_username);
    line("sasl_sender", of.sasl_sender);
    line("ccert_subject", of.ccert_subject);
    line("ccert_issuer", of.ccert_issuer);
    line("ccert_fingerprint", of.ccert_fingerprint);
    line("ccert_pubkey_fingerprint", of.ccert_pubkey_fingerprint);
    line("encryption_protocol", of.encryption_protocol);
    line("encryption_cipher", of.encryption_cipher);
    line("encryption_keysize", &of.encryption_keysize.to_string());
    line("policy_context", of.policy_context);
    line("compatibility_level", "3.6");
    line("mail_version", of.mail_version);
    out.push(b'\n');
}

/// The server's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    /// Go on; later checks decide.
    Dunno,
    /// Go on, and ask no later policy server about this.
    Ok,
    /// Refuse for good.
    Reject(Reply),
    /// Refuse it temporarily, with a 4yz reply.
    Defer(Reply),
    /// Answer 4yz, unless another check answers 5yz.
    DeferIfPermit(Reply),
    /// Answer 4yz where another check answers 5yz.
    DeferIfReject(Reply),
    /// Refuse with 421 or 521, and close the connection.
    Disconnect(Reply),
    /// Put a field before the others.
    Prepend {
        /// The name.
        name: Vec<u8>,
        /// The octets behind the colon.
        value: Vec<u8>,
    },
    /// Take the message and leave it in the queue until an operator releases it. The text is the reason.
    Hold(String),
    /// Take the message and drop it. The text is the reason.
    Discard(String),
    /// Deliver to this address in place of all recipients.
    Redirect(Address),
    /// Deliver to this address as well.
    Copy(Address),
    /// Go on, and log this text: `INFO`, `WARN`.
    Log(String),
    /// Go on; the action is not supported, and this text for the log says so.
    NotSupported(String),
}

/// A fault of a policy server, or of what answers at its address. The connection is of no use afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The reply has a line that is no attribute, or no action.
    OtherProtocol {
        /// The beginning of the answer, escaped and cut.
        begins: String,
    },
    /// The reply exceeds 16,384 octets.
    TooLong,
    /// The connection ended within the reply.
    Incomplete,
    /// The text of an action cannot be used.
    Malformed {
        /// The action.
        action: String,
        /// The fault.
        what: &'static str,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProtocol { begins } => {
                write!(f, "this is no policy server: its answer \"{begins}\" lacks \"action=\"")
            }
            Self::TooLong => write!(f, "the policy server's reply exceeds {REPLY_BYTES_MAX} octets"),
            Self::Incomplete => f.write_str("the policy server closed the connection within its reply"),
            Self::Malformed { action, what } => write!(f, "the policy server's action \"{action}\" has {what}"),
        }
    }
}

impl std::error::Error for PolicyError {}

/// Cuts what a policy server sends into replies.
#[derive(Debug, Default)]
pub struct PolicyReplyReader {
    buffer: Vec<u8>,
}

impl PolicyReplyReader {
    /// Takes octets, and returns the action when the reply is whole. `is_end` says that the connection ended.
    ///
    /// # Errors
    /// Every fault of [`PolicyError`].
    pub fn push(&mut self, octets: &[u8], is_end: bool) -> Result<Option<PolicyAction>, PolicyError> {
        self.buffer.extend_from_slice(octets);
        let Some((attributes, bytes)) = lines(&self.buffer) else {
            let begins_otherwise = self.buffer.split_inclusive(|&octet| octet == b'\n').any(is_no_attribute);
            if begins_otherwise {
                return Err(self.other_protocol());
            }
            if self.buffer.len() > REPLY_BYTES_MAX {
                return Err(PolicyError::TooLong);
            }
            return if is_end { Err(PolicyError::Incomplete) } else { Ok(None) };
        };
        if bytes > REPLY_BYTES_MAX {
            return Err(PolicyError::TooLong);
        }
        let action = attributes.iter().find_map(|line| line.strip_prefix("action="));
        let Some(action) = action.filter(|_| attributes.iter().all(|line| line.contains('='))) else {
            return Err(self.other_protocol());
        };
        let action = read_action(action)?;
        self.buffer.drain(..bytes);
        Ok(Some(action))
    }

    /// Whether octets are left that belong to no request: a reply too many.
    #[must_use]
    pub const fn has_rest(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn other_protocol(&self) -> PolicyError {
        /// Octets that are shown.
        const SHOWN: usize = 40;
        PolicyError::OtherProtocol {
            begins: self.buffer.get(..SHOWN).unwrap_or(&self.buffer).escape_ascii().to_string(),
        }
    }
}

/// Whether a whole line is neither empty nor an attribute.
fn is_no_attribute(line: &[u8]) -> bool {
    line.ends_with(b"\n") && !line.trim_ascii().is_empty() && !line.contains(&b'=')
}

/// Returns the lines up to an empty one, and their octets with it.
fn lines(octets: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut lines = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', octets) {
        let line = octets.get(start..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        start = end + 1;
        if line.is_empty() {
            return Some((lines, start));
        }
        lines.push(String::from_utf8_lossy(line).into_owned());
    }
    None
}

/// Reads `WORD TEXT`.
fn read_action(text: &str) -> Result<PolicyAction, PolicyError> {
    let text = clean(text, TEXT_BYTES_MAX);
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
    let rest = rest.trim();
    let bad = |what| PolicyError::Malformed { action: text.clone(), what };
    let reject = || reply_of(ReplyCode::of(554), EnhancedCode::of(Outcome::Permanent, 7, 1), rest, "Access denied");
    let defer = || {
        reply_of(ReplyCode::of(450), EnhancedCode::of(Outcome::Transient, 7, 1), rest, "Service is not available now")
    };
    let address =
        || Address::parse(rest.trim_matches(['<', '>']).as_bytes()).map_err(|_| bad("an address that cannot be read"));
    Ok(match word.to_ascii_uppercase().as_str() {
        "DUNNO" => PolicyAction::Dunno,
        "OK" => PolicyAction::Ok,
        "REJECT" => PolicyAction::Reject(reject()),
        "DEFER" => PolicyAction::Defer(defer()),
        "DEFER_IF_PERMIT" => PolicyAction::DeferIfPermit(defer()),
        "DEFER_IF_REJECT" => PolicyAction::DeferIfReject(defer()),
        "PREPEND" => prepend(rest).map_err(bad)?,
        "HOLD" => PolicyAction::Hold(rest.to_owned()),
        "DISCARD" => PolicyAction::Discard(rest.to_owned()),
        "REDIRECT" => PolicyAction::Redirect(address()?),
        "BCC" => PolicyAction::Copy(address()?),
        "INFO" | "WARN" => PolicyAction::Log(rest.to_owned()),
        digits if !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit()) => code_action(digits, rest),
        _ => PolicyAction::NotSupported(format!("the action \"{text}\" is not supported and counts as DUNNO")),
    })
}

/// Reads the text of `PREPEND`: a field in one line.
fn prepend(field: &str) -> Result<PolicyAction, &'static str> {
    let (name, value) = field.split_once(':').ok_or("no colon behind the name of its field")?;
    if !is_field_name(name.as_bytes()) {
        return Err("a field name that is none");
    }
    let value = folded_value(value.trim().as_bytes(), false)?;
    Ok(PolicyAction::Prepend { name: name.into(), value })
}

/// Reads an action that begins with digits: a reply code, or a number as tables of addresses have it, which permits.
fn code_action(digits: &str, text: &str) -> PolicyAction {
    let code = digits.parse().ok().filter(|_| digits.len() == 3).and_then(ReplyCode::new);
    let Some(code) = code.filter(|code| code.get() >= 400) else { return PolicyAction::Ok };
    let outcome = code.outcome().unwrap_or(Outcome::Transient);
    let reply = reply_of(code, EnhancedCode::of(outcome, 7, 1), text, "Access denied");
    match code.get() {
        421 | 521 => PolicyAction::Disconnect(reply),
        ..500 => PolicyAction::Defer(reply),
        _ => PolicyAction::Reject(reply),
    }
}

#[cfg(test)]
mod tests;
