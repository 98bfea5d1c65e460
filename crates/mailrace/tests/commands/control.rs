//! `mailrace reload`, `status` and `smtp` against the server's own control socket, with a handler of the test's behind
//! it.

use operator::control::{Answer, ControlSocket, Gate, Handler, Problem, Reason, Request, Rights, serve};
use operator::requester::Requester;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use testkit::harness::{poll, program, run_with_input};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// A server whose configuration is good or not.
struct Fake {
    config_is_good: bool,
}

impl Handler for Fake {
    async fn handle(&self, request: Request, by: Requester, _: Rights) -> Answer {
        let Requester::User(uid) = by else { return Answer::refused(Reason::Request, "no user") };
        match request {
            Request::Reload if self.config_is_good => {
                Answer::reloaded(&["message.size_max: 10 → 20".into()], &["listen: a → b".into()], &["dns", "route"])
            }
            Request::Reload => Answer::Refused {
                reason: Reason::Config,
                error: "1 problem; the old configuration stays".into(),
                problems: vec![Problem { file: "/m.toml".into(), line: 3, column: 9, text: "no such key".into() }],
            },
            Request::Status => {
                let value = serde_json::json!({
                    "version": "9.9", "hostname": "mx.example.org", "pid": 7, "uptime_seconds": 61,
                    "clock": { "machine": 60, "server": 1_800_000_000 },
                    "listen": ["127.0.0.1:2525"], "messages": { "accepted": 4_000 }, "spool": { "durable": false },
                });
                Answer::Done(value.as_object().expect("an object").clone())
            }
            Request::Smtp => Answer::Takeover(Box::new(move |stream| Box::pin(session(stream, uid)))),
            Request::Ping
            | Request::LogReopen
            | Request::Queue(_)
            | Request::Hosts
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
        }
    }
}

/// Knows QUIT, and BREAK, which ends a session as a server that goes down does.
async fn session(stream: UnixStream, uid: u32) {
    let mut stream = BufReader::new(stream);
    let mut reply = format!("220 user {uid}\r\n");
    loop {
        stream.get_mut().write_all(reply.as_bytes()).await.expect("the client reads");
        if reply.starts_with("221") || reply.starts_with("421") {
            return;
        }
        let mut line = String::new();
        if stream.read_line(&mut line).await.expect("a line") == 0 {
            return;
        }
        reply = match line.trim_end() {
            "QUIT" => "221 bye\r\n".into(),
            "BREAK" => "421 going down\r\n".into(),
            other => format!("250 {other}\r\n"),
        };
    }
}

/// A server on a path, as long as this lives.
struct Server {
    _runtime: Runtime,
    path: PathBuf,
}

fn server(test: &str, config_is_good: bool) -> Server {
    // Names of sockets are short: not in the directory of the build.
    let path = std::env::temp_dir().join(format!("mailrace-{}-{test}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let socket = ControlSocket::bind(&path, None).expect("bound");
    let gate = Gate::new(socket.gid());
    runtime.spawn(serve(socket, gate, Arc::new(Fake { config_is_good }), std::future::pending()));
    Server { _runtime: runtime, path }
}

/// Runs a command on a path with some input; its status, and both outputs in one.
fn run(command: &[&str], path: &Path, input: &str) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = run_with_input(program().args(command).arg("--control").arg(path), input);
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn a_reload_says_what_changed_or_what_is_wrong() {
    let server_ = server("reload", true);
    let expected = "reloaded\n  message.size_max: 10 → 20\n  waits for a restart: listen: a → b\n  waiting mail is \
                    tried again: dns, route changed\n";
    assert_eq!(run(&["reload"], &server_.path, ""), (Some(0), expected.into()));
    drop(server_);
    let server_ = server("reload", false);
    let expected = "mailrace: 1 problem; the old configuration stays\n  /m.toml:3:9: no such key\n";
    assert_eq!(run(&["reload"], &server_.path, ""), (Some(78), expected.into()));
}

#[test]
fn a_status_is_for_people_or_for_programs() {
    let server = server("status", true);
    let (exit, text) = run(&["status"], &server.path, "");
    assert_eq!(exit, Some(0), "{text}");
    for part in
        ["mailrace 9.9 on mx.example.org, process 7, up 1 min 1 s\n", "4,000 accepted", "NOT DURABLE", "127.0.0.1:2525"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (exit, text) = run(&["status", "--json"], &server.path, "");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((exit, value.pointer("/messages/accepted")), (Some(0), Some(&4_000.into())));
}

/// Without --control the socket is that of the configuration that the environment names.
#[test]
fn the_environment_names_a_configuration_with_the_socket() {
    let server = server("environment", true);
    let path = std::env::temp_dir().join(format!("mailrace-{}-environment.toml", std::process::id()));
    let status = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let output = program().arg("status").env("MAILRACE_CONFIG", &path).env("HOME", "/nonexistent").output();
        String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned()
    };
    assert!(status(&format!("control.path = {:?}\n", server.path)).contains("mx.example.org"));
    // Its socket is not there: the usual ones are tried.
    assert!(!status("control.path = '/nonexistent/control'\n").contains("mx.example.org"));
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn a_session_over_standard_input() {
    let server = server("smtp", true);
    let (exit, text) = run(&["smtp"], &server.path, "EHLO me\nQUIT\n");
    assert!(
        exit == Some(0) && text.starts_with("220 user ") && text.ends_with("\r\n250 EHLO me\r\n221 bye\r\n"),
        "{text}"
    );
    let (exit, text) = run(&["smtp"], &server.path, "NOOP\n");
    assert!(exit == Some(0) && text.ends_with("250 NOOP\r\n"), "input that ends without QUIT: {text}");

    // The input stays open here: the server has ended it.
    let mut child = program()
        .args(["smtp", "--control"])
        .arg(&server.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"BREAK\n").expect("it reads");
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(75), "{text}");
    assert!(text.contains("before QUIT"), "{text}");
}

#[test]
fn where_no_server_is() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (exit, text) = run(&["status"], &dir.join("no-control"), "");
    assert_eq!(exit, Some(69), "{text}");
    assert!(text.contains("no-control") && text.contains("start mailrace"), "{text}");
    // The name of a server that was killed.
    let path = std::env::temp_dir().join(format!("mailrace-{}-left", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    // A process that another test is just starting has our files until it is itself.
    poll("somebody still listens", || std::os::unix::net::UnixStream::connect(&path).err());
    let (exit, text) = run(&["smtp"], &path, "EHLO me\n");
    assert_eq!(exit, Some(69), "{text}");
    std::fs::remove_file(&path).expect("left behind");
    assert_eq!(run(&["reload", "--json"], &path, "").0, Some(64));
}
