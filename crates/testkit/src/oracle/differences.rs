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

/// Questions of a group that the page shows.
const SHOWN_MAX: usize = 2;

/// Writes `docs/sendmail-differences.md`: each group with its reason and a few of its questions.
pub fn page(groups: &[Group], cases: usize, questions: usize) -> String {
    let mut out = String::from("# Differences from sendmail\n\n");
    writeln!(
        out,
        "Which questions does mailrace answer differently from sendmail, and why?\n\n\
         Debian's sendmail was asked {questions} questions in {cases} settings (`bench/oracle/corpus`). All answers that are not\n\
         listed here are the same: destination, address, reply code and enhanced code; texts of replies may differ. A table has\n\
         {SHOWN_MAX} examples at most; `bench/oracle/differences` has all. A test checks every answer and generates this page\n\
         (`ORACLE=write cargo test -p mailrace --test commands oracle`)."
    )
    .expect("a string takes everything");
    for group in groups {
        write!(out, "\n## {}\n\n{}\n", group.title, group.reason.join("\n")).expect("a string takes everything");
        // A group without questions of the corpus has only words; other tests check it.
        if !group.entries.is_empty() {
            let count = group.entries.len();
            let shown = examples(&group.entries);
            if count > shown.len() {
                write!(out, "\n{count} questions, among them:\n").expect("a string takes everything");
            }
            out.push_str("\n| Setting | Question | sendmail | mailrace |\n|---|---|---|---|\n");
            shown.into_iter().for_each(|entry| row(&mut out, entry));
        }
    }
    out
}

/// The entries that the page shows: the first of each setting, then the next ones, in the order of the file.
fn examples(entries: &[Entry]) -> Vec<&Entry> {
    let is_first = |at: usize| entries[..at].iter().all(|earlier| earlier.case != entries[at].case);
    let (firsts, others): (Vec<_>, Vec<_>) = (0..entries.len()).partition(|at| is_first(*at));
    let mut chosen: Vec<usize> = firsts.into_iter().chain(others).take(SHOWN_MAX).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| &entries[at]).collect()
}

/// Appends a row of the table; a cell has 120 characters at most.
fn row(out: &mut String, entry: &Entry) {
    let cell = |text: &str| {
        let text: String = text.chars().take(120).collect();
        if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|").replace('`', "'")) }
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

#[test]
fn what_is_written_is_read() {
    let text = "head\n\n== First\nbecause\nof this\n\na: route x\n    sendmail: y\n    mailrace:\n\nb*: rewrite H* *\n";
    let (head, groups) = read(text);
    assert_eq!(write(&head, &groups), text);
    assert!(groups[0].entries[1].fits("bcd", "rewrite HS a@b"));
    assert!(!groups[0].entries[1].fits("bcd", "rewrite ES a@b"));
    assert!(!groups[0].entries[0].fits("a", "route xx"));
}

#[test]
fn the_page_shows_a_few_questions_of_many_settings() {
    let entry = |case: &str, question: &str| Entry { case: case.into(), question: question.into(), ..Entry::default() };
    let many: Vec<Entry> = (0..9).map(|n| entry("a", &format!("route {n}"))).chain([entry("b", "route x")]).collect();
    let shown: Vec<&str> = examples(&many).into_iter().map(|entry| entry.question.as_str()).collect();
    assert_eq!(shown, ["route 0", "route x"]);
    let groups = [Group { title: "T".into(), reason: vec!["because".into()], entries: many }];
    let page = page(&groups, 2, 10);
    assert!(page.contains("## T\n\nbecause\n\n10 questions, among them:\n\n| Setting |"), "{page}");
    assert_eq!(page.lines().filter(|line| line.starts_with("| a |") || line.starts_with("| b |")).count(), SHOWN_MAX);
}
