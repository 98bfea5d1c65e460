//! Answers of directories: limits, references, several values, keys that look like filters, and servers that talk
//! nonsense.

use super::slapd::{Extra, Slapd};
use super::{deliveries, patience, people, person, route, setup};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Tables without a bind: limits do not hold for the root of a directory.
fn anonymous(url: &str, more: &str) -> testkit::harness::Setup {
    let patience = patience(more);
    setup(url, "").set(
        "ldap",
        format!(
            "[{{name = \"people\", servers = [\"{url}\"], base = \"dc=test\", routing_domains = [\"ldap.test\"], bounce = true, {patience}{more}}}, \
             {{name = \"crew\", servers = [\"{url}\"], base = \"dc=test\", attribute = \"mail\", separator = \", \"}}]"
        ),
    )
}

#[track_caller]
fn waits(setup: &testkit::harness::Setup, recipient: &str, words: &[&str]) {
    let (said, exit) = route(setup, recipient);
    let why = said["reason"].as_str().unwrap_or_else(|| panic!("{said}"));
    assert_eq!(exit, Some(75), "{said}");
    for word in words {
        assert!(why.contains(word), "{word}: {why}");
    }
}

#[test]
fn a_limit_of_the_directory_is_trouble_and_no_absence() {
    let extra = Extra { server: "sizelimit 1\n".to_owned(), ..Extra::default() };
    let Some(slapd) = Slapd::with(&people(), &extra) else { return };
    let setup = anonymous(&slapd.url(), "");
    waits(&setup, "two@ldap.test", &["sizeLimitExceeded (4) after 1 entries", "raise the directory's limit"]);
    let (said, _) = route(&setup, "five@ldap.test");
    assert_eq!(deliveries(&said), ["joe@elsewhere.example elsewhere.example"], "{said}");
}

#[test]
fn what_may_not_be_read_is_trouble() {
    let hidden = Extra { database: "access to * by users read by anonymous auth\n".to_owned(), ..Extra::default() };
    let Some(slapd) = Slapd::with(&people(), &hidden) else { return };
    waits(
        &anonymous(&slapd.url(), ""),
        "nobody@ldap.test",
        &["\"dc=test\" may not be searched without ldap.bind: insufficientAccessRights (50)"],
    );
    let strict = Extra { server: "require bind\n".to_owned(), ..Extra::default() };
    let Some(slapd) = Slapd::with(&people(), &strict) else { return };
    waits(&anonymous(&slapd.url(), ""), "nobody@ldap.test", &["ldap://127.0.0.1:"]);
}

#[test]
fn references_are_no_answer() {
    let far = "\ndn: ou=far,dc=test\nobjectClass: referral\nobjectClass: extensibleObject\nou: far\n\
               ref: ldap://far.example/ou=far,dc=test\n";
    let Some(slapd) = Slapd::start(&(people() + far)) else { return };
    let setup = anonymous(&slapd.url(), "");
    let (said, _) = route(&setup, "five@ldap.test");
    assert_eq!(deliveries(&said), ["joe@elsewhere.example elsewhere.example"], "what is found counts: {said}");
    waits(&setup, "nobody@ldap.test", &["ldap://far.example/", "may know more", "ldap.referrals = \"ignore\""]);
    let ignoring = anonymous(&slapd.url(), "referrals = \"ignore\"");
    assert_eq!(route(&ignoring, "nobody@ldap.test").1, Some(67));
    // The base itself is elsewhere.
    let elsewhere = Extra { server: "referral ldap://root.example\n".to_owned(), ..Extra::default() };
    let Some(slapd) = Slapd::with(&people(), &elsewhere) else { return };
    let mut setup = anonymous(&slapd.url(), "");
    let table = format!(
        "[{{name = \"people\", servers = [\"{}\"], base = \"dc=other\", routing_domains = [\"ldap.test\"]}}]",
        slapd.url()
    );
    setup = setup.set("ldap", table).set("maps.aliases", "[]");
    waits(&setup, "five@ldap.test", &["ldap.base \"dc=other\" is not here but at ldap://root.example"]);
}

#[test]
fn keys_are_values_whatever_is_in_them() {
    let mut all = people();
    all += &person("star", "a*b@ldap.test", "mailRoutingAddress: star@elsewhere.example\n");
    all += &person("middle", "axxb@ldap.test", "mailRoutingAddress: middle@elsewhere.example\n");
    all += &person("and", "r&d=x|y!z@ldap.test", "mailRoutingAddress: and@elsewhere.example\n");
    let Some(slapd) = Slapd::start(&all) else { return };
    let setup = setup(&slapd.url(), "bounce = true");
    for (recipient, user) in [("a*b", "star"), ("axxb", "middle"), ("r&d=x|y!z", "and")] {
        let (said, _) = route(&setup, &format!("{recipient}@ldap.test"));
        assert_eq!(deliveries(&said), [format!("{user}@elsewhere.example elsewhere.example")], "{said}");
    }
    for nobody in [
        "a**b",
        "*",
        "a*",
        "five*",
        "\"*)(mailRoutingAddress=*\"",
        "\"five)(uid=5\"",
        "\"\\\\2a\"",
        "\"(|(uid=*))\"",
        "%k",
    ] {
        let (said, exit) = route(&setup, &format!("{nobody}@ldap.test"));
        assert_eq!((said["outcome"].as_str(), exit), (Some("refuse"), Some(67)), "{nobody}: {said}");
    }
}

