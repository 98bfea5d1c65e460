//! Files and system calls that a running server has given up, as `auth.program` finds them: it has the rights of the
//! server.

use std::fs;
use std::path::Path;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, needs, text};

/// A server whose logins are right where `script` ends with 0.
fn with_program(setup: Setup, script: &str) -> Setup {
    setup
        .set("auth.program", format!("[\"/bin/sh\", \"-c\", {script:?}]"))
        .set("auth.without_tls", "true")
        .listen("protocol = \"submission\"")
}

/// Whether the program says yes.
fn is_right(server: &Server) -> bool {
    let mut client = greeted(server.address());
    client.command("EHLO a.test");
    let reply = client.command("AUTH PLAIN AHRpbQB0YW5zdGFhZnRhbnN0YWFm");
    assert!(reply.starts_with("235") || reply.starts_with("535"), "{reply}");
    reply.starts_with("235")
}

/// Whether the kernel has Landlock, by the server's output; prints a line where it has not.
fn has_landlock(line: &str) -> bool {
    let is_there = line.contains("landlock in force");
    if !is_there {
        needs::skip("landlock", &format!("is not in this kernel: {line}"));
    }
    is_there
}

fn change(server: &mut Server, key: &str, value: &str) {
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    server.setup = setup.set(key, value);
    server.setup.write();
}

fn reload(server: &Server) -> (Option<i32>, String) {
    let output = server.control(&["reload"], b"");
    (output.status.code(), text(&output))
}

#[test]
fn what_the_configuration_does_not_name_is_closed_to_the_server_and_its_programs() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let (secret, list) = (elsewhere.path().join("secret"), format!("{:?}", [elsewhere.path()]));
    fs::write(&secret, "secret").expect("written");
    let reads = format!("cat {} >/dev/null 2>&1 || exit 1", secret.display());
    let writes = format!("echo x 2>/dev/null >{}/new || exit 1", elsewhere.path().display());
    for script in [&reads, &writes] {
        let mut server = with_program(Setup::new(), script).start();
        if !has_landlock(&server.wait_log("hardening: ")) {
            return;
        }
        assert!(!is_right(&server), "{script}");
    }
    // The controls: without rules, and with a rule of its own.
    for (script, key, value) in [
        (&reads, "server.landlock", "false"),
        (&writes, "server.landlock", "false"),
        (&reads, "server.landlock_read", list.as_str()),
        (&writes, "server.landlock_write", list.as_str()),
    ] {
        let mut server = with_program(Setup::new(), script).set(key, value).start();
        server.wait_log("hardening: ");
        assert!(is_right(&server), "{script} with {key} = {value}");
    }
    let mut server = with_program(Setup::new(), &writes).set("server.landlock_read", list).start();
    server.wait_log("hardening: ");
    assert!(!is_right(&server), "reading is not writing");
}

#[test]
fn a_reload_that_needs_other_files_is_refused_and_a_replaced_file_is_read() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let mut server = Setup::new().set("log.path", "\"-\"").start();
    if !has_landlock(&server.wait_log("hardening: ")) {
        return;
    }
    let put = |path: &Path, text: &str| fs::write(path, text).expect("written");
    // In a directory that is named already.
    let here = server.setup.path("access");
    put(&here, "192.0.2.1 REJECT\n");
    change(&mut server, "maps.access", &format!("[{here:?}]"));
    assert_eq!(reload(&server).0, Some(0));
    // As editors and certbot do it: a new file by the name of the old.
    let new = server.setup.path("access.new");
    put(&new, "192.0.2.2 REJECT\n");
    rustix::fs::rename(&new, &here).expect("renamed");
    assert_eq!(reload(&server).0, Some(0));

    let far = elsewhere.path().join("access");
    put(&far, "192.0.2.1 REJECT\n");
    change(&mut server, "maps.access", &format!("[{far:?}]"));
    let (status, said) = reload(&server);
    for part in [
        "maps.access = ",
        far.to_str().expect("a plain name"),
        "(read)",
        "server.landlock keeps",
        "takes effect after a restart; nothing was changed: restart the server",
    ] {
        assert!(status == Some(78) && said.contains(part), "{part}: {status:?} {said}");
    }
    // A link that leads there is the same.
    fs::remove_file(&here).expect("removed");
    std::os::unix::fs::symlink(&far, &here).expect("linked");
    change(&mut server, "maps.access", &format!("[{here:?}]"));
    let (status, said) = reload(&server);
    assert!(status == Some(78) && said.contains("maps.access"), "{status:?} {said}");
    fs::remove_file(&here).expect("removed");
    put(&here, "192.0.2.1 REJECT\n");
    assert_eq!(reload(&server).0, Some(0));
    greeted(server.address()).message(b"hi\r\n");
}

