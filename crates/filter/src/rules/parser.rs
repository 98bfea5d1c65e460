//! The statements of a rule file: rules, their scopes, and the blocks of their conditions.

use std::collections::HashMap;

use super::statement::{Statement, values, word};
use super::tokens::{Token, split};
use super::{Problem, RULES_MAX, Rule, actions, conditions};
use crate::action::Action;
use crate::condition::{Combine, Condition, Test};
use crate::literals::folded;
use crate::message::Direction;

/// Groups of conditions inside each other.
const DEPTH_MAX: usize = 8;
/// Problems that are reported; more say nothing new.
const PROBLEMS_MAX: usize = 50;

/// The rules read so far.
#[derive(Default)]
pub(super) struct Parser {
    pub(super) rules: Vec<Rule>,
    pub(super) tests: Vec<Test>,
    pub(super) problems: Vec<Problem>,
    /// The places of the names.
    names: HashMap<String, (String, usize)>,
    file: usize,
    file_name: String,
    /// The rule that is open, and its open groups, outermost first.
    rule: Option<OpenRule>,
}

struct OpenRule {
    rule: Rule,
    has_match: bool,
    groups: Vec<(Combine, Vec<Condition>)>,
}

impl Parser {
    /// Reads one file.
    pub(super) fn file(&mut self, index: usize, name: &str, text: &str) {
        self.file = index;
        name.clone_into(&mut self.file_name);
        let mut last_line = 1;
        for (number, source) in text.lines().enumerate() {
            let line = number + 1;
            last_line = line;
            let source = if number == 0 { source.trim_start_matches('\u{feff}') } else { source };
            match split(source) {
                Ok(tokens) => self.line(&tokens, line, source.trim()),
                Err(text) => self.problem(line, text),
            }
            if self.problems.len() >= PROBLEMS_MAX {
                return;
            }
        }
        if let Some(open) = self.rule.take() {
            let text = format!("rule \"{}\" of line {} has no \"}}\" at its end", open.rule.name, open.rule.line);
            self.problem(last_line, text);
        }
    }

    fn problem(&mut self, line: usize, text: String) {
        self.problems.push(Problem { file: self.file_name.clone(), line, text });
    }

    /// Splits a line at braces, so that a block may stand on one line.
    fn line(&mut self, tokens: &[Token], line: usize, source: &str) {
        let mut rest = tokens;
        while !rest.is_empty() {
            let is_brace = |token: &Token| matches!(token, Token::Sign("{" | "}"));
            let end = rest.iter().position(is_brace).unwrap_or(rest.len());
            let (tokens, behind) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            let statement = Statement { tokens, line, source };
            let result = match behind.first() {
                Some(Token::Sign("{")) => self.open(statement),
                Some(_) => self.statement(statement).and_then(|()| self.close(line)),
                None => self.statement(statement),
            };
            if let Err(text) = result {
                self.problem(line, text);
            }
            rest = behind.get(1..).unwrap_or_default();
        }
    }

    /// Takes the words before `{`.
    fn open(&mut self, statement: Statement<'_>) -> Result<(), String> {
        let words: Vec<&str> = statement.tokens.iter().filter_map(word).collect();
        let Some(open) = &mut self.rule else {
            return self.open_rule(statement);
        };
        // The group is opened even if it is wrong, so that its "}" closes it.
        let combine = match words.as_slice() {
            ["match", kind] if open.groups.is_empty() => Combine::for_word(kind),
            [kind] if !open.groups.is_empty() => Combine::for_word(kind),
            _ => None,
        };
        let is_second = open.groups.is_empty() && std::mem::replace(&mut open.has_match, true);
        open.groups.push((combine.unwrap_or(Combine::All), Vec::new()));
        if statement.tokens.len() != words.len() || combine.is_none() {
            return Err(
                "a block begins with \"match any {\", \"match all {\" or \"match none {\", inside it with \"any {\", \
                        \"all {\" or \"none {\""
                    .to_owned(),
            );
        }
        if is_second {
            return Err("a second \"match\": put both into one \"match all {\"".to_owned());
        }
        if open.groups.len() > DEPTH_MAX {
            return Err(format!("groups inside each other: {DEPTH_MAX} at most"));
        }
        Ok(())
    }

