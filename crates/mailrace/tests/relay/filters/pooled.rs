//! Connections to filters that stay open between messages and sessions.

use super::filtered;
use crate::hop::Hop;
use crate::world::{ends_empty, lines, send};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{Server, pause, poll};

/// A server that counts its connections. `serve` gets the number of each.
fn counting(
    serve: impl Fn(usize, TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (count, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (serve, number) = (Arc::clone(&serve), counted.fetch_add(1, Ordering::SeqCst));
            std::thread::spawn(move || drop(serve(number, stream)));
        }
    });
    (address, count)
}

/// Reads a request of the policy protocol; `None`: the connection has ended.
fn request(reader: &mut impl std::io::BufRead) -> Option<String> {
    let mut text = String::new();
    while reader.read_line(&mut text).ok()? > 0 {
        if text.ends_with("\n\n") {
            return Some(text);
        }
    }
    None
}

fn policy(address: SocketAddr, others: &str) -> String {
    format!("kind = \"policy\", address = \"{address}\"{others}")
}

/// Sends RCPT in a session of its own.
#[track_caller]
fn asks(server: &Server, reply: &str) {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    client.expect("RCPT TO:<b@example.com>", reply);
    client.quit();
}

/// The counts of the only filter in the answer of `status`.
fn status(server: &Server) -> String {
    let output = server.control(&["status"], b"");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("  filter  "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Starts a policy server that keeps its connections.
fn lasting() -> (SocketAddr, Arc<AtomicUsize>) {
    counting(|_, mut stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        while request(&mut reader).is_some() {
            stream.write_all(b"action=DUNNO\n\n")?;
        }
        Ok(())
    })
}

#[test]
fn sessions_share_a_connection_to_a_policy_server() {
    let (address, connections) = lasting();
    let hop = Hop::good();
    let server = filtered(&hop, &[("grey", policy(address, ", idle_time = \"5m\""))]).start();
    for _ in 0..5 {
        asks(&server, "250 2.1.5");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let shown = status(&server);
    assert!(shown.contains("1 connection made, 4 reuses, 1 idle"), "{shown}");
    ends_empty(server);
}

#[test]
fn an_idle_connection_ends_after_its_time() {
    let (address, connections) = lasting();
    let hop = Hop::good();
    let server = filtered(&hop, &[("grey", policy(address, ", idle_time = \"1s\""))]).start();
    asks(&server, "250 2.1.5");
    poll("an idle connection stays open", || {
        pause(Duration::from_millis(100));
        status(&server).contains(" 0 idle").then_some(())
    });
    asks(&server, "250 2.1.5");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    ends_empty(server);
}

#[test]
fn no_connection_stays_open_where_none_may() {
    let (address, connections) = lasting();
    let hop = Hop::good();
    let server = filtered(&hop, &[("grey", policy(address, ", idle_max = 0"))]).start();
    for _ in 0..3 {
        asks(&server, "250 2.1.5");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
    ends_empty(server);
}

#[test]
fn a_question_that_meets_the_close_of_an_idle_connection_is_asked_again() {
    // It answers once on each connection and closes it when the next question comes, unlike a server that is down.
    let (address, connections) = counting(|_, mut stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        if request(&mut reader).is_some() {
            stream.write_all(b"action=DUNNO\n\n")?;
        }
        drop(request(&mut reader));
        Ok(())
    });
    let hop = Hop::good();
    let server = filtered(&hop, &[("grey", policy(address, ""))]).start();
    for _ in 0..3 {
        asks(&server, "250 2.1.5");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
    let shown = status(&server);
    assert!(shown.contains("3 connections made, 2 reuses (2 closed by the filter)"), "{shown}");
    assert!(!shown.contains("NOT ANSWERED"), "{shown}");
    let log = ends_empty(server).log;
    assert!(lines(&log, &["screen=not_judged"]).is_empty(), "{log:#?}");
}

#[test]
fn a_server_that_breaks_off_its_answer_has_failed() {
    let (address, connections) = counting(|_, mut stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        if request(&mut reader).is_some() {
            stream.write_all(b"action=DUNNO\n\n")?;
        }
        drop(request(&mut reader));
        stream.write_all(b"action=DU")
    });
    let hop = Hop::good();
    let server = filtered(&hop, &[("grey", policy(address, ""))]).start();
    asks(&server, "250 2.1.5");
    asks(&server, "451 4.7.1");
    assert_eq!(connections.load(Ordering::SeqCst), 1, "an answer that was begun is not asked for again");
    assert!(status(&server).contains("1 NOT ANSWERED"));
    ends_empty(server);
}

#[test]
fn rspamd_decides_whether_its_connection_stays_open() {
    for (field, wanted) in [("", 1), ("Connection: close\r\n", 3)] {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let (address, connections) = counting(move |_, mut stream| {
            let mut reader = BufReader::new(stream.try_clone()?);
            loop {
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head)? == 0 {
                        return Ok(());
                    }
                }
                for line in head.lines() {
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.parse().expect("a number");
                    }
                }
                reader.read_exact(&mut vec![0; length])?;
                seen.lock().expect("no panic").push(head);
                let body = r#"{"action":"no action","score":0.0,"required_score":15.0}"#;
                let reply = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(reply.as_bytes())?;
                if !field.is_empty() {
                    return Ok(());
                }
            }
        });
        let hop = Hop::good();
        let server = filtered(&hop, &[("rspamd", format!("kind = \"rspamd\", address = \"{address}\""))]).start();
        for _ in 0..3 {
            send(&server, "a@client.test", &["b@example.com"], b"Subject: x\r\n\r\nhello\r\n");
        }
        hop.wait(3);
        assert_eq!(connections.load(Ordering::SeqCst), wanted, "{field}");
        assert!(heads.lock().expect("no panic").iter().all(|head| head.contains("Connection: keep-alive\r\n")));
        ends_empty(server);
    }
}
