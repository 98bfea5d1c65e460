//! Commands of an operator on waiting mail: hold, release, send another way.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{
    any_line, by_literal, ends_empty, impatient, killed, relay, reload, retrying, send, send_over, stopped, wait_line,
    waiting,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, pause, poll};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// `mailrace queue …`, which works.
#[track_caller]
fn queue(server: &Server, words: &[&str]) -> String {
    let output = server.control(&[&["queue"], words].concat(), b"");
    assert!(output.status.success(), "{words:?}: {}", testkit::harness::text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The state of each recipient of each message, as `queue list --json` has it.
fn states(server: &Server) -> Vec<String> {
    let text = queue(server, &["list", "--json"]);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let recipients = lines.flat_map(|line| line["recipients"].as_array().cloned().unwrap_or_default());
    recipients.map(|one| one["state"].as_str().expect("a state").to_owned()).collect()
}

/// Sets long retry intervals: an early attempt has a cause.
fn patient(setup: Setup) -> Setup {
    retrying(setup, "1h")
}

#[test]
fn accepting_alone_keeps_mail_until_it_is_told() {
    let hop = Hop::good();
    let setup = relay(&[&hop]).set("delivery.mode", "\"queue\"");
    let mut server = setup.start();
    let first = send(&server, "a@client.test", &["b@d.test", "c@d.test"], CONTENT);
    send(&server, "a@client.test", &["d@d.test"], CONTENT);
    wait_line(&mut server, &["to=<d@d.test>", "stat=queued"]);
    // A restart does not send it.
    let mut server = killed(server).start();
    server.wait_log("2 messages for 3 recipients waiting");
    assert_eq!(states(&server), ["waiting", "waiting", "waiting"]);
    queue(&server, &["retry", &first]);
    assert_eq!(hop.wait(1)[0].all_to(), ["b@d.test", "c@d.test"]);
    queue(&server, &["retry", "--all"]);
    assert_eq!(hop.wait(2)[1].to(), "d@d.test");
    // Later mail waits again.
    send(&server, "a@client.test", &["e@d.test"], CONTENT);
    wait_line(&mut server, &["to=<e@d.test>", "stat=queued"]);
    // The recipient is done a moment after the hop has the message.
    poll("one is left", || (states(&server).len() == 1).then_some(()));
    assert_eq!(hop.count(), 2);
    // Until the mode is another one.
    reload(&mut server, "delivery.mode", "\"background\"");
    assert_eq!(hop.wait(3)[2].to(), "e@d.test");
    ends_empty(server);
    assert_eq!(hop.count(), 3);
}

/// The reply before a restart is shown after it, and is in the report to the sender when the time is over.
#[test]
fn why_mail_waits_is_known_after_a_restart() {
    let mut hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 not yet"),
        _ => Act::Well,
    }));
    let mut server = patient(relay(&[&hop])).start();
    let id = send(&server, "a@client.test", &["later@d.test", "later2@d.test", "now@d.test"], CONTENT);
    wait_line(&mut server, &["to=<later@d.test>", "stat=Deferred: 451"]);
    hop.wait(1);
    server.rests();
    let (_, setup) = stopped(server);
    hop.shut();
    let file = setup.path("spool").join("replies");
    let kept = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(kept.lines().count(), 3, "{kept}");
    let server = setup.start();
    let said = queue(&server, &["show", &id]);
    assert_eq!(said.matches("451 4.7.1 not yet").count(), 2, "{said}");
    let said = queue(&server, &["stragglers", "--older", "0s", "--by", "recipient"]);
    assert_eq!(said.matches("451 4.7.1 not yet").count(), 2, "{said}");
    // Without its file, or with one that makes no sense, mail goes all the same.
    let (_, setup) = stopped(server);
    std::fs::write(&file, "x").expect("written");
    let mut server = setup.start();
    let line = any_line(&mut server, &["why mail waits", "is forgotten"]);
    assert!(line.contains(&format!("{}: ", file.display())) && line.contains("mail goes all the same"), "{line}");
    assert!(!queue(&server, &["show", &id]).contains("451"));
    hop.reopen();
    hop.behave(Manners::default());
    queue(&server, &["retry", "--all"]);
    let mails = hop.wait(2);
    let mut all = mails[1].all_to();
    all.sort_unstable();
    assert_eq!(all, ["later2@d.test", "later@d.test"]);
    ends_empty(server);
}

#[test]
fn a_command_does_not_wait_for_the_time() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 not yet"),
        _ => Act::Well,
    }));
    let mut server = patient(relay(&[&hop])).start();
    let id = send(&server, "a@client.test", &["later@d.test"], CONTENT);
    wait_line(&mut server, &["to=<later@d.test>", "stat=Deferred: 451"]);
    server.rests();
    assert!(queue(&server, &["show", &id]).contains("451 4.7.1 not yet"), "{}", queue(&server, &["show", &id]));
    queue(&server, &["retry", &id]);
    wait_line(&mut server, &["to=<later@d.test>", "stat=Deferred: 451"]);
    server.rests();
    hop.behave(Manners::default());
    queue(&server, &["retry", "--to", "@d.test"]);
    hop.wait(1);
    ends_empty(server);
    assert_eq!(hop.count(), 1);
}

