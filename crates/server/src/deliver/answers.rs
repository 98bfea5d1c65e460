//! Judges answers of next hops: for the recipient, and for the pace of the destination.
//!
//! Plain functions, and the only place where codes are judged. A reply is judged by the stage it came at: a success is
//! one only at the end of the content (RFC 5321 §4.2.5), everything else that is not permanent may work later.

use super::Candidate;
use crate::settle::{self, AttemptOutcome, Cause};
use mail::{EnhancedCode, Outcome, QueueId, Reply, ReplyClass};
use observe::reason::{self, Case, RuleMatch, Rules, words_of};
use observe::{Reason, Stat};
use schedule::Feedback;
use smtp::client::{Answer, Loss, Misfit, Stage};

/// Judges the answers to the recipients of a transaction. A recipient with the same answer as the one before shares
/// its result, so that one reply to all of them is kept once.
pub(super) fn judge_all(
    rules: &Rules,
    peer: &Candidate,
    outcomes: Vec<smtp::client::Outcome>,
) -> Vec<(AttemptOutcome, Feedback)> {
    let mut judged: Vec<(AttemptOutcome, Feedback)> = Vec::with_capacity(outcomes.len());
    let mut before: Option<smtp::client::Outcome> = None;
    for outcome in outcomes {
        let same = judged.last().filter(|_| before.as_ref() == Some(&outcome)).cloned();
        judged.push(same.unwrap_or_else(|| judge(rules, peer, outcome.stage, outcome.answer.clone())));
        before = Some(outcome);
    }
    judged
}

/// Adds to the loss of a transaction that it was sent behind a message without an answer at its end, which may be the
/// only reason.
pub(super) fn behind(fate: AttemptOutcome, message: Option<QueueId>) -> AttemptOutcome {
    match (fate, message) {
        (AttemptOutcome::Deferred(mut cause), Some(message)) if cause.reply.is_none() => {
            cause.text = format!("{}, behind {message}, whose end the host did not answer", cause.text).into();
            AttemptOutcome::Deferred(cause)
        }
        (fate, _) => fate,
    }
}

/// Judges the answer to one recipient. The rules give the kind of reason, and whether the host asks for less mail.
fn judge(rules: &Rules, peer: &Candidate, stage: Stage, answer: Answer) -> (AttemptOutcome, Feedback) {
    let name = &peer.name;
    let deferred =
        |text: String| AttemptOutcome::Deferred(Cause::new(EnhancedCode::of(Outcome::Transient, 4, 2), text, None));
    match answer {
        Answer::Reply(reply) => judge_reply(rules, stage, reply),
        Answer::Lost(loss) => {
            let stage = stage.as_str();
            // A host that breaks off is not silent: it answered within the time.
            let is_silent = matches!(loss, Loss::TimedOut | Loss::TooLong);
            let feedback = if is_silent { Feedback::NoReply } else { Feedback::Broken };
            let text = match loss {
                Loss::TimedOut => format!("Connection timed out with {name} during {stage}"),
                Loss::TooLong => {
                    format!(
                        "{name} was too slow during {stage}: the transaction took longer than delivery.transaction_time"
                    )
                }
                Loss::Closed => format!("Connection closed by {name} during {stage}"),
                Loss::Protocol(what) => format!("{name} does not speak SMTP during {stage}: {what}"),
                // It comes before the first transaction, so it is not the answer to one.
                Loss::Injected => format!("{loss} with {name}"),
            };
            (deferred(text), feedback)
        }
        Answer::NotTried => (deferred(format!("Connection closed by {name}")), Feedback::Neutral),
    }
}

/// Returns whether a reply says that a connection has served long enough, and nothing about the message: 421, or
/// 4.5.3 to MAIL.
///
/// OpenSMTPD 6.8 answers `452 4.5.3 Too many recipients: Too many messages sent` from the 101st message of a session
/// on.
pub(super) fn is_used_up(stage: Stage, reply: &Reply) -> bool {
    let has_had_enough = reply.status() == Some(EnhancedCode::of(Outcome::Transient, 5, 3));
    match stage {
        Stage::Mail => reply.code().get() == 421 || has_had_enough,
        Stage::Rset => reply.code().get() == 421,
        _ => false,
    }
}

/// Returns whether an answer defers a whole message, so that another host of the site may be asked instead. An answer
/// about one recipient does not: a greylisting host waits for the same client to come again.
// RFC 5321 §5.1: each of the addresses is tried until one takes the mail
pub(super) fn is_put_off(stage: Stage, answer: &Answer) -> bool {
    match answer {
        Answer::Reply(reply) if reply.code().class() == ReplyClass::Transient => {
            stage != Stage::Rcpt || reply.code().get() == 421
        }
        Answer::Reply(_) => false,
        Answer::Lost(_) | Answer::NotTried => true,
    }
}

