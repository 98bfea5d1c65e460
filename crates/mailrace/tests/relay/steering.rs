//! Orders of operators that stay in force: hold rules, suspensions, limits; over restarts, and where they are seen.

use crate::hop::{Act, At, Hop, Mail, Manners};
use crate::report::Report;
use crate::world::{any_line, by_literal, ends_empty, killed, relay, retrying, send, send_over, waiting};
use serde_json::Value;
use std::sync::Arc;
use testkit::client::greeted;
use testkit::harness::{Server, let_go, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// `mailrace …`, which works.
#[track_caller]
fn control(server: &Server, words: &[&str]) -> String {
    let output = server.control(words, b"");
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// `mailrace …`, which fails; its exit status and words.
#[track_caller]
fn refused(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let output = server.control(words, b"");
    assert!(!output.status.success(), "{words:?}");
    (output.status.code(), text(&output))
}

/// Recipients by who holds them: `c@d.test suspension-1`, or their state.
fn held(server: &Server) -> Vec<String> {
    let listed = control(server, &["queue", "list", "--json"]);
    let lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let mut all: Vec<String> = lines
        .flat_map(|line| line["recipients"].as_array().cloned().unwrap_or_default())
        .map(|one| {
            format!(
                "{} {}",
                one["to"].as_str().expect("text"),
                one["hold"]["by"].as_str().unwrap_or_else(|| one["state"].as_str().expect("text"))
            )
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn a_suspension_holds_what_waits_and_what_comes_and_lets_all_of_it_go() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 not yet"),
        _ => Act::Well,
    }));
    let mut server = retrying(relay(&[&hop]), "1h").start();
    send(&server, "a@client.test", &["later@slow.test", "later@fast.test"], CONTENT);
    any_line(&mut server, &["later@slow.test", "stat=Deferred"]);
    any_line(&mut server, &["later@fast.test", "stat=Deferred"]);
    server.rests();
    let words = ["queue", "suspend", "to:@slow.test", "--reason", "they move", "--for", "2h"];
    let dry = control(&server, &[&words[..], &["--dry-run"]].concat());
    assert!(
        dry.contains("1 recipient of 1 message would be held")
            && held(&server).iter().all(|one| one.ends_with("waiting")),
        "{dry}"
    );
    let set = control(&server, &words);
    assert!(set.contains("suspension-1 is in force") && set.contains("1 recipient of 1 message held"), "{set}");
    any_line(&mut server, &["order=set, name=suspension-1", "why=they move: to:@slow.test"]);
    assert_eq!(held(&server), ["later@fast.test waiting", "later@slow.test suspension-1"]);
    // New mail: for it alone, for others alone, and for both, of which the others go.
    send(&server, "a@client.test", &["one@slow.test"], CONTENT);
    send(&server, "a@client.test", &["two@fast.test"], CONTENT);
    let mixed = send(&server, "a@client.test", &["three@slow.test", "four@fast.test", "five@slow.test"], CONTENT);
    let came = |count: usize| -> Vec<String> {
        let mails = hop.wait(count);
        let mut all: Vec<String> = mails.iter().flat_map(|mail| mail.all_to()).map(str::to_owned).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(came(2), ["four@fast.test", "two@fast.test"]);
    poll("the others are done", || (waiting(&server) == 1).then_some(()));
    let all = [
        "five@slow.test suspension-1",
        "later@fast.test waiting",
        "later@slow.test suspension-1",
        "one@slow.test suspension-1",
        "three@slow.test suspension-1",
    ];
    assert_eq!(held(&server), all);
    let why = control(&server, &["why", &mixed]);
    assert!(why.contains("suspension-1 (they move; set by ") && why.contains("to:@slow.test)"), "{why}");
    assert!(why.contains("\"mailrace queue resume suspension-1\""), "{why}");
    let status = control(&server, &["status"]);
    assert!(status.contains("suspension-1 of ") && status.contains("holds to:@slow.test"), "{status}");
    // It is in force after a crash, and so is the hold of each message.
    let server = killed(server).start();
    send(&server, "a@client.test", &["six@slow.test"], CONTENT);
    assert!(control(&server, &["queue", "rules"]).contains("suspension-1  to:@slow.test\n    they move; set by "));
    // The crash may repeat what was delivered just before it; of what is held nothing has gone.
    poll("what was repeated is done", || (held(&server).len() == 6).then_some(()));
    assert!(held(&server).contains(&"six@slow.test suspension-1".to_owned()));
    assert!(hop.mails().iter().all(|mail| !mail.all_to().iter().any(|to| to.ends_with("@slow.test"))));
    hop.behave(Manners::default());
    let ended = control(&server, &["queue", "resume", "suspension-1"]);
    assert!(
        ended.contains("suspension-1 has ended") && ended.contains("5 recipients of 4 messages released"),
        "{ended}"
    );
    control(&server, &["queue", "retry", "--all"]);
    ends_empty(server);
    let slow = |mail: &Arc<Mail>| mail.all_to().iter().filter(|to| to.ends_with("@slow.test")).count();
    assert_eq!(hop.mails().iter().map(slow).sum::<usize>(), 5);
}

#[test]
fn a_hold_rule_is_for_mail_that_comes_and_names_are_checked() {
    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    let set =
        control(&server, &["queue", "hold", "--rule", "from:@lists.test class:bulk", "--reason", "too many", "--json"]);
    let last: Value = serde_json::from_str(set.lines().last().unwrap()).unwrap();
    assert_eq!(last["rule"], "rule-1", "{set}");
    let mut client = greeted(server.address());
    send_over(&mut client, "news@lists.test", &["a@d.test"], b"Precedence: bulk\r\n\r\nx\r\n");
    send_over(&mut client, "news@lists.test", &["b@d.test"], CONTENT);
    send_over(&mut client, "ann@client.test", &["c@d.test"], b"Precedence: bulk\r\n\r\nx\r\n");
    client.quit();
    hop.wait(2);
    poll("one is left", || (held(&server) == ["a@d.test rule-1"]).then_some(()));
    for (words, exit, part) in [
        (&["queue", "hold", "--rule", "reply~busy"][..], 64, "nothing is known of it when mail comes"),
        (&["queue", "suspend", "age>2h"], 64, "nothing is known of it when mail comes"),
        (&["queue", "suspend", "6AK9BQPE592284"], 64, "an expression says which"),
        (&["queue", "resume", "rule-7"], 64, "no such rule or suspension is in force"),
        (&["queue", "hold", "--rule", "to:@x.test", "--until", "yesterday"], 64, "a time to come"),
    ] {
        let (code, said) = refused(&server, words);
        assert!(code == Some(exit) && said.contains(part), "{words:?}: {code:?} {said}");
    }
    // The mail stays held where that is asked for.
    control(&server, &["queue", "resume", "rule-1", "--keep"]);
    assert_eq!(held(&server), ["a@d.test rule-1"]);
    assert_eq!(control(&server, &["queue", "rules"]), "no suspension and no hold rule is in force\n");
    control(&server, &["queue", "release", "held:rule-1"]);
    ends_empty(server);
}

#[test]
fn a_suspension_ends_with_its_time() {
    let hop = Hop::good();
    let mut server = relay(&[&hop]).start();
    control(&server, &["queue", "suspend", "destination:*", "--for", "1s"]);
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    any_line(&mut server, &["order=ended, name=suspension-1"]);
    hop.wait(1);
    ends_empty(server);
}

#[test]
fn a_limit_counts_at_once_and_after_a_restart_and_is_named() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Dot => Act::Say("250 2.0.0 taken"),
        _ => Act::Well,
    }));
    let ip = hop.address.ip();
    let domain = format!("[{ip}]");
    let mut server = by_literal(std::slice::from_ref(&hop)).start();
    let set =
        control(&server, &["destination", "limit", &domain, "connections=1", "rate=0.001", "--reason", "they asked"]);
    assert!(set.contains(&format!("{domain}  connections=1  rate=0.001\n    they asked; set by ")), "{set}");
    any_line(&mut server, &[&format!("order=set, name=limit {domain}"), "why=they asked: connections=1 rate=0.001"]);
    // The bucket has one transaction, the second waits for the rate.
    for name in ["a", "b", "c"] {
        send(&server, "x@client.test", &[&format!("{name}@{domain}")], CONTENT);
    }
    hop.wait(1);
    let limited = |server: &Server| {
        let listed = control(server, &["queue", "destinations", "--json"]);
        let line: Value = serde_json::from_str(listed.lines().next().expect("a destination")).expect("JSON");
        (line["waits_for"] == "rate" && line["set_limit"]["connections"] == 1).then_some(())
    };
    poll("mail waits for the rate", || limited(&server));
    let why = control(&server, &["why", &format!("b@{domain}")]);
    assert!(
        why.contains("limited it to 1 connections and 0.001 messages a second at ") && why.contains("(they asked)"),
        "{why}"
    );
    let server = killed(server).start();
    poll("mail waits for the rate again", || limited(&server));
    let before = hop.count();
    assert!(control(&server, &["status"]).contains(&format!("{domain} is limited by ")));
    let (code, said) = refused(&server, &["destination", "limit", "no such name", "connections=1"]);
    assert!(code == Some(64) && said.contains("names no destination"), "{said}");
    let (code, said) = refused(&server, &["destination", "limit", "other.test", "--remove"]);
    assert!(code == Some(64) && said.contains("no limit is set for it"), "{said}");
    control(&server, &["destination", "limit", &domain, "--remove"]);
    assert!(control(&server, &["destination", "limits"]).starts_with("no limit is set"));
    hop.wait(3);
    assert!(before < 3, "it was limited");
    ends_empty(server);
}

