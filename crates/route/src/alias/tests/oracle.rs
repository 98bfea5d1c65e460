//! The behaviour of sendmail 8.17.1.9 with the same aliases: recorded from `sendmail -bv` and from deliveries to a
//! program that wrote down sender and user. Where mailrace does otherwise on purpose the line has a second value, and
//! `docs/aliases.md` the reason.

use super::World;

const ALIASES: &str = r#"
postmaster: root
loop1: loop2
loop2: loop1
self: self
games: games, news
man: \man, news
d0: d1
d1: d2
d2: d3
d3: d4
d4: d5
d5: d6
d6: d7
d7: d8
d8: d9
d9: d10
d10: d11
d11: games2
two: \lp, lp
Upper: news
"quoted name": news
"quoted.one": news
empty1:
full: Joe Doe <news>, lp (comment), "lp"@our.test, lp@our.test
prog: "|/bin/cat >> /tmp/prog"
prog2: |/bin/cat>>/tmp/prog
prog3: "|/bin/echo a, b", lp
prog4: |/bin/echo a, lp
prog5: "|/bin/echo \"x\" 'y z'"
progd: "|/x y", "|/x y"
file: /var/log/file
file2: "/var/log/file 2"
inc: :include:/etc/list
inc2: ":include:/etc/list"
inc3: :include: /etc/list
incmiss: lp, :include:/nonexistent/list
err1: error:5.7.0:550 closed
err2: "error:nouser no such"
err3: user@x.INVALID
route: <@a.example,@b.example:joe@c.example>
route1: @b.example:joe@c.example
group: friends: lp, news;
dup: lp, lp, news, LP
plus+*: lp
plus: news
plusx+det: man2
cont: lp,
  news,
	sys
cont2: lp, \
news
percent: user%host.example
det: news+x, news+y, news
trail: lp,,, news,
at: @
bad1: <lp
bad2: lp>
bad3: "lp
bad4: lp)
bad5: a b
bad6: lp news
caret: <lp>
x@our.test: lp
y@other.test: lp
nocolon lp
dup: news
sp ace: lp
tail:lp # comment
lwsp	: lp
awc: Andrew.Chang
andrew.chang: awc@our.test, lp
sync: nosuch1
nosuch1: sync
bin: x1, lp
x1: bin
x2: x3, lp
x3: x2
emptyl: :include:/etc/empty
addr: joe@our.test
joe: lp@our.test
mixed: "Joe Doe" <lp>, (only comment), news
nested: :include:/etc/nest
"#;

const LIST: &str = "# comment\nlp, news\n\n sys\ngames (the games) #@# comment\nJoe <man>\n";

fn world() -> World {
    World::new(ALIASES)
        .include("/etc/list", Some("root"), LIST)
        .include("/etc/empty", Some("root"), "# nobody\n")
        .include("/etc/nest", Some("root"), ":include:/etc/nest\nlp\n")
}

const LOOP: &str = "aliasing/forwarding loop broken";