/// Returns the stage as rules have it.
const fn stage_of(stage: Stage) -> Option<reason::Stage> {
    Some(match stage {
        Stage::Greeting => reason::Stage::Connect,
        Stage::Hello => reason::Stage::Hello,
        Stage::StartTls => reason::Stage::Tls,
        Stage::Auth => reason::Stage::Hello,
        Stage::Rset | Stage::Mail => reason::Stage::Mail,
        Stage::Rcpt => reason::Stage::Rcpt,
        Stage::Data => reason::Stage::Data,
        Stage::Content | Stage::End => reason::Stage::End,
        Stage::Quit | Stage::Idle => return None,
    })
}

/// Returns whether a destination that gives this reply wants less of everything.
fn asks_for_less(stage: Stage, code: u16, found: &RuleMatch<'_>) -> bool {
    // A reply about one recipient or one message says nothing about the destination.
    let is_about_one = matches!(
        found.reason,
        Reason::Greylist | Reason::Recipient | Reason::Spam | Reason::Message | Reason::Envelope | Reason::Auth
    );
    let is_late = matches!(stage, Stage::Mail | Stage::End) && code < 500;
    found.is_slow || code == 421 || is_late && !is_about_one
}

/// Judges a reply, for a recipient and for the destination.
fn judge_reply(rules: &Rules, stage: Stage, reply: Reply) -> (AttemptOutcome, Feedback) {
    let status = |outcome| reply.status().unwrap_or_else(|| EnhancedCode::of(outcome, 0, 0)).with_outcome(outcome);
    // RFC 5321 §4.5.3.1.10: old servers say 552 for too many recipients; the others of them fit into the next
    // transaction
    let is_too_many = stage == Stage::Rcpt
        && reply.code().get() == 552
        && (reply.enhanced().is_none_or(|code| (code.subject(), code.detail()) == (5, 3))
            || settle::says_too_many_recipients(&reply));
    match reply.code().class() {
        ReplyClass::Success if stage == Stage::End => (AttemptOutcome::Delivered(reply), Feedback::Good),
        class => {
            let code = reply.code().get();
            let words = words_of(&reply);
            let found =
                rules.find(&Case { stage: stage_of(stage), code: Some(code), status: reply.status(), text: &words });
            let feedback = if asks_for_less(stage, code, &found) { Feedback::Slowdown } else { Feedback::Neutral };
            let reason = found.reason;
            if class == ReplyClass::Permanent && !is_too_many {
                let words = Stat::refusal(&reply, stage == Stage::Rcpt);
                let cause = Cause::new(status(Outcome::Permanent), words, Some(reply));
                return (AttemptOutcome::Failed(cause.with_reason(reason)), feedback);
            }
            // A success at this stage accepts no message.
            let cause = Cause::new(status(Outcome::Transient), reply.to_string(), Some(reply));
            (AttemptOutcome::Deferred(cause.with_reason(reason)), feedback)
        }
    }
}

