//! `mailrace import queue`: mail that sendmail has accepted arrives once, as sendmail would deliver it, whenever the
//! command is stopped.

use crate::hop::{Act, At, Hop, Mail, Manners, address};
use crate::world::{any_line, ends_empty, impatient, killed, relay, stopped, waiting};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use testkit::harness::{Setup, copy_program, needs, poll, program, text};

const PARTIAL: &[u8] = include_bytes!("../../../route/src/import/queue/tests/partial.qf");
const ALIASES: &[u8] = include_bytes!("../../../route/src/import/queue/tests/aliases.qf");
const FORWARD: &[u8] = include_bytes!("../../../route/src/import/queue/tests/forward.qf");

/// A queue of sendmail, beside a server that has run once.
struct Queue {
    setup: Setup,
    directory: PathBuf,
}

#[expect(clippy::disallowed_methods, reason = "control files say when a message came")]
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// A control file.
fn control(age: u64, more: &str, recipients: &[&str]) -> String {
    let recipients: String = recipients.iter().map(|one| format!("rRFC822; {one}\nRPFD:<{one}>\n")).collect();
    format!(
        "V8\nT{}\nK0\nN0\nP30000\nFs\n$_root@localhost\n{more}S<joe@client.test>\n{recipients}\
         H?P?Return-Path: <\u{81}g>\nH??Received: by old.test id x;\n\tSun, 22 Nov 2026 14:19:29 GMT\n\
         H?D?Date: Sun, 22 Nov 2026 14:19:29 GMT\nH?x?Full-Name: joe\nH?M?Message-Id: <1@old.test>\n\
         H??Subject: old\nH??X-Folded: a\n\tb\n.\n",
        now() - age
    )
}

/// The header section of the messages that `control` writes.
const HEADER: &str = "Received: by old.test id x;\r\n\tSun, 22 Nov 2026 14:19:29 GMT\r\nDate: Sun, 22 Nov 2026 14:19:29 GMT\r\n\
                      Message-Id: <1@old.test>\r\nSubject: old\r\nX-Folded: a\r\n\tb\r\n\r\n";

impl Queue {
    fn new(setup: Setup) -> Self {
        // The server makes its directories when it starts.
        let (_, setup) = stopped(setup.start());
        let directory = setup.path("mqueue");
        fs::create_dir(&directory).expect("made");
        Self { setup, directory }
    }

    /// Puts a message there, with From: behind its date so that its header is whole.
    fn put(&self, id: &str, control: &str, body: &str) {
        let control = control.replace("H?x?Full-Name", "H?F?From: joe@client.test\nH?x?Full-Name");
        fs::write(self.directory.join(format!("df{id}")), body).expect("written");
        fs::write(self.directory.join(format!("qf{id}")), latin(&control)).expect("written");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.args(["import", "queue", "--config"]).arg(self.setup.write()).args(words).arg(&self.directory);
        command
    }

    fn import(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it runs")
    }

    fn json(&self, words: &[&str]) -> (Option<i32>, Value) {
        let output = self.import(&[words, &["--json"]].concat());
        let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
        (output.status.code(), value)
    }

