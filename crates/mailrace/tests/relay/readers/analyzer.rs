//! The kinds that sendmailanalyzer sorts lines of sendmail into, by the fields it looks for. Debian does not have the
//! program.

use super::counts::Counts;

/// Counts lines by kind.
pub(super) fn count<'a>(lines: impl Iterator<Item = &'a str>) -> Counts {
    let mut counts = Counts::new();
    for kind in lines.filter_map(kind) {
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    counts
}

/// `None`: it skips the line.
fn kind(line: &str) -> Option<&'static str> {
    // Its patterns take what stands before the first colon for a queue id when there is no blank in it.
    let (id, rest) = match line.split_once(": ") {
        Some((id, rest)) if !id.is_empty() && !id.contains([' ', ':']) => (Some(id), rest),
        _ => (None, line),
    };
    let has = |keys: &[&str]| {
        let mut left = rest;
        keys.iter().all(|key| match left.split_once(key) {
            Some((_, behind)) => {
                left = behind;
                true
            }
            None => false,
        })
    };
    let begins = |begin: &str, keys: &[&str]| rest.starts_with(begin) && has(keys);
    let words = ["DSN", "return to sender", "sender notify", "postmaster notify"];
    let is_report = rest.split_once(": ").is_some_and(|(_, behind)| {
        words.iter().any(|word| behind.strip_prefix(word).is_some_and(|behind| behind.starts_with(": ")))
    });
    let found = match id {
        Some(_) if rest.starts_with('<') && has(&[">... "]) => "recipient refused",
        Some(_) if begins("from=", &[", size=", ", nrcpts=", ", msgid=", "relay="]) => "message with an id",
        Some(_) if begins("from=", &[", size=", ", nrcpts=", "relay="]) => "message without an id",
        Some(_) if begins("to=", &[", delay=", " stat=queued"]) => "queued",
        Some(_) if begins("to=", &[", ctladdr=", ", mailer=", ", relay=", "stat="]) => "delivery of a list",
        Some(_) if begins("to=", &[", delay=", ", mailer=local,", ", stat="]) => "local delivery",
        Some(_) if begins("to=", &[", delay=", ", relay=", "stat="]) => "delivery",
        Some(_) if begins("to=", &[", delay=", ", pri=", ", stat="]) => "no delivery",
        Some(_) if begins("ruleset=", &[", arg1=", ", relay=", "reject="]) => "refusal",
        None if begins("ruleset=", &[", arg1=", " relay=", "reject="]) => "refusal without an id",
        Some(_) if is_report => "report",
        Some(id) if id.len() != 14 => return None,
        Some(_) if rest.contains("clone") || rest.contains("owner") => return None,
        Some(_) if !rest.contains(' ') => return None,
        Some(_) => "error",
        None if begins("AUTH=", &[", relay=", ", authid=", ", mech=", ", bits="]) => "login",
        None if begins("STARTTLS=", &[", relay=", ", version=", ", verify=", ", cipher=", ", bits="]) => "TLS",
        None => "other",
    };
    Some(found)
}
