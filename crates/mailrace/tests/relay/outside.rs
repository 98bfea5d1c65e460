//! Header fields of our users' mail have the addresses by which people are known outside; mail of others goes on as it
//! came.

use crate::hop::{Hop, Manners};
use crate::world::{any_line, by_literal, ends_empty, relay, send, send_over};
use testkit::client::{Plain, connect, greeted};
use testkit::harness::{Server, Setup};

const GENERICSTABLE: &str = "joe\tJoe.Doe@corp.test\nann@g.test\tAnn.Arbor@corp.test\n";

/// A server that knows people of g.test by other names and stands as corp.test.
fn named(setup: Setup) -> Setup {
    let map = setup.path("genericstable");
    std::fs::write(&map, GENERICSTABLE).expect("written");
    setup
        .set("local.mailbox", "\"none\"")
        .set("maps.genericstable", format!("[{:?}]", map.display().to_string()))
        .set("generics.domains", "[\"g.test\"]")
        .set("generics.masquerade", "\"corp.test\"")
}

fn delivered(setup: Setup, hop: &Hop, content: &[u8]) -> String {
    let server = named(setup).start();
    send(&server, "x@far.test", &["to@d.test"], content);
    let mail = hop.wait(1).remove(0);
    ends_empty(server);
    String::from_utf8(mail.own_content().to_vec()).expect("text")
}

const CONTENT: &str = "From: \"Doe, Joe (joe@g.test)\" <joe@g.test> (of g.test)\r\n\
    Sender: ann@g.test,\r\n\tx@far.test\r\n\
    To: ann@g.test, =?utf-8?q?J=C3=B6?= <joe@mx.test>\r\n\
    Reply-To: staff: joe@g.test, \"b\" <b@mx.test>;\r\n\
    X-From: joe@g.test\r\n\
    Subject: joe@g.test\r\n\
    From: @@ broken <joe@g.test\r\n\
    \r\n\
    From: joe@g.test\r\n";

const OUTSIDE: &str = "From: \"Doe, Joe (joe@g.test)\" <Joe.Doe@corp.test> (of g.test)\r\n\
    Sender: Ann.Arbor@corp.test,\r\n\tx@far.test\r\n\
    To: ann@g.test, =?utf-8?q?J=C3=B6?= <joe@mx.test>\r\n\
    Reply-To: staff: Joe.Doe@corp.test, \"b\" <b@corp.test>;\r\n\
    X-From: joe@g.test\r\n\
    Subject: joe@g.test\r\n\
    From: @@ broken <joe@g.test\r\n\
    \r\n\
    From: joe@g.test\r\n";

#[test]
fn only_addresses_of_senders_change() {
    let hop = Hop::good();
    assert_eq!(delivered(relay(&[&hop]), &hop, CONTENT.as_bytes()), OUTSIDE);
}

#[test]
fn recipients_change_where_that_is_wanted_and_nothing_where_it_is_not() {
    let hop = Hop::good();
    let all = delivered(relay(&[&hop]).set("generics.recipients", "true"), &hop, CONTENT.as_bytes());
    let to = "To: Ann.Arbor@corp.test, =?utf-8?q?J=C3=B6?= <Joe.Doe@corp.test>\r\n";
    assert!(all.contains(to), "{all}");
    let hop = Hop::good();
    assert_eq!(delivered(relay(&[&hop]).set("generics.headers", "false"), &hop, CONTENT.as_bytes()), CONTENT);
}