#[test]
fn several_values_are_none_or_a_list() {
    let mut all = people();
    all += &person("crowd", "crowd", "mail: a@elsewhere.example\nmail: b@elsewhere.example\n");
    let Some(slapd) = Slapd::start(&all) else { return };
    let one = setup(&slapd.url(), "bounce = true");
    let (said, _) = route(&one, "crowd@here.test");
    assert_eq!(deliveries(&said).len(), 2, "{said}");
    let table =
        format!("[{{name = \"crew\", servers = [\"{}\"], base = \"dc=test\", attribute = \"mail\"}}]", slapd.url());
    let single = setup(&slapd.url(), "").set("ldap", table);
    assert_eq!(route(&single, "crowd@here.test").1, Some(67));
}

/// A directory that answers every search with these bytes; `{id}` is the number of the question.
fn answering(result: &'static [&'static [u8]]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("ldap://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || talk(stream, result));
        }
    });
    url
}

/// Questions here are shorter than 128 octets or have a length of two, and numbers below 128.
fn talk(mut stream: TcpStream, result: &[&[u8]]) -> Option<()> {
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head).ok()?;
        let octets = match head[1] {
            0x81 => {
                let mut length = [0; 1];
                stream.read_exact(&mut length).ok()?;
                usize::from(length[0])
            }
            length => usize::from(length),
        };
        let mut question = vec![0; octets];
        stream.read_exact(&mut question).ok()?;
        for protocol in result {
            let mut message = vec![0x30, u8::try_from(protocol.len() + 3).ok()?, 0x02, 0x01, question[2]];
            message.extend_from_slice(protocol);
            stream.write_all(&message).ok()?;
        }
        if result.is_empty() {
            return None;
        }
    }
}

#[test]
fn whatever_a_directory_says_nobody_is_refused_for_it() {
    // SearchResultDone with each result code: no matched DN, no text (RFC 4511 §4.5.2).
    let done: [(&'static [&'static [u8]], &str); 13] = [
        (&[&[0x65, 7, 0x0a, 1, 1, 4, 0, 4, 0]], "operationsError (1); it may want ldap.bind"),
        (&[&[0x65, 7, 0x0a, 1, 3, 4, 0, 4, 0]], "timeLimitExceeded (3); the directory needs an index"),
        (&[&[0x65, 7, 0x0a, 1, 11, 4, 0, 4, 0]], "adminLimitExceeded (11)"),
        (&[&[0x65, 7, 0x0a, 1, 13, 4, 0, 4, 0]], "confidentialityRequired (13); set ldap.starttls"),
        (&[&[0x65, 7, 0x0a, 1, 50, 4, 0, 4, 0]], "may not be searched without ldap.bind"),
        (&[&[0x65, 7, 0x0a, 1, 51, 4, 0, 4, 0]], "busy (51)"),
        (&[&[0x65, 7, 0x0a, 1, 52, 4, 0, 4, 0]], "unavailable (52)"),
        (&[&[0x65, 7, 0x0a, 1, 80, 4, 0, 4, 0]], "other (80)"),
        // An entry without attributes, one whose name is no text, and a result without its parts.
        (&[&[0x64, 2, 4, 0], &[0x65, 7, 0x0a, 1, 0, 4, 0, 4, 0]], "it sends an entry that breaks the protocol"),
        (&[&[0x64, 5, 4, 1, 0xff, 0x30, 0], &[0x65, 7, 0x0a, 1, 0, 4, 0, 4, 0]], "it sends an entry that breaks"),
        (&[&[0x65, 3, 0x0a, 1, 0]], "ldap://127.0.0.1:"),
        // It hangs up, and it talks nonsense.
        (&[], "it closed the connection"),
        (&[b"HTTP/1.1 400 Bad Request\r\n\r\n"], "ldap://127.0.0.1:"),
    ];
    for (result, word) in done {
        // Of nonsense the rest is waited for.
        let is_nonsense = result.iter().any(|part| part.starts_with(b"HTTP"));
        let timeout = if is_nonsense { "timeout = \"2s\"" } else { "timeout = \"20s\"" };
        let setup = anonymous(&answering(result), timeout).set("maps.aliases", "[]");
        waits(&setup, "nobody@ldap.test", &["ldap:people: ", word]);
    }
    // The same server, when it says that there is nothing.
    let setup = anonymous(&answering(&[&[0x65, 7, 0x0a, 1, 0, 4, 0, 4, 0]]), "").set("maps.aliases", "[]");
    assert_eq!(route(&setup, "nobody@ldap.test").1, Some(67));
}
