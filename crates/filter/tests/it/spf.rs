//! The public test suite for RFC 7208.

use filter::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, DnsRecord, RecordKind};
use filter::spf::{SpfRequest, check};
use serde_json::Value;

/// Aliases of one name that are followed.
const ALIASES_MAX: usize = 10;

fn answer(zone: &Value, question: &DnsQuestion) -> DnsAnswer {
    let mut name = question.name.clone();
    for _ in 0..ALIASES_MAX {
        let records = &zone[&name];
        let Some(alias) = records["CNAME"][0].as_str() else { break };
        name = alias.trim_end_matches('.').to_ascii_lowercase();
    }
    let records = &zone[&name];
    let (kind, read): (&str, fn(&Value) -> DnsRecord) = match question.kind {
        RecordKind::A => ("A", |value| DnsRecord::Address(value.as_str().unwrap().parse().unwrap())),
        RecordKind::Aaaa => ("AAAA", |value| DnsRecord::Address(value.as_str().unwrap().parse().unwrap())),
        RecordKind::Mx => ("MX", |value| DnsRecord::Exchange(value[1].as_str().unwrap().to_owned())),
        RecordKind::Ptr => ("PTR", |value| DnsRecord::Name(value.as_str().unwrap().to_owned())),
        RecordKind::Txt => ("TXT", |value| DnsRecord::Text(value.as_str().unwrap().to_owned())),
    };
    match records[kind].as_array() {
        Some(found) => DnsAnswer::Records(found.iter().map(read).collect()),
        None if records["TIMEOUT"] == true => DnsAnswer::Failed,
        None => DnsAnswer::Records(Vec::new()),
    }
}

// RFC 7208 §4 (test), RFC 7208 §5 (test), RFC 7208 §7 (test)
#[test]
fn the_suite_of_openspf() {
    let suite: Value = serde_json::from_str(include_str!("../spf/rfc7208.json")).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for group in suite["groups"].as_array().unwrap() {
        for (name, test) in group["tests"].as_object().unwrap() {
            let text = |key: &str| test[key].as_str().unwrap();
            let request = SpfRequest {
                ip: text("host").parse().unwrap(),
                helo: text("helo"),
                sender: text("mailfrom"),
                receiver: "receiver.example",
                time: 0,
            };
            let mut answers = DnsAnswers::default();
            let mut asked = 0;
            let found = loop {
                match check(&request, &answers) {
                    Ok(found) => break found,
                    Err(question) => {
                        let found = answer(&group["zone"], &question);
                        answers.insert(question, found);
                    }
                }
                asked += 1;
                assert!(asked < 250, "{name} asks without end");
            };
            let allowed: Vec<&str> = test["result"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            if !allowed.contains(&found.code.name()) {
                wrong.push(format!("{name}: {found:?}, not {allowed:?}"));
            }
            let explanation = found.explanation.as_deref().unwrap_or("DEFAULT");
            if test["explanation"].as_str().is_some_and(|expected| expected != explanation) {
                wrong.push(format!("{name}: {explanation:?}, not {}", test["explanation"]));
            }
            count += 1;
        }
    }
    assert!(count == 203 && wrong.is_empty(), "{} of {count} tests fail:\n{}", wrong.len(), wrong.join("\n"));
}
