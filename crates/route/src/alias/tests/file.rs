//! The text of an aliases file.

use crate::alias::{LintSettings, Programs, lint, parse_aliases};

fn complaints(text: &str) -> Vec<String> {
    let read = parse_aliases("/etc/aliases", text, &|domain| domain == "our.test");
    read.complaints.iter().map(|one| format!("{}: {}", one.line.unwrap_or_default(), one.text)).collect()
}

#[test]
fn newaliases_says_the_same() {
    // Recorded from `newaliases`.
    let text = r#"postmaster: root
games: games, news
awc: Andrew.Chang
andrew.chang: awc@our.test, lp
sync: nosuch1
nosuch1: sync
bin: x1, lp
x1: bin
x2: x3, lp
x3: x2
emptyl: :include:/tmp/alias-sm/etc/empty
quo: "man"
two: \lp, lp
addr: joe@our.test
joe: lp@our.test
mixed: "Joe Doe" <lp>, (only comment), news
nested: :include:/tmp/alias-sm/etc/nest
sp ace: lp
progd: "|/x y", "|/x y"
"#;
    let read = parse_aliases("aliases", text, &|_| false);
    assert_eq!(read.summary.to_string(), "19 aliases, longest 36 bytes, 314 bytes total");
    assert_eq!(read.table.len(), 19);
}

#[test]
fn lines_are_joined_and_comments_left_out() {
    let text = "# one\na: x,\n  y\n\tz\n\nb: x, \\\ny\nC : 1\n\"d e\": 2\nf: v\r\n";
    let read = parse_aliases("aliases", text, &|_| false);
    let entries: Vec<(&str, &str, Option<u32>)> = read.table.iter().map(|hit| (hit.key, hit.value, hit.line)).collect();
    assert_eq!(
        entries,
        [
            ("a", "x,  y\tz", Some(2)),
            ("b", "x, y", Some(6)),
            ("c", "1", Some(8)),
            ("d e", "2", Some(9)),
            ("f", "v", Some(10))
        ]
    );
    assert!(read.complaints.is_empty(), "{:?}", read.complaints);
}

#[test]
fn what_cannot_be_used_is_said() {
    assert_eq!(
        complaints(
            "a: 1\nempty:\n\n lost\nnocolon lp\n: x\ny@other.test: z\nok@our.test: z\nA: 2\n# c\n lost\nsp ace: z\n"
        ),
        [
            "2: \"empty\": has no value; it is ignored",
            "3: \"lost\" continues no line; it is ignored",
            "5: \"nocolon lp\" has no colon behind the name; it is ignored",
            "6: \"\" is no name; it is ignored",
            "7: \"y@other.test\" is no name of this machine, and only those have aliases; it is ignored",
            "9: \"a\": is in line 1 too; the last one counts",
            "10: a line behind this comment begins with a blank and so belongs to it",
            "12: \"sp ace\" has blanks; as in sendmail it means sp.ace",
        ]
    );
}

#[test]
fn lints_find_what_is_doubtful() {
    let many = (0..20).map(|number| format!("u{number}")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "postmaster: root\nmailer-daemon: postmaster\nloner: loner\nkeep: keep, ann\na: b@our.test\nb: c\nc: a, x\n\
         run: \"|/opt/x/y -z\", \"|/usr/bin/vacation joe\"\nup: \"|/usr/bin/../x\"\ninc: :include:lists/x\nfile: mail/archive\n\
         owner-nolist: x\nbig: {many}\nsmall: u1, U1\nowned: :include:/x\nowner-owned: y\nbadm: a b\n"
    );
    let read = parse_aliases("/etc/aliases", &text, &|_| false);
    let programs = Programs::In(vec!["/usr/bin/".into()]);
    let settings = LintSettings { programs: &programs, is_local: &|domain| domain == "our.test", members_many: 20 };
    let lints: Vec<String> = lint(&read.table, &settings)
        .iter()
        .map(|lint| format!("{}: {}", lint.place.line.unwrap_or_default(), lint.text))
        .collect();
    assert_eq!(
        lints,
        [
            "3: loner: it leads to itself only",
            "5: a → b → c → a is a loop",
            "8: run: \"/opt/x/y\" is in none of the directories of [local] programs, and will not run",
            "9: up: \"/usr/bin/../x\" is in none of the directories of [local] programs, and will not run",
            "10: inc: \"lists/x\" is no full name of a file",
            "10: inc: a list without owner-inc: errors of its members go to whoever wrote to it",
            "11: file: \"mail/archive\" is taken for a user",
            "12: owner-nolist: there is no list \"nolist\"",
            "13: big: a list without owner-big: errors of its members go to whoever wrote to it",
            "14: small: U1 is named twice",
            "17: badm: \"a b\" is one name with blanks; a comma parts two names",
            "0: there is no alias root",
        ]
    );
    // Negative control: a file without faults has none.
    let good = parse_aliases("aliases", "postmaster: root\nmailer-daemon: postmaster\nroot: ann\n", &|_| false);
    assert!(lint(&good.table, &settings).is_empty());
    let off = LintSettings { programs: &Programs::None, ..settings };
    assert!(lint(&read.table, &off).iter().any(|lint| lint.text.contains("will not run: [local] programs is false")));
}
