//! `mailrace-bench power-disk`: after a cut there is what was synced; what was not, and what ignored flushes promised,
//! is gone.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use testkit::needs;

const CONTENT: &[u8] = b"a message\n";

/// The process, which ends when its input is dropped.
struct PowerDisks {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl PowerDisks {
    /// Starts it on new directories, without survivors among what was not flushed; `None`, and says so, where it cannot
    /// run.
    fn start(directories: &[PathBuf], more: &[&str]) -> Option<Self> {
        for directory in directories {
            fs::create_dir_all(directory).unwrap();
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_mailrace-bench"))
            .args(["power-disk", "--size=64", "--flush=0", "--survivors=none"])
            .args(more)
            .args(directories)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut disks = Self { child, input, output };
        let said = disks.answer();
        if let Some(why) = said.strip_prefix("error skipped: ") {
            needs::skip("fuse", why);
            return None;
        }
        assert_eq!(said, "ok ready");
        Some(disks)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.answer()
    }
}

impl Drop for PowerDisks {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("power-disk").join(name)
}

fn write(path: &Path) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(CONTENT).unwrap();
    file
}

fn has_content(path: &Path) -> bool {
    fs::read(path).is_ok_and(|content| content == CONTENT)
}

#[test]
fn only_synced_files_survive_a_cut_and_other_disks_go_on() {
    let (one, other) = (place("one"), place("other"));
    let Some(mut disks) = PowerDisks::start(&[one.clone(), other.clone()], &[]) else { return };
    write(&one.join("synced")).sync_all().unwrap();
    let mut open = write(&one.join("unsynced"));
    let said = disks.ask(&format!("cut 1 {}", one.display()));
    assert!(said.starts_with(&format!("ok {} none 0/", one.display())), "{said}");
    assert!(open.write_all(CONTENT).and_then(|()| open.sync_all()).is_err(), "a disk without power takes writes");
    drop(open);
    write(&other.join("synced")).sync_all().unwrap();
    assert!(disks.ask(&format!("cut 1 {}", one.display())).starts_with("error "));
    assert!(disks.ask(&format!("mount {}", other.display())).starts_with("error "));
    assert_eq!(disks.ask(&format!("mount {}", one.display())), "ok");
    assert!(has_content(&one.join("synced")));
    assert!(!has_content(&one.join("unsynced")));
    write(&one.join("later")).sync_all().unwrap();
    assert!(disks.ask("cut 2").starts_with("ok "));
    assert_eq!(disks.ask("mount"), "ok");
    for path in [one.join("synced"), one.join("later"), other.join("synced")] {
        assert!(has_content(&path), "{}", path.display());
    }
    assert!(disks.ask("turn").starts_with("error broken: \"turn\" is not"));
    drop(disks);
    assert!(!one.join("synced").exists(), "the end unmounts");
}

#[test]
fn ignored_flushes_keep_nothing() {
    let one = place("ignored");
    let Some(mut disks) = PowerDisks::start(std::slice::from_ref(&one), &["--ignore-flushes"]) else { return };
    write(&one.join("synced")).sync_all().unwrap();
    assert!(has_content(&one.join("synced")));
    assert!(disks.ask("cut 1").starts_with("ok "));
    assert_eq!(disks.ask("mount"), "ok");
    assert!(!has_content(&one.join("synced")));
}
