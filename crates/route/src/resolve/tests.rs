//! Ways of recipients as data: maps, a request, its result.

mod aliases;
mod header;
mod lint;
mod model;
mod rules;
mod speed;
mod tags;
mod way;

use super::*;
use crate::class::Kind;
use crate::question::{Answer, Answers, Question};
use crate::tables::tests::map;

/// A router with these maps, each `(name, entries)`, for `v.test`, `oracle.example` and `[192.0.2.25]`.
fn router(maps: &[(&str, &[(&str, &str)])]) -> Router {
    let mut router = Router {
        settings: RouterSettings::new("oracle.example".parse().unwrap()),
        maps: Maps::default(),
        classes: Classes { hostname: Some("oracle.example".parse().unwrap()), ..Classes::default() },
        rules: Vec::new(),
    };
    router.classes.local = class(&["v.test", "w.test", "w2.test", "w3.test", "w4.test", "[192.0.2.25]"]);
    for (name, entries) in maps {
        let sources = match *name {
            "mailertable" => &mut router.maps.mailertable,
            "virtusertable" => &mut router.maps.virtusertable,
            "genericstable" => &mut router.maps.genericstable,
            "domaintable" => &mut router.maps.domaintable,
            "smarttable" => &mut router.maps.smarttable,
            "aliases" => &mut router.maps.aliases,
            other => panic!("no map {other}"),
        };
        *sources = map(name, entries);
    }
    router
}

fn class(names: &[&str]) -> Class {
    Class::read(Kind::Local, "local-host-names", "local-host-names", &names.join("\n")).0
}

/// Answers as a machine with the users `joe` and `root` gives them.
fn answer(question: &Question) -> Answer {
    match question {
        Question::User { name } if matches!(&**name, "joe" | "root") => Answer::User { home: "/srv/x".into() },
        _ => Answer::Nothing,
    }
}

/// Asks until all is known.
fn resolve(router: &Router, sender: &str, recipient: &str) -> Result<Resolution, Stop> {
    resolve_with(router, sender, recipient, answer)
}

fn resolve_with(
    router: &Router,
    sender: &str,
    recipient: &str,
    answer: impl Fn(&Question) -> Answer,
) -> Result<Resolution, Stop> {
    let sender: ReversePath = sender.parse().unwrap();
    let recipient: Address = recipient.parse().unwrap();
    let request = Request {
        sender: &sender,
        recipient: &recipient,
        client: "192.0.2.99".parse().ok(),
        is_local_submission: false,
    };
    let mut answers = Answers::new();
    for _ in 0..100 {
        let mut ask = Ask::new(&answers);
        match router.resolve(&mut ask, &request) {
            Err(Stop::Open) => {
                let open = ask.into_open();
                assert!(!open.is_empty(), "nothing is asked");
                for question in open {
                    let answer = answer(&question);
                    answers.insert(question, answer);
                }
            }
            end => return end,
        }
    }
    panic!("it asks for ever");
}

/// The outcome in one line: `address → destination`, with its other properties.
fn told(resolution: &Result<Resolution, Stop>) -> String {
    match resolution {
        Err(Stop::Trouble(why)) => format!("trouble: {why}"),
        Err(Stop::Open) => "open".to_owned(),
        Err(Stop::TooMuchWork) => "too much work".to_owned(),
        Ok(Resolution { outcome: Outcome::Refuse(refusal), .. }) => refusal.to_string(),
        Ok(Resolution { outcome: Outcome::Discard, .. }) => "discarded".to_owned(),
        Ok(Resolution { outcome: Outcome::Deliver(deliveries), failed, .. }) => {
            let mut said: Vec<String> = deliveries.iter().map(one).collect();
            said.extend(failed.iter().map(|failed| format!("{} failed: {}", failed.address, failed.refusal)));
            said.join("; ")
        }
    }
}

fn one(delivery: &Delivery) -> String {
    let mut said = format!("{} → {}", delivery.address, delivery.destination);
    if let Some(via) = &delivery.via {
        said += &format!(" ({via})");
    }
    if let Some(sender) = &delivery.sender {
        said += &format!(" as {sender}");
    }
    if let Some(hold) = &delivery.hold {
        said += &format!(" held: {hold}");
    }
    if delivery.queue_only {
        said += " queued";
    }
    if let Some(acknowledge) = delivery.acknowledge {
        said += &format!(" {acknowledge:?}");
    }
    said
}

fn way(router: &Router, sender: &str, recipient: &str) -> String {
    told(&resolve(router, sender, recipient))
}
