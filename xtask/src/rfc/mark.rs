//! The form of a mark, and how it is read out of comments.
//!
//! ```text
//! RFC 5321 §4.1.2                      done: the code below follows this section
//! RFC 5321 §4.1.2, §4.5.3.1.8          two sections
//! RFC 3461 §4.3 (gap: RET is ignored)  gap: what is missing stands in the parentheses
//! RFC 5321 §4.1.2 (test)               test; so is every mark in test code
//! ```
//!
//! `RFC 5322` alone is prose and counts as nothing. Any other form of a section is an error, so that no rule is lost by
//! a slip of the pen. Comments on neighbouring lines are read as one text: a mark may be wrapped.

use crate::lex::Comment;
use crate::source::Source;

/// The state that a mark gives to a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Done,
    /// With what is missing.
    Gap(String),
    Test,
}

/// One section of one RFC at one place.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) rfc: u32,
    pub(super) section: String,
    pub(super) says: Says,
    pub(super) path: String,
    pub(super) line: usize,
}

/// Something that looks like a mark and is none.
#[derive(Debug)]
pub(super) struct Malformed {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) message: String,
}

/// Collects the marks of one file.
pub(super) fn collect(source: &Source, marks: &mut Vec<Mark>, malformed: &mut Vec<Malformed>) {
    for paragraph in paragraphs(&source.comments) {
        for (at, _) in paragraph.text.match_indices(['R', 'r']) {
            let line = paragraph.line_of(at);
            let (before, rest) = paragraph.text.split_at(at);
            match read(before, rest) {
                Ok(found) => marks.extend(found.into_iter().map(|(rfc, section, says)| {
                    let says = if says == Says::Done && source.is_test(line) { Says::Test } else { says };
                    Mark { rfc, section, says, path: source.path.clone(), line }
                })),
                Err(message) => malformed.push(Malformed { path: source.path.clone(), line, message }),
            }
        }
    }
}

/// Comments on neighbouring lines, joined.
struct Paragraph {
    text: String,
    /// Where each line begins in `text`, and its number.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    fn line_of(&self, offset: usize) -> usize {
        self.lines.iter().rev().find(|(begins, _)| *begins <= offset).map_or(0, |(_, line)| *line)
    }
}

fn paragraphs(comments: &[Comment]) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    for comment in comments {
        for (number, text) in comment.text.lines().enumerate() {
            let line = comment.line + number;
            let text = text.trim().trim_start_matches("* ");
            match found.last_mut().filter(|p| p.lines.last().is_some_and(|(_, last)| last + 1 == line)) {
                Some(paragraph) => {
                    paragraph.text.push(' ');
                    paragraph.lines.push((paragraph.text.len(), line));
                    paragraph.text.push_str(text);
                }
                None => found.push(Paragraph { text: text.to_owned(), lines: vec![(0, line)] }),
            }
        }
    }
    found
}

/// Reads the text that begins with `R` at `rest`: returns the marks, none for prose, or the fault.
fn read(before: &str, rest: &str) -> Result<Vec<(u32, String, Says)>, String> {
    let part_of_word = before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || "/-_.#".contains(c));
    let Some((word, after)) = rest.split_at_checked(3).filter(|(word, _)| word.eq_ignore_ascii_case("rfc")) else {
        return Ok(Vec::new());
    };
    if part_of_word {
        return Ok(Vec::new());
    }
    let number_at = after.trim_start_matches([' ', '-', ':', '\u{a0}', '.']);
    let digits = number_at.len() - number_at.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (digits, tail) = number_at.split_at(digits);
    let Ok(rfc) = digits.parse::<u32>() else { return Ok(Vec::new()) };
    let spaced = after.len() == number_at.len() + 1 && after.starts_with(' ');
    if word == "RFC" && spaced {
        return sections(rfc, before, tail);
    }
    // `rfc5321` in small letters is a name in code.
    if word != "RFC" && after.len() == number_at.len() {
        return Ok(Vec::new());
    }
    Err(format!(
        "\"{word}{}{digits}\" is no mark; write \"RFC {rfc} §SECTION\"",
        &after[..after.len() - number_at.len()]
    ))
}