    /// Imports all of it.
    #[track_caller]
    fn whole(&self) {
        let output = self.import(&[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }

    fn names(&self) -> Vec<String> {
        names(&self.directory)
    }

    fn pickup(&self) -> PathBuf {
        self.setup.path("spool-pickup")
    }

    /// Returns the messages that wait in the pickup directory.
    fn handed(&self, prefix: &str) -> Vec<String> {
        let mut names = names(&self.pickup());
        names.retain(|name| name.starts_with(prefix));
        names
    }
}

/// The one octet of control files of sendmail that is no text.
fn latin(control: &str) -> Vec<u8> {
    let (mut octets, mark) = (Vec::new(), "\u{81}");
    for (number, part) in control.split(mark).enumerate() {
        if number > 0 {
            octets.push(0x81);
        }
        octets.extend_from_slice(part.as_bytes());
    }
    octets
}

/// A recorded control file as text.
fn recorded(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).replace('\u{fffd}', "\u{81}")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn header() -> String {
    HEADER.replace("Message-Id:", "From: joe@client.test\r\nMessage-Id:")
}

fn rcpts(mails: &[Arc<Mail>]) -> Vec<String> {
    let mut all: Vec<String> = mails.iter().flat_map(|mail| &mail.rcpts).map(|one| address(one).to_owned()).collect();
    all.sort();
    all
}

#[test]
fn what_waited_arrives_as_it_was() {
    let hop = Hop::new(Manners::offering(&["DSN", "8BITMIME", "PIPELINING"]));
    let queue = Queue::new(relay(&[&hop]));
    let asked = control(3_600, "B8BITMIME\nF8bdns\nZenv+2B1\nMDeferred: no\n", &["a@dead.test"]).replace(
        "RPFD:<a@dead.test>",
        "RPFD:<a@dead.test>\nQrfc822;orig+2Bx@dead.test\nrRFC822; r1@dead.test\nRPNSD:<r1@dead.test>\nrRFC822; r2@dead.test\nRPN:<r2@dead.test>",
    );
    queue.put(
        "AA1",
        &asked.replace("H??Subject", "H??Bcc: hidden@x.test\nH??Subject"),
        "one\n.dot\n..dots\nFrom here\n\u{e4}",
    );
    queue.put("AA2", &control(60, "", &["b@dead.test"]), "");
    fs::write(queue.directory.join("xfAA1"), "transcript").expect("written");
    let output = queue.import(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("2 messages for 4 recipients taken over, 0 of them held; 0 files not"),
        "{}",
        text(&output)
    );
    assert_eq!(queue.names(), ["mailrace-imported"], "nothing is left for sendmail");
    assert_eq!(names(&queue.directory.join("mailrace-imported")), ["dfAA1", "dfAA2", "qfAA1", "qfAA2", "xfAA1"]);
    let again = queue.json(&[]);
    assert_eq!((again.0, again.1["taken"].as_array().map(Vec::len)), (Some(0), Some(0)), "a second run finds nothing");
    let mut server = queue.setup.start();
    let mails = hop.wait_until("both", |mails| rcpts(mails).len() == 4);
    let first = mails.iter().find(|mail| mail.text().contains("\r\none\r\n")).expect("it came");
    assert!(first.mail.starts_with("MAIL FROM:<joe@client.test>"), "{}", first.mail);
    for part in ["BODY=8BITMIME", "RET=HDRS", "ENVID=env+2B1"] {
        assert!(first.mail.contains(part), "{}", first.mail);
    }
    let mut asked = first.rcpts.clone();
    asked.sort();
    assert_eq!(
        asked,
        [
            "RCPT TO:<a@dead.test>",
            "RCPT TO:<r1@dead.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;orig+2Bx@dead.test",
            "RCPT TO:<r2@dead.test> NOTIFY=NEVER",
        ]
    );
    assert_eq!(first.text(), format!("{}one\r\n.dot\r\n..dots\r\nFrom here\r\n\u{e4}\r\n", header()));
    let second = mails.iter().find(|mail| mail.to_is("b@dead.test")).expect("it came");
    assert_eq!(second.text(), header(), "a header alone");
    let line = any_line(&mut server, &["was taken over", "qfAA1 before"]);
    assert!(line.contains("mqueue/qfAA1"), "{line}");
    let ended = ends_empty(server);
    let delay = |line: &&String| line.contains("to=<a@dead.test>") || line.contains("<a@dead.test>,");
    let line = ended.log.iter().filter(|line| line.contains("delay=")).find(delay).expect("a line");
    assert!(line.contains("delay=01:0"), "since it came to sendmail: {line}");
}

#[test]
fn age_counts_from_the_first_server() {
    // Deferred for ever: a message older than five days is returned at once, one older than four hours has a warning.
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("client.test") => Act::Well,
        At::Rcpt => Act::Say("451 4.2.0 not now"),
        _ => Act::Well,
    }));
    let queue = Queue::new(relay(&[&hop]));
    queue.put("AB1", &control(6 * 86_400, "", &["old@dead.test"]), "old\n");
    queue.put("AB2", &control(5 * 3_600, "", &["warn@dead.test"]), "warn\n");
    queue.put("AB3", &control(5 * 3_600, "", &["warned@dead.test"]).replace("Fs\n", "Fws\n"), "warned\n");
    queue.put("AB4", &control(60, "", &["young@dead.test"]), "young\n");
    queue.whole();
    let mut server = queue.setup.start();
    let told = hop.wait_until("a failure and a delay", |mails| mails.len() >= 2);
    for name in ["warned@dead.test", "young@dead.test"] {
        any_line(&mut server, &[&format!("<{name}>"), "Deferred"]);
    }
    let text: Vec<String> = told.iter().map(|mail| mail.text()).collect();
    let about =
        |name: &str| text.iter().filter(|text| text.contains(&format!("Final-Recipient: rfc822; {name}\r\n"))).count();
    assert_eq!([about("old@dead.test"), about("warn@dead.test")], [1, 1], "{text:#?}");
    assert!(
        text.iter().any(|text| text.contains("Action: failed"))
            && text.iter().any(|text| text.contains("Action: delayed"))
    );
    // The server hears a moment later than the hop that the reports are there.
    poll("three wait", || (waiting(&server) == 3).then_some(()));
    assert_eq!(hop.count(), 2, "who was told is not told again");
    drop(killed(server));
}

