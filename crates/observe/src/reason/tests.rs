//! Reasons that the rules of mailrace give for replies of real servers, and the errors for bad files.

use super::*;
use mail::ReplyCode;
use proptest::prelude::*;
use std::sync::LazyLock;

static USUAL: LazyLock<Rules> = LazyLock::new(Rules::usual);

fn case(stage: Option<Stage>, text: &str) -> (Reason, bool, usize) {
    let rules = &*USUAL;
    let reply = Reply::parse(format!("{text}\r\n").as_bytes(), 4_096).ok();
    let words = reply.as_ref().map_or_else(|| text.to_owned(), words_of);
    let code = reply.as_ref().map(|reply| reply.code().get());
    let found = rules.find(&Case { stage, code, status: reply.as_ref().and_then(Reply::enhanced), text: &words });
    (found.reason, found.is_slow, found.rule.map_or(0, |rule| rule.line))
}

#[track_caller]
fn check(stage: Stage, text: &str, reason: Reason, is_slow: bool) {
    let (found, slow, line) = case(Some(stage), text);
    assert_eq!((found, slow), (reason, is_slow), "{text} at {stage:?}, by line {line}");
}

#[test]
fn names_are_read_back() {
    for reason in Reason::ALL {
        assert_eq!(Reason::from_name(reason.name()), Some(reason));
        assert!(USUAL.iter().any(|rule| rule.reason == reason), "{reason} has a rule");
        assert!(!reason.meaning().is_empty());
    }
    for stage in Stage::ALL {
        assert_eq!(Stage::from_name(stage.name()), Some(stage));
    }
}

#[test]
fn replies_of_servers() {
    use Stage::{Connect, Data, End, Mail, Rcpt};
    for (stage, text, reason) in [
        (
            Rcpt,
            "550 5.1.1 <x@y.test>: Recipient address rejected: User unknown in local recipient table",
            Reason::Recipient,
        ),
        (Rcpt, "550 5.1.1 The email account that you tried to reach does not exist.", Reason::Recipient),
        (Rcpt, "550 No such user here", Reason::Recipient),
        (Rcpt, "550 Requested action not taken: mailbox unavailable", Reason::Recipient),
        (Rcpt, "550 5.2.1 The email account that you tried to reach is disabled.", Reason::Recipient),
        (
            Rcpt,
            "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
            Reason::Recipient,
        ),
        (Rcpt, "450 4.2.0 <x@y.test>: Recipient address rejected: Greylisted", Reason::Greylist),
        (Rcpt, "451 4.7.1 Greylisting in action, please come back in 00:05:00", Reason::Greylist),
        (Rcpt, "450 4.7.1 Greylisted, come back in 5 minutes", Reason::Greylist),
        (Rcpt, "452 4.2.2 The email account that you tried to reach is over quota.", Reason::Capacity),
        (Rcpt, "552 5.2.2 Mailbox full", Reason::Capacity),
        (End, "452 4.3.1 Insufficient system storage", Reason::Capacity),
        (Rcpt, "554 5.7.1 <x@y.test>: Relay access denied", Reason::Config),
        (Rcpt, "550 5.7.1 Relaying denied. Proper authentication required.", Reason::Auth),
        (Rcpt, "550 relay not permitted", Reason::Config),
        (
            Connect,
            "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org",
            Reason::Blacklist,
        ),
        (Rcpt, "550 5.7.1 Your IP is listed in an RBL", Reason::Blacklist),
        (End, "550 5.7.26 This mail is unauthenticated, which poses a security risk", Reason::Auth),
        (End, "550 5.7.1 Email rejected per DMARC policy for example.org", Reason::Auth),
        (End, "554 5.7.1 Message rejected as spam", Reason::Spam),
        (End, "550 5.7.1 This message contains malware (Eicar-Test-Signature)", Reason::Spam),
        (End, "552 5.3.4 Message size exceeds fixed limit", Reason::Message),
        (Mail, "552 5.3.4 Message too large", Reason::Message),
        (End, "550 5.6.0 Bare <LF> in the message", Reason::Message),
        (Mail, "501 5.1.7 Bad sender address syntax", Reason::Envelope),
        (Mail, "553 5.1.8 <a@b.test>... Domain of sender address a@b.test does not exist", Reason::Envelope),
        (Rcpt, "550 5.1.7 Sender verify failed", Reason::Envelope),
        (Data, "503 5.5.1 Bad sequence of commands", Reason::Protocol),
        (Mail, "555 5.5.4 Unsupported option", Reason::Protocol),
        (Connect, "554 5.7.1 You are not allowed to connect.", Reason::Block),
        (Connect, "550 5.7.1 Client host rejected: cannot find your reverse hostname", Reason::Config),
        (Rcpt, "554 5.4.6 Too many hops", Reason::Config),
        (Rcpt, "599 blah", Reason::Other),
        (End, "451 what", Reason::Other),
    ] {
        check(stage, text, reason, false);
    }
    for (stage, text, reason) in [
        (Connect, "421 4.7.0 Too many connections from your host", Reason::Rate),
        (Mail, "421 4.7.28 Our system has detected an unusual rate of mail", Reason::Rate),
        (Rcpt, "450 4.7.1 Error: too much mail from 192.0.2.1", Reason::Rate),
        (Mail, "451 4.7.1 Rate limit exceeded, slow down", Reason::Rate),
        (Mail, "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume", Reason::Rate),
        (Connect, "421 4.3.2 Service not available, system is too busy", Reason::Capacity),
        (Mail, "452 4.3.0 load average is too high", Reason::Capacity),
        (Mail, "550 5.7.1 You exceeded the limit of messages per hour", Reason::Rate),
    ] {
        check(stage, text, reason, true);
    }
}

