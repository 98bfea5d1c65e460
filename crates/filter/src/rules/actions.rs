//! The actions of a rule file, one on each line.

use mail::{Address, EnhancedCode, Outcome, Reply, ReplyCode};

use super::pattern::pattern;
use super::statement::Statement;
use super::tokens::Token;
use crate::action::{Action, Final, HeaderEdit, Keeper};

/// Octets of a reply of a rule.
const REPLY_OCTETS_MAX: usize = 400;
/// Octets of a value or tag.
const VALUE_OCTETS_MAX: usize = 900;

/// Reads an action.
pub(super) fn parse(statement: Statement<'_>) -> Result<Action, String> {
    let words: Vec<&str> = statement.tokens.iter().filter_map(text_of).collect();
    let has_others = statement.tokens.iter().any(|token| text_of(token).is_none());
    Ok(match (words.as_slice(), has_others) {
        (["accept"], false) => Action::Final(Final::Accept),
        (["discard"], false) => Action::Final(Final::Discard),
        (["hold"], false) => Action::Final(Final::Hold),
        (["quarantine", "recipient"], false) => Action::Final(Final::Quarantine(Keeper::Recipient)),
        (["quarantine", "administrator"], false) => Action::Final(Final::Quarantine(Keeper::Administrator)),
        (["quarantine", ..], _) => {
            return Err("write \"quarantine recipient\" or \"quarantine administrator\"".to_owned());
        }
        (["reject"], false) => {
            Action::Final(Final::Reject(reply("Message content is not accepted", Outcome::Permanent)?))
        }
        (["reject", text], false) => Action::Final(Final::Reject(reply(text, Outcome::Permanent)?)),
        (["defer"], false) => Action::Final(Final::Defer(reply("Message is not accepted now", Outcome::Transient)?)),
        (["defer", text], false) => Action::Final(Final::Defer(reply(text, Outcome::Transient)?)),
        (["reject" | "defer", ..], _) => return Err("put the reply into quotes: reject \"550 5.7.1 text\"".to_owned()),
        (["add", "header", name, text], false) => {
            Action::Edit(HeaderEdit::Add { name: field_name(name)?, value: value(text)? })
        }
        (["change", "header", name, text], false) => {
            Action::Edit(HeaderEdit::Change { name: field_name(name)?, value: value(text)? })
        }
        (["remove", "header", name], _) => Action::Edit(HeaderEdit::Remove {
            name: field_name(name)?,
            matching: match statement.tokens.get(3..).unwrap_or_default() {
                [] => None,
                [Token::Sign("~"), Token::Pattern(text)] => Some(pattern(text)?),
                _ => return Err("write \"remove header NAME\" or \"remove header NAME ~ /pattern/\"".to_owned()),
            },
        }),
        (["tag", "subject", tag], false) => Action::Edit(HeaderEdit::TagSubject(value(tag)?)),
        (["redirect", to], false) => Action::Redirect(address(to)?),
        (["copy", to], false) => Action::Copy(address(to)?),
        (["route", route], false) => Action::Route(value(route)?),
        (["class", class], false) => Action::Class(name(class)?),
        (["queue", "group", group], false) => Action::QueueGroup(name(group)?),
        _ => {
            return Err("this is no action; actions are accept, reject \"TEXT\", defer \"TEXT\", discard, quarantine \
                        recipient, quarantine administrator, hold, add header NAME \"TEXT\", change header NAME \"TEXT\", \
                        remove header NAME, tag subject \"TEXT\", redirect ADDRESS, copy ADDRESS, route \"ROUTE\", class \
                        NAME, queue group NAME; conditions stand inside \"match any {\""
                .to_owned());
        }
    })
}

fn text_of(token: &Token) -> Option<&str> {
    match token {
        Token::Word(text) | Token::Text(text) => Some(text),
        _ => None,
    }
}

/// Reads a reply with or without its codes.
fn reply(text: &str, outcome: Outcome) -> Result<Reply, String> {
    let (code, status, word) = match outcome {
        Outcome::Transient => (ReplyCode::of(451), EnhancedCode::of(outcome, 7, 1), "4"),
        _ => (ReplyCode::of(550), EnhancedCode::of(outcome, 7, 1), "5"),
    };
    if text.len() > REPLY_OCTETS_MAX || text.trim().is_empty() || !text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    {
        return Err(format!("a reply has 1 to {REPLY_OCTETS_MAX} printable ASCII characters"));
    }
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let is_code = first.len() == 3 && first.bytes().all(|byte| byte.is_ascii_digit());
    if !is_code {
        return Ok(Reply::new(code, Some(status), text));
    }
    let own = first.parse().ok().and_then(ReplyCode::new).filter(|own| own.outcome() == Some(outcome));
    let own = own.ok_or_else(|| format!("\"{first}\" does not fit the action; its code begins with {word}"))?;
    let (second, behind) = rest.split_once(' ').unwrap_or((rest, ""));
    let (own_status, text) = match second.parse::<EnhancedCode>() {
        Ok(status) => (status, behind),
        Err(_) => (status, rest),
    };
    if own_status.outcome() != outcome {
        return Err(format!("\"{own_status}\" does not fit \"{first}\"; it begins with {word}"));
    }
    let text = if text.trim().is_empty() { "Message content is not accepted" } else { text };
    Ok(Reply::new(own, Some(own_status), text))
}

// RFC 5322 §2.2: ftext is printable ASCII without colon
fn field_name(text: &str) -> Result<String, String> {
    let fits = (1..=77).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    fits.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is no name of a header field"))
}

fn value(text: &str) -> Result<String, String> {
    let fits = text.len() <= VALUE_OCTETS_MAX && !text.trim().is_empty() && !text.chars().any(mail::is_unprintable);
    fits.then(|| text.to_owned()).ok_or_else(|| format!("a text here has 1 to {VALUE_OCTETS_MAX} printable characters"))
}

fn name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    fits.then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no name of letters, digits, \"-\", \"_\" and \".\""))
}

fn address(text: &str) -> Result<Address, String> {
    Address::parse(text.as_bytes()).map_err(|error| format!("{text:?} is no address: {error}"))
}
