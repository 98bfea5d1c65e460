//! Dialogs: conversations as data, for tests.
//!
//! One file is one conversation. The same files are played to the state machine, to a simulated server and to a real
//! one over TCP, so a file says what a client sends and sees, and how the server is set up. Lines that begin with
//! `machine` test properties that only the state machine shows.
//!
//! ```text
//! # A comment.
//! set limits.errors = 3                    a setting, see Dialog::settings
//! refuse recipient x@b 550 5.1.1 No such   a verdict; the second word is a kind of Rule, `*` is anything
//! close sender *@d 421 4.7.0 Later         a refusal that closes
//! accept message * 250 2.0.0 Taken         an acceptance with a reply of its own
//! user tim tanstaaftanstaaf                AUTH knows this user and password
//! C: EHLO a.test                           sent with CRLF; neighbouring lines are sent in one piece
//! C\: DATA\n\0\x7f\\                       sent as it is after the escapes are read, without a line end
//! S: 250 2.1.5 *                           a line of a reply; `*` stands for any text
//! +5s                                      time passes: ms, s, m, h
//! tls                                      the handshake after STARTTLS
//! closed                                   the server has closed
//! stored 1                                 so many messages have been accepted
//! content Subject: x\r\n\r\nhi\r\n         the last one accepted, without our trace field
//! machine pause                            what is sent first comes before the greeting
//! machine xclient                          XCLIENT is trusted
//! machine own                              the client is one of our own
//! machine shutdown                         the server is going down
//! machine note Limit                       a note has this in its debug text
//! ```

use std::time::Duration;

use mail::Reply;

use crate::server::{AuthOffer, BareNewline, Dialect, Forgiving, Settings, Verdict};

/// A conversation.
#[derive(Clone, Debug)]
pub struct Dialog {
    /// Names and values of settings, in order, with the number of the line.
    pub sets: Vec<(usize, String, String)>,
    /// The verdicts of the driver; the first rule that fits counts, none means yes.
    pub rules: Vec<Rule>,
    /// Users and passwords.
    pub users: Vec<(String, String)>,
    /// The steps in order, with the number of the line.
    pub steps: Vec<(usize, DialogStep)>,
}

/// A verdict that is laid down.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `client`, `helo`, `sender`, `recipient`, `data`, `message`, `verify`, `expand` or `xclient`.
    pub kind: String,
    /// The name or address it is about, with `*` for any text.
    pub pattern: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// Something that happens in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialogStep {
    /// The client sends this.
    Send(Vec<u8>),
    /// The server says this line, without CRLF; with `*` for any text.
    Expect(String),
    /// Time passes.
    Wait(Duration),
    /// The TLS handshake.
    Tls,
    /// The server has closed the connection.
    Closed,
    /// So many messages have been accepted.
    Stored(usize),
    /// The last one accepted.
    Content(Vec<u8>),
    /// The greeting waits until the first octets have come.
    Pause,
    /// XCLIENT is trusted.
    TrustXclient,
    /// The client is one of our own.
    TrustClient,
    /// The server is going down.
    ShutDown,
    /// A note has this in its debug text.
    Note(String),
}

