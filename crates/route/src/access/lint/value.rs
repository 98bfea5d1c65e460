//! Doubts about values.

use super::super::tag::{AuthInfo, TlsDemand, Values, is_group, letters};
use super::super::value::{AccessValue, ErrorText, unquote};
use super::super::{DelayChecks, Options, RelayMailFrom};
use super::{CheckedEntry, LintMessage, error, warning};
use mail::Outcome;

const WORDS: &str = "write OK, RELAY, REJECT, DISCARD, SKIP, QUARANTINE:reason or ERROR:5.7.1:\"550 text\"";

/// Checks the value of an entry. The first doubt is enough.
pub(super) fn check(line: &CheckedEntry<'_>, options: &Options, doubts: &mut Vec<LintMessage>) {
    let values = line.known.map_or(Values::Ruling, |known| known.values);
    // Tags whose meaning is a number or a word take SKIP, too.
    let is_skip = line.value == AccessValue::Skip && values != Values::FriendOrHater;
    let doubt = match values {
        Values::Ruling => ruling(line, options),
        Values::FriendOrHater => friend(line, options),
        _ if is_skip => None,
        Values::Number => match line.text.parse::<u32>() {
            Err(_) => Some(error("it is no number", "write a number; 0 is no limit")),
            Ok(pause) if line.is_for("GreetPause") && pause > 300_000 => {
                Some(warning("a pause has 300000 milliseconds at most", "write 300000"))
            }
            Ok(_) => None,
        },
        Values::Tls => (TlsDemand::parse(line.text).is_none() && line.value != AccessValue::Ok)
            .then(|| error("nothing is demanded by this", "write VERIFY, VERIFY:bits or ENCR:bits")),
        Values::No => {
            (!line.text.eq_ignore_ascii_case("NO")).then(|| warning("only NO has an effect", "remove it, or write NO"))
        }
        Values::Auth => auth(line),
        Values::Letters if line.is_for("Srv_Features") => offers(line.text),
        Values::Letters => {
            letters(line.text).is_none().then(|| error("these are no letters", "write letters, as in S l"))
        }
        Values::Group => (!is_group(line.text))
            .then(|| error("it is no name of a queue group", "write one name of at most 64 letters")),
        Values::Address => {
            let address = unquote(line.text);
            (!address.is_empty() && address.parse::<mail::Address>().is_err())
                .then(|| error("it is no address", "write an address, or \"\" for nobody"))
        }
        Values::Certificate => {
            let is_subject = line.value == AccessValue::Subject && line.is_for("CertIssuer");
            (line.value != AccessValue::Relay && !is_subject)
                .then(|| error("it gives no right", "write RELAY or SUBJECT"))
        }
        Values::Any if line.is_for("TLS_Srv_features") => Some(warning(
            "the server has the same certificate and ciphers for every client",
            "remove it; tls.version_min and tls.certificate are for all clients",
        )),
        Values::Any => None,
    };
    doubts.extend(doubt);
}

/// Letters of `Srv_Features:`.
fn offers(text: &str) -> Option<LintMessage> {
    const KNOWN: &str = "SsAaLlCcDdPpXxVvGgUu";
    let Some(letters) = letters(text) else {
        return Some(error("these are no letters", "write letters, as in S l"));
    };
    let without = |unwanted: &dyn Fn(char) -> bool| {
        let rest: Vec<String> = letters.chars().filter(|c| !unwanted(*c)).map(String::from).collect();
        if rest.is_empty() { "remove it".to_owned() } else { format!("write {}", rest.join(" ")) }
    };
    // 2 stands behind g and u: sendmail puts a blank there, here it is the end of a line anyway.
    let is_doubtful = |c: char| !KNOWN.contains(c) && c != '2';
    if let Some(letter) = letters.chars().find(|c| is_doubtful(*c)) {
        let why = match letter {
            'B' | 'b' => "there is no VERB",
            'E' | 'e' => "there is no ETRN",
            'F' | 'f' => {
                "commands that come before their time are judged by smtp.bare_newline and the greeting pause alone"
            }
            'O' | 'o' => "only CRLF.CRLF ever ends a message",
            'H' | 'h' => "the words of HTTP always end a session",
            _ => "no offer has this letter",
        };
        return Some(warning(format!("{letter} has no effect: {why}"), without(&is_doubtful)));
    }
    letters.contains('C').then(|| {
        warning(
            "C offers PLAIN and LOGIN without TLS: everybody on the way can read the password",
            without(&|c| c == 'C'),
        )
    })
}

fn auth(line: &CheckedEntry<'_>) -> Option<LintMessage> {
    let hint = "write \"U:user\" \"P:password\"";
    match AuthInfo::parse(line.text) {
        None => Some(error("it is no login", hint)),
        Some(info) => info.password.is_none().then(|| warning("it has no password", hint)),
    }
}

