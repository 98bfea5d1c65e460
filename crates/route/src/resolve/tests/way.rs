//! The maps in their order, with the results of sendmail 8.17 for the same entries.

use super::*;

const MAILERTABLE: &[(&str, &str)] = &[
    ("h1.test", "smtp:[10.0.0.1]:[10.0.0.2]"),
    ("h2.test", "esmtp:host.example"),
    ("h3.test", "smtp:user@[10.9.9.9]"),
    ("h4.test", "local:"),
    ("h5.test", "local:joe"),
    ("h6.test", "error:5.7.1:550 text here"),
    ("h7.test", "error:550 text"),
    ("h8.test", "error:nohost:No such host"),
    ("h11.test", "error:tempfail:450 wait"),
    ("h15.test", "error:nouser:\"550 5.1.6 moved, see x.y\""),
    ("h19.test", "discard:"),
    ("h20.test", "nosuch:x"),
    ("h22.test", "local:joe@other.example"),
    ("h40.test", "smtp:[10.0.0.5"),
    (".sub.test", "relay:%1.hub.example"),
    ("v.test", "smtp:[10.0.0.66]"),
    ("lmtp.test", "lmtp:unix:/run/lmtp"),
];

#[test]
fn values_of_mailertable_say_where_mail_goes() {
    let router = router(&[("mailertable", MAILERTABLE)]);
    for (to, outcome) in [
        ("user@h1.test", "user@h1.test → h1.test (smtp:[10.0.0.1]:25,[10.0.0.2]:25)"),
        ("user@h2.test", "user@h2.test → h2.test (smtp:mx:host.example:25)"),
        ("user@h3.test", "user@[10.9.9.9] → smtp:[10.9.9.9]:25 (smtp:[10.9.9.9]:25)"),
        ("user@h4.test", "550 5.1.1 <user@h4.test>... User unknown"),
        ("joe@h4.test", "joe@oracle.example → local:"),
        ("user@h5.test", "joe@oracle.example → local:"),
        ("user@h6.test", "550 5.7.1 <user@h6.test>... text here"),
        ("user@h7.test", "550 5.0.0 <user@h7.test>... text"),
        ("user@h8.test", "553 5.3.0 <user@h8.test>... No such host"),
        ("user@h11.test", "450 4.0.0 <user@h11.test>... wait"),
        ("user@h15.test", "550 5.1.6 <user@h15.test>... moved, see x.y"),
        ("user@h19.test", "discarded"),
        ("user@h22.test", "joe@oracle.example → local:"),
        ("user@x.y.sub.test", "user@x.y.sub.test → x.y.sub.test (smtp:mx:x.y.hub.example:25)"),
        ("user@sub.test", "user@sub.test → sub.test"),
        ("user@lmtp.test", "user@lmtp.test → lmtp.test (lmtp:unix:/run/lmtp)"),
        // mailrace never gets there.
        ("joe@v.test", "joe@v.test → local:"),
    ] {
        assert_eq!(way(&router, "<s@x.example>", to), outcome, "{to}");
    }
}

#[test]
fn mail_waits_for_an_entry_that_cannot_be_understood() {
    let router = router(&[("mailertable", MAILERTABLE), ("virtusertable", &[("bad@v.test", "a, b@c")])]);
    for (to, text) in [
        ("user@h40.test", "\"[10.0.0.5\" lacks \"]\""),
        ("user@h20.test", "there is no mailer \"nosuch\""),
        ("bad@v.test", "several"),
    ] {
        let said = way(&router, "<s@x.example>", to);
        assert!(said.starts_with("trouble: ") && said.contains(text), "{said}");
    }
    let mut ask_answers = Answers::new();
    ask_answers.insert(Question::User { name: "x".into() }, Answer::Nothing);
    assert!(matches!(router.hosts_of(&mut Ask::new(&ask_answers), "h40.test"), Err(Stop::Trouble(_))));
}

