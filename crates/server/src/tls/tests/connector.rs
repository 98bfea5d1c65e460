//! Handshakes with next hops of all kinds, over a pipe in memory.

use super::*;
use crate::tls::{ClientStream, Connector, ServerCertificate, TlsInfo};
use rcgen::{DnType, SanType};
use rustls::HandshakeKind;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

async fn deliver(
    connector: &Connector,
    name: &str,
    server: &TlsAcceptor,
) -> (Result<(ClientStream<DuplexStream>, TlsInfo), HandshakeError>, std::io::Result<Stream<DuplexStream>>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::join!(connector.connect(ours, name, deadline()), server.accept(theirs))
}

fn server(acceptor: &Acceptor) -> TlsAcceptor {
    TlsAcceptor::from(Arc::clone(&acceptor.current.load().config))
}

/// Presents the same certificate to every client.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Makes a server with versions of its own, and a certificate that cannot be parsed.
fn odd_server(versions: &[&'static SupportedProtocolVersion]) -> TlsAcceptor {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(ECDSA.serialize_der()).unwrap();
    let signer = provider.key_provider.load_private_key(key).unwrap();
    let certified = CertifiedKey::new(vec![CertificateDer::from(b"not a certificate".to_vec())], signer);
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_cert_resolver(Arc::new(Always(Arc::new(certified))))))
}

#[tokio::test]
async fn any_certificate_is_taken() {
    let mut rig = Rig::new();
    rig.certificate("expired", &RSA, 2001);
    let connector = Connector::new(&rig.settings).unwrap();
    for (name, sent) in [
        ("another.example.net", Some("another.example.net")),
        ("Under_Score.example.net.", Some("under_score.example.net")),
        ("192.0.2.1", None),
        ("2001:db8::1", None),
        ("no name at all", None),
    ] {
        let (client, server) = deliver(&connector, name, &server(&rig.acceptor())).await;
        let ((mut client, info), mut server) = (client.unwrap(), server.unwrap());
        assert_eq!((&*info.version, &*info.cipher, info.bits), ("TLSv1.3", "TLS_AES_256_GCM_SHA384", 256), "{name}");
        assert_eq!(info.verify, "NOT");
        assert_eq!(server.get_ref().1.server_name().map(str::to_ascii_lowercase).as_deref(), sent);
        client.write_all(b"EHLO x\r\n").await.unwrap();
        client.flush().await.unwrap();
        let mut line = [0; 8];
        server.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"EHLO x\r\n");
    }
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let (client, server) = deliver(&connector, "odd.example", &odd_server(versions)).await;
        server.unwrap();
        assert!(["TLSv1.3", "TLSv1.2"].contains(&&*client.unwrap().1.version));
    }
}

async fn judged(connector: &Connector, server: &TlsAcceptor, ca_files: &[PathBuf]) -> TlsInfo {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let connect = connector.connect_and_judge(ours, "mx.example.org", deadline(), ca_files);
    let (client, _server) = tokio::join!(connect, server.accept(theirs));
    client.unwrap().1
}

#[tokio::test]
async fn certificates_are_judged_and_taken_all_the_same() {
    let mut rig = Rig::new();
    rig.certificate("good", &ECDSA, 2090);
    let connector = Connector::new(&rig.settings).unwrap();
    let good = server(&rig.acceptor());
    let own = rig.settings.certificate.clone();
    let info = judged(&connector, &good, &own).await;
    assert_eq!((info.verify, &info.fault), ("OK", &None));
    let certificate = info.certificate.unwrap();
    assert!(certificate.is_for("MX.example.org") && !certificate.is_for("example.org"), "{certificate:?}");
    assert_eq!(certificate.subject(), certificate.issuer());

    let mut stranger = Rig::new();
    stranger.certificate("other", &RSA, 2090);
    let mut old = Rig::new();
    old.certificate("old", &ECDSA, 2001);
    for (server, files, words) in [
        (&good, &stranger.settings.certificate, "invalid peer certificate"),
        (&server(&old.acceptor()), &old.settings.certificate, "xpired"),
        // It cannot be parsed, so its key cannot be checked either.
        (&odd_server(&[&rustls::version::TLS12]), &own, "BadEncoding"),
    ] {
        let info = judged(&connector, server, files).await;
        let fault = info.fault.unwrap();
        assert!(info.verify == "FAIL" && !fault.is_ours && fault.text.contains(words), "{words}: {fault:?}");
    }
    let info = judged(&connector, &good, &[rig.dir.path().join("none.pem")]).await;
    let fault = info.fault.unwrap();
    assert!(fault.is_ours && fault.text.contains("none.pem: cannot be read"), "{fault:?}");
}

