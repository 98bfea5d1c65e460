//! The tags that hold numbers, demands and names.

use super::*;
use crate::access::tag::{AuthInfo, Compat, Server, Tagged, TlsDemand};

fn map() -> Access {
    let entries = [
        ("ClientRate:10.1", "4"),
        ("ClientRate:10.1.2.0/28", "7"),
        ("ClientRate:10.1.9", "many"),
        ("ClientRate:10.8", "SKIP"),
        ("ClientRate:", "10"),
        ("ClientConn:10.1.2.3", "0"),
        ("10.7", "3"),
        ("GreetPause:good.test", "0"),
        ("GreetPause:10.1", "5000"),
        ("Srv_Features:10.1", "S l"),
        ("Clt_Features:mx.x.example", "D"),
        ("TLS_Clt:a.good.test", "VERIFY"),
        ("TLS_Srv:x.example", "PERM+ENCR:128"),
        ("TLS_Srv:", "ENCR:1"),
        ("TLS_Rcpt:u@bank.example", "VERIFY:128+CN:mx.bank.example"),
        ("TLS_Rcpt:bank.example", "VERIFY"),
        ("TLS_Clt_features:x.example", "CertFile=/etc/x.pem; KeyFile=/etc/x.key"),
        ("Try_TLS:broken.example", "NO"),
        ("AuthInfo:x.example", "\"U:me\" \"P:secret\""),
        ("AuthInfo:192.0.2.9", "\"U:other\" \"P:secret\""),
        ("QGRP:bulk.example", "slow"),
        ("QGRP:u@bulk.example", "fast"),
        ("bcc:dom.example", "archive@dom.example"),
        ("bcc:no.dom.example", "\"\""),
        ("STS:oldsts.example", "NO"),
        ("Compat:a@b.example<@>c@d.example", "ERROR:no mail for you"),
    ];
    Access::new(vec![table(&entries)], Options::default())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn value<T>(tagged: Option<Tagged<T>>) -> Option<T> {
    tagged.map(|tagged| tagged.value)
}

fn server(name: &str) -> Server<'_> {
    Server { name: Some(name), ip: Some(ip("192.0.2.1")) }
}

#[test]
fn limits_of_clients() {
    let access = map();
    for (text, want) in [
        ("10.1.2.3", Some(7)),
        ("10.1.3.3", Some(4)),
        ("10.2.0.1", Some(10)),
        ("10.1.9.1", None),
        ("10.8.1.1", Some(10)),
        ("2001:db8::1", Some(10)),
    ] {
        assert_eq!(value(known(|ask| access.rate(ask, ip(text)))), want, "{text}");
    }
    assert_eq!(value(known(|ask| access.connections(ask, ip("10.1.2.3")))), Some(0));
    assert_eq!(value(known(|ask| access.connections(ask, ip("10.7.1.1")))), None, "keys without the tag do not count");
    let client = Client::of(ip("10.1.2.3"));
    assert_eq!(value(known(|ask| access.greet_pause(ask, &client))), Some(5000));
    assert_eq!(
        value(known(|ask| access.greet_pause(ask, &client.named(ClientName::Verified("a.good.test"))))),
        Some(0)
    );
    assert_eq!(value(known(|ask| access.server_features(ask, &client))).as_deref(), Some("Sl"));
}

#[test]
fn tls_and_logins() {
    let access = map();
    let demand = |text: &str| TlsDemand::parse(text);
    let client = Client::of(ip("10.1.2.3")).named(ClientName::Verified("a.good.test"));
    assert_eq!(value(known(|ask| access.tls_client(ask, &client))), demand("VERIFY"));
    assert_eq!(value(known(|ask| access.tls_server(ask, server("mx.x.example")))), demand("PERM+ENCR:128"));
    assert_eq!(value(known(|ask| access.tls_server(ask, server("mx.y.example")))), demand("ENCR:1"));
    assert_eq!(
        value(known(|ask| access.tls_recipient(ask, &address("u+d@bank.example")))),
        demand("VERIFY:128+CN:mx.bank.example")
    );
    assert_eq!(value(known(|ask| access.tls_recipient(ask, &address("v@a.bank.example")))), demand("VERIFY"));
    assert_eq!(value(known(|ask| access.try_tls(ask, server("mx.broken.example")))), Some(false));
    assert_eq!(value(known(|ask| access.try_tls(ask, server("mx.x.example")))), None);
    assert_eq!(value(known(|ask| access.client_features(ask, server("mx.x.example")))).as_deref(), Some("D"));
    let user = |info: Option<AuthInfo>| info.and_then(|info| info.user);
    assert_eq!(user(value(known(|ask| access.auth_info(ask, server("mx.x.example"))))).as_deref(), Some("me"));
    let by_ip = Server { name: Some("mx.y.example"), ip: Some(ip("192.0.2.9")) };
    assert_eq!(user(value(known(|ask| access.auth_info(ask, by_ip)))).as_deref(), Some("other"));
    assert_eq!(user(value(known(|ask| access.auth_info(ask, server("mx.y.example"))))), None);
}

#[test]
fn groups_and_copies() {
    let access = map();
    let group = |text: &str| value(known(|ask| access.queue_group(ask, &address(text))));
    assert_eq!(
        (group("u+d@bulk.example").as_deref(), group("v@a.bulk.example").as_deref(), group("v@x.example")),
        (Some("fast"), Some("slow"), None)
    );
    let copy = |text: &str| value(known(|ask| access.bcc(ask, &address(text)))).map(|to| to.to_string());
    assert_eq!(
        (copy("u@a.dom.example").as_deref(), copy("u@no.dom.example"), copy("u@x.example")),
        (Some("archive@dom.example"), None, None)
    );
    let sts = |text: &str| value(known(|ask| access.sts(ask, address(text).domain())));
    assert_eq!((sts("u@oldsts.example"), sts("u@x.example")), (Some(false), None));
    let compat = value(known(|ask| access.compat(ask, &address("a@b.example"), &address("c@d.example"))));
    assert_eq!(compat, Some(Compat::Fail("no mail for you".to_owned())));
    assert_eq!(value(known(|ask| access.compat(ask, &address("c@d.example"), &address("a@b.example")))), None);
}