#[test]
fn a_destination_that_is_down_is_tried_on_command() {
    let mut hop = Hop::good();
    hop.shut();
    let mut server = patient(relay(&[&hop])).start();
    let mut client = greeted(server.address());
    for number in 0..20 {
        send_over(&mut client, "a@client.test", &[&format!("r{number}@d.test")], CONTENT);
    }
    client.quit();
    wait_line(&mut server, &["state=down"]);
    let listed = queue(&server, &["list"]);
    assert_eq!(listed.matches("host down, next in ").count(), 20, "{listed}");
    // Still down, and it is tried; then it is up.
    for number in 0..20 {
        any_line(&mut server, &[&format!("to=<r{number}@d.test>"), "stat=Deferred"]);
    }
    server.rests();
    server.pass_over();
    queue(&server, &["retry", "--all"]);
    wait_line(&mut server, &["stat=Deferred: Connection refused"]);
    server.rests();
    // An attempt that was refused at connect counts for the mail that was to go with it.
    let listed = queue(&server, &["list", "--json"]);
    let tries =
        |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|count| count.parse::<u32>().ok());
    let tries: Vec<u32> = listed.split("\"tries\":").skip(1).filter_map(tries).collect();
    assert!(tries.len() == 20 && tries.iter().any(|tries| *tries > 0), "{listed}");
    hop.reopen();
    queue(&server, &["retry", "--all"]);
    hop.wait(20);
    ends_empty(server);
    assert_eq!(hop.count(), 20);
}

#[test]
fn mail_that_is_due_and_not_tried_says_what_it_waits_for() {
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let slow = Manners::default().script(move |moment| {
        if moment.at == At::Dot {
            poll("the gate", || is_open.load(Ordering::Acquire).then_some(()));
        }
        Act::Well
    });
    let hops = Hop::neighbours(vec![slow, Manners::default()]);
    // One of the two is kept for hosts that were silent.
    let setup = by_literal(&hops).set("delivery.connections_max", "2");
    // A silent host keeps its connection, however slow the machine is.
    let setup = setup.set("delivery.connections_silent_max", "0").set("delivery.fast_command_time", "\"5m\"");
    let server = setup.start();
    let place = |to: &str| -> Option<Value> {
        let text = queue(&server, &["destinations", "--json"]);
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
        lines.find(|line| line["destination"].as_str().is_some_and(|name| to.ends_with(&format!("@{name}"))))
    };
    let (first, second) = (hops[0].mailbox("b"), hops[1].mailbox("c"));
    send(&server, "a@client.test", &[&first], CONTENT);
    poll("it is under way", || place(&first).filter(|place| place["in_flight"] == 1));
    send(&server, "a@client.test", &[&second], CONTENT);
    let waits = poll("it waits", || place(&second).filter(|place| place["waits_for"] == "connection"));
    assert_eq!((&waits["connections_max"], &waits["ready"], &waits["connections"]), (&2.into(), &1.into(), &0.into()));
    assert!(waits["waits_since"].is_u64() && place(&first).expect("it is there").get("waits_for").is_none(), "{waits}");
    let words = "waits for a connection since ";
    let listed = queue(&server, &["destinations"]);
    assert!(listed.contains(words) && listed.contains(" of delivery.connections_max = 2 is in use\n"), "{listed}");
    assert!(listed.contains("            1 message in memory\n"), "{listed}");
    let output = server.control(&["status"], b"");
    assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{}", testkit::harness::text(&output));
    gate.store(true, Ordering::Release);
    hops[1].wait(1);
    ends_empty(server);
}

#[test]
fn a_reload_tries_what_waits_only_if_it_says_where_mail_goes() {
    let mut hop = Hop::good();
    hop.shut();
    let mut server = patient(relay(&[&hop])).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    wait_line(&mut server, &["state=down"]);
    hop.reopen();
    // A new certificate comes in the same way as nothing at all.
    for (key, value) in [("message.size_max", "\"2MiB\""), ("delivery.connections_max", "77"), ("log.level", "11")] {
        reload(&mut server, key, value);
        wait_line(&mut server, &["configuration reloaded: ", ", waiting mail keeps its times"]);
        send(&server, "a@client.test", &["c@d.test"], CONTENT);
        wait_line(&mut server, &["to=<c@d.test>", "stat=Deferred: "]);
    }
    pause(Duration::from_millis(200));
    let down: Value = serde_json::from_str(&queue(&server, &["destinations", "--json"])).expect("one line");
    assert!(down["retry_in"].as_u64() > Some(5) && down.get("trying").is_none(), "{down}");
    assert_eq!((hop.count(), states(&server).len()), (0, 4));
    // Negative control: a rule for some next hops.
    reload(&mut server, "destination", "[{match = [\"other.example\"], connections = 3}]");
    wait_line(&mut server, &["configuration reloaded: ", ", waiting mail is tried again: changed=destination"]);
    hop.wait(4);
    ends_empty(server);
    assert_eq!(hop.count(), 4);
}