#[test]
fn the_same_people_get_the_mail() {
    let world = world();
    let table: &[(&str, &[&str])] = &[
        ("loop1", &["554 5.4.6 <loop1>... aliasing/forwarding loop broken"]),
        ("self", &["?self"]),
        ("games", &["games", "news"]),
        ("man", &["man", "news"]),
        ("d0", &["554 5.4.6 <d0>... aliasing/forwarding loop broken (11 aliases deep; 10 max)"]),
        ("d1", &["554 5.4.6 <d1>... aliasing/forwarding loop broken (11 aliases deep; 10 max)"]),
        ("d2", &["?games2"]),
        ("two", &["lp"]), // sendmail: twice
        ("upper", &["news"]),
        ("UPPER", &["news"]),
        ("quoted name", &["news"]),
        ("quoted.one", &["news"]),
        ("empty1", &["?empty1"]),
        ("full", &["lp", "news"]),
        ("prog", &["|/bin/cat >> /tmp/prog"]),
        ("prog2", &["|/bin/cat>>/tmp/prog"]), // sendmail: |/bin/cat/tmp/prog
        ("prog3", &["lp", "|/bin/echo a, b"]),
        ("prog4", &["lp", "|/bin/echo a"]), // sendmail: |/bin/echo.a
        ("prog5", &["|/bin/echo \"x\" 'y z'"]),
        ("progd", &["|/x y"]),
        ("file", &["/var/log/file"]),
        ("file2", &["/var/log/file 2"]),
        ("inc", &["games", "lp", "man", "news", "sys"]),
        ("inc2", &["games", "lp", "man", "news", "sys"]),
        ("inc3", &["games", "lp", "man", "news", "sys"]),
        ("err1", &["550 5.7.0 <err1>... closed"]), // sendmail: User unknown
        ("err3", &["user@x.INVALID"]),
        ("route", &["joe@c.example"]),
        ("route1", &["joe@c.example"]),
        ("group", &["lp", "news"]),
        ("dup", &["news"]),
        ("plus+x", &["lp"]),
        ("plus+", &["lp"]),
        ("plus", &["news"]),
        ("plusx+det", &["?man2"]),
        ("cont", &["lp", "news", "sys"]),
        ("cont2", &["lp", "news"]),
        ("percent", &["user@host.example"]),
        ("det", &["news", "news+x", "news+y"]),
        ("trail", &["lp", "news"]),
        ("at", &["553 5.1.3 <at>... \"@\": a user is missing before the @"]), // sendmail: User unknown
        ("bad1", &["lp"]),
        ("bad2", &["lp"]),
        ("bad3", &["lp"]),
        ("bad4", &["lp"]),
        ("bad5", &["?\"a b\""]),
        ("bad6", &["?\"lp news\""]),
        ("caret", &["lp"]),
        ("x", &["lp"]),
        ("y", &["?y"]),
        // sendmail makes a name of the comment.
        ("tail", &["lp"]),
        ("lwsp", &["lp"]),
        ("lp+x", &["lp+x"]),
        ("LP", &["lp"]),
        ("games+x", &["games", "news"]),
        ("awc", &["lp"]),
        ("andrew.chang", &["lp"]),
        ("sync", &["sync"]),
        ("nosuch1", &["sync"]),
        ("bin", &["bin", "lp"]),
        ("x1", &["bin", "lp"]),
        ("x2", &["lp"]),
        ("x3", &["lp"]),
        ("emptyl", &["550 5.2.4 <emptyl>... has no members"]), // sendmail: 554 loop broken
        ("addr", &["lp"]),
        ("mixed", &["lp", "news"]),
        ("nested", &["lp"]),
        ("sp.ace", &["lp"]),
        ("nobody.here", &["?nobody.here"]),
    ];
    for (name, who) in table {
        assert_eq!(world.who(name), *who, "{name}");
    }
}

#[test]
fn lists_have_the_owner_as_sender() {
    let world = World::new(
        r#"
list: lp, news
owner-list: list-admin
list-admin: games, sys
l2: lp, sub
owner-l2: l2-boss
sub: news, games
owner-sub: sub-boss@ext.example
l3: lp
owner-l3: a, b
l4: lp
owner-l4: <joe@ext.example> (Joe)
l5: lp
owner-l5: Joe Doe <joe@ext.example>
owner-x: lp
owner-owner: pm
plain: lp
l7: lp
owner-l7: |/bin/true
listd: news
owner-listd: od
"#,
    );
    let table: &[(&str, &[&str])] = &[
        ("list", &["[<list-admin@our.test>]lp", "[<list-admin@our.test>]news"]),
        ("l2", &["[<l2-boss@our.test>]lp", "[<sub-boss@ext.example>]games", "[<sub-boss@ext.example>]news"]),
        ("l3", &["[<owner-l3@our.test>]lp"]),
        ("l4", &["[<joe@ext.example>]lp"]),
        ("l5", &["[<joe@ext.example>]lp"]),
        ("owner-x", &["[<pm@our.test>]lp"]),
        ("plain", &["lp"]),
        ("l7", &["[<owner-l7@our.test>]lp"]),
        ("list+d", &["[<list-admin@our.test>]lp", "[<list-admin@our.test>]news"]),
        ("listd+e", &["[<od@our.test>]news"]),
    ];
    for (name, who) in table {
        assert_eq!(world.who(name), *who, "{name}");
    }
}

