//! Elements of lists.

use crate::alias::{Member, parse_list, parse_members};

/// The kind of a member and its text.
fn kind(member: &Member) -> String {
    match member {
        Member::Address(address) => format!("address {address}"),
        Member::Local(name) => format!("user {}", name.as_str()),
        Member::Mailbox(name) => format!("mailbox {}", name.as_str()),
        Member::Program(command) => format!("program {command}"),
        Member::File(path) => format!("file {path}"),
        Member::Include(path) => format!("include {path}"),
        Member::Error(error) => format!("error {} {} {}", error.code, error.status, error.text),
        Member::Bad { why, .. } => format!("bad {why}"),
    }
}

#[test]
fn members_are_what_they_are_in_sendmail() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        (" , ,", &[]),
        ("joe, ann", &["user joe", "user ann"]),
        ("joe@a.example", &["address joe@a.example"]),
        ("\\joe", &["mailbox joe"]),
        ("\\joe@a.example", &["address joe@a.example"]),
        ("\"joe smith\"", &["user joe smith"]),
        ("\"a,b\", c", &["user a,b", "user c"]),
        ("\"a@b\"", &["user a@b"]),
        ("\"a@b\"@c.example", &["address \"a@b\"@c.example"]),
        ("Joe Smith <joe@a.example>", &["address joe@a.example"]),
        ("\"Smith, Joe\" <joe>, ann", &["user joe", "user ann"]),
        ("joe (a, b (c)), ann", &["user joe", "user ann"]),
        ("(nobody)", &[]),
        ("<joe, ann>", &["user joe, ann"]),
        ("\"|/bin/prog -x 'a, b' \\\"c\\\"\"", &["program /bin/prog -x 'a, b' \"c\""]),
        ("|/bin/prog \"a, b\" c, joe", &["program /bin/prog \"a, b\" c", "user joe"]),
        ("\"| /bin/prog\"", &["program /bin/prog"]),
        ("|", &["bad a bar without a program"]),
        ("/var/mail/x, \"/var/x y\"", &["file /var/mail/x", "file /var/x y"]),
        ("/S=joe/G=x/@gate.example", &["address /S=joe/G=x/@gate.example"]),
        (":include:/a, :INCLUDE: \"/b c\"", &["include /a", "include /b c"]),
        (":include:", &["bad :include: without a file"]),
        ("error:5.7.1:550 not here", &["error 550 5.7.1 not here"]),
        ("joe%a.example", &["address joe@a.example"]),
        ("joe%b%a.example", &["address joe%b@a.example"]),
        ("@b.example:joe@a.example", &["address joe@a.example"]),
        ("<@c.example,@b.example:joe@a.example>", &["address joe@a.example"]),
        ("@a.example", &["bad a user is missing before the @"]),
        ("a.example!joe", &["address joe@a.example"]),
        ("a.example!b!joe", &["address b!joe@a.example"]),
        ("a.example!", &["bad a user is missing behind the !"]),
        ("host!joe", &["user host!joe"]),
        ("joe@a.example., \"j\"@a.example.", &["address joe@a.example", "address j@a.example"]),
        ("team: joe, ann;, eve", &["user joe", "user ann", "user eve"]),
        ("joe@[192.0.2.1]", &["address joe@[192.0.2.1]"]),
        ("joe@[IPv6:2001:db8::1]", &["address joe@[IPv6:2001:db8::1]"]),
        ("jürgen@bücher.example", &["address jürgen@bücher.example"]),
    ];
    for (text, wanted) in table {
        let kinds: Vec<String> = parse_members(text).0.iter().map(kind).collect();
        assert_eq!(kinds, *wanted, "{text}");
    }
    assert!(matches!(parse_members("joe@a..example").0.as_slice(), [Member::Bad { .. }]));
    assert!(matches!(parse_members("a\u{7}b").0.as_slice(), [Member::Bad { .. }]));
}

/// Quotes count within brackets too: their `>` and `#` are letters.
#[test]
fn a_quoted_name_in_brackets_has_no_comment() {
    for text in ["<\"|> #\">", "<\"a #b\"@c.test>, joe", "\"a #b\"", "joe (a #b)"] {
        let (members, complaints) = parse_list(&format!("{text}\n"));
        assert!(!members.is_empty() && complaints.is_empty(), "{text}: {complaints:?}");
        assert!(!members.iter().any(|member| matches!(member, Member::Bad { .. })), "{text}: {members:?}");
    }
}

#[test]
fn lines_of_a_list_have_numbers_and_no_comments() {
    let (members, complaints) = parse_list("\u{feff}# a\njoe, ann\r\n\r\n  eve #@# x\n<bob\n a b\n a #x, y\n\t# z\n");
    let kinds: Vec<String> = members.iter().map(kind).collect();
    assert_eq!(kinds, ["user joe", "user ann", "user eve", "user bob", "user a b", "user a"]);
    let told: Vec<String> =
        complaints.iter().map(|one| format!("{}: {}", one.line.unwrap_or_default(), one.text)).collect();
    assert_eq!(
        told,
        [
            "5: \"<bob\": a bracket is not closed; sendmail and mailrace take \"bob\"",
            "6: \"a b\" is one name with blanks; a comma parts two names",
        ]
    );
}
