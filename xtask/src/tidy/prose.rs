//! Sentences of comments and pages that hide what acts, as "Who is late …", "What was lost …" or "Nobody waits …".
//!
//! A sentence names the thing that acts. A question may begin with such a word, a heading and a short table cell too.
//! Comment lines end at column 120, which rustfmt does not see to.
//!
//! The tree has old places of both kinds. `xtask/prose.txt` has their number for each group of folders, so that a file
//! may move inside its group. More places than that number are an error; fewer pass. `cargo xtask prose --lower`
//! writes the lower numbers and never a higher one; `cargo xtask prose FOLDER` lists the places below a folder.

use super::Finding;
use crate::source::Source;
use crate::tree::File;
use std::collections::BTreeMap;

/// The numbers of old places.
pub(crate) const LIST: &str = "xtask/prose.txt";

/// Words that stand for a thing without naming it.
const VAGUE: &[&str] = &["Who", "What", "Whoever", "Whatever", "Whom", "Whose", "Nobody", "Somebody"];

/// The longest line of a comment, in columns.
const COLUMNS_MAX: usize = 120;

/// A table cell with fewer words is a label.
const CELL_WORDS_MIN: usize = 5;

/// The places of a file where prose should be better, each with the next step.
pub(super) fn places(file: &File, source: Option<&Source>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let blocks = match source {
        Some(source) => comment_blocks(source),
        None if file.has_extension("md") => page_blocks(&file.text),
        None => return found,
    };
    for block in &blocks {
        for (line, sentence) in block.sentences() {
            if let Some(word) = vague_subject(&sentence) {
                let shown: String = sentence.chars().take(40).collect();
                found.push((line, format!("\"{shown}…\": name the thing that acts in place of \"{word}\"")));
            }
        }
    }
    if source.is_some() {
        for (number, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && line.trim_start().starts_with("//") {
                found.push((number + 1, format!("a comment line of {columns} columns; {COLUMNS_MAX} at most")));
            }
        }
    }
    found.sort();
    found
}

/// Folders whose places are counted together, and how many they may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    allowed: usize,
    /// Each a folder or a file, relative to the root.
    paths: Vec<String>,
}

impl Group {
    fn holds(&self, path: &str) -> bool {
        self.paths.iter().any(|own| is_below(path, own))
    }
}

/// True for the folder or file itself and for all below it.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Compares the number of places in each group with the number that the list allows. A file in no group may have none.
pub(super) fn check(places: &BTreeMap<String, Vec<(usize, String)>>, groups: &[Group], findings: &mut Vec<Finding>) {
    let counts = counts(places);
    for (group, now) in groups.iter().zip(group_counts(groups, &counts)) {
        let (paths, allowed) = (group.paths.join(" "), group.allowed);
        if now > allowed {
            let message = format!(
                "{paths}: {now} places of vague or long comments, {allowed} allowed; cargo xtask prose FOLDER lists them"
            );
            findings.push(Finding::error(LIST, 0, message));
        }
    }
    for (path, found) in places {
        if !groups.iter().any(|group| group.holds(path)) {
            findings.extend(found.iter().map(|(line, message)| Finding::error(path, *line, message.clone())));
        }
    }
}

/// The number of places of each file.
pub(crate) fn counts(places: &BTreeMap<String, Vec<(usize, String)>>) -> BTreeMap<String, usize> {
    places.iter().map(|(path, found)| (path.clone(), found.len())).collect()
}

/// The number of places of each group; the first group that holds a file counts it.
fn group_counts(groups: &[Group], counts: &BTreeMap<String, usize>) -> Vec<usize> {
    let mut sums = vec![0; groups.len()];
    for (path, count) in counts {
        if let Some((_, sum)) = groups.iter().zip(&mut sums).find(|(group, _)| group.holds(path)) {
            *sum += count;
        }
    }
    sums
}

/// Reads the list: in each line a number and the paths of a group.
pub(crate) fn read_list(text: &str) -> Vec<Group> {
    let group = |line: &str| {
        let mut words = line.split_whitespace();
        let allowed = words.next()?.parse().ok()?;
        Some(Group { allowed, paths: words.map(str::to_owned).collect() })
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(group).collect()
}

/// The text of a list with the lower of both numbers for each group, and the sums before and after.
///
/// A group without places has no line, so that its files may have none.
pub(crate) fn lowered(old: &[Group], counts: &BTreeMap<String, usize>) -> (String, usize, usize) {
    let mut text =
        "# Old places of prose; xtask/src/tidy/prose.rs says what they are. The numbers only shrink.\n".to_owned();
    let (mut before, mut after) = (0, 0);
    for (group, now) in old.iter().zip(group_counts(old, counts)) {
        let number = now.min(group.allowed);
        before += group.allowed;
        after += number;
        if number > 0 {
            text.push_str(&format!("{number} {}\n", group.paths.join(" ")));
        }
    }
    (text, before, after)
}

/// Lines that belong together: a paragraph, a list item, a table cell, the comment lines above one item.
#[derive(Default)]
struct Block {
    /// Each line with its number.
    lines: Vec<(usize, String)>,
    is_cell: bool,
}

impl Block {
    /// Its sentences, each with the line it begins in.
    fn sentences(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut current: Option<(usize, String)> = None;
        for (number, line) in &self.lines {
            for word in line.split_whitespace() {
                let (_, text) = current.get_or_insert_with(|| (*number, String::new()));
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(word);
                if ends_sentence(word) {
                    found.extend(current.take());
                }
            }
        }
        found.extend(current);
        if self.is_cell {
            found.retain(|(_, text)| text.split(' ').count() >= CELL_WORDS_MIN);
        }
        found
    }
}

fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches([')', '"', '`', '*', '_']).ends_with(['.', '?', '!', ':', ';'])
}