/// Returns why a peer can never take a message, for the sender.
pub(super) fn misfit_cause(misfit: Misfit, peer: &Candidate) -> Cause {
    let name = &peer.name;
    let ((subject, detail), text) = match misfit {
        Misfit::EightBit => ((6, 3), format!("{name} does not offer 8BITMIME")),
        Misfit::Binary => ((6, 1), format!("{name} does not offer BINARYMIME")),
        Misfit::Smtputf8 | Misfit::Address => ((6, 7), format!("{name} does not offer SMTPUTF8")),
        Misfit::Size { max } => ((3, 4), format!("{name} takes messages of at most {max} octets")),
        Misfit::TooLate { least } => ((4, 7), format!("{name} promises no delivery in less than {least} seconds")),
        Misfit::DeliverBy => {
            ((4, 7), format!("{name} does not offer DELIVERBY, and the sender wants it back if it comes too late"))
        }
        Misfit::RequireTls => ((7, 30), format!("{name} does not offer REQUIRETLS")),
    };
    Cause::new(EnhancedCode::of(Outcome::Permanent, subject, detail), text, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::named;

    fn judged(stage: Stage, line: &str) -> (String, Feedback) {
        let reply = Reply::parse(format!("{line}\r\n").as_bytes(), 512).unwrap();
        let (fate, feedback) = judge_reply(&Rules::usual(), stage, reply);
        let text = match fate {
            AttemptOutcome::Delivered(_) | AttemptOutcome::Receipt(_) => "delivered".to_owned(),
            AttemptOutcome::Deferred(cause) => format!("deferred {}: {}", cause.status, cause.text),
            AttemptOutcome::Failed(cause) => format!("failed {}: {}", cause.status, cause.text),
        };
        (text, feedback)
    }

    #[track_caller]
    fn check(stage: Stage, line: &str, fate: &str, feedback: Feedback) {
        assert_eq!(judged(stage, line), (fate.to_owned(), feedback), "{line} at {stage}");
    }

    #[test]
    fn only_the_end_of_the_content_delivers() {
        use Feedback::{Good, Neutral, Slowdown};
        check(Stage::End, "250 2.0.0 Ok", "delivered", Good);
        check(Stage::End, "200 odd", "delivered", Good);
        for stage in [Stage::Mail, Stage::Rcpt, Stage::Data, Stage::Content] {
            assert!(judged(stage, "250 2.0.0 Ok").0.starts_with("deferred"), "{stage}");
        }
        check(Stage::Rcpt, "550 5.1.1 gone", "failed 5.1.1: User unknown", Neutral);
        check(Stage::Rcpt, "550 gone", "failed 5.0.0: User unknown", Neutral);
        check(Stage::End, "554 5.7.1 spam", "failed 5.7.1: Service unavailable", Neutral);
        check(Stage::Rcpt, "451 4.7.1 grey", "deferred 4.7.1: 451 4.7.1 grey", Neutral);
        check(Stage::End, "452 4.3.1 full", "deferred 4.3.1: 452 4.3.1 full", Slowdown);
        check(Stage::Rcpt, "421 4.7.0 too fast", "deferred 4.7.0: 421 4.7.0 too fast", Slowdown);
        check(Stage::Data, "354 go on", "deferred 4.0.0: 354 go on", Neutral);
    }

    #[test]
    fn who_is_silent_is_told_from_who_breaks_off() {
        let peer = named("one", ([192, 0, 2, 1], 25).into(), 0);
        let feedback = |loss| judge(&Rules::usual(), &peer, Stage::End, Answer::Lost(loss)).1;
        assert_eq!([feedback(Loss::TimedOut), feedback(Loss::TooLong)], [Feedback::NoReply; 2]);
        assert_eq!([feedback(Loss::Closed), feedback(Loss::Protocol(""))], [Feedback::Broken; 2]);
    }

    #[test]
    fn one_reply_to_all_is_kept_once() {
        let peer = named("one", ([192, 0, 2, 1], 25).into(), 0);
        let reply = |text: &str| Answer::Reply(Reply::parse(format!("{text}\r\n").as_bytes(), 5_000).unwrap());
        let outcome = |stage, answer| smtp::client::Outcome { stage, answer };
        let long = format!("451 4.3.0 {}", "x".repeat(4_000));
        let mut outcomes: Vec<_> = (0..100).map(|_| outcome(Stage::Mail, reply(&long))).collect();
        outcomes.push(outcome(Stage::Mail, reply("450 4.2.0 other")));
        outcomes.push(outcome(Stage::Rcpt, reply("450 4.2.0 other")));
        let rules = Rules::usual();
        let judged = judge_all(&rules, &peer, outcomes.clone());
        let texts: std::collections::HashSet<_> = judged
            .iter()
            .map(|(fate, _)| match fate {
                AttemptOutcome::Deferred(cause) => cause.text.as_ptr(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts.len(), 3);
        let one_by_one = outcomes.into_iter().map(|one| judge(&rules, &peer, one.stage, one.answer));
        assert_eq!(judged, one_by_one.collect::<Vec<_>>());
    }

    #[test]
    fn a_connection_is_used_up() {
        let is = |stage, line: &str| is_used_up(stage, &Reply::parse(format!("{line}\r\n").as_bytes(), 512).unwrap());
        assert!(is(Stage::Mail, "452 4.5.3 Too many recipients: Too many messages sent"));
        assert!(is(Stage::Mail, "421 4.7.0 enough") && is(Stage::Rset, "421 enough"));
        assert!(!is(Stage::Mail, "452 4.3.1 full") && !is(Stage::Mail, "452 full") && !is(Stage::Mail, "552 5.5.3 no"));
        assert!(!is(Stage::Rcpt, "452 4.5.3 Too many recipients") && !is(Stage::End, "421 4.3.2 going down"));
    }

    #[test]
    fn too_many_recipients_is_no_failure() {
        // RFC 5321 §4.5.3.1.10 (test)
        check(Stage::Rcpt, "552 too many", "deferred 4.0.0: 552 too many", Feedback::Neutral);
        check(Stage::Rcpt, "552 5.5.3 too many", "deferred 4.5.3: 552 5.5.3 too many", Feedback::Neutral);
        let text = "deferred 4.7.1: 552 5.7.1 limit of recipients per message exceeded";
        check(Stage::Rcpt, "552 5.7.1 limit of recipients per message exceeded", text, Feedback::Neutral);
        check(Stage::Rcpt, "552 5.2.2 full", "failed 5.2.2: Service unavailable", Feedback::Neutral);
        check(Stage::End, "552 5.3.4 too large", "failed 5.3.4: Service unavailable", Feedback::Neutral);
    }
}
