//! Faults that other filters had, one test for each, and the conditions that find them here.

use crate::{check, message, names, rules};
use filter::{Direction, Final, Limits, Message, Recipient};
use mail::header::LineEnd;

fn part(fields: &str, body: &str) -> Vec<u8> {
    format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{fields}\r\n\r\n{body}\r\n--b--\r\n").into_bytes()
}

/// A rule saw one of the names, the recipient's program the other.
#[test]
fn attachment_names_in_every_reading() {
    let exe = "attachment name ~ /\\.exe$/";
    for fields in [
        "Content-Disposition: attachment; filename=a.exe",
        "Content-Disposition: attachment; filename*=utf-8''a%2eexe",
        "Content-Disposition: attachment; filename*0=a; filename*1=.e; filename*2=xe",
        "Content-Disposition: attachment; filename=\"=?utf-8?B?YS5leGU=?=\"",
        "Content-Disposition: attachment; filename=\"=?gb2312?Q?=C4=E3=2Eexe?=\"",
        "Content-Disposition: attachment; filename=a.txt\r\nContent-Type: text/plain; name=a.exe",
        "Content-Disposition: attachment; filename=a.txt; filename*=utf-8''a.exe",
        "Content-Disposition: attachment;\r\n filename=\r\n \"a.exe\"",
        "Content-Type: application/octet-stream; name = a.exe",
    ] {
        check(exe, &part(fields, ""), true);
    }
    check("damage = names-differ", &part("Content-Disposition: x; filename=a; filename*=''b", ""), true);
    check("damage = names-differ", &part("Content-Disposition: x; filename=a; filename*=''a", ""), false);
}

/// A delimiter inside a line, or a boundary with text behind it, hid the parts that follow.
#[test]
fn delimiters_that_readers_understand_differently() {
    let inside = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx --b\r\n--bc\r\n\r\n--b--\r\n";
    check("damage = ambiguous-delimiter", inside, true);
    check("parts > 2", inside, false);
    let bare =
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\n\nx\n--b\nContent-Type: a/b; name=x.exe\n\n--b--\n";
    check("damage = bare-line-feed", bare, true);
    check("attachment name = \"x.exe\"", bare, true);
    check("attachments > 0", bare, true);
}

/// Padding over the limit of the scan made the message pass unseen.
#[test]
fn mail_beyond_the_limits_says_so() {
    let long = ["Subject: x\r\n\r\n", &"padding ".repeat(600_000), "evil"].concat().into_bytes();
    check("not fully scanned", &long, true);
    check("text ~ /padding/", &long, true);
    check("not fully scanned", b"Subject: x\r\n\r\nshort", false);
    let rules = crate::condition("not fully scanned");
    let mut begun = Message::new(b"Subject: x\r\n\r\nbegin", LineEnd::Crlf);
    begun.is_complete = false;
    let evaluation = rules.evaluate(begun, &Limits::default());
    assert_eq!((evaluation.matches().len(), evaluation.limits_reached()), (1, &["size of the scan"][..]));
    check("parts > 999", "Content-Type: message/rfc822\r\n\r\n".repeat(2_000).as_bytes(), false);
    check("not fully scanned", "Content-Type: message/rfc822\r\n\r\n".repeat(2_000).as_bytes(), true);
    check("not fully scanned", "X: y\r\n".repeat(2_000).as_bytes(), true);
}

/// Text in transfer encodings and charsets was compared undecoded.
#[test]
fn text_is_compared_decoded() {
    check("text ~ /buy now/", &part("Content-Transfer-Encoding: quoted-printable", "b=75y=\r\n now"), true);
    check("text ~ /buy now/", &part("Content-Transfer-Encoding: base64", "YnV5IG5v\r\ndw=="), true);
    check(
        "text ~ /привет/",
        &part("Content-Type: text/plain; charset=koi8-r\r\nContent-Transfer-Encoding: base64", "8PLJ18XU"),
        true,
    );
    check("subject ~ /^viagra$/", b"Subject: =?us-ascii?Q?v=69?=\r\n =?us-ascii?B?YWdyYQ==?=\r\n\r\n", true);
    check("raw header ~ /viagra/", b"Subject: =?us-ascii?Q?v=69agra?=\r\n\r\n", false);
    check("decoded header ~ /=\\?/", b"Subject: =?us-ascii?Q?v=69agra?=\r\n\r\n", false);
    check("header Subject ~ /^=\\?us/", b"Subject: =?us-ascii?Q?v=69agra?=\r\n\r\n", true);
    check("text ~ /x/", &part("Content-Type: text/plain; charset=utf-7", "+AHg-"), false);
    check("damage = unknown-charset", &part("Content-Type: text/plain; charset=utf-7", "+AHg-"), true);
    check("damage = unknown-charset", b"Subject: =?utf-7?Q?+AHg-?=\r\n\r\n", true);
}

