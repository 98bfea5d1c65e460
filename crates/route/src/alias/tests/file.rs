//! The text of an aliases file.

use crate::alias::{Included, LintSettings, lint, parse_aliases};

/// Only what lies in `/usr/bin` runs.
fn command(text: &str) -> Result<(), String> {
    if text.starts_with("/usr/bin/") { Ok(()) } else { Err("it may not be run; put a link to it there".to_owned()) }
}

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

/// Entries as administrators write them: all members count.
#[test]
fn comments_stand_anywhere() {
    for (text, value) in [
        ("l: ann,\n# bob left\n  carl\n", "ann,  carl"),
        ("l: ann,\n\n  carl\n", "ann,  carl"),
        ("l: ann\n  # bob, left\n  , carl\n", "ann  , carl"),
        ("l: ann,\n\t# one\n#two\n\n\tcarl,\n# three\n", "ann,\tcarl,"),
        ("l: ann, # the boss\n  carl # and: his deputy, Dora\n", "ann,   carl"),
        ("l:\n# members\n  ann\n", "ann"),
        ("l:  # members\r\n  ann,\r\n  carl\r\n", "ann,  carl"),
        ("\u{feff}l: ann\n", "ann"),
        ("\u{feff}# x\nl:\tann\t# y\n", "ann"),
        ("l: ann, \\\n# no\ncarl\n", "ann, carl"),
        ("l: \"|/bin/x #1\", ann#2 # 3\n", "\"|/bin/x #1\", ann#2"),
        ("l: ann (room #3), Bob #1 <bob>, carl #2\n", "ann (room #3), Bob #1 <bob>, carl"),
        ("l: \"|/bin/x a,\n  #1\"\n", "\"|/bin/x a,  #1\""),
    ] {
        let read = parse_aliases("aliases", text, &|_| false);
        let entries: Vec<(&str, &str)> = read.table.iter().map(|hit| (hit.key, hit.value)).collect();
        assert_eq!(entries, [("l", value)], "{text:?}");
        assert!(read.complaints.is_empty(), "{text:?}: {:?}", read.complaints);
    }
}

/// The octets of a member that cannot be are refused where they stand.
#[test]
fn control_characters_are_refused_with_their_line() {
    assert_eq!(
        complaints("1:\0\nb: x\0y\nc: x\u{7}\nd: a\tb\ne: x\ry\nf\0: x\n"),
        [
            "1: \"1\": has the control character U+0000; it is ignored",
            "2: \"b\": has the control character U+0000; it is ignored",
            "3: \"c\": has the control character U+0007; it is ignored",
            "5: \"e\": has the control character U+000D; it is ignored",
            "6: \"f\u{fffd}\" is no name; it is ignored",
        ]
    );
}

#[test]
fn what_cannot_be_used_is_said() {
    assert_eq!(
        complaints(
            " lost\nempty:\nb: 1\n\nnocolon lp\n: x\ny@other.test: z\nok@our.test: z\nB: 2\n# c\n lost\nsp ace: z\n"
        ),
        [
            "1: \"lost\" continues no line; it is ignored",
            "2: \"empty\": has no value; it is ignored",
            "5: \"nocolon lp\" has no colon behind the name; it is ignored",
            "6: \"\" is no name; it is ignored",
            "7: \"y@other.test\" is no name of this machine, and only those have aliases; it is ignored",
            "11: \"lost\" begins with a blank behind a comment or an empty line, and \"B\" ends without a comma; it is \
             ignored",
            "9: \"b\": is in line 3 too; the last one counts",
            "12: \"sp ace\" has blanks; as in sendmail it means sp.ace",
        ]
    );
}

