//! The protocol over a pair of sockets and over a path, with a handler that is made up.

use super::serve::Connection;
use super::*;
use crate::requester::Requester;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

const GATE: Gate = Gate { uid: 200, gid: 201, has_guests: false };
const KEEPER: Peer = Peer { uid: 200, gid: 200, pid: 1 };
/// No user has this number, so no file of the machine makes it a member of anything.
const STRANGER: Peer = Peer { uid: 3_999_999_999, gid: 3_999_999_999, pid: 1 };

/// Answers each command in another shape.
struct Fake;

impl Handler for Fake {
    async fn handle(&self, request: Request, by: Requester, _: Rights) -> Answer {
        let Requester::User(uid) = by else { return Answer::refused(Reason::Request, "no user") };
        match request {
            Request::Hosts
            | Request::ForgetHosts
            | Request::Mailers
            | Request::Statistics
            | Request::Errors
            | Request::Config
            | Request::Storms
            | Request::ClusterDrain
            | Request::ClusterLeave { .. }
            | Request::ClusterAdopt(_)
            | Request::History(_)
            | Request::DeliverTest(_)
            | Request::Connections(_)
            | Request::Abort(_)
            | Request::Transcript(_)
            | Request::Limits
            | Request::Limit(_)
            | Request::Explain(_) => Answer::done(),
            Request::Ping => Answer::Done(Map::from_iter([("uid".to_owned(), json!(uid))])),
            Request::Reload => Answer::Refused {
                reason: Reason::Config,
                error: "1 problem; the old configuration stays".to_owned(),
                problems: vec![Problem { file: "m.toml".into(), line: 2, column: 5, text: "no such key".into() }],
            },
            Request::Status => {
                let (sender, receiver) = mpsc::channel(1);
                tokio::spawn(async move {
                    for number in 0..3 {
                        let line = Map::from_iter([("number".to_owned(), json!(number))]);
                        sender.send(ListPart::Line(line)).await.unwrap();
                    }
                    sender.send(ListPart::Last(Map::from_iter([("more".to_owned(), json!(0))]))).await.unwrap();
                });
                Answer::List(receiver)
            }
            Request::LogReopen => Answer::done(),
            Request::Queue(_) => {
                let (sender, receiver) = mpsc::channel(1);
                tokio::spawn(async move { sender.send(ListPart::Line(Map::new())).await.unwrap() });
                Answer::List(receiver)
            }
            Request::Smtp => Answer::Takeover(Box::new(move |mut stream| {
                Box::pin(async move {
                    stream.write_all(format!("220 user {uid}\r\n").as_bytes()).await.unwrap();
                    let mut heard = String::new();
                    stream.read_to_string(&mut heard).await.unwrap();
                    stream.write_all(heard.to_uppercase().as_bytes()).await.unwrap();
                })
            })),
        }
    }
}

/// A client of one connection.
struct Client {
    stream: UnixStream,
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
    rooms: Arc<Semaphore>,
}

impl Client {
    fn of(peer: Peer) -> Self {
        Self::at(peer, GATE)
    }

    fn at(peer: Peer, gate: Gate) -> Self {
        let (stream, theirs) = UnixStream::pair().unwrap();
        let (stop, stopping) = watch::channel(false);
        let rooms = Arc::new(Semaphore::new(1));
        let room = Arc::clone(&rooms).try_acquire_owned().unwrap();
        let connection = Connection { stream: theirs, peer, room: serve::RequestSlot::of(room), stopping };
        let task = tokio::spawn(async move { connection.serve_connection(&gate, &Fake).await });
        Self { stream, task, stop, rooms }
    }

