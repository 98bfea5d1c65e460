//! Any text, and any graph of aliases, against a model.

use super::World;
use crate::alias::{Member, fuzz, parse_aliases, parse_members};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: &[&str] = &[
    "joe, \"|/bin/x y\", :include:/a/b, \\ann, Joe Smith <joe@a.example>, /var/x",
    "# c\nlist: a,\n b, \\\nc\n\"q n\": \"|/x \\\"y\\\"\"\nx@a.example: y\n",
    "team: joe, <@a.example:b@c.example>;, \"a,b\"@c.example (c (d)), error:5.1.1:550 no",
    "\\joe, ann+x, joe@a.example, loop\n\n#x\n |/bin/x #@# y\n",
    "<\"|x\">, \"a\\\\b\", a%b@c, d%e.example, @, <, >, \"",
];

fn config() -> ProptestConfig {
    ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() }
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let cut = (0..SEEDS.len(), 0..SEEDS.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (cut, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)).prop_map(
        |((a, b, from, to), bytes)| {
            let (a, b) = (SEEDS[a].as_bytes(), SEEDS[b].as_bytes());
            let mut data = [&a[..from.index(a.len())], &b[to.index(b.len())..]].concat();
            for (at, byte) in bytes {
                if !data.is_empty() {
                    let at = at.index(data.len());
                    let interesting = b"\",:;|\\<>()@%#\n \t/+*";
                    data[at] = if byte < 200 { interesting[usize::from(byte) % interesting.len()] } else { byte };
                }
            }
            data
        },
    )
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z][a-z0-9._-]{0,8}", "[a-z ,:;<>()@%|/\\\\\"#+]{1,8}", "[äöü]{1,3}"]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn fuzz_bodies(data in mutated()) {
        for body in [fuzz::alias_file, fuzz::alias_members, fuzz::alias_include, fuzz::alias_forward] {
            body(&data);
        }
    }

    #[test]
    fn any_text_is_read(text in "\\PC{0,60}") {
        for body in [fuzz::alias_file, fuzz::alias_members, fuzz::alias_include, fuzz::alias_forward] {
            body(text.as_bytes());
        }
    }

    /// Names, commands and files of any kind survive writing, in a file too.
    #[test]
    fn what_is_written_reads_back(names in prop::collection::vec(name(), 1..6), kinds in prop::collection::vec(0..4_u8, 6)) {
        let members: Vec<Member> = names
            .iter()
            .zip(kinds)
            .filter_map(|(name, kind)| {
                let name = name.trim();
                Some(match kind {
                    0 => Member::Local(mail::LocalPart::new(name).ok().filter(|name| !name.as_str().is_empty())?),
                    1 => Member::Mailbox(mail::LocalPart::new(name).ok().filter(|name| !name.as_str().is_empty())?),
                    2 => Member::Program(format!("/bin/{name}").into()),
                    _ => Member::File(format!("/x y/{}", name.replace('@', "-")).trim().into()),
                })
            })
            .collect();
        let text = members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (again, complaints) = parse_members(&text);
        prop_assert_eq!(&again, &members, "{}", text);
        prop_assert!(complaints.is_empty(), "{:?}", complaints);
        if !text.is_empty() {
            let file = parse_aliases("aliases", &format!("list: {text}\n"), &|_| false);
            prop_assert_eq!(file.table.get("list").map(|hit| hit.value), Some(text.as_str()));
        }
    }
}

/// Names 0..=7 are aliases, 4..=11 are accounts, and 20.. are addresses elsewhere.
fn text_of(number: u8) -> String {
    match number {
        20.. => format!("x{number}@out.example"),
        _ if number % 3 == 2 => format!("n{number}@our.test"),
        _ => format!("n{number}"),
    }
}

/// Returns the names that are reached, and the ends: plain reachability, without depth.
fn model(graph: &BTreeMap<u8, Vec<u8>>, forwards: &BTreeMap<u8, Vec<u8>>, start: u8) -> (BTreeSet<u8>, BTreeSet<u8>) {
    let (mut seen, mut ends) = (BTreeSet::new(), BTreeSet::new());
    let mut work = vec![start];
    while let Some(number) = work.pop() {
        if !seen.insert(number) {
            continue;
        }
        match (graph.get(&number), forwards.get(&number)) {
            (Some(members), _) | (None, Some(members)) => work.extend(members),
            (None, None) => {
                ends.insert(number);
            }
        }
    }
    (seen, ends)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn everybody_is_reached_once(
        graph in prop::collection::btree_map(0..8_u8, prop::collection::vec(prop_oneof![0..14_u8, 20..24_u8], 1..5), 1..8),
        forwards in prop::collection::btree_map(8..12_u8, prop::collection::vec(prop_oneof![0..14_u8, 20..24_u8], 1..3), 0..4),
        start in 0..8_u8,
    ) {
        let list = |members: &Vec<u8>| members.iter().map(|one| text_of(*one)).collect::<Vec<_>>().join(", ");
        let text: String =
            graph.iter().map(|(name, members)| format!("n{name}: {}\n", list(members))).collect();
        let mut world = World::new(&text);
        world.depth_max = 100;
        world.accounts.clear();
        for number in 4..12 {
            let forward = forwards.get(&number).map(list).unwrap_or_default();
            world = world.forward(&format!("n{number}"), &forward);
        }
        let who = world.who(&format!("n{start}"));
        let unique: BTreeSet<&String> = who.iter().collect();
        prop_assert_eq!(unique.len(), who.len(), "{:?}", who);
        let (seen, ends) = model(&graph, &forwards, start);
        // Each name at an end gets the mail, however it is reached.
        for number in ends {
            let wanted = match number {
                20.. => text_of(number),
                4..12 => format!("n{number}"),
                _ => format!("?n{number}"),
            };
            prop_assert!(who.contains(&wanted), "{} of {:?} in {:?}", wanted, who, text);
        }
        // No other name gets it but accounts that lead to themselves, and names that lead to nothing but themselves.
        for one in &who {
            let number = one.trim_start_matches(['n', 'x', '?']).split('@').next().and_then(|text| text.parse().ok());
            let is_loop = one.contains("loop broken") && who.len() == 1;
            prop_assert!(is_loop || number.is_some_and(|number: u8| seen.contains(&number)), "{} of {:?}", one, text);
        }
        // Mail never comes to nothing without a word.
        prop_assert!(!who.is_empty(), "{:?}", text);
    }
}
