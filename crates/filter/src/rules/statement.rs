//! A statement of a rule file, and what statements have in common.

use super::tokens::Token;

/// A statement: its tokens, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Statement<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) line: usize,
    pub(super) source: &'a str,
}

/// Returns the text of a word.
pub(super) fn word(token: &Token) -> Option<&str> {
    match token {
        Token::Word(word) => Some(word),
        _ => None,
    }
}

/// Reads values between commas: texts or words.
pub(super) fn values(tokens: &[Token]) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for part in tokens.split(|token| *token == Token::Sign(",")) {
        match part {
            [Token::Word(value) | Token::Text(value)] => out.push(value.clone()),
            [] => return Err("a value is missing".to_owned()),
            [_, extra, ..] => return Err(format!("{extra} does not belong here; values stand between commas")),
            [other] => return Err(format!("{other} is no value")),
        }
    }
    Ok(out)
}
