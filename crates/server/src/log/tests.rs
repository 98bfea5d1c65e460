//! The log with real files and sockets: callers do not wait, every lost line is counted, and the order is kept.

use super::queue::{Pushed, Queue};
use super::render::Style;
use super::{Format, Log, LogSettings, Target, facility};
use observe::counters::Counter;
use observe::{Event, Limit, Relay, Severity};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Far longer than anything here takes, on a machine that is busy with something else too.
const SOON: Duration = Duration::from_secs(60);

fn settings(target: Target) -> LogSettings {
    LogSettings {
        format: Format::Sendmail,
        target,
        level: 9,
        queue_lines_max: 100_000,
        tag: "mailrace".to_owned(),
        facility: 2,
        hostname: "mx1".to_owned(),
    }
}

fn spool(text: &str) -> Event<'_> {
    Event::Spool { severity: Severity::Info, text }
}

/// Returns the lines of a file after `tag[pid]: `.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| line.split_once("]: ").unwrap().1.to_owned()).collect()
}

#[test]
fn each_caller_finds_its_lines_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let log = log.clone();
            scope.spawn(move || {
                for n in 0..2_000 {
                    log.event(&spool(&format!("{caller} {n}")));
                }
            });
        }
    });
    assert!(log.flush_and_close_within(SOON));
    let lines = lines(&path);
    assert_eq!(lines.len(), 8_000);
    for caller in 0..4 {
        let own = format!("spool: {caller} ");
        let numbers: Vec<usize> = lines.iter().filter_map(|line| line.strip_prefix(&own)?.parse().ok()).collect();
        assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_panic_in_making_a_line_can_be_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    // The hook runs where the panic happened, with the thread's line still in use.
    super::LOCAL.with(|local| {
        let _line_in_use = local.borrow_mut();
        log.event(&spool("panic"));
    });
    assert!(log.flush_and_close_within(SOON));
    assert_eq!(lines(&path), ["spool: panic"]);
}

#[test]
fn lines_look_as_syslog_daemons_write_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    log.event(&Event::LogDropped { lines: 3 });
    assert!(log.flush(SOON));
    log.reconfigure(&LogSettings { format: Format::Json, ..settings(Target::File(path.clone())) });
    log.event(&Event::LogDropped { lines: 4 });
    assert!(log.flush_and_close_within(SOON));
    let text = std::fs::read_to_string(&path).unwrap();
    let (first, second) = text.split_once('\n').unwrap();
    let pid = std::process::id();
    let tail = format!(" mx1 mailrace[{pid}]: log: 3 lines dropped, the writer cannot keep up");
    let date = first.strip_suffix(&tail).unwrap();
    assert_eq!(date.len(), "Nov 20 13:00:00".len());
    let object: serde_json::Value = serde_json::from_str(second).unwrap();
    let ts: jiff::Timestamp = object["ts"].as_str().unwrap().parse().unwrap();
    assert_eq!(object["ts"].as_str().unwrap(), format!("{ts:.6}"));
    assert_eq!(object["lines"], 4);
}

#[test]
fn the_level_decides_what_is_written_and_not_what_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    let connected = Event::Connected { relay: Relay::address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))), daemon: "MTA" };
    log.event(&connected);
    log.reconfigure(&LogSettings { level: 12, ..settings(Target::File(path.clone())) });
    assert!(log.writes(12) && !log.writes(13));
    log.event(&connected);
    assert!(log.flush_and_close_within(SOON));
    assert_eq!(lines(&path), ["NOQUEUE: connect from [192.0.2.7]"]);
    assert_eq!(log.counter(Counter::Connections), 2);
}

#[test]
fn a_renamed_file_is_left_and_a_new_one_begun() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    log.event(&spool("before"));
    assert!(log.flush(SOON));
    rename(&path, &old);
    log.event(&spool("between"));
    log.reopen();
    log.event(&spool("after"));
    assert!(log.flush_and_close_within(SOON));
    assert_eq!(lines(&old), ["spool: before", "spool: between"]);
    assert_eq!(lines(&path), ["spool: after"]);
}

