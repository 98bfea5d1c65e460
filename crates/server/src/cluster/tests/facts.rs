//! Engines that must not hold copies, and engines that cannot be asked.

use super::*;
use crate::cluster::{EngineAccessError, EngineLogin, ask_engine};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use testkit::nats::Options;

/// Asks an engine, and checks the words of the refusal; none when it is taken.
#[track_caller]
fn check(result: Result<cluster::EngineFacts, EngineAccessError>, says: &[&str]) {
    match result {
        Ok(facts) => assert!(says.is_empty() && facts.is_sync_always && facts.has_streams, "{facts:?}"),
        Err(error) => {
            let text = error.to_string();
            assert!(!says.is_empty() && says.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}

#[tokio::test]
async fn an_engine_that_syncs_before_it_answers_is_taken() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    check(ask_engine(&settings(&servers)).await, &[]);
}

#[tokio::test]
async fn an_engine_that_answers_before_it_syncs_is_refused() {
    for sync_interval in [None, Some("1s")] {
        let Some(server) = Nats::start(&Options { sync_interval, ..Options::default() }) else { return };
        let servers = [server];
        check(ask_engine(&settings(&servers)).await, &["sync_interval: always", "restart it"]);
    }
}

#[tokio::test]
async fn an_engine_without_jetstream_is_refused() {
    let Some(server) = Nats::start(&Options { jetstream: false, ..Options::default() }) else { return };
    let servers = [server];
    check(ask_engine(&settings(&servers)).await, &["JetStream disabled"]);
    let lines = "accounts { MAIL { users: [{ user: mail, password: secret }] } }\nno_auth_user: mail\n".to_owned();
    let Some(server) = Nats::start(&Options { lines, ..Options::default() }) else { return };
    let servers = [server];
    check(ask_engine(&settings(&servers)).await, &["JetStream disabled", "for this account"]);
}

#[tokio::test]
async fn an_engine_is_refused_while_its_monitor_does_not_speak_for_it() {
    let Some(one) = Nats::start(&Options { monitor: false, ..Options::default() }) else { return };
    let Some(other) = Nats::start(&Options::default()) else { return };
    let servers = [one];
    let mut settings = settings(&servers);
    check(ask_engine(&settings).await, &["may answer before data is on the disk", "no connection", "http: "]);
    settings.monitor = format!("127.0.0.1:{}", other.monitor_port);
    check(ask_engine(&settings).await, &["may answer before data is on the disk", "another server"]);
    settings.monitor = "no address".to_owned();
    check(ask_engine(&settings).await, &["may answer before data is on the disk"]);
}

#[tokio::test]
async fn a_login_counts_and_a_wrong_one_is_named() {
    let lines = "authorization { user: mail, password: \"the secret\" }\n".to_owned();
    let Some(server) = Nats::start(&Options { lines, ..Options::default() }) else { return };
    let servers = [server];
    let mut settings = settings(&servers);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    check(ask_engine(&settings).await, &["refuses the login"]);
    for (password, says) in [("the secret\n", &[][..]), ("another", &["refuses the login", "secret the same"])] {
        std::fs::write(&file, password).unwrap();
        settings.login = EngineLogin::Password { user: "mail".to_owned(), file: file.clone() };
        check(ask_engine(&settings).await, says);
    }
    settings.login = EngineLogin::Password { user: "mail".to_owned(), file: PathBuf::from("/nonexistent/password") };
    check(ask_engine(&settings).await, &["/nonexistent/password"]);
}

#[tokio::test]
async fn an_nkey_logs_in() {
    // A pair that was made for this test.
    let (seed, user) = (
        "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY",
        "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4",
    );
    let lines = format!("authorization {{ users: [{{ nkey: {user} }}] }}\n");
    let Some(server) = Nats::start(&Options { lines, ..Options::default() }) else { return };
    let servers = [server];
    let mut settings = settings(&servers);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seed");
    std::fs::write(&file, seed).unwrap();
    settings.login = EngineLogin::Nkey(file);
    check(ask_engine(&settings).await, &[]);
}

#[tokio::test]
async fn tls_counts_by_the_ca_of_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
    let of_server = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&of_server, &ca).unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("ca"), ca.pem()).unwrap();
    std::fs::write(at("certificate"), certificate.pem()).unwrap();
    std::fs::write(at("key"), of_server.serialize_pem()).unwrap();
    let lines = format!("tls {{ cert_file: {:?}, key_file: {:?} }}\n", at("certificate"), at("key"));
    let Some(server) = Nats::start(&Options { lines, ..Options::default() }) else { return };
    let servers = [server];
    let mut settings = settings(&servers);
    settings.is_tls = true;
    check(ask_engine(&settings).await, &["is not reached", "certificate"]);
    settings.ca_file = Some(at("ca"));
    check(ask_engine(&settings).await, &[]);
}

#[tokio::test]
async fn an_older_engine_is_refused_before_it_is_asked_more() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(
                b"INFO {\"server_id\":\"X\",\"version\":\"2.9.10\",\"headers\":true,\"max_payload\":1048576}\r\n",
            )
            .unwrap();
        for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
            if line == "PING" {
                stream.write_all(b"PONG\r\n").unwrap();
            }
        }
    });
    let settings = EngineSettings::new(vec![address], "127.0.0.1:1".to_owned());
    check(ask_engine(&settings).await, &["2.9.10", "2.15.2 or newer", "upgrade nats-server"]);
}

#[tokio::test]
async fn a_wrong_address_is_named() {
    let settings = EngineSettings::new(vec!["127.0.0.1:1".to_owned()], "127.0.0.1:2".to_owned());
    check(ask_engine(&settings).await, &["127.0.0.1:1", "is not reached", "start nats-server"]);
    let settings = EngineSettings::new(vec!["no address".to_owned()], String::new());
    check(ask_engine(&settings).await, &["no address", "host:port"]);
    check(ask_engine(&EngineSettings::new(Vec::new(), String::new())).await, &["no engine is named"]);
}
