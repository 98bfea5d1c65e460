//! Trials of the driver over loopback: clients that do not read, do not speak, or speak too early, and the server's
//! end.
//!
//! The dialogs of `smtp` test the protocol; these tests are about errors that only a driver can make.

use super::{Connection, Opening};
use crate::config::Config;
use crate::context::Context;
use crate::dns::ClientName;
use crate::inbound::Inbound;
use crate::listener_profile::ListenerProfile;
use crate::sink::Behaviour;
use crate::transport::Transport;
use mail::Client;
use os::clock;
use smtp::server::{Session, Step};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The patience of a server whose client does not read. Commands before that come sooner, on a busy machine too.
const COMMAND_TIME: Duration = Duration::from_secs(5);

/// Sets a greeting pause that does not end, for loopback too.
fn pause(config: &mut Config) {
    config.accept.greet_pause_for = vec![(vec!["127.0.0.0/8".parse().unwrap()], Duration::from_secs(3_600))];
}

/// A server of one connection.
struct Trial {
    context: Arc<Context>,
    client: TcpStream,
    session: JoinHandle<()>,
}

impl Trial {
    async fn new(configure: impl FnOnce(&mut Config, &mut Behaviour)) -> Self {
        let mut config = Config::default();
        let mut behaviour = Behaviour::default();
        config.accept.reverse_dns = false;
        configure(&mut config, &mut behaviour);
        let lane = Arc::new(ListenerProfile::new(&config, &config.listen[0], None, None));
        let context = Context::trial(config, None);
        let inbound = Inbound::trial(Arc::clone(&context), None, behaviour);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // A client that does not read should be full soon.
        socket.set_recv_buffer_size(4_096).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(4_096).unwrap();
        let session = Session::new(Arc::clone(&lane.settings), Client::Network(peer), None);
        let connection = Connection::new(inbound, lane, session, Opening::default(), clock::now());
        let session = tokio::spawn(connection.run(Transport::Plain(stream)));
        Self { context, client, session }
    }

    /// Makes a trial whose client was greeted.
    async fn greeted(configure: impl FnOnce(&mut Config, &mut Behaviour)) -> Self {
        let mut trial = Self::new(configure).await;
        trial.hear("220 ").await;
        trial
    }

    /// Sends, and returns the first line that begins with `until`; skips lines before it.
    async fn say(&mut self, text: &str, until: &str) -> String {
        timeout(PATIENCE, self.client.write_all(text.as_bytes())).await.unwrap().unwrap();
        self.hear(until).await
    }

    async fn hear(&mut self, until: &str) -> String {
        let mut line = Vec::new();
        loop {
            let octet = timeout(PATIENCE, self.client.read_u8()).await.expect("the server says nothing");
            line.push(octet.expect("the server has closed"));
            if line.ends_with(b"\r\n") {
                let text = String::from_utf8(std::mem::take(&mut line)).unwrap();
                if text.starts_with(until) {
                    return text;
                }
            }
        }
    }

    /// Everything up to the end, which the server makes.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.client.read_to_end(&mut rest)).await;
        read.expect("the server does not close").unwrap();
        String::from_utf8(rest).unwrap()
    }

    /// The session's task ends, and not by a panic, although the client does nothing more.
    async fn ends(self) {
        let ended = timeout(PATIENCE, self.session).await;
        ended.expect("the session goes on").expect("the session panicked");
    }

    /// Sends commands whose replies fill all buffers, until the server reads no more.
    async fn stuff(&mut self, command: &str) {
        let flood = command.repeat(4_096);
        for _ in 0..1_000 {
            match timeout(Duration::from_millis(300), self.client.write_all(flood.as_bytes())).await {
                Ok(written) => written.expect("the server has closed"),
                Err(_) => return,
            }
        }
        panic!("the server takes everything");
    }
}

#[tokio::test]
async fn a_session_from_greeting_to_quit() {
    let mut trial = Trial::greeted(|_, _| {}).await;
    trial.say("EHLO a.test\r\n", "250 HELP").await;
    trial.say("MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n", "354 ").await;
    trial.say("hi\r\n.\r\n", "250 2.0.0 ").await;
    trial.say("QUIT\r\n", "221 ").await;
    assert_eq!(trial.rest().await, "");
    drop(trial.client.shutdown().await);
    trial.ends().await;
}

