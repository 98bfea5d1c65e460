//! Entries of the access map about connections: rates, counts, pauses, offers, TLS and certificates of clients.

use crate::tls::with_certificate;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::sync::Arc;
use testkit::client::{Encrypted, Plain, connect, greeted};
use testkit::harness::{Server, Setup, poll, text};

/// A setup whose access map has these lines.
fn with_access(setup: Setup, lines: &str) -> Setup {
    let path = setup.path("access");
    std::fs::write(&path, lines).expect("written");
    setup.set("maps.access", format!("[{path:?}]")).set("maps.interval", "0")
}

/// A connection from another address of this machine, whose client has not heard anything.
fn from(address: &str, server: &Server) -> Plain {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let own: SocketAddr = format!("{address}:0").parse().expect("an address");
    socket.bind(&own.into()).expect("bound");
    socket.connect(&server.address().into()).expect("connected");
    socket.set_tcp_nodelay(true).expect("set");
    Plain::of(socket.into())
}

/// The same, after EHLO.
#[track_caller]
fn greeted_from(address: &str, server: &Server) -> Plain {
    let mut client = from(address, server);
    client.hello();
    client
}

/// Returns the first reply to each of so many connections, one after the other.
fn first_words(address: &str, server: &Server, count: usize) -> Vec<String> {
    (0..count).map(|_| from(address, server).reply()).collect()
}

fn reload(server: &Server) {
    let output = server.control(&["reload"], b"");
    assert!(output.status.success(), "{}", text(&output));
}

const RATE: &str = "421 4.3.2 Connection rate limit exceeded.";
const CONNECTIONS: &str = "421 4.3.2 Too many open connections.";

#[test]
fn a_client_has_a_rate_of_its_own() {
    let lines = "ClientRate:127.0.0.2\t3\nClientRate:127.0.0.4\t0\nClientRate:\t1\nClientRate:127.0.1.0/25 2\n";
    let setup = with_access(Setup::new().set("accept.rate_per_client", "1"), lines);
    let mut server = setup.start();
    let said = first_words("127.0.0.2", &server, 5);
    assert!(said[..3].iter().all(|reply| reply.starts_with("220 ")), "{said:?}");
    assert_eq!(said[3..], [RATE, RATE]);
    let line = server.wait_log("ruleset=check_relay");
    assert!(line.contains("arg2=127.0.0.2, relay=[127.0.0.2], reject=421 4.3.2 Connection rate"), "{line}");
    let mut refused = from("127.0.0.2", &server);
    assert_eq!((refused.reply().as_str(), refused.reply().as_str()), (RATE, "closed"));
    assert_eq!(first_words("127.0.1.7", &server, 3)[2], RATE);
    // Loopback is exempt from limits for all, that of the map included, and none is none.
    for address in ["127.0.0.3", "127.0.0.4"] {
        assert!(first_words(address, &server, 20).iter().all(|reply| reply.starts_with("220 ")), "{address}");
    }
    // Two, one more, and one of the network; a refusal is counted behind its reply.
    poll("not all are counted", || (server.status("/connections/refused") >= 4).then_some(()));
    assert_eq!(server.status("/connections/refused"), 4);

    // Without an entry nothing is counted, and without exemption the tag alone is for all clients.
    let server = with_access(Setup::new(), "Connect:127.0.0.2\tOK\n").start();
    assert!(first_words("127.0.0.2", &server, 20).iter().all(|reply| reply.starts_with("220 ")));
    let server = with_access(Setup::new().set("accept.exempt", "[]"), lines).start();
    let said = first_words("127.0.0.3", &server, 2);
    assert!(said[0].starts_with("220 ") && said[1] == RATE, "{said:?}");
}

#[test]
fn a_client_has_a_number_of_connections_of_its_own() {
    let lines = "ClientConn:127.0.0.2\t2\nClientConn:127.0.0.3\t0\n";
    let setup = Setup::new().set("accept.exempt", "[]").set("accept.connections_per_client", "1");
    let mut server = with_access(setup, lines).start();
    let first = greeted_from("127.0.0.2", &server);
    let mut second = greeted_from("127.0.0.2", &server);
    assert_eq!(from("127.0.0.2", &server).reply(), CONNECTIONS);
    server.wait_log("reject=421 4.3.2 Too many open connections.");
    second.message(b"hi\r\n");
    second.quit();
    // The place of a client that has gone is free as soon as the server has seen it.
    let third = poll("no place becomes free", || {
        let mut client = from("127.0.0.2", &server);
        client.reply().starts_with("220 ").then_some(client)
    });
    let many: Vec<Plain> = (0..20).map(|_| greeted_from("127.0.0.3", &server)).collect();
    // A client without an entry has the limit of all.
    let _one = greeted_from("127.0.0.4", &server);
    assert!(from("127.0.0.4", &server).reply().starts_with("421 4.7.0 "));
    drop((first, third, many));
}

