//! Plays every file of `dialogs/` to the state machine: whole, octet by octet, and cut at random.

use crate::folder::{Cut, Random, play_all};
use smtp::dialog::{Dialog, DialogStep, fits};
use smtp::rehearsal::Rehearsal;

fn feed(rehearsal: &mut Rehearsal, input: &[u8], cut: Cut, random: &mut Random) {
    let mut rest = input;
    while !rest.is_empty() {
        let octets = cut.take(rest.len(), random);
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

    fn play(&mut self, step: &DialogStep, said: &mut Vec<String>) -> Result<(), String> {
        if let DialogStep::Send(bytes) = step {
            if !self.greeted {
                self.flush();
            }
            if self.pending.is_empty() && !said.is_empty() {
                return Err(format!("not expected: {said:?}"));
            }
            self.pending.extend_from_slice(bytes);
            return Ok(());
        }
        if *step == DialogStep::Pause {
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
            DialogStep::Expect(pattern) => {
                let line = if said.is_empty() { "nothing".to_owned() } else { said.remove(0) };
                return if fits(pattern, &line) { Ok(()) } else { Err(format!("the server said: {line}")) };
            }
            DialogStep::Wait(time) => self.rehearsal.wait(*time),
            DialogStep::Tls => {
                assert!(self.rehearsal.wants_tls, "no handshake is due");
                self.rehearsal.tls();
            }
            DialogStep::Closed if !self.rehearsal.closed => return Err("the connection is open".to_owned()),
            DialogStep::Stored(count) if self.rehearsal.stored.len() != *count => {
                return Err(format!("{} are stored", self.rehearsal.stored.len()));
            }
            DialogStep::Content(content) => {
                let last = self.rehearsal.stored.last().map(|stored| stored.content.as_slice()).unwrap_or_default();
                if last != content {
                    return Err(format!("stored is: {}", last.escape_ascii()));
                }
            }
            DialogStep::TrustXclient => self.rehearsal.session.trust_xclient(),
            DialogStep::TrustClient => self.rehearsal.session.trust_client(true),
            DialogStep::ShutDown => self.rehearsal.shut_down(),
            DialogStep::Note(text) if !format!("{:?}", self.rehearsal.notes).contains(text) => {
                return Err(format!("noted is: {:?}", self.rehearsal.notes));
            }
            _ => {}
        }
        take(&mut self.rehearsal, said);
        Ok(())
    }
}

fn play(dialog: &Dialog, cut: Cut) -> Result<(), String> {
    let mut player = Player {
        rehearsal: Rehearsal::new(dialog.settings()?, dialog.clone()),
        greeted: false,
        pending: Vec::new(),
        cut,
        random: cut.random(),
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
    play_all("dialogs", 40, 10, |text, cut| play(&Dialog::parse(text)?, cut));
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
