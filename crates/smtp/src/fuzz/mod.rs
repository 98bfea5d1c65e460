//! One body per reader of foreign bytes: feed it anything, and it asserts what must hold for everything.
//!
//! The test `fuzz_bodies` drives them with mutated seeds in every run; a fuzzer's targets call the same functions.
//! Asserted everywhere: no panic, the same transcript and the same messages however the input is cut, replies that are
//! whole lines without control characters. For content there is a second reader, written for the eye and not for speed.

mod client;
pub mod seeds;

pub use client::client;

use crate::dialog::Dialog;
use crate::rehearsal::{Rehearsal, Stored};
use crate::server::{BareNewline, Dialect, Forgiving, NOTES_MAX, Settings};
use mail::base64;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 6] =
    [("command", command), ("session", session), ("data", data), ("bdat", bdat), ("auth", auth), ("client", client)];

/// The refusals of the driver.
const RULES: &str = "refuse sender bad* 550 5.7.1 no\nclose sender close* 421 4.7.0 bye\nrefuse recipient no* 550 5.1.1 no\n\
    refuse recipient later* 451 4.7.1 later\nrefuse data nodata* 452 4.3.1 full\nrefuse message full* 452 4.2.2 full\n\
    refuse helo evil* 550 5.7.1 no\nuser tim secret";

/// Bit of the first octet of a conversation: XCLIENT is trusted, and STARTTLS is offered.
const FRONT_END: u8 = 64;
/// Bit of the first octet of a conversation: the client is one of our own.
const OWN_CLIENT: u8 = 128;

/// The login of the rules, as PLAIN sends it.
const SECRET: &[u8] = b"AHRpbQBzZWNyZXQ=";

const BEGIN: &[u8] = b"EHLO a.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\n";

fn rehearsal(settings: &Settings, bits: u8) -> Rehearsal {
    let rules = Dialog::parse(RULES).expect("the rules above are rules");
    let mut rehearsal = Rehearsal::new(settings.clone(), rules);
    if bits & FRONT_END != 0 {
        rehearsal.session.trust_xclient();
    }
    rehearsal.session.trust_client(bits & OWN_CLIENT != 0);
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
    settings.starttls = bits & FRONT_END != 0;
    if bits & OWN_CLIENT != 0 {
        settings.bare_newline = BareNewline::Own;
        settings.forgiving = Forgiving::Own;
    }
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
///
/// A handshake follows a command STARTTLS that is accepted; the play gives no octet beyond that line before it.
fn in_pieces(settings: &Settings, bits: u8, input: &[u8]) -> Rehearsal {
    let whole = play(settings, bits, input, usize::MAX);
    check_replies(&whole.said);
    let longest = settings.limits.content_piece_bytes.saturating_mul(2).saturating_add(64);
    assert!(whole.waited <= longest, "{} octets waited", whole.waited);
    for first in [1, 2, 5] {
        let cut = play(settings, bits, input, first);
        let (said, wanted) = (cut.said.escape_ascii().to_string(), whole.said.escape_ascii().to_string());
        assert_eq!(said, wanted, "in pieces from {first}");
        assert_eq!(cut.stored, whole.stored, "in pieces from {first}");
        assert_eq!(cut.session.transaction(), whole.session.transaction());
        // A session that reads much at once drops the notes beyond its limit; in pieces it keeps them.
        if whole.notes.len() < NOTES_MAX {
            assert_eq!(format!("{:?}", cut.notes), format!("{:?}", whole.notes));
        }
    }
    whole
}

/// Plays `input` in pieces of which the first one has `first` octets.
fn play(settings: &Settings, bits: u8, input: &[u8], first: usize) -> Rehearsal {
    const STARTTLS: &[u8] = b"STARTTLS\r\n";
    let mut play = rehearsal(settings, bits);
    let mut rest = input;
    let mut size = first;
    while !rest.is_empty() {
        let stretch = memchr::memmem::find(rest, STARTTLS).map_or(rest.len(), |at| at + STARTTLS.len());
        let (mut stretch, after) = rest.split_at(stretch);
        rest = after;
        while !stretch.is_empty() {
            let (piece, behind) = stretch.split_at(size.min(stretch.len()));
            play.feed(piece);
            stretch = behind;
            // Octet by octet, and two kinds of growing pieces.
            size = if matches!(first, 1 | usize::MAX) { first } else { size % 23 + first };
        }
        if play.wants_tls {
            play.tls();
        }
    }
    play
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
    let bits = data.first().map_or(0, |byte| byte & 0x58);
    let settings = settings(bits);
    for begin in [&b""[..], b"EHLO a.test\r\n", BEGIN] {
        let line: Vec<u8> = data.iter().copied().filter(|byte| *byte != b'\n').collect();
        let seen = in_pieces(&settings, bits, &[begin, &line, b"\r\n"].concat());
        // BDAT may make a message of the line end.
        assert!(seen.stored.iter().all(|stored| stored.content.len() <= 2));
    }
}

/// A whole conversation; the first octet chooses the settings.
pub fn session(data: &[u8]) {
    let (bits, input) = data.split_first().unwrap_or((&0, &[]));
    let seen = in_pieces(&settings(*bits), *bits, input);
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
        let seen = in_pieces(&settings, 0, &[BEGIN, b"DATA\r\n", text].concat());
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
        let seen = in_pieces(&settings, 0, &input);
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
        let seen = in_pieces(&settings, 0, &[b"EHLO a.test\r\n", begin, data, b"\r\n"].concat());
        assert!(seen.session.identity().is_none_or(|identity| identity == "tim"));
        let is_told = memchr::memmem::find(format!("{:?}", seen.notes).as_bytes(), SECRET).is_some();
        let times = |octets: &[u8]| memchr::memmem::find_iter(octets, SECRET).count();
        let is_in_exchange_alone = times(data) == exchange(begin, data).map(times).sum::<usize>();
        assert!(!(is_in_exchange_alone && is_told), "a secret in a note");
    }
}

/// The lines that certainly belong to the exchange. In a command behind it, and behind a blank, the secret is a word
/// like any.
fn exchange<'a>(begin: &[u8], data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut lines = data.split(|octet| b"\r\n".contains(octet));
    let first = lines.next().filter(|line| !line.contains(&b' '));
    let is_asked_on = |line: &&[u8]| begin.ends_with(b"LOGIN\r\n") && line.len() < 60 && base64::decode(line).is_some();
    // The session reads a line up to CRLF.
    let is_whole = |line: &&[u8]| data.get(line.len()..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    let second = first.filter(is_asked_on).filter(is_whole).and_then(|_| lines.nth(1));
    first.into_iter().chain(second.filter(|line| !line.contains(&b' ')))
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
