//! The file of rules, and finding the one that fits.
//!
//! ```text
//! # reason    stage    code         pace  text
//! recipient   rcpt     5.1.1,550    -     \b(user|mailbox) (unknown|not found)\b
//! rate        *        421          slow  *
//! ```
//!
//! Columns stand apart by spaces; the last goes to the end of the line and is a regular expression that is looked for
//! in the words, in any case of letters. `*` is anything. The first rule that fits counts. Time is linear in the words,
//! for all expressions (docs.rs/regex), and rules, lines and words have a most.

use super::{Case, Reason, Stage};
use mail::EnhancedCode;
use regex::{RegexBuilder, RegexSet, RegexSetBuilder};
use std::fmt;

/// Rules of a file at most.
pub const RULES_MAX: usize = 1_000;
/// Octets of a line.
const LINE_OCTETS_MAX: usize = 1_000;
/// Octets of the words that are looked at.
pub(super) const TEXT_OCTETS_MAX: usize = 1_024;
/// Octets of one expression when compiled.
const ONE_OCTETS_MAX: usize = 256 << 10;
/// Octets of all of them.
const ALL_OCTETS_MAX: usize = 16 << 20;

/// The rules in force when no file gives others.
const DEFAULT: &str = include_str!("default.rules");

/// A fault in a line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Counted from 1.
    pub line: usize,
    /// The fault, and the expected text.
    pub text: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The reason that the rule gives.
    pub reason: Reason,
    /// The destination asks for less.
    pub is_slow: bool,
    stage: Option<Stage>,
    /// None: any.
    codes: Vec<Code>,
    /// Which of the expressions; `None`: any words.
    expression: Option<usize>,
    source: Box<str>,
}

impl Rule {
    /// Its line as it stands in the file, with single spaces between the columns.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// A code, or several by their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// `550`, `55x`, `5xx`: from, and up to.
    Reply(u16, u16),
    /// `5.1.1`, `x.1.1`, `4.7.x`
    Status(Option<u8>, Option<u16>, Option<u16>),
    /// `none`: there was no reply.
    NoReply,
}

impl Code {
    fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::NoReply);
        }
        let mut parts = text.split('.');
        if let (Some(class), Some(subject), Some(detail), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        {
            let number = |text: &str| match text {
                "x" => Some(None),
                _ if (1..=3).contains(&text.len()) => text.parse::<u16>().ok().map(Some),
                _ => None,
            };
            let class = match class {
                "4" => Some(4),
                "5" => Some(5),
                "x" => None,
                _ => return None,
            };
            return Some(Self::Status(class, number(subject)?, number(detail)?));
        }
        let digits = text.trim_end_matches('x');
        if text.len() != 3 || digits.is_empty() || !matches!(digits.as_bytes().first(), Some(b'2'..=b'5')) {
            return None;
        }
        let fill = |with: &str| format!("{digits}{}", with.repeat(3 - digits.len())).parse().ok();
        Some(Self::Reply(fill("0")?, fill("9")?))
    }

    fn fits(self, case: &Case<'_>) -> bool {
        let is = |wanted: Option<u16>, found: u16| wanted.is_none_or(|wanted| wanted == found);
        match self {
            Self::Reply(from, to) => case.code.is_some_and(|code| (from..=to).contains(&code)),
            Self::Status(class, subject, detail) => case.status.is_some_and(|status: EnhancedCode| {
                class.is_none_or(|class| class == status.outcome().digit())
                    && is(subject, status.subject())
                    && is(detail, status.detail())
            }),
            Self::NoReply => case.code.is_none(),
        }
    }
}

/// A file of rules, ready to be asked.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    expressions: RegexSet,
}

/// The reason that the rules give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleMatch<'a> {
    /// The reason; [`Reason::Other`] when no rule fits.
    pub reason: Reason,
    /// The destination asks for less.
    pub is_slow: bool,
    /// The rule.
    pub rule: Option<&'a Rule>,
}

impl Rules {
    /// The rules that come with mailrace.
    ///
    /// # Panics
    /// No: a test reads them.
    #[must_use]
    pub fn usual() -> Self {
        Self::parse(DEFAULT).expect("the rules that come with mailrace are read by a test")
    }