#[test]
fn a_changed_map_changes_the_limit() {
    let server = with_access(Setup::new(), "ClientRate:127.0.0.2\t2\n").start();
    assert_eq!(first_words("127.0.0.2", &server, 3)[2], RATE);
    std::fs::write(server.setup.path("access"), "ClientRate:127.0.0.2\t4\n").expect("written");
    reload(&server);
    // The counts before the reload still count.
    let said = first_words("127.0.0.2", &server, 3);
    assert!(said[1].starts_with("220 ") && said[2] == RATE, "{said:?}");
    std::fs::write(server.setup.path("access"), "Connect:127.0.0.2\tOK\n").expect("written");
    reload(&server);
    assert!(first_words("127.0.0.2", &server, 20).iter().all(|reply| reply.starts_with("220 ")));
    std::fs::write(server.setup.path("access"), "ClientRate:127.0.0.2\t4\n").expect("written");
    reload(&server);
    assert_eq!(from("127.0.0.2", &server).reply(), RATE);
}

#[test]
fn behind_a_proxy_the_client_that_it_names_counts() {
    let setup = Setup::new().listen("proxy_protocol = [\"127.0.0.1\"]");
    let server = with_access(setup, "ClientRate:203.0.113.7\t1\nClientRate:127.0.0.1\t0\n").start();
    let reply = |address: &str| {
        let mut client = connect(server.address());
        client.send(format!("PROXY TCP4 {address} 192.0.2.9 4660 25\r\n").as_bytes());
        client.reply()
    };
    assert!(reply("203.0.113.7").starts_with("220 "));
    assert_eq!(reply("203.0.113.7"), RATE);
    assert!(reply("203.0.113.8").starts_with("220 "));
}

#[test]
fn a_map_that_cannot_be_asked_lifts_no_limit() {
    let setup = Setup::new();
    let lines = setup.path("access");
    std::fs::write(&lines, "ClientRate:127.0.0.2\t0\n").expect("written");
    // A file that is no database.
    let database = setup.path("access.sqlite");
    std::fs::write(&database, "nothing of that kind, and long enough to be read as a header\n".repeat(20))
        .expect("written");
    let setup = setup
        .set("sqlite", format!("[{{name = \"access\", path = {database:?}}}]"))
        .set("maps.access", format!("[{lines:?}, \"sqlite:access\"]"));
    let mut server = setup.start();
    let mut client = from("127.0.0.3", &server);
    assert_eq!(client.reply(), "421 4.3.0 Temporary system failure, try again later");
    assert_eq!(client.reply(), "closed");
    server.wait_log("a map cannot be asked: sqlite:access");
    let line = server.wait_log("ruleset=check_relay");
    assert!(line.contains("arg2=127.0.0.3, relay=[127.0.0.3], reject=421 4.3.0 "), "{line}");
    // The same server without that map.
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    server.setup = setup.set("maps.access", format!("[{lines:?}]"));
    server.setup.write();
    reload(&server);
    greeted_from("127.0.0.3", &server).message(b"hi\r\n");
}

#[test]
fn a_pause_of_its_own() {
    let pause = "[{networks = [\"127.0.0.3\"], pause = \"4m\"}]";
    let setup = Setup::new().set("accept.greet_pause_for", pause);
    let lines = "GreetPause:127.0.0.2\t300\nGreetPause:127.0.0.3\t0\nGreetPause:127.0.0.4\t240000\n";
    let mut server = with_access(setup, lines).start();
    // However late he is, that is within his pause.
    let mut early = from("127.0.0.4", &server);
    early.send(b"EHLO early.test\r\n");
    assert!(early.reply().starts_with("554 5.5.0 "));
    assert_eq!(early.reply(), "closed");
    server.wait_log("pre-greeting traffic");
    greeted_from("127.0.0.2", &server).message(b"patient\r\n");
    // The general pause is far longer than any client of the test waits.
    greeted_from("127.0.0.3", &server).message(b"known\r\n");
}

