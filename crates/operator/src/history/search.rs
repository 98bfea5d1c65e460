//! The expression that selects messages of the history: `from:@example.org reply~"mailbox full" after:2d`.
//!
//! Terms stand side by side and must all hold; `!` before one turns it round. `to:`, `host:` and `reply~` are about one
//! step of the message, and one step must fit all of them. A word without a name is looked for in ids, addresses,
//! hosts and replies.

use crate::queue::{ExpressionError, Pattern, age, expression_words, glob, hosts_match};
use mail::{Address, CivilTime, QueueId};

/// Octets of an expression.
const EXPRESSION_BYTES_MAX: usize = 4_096;
/// Names of terms with what they may look like.
const TERMS: [(&str, &str); 9] = [
    ("from", "from:@example.org"),
    ("to", "to:ann@example.org"),
    ("id", "id:6AK9BQPE592284"),
    ("host", "host:mx1.example"),
    ("client", "client:192.0.2.*"),
    ("before", "before:2026-11-27T14:30"),
    ("after", "after:2h"),
    ("status", "status:failed"),
    ("reply", "reply~\"mailbox full\""),
];
/// The states of a message in the history.
pub(super) const STATUSES: [&str; 7] = ["waiting", "held", "sent", "failed", "discarded", "deleted", "moved"];

/// Conditions on messages, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryExpression {
    terms: Vec<HistoryTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HistoryTerm {
    is_negated: bool,
    condition: HistoryCondition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HistoryCondition {
    From(Pattern),
    To(Pattern),
    Id(QueueId),
    /// Lower case, with `*` for any text.
    Host(Box<str>),
    Client(Box<str>),
    /// Microseconds since 1970.
    Before(u64),
    After(u64),
    Status(&'static str),
    /// Lower case; somewhere in a reply.
    Reply(Box<str>),
    /// Lower case; somewhere in any text.
    Word(Box<str>),
}

/// The facts of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageFacts<'a> {
    pub(super) id: QueueId,
    /// Empty for the null sender; `None` if the history began later.
    pub(super) sender: Option<&'a str>,
    pub(super) client: &'a str,
    pub(super) message_id: &'a str,
    pub(super) status: &'a str,
}

/// The facts of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepFacts<'a> {
    /// One address in a line.
    pub(super) addresses: &'a str,
    pub(super) host: &'a str,
    pub(super) reply: &'a str,
}