#[test]
fn users_forward_and_their_programs_run_as_they() {
    let world = World::new(
        r#"
progs: "|/pr alias", :include:/etc/games.list, :include:/etc/root.list
unsafe: :include:/etc/ww.list
i0: i1
i1: i2
i2: i3
i3: i4
i4: i5
i5: i6
i6: i7
i7: i8
i8: :include:/etc/list
i9: i10
i10: i0
toall: "|/pr all"
"#,
    )
    .include("/etc/games.list", Some("games"), "\"|/pr games.list\"\n")
    .include("/etc/root.list", Some("root"), "\"|/pr root.list\"\n")
    .include("/etc/ww.list", None, "\"|/pr ww.list\", /var/log/x, lp\n")
    .include("/etc/list", Some("root"), LIST)
    .forward("man", "\\man, lp\n")
    .forward("games", "")
    .forward("news", "# only comment\n\n")
    .forward("sys", "sys, lp\n")
    .forward("uucp", "\"|/pr forward\", /users/uucp/ff, :include:/etc/games.list\n")
    .forward("proxy", "backup\n")
    .forward("backup", "proxy, lp\n")
    .forward("irc", "nosuch\n")
    .forward("list", ":include:/nonexist\n")
    .forward("mail", "toall\n")
    .forward("bin", "# unsafe\n|/bin/x\n");
    let table: &[(&str, &[&str])] = &[
        // sendmail's default user was daemon.
        ("progs", &["games|/pr games.list", "|/pr alias", "|/pr root.list"]),
        (
            "unsafe",
            &[
                "550 5.7.1 <unsafe>... Address unsafe → :include:/etc/ww.list is unsafe for mailing to files",
                "550 5.7.1 <unsafe>... Address unsafe → :include:/etc/ww.list is unsafe for mailing to programs",
                "lp",
            ],
        ),
        ("man", &["lp", "man"]),
        ("games", &["games"]),
        ("news", &["news"]),
        ("sys", &["lp", "sys"]),
        ("uucp", &["uucp/users/uucp/ff", "uucp|/pr forward", "uucp|/pr games.list"]),
        ("proxy", &["lp", "proxy"]),
        ("irc", &["?nosuch"]),
        ("man+x", &["lp", "man"]),
        ("i9", &["554 5.4.6 <i9>... aliasing/forwarding loop broken (11 aliases deep; 10 max)"]),
        // Aliases give programs to their own user, whatever list names them.
        ("mail", &["|/pr all"]),
        ("list", &["550 5.2.4 <list>... .forward is wrong in line 1"]),
        ("bin", &["550 5.7.1 <bin>... Address bin/.forward is unsafe for mailing to programs"]),
    ];
    for (name, who) in table {
        assert_eq!(world.who(name), *who, "{name}");
    }
    // sys has his mailbox, and the targets of his and man's forwards are too deep; so it is in sendmail. lp is reached
    // by the list.
    let who = world.who("i0");
    assert_eq!(who.iter().filter(|one| one.contains(LOOP)).count(), 1, "{who:?}");
    assert_eq!(
        who.iter().filter(|one| !one.contains(LOOP)).map(String::as_str).collect::<Vec<_>>(),
        ["games", "lp", "news", "sys"]
    );
}

#[test]
fn forwards_may_lead_to_each_other() {
    let world =
        World::new("both: carol, dave\npair: man, lp\nman: lp\nlp: man\nann2: bob2, far@x.example\nbob2: ann2\n")
            .forward("ann2", "bob2\n")
            .forward("carol", "dave\n")
            .forward("dave", "carol\n")
            .forward("gina", "gina\n")
            .forward("harry", "\n\n")
            .forward("kim", "kim@our.test, ann\n")
            .forward("ann", "joe@far.example\n")
            .forward("lone", "")
            .forward("three", "one\n")
            .forward("one", "two\n")
            .forward("two", "three, lone\n");
    let table: &[(&str, &[&str])] = &[
        // A forward that only leads back counts for nothing.
        ("carol", &["carol", "dave"]),
        ("dave", &["carol", "dave"]),
        ("both", &["carol", "dave"]),
        ("gina", &["gina"]),
        ("pair", &["lp"]),
        // sendmail forgets ann2, whose forward names users that are not done yet.
        ("ann2", &["ann2", "far@x.example"]),
        ("gina+box", &["gina"]),
        ("harry", &["harry"]),
        ("kim", &["joe@far.example", "kim"]),
        ("three", &["lone", "three"]),
    ];
    for (name, who) in table {
        assert_eq!(world.who(name), *who, "{name}");
    }
}

#[test]
fn who_has_moved_is_told() {
    let world = World::new("moved: joe@elsewhere.example.REDIRECT\nmoved2: lp, joe@elsewhere.example.redirect\n");
    assert_eq!(world.who("moved"), ["551 5.1.1 <moved>... User has moved; please try <joe@elsewhere.example>"]);
    assert_eq!(world.who("moved2"), ["551 5.1.1 <moved2>... User has moved; please try <joe@elsewhere.example>", "lp"]);
}

#[test]
fn a_list_that_cannot_be_read_waits() {
    let world = world();
    let came = world.came("incmiss");
    assert_eq!(came.trouble.as_deref(), Some("incmiss: cannot open /nonexistent/list: there is no such file"));
    let later = World::new("l: lp, :include:/later/list\n").came("l");
    assert_eq!(later.trouble.as_deref(), Some("disk is away"));
}

#[test]
fn steps_name_file_and_line() {
    let world = World::new("a: b, x@y.example\nb: lp\nowner-a: boss\n");
    let steps: Vec<String> = world.came("a").steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "aliases /etc/aliases line 1: \"a\" = \"b, x@y.example\" → b, x@y.example",
            "aliases /etc/aliases line 3: \"owner-a\" = \"boss\" → the sender of mail to a is boss@our.test",
            "aliases /etc/aliases line 2: \"b\" = \"lp\" → lp",
        ]
    );
}
