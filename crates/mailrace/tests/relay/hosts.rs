//! Hosts of one site: the dead are passed over, those that hang delay no mail for long, broken TLS is remembered.

use crate::hop::{Act, At, Hop, Manners, Moment};
use crate::world::{
    any_line, by_literal, ends_empty, impatient, killed, lines, relay, reload, retrying, send, send_over, stopped,
    wait_line,
};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{SLACK, Setup, text, time};
use testkit::name_server::NameServer;

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// A host that does this at its first connection.
fn first_time(at: At, act: Act) -> Manners {
    Manners::default().script(
        move |moment: &Moment<'_>| {
            if moment.connection == 0 && moment.at == at { act.clone() } else { Act::Well }
        },
    )
}

/// Long enough not to be over in a test.
fn patient(setup: Setup) -> Setup {
    setup.set("delivery.retry_first", "\"5m\"").set("delivery.retry_max", "\"1h\"")
}

fn zone(hops: &[Hop]) -> String {
    let (first, second) = (hops[0].address.ip(), hops[1].address.ip());
    format!("d.test MX 10 first.d.test\nd.test MX 20 second.d.test\nfirst.d.test A {first}\nsecond.d.test A {second}\n")
}

#[test]
fn a_dead_first_mx_is_passed_over_and_its_site_stays_up() {
    for act in [Act::SayAndClose("554 5.3.2 closed for ever"), Act::Close, Act::Hang] {
        let dead = Manners::default().script({
            let act = act.clone();
            move |moment| if moment.at == At::Greeting { act.clone() } else { Act::Well }
        });
        let hops = Hop::neighbours(vec![dead, Manners::default()]);
        let names = NameServer::start(&zone(&hops));
        let setup = patient(impatient())
            .set("route.port", hops[0].address.port().to_string())
            .set("dns.servers", format!("[\"{}\"]", names.address))
            .set("dns.ignored_addresses", "[]")
            // For the one that hangs; the other is quicker, on a machine that is busy too.
            .set("delivery.fast_greeting_time", "\"8s\"")
            // Each message over a connection of its own.
            .set("delivery.messages_per_connection", "1")
            .set("delivery.connections_per_destination", "1");
        let server = setup.start();
        let mut client = greeted(server.address());
        for number in 1..=5 {
            send_over(&mut client, "a@client.test", &["b@d.test"], CONTENT);
            hops[1].wait(number);
        }
        client.quit();
        assert_eq!((hops[0].connections(), hops[1].connections()), (1, 5), "{act:?}");
        // A server that starts anew knows it still, from its file.
        let (ended, setup) = stopped(server);
        assert_eq!(lines(&ended.log, &["stat=Deferred"]), <[&str; 0]>::default(), "{act:?}");
        assert_eq!(lines(&ended.log, &["state=down"]), <[&str; 0]>::default(), "{act:?}");
        let server = setup.start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        hops[1].wait(6);
        ends_empty(server);
        assert_eq!(hops[0].connections(), 1, "{act:?}");
    }
}

/// Each host hangs somewhere once. That costs seconds; the next time it may take longer than the fast lane bears.
#[test]
fn a_hung_host_costs_seconds_and_then_has_all_the_time_it_needs() {
    let hangs = |at: At| {
        Manners::default().script(move |moment: &Moment<'_>| match moment.connection {
            0 if moment.at == at => Act::Hang,
            1 if moment.at == at => Act::Late(Duration::from_millis(6_500)),
            _ => Act::Well,
        })
    };
    let stages = [At::Greeting, At::Ehlo];
    let hops = Hop::neighbours(stages.into_iter().map(hangs).collect());
    let server = fast(by_literal(&hops)).start();
    let mut client = greeted(server.address());
    for hop in &hops {
        send_over(&mut client, "<>", &[&hop.mailbox("b")], CONTENT);
    }
    client.quit();
    hops.iter().for_each(|hop| drop(hop.wait(1)));
    let ended = ends_empty(server);
    for (hop, stage) in hops.iter().zip(["client greeting", "client EHLO"]) {
        let of_hop = format!("to=<{}>", hop.mailbox("b"));
        let deferred = lines(&ended.log, &[&of_hop, "stat=Deferred: "]);
        let text = format!("timeout waiting for {} during {stage}", hop.ip());
        assert!(deferred.len() == 1 && deferred[0].ends_with(&text), "{deferred:#?}");
        assert_eq!((hop.count(), hop.connections()), (1, 2), "{:?}", hop.talks());
    }
}

