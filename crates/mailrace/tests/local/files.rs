//! Files of users and lists, `.forward` and `:include:`, of a user that tries to read, run or stop files and processes
//! of others.
//!
//! joe is the attacker, ann another user. Secrets are files that the server may read and users may not: each has a
//! mark, and no mark may come out, for any file in joe's home. Races run for a few seconds.

use crate::office::{As, NOBODY, is_skipped, make_directory, setup, start};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with, symlinkat};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::client::greeted;
use testkit::harness::{SOON, Server, Setup, pause, poll, write_program};

const JOE: u32 = 4_001;
const ANN: u32 = 4_002;
/// The text that every secret contains.
const MARK: &str = "s3cr3tmark";
/// Tries races and counts for so long.
const RACE_TIME: Duration = Duration::from_secs(2);

/// A machine with joe, ann, mailboxes, a program that tells who ran it, and secrets.
struct Machine {
    setup: Setup,
    home: PathBuf,
    secrets: Vec<PathBuf>,
}

#[allow(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// `keeper`: the group that may read secrets, and the owner of those that the server itself wrote.
fn machine(aliases: &str, keeper: u32) -> Machine {
    let setup = setup();
    let boxes = make_directory(&setup, "boxes", 0);
    std::fs::set_permissions(&boxes, std::fs::Permissions::from_mode(0o1777)).expect("set");
    let programs = make_directory(&setup, "programs", 0);
    write_program(&setup.path("programs").join("who"), b"#!/bin/sh\ncat >/dev/null\ntouch \"$1/ran-as-$(id -u)\"\n");
    make_directory(&setup, "home", 0);
    for (name, uid) in [("joe", JOE), ("ann", ANN)] {
        make_directory(&setup, &format!("home/{name}"), uid);
    }
    let home = setup.path("home").join("joe");
    let at = |name: &str| setup.path(name).display().to_string();
    let passwd = format!(
        "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\njoe:x:{JOE}:{JOE}::{}:/bin/sh\nann:x:{ANN}:{ANN}::{}:/bin/sh\n",
        at("home/joe"),
        at("home/ann")
    );
    std::fs::write(setup.path("passwd"), passwd).expect("written");
    let aliases = format!("staff: joe, ann\n{}", aliases.replace("HOME", &at("home")));
    std::fs::write(setup.path("aliases"), aliases).expect("written");
    let mut secrets = Vec::new();
    for (name, text) in [
        ("passwd.auth", format!("joe@x.test:$2b$05${MARK}\n")),
        ("tls.key", format!("{MARK}\n{MARK}==\n{MARK}@x.test\n")),
        ("access", format!("AuthInfo:x.test \"U:{MARK}\" \"P:{MARK}\"\n")),
    ] {
        let path = setup.path(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        lchown(&path, Some(0), Some(keeper)).expect("root can");
        secrets.push(path);
    }
    // One that the server owns, as it owns its spool, and one that is open in a directory that is not.
    let own = setup.path("own");
    std::fs::write(&own, format!("{MARK}@@x.test\n{MARK}@x.test\n")).expect("written");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600)).expect("set");
    lchown(&own, Some(keeper), Some(keeper)).expect("root can");
    secrets.push(own);
    let closed = make_directory(&setup, "closed", keeper);
    let open = Path::new(&closed).join("open");
    std::fs::write(&open, format!("{MARK}@@x.test\n{MARK}@x.test\n")).expect("written");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o750)).expect("set");
    secrets.push(open);
    let setup = setup
        .set("local.mailbox", format!("\"mbox:{boxes}/%u\""))
        .set("local.mailbox_group", "\"\"")
        .set("local.programs", format!("[\"{programs}\"]"))
        .set("local.domains", "[\"here.test\"]")
        .set("local.nss", "false")
        .set("smtp.verify", "true");
    let values = [("local.accounts", "passwd"), ("maps.aliases", "aliases")];
    let setup = values.into_iter().fold(setup, |setup, (key, name)| {
        let value = format!("{:?}", setup.path(name));
        setup.set(key, if key == "maps.aliases" { format!("[{value}]") } else { value })
    });
    let setup = setup.set("delivery.mode", "\"background\"").set("smtp.refused_recipients_max", "1000");
    Machine { setup, home, secrets }
}

