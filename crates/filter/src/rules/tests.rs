//! Rule files, right and wrong, and the problems that a person reads.

use super::*;

#[track_caller]
fn problems(text: &str, wanted: &[&str]) {
    let found = RuleSet::parse(&[("a.rules", text)]).map(|_| ()).unwrap_err();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}\n{wanted}");
    }
}

#[test]
fn every_statement_is_read() {
    let text = r#"
# A comment
rule everything {
  for listener "mx", submission
  for direction inbound
  for recipient "@example.com", postmaster@example.org
  for list = announce
  match all {
    any { header ~ /a/ }
    none {
      raw header Subject !~ /a\/b/
      decoded header "Subject" contains "x", "y"
      part header Content-Type ~ /x/
    }
    subject = "a", "b"
    text ~ /a|b/
    header X-A present
    header X-A missing
    sender = ""
    recipient != "@example.com"
    client address = 192.0.2.0/24, 2001:db8::/32
    client name = ".example.net"
    helo ~ /^[0-9.]+$/
    auth spf = fail, softfail
    size > 10M
    header size >= 64K
    recipients != 5
    parts <= 5
    attachments = 0
    part type = "text/html"
    attachment name ~ /\.(exe|scr)$/
    attachment type = exe
    charset = gb2312
    script = "Han" over 50%
    header Subject script = Cyrillic
    damage
    damage = unterminated, "no-delimiter"
    not fully scanned
  }
  add header X-A "a"
  change header X-B "b"
  remove header X-C
  remove header X-D ~ /x/
  tag subject "[x] "
  redirect a@example.com
  copy "b@example.com"
  route "smtp:[192.0.2.1]"
  class bulk
  queue group slow
  quarantine recipient
}
rule "all messages" { accept }
rule r1 {
  reject "554 5.7.0 no"
}
rule r2 {
  defer "come back"
}
"#;
    let rules = RuleSet::parse(&[("a.rules", text)]).unwrap();
    let [all, accept, reject, defer] = rules.rules() else { panic!("{rules:?}") };
    assert_eq!((all.name(), all.line(), all.actions().len()), ("everything", 3, 11));
    assert_eq!((accept.name(), accept.line()), ("all messages", 52));
    let shown = |rule: &Rule| rule.actions().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(reject), ["reject 554 5.7.0 no"]);
    assert_eq!(shown(defer), ["defer 451 4.7.1 come back"]);
    assert!(shown(all).contains(&"remove header X-D ~ /x/".to_owned()));
    assert_eq!(rules.file_of(all), "a.rules");
}

#[test]
fn problems_name_file_line_and_next_step() {
    problems("reject\n", &["a.rules line 1: \"reject\" stands outside a rule"]);
    problems("rule {\n}\n", &["a.rules line 1: a rule begins with \"rule NAME {\""]);
    problems("rule a {\n  reject\n", &["a.rules line 2: rule \"a\" of line 1 has no \"}\" at its end"]);
    problems("}\n", &["a.rules line 1: \"}\" closes nothing"]);
    problems("rule a {\n}\n", &["a.rules line 2: rule \"a\" has no action"]);
    problems("rule a { reject }\nrule a { reject }\n", &["a.rules line 2: a rule \"a\" is in a.rules line 1"]);
    problems("rule a {\n match some {\n }\n reject\n}\n", &["a.rules line 2: a block begins with \"match any {\""]);
    problems("rule a {\n match any {\n }\n reject\n}\n", &["a.rules line 3: a group without a condition"]);
    problems("rule a {\n reject\n discard\n}\n", &["a.rules line 3: an action behind one that ends the rule"]);
    problems("rule a {\n header ~ /x/\n}\n", &["a.rules line 2: this is no action"]);
    let condition = |line: &str, wanted: &str| {
        problems(
            &format!("rule a {{\n match any {{\n {line}\n }}\n reject\n}}\n"),
            &[&format!("a.rules line 3: {wanted}")],
        );
    };
    condition("colour = red", "\"colour\" is no condition; conditions are on header");
    condition("header ~ /(/", "/(/ is no regular expression: ");
    condition("header ~ /(a{900}){900}/", "/(a{900}){900}/ is too large a pattern");
    condition("header ~ /(a)\\1/", "/(a)\\1/ is no regular expression: ");
    condition("header ~ \"x\"", "\"~\" is followed by a pattern between slashes");
    condition("header Subject", "a field is followed by ~ /pattern/");
    condition("header \"a:b\" ~ /x/", "\"a:b\" is no name of a header field");
    condition("script = Chinese", "\"Chinese\" is no script of Unicode");
    condition("script = Han over 0%", "\"0\" is no share");
    condition("size > ten", "\"ten\" is no number");
    condition("client address = 192.0.2", "\"192.0.2\" is no address or network");
    condition("attachment type = docx", "\"docx\" is no type of a file; types are 7z, arj");
    condition("damage = broken", "\"broken\" is no damage; those are malformed-header");
    condition("subject = \"a\" \"b\"", "\"b\" does not belong here");
    condition("subject = \"a\",", "a value is missing");
    let action = |line: &str, wanted: &str| {
        problems(&format!("rule a {{\n {line}\n}}\n"), &[&format!("a.rules line 2: {wanted}")]);
    };
    action("reject \"450 4.7.1 later\"", "\"450\" does not fit the action; its code begins with 5");
    action("reject \"550 4.7.1 later\"", "\"4.7.1\" does not fit \"550\"");
    action("defer \"\"", "a reply has 1 to 400 printable ASCII characters");
    action("quarantine", "write \"quarantine recipient\"");
    action("copy nobody@", "\"nobody@\" is no address: ");
    action("add header \"a b\" x", "\"a b\" is no name of a header field");
    action("for sender x", "\"for\" is followed by listener");
    action("for direction up", "a direction is inbound or outbound");
}

#[test]
fn the_set_is_whole_or_nothing() {
    let found = RuleSet::parse(&[("a.rules", "rule a { reject }\n"), ("b.rules", "rule b {\n hold\n x\n}\n\ny\n")]);
    let found: Vec<String> = found.unwrap_err().iter().map(ToString::to_string).collect();
    assert!(found.len() == 2 && found[0].starts_with("b.rules line 3: ") && found[1].starts_with("b.rules line 6: "));
    let many = "x\n".repeat(1_000);
    assert_eq!(RuleSet::parse(&[("a.rules", &many)]).unwrap_err().len(), 50);
    assert!(RuleSet::parse(&[]).unwrap().rules().is_empty());
}
