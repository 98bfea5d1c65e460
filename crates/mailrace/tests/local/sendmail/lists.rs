//! `mailq`, queue runs, `newaliases`, `makemap`, `praliases`, statistics.

use super::desk::Desk;
use testkit::harness::Setup;

#[test]
fn all_recipients_of_a_message_are_listed() {
    let setup = Setup::new();
    let desk = Desk::of(&setup);
    let _server = desk.start(setup);
    for count in [21, 300] {
        let all: Vec<String> = (0..count).map(|number| format!("u{number}@b{count}.test")).collect();
        let words: Vec<&str> = ["-f", "ann@c.test"].into_iter().chain(all.iter().map(String::as_str)).collect();
        assert_eq!(desk.sendmail(&words, "Subject: x\n\nhello\n").exit, Some(0));
        let listed = desk.run("mailq", &[&format!("-qRb{count}.test")], "").out;
        let recipients: Vec<&str> = listed.lines().filter_map(|line| line.strip_prefix("\t\t\t\t\t ")).collect();
        assert_eq!(recipients, all);
        assert!(listed.ends_with("Total requests: 1\n"), "{listed}");
    }
}

#[test]
fn the_queue_is_listed_as_sendmail_lists_it() {
    let setup = Setup::new();
    let desk = Desk::of(&setup);
    let server = desk.start(setup);
    let spool = desk.path("spool").display().to_string();
    for words in [&[][..], &["-v"], &["-qQ"]] {
        let done = desk.run("mailq", words, "");
        assert_eq!((done.exit, done.out), (Some(0), format!("{spool} is empty\n\t\tTotal requests: 0\n")));
    }
    for number in 0..25 {
        let to = format!("u{number}@b.test");
        let all: Vec<String> = (0..if number == 0 { 30 } else { 1 }).map(|more| format!("x{more}{to}")).collect();
        let mut words = vec!["-f", "ann@c.test"];
        words.extend(all.iter().map(String::as_str));
        assert_eq!(desk.sendmail(&words, "Subject: x\n\nhello\n").exit, Some(0));
    }
    let done = desk.run("mailq", &[], "");
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines[0], format!("\t\t{spool} (25 requests)"));
    assert_eq!(lines[1], "-----Q-ID----- --Size-- -----Q-Time----- ------------Sender/Recipient-----------");
    let (id, rest) = lines[2].split_at(14);
    assert!(rest.starts_with(' ') && rest.get(9..10) == Some(" ") && rest.get(26..) == Some(" ann@c.test"), "{rest:?}");
    let recipients = lines.iter().filter(|line| line.starts_with("\t\t\t\t\t ")).count();
    assert_eq!(
        (recipients, lines.last().copied()),
        (54, Some("\t\tTotal requests: 25")),
        "all recipients, not the first twenty"
    );
    let verbose = desk.run("mailq", &["-v"], "").out;
    assert!(
        verbose.contains("-Priority- ---Q-Time--- --------Sender/Recipient--------\n")
            && verbose.contains("\n\t\t\t\t\t\tx0u3@b.test\n")
    );
    let count = |words: &[&str]| desk.run("mailq", words, "").out.lines().last().expect("a line").to_owned();
    assert_eq!(count(&["-qRu7@"]), "\t\tTotal requests: 1");
    assert_eq!(count(&["-q!Ru7@"]), "\t\tTotal requests: 24");
    assert_eq!(count(&[&format!("-qI{id}")]), "\t\tTotal requests: 1");
    assert_eq!(count(&["-qSnobody"]), "\t\tTotal requests: 0");
    // Held and let go.
    assert_eq!(desk.sendmail(&["-Qbad", "-qRu7@"], "").exit, Some(0));
    let held = desk.run("mailq", &["-qQ"], "").out;
    assert!(
        held.contains("\n     QUARANTINE: held\n\t\t\t\t\t x0u7@b.test\n") && held.ends_with("Total requests: 1\n"),
        "{held}"
    );
    assert_eq!(desk.sendmail(&["-Q", "-qQ"], "").exit, Some(0));
    assert_eq!(count(&["-qQ"]), "\t\tTotal requests: 0");
    let totals = desk.sendmail(&["-bP"], "").out;
    assert!(totals.contains("entries=25"), "{totals}");
    let statistics = desk.run("mailstats", &[], "").out;
    assert!(statistics.contains("\n 3       25 "), "{statistics}");
    // Last, since attempts may end in reports.
    assert_eq!(desk.sendmail(&["-q", "-v"], "").exit, Some(0));
    let hosts = desk.run("hoststat", &[], "");
    assert_eq!((hosts.exit, desk.run("purgestat", &[], "").exit), (Some(0), Some(0)), "{hosts:?}");
    drop(server);
    let down = desk.run("mailq", &[], "");
    assert!(down.exit == Some(69) && down.err.contains("no server answers"), "{down:?}");
}