fn as_daemon(setup: Setup) -> Server {
    start(setup.set("server.user", "\"daemon\""), As::Us)
}

/// A file of joe's, in place of the old one.
fn put(path: &Path, text: &str) {
    clear(path);
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("set");
    lchown(path, Some(JOE), Some(JOE)).expect("root can");
}

fn clear(path: &Path) {
    drop(std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)));
}

fn link(target: &Path, path: &Path) {
    clear(path);
    symlinkat(target, CWD, path).expect("linked");
    lchown(path, Some(JOE), Some(JOE)).expect("root can");
}

fn fifo(path: &Path) {
    clear(path);
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("made");
    lchown(path, Some(JOE), Some(JOE)).expect("root can");
}

/// Swaps two names until it is dropped.
struct Swaps {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swaps {
    fn of(one: &Path, other: &Path) -> Self {
        let (one, other) = (one.to_owned(), other.to_owned());
        Self::by(move || {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).ok();
        })
    }

    fn by(swap: impl Fn() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&stop);
        let swaps = move || {
            while !end.load(Ordering::Relaxed) {
                swap();
            }
        };
        Self { stop, thread: Some(std::thread::spawn(swaps)) }
    }
}

impl Drop for Swaps {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Everything that a client can say of these names, and a message for them. Returns the replies to the client.
fn try_all(address: SocketAddr, names: &[&str]) -> String {
    let mut client = greeted(address);
    let mut heard = String::new();
    for name in names {
        heard += &client.command(&format!("EXPN {name}"));
        heard += &client.command(&format!("VRFY {name}@here.test"));
    }
    heard += &client.command("MAIL FROM:<ann@here.test>");
    for name in names {
        heard += &client.command(&format!("RCPT TO:<{name}@here.test> NOTIFY=SUCCESS,FAILURE,DELAY"));
    }
    let data = client.command("DATA");
    if data.starts_with("354") {
        client.send(b"Subject: x\r\n\r\nx\r\n.\r\n");
        heard += &client.reply();
    }
    heard + &data
}

/// Everything that joe puts into his `.forward`, with a name for it.
fn tricks(home: &Path, secret: &Path) -> Vec<(String, Box<dyn Fn()>)> {
    let forward = home.join(".forward");
    let (inner, outer, way) = (home.join("inner"), home.join("outer"), home.join("way"));
    let (secret, shown) = (secret.to_owned(), secret.display().to_string());
    let (directory, file) = (
        secret.parent().expect("it has one").to_owned(),
        secret.file_name().expect("it has one").to_string_lossy().into_owned(),
    );
    let mut all: Vec<(String, Box<dyn Fn()>)> = Vec::new();
    let mut text = |name: &str, text: String| {
        let forward = forward.clone();
        all.push((name.to_owned(), Box::new(move || put(&forward, &text))));
    };
    text("include", format!(":include:{shown}\n"));
    text("include among others", format!("\\joe, :include:{shown}\nnosuchuser\n"));
    text(
        "include by dots",
        format!(":include:{}/../joe/../../{}\n", home.display(), shown.rsplit('/').next().expect("one")),
    );
    text("include by proc", format!(":include:/proc/self/root{shown}, :include:/proc/self/cwd/x\n"));
    text("environment", ":include:/proc/self/environ\n:include:/proc/self/maps\n:include:/proc/self/fd/0\n".to_owned());
    text("devices", "\\joe, :include:/dev/zero, :include:/dev/tty, :include:/dev/stdin, :include:/tmp\n".to_owned());
    let (one, two, three) = (forward.clone(), inner.clone(), outer.clone());
    let target = shown.clone();
    all.push((
        "include of include of include".to_owned(),
        Box::new(move || {
            put(&one, &format!("\\joe\n:include:{}\n", two.display()));
            put(&two, &format!("ann\n:include:{}\n", three.display()));
            put(&three, &format!("\n:include:{target}\n"));
        }),
    ));
    let (one, target) = (forward.clone(), secret.clone());
    all.push(("link".to_owned(), Box::new(move || link(&target, &one))));
    let (one, target) = (forward.clone(), secret.clone());
    all.push((
        "hard link".to_owned(),
        Box::new(move || {
            clear(&one);
            std::fs::hard_link(&target, &one).expect("linked");
        }),
    ));
    let (one, two, target) = (forward.clone(), inner.clone(), secret.clone());
    all.push((
        "include of a link".to_owned(),
        Box::new(move || {
            put(&one, &format!("\\joe\n:include:{}\n", two.display()));
            link(&target, &two);
        }),
    ));
    let (one, two, target) = (forward.clone(), inner, secret);
    all.push((
        "include of a hard link".to_owned(),
        Box::new(move || {
            put(&one, &format!("\\joe\n:include:{}\n", two.display()));
            clear(&two);
            std::fs::hard_link(&target, &two).expect("linked");
        }),
    ));
    let one = forward.clone();
    all.push((
        "include below a link".to_owned(),
        Box::new(move || {
            link(&directory, &way);
            put(&one, &format!("\\joe, :include:{}/{file}\n", way.display()));
        }),
    ));
    let one = forward.clone();
    all.push(("fifo".to_owned(), Box::new(move || fifo(&one))));
    all.push((
        "directory".to_owned(),
        Box::new(move || {
            clear(&forward);
            std::fs::create_dir(&forward).expect("made");
        }),
    ));
    all
}

/// The segment of a spool whose bytes contain this text.
fn segment_with(spool: &Path, text: &str) -> Option<PathBuf> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let shards = entries(spool).filter(|entry| entry.path().is_dir());
    let mut files = shards.flat_map(|shard| entries(&shard.path())).map(|entry| entry.path());
    files.find(|path| std::fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text)))
}

