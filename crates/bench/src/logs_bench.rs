//! The time to read logs, and the cost of statistics in a running server.
//!
//! The command `mailrace-bench logs`: makes a log of each form in memory, with changing ids, recipients, hosts and
//! stamps, and reads it on one thread: the lines alone, into hours as `mailrace stats mail`, and into all sums as
//! `mailrace stats day`. Then it gives events to the statistics of the server, as each accepted message and each result
//! does. Times are of the processor: other programs do not count. Each figure is the median of some rounds; a round
//! counts its facts, and a wrong number is a failure.

use crate::clock;
use mail::CivilTime;
use observe::log_reader::{LogReader, LogReaderSettings};
use observe::stats::{Counts, Series, Statistics, WindowSizes};
use observe::{Event, NextHop, Relay, Stat};
use operator::live_statistics::LiveStatistics;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// Measures the reader of logs.
#[derive(Clone, Debug, clap::Args)]
pub struct LogsBenchArguments {
    /// Megabytes of each log
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    megabytes: u32,
    /// Events for the statistics of the server
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    events: u32,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write the log of each form into this directory, and measure nothing
    #[arg(long, value_name = "DIRECTORY")]
    write: Option<std::path::PathBuf>,
}

/// Runs the measurement and prints its figures.
#[must_use]
pub fn run(arguments: &LogsBenchArguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _written = writeln!(std::io::stderr(), "logs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The forms of logs.
const FORMS: [LogForm; 3] = [LogForm::Sendmail, LogForm::Postfix, LogForm::Json];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogForm {
    Sendmail,
    Postfix,
    Json,
}

impl LogForm {
    const fn name(self) -> &'static str {
        match self {
            Self::Sendmail => "sendmail",
            Self::Postfix => "postfix",
            Self::Json => "json",
        }
    }
}

fn measure(arguments: &LogsBenchArguments) -> Result<(), String> {
    let octets = usize::try_from(arguments.megabytes).unwrap_or(1) * 1_000_000;
    for form in FORMS {
        let (log, messages) = make_log(form, octets);
        if let Some(directory) = &arguments.write {
            let path = directory.join(format!("{}.log", form.name()));
            std::fs::write(&path, &log).map_err(|error| format!("{}: {error}", path.display()))?;
            continue;
        }
        measure_form(form, &log, messages, arguments.rounds)?;
    }
    if arguments.write.is_none() {
        measure_live(arguments.events, arguments.rounds)?;
    }
    Ok(())
}

/// Reads a log in three ways.
fn measure_form(form: LogForm, log: &str, messages: u64, rounds: u32) -> Result<(), String> {
    let mut lines = Vec::new();
    let mut hours = Vec::new();
    let mut sums = Vec::new();
    for _ in 0..rounds {
        let mut sent = 0;
        lines.push(seconds_to_read(log, |_, fact| {
            let mut counts = Counts::default();
            counts.record(fact);
            sent += counts.sent;
        })?);
        expect(form, "lines", sent, messages)?;
        let mut series = Series::new(3_600, 100);
        hours.push(seconds_to_read(log, |time, fact| {
            if let Some(counts) = series.window_at(time) {
                counts.record(fact);
            }
        })?);
        expect(form, "hours", series.total().sent, messages)?;
        let mut all = Box::new(Statistics::new(WindowSizes { seconds: 1, ..WindowSizes::LOGS }));
        sums.push(seconds_to_read(log, |time, fact| all.record(time, fact))?);
        expect(form, "all sums", all.total.sent, messages)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
    let megabytes = log.len() as f64 / 1e6;
    let [lines, hours, sums] = [lines, hours, sums].map(|times| megabytes / median(times));
    let _written = writeln!(
        std::io::stdout(),
        "{:<9} {lines:>5.0} MB/s lines alone, {hours:>5.0} MB/s into hours, {sums:>5.0} MB/s into all sums",
        form.name()
    );
    Ok(())
}

fn expect(form: LogForm, what: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{}, {what}: {found} deliveries were counted, and {expected} are in the log", form.name()))
}

/// Reads all lines of a log, and returns the processor time.
fn seconds_to_read(log: &str, mut each: impl FnMut(i64, &observe::stats::Fact<'_>)) -> Result<f64, String> {
    let now = CivilTime { year: 2026, month: 11, day: 28, hour: 0, minute: 0, second: 0 }.to_unix().unwrap_or(0);
    let mut reader = LogReader::new(LogReaderSettings { now, year: None, utc_offset: 0 });
    let started = clock::cpu();
    let mut from = 0;
    let octets = log.as_bytes();
    for end in memchr::memchr_iter(b'\n', octets) {
        reader.read_line(octets.get(from..=end).unwrap_or_default(), &mut each);
        from = end + 1;
    }
    let time = clock::cpu().saturating_sub(started).as_secs_f64();
    let counts = reader.counts();
    if counts.broken > 0 {
        return Err(format!("{} of {} lines are broken", counts.broken, counts.lines));
    }
    Ok(time)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// Makes a log of about as many octets: an arrival and a delivery for each message, 100 messages a second. Returns also
/// the number of messages.
fn make_log(form: LogForm, octets: usize) -> (String, u64) {
    let mut log = String::with_capacity(octets + 2_000);
    let mut number = 0_u64;
    while log.len() < octets {
        write_message(form, number, &mut log);
        number += 1;
    }
    (log, number)
}

fn write_message(form: LogForm, number: u64, log: &mut String) {
    let second = number / 100 % 86_400;
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    let (user, host, pid) = (number * 7_919 % 50_021, number * 31 % 2_003, 1_000 + number % 97);
    // Writing to a string succeeds.
    let _written = match form {
        LogForm::Sendmail => write!(
            log,
            "Nov 27 {h:02}:{m:02}:{s:02} mx sm-mta[{pid}]: 6AR{number:011}: from=<bounce-{user}@lists.example.com>, \
             size=4211, class=0, nrcpts=1, msgid=<{number}.{user}@lists.example.com>, bodytype=8BITMIME, proto=ESMTP, \
             daemon=MTA, relay=lists.example.com [192.0.2.7]\n\
             Nov 27 {h:02}:{m:02}:{s:02} mx sm-mta[{pid}]: 6AR{number:011}: to=<user{user}@host{host}.example.org>, \
             delay=00:00:02, xdelay=00:00:01, mailer=esmtp, pri=34211, relay=mx1.host{host}.example.org. [198.51.100.9], \
             dsn=2.0.0, stat=Sent (2.0.0 Ok: queued as 4F1D{user:05})\n"
        ),
        LogForm::Postfix => write!(
            log,
            "Nov 27 {h:02}:{m:02}:{s:02} mx postfix/smtpd[{pid}]: A{number:09X}: client=lists.example.com[192.0.2.7]\n\
             Nov 27 {h:02}:{m:02}:{s:02} mx postfix/cleanup[{pid}]: A{number:09X}: message-id=<{number}.{user}@lists.example.com>\n\
             Nov 27 {h:02}:{m:02}:{s:02} mx postfix/qmgr[812]: A{number:09X}: from=<bounce-{user}@lists.example.com>, \
             size=4211, nrcpt=1 (queue active)\n\
             Nov 27 {h:02}:{m:02}:{s:02} mx postfix/smtp[{pid}]: A{number:09X}: to=<user{user}@host{host}.example.org>, \
             relay=mx1.host{host}.example.org[198.51.100.9]:25, delay=1.4, delays=0.1/0.02/0.9/0.4, dsn=2.0.0, \
             status=sent (250 2.0.0 Ok: queued as 4F1D{user:05})\n\
             Nov 27 {h:02}:{m:02}:{s:02} mx postfix/qmgr[812]: A{number:09X}: removed\n"
        ),
        LogForm::Json => write!(
            log,
            "{{\"ts\":\"2026-11-27T{h:02}:{m:02}:{s:02}.123456Z\",\"event\":\"accepted\",\"level\":4,\"severity\":\"info\",\
             \"stop\":\"commit\",\"id\":\"6AR{number:011}\",\"from\":\"<bounce-{user}@lists.example.com>\",\"size\":4211,\
             \"class\":0,\"nrcpts\":1,\"msgid\":\"<{number}.{user}@lists.example.com>\",\"protocol\":\"ESMTP\",\
             \"daemon\":\"MTA\",\"client_name\":\"lists.example.com\",\"client_address\":\"192.0.2.7\"}}\n\
             {{\"ts\":\"2026-11-27T{h:02}:{m:02}:{s:02}.123456Z\",\"event\":\"sent\",\"level\":8,\"severity\":\"info\",\
             \"stop\":\"settle\",\"id\":\"6AR{number:011}\",\"to\":[\"<user{user}@host{host}.example.org>\"],\"delay\":2.013,\
             \"xdelay\":1.007,\"mailer\":\"esmtp\",\"priority\":34211,\"relay\":\"mx1.host{host}.example.org\",\
             \"relay_ip\":\"198.51.100.9\",\"dsn\":\"2.0.0\",\"code\":250,\"text\":\"2.0.0 Ok: queued as 4F1D{user:05}\"}}\n"
        ),
    };
}

/// Gives the events of messages to the statistics of the server.
fn measure_live(events: u32, rounds: u32) -> Result<(), String> {
    let messages = events / 2;
    let id = mail::QueueId::MIN;
    let names: Vec<[String; 2]> = (0..messages)
        .map(|number| {
            let (user, host) = (u64::from(number) * 7_919 % 50_021, u64::from(number) * 31 % 2_003);
            [format!("<user{user}@host{host}.example.org>"), format!("mx1.host{host}.example.org")]
        })
        .collect();
    let (mut times, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let live = LiveStatistics::new(clock::unix_us());
        let started = clock::cpu();
        for [to, host] in &names {
            live.record(&accepted(id));
            live.record(&delivered(id, &[to], host));
            live.count_sent(4_211);
        }
        times.push(clock::cpu().saturating_sub(started).as_secs_f64() * 1e9 / f64::from(messages * 2));
        let started = clock::cpu();
        let answer = live.answer();
        answers.push(clock::cpu().saturating_sub(started).as_secs_f64() * 1e6);
        let sent = answer.sums().total.sent;
        if sent != u64::from(messages) {
            return Err(format!("live: {sent} deliveries were counted, and {messages} were made"));
        }
    }
    let (event, answer) = (median(times), median(answers));
    let _written =
        writeln!(std::io::stdout(), "live      {event:.0} ns an event, {answer:.0} µs an answer that holds the lock");
    Ok(())
}

const fn accepted(id: mail::QueueId) -> Event<'static> {
    Event::Accepted {
        id,
        from: "<bounce@lists.example.com>",
        size: 4_211,
        class: 0,
        nrcpts: 1,
        msgid: None,
        bodytype: None,
        mt_priority: None,
        protocol: mail::Protocol::Local,
        daemon: "MTA",
        identity: None,
        relay: Relay::Local { user: "list" },
    }
}

fn delivered<'a>(id: mail::QueueId, to: &'a [&'a str], host: &'a str) -> Event<'a> {
    Event::Delivery {
        id,
        to,
        controller: None,
        delay: Duration::from_secs(2),
        xdelay: Duration::from_secs(1),
        phases: mail::PhaseTimes::default(),
        mailer: "esmtp",
        priority: 34_211,
        relay: NextHop::Host { name: Some(host), address: [198, 51, 100, 9].into() },
        dsn: mail::EnhancedCode::of(mail::Outcome::Success, 0, 0),
        reply: None,
        stat: Stat::Sent("2.0.0 Ok: queued as 4F1D2A"),
        reason: None,
    }
}