#[test]
fn mail_that_is_expired_is_reported_as_too_old() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 not yet"),
        _ => Act::Well,
    }));
    let mut server = retrying(relay(&[&hop]), "1h").start();
    send(&server, "list@client.test", &["later@d.test"], CONTENT);
    any_line(&mut server, &["later@d.test", "stat=Deferred"]);
    server.rests();
    let dry = control(&server, &["queue", "expire", "to:@d.test", "-n"]);
    assert!(dry.contains("1 recipient of 1 message would be expired"), "{dry}");
    let done = control(&server, &["queue", "expire", "to:@d.test"]);
    assert!(done.contains("1 recipient of 1 message expired"), "{done}");
    let report = Report::of(&hop.wait(1)[0]);
    assert_eq!(report.recipients[0]["status"], "5.4.7");
    assert!(report.words.contains("ended by the postmaster"), "{}", report.words);
    any_line(&mut server, &["queue=expire", "messages=1, recipients=1"]);
    ends_empty(server);
}

/// A crash between the record of a message and that of its holds leaves no recipient held that no rule holds.
#[test]
fn mail_that_was_not_sorted_is_sorted_at_the_start() {
    use spool::{Change, Hold, HoldKind, State, Status};
    let hop = Hop::good();
    let server = relay(&[&hop]).set("delivery.mode", "\"queue\"").start();
    control(&server, &["queue", "hold", "--rule", "to:@slow.test"]);
    let id = send(&server, "a@client.test", &["one@fast.test", "two@fast.test"], CONTENT);
    let setup = killed(server);
    {
        let disk = Arc::new(spool::disk::real::RealDisk::new());
        let config =
            spool::Config { segment_bytes: 1 << 20, size_max: 32 << 20, ..spool::Config::new(setup.path("spool")) };
        let (spool, _) = spool::Spool::open(config, disk).expect("a spool");
        let id = id.parse().expect("an id");
        let state = State { status: Status::Held, ..State::default() };
        let changes: Vec<Change> = [0, 1].map(|recipient| Change { id, recipient, state, destination: None }).to_vec();
        let hold = Hold::new(HoldKind::Server, "hold-rules", "x");
        spool.record_hold(&changes, &hold).expect("recorded").wait().expect("durable");
    }
    let_go(&setup.path("spool"));
    let server = setup.set("delivery.mode", "\"background\"").start();
    assert_eq!(hop.wait(1)[0].all_to(), ["one@fast.test", "two@fast.test"]);
    ends_empty(server);
}
