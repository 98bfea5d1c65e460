//! Handing mail in: arguments, statuses, headers, refusals.

use super::desk::{CONFIG, Desk, Sink, finish, taken, wait_until_empty};
use mail::{Client, Protocol};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use testkit::harness::{Setup, copy_program, needs};

const MESSAGE: &str = "Subject: x\n\nhello\n";

#[test]
fn statuses_and_texts_are_sendmails() {
    let (desk, setup) = Desk::opened(Setup::new());
    for (arguments, input, exit, text) in [
        (&["joe"][..], MESSAGE, 0, ""),
        (&["-odq", "joe@a.test"], MESSAGE, 0, ""),
        (&["-odi", "joe@a.test"], MESSAGE, 0, ""),
        (&["-t"], "Subject: x\n\nTo: body@x.test\n", 0, "No recipient addresses found in header"),
        (&["-t"], "To: ann@b.test\n\nx\n", 0, ""),
        (&[], MESSAGE, 64, "Recipient names must be specified"),
        (&["-Z", "joe"], MESSAGE, 64, "sendmail: illegal option -- Z"),
        (&["-bfoo"], MESSAGE, 64, "Invalid operation mode f"),
        (&["-C", "/nonexistent", "joe"], MESSAGE, 72, "/nonexistent: line 0: cannot open: No such file or directory"),
        (&["bad@@x"], MESSAGE, 64, "bad@@x..."),
        (&["-oeq", "bad@@x"], MESSAGE, 64, ""),
        (&["-h", "51", "joe"], MESSAGE, 69, "Too many hops"),
        (&["-h", "x", "joe"], MESSAGE, 64, "Bad hop count (x)"),
        (&["-N", "foo", "joe"], MESSAGE, 64, "Invalid -N argument"),
        (&["-O", "Foo=bar", "joe"], MESSAGE, 70, "readcf: unknown option name Foo"),
        (&["-bv"], "", 64, "Recipient names must be specified"),
        (
            &["-bv", "root", "ann@x.test"],
            "",
            0,
            "root... deliverable: mailer local, user root\nann@x.test... deliverable: mailer esmtp, host x.test, user ann@x.test\n",
        ),
        (&["-bp"], "", 69, "no server answers"),
        (&["-q"], "", 69, "no server answers"),
        (&["-bC"], "", 0, ""),
    ] {
        let done = desk.sendmail(arguments, input);
        let said = format!("{}{}", done.out, done.err);
        assert_eq!(done.exit, Some(exit), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
        assert!(!text.is_empty() || said.is_empty(), "{arguments:?} says nothing: {said}");
    }
    let large = format!("Subject: x\n\n{}", "x".repeat(11 << 20));
    let done = desk.sendmail(&["joe@a.test"], &large);
    assert!(done.exit == Some(69) && done.err.contains("exceeds maximum fixed size (10485760)"), "{done:?}");
    assert_eq!(desk.waiting().len(), 4, "what was refused is not there");
    let names: Vec<_> =
        std::fs::read_dir(desk.pickup()).expect("a directory").map(|one| one.expect("one").file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with("new.")), "{names:?}");
    drop(setup);
    let setup = Setup::new();
    let missing = Desk::of(&setup);
    let done = missing.sendmail(&["joe@a.test"], MESSAGE);
    assert!(done.exit == Some(73) && done.err.contains("submit.directory"), "{done:?}");
    std::fs::write(missing.path(CONFIG), "hostname = 7\n").expect("written");
    assert_eq!(missing.sendmail(&["joe@a.test"], MESSAGE).exit, Some(78));
}

