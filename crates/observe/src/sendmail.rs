//! sendmail's lines: `Nov 20 13:00:00 host tag[pid]: ID: key=value, key=value`.
//!
//! Order and words of the fields are sendmail 8.18's, so that tools that read its log go on working. Where sendmail has
//! no such line the words are ours. A line is one line whatever a peer sent, at most [`LINE_MAX`] octets, and splits at
//! `, ` into the fields written here; only the last field may hold free text. See `escape`.

mod delivery;
mod ruling;

pub(crate) use delivery::split;

use crate::escape::{self, TextPosition};
use crate::{Event, Limit, Relay, Ruleset, SaslError};
use mail::Reply;
use mail::decimal::{push_decimal, push_ip};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Longest line, in octets, with its prefix and without a line end.
pub const LINE_MAX: usize = 2_048;
/// Longest prefix, in octets.
const PREFIX_MAX: usize = 16 + HOST_MAX + 1 + TAG_MAX + "[4294967295]: ".len();
/// Longest part after the prefix.
const PART_MAX: usize = LINE_MAX - PREFIX_MAX;

const HOST_MAX: usize = 255;
const TAG_MAX: usize = 64;
/// RFC 5321 §4.5.3.1.3 gives a path 256 octets; some room for escapes.
const PATH_MAX: usize = 300;
const MSGID_MAX: usize = 300;
const REPLY_MAX: usize = 400;
const STAT_MAX: usize = 400;
const WORD_MAX: usize = 64;
/// Fields about OpenSSL behind the reason of a failed handshake: a fatal error of the protocol, none of the system.
/// Readers of the log expect them in this place.
const TLS_ERROR: &str = ", SSL_error=1, errno=0, retry=-1";
const TEXT_MAX: usize = 1_200;

/// A moment in the zone of the machine, as far as a line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// 1..=12
    pub month: u8,
    /// 1..=31
    pub day: u8,
    /// 0..=23
    pub hour: u8,
    /// 0..=59
    pub minute: u8,
    /// 0..=60
    pub second: u8,
}

/// Appends what stands before [`write`]'s part: `Nov 20 13:00:00 host tag[pid]: `, without the host if it is `None`.
pub fn prefix(time: Civil, host: Option<&str>, tag: &str, pid: u32, out: &mut String) {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.get(usize::from(time.month).wrapping_sub(1)).copied().unwrap_or("???");
    let Civil { day, hour, minute, second, .. } = time;
    put(out, format_args!("{month} {day:>2} {hour:02}:{minute:02}:{second:02} "));
    if let Some(host) = host {
        escape::push(out, host, TextPosition::Word, HOST_MAX);
        out.push(' ');
    }
    escape::push(out, tag, TextPosition::Word, TAG_MAX);
    put(out, format_args!("[{pid}]: "));
}

/// Appends the part of the line after the prefix, without a line end.
///
/// A list of recipients may need several lines: then the rest is returned as an event to write next.
pub fn write<'a>(event: &Event<'a>, out: &mut String) -> Option<Event<'a>> {
    let start = out.len();
    write_id(event, out);
    let rest = match *event {
        Event::Queued { .. } | Event::RecipientsDiscarded { .. } | Event::Delivery { .. } => {
            delivery::write_to(event, out)
        }
        Event::Accepted { .. } | Event::TransactionRefused { .. } => {
            write_from(event, out);
            None
        }
        _ => {
            if !write_session(event, out) && !ruling::write(event, out) && !delivery::write(event, out) {
                write_process(event, out);
            }
            None
        }
    };
    // Every value has its own bound and they add up to less; this keeps the bound when a value is added above.
    if out.len() - start > PART_MAX {
        let end = (start..=start + PART_MAX).rev().find(|end| out.is_char_boundary(*end));
        out.truncate(end.unwrap_or(start));
    }
    rest
}

/// The queue id, `NOQUEUE` where a client has none yet, nothing where sendmail has nothing.
fn write_id(event: &Event<'_>, out: &mut String) {
    // The id of the first message of a transaction stands before that of its clone.
    let id = if let Event::Cloned { first, .. } = event { Some(*first) } else { event.id() };
    if let Some(id) = id {
        escape::push_id(out, id);
        out.push_str(": ");
    } else if event.relay().is_some() && !is_without_session(event) {
        out.push_str("NOQUEUE: ");
    }
}

