//! Content rules judge mail before it is accepted: the client's answer, the stored octets, and what the operator sees.

use std::io::Write as _;
use std::process::Stdio;
use testkit::client::{Plain, greeted, id};
use testkit::harness::{Server, Setup, program, text};

/// A setup with these rules.
fn with_rules(rules: &str) -> Setup {
    let setup = Setup::new();
    std::fs::create_dir(setup.path("rules")).expect("made");
    std::fs::write(setup.path("rules/a.rules"), rules).expect("written");
    setup.set("screen.rules", "[\"rules/*.rules\"]")
}

/// Sends a message to these recipients; the reply to its content.
#[track_caller]
fn send(client: &mut Plain, to: &[&str], content: &str) -> String {
    client.expect("MAIL FROM:<ann@client.test>", "250 2.1.0");
    for recipient in to {
        client.expect(&format!("RCPT TO:<{recipient}>"), "250 2.1.5");
    }
    client.expect("DATA", "354");
    client.send(format!("{content}.\r\n").as_bytes());
    client.reply()
}

/// Runs `mailrace queue list --json`; the recipients with their state and reason.
fn queued(server: &Server) -> Vec<(String, String, String)> {
    let output = server.control(&["queue", "list", "--json"], b"");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let mut found = Vec::new();
    for line in lines.lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("an object a line");
        for one in message["recipients"].as_array().expect("a list") {
            let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let held = &one["hold"];
            found.push((
                word(&one["to"]),
                word(&one["state"]),
                format!("{} {}", word(&held["kind"]), word(&held["by"])),
            ));
        }
    }
    found
}

const DECISIONS: &str = "\
rule no_spam {
  match any {
    subject contains spam
  }
  reject \"554 5.7.1 We take no spam\"
}
rule later {
  match any {
    subject = later
  }
  defer
}
rule drop {
  match any {
    subject = drop
  }
  discard
}
rule wait {
  match any {
    subject = wait
  }
  hold
}
rule doubtful {
  match any {
    text ~ /casino [0-9]+/
  }
  quarantine administrator
}
";

#[test]
fn decisions_of_rules() {
    let mut server = with_rules(DECISIONS).start();
    let mut client = greeted(server.address());
    let to = ["bob@example.com"];
    assert_eq!(send(&mut client, &to, "Subject: =?utf-8?Q?=73pam?=\r\n\r\nx\r\n"), "554 5.7.1 We take no spam");
    let line = server.wait_log("screen=reject, by=no_spam");
    assert!(line.contains("rules/a.rules:1, to=<bob@example.com>, action=reject 554 5.7.1 We take no spam"), "{line}");
    server.wait_log("reject=554 5.7.1 We take no spam");
    assert!(send(&mut client, &to, "Subject: later\r\n\r\nx\r\n").starts_with("451 4.7.1 "));
    id(&send(&mut client, &to, "Subject: drop\r\n\r\nx\r\n"));
    server.wait_log("stat=discarded");
    id(&send(&mut client, &to, "Subject: wait\r\n\r\nx\r\n"));
    id(&send(&mut client, &to, "Subject: x\r\nContent-Transfer-Encoding: base64\r\n\r\nY2FzaW5vIDc=\r\n"));
    server.wait_log("quarantine=for the administrator by ");
    id(&send(&mut client, &to, "Subject: ham\r\n\r\nx\r\n"));
    let found = queued(&server);
    let found: Vec<(&str, &str)> = found.iter().map(|(_, state, held)| (state.as_str(), held.as_str())).collect();
    assert_eq!(found, [("held", "rule wait"), ("held", "quarantine doubtful"), ("waiting", " ")]);
    let counts = &server.whole_status()["screen"];
    let wanted = [("reject", 1), ("defer", 1), ("discard", 1), ("hold", 1), ("quarantine", 1), ("edit", 0)];
    for (verdict, count) in wanted {
        assert_eq!(counts[verdict], count, "{verdict}: {counts}");
    }
}

const EDITS: &str = "\
rule edits {
  match any {
    header X-Edit present
  }
  remove header X-Edit
  add header X-Judged \"yes\"
  tag subject \"[seen] \"
}
";