    /// Sends everything and the end, and returns the answers.
    async fn exchange(mut self, input: &[u8]) -> Vec<Value> {
        self.stream.write_all(input).await.unwrap();
        self.stream.shutdown().await.unwrap();
        let mut text = String::new();
        self.stream.read_to_string(&mut text).await.unwrap();
        self.task.await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn requests_are_answered_in_their_order() {
    let input =
        b"{\"command\":\"ping\"}\r\n{\"command\":\"status\"}\n{\"command\":\"reload\"}\n{\"command\":\"log-reopen\"}";
    let answers = Client::of(KEEPER).exchange(input).await;
    let problem = json!({ "file": "m.toml", "line": 2, "column": 5, "text": "no such key" });
    let expected = [
        json!({ "ok": true, "uid": 200 }),
        json!({ "number": 0 }),
        json!({ "number": 1 }),
        json!({ "number": 2 }),
        json!({ "ok": true, "lines": 3, "more": 0 }),
        json!({ "ok": false, "reason": "config", "error": "1 problem; the old configuration stays", "problems": [problem] }),
        json!({ "ok": true }),
    ];
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn guests_may_look_and_nothing_else() {
    let queue = |fields: &str| format!("{{\"command\":\"queue\",\"action\":{fields}}}\n");
    let headers = format!("\"show\",\"ids\":[\"{}\"],\"headers\":true", mail::QueueId::MIN);
    let bare = |name: &str| format!("{{\"command\":{name:?}}}\n");
    let input = [
        bare("ping"),
        queue("\"list\""),
        queue(&headers),
        queue("\"delete\",\"all\":true"),
        queue("\"retry\",\"all\":true"),
        bare("reload"),
        bare("status"),
        bare("smtp"),
        bare("ping"),
    ]
    .concat();
    let input = input.as_bytes();
    let answers = Client::at(STRANGER, GATE.with_guests(true)).exchange(input).await;
    let shapes: Vec<String> = answers
        .iter()
        .map(|answer| {
            answer.get("reason").or_else(|| answer.get("ok")).map_or_else(|| "line".to_owned(), ToString::to_string)
        })
        .collect();
    let refused = "\"permission\"";
    // The list of the made-up handler breaks off.
    assert_eq!(
        shapes,
        ["true", "line", "\"failed\"", refused, refused, refused, refused, refused, refused, "true"],
        "{answers:?}"
    );
    // Negative control: without guests nothing is answered.
    let answers = Client::of(STRANGER).exchange(b"").await;
    assert_eq!((answers.len(), &answers[0]["reason"]), (1, &json!("permission")));
}

#[tokio::test]
async fn a_list_that_just_ends_is_a_failure() {
    let answers = Client::of(KEEPER).exchange(b"{\"command\":\"queue\",\"action\":\"list\"}\n").await;
    let [_, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((&last["ok"], &last["reason"]), (&json!(false), &json!("failed")));
}

#[tokio::test]
async fn a_line_that_is_no_request_is_refused_and_the_next_one_answered() {
    let answers = Client::of(KEEPER).exchange(b"{\"command\":\n\n{\"command\":\"ping\"}\n").await;
    let [malformed, empty, ping] = answers.as_slice() else { panic!("{answers:?}") };
    for refused in [malformed, empty] {
        assert_eq!((&refused["ok"], &refused["reason"]), (&json!(false), &json!("request")));
    }
    assert_eq!(ping["ok"], true);
}

#[tokio::test]
async fn a_line_may_have_its_full_length_and_no_more() {
    let padded = |length: usize| {
        let command = "{\"command\":\"ping\"}";
        format!("{command}{}\n{command}\n", " ".repeat(length - command.len()))
    };
    let answers = Client::of(KEEPER).exchange(padded(LINE_BYTES_MAX).as_bytes()).await;
    assert_eq!(answers.iter().map(|answer| &answer["ok"]).collect::<Vec<_>>(), [true, true]);

    let mut client = Client::of(KEEPER);
    client.stream.write_all(padded(LINE_BYTES_MAX + 1).as_bytes()).await.unwrap();
    let mut answers = BufReader::new(&mut client.stream).lines();
    let refused: Value = serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(refused["reason"], "request");
    assert!(refused["error"].as_str().unwrap().contains("65536"), "{refused}");
    client.task.await.unwrap();
}

#[tokio::test]
async fn a_stranger_is_refused() {
    let answers = Client::of(STRANGER).exchange(b"").await;
    let [refused] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(refused["reason"], "permission");
    assert!(refused["error"].as_str().unwrap().contains("user 3999999999"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_line_ends_the_connection() {
    let mut client = Client::of(KEEPER);
    client.stream.write_all(b"{\"command\":").await.unwrap();
    let begun = tokio::time::Instant::now();
    client.task.await.unwrap();
    assert_eq!(begun.elapsed(), LINE_TIME_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_ends_the_connection() {
    let mut client = Client::of(KEEPER);
    let flood = "{\"command\":\"reload\"}\n".repeat(100_000);
    // Both buffers fill up: neither side gets on, and the server gives up first.
    let sent = client.stream.write_all(flood.as_bytes()).await;
    assert!(sent.is_err(), "the server has gone");
    client.task.await.unwrap();
}

#[tokio::test]
async fn a_session_takes_the_connection_over() {
    let mut client = Client::of(KEEPER);
    client.stream.write_all(b"{\"command\":\"smtp\"}\n").await.unwrap();
    let mut begin = [0; 25];
    client.stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin[..], b"{\"ok\":true}\n220 user 200\r");
    assert_eq!(client.rooms.available_permits(), 1, "it counts for no limit");
    client.stop.send_replace(true);
    client.stream.write_all(b"quit\n").await.unwrap();
    client.stream.shutdown().await.unwrap();
    let mut rest = String::new();
    client.stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "\nQUIT\n");
    client.task.await.unwrap();

    let early = Client::of(KEEPER).exchange(b"{\"command\":\"smtp\"}\nEHLO early\r\n").await;
    assert_eq!(early.len(), 1);
    assert_eq!(early[0]["reason"], "request");
}

#[tokio::test]
async fn a_stop_ends_a_connection_that_asks_nothing() {
    let client = Client::of(KEEPER);
    client.stop.send_replace(true);
    client.task.await.unwrap();
}

/// A server on a path.
async fn with_server(check: impl AsyncFnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control");
    let socket = ControlSocket::bind(&path, None).unwrap();
    let gate = Gate::new(socket.gid());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(socket, gate, Arc::new(Fake), async { drop(stopped.await) }));
    check(&path).await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(60), server).await.unwrap().unwrap().unwrap();
    assert!(!path.exists(), "the name goes with the server");
}

async fn connect(path: &Path) -> Lines<BufReader<UnixStream>> {
    BufReader::new(UnixStream::connect(path).await.unwrap()).lines()
}

async fn ask(client: &mut Lines<BufReader<UnixStream>>) -> Option<Value> {
    let ping = Request::Ping.to_line();
    // A connection that was turned away may be closed already.
    client.get_mut().write_all(ping.as_bytes()).await.unwrap_or(());
    let line = client.next_line().await.ok()??;
    Some(serde_json::from_str(&line).unwrap())
}

#[tokio::test]
async fn a_server_on_a_path_knows_its_peers_and_keeps_a_second_one_out() {
    with_server(async |path| {
        let answer = ask(&mut connect(path).await).await.unwrap();
        assert_eq!(answer, json!({ "ok": true, "uid": os::machine::uid() }));
        assert!(matches!(ControlSocket::bind(path, None), Err(BindError::InUse { .. })));
        assert_eq!(ask(&mut connect(path).await).await.unwrap()["ok"], true, "the first one was not disturbed");
    })
    .await;
}

#[tokio::test]
async fn connections_are_bounded() {
    with_server(async |path| {
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS_MAX + RESERVED {
            let mut client = connect(path).await;
            assert_eq!(ask(&mut client).await.unwrap()["ok"], true);
            open.push(client);
        }
        let mut one_more = connect(path).await;
        let line = one_more.next_line().await.unwrap().unwrap();
        assert!(line.contains("\"busy\"") && line.contains("32"), "{line}");
        assert_eq!(ask(open.last_mut().unwrap()).await.unwrap()["ok"], true, "the others go on");
        open.pop();
        // The room is free when the server has seen the end, which nothing tells us: ask until it has.
        let mut answer = None;
        while answer.as_ref().is_none_or(|answer: &Value| answer["ok"] != true) {
            answer = ask(&mut connect(path).await).await;
        }
    })
    .await;
}
