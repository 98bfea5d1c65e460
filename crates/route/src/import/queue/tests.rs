//! Control files that sendmail 8.17 has written, and files at random.

use super::*;
use mail::{Address, RecipientParams};
use proptest::prelude::*;

const DSN: &[u8] = include_bytes!("tests/dsn.qf");
const PARTIAL: &[u8] = include_bytes!("tests/partial.qf");
const QUARANTINED: &[u8] = include_bytes!("tests/quarantined.hf");
const ALIASES: &[u8] = include_bytes!("tests/aliases.qf");
const REPORT: &[u8] = include_bytes!("tests/report.qf");
const FORWARD: &[u8] = include_bytes!("tests/forward.qf");
const MANY: &[u8] = include_bytes!("tests/many.qf");
const NULL: &[u8] = include_bytes!("tests/null.qf");
const TWO: &[u8] = include_bytes!("tests/two.qf");

fn host() -> DomainName {
    DomainName::new("oracle.example").unwrap()
}

fn read(octets: &[u8]) -> Result<QueuedMessage, ControlFileError> {
    QueuedMessage::read(octets, &host(), &ControlFileLimits::default())
}

fn recipients(message: &QueuedMessage) -> Vec<String> {
    let shown = |one: &QueuedRecipient| format!("{} {}", one.target, one.params).trim_end().to_owned();
    message.recipients.iter().map(shown).collect()
}

fn header(message: &QueuedMessage) -> String {
    String::from_utf8(message.header_section(&host(), 0, "unique")).unwrap()
}

#[test]
fn what_the_sender_asked_for_is_kept() {
    let found = read(DSN).unwrap();
    assert_eq!(
        (found.version, found.arrived, found.tries, found.last_try, found.priority),
        (8, 1_795_357_169, 0, 0, 150_273)
    );
    assert_eq!(found.sender.to_string(), "<dsn@sender.example>");
    assert_eq!(found.params.to_string(), "BODY=8BITMIME RET=HDRS ENVID=env+2B1 AUTH=<> BY=3600;RT");
    assert_eq!(
        recipients(&found),
        [
            "<bob@oracle.example> NOTIFY=FAILURE",
            "<olist@oracle.example>",
            "<mixedlist@oracle.example> NOTIFY=FAILURE ORCPT=rfc822;mixedlist@oracle.example",
            "<r1@dead.example> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;orig+2Bx@dead.example",
            "<r2@dead.example> NOTIFY=NEVER",
        ]
    );
    assert_eq!(found.macros.get(2), Some(&("s".to_owned(), "client.example".to_owned())));
    assert_eq!(found.macros.last(), Some(&("daemon_flags".to_owned(), "c u".to_owned())));
    assert!(found.notes.is_empty() && found.quarantine.is_none() && !found.is_warned && found.hides_bcc);
}

#[test]
fn the_header_goes_out_as_sendmail_sends_it() {
    let expected = "Received: from client.example (root@localhost)\r\n\
        \tby oracle.example (8.17.1.9/8.17.1.9) with ESMTP id 6AMEJTDx000092;\r\n\
        \tSun, 22 Nov 2026 14:19:29 GMT\r\n\
        Date: Sun, 22 Nov 2026 14:19:29 GMT\r\n\
        Message-Id: <202611221419.6AMEJTDx000092@oracle.example>\r\n\
        Subject: raw \u{c1} \u{e4}\r\n\
        From: <dsn@sender.example>\r\n\
        To: bob@oracle.example, <r1@dead.example>, joe@oracle.example (Joe)\r\n\
        MIME-Version: 1.0\r\n\
        Content-Type: text/plain; charset=utf-8\r\n\
        Content-Transfer-Encoding: 8bit\r\n\
        X-Empty:\r\n\r\n";
    assert_eq!(header(&read(DSN).unwrap()), expected, "without Return-Path and Bcc, with a domain for bob");
    let shown = header(&read(PARTIAL).unwrap());
    assert!(shown.contains("X-Long: aaaa\r\n\tbbbb\r\n    cccc\r\n"), "{shown}");
    assert!(!shown.contains("Full-Name"), "{shown}");
    let report = header(&read(REPORT).unwrap());
    assert!(report.contains("From: Mail Delivery Subsystem <MAILER-DAEMON@oracle.example>\r\n"), "{report}");
}

