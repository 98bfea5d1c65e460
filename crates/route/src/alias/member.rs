//! One element of a value in an aliases file, and the lists of them that values, `:include:` files and `.forward` files
//! are.
//!
//! | Text | Member |
//! |---|---|
//! | `joe`, `"joe smith"`, `Joe <joe>`, `joe (home)` | a user |
//! | `\joe` | the mailbox of a user, whatever aliases and his `.forward` say |
//! | `joe@a.example`, `joe%a.example`, `a.example!joe`, `@b.example:joe@a.example` | an address |
//! | `"\|prog args"`, `\|prog` | a program |
//! | `/full/name`, `"/full name"` | a file |
//! | `:include:/full/name` | everybody in a file |
//! | `error:5.7.1:550 text` | nobody: the mail is refused |
//!
//! Commas part members, except in quotes, comments and angle brackets. As sendmail does, the parser goes on where
//! quotes or brackets are not closed; it says so.

use crate::map::Complaint;
use crate::tables::error_value::ErrorValue;
use mail::{Address, Domain, LocalPart};
use std::borrow::Cow;
use std::fmt;

/// One element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// A mail address.
    Address(Address),
    /// A user of this machine, perhaps another alias.
    Local(LocalPart),
    /// The mailbox of a user.
    Mailbox(LocalPart),
    /// A command line, without the bar.
    Program(Box<str>),
    /// A file that mail is written to.
    File(Box<str>),
    /// A file with members.
    Include(Box<str>),
    /// A refusal.
    Error(ErrorValue),
    /// A member that cannot be understood.
    Bad {
        /// As it stands there.
        text: Box<str>,
        /// Why not.
        why: Box<str>,
    },
}

/// The members of a value, and doubts about them.
#[must_use]
pub fn parse_members(value: &str) -> (Vec<Member>, Vec<Complaint>) {
    collect(Items::new(value).map(|item| (None, read(item))))
}

/// The members that an `:include:` file or a `.forward` names, and doubts about them, with lines.
#[must_use]
pub fn parse_list(text: &str) -> (Vec<Member>, Vec<Complaint>) {
    collect(lines(text).flat_map(|(line, text)| Items::new(text).map(move |item| (Some(line), read(item)))))
}

/// The members that an `:include:` file or a `.forward` names, one after the other, with the lines in which they stand.
pub fn list_members(text: &str) -> impl Iterator<Item = (u32, Member)> {
    lines(text).flat_map(|(line, text)| Items::new(text).filter_map(move |item| Some((line, read(item).0?))))
}

/// The members of a value, one after the other.
pub(super) fn value_members(value: &str) -> impl Iterator<Item = Member> {
    Items::new(value).filter_map(|item| read(item).0)
}

type ParsedMember = (Option<Member>, Option<String>);

fn collect(read: impl Iterator<Item = (Option<u32>, ParsedMember)>) -> (Vec<Member>, Vec<Complaint>) {
    let (mut members, mut complaints) = (Vec::new(), Vec::new());
    for (line, (member, doubt)) in read {
        let bad = match &member {
            Some(Member::Bad { text, why }) => Some(format!("\"{text}\": {why}; mail for it is refused")),
            _ => None,
        };
        complaints.extend(doubt.into_iter().chain(bad).map(|text| Complaint { line, text }));
        members.extend(member);
    }
    (members, complaints)
}

/// Lines with members: without comments and ends of lines, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    (1..).zip(without_mark(text).lines()).filter_map(|(number, line)| {
        let line = comment(line, false).0.trim();
        (!line.is_empty()).then_some((number, line))
    })
}

