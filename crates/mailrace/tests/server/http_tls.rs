//! HTTP under TLS: tokens, certificates of clients, and renewed certificates.

use super::http::http_address;
use super::tls::new_certificate;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use testkit::harness::{SOON, Server, Setup, poll, text};

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A CA, and identities that it or another vouches for.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

fn identity(ca: &CertifiedIssuer<'static, KeyPair>, name: &str) -> ClientIdentity {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, ca).expect("signed");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    (vec![certificate.der().clone()], key)
}

/// Asks over TLS with a certificate or none; `None`: there is no answer.
fn ask(server: &Server, certificate: &Path, client: Option<&ClientIdentity>, request: &str) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).expect("a certificate")).expect("a good one");
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots);
    let config = match client {
        Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()).expect("they fit"),
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(http_address(server)).expect("connected");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    let name = ServerName::try_from("mx.test").expect("a name");
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("made"), stream);
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    // The end without close_notify is as good as one with it here.
    stream.read_to_end(&mut answer).ok();
    (!answer.is_empty()).then(|| String::from_utf8_lossy(&answer).into_owned())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

fn setup() -> Setup {
    let setup = Setup::new().set("http.address", "\"127.0.0.1:0\"");
    new_certificate(&setup);
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| format!("{:?}", setup.path(name)));
    setup.set("http.certificate", certificate).set("http.key", key)
}

#[test]
fn a_certificate_of_a_client_gives_the_rights_of_its_name() {
    let (ours, other) = (authority("ours"), authority("other"));
    let setup = setup();
    std::fs::write(setup.path("ca.pem"), ours.pem()).expect("written");
    let ca = format!("{:?}", setup.path("ca.pem"));
    let clients = "[{name = \"ann\", role = \"operate\"}, {name = \"monitor\"}]";
    let mut server = setup.set("http.client_ca", ca).set("http.client", clients).start();
    let certificate = server.setup.path("certificate.pem");
    let status = |client: Option<&ClientIdentity>, request: &str| {
        let answer = ask(&server, &certificate, client, request).expect("an answer");
        answer.split(' ').nth(1).and_then(|word| word.parse::<u16>().ok()).expect("a status")
    };
    let change = "POST /api/v1/queue/retry HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Mailrace: 1\r\n\
                  Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"all\":true}";
    let (ann, monitor, nameless) = (identity(&ours, "ann"), identity(&ours, "monitor"), identity(&ours, "carl"));
    assert_eq!(status(Some(&ann), &get("/api/v1/status")), 200);
    assert_eq!(status(Some(&ann), change), 200);
    assert_eq!(status(Some(&monitor), &get("/api/v1/status")), 200);
    assert_eq!(status(Some(&monitor), change), 403);
    for client in [None, Some(&nameless), Some(&identity(&other, "ann"))] {
        assert_eq!(status(client, &get("/api/v1/status")), 401);
        assert_eq!(status(client, &get("/healthz/ready")), 200);
    }
    server.wait_log("cert_subject=/CN=carl, reason=no [[http.client]] has the name \"carl\"");
    server.wait_log("cert_subject=/CN=ann, reason=it is signed by none of the CAs in http.client_ca");
    // A client that speaks no TLS gets nothing, and the log names it.
    let mut clear = TcpStream::connect(http_address(&server)).expect("connected");
    clear.set_read_timeout(Some(SOON)).expect("a limit");
    clear.write_all(get("/healthz/ready").as_bytes()).expect("sent");
    let mut answer = Vec::new();
    clear.read_to_end(&mut answer).ok();
    assert!(!answer.starts_with(b"HTTP"), "{}", answer.escape_ascii());
    server.wait_log("http: ");
}

#[test]
fn a_renewed_certificate_is_taken_by_a_reload_and_a_bad_one_is_not() {
    let server = setup().start();
    let (certificate, old) = (server.setup.path("certificate.pem"), server.setup.path("old.pem"));
    std::fs::copy(&certificate, &old).expect("copied");
    let is_alive = |trusted: &Path| {
        ask(&server, trusted, None, &get("/healthz/live")).is_some_and(|answer| answer.ends_with("alive\n"))
    };
    assert!(is_alive(&certificate));
    new_certificate(&server.setup);
    let reload = || server.control(&["reload"], b"");
    assert!(reload().status.success());
    poll("the new certificate is not used", || is_alive(&certificate).then_some(()));
    assert!(!is_alive(&old), "the control");
    std::fs::copy(&certificate, &old).expect("copied");
    std::fs::write(&certificate, "no certificate").expect("written");
    let output = reload();
    assert!(is_alive(&old), "the one before stays: {}", text(&output));
}
