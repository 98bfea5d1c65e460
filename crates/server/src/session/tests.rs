//! The driver over a stream in memory and a spool on a simulated disk, with time that moves only when a test moves it.
//!
//! The dialog files of `smtp` are played here too: the state machine must give the same replies with this driver,
//! this spool and these timers around it. Left out are dialogs with verdicts that no policy gives, and TLS, which
//! needs a socket.

use super::{Connection, Opening};
use crate::active_config::ActiveConfig;
use crate::admit::{Facts, Policies, Policy, Ruling};
use crate::auth::{Authenticator, Scheme, hash_password};
use crate::config::{Config, LogPath, Machine, load, spool_settings};
use crate::context::Context;
use crate::dns::Resolver;
use crate::inbound::Inbound;
use crate::listener_profile::ListenerProfile;
use crate::log::{self, Log};
use crate::message_store::MessageStore;
use crate::sink::Behaviour;
use crate::transport::Transport;
use mail::{Client, Node, QueueIds, Recipient};
use os::clock;
use smtp::dialog::{Dialog, DialogStep, fits};
use smtp::server::{Session, Verdict};
use spool::Store as _;
use spool::disk::sim::{Op, SimDisk};
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::yield_now;

/// Longer than any of these tests takes in real time.
const SOON: Duration = Duration::from_secs(60);
/// More octets than any dialog sends at once.
const STREAM_BYTES: usize = 1 << 20;

/// The verdicts of a dialog, as a policy.
#[derive(Debug)]
struct Rules(Dialog);

impl Rules {
    /// The verdicts a policy can give.
    const KINDS: [&str; 3] = ["helo", "sender", "recipient"];

    fn ruling(&self, kind: &str, subject: &str) -> Ruling {
        match self.0.verdict(kind, subject) {
            Verdict::Accept => Ruling::Continue,
            verdict => Ruling::Decide(verdict),
        }
    }
}

impl Policy for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn helo(&self, facts: &Facts<'_>) -> Ruling {
        self.ruling("helo", &facts.helo.map(ToString::to_string).unwrap_or_default())
    }

    fn sender(&self, facts: &Facts<'_>) -> Ruling {
        let sender = facts.sender.map(ToString::to_string).unwrap_or_default();
        self.ruling("sender", sender.trim_matches(['<', '>']))
    }

    fn recipient(&self, _facts: &Facts<'_>, recipient: &Recipient) -> Ruling {
        self.ruling("recipient", &recipient.address.to_string())
    }
}

/// A server without a network.
struct Rig {
    inbound: Arc<Inbound>,
    spool: Arc<spool::Spool>,
    disk: SimDisk,
    directory: tempfile::TempDir,
}

impl Rig {
    fn new(dialog: &Dialog, change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::new("mx.test", Some(directory.path()));
        let mut config = load("", None, &[], &machine).unwrap().config;
        config.accept.reverse_dns = false;
        config.dns.servers = vec!["127.0.0.1:9".parse().unwrap()];
        config.log.path = LogPath::File(directory.path().join("log"));
        config.spool.segment_bytes = 1 << 20;
        config.spool.size_max = 16 << 20;
        config.spool.free_min = 0;
        let mut authenticator = None;
        if !dialog.users.is_empty() {
            let path = directory.path().join("users");
            let line = |(name, password): &(String, String)| {
                format!("{name}:{}\n", hash_password(password, Scheme::ScramSha256).unwrap())
            };
            std::fs::write(&path, dialog.users.iter().map(line).collect::<String>()).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            config.auth.file = Some(path);
            config.auth.without_tls = true;
            authenticator = Some(Authenticator::open(&config.auth).unwrap());
        }
        change(&mut config);
        let disk = SimDisk::new(7);
        let (spool, _) = spool::Spool::open(spool_settings(&config), Arc::new(disk.clone())).unwrap();
        let spool = Arc::new(spool);
        let mut live = ActiveConfig::new(config.clone(), authenticator);
        live.policies = Policies::new(vec![Box::new(Rules(dialog.clone()))]);
        let context = Context::new(
            MessageStore::spool(Arc::clone(&spool), QueueIds::new(Node::default()), 1),
            Log::start(&log::LogSettings::from_config(&config.log, "mx.test")).unwrap(),
            live,
            crate::routing::Routing::plain(),
            Resolver::new(&config.dns).unwrap(),
            None,
            crate::secret_key::SecretKey::of_process(),
        );
        let inbound = Inbound::trial(Arc::new(context), None, Behaviour::default());
        Self { inbound, spool, disk, directory }
    }

    /// Starts a session; its client's end.
    fn connect(&self, dialog: &Dialog) -> DuplexStream {
        let (client, server) = duplex(STREAM_BYTES);
        self.connect_over(dialog, server);
        client
    }

