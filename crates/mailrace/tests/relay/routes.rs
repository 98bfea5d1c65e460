//! Where mail goes: lists of hosts, MX records, LMTP, IPv6, TLS.

use crate::hop::{Act, At, Hop, Manners};
use crate::report::Report;
use crate::wire::tls_config;
use crate::world::{any_line, ends_empty, impatient, lines, relay, retrying, send, send_over, wait_line};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::client::greeted;
use testkit::harness::{Server, Setup, needs, poll, program};
use testkit::name_server::NameServer;

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

#[test]
fn hosts_are_tried_in_their_order() {
    let refusing = Manners::default().script(|moment| match moment.at {
        At::Greeting => Act::SayAndClose("554 5.3.2 closed today"),
        _ => Act::Well,
    });
    let (mut first, second, third) = (Hop::good(), Hop::new(refusing), Hop::good());
    first.shut();
    let mut server = relay(&[&first, &second, &third]).set("delivery.idle_time", "\"0s\"").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    third.wait(1);
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Sent"]);
    assert!(line.contains(&format!("relay={} {},", third.ip(), third.ip())), "{line}");
    let quits = |hop: &Hop| hop.talks().concat().iter().filter(|line| *line == "QUIT").count();
    poll("no QUIT", || (quits(&third) > 0).then_some(()));
    // The first is back: connections go there again, after the short while for which it was passed over.
    first.reopen();
    poll("not at the first", || {
        // Two messages may go over one connection: only one more must have ended.
        let ended = quits(&first) + quits(&third);
        send(&server, "a@client.test", &["c@d.test"], CONTENT);
        poll("no QUIT", || (quits(&first) + quits(&third) > ended).then_some(()));
        (first.count() > 0).then_some(())
    });
    let ended = ends_empty(server);
    assert_eq!(lines(&ended.log, &["stat=Deferred"]), <[&str; 0]>::default());
    assert_eq!((first.count(), second.count()), (1, 0));
    assert!(second.connections() > 0);
}

#[test]
fn when_all_hosts_are_down_mail_waits() {
    let (mut first, mut second) = (Hop::good(), Hop::good());
    first.shut();
    second.shut();
    let mut server = relay(&[&first, &second]).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred: "]);
    assert!(line.ends_with(&format!("Connection refused by {}", second.ip())), "{line}");
    any_line(&mut server, &["state=down", "why=Connection refused"]);
    // New mail is deferred at once.
    send(&server, "a@client.test", &["c@d.test"], CONTENT);
    wait_line(&mut server, &["to=<c@d.test>", "stat=Deferred: "]);
    second.reopen();
    second.wait(2);
    any_line(&mut server, &["state=up"]);
    ends_empty(server);
    assert_eq!(second.count(), 2);
}

#[test]
fn equal_hosts_share_the_load() {
    let hops = [Hop::good(), Hop::good(), Hop::good()];
    let names: Vec<String> = hops.iter().map(|hop| format!("{:?}", hop.name())).collect();
    let setup = impatient().set("route.smart_host", format!("[[{}]]", names.join(", ")));
    // A connection for each message.
    let server = setup.set("delivery.messages_per_connection", "1").start();
    let mut client = greeted(server.address());
    for number in 0..30 {
        send_over(&mut client, "a@client.test", &[&format!("r{number}@d.test")], CONTENT);
    }
    client.quit();
    let all = || hops.iter().map(Hop::count).sum::<usize>();
    poll("not all came", || (all() >= 30).then_some(()));
    ends_empty(server);
    assert_eq!(all(), 30);
    for hop in &hops {
        assert!(hop.count() >= 4, "{:?}", hops.iter().map(Hop::count).collect::<Vec<_>>());
    }
}

#[test]
fn over_ipv6() {
    let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
    let Some(hop) = Hop::at(address, Manners::default()) else {
        return needs::skip("IPv6", "is not on this machine");
    };
    let mut server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    assert_eq!(hop.wait(1)[0].own_content(), CONTENT);
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Sent"]);
    assert!(line.contains("relay=[IPv6:::1]") || line.contains("relay=[::1]"), "{line}");
    ends_empty(server);
}