#[test]
fn lints_find_what_is_doubtful() {
    let many = (0..20).map(|number| format!("u{number}")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "postmaster: root\nmailer-daemon: postmaster\nloner: loner\nkeep: keep, ann\na: b@our.test\nb: c\nc: a, x\n\
         run: \"|/opt/x/y -z\", \"|/usr/bin/vacation joe\"\nup: \"|/usr/bin/x\"\ninc: :include:lists/x\nfile: mail/archive\n\
         owner-nolist: x\nbig: {many}\nsmall: u1, U1\nowned: :include:/x\nowner-owned: y\nbadm: a b\n"
    );
    let read = parse_aliases("/etc/aliases", &text, &|_| false);
    let settings = LintSettings {
        command: &command,
        is_local: &|domain| domain == "our.test",
        members_many: 20,
        delimiter: Some('+'),
        is_alias: &|_| false,
        is_account: &|_| None,
        include: &|_| Ok(Included { text: "x@y.test\n".into(), is_trusted: true }),
    };
    let lints: Vec<String> = lint(&read.table, &settings)
        .iter()
        .map(|lint| format!("{}: {}", lint.place.line.unwrap_or_default(), lint.text))
        .collect();
    assert_eq!(
        lints,
        [
            "3: loner: it leads to itself only",
            "5: a → b → c → a is a loop",
            "8: run: \"|/opt/x/y -z\" will not run: it may not be run; put a link to it there",
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
}

/// Doubts about aliases where `joe` and `Ann` are the accounts, and these the files.
fn doubts(text: &str, files: &[(&str, &str, bool)]) -> Vec<String> {
    let standing = "postmaster: joe\nmailer-daemon: joe\nroot: joe\n";
    let read = parse_aliases("/etc/aliases", &format!("{standing}{text}"), &|_| false);
    let settings = LintSettings {
        command: &command,
        is_local: &|domain| domain == "our.test",
        members_many: 20,
        delimiter: Some('+'),
        is_alias: &|name| name == "elsewhere",
        is_account: &|name| Some(["joe", "Ann"].contains(&name)),
        include: &|path| match files.iter().find(|(name, ..)| *name == path) {
            Some((_, text, is_trusted)) => Ok(Included { text: (*text).into(), is_trusted: *is_trusted }),
            None => Err(format!(":include: {path}: there is none").into()),
        },
    };
    let lints = lint(&read.table, &settings);
    lints.iter().map(|lint| format!("{}:{} {}", lint.place.file, lint.place.line.unwrap_or(0), lint.text)).collect()
}

#[test]
fn targets_that_are_not_there_are_told() {
    let text = "a: joe, Ann, nosuch\nb: joe+box, nosuch+box, b2+x@our.test\nb2+*: joe\nc: elsewhere, \\elsewhere\n\
                d: nobody@our.test, x@other.test\nself: self, joe\n";
    assert_eq!(
        doubts(text, &[]),
        [
            "/etc/aliases:4 a: nosuch is neither an alias nor an account; mail for it is refused",
            "/etc/aliases:5 b: nosuch+box is neither an alias nor an account; mail for it is refused",
            "/etc/aliases:7 c: \\elsewhere is neither an alias nor an account; mail for it is refused",
            "/etc/aliases:8 d: nobody@our.test is neither an alias nor an account; mail for it is refused",
            "/etc/aliases:9 self: self is neither an alias nor an account; mail for it is refused",
        ]
    );
    assert_eq!(doubts("a: joe, x@other.test\n", &[]), [""; 0], "negative control");
}

#[test]
fn files_that_are_included_are_looked_into() {
    let files = [
        ("/l/good", "# people\nann@x.test\njoe\n", false),
        ("/l/bad", "ann@x.test\nnosuch\na b\n\"|/usr/bin/x\"\n:include:/l/next\n", false),
        ("/l/next", "\"|/opt/x\"\n:include:/l/bad\n", true),
        ("/l/empty", "# nobody\n", true),
    ];
    let owners = "owner-a: joe\nowner-b: joe\nowner-c: joe\nowner-d: joe\n";
    let text = format!("{owners}a: :include:/l/good\nb: :include:/l/bad\nc: :include:/l/none\nd: :include:/l/empty\n");
    assert_eq!(
        doubts(&text, &files),
        [
            "/etc/aliases:10 c: :include: /l/none: there is none",
            "/l/bad:3 b: \"a b\" is one name with blanks; a comma parts two names",
            "/l/bad:0 b: nosuch is neither an alias nor an account; mail for it is refused",
            "/l/bad:0 b: \"a b\" is neither an alias nor an account; mail for it is refused",
            "/l/bad:0 b: \"|/usr/bin/x\" is refused: others can write this file, or its owner has no shell of /etc/shells",
            "/l/next:0 b: \"|/opt/x\" will not run: it may not be run; put a link to it there",
            "/l/empty:0 d: it has no members",
        ]
    );
}

#[test]
fn quotes_of_names_count_as_sendmail_counts_them() {
    // Recorded: 3 aliases, longest 21 bytes, 42 bytes total.
    let text = "Upper: joe\n\"quo ted\": ann\nb: joe,\n\tann,\n  ext@x.test\n";
    let read = parse_aliases("aliases", text, &|_| false);
    assert_eq!(read.summary.to_string(), "3 aliases, longest 21 bytes, 42 bytes total");
    assert_eq!((read.ignored, parse_aliases("a", "x\n y\nz:\na: 1\na: 2\n", &|_| false).ignored), (0, 2));
}
