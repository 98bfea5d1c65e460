//! `mailrace filter test` and `mailrace mime` as a user meets them.

use std::fs;
use std::path::Path;
use std::process::Output;
use testkit::harness::{program, run_with_input};

const CHARSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rules/charsets.rules");

#[track_caller]
fn run(arguments: &[&str], input: &str, exit: i32) -> String {
    let mut command = program();
    command.args(arguments).env_remove("MAILRACE_CONFIG");
    let Output { status, stdout, stderr } = run_with_input(&mut command, input);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

#[test]
fn a_message_from_standard_input_is_explained() {
    let test = ["filter", "test", "--rules", CHARSETS];
    let said = run(&test, "Subject: =?gb2312?B?x+uy6crV?=\n\nHello\n", 0);
    assert!(said.starts_with("match\n  rule chinese_charset matches ("), "{said}");
    assert!(said.contains("header Subject: \"=?gb2312?\"") && said.contains("quarantine recipient"), "{said}");
    let said = run(&test, "Subject: =?utf-8?B?6K+35p+l5pS277yB?=\n\nHello\n", 0);
    assert!(said.starts_with("match\n  rule chinese_text matches ("), "{said}");
    assert!(said.contains("header Subject, decoded: \"\u{8bf7}\u{67e5}\u{6536}\u{ff01}\""), "{said}");
    assert_eq!(run(&test, "Subject: Hello\n\nHello\n", 0), "no match\n");
    let said = run(&[&test[..], &["--all", "--direction", "outbound"]].concat(), "Subject: x\n\n", 0);
    assert!(said.starts_with("no match\n  rule chinese_charset is not for this message ("), "{said}");
    let said = run(&[&test[..], &["--json"]].concat(), "Subject: =?gb2312?B?x+uy6crV?=\n\n", 0);
    assert!(said.contains("\"match\":true") && said.contains("\"rule\":\"chinese_charset\""), "{said}");
}

#[test]
fn files_and_envelopes() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("filter");
    fs::create_dir_all(&directory).expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let rules = file("own.rules", "rule one {\n match all { sender = \"@a.example\"\n auth spf = fail }\n hold\n}\n");
    let (first, second) = (file("1.eml", "Subject: 1\n\n"), file("2.eml", "Subject: 2\n\n"));
    let test = ["filter", "test", "--rules", &rules, "--sender", "x@a.example", "--auth", "spf=fail", &first, &second];
    let said = run(&test, "", 0);
    assert!(said.starts_with(&format!("match {first}\n")) && said.contains(&format!("\nmatch {second}\n")), "{said}");
    let wrong = file("wrong.rules", "rule one {\n match any {\n  colour = red\n }\n hold\n}\n");
    let said = run(&["filter", "test", "--rules", &wrong, &first], "", 78);
    assert!(said.contains("wrong.rules line 3: \"colour\" is no condition"), "{said}");
    run(&["filter", "test", &first], "", 64);
    run(&["filter", "test", "--rules", &rules, "/nowhere"], "", 74);
}

#[test]
fn mime_text_and_trees() {
    assert_eq!(run(&["mime", "decode", "=?gb2312?B?xOO6ww==?="], "", 0), "\u{4f60}\u{597d}\n");
    assert_eq!(run(&["mime", "decode", "6K+35p+l5pS277yB"], "", 0), "\u{8bf7}\u{67e5}\u{6536}\u{ff01}\n");
    assert_eq!(run(&["mime", "decode", "--charset", "gb2312"], "xOO6ww==\n", 0), "\u{4f60}\u{597d}\n");
    assert_eq!(run(&["mime", "decode", "G1tI"], "", 0), "?[H\n", "what a terminal obeys is not shown");
    assert_eq!(run(&["mime", "encode", "\u{e4}"], "", 0), "=?utf-8?B?w6Q=?=\n");
    assert_eq!(run(&["mime", "encode", "--base64", "hello"], "", 0), "aGVsbG8=\n");
    run(&["mime", "decode", "*"], "", 65);
    let message = "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: image/png; name=a.png\n\
                   Content-Transfer-Encoding: base64\n\nTVqQ\n--b\n\nx\n";
    let said = run(&["mime", "tree"], message, 0);
    assert_eq!(
        said,
        "0 multipart/mixed  damage: unterminated\n  1 image/png  base64 4 bytes  name \"a.png\"  is exe\n  2 text/plain  \
         plain 2 bytes\n"
    );
    let said = run(&["mime", "tree", "--json"], message, 0);
    assert!(said.contains("\"kind\":\"exe\"") && said.contains("\"damage\":[\"unterminated\"]"), "{said}");
}
