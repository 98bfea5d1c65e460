//! Dialogs of the parameter parsers, and that written parameters are read back.

use std::num::NonZeroU32;

use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::address::tests::any_address;
use crate::parameter::{ParamError, ParamReason};
use crate::{Node, QueueIds};

fn check_refused<T: std::fmt::Debug>(parse: fn(&[u8]) -> Result<T, ParamError>, reason: ParamReason, cases: &[&str]) {
    for text in cases {
        let error = parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.reason(), reason, "{text}: {error}");
    }
}

// RFC 1870 §3 (test), RFC 6152 §2 (test), RFC 3030 §3 (test), RFC 6531 §3.4 (test), RFC 3461 §4.3 (test),
// RFC 3461 §4.4 (test), RFC 4954 §5 (test), RFC 6710 §7 (test), RFC 8689 §2 (test)
#[test]
fn mail_parameters() {
    let text =
        " size=0123 Body=8bitmime smtputf8 RET=hdrs ENVID=a+2Bb+20c AUTH=e+3Dmc2@example.com MT-PRIORITY=-9 requiretls";
    let params = MailParams::parse(text.as_bytes()).unwrap();
    assert_eq!(params.size, Some(123));
    assert_eq!(params.body, Some(Body::EightBitMime));
    assert_eq!(params.ret, Some(Ret::Headers));
    assert_eq!(params.envid.as_ref().map(EnvId::as_str), Some("a+b c"));
    assert_eq!(params.auth, Some(Submitter::Address("e=mc2@example.com".parse().unwrap())));
    assert_eq!(params.mt_priority, MtPriority::new(-9));
    assert!(params.smtputf8 && params.requiretls);
    assert_eq!(
        params.to_string(),
        "SIZE=123 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=a+2Bb+20c AUTH=e+3Dmc2@example.com MT-PRIORITY=-9 REQUIRETLS"
    );
    use Extension as E;
    let used = [E::Size, E::EightBitMime, E::SmtpUtf8, E::Dsn, E::Auth, E::MtPriority, E::RequireTls];
    assert_eq!(params.extensions(), used.into_iter().collect());
    let offered = Extensions::default().with(E::Size).with(E::Dsn).with(E::Auth).with(E::EightBitMime);
    assert_eq!(
        params.extensions().without(offered).iter().map(E::keyword).collect::<Vec<_>>(),
        ["SMTPUTF8", "MT-PRIORITY", "REQUIRETLS"]
    );

    assert_eq!(MailParams::parse(b""), Ok(MailParams::default()));
    assert_eq!(MailParams::parse(b"SIZE=99999999999999999999").unwrap().size, Some(u64::MAX));
    assert_eq!(MailParams::parse(b"AUTH=<>").unwrap().auth, Some(Submitter::Unknown));
}

// RFC 5321 §4.1.1.11 (test)
#[test]
fn mail_parameters_refused() {
    use ParamReason as R;
    check_refused(MailParams::parse, R::Unknown, &["X=1", "NOTIFY=NEVER", "SIZE=1 FROB"]);
    check_refused(
        MailParams::parse,
        R::Duplicate,
        &["SIZE=1 SIZE=1", "SMTPUTF8 smtputf8", "HOLDFOR=1 HOLDUNTIL=2026-11-20T08:04:39Z", "RET=FULL ret=hdrs"],
    );
    check_refused(
        MailParams::parse,
        R::Value,
        &[
            "SIZE",
            "SIZE=-1",
            "SIZE=1K",
            "SIZE=000000000000000000001",
            "BODY=9BIT",
            "SMTPUTF8=1",
            "RET=SOME",
            "ENVID=+",
            "ENVID=+0D+0ABcc:",
            "ENVID=+C3+BC",
            &format!("ENVID={}", "a".repeat(101)),
            "AUTH=joe",
            "AUTH=a+0A@b",
            "MT-PRIORITY=10",
            "MT-PRIORITY=-0",
            "MT-PRIORITY=+1",
            "MT-PRIORITY=01",
        ],
    );
    check_refused(MailParams::parse, R::Syntax, &["=1", "SIZE=", "A==", "-A", "SIZE\u{a0}=1"]);
}