#[test]
fn header_edits_change_nothing_else() {
    let server = with_rules(EDITS).start();
    let mut client = greeted(server.address());
    let small = "A: 1\r\nX-Edit: 1\r\nsubject: hi\r\n\tfolded\r\n\r\nbody\r\n\r\nX-Edit: body\r\n";
    let untouched = "subject: hi\r\n\r\nbody\r\n";
    let body = format!("{}\r\n", "0123456789abcdef".repeat(4)).repeat(20_000);
    for content in [small, untouched] {
        id(&send(&mut client, &["b@example.com"], content));
    }
    // More than a chunk, by DATA and by BDAT, and more than rules look at.
    let large = format!("A: 1\r\nX-Edit: 1\r\nSubject: big\r\n\r\n{body}");
    assert!(large.len() > 1 << 20);
    id(&send(&mut client, &["b@example.com"], &large));
    client.envelope();
    let (front, back) = large.split_at(400_000);
    client.send(format!("BDAT {}\r\n{front}", front.len()).as_bytes());
    assert!(client.reply().starts_with("250"));
    client.send(format!("BDAT {} LAST\r\n{back}", back.len()).as_bytes());
    id(&client.reply());
    let letters = server.letters_after_kill();
    let contents: Vec<&[u8]> = letters.iter().map(testkit::harness::Letter::own_content).collect();
    let edited = format!("A: 1\r\nSubject: [seen] big\r\nX-Judged: yes\r\n\r\n{body}");
    assert_eq!(contents.len(), 4);
    let small = "A: 1\r\nsubject: [seen] hi\r\n\tfolded\r\nX-Judged: yes\r\n\r\nbody\r\n\r\nX-Edit: body\r\n";
    assert_eq!(String::from_utf8_lossy(contents[0]), small);
    assert_eq!(String::from_utf8_lossy(contents[1]), untouched);
    assert!(contents[2] == edited.as_bytes() && contents[3] == edited.as_bytes());
}

const SCOPES: &str = "\
rule ours {
  for recipient \"@here.test\"
  match any {
    subject contains casino
  }
  quarantine recipient
}
rule refused {
  for recipient strict@else.test
  match any {
    subject contains casino
  }
  discard
}
rule tag {
  for recipient \"@else.test\"
  add header X-Else \"yes\"
}
rule unscanned {
  match any {
    not fully scanned
  }
  add header X-Large \"yes\"
}
";

/// One transaction, three scopes: held, dropped, and changed; small content and content in chunks.
#[test]
fn recipients_are_judged_one_by_one() {
    let server = with_rules(SCOPES).set("screen.body_bytes_max", "\"64KiB\"").start();
    let mut client = greeted(server.address());
    let to = ["strict@else.test", "ann@here.test", "bob@else.test", "cy@here.test"];
    let body = format!("{}\r\n", "x".repeat(70)).repeat(3_000);
    for body in ["x\r\n", body.as_str()] {
        let first = id(&send(&mut client, &to, &format!("Subject: casino\r\n\r\n{body}")));
        let listed = queued(&server);
        let of = |address: &str| listed.iter().rev().find(|one| one.0 == address).map(|one| (&*one.1, &*one.2));
        assert_eq!(of("ann@here.test"), Some(("held", "quarantine ours")));
        assert_eq!(of("cy@here.test"), Some(("held", "quarantine ours")));
        assert_eq!(of("bob@else.test"), Some(("waiting", " ")));
        assert_eq!(of("strict@else.test"), None, "{first}");
        let output = server.control(&["queue", "show", &first], b"");
        assert_eq!(output.status.code(), Some(0), "the name in the reply is that of a message: {}", text(&output));
    }
    let letters = server.letters_after_kill();
    let fields: Vec<(usize, bool, bool)> = letters
        .iter()
        .map(|letter| {
            let content = String::from_utf8_lossy(letter.own_content()).into_owned();
            assert!(content.ends_with("x\r\n"), "the body of each is whole");
            (letter.envelope.recipients.len(), content.contains("X-Else: yes"), content.contains("X-Large: yes"))
        })
        .collect();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(1, true, false), (1, true, true), (2, false, false), (2, false, false)]);
}