#[test]
fn a_client_is_offered_what_its_letters_leave() {
    let lines = "Srv_Features:127.0.0.2\tS P D\nSrv_Features:127.0.0.3\tl\nSrv_Features:127.0.0.4\tU\n";
    let server = with_access(with_certificate(Setup::new()), lines).set("smtp.bare_newline", "\"reject\"").start();
    let mut less = from("127.0.0.2", &server);
    let offer = less.hello();
    for word in ["STARTTLS", "PIPELINING", "DSN"] {
        assert!(!offer.contains(word), "{offer}");
        assert!(greeted(server.address()).command("EHLO a.test").contains(word));
    }
    assert!(less.command("STARTTLS").starts_with("50"));
    less.expect("MAIL FROM:<a@b.test> RET=HDRS", "555 5.5.4 ");
    less.message(b"without\r\n");
    let mut user = greeted_from("127.0.0.3", &server);
    user.expect("MAIL FROM:<a@b.test>", "530 5.7.0 ");
    // Bare newlines are refused, unless the map lets this one client have them.
    for (address, begins) in [("127.0.0.5", "5"), ("127.0.0.4", "250 2.0.0 ")] {
        let mut client = greeted_from(address, &server);
        client.envelope();
        client.expect("DATA", "354");
        client.send(b"bare\nnewline\r\n.\r\n");
        let reply = client.reply();
        assert!(reply.starts_with(begins), "{address}: {reply}");
    }
}

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed"))
    }

    fn client(&self, name: &str) -> (Certificate, KeyPair) {
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &*self.0).expect("signed"), key)
    }
}

/// A server that asks clients for certificates of this authority.
fn asking(authority: &Authority, setup: Setup) -> Setup {
    let path = setup.path("ca.pem");
    std::fs::write(&path, authority.0.pem()).expect("written");
    with_certificate(setup).set("tls.client_ca", format!("[{path:?}]"))
}

/// STARTTLS with a certificate, and EHLO.
#[track_caller]
fn encrypted(mut client: Plain, server: &Server, own: Option<&(Certificate, KeyPair)>) -> Encrypted {
    assert_eq!(client.command("STARTTLS"), "220 2.0.0 Ready to start TLS");
    let mut roots = RootCertStore::empty();
    let known = CertificateDer::from_pem_file(server.setup.path("certificate.pem")).expect("a certificate");
    roots.add(known).expect("a good one");
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots);
    let config = match own {
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
            builder.with_client_auth_cert(vec![certificate.der().clone()], key).expect("it fits")
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from("mx.test").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("made");
    let mut client = Encrypted::over(StreamOwned::new(connection, client.stream));
    client.expect("EHLO client.test", "250");
    client
}

#[test]
fn what_is_demanded_of_a_connection_is_demanded_at_mail() {
    let authority = Authority::new("Mail CA");
    let lines = "TLS_Clt:127.0.0.2\tENCR:112\nTLS_Clt:127.0.0.3\tPERM+VERIFY:112+CN:client.test\n\
                 TLS_Clt:127.0.0.4\tVERIFY+CI:/O=Example/CN=Mail+20CA\n";
    let mut server = with_access(asking(&authority, Setup::new()), lines).start();
    let mut clear = greeted_from("127.0.0.2", &server);
    clear.expect("MAIL FROM:<a@b.test>", "454 4.7.0 encryption too weak 0 less than 112");
    server.wait_log("reject=454 4.7.0 encryption too weak 0 less than 112");
    let mut secret = encrypted(clear, &server, None);
    secret.message(b"encrypted\r\n");
    server.wait_log("verify=NO, ");

    let mut clear = greeted_from("127.0.0.3", &server);
    clear.expect("MAIL FROM:<a@b.test>", "503 5.7.0 other side does not support STARTTLS");
    let none = &mut encrypted(greeted_from("127.0.0.3", &server), &server, None);
    none.expect("MAIL FROM:<a@b.test>", "503 5.7.0 not authenticated");
    let forged = Authority::new("Mail CA").client("client.test");
    let forged = &mut encrypted(greeted_from("127.0.0.3", &server), &server, Some(&forged));
    forged.expect("MAIL FROM:<a@b.test>", "503 5.7.0 authentication failed");
    let line = server.wait_log("verify=FAIL, ");
    assert!(line.contains("cert-subject=/CN=client.test, cert-issuer=/O=Example/CN=Mail+20CA, verifymsg="), "{line}");
    let other = authority.client("other.test");
    let other = &mut encrypted(greeted_from("127.0.0.3", &server), &server, Some(&other));
    other.expect("MAIL FROM:<a@b.test>", "503 5.7.0 CN other.test does not match client.test");
    server.wait_log("verify=OK, ");
    let good = authority.client("client.test");
    for address in ["127.0.0.3", "127.0.0.4"] {
        let good = &mut encrypted(greeted_from(address, &server), &server, Some(&good));
        good.message(b"verified\r\n");
        let line = server.wait_log("verify=OK, ");
        assert!(line.ends_with("cert-subject=/CN=client.test, cert-issuer=/O=Example/CN=Mail+20CA"), "{line}");
    }
    // Clients without an entry need no certificate.
    greeted(server.address()).message(b"clear\r\n");
    assert_eq!(server.letters_after_kill().len(), 4);
}

