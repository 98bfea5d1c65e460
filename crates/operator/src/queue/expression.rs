//! The expression that selects mail: `to:@slow.example age>2h reply~"greylist" size>1M`.
//!
//! Terms stand side by side and must all hold; `!` before one turns it round. A term is a name, an operator and a
//! value: `:` compares, `~` looks for text within, `>` and `<` compare numbers. A value with blanks stands in double
//! quotes, and in quotes `\"` is a quote. The expression is text on the control socket too: server and command read it
//! by this file.

use super::pattern::{self, Pattern};
use super::recipient_status::RecipientStatus;
use schedule::Class;
use std::fmt;
use std::time::Duration;

/// Octets of an expression.
const EXPRESSION_BYTES_MAX: usize = 4_096;

/// Names of terms with what they may look like.
const TERMS: [(&str, &str); 13] = [
    ("from", "from:@example.org"),
    ("to", "to:@slow.example"),
    ("destination", "destination:*.example"),
    ("host", "host:mx1.example"),
    ("state", "state:waiting"),
    ("class", "class:bulk"),
    ("held", "held:chinese_text"),
    ("client", "client:192.0.2.*"),
    ("reason", "reason:greylisted"),
    ("reply", "reply~\"too busy\""),
    ("age", "age>2h"),
    ("size", "size>1M"),
    ("tries", "tries>3"),
];

/// Conditions on mail, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: Box<str>,
    terms: Vec<Term>,
}

/// A condition, or its opposite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    is_negated: bool,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    From(Pattern),
    To(Pattern),
    /// Lower case, with `*` for any text.
    Destination(Box<str>),
    Host(Box<str>),
    Held(Box<str>),
    Client(Box<str>),
    Reason(Box<str>),
    /// Lower case; somewhere in the last reply.
    Reply(Box<str>),
    State(RecipientStatus),
    Class(Class),
    Age(Order, Duration),
    Size(Order, u64),
    Tries(Order, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Above,
    Below,
}

impl Order {
    fn holds<T: PartialOrd>(self, value: T, limit: T) -> bool {
        match self {
            Self::Above => value > limit,
            Self::Below => value < limit,
        }
    }
}

/// The facts of a recipient that the index and the dispatcher know. Each is asked for only if a term needs it.
pub(super) trait QueueFacts {
    /// The name of the destination.
    fn destination(&self) -> String;
    /// The hosts that mail for it goes to, if known.
    fn host(&self) -> Option<String>;
    /// Its state.
    fn status(&self) -> RecipientStatus;
    /// Its class.
    fn class(&self) -> Class;
    /// The rule or person that holds it.
    fn held_by(&self) -> Option<String>;
    /// The kind of the reason why it was not delivered.
    fn reason(&self) -> Option<&'static str>;
    /// The last reply, or the failure in words.
    fn reply(&self) -> Option<String>;
    /// The age of the message.
    fn age(&self) -> Duration;
    /// Attempts so far.
    fn tries(&self) -> u64;
}