#[test]
fn what_waits_in_the_directory_is_listed_too() {
    let (desk, _setup) = Desk::opened(Setup::new());
    assert_eq!(desk.sendmail(&["joe@a.test", "ann@b.test"], "Subject: x\n\n").exit, Some(0));
    let done = desk.run("mailq", &["-Ac"], "");
    assert!(
        done.out.contains("spool-pickup (1 request)\n") && done.out.contains("\n\t\t\t\t\t ann@b.test\n"),
        "{done:?}"
    );
}

#[test]
fn maps_are_made_and_aliases_are_looked_through() {
    let aliases = "root: joe\nlist: joe, ann, ext@x.test\n";
    let setup = Setup::new();
    let path = setup.path("aliases");
    std::fs::write(&path, aliases).expect("written");
    let setup = setup.set("maps.aliases", format!("[{path:?}]"));
    let desk = Desk::of(&setup);
    let name = path.display();
    let expected = format!("{name}: 2 aliases, longest 20 bytes, 31 bytes total\n");
    for (command, words) in [("newaliases", &[][..]), ("sendmail", &["-bi"])] {
        let done = desk.run(command, words, "");
        assert_eq!((done.exit, done.out.as_str()), (Some(0), expected.as_str()), "{done:?}");
    }
    let doubts = desk.run("newaliases", &[], "").err;
    assert!(doubts.contains("aliases: there is no alias postmaster; "), "{doubts}");
    std::fs::write(&path, format!("{aliases}no colon\nl1: l2\nl2: l1\ninc: :include:/nonexistent/x\nroot: ann\n"))
        .expect("written");
    let wrong = desk.run("newaliases", &[], "");
    assert_eq!(wrong.exit, Some(70), "{wrong:?}");
    for part in [
        ": line 3: \"no colon\" has no colon behind the name; it is ignored\n",
        ": line 7: \"root\": is in line 1 too; the last one counts\n",
        ": line 4: l1 → l2 → l1 is a loop; ",
        ": line 6: inc: :include: /nonexistent/x: No such file or directory",
    ] {
        assert!(wrong.err.contains(part), "{part}: {wrong:?}");
    }
    let checked = desk.run("mailrace", &["check"], "");
    assert!(
        checked.out.contains("l1 → l2 → l1 is a loop") && checked.out.contains("/nonexistent/x: No such file"),
        "{checked:?}"
    );
    std::fs::write(&path, aliases).expect("written");
    let shown = desk.run("praliases", &[], "").out;
    assert_eq!(shown, "list:joe, ann, ext@x.test\nroot:joe\n");
    assert_eq!(desk.run("praliases", &["root", "nox"], "").out, "root:joe\nnox: No such key\n");
    let missing = desk.run("praliases", &["-f", "/nonexistent/aliases"], "");
    assert!(missing.exit == Some(66) && missing.err.contains("praliases: /nonexistent/aliases: open: "), "{missing:?}");
    let map = desk.path("m").display().to_string();
    for kind in ["hash", "cdb"] {
        let done = desk.run("makemap", &[kind, &map], "A.test\tesmtp:[x]\n.b.test local:\n");
        assert_eq!((done.exit, done.err.as_str()), (Some(0), ""));
        let dumped = desk.run("makemap", &["-u", kind, &map], "").out;
        let mut lines: Vec<&str> = dumped.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [".b.test\tlocal:", "a.test\tesmtp:[x]"], "{kind}");
    }
    let done = desk.run("makemap", &["hash", &map], "a b\na c\nd\n");
    assert!(
        done.exit == Some(65)
            && done.err.contains("line 2: key a: duplicate key")
            && done.err.contains("line 3: no RHS for LHS d"),
        "{done:?}"
    );
    assert_eq!(desk.run("makemap", &["btree", &map], "").exit, Some(69));
    let asked =
        desk.sendmail(&["-bt"], "/map aliases root\n/map none x\n3,0 ann@x.test\n$=w\n/frob\n/quit\nnot read\n").out;
    for part in [
        "map_lookup: aliases (root) returns joe (0)",
        "Map named \"none\" not found",
        "mailer esmtp, host x.test, user ann@x.test",
        "\nmx.test\n",
        "Undefined test mode command /frob",
    ] {
        assert!(asked.replace("> ", "\n").contains(part), "{part}: {asked}");
    }
}
