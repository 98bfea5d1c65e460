//! A delivery report taken apart, by code of its own and by Python's `email` where that is installed: both must find
//! the same.

use crate::hop::Mail;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Fields by their names in lower case, unfolded.
pub(crate) type Fields = BTreeMap<String, String>;

/// A report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// The fields of the message.
    pub(crate) header: Fields,
    /// The words for a person, lines ended by line feeds.
    pub(crate) words: String,
    /// The fields of the message in message/delivery-status.
    pub(crate) message: Fields,
    /// Those of each recipient.
    pub(crate) recipients: Vec<Fields>,
    /// The type of the third part, such as `message/rfc822`; empty without one.
    pub(crate) returned_type: String,
    /// The subject of the returned message.
    pub(crate) returned_subject: String,
    /// The returned message, with lines ended by line feeds.
    pub(crate) returned: String,
}

impl Report {
    /// Takes a report apart.
    #[track_caller]
    pub(crate) fn of(mail: &Mail) -> Self {
        assert!(mail.mail.starts_with("MAIL FROM:<>"), "{}", mail.mail);
        let lines_end_well = mail.content.split_inclusive(|byte| *byte == b'\n').all(|line| line.ends_with(b"\r\n"));
        assert!(lines_end_well, "{}", mail.text());
        let text = mail.text().replace("\r\n", "\n");
        let report = parse(&text).unwrap_or_else(|| panic!("no report: {text}"));
        if let Some(other) = by_python(&mail.content) {
            assert_eq!(report, other, "Python's email package sees something else in {text}");
        }
        report
    }

    /// The value of a field of the message.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &str {
        self.header.get(name).unwrap_or_else(|| panic!("no {name}: {:#?}", self.header))
    }

    /// The fields of the only recipient.
    #[track_caller]
    pub(crate) fn only(&self) -> &Fields {
        assert_eq!(self.recipients.len(), 1, "{self:#?}");
        &self.recipients[0]
    }

    /// Compares fields of the only recipient.
    #[track_caller]
    pub(crate) fn expect(&self, wanted: &[(&str, &str)]) {
        for (name, value) in wanted {
            assert_eq!(self.only().get(*name).map(String::as_str), Some(*value), "{name} of {self:#?}");
        }
    }
}

/// Header section and body.
fn split(text: &str) -> Option<(Fields, &str)> {
    let (header, body) = match text.strip_prefix('\n') {
        Some(body) => ("", body),
        None => text.split_once("\n\n").unwrap_or((text, "")),
    };
    Some((fields(header)?, body))
}

/// The last of several fields of one name counts, which is that of the writer of the message.
fn fields(header: &str) -> Option<Fields> {
    let unfolded = header.replace("\n ", " ").replace("\n\t", " ");
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        Some((name.to_ascii_lowercase(), words.join(" ")))
    };
    unfolded.lines().filter(|line| !line.is_empty()).map(field).collect()
}

fn parameter(value: &str, name: &str) -> Option<String> {
    let start = value.find(&format!("{name}="))? + name.len() + 1;
    let rest = value.get(start..)?;
    let end = rest.find(';').unwrap_or(rest.len());
    Some(rest.get(..end)?.trim().trim_matches('"').to_owned())
}