#[test]
fn a_file_that_was_renamed_or_deleted_without_a_signal_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    log.event(&spool("before"));
    log.follow_file();
    assert!(log.flush(SOON));
    rename(&path, &old);
    log.event(&spool("between"));
    log.follow_file();
    log.event(&spool("after"));
    assert!(log.flush(SOON));
    assert_eq!(lines(&old), ["spool: before", "spool: between"]);
    assert_eq!(lines(&path), ["spool: after"]);
    // It cannot be made where its directory is gone: the old one is used on, and that is said.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    log.follow_file();
    assert!(log.flush(SOON));
    let trouble = log.trouble().unwrap();
    assert!(trouble.reason.contains("renamed or deleted") && !trouble.reason.contains("os error"), "{trouble:?}");
    std::fs::remove_dir(&path).unwrap();
    log.follow_file();
    log.event(&spool("again"));
    assert!(log.flush_and_close_within(SOON));
    assert_eq!((lines(&path), log.trouble().is_none()), (vec!["spool: again".to_owned()], true));
}

#[expect(clippy::disallowed_methods, reason = "what logrotate does, not a file of ours")]
fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

#[test]
fn lines_wait_for_a_missing_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing/log");
    let log = Log::start(&settings(Target::File(path.clone()))).unwrap();
    log.event(&spool("kept"));
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    log.reopen();
    assert!(log.flush_and_close_within(SOON));
    assert_eq!(lines(&path), ["spool: kept"]);
    assert_eq!(log.counter(Counter::LogDropped), 0);
}

#[test]
fn what_a_full_disk_did_not_take_is_said_by_the_next_target() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = Log::start(&settings(Target::File("/dev/full".into()))).unwrap();
    for _ in 0..3 {
        log.event(&spool("lost"));
    }
    log.reconfigure(&settings(Target::File(path.clone())));
    assert!(log.flush(SOON));
    log.event(&spool("kept"));
    assert!(log.flush_and_close_within(SOON));
    assert_eq!(lines(&path), ["log: 3 lines dropped, the writer cannot keep up", "spool: kept"]);
    assert_eq!(log.counter(Counter::LogDropped), 3);
}

/// Takes the datagrams that a socket holds now.
fn drain(socket: &UnixDatagram, datagrams: &mut Vec<String>, until: impl Fn(&[String]) -> bool) {
    let mut buffer = [0; 4_096];
    while !until(datagrams) {
        let length = socket.recv(&mut buffer).unwrap();
        datagrams.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
}

fn listen(directory: &Path) -> (UnixDatagram, std::path::PathBuf) {
    let path = directory.join("socket");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    (socket, path)
}

#[test]
fn nobody_waits_for_a_target_that_takes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, path) = listen(directory.path());
    let log = Log::start(&LogSettings { queue_lines_max: 1_000, ..settings(Target::Syslog(path)) }).unwrap();
    // The socket takes some datagrams and then blocks the writer; that this loop ends shows that it blocks no caller.
    let sent = 20_000;
    for n in 0..sent {
        log.event(&spool(&n.to_string()));
    }
    let dropped = log.counter(Counter::LogDropped);
    assert!(dropped > 0);
    // The target works again. Every line comes, or is counted in a line about lost ones.
    let mut datagrams = Vec::new();
    let said = |datagrams: &[String]| -> Vec<u64> {
        let said = datagrams.iter().filter_map(|line| line.split_once("]: log: ")?.1.split_once(" lines dropped, "));
        said.map(|(number, _)| number.parse().unwrap()).collect()
    };
    drain(&socket, &mut datagrams, |datagrams| said(datagrams).iter().sum::<u64>() == dropped);
    let lines = datagrams.len() - said(&datagrams).len();
    assert_eq!(u64::try_from(lines).unwrap() + dropped, sent);
    assert_eq!(log.counter(Counter::LogDropped), dropped);
    assert!(log.flush_and_close_within(SOON));
}

