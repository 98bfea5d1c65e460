//! Relaying: the clients that may relay, and that no form of an address makes the server relay.

use super::*;
use crate::question::Answer;
use mail::ForwardPath;

fn stranger(ip: &str) -> Client<'_> {
    Client::of(ip.parse().unwrap())
}

fn ours() -> Classes {
    let mut classes = classes(
        "ours.example\n[192.0.2.25]\n[IPv6:2001:db8::25]",
        "sub.example\nbücher.example\n10.30\nIPv6:2001:db8:30\n10.32.0.0/16",
        false,
    );
    classes.hostname = DomainName::new("mx.ours.example").ok();
    classes
}

fn map() -> Access {
    let entries = [
        ("To:part.example", "RELAY"),
        ("To:no.part.example", "REJECT"),
        ("Connect:10.5", "RELAY"),
        ("Connect:good.test", "RELAY"),
    ];
    Access::new(vec![table(&entries)], Options::default())
}

/// The ruling on the path of `RCPT`; `None` when it is not even an address.
fn ruled(access: &Access, client: &Client<'_>, recipient: &str) -> Option<String> {
    let classes = ours();
    let path = ForwardPath::parse(recipient.as_bytes()).ok()?;
    let recipient = path.into_address(classes.hostname.as_ref().unwrap()).unwrap();
    Some(told(&known(|ask| access.recipient(ask, client, &ReversePath::Null, &recipient, &classes))))
}

#[test]
fn an_open_relay_test_finds_nothing() {
    let client = stranger("198.51.100.7");
    for full in [false, true] {
        let options = Options { relay_to_full_address: full, blocklist_recipients: full, ..Options::default() };
        let access = Access::new(map().map().to_vec(), options);
        for path in [
            "<victim@other.example>",
            "<victim@ours.example.other.example>",
            "<victim@notours.example>",
            "<victim@[198.51.100.7]>",
            "<victim@[IPv6:2001:db8::7]>",
            "<victim%other.example@ours.example>",
            "<victim%other.example@mx.ours.example>",
            "<victim%other.example@[192.0.2.25]>",
            "<victim%other.example@part.example>",
            "<victim%other.example%ours.example@ours.example>",
            "<\"victim%[198.51.100.7]\"@ours.example>",
            "<other.example!victim@ours.example>",
            "<other.example!victim@[192.0.2.25]>",
            "<other.example!victim@part.example>",
            "<ours.example!other.example!victim@ours.example>",
            "<other.example!victim%ours.example@ours.example>",
            "<\"victim@other.example\"@ours.example>",
            "<\"victim@other.example\"@part.example>",
            "<\"victim%other.example\"@ours.example>",
            "<\"other.example!victim\"@ours.example>",
            "<\"@ours.example:victim@other.example\"@ours.example>",
            "<\"@other.example,@ours.example:x\"@ours.example>",
            "<@ours.example:victim@other.example>",
            "<@mx.ours.example,@other.example:victim@other.example>",
            "<@[192.0.2.25]:victim@other.example>",
            "<@ours.example:victim%other.example@ours.example>",
            "<victim%@ours.example>",
            "<!victim@ours.example>",
            "<\"victim@\"@ours.example>",
            "<%other.example@ours.example>",
            "<%ours.example@ours.example>",
            "<a%b%c%d%e%f%g%h%i%j%k%l%m%n%o%p%q%r@ours.example>",
        ] {
            let told = ruled(&access, &client, path).unwrap_or_else(|| panic!("{path}"));
            assert!(told.starts_with("550 5.7.1 <") && told.ends_with(">... Relaying denied"), "{path}: {told}");
        }
    }
    for path in ["<victim>", "<\"victim@other.example\">", "<victim@other.example@ours.example>", "<@ours.example>"] {
        assert_eq!(ruled(&map(), &client, path), None, "{path} is no address");
    }
}

#[test]
fn mail_for_us_comes_from_anyone() {
    for path in [
        "<Postmaster>",
        "<postmaster@mx.ours.example>",
        "<user@OURS.example>",
        "<user+list=other.example@ours.example>",
        "<SRS0=x=y=other.example=user@ours.example>",
        "<user@sub.example>",
        "<user@a.b.sub.example>",
        "<user@b\u{fc}cher.example>",
        "<user@xn--bcher-kva.example>",
        "<user@[192.0.2.25]>",
        "<user@[IPv6:2001:db8::25]>",
        "<user@[IPv6:::ffff:192.0.2.25]>",
        "<user@part.example>",
        "<user@a.part.example>",
        "<@other.example:user@ours.example>",
        "<user%ours.example@ours.example>",
        "<user%part.example@ours.example>",
        "<a.sub.example!user@ours.example>",
        "<\"us er\"@ours.example>",
    ] {
        assert_eq!(ruled(&map(), &stranger("198.51.100.7"), path).as_deref(), Some("+"), "{path}");
    }
    // REJECT ends the search without RELAY.
    assert_ne!(ruled(&map(), &stranger("198.51.100.7"), "<user@no.part.example>").as_deref(), Some("+"));
}