#[test]
fn a_literal_is_its_own_host() {
    let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
    let Some(hop) = Hop::at(address, Manners::default()) else {
        return needs::skip("IPv6", "is not on this machine");
    };
    let server = impatient().set("route.port", hop.address.port().to_string()).start();
    send(&server, "<>", &["b@[IPv6:::1]"], CONTENT);
    assert_eq!(hop.wait(1)[0].to(), "b@[IPv6:::1]");
    ends_empty(server);
}

// RFC 2033 §4.2 (test)
#[test]
fn lmtp_answers_for_each_recipient() {
    let manners = Manners { lmtp: true, ..Manners::default() }.script(|moment| match (moment.at, moment.connection) {
        (At::Dot, 0) if moment.line.contains("<full") => Act::Say("452 4.2.2 over quota"),
        (At::Dot, _) if moment.line.contains("<gone") => Act::Say("550 5.1.1 moved away"),
        (At::Dot, 0) if moment.line.contains("<last") => Act::WellAndClose,
        _ => Act::Well,
    });
    let hop = Hop::new(manners);
    let mut server = relay(&[&hop]).set("route.protocol", "\"lmtp\"").start();
    let to = ["one@d.test", "full@d.test", "gone@d.test", "last@d.test"];
    let id = send(&server, "<a@client.test> RET=HDRS", &to, CONTENT);
    // The script closes behind the reply for the last one, before the message is kept: that reply counts all the same.
    for (to, stat) in [
        ("<one@d.test>", "stat=Sent"),
        ("<full@d.test>", "dsn=4.2.2, reply=452 4.2.2 over quota, stat=Deferred: 452 4.2.2 over quota"),
        ("<gone@d.test>", "dsn=5.1.1"),
        ("<last@d.test>", "stat=Sent"),
    ] {
        let line = any_line(&mut server, &[&format!("{id}: to="), to, stat]);
        assert!(line.contains("mailer=lmtp,"), "{line}");
    }
    let mails = hop.wait_until("the report and the second attempt", |mails| {
        mails.iter().any(|mail| mail.to_is("a@client.test")) && mails.iter().any(|mail| mail.to_is("full@d.test"))
    });
    let report = mails.iter().find(|mail| mail.to_is("a@client.test")).expect("it came");
    Report::of(report).expect(&[("final-recipient", "rfc822; gone@d.test"), ("status", "5.1.1")]);
    ends_empty(server);
    let talk = hop.talks().concat();
    assert!(talk[0].starts_with("LHLO mx.test"), "{talk:?}");
    let dots = |who: &str| talk.iter().filter(|line| line.starts_with(&format!("RCPT TO:<{who}@"))).count();
    assert_eq!(["one", "full", "gone", "last"].map(dots), [1, 2, 1, 1]);
}

#[test]
fn tls_is_used_where_it_is_offered() {
    let tls = || Some(tls_config());
    let offers = ["PIPELINING", "CHUNKING", "STARTTLS", "8BITMIME"];
    let hop = Hop::new(Manners { tls: tls(), ..Manners::offering(&offers) });
    let mut server = relay(&[&hop]).set("delivery.idle_time", "\"0s\"").start();
    let content = b"Subject: x\r\n\r\n".iter().copied().chain(b"secret line\r\n".repeat(20_000)).collect::<Vec<u8>>();
    for number in 1..=3 {
        send(&server, "a@client.test", &["b@d.test"], &content);
        let mails = hop.wait(number);
        assert!(mails.iter().all(|mail| mail.is_encrypted && mail.own_content() == content));
    }
    let line = server.wait_log("STARTTLS=client, relay=");
    assert!(line.contains("version=TLSv1.3, verify=NOT, cipher=") && line.ends_with("bits=256/256"), "{line}");
    ends_empty(server);

    let hop = Hop::new(Manners { tls: tls(), ..Manners::offering(&offers) });
    let server = relay(&[&hop]).set("route.tls", "\"none\"").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    assert!(!hop.wait(1)[0].is_encrypted);
    ends_empty(server);
}

