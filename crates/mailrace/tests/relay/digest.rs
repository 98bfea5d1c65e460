//! The digest of the quarantine as its reader sees it: one mail with all that is held for him, links that change
//! nothing until the button is pressed, and links of others that open nothing.

use crate::hop::Hop;
use crate::world::{any_line, ends_empty, lines, relay, send};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use testkit::harness::{SOON, Server, Setup, poll, text};

const RULES: &str = "\
rule for_recipients {
  match any {
    subject ~ /recipients/
  }
  quarantine recipient
}
rule for_administrators {
  match any {
    subject ~ /administrators/
  }
  quarantine administrator
}
";

/// A server that keeps mail by its subject, and tells recipients so often.
fn setup(hop: &Hop, every: &str) -> Setup {
    let setup = relay(&[hop]).set("http.address", "\"127.0.0.1:0\"").set("http.public_url", "\"https://mail.test\"");
    std::fs::write(setup.path("a.rules"), RULES).expect("written");
    let rules = format!("[{:?}]", setup.path("a.rules"));
    setup.set("screen.rules", rules).set("quarantine.digest", format!("{every:?}"))
}

fn http_address(server: &Server) -> SocketAddr {
    let address = server.whole_status()["http"].as_str().map(str::to_owned);
    address.and_then(|text| text.parse().ok()).expect("an address of HTTP")
}

