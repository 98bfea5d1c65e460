//! The server and `mailrace route` give one answer on who may relay.

use crate::trust::closed;
use std::fs;
use std::path::Path;
use testkit::client::{Plain, connect};
use testkit::harness::{Server, Setup, program};

const CLIENTS: [&str; 7] = ["127.0.0.1", "127.0.0.2", "::1", "10.1.2.3", "192.0.2.7", "203.0.113.9", "2001:db8::7"];
const SENDERS: [&str; 4] = ["", "root@mx.test", "friend@out.test", "a@b.test"];
const RECIPIENTS: [&str; 8] = [
    "postmaster@mx.test",
    "nobody@ours.test",
    "victim@elsewhere.test",
    "victim%elsewhere.test@ours.test",
    "\"victim@elsewhere.test\"@ours.test",
    "elsewhere.test!victim@ours.test",
    "x@partner.test",
    "x@sub.partner.test",
];
const ACCESS: &str = "Connect:192.0.2 RELAY\nConnect:203.0.113.9 REJECT\nConnect:localhost RELAY\n\
    To:partner.test RELAY\nFrom:friend@out.test RELAY\nTo:nobody@ours.test ERROR:5.2.1:550 closed\n";

/// The configurations: each with what it adds to one in which nobody may relay.
fn configurations() -> Vec<(&'static str, Setup)> {
    let with_access = |setup: Setup| {
        let path = setup.path("access");
        fs::write(&path, ACCESS).expect("written");
        setup.set("maps.access", format!("[{path:?}]"))
    };
    vec![
        ("nothing", closed()),
        ("relay.from", closed().set("relay.from", "[\"10.1.0.0/16\", \"::1/128\"]")),
        ("relay.to", closed().set("relay.to", "[\"partner.test\", \".partner.test\"]")),
        ("access", with_access(closed())),
        ("access and relay.from", with_access(closed().set("relay.from", "[\"127.0.0.0/8\"]"))),
        ("sender", with_access(closed().set("access.relay_mail_from", "true"))),
    ]
}

/// Connects as a proxy for this client.
fn client(server: &Server, ip: &str) -> Plain {
    let mut client = connect(server.address());
    let (family, own) = if ip.contains(':') { ("TCP6", "2001:db8::25") } else { ("TCP4", "192.0.2.25") };
    client.send(format!("PROXY {family} {ip} {own} 4660 25\r\n").as_bytes());
    client.hello();
    client
}

/// The first two words of a reply, or `250` for one that takes the recipient.
fn code(reply: &str) -> String {
    if reply.starts_with("250") { "250".to_owned() } else { reply.split(' ').take(2).collect::<Vec<_>>().join(" ") }
}

/// The server's answers for these recipients; where it refuses the sender, that answer for each.
fn said(client: &mut Plain, sender: &str) -> Vec<String> {
    let reply = client.command(&format!("MAIL FROM:<{sender}>"));
    if !reply.starts_with("250") {
        return vec![code(&reply); RECIPIENTS.len()];
    }
    let answers = RECIPIENTS.map(|recipient| code(&client.command(&format!("RCPT TO:<{recipient}>"))));
    client.expect("RSET", "250");
    answers.to_vec()
}

/// The answers of `mailrace route`.
fn routed(config: &Path, ip: &str, sender: &str) -> Vec<String> {
    let mut command = program();
    command.args(["route", "--json", "--client", ip, "--from", sender, "--config"]).arg(config).args(RECIPIENTS);
    let output = command.output().expect("it runs");
    let told: Vec<String> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter::<serde_json::Value>()
        .map(|way| {
            let way = way.expect("JSON");
            match way["outcome"].as_str() {
                Some("refuse") => {
                    let refusal = &way["refusal"];
                    format!("{} {}", refusal["code"], refusal["status"].as_str().expect("a status"))
                }
                Some("defer") => "451 4.3.0".to_owned(),
                _ => "250".to_owned(),
            }
        })
        .collect();
    assert_eq!(told.len(), RECIPIENTS.len(), "{output:?}");
    told
}

#[test]
fn server_and_route_answer_alike() {
    let mut differences = Vec::new();
    let mut taken = 0;
    let mut all = 0;
    for (name, setup) in configurations() {
        let setup = setup.listen("proxy_protocol = [\"127.0.0.1\"]").set("smtp.errors_max", "1000");
        let setup = setup.set("accept.reverse_dns", "false");
        let config = setup.write();
        let server = setup.start();
        for ip in CLIENTS {
            let mut client = client(&server, ip);
            for sender in SENDERS {
                let answers = said(&mut client, sender).into_iter().zip(routed(&config, ip, sender));
                for (recipient, (said, routed)) in RECIPIENTS.iter().zip(answers) {
                    all += 1;
                    taken += u32::from(said == "250");
                    if said != routed {
                        differences.push(format!("{name}: {ip} <{sender}> <{recipient}>: {said}, route: {routed}"));
                    }
                }
            }
        }
    }
    assert!(differences.is_empty(), "{} of {all}: {differences:#?}", differences.len());
    assert!(taken > all / 5 && taken < all * 4 / 5, "{taken} of {all} are taken: the table says little");
}