#[test]
fn closing_gives_up_a_target_that_takes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::start(&settings(Target::Syslog(directory.path().join("nobody")))).unwrap();
    log.event(&spool("lost"));
    assert!(log.flush_and_close_within(Duration::from_secs(15)));
    assert_eq!(log.counter(Counter::LogDropped), 1);
    log.event(&spool("after the end"));
    assert!(!log.flush(SOON));
}

#[test]
fn syslog_gets_a_datagram_for_each_line_and_a_new_daemon_too() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, path) = listen(directory.path());
    let log = Log::start(&settings(Target::Syslog(path.clone()))).unwrap();
    let pid = std::process::id();
    let mut datagrams = Vec::new();
    log.event(&spool("one"));
    log.event(&Event::Spool { severity: Severity::Error, text: "two" });
    drain(&socket, &mut datagrams, |found| found.len() == 2);
    for (datagram, priority, text) in [(&datagrams[0], "<22>", "one"), (&datagrams[1], "<19>", "two")] {
        let rest = datagram.strip_prefix(priority).unwrap();
        let (date, rest) = rest.split_at("Nov 20 13:00:00".len());
        assert!(date.is_ascii());
        assert_eq!(rest, format!(" mailrace[{pid}]: spool: {text}"));
    }
    // The daemon is restarted. A child that another test has just made may hold the socket for a moment.
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    drop(socket);
    std::fs::remove_file(&path).unwrap();
    let (socket, _) = listen(directory.path());
    log.event(&spool("three"));
    drain(&socket, &mut datagrams, |found| found.len() == 3);
    assert!(datagrams[2].ends_with("spool: three"));
    assert!(log.flush_and_close_within(SOON));
}

#[test]
fn journald_gets_fields() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, path) = listen(directory.path());
    let log = Log::start(&settings(Target::Journald(path))).unwrap();
    let id = mail::QueueId::MIN;
    let relay = Relay::Local { user: "ann" };
    log.event(&Event::LimitReached { id: Some(id), relay, limit: Limit::SmtpErrorsMax, max: 20 });
    log.event(&Event::LogDropped { lines: 1 });
    let mut datagrams = Vec::new();
    drain(&socket, &mut datagrams, |found| found.len() == 2);
    let fields: Vec<&str> = datagrams[0].lines().collect();
    let message = format!("MESSAGE={id}: limit=smtp.errors_max, max=20, relay=ann@localhost");
    let queue_id = format!("QUEUE_ID={id}");
    assert_eq!(
        fields,
        [&message, "PRIORITY=5", "SYSLOG_FACILITY=2", "SYSLOG_IDENTIFIER=mailrace", "EVENT=limit_reached", &queue_id]
    );
    assert!(!datagrams[1].contains("QUEUE_ID"));
    assert!(log.flush_and_close_within(SOON));
}

#[test]
fn facilities_have_the_numbers_of_syslog() {
    let table = [("kern", Some(0)), ("mail", Some(2)), ("local0", Some(16)), ("local7", Some(23)), ("post", None)];
    for (name, number) in table {
        assert_eq!(facility(name), number);
    }
}

