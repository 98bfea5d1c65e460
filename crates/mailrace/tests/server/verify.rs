//! VRFY and EXPN: offered where they are answered, and never more than a client may know.

use std::fs;
use testkit::client::greeted;
use testkit::harness::{Server, Setup};

/// A server with a user and aliases; `relay`: which clients may relay.
fn with_aliases(relay: &str) -> Setup {
    let setup = Setup::new();
    let (aliases, passwd) = (setup.path("aliases"), setup.path("passwd"));
    let many: Vec<String> = (0..101).map(|n| format!("m{n}@many.test")).collect();
    let text = format!(
        "list: joe, ann@elsewhere.test, \"|/secret/program x\", /secret/file\nbig: {}\nsome: {}\npostmaster: joe\n",
        many.join(", "),
        many[..100].join(", ")
    );
    fs::write(&aliases, text).expect("written");
    fs::write(&passwd, "joe:x:1000:1000::/nonexistent:/bin/sh\n").expect("written");
    setup
        .set("smtp.verify", "true")
        .set("relay.from", relay)
        .set("relay.to", "[\"backup.test\"]")
        .set("local.domains", "[\"ours.test\"]")
        .set("local.accounts", format!("{passwd:?}"))
        .set("maps.aliases", format!("[{aliases:?}]"))
}

fn verify(server: &Server, cases: &[(&str, &str)]) {
    let mut client = greeted(server.address());
    for (command, wanted) in cases {
        let told = client.command(command);
        assert!(told.starts_with(wanted), "{command}: {told}");
        assert!(!told.contains("secret"), "{command}: {told}");
    }
}

#[test]
fn vrfy_says_what_rcpt_says() {
    let server = with_aliases("[]").start();
    let mut client = greeted(server.address());
    let offers = client.command("EHLO client.test");
    assert!(offers.contains("250-VRFY") && !offers.contains("EXPN"), "{offers}");
    let help = client.command("HELP");
    assert!(help.contains(" VRFY HELP") && !help.contains("EXPN"), "{help}");
    verify(
        &server,
        &[
            ("VRFY joe@ours.test", "250 2.1.5 <joe@ours.test>"),
            ("VRFY <joe@ours.test>", "250 2.1.5 <joe@ours.test>"),
            ("VRFY joe", "250 2.1.5 <joe@mx.test>"),
            ("VRFY list@ours.test", "250 2.1.5 <list@ours.test>"),
            ("VRFY joe@ours.test SMTPUTF8", "250 2.1.5 <joe@ours.test>"),
            ("VRFY nosuch@ours.test", "550 5.1.1 <nosuch@ours.test>... User unknown"),
            ("VRFY any@backup.test", "252 2.5.2 <any@backup.test>... "),
            ("VRFY any@elsewhere.test", "550 5.7.1 <any@elsewhere.test>... Relaying denied"),
            ("VRFY joe%elsewhere.test@ours.test", "550 5.7.1 "),
            ("VRFY a b@c d", "501 5.1.3 "),
            ("EXPN list@ours.test", "502 5.7.0 "),
        ],
    );
}

#[test]
fn expn_is_for_clients_that_may_relay() {
    let server = with_aliases("[\"127.0.0.1\"]").set("accept.xclient", "[\"127.0.0.1\"]").start();
    let mut client = greeted(server.address());
    let offers = client.command("EHLO client.test");
    assert!(offers.contains("250-VRFY") && offers.contains("250-EXPN"), "{offers}");
    assert!(client.command("HELP").contains(" VRFY EXPN HELP"));
    let told = client.command("EXPN list@ours.test");
    for part in ["250", "<joe@ours.test>", "<ann@elsewhere.test>", "<list@ours.test>"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains("secret"), "no program and no file: {told}");
    verify(
        &server,
        &[
            ("EXPN joe@ours.test", "250 2.1.5 <joe@ours.test>"),
            ("EXPN nosuch@ours.test", "550 5.1.1 "),
            ("EXPN big@ours.test", "252 2.5.2 <big@ours.test>... "),
            ("EXPN some@ours.test", "250"),
        ],
    );
    // Behind a front end the client counts, whatever extensions were offered before.
    let mut behind = greeted(server.address());
    behind.expect("XCLIENT ADDR=198.51.100.7", "220");
    behind.expect("EHLO client.test", "250");
    behind.expect("EXPN list@ours.test", "502 5.7.0 ");
    behind.expect("VRFY joe@ours.test", "250 2.1.5 <joe@ours.test>");
}

#[test]
fn where_nobody_can_say_nothing_is_offered() {
    let plain = Setup::new().set("local.own_name", "false").set("smtp.verify", "true").start();
    let off = with_aliases("[\"127.0.0.1\"]").set("smtp.verify", "false").start();
    for server in [plain, off] {
        let mut client = greeted(server.address());
        let offers = client.command("EHLO client.test");
        assert!(!offers.contains("VRFY") && !offers.contains("EXPN"), "{offers}");
        let help = client.command("HELP");
        assert!(!help.contains("VRFY") && !help.contains("EXPN"), "{help}");
        verify(&server, &[("VRFY joe@ours.test", "252 2.5.2 Cannot VRFY user"), ("EXPN list", "502 5.7.0 ")]);
    }
}