/// Sets times of the fast lane that only a host that hangs exceeds, on a busy machine too; all other limits are
/// minutes.
fn fast(setup: Setup) -> Setup {
    let time = "\"6s\"";
    setup
        .set("delivery.connect_time", "\"30s\"")
        .set("delivery.fast_connect_time", time)
        .set("delivery.fast_greeting_time", time)
        .set("delivery.fast_command_time", time)
}

/// A reply about one message counts as an answer: the next connection opens at once, and its site is not down.
#[test]
fn a_host_that_refuses_a_message_and_then_says_421_has_served() {
    let seen = Mutex::new(BTreeSet::new());
    let hop = Hop::new(Manners::default().script(move |moment: &Moment<'_>| match moment.at {
        At::Mail if !seen.lock().expect("nobody panicked").insert(moment.connection) => {
            Act::SayAndClose("421 4.7.0 one is enough")
        }
        At::Rcpt => Act::Say("550 5.1.1 no such user"),
        _ => Act::Well,
    }));
    let server = patient(relay(&[&hop])).set("delivery.connections_per_destination", "1").start();
    let mut client = greeted(server.address());
    for _ in 0..5 {
        send_over(&mut client, "<>", &["<b@d.test> NOTIFY=NEVER"], CONTENT);
    }
    client.quit();
    let ended = ends_empty(server);
    assert_eq!(hop.connections(), 5, "{:?}", hop.talks());
    assert_eq!(lines(&ended.log, &["state=down"]), <[&str; 0]>::default());
    assert_eq!(lines(&ended.log, &["to=<b@d.test>", "dsn=5.1.1"]).len(), 5);
}

/// A timeout behind the end of the content makes duplicates, so the server waits long there.
#[test]
fn a_late_answer_to_the_content_is_waited_for_and_an_earlier_silence_is_not() {
    const OFFERS: [&[&str]; 3] = [&["PIPELINING"], &["PIPELINING", "CHUNKING"], &[]];
    std::thread::scope(|scope| {
        for offers in OFFERS {
            scope.spawn(move || answers_late_or_never(offers));
        }
    });
}

fn answers_late_or_never(offers: &[&'static str]) {
    let late = || Act::Late(Duration::from_millis(7_500));
    let manners = |at: At| {
        let script = move |moment: &Moment<'_>| match moment.connection {
            0 if moment.at == at => {
                if at == At::Dot {
                    late()
                } else {
                    Act::Hang
                }
            }
            _ => Act::Well,
        };
        Manners::offering(offers).script(script)
    };
    let hops = Hop::neighbours([At::Dot, At::Mail, At::Rcpt, At::Data].into_iter().map(manners).collect());
    let has_bdat = offers.contains(&"CHUNKING");
    // All of a small message is there with BDAT: a host that hangs at MAIL may have it.
    let count = if has_bdat { 1 } else { hops.len() };
    let server = fast(by_literal(&hops)).start();
    for hop in &hops[..count] {
        send(&server, "<>", &[&hop.mailbox("b")], CONTENT);
    }
    hops[..count].iter().for_each(|hop| drop(hop.wait(1)));
    let ended = ends_empty(server);
    for (hop, stage) in hops[..count].iter().zip(["", "client MAIL", "client RCPT", "client DATA 354"]) {
        let of_hop = format!("to=<{}>", hop.mailbox("b"));
        let deferred = lines(&ended.log, &[&of_hop, "stat=Deferred: "]);
        assert_eq!(hop.count(), 1, "{stage}");
        if stage.is_empty() {
            assert_eq!((hop.connections(), deferred.len()), (1, 0), "{deferred:#?}");
        } else {
            let text = format!("Connection timed out with {} during {stage}", hop.ip());
            assert!(deferred.len() == 1 && deferred[0].ends_with(&text), "{offers:?}: {deferred:#?}");
        }
    }
}