/// A header and a body that are larger than a piece: cut anywhere, by DATA and by BDAT.
#[test]
fn large_messages_are_rewritten_whole() {
    let hop = Hop::good();
    let server = named(relay(&[&hop])).start();
    let fill = |octets: usize| {
        format!("X-Fill:\r\n{}", " text that fills a line of the header section\r\n".repeat(octets / 48))
    };
    let body = "From: joe@g.test\r\n".repeat(20_000);
    let mut client = greeted(server.address());
    let mut wanted = Vec::new();
    for (header, body) in
        [(0, body.as_str()), (65_300, "short\r\n"), (65_500, &body), (200_000, "short\r\n"), (200_000, &body)]
    {
        let content = |from: &str| format!("{}From: <{from}>\r\nTo: x@far.test\r\n\r\n{body}", fill(header));
        send_over(&mut client, "x@far.test", &["to@d.test"], content("joe@g.test").as_bytes());
        wanted.push(content("Joe.Doe@corp.test"));
        client.expect("MAIL FROM:<x@far.test>", "250");
        client.expect("RCPT TO:<to@d.test>", "250");
        let content = content("joe@g.test");
        for (number, chunk) in content.as_bytes().chunks(70_001).enumerate() {
            let last = if (number + 1) * 70_001 >= content.len() { " LAST" } else { "" };
            client.send(format!("BDAT {}{last}\r\n", chunk.len()).as_bytes());
            client.send(chunk);
            assert!(client.reply().starts_with("250"));
        }
        wanted.push(wanted[wanted.len() - 1].clone());
    }
    client.quit();
    let mails = hop.wait(wanted.len());
    let mut came: Vec<Vec<u8>> = mails.iter().map(|mail| mail.own_content().to_vec()).collect();
    let mut wanted: Vec<Vec<u8>> = wanted.into_iter().map(String::into_bytes).collect();
    came.sort();
    wanted.sort();
    assert!(came == wanted, "{:?} and {:?}", lengths(&came), lengths(&wanted));
    ends_empty(server);
}

fn lengths(contents: &[Vec<u8>]) -> Vec<usize> {
    contents.iter().map(Vec::len).collect()
}

/// A client that a proxy says to be at another address.
fn from(server: &Server, ip: &str) -> Plain {
    let mut client = connect(server.address());
    client.send(format!("PROXY TCP4 {ip} 127.0.0.1 40000 25\r\n").as_bytes());
    client.hello();
    client
}

#[test]
fn mail_of_strangers_goes_on_as_it_came() {
    let hop = Hop::good();
    let server = named(relay(&[&hop]))
        .listen("proxy_protocol = [\"127.0.0.0/8\"]")
        .set("relay.from", "[\"192.0.2.0/28\"]")
        .set("relay.to", "[\"d.test\"]")
        .start();
    for (ip, wanted) in [("192.0.2.99", CONTENT), ("192.0.2.3", OUTSIDE)] {
        let mut client = from(&server, ip);
        send_over(&mut client, "x@far.test", &["to@d.test"], CONTENT.as_bytes());
        client.quit();
        let mails = hop.wait(if ip.ends_with("99") { 1 } else { 2 });
        let mail = mails.last().expect("one");
        assert_eq!(String::from_utf8_lossy(mail.own_content()), wanted, "{ip}");
    }
    ends_empty(server);
}

#[test]
fn a_directory_that_does_not_answer_lets_mail_wait_with_its_sender() {
    let hop = Hop::neighbours(vec![Manners::default()]);
    let setup = by_literal(&hop)
        .set("local.mailbox", "\"none\"")
        .set("ldap", "[{name = \"people\", servers = [\"ldap://127.0.0.1:1\"], base = \"dc=test\"}]")
        .set("maps.genericstable", "[\"ldap:people\"]")
        .set("generics.envelope", "false")
        .set("generics.domains", "[\"g.test\"]");
    let mut server = setup.start();
    let to = hop[0].mailbox("to");
    let mut client = greeted(server.address());
    for (content, reply) in [
        ("From: x@far.test\r\n\r\ntext\r\n".to_owned(), "250 2.0.0"),
        ("From: joe@g.test\r\n\r\ntext\r\n".to_owned(), "451 4.3.0"),
        (format!("From: joe@g.test\r\n\r\n{}", "text\r\n".repeat(50_000)), "451 4.3.0"),
        ("From: x@far.test\r\n\r\ntext\r\n".to_owned(), "250 2.0.0"),
    ] {
        client.expect("MAIL FROM:<joe@g.test>", "250");
        client.expect(&format!("RCPT TO:<{to}>"), "250");
        client.expect("DATA", "354");
        client.send(content.as_bytes());
        let said = client.command(".");
        assert!(said.starts_with(reply), "{said}");
    }
    client.quit();
    any_line(&mut server, &["a map cannot be asked"]);
    hop[0].wait(2);
    ends_empty(server);
    assert_eq!(hop[0].count(), 2);
}
