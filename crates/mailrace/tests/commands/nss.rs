//! Users that are in no file of the machine, as those of SSSD or LDAP are: the C library finds them.
//!
//! `libnss_wrapper` gives the library users of the test's own, and a few lines of C a service that fails. Where they
//! are missing the tests say so and do nothing.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::client::greeted;
use testkit::harness::{Server, Setup, needs, poll, program};

/// Numbers that no machine gives out.
const JOE: u32 = 54_321;
const CREW: u32 = 54_322;

/// A service that fails for one name and hangs for another.
const FAILING: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>
typedef int (*asking)(const char *, struct passwd *, char *, size_t, struct passwd **);
int getpwnam_r(const char *name, struct passwd *found, char *text, size_t octets, struct passwd **result) {
    if (!strcmp(name, "broken")) { *result = NULL; return errno = EIO; }
    while (!strncmp(name, "hangs", 5)) pause();
    return ((asking)dlsym(RTLD_NEXT, "getpwnam_r"))(name, found, text, octets, result);
}
"#;

/// The machine's users, and a program that is told of others.
struct Users {
    setup: Setup,
    preload: String,
}

impl Users {
    /// With joe, whose home is in the directory of the setup.
    fn new() -> Option<Self> {
        // Only root can deliver as another user.
        if !needs::root() {
            return None;
        }
        let wrapper = "/usr/lib/x86_64-linux-gnu/libnss_wrapper.so";
        let places = [wrapper, "/usr/lib/aarch64-linux-gnu/libnss_wrapper.so", "/usr/lib64/libnss_wrapper.so"];
        let Some(wrapper) = places.into_iter().find(|place| Path::new(place).exists()) else {
            needs::skip("libnss-wrapper", "is not installed");
            return None;
        };
        let setup = Setup::new();
        std::fs::set_permissions(setup.dir.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
        let home = setup.path("home");
        std::fs::create_dir(&home).expect("made");
        chown(&home, Some(JOE), Some(JOE)).expect("root can");
        let line = format!("netjoe:x:{JOE}:{JOE}:Net Joe:{}:/bin/sh\n", home.display());
        std::fs::write(setup.path("passwd"), format!("root:x:0:0::/root:/bin/sh\n{line}")).expect("written");
        std::fs::write(setup.path("group"), format!("netjoe:x:{JOE}:\ncrew:x:{CREW}:netjoe\n")).expect("written");
        let programs = setup.path("programs");
        std::fs::create_dir(&programs).expect("made");
        testkit::harness::write_program(&programs.join("keep"), b"#!/bin/sh\n{ id -ur; id -Gr; } > \"$1\"\n");
        let setup = setup
            .set("local.domains", "[\"here.test\"]")
            .set("local.mailbox", "\"maildir:%h/Maildir\"")
            .set("local.programs", format!("[{programs:?}]"))
            .set("relay.to", "[\"x.test\"]")
            .set("log.level", "10");
        Some(Self { setup, preload: wrapper.to_owned() })
    }

    /// The same, with the service that fails.
    fn failing() -> Option<Self> {
        let mut users = Self::new()?;
        let (source, library) = (users.setup.path("failing.c"), users.setup.path("failing.so"));
        std::fs::write(&source, FAILING).expect("written");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
        if !made.is_ok_and(|status| status.success()) {
            needs::skip("cc", "makes no library");
            return None;
        }
        users.preload = format!("{} {}", library.display(), users.preload);
        Some(users)
    }

    fn tell(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.preload)
            .env("NSS_WRAPPER_PASSWD", self.setup.path("passwd"))
            .env("NSS_WRAPPER_GROUP", self.setup.path("group"));
    }

    fn start(self) -> Server {
        let mut command = self.setup.command();
        self.tell(&mut command);
        Server::start(self.setup, command)
    }

