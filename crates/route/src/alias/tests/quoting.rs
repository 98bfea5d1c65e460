//! The text of users' and lists' files is in no reply; the owner of a file decides who opens the files that it names.

use super::World;
use crate::question::{Answer, Answers, Ask, Question, Reader, Stop};

const SECRET: &str = "s3cret";

/// Lines that were once quoted in refusals, or are refused with a text of their own.
const BAD_LINES: &[&str] = &[
    "s3cret@@x",
    "@s3cret",
    "s3cret@b..c",
    "|s3cret\u{7}",
    "/s3cret\u{7}",
    ":include:/s3cret\u{7}",
    "error:5.7.1:550 s3cret",
    "error:s3cret",
    "joe@s3cret.example.REDIRECT",
    ":include:/s3cret",
    "|s3cret",
    "/s3cret",
    "\"s3cret",
    "s3cret!",
];

#[test]
fn no_refusal_quotes_a_file_of_a_user_or_a_list() {
    for line in BAD_LINES {
        let world = World::new("staff: lp, news\nlist: :include:/etc/list\nouter: :include:/etc/outer\n")
            .forward("lp", &format!("# unsafe\n\n{line}\n"))
            .forward("news", &format!("# unsafe\n:include:/news/own\n{line}"))
            .include("/news/own", None, line)
            .include("/etc/list", None, &format!("\n{line}\n"))
            .include("/etc/outer", None, ":include:/etc/inner\n")
            .include("/etc/inner", None, &format!("\n\n{line}\n"));
        for name in ["lp", "staff", "list", "news", "outer"] {
            let who = world.who(name);
            // A name is an address, or an unknown user: the caller reports it by the address that the client gave.
            for refusal in who.iter().filter(|one| one.starts_with(['4', '5'])) {
                assert!(!refusal.contains(SECRET), "{line} for {name}: {refusal}");
            }
        }
    }
}

#[test]
fn a_refusal_names_file_and_line() {
    let world = World::new("staff: lp\nlist: :include:/etc/list\nouter: :include:/etc/outer\nown: @bad\n")
        .forward("lp", "# mine\n\nnews, s3cret@@x\n")
        .forward("man", "\n:include:/man/list\n")
        .forward("sys", "error:4.2.1:450 s3cret\n")
        .forward("bin", "joe@s3cret.example.REDIRECT\n")
        .include("/etc/list", None, "lp\n\n\n@s3cret\n")
        .include("/man/list", None, "\n\n\n@s3cret\n")
        .include("/etc/outer", None, "\n\n:include:/etc/inner\n")
        .include("/etc/inner", None, "\n@s3cret\n");
    for (name, who) in [
        ("lp", "550 5.2.4 <lp>... .forward is wrong in line 3"),
        ("staff", "550 5.2.4 <staff>... .forward of lp is wrong in line 3"),
        ("list", "550 5.2.4 <list>... :include:/etc/list is wrong in line 4"),
        ("man", "550 5.2.4 <man>... .forward is wrong in line 2"),
        ("outer", "550 5.2.4 <outer>... :include:/etc/outer is wrong in line 3"),
        ("sys", "450 4.7.1 <sys>... .forward refuses mail in line 1"),
        ("bin", "551 5.1.1 <bin>... User has moved"),
        ("own", "553 5.1.3 <own>... \"@bad\": a user is missing before the @"),
    ] {
        assert!(world.who(name).contains(&who.to_owned()), "{name}: {:?}", world.who(name));
    }
}

/// Returns the files that a name leads to, each with the user that opens it.
fn readers(world: &World, name: &str) -> Vec<(String, Reader)> {
    let mut answers = Answers::new();
    let mut seen = Vec::new();
    for _ in 0..20 {
        let mut ask = Ask::new(&answers);
        match world.all(&mut ask, name, &mut super::Came::default()) {
            Ok(()) => return seen,
            Err(Stop::Open) => {}
            Err(Stop::Trouble(why)) => panic!("{why}"),
            Err(Stop::TooMuchWork) => unreachable!("any work is allowed"),
        }
        for question in ask.into_open() {
            if let Question::Include { path, reader } = &question {
                seen.push((path.to_string(), reader.clone()));
            }
            let answer: Answer = world.answer(&question);
            answers.insert(question, answer);
        }
    }
    panic!("it does not end");
}

#[test]
fn a_file_is_opened_with_the_rights_of_the_text_that_names_it() {
    let world = World::new("a: :include:/root\nb: :include:/news\nc: :include:/open\nd: lp\ne: bin\n")
        .include("/root", Some("root"), ":include:/next\n")
        .include("/news", Some("news"), ":include:/next\n")
        .include("/open", None, ":include:/next\n")
        .include("/next", Some("root"), ":include:/last\n")
        .include("/last", None, "man\n")
        .forward("lp", ":include:/open\n")
        .forward("bin", "# unsafe\n:include:/root\n");
    let user = |name: &str| Reader::User(name.into());
    for (name, wanted) in [
        ("a", vec![("/root", Reader::Aliases), ("/next", Reader::Aliases), ("/last", Reader::Aliases)]),
        ("b", vec![("/news", Reader::Aliases), ("/next", user("news")), ("/last", user("news"))]),
        ("c", vec![("/open", Reader::Aliases), ("/next", Reader::Anyone), ("/last", Reader::Anyone)]),
        ("d", vec![("/open", user("lp")), ("/next", user("lp")), ("/last", user("lp"))]),
        ("e", vec![("/root", user("bin")), ("/next", user("bin")), ("/last", user("bin"))]),
    ] {
        let wanted: Vec<_> = wanted.into_iter().map(|(path, reader)| (path.to_owned(), reader)).collect();
        assert_eq!(readers(&world, name), wanted, "{name}");
    }
}

#[test]
fn a_file_that_a_user_cannot_open_still_counts_for_a_list() {
    let world = World::new("one: lp, :include:/admin/list\ntwo: :include:/admin/list, lp\n")
        .forward("lp", ":include:/admin/list\n")
        .include("/admin/list", Some("root"), "news\n");
    for name in ["one", "two"] {
        let wanted = [format!("550 5.2.4 <{name}>... .forward of lp is wrong in line 1"), "news".to_owned()];
        assert_eq!(world.who(name), wanted, "{name}");
    }
}
