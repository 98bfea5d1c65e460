//! `mailrace spool` as a user meets it: exit statuses, JSON, help, and the files it leaves alone.

use mail::{Client, Envelope, HeloName, MailParams, Node, Protocol, QueueIds, Received, Recipient, ReversePath};
use serde_json::Value;
use spool::disk::real::RealDisk;
use spool::envelope::Encoded;
use spool::{Config, NewBody, Spool, Store as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use testkit::harness::let_go;

/// Messages of a small spool.
const MESSAGES: u64 = 60;

/// Runs the program; its output is in the panic of a test that fails.
#[track_caller]
fn run(arguments: &[&str], exit: i32) -> String {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_mailrace")).args(arguments).output().expect("the program runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

#[track_caller]
fn run_json(arguments: &[&str], exit: i32) -> Value {
    let text = run(&[arguments, &["--json"]].concat(), exit);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// An empty place for one test.
fn place(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).expect("a place");
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

/// A small closed spool of [`MESSAGES`] messages, to one recipient each.
#[track_caller]
fn small_spool(test: &str) -> PathBuf {
    let dir = place(test).join("spool");
    let config = Config { segment_bytes: 1 << 20, free_min: 0, ..Config::new(&dir) };
    let (spool, _) = Spool::open(config, Arc::new(RealDisk::new())).expect("a spool");
    let mut ids = QueueIds::new(Node::default());
    for number in 0..MESSAGES {
        let id = ids.next(1_795_161_879_000_000);
        let envelope = Envelope {
            id,
            sender: ReversePath::Null,
            params: MailParams::default(),
            received: Received {
                at_us: id.unix_us(),
                client: Client::Internal,
                helo: HeloName::new(b"lists.example"),
                protocol: Protocol::Local,
            },
            recipients: vec![Recipient::new(format!("reader@site{}.example", number % 5).parse().expect("an address"))],
        };
        let encoded = Encoded::new(&envelope);
        let body = NewBody::whole(vec![b'a'; 600], 0);
        spool.append(encoded.message(&encoded.recipients(), body)).and_then(|commit| commit.wait()).expect("stored");
    }
    drop(spool);
    let_go(&dir);
    dir
}

/// All files of a directory with their contents, by name.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.push((path.clone(), fs::read(&path).expect("a file")));
        }
    }
    files.sort();
    files
}

/// The offset of some live message and the segment it is in.
fn a_live_frame(dir: &Path) -> (PathBuf, u64) {
    let facts = run(&["spool", "inspect", text(dir), "--frames", "--json"], 0);
    let mut file = PathBuf::new();
    for fact in facts.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON on each line")) {
        if fact["fact"] == "segment" {
            file = fact["file"].as_str().expect("a path").into();
        }
        if fact["fact"] == "frame" && fact["live"] == true {
            return (file, fact["offset"].as_u64().expect("an offset"));
        }
    }
    panic!("no live frame: {facts}");
}

#[test]
fn a_sound_spool_is_read_and_not_changed() {
    let dir = small_spool("sound");
    let before = contents(&dir);
    let verify = run_json(&["spool", "verify", text(&dir)], 0);
    assert_eq!((&verify["sound"], &verify["damage"]), (&true.into(), &Value::Array(Vec::new())));
    let messages = verify["messages"].as_u64().expect("a number");
    assert_eq!(messages, MESSAGES);
    let stats = run_json(&["spool", "stats", text(&dir), "--top", "3"], 0);
    assert_eq!(stats["messages"], messages);
    assert_eq!(stats["top"].as_array().map(Vec::len), Some(3));
    assert_eq!(stats["live_frames"], messages, "one frame for each message");
    assert!(stats["file_system"]["name"].is_string() && stats["file_system"]["volatile"].is_boolean());
    let facts = run(&["spool", "inspect", text(&dir), "--json"], 0);
    let facts: Vec<Value> = facts.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(facts.first().map(|fact| &fact["fact"]), Some(&"spool".into()));
    assert_eq!(facts.last().map(|fact| &fact["messages"]), Some(&messages.into()));

    assert!(run(&["spool", "verify", text(&dir)], 0).contains(": sound\n"));
    assert!(run(&["spool", "stats", text(&dir)], 0).contains("site0.example"));
    let frames = run(&["spool", "inspect", text(&dir), "--frames"], 0);
    assert!(frames.contains(" MSG ") && frames.contains("recipients at site"), "{frames}");
    assert_eq!(contents(&dir), before);
}