#[test]
fn held_mail_stays_and_deleted_mail_is_gone() {
    let mut hop = Hop::good();
    hop.shut();
    let mut server = relay(&[&hop]).start();
    for name in ["held", "deleted", "other"] {
        send(&server, "a@client.test", &[&format!("{name}@d.test")], CONTENT);
    }
    wait_line(&mut server, &["to=<other@d.test>", "stat=Deferred"]);
    queue(&server, &["hold", "--to", "held@d.test"]);
    queue(&server, &["delete", "--to", "deleted@d.test"]);
    hop.reopen();
    assert_eq!(hop.wait(1)[0].to(), "other@d.test");
    poll("one is left", || (states(&server) == ["held"]).then_some(()));
    queue(&server, &["release", "--all"]);
    assert_eq!(hop.wait(2)[1].to(), "held@d.test");
    ends_empty(server);
    assert_eq!(hop.count(), 2);
}

#[test]
fn another_smart_host_takes_the_mail_that_waits() {
    let (mut old, new) = (Hop::good(), Hop::good());
    old.shut();
    let mut server = patient(relay(&[&old])).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    send(&server, "a@client.test", &["c@e.test"], CONTENT);
    wait_line(&mut server, &["to=<c@e.test>", "stat=Deferred: "]);
    reload(&mut server, "route.smart_host", &format!("[{:?}]", new.name()));
    new.wait(2);
    send(&server, "a@client.test", &["d@d.test"], CONTENT);
    new.wait(3);
    ends_empty(server);
    assert_eq!(new.count(), 3);
}

#[test]
fn mail_that_waits_for_a_smart_host_goes_to_its_domains_without_one() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    let mut old = Hop::good();
    old.shut();
    let port = hops[0].address.port().to_string();
    let mut server = patient(relay(&[&old])).set("route.port", port).start();
    let to: Vec<String> = hops.iter().map(|hop| hop.mailbox("b")).collect();
    send(&server, "<>", &[&to[0], &to[1]], CONTENT);
    wait_line(&mut server, &["stat=Deferred: "]);
    reload(&mut server, "route.smart_host", "[]");
    for (hop, to) in hops.iter().zip(&to) {
        assert_eq!(hop.wait(1)[0].to(), to);
    }
    // A host that goes away before its answer would get the message again.
    poll("it is known that they have it", || (waiting(&server) == 0).then_some(()));
    // And the other way round.
    hops[0].shut();
    send(&server, "<>", &[&to[0]], CONTENT);
    wait_line(&mut server, &[&format!("to=<{}>", to[0]), "stat=Deferred: "]);
    old.reopen();
    reload(&mut server, "route.smart_host", &format!("[{:?}]", old.name()));
    assert_eq!(old.wait(1)[0].to(), to[0]);
    ends_empty(server);
}

#[test]
fn other_answers_of_our_own_count_after_a_reload() {
    let hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    let port = hops[0].address.port().to_string();
    let given = |hop: &Hop| format!("[{{domain = \"d.example\", address = [\"{}\"]}}]", hop.address.ip());
    let setup = impatient().set("route.port", port).set("delivery.idle_time", "\"0s\"");
    let mut server = setup.set("dns.override", given(&hops[0])).start();
    send(&server, "<>", &["b@d.example"], CONTENT);
    hops[0].wait(1);
    let talks = || hops[0].talks().concat();
    poll("its connection is over", || talks().iter().any(|line| line == "QUIT").then_some(()));
    reload(&mut server, "dns.override", &given(&hops[1]));
    send(&server, "<>", &["c@d.example"], CONTENT);
    assert_eq!(hops[1].wait(1)[0].to(), "c@d.example");
    ends_empty(server);
    assert_eq!(hops[0].count(), 1);
}

#[test]
fn mail_of_before_goes_out_after_the_start() {
    let hop = Hop::good();
    // Accepted without a next hop that works; with other names of the queue, too.
    let mut server = patient(impatient()).set("route.smart_host", "[\"[127.0.0.1]:1\"]").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    wait_line(&mut server, &["stat=Deferred: Connection refused by [127.0.0.1]"]);
    let (_, setup) = stopped(server);
    let mut server = setup.set("route.smart_host", format!("[{:?}]", hop.name())).start();
    assert_eq!(hop.wait(1)[0].own_content(), CONTENT);
    any_line(&mut server, &["to=<b@d.test>", "stat=Sent"]);
    ends_empty(server);
    assert_eq!(hop.count(), 1);
}
