//! Lines about delivery: `to=` with the result, reports, TLS with next hops, destinations, the queue.
//!
//! The order of a `to=` line is sendmail's: `to, delay, xdelay, mailer, pri, relay, dsn, reply, stat`. `stat=` is last
//! and may hold anything; a `, ` in `reply=` becomes `,\040` as in every other value, where sendmail leaves it and
//! another server can write fields into its log.

use super::{
    HOST_MAX, PATH_MAX, STAT_MAX, TLS_ERROR, WORD_MAX, end, put, value, word, write_address, write_reply_text,
};
use crate::escape::{self, TextPosition};
use crate::{CommandBy, Event, NextHop, Stat};
use mail::decimal::{push_decimal, push_two_digits};
use std::time::Duration;

/// Recipients on a line, in octets; the others follow on lines of their own.
const QUEUED_TO_MAX: usize = 1_000;
/// The same where more follows. With all other values at their bounds the line stays below `PART_MAX`.
const DELIVERY_TO_MAX: usize = 480;
/// The longest `ctladdr=`, as in sendmail.
const CONTROLLER_MAX: usize = 83;
/// The octets that such a field takes from the recipients.
const CONTROLLER_FIELD_MAX: usize = CONTROLLER_MAX + ", ctladdr= (4294967295/4294967295)".len();
const REPLY_MAX: usize = 250;

/// The event with as many recipients as go on one line, and the event with the others.
pub(crate) fn split<'a>(event: &Event<'a>) -> (Event<'a>, Option<Event<'a>>) {
    let (to, max) = match *event {
        Event::Queued { to, .. } | Event::RecipientsDiscarded { to, .. } => (to, QUEUED_TO_MAX),
        Event::Delivery { to, controller: Some(_), .. } => (to, DELIVERY_TO_MAX - CONTROLLER_FIELD_MAX),
        Event::Delivery { to, .. } => (to, DELIVERY_TO_MAX),
        _ => return (*event, None),
    };
    let with = |some| {
        let mut event = *event;
        if let Event::Queued { to, .. } | Event::RecipientsDiscarded { to, .. } | Event::Delivery { to, .. } =
            &mut event
        {
            *to = some;
        }
        event
    };
    let (now, later) = split_recipients(to, max);
    (with(now), (!later.is_empty()).then(|| with(later)))
}

/// The recipients that one line holds, at least one, and the others.
fn split_recipients<'a>(to: &'a [&'a str], max: usize) -> (&'a [&'a str], &'a [&'a str]) {
    let mut octets = 0;
    let fit = to.iter().take_while(|recipient| {
        octets += 1 + escape::cost(recipient, TextPosition::Item, PATH_MAX);
        octets <= max
    });
    let fit = fit.count().max(1).min(to.len());
    to.split_at(fit)
}

/// `to=<a>,<b>, delay=00:00:00, mailer=esmtp, pri=60015, stat=queued`; a list that goes on ends in ` [more]`.
pub(super) fn write_to<'a>(event: &Event<'a>, out: &mut String) -> Option<Event<'a>> {
    let (now, later) = split(event);
    if let Event::Queued { to, .. } | Event::RecipientsDiscarded { to, .. } | Event::Delivery { to, .. } = now {
        out.push_str("to=");
        for (index, recipient) in to.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            escape::push(out, recipient, TextPosition::Item, PATH_MAX);
        }
    }
    if later.is_some() {
        out.push_str(", [more]");
    }
    match now {
        Event::Queued { mailer, priority, quarantine, .. } => {
            word(out, ", delay=00:00:00, mailer=", mailer);
            out.push_str(", pri=");
            push_decimal(out, priority);
            if let Some(reason) = quarantine {
                value(out, ", quarantine=", reason, STAT_MAX);
            }
            out.push_str(if quarantine.is_some() { ", stat=quarantined" } else { ", stat=queued" });
        }
        Event::RecipientsDiscarded { .. } => out.push_str(", delay=00:00:00, stat=discarded"),
        Event::Delivery { controller, delay, xdelay, mailer, priority, relay, dsn, reply, stat, .. } => {
            if let Some(controller) = controller {
                // A space of ours may follow.
                let place = if controller.owner.is_some() { TextPosition::Word } else { TextPosition::Value };
                out.push_str(", ctladdr=");
                escape::push(out, controller.address, place, CONTROLLER_MAX);
                if let Some((uid, gid)) = controller.owner {
                    put(out, format_args!(" ({uid}/{gid})"));
                }
            }
            write_time(", delay=", delay, out);
            write_time(", xdelay=", xdelay, out);
            word(out, ", mailer=", mailer);
            out.push_str(", pri=");
            push_decimal(out, priority);
            write_next_hop(relay, out);
            out.push_str(", dsn=");
            dsn.push_to(out);
            if let Some(reply) = reply.filter(|_| !matches!(stat, Stat::Sent(_))) {
                write_reply_text(", reply=", reply, TextPosition::Value, REPLY_MAX, out);
            }
            write_stat(stat, out);
        }
        _ => {}
    }
    later
}

