//! A comparison of recorded answers of the real sendmail with mailrace: equal, or a difference that is written down.
//!
//! `bench/oracle/corpus` has the files of `/etc/mail` of many settings, questions, and sendmail's recorded answers; no
//! sendmail is needed here. Where mailrace answers otherwise on purpose, `bench/oracle/differences` says why. A
//! difference that is not there fails the test, and so does one that is there and no longer is one. `ORACLE=write`
//! renews the answers in that file and the page; `ORACLE=show` prints all differences, and texts that are not the same.

mod ours;
mod setting;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use testkit::name_server::NameServer;
use testkit::oracle::answer::Answer;
use testkit::oracle::corpus::{Case, Question};
use testkit::oracle::differences::{Entry, Group};

/// A question that was answered otherwise.
#[derive(Debug)]
struct Different {
    case: String,
    question: String,
    theirs: Answer,
    ours: Answer,
}

/// All questions of a case.
fn ask(case: &Case) -> Vec<(Question, Answer)> {
    let zone = std::fs::read_to_string(case.dir.join("zone")).unwrap_or_default();
    let setting = setting::setting(case, &NameServer::start(&zone).address.to_string());
    let ours = ours::Ours::start(case, setting.setup);
    case.questions.iter().map(|question| (question.clone(), ours.answer(&question.asked))).collect()
}

/// Those that are not as sendmail's.
fn compare(case: &str, answered: Vec<(Question, Answer)>) -> Vec<Different> {
    let mut different = Vec::new();
    for (question, ours) in answered {
        let theirs = testkit::oracle::answer::theirs(&question);
        if theirs.lines != ours.lines {
            different.push(Different { case: case.to_owned(), question: question.text, theirs, ours });
        }
    }
    different
}

/// Asks all cases, two at a time.
fn all(cases: &[Case]) -> Vec<Different> {
    let (next, found) = (Mutex::new(cases.iter()), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(case) = next.lock().expect("nobody panics with it").next() else { return };
                    let different = compare(&case.name, ask(case));
                    found.lock().expect("nobody panics with it").insert(case.name.clone(), different);
                }
            });
        }
    });
    found.into_inner().expect("all are done").into_values().flatten().collect()
}

/// Puts answers into the entries they belong to, and returns the faults of the file.
fn enter(different: &[Different], groups: &mut [Group], is_writing: bool) -> String {
    let mut wrong = String::new();
    for one in different {
        let (theirs, ours) = (one.theirs.lines.join(" / "), one.ours.lines.join(" / "));
        let entry = groups.iter().flat_map(|group| &group.entries).any(|entry| entry.fits(&one.case, &one.question));
        if !entry {
            writeln!(wrong, "{}: {}\n    sendmail: {theirs}\n    mailrace: {ours}", one.case, one.question)
                .expect("a string");
        }
    }
    for entry in groups.iter_mut().flat_map(|group| &mut group.entries) {
        let Some(one) = different.iter().find(|one| entry.fits(&one.case, &one.question)) else {
            writeln!(
                wrong,
                "{}: {}\n    is in bench/oracle/differences and is no difference",
                entry.case, entry.question
            )
            .expect("a string");
            continue;
        };
        let now = if entry.is_pattern() {
            continue;
        } else {
            Entry { theirs: one.theirs.lines.join(" / "), ours: one.ours.lines.join(" / "), ..entry.clone() }
        };
        if is_writing {
            *entry = now;
        } else if *entry != now {
            writeln!(
                wrong,
                "{}: {}\n    is another difference now: {now:?}\n    ORACLE=write renews the file",
                entry.case, entry.question
            )
            .expect("a string");
        }
    }
    wrong
}

#[test]
fn mailrace_answers_as_sendmail_did() {
    let mode = std::env::var("ORACLE").unwrap_or_default();
    let cases = testkit::oracle::corpus::cases();
    let questions: usize = cases.iter().map(|case| case.questions.len()).sum();
    assert!(questions > 1_000, "the corpus has {questions} questions");
    let different = all(&cases);
    if mode == "show" {
        for one in &different {
            println!(
                "{}: {}\n    sendmail: {}\n    mailrace: {}",
                one.case,
                one.question,
                one.theirs.lines.join(" / "),
                one.ours.lines.join(" / ")
            );
        }
    }
    let (file, page) = (
        testkit::oracle::corpus::home().join("differences"),
        testkit::oracle::corpus::home().join("../../docs/sendmail-differences.md"),
    );
    let (head, mut groups) =
        testkit::oracle::differences::read(&std::fs::read_to_string(&file).expect("the file of differences"));
    let is_writing = mode == "write";
    let wrong = enter(&different, &mut groups, is_writing);
    let text = testkit::oracle::differences::page(&groups, cases.len(), questions);
    if is_writing {
        std::fs::write(&file, testkit::oracle::differences::write(&head, &groups)).expect("written");
        std::fs::write(&page, &text).expect("written");
    }
    let count = wrong.lines().filter(|line| !line.starts_with(' ')).count();
    assert!(wrong.is_empty(), "{count} of {questions} questions:\n{wrong}");
    let kept = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(
        kept == text,
        "docs/sendmail-differences.md is stale; run: ORACLE=write cargo test -p mailrace --test commands oracle"
    );
}

#[test]
fn a_difference_that_nobody_wrote_down_is_seen() {
    let answer = |line: &str| Answer { lines: vec![line.to_owned()], texts: Vec::new() };
    let different = |question: &str| Different {
        case: "case".to_owned(),
        question: question.to_owned(),
        theirs: answer("rcpt 250 2.1.5"),
        ours: answer("rcpt 550 5.7.1"),
    };
    let entry = |question: &str| Entry {
        case: "case".to_owned(),
        question: question.to_owned(),
        theirs: "rcpt 250 2.1.5".to_owned(),
        ours: "rcpt 550 5.7.1".to_owned(),
    };
    let group = |entries: Vec<Entry>| vec![Group { title: "t".to_owned(), reason: vec!["r".to_owned()], entries }];
    let wrong = |different: &[Different], entries| enter(different, &mut group(entries), false);
    assert_eq!(wrong(&[different("a")], vec![entry("a")]), "");
    assert!(wrong(&[different("a"), different("b")], vec![entry("a")]).starts_with("case: b\n"));
    assert!(wrong(&[different("a")], vec![entry("a"), entry("b")]).contains("is no difference"));
    let other = Entry { ours: "rcpt 451 4.3.0".to_owned(), ..entry("a") };
    assert!(wrong(&[different("a")], vec![other]).contains("another difference"));
}

#[test]
fn an_answer_that_is_not_sendmails_is_seen() {
    for case in testkit::oracle::corpus::cases() {
        for question in case.questions {
            let right = testkit::oracle::answer::theirs(&question);
            assert!(!right.lines.is_empty(), "{}: {} has no answer", case.name, question.text);
            assert!(compare(&case.name, vec![(question.clone(), right.clone())]).is_empty());
            let mut wrong = right;
            wrong.lines[0].push('x');
            assert_eq!(compare(&case.name, vec![(question, wrong)]).len(), 1);
        }
    }
}