    /// The same users from a service of /etc/nsswitch.conf, which processes of the server meet too: they do not inherit
    /// what the library is told. `None` where the service is not installed, or nothing can be mounted.
    fn start_with_service(self) -> Option<Server> {
        let place = Path::new("/var/lib/extrausers");
        let switch = self.setup.path("nsswitch.conf");
        std::fs::write(&switch, "passwd: files extrausers\ngroup: files extrausers\n").expect("written");
        let script = format!(
            "mount --bind {} /etc/nsswitch.conf && mount --bind {} {} && ",
            switch.display(),
            self.setup.dir.path().display(),
            place.display()
        );
        let unshare = |rest: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &format!("{script}{rest}"), "sh"]);
            command
        };
        if !needs::has("libnss-extrausers", place) {
            return None;
        }
        if !unshare("id netjoe").output().is_ok_and(|output| output.status.success()) {
            needs::skip("mounts", "of one's own are not permitted here");
            return None;
        }
        let mut command = unshare("exec \"$@\"");
        command.args(testkit::harness::words(&self.setup.command()));
        Some(Server::start(self.setup, command))
    }

    fn set(mut self, key: &str, value: &str) -> Self {
        self.setup = self.setup.set(key, value);
        self
    }

    fn home(&self) -> PathBuf {
        self.setup.path("home")
    }
}

#[track_caller]
fn rcpt(server: &Server, recipient: &str, wanted: &str) {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect(&format!("RCPT TO:<{recipient}@here.test>"), wanted);
    client.quit();
}

/// Sends joe a message and waits for its delivery: the first line of the log with this part.
#[track_caller]
fn joe_gets_mail(server: &mut Server, part: &str) {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<netjoe@here.test>", "250");
    client.data(b"Subject: x\r\n\r\nhello\r\n");
    let sent = server.wait_log(part);
    assert!(sent.contains("stat=Sent"), "{sent}");
}

#[test]
fn a_user_of_the_library_gets_mail_as_himself() {
    let Some(users) = Users::new() else { return };
    let users = users.set("delivery.mode", "\"background\"");
    let home = users.home();
    let Some(mut server) = users.start_with_service() else { return };
    for (recipient, wanted) in [
        ("netjoe", "250 2.1.5"),
        ("NetJoe+lists", "250 2.1.5"),
        ("nobody", "250 2.1.5"),
        ("netann", "550 5.1.1"),
        ("\"../root\"", "550"),
    ] {
        rcpt(&server, recipient, wanted);
    }
    joe_gets_mail(&mut server, "to=<netjoe@here.test>");
    let mut files = std::fs::read_dir(home.join("Maildir/new")).expect("a Maildir");
    let file = files.next().expect("a message").expect("readable");
    assert_eq!(file.metadata().expect("there").uid(), JOE);
    assert!(server.stop().status.success());
}

#[test]
fn his_forward_and_his_programs_have_his_rights() {
    let Some(users) = Users::new() else { return };
    let users = users.set("delivery.mode", "\"background\"");
    let (home, forward) = (users.home(), users.home().join(".forward"));
    let out = home.join("out");
    std::fs::write(&forward, format!("\"|keep {}\"\n", out.display())).expect("written");
    chown(&forward, Some(JOE), Some(JOE)).expect("root can");
    let Some(mut server) = users.start_with_service() else { return };
    joe_gets_mail(&mut server, "mailer=prog");
    let told =
        poll("the program writes", || std::fs::read_to_string(&out).ok().filter(|told| told.lines().count() == 2));
    assert_eq!(told, format!("{JOE}\n{JOE} {CREW}\n"));
    assert!(server.stop().status.success());
}

