//! Webhooks: outcomes reach a receiver, signed; one that fails gets them again, and mail never waits for it.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{any_line, ends_empty, relay, send, wait_line};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use testkit::harness::{SOON, Setup, needs, poll};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// A request that a receiver got.
#[derive(Clone, Debug)]
struct Request {
    head: String,
    body: String,
}

impl Request {
    fn field(&self, name: &str) -> &str {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    fn events(&self) -> Vec<Value> {
        serde_json::from_str(&self.body).expect("a list of events")
    }
}

/// A receiver that answers with the statuses in their order, and then with the last for ever. No status: no answer.
struct Receiving {
    address: SocketAddr,
    requests: Receiver<Request>,
    statuses: Arc<Mutex<Vec<Option<u16>>>>,
}

impl Receiving {
    fn new(statuses: &[Option<u16>]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (tell, requests) = mpsc::channel();
        let statuses = Arc::new(Mutex::new(statuses.to_vec()));
        let left = Arc::clone(&statuses);
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (tell, left) = (tell.clone(), Arc::clone(&left));
                std::thread::spawn(move || answer(stream, &tell, &left));
            }
        });
        Self { address, requests, statuses }
    }

    #[track_caller]
    fn next(&self) -> Request {
        self.requests.recv_timeout(SOON).expect("a request")
    }

    fn answer_with(&self, status: u16) {
        *self.statuses.lock().expect("no panic") = vec![Some(status)];
    }
}

fn answer(stream: TcpStream, tell: &Sender<Request>, left: &Mutex<Vec<Option<u16>>>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).expect("the body");
    let mut left = left.lock().expect("no panic");
    let status = if left.len() > 1 { left.remove(0) } else { left[0] };
    drop(left);
    drop(tell.send(Request { head, body: String::from_utf8(body).expect("UTF-8") }));
    match status {
        Some(status) => {
            let reply = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            drop(stream.get_mut().write_all(reply.as_bytes()));
        }
        None => drop(stream.read(&mut [0; 1])),
    }
}

fn with_webhook(setup: Setup, receiver: &Receiving, more: &str) -> Setup {
    let secret = setup.path("webhook.secret");
    std::fs::write(&secret, format!("{SECRET}\n")).expect("written");
    let hook = format!(
        "[{{name = \"ops\", url = \"http://{}/mail?key=hidden\", secret_file = {secret:?}{more}}}]",
        receiver.address
    );
    setup.set("webhook", hook)
}

/// The signature of a request by openssl.
fn signature_of(request: &Request) -> Option<String> {
    let openssl = needs::program("openssl")?;
    let time = request.field("Mailrace-Signature").strip_prefix("t=")?.split(',').next()?.to_owned();
    let mut child = Command::new(openssl)
        .args(["dgst", "-sha256", "-hmac", SECRET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(format!("{time}.{}", request.body).as_bytes()).expect("written");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    Some(format!("t={time},v1={}", text.split_whitespace().last()?))
}

#[test]
fn outcomes_arrive_signed_and_are_sent_again_until_they_are_taken() {
    let receiver = Receiving::new(&[Some(500), Some(302), Some(204)]);
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<never@") => Act::Say("550 5.1.1 no such user"),
        _ => Act::Well,
    }));
    let mut server = with_webhook(relay(&[&hop]), &receiver, "").start();
    let id = send(&server, "ann@client.test", &["bob@d.test", "never@d.test"], CONTENT);
    let first = receiver.next();
    let line = any_line(&mut server, &["webhook ops", "the answer is 500"]);
    assert!(line.contains("mail goes on") && !line.contains("hidden"), "{line}");
    let again = [receiver.next(), receiver.next()];
    wait_line(&mut server, &["webhook ops", "takes events again"]);
    for request in &again {
        assert_eq!((request.field("Mailrace-Batch"), &request.body), (first.field("Mailrace-Batch"), &first.body));
    }
    let mut events = again[1].events();
    // The other outcome may come in a request of its own.
    if events.len() == 1 {
        events.extend(receiver.next().events());
    }
    let found = |name: &str| events.iter().find(|event| event["event"] == name).unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!((&found("sent")["id"], &found("sent")["to"][0]), (&Value::from(id), &Value::from("<bob@d.test>")));
    assert!(found("failed")["reply"].as_str().is_some_and(|reply| reply.contains("no such user")));
    assert!(first.head.starts_with("POST /mail?key=hidden HTTP/1.1\r\n"), "{}", first.head);
    for request in [&first, &again[1]] {
        if let Some(expected) = signature_of(request) {
            assert_eq!(request.field("Mailrace-Signature"), expected);
        }
    }
    ends_empty(server);
}

#[test]
fn traces_go_to_a_collector() {
    let receiver = Receiving::new(&[Some(200)]);
    let hop = Hop::good();
    let more = ", format = \"otlp\", events = [\"accepted\", \"sent\", \"queue_command\"]";
    let server = with_webhook(relay(&[&hop]), &receiver, more).start();
    let id: mail::QueueId = send(&server, "ann@client.test", &["bob@d.test"], CONTENT).parse().expect("an id");
    let mut spans: Vec<Value> = Vec::new();
    while !spans.iter().any(|span| span["name"] == "deliver") {
        let body: Value = serde_json::from_str(&receiver.next().body).expect("JSON");
        let found = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.extend(found.as_array().expect("spans").iter().cloned());
    }
    let named =
        |name: &str| spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {spans:?}"));
    assert_eq!(named("deliver")["parentSpanId"], named("accept")["spanId"]);
    for phase in ["connect", "greeting", "ehlo", "mail", "rcpt", "content"] {
        assert_eq!(named(phase)["parentSpanId"], named("deliver")["spanId"]);
    }
    let trace = format!("6d61696c72616365{:016x}", id.to_u64());
    assert!(spans.iter().all(|span| span["traceId"] == trace.as_str()), "{spans:?}");
    ends_empty(server);
}

#[test]
fn a_receiver_that_never_answers_costs_events_beyond_the_bound_and_no_mail() {
    let receiver = Receiving::new(&[None]);
    let hop = Hop::good();
    let more = ", events = [\"accepted\", \"sent\"], queue_max = 10, request_time_max = \"1s\", give_up_after = \"1d\"";
    let mut server = with_webhook(relay(&[&hop]), &receiver, more).start();
    for number in 0..20 {
        send(&server, "ann@client.test", &[&format!("r{number}@d.test")], CONTENT);
    }
    assert_eq!(hop.wait(20).len(), 20);
    any_line(&mut server, &["webhook ops", "no answer within 1 s"]);
    poll("events are not dropped", || {
        let hook = server.whole_status()["webhooks"][0].clone();
        (hook["waiting"] == 10 && hook["dropped"] == 30 && hook["failing"].is_string()).then_some(())
    });
    // Waiting events are sent when the receiver is well again.
    receiver.answer_with(200);
    poll("events are not sent", || (server.whole_status()["webhooks"][0]["sent"] == 10).then_some(()));
    ends_empty(server);
}

#[test]
fn requests_are_given_up_after_their_time() {
    let receiver = Receiving::new(&[Some(503)]);
    let hop = Hop::good();
    let mut server = with_webhook(relay(&[&hop]), &receiver, ", give_up_after = \"2s\"").start();
    send(&server, "ann@client.test", &["bob@d.test"], CONTENT);
    wait_line(&mut server, &["webhook ops", "1 events given up after 2 s"]);
    let hook = server.whole_status()["webhooks"][0].clone();
    assert_eq!((&hook["dropped"], &hook["waiting"]), (&Value::from(1), &Value::from(0)), "{hook}");
    ends_empty(server);
}