/// The facts of a message that only its envelope knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnvelopeFacts<'a> {
    pub(super) sender: Option<&'a mail::Address>,
    pub(super) recipient: Option<&'a mail::Address>,
    pub(super) size: u64,
    pub(super) client: mail::Client,
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Names the term, and what may stand there.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            let text = format!("the expression has {} octets, {EXPRESSION_BYTES_MAX} are the most", text.len());
            return Err(ExpressionError(text));
        }
        if let Some(control) = text.chars().find(|letter| letter.is_control()) {
            return Err(ExpressionError(format!("the expression has the control character {control:?}")));
        }
        let terms = expression_words(text)?.iter().map(|word| Term::parse(word)).collect::<Result<Vec<_>, _>>()?;
        match terms.is_empty() {
            true => Err(ExpressionError(format!("an expression has terms such as {}", examples()))),
            false => Ok(Self { text: text.trim().into(), terms }),
        }
    }

    /// Returns whether a word of a command line begins an expression, and is no queue id.
    #[must_use]
    pub fn is_term(word: &str) -> bool {
        word.contains([':', '~', '<', '>']) || word.starts_with('!')
    }

    /// The text, as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the terms about recipients hold for an address; other terms count as true.
    #[must_use]
    pub fn matches_recipient(&self, address: &mail::Address) -> bool {
        let mut about = self.terms.iter().filter_map(|term| match &term.condition {
            Condition::To(pattern) => Some(pattern.matches(Some(address)) != term.is_negated),
            _ => None,
        });
        about.all(|holds| holds)
    }

    /// Returns a term that mail cannot be compared by when it comes: its outcome, its age and its state show later.
    pub(super) fn term_of_old_mail(&self) -> Option<&'static str> {
        self.terms.iter().find_map(|term| match term.condition {
            Condition::Host(_) => Some("host:"),
            Condition::Held(_) => Some("held:"),
            Condition::Reason(_) => Some("reason:"),
            Condition::Reply(_) => Some("reply~"),
            Condition::State(_) => Some("state:"),
            Condition::Age(..) => Some("age"),
            Condition::Size(..) => Some("size"),
            Condition::Tries(..) => Some("tries"),
            Condition::From(_)
            | Condition::To(_)
            | Condition::Destination(_)
            | Condition::Client(_)
            | Condition::Class(_) => None,
        })
    }

    /// Returns whether a term asks for something that only the envelope knows.
    pub(super) fn needs_envelope(&self) -> bool {
        self.terms.iter().any(|term| term.condition.needs_envelope())
    }

    /// Returns whether the terms hold that need no envelope.
    pub(super) fn matches_queue(&self, facts: &dyn QueueFacts) -> bool {
        let mut known = self.terms.iter().filter(|term| !term.condition.needs_envelope());
        known.all(|term| term.condition.holds_in_queue(facts) != term.is_negated)
    }

    /// Returns whether the terms hold that need the envelope.
    pub(super) fn matches_envelope(&self, facts: &EnvelopeFacts<'_>) -> bool {
        let mut asking = self.terms.iter().filter(|term| term.condition.needs_envelope());
        asking.all(|term| term.condition.holds_in_envelope(facts) != term.is_negated)
    }
}

impl Condition {
    const fn needs_envelope(&self) -> bool {
        matches!(self, Self::From(_) | Self::To(_) | Self::Size(..) | Self::Client(_))
    }

    fn holds_in_queue(&self, facts: &dyn QueueFacts) -> bool {
        let is = |glob: &str, text: Option<String>| text.is_some_and(|text| pattern::glob(glob, &text.to_lowercase()));
        match self {
            Self::Destination(glob) => is(glob, Some(facts.destination())),
            Self::Host(glob) => facts.host().is_some_and(|hosts| hosts_match(glob, &hosts.to_lowercase())),
            Self::Held(glob) => is(glob, facts.held_by()),
            Self::Reason(glob) => facts.reason().is_some_and(|name| pattern::glob(glob, name)),
            Self::Reply(part) => facts.reply().is_some_and(|reply| reply.to_lowercase().contains(&**part)),
            Self::State(state) => facts.status() == *state,
            Self::Class(class) => facts.class() == *class,
            Self::Age(order, limit) => order.holds(facts.age(), *limit),
            Self::Tries(order, limit) => order.holds(facts.tries(), *limit),
            Self::From(_) | Self::To(_) | Self::Size(..) | Self::Client(_) => true,
        }
    }

    fn holds_in_envelope(&self, facts: &EnvelopeFacts<'_>) -> bool {
        match self {
            Self::From(pattern) => pattern.matches(facts.sender),
            Self::To(pattern) => facts.recipient.is_some_and(|address| pattern.matches(Some(address))),
            Self::Size(order, limit) => order.holds(facts.size, *limit),
            Self::Client(glob) => {
                let text = match facts.client {
                    mail::Client::Network(address) => address.ip().to_string(),
                    mail::Client::Process { uid } => uid.to_string(),
                    mail::Client::Internal => "mailrace".to_owned(),
                };
                pattern::glob(glob, &text)
            }
            _ => true,
        }
    }
}

/// Returns whether one of the names in a list of hosts is meant, or the list as a whole.
pub(crate) fn hosts_match(glob: &str, hosts: &str) -> bool {
    let mut names = hosts.split([' ', ',', '[', ']', '(', ')', '|']).filter(|name| !name.is_empty());
    pattern::glob(glob, hosts) || names.any(|name| pattern::glob(glob, name))
}