#[test]
fn virtual_users_are_followed_from_the_start() {
    let router = router(&[
        (
            "virtusertable",
            &[
                ("info@v.test", "joe"),
                ("chain@v.test", "info@v.test"),
                ("out@v.test", "a@b.example"),
                ("loop1@v.test", "loop2@v.test"),
                ("loop2@v.test", "loop1@v.test"),
                ("gone@v.test", "error:nouser 550 No such user"),
                ("sales+*@v.test", "sales-%2@crm.example"),
                ("@w.test", "%1%3@new.example"),
                ("@w3.test", "@new3.example"),
                ("same@w4.test", "same@w4.test"),
                ("@w4.test", "other@w4.test"),
                ("pre@v.test", "x-%1 y@b.example"),
                ("box@v.test", "\\joe"),
                ("@virt.test", "joe"),
                ("dom@v.test", "u@old.test"),
            ],
        ),
        ("domaintable", &[("old.test", "new.test")]),
        ("mailertable", &[("new.example", "smtp:[10.0.0.9]")]),
    ]);
    let mut router = router;
    router.classes.virt = class(&["virt.test"]);
    for (to, outcome) in [
        ("info@v.test", "joe@oracle.example → local:"),
        ("info+x@v.test", "joe@oracle.example → local:"),
        ("chain@v.test", "joe@oracle.example → local:"),
        ("out@v.test", "a@b.example → b.example"),
        // sendmail: 554 5.0.0 rewrite: excessive recursion
        ("loop1@v.test", "554 5.4.6 <loop1@v.test>... loop in virtusertable"),
        ("gone@v.test", "550 5.0.0 <gone@v.test>... No such user"),
        ("sales+de@v.test", "sales-de@crm.example → crm.example"),
        ("sales@v.test", "550 5.1.1 <sales@v.test>... User unknown"),
        ("x+d@w.test", "x+d@new.example → new.example (smtp:[10.0.0.9]:25)"),
        // sendmail: 553 5.1.3 User address required
        ("x+d@w3.test", "x+d@new3.example → new3.example"),
        // sendmail: excessive recursion
        ("same@w4.test", "550 5.1.1 <same@w4.test>... User unknown"),
        ("pre@v.test", "553 5.1.3 <pre@v.test>... Invalid address"),
        ("box@v.test", "joe@v.test → local:"),
        ("anybody@virt.test", "joe@oracle.example → local:"),
        ("dom@v.test", "u@new.test → new.test"),
        ("joe+x@v.test", "joe+x@v.test → local:"),
        ("joe@localhost", "joe@oracle.example → local:"),
        ("joe@[192.0.2.25]", "joe@oracle.example → local:"),
        ("joe@[192.0.2.26]", "joe@[192.0.2.26] → [192.0.2.26]"),
        ("nobody@v.test", "550 5.1.1 <nobody@v.test>... User unknown"),
    ] {
        assert_eq!(way(&router, "<s@x.example>", to), outcome, "{to}");
    }
    // Once round is enough.
    let steps = resolve(&router, "<s@x.example>", "loop1@v.test").unwrap().steps;
    assert_eq!(steps.len(), 4, "{steps:?}");
}

#[test]
fn without_precedence_mailertable_wins_over_smarttable_as_in_sendmail() {
    let maps: &[(&str, &[(&str, &str)])] = &[
        ("mailertable", &[("partner.test", "smtp:[10.1.1.1]")]),
        (
            "smarttable",
            &[
                ("boss@corp.example", "relay:[crypt1]:[crypt2]"),
                ("@", "relay:[bounces]"),
                ("own@corp.example", "v.test"),
            ],
        ),
    ];
    let router = router(maps);
    for (from, to, outcome) in [
        ("<boss@corp.example>", "x@partner.test", "x@partner.test → partner.test (smtp:[10.1.1.1]:25)"),
        ("<boss@corp.example>", "x@b.example", "x@b.example → smtp:crypt1:25,crypt2:25 (smtp:crypt1:25,crypt2:25)"),
        ("<>", "x@b.example", "x@b.example → smtp:bounces:25 (smtp:bounces:25)"),
        ("<clerk@corp.example>", "x@b.example", "x@b.example → b.example"),
        ("<own@corp.example>", "x@b.example", "x@b.example → b.example"),
        ("<boss@corp.example>", "joe@v.test", "joe@v.test → local:"),
        ("<boss@corp.example>", "x@[192.0.2.7]", "x@[192.0.2.7] → [192.0.2.7]"),
    ] {
        assert_eq!(way(&router, from, to), outcome, "{from} {to}");
    }
}

