//! The corpus of `bench/oracle`: cases of `/etc/mail`, and the answers of the real sendmail to each question.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A directory of the corpus.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub dir: PathBuf,
    /// Words of case.toml.
    pub options: BTreeMap<String, Value>,
    pub questions: Vec<Question>,
}

/// One question with its recorded answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// As it is written.
    pub text: String,
    pub asked: Asked,
    /// The lines of the answer.
    pub answer: Vec<String>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Where mail for an address goes.
    Route { address: String },
    /// How an address is written to an esmtp mailer. Flags: E envelope or H header, S sender or R recipient.
    Rewrite { flags: String, address: String },
    /// How a field of a message from this machine arrives elsewhere.
    Header { field: String, value: String },
    /// A transaction of a client.
    Transaction { client: IpAddr, sender: String, recipients: Vec<String>, extent: Extent },
    /// Commands of a client.
    Dialog { client: IpAddr, commands: Vec<String> },
}

/// How far a transaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// To the last RCPT.
    Recipients,
    /// A message is sent; it is known whether it is queued.
    Message,
    /// A message is sent; the envelopes in the queue are known.
    Envelopes,
}

/// `bench/oracle`.
pub fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/oracle")
}

/// All cases, by name.
pub fn cases() -> Vec<Case> {
    let mut names: Vec<PathBuf> = fs::read_dir(home().join("corpus"))
        .expect("the corpus")
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.join("case.toml").is_file())
        .collect();
    names.sort();
    names.into_iter().map(case).collect()
}

fn case(dir: PathBuf) -> Case {
    let name = dir.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let text = fs::read_to_string(dir.join("case.toml")).expect("case.toml");
    let options = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(|line| {
        let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{name}/case.toml: {line}"));
        // Flags, texts and lists of texts are written alike in TOML and JSON.
        (
            key.to_owned(),
            serde_json::from_str(value).unwrap_or_else(|error| panic!("{name}/case.toml: {line}: {error}")),
        )
    });
    let options = options.collect();
    let answers = fs::read_to_string(dir.join("answers"))
        .unwrap_or_else(|_| panic!("{name} has no answers; run bench/oracle/record {name}"));
    let questions = questions(&name, &answers);
    let asked = fs::read_to_string(dir.join("questions")).expect("questions");
    let asked: Vec<&str> = asked.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    let answered: Vec<&str> = questions.iter().map(|question| question.text.as_str()).collect();
    assert_eq!(asked, answered, "{name}: questions and answers are not the same; run bench/oracle/record {name}");
    Case { name, dir, options, questions }
}

fn questions(name: &str, answers: &str) -> Vec<Question> {
    let mut found: Vec<Question> = Vec::new();
    for line in answers.lines() {
        if let Some(line) = line.strip_prefix("    ") {
            let question = found.last_mut().unwrap_or_else(|| panic!("{name}/answers begins with an answer"));
            question.answer.push(line.to_owned());
        } else {
            found.push(Question { text: line.to_owned(), asked: asked(name, line), answer: Vec::new() });
        }
    }
    for question in &mut found {
        if let Asked::Dialog { commands, .. } = &mut question.asked {
            // The first line is the greeting; replies are indented further.
            *commands = question.answer.iter().skip(1).filter(|line| !line.starts_with(' ')).cloned().collect();
        }
    }
    found
}

fn asked(name: &str, line: &str) -> Asked {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap_or_else(|_| panic!("{name}: \"{text}\" is no address: {line}"));
    match words.as_slice() {
        ["route", address] => Asked::Route { address: (*address).to_owned() },
        ["rewrite", flags, address] => Asked::Rewrite { flags: (*flags).to_owned(), address: (*address).to_owned() },
        ["header", field, value] => Asked::Header { field: (*field).to_owned(), value: (*value).to_owned() },
        ["dialog", client] => Asked::Dialog { client: ip(client), commands: Vec::new() },
        [kind @ ("smtp" | "message" | "envelope"), client, sender, recipients @ ..] => Asked::Transaction {
            client: ip(client),
            sender: sender.trim_matches(['<', '>']).to_owned(),
            recipients: recipients.iter().map(|&recipient| recipient.to_owned()).collect(),
            extent: match *kind {
                "smtp" => Extent::Recipients,
                "message" => Extent::Message,
                _ => Extent::Envelopes,
            },
        },
        _ => panic!("{name}: not a question: {line}"),
    }
}

/// Splits at blanks; text between two apostrophes or two quotation marks is part of one word.
///
/// A backslash outside apostrophes stands for the next character, as in a shell; inside quotation marks only before one
/// of those, and before another backslash.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut inside) = (Vec::new(), None::<String>, None::<char>);
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match (inside, c) {
            (Some(mark), _) if c == mark => inside = None,
            (Some('"'), '\\') if matches!(rest.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(rest.next())
            }
            (None, '\\') => word.get_or_insert_default().extend(rest.next()),
            (None, '\'' | '"') => {
                inside = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(words(r#"a 'b c' "d 'e'" 'f"g' h\ i '\j' "" "#), ["a", "b c", "d 'e'", "f\"g", "h i", "\\j", ""]);
}
