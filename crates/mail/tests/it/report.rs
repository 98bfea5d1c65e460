//! Delivery reports, read by a parser that is not the crate's: what a program finds in them, what a person reads, and
//! that the text of a peer stays in its place.

use std::path::Path;

use crate::mime::Entity;
use mail::report::{
    Addressee, Composed, Kind, Original, RECIPIENTS_MAX, RecipientReport, Report, compose, fitting, returns_content,
    wants,
};
use mail::{
    Address, Body, Client, EnhancedCode, EnvId, Envelope, HeloName, MailParams, Node, Notify, OriginalRecipient,
    Protocol, QueueId, Received, Recipient, Reply, Ret, ReversePath, Session,
};
use proptest::prelude::*;

const AT_US: u64 = 1_795_161_879_000_000;
const HOUR_US: u64 = 3_600_000_000;
const ORIGINAL: &[u8] =
    b"From: Ann <ann@example.net>\r\nTo: bob@example.org\r\nSubject: =?utf-8?Q?Lunch_on_Friday=3F?=\r\n\
Message-ID: <m1@example.net>\r\n\r\nAre you coming?\r\n";

fn id(us: u64) -> QueueId {
    QueueId::new(us, Node::new(28).unwrap()).unwrap()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn envelope(sender: Option<&str>, recipients: &[&str]) -> Envelope {
    Envelope {
        id: id(AT_US - 4 * HOUR_US),
        sender: sender.map_or(ReversePath::Null, |sender| ReversePath::Address(address(sender))),
        params: MailParams { envid: EnvId::new("QQ314159"), ..MailParams::default() },
        received: Received {
            at_us: AT_US - 4 * HOUR_US,
            client: Client::Internal,
            helo: HeloName::new(b"pc.example.net"),
            protocol: Protocol::Esmtp(Session::default()),
        },
        recipients: recipients.iter().map(|recipient| Recipient::new(address(recipient))).collect(),
    }
}

fn reply(text: &str) -> Reply {
    Reply::parse(text.as_bytes(), 100_000).unwrap()
}

fn code(text: &str) -> EnhancedCode {
    text.parse().unwrap()
}

fn about(recipient: &Recipient, kind: Kind) -> RecipientReport<'_> {
    let status = match kind {
        Kind::Failed => "5.0.0",
        Kind::Delayed => "4.0.0",
        _ => "2.0.0",
    };
    RecipientReport {
        recipient,
        kind,
        status: code(status),
        reply: None,
        remote_mta: None,
        text: "",
        reason: None,
        last_attempt_us: Some(AT_US - 60_000_000),
        will_retry_until_us: (kind == Kind::Delayed).then_some(AT_US + 116 * HOUR_US),
        is_past_time: false,
    }
}

fn report<'a>(envelope: &'a Envelope, recipients: &'a [RecipientReport<'a>], to: &'a Address) -> Report<'a> {
    Report {
        reporting_mta: "mail.example.net",
        envelope,
        recipients,
        at_us: AT_US,
        offset_seconds: 3_600,
        id: id(AT_US),
        postmaster: false,
        is_further: false,
        to,
    }
}

