//! Spools of each format version that was ever written: the present code opens its own and refuses the others.
//!
//! `fixtures/vN` holds a spool as a power cut left it, each file as a dump that a person can read, and `MANIFEST` with
//! the content that must be found in it. A version's fixtures never change once the version is released. New ones are
//! made by the ignored test.

use spool::disk::Disk;
use spool::disk::real::RealDisk;
use spool::disk::sim::{Costs, SimConfig, SimDisk};
use spool::fuzz::sample::{Kept, ROOT, config, kinds, sample};
use spool::{Config, OpenError, Spool, Status, Store as _, envelope};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes on a line of a dump.
const LINE: usize = 32;

fn fixtures(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}"))
}

/// A file as text: its size, then the lines that differ from the line before, each with its offset. Zeroes come first.
fn dump(bytes: &[u8]) -> String {
    let mut text = format!("{:08x} bytes\n", bytes.len());
    let mut before: &[u8] = &[0; LINE];
    for (line, at) in bytes.chunks(LINE).zip((0_usize..).step_by(LINE)) {
        if line != before {
            write!(text, "{at:08x} ").expect("memory takes all");
            line.iter().for_each(|byte| write!(text, "{byte:02x}").expect("memory takes all"));
            text.push('\n');
        }
        before = line;
    }
    text
}

/// Reads what [`dump`] wrote.
fn undump(text: &str) -> Option<Vec<u8>> {
    let mut lines = text.lines();
    let size = usize::from_str_radix(lines.next()?.strip_suffix(" bytes")?, 16).ok()?;
    let mut bytes = Vec::with_capacity(size);
    let mut line = vec![0; LINE];
    for row in lines {
        let (at, hex) = row.split_once(' ')?;
        fill(&mut bytes, &line, usize::from_str_radix(at, 16).ok()?);
        line = (0..hex.len()).step_by(2).filter_map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect();
        bytes.extend_from_slice(&line);
    }
    fill(&mut bytes, &line, size);
    bytes.truncate(size);
    Some(bytes)
}

/// Repeats `line` up to `end`.
fn fill(bytes: &mut Vec<u8>, line: &[u8], end: usize) {
    while bytes.len() < end {
        bytes.extend_from_slice(line);
    }
}

/// A simulated disk with the fixtures of a version on it.
fn disk(version: u32) -> SimDisk {
    let disk = SimDisk::with_config(1, SimConfig { costs: Costs::NONE, ..SimConfig::default() });
    let root = fixtures(version);
    for dir in ["", "00"] {
        for entry in fs::read_dir(root.join(dir)).expect("fixtures") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            let contents = match name.strip_suffix(".dump") {
                Some(_) => undump(&fs::read_to_string(&path).expect("text")).expect("a dump"),
                None if path.is_file() && name != "MANIFEST" => fs::read(&path).expect("a file"),
                None => continue,
            };
            let to = Path::new(ROOT).join(dir).join(name.trim_end_matches(".dump"));
            disk.set_contents(&to, &contents).expect("a healthy disk");
        }
    }
    disk
}

/// Returns the lines of a manifest for a message: a line for it and one for each recipient that is not done.
fn told(id: &str, sender: &str, received_us: u64, body: &[u8], recipients: &[String]) -> String {
    let crc = crc(body);
    format!("{id} {sender} at {received_us}, body of {} bytes, crc32c {crc:08x}\n{}", body.len(), recipients.concat())
}

/// CRC-32C bit by bit: the fixtures do not lean on the code they test.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

fn recipient(position: u32, address: &str, destination: &[u8], state: spool::State) -> String {
    let spool::State { status, attempts, due } = state;
    let destination = String::from_utf8_lossy(destination);
    format!("  {position} {address} to {destination}, {status:?}, {attempts} attempts, due {due}\n")
}

/// Returns the manifest of the committed messages.
fn manifest_of_kept(messages: &[Kept]) -> String {
    let mut all: Vec<String> = Vec::new();
    for kept in messages.iter().filter(|kept| !kept.is_finished()) {
        let envelope = &kept.envelope;
        let lines =
            envelope.recipients.iter().zip(&kept.states).zip(0..).map(|((one, (state, destination)), at)| match state
                .status
            {
                Status::Done => String::new(),
                _ => recipient(at, &one.address.to_string(), destination, *state),
            });
        let lines: Vec<String> = lines.collect();
        let (id, sender) = (envelope.id.to_string(), envelope.sender.to_string());
        all.push(told(&id, &sender, envelope.received.at_us, &kept.body, &lines));
    }
    all.sort();
    all.concat()
}

/// Returns the manifest of an open spool.
fn manifest_of_spool(spool: &Spool) -> String {
    let mut all: Vec<String> = Vec::new();
    for id in spool.messages() {
        let stored = spool.envelope(id).expect("the envelope reads");
        let envelope = envelope::decode(id, &stored).expect("the envelope makes sense");
        let body = spool.body(id).expect("the body reads").concat();
        let lines = envelope.recipients.iter().zip(&stored.recipients);
        let lines = lines.map(|(one, stored)| {
            recipient(stored.position, &one.address.to_string(), &stored.destination, stored.state)
        });
        let lines: Vec<String> = lines.collect();
        all.push(told(&id.to_string(), &envelope.sender.to_string(), envelope.received.at_us, &body, &lines));
    }
    all.sort();
    all.concat()
}

