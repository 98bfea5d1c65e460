//! The text of an aliases file: `name: member, member`.
//!
//! A line that begins with a blank, and a line behind one that ends with a backslash, continue the entry before. A
//! line whose first mark is `#` is a comment, and so is the text behind ` #` outside quotes; comments and empty lines
//! do not end an entry that ends with a comma or colon. Names are the same in upper and lower case. Values are kept as
//! they are written and read when mail comes. A line that cannot be used is a complaint, and the other lines hold.

use super::NAME;
use super::member::{comment, unquoted, without_mark};
use crate::map::{Complaint, MapLimits, Table};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// An aliases file that was read.
#[derive(Debug)]
pub struct Aliases {
    /// Name and value of each alias, with lines.
    pub table: Table,
    /// Complaints about lines; as many as [`MapLimits::complaints_max`] and one that counts the others.
    pub complaints: Vec<Complaint>,
    /// For `newaliases`.
    pub summary: Summary,
    /// Lines that count for nothing; other complaints are doubts about lines that hold.
    pub ignored: u64,
}

/// The summary that `newaliases` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Aliases, those with a name of another one too.
    pub aliases: u64,
    /// Octets of the longest value.
    pub longest: u64,
    /// Octets of all names and values.
    pub bytes: u64,
}

/// As sendmail says it behind the name of the file.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} aliases, longest {} bytes, {} bytes total", self.aliases, self.longest, self.bytes)
    }
}

/// An entry that further lines may continue.
struct OpenEntry<'a> {
    /// Of its first line.
    number: u32,
    text: Cow<'a, str>,
    /// A quote is open at its end.
    is_quoted: bool,
    /// Its last line ends with a backslash, which is taken off.
    is_open: bool,
    /// A comment or an empty line follows its last line.
    is_apart: bool,
}

impl<'a> OpenEntry<'a> {
    fn new(number: u32, content: &'a str, is_quoted: bool) -> Self {
        let (text, is_open) = without_backslash(content);
        Self { number, text: Cow::Borrowed(text), is_quoted, is_open, is_apart: false }
    }

    /// Whether a line belongs to the entry. Behind a comment it may as well belong to an entry that the comment
    /// disables, so that the entry must say that it goes on.
    fn is_continued_by(&self, line: &str) -> bool {
        let is_indented = line.starts_with([' ', '\t']);
        let goes_on = self.text.trim_end().ends_with([',', ':']) || line.trim_start().starts_with(',');
        self.is_open || is_indented && (!self.is_apart || goes_on)
    }

    fn append(&mut self, content: &str, is_quoted: bool) {
        let (text, is_open) = without_backslash(content);
        self.text.to_mut().push_str(text);
        *self = Self { text: std::mem::take(&mut self.text), is_quoted, is_open, is_apart: false, number: self.number };
    }
}

fn without_backslash(line: &str) -> (&str, bool) {
    line.strip_suffix('\\').map_or((line, false), |line| (line, true))
}

struct AliasFileReader<'a> {
    entries: Vec<(String, Cow<'a, str>, u32)>,
    by_name: HashMap<String, usize>,
    complaints: Vec<Complaint>,
    more: u64,
    ignored: u64,
    summary: Summary,
}

/// Reads an aliases file. `file`: its name, for people. `is_local`: whether a domain is ours; a name with another one
/// is no alias.
#[must_use]
pub fn parse_aliases(file: &str, text: &str, is_local: &dyn Fn(&str) -> bool) -> Aliases {
    let mut reading = AliasFileReader {
        entries: Vec::new(),
        by_name: HashMap::new(),
        complaints: Vec::new(),
        more: 0,
        ignored: 0,
        summary: Summary::default(),
    };
    let mut entry: Option<OpenEntry<'_>> = None;
    for (number, line) in (1_u32..).zip(without_mark(text).lines()) {
        // A quote that an entry leaves open ends with the entry.
        let is_further = |entry: &OpenEntry<'_>| entry.is_open || line.starts_with([' ', '\t']);
        let is_quoted = entry.as_ref().is_some_and(|entry| entry.is_quoted && is_further(entry));
        let (content, is_quoted) = comment(line, is_quoted);
        if content.trim().is_empty() {
            // An indented comment belongs to the entry.
            let is_apart = !line.starts_with([' ', '\t']) || line.trim().is_empty();
            entry = entry.map(|entry| OpenEntry { is_apart: entry.is_apart || is_apart, ..entry });
            continue;
        }
        match &mut entry {
            Some(open) if open.is_continued_by(line) => open.append(content, is_quoted),
            Some(open) if line.starts_with([' ', '\t']) => {
                let name = shown(open.text.split(':').next().unwrap_or_default());
                reading.ignore(number, || {
                    let begin = shown(content.trim());
                    format!(
                        "{begin} begins with a blank behind a comment or an empty line, and {name} ends without a comma"
                    )
                });
            }
            _ => {
                if let Some(whole) = entry.replace(OpenEntry::new(number, content, is_quoted)) {
                    reading.line(whole.number, whole.text, is_local);
                }
            }
        }
    }
    if let Some(whole) = entry {
        reading.line(whole.number, whole.text, is_local);
    }
    reading.end(file)
}