/// Reads the sections after `RFC n`.
fn sections(rfc: u32, before: &str, tail: &str) -> Result<Vec<(u32, String, Says)>, String> {
    let Some(mut rest) = tail.strip_prefix(" §") else {
        prose(rfc, before, tail)?;
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    loop {
        let (section, after) = section(rfc, rest)?;
        let (says, after) = says(rfc, section, after)?;
        found.push((rfc, section.to_owned(), says));
        let next = [", §", " and §", " or §", ", and §", " / §"].iter().find_map(|joint| after.strip_prefix(joint));
        match next {
            Some(next) => rest = next,
            None => return Ok(found),
        }
    }
}

/// The section number at the start of `text`, and the text behind it.
fn section(rfc: u32, text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(text.len());
    let number = text.get(..end).unwrap_or("").trim_end_matches('.');
    let after = text.get(number.len()..).unwrap_or("");
    let mut parts = number.split('.');
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let first_good = parts
        .next()
        .is_some_and(|first| digits(first) || (first.len() == 1 && first.bytes().all(|b| b.is_ascii_uppercase())));
    if !first_good || !parts.all(digits) {
        let seen: String = text.chars().take(12).collect();
        return Err(format!(
            "\"RFC {rfc} §{seen}\" names no section; write \"RFC {rfc} §4.1.2\" or \"RFC {rfc} §A.1\""
        ));
    }
    let range = ['-', '–', '…']
        .iter()
        .any(|dash| after.strip_prefix(*dash).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit() || c == '§')));
    if range {
        return Err(format!("\"RFC {rfc} §{number}\" begins a range; write each section: \"RFC {rfc} §{number}, §…\""));
    }
    Ok((number, after))
}

/// Reads the parentheses behind a section, and returns their meaning and the text behind them.
fn says<'a>(rfc: u32, section: &str, after: &'a str) -> Result<(Says, &'a str), String> {
    let Some(inside) = after.strip_prefix(" (") else { return Ok((Says::Done, after)) };
    let form = || format!("write \"RFC {rfc} §{section} (gap: what is missing)\"");
    let Some(close) = closing(inside) else {
        return if inside.starts_with("gap") {
            Err(format!("the gap has no \")\"; {}", form()))
        } else {
            Ok((Says::Done, after))
        };
    };
    let (inside, rest) = (inside.get(..close).unwrap_or(""), inside.get(close + 1..).unwrap_or(""));
    if inside == "test" {
        return Ok((Says::Test, rest));
    }
    match inside.strip_prefix("gap:").map(str::trim) {
        Some("") => Err(format!("the gap names nothing; {}", form())),
        Some(text) => Ok((Says::Gap(text.to_owned()), rest)),
        None if inside.split(|c: char| !c.is_alphanumeric()).next().is_some_and(|w| w.eq_ignore_ascii_case("gap")) => {
            Err(format!("\"({inside})\" is no gap; {}", form()))
        }
        None => Ok((Says::Done, after)),
    }
}