#[test]
fn who_may_send_anywhere() {
    let may = |client: &Client<'_>| ruled(&map(), client, "<user@other.example>").unwrap() == "+";
    for ip in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.5.1.1",
        "10.30.1.1",
        "10.32.255.1",
        "2001:db8:30::1",
        "192.0.2.25",
        "::ffff:10.5.1.1",
    ] {
        assert!(may(&stranger(ip)), "{ip}");
    }
    for ip in ["127.0.0.2", "::2", "10.50.1.1", "10.6.1.1", "10.3.0.1", "10.33.0.1", "2001:db8:31::1", "192.0.2.26"] {
        assert!(!may(&stranger(ip)), "{ip}");
        assert!(may(&Client { identity: Some("user"), ..stranger(ip) }), "{ip}");
        for name in ["mx.ours.example", "ours.example", "a.sub.example", "a.good.test.", "GOOD.test"] {
            assert!(may(&stranger(ip).named(ClientName::Verified(name))), "{ip} {name}");
        }
        for name in ["a.ours.example", "notgood.test", "part.example", ""] {
            assert!(!may(&stranger(ip).named(ClientName::Verified(name))), "{ip} {name}");
        }
    }
    assert!(may(&Client { ip: None, name: ClientName::NotAsked, identity: None, certificate: None }));
    let strict = Access::new(Vec::new(), Options { relay_loopback: false, ..Options::default() });
    assert_ne!(ruled(&strict, &stranger("127.0.0.1"), "<user@other.example>").as_deref(), Some("+"));
}

/// The server's options: the name and the addresses of this machine give no right that class R or the map does not.
#[test]
fn this_machine_has_no_right_of_its_own() {
    let mut classes = ours();
    // As the server has it where anything is local, and as an operator lists it.
    let listed = Class::read(Kind::Local, "w", "w", "localhost\nlocalhost.localdomain\nother.ours.example\n").0;
    classes.local.extend(&listed);
    classes.ours.add_name(&DomainName::new("mx.ours.example").unwrap());
    classes.ours.add_address("192.0.2.77".parse().unwrap());
    let right = |access: &Access, ip: &str, name: ClientName<'_>| {
        let client = stranger(ip).named(name);
        let step = known(|ask| access.client_right(ask, &client, &path("root@mx.ours.example"), &classes));
        let recipient = address("user@other.example");
        let ruled = known(|ask| access.recipient(ask, &client, &ReversePath::Null, &recipient, &classes));
        assert_eq!(step.is_some(), told(&ruled) == "+", "{ip} {name:?}: RCPT and the decision agree");
        step.map(|step| step.to_string())
    };
    let options = Options { relay_loopback: false, ..Options::default() };
    let access = Access::new(map().map().to_vec(), options);
    for ip in
        ["127.0.0.1", "127.0.0.2", "127.255.0.1", "::1", "::ffff:127.0.0.1", "192.0.2.77", "192.0.2.25", "2001:db8::25"]
    {
        let names =
            ["localhost", "localhost.", "LOCALHOST", "localhost.localdomain", "mx.ours.example", "ours.example"];
        for name in names.map(ClientName::Verified).into_iter().chain([ClientName::NotAsked, ClientName::NotFound]) {
            assert_eq!(right(&access, ip, name), None, "{ip} {name:?}");
        }
    }
    // A claim of such a name from elsewhere, as by XCLIENT.
    for name in ["localhost", "localhost.localdomain", "a.localhost", "mx.ours.example"] {
        assert_eq!(right(&access, "198.51.100.7", ClientName::Verified(name)), None, "{name}");
    }
    // Another machine that the operator lists in class w has the right that it has in sendmail.
    let step = right(&access, "198.51.100.7", ClientName::Verified("other.ours.example"));
    assert_eq!(step.as_deref(), Some("relay: other.ours.example is in class w"));
    // The operator's word counts: networks, names and keys.
    let said = [("Connect:localhost", "RELAY"), ("Connect:192.0.2.77", "RELAY"), ("Connect:mx.ours.example", "RELAY")];
    let access = Access::new(vec![table(&said)], options);
    for (ip, name) in
        [("127.0.0.1", "localhost"), ("::1", "localhost"), ("192.0.2.77", "x"), ("192.0.2.25", "mx.ours.example")]
    {
        assert!(
            right(&access, ip, ClientName::Verified(name)).is_some_and(|step| step.contains("Connect:")),
            "{ip} {name}"
        );
    }
    let mut listed = classes.clone();
    listed.relay.add_network("127.0.0.0/8".parse().unwrap());
    let client = stranger("127.0.0.9").named(ClientName::Verified("localhost"));
    let step = known(|ask| access.client_right(ask, &client, &ReversePath::Null, &listed)).unwrap();
    assert_eq!(step.to_string(), "relay: 127.0.0.9 is in class R");
}