fn kind(fields: &Fields) -> String {
    let value = fields.get("content-type").map_or("text/plain", String::as_str);
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn parse(text: &str) -> Option<Report> {
    let (header, body) = split(text)?;
    let content_type = header.get("content-type")?;
    assert!(content_type.starts_with("multipart/report"), "{content_type}");
    assert_eq!(parameter(content_type, "report-type").as_deref(), Some("delivery-status"));
    let boundary = parameter(content_type, "boundary")?;
    let (whole, delimiter) = (format!("\n{body}"), format!("\n--{boundary}"));
    let mut pieces = whole.split(&delimiter);
    pieces.next()?;
    let mut parts = Vec::new();
    let mut is_closed = false;
    for piece in pieces {
        if piece.starts_with("--") {
            is_closed = true;
            break;
        }
        parts.push(split(piece.strip_prefix('\n')?)?);
    }
    assert!(is_closed, "no end of the parts");
    let ((words_header, words), (status_header, status)) = (parts.first()?, parts.get(1)?);
    assert_eq!(kind(words_header), "text/plain");
    assert!(matches!(kind(status_header).as_str(), "message/delivery-status" | "message/global-delivery-status"));
    let mut blocks = status.split("\n\n").filter(|block| !block.trim().is_empty());
    let message = fields(blocks.next()?)?;
    let recipients = blocks.map(fields).collect::<Option<Vec<_>>>()?;
    let (returned_type, returned) = parts.get(2).map_or((String::new(), ""), |(header, text)| (kind(header), *text));
    let returned_subject = split(returned).and_then(|(fields, _)| fields.get("subject").cloned()).unwrap_or_default();
    Some(Report {
        header,
        words: words.trim_end().to_owned(),
        message,
        recipients,
        returned_type,
        returned_subject,
        returned: returned.trim_end().to_owned(),
    })
}

/// Prints what Python finds as lines of `NAME<TAB>VALUE` with backslash escapes.
const PYTHON: &str = r#"
import sys, email, email.policy
raw = sys.stdin.buffer.read()
m = email.message_from_bytes(raw, policy=email.policy.compat32)
def out(name, value):
    value = value.encode('utf-8', 'surrogateescape').decode('utf-8', 'replace')
    print(name + '\t' + value.replace('\\', '\\\\').replace('\r\n', '\n').replace('\n', '\\n').replace('\t', '\\t'))
def flat(value):
    return ' '.join(str(value).split())
def fields(name, m):
    for key, value in m.items():
        out(name + '\t' + key.lower(), flat(value))
sys.stdout.reconfigure(encoding='utf-8', errors='replace')
assert not m.defects and m.get_content_type() == 'multipart/report', m.defects
assert m.get_param('report-type') == 'delivery-status'
parts = m.get_payload()
for part in m.walk():
    assert not part.defects, (part.defects, part.get_content_type(), raw)
fields('header', m)
out('words', parts[0].get_payload().rstrip())
blocks = parts[1].get_payload()
fields('message', blocks[0])
for number, block in enumerate(blocks[1:]):
    fields('recipient\t%d' % number, block)
if len(parts) > 2:
    third = parts[2]
    out('type', third.get_content_type())
    if third.get_content_type() in ('message/rfc822', 'message/global'):
        inner = third.get_payload()[0]
        out('returned', inner.as_bytes().decode('utf-8', 'replace').rstrip())
        out('subject', flat(inner['subject'] or ''))
    else:
        text = third.get_payload(decode=False)
        text = text if isinstance(text, str) else text[0].as_string()
        out('returned', text.rstrip())
        out('subject', flat(email.message_from_string(text)['subject'] or ''))
"#;

/// Returns the report as Python reads it; `None` where there is no Python or it does not know the types of the parts
/// (RFC 6532).
fn by_python(content: &[u8]) -> Option<Report> {
    if String::from_utf8_lossy(content).contains("Content-Type: message/global") {
        return None;
    }
    let mut child = Command::new("python3");
    child.args(["-c", PYTHON]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = child.spawn() else {
        eprintln!("no python3: reports are not checked by its email package");
        return None;
    };
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(content).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut report = Report {
        header: Fields::new(),
        words: String::new(),
        message: Fields::new(),
        recipients: Vec::new(),
        returned_type: String::new(),
        returned_subject: String::new(),
        returned: String::new(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let words: Vec<&str> = line.splitn(4, '\t').collect();
        match words.as_slice() {
            ["header", name, value] => drop(report.header.insert((*name).to_owned(), (*value).to_owned())),
            ["message", name, value] => drop(report.message.insert((*name).to_owned(), (*value).to_owned())),
            ["recipient", number, name, value] => {
                let number: usize = number.parse().expect("a number");
                report.recipients.resize_with(report.recipients.len().max(number + 1), Fields::new);
                report.recipients[number].insert((*name).to_owned(), (*value).to_owned());
            }
            ["words", value] => report.words = unescaped(value),
            ["type", value] => (*value).clone_into(&mut report.returned_type),
            ["subject", value] => (*value).clone_into(&mut report.returned_subject),
            ["returned", value] => report.returned = unescaped(value),
            _ => panic!("{line:?}"),
        }
    }
    Some(report)
}

fn unescaped(text: &str) -> String {
    text.replace("\\\\", "\u{0}").replace("\\n", "\n").replace("\\t", "\t").replace('\u{0}', "\\")
}