#[test]
fn only_who_has_not_got_it_is_left() {
    let found = read(PARTIAL).unwrap();
    assert_eq!(recipients(&found), ["<bob@oracle.example>", "<far@dead.example>"], "ann has it");
    assert_eq!((found.tries, found.last_try), (1, 1_795_357_169));
    assert_eq!(found.status.as_deref(), Some("Deferred: local mailer (/run/bin/mixed) exited with EX_TEMPFAIL"));
    assert_eq!(recipients(&read(TWO).unwrap()), ["<a@dead.example>", "<b@other.example>"]);
    assert_eq!(recipients(&read(MANY).unwrap()).len(), 62);
    assert!(recipients(&read(MANY).unwrap()).contains(&"<\"quoted local\"@dead.example>".to_owned()));
}

#[test]
fn quarantine_reports_and_nobody_as_sender() {
    let found = read(QUARANTINED).unwrap();
    assert_eq!(found.quarantine.as_deref(), Some("suspicious thing"));
    assert_eq!(read(NULL).unwrap().sender, ReversePath::Null);
    assert_eq!(
        read(REPORT).unwrap().sender,
        ReversePath::Null,
        "S has MAILER-DAEMON, and nobody is told of its failure"
    );
    assert_eq!(read(FORWARD).unwrap().sender.to_string(), "<root@oracle.example>");
}

#[test]
fn programs_keep_the_alias_they_come_from() {
    let found = read(ALIASES).unwrap();
    let shown = |one: &QueuedRecipient| {
        format!(
            "{}: {} of {} for {}",
            one.line,
            one.target,
            one.controller.as_deref().unwrap_or_default(),
            one.named.as_ref().map(Address::to_string).unwrap_or_default()
        )
    };
    assert_eq!(
        found.recipients.iter().map(shown).collect::<Vec<_>>(),
        [
            "14: |/usr/bin/program -x of prog:1:0:prog for prog@oracle.example",
            "17: |/usr/bin/other of mixedlist:1:0:mixedlist for mixedlist@oracle.example",
            "20: <joe@oracle.example> of joe:1000:100:mixedlist for mixedlist@oracle.example",
            "23: <far@dead.example> of mixedlist:1:0:mixedlist for mixedlist@oracle.example",
            "26: <x1@dead.example> of ::include:/etc/mail/members for inc@oracle.example",
            "28: <x2@other.example> of ::include:/etc/mail/members for inc@oracle.example",
        ]
    );
    assert_eq!(recipients(&read(FORWARD).unwrap()), ["|/usr/bin/vac joe", "\\<joe@oracle.example>"]);
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    let fails = |text: &[u8], line: usize, words: &str| {
        let error = read(text).expect_err("it is broken");
        assert!(error.0.line == line && error.to_string().contains(words), "{error}");
    };
    let with = |from: &str, to: &str| String::from_utf8_lossy(NULL).replace(from, to).into_bytes();
    fails(b"", 1, "empty");
    fails(b"T1\n", 1, "version");
    fails(&with("V8", "V9"), 1, "version 9");
    fails(&with("T1795357169", "Tsoon"), 2, "time of arrival \"soon\"");
    fails(&with("K0", "W0"), 3, "the letter \"W\"");
    fails(&with("RPFD:a@dead.example", "RPFD:a@@"), 11, "is no address");
    fails(&with("RPFD:a@dead.example", "RPFD"), 11, "colon");
    fails(&with("RPFD:a@dead.example\n", ""), 18, "nobody is left");
    fails(&with("S<>\n", ""), 18, "sender");
    fails(&with("H??Subject: five", "H??Subject five"), 18, "no header field");
    fails(&with("\n.\n", "\n.\nRPFD:evil@x.example\n"), 20, "follows");
    fails(&with("\n.\n", "\n"), 18, "not whole");
    fails(&with("\n.\n", "\n.x\n"), 19, "no end");
    fails(&with("five", "fi\0ve"), 18, "octet 0");
    fails(&with("T1795357169\n", ""), 18, "time of arrival");
    fails(&with("RPFD", "B7BITS\nRPFD"), 11, "body type");
    let limits = ControlFileLimits { recipients_max: 10, ..ControlFileLimits::default() };
    let error = QueuedMessage::read(MANY, &host(), &limits).unwrap_err();
    assert!(error.to_string().contains("more than 10 recipients"), "{error}");
    let limits = ControlFileLimits { octets_max: 10, ..ControlFileLimits::default() };
    assert!(QueuedMessage::read(MANY, &host(), &limits).unwrap_err().to_string().contains("of 10 allowed"));
}