/// `mailrace sink`, killed when dropped.
struct Sink(Child);

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn sink(options: &[&str]) -> (Sink, String) {
    let mut command = program();
    command.args(["sink", "--listen", "127.0.0.1:0"]).args(options).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program runs");
    let stdout = child.stdout.take().expect("piped");
    let sink = Sink(child);
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let ready = lines.find(|line| line.starts_with("mailrace: ready on ")).expect("it says where it is");
    let address = ready.rsplit(' ').next().expect("an address").to_owned();
    (sink, format!("[\"{address}\"]"))
}

/// The same protocol on both sides: with STARTTLS, and with LMTP and refusals.
#[test]
fn into_a_sink() {
    let setup = Setup::new();
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).expect("a certificate");
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| setup.path(name));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().expect("UTF-8"));
    let (_sink, host) = sink(&["--certificate", certificate, "--key", key]);
    let mut server = impatient().set("route.smart_host", host).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Sent"]);
    assert!(line.contains("dsn=2.0.0") && line.contains("Message accepted for delivery"), "{line}");
    assert!(server.log.iter().any(|line| line.contains("STARTTLS=client, relay=")), "{:#?}", server.log);
    ends_empty(server);

    let (_sink, host) = sink(&["--lmtp", "--refuse", "rcpt:450:25"]);
    let setup = impatient().set("route.smart_host", host).set("route.protocol", "\"lmtp\"");
    let mut server = setup.start();
    let to: Vec<String> = (0..20).map(|number| format!("r{number}@d.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    send(&server, "a@client.test", &to, CONTENT);
    let sent = |server: &Server| {
        let sent = lines(&server.log, &["stat=Sent"]);
        sent.iter().map(|line| line.matches("@d.test>").count()).sum::<usize>()
    };
    while sent(&server) < 20 {
        wait_line(&mut server, &["stat=Sent"]);
    }
    let ended = ends_empty(server);
    assert!(!lines(&ended.log, &["stat=Deferred: 450"]).is_empty());
}

fn zone(hops: &[Hop]) -> String {
    let (first, second) = (hops[0].address.ip(), hops[1].address.ip());
    format!(
        "two.test MX 20 second.two.test\n\
         two.test MX 10 first.two.test\n\
         first.two.test A {first}\n\
         second.two.test A {second}\n\
         plain.test A {second}\n\
         null.test MX 0 .\n\
         broken.test SERVFAIL\n\
         client.test MX 1 second.two.test\n"
    )
}

// RFC 5321 §5.1 (test), RFC 7505 §3 (test)
#[test]
fn by_mx_records() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    let names = NameServer::start(&zone(&hops));
    let port = hops[0].address.port().to_string();
    let setup = impatient()
        .set("route.port", port)
        .set("dns.servers", format!("[\"{}\"]", names.address))
        .set("dns.ignored_addresses", "[]");
    let mut server = setup.set("delivery.idle_time", "\"0s\"").start();
    send(&server, "a@client.test", &["b@two.test"], CONTENT);
    assert_eq!(hops[0].wait(1)[0].to(), "b@two.test");
    let line = wait_line(&mut server, &["to=<b@two.test>", "stat=Sent"]);
    assert!(line.contains(&format!("relay=first.two.test {},", hops[0].ip())), "{line}");
    hops[0].shut();
    send(&server, "a@client.test", &["c@two.test"], CONTENT);
    assert_eq!(hops[1].wait(1)[0].to(), "c@two.test");
    send(&server, "a@client.test", &["d@plain.test"], CONTENT);
    assert_eq!(hops[1].wait(2)[1].to(), "d@plain.test");
    // No such domain, and one that takes no mail: back at once.
    let gone = send(&server, "a@client.test", &["e@gone.test"], CONTENT);
    let null = send(&server, "a@client.test", &["f@null.test"], CONTENT);
    let mails = hops[1].wait(4);
    for (domain, status, id, stat) in [
        ("e@gone.test", "5.1.2", gone, "Host unknown (Name server: gone.test: host not found)"),
        ("f@null.test", "5.1.10", null, "null MX"),
    ] {
        let reports = mails.iter().filter(|mail| mail.mail.starts_with("MAIL FROM:<>")).map(|mail| Report::of(mail));
        let report = { reports }.find(|report| report.only()["final-recipient"].ends_with(domain)).expect("it came");
        report.expect(&[("action", "failed"), ("status", status)]);
        let line = any_line(&mut server, &[&id, domain, "stat="]);
        assert!(line.contains(stat) && line.contains(&format!("dsn={status}")), "{line}");
    }
    // A broken DNS is a deferral.
    let id = send(&server, "a@client.test", &["g@broken.test"], CONTENT);
    let line = wait_line(&mut server, &[&id, "to=<g@broken.test>", "stat=Deferred: "]);
    assert!(line.contains("host name lookup failure"), "{line}");
    names.change(&zone(&hops).replace("broken.test SERVFAIL", "broken.test MX 1 second.two.test"));
    hops[1].wait_until("the deferred one", |mails| mails.iter().any(|mail| mail.to_is("g@broken.test")));
    ends_empty(server);
    assert_eq!((hops[0].count(), hops[1].count()), (1, 5));
}