#[test]
fn what_was_in_quarantine_is_held() {
    let hop = Hop::good();
    let queue = Queue::new(relay(&[&hop]));
    queue.put("AC1", &control(60, "qa virus\n", &["q@dead.test"]), "bad\n");
    rename(&queue.directory, "qfAC1", "hfAC1");
    queue.put("AC2", &control(60, "", &["good@dead.test"]), "good\n");
    let (exit, shown) = queue.json(&["--dry-run"]);
    assert_eq!((exit, shown["taken"][0]["hold"].as_str()), (Some(0), Some("a virus")));
    queue.whole();
    let mut server = queue.setup.start();
    assert_eq!(rcpts(&hop.wait(1)), ["good@dead.test"]);
    any_line(&mut server, &["quarantine=a virus"]);
    let shown = server.control(&["queue", "list", "--json"], b"");
    let words = text(&shown);
    assert!(words.contains("q@dead.test"), "{words}");
    assert_eq!(hop.count(), 1);
    drop(killed(server));
}

#[test]
fn nothing_is_done_twice_wherever_a_run_was_stopped() {
    let hop = Hop::good();
    let queue = Queue::new(relay(&[&hop]));
    for id in ["AD1", "AD2", "AD3", "AD4"] {
        queue.put(id, &control(60, "", &[&format!("{id}@dead.test")]), "x\n");
    }
    queue.whole();
    let aside = queue.directory.join("mailrace-imported");
    let handed = queue.handed("mail.");
    assert_eq!(handed.len(), 4);
    let id_of = |name: &String| {
        let octets = fs::read(queue.pickup().join(name)).expect("there");
        ["AD1", "AD2", "AD3", "AD4"].into_iter().find(|id| {
            let wanted = format!("{id}@dead.test");
            octets.windows(wanted.len()).any(|some| some == wanted.as_bytes())
        })
    };
    for name in &handed {
        let waits = name.replacen("mail.", "wait.", 1);
        let id = id_of(name).expect("one of ours");
        match id {
            // Stopped before the message changed hands.
            "AD1" => {
                rename(&queue.pickup(), name, &waits);
                for kind in ["qf", "df"] {
                    rename_to(&aside.join(format!("{kind}{id}")), &queue.directory.join(format!("{kind}{id}")));
                }
            }
            // Stopped behind that, with the text still there.
            "AD2" => {
                rename(&queue.pickup(), name, &waits);
                rename_to(&aside.join("dfAD2"), &queue.directory.join("dfAD2"));
            }
            // Stopped before the message changed hands, and sendmail has delivered it since.
            "AD3" => {
                rename(&queue.pickup(), name, &waits);
                for kind in ["qf", "df"] {
                    fs::remove_file(aside.join(format!("{kind}{id}"))).expect("removed");
                }
            }
            // The files are put back before the server has taken the message.
            _ => {
                for kind in ["qf", "df"] {
                    rename_to(&aside.join(format!("{kind}{id}")), &queue.directory.join(format!("{kind}{id}")));
                }
            }
        }
    }
    let (exit, said) = queue.json(&[]);
    assert_eq!(exit, Some(75), "{said}");
    assert_eq!((said["resumed"].as_u64(), said["taken"].as_array().map(Vec::len)), (Some(1), Some(1)), "{said}");
    assert_eq!(said["left"][0]["why"].as_str(), Some("known"), "{said}");
    assert!(queue.handed("wait.").is_empty() && queue.handed("mail.").len() == 3);
    assert_eq!(queue.names(), ["dfAD4", "mailrace-imported", "qfAD4"]);
    let server = queue.setup.start();
    hop.wait(3);
    ends_empty(server);
    assert_eq!(rcpts(&hop.mails()), ["AD1@dead.test", "AD2@dead.test", "AD4@dead.test"]);
}