/// The offset of the parenthesis that closes an open one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Refuses prose that names a section in another form.
fn prose(rfc: u32, before: &str, tail: &str) -> Result<(), String> {
    let form = format!("write \"RFC {rfc} §4.1.2\"");
    let next = tail.trim_start_matches([' ', ',', '\u{a0}']);
    if next.starts_with('§') && tail.len() - next.len() <= 3 {
        return Err(format!("\"§\" stands one space after the number and has no comma before it; {form}"));
    }
    if tail.starts_with(" (gap") {
        return Err(format!("a gap needs a section; write \"RFC {rfc} §4.1.2 (gap: what is missing)\""));
    }
    let mut words = next.split_whitespace();
    let word = words.next().unwrap_or("").trim_start_matches('(').trim_end_matches('.');
    let names = ["section", "sections", "sect", "sec", "s", "appendix", "chapter"];
    let section_like = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    if names.iter().any(|name| word.eq_ignore_ascii_case(name)) && words.next().is_some_and(section_like) {
        return Err(format!("\"RFC {rfc} {word} …\" is no mark; {form}"));
    }
    let dotted = word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    if dotted && tail.starts_with(' ') {
        return Err(format!("\"RFC {rfc} {word}\" is no mark; {form}"));
    }
    let mut back = before.split_whitespace().rev();
    let of = back.next() == Some("of");
    let number = back.next().is_some_and(section_like);
    if of && number && back.next().is_some_and(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name))) {
        return Err(format!("\"section … of RFC {rfc}\" is no mark; {form}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Says, collect};
    use crate::source::Source;

    /// Marks as `rfc/section/kind`, then the errors.
    #[track_caller]
    fn check(text: &str, wanted: &[&str], errors: usize) {
        let (mut marks, mut malformed) = (Vec::new(), Vec::new());
        collect(&Source::new("crates/mail/src/a.rs", text), &mut marks, &mut malformed);
        let seen: Vec<String> = marks
            .iter()
            .map(|mark| match &mark.says {
                Says::Done => format!("{}/{}", mark.rfc, mark.section),
                Says::Gap(gap) => format!("{}/{}/gap {gap}", mark.rfc, mark.section),
                Says::Test => format!("{}/{}/test", mark.rfc, mark.section),
            })
            .collect();
        assert_eq!(seen, wanted, "{text}");
        assert_eq!(malformed.len(), errors, "{text}: {malformed:?}");
    }

    #[test]
    fn marks() {
        check("// RFC 5321 §4.1.2", &["5321/4.1.2"], 0);
        check("/// See RFC 5321 §4.5.3.1.8. Then RFC 2047 §2 (an aside).", &["5321/4.5.3.1.8", "2047/2"], 0);
        check("// RFC 5321 §4.1.2, §4.2 and §A.1", &["5321/4.1.2", "5321/4.2", "5321/A.1"], 0);
        check(
            "// RFC 3461 §4.3 (gap: RET=HDRS (headers) ignored), §5",
            &["3461/4.3/gap RET=HDRS (headers) ignored", "3461/5"],
            0,
        );
        check("// RFC 5321 §4.1.2 (test)", &["5321/4.1.2/test"], 0);
        check("/// wrapped RFC\n/// 5321\n/// §4.1.2 (gap: long\n/// text)", &["5321/4.1.2/gap long text"], 0);
        check("#[cfg(test)]\nmod tests {\n// RFC 5321 §3.3\nfn a() {}\n}", &["5321/3.3/test"], 0);
        check("let a = \"RFC 5321 §3.3\"; /* RFC 5321 §3.4 */", &["5321/3.4"], 0);
    }

    #[test]
    fn prose_is_no_mark() {
        check("// An RFC 5322 message, RFC 1047, `rfc5321`, https://www.rfc-editor.org/rfc/rfc5321", &[], 0);
        check("// rfc-check lists it; RFC 2045, RFC 2046. 4 of RFC 5321", &[], 0);
        check("const A: &str = \"RFC5321\";", &[], 0);
    }

    #[test]
    fn slips_of_the_pen() {
        for text in [
            "// RFC5321",
            "// RFC5321 §4.1",
            "// RFC-5321 says",
            "// rfc 5321 says",
            "// RFC 5321 section 4",
            "// RFC 5321, Section 4.1.2",
            "// (RFC 5321 Appendix D)",
            "// section 4.1 of RFC 5321",
            "// RFC 5321 4.1.2",
            "// RFC 5321§4.1.2",
            "// RFC 5321 § 4.1.2",
            "// RFC 5321 §§4.1",
            "// RFC 5321, §4.1",
            "// RFC 5321 (gap: all of it)",
        ] {
            check(text, &[], 1);
        }
        check("// RFC 5321 §4.1 (gap)", &[], 1);
        check("// RFC 5321 §4.1 (gap: )", &[], 1);
        check("// RFC 5321 §4.1 (gap: open", &[], 1);
        check("// RFC 5321 §4.1–4.2", &[], 1);
    }
}
