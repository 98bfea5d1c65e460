//! Logins at next hops whose mechanisms of AUTH do not all work, and the connections over which a password may go.

use crate::hop::{Act, At, Hop, Manners, Moment, own_ip};
use crate::wire::{signed, tls_config};
use crate::world::{any_line, ends_empty, relay, send};
use std::net::SocketAddr;
use testkit::harness::{Server, Setup};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";
const AUTH: [&str; 2] = ["PIPELINING", "AUTH CRAM-MD5 PLAIN LOGIN"];

/// A server that logs in at this hop.
fn with_login(hop: &Hop) -> Setup {
    let setup = relay(&[hop]).set("local.mailbox", "\"none\"");
    let path = setup.path("access");
    std::fs::write(&path, format!("AuthInfo:{} \"U:tim\" \"P:secret\"\n", hop.address.ip())).expect("written");
    setup.set("maps.access", format!("{:?}", path.display().to_string()))
}

/// The mechanisms that were tried, by connection.
fn tried(hop: &Hop) -> Vec<Vec<String>> {
    let mechanism =
        |line: &String| line.strip_prefix("AUTH ").map(|rest| rest.split(' ').next().unwrap_or_default().to_owned());
    hop.talks().iter().map(|talk| talk.iter().filter_map(mechanism).collect()).collect()
}

/// Sends one message, and another when the first is there; ends the server. Returns its log.
fn send_two(mut server: Server, hop: &Hop) -> Vec<String> {
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    any_line(&mut server, &["to=<b@d.test>", "stat=Sent"]);
    send(&server, "a@client.test", &["c@d.test"], CONTENT);
    hop.wait(2);
    ends_empty(server).log
}

/// A host whose mechanism does not work gets its mail by another one, and is asked for that first from then on.
#[test]
fn a_mechanism_that_does_not_work_is_tried_last() {
    for reply in ["504 5.5.4 not available", "534 5.7.9 weak", "535 5.7.8 wrong", "500 what?", "454 4.7.0 later"] {
        let script = move |moment: &Moment<'_>| match moment.at {
            At::Auth if moment.line.starts_with("AUTH PLAIN") => Act::Say(reply),
            _ => Act::Well,
        };
        let hop = Hop::new(Manners::offering(&AUTH).script(script));
        // One message for each connection.
        let setup = with_login(&hop).set("route.login_in_clear", "true").set("delivery.idle_time", "\"0s\"");
        let log = send_two(setup.start(), &hop);
        let all = tried(&hop);
        assert_eq!(all[0], ["PLAIN", "LOGIN"], "{reply}");
        assert!(all[1..].iter().all(|one| one == &["LOGIN"]), "{reply}: {all:?}");
        let words = "AUTH PLAIN is offered and does not work";
        assert!(log.iter().any(|line| line.contains(words) && line.contains(reply)), "{reply}: {log:#?}");
    }
}

/// A host that closes over a mechanism, with a reply or without, is connected to again for the others.
#[test]
fn a_host_that_closes_is_asked_for_the_others() {
    for act in [Act::SayAndClose("535 5.7.8 wrong"), Act::Close, Act::SayAndClose("504 5.5.4 no")] {
        let closes = act.clone();
        let script = move |moment: &Moment<'_>| match moment.at {
            At::Auth if !moment.line.starts_with("AUTH CRAM-MD5") => closes.clone(),
            _ => Act::Well,
        };
        let hop = Hop::new(Manners::offering(&AUTH).script(script));
        let mut server = with_login(&hop).set("route.login_in_clear", "true").start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        hop.wait(1);
        any_line(&mut server, &["AUTH PLAIN"]);
        ends_empty(server);
        let first: Vec<String> = tried(&hop).iter().filter_map(|one| one.first().cloned()).collect();
        assert_eq!(first, ["PLAIN", "LOGIN", "CRAM-MD5"], "{act:?}");
    }
}

/// Where nothing works, the mail waits and each mechanism is tried once in a connection.
#[test]
fn a_login_that_is_impossible_is_bounded() {
    for reply in ["504 5.5.4 no", "535 5.7.8 no"] {
        let script = move |moment: &Moment<'_>| if moment.at == At::Auth { Act::Say(reply) } else { Act::Well };
        let hop = Hop::new(Manners::offering(&AUTH).script(script));
        let mut server = with_login(&hop).set("route.login_in_clear", "true").start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        let line = any_line(&mut server, &["to=<b@d.test>", "stat=Deferred", "as tim failed"]);
        for mechanism in ["PLAIN: ", "LOGIN: ", "CRAM-MD5: "] {
            assert!(line.contains(&format!("{mechanism}{reply}")), "{line}");
        }
        server.stop();
        assert_eq!(tried(&hop)[0], ["PLAIN", "LOGIN", "CRAM-MD5"], "{reply}");
        assert!(tried(&hop).iter().all(|one| one.len() <= 3) && hop.count() == 0, "{reply}");
    }
}

/// A password goes under TLS where the certificate is good and for this host, or where that is allowed to be missing.
#[test]
fn a_password_needs_a_verified_certificate() {
    let ip = own_ip();
    let (for_ip, root) = signed(&ip.to_string());
    let (for_other, other_root) = signed("hop.test");
    for (config, root, unverified, works) in [
        (for_ip, root.as_str(), "false", true),
        (for_other, other_root.as_str(), "false", false),
        (tls_config(), root.as_str(), "false", false),
        (tls_config(), root.as_str(), "true", true),
    ] {
        let manners = Manners { tls: Some(config), ..Manners::offering(&["STARTTLS", "AUTH PLAIN LOGIN"]) };
        let hop = Hop::at(SocketAddr::new(ip.into(), 0), manners).expect("a free port");
        let setup = with_login(&hop).set("route.login_unverified", unverified);
        let authorities = setup.path("ca.pem");
        std::fs::write(&authorities, root).expect("written");
        let mut server = setup.set("tls.ca_files", format!("{:?}", authorities.display().to_string())).start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        if works {
            assert!(hop.wait(1)[0].is_encrypted);
            ends_empty(server);
        } else {
            let words =
                ["stat=Deferred", "the certificate is not verified, so no password is sent", "route.login_unverified"];
            any_line(&mut server, &words);
            server.stop();
        }
        assert_eq!(!tried(&hop).concat().is_empty(), works);
    }
}