#[expect(clippy::disallowed_methods, reason = "a test, whose files need not survive a power cut")]
fn rename_to(from: &Path, to: &Path) {
    fs::rename(from, to).expect("renamed");
}

fn rename(directory: &Path, from: &str, to: &str) {
    rename_to(&directory.join(from), &directory.join(to));
}

#[test]
fn a_command_that_is_killed_all_the_time_loses_nothing_and_repeats_nothing() {
    const MESSAGES: usize = 1_500;
    let hop = Hop::good();
    let queue = Queue::new(relay(&[&hop]));
    for number in 0..MESSAGES {
        queue.put(&format!("AE{number:05}"), &control(60, "", &[&format!("m{number}@dead.test")]), "x\n");
    }
    let mut kills = 0;
    let done = |queue: &Queue| !queue.names().iter().any(|name| name.starts_with("qf"));
    while !done(&queue) {
        let mut child = queue.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        // The command is killed behind some step of the next messages; its progress shows the step.
        let (before, steps) = (progress(&queue), 7 * (kills % 40));
        poll("the command does nothing", || {
            let ended = child.try_wait().expect("ours").is_some();
            (ended || progress(&queue) >= before + steps).then_some(())
        });
        drop(child.kill());
        drop(child.wait());
        kills += 1;
    }
    let last = queue.json(&[]);
    assert_eq!(last.0, Some(0), "{}", last.1);
    assert!(kills > 3, "{kills} kills");
    let handed = queue.handed("mail.");
    assert_eq!((handed.len(), queue.handed("wait.").len()), (MESSAGES, 0), "{kills} kills");
    println!("{MESSAGES} messages, {kills} kills");
    let server = queue.setup.start();
    hop.wait_until("all", |mails| mails.len() >= MESSAGES);
    ends_empty(server);
    let mut all = rcpts(&hop.mails());
    all.dedup();
    assert_eq!((all.len(), hop.count()), (MESSAGES, MESSAGES), "each once");
}

/// How many files a run has touched.
fn progress(queue: &Queue) -> usize {
    let aside = queue.directory.join("mailrace-imported");
    let moved = if aside.exists() { names(&aside).len() } else { 0 };
    names(&queue.pickup()).len() + moved
}

#[test]
fn what_sendmail_works_on_is_left_alone() {
    let queue = Queue::new(impatient());
    queue.put("AF1", &control(60, "", &["a@dead.test"]), "x\n");
    queue.put("AF2", &control(60, "", &["b@dead.test"]), "x\n");
    let locked = File::open(queue.directory.join("qfAF1")).expect("there");
    flock(&locked, FlockOperation::LockExclusive).expect("locked");
    let (exit, said) = queue.json(&[]);
    assert_eq!((exit, said["left"][0]["why"].as_str()), (Some(75), Some("locked")), "{said}");
    assert_eq!(queue.names(), ["dfAF1", "mailrace-imported", "qfAF1"]);
    // A child of another test may have it still.
    flock(&locked, FlockOperation::Unlock).expect("let go");
    let other = File::open(&queue.directory).expect("there");
    flock(&other, FlockOperation::LockExclusive).expect("locked");
    let output = queue.import(&[]);
    assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    assert!(text(&output).contains("another mailrace import"), "{}", text(&output));
    flock(&other, FlockOperation::Unlock).expect("let go");
    // A sendmail that works in the directory keeps all of it.
    let Some(sleeper) = sendmail_in(&queue) else { return };
    let output = queue.import(&[]);
    assert_eq!(output.status.code(), Some(75));
    assert!(
        text(&output).contains("sendmail") && text(&output).contains(&sleeper.id().to_string()),
        "{}",
        text(&output)
    );
    end(sleeper);
    queue.whole();
    assert_eq!(queue.names(), ["mailrace-imported"]);
}

