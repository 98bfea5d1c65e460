//! Options that change how a message is handed in, and its reports.

use super::desk::{Desk, Sink, taken, wait_until_empty};
use testkit::harness::Setup;

const MESSAGE: &str = "Subject: x\n\nhello\n";

#[test]
fn what_is_said_is_recorded_as_sendmail_records_it() {
    let (desk, setup) = Desk::opened(Setup::new());
    let log = desk.path("traffic").display().to_string();
    assert_eq!(desk.sendmail(&["-X", &log, "-odq", "joe@a.test"], "Subject: x\n\nhello\n").exit, Some(0));
    let dialog =
        "EHLO me\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nSubject: z\r\n\r\nbody\r\n.\r\nQUIT\r\n";
    assert_eq!(desk.sendmail(&["-bs", "-X", &log], dialog).exit, Some(0));
    let written = std::fs::read_to_string(&log).expect("written");
    let lines: Vec<&str> = written.lines().collect();
    let is_numbered =
        |line: &&str| line.split_once(' ').is_some_and(|(pid, _)| pid.len() >= 5 && pid.parse::<u32>().is_ok());
    assert!(lines.iter().all(is_numbered), "{written}");
    let said: Vec<&str> = lines.iter().map(|line| line.split_once(' ').expect("a number").1).collect();
    let file =
        desk.waiting().iter().map(|name| format!("=== HANDED IN {name}")).find(|line| said.contains(&line.as_str()));
    assert_eq!(said.get(..4), Some(&["<<< Subject: x", "<<< ", "<<< hello", "<<< [EOF]"][..]), "{written}");
    assert!(file.is_some(), "{written}");
    for part in [">>> 220 ", "<<< EHLO me\r", ">>> 354 ", "<<< body\r", "<<< .\r", "<<< QUIT\r", ">>> 221 "] {
        assert!(said.iter().any(|line| line.starts_with(part.trim_end_matches('\r'))), "{part}: {written}");
    }
    let denied = desk.sendmail(&["-X", "/nonexistent/log", "joe@a.test"], MESSAGE);
    assert!(denied.exit == Some(73) && denied.err.contains("cannot open /nonexistent/log: "), "{denied:?}");
    assert_eq!(taken(setup).len(), 2, "what could not be recorded was not handed in");
}

#[test]
fn a_message_says_how_it_came_here() {
    let (desk, setup) = Desk::opened(Setup::new());
    for words in [&["-p", "UUCP:there.example"][..], &["-Mrbsmtp"], &["-M{client_name}x", "-pX:evil\r\nX-Evil: y"]] {
        let words: Vec<&str> = words.iter().copied().chain(["-f", "a@b.test", "joe@a.test"]).collect();
        assert_eq!(desk.sendmail(&words, MESSAGE).exit, Some(0));
    }
    assert_eq!(desk.sendmail(&["-G", "-f", "a@b.test", "joe@a.test"], "To: joe\nX: y\n\nhello\n").exit, Some(0));
    let letters = taken(setup);
    let texts: Vec<String> = letters.iter().map(|one| String::from_utf8_lossy(&one.content).into_owned()).collect();
    let has = |part: &str| texts.iter().filter(|text| text.contains(part)).count();
    assert_eq!(has("\r\n\tby mx.test (mailrace) with UUCP; "), 1, "{texts:#?}");
    assert_eq!((has("\r\nReceived: from there.example ("), has("\r\nReceived: (from ")), (1, 1), "{texts:#?}");
    assert_eq!((has("with bsmtp; "), has("\r\nX-Evil")), (1, 0), "{texts:#?}");
    let gateway = texts.iter().find(|text| text.contains("\r\nTo: joe\r\nX: y\r\n\r\nhello\r\n")).expect("as it came");
    assert!(
        ["Date:", "Message-Id:", "From:"].iter().all(|name| !gateway.contains(&format!("\r\n{name}"))),
        "{gateway}"
    );
}

#[test]
fn limits_of_one_call_hold_for_it() {
    let (desk, _setup) = Desk::opened(Setup::new());
    for (option, input, exit, text) in [
        ("MaxMessageSize=10", MESSAGE, 69, "exceeds maximum fixed size (10)"),
        ("MaxMessageSize=0", MESSAGE, 0, ""),
        ("MaxMessageSize=x", MESSAGE, 64, "-O MaxMessageSize=x: \"x\" is no number"),
        ("MaxHopCount=0", "Received: from x\nSubject: x\n\n", 69, "Too many hops 1 (0 max)"),
        ("MaxHeadersLength=20", "Subject: longer than that\n\n", 69, "Headers too large (20 max)"),
        ("QueueDirectory=/nonexistent", MESSAGE, 0, ""),
    ] {
        let done = desk.sendmail(&["-O", option, "-f", "a@b.test", "joe@a.test"], input);
        assert!(done.exit == Some(exit) && done.err.contains(text), "{option}: {done:?}");
    }
    let dialog = "EHLO me\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nRCPT TO:<e@d.test>\r\nQUIT\r\n";
    let counted = desk.sendmail(&["-bs", "-O", "MaxRecipientsPerMessage=1"], dialog).out;
    assert!(counted.contains("\n452 "), "{counted}");
    assert!(!desk.sendmail(&["-bs"], dialog).out.contains("\n452 "), "negative control");
}