/// The other lines. False: the event is none of them.
pub(super) fn write(event: &Event<'_>, out: &mut String) -> bool {
    match *event {
        Event::Reported { report, kind, text, .. } => {
            escape::push_id(out, report);
            out.push_str(": ");
            out.push_str(kind.words());
            end(out, ": ", text);
        }
        Event::Discarded { .. } => out.push_str("discarded"),
        Event::Cloned { id, owner, .. } => {
            escape::push_id(out, id);
            value(out, ": clone: owner=", owner, PATH_MAX);
        }
        Event::Screened { verdict, by, place, to, action, .. } => {
            word(out, "screen=", verdict.name());
            word(out, ", by=", by);
            value(out, ", place=", place, PATH_MAX);
            value(out, ", to=", to, PATH_MAX);
            end(out, ", action=", action);
        }
        Event::Signed { kind, domain, selector, failure, .. } => {
            word(out, "signature=", kind.name());
            value(out, ", domain=", domain, HOST_MAX);
            word(out, ", selector=", selector);
            out.push_str(if failure.is_some() { ", result=failed" } else { ", result=ok" });
            if let Some(why) = failure {
                end(out, ", why=", why);
            }
        }
        Event::SenderChecked { summary, author, results, why, .. } => {
            word(out, "auth=", summary.name());
            value(out, ", author=", author, HOST_MAX);
            for (method, result) in results {
                put(out, format_args!(", {}=", method.name()));
                out.push_str(result.name());
            }
            if !why.is_empty() {
                end(out, ", why=", why);
            }
        }
        Event::Unreportable { text, .. } => end(out, "report cannot be delivered: ", text),
        Event::StartTlsClient { relay, version, cipher, bits, verify } => {
            out.push_str("STARTTLS=client");
            write_host(relay, out);
            word(out, ", version=", version);
            word(out, ", verify=", verify);
            word(out, ", cipher=", cipher);
            put(out, format_args!(", bits={bits}/{bits}"));
        }
        Event::TlsClientFailed { relay, reason } => {
            value(out, "STARTTLS=client, error: connect failed=-1, reason=", reason, PATH_MAX);
            out.push_str(TLS_ERROR);
            write_host(relay, out);
        }
        Event::DestinationDown { destination, why, retry } => {
            value(out, "destination=", destination, HOST_MAX);
            write_time(", state=down, retry=", retry, out);
            end(out, ", why=", why);
        }
        Event::DestinationUp { destination, down } => {
            value(out, "destination=", destination, HOST_MAX);
            write_time(", state=up, down=", down, out);
        }
        Event::QuarantineDigest { messages, to, .. } => {
            put(out, format_args!("digest=stored, messages={messages}"));
            value(out, ", to=", to, PATH_MAX);
        }
        Event::HoldEnded { recipients, by, why, .. } => {
            put(out, format_args!("hold=ended, recipients={recipients}"));
            value(out, ", by=", by, WORD_MAX);
            end(out, ", why=", why);
        }
        Event::StandingOrder { what, name, text, by } => {
            word(out, "order=", what);
            value(out, ", name=", name, HOST_MAX);
            match by {
                Some(CommandBy::User(uid)) => put(out, format_args!(", uid={uid}")),
                Some(CommandBy::Token(name)) => word(out, ", http=", name),
                None => {}
            }
            end(out, ", why=", text);
        }
        Event::QueueCommand { what, messages, recipients, by, copy, to, .. } => {
            word(out, "queue=", what);
            put(out, format_args!(", messages={messages}, recipients={recipients}"));
            match by {
                CommandBy::User(uid) => put(out, format_args!(", uid={uid}")),
                CommandBy::Token(name) => word(out, ", http=", name),
            }
            if let Some(copy) = copy {
                out.push_str(", copy=");
                escape::push_id(out, copy);
            }
            if let Some(to) = to {
                value(out, ", to=", to, PATH_MAX);
            }
        }
        _ => return false,
    }
    true
}

/// `Sent (Ok: queued as 4F1D2A)`, `Sent`, `Deferred: Connection refused by [127.0.0.3]`, `User unknown`.
fn write_stat(stat: Stat<'_>, out: &mut String) {
    out.push_str(", stat=");
    let (before, after) = match stat {
        Stat::Sent("") => return out.push_str("Sent"),
        Stat::Sent(_) => ("Sent (", ")"),
        Stat::Deferred("") => return out.push_str("Deferred"),
        Stat::Deferred(_) => ("Deferred: ", ""),
        Stat::Failed(_) => ("", ""),
    };
    out.push_str(before);
    escape::push(out, stat.text(), TextPosition::End, STAT_MAX);
    out.push_str(after);
}

/// `name [ip]`, `[ip] [ip]`, `name`; nothing where there is none.
fn write_next_hop(relay: NextHop<'_>, out: &mut String) {
    write_host(relay, out);
    if let Some(address) = relay.address() {
        out.push(' ');
        write_address(address, out);
    }
}

/// The name, or the address in its place.
fn write_host(relay: NextHop<'_>, out: &mut String) {
    match (relay.name(), relay.address()) {
        (Some(name), _) => {
            out.push_str(", relay=");
            escape::push(out, name, TextPosition::Word, HOST_MAX);
        }
        (None, Some(address)) => {
            out.push_str(", relay=");
            write_address(address, out);
        }
        (None, None) => {}
    }
}

/// `HH:MM:SS`, with `D+` before it from a day on.
fn write_time(key: &str, time: Duration, out: &mut String) {
    out.push_str(key);
    let seconds = time.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    if days > 0 {
        push_decimal(out, days);
        out.push('+');
    }
    push_two_digits(out, hours);
    out.push(':');
    push_two_digits(out, seconds / 60 % 60);
    out.push(':');
    push_two_digits(out, seconds % 60);
}
