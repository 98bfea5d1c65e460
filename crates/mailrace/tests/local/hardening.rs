//! Rights of the helper, its workers and programs of users, read from `/proc`: the helper has few capabilities, the
//! processes that write mailboxes have few system calls, and programs of users lose nothing.

use crate::office::{As, NOBODY, is_skipped, line, start, stored, with_boxes};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use testkit::harness::{Server, needs, poll};

/// SETUID, SETGID, KILL, CHOWN, DAC_OVERRIDE, FOWNER.
const OF_HELPER: u64 = 1 << 7 | 1 << 6 | 1 << 5 | 1 | 1 << 1 | 1 << 3;

/// A process as the kernel shows it.
struct Process {
    pid: u32,
    status: String,
}

impl Process {
    fn field(&self, name: &str) -> &str {
        let found = self.status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        found.expect("the kernel shows it").split('\t').next().unwrap_or_default()
    }

    fn capabilities(&self, name: &str) -> u64 {
        u64::from_str_radix(self.field(name), 16).expect("a number")
    }
}

/// The only process of this form that another one has started; none where several run.
fn child_of(parent: u32, form: &str) -> Option<Process> {
    let of = |entry: std::io::Result<fs::DirEntry>| {
        let place = entry.ok()?.path();
        let pid = std::str::from_utf8(place.file_name()?.as_bytes()).ok()?.parse().ok()?;
        let command = fs::read(place.join("cmdline")).ok()?;
        let is_it = command.split(|byte| *byte == 0).any(|word| word == form.as_bytes());
        let status = fs::read_to_string(place.join("status")).ok()?;
        let process = Process { pid, status };
        (is_it && process.field("PPid") == parent.to_string()).then_some(process)
    };
    let mut found = fs::read_dir("/proc").expect("there is /proc").filter_map(of);
    found.next().filter(|_| found.next().is_none())
}

fn helper_and_worker(server: &Server) -> (Process, Process) {
    let helper = poll("no helper", || child_of(server.pid(), "helper"));
    // The worker of the program ends a moment after it has answered; that of the mailbox stays.
    let worker = poll("no worker, or several", || child_of(helper.pid, "worker"));
    (helper, worker)
}

/// Delivers to a mailbox and to a program that keeps its status; the helper, the worker of the mailbox, and the
/// program.
fn delivered(seccomp: &str) -> Option<(Process, Process, Process)> {
    if is_skipped() {
        return None;
    }
    let setup = with_boxes(NOBODY).set("server.seccomp", seccomp).set("server.user", "\"daemon\"");
    let (boxes, _directory) = (setup.path("boxes"), setup.dir.clone());
    let keep = "#!/bin/sh\ncat > /dev/null\ncat /proc/self/status > \"$1\"\n";
    testkit::harness::write_program(&setup.path("programs").join("status"), keep.as_bytes());
    let out = boxes.join("of-program");
    let mail = [("nobody@x.test", "local:".to_owned()), ("p@x.test", format!("prog:nobody:status {}", out.display()))];
    let setup = stored(setup, As::Us, 1, &mail, b"Subject: x\r\n\r\ntext\r\n");
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    if seccomp == "true" && !line(&mut server, &["hardening: "]).contains("seccomp in force") {
        needs::skip("seccomp", "is not in this kernel");
        return None;
    }
    line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
    line(&mut server, &["ctladdr=<p@x.test>", "stat=Sent"]);
    let (helper, worker) = helper_and_worker(&server);
    let program = Process { pid: 0, status: fs::read_to_string(&out).expect("it was run") };
    assert!(server.stop().status.success());
    Some((helper, worker, program))
}

#[test]
fn the_helper_has_few_capabilities_and_its_workers_few_system_calls() {
    let Some((helper, worker, program)) = delivered("true") else { return };
    for field in ["CapBnd", "CapPrm", "CapEff"] {
        assert_eq!(helper.capabilities(field) & !OF_HELPER, 0, "{field}: {}", helper.status);
    }
    assert_eq!(helper.capabilities("CapEff"), OF_HELPER, "what it needs is there: {}", helper.status);
    assert_eq!((helper.field("NoNewPrivs"), helper.field("Seccomp")), ("0", "0"));
    assert_eq!((worker.field("Uid"), worker.capabilities("CapPrm")), ("65534", 0));
    assert_eq!((worker.field("NoNewPrivs"), worker.field("Seccomp")), ("1", "2"), "it starts nothing");
    // Set-group-id bits count, and no call is refused.
    assert_eq!((program.field("Uid"), program.field("NoNewPrivs"), program.field("Seccomp")), ("65534", "0", "0"));
    assert_eq!(program.capabilities("CapBnd") & !OF_HELPER, 0);
}

#[test]
fn workers_have_all_system_calls_where_the_key_says_so() {
    let Some((_, worker, _)) = delivered("false") else { return };
    assert_eq!((worker.field("NoNewPrivs"), worker.field("Seccomp")), ("0", "0"));
}