#[test]
fn what_has_no_counterpart_is_noted_and_the_rest_kept() {
    let text = String::from_utf8_lossy(DSN).into_owned();
    let text = text
        .replace("Qrfc822;orig+2Bx@dead.example", "Qnothing")
        .replace("Zenv+2B1", "Z\u{e4}")
        .replace("\u{12} 3600", "\u{10} 3600");
    let found = read(text.as_bytes()).unwrap();
    assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
    assert_eq!((found.params.envid, found.params.by, found.recipients.len()), (None, None, 5));
}

#[test]
fn old_versions_are_read() {
    let old = b"V2\nT1\nK0\nN0\nP1\nDdfAA12345\nEerr@a.example\nS<joe@a.example>\nRPFD:<ann@b.example>\nHReceived: by a.example\nH?P?Return-Path: joe@a.example\n.\n";
    let found = read(old).unwrap();
    assert_eq!((found.version, found.header.len()), (2, 2));
    assert!(
        header(&found).starts_with("Date: Thu, 1 Jan 1970 00:00:01 +0000")
            && header(&found).contains("Received: by a.example\r\n")
    );
}

/// Lines as sendmail writes them, and the values that they are read as.
fn written(
    recipients: &[(String, u8, Option<String>)],
    fields: &[(String, Vec<u8>)],
    tries: u32,
    arrived: u64,
) -> Vec<u8> {
    let mut text =
        format!("V8\nT{arrived}\nK0\nN{tries}\nP30000\nFs\n$_root@localhost\nS<joe@a.example>\n").into_bytes();
    for (address, notify, orcpt) in recipients {
        if let Some(orcpt) = orcpt {
            text.extend_from_slice(format!("Qrfc822;{orcpt}\n").as_bytes());
        }
        let flags: String =
            "SFD".chars().zip(0..).filter(|(_, bit)| notify >> bit & 1 == 1).map(|(flag, _)| flag).collect();
        let asked = if *notify > 7 { "N" } else { "" };
        text.extend_from_slice(format!("RP{asked}{flags}:<{address}>\n").as_bytes());
    }
    for (name, value) in fields {
        text.extend_from_slice(format!("H??{name}: ").as_bytes());
        for &byte in value {
            if (0x80..0xa0).contains(&byte) || byte == 0xff {
                text.push(0xff);
            }
            text.push(byte);
        }
        text.push(b'\n');
    }
    text.extend_from_slice(b".\n");
    text
}

proptest! {
    #[test]
    fn what_is_written_as_sendmail_does_reads_back(
        recipients in prop::collection::vec(("[a-z]{1,8}@[a-z]{1,8}\\.example", 0u8..16, prop::option::of("[a-z]{1,8}@b\\.example")), 1..20),
        fields in prop::collection::vec(("X-[A-Z][a-z]{0,9}", prop::collection::vec((0x20u8..=0xff).prop_filter("DEL", |byte| *byte != 0x7f), 0..60)), 0..10),
        tries: u32,
        arrived in 0u64..4_000_000_000,
    ) {
        let found = read(&written(&recipients, &fields, tries, arrived)).unwrap();
        prop_assert_eq!((found.tries, found.arrived), (tries, arrived));
        prop_assert_eq!(found.recipients.len(), recipients.len());
        for (one, (address, notify, orcpt)) in found.recipients.iter().zip(&recipients) {
            prop_assert_eq!(one.target.to_string(), format!("<{address}>"));
            let params = RecipientParams {
                notify: (*notify > 7).then(|| mail::Notify::from_bits(notify & 7).unwrap()),
                orcpt: orcpt.as_ref().map(|one| mail::OriginalRecipient::new("rfc822", one).unwrap()),
            };
            prop_assert_eq!(&one.params, &params);
        }
        let header = found.header_section(&host(), 0, "unique");
        let expected: Vec<u8> = fields.iter().flat_map(|(name, value)| [format!("{name}: ").as_bytes(), value, b"\r\n"].concat()).collect();
        let expected = [expected.as_slice(), b"\r\n"].concat();
        prop_assert!(header.ends_with(&expected), "{} | {}", header.escape_ascii(), expected.escape_ascii());
    }

    #[test]
    fn any_octets_are_read_or_refused(at in 0usize..1_200, with: u8, cut in 0usize..1_200) {
        for seed in [DSN, ALIASES, FORWARD] {
            let mut text = seed.to_vec();
            if let Some(byte) = text.get_mut(at) {
                *byte = with;
            }
            fuzz::queue_control(&text);
            text.truncate(cut);
            fuzz::queue_control(&text);
        }
    }
}