fn friend(line: &CheckedEntry<'_>, options: &Options) -> Option<LintMessage> {
    let wanted = match (&line.value, options.delay_checks) {
        (AccessValue::Friend, DelayChecks::Friend) | (AccessValue::Hater, DelayChecks::Hater) => return None,
        (AccessValue::Friend, _) => "friend",
        (AccessValue::Hater, _) => "hater",
        _ => return Some(error("Spam: knows no such word", "write FRIEND or HATER")),
    };
    Some(error("it has no effect with these options", format!("set delay_checks in [access] to \"{wanted}\"")))
}

fn ruling(line: &CheckedEntry<'_>, options: &Options) -> Option<LintMessage> {
    match &line.value {
        AccessValue::Friend | AccessValue::Hater => {
            Some(error(format!("only Spam: knows {}", line.value.word()), format!("write Spam:{}", line.body)))
        }
        AccessValue::Subject => Some(error("only CertIssuer: knows SUBJECT", WORDS)),
        AccessValue::Relay => relay(line, options),
        _ if line.name() == "To" && !options.blocklist_recipients => Some(error(
            "entries for recipients other than RELAY have no effect",
            "set blocklist_recipients in [access]",
        )),
        AccessValue::Quarantine(_) => (!line.text.contains(':') || line.text.ends_with(':')).then(|| {
            warning("it gives no reason; without a colon sendmail refuses mail for it", "write QUARANTINE:reason")
        }),
        AccessValue::Error(text) => refusal(line.text, text),
        _ => None,
    }
}

/// `RELAY` that gives no right.
fn relay(line: &CheckedEntry<'_>, options: &Options) -> Option<LintMessage> {
    let (user, domain) = line.body.rsplit_once('@').map_or((None, line.body), |(user, domain)| (Some(user), domain));
    match (line.name(), user, options.relay_mail_from) {
        ("From", Some(_), RelayMailFrom::No) | ("From", None, RelayMailFrom::No | RelayMailFrom::Address) => {
            Some(warning("a sender's address gives no right to relay, so this is OK", "write OK"))
        }
        ("From", Some(_), _) if domain.is_empty() => {
            Some(warning("a user of any domain gets no right to relay, so this is OK", "write OK"))
        }
        ("To", Some(_), _) if !options.relay_to_full_address => {
            let hint = format!("write To:{domain}, or set relay_to_full_address");
            Some(error("RELAY counts for domains, not for addresses", hint))
        }
        _ => None,
    }
}

/// Checks the text of a refusal: the changes that sendmail makes to it, and missing parts.
fn refusal(written: &str, error_text: &ErrorText) -> Option<LintMessage> {
    let ErrorText { code, status, text } = error_text;
    let is_tagged = written.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("ERROR"));
    if !is_tagged && code.is_none() {
        let hint = if matches!(written.to_ascii_uppercase().as_str(), "DUNNO" | "NONE" | "DEFAULT") {
            "write SKIP"
        } else {
            WORDS
        };
        return Some(error(format!("it is no keyword, and refuses mail with 553 5.3.0 {text}"), hint));
    }
    let outcome = match (code, status) {
        (Some(400..=499), _) => Outcome::Transient,
        (None, Some(status)) => status.outcome(),
        _ => Outcome::Permanent,
    };
    let wanted_code = match (code, outcome) {
        (Some(code @ 400..=599), _) => *code,
        (_, Outcome::Transient) => 451,
        _ => 550,
    };
    let keyword = ["nouser", "nohost", "unavailable", "tempfail", "usage", "protocol"]
        .iter()
        .find_map(|word| text.strip_prefix(&format!("{word}:")));
    if let Some(rest) = keyword {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
        return Some(error(
            "the access map knows no such words, and tells it to the client",
            format!("write ERROR:5.1.1:\"550 {rest}\""),
        ));
    }
    let wanted =
        status.map_or_else(|| format!("{}.7.1", outcome.digit()), |status| status.with_outcome(outcome).to_string());
    let hint = format!("write ERROR:{wanted}:\"{wanted_code} {text}\"");
    match code {
        None => return Some(error("it has no reply code; sendmail refuses with 553 5.3.0 then", hint)),
        Some(400..=599) => {}
        Some(code) => return Some(error(format!("{code} is no code of a refusal"), hint)),
    }
    if status.is_some_and(|status| status.outcome() != outcome) {
        return Some(warning("one of its two codes says never, the other later; the reply code counts", hint));
    }
    if !written.contains('"') && text.contains(|c: char| ".,;:@<>()[]\"!%".contains(c)) {
        return Some(warning("without quotes sendmail loses blanks beside punctuation", hint));
    }
    if text.as_bytes().windows(2).any(|pair| matches!(pair, [b'%', digit] if digit.is_ascii_digit())) {
        return Some(warning(
            "sendmail replaces % and a digit",
            "write it without %, for sendmail puts other text there",
        ));
    }
    if status.is_none() {
        return Some(warning("it has no enhanced code; sendmail sends 5.0.0 or 4.0.0 then", hint));
    }
    None
}