/// The boss's mail goes to the encryption gateway although his recipient stands in mailertable, and although all do.
#[test]
fn with_precedence_of_the_sender_the_boss_gets_to_his_gateway() {
    const GATEWAY: &str = "smtp:[10.2.2.2]:25";
    let smarttable: &[(&str, &str)] = &[("boss@corp.example", "relay:[10.2.2.2]")];
    for mailertable in [
        &[("partner.test", "smtp:[10.1.1.1]:[10.1.1.2]")] as &[(&str, &str)],
        &[("partner.test", "smtp:[10.1.1.1]"), (".", "esmtp:[smart.example]")],
        &[(".", "esmtp:[smart.example]")],
    ] {
        let mut router = router(&[("mailertable", mailertable), ("smarttable", smarttable)]);
        let said = way(&router, "<boss@corp.example>", "x@partner.test");
        assert!(!said.contains(GATEWAY), "sendmail's order: {said}");
        router.settings.precedence = Precedence::Sender;
        for to in ["x@partner.test", "x@elsewhere.example", "x@[192.0.2.7]"] {
            let said = way(&router, "<boss@corp.example>", to);
            assert_eq!(said, format!("{to} → {GATEWAY} ({GATEWAY})"));
            assert!(way(&router, "<clerk@corp.example>", to) != said);
        }
        let resolution = resolve(&router, "<boss@corp.example>", "x@partner.test").unwrap();
        let step = resolution.steps.last().unwrap();
        assert_eq!((step.stage, &*step.found.as_ref().unwrap().key), ("smarttable", "boss@corp.example"));
        assert_eq!(way(&router, "<boss@corp.example>", "joe@v.test"), "joe@v.test → local:");
    }
}

#[test]
fn smart_hosts_take_what_no_map_sends_anywhere() {
    let mut router = router(&[("mailertable", &[("partner.test", "smtp:[10.1.1.1]"), ("bad.test", "error:550 no")])]);
    let Ok(MailerValue::Hosts { hosts, .. }) = MailerValue::parse("relay:[smart.example]", 25) else { panic!() };
    router.settings.smart_hosts = Some(hosts.clone());
    assert_eq!(way(&router, "<a@b.example>", "x@y.example"), "x@y.example → y.example (smtp:smart.example:25)");
    assert_eq!(way(&router, "<a@b.example>", "x@[192.0.2.7]"), "x@[192.0.2.7] → [192.0.2.7] (smtp:smart.example:25)");
    assert_eq!(way(&router, "<a@b.example>", "x@partner.test"), "x@partner.test → partner.test (smtp:[10.1.1.1]:25)");
    let answers = Answers::new();
    let of = |domain: &str| router.hosts_of(&mut Ask::new(&answers), domain).unwrap();
    assert_eq!(of("y.example"), Some(HostsOrElse::Hosts(hosts.clone())));
    assert_eq!(of("[192.0.2.7]"), Some(HostsOrElse::Hosts(hosts)));
    let Some(HostsOrElse::Hosts(hosts)) = of("partner.test") else { panic!() };
    assert_eq!(hosts.to_string(), "smtp:[10.1.1.1]:25");
    assert!(matches!(of("bad.test"), Some(HostsOrElse::Refuse(refusal)) if refusal.code == 550));
    router.settings.smart_hosts = None;
    assert_eq!(router.hosts_of(&mut Ask::new(&answers), "y.example"), Ok(None));
}

#[test]
fn users_nobody_knows_and_hubs() {
    let mut router = router(&[]);
    let value = |text: &str| MailerValue::parse(text, 25).ok();
    router.settings.luser_relay = value("relay:hub.example");
    assert_eq!(
        way(&router, "<a@b.example>", "nobody@v.test"),
        "nobody@hub.example → smtp:mx:hub.example:25 (smtp:mx:hub.example:25)"
    );
    assert_eq!(way(&router, "<a@b.example>", "joe@v.test"), "joe@v.test → local:");
    router.settings.luser_relay = value("local:joe");
    assert_eq!(way(&router, "<a@b.example>", "nobody@v.test"), "joe@v.test → local:");
    router.settings.luser_relay = value("error:5.1.1:550 not here");
    assert_eq!(way(&router, "<a@b.example>", "nobody@v.test"), "550 5.1.1 <nobody@v.test>... not here");
    router.settings.mail_hub = value("esmtp:[10.3.3.3]");
    assert_eq!(way(&router, "<a@b.example>", "joe@v.test"), "joe@[10.3.3.3] → smtp:[10.3.3.3]:25 (smtp:[10.3.3.3]:25)");
    let Some(MailerValue::Hosts { hosts, .. }) = value("lmtp:/run/lmtp") else { panic!() };
    router.settings.mail_hub = None;
    router.settings.luser_relay = None;
    router.settings.local = LocalMailer::Hosts { hosts, accounts: false };
    assert_eq!(
        way(&router, "<a@b.example>", "nobody@v.test"),
        "nobody@v.test → lmtp:unix:/run/lmtp (lmtp:unix:/run/lmtp)"
    );
    router.settings.local = LocalMailer::None;
    assert_eq!(way(&router, "<a@b.example>", "joe@v.test"), "550 5.1.1 <joe@v.test>... User unknown");
}

