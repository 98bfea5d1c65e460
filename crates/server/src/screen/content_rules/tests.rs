//! Tests of judgements by content rules: by scope, in the log, and of actions that cannot be carried out.

use super::*;
use crate::screen::{Scopes, ScreenedRecipient};
use filter::Direction;

fn rules(text: &str) -> Arc<ContentRules> {
    Arc::new(ContentRules::new(RuleSet::parse(&[("a.rules", text)]).unwrap()).unwrap())
}

fn message(rules: &Arc<ContentRules>, recipients: &[&str], content: &str) -> ScreenedMessage {
    let mut scopes = Scopes::new(Some(Arc::clone(rules)));
    let mut recipient = |address: &&str| ScreenedRecipient {
        address: (*address).to_owned(),
        list: None,
        scope: scopes.of(address, None),
    };
    ScreenedMessage {
        content: content.as_bytes().to_vec(),
        rules_body_max: usize::MAX,
        is_complete: true,
        size: content.len() as u64,
        sender: "a@b.test".to_owned(),
        recipients: recipients.iter().map(&mut recipient).collect(),
        client_address: None,
        client_name: None,
        helo: None,
        listener: "MTA".to_owned(),
        direction: Direction::Inbound,
        authentication: Vec::new(),
        result_fields: 0,
    }
}

#[test]
fn recipients_of_one_scope_have_one_judgement() {
    let rules = rules(
        "rule tag {\n  tag subject \"[x] \"\n}\nrule own {\n  for recipient \"@here.test\"\n  match any {\n    \
         subject contains spam\n  }\n  quarantine recipient\n}\nrule rest {\n  class bulk\n}\n",
    );
    let message = message(&rules, &["a@here.test", "b@else.test", "c@here.test"], "Subject: spam\r\n\r\n");
    let scopes: Vec<u16> = message.recipients.iter().map(|one| one.scope).collect();
    assert_eq!(scopes, [0, 1, 0]);
    let screening = evaluate(rules.set(), &message);
    let here = screening.of(0).unwrap();
    assert_eq!(here.decision.as_ref().map(|decision| decision.place.as_str()), Some("a.rules:4"));
    assert_eq!((here.edits.len(), here.class), (1, None), "a decision ends the evaluation");
    let other = screening.of(1).unwrap();
    assert!(other.decision.is_none());
    assert_eq!((other.edits.len(), other.class), (1, Some(Class::Bulk)));
    let notes: Vec<(&str, &str)> = screening.notes.iter().map(|note| (&*note.by, &*note.to)).collect();
    assert_eq!(
        notes,
        [
            ("tag", "<a@here.test>,<b@else.test>,<c@here.test>"),
            ("own", "<a@here.test>,<c@here.test>"),
            ("rest", "<b@else.test>")
        ]
    );
}

#[test]
fn no_rule_that_holds_is_no_judgement() {
    let rules = rules("rule a {\n  match any {\n    subject contains spam\n  }\n  reject\n}\n");
    let screening = evaluate(rules.set(), &message(&rules, &["a@b.test"], "Subject: ham\r\n\r\n"));
    assert!(screening.is_nothing() && screening.notes.is_empty());
}

#[test]
fn actions_that_cannot_be_carried_out_are_named() {
    let text = "rule a {\n  class fast\n}\nrule b {\n  route \"not a route\"\n  queue group slow\n}\n";
    let problems = ContentRules::new(RuleSet::parse(&[("a.rules", text)]).unwrap()).unwrap_err();
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("a.rules line 1: rule a: there is no class fast"), "{said:?}");
    assert!(said[1].starts_with("a.rules line 4: rule b: route \"not a route\" is no route"), "{said:?}");
}
