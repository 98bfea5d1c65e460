//! Random maps and recipients: the properties that hold for all maps.

use super::*;
use crate::destination::Destination;
use proptest::prelude::*;

/// Few names, so that entries meet.
fn domain() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "v.test",
        "w.test",
        "virt.test",
        "oracle.example",
        "a.test",
        "b.a.test",
        "c.b.a.test",
        "localhost",
    ])
}

fn user() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["joe", "ann", "bob", "joe+x", "list", "bob+y"])
}

fn address() -> impl Strategy<Value = String> {
    (user(), domain()).prop_map(|(user, domain)| format!("{user}@{domain}"))
}

fn hosts() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "smtp:[10.0.0.1]:[10.0.0.2]",
        "esmtp:hub.example",
        "relay:%1.hub.example",
        "smtp:ann@[10.9.9.9]",
        "local:",
        "local:bob",
        "error:5.1.6:550 moved",
        "error:tempfail:450 later",
        "discard:",
        "bare.example",
        "lmtp:/run/lmtp",
        "smtp:[broken",
        "nosuch:x",
        "[10.0.0.3],b.example:c.example",
    ])
    .prop_map(str::to_owned)
}

fn virtual_key() -> impl Strategy<Value = String> {
    prop_oneof![
        address(),
        domain().prop_map(|domain| format!("@{domain}")),
        (user(), domain()).prop_map(|(user, domain)| format!("{user}+*@{domain}")),
        domain().prop_map(|domain| format!("+*@{domain}")),
    ]
}

fn virtual_value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => address(),
        2 => user().prop_map(str::to_owned),
        1 => domain().prop_map(|domain| format!("%1%3@{domain}")),
        1 => domain().prop_map(|domain| format!("@{domain}")),
        1 => Just("error:nouser 550 No such user".to_owned()),
        1 => Just("a, b@c".to_owned()),
        1 => Just("\\joe".to_owned()),
    ]
}

fn alias_value() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof![user().prop_map(str::to_owned), address()], 1..4).prop_map(|list| list.join(", "))
}

type Entries = Vec<(String, String)>;

fn entries(key: impl Strategy<Value = String>, value: impl Strategy<Value = String>) -> impl Strategy<Value = Entries> {
    prop::collection::vec((key, value), 0..8)
}

fn mailer_key() -> impl Strategy<Value = String> {
    prop_oneof![
        domain().prop_map(str::to_owned),
        domain().prop_map(|domain| format!(".{domain}")),
        Just(".test".to_owned()),
        Just(".".to_owned())
    ]
}

fn smart_key() -> impl Strategy<Value = String> {
    prop_oneof![address(), domain().prop_map(|domain| format!("@{domain}")), Just("@".to_owned())]
}