/// Takes the byte order mark off that editors put in front of UTF-8.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The part of a line before its comment, and whether a quote is open at the end of the part. A comment begins with the
/// first mark of the line, if this is `#`, or with a `#` behind a blank or comma that stands in no quotes, parentheses
/// or brackets. A `#` in the name in front of an address begins no comment: `Joe #1 <joe@a.example>`.
///
/// `is_quoted`: a quote is open where the line begins.
pub(super) fn comment(line: &str, is_quoted: bool) -> (&str, bool) {
    let (mut is_quoted, mut is_escaped, mut is_angle, mut parentheses) = (is_quoted, false, false, 0_usize);
    let mut is_behind_blank = true;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' if parentheses == 0 => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'(' => parentheses += 1,
            b')' => parentheses = parentheses.saturating_sub(1),
            b'<' if parentheses == 0 => is_angle = true,
            b'>' if parentheses == 0 => is_angle = false,
            b'#' if is_behind_blank && parentheses == 0 && !is_angle => {
                let (before, behind) = line.split_at_checked(at).unwrap_or((line, ""));
                let is_name = !before.trim().is_empty() && behind.contains('<') && behind.contains('>');
                if !is_name {
                    return (before, false);
                }
            }
            _ => {}
        }
        is_behind_blank = matches!(byte, b' ' | b'\t' | b',');
    }
    (line, is_quoted)
}

/// The elements of a list, without blanks around them.
struct Items<'a> {
    rest: &'a str,
}

impl<'a> Items<'a> {
    const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
            if self.rest.is_empty() {
                return None;
            }
            let end = item_end(self.rest);
            let item = self.rest.get(..end).unwrap_or_default().trim_end();
            self.rest = self.rest.get(end..).unwrap_or_default();
            if !item.is_empty() {
                return Some(item);
            }
        }
    }
}

/// Where the first element of a list ends: at a comma that stands in no quotes, comment or brackets.
fn item_end(text: &str) -> usize {
    // The name of a program or file may have brackets.
    let is_plain = text.starts_with(['|', '/']);
    let (mut is_quoted, mut is_escaped, mut is_angle, mut comments) = (false, false, false, 0_usize);
    for (at, byte) in text.bytes().enumerate() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match byte {
            b'\\' => is_escaped = true,
            b'"' if comments == 0 => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'(' if !is_plain => comments += 1,
            b')' if !is_plain => comments = comments.saturating_sub(1),
            _ if comments > 0 => {}
            b'<' if !is_plain => is_angle = true,
            b'>' if !is_plain => is_angle = false,
            b',' if !is_angle => return at,
            _ => {}
        }
    }
    text.len()
}

fn bad(text: &str, why: impl Into<Box<str>>) -> Member {
    Member::Bad { text: text.into(), why: why.into() }
}

/// Reads an element.
fn read(item: &str) -> ParsedMember {
    if is_simple(item) {
        return (Some(simple(item)), None);
    }
    if let Some(inside) = whole_quoted(item) {
        let text = unescaped(inside);
        if let Some(member) = special(text.trim()) {
            return (Some(member), None);
        }
    }
    if let Some(member) = special(item) {
        let is_bare = item.strip_prefix('|').is_some_and(|command| whole_quoted(command.trim()).is_none());
        let doubt = (is_bare && matches!(member, Member::Program(_))).then(|| {
            format!("\"{item}\": a program stands in quotes, else sendmail alters its blanks, and commas end it")
        });
        return (Some(member), doubt);
    }
    mailbox(item)
}

/// Whether it has none of the marks by which anything else than `joe` and `joe@a.example` is known.
fn is_simple(item: &str) -> bool {
    item.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'@' | b'.' | b'-' | b'_' | b'+' | b'='))
        && !item.starts_with('@')
}

fn simple(item: &str) -> Member {
    if item.contains('@') {
        return Address::parse(item.strip_suffix('.').unwrap_or(item).as_bytes())
            .map_or_else(|error| bad(item, error.to_string()), Member::Address);
    }
    LocalPart::new(item).map_or_else(|error| bad(item, error.to_string()), Member::Local)
}

/// Returns the text between the quotes, if quotes are around all of it.
fn whole_quoted(item: &str) -> Option<&str> {
    let inside = item.strip_prefix('"')?.strip_suffix('"')?;
    let mut is_escaped = false;
    for byte in inside.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return None,
            _ => {}
        }
    }
    (!is_escaped).then_some(inside)
}

/// Without the backslashes that make the next character an ordinary one.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Cow::Owned(out)
}

