//! The time to check the sender of a message: SPF, DKIM, ARC and DMARC, with all records in the cache of the resolver.
//!
//! The command `mailrace-bench verify`: signs a message with an RSA and with an Ed25519 key, and checks it again and
//! again on one thread. A name server of its own answers the first questions. Each figure is the median of some rounds.

use filter::dkim::key_record::{record_name, record_text};
use mail::DomainName;
use server::config::Config;
use server::dns::Resolver;
use server::sender_check::{CheckedSender, SenderChecks, check_sender};
use server::signing::{NewKey, PrivateKey, SigningKeys};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

use crate::clock;
use crate::sign_bench::{SignBenchArguments, median, message, run_for_keys};

const DOMAIN: &str = "example.org";
/// Octets of one string of a TXT record.
// RFC 1035 §3.3.14
const STRING_BYTES_MAX: usize = 255;

/// Runs the measurement and prints its figures.
#[must_use]
pub fn run(arguments: &SignBenchArguments) -> ExitCode {
    run_for_keys("verify", arguments, measure)
}

fn measure(arguments: &SignBenchArguments, kind: NewKey) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let key = PrivateKey::generate(kind).map_err(|error| text(&error))?;
    let public = key.public_text().map_err(|error| text(&error))?;
    let zone = HashMap::from([
        (record_name("bench", DOMAIN), record_text(key.algorithm(), &public)),
        (DOMAIN.to_owned(), "v=spf1 ip4:198.51.100.0/24 ip4:192.0.2.0/24 -all".to_owned()),
        (format!("_dmarc.{DOMAIN}"), "v=DMARC1; p=reject; rua=mailto:reports@example.org".to_owned()),
    ]);
    let domain = DomainName::new(DOMAIN).map_err(|error| text(&error))?;
    let content = message(arguments.bytes);
    let fields = SigningKeys::of_one(domain, "bench", key).sign(&content, 0).ok_or("a message was not signed")?;
    let content = [&fields[..], &content].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| text(&error))?;
    let _inside = runtime.enter();
    let mut settings = Config::default().dns;
    settings.servers = vec![name_server(zone).map_err(|error| text(&error))?];
    let resolver = Resolver::new(&settings).map_err(|error| text(&error))?;
    let sender = CheckedSender {
        ip: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
        iprev: None,
        helo: "mx.example.org".to_owned(),
        sender: "a@example.org".to_owned(),
        receiver: "mx.example.com".to_owned(),
        now: 1,
    };
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let started = clock::now();
        for _ in 0..arguments.messages {
            let results = runtime.block_on(check_sender(&resolver, &sender, SenderChecks::ALL, &content));
            let has_passed = results.methods().iter().filter(|method| method.code == "pass").count() == 3;
            if !has_passed {
                return Err(format!("not all checks pass: {:?}", results.methods()));
            }
        }
        rounds.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(arguments.messages));
    }
    Ok(format!("{} µs a message", median(rounds)))
}

/// Starts a name server for texts, whose thread ends with the process.
fn name_server(zone: HashMap<String, String>) -> std::io::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = socket.local_addr()?;
    std::thread::spawn(move || {
        let mut question = [0; 1_024];
        while let Ok((octets, peer)) = socket.recv_from(&mut question) {
            if let Some(answer) = question.get(..octets).and_then(|question| answer(question, &zone)) {
                drop(socket.send_to(&answer, peer));
            }
        }
    });
    Ok(address)
}

/// Answers a question for a text; a name without one does not exist.
// RFC 1035 §4.1
fn answer(question: &[u8], zone: &HashMap<String, String>) -> Option<Vec<u8>> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*question.get(at)?);
        let label = question.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    let text = zone.get(&labels.join("."));
    let code = if text.is_some() { 0x80 } else { 0x83 };
    let mut out = question.get(..2)?.to_vec();
    out.extend([0x85, code, 0, 1, 0, u8::from(text.is_some()), 0, 0, 0, 0]);
    out.extend_from_slice(question.get(12..at + 4)?);
    if let Some(text) = text {
        let strings: Vec<u8> = text
            .as_bytes()
            .chunks(STRING_BYTES_MAX)
            .flat_map(|part| [&[u8::try_from(part.len()).unwrap_or(u8::MAX)], part].concat())
            .collect();
        // The name of the question, TXT, IN, an hour.
        out.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 14, 16]);
        out.extend(u16::try_from(strings.len()).ok()?.to_be_bytes());
        out.extend(strings);
    }
    Some(out)
}