// RFC 5321 §4.3.1 (test)
#[tokio::test]
async fn an_early_talker_is_answered_and_closed() {
    let mut trial = Trial::new(|config, _| pause(config)).await;
    trial.client.write_all(b"EHLO a.test\r\n").await.unwrap();
    trial.hear("554 5.5.0 ").await;
    assert_eq!(trial.rest().await, "");
    trial.ends().await;
}

/// Without a pause the order of packets decides nothing: commands before the greeting are answered behind it.
#[tokio::test]
async fn an_early_talker_without_a_pause_is_served() {
    let served = [
        Trial::new(|config, _| config.accept.greet_pause = Duration::ZERO).await,
        // Loopback and relay.from do not wait.
        Trial::new(|config, _| config.accept.greet_pause = Duration::from_secs(3_600)).await,
    ];
    for mut trial in served {
        trial.client.write_all(b"EHLO a.test\r\nQUIT\r\n").await.unwrap();
        let said = trial.rest().await;
        assert!(said.starts_with("220 ") && said.contains("\r\n221 "), "{said}");
        trial.ends().await;
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed_in_the_midst_of_commands() {
    let mut trial = Trial::greeted(|config, _| config.smtp.command_time_max = COMMAND_TIME).await;
    trial.say("EHLO a.test\r\nMAIL FROM:<a@b.test>\r\n", "250 2.1.0").await;
    trial.stuff("RCPT TO:<c@d.test>\r\n").await;
    let Trial { client, session, .. } = trial;
    timeout(PATIENCE, session).await.expect("the session goes on").unwrap();
    drop(client);
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed_before_a_question() {
    let mut trial = Trial::greeted(|config, behaviour| {
        config.smtp.command_time_max = COMMAND_TIME;
        // Every RCPT has to be waited for, and the earlier replies go out first.
        behaviour.delay = Duration::from_nanos(1);
        behaviour.delay_at = vec![crate::sink::Point::Rcpt];
    })
    .await;
    trial.say("EHLO a.test\r\nMAIL FROM:<a@b.test>\r\n", "250 2.1.0").await;
    trial.stuff("RCPT TO:<c@d.test>\r\n").await;
    let Trial { client, session, .. } = trial;
    timeout(PATIENCE, session).await.expect("the session goes on").unwrap();
    drop(client);
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed_although_the_last_reply_is_not_taken() {
    let mut trial = Trial::greeted(|config, _| {
        config.smtp.command_time_max = COMMAND_TIME;
        config.smtp.idle_commands_max = u32::MAX;
    })
    .await;
    trial.say("EHLO a.test\r\n", "250 HELP").await;
    // Many replies to one read, and the end in it.
    trial.client.write_all(&"HELP\r\n".repeat(5_000).into_bytes()).await.unwrap();
    trial.client.write_all(b"QUIT\r\n").await.unwrap();
    let Trial { client, session, .. } = trial;
    timeout(PATIENCE, session).await.expect("the session goes on").unwrap();
    drop(client);
}

#[tokio::test]
async fn the_end_comes_to_an_idle_session() {
    let mut trial = Trial::greeted(|_, _| {}).await;
    trial.say("EHLO a.test\r\n", "250 HELP").await;
    trial.context.stop.begin();
    trial.hear("421 4.3.2").await;
    assert_eq!(trial.rest().await, "");
    trial.ends().await;
}

#[tokio::test]
async fn the_end_comes_behind_the_open_transaction() {
    let mut trial = Trial::greeted(|_, _| {}).await;
    trial.say("EHLO a.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n", "354 ").await;
    trial.context.stop.begin();
    tokio::task::yield_now().await;
    trial.say("hi\r\n.\r\n", "250 2.0.0 ").await;
    // The client pauses before its next message; the server does not wait for it.
    trial.hear("421 4.3.2").await;
    assert_eq!(trial.rest().await, "");
    trial.ends().await;
}

#[tokio::test]
async fn the_end_comes_to_a_session_whose_client_reads_slowly() {
    let mut trial = Trial::greeted(|_, _| {}).await;
    trial.say("EHLO a.test\r\nMAIL FROM:<a@b.test>\r\n", "250 2.1.0").await;
    trial.client.write_all(&"RCPT TO:<c@d.test>\r\n".repeat(1_000).into_bytes()).await.unwrap();
    trial.client.write_all(b"RSET\r\n").await.unwrap();
    // It stands at its output now.
    tokio::task::yield_now().await;
    trial.context.stop.begin();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    trial.hear("421 4.3.2").await;
    assert_eq!(trial.rest().await, "");
    trial.ends().await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_the_pause_before_the_greeting() {
    let mut trial = Trial::new(|config, _| pause(config)).await;
    tokio::task::yield_now().await;
    trial.context.stop.begin();
    trial.hear("421 4.3.2").await;
    assert_eq!(trial.rest().await, "");
    trial.ends().await;
}

#[tokio::test]
async fn a_sink_waits_before_its_greeting() {
    let mut trial = Trial::new(|_, behaviour| behaviour.greeting_delay = Duration::from_secs(3_600)).await;
    let mut octet = [0];
    let heard = timeout(Duration::from_millis(200), trial.client.read(&mut octet)).await;
    assert!(heard.is_err(), "it was greeted at once");
}

#[tokio::test]
async fn a_process_whose_input_is_there_at_once_is_no_early_talker() {
    let config = Config::default();
    let lane = Arc::new(ListenerProfile::new(&config, &config.listen[0], None, None));
    let inbound = Inbound::trial(Context::trial(config, None), None, Behaviour::default());
    let (mut client, stream) = tokio::net::UnixStream::pair().unwrap();
    client.write_all(b"EHLO a.test\r\nQUIT\r\n").await.unwrap();
    let session = Session::new(Arc::clone(&lane.settings), Client::Process { uid: 7 }, None);
    let connection = Connection::new(inbound, lane, session, Opening::process("anna"), clock::now());
    let session = tokio::spawn(connection.run(Transport::Local(stream)));
    let mut said = String::new();
    timeout(PATIENCE, client.read_to_string(&mut said)).await.unwrap().unwrap();
    assert!(said.starts_with("220 ") && said.ends_with(" closing connection\r\n"), "{said}");
    drop(client);
    timeout(PATIENCE, session).await.unwrap().unwrap();
}

/// Returns the connection of `mx.front`, a front end of our own, after it has sent XCLIENT.
fn connection_after(xclient: &[u8]) -> Connection {
    let mut config = Config::default();
    config.relay.from = vec!["192.0.2.0/24".parse().unwrap()];
    let lane = Arc::new(ListenerProfile::new(&config, &config.listen[0], None, None));
    let inbound = Inbound::trial(Context::trial(config, None), None, Behaviour::default());
    let client = Client::Network("192.0.2.1:1025".parse().unwrap());
    let mut session = Session::new(Arc::clone(&lane.settings), client, None);
    session.trust_xclient();
    session.trust_client(true);
    let mut opening = Opening::default();
    opening.name = ClientName::Verified("mx.front".into());
    let mut connection = Connection::new(inbound, lane, session, opening, clock::now());
    connection.session.greet(smtp::server::Verdict::Accept, Duration::ZERO);
    assert_eq!(connection.advance(xclient), Step::Read);
    connection
}

/// Returns the client name that the driver holds after XCLIENT.
fn name_after(xclient: &[u8]) -> ClientName {
    connection_after(xclient).opening.name
}

#[tokio::test]
async fn a_front_ends_name_is_not_its_clients() {
    assert_eq!(name_after(b"XCLIENT ADDR=203.0.113.9\r\n"), ClientName::Unknown);
    assert_eq!(name_after(b"XCLIENT NAME=a.test ADDR=203.0.113.9\r\n"), ClientName::Verified("a.test".into()));
    assert_eq!(name_after(b"XCLIENT NAME=[UNAVAILABLE] ADDR=203.0.113.9\r\n"), ClientName::None);
    assert_eq!(name_after(b"XCLIENT PROTO=SMTP\r\n"), ClientName::Verified("mx.front".into()));
}

#[tokio::test]
async fn a_front_ends_rights_are_not_its_clients() {
    let normalizes = |xclient: &[u8]| connection_after(xclient).session.normalizes();
    assert!(normalizes(b"XCLIENT ADDR=192.0.2.77\r\n"));
    assert!(normalizes(b"XCLIENT NAME=a.test\r\n"));
    assert!(!normalizes(b"XCLIENT ADDR=203.0.113.9\r\n"));
    assert!(!normalizes(b"XCLIENT ADDR=203.0.113.9\r\nXCLIENT PROTO=SMTP\r\n"));
}
