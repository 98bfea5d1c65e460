//! The fuzz bodies of aliases, see [`crate::fuzz`].

use super::{
    AliasSettings, AliasTarget, Member, Origin, expand, list_members, parse_aliases, parse_list, parse_members,
};
use crate::question::{Answer, Answers, Ask, Question, Source};
use mail::{Domain, DomainName, LocalPart};
use std::sync::Arc;

fn survives(member: &Member) {
    if matches!(member, Member::Bad { .. } | Member::Error(_)) {
        return;
    }
    let text = member.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
    let (again, _) = parse_members(&text);
    assert_eq!(again.as_slice(), std::slice::from_ref(member), "{text:?}");
}

/// The text of an aliases file.
///
/// # Panics
/// When what must hold does not.
pub fn alias_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = parse_aliases("aliases", &text, &|domain| domain == "a.example");
    assert!(read.table.len() as u64 <= read.summary.aliases);
    assert!(read.summary.bytes <= 3 * text.len() as u64 + 1);
    for complaint in &read.complaints {
        assert!(!complaint.text.chars().any(char::is_control), "{complaint:?}");
    }
    for hit in read.table.iter() {
        assert!(!hit.key.is_empty() && !hit.value.is_empty());
        alias_members(hit.value.as_bytes());
    }
}

/// A value.
///
/// # Panics
/// When what must hold does not.
pub fn alias_members(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (read, complaints) = parse_members(&text);
    assert!(read.len() <= text.len() && complaints.len() <= 2 * text.len());
    read.iter().for_each(survives);
}

/// The text of an `:include:` file.
///
/// # Panics
/// When what must hold does not.
pub fn alias_include(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (read, _) = parse_list(&text);
    assert!(list_members(&text).map(|(_, member)| member).eq(read.iter().cloned()));
    read.iter().for_each(survives);
}

/// The text of joe's `.forward`: he and others are found, each once.
///
/// # Panics
/// When that is not so.
pub fn alias_forward(data: &[u8]) {
    let text: Arc<str> = String::from_utf8_lossy(data).into();
    let here = DomainName::new("a.example").expect("a name");
    let settings = AliasSettings {
        hostname: &here,
        is_local: &|domain| matches!(domain, Domain::Name(name) if name.ascii() == "a.example"),
        delimiter: Some('+'),
        depth_max: 10,
        expansion_max: 1000,
        accounts: true,
        forward: true,
    };
    let table = parse_aliases("aliases", "ann: joe, ann\nloop: loop2\nloop2: loop, joe\n", &|_| false).table;
    let sources = [Source::Loaded(Arc::new(table))];
    let joe = LocalPart::new("joe").expect("a name");
    let mut answers = Answers::new();
    for _ in 0..20 {
        let mut ask = Ask::new(&answers);
        if let Ok(expansion) = expand(&mut ask, &sources, &settings, &joe, &Origin::default()) {
            assert!(!expansion.recipients.is_empty());
            let mut reached = Vec::new();
            for one in &expansion.recipients {
                if !matches!(one.target, AliasTarget::Refused(_)) {
                    let who = format!("{:?} {:?}", one.target, one.origin.controller());
                    assert!(!reached.contains(&who), "{who}");
                    reached.push(who);
                }
                assert!(one.origin.depth() <= 11);
            }
            return;
        }
        let open = ask.into_open();
        if open.is_empty() {
            // A file of the default user that is not there.
            return;
        }
        for question in open {
            let answer = match &question {
                Question::User { name } if matches!(&**name, "joe" | "ann") => Answer::User { home: "/users".into() },
                Question::Forward { user, .. } if &**user == "joe" => {
                    Answer::Text { text: Arc::clone(&text), file: "/users/.forward".into(), owner: Some("joe".into()) }
                }
                _ => Answer::Nothing,
            };
            answers.insert(question, answer);
        }
    }
    panic!("it does not end");
}