    fn connect_over(&self, dialog: &Dialog, server: DuplexStream) {
        let live = self.inbound.context.live.load();
        let listen = live.config.listen.first().unwrap().clone();
        let settings = Arc::new(dialog.settings().unwrap());
        let lane =
            ListenerProfile { listen, settings: Arc::clone(&settings), tls: None, handshake_time: Duration::ZERO };
        let address = Client::Network(([192, 0, 2, 1], 1_025).into());
        let mut session = Session::new(settings, address, None);
        session.begins_at(Duration::from_secs(1_800_000_000));
        if dialog.steps.iter().any(|(_, step)| *step == DialogStep::TrustXclient) {
            session.trust_xclient();
        }
        session.trust_client(dialog.steps.iter().any(|(_, step)| *step == DialogStep::TrustClient));
        let inbound = Arc::clone(&self.inbound);
        let connection = Connection::new(inbound, Arc::new(lane), session, Opening::default(), clock::now());
        tokio::spawn(connection.run(Transport::Memory(server)));
    }

    /// Returns the stored contents in the order of their queue ids, without our trace field.
    fn contents(&self) -> Vec<Vec<u8>> {
        let mut ids = self.spool.messages();
        ids.sort_unstable_by_key(|id| id.to_u64());
        let content = |id| {
            let whole = self.spool.body(id).unwrap().concat();
            assert!(whole.starts_with(b"Received: "), "{}", whole.escape_ascii());
            let folded = |two: &[u8]| two.starts_with(b"\n") && !matches!(two.get(1), Some(b' ' | b'\t'));
            let end = whole.windows(2).position(folded).map_or(whole.len(), |at| at + 1);
            whole.get(end..).unwrap().to_vec()
        };
        ids.into_iter().map(content).collect()
    }

    fn log(&self) -> String {
        assert!(self.inbound.context.log.flush(SOON));
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// Runs a test with a clock that stands still. While the spool works nothing moves it either.
fn with_still_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (hold, held) = mpsc::channel::<()>();
    runtime.block_on(async {
        // A blocking task keeps tokio from moving the clock whenever all tasks wait.
        let holder = tokio::task::spawn_blocking(move || held.recv_timeout(Duration::from_secs(600)).is_ok());
        let done = test.await;
        drop(hold);
        holder.await.unwrap();
        done
    })
}

/// Lets every task go as far as it can without time or disk.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

/// Lets time pass in steps, so that timers fire when they are due.
async fn pass(time: Duration) {
    settle().await;
    let step = (time / 200).max(Duration::from_millis(1));
    let mut left = time;
    while !left.is_zero() {
        let now = step.min(left);
        tokio::time::advance(now).await;
        settle().await;
        left -= now;
    }
}

/// The client's end, with its input so far.
struct Peer {
    stream: DuplexStream,
    received: Vec<u8>,
}

impl Peer {
    const fn new(stream: DuplexStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        // A server that has closed takes no input; its last reply tells.
        drop(self.stream.write_all(bytes).await);
    }

    /// Returns the next line without its end; `None` when the server has closed.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).collect();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    /// Reads, in real time for a while at most: the disk may be slow, but a silent server is wrong. Then the input is
    /// `(silence)`.
    async fn read(&mut self) -> usize {
        let (keep, kept) = mpsc::channel::<()>();
        let (late, is_late) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            if kept.recv_timeout(SOON) == Err(mpsc::RecvTimeoutError::Timeout) {
                late.send(()).ok();
            }
        });
        let read = tokio::select! {
            biased;
            read = self.stream.read_buf(&mut self.received) => read.unwrap_or(0),
            Ok(()) = is_late => {
                self.received.extend_from_slice(b"(silence)\r\n");
                1
            }
        };
        drop(keep);
        read
    }

    async fn command(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.reply().await
    }

    async fn reply(&mut self) -> String {
        loop {
            let Some(line) = self.line().await else { return "closed".to_owned() };
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }

    async fn message(&mut self, content: &[u8]) -> String {
        for line in ["MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"] {
            let reply = self.command(line).await;
            if !reply.starts_with(['2', '3']) {
                return reply;
            }
        }
        self.send(content).await;
        self.send(b"\r\n.\r\n").await;
        self.reply().await
    }
}

/// Returns the reply without the queue id, which dialogs cannot know.
fn without_id(line: String) -> String {
    let taken = line.starts_with("250 2.0.0 ") && line.ends_with(" Message accepted for delivery");
    if taken { "250 2.0.0 Message accepted for delivery".to_owned() } else { line }
}

