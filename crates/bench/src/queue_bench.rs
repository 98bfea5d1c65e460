//! The time of queue commands on a long queue, and what other mail feels of them.
//!
//! The command `mailrace-bench queue`: fills a spool with messages to destinations that cannot be reached, starts
//! `mailrace serve` on it, and asks the control socket for one command after the other, each on all messages.
//! Meanwhile a prober sends a message each 20 ms to a receiver, and takes the times from the end of its content to the
//! 250 and to the arrival. The same is measured without a command first. At the end a command is broken off as by
//! Ctrl-C. A command that leaves a message out, or a probe that is lost, fails the measurement; time never does.

use crate::clock;
use crate::receiver::{Manners, Receiver};
use mail::{Address, Client, Envelope, MailParams, Node, Protocol, QueueId, Received, Recipient, ReversePath};
use serde_json::{Value, json};
use spool::disk::real::RealDisk;
use spool::envelope::Encoded;
use spool::{Config, NewBody, Spool, State};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Messages that are appended before the oldest is waited for.
const UNSETTLED_MAX: usize = 2_000;
/// The pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
/// The time that is measured without a command.
const QUIET: Duration = Duration::from_secs(5);
/// The longest wait for the server to start and for a probe to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// Destinations of the messages.
const DESTINATIONS: u64 = 1_000;
/// The commands, in an order in which each has something to do; the field with its condition.
const COMMANDS: [(&str, &str); 7] = [
    ("count", "destination:*"),
    ("count", "from:ann@bench.test"),
    ("hold", "destination:*.queue.test"),
    ("release", "destination:*.queue.test"),
    ("hold", "from:ann@bench.test"),
    ("release", "held:*"),
    ("retry", "destination:*.queue.test"),
];
/// The time after which a command is broken off.
const BREAK_OFF: Duration = Duration::from_millis(200);

/// Messages from which on a command takes longer than [`BREAK_OFF`].
const LONG_QUEUE: u64 = 100_000;

/// Measures queue commands.
#[derive(Clone, Debug, clap::Args)]
pub struct QueueBenchArguments {
    /// Messages in the queue
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    messages: u64,
    /// Where the spool is made; it needs about a gigabyte for each million messages
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// The program under measurement [default: mailrace beside this one]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Runs the measurement and prints its figures.
#[must_use]
pub fn run(arguments: &QueueBenchArguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("queue: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line; a closed terminal is no failure of the measurement.
fn say(line: &str) {
    drop(writeln!(io::stdout(), "{line}"));
}

/// A spool directory that is removed at the end, and the server on it.
struct QueueSite {
    dir: PathBuf,
    server: Option<Child>,
}

impl Drop for QueueSite {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.kill());
            drop(server.wait());
        }
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn measure(arguments: &QueueBenchArguments) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let dir = arguments.dir.join(format!("mailrace-queue-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(text)?;
    let mut site = QueueSite { dir: dir.clone(), server: None };
    let began = clock::now();
    fill(&dir.join("spool"), arguments.messages)?;
    say(&format!("{} messages to {DESTINATIONS} destinations stored in {:.1} s", arguments.messages, seconds(began)));
    let receiver = Receiver::start(true, Manners::default()).map_err(text)?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(text)?.with_file_name("mailrace"),
    };
    let began = clock::now();
    let at = start(&mut site, &program, receiver.at())?;
    say(&format!("server ready after {:.1} s", seconds(began)));
    let control = dir.join("control");
    let probed = |what: &str, work: &mut dyn FnMut() -> Result<String, String>| -> Result<(), String> {
        let stop = Arc::new(AtomicBool::new(false));
        let before = receiver.count();
        drop(receiver.arrivals());
        let prober = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || probe(at, &stop))
        };
        let done = work();
        stop.store(true, Ordering::Release);
        let probes = prober.join().map_err(|_| "the prober broke off")??;
        let sent = probes.len() as u64;
        let until = clock::now() + PATIENCE;
        while receiver.count() < before + sent {
            if clock::now() > until {
                return Err(format!("{what}: {} of {sent} probes arrived", receiver.count() - before));
            }
            clock::pause(Duration::from_millis(1));
        }
        // Each is sent after the 250 of the one before, so that both are in the same order but for a few.
        let arrivals = receiver.arrivals();
        let delays = probes.iter().zip(&arrivals).map(|(probe, arrival)| arrival.at.saturating_duration_since(probe.0));
        let (replies, delays) = (figures(probes.iter().map(|probe| probe.1)), figures(delays));
        say(&format!("{what:<36} {} | {sent} probes, ms p50/p99/max: 250 {replies}, arrival {delays}", done?));
        Ok(())
    };
    probed("no command", &mut || {
        clock::pause(QUIET);
        Ok(format!("{:>7.2} s", QUIET.as_secs_f64()))
    })?;
    for (action, expression) in COMMANDS {
        probed(&format!("{action} {expression}"), &mut || {
            let began = clock::now();
            let last = ask(&control, action, expression)?;
            let took = seconds(began);
            let recipients = last.get("recipients").and_then(Value::as_u64).unwrap_or(0);
            if recipients < arguments.messages {
                return Err(format!("{action} {expression}: {last}"));
            }
            Ok(format!("{took:>7.2} s"))
        })?;
    }
    break_off(&control, arguments.messages)?;
    probed("delete destination:*.queue.test", &mut || {
        let began = clock::now();
        let last = ask(&control, "delete", "destination:*.queue.test")?;
        match last.get("recipients").and_then(Value::as_u64) == Some(arguments.messages) {
            true => Ok(format!("{:>7.2} s", seconds(began))),
            false => Err(format!("delete: {last}")),
        }
    })
}

