//! Great numbers. No test measures time against a clock of its own; `speed_of_lists` prints, and is run by hand.

use super::World;
use std::fmt::Write as _;

fn list(members: usize) -> String {
    let mut text = String::new();
    for number in 0..members {
        writeln!(text, "member{number}@host{}.example", number % 1000).unwrap();
    }
    text
}

#[test]
fn a_hundred_thousand_members_are_found_in_two_rounds() {
    let world =
        World::new("all: :include:/etc/all\nowner-all: boss\n").include("/etc/all", Some("root"), &list(100_000));
    let came = world.came("all");
    assert_eq!((came.who.len(), came.rounds), (100_000, 2));
    assert!(came.who.iter().all(|one| one.starts_with("[<boss@our.test>]member")));
    assert!(came.steps.len() < 10);
}

#[test]
fn users_of_a_list_are_asked_for_together() {
    let mut text = String::new();
    let mut world = World::new("all: :include:/etc/all\n");
    for number in 0..20_000 {
        writeln!(text, "u{number}").unwrap();
        world = world.forward(&format!("u{number}"), if number % 2 == 0 { "" } else { "\\lp, me@x.example" });
    }
    let came = world.include("/etc/all", Some("root"), &text).came("all");
    // The list, its users, their forwards, whether there is an lp.
    assert_eq!((came.who.len(), came.rounds), (10_002, 5));
}

#[test]
fn a_list_that_is_too_long_gives_mail_to_nobody() {
    let mut world = World::new("all: :include:/etc/all\n").include("/etc/all", Some("root"), &list(11));
    world.expansion_max = 10;
    assert_eq!(world.who("all"), ["550 5.2.4 <all>... has more than 10 recipients"]);
    world.expansion_max = 11;
    assert_eq!(world.who("all").len(), 11);
}

#[test]
fn many_names_that_lead_to_each_other_end() {
    // Each of 300 names has all of them as members: 90,000 elements, each name once.
    let names = (0..300).map(|number| format!("n{number}")).collect::<Vec<_>>();
    let all = names.join(", ");
    let text: String = names.iter().map(|name| format!("{name}: {all}, {name}@out.example\n")).collect();
    let who = World::new(&text).who("n0");
    // An alias that names itself, and is no account, is an unknown user.
    assert_eq!((who.len(), who.iter().filter(|one| one.starts_with("?n")).count()), (600, 300));
}

#[test]
#[ignore = "prints times; run it by hand with --release"]
#[allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]
fn speed_of_lists() {
    for members in [100_000, 1_000_000] {
        let world = World::new("all: :include:/etc/all\n").include("/etc/all", Some("root"), &list(members));
        let start = std::time::Instant::now();
        let came = world.came("all");
        println!("{members} addresses: {:?}, {} recipients", start.elapsed(), came.who.len());
    }
}