#[test]
fn a_log_is_rotated_and_the_control_socket_is_removed() {
    let setup = Setup::new();
    fs::create_dir(setup.path("log")).expect("made");
    let (log, rotated) = (setup.path("log/mail"), setup.path("log/mail.1"));
    let server = setup.set("log.path", format!("{log:?}")).start();
    testkit::harness::poll("no log", || log.exists().then_some(()));
    rustix::fs::rename(&log, &rotated).expect("renamed");
    server.signal(rustix::process::Signal::USR1);
    testkit::harness::poll("no new log", || log.exists().then_some(()));
    greeted(server.address()).message(b"hi\r\n");
    let control = server.setup.path("control");
    let directory = server.setup.dir.clone();
    assert!(server.stop().status.success());
    assert!(!control.exists());
    assert!(fs::read_to_string(&log).expect("a log").contains("stopped daemon"));
    drop(directory);
}

#[test]
fn system_calls_are_refused_unless_a_key_says_otherwise() {
    let filtered = |server: &Server, word: &str| {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
        status.contains(&format!("Seccomp:\t{word}"))
    };
    // Mode 2 is that of filters; the program inherits it.
    let script = "grep -q '^Seccomp:.2' /proc/self/status || exit 1";
    let mut server = with_program(Setup::new(), script).start();
    if !server.wait_log("hardening: ").contains("seccomp in force: ") {
        return needs::skip("seccomp", "is not in this kernel");
    }
    assert!(filtered(&server, "2") && is_right(&server));
    let mut server = with_program(Setup::new(), script).set("server.seccomp", "false").start();
    assert!(server.wait_log("hardening: ").contains("seccomp off by server.seccomp"));
    assert!(filtered(&server, "0") && !is_right(&server), "the control");
}

/// The files of `packaging/systemd`, as systemd reads them: no mistake, and not more open than we say.
#[test]
fn the_units_are_as_closed_as_the_documents_say() {
    let Some(analyze) = needs::program("systemd-analyze") else { return };
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let place = tempfile::tempdir().expect("a directory");
    let (unit, drop_ins) = (place.path().join("mailrace.service"), place.path().join("mailrace.service.d"));
    // The program and the page are not installed here.
    let text = fs::read_to_string(packaging.join("mailrace.service")).expect("ours");
    let program = Path::new(env!("CARGO_BIN_EXE_mailrace")).to_str().expect("a plain name");
    let is_of_page = |line: &&str| !line.starts_with("Documentation=");
    let text: String =
        text.lines().filter(is_of_page).map(|line| line.replace("/usr/bin/mailrace", program) + "\n").collect();
    fs::write(&unit, text).expect("written");
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(&analyze).args(arguments).arg(&unit).output().expect("it runs");
        (output.status.success(), text_of(&output))
    };
    let exposure = || {
        let said = run(&["security", "--offline=true"]).1;
        let line =
            said.lines().find(|line| line.contains("Overall exposure level")).unwrap_or_else(|| panic!("{said}"));
        let number = line.split(' ').find_map(|word| word.parse::<f64>().ok());
        number.unwrap_or_else(|| panic!("{line}"))
    };
    let (is_good, said) = run(&["verify"]);
    assert!(is_good && said.is_empty(), "{said}");
    assert!(exposure() <= 1.9, "{}", run(&["security", "--offline=true"]).1);
    fs::create_dir(&drop_ins).expect("made");
    fs::copy(packaging.join("local-mail.conf"), drop_ins.join("local-mail.conf")).expect("copied");
    let (is_good, said) = run(&["verify"]);
    assert!(is_good && said.is_empty(), "{said}");
    assert!((2.0..=3.4).contains(&exposure()), "{}", exposure());
}

fn text_of(output: &std::process::Output) -> String {
    [output.stdout.as_slice(), output.stderr.as_slice()].map(String::from_utf8_lossy).concat()
}