/// True for the lines about clients that sendmail writes with neither an id nor `NOQUEUE`.
const fn is_without_session(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::StartTls { .. }
            | Event::TlsFailed { .. }
            | Event::HttpCertificateRefused { .. }
            | Event::Auth { .. }
            | Event::ConnectionRefused { .. }
            | Event::Rejected { ruleset: Ruleset::Relay, .. }
    )
}

/// `from,size,class,nrcpts,msgid,bodytype,proto,daemon,relay`, in this order.
fn write_from(event: &Event<'_>, out: &mut String) {
    let (from, size, class, nrcpts, msgid, bodytype, priority, protocol, daemon, identity, relay) = match *event {
        Event::Accepted {
            from,
            size,
            class,
            nrcpts,
            msgid,
            bodytype,
            mt_priority,
            protocol,
            daemon,
            identity,
            relay,
            ..
        } => (from, size, class, nrcpts, msgid, bodytype, mt_priority, protocol, daemon, identity, relay),
        Event::TransactionRefused { from, size, protocol, daemon, relay, .. } => {
            (from, size, 0, 0, None, None, None, protocol, daemon, None, relay)
        }
        _ => return,
    };
    value(out, "from=", from, PATH_MAX);
    out.push_str(", size=");
    push_decimal(out, size);
    out.push_str(", class=");
    push_decimal(out, class);
    out.push_str(", nrcpts=");
    push_decimal(out, nrcpts);
    if let Some(msgid) = msgid {
        value(out, ", msgid=", msgid, MSGID_MAX);
    }
    if let Some(bodytype) = bodytype {
        out.push_str(", bodytype=");
        out.push_str(bodytype.keyword());
    }
    out.push_str(", proto=");
    out.push_str(protocol.keyword());
    word(out, ", daemon=", daemon);
    // A field of our own, where sendmail 8.17 and later have tls_verify= and auth=; readers of its log skip unknown
    // fields.
    if let Some(priority) = priority {
        put(out, format_args!(", mt_priority={priority}"));
    }
    if let Some(identity) = identity {
        value(out, ", authid=", identity, 2 * WORD_MAX);
    }
    write_relay(", relay=", relay, out);
}

/// Lines about a client. False: the event is none of them.
fn write_session(event: &Event<'_>, out: &mut String) -> bool {
    match *event {
        Event::Connected { relay, .. } => write_relay("connect from ", relay, out),
        Event::ConnectionRefused { relay, daemon, limit, value, max, reply } => {
            write_connection_refused(relay, daemon, limit, (value, max), reply, out);
        }
        Event::EarlyTalker { relay, after_seconds, .. } => {
            write_relay("rejecting commands from ", relay, out);
            put(out, format_args!(" due to pre-greeting traffic after {after_seconds} seconds"));
        }
        Event::DnsblListed { relay, zone, answer, weight } => {
            word(out, "dnsbl=", zone);
            put(out, format_args!(", answer={answer}, weight={weight}"));
            write_relay(", relay=", relay, out);
        }
        Event::StartTls { relay, version, cipher, bits, verify, subject, issuer, why } => {
            write_relay("STARTTLS=server, relay=", relay, out);
            word(out, ", version=", version);
            word(out, ", verify=", verify);
            word(out, ", cipher=", cipher);
            put(out, format_args!(", bits={bits}/{bits}"));
            // A line of its own in sendmail.
            for (name, text) in [(", cert-subject=", subject), (", cert-issuer=", issuer), (", verifymsg=", why)] {
                if let Some(text) = text {
                    value(out, name, text, PATH_MAX);
                }
            }
        }
        Event::TlsFailed { relay, reason } => {
            value(out, "STARTTLS=server, error: accept failed=-1, reason=", reason, PATH_MAX);
            out.push_str(TLS_ERROR);
            write_relay(", relay=", relay, out);
        }
        Event::HttpCertificateRefused { relay, subject, why } => {
            write_relay("http: certificate refused, relay=", relay, out);
            if let Some(subject) = subject {
                value(out, ", cert_subject=", subject, PATH_MAX);
            }
            value(out, ", reason=", why, PATH_MAX);
        }
        Event::Auth { relay, identity, mechanism } => {
            write_relay("AUTH=server, relay=", relay, out);
            value(out, ", authid=", identity, 2 * WORD_MAX);
            word(out, ", mech=", mechanism);
            out.push_str(", bits=0");
        }
        Event::AuthFailed { relay, identity, mechanism, error, reason, .. } => {
            write_auth_failure(mechanism, error, reason, out);
            // Always there, so that a line can be told by it; empty: no name was given.
            value(out, ", user=", identity.unwrap_or_default(), 2 * WORD_MAX);
            write_relay(", relay=", relay, out);
        }
        Event::LoginOverLimit { relay, identity, count, max } => {
            value(out, "too many recipients of a login, its password may be stolen: user=", identity, 2 * WORD_MAX);
            put(out, format_args!(", recipients={count}, limit=auth.recipients_hour_max, max={max}"));
            write_relay(", relay=", relay, out);
        }
        Event::ForeignProtocol { relay, command, .. } => {
            write_relay("", relay, out);
            value(out, ": probable open proxy: command=", command, WORD_MAX);
        }
        Event::BareNewline { relay, refused, .. } => {
            out.push_str("bare CR or LF ");
            out.push_str(if refused { "refused" } else { "made CRLF" });
            write_relay(", relay=", relay, out);
        }
        Event::LimitReached { relay, limit, max, .. } => {
            put(out, format_args!("limit={}, max={max}", limit.name()));
            write_relay(", relay=", relay, out);
        }
        Event::NoMail { relay, daemon, .. } => {
            write_relay("", relay, out);
            word(out, " did not issue MAIL/EXPN/VRFY/ETRN during connection to ", daemon);
        }
        Event::LostInput { relay, daemon, after, .. } => {
            write_relay("lost input channel from ", relay, out);
            word(out, " to ", daemon);
            let from = out.len();
            word(out, " after ", after);
            if let Some(written) = out.get_mut(from..) {
                written.make_ascii_lowercase();
            }
        }
        Event::TimedOut { relay, during, .. } => {
            write_relay("timeout waiting for input from ", relay, out);
            value(out, " during ", during, WORD_MAX);
        }
        _ => return false,
    }
    true
}