/// sendmail's table of `mailHost` and `mailRoutingAddress`.
#[test]
fn ldap_routing_decides_by_host_and_address() {
    use crate::tables::ldap_routing::{Detail, LdapRouting};
    let mut router = router(&[("mailertable", &[("box.example", "smtp:[10.4.4.4]")])]);
    let mut routing = LdapRouting {
        sources: vec!["ldap:people".into()],
        domains: class(&["v.test", "ldap.test"]),
        equivalents: Some((class(&["equiv.test"]), "ldap.test".parse().unwrap())),
        bounce: false,
        detail: Detail::Keep,
        no_domain: false,
    };
    let people = |question: &Question| match question {
        Question::Routing { key, .. } => {
            let (host, address) = match &**key {
                "local-mra@ldap.test" => (Some("v.test"), Some("joe@v.test")),
                "local@v.test" => (Some("oracle.example"), None),
                "remote-mra@ldap.test" => (Some("far.example"), Some("new@corp.example")),
                "remote@ldap.test" => (Some("box.example"), None),
                "mra@ldap.test" => (None, Some("joe@v.test")),
                "cut@ldap.test" => (None, Some("joe@v.test")),
                "@dom.test" => (Some("far.example"), None),
                "down@ldap.test" => return Answer::Trouble("no answer".into()),
                _ => return Answer::Nothing,
            };
            Answer::Routing { host: host.map(Into::into), address: address.map(Into::into) }
        }
        other => answer(other),
    };
    let ask = |router: &Router, to: &str| told(&resolve_with(router, "<s@x.example>", to, people));
    router.maps.ldap_routing = Some(routing.clone());
    for (to, outcome) in [
        ("local-mra@ldap.test", "joe@v.test → local:"),
        ("local@v.test", "550 5.1.1 <local@v.test>... User unknown"),
        ("remote-mra@ldap.test", "new@corp.example → smtp:mx:far.example:25 (smtp:mx:far.example:25)"),
        ("remote@ldap.test", "remote@ldap.test → smtp:[10.4.4.4]:25 (smtp:[10.4.4.4]:25)"),
        ("remote@equiv.test", "remote@equiv.test → smtp:[10.4.4.4]:25 (smtp:[10.4.4.4]:25)"),
        ("mra@ldap.test", "joe@v.test → local:"),
        ("cut+x@ldap.test", "cut+x@ldap.test → ldap.test"),
        ("nobody@ldap.test", "nobody@ldap.test → ldap.test"),
        ("down@ldap.test", "trouble: no answer"),
        ("x@other.test", "x@other.test → other.test"),
    ] {
        assert_eq!(ask(&router, to), outcome, "{to}");
    }
    routing.bounce = true;
    routing.detail = Detail::Strip;
    router.maps.ldap_routing = Some(routing.clone());
    assert_eq!(ask(&router, "nobody@ldap.test"), "550 5.1.1 <nobody@ldap.test>... User unknown");
    assert_eq!(ask(&router, "cut+x@ldap.test"), "joe@v.test → local:");
    routing.detail = Detail::Preserve;
    router.maps.ldap_routing = Some(routing.clone());
    assert_eq!(ask(&router, "cut+x@ldap.test"), "joe+x@v.test → local:");
    routing.domains = class(&["dom.test"]);
    router.maps.ldap_routing = Some(routing.clone());
    assert_eq!(ask(&router, "x@dom.test"), "x@dom.test → smtp:mx:far.example:25 (smtp:mx:far.example:25)");
    routing.no_domain = true;
    router.maps.ldap_routing = Some(routing);
    assert_eq!(ask(&router, "x@dom.test"), "550 5.1.1 <x@dom.test>... User unknown");
}