#[test]
fn broken_tls_is_remembered_over_a_restart() {
    let broken = Manners::offering(&["PIPELINING", "STARTTLS"]);
    let hop = Hop::new(broken);
    let says_tls = || hop.talks().concat().iter().filter(|line| *line == "STARTTLS").count();
    let mut server = patient(relay(&[&hop])).set("delivery.idle_time", "\"0s\"").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(1);
    let line = wait_line(&mut server, &["STARTTLS=client, error: connect failed=-1, reason=", &hop.ip()]);
    assert!(line.contains("it is spoken to in clear for an hour"), "{line}");
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(2);
    let (_, setup) = stopped(server);
    let server = setup.start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(3);
    assert_eq!(says_tls(), 1, "{:?}", hop.talks());
    // Without its file it is asked anew.
    let (_, setup) = stopped(server);
    std::fs::remove_file(setup.path("spool").join("hosts")).expect("it is there");
    let server = setup.start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(4);
    ends_empty(server);
    assert_eq!(says_tls(), 2);
}

/// STARTTLS that is gone, or a handshake that fails, is suspicious at a host that had TLS before the server was started
/// again.
#[test]
fn a_host_that_had_tls_waits_for_it_over_a_restart() {
    std::thread::scope(|scope| {
        // STARTTLS is gone; the handshake fails.
        for without in [Manners::default(), Manners::offering(&["PIPELINING", "STARTTLS"])] {
            scope.spawn(move || loses_tls(without));
        }
    });
}

fn loses_tls(without: Manners) {
    let offers = ["PIPELINING", "STARTTLS"];
    let good = || Manners { tls: Some(crate::wire::tls_config()), ..Manners::offering(&offers) };
    let hop = Hop::new(good());
    let server = relay(&[&hop]).set("delivery.idle_time", "\"0s\"").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    assert!(hop.wait(1)[0].is_encrypted);
    let (_, setup) = stopped(server);
    hop.behave(without.clone());
    let mut server = setup.start();
    send(&server, "a@client.test", &["c@d.test"], CONTENT);
    let line = wait_line(&mut server, &["to=<c@d.test>", "stat=Deferred: "]);
    let why =
        "had TLS in the last 30 days; mail waits for TLS: delivery.tls_fallback_after, 14400 s, says for how long";
    assert!(line.contains("dsn=4.7.") && line.ends_with(why), "{line}");
    hop.behave(good());
    assert!(hop.wait(2)[1].is_encrypted);
    // A time that is over before the mail has waited for long.
    let (_, setup) = stopped(server);
    hop.behave(without);
    let mut server = setup.set("delivery.tls_fallback_after", "\"1s\"").start();
    send(&server, "a@client.test", &["e@d.test"], CONTENT);
    wait_line(&mut server, &["to=<e@d.test>", "stat=Deferred: "]);
    assert!(!hop.wait(3)[2].is_encrypted);
    let line = wait_line(&mut server, &["STARTTLS=client, error: ", "for longer than delivery.tls_fallback_after"]);
    assert!(line.contains("it is spoken to in clear for an hour"), "{line}");
    ends_empty(server);
}