/// Every limit of a session has a name that the counters know.
#[test]
fn every_limit_of_a_session_is_counted_by_its_name() {
    let limits = smtp::server::Limits::default();
    // No `..`: a new limit has to get a name here and in `observe`.
    let smtp::server::Limits {
        message_bytes: _,
        recipients: _,
        transactions: _,
        command_line_bytes: _,
        auth_line_bytes: _,
        content_line_bytes: _,
        header_fields: _,
        header_bytes: _,
        hops: _,
        errors: _,
        refused_recipients: _,
        idle_commands: _,
        command_time: _,
        transaction_time: _,
        session_time: _,
        rate_bytes: _,
        rate_window: _,
        // How much is handed over at once; it refuses nothing.
        content_piece_bytes: _,
    } = limits;
    let names = [
        "message.size_max",
        "message.recipients_max",
        "smtp.transactions_max",
        "smtp.command_line_bytes_max",
        "smtp.auth_line_bytes_max",
        "message.line_bytes_max",
        "message.header_fields_max",
        "message.header_bytes_max",
        "message.hops_max",
        "smtp.errors_max",
        "smtp.refused_recipients_max",
        "smtp.idle_commands_max",
        "smtp.command_time_max",
        "smtp.transaction_time_max",
        "smtp.session_time_max",
        "smtp.rate_bytes_min",
        "smtp.rate_window",
    ];
    for name in names {
        assert_ne!(Limit::from_name(name), Limit::Other, "{name}");
    }
}

/// `cargo test -p mailrace-server --lib cost_of_a_line -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, not a check"]
fn cost_of_a_line() {
    let directory = tempfile::tempdir().unwrap();
    for (format, callers) in [(Format::Sendmail, 1), (Format::Sendmail, 2), (Format::Json, 1)] {
        let target = Target::File(directory.path().join("log"));
        let log = Log::start(&LogSettings { format, queue_lines_max: 1_000_000, ..settings(target) }).unwrap();
        let event = Event::Accepted {
            id: mail::QueueId::MIN,
            from: "<bounces+4711@lists.example.org>",
            size: 4_096,
            class: 0,
            nrcpts: 1,
            msgid: Some("<20261120130000.4711@lists.example.org>"),
            bodytype: Some(mail::Body::EightBitMime),
            mt_priority: None,
            protocol: mail::Protocol::Esmtp(mail::Session { tls: true, auth: false, utf8: false }),
            daemon: "MTA",
            identity: None,
            relay: Relay::Host {
                name: Some("out.example.org"),
                address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
                may_be_forged: false,
            },
        };
        let lines = 200_000;
        let begin = os::clock::now();
        std::thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| (0..lines).for_each(|_| log.event(&event)));
            }
        });
        let nanos = begin.elapsed().as_nanos() / lines;
        assert!(log.flush_and_close_within(SOON));
        let dropped = log.counter(Counter::LogDropped);
        println!("{format:?}, {callers} callers: {nanos} ns per line and caller, {dropped} dropped");
    }
}

#[test]
fn a_line_made_for_other_settings_is_made_again() {
    let style = || Style::new(&settings(Target::Stdout));
    let queue = Queue::new(style(), 1);
    let current = Arc::clone(&queue.style());
    assert_eq!(queue.push(&Arc::new(style()), "stale"), Pushed::Stale);
    assert_eq!(queue.push(&current, "taken"), Pushed::Taken);
    assert_eq!(queue.push(&current, "too many"), Pushed::Dropped);
    queue.set_style_and_target(style(), 1, Target::Stdout);
    assert_eq!(queue.push(&current, "stale now"), Pushed::Stale);
}

#[test]
fn the_configuration_names_the_target() {
    use crate::config::{self, LogPath};
    let config = |path| config::Log {
        format: config::LogFormat::Json,
        path,
        level: 5,
        queue_lines_max: 10,
        tag: "mail".to_owned(),
        facility: "local3".to_owned(),
    };
    let table = [
        (LogPath::Stdout, Target::Stdout),
        (LogPath::Syslog, Target::Syslog("/dev/log".into())),
        (LogPath::Journald, Target::Journald("/run/systemd/journal/socket".into())),
        (LogPath::File("a".into()), Target::File("a".into())),
    ];
    for (path, target) in table {
        let wanted = LogSettings {
            format: Format::Json,
            target,
            level: 5,
            queue_lines_max: 10,
            tag: "mail".to_owned(),
            facility: 19,
            hostname: "mx1".to_owned(),
        };
        assert_eq!(LogSettings::from_config(&config(path), "mx1.example.org"), wanted);
    }
}