/// The vague word that a sentence has as its subject.
fn vague_subject(sentence: &str) -> Option<&'static str> {
    let text = sentence.trim_start_matches(['*', '_', '(', '"', '`', '-', ' ']);
    let first = text.split(|c: char| !c.is_alphanumeric()).next()?;
    let is_question = sentence.trim_end_matches([')', '"', '*', '_']).ends_with('?');
    VAGUE.iter().copied().find(|word| *word == first && !is_question && text.split(' ').count() > 2)
}

/// The comments of a file; lines that follow each other are one block, an empty comment line ends it.
fn comment_blocks(source: &Source) -> Vec<Block> {
    let mut blocks = vec![Block::default()];
    let mut last = 0;
    let mut is_code = false;
    for comment in &source.comments {
        for (offset, line) in comment.text.lines().chain(comment.text.is_empty().then_some("")).enumerate() {
            let number = comment.line + offset;
            if number > last + 1 {
                is_code = false;
                blocks.push(Block::default());
            }
            last = number;
            add_line(&mut blocks, number, line, &mut is_code);
        }
    }
    blocks
}

/// The paragraphs, items and cells of a page.
fn page_blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut is_code) = (vec![Block::default()], false);
    for (number, line) in text.lines().enumerate() {
        add_line(&mut blocks, number + 1, line, &mut is_code);
    }
    blocks
}

fn add_line(blocks: &mut Vec<Block>, number: usize, line: &str, is_code: &mut bool) {
    let line = line.trim();
    if line.starts_with("```") {
        *is_code = !*is_code;
        blocks.push(Block::default());
        return;
    }
    if *is_code || line.is_empty() || line.starts_with('#') {
        blocks.push(Block::default());
        return;
    }
    if line.starts_with('|') {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        blocks.extend(cells.map(|cell| Block { lines: vec![(number, cell.to_owned())], is_cell: true }));
        blocks.push(Block::default());
        return;
    }
    let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
    if item.is_some() {
        blocks.push(Block::default());
    }
    if let Some(block) = blocks.last_mut() {
        block.lines.push((number, item.unwrap_or(line).to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn finds(path: &str, text: &str, lines: &[usize]) {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let source = path.ends_with(".rs").then(|| Source::new(path, text));
        let found: Vec<usize> = places(&file, source.as_ref()).into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn a_sentence_without_its_subject_is_found() {
        finds("a.rs", "/// Who is late goes last.\nfn a() {}", &[1]);
        finds("a.rs", "// It ends. What was lost\n// goes alone.\nfn a() {}", &[1]);
        finds("a.rs", "//! Fine.\n//!\n//! Nobody waits for it.", &[3]);
        finds("a.md", "- Whoever asks is answered.\n- A client asks.", &[1]);
        finds("a.md", "| Key | What is sent goes out again |", &[1]);
        finds("a.md", "**What comes first goes first.** Fine.", &[1]);
    }

    #[test]
    fn questions_labels_headings_and_code_are_left_alone() {
        finds("a.md", "# What it does for you\n\nWhat does it do?\n\n```\nWhat is this line here\n```", &[]);
        finds("a.md", "| What | Where it is |\n|---|---|\n", &[]);
        finds("a.rs", "const A: &str = \"Who is late goes last.\";\n// The client that is late goes last.", &[]);
    }

    #[test]
    fn a_comment_line_beyond_the_last_column_is_found() {
        finds("a.rs", &format!("// {}\nfn a() {{}}", "x".repeat(118)), &[1]);
        finds("a.rs", &format!("// {}\nlet a = \"{}\";", "x".repeat(117), "y".repeat(200)), &[]);
    }

    #[test]
    fn a_group_may_not_have_more_places_than_its_list_allows() {
        let places = |path: &str, number| (path.to_owned(), vec![(1, "x".to_owned()); number]);
        let now = BTreeMap::from([places("a/b.rs", 2), places("c/d/e.rs", 1), places("cd/f.rs", 1)]);
        for (list, errors) in
            [("3 a c\n1 cd", 0), ("9 a c cd/f.rs", 0), ("2 a c\n1 cd", 1), ("3 a c\n0 cd", 1), ("3 a c", 1), ("", 4)]
        {
            let mut findings = Vec::new();
            check(&now, &read_list(list), &mut findings);
            assert_eq!(findings.iter().filter(|finding| finding.error).count(), errors, "{list}");
        }
    }

    #[test]
    fn the_list_only_shrinks() {
        let now = BTreeMap::from([("a/b.rs".to_owned(), 5), ("c/d.rs".to_owned(), 1), ("e/f.rs".to_owned(), 9)]);
        let (text, before, after) = lowered(&read_list("# x\n3 a\n2 c\n1 d\n"), &now);
        assert_eq!(read_list(&text), read_list("3 a\n1 c\n"));
        assert_eq!((before, after), (6, 4));
    }
}
