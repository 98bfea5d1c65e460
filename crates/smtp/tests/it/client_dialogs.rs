//! Plays every file of `client_dialogs/` to a client session: replies whole, octet by octet, and cut at random, content
//! the same.
//!
//! The lines are those of `smtp::dialog` seen from the other side, and some of their own:
//!
//! ```text
//! set tls = required                       dialect, tls, login, pipelining, chunking, limits.NAME
//! job 1 <a@b> c@d,e@f BODY=8BITMIME        a message to begin when the session is ready: token, sender, recipients
//! content Subject: x\r\n\r\nhi\r\n         the content of the last job; octets are repeated by `content*1000 x`
//! S: 250 2.1.5 OK                          the server says this line; neighbouring lines come without a pause
//! S\: 250 x\n                              the same, after the escapes are read, without a line end
//! C: MAIL FROM:<a@b>                       the client has said this line; nothing else may wait when the server speaks
//! C\: hi\r\n                               the same, after the escapes are read
//! +5s                                      time passes
//! tls                                      the handshake; `tls unverified`: nobody vouches for the certificate
//! eof                                      the server closes
//! quit                                     the driver says quit
//! abort                                    the driver cannot read the content
//! withdraw                                 the driver takes back what the server cannot have
//! room 100                                 the network takes so many octets more; `room all`
//! done 1 End 250 *; Rcpt 550 *             what became of the recipients, in the order in which transactions end
//! open 2                                   so many transactions are open
//! misfit 1 EightBit                        a message that may not be sent here
//! closed Idle 421 *                        the session has closed: stage, reply or loss or `-`, `orderly`
//! ```

use crate::folder::{Cut, Random, play_all};
use smtp::client::{Answer, ClientDialect, ClientSettings, Login, Mechanism, Outcome, Security, TlsUse};
use smtp::client_rehearsal::{ClientRehearsal, Job};
use smtp::dialog::{Dialog, DialogStep, duration, fits, unescape};

struct Player {
    rehearsal: ClientRehearsal,
    jobs: Vec<Job>,
    pending: Vec<u8>,
    cut: Cut,
    random: Random,
}

fn settings(dialog: &Dialog) -> Result<ClientSettings, String> {
    let mut settings = ClientSettings::new("client.test");
    for (line, name, value) in &dialog.sets {
        let limits = &mut settings.limits;
        let time = duration(value);
        let number = value.parse::<usize>();
        let known = match (name.as_str(), value.as_str()) {
            ("dialect", "lmtp") => {
                settings.dialect = ClientDialect::Lmtp;
                true
            }
            ("tls", "never" | "required") => {
                settings.tls = if value == "never" { TlsUse::Never } else { TlsUse::Required };
                true
            }
            ("pipelining", "no") => {
                settings.pipelining = false;
                true
            }
            ("chunking", "no") => {
                settings.chunking = false;
                true
            }
            // set login = tim:secret MECHANISM MECHANISM in-clear unverified not-required
            ("login", _) => {
                let mut words = value.split(' ');
                let (user, password) =
                    words.next().and_then(|word| word.split_once(':')).ok_or("login = USER:PASSWORD")?;
                let words: Vec<&str> = words.collect();
                settings.login = Some(std::sync::Arc::new(Login {
                    user: user.into(),
                    on_behalf_of: None,
                    password: Box::<[u8]>::from(password.as_bytes()).into(),
                    mechanisms: words.iter().filter_map(|word| Mechanism::parse(word)).collect(),
                    password_needs: match () {
                        () if words.contains(&"in-clear") => Security::Clear,
                        () if words.contains(&"unverified") => Security::Encrypted,
                        () => Security::Verified,
                    },
                    is_required: !words.contains(&"not-required"),
                }));
                true
            }
            ("limits.reply_lines", _) => number.map(|n| limits.reply_lines = n).is_ok(),
            ("limits.reply_line_octets", _) => number.map(|n| limits.reply_line_octets = n).is_ok(),
            ("limits.reply_octets", _) => number.map(|n| limits.reply_octets = n).is_ok(),
            ("limits.transactions_ahead", _) => number.map(|n| limits.transactions_ahead = n).is_ok(),
            ("limits.content_ahead_octets", _) => number.map(|n| limits.content_ahead_octets = n).is_ok(),
            ("limits.block", _) => time.map(|time| limits.block = time).is_ok(),
            ("limits.hurry", _) => time.map(|time| limits.hurry = time).is_ok(),
            ("limits.transaction", _) => time.map(|time| limits.transaction = time).is_ok(),
            _ => false,
        };
        if !known {
            return Err(format!("line {line}: set {name} = {value} is not known"));
        }
    }
    Ok(settings)
}