/// Texts of our own where there was no reply.
#[test]
fn our_own_words() {
    for (text, reason) in [
        ("Connection refused by [192.0.2.1]", Reason::Network),
        ("Connection timed out with mx.example.org", Reason::Network),
        ("No route to host mx.example.org", Reason::Network),
        ("timeout waiting for mx.example.org during client greeting", Reason::Network),
        ("mx.example.org closed the connection during client EHLO", Reason::Network),
        ("mx.example.org speaks no SMTP during client greeting: bad", Reason::Protocol),
        ("Host unknown (Name server: example.org: no such domain)", Reason::Recipient),
        ("example.org does not accept mail (null MX, RFC 7505)", Reason::Recipient),
        ("Name server: example.org: host name lookup failure", Reason::Network),
        ("TLS handshake with mx.example.org failed: x", Reason::Config),
        ("mx.example.org does not offer 8BITMIME", Reason::Message),
        ("mx.example.org takes messages of at most 10 octets", Reason::Message),
    ] {
        check(Stage::Connect, text, reason, false);
    }
}

#[track_caller]
fn fault(line: &str, wanted: &str) {
    let text = format!("# comment\n\n{line}\nother * * - *\n");
    let faults = Rules::parse(&text).expect_err(line);
    let [only] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(only.line, 3, "{line}");
    assert!(only.to_string().contains(wanted), "{line}: {only}");
}

#[test]
fn bad_lines_are_named() {
    fault("frob * * - *", "\"frob\" is no reason; reasons are rate, block");
    fault("spam", "there is no stage");
    fault("spam quit * - *", "\"quit\" is no stage; stages are *, connect");
    fault("spam * 6xx - *", "\"6xx\" is no code");
    fault("spam * 5.1 - *", "is no code");
    fault("spam * 550,, - *", "\"\" is no code");
    fault("spam * xxx - *", "is no code");
    fault("spam * 5x0 - *", "is no code");
    fault("spam * * fast *", "\"fast\" is no pace");
    fault("spam * * -", "there is no text");
    fault("spam * * - (", "is no regular expression");
    fault("spam * * - a{1000}{1000}", "is no regular expression");
    fault(&format!("spam * * - {}", "x".repeat(1_000)), "octets");
    let many = "other * * - *\n".repeat(RULES_MAX + 5);
    let faults = Rules::parse(&many).expect_err("too many");
    assert_eq!((faults.len(), faults.first().map(|fault| fault.line)), (1, Some(RULES_MAX + 1)));
    assert_eq!(Rules::parse("").unwrap().iter().len(), 0);
}

#[test]
fn the_first_rule_that_fits_counts() {
    let rules = Rules::parse("spam end 55x,5.7.x - lot+ery\nrate * 4.7.x slow *\nblock rcpt * - *\n").unwrap();
    let find = |stage, code: u16, status: Option<&str>, text: &str| {
        let status = status.and_then(|status| status.parse().ok());
        let code = ReplyCode::new(code).map(ReplyCode::get);
        let found = rules.find(&Case { stage, code, status, text });
        (found.reason, found.is_slow, found.rule.map(|rule| rule.line))
    };
    assert_eq!(find(Some(Stage::End), 550, None, "A LOTTERY"), (Reason::Spam, false, Some(1)));
    assert_eq!(find(Some(Stage::End), 421, Some("5.7.9"), "lottttery"), (Reason::Spam, false, Some(1)));
    assert_eq!(find(Some(Stage::Rcpt), 550, None, "A LOTTERY"), (Reason::Block, false, Some(3)));
    assert_eq!(find(None, 450, Some("4.7.0"), ""), (Reason::Rate, true, Some(2)));
    assert_eq!(find(None, 550, None, "lottery"), (Reason::Other, false, None));
    assert_eq!(rules.iter().next().map(Rule::source), Some("spam end 55x,5.7.x - lot+ery"));
}

proptest! {
    /// Any text of a peer or a person has a reason.
    #[test]
    fn any_words_have_a_reason(text in ".{0,3000}", code in prop::option::of(200..600_u16), file in "[a-z*.x0-9 \\-\n#(\\[]{0,200}") {
        let rules = &*USUAL;
        let found = rules.find(&Case { stage: Some(Stage::End), code, status: None, text: &text });
        prop_assert!(found.rule.is_some(), "the last rule takes all");
        if let Ok(rules) = Rules::parse(&file) {
            let found = rules.find(&Case { stage: None, code, status: None, text: &text });
            prop_assert!(found.rule.is_some() || found.reason == Reason::Other);
        }
    }
}

/// Hostile texts cost time linear in their length, and only a bounded part of them is read.
#[test]
fn long_words_are_cut() {
    let rules = Rules::parse("spam * * - needle\n").unwrap();
    let far = format!("{}needle", "x".repeat(TEXT_MAX));
    assert_eq!(rules.find(&Case { stage: None, code: None, status: None, text: &far }).reason, Reason::Other);
    let near = format!("{}needle", "\u{fc}".repeat(TEXT_MAX / 2 - 3));
    assert_eq!(rules.find(&Case { stage: None, code: None, status: None, text: &near }).reason, Reason::Spam);
}

const TEXT_MAX: usize = rules::TEXT_OCTETS_MAX;