#[test]
fn a_copy_that_nobody_may_write_is_read() {
    let dir = small_spool("original");
    let copy = place("copy");
    for (path, bytes) in contents(&dir) {
        let to = copy.join(path.strip_prefix(&dir).expect("below"));
        fs::create_dir_all(to.parent().expect("a directory")).expect("made");
        fs::write(&to, bytes).expect("copied");
        let mut permissions = fs::metadata(&to).expect("there").permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&to, permissions).expect("changed");
    }
    // `lock` need not be copied.
    fs::remove_file(copy.join("lock")).expect("there");
    assert_eq!(run_json(&["spool", "verify", text(&copy)], 0)["sound"], true);
}

#[test]
fn damage_is_found_and_named() {
    let dir = small_spool("damage");
    let (file, offset) = a_live_frame(&dir);
    let mut bytes = fs::read(&file).expect("a segment");
    let at = usize::try_from(offset).expect("small") + 300;
    *bytes.get_mut(at).expect("inside") ^= 0x10;
    fs::write(&file, bytes).expect("written");
    let verify = run_json(&["spool", "verify", text(&dir)], 65);
    let damage = verify["damage"].as_array().and_then(|all| all.first()).expect("one place");
    assert_eq!((&damage["offset"], &damage["file"]), (&offset.into(), &text(&file).into()));
    assert!(damage["id"].is_string() && damage["bytes"].as_u64() > Some(600), "{damage}");
    let words = run(&["spool", "verify", text(&dir)], 65);
    assert!(words.contains("DAMAGED, 1 place") && words.contains("does not match its checksum, message "), "{words}");
    assert!(run(&["spool", "inspect", text(&dir)], 65).contains("DAMAGE"));
    assert_eq!(run_json(&["spool", "stats", text(&dir)], 65)["damage"], 1);
}

#[test]
fn a_damaged_identity_is_damage() {
    let dir = small_spool("identity");
    let text_of = fs::read_to_string(dir.join("SPOOL")).expect("the identity");
    fs::write(dir.join("SPOOL"), text_of.replace("shards 1", "shards 2")).expect("written");
    assert!(run(&["spool", "verify", text(&dir)], 65).contains("checksum does not match; restore"));
    fs::remove_file(dir.join("SPOOL")).expect("there");
    assert!(run(&["spool", "verify", text(&dir)], 66).contains("no file SPOOL"));
}

#[test]
fn what_is_no_spool_is_left_alone() {
    let dir = place("empty");
    for command in ["inspect", "verify", "stats"] {
        assert!(run(&["spool", command, text(&dir)], 66).contains("name the directory that holds it"));
        assert!(run(&["spool", command, text(&dir.join("nothing"))], 66).contains("no such directory"));
    }
    assert_eq!(contents(&dir), [], "not even a lock");
}

#[test]
fn a_spool_in_use_is_left_alone() {
    let dir = small_spool("in-use");
    let (spool, _) = Spool::open(Config::new(&dir), Arc::new(RealDisk::new())).expect("a spool");
    let refused = run(&["spool", "verify", text(&dir)], 75);
    assert!(refused.contains(&std::process::id().to_string()), "{refused}");
    drop(spool);
    // A process that another test is just starting has our files, and the lock, until it is itself.
    let verify = || Command::new(env!("CARGO_BIN_EXE_mailrace")).args(["spool", "verify", text(&dir)]).output();
    let is_locked = || verify().expect("the program runs").status.code() == Some(75);
    assert!((0..200).any(|_| !is_locked()), "the lock is never given back");
    run(&["spool", "verify", text(&dir)], 0);
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let dir = small_spool("newer");
    let identity = fs::read_to_string(dir.join("SPOOL")).expect("the identity");
    fs::write(dir.join("SPOOL"), identity.replace("format 2", "format 7")).expect("written");
    let refused = run(&["spool", "stats", text(&dir)], 78);
    assert!(refused.contains("format 7 is newer than 2"), "{refused}");
}

#[test]
fn wrong_arguments_and_help() {
    run(&[], 64);
    run(&["spool", "verify"], 64);
    run(&["spool", "stats", "x", "--frames"], 64);
    let help = run(&["spool", "--help"], 0);
    for part in ["inspect", "verify", "stats", "Exit status:", "65  damage was found"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    for command in ["inspect", "verify", "stats"] {
        assert!(run(&["spool", command, "--help"], 0).contains("--json"));
    }
    assert!(run(&["--version"], 0).starts_with("mailrace "));
}