/// A refusal for some recipients alone is reported to the sender, and in LMTP given to each.
#[test]
fn a_refusal_for_some_recipients() {
    let rules = "rule a {\n  for recipient no@example.com\n  reject \"550 5.7.1 Not for me\"\n}\n";
    let lmtp = "[{address = \"127.0.0.1:0\", protocol = \"lmtp\"}]";
    let server = with_rules(rules).set("listen", lmtp).start();
    let mut client = testkit::client::connect(server.address());
    client.reply();
    client.expect("LHLO client.test", "250");
    let said = send(&mut client, &["yes@example.com", "no@example.com"], "Subject: x\r\n\r\nx\r\n");
    id(&said);
    assert_eq!(client.reply(), "550 5.7.1 Not for me");
    assert_eq!(server.letters_after_kill().len(), 1);
    let server = with_rules(rules).start();
    let mut client = greeted(server.address());
    id(&send(&mut client, &["yes@example.com", "no@example.com"], "Subject: x\r\n\r\nx\r\n"));
    assert_eq!(send(&mut client, &["no@example.com"], "Subject: x\r\n\r\nx\r\n"), "550 5.7.1 Not for me");
    let shown = text(&server.control(&["queue", "list", "--json"], b""));
    assert!(shown.contains("error:5.7.1 Not for me"), "{shown}");
}

const ROUTES: &str = "\
rule redirect {
  match any {
    subject = redirect
  }
  redirect spam@example.net
}
rule copy {
  match any {
    subject = copy
  }
  copy archive@example.net
  discard
}
rule route {
  match any {
    subject = route
  }
  route \"smtp:[192.0.2.1]:2525\"
  queue group slow
  class bulk
}
";

#[test]
fn mail_goes_elsewhere() {
    let server = with_rules(ROUTES).start();
    let mut client = greeted(server.address());
    for subject in ["redirect", "copy", "route"] {
        id(&send(&mut client, &["a@example.com", "b@example.com"], &format!("Subject: {subject}\r\n\r\nx\r\n")));
    }
    let body = format!("{}\r\n", "x".repeat(70)).repeat(3_000);
    id(&send(&mut client, &["a@example.com"], &format!("Subject: copy\r\n\r\n{body}")));
    let shown = text(&server.control(&["queue", "list", "--json"], b""));
    let letters = server.letters_after_kill();
    let to: Vec<Vec<String>> = letters
        .iter()
        .map(|letter| letter.envelope.recipients.iter().map(|one| one.address.to_string()).collect())
        .collect();
    let archive = vec!["archive@example.net".to_owned()];
    let two = vec!["a@example.com".to_owned(), "b@example.com".to_owned()];
    assert_eq!(to, [vec!["spam@example.net".to_owned()], archive.clone(), two, archive]);
    assert!(letters[3].content.len() > body.len(), "the copy of a large message is whole");
    assert!(shown.contains("smtp:[192.0.2.1]:2525 group=slow"), "{shown}");
}

#[test]
fn a_broken_rule_file_changes_nothing() {
    let mut server = with_rules(DECISIONS).start();
    let file = server.setup.path("rules/a.rules");
    std::fs::write(&file, "rule all {\n  rejekt\n}\n").expect("written");
    let output = server.control(&["reload"], b"");
    let said = text(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("a.rules line 2: "), "{said}");
    server.wait_log("configuration not reloaded, the old one stays: file=");
    let mut client = greeted(server.address());
    assert_eq!(send(&mut client, &["b@example.com"], "Subject: spam\r\n\r\n"), "554 5.7.1 We take no spam");
    let checked = program().arg("check").arg("--config").arg(server.setup.path("mailrace.toml")).output().expect("run");
    let said = text(&checked);
    assert!(checked.status.code() == Some(78) && said.contains("a.rules:2"), "{said}");
    std::fs::write(&file, "rule all {\n  reject \"550 5.7.1 Closed\"\n}\n").expect("written");
    assert_eq!(server.control(&["reload"], b"").status.code(), Some(0));
    assert_eq!(send(&mut client, &["b@example.com"], "Subject: x\r\n\r\n"), "550 5.7.1 Closed");
    let (status, said) = {
        let setup = with_rules("rule a {\n  class fast\n}\n");
        setup.fails()
    };
    assert!(status == Some(78) && said.contains("there is no class fast"), "{status:?} {said}");
}