/// As sendmail 8.17 answered `/try esmtp` for senders in the envelope, with `masquerade_envelope`.
#[test]
fn senders_have_other_names_outside() {
    let mut router = router(&[
        (
            "genericstable",
            &[
                ("joe", "Joe.Doe@corp.example"),
                ("full@g.test", "full-%1@out.example"),
                ("det+*@g.test", "det-%1@out.example"),
                ("@g2.test", "%1@out2.example"),
                ("unq", "otheruser"),
            ],
        ),
        ("domaintable", &[("old.test", "new.test"), ("g3.test", "g.test")]),
    ]);
    router.settings.generics =
        Generics { domains: class(&["g.test", "g2.test"]), envelope: true, headers: true, recipients: false };
    let ask = |router: &Router, sender: &str, kind| {
        let path: ReversePath = sender.parse().unwrap();
        router.sender(&mut Ask::new(&Answers::new()), &path, kind).unwrap().to_string()
    };
    for (sender, known) in [
        ("<joe@g.test>", "<Joe.Doe@corp.example>"),
        ("<full@g.test>", "<full-@out.example>"),
        ("<det+q@g.test>", "<det-q@out.example>"),
        ("<x+y@g2.test>", "<x+y@out2.example>"),
        ("<joe@other.test>", "<joe@other.test>"),
        ("<unq@g.test>", "<otheruser@oracle.example>"),
        ("<full@g3.test>", "<full-@out.example>"),
        ("<a@old.test>", "<a@new.test>"),
        ("<>", "<>"),
    ] {
        assert_eq!(ask(&router, sender, SenderKind::Envelope), known, "{sender}");
    }
    router.settings.masquerade = Some(Masquerade {
        domain: "corp.example".parse().unwrap(),
        domains: class(&["m.test"]),
        is_limited: false,
        exceptions: class(&["w.test"]),
        exposed: vec!["root".into()],
    });
    assert_eq!(ask(&router, "<ann@oracle.example>", SenderKind::Envelope), "<ann@corp.example>");
    assert_eq!(ask(&router, "<root@oracle.example>", SenderKind::Envelope), "<root@oracle.example>");
    assert_eq!(ask(&router, "<unq@g.test>", SenderKind::Envelope), "<otheruser@corp.example>");
    router.settings.generics.envelope = false;
    assert_eq!(ask(&router, "<ann@v.test>", SenderKind::Envelope), "<ann@v.test>");
    assert_eq!(ask(&router, "<ann@v.test>", SenderKind::Header), "<ann@corp.example>");
    assert_eq!(ask(&router, "<ann@m.test>", SenderKind::Header), "<ann@corp.example>");
    assert_eq!(ask(&router, "<ann@w.test>", SenderKind::Header), "<ann@w.test>", "an exception");
    assert_eq!(ask(&router, "<ann@v.test>", SenderKind::HeaderRecipient), "<ann@v.test>");
    router.settings.generics.recipients = true;
    assert_eq!(ask(&router, "<ann@v.test>", SenderKind::HeaderRecipient), "<ann@corp.example>");
    router.settings.masquerade.as_mut().unwrap().is_limited = true;
    for (sender, known) in [("<ann@v.test>", "<ann@v.test>"), ("<ann@m.test>", "<ann@corp.example>")] {
        assert_eq!(ask(&router, sender, SenderKind::Header), known);
    }
    assert_eq!(ask(&router, "<ann@oracle.example>", SenderKind::Header), "<ann@corp.example>");
}

/// A list of many members stops where little work is allowed, by its members or by its text alone; a single user does
/// not.
#[test]
fn a_long_list_is_more_work_than_a_user() {
    let members: Vec<String> = (0..1_000).map(|number| format!("user{number}@elsewhere.test")).collect();
    let long = members.join(", ");
    let blank = format!("a@elsewhere.test{}, b@elsewhere.test", " ".repeat(100_000));
    let router = router(&[("aliases", &[("list", &long), ("blank", &blank), ("one", "a@elsewhere.test")])]);
    let found = |recipient: &str, work| {
        let (sender, recipient) = (ReversePath::Null, recipient.parse().unwrap());
        let request = Request { sender: &sender, recipient: &recipient, client: None, is_local_submission: false };
        router.resolve(&mut Ask::with_work(&Answers::new(), work), &request).map(|resolution| {
            match resolution.outcome {
                Outcome::Deliver(deliveries) => deliveries.len(),
                _ => 0,
            }
        })
    };
    assert_eq!(found("list@v.test", 500), Err(Stop::TooMuchWork));
    assert_eq!(found("blank@v.test", 500), Err(Stop::TooMuchWork));
    assert_eq!(found("list@v.test", 1_000_000), Ok(1_000));
    assert_eq!((found("one@v.test", 20), found("x@elsewhere.test", 20)), (Ok(1), Ok(1)));
}