impl Term {
    fn parse(word: &str) -> Result<Self, ExpressionError> {
        let (is_negated, term) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
        let error = |why: &str| ExpressionError(format!("{word:?}: {why}"));
        let Some(at) = term.find([':', '~', '<', '>']) else {
            return Err(error(&format!("a term has a name, one of : ~ < > and a value, as in {}", examples())));
        };
        let (name, rest) = term.split_at(at);
        let operator = rest.chars().next().unwrap_or(':');
        let value = rest.get(1..).unwrap_or_default();
        let Some((_, example)) = TERMS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = TERMS.iter().map(|(name, _)| *name).collect();
            return Err(error(&format!("there is no {name:?}; the names are {}", names.join(", "))));
        };
        if value.is_empty() {
            return Err(error(&format!("the value is missing; write it as in {example}")));
        }
        let order = match operator {
            '>' => Some(Order::Above),
            '<' => Some(Order::Below),
            _ => None,
        };
        let lower = || value.to_lowercase().into_boxed_str();
        let address = || Pattern::parse(value).map_err(|why| error(&why.to_string()));
        let condition = match (name, operator, order) {
            ("from", ':', _) => Condition::From(address()?),
            ("to", ':', _) => Condition::To(address()?),
            ("destination", ':', _) => Condition::Destination(lower()),
            ("host", ':', _) => Condition::Host(lower()),
            ("held", ':', _) => Condition::Held(lower()),
            ("client", ':', _) => Condition::Client(lower()),
            ("reason", ':', _) => Condition::Reason(lower()),
            ("reply", '~', _) => Condition::Reply(lower()),
            ("state", ':', _) => {
                let names = RecipientStatus::ALL.map(RecipientStatus::name).join(", ");
                let state = RecipientStatus::from_name(value);
                Condition::State(state.ok_or_else(|| error(&format!("the states are {names}")))?)
            }
            ("class", ':', _) => {
                Condition::Class(class(value).ok_or_else(|| error("classes are urgent, normal, bulk"))?)
            }
            ("age", _, Some(order)) => {
                let age = age(value);
                Condition::Age(order, age.ok_or_else(|| error("an age has units: 90m, 1d12h, units s, m, h, d, w"))?)
            }
            ("size", _, Some(order)) => {
                let size = size(value);
                Condition::Size(order, size.ok_or_else(|| error("a size is octets, or a number with K, M or G"))?)
            }
            ("tries", _, Some(order)) => {
                Condition::Tries(order, value.parse().map_err(|_| error("the number of attempts is a number"))?)
            }
            _ => return Err(error(&format!("{name} takes no {operator:?}; write it as in {example}"))),
        };
        Ok(Self { is_negated, condition })
    }
}