/// A script in HTML counted the markup, and one in an address field the address.
#[test]
fn scripts_are_of_what_is_read() {
    let html = "<html><head><style>p { color: red }</style></head><p class=\"long-latin-name\">\u{8bf7}\u{67e5}</p>";
    check("script = Han over 90%", &part("Content-Type: text/html; charset=utf-8", html), true);
    check("script = Han over 90%", "From: \u{8bf7} <latin@example.com>\r\n\r\n".as_bytes(), true);
    check("script = Han", "To: \u{8bf7} <latin@example.com>\r\n\r\n".as_bytes(), false);
    check("header To script = Han", "To: \u{8bf7} <latin@example.com>\r\n\r\n".as_bytes(), true);
    check("attachment name script = Cyrillic", &part("Content-Type: a/b; name*=utf-8''%D0%9F.txt", ""), true);
}

#[test]
fn malformed_headers_are_not_skipped() {
    check("header ~ /^Fr om: evil/", b"Fr om: evil@example.com\r\n\r\n", true);
    check("header From present", b"Fr om: evil@example.com\r\n\r\n", false);
    check("damage = malformed-header", b"Fr om: evil@example.com\r\n\r\n", true);
    check("raw header ~ /\\xe4\\xf6/", b"Subject: \xe4\xf6\r\n\r\n", true);
}

#[test]
fn envelope_and_client() {
    let set = rules(
        "rule sender { match all { sender = \"@spam.example\" } class a }\n\
         rule null { match all { sender = \"\" } class a }\n\
         rule below { match all { sender = \"@.example\" } class a }\n\
         rule client { match all { client address = 192.0.2.0/24\n client name = \".example.net\"\n helo ~ /^x/ } class a }\n\
         rule auth { match any { auth SPF = fail, softfail } class a }\n\
         rule listener { for listener MX\n class a }\n\
         rule outbound { for direction outbound\n class a }\n\
         rule many { match all { recipients > 1 } class a }\n",
    );
    let mut message = message(b"Subject: x\r\n\r\n");
    message.sender = "a@spam.example";
    message.client_address = Some("192.0.2.9".parse().unwrap());
    message.client_name = Some("a.example.net");
    message.helo = Some("xy");
    message.authentication = vec![("dkim", "pass"), ("spf", "softfail")];
    message.listener = Some("mx");
    message.direction = Some(Direction::Inbound);
    let evaluation = set.evaluate(message, &Limits::default());
    assert_eq!(names(&set, &evaluation), ["sender", "below", "client", "auth", "listener"]);
    let evaluation = set.evaluate(Message::new(b"\r\n", LineEnd::Crlf), &Limits::default());
    assert_eq!(names(&set, &evaluation), ["null"]);
}

/// One answer of SMTP stood for all recipients, so the rule of one decided about the mail of others.
#[test]
fn recipients_are_decided_one_by_one() {
    let set = rules(
        "rule mine { for recipient a@example.com\n accept }\n\
         rule tag { tag subject \"[x] \" }\n\
         rule list { for list news\n hold }\n\
         rule rest { match all { subject ~ /x/ } reject \"554 5.7.1 no\" }\n",
    );
    let mut message = Message::new(b"Subject: x\r\n\r\n", LineEnd::Crlf);
    let recipient = |address, list| Recipient { address, list };
    message.recipients = vec![
        recipient("A@example.com", None),
        recipient("b@example.com", None),
        recipient("news@example.com", Some("news")),
        recipient("c@example.com", None),
    ];
    let evaluation = set.evaluate(message, &Limits::default());
    let groups: Vec<_> = evaluation.groups().into_iter().map(|group| (group.recipients, group.rules)).collect();
    assert_eq!(groups, [(vec![0], vec![0]), (vec![1, 3], vec![1, 3]), (vec![2], vec![1, 2])]);
    assert_eq!(evaluation.decision(0), Some((0, &Final::Accept)));
    assert_eq!(evaluation.decision(2), Some((2, &Final::Hold)));
    assert!(matches!(evaluation.decision(3), Some((3, Final::Reject(reply))) if reply.code().get() == 554));
}

#[test]
fn an_explanation_names_the_place() {
    let set =
        rules("rule r {\n match any {\n  subject ~ /hello/\n  text contains \"spam\"\n  size > 1G\n }\n hold\n}\n");
    let content = part("Content-Transfer-Encoding: base64", "bG90cyBvZiBzcGFtIGhlcmU=");
    let evaluation = set.evaluate(message(&content), &Limits::default());
    let report = evaluation.explain(0).unwrap();
    assert!(report.holds && report.is_in_scope);
    let [subject, text, size] = report.conditions.as_slice() else { panic!("{report:?}") };
    assert!(!subject.holds && !size.holds && text.holds && text.line == 4);
    let evidence = text.evidence.as_ref().unwrap();
    assert_eq!((evidence.place.as_str(), evidence.context.as_str()), ("text of part 1", "lots of spam here"));
    assert_eq!(text.source, "text contains \"spam\"");
}
