//! Programs that call sendmail, as they really do it. One that is not installed is skipped, and said to be.

use super::desk::{CONFIG, Desk, Done, finish, taken};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use testkit::harness::{Setup, needs, write_program};

fn is_there(name: &str) -> bool {
    needs::program(name).is_some()
}

/// Runs a caller that is to send one message, and returns it as text with its envelope.
fn sent(calls: impl FnOnce(&Desk, &Path) -> Done) -> String {
    let (desk, setup) = Desk::opened(Setup::new());
    let sendmail = desk.named("sendmail");
    let done = calls(&desk, &sendmail);
    assert_eq!(done.exit, Some(0), "{done:?}");
    let letters = taken(setup);
    let [letter] = letters.as_slice() else { panic!("{done:?} {letters:?}") };
    let to: Vec<String> = letter.envelope.recipients.iter().map(|one| one.address.to_string()).collect();
    format!("{} -> {}\n{}", letter.envelope.sender, to.join(","), String::from_utf8_lossy(&letter.content))
}

fn command(desk: &Desk, name: &str, arguments: &[&str], input: &str) -> Done {
    let mut command = Command::new(name);
    let home = desk.path("home");
    std::fs::create_dir_all(&home).expect("made");
    command.args(arguments).env("MAILRACE_CONFIG", desk.path(CONFIG)).env("HOME", home).env("LC_ALL", "C.UTF-8");
    // Git asks for the author where the machine has no name.
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "Joe").env(format!("GIT_{who}_EMAIL"), "joe@mx.test");
    }
    finish(command, input)
}

#[test]
fn cron() {
    // The words of Debian's cron and of cronie.
    for words in [
        &["-i", "-FCronDaemon", "-B8BITMIME", "-oem", "root"][..],
        &["-FCronDaemon", "-i", "-odi", "-oem", "-oi", "-t", "-f", "root"],
    ] {
        let text = sent(|desk, _| {
            desk.sendmail(words, "From: root (Cron Daemon)\nTo: root\nSubject: Cron <root@h> run\nContent-Type: text/plain\n\nout\n.\nput\n")
        });
        assert!(
            text.contains("-> root@mx.test\n")
                && text.contains("\r\nFrom: root@mx.test (Cron Daemon)\r\nTo: root@mx.test\r\n"),
            "{text}"
        );
        assert!(text.ends_with("out\r\n.\r\nput\r\n"), "{text}");
    }
}

/// The commands that prepare mounts for cron: no jobs but ours, no other cron, and our program as `/usr/sbin/sendmail`.
/// Status 77 if there can be no such room.
const CRON_ROOM: &str = r#"
mount --bind "$1/crontabs" /var/spool/cron/crontabs && mount --bind "$1/cron.d" /etc/cron.d &&
    mount --bind "$1/crontab" /etc/crontab && mount -t tmpfs none /run && mount --bind "$1/mailer" /usr/sbin/sendmail || exit 77
echo $$ >"$1/pid"
exec cron -f
"#;