async fn play(dialog: &Dialog) -> Result<(), String> {
    let rig = Rig::new(dialog, |_| {});
    let (client, server) = duplex(STREAM_BYTES);
    let mut server = Some(server);
    let mut peer = Peer::new(client);
    let mut pending = Vec::new();
    if !dialog.users.is_empty() {
        // A wrong password is answered after a pause.
        tokio::spawn(pass_slowly());
    }
    if dialog.steps.iter().all(|(_, step)| *step != DialogStep::Pause) {
        rig.connect_over(dialog, server.take().unwrap());
    }
    for (number, step) in &dialog.steps {
        if let DialogStep::Send(bytes) = step {
            pending.extend_from_slice(bytes);
            continue;
        }
        if *step == DialogStep::Pause {
            continue;
        }
        let input = std::mem::take(&mut pending);
        if !input.is_empty() {
            peer.send(&input).await;
        }
        // After a pause the first octets are there when the session begins.
        if let Some(server) = server.take() {
            rig.connect_over(dialog, server);
        }
        perform(&rig, &mut peer, step).await.map_err(|why| format!("line {number}: {step:?}: {why}"))?;
    }
    peer.send(&pending).await;
    peer.stream.shutdown().await.unwrap();
    settle().await;
    match peer.line().await {
        None => Ok(()),
        Some(line) => Err(format!("at the end it said: {line}")),
    }
}

async fn perform(rig: &Rig, peer: &mut Peer, step: &DialogStep) -> Result<(), String> {
    match step {
        DialogStep::Expect(pattern) => {
            let line = peer.line().await.map_or_else(|| "nothing, and closed".to_owned(), without_id);
            return if fits(pattern, &line) { Ok(()) } else { Err(format!("the server said: {line}")) };
        }
        DialogStep::Wait(time) => pass(*time).await,
        DialogStep::Closed => {
            if let Some(line) = peer.line().await {
                return Err(format!("instead of closing it said: {line}"));
            }
        }
        DialogStep::Stored(count) if rig.contents().len() != *count => {
            return Err(format!("{} are stored", rig.contents().len()));
        }
        DialogStep::Content(content) if rig.contents().last() != Some(content) => {
            let contents = rig.contents();
            let last = contents.last().map(Vec::as_slice).unwrap_or_default();
            return Err(format!("stored is: {}", last.escape_ascii()));
        }
        DialogStep::ShutDown => {
            settle().await;
            rig.inbound.context.stop.begin();
        }
        _ => {}
    }
    settle().await;
    Ok(())
}

/// LOGIN without a password, which only the rehearsal of `smtp` knows; and a pause, which the server here has not.
const NOT_FOR_SERVERS: [&str; 2] = ["auth_errors.dialog", "early_talker.dialog"];

fn is_playable(dialog: &Dialog) -> bool {
    dialog.rules.iter().all(|rule| Rules::KINDS.contains(&rule.kind.as_str()))
        && dialog.steps.iter().all(|(_, step)| *step != DialogStep::Tls)
}

#[test]
fn dialogs_with_driver_spool_and_timers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../smtp/tests/dialogs");
    let mut played = 0;
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let dialog = Dialog::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        if !is_playable(&dialog) || NOT_FOR_SERVERS.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        played += 1;
        if let Err(why) = with_still_time(play(&dialog)) {
            failures.push(format!("{}: {why}", path.file_name().unwrap().display()));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(played >= 65, "only {played} dialogs could be played");
}

fn nothing_laid_down() -> Dialog {
    Dialog::parse("").unwrap()
}

async fn greeted(rig: &Rig) -> Peer {
    let mut peer = Peer::new(rig.connect(&nothing_laid_down()));
    assert!(peer.reply().await.starts_with("220 "));
    assert!(peer.command("EHLO a.test").await.starts_with("250 "));
    peer
}

const TAKEN: &str = "250 2.0.0 Message accepted for delivery";

#[test]
fn a_write_that_fails_is_said_and_the_next_message_is_taken() {
    with_still_time(async {
        for op in [Op::Sync, Op::Write] {
            for size in [10, 400_000] {
                let rig = Rig::new(&nothing_laid_down(), |_| {});
                let mut peer = greeted(&rig).await;
                assert_eq!(without_id(peer.message(b"one").await), TAKEN);
                rig.disk.fail(op, 0);
                let line = [&[b'x'; 98][..], b"\r\n"].concat();
                let refusal = peer.message(&line.repeat(size / 100 + 1)).await;
                assert_eq!(refusal, "451 4.3.0 Message could not be stored, try again later", "{op:?} {size}");
                assert_eq!(without_id(peer.message(b"two").await), TAKEN);
                assert_eq!(rig.contents(), [b"one\r\n", b"two\r\n"], "{op:?} {size}");
                let log = rig.log();
                assert!(log.contains("ruleset=check_eom") && log.contains("reject=451 4.3.0"), "{log}");
                assert!(log.contains("nrcpts=0"), "{log}");
            }
        }
    });
}