/// A program with that name that does nothing.
fn sendmail_in(queue: &Queue) -> Option<std::process::Child> {
    let program = queue.setup.path("sendmail-mta");
    copy_program("/bin/cat".as_ref(), &program);
    let mut command = Command::new(program);
    command.current_dir(&queue.directory).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().ok()
}

fn end(mut child: std::process::Child) {
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

#[test]
fn what_is_not_understood_stays_and_is_named() {
    let queue = Queue::new(impatient());
    let good = control(60, "", &["a@dead.test"]);
    queue.put("AG1", good.strip_suffix(".\n").expect("its end"), "x\n");
    queue.put("AG2", &good.replace("V8", "V99"), "x\n");
    queue.put("AG3", &good, "x\n");
    fs::remove_file(queue.directory.join("dfAG3")).expect("removed");
    queue.put("AG4", &good.replace("RPFD:<a@dead.test>", "RPFD:a@@"), "x\n");
    for name in ["QfAG5", "tfAG6", "dfAG7"] {
        fs::write(queue.directory.join(name), "x").expect("written");
    }
    queue.put("AG8", &good, "x\n");
    let before = queue.names();
    let (exit, said) = queue.json(&[]);
    assert_eq!(exit, Some(65), "{said}");
    let mut left: Vec<String> = said["left"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            let file = Path::new(one["file"].as_str().expect("a name")).file_name().expect("a name").to_string_lossy();
            format!("{file} {} {}", one["line"], one["why"].as_str().expect("a word"))
        })
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "QfAG5 null lost",
            "dfAG7 null leftover",
            "qfAG1 20 unreadable",
            "qfAG2 1 unreadable",
            "qfAG3 null unreadable",
            "qfAG4 10 unreadable",
            "tfAG6 null leftover",
        ]
    );
    let mut after = queue.names();
    after.retain(|name| name != "mailrace-imported");
    let without = |names: Vec<String>| names.into_iter().filter(|name| !name.ends_with("AG8")).collect::<Vec<_>>();
    assert_eq!(after, without(before), "they are where they were");
    let output = queue.import(&[]);
    assert!(text(&output).contains("qfAG2: line 1: the format has version 99"), "{}", text(&output));
    assert!(text(&output).contains("its text, dfAG3, is missing"), "{}", text(&output));
}