    /// The text of [`Rules::usual`], to begin an own file with.
    #[must_use]
    pub const fn usual_text() -> &'static str {
        DEFAULT
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Every line that makes no sense.
    pub fn parse(text: &str) -> Result<Self, Vec<RuleError>> {
        let (mut rules, mut patterns, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Self::rule(line, number, &mut patterns) {
                Ok(rule) => rules.push(rule),
                Err(text) => faults.push(RuleError { line: number, text }),
            }
            if rules.len() > RULES_MAX {
                faults.push(RuleError { line: number, text: format!("there are more than {RULES_MAX} rules") });
                break;
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let expressions = RegexSetBuilder::new(&patterns).case_insensitive(true).size_limit(ALL_OCTETS_MAX).build();
        let expressions = expressions.map_err(|error| {
            let text = format!("all expressions together: {error}; make some of them simpler");
            vec![RuleError { line: rules.last().map_or(1, |rule| rule.line), text }]
        })?;
        Ok(Self { rules, expressions })
    }

    fn rule(line: &str, number: usize, patterns: &mut Vec<String>) -> Result<Rule, String> {
        if line.len() > LINE_OCTETS_MAX {
            return Err(format!("it has {} octets, {LINE_OCTETS_MAX} are the most", line.len()));
        }
        let mut rest = line;
        let mut column = |name: &str| {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            rest = after.trim_start();
            if word.is_empty() {
                return Err(format!("there is no {name}; a rule is: reason stage code pace text"));
            }
            Ok(word)
        };
        let (reason, stage, codes, pace) = (column("reason")?, column("stage")?, column("code")?, column("pace")?);
        let text = rest;
        let source = format!("{reason} {stage} {codes} {pace} {text}");
        let reason = Reason::from_name(reason)
            .ok_or_else(|| format!("\"{reason}\" is no reason; reasons are {}", list(Reason::ALL.map(Reason::name))))?;
        let stage = match stage {
            "*" => None,
            name => Some(Stage::from_name(name).ok_or_else(|| {
                format!("\"{name}\" is no stage; stages are *, {}", list(Stage::ALL.map(Stage::name)))
            })?),
        };
        let codes = match codes {
            "*" => Vec::new(),
            codes => codes
                .split(',')
                .map(|code| {
                    Code::parse(code).ok_or_else(|| {
                        format!("\"{code}\" is no code; codes are such as *, none, 550, 45x, 5.1.1, x.7.x")
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        let is_slow = match pace {
            "slow" => true,
            "-" => false,
            other => return Err(format!("\"{other}\" is no pace; it is \"slow\" or \"-\"")),
        };
        let expression = match text {
            "" => return Err("there is no text; * is any".to_owned()),
            "*" => None,
            pattern => {
                let built = RegexBuilder::new(pattern).case_insensitive(true).size_limit(ONE_OCTETS_MAX).build();
                built.map_err(|error| format!("\"{pattern}\" is no regular expression: {}", one_line(&error)))?;
                patterns.push(pattern.to_owned());
                Some(patterns.len() - 1)
            }
        };
        Ok(Rule { line: number, reason, is_slow, stage, codes, expression, source: source.into() })
    }

    /// The first rule that fits.
    #[must_use]
    pub fn find(&self, case: &Case<'_>) -> RuleMatch<'_> {
        let end = case.text.floor_char_boundary(TEXT_OCTETS_MAX);
        let mut hits = None;
        let mut has = |expression: usize| {
            let text = case.text.get(..end).unwrap_or_default();
            hits.get_or_insert_with(|| self.expressions.matches(text)).matched(expression)
        };
        let rule = self.rules.iter().find(|rule| {
            rule.stage.is_none_or(|stage| case.stage == Some(stage))
                && (rule.codes.is_empty() || rule.codes.iter().any(|code| code.fits(case)))
                && rule.expression.is_none_or(&mut has)
        });
        RuleMatch {
            reason: rule.map_or(Reason::Other, |rule| rule.reason),
            is_slow: rule.is_some_and(|rule| rule.is_slow),
            rule,
        }
    }

    /// The rules in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter()
    }
}

fn list<const N: usize>(names: [&str; N]) -> String {
    names.join(", ")
}

/// Messages of the library point at the place with lines of their own.
fn one_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    last.trim().trim_start_matches("error: ").to_owned()
}