/// A message for several domains is several transactions, and one down domain does not hold the others.
#[test]
fn domains_have_queues_of_their_own() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default(), Manners::default()]);
    hops[2].shut();
    let server = crate::world::by_literal(&hops).start();
    let to: Vec<String> = hops.iter().flat_map(|hop| [hop.mailbox("b"), hop.mailbox("c")]).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    send(&server, "<>", &to, CONTENT);
    for hop in &hops[..2] {
        let mails = hop.wait(1);
        assert_eq!(mails[0].all_to(), [hop.mailbox("b"), hop.mailbox("c")]);
    }
    hops[2].reopen();
    hops[2].wait(1);
    ends_empty(server);
    assert!(hops.iter().all(|hop| hop.count() == 1));
}

// RFC 5321 §4.5.3.1.8 (test)
#[test]
fn many_recipients_are_several_transactions() {
    let hop = Hop::good();
    let server = relay(&[&hop]).set("delivery.recipients_per_transaction", "30").start();
    let to: Vec<String> = (0..100).map(|number| format!("r{number:03}@d.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    send(&server, "a@client.test", &to, CONTENT);
    hop.wait(4);
    ends_empty(server);
    let mails = hop.mails();
    assert_eq!(mails.len(), 4);
    assert!(mails.iter().all(|mail| mail.rcpts.len() <= 30));
    let mut came: Vec<&str> = mails.iter().flat_map(|mail| mail.all_to()).collect();
    came.sort_unstable();
    assert_eq!(came, to);
}

// RFC 5321 §4.5.3.1.10 (test)
#[test]
fn a_host_that_takes_few_recipients_at_once() {
    let taken = AtomicUsize::new(0);
    let hop = Hop::new(Manners::default().script(move |moment| match moment.at {
        At::Mail => {
            taken.store(0, Ordering::Relaxed);
            Act::Well
        }
        At::Rcpt if taken.fetch_add(1, Ordering::Relaxed) >= 5 => Act::Say("452 4.5.3 Too many recipients"),
        _ => Act::Well,
    }));
    // The others are not made to wait: they were one too many, and no reply told them to come later.
    let server = retrying(relay(&[&hop]), "1h").start();
    let to: Vec<String> = (0..12).map(|number| format!("r{number:03}@d.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    send(&server, "a@client.test", &to, CONTENT);
    hop.wait(3);
    ends_empty(server);
    let mails = hop.mails();
    let mut came: Vec<&str> = mails.iter().flat_map(|mail| mail.all_to()).collect();
    came.sort_unstable();
    assert_eq!((mails.len(), came), (3, to));
}

/// More destinations than connections: they take turns, and idle connections give way.
#[test]
fn few_connections_serve_many_hosts() {
    let mut hops = Hop::neighbours(vec![Manners::default(); 16]);
    for hop in &mut hops[..4] {
        hop.shut();
    }
    let setup = crate::world::by_literal(&hops).set("delivery.connections_max", "2");
    let server = setup.set("delivery.idle_time", "\"5m\"").start();
    let mut client = greeted(server.address());
    for round in 0..5 {
        for hop in &hops {
            send_over(&mut client, "<>", &[&hop.mailbox(&format!("r{round}"))], CONTENT);
        }
    }
    client.quit();
    for hop in &hops[4..] {
        hop.wait(5);
    }
    for hop in &mut hops[..4] {
        hop.reopen();
        hop.wait(5);
    }
    ends_empty(server);
    assert!(hops.iter().all(|hop| hop.count() == 5));
}
