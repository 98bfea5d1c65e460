//! One body per reader of foreign bytes: feed it anything, and it asserts what must hold for everything.
//!
//! The test `fuzz_bodies` drives them with mutated seeds in every run; a fuzzer's targets call the same functions.
//! Asserted everywhere: no panic, the same transcript and the same messages however the input is cut, replies that are
//! whole lines without control characters. For content there is a second reader, written for the eye and not for speed.

use std::time::Duration;

use crate::client;
use crate::client_rehearsal::{ClientRehearsal, Job};
use crate::dialog::Dialog;
use crate::rehearsal::{Rehearsal, Stored};
use crate::server::{BareNewline, Dialect, Settings};

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 6] =
    [("command", command), ("session", session), ("data", data), ("bdat", bdat), ("auth", auth), ("client", client)];

/// The refusals of the driver.
const RULES: &str = "refuse sender bad* 550 5.7.1 no\nclose sender close* 421 4.7.0 bye\nrefuse recipient no* 550 5.1.1 no\n\
    refuse recipient later* 451 4.7.1 later\nrefuse data nodata* 452 4.3.1 full\nrefuse message full* 452 4.2.2 full\n\
    refuse helo evil* 550 5.7.1 no\nuser tim secret";

const BEGIN: &[u8] = b"EHLO a.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\n";

fn rehearsal(settings: &Settings) -> Rehearsal {
    let rules = Dialog::parse(RULES).expect("the rules above are rules");
    let mut rehearsal = Rehearsal::new(settings.clone(), rules);
    rehearsal.greet();
    rehearsal
}

fn settings(bits: u8) -> Settings {
    let mut settings = Settings::new("mx.test");
    if bits & 1 != 0 {
        settings.bare_newline = BareNewline::Normalize;
    }
    settings.dialect = match bits >> 1 & 3 {
        0 | 1 => Dialect::Smtp,
        2 => Dialect::Lmtp,
        _ => Dialect::Stdin,
    };
    settings.verify = bits & 8 != 0;
    settings.auth.mechanisms = vec!["PLAIN".into(), "LOGIN".into()];
    settings.auth.without_tls = bits & 16 != 0;
    if bits & 32 != 0 {
        let limits = &mut settings.limits;
        limits.message_bytes = 100;
        limits.recipients = 2;
        limits.command_line_bytes = 48;
        limits.auth_line_bytes = 64;
        limits.content_line_bytes = 40;
        limits.header_fields = 2;
        limits.header_bytes = 60;
        limits.hops = 2;
        limits.errors = 5;
        limits.refused_recipients = 3;
        limits.idle_commands = 5;
        limits.transactions = 3;
        limits.content_piece_bytes = 16;
    }
    settings
}

/// Plays `input` whole, octet by octet and in growing pieces, and returns the first play.
fn in_pieces(settings: &Settings, input: &[u8]) -> Rehearsal {
    let mut whole = rehearsal(settings);
    whole.feed(input);
    check_replies(&whole.said);
    let longest = settings.limits.content_piece_bytes.saturating_mul(2).saturating_add(64);
    assert!(whole.waited <= longest, "{} octets waited", whole.waited);
    for first in [1, 2, 5] {
        let mut cut = rehearsal(settings);
        let mut rest = input;
        let mut size = first;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            cut.feed(piece);
            rest = after;
            // Octet by octet, and two kinds of growing pieces.
            size = if first == 1 { 1 } else { size % 23 + first };
        }
        let (said, wanted) = (cut.said.escape_ascii().to_string(), whole.said.escape_ascii().to_string());
        assert_eq!(said, wanted, "in pieces from {first}");
        assert_eq!(cut.stored, whole.stored, "in pieces from {first}");
        assert_eq!(cut.session.transaction(), whole.session.transaction());
        assert_eq!(format!("{:?}", cut.notes), format!("{:?}", whole.notes));
    }
    whole
}

/// Replies are lines of printable text with a code, at most 512 octets long.
fn check_replies(said: &[u8]) {
    let text = str::from_utf8(said).expect("replies are UTF-8");
    assert!(text.is_empty() || text.ends_with("\r\n"), "{text:?}");
    for line in text.split_terminator("\r\n") {
        assert!(!line.contains(char::is_control) && line.len() <= 510, "{line:?}");
        let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
        assert!(code.is_some_and(|code| (200..600).contains(&code)), "{line:?}");
        assert!(matches!(line.as_bytes().get(3), Some(b' ' | b'-')), "{line:?}");
    }
}