/// Runs the attacks of joe on each secret, one after the other and then as fast as he can. All that came out of it.
fn attacked(machine: Machine, who: As) {
    let Machine { setup, home, secrets } = machine;
    let (boxes, _directory) = (setup.path("boxes"), Arc::clone(&setup.dir));
    let spool = setup.path("spool");
    let server = if let As::Nobody = who { start(setup, who) } else { as_daemon(setup) };
    // Mail of others waits in the spool.
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<x@here.test>", "250");
    client.expect("RCPT TO:<ann@x.test>", "250");
    client.data(format!("Subject: {MARK}\r\n\r\n{MARK}@x.test\r\n").as_bytes());
    client.quit();
    let segment = segment_with(&spool, MARK).expect("the mail of others is in a segment");
    let mut starved = Vec::new();
    for secret in secrets.iter().chain([&segment]) {
        for (name, trick) in tricks(&home, secret) {
            trick();
            let heard = try_all(server.address(), &["joe", "staff"]);
            assert!(!heard.contains(MARK), "{name} with {}: {heard}", secret.display());
            // joe's file must not keep ann, who is on the same list, from getting mail.
            if !heard.contains("250 2.1.5") {
                starved.push(format!("{name} with {}: {heard}", secret.display()));
            }
        }
        let (good, bad) = (home.join(".forward"), home.join("bad"));
        put(&good, "\\joe\n");
        link(secret, &bad);
        let swaps = Swaps::of(&good, &bad);
        let until = now() + RACE_TIME / 10;
        while now() < until {
            let heard = try_all(server.address(), &["joe"]);
            assert!(!heard.contains(MARK), "race with {}: {heard}", secret.display());
        }
        drop(swaps);
        clear(&bad);
        put(&home.join(".forward"), "\\joe\n");
    }
    poll("mail is under way", || {
        let output = server.control(&["queue", "list", "--json", "--limit", "0"], b"");
        (!testkit::harness::text(&output).contains("\"state\":\"active\"")).then_some(())
    });
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    let marked: Vec<&String> = ended.log.iter().filter(|line| line.contains(MARK)).collect();
    assert!(marked.is_empty(), "{marked:#?}");
    assert!(starved.is_empty(), "{starved:#?}");
    let told = ended.log.iter().filter(|line| line.contains("counts for nothing")).count();
    assert!((1..=60).contains(&told), "the operator is told, and not too often: {told}");
    for entry in std::fs::read_dir(boxes).expect("there").filter_map(Result::ok) {
        let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap_or_default()).into_owned();
        assert!(!text.contains(MARK), "a report in {:?}: {text}", entry.path());
    }
}

