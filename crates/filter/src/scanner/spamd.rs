//! The protocol of spamd, SpamAssassin's daemon: one request and one response for each connection.
//!
//! CHECK gives the score, SYMBOLS also the names of the rules that hold, HEADERS also the header section as
//! SpamAssassin would write it. The body of a message is never replaced: of HEADERS only fields whose names begin with
//! `X-Spam-` are taken, and a tag of the subject. After CHECK and SYMBOLS the fields `X-Spam-Flag`, `X-Spam-Status` and
//! `X-Spam-Level` are written here. Fields of these names that a message brings are removed, since others could have
//! written them.

use mail::header::{HeaderSection, LineEnd};

use super::{FieldEdit, FieldNumber, Response, ResponseReader, ScanAction, ScanResult, ScannerError, Score, clean};
use crate::field_text::folded_value;

/// The name of the protocol in errors.
const PROTOCOL: &str = "spamd";
/// Octets of the body of a response: a header section, or names of rules.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Names of rules that are kept.
const RULES_MAX: usize = 1_000;
/// Stars of `X-Spam-Level`.
const LEVEL_MAX: usize = 50;
/// Fields that SpamAssassin adds.
const FIELD_PREFIX: &str = "X-Spam-";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpamdMethod {
    /// Is spamd there?
    Ping,
    /// Score and threshold.
    Check,
    /// Score, threshold, and names of rules.
    Symbols,
    /// Score, threshold, and the new header section.
    Headers,
}

impl SpamdMethod {
    const fn word(self) -> &'static str {
        match self {
            Self::Ping => "PING",
            Self::Check => "CHECK",
            Self::Symbols => "SYMBOLS",
            Self::Headers => "HEADERS",
        }
    }
}