/// `AUTH failure (LOGIN): authentication failure (-13) SASL(-13): authentication failure: reason`.
fn write_auth_failure(mechanism: &str, error: SaslError, reason: &str, out: &mut String) {
    word(out, "AUTH failure (", mechanism);
    let (words, number) = (error.words(), error.number());
    put(out, format_args!("): {words} ({number}) SASL({number}): {words}: "));
    // Readers of the log take the reason up to the first comma.
    for (index, part) in reason.split(',').enumerate() {
        value(out, if index > 0 { ";" } else { "" }, part, PATH_MAX);
    }
}

/// About the listener when it is full for all clients, else as a ruleset would refuse the client.
fn write_connection_refused(
    relay: Relay<'_>,
    daemon: &str,
    limit: Limit,
    (value, max): (u64, u64),
    reply: &Reply,
    out: &mut String,
) {
    match limit {
        Limit::AcceptConnectionsMax | Limit::ListenConnectionsMax => {
            word(out, "rejecting connections on daemon ", daemon);
            put(out, format_args!(": {value} children, max {max}"));
        }
        Limit::AcceptRate => {
            word(out, "rejecting connections on daemon ", daemon);
            put(out, format_args!(": {value} per second, max {max}"));
        }
        _ => {
            out.push_str("ruleset=check_relay");
            if let Relay::Host { name, address, .. } = relay {
                out.push_str(", arg1=");
                match name {
                    Some(name) => escape::push(out, name, TextPosition::Word, HOST_MAX),
                    None => write_address(address, out),
                }
                put(out, format_args!(", arg2={address}"));
            }
            write_relay(", relay=", relay, out);
            write_reply(reply, out);
        }
    }
}

