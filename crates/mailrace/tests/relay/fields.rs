//! A comparison of `mailrace queue … --json`, field by field, with the tables of docs/operation.md, section 9: both
//! have the same fields, except those named here.

use crate::hop::{Hop, Manners};
use crate::world::{by_literal, retrying, send, wait_line};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use testkit::harness::{Server, poll};

const PAGE: &str = include_str!("../../../../docs/operation.md");
const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";
/// Commands and values that stand among the fields.
const WORDS: [&str; 19] = [
    "list",
    "show",
    "stragglers",
    "retry",
    "true",
    "slow",
    "urgent",
    "bulk",
    "connection",
    "rate",
    "pace",
    "delivery.connections_max",
    "operator",
    "rule",
    "server",
    "import",
    "quarantine",
    "screen",
    "replacement",
];
/// The fields that need another queue than that of this test: an envelope that rotted, hosts that were silent, refuse
/// some of the mail, are being tried or reported by another node, a limit that was set, a guest who asks, mail that
/// waits for filters or that another node may own; and the fields of `hold`.
const ELSEWHERE: [(&str, &[&str]); 4] = [
    ("id", &["trouble"]),
    ("recipients", &["by", "kind", "text"]),
    ("destination", &["lane", "learned_messages_per_second", "reported_by", "set_limit", "trying"]),
    ("ok", &["not_owned", "own", "unscreened"]),
];
/// The fields that a destination has only while mail for it waits for a connection.
const FOR_A_MOMENT: [&str; 5] = ["waits_for", "waits_since", "connections_max", "ready", "has_more"];

type Fields = BTreeMap<&'static str, BTreeSet<String>>;

/// The names in a row of the table.
#[track_caller]
fn documented(row: &str) -> BTreeSet<String> {
    let table = PAGE.split("| Line with | Fields |").nth(1).expect("a table");
    let start = format!("| `{row}` | ");
    let text = table.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no row {row}"));
    let names = text.split('`').skip(1).step_by(2).filter(|name| !WORDS.contains(name));
    names.map(str::to_owned).collect()
}

fn add(fields: &mut Fields, row: &'static str, object: &Value) {
    let names = object.as_object().expect("an object").keys().cloned();
    fields.entry(row).or_default().extend(names);
}

/// Adds the fields of each line that a command prints.
#[track_caller]
fn ask(server: &Server, fields: &mut Fields, words: &[&str]) {
    let output = server.control(&[&["queue"], words, &["--json"]].concat(), b"");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(!text.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{words:?}: {line}: {error}"));
        let row = ["ok", "missing", "id", "host"].into_iter().find(|row| line.get(row).is_some());
        let row = row.unwrap_or("destination");
        add(fields, row, &line);
        if row == "id" {
            line["recipients"].as_array().expect("a list").iter().for_each(|one| add(fields, "recipients", one));
            let places = line.get("destinations").and_then(Value::as_object).into_iter().flatten();
            places.for_each(|(_, place)| add(fields, "destination", place));
        }
    }
}

#[test]
fn every_field_is_written_down_and_every_one_that_is_written_down_is_given() {
    let mut hops = Hop::neighbours(vec![Manners::default()]);
    hops[0].shut();
    let rule = format!("[{{match = [\"{}\"], messages_per_second = 5}}]", hops[0].ip());
    let setup = by_literal(&hops).set("destination", rule).set("delivery.warn_after", "\"1s\"");
    let setup = retrying(setup, "1h");
    let mut server = setup.listen("protocol = \"submission\", auth_required = false").start();
    let many: Vec<String> = (0..25).map(|number| hops[0].mailbox(&format!("r{number}"))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    send(&server, "<a@client.test> BODY=8BITMIME", &many, CONTENT);
    let one = format!("<{}> NOTIFY=DELAY", hops[0].mailbox("one"));
    let id = send(&server, "<a@client.test> BODY=8BITMIME MT-PRIORITY=4 HOLDFOR=10000", &[&one], CONTENT);
    wait_line(&mut server, &["state=down"]);
    poll("nobody is warned of the delay", || {
        let listed = server.control(&["queue", "list", "--json"], b"");
        String::from_utf8_lossy(&listed.stdout).contains("\"warned\":true").then_some(())
    });
    let mut fields = Fields::new();
    ask(&server, &mut fields, &["list"]);
    ask(&server, &mut fields, &["show", "--headers", &id, "6AK9BQPE592284"]);
    ask(&server, &mut fields, &["destinations"]);
    for by in ["destination", "recipient", "host"] {
        ask(&server, &mut fields, &["stragglers", "--older", "0s", "--by", by]);
    }
    ask(&server, &mut fields, &["hold", "--reason", "later", "--all"]);
    ask(&server, &mut fields, &["show", &id]);
    for change in ["release", "retry", "delete"] {
        ask(&server, &mut fields, &[change, "--all"]);
    }
    let rows = ["id", "recipients", "destination", "host", "missing", "ok"];
    assert_eq!(fields.keys().copied().collect::<BTreeSet<_>>(), rows.into());
    for row in rows {
        let mut written = documented(row);
        written.insert(row.to_owned());
        match row {
            "host" => {
                written.extend(documented("destination"));
                written.remove("destination");
                written.remove("to");
            }
            "recipients" => assert!(written.remove("recipients"), "that is the list, not of each"),
            _ => {}
        }
        let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == if row == "host" { "destination" } else { row });
        for name in elsewhere.into_iter().flat_map(|(_, names)| *names) {
            assert!(written.remove(*name), "{row}: {name} is not written down any more");
        }
        let mut given = fields[row].clone();
        if matches!(row, "destination" | "host") {
            for name in FOR_A_MOMENT {
                assert!(written.remove(name), "{row}: {name} is not written down any more");
                given.remove(name);
            }
        }
        assert_eq!(given, written, "{row}: given, and written in docs/operation.md");
    }
}

#[test]
fn stragglers_by_host_name_the_host_and_for_whom_mail_waits_there() {
    let mut hops = Hop::neighbours(vec![Manners::default()]);
    hops[0].shut();
    let at = |domain: &str| format!("{{domain = \"{domain}\", mx = [\"{}\"]}}", hops[0].ip());
    let hosts = format!("[{}, {}]", at("one.test"), at("two.test"));
    let setup = by_literal(&hops).set("dns.override", hosts).set("delivery.retry_first", "\"1h\"");
    let mut server = setup.set("delivery.retry_max", "\"1h\"").start();
    send(&server, "a@client.test", &["b@one.test", "c@one.test", "d@two.test"], CONTENT);
    wait_line(&mut server, &["stat=Deferred: Connection refused"]);
    // The hosts of each domain are looked up.
    let text = poll("both domains are not known to go there", || {
        let output = server.control(&["queue", "stragglers", "--older", "0s", "--by", "host"], b"");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.contains("for 2 destinations").then_some(text)
    });
    let lines: Vec<&str> = text.lines().collect();
    let [head, host, domains, down, sum] = lines.as_slice() else { panic!("{text}") };
    assert_eq!((*head, *sum), ("RECIPIENTS  MESSAGES  OLDEST  WHO", "3 recipients of 1 message"), "{text}");
    assert!(host.starts_with("         3         1  ") && host.contains(&hops[0].ip()), "{text}");
    assert_eq!(*domains, "            for 2 destinations: one.test two.test", "{text}");
    let refused = format!("Connection refused by {}", hops[0].ip());
    assert!(down.starts_with("            down, next try in ") && down.ends_with(&refused), "{text}");
}
