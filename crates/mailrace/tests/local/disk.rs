//! Disks that are full, read-only, or lost power: nothing is lost, nothing stands there twice, and the log says where
//! and why.

use crate::office::{As, NOBODY, give, is_skipped, line, retry, start, stored, with_boxes};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::harness::{Server, needs};

/// A file system in memory, of a size, unmounted when this goes.
struct Small(PathBuf);

impl Small {
    /// `None`, and says so, where this is not permitted.
    fn mount(path: &Path, kib: usize) -> Option<Self> {
        let options = format!("size={kib}k,mode=755,uid={NOBODY},gid={NOBODY}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            other => {
                needs::skip("tmpfs", &format!("cannot be mounted here: {other:?}"));
                None
            }
        }
    }

    fn remount(&self, how: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status();
        assert!(status.expect("there is mount").success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).expect("a directory").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn a_full_disk_defers_mail_and_keeps_no_part_of_it() {
    if is_skipped() {
        return;
    }
    for kind in ["mbox", "maildir"] {
        let setup = with_boxes(NOBODY).set("server.user", "\"daemon\"");
        let boxes = setup.path("boxes");
        let setup = setup.set("local.mailbox", format!("\"{kind}:{}/%u\"", boxes.display()));
        let mail = [("nobody@x.test", "local:".to_owned()), ("nobody+x@x.test", "local:".to_owned())];
        let large = format!("Subject: x\r\n\r\n{}", "some line of text\r\n".repeat(10_000));
        let setup = stored(setup, As::Us, 1, &mail, large.as_bytes());
        let Some(small) = Small::mount(&boxes, 128) else { return };
        let mut server = start(setup, As::Us);
        retry(&server);
        for who in ["to=<nobody@x.test>", "to=<nobody+x@x.test>"] {
            let path = boxes.join("nobody").display().to_string();
            line(&mut server, &[who, "stat=Deferred", "dsn=4.3.1", &path, "no space left", "ENOSPC"]);
        }
        assert_eq!(files_below(&boxes), Vec::<PathBuf>::new(), "{kind}");
        small.remount("ro");
        retry(&server);
        line(&mut server, &["to=<nobody@x.test>", "stat=Deferred", "dsn=4.3.0", "nobody", "read-only", "EROFS"]);
        // The control: with room it is delivered.
        small.remount("rw,size=4m");
        for who in ["to=<nobody@x.test>", "to=<nobody+x@x.test>"] {
            retry(&server);
            line(&mut server, &[who, "stat=Sent"]);
        }
        assert_eq!(files_below(&boxes).len(), if kind == "mbox" { 1 } else { 2 });
        assert!(server.stop().status.success());
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_told_and_ends_no_process() {
    if is_skipped() || needs::program("prlimit").is_none() {
        return;
    }
    const MAX: u64 = 4 << 20;
    for user in ["daemon", "root"] {
        let setup = with_boxes(NOBODY).set("server.user", format!("\"{user}\""));
        let path = setup.path("boxes").join("nobody");
        let setup = stored(
            setup,
            As::Us,
            u32::from(user == "daemon"),
            &[("nobody@x.test", "local:".to_owned())],
            b"Subject: x\r\n\r\nx\r\n",
        );
        let old = format!("From x\n\n{}\n\n", "x".repeat(usize::try_from(MAX).expect("small") - 60));
        std::fs::write(&path, &old).expect("written");
        give(&path, NOBODY);
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={MAX}"));
        let usual = setup.command();
        command.arg(usual.get_program()).args(usual.get_args());
        let mut server = Server::start(setup, command);
        retry(&server);
        line(&mut server, &["to=<nobody@x.test>", "stat=Deferred", "dsn=4.2.2", &path.display().to_string(), "EFBIG"]);
        assert!(std::fs::read_to_string(&path).expect("a mailbox") == old, "as it was");
        // The control: a little shorter, and there is room.
        std::fs::write(&path, old.replacen(&"x".repeat(4_096), "", 1)).expect("written");
        retry(&server);
        line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
        assert!(server.stop().status.success());
    }
}

/// A mailbox as a power cut leaves it: the spool has no record of the delivery, and of the message stands so much
/// there.
fn after_a_power_cut(keep: f64) -> (String, String) {
    let setup = with_boxes(NOBODY);
    let (boxes, spool, _directory) = (setup.path("boxes"), setup.path("spool"), setup.dir.clone());
    let body = format!("Subject: x\r\n\r\n{}", "From a line of text\r\n".repeat(5_000));
    let setup = stored(setup, As::Us, 0, &[("nobody@x.test", "local:".to_owned())], body.as_bytes());
    let path = boxes.join("nobody");
    std::fs::write(&path, "From x\n\nold\n\n").expect("written");
    give(&path, NOBODY);
    let before = setup.path("before");
    assert!(Command::new("cp").arg("-a").args([&spool, &before]).status().expect("there is cp").success());
    let mut server = start(setup.set("delivery.mode", "\"background\""), As::Us);
    line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
    let setup = std::mem::replace(&mut server.setup, testkit::harness::Setup::new());
    assert!(server.stop().status.success());
    let whole = std::fs::read_to_string(&path).expect("a mailbox");
    std::fs::remove_dir_all(&spool).expect("removed");
    assert!(Command::new("cp").arg("-a").args([&before, &spool]).status().expect("there is cp").success());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a file"
    )]
    let length = (whole.len() as f64 * keep) as u64;
    std::fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(length)).expect("cut");
    let mut server = start(setup, As::Us);
    line(&mut server, &["to=<nobody@x.test>", "stat=Sent"]);
    assert!(server.stop().status.success());
    (whole, std::fs::read_to_string(&path).expect("a mailbox"))
}

#[test]
fn half_a_message_in_a_mailbox_is_completed_after_a_power_cut() {
    if is_skipped() {
        return;
    }
    for keep in [0.01, 0.5, 0.999, 1.0] {
        let (whole, found) = after_a_power_cut(keep);
        assert!(found == whole, "{keep}: {} and {} octets", whole.len(), found.len());
    }
    // The control: a message that breaks off before its queue id stays, and takes no octets of the next one.
    let (whole, found) = after_a_power_cut(20.0 / 100_000.0);
    assert!(found.len() > whole.len() && found.matches("\nSubject: x\n").count() == 1, "{found:.200}");
    assert!(found.contains("\n\nFrom ann@a.test "), "{found:.200}");
}
