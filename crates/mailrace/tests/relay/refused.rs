//! Recipients whom a content rule rejects while the message is for others, too.

use crate::hop::Hop;
use crate::report::Report;
use crate::world::{ends_empty, relay, send};

#[test]
fn a_rejected_recipient_gets_nothing_by_way_of_a_smart_host() {
    let hop = Hop::good();
    let setup = relay(&[&hop]);
    let rules = setup.path("some.rules");
    std::fs::write(&rules, "rule refused {\n  for recipient no@d.test\n  reject \"550 5.7.1 Not for me\"\n}\n")
        .expect("written");
    let server = setup.set("screen.rules", format!("[{rules:?}]")).start();
    send(&server, "a@client.test", &["yes@d.test", "no@d.test"], b"Subject: x\r\n\r\nhello\r\n");
    let mails = hop.wait(2);
    ends_empty(server);
    assert_eq!(hop.count(), 2, "the message for the other, and a report");
    let report = mails.iter().find(|mail| mail.all_to() == ["a@client.test"]).expect("a report");
    assert!(mails.iter().any(|mail| mail.all_to() == ["yes@d.test"]));
    let report = Report::of(report);
    assert_eq!(report.recipients.len(), 1);
    assert_eq!(report.recipients[0]["final-recipient"], "rfc822; no@d.test");
    assert_eq!(report.recipients[0]["status"], "5.7.1");
}
