//! How fast RCPT to a long list is answered, and its effect on other mail.
//!
//! The command `mailrace-bench expand`: starts `mailrace serve` with one list whose members are in a file, and one
//! client that sends ordinary mail without a pause, each message for one recipient elsewhere. Beside that client it
//! measures, one after the other: nothing; the first RCPT to the list (cold); RCPTs to the list from one and from eight
//! sessions (warm); a file that is written anew before each RCPT, so that each is a new expansion; and whole messages
//! to the list. Nothing is delivered: mail stays in the spool, where it is counted at the end.
//!
//! Clients and server share the machine, so figures mean something beside each other only. A run fails when there are
//! no figures or when mail is lost, and not because something took long.

use crate::clock;
use spool::disk::real::RealDisk;
use spool::{Spool, Store as _};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Measures RCPT to a long list.
#[derive(Clone, Debug, clap::Args)]
pub struct ExpandBenchArguments {
    /// Where the spool and the list are put
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The program mailrace [default: beside this program]
    #[arg(long)]
    mailrace: Option<PathBuf>,
    /// Members of the list
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    members: u32,
    /// Seconds of each part
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Pause of a session between two RCPTs to the list, in milliseconds
    #[arg(long, default_value_t = 10)]
    pause_ms: u64,
    /// Whole messages to the list
    #[arg(long, default_value_t = 3)]
    messages: u64,
}

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// RCPTs of one transaction.
const RCPTS: usize = 50;