/// Programs, files, lists in files, refusals.
fn special(text: &str) -> Option<Member> {
    let control = |rest: &str| rest.chars().any(char::is_control);
    if let Some(command) = text.strip_prefix('|') {
        // `|"prog args"` means what `"|prog args"` does.
        let whole = whole_quoted(command.trim()).map_or(Cow::Borrowed(command), unescaped);
        let command = whole.trim();
        return Some(match command {
            "" => bad(text, "a bar without a program"),
            _ if control(command) => bad(&shown(text), "a control character"),
            _ => Member::Program(command.into()),
        });
    }
    if text.starts_with('/') {
        // An X.400 address: /S=joe/@gate.example
        if text.contains('@') && !text.contains(' ') && text.contains('=') {
            return None;
        }
        return Some(if control(text) { bad(&shown(text), "a control character") } else { Member::File(text.into()) });
    }
    if let Some(rest) = strip_word(text, ":include:") {
        let path = rest.trim().trim_matches('"').trim();
        return Some(match path {
            "" => bad(text, ":include: without a file"),
            _ if control(path) => bad(&shown(text), "a control character"),
            _ => Member::Include(path.into()),
        });
    }
    strip_word(text, "error:").map(|rest| Member::Error(ErrorValue::parse(rest)))
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then_some(rest)
}

fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Users and addresses, as people write them.
fn mailbox(item: &str) -> ParsedMember {
    let (plain, mut doubt) = without_comments(item);
    let inside = match angle(&plain) {
        Some((inside, is_closed)) => {
            if !is_closed {
                doubt = Some(format!("\"{item}\": a bracket is not closed; sendmail and mailrace take \"{inside}\""));
            }
            inside
        }
        None => plain.trim(),
    };
    let text = inside.trim_matches(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | ')'));
    if text.len() != inside.trim().len() {
        doubt = Some(format!("\"{item}\": a bracket is not opened; sendmail and mailrace take \"{text}\""));
    }
    if text.is_empty() {
        // A comment alone names no member.
        return (None, doubt);
    }
    if text.chars().any(char::is_control) {
        return (Some(bad(&shown(item), "a control character")), doubt);
    }
    let text = match text.strip_prefix('@') {
        // RFC 5321 §4.1.1.3: the route before an address is ignored
        Some(route) => match route.split_once(':') {
            Some((_, address)) => address.trim(),
            None => return (Some(bad(item, "a user is missing before the @")), doubt),
        },
        None => group_member(text),
    };
    if text.is_empty() {
        return (None, doubt);
    }
    let (member, words) = user_or_address(item, text);
    (Some(member), doubt.or(words))
}

fn user_or_address(item: &str, text: &str) -> Read2 {
    let is_mailbox = text.starts_with('\\');
    let split = last_unquoted(text, '@').or_else(|| last_unquoted(text, '%').filter(|_| !text.contains('"')));
    if let Some(at) = split {
        let (local, domain) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
        let local = unquoted(local.trim());
        if local.is_empty() {
            return (bad(item, "a user is missing before the @"), None);
        }
        return (address(item, &local, domain), None);
    }
    if let Some((host, user)) = text.split_once('!').filter(|(host, _)| host.contains('.') && !text.contains('"')) {
        if user.trim().is_empty() {
            return (bad(item, "a user is missing behind the !"), None);
        }
        return (address(item, user, host), None);
    }
    let name = unquoted(text);
    let name = name.trim();
    if name.is_empty() {
        return (bad(item, "a name is missing"), None);
    }
    let doubt = (!text.contains('"') && text.contains(char::is_whitespace))
        .then(|| format!("\"{item}\" is one name with blanks; a comma parts two names"));
    match LocalPart::new(name) {
        Ok(name) if is_mailbox => (Member::Mailbox(name), doubt),
        Ok(name) => (Member::Local(name), doubt),
        Err(error) => (bad(item, error.to_string()), doubt),
    }
}

type Read2 = (Member, Option<String>);

fn address(item: &str, local: &str, domain: &str) -> Member {
    let domain = domain.trim();
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let address = LocalPart::new(local)
        .and_then(|local| Domain::parse(domain.as_bytes()).and_then(|domain| Address::new(local, domain)));
    address.map_or_else(|error| bad(item, error.to_string()), Member::Address)
}

