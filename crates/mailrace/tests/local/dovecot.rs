//! Mailboxes that are with Dovecot: LMTP over a socket of the machine.

use crate::office::{As, NOBODY, is_skipped, line, make_directory, retry, setup, start, stored};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::harness::{needs, poll};

const PROGRAM: &str = "/usr/sbin/dovecot";
const LMTP: &str = "/usr/lib/dovecot/lmtp";

struct Dovecot(Child);

impl Drop for Dovecot {
    fn drop(&mut self) {
        // Its children end with it.
        drop(Command::new("kill").arg(self.0.id().to_string()).status());
        drop(self.0.wait());
    }
}

/// Dovecot 2.3 with one user, in a directory of its own.
fn dovecot(directory: &Path) -> Dovecot {
    let at = |name: &str| directory.join(name).display().to_string();
    std::fs::write(at("users"), format!("nobody:{{PLAIN}}x:{NOBODY}:{NOBODY}::{}::\n", at("boxes"))).expect("written");
    let text = format!(
        "base_dir = {}\nstate_dir = {}\ninstance_name = trial\nprotocols = lmtp\nlog_path = {}\nssl = no\n\
         mail_location = maildir:{}/%n\nfirst_valid_uid = 1\nauth_mechanisms = plain\n\
         userdb {{\n driver = passwd-file\n args = username_format=%n {users}\n}}\n\
         passdb {{\n driver = passwd-file\n args = username_format=%n {users}\n}}\n\
         service lmtp {{\n unix_listener {} {{\n  mode = 0666\n }}\n}}\n",
        at("run"),
        at("state"),
        at("dovecot.log"),
        at("boxes"),
        at("lmtp"),
        users = at("users"),
    );
    std::fs::write(at("dovecot.conf"), text).expect("written");
    let child = Command::new(PROGRAM)
        .args(["-F", "-c", &at("dovecot.conf")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let dovecot = Dovecot(child);
    poll("Dovecot does not listen", || UnixStream::connect(at("lmtp")).ok());
    dovecot
}

#[test]
fn dovecot_takes_mail_for_its_users() {
    if is_skipped() || ![PROGRAM, LMTP].iter().all(|file| needs::has("dovecot", file)) {
        return;
    }
    let setup = setup();
    let boxes = make_directory(&setup, "boxes", NOBODY);
    let socket = setup.path("lmtp").display().to_string();
    let setup = setup.set("local.mailbox", format!("\"lmtp:unix:{socket}\""));
    let mail = [("nobody@x.test", "local:".to_owned()), ("gone@x.test", "local:".to_owned())];
    let setup = stored(setup, As::Us, 0, &mail, b"Subject: for Dovecot\r\n\r\n..dot\r\n");
    // It is not there yet: the mail waits, and the log names the missing file.
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    line(&mut server, &["to=<nobody@x.test>", "mailer=lmtp", "stat=Deferred", &socket, "is not there"]);
    let _dovecot = dovecot(server.setup.dir.path());
    retry(&server);
    let sent = line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
    assert!(sent.contains("mailer=lmtp,") && sent.contains(&format!("relay={socket},")), "{sent}");
    line(&mut server, &["to=<gone@x.test>", "mailer=lmtp,", "dsn=5.1.1", "stat=User"]);
    let new = Path::new(&boxes).join("nobody/new");
    let names: Vec<_> =
        std::fs::read_dir(new).expect("a Maildir").map(|entry| entry.expect("an entry").path()).collect();
    let [file] = names.as_slice() else { panic!("{names:?}") };
    let text = std::fs::read_to_string(file).expect("a message");
    assert!(text.contains("Subject: for Dovecot\n\n.dot\n"), "{text}");
    assert!(server.stop().status.success());
}