#[test]
fn as_many_recipients_as_fit_share_a_report() {
    let to = address("ann@example.net");
    let names: Vec<String> = (0..2_500).map(|nth| format!("r{nth}@example.org")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let envelope = envelope(Some("ann@example.net"), &names);
    let long = reply(&format!("{}550 5.1.1 no\r\n", "550-5.1.1 xxxxxxxx xxxxxxxxxx xxxxxxxxxx\r\n".repeat(80)));
    let short = reply("550 5.1.1 no such user\r\n");
    for said in [&short, &long] {
        let all: Vec<_> = envelope
            .recipients
            .iter()
            .map(|one| RecipientReport { reply: Some(said), ..about(one, Kind::Failed) })
            .collect();
        for octets_max in [1_000, 30_000, 64 << 10, 10 << 20] {
            let report = report(&envelope, &all, &to);
            let count = fitting(&report, octets_max);
            assert!((1..=RECIPIENTS_MAX).contains(&count));
            let octets = |count| compose(&Report { recipients: &all[..count], ..report }, Original::None).content.len();
            assert!(count == 1 || octets(count) <= octets_max, "{count} in {octets_max}");
            // Not many more would.
            assert!(count == all.len() || octets((count * 2).min(all.len())) > octets_max, "{count} in {octets_max}");
        }
        assert_eq!(fitting(&report(&envelope, &all[..3], &to), 1 << 20), 3);
    }
}

/// Checks the properties that every report has. Returns it taken apart.
fn check(report: &Report<'_>, composed: &Composed) -> Entity {
    let content = &composed.content;
    assert!(content.ends_with(b"\r\n") && has_only_crlf(content), "{}", content.escape_ascii());
    assert!(content.split(|byte| *byte == b'\n').all(|line| line.len() <= 999), "a line beyond 998 octets");
    assert_eq!(composed.body, (!content.is_ascii()).then_some(Body::EightBitMime).or(composed.body));
    assert!(content.is_ascii() || composed.body == Some(Body::EightBitMime));
    assert!(!content.contains(&0));

    let entity = Entity::read(content);
    let names: Vec<_> = entity
        .fields
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !["in-reply-to", "references"].contains(name))
        .collect();
    let expected = [
        "from",
        "to",
        "subject",
        "date",
        "message-id",
        "auto-submitted",
        "mime-version",
        "content-type",
        "content-transfer-encoding",
    ];
    assert_eq!(names, expected);
    assert_eq!(entity.kind(), "multipart/report");
    assert_eq!(entity.parameter("content-type", "report-type").as_deref(), Some("delivery-status"));
    assert!(entity.field("auto-submitted").unwrap().starts_with("auto-"));
    assert!(matches!(entity.parts.len(), 2 | 3), "{} parts", entity.parts.len());
    assert_eq!(entity.parts[0].kind(), "text/plain");
    let global = if composed.smtputf8 { "message/global-delivery-status" } else { "message/delivery-status" };
    assert_eq!(entity.parts[1].kind(), global);
    assert_eq!(groups(&entity).len(), 1 + report.recipients.len());
    if !composed.smtputf8 {
        assert!(entity.fields.iter().all(|(_, value)| value.is_ascii()) && entity.parts[1].body.is_ascii());
    }

    let envelope = report.envelope_for(composed);
    assert_eq!((envelope.sender, envelope.id, envelope.recipients.len()), (ReversePath::Null, report.id, 1));
    assert_eq!(envelope.recipients[0].address.key(), report.to.key());
    entity
}

fn has_only_crlf(content: &[u8]) -> bool {
    let pairs = content.windows(2).filter(|pair| *pair == b"\r\n").count();
    let count = |wanted: u8| content.iter().filter(|byte| **byte == wanted).count();
    pairs == count(b'\r') && pairs == count(b'\n')
}

/// The groups of fields in the second part.
fn groups(entity: &Entity) -> Vec<Vec<(String, String)>> {
    let text = entity.parts[1].text();
    text.split("\r\n\r\n")
        .map(|group| Entity::read(format!("{}\r\n\r\n", group.trim_end()).as_bytes()).fields)
        .collect()
}

fn value<'a>(group: &'a [(String, String)], name: &str) -> Option<&'a str> {
    group.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