// RFC 4865 §3 (test), RFC 3339 §5.6 (test)
#[test]
fn future_release() {
    let hold = |text: &str| MailParams::parse(text.as_bytes()).map(|params| params.hold.unwrap());
    assert_eq!(hold("HOLDFOR=86400"), Ok(Hold::For(HoldSeconds::new(86_400).unwrap())));
    let until = Hold::Until(HoldTime::new(1_795_161_879).unwrap());
    for text in ["2026-11-20T08:04:39Z", "2026-11-20t09:34:39.999+01:30", "2026-11-20T00:04:39-08:00"] {
        assert_eq!(hold(&format!("HOLDUNTIL={text}")), Ok(until));
    }
    for text in [
        "HOLDFOR=0",
        "HOLDFOR=01",
        "HOLDFOR=1000000000",
        "HOLDUNTIL=2026-11-20T08:04:39",
        "HOLDUNTIL=2026-11-20T08:04Z",
        "HOLDUNTIL=2026-02-30T08:04:39Z",
        "HOLDUNTIL=2026-11-20T08:04:39.Z",
        "HOLDUNTIL=2026-11-20T08:04:39+1:00",
        "HOLDUNTIL=2026-11-20T08:04:39+24:00",
        "HOLDUNTIL=2026-11-20T+8:04:39Z",
        "HOLDUNTIL=1969-12-31T23:59:59Z",
        "HOLDUNTIL=2026-11-2\u{fc}T08:04:39Z",
    ] {
        assert_eq!(hold(text).unwrap_err().reason(), ParamReason::Value, "{text}");
    }
}

// RFC 2852 §4 (test)
#[test]
fn deliver_by() {
    let by = |text: &str| MailParams::parse(text.as_bytes()).map(|params| params.by.unwrap());
    let returned = Deadline::Return(NonZeroU32::new(120).unwrap());
    assert_eq!(by("BY=120;R").ok(), DeliverBy::new(returned, false));
    assert_eq!(by("BY=+0120;rt").ok(), DeliverBy::new(returned, true));
    assert_eq!(by("BY=-5;NT").ok(), DeliverBy::new(Deadline::Notify(-5), true));
    // RFC 2852 §4 (test)
    let left = |text, seconds| by(text).unwrap().after(seconds).map(|by| by.to_string());
    assert_eq!(left("BY=120;R", 119), Some("1;R".to_owned()));
    assert_eq!([left("BY=120;RT", 120), left("BY=1;R", u64::MAX)], [None, None]);
    assert_eq!(left("BY=5;NT", 7), Some("-2;NT".to_owned()));
    assert_eq!(left("BY=5;N", u64::MAX), Some("-999999999;N".to_owned()));
    for text in ["BY=120", "BY=0;R", "BY=-1;R", "BY=1;X", "BY=1;", "BY=1;T", "BY=1000000000;N", "BY=--1;N", "BY=;N"] {
        assert_eq!(by(text).unwrap_err().reason(), ParamReason::Value, "{text}");
    }
}

// RFC 3461 §4.1 (test), RFC 3461 §4.2 (test), RFC 6533 §3 (test)
#[test]
fn recipient_parameters() {
    let params = RecipientParams::parse(b" notify=success,Delay ORCPT=rfc822;Joe+20D@example.com").unwrap();
    assert_eq!(params.notify, Some(Notify::SUCCESS.and(Notify::DELAY)));
    let orcpt = params.orcpt.as_ref().unwrap();
    assert_eq!((orcpt.kind(), orcpt.address()), ("rfc822", "Joe D@example.com"));
    assert_eq!(params.to_string(), "NOTIFY=SUCCESS,DELAY ORCPT=rfc822;Joe+20D@example.com");
    assert_eq!(params.extensions(), Extensions::default().with(Extension::Dsn));

    let params = RecipientParams::parse("NOTIFY=NEVER ORCPT=utf-8;ü\\x{2B}@d".as_bytes()).unwrap();
    assert_eq!(params.notify, Some(Notify::NEVER));
    assert_eq!(params.orcpt.as_ref().unwrap().address(), "ü+@d");
    assert_eq!(params.to_string(), "NOTIFY=NEVER ORCPT=utf-8;\\x{FC}\\x{2B}@d");
    // As Postfix 3.7 writes it, in octets and in a session with SMTPUTF8 in letters.
    for value in ["RFC822;+C3+BC+2B@d", "rfc822;ü+2B@d"] {
        let params = RecipientParams::parse(format!("ORCPT={value}").as_bytes()).unwrap();
        assert_eq!(params.to_string(), "ORCPT=utf-8;\\x{FC}\\x{2B}@d", "{value}");
    }

    check_refused(
        RecipientParams::parse,
        ParamReason::Value,
        &[
            "NOTIFY",
            "NOTIFY=NEVER,SUCCESS",
            "NOTIFY=SUCCESS,",
            "NOTIFY=ALWAYS",
            "ORCPT=joe",
            "ORCPT=;joe",
            "ORCPT=rfc822;",
            "ORCPT=rfc 822;joe".get(..9).unwrap(),
            "ORCPT=rfc822;a+0D+0Ab",
            "ORCPT=rfc822;+C3@d",
            "ORCPT=x400;+C3+BC@d",
            "ORCPT=rfc822;+C3+BC@d+0A",
            "ORCPT=utf-8;\\x{0A}",
            &format!("ORCPT=rfc822;{}", "a".repeat(494)),
        ],
    );
    check_refused(RecipientParams::parse, ParamReason::Unknown, &["SIZE=1"]);
    check_refused(RecipientParams::parse, ParamReason::Duplicate, &["NOTIFY=NEVER NOTIFY=NEVER"]);
}

