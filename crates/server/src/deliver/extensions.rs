//! Extensions that a next hop offers and that do not work: 500 to BDAT, 503 to a pipelined RCPT, a parameter of
//! MAIL that is no parameter there. Such a reply is no verdict on the mail.
//!
//! [`broken`] reads from the end of a transaction which extension it is. The table of hosts remembers it for a
//! bounded time, and the next connection does not use it. Each extension is found broken at most once at a time, as
//! the next transaction does not use it: so a host that refuses everything comes to a verdict on the mail.

use super::link::Link;
use super::{Candidate, learn};
use crate::outbound::Outbound;
use mail::{Envelope, Reply};
use observe::Event;
use schedule::AvoidedExtensions;
use smtp::client::{Answer, Finished, Loss, Stage};
use std::time::Duration;

/// Time for which an extension is not used after its use was refused.
const REFUSED_TIME: Duration = Duration::from_secs(24 * 3_600);
/// Time for which one is not used that may have led to silence or a lost connection: the host may as well have
/// failed.
const SUSPECT_TIME: Duration = Duration::from_secs(3_600);

/// Extensions that do not work.
pub(super) struct BrokenExtensions {
    pub(super) extensions: AvoidedExtensions,
    /// The host refused their use: the mail is tried again at once. Otherwise they may be the cause of the missing
    /// answer.
    pub(super) is_certain: bool,
    /// The reply, or how it was lost.
    pub(super) why: String,
}

/// The extensions that a transaction used.
#[derive(Clone, Copy, Default)]
struct Used {
    chunking: bool,
    pipelining: bool,
    /// Parameters of MAIL.
    mail: AvoidedExtensions,
    /// DSN at RCPT.
    dsn: bool,
}

impl Used {
    fn of(link: &Link, envelope: &Envelope) -> Self {
        let offers = link.session.offers();
        let params = &envelope.params;
        let of = |extension, is_used: bool| if is_used { extension } else { AvoidedExtensions::default() };
        let has_dsn_at_mail = offers.dsn && (params.ret.is_some() || params.envid.is_some());
        Self {
            chunking: link.session.chunking() && !link.is_lmtp,
            pipelining: link.session.pipelining(),
            mail: of(AvoidedExtensions::SIZE, offers.size.is_some())
                .with(of(AvoidedExtensions::EIGHT_BIT_MIME, offers.eight_bit_mime && params.body.is_some()))
                .with(of(AvoidedExtensions::DSN, has_dsn_at_mail)),
            dsn: offers.dsn
                && envelope.recipients.iter().any(|one| one.params.notify.is_some() || one.params.orcpt.is_some()),
        }
    }
}

/// Returns the extensions by which a transaction failed, if it failed by some.
pub(super) fn broken(link: &Link, envelope: &Envelope, finished: &Finished) -> Option<BrokenExtensions> {
    let used = Used::of(link, envelope);
    let is_delivered = |answer: &Answer| matches!(answer, Answer::Reply(reply) if reply.code().get() < 400);
    // A job with a delivered recipient is not given back.
    if finished.outcomes.iter().any(|one| is_delivered(&one.answer)) {
        return None;
    }
    finished.outcomes.iter().find_map(|outcome| match &outcome.answer {
        Answer::Reply(reply) => {
            let extensions = refused(&used, outcome.stage, reply);
            (!extensions.is_empty()).then(|| BrokenExtensions { extensions, is_certain: true, why: reply.to_string() })
        }
        Answer::Lost(loss) => {
            let extensions = suspect(&used, outcome.stage, *loss);
            let why = match loss {
                Loss::TimedOut | Loss::TooLong => "no answer came".to_owned(),
                Loss::Protocol(what) => (*what).to_owned(),
                _ => "the connection was closed".to_owned(),
            };
            (!extensions.is_empty()).then_some(BrokenExtensions { extensions, is_certain: false, why })
        }
        Answer::NotTried => None,
    })
}

/// Returns the extensions whose use a reply refuses.
// RFC 5321 §4.2.4, RFC 5321 §4.1.1.11: 500 to 504 are about the command, 555 about a parameter
fn refused(used: &Used, stage: Stage, reply: &Reply) -> AvoidedExtensions {
    let code = reply.code().get();
    // 5.5.4: invalid command arguments
    let is_parameter = reply.enhanced().is_some_and(|code| (code.subject(), code.detail()) == (5, 4));
    match stage {
        Stage::Content | Stage::End if used.chunking && matches!(code, 500..=504) => AvoidedExtensions::CHUNKING,
        Stage::Rcpt | Stage::Data if used.pipelining && code == 503 => AvoidedExtensions::PIPELINING,
        Stage::Mail if matches!(code, 501 | 504 | 555) => used.mail,
        Stage::Rcpt if used.dsn && (matches!(code, 504 | 555) || code == 501 && is_parameter) => AvoidedExtensions::DSN,
        _ => AvoidedExtensions::default(),
    }
}

/// Returns the extensions by which an answer may be missing.
fn suspect(used: &Used, stage: Stage, loss: Loss) -> AvoidedExtensions {
    match stage {
        Stage::Content | Stage::End if used.chunking => AvoidedExtensions::CHUNKING,
        Stage::Rcpt | Stage::Data if used.pipelining && matches!(loss, Loss::TimedOut | Loss::Protocol(_)) => {
            AvoidedExtensions::PIPELINING
        }
        // One reply to several commands.
        Stage::Mail if used.pipelining && matches!(loss, Loss::Protocol(_)) => AvoidedExtensions::PIPELINING,
        _ => AvoidedExtensions::default(),
    }
}

