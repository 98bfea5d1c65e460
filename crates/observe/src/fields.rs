//! The values of an event as a list of names and typed values.
//!
//! JSON is written from it; the test of the sendmail lines looks values up in it. The names are those of sendmail's
//! fields where it has the field.

use crate::{CommandBy, Event, Fate, NextHop, Relay};
use mail::{EnhancedCode, QueueId, Reply};
use std::net::IpAddr;
use std::time::Duration;

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Signed(i64),
    Flag(bool),
    /// In JSON with milliseconds.
    Seconds(Duration),
    Id(QueueId),
    Enhanced(EnhancedCode),
    Address(IpAddr),
    Socket(std::net::SocketAddr),
    Texts(&'a [String]),
    List(&'a [&'a str]),
}

/// Takes the values of an event, one by one.
pub(crate) struct Visitor<'v, 'a>(pub(crate) &'v mut dyn FnMut(&'static str, Value<'a>));

impl<'a> Visitor<'_, 'a> {
    fn text(&mut self, name: &'static str, text: &'a str) {
        (self.0)(name, Value::Text(text));
    }

    fn number(&mut self, name: &'static str, number: u64) {
        (self.0)(name, Value::Number(number));
    }

    fn count(&mut self, name: &'static str, count: usize) {
        self.number(name, u64::try_from(count).unwrap_or(u64::MAX));
    }

    fn relay(&mut self, relay: Relay<'a>) {
        match relay {
            Relay::Host { name, address, may_be_forged } => {
                if let Some(name) = name {
                    self.text("client_name", name);
                }
                (self.0)("client_ip", Value::Address(address));
                if may_be_forged {
                    (self.0)("may_be_forged", Value::Flag(true));
                }
            }
            Relay::Local { user } => self.text("client_user", user),
        }
    }

    fn next_hop(&mut self, next_hop: NextHop<'a>) {
        if let Some(name) = next_hop.name() {
            self.text("relay", name);
        }
        if let Some(address) = next_hop.address() {
            (self.0)("relay_ip", Value::Address(address));
        }
    }

    /// The code alone; the writer adds the enhanced code and the text, which have to be put together.
    fn reply(&mut self, reply: &'a Reply) {
        self.number("reply_code", u64::from(reply.code().get()));
    }
}

impl<'a> Event<'a> {
    /// Gives every value but the id and the text of the reply.
    pub(crate) fn visit(&self, v: &mut Visitor<'_, 'a>) {
        if let Some(relay) = self.relay() {
            v.relay(relay);
        }
        if !self.visit_mail(v) && !self.visit_session(v) && !self.visit_delivery(v) {
            self.visit_process(v);
        }
        if let Some(next_hop) = self.next_hop() {
            v.next_hop(next_hop);
        }
        if let Some(reply) = self.reply() {
            v.reply(reply);
        }
    }