/// Breaks a command off as Ctrl-C does, and says how far it came and how soon it ended.
fn break_off(control: &Path, messages: u64) -> Result<(), String> {
    let held = || -> Result<u64, String> {
        Ok(ask(control, "count", "state:held")?.get("recipients").and_then(Value::as_u64).unwrap_or(0))
    };
    let mut stream = UnixStream::connect(control).map_err(|error| error.to_string())?;
    let request = json!({ "command": "queue", "action": "hold", "expression": "from:ann@bench.test", "limit": 0 });
    stream.write_all(format!("{request}\n").as_bytes()).map_err(|error| error.to_string())?;
    clock::pause(BREAK_OFF);
    drop(stream);
    let (began, mut before) = (clock::now(), None);
    loop {
        let now = held()?;
        if before == Some(now) {
            // A short queue is held before the command is broken off.
            if messages >= LONG_QUEUE && now >= messages {
                return Err(format!("a hold that was broken off held all {now} recipients"));
            }
            say(&format!(
                "hold, broken off after {:.1} s: {now} held, ended {:.1} s later at most",
                BREAK_OFF.as_secs_f64(),
                seconds(began)
            ));
            return Ok(());
        }
        before = Some(now);
        clock::pause(Duration::from_millis(200));
    }
}

/// The median, the 99th of 100 and the largest of some times, in milliseconds.
fn figures(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = |part: usize| times.get(times.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    let ms = |part: usize| at(part).as_secs_f64() * 1e3;
    format!("{:.1}/{:.1}/{:.1}", ms(50), ms(99), ms(100))
}

fn seconds(since: Instant) -> f64 {
    clock::now().duration_since(since).as_secs_f64()
}

/// Makes a spool with so many messages, each due in a day.
fn fill(path: &Path, messages: u64) -> Result<(), String> {
    let text = |error: spool::Error| error.to_string();
    let mut config = Config::new(path);
    config.size_max = 64 << 30;
    let (spool, _) = Spool::open(config, Arc::new(RealDisk::new())).map_err(|error| error.to_string())?;
    let now_us = clock::unix_us();
    let due = Duration::from_secs(now_us / 1_000_000 + 86_400);
    let recipient = |number: u64| {
        let address = format!("user{number}@d{}.queue.test", number % DESTINATIONS);
        Address::parse(address.as_bytes()).map(Recipient::new).map_err(|error| error.to_string())
    };
    let sender = ReversePath::parse(b"<ann@bench.test>").map_err(|error| error.to_string())?;
    let body = "Subject: a message of the queue\r\n\r\nhello\r\n";
    let mut unsettled = std::collections::VecDeque::new();
    for number in 0..messages {
        let id = QueueId::new(now_us - messages + number, Node::default()).ok_or("no queue id")?;
        let envelope = Envelope {
            id,
            sender: sender.clone(),
            params: MailParams::default(),
            received: Received { at_us: now_us, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: vec![recipient(number)?],
        };
        let encoded = Encoded::new(&envelope);
        let recipients = encoded.recipients();
        let message = encoded.message(&recipients, NewBody::whole(body, 35));
        let message = spool::NewMessage { state: State::default().until(due), waits: true, ..message };
        loop {
            match spool.append_all(id, std::slice::from_ref(&message)) {
                Ok(commit) => break unsettled.push_back(commit),
                Err(spool::Error::Busy) => {
                    let oldest: Option<spool::Commit> = unsettled.pop_front();
                    oldest.map_or(Ok(()), |commit| commit.wait()).map_err(text)?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        if unsettled.len() > UNSETTLED_MAX {
            unsettled.pop_front().map_or(Ok(()), |commit| commit.wait()).map_err(text)?;
        }
    }
    unsettled.into_iter().try_for_each(|commit| commit.wait()).map_err(text)
}

/// Starts the server; returns where it takes mail.
fn start(site: &mut QueueSite, program: &Path, receiver: SocketAddr) -> Result<SocketAddr, String> {
    let dir = &site.dir;
    let config = format!(
        "hostname = \"bench.test\"\n[server]\nuser = \"{}\"\n[spool]\npath = {:?}\nsize_max = \"64GiB\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n[relay]\nfrom = [\"127.0.0.0/8\"]\n[control]\npath = {:?}\n[log]\npath = {:?}\nlevel = 6\n\
         [route]\nport = {}\n[dns]\nservers = [\"127.0.0.1:1\"]\n[accept]\nreverse_dns = false\n\
         [[dns.override]]\ndomain = \"probe.test\"\naddress = [\"127.0.0.1\"]\n\
         [[dns.override]]\ndomain = \".queue.test\"\naddress = [\"127.9.9.9\"]\n",
        if rustix::process::geteuid().is_root() { "root" } else { "" },
        dir.join("spool"),
        dir.join("control"),
        dir.join("log"),
        receiver.port(),
    );
    let path = dir.join("mailrace.toml");
    std::fs::write(&path, config).map_err(|error| error.to_string())?;
    // Its complaints go to the terminal.
    let mut child = Command::new(program)
        .args(["serve", "--config"])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
    site.server = Some(child);
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some(address) = line.strip_prefix("mailrace: ready on ") {
            let address = address.parse().map_err(|_| format!("{address:?} is no address"))?;
            // The server must not wait for a reader.
            drop(std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop)));
            return Ok(address);
        }
    }
    Err("the server does not start".to_owned())
}

/// Asks for a command; returns the last line of its answer.
fn ask(control: &Path, action: &str, expression: &str) -> Result<Value, String> {
    let text = |error: io::Error| format!("control socket: {error}");
    let mut stream = UnixStream::connect(control).map_err(text)?;
    let request = json!({ "command": "queue", "action": action, "expression": expression, "limit": 0 });
    stream.write_all(format!("{request}\n").as_bytes()).map_err(text)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(text)?;
        // Lines of messages are not read: a deletion has one for each.
        if line.starts_with("{\"ok\":") || line.contains("\"ok\":") {
            let value: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            match value.get("ok").and_then(Value::as_bool) {
                Some(true) => return Ok(value),
                Some(false) => return Err(line),
                None => {}
            }
        }
    }
    Err("the answer broke off".to_owned())
}

/// Sends messages until `stop`; returns the end of each content, and the time from there to its 250.
fn probe(at: SocketAddr, stop: &AtomicBool) -> Result<Vec<(Instant, Duration)>, String> {
    let text = |error: io::Error| format!("prober: {error}");
    let mut stream = TcpStream::connect(at).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    let mut replies = BufReader::new(stream.try_clone().map_err(text)?).lines();
    let mut reply = |wanted: &str| -> Result<(), String> {
        loop {
            let line = replies.next().ok_or("prober: the server closed the connection")?.map_err(text)?;
            if line.as_bytes().get(3) != Some(&b'-') {
                return if line.starts_with(wanted) { Ok(()) } else { Err(format!("prober: {line}")) };
            }
        }
    };
    reply("220")?;
    stream.write_all(b"EHLO probe.test\r\n").map_err(text)?;
    reply("250")?;
    let mut times = Vec::new();
    while !stop.load(Ordering::Acquire) {
        for (command, wanted) in
            [("MAIL FROM:<p@probe.test>\r\n", "250"), ("RCPT TO:<q@probe.test>\r\n", "250"), ("DATA\r\n", "354")]
        {
            stream.write_all(command.as_bytes()).map_err(text)?;
            reply(wanted)?;
        }
        let began = clock::now();
        stream.write_all(b"Subject: probe\r\n\r\nx\r\n.\r\n").map_err(text)?;
        reply("250")?;
        times.push((began, clock::now().duration_since(began)));
        clock::pause(PROBE_PAUSE);
    }
    stream.write_all(b"QUIT\r\n").map_err(text)?;
    Ok(times)
}