/// A request with these further fields: status, header section, body.
fn ask(address: SocketAddr, method: &str, path: &str, fields: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("set");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: mail.test\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a header section");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_owned(), body.to_owned())
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n";

/// The text of the digest that this recipient got, once it has so many links.
fn digest(hop: &Hop, to: &str, links: usize) -> String {
    poll("a digest", || {
        let mails = hop.mails();
        let mut texts = mails.iter().filter(|mail| mail.to_is(to)).map(|mail| mail.text());
        texts.find(|text| paths(text).len() == links)
    })
}

/// The paths of the links in a digest.
fn paths(digest: &str) -> Vec<String> {
    let links = digest.lines().filter_map(|line| line.trim().strip_prefix("https://mail.test"));
    links.map(str::to_owned).collect()
}

fn held(server: &Server) -> String {
    text(&server.control(&["quarantine", "list"], b""))
}

fn message(subject: &str) -> Vec<u8> {
    format!("From: \"Ann\" <ann@client.test>\r\nSubject: {subject}\r\n\r\nhello\r\n").into_bytes()
}

#[test]
fn each_recipient_gets_one_mail_and_releases_his_messages() {
    let hop = Hop::good();
    // All of it is there before the first digest.
    let mut server = setup(&hop, "10s").start();
    let id = send(&server, "ann@client.test", &["b@example.com", "c@example.com"], &message("for recipients <b>1</b>"));
    let other = send(&server, "ann@client.test", &["b@example.com"], &message("for recipients, too"));
    let secret = send(&server, "ann@client.test", &["b@example.com"], &message("for administrators"));
    let (of_b, of_c) = (digest(&hop, "b@example.com", 2), digest(&hop, "c@example.com", 1));
    assert!(of_b.contains("Auto-Submitted: auto-generated") && of_b.contains("holds 2 messages for <b@example.com>"));
    assert!(of_b.contains("From:    \"Ann\" <ann@client.test>\r\n"), "{of_b}");
    assert!(
        of_b.contains("Subject: for recipients <b>1</b>\r\n") && of_b.contains("Reason:  for_recipients\r\n"),
        "{of_b}"
    );
    assert!(!of_b.contains("administrators") && !of_b.contains(&secret), "{of_b}");
    any_line(&mut server, &["digest=stored, messages=2, to=<b@example.com>"]);
    let http = http_address(&server);
    let path = paths(&of_b).into_iter().find(|path| path.contains(&id)).expect("a link");
    // Programs that check links look, and change nothing.
    for method in ["GET", "HEAD", "GET"] {
        let (status, head, page) = ask(http, method, &path, "");
        assert_eq!(status, 200, "{head}");
        assert!(
            head.contains("content-security-policy: default-src 'none'; style-src 'self'; form-action 'self'"),
            "{head}"
        );
        assert!(head.contains("referrer-policy: no-referrer") && head.contains("cache-control: no-store"), "{head}");
        let shown = ["for recipients &lt;b&gt;1&lt;/b&gt;", "&lt;ann@client.test&gt;", "<form method=\"post\">"];
        assert_eq!(shown.iter().all(|part| page.contains(part)), method == "GET", "{page}");
    }
    assert_eq!(ask(http, "DELETE", &path, "").0, 405);
    assert_eq!(ask(http, "GET", "/page/held.css", "").0, 200);
    // By the public name nothing else is answered.
    assert_eq!([ask(http, "GET", "/", "").0, ask(http, "GET", "/api/v1/status", "").0], [421, 421]);
    assert_eq!(ask(http, "POST", &path, &format!("{FORM}Sec-Fetch-Site: cross-site\r\n")).0, 403);
    assert!(held(&server).contains(&id));
    let (status, _, page) = ask(http, "POST", &path, FORM);
    assert!(status == 200 && page.contains("Released"), "{page}");
    let released =
        poll("the message", || hop.mails().into_iter().find(|mail| mail.text().contains("X-Quarantine-Release")));
    assert!(released.to_is("b@example.com") && released.text().contains(&format!("X-Quarantine-Release: {id} ")));
    for method in ["POST", "GET"] {
        let (status, _, page) = ask(http, method, &path, FORM);
        assert!(status == 410 && page.contains("not in quarantine any more") && !page.contains("<form"), "{page}");
    }
    // The message of the other recipient is where it was.
    let (status, _, page) = ask(http, "GET", &paths(&of_c)[0], "");
    assert!(status == 200 && page.contains("c@example.com"), "{page}");
    server.control(&["quarantine", "delete", "--all"], b"");
    assert_eq!(ask(http, "POST", &paths(&of_c)[0], FORM).0, 410);
    let log = ends_empty(server).log;
    let said = lines(&log, &[&id, "queue=release, messages=1, recipients=1, http=digest, copy=", "to=<b@example.com>"]);
    assert_eq!(said.len(), 1, "{log:#?}");
    assert!(lines(&log, &[&other, "queue=release"]).is_empty(), "{log:#?}");
    let copies = hop.mails().iter().filter(|mail| mail.text().contains("X-Quarantine-Release")).count();
    assert_eq!(copies, 1, "released once");
}

#[test]
fn links_that_were_not_made_here_open_nothing() {
    let hop = Hop::good();
    let server = setup(&hop, "2s").start();
    let to = ["b@example.com", "c@example.com"];
    let id = send(&server, "ann@client.test", &to, &message("for recipients"));
    let (of_b, of_c) = (paths(&digest(&hop, to[0], 1)).remove(0), paths(&digest(&hop, to[1], 1)).remove(0));
    assert_ne!(of_b, of_c);
    let http = http_address(&server);
    let other = |path: &str, at: usize, with: &str| {
        let mut parts: Vec<&str> = path.split('.').collect();
        parts[at] = with;
        parts.join(".")
    };
    let tag = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let forged = [
        // The tag of one recipient does not open the message of the other.
        other(&of_b, 3, &tag(&of_c)),
        other(&of_b, 2, "4000000000"),
        other(&of_b, 2, "0"),
        other(&of_b, 1, "7"),
        other(&of_b, 3, &"0".repeat(64)),
        other(&of_b, 3, ""),
        of_b[..of_b.len() - 1].to_owned(),
        "/quarantine/".to_owned(),
        format!("/quarantine/{}", "x".repeat(4_000)),
    ];
    for path in forged {
        for method in ["GET", "POST"] {
            let (status, _, page) = ask(http, method, &path, FORM);
            assert!(status == 403 && page.contains("not valid") && !page.contains("Ann"), "{path}: {page}");
        }
    }
    assert!(held(&server).contains(&id));
    // Links hold over a restart, since the key is beside the mail.
    let setup = server.stop_for_setup();
    let server = setup.start();
    let http = http_address(&server);
    assert_eq!(ask(http, "GET", &of_b, "").0, 200);
    assert_eq!(ask(http, "POST", &of_b, FORM).0, 200);
    server.control(&["quarantine", "delete", "--all"], b"");
    // Another key knows none of them.
    let setup = server.stop_for_setup();
    std::fs::remove_file(setup.path("spool").join("secret")).expect("it is there");
    let server = setup.start();
    assert_eq!(ask(http_address(&server), "GET", &of_c, "").0, 403);
    ends_empty(server);
}

#[test]
fn domains_without_a_digest_get_none() {
    let hop = Hop::good();
    let server = setup(&hop, "2s").set("quarantine.digest_domains", "[\"example.com\"]").start();
    send(&server, "ann@client.test", &["b@else.test", "c@example.com"], &message("for recipients"));
    digest(&hop, "c@example.com", 1);
    digest(&hop, "c@example.com", 1);
    assert!(!hop.mails().iter().any(|mail| mail.to_is("b@else.test")));
    server.control(&["quarantine", "delete", "--all"], b"");
    ends_empty(server);
}
