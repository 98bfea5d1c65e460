//! Clients that are asked for a certificate.

use super::*;
use rcgen::{BasicConstraints, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa};
use rustls::pki_types::PrivateKeyDer;

type Authority = CertifiedIssuer<'static, KeyPair>;
type Own = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Authority::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn signed(authority: &Authority, year: i32, purpose: ExtendedKeyUsagePurpose) -> Own {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "client.test");
    params.extended_key_usages = vec![purpose];
    params.not_after = rcgen::date_time_ymd(year, 12, 31);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &**authority).unwrap();
    (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

fn copy(own: &Own) -> Own {
    (own.0.clone(), own.1.clone_key())
}

/// Returns a server that asks for certificates of this authority.
fn asking(authority: &Authority) -> Rig {
    let mut rig = Rig::new();
    rig.certificate("ecdsa", &ECDSA, 2090);
    let path = rig.write("ca.pem", &authority.pem(), 0o644);
    rig.settings.client_ca = vec![path];
    rig
}

fn client(rig: &Rig, versions: &[&'static SupportedProtocolVersion], own: Option<&Own>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in &rig.trusted {
        roots.add(certificate.clone()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match own {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate.clone()], key.clone_key()).unwrap(),
        None => builder.with_no_client_auth(),
    })
}

async fn shown(acceptor: &Acceptor, client: &Arc<ClientConfig>, asks: bool) -> ClientCertificate {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("mx.example.org").unwrap();
    let connector = TlsConnector::from(Arc::clone(client));
    let accept = async {
        let (mut stream, _, shown) = acceptor.accept(ours, deadline(), asks).await.unwrap();
        // Tickets are sent behind the handshake.
        stream.write_all(b"220 mx\r\n").await.unwrap();
        shown
    };
    let connect = async {
        let mut stream = connector.connect(name, theirs).await.unwrap();
        stream.read_exact(&mut [0; 8]).await.unwrap();
    };
    tokio::join!(accept, connect).0
}

fn told(shown: &ClientCertificate) -> (&str, String) {
    match shown {
        ClientCertificate::NotAsked => ("NOT", String::new()),
        ClientCertificate::Nothing => ("NO", String::new()),
        ClientCertificate::Unverified { why, .. } => ("FAIL", why.to_string()),
        ClientCertificate::Verified(names) => ("OK", format!("{} {}", names.subject, names.issuer)),
    }
}

#[tokio::test]
async fn any_certificate_and_none_is_taken_and_judged() {
    let ca = authority("Mail CA");
    let rig = asking(&ca);
    let acceptor = rig.acceptor();
    let good = signed(&ca, 2090, ExtendedKeyUsagePurpose::ClientAuth);
    let cases = [
        (None, true, ("NO", "")),
        (Some(copy(&good)), true, ("OK", "/CN=client.test /CN=Mail+20CA")),
        (Some(copy(&good)), false, ("NOT", "")),
        (
            Some(signed(&authority("Mail CA"), 2090, ExtendedKeyUsagePurpose::ClientAuth)),
            true,
            ("FAIL", "it is signed by none of the CAs in tls.client_ca"),
        ),
        (Some(signed(&ca, 2020, ExtendedKeyUsagePurpose::ClientAuth)), true, ("FAIL", "it has expired")),
        (Some(signed(&ca, 2090, ExtendedKeyUsagePurpose::ServerAuth)), true, ("FAIL", "it is not for clients")),
    ];
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        for (own, asks, (word, text)) in &cases {
            let found = shown(&acceptor, &client(&rig, versions, own.as_ref()), *asks).await;
            assert_eq!(told(&found), (*word, (*text).to_owned()));
            assert_eq!(found.verified().is_some(), *word == "OK");
        }
    }
}

#[tokio::test]
async fn a_resumed_session_is_judged_anew() {
    let ca = authority("Mail CA");
    let mut rig = asking(&ca);
    let acceptor = rig.acceptor();
    let good = signed(&ca, 2090, ExtendedKeyUsagePurpose::ClientAuth);
    let config = client(&rig, &[&rustls::version::TLS13], Some(&good));
    for _ in 0..2 {
        assert_eq!(told(&shown(&acceptor, &config, true).await).0, "OK");
    }
    // Its CA no longer counts, although a ticket resumes the session.
    let path = rig.write("ca.pem", &authority("Other CA").pem(), 0o644);
    rig.settings.client_ca = vec![path];
    acceptor.reload(&rig.settings).unwrap();
    assert_eq!(told(&shown(&acceptor, &config, true).await).0, "FAIL");
    rig.settings.client_ca.clear();
    acceptor.reload(&rig.settings).unwrap();
    assert_eq!(told(&shown(&acceptor, &config, true).await).0, "NOT");
}

#[test]
fn files_that_vouch_for_nobody_are_said() {
    let mut rig = asking(&authority("Mail CA"));
    for (text, said) in [
        ("", "no certificate in it (BEGIN CERTIFICATE)"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 1 can vouch for nobody"),
        ("-----BEGIN CERTIFICATE-----\n!\n", "broken PEM"),
    ] {
        let path = rig.write("bad.pem", text, 0o644);
        rig.settings.client_ca = vec![path];
        let problems = rig.problems();
        assert!(problems.len() == 1 && problems[0].contains("bad.pem: ") && problems[0].contains(said), "{problems:?}");
    }
}