#[test]
fn aliases_are_left_out_and_versions_told() {
    let setup = Setup::new();
    let (aliases, passwd) = (setup.path("aliases"), setup.path("passwd"));
    std::fs::write(&aliases, "list: ann@x.test\njoe: ann@x.test\n").expect("written");
    std::fs::write(&passwd, "joe:x:1000:1000::/h/joe:/bin/sh\n").expect("written");
    let setup = setup.set("maps.aliases", format!("[{aliases:?}]")).set("local.accounts", format!("{passwd:?}"));
    let desk = Desk::of(&setup);
    let aliased = desk.sendmail(&["-bv", "list"], "");
    assert_eq!(
        (aliased.exit, &*aliased.out),
        (Some(0), "ann@x.test... deliverable: mailer esmtp, host x.test, user ann@x.test\n")
    );
    let plain = desk.sendmail(&["-bv", "-n", "list"], "");
    assert!(plain.exit == Some(67) && plain.out.contains("list... User unknown"), "{plain:?}");
    let account = desk.sendmail(&["-bv", "-n", "joe"], "").out;
    assert_eq!(account, "joe... deliverable: mailer local, user joe\n");
    let version = desk.sendmail(&["-d0.4", "-bv", "joe"], "").out;
    for part in [
        "Version mailrace ",
        "Canonical name: mx.test\n",
        "  (canonical domain name) $j = mx.test\n",
        "ann@x.test... deliverable: mailer esmtp, host x.test, user ann@x.test",
    ] {
        assert!(version.contains(part), "{part}: {version}");
    }
    assert!(!desk.sendmail(&["-d21.12", "-bv", "joe"], "").out.contains("Version"));
}

#[test]
fn mailers_and_hosts_are_named_as_sendmail_names_them() {
    let setup = Setup::new();
    let path = setup.path("mailertable");
    std::fs::write(&path, "d.test esmtp:[192.0.2.1]\nl.test lmtp:unix:/run/lmtp\ne.test error:nohost\n")
        .expect("written");
    let setup = setup.set("maps.mailertable", format!("[{path:?}]")).set("route.smart_host", "[\"[192.0.2.9]\"]");
    let desk = Desk::of(&setup);
    let said = |address: &str| desk.sendmail(&["-bv", address], "").out;
    assert_eq!(said("x@d.test"), "x@d.test... deliverable: mailer esmtp, host [192.0.2.1], user x@d.test\n");
    assert_eq!(said("x@l.test"), "x@l.test... deliverable: mailer lmtp, host unix:/run/lmtp, user x@l.test\n");
    assert_eq!(
        said("x@other.test"),
        "x@other.test... deliverable: mailer relay, host [192.0.2.9], user x@other.test\n"
    );
    assert!(said("x@e.test").contains("x@e.test... Host unknown"), "{}", said("x@e.test"));
}

#[test]
fn what_is_queued_waits_for_a_queue_run() {
    let sink = Sink::start(&[]);
    let setup =
        Setup::new().set("route.smart_host", format!("{:?}", sink.address)).set("delivery.mode", "\"background\"");
    let desk = Desk::of(&setup);
    let pickup = desk.pickup();
    let mut server = setup.start();
    assert_eq!(desk.sendmail(&["-odq", "-L", "batch, x", "-f", "root@mx.test", "late@a.test"], MESSAGE).exit, Some(0));
    assert_eq!(desk.sendmail(&["-odd", "-f", "ann@c.test", "later@a.test"], MESSAGE).exit, Some(0));
    wait_until_empty(&server, &pickup);
    server.wait_log("daemon=batchx");
    // A message that is not queued goes at once, and those before it do not.
    assert_eq!(desk.sendmail(&["-odi", "-f", "ann@c.test", "now@a.test"], MESSAGE).exit, Some(0));
    let sent = server.wait_log("stat=Sent");
    assert!(sent.contains("to=<now@a.test>") && !sent.contains("ctladdr"), "{sent}");
    server.rests();
    let queue = desk.run("mailq", &[], "").out;
    assert!(
        queue.contains("late@a.test") && queue.contains("later@a.test") && queue.contains("(2 requests)"),
        "{queue}"
    );
    assert_eq!(desk.sendmail(&["-q"], "").exit, Some(0));
    let two = [server.wait_log("stat=Sent"), server.wait_log("stat=Sent")];
    let late = two.iter().find(|line| line.contains("to=<late@a.test>")).expect("it was sent");
    assert!(late.contains(", ctladdr=<root@mx.test> (0/0), delay="), "{late}");
    server.rests();
    assert!(desk.run("mailq", &[], "").out.contains(" is empty\n"));
}
