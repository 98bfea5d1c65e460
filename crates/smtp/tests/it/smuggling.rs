//! Every published way to make one message look like two, and that the test would see it work.
//!
//! A carrier message has the sequence in its body, and behind it the commands and the content of a second message.
//! Where a server takes the sequence for the end of the data, it accepts a message that was not sent to it as one.

use smtp::dialog::Dialog;
use smtp::rehearsal::{Rehearsal, Stored};
use smtp::server::{BareNewline, Settings};

/// Name and octets.
const SEQUENCES: [(&str, &[u8]); 21] = [
    ("LF . LF", b"\n.\n"),
    ("CR . CR", b"\r.\r"),
    ("CR . LF", b"\r.\n"),
    ("LF . CR", b"\n.\r"),
    ("LF . CRLF", b"\n.\r\n"),
    ("CRLF . LF", b"\r\n.\n"),
    ("CR . CRLF", b"\r.\r\n"),
    ("CRLF . CR", b"\r\n.\r"),
    ("CRLF NUL . CRLF", b"\r\n\0.\r\n"),
    ("CRLF . NUL CRLF", b"\r\n.\0\r\n"),
    ("NUL LF . CRLF", b"\0\n.\r\n"),
    ("CR NUL LF . CRLF", b"\r\0\n.\r\n"),
    ("CRLF . CR CRLF", b"\r\n.\r\r\n"),
    ("CR CRLF . CR CRLF", b"\r\r\n.\r\r\n"),
    ("LF LF . CRLF", b"\n\n.\r\n"),
    ("CRLF . NUL LF", b"\r\n.\0\n"),
    ("CRLF SP . CRLF", b"\r\n .\r\n"),
    ("CRLF . SP CRLF", b"\r\n. \r\n"),
    ("NEL . NEL", b"\xc2\x85.\xc2\x85"),
    ("VT . VT", b"\x0b.\x0b"),
    ("CRLF .. CRLF", b"\r\n..\r\n"),
];

/// Each choice, and whether the client is one of our own.
const CHOICES: [(BareNewline, bool); 4] = [
    (BareNewline::Reject, false),
    (BareNewline::Own, false),
    (BareNewline::Own, true),
    (BareNewline::Normalize, false),
];

const BEFORE: &[u8] = b"Subject: carrier\r\n\r\nbefore";
const SMUGGLED: &[u8] =
    b"MAIL FROM:<smuggled@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nSubject: smuggled\r\n\r\nx\r\n.\r\n";

fn begin(bare_newline: BareNewline, is_own: bool) -> Rehearsal {
    let mut settings = Settings::new("mx.test");
    settings.bare_newline = bare_newline;
    let mut rehearsal = Rehearsal::new(settings, Dialog::parse("").unwrap());
    rehearsal.session.trust_client(is_own);
    rehearsal.greet();
    rehearsal.feed(b"EHLO a.test\r\nMAIL FROM:<carrier@b.test>\r\nRCPT TO:<c@d.test>\r\n");
    rehearsal.take_said();
    rehearsal
}

#[track_caller]
fn is_one(name: &str, stored: &[Stored], said: &[u8]) {
    let said = said.escape_ascii();
    assert!(stored.len() <= 1, "{name}: {} messages, {said}", stored.len());
    assert!(stored.iter().all(|stored| stored.sender == "<carrier@b.test>"), "{name}: {stored:?}");
}