#[test]
fn a_damaged_table_is_told_and_stops_nobody() {
    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    let (path, setup) = (server.setup.path("spool").join("hosts"), killed(server));
    for bytes in [&b""[..], b"mrhosts\0\x01\0", &[0xff; 100_000]] {
        std::fs::write(&path, bytes).expect("written");
    }
    let mut server = setup.start();
    let line = any_line(&mut server, &["what was known of next hops is forgotten"]);
    assert!(line.contains(&format!("{}: ", path.display())) && line.contains("mail goes all the same"), "{line}");
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(1);
    let (_, setup) = stopped(server);
    // As the spool's own tools see it, it is no part of the spool.
    let mut verify = testkit::harness::program();
    verify.arg("spool").arg("verify").arg(setup.path("spool"));
    let output = verify.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    let server = setup.start();
    let ended = ends_empty(server);
    assert_eq!(lines(&ended.log, &["next hops is forgotten"]), <[&str; 0]>::default());
}

#[test]
fn a_peer_that_takes_an_octet_now_and_then_is_cut_off() {
    const LIMIT: Duration = Duration::from_secs(8);
    let hop = Hop::new(first_time(At::Data, Act::Sip(10_000)));
    // More than the buffers of two sockets hold.
    let content = [
        b"Subject: x\r\n\r\n".to_vec(),
        b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abc.\r\n".repeat(500_000),
    ]
    .concat();
    let mut server = retrying(relay(&[&hop]), "1h")
        .set("delivery.transaction_time", format!("\"{}s\"", LIMIT.as_secs()))
        .set("message.size_max", "\"40MiB\"")
        .set("spool.size_max", "\"128MiB\"")
        .start();
    send(&server, "a@client.test", &["b@d.test"], &content);
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred: "]);
    let text = format!(
        "{} was too slow during client message body: the transaction took longer than delivery.transaction_time",
        hop.ip()
    );
    assert!(line.ends_with(&text), "{line}");
    let xdelay = time(line.split("xdelay=").nth(1).and_then(|rest| rest.split(',').next()).expect("it is there"));
    // With an octet now and then it is minutes. Seconds are cut off.
    assert!((LIMIT - Duration::from_secs(1)..=LIMIT + SLACK).contains(&xdelay), "{line}");
    // On a machine that is busy, all of it takes its time too.
    reload(&mut server, "delivery.transaction_time", "\"5m\"");
    server.rests();
    assert!(server.control(&["queue", "retry", "--all"], b"").status.success());
    assert_eq!(hop.wait(1)[0].own_content(), content);
    ends_empty(server);
    assert_eq!((hop.count(), hop.connections()), (1, 2));
}

#[test]
fn a_rule_gives_source_and_name() {
    let hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    let names = NameServer::start(&zone(&hops));
    let setup = impatient()
        .set("route.port", hops[0].address.port().to_string())
        .set("dns.servers", format!("[\"{}\"]", names.address))
        .set("dns.ignored_addresses", "[]")
        .set("destination", "[{match = [\"mx:first.*\"], source = [\"127.9.8.7\"], hello = \"mta1.test\"}]");
    let server = setup.start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hops[0].wait(1);
    ends_empty(server);
    assert_eq!(hops[0].peers(), ["127.9.8.7".parse::<std::net::IpAddr>().expect("one")]);
    assert_eq!(hops[0].talks()[0][0], "EHLO mta1.test");
    // An address that is not ours is a mistake of the configuration, and says so.
    let setup = impatient()
        .set("route.port", hops[0].address.port().to_string())
        .set("dns.servers", format!("[\"{}\"]", names.address))
        .set("dns.ignored_addresses", "[]")
        .set("destination", "[{match = [\"d.test\"], source = [\"192.0.2.7\"]}]");
    let mut server = setup.start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred: "]);
    assert!(line.contains("from 192.0.2.7: ") && line.contains("source of [[destination]] 1"), "{line}");
    assert!(line.contains("dsn=4.3.5"), "{line}");
    drop(killed(server));
}