/// Appends the head of a request for a message of `bytes` octets, which follow. `user` is the one whose preferences
/// SpamAssassin reads.
pub fn write_request(method: SpamdMethod, bytes: usize, user: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{} SPAMC/1.5\r\n", method.word()).as_bytes());
    if method != SpamdMethod::Ping {
        out.extend_from_slice(format!("Content-length: {bytes}\r\n").as_bytes());
        if let Some(user) = user.map(|user| clean(user, 255)).filter(|user| !user.is_empty()) {
            out.extend_from_slice(format!("User: {user}\r\n").as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Makes a reader of a response.
#[must_use]
pub const fn response_reader() -> ResponseReader {
    ResponseReader::new(PROTOCOL, b"SPAMD/", BODY_BYTES_MAX)
}

/// Reads the response to [`SpamdMethod::Ping`].
///
/// # Errors
/// It is another one.
pub fn read_pong(response: &Response) -> Result<(), ScannerError> {
    match status(response)? {
        (0, "PONG") => Ok(()),
        _ => Err(ScannerError::other_protocol(PROTOCOL, response.first_line.as_bytes())),
    }
}

/// Reads the response to a `method` that scans. `shown` is the message as it was sent, or its header section.
///
/// A code other than 0 is [`ScanAction::Failed`]: spamd means by it that it could not judge the message.
///
/// # Errors
/// Code or score are malformed.
pub fn read_scan(method: SpamdMethod, response: &Response, shown: &[u8]) -> Result<ScanResult, ScannerError> {
    let (code, text) = status(response)?;
    if code != 0 {
        return Ok(ScanResult::of(ScanAction::Failed(clean(&format!("{code} {text}"), 200))));
    }
    let Some((is_spam, score)) = response.field("spam").and_then(read_score) else {
        return Err(ScannerError::Malformed { protocol: PROTOCOL, what: "no line \"Spam: True ; SCORE / THRESHOLD\"" });
    };
    let mut result = ScanResult::of(if is_spam { ScanAction::Tag } else { ScanAction::Pass });
    result.score = Some(score);
    if method == SpamdMethod::Headers {
        take_header(&response.body, shown, &mut result);
    } else {
        if method == SpamdMethod::Symbols {
            result.rules = rule_names(&String::from_utf8_lossy(&response.body));
        }
        write_fields(is_spam, &mut result);
    }
    Ok(result)
}

/// Splits `SPAMD/1.1 0 EX_OK`.
fn status(response: &Response) -> Result<(u32, &str), ScannerError> {
    let mut words = response.first_line.splitn(3, ' ').skip(1);
    let code = words.next().and_then(|code| code.parse().ok());
    match code {
        Some(code) => Ok((code, words.next().unwrap_or_default())),
        None => Err(ScannerError::Malformed { protocol: PROTOCOL, what: "no code in its first line" }),
    }
}

/// Reads `True ; 15.0 / 5.0`.
fn read_score(value: &str) -> Option<(bool, Score)> {
    let (word, numbers) = value.split_once(';')?;
    let is_spam = match word.trim() {
        word if word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("yes") => true,
        word if word.eq_ignore_ascii_case("false") || word.eq_ignore_ascii_case("no") => false,
        _ => return None,
    };
    let (points, threshold) = numbers.split_once('/')?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    Some((is_spam, Score { points: number(points)?, threshold: number(threshold)? }))
}

fn rule_names(text: &str) -> Vec<String> {
    let names = text.split([',', ' ', '\r', '\n', '\t']).filter(|name| !name.is_empty());
    names.take(RULES_MAX).map(|name| clean(name, 100)).collect()
}

/// Writes the fields that mail programs look at.
fn write_fields(is_spam: bool, result: &mut ScanResult) {
    let Some(score) = result.score else { return };
    for name in ["X-Spam-Flag", "X-Spam-Status", "X-Spam-Level"] {
        result.edits.push(remove(name));
    }
    let mut add = |name: &str, value: String| {
        let value = folded_value(value.as_bytes(), false).unwrap_or_default();
        result.edits.push(FieldEdit::Add { name: name.into(), value, position: None });
    };
    if is_spam {
        add("X-Spam-Flag", "YES".to_owned());
    }
    let word = if is_spam { "Yes" } else { "No" };
    let Score { points, threshold } = score;
    let tests = if result.rules.is_empty() { "none".to_owned() } else { result.rules.join(",\n\t") };
    add("X-Spam-Status", format!("{word}, score={points:.1} required={threshold:.1}\n\ttests={tests}"));
    let stars = (1..=LEVEL_MAX).take_while(|star| f64::from(u8::try_from(*star).unwrap_or(u8::MAX)) <= points).count();
    if stars > 0 {
        add("X-Spam-Level", "*".repeat(stars));
    }
}

fn remove(name: &str) -> FieldEdit {
    FieldEdit::Remove { name: name.into(), number: FieldNumber::All }
}

/// Takes the fields of SpamAssassin from its header section, and its tag of the subject.
fn take_header(header: &[u8], shown: &[u8], result: &mut ScanResult) {
    let old = HeaderSection::read(shown, LineEnd::CrlfOrLf);
    let new = HeaderSection::read(header, LineEnd::CrlfOrLf);
    let is_theirs = |name: &str| name.get(..FIELD_PREFIX.len()).is_some_and(|it| it.eq_ignore_ascii_case(FIELD_PREFIX));
    for field in old.fields().filter(|field| is_theirs(field.name())) {
        let edit = remove(field.name());
        if !result.edits.contains(&edit) {
            result.edits.push(edit);
        }
    }
    for field in new.fields().filter(|field| is_theirs(field.name())) {
        if field.has_name("X-Spam-Status") {
            result.rules = tests_of(&String::from_utf8_lossy(&field.unfolded()));
        }
        // A value that could break the header is left out; the score has been read.
        if let Ok(value) = folded_value(field.value().trim_ascii(), false) {
            result.edits.push(FieldEdit::Add { name: field.name().into(), value, position: None });
        }
    }
    let subject = |header: &HeaderSection<'_>| {
        header.find("Subject").next().map(|field| String::from_utf8_lossy(field.unfolded().trim_ascii()).into_owned())
    };
    if result.action == ScanAction::Tag
        && let Some(new_subject) = subject(&new)
        && subject(&old).as_ref() != Some(&new_subject)
    {
        result.action = ScanAction::TagSubject(clean(&new_subject, 900));
    }
}

/// Returns the names in `tests=A,B autolearn=no`.
fn tests_of(status: &str) -> Vec<String> {
    let Some((_, tests)) = status.split_once("tests=") else { return Vec::new() };
    let end = tests.find('=').map_or(tests.len(), |equals| tests.get(..equals).and_then(|t| t.rfind(' ')).unwrap_or(0));
    let names = rule_names(tests.get(..end).unwrap_or_default());
    if names == ["none"] { Vec::new() } else { names }
}