/// Remembers that extensions of a host do not work, and logs that if it is new. False: the host has no address in the
/// table, and the next connection to it uses them again.
pub(super) fn avoid(outbound: &Outbound, peer: &Candidate, found: &BrokenExtensions) -> bool {
    let Some(ip) = peer.address.socket().map(|address| address.ip()) else { return false };
    let (time, words) = if found.is_certain { (REFUSED_TIME, "a day") } else { (SUSPECT_TIME, "an hour") };
    let mut is_new = false;
    learn(outbound, peer, |hosts, address, now| {
        is_new = !hosts.avoided(address, now).contains(found.extensions);
        hosts.avoid(address, found.extensions, time, now);
    });
    if is_new {
        let (extensions, why) = (found.extensions, &found.why);
        let what = if found.is_certain { "is offered and does not work" } else { "may not work" };
        let keys: Vec<String> = extensions.keys().map(|key| format!("{key} = false")).collect();
        let then = match keys.is_empty() {
            // Of AUTH, which has no key.
            true => {
                format!(
                    "other mechanisms are tried first for {words}; to leave it out for good, name the others in M: of AuthInfo"
                )
            }
            false => format!(
                "mail goes without for {words}; to leave it out for good, set {} in a [[destination]] for this host",
                keys.join(" and ")
            ),
        };
        let text = format!("{} [{ip}]: {extensions} {what} ({why}); {then}", peer.name);
        outbound.context.record(&Event::ExtensionAvoided { text: &text });
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Used = Used {
        chunking: true,
        pipelining: true,
        mail: AvoidedExtensions::SIZE.with(AvoidedExtensions::EIGHT_BIT_MIME),
        dsn: true,
    };

    fn refused_by(used: &Used, stage: Stage, line: &str) -> String {
        refused(used, stage, &Reply::parse(format!("{line}\r\n").as_bytes(), 512).unwrap()).to_string()
    }

    /// Replies to the use of an extension, and replies that are a verdict on the mail.
    #[test]
    fn replies_about_an_extension() {
        for (stage, line, extensions) in [
            (Stage::End, "500 5.5.1 what?", "CHUNKING"),
            (Stage::End, "502 no", "CHUNKING"),
            (Stage::Content, "503 5.5.1 no", "CHUNKING"),
            (Stage::End, "504 no", "CHUNKING"),
            (Stage::Rcpt, "503 5.5.1 MAIL first", "PIPELINING"),
            (Stage::Data, "503 no recipients", "PIPELINING"),
            (Stage::Mail, "555 5.5.4 unsupported parameter", "SIZE, 8BITMIME"),
            (Stage::Mail, "501 syntax error in parameters", "SIZE, 8BITMIME"),
            (Stage::Mail, "504 no", "SIZE, 8BITMIME"),
            (Stage::Rcpt, "555 5.5.4 NOTIFY?", "DSN"),
            (Stage::Rcpt, "501 5.5.4 bad arguments", "DSN"),
        ] {
            assert_eq!(refused_by(&ALL, stage, line), extensions, "{line} at {stage}");
            // Where no extension was used, none is at fault: the host has given its verdict.
            assert_eq!(refused_by(&Used::default(), stage, line), "", "{line} at {stage}");
        }
        for (stage, line) in [
            (Stage::End, "550 5.7.1 spam"),
            (Stage::End, "554 no"),
            (Stage::End, "552 5.3.4 too large"),
            (Stage::End, "451 later"),
            (Stage::Rcpt, "550 5.1.1 no such user"),
            (Stage::Rcpt, "501 5.1.3 bad address"),
            (Stage::Rcpt, "501 syntax error"),
            (Stage::Rcpt, "450 later"),
            (Stage::Mail, "550 5.7.1 blocked"),
            (Stage::Mail, "503 twice"),
            (Stage::Data, "554 no valid recipients"),
        ] {
            assert_eq!(refused_by(&ALL, stage, line), "", "{line} at {stage}");
        }
    }

    #[test]
    fn losses_that_an_extension_may_have_led_to() {
        let of = |used: &Used, stage, loss| suspect(used, stage, loss).to_string();
        for loss in [Loss::TimedOut, Loss::Closed, Loss::Protocol("x")] {
            assert_eq!(of(&ALL, Stage::End, loss), "CHUNKING");
            assert_eq!(of(&ALL, Stage::Content, loss), "CHUNKING");
            assert_eq!(of(&Used::default(), Stage::End, loss), "");
        }
        assert_eq!(of(&ALL, Stage::Rcpt, Loss::TimedOut), "PIPELINING");
        assert_eq!(of(&ALL, Stage::Data, Loss::Protocol("x")), "PIPELINING");
        assert_eq!(of(&ALL, Stage::Mail, Loss::Protocol("x")), "PIPELINING");
        // Pipelining is not the reason if a host hangs or closes the connection there.
        assert_eq!(of(&ALL, Stage::Mail, Loss::TimedOut), "");
        assert_eq!(of(&ALL, Stage::Rcpt, Loss::Closed), "");
    }
}
