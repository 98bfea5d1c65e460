//! HTTP with raw sockets: metrics, health and API, and the clients that must get nothing.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{SOON, Server, Setup, needs, poll, run_with_input, text};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const VIEWER: &str = "fedcba9876543210fedcba9876543210";

fn setup() -> Setup {
    Setup::new().set("http.address", "\"127.0.0.1:0\"")
}

/// With a token for an operator and one for a viewer.
fn with_tokens() -> Setup {
    let setup = setup();
    std::fs::write(setup.path("ann"), format!("{TOKEN}\n")).expect("written");
    std::fs::write(setup.path("viewer"), format!("{VIEWER}\n")).expect("written");
    let token = |name: &str, role: &str| format!("{{name = {name:?}, file = {:?}, role = {role:?}}}", setup.path(name));
    let tokens = format!("[{}, {}]", token("ann", "operate"), token("viewer", "view"));
    setup.set("http.token", tokens)
}

pub(super) fn http_address(server: &Server) -> SocketAddr {
    let address = server.whole_status()["http"].as_str().map(str::to_owned);
    address.expect("HTTP is on").parse().expect("an address")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    stream
}

/// Sends octets and reads until the server closes; status, header section and body.
#[track_caller]
fn exchange(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, head.to_lowercase(), body.to_owned())
}

/// A request with these fields beside Host and Connection.
fn request(method: &str, path: &str, fields: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}{length}\r\n{body}")
}

#[track_caller]
fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    exchange(address, &request("GET", path, "", ""))
}

#[track_caller]
fn get_json(address: SocketAddr, path: &str) -> Value {
    let (status, head, body) = get(address, path);
    assert_eq!(status, 200, "{path}: {head} {body}");
    assert!(head.contains("content-type: application/json"), "{head}");
    // Chunks do not occur: the length is known.
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// A change by an operator; status and the lines of the answer.
fn change(address: SocketAddr, path: &str, body: &Value) -> (u16, Vec<Value>) {
    let fields = format!("Authorization: Bearer {TOKEN}\r\nX-Mailrace: 1\r\nContent-Type: application/json\r\n");
    let (status, head, answer) = exchange(address, &request("POST", path, &fields, &body.to_string()));
    let answer = if head.contains("transfer-encoding: chunked") { dechunked(&answer) } else { answer };
    let lines = answer.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{answer}")));
    (status, lines.collect())
}

fn dechunked(text: &str) -> String {
    let mut rest = text;
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        whole.push_str(&after[..size]);
        rest = after.get(size + 2..).unwrap_or("");
    }
    whole
}

pub(super) fn send(server: &Server, from: &str, to: &[&str]) -> String {
    let mut client = greeted(server.address());
    client.expect(&format!("MAIL FROM:<{from}>"), "250");
    for recipient in to {
        client.expect(&format!("RCPT TO:<{recipient}>"), "250");
    }
    client.data(b"Subject: <script>alert(1)</script>\r\n\r\nhello\r\n")
}

#[test]
fn health_and_metrics() {
    let server = setup().start();
    let address = http_address(&server);
    assert_eq!(get(address, "/healthz/live").0, 200);
    let (status, head, body) = get(address, "/healthz/ready");
    assert_eq!((status, body.as_str()), (200, "ready\n"));
    for field in
        ["cache-control: no-store", "x-content-type-options: nosniff", "content-security-policy: default-src 'none'"]
    {
        assert!(head.contains(field), "{field}: {head}");
    }
    // Probes without a name are answered; they learn nothing else.
    assert_eq!(exchange(address, "GET /healthz/ready HTTP/1.0\r\n\r\n").0, 200);
    assert_eq!(exchange(address, "GET /metrics HTTP/1.0\r\n\r\n").0, 400);
    send(&server, "ann@client.test", &["bob@example.com"]);
    let (status, head, metrics) = get(address, "/metrics");
    assert!(status == 200 && head.contains("text/plain; version=0.0.4"), "{head}");
    for line in ["smtpd_messages_total 1", "queue_recipients{state=\"waiting\"} 1", "spool_pressure{state=\"none\"} 1"]
    {
        assert!(metrics.contains(&format!("\nmailrace_{line}\n")), "{line}: {metrics}");
    }
    let (status, _, nothing) = exchange(address, &request("HEAD", "/metrics", "", ""));
    assert_eq!((status, nothing.as_str()), (200, ""));
    if let Some(promtool) = needs::program("promtool") {
        let output = run_with_input(Command::new(promtool).args(["check", "metrics"]), &metrics);
        assert!(output.status.success(), "{}{}", text(&output), String::from_utf8_lossy(&output.stderr));
        // Negative control: it complains about a family without a description.
        let bad = "mailrace_things_total 1\n";
        let output = run_with_input(Command::new("promtool").args(["check", "metrics"]), bad);
        assert!(!output.status.success());
    }
}