#[test]
fn queue_groups_and_split_directories() {
    let hop = Hop::good();
    let queue = Queue::new(relay(&[&hop]));
    let at = |name: &str| queue.directory.join(name);
    for name in ["qd1/qf", "qd1/df", "qd1/xf", "qd2", "group/qd3"] {
        fs::create_dir_all(at(name)).expect("made");
    }
    let good = |to: &str| latin(&control(60, "", &[to]));
    fs::write(at("qd1/qf/qfAH1"), good("a@dead.test")).expect("written");
    fs::write(at("qd1/df/dfAH1"), "one\n").expect("written");
    fs::write(at("qd2/qfAH2"), latin(&control(60, "dqd1\n", &["b@dead.test"]))).expect("written");
    fs::write(at("qd1/df/dfAH2"), "two\n").expect("written");
    fs::write(at("group/qd3/qfAH3"), good("c@dead.test")).expect("written");
    fs::write(at("group/qd3/dfAH3"), "three\n").expect("written");
    let output = queue.import(&["--remove"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for name in ["qd1/qf", "qd1/df", "qd2", "group/qd3"] {
        assert!(names(&at(name)).is_empty(), "{name}: {:?}", names(&at(name)));
    }
    let server = queue.setup.start();
    let mails = hop.wait(3);
    assert_eq!(rcpts(&mails), ["a@dead.test", "b@dead.test", "c@dead.test"]);
    for (to, body) in [("a@dead.test", "one"), ("b@dead.test", "two"), ("c@dead.test", "three")] {
        let mail = mails.iter().find(|mail| mail.to_is(to)).expect("it came");
        assert!(mail.text().ends_with(&format!("\r\n\r\n{body}\r\n")), "{}", mail.text());
    }
    ends_empty(server);
}

#[test]
fn a_dry_run_changes_nothing() {
    let queue = Queue::new(impatient());
    queue.put("AI1", &control(7_200, "", &["a@dead.test", "b@dead.test"]), "x\n");
    let before = (queue.names(), names(&queue.pickup()));
    let output = queue.import(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("from <joe@client.test> to 2 recipients, waits for 2h0m"), "{}", text(&output));
    assert!(text(&output).contains("1 message for 2 recipients would be taken over"), "{}", text(&output));
    assert_eq!((queue.names(), names(&queue.pickup())), before);
}

/// As oracle.example with these aliases, and joe.
fn with_maps(setup: Setup, aliases: &str) -> Setup {
    let etc = setup.path("etc");
    fs::create_dir(&etc).expect("made");
    fs::write(etc.join("aliases"), aliases).expect("written");
    let accounts = etc.join("passwd");
    fs::write(&accounts, "joe:x:1000:100::/nonexistent:/bin/sh\n").expect("written");
    setup
        .set("hostname", "\"oracle.example\"")
        .set("maps.directory", format!("{etc:?}"))
        .set("local.accounts", format!("{accounts:?}"))
}

#[test]
fn programs_go_by_their_alias_or_stay() {
    let aliases = "joe: \"|/usr/bin/vac joe\", \\joe\nprog: \"|/usr/bin/program -x\"\n";
    let queue = Queue::new(with_maps(impatient(), aliases));
    queue.put("AJ1", &recorded(FORWARD), "x\n");
    queue.put("AJ2", &recorded(ALIASES), "x\n");
    queue.put("AJ3", &recorded(PARTIAL), "x\n");
    let (exit, said) = queue.json(&["--dry-run"]);
    assert_eq!(exit, Some(65), "{said}");
    let taken = said["taken"].as_array().expect("a list");
    assert_eq!(taken.len(), 2, "{said}");
    assert_eq!(taken[0]["recipients"].as_u64(), Some(1), "the program and the mailbox are joe: {said}");
    let left = &said["left"][0];
    assert_eq!((left["why"].as_str(), left["line"].as_u64()), (Some("recipient"), Some(17)), "{said}");
    let reason = left["reason"].as_str().expect("a text");
    assert!(reason.contains("|/usr/bin/other") && reason.contains("let sendmail deliver"), "{reason}");
}

#[test]
fn the_maps_of_today_say_where_it_goes() {
    let hop = Hop::good();
    let aliases = "team: a@dead.test, b@dead.test\nowner-team: boss@dead.test\nann: c@dead.test\n";
    let queue = Queue::new(with_maps(relay(&[&hop]), aliases));
    let all = ["team@oracle.example", "ann@oracle.example", "nobody@oracle.example", "far@dead.test"];
    queue.put("AK1", &control(60, "", &all), "x\n");
    let large = "a line of a large text, which goes to the spool in pieces\n".repeat(6_000);
    queue.put("AK2", &control(60, "", &["team@oracle.example", "large@dead.test"]), &large);
    queue.whole();
    let server = queue.setup.start();
    let mails = hop.wait_until("all", |mails| rcpts(mails).len() >= 8);
    ends_empty(server);
    assert_eq!(
        rcpts(&mails),
        [
            "a@dead.test",
            "a@dead.test",
            "b@dead.test",
            "b@dead.test",
            "c@dead.test",
            "far@dead.test",
            "joe@client.test",
            "large@dead.test"
        ]
    );
    let of = |to: &str, part: &str| {
        let is_it = |mail: &&Arc<Mail>| mail.all_to().contains(&to) && mail.text().contains(part);
        Arc::clone(mails.iter().find(is_it).expect("it came"))
    };
    assert!(of("a@dead.test", "\r\nx\r\n").mail.starts_with("MAIL FROM:<boss@dead.test>"), "the owner of the list");
    assert!(of("c@dead.test", "\r\nx\r\n").mail.starts_with("MAIL FROM:<joe@client.test>"));
    assert!(of("joe@client.test", "Final-Recipient: rfc822; nobody@oracle.example").text().contains("Action: failed"));
    let wanted = format!("{}{}", header(), large.replace('\n', "\r\n"));
    for to in ["large@dead.test", "b@dead.test"] {
        assert!(of(to, "a large text").text() == wanted, "{to}");
    }
}

/// Makes a queue with the real sendmail: a message of a user, a session with DSN, mail of which one recipient was
/// reached, mail in quarantine. `OUT` is where it goes.
const SENDMAIL: &str = r#"
printf '#!/bin/sh\nfor a; do last=$a; done\ncat >/dev/null\n[ "$last" = ann ] && exit 0\nexit 75\n' >/run/bin/later
chmod 755 /run/bin/later
printf 'Subject: one\n\nbody one\n.dot\n' | sendmail -i -odq -f joe@oracle.example a@dead.example b@other.example
printf 'Subject: two\n\nbody two\n' | sendmail -i -odi -f joe@oracle.example ann bob far@dead.example
printf 'Subject: three\n\nbody three\n' | sendmail -i -odq -N success,delay -R hdrs -V envid -f joe@oracle.example r@dead.example
printf 'Subject: four\n\nbody four\n' | sendmail -i -odq -f quarantined@oracle.example q@dead.example
printf 'Subject: five\n\nbody five\n' | sendmail -i -odq -f '<>' c@dead.example
sendmail '-Qa reason' -qSquarantined >/dev/null 2>&1
cp /run/oracle/queue/* "$OUT"
"#;

#[test]
fn a_queue_of_the_real_sendmail_arrives() {
    let hop = Hop::new(Manners::offering(&["DSN", "8BITMIME"]));
    let queue = Queue::new(relay(&[&hop]).set("hostname", "\"oracle.example\""));
    let case = queue.setup.path("case");
    fs::create_dir(&case).expect("made");
    let options = "FEATURE(`accept_unresolvable_domains')dnl\nFEATURE(`nocanonify')dnl\n";
    for (name, text) in
        [("options.mc", options), ("users", "joe\nann\nbob\n"), ("local-host-names", "oracle.example\n")]
    {
        fs::write(case.join(name), text).expect("written");
    }
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/oracle/sendmail");
    let mut command = Command::new(oracle);
    command.arg("in").arg(&case).args(["sh", "-c", SENDMAIL]).env("OUT", &queue.directory);
    let output = command.stdin(Stdio::null()).output().expect("a shell");
    if text(&output).contains("skipped:") {
        return needs::skip("sendmail", text(&output).trim());
    }
    assert!(output.status.success(), "{}", text(&output));
    let (exit, said) = queue.json(&[]);
    assert_eq!(exit, Some(0), "{said}");
    let taken = said["taken"].as_array().expect("a list");
    assert_eq!((taken.len(), taken.iter().filter(|one| one["hold"] == "a reason").count()), (5, 1), "{said}");
    let mut server = queue.setup.start();
    let mails = hop.wait_until("all", |mails| rcpts(mails).len() >= 6);
    assert_eq!(
        rcpts(&mails),
        [
            "a@dead.example",
            "b@other.example",
            "bob@oracle.example",
            "c@dead.example",
            "far@dead.example",
            "r@dead.example"
        ],
        "ann has it, and q@ is held"
    );
    let of = |subject: &str| {
        mails.iter().find(|mail| mail.text().contains(&format!("\r\nSubject: {subject}\r\n"))).expect("it came")
    };
    let one = of("one").text();
    assert!(
        one.ends_with("\r\n\r\nbody one\r\n.dot\r\n")
            && one.starts_with("Received: (from root@localhost)\r\n\tby oracle.example (8."),
        "{one}"
    );
    assert!(one.contains("<joe@oracle.example>\r\n") && !one.contains("X-Authentication-Warning"), "{one}");
    assert_eq!(of("five").mail.split_whitespace().nth(1), Some("FROM:<>"));
    assert!(of("three").mail.contains("RET=HDRS") && of("three").mail.contains("ENVID=envid"), "{}", of("three").mail);
    assert!(of("three").rcpts[0].contains("NOTIFY=SUCCESS,DELAY"), "{:?}", of("three").rcpts);
    any_line(&mut server, &["quarantine=a reason"]);
    drop(killed(server));
}
