//! `mailrace reason` as a user meets it: which rule a reply falls under, and the errors for bad rules.

use std::fs;
use std::path::Path;
use std::process::Output;
use testkit::harness::{program, run_with_input};

#[track_caller]
fn run(arguments: &[&str], input: &str, exit: i32) -> String {
    let mut command = program();
    command.arg("reason").args(arguments).env_remove("MAILRACE_CONFIG");
    let Output { status, stdout, stderr } = run_with_input(&mut command, input);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

#[test]
fn a_reply_has_a_reason_and_its_rule() {
    let said = run(&["421 4.7.0 Too many connections from your host"], "", 0);
    assert!(said.starts_with("reason  rate: too much or too fast for them\nrule    built-in rules line "), "{said}");
    assert!(said.ends_with("pace    the destination gets less\n"), "{said}");
    let said = run(&["--json", "--stage", "rcpt", "550 5.1.1 User unknown"], "", 0);
    assert!(said.contains("\"reason\":\"recipient\"") && said.contains("\"slow\":false"), "{said}");
    assert!(run(&["Connection refused by [192.0.2.1]"], "", 0).starts_with("reason  network"), "our own words");
    let lines = run(&["-"], "550 5.7.1 spam\n\u{1b}[2J\n", 0);
    assert!(lines.starts_with("spam       line ") && lines.lines().count() == 2, "{lines}");
    assert!(!lines.contains('\u{1b}'), "what a terminal obeys is not shown");
    run(&[], "", 64);
    run(&["--stage", "quit", "x"], "", 64);
}

#[test]
fn an_own_file_replaces_the_rules() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own.rules");
    let rules = path.to_str().expect("UTF-8");
    fs::write(&path, run(&["--print"], "", 0)).expect("a file");
    assert!(run(&["--rules", rules, "550 5.1.1 gone"], "", 0).contains("own.rules line "));
    fs::write(&path, "spam * 5xx slow gone\n").expect("a file");
    let said = run(&["--rules", rules, "550 5.1.1 gone"], "", 0);
    assert!(said.starts_with("reason  spam") && said.contains("own.rules line 1: spam * 5xx slow gone"), "{said}");
    let set = format!("delivery.classes={rules}");
    assert!(run(&["--set", &set, "550 5.1.1 gone"], "", 0).contains("own.rules line 1"));
    assert!(run(&["--set", &set, "450 later"], "", 0).contains("rule    none fits"));
    fs::write(&path, "spam * 5xx slow (\nfrob\n").expect("a file");
    let said = run(&["--rules", rules, "x"], "", 78);
    assert!(said.contains("own.rules line 1: \"(\" is no regular expression") && said.contains("line 2: "), "{said}");
}