#[test]
fn version_2_is_read() {
    let disk = disk(2);
    let kinds = kinds(&disk, Path::new(ROOT)).expect("a spool");
    assert_eq!(kinds, ["CHUNK", "DONE", "LIVEMAP", "MOVED", "MSG", "MSG-REF", "STATE"]);
    let names: Vec<String> = disk.files().iter().map(|(path, _)| path.display().to_string()).collect();
    assert!(names.iter().any(|name| name.contains("/bad-")), "{names:?}");

    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (spool, _, recovery) = Spool::open_stepped(config(), shared).expect("a spool of version 2 opens");
    assert!(recovery.damage.is_empty() && recovery.torn == 1 && recovery.scanned > 0, "{recovery}");
    assert!(recovery.segments > recovery.scanned, "some have footers: {recovery}");
    let manifest = fs::read_to_string(fixtures(2).join("MANIFEST")).expect("a manifest");
    assert_eq!(manifest_of_spool(&spool), manifest);
}

#[test]
fn version_2_is_read_from_a_real_file_system() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixtures-v2");
    drop(fs::remove_dir_all(&dir));
    let simulated = disk(2);
    for (path, _) in simulated.files() {
        let to = dir.join(path.strip_prefix(ROOT).expect("below the spool"));
        fs::create_dir_all(to.parent().expect("a directory")).expect("made");
        fs::write(to, simulated.contents(&path).expect("it is listed")).expect("copied");
    }
    let opened = Spool::open_stepped(Config { path: dir, ..config() }, Arc::new(RealDisk::new()));
    let (spool, _, recovery) = opened.expect("a spool of version 2 opens");
    assert!(recovery.damage.is_empty(), "{recovery}");
    let manifest = fs::read_to_string(fixtures(2).join("MANIFEST")).expect("a manifest");
    assert_eq!(manifest_of_spool(&spool), manifest);
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    for (found, text) in [(3, "format 3 is newer than 2"), (1, "format 1 is older than 2")] {
        let disk = disk(2);
        let path = Path::new(ROOT).join("SPOOL");
        let identity = String::from_utf8(disk.contents(&path).expect("the identity")).expect("text");
        disk.set_contents(&path, identity.replace("format 2", &format!("format {found}")).as_bytes())
            .expect("a healthy disk");
        refuse(disk, found, text);
    }
}

#[test]
fn a_spool_of_version_1_is_refused() {
    refuse(disk(1), 1, "format 1 is older than 2");
}

#[test]
fn a_segment_of_another_version_is_refused() {
    for (found, text) in [(3, "format 3 is newer than 2"), (1, "format 1 is older than 2")] {
        for magic in [b"MRSEGMNT", b"MRTRAILR"] {
            let disk = disk(2);
            assert!(set_version(&disk, magic, found), "the fixtures have both blocks");
            refuse(disk, found, text);
        }
    }
}

/// Opens the spool, which must fail for its format and leave every file as it is, the lock apart.
fn refuse(disk: SimDisk, found: u32, text: &str) {
    let contents = |disk: &SimDisk| -> Vec<_> {
        let files = disk.files().into_iter().map(|(path, _)| (disk.contents(&path).expect("it is listed"), path));
        files.filter(|(_, path)| !path.ends_with("lock")).collect()
    };
    let before = contents(&disk);
    let error = Spool::open_stepped(config(), Arc::new(disk.clone())).map(drop).expect_err("another version");
    assert!(matches!(error, OpenError::OtherFormat { found: named, supported: 2, .. } if named == found), "{error}");
    assert!(error.to_string().contains(text), "{error}");
    assert!(contents(&disk) == before, "a refused spool was changed");
}

/// Gives one header or trailer of the spool another version, with a checksum that matches.
fn set_version(disk: &SimDisk, magic: &[u8; 8], version: u32) -> bool {
    let (at_end, covered) = if magic == b"MRTRAILR" { (true, 64) } else { (false, 76) };
    for (path, _) in disk.files() {
        let Some(mut contents) = disk.contents(&path).ok().filter(|_| path.to_string_lossy().contains("/seg-")) else {
            continue;
        };
        let at = if at_end { contents.len() - 4096 } else { 0 };
        let block = &mut contents[at..at + 4096];
        if !block.starts_with(magic) {
            continue;
        }
        block[8..12].copy_from_slice(&version.to_le_bytes());
        let sum = crc(&[&block[8..12], &block[16..covered]].concat());
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        disk.set_contents(&path, &contents).expect("a healthy disk");
        return true;
    }
    false
}

#[test]
fn dumps_come_back() {
    let long: Vec<u8> = (0..200_u8).chain(std::iter::repeat_n(7, 300)).chain(std::iter::repeat_n(0, 100)).collect();
    for bytes in [&[][..], &[0; 100], &[1; 64], b"short", &long] {
        assert_eq!(undump(&dump(bytes)).as_deref(), Some(bytes));
    }
}

/// Writes the fixtures of the version that this code writes, over those that are there.
#[test]
#[ignore = "makes the fixtures of a new version: cargo test -p mailrace-spool --test it fixtures -- --ignored"]
fn make() {
    let root = fixtures(spool::VERSION);
    drop(fs::remove_dir_all(&root));
    fs::create_dir_all(root.join("00")).expect("a directory");
    let made = sample();
    for (path, _) in made.disk.files() {
        let bytes = made.disk.contents(&path).expect("it is listed");
        let below = path.strip_prefix(ROOT).expect("below the spool");
        if below.starts_with("00") {
            fs::write(root.join(format!("{}.dump", below.display())), dump(&bytes)).expect("written");
        } else if below != Path::new("lock") {
            fs::write(root.join(below), bytes).expect("written");
        }
    }
    fs::write(root.join("MANIFEST"), manifest_of_kept(&made.messages)).expect("written");
}
