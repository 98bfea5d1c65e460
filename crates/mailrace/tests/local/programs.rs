//! Programs that mail is really piped to: procmail, vacation, Dovecot's agent, as the user and with their environment.

use crate::office::{As, NOBODY, give, is_skipped, line, make_directory, start, stored, with_boxes};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::harness::needs;

/// Delivers a message to each of these commands of the program `name`, run by nobody, and returns the lines of the log
/// about them.
fn piped(
    (name, program): (&str, &str),
    commands: impl Fn(&Path) -> Vec<String>,
) -> Option<(Vec<String>, PathBuf, Arc<tempfile::TempDir>)> {
    if is_skipped() || !needs::has(name, program) {
        return None;
    }
    let setup = with_boxes(NOBODY).set("local.programs", "[\"/usr/bin\", \"/usr/lib/dovecot\"]");
    let home = PathBuf::from(make_directory(&setup, "home", NOBODY));
    let commands = commands(&home);
    let names: Vec<String> = (0..commands.len()).map(|number| format!("p{number}@x.test")).collect();
    let mail: Vec<(&str, String)> =
        names.iter().zip(&commands).map(|(name, command)| (name.as_str(), format!("prog:nobody:{command}"))).collect();
    let content = b"From: ann@a.test\r\nTo: nobody@x.test\r\nSubject: x\r\nPrecedence: bulk\r\n\r\nFrom here\r\n";
    let setup = stored(setup, As::Us, 0, &mail, content);
    let directory = setup.dir.clone();
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    let lines =
        names.iter().map(|name| line(&mut server, &[&format!("ctladdr=<{name}>"), "mailer=prog", "stat="])).collect();
    assert!(server.stop().status.success());
    Some((lines, home, directory))
}

fn write(home: &Path, name: &str, text: &str) -> String {
    let path = home.join(name);
    std::fs::write(&path, text).expect("written");
    give(&path, NOBODY);
    path.display().to_string()
}

#[test]
fn procmail_takes_mail_and_its_statuses_count() {
    let commands = |home: &Path| {
        let rc = |name: &str, text: &str| {
            let text = format!("SHELL=/bin/sh\nDEFAULT={0}/default\nLOGFILE={0}/log\n{text}\n", home.display());
            format!("/usr/bin/procmail -f- {}", write(home, name, &text))
        };
        vec![
            rc("sort", &format!(":0\n* ^Subject: x\n{}/sorted", home.display())),
            rc("later", "EXITCODE=75\nHOST"),
            rc("never", "EXITCODE=67\nHOST"),
            rc("pipe", &format!(":0\n| /bin/cat > {}/\"$LOGNAME\"", home.display())),
        ]
    };
    let Some((lines, home, _directory)) = piped(("procmail", "/usr/bin/procmail"), commands) else { return };
    assert!(lines[0].contains("stat=Sent") && lines[0].contains("dsn=2.0.0"), "{}", lines[0]);
    assert!(lines[1].contains("stat=Deferred") && lines[1].contains("the program asked to try again"), "{}", lines[1]);
    assert!(lines[2].contains("stat=User unknown") && lines[2].contains("dsn=5.1.1"), "{}", lines[2]);
    assert!(lines[3].contains("stat=Sent"), "{}", lines[3]);
    for name in ["sorted", "nobody"] {
        let text = std::fs::read_to_string(home.join(name)).expect("a message");
        assert!(text.starts_with("From ann@a.test ") && text.contains("\nReturn-Path: <ann@a.test>\n"), "{text}");
        assert!(text.contains("\nDelivered-To: p") && text.contains("From here\n"), "{text}");
        assert_eq!(std::fs::metadata(home.join(name)).expect("there").uid(), NOBODY);
    }
    assert!(!home.join("default").exists(), "half a delivery goes nowhere else");
}

#[test]
fn vacation_is_asked_beside_the_mailbox() {
    let commands = |home: &Path| {
        let message = write(home, "message", "Subject: away\n\nI am away.\n");
        vec![
            // It answers no bulk mail, and nothing leaves this machine.
            format!("/usr/bin/vacation -m {message} -f {}/answered nobody", home.display()),
            "/usr/bin/vacation gone-from-here".to_owned(),
        ]
    };
    let Some((lines, home, _directory)) = piped(("vacation", "/usr/bin/vacation"), commands) else { return };
    assert!(lines[0].contains("mailer=prog") && lines[0].contains("stat=Sent"), "{}", lines[0]);
    assert_eq!(std::fs::metadata(home.join("answered")).expect("its database").uid(), NOBODY);
    // Its status is 1, which sendmail takes for a failure too.
    assert!(lines[1].contains("stat=unknown mailer error 1; it said: vacation: no such user"), "{}", lines[1]);
}

#[test]
fn dovecot_puts_mail_into_its_mailbox_by_a_pipe() {
    let program = "/usr/lib/dovecot/dovecot-lda";
    let commands = |home: &Path| {
        let text = format!("log_path = {0}/log\nmail_location = maildir:{0}/Maildir\nssl = no\n", home.display());
        let configuration = write(home, "dovecot.conf", &text);
        vec![format!("{program} -c {configuration} -a nobody@x.test"), format!("{program} -c {configuration}.gone")]
    };
    let Some((lines, home, _directory)) = piped(("dovecot", program), commands) else { return };
    assert!(lines[0].contains("stat=Sent"), "{}", lines[0]);
    let new: Vec<_> = std::fs::read_dir(home.join("Maildir/new")).expect("a Maildir").filter_map(Result::ok).collect();
    let [file] = new.as_slice() else { panic!("{new:?}") };
    let text = std::fs::read_to_string(file.path()).expect("a message");
    assert!(text.contains("Return-Path: <ann@a.test>\n") && text.contains("\n\nFrom here\n"), "{text}");
    assert!(!text.starts_with("From "), "it takes the line away: {text}");
    assert!(!lines[1].contains("stat=Sent"), "{}", lines[1]);
}
