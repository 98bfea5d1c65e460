//! Lines about refusals and decisions of rulesets.

use super::{PATH_MAX, STAT_MAX, end, put, value, write_relay, write_reply};
use crate::escape::{self, TextPosition};
use crate::{Event, Fate, Relay, Ruleset};
use mail::Reply;

/// Text of the refusal of a recipient that sendmail logs as an error of the recipient, without its ruleset.
const USER_UNKNOWN: &str = "... User unknown";

/// Writes the rest of the line. False: the event is no such decision.
pub(super) fn write(event: &Event<'_>, out: &mut String) -> bool {
    match *event {
        Event::Rejected { ruleset: Ruleset::Rcpt, reply, .. } if is_user_unknown(reply) => {
            end(out, "", reply.lines().next().unwrap_or_default());
        }
        Event::Rejected { ruleset: ruleset @ (Ruleset::Vrfy | Ruleset::Expn), arg1, relay, .. } => {
            write_relay("", relay, out);
            out.push_str(if ruleset == Ruleset::Vrfy { ": VRFY " } else { ": EXPN " });
            escape::push(out, arg1.unwrap_or_default(), TextPosition::Word, PATH_MAX);
            out.push_str(" [rejected]");
        }
        Event::Rejected { ruleset, arg1, arg2, relay, reply, .. } => {
            write_arguments(ruleset, [arg1, arg2], relay, out);
            write_reply(reply, out);
        }
        Event::Ruled { ruleset, arg1, relay, fate, .. } => {
            write_arguments(ruleset, [Some(arg1), None], relay, out);
            match fate {
                Fate::Discard => out.push_str(", discard"),
                Fate::Quarantine(reason) => value(out, ", quarantine=", reason, STAT_MAX),
            }
        }
        _ => return false,
    }
    true
}

/// `ruleset=check_rcpt, arg1=<a@b>, relay=[192.0.2.7]`.
fn write_arguments(ruleset: Ruleset, arguments: [Option<&str>; 2], relay: Relay<'_>, out: &mut String) {
    put(out, format_args!("ruleset={}", ruleset.name()));
    for (key, argument) in [", arg1=", ", arg2="].into_iter().zip(arguments) {
        if let Some(argument) = argument {
            value(out, key, argument, PATH_MAX);
        }
    }
    write_relay(", relay=", relay, out);
}

/// Whether a recipient has no mailbox here, in sendmail's words.
fn is_user_unknown(reply: &Reply) -> bool {
    let mut lines = reply.lines();
    reply.code().get() == 550 && lines.next().is_some_and(|line| line.ends_with(USER_UNKNOWN)) && lines.next().is_none()
}