impl<'a> AliasFileReader<'a> {
    fn complain(&mut self, line: u32, text: impl FnOnce() -> String) {
        if self.complaints.len() < MapLimits::default().complaints_max {
            self.complaints.push(Complaint { line: Some(line), text: text() });
        } else {
            self.more += 1;
        }
    }

    fn ignore(&mut self, line: u32, text: impl FnOnce() -> String) {
        self.ignored += 1;
        self.complain(line, || format!("{}; it is ignored", text()));
    }

    fn line(&mut self, number: u32, line: Cow<'a, str>, is_local: &dyn Fn(&str) -> bool) {
        if line.starts_with([' ', '\t']) {
            return self.ignore(number, || format!("{} continues no line", shown(line.trim())));
        }
        let Some(colon) = colon(&line) else {
            return self.ignore(number, || format!("{} has no colon behind the name", shown(&line)));
        };
        let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default().trim());
        // sendmail counts the quotes of a name.
        let name_bytes = name.trim().len() as u64;
        let name = match self.name(number, name, is_local) {
            Ok(name) => name,
            Err(why) => return self.ignore(number, || why),
        };
        if value.is_empty() {
            return self.ignore(number, || format!("{}: has no value", shown(&name)));
        }
        if let Some(control) = value.chars().find(|c| c.is_control() && *c != '\t') {
            let code = u32::from(control);
            return self.ignore(number, || format!("{}: has the control character U+{code:04X}", shown(&name)));
        }
        let value = match line {
            Cow::Borrowed(line) => Cow::Borrowed(line.get(colon + 1..).unwrap_or_default().trim()),
            Cow::Owned(_) => Cow::Owned(value.to_owned()),
        };
        let bytes = value.len() as u64;
        self.summary.aliases += 1;
        self.summary.longest = self.summary.longest.max(bytes);
        self.summary.bytes += bytes + name_bytes;
        self.keep(number, name, value);
    }

    fn name(&mut self, line: u32, text: &str, is_local: &dyn Fn(&str) -> bool) -> Result<String, String> {
        let is_quoted = text.contains('"');
        let text = text.trim();
        let whole = unquoted(text);
        let mut name = whole.as_ref();
        if !is_quoted && let Some((user, domain)) = name.rsplit_once('@') {
            if !is_local(domain) {
                return Err(format!("{} is no name of this machine, and only those have aliases", shown(text)));
            }
            name = user;
        }
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{} is no name", shown(text)));
        }
        let mut name = name.to_lowercase();
        if !is_quoted && name.contains(char::is_whitespace) {
            let joined = name.split_whitespace().collect::<Vec<_>>().join(".");
            self.complain(line, || format!("{} has blanks; as in sendmail it means {joined}", shown(text)));
            name = joined;
        }
        Ok(name)
    }

    /// Of equal names the last counts, as in the database that newaliases makes.
    fn keep(&mut self, line: u32, name: String, value: Cow<'a, str>) {
        match self.by_name.get(&name) {
            Some(&at) => {
                let Some(entry) = self.entries.get_mut(at) else { return };
                let before = entry.2;
                *entry = (name.clone(), value, line);
                self.complain(line, || format!("{}: is in line {before} too; the last one counts", shown(&name)));
            }
            None => {
                self.by_name.insert(name.clone(), self.entries.len());
                self.entries.push((name, value, line));
            }
        }
    }

    fn end(mut self, file: &str) -> Aliases {
        self.entries.sort_unstable_by_key(|(_, _, line)| *line);
        let loaded = Table::from_lines(NAME, file, self.entries);
        self.complaints.extend(loaded.complaints);
        if self.more > 0 {
            let text = format!("{} more complaints are not shown", self.more);
            self.complaints.push(Complaint { line: None, text });
        }
        Aliases { table: loaded.table, complaints: self.complaints, summary: self.summary, ignored: self.ignored }
    }
}

/// The colon behind the name: the first that stands in no quotes.
fn colon(line: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    line.bytes().position(|byte| match byte {
        _ if is_escaped => {
            is_escaped = false;
            false
        }
        b'\\' => {
            is_escaped = true;
            false
        }
        b'"' => {
            is_quoted = !is_quoted;
            false
        }
        _ => byte == b':' && !is_quoted,
    })
}

/// A piece of a line for a message.
pub(super) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut out: String = text.chars().take(CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        out.push('…');
    }
    format!("\"{out}\"")
}
