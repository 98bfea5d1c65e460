//! The example files of rules: they are sound, and they catch the mail that they are written for.

use crate::{message, names};
use filter::{Direction, Limits, RuleSet};

const CHARSETS: &str = include_str!("../../../../examples/rules/charsets.rules");
const ATTACHMENTS: &str = include_str!("../../../../examples/rules/attachments.rules");

#[track_caller]
fn check(file: &str, content: &[u8], wanted: &[&str]) {
    let rules = RuleSet::parse(&[("example", file)]).unwrap_or_else(|problems| panic!("{problems:#?}"));
    // Each rule alone, since the first decision ends the evaluation.
    let mut found = Vec::new();
    let mut message = message(content);
    message.direction = Some(Direction::Inbound);
    let evaluation = rules.evaluate(message, &Limits::default());
    for (index, rule) in rules.rules().iter().enumerate() {
        let report = evaluation.explain(index).unwrap();
        if report.holds && report.is_in_scope {
            found.push(rule.name());
        }
    }
    assert_eq!(found, wanted, "{}", content.escape_ascii());
    assert_eq!(names(&rules, &evaluation).first(), wanted.first(), "the first decides");
}

/// The variants of the spam that passed rules on charsets one after the other.
#[test]
fn chinese_mail_in_every_spelling() {
    let both = ["chinese_charset", "chinese_text"];
    check(
        CHARSETS,
        b"From: =?gb2312?B?y7O1wsf4xu/A1rbguabE3NfU0NCztdPQz965q8u+?= <a@example.com>\r\n\
          Subject: =?gb2312?B?d3Azz/ogytsg1vcgudwg1/Yg0KkgIMqyIMO0IA==?=\r\n\r\n",
        &both,
    );
    check(CHARSETS, b"Subject: =?GBK?B?bnZ2dyAyMDExLjEyLTIwMTItMDEgvqsgxrcgzcYgz/ogIGZkZXI=?=\r\n\r\n", &both);
    check(CHARSETS, b"Content-Type: text/plain; charset=\"gb2312\"\r\n\r\n\xc7\xeb\xb2\xe9\xca\xd5", &both);
    let text = ["chinese_text"];
    check(CHARSETS, b"Subject: =?utf-8?B?6K+35p+l5pS277yB?=\r\n\r\n", &text);
    check(CHARSETS, b"Subject: =?gb18030?B?x+uy6crV?=\r\n\r\n", &text);
    check(CHARSETS, b"Subject: =?big5?B?vdCsZKas?=\r\n\r\n", &text);
    check(CHARSETS, "Subject: \u{8bf7}\u{67e5}\u{6536}\r\n\r\n".as_bytes(), &text);
    check(
        CHARSETS,
        b"Subject: x\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n\
                      6K+35p+l5pS277yB\r\n",
        &text,
    );
    check(CHARSETS, b"Subject: =?koi8-r?B?8NLJ18XU?=\r\n\r\n", &["cyrillic"]);
    check(CHARSETS, b"Subject: Hello\r\nFrom: A <a@example.com>\r\n\r\nHello world\r\n", &[]);
    check(CHARSETS, b"Subject: =?utf-8?B?R3LDvMOfZQ==?=\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n", &[]);
}

#[test]
fn programs_by_name_and_by_content() {
    let part = |fields: &str, body: &str| {
        format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{fields}\r\n\r\n{body}\r\n--b--\r\n")
            .into_bytes()
    };
    let base64 = "Content-Transfer-Encoding: base64\r\n";
    check(ATTACHMENTS, &part("Content-Disposition: attachment; filename=a.exe", ""), &["programs"]);
    check(
        ATTACHMENTS,
        &part(&format!("{base64}Content-Type: image/png; name=a.png"), "TVqQAAMAAAAEAAAA"),
        &["programs"],
    );
    check(ATTACHMENTS, &part("Content-Disposition: attachment; filename=a.txt", "MZ"), &["programs"]);
    check(ATTACHMENTS, &part("Content-Disposition: attachment; filename=a.txt", "hello"), &[]);
    check(ATTACHMENTS, b"Subject: a.exe\r\n\r\nMZ\r\n", &[]);
}