/// Splits a text at blanks that stand outside quotes, and takes the quotes away.
pub(crate) fn expression_words(text: &str) -> Result<Vec<String>, ExpressionError> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => word.extend(letters.next()),
            ' ' if !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => word.push(other),
        }
    }
    if is_quoted {
        return Err(ExpressionError(format!("{text:?}: a quote is not closed")));
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

fn class(name: &str) -> Option<Class> {
    match name {
        "urgent" => Some(Class::Urgent),
        "normal" => Some(Class::Normal),
        "bulk" => Some(Class::Bulk),
        _ => None,
    }
}

/// Reads `4096`, `1M`, `64KiB`: a unit is 1,024 times the one before.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads an age: numbers, each with one of the units `s`, `m`, `h`, `d` and `w`, as in `1d12h`.
#[must_use]
pub fn age(text: &str) -> Option<Duration> {
    let (mut seconds, mut number) = (0_u64, None);
    for letter in text.chars() {
        if let Some(digit) = letter.to_digit(10) {
            number = Some(number.unwrap_or(0_u64).checked_mul(10)?.checked_add(digit.into())?);
            continue;
        }
        let unit = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        seconds = seconds.checked_add(number.take().and_then(|number: u64| number.checked_mul(unit))?)?;
    }
    (number.is_none() && !text.is_empty()).then(|| Duration::from_secs(seconds))
}

fn examples() -> String {
    let some: Vec<&str> = TERMS.iter().map(|(_, example)| *example).filter(|term| term.len() < 17).collect();
    some.get(..3).unwrap_or(&some).join(", ")
}

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError(String);

impl ExpressionError {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ExpressionError {}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, Client};

    struct Facts;

    impl QueueFacts for Facts {
        fn destination(&self) -> String {
            "Slow.Example".to_owned()
        }
        fn host(&self) -> Option<String> {
            Some("mx1.slow.example, mx2.slow.example".to_owned())
        }
        fn status(&self) -> RecipientStatus {
            RecipientStatus::Waiting
        }
        fn class(&self) -> Class {
            Class::Bulk
        }
        fn held_by(&self) -> Option<String> {
            None
        }
        fn reason(&self) -> Option<&'static str> {
            Some("greylisted")
        }
        fn reply(&self) -> Option<String> {
            Some("451 4.7.1 Greylisted, please \"try\" later".to_owned())
        }
        fn age(&self) -> Duration {
            Duration::from_secs(7_200)
        }
        fn tries(&self) -> u64 {
            4
        }
    }

    fn holds(text: &str) -> bool {
        let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (sender, recipient) = ("list@lists.example", "ann@slow.example").into_addresses();
        let client = Client::Network("192.0.2.7:4000".parse().expect("an address"));
        let facts = EnvelopeFacts { sender: Some(&sender), recipient: Some(&recipient), size: 2 << 20, client };
        expression.matches_queue(&Facts) && expression.matches_envelope(&facts)
    }

    trait IntoAddresses {
        fn into_addresses(self) -> (Address, Address);
    }

    impl IntoAddresses for (&str, &str) {
        fn into_addresses(self) -> (Address, Address) {
            (self.0.parse().expect("an address"), self.1.parse().expect("an address"))
        }
    }

    #[test]
    fn terms_hold_or_do_not() {
        for (text, expected) in [
            ("to:@slow.example age>1h reply~\"greylist\" size>1M", true),
            ("to:@slow.example age>2h", false),
            ("age<3h", true),
            ("!age<3h", false),
            ("to:@other.example", false),
            ("!to:@other.example", true),
            ("from:list@* tries>3 tries<5", true),
            ("tries>4", false),
            ("destination:*.example class:bulk state:waiting", true),
            ("class:urgent", false),
            ("host:mx2.slow.example", true),
            ("host:mx3.*", false),
            ("reply~\"please \\\"try\\\"\"", true),
            ("reply~rejected", false),
            ("held:*", false),
            ("!held:*", true),
            ("reason:grey*", true),
            ("client:192.0.2.*", true),
            ("size<2M", false),
            ("size>2047KiB", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_terms_are_named() {
        for (text, part) in [
            ("", "terms such as"),
            ("  ", "terms such as"),
            ("ann", "a name, one of"),
            ("who:ann", "there is no \"who\"; the names are from, to"),
            ("to:", "the value is missing; write it as in to:@slow.example"),
            ("to>3", "to takes no '>'"),
            ("age:2h", "age takes no ':'; write it as in age>2h"),
            ("age>2", "an age has units"),
            ("age>99999999999999999999w", "an age has units"),
            ("size>1X", "a size is octets"),
            ("size>99999999999999999999", "a size is octets"),
            ("tries>many", "is a number"),
            ("state:dead", "the states are waiting, held, active"),
            ("class:fast", "urgent, normal, bulk"),
            ("to:ann", "is no address"),
            ("reply~\"greylist", "a quote is not closed"),
            ("to:@a.example\nall", "control character"),
        ] {
            let error = Expression::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Expression::parse(&"!age>1h ".repeat(1_000)).is_err());
    }

    #[test]
    fn only_some_terms_read_envelopes() {
        assert!(!Expression::parse("age>1h reply~x !held:*").expect("good").needs_envelope());
        assert!(Expression::parse("age>1h size>1").expect("good").needs_envelope());
        assert!(
            Expression::is_term("to:@x") && Expression::is_term("!held:*") && !Expression::is_term("6AK9BQPE592284")
        );
    }
}