#[test]
fn a_server_without_rights_delivers_to_its_user() {
    let Some(users) = Users::new() else { return };
    let users = users.set("delivery.mode", "\"background\"");
    let home = users.home();
    // All that the server writes is there.
    chown(users.setup.dir.path(), Some(JOE), Some(JOE)).expect("root can");
    let mut command = users.setup.command();
    users.tell(&mut command);
    command.uid(JOE).gid(JOE);
    std::fs::set_permissions(users.setup.path("mailrace.toml"), std::fs::Permissions::from_mode(0o644)).expect("set");
    let mut server = Server::start(users.setup, command);
    joe_gets_mail(&mut server, "to=<netjoe@here.test>");
    assert_eq!(std::fs::read_dir(home.join("Maildir/new")).expect("a Maildir").count(), 1);
}

#[test]
fn without_the_library_there_are_the_users_of_the_file() {
    let Some(users) = Users::new() else { return };
    let server = users.set("local.nss", "false").start();
    rcpt(&server, "netjoe", "550 5.1.1");
    rcpt(&server, "nobody", "250 2.1.5");
    drop(server);
    let Some(users) = Users::new() else { return };
    let own = users.setup.path("own");
    std::fs::write(&own, format!("own:x:{JOE}:{JOE}::/tmp:/bin/sh\n")).expect("written");
    let server = users.set("local.accounts", &format!("{own:?}")).start();
    for (recipient, wanted) in [("own", "250"), ("netjoe", "550 5.1.1"), ("nobody", "550 5.1.1")] {
        rcpt(&server, recipient, wanted);
    }
}

#[test]
fn a_library_that_cannot_say_defers() {
    let Some(users) = Users::failing() else { return };
    let config = users.setup.write();
    let mut command = program();
    users.tell(&mut command);
    let output = command
        .arg("route")
        .arg("--config")
        .arg(config)
        .args(["--json", "broken@here.test"])
        .output()
        .expect("it runs");
    let said = testkit::harness::text(&output);
    assert!(output.status.code() == Some(75) && said.contains("/etc/nsswitch.conf asks"), "{said}");
    let server = users.start();
    rcpt(&server, "broken", "451 4.3.0");
    rcpt(&server, "netjoe", "250 2.1.5");
    rcpt(&server, "netann", "550 5.1.1");
    // Threads that never come back: all others are served, and the server ends.
    let mut hung: Vec<_> = (0..20).map(|_| greeted(server.address())).collect();
    for (number, client) in hung.iter_mut().enumerate() {
        client.expect("MAIL FROM:<a@b.test>", "250");
        client.send(format!("RCPT TO:<hangs{number}@here.test>\r\n").as_bytes());
    }
    rcpt(&server, "nobody", "250 2.1.5");
    for client in &mut hung {
        let reply = client.reply();
        assert!(reply.starts_with("451 4.3.0"), "{reply}");
    }
    rcpt(&server, "nobody", "250 2.1.5");
    drop(hung);
    assert!(server.stop().status.success());
}

#[test]
fn who_calls_sendmail_has_his_name() {
    let Some(users) = Users::new() else { return };
    let link = users.setup.path("sendmail");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mailrace"), &link).expect("a link");
    let mut command = Command::new(link);
    users.tell(&mut command);
    let config = users.setup.path("mailrace.toml");
    let server = users.start();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).expect("set");
    let mut child = command
        .env("MAILRACE_CONFIG", config)
        .env_remove("HOME")
        .uid(JOE)
        .gid(JOE)
        .arg("b@x.test")
        .stdin(Stdio::piped())
        .spawn()
        .expect("it runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"Subject: x\n\nhello\n").expect("written");
    assert!(child.wait().expect("it ends").success());
    // A command that comes before the socket for its answer leaves a file, which the server takes soon.
    let pickup = server.setup.path("spool-pickup");
    poll("the message is not taken", || {
        let mut entries = std::fs::read_dir(&pickup).expect("a directory").filter_map(Result::ok);
        (!entries.any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"mail."))).then_some(())
    });
    let letters = server.letters_after_kill();
    let content = String::from_utf8_lossy(&letters[0].content).into_owned();
    assert!(content.contains("From: Net Joe <netjoe@"), "{content}");
}