impl HistoryExpression {
    /// Reads an expression at a time in microseconds since 1970, from which ages and times of the day count; an empty
    /// one selects everything. Times are civil, `offset` seconds ahead of UTC.
    ///
    /// # Errors
    /// Names the term, and what may stand there.
    pub fn parse(text: &str, now_us: u64, offset: i64) -> Result<Self, ExpressionError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            let text = format!("the expression has {} octets, {EXPRESSION_BYTES_MAX} are the most", text.len());
            return Err(ExpressionError::new(text));
        }
        if let Some(control) = text.chars().find(|letter| letter.is_control()) {
            return Err(ExpressionError::new(format!("the expression has the control character {control:?}")));
        }
        let clock = SearchClock { now_us, offset };
        let terms =
            expression_words(text)?.iter().map(|word| HistoryTerm::parse(word, clock)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// Returns the message, if only one can be meant.
    pub(super) fn id(&self) -> Option<QueueId> {
        self.terms.iter().find_map(|term| match term.condition {
            HistoryCondition::Id(id) if !term.is_negated => Some(id),
            _ => None,
        })
    }

    /// Returns the times between which messages came, in microseconds since 1970, the second excluded.
    pub(super) fn span(&self) -> (u64, u64) {
        let mut span = (0, u64::MAX);
        for term in &self.terms {
            match (&term.condition, term.is_negated) {
                (HistoryCondition::After(at), false) | (HistoryCondition::Before(at), true) => span.0 = span.0.max(*at),
                (HistoryCondition::Before(at), false) | (HistoryCondition::After(at), true) => span.1 = span.1.min(*at),
                _ => {}
            }
        }
        span
    }

    /// Returns whether the terms hold that need no step.
    pub(super) fn matches_message(&self, facts: &MessageFacts<'_>) -> bool {
        self.terms.iter().all(|term| term.condition.holds(facts).is_none_or(|holds| holds != term.is_negated))
    }

    /// Returns whether steps have to be looked at.
    pub(super) fn needs_steps(&self) -> bool {
        self.terms.iter().any(|term| term.condition.is_of_step())
    }

    /// Returns the step that fits, the last one, if the terms about steps hold for a message.
    pub(super) fn find_step(&self, message: &MessageFacts<'_>, steps: &[StepFacts<'_>]) -> Option<usize> {
        let of_step = || self.terms.iter().filter(|term| term.condition.is_of_step());
        let is_barred = of_step()
            .filter(|term| term.is_negated)
            .any(|term| term.condition.is_in_message(message) || steps.iter().any(|step| term.condition.fits(step)));
        if is_barred {
            return None;
        }
        let fits = |step: Option<&StepFacts<'_>>| {
            let mut wanted = of_step().filter(|term| !term.is_negated);
            wanted
                .all(|term| term.condition.is_in_message(message) || step.is_some_and(|step| term.condition.fits(step)))
        };
        match steps.iter().rposition(|step| fits(Some(step))) {
            Some(at) => Some(at),
            None => fits(None).then_some(0),
        }
    }
}

impl HistoryCondition {
    const fn is_of_step(&self) -> bool {
        matches!(self, Self::To(_) | Self::Host(_) | Self::Reply(_) | Self::Word(_))
    }

    /// Returns whether a condition on the message holds; `None` for one on a step.
    fn holds(&self, facts: &MessageFacts<'_>) -> Option<bool> {
        Some(match self {
            Self::From(pattern) => facts.sender.is_some_and(|sender| is_meant(pattern, sender)),
            Self::Id(id) => *id == facts.id,
            Self::Client(glob) => hosts_match(glob, &facts.client.to_lowercase()),
            Self::Before(at) => facts.id.unix_us() < *at,
            Self::After(at) => facts.id.unix_us() >= *at,
            Self::Status(status) => *status == facts.status,
            Self::To(_) | Self::Host(_) | Self::Reply(_) | Self::Word(_) => return None,
        })
    }

    /// Returns whether a word is in the message itself.
    fn is_in_message(&self, facts: &MessageFacts<'_>) -> bool {
        let Self::Word(word) = self else { return false };
        let has = |text: &str| text.to_lowercase().contains(&**word);
        has(facts.sender.unwrap_or_default())
            || has(facts.client)
            || has(facts.message_id)
            || has(&facts.id.to_string())
    }

    fn fits(&self, step: &StepFacts<'_>) -> bool {
        match self {
            Self::To(pattern) => step.addresses.lines().any(|address| is_meant(pattern, address)),
            Self::Host(glob) => !step.host.is_empty() && hosts_match(glob, &step.host.to_lowercase()),
            Self::Reply(part) => step.reply.to_lowercase().contains(&**part),
            Self::Word(word) => {
                [step.addresses, step.host, step.reply].iter().any(|text| text.to_lowercase().contains(&**word))
            }
            _ => true,
        }
    }
}

/// Returns whether a pattern fits an address of the file. A text that is no address is compared as it is.
fn is_meant(pattern: &Pattern, text: &str) -> bool {
    match Address::parse(text.as_bytes()) {
        Ok(address) => pattern.matches(Some(&address)),
        Err(_) if text.is_empty() => pattern.matches(None),
        Err(_) => glob(&pattern.as_str().to_lowercase(), &text.to_lowercase()),
    }
}

