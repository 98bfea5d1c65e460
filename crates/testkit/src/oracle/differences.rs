//! The answers in which mailrace differs from sendmail, with reasons: `bench/oracle/differences`, and the page made of
//! it.
//!
//! A group of that file is a line `== TITLE`, the reason as lines of text, and its questions:
//!
//! ```text
//! CASE: QUESTION
//!     sendmail: …
//!     mailrace: …
//! ```
//!
//! In CASE and QUESTION a `*` stands for anything; of such an entry no answers are kept.

use std::fmt::Write as _;

/// Questions that are answered otherwise, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub title: String,
    pub reason: Vec<String>,
    pub entries: Vec<Entry>,
}

/// A question, or many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub case: String,
    pub question: String,
    pub theirs: String,
    pub ours: String,
}

impl Entry {
    /// Whether it stands for more than one question.
    pub fn is_pattern(&self) -> bool {
        self.case.contains('*') || self.question.contains('*')
    }

    pub fn fits(&self, case: &str, question: &str) -> bool {
        if self.is_pattern() {
            fits(&self.case, case) && fits(&self.question, question)
        } else {
            self.case == case && self.question == question
        }
    }
}

/// Whether a text is as a pattern says, in which `*` is anything.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, behind)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(behind, &rest[at..]))
        }
    }
}

/// Reads the file. [`write()`] keeps the text before the first group.
pub fn read(text: &str) -> (String, Vec<Group>) {
    let (mut head, mut groups) = (String::new(), Vec::<Group>::new());
    for (position, line) in text.lines().enumerate() {
        let number = position + 1;
        if let Some(title) = line.strip_prefix("== ") {
            groups.push(Group { title: title.to_owned(), ..Group::default() });
            continue;
        }
        let Some(group) = groups.last_mut() else {
            writeln!(head, "{line}").expect("a string takes everything");
            continue;
        };
        if line.is_empty() {
            continue;
        }
        if let Some(said) = line.strip_prefix("    ") {
            let entry = group
                .entries
                .last_mut()
                .unwrap_or_else(|| panic!("differences:{number}: an answer without a question"));
            match said.split_once(": ").unwrap_or_else(|| (said.trim_end_matches(':'), "")) {
                ("sendmail", said) => said.clone_into(&mut entry.theirs),
                ("mailrace", said) => said.clone_into(&mut entry.ours),
                _ => panic!("differences:{number}: neither \"sendmail: …\" nor \"mailrace: …\": {line}"),
            }
            continue;
        }
        match line.split_once(": ") {
            Some((case, question))
                if case.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"*-".contains(&c)) =>
            {
                let (case, question) = (case.to_owned(), question.to_owned());
                group.entries.push(Entry { case, question, ..Entry::default() });
            }
            _ if group.entries.is_empty() => group.reason.push(line.to_owned()),
            _ => panic!("differences:{number}: neither a question nor an answer: {line}"),
        }
    }
    (head, groups)
}

/// The text of the file.
pub fn write(head: &str, groups: &[Group]) -> String {
    let mut out = head.trim_end().to_owned();
    out.push('\n');
    for group in groups {
        write!(out, "\n== {}\n{}\n", group.title, group.reason.join("\n")).expect("a string takes everything");
        for entry in &group.entries {
            write!(out, "\n{}: {}\n", entry.case, entry.question).expect("a string takes everything");
            if !entry.is_pattern() {
                let line = format!("    sendmail: {}\n    mailrace: {}\n", entry.theirs, entry.ours);
                out.push_str(&line.replace(": \n", ":\n"));
            }
        }
    }
    out
}

/// `docs/sendmail-differences.md`.
pub fn page(groups: &[Group], cases: usize, questions: usize) -> String {
    let mut out = String::from("# Where mailrace answers otherwise than sendmail\n\n");
    writeln!(
        out,
        "Generated from `bench/oracle/differences` by a test (`ORACLE=write cargo test -p mailrace --test commands oracle`); what it says is checked with \
         every change. The real sendmail of Debian was asked {questions} questions in {cases} settings (`bench/oracle/corpus`), and \
         mailrace gives the same answer to all others: the same destination, the same address, the same reply code and enhanced code. \
         Texts of replies may differ."
    )
    .expect("a string takes everything");
    for group in groups {
        write!(out, "\n## {}\n\n{}\n", group.title, group.reason.join("\n")).expect("a string takes everything");
        // A group without questions of the corpus has only words; other tests check it.
        if !group.entries.is_empty() {
            out.push_str("\n| Setting | Question | sendmail | mailrace |\n|---|---|---|---|\n");
        }
        for entry in &group.entries {
            let cell = |text: &str| {
                let text: String = text.chars().take(120).collect();
                if text.is_empty() {
                    String::new()
                } else {
                    format!("`{}`", text.replace('|', "\\|").replace('`', "'"))
                }
            };
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                entry.case.replace('*', "\\*"),
                cell(&entry.question),
                cell(&entry.theirs),
                cell(&entry.ours)
            )
            .expect("a string takes everything");
        }
    }
    out
}

#[test]
fn what_is_written_is_read() {
    let text = "head\n\n== First\nbecause\nof this\n\na: route x\n    sendmail: y\n    mailrace:\n\nb*: rewrite H* *\n";
    let (head, groups) = read(text);
    assert_eq!(write(&head, &groups), text);
    assert!(groups[0].entries[1].fits("bcd", "rewrite HS a@b"));
    assert!(!groups[0].entries[1].fits("bcd", "rewrite ES a@b"));
    assert!(!groups[0].entries[0].fits("a", "route xx"));
}
