//! Maps and LDAP routing with a real directory, OpenLDAP's slapd, seen from outside.
//!
//! Where slapd is not installed the tests say so and do nothing.
mod answers;
mod outage;
mod security;
mod slapd;

use serde_json::Value;
use slapd::Slapd;
use testkit::client::greeted;
use testkit::harness::{Setup, program};

/// One entry for each row of the table of LDAP routing, and two of one address.
const PEOPLE: &str = "\
dn: dc=test
objectClass: domain
dc: test
";

fn person(uid: &str, address: &str, more: &str) -> String {
    format!(
        "\ndn: uid={uid},dc=test\nobjectClass: inetOrgPerson\nobjectClass: inetLocalMailRecipient\nuid: {uid}\ncn: {uid}\n\
         sn: {uid}\nmailLocalAddress: {address}\n{more}"
    )
}

fn people() -> String {
    let mut text = PEOPLE.to_owned();
    text += &person("1", "one@ldap.test", "mailHost: mx.test\nmailRoutingAddress: root@here.test\n");
    text += &person("2", "root@ldap.test", "mailHost: mx.test\n");
    text += &person("3", "three@ldap.test", "mailHost: far.example\nmailRoutingAddress: joe@inner.example\n");
    text += &person("4", "four@ldap.test", "mailHost: [127.0.0.82]\n");
    text += &person("5", "five@ldap.test", "mailRoutingAddress: joe@elsewhere.example\n");
    text += &person("6", "daemon@ldap.test", "");
    text += &person("7", "two@ldap.test", "mailRoutingAddress: a@elsewhere.example\n");
    text += &person("8", "two@ldap.test", "mailRoutingAddress: b@elsewhere.example\n");
    text += &person("9", "crew", "mail: a@elsewhere.example\nmail: b@elsewhere.example\n");
    text
}

/// The time for an answer where a test sets none: a busy machine may need more than the default.
fn patience(more: &str) -> &'static str {
    if more.contains("timeout") { "" } else { "timeout = \"30s\", " }
}

fn setup(url: &str, more: &str) -> Setup {
    let secret = Setup::new();
    let password = secret.path("secret");
    let patience = patience(more);
    std::fs::write(&password, "secret\n").expect("written");
    secret
        .set("local.domains", "[\"ldap.test\", \"here.test\"]")
        .set("maps.aliases", "[\"ldap:crew\"]")
        .set(
            "ldap",
            format!(
                "[{{name = \"people\", servers = [\"{url}\"], base = \"dc=test\", routing_domains = [\"ldap.test\"], \
                 bind = \"cn=admin,dc=test\", password_file = {password:?}, {patience}{more}}}, \
                 {{name = \"crew\", servers = [\"{url}\"], base = \"dc=test\", attribute = \"mail\", separator = \", \"}}]"
            ),
        )
}

/// Returns the output of `mailrace route` for a recipient, and its exit status.
fn route(setup: &Setup, recipient: &str) -> (Value, Option<i32>) {
    let config = setup.write();
    let output =
        program().arg("route").arg("--config").arg(config).args(["--json", recipient]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {}", testkit::harness::text(&output)));
    (value, output.status.code())
}

/// Address and destination of each delivery.
fn deliveries(value: &Value) -> Vec<String> {
    let list = value["deliveries"].as_array().unwrap_or_else(|| panic!("{value}"));
    let text = |one: &Value| {
        format!("{} {}", one["address"].as_str().expect("text"), one["destination"].as_str().expect("text"))
    };
    list.iter().map(text).collect()
}

#[test]
fn all_rows_of_ldap_routing() {
    let Some(slapd) = Slapd::start(&people()) else { return };
    for url in [slapd.url(), slapd.socket_url()] {
        let setup = setup(&url, "bounce = true");
        for (recipient, expected) in [
            ("one@ldap.test", "root@here.test local:"),
            ("root@ldap.test", "root@ldap.test local:"),
            ("three@ldap.test", "joe@inner.example smtp:mx:far.example:25"),
            ("four@ldap.test", "four@ldap.test smtp:[127.0.0.82]:25"),
            ("five@ldap.test", "joe@elsewhere.example elsewhere.example"),
        ] {
            let (said, exit) = route(&setup, recipient);
            assert_eq!(deliveries(&said), [expected], "{said}");
            assert_eq!(exit, Some(0));
        }
        // There without an attribute, not there, there twice, and a text that would match all of them if it were not
        // escaped.
        for recipient in
            ["daemon@ldap.test", "nobody@ldap.test", "two@ldap.test", "*@ldap.test", "\"f*)(uid=*\"@ldap.test"]
        {
            let (said, exit) = route(&setup, recipient);
            assert_eq!(said["outcome"], "refuse", "{said}");
            assert!(said["refusal"].to_string().contains("User unknown"), "{said}");
            assert_eq!(exit, Some(67));
        }
    }
    let passing = setup(&slapd.url(), "bounce = false");
    let (said, _) = route(&passing, "daemon@ldap.test");
    assert_eq!(deliveries(&said), ["daemon@ldap.test local:"], "{said}");
    // A map with several values.
    let (said, _) = route(&passing, "crew@here.test");
    let all = deliveries(&said);
    assert!(all.len() == 2 && all.iter().all(|one| one.ends_with("@elsewhere.example elsewhere.example")), "{said}");
}

#[test]
fn a_directory_that_is_down_defers_and_never_refuses() {
    let Some(mut slapd) = Slapd::start(&people()) else { return };
    let setup = setup(&slapd.url(), "bounce = true");
    assert_eq!(route(&setup, "nobody@ldap.test").1, Some(67));
    slapd.kill();
    for recipient in ["nobody@ldap.test", "five@ldap.test"] {
        let (said, exit) = route(&setup, recipient);
        assert_eq!((said["outcome"].as_str(), exit), (Some("defer"), Some(75)), "{said}");
        let why = said["reason"].as_str().expect("a reason");
        assert!(why.starts_with(&format!("ldap:people: {}: ", slapd.url())) && why.contains("refused"), "{why}");
    }
}

#[test]
fn a_server_lives_on_old_answers() {
    let Some(mut slapd) = Slapd::start(&people()) else { return };
    // Nothing is kept as new: each recipient is asked for.
    let server = setup(&slapd.url(), "bounce = true, cache_time = \"0s\", negative_time = \"0s\"").start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<five@ldap.test>", "250");
    client.expect("RCPT TO:<nobody@ldap.test>", "550 5.1.1");
    slapd.kill();
    client.expect("RCPT TO:<five@ldap.test>", "250");
    client.expect("RCPT TO:<three@ldap.test>", "451 4.3.0");
    client.expect("RCPT TO:<nobody@ldap.test>", "451 4.3.0");
    client.expect("RSET", "250");
}

#[test]
fn maps_that_nobody_answers_are_found_before_the_start() {
    let setup = Setup::new().set("maps.mailertable", "[\"ldap:people\", \"sqlite:routes\"]");
    let config = setup.write();
    let output = program().arg("check").arg("--config").arg(config).output().expect("it runs");
    let text = testkit::harness::text(&output);
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert!(text.contains("there is no [[ldap]] with name = \"people\""), "{text}");
    assert!(text.contains("there is no [[sqlite]] with name = \"routes\""), "{text}");
}