/// The text without comments in parentheses.
fn without_comments(item: &str) -> (Cow<'_, str>, Option<String>) {
    if !item.contains(['(', '"']) {
        return (Cow::Borrowed(item), None);
    }
    let mut out = String::with_capacity(item.len());
    let (mut is_quoted, mut is_escaped, mut comments) = (false, false, 0_usize);
    for c in item.chars() {
        match c {
            _ if is_escaped => {
                is_escaped = false;
                if comments > 0 {
                    continue;
                }
            }
            '\\' => {
                is_escaped = true;
                if comments > 0 {
                    continue;
                }
            }
            '"' if comments == 0 => is_quoted = !is_quoted,
            '(' if !is_quoted => {
                comments += 1;
                continue;
            }
            ')' if !is_quoted && comments > 0 => {
                comments -= 1;
                continue;
            }
            _ if comments > 0 => continue,
            _ => {}
        }
        out.push(c);
    }
    let open = match (is_quoted, comments > 0) {
        (true, _) => Some("a quote"),
        (_, true) => Some("a comment"),
        _ => None,
    };
    if is_quoted {
        out.push('"');
    }
    (Cow::Owned(out), open.map(|what| format!("\"{item}\": {what} is not closed; it is taken to end here")))
}

/// Returns the text in angle brackets, and whether they are closed.
fn angle(text: &str) -> Option<(&str, bool)> {
    let rest = text.get(first_unquoted(text, '<')? + 1..)?;
    Some(match first_unquoted(rest, '>') {
        Some(end) => (rest.get(..end)?.trim(), true),
        None => (rest.trim(), false),
    })
}

/// `friends: joe` and `ann;` are the ends of a group.
fn group_member(text: &str) -> &str {
    let text = text.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    match first_unquoted(text, ':') {
        Some(colon) if !text.get(..colon).is_some_and(|name| name.contains(['@', '['])) => {
            text.get(colon + 1..).unwrap_or_default().trim()
        }
        _ => text,
    }
}

fn unquoted_positions(text: &str, wanted: char) -> impl Iterator<Item = usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.char_indices().filter_map(move |(at, c)| match c {
        _ if is_escaped => {
            is_escaped = false;
            None
        }
        '\\' => {
            is_escaped = true;
            None
        }
        '"' => {
            is_quoted = !is_quoted;
            None
        }
        _ => (!is_quoted && c == wanted).then_some(at),
    })
}

fn first_unquoted(text: &str, wanted: char) -> Option<usize> {
    unquoted_positions(text, wanted).next()
}

fn last_unquoted(text: &str, wanted: char) -> Option<usize> {
    unquoted_positions(text, wanted).last()
}

/// The meaning of a name with quotes and backslashes.
pub(super) fn unquoted(text: &str) -> Cow<'_, str> {
    if !text.contains(['"', '\\']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            '"' => {}
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a name means itself without quotes.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '='))
}

/// In quotes where the meaning of a name needs them.
fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if is_plain(name) && !name.is_empty() {
        return f.write_str(name);
    }
    if special(name.trim()).is_none() {
        return quoted(f, name);
    }
    // In quotes alone it would be a program or a file.
    f.write_str("<")?;
    quoted(f, name)?;
    f.write_str(">")
}

/// The backslash makes its first character an ordinary one; the rest stands in quotes where it needs them.
fn write_mailbox(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let first = name.chars().next().map_or(0, char::len_utf8);
    let (first, rest) = name.split_at_checked(first).unwrap_or_default();
    write!(f, "\\{first}")?;
    if is_plain(name) { f.write_str(rest) } else { quoted(f, rest) }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_str("\\")?;
        }
        write!(f, "{c}")?;
    }
    f.write_str("\"")
}

/// As it is written into a file; it reads back as the same member.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => {
                let text = address.to_string();
                if is_simple(&text) { f.write_str(&text) } else { write!(f, "<{text}>") }
            }
            Self::Local(name) => write_name(f, name.as_str()),
            Self::Mailbox(name) => write_mailbox(f, name.as_str()),
            Self::Program(command) => quoted(f, &format!("|{command}")),
            Self::File(path) => quoted(f, path),
            Self::Include(path) => quoted(f, &format!(":include:{path}")),
            Self::Error(error) => quoted(f, &format!("error:{}:{} {}", error.status, error.code, error.text)),
            Self::Bad { text, .. } => f.write_str(text),
        }
    }
}