fn job(rest: &str) -> Result<Job, String> {
    let mut words = rest.splitn(4, ' ');
    let (Some(token), Some(sender), Some(recipients)) = (words.next(), words.next(), words.next()) else {
        return Err("write: job TOKEN <SENDER> RECIPIENT,RECIPIENT [PARAMETERS]".to_owned());
    };
    let recipients = recipients.split(',').map(|address| Ok(mail::Recipient::new(address.parse()?)));
    let recipients: Result<Vec<_>, mail::AddressError> = recipients.collect();
    let transaction = smtp::client::ClientTransaction {
        token: token.parse().map_err(|_| "the token is a number")?,
        sender: sender.parse().map_err(|e: mail::AddressError| e.to_string())?,
        params: words.next().unwrap_or_default().parse().map_err(|e: mail::ParamError| e.to_string())?,
        recipients: recipients.map_err(|e| e.to_string())?.into(),
        content_bytes: 0,
    };
    Ok(Job { transaction, content: bytes::Bytes::from_static(b"hi\r\n") })
}

fn outcome(outcome: &Outcome) -> String {
    let answer = match &outcome.answer {
        Answer::Reply(reply) => reply.to_string(),
        Answer::Lost(loss) => format!("{loss:?}"),
        Answer::NotTried => return "NotTried".to_owned(),
    };
    format!("{:?} {answer}", outcome.stage)
}

impl Player {
    fn new(dialog: &Dialog, cut: Cut) -> Result<Self, String> {
        let mut rehearsal = ClientRehearsal::new(settings(dialog)?);
        let mut random = cut.random();
        rehearsal.piece = match cut {
            Cut::Whole => usize::MAX,
            Cut::Octets => 1,
            Cut::Random(_) => 1 + random.below(20),
        };
        rehearsal.pump();
        Ok(Self { rehearsal, jobs: Vec::new(), pending: Vec::new(), cut, random })
    }

    /// Gives the client what the server has said, in pieces; it acts when all of it is there.
    fn flush(&mut self) {
        let input = std::mem::take(&mut self.pending);
        let mut rest = &input[..];
        while !rest.is_empty() {
            let octets = self.cut.take(rest.len(), &mut self.random);
            let (piece, after) = rest.split_at(octets);
            self.rehearsal.session.receive(piece, self.rehearsal.now);
            rest = after;
        }
        self.rehearsal.jobs.extend(self.jobs.drain(..));
        self.rehearsal.pump();
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        // The parser of the server's dialogs takes input of one side for output of the other.
        let step = match word {
            "" | "#" | "set" => return Ok(()),
            "tls" => return self.handshake(rest != "unverified"),
            "S:" | "C:" => parse(line)?,
            "S\\:" | "C\\:" => DialogStep::Send(unescape(rest)?),
            _ if line.starts_with('+') => parse(line)?,
            _ => return self.own(word, rest),
        };
        match step {
            DialogStep::Expect(text) => return self.say(format!("{text}\r\n").as_bytes()),
            DialogStep::Send(bytes) if word == "S\\:" => return self.say(&bytes),
            _ => self.flush(),
        }
        match step {
            DialogStep::Send(bytes) => {
                let wire = self.rehearsal.take_wire();
                let Some(after) = wire.strip_prefix(&bytes[..]) else {
                    return Err(format!("the client says: {}", wire.escape_ascii()));
                };
                self.rehearsal.wire = after.to_vec();
                Ok(())
            }
            DialogStep::Wait(time) => {
                self.silent()?;
                self.rehearsal.wait(time);
                Ok(())
            }
            step => Err(format!("{step:?} is for servers")),
        }
    }

    fn handshake(&mut self, is_verified: bool) -> Result<(), String> {
        self.flush();
        self.silent()?;
        if !self.rehearsal.wants_tls {
            return Err("no handshake is wanted".to_owned());
        }
        self.rehearsal.tls(is_verified);
        Ok(())
    }

    fn silent(&self) -> Result<(), String> {
        let wire = &self.rehearsal.wire;
        if wire.is_empty() { Ok(()) } else { Err(format!("the client has said: {}", wire.escape_ascii())) }
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.pending.extend_from_slice(bytes);
        self.silent()
    }