impl Dialog {
    /// Reads a file.
    ///
    /// # Errors
    /// The number of the first line that is none of those above, and its fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut dialog = Self { sets: Vec::new(), rules: Vec::new(), users: Vec::new(), steps: Vec::new() };
        for (at, line) in text.lines().enumerate() {
            dialog.line(at + 1, line).map_err(|why| format!("line {}: \"{line}\": {why}", at + 1))?;
        }
        Ok(dialog)
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let word = line.split(' ').next().unwrap_or_default();
        let rest = line.strip_prefix(word).unwrap_or_default();
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        let step = match word {
            "" | "#" => return Ok(()),
            "set" => {
                let (name, value) = rest.split_once('=').ok_or("write: set NAME = VALUE")?;
                self.sets.push((number, name.trim().to_owned(), value.trim().to_owned()));
                return Ok(());
            }
            "refuse" | "close" | "accept" => {
                self.rules.push(rule(word, rest)?);
                return Ok(());
            }
            "user" => {
                let (name, password) = rest.split_once(' ').ok_or("write: user NAME PASSWORD")?;
                self.users.push((name.to_owned(), password.to_owned()));
                return Ok(());
            }
            "C:" => DialogStep::Send(format!("{rest}\r\n").into_bytes()),
            "C\\:" => DialogStep::Send(unescape(rest)?),
            "S:" => DialogStep::Expect(rest.to_owned()),
            "tls" => DialogStep::Tls,
            "closed" => DialogStep::Closed,
            "stored" => DialogStep::Stored(rest.parse().map_err(|_| "write: stored NUMBER")?),
            "content" => DialogStep::Content(unescape(rest)?),
            "machine" => match rest.split_once(' ').unwrap_or((rest, "")) {
                ("pause", _) => DialogStep::Pause,
                ("xclient", _) => DialogStep::TrustXclient,
                ("own", _) => DialogStep::TrustClient,
                ("shutdown", _) => DialogStep::ShutDown,
                ("note", text) => DialogStep::Note(text.to_owned()),
                _ => return Err("machine pause, xclient, own, shutdown or note".to_owned()),
            },
            _ => DialogStep::Wait(duration(line.strip_prefix('+').ok_or("this is no line of a dialog")?)?),
        };
        self.steps.push((number, step));
        Ok(())
    }

    /// The settings: those of a server named `mx.test`, changed by the `set` lines.
    ///
    /// # Errors
    /// The number of the first line whose name or value is not known.
    pub fn settings(&self) -> Result<Settings, String> {
        let mut settings = Settings::new("mx.test");
        for (number, name, value) in &self.sets {
            set(&mut settings, name, value)
                .map_err(|()| format!("line {number}: set {name} = {value} is not known"))?;
        }
        Ok(settings)
    }

    /// The verdict on `subject`.
    #[must_use]
    pub fn verdict(&self, kind: &str, subject: &str) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.kind == kind && fits(&rule.pattern, subject));
        rule.map_or(Verdict::Accept, |rule| rule.verdict.clone())
    }
}

fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), ()> {
    fn number<T: std::str::FromStr>(value: &str) -> Result<T, ()> {
        value.parse().map_err(|_| ())
    }
    let flag = match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(()),
    };
    let time = duration(value).map_err(|_| ());
    let limits = &mut settings.limits;
    match name {
        "dialect" => {
            settings.dialect = match value {
                "smtp" => Dialect::Smtp,
                "submission" => Dialect::Submission,
                "lmtp" => Dialect::Lmtp,
                "stdin" => Dialect::Stdin,
                _ => return Err(()),
            }
        }
        "bare_newline" => {
            settings.bare_newline = match value {
                "reject" => BareNewline::Reject,
                "own" => BareNewline::Own,
                "normalize" => BareNewline::Normalize,
                _ => return Err(()),
            }
        }
        "forgiving" => {
            settings.forgiving = match value {
                "none" => Forgiving::None,
                "own" => Forgiving::Own,
                "all" => Forgiving::All,
                _ => return Err(()),
            }
        }
        "starttls" => settings.starttls = flag?,
        "tls_required" => settings.tls_required = flag?,
        "verify" => settings.verify = flag?,
        "mt_priority" => settings.mt_priority = flag?,
        "deliver_by" => settings.deliver_by = Some(time?),
        "future_release" => settings.future_release = Some(time?),
        "auth.mechanisms" => {
            let mechanisms = value.split_whitespace().map(Into::into).collect();
            settings.auth = AuthOffer { mechanisms, ..settings.auth.clone() };
        }
        "auth.without_tls" => settings.auth.without_tls = flag?,
        "auth.required" => settings.auth.required = flag?,
        "limits.message_bytes" => limits.message_bytes = number(value)?,
        "limits.recipients" => limits.recipients = number(value)?,
        "limits.transactions" => limits.transactions = number(value)?,
        "limits.command_line_bytes" => limits.command_line_bytes = number(value)?,
        "limits.auth_line_bytes" => limits.auth_line_bytes = number(value)?,
        "limits.content_line_bytes" => limits.content_line_bytes = number(value)?,
        "limits.header_fields" => limits.header_fields = number(value)?,
        "limits.header_bytes" => limits.header_bytes = number(value)?,
        "limits.hops" => limits.hops = number(value)?,
        "limits.errors" => limits.errors = number(value)?,
        "limits.refused_recipients" => limits.refused_recipients = number(value)?,
        "limits.idle_commands" => limits.idle_commands = number(value)?,
        "limits.command_time" => limits.command_time = time?,
        "limits.transaction_time" => limits.transaction_time = time?,
        "limits.session_time" => limits.session_time = time?,
        "limits.rate_bytes" => limits.rate_bytes = number(value)?,
        "limits.rate_window" => limits.rate_window = time?,
        "limits.content_piece_bytes" => limits.content_piece_bytes = number(value)?,
        _ => return Err(()),
    }
    Ok(())
}