#[test]
fn no_octet_of_a_secret_comes_out_of_a_server_that_was_root() {
    if !is_skipped() {
        attacked(machine("", 1), As::Us);
    }
}

#[test]
fn no_octet_of_a_secret_comes_out_of_a_server_that_never_was_root() {
    if is_skipped() {
        return;
    }
    let machine = machine("", NOBODY);
    lchown(machine.setup.dir.path(), Some(NOBODY), Some(NOBODY)).expect("root can");
    attacked(machine, As::Nobody);
}

#[test]
fn route_says_why_a_file_does_not_count() {
    if is_skipped() {
        return;
    }
    let Machine { setup, home, .. } = machine("list: :include:HOME/joe/list\n", 1);
    let config = setup.write();
    let forward = home.join(".forward");
    let routed = |name: &str, more: &[&str]| {
        let mut command = testkit::harness::program();
        command.args(["route", "--config"]).arg(&config).args(more).arg(format!("{name}@here.test"));
        testkit::harness::text(&command.output().expect("it runs"))
    };
    put(&forward, "ann\n");
    let good = routed("joe", &[]);
    assert!(good.contains("<ann@here.test>") && !good.contains("note: "), "{good}");
    std::fs::set_permissions(&forward, std::fs::Permissions::from_mode(0o646)).expect("set");
    let bad = routed("joe", &[]);
    assert!(bad.contains("note: ") && bad.contains(".forward") && bad.contains("chmod"), "{bad}");
    assert!(routed("joe", &["--json"]).contains("counts for nothing"));
}

/// The process that started the one with this `/proc/PID/status`.
fn parent_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse().ok())
}

/// The `/proc/PID/status` of a process that reads files of this user for a server. Those of other tests may just be
/// starting.
fn status_of_reader(server: u32, uid: u32) -> Option<String> {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let place = entry.ok()?.path();
        let command = std::fs::read(place.join("cmdline")).ok()?;
        let status = std::fs::read_to_string(place.join("status")).ok()?;
        let helper = std::fs::read_to_string(format!("/proc/{}/status", parent_in(&status)?)).ok()?;
        let is_it =
            command.split(|byte| *byte == 0).any(|word| word == b"reader") && parent_in(&helper) == Some(server);
        (is_it && status.contains(&format!("\nUid:\t{uid}\t"))).then_some(status)
    };
    std::fs::read_dir("/proc").expect("there is /proc").find_map(of)
}