/// Runs the parts and prints their figures.
#[must_use]
pub fn run(arguments: &ExpandBenchArguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("expand: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A running server and its files.
struct ExpandServer {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

/// A connection that speaks SMTP.
struct SmtpConnection {
    stream: BufReader<TcpStream>,
}

/// Times of one kind of command.
#[derive(Debug, Default)]
struct Times(Vec<Duration>);

/// The times of ordinary mail.
struct Ordinary {
    rcpt: Times,
    whole: Times,
}

fn measure(arguments: &ExpandBenchArguments) -> Result<()> {
    let directory = arguments.dir.join(format!("mailrace-expand-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = measure_in(arguments, &directory.canonicalize()?);
    drop(std::fs::remove_dir_all(&directory));
    measured
}

fn measure_in(arguments: &ExpandBenchArguments, directory: &Path) -> Result<()> {
    let mut server = ExpandServer::start(arguments, directory)?;
    let ordinary = AtomicU64::new(0);
    let seconds = Duration::from_secs(arguments.seconds);
    say(&format!("a list of {} members; {seconds:?} for each part", arguments.members));
    say("part                RCPT to the list ms            beside it: RCPT ms            whole message ms");
    say("                    p50      p99      max   count  p50      p99      max   count  p50      p99      max");
    let alone = server.beside(&ordinary, || {
        clock::pause(seconds);
        Ok(())
    });
    let alone = alone?.0;
    line("alone", &Times::default(), &alone);
    let (felt, cold) = server.beside(&ordinary, || server.name_list(1, |_| Ok(())))?;
    line("cold", &cold, &felt);
    for sessions in [1, 8] {
        let (felt, warm) = server.beside(&ordinary, || {
            server.together(sessions, |server| server.name_list_for(seconds, Duration::from_millis(arguments.pause_ms)))
        })?;
        line(&format!("warm, {sessions} sessions"), &warm, &felt);
    }
    let (felt, changed) = server.beside(&ordinary, || {
        server.name_list(3, |number| server.write_list(arguments.members, &format!("one{number}@more.test\n")))
    })?;
    line("changed each time", &changed, &felt);
    let (felt, whole) = server.beside(&ordinary, || server.send_to_list(arguments.messages))?;
    line("messages to it", &whole, &felt);
    server.stop()?;
    let expected = ordinary.load(Ordering::Relaxed) + arguments.messages * (u64::from(arguments.members) + 1);
    let (spool, _) = Spool::open(spool::Config::new(directory.join("spool")), Arc::new(RealDisk::new()))?;
    let found = spool.statistics().recipients;
    if found != expected {
        return Err(format!("{expected} recipients were accepted and {found} are in the spool: mail is lost").into());
    }
    say(&format!("{found} recipients were accepted, and all are in the spool"));
    Ok(())
}

impl ExpandServer {
    fn start(arguments: &ExpandBenchArguments, directory: &Path) -> Result<Self> {
        let program = match &arguments.mailrace {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("mailrace"),
        };
        // No other program looks for a port in the moment between.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let at = |name: &str| format!("{:?}", directory.join(name).display().to_string());
        let text = format!(
            "hostname = 'mx.test'\nserver.user = 'root'\nspool.path = {}\nspool.free_min = 0\nspool.size_max = '4GiB'\n\
             control.path = {}\nlog.path = '/dev/null'\nlisten = [{{address = '{address}'}}]\naccept.reverse_dns = false\n\
             accept.rate_per_client = 100000\naccept.rate = 100000\nrelay.from = ['127.0.0.0/8']\n\
             smtp.transactions_max = 1000000\nsmtp.idle_commands_max = 100000\ndelivery.mode = 'queue'\n\
             local.mailbox = 'none'\nmaps.aliases = [{}]\n",
            at("spool"),
            at("control"),
            at("aliases"),
        );
        std::fs::write(directory.join("mailrace.toml"), text)?;
        let list = directory.join("members").display().to_string();
        std::fs::write(directory.join("aliases"), format!("list: :include:{list}\n"))?;
        let log = std::fs::File::create(directory.join("error"))?;
        let child = Command::new(&program)
            .arg("serve")
            .arg("--config")
            .arg(directory.join("mailrace.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut server = Self { child, address, directory: directory.to_owned() };
        server.write_list(arguments.members, "")?;
        let began = clock::now();
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > PATIENCE || server.child.try_wait()?.is_some() {
                let said = std::fs::read_to_string(directory.join("error"))?;
                return Err(format!("{} does not listen: {said}", program.display()).into());
            }
            clock::pause(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn write_list(&self, members: u32, more: &str) -> Result<()> {
        let mut text = String::new();
        for number in 0..members {
            writeln!(text, "user{number}@host{}.example.com", number % 500)?;
        }
        std::fs::write(self.directory.join("members"), text + more)?;
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }

    /// Does something beside a client that sends ordinary mail.
    fn beside<T: Send>(&self, sent: &AtomicU64, what: impl FnOnce() -> Result<T> + Send) -> Result<(Ordinary, T)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ordinary = scope.spawn(|| {
                let mut client = SmtpConnection::new(self.address)?;
                let mut felt = Ordinary { rcpt: Times::default(), whole: Times::default() };
                while !is_over.load(Ordering::Relaxed) {
                    let began = clock::now();
                    client.command("MAIL FROM:<a@client.test>", "250")?;
                    felt.rcpt.0.push(client.command("RCPT TO:<b@elsewhere.test>", "250")?);
                    client.command("DATA", "354")?;
                    client.command("Subject: ordinary\r\n\r\nhello\r\n.", "250")?;
                    felt.whole.0.push(began.elapsed());
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(felt)
            });
            let done = what();
            is_over.store(true, Ordering::Relaxed);
            let felt = ordinary.join().map_err(|_| "the client broke off")??;
            Ok((felt, done?))
        })
    }

    /// Several sessions at once.
    fn together(&self, sessions: usize, what: impl Fn(&Self) -> Result<Times> + Sync) -> Result<Times> {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..sessions).map(|_| scope.spawn(|| what(self))).collect();
            let mut times = Times::default();
            for one in all {
                times.0.extend(one.join().map_err(|_| "a session broke off")??.0);
            }
            Ok(times)
        })
    }

    /// RCPTs to the list, each after `before`.
    fn name_list(&self, count: usize, before: impl Fn(usize) -> Result<()>) -> Result<Times> {
        let mut client = SmtpConnection::new(self.address)?;
        let mut times = Times::default();
        for number in 0..count {
            before(number)?;
            client.command("MAIL FROM:<c@client.test>", "250")?;
            times.0.push(client.command("RCPT TO:<list@mx.test>", "250")?);
            client.command("RSET", "250")?;
        }
        Ok(times)
    }

    fn name_list_for(&self, time: Duration, pause: Duration) -> Result<Times> {
        let mut client = SmtpConnection::new(self.address)?;
        let (mut times, began) = (Times::default(), clock::now());
        while began.elapsed() < time {
            client.command("MAIL FROM:<c@client.test>", "250")?;
            for _ in 0..RCPTS {
                times.0.push(client.command("RCPT TO:<list@mx.test>", "250")?);
                clock::pause(pause);
            }
            client.command("RSET", "250")?;
        }
        Ok(times)
    }

    /// Whole messages to the list; the times of their ends.
    fn send_to_list(&self, count: u64) -> Result<Times> {
        let mut client = SmtpConnection::new(self.address)?;
        let mut times = Times::default();
        for _ in 0..count {
            client.command("MAIL FROM:<c@client.test>", "250")?;
            client.command("RCPT TO:<list@mx.test>", "250")?;
            client.command("DATA", "354")?;
            times.0.push(client.command("Subject: list\r\n\r\nhello\r\n.", "250")?);
        }
        Ok(times)
    }
}

impl Drop for ExpandServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl SmtpConnection {
    fn new(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self { stream: BufReader::new(stream) };
        client.reply("220")?;
        client.command("EHLO client.test", "250")?;
        Ok(client)
    }

    /// Sends a line and waits for a reply with this code.
    fn command(&mut self, line: &str, code: &str) -> Result<Duration> {
        let began = clock::now();
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        self.reply(code)?;
        Ok(began.elapsed())
    }

    fn reply(&mut self, code: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the server hangs up".into());
            }
            if !line.starts_with(code) {
                return Err(format!("the server says {}", line.escape_debug()).into());
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(());
            }
        }
    }
}

impl Times {
    /// Median, 99 of 100, the longest, and how many, as columns.
    fn columns(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
            let time = sorted.get(place);
            time.map_or_else(|| format!("{:>8}", "-"), |time| format!("{:8.2}", time.as_secs_f64() * 1e3))
        };
        format!("{} {} {} {:6}", at(50), at(99), at(100), sorted.len())
    }
}

fn line(name: &str, list: &Times, felt: &Ordinary) {
    say(&format!("{name:17} {} {} {}", list.columns(), felt.rcpt.columns(), felt.whole.columns()));
}

/// Prints a line; a closed pipe is no error of a measurement.
fn say(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}