// RFC 6125 §6.4.3 (test), RFC 5280 §4.2.1.6 (test)
#[test]
fn certificates_are_for_their_alternative_names() {
    let mut params =
        CertificateParams::new(["mx.example.org", "*.example.net", "192.0.2.1"].map(str::to_owned)).unwrap();
    for odd in ["*.org", "m*.example.com", "a.*.example.com", "mx.example.com."] {
        params.subject_alt_names.insert(0, SanType::DnsName(odd.try_into().unwrap()));
    }
    params.distinguished_name.push(DnType::CommonName, "*.cn.test");
    let certificate = ServerCertificate::read(params.self_signed(&*ECDSA).unwrap().der()).unwrap();
    for (host, fits) in [
        ("mx.example.org", true),
        ("MX.example.org.", true),
        ("a.example.net", true),
        ("a.b.example.net", false),
        ("example.net", false),
        // No star for a name below a top-level domain, for a part of a label, or within a name.
        ("example.org", false),
        ("mx.example.com", false),
        ("a.b.example.com", false),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        // Common names have no stars.
        ("mx.cn.test", false),
        ("*.cn.test", false),
        ("no name at all", false),
        ("", false),
    ] {
        assert_eq!(certificate.is_for(host), fits, "{host}");
    }
    assert_eq!(certificate.common_name(), Some("*.cn.test"));
}

#[tokio::test]
async fn who_has_another_key_is_found_out() {
    // The certificate of one, the key of the other.
    let mut rig = Rig::new();
    rig.certificate("good", &ECDSA, 2090);
    let provider = aws_lc_rs::default_provider();
    let other = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(other.serialize_der()).unwrap();
    let signer = provider.key_provider.load_private_key(key).unwrap();
    let certified = Arc::new(CertifiedKey::new(rig.trusted.clone(), signer));
    let connector = Connector::new(&rig.settings).unwrap();
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(Arc::clone(&certified))));
        let info = judged(&connector, &TlsAcceptor::from(Arc::new(config)), &rig.settings.certificate).await;
        let fault = info.fault.unwrap();
        assert!(fault.text.contains("does not prove that it has the key"), "{fault:?}");
    }
}

#[tokio::test]
async fn the_oldest_version_is_that_of_the_settings() {
    let mut rig = Rig::new();
    let old = odd_server(&[&rustls::version::TLS12]);
    let (client, _) = deliver(&Connector::new(&rig.settings).unwrap(), "old.example", &old).await;
    let info = client.unwrap().1;
    assert_eq!((&*info.version, &*info.cipher, info.bits), ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384", 256));
    rig.settings.version_min = "1.3".to_owned();
    let (client, _) = deliver(&Connector::new(&rig.settings).unwrap(), "old.example", &old).await;
    assert_eq!(client.unwrap_err().to_string(), "server sent alert protocol_version");
    rig.settings.version_min = "1.1".to_owned();
    let problem = Connector::new(&rig.settings).unwrap_err().to_string();
    assert_eq!(problem, "tls.version_min: \"1.1\" is not possible; choose \"1.2\" or \"1.3\"");
}

#[tokio::test]
async fn sessions_are_resumed() {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let new = server(&rig.acceptor());
    for (server, versions) in [(&new, "1.3"), (&odd_server(&[&rustls::version::TLS12]), "1.2")] {
        let connector = Connector::new(&rig.settings).unwrap();
        let mut kinds = Vec::new();
        for name in ["a.example", "a.example", "b.example"] {
            let (client, stream) = deliver(&connector.clone(), name, server).await;
            let ((mut client, _), mut stream) = (client.unwrap(), stream.unwrap());
            // The tickets of TLS 1.3 come after the handshake, with the first data.
            stream.write_all(b"250").await.unwrap();
            stream.flush().await.unwrap();
            client.read_exact(&mut [0; 3]).await.unwrap();
            kinds.push(client.get_ref().1.handshake_kind().unwrap());
        }
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Full], "{versions}");
    }
}

#[tokio::test]
async fn failures_of_next_hops_have_texts() {
    let connector = Connector::new(&Rig::new().settings).unwrap();
    for (bytes, expected) in [
        (&b"454 4.7.0 not now\r\n"[..], "plain text instead of TLS"),
        (b"", "server closed the connection in the handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "server sent alert handshake_failure"),
    ] {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        theirs.write_all(bytes).await.unwrap();
        theirs.shutdown().await.unwrap();
        let error = connector.connect(ours, "mx.example", deadline()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let (ours, _theirs) = tokio::io::duplex(64 * 1024);
    let error = connector.connect(ours, "mx.example", clock::now()).await.unwrap_err();
    assert_eq!(error.to_string(), "no handshake in time");
}