/// Lines about the process.
fn write_process(event: &Event<'_>, out: &mut String) {
    match *event {
        Event::Started { version, spool, volatile, listeners, user, uid, gid } => {
            word(out, "starting daemon (", version);
            value(out, "): spool=", spool, PATH_MAX);
            put(out, format_args!(", listeners={listeners}"));
            word(out, ", user=", user);
            put(out, format_args!(", uid={uid}, gid={gid}"));
            if volatile {
                out.push_str(", volatile: the spool lies in memory and a power cut loses mail");
            }
        }
        Event::Hardening { text, .. } => end(out, "hardening: ", text),
        Event::Listening { daemon, address, protocol, tls } => {
            word(out, "listening: daemon=", daemon);
            put(out, format_args!(", address={address}"));
            word(out, ", protocol=", protocol);
            word(out, ", tls=", tls);
        }
        Event::Stopping { why, connections } => {
            value(out, "stopping daemon: why=", why, WORD_MAX);
            put(out, format_args!(", connections={connections}"));
        }
        Event::Stopped { cut_off, deliveries_cut_off } => {
            put(out, format_args!("stopped daemon: cut_off={cut_off}, deliveries_cut_off={deliveries_cut_off}"));
        }
        Event::Reloaded { path, retried } => {
            value(out, "configuration reloaded: file=", path, PATH_MAX);
            match retried {
                Some(changed) => end(out, ", waiting mail is tried again: changed=", changed),
                None => out.push_str(", waiting mail keeps its times"),
            }
        }
        Event::ReloadRefused { path, errors } => {
            value(out, "configuration not reloaded, the old one stays: file=", path, PATH_MAX);
            put(out, format_args!(", errors={}, ", errors.len()));
            let mut room = TEXT_MAX;
            for (index, error) in errors.iter().enumerate() {
                let start = out.len();
                escape::push(out, if index > 0 { "; " } else { "" }, TextPosition::End, room);
                escape::push(out, error, TextPosition::End, room.saturating_sub(2).max(3));
                room = room.saturating_sub(out.len() - start);
                if room < WORD_MAX {
                    break;
                }
            }
        }
        Event::ConfigWarning { text } => end(out, "configuration: ", text),
        Event::ExtensionAvoided { text } => end(out, "extension not used: ", text),
        Event::FileRefused { text } => end(out, "SECURITY: file not read: ", text),
        Event::CertificateLoaded { path, names, not_after } => {
            value(out, "certificate loaded: file=", path, PATH_MAX);
            value(out, ", names=", names, PATH_MAX);
            word(out, ", not_after=", not_after);
        }
        Event::CertificateRefused { path, error } => {
            value(out, "certificate not loaded, the old one stays: file=", path, PATH_MAX);
            end(out, ", ", error);
        }
        Event::Spool { text, .. } => end(out, "spool: ", text),
        Event::Cluster { text, .. } => end(out, "cluster: ", text),
        Event::Adopted { was, may_be_duplicate, .. } => {
            let duplicate = if may_be_duplicate { "possible" } else { "no" };
            put(out, format_args!("adopted={was}, duplicate={duplicate}"));
        }
        Event::LogDropped { lines } => {
            put(out, format_args!("log: {lines} lines dropped, the writer cannot keep up"));
        }
        Event::InternalError { place, text } => {
            word(out, "SYSERR: internal error in ", place);
            end(out, ": ", text);
        }
        _ => {}
    }
}

/// `name [ip]`, `[ip]`, `name [ip] (may be forged)`, `user@localhost`.
fn write_relay(key: &str, relay: Relay<'_>, out: &mut String) {
    out.push_str(key);
    match relay {
        Relay::Host { name, address, may_be_forged } => {
            if let Some(name) = name {
                escape::push(out, name, TextPosition::Word, HOST_MAX);
                out.push(' ');
            }
            write_address(address, out);
            if may_be_forged {
                out.push_str(" (may be forged)");
            }
        }
        Relay::Local { user } => {
            escape::push(out, user, TextPosition::Word, WORD_MAX);
            out.push_str("@localhost");
        }
    }
}

// RFC 5321 §4.1.3
pub(crate) fn write_address(address: IpAddr, out: &mut String) {
    match address {
        IpAddr::V4(_) => out.push('['),
        IpAddr::V6(_) => out.push_str("[IPv6:"),
    }
    push_ip(out, address);
    out.push(']');
}

/// The reply at the end of the line: its commas are as they are.
fn write_reply(reply: &Reply, out: &mut String) {
    write_reply_text(", reject=", reply, TextPosition::End, REPLY_MAX, out);
}

/// Codes and text on one line, the lines joined by spaces.
fn write_reply_text(key: &str, reply: &Reply, place: TextPosition, max: usize, out: &mut String) {
    put(out, format_args!("{key}{}", reply.code().get()));
    if let Some(enhanced) = reply.enhanced() {
        put(out, format_args!(" {enhanced}"));
    }
    let start = out.len();
    for line in reply.lines() {
        let room = max.saturating_sub(out.len() - start);
        if room < 8 {
            break;
        }
        out.push(' ');
        escape::push(out, line, place, room - 1);
    }
}

fn value(out: &mut String, key: &str, text: &str, max: usize) {
    out.push_str(key);
    escape::push(out, text, TextPosition::Value, max);
}

fn word(out: &mut String, key: &str, text: &str) {
    out.push_str(key);
    escape::push(out, text, TextPosition::Word, WORD_MAX);
}

fn end(out: &mut String, key: &str, text: &str) {
    out.push_str(key);
    escape::push(out, text, TextPosition::End, TEXT_MAX);
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes everything");
}
