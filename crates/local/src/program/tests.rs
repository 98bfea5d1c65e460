//! Trials of programs: their environment, the meaning of their exit status, and actions that they may not do.

use super::super::letter::tests::{Pieces, Text, order};
use super::super::order::DeliveryEnd;
use super::*;
use config::Config;
use os::login::Login;
use std::path::PathBuf;

fn me(home: &Path) -> TargetUser {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let home = home.to_str().unwrap().to_owned();
    let login = Login { name: "joe".into(), uid, gid, groups: vec![gid], home, shell: "/bin/bash".into() };
    TargetUser { login, detail: Some("lists".into()), user: "joe".into(), mailbox: None }
}

fn settings() -> Settings {
    let mut config = Config::default();
    config.local.programs = vec![PathBuf::from("/")];
    config.local.program_time_max = Duration::from_secs(60);
    config.local.program_processes_max = 0;
    Settings::new(&config)
}

fn run(command: &str, content: &mut dyn super::super::letter::Content, home: &Path, settings: &Settings) -> Verdict {
    let order = order();
    let mut letter = MailboxMessage::open(&order, content, 1 << 20).unwrap();
    let own = Rights::Own(rustix::process::geteuid().as_raw());
    deliver_to_program(&mut letter, &order, command, &me(home), settings, own)
}

/// Runs a script of a shell. The shell is the program here; the command line has none.
fn script(text: &str, settings: &Settings) -> (Verdict, PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script");
    std::fs::write(&file, text).unwrap();
    let mut content = Text::new(format!("A: b\r\n\r\nFrom me\r\n{}", "x\r\n".repeat(100_000)), 10_000);
    let verdict = run(&format!("/bin/sh '{}'", file.display()), &mut content, directory.path(), settings);
    (verdict, directory.path().join("out"), directory)
}

#[test]
fn a_program_is_given_the_message_and_who_it_is_for() {
    let (verdict, out, directory) = script("cat > out; env | sort >> out; pwd >> out; umask >/dev/null", &settings());
    assert_eq!(verdict, Verdict::delivered());
    let text = std::fs::read_to_string(out).unwrap();
    let begin = "From ann@a.example Fri Jan 15 08:00:00 2027\nReturn-Path: <ann@a.example>\nDelivered-To: joe@x.example\nA: b\n\nFrom me\nx\n";
    assert!(text.starts_with(begin), "{}", &text[..300]);
    let (_, told) = text.split_once("x\nAGENT").unwrap();
    let home = directory.path().to_str().unwrap();
    for line in [
        "DOMAIN=x.example",
        "EXTENSION=lists",
        &format!("HOME={home}"),
        "LOCAL=joe",
        "LOGNAME=joe",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "RECIPIENT=joe@x.example",
        "SENDER=ann@a.example",
        "SHELL=/bin/bash",
        "USER=joe",
        home,
    ] {
        assert!(told.lines().any(|one| one == line), "{line} in {told}");
    }
    assert!(!told.contains("CARGO"), "nothing of our own environment");
}

#[test]
fn its_end_is_what_becomes_of_the_mail() {
    for (text, end, word) in [
        ("exit 0", DeliveryEnd::Delivered, ""),
        ("cat >/dev/null; exit 67", DeliveryEnd::Failed, "User unknown"),
        ("echo no such list >&2; exit 67", DeliveryEnd::Failed, "User unknown; it said: no such list"),
        ("exit 75", DeliveryEnd::Deferred, "try again"),
        ("exit 1", DeliveryEnd::Failed, "unknown mailer error 1"),
        ("kill -9 $$", DeliveryEnd::Deferred, "mailer prog died with signal 9"),
        ("cat >/dev/null; kill -11 $$", DeliveryEnd::Deferred, "mailer prog died with signal 11"),
    ] {
        let (verdict, ..) = script(text, &settings());
        assert!(verdict.end == end && verdict.text.contains(word), "{text}: {verdict:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    for (command, end, word) in [
        ("exit 67", DeliveryEnd::Failed, "User unknown"),
        ("/bin/cat | /bin/cat", DeliveryEnd::Deferred, "means something to a shell"),
        ("/nowhere/prog", DeliveryEnd::Deferred, "there is no program"),
    ] {
        let verdict = run(command, &mut Text::new("\r\n", 9), directory.path(), &settings());
        assert!(verdict.end == end && verdict.text.contains(word), "{command}: {verdict:?}");
    }
    let none = Settings { programs: Vec::new(), ..settings() };
    let verdict = run("/bin/cat", &mut Text::new("\r\n", 9), directory.path(), &none);
    assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("local.programs"), "{verdict:?}");
}