#[test]
fn cron_of_debian() {
    if !needs::root() || !is_there("cron") || !is_there("unshare") {
        return;
    }
    let (desk, setup) = Desk::opened(Setup::new());
    let file = |name: &str, text: &str, mode| {
        std::fs::write(desk.path(name), text).expect("written");
        std::fs::set_permissions(desk.path(name), std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    for name in ["crontabs", "cron.d"] {
        std::fs::create_dir(desk.path(name)).expect("made");
    }
    file("crontab", "", 0o644);
    // Due when cron starts, not at the next minute.
    file("crontabs/root", "MAILTO=ann@b.test\n@reboot printf 'out of cron\\n.\\n'\n", 0o600);
    let (sendmail, pid) = (desk.named("sendmail"), desk.path("pid"));
    // When it has its mail, cron is not needed any more.
    let mailer = format!("#!/bin/sh\n{} \"$@\"\nkill $(cat {})\n", sendmail.display(), pid.display());
    write_program(&desk.path("mailer"), mailer.as_bytes());
    let place = desk.path("").display().to_string();
    let room = ["60", "unshare", "-m", "--propagation", "private", "sh", "-c", CRON_ROOM, "cron", &place];
    let done = command(&desk, "timeout", &room, "");
    if done.exit == Some(77) {
        return needs::skip("mounts", &format!("of one's own are not permitted here: {}", done.err.trim()));
    }
    let letters = taken(setup);
    let [letter] = letters.as_slice() else { panic!("{done:?} {letters:?}") };
    let text = String::from_utf8_lossy(&letter.content);
    assert_eq!(letter.envelope.recipients[0].address.to_string(), "ann@b.test");
    assert!(text.contains("(Cron Daemon)\r\n") && text.contains("\r\nSubject: Cron <root@"), "{text}");
    assert!(text.ends_with("\r\n\r\nout of cron\r\n.\r\n"), "{text}");
}

#[test]
fn php() {
    if !is_there("php") {
        return;
    }
    let text = sent(|desk, sendmail| {
        let path = format!("sendmail_path={} -t -i -fweb@x.test", sendmail.display());
        let code =
            "exit(mail('ann@b.test', 'Subject', \"line\\n.\\nend\", \"Bcc: blind@c.test\\r\\nX-A: b\") ? 0 : 1);";
        command(desk, "php", &["-d", &path, "-r", code], "")
    });
    assert!(text.starts_with("<web@x.test> -> ann@b.test,blind@c.test\n"), "{text}");
    assert!(
        text.contains("\r\nSubject: Subject\r\n") && !text.contains("Bcc") && text.ends_with("line\r\n.\r\nend\r\n"),
        "{text}"
    );
}

#[test]
fn mutt() {
    if !is_there("mutt") {
        return;
    }
    let text = sent(|desk, sendmail| {
        let set = format!("set sendmail=\"{} -oem -oi\"", sendmail.display());
        let words = [
            "-F",
            "/dev/null",
            "-e",
            &set,
            "-e",
            "set copy=no",
            "-e",
            "set from=me@x.test",
            "-e",
            "set use_envelope_from",
            "-s",
            "Hi",
            "ann@b.test",
        ];
        command(desk, "mutt", &words, "from mutt\n")
    });
    assert!(text.starts_with("<me@x.test> -> ann@b.test\n") && text.contains("from mutt\r\n"), "{text}");
}

#[test]
fn mailx() {
    for name in ["s-nail", "bsd-mailx"] {
        if !is_there(name) {
            continue;
        }
        let text = sent(|desk, sendmail| {
            let is_nail = name == "s-nail";
            let key = if is_nail { "mta" } else { "sendmail" };
            let home = desk.path("home");
            std::fs::create_dir_all(&home).expect("made");
            std::fs::write(home.join(".mailrc"), format!("set {key}={}\n", sendmail.display())).expect("written");
            let option = format!("mta={}", sendmail.display());
            let words: &[&str] =
                if is_nail { &["-:/", "-S", &option, "-s", "Hi", "ann@b.test"] } else { &["-s", "Hi", "ann@b.test"] };
            command(desk, name, words, "from mailx\n")
        });
        assert!(
            text.contains("-> ann@b.test\n") && text.contains("Subject: Hi") && text.contains("from mailx"),
            "{text}"
        );
    }
}

#[test]
fn git_send_email() {
    // It is there without the modules it needs, on some systems.
    let modules = Command::new("perl").args(["-MMail::Address", "-MNet::SMTP", "-e", "1"]).output();
    let has_modules = modules.is_ok_and(|output| output.status.success());
    let is_installed = has_modules
        && Command::new("git")
            .args(["send-email", "-h"])
            .output()
            .is_ok_and(|output| !String::from_utf8_lossy(&output.stderr).contains("not a git command"));
    if !is_installed {
        return needs::skip("git-send-email", "is not installed");
    }
    let text = sent(|desk, sendmail| {
        let patch = desk.path("p.patch");
        std::fs::write(&patch, "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: A <a@x.test>\nDate: Mon, 1 Jan 2024 00:00:00 +0000\nSubject: [PATCH] one\n\n---\n f | 1 +\n").expect("written");
        let server = format!("--sendmail-cmd={}", sendmail.display());
        let patch = patch.display().to_string();
        let words = [
            "send-email",
            &server,
            "--from=a@x.test",
            "--to=ann@b.test",
            "--confirm=never",
            "--suppress-cc=all",
            "--envelope-sender=env@x.test",
            &patch,
        ];
        command(desk, "git", &words, "")
    });
    assert!(text.starts_with("<env@x.test> -> ann@b.test\n") && text.contains("Subject: [PATCH] one"), "{text}");
}
