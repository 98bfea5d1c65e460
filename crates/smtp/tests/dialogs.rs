//! Plays every file of `dialogs/` to the state machine: whole, octet by octet, and cut at random.

use std::path::Path;

use smtp::dialog::{Dialog, Step, fits};
use smtp::rehearsal::Rehearsal;

/// How input is cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Whole,
    Octets,
    Random(u8),
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, max: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % max
    }
}

fn feed(rehearsal: &mut Rehearsal, input: &[u8], cut: Cut, random: &mut Random) {
    let mut rest = input;
    while !rest.is_empty() {
        let octets = match cut {
            Cut::Whole => rest.len(),
            Cut::Octets => 1,
            Cut::Random(_) => 1 + random.below(rest.len().min(40)),
        };
        let (piece, after) = rest.split_at(octets);
        rehearsal.feed(piece);
        rest = after;
    }
}

struct Player {
    rehearsal: Rehearsal,
    greeted: bool,
    pending: Vec<u8>,
    cut: Cut,
    random: Random,
}

impl Player {
    /// Sends what waits, so that neighbouring lines go in one piece.
    fn flush(&mut self) {
        if !self.greeted && self.pending.is_empty() {
            self.rehearsal.greet();
            self.greeted = true;
        }
        let input = std::mem::take(&mut self.pending);
        feed(&mut self.rehearsal, &input, self.cut, &mut self.random);
    }

    fn play(&mut self, step: &Step, said: &mut Vec<String>) -> Result<(), String> {
        if let Step::Send(bytes) = step {
            if !self.greeted {
                self.flush();
            }
            if self.pending.is_empty() && !said.is_empty() {
                return Err(format!("not expected: {said:?}"));
            }
            self.pending.extend_from_slice(bytes);
            return Ok(());
        }
        if *step == Step::Pause {
            self.greeted = true;
            return Ok(());
        }
        self.flush();
        let take = |rehearsal: &mut Rehearsal, said: &mut Vec<String>| {
            let text = String::from_utf8(rehearsal.take_said()).expect("replies are UTF-8");
            said.extend(text.split_terminator("\r\n").map(str::to_owned));
        };
        take(&mut self.rehearsal, said);
        match step {
            Step::Expect(pattern) => {
                let line = if said.is_empty() { "nothing".to_owned() } else { said.remove(0) };
                return if fits(pattern, &line) { Ok(()) } else { Err(format!("the server said: {line}")) };
            }
            Step::Wait(time) => self.rehearsal.wait(*time),
            Step::Tls => {
                assert!(self.rehearsal.wants_tls, "no handshake is due");
                self.rehearsal.tls();
            }
            Step::Closed if !self.rehearsal.closed => return Err("the connection is open".to_owned()),
            Step::Stored(count) if self.rehearsal.stored.len() != *count => {
                return Err(format!("{} are stored", self.rehearsal.stored.len()));
            }
            Step::Content(content) => {
                let last = self.rehearsal.stored.last().map(|stored| stored.content.as_slice()).unwrap_or_default();
                if last != content {
                    return Err(format!("stored is: {}", last.escape_ascii()));
                }
            }
            Step::TrustXclient => self.rehearsal.session.trust_xclient(),
            Step::ShutDown => self.rehearsal.shut_down(),
            Step::Note(text) if !format!("{:?}", self.rehearsal.notes).contains(text) => {
                return Err(format!("noted is: {:?}", self.rehearsal.notes));
            }
            _ => {}
        }
        take(&mut self.rehearsal, said);
        Ok(())
    }
}

fn play(dialog: &Dialog, cut: Cut) -> Result<(), String> {
    let seed = if let Cut::Random(seed) = cut { u64::from(seed) } else { 0 };
    let mut player = Player {
        rehearsal: Rehearsal::new(dialog.settings()?, dialog.clone()),
        greeted: false,
        pending: Vec::new(),
        cut,
        random: Random(seed),
    };
    let mut said = Vec::new();
    for (number, step) in &dialog.steps {
        player.play(step, &mut said).map_err(|why| format!("line {number}, {cut:?}: {step:?}: {why}"))?;
    }
    player.flush();
    said.push(String::from_utf8_lossy(&player.rehearsal.take_said()).into_owned());
    let rest = said.concat();
    if rest.is_empty() { Ok(()) } else { Err(format!("{cut:?}: at the end the server said: {rest}")) }
}

#[test]
fn dialogs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 40, "only {} dialogs are there", files.len());
    let mut failures = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let cuts = [Cut::Whole, Cut::Octets].into_iter().chain((0..10).map(Cut::Random));
        let result = Dialog::parse(&text).and_then(|dialog| cuts.clone().try_for_each(|cut| play(&dialog, cut)));
        if let Err(why) = result {
            failures.push(format!("{name}: {why}"));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// The player notices a wrong reply, a missing one and one too many.
#[test]
fn wrong_dialogs_fail() {
    let begin = "S: 220 *\nC: NOOP\n";
    for (text, good) in [
        ("S: 250 2.0.0 OK", true),
        ("S: 251 2.0.0 OK", false),
        ("S: 250 2.0.0 OK\nS: 250 *", false),
        ("C: QUIT\nS: 221 *", false),
        ("closed", false),
        ("stored 1", false),
        ("content x", false),
        ("machine note Limit", false),
        ("", false),
    ] {
        let dialog = Dialog::parse(&format!("{begin}{text}")).unwrap();
        assert_eq!(play(&dialog, Cut::Whole).is_ok(), good, "{text}");
    }
}
