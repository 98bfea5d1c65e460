//! Handshakes over a pipe in memory, with certificates made for each test.

mod client;
mod connector;

use super::*;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_rustls::TlsConnector;

/// Making one takes a tenth of a second and more.
static RSA: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap());
static ECDSA: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());

/// Files of certificates, and the CAs that a client must trust.
struct Rig {
    dir: tempfile::TempDir,
    settings: config::Tls,
    trusted: Vec<CertificateDer<'static>>,
}

impl Rig {
    fn new() -> Self {
        let settings = config::Tls {
            certificate: Vec::new(),
            key: Vec::new(),
            client_ca: Vec::new(),
            version_min: "1.2".to_owned(),
            handshake_time_max: Duration::from_secs(60),
            ca_files: Vec::new(),
        };
        Self { dir: tempfile::tempdir().unwrap(), settings, trusted: Vec::new() }
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Adds, or writes anew, a certificate that expires at the end of `year`.
    fn certificate(&mut self, name: &str, key: &KeyPair, year: i32) -> &mut Self {
        let mut params = CertificateParams::new(vec!["mx.example.org".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = params.self_signed(key).unwrap();
        self.trusted.push(certificate.der().clone());
        let path = self.write(&format!("{name}.crt"), &certificate.pem(), 0o644);
        let key = self.write(&format!("{name}.key"), &key.serialize_pem(), 0o600);
        if !self.settings.certificate.contains(&path) {
            self.settings.certificate.push(path);
            self.settings.key.push(key);
        }
        self
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor::load(&self.settings).unwrap()
    }

    fn client(&self) -> ClientConfig {
        self.client_with(rustls::ALL_VERSIONS, |_| {})
    }

    fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        change: impl FnOnce(&mut CryptoProvider),
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for certificate in &self.trusted {
            roots.add(certificate.clone()).unwrap();
        }
        let mut provider = aws_lc_rs::default_provider();
        change(&mut provider);
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    fn problems(&self) -> Vec<String> {
        texts(&Acceptor::load(&self.settings).unwrap_err())
    }
}

fn texts(problems: &[TlsProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn deadline() -> Instant {
    clock::now() + Duration::from_secs(60)
}

type Connected = (Stream<DuplexStream>, smtp::server::Tls);
type Client = tokio_rustls::client::TlsStream<DuplexStream>;

async fn connect(
    acceptor: &Acceptor,
    client: &Arc<ClientConfig>,
) -> (Result<Connected, HandshakeError>, std::io::Result<Client>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("mx.example.org").unwrap();
    let connector = TlsConnector::from(Arc::clone(client));
    let accept = async { acceptor.accept(ours, deadline(), true).await.map(|(stream, tls, _)| (stream, tls)) };
    tokio::join!(accept, connector.connect(name, theirs))
}

fn leaf(client: &Client) -> CertificateDer<'static> {
    client.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test]
async fn ecdsa_for_who_can_and_rsa_for_the_others() {
    let mut rig = Rig::new();
    rig.certificate("rsa", &RSA, 2090).certificate("ecdsa", &ECDSA, 2090);
    let acceptor = rig.acceptor();
    assert_eq!(acceptor.warnings(), []);

    let (server, client) = connect(&acceptor, &Arc::new(rig.client())).await;
    let (mut server, tls) = server.unwrap();
    let mut client = client.unwrap();
    assert_eq!(leaf(&client), rig.trusted[1]);
    assert_eq!((&*tls.version, &*tls.cipher, tls.bits), ("TLSv1.3", "TLS_AES_256_GCM_SHA384", 256));
    assert_eq!(tls.server_name.as_deref(), Some("mx.example.org"));
    client.write_all(b"EHLO x\r\n").await.unwrap();
    let mut line = [0; 8];
    server.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"EHLO x\r\n");

    let only_rsa = rig.client_with(rustls::ALL_VERSIONS, |provider| {
        let algorithms = provider.signature_verification_algorithms;
        let mapping: Vec<_> =
            algorithms.mapping.iter().copied().filter(|(scheme, _)| format!("{scheme:?}").starts_with("RSA")).collect();
        provider.signature_verification_algorithms.mapping = mapping.leak();
    });
    let (server, client) = connect(&acceptor, &Arc::new(only_rsa)).await;
    server.unwrap();
    assert_eq!(leaf(&client.unwrap()), rig.trusted[0]);
}

#[tokio::test]
async fn old_clients_with_tls_1_2() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let client = Arc::new(rig.client_with(&[&rustls::version::TLS12], |_| {}));
    let (server, _client) = connect(&rig.acceptor(), &client).await;
    let tls = server.unwrap().1;
    assert_eq!((&*tls.version, &*tls.cipher, tls.bits), ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384", 256));

    rig.settings.version_min = "1.3".to_owned();
    let (server, _client) = connect(&rig.acceptor(), &client).await;
    assert_eq!(server.unwrap_err().to_string(), "client's TLS versions are below tls.version_min");
}

#[tokio::test]
async fn failures_have_texts() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let acceptor = rig.acceptor();

    let stranger = Arc::new(Rig::new().client());
    let (server, client) = connect(&acceptor, &stranger).await;
    assert!(client.is_err());
    // In TLS 1.3 the client may judge the certificate after we are done; here its alert comes first.
    assert_eq!(server.unwrap_err().to_string(), "client sent alert unknown_ca");

    let rsa_cipher = rig.client_with(&[&rustls::version::TLS12], |provider| {
        provider.cipher_suites.retain(|suite| {
            format!("{suite:?}").contains("RSA_WITH_AES_128") && !format!("{suite:?}").contains("ECDSA")
        });
    });
    let (server, _client) = connect(&acceptor, &Arc::new(rsa_cipher)).await;
    assert_eq!(server.unwrap_err().to_string(), "no shared cipher or signature algorithm");

    for (bytes, expected) in [
        (&b"EHLO client.example\r\n"[..], "plain text instead of TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "plain text instead of TLS"),
        (b"", "client closed the connection in the handshake"),
    ] {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        theirs.write_all(bytes).await.unwrap();
        theirs.shutdown().await.unwrap();
        let error = acceptor.accept(ours, deadline(), true).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    let (ours, _theirs) = tokio::io::duplex(64);
    let error = acceptor.accept(ours, clock::now(), true).await.unwrap_err();
    assert_eq!(error.to_string(), "no handshake within tls.handshake_time_max");
}

#[tokio::test]
async fn a_reload_changes_new_connections_only() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let acceptor = rig.acceptor();
    let (server, client) = connect(&acceptor, &Arc::new(rig.client())).await;
    let (mut old_server, mut old_client) = (server.unwrap().0, client.unwrap());

    rig.certificate("ecdsa", &KeyPair::generate().unwrap(), 2091);
    acceptor.reload(&rig.settings).unwrap();
    let (server, client) = connect(&acceptor, &Arc::new(rig.client())).await;
    server.unwrap();
    assert_eq!(leaf(&client.unwrap()), rig.trusted[1]);

    std::fs::write(&rig.settings.certificate[0], "nothing").unwrap();
    let problems = texts(&acceptor.reload(&rig.settings).unwrap_err());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("ecdsa.crt: no certificate in it"), "{problems:?}");
    let (server, client) = connect(&acceptor, &Arc::new(rig.client())).await;
    server.unwrap();
    assert_eq!(leaf(&client.unwrap()), rig.trusted[1], "the last good one stays");

    old_client.write_all(b"QUIT\r\n").await.unwrap();
    let mut line = [0; 6];
    old_server.read_exact(&mut line).await.unwrap();
    assert_eq!(leaf(&old_client), rig.trusted[0]);
}

#[tokio::test]
async fn a_client_comes_back_with_its_ticket_even_after_a_reload() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let acceptor = rig.acceptor();
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let client = Arc::new(rig.client_with(versions, |_| {}));
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let (server, connected) = connect(&acceptor, &client).await;
            let (mut server, _) = server.unwrap();
            let mut connected = connected.unwrap();
            // The tickets of TLS 1.3 come after the handshake, with the first data.
            server.write_all(b"220").await.unwrap();
            connected.read_exact(&mut [0; 3]).await.unwrap();
            kinds.push(server.get_ref().1.handshake_kind().unwrap());
            acceptor.reload(&rig.settings).unwrap();
        }
        assert_eq!(kinds, [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed], "{versions:?}");
    }
}