// RFC 5321 §4.1.1.4 (test), RFC 5321 §2.3.8 (test)
#[test]
fn data_is_never_split() {
    for (bare_newline, is_own) in CHOICES {
        for (name, sequence) in SEQUENCES {
            for piece in [usize::MAX, 1, 2, 3] {
                let mut rehearsal = begin(bare_newline, is_own);
                let input = [b"DATA\r\n", BEFORE, sequence, SMUGGLED].concat();
                for octets in input.chunks(piece.min(input.len())) {
                    rehearsal.feed(octets);
                }
                is_one(name, &rehearsal.stored, &rehearsal.said);
                let finals =
                    rehearsal.said.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"354")).count();
                assert_eq!(finals, 1, "{name}: DATA was carried out twice");
                let is_dirty = sequence.contains(&0) || has_bare_newline(sequence);
                let normalizes = is_own || bare_newline == BareNewline::Normalize;
                let is_refused = sequence.contains(&0) || (is_dirty && !normalizes);
                assert_eq!(rehearsal.stored.is_empty(), is_refused, "{name}, {bare_newline:?}");
                // Stored content can be sent on without another check.
                for stored in &rehearsal.stored {
                    assert!(!has_bare_newline(&stored.content) && !stored.content.contains(&0), "{name}");
                    assert!(stored.content.ends_with(b"x\r\n"), "{name}: the true end is the last one");
                }
            }
        }
    }
}

// RFC 3030 §2 (test)
#[test]
fn chunks_are_never_split() {
    for (bare_newline, is_own) in CHOICES {
        for (name, sequence) in SEQUENCES {
            let mut rehearsal = begin(bare_newline, is_own);
            let content = [BEFORE, sequence, SMUGGLED].concat();
            rehearsal.feed(format!("BDAT {} LAST\r\n", content.len()).as_bytes());
            rehearsal.feed(&content);
            is_one(name, &rehearsal.stored, &rehearsal.said);
            assert_eq!(rehearsal.said.iter().filter(|byte| **byte == b'\n').count(), 1, "{name}");
        }
    }
}

/// A command line with the sequence in it never lets what follows be carried out.
#[test]
fn commands_are_never_split() {
    for (name, sequence) in SEQUENCES {
        let mut rehearsal = begin(BareNewline::Reject, false);
        rehearsal.feed(&[b"RSET\r\nNOOP ", sequence, SMUGGLED].concat());
        let is_newline = sequence.windows(2).any(|pair| pair == b"\r\n") && !has_bare_newline(sequence);
        assert!(is_newline || rehearsal.stored.is_empty(), "{name}");
    }
}

fn has_bare_newline(octets: &[u8]) -> bool {
    (0..octets.len()).any(|at| match octets[at] {
        b'\r' => octets.get(at + 1) != Some(&b'\n'),
        b'\n' => at == 0 || octets[at - 1] != b'\r',
        _ => false,
    })
}

/// The control: a reader that forgives what servers have forgiven splits nearly all of them, so the table would show
/// it.
#[test]
fn a_forgiving_reader_is_caught() {
    let split = SEQUENCES.iter().filter(|(_, sequence)| {
        let data = [BEFORE, sequence, SMUGGLED].concat();
        let text = String::from_utf8_lossy(&data).replace('\0', "").replace("\r\n", "\n").replace('\r', "\n");
        text.matches("\n.\n").count() > 1
    });
    assert_eq!(split.count(), 16);
}

// RFC 3207 §5 (test)
#[test]
fn clear_text_behind_starttls_is_gone() {
    let mut settings = Settings::new("mx.test");
    settings.starttls = true;
    let mut rehearsal = Rehearsal::new(settings, Dialog::parse("").unwrap());
    rehearsal.greet();
    let injected = b"EHLO evil.test\r\nMAIL FROM:<a@b.test>\r\n";
    let input = [b"EHLO a.test\r\nMAIL FROM:<a@b.test>\r\nRSET\r\nSTARTTLS\r\n", &injected[..]].concat();
    rehearsal.feed(&input);
    assert!(rehearsal.wants_tls && rehearsal.said.ends_with(b"220 2.0.0 Ready to start TLS\r\n"));
    rehearsal.take_said();
    rehearsal.tls();
    assert!(
        rehearsal.said.is_empty() && rehearsal.session.helo().is_none() && rehearsal.session.transaction().is_none()
    );
    // The control: a driver that gives the octets again would be seen.
    rehearsal.feed(injected);
    assert!(rehearsal.said.ends_with(b"Sender ok\r\n"));
}