#[test]
fn what_is_handed_in_while_the_server_is_down_is_taken_at_its_start() {
    let (desk, setup) = Desk::opened(Setup::new().set("local.own_name", "false"));
    let words =
        ["-F", "Full Name", "-f", "o@e.test", "-N", "never", "-V", "env1", "-R", "hdrs", "-i", "joe@a.test", "ann"];
    assert_eq!(desk.sendmail(&words, "To: joe@a.test, ann\nSubject: one\n\na\n.\nb\n").exit, Some(0));
    assert_eq!(
        desk.sendmail(&["-t"], "To: J <j@a.test>\nBcc: blind@b.test\nSubject: two\n\nx\n.\nlost\n").exit,
        Some(0)
    );
    assert_eq!(desk.run("mailrace", &["sendmail", "-f", "<>", "joe@a.test"], "Subject: three\n\n..x\n").exit, Some(0));
    assert_eq!(desk.waiting().len(), 3);
    let mut letters = taken(setup);
    letters.sort_by_key(|letter| String::from_utf8_lossy(&letter.content).find("Subject: one").is_none());
    let [one, ..] = letters.as_slice() else { panic!("{letters:?}") };
    let of = |subject: &str| {
        letters.iter().find(|letter| String::from_utf8_lossy(&letter.content).contains(subject)).expect(subject)
    };
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(
        (letters.len(), one.envelope.received.client, one.envelope.received.protocol),
        (3, Client::Process { uid }, Protocol::Local)
    );
    assert_eq!(one.envelope.sender.to_string(), "<o@e.test>");
    assert_eq!(one.envelope.params.to_string(), "RET=HDRS ENVID=env1");
    let to: Vec<String> = one.envelope.recipients.iter().map(|to| format!("{} {}", to.address, to.params)).collect();
    assert_eq!(to, ["joe@a.test NOTIFY=NEVER", "ann@mx.test NOTIFY=NEVER"]);
    let text = String::from_utf8(one.content.clone()).expect("text");
    assert!(text.starts_with("Received: (from uid "), "{text}");
    for part in [
        "\r\nDate: ",
        "\r\nFrom: Full Name <o@e.test>\r\n",
        "\r\nMessage-Id: <",
        "\r\nTo: joe@a.test, ann@mx.test\r\n",
        "\r\n\r\na\r\n.\r\nb\r\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    let two = String::from_utf8(of("Subject: two").content.clone()).expect("text");
    assert!(!two.contains("blind") && two.ends_with("\r\n\r\nx\r\n"), "{two}");
    assert_eq!(of("Subject: two").envelope.recipients.len(), 2);
    let three = of("Subject: three");
    assert!(three.envelope.sender.address().is_none() && three.content.ends_with(b"\r\n\r\n..x\r\n"));
}

#[test]
fn the_server_answers_whoever_waits() {
    let setup = Setup::new().set("message.header_fields_max", "10");
    let desk = Desk::of(&setup);
    let (pickup, home) = (desk.pickup(), desk.path("home"));
    let server = desk.start(setup);
    let done = desk.sendmail(&["-v", "joe@a.test"], MESSAGE);
    assert!(done.exit == Some(0) && done.out.contains("accepted as 6"), "{done:?}");
    assert_eq!(std::fs::metadata(&pickup).expect("made").permissions().mode() & 0o7777, 0o3733);
    let fields: String = (0..20).map(|number| format!("X-{number}: y\n")).collect();
    let refused = format!("{fields}\nbody\n");
    let done = desk.sendmail(&["joe@a.test"], &refused);
    assert_eq!(done.exit, Some(69), "{done:?}");
    assert!(done.out.contains("joe@a.test... ") && done.err.contains("dead.letter... Saved message in"), "{done:?}");
    let letter = std::fs::read_to_string(home.join("dead.letter")).expect("saved");
    assert!(letter.contains("X-19: y\n") && letter.contains("body\n") && !letter.contains('\r'), "{letter}");
    assert_eq!(desk.sendmail(&["-oeq", "joe@a.test"], &refused).exit, Some(69));
    // The sender is told by mail: he does not read the output.
    assert_eq!(desk.sendmail(&["-oem", "-f", "me@b.test", "joe@a.test"], &refused).exit, Some(69));
    assert_eq!(desk.sendmail(&["-oem", "-odq", "-f", "me2@b.test", "joe@a.test"], &refused).exit, Some(0));
    wait_until_empty(&server, &pickup);
    let letters = server.letters_after_kill();
    let mut to: Vec<String> = letters.iter().map(|letter| letter.envelope.recipients[0].address.to_string()).collect();
    to.sort();
    assert_eq!(to, ["joe@a.test", "me2@b.test", "me@b.test"], "one taken, two reports, nothing for who was told");
    let report = letters.iter().find(|letter| letter.envelope.sender.address().is_none()).expect("a report");
    assert!(String::from_utf8_lossy(&report.content).contains("Final-Recipient: rfc822; joe@a.test"), "{report:?}");
}

#[test]
fn interactive_waits_for_the_next_hop() {
    for (refuse, exit) in [("rcpt:550:100", 67), ("rcpt:450:100", 0), ("rcpt:550:0", 0)] {
        let sink = Sink::start(&["--refuse", refuse]);
        let address = &sink.address;
        let setup = Setup::new().set("route.smart_host", format!("{address:?}")).set("delivery.mode", "\"background\"");
        let desk = Desk::of(&setup);
        let server = desk.start(setup);
        let done = desk.sendmail(&["-odi", "-v", "joe@a.test"], MESSAGE);
        assert_eq!(done.exit, Some(exit), "{refuse}: {done:?} {:?}", server.log);
        assert!(done.out.contains("joe@a.test... "), "{done:?}");
        drop(server);
    }
}

#[test]
fn smtp_on_standard_input_needs_no_server() {
    let (desk, setup) = Desk::opened(Setup::new());
    let dialog = "EHLO here\r\nMAIL FROM:<a@b.test> BODY=8BITMIME\r\nRCPT TO:<c@d.test>\r\nDATA\r\nSubject: bs\r\n\r\n..dot\r\n.\r\n\
                  MAIL FROM:<>\r\nRCPT TO:<c@d.test>\r\nRSET\r\nQUIT\r\n";
    let done = desk.sendmail(&["-bs"], dialog);
    assert_eq!(done.exit, Some(0), "{done:?}");
    let codes: Vec<&str> =
        done.out.lines().filter(|line| line.as_bytes().get(3) == Some(&b' ')).map(|line| &line[..3]).collect();
    assert_eq!(codes, ["220", "250", "250", "250", "354", "250", "250", "250", "250", "221"], "{done:?}");
    let letters = taken(setup);
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!(letter.envelope.params.to_string(), "BODY=8BITMIME");
    let text = String::from_utf8_lossy(&letter.content).into_owned();
    assert!(text.ends_with("\r\n\r\n.dot\r\n") && text.contains("Message-Id: <"), "{text}");
}

#[test]
fn other_users_hand_in_and_are_named() {
    // Only root can be another user.
    if !needs::root() {
        return;
    }
    let (desk, setup) = Desk::opened(Setup::new());
    let copy = desk.path("copy");
    copy_program(env!("CARGO_BIN_EXE_mailrace").as_ref(), &copy);
    let config = desk.path(CONFIG);
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&copy);
        command.arg0("sendmail").args(arguments).env("MAILRACE_CONFIG", &config).env("HOME", "/nonexistent");
        command.uid(65_534).gid(65_534).current_dir("/");
        finish(command, MESSAGE)
    };
    let chosen = run(&["-f", "boss@e.test", "joe@a.test"]);
    assert_eq!(chosen.exit, Some(0), "{chosen:?}");
    assert_eq!(run(&["ann@a.test"]).exit, Some(0));
    for name in desk.waiting() {
        let found = desk.pickup().join(name).metadata().expect("there");
        // The server reads it by the group of the directory, others do not.
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (65_534, 0, 0o640));
    }
    let letters = taken(setup);
    let text = |to: &str| {
        let letter =
            letters.iter().find(|letter| letter.envelope.recipients[0].address.to_string() == to).expect("there");
        assert_eq!(letter.envelope.received.client, Client::Process { uid: 65_534 });
        String::from_utf8_lossy(&letter.content).into_owned()
    };
    let warned = text("joe@a.test");
    assert!(
        warned.contains("\r\nX-Authentication-Warning: mx.test: nobody set sender to <boss@e.test> using -f\r\n"),
        "{warned}"
    );
    assert!(!text("ann@a.test").contains("X-Authentication-Warning"), "its own sender");
}

#[test]
fn senders_have_the_names_by_which_they_are_known_outside() {
    let setup = Setup::new();
    let map = setup.path("genericstable");
    std::fs::write(&map, "joe Joe.Doe@corp.test\n").expect("written");
    let setup = setup
        .set("maps.genericstable", format!("[{:?}]", map.display().to_string()))
        .set("generics.masquerade", "\"corp.test\"");
    let (desk, setup) = Desk::opened(setup);
    let done = desk.sendmail(
        &["-t", "-f", "joe@mx.test"],
        "From: Joe <joe>\nTo: x@far.test\nCc: joe\nReply-To: ann, root\n\nFrom: joe\n",
    );
    assert_eq!(done.exit, Some(0), "{done:?}");
    let letters = taken(setup);
    let text = String::from_utf8_lossy(&letters[0].content);
    for part in [
        "\r\nFrom: Joe <Joe.Doe@corp.test>\r\n",
        "\r\nReply-To: ann@corp.test, root@mx.test\r\n",
        "\r\nTo: x@far.test\r\nCc: joe@mx.test\r\n",
        "\r\n\r\nFrom: joe\r\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(letters[0].envelope.sender.to_string(), "<Joe.Doe@corp.test>");
}