#[test]
fn a_process_that_reads_files_of_a_user_has_few_system_calls() {
    if is_skipped() {
        return;
    }
    let Machine { setup, home, .. } = machine("", 1);
    put(&home.join(".forward"), "\\joe\n");
    let server = as_daemon(setup);
    let heard = try_all(server.address(), &["joe"]);
    assert!(heard.contains("250 2.1.5"), "{heard}");
    let status = status_of_reader(server.pid(), JOE).expect("it waits for the next request");
    assert!(status.contains("\nCapPrm:\t0000000000000000\n"), "{status}");
    if server.log.iter().any(|line| line.contains("seccomp: ")) {
        return testkit::needs::skip("seccomp", "is not in this kernel");
    }
    assert!(status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n"), "{status}");
    assert!(server.stop().status.success());
}

#[test]
fn a_file_of_another_user_counts_for_nothing() {
    if is_skipped() {
        return;
    }
    let Machine { setup, home, .. } = machine("", 1);
    let (boxes, _directory) = (setup.path("boxes"), Arc::clone(&setup.dir));
    let forward = home.join(".forward");
    let mut server = as_daemon(setup);
    let send = |text: &str, owner: u32, mode: u32| {
        put(&forward, text);
        lchown(&forward, Some(owner), Some(owner)).expect("root can");
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(mode)).expect("set");
        let heard = try_all(server.address(), &["joe"]);
        assert!(heard.contains("250 2.1.5"), "{heard}");
    };
    let program = format!("\"|who {}\"\n", boxes.display());
    // Written by ann into a home that every user can write to; by ann; and in such a home even by joe.
    send(&program, ANN, 0o777);
    send(&program, ANN, 0o755);
    send(&program, JOE, 0o777);
    for _ in 0..3 {
        server.wait_log("to=<joe@here.test>, ctladdr=");
    }
    assert!(!boxes.join("ran-as-4001").exists(), "it ran as joe");
    let mailbox = std::fs::read_to_string(boxes.join("joe")).expect("a mailbox");
    assert_eq!(mailbox.matches("\nSubject: x\n").count(), 3, "the mailbox has the mail");
    let told: Vec<&String> = server.log.iter().filter(|line| line.contains("counts for nothing")).collect();
    assert!(told.len() == 1 && told[0].contains(".forward") && told[0].contains("mode 777"), "{told:?}");
    // The control: his own, where no other user can put one, also if only he may list the directory.
    for mode in [0o755, 0o700] {
        let text = format!("# {mode}\n\"|who {}\"\n", boxes.display());
        put(&forward, &text);
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(mode)).expect("set");
        assert!(try_all(server.address(), &["joe"]).contains("250 2.1.5"));
        poll("it does not run", || boxes.join("ran-as-4001").exists().then_some(()));
        clear(&boxes.join("ran-as-4001"));
    }
    assert!(server.stop().status.success());
}

#[test]
fn a_list_that_is_swapped_for_a_link_runs_nothing_as_another_user() {
    if is_skipped() {
        return;
    }
    let Machine { setup, home, .. } = machine("list: :include:HOME/joe/list\n", 1);
    let (boxes, _directory) = (setup.path("boxes"), Arc::clone(&setup.dir));
    let (list, bad, theirs) = (home.join("list"), home.join("bad"), setup.path("home").join("ann").join("ideas"));
    std::fs::write(&theirs, "ann\n").expect("written");
    lchown(&theirs, Some(ANN), Some(ANN)).expect("root can");
    let server = as_daemon(setup);
    let until = now() + RACE_TIME;
    let mut number = 0;
    while now() < until {
        // Another version each time, so that nothing is kept.
        number += 1;
        put(&list, &format!("{}\"|who {}\"\n", "\n".repeat(number % 50), boxes.display()));
        link(&theirs, &bad);
        let swaps = Swaps::of(&list, &bad);
        for _ in 0..20 {
            let mut client = greeted(server.address());
            client.expect("MAIL FROM:<ann@here.test>", "250");
            client.command("RCPT TO:<list@here.test>");
            client.quit();
        }
        drop(swaps);
        // A list that was taken for another user's is used now.
        for _ in 0..2 {
            drop(try_all(server.address(), &["list"]));
            renameat_with(CWD, &list, CWD, &bad, RenameFlags::EXCHANGE).ok();
        }
        assert!(!boxes.join("ran-as-4002").exists(), "joe's program ran as ann");
    }
    // Mail that was taken a moment ago may not be under an attempt yet.
    poll("the control: as joe it runs", || boxes.join("ran-as-4001").exists().then_some(()));
    server.rests();
    assert!(!boxes.join("ran-as-4002").exists(), "joe's program ran as ann");
    assert!(server.stop().status.success());
}