// RFC 3464 §2.2 (test), RFC 3464 §2.3 (test), RFC 6522 §3 (test), RFC 3461 §6.3 (test), RFC 3834 §5 (test)
#[test]
fn what_a_program_finds() {
    let mut envelope = envelope(Some("ann@example.net"), &["bob@example.org", "carol@example.org"]);
    envelope.recipients[0].params.orcpt = OriginalRecipient::new("rfc822", "robert@example.com");
    let answer = reply("550-5.1.1 No such user\r\n550 5.1.1 here\r\n");
    let failed = RecipientReport {
        status: code("5.1.1"),
        reply: Some(&answer),
        remote_mta: Some("mx1.example.org [192.0.2.25]"),
        ..about(&envelope.recipients[0], Kind::Failed)
    };
    let delayed = RecipientReport { status: code("5.4.1"), ..about(&envelope.recipients[1], Kind::Delayed) };
    let (recipients, to) = ([failed, delayed], address("ann@example.net"));
    let report = report(&envelope, &recipients, &to);
    let composed = compose(&report, Original::Whole(ORIGINAL));
    let entity = check(&report, &composed);

    assert_eq!((composed.body, composed.smtputf8), (None, false));
    assert_eq!(entity.field("from"), Some("Mail Delivery System <MAILER-DAEMON@mail.example.net>"));
    assert_eq!(entity.field("to"), Some("<ann@example.net>"));
    assert_eq!(entity.field("subject"), Some("Not delivered: your message to bob@example.org"));
    assert_eq!(entity.field("date"), Some("Fri, 20 Nov 2026 09:04:39 +0100"));
    assert_eq!(entity.field("in-reply-to"), Some("<m1@example.net>"));
    assert_eq!(entity.field("auto-submitted"), Some("auto-replied"));
    assert_eq!(entity.parts[2].kind(), "message/rfc822");
    assert_eq!(entity.parts[2].body, ORIGINAL);

    let groups = groups(&entity);
    assert_eq!(value(&groups[0], "original-envelope-id"), Some("QQ314159"));
    assert_eq!(value(&groups[0], "reporting-mta"), Some("dns; mail.example.net"));
    assert_eq!(value(&groups[0], "received-from-mta"), Some("dns; pc.example.net"));
    assert_eq!(value(&groups[0], "arrival-date"), Some("Fri, 20 Nov 2026 05:04:39 +0100"));
    assert_eq!(value(&groups[1], "original-recipient"), Some("rfc822;robert@example.com"));
    assert_eq!(value(&groups[1], "final-recipient"), Some("rfc822; bob@example.org"));
    assert_eq!(value(&groups[1], "action"), Some("failed"));
    assert_eq!(value(&groups[1], "status"), Some("5.1.1"));
    assert_eq!(value(&groups[1], "remote-mta"), Some("dns; mx1.example.org"));
    assert_eq!(value(&groups[1], "diagnostic-code"), Some("smtp; 550 5.1.1 No such user here"));
    assert_eq!(value(&groups[1], "will-retry-until"), None);
    assert_eq!(value(&groups[2], "action"), Some("delayed"));
    assert_eq!(value(&groups[2], "status"), Some("4.4.1"));
    assert_eq!(value(&groups[2], "will-retry-until"), Some("Wed, 25 Nov 2026 05:04:39 +0100"));

    let headers = check(&report, &compose(&report, Original::Headers(ORIGINAL)));
    assert_eq!(headers.parts[2].kind(), "text/rfc822-headers");
    assert!(ORIGINAL.starts_with(&headers.parts[2].body) && headers.parts[2].body.ends_with(b".net>\r\n"));
    assert_eq!(check(&report, &compose(&report, Original::None)).parts.len(), 2);
}

// RFC 2852 §5 (test), RFC 4865 §5.1.2 (test), RFC 6710 §4.6 (test)
#[test]
fn what_the_sender_asked_of_time_and_priority() {
    for (params, by, request) in [
        ("", None, None),
        ("MT-PRIORITY=4 BY=120;R", Some("Fri, 20 Nov 2026 05:06:39 +0100"), None),
        ("MT-PRIORITY=-9 BY=-60;N HOLDFOR=3600", Some("Fri, 20 Nov 2026 05:03:39 +0100"), Some("for;3600")),
        ("HOLDUNTIL=2026-11-20T09:00:00+01:00", None, Some("until;2026-11-20T08:00:00Z")),
    ] {
        let mut envelope = envelope(Some("ann@example.net"), &["bob@example.org"]);
        envelope.params = params.parse().unwrap();
        let (recipients, to) = ([about(&envelope.recipients[0], Kind::Failed)], address("ann@example.net"));
        let report = report(&envelope, &recipients, &to);
        let composed = compose(&report, Original::None);
        let groups = groups(&check(&report, &composed));
        assert_eq!(value(&groups[0], "deliver-by-date"), by, "{params}");
        assert_eq!(value(&groups[0], "future-release-request"), request, "{params}");
        assert!(value(&groups[0], "arrival-date").is_some(), "{params}");
        let sent = report.envelope_for(&composed).params;
        assert_eq!((sent.mt_priority, sent.by, sent.hold), (envelope.params.mt_priority, None, None), "{params}");
    }
}