/// Alerts and dashboard name only what the server has.
#[test]
fn the_packaged_rules_and_dashboard_fit_the_metrics() {
    let server = setup().start();
    let (_, _, metrics) = get(http_address(&server), "/metrics");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let rules = folder.join("prometheus/mailrace.rules.yml");
    let mut found = 0;
    for file in [&rules, &folder.join("grafana/mailrace.json")] {
        let text = std::fs::read_to_string(file).expect("read");
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        for part in text.split(|letter: char| !is_name(letter)).filter(|part| part.starts_with("mailrace_")) {
            // Families of filters are there with a filter.
            let is_there = metrics.contains(&format!("\n{part} ")) || metrics.contains(&format!("\n{part}{{"));
            assert!(is_there || part.starts_with("mailrace_filter_"), "{}: {part}", file.display());
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
    if let Some(promtool) = needs::program("promtool") {
        let output = Command::new(promtool).args(["check", "rules"]).arg(rules).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_server_that_stops_is_not_ready() {
    let server = setup().start();
    let address = http_address(&server);
    // A transaction keeps the server from ending.
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    server.signal(rustix::process::Signal::TERM);
    let (status, body) = poll("it is still ready", || {
        let (status, _, body) = get(address, "/healthz/ready");
        (status != 200).then_some((status, body))
    });
    assert_eq!((status, body.as_str()), (503, "the server is stopping\n"));
    assert_eq!(get(address, "/healthz/live").0, 200);
}

#[test]
fn the_queue_is_read_by_pages() {
    let server = setup().start();
    let address = http_address(&server);
    let ids: Vec<String> =
        (0..5).map(|number| send(&server, "ann@client.test", &[&format!("b{number}@example.com")])).collect();
    let status = get_json(address, "/api/v1/status");
    assert_eq!((&status["messages"]["accepted"], &status["queue"]["messages"]), (&json!(5), &json!(5)));
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let after = if next.is_empty() { String::new() } else { format!("&after={next}") };
        let page = get_json(address, &format!("/api/v1/queue?limit=2{after}"));
        let messages = page["messages"].as_array().expect("a list");
        assert!(messages.len() <= 2);
        seen.extend(messages.iter().map(|message| message["id"].as_str().expect("an id").to_owned()));
        match page["next"].as_str() {
            Some(id) => next = id.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let count = get_json(address, "/api/v1/queue/count?expression=to%3Ab3%40example.com");
    assert_eq!((&count["totals"]["messages"], count.get("messages")), (&json!(1), None));
    let message = get_json(address, &format!("/api/v1/messages/{}", ids[0]));
    assert_eq!(message["messages"][0]["recipients"][0]["to"], "b0@example.com");
    assert_eq!(get(address, "/api/v1/messages/6AK9BQPE592284").0, 404);
    assert_eq!(get(address, "/api/v1/messages/nonsense").0, 400);
    let destinations = get_json(address, "/api/v1/destinations");
    assert_eq!(destinations["destinations"][0]["recipients"], 5);
    assert_eq!(get_json(address, "/api/v1/quarantine")["messages"], json!([]));
    for path in ["hosts", "mailers", "stragglers?by=host&older=1"] {
        get_json(address, &format!("/api/v1/{path}"));
    }
    for (path, part) in [
        ("queue?limit=0", "from 1 to 1000"),
        ("queue?limit=1001", "from 1 to 1000"),
        ("queue?expression=age:2h", "age takes no ':'"),
        ("queue?colour=red", "there is no field \"colour\" here; there are expression"),
    ] {
        let (status, _, body) = get(address, &format!("/api/v1/{path}"));
        let refusal: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &refusal["reason"]), (400, &json!("request")), "{path}");
        assert!(refusal["error"].as_str().is_some_and(|error| error.contains(part)), "{path}: {body}");
    }
}

#[test]
fn an_operator_changes_the_queue_and_the_log_names_the_token() {
    let mut server = with_tokens().start();
    let address = http_address(&server);
    let first = send(&server, "ann@client.test", &["bob@example.com"]);
    let second = send(&server, "ann@client.test", &["carol@example.net"]);
    let (status, lines) =
        change(address, "/api/v1/queue/hold", &json!({ "ids": [first], "reason": "a look", "for": 600 }));
    assert_eq!((status, &lines[0]["ok"], &lines[0]["recipients"]), (200, &json!(true), &json!(1)), "{lines:?}");
    assert!(server.wait_log("queue=hold").ends_with("queue=hold, messages=1, recipients=1, http=ann"));
    let (_, lines) =
        change(address, "/api/v1/queue/delete", &json!({ "expression": "to:@example.net", "dry_run": true }));
    assert_eq!((lines.len(), &lines[0]["id"], &lines[1]["dry_run"]), (2, &json!(second), &json!(true)), "{lines:?}");
    let (_, lines) = change(address, "/api/v1/queue/delete", &json!({ "expression": "to:@example.net" }));
    assert_eq!((lines.len(), &lines[1]["messages"]), (2, &json!(1)), "{lines:?}");
    let shown = text(&server.control(&["queue", "list", "--json"], b""));
    assert!(shown.contains("\"by\":\"http:ann\"") && shown.contains("a look") && !shown.contains(&second), "{shown}");
    for (path, body, part) in [
        ("delete", json!({}), "needs ids or another condition"),
        ("retry", json!({ "ids": "x" }), "not a list"),
        ("retry", json!({ "action": "delete", "all": true }), "there is no field \"action\" here"),
        ("reroute", json!({ "all": true, "new_destination": "smtp:[" }), "smtp:["),
    ] {
        let (status, lines) = change(address, &format!("/api/v1/queue/{path}"), &body);
        assert_eq!(status, 400, "{lines:?}");
        assert!(lines[0]["error"].as_str().is_some_and(|error| error.contains(part)), "{lines:?}");
    }
}

#[test]
fn rights_are_those_of_the_token() {
    let server = with_tokens().start();
    let address = http_address(&server);
    let id = send(&server, "ann@client.test", &["bob@example.com"]);
    let ask = |method: &str, path: &str, token: &str| {
        let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let body = if method == "POST" { "{\"all\":true}" } else { "" };
        exchange(address, &request(method, path, &format!("{authorization}X-Mailrace: 1\r\n"), body))
    };
    for path in ["/metrics", "/api/v1/status", "/api/v1/queue", "/api/openapi.json"] {
        let (status, head, body) = ask("GET", path, "");
        assert_eq!(status, 401, "{path}: {body}");
        assert!(head.contains("www-authenticate: bearer") && !body.contains("bob@"), "{head} {body}");
        assert_eq!(ask("GET", path, &TOKEN[..31]).0, 401);
        assert_eq!(ask("GET", path, VIEWER).0, 200);
    }
    assert_eq!(ask("POST", "/api/v1/queue/delete", VIEWER).0, 403);
    let headers = format!("/api/v1/messages/{id}?headers=true");
    assert_eq!(ask("GET", &headers, VIEWER).0, 403);
    assert!(ask("GET", &headers, TOKEN).2.contains("<script>"));
    assert_eq!(server.whole_status()["queue"]["messages"], 1, "nothing was deleted");
    assert_eq!(ask("POST", "/api/v1/queue/delete", TOKEN).0, 200);
    assert_eq!(server.whole_status()["queue"]["messages"], 0);
}

#[test]
fn a_page_of_another_site_gets_and_changes_nothing() {
    let server = setup().set("http.without_token", "\"operate\"").start();
    let address = http_address(&server);
    send(&server, "ann@client.test", &["bob@example.com"]);
    // A foreign name that leads to this address.
    let (status, _, body) =
        exchange(address, "GET /api/v1/queue HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert!(status == 421 && body.contains("http.names") && !body.contains("bob@"), "{status} {body}");
    let delete = |fields: &str| exchange(address, &request("POST", "/api/v1/queue/delete", fields, "{\"all\":true}")).0;
    assert_eq!(delete("Content-Type: text/plain\r\n"), 403, "a form of another site");
    assert_eq!(delete("X-Mailrace: 1\r\nContent-Type: text/plain\r\n"), 415);
    assert_eq!(delete("X-Mailrace: 1\r\nOrigin: http://evil.example\r\n"), 403);
    assert_eq!(delete("X-Mailrace: 1\r\nSec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(
        exchange(address, &request("OPTIONS", "/api/v1/queue/delete", "Origin: http://evil.example\r\n", "")).0,
        405
    );
    assert_eq!(server.whole_status()["queue"]["messages"], 1, "nothing was deleted");
    // The same from our page.
    assert_eq!(delete("X-Mailrace: 1\r\nOrigin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n"), 200);
    assert_eq!(server.whole_status()["queue"]["messages"], 0);
}

#[test]
fn clients_that_take_too_much_are_refused() {
    let setup = setup().set("http.header_bytes_max", "8192").set("http.body_bytes_max", "1024");
    let server = setup.set("http.connections_max", "4").set("http.without_token", "\"operate\"").start();
    let address = http_address(&server);
    let long = format!("X-Long: {}\r\n", "x".repeat(9_000));
    assert_eq!(exchange(address, &request("GET", "/api/v1/status", &long, "")).0, 431);
    let body = format!("{{\"expression\":\"{}\"}}", "x".repeat(1_100));
    let (status, _, said) = exchange(address, &request("POST", "/api/v1/queue/hold", "X-Mailrace: 1\r\n", &body));
    assert!(status == 413 && said.contains("http.body_bytes_max"), "{status} {said}");
    let chunked = "X-Mailrace: 1\r\nTransfer-Encoding: chunked\r\n";
    let chunks = format!("800\r\n{}\r\n0\r\n\r\n", " ".repeat(0x800));
    let (status, _, said) =
        exchange(address, &format!("{}{chunks}", request("POST", "/api/v1/queue/hold", chunked, "")));
    assert_eq!(status, 413, "{said}");
    for (request, expected) in
        [("nonsense\r\n\r\n", 400), ("GET /\u{7f}\u{1b}[2J HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)]
    {
        assert_eq!(exchange(address, request).0, expected, "{request:?}");
    }
    // Clients that say nothing, until four have a place: a connection before them may keep its place for a moment.
    let mut silent: Vec<TcpStream> = Vec::new();
    let (status, _, said) = poll("the fifth is served", || {
        silent.push(connect(address));
        let answer = get(address, "/healthz/live");
        (answer.0 != 200).then_some(answer)
    });
    assert!(status == 503 && said.contains("http.connections_max"), "{status} {said}");
    drop(silent);
    let metrics = poll("places stay taken", || {
        let (status, _, body) = get(address, "/metrics");
        (status == 200).then_some(body)
    });
    for limit in ["connections_max", "header_bytes_max", "body_bytes_max"] {
        let line = metrics.lines().find(|line| line.contains(&format!("http_refused_total{{limit=\"http.{limit}\"}}")));
        assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{limit}: {line:?}");
    }
}

#[test]
fn slow_clients_are_cut_off() {
    let server = setup().set("http.request_time_max", "\"3s\"").set("http.without_token", "\"operate\"").start();
    let address = http_address(&server);
    let mut half = connect(address);
    half.write_all(b"GET /api/v1/status HTT").expect("sent");
    let mut answer = String::new();
    half.read_to_string(&mut answer).expect("it closes");
    let mut body = connect(address);
    let begin = request("POST", "/api/v1/queue/hold", "X-Mailrace: 1\r\nContent-Length: 100\r\n", "");
    body.write_all(begin.as_bytes()).expect("sent");
    body.write_all(b"{\"all").expect("sent");
    let mut answer = String::new();
    body.read_to_string(&mut answer).expect("it closes");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // One that asks and does not read: its place is free again.
    let mut deaf = connect(address);
    deaf.set_write_timeout(Some(Duration::from_secs(5))).expect("a limit");
    let asked = request("GET", "/metrics", "", "").replace("Connection: close\r\n", "");
    while deaf.write_all(asked.as_bytes()).is_ok() {}
    // A connection counts a moment longer than its client sees it.
    let metrics = poll("not only this one is open", || {
        let (status, _, metrics) = get(address, "/metrics");
        assert_eq!(status, 200);
        metrics.contains("\nmailrace_http_connections 1\n").then_some(metrics)
    });
    let limit = "mailrace_http_refused_total{limit=\"http.request_time_max\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(limit)).expect("a count");
    assert_ne!(count, "0");
}

/// Opens connections in a process of its own, which has its own limit of descriptors, and says half a request on each.
const SLOW_CLIENTS: &str = "
import resource, socket, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
wanted = min(int(sys.argv[2]), hard - 100)
host, port = sys.argv[1].rsplit(':', 1)
held = []
for _ in range(wanted):
    held.append(socket.create_connection((host, int(port))))
    held[-1].send(b'GET /metr')
print(len(held), flush=True)
sys.stdin.read()
";

#[test]
fn ten_thousand_slow_clients_cost_little_memory_and_no_mail() {
    let Some(python) = needs::program("python3") else { return };
    let setup = setup().set("http.connections_max", "20000").set("http.request_time_max", "\"1h\"");
    let server = setup.start();
    let address = http_address(&server);
    assert_eq!(get(address, "/healthz/live").0, 200);
    let before = server.memory_kib("VmRSS");
    let mut clients = Command::new(python)
        .args(["-c", SLOW_CLIENTS, &address.to_string(), "10000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(clients.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let held: u64 = line.trim().parse().expect("a number");
    poll("the clients are not held", || {
        let (_, _, metrics) = get(address, "/metrics");
        metrics.contains(&format!("\nmailrace_http_connections {}\n", held + 1)).then_some(())
    });
    let each = server.memory_kib("VmRSS").saturating_sub(before) * 1_024 / held;
    println!("{held} slow clients, {each} octets each");
    assert!(held >= 500 && each < 32 << 10, "{held} clients with {each} octets each");
    greeted(server.address()).message(b"Subject: x\r\n\r\nhello\r\n");
    assert_eq!(get(address, "/healthz/live").0, 200);
    drop(clients.stdin.take());
    drop(clients.wait());
    poll("places stay taken", || get(address, "/metrics").2.contains("\nmailrace_http_connections 1\n").then_some(()));
}

#[test]
fn a_reload_replaces_tokens_and_a_bad_file_keeps_them() {
    let server = with_tokens().start();
    let address = http_address(&server);
    let ask = |token: &str| {
        exchange(address, &request("GET", "/api/v1/status", &format!("Authorization: Bearer {token}\r\n"), "")).0
    };
    let new = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    std::fs::write(server.setup.path("ann"), new).expect("written");
    assert_eq!((ask(TOKEN), ask(new)), (200, 401), "before the reload");
    assert!(server.control(&["reload"], b"").status.success());
    assert_eq!((ask(TOKEN), ask(new)), (401, 200));
    std::fs::write(server.setup.path("ann"), "short").expect("written");
    assert!(server.control(&["reload"], b"").status.success());
    assert_eq!(ask(new), 200, "the old token stays");
}

#[test]
fn mistakes_end_the_start_with_their_place() {
    let (status, said) = Setup::new().set("http.address", "\"0.0.0.0:8025\"").fails();
    assert!(status == Some(78) && said.contains("mailrace.toml:") && said.contains("[[http.token]]"), "{said}");
    let setup = setup();
    let token = format!("[{{name = \"ann\", file = {:?}, role = \"operate\"}}]", setup.path("ann"));
    std::fs::write(setup.path("ann"), "secret\n").expect("written");
    let (status, said) = setup.set("http.token", token).fails();
    assert!(status == Some(78) && said.contains("fewer than 16 characters"), "{status:?} {said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    let (status, said) = Setup::new().set("http.address", format!("\"{address}\"")).fails();
    assert!(status == Some(69) && said.contains(&format!("http.address: cannot listen on {address}")), "{said}");
}