fn rule(word: &str, rest: &str) -> Result<Rule, String> {
    const KINDS: [&str; 9] =
        ["client", "helo", "sender", "recipient", "data", "message", "verify", "expand", "xclient"];
    let mut parts = rest.splitn(3, ' ');
    let (Some(kind), Some(pattern), Some(reply)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("write: {word} KIND PATTERN REPLY"));
    };
    if !KINDS.contains(&kind) {
        return Err(format!("the kind is one of {KINDS:?}"));
    }
    let reply = Reply::parse(format!("{reply}\r\n").as_bytes(), 512).map_err(|error| error.to_string())?;
    let verdict = match word {
        "accept" => Verdict::AcceptWith(reply),
        "refuse" => Verdict::Refuse(reply),
        _ => Verdict::Close(reply),
    };
    Ok(Rule { kind: kind.to_owned(), pattern: pattern.to_owned(), verdict })
}

/// Reads a time: `500ms`, `5s`, `2m`, `1h`.
///
/// # Errors
/// When it is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "write a time such as 5s")?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("the unit of a time is ms, s, m or h".to_owned()),
    };
    Ok(Duration::from_millis(number.saturating_mul(milliseconds)))
}

/// Reads `\r`, `\n`, `\t`, `\0`, `\xHH` and `\\`.
///
/// # Errors
/// When there is another one.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        out.push(match rest.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).map_err(|_| "\\x has two hexadecimal digits")?
            }
            _ => return Err("an escape is one of \\r \\n \\t \\0 \\xHH \\\\".to_owned()),
        });
    }
    Ok(out)
}

/// Whether `text` fits `pattern`, where `*` stands for any text.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let Some((front, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(front) else { return false };
    (0..=text.len()).any(|at| text.get(at..).is_some_and(|tail| fits(rest, tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let dialog = Dialog::parse(
            "# x\n\nset limits.errors = 3\nrefuse sender a@* 550 5.7.1 no\nuser u p w\nC: a  b\nC\\: \\x00\\n\\\\\nS: 2*\n+5s",
        )
        .unwrap();
        assert_eq!(dialog.settings().unwrap().limits.errors, 3);
        assert_eq!(dialog.verdict("sender", "a@b"), Verdict::Refuse(Reply::parse(b"550 5.7.1 no\r\n", 99).unwrap()));
        assert_eq!(dialog.verdict("sender", "b@a"), Verdict::Accept);
        assert_eq!(dialog.users, [("u".to_owned(), "p w".to_owned())]);
        let steps: Vec<DialogStep> = dialog.steps.into_iter().map(|(_, step)| step).collect();
        let wanted = [
            DialogStep::Send(b"a  b\r\n".to_vec()),
            DialogStep::Send(b"\0\n\\".to_vec()),
            DialogStep::Expect("2*".to_owned()),
            DialogStep::Wait(Duration::from_secs(5)),
        ];
        assert_eq!(steps, wanted);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for text in ["C:x", "set x", "refuse sender", "refuse x * 550 no", "+5", "+5d", "C\\: \\q", "machine x", "what"]
        {
            let error = Dialog::parse(text).unwrap_err();
            assert!(error.starts_with("line 1: "), "{error}");
        }
        assert_eq!(Dialog::parse("set a = b").unwrap().settings().unwrap_err(), "line 1: set a = b is not known");
    }

    #[test]
    fn patterns() {
        for (pattern, text, fit) in [("a", "a", true), ("*", "", true), ("a*c*", "abcd", true), ("*b", "abc", false)] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }
}