#[test]
fn expired_certificates_are_used_and_reported() {
    let mut rig = Rig::new();
    rig.certificate("old", &ECDSA, 2020);
    let acceptor = rig.acceptor();
    let warnings = texts(&acceptor.warnings());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("old.crt: has expired; "), "{warnings:?}");

    let identities = &acceptor.current.load().identities;
    // 2020-12-31 in seconds, less the days.
    for (days, expected) in [(15, None), (14, None), (13, Some("old.crt: expires in 13 days; "))] {
        let warnings = texts(&identities[0].warnings(1_609_372_800 - days * 86_400));
        assert_eq!(
            warnings.first().map(|text| text.contains(expected.unwrap())),
            expected.map(|_| true),
            "{warnings:?}"
        );
    }
}

#[test]
fn keys_that_others_can_read_are_reported() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    std::fs::set_permissions(&rig.settings.key[0], std::fs::Permissions::from_mode(0o644)).unwrap();
    let warnings = texts(&rig.acceptor().warnings());
    assert!(warnings[0].contains("ecdsa.key: mode 0644 lets everybody"), "{warnings:?}");
}

#[test]
fn what_cannot_work_is_named_all_at_once() {
    assert!(Rig::new().problems()[0].starts_with("tls.certificate: no file named, but a listener has"));

    let mut rig = Rig::new();
    rig.certificate("rsa", &RSA, 2090).certificate("ecdsa", &ECDSA, 2090).certificate("gone", &ECDSA, 2090);
    rig.settings.key.swap(0, 1);
    rig.settings.version_min = "1.1".to_owned();
    std::fs::remove_file(&rig.settings.certificate[2]).unwrap();
    let problems = rig.problems();
    assert_eq!(problems.len(), 4, "{problems:#?}");
    assert!(problems[0].starts_with("tls.version_min: \"1.1\" is not possible"), "{problems:#?}");
    assert!(problems[1].contains("ecdsa.key: the key is not that of the first certificate in "), "{problems:#?}");
    assert!(problems[2].contains("rsa.key: the key is not"), "{problems:#?}");
    assert!(problems[3].contains("gone.crt: cannot be read: "), "{problems:#?}");

    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    std::fs::write(&rig.settings.key[0], "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(rig.problems()[0].contains("ecdsa.key: no private key that can be read"), "{:?}", rig.problems());
    rig.settings.key.clear();
    assert!(rig.problems()[0].starts_with("tls.key: 0 files, but tls.certificate names 1"), "{:?}", rig.problems());
}

#[test]
fn keys_in_all_three_forms() {
    // PKCS#8 wraps the two others: version, algorithm, octet string.
    let inner = |der: &[u8]| {
        let mut rest = der::take(der, 0x30).unwrap().0;
        for tag in [0x02, 0x30] {
            rest = der::take(rest, tag).unwrap().1;
        }
        der::take(rest, 0x04).unwrap().0.to_vec()
    };
    let (ecdsa, rsa) = (ECDSA.serialize_der(), RSA.serialize_der());
    for (key, label, der) in [
        (&ECDSA, "EC PRIVATE KEY", inner(&ecdsa)),
        (&RSA, "RSA PRIVATE KEY", inner(&rsa)),
        (&ECDSA, "PRIVATE KEY", ecdsa),
        (&RSA, "PRIVATE KEY", rsa),
    ] {
        let mut rig = Rig::new();
        rig.certificate("x", key, 2090);
        let text = <base64ct::Base64 as base64ct::Encoding>::encode_string(&der);
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        rig.write("x.key", &format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n")), 0o600);
        assert_eq!(rig.acceptor().warnings(), [], "{label}");
    }
}

/// Measures the memory of an idle connection; prints, asserts only the order of magnitude. Run alone, with `--ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement, of the whole process"]
fn memory_of_an_idle_connection() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let config = Arc::clone(&rig.acceptor().current.load().config);
    let client = Arc::new(rig.client());
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let connect = || {
        let mut server = ServerConnection::new(Arc::clone(&config)).unwrap();
        server.set_buffer_limit(Some(SEND_BUFFER_BYTES));
        let name = ServerName::try_from("mx.example.org").unwrap();
        let mut client = ClientConnection::new(Arc::clone(&client), name).unwrap();
        while server.is_handshaking() || client.is_handshaking() || server.wants_write() {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut wire = &wire[..];
            while !wire.is_empty() {
                server.read_tls(&mut wire).unwrap();
                server.process_new_packets().unwrap();
            }
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut wire = &wire[..];
            while !wire.is_empty() {
                client.read_tls(&mut wire).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        server
    };
    let warm: Vec<_> = (0..100).map(|_| connect()).collect();
    let before = resident();
    let idle: Vec<_> = (0..1000).map(|_| connect()).collect();
    let each = (resident() - before) / 1000;
    println!(
        "{each} bytes for each of {} connections, {} of them in the struct",
        idle.len(),
        size_of::<ServerConnection>()
    );
    assert!(each < 64 * 1024);
    drop(warm);
}