    fn own(&mut self, word: &str, rest: &str) -> Result<(), String> {
        if word == "job" {
            self.jobs.push(job(rest)?);
            return Ok(());
        }
        if word.starts_with("content") {
            let times = word.strip_prefix("content*").map_or(Ok(1), str::parse::<usize>).map_err(|e| e.to_string())?;
            self.jobs.last_mut().ok_or("no job")?.content = unescape(rest)?.repeat(times).into();
            return Ok(());
        }
        self.flush();
        let now = self.rehearsal.now;
        match word {
            "eof" => self.rehearsal.session.end_of_input(now),
            "quit" => self.rehearsal.session.quit(now),
            "abort" => self.rehearsal.aborts = true,
            "withdraw" => self.rehearsal.session.withdraw(),
            "room" => self.rehearsal.room = rest.parse().unwrap_or(usize::MAX),
            "done" => {
                if self.rehearsal.done.is_empty() {
                    return Err("nothing is done".to_owned());
                }
                let done = self.rehearsal.done.remove(0);
                let outcomes: Vec<String> = done.outcomes.iter().map(outcome).collect();
                let stopped = if done.stopped_content { " stopped" } else { "" };
                return same(rest, &format!("{}{stopped} {}", done.token, outcomes.join("; ")));
            }
            "open" => return same(rest, &self.rehearsal.session.in_flight().to_string()),
            "misfit" => {
                let (token, misfit) = self.rehearsal.misfits.pop().ok_or("everything fits")?;
                return same(rest, &format!("{token} {misfit:?}"));
            }
            "closed" => {
                let closing = self.rehearsal.session.closing().filter(|_| self.rehearsal.closed).ok_or("not closed")?;
                let mut text = format!("{:?}", closing.stage);
                text += &closing.reply.as_ref().map_or_else(String::new, |reply| format!(" {reply}"));
                text += &closing.loss.map_or_else(String::new, |loss| format!(" {loss:?}"));
                text += if closing.orderly { " orderly" } else { "" };
                return same(rest, &text);
            }
            _ => return Err("this is no line of a dialog".to_owned()),
        }
        self.rehearsal.pump();
        Ok(())
    }
}

fn parse(line: &str) -> Result<DialogStep, String> {
    Dialog::parse(line)?.steps.pop().map(|(_, step)| step).ok_or_else(|| "nothing".to_owned())
}

fn same(wanted: &str, seen: &str) -> Result<(), String> {
    if fits(wanted, seen) { Ok(()) } else { Err(format!("it is: {seen}")) }
}

fn play(text: &str, cut: Cut) -> Result<(), String> {
    let sets: Vec<&str> = text.lines().map(|line| if line.starts_with("set ") { line } else { "" }).collect();
    let mut player = Player::new(&Dialog::parse(&sets.join("\n"))?, cut)?;
    for (at, line) in text.lines().enumerate() {
        player.line(line).map_err(|why| format!("line {}, {cut:?}: {line}: {why}", at + 1))?;
    }
    player.flush();
    player.silent().map_err(|why| format!("{cut:?}: at the end {why}"))?;
    let left = &player.rehearsal.done;
    if left.is_empty() { Ok(()) } else { Err(format!("{cut:?}: at the end, also done: {left:?}")) }
}

#[test]
fn dialogs() {
    play_all("client_dialogs", 30, 6, play);
}

/// The player notices a fault.
#[test]
fn wrong_dialogs_fail() {
    let begin = "S: 220 mx.test\nC: EHLO client.test\nS: 250 mx.test\njob 1 <a@b.test> c@d.test\nC: MAIL FROM:<a@b.test>\nS: 550 no\n";
    for (text, good) in [
        ("done 1 Mail 550 no", true),
        ("done 1 Rcpt 550 no", false),
        ("done 1 Mail 550 yes", false),
        ("", false),
        ("done 1 Mail 550 no\nC: RSET", false),
        ("done 1 Mail 550 no\nclosed *", false),
        ("done 1 Mail 550 no\nquit\nS: 221 x", false),
        ("done 1 Mail 550 no\nquit\nC: QUIT\nS: 221 x\nclosed Quit orderly", true),
    ] {
        assert_eq!(play(&format!("{begin}{text}"), Cut::Whole).is_ok(), good, "{text}");
    }
}