/// The rules that are shipped, and the command of programs.
#[test]
fn the_sendmail_command_is_judged() {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules/charsets.rules");
    let rules = std::fs::read_to_string(example).expect("the example");
    let extra = "rule own {\n  for direction outbound\n  match any {\n    subject = own\n  }\n  reject\n}\n";
    let mut server = with_rules(&format!("{rules}{extra}")).start();
    let submit = |subject: &str| {
        let mut command = program();
        command.args(["sendmail", "-f", "root@mx.test", "b@example.com"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        command.env("MAILRACE_CONFIG", server.setup.path("mailrace.toml"));
        let mut child = command.spawn().expect("it runs");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(format!("Subject: {subject}\n\nx\n").as_bytes()).expect("it reads");
        drop(input);
        child.wait_with_output().expect("it ends")
    };
    let refused = submit("own");
    assert_ne!(refused.status.code(), Some(0), "{}", text(&refused));
    assert_eq!(submit("x").status.code(), Some(0));
    server.wait_log("screen=reject, by=own");
    let mut client = greeted(server.address());
    id(&send(&mut client, &["b@example.com"], "Subject: x\r\n\r\nx\r\n"));
}

/// Mail in quarantine is listed, shown, released and deleted by itself; other held mail is not touched.
#[test]
fn mail_in_quarantine_is_released_and_deleted() {
    let mut server = with_rules(DECISIONS).start();
    let mut client = greeted(server.address());
    let mut keep =
        |number: u32, to: &str| id(&send(&mut client, &[to], &format!("Subject: x\r\n\r\ncasino {number}\r\n")));
    let (first, second) = (keep(1, "bob@example.com"), keep(2, "cy@example.com"));
    let third = keep(3, "bob@example.com");
    let held = id(&send(&mut client, &["bob@example.com"], "Subject: wait\r\n\r\nx\r\n"));
    let run = |server: &Server, words: &[&str]| {
        let output = server.control(&[&["quarantine"], words].concat(), b"");
        (output.status.code(), text(&output))
    };
    let listed = |server: &Server, words: &[&str]| -> Vec<String> {
        let (_, said) = run(server, &[&["list", "--json"], words].concat());
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].clone();
        said.lines().map(|one| line(one).as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(listed(&server, &[]), [first.as_str(), &second, &third]);
    assert_eq!(listed(&server, &["--to", "cy@*"]), [second.as_str()]);
    assert_eq!(listed(&server, &["--rule", "doubt*"]).len(), 3);
    assert_eq!(listed(&server, &["--rule", "wait"]), Vec::<String>::new());
    let (_, shown) = run(&server, &["show", &first]);
    for part in ["held by quarantine doubtful for ", ": for the administrator by ", "| Subject: x"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(run(&server, &["release"]).0, Some(64), "nothing is released by mistake");
    let (status, said) = run(&server, &["release", &first, &held]);
    let (line, end) = said.split_once('\n').expect("two lines");
    let copy = line.strip_prefix(&format!("{first} from=<ann@client.test> to=<bob@example.com> copy=")).expect(line);
    assert!(status == Some(0) && end.starts_with("1 recipient of 1 message released\n"), "{status:?} {said}");
    let line = server.wait_log("queue=release, messages=1, recipients=1, uid=");
    assert!(line.contains(&first) && line.ends_with(&format!(", copy={copy}")), "{line}");
    assert_eq!(run(&server, &["release", &first]).0, Some(66), "it has left the quarantine");
    let (status, said) = run(&server, &["delete", "--to", "bob@example.com"]);
    assert!(status == Some(0) && said.contains("1 recipient of 1 message deleted\n"), "{status:?} {said}");
    server.wait_log("queue=delete, messages=1, recipients=1, uid=");
    assert_eq!(listed(&server, &[]), [second.as_str()]);
    let states = queued(&server);
    let mut states: Vec<(&str, &str)> = states.iter().map(|(_, state, held)| (&**state, &**held)).collect();
    states.sort_unstable();
    assert_eq!(states, [("held", "quarantine doubtful"), ("held", "rule wait"), ("waiting", " ")]);
}

/// A release and a forward send copies with their own field on top; all else is as it came, and a forwarded message
/// stays for its recipient.
#[test]
fn copies_out_of_quarantine_keep_all_fields() {
    let mut server = with_rules(DECISIONS).start();
    let mut client = greeted(server.address());
    let body = format!("{}\r\n", "x".repeat(70)).repeat(9_000);
    let contents = ["casino 1\r\n".to_owned(), format!("casino 2\r\n{body}")]
        .map(|body| format!("Subject: x\r\nX-Spam-Report: +5\r\n\r\n{body}"));
    let ids = contents.each_ref().map(|content| id(&send(&mut client, &["bob@example.com"], content)));
    let run = |server: &Server, words: &[&str]| {
        let output = server.control(&[&["quarantine"], words].concat(), b"");
        (output.status.code(), text(&output))
    };
    let to = ["--to", "Abuse@example.net"];
    assert_eq!(run(&server, &["forward", &ids[0]]).0, Some(64), "nobody is named");
    assert_eq!(run(&server, &["forward", &ids[0], "--to", "nobody"]).0, Some(64));
    assert_eq!(run(&server, &[&["forward", "-n", &ids[0]], &to[..]].concat()).0, Some(0));
    let (status, said) = run(&server, &[&["forward", &ids[0], &ids[1]], &to[..]].concat());
    assert!(status == Some(0) && said.ends_with("2 recipients of 2 messages forwarded\n"), "{status:?} {said}");
    let line = server.wait_log("queue=forward, messages=1, recipients=1, uid=");
    assert!(line.ends_with(", to=Abuse@example.net"), "{line}");
    let (status, said) = run(&server, &["release", "--json", &ids[0], &ids[1]]);
    let lines: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(status == Some(0) && lines.len() == 3, "{status:?} {said}");
    assert!(lines[0]["copy"].is_string() && lines[2]["messages"] == 2, "{said}");
    let letters = server.letters_after_kill();
    let mut to = Vec::new();
    for letter in &letters {
        let content = String::from_utf8_lossy(&letter.content);
        let (name, rest) = content.split_once(": ").expect("a field");
        let (origin, rest) = rest.split_once(" of ").expect("the field of the copy");
        let at = ids.iter().position(|id| id == origin).expect("the original");
        let (date, rest) = rest.split_once("\r\nReceived: ").expect("our own Received");
        assert!(date.contains("\r\n\t(kept by doubtful); "), "{date}");
        assert!(rest.ends_with(&contents[at]), "{name} {at}");
        let one = &letter.envelope.recipients[0];
        let recipient = format!("{} {}", one.address, one.params);
        to.push((name.to_owned(), recipient, letter.envelope.sender.to_string()));
    }
    to.sort_unstable();
    let forward = ("X-Quarantine-Forward", "Abuse@example.net NOTIFY=NEVER");
    let release = ("X-Quarantine-Release", "bob@example.com");
    let found: Vec<(&str, &str)> = to.iter().map(|(name, to, _)| (&**name, to.trim())).collect();
    assert_eq!(found, [forward, forward, release, release]);
    assert!(to.iter().all(|one| one.2 == "<ann@client.test>"), "{to:?}");
}

/// `filter test` looks into messages of the queue and the quarantine, with their envelopes; the log says so.
#[test]
fn a_message_of_the_queue_is_tested() {
    let mut server = with_rules(DECISIONS).start();
    let mut client = greeted(server.address());
    let body = format!("{}\r\n", "x".repeat(70)).repeat(3_000);
    let kept = id(&send(&mut client, &["bob@example.com"], &format!("Subject: x\r\n\r\n{body}casino 7\r\n")));
    let ham = id(&send(&mut client, &["bob@example.com"], "Subject: ham\r\n\r\nx\r\n"));
    let rules = server.setup.path("own.rules");
    let text_of_rules = "rule both {\n match all {\n text contains \"casino 7\"\n sender = \"@client.test\"\n \
                         recipient = \"bob@example.com\"\n helo present\n client address = 127.0.0.0/8\n }\n hold\n}\n";
    std::fs::write(&rules, text_of_rules).expect("written");
    let rules = rules.to_str().expect("UTF-8");
    let test = |server: &Server, words: &[&str]| {
        let output = server.control(&[&["filter", "test", "--rules", rules], words].concat(), b"");
        (output.status.code(), text(&output))
    };
    let (status, said) = test(&server, &["--queue-id", &kept, "--queue-id", &ham]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with(&format!("match {kept}\n")) && said.contains(&format!("no match {ham}\n")), "{said}");
    let line = server.wait_log("queue=content, messages=1, recipients=1, uid=");
    assert!(line.contains(&kept), "{line}");
    let (_, said) = test(&server, &["--queue-id", &kept, "--sender", "else@example.org"]);
    assert!(said.starts_with("no match"), "an option counts more than the envelope: {said}");
    let (status, said) = test(&server, &["--queue-id", "6AK9BQPE592284"]);
    assert!(status == Some(66) && said.contains("not in the queue"), "{status:?} {said}");
}
