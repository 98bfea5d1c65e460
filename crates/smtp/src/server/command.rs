//! A command line as a command.
//!
//! Only the frame is read here: verb, keyword of the path, the rest of the line. Paths and parameters are read by
//! `mail` when the state of the session allows the command at all. Verbs of other protocols are known here, so that the
//! body of an HTTP request is not executed line by line.

use std::borrow::Cow;

/// A command, borrowed from its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Helo(&'a [u8]),
    Ehlo(&'a [u8]),
    Lhlo(&'a [u8]),
    /// From the path on.
    Mail(&'a [u8]),
    /// From the path on.
    Rcpt(&'a [u8]),
    Data,
    Bdat {
        octets: u64,
        last: bool,
    },
    /// BDAT without a length that can be read: it is unknown where the next command begins.
    BadBdat,
    Rset,
    Noop,
    Quit,
    StartTls,
    Vrfy(&'a [u8]),
    Expn(&'a [u8]),
    Help,
    /// Mechanism, and the initial response if there is one.
    Auth(&'a [u8], Option<&'a [u8]>),
    Xclient(&'a [u8]),
    /// Known to SMTP, not done here.
    NotImplemented,
    /// A word where none may be, with the verb.
    NoParameters(&'static str),
    /// An argument is missing or malformed; the expected form.
    Syntax(&'static str),
    Unknown(&'a [u8]),
    /// Another protocol.
    Foreign,
}

/// Verbs that some program sends which takes us for something else.
const FOREIGN: [&str; 9] = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "DELETE", "PATCH", "TRACE"];
/// RFC 5321 §F.1, §F.6 (gap: TURN, SEND, SOML and SAML are gone, RFC 1985's ETRN is not offered)
const NOT_HERE: [&str; 6] = ["ETRN", "TURN", "SEND", "SOML", "SAML", "ATRN"];

const MAIL_USAGE: &str = "MAIL FROM:<address>";
const RCPT_USAGE: &str = "RCPT TO:<address>";

/// A line without the white space at its end.
// RFC 5321 §4.1.1: white space before the line end is tolerated
pub(super) fn trim_end(mut line: &[u8]) -> &[u8] {
    while let [front @ .., b' ' | b'\t'] = line {
        line = front;
    }
    line
}

/// Replaces tabs in a command line by blanks.
pub(super) fn blanks(line: &[u8]) -> Cow<'_, [u8]> {
    if !line.contains(&b'\t') {
        return line.into();
    }
    line.iter().map(|byte| if *byte == b'\t' { b' ' } else { *byte }).collect()
}

/// Reads a line without its line end and white space before that. `is_forgiving`: blanks may stand before the verb and
/// before the colon, and words behind RSET, DATA and QUIT count for nothing.
// RFC 5321 §2.4: verbs are known in any case
pub(super) fn read(line: &[u8], is_forgiving: bool) -> Command<'_> {
    let line = if is_forgiving { line.trim_ascii_start() } else { line };
    let verb_end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (verb, rest) = line.split_at_checked(verb_end).unwrap_or((line, &[]));
    let rest = rest.trim_ascii_start();
    let is = |word: &str| verb.eq_ignore_ascii_case(word.as_bytes());
    let path = |keyword| after_keyword(rest, keyword, is_forgiving);
    let bare = |command, verb| if rest.is_empty() { command } else { Command::NoParameters(verb) };
    let plain = |command, verb| if is_forgiving { command } else { bare(command, verb) };
    match verb.first().map(u8::to_ascii_uppercase) {
        Some(b'M') if is("MAIL") => path("FROM").map_or(Command::Syntax(MAIL_USAGE), Command::Mail),
        Some(b'R') if is("RCPT") => path("TO").map_or(Command::Syntax(RCPT_USAGE), Command::Rcpt),
        Some(b'R') if is("RSET") => plain(Command::Rset, "RSET"),
        Some(b'D') if is("DATA") => plain(Command::Data, "DATA"),
        Some(b'B') if is("BDAT") => bdat(rest).unwrap_or(Command::BadBdat),
        Some(b'Q') if is("QUIT") => plain(Command::Quit, "QUIT"),
        Some(b'E') if is("EHLO") => Command::Ehlo(rest),
        Some(b'H') if is("HELO") => Command::Helo(rest),
        Some(b'L') if is("LHLO") => Command::Lhlo(rest),
        // RFC 5321 §4.1.1.9: NOOP takes a string and ignores it
        Some(b'N') if is("NOOP") => Command::Noop,
        Some(b'S') if is("STARTTLS") => bare(Command::StartTls, "STARTTLS"),
        Some(b'V') if is("VRFY") => argument(rest, Command::Vrfy, "VRFY address"),
        Some(b'E') if is("EXPN") => argument(rest, Command::Expn, "EXPN list"),
        Some(b'H') if is("HELP") => Command::Help,
        Some(b'A') if is("AUTH") => auth(rest),
        Some(b'X') if is("XCLIENT") => Command::Xclient(rest),
        _ if NOT_HERE.into_iter().any(is) => Command::NotImplemented,
        _ if FOREIGN.into_iter().any(is) || is_field(verb) => Command::Foreign,
        _ => Command::Unknown(verb),
    }
}

/// The first octets of a TLS record with a handshake of any version.
pub(super) const TLS_RECORD: [u8; 2] = [0x16, 0x03];

/// `Host:` and its like: a header of HTTP or of a message, never a command.
fn is_field(verb: &[u8]) -> bool {
    let name = verb.iter().position(|byte| *byte == b':').and_then(|colon| verb.get(..colon)).unwrap_or_default();
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// RFC 5321 §3.3: no space belongs before the path; many clients send one, and it can mean nothing else.
fn after_keyword<'a>(rest: &'a [u8], keyword: &str, is_forgiving: bool) -> Option<&'a [u8]> {
    let (front, path) = rest.split_at_checked(keyword.len())?;
    let path = if is_forgiving { path.trim_ascii_start() } else { path };
    front.eq_ignore_ascii_case(keyword.as_bytes()).then(|| path.strip_prefix(b":"))?.map(<[u8]>::trim_ascii_start)
}

fn argument<'a>(rest: &'a [u8], command: fn(&'a [u8]) -> Command<'a>, usage: &'static str) -> Command<'a> {
    if rest.is_empty() { Command::Syntax(usage) } else { command(rest) }
}

// RFC 4954 §4: AUTH mechanism [initial-response]
fn auth(rest: &[u8]) -> Command<'_> {
    let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next()) {
        (Some(mechanism), initial, None) => Command::Auth(mechanism, initial),
        _ => Command::Syntax("AUTH mechanism [initial response]"),
    }
}

// RFC 3030 §2: "BDAT" SP chunk-size [ SP end-marker ]
fn bdat(rest: &[u8]) -> Option<Command<'_>> {
    let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let octets = words.next().filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let octets = str::from_utf8(octets).ok()?.parse().ok()?;
    let last = match words.next() {
        None => false,
        Some(word) => word.eq_ignore_ascii_case(b"LAST").then_some(true)?,
    };
    words.next().is_none().then_some(Command::Bdat { octets, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5321 §2.4 (test), RFC 5321 §4.1.1 (test)
    #[test]
    fn commands() {
        for (line, command) in [
            (&b"ehlo  a.example  "[..], Command::Ehlo(b"a.example")),
            (b"HELO", Command::Helo(b"")),
            (b"mail from:<a@b> SIZE=1\t", Command::Mail(b"<a@b> SIZE=1")),
            (b"MAIL FROM: <a@b>", Command::Mail(b"<a@b>")),
            (b"MAIL FROM", Command::Syntax(MAIL_USAGE)),
            (b"MAIL FROM :<a@b>", Command::Syntax(MAIL_USAGE)),
            (b"RCPT FROM:<a@b>", Command::Syntax(RCPT_USAGE)),
            (b"Data", Command::Data),
            (b"DATA x", Command::NoParameters("DATA")),
            (b"NOOP x", Command::Noop),
            (b"VRFY", Command::Syntax("VRFY address")),
            (b"BDAT 86 last", Command::Bdat { octets: 86, last: true }),
            (b"BDAT 0", Command::Bdat { octets: 0, last: false }),
            (b"BDAT", Command::BadBdat),
            (b"BDAT -1", Command::BadBdat),
            (b"BDAT +1", Command::BadBdat),
            (b"BDAT 1 LAST LAST", Command::BadBdat),
            (b"BDAT 1 FIRST", Command::BadBdat),
            (b"BDAT 18446744073709551616", Command::BadBdat),
            (b"AUTH PLAIN =", Command::Auth(b"PLAIN", Some(b"="))),
            (b"AUTH a b c", Command::Syntax("AUTH mechanism [initial response]")),
            (b"ETRN x", Command::NotImplemented),
            (b"", Command::Unknown(b"")),
            (b"DATAX", Command::Unknown(b"DATAX")),
            (b" QUIT", Command::Unknown(b"")),
            (b"get / HTTP/1.1", Command::Foreign),
            (b"Host: x", Command::Foreign),
            (b"X-Long-Name:y", Command::Foreign),
            (b"MAIL:<a@b>", Command::Foreign),
        ] {
            assert_eq!(read(trim_end(line), false), command, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn blanks_are_forgiven() {
        for (line, command) in [
            (&b" QUIT"[..], Command::Quit),
            (b"MAIL FROM :<a@b>", Command::Mail(b"<a@b>")),
            (b"  MAIL  from  :  a@b SIZE=1", Command::Mail(b"a@b SIZE=1")),
            (b"RCPT TO : <a@b>", Command::Rcpt(b"<a@b>")),
            (b"RSET x", Command::Rset),
            (b"DATA now", Command::Data),
            (b"quit please", Command::Quit),
            (b"STARTTLS x", Command::NoParameters("STARTTLS")),
            (b"MAIL FROM <a@b>", Command::Syntax(MAIL_USAGE)),
            (b"MAIL FROMAGE:<a@b>", Command::Syntax(MAIL_USAGE)),
            (b"MAIL:<a@b>", Command::Foreign),
            (b" get / HTTP/1.1", Command::Foreign),
        ] {
            assert_eq!(read(trim_end(line), true), command, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn tabs_are_blanks() {
        assert_eq!(&*blanks(b"MAIL\tFROM:\t<a@b>"), b"MAIL FROM: <a@b>");
    }
}