/// The present, and the time zone.
#[derive(Clone, Copy, Debug)]
struct SearchClock {
    now_us: u64,
    offset: i64,
}

impl SearchClock {
    /// Reads `2026-11-27`, `2026-11-27T14:30`, `14:30` for today, or an age as `2h`.
    fn read(self, text: &str) -> Option<u64> {
        if let Some(age) = age(text) {
            return Some(self.now_us.saturating_sub(u64::try_from(age.as_micros()).ok()?));
        }
        let now = i64::try_from(self.now_us / 1_000_000).ok()? + self.offset;
        let today = CivilTime { hour: 0, minute: 0, second: 0, ..CivilTime::from_unix(now) };
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (Some(date), Some(time)),
            None if text.contains(':') => (None, Some(text)),
            None => (Some(text), None),
        };
        let mut civil = today;
        if let Some(date) = date {
            let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
            civil = CivilTime { year, month, day, ..civil };
        }
        match numbers(time.unwrap_or("0:0"), ':')?[..] {
            [hour, minute] => civil = CivilTime { hour, minute, ..civil },
            [hour, minute, second] => civil = CivilTime { hour, minute, second, ..civil },
            _ => return None,
        }
        u64::try_from(civil.to_unix()? - self.offset).ok()?.checked_mul(1_000_000)
    }
}

fn numbers(text: &str, separator: char) -> Option<Vec<i64>> {
    text.split(separator).map(|part| part.parse().ok()).collect()
}