#[test]
fn a_fifo_in_the_place_of_a_file_stops_nobody_else() {
    if is_skipped() {
        return;
    }
    let Machine { setup, home, .. } = machine("", 1);
    let server = as_daemon(setup);
    let (forward, pipe) = (home.join(".forward"), home.join("pipe"));
    fifo(&pipe);
    // A new file each time, so that nothing is kept, and then the FIFO.
    let swaps = Swaps::by(move || {
        let next = forward.with_file_name("next");
        put(&next, "\\joe\n");
        renameat_with(CWD, &next, CWD, &forward, RenameFlags::empty()).ok();
        drop(std::fs::hard_link(&pipe, &next));
        renameat_with(CWD, &next, CWD, &forward, RenameFlags::empty()).ok();
    });
    let address = server.address();
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(move || {
                let until = now() + 2 * RACE_TIME;
                while now() < until {
                    let mut client = greeted(address);
                    client.command("MAIL FROM:<x@here.test>");
                    // The reply may hang, so it is waited for only a moment.
                    client.stream.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
                    client.send(b"RCPT TO:<joe@here.test>\r\n");
                    drop(std::io::Read::read(&mut client.stream, &mut [0; 512]));
                }
            });
        }
        let until = now() + 2 * RACE_TIME;
        while now() < until {
            let began = now();
            let mut client = greeted(address);
            client.expect("MAIL FROM:<x@here.test>", "250");
            client.expect("RCPT TO:<ann@here.test>", "250 2.1.5");
            client.quit();
            slowest = slowest.max(began.elapsed());
            pause(Duration::from_millis(5));
        }
    });
    drop(swaps);
    println!("others waited {slowest:?} at most");
    let began = now();
    assert!(server.control(&["status"], b"").status.success());
    assert!(server.stop().status.success());
    assert!(began.elapsed() < SOON, "it ends: {:?}", began.elapsed());
}

#[test]
fn large_and_sparse_files_cost_neither_memory_nor_time() {
    if is_skipped() {
        return;
    }
    let Machine { setup, home, .. } = machine("list: :include:HOME/joe/list\n", 1);
    let server = as_daemon(setup);
    let sparse = |name: &str| {
        let path = home.join(name);
        put(&path, "\\joe\n");
        std::fs::File::options().write(true).open(&path).expect("open").set_len(200 << 20).expect("set");
    };
    let rcpt = |name: &str| {
        let mut client = greeted(server.address());
        client.expect("MAIL FROM:<x@here.test>", "250");
        let reply = client.command(&format!("RCPT TO:<{name}@here.test>"));
        client.quit();
        reply
    };
    assert!(rcpt("joe").starts_with("250") && rcpt("ann").starts_with("250"));
    let before = server.memory_kib("VmHWM");
    for round in 0..10 {
        for name in [".forward", "list", "other"] {
            sparse(name);
        }
        assert!(rcpt("joe").starts_with("250 2.1.5"), "the mailbox has the mail");
        assert!(rcpt("list").starts_with("451"), "somebody will mend it");
        put(&home.join(".forward"), &format!(":include:{}/other\n", home.display()));
        let reply = rcpt("joe");
        assert!(reply.starts_with("550 5.2.4 <joe@here.test>... .forward is wrong in line 1"), "{round}: {reply}");
    }
    let grown = server.memory_kib("VmHWM").saturating_sub(before);
    println!("the server grew by {grown} KiB");
    assert!(grown < 32 << 10, "the server grew by {grown} KiB");
    assert!(server.stop().status.success());
}