#[test]
fn a_disk_that_has_failed_for_good_closes_sessions_and_loses_nothing() {
    with_still_time(async {
        let rig = Rig::new(&nothing_laid_down(), |_| {});
        let mut peer = greeted(&rig).await;
        assert_eq!(without_id(peer.message(b"one").await), TAKEN);
        rig.disk.configure(|config| config.rates.sync = 1_000_000);
        let slow = tokio::spawn(pass_slowly());
        // One that was let in before.
        let mut within = greeted(&rig).await;
        for line in ["MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"] {
            assert!(within.command(line).await.starts_with(['2', '3']), "{line}");
        }
        let mut replies = Vec::new();
        for _ in 0..50 {
            let reply = peer.message(b"two").await;
            if reply.starts_with("421") {
                assert_eq!(peer.reply().await, "closed");
                replies.push(reply);
                break;
            }
            replies.push(reply);
        }
        assert_eq!(within.command("late\r\n.").await, "421 4.3.0 Storage failure, closing connection");
        assert_eq!(within.reply().await, "closed");
        slow.abort();
        assert!(replies.iter().all(|reply| !reply.starts_with('2')), "{replies:?}");
        assert_eq!(replies.last().map(String::as_str), Some("421 4.3.0 Storage failure, closing connection"));
        // A new session gets its greeting, and the same at MAIL.
        let mut peer = greeted(&rig).await;
        assert_eq!(peer.command("MAIL FROM:<a@b.test>").await, "421 4.3.0 Storage failure, closing connection");
        let after = rig.disk.kill();
        drop(peer);
        let config = spool_settings(&rig.inbound.context.live.load().config);
        after.clear_faults();
        after.configure(|config| config.rates.sync = 0);
        let (again, recovery) = spool::Spool::open(config, Arc::new(after)).unwrap();
        // The spool may hold a refused message too, as it was written; it must hold the accepted one.
        let first = again.messages().into_iter().min_by_key(|id| id.to_u64()).unwrap();
        assert!(again.body(first).unwrap().concat().ends_with(b"one\r\n"), "{recovery:?}");
    });
}

#[test]
fn a_full_disk_is_no_error_of_the_message() {
    with_still_time(async {
        let rig = Rig::new(&nothing_laid_down(), |config| config.spool.size_max = 8 << 20);
        let mut peer = greeted(&rig).await;
        let line = [&[b'x'; 98][..], b"\r\n"].concat();
        let mut taken = 0;
        let refusal = loop {
            let sent = tokio::spawn(pass_slowly());
            let reply = peer.message(&line.repeat(2_000)).await;
            sent.abort();
            if without_id(reply.clone()) != TAKEN {
                break reply;
            }
            taken += 1;
        };
        assert_eq!(refusal, "452 4.3.1 Insufficient system storage, try again later");
        assert_eq!(rig.contents().len(), taken);
        assert_eq!(peer.command("NOOP").await, "250 2.0.0 OK");
    });
}

/// A spool that is short of room slows its clients down by the clock. Its threads have real time meanwhile, long before
/// the patience with a client that waits for them is over.
async fn pass_slowly() {
    loop {
        tokio::time::advance(Duration::from_millis(1)).await;
        for _ in 0..10 {
            yield_now().await;
        }
    }
}

#[test]
fn an_address_by_xclient_does_not_keep_the_name_of_the_one_before() {
    with_still_time(async {
        let dialog = Dialog::parse("machine xclient").unwrap();
        let rig = Rig::new(&dialog, |_| {});
        let mut peer = Peer::new(rig.connect(&dialog));
        peer.reply().await;
        for command in ["EHLO front.test", "XCLIENT NAME=one.test ADDR=203.0.113.1", "EHLO a.test"] {
            assert!(peer.command(command).await.starts_with('2'), "{command}");
        }
        peer.message(b"one").await;
        for command in ["XCLIENT ADDR=203.0.113.2", "EHLO a.test"] {
            assert!(peer.command(command).await.starts_with('2'), "{command}");
        }
        peer.message(b"two").await;
        let mut ids = rig.spool.messages();
        ids.sort_unstable_by_key(|id| id.to_u64());
        let traces: Vec<String> =
            ids.into_iter().map(|id| String::from_utf8(rig.spool.body(id).unwrap().concat()).unwrap()).collect();
        assert!(traces[0].contains("(one.test [203.0.113.1])"), "{}", traces[0]);
        assert!(traces[1].contains("([203.0.113.2])"), "{}", traces[1]);
    });
}