    /// The reply that the client was given, or that the next hop gave.
    pub(crate) const fn reply(&self) -> Option<&'a Reply> {
        match *self {
            Self::ConnectionRefused { reply, .. } | Self::Rejected { reply, .. } => Some(reply),
            Self::Delivery { reply, .. } => reply,
            _ => None,
        }
    }

    fn visit_mail(&self, v: &mut Visitor<'_, 'a>) -> bool {
        match *self {
            Self::Rejected { ruleset, arg1, arg2, .. } => {
                v.text("ruleset", ruleset.name());
                for (name, arg) in [("arg1", arg1), ("arg2", arg2)] {
                    if let Some(arg) = arg {
                        v.text(name, arg);
                    }
                }
            }
            Self::Ruled { ruleset, arg1, fate, .. } => {
                v.text("ruleset", ruleset.name());
                v.text("arg1", arg1);
                match fate {
                    Fate::Discard => (v.0)("discard", Value::Flag(true)),
                    Fate::Quarantine(reason) => v.text("quarantine", reason),
                }
            }
            Self::TransactionRefused { from, size, protocol, daemon, .. } => {
                v.text("from", from);
                v.number("size", size);
                v.text("proto", protocol.keyword());
                v.text("daemon", daemon);
            }
            Self::Accepted {
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
                ..
            } => {
                v.text("from", from);
                v.number("size", size);
                (v.0)("class", Value::Signed(i64::from(class)));
                v.count("nrcpts", nrcpts);
                if let Some(msgid) = msgid {
                    v.text("msgid", msgid);
                }
                if let Some(bodytype) = bodytype {
                    v.text("bodytype", bodytype.keyword());
                }
                v.text("proto", protocol.keyword());
                v.text("daemon", daemon);
                if let Some(priority) = mt_priority {
                    (v.0)("mt_priority", Value::Signed(i64::from(priority.get())));
                }
                if let Some(identity) = identity {
                    v.text("authid", identity);
                }
            }
            Self::Queued { to, mailer, priority, quarantine, .. } => {
                (v.0)("to", Value::List(to));
                v.text("mailer", mailer);
                (v.0)("pri", Value::Signed(priority));
                if let Some(reason) = quarantine {
                    v.text("quarantine", reason);
                }
                v.text("stat", if quarantine.is_some() { "quarantined" } else { "queued" });
            }
            Self::Discarded { .. } => {}
            Self::RecipientsDiscarded { to, .. } => {
                (v.0)("to", Value::List(to));
                v.text("stat", "discarded");
            }
            Self::Cloned { first, owner, .. } => {
                (v.0)("first", Value::Id(first));
                v.text("owner", owner);
            }
            Self::SenderChecked { summary, author, results, why, .. } => {
                v.text("auth", summary.name());
                v.text("author", author);
                for (method, result) in results {
                    v.text(method.name(), result.name());
                }
                if !why.is_empty() {
                    v.text("why", why);
                }
            }
            Self::Signed { kind, domain, selector, failure, .. } => {
                let result = if failure.is_some() { "failed" } else { "ok" };
                let fields =
                    [("signature", kind.name()), ("domain", domain), ("selector", selector), ("result", result)];
                fields.into_iter().chain(failure.map(|why| ("why", why))).for_each(|(name, text)| v.text(name, text));
            }
            Self::Screened { verdict, by, place, to, action, .. } => {
                v.text("screen", verdict.name());
                for (name, text) in [("by", by), ("place", place), ("to", to), ("action", action)] {
                    v.text(name, text);
                }
            }
            _ => return false,
        }
        true
    }

    fn visit_session(&self, v: &mut Visitor<'_, 'a>) -> bool {
        match *self {
            Self::Connected { daemon, .. } | Self::NoMail { daemon, .. } => v.text("daemon", daemon),
            Self::ConnectionRefused { daemon, limit, value, max, .. } => {
                v.text("daemon", daemon);
                v.text("limit", limit.name());
                v.number("value", value);
                v.number("max", max);
            }
            Self::EarlyTalker { after_seconds, .. } => v.number("after_seconds", after_seconds),
            Self::DnsblListed { zone, answer, weight, .. } => {
                v.text("zone", zone);
                (v.0)("answer", Value::Address(answer));
                (v.0)("weight", Value::Signed(i64::from(weight)));
            }
            Self::StartTls { version, cipher, bits, verify, subject, issuer, why, .. } => {
                v.text("version", version);
                v.text("verify", verify);
                v.text("cipher", cipher);
                v.number("bits", u64::from(bits));
                for (name, text) in [("cert_subject", subject), ("cert_issuer", issuer), ("verifymsg", why)] {
                    if let Some(text) = text {
                        v.text(name, text);
                    }
                }
            }
            Self::TlsFailed { reason, .. } => v.text("reason", reason),
            Self::HttpCertificateRefused { subject, why, .. } => {
                if let Some(subject) = subject {
                    v.text("cert_subject", subject);
                }
                v.text("reason", why);
            }
            Self::Auth { identity, mechanism, .. } => {
                v.text("authid", identity);
                v.text("mech", mechanism);
            }
            Self::AuthFailed { identity, mechanism, reason, .. } => {
                if let Some(identity) = identity {
                    v.text("user", identity);
                }
                v.text("mech", mechanism);
                v.text("reason", reason);
            }
            Self::LoginOverLimit { identity, count, max, .. } => {
                v.text("user", identity);
                v.number("recipients", count);
                v.text("limit", "auth.recipients_hour_max");
                v.number("max", max);
            }
            Self::ForeignProtocol { command, .. } => v.text("command", command),
            Self::BareNewline { refused, .. } => (v.0)("refused", Value::Flag(refused)),
            Self::LimitReached { limit, max, .. } => {
                v.text("limit", limit.name());
                v.number("max", max);
            }
            Self::LostInput { daemon, after, .. } => {
                v.text("daemon", daemon);
                v.text("after", after);
            }
            Self::TimedOut { during, .. } => v.text("during", during),
            _ => return false,
        }
        true
    }

    fn visit_delivery(&self, v: &mut Visitor<'_, 'a>) -> bool {
        match *self {
            Self::Delivery { to, controller, delay, xdelay, mailer, priority, dsn, stat, reason, .. } => {
                (v.0)("to", Value::List(to));
                if let Some(controller) = controller {
                    v.text("ctladdr", controller.address);
                    if let Some((uid, gid)) = controller.owner {
                        v.number("ctladdr_uid", uid.into());
                        v.number("ctladdr_gid", gid.into());
                    }
                }
                (v.0)("delay", Value::Seconds(delay));
                (v.0)("xdelay", Value::Seconds(xdelay));
                v.text("mailer", mailer);
                (v.0)("pri", Value::Signed(priority));
                (v.0)("dsn", Value::Enhanced(dsn));
                v.text("stat", stat.word());
                if let Some(reason) = reason {
                    v.text("reason", reason.name());
                }
                v.text("text", stat.text());
            }
            Self::Reported { report, kind, text, .. } => {
                (v.0)("report", Value::Id(report));
                v.text("kind", kind.name());
                v.text("text", text);
            }
            Self::Unreportable { text, .. } => v.text("text", text),
            Self::StartTlsClient { version, cipher, bits, verify, .. } => {
                v.text("version", version);
                v.text("verify", verify);
                v.text("cipher", cipher);
                v.number("bits", u64::from(bits));
            }
            Self::TlsClientFailed { reason, .. } => v.text("reason", reason),
            Self::DestinationDown { destination, why, retry } => {
                v.text("destination", destination);
                (v.0)("retry", Value::Seconds(retry));
                v.text("why", why);
            }
            Self::DestinationUp { destination, down } => {
                v.text("destination", destination);
                (v.0)("down", Value::Seconds(down));
            }
            Self::QuarantineDigest { messages, to, .. } => {
                v.text("digest", "stored");
                v.number("messages", messages);
                v.text("to", to);
            }
            Self::Adopted { was, may_be_duplicate, .. } => {
                (v.0)("adopted", Value::Id(was));
                v.text("duplicate", if may_be_duplicate { "possible" } else { "no" });
            }
            Self::HoldEnded { recipients, by, why, .. } => {
                v.text("hold", "ended");
                v.number("recipients", recipients);
                v.text("by", by);
                v.text("why", why);
            }
            Self::StandingOrder { what, name, text, by } => {
                v.text("order", what);
                v.text("name", name);
                match by {
                    Some(CommandBy::User(uid)) => v.number("uid", uid.into()),
                    Some(CommandBy::Token(name)) => v.text("http", name),
                    None => {}
                }
                v.text("why", text);
            }
            Self::QueueCommand { what, messages, recipients, by, copy, to, .. } => {
                v.text("queue", what);
                v.number("messages", messages);
                v.number("recipients", recipients);
                match by {
                    CommandBy::User(uid) => v.number("uid", uid.into()),
                    CommandBy::Token(name) => v.text("http", name),
                }
                if let Some(copy) = copy {
                    (v.0)("copy", Value::Id(copy));
                }
                if let Some(to) = to {
                    v.text("to", to);
                }
            }
            _ => return false,
        }
        true
    }

    fn visit_process(&self, v: &mut Visitor<'_, 'a>) {
        match *self {
            Self::Started { version, spool, volatile, listeners, user, uid, gid } => {
                v.text("version", version);
                v.text("spool", spool);
                (v.0)("volatile", Value::Flag(volatile));
                v.count("listeners", listeners);
                v.text("user", user);
                v.number("uid", uid.into());
                v.number("gid", gid.into());
            }
            Self::Listening { daemon, address, protocol, tls } => {
                v.text("daemon", daemon);
                (v.0)("address", Value::Socket(address));
                v.text("protocol", protocol);
                v.text("tls", tls);
            }
            Self::Stopping { why, connections } => {
                v.text("why", why);
                v.count("connections", connections);
            }
            Self::Stopped { cut_off, deliveries_cut_off } => {
                v.count("cut_off", cut_off);
                v.number("deliveries_cut_off", deliveries_cut_off);
            }
            Self::Reloaded { path, retried } => {
                v.text("file", path);
                if let Some(retried) = retried {
                    v.text("retried", retried);
                }
            }
            Self::ReloadRefused { path, errors } => {
                v.text("file", path);
                (v.0)("errors", Value::Texts(errors));
            }
            Self::ConfigWarning { text }
            | Self::FileRefused { text }
            | Self::ExtensionAvoided { text }
            | Self::Spool { text, .. }
            | Self::Cluster { text, .. }
            | Self::Hardening { text, .. } => {
                v.text("text", text);
            }
            Self::CertificateLoaded { path, names, not_after } => {
                v.text("file", path);
                v.text("names", names);
                v.text("not_after", not_after);
            }
            Self::CertificateRefused { path, error } => {
                v.text("file", path);
                v.text("error", error);
            }
            Self::LogDropped { lines } => v.number("lines", lines),
            Self::InternalError { place, text } => {
                v.text("place", place);
                v.text("text", text);
            }
            _ => {}
        }
    }
}
