//! TLS towards a directory, and binds: trusted and refused certificates, and the messages about them.

use super::slapd::{Extra, Slapd};
use super::{deliveries, patience, people, route, setup};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use testkit::harness::Setup;
use testkit::nats::free_ports;

/// A CA of the test's own.
struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names, and its key.
    fn sign(&self, names: &[&str], last_year: Option<i32>) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        if let Some(year) = last_year {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        (params.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }
}

fn with_tls(tls: (String, String)) -> Option<Slapd> {
    Slapd::with(&people(), &Extra { tls: Some(tls), ..Extra::default() })
}

/// A setup with the CA in a file.
fn trusting(url: &str, ca: &str, more: &str) -> Setup {
    let of_crew = setup(url, "");
    let file = of_crew.path("ca.pem");
    std::fs::write(&file, ca).expect("written");
    let password = of_crew.path("secret");
    let patience = patience(more);
    of_crew.set("maps.aliases", "[]").set(
        "ldap",
        format!(
            "[{{name = \"people\", servers = [\"{url}\"], base = \"dc=test\", routing_domains = [\"ldap.test\"], bounce = true, \
             bind = \"cn=admin,dc=test\", password_file = {password:?}, ca_file = {file:?}, {patience}{more}}}]"
        ),
    )
}

#[track_caller]
fn is_trusted(setup: &Setup) {
    let (said, exit) = route(setup, "five@ldap.test");
    assert_eq!(deliveries(&said), ["joe@elsewhere.example elsewhere.example"], "{said}");
    assert_eq!(exit, Some(0));
    assert_eq!(route(setup, "nobody@ldap.test").1, Some(67));
}

/// It waits, and the operator hears one of these words.
#[track_caller]
fn is_trouble(setup: &Setup, word: &str) {
    for recipient in ["five@ldap.test", "nobody@ldap.test"] {
        let (said, exit) = route(setup, recipient);
        let why = said["reason"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert_eq!(exit, Some(75), "{said}");
        assert!(why.starts_with("ldap:people: ldap") && why.contains(word), "{why}");
    }
}

#[test]
fn a_certificate_must_be_of_the_ca_and_for_the_host() {
    let (ca, other) = (Ca::new(), Ca::new());
    let Some(slapd) = with_tls(ca.sign(&["localhost", "127.0.0.1"], None)) else { return };
    let clear = format!("ldap://localhost:{}", slapd.port());
    for (url, more) in [
        (slapd.tls_url("localhost"), ""),
        (slapd.tls_url("127.0.0.1"), ""),
        (clear, "starttls = true"),
        (slapd.url(), "starttls = true"),
    ] {
        is_trusted(&trusting(&url, &ca.pem, more));
        let distrusting = trusting(&url, &other.pem, more);
        is_trouble(&distrusting, "signed by none of the CAs in ");
        // Several CAs in a file.
        is_trusted(&trusting(&url, &format!("{}{}", other.pem, ca.pem), more));
    }
    let setup = trusting(&slapd.tls_url("localhost"), "nothing\n", "");
    is_trouble(&setup, "ca.pem: no certificate in it");
    std::fs::remove_file(setup.path("ca.pem")).expect("removed");
    is_trouble(&setup, "ca.pem: cannot be read: No such file");
}

#[test]
fn another_name_and_an_old_certificate_are_refused() {
    let ca = Ca::new();
    let Some(slapd) = with_tls(ca.sign(&["directory.test"], None)) else { return };
    for (url, more) in [(slapd.tls_url("localhost"), ""), (slapd.url(), "starttls = true")] {
        is_trouble(&trusting(&url, &ca.pem, more), "directory.test");
        is_trouble(&trusting(&url, &ca.pem, more), "its certificate is not for ");
    }
    let Some(slapd) = with_tls(ca.sign(&["localhost"], Some(2020))) else { return };
    is_trouble(&trusting(&slapd.tls_url("localhost"), &ca.pem, ""), "has expired");
}

#[test]
fn a_certificate_that_signed_itself_must_be_named() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = params.self_signed(&key).expect("signed").pem();
    let Some(slapd) = with_tls((own.clone(), key.serialize_pem())) else { return };
    is_trusted(&trusting(&slapd.tls_url("localhost"), &own, ""));
    is_trouble(&trusting(&slapd.tls_url("localhost"), &Ca::new().pem, ""), "ca.pem");
    is_trouble(&trusting(&slapd.tls_url("127.0.0.1"), &own, ""), "its certificate is not for 127.0.0.1");
}

#[test]
fn the_cas_of_the_system_count_without_a_file() {
    let ca = Ca::new();
    let Some(slapd) = with_tls(ca.sign(&["localhost"], None)) else { return };
    let setup = setup(&slapd.tls_url("localhost"), "bounce = true");
    is_trouble(&setup, "of the system");
    let file = setup.path("system.pem");
    std::fs::write(&file, &ca.pem).expect("written");
    let output = testkit::harness::program()
        .env("SSL_CERT_FILE", file)
        .arg("route")
        .arg("--config")
        .arg(setup.write())
        .args(["--json", "five@ldap.test"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", testkit::harness::text(&output));
}

#[test]
fn where_there_is_no_tls_nothing_is_said_in_the_clear() {
    let Some(slapd) = Slapd::start(&people()) else { return };
    let ca = Ca::new().pem;
    is_trouble(&trusting(&slapd.url(), &ca, "starttls = true"), "refuses StartTLS");
    let wrong = trusting(&format!("ldaps://localhost:{}", slapd.port()), &ca, "");
    is_trouble(&wrong, "see whether that port has TLS");
    // Without it the same server answers.
    is_trusted(&trusting(&slapd.url(), &ca, ""));
}

#[test]
fn a_bind_that_fails_says_what_to_look_at() {
    let Some(slapd) = Slapd::start(&people()) else { return };
    let wrong = setup(&slapd.url(), "bounce = true");
    std::fs::write(wrong.path("secret"), "wrong\n").expect("written");
    is_trouble(&wrong, "bind as \"cn=admin,dc=test\": invalidCredentials (49)");
    is_trouble(&wrong, "/secret");
    std::fs::write(wrong.path("secret"), "\nsecret\n").expect("written");
    is_trouble(&wrong, "has no password in its first line");
    std::fs::remove_file(wrong.path("secret")).expect("removed");
    is_trouble(&wrong, "secret: No such file");
    // A server that wants TLS for it.
    let extra = Extra { server: "security simple_bind=128\n".to_owned(), ..Extra::default() };
    let Some(strict) = Slapd::with(&people(), &extra) else { return };
    // The socket counts as secure, so that the server is right as such.
    is_trouble(&setup(&strict.url(), "bounce = true"), "set ldap.starttls = true");
}

#[test]
fn no_certificate_names_an_ipv6_address() {
    let setup = setup("ldaps://[::1]", "bounce = true");
    let output = testkit::harness::program().arg("check").arg("--config").arg(setup.write()).output().expect("it runs");
    let text = testkit::harness::text(&output);
    assert!(output.status.code() == Some(78) && text.contains("is an IPv6 address"), "{text}");
    // A refused connection is not reported as a fault of TLS.
    let [free] = free_ports();
    let (said, _) = route(&trusting(&format!("ldaps://127.0.0.1:{free}"), &Ca::new().pem, ""), "five@ldap.test");
    assert!(said["reason"].to_string().contains("refused"), "{said}");
}