#[test]
fn smtputf8_is_needed_for_what_ascii_cannot_say() {
    let mut envelope = Envelope {
        id: QueueId::MIN,
        sender: ReversePath::Null,
        params: MailParams::default(),
        received: Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![Recipient::new("a@bücher.example".parse().unwrap())],
    };
    assert!(!envelope.needs_smtputf8());
    envelope.recipients.push(Recipient::new("ü@d".parse().unwrap()));
    assert!(envelope.needs_smtputf8());
}

fn any_mail_params() -> impl Strategy<Value = MailParams> {
    let ret = prop_oneof![Just(Ret::Full), Just(Ret::Headers)];
    let auth = prop_oneof![Just(Submitter::Unknown), any_address().prop_map(Submitter::Address)];
    let body = prop_oneof![Just(Body::SevenBit), Just(Body::EightBitMime), Just(Body::BinaryMime)];
    let hold = prop_oneof![
        any::<u32>().prop_filter_map("range", HoldSeconds::new).prop_map(Hold::For),
        (0..253_402_300_800_i64).prop_filter_map("range", HoldTime::new).prop_map(Hold::Until),
    ];
    let deadline = prop_oneof![
        any::<NonZeroU32>().prop_map(|seconds| Deadline::Return(seconds.min(NonZeroU32::new(999_999_999).unwrap()))),
        (-999_999_999..=999_999_999).prop_map(Deadline::Notify),
    ];
    (
        (option::of(any::<u64>()), option::of(body), any::<bool>(), option::of(ret), any::<bool>()),
        option::of("[ -~]{1,33}".prop_filter_map("length", |text| EnvId::new(&text))),
        option::of(auth),
        option::of((-9..=9_i8).prop_filter_map("range", MtPriority::new)),
        option::of(hold),
        option::of(
            (deadline, any::<bool>()).prop_filter_map("range", |(deadline, trace)| DeliverBy::new(deadline, trace)),
        ),
    )
        .prop_map(|((size, body, smtputf8, ret, requiretls), envid, auth, mt_priority, hold, by)| MailParams {
            size,
            body,
            smtputf8,
            ret,
            envid,
            auth,
            mt_priority,
            requiretls,
            hold,
            by,
        })
}

fn any_recipient_params() -> impl Strategy<Value = RecipientParams> {
    let orcpt = prop_oneof![("[a-zA-Z0-9-]{1,9}", "[ -~]{1,60}"), (Just("UTF-8".to_owned()), r"\PC{1,40}")];
    (
        option::of((0..=7_u8).prop_filter_map("range", Notify::from_bits)),
        option::of(orcpt.prop_filter_map("charset", |(kind, address)| OriginalRecipient::new(&kind, &address))),
    )
        .prop_map(|(notify, orcpt)| RecipientParams { notify, orcpt })
}

proptest! {
    #[test]
    fn written_parameters_are_read_back(mail in any_mail_params(), rcpt in any_recipient_params()) {
        let text = mail.to_string();
        prop_assert!(text.is_ascii() && !text.starts_with(' ') && !text.contains("  "));
        prop_assert_eq!(text.parse::<MailParams>(), Ok(mail));
        let text = rcpt.to_string();
        prop_assert!(text.is_ascii());
        prop_assert_eq!(text.parse::<RecipientParams>(), Ok(rcpt));
    }
}

// RFC 4865 §4.2 (test), RFC 2852 §4 (test)
#[test]
fn times_of_an_envelope() {
    let envelope = |params: &str| {
        let second = 1_800_000_000_u64;
        let id = QueueIds::new(Node::default()).next(second * 1_000_000);
        let received = Received { at_us: 7, client: Client::Internal, helo: None, protocol: Protocol::Local };
        let params: MailParams = params.parse().unwrap();
        let envelope = Envelope { id, sender: ReversePath::Null, params, received, recipients: Vec::new() };
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap() - i64::try_from(second).unwrap();
        (
            envelope.release_at().map(seconds),
            seconds(envelope.waits_since()),
            envelope.deliver_by().map(|(at, _)| seconds(at)),
        )
    };
    assert_eq!(envelope(""), (None, 0, None));
    assert_eq!(envelope("HOLDFOR=60 BY=100;R"), (Some(60), 60, Some(100)));
    assert_eq!(envelope("BY=-5;N"), (None, 0, Some(-5)));
    // A time that is over holds nothing.
    assert_eq!(envelope("HOLDUNTIL=2026-11-20T08:04:39Z").1, 0);
    assert_eq!(envelope("HOLDUNTIL=2027-01-15T08:00:10Z"), (Some(10), 10, None));
}