impl HistoryTerm {
    fn parse(word: &str, clock: SearchClock) -> Result<Self, ExpressionError> {
        let (is_negated, term) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
        let error = |why: &str| ExpressionError::new(format!("{word:?}: {why}"));
        let named = term.find([':', '~']).map(|at| term.split_at(at));
        let Some((name, rest)) = named.filter(|(name, _)| TERMS.iter().any(|(known, _)| known == name)) else {
            // A name that is written by mistake would be looked for as a word and never be found.
            let is_name = |name: &str| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_lowercase());
            if let Some((name, _)) = named.filter(|(name, rest)| is_name(name) && rest.len() > 1) {
                let names: Vec<&str> = TERMS.iter().map(|(name, _)| *name).collect();
                return Err(error(&format!("there is no {name:?}; the names are {}", names.join(", "))));
            }
            if term.is_empty() {
                return Err(error("a word is missing"));
            }
            return Ok(Self { is_negated, condition: HistoryCondition::Word(term.to_lowercase().into()) });
        };
        let (operator, value) = (rest.chars().next().unwrap_or(':'), rest.get(1..).unwrap_or_default());
        let example = TERMS.iter().find(|(known, _)| *known == name).map_or("", |(_, example)| example);
        if value.is_empty() {
            return Err(error(&format!("the value is missing; write it as in {example}")));
        }
        let lower = || value.to_lowercase().into_boxed_str();
        let address = || Pattern::parse(value).map_err(|why| error(&why.to_string()));
        let time =
            || clock.read(value).ok_or_else(|| error("a time is 2026-11-27, 2026-11-27T14:30, 14:30, or an age as 2h"));
        let condition = match (name, operator) {
            ("from", ':') => HistoryCondition::From(address()?),
            ("to", ':') => HistoryCondition::To(address()?),
            ("id", ':') => HistoryCondition::Id(value.parse().map_err(|_| error("is no queue id"))?),
            ("host", ':') => HistoryCondition::Host(lower()),
            ("client", ':') => HistoryCondition::Client(lower()),
            ("before", ':') => HistoryCondition::Before(time()?),
            ("after", ':') => HistoryCondition::After(time()?),
            ("status", ':') => {
                let status = STATUSES.into_iter().find(|status| *status == value);
                HistoryCondition::Status(
                    status.ok_or_else(|| error(&format!("the states are {}", STATUSES.join(", "))))?,
                )
            }
            ("reply", '~') => HistoryCondition::Reply(lower()),
            _ => return Err(error(&format!("{name} takes no {operator:?}; write it as in {example}"))),
        };
        Ok(Self { is_negated, condition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27 14:00:00 UTC.
    const NOW: u64 = 1_795_788_000_000_000;
    const HOUR: u64 = 3_600_000_000;

    fn parse(text: &str) -> HistoryExpression {
        HistoryExpression::parse(text, NOW, 3_600).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn finds(text: &str) -> Option<usize> {
        let id = QueueId::new(NOW - 2 * HOUR, mail::Node::default()).unwrap();
        let message = MessageFacts {
            id,
            sender: Some("list@lists.example"),
            client: "web1.example [192.0.2.7]",
            message_id: "<A1@web1.example>",
            status: "failed",
        };
        let step = |addresses, host, reply| StepFacts { addresses, host, reply };
        let steps = [
            step("ann@slow.example\nbob@slow.example", "mx1.slow.example [192.0.2.9]", "451 4.7.1 Greylisted"),
            step("ann@slow.example", "mx2.slow.example [192.0.2.8]", "250 ok"),
            step("bob@slow.example", "mx1.slow.example [192.0.2.9]", "550 5.1.1 No such user"),
        ];
        let expression = parse(text);
        expression.matches_message(&message).then(|| expression.find_step(&message, &steps)).flatten()
    }

    #[test]
    fn terms_hold_or_do_not() {
        for (text, expected) in [
            ("", Some(2)),
            ("from:@lists.example to:@slow.example", Some(2)),
            ("from:<>", None),
            ("to:ann@slow.example", Some(1)),
            ("to:ann@slow.example reply~greylisted", Some(0)),
            ("to:ann@slow.example reply~\"no such\"", None),
            ("host:mx1.* reply~250", None),
            ("host:192.0.2.8", Some(1)),
            ("!host:mx3.*", Some(2)),
            ("!host:mx2.*", None),
            ("client:192.0.2.* client:web1.example", Some(2)),
            ("status:failed !status:sent", Some(2)),
            ("status:sent", None),
            ("after:3h before:1h", Some(2)),
            ("after:1h", None),
            ("after:12:00 before:14:00", Some(2)),
            ("before:2026-11-27T13:00:00", None),
            ("before:2026-11-27T13:00:01", Some(2)),
            ("after:2026-11-27", Some(2)),
            ("after:2026-11-28", None),
            ("a1@web1", Some(2)),
            ("GREYLISTED", Some(0)),
            ("such lists.example", Some(2)),
            ("!greylisted", None),
            ("nothing", None),
        ] {
            assert_eq!(finds(text), expected, "{text}");
        }
    }

    #[test]
    fn the_span_follows_from_the_terms() {
        assert_eq!(parse("after:2h before:1h").span(), (NOW - 2 * HOUR, NOW - HOUR));
        assert_eq!(parse("!after:2h !before:3h").span(), (NOW - 3 * HOUR, NOW - 2 * HOUR));
        assert_eq!(parse("word").span(), (0, u64::MAX));
    }

    #[test]
    fn wrong_terms_are_named() {
        for (text, part) in [
            ("who:ann", "there is no \"who\"; the names are from, to"),
            ("to:", "the value is missing; write it as in to:ann@example.org"),
            ("to~ann", "to takes no '~'"),
            ("to:ann", "is no address"),
            ("id:7", "is no queue id"),
            ("before:yesterday", "a time is 2026-11-27"),
            ("before:2026-02-30", "a time is"),
            ("before:25:00", "a time is"),
            ("status:dead", "the states are waiting, held, sent"),
            ("reply~\"x", "a quote is not closed"),
            ("a\nb", "control character"),
            ("!", "a word is missing"),
        ] {
            let error = HistoryExpression::parse(text, NOW, 0).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(HistoryExpression::parse(&"word ".repeat(1_000), NOW, 0).is_err());
    }
}