    fn open_rule(&mut self, statement: Statement<'_>) -> Result<(), String> {
        let name = match statement.tokens {
            [Token::Word(rule), Token::Word(name) | Token::Text(name)] if rule == "rule" => Ok(name.clone()),
            _ => Err("a rule begins with \"rule NAME {\"".to_owned()),
        };
        let rule = Rule {
            name: name.clone().unwrap_or_default(),
            file: self.file,
            line: statement.line,
            listeners: None,
            direction: None,
            recipients: None,
            lists: None,
            condition: Condition::Group(Combine::All, Vec::new()),
            actions: Vec::new(),
        };
        self.rule = Some(OpenRule { rule, has_match: false, groups: Vec::new() });
        let name = name?;
        if name.trim().is_empty() || name.chars().any(mail::is_unprintable) {
            return Err("a rule has a name of printable characters".to_owned());
        }
        let place = (self.file_name.clone(), statement.line);
        match self.names.insert(name.clone(), place) {
            Some((file, line)) => Err(format!("a rule \"{name}\" is in {file} line {line}; choose another name")),
            None if self.rules.len() >= RULES_MAX => Err(format!("{RULES_MAX} rules at most")),
            None => Ok(()),
        }
    }

    fn close(&mut self, line: usize) -> Result<(), String> {
        let Some(open) = &mut self.rule else { return Err("\"}\" closes nothing".to_owned()) };
        if let Some((combine, members)) = open.groups.pop() {
            let is_empty = members.is_empty();
            let group = Condition::Group(combine, members);
            match open.groups.last_mut() {
                Some((_, outer)) => outer.push(group),
                None => open.rule.condition = group,
            }
            // A problem inside has been reported; the group is not empty by intention then.
            let has_problem = self.problems.iter().any(|one| one.file == self.file_name && one.line >= open.rule.line);
            return if is_empty && !has_problem { Err("a group without a condition".to_owned()) } else { Ok(()) };
        }
        let Some(open) = self.rule.take() else { return Ok(()) };
        let rule = open.rule;
        let has_problem = self.problems.iter().any(|one| one.file == self.file_name && one.line >= rule.line);
        let without_action = rule.actions.is_empty() && !has_problem;
        let name = rule.name.clone();
        self.rules.push(rule);
        if without_action {
            return Err(format!(
                "rule \"{name}\" has no action; write \"reject\", \"quarantine recipient\", … before line {line}"
            ));
        }
        Ok(())
    }

    fn statement(&mut self, statement: Statement<'_>) -> Result<(), String> {
        let Some(first) = statement.tokens.first() else { return Ok(()) };
        let Some(open) = &mut self.rule else {
            return Err(format!("{first} stands outside a rule; a rule begins with \"rule NAME {{\""));
        };
        if let Some((_, members)) = open.groups.last_mut() {
            let test = conditions::parse(statement)?;
            members.push(Condition::Test(self.tests.len()));
            self.tests.push(test);
            return Ok(());
        }
        if word(first) == Some("for") {
            return scope(&mut open.rule, statement);
        }
        let action = actions::parse(statement)?;
        if open.rule.actions.iter().any(|one| matches!(one, Action::Final(_))) {
            return Err(
                "an action behind one that ends the rule: accept, reject, defer, discard, quarantine and hold \
                        come last, and one of them at most"
                    .to_owned(),
            );
        }
        open.rule.actions.push(action);
        Ok(())
    }
}

/// Reads `for listener|direction|recipient|list VALUES`.
fn scope(rule: &mut Rule, statement: Statement<'_>) -> Result<(), String> {
    let (kind, rest) = match statement.tokens {
        [_, Token::Word(kind), rest @ ..] => (kind.as_str(), rest),
        _ => ("", [].as_slice()),
    };
    let next = "\"for\" is followed by listener, direction, recipient or list";
    let slot = match kind {
        "listener" => &mut rule.listeners,
        "recipient" => &mut rule.recipients,
        "list" => &mut rule.lists,
        "direction" => {
            let [Token::Word(value)] = rest else { return Err("a direction is inbound or outbound".to_owned()) };
            let direction = Direction::from_name(value).ok_or("a direction is inbound or outbound")?;
            if rule.direction.replace(direction).is_some() {
                return Err("a second \"for direction\"".to_owned());
            }
            return Ok(());
        }
        _ => return Err(next.to_owned()),
    };
    let rest = rest.strip_prefix(&[Token::Sign("=")]).unwrap_or(rest);
    let values = values(rest)?.iter().map(|value| folded(value)).collect();
    if slot.replace(values).is_some() {
        return Err(format!("a second \"for {kind}\"; put all values behind one, with commas"));
    }
    Ok(())
}