// RFC 2852 §4.1.3 (test)
#[test]
fn a_delay_beyond_the_given_time_says_so_in_its_status() {
    let envelope = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let to = address("ann@example.net");
    for (kind, is_past_time, wanted) in
        [(Kind::Delayed, true, "4.4.7"), (Kind::Delayed, false, "4.2.2"), (Kind::Failed, true, "4.2.2")]
    {
        let full = RecipientReport { status: code("4.2.2"), is_past_time, ..about(&envelope.recipients[0], kind) };
        let recipients = [full];
        let report = report(&envelope, &recipients, &to);
        let entity = check(&report, &compose(&report, Original::None));
        assert_eq!(value(&groups(&entity)[1], "status"), Some(wanted), "{kind:?} {is_past_time}");
        // The report names the obstacle all the same.
        assert!(kind == Kind::Failed || entity.parts[0].text().contains("The mailbox is full"), "{kind:?}");
    }
}

/// An example of each kind. Each is held as a message in `data/reports` and its first part in `docs/dsn.md`.
/// `MAILRACE_WRITE_GOLDEN=1` writes the messages anew.
#[test]
fn examples() {
    let message = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let bounce = Envelope { sender: ReversePath::Null, ..message.clone() };
    let (ann, postmaster) = (address("ann@example.net"), address("postmaster@mail.example.net"));
    let no_user = reply("550-5.1.1 The mailbox does not exist. Try\r\n550 5.1.1 double-checking the address.\r\n");
    let later = reply("450 4.7.1 Greylisted, come back in 5 minutes\r\n");
    let mx = Some("mx1.example.org [192.0.2.25]");
    let of = |kind| RecipientReport { remote_mta: mx, ..about(&message.recipients[0], kind) };
    let timeout = RecipientReport {
        status: code("4.4.7"),
        remote_mta: mx,
        text: "Connection timed out with mx1.example.org",
        ..of(Kind::Failed)
    };
    let examples = [
        ("failed", RecipientReport { status: code("5.1.1"), reply: Some(&no_user), ..of(Kind::Failed) }),
        ("failed-time", timeout),
        ("delayed", RecipientReport { status: code("4.7.1"), reply: Some(&later), ..of(Kind::Delayed) }),
        ("delivered", of(Kind::Delivered)),
        ("relayed", of(Kind::Relayed)),
        ("expanded", RecipientReport { remote_mta: None, ..of(Kind::Expanded) }),
        ("postmaster", RecipientReport { status: code("5.1.1"), reply: Some(&no_user), ..of(Kind::Failed) }),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/dsn.md")).unwrap();
    for (name, recipient) in examples {
        let recipients = [recipient];
        let mut report = report(&message, &recipients, &ann);
        if name == "postmaster" {
            report = Report { envelope: &bounce, postmaster: true, to: &postmaster, ..report };
        }
        let original =
            if recipient.kind == Kind::Failed { Original::Whole(ORIGINAL) } else { Original::Headers(ORIGINAL) };
        let composed = compose(&report, original);
        let entity = check(&report, &composed);
        let text = String::from_utf8(composed.content).unwrap().replace("\r\n", "\n");
        let path = root.join(format!("tests/data/reports/{name}.eml"));
        if std::env::var_os("MAILRACE_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
            continue;
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
        let words = entity.parts[0].text().replace("\r\n", "\n");
        assert!(page.contains(words.trim_end()), "docs/dsn.md lacks this text of {name}:\n{words}");
    }
}

#[test]
fn several_recipients_in_one_report() {
    let names: Vec<String> = (0..120).map(|n| format!("user{n}@example.org")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let envelope = envelope(Some("ann@example.net"), &names);
    let to = address("ann@example.net");
    let all: Vec<_> = envelope.recipients.iter().map(|recipient| about(recipient, Kind::Failed)).collect();
    let few = report(&envelope, &all[..2], &to);
    let text = check(&few, &compose(&few, Original::None)).parts[0].text().replace("\r\n", " ");
    assert!(
        text.starts_with("Your message was not delivered to user0@example.org and user1@example.org, and"),
        "{text}"
    );
    assert!(text.contains("more recipients; nothing is said here about the others"), "{text}");
    let many = report(&envelope, &all, &to);
    let entity = check(&many, &compose(&many, Original::None));
    assert_eq!(entity.field("subject"), Some("Not delivered: your message to 120 recipients"));
    let text = entity.parts[0].text();
    assert!(text.starts_with("Your message was not delivered to the 120 addresses below,"), "{text}");
    assert!(text.contains("70 more addresses") && text.contains("user49@") && !text.contains("user50@"), "{text}");
}

// A list with very many failures: each takes little room in the part for programs, and the fields that every reader
// needs are there.
// RFC 3464 §2.3 (test)
#[test]
fn many_recipients_take_little_room_each() {
    let names: Vec<String> = (0..3_000).map(|n| format!("user{n}@example.org")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let envelope = envelope(Some("ann@example.net"), &names);
    let to = address("ann@example.net");
    for (said, octets_max) in [
        ("550 5.1.1 no such user\r\n".to_owned(), 200),
        (format!("{}550 5.1.1 no\r\n", "550-5.1.1 Look at the page about this, and then ask.\r\n".repeat(15)), 450),
    ] {
        let said = reply(&said);
        let of = |one| RecipientReport {
            reply: Some(&said),
            remote_mta: Some("mx1.example.org [192.0.2.25]"),
            reason: Some("user-unknown"),
            status: code("5.1.1"),
            ..about(one, Kind::Failed)
        };
        let all: Vec<_> = envelope.recipients.iter().map(of).collect();
        let many = report(&envelope, &all, &to);
        let composed = compose(&many, Original::None);
        let octets = composed.content.len() / all.len();
        assert!(octets <= octets_max, "{octets} octets for a recipient");
        let entity = check(&many, &composed);
        let found = groups(&entity);
        for (group, one) in found[1..].iter().zip(&names) {
            assert_eq!(value(group, "final-recipient"), Some(format!("rfc822; {one}").as_str()));
            assert_eq!((value(group, "action"), value(group, "status")), (Some("failed"), Some("5.1.1")));
            assert!(value(group, "diagnostic-code").unwrap().starts_with("smtp; 550 5.1.1 "));
            assert_eq!(value(group, "remote-mta"), Some("dns; mx1.example.org"));
        }
        assert_eq!(found.len(), all.len() + 1);
        // A person reads of a few, however much is said of them.
        assert!(entity.parts[0].text().len() < 32 << 10, "{}", entity.parts[0].text().len());
    }
}

#[test]
fn a_further_report_has_few_words() {
    let names: Vec<String> = (0..120).map(|n| format!("user{n}@example.org")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let envelope = envelope(Some("ann@example.net"), &names);
    let to = address("ann@example.net");
    let all: Vec<_> = envelope.recipients.iter().map(|recipient| about(recipient, Kind::Failed)).collect();
    let text = |count: usize| {
        let further = Report { is_further: true, ..report(&envelope, &all[..count], &to) };
        check(&further, &compose(&further, Original::Headers(ORIGINAL))).parts[0].text().replace("\r\n", " ")
    };
    let many = text(120);
    assert!(many.contains("120 addresses stand in the second part") && !many.contains("user0@"), "{many}");
    assert!(many.contains("An earlier report about this message tells of other addresses."), "{many}");
    assert!(many.len() < 1_000, "{many}");
    // The report on a message that came later names the reason.
    assert!(text(1).contains("user0@example.org   Last tried:"), "{}", text(1));
}

// RFC 6533 §3 (test), RFC 6533 §4 (test)
#[test]
fn addresses_beyond_ascii() {
    let mut envelope = envelope(Some("ann@example.net"), &["j\u{f6}rg@example.org", "bob@m\u{fc}ller.example"]);
    envelope.params.smtputf8 = true;
    envelope.recipients[0].params.orcpt = OriginalRecipient::new("utf-8", "j\u{f6}rg@example.com");
    let answer = reply("550 5.1.1 gibt's hier nicht: j\u{f6}rg\r\n");
    let recipients = [
        RecipientReport { reply: Some(&answer), ..about(&envelope.recipients[0], Kind::Failed) },
        about(&envelope.recipients[1], Kind::Failed),
    ];
    let original = "Subject: gr\u{fc}n\r\n\r\nwei\u{df}\r\n".as_bytes();

    // To an address in ASCII everything is in ASCII.
    let ann = address("ann@m\u{fc}ller.example");
    let to_ascii = report(&envelope, &recipients, &ann);
    let composed = compose(&to_ascii, Original::Whole(original));
    let entity = check(&to_ascii, &composed);
    assert!(composed.content.is_ascii() && composed.body.is_none() && !composed.smtputf8);
    assert_eq!(entity.field("to"), Some("<ann@xn--mller-kva.example>"));
    assert!(entity.parts[0].text().contains("j\u{f6}rg@example.org") && entity.parts[0].text().contains("gr\u{fc}n"));
    let fields = groups(&entity);
    assert_eq!(value(&fields[1], "original-recipient"), Some(r"utf-8;j\x{F6}rg@example.com"));
    assert_eq!(value(&fields[1], "final-recipient"), Some(r"utf-8; j\x{F6}rg@example.org"));
    assert_eq!(value(&fields[1], "diagnostic-code"), Some("smtp; 550 5.1.1 gibt's hier nicht: j?rg"));
    assert_eq!(value(&fields[2], "final-recipient"), Some("rfc822; bob@xn--mller-kva.example"));
    assert_eq!((entity.parts[2].kind().as_str(), &entity.parts[2].body[..]), ("message/global", original));

    // To one that is not, everything stands as it is.
    let joerg = address("j\u{f6}rg@example.net");
    let to_utf8 = report(&envelope, &recipients, &joerg);
    let composed = compose(&to_utf8, Original::Headers(original));
    let entity = check(&to_utf8, &composed);
    assert!(composed.smtputf8 && composed.body == Some(Body::EightBitMime));
    assert_eq!(entity.field("to"), Some("<j\u{f6}rg@example.net>"));
    assert_eq!(value(&groups(&entity)[1], "final-recipient"), Some("utf-8; j\u{f6}rg@example.org"));
    assert_eq!(entity.parts[2].kind(), "message/global-headers");
}

// RFC 6522 §3 (test), RFC 6152 §3 (test)
#[test]
fn eight_bit_content_makes_an_eight_bit_report() {
    let envelope = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let (recipients, to) = ([about(&envelope.recipients[0], Kind::Failed)], address("ann@example.net"));
    let report = report(&envelope, &recipients, &to);
    let original = b"Subject: x\r\n\r\ngr\xfcn\r\n";
    let composed = compose(&report, Original::Whole(original));
    let entity = check(&report, &composed);
    assert_eq!(composed.body, Some(Body::EightBitMime));
    assert_eq!(entity.parts[2].field("content-transfer-encoding"), Some("8bit"));
    assert_eq!(entity.parts[2].body, original);
    let found = mail::seven_bit::convert(&composed.content);
    assert_eq!(found.left, None);
    let converted = found.content;
    assert!(mail::seven_bit::is_seven_bit(&converted));
    let entity = Entity::read(&converted);
    assert_eq!(entity.parts[2].parts[0].body, b"gr\xfcn\r\n");
}

#[test]
fn a_foreseen_boundary_is_not_used() {
    let envelope = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let (recipients, to) = ([about(&envelope.recipients[0], Kind::Failed)], address("ann@example.net"));
    let report = report(&envelope, &recipients, &to);
    let boundary = check(&report, &compose(&report, Original::None)).parameter("content-type", "boundary").unwrap();
    let stem = boundary.strip_suffix('1').unwrap();
    let mut hostile = b"Subject: x\r\n\r\n".to_vec();
    for number in 1..300 {
        hostile.extend_from_slice(format!("--{stem}{number}\r\n\r\n--{stem}{number}--\r\n").as_bytes());
    }
    let entity = check(&report, &compose(&report, Original::Whole(&hostile)));
    assert_eq!((entity.parts.len(), &entity.parts[2].body), (3, &hostile));
}

// RFC 3461 §4.1 (test)
#[test]
fn who_wants_what() {
    use Kind::{Delayed, Delivered, Expanded, Failed, Relayed};
    for (notify, wanted) in [
        (None, &[Failed, Delayed][..]),
        (Some(Notify::NEVER), &[]),
        (Some(Notify::SUCCESS), &[Delivered, Relayed, Expanded]),
        (Some(Notify::FAILURE), &[Failed]),
        (Some(Notify::DELAY.and(Notify::SUCCESS)), &[Delayed, Delivered, Relayed, Expanded]),
    ] {
        for kind in [Failed, Delayed, Delivered, Relayed, Expanded] {
            assert_eq!(wants(notify, kind), wanted.contains(&kind), "{notify:?} {kind:?}");
        }
    }
}

// RFC 5321 §6.1 (test), RFC 3461 §6.1 (test)
#[test]
fn reports_end_after_two_steps() {
    let (ann, postmaster) = (address("ann@example.net"), address("postmaster@mail.example.net"));
    let message = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let first = Addressee::of(&message.sender, &message.recipients[0], Kind::Failed, &postmaster);
    assert_eq!(first, Addressee::Sender(&ann));

    let recipients = [about(&message.recipients[0], Kind::Failed)];
    let bounce = report(&message, &recipients, &ann);
    let bounce = bounce.envelope_for(&compose(&bounce, Original::None));
    let second = Addressee::of(&bounce.sender, &bounce.recipients[0], Kind::Failed, &postmaster);
    assert_eq!(second, Addressee::Postmaster(&postmaster));
    assert!(wants(None, Kind::Traced) && !wants(Some(Notify::NEVER), Kind::Traced));
    for kind in [Kind::Delayed, Kind::Delivered, Kind::Relayed, Kind::Traced, Kind::Expanded] {
        assert_eq!(Addressee::of(&bounce.sender, &bounce.recipients[0], kind, &postmaster), Addressee::Nobody);
    }

    let recipients = [about(&bounce.recipients[0], Kind::Failed)];
    let double = Report { postmaster: true, ..report(&bounce, &recipients, &postmaster) };
    let double = double.envelope_for(&compose(&double, Original::None));
    // The postmaster's mail may go on to another address, which keeps the parameters.
    let forwarded = Recipient { address: address("admin@example.com"), ..double.recipients[0].clone() };
    for recipient in [&double.recipients[0], &forwarded] {
        assert_eq!(Addressee::of(&double.sender, recipient, Kind::Failed, &postmaster), Addressee::Nobody);
    }
    let foreign = Recipient::new(address("Postmaster@mail.example.net".to_ascii_lowercase().as_str()));
    assert_eq!(Addressee::of(&ReversePath::Null, &foreign, Kind::Failed, &postmaster), Addressee::Nobody);
}

// RFC 3461 §4.3 (test), RFC 8689 §5 (test)
#[test]
fn how_much_comes_back() {
    let plain = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let with = |change: fn(&mut MailParams)| {
        let mut envelope = plain.clone();
        change(&mut envelope.params);
        envelope
    };
    assert!(returns_content(&plain, true, 100, 100));
    assert!(!returns_content(&plain, true, 101, 100));
    assert!(!returns_content(&plain, false, 1, 100));
    assert!(returns_content(&with(|params| params.ret = Some(Ret::Full)), true, 1, 100));
    for refused in [
        with(|params| params.ret = Some(Ret::Headers)),
        with(|params| params.body = Some(Body::BinaryMime)),
        with(|params| params.requiretls = true),
    ] {
        assert!(!returns_content(&refused, true, 1, 100));
    }
}

/// Text that tries to become structure.
fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\r\n".to_owned()),
        Just("\r\n\r\n--=_6AK9BPQO000028.1\r\n".to_owned()),
        Just("\r\nBcc: evil@example.com\r\n".to_owned()),
        Just("\0".to_owned()),
        Just("\u{202e}\u{2028}".to_owned()),
        Just("=?utf-8?Q?=0D=0ATo:_x?=".to_owned()),
        Just("a".repeat(3_000)),
        Just("word ".repeat(300)),
        ".{0,40}",
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn hostile_octets() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\0".to_vec()),
        Just(ORIGINAL.to_vec()),
        Just(b"Subject: ".to_vec()),
        Just(b"--=_6AK9BPQO000028.1--\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        Just(vec![b'x'; 2_500]),
        Just("\u{fc}".repeat(700).into_bytes()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn nothing_foreign_becomes_structure(
        texts in prop::collection::vec(hostile_text(), 4),
        octets in hostile_octets(),
        local in "[a-z\u{fc} =?\"<>,.@\\\\-]{1,60}",
        kinds in prop::collection::vec(0..6_usize, 1..4),
        what in 0..3_usize,
        is_utf8 in any::<bool>(),
        postmaster in any::<bool>(),
    ) {
        let quoted = format!("\"{}\"@example.org", local.replace('\\', "\\\\").replace('"', "\\\""));
        let mut envelope = envelope(Some("ann@example.net"), &["bob@example.org"]);
        envelope.params.smtputf8 = is_utf8;
        if let Ok(address) = Address::parse(quoted.as_bytes()) {
            envelope.recipients[0].address = address;
        }
        envelope.params.envid = EnvId::new(&texts[3]);
        envelope.recipients[0].params.orcpt = OriginalRecipient::new("utf-8", &texts[2]);
        let wire = format!("550 {}\r\n", texts[0].replace(['\r', '\n'], "\u{7}"));
        let answer = reply(&wire);
        let recipients: Vec<_> = kinds.iter().map(|kind| RecipientReport {
            reply: Some(&answer),
            remote_mta: Some(&texts[1]),
            text: &texts[2],
            reason: Some(&texts[3]),
            ..about(&envelope.recipients[0], [Kind::Failed, Kind::Delayed, Kind::Delivered, Kind::Relayed, Kind::Expanded, Kind::Traced][*kind])
        }).collect();
        let to = envelope.recipients[0].address.clone();
        let report = Report { reporting_mta: &texts[3], postmaster, ..report(&envelope, &recipients, &to) };
        let original = [Original::Whole(&octets), Original::Headers(&octets), Original::None][what];
        let composed = compose(&report, original);
        prop_assert!(composed.content.len() <= 20_000 * recipients.len() + 4 * octets.len() + 4_000);
        let content = composed.content.clone();
        // The parser of messages wants more of a header than a stranger's message has.
        let is_strict = what != 0;
        let entity = if is_strict { check(&report, &composed) } else { Entity::read_outer(&content) };
        prop_assert_eq!(entity.parts.len(), if what == 2 { 2 } else { 3 });
        if what == 0 && !octets.iter().any(|byte| b"\0\r\n".contains(byte)) && octets.len() < 998 {
            prop_assert_eq!(&entity.parts[2].body, &octets);
        }
    }
}

// A reply may have thousands of lines, and a message thousands of recipients who got it.
#[test]
fn long_replies_are_cut() {
    let envelope = envelope(Some("ann@example.net"), &["bob@example.org"]);
    let answer = reply(&format!("{}550 end\r\n", "550-no no no no no no no no no\r\n".repeat(1_000)));
    let recipients = [RecipientReport { reply: Some(&answer), ..about(&envelope.recipients[0], Kind::Failed) }];
    let to = address("ann@example.net");
    let report = report(&envelope, &recipients, &to);
    let entity = check(&report, &compose(&report, Original::None));
    assert!(entity.parts[0].text().contains("(981 lines more)"), "{}", entity.parts[0].text());
    assert!(value(&groups(&entity)[1], "diagnostic-code").unwrap().len() < 1_100);
}

// The examples and reports with UTF-8, by the parser that comes with Python, where there is one.
#[test]
fn python_understands_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("../../bench/checks/dsn.py");
    let python = |arguments: &[&str], input: &[u8]| -> Option<std::process::Output> {
        let mut child = std::process::Command::new("python3")
            .arg(&script)
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .ok()?;
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
        Some(child.wait_with_output().unwrap())
    };
    let check = |output: Option<std::process::Output>| {
        if let Some(output) = output {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    };
    check(python(&["--self-test"], b""));
    for name in ["failed", "failed-time", "delayed", "delivered", "relayed", "expanded", "postmaster"] {
        let path = root.join(format!("tests/data/reports/{name}.eml"));
        let action = if name == "postmaster" { "failed" } else { name.split('-').next().unwrap() };
        check(python(&["--action", action, "--recipient", "bob@example.org", path.to_str().unwrap()], b""));
    }
    let mut envelope = envelope(Some("ann@example.net"), &["j\u{f6}rg@example.org"]);
    envelope.params.smtputf8 = true;
    let recipients = [about(&envelope.recipients[0], Kind::Failed)];
    for to in ["ann@example.net", "j\u{f6}rg@example.net"] {
        let to = address(to);
        let report = report(&envelope, &recipients, &to);
        let composed = compose(&report, Original::Whole("Subject: gr\u{fc}n\r\n\r\nwei\u{df}\r\n".as_bytes()));
        check(python(&["--action", "failed"], &composed.content));
    }
}