#[derive(Debug, Clone)]
struct World {
    maps: Vec<(&'static str, Entries)>,
    rules: Vec<Rule>,
    is_sender_first: bool,
}

fn rule() -> impl Strategy<Value = Rule> {
    let at = prop::sample::select(vec![At::First, At::BeforeVirtual, At::BeforeLocal, At::BeforeMailertable, At::Last]);
    let pattern =
        || prop::collection::vec(prop_oneof![address(), domain().prop_map(|domain| format!("@{domain}"))], 0..2);
    let copy = prop::collection::vec(
        prop_oneof![address(), Just("smtp:[10.7.7.7]".to_owned()), Just("local:ann".to_owned())],
        0..3,
    );
    (at, pattern(), pattern(), copy, prop::option::of(hosts()), any::<bool>()).prop_map(
        |(at, sender, recipient, copy, via, is_held)| Rule {
            name: "rule".into(),
            place: crate::question::EntryLocation { map: "rule".into(), file: "mailrace.toml".into(), line: Some(1) },
            at,
            sender: Patterns::parse(&sender).unwrap(),
            recipient: Patterns::parse(&recipient).unwrap(),
            client: Vec::new(),
            action: RuleAction {
                via: via.and_then(|text| MailerValue::parse(&text, 25).ok()),
                copies: copy.iter().map(|text| CopyTo::parse(text, 25).unwrap()).collect(),
                hold: is_held.then(|| "held".into()),
                ..RuleAction::default()
            },
        },
    )
}

fn world() -> impl Strategy<Value = World> {
    let maps = (
        entries(mailer_key(), hosts()),
        entries(virtual_key(), virtual_value()),
        entries(smart_key(), hosts()),
        entries(domain().prop_map(str::to_owned), domain().prop_map(str::to_owned)),
        entries(user().prop_map(str::to_owned), alias_value()),
    );
    (maps, prop::collection::vec(rule(), 0..3), any::<bool>()).prop_map(
        |((mailertable, virtusertable, smarttable, domaintable, aliases), rules, is_sender_first)| World {
            maps: vec![
                ("mailertable", mailertable),
                ("virtusertable", virtusertable),
                ("smarttable", smarttable),
                ("domaintable", domaintable),
                ("aliases", aliases),
            ],
            rules,
            is_sender_first,
        },
    )
}

fn router_of(world: &World) -> Router {
    let texts: Vec<(&str, Vec<(&str, &str)>)> = world
        .maps
        .iter()
        .map(|(name, entries)| (*name, entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()))
        .collect();
    let slices: Vec<(&str, &[(&str, &str)])> =
        texts.iter().map(|(name, entries)| (*name, entries.as_slice())).collect();
    let mut router = router(&slices);
    router.classes.virt = class(&["virt.test"]);
    router.rules.clone_from(&world.rules);
    router.settings.precedence = if world.is_sender_first { Precedence::Sender } else { Precedence::Recipient };
    router
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Every resolution ends; each delivery reads back, occurs once, and is explained; no recipient is forgotten.
    #[test]
    fn every_way_ends_and_is_explained(world in world(), sender in address(), recipient in address()) {
        let router = router_of(&world);
        let resolution = resolve(&router, &format!("<{sender}>"), &recipient);
        prop_assert!(router.lint().iter().all(|lint| !lint.text.is_empty() && !lint.hint.is_empty()));
        let Ok(Resolution { outcome, steps, .. }) = resolution else { return Ok(()) };
        prop_assert!(!steps.is_empty());
        match outcome {
            Outcome::Deliver(deliveries) => {
                prop_assert!(!deliveries.is_empty());
                let mut seen = std::collections::HashSet::new();
                for delivery in &deliveries {
                    let read = Destination::parse(&delivery.destination.to_bytes());
                    prop_assert_eq!(read.as_ref(), Ok(&delivery.destination));
                    let mut plain = delivery.destination.clone();
                    plain.is_copy = false;
                    prop_assert!(seen.insert((delivery.address.key(), plain, delivery.sender.clone())), "{delivery:?} twice");
                }
            }
            Outcome::Refuse(refusal) => {
                prop_assert!((400..600).contains(&refusal.code));
                // An entry that refuses is in the trace.
                if let Some(found) = &refusal.found {
                    prop_assert!(steps.iter().any(|step| step.found.as_ref() == Some(found)), "{found:?} {steps:?}");
                }
            }
            Outcome::Discard => {}
        }
    }

    /// Senders of one class have the same resolution, so one of them may use the result of another.
    #[test]
    fn senders_of_a_class_share_their_resolution(world in world(), senders in (address(), address()), recipient in address()) {
        let router = router_of(&world);
        let class = |sender: &str| {
            let sender: ReversePath = format!("<{sender}>").parse().unwrap();
            let recipient: Address = recipient.parse().unwrap();
            let client = "192.0.2.99".parse().ok();
            let request = Request { sender: &sender, recipient: &recipient, client, is_local_submission: false };
            router.sender_class(&mut Ask::new(&Answers::new()), &request).unwrap()
        };
        if class(&senders.0) == class(&senders.1) {
            let of = |sender: &str| resolve(&router, &format!("<{sender}>"), &recipient);
            prop_assert_eq!(of(&senders.0), of(&senders.1));
        }
    }

    /// A limit below the work of a resolution stops it; a higher one does not change its result.
    #[test]
    fn a_limit_of_work_stops_and_changes_nothing(world in world(), recipient in address(), work in 0_u64..30) {
        let router = router_of(&world);
        let sender = ReversePath::Null;
        let recipient: Address = recipient.parse().unwrap();
        let request = Request { sender: &sender, recipient: &recipient, client: None, is_local_submission: false };
        let answers = Answers::new();
        let limited = router.resolve(&mut Ask::with_work(&answers, work), &request);
        if limited != Err(Stop::TooMuchWork) {
            prop_assert_eq!(limited, router.resolve(&mut Ask::new(&answers), &request));
        }
    }

    /// Without rules and for a recipient elsewhere: with precedence of the sender his entry decides, if he has one.
    #[test]
    fn precedence_is_as_said(world in world(), sender in address(), host in "[a-z]{1,3}") {
        let recipient = format!("x@{host}.a.test");
        let mut router = router_of(&world);
        router.rules.clear();
        router.maps.domaintable.clear();
        router.maps.virtusertable.clear();
        router.maps.aliases.clear();
        let path: ReversePath = format!("<{sender}>").parse().unwrap();
        let answers = Answers::new();
        let smart = smarttable::find(&mut Ask::new(&answers), &router.maps.smarttable, &path, Some('+'));
        let mailer = crate::tables::mailertable::find(&mut Ask::new(&answers), &router.maps.mailertable, &format!("{host}.a.test"));
        let (first, second) = match world.is_sender_first {
            true => (("smarttable", smart), ("mailertable", mailer)),
            false => (("mailertable", mailer), ("smarttable", smart)),
        };
        let decided = [first, second].into_iter().find_map(|(stage, entry)| Some((stage, entry.unwrap()?)));
        let resolution = resolve(&router, &format!("<{sender}>"), &recipient);
        match (decided, resolution) {
            (Some((stage, entry)), Ok(resolution)) => {
                let step = resolution.steps.iter().find(|step| step.found.is_some()).unwrap();
                prop_assert_eq!(step.stage, stage);
                prop_assert_eq!(step.found.as_ref(), Some(&entry.found));
            }
            (Some((_, entry)), Err(Stop::Trouble(why))) => {
                let is_told = MailerValue::parse(&entry.value, 25).is_err_and(|fault| why.contains(&fault.text));
                prop_assert!(is_told, "{why}");
            }
            (None, Ok(resolution)) => {
                prop_assert_eq!(resolution.steps.last().map(|step| step.stage), Some("mx"));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

/// The property above sees a router that asks in the wrong order.
#[test]
fn the_wrong_order_is_seen() {
    let mut router = router(&[
        ("mailertable", &[("x.a.test", "smtp:[10.0.0.1]")]),
        ("smarttable", &[("@a.test", "smtp:[10.0.0.2]")]),
    ]);
    let stage = |router: &Router| {
        resolve(router, "<joe@a.test>", "x@x.a.test")
            .unwrap()
            .steps
            .iter()
            .find(|step| step.found.is_some())
            .unwrap()
            .stage
    };
    assert_eq!(stage(&router), "mailertable");
    router.settings.precedence = Precedence::Sender;
    assert_eq!(stage(&router), "smarttable");
}