/// One command line in each state of a transaction.
pub fn command(data: &[u8]) {
    let settings = settings(data.first().map_or(0, |byte| byte & 0x18));
    for begin in [&b""[..], b"EHLO a.test\r\n", BEGIN] {
        let line: Vec<u8> = data.iter().copied().filter(|byte| *byte != b'\n').collect();
        let seen = in_pieces(&settings, &[begin, &line, b"\r\n"].concat());
        // BDAT may make a message of the line end.
        assert!(seen.stored.iter().all(|stored| stored.content.len() <= 2));
    }
}

/// A whole conversation; the first octet chooses the settings.
pub fn session(data: &[u8]) {
    let (bits, input) = data.split_first().unwrap_or((&0, &[]));
    let seen = in_pieces(&settings(*bits), input);
    for Stored { recipients, content, .. } in &seen.stored {
        assert!(!recipients.is_empty() && content.len() <= 2 * input.len());
    }
}

/// Feeds the content behind DATA; the length chooses how bare line ends are treated.
pub fn data(data: &[u8]) {
    for bits in [0, 1] {
        let settings = settings(bits);
        let end = if data.starts_with(b".\r\n") {
            Some(0)
        } else {
            memchr::memmem::find(data, b"\r\n.\r\n").map(|at| at + 2)
        };
        let text = data.get(..end.map_or(data.len(), |end| end + 3)).unwrap_or(data);
        let seen = in_pieces(&settings, &[BEGIN, b"DATA\r\n", text].concat());
        let Some(end) = end else {
            assert!(seen.said.ends_with(b"by itself\r\n"), "an answer before the end");
            assert!(seen.stored.is_empty());
            continue;
        };
        let wanted = slow_text(data.get(..end).unwrap_or(data), settings.bare_newline, true);
        let stored = seen.stored.first().map(|stored| stored.content.clone());
        // A test of the limits is elsewhere; here only their names are known.
        if seen.notes.iter().all(|note| !matches!(note, crate::server::Note::Limit(_))) {
            assert_eq!(stored, wanted);
        }
        assert!(seen.session.transaction().is_none());
    }
}

/// Chunks: an octet is the length of the next one; the first octet chooses the settings.
pub fn bdat(data: &[u8]) {
    for bits in [0, 1] {
        let settings = settings(bits);
        let mut input = BEGIN.to_vec();
        let mut content = Vec::new();
        let mut chunks = 0;
        let mut rest = data;
        while let Some((octets, after)) = rest.split_first() {
            let (chunk, after) = after.split_at(usize::from(*octets % 32).min(after.len()));
            let last = if after.is_empty() { " LAST" } else { "" };
            input.extend_from_slice(format!("BDAT {}{last}\r\n", chunk.len()).as_bytes());
            input.extend_from_slice(chunk);
            content.extend_from_slice(chunk);
            chunks += 1;
            rest = after;
        }
        input.extend_from_slice(b"NOOP\r\n");
        let seen = in_pieces(&settings, &input);
        if seen.closed || seen.notes.iter().any(|note| matches!(note, crate::server::Note::Limit(_))) {
            continue;
        }
        let wanted = slow_text(&content, settings.bare_newline, false).filter(|_| chunks > 0);
        assert_eq!(seen.stored.first().map(|stored| stored.content.clone()), wanted);
        let said = String::from_utf8_lossy(&seen.said).into_owned();
        // Behind the greeting and the three commands: one reply for each chunk, one for NOOP.
        let replies = said.lines().filter(|line| line.as_bytes().get(3) == Some(&b' ')).count();
        assert_eq!(replies, 4 + chunks + 1, "{said}");
        assert!(said.ends_with("250 2.0.0 OK\r\n"));
    }
}

/// Lines of an AUTH exchange.
pub fn auth(data: &[u8]) {
    let mut settings = settings(16);
    settings.limits.auth_line_bytes = 64;
    for begin in [&b"AUTH PLAIN "[..], b"AUTH LOGIN\r\n", b"AUTH PLAIN\r\n"] {
        let seen = in_pieces(&settings, &[b"EHLO a.test\r\n", begin, data, b"\r\n"].concat());
        assert!(seen.session.identity().is_none_or(|identity| identity == "tim"));
        // Behind other commands it is a word like any.
        let is_exchange = !data.contains(&b' ');
        let secret = format!("{:?}", seen.notes).contains("AHRpbQBzZWNyZXQ=");
        assert!(!(is_exchange && secret), "a secret in a note");
    }
}

