//! How fast: with maps of a million entries, and for a list of a hundred thousand.
//!
//! `cargo test --release -p mailrace-route -- --ignored --nocapture speed`

use super::*;
use crate::map::Table;
use std::sync::Arc;

fn many(name: &str, count: usize, entry: impl Fn(usize) -> (String, String)) -> Vec<Source> {
    vec![Source::Loaded(Arc::new(Table::from_entries(name, (0..count).map(entry))))]
}

#[test]
#[ignore = "prints rates; a release build tells more"]
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn speed_of_one_core_with_a_million_entries() {
    const ENTRIES: usize = 1_000_000;
    const ASKED: usize = 500_000;
    let mut router = router(&[]);
    router.maps.mailertable =
        many("mailertable", ENTRIES, |n| (format!("d{n}.example"), format!("smtp:[10.{}.0.1]:[10.0.0.2]", n % 250)));
    router.maps.virtusertable =
        many("virtusertable", ENTRIES, |n| (format!("u{n}@v.test"), format!("x{n}@d{n}.example")));
    router.maps.smarttable =
        many("smarttable", ENTRIES, |n| (format!("s{n}@corp.example"), "relay:[10.2.2.2]".to_owned()));
    router.settings.precedence = Precedence::Sender;
    let answers = Answers::new();
    for (what, sender, recipient) in [
        ("MX, no entry in any map", "<x@y.example>", (|n| format!("x@n{n}.elsewhere.example")) as fn(usize) -> String),
        ("mailertable", "<x@y.example>", |n| format!("x@d{n}.example")),
        ("virtusertable, then mailertable", "<x@y.example>", |n| format!("u{n}@v.test")),
        ("smarttable", "<s7@corp.example>", |n| format!("x@d{n}.example")),
    ] {
        let sender: ReversePath = sender.parse().unwrap();
        let recipients: Vec<Address> = (0..ASKED).map(|n| recipient(n).parse().unwrap()).collect();
        let start = std::time::Instant::now();
        for recipient in &recipients {
            let request = Request { sender: &sender, recipient, client: None, is_local_submission: false };
            let resolution = router.resolve(&mut Ask::new(&answers), &request).unwrap();
            assert!(matches!(resolution.outcome, Outcome::Deliver(_)));
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{what}: {:.0} recipients/s", ASKED as f64 / seconds);
    }
}

/// Time is linear in the number of members: a hundred thousand at many domains in well under a second, of a release
/// build.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn speed_of_a_list() {
    const MEMBERS: usize = 100_000;
    let members: Vec<String> = (0..MEMBERS).map(|n| format!("u{n}@d{}.example", n % 20_000)).collect();
    let text: Arc<str> = members.join("\n").into();
    let mut router = router(&[("aliases", &[("list", ":include:/etc/mail/list")])]);
    router.maps.mailertable =
        many("mailertable", 10_000, |n| (format!("d{n}.example"), format!("smtp:[10.0.0.{}]", n % 250)));
    let include = move |question: &Question| match question {
        Question::Include { .. } => {
            Answer::Text { text: Arc::clone(&text), file: "/etc/mail/list".into(), owner: Some("root".into()) }
        }
        other => answer(other),
    };
    let start = std::time::Instant::now();
    let resolution = resolve_with(&router, "<s@x.example>", "list@v.test", include).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let Outcome::Deliver(deliveries) = resolution.outcome else { panic!() };
    assert_eq!(deliveries.len(), MEMBERS);
    assert!(resolution.steps.len() <= STEPS_MAX);
    println!("a list of {MEMBERS} members: {seconds:.2} s");
    assert!(seconds < 20.0, "{seconds} s for {MEMBERS} members");
}