#[test]
fn with_delayed_checks_it_is_demanded_at_rcpt() {
    let setup = with_certificate(Setup::new()).set("access.delay_checks", "\"yes\"");
    let server = with_access(setup, "TLS_Clt:127.0.0.2\tENCR:112\n").start();
    let mut clear = greeted_from("127.0.0.2", &server);
    clear.expect("MAIL FROM:<a@b.test>", "250");
    clear.expect("RCPT TO:<b@example.com>", "454 4.7.0 encryption too weak");
    let mut secret = greeted_from("127.0.0.2", &server).start_tls(&server.setup.path("certificate.pem"));
    secret.expect("EHLO a.test", "250");
    secret.message(b"encrypted\r\n");
}

#[test]
fn a_verified_certificate_may_relay() {
    let authority = Authority::new("Mail CA");
    let lines = "CertIssuer:/O=Example/CN=Mail+20CA\tSUBJECT\nCertSubject:/CN=friend.test\tRELAY\n\
                 Srv_Features:127.0.0.2\tV\n";
    let setup = asking(&authority, Setup::new()).set("relay.from", "[]").set("accept.xclient", "[\"127.0.0.3\"]");
    let mut server = with_access(setup, lines).start();
    let mut relays = |own: Option<&(Certificate, KeyPair)>, from: &str| {
        let mut client = encrypted(greeted_from(from, &server), &server, own);
        client.expect("MAIL FROM:<a@b.test>", "250");
        let reply = client.command("RCPT TO:<b@example.com>");
        server.wait_log("STARTTLS=server, ");
        reply
    };
    let friend = authority.client("friend.test");
    assert!(relays(Some(&friend), "127.0.0.4").starts_with("250 2.1.5 "));
    const DENIED: &str = "550 5.7.1 <b@example.com>... Relaying denied";
    let forged = Authority::new("Mail CA").client("friend.test");
    for (own, from) in [
        (None, "127.0.0.4"),
        (Some(&authority.client("stranger.test")), "127.0.0.4"),
        (Some(&forged), "127.0.0.4"),
        // It is not asked for its certificate.
        (Some(&friend), "127.0.0.2"),
    ] {
        let reply = relays(own, from);
        assert!(reply.starts_with(DENIED), "{reply}");
    }
    // A front end's certificate says nothing of the clients that it speaks for.
    let mut front = encrypted(greeted_from("127.0.0.3", &server), &server, Some(&friend));
    front.expect("XCLIENT ADDR=203.0.113.9 NAME=[UNAVAILABLE]", "220");
    front.expect("EHLO real.test", "250");
    front.expect("MAIL FROM:<a@b.test>", "250");
    let reply = front.command("RCPT TO:<b@example.com>");
    assert!(reply.starts_with(DENIED), "{reply}");
    let words: Vec<&str> = ["verify=OK", "verify=NO,", "verify=OK", "verify=FAIL", "verify=NOT"].to_vec();
    let lines: Vec<&String> = server.log.iter().filter(|line| line.contains("STARTTLS=server, ")).collect();
    assert_eq!(lines.iter().zip(&words).filter(|(line, word)| line.contains(**word)).count(), 5, "{lines:#?}");
}

#[test]
fn who_vouches_for_clients_is_read_or_said() {
    let setup = with_certificate(Setup::new());
    let path = setup.path("ca.pem");
    std::fs::write(&path, "no certificate\n").expect("written");
    let (status, said) = setup.set("tls.client_ca", format!("[{path:?}]")).fails();
    assert_eq!(status, Some(78), "{said}");
    assert!(said.contains("ca.pem") && said.contains("no certificate in it"), "{said}");
}