#[test]
fn a_certificate_gives_rights_by_its_names() {
    let entries = [
        ("CertIssuer:/CN=Ours", "RELAY"),
        ("CertIssuer:/CN=Big", "SUBJECT"),
        ("CertSubject:/CN=Friend", "RELAY"),
        ("CertIssuer:/CN=Ok", "OK"),
    ];
    let access = Access::new(vec![table(&entries)], Options::default());
    for (issuer, subject, may) in [
        ("/CN=Ours", "/CN=x", true),
        ("/CN=Big", "/CN=Friend", true),
        ("/CN=Big", "/CN=x", false),
        ("/CN=Ok", "/CN=Friend", false),
        ("/CN=Other", "/CN=Friend", false),
    ] {
        let client = Client { certificate: Some(Certificate { issuer, subject }), ..stranger("198.51.100.7") };
        assert_eq!(ruled(&access, &client, "<u@other.example>").unwrap() == "+", may, "{issuer} {subject}");
    }
}

/// Answers all questions: those about `key` with trouble, others with nothing.
fn with_trouble<T>(trouble: &str, mut decide: impl FnMut(&mut Ask<'_>) -> Result<T, Stop>) -> (Result<T, Stop>, usize) {
    let mut answers = Answers::new();
    for rounds in 1.. {
        let mut ask = Ask::new(&answers);
        match decide(&mut ask) {
            Err(Stop::Open) => {
                let open = ask.into_open();
                assert!(!open.is_empty() && rounds < 20, "a round asks for something");
                for question in open {
                    let crate::question::Question::Map { key, .. } = &question else { panic!("{question:?}") };
                    let answer = if key.contains(trouble) { Answer::Trouble("down".into()) } else { Answer::Nothing };
                    answers.insert(question, answer);
                }
            }
            done => return (done, rounds),
        }
    }
    unreachable!()
}

#[test]
fn trouble_is_no_refusal_and_no_permission() {
    let outside = vec![Source::Outside("ldap:access".into())];
    let access = Access::new(outside, Options { blocklist_recipients: false, ..Options::default() });
    let classes = ours();
    let rcpt = |client: &Client<'_>, trouble: &str, recipient: &str| {
        with_trouble(trouble, |ask| access.recipient(ask, client, &ReversePath::Null, &address(recipient), &classes))
            .0
            .map(|ruled| told(&ruled))
    };
    let down = Err(Stop::Trouble("down".into()));
    let client = stranger("198.51.100.7");
    assert_eq!(
        rcpt(&client, "nothing", "u@other.example"),
        Ok("550 5.7.1 <u@other.example>... Relaying denied".to_owned())
    );
    assert_eq!(rcpt(&client, "To:other.example", "u@other.example"), down);
    assert_eq!(rcpt(&client, "Connect:198.51", "u@other.example"), down);
    assert_eq!(rcpt(&client, "", "u@ours.example"), Ok("+".to_owned()), "class w needs no map");
    assert_eq!(
        rcpt(&stranger("10.30.0.1"), "To:", "u@other.example"),
        Ok("+".to_owned()),
        "the client may relay anywhere"
    );
    let (connect, rounds) = with_trouble("Connect:198", |ask| access.connect(ask, &client));
    assert_eq!(
        (connect.map(|ruled| told(&ruled)), rounds),
        (Err(Stop::Trouble("down".into())), 2),
        "all keys are asked for in one round"
    );
}

#[test]
fn what_decided_can_be_told() {
    let classes = ours();
    let recipient = address("user%part.example@ours.example");
    let ruled = known(|ask| map().recipient(ask, &stranger("198.51.100.7"), &ReversePath::Null, &recipient, &classes));
    let steps: Vec<String> = ruled.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        (ruled.ruling, steps),
        (Ruling::Relay, vec!["access To: /etc/mail/access line 1: \"To:part.example\" = \"RELAY\" → RELAY".to_owned()])
    );
    let refused = Access::new(vec![table(&[("From:bad.example", "REJECT")])], Options::default());
    let ruled = known(|ask| refused.sender(ask, &stranger("198.51.100.7"), &path("x@bad.example"), &classes));
    let Ruling::Refuse(refusal) = ruled.ruling else { panic!("{ruled:?}") };
    assert_eq!(refusal.found.and_then(|found| found.place.line), Some(1));
}

#[test]
fn mail_is_ours_from_those_who_may_send_anywhere() {
    let classes = ours();
    let anywhere =
        |client: &Client<'_>| known(|ask| map().client_right(ask, client, &path("x@ours.example"), &classes)).is_some();
    for (ip, is_ours) in [
        ("10.30.1.2", true),
        ("10.5.0.1", true),
        ("192.0.2.25", true),
        ("198.51.100.7", false),
        ("2001:db8:30::1", true),
        ("2001:db8:31::1", false),
    ] {
        assert_eq!(anywhere(&stranger(ip)), is_ours, "{ip}");
    }
    assert!(anywhere(&Client { identity: Some("joe"), ..stranger("198.51.100.7") }));
    assert!(anywhere(&stranger("198.51.100.7").named(ClientName::Verified("good.test"))));
    assert!(!anywhere(&stranger("198.51.100.7").named(ClientName::Forged)), "and a claim gives no right");
    assert!(anywhere(&Client { ip: None, ..stranger("198.51.100.7") }), "a program of this machine");
}