/// Whether a process with this in its command line is there.
fn is_there(mark: &str) -> bool {
    let of = |entry: io::Result<std::fs::DirEntry>| std::fs::read(entry.ok()?.path().join("cmdline")).ok();
    let is_it = |line: Vec<u8>| line.windows(mark.len()).any(|part| part == mark.as_bytes());
    // Those that wait to be buried have none.
    std::fs::read_dir("/proc").unwrap().filter_map(of).any(is_it)
}

#[test]
fn what_takes_too_long_is_killed_with_its_children() {
    let short = Settings { program_time: Duration::from_secs(5), ..settings() };
    // One that reads nothing, one that has read all, one that says something all the time.
    for text in ["echo hm; sleep 98", "cat >/dev/null; sleep 98", "cat >/dev/null; while :; do echo hm; done"] {
        let mark = format!("98.{}", text.len());
        let (verdict, ..) = script(&format!("sh -c 'sleep {mark}' & {text}"), &short);
        assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("local.program_time_max"), "{verdict:?}");
        assert!(verdict.text.contains("it said: hm") || !text.contains("hm"), "{verdict:?}");
        // A killed process ends a moment later.
        assert!(!(0..1_000).all(|_| is_there(&format!("sleep\0{mark}"))), "{text}: a child is left");
    }
    // The control of the question.
    let mut child = std::process::Command::new("sleep").arg("98.5").spawn().unwrap();
    // A process that is just being made has no command line for a moment.
    assert!((0..1_000).any(|_| is_there("sleep\x0098.5")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_flood_of_output_is_read_and_forgotten() {
    let flood = "cat >/dev/null; head -c 20000000 /dev/zero | tr '\\0' x; echo; exit 67";
    let (verdict, ..) = script(flood, &settings());
    assert_eq!(verdict.end, DeliveryEnd::Failed);
    assert!(verdict.text.starts_with("User unknown; it said: xxx") && verdict.text.len() < 400, "{verdict:?}");
}

#[test]
fn children_that_stay_keep_nobody() {
    let (verdict, ..) = script("cat >/dev/null; sleep 97 & echo $! > out; exit 0", &settings());
    assert_eq!(verdict, Verdict::delivered());
    let (verdict, out, _directory) = script("cat >/dev/null; sleep 97 & echo $! > out; exit 0", &settings());
    assert_eq!(verdict, Verdict::delivered());
    let pid = std::fs::read_to_string(out).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn half_a_message_is_never_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script");
    std::fs::write(&file, "cat > out; mv out whole").unwrap();
    let mut content = Pieces(vec![Ok(b"A: b\r\n\r\nx\r\n"), Ok(b"y\r\n"), Err("it is gone")]);
    let verdict = run(&format!("/bin/sh {}", file.display()), &mut content, directory.path(), &settings());
    assert_eq!(verdict, Verdict::deferred((3, 0), "the message cannot be read: it is gone"));
    assert!(!directory.path().join("whole").exists(), "it was killed before its input ended");
    // The control: with the whole of it there is a file.
    let mut content = Pieces(vec![Ok(b"A: b\r\n\r\nx\r\n"), Ok(b"y\r\n")]);
    let verdict = run(&format!("/bin/sh {}", file.display()), &mut content, directory.path(), &settings());
    assert!(verdict == Verdict::delivered() && directory.path().join("whole").exists());
}

#[test]
fn the_bound_of_processes_is_set() {
    // The kernel applies no such bound to root, so only the number is checked.
    let bounded = Settings { processes_max: 77, ..settings() };
    let (verdict, out, _directory) = script("cat >/dev/null; grep processes /proc/self/limits > out", &bounded);
    assert_eq!(verdict, Verdict::delivered());
    assert!(std::fs::read_to_string(out).unwrap().contains("77"));
}
