//! Measures the cost of look-ups; run by hand.
//!
//! `cargo test -p mailrace-server --lib dns::cost -- --ignored --nocapture`

use super::{Family, LocalIdentity, Resolver};
use mail::DomainName;
use std::net::UdpSocket;
use std::time::Duration;

/// Domains that are asked for at once.
const DOMAINS: usize = 1_000;

/// Answers MX with one host below the domain, A with an address, and anything else with nothing, as cheaply as it goes.
fn serve(socket: &UdpSocket) {
    let mut buffer = [0; 1_500];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        if length < 17 {
            return;
        }
        let end = 12 + buffer[12..length].iter().position(|byte| *byte == 0).expect("an end of the name") + 5;
        let mut reply = buffer[..end].to_vec();
        // A reply that recursion is available for, with no further sections.
        reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut record = |data: &[u8], section: usize, kind: u8| {
            reply[section] = 1;
            reply.extend([0xC0, 12, 0, kind, 0, 1, 0, 0, 1, 44, 0, u8::try_from(data.len()).expect("short")]);
            reply.extend(data);
        };
        match buffer[end - 3] {
            15 => record(&[0, 10, 2, b'm', b'x', 0xC0, 12], 7, 15),
            1 => record(&[192, 0, 2, 1], 7, 1),
            // A SOA record: no such data.
            _ => record(&[&[0; 2][..], &[0, 0, 0, 1].repeat(5)].concat(), 9, 6),
        }
        socket.send_to(&reply, peer).expect("sent");
    }
}

/// Returns the time this thread has been on a processor.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel that counts");
    Duration::from_nanos(text.split(' ').next().expect("a number").parse().expect("a number"))
}

#[tokio::test]
#[ignore = "a measurement"]
async fn a_thousand_new_domains_at_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let server = std::thread::spawn(move || serve(&socket));
    for (family, questions) in [(Family::Ipv4, "MX and A"), (Family::Any, "MX, A and AAAA")] {
        for round in 0..5 {
            let text = format!("dns.servers = ['{address}']");
            let config =
                crate::config::load(&text, None, &[], &crate::config::Machine::default()).expect("fine").config;
            let resolver = Resolver::new(&config.dns).expect("a resolver");
            let (began, before) = (super::now(), processor_time());
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..DOMAINS {
                let resolver = resolver.clone();
                let domain = DomainName::new(&format!("domain{number}.example")).expect("a name");
                tasks.spawn(async move {
                    let us = LocalIdentity::default();
                    resolver.mail_hosts(&domain, 25, &us, family, number as u64).await.expect("hosts").hosts.len()
                });
            }
            assert_eq!(tasks.join_all().await, [1; DOMAINS]);
            let cost = (processor_time() - before) / u32::try_from(DOMAINS).expect("few");
            eprintln!(
                "{questions}, round {round}: {cost:?} of processor time a domain, {:?} in all",
                super::now() - began
            );
        }
    }
    let end = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    end.send_to(&[0], address).expect("sent");
    server.join().expect("no panic");
}