/// Feeds replies of a server to a client; the first octet chooses the settings. After each line the client carries out
/// its steps. A line of one letter is an event: `t` a time limit, `e` the end of the connection, `r` room for some
/// octets, `q` QUIT.
pub fn client(data: &[u8]) {
    let (bits, input) = data.split_first().unwrap_or((&0, &[]));
    let whole = client_in_pieces(*bits, input, usize::MAX);
    for size in [1, 3] {
        let cut = client_in_pieces(*bits, input, size);
        assert_eq!(cut.done, whole.done, "in pieces of {size}");
        assert_eq!(cut.session.closing(), whole.session.closing(), "in pieces of {size}");
        assert_eq!(cut.wire.escape_ascii().to_string(), whole.wire.escape_ascii().to_string(), "in pieces of {size}");
    }
}

fn client_in_pieces(bits: u8, input: &[u8], size: usize) -> ClientRehearsal {
    let mut settings = client::ClientSettings::new("client.test");
    if bits & 1 != 0 {
        settings.dialect = client::ClientDialect::Lmtp;
    }
    settings.pipelining = bits & 2 == 0;
    settings.chunking = bits & 4 == 0;
    settings.tls = if bits & 8 == 0 { client::TlsUse::IfOffered } else { client::TlsUse::Required };
    settings.limits.content_ahead_octets = if bits & 16 == 0 { 1_000 } else { 10 };
    settings.limits.reply_lines = 5;
    settings.limits.reply_line_octets = 100;
    settings.limits.reply_octets = 1_000;
    let mut rehearsal = ClientRehearsal::new(settings);
    for (token, recipients, content) in [(1, 2, "hi\r\n"), (2, 1, ".\r\n.x"), (3, 3, "1234567890123\r\n"), (4, 1, "")] {
        let recipient = mail::Recipient::new("c@d.test".parse().expect("an address"));
        let transaction = client::ClientTransaction {
            token,
            sender: "<a@b.test>".parse().expect("a path"),
            params: mail::MailParams::default(),
            recipients: vec![recipient; recipients].into(),
            content_bytes: 0,
        };
        rehearsal.jobs.push_back(Job { transaction, content: content.as_bytes().into() });
    }
    rehearsal.pump();
    for line in input.split_inclusive(|octet| *octet == b'\n') {
        match line {
            b"t\n" => rehearsal.wait(rehearsal.session.deadline().min(Duration::from_secs(3_600))),
            b"e\n" => rehearsal.session.end_of_input(rehearsal.now),
            b"r\n" => rehearsal.room = 70,
            b"R\n" => rehearsal.room = usize::MAX,
            b"q\n" => rehearsal.session.quit(rehearsal.now),
            _ => line.chunks(size.min(line.len())).for_each(|piece| rehearsal.session.receive(piece, rehearsal.now)),
        }
        rehearsal.pump();
        if rehearsal.wants_tls && !rehearsal.closed {
            rehearsal.tls(true);
        }
    }
    rehearsal.session.end_of_input(rehearsal.now);
    rehearsal.pump();
    assert!(rehearsal.closed && rehearsal.session.in_flight() == 0);
    // Each delivered recipient has a reply of its own behind content that was sent.
    let delivered = rehearsal.done.iter().filter(|done| done.outcomes.iter().any(client::Outcome::is_delivered));
    let ends = [&b"BDAT "[..], b".\r\n"].map(|end| memchr::memmem::find_iter(&rehearsal.wire, end).count());
    assert!(delivered.count() <= ends.iter().sum());
    rehearsal
}

/// The content as it is stored, read by looking around at each octet; `None` when it is to be refused.
fn slow_text(text: &[u8], bare_newline: BareNewline, has_dots: bool) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let at = |at: usize| text.get(at).copied();
    for (here, byte) in text.iter().copied().enumerate() {
        let before = here.checked_sub(1).and_then(at);
        let line_start = here == 0 || (before == Some(b'\n') && here.checked_sub(2).and_then(at) == Some(b'\r'));
        let is_bare = (byte == b'\r' && at(here + 1) != Some(b'\n')) || (byte == b'\n' && before != Some(b'\r'));
        if is_bare && bare_newline == BareNewline::Reject || byte == 0 {
            return None;
        }
        if is_bare {
            out.extend_from_slice(b"\r\n");
        } else if !(has_dots && byte == b'.' && line_start) {
            out.push(byte);
        }
    }
    Some(out)
}
